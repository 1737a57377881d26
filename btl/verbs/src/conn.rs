//! One connection: a queue pair, what was posted to it, and the credits each way.
//!
//! Requests of one queue pair end in the order in which they were posted, so not all of them ask for a completion: one
//! that comes tells of all before it. Every n-th asks, and one that is posted while none or one is to come; what is left without
//! one when nobody posts any more is asked for by a write of its own. What was posted stays in `works`, owner of
//! descriptors, slots and registrations, until then; after an error it is taken out only when the queue pair is gone
//! (laws 1 and 2).
//!
//! A peer may have `credits` frames under way that this side has not taken. Every frame tells how many were taken; where
//! none goes that way, the count is written into the peer's control block, by RDMA, whenever half of them were: no receive
//! is used up, and a peer that sends nothing needs none. So a receiver is never without a buffer, and a sender sees a
//! peer that does not read as `NoRoom`.
//!
//! Short frames are written to the peer's ring, if it offered one and a slot is free, and sent otherwise (`ring.rs`).

use crate::cache::Kept;
use crate::credits::Credits;
use crate::lean::{self, Trail};
use crate::memory::{Inbox, Slot, post, post_inline};
use crate::ring::{Shape, Writer, laid};
use crate::wire::{self, Frame, PREFIX};
use ironweave_btl::{Counters, Descriptor, Fault, Peer, RmaDescriptor};
use ironweave_ffi_verbs::cm::Id;
use ironweave_ffi_verbs::{Operation, QueuePair, Registration, Sge, VerbsError};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Every so many requests one asks for a completion.
const SIGNAL_EVERY: u32 = 16;
/// Who has fewer credits spares none.
const CREDITS_TO_SPARE: u32 = 4;
/// Requests kept free for credits, probes and the good-bye.
const RESERVE: usize = 4;
/// Credits and probes of one connection that may be out, so that all peers' find room in the completion queue …
pub const CONTROLS: u32 = 8;
/// … and from how many on each asks for a completion.
const CONTROLS_QUIET: u32 = 3;

/// A posted request, and what it uses.
#[derive(Debug)]
pub enum Work {
    /// A frame, copied to a slot or inline.
    Frame(Option<Slot>),
    /// A frame whose owner waits.
    Zcopy(Descriptor, Slot),
    /// A part of a put or get that is not its last.
    Part,
    /// A put or get, or its last part; a short one went through a slot.
    Rma(RmaDescriptor, Through),
    /// Credits or a probe.
    Control,
}

/// How a put or get reaches the user's memory.
pub enum Through {
    /// It is copied.
    Slot(Slot),
    /// Directly, by a registration for this operation.
    Registered(Registration),
    /// Directly, by one that is kept, of lasting memory …
    Kept(Arc<Kept<Registration>>),
    /// … or of whatever is there, paged on demand.
    Paged(Arc<Registration>),
}

impl std::fmt::Debug for Through {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Through::Slot(slot) => slot.fmt(f),
            Through::Registered(_) => f.write_str("registered"),
            Through::Kept(_) => f.write_str("registered before"),
            Through::Paged(_) => f.write_str("paged on demand"),
        }
    }
}

impl Work {
    pub fn is_frame(&self) -> bool {
        matches!(self, Work::Frame(_) | Work::Zcopy(..))
    }
}

/// The nonces that name a connection.
pub type Nonces = ([u8; 16], [u8; 16]);

/// What the other end said of itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Theirs {
    pub control: u64,
    pub control_key: u32,
    pub buffer: u32,
}

/// The peer's ring, to which we write.
struct Away {
    writer: Writer,
    address: u64,
    rkey: u32,
    /// Longest frame, with its prefix, that goes there.
    longest: usize,
}

/// How a frame goes to the peer.
#[derive(Clone, Copy)]
pub enum Way {
    /// To a receive.
    Send,
    /// To a receive, the payload alone, with this beside it (`lean.rs`).
    Lean(u32),
    /// Into the next slot of the peer's ring.
    Ring { address: u64, rkey: u32 },
}

impl Way {
    #[inline]
    pub fn is_ring(self) -> bool {
        matches!(self, Way::Ring { .. })
    }

    #[inline]
    fn operation(self) -> Operation<'static> {
        match self {
            Way::Send => Operation::Send,
            Way::Lean(beside) => Operation::SendBeside(beside),
            Way::Ring { address, rkey } => Operation::Write { address, rkey },
        }
    }
}

/// Our ring, to which the peer writes.
pub enum Home {
    /// The peer was not offered one; it sent this many frames that would have fitted.
    None(u32),
    /// It was offered.
    Offered(Inbox),
    /// There is no memory for one.
    Never,
}

pub struct Conn {
    // First: what it uses is freed after it.
    pub queue_pair: QueuePair,
    /// On iWARP, the connection that carries it.
    pub manager: Option<Id>,
    pub psn: u32,
    /// Our control block.
    pub block: u32,
    pub theirs: Theirs,
    /// Who has it: tells completions of this connection from those of earlier ones.
    id: u64,
    pub works: VecDeque<Work>,
    /// The number of `works[0]`.
    first: u32,
    next: u32,
    /// Requests since the last that asks for a completion.
    unsignalled: u32,
    /// How many of the works are credits and probes.
    controls: u32,
    depth: usize,
    pub credits: Credits,
    /// Bytes of a packet; 0 where payloads cannot go alone.
    pub mtu: usize,
    /// Headers of the frames that were sent, and received, not written to rings.
    sent: Trail,
    pub came: Trail,
    pub nonces: Nonces,
    away: Option<Away>,
    // After the queue pair, by which the peer writes there.
    pub home: Home,
    /// The peer is to be offered our ring as soon as it has a buffer for that.
    owes_offer: bool,
    /// Whether the last frame of the peer came by our ring.
    pub by_ring: bool,
    /// There is a part of a frame in our ring, since a look.
    pub part: bool,
    part_since: Option<Instant>,
    /// The connection ends, for this reason.
    pub doom: Option<Fault>,
    /// The peer said good-bye.
    pub finished: bool,
    /// Frames that still arrive are dropped.
    pub discards: bool,
    /// On iWARP, requests that are over before earlier ones.
    early: Vec<u32>,
    /// The last request that came back with an error.
    last_flushed: Option<u32>,
    counters: Arc<Counters>,
    /// What the last look saw: first and next request, and frames received; and since when they are the same.
    watched: Option<([u32; 3], Instant)>,
}

/// What a look at a connection found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// Something happens, or nothing should.
    Fine,
    /// Nothing came back for this long although something is out.
    Stuck(Duration),
    /// Nothing was asked of it for this long.
    Idle(Duration),
}

impl Conn {
    pub fn new(
        queue_pair: QueuePair,
        id: u64,
        block: u32,
        psn: u32,
        depth: u32,
        credits: u32,
        counters: Arc<Counters>,
    ) -> Conn {
        Conn {
            queue_pair,
            manager: None,
            psn,
            block,
            theirs: Theirs::default(),
            id,
            works: VecDeque::new(),
            first: 0,
            next: 0,
            unsignalled: 0,
            controls: 0,
            depth: depth as usize,
            credits: Credits::new(credits),
            mtu: 0,
            sent: Trail::default(),
            came: Trail::default(),
            nonces: Nonces::default(),
            away: None,
            home: Home::None(0),
            owes_offer: false,
            by_ring: false,
            part: false,
            part_since: None,
            doom: None,
            finished: false,
            discards: false,
            early: Vec::new(),
            last_flushed: None,
            counters,
            watched: None,
        }
    }

    /// Whether `requests` more fit, beside the reserve.
    #[inline]
    pub fn has_room(&self, requests: usize) -> bool {
        self.works.len() + requests + RESERVE <= self.depth
    }

    /// Whether the peer has a buffer for one more frame, beside one for the offer of a ring that waits for it; `look` reads our
    /// control block.
    #[inline]
    pub fn has_credit(&mut self, look: impl FnOnce() -> (u32, u32)) -> bool {
        let full = self.away.as_ref().is_some_and(|away| !away.writer.has_room(&self.credits));
        let frames = 1 + u32::from(self.owes_offer);
        if self.credits.cover(frames) && !full {
            return true;
        }
        if let Some(taken) = wire::taken(look()) {
            self.credits.heard(taken);
        }
        self.credits.cover(frames)
    }

    /// It will be offered none for now.
    pub fn owes_nothing(&mut self) {
        self.owes_offer = false;
    }

    /// Whether the peer has a buffer for the offer of a ring. If not, frames leave it the next one: who sends whenever there is room
    /// would never come to offering.
    pub fn has_credit_for_offer(&mut self, look: impl FnOnce() -> (u32, u32)) -> bool {
        self.owes_offer = false;
        let has = self.has_credit(look);
        self.owes_offer = !has && self.credits.theirs >= CREDITS_TO_SPARE;
        has
    }

    /// What comes before the header of a frame that is posted next.
    #[inline]
    pub fn prefix(&self, frame: Frame, from: Peer) -> [u8; PREFIX] {
        wire::prefix(frame, from.0, self.credits.received(), self.credits.sent())
    }

    /// The peer offered a ring for short frames; `false` when it has done so before.
    pub fn offered(&mut self, (address, rkey): (u64, u32), shape: Shape, longest: usize) -> bool {
        let longest = longest.min(shape.longest());
        let away = Away { writer: Writer::new(shape), address, rkey, longest };
        self.away.replace(away).is_none()
    }

    /// The peer's ring, if a frame of `len` bytes, prefix included, goes there now.
    #[inline]
    fn ring_for(&self, len: usize) -> Option<&Away> {
        let fits = |away: &&Away| len <= away.longest && away.writer.has_room(&self.credits);
        self.away.as_ref().filter(fits)
    }

    /// What a frame of `len` bytes, prefix included, takes of a buffer.
    #[inline]
    pub fn takes(&self, len: usize) -> usize {
        if self.ring_for(len).is_some() { laid(len) } else { len }
    }

    /// Completes the frame in `bytes[..len]` for the way that it goes now, and says how many bytes it is then.
    #[inline]
    pub fn lay(&self, bytes: &mut [u8], len: usize) -> (Way, usize) {
        match self.ring_for(len) {
            Some(away) => {
                let offset = away.writer.lay(bytes, len) as u64;
                (Way::Ring { address: away.address + offset, rkey: away.rkey }, laid(len))
            }
            None => (Way::Send, len),
        }
    }

    /// The way of a frame of data that is sent: without what comes before its `len` bytes of payload, if that saves a packet.
    #[inline]
    pub fn lean(&mut self, way: Way, header: &[u8], len: usize) -> Way {
        let Way::Send = way else { return way };
        let goes_alone = self.mtu > 0
            && lean::saves(self.mtu, header.len(), len)
            && lean::tells(&self.credits)
            && {
                let (next, len) = self.sent.next();
                header == &next[..len]
            };
        self.sent.follow(header);
        self.sent.alone += u64::from(goes_alone);
        if goes_alone { Way::Lean(lean::say(&self.credits)) } else { way }
    }

    /// The way of a frame of data that goes as it is.
    #[inline]
    pub fn sends_whole(&mut self, way: Way, header: &[u8]) -> Way {
        if let Way::Send = way {
            self.sent.follow(header);
        }
        way
    }

    /// Posts the frame that was laid into `piece`.
    #[allow(clippy::result_large_err)]
    pub fn post_frame(
        &mut self,
        way: Way,
        piece: &Sge,
        work: Work,
        important: bool,
    ) -> Result<(), (VerbsError, Work)> {
        let number = self.credits.sent();
        self.post(way.operation(), piece, work, important)?;
        self.went(way, number);
        Ok(())
    }

    /// As `post_frame`, copied during the call.
    #[inline]
    pub fn post_frame_inline(&mut self, way: Way, bytes: &[u8]) -> Result<(), VerbsError> {
        let number = self.credits.sent();
        self.post_inline(way.operation(), bytes, Work::Frame(None), false)?;
        self.went(way, number);
        Ok(())
    }

    #[inline]
    fn went(&mut self, way: Way, number: u32) {
        if let (Way::Ring { .. }, Some(away)) = (way, &mut self.away) {
            away.writer.wrote(number);
        }
    }

    /// The peer sent a frame that would have fitted into a ring: whether it is time to offer it one.
    #[inline]
    pub fn sent_short(&mut self, after: u32) -> bool {
        let Home::None(count) = &mut self.home else { return false };
        *count = count.saturating_add(1);
        *count >= after && self.doom.is_none() && !self.finished
    }

    /// Our ring, once the peer may write there.
    #[inline]
    pub fn inbox(&mut self) -> Option<&mut Inbox> {
        match &mut self.home {
            Home::Offered(inbox) => Some(inbox),
            _ => None,
        }
    }

    /// How long there has been a part of a frame that did not become a whole.
    pub fn part_for(&mut self, now: Instant) -> Duration {
        let since = self.part_since.filter(|_| self.part);
        self.part_since = self.part.then(|| since.unwrap_or(now));
        since.map_or(Duration::ZERO, |since| now - since)
    }

    /// Whether every credit is used, so that only the control block will tell when to go on.
    pub fn is_starved(&self) -> bool {
        !self.credits.cover(1 + u32::from(self.owes_offer))
    }

    /// The request's number, and whether it asks for a completion.
    #[inline]
    fn number(&self, important: bool) -> (u64, bool) {
        // On iWARP all do: the device may send from the memory of others after they are over (Soft-iWARP: `zcopy_tx`).
        let each = self.manager.is_some();
        let signalled = important || each || asks(self.works.len(), self.unsignalled);
        (self.id | u64::from(self.next), signalled)
    }

    #[inline]
    fn posted(&mut self, work: Work, signalled: bool) {
        if work.is_frame() {
            self.credits.use_one(); // its prefix tells
        }
        if matches!(work, Work::Control) {
            self.controls += 1;
            self.counters.controls.add(1);
        }
        self.unsignalled = if signalled { 0 } else { self.unsignalled + 1 };
        self.next = self.next.wrapping_add(1);
        self.works.push_back(work);
    }

    /// Posts a request that uses `piece`; the work that owns its memory comes back when the device refuses.
    #[allow(clippy::result_large_err)]
    pub fn post(
        &mut self,
        operation: Operation<'_>,
        piece: &Sge,
        work: Work,
        important: bool,
    ) -> Result<(), (VerbsError, Work)> {
        let (id, signalled) = self.number(important);
        match post(&self.queue_pair, id, operation, piece, signalled) {
            Ok(()) => {
                self.posted(work, signalled);
                Ok(())
            }
            Err(error) => Err((error, work)),
        }
    }

    /// Posts a short request whose bytes are copied during the call.
    #[inline]
    pub fn post_inline(
        &mut self,
        operation: Operation<'_>,
        bytes: &[u8],
        work: Work,
        important: bool,
    ) -> Result<(), VerbsError> {
        let (id, signalled) = self.number(important);
        post_inline(&self.queue_pair, id, operation, bytes, signalled)?;
        self.posted(work, signalled);
        Ok(())
    }

    /// Whether request `number` is out.
    pub fn has(&self, number: u32) -> bool {
        (number.wrapping_sub(self.first) as usize) < self.works.len()
    }

    /// A completion of request `number`, which is out, came: how many works are over with it, from the front.
    pub fn over(&mut self, number: u32) -> usize {
        let ahead = number.wrapping_sub(self.first) as usize;
        if self.manager.is_none() {
            return ahead + 1;
        }
        // iWARP: a send may be over before a read that was posted before it. Each is counted by itself.
        self.early.push(number);
        let mut over = 0;
        loop {
            let next = self.first.wrapping_add(over);
            let Some(at) = self.early.iter().position(|&early| early == next) else { break };
            self.early.swap_remove(at);
            over += 1;
        }
        over as usize
    }

    /// Request `number` came back with an error.
    pub fn flushed(&mut self, number: u32) {
        self.last_flushed = Some(number);
    }

    /// Whether some request came back with an error.
    pub fn is_flushing(&self) -> bool {
        self.last_flushed.is_some()
    }

    /// Whether nothing is out, or all of it came back with errors.
    pub fn is_flushed(&self) -> bool {
        let last = self.next.wrapping_sub(1);
        self.works.is_empty() || self.last_flushed == Some(last)
    }

    pub fn pop(&mut self) -> Option<Work> {
        let work = self.works.pop_front()?;
        self.first = self.first.wrapping_add(1);
        self.controls -= u32::from(matches!(work, Work::Control));
        Some(work)
    }

    /// A frame of the peer was taken and its buffer posted again: tells, when it is time and somebody listens.
    #[inline]
    pub fn took_frame(&mut self) -> Result<(), VerbsError> {
        let listens = self.doom.is_none() && !self.finished;
        if self.credits.take_one() && listens { self.tell(false) } else { Ok(()) }
    }

    /// Writes how many frames were taken into the peer's control block; with `important` it asks for a completion,
    /// which tells of all requests before it, and of the peer being there.
    pub fn tell(&mut self, important: bool) -> Result<(), VerbsError> {
        let full = self.controls >= CONTROLS && !important;
        if self.works.len() >= self.depth || full {
            return Ok(()); // the next look tells
        }
        let important = important || self.controls >= CONTROLS_QUIET;
        let block = wire::control(self.credits.received());
        let place =
            Operation::Write { address: self.theirs.control, rkey: self.theirs.control_key };
        self.post_inline(place, &block, Work::Control, important)?;
        self.credits.tell();
        Ok(())
    }

    /// Reads the peer's control block into `scratch`: the answer proves that the peer's device is there, where a
    /// completed write does not.
    pub fn ask(&mut self, scratch: &Sge) -> Result<(), VerbsError> {
        if self.works.len() >= self.depth {
            return Ok(());
        }
        self.read_control(scratch, Work::Control).map_err(|(error, _)| error)
    }

    /// As `ask`, for `work`, which is over when the peer has taken in all that was posted before.
    #[allow(clippy::result_large_err)]
    pub fn read_control(&mut self, scratch: &Sge, work: Work) -> Result<(), (VerbsError, Work)> {
        let place = Operation::Read { address: self.theirs.control, rkey: self.theirs.control_key };
        self.post(place, scratch, work, true)
    }

    /// Looked at every now and then: credits that were not told, requests without a completion to come, silence.
    pub fn look(&mut self, now: Instant) -> Result<Look, VerbsError> {
        let state = [self.first, self.next, self.credits.received()];
        let since = match self.watched {
            Some((watched, since)) if watched == state => since,
            _ => {
                self.watched = Some((state, now));
                return Ok(Look::Fine);
            }
        };
        // Quiet since the last look.
        let untold =
            self.credits.untold() && !self.works.iter().any(|work| matches!(work, Work::Control));
        if has_unasked(self.works.len(), self.unsignalled) || untold {
            self.tell(true)?;
        }
        // A request that was posted just now does not count as progress.
        self.watched = Some(([self.first, self.next, self.credits.received()], since));
        let quiet = now - since;
        Ok(if self.works.is_empty() { Look::Idle(quiet) } else { Look::Stuck(quiet) })
    }

    /// A probe was sent: silence counts from now.
    pub fn probed(&mut self, now: Instant) {
        self.watched = Some(([self.first, self.next, self.credits.received()], now));
    }

    /// Frames that are not known to have arrived.
    pub fn frames_out(&self) -> usize {
        self.works.iter().filter(|work| work.is_frame()).count()
    }
}

/// Whether the next request asks for a completion, when `out` are out of which the last `unsignalled` did not: none or one is to
/// come, so that one alone comes back by itself, also one that is posted just before the last one comes back; or it is time.
#[inline]
fn asks(out: usize, unsignalled: u32) -> bool {
    out <= unsignalled as usize + 1 || unsignalled + 1 >= SIGNAL_EVERY
}

/// Whether requests are out of which nothing will be heard.
fn has_unasked(out: usize, unsignalled: u32) -> bool {
    out > 0 && out == unsignalled as usize
}

impl std::fmt::Debug for Conn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "queue pair {}, requests {}..{} ({} unsignalled), {}, payloads alone: {} out, {} in, rings: theirs {}, ours {}, doom {:?}, finished {}",
            self.queue_pair.number(),
            self.first,
            self.next,
            self.unsignalled,
            self.credits,
            self.sent.alone,
            self.came.alone,
            if self.away.is_some() { "in use" } else { "none" },
            match self.home {
                Home::Offered(_) => "offered",
                Home::Never => "impossible",
                Home::None(_) => "none",
            },
            self.doom,
            self.finished
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requests of a connection that were posted, and which of them ask.
    #[derive(Default)]
    struct Posted {
        works: Vec<bool>,
        unsignalled: u32,
    }

    impl Posted {
        fn post(&mut self) -> bool {
            let asks = asks(self.works.len(), self.unsignalled);
            self.unsignalled = if asks { 0 } else { self.unsignalled + 1 };
            self.works.push(asks);
            asks
        }

        /// The first completion that is to come comes.
        fn complete(&mut self) {
            let at = self.works.iter().position(|asks| *asks).expect("one is to come");
            self.works.drain(..=at);
        }

        fn unasked(&self) -> bool {
            has_unasked(self.works.len(), self.unsignalled)
        }
    }

    #[test]
    fn one_request_at_a_time_comes_back_by_itself() {
        let mut posted = Posted::default();
        for _ in 0..100 {
            assert!(posted.post() && !posted.unasked());
            posted.complete();
            assert!(posted.works.is_empty() && !posted.unasked());
        }
    }

    #[test]
    fn of_many_at_once_few_ask() {
        let mut posted = Posted::default();
        let asking: Vec<u32> = (0..70).filter(|_| posted.post()).collect();
        assert_eq!(asking, [0, 1, 17, 33, 49, 65]);
        for out in [69, 68, 52, 36, 20, 4] {
            assert!(!posted.unasked(), "a completion is to come");
            posted.complete();
            assert_eq!(posted.works.len(), out);
        }
        assert!(posted.unasked(), "of the last four nothing will be heard");
        assert!(posted.post(), "but by the next");
        posted.complete();
        assert!(posted.works.is_empty());
    }

    #[test]
    fn two_at_a_time_come_back_without_a_question() {
        let mut posted = Posted::default();
        posted.post();
        for _ in 0..100 {
            posted.post();
            assert!(!posted.unasked());
            posted.complete();
        }
    }
}
