//! A byte transport over UCT, the transport layer of UCX: one interface of one of its transports is a rail.
//!
//! UCT brings tcp, shared memory (posix, sysv), the process itself, and RDMA devices behind one table of calls. What this
//! crate adds is what the BTL contract wants: connections with a beginning and an end (lives), proof of the job secret, an
//! error handler on every endpoint with a verdict for each status, peers checked where nothing else would tell, a
//! good-bye, and user memory that nobody touches after it came back.
//!
//! * [`UctConfig`] and [`Uct::open_all`] choose transports and open a rail for each of their devices.
//! * `wire`, `contact`: bytes. `endpoint`, `core`, `verdict`: state, without a library. `rail`: the contract, with `greet`
//!   (how connections begin), `chores` (what is done beside polling) and `close` (how they end).
//! * `reach`: keys of memory. `tasks`: operations that reach it. `lend`: the library's calls for them. `rma`: the contract's
//!   part of it.
//!
//! How a dead peer shows: by the error handler (tcp, RDMA), or by a check of each peer every [`UctConfig::check`] (posix,
//! sysv). Either way it is a fault of the rail, and says nothing of the process.
//!
//! Shared memory (posix, sysv) has one queue for all who write to an interface, and a process killed between taking a place
//! in it and filling that place blocks it for all, for good. So each peer gets an interface of its own to write to, which
//! ends with its endpoint; only greetings go to one that all may write to. What is left: a process killed in the middle of
//! a greeting. Then nobody can connect any more, which shows after [`UctConfig::connect_timeout`]; connections go on.

mod chores;
mod close;
mod config;
mod contact;
mod core;
mod endpoint;
mod greet;
mod lend;
mod rail;
mod reach;
mod rma;
mod tasks;
mod verdict;
mod wire;

pub use config::{Connect, OpenError, UctConfig};
pub use rail::Uct;

/// The component's name.
const NAME: &str = "uct";
