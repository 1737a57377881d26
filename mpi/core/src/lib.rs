//! Communicators above the PML: one process's whole stack without clock, thread, socket or file.
//!
//! Generic over the byte transport, so that the simulator runs what real processes run.

mod attributes;
mod errhandler;
mod error;
mod group;

pub use attributes::{Attributes, CopyFn, DeleteFn, Keyval, Keyvals, Value};
pub use errhandler::{ErrorHandler, Raised, UserHandler};
pub use error::CoreError;
pub use group::{Comparison, Group, GroupError, RankRange};

/// A communicator of this process: slot and generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CommHandle {
    slot: u32,
    generation: u32,
}

impl CommHandle {
    /// Names no communicator.
    pub const NONE: CommHandle = CommHandle { slot: u32::MAX, generation: u32::MAX };
}
