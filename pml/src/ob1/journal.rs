//! The journal: what went to a peer over rails that can be lost, kept until it has arrived (law 6 across a failover).
//!
//! Frames that start a message or answer one carry a number in their direction. The other side drops what it has seen,
//! and says with each numbered frame of its own, or with a SEEN when there is none for a while, how far it has come. When
//! the rail under them is lost, everything that is not acknowledged goes out again on the next one, in order, under the same
//! numbers: as it was, or in pieces where that rail's frames are shorter. So a frame arrives once, whatever
//! happens to rails, and whether the sender's error came before or after it had arrived (seed 002 §3).
//!
//! Fragments of long messages and remote access are not numbered: they are begun again as a whole (`failover`).
//!
//! Bounds: a sender keeps copies of at most [`BYTES_MAX`] in at most [`FRAMES_MAX`] new messages for each peer, and at most [`LENT_MAX`]
//! of what stays in its senders' buffers is under way, then new ones wait; answers are bounded by the requests they are for. A
//! receiver keeps numbers ahead of their turn, at most [`AHEAD_MAX`], and one frame in pieces.

use super::engine::Engine;
use super::link::{Link, LinkHeader, Number, Numbered, Piece, SplitHeader};
use super::peer::{PeerState, Peers};
use super::ranges::{Added, Ranges};
use super::send::{Confirm, Send, SendState};
use super::slots::{Key, Slots};
use super::unexpected::{Held, Pool};
use super::wire::{Announce, CONFIRM, Match, kinds};
use super::{Ob1, RailId};
use ironweave_btl::{Btl, Header, Peer, Refused, RemoteKey};
use smallvec::SmallVec;
use std::collections::{BTreeSet, VecDeque};
use zerocopy::{FromBytes, IntoBytes};

/// New messages that may be on their way to one peer unacknowledged.
const FRAMES_MAX: usize = 1024;
/// Bytes of them that are kept as copies.
const BYTES_MAX: usize = 1 << 20;
/// Bytes under way without an acknowledgement whose senders keep them: what a receiver has to expect after it said that it is full.
const LENT_MAX: usize = 16 << 20;
/// Bytes of copies up to which a message that could stay in its sender's buffer is copied too: few messages are under way,
/// so its sender is likely to wait, and the copy, made when the rail has the message, takes less than the word that it
/// arrived would. In a stream of messages the copies would cost more than the waiting.
const COPIES_MAX: usize = 512 << 10;
/// A longer message is not copied, in bytes: to wait for the word of its arrival takes less then (loopback between two Zen 3 cores, to and
/// fro, copied and not, medians of twelve over libfabric and eight over tcp: 256 KiB 60 and 68 us, 55 and 72; 512 KiB 105 and 103,
/// 111 and 89).
const COPY_MAX: usize = 256 << 10;
/// Of messages that stay in their senders' buffers, after so many bytes the receiver is to tell at once of one: of each would cost it
/// more than the messages. Of the others it tells when it is asked ([`Ob1::ask`]).
const ASK_BYTES: usize = 256 << 10;
/// Frames that may arrive before an earlier one.
const AHEAD_MAX: usize = 1 << 16;
/// After more frames than these, or so many bytes, the other side is told. Whoever receives a window of messages of the usual 32 or 64 answers the
/// last one, and that answer tells, too.
const TELL_FRAMES: u32 = 64;
const TELL_BYTES: usize = 320 << 10;
/// Fewer than these, and it need not be told with the next message either, which is four bytes shorter without.
const BRIEF_FRAMES: u32 = 8;
const BRIEF_BYTES: usize = 16 << 10;

/// Where a frame's payload is, should it go out again.
pub(super) enum Matter {
    Copy(Held),
    /// The same, of a message that a rail may hold, too.
    CopyOf {
        key: Key,
        held: Held,
    },
    /// The first bytes of a send's payload: its request is open until the frame is acknowledged, or answered.
    Send {
        key: Key,
        bytes: usize,
    },
    /// An offer to read memory that is registered with one rail; over another it becomes an RNDV.
    Offer {
        key: Key,
        remote: RemoteKey,
        rail: RailId,
    },
}

struct Kept {
    /// Without the number.
    header: Header,
    matter: Matter,
}

/// A frame that arrives in pieces.
struct Assembly {
    number: u32,
    bytes: Vec<u8>,
    have: Ranges,
}

/// A message that is landing in a receive.
struct Half {
    number: u32,
    key: Key,
    /// Its sender waits for the word that it arrived.
    confirm: bool,
}

/// Both directions with one peer.
#[derive(Default)]
pub(super) struct Journal {
    kept: VecDeque<Kept>,
    /// Number of the first of them.
    first: u32,
    /// How many of them are out on the present rail.
    out: usize,
    /// Of the next one, in pieces.
    split: u32,
    /// Of copies.
    bytes: usize,
    /// Of what is in senders' buffers.
    lent: usize,
    /// Of that, what went since the receiver was last to tell of it.
    unasked: usize,
    /// It is to be asked what it has seen: as soon as nothing else goes on, or now.
    ask_later: bool,
    ask: bool,

    /// All numbers before this one have arrived.
    next: u32,
    ahead: BTreeSet<u32>,
    /// Arrived since the other side was told.
    owed: (u32, usize),
    /// It is to be told, even if nothing else goes to it.
    pub tell: bool,
    assembly: Option<Assembly>,
    /// Messages that are landing, or broke off while they were.
    halves: SmallVec<[Half; 2]>,
}

/// What a number says of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    New,
    Again,
    TooFar,
}

impl Journal {
    /// Whether a new message may go out: nothing before it waits to be sent again, and there is room to keep it.
    pub fn is_ready(&self) -> bool {
        self.out == self.kept.len()
            && self.kept.len() < FRAMES_MAX
            && self.bytes < BYTES_MAX
            && self.lent < LENT_MAX
    }

    /// Whether a message of `len` bytes is best copied, although its sender's buffer could be kept.
    pub fn is_quiet(&self, len: usize) -> bool {
        len <= COPY_MAX && self.bytes + len <= COPIES_MAX
    }

    /// Whether the receiver is to tell at once of a message of `len` bytes that stays in its sender's buffer. Only over a rail that keeps
    /// frames in order could it be asked later.
    pub fn is_told_at_once(&self, len: usize, ordered: bool) -> bool {
        !ordered || self.lent == 0 || self.unasked + len >= ASK_BYTES
    }

    /// Nothing else is to go out: now the receiver is to be asked what it has seen, if senders wait for that and it was not to tell of
    /// the last of their messages.
    fn ask(&mut self) {
        self.ask_later = false;
        self.ask |= self.unasked > 0;
    }

    /// Frames to be sent again.
    pub fn to_send(&self) -> usize {
        self.kept.len() - self.out
    }

    /// Frames not acknowledged, for dumps.
    pub fn unseen(&self) -> usize {
        self.kept.len()
    }

    /// Of the next new frame.
    pub fn number(&self) -> Number {
        Number::new(self.first.wrapping_add(self.kept.len() as u32), self.next)
    }

    /// The frame just sent with `number` is kept.
    pub fn keep(&mut self, header: &[u8], matter: Matter) {
        match &matter {
            Matter::Copy(held) | Matter::CopyOf { held, .. } => self.bytes += held.as_slice().len(),
            Matter::Send { bytes, .. } => {
                self.lent += bytes;
                if header[0] == kinds::MATCH {
                    let told = header[1] & CONFIRM != 0;
                    self.unasked = if told { 0 } else { self.unasked + bytes };
                }
            }
            Matter::Offer { .. } => {}
        }
        self.keep_kept(Kept { header: Header::new(header), matter });
        self.was_told();
    }

    /// The message just sent is kept; with `brief` its frame did not say what has arrived here.
    #[inline]
    pub fn keep_message(&mut self, header: &Match, held: Held, len: usize, brief: bool) {
        self.bytes += len;
        self.keep_kept(Kept { header: Header::new(header.as_bytes()), matter: Matter::Copy(held) });
        if !brief {
            self.was_told();
        }
    }

    #[inline]
    fn keep_kept(&mut self, kept: Kept) {
        debug_assert_eq!(self.out, self.kept.len(), "new frames go out after old ones");
        self.kept.push_back(kept);
        self.out += 1;
    }

    /// Whether the next message need not say what has arrived here.
    #[inline]
    pub fn is_brief(&self) -> bool {
        !self.tell && self.owed.0 < BRIEF_FRAMES && self.owed.1 < BRIEF_BYTES
    }

    fn was_told(&mut self) {
        (self.owed, self.tell) = ((0, 0), false);
    }

    /// Another rail carries the frames from now on.
    pub fn rewind(&mut self) {
        (self.out, self.split) = (0, 0);
        self.ask |= self.lent > 0;
        self.tell |= self.next > 0;
    }

    /// The frame with a send's first bytes came back with an error: it goes out again, and what came after it.
    pub fn redo(&mut self, key: Key) -> bool {
        let is_it = |kept: &Kept| match kept.matter {
            Matter::Send { key: of, .. } | Matter::CopyOf { key: of, .. } => of == key,
            Matter::Copy(_) | Matter::Offer { .. } => false,
        };
        match self.kept.iter().position(is_it) {
            Some(at) if at < self.out => {
                (self.out, self.split) = (at, 0);
                self.ask |= self.lent > 0;
                true
            }
            other => other.is_some(),
        }
    }

    /// The other side has all before `ack`. The sends whose whole message was in one of these frames.
    fn confirmed(&mut self, ack: u32, pool: &mut Pool) -> Result<SmallVec<[Key; 4]>, &'static str> {
        let count = ack.wrapping_sub(self.first);
        let mut whole = SmallVec::new();
        if count > 1 << 31 {
            return Ok(whole); // an old one
        }
        if count as usize > self.kept.len() {
            return Err("acknowledged what was never sent");
        }
        for Kept { header, matter } in self.kept.drain(..count as usize) {
            match matter {
                Matter::Copy(held) | Matter::CopyOf { held, .. } => {
                    self.bytes -= held.as_slice().len();
                    pool.give_back(held);
                }
                Matter::Send { key, bytes } => {
                    self.lent -= bytes;
                    if header.as_bytes()[0] == kinds::MATCH {
                        whole.push(key);
                    }
                }
                Matter::Offer { .. } => {}
            }
        }
        self.first = ack;
        self.unasked = self.unasked.min(self.lent);
        if self.out < count as usize {
            self.split = 0;
        }
        self.out = self.out.saturating_sub(count as usize);
        Ok(whole)
    }

    /// Whether a frame with this number was taken in.
    pub fn is_new(&self, number: u32) -> bool {
        let far = number.wrapping_sub(self.next);
        far <= 1 << 31 && !self.ahead.contains(&number)
    }

    /// Takes note of a number.
    fn admit(&mut self, number: u32) -> Seen {
        if !self.is_new(number) {
            return Seen::Again;
        }
        if number != self.next {
            if self.ahead.len() >= AHEAD_MAX {
                return Seen::TooFar;
            }
            self.ahead.insert(number);
            return Seen::New;
        }
        self.next = self.next.wrapping_add(1);
        while !self.ahead.is_empty() && self.ahead.remove(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        Seen::New
    }

    /// Takes note of the next number, where nothing came before its turn or began to land. `false`: nothing was done.
    #[inline]
    fn admit_next(&mut self, number: u32) -> bool {
        let usual = number == self.next && self.ahead.is_empty() && self.halves.is_empty();
        if usual {
            self.next = self.next.wrapping_add(1);
        }
        usual
    }

    #[inline]
    fn owe(&mut self, bytes: usize, soon: bool) {
        self.owed.0 += 1;
        self.owed.1 += bytes;
        self.tell |= soon || self.owed.0 > TELL_FRAMES || self.owed.1 >= TELL_BYTES;
    }

    /// A message began to land in a receive.
    pub fn begin_half(&mut self, number: u32, key: Key, confirm: bool) {
        self.halves.push(Half { number, key, confirm });
    }

    /// The receive that has a part of this message.
    pub fn half(&self, number: u32) -> Option<Key> {
        self.halves.iter().find(|half| half.number == number).map(|half| half.key)
    }

    /// The number of the message that is landing in a receive.
    pub fn half_of(&self, key: Key) -> Option<u32> {
        self.halves.iter().find(|half| half.key == key).map(|half| half.number)
    }

    /// Whether its sender waits for it.
    fn end_half(&mut self, number: u32) -> bool {
        let at = self.halves.iter().position(|half| half.number == number);
        at.is_some_and(|at| self.halves.swap_remove(at).confirm)
    }

    /// Adds a piece; the frame's bytes when it is whole.
    fn assemble(&mut self, piece: Piece, payload: &[u8]) -> Option<Vec<u8>> {
        if self.assembly.as_ref().is_none_or(|a| a.number != piece.number) {
            let (bytes, have) = (vec![0; piece.total as usize], Ranges::default());
            self.assembly = Some(Assembly { number: piece.number, bytes, have });
        }
        let assembly = self.assembly.as_mut()?;
        let range = u64::from(piece.offset)..u64::from(piece.offset) + payload.len() as u64;
        if assembly.bytes.len() != piece.total as usize
            || assembly.have.add(range.clone()) == Added::Refused
        {
            // Cut otherwise, for another rail: from the start.
            (assembly.bytes, assembly.have) = (vec![0; piece.total as usize], Ranges::default());
            assembly.have.add(range.clone());
        }
        assembly.bytes[range.start as usize..range.end as usize].copy_from_slice(payload);
        assembly.have.is_all(u64::from(piece.total)).then_some(())?;
        self.assembly.take().map(|assembly| assembly.bytes)
    }
}

/// A header with its number.
pub(super) fn numbered(header: &[u8], number: Number) -> Header {
    let mut bytes = [0; ironweave_btl::HEADER_MAX];
    let (base, rest) = bytes.split_at_mut(header.len());
    base.copy_from_slice(header);
    rest[..size_of::<Number>()].copy_from_slice(number.as_bytes());
    Header::new(&bytes[..header.len() + size_of::<Number>()])
}

impl PeerState {
    /// The journal, made at first use.
    pub fn journal(&mut self) -> &mut Journal {
        self.journal.get_or_insert_default()
    }

    /// Whether frames wait to be sent again, or the other side is to be told, or asked.
    pub fn has_journal_work(&self) -> bool {
        let has = |journal: &Journal| journal.tell || journal.to_send() > 0 || journal.ask;
        self.journal.as_deref().is_some_and(has)
    }
}

impl Peers {
    /// Takes note of an eager message that comes in its turn: what its sender says, if that is news, of what it has seen
    /// ([`Engine::on_seen`]). `None`: it is not that simple, and nothing was done.
    #[inline]
    pub fn note_next(
        &mut self,
        from: Peer,
        Numbered { number, ack }: Numbered,
        bytes: usize,
    ) -> Option<Option<u32>> {
        let journal = self.get_mut(from)?.journal.as_deref_mut()?;
        if !journal.admit_next(number) {
            return None;
        }
        journal.owe(bytes, false);
        let news = ack.filter(|&ack| ack != journal.first);
        if journal.tell {
            self.wake(from);
        }
        Some(news)
    }
}

impl Engine {
    /// The peer is to be asked later what it has seen.
    pub fn ask_later(&mut self, peer: Peer) {
        if std::mem::replace(&mut self.peers.state(peer).journal().ask_later, true) {
            return;
        }
        if self.asking.is_empty() {
            self.asking_since = self.round;
        }
        self.asking.push(peer);
    }

    /// What the other side has seen of ours.
    pub fn on_seen(&mut self, from: Peer, ack: u32) {
        let state = self.peers.state(from);
        let Some(journal) = &mut state.journal else {
            return if ack != 0 {
                self.malformed(from, "acknowledged what was never sent")
            };
        };
        match journal.confirmed(ack, &mut self.pool) {
            Ok(whole) => {
                if state.has_work() {
                    self.peers.wake(from);
                }
                for key in whole {
                    self.on_arrived(key);
                }
            }
            Err(what) => self.malformed(from, what),
        }
    }

    /// An eager message that its request kept has arrived.
    fn on_arrived(&mut self, key: Key) {
        if let Some(send) = self.sends.get_mut(key) {
            (send.confirm, send.sent) = (Confirm::Done, send.length);
            self.settle_send(key.slot);
        }
    }

    /// A numbered frame. `false` when it is not to be handled: it came before, or completes a message that broke off.
    pub fn on_numbered(
        &mut self,
        from: Peer,
        Numbered { number, ack }: Numbered,
        header: &[u8],
        payload: &[u8],
    ) -> bool {
        if let Some(ack) = ack {
            self.on_seen(from, ack);
        }
        let journal = self.peers.state(from).journal();
        let half = journal.half(number);
        match journal.admit(number) {
            Seen::New => {}
            Seen::Again => {
                self.stats.duplicates += 1;
                // Its sender may wait for the word.
                journal.tell = true;
                self.peers.wake(from);
                return false;
            }
            Seen::TooFar => {
                self.malformed(from, "a number too far ahead");
                return false;
            }
        }
        journal.owe(payload.len(), header[0] == kinds::MATCH && header[1] & CONFIRM != 0);
        let tell = journal.tell;
        if half.is_some() {
            journal.end_half(number);
        }
        if tell {
            self.peers.wake(from);
        }
        let Some(key) = half else { return true };
        if let Some(recv) = self.recvs.get_mut(key) {
            let room = payload.len().min(recv.want as usize);
            recv.buffer.unpack(0, &payload[..room]);
            recv.received = recv.want;
            self.settle_recv(key.slot);
        }
        false
    }

    /// The short cut of `on_numbered` for an eager message that comes in its turn. `false`: nothing was done.
    #[inline]
    pub fn on_next(&mut self, from: Peer, number: Numbered, bytes: usize) -> bool {
        let next = self.peers.note_next(from, number, bytes);
        if let Some(Some(ack)) = next {
            self.on_seen(from, ack);
        }
        next.is_some()
    }

    /// A message has landed in full.
    pub fn on_half_landed(&mut self, from: Peer, number: u32, bytes: usize) {
        let journal = self.peers.state(from).journal();
        let confirm = journal.end_half(number);
        if journal.admit(number) == Seen::New {
            journal.owe(bytes, confirm);
            if journal.tell {
                self.peers.wake(from);
            }
        }
    }

    /// A piece of a frame that is too long for the rail.
    pub fn on_split(&mut self, rail: RailId, from: Peer, piece: Piece, payload: &[u8]) {
        let journal = self.peers.state(from).journal();
        if !journal.is_new(piece.number) {
            self.stats.duplicates += 1;
            journal.tell = true;
            return self.peers.wake(from);
        }
        let Some(bytes) = journal.assemble(piece, payload) else { return };
        let Some((header, payload)) =
            bytes.split_first().and_then(|(&len, rest)| rest.split_at_checked(usize::from(len)))
        else {
            return self.malformed(from, "pieces of no frame");
        };
        match super::link::unnumber(header) {
            (base, Some(number)) if number.number == piece.number && base.len() < header.len() => {
                self.frame_other(rail, from, header, payload);
            }
            _ => self.malformed(from, "pieces of no frame"),
        }
    }
}

/// The payload of a kept frame.
enum Source<'a> {
    Bytes(&'a [u8]),
    Payload(&'a super::Payload, usize),
}

impl Source<'_> {
    fn len(&self) -> usize {
        match self {
            Source::Bytes(bytes) => bytes.len(),
            Source::Payload(_, len) => *len,
        }
    }

    fn pack(&self, offset: usize, piece: &mut [u8]) {
        match self {
            Source::Bytes(bytes) => piece.copy_from_slice(&bytes[offset..offset + piece.len()]),
            Source::Payload(payload, _) => payload.pack(offset, piece),
        }
    }
}

/// What goes out for a kept frame now.
fn again<'a>(kept: &'a Kept, sends: &'a Slots<Send>, lane: RailId) -> (Header, Source<'a>) {
    let gone = || {
        let place = LinkHeader::new(Link::Seen { ack: 0 });
        (Header::new(place.as_bytes()), Source::Bytes(&[]))
    };
    // A send that is over was answered, so its frame had arrived; its buffer is not ours any more.
    let live = |key| sends.get(key).filter(|send: &&Send| send.state != SendState::Complete);
    match &kept.matter {
        Matter::Copy(held) | Matter::CopyOf { held, .. } => {
            (kept.header, Source::Bytes(held.as_slice()))
        }
        Matter::Send { key, bytes } => match live(*key) {
            Some(send) => (kept.header, Source::Payload(&send.payload, *bytes)),
            None => gone(),
        },
        Matter::Offer { key, remote, rail } => match live(*key) {
            Some(send) if send.source.is_some() && *rail == lane => {
                (kept.header, Source::Bytes(remote.as_bytes()))
            }
            Some(_) => {
                let mut header = kept.header;
                if let Ok(mut announce) = Announce::read_from_bytes(header.as_bytes()) {
                    announce.matching.kind = kinds::RNDV;
                    header = Header::new(announce.as_bytes());
                }
                (header, Source::Bytes(&[]))
            }
            None => gone(),
        },
    }
}

impl<B: Btl> Ob1<B> {
    /// Sends again what the other side may have missed. `Err` when there is no room.
    pub(super) fn resend(&mut self, peer: Peer, lane: RailId) -> Result<usize, Refused> {
        let btl = &mut self.rails[usize::from(lane.0)];
        let longest = btl.caps().max_bcopy;
        let Some(journal) = &mut self.engine.peers.state(peer).journal else { return Ok(0) };
        let mut done = 0;
        while journal.out < journal.kept.len() {
            let number = journal.first.wrapping_add(journal.out as u32);
            let (base, source) = again(&journal.kept[journal.out], &self.engine.sends, lane);
            let header = numbered(base.as_bytes(), Number::new(number, journal.next));
            if source.len() <= longest {
                let pack = |offset, piece: &mut [u8]| source.pack(offset, piece);
                btl.send_bcopy(peer, header.as_bytes(), source.len(), pack)?;
            } else {
                let front: SmallVec<[u8; 80]> = std::iter::once(header.as_bytes().len() as u8)
                    .chain(header.as_bytes().iter().copied())
                    .collect();
                let total = (front.len() + source.len()) as u32;
                while journal.split < total {
                    let offset = journal.split;
                    let len = ((total - offset) as usize).min(longest);
                    let split = SplitHeader::new(Piece { number, offset, total });
                    btl.send_bcopy(peer, split.as_bytes(), len, |at, piece| {
                        let from = offset as usize + at;
                        let ours = front.len().saturating_sub(from).min(piece.len());
                        let (left, right) = piece.split_at_mut(ours);
                        left.copy_from_slice(&front[from.min(front.len())..][..ours]);
                        if !right.is_empty() {
                            source.pack(from + ours - front.len(), right);
                        }
                    })?;
                    journal.split += len as u32;
                    done += 1;
                }
                journal.split = 0;
            }
            journal.out += 1;
            journal.was_told();
            done += 1;
        }
        Ok(done)
    }

    /// Tells the other side how far it has come, if it is owed that.
    pub(super) fn tell_seen(&mut self, peer: Peer, lane: RailId) -> Result<usize, Refused> {
        let Some(journal) = &mut self.engine.peers.state(peer).journal else { return Ok(0) };
        if !journal.tell {
            return Ok(0);
        }
        let header = LinkHeader::new(Link::Seen { ack: journal.next });
        self.rails[usize::from(lane.0)].send_bcopy(peer, header.as_bytes(), 0, |_, _| {})?;
        journal.was_told();
        Ok(1)
    }

    /// Has each peer asked how far it has come whose last messages it was not to tell of, though their senders wait for that.
    #[cold]
    pub(super) fn ask(&mut self) {
        for peer in std::mem::take(&mut self.engine.asking) {
            if let Some(journal) = &mut self.engine.peers.state(peer).journal {
                journal.ask();
                self.engine.peers.wake(peer);
            }
        }
    }

    /// Asks the other side how far it has come, if it is to be asked.
    pub(super) fn ask_seen(&mut self, peer: Peer, lane: RailId) -> Result<usize, Refused> {
        let Some(journal) = &mut self.engine.peers.state(peer).journal else { return Ok(0) };
        if !journal.ask {
            return Ok(0);
        }
        let header = LinkHeader::new(Link::Ask);
        self.rails[usize::from(lane.0)].send_bcopy(peer, header.as_bytes(), 0, |_, _| {})?;
        (journal.ask, journal.unasked) = (false, 0);
        Ok(1)
    }
}
