//! The state of the engine but for its rails, and the sink through which the rails report to it.
//!
//! Rails call the sink from inside `progress`, so nothing here sends: answers are noted in peers' outboxes and sent when
//! `progress` has returned from the rail ([`super::progress`]).

use super::channel::ControlMessage;
use super::comm::Comms;
use super::link::{unnumber, unnumber_match};
use super::peer::{Control, Life, PEERS_MAX, PeerState, Peers, RailCaps, RailState};
use super::persistent::Persistent;
use super::recv::{Rdmas, Recv};
use super::send::Send;
use super::slots::Slots;
use super::unexpected::{Pool, Unexpected};
use super::wire::{self, Frame};
use super::{Config, RailId};
use ironweave_btl::memory::RecvRegion;
use ironweave_btl::{
    Cause, Descriptor, Fault, Header, Landing, Peer, RemoteKey, RmaDescriptor, Sink, Token,
};
use std::collections::VecDeque;
use zerocopy::{Immutable, IntoBytes};

/// What happened so far that is worth counting.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Frames that broke the protocol; ignored.
    pub malformed: u64,
    /// Frames for requests, communicators or epochs that are over; ignored.
    pub stale: u64,
    /// Messages that had come before; ignored.
    pub duplicates: u64,
    /// Messages that came ahead of their turn or communicator, and waited.
    pub early: u64,
    /// Messages for which there was no room to wait; their peers were reported.
    pub overflowed: u64,
    /// Messages that no receive was posted for.
    pub unexpected: u64,
    /// Requests ended by a NACK from here.
    pub nacks_sent: u64,
    /// Long messages begun again because a rail was lost under them.
    pub restarts: u64,
    /// Rails to peers that came back.
    pub healed: u64,
    /// Times a peer was told to announce its messages, because too many were kept here.
    pub throttled: u64,
    /// Times a peer was told that it need not ask before long messages.
    pub unasked: u64,
}

/// What the engine holds now, for watchdogs and tests: nothing but posted receives and unexpected messages after all came to rest.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    /// Receives that are under way, or whose end nobody asked for.
    pub receives: usize,
    /// Sends, likewise.
    pub sends: usize,
    /// Messages that no receive has taken.
    pub unexpected: usize,
    /// Bytes kept because of them, but for messages to oneself.
    pub unexpected_bytes: usize,
    /// Reads and writes of peers' memory under way.
    pub accesses: usize,
    /// Frames kept because they may have to be sent again.
    pub unacknowledged: usize,
    /// Frames, sends, fragments and reads that wait for room.
    pub waiting: usize,
    /// Frames that wait for their turn, or for their communicator.
    pub early: usize,
}

/// A frame for a communicator that is not made here yet.
pub(super) struct Early {
    pub rail: RailId,
    pub from: Peer,
    pub cid: u16,
    pub header: Header,
    pub payload: Vec<u8>,
}

/// A put or get under way.
pub(super) struct Rma {
    pub owner: RmaOwner,
    pub offset: u64,
    pub length: u64,
}

impl Rma {
    pub const fn vacant() -> Self {
        Rma { owner: RmaOwner::None, offset: 0, length: 0 }
    }
}

/// Whose it is.
#[derive(Clone, Copy)]
pub(super) enum RmaOwner {
    Send(super::slots::Key),
    Recv(super::slots::Key),
    None,
}

pub(super) struct Engine {
    pub config: Config,
    pub caps: Vec<RailCaps>,
    pub comms: Comms,
    pub recvs: Slots<Recv>,
    pub sends: Slots<Send>,
    pub messages: Slots<Unexpected>,
    pub persistent: Slots<Persistent>,
    pub rmas: Slots<Rma>,
    pub rdmas: Rdmas,
    pub pool: Pool,
    /// Bytes of messages that nothing is posted for.
    pub kept: usize,
    /// Rounds of progress so far.
    pub round: u64,
    pub peers: Peers,
    /// Frames for communicators to come, in order.
    pub early: Vec<Early>,
    /// Messages that were cancelled before they came: whose, and by what token.
    pub withdrawn: Vec<(Peer, u64)>,
    /// Keys whose memory is to be closed to peers, before the owner is told of any completion.
    pub deregister: Vec<(RailId, RemoteKey)>,
    /// Keys of sources that were read to their end.
    pub retire: Vec<(RailId, RemoteKey)>,
    /// Peers to try on rails of lower exclusivity.
    pub reroute: Vec<Peer>,
    /// Rails to close after the upper layer's verdict.
    pub closing: Vec<Peer>,
    /// Rails that the other side holds for lost: to be closed here, too.
    pub dropping: Vec<(Peer, RailId)>,
    /// Rails that were lost and may be connected again.
    pub lost: Vec<(Peer, RailId)>,
    pub suspects: Vec<Fault>,
    /// Peers that have messages of which they are not to tell before they are asked.
    pub asking: Vec<Peer>,
    /// The round in which the first of them came to it.
    pub asking_since: u64,
    /// Messages of the control plane, not taken yet.
    pub controls: VecDeque<(Peer, ControlMessage)>,
    pub stats: Stats,
}

impl Engine {
    pub fn new(config: Config) -> Self {
        Engine {
            config,
            caps: Vec::new(),
            comms: Comms::new(),
            recvs: Slots::new(),
            sends: Slots::new(),
            messages: Slots::new(),
            persistent: Slots::new(),
            rmas: Slots::new(),
            rdmas: Rdmas::default(),
            pool: Pool::new(),
            kept: 0,
            round: 0,
            peers: Peers::new(),
            early: Vec::new(),
            withdrawn: Vec::new(),
            deregister: Vec::new(),
            retire: Vec::new(),
            reroute: Vec::new(),
            closing: Vec::new(),
            dropping: Vec::new(),
            lost: Vec::new(),
            suspects: Vec::new(),
            asking: Vec::new(),
            asking_since: 0,
            controls: VecDeque::new(),
            stats: Stats::default(),
        }
    }

    /// Whether there is something to do that only rails can.
    #[inline]
    pub fn has_work(&self) -> bool {
        !(self.peers.busy.is_empty()
            && self.deregister.is_empty()
            && self.retire.is_empty()
            && self.reroute.is_empty()
            && self.closing.is_empty()
            && self.dropping.is_empty())
    }

    pub fn usage(&self) -> Usage {
        let parked: usize = self.comms.iter().map(|(_, comm)| comm.parked.len()).sum();
        let mut usage = Usage {
            receives: self.recvs.used(),
            sends: self.sends.used(),
            unexpected: self.messages.used(),
            unexpected_bytes: self.kept(),
            accesses: self.rmas.used(),
            early: self.early.len() + parked,
            ..Usage::default()
        };
        for (_, peer) in self.peers.iter() {
            usage.unacknowledged += peer.journal.as_ref().map_or(0, |journal| journal.unseen());
            let waiting = [peer.outbox.len(), peer.pending.len(), peer.flows.len()];
            usage.waiting += waiting.iter().sum::<usize>() + peer.reads.len();
        }
        usage
    }

    /// The state of a peer after `refresh`.
    pub fn refresh(&mut self, peer: Peer) -> &mut PeerState {
        let fast = self.peers.state(peer).refresh(&self.caps);
        self.peers.set_fast(peer, fast);
        self.peers.state(peer)
    }

    /// Queues a control frame. There is nobody to tell where the peer was judged and its rails are closed.
    pub fn control<H: IntoBytes + Immutable>(
        &mut self,
        peer: Peer,
        header: &H,
        key: Option<RemoteKey>,
    ) {
        let header = Header::new(header.as_bytes());
        let state = self.peers.state(peer);
        if matches!(state.life, Life::Ended(_)) {
            return;
        }
        state.outbox.push_back(Control { header, key });
        self.peers.wake(peer);
    }

    /// A frame broke the protocol: it is ignored and counted, and the peer is reported once.
    #[cold]
    pub fn malformed(&mut self, from: Peer, what: &'static str) {
        self.stats.malformed += 1;
        self.report(from, Cause::Malformed(what));
    }

    /// Hands a peer's misbehaviour up, the first time.
    pub fn report(&mut self, from: Peer, cause: Cause) {
        if !std::mem::replace(&mut self.peers.state(from).reported, true) {
            let fault = Fault::peer(from, cause);
            tracing::warn!(%fault, "misbehaviour");
            self.suspects.push(fault);
        }
    }

    #[inline(always)]
    fn frame(&mut self, rail: RailId, from: Peer, header: &[u8], payload: &[u8]) {
        match wire::decode_match(header) {
            Some(envelope) => self.arrive_match(rail, from, &envelope, header, payload),
            None => self.frame_numbered(rail, from, header, payload),
        }
    }

    /// An eager message over a rail that can be lost, in its turn; or any other frame.
    #[inline(never)]
    fn frame_numbered(&mut self, rail: RailId, from: Peer, header: &[u8], payload: &[u8]) {
        match unnumber_match(header) {
            Some((base, number))
                if base.flags & wire::CONFIRM == 0 && self.on_next(from, number, payload.len()) =>
            {
                let envelope = wire::envelope(base);
                self.arrive_match(rail, from, &envelope, base.as_bytes(), payload);
            }
            _ => self.frame_other(rail, from, header, payload),
        }
    }

    #[inline(never)]
    pub fn frame_other(&mut self, rail: RailId, from: Peer, header: &[u8], payload: &[u8]) {
        if self.peers.get(from).is_some_and(|state| matches!(state.life, Life::Ended(_))) {
            self.stats.stale += 1;
            return;
        }
        let (header, number) = unnumber(header);
        match wire::decode(header, payload.len()) {
            Ok(frame) => {
                if let Some(number) = number
                    && !self.on_numbered(from, number, header, payload)
                {
                    return;
                }
                self.frame_rare(rail, from, frame, header, payload);
            }
            Err(what) => self.malformed(from, what),
        }
    }

    fn frame_rare(
        &mut self,
        rail: RailId,
        from: Peer,
        frame: Frame,
        header: &[u8],
        payload: &[u8],
    ) {
        match frame {
            Frame::Match(_) | Frame::Rndv { .. } | Frame::Stream { .. } | Frame::Rget { .. } => {
                self.arrive(rail, from, frame, header, payload);
            }
            Frame::Withdraw { envelope, sender } => self.on_withdraw(from, &envelope, sender),
            Frame::Frag { receiver, offset, round } => {
                self.on_frag(from, receiver, offset, round, payload);
            }
            Frame::StreamFrag { stream, offset } => {
                self.on_stream_frag(rail, from, stream, offset, payload);
            }
            Frame::Ack(asked) => self.on_ack(from, asked),
            Frame::Put(asked) => self.on_put(rail, from, asked, payload),
            Frame::ReadDone { sender, status } => self.on_read_done(from, sender, status),
            Frame::WriteDone { receiver, offset, length, round, status } => {
                self.on_write_done(from, receiver, offset, length, round, status);
            }
            Frame::NackSender { sender, status } => self.on_nack_sender(from, sender, status),
            Frame::NackReceiver { receiver, status } => {
                self.on_nack_receiver(from, receiver, status);
            }
            Frame::RestartNotify(dance) => self.on_restart_notify(from, dance),
            Frame::RecvError(dance) => self.on_recv_error(from, dance),
            Frame::RestartAck(asked) => self.on_restart_ack(from, asked),
            Frame::RestartNack(dance) => self.on_restart_nack(from, dance),
            Frame::Link(link) => self.on_link(rail, from, link),
            Frame::Split(piece) => self.on_split(rail, from, piece, payload),
            Frame::Control(piece) => self.on_control(rail, from, piece, payload),
        }
    }

    pub fn up(&mut self, rail: RailId, peer: Peer) {
        let state = self.peers.state(peer);
        state.known = true;
        let others = state
            .rails
            .iter()
            .filter(|r| r.state == RailState::Up)
            .map(|r| r.given / u64::from(self.caps[usize::from(r.rail.0)].bandwidth_mbs));
        // One that comes late gets its share from now on, not all until it has caught up.
        let level = others.min().unwrap_or(0);
        let row = state.rail_mut(rail);
        if row.state == RailState::Up {
            return; // told by the answer to `connect`, and by the rail
        }
        if row.state == RailState::Failing {
            return; // its device was lost meanwhile: `closed` follows
        }
        row.state = RailState::Up;
        row.fault = None;
        row.was_up = true;
        row.life += 1;
        row.their_life = 0;
        let doomed = std::mem::take(&mut row.doomed);
        row.hello = !self.caps[usize::from(rail.0)].lossless;
        self.stats.healed += u64::from(row.life > 1);
        row.given = level * u64::from(self.caps[usize::from(rail.0)].bandwidth_mbs);
        if matches!(state.life, Life::Closing(_) | Life::Ended(_)) {
            // It connected again by itself: it is told by the end of the rail that it was given up.
            self.dropping.push((peer, rail));
            return;
        }
        if state.life == Life::CutOff && !state.is_broken {
            state.life = Life::Alive;
        }
        if doomed {
            self.drop_later(rail, peer);
        }
        if self.refresh(peer).has_work() {
            self.peers.wake(peer);
        }
    }
}

/// Whether a transport may mean this: no job has more processes, and tables grow with the number.
#[inline]
const fn is_possible(peer: Peer) -> bool {
    peer.index() < PEERS_MAX
}

/// The sink of one rail.
pub(super) struct Port<'a> {
    pub engine: &'a mut Engine,
    pub rail: RailId,
}

impl Sink for Port<'_> {
    #[inline(always)]
    fn frame(&mut self, from: Peer, header: &[u8], payload: &[u8]) {
        if is_possible(from) {
            self.engine.frame(self.rail, from, header, payload);
        }
    }

    fn landing(&mut self, from: Peer, header: &[u8], payload_len: usize) -> Landing {
        let (header, number) = unnumber(header);
        match wire::decode(header, payload_len) {
            Ok(frame) if is_possible(from) => self.engine.land(
                self.rail,
                from,
                frame,
                number,
                wire::confirms(header),
                payload_len,
            ),
            _ => Landing::Buffered, // `frame` will refuse it
        }
    }

    fn landed(&mut self, from: Peer, region: RecvRegion, token: Token, outcome: Result<(), Fault>) {
        self.engine.on_landed(from, region, token, outcome);
    }

    fn completed(&mut self, descriptor: Descriptor, outcome: Result<(), Fault>) {
        self.engine.on_sent(descriptor, outcome);
    }

    fn rma_completed(&mut self, descriptor: RmaDescriptor, outcome: Result<(), Fault>) {
        self.engine.on_rma(&descriptor, outcome);
    }

    fn up(&mut self, peer: Peer) {
        if is_possible(peer) {
            self.engine.up(self.rail, peer);
        }
    }

    fn fault(&mut self, fault: Fault) {
        if fault.peer.is_none_or(is_possible) {
            self.engine.on_fault(self.rail, fault);
        }
    }

    fn closed(&mut self, peer: Peer) {
        if is_possible(peer) {
            self.engine.on_closed(self.rail, peer);
        }
    }
}
