//! RDMA byte transport over InfiniBand, RoCE and iWARP, through libibverbs.
//!
//! [`Verbs::open_all`] gives one [`Verbs`] (a rail) for each active port. Peers are connected lazily by greetings over a
//! datagram queue pair of the same port, sealed with the job's secret; each peer has a reliable connection with
//! credits, whose receives come from one shared queue. Frames are sent inline or through registered buffers, short ones of
//! a few peers written into rings at the receiver, past that queue (`ring.rs`); puts and gets are RDMA writes and reads of user memory, registered for the operation and no longer, unless it came from
//! [`ironweave_btl::lasting`].
//!
//! A completion error, an asynchronous event, silence beyond a limit and a port that stays down end the endpoint: its
//! queue pair goes to ERR, every request comes back, the queue pair is destroyed, then `closed`. None of it says
//! that the peer's process died (blueprint, "The BTL contract"; seed 000, "BTL components"; laws 1, 2, 3 and 9).

mod address;
mod cache;
mod close;
mod config;
mod conn;
mod credits;
mod eager;
mod endpoint;
mod fault;
mod iwarp;
mod lean;
mod meet;
mod memory;
mod paged;
mod ports;
mod progress;
mod rail;
#[doc(hidden)] // for tests that play liars
pub mod ring;
mod rma;
mod sleep;
#[doc(hidden)] // for tests that play strangers and liars
pub mod wire;

pub use address::Ip;
pub use config::{OnDemand, OpenError, Ring, VerbsConfig};
pub use ironweave_ffi_verbs::Timers;
pub use rail::{NAME, Verbs};
