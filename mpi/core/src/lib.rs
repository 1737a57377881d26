//! Communicators above the PML: one process's whole stack without clock, thread, socket or file.
//!
//! [`Core`] owns the PML and the control plane and puts communicators over them: groups, attributes, error handlers,
//! creation that all members see alike whoever dies, collectives that end everywhere when they end in an error anywhere,
//! revocation, agreement and shrinking. It is generic over the byte transport, so that the simulator runs what real
//! processes run.
//!
//! # Who calls what
//! The owner calls [`Core::progress`] for as long as it waits, gives addresses that are wanted ([`Core::take_wanted`]) to the
//! PML, and says who is known to have failed ([`Core::proc_failed`]). Operations of several steps are *tasks*: each begins
//! with a call that answers a [`TaskId`], goes on in `progress`, and ends once ([`Core::test`]). Nothing blocks, and nothing
//! is called back.

mod agree;
mod assembly;
mod attributes;
mod collective;
mod comm;
mod control;
mod core;
mod create;
mod errhandler;
mod error;
mod exchange;
mod failure;
mod gather;
pub mod grid;
mod group;
mod identity;
mod intercomm;
mod lane;
mod late;
mod letter;
mod persistent;
mod summons;
mod task;

pub use agree::Agreeing;
pub use attributes::{Attributes, CopyFn, DeleteFn, Keyval, Keyvals, Value};
pub use collective::Collective;
pub use comm::{CommComparison, CommHandle, Info};
pub use core::{Config, Core};
pub use errhandler::{ErrorHandler, Raised, UserHandler};
pub use error::CoreError;
pub use group::{Comparison, Group, GroupError, RankRange};
pub use persistent::PersistentId;
pub use task::{Output, TaskId};
