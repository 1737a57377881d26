//! The contract itself.

use crate::memory::{RecvRegion, SendRegion};
use crate::{
    Address, Caps, Counters, Descriptor, EndpointState, Fault, Peer, Refused, RemoteKey,
    RmaDescriptor, Sink,
};
use std::os::fd::RawFd;
use std::sync::Arc;

/// What becomes of frames that arrived whole before an endpoint was invalidated but were not delivered yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Residue {
    /// Deliver them, in order, before `closed` (seed 003 §17.6: such messages may still be received).
    Deliver,
    /// Drop them: the peer was excluded (law 4).
    Discard,
}

/// The answer of [`Btl::arm`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Armed {
    /// Something is there already: call `progress` instead of sleeping.
    Ready,
    /// Nothing is there; the descriptor becomes readable when something is. It stays the transport's.
    Wait(RawFd),
    /// This transport can only be polled.
    PollOnly,
}

/// The longest payload of [`Btl::send_tiny`], in bytes.
pub const TINY_MAX: usize = 32;

/// The answer of [`Btl::take_tiny`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tiny {
    /// The frame is taken; its payload had so many bytes.
    Taken(usize),
    /// Nothing was done: nothing is here, or not that, or it has to be taken the general way.
    Left,
    /// Nothing was done: the transport has no such short cut.
    Unable,
}

/// The answer of [`Btl::read_now`].
#[derive(Debug)]
pub enum Read {
    /// It is over: all of it is there, or it failed.
    Over(Result<(), Fault>),
    /// It is under way, as if [`Btl::rma`] had taken it: it comes back through the sink.
    Begun,
    /// Nothing was done: [`Btl::rma`] is to be asked.
    Left,
}

/// One opened device. See the crate's documentation for the terms.
///
/// # Who calls what
/// 1. *Set-up*: [`address`](Btl::address) is published; [`connect`](Btl::connect) is given a peer's.
///    A peer may also connect to us first; either way [`Sink::up`] tells, once.
/// 2. *Operations*: `send_*`, `put`, `get` either take the operation or say [`Refused`]. They never block, never
///    call the sink, and never fail later without telling: what was taken comes back through the sink.
/// 3. *Reports*: only [`progress`](Btl::progress) and [`invalidate`](Btl::invalidate) call the sink.
/// 4. *End of an endpoint*: a fault or `invalidate` fences the endpoint (from then on nothing reaches user memory
///    through it), every operation comes back with an error, then [`Sink::closed`], once.
/// 5. *End of the transport*: the owner calls `progress` while [`unflushed`](Btl::unflushed) is not 0, then
///    [`depart`](Btl::depart)s and drops it. Dropping without departing is what a crash looks like to peers.
///
/// A `short` or `bcopy` send is over when it returns `Ok`: the transport has a copy of its own and there is no
/// completion. Whether the peer got it, only protocol frames of the peer can tell; who wants to send again
/// after a lost rail keeps the bytes and uses `zcopy`.
///
/// No method panics on anything a peer or the fabric does (law 3).
pub trait Btl {
    /// What it can do. Constant.
    fn caps(&self) -> &Caps;

    /// Where peers reach this rail: to be published, and given to their `connect`.
    fn address(&self) -> Address;

    /// Starts to connect to `peer`. Does nothing when the endpoint is connecting or up already. After `closed` it begins a new
    /// life of the endpoint (a rail that heals).
    ///
    /// # Errors
    /// A fault when the address is not one of this transport's or can never be reached from here; a rail fault with
    /// [`Cause::Unreachable`](crate::Cause) for an excluded peer, and while the endpoint is `Failing`: try again after
    /// `closed`. Failures that show later arrive through the sink.
    fn connect(&mut self, peer: Peer, address: &Address) -> Result<(), Fault>;

    /// The state of the endpoint to `peer`.
    fn state(&self, peer: Peer) -> EndpointState;

    /// Sends a frame that is copied before the call returns. The small-message path: no system call on shm, no
    /// allocation anywhere.
    ///
    /// # Errors
    /// See [`Refused`]; nothing was sent.
    fn send_short(&mut self, peer: Peer, header: &[u8], payload: &[u8]) -> Result<(), Refused>;

    /// Sends a frame whose `len` bytes of payload `pack` writes straight into transport memory. `pack` is called
    /// exactly once when the answer is `Ok`, never otherwise; it gets one or, where transport memory is not
    /// contiguous, several consecutive pieces: `pack(offset, piece)`.
    ///
    /// # Errors
    /// See [`Refused`]; nothing was sent.
    fn send_bcopy<P>(
        &mut self,
        peer: Peer,
        header: &[u8],
        len: usize,
        pack: P,
    ) -> Result<(), Refused>
    where
        P: FnMut(usize, &mut [u8]);

    /// Sends a frame whose payload is read out of user memory; comes back through [`Sink::completed`].
    ///
    /// # Errors
    /// See [`Refused`]; the descriptor is given back untouched.
    #[allow(clippy::result_large_err)]
    fn send_zcopy(&mut self, descriptor: Descriptor) -> Result<(), (Refused, Descriptor)>;

    /// Writes to, reads from, or changes a number in memory that the peer registered; comes back through [`Sink::rma_completed`]. An operation
    /// outside of that memory, or on a number that is not at a multiple of eight, comes back with a fault of its own.
    ///
    /// # Errors
    /// See [`Refused`]; the descriptor is given back untouched.
    #[allow(clippy::result_large_err)]
    fn rma(&mut self, descriptor: RmaDescriptor) -> Result<(), (Refused, RmaDescriptor)> {
        Err((Refused::Unsupported, descriptor))
    }

    /// Whether the next message to `peer`, of `len` bytes, at least [`Caps::read_from`], is better read by it than sent. May be another answer
    /// each time: transports learn. `unasked`: it can be sent whole, without asking; otherwise in fragments, when the peer has asked for it.
    fn is_read(&mut self, peer: Peer, len: usize, unasked: bool) -> bool {
        let _ = (peer, len, unasked);
        true
    }

    /// Gets as [`rma`](Btl::rma) does, but within the call where that is possible. For transports that read with the processor's own hands:
    /// what is short is read sooner than it is queued and reported. A transport need not have it, and reads a bounded amount
    /// before the next [`progress`](Btl::progress).
    #[inline]
    fn read_now(&mut self, descriptor: &RmaDescriptor) -> Read {
        let _ = descriptor;
        Read::Left
    }

    /// Does a part of what `peer` reads of our memory, where it has asked for that ([`progress`](Btl::progress) does, too): whether there was
    /// something to do. For those who wait for the end of such a read; bounded, and a transport need not have it.
    #[inline]
    fn assist(&mut self, peer: Peer) -> bool {
        let _ = peer;
        false
    }

    /// Makes memory readable for the `get` of one peer; deregister it with the key.
    ///
    /// # Errors
    /// [`Refused::Unsupported`] without the capability, [`Refused::NoRoom`] when the device has none left; transports that lend
    /// over the connection refuse as [`send_short`](Btl::send_short) does while there is none.
    fn register_source(&mut self, peer: Peer, region: &SendRegion) -> Result<RemoteKey, Refused> {
        let _ = (peer, region);
        Err(Refused::Unsupported)
    }

    /// Makes memory writable for peers' `put` and atomic operations; deregister it with the key.
    ///
    /// # Errors
    /// As [`register_source`](Btl::register_source).
    fn register_target(&mut self, region: &RecvRegion) -> Result<RemoteKey, Refused> {
        let _ = region;
        Err(Refused::Unsupported)
    }

    /// Ends a registration. After the call no peer reaches the memory through it: where an answer that is under way cannot be
    /// called back, the transport ends what carries it, and the peer's gets come back with errors. Unknown keys are ignored.
    fn deregister(&mut self, key: &RemoteKey) {
        let _ = key;
    }

    /// Ends the registration of a source whose gets are all known to be over, or were never begun. As [`deregister`](Btl::deregister), but a
    /// transport whose device may ask a second time for what it has had (a repeated request that comes late) may keep the
    /// memory readable, never writable, for as long as that can happen: such a request must not look like a violation.
    fn retire(&mut self, key: &RemoteKey) {
        self.deregister(key);
    }

    /// Does what can be done without blocking and reports it. Returns how many reports were made; 0 means idle.
    fn progress<S: Sink>(&mut self, sink: &mut S) -> usize;

    /// Shows the next frame of `peer` to `take` where it lies, if it is there, in one piece, within `turns` looks, or fewer when
    /// there is something to [`assist`](Btl::assist) it with. `take` answers
    /// whether it takes the frame, which is over then; otherwise the frame stays, and [`progress`](Btl::progress) reports it.
    /// Returns whether the frame was taken. A short cut for those who know what comes next: nothing else is moved on, and a
    /// transport need not have it.
    #[inline]
    fn take_next<F>(&mut self, peer: Peer, turns: u32, take: F) -> bool
    where
        F: FnOnce(&[u8], &[u8]) -> bool,
    {
        let _ = (peer, turns, take);
        false
    }

    /// Sends a frame whose header has these sixteen bytes, if nothing is in its way, its payload is at most [`TINY_MAX`] bytes long, and
    /// a few stores are all it takes; whether it is out. If not, nothing was done: [`send_short`](Btl::send_short) tells why, or
    /// sends it. A short cut that a transport need not have.
    #[inline(always)]
    fn send_tiny(&mut self, peer: Peer, header: [u64; 2], payload: &[u8]) -> bool {
        let _ = (peer, header, payload);
        false
    }

    /// Takes the next frame of `peer` if it is there, in one piece, within `turns` looks, its header is these sixteen bytes, and its payload
    /// fits into `into`, which then has it. As [`take_next`](Btl::take_next), and as far as nobody has to be asked.
    #[inline(always)]
    fn take_tiny(&mut self, peer: Peer, turns: u32, header: [u64; 2], into: &RecvRegion) -> Tiny {
        let _ = (peer, turns, header, into);
        Tiny::Unable
    }

    /// As [`take_tiny`](Btl::take_tiny), asked where that is not to be had: for transports whose short cut is a call, which has no place
    /// among the few instructions of the shortest way (8 B over shm took 6 % longer with such calls there).
    #[inline]
    fn take_expected(
        &mut self,
        peer: Peer,
        turns: u32,
        header: [u64; 2],
        into: &RecvRegion,
    ) -> Tiny {
        let _ = (peer, turns, header, into);
        Tiny::Unable
    }

    /// Whether nothing of `peer` is here: [`take_next`](Btl::take_next) would show, and [`progress`](Btl::progress) report, nothing of
    /// it. Costs a look at memory, moves nothing on, and learns nothing: not that the peer died, either, so call `progress`
    /// after a few such looks. A transport that cannot tell, or knows that the endpoint is not up, says `false`.
    #[inline]
    fn is_silent(&self, peer: Peer) -> bool {
        let _ = peer;
        false
    }

    /// Prepares for sleeping until something arrives.
    fn arm(&mut self) -> Armed {
        Armed::PollOnly
    }

    /// Ends the endpoint to `peer` from this side: fence, then purge (each outstanding operation comes back with
    /// [`Cause::Invalidated`](crate::Cause)), then one `closed`. May finish inside the call or in later `progress`
    /// calls, in bounded time whether or not the peer lives. On an endpoint that is `Closed` it does nothing. A transport whose peer writes
    /// user memory with the processor's own hands cannot fence one that is stopped in the middle of that: there the end waits until
    /// the peer goes on or dies, and [`exclude`](Btl::exclude) sees to it that it dies.
    fn invalidate<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S);

    /// `peer` was declared failed for good (law 4): as `invalidate`, and it can neither connect again nor be
    /// connected to.
    fn exclude<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S);

    /// How many frames were taken but are not yet out of this process's hands (in a socket's write queue, say).
    /// Frames to endpoints that fail do not count.
    fn unflushed(&self) -> usize {
        0
    }

    /// Says good-bye to all peers, so that they do not take the end of this process for a failure. Does not block.
    fn depart(&mut self);

    /// The counters, readable from any thread at any time.
    fn counters(&self) -> Arc<Counters>;

    /// A few lines about endpoints and queues, for watchdog dumps.
    fn dump(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result;
}
