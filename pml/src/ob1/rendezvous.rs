//! The receiver's side of long messages: it decides how the data comes.
//!
//! RNDV is answered with an ACK for fragments or, where the rail can write our memory, with PUTs for registered
//! pieces; RGET with reads and a FIN or, where reads are not possible, with an ACK for fragments. What a peer
//! sends is held against what it was asked for: never more bytes than wanted, never beyond the buffer (law 9).

use super::PmlError;
use super::RailId;
use super::engine::{Engine, RmaOwner};
use super::ranges::Added;
use super::recv::RecvState;
use super::wire::{self, Asked, Fin, Grant, Nack, WireStatus, kinds};
use ironweave_btl::{Cause, Fault, Peer, RemoteKey, RmaDescriptor};

/// A fragment that is arriving.
pub(super) struct Fragment {
    pub receiver: u64,
    pub offset: u64,
    pub round: u16,
    pub len: u64,
}

/// What is to be done with it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// Write it into the receive of this slot.
    Booked(u32),
    /// Its receive is over, or has begun again.
    Stale,
    /// It came before.
    Again,
    Wrong,
}

impl Engine {
    /// The receive of `slot` was matched by an RNDV whose first bytes it has taken.
    pub fn answer_rndv(&mut self, slot: u32, sender: u64, rail: RailId, confirm: bool) {
        let recv = &mut self.recvs[slot];
        (recv.sender, recv.rail, recv.confirm) = (sender, rail, confirm);
        recv.pieces.clear();
        if recv.received > 0 {
            recv.pieces.add(0..recv.received);
        }
        let (from, until) = (recv.received, recv.want);
        let writes = self.config.rdma && self.caps[usize::from(rail.0)].put;
        if from < until && writes && recv.buffer.region(from as usize..until as usize).is_some() {
            recv.rdma = Some(self.rdmas.lend(from, None));
            let (peer, key) = (recv.peer, self.recvs.key(slot));
            self.peers.state(peer).reads.push_back(key);
            self.peers.wake(peer);
            return;
        }
        self.ask(slot, from, until - from);
        self.settle_recv(slot);
    }

    /// Asks for fragments (of no bytes: tells a synchronous sender that it was matched).
    pub fn ask(&mut self, slot: u32, offset: u64, length: u64) {
        self.ask_for(slot, offset, length, false);
    }

    /// The same; `unread`: nothing was begun of the reads that an RGET offers.
    fn ask_for(&mut self, slot: u32, offset: u64, length: u64, unread: bool) {
        let recv = &mut self.recvs[slot];
        recv.asked |= length > 0;
        let recv = &self.recvs[slot];
        let asked = Asked {
            sender: recv.sender,
            receiver: self.recvs.key(slot).to_wire(),
            offset,
            length,
            want: recv.want,
            round: recv.round,
            rail: 0,
            unread,
        };
        let peer = recv.peer;
        self.control(peer, &Grant::new(kinds::ACK, asked), None);
    }

    /// The receive of `slot` was matched by an RGET.
    pub fn answer_rget(
        &mut self,
        slot: u32,
        sender: u64,
        rail: RailId,
        source: RemoteKey,
        confirm: bool,
    ) {
        let recv = &mut self.recvs[slot];
        (recv.sender, recv.rail, recv.confirm) = (sender, rail, confirm);
        recv.pieces.clear();
        let want = recv.want;
        if want == 0 {
            self.control_read_done(slot, WireStatus::Done);
            return self.settle_recv(slot);
        }
        let reads = self.config.rdma && self.caps[usize::from(rail.0)].get;
        let recv = &mut self.recvs[slot];
        if !reads || recv.buffer.region(0..want as usize).is_none() {
            return self.ask_for(slot, 0, want, true);
        }
        recv.rdma = Some(self.rdmas.lend(0, Some(source)));
        let (peer, key) = (recv.peer, self.recvs.key(slot));
        self.peers.state(peer).reads.push_back(key);
        self.peers.wake(peer);
    }

    fn control_read_done(&mut self, slot: u32, status: WireStatus) {
        let (peer, sender) = (self.recvs[slot].peer, self.recvs[slot].sender);
        self.control(peer, &Fin::to_sender(sender, status), None);
    }

    /// Ends a send at the other side.
    pub fn nack_sender(&mut self, peer: Peer, sender: u64, status: WireStatus) {
        self.stats.nacks_sent += 1;
        self.control(peer, &Nack::to_sender(sender, status), None);
    }

    /// Checks that the peer was asked for these bytes and has not sent them yet, and books them.
    pub fn claim_range(&mut self, from: Peer, frag: &Fragment) -> Claim {
        let Fragment { receiver, offset, round, len } = *frag;
        let key = wire::key(receiver);
        let Some(recv) = self.recvs.get_mut(key) else { return Claim::Stale };
        if recv.state != RecvState::Matched || recv.error.is_some() || recv.restarting {
            return Claim::Stale;
        }
        if recv.peer != from {
            return Claim::Wrong;
        }
        if recv.round != round {
            return Claim::Stale; // from before a restart
        }
        let end = match offset.checked_add(len) {
            Some(end) if end <= recv.want && recv.claimed + len <= recv.want => end,
            _ if recv.pieces.holds(&(offset..offset.saturating_add(len))) => return Claim::Again,
            _ => return Claim::Wrong,
        };
        match recv.pieces.add(offset..end) {
            Added::New => {
                recv.claimed += len;
                Claim::Booked(key.slot)
            }
            Added::Again => Claim::Again,
            Added::Refused => Claim::Wrong,
        }
    }

    pub fn on_frag(&mut self, from: Peer, receiver: u64, offset: u64, round: u16, payload: &[u8]) {
        let len = payload.len() as u64;
        let slot = match self.claim_range(from, &Fragment { receiver, offset, round, len }) {
            Claim::Booked(slot) => slot,
            Claim::Stale => {
                self.stats.stale += 1;
                return;
            }
            Claim::Again => {
                self.stats.duplicates += 1;
                return;
            }
            Claim::Wrong => return self.malformed(from, "a fragment that was not asked for"),
        };
        let recv = &mut self.recvs[slot];
        recv.buffer.unpack(offset as usize, payload);
        recv.received += len;
        self.settle_recv(slot);
    }

    /// A frame for a receive that is over is late, one for a live one is wrong.
    fn stray(&mut self, from: Peer, receiver: u64, what: &'static str) {
        match self.recvs.get(wire::key(receiver)) {
            Some(recv) if recv.state == RecvState::Matched && recv.error.is_none() => {
                self.malformed(from, what);
            }
            _ => self.stats.stale += 1,
        }
    }

    /// The sender has written a piece, or could not.
    pub fn on_write_done(
        &mut self,
        from: Peer,
        receiver: u64,
        offset: u64,
        length: u64,
        round: u16,
        status: WireStatus,
    ) {
        let key = wire::key(receiver);
        let recv = self.recvs.get_mut(key);
        let Some(recv) = recv.filter(|recv| recv.peer != from || recv.round == round) else {
            self.stats.stale += 1;
            return;
        };
        let target = match &mut recv.rdma {
            Some(rdma) if recv.peer == from => {
                let at = rdma.targets.iter().position(|t| (t.offset, t.length) == (offset, length));
                at.map(|at| rdma.targets.swap_remove(at))
            }
            _ => None,
        };
        let Some(target) = target else {
            return self.stray(from, receiver, "a piece that was not asked for");
        };
        self.deregister.push((target.rail, target.key));
        recv.held -= 1;
        if recv.restarting {
            return self.begin_again(key.slot);
        }
        match status {
            WireStatus::Done => {
                recv.claimed += length;
                recv.received += length;
                self.read_on(key);
                self.settle_recv(key.slot);
            }
            WireStatus::Failed => self.ask(key.slot, offset, length),
            _ => self.fail_recv(key.slot, status_error(from, status)),
        }
    }

    /// The sender gives up.
    pub fn on_nack_receiver(&mut self, from: Peer, receiver: u64, status: WireStatus) {
        let key = wire::key(receiver);
        match self.recvs.get(key) {
            Some(recv) if recv.peer == from && recv.state == RecvState::Matched => {
                self.fail_recv(key.slot, status_error(from, status));
            }
            Some(recv) if recv.peer != from => self.malformed(from, "a NACK for another's receive"),
            _ => self.stats.stale += 1,
        }
    }

    /// The outcome is known: memory still open to the peer is closed before the request completes.
    pub fn end_rdma(&mut self, slot: u32) {
        let recv = &mut self.recvs[slot];
        let Some(rdma) = &mut recv.rdma else { return };
        for target in rdma.targets.drain(..) {
            self.deregister.push((target.rail, target.key));
            recv.held -= 1;
        }
    }

    /// A read of ours is over.
    pub fn on_read(&mut self, key: super::slots::Key, length: u64, outcome: Result<(), Fault>) {
        let Some(recv) = self.recvs.get_mut(key) else { return };
        recv.held -= 1;
        match outcome {
            Ok(()) => recv.received += length,
            // The kernel or the device refuses this read, or the rail is lost: fragments always work.
            Err(_) => {
                if let Some(rdma) = &mut recv.rdma {
                    rdma.refused = true;
                }
            }
        }
        self.after_read(key.slot);
    }

    /// After a read: all done, or, when one was refused and none is under way any more, over to fragments.
    pub fn after_read(&mut self, slot: u32) {
        let recv = &mut self.recvs[slot];
        if recv.state != RecvState::Matched || recv.error.is_some() {
            return self.settle_recv(slot);
        }
        let refused = recv.rdma.as_ref().is_some_and(|rdma| rdma.refused);
        if refused && recv.held == 0 {
            recv.rdma = None;
            (recv.claimed, recv.received) = (0, 0);
            recv.pieces.clear();
            let want = recv.want;
            self.ask(slot, 0, want);
        } else if !refused && recv.received == recv.want {
            self.control_read_done(slot, WireStatus::Done);
            self.settle_recv(slot);
        } else {
            self.read_on(self.recvs.key(slot));
        }
    }

    /// Goes on opening memory, or reading, when there is more than was begun.
    fn read_on(&mut self, key: super::slots::Key) {
        let recv = &self.recvs[key.slot];
        if recv.rdma.as_ref().is_some_and(|rdma| rdma.next < recv.want && !rdma.refused) {
            let peer = recv.peer;
            let state = self.peers.state(peer);
            if !state.reads.contains(&key) {
                state.reads.push_back(key);
            }
            self.peers.wake(peer);
        }
    }

    /// A landing of this receive failed. Under a failing rail its sender is told when the rail is closed.
    pub fn lose_recv(&mut self, from: Peer, slot: u32, fault: Fault) {
        let recv = &mut self.recvs[slot];
        let state = self.peers.state(from);
        if recv.restarting {
            return self.begin_again(slot);
        }
        if recv.state != RecvState::Matched || recv.error.is_some() {
            return self.settle_recv(slot);
        }
        if recv.sender == 0 {
            return self.abandon_recv(slot, fault); // eager, over a rail where nobody kept it
        }
        if std::mem::replace(&mut recv.lost, true) {
            return;
        }
        if !state.is_losing_a_rail() && !state.is_cut_off() {
            recv.lost = false;
            self.tell_recv_error(slot);
        }
    }

    /// Ends a matched receive at both sides because data was lost.
    pub fn abandon_recv(&mut self, slot: u32, fault: Fault) {
        let (peer, sender) = (self.recvs[slot].peer, self.recvs[slot].sender);
        if sender != 0 {
            self.nack_sender(peer, sender, WireStatus::Lost);
        }
        self.fail_recv(slot, PmlError::RailLost(fault));
    }

    /// A put or get is over; its owner hears of it.
    pub fn on_rma(&mut self, descriptor: &RmaDescriptor, outcome: Result<(), Fault>) {
        let key = wire::key(descriptor.token.0);
        let Some(rma) = self.rmas.get(key) else { return };
        let (owner, offset, length) = (rma.owner, rma.offset, rma.length);
        self.rmas.remove(key.slot, super::engine::Rma::vacant());
        match owner {
            RmaOwner::Recv(key) => self.on_read(key, length, outcome),
            RmaOwner::Send(key) => self.on_written(key, offset, length, outcome),
            RmaOwner::None => {}
        }
    }
}

/// The error of a request that the other side ended.
pub(super) fn status_error(peer: Peer, status: WireStatus) -> PmlError {
    match status {
        WireStatus::Revoked => PmlError::Revoked,
        WireStatus::Interrupted => PmlError::Interrupted,
        WireStatus::Stale => PmlError::Stale,
        WireStatus::NotReady => PmlError::NotReady,
        WireStatus::Lost => PmlError::RailLost(Fault::rail(peer, Cause::Disconnected)),
        WireStatus::Failed | WireStatus::Done | WireStatus::Withdrawn => {
            PmlError::Io(Fault::operation(peer, Cause::Malformed("status")))
        }
    }
}
