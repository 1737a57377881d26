//! The atomics that the ring and the inbox are built from: the real ones, or loom's when a model runs.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, compiler_fence, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// Loom knows no compiler fences: models run with the fenced protocol only.
#[cfg(loom)]
pub(crate) fn compiler_fence(order: Ordering) {
    fence(order);
}
