//! Messages arrive: admission in the order of the sender, then the match (law 6).
//!
//! A match frame names its communicator, epoch, source and number. What is for a communicator not made yet, or ahead of
//! its turn (it came over another rail than the one before it), waits in bounded stores; what came before
//! is dropped; what is for a life of the communicator that is over is answered, if anybody waits for an answer.

use super::comm::{Found, Parked};
use super::engine::{Early, Engine};
use super::link::Numbered;
use super::peer::{Life, StreamIn, StreamTarget};
use super::rendezvous::{Claim, Fragment};
use super::slots::{Key, NIL};
use super::unexpected::{Body, Place, Unexpected};
use super::wire::{self, Envelope, Frame, WireStatus};
use super::{RailId, UNCHECKED};
use ironweave_btl::{Cause, Fault, Header, Landing, Peer, RemoteKey, Token};

/// What admission says of a match frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// It may match now; the communicator's slot.
    Now(u32),
    /// It was kept.
    Later,
    /// It was dropped, and answered if anybody waits for an answer.
    Never,
}

/// The parts of a frame that starts a message.
fn envelope_of(frame: &Frame) -> Option<&Envelope> {
    match frame {
        Frame::Match(envelope)
        | Frame::Rndv { envelope, .. }
        | Frame::Stream { envelope, .. }
        | Frame::Rget { envelope, .. } => Some(envelope),
        _ => None,
    }
}

impl Engine {
    /// An eager message of one frame: the path that has to be short.
    #[inline(always)]
    pub fn arrive_match(
        &mut self,
        rail: RailId,
        from: Peer,
        envelope: &Envelope,
        header: &[u8],
        payload: &[u8],
    ) {
        let Some((at, comm)) = self.comms.named(envelope) else {
            return self.arrive(rail, from, Frame::Match(*envelope), header, payload);
        };
        let careful = !UNCHECKED && comm.careful;
        let Some(member) = comm.members.get_mut(envelope.source as usize) else {
            return self.malformed(from, "source rank");
        };
        if member.expected != envelope.seq || member.heard != rail || member.peer != from || careful
        {
            return self.arrive(rail, from, Frame::Match(*envelope), header, payload);
        }
        member.expected = member.expected.wrapping_add(1);
        let posted = comm.pop_posted(&mut self.recvs, envelope.source, envelope.tag);
        let Some((slot, recv)) = posted else {
            return self.arrive_unexpected(at, from, envelope, payload);
        };
        recv.matched_whole(envelope.source, envelope.tag, payload);
        if recv.detached {
            self.free_recv(slot);
        }
    }

    /// Keeps an eager message of one frame that nothing is posted for.
    #[inline(never)]
    fn arrive_unexpected(&mut self, comm: u32, from: Peer, envelope: &Envelope, payload: &[u8]) {
        let body = Body::Whole(self.pool.hold(payload, payload.len()));
        self.keep(comm, from, envelope, payload.len() as u64, body);
    }

    /// Any frame that starts a message.
    #[cold]
    pub fn arrive(
        &mut self,
        rail: RailId,
        from: Peer,
        frame: Frame,
        header: &[u8],
        payload: &[u8],
    ) {
        let Some(envelope) = envelope_of(&frame) else { return };
        if self.peers.get(from).is_some_and(|state| matches!(state.life, Life::Ended(_))) {
            self.stats.stale += 1;
            return;
        }
        let source = envelope.source;
        match self.admit(rail, from, &frame, envelope, header, payload) {
            Turn::Now(comm) => {
                self.start(comm, rail, from, frame, wire::confirms(header), payload);
                self.replay(comm, source);
            }
            Turn::Later => {
                self.pass_stream(rail, from, &frame, payload.len(), StreamTarget::Waiting);
            }
            Turn::Never => {
                self.pass_stream(rail, from, &frame, payload.len(), StreamTarget::Nowhere);
            }
        }
    }

    /// Whether it is this frame's turn.
    fn admit(
        &mut self,
        rail: RailId,
        from: Peer,
        frame: &Frame,
        envelope: &Envelope,
        header: &[u8],
        payload: &[u8],
    ) -> Turn {
        let slot = match self.comms.find(from, envelope) {
            Found::Here(slot) => slot,
            Found::NotYet => {
                if !self.make_room(from, payload.len()) {
                    return Turn::Never;
                }
                let (cid, header, payload) = (envelope.cid, Header::new(header), payload.to_vec());
                self.early.push(Early { rail, from, cid, header, payload });
                return Turn::Later;
            }
            Found::Stale => {
                self.stats.stale += 1;
                self.refuse(from, frame, self.comms.past_status(envelope));
                return Turn::Never;
            }
            Found::Impostor => {
                self.malformed(from, "source rank");
                return Turn::Never;
            }
        };
        let comm = self.comms.at(slot);
        let member = &mut comm.members[envelope.source as usize];
        let ahead = envelope.seq.wrapping_sub(member.expected);
        if ahead == 0 {
            member.expected = member.expected.wrapping_add(1);
            if member.heard != rail {
                member.heard = rail;
                self.peers.state(from).rail_mut(rail).carried = true;
            }
            return Turn::Now(slot);
        }
        if ahead >= 1 << 15 {
            self.stats.duplicates += 1;
            return Turn::Never;
        }
        let place = (envelope.source, envelope.seq);
        if comm.parked.contains_key(&place) {
            self.stats.duplicates += 1;
            return Turn::Never;
        }
        if !self.make_room(from, payload.len()) {
            return Turn::Never;
        }
        let parked = Parked { rail, header: Header::new(header), payload: payload.to_vec() };
        let comm = self.comms.at(slot);
        comm.parked.insert(place, parked);
        comm.watch();
        Turn::Later
    }

    /// Accounts for a frame that is to wait. `false` when the peer has no room left: it is reported, since its
    /// messages are lost.
    fn make_room(&mut self, from: Peer, bytes: usize) -> bool {
        let state = self.peers.state(from);
        if state.early_frames >= self.config.early_frames
            || state.early_bytes + bytes > self.config.early_bytes
        {
            self.stats.overflowed += 1;
            self.report(from, Cause::Exhausted("room for early messages"));
            return false;
        }
        state.early_frames += 1;
        state.early_bytes += bytes;
        self.stats.early += 1;
        self.charge_early(from);
        true
    }

    fn leave_room(&mut self, from: Peer, bytes: usize) {
        let state = self.peers.state(from);
        state.early_frames = state.early_frames.saturating_sub(1);
        state.early_bytes = state.early_bytes.saturating_sub(bytes);
        self.tell_empty(from);
    }

    /// The frames that wait for communicator `cid` come again, now that it is there.
    pub fn replay_early(&mut self, cid: u16) {
        if self.early.is_empty() {
            return;
        }
        let (again, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.early).into_iter().partition(|early| early.cid == cid);
        self.early = rest;
        for Early { rail, from, header, payload, .. } in again {
            self.leave_room(from, payload.len());
            self.replay_frame(rail, from, &header, &payload);
        }
    }

    /// The parked messages of `source` whose turn has come.
    fn replay(&mut self, comm: u32, source: u32) {
        loop {
            let Some(there) = self.comms.slots[comm].as_mut() else { return };
            if there.parked.is_empty() {
                return;
            }
            let turn = (source, there.members[source as usize].expected);
            let Some(parked) = there.parked.remove(&turn) else { return };
            there.watch();
            let from = there.members[source as usize].peer;
            self.arrive_parked(from, &parked);
        }
    }

    /// A parked frame arrives again.
    pub fn arrive_parked(&mut self, from: Peer, parked: &Parked) {
        self.leave_room(from, parked.payload.len());
        self.replay_frame(parked.rail, from, &parked.header, &parked.payload);
    }

    fn replay_frame(&mut self, rail: RailId, from: Peer, header: &Header, payload: &[u8]) {
        if let Ok(frame) = wire::decode(header.as_bytes(), payload.len()) {
            self.arrive(rail, from, frame, header.as_bytes(), payload);
        }
    }

    /// A message whose turn it is.
    fn start(
        &mut self,
        comm: u32,
        rail: RailId,
        from: Peer,
        frame: Frame,
        confirm: bool,
        payload: &[u8],
    ) {
        let Some(&envelope) = envelope_of(&frame) else { return };
        let cancelled = !self.withdrawn.is_empty() && self.forget_withdrawn(from, &frame);
        let there = self.comms.at(comm);
        let Envelope { source, tag, .. } = envelope;
        if there.members[source as usize].poisoned {
            self.stats.stale += 1;
            let nowhere = StreamTarget::Nowhere;
            self.refuse(from, &frame, WireStatus::Stale);
            return self.pass_stream(rail, from, &frame, payload.len(), nowhere);
        }
        if let Some(status) = there.interruption.status(tag) {
            // Seed 000, "Supporting the Revoke operation", case 4.
            self.refuse(from, &frame, status);
            let nowhere = StreamTarget::Nowhere;
            return self.pass_stream(rail, from, &frame, payload.len(), nowhere);
        }
        let slot = there.take_posted(&mut self.recvs, source, tag);
        let posted = |length| slot != NIL && self.recvs[slot].lands_whole(length);
        match frame {
            Frame::Rndv { length, .. } => self.on_announced(from, rail, length, posted(length)),
            Frame::Rget { length, .. } if slot != NIL => {
                self.on_announced(from, rail, length, posted(length));
            }
            _ => {}
        }
        if slot == NIL && cancelled {
            return self.refuse(from, &frame, WireStatus::Withdrawn);
        }
        let length = match frame {
            Frame::Rndv { length, .. }
            | Frame::Stream { length, .. }
            | Frame::Rget { length, .. } => length,
            _ => payload.len() as u64,
        };
        if slot == NIL && envelope.ready && matches!(frame, Frame::Rndv { .. } | Frame::Rget { .. })
        {
            // The sender broke its promise, and still waits: the message ends at both sides. Of a short one it cannot be told
            // any more; that is received like any other.
            return self.refuse(from, &frame, WireStatus::NotReady);
        }
        if slot == NIL {
            let body = match frame {
                Frame::Stream { .. } => Body::Stream(self.pool.hold(payload, length as usize)),
                Frame::Rndv { sender, .. } => {
                    let held = self.pool.hold(payload, payload.len());
                    Body::Rndv { held, sender, rail, confirm }
                }
                Frame::Rget { sender, .. } => match RemoteKey::new(payload) {
                    Some(key) => Body::Rget { key, sender, rail, confirm, round: self.round },
                    None => return self.malformed(from, "key length"),
                },
                _ => Body::Whole(self.pool.hold(payload, payload.len())),
            };
            let name = self.keep(comm, from, &envelope, length, body);
            if let Frame::Stream { stream, .. } = frame {
                let target = StreamTarget::Unexpected(name);
                self.open_stream(rail, from, stream, length, payload.len(), target);
            }
            return;
        }
        self.recvs[slot].matched(from, source, tag, length);
        match frame {
            Frame::Rndv { sender, .. } => {
                self.recvs[slot].take(0, payload);
                self.answer_rndv(slot, sender, rail, confirm);
            }
            Frame::Stream { stream, .. } => {
                self.recvs[slot].take(0, payload);
                let target = StreamTarget::Recv(self.recvs.key(slot));
                self.open_stream(rail, from, stream, length, payload.len(), target);
                self.settle_recv(slot);
            }
            Frame::Rget { sender, .. } => match RemoteKey::new(payload) {
                Some(key) => self.answer_rget(slot, sender, rail, key, confirm),
                None => {
                    self.malformed(from, "key length");
                    let cause = Cause::Malformed("key length");
                    self.fail_recv(slot, super::PmlError::Io(Fault::operation(from, cause)));
                }
            },
            _ => {
                self.recvs[slot].take(0, payload);
                self.settle_recv(slot);
            }
        }
    }

    /// Queues a message that nothing is posted for.
    fn keep(&mut self, comm: u32, from: Peer, envelope: &Envelope, length: u64, body: Body) -> Key {
        self.stats.unexpected += 1;
        let key = self.messages.take(|| Unexpected::VACANT);
        let message = &mut self.messages[key.slot];
        message.comm = self.comms.id(comm);
        (message.source, message.tag, message.peer) = (envelope.source, envelope.tag, from);
        (message.length, message.place) = (length, Place::Queued);
        message.body = body;
        self.comms.at(comm).keep(&mut self.messages, key.slot);
        self.charge(key.slot);
        key
    }

    /// Answers a message that will not be received, if its sender waits for an answer.
    pub fn refuse(&mut self, from: Peer, frame: &Frame, status: WireStatus) {
        if !self.withdrawn.is_empty() {
            self.forget_withdrawn(from, frame);
        }
        if let Frame::Rndv { sender, .. } | Frame::Rget { sender, .. } = *frame {
            self.nack_sender(from, sender, status);
        }
    }

    /// The sender cancels a message that it has announced: it is dropped, unless it has matched. It may still be on its way, over
    /// another rail.
    pub fn on_withdraw(&mut self, from: Peer, envelope: &Envelope, sender: u64) {
        let is_here = match self.comms.find(from, envelope) {
            Found::NotYet => false,
            Found::Here(slot) => {
                let comm = self.comms.at(slot);
                for message in comm.kept(&self.messages) {
                    let kept = &self.messages[message];
                    if kept.peer == from
                        && let Body::Rndv { sender: of, .. } | Body::Rget { sender: of, .. } =
                            kept.body
                        && of == sender
                    {
                        self.nack_sender(from, sender, WireStatus::Withdrawn);
                        return self.discard(message);
                    }
                }
                let expected = self.comms.at(slot).members[envelope.source as usize].expected;
                envelope.seq.wrapping_sub(expected) >= 1 << 15
            }
            // The announcement was, or will be, answered for itself.
            Found::Stale => true,
            Found::Impostor => return self.malformed(from, "source rank"),
        };
        if is_here || self.withdrawn.contains(&(from, sender)) {
            return; // it has matched, and is answered by its receive
        }
        if self.withdrawn.len() >= self.config.early_frames {
            return self.report(from, Cause::Exhausted("room for cancellations"));
        }
        self.withdrawn.push((from, sender));
    }

    /// Whether the message was cancelled before it came. Says so once.
    #[cold]
    fn forget_withdrawn(&mut self, from: Peer, frame: &Frame) -> bool {
        let (Frame::Rndv { sender, .. } | Frame::Rget { sender, .. }) = *frame else {
            return false;
        };
        let at = self.withdrawn.iter().position(|of| *of == (from, sender));
        at.map(|at| self.withdrawn.swap_remove(at)).is_some()
    }

    // Eager streams.

    fn open_stream(
        &mut self,
        rail: RailId,
        from: Peer,
        stream: u64,
        length: u64,
        came: usize,
        target: StreamTarget,
    ) {
        let offset = came as u64;
        let state = self.peers.state(from);
        let open = (offset < length).then_some(StreamIn { stream, rail, target, offset, length });
        let before = std::mem::replace(&mut state.stream_in, open);
        if before.is_some_and(|b| b.stream != stream || b.target != StreamTarget::Waiting) {
            self.malformed(from, "a stream inside a stream");
        }
        if open.is_none() {
            self.end_stream(target);
        }
    }

    /// If the frame opens a stream, sends its fragments where its message went.
    fn pass_stream(
        &mut self,
        rail: RailId,
        from: Peer,
        frame: &Frame,
        came: usize,
        target: StreamTarget,
    ) {
        if let Frame::Stream { stream, length, .. } = *frame {
            self.open_stream(rail, from, stream, length, came, target);
        }
    }

    /// Adds to the waiting frame that opened a stream, so that it can be replayed with what came since.
    fn extend_waiting(&mut self, from: Peer, stream: u64, more: &[u8]) {
        let opens = |header: &Header| {
            matches!(
                wire::decode(header.as_bytes(), 0),
                Ok(Frame::Stream { stream: other, .. }) if other == stream
            )
        };
        let early = self.early.iter_mut().filter(|early| early.from == from);
        let early = early.map(|early| (&early.header, &mut early.payload));
        let comms = self.comms.slots.iter_mut().flatten();
        let parked = comms.flat_map(|comm| {
            let members = &comm.members;
            let of = move |source: u32| members[source as usize].peer;
            comm.parked.iter_mut().filter(move |((source, _), _)| of(*source) == from)
        });
        let parked = parked.map(|(_, parked)| (&parked.header, &mut parked.payload));
        let found = early.chain(parked).find(|(header, _)| opens(header));
        let Some((_, payload)) = found else { return };
        payload.extend_from_slice(more);
        self.peers.state(from).early_bytes += more.len();
        self.charge_early(from);
    }

    pub fn on_stream_frag(
        &mut self,
        rail: RailId,
        from: Peer,
        stream: u64,
        offset: u64,
        payload: &[u8],
    ) {
        let state = self.peers.state(from);
        let Some(open) = &mut state.stream_in else {
            return self.malformed(from, "a fragment of no stream");
        };
        let end = offset + payload.len() as u64;
        if open.stream != stream || open.rail != rail || open.offset != offset || end > open.length
        {
            return self.malformed(from, "a fragment of another stream");
        }
        open.offset = end;
        let (target, last) = (open.target, end == open.length);
        if last {
            state.stream_in = None;
        }
        match target {
            StreamTarget::Recv(key) => {
                if let Some(recv) = self.recvs.get_mut(key) {
                    recv.take(offset, payload);
                    self.settle_recv(key.slot);
                }
            }
            StreamTarget::Unexpected(key) => {
                if let Some(Unexpected { body: Body::Stream(held), .. }) =
                    self.messages.get_mut(key)
                {
                    held.extend(payload);
                }
            }
            StreamTarget::Waiting => self.extend_waiting(from, stream, payload),
            StreamTarget::Nowhere => {}
        }
        if last {
            self.end_stream(target);
        }
    }

    /// All of a stream is here.
    fn end_stream(&mut self, target: StreamTarget) {
        if let StreamTarget::Unexpected(key) = target
            && let Some(message) = self.messages.get_mut(key)
        {
            message.body.finish_stream();
        }
    }

    // Landing: the rail has read a header and asks where the payload shall go.

    pub fn land(
        &mut self,
        rail: RailId,
        from: Peer,
        frame: Frame,
        number: Option<Numbered>,
        confirm: bool,
        payload_len: usize,
    ) -> Landing {
        let slot = match frame {
            Frame::Frag { receiver, offset, round } => {
                let frag = Fragment { receiver, offset, round, len: payload_len as u64 };
                let Claim::Booked(recv) = self.claim_range(from, &frag) else {
                    return Landing::Buffered; // `frame` will say why
                };
                let range = offset as usize..offset as usize + payload_len;
                return self.land_at(recv, range);
            }
            Frame::Match(envelope) => {
                let length = payload_len as u64;
                let journal = self.peers.state(from).journal.as_ref();
                let is_new = |Numbered { number, .. }| {
                    journal.is_none_or(|j| j.is_new(number) && j.half(number).is_none())
                };
                if !number.is_none_or(is_new) {
                    return Landing::Buffered;
                }
                let Some(slot) = self.land_first(rail, from, &envelope, payload_len, length) else {
                    self.on_too_early(from, rail, payload_len);
                    return Landing::Buffered;
                };
                self.on_timely(from, rail, payload_len);
                if let Some(Numbered { number, ack }) = number {
                    let key = self.recvs.key(slot);
                    if let Some(ack) = ack {
                        self.on_seen(from, ack);
                    }
                    self.peers.state(from).journal().begin_half(number, key, confirm);
                }
                slot
            }
            Frame::Rndv { envelope, length, sender }
                if number.is_none() && !self.caps[usize::from(rail.0)].put =>
            {
                let Some(slot) = self.land_first(rail, from, &envelope, payload_len, length) else {
                    return Landing::Buffered;
                };
                let posted = self.recvs[slot].lands_whole(length);
                self.on_announced(from, rail, length, posted);
                // The answer overtakes the first bytes: the sender need not stop after them.
                let recv = &mut self.recvs[slot];
                (recv.sender, recv.confirm) = (sender, confirm);
                let (from, want) = (recv.claimed, recv.want);
                recv.pieces.clear();
                recv.pieces.add(0..from);
                self.ask(slot, from, want - from);
                slot
            }
            _ => return Landing::Buffered,
        };
        self.land_at(slot, 0..payload_len)
    }

    /// Matches the first frame of a message of `length` bytes before its payload is here, if the message is in turn and a
    /// receive with room for that payload waits; everything else takes the way through `frame`.
    fn land_first(
        &mut self,
        rail: RailId,
        from: Peer,
        envelope: &Envelope,
        payload_len: usize,
        length: u64,
    ) -> Option<u32> {
        let Found::Here(comm) = self.comms.find(from, envelope) else { return None };
        let there = self.comms.at(comm);
        let member = &there.members[envelope.source as usize];
        if member.expected != envelope.seq || member.heard != rail || there.careful {
            return None;
        }
        let slot = there.find_posted(&self.recvs, envelope.source, envelope.tag);
        if slot == NIL
            || self.recvs[slot].buffer.capacity() < payload_len
            || self.recvs[slot].buffer.region(0..payload_len).is_none()
        {
            return None;
        }
        let member = &mut there.members[envelope.source as usize];
        member.expected = member.expected.wrapping_add(1);
        there.unpost(&mut self.recvs, slot);
        let recv = &mut self.recvs[slot];
        recv.matched(from, envelope.source, envelope.tag, length);
        recv.rail = rail;
        recv.claimed = payload_len as u64;
        Some(slot)
    }

    fn land_at(&mut self, slot: u32, range: std::ops::Range<usize>) -> Landing {
        let token = Token(self.recvs.key(slot).to_wire());
        let recv = &mut self.recvs[slot];
        match recv.buffer.region(range.clone()) {
            Some(region) => {
                recv.held += 1;
                Landing::Direct { region, token }
            }
            None => {
                recv.claimed -= range.len() as u64;
                recv.pieces.remove(&(range.start as u64..range.end as u64));
                Landing::Buffered
            }
        }
    }

    pub fn on_landed(
        &mut self,
        from: Peer,
        region: ironweave_btl::memory::RecvRegion,
        token: Token,
        outcome: Result<(), Fault>,
    ) {
        let key = wire::key(token.0);
        let Some(recv) = self.recvs.get_mut(key) else { return };
        recv.held -= 1;
        let length = region.len() as u64;
        let journal = self.peers.state(from).journal.as_ref();
        let half = if recv.sender == 0 { journal.and_then(|j| j.half_of(key)) } else { None };
        match (outcome, half) {
            (Ok(()), _) if recv.restarting => self.begin_again(key.slot),
            (Ok(()), half) => {
                // It may have come again meanwhile, over another rail.
                if recv.received < recv.want {
                    recv.received += length;
                }
                self.settle_recv(key.slot);
                if let Some(number) = half {
                    self.on_half_landed(from, number, length as usize);
                }
            }
            // It will come again.
            (Err(_), Some(_)) => self.settle_recv(key.slot),
            (Err(fault), None) => self.lose_recv(from, key.slot, fault),
        }
    }
}
