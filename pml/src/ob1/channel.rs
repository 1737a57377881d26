//! The control channel: short messages of the control plane beside the data (blueprint, "Two planes"), so that revoke and
//! agreement depend neither on matching nor on room for data.
//!
//! Each direction between two processes is a stream of bytes in which messages follow each other, each behind its
//! length. A CONTROL frame carries a piece of the stream from an offset, how much of the other direction has arrived
//! (`ack`), and how far that may go on (`limit`). What is not acknowledged is kept, and sent again when the rail under
//! it is lost; what came before is dropped by its offset. So messages arrive in order and once, whatever rails they took.
//!
//! Bounds: a sender is at most [`WINDOW`] bytes ahead of what the receiver's owner has taken, so a receiver keeps at most
//! that much of each peer (and some 24 bytes for each message not taken). What a sender keeps is what its owner gave.
//! There is no timer: on a rail without order a piece that came too early is asked for again.
//! An ordered rail that cannot be lost while both processes live has delivered what it took: then nothing is kept, and a short message goes
//! out at once, without a stay in the queue.
//! Nothing here belongs to a communicator: revoke does not touch it. What is for a judged peer is dropped, and so is what comes from one
//! when its rails are closed; what they deliver while they are being closed is taken.

use super::engine::Engine;
use super::peer::{Life, PeerState};
use super::wire::{self, Control, Frame, PieceOf};
use super::{Ob1, PmlError, RailId};
use ironweave_btl::{Btl, Cause, Peer, Refused};
use smallvec::SmallVec;
use std::collections::VecDeque;
use zerocopy::IntoBytes;

/// Longest control message, in bytes.
pub const CONTROL_MAX: usize = 8 << 10;
/// Bytes of the length in front of each message.
const PREFIX: usize = 4;
/// How far a sender may be ahead of the receiver's owner, in bytes of the stream: four of the longest messages.
pub(super) const WINDOW: u64 = 4 * (PREFIX + CONTROL_MAX) as u64;
/// After so many bytes the other side is told of them.
const TELL: u64 = WINDOW / 2;
/// Messages up to this length, in bytes, may go out at once.
const AT_ONCE: usize = 92;

/// A message of the control plane. Short ones need no memory of their own.
pub type ControlMessage = SmallVec<[u8; 64]>;

/// Both directions with one peer. Made at first use.
#[derive(Default)]
pub(super) struct Channel {
    /// The stream out, from `acked` on.
    out: VecDeque<u8>,
    acked: u64,
    /// The next byte to send.
    next: u64,
    /// The first byte that was never sent.
    fresh: u64,
    /// The first byte that may not be sent yet, without the window that is there from the start.
    granted: u64,

    /// What came of the message that is not whole yet.
    partial: Vec<u8>,
    received: u64,
    /// Of `received`, in messages that the owner has taken.
    taken: u64,
    /// End of what came too early and was dropped.
    dropped: u64,
    /// What the other side was told of `received` and `taken`.
    told: (u64, u64),
    /// It is to be told, even if nothing else goes to it.
    tell: bool,
    /// And asked for what was dropped.
    again: bool,
    /// The stream in made no sense: nothing of it is believed any more.
    broken: bool,
    /// A frame of it came over a rail that cannot be lost.
    lossless: bool,
}

impl Channel {
    const fn limit(&self) -> u64 {
        self.granted + WINDOW
    }

    fn end(&self) -> u64 {
        self.acked + self.out.len() as u64
    }

    /// Whether something could be sent now.
    pub fn is_busy(&self) -> bool {
        self.tell || self.next < self.end().min(self.limit())
    }

    /// Bytes that were never given to a rail.
    pub fn unsent(&self) -> usize {
        (self.end() - self.fresh) as usize
    }

    /// Another rail carries it from now on: what may be lost goes out again, what the other side may have missed is told again.
    pub fn rewind(&mut self) {
        self.next = self.acked;
        self.tell |= self.received > 0;
    }

    /// Sends a short message past the queue; `false`: it has to go through it. For rails that cannot be lost.
    fn send_at_once<B: Btl>(&mut self, btl: &mut B, peer: Peer, message: &[u8]) -> bool {
        let length = PREFIX + message.len();
        let fits = message.len() <= AT_ONCE && self.next + length as u64 <= self.limit();
        if !fits || self.tell || !self.out.is_empty() {
            return false;
        }
        let mut bytes = [0; PREFIX + AT_ONCE];
        bytes[..PREFIX].copy_from_slice(&(message.len() as u32).to_le_bytes());
        bytes[PREFIX..length].copy_from_slice(message);
        let header = Control::new(self.piece());
        if btl.send_short(peer, header.as_bytes(), &bytes[..length]).is_err() {
            return false;
        }
        self.sent(length, true);
        true
    }

    /// What the next frame says.
    const fn piece(&self) -> PieceOf {
        PieceOf {
            offset: self.next,
            ack: self.received,
            limit: self.taken + WINDOW,
            again: self.again,
        }
    }

    /// A frame with the next `length` bytes of the stream is out, on a rail that cannot be lost or one that can.
    fn sent(&mut self, length: usize, lossless: bool) {
        self.next += length as u64;
        self.fresh = self.fresh.max(self.next);
        self.told = (self.received, self.taken);
        (self.tell, self.again) = (false, false);
        if lossless {
            let over = (self.next - self.acked) as usize;
            self.out.drain(..over.min(self.out.len()));
            self.acked = self.next;
        }
    }

    fn push(&mut self, message: &[u8]) {
        self.out.extend((message.len() as u32).to_le_bytes());
        self.out.extend(message);
    }

    /// Gives one frame to the rail, if there is anything to say.
    fn transmit<B: Btl>(&mut self, btl: &mut B, peer: Peer) -> Result<bool, Refused> {
        let until = self.end().min(self.limit());
        let longest = btl.caps().max_bcopy.min(CONTROL_MAX) as u64;
        let length = until.saturating_sub(self.next).min(longest) as usize;
        if length == 0 && !self.tell {
            return Ok(false);
        }
        let lossless = btl.caps().lossless && btl.caps().ordered;
        let header = Control::new(self.piece());
        let start = (self.next - self.acked) as usize;
        let (front, back) = self.out.as_slices();
        btl.send_bcopy(peer, header.as_bytes(), length, |at, into| {
            let from = start + at;
            let split = front.len().saturating_sub(from).min(into.len());
            let (left, right) = into.split_at_mut(split);
            left.copy_from_slice(&front[from.min(front.len())..][..split]);
            let from = (from + split).saturating_sub(front.len());
            right.copy_from_slice(&back[from..from + right.len()]);
        })?;
        self.sent(length, lossless);
        Ok(true)
    }

    /// What the other side says of our stream.
    fn answered(&mut self, piece: &PieceOf) -> Result<(), &'static str> {
        if piece.ack > self.fresh {
            return Err("acknowledged what was never sent");
        }
        if piece.ack > self.acked {
            self.out.drain(..(piece.ack - self.acked) as usize);
            self.acked = piece.ack;
            self.next = self.next.max(self.acked);
        }
        self.granted = self.granted.max(piece.limit.saturating_sub(WINDOW));
        if piece.again {
            self.next = self.acked;
        }
        Ok(())
    }

    /// Takes a piece of the stream in; `found` gets the messages that are whole with it.
    fn arrived(
        &mut self,
        offset: u64,
        mut bytes: &[u8],
        mut found: impl FnMut(ControlMessage),
    ) -> Result<(), &'static str> {
        let end = offset + bytes.len() as u64;
        if end > self.taken + WINDOW {
            return Err("more than was granted");
        }
        if offset > self.received {
            self.dropped = self.dropped.max(end);
            (self.tell, self.again) = (true, true);
            return Ok(());
        }
        if end <= self.received {
            return Ok(());
        }
        bytes = &bytes[(self.received - offset) as usize..];
        self.received = end;
        if self.dropped > end {
            (self.tell, self.again) = (true, true);
        }
        self.tell |= self.received - self.told.0 >= TELL;
        if self.partial.is_empty()
            && let Some((prefix, message)) = bytes.split_first_chunk::<PREFIX>()
            && u32::from_le_bytes(*prefix) as usize == message.len()
            && message.len() <= CONTROL_MAX
        {
            found(ControlMessage::from_slice(message)); // the usual piece: one message
            return Ok(());
        }
        self.partial.extend_from_slice(bytes);
        let mut rest = self.partial.as_slice();
        while let Some((prefix, after)) = rest.split_first_chunk::<PREFIX>() {
            let length = u32::from_le_bytes(*prefix) as usize;
            if length > CONTROL_MAX {
                return Err("length of a message");
            }
            let Some((message, after)) = after.split_at_checked(length) else { break };
            found(ControlMessage::from_slice(message));
            rest = after;
        }
        let used = self.partial.len() - rest.len();
        self.partial.drain(..used);
        Ok(())
    }

    /// Takes in a frame that brings the next message, whole and alone, and says nothing else that is news. Anything else stays as
    /// it was (`None`).
    fn arrived_alone<'a>(&mut self, header: &[u8], payload: &'a [u8]) -> Option<&'a [u8]> {
        let Ok(Frame::Control(piece)) = wire::decode(header, payload.len()) else { return None };
        let (prefix, message) = payload.split_first_chunk::<PREFIX>()?;
        let end = piece.offset + payload.len() as u64;
        let usual = piece.offset == self.received
            && !(piece.again || self.broken)
            && self.partial.is_empty()
            && self.out.is_empty()
            && u32::from_le_bytes(*prefix) as usize == message.len()
            && message.len() <= AT_ONCE
            && end <= self.taken + WINDOW;
        if !usual || self.answered(&piece).is_err() {
            return None;
        }
        self.received = end;
        self.tell |= self.received - self.told.0 >= TELL;
        self.took(message.len());
        Some(message)
    }

    fn took(&mut self, length: usize) {
        self.taken += (PREFIX + length) as u64;
        self.tell |= self.taken - self.told.1 >= TELL;
    }
}

impl PeerState {
    /// Whether control messages could be sent now.
    pub fn has_control(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.is_busy())
    }

    /// Gives control frames to the rail until there is nothing to say, or no room.
    pub fn transmit_control<B: Btl>(&mut self, btl: &mut B, peer: Peer) -> Result<usize, Refused> {
        let Some(channel) = &mut self.channel else { return Ok(0) };
        let mut done = 0;
        while channel.transmit(btl, peer)? {
            done += 1;
        }
        Ok(done)
    }

    const fn is_judged(&self) -> bool {
        matches!(self.life, Life::Closing(_) | Life::Ended(_))
    }
}

impl Engine {
    /// Frames that had come before the peer was judged are handed out while its rails are being closed.
    pub fn on_control(&mut self, rail: RailId, from: Peer, piece: PieceOf, payload: &[u8]) {
        let lossless = self.caps[usize::from(rail.0)].is_sure();
        let channel = self.peers.state(from).channel.get_or_insert_default();
        channel.lossless |= lossless;
        if channel.broken {
            return;
        }
        let found = |message| self.controls.push_back((from, message));
        let heard =
            channel.answered(&piece).and_then(|()| channel.arrived(piece.offset, payload, found));
        channel.broken = heard.is_err();
        let busy = channel.is_busy();
        if let Err(what) = heard {
            self.stats.malformed += 1;
            return self.report(from, Cause::Malformed(what));
        }
        if busy {
            self.peers.wake(from);
        }
    }
}

impl<B: Btl> Ob1<B> {
    /// Queues a message of the control plane. Never blocks. It arrives in order with the others for this peer and exactly
    /// once while both processes live, whatever rails are lost; to a judged peer it is dropped without a word.
    ///
    /// # Errors
    /// [`PmlError::TooLong`] beyond [`CONTROL_MAX`] bytes. [`PmlError::Unresolved`]: give the peer's addresses to
    /// [`add_peer`](Ob1::add_peer) and try again. Nothing was queued.
    pub fn send_control(&mut self, peer: Peer, bytes: &[u8]) -> Result<(), PmlError> {
        if bytes.len() > CONTROL_MAX {
            return Err(PmlError::TooLong { max: CONTROL_MAX });
        }
        let state = self.engine.peers.state(peer);
        if state.is_judged() {
            return Ok(());
        }
        if !state.known {
            return Err(PmlError::Unresolved(peer));
        }
        let channel = state.channel.get_or_insert_default();
        if let (Life::Alive, Some(lane), true) = (state.life, state.lane, state.outbox.is_empty())
            && self.engine.caps[usize::from(lane.0)].is_sure()
            && channel.send_at_once(&mut self.rails[usize::from(lane.0)], peer, bytes)
        {
            return Ok(());
        }
        channel.push(bytes);
        self.engine.refresh(peer);
        self.engine.peers.wake(peer);
        Ok(())
    }

    /// The next message of the control plane, and who sent it. Taking it gives its sender room for more.
    #[inline]
    pub fn take_control(&mut self) -> Option<(Peer, ControlMessage)> {
        if self.engine.controls.is_empty() {
            return None;
        }
        let (peer, message) = self.engine.controls.pop_front()?;
        if let Some(channel) = &mut self.engine.peers.state(peer).channel {
            channel.took(message.len());
            if channel.is_busy() {
                self.engine.peers.wake(peer);
            }
        }
        Some((peer, message))
    }

    /// Looks for the next control message of a peer, up to `turns` times more: if what comes next over its lane is one, short and
    /// alone, `take` gets it. `false`: nothing was done; [`progress`](Ob1::progress) takes whatever comes. For lanes that cannot
    /// be lost; nothing else is moved on meanwhile.
    #[inline]
    pub fn take_control_soon(&mut self, peer: Peer, turns: u32, take: impl FnOnce(&[u8])) -> bool {
        if self.engine.has_work() || self.has_control() {
            return false;
        }
        let state = self.engine.peers.state(peer);
        let (Life::Alive, Some(lane), Some(channel)) = (state.life, state.lane, &mut state.channel)
        else {
            return false;
        };
        let lane = usize::from(lane.0);
        let taken = self.engine.caps[lane].is_sure()
            && self.rails[lane].take_next(peer, turns, |header, payload| {
                let message = channel.arrived_alone(header, payload);
                message.map(take).is_some()
            });
        if taken && channel.is_busy() {
            self.engine.peers.wake(peer);
        }
        taken
    }

    /// Whether [`take_control_soon`](Ob1::take_control_soon) found nothing only because nothing of `peer` is here: another look may find
    /// its message. `false` over rails that cannot tell, and wherever messages have to come the general way.
    #[must_use]
    pub fn is_control_due(&self, peer: Peer) -> bool {
        let Some(state) = self.engine.peers.get(peer) else { return false };
        let (Life::Alive, Some(lane), Some(_)) = (state.life, state.lane, &state.channel) else {
            return false;
        };
        let lane = usize::from(lane.0);
        let ordinary = !self.engine.has_work() && !self.has_control();
        ordinary && self.engine.caps[lane].is_sure() && self.rails[lane].is_silent(peer)
    }

    /// Whether all control messages for a peer are where it receives them even if this process ends at once. That holds for those
    /// which a rail that cannot be lost has taken.
    #[inline]
    #[must_use]
    pub fn is_control_stored(&self, peer: Peer) -> bool {
        let channel = self.engine.peers.get(peer).and_then(|state| state.channel.as_deref());
        channel.is_none_or(|channel| channel.out.is_empty())
    }

    /// Whether control messages with a living peer go over a rail that cannot be lost, both ways and from now on.
    #[must_use]
    pub fn is_control_lossless(&self, peer: Peer) -> bool {
        self.engine.peers.get(peer).is_some_and(|state| {
            let lossless = |lane: RailId| self.engine.caps[usize::from(lane.0)].is_sure();
            state.lane.is_some_and(lossless)
                && state.channel.as_ref().is_some_and(|channel| channel.lossless)
        })
    }

    /// Whether [`take_control`](Ob1::take_control) has something to give.
    #[inline]
    #[must_use]
    pub fn has_control(&self) -> bool {
        !self.engine.controls.is_empty()
    }
}
