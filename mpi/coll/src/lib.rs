//! Collective operations (MPI 5.0, chapters 6 and 8.6) as schedules of point-to-point messages.
//!
//! A [`Call`] says what is asked; [`plan()`] turns it into the [`Schedule`] of one process: rounds of messages over
//! buffers that are named by space and offset. A [`Runner`] runs schedules over the PML; a [`Context`] does that for a
//! communicator and keeps what can be used again. Nothing here blocks, allocates after the first call of a shape, or
//! knows a clock or thread.
//!
//! # Failures
//! When a message of an operation fails, the operation ends at this process with that error, after every message it began
//! is over (law 2). The other members learn of it only where they talk to a failed process themselves; so the owner of a
//! communicator whose operation ended in error interrupts its collectives everywhere (seed 000, the implicit `coll_only`
//! revoke). Members that completed before have right results; all others get an error; nobody waits for ever.
//!
//! # Order of operands
//! Reductions with an operation that does not commute combine contributions in the order of ranks. So do short ones that
//! commute, and each element of a result is computed once or by the same expression everywhere: all members of an
//! allreduce get the same bits.

mod algorithms;
mod builder;
mod call;
mod choose;
mod context;
mod error;
mod memory;
mod op;
mod place;
mod plan;
mod runner;
mod schedule;
mod tags;

pub use call::{Block, Call, Elements, Neighbors, Pairing, Root};
pub use choose::Config;
pub use context::{Context, Operation};
pub use error::CollError;
pub use memory::Memory;
pub use op::{Op, Reduction, Type, UserFunction};
pub use place::Place;
pub use plan::plan;
pub use runner::{Patience, Poll, Runner};
pub use schedule::{At, Invalid, Round, Schedule, Sizes, Space, Span, Step, Target};
pub use tags::{PARTITION_TAGS, partition as partition_tag, partitioned as partitioned_tag};

/// The algorithms there are, by collective.
pub mod algorithm {
    pub use crate::choose::{
        Allgather, Allreduce, Alltoall, Barrier, Bcast, Gather, Reduce, ReduceScatter, Scan,
        Scatter,
    };
}
