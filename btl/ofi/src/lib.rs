//! A byte transport over libfabric: one reliable-datagram endpoint on each domain of one provider.
//!
//! libfabric hides very different things behind one interface: fabric devices (cxi, efa, verbs, psm), sockets, shared
//! memory. What this crate adds to it is what the BTL contract wants and no provider has: connections with a beginning and
//! an end (lives), proof of the job secret, room that is bounded by what the peer has read, errors with a verdict each,
//! a good-bye, and hands off user memory.
//!
//! * [`OfiConfig`] and [`Ofi::open_all`] choose the provider and open a rail for each of its domains.
//! * [`provider`] holds what is known of each provider, and the table of errors.
//! * `wire`, `blob`: bytes. `endpoint`, `core`, `reads`: state, without a provider. `rail`: the contract, with
//!   `greet` (how connections begin) and `chores` (what is done beside polling).
//!
//! How a dead peer shows: not at all (`FailureReport::Silent`). Providers answer "try again" for ever, or take what is
//! sent to it; the launcher or the detector has to tell. Where nothing gets through to a peer for
//! [`OfiConfig::peer_timeout`] it becomes a suspect.
//!
//! Frames are copied once on each side, since no provider can take one operation back while its endpoint serves other
//! peers; over sockets long ones go in pieces, so that the copies cost no time of their own (`pieces`). Reads of memory (`get`), which long messages are made of, copy nothing: see `reads`.

mod ahead;
mod blob;
mod chores;
mod config;
mod core;
mod endpoint;
mod greet;
mod lanes;
mod leading;
mod leads;
mod lend;
#[cfg(test)]
mod log;
mod news;
mod pieces;
pub mod provider;
mod rail;
mod reads;
mod wire;

pub use config::{OfiConfig, OpenError};
pub use rail::Ofi;

/// The component's name.
const NAME: &str = "ofi";

/// The endpoint's address in the bytes of an [`Address`](ironweave_btl::Address), for tests that play strangers.
#[must_use]
pub fn endpoint_name(bytes: &[u8]) -> Option<Vec<u8>> {
    blob::Blob::decode(bytes).map(|blob| blob.name)
}
