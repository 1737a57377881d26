//! The byte-transfer-layer (BTL) contract.
//!
//! A BTL is one opened device (a rail): it carries *frames* (a short header and a payload, both opaque to
//! it) to peers, and moves registered memory where the device can. It never matches, never reorders a
//! promise, never aborts, and never keeps a byte of user memory after it said the operation is over
//! (blueprint, "The BTL contract"; laws 1, 2, 3 and 9).
//!
//! * [`Btl`] is the contract, [`Sink`] the receiver of everything that a transport reports.
//! * [`memory`] names user memory that a transport may read or write for a while.
//! * [`lasting`] is memory of our own that may be registered once and for all.
//! * [`copy`] moves bytes into and out of it.
//! * [`secret`] is what a peer of the same job can prove.
//! * [`Fault`] says what broke and how far: one operation, the rail, or the peer.
//! * [`Loopback`] is the `self` transport, the smallest complete example of the contract.
//!
//! Who calls what, in which order, is written at [`Btl`].

mod address;
mod caps;
pub mod copy;
pub mod counters;
mod descriptor;
mod endpoint;
mod fault;
pub mod lasting;
mod loopback;
pub mod memory;
pub mod secret;
mod sink;
mod transport;

pub use address::{Address, AddressError, decode_addresses, encode_addresses};
pub use caps::{Caps, FailureReport, ZCOPY_FROM};
pub use counters::{Counter, Counters};
pub use descriptor::{
    Atomic, Descriptor, HEADER_MAX, Header, RemoteKey, RmaDescriptor, RmaKind, Token,
};
pub use endpoint::{EndpointState, Peer};
pub use fault::{Cause, Fault, Refused, Scope};
pub use loopback::Loopback;
pub use sink::{Landing, Sink};
pub use transport::{Armed, Btl, Read, Residue, TINY_MAX, Tiny};
