//! Lends user memory to the engine: the only place of this crate where a slice becomes a region.
//!
//! Two kinds of callers: a blocking call, which takes the memory back before it returns, and a
//! [`Scope`](crate::Scope), which takes it back before the borrow ends.
#![allow(unsafe_code)]

use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_pml::ob1::Payload;

/// # Safety
/// The engine gives the payload back (its request completes, or the engine is poisoned and never runs again) before the
/// borrow of `bytes` ends.
#[inline]
pub(crate) unsafe fn payload(bytes: &[u8]) -> Payload {
    // SAFETY: borrowed shared, hence valid and unwritten, until the engine gave it back, by this function's contract.
    Payload::Contiguous(unsafe { SendRegion::new(bytes.as_ptr(), bytes.len()) })
}

/// # Safety
/// As [`payload`], and nobody reads or writes `bytes` until then.
#[inline]
pub(crate) unsafe fn buffer(bytes: &mut [u8]) -> RecvRegion {
    // SAFETY: borrowed exclusively until the engine gave it back, by this function's contract.
    unsafe { RecvRegion::new(bytes.as_mut_ptr(), bytes.len()) }
}
