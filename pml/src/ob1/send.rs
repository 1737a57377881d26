//! Send requests: their states, what answers from the receiver do to them, and how they complete.
//!
//! A send is never ended from this side because its communicator is revoked (seed 000, "Supporting the Revoke
//! operation", case 1): the receiver decides, and a NACK tells. It completes when all bytes that the receiver wants have
//! left the buffer and no rail holds any part of it (law 2).
//!
//! To cancel one that was announced is to ask the receiver, too (`withdraw`).

use super::convertor::Payload;
use super::engine::Engine;
use super::peer::{Life, PeerState, RailState};
use super::rendezvous::status_error;
use super::slots::Key;
use super::wire::{self, Announce, Asked, Envelope, Nack, WireStatus};
use super::{Completion, Mode, PmlError, RailId, Status};
use ironweave_btl::{Descriptor, Fault, Peer, RemoteKey, Scope};
use smallvec::SmallVec;
use std::ops::Range;

/// How far a send is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(super) enum SendState {
    /// Its first frame waits for room, for the connection, or for earlier sends.
    Queued,
    /// An eager stream partly out.
    Streaming {
        /// Bytes out.
        offset: u64,
        /// The stream's number.
        stream: u64,
        /// All of it goes over one rail.
        rail: RailId,
    },
    /// Announced; the receiver will say how to go on.
    Announced,
    /// The receiver asked for bytes; or all of an eager message is out, and its arrival is not confirmed.
    Flowing,
    /// Parts were lost with a rail; others are still held by rails.
    Restarting,
    /// The receiver was asked to begin again.
    Notified,
    /// The outcome is decided; rails still hold parts of the buffer.
    Draining,
    /// `pml_complete` and `mpi_complete`.
    Complete,
}

/// Whether the receiver is to say that all has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Confirm {
    /// It is not: nothing can be lost, or there is nothing to arrive.
    No,
    Due,
    Done,
    /// It is not: the journal has a copy of all of it, so it is over when the rail has let go of the buffer.
    Kept,
}

/// A piece that the receiver asked to have written.
pub(super) struct Write {
    pub rail: RailId,
    pub key: RemoteKey,
    pub offset: u64,
    pub length: u64,
}

/// A send request, with the fields that fault tolerance asks for: peer, tag and communicator (in the envelope), error.
pub(super) struct Send {
    pub state: SendState,
    pub mode: Mode,
    /// Nobody will ask for the completion: a buffered send, or freed by the user.
    pub detached: bool,
    pub peer: Peer,
    /// The receiver's rank.
    pub dest: u32,
    pub envelope: Envelope,
    pub payload: Payload,
    pub length: u64,
    /// Bytes that the receiver takes in all, once it said so.
    pub want: Option<u64>,
    /// Bytes out of our hands.
    pub sent: u64,
    /// The receive request's token, once known; 0 before.
    pub receiver: u64,
    /// Asked for as fragments, not given to a rail yet.
    pub ranges: SmallVec<[Range<u64>; 2]>,
    /// Asked to be written, not begun yet.
    pub writes: Vec<Write>,
    /// Regions of the buffer that rails hold.
    pub held: u32,
    /// The rails that got fragments of it: bit per rail.
    pub rails_used: u64,
    /// A fragment was lost with a rail that is not closed yet: what that means shows then.
    pub lost: bool,
    /// Some rail to the peer can be lost: the request stays until the receiver confirms.
    pub lossy: bool,
    pub confirm: Confirm,
    /// Restarts so far, as the receiver counts them.
    pub round: u16,
    /// The receiver was offered to read it.
    pub offered: bool,
    /// Times the first frame came back with an error and was sent again.
    pub retries: u8,
    /// Registered for the receiver to read.
    pub source: Option<(RailId, RemoteKey)>,
    pub error: Option<PmlError>,
    pub cancel: Cancel,
}

/// Whether a send is cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cancel {
    No,
    /// The user asked for it. An announced one was withdrawn.
    Asked,
    /// It had not matched: the receiver has dropped it.
    Done,
}

impl Send {
    /// A request that was never used.
    pub fn fresh() -> Self {
        let envelope = Envelope { cid: 0, epoch: 0, seq: 0, source: 0, tag: 0, ready: false };
        Send {
            state: SendState::Complete,
            mode: Mode::Standard,
            detached: false,
            peer: Peer(u32::MAX),
            dest: 0,
            envelope,
            payload: Payload::empty(),
            length: 0,
            want: None,
            sent: 0,
            receiver: 0,
            ranges: SmallVec::new(),
            writes: Vec::new(),
            held: 0,
            rails_used: 0,
            lost: false,
            lossy: false,
            confirm: Confirm::No,
            round: 0,
            offered: false,
            retries: 0,
            source: None,
            error: None,
            cancel: Cancel::No,
        }
    }

    /// Begins, in the place of one that is over.
    pub fn begin(
        &mut self,
        mode: Mode,
        peer: Peer,
        dest: u32,
        envelope: Envelope,
        payload: Payload,
        length: u64,
    ) {
        debug_assert!(self.source.is_none() && self.error.is_none() && self.ranges.is_empty());
        (self.state, self.mode, self.detached) = (SendState::Queued, mode, false);
        (self.peer, self.dest, self.envelope) = (peer, dest, envelope);
        (self.payload, self.length) = (payload, length);
        (self.want, self.sent, self.receiver) = (None, 0, 0);
        (self.held, self.rails_used) = (0, 0);
        (self.lost, self.lossy, self.confirm) = (false, false, Confirm::No);
        (self.round, self.offered, self.retries, self.cancel) = (0, false, 0, Cancel::No);
    }

    /// Whether the outcome is known.
    fn is_decided(&self) -> bool {
        self.error.is_some()
            || (self.want.is_some_and(|want| self.sent >= want)
                && self.confirm != Confirm::Due
                && self.ranges.is_empty()
                && self.writes.is_empty())
    }
}

/// Times an eager message is sent again by itself.
const RETRIES: u8 = 8;
/// Ranges or writes that a receiver may ask for before earlier ones are served.
const ASKED_MAX: usize = 1 << 16;

impl Engine {
    /// Moves a send on when its outcome is known: the one place where sends complete.
    pub fn settle_send(&mut self, slot: u32) {
        let send = &mut self.sends[slot];
        if send.state == SendState::Complete || !send.is_decided() {
            return;
        }
        send.ranges.clear();
        send.writes.clear();
        if let Some(source) = send.source.take() {
            let well = send.error.is_none() && send.offered;
            if well { &mut self.retire } else { &mut self.deregister }.push(source);
        }
        if send.held > 0 {
            send.state = SendState::Draining;
            return;
        }
        send.state = SendState::Complete;
        if send.detached {
            self.free_send(slot);
        }
    }

    /// Frees a completed send, and what it holds.
    pub fn free_send(&mut self, slot: u32) {
        let send = &mut self.sends[slot];
        debug_assert!(send.state == SendState::Complete && send.held == 0);
        if !matches!(send.payload, Payload::Contiguous(_)) {
            send.payload = Payload::empty();
        }
        send.error = None;
        self.sends.free(slot);
    }

    /// Ends a send with an error. What rails hold of it comes back first.
    pub fn fail_send(&mut self, slot: u32, error: PmlError) {
        let send = &mut self.sends[slot];
        if send.state == SendState::Complete {
            return;
        }
        send.error.get_or_insert(error);
        self.settle_send(slot);
    }

    /// The live send that a peer's answer names.
    fn answered(&mut self, from: Peer, sender: u64) -> Option<(u32, &mut Send)> {
        let key = wire::key(sender);
        match self.sends.get(key) {
            Some(send) if send.peer != from => {
                self.malformed(from, "an answer to another's send");
                None
            }
            Some(send)
                if send.error.is_none()
                    && matches!(
                        send.state,
                        SendState::Announced
                            | SendState::Flowing
                            | SendState::Restarting
                            | SendState::Notified
                    ) =>
            {
                Some((key.slot, &mut self.sends[key.slot]))
            }
            _ => {
                self.stats.stale += 1;
                None
            }
        }
    }

    /// Takes note of what the receiver wants. `None` when it makes no sense.
    fn agree(&mut self, from: Peer, asked: &Asked) -> Option<u32> {
        let (slot, send) = self.answered(from, asked.sender)?;
        if send.round != asked.round
            || matches!(send.state, SendState::Restarting | SendState::Notified)
        {
            self.stats.stale += 1;
            return None;
        }
        let same = send.receiver == 0 || send.receiver == asked.receiver;
        let want = send.want.unwrap_or(asked.want);
        let asked_for = send.ranges.len() + send.writes.len();
        if !same || asked.want != want || want > send.length || asked_for >= ASKED_MAX {
            self.malformed(from, "an answer that does not fit the message");
            return None;
        }
        send.receiver = asked.receiver;
        send.want = Some(want);
        send.state = SendState::Flowing;
        if send.lossy && asked.length > 0 && send.confirm == Confirm::No {
            send.confirm = Confirm::Due;
        }
        if let Some(source) = send.source.take() {
            // It asks for fragments of a message that it was to read: what it had read does not count.
            send.sent = 0;
            if asked.unread { &mut self.retire } else { &mut self.deregister }.push(source);
        }
        Some(slot)
    }

    /// The receiver asks for fragments.
    pub fn on_ack(&mut self, from: Peer, asked: Asked) {
        let Some(slot) = self.agree(from, &asked) else { return };
        if asked.length > 0 {
            self.sends[slot].ranges.push(asked.offset..asked.offset + asked.length);
            self.flow(slot);
        }
        self.settle_send(slot);
    }

    /// The receiver asks for a write.
    pub fn on_put(&mut self, rail: RailId, from: Peer, asked: Asked, key: &[u8]) {
        let Some(slot) = self.agree(from, &asked) else { return };
        let Some(key) = RemoteKey::new(key) else {
            return self.malformed(from, "key length");
        };
        let rail = if asked.rail == 0 { rail } else { RailId(asked.rail - 1) };
        if usize::from(rail.0) >= self.caps.len() {
            return self.malformed(from, "a rail that is not there");
        }
        let (offset, length) = (asked.offset, asked.length);
        self.sends[slot].writes.push(Write { rail, key, offset, length });
        self.flow(slot);
    }

    /// Puts a send on its peer's list of those with data to move.
    pub fn flow(&mut self, slot: u32) {
        let (key, peer) = (self.sends.key(slot), self.sends[slot].peer);
        let state = self.peers.state(peer);
        if !state.flows.contains(&key) {
            state.flows.push_back(key);
        }
        self.peers.wake(peer);
    }

    /// The receiver has read the message, or ends it.
    pub fn on_read_done(&mut self, from: Peer, sender: u64, status: WireStatus) {
        let Some((slot, send)) = self.answered(from, sender) else { return };
        if !send.offered && send.confirm != Confirm::Due {
            return self.malformed(from, "a read that was not offered");
        }
        match status {
            WireStatus::Done => {
                (send.sent, send.want) = (send.length, Some(send.length));
                send.confirm = Confirm::Done;
                send.ranges.clear();
                send.writes.clear();
                self.settle_send(slot);
            }
            status => self.fail_send(slot, status_error(from, status)),
        }
    }

    /// The receiver does not take the message.
    pub fn on_nack_sender(&mut self, from: Peer, sender: u64, status: WireStatus) {
        let Some((slot, send)) = self.answered(from, sender) else { return };
        if status != WireStatus::Withdrawn {
            return self.fail_send(slot, status_error(from, status));
        }
        if send.cancel != Cancel::Asked || send.receiver != 0 {
            return self.malformed(from, "a message that was not withdrawn");
        }
        // The receiver wants nothing of it, and has begun no read: it ends well, with no byte taken.
        (send.cancel, send.want, send.confirm) = (Cancel::Done, Some(0), Confirm::Done);
        self.settle_send(slot);
    }

    /// Cancels a send that waits for its receiver, or will: that is asked to drop it (MPI §3.8.4). All others end without it.
    pub fn cancel_send(&mut self, key: Key) {
        let Some(send) = self.sends.get_mut(key) else { return };
        if send.cancel == Cancel::No && send.error.is_none() {
            send.cancel = Cancel::Asked;
            if send.state == SendState::Announced {
                self.withdraw(key);
            }
        }
    }

    /// Asks the receiver to drop a message that it was told of.
    pub fn withdraw(&mut self, key: Key) {
        let send = &self.sends[key.slot];
        let header = Announce::withdraw(send.envelope, key.to_wire());
        self.control(send.peer, &header, None);
    }

    /// A zero-copy fragment is over.
    pub fn on_sent(&mut self, descriptor: Descriptor, outcome: Result<(), Fault>) {
        let key = wire::key(descriptor.token.0);
        let length = descriptor.payload_len() as u64;
        drop(descriptor);
        let Some(send) = self.sends.get_mut(key) else { return };
        send.held -= 1;
        if send.state == SendState::Restarting {
            return self.notify(key.slot);
        }
        match outcome {
            // What became of it is the journal's concern; under a failing rail all of it goes out again anyway.
            _ if send.confirm == Confirm::Kept => {
                send.sent = send.length;
                let peer = send.peer;
                if outcome.is_err() && self.peers.state(peer).journal().redo(key) {
                    self.refresh(peer);
                    self.peers.wake(peer);
                }
            }
            // Out of order, a copy of it may have been confirmed before.
            Ok(()) if send.confirm != Confirm::Done => send.sent += length,
            Ok(()) => {}
            Err(fault) => return self.lose_send(key.slot, fault),
        }
        if !self.sends[key.slot].ranges.is_empty() {
            self.flow(key.slot);
        }
        self.settle_send(key.slot);
    }

    /// A write of ours is over: the receiver is told.
    pub fn on_written(&mut self, key: Key, offset: u64, length: u64, outcome: Result<(), Fault>) {
        let Some(send) = self.sends.get_mut(key) else { return };
        send.held -= 1;
        if send.state == SendState::Restarting {
            return self.notify(key.slot);
        }
        let (peer, receiver, round) = (send.peer, send.receiver, send.round);
        let status = match outcome {
            Ok(()) => {
                send.sent += length;
                WireStatus::Done
            }
            Err(fault)
                if fault.scope == Scope::Operation
                    && fault.cause != ironweave_btl::Cause::Invalidated =>
            {
                WireStatus::Failed
            }
            Err(fault) => return self.lose_send(key.slot, fault),
        };
        let fin = wire::Fin::to_receiver(receiver, offset, length, round, status);
        self.control(peer, &fin, None);
        self.settle_send(key.slot);
    }

    /// A fragment, or a whole eager message, came back with an error: it may have arrived or not (seed 002 §3). Under a failing
    /// rail everything follows when the rail is closed. Alone, an eager message is sent again (the receiver drops
    /// copies by their number, seed 002 §5), a long one begins again.
    pub fn lose_send(&mut self, slot: u32, fault: Fault) {
        let key = self.sends.key(slot);
        let send = &mut self.sends[slot];
        let peer = send.peer;
        let state = self.peers.state(peer);
        if send.error.is_some() || send.state == SendState::Draining {
            return self.settle_send(slot);
        }
        let failing = state.is_losing_a_rail() || state.is_cut_off();
        if send.receiver != 0 {
            if failing {
                send.lost = true;
                return;
            }
            return self.restart(slot, &fault);
        }
        if failing && send.confirm != Confirm::No {
            return; // the journal has it
        }
        if failing {
            send.lost = true;
            return;
        }
        send.retries += 1;
        let tired = send.retries > RETRIES;
        if send.confirm == Confirm::No {
            if tired || send.held > 0 {
                return self.abandon_send(slot, fault);
            }
            send.state = SendState::Queued;
            self.peers.state(peer).pending.push_front(key);
        } else if let (true, Some(lane)) = (tired, state.lane) {
            // The rail takes it time after time and gives it back: no good to anybody.
            self.dropping.push((peer, lane));
        } else {
            self.peers.state(peer).journal().redo(key);
        }
        self.refresh(peer);
        self.peers.wake(peer);
    }

    /// Ends a send at both sides because data was lost.
    pub fn abandon_send(&mut self, slot: u32, fault: Fault) {
        let (peer, receiver) = (self.sends[slot].peer, self.sends[slot].receiver);
        if receiver != 0 {
            self.control(peer, &Nack::to_receiver(receiver, WireStatus::Lost), None);
        }
        self.fail_send(slot, PmlError::RailLost(fault));
    }

    /// Answers for a send that is complete, and frees it.
    pub fn test_send(&mut self, key: Key) -> Option<Completion> {
        let Some(send) = self.sends.get_mut(key) else {
            return Some(Completion {
                status: Status::EMPTY,
                result: Err(PmlError::InvalidRequest),
            });
        };
        if send.state != SendState::Complete {
            return None;
        }
        let result = send.error.take().map_or(Ok(()), Err);
        let status = if send.cancel == Cancel::Done { Status::CANCELLED } else { Status::EMPTY };
        self.free_send(key.slot);
        Some(Completion { status, result })
    }
}

impl PeerState {
    /// Whether no rail can carry anything for this peer any more.
    pub fn is_cut_off(&self) -> bool {
        self.life != Life::Alive
    }

    /// Whether a fault was told of a rail that is not closed yet.
    pub fn is_losing_a_rail(&self) -> bool {
        self.rails.iter().any(|r| r.state == RailState::Failing)
    }
}
