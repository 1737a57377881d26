//! Progress: rails are polled, then what waits is sent, by peer: protocol frames first and in order, then the control channel, then new
//! messages in order, then reads and fragments. Each call does a bounded amount of work.

use super::engine::{Engine, Port, Rma, RmaOwner};
use super::journal::{Matter, numbered};
use super::peer::{Life, PeerState, RailCaps, RailState};
use super::recv::{RecvState, Target};
use super::send::{Cancel, Confirm, Send, SendState, Write};
use super::slots::Key;
use super::unexpected::Held;
use super::wire::{self, Announce, Asked, Fin, Frag, Grant, Match, WireStatus, kinds};
use super::{Mode, Ob1, PmlError, RailId};
use ironweave_btl::copy::pack;
use ironweave_btl::{
    Btl, Descriptor, Header, Peer, Read, Refused, RemoteKey, RmaDescriptor, RmaKind, Token,
};
use zerocopy::IntoBytes;

/// Longest frame of a message that is packed, when more than one are needed, in bytes: the receiver unpacks one while the sender
/// packs the next. Measured with 64 KiB of blocks of 64 bytes.
const PACKED_PIECE: usize = 16 << 10;
/// Longest piece of one read or write, in bytes: what a transport may do in one go.
const RMA_PIECE: u64 = 1 << 20;

/// Where rails always report something, peers are asked what they have seen after so many rounds.
const ASK_ROUNDS: u64 = 64;

/// What came of an attempt to send something.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// It is out (or over).
    Done,
    /// No room: try again after progress.
    Full,
    /// Nothing to do until a rail reports something.
    Wait,
}

impl<B: Btl> Ob1<B> {
    /// Polls the rails, then sends what can be sent. Never blocks; returns how many things happened, 0 meaning idle.
    #[inline]
    pub fn progress(&mut self) -> usize {
        let mut reports = 0;
        self.engine.round += 1;
        for (rail, btl) in (0..).zip(&mut self.rails) {
            reports += btl.progress(&mut Port { engine: &mut self.engine, rail: RailId(rail) });
        }
        if !self.engine.asking.is_empty() {
            let long = self.engine.round - self.engine.asking_since >= ASK_ROUNDS;
            if reports == 0 || long {
                self.ask();
            }
        }
        if self.engine.has_work() {
            reports += self.pump();
        }
        reports
    }

    /// Sends what waits.
    #[cold]
    pub(super) fn pump(&mut self) -> usize {
        if !self.engine.dropping.is_empty() {
            self.drop_rails();
        }
        self.deregister();
        for peer in std::mem::take(&mut self.engine.reroute) {
            self.reroute(peer);
        }
        for peer in std::mem::take(&mut self.engine.closing) {
            self.finish_closing(peer);
        }
        let mut done = 0;
        let mut busy = std::mem::take(&mut self.scratch);
        std::mem::swap(&mut busy, &mut self.engine.peers.busy);
        for peer in busy.drain(..) {
            self.engine.peers.state(peer).busy = false;
            let (n, attempt) = self.transmit(peer);
            done += n;
            if attempt == Attempt::Full {
                self.engine.peers.wake(peer);
            }
        }
        self.scratch = busy;
        self.deregister();
        done
    }

    /// Closes memory to peers.
    pub(super) fn deregister(&mut self) {
        for (rail, key) in self.engine.deregister.drain(..) {
            self.rails[usize::from(rail.0)].deregister(&key);
        }
        for (rail, key) in self.engine.retire.drain(..) {
            self.rails[usize::from(rail.0)].retire(&key);
        }
    }

    /// Sends what waits for one peer, in order of urgency.
    fn transmit(&mut self, peer: Peer) -> (usize, Attempt) {
        let mut done = 0;
        let state = self.engine.peers.state(peer);
        if matches!(state.life, Life::Closing(_) | Life::Ended(_)) {
            return (0, Attempt::Wait);
        }
        let Some(lane) = state.lane else { return (0, Attempt::Wait) };
        if state.rails.iter().any(|row| row.hello) {
            self.introduce(peer);
        }
        match self.resend(peer, lane) {
            Ok(frames) => done += frames,
            Err(refused) => return (done, waiting(refused)),
        }
        match self.transmit_protocol(peer, lane) {
            Ok(frames) => done += frames,
            Err(refused) => return (done, waiting(refused)),
        }
        match self.tell_seen(peer, lane) {
            Ok(frames) => done += frames,
            Err(refused) => return (done, waiting(refused)),
        }
        let state = self.engine.peers.state(peer);
        let btl = &mut self.rails[usize::from(lane.0)];
        if state.has_control() {
            match state.transmit_control(btl, peer) {
                Ok(frames) => done += frames,
                Err(refused) => return (done, waiting(refused)),
            }
            self.engine.refresh(peer);
        }
        while let Some(&key) = self.engine.peers.state(peer).pending.front() {
            let attempt = self.launch(key, lane);
            if attempt != Attempt::Done {
                return (done, attempt);
            }
            done += 1;
            self.engine.peers.state(peer).pending.pop_front();
            self.engine.refresh(peer);
        }
        let mut outcome = Attempt::Done;
        for _ in 0..self.engine.peers.state(peer).reads.len() {
            let Some(key) = self.engine.peers.state(peer).reads.pop_front() else { break };
            done += 1;
            if self.open_memory(key) == Attempt::Full {
                self.engine.peers.state(peer).reads.push_front(key);
                outcome = Attempt::Full;
                break;
            }
        }
        // What was read at once is to be told at once.
        match self.transmit_protocol(peer, lane) {
            Ok(frames) => done += frames,
            Err(refused) => return (done, waiting(refused)),
        }
        let mut budget = self.engine.config.burst;
        for _ in 0..self.engine.peers.state(peer).flows.len() {
            let Some(key) = self.engine.peers.state(peer).flows.pop_front() else { break };
            let before = budget;
            let attempt = self.stream_out(key, &mut budget);
            done += before - budget;
            if attempt == Attempt::Done {
                continue;
            }
            // The next call goes on with the next message: no long one starves another. Or it waits for a rail.
            self.engine.peers.state(peer).flows.push_back(key);
            if attempt == Attempt::Full {
                outcome = Attempt::Full;
                if budget == 0 {
                    break;
                }
            }
        }
        match self.ask_seen(peer, lane) {
            Ok(frames) => done += frames,
            Err(refused) => return (done, waiting(refused)),
        }
        let state = self.engine.peers.state(peer);
        let again = state.has_journal_work() || state.rails.iter().any(|row| row.hello);
        if !state.outbox.is_empty() || state.has_control() || again {
            outcome = Attempt::Full;
        }
        (done, outcome)
    }

    /// Sends protocol frames, in order: how many.
    fn transmit_protocol(&mut self, peer: Peer, lane: RailId) -> Result<usize, Refused> {
        let lossy = !self.engine.caps[usize::from(lane.0)].lossless;
        let state = self.engine.peers.state(peer);
        let btl = &mut self.rails[usize::from(lane.0)];
        let mut done = 0;
        while let Some(control) = state.outbox.front() {
            let (base, key) = (control.header.as_bytes(), control.key.as_ref());
            let payload = key.map_or(&[][..], |key| key.as_bytes());
            let sent = if lossy {
                let journal = state.journal.get_or_insert_default();
                let header = numbered(base, journal.number());
                let sent = send_small(btl, peer, header.as_bytes(), payload);
                sent.map(|()| journal.keep(base, Matter::Copy(Held::of_key(key))))
            } else {
                send_small(btl, peer, base, payload)
            };
            sent?;
            state.outbox.pop_front();
            done += 1;
        }
        Ok(done)
    }

    /// Sends the first frame of a message (or goes on with its eager stream).
    pub(super) fn launch(&mut self, key: Key, lane: RailId) -> Attempt {
        let engine = &mut self.engine;
        let Some(send) = engine.sends.get_mut(key) else { return Attempt::Done };
        let (caps, btl) = (engine.caps[usize::from(lane.0)], &mut self.rails[usize::from(lane.0)]);
        let (peer, length) = (send.peer, send.length as usize);
        match send.state {
            SendState::Queued => {}
            SendState::Streaming { offset, stream, rail } => {
                let btl = &mut self.rails[usize::from(rail.0)];
                let chunk = stream_chunk(send, &caps);
                let attempt = continue_stream(btl, send, offset, stream, rail, chunk);
                return engine.launched(key.slot, attempt);
            }
            _ => return Attempt::Done,
        }
        let state = engine.peers.state(peer);
        let lossy = !caps.lossless;
        if lossy && !state.journal().is_ready() {
            return Attempt::Wait; // the peer has to say first what it has seen
        }
        send.lossy = state.is_lossy(&engine.caps);
        // What the header of a frame that can be lost ends with.
        let number = |header: &[u8], state: &mut PeerState| {
            if lossy { numbered(header, state.journal().number()) } else { Header::new(header) }
        };
        let announce = state.room.announce;
        let limit = state.eager_limit(&caps);
        // What could go without asking may be better read, what could be read better sent.
        let doubtful = engine.config.rdma && caps.get && length >= caps.read_from;
        let unasked = length <= limit && send.mode != Mode::Synchronous && !announce;
        let read = !doubtful || send.source.is_some() || btl.is_read(peer, length, unasked);
        let eager = unasked && !(doubtful && read);
        let mut small = Match::new(kinds::MATCH, send.envelope);
        if eager
            && length <= caps.max_zcopy
            && length >= caps.zcopy_from
            && let Some(payload) = send.payload.regions(0..length)
        {
            let token = Token(key.to_wire());
            let copied = lossy && state.journal().is_quiet(length);
            let told = !copied && state.journal().is_told_at_once(length, caps.ordered);
            small.flags |= if lossy && told { wire::CONFIRM } else { 0 };
            let header = number(small.as_bytes(), state);
            return match btl.send_zcopy(Descriptor { peer, header, payload, token }) {
                Ok(()) => {
                    if copied {
                        send.confirm = Confirm::Kept;
                        let held = match send.payload.as_slice() {
                            Some(bytes) => engine.pool.hold(bytes, length),
                            None => {
                                engine.pool.hold_with(length, |into| send.payload.pack(0, into))
                            }
                        };
                        state.journal().keep(small.as_bytes(), Matter::CopyOf { key, held });
                    } else if lossy {
                        send.confirm = Confirm::Due;
                        let matter = Matter::Send { key, bytes: length };
                        state.journal().keep(small.as_bytes(), matter);
                    }
                    send.held += 1;
                    send.rails_used |= 1 << (lane.0 & 63);
                    (send.want, send.state) = (Some(send.length), SendState::Flowing);
                    if lossy && !copied && !told {
                        engine.ask_later(peer);
                    }
                    Attempt::Done
                }
                Err((refused, _)) => engine.refused(key.slot, refused),
            };
        }
        // Packing takes as long as unpacking: both at a time, where a message can go in several frames without an answer.
        let streams = eager && !lossy && caps.ordered && send.length <= wire::STREAM_MAX;
        let packed = streams && length > PACKED_PIECE && send.payload.is_packed();
        if eager && length <= caps.max_bcopy && !packed {
            let payload = &send.payload;
            let pack = |offset, piece: &mut [u8]| payload.pack(offset, piece);
            let header = number(small.as_bytes(), state);
            let sent = match payload.as_slice() {
                Some(bytes) if header.as_bytes().len() + length <= caps.max_short => {
                    btl.send_short(peer, header.as_bytes(), bytes)
                }
                _ => btl.send_bcopy(peer, header.as_bytes(), length, pack),
            };
            if sent.is_ok() {
                if lossy {
                    let held = engine.pool.hold_with(length, |into| payload.pack(0, into));
                    state.journal().keep(small.as_bytes(), Matter::Copy(held));
                }
                (send.sent, send.want) = (send.length, Some(send.length));
            }
            return engine.launched(key.slot, sent.map_or_else(waiting_or_over, |()| Ok(())));
        }
        if streams {
            let stream = state.next_stream;
            state.next_stream += 1;
            let header = Announce::new(kinds::STREAM, send.envelope, send.length, stream);
            let chunk = stream_chunk(send, &caps);
            let (payload, first) = (&send.payload, chunk.min(length));
            let pack = |offset, piece: &mut [u8]| payload.pack(offset, piece);
            if let Err(refused) = btl.send_bcopy(peer, header.as_bytes(), first, pack) {
                return engine.launched(key.slot, waiting_or_over(refused));
            }
            let attempt = continue_stream(btl, send, first as u64, stream, lane, chunk);
            return engine.launched(key.slot, attempt);
        }
        // Registered already, when the rail had no room for the offer.
        if let Some(source) = send.source.take_if(|(rail, _)| *rail != lane) {
            engine.deregister.push(source);
        }
        if engine.config.rdma
            && caps.get
            && read
            && length > 0
            && let Some(remote) = registered(btl, send)
        {
            send.source = Some((lane, remote));
            let mut base = Announce::new(kinds::RGET, send.envelope, send.length, key.to_wire());
            base.matching.flags |= if send.lossy { wire::CONFIRM } else { 0 };
            let header = number(base.as_bytes(), state);
            return match send_small(btl, peer, header.as_bytes(), remote.as_bytes()) {
                Ok(()) => {
                    if lossy {
                        let matter = Matter::Offer { key, remote, rail: lane };
                        state.journal().keep(base.as_bytes(), matter);
                    }
                    send.offered = true;
                    send.state = SendState::Announced;
                    if send.cancel == Cancel::Asked {
                        engine.withdraw(key);
                    }
                    Attempt::Done
                }
                Err(refused) => engine.refused(key.slot, refused),
            };
        }
        let first = match length {
            _ if announce => 0,
            // Synchronous: the answer is waited for in any case.
            _ if length <= limit.min(caps.max_bcopy) => length,
            _ => length.min(caps.rndv_eager_limit),
        };
        let mut base = Announce::new(kinds::RNDV, send.envelope, send.length, key.to_wire());
        base.matching.flags |= if send.lossy { wire::CONFIRM } else { 0 };
        let header = number(base.as_bytes(), state);
        let payload = &send.payload;
        let pack = |offset, piece: &mut [u8]| payload.pack(offset, piece);
        match btl.send_bcopy(peer, header.as_bytes(), first, pack) {
            Ok(()) => {
                if lossy {
                    state.journal().keep(base.as_bytes(), Matter::Send { key, bytes: first });
                }
                send.sent = first as u64;
                send.state = SendState::Announced;
                if send.cancel == Cancel::Asked {
                    engine.withdraw(key);
                }
                Attempt::Done
            }
            Err(refused) => engine.refused(key.slot, refused),
        }
    }

    /// Begins reads of a peer's memory, or opens ours to its writes.
    fn open_memory(&mut self, key: Key) -> Attempt {
        let engine = &mut self.engine;
        loop {
            let Some(recv) = engine.recvs.get_mut(key) else { return Attempt::Done };
            let (peer, rail, want) = (recv.peer, recv.rail, recv.want);
            let Some(rdma) = &mut recv.rdma else { return Attempt::Done };
            if recv.state != RecvState::Matched
                || recv.error.is_some()
                || recv.restarting
                || rdma.refused
                || rdma.next >= want
                || recv.held >= engine.config.depth
            {
                return Attempt::Done;
            }
            let btl = &mut self.rails[usize::from(rail.0)];
            let offset = rdma.next;
            let length = (want - offset).min(RMA_PIECE);
            let range = offset as usize..(offset + length) as usize;
            let region = recv.buffer.region(range);
            let Some(region) = region else { return engine.no_memory(key, offset) };
            if let Some(remote) = rdma.source {
                let owner = RmaOwner::Recv(key);
                let token = Token(engine.rmas.insert(Rma { owner, offset, length }).to_wire());
                let kind = RmaKind::Get(region);
                let get = RmaDescriptor { peer, kind, remote, remote_offset: offset, token };
                let begun = match btl.read_now(&get) {
                    Read::Over(outcome) => {
                        engine.rmas.remove(wire::key(token.0).slot, Rma::vacant());
                        rdma.next += length;
                        recv.claimed += length;
                        match outcome {
                            Ok(()) => recv.received += length,
                            Err(_) => rdma.refused = true,
                        }
                        engine.after_read(key.slot);
                        return Attempt::Done;
                    }
                    Read::Begun => Ok(()),
                    Read::Left => btl.rma(get),
                };
                match begun {
                    Ok(()) => {
                        rdma.next += length;
                        recv.claimed += length;
                        recv.held += 1;
                    }
                    Err((refused, _)) => {
                        engine.rmas.remove(wire::key(token.0).slot, Rma::vacant());
                        if refused == Refused::NoRoom {
                            return Attempt::Full;
                        }
                        // Never possible, or the rail is lost: fragments.
                        rdma.refused = true;
                        engine.after_read(key.slot);
                        return Attempt::Done;
                    }
                }
            } else {
                let state = engine.peers.state(peer);
                let row = state.rail(rail);
                // The sender is to write over its own end of this rail.
                let theirs = match row {
                    Some(row) if row.their_life != 0 => Some(row.theirs.wrapping_add(1)),
                    _ if state.lane == Some(rail) => Some(0),
                    _ => None,
                };
                let (Some(theirs), true) = (theirs, row.is_some_and(|r| r.state == RailState::Up))
                else {
                    return engine.no_memory(key, offset);
                };
                match btl.register_target(&region) {
                    Ok(remote) => {
                        rdma.next += length;
                        rdma.targets.push(Target {
                            offset,
                            length,
                            rail,
                            key: remote,
                            _region: region,
                        });
                        recv.held += 1;
                        recv.asked = true;
                        let asked = Asked {
                            sender: recv.sender,
                            receiver: key.to_wire(),
                            offset,
                            length,
                            want,
                            round: recv.round,
                            rail: theirs,
                            unread: false,
                        };
                        engine.control(peer, &Grant::new(kinds::PUT, asked), Some(remote));
                    }
                    Err(_) => return engine.no_memory(key, offset),
                }
            }
        }
    }

    /// Gives fragments and writes of one message to the rails.
    fn stream_out(&mut self, key: Key, budget: &mut usize) -> Attempt {
        let engine = &mut self.engine;
        loop {
            let Some(send) = engine.sends.get_mut(key) else { return Attempt::Done };
            if send.state != SendState::Flowing {
                return Attempt::Done;
            }
            if *budget == 0 {
                return Attempt::Full;
            }
            let (peer, receiver, round) = (send.peer, send.receiver, send.round);
            let confirmed = send.confirm == Confirm::Due;
            if let Some(write) = send.writes.pop() {
                let attempt = begin_write(&mut self.rails, &mut engine.rmas, send, key, write);
                match attempt {
                    Ok(()) => *budget -= 1,
                    Err(None) => return Attempt::Full,
                    Err(Some((offset, length))) => {
                        let status = WireStatus::Failed;
                        let fin = Fin::to_receiver(receiver, offset, length, round, status);
                        engine.control(peer, &fin, None);
                    }
                }
                continue;
            }
            let Some(range) = send.ranges.first().cloned() else {
                engine.settle_send(key.slot);
                return Attempt::Done;
            };
            let order = engine.peers.state(peer).stripe(&engine.caps, confirmed);
            let mut outcome = Attempt::Wait;
            for rail in order {
                let caps = &engine.caps[usize::from(rail.0)];
                let btl = &mut self.rails[usize::from(rail.0)];
                let header = Frag::new(receiver, range.start, round);
                let zcopy =
                    (range.end - range.start).min(caps.fragment as u64).min(caps.max_zcopy as u64);
                let place = range.start as usize..(range.start + zcopy) as usize;
                let regions = if zcopy > 0 { send.payload.regions(place) } else { None };
                let length = if let Some(payload) = regions {
                    if send.held >= engine.config.depth {
                        continue; // a completion will come, and go on here
                    }
                    let (header, token) = (Header::new(header.as_bytes()), Token(key.to_wire()));
                    match btl.send_zcopy(Descriptor { peer, header, payload, token }) {
                        Ok(()) => send.held += 1,
                        Err((refused, _)) => {
                            outcome = most_urgent(outcome, waiting(refused));
                            continue;
                        }
                    }
                    zcopy
                } else {
                    let fits = caps.fragment.min(caps.max_bcopy) as u64;
                    let length = (range.end - range.start).min(fits);
                    let payload = &send.payload;
                    let base = range.start as usize;
                    let pack = |offset, piece: &mut [u8]| payload.pack(base + offset, piece);
                    if let Err(refused) =
                        btl.send_bcopy(peer, header.as_bytes(), length as usize, pack)
                    {
                        outcome = most_urgent(outcome, waiting(refused));
                        continue;
                    }
                    send.sent += length;
                    length
                };
                send.rails_used |= 1 << (rail.0 & 63);
                send.ranges[0].start += length;
                engine.peers.state(peer).given(rail, length);
                outcome = Attempt::Done;
                break;
            }
            match outcome {
                Attempt::Done => *budget -= 1,
                other => return other,
            }
            if send.ranges[0].is_empty() {
                send.ranges.remove(0);
            }
        }
    }
}

/// A frame that fits the short tier of most rails, and the copied tier of all.
fn send_small<B: Btl>(
    btl: &mut B,
    peer: Peer,
    header: &[u8],
    payload: &[u8],
) -> Result<(), Refused> {
    if header.len() + payload.len() <= btl.caps().max_short {
        return btl.send_short(peer, header, payload);
    }
    let copy = |offset: usize, piece: &mut [u8]| {
        pack(piece, &payload[offset..offset + piece.len()]);
    };
    btl.send_bcopy(peer, header, payload.len(), copy)
}

/// The longest frame of an eager stream.
fn stream_chunk(send: &Send, caps: &RailCaps) -> usize {
    let most = if send.payload.is_packed() { PACKED_PIECE } else { usize::MAX };
    caps.fragment.min(caps.max_bcopy).min(most)
}

/// Sends the rest of an eager stream, as far as there is room.
fn continue_stream<B: Btl>(
    btl: &mut B,
    send: &mut Send,
    mut offset: u64,
    stream: u64,
    rail: RailId,
    chunk: usize,
) -> Result<(), Result<Attempt, PmlError>> {
    while offset < send.length {
        let length = (send.length - offset).min(chunk as u64);
        let header = Frag::of_stream(stream, offset);
        let (payload, base) = (&send.payload, offset as usize);
        let pack = |offset, piece: &mut [u8]| payload.pack(base + offset, piece);
        if let Err(refused) = btl.send_bcopy(send.peer, header.as_bytes(), length as usize, pack) {
            send.state = SendState::Streaming { offset, stream, rail };
            return waiting_or_over(refused);
        }
        offset += length;
    }
    (send.sent, send.want) = (send.length, Some(send.length));
    Ok(())
}

/// Begins one write. `Err(Some)`: never possible, the receiver is to be told; `Err(None)`: later.
fn begin_write<B: Btl>(
    rails: &mut [B],
    rmas: &mut super::slots::Slots<Rma>,
    send: &mut Send,
    key: Key,
    write: Write,
) -> Result<(), Option<(u64, u64)>> {
    let Write { rail, key: remote, offset, length } = write;
    let Some(region) = send.payload.whole() else { return Err(Some((offset, length))) };
    let region = region.part(offset as usize..(offset + length) as usize);
    let rma = Rma { owner: RmaOwner::Send(key), offset, length };
    let token = Token(rmas.insert(rma).to_wire());
    let kind = RmaKind::Put(region);
    let descriptor = RmaDescriptor { peer: send.peer, kind, remote, remote_offset: 0, token };
    match rails[usize::from(rail.0)].rma(descriptor) {
        Ok(()) => {
            send.held += 1;
            send.rails_used |= 1 << (rail.0 & 63);
            Ok(())
        }
        Err((refused, _)) => {
            rmas.remove(wire::key(token.0).slot, Rma::vacant());
            match refused {
                Refused::NoRoom => {
                    send.writes.push(write);
                    Err(None)
                }
                _ => Err(Some((offset, length))),
            }
        }
    }
}

/// What to do about a refusal: only want of room is worth another call by itself (law 1: nothing loops for a dead peer).
const fn waiting(refused: Refused) -> Attempt {
    match refused {
        Refused::NoRoom => Attempt::Full,
        _ => Attempt::Wait,
    }
}

/// The key of a message's memory on `btl`, which has nothing of it but what an attempt before this has registered.
fn registered<B: Btl>(btl: &mut B, send: &Send) -> Option<RemoteKey> {
    if let Some((_, key)) = send.source {
        return Some(key);
    }
    let region = send.payload.whole()?;
    btl.register_source(send.peer, &region).ok()
}

fn waiting_or_over(refused: Refused) -> Result<(), Result<Attempt, PmlError>> {
    Err(match refused {
        Refused::NoRoom => Ok(Attempt::Full),
        Refused::Connecting | Refused::Closed => Ok(Attempt::Wait),
        Refused::TooLong { .. } => Err(PmlError::Exhausted("room in one frame")),
        Refused::Unsupported => Err(PmlError::Exhausted("ways to send")),
    })
}

fn most_urgent(a: Attempt, b: Attempt) -> Attempt {
    if a == Attempt::Full || b == Attempt::Full { Attempt::Full } else { b }
}

impl Engine {
    /// After an attempt to send an eager message.
    fn launched(&mut self, slot: u32, sent: Result<(), Result<Attempt, PmlError>>) -> Attempt {
        match sent {
            Ok(()) => {
                self.settle_send(slot);
                Attempt::Done
            }
            Err(Ok(attempt)) => attempt,
            Err(Err(error)) => {
                self.fail_send(slot, error);
                Attempt::Done
            }
        }
    }

    fn refused(&mut self, slot: u32, refused: Refused) -> Attempt {
        self.launched(slot, waiting_or_over(refused))
    }

    /// The rest of a receive from `offset` on cannot be written by the peer: fragments.
    fn no_memory(&mut self, key: Key, offset: u64) -> Attempt {
        let recv = &mut self.recvs[key.slot];
        let want = recv.want;
        if let Some(rdma) = &mut recv.rdma {
            rdma.next = want;
            if rdma.source.is_some() {
                rdma.refused = true;
                self.after_read(key.slot);
                return Attempt::Done;
            }
        }
        self.ask(key.slot, offset, want - offset);
        Attempt::Done
    }
}
