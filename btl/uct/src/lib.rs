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
//!
//! How a dead peer shows: by the error handler (tcp, RDMA), or by a check of each peer every [`UctConfig::check`] (posix,
//! sysv). Either way it is a fault of the rail, and says nothing of the process.
//!
//! What UCT cannot be made to do: a process killed while it writes a message into the queue of another one (posix, sysv)
//! blocks that queue for all. Frames are put together before they are handed to the library, so that the time is as short
//! as a copy; what is left shows as silence, which ends the endpoints after [`UctConfig::peer_timeout`].

mod chores;
mod close;
mod config;
mod contact;
mod core;
mod endpoint;
mod greet;
mod rail;
mod verdict;
mod wire;

pub use config::{OpenError, UctConfig};
pub use rail::Uct;

/// The component's name.
const NAME: &str = "uct";
