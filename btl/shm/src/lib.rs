//! `shm`: frames between processes of one host, through shared memory.
//!
//! Each directed pair of processes has a ring of its own ([`record`] says how a frame lies in it), made lazily
//! by its writer in a memory file without a name and passed over an abstract socket, so that nothing is ever
//! left behind (law 8) and a writer killed in mid-write harms only its own ring. [`Shm`] is the transport.
//!
//! * Small frames: one record, header and payload together, no system call, no allocation, no lock, and no
//!   look at a line that the other side writes but the one with the message.
//! * Longer frames: the payload goes through the ring's bulk area, read out while it is still written in.
//! * Quiet rings are parked: their writer rings a bell in the reader's inbox, so progress does not scan them.
//! * A peer's death shows by its socket and its pidfd: proof, not suspicion.
//!
//! Nothing here blocks, spins or aborts. What comes out of a ring or a socket is checked before use (law 9).

// Loom runs the ring and the inbox only: the rest makes system calls.
#![cfg_attr(loom, allow(dead_code))]

mod assist;
#[cfg(not(loom))]
mod cma;
mod config;
#[cfg(not(loom))]
mod connect;
mod distance;
#[cfg(not(loom))]
mod ending;
#[cfg(not(loom))]
mod endpoint;
#[cfg(not(loom))]
mod gets;
#[cfg(not(loom))]
mod host;
mod inbox;
mod manners;
#[cfg(not(loom))]
mod parking;
mod pieces;
mod primitive;
pub mod record;
mod ring;
#[cfg(not(loom))]
mod segment;
mod shared;
mod shuttle;
#[cfg(not(loom))]
mod socket;
#[cfg(not(loom))]
mod transport;
#[cfg(not(loom))]
mod trial;
mod warmth;
mod ways;
#[cfg(not(loom))]
mod wire;

pub use config::{OpenError, ShmConfig, SingleCopy, Stores};
#[cfg(not(loom))]
pub use transport::Shm;
#[cfg(not(loom))]
pub use trial::trial;
