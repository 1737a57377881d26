//! TCP byte transport over one or many interfaces and links.
//!
//! [`Tcp::open_all`] gives one [`Tcp`] (a rail) for each usable interface and link. Who connects proves the job
//! secret, and so does who accepts; a stranger is refused, counted and cannot make us allocate. A lost
//! connection is a lost rail, never proof that a process died (blueprint, "The BTL contract"; laws 1, 2, 3, 9).
//!
//! Rail number `i` of one process connects to rail number `i` of another: when both sides connect at once it is
//! settled between these two.

mod blob;
mod config;
mod dial;
mod drive;
mod endpoint;
mod errno;
mod events;
mod guests;
mod inbound;
mod interfaces;
mod meet;
mod outbound;
mod pace;
mod raw;
mod secret;
mod socket;
mod tcp;
mod watch;
#[doc(hidden)] // public for the fuzz target
pub mod wire;

pub use config::{OpenError, Selector, SelectorError, TcpConfig};
pub use interfaces::usable_addresses;
pub use tcp::{NAME, Tcp};
