//! Reads that both sides carry out: whose memory is read writes a part of it to the reader's, meanwhile.
//!
//! A long read keeps the reader's core busy, while the sender, who waits for its end, has nothing to do. So the reader cuts what it is to
//! read into pieces, and *grants* its peer to write them into its memory (`process_vm_writev`). Both take pieces, the reader from the
//! front, the peer from the back, until they meet: a peer that computes takes none, and the reader reads all of them itself, as it always
//! did. With two cores at it 64 KiB take 2.3 instead of 3.5 µs, 1 MiB 31 instead of 60, 4 MiB 210 instead of 385 (a loop of such
//! copies between two cores of a Xeon of the fifth generation); where the sender has just written the memory and the receiver reads it
//! afterwards 64 KiB 12 instead of 18 and 4 MiB 560 instead of 810.
//!
//! All that the two say to each other is one cache line:
//! ```text
//!  CLAIMS  serial:32 │ front:16 │ back:16   pieces not taken: from front up to back    both, by compare-and-exchange
//!  DONE    serial:32 │ failed:1 │ pieces:31                                            the peer
//!  GRANT   where, how many bytes, bytes of a piece, of which registration, from where  the reader, while nothing is left to take
//! ```
//! Hands off (law 2): a read ends when the peer has said of each piece it took that it is written, or is proven gone. What a peer takes
//! is bounded, and only what the grant with that serial names: serials do not come back while one of them can be remembered,
//! since each needs an offer of the peer's, who is not idle then.
//!
//! A peer is believed nothing but that it is done with the memory that it was granted; whoever has the job's secret and says so falsely
//! harms only what it could write anyway. The reader names addresses of its own memory, to whoever writes only to that process (law 9).
//!
//! Pure memory; the system calls are in `cma.rs`, who asks and who helps is in `gets.rs`.

#[cfg(all(test, loom))]
mod model;

use crate::primitive::Ordering;
use crate::shared::Shared;
use std::ops::Range;

const CLAIMS: usize = 0;
const DONE: usize = 8;
const GRANT: usize = 16;
/// In [`DONE`]: not all of it is written.
const FAILED: u64 = 1 << 31;
/// Bytes of these words in a segment.
pub(crate) const LEN: usize = GRANT + 5 * 8;

/// Shorter reads are over before anybody could help.
pub(crate) const SHARED_MIN: usize = 32 << 10;
/// Up to here a read is cut in two, …
const HALVES_MAX: usize = 256 << 10;
/// … longer ones in so many pieces, so that who is quicker takes more. A piece more is a system call more.
const PIECES: usize = 4;
/// Pieces end at the ends of pages of a message that begins with one.
const PAGE: usize = 4096;
/// So many reads in a row that nobody helped with, …
const ALONE: u8 = 3;
/// … and nobody is asked for so many.
const PATIENCE: u8 = 15;

/// The pieces that nobody has taken yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Claims {
    serial: u32,
    front: u16,
    back: u16,
}

impl Claims {
    fn encode(self) -> u64 {
        u64::from(self.serial) << 32 | u64::from(self.front) << 16 | u64::from(self.back)
    }

    fn decode(word: u64) -> Claims {
        Claims { serial: (word >> 32) as u32, front: (word >> 16) as u16, back: word as u16 }
    }

    fn is_open(self) -> bool {
        self.front < self.back
    }
}

/// What a peer may write, and from where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grant {
    /// The reader's memory: address and length in bytes.
    pub(crate) target: u64,
    pub(crate) len: u64,
    /// Bytes of all pieces but the last.
    pub(crate) piece: u64,
    /// The peer's registration: slot, serial, and the byte there with which this begins.
    pub(crate) slot: u16,
    pub(crate) serial: u32,
    pub(crate) offset: u64,
}

impl Grant {
    fn words(self) -> [u64; 5] {
        let Grant { target, len, piece, slot, serial, offset } = self;
        [target, len, piece, u64::from(slot) << 32 | u64::from(serial), offset]
    }

    fn of([target, len, piece, registration, offset]: [u64; 5]) -> Grant {
        let (slot, serial) = ((registration >> 32) as u16, registration as u32);
        Grant { target, len, piece, slot, serial, offset }
    }
}

/// Bytes of a piece of a read of `len` bytes, and how many there are.
pub(crate) fn cut(len: usize) -> (usize, u16) {
    let pieces = if len <= HALVES_MAX { 2 } else { PIECES };
    let piece = len.div_ceil(pieces).next_multiple_of(PAGE);
    (piece, len.div_ceil(piece) as u16)
}

/// Bytes of piece `index`.
fn piece(index: u16, piece: u64, len: u64) -> Range<u64> {
    let at = |index: u64| index.saturating_mul(piece).min(len);
    at(index.into())..at(u64::from(index) + 1)
}

/// How far the peer is with what it took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Help {
    /// It writes.
    UnderWay,
    /// It has written all of it, or took nothing.
    Done,
    /// It could not, and takes no more: what it took, from this byte on, is not there.
    Failed { from: usize },
}

/// The reader's end.
#[derive(Debug)]
pub(crate) struct Asker {
    shared: Shared,
    at: usize,
    serial: u32,
    /// Of the grant that is open: bytes, bytes of a piece, and pieces.
    open: Option<(usize, usize, u16)>,
    /// Reads in a row that nobody helped with, and those for which nobody is asked yet.
    alone: u8,
    patience: u8,
    /// The peer cannot write our memory, or is not to.
    never: bool,
    /// It has something to read of ours itself.
    busy: bool,
}

impl Asker {
    /// The reader's end of the words at byte `at`, which are 0.
    pub(crate) fn new(shared: Shared, at: usize) -> Asker {
        Asker {
            shared,
            at,
            serial: 0,
            open: None,
            alone: 0,
            patience: 0,
            never: false,
            busy: false,
        }
    }

    /// The peer is not to be asked.
    pub(crate) fn never(&mut self) {
        self.never = true;
    }

    /// Whether it may be asked for now: who has something to read itself has no time.
    #[inline]
    pub(crate) fn may_ask(&mut self, may: bool) {
        self.busy = !may;
    }

    /// Whether the peer is to be asked for a part of the next read, of `len` bytes.
    pub(crate) fn asks(&mut self, len: usize) -> bool {
        if len < SHARED_MIN || self.never || self.busy || self.open.is_some() {
            return false;
        }
        match self.patience.checked_sub(1) {
            Some(left) => self.patience = left,
            None => return true,
        }
        false
    }

    /// Grants the peer to write pieces of `target`; the first is ours, and its bytes are returned.
    ///
    /// # Panics
    /// When a grant is open.
    pub(crate) fn ask(&mut self, target: (u64, usize), of: (u16, u32, u64)) -> Range<usize> {
        assert!(self.open.is_none(), "one grant at a time");
        let (len, (piece, pieces)) = (target.1, cut(target.1));
        let grant = Grant {
            target: target.0,
            len: len as u64,
            piece: piece as u64,
            slot: of.0,
            serial: of.1,
            offset: of.2,
        };
        for (i, word) in grant.words().into_iter().enumerate() {
            self.shared.word(self.at + GRANT + 8 * i).store(word, Ordering::Relaxed);
        }
        self.serial = self.serial.wrapping_add(1);
        self.open = Some((len, piece, pieces));
        let claims = Claims { serial: self.serial, front: 1, back: pieces };
        // Release: with it the peer sees the grant.
        self.shared.word(self.at + CLAIMS).store(claims.encode(), Ordering::Release);
        0..piece.min(len)
    }

    /// The bytes of the next piece that is ours; `None`: all are taken.
    pub(crate) fn take(&mut self) -> Option<Range<usize>> {
        let (len, size, _) = self.open?;
        let taken = self.exchange(|claims| Claims { front: claims.front + 1, ..claims })?;
        let bytes = piece(taken.front, size as u64, len as u64);
        Some(bytes.start as usize..bytes.end as usize)
    }

    /// Nobody takes any more.
    pub(crate) fn close(&mut self) {
        if self.open.is_some() {
            let _ = self.exchange(|claims| Claims { front: claims.back, ..claims });
        }
    }

    /// Changes the claims, while they are open; what they were.
    fn exchange(&self, change: impl Fn(Claims) -> Claims) -> Option<Claims> {
        let word = self.shared.word(self.at + CLAIMS);
        let mut found = word.load(Ordering::Relaxed);
        // Acquire: the words of the next grant are not written before this one is over.
        loop {
            let claims = Claims::decode(found);
            if !claims.is_open() || claims.serial != self.serial {
                return None;
            }
            let next = change(claims).encode();
            match word.compare_exchange(found, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(claims),
                Err(other) => found = other,
            }
        }
    }

    /// How far the peer is, when all pieces are taken. The grant ends with any answer but [`Help::UnderWay`].
    pub(crate) fn outcome(&mut self) -> Help {
        let Some((_, size, pieces)) = self.open else { return Help::Done };
        let claims = Claims::decode(self.shared.word(self.at + CLAIMS).load(Ordering::Relaxed));
        // Whatever a peer has made of the word, no more than all of it is waited for.
        let first = if claims.serial == self.serial { claims.back.min(pieces) } else { 0 };
        let taken = u64::from(pieces - first);
        if taken == 0 {
            self.open = None;
            self.alone = (self.alone + 1).min(ALONE);
            self.patience = if self.alone == ALONE { PATIENCE } else { 0 };
            return Help::Done;
        }
        // Acquire: what it wrote is ours.
        let done = self.shared.word(self.at + DONE).load(Ordering::Acquire);
        if done >> 32 != u64::from(self.serial) {
            return Help::UnderWay;
        }
        if done & FAILED != 0 {
            self.open = None;
            self.never = true;
            return Help::Failed { from: usize::from(first) * size };
        }
        if done & (FAILED - 1) < taken {
            return Help::UnderWay;
        }
        self.open = None;
        self.alone = 0;
        Help::Done
    }
}

/// A piece that the helper has taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Task {
    pub(crate) grant: Grant,
    /// Its bytes, counted from the grant's beginning.
    pub(crate) bytes: Range<u64>,
    /// Which grant this is of.
    number: u32,
}

/// The end of whose memory is read.
#[derive(Debug)]
pub(crate) struct Helper {
    shared: Shared,
    at: usize,
    /// The grant of which pieces were written last, and how many.
    number: u32,
    written: u32,
    /// We cannot write the reader's memory.
    unable: bool,
}

impl Helper {
    /// The helper's end of the words at byte `at`.
    pub(crate) fn new(shared: Shared, at: usize) -> Helper {
        Helper { shared, at, number: 0, written: 0, unable: false }
    }

    /// Whether there may be a piece to take.
    #[inline(always)]
    pub(crate) fn is_asked(&self) -> bool {
        let claims = self.shared.word(self.at + CLAIMS).load(Ordering::Relaxed);
        Claims::decode(claims).is_open() && !self.unable
    }

    /// Takes a piece, if there is one to take. [`finish`](Helper::finish) it before the next.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Task> {
        let word = self.shared.word(self.at + CLAIMS);
        // Acquire: the grant.
        let found = word.load(Ordering::Acquire);
        let claims = Claims::decode(found);
        if !claims.is_open() || self.unable {
            return None;
        }
        let words = std::array::from_fn(|i| {
            self.shared.word(self.at + GRANT + 8 * i).load(Ordering::Relaxed)
        });
        let grant = Grant::of(words);
        let next = Claims { back: claims.back - 1, ..claims };
        // It succeeds only where nothing was changed, so the words above belong to this serial. Another time, if the reader was quicker.
        word.compare_exchange(found, next.encode(), Ordering::Acquire, Ordering::Relaxed).ok()?;
        let bytes = piece(next.back, grant.piece, grant.len);
        Some(Task { grant, bytes, number: claims.serial })
    }

    /// The piece is written, or cannot be.
    pub(crate) fn finish(&mut self, task: &Task, well: bool) {
        if self.number != task.number {
            (self.number, self.written) = (task.number, 0);
        }
        self.written += 1;
        self.unable = !well;
        let failed = if well { 0 } else { FAILED };
        let done = u64::from(self.number) << 32 | failed | u64::from(self.written);
        // Release: the bytes are there before this is.
        self.shared.word(self.at + DONE).store(done, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn ends() -> (Asker, Helper) {
        let shared = Shared::heap(LEN);
        (Asker::new(shared.clone(), 0), Helper::new(shared, 0))
    }

    /// Bytes, which registration.
    const TARGET: (u64, usize) = (0x1000, 1 << 20);
    const OF: (u16, u32, u64) = (7, 9, 4096);

    #[test]
    fn both_take_until_they_meet() {
        let (mut asker, mut helper) = ends();
        assert_eq!(helper.take(), None);
        for _ in 0..3 {
            assert!(asker.asks(TARGET.1));
            let mut ours = vec![asker.ask(TARGET, OF)];
            assert!(!asker.asks(TARGET.1), "one at a time");
            let task = helper.take().unwrap();
            assert_eq!(task.bytes, 768 << 10..1 << 20);
            let Grant { target, len, slot, serial, offset, .. } = task.grant;
            assert_eq!((target, len, slot, serial, offset), (0x1000, 1 << 20, 7, 9, 4096));
            ours.extend(asker.take());
            ours.extend(asker.take());
            assert_eq!(ours, [0..256 << 10, 256 << 10..512 << 10, 512 << 10..768 << 10]);
            assert_eq!((asker.take(), helper.take()), (None, None));
            assert_eq!(asker.outcome(), Help::UnderWay);
            helper.finish(&task, true);
            assert_eq!(asker.outcome(), Help::Done);
        }
    }

    #[test]
    fn two_pieces_are_both_waited_for() {
        let (mut asker, mut helper) = ends();
        asker.ask(TARGET, OF);
        let first = helper.take().unwrap();
        helper.finish(&first, true);
        let second = helper.take().unwrap();
        while asker.take().is_some() {}
        assert_eq!(asker.outcome(), Help::UnderWay);
        helper.finish(&second, true);
        assert_eq!(asker.outcome(), Help::Done);
    }

    #[test]
    fn what_cannot_be_written_is_told_once() {
        let (mut asker, mut helper) = ends();
        asker.ask(TARGET, OF);
        let task = helper.take().unwrap();
        helper.finish(&task, false);
        assert_eq!(helper.take(), None);
        while asker.take().is_some() {}
        assert_eq!(asker.outcome(), Help::Failed { from: 768 << 10 });
        assert!(!asker.asks(TARGET.1));
    }

    #[test]
    fn nothing_of_a_grant_that_was_closed_is_taken() {
        let (mut asker, mut helper) = ends();
        asker.ask(TARGET, OF);
        asker.close();
        assert_eq!((helper.take(), asker.take(), asker.outcome()), (None, None, Help::Done));
        asker.ask(TARGET, OF);
        let task = helper.take().unwrap();
        asker.close();
        assert_eq!(asker.outcome(), Help::UnderWay, "it has taken one before");
        assert_eq!(helper.take(), None);
        helper.finish(&task, true);
        assert_eq!(asker.outcome(), Help::Done);
    }

    #[test]
    fn who_is_never_helped_asks_now_and_then() {
        let (mut asker, mut helper) = ends();
        let mut asked = 0;
        for _ in 0..1600 {
            if asker.asks(TARGET.1) {
                asked += 1;
                asker.ask(TARGET, OF);
                while asker.take().is_some() {}
                assert_eq!(asker.outcome(), Help::Done);
            }
        }
        assert!((90..=110).contains(&asked), "{asked}");
        while !asker.asks(TARGET.1) {}
        asker.ask(TARGET, OF);
        let task = helper.take().unwrap();
        helper.finish(&task, true);
        while asker.take().is_some() {}
        assert_eq!(asker.outcome(), Help::Done);
        assert!(asker.asks(TARGET.1) && !asker.asks(SHARED_MIN - 1));
    }

    #[test]
    fn pieces_are_all_of_it() {
        for len in [SHARED_MIN, 65_537, 256 << 10, (256 << 10) + 1, 1 << 20, (4 << 20) - 1] {
            let (size, count) = cut(len);
            let mut end = 0;
            for index in 0..count {
                let bytes = piece(index, size as u64, len as u64);
                assert!(bytes.start == end && !bytes.is_empty());
                end = bytes.end;
            }
            assert!(end == len as u64 && count >= 2, "{len}");
        }
        assert_eq!(piece(u16::MAX, u64::MAX, 100), 100..100, "a grant of no sense");
    }

    #[test]
    fn words_of_no_sense_harm_nobody() {
        let (mut asker, mut helper) = ends();
        asker.ask(TARGET, OF);
        asker.shared.word(CLAIMS).store(u64::MAX, Ordering::Relaxed);
        assert_eq!(asker.take(), None);
        assert_eq!(asker.outcome(), Help::UnderWay, "until it is gone");
        asker.shared.word(DONE).store(u64::MAX, Ordering::Relaxed);
        assert_eq!(asker.outcome(), Help::UnderWay);
        asker.shared.word(CLAIMS).store(0, Ordering::Relaxed);
        assert_eq!(helper.take(), None);
    }
}
