//! Failures: what a lost rail and a lost process mean for requests.
//!
//! A transport only suspects. What a lost rail costs while others are left is in `failover`. A peer that no rail reaches is
//! *cut off*: the upper layer is told, its requests wait, and go on if a rail comes back. When
//! the upper layer has judged ([`Ob1::proc_failed`], [`Ob1::unreachable`]), the rails are closed first, which
//! fences the memory and still delivers what came in full before the failure (seed 003 §17.6), and only then
//! are the requests ended (law 2: `pml_complete` before `mpi_complete`; seed 000, "Cancellation of failed requests").

use super::engine::{Engine, Port};
use super::peer::{Life, RailState, StreamTarget, Verdict};
use super::recv::{RecvState, drop_body, verdict_error};
use super::send::SendState;
use super::unexpected::{Body, Place, Unexpected};
use super::{CommId, Ob1, PmlError, RailId, Source};
use ironweave_btl::{Btl, Cause, EndpointState, Fault, Peer, Residue, Scope};
use smallvec::SmallVec;

/// What a communicator knows of failures in its (remote) group.
#[derive(Default)]
pub(super) struct Failures {
    /// Some member has failed or is out of reach: receives for one have to be checked.
    any: bool,
    ranks: Vec<u32>,
    acknowledged: usize,
}

impl Failures {
    pub fn any(&self) -> bool {
        self.any
    }

    pub fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// Acknowledges the first `most` of them, or keeps what was acknowledged before, if that is more.
    fn acknowledge(&mut self, most: usize) -> usize {
        self.acknowledged = self.acknowledged.max(most.min(self.ranks.len()));
        self.acknowledged
    }

    /// The first failure that was not acknowledged: while there is one, wildcard receives are disabled.
    pub fn unacknowledged(&self) -> Option<u32> {
        self.ranks.get(self.acknowledged).copied()
    }

    fn record(&mut self, rank: u32, verdict: Verdict) {
        self.any = true;
        if verdict == Verdict::Failed && !self.ranks.contains(&rank) {
            self.ranks.push(rank);
        }
    }
}

impl<B: Btl> Ob1<B> {
    /// The process is known to have failed: the launcher, the detector or proof says so. It is excluded for good
    /// (law 4). Each request with it ends with [`PmlError::ProcFailed`] once no rail holds any part of its buffer, here or in
    /// later calls of `progress`; messages that came in full may still be received, in order, also later.
    pub fn proc_failed(&mut self, peer: Peer) {
        self.judge(peer, Verdict::Failed);
    }

    /// The upper layer gives up on reaching the process without holding it for dead: as `proc_failed`, but requests end
    /// with [`PmlError::Unreachable`] and the process is not excluded.
    pub fn unreachable(&mut self, peer: Peer) {
        self.judge(peer, Verdict::Unreachable);
    }

    fn judge(&mut self, peer: Peer, verdict: Verdict) {
        let state = self.engine.peers.state(peer);
        match (state.life, verdict) {
            (Life::Alive | Life::CutOff, _) => {}
            (Life::Closing(Verdict::Unreachable), Verdict::Failed)
            | (Life::Ended(Verdict::Unreachable), Verdict::Failed) => {}
            _ => return,
        }
        tracing::debug!(%peer, ?verdict, "judged");
        state.life = Life::Closing(verdict);
        self.engine.refresh(peer);
        for (rail, btl) in (0..).zip(&mut self.rails) {
            let mut port = Port { engine: &mut self.engine, rail: RailId(rail) };
            match verdict {
                Verdict::Failed => btl.exclude(peer, Residue::Deliver, &mut port),
                Verdict::Unreachable => btl.invalidate(peer, Residue::Deliver, &mut port),
            }
        }
        self.finish_closing(peer);
        self.deregister();
    }

    /// When all rails to a judged peer are closed: ends what it had part in.
    pub(super) fn finish_closing(&mut self, peer: Peer) {
        let Life::Closing(verdict) = self.engine.peers.state(peer).life else { return };
        if self.rails.iter().all(|btl| btl.state(peer) == EndpointState::Closed) {
            self.engine.end_peer(peer, verdict);
        }
    }

    /// Tries rails of lower exclusivity for a peer that no better rail reaches.
    pub(super) fn reroute(&mut self, peer: Peer) {
        let state = self.engine.peers.state(peer);
        if state.life != Life::Alive || state.has_hope() {
            return;
        }
        let reserve = std::mem::take(&mut state.reserve);
        if !self.connect_best(peer, reserve) {
            self.engine.cut_off(peer, Fault::rail(peer, Cause::Unreachable));
        }
    }
}

impl Engine {
    pub fn on_fault(&mut self, rail: RailId, fault: Fault) {
        if fault.scope == Scope::Operation {
            return; // its operation comes back with it
        }
        tracing::debug!(rail = rail.0, %fault, "fault");
        let Some(peer) = fault.peer else {
            // All of the device's endpoints end; none of them by a good-bye.
            let of: Vec<Peer> = self
                .peers
                .iter()
                .filter(|(_, s)| s.rail(rail).is_some_and(|r| r.state != RailState::Closed))
                .map(|(peer, _)| peer)
                .collect();
            for peer in of {
                let row = self.peers.state(peer).rail_mut(rail);
                row.fault.get_or_insert_with(|| Fault::rail(peer, fault.cause.clone()));
                row.state = RailState::Failing;
                self.refresh(peer);
            }
            self.suspects.push(fault);
            return;
        };
        let proper = fault.scope == Scope::Peer;
        let row = self.peers.state(peer).rail_mut(rail);
        row.fault.get_or_insert_with(|| fault.clone());
        row.state = RailState::Failing;
        self.refresh(peer);
        if proper {
            self.suspects.push(fault);
        }
    }

    pub fn on_closed(&mut self, rail: RailId, peer: Peer) {
        let lossless = self.caps[usize::from(rail.0)].lossless;
        let state = self.peers.state(peer);
        let row = state.rail_mut(rail);
        let (carried, was_up) = (row.carried, row.was_up);
        let finalized = row.fault.is_none();
        let fault = row.fault.take().unwrap_or(Fault::rail(peer, Cause::Finalized));
        row.state = RailState::Closed;
        (row.carried, row.was_up) = (false, false);
        let heals = !finalized && row.address.is_some();
        state.is_broken |= lossless && carried;
        let (life, hope, reserve) = (state.life, state.has_hope(), !state.reserve.is_empty());
        let broken = state.is_broken;
        self.refresh(peer);
        match life {
            Life::Closing(_) => return self.closing.push(peer),
            Life::Ended(_) => return,
            Life::Alive | Life::CutOff => {}
        }
        self.forsake(rail, peer, &fault);
        if heals {
            self.lost.push((peer, rail));
        }
        if was_up && !finalized && !broken {
            self.tell_lost(rail, peer); // when there is a rail to tell it over
        }
        match life {
            Life::Alive if broken => self.cut_off(peer, fault),
            // Who has left on one rail has left on all.
            Life::Alive if !hope && reserve && !(finalized && was_up) => self.reroute.push(peer),
            Life::Alive if !hope => self.cut_off(peer, fault),
            _ => {}
        }
    }

    /// The peer cannot be served any more; the upper layer is told, once (of a fault of the peer it was told already).
    pub fn cut_off(&mut self, peer: Peer, fault: Fault) {
        self.peers.state(peer).life = Life::CutOff;
        self.refresh(peer);
        if fault.scope != Scope::Peer {
            self.suspects.push(fault);
        }
    }

    /// All rails to a judged peer are closed: nothing of it can reach user memory any more. Ends its requests.
    fn end_peer(&mut self, peer: Peer, verdict: Verdict) {
        let state = self.peers.state(peer);
        state.life = Life::Ended(verdict);
        state.outbox.clear();
        state.pending.clear();
        state.flows.clear();
        state.reads.clear();
        state.channel = None;
        state.journal = None;
        state.lane = None;
        state.stream_in = None; // its message goes with the other incomplete ones below
        self.refresh(peer);
        self.early.retain(|early| early.from != peer);
        self.withdrawn.retain(|(of, _)| *of != peer);
        self.lost.retain(|(of, _)| *of != peer);

        let comms = self.comms.iter();
        let places: SmallVec<[(u32, u32); 8]> = comms
            .flat_map(|(slot, comm)| comm.ranks_of(peer).map(move |rank| (slot, rank)))
            .collect();
        for (slot, rank) in places {
            self.record_failure(slot, rank, verdict);
        }
        let recvs: Vec<u32> = self
            .recvs
            .iter()
            .filter(|(_, r)| r.peer == peer && r.state == RecvState::Matched)
            .map(|(slot, _)| slot)
            .collect();
        for slot in recvs {
            let (comm, rank) = (self.recvs[slot].comm, self.recvs[slot].status().source);
            self.recvs[slot].claimed = self.recvs[slot].want;
            self.fail_recv(slot, verdict_error(verdict, peer, rank));
            self.poison(comm, rank);
        }
        let sends: Vec<u32> = self
            .sends
            .iter()
            .filter(|(_, s)| s.peer == peer && s.state != SendState::Complete)
            .map(|(slot, _)| slot)
            .collect();
        for slot in sends {
            let rank = self.sends[slot].dest;
            self.fail_send(slot, verdict_error(verdict, peer, rank));
        }
    }

    /// A new communicator may have members that failed before.
    pub fn inherit_failures(&mut self, comm: CommId) {
        let Ok(there) = self.comms.get(comm) else { return };
        let ended = |peer| match self.peers.get(peer)?.life {
            Life::Ended(verdict) => Some(verdict),
            _ => None,
        };
        let failed: Vec<(u32, Verdict)> = (0..)
            .zip(&there.members)
            .filter_map(|(rank, member)| Some((rank, ended(member.peer)?)))
            .collect();
        for (rank, verdict) in failed {
            self.record_failure(comm.slot, rank, verdict);
        }
    }

    /// A member of a communicator has failed, or is out of reach: incomplete messages of it go, receives for it end. Only a
    /// failure disables wildcards: a process that finalized has no part in what the others still say to each other.
    pub fn record_failure(&mut self, slot: u32, rank: u32, verdict: Verdict) {
        let comm = self.comms.at(slot);
        comm.failures.record(rank, verdict);
        // A late frame of it takes the way on which it is recognised (law 4).
        comm.members[rank as usize].heard = RailId(u16::MAX);
        comm.parked.retain(|&(source, _), _| source != rank);
        comm.watch();
        self.drop_messages(slot, rank, false);
        let posted: SmallVec<[u32; 8]> = self
            .recvs
            .iter()
            .filter(|(_, r)| r.comm.slot == slot)
            .filter(|(_, r)| matches!(r.state, RecvState::Posted | RecvState::Interrupted))
            .filter(|(_, r)| matches!(r.source, Source::Any) || r.source == Source::Rank(rank))
            .map(|(slot, _)| slot)
            .collect();
        for slot in posted {
            self.check_posted(slot);
        }
    }

    /// Ends or interrupts a posted receive that a known failure concerns.
    pub fn check_posted(&mut self, slot: u32) {
        let (comm, source) = (self.recvs[slot].comm, self.recvs[slot].source);
        let there = self.comms.at(comm.slot);
        match source {
            Source::Rank(rank) => {
                let peer = there.members[rank as usize].peer;
                if let Life::Ended(verdict) = self.peers.state(peer).life {
                    self.fail_posted(slot, verdict_error(verdict, peer, rank));
                    self.poison(comm, rank);
                }
            }
            Source::Any => {
                let Some(rank) = there.failures.unacknowledged() else { return };
                if self.recvs[slot].blocking {
                    self.fail_posted(slot, PmlError::ProcFailed { rank });
                } else {
                    self.recvs[slot].state = RecvState::Interrupted;
                }
            }
        }
    }

    /// A receive from this member ended in error: no later one may succeed (seed 003 §17.6, advice to implementors).
    fn poison(&mut self, comm: CommId, rank: u32) {
        let Ok(there) = self.comms.get_mut(comm) else { return };
        let Some(member) = there.members.get_mut(rank as usize) else { return };
        if !std::mem::replace(&mut member.poisoned, true) {
            there.poisoned += 1;
            there.watch();
            self.drop_messages(comm.slot, rank, true);
        }
    }

    /// Drops a failed member's unexpected messages: all, or from the first incomplete one on (what came after it in the
    /// sender's order must not overtake it).
    fn drop_messages(&mut self, slot: u32, rank: u32, all: bool) {
        let mut kept = self.comms.at(slot).kept(&self.messages);
        kept.retain(|&message| self.messages[message].source == rank);
        kept.sort_unstable_by_key(|&message| self.messages[message].order);
        let whole = |message: &&u32| !all && self.messages[**message].is_whole();
        let deliverable = kept.iter().take_while(whole).count();
        for &message in &kept[deliverable..] {
            self.discard(message);
        }
    }

    /// Drops a queued message, and lets what is still coming of it go nowhere.
    pub fn discard(&mut self, message: u32) {
        debug_assert_eq!(self.messages[message].place, Place::Queued);
        let (comm, peer) = (self.messages[message].comm, self.messages[message].peer);
        self.discharge(message);
        self.comms.at(comm.slot).unkeep(&mut self.messages, message);
        let name = self.messages.key(message);
        let Unexpected { body, .. } = self.messages.remove(message, Unexpected::VACANT);
        if let Body::Stream(_) = body {
            self.aim_stream(peer, StreamTarget::Unexpected(name), StreamTarget::Nowhere);
        }
        drop_body(&mut self.pool, body);
    }

    /// Enables wildcard receives again, if that are all failures.
    pub fn acknowledge(&mut self, comm: CommId, most: usize) -> usize {
        let Ok(there) = self.comms.get_mut(comm) else { return 0 };
        let known = there.failures.acknowledge(most);
        if there.failures.unacknowledged().is_some() {
            return known;
        }
        let interrupted: Vec<u32> = self
            .recvs
            .iter()
            .filter(|(_, r)| r.comm == comm && r.state == RecvState::Interrupted)
            .map(|(slot, _)| slot)
            .collect();
        for slot in interrupted {
            self.recvs[slot].state = RecvState::Posted;
        }
        known
    }
}
