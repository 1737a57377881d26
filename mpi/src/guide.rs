//! Surviving failures in 60 lines.
//!
//! When a process dies, every operation that needs it ends with [`Error::ProcFailed`](crate::Error::ProcFailed); the others go
//! on. What to do then is four calls:
//!
//! | Call | What it does |
//! |---|---|
//! | [`Comm::revoke`](crate::Comm::revoke) | interrupts everybody in the communicator, also those who did not meet the failure |
//! | [`Comm::agree`](crate::Comm::agree) | the same answer for all living processes, whoever dies meanwhile |
//! | [`Comm::shrink`](crate::Comm::shrink) | a communicator of the living |
//! | [`Comm::ack_failed`](crate::Comm::ack_failed) | go on with the old one: wildcard receives work again |
//!
//! A computation that goes on with fewer processes:
//!
//! ```
//! use ironweave::{Comm, Error, Op, World};
//!
//! const STEPS: u64 = 100;
//!
//! /// A slice of the work: terms of the sum 1 + 2 + … that this rank adds in one step.
//! fn step(comm: &Comm, number: u64) -> Result<u64, Error> {
//!     let mine = if number % u64::from(comm.size()) == u64::from(comm.rank()) { number } else { 0 };
//!     let mut all = [0];
//!     comm.allreduce(&[mine], &mut all, Op::SUM)?;
//!     Ok(all[0])
//! }
//!
//! fn main() -> Result<(), Error> {
//!     let world = World::init()?;
//!     // Interruptions are for a communicator of our own, so that others may use the world's.
//!     let mut comm = world.comm().dup()?;
//!     let (mut number, mut sum) = (0, 0u64);
//!     while number < STEPS {
//!         let outcome = step(&comm, number);
//!         // Everybody decides alike: a step counts when it succeeded everywhere.
//!         if comm.agree(u64::from(outcome.is_ok()))?.flag == 1 {
//!             sum += outcome?;
//!             number += 1;
//!             continue;
//!         }
//!         match outcome {
//!             // A failure met us, or interrupted us; or it met somebody else.
//!             Ok(_) => {}
//!             Err(error) if error.is_interruption() => {}
//!             Err(error) => return Err(error),
//!         }
//!         comm.revoke()?;
//!         comm = comm.shrink()?;
//!         if comm.rank() == 0 {
//!             println!("going on with {} of {} processes", comm.size(), world.size());
//!         }
//!     }
//!     assert_eq!(sum, (0..STEPS).sum::<u64>());
//!     world.finalize()
//! }
//! ```
//!
//! `agree` after each step is the simplest way, and costs about as much as the `allreduce`. Programs that check less often keep a
//! checkpoint to go back to: `mpi/examples/recovery.rs` has one with copies at neighbours (`buddy`).
//!
//! What is promised, always: every call returns in bounded time after a failure that it depends on is known; nothing writes
//! a buffer after its call returned; who gets a communicator from a call that makes one is decided alike everywhere.
