//! The chaos wrapper: any transport, with faults put in where real ones have them.
//!
//! It holds to the contract towards its owner (but for duplicate and stale frames, which are asked for by name): what
//! was handed down comes back once, reports of a peer keep their order, `closed` is last. It invents
//! faults, delays and refusals; it never invents or changes a byte.

mod held;
mod plan;

pub use plan::ChaosPlan;

use held::{Recorder, Report, Told, Waiting};
use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_btl::{
    Address, Armed, Btl, Caps, Cause, Counters, Descriptor, EndpointState, Fault, Peer, Refused,
    RemoteKey, Residue, RmaDescriptor, Sink,
};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A transport with faults put in.
pub struct Chaos<B: Btl> {
    inner: B,
    plan: ChaosPlan,
    rng: SmallRng,
    peers: BTreeMap<u32, Waiting>,
    /// Operations that will still be refused.
    burst: u32,
    /// Something was refused since the last `progress`.
    refused: bool,
    /// Calls of `progress` for which the rail stands still.
    stall: u32,
    /// Losses so far.
    losses: u32,
    /// Operations out with the inner transport.
    out: u32,
    counters: Arc<Counters>,
}

impl<B: Btl> Chaos<B> {
    /// Wraps a transport.
    #[must_use]
    pub fn new(inner: B, plan: ChaosPlan) -> Self {
        Chaos {
            inner,
            rng: SmallRng::seed_from_u64(plan.seed ^ 0xc4a0_5c4a_05c4_a05c),
            plan,
            peers: BTreeMap::new(),
            burst: 0,
            refused: false,
            stall: 0,
            losses: 0,
            out: 0,
            counters: Arc::default(),
        }
    }

    /// The wrapped transport.
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// Whether something will come of another call of `progress` although the wrapped transport is idle: drivers
    /// of virtual time must call again.
    #[must_use]
    pub fn restless(&self) -> bool {
        self.refused || self.peers.values().any(|waiting| !waiting.queue.is_empty())
    }

    fn chance(&mut self, per_mille: u32) -> bool {
        per_mille != 0 && self.rng.random_range(0..1000) < per_mille
    }

    /// Whether an operation goes through to the inner transport now.
    fn admit(&mut self, peer: Peer) -> Result<(), Refused> {
        match self.state(peer) {
            EndpointState::Connecting => return Err(Refused::Connecting),
            EndpointState::Failing | EndpointState::Closed => return Err(Refused::Closed),
            EndpointState::Up => {}
        }
        if self.burst == 0 && self.chance(self.plan.no_room) {
            self.burst = self.rng.random_range(1..=self.plan.burst_max.max(1));
        }
        if self.burst > 0 {
            self.burst -= 1;
            self.refused = true;
            self.counters.refused.add(1);
            return Err(Refused::NoRoom);
        }
        Ok(())
    }

    /// As `admit`, for operations that come back.
    fn admit_one_more(&mut self, peer: Peer) -> Result<(), Refused> {
        self.admit(peer)?;
        if self.plan.scarce != 0 && self.out >= self.plan.scarce {
            self.refused = true;
            self.counters.refused.add(1);
            return Err(Refused::NoRoom);
        }
        Ok(())
    }

    fn waiting(&mut self, peer: Peer) -> &mut Waiting {
        self.peers.entry(peer.0).or_default()
    }

    fn is_mute(&self, peer: Peer) -> bool {
        self.peers.get(&peer.0).is_some_and(|waiting| waiting.mute)
    }

    fn count_refusal<T>(&self, outcome: Result<T, Refused>) -> Result<T, Refused> {
        if matches!(outcome, Err(Refused::NoRoom)) {
            self.counters.refused.add(1);
        }
        outcome
    }

    fn count_sent(&self, len: usize) {
        self.counters.frames_sent.add(1);
        self.counters.bytes_sent.add(len as u64);
    }

    /// Calls into the inner transport with a recorder in place of the sink.
    fn record<S: Sink, R>(
        &mut self,
        sink: &mut S,
        blame: Option<Fault>,
        call: impl FnOnce(&mut B, &mut Recorder<'_, S>) -> R,
    ) -> R {
        let mut recorder = Recorder {
            sink,
            plan: &self.plan,
            rng: &mut self.rng,
            peers: &mut self.peers,
            out: &mut self.out,
            counters: &self.counters,
            blame,
            told: 0,
        };
        call(&mut self.inner, &mut recorder)
    }

    /// Tells what waits for `peer` and is due; all of it with `now`.
    fn release<S: Sink>(&mut self, peer: u32, now: bool, sink: &mut S) -> usize {
        let mut told = 0;
        while let Some(waiting) = self.peers.get_mut(&peer) {
            match waiting.queue.front_mut() {
                None => break,
                Some((delay, _)) if *delay > 0 && !now => {
                    *delay -= 1;
                    break;
                }
                Some(_) => {}
            }
            let (_, report) = waiting.queue.pop_front().expect("looked at above");
            waiting.told(&report);
            told += 1;
            report.tell(Peer(peer), &self.counters, sink);
        }
        told
    }

    /// Some peer whose endpoint is up, by the seed.
    fn some_peer(&mut self) -> Option<Peer> {
        let up: Vec<u32> = self
            .peers
            .iter()
            .filter(|&(&peer, waiting)| {
                waiting.told == Told::Up && self.inner.state(Peer(peer)) == EndpointState::Up
            })
            .map(|(&peer, _)| peer)
            .collect();
        if up.is_empty() { None } else { Some(Peer(up[self.rng.random_range(0..up.len())])) }
    }

    /// The rail to `peer` is lost: fence and purge below, a fault above.
    fn lose<S: Sink>(&mut self, peer: Peer, fault: &Fault, tell: bool, sink: &mut S) {
        let residue = if self.rng.random() { Residue::Deliver } else { Residue::Discard };
        if tell {
            self.waiting(peer).push(0, Report::Fault(fault.clone()));
        }
        self.give_back_stuck(peer, fault);
        self.record(sink, Some(fault.clone()), |inner, recorder| {
            inner.invalidate(peer, residue, recorder);
        });
    }

    /// What a mute endpoint swallowed comes back with the end.
    fn give_back_stuck(&mut self, peer: Peer, fault: &Fault) {
        let waiting = self.waiting(peer);
        waiting.mute = false;
        for descriptor in std::mem::take(&mut waiting.stuck) {
            waiting.push(0, Report::Completed(descriptor, Err(fault.clone())));
        }
        for descriptor in std::mem::take(&mut waiting.stuck_rma) {
            waiting.push(0, Report::RmaCompleted(descriptor, Err(fault.clone())));
        }
    }

    /// What happens by itself before a `progress`.
    fn misbehave<S: Sink>(&mut self, sink: &mut S) {
        if self.losses >= self.plan.losses_max {
            return;
        }
        if self.chance(self.plan.lose_rail)
            && let Some(peer) = self.some_peer()
        {
            self.losses += 1;
            self.lose(peer, &Fault::rail(peer, Cause::Injected("rail lost")), true, sink);
        }
        if self.chance(self.plan.lose_device) {
            self.losses += 1;
            let fault = Fault::device(Cause::Injected("device lost"));
            self.counters.faults.add(1);
            sink.fault(fault.clone());
            let peers: Vec<u32> = self.peers.keys().copied().collect();
            for peer in peers {
                // Those whose owner does not know yet that they are up are told one by one, in their turn.
                match self.peers[&peer].told {
                    Told::Closed => {}
                    _ if self.state(Peer(peer)) == EndpointState::Failing => {}
                    Told::Up => self.lose(Peer(peer), &fault, false, sink),
                    Told::Connecting => {
                        let fault = Fault::rail(Peer(peer), fault.cause.clone());
                        self.lose(Peer(peer), &fault, true, sink);
                    }
                }
            }
        }
        if self.chance(self.plan.mute)
            && let Some(peer) = self.some_peer()
        {
            self.losses += 1;
            self.waiting(peer).mute = true;
        }
    }
}

impl<B: Btl> Btl for Chaos<B> {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn address(&self) -> Address {
        self.inner.address()
    }

    fn connect(&mut self, peer: Peer, address: &Address) -> Result<(), Fault> {
        match self.state(peer) {
            EndpointState::Failing => Err(Fault::rail(peer, Cause::Unreachable)),
            EndpointState::Up => Ok(()),
            EndpointState::Connecting | EndpointState::Closed => {
                self.inner.connect(peer, address)?;
                self.waiting(peer).connect();
                Ok(())
            }
        }
    }

    /// What was told decides: the inner transport may be further.
    fn state(&self, peer: Peer) -> EndpointState {
        let inner = self.inner.state(peer);
        let nothing = Waiting::default();
        let waiting = self.peers.get(&peer.0).unwrap_or(&nothing);
        let ending = waiting.queue.iter().any(|(_, report)| matches!(report, Report::Closed));
        let coming = waiting.queue.iter().any(|(_, report)| matches!(report, Report::Up));
        match (waiting.told, inner) {
            (Told::Connecting | Told::Up, _) if ending || waiting.fault_told => {
                EndpointState::Failing
            }
            (Told::Up, EndpointState::Up) => EndpointState::Up,
            (Told::Up, _) => EndpointState::Failing,
            (Told::Connecting, EndpointState::Failing) => EndpointState::Failing,
            (Told::Connecting, _) => EndpointState::Connecting,
            (Told::Closed, _) if coming || ending => EndpointState::Connecting,
            (Told::Closed, EndpointState::Up) => EndpointState::Connecting,
            (Told::Closed, inner) => inner,
        }
    }

    fn send_short(&mut self, peer: Peer, header: &[u8], payload: &[u8]) -> Result<(), Refused> {
        let max = self.caps().max_short;
        if header.len() + payload.len() > max {
            return Err(Refused::TooLong { max });
        }
        self.admit(peer)?;
        if !self.is_mute(peer) {
            let sent = self.inner.send_short(peer, header, payload);
            self.count_refusal(sent)?;
        }
        self.count_sent(payload.len());
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
        let max = self.caps().max_bcopy;
        if len > max {
            return Err(Refused::TooLong { max });
        }
        self.admit(peer)?;
        if self.is_mute(peer) {
            pack(0, &mut vec![0; len]);
        } else {
            let sent = self.inner.send_bcopy(peer, header, len, pack);
            self.count_refusal(sent)?;
        }
        self.count_sent(len);
        Ok(())
    }

    fn send_zcopy(&mut self, descriptor: Descriptor) -> Result<(), (Refused, Descriptor)> {
        let (peer, len) = (descriptor.peer, descriptor.payload_len());
        let max = self.caps().max_zcopy;
        if len > max {
            return Err((Refused::TooLong { max }, descriptor));
        }
        if let Err(refused) = self.admit_one_more(peer) {
            return Err((refused, descriptor));
        }
        if self.is_mute(peer) {
            self.waiting(peer).stuck.push(descriptor);
        } else if self.chance(self.plan.error_before) {
            let fault = Fault::operation(peer, Cause::Injected("not sent"));
            self.waiting(peer).push(1, Report::Completed(descriptor, Err(fault)));
        } else {
            self.inner.send_zcopy(descriptor).map_err(|(refused, descriptor)| {
                self.counters.refused.add(u64::from(refused == Refused::NoRoom));
                (refused, descriptor)
            })?;
            self.out += 1;
        }
        self.count_sent(len);
        Ok(())
    }

    fn rma(&mut self, descriptor: RmaDescriptor) -> Result<(), (Refused, RmaDescriptor)> {
        let peer = descriptor.peer;
        let able = match &descriptor.kind {
            ironweave_btl::RmaKind::Put(_) => self.caps().put,
            ironweave_btl::RmaKind::Get(_) => self.caps().get,
            ironweave_btl::RmaKind::Atomic(..) => self.caps().atomics,
        };
        if !able {
            return Err((Refused::Unsupported, descriptor));
        }
        if let Err(refused) = self.admit_one_more(peer) {
            return Err((refused, descriptor));
        }
        if self.is_mute(peer) {
            self.waiting(peer).stuck_rma.push(descriptor);
        } else if self.chance(self.plan.error_before) {
            let fault = Fault::operation(peer, Cause::Injected("not done"));
            self.waiting(peer).push(1, Report::RmaCompleted(descriptor, Err(fault)));
        } else {
            self.inner.rma(descriptor)?;
            self.out += 1;
        }
        self.counters.rma.add(1);
        Ok(())
    }

    fn register_source(&mut self, peer: Peer, region: &SendRegion) -> Result<RemoteKey, Refused> {
        if self.caps().get && self.chance(self.plan.no_registration) {
            return Err(Refused::NoRoom);
        }
        self.inner.register_source(peer, region)
    }

    fn register_target(&mut self, region: &RecvRegion) -> Result<RemoteKey, Refused> {
        if self.caps().put && self.chance(self.plan.no_registration) {
            return Err(Refused::NoRoom);
        }
        self.inner.register_target(region)
    }

    fn deregister(&mut self, key: &RemoteKey) {
        self.inner.deregister(key);
    }

    fn retire(&mut self, key: &RemoteKey) {
        self.inner.retire(key);
    }

    fn progress<S: Sink>(&mut self, sink: &mut S) -> usize {
        let before = self.counters.faults.get();
        self.burst = self.burst.saturating_sub(1);
        self.refused = false;
        if self.stall == 0 && self.chance(self.plan.stall) {
            self.stall = self.rng.random_range(1..=self.plan.stall_max.max(1));
        }
        self.misbehave(sink);
        let mut reports = (self.counters.faults.get() - before) as usize;
        reports += self.record(sink, None, |inner, recorder| {
            inner.progress(recorder);
            recorder.told
        });
        if self.stall > 0 {
            self.stall -= 1;
            return reports;
        }
        let peers: Vec<u32> = self
            .peers
            .iter()
            .filter(|(_, waiting)| !waiting.queue.is_empty())
            .map(|(&peer, _)| peer)
            .collect();
        for peer in peers {
            reports += self.release(peer, false, sink);
        }
        reports
    }

    fn arm(&mut self) -> Armed {
        if self.restless() { Armed::Ready } else { self.inner.arm() }
    }

    fn invalidate<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        if matches!(self.state(peer), EndpointState::Closed | EndpointState::Failing) {
            return;
        }
        // What waits was there before the end: frames go the way the caller wants, the rest is told.
        let waiting = self.waiting(peer);
        if residue == Residue::Discard {
            waiting.queue.retain(|(_, report)| !matches!(report, Report::Frame(..)));
        }
        self.release(peer.0, true, sink);
        self.give_back_stuck(peer, &Fault::operation(peer, Cause::Invalidated));
        self.record(sink, None, |inner, recorder| inner.invalidate(peer, residue, recorder));
        if self.rng.random() {
            self.release(peer.0, true, sink);
        }
    }

    fn exclude<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        self.invalidate(peer, residue, sink);
        self.record(sink, None, |inner, recorder| inner.exclude(peer, residue, recorder));
    }

    fn unflushed(&self) -> usize {
        self.inner.unflushed()
    }

    fn depart(&mut self) {
        self.inner.depart();
    }

    fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    fn dump(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        writeln!(
            out,
            "chaos {:?}: burst {}, stall {}, losses {}, out {}",
            self.plan, self.burst, self.stall, self.losses, self.out
        )?;
        for (peer, waiting) in &self.peers {
            if waiting.mute || !waiting.queue.is_empty() {
                writeln!(
                    out,
                    "  to {peer}: told {:?}, {} reports wait, mute {}, {} stuck",
                    waiting.told,
                    waiting.queue.len(),
                    waiting.mute,
                    waiting.stuck.len() + waiting.stuck_rma.len()
                )?;
            }
        }
        self.inner.dump(out)
    }
}

impl<B: Btl> Drop for Chaos<B> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("chaos of {}: {:?}", self.inner.caps().device, self.plan);
        }
    }
}
