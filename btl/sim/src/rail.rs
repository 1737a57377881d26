//! The rails of a simulated process as one type: `self`, a simulated rail, one with chaos around it, or one that somebody
//! watches.

use crate::{Chaos, SimBtl};
use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_btl::{
    Address, Btl, Caps, Counters, Descriptor, EndpointState, Fault, Landing, Loopback, Peer,
    Refused, RemoteKey, Residue, RmaDescriptor, Sink, Tiny, Token,
};
use std::sync::Arc;

/// What becomes of a frame that arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Passage {
    /// It passes.
    Pass,
    /// It is lost.
    Lose,
    /// Its payload is this.
    Instead(Vec<u8>),
}

/// Sees what passes between a rail and its owner, and may change it: records, sabotage, late frames.
pub trait Watch {
    /// Before each call of `progress`.
    fn wake(&mut self) {}

    /// A frame was handed to the rail.
    fn sent(&mut self, to: Peer, header: &[u8], payload: &[u8]) {
        let _ = (to, header, payload);
    }

    /// A put or get was handed to the rail.
    fn accessed(&mut self, to: Peer) {
        let _ = to;
    }

    /// A frame arrives.
    fn arrives(&mut self, from: Peer, header: &[u8], payload: &[u8]) -> Passage {
        let _ = (from, header, payload);
        Passage::Pass
    }

    /// The payload of a frame is landing in memory of the owner; the frame does not arrive otherwise.
    fn lands(&mut self, from: Peer, header: &[u8]) {
        let _ = (from, header);
    }

    /// A payload has landed in memory of the owner.
    fn landed(&mut self, region: &RecvRegion) {
        let _ = region;
    }

    /// A frame to be delivered now although nobody sent it: sender, header and payload.
    fn insert(&mut self) -> Option<(Peer, Vec<u8>, Vec<u8>)> {
        None
    }
}

/// Nobody watches.
impl Watch for () {}

/// A rail of a simulated process.
pub enum Rail<W: Watch = ()> {
    /// `self`.
    Own(Loopback),
    /// As it is.
    Sim(SimBtl),
    /// With faults put in.
    Chaos(Box<Chaos<SimBtl>>),
    /// Under somebody's eyes.
    Watched(SimBtl, W),
}

impl<W: Watch> Rail<W> {
    /// Whether it wants to be called again although the net is idle.
    #[must_use]
    pub fn restless(&self) -> bool {
        match self {
            Rail::Own(own) => own.unflushed() > 0,
            Rail::Sim(_) | Rail::Watched(..) => false,
            Rail::Chaos(chaos) => chaos.restless(),
        }
    }
}

macro_rules! each {
    ($rail:expr, $btl:ident => $call:expr) => {
        match $rail {
            Rail::Own($btl) => $call,
            Rail::Sim($btl) => $call,
            Rail::Chaos($btl) => $call,
            Rail::Watched($btl, _) => $call,
        }
    };
}

impl<W: Watch> Btl for Rail<W> {
    fn caps(&self) -> &Caps {
        each!(self, btl => btl.caps())
    }

    fn address(&self) -> Address {
        each!(self, btl => btl.address())
    }

    fn connect(&mut self, peer: Peer, address: &Address) -> Result<(), Fault> {
        each!(self, btl => btl.connect(peer, address))
    }

    fn state(&self, peer: Peer) -> EndpointState {
        each!(self, btl => btl.state(peer))
    }

    fn send_short(&mut self, peer: Peer, header: &[u8], payload: &[u8]) -> Result<(), Refused> {
        each!(self, btl => btl.send_short(peer, header, payload))?;
        if let Rail::Watched(_, watch) = self {
            watch.sent(peer, header, payload);
        }
        Ok(())
    }

    fn send_bcopy<P>(
        &mut self,
        peer: Peer,
        header: &[u8],
        len: usize,
        mut pack: P,
    ) -> Result<(), Refused>
    where
        P: FnMut(usize, &mut [u8]),
    {
        if let Rail::Watched(btl, watch) = self {
            let mut payload = vec![0; len];
            btl.send_bcopy(peer, header, len, |offset, piece| {
                pack(offset, piece);
                payload[offset..offset + piece.len()].copy_from_slice(piece);
            })?;
            watch.sent(peer, header, &payload);
            return Ok(());
        }
        each!(self, btl => btl.send_bcopy(peer, header, len, pack))
    }

    fn send_zcopy(&mut self, descriptor: Descriptor) -> Result<(), (Refused, Descriptor)> {
        if let Rail::Watched(btl, watch) = self {
            let (peer, header) = (descriptor.peer, descriptor.header);
            let regions = descriptor.payload.iter();
            let payload: Vec<u8> = regions.flat_map(|part| part.as_slice()).copied().collect();
            btl.send_zcopy(descriptor)?;
            watch.sent(peer, header.as_bytes(), &payload);
            return Ok(());
        }
        each!(self, btl => btl.send_zcopy(descriptor))
    }

    fn rma(&mut self, descriptor: RmaDescriptor) -> Result<(), (Refused, RmaDescriptor)> {
        let peer = descriptor.peer;
        each!(self, btl => btl.rma(descriptor))?;
        if let Rail::Watched(_, watch) = self {
            watch.accessed(peer);
        }
        Ok(())
    }

    fn register_source(&mut self, peer: Peer, region: &SendRegion) -> Result<RemoteKey, Refused> {
        each!(self, btl => btl.register_source(peer, region))
    }

    fn register_target(&mut self, region: &RecvRegion) -> Result<RemoteKey, Refused> {
        each!(self, btl => btl.register_target(region))
    }

    fn deregister(&mut self, key: &RemoteKey) {
        each!(self, btl => btl.deregister(key))
    }

    fn retire(&mut self, key: &RemoteKey) {
        each!(self, btl => btl.retire(key))
    }

    fn progress<S: Sink>(&mut self, sink: &mut S) -> usize {
        if let Rail::Watched(btl, watch) = self {
            watch.wake();
            let mut reports = btl.progress(&mut Watcher { sink, watch });
            while let Some((from, header, payload)) = watch.insert() {
                sink.frame(from, &header, &payload);
                reports += 1;
            }
            return reports;
        }
        each!(self, btl => btl.progress(sink))
    }

    fn take_next<F>(&mut self, peer: Peer, turns: u32, take: F) -> bool
    where
        F: FnOnce(&[u8], &[u8]) -> bool,
    {
        match self {
            Rail::Own(btl) => btl.take_next(peer, turns, take),
            Rail::Sim(btl) => btl.take_next(peer, turns, take),
            // Whoever puts in faults, or watches, sees what `progress` reports.
            Rail::Chaos(_) | Rail::Watched(..) => false,
        }
    }

    fn send_tiny(&mut self, peer: Peer, header: [u64; 2], payload: &[u8]) -> bool {
        match self {
            Rail::Own(btl) => btl.send_tiny(peer, header, payload),
            Rail::Sim(btl) => btl.send_tiny(peer, header, payload),
            Rail::Chaos(_) | Rail::Watched(..) => false,
        }
    }

    fn take_tiny(&mut self, peer: Peer, turns: u32, header: [u64; 2], into: &RecvRegion) -> Tiny {
        match self {
            Rail::Own(btl) => btl.take_tiny(peer, turns, header, into),
            Rail::Sim(btl) => btl.take_tiny(peer, turns, header, into),
            Rail::Chaos(_) | Rail::Watched(..) => Tiny::Unable,
        }
    }

    fn invalidate<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        each!(self, btl => btl.invalidate(peer, residue, sink))
    }

    fn exclude<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        each!(self, btl => btl.exclude(peer, residue, sink))
    }

    fn unflushed(&self) -> usize {
        each!(self, btl => btl.unflushed())
    }

    fn depart(&mut self) {
        each!(self, btl => btl.depart())
    }

    fn counters(&self) -> Arc<Counters> {
        each!(self, btl => btl.counters())
    }

    fn dump(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        each!(self, btl => btl.dump(out))
    }
}

/// The sink that a watched rail sees.
struct Watcher<'a, S: Sink, W: Watch> {
    sink: &'a mut S,
    watch: &'a mut W,
}

impl<S: Sink, W: Watch> Sink for Watcher<'_, S, W> {
    fn frame(&mut self, from: Peer, header: &[u8], payload: &[u8]) {
        match self.watch.arrives(from, header, payload) {
            Passage::Pass => self.sink.frame(from, header, payload),
            Passage::Lose => {}
            Passage::Instead(payload) => self.sink.frame(from, header, &payload),
        }
    }

    fn landing(&mut self, from: Peer, header: &[u8], payload_len: usize) -> Landing {
        let landing = self.sink.landing(from, header, payload_len);
        if let Landing::Direct { .. } = landing {
            self.watch.lands(from, header);
        }
        landing
    }

    fn landed(&mut self, from: Peer, region: RecvRegion, token: Token, outcome: Result<(), Fault>) {
        self.watch.landed(&region);
        self.sink.landed(from, region, token, outcome);
    }

    fn completed(&mut self, descriptor: Descriptor, outcome: Result<(), Fault>) {
        self.sink.completed(descriptor, outcome);
    }

    fn rma_completed(&mut self, descriptor: RmaDescriptor, outcome: Result<(), Fault>) {
        self.sink.rma_completed(descriptor, outcome);
    }

    fn up(&mut self, peer: Peer) {
        self.sink.up(peer);
    }

    fn fault(&mut self, fault: Fault) {
        self.sink.fault(fault);
    }

    fn closed(&mut self, peer: Peer) {
        self.sink.closed(peer);
    }
}
