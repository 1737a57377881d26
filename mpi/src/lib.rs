//! Fault-tolerant message passing for HPC clusters.
//!
//! Ranks of a job exchange messages over shared memory and TCP (more fabrics follow). When a rank, a link or a host dies,
//! the others learn of it: operations that needed the dead rank end with [`Error::ProcFailed`], everything else goes on.
//!
//! ```
//! use ironweave::{Error, World};
//!
//! let world = World::init()?;
//! let comm = world.comm();
//! let (me, n) = (comm.rank(), comm.size());
//!
//! // Pass a number around the ring. If a neighbour dies, say so and go on.
//! let mut token = [0u64];
//! match comm.sendrecv(&[u64::from(me)], (me + 1) % n, 0, &mut token, (me + n - 1) % n, 0) {
//!     Ok(_) => println!("rank {me} got {}", token[0]),
//!     Err(Error::ProcFailed { rank }) => println!("rank {me}: rank {rank} has failed"),
//!     Err(other) => return Err(other),
//! }
//! world.finalize()?;
//! # Ok::<(), Error>(())
//! ```
//!
//! Start it with `ironweave run -n 4 program`, or with any launcher that speaks PMI-1; alone it is a job of one.
//!
//! # What is promised
//! * Every operation ends, with success or an error, in bounded time after a failure it depends on is known.
//! * Once it has ended, nothing writes its buffer.
//! * Messages between two ranks of a communicator arrive in the order in which they were sent.
//! * No error of a peer or a fabric aborts the process.
//!
//! # Threads
//! [`World::init`] gives a world for one thread, without any lock. [`World::init_multiple`] gives one that any thread may
//! use at any time.

mod calls;
mod collective;
mod comm;
mod create;
mod detect;
mod engine;
mod error;
pub mod guide;
mod idle;
mod lend;
mod message;
mod neighborhood;
mod nonblocking;
mod open;
mod persistent;
mod properties;
mod rails;
mod recover;
mod reduce;
mod scope;
mod threading;
mod world;

/// What the C library is built on: the engine without the safe types above it. Not for users.
#[doc(hidden)]
pub mod raw {
    pub use crate::engine::{Crowd, Engine, Idle, Unfinished};
    pub use crate::rails::Rail;
}

pub use comm::{Comm, Message};
pub use error::{Error, Result};
pub use message::{Element, ElementMut, Source, Status, Tag};
pub use neighborhood::{Cart, Neighborhood, balanced_dims};
pub use nonblocking::Collective;
pub use persistent::PersistentCollective;
pub use properties::{Hints, Key, OnError, Refusal};
pub use recover::{Agreed, Deferred};
pub use reduce::{Complex32, Complex64, LocatedF32, LocatedI32, Numeric, Op};
pub use scope::{Persistent, Request, Scope};
pub use threading::{Multiple, Single, Threading};
pub use world::World;

pub use ironweave_coll::Root;
