//! Everything a transport reports, in one trait.

use crate::memory::RecvRegion;
use crate::{Descriptor, Fault, Peer, RmaDescriptor, Token};

/// Where the payload of an arriving frame shall go.
#[derive(Debug)]
pub enum Landing {
    /// Keep it in transport memory and call [`Sink::frame`] when it is whole.
    Buffered,
    /// Write it straight into this region, which is at least as long as the payload, then give it back with
    /// [`Sink::landed`]. The frame is *not* delivered through [`Sink::frame`].
    Direct {
        /// Where to.
        region: RecvRegion,
        /// The owner's mark.
        token: Token,
    },
}

/// The owner of a transport hands itself to [`Btl::progress`](crate::Btl::progress) and
/// [`Btl::invalidate`](crate::Btl::invalidate) and is told here what happened.
///
/// Nothing here may call back into the transport (the borrow checker sees to that): answers are noted and
/// sent after `progress` returns.
pub trait Sink {
    /// A whole frame. Both slices are in transport memory and valid only during the call; nothing in them
    /// has been believed yet (law 9).
    fn frame(&mut self, from: Peer, header: &[u8], payload: &[u8]);

    /// The header of a frame arrived whose payload is still on its way: where shall it go? Only transports
    /// that can land payloads directly ask; they may also deliver any frame through [`Sink::frame`].
    fn landing(&mut self, from: Peer, header: &[u8], payload_len: usize) -> Landing {
        let _ = (from, header, payload_len);
        Landing::Buffered
    }

    /// A directly landed payload is whole (`Ok`), or will never be (`Err`; bytes already written stay). The
    /// transport does not touch the region any more.
    fn landed(&mut self, from: Peer, region: RecvRegion, token: Token, outcome: Result<(), Fault>) {
        let _ = (from, region, token, outcome);
        unreachable!("a transport landed a payload although this sink never offers a region");
    }

    /// A zero-copy send is over: with `Ok`, the payload has been taken over by the transport or the peer. The
    /// transport does not read the payload any more.
    fn completed(&mut self, descriptor: Descriptor, outcome: Result<(), Fault>);

    /// A put or get is over. The transport does not touch the local region any more.
    fn rma_completed(&mut self, descriptor: RmaDescriptor, outcome: Result<(), Fault>);

    /// The endpoint is [`Up`](crate::EndpointState::Up), by our own `connect` or because the peer connected;
    /// frames can be sent both ways.
    fn up(&mut self, peer: Peer);

    /// Something broke. For [`Scope::Rail`](crate::Scope) and [`Scope::Peer`](crate::Scope) the endpoint is
    /// `Failing` by now, its operations come back with errors *after* this report, and `closed` follows.
    fn fault(&mut self, fault: Fault);

    /// Nothing of this endpoint is outstanding any more. Exactly once for each time it was connected, after
    /// everything of it came back. Preceded by `fault` unless the peer finalized or this side invalidated.
    fn closed(&mut self, peer: Peer);
}
