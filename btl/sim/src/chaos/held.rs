//! Reports on their way through the wrapper: recorded from the inner transport, held back, told in order.

use super::ChaosPlan;
use ironweave_btl::memory::RecvRegion;
use ironweave_btl::{
    Cause, Counters, Descriptor, Fault, Header, Landing, Peer, RmaDescriptor, Sink, Token,
};
use rand::{Rng, rngs::SmallRng};
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug)]
pub(super) enum Report {
    Frame(Header, Vec<u8>),
    /// With the length of the payload.
    Landed(RecvRegion, Token, usize, Result<(), Fault>),
    Completed(Descriptor, Result<(), Fault>),
    RmaCompleted(RmaDescriptor, Result<(), Fault>),
    Up,
    Fault(Fault),
    Closed,
}

impl Report {
    pub(super) fn tell<S: Sink>(self, peer: Peer, counters: &Counters, sink: &mut S) {
        let arrived = |len: usize| {
            counters.frames_received.add(1);
            counters.bytes_received.add(len as u64);
        };
        let ended = |outcome: &Result<(), Fault>| {
            counters.purged.add(u64::from(outcome.is_err()));
        };
        match self {
            Report::Frame(header, payload) => {
                arrived(payload.len());
                sink.frame(peer, header.as_bytes(), &payload);
            }
            Report::Landed(region, token, len, outcome) => {
                if outcome.is_ok() {
                    arrived(len);
                }
                sink.landed(peer, region, token, outcome);
            }
            Report::Completed(descriptor, outcome) => {
                ended(&outcome);
                sink.completed(descriptor, outcome);
            }
            Report::RmaCompleted(descriptor, outcome) => {
                ended(&outcome);
                sink.rma_completed(descriptor, outcome);
            }
            Report::Up => sink.up(peer),
            Report::Fault(fault) => {
                counters.faults.add(1);
                sink.fault(fault);
            }
            Report::Closed => sink.closed(peer),
        }
    }
}

/// How far the owner's knowledge of an endpoint is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Told {
    #[default]
    Closed,
    Connecting,
    Up,
}

/// What waits for one peer.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub told: Told,
    pub fault_told: bool,
    /// Each with the calls of `progress` that it waits at the head.
    pub queue: VecDeque<(u32, Report)>,
    /// Payloads offered to the owner's `landing`: their lengths.
    landing: BTreeMap<u64, usize>,
    pub mute: bool,
    pub stuck: Vec<Descriptor>,
    pub stuck_rma: Vec<RmaDescriptor>,
    /// A frame of an earlier life, to be told in the next.
    stale: Option<(Header, Vec<u8>)>,
}

impl Waiting {
    pub(super) fn push(&mut self, delay: u32, report: Report) {
        self.queue.push_back((delay, report));
    }

    pub(super) fn connect(&mut self) {
        if self.told == Told::Closed {
            self.told = Told::Connecting;
        }
    }

    pub(super) fn told(&mut self, report: &Report) {
        match report {
            Report::Up => self.told = Told::Up,
            Report::Fault(_) => self.fault_told = true,
            Report::Closed => {
                self.told = Told::Closed;
                self.fault_told = false;
            }
            _ => {}
        }
    }
}

/// The sink of the inner transport.
pub(super) struct Recorder<'a, S: Sink> {
    pub sink: &'a mut S,
    pub plan: &'a ChaosPlan,
    pub rng: &'a mut SmallRng,
    pub peers: &'a mut BTreeMap<u32, Waiting>,
    pub out: &'a mut u32,
    pub counters: &'a Counters,
    /// Given to operations in place of `Invalidated`: the fault that was invented.
    pub blame: Option<Fault>,
    /// Reports made straight to the owner.
    pub told: usize,
}

impl<S: Sink> Recorder<'_, S> {
    fn chance(&mut self, per_mille: u32) -> bool {
        per_mille != 0 && self.rng.random_range(0..1000) < per_mille
    }

    fn push(&mut self, peer: Peer, report: Report) {
        let delay = if self.chance(self.plan.delay) {
            self.rng.random_range(1..=self.plan.delay_max.max(1))
        } else {
            0
        };
        self.peers.entry(peer.0).or_default().push(delay, report);
    }

    fn blamed(&self, outcome: Result<(), Fault>) -> Result<(), Fault> {
        match (outcome, &self.blame) {
            (Err(Fault { cause: Cause::Invalidated, .. }), Some(fault)) => Err(fault.clone()),
            (outcome, _) => outcome,
        }
    }

    /// Sometimes what succeeded is said to have failed.
    fn doubted(&mut self, peer: Peer, outcome: Result<(), Fault>) -> Result<(), Fault> {
        if outcome.is_ok() && self.chance(self.plan.error_after) {
            return Err(Fault::operation(peer, Cause::Injected("done, but told as an error")));
        }
        self.blamed(outcome)
    }
}

impl<S: Sink> Sink for Recorder<'_, S> {
    fn frame(&mut self, from: Peer, header: &[u8], payload: &[u8]) {
        if self.peers.get(&from.0).is_some_and(|waiting| waiting.mute) {
            return;
        }
        let (header, payload) = (Header::new(header), payload.to_vec());
        if self.chance(self.plan.duplicate) {
            self.push(from, Report::Frame(header, payload.clone()));
        }
        if self.plan.stale != 0 {
            let stale = Some((header, payload.clone()));
            self.peers.entry(from.0).or_default().stale = stale;
        }
        self.push(from, Report::Frame(header, payload));
    }

    fn landing(&mut self, from: Peer, header: &[u8], payload_len: usize) -> Landing {
        let waiting = self.peers.entry(from.0).or_default();
        // Not before everything that came earlier was told.
        if waiting.mute || !waiting.queue.is_empty() || waiting.told != Told::Up {
            return Landing::Buffered;
        }
        let landing = self.sink.landing(from, header, payload_len);
        if let Landing::Direct { token, .. } = &landing {
            waiting.landing.insert(token.0, payload_len);
        }
        landing
    }

    fn landed(&mut self, from: Peer, region: RecvRegion, token: Token, outcome: Result<(), Fault>) {
        let outcome = self.blamed(outcome);
        let waiting = self.peers.entry(from.0).or_default();
        let len = waiting.landing.remove(&token.0).unwrap_or(0);
        self.push(from, Report::Landed(region, token, len, outcome));
    }

    fn completed(&mut self, descriptor: Descriptor, outcome: Result<(), Fault>) {
        *self.out = self.out.saturating_sub(1);
        let peer = descriptor.peer;
        let outcome = self.doubted(peer, outcome);
        self.push(peer, Report::Completed(descriptor, outcome));
    }

    fn rma_completed(&mut self, descriptor: RmaDescriptor, outcome: Result<(), Fault>) {
        *self.out = self.out.saturating_sub(1);
        let peer = descriptor.peer;
        let outcome = self.doubted(peer, outcome);
        self.push(peer, Report::RmaCompleted(descriptor, outcome));
    }

    fn up(&mut self, peer: Peer) {
        self.push(peer, Report::Up);
        let stale = self.peers.entry(peer.0).or_default().stale.take();
        if let Some((header, payload)) = stale
            && self.chance(self.plan.stale)
        {
            self.push(peer, Report::Frame(header, payload));
        }
    }

    fn fault(&mut self, fault: Fault) {
        match fault.peer {
            Some(peer) => self.push(peer, Report::Fault(fault)),
            None => {
                self.told += 1;
                self.counters.faults.add(1);
                self.sink.fault(fault);
            }
        }
    }

    fn closed(&mut self, peer: Peer) {
        let waiting = self.peers.entry(peer.0).or_default();
        // The end of the inner endpoint ends a silence too.
        let fault = Fault::operation(peer, Cause::Disconnected);
        waiting.mute = false;
        for descriptor in std::mem::take(&mut waiting.stuck) {
            waiting.push(0, Report::Completed(descriptor, Err(fault.clone())));
        }
        for descriptor in std::mem::take(&mut waiting.stuck_rma) {
            waiting.push(0, Report::RmaCompleted(descriptor, Err(fault.clone())));
        }
        self.push(peer, Report::Closed);
    }
}
