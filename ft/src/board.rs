//! The board: memory that the processes of a host share, where each posts what it brings to an agreement, and what it revokes, and reads what
//! the others do.
//!
//! Two properties make one look at it an agreement (`Comm::post` says why). What is posted is there for all or for nobody, since it is one
//! store; and it outlives who posted it. So when a process is known to have ended, nothing it did not post can still appear.
//!
//! ```text
//! bell:       how often it was rung (40 bits), who rang last (24 bits)   a line of 64 bytes, written by all
//! process 0:  [ heard | revocations ]    two lines each, written by that process alone: up to which ring of the bell it has
//! process 1:  [ heard | revocations ]    heard all, and eight words: scope and key of a communicator, or 0
//! slot 0:     [ process 0 | process 1 | … ]   a line each, written by that process alone
//! slot 1:     [ process 0 | process 1 | … ]
//!             line: key, 0, flag, number, flag, number, 0, 0   u64 each
//! ```
//! How revocations are told by it says `herald`.
//!
//! A communicator has one slot, the same at all members, if it is free at a process when that first posts; it stays taken there until all
//! living members have told that they decided everything (`CLOSE`), so nobody misses what another writes over. Of one communicator the last two
//! posts stay: who posts number n + 2 has returned from n + 1, to which all living members have contributed, and those have returned from n.

use crate::wire::{CommKey, Scope};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a line.
const LINE: usize = 8;
/// Where a line has its posts: pairs of flag and number.
const POSTS: usize = 2;
/// Set in the key of a line that belongs to a communicator.
const TAKEN: u64 = 1 << 63;
/// Lines of a process before the slots.
const OWN: usize = 2;
/// Revocations of one process that can be there at a time.
pub(crate) const REVOCATIONS: usize = LINE;
/// Where a word that revokes has its scope.
const SCOPE: u32 = 32;
/// Where the bell has its count.
const COUNT: u32 = 24;

/// The board of a host, as one process sees it. All zero at first.
#[derive(Clone, Copy, Debug)]
pub struct Board<'a> {
    words: &'a [AtomicU64],
    processes: u32,
    slots: u32,
}

impl<'a> Board<'a> {
    /// Most slots that a board has.
    pub const SLOTS_MAX: u32 = 64;

    /// Words of a board of so many slots for so many processes.
    #[must_use]
    pub const fn words(processes: u32, slots: u32) -> usize {
        LINE * (1 + processes as usize * (OWN + slots as usize))
    }

    /// The board in these words, for a job of so many processes.
    ///
    /// # Panics
    /// When these are not the [`words`](Self::words) of 1 to [`SLOTS_MAX`](Self::SLOTS_MAX) slots, or for more than 2²⁴ processes.
    #[must_use]
    pub fn new(words: &'a [AtomicU64], processes: u32) -> Self {
        let lines = (words.len() / LINE).saturating_sub(1) / processes as usize;
        let slots = lines.saturating_sub(OWN) as u32;
        let whole = Self::words(processes, slots) == words.len();
        assert!(whole && (1..=Self::SLOTS_MAX).contains(&slots), "words of a board");
        assert!(processes <= 1 << COUNT, "a board for {processes} processes");
        Board { words, processes, slots }
    }

    /// How often the bell was rung, and by whom last.
    #[inline]
    pub(crate) fn bell(&self) -> Ring {
        Ring(self.words[0].load(Ordering::Acquire))
    }

    /// Rings the bell: whoever sees it sees what this process has posted before.
    pub(crate) fn ring(&self, me: u32) -> Ring {
        let mut last = self.words[0].load(Ordering::Relaxed);
        loop {
            let next = ((last >> COUNT) + 1) << COUNT | u64::from(me);
            let rung =
                self.words[0].compare_exchange(last, next, Ordering::AcqRel, Ordering::Relaxed);
            match rung {
                Ok(_) => return Ring(next),
                Err(other) => last = other,
            }
        }
    }

    fn own(&self, process: u32, line: usize) -> &'a [AtomicU64] {
        let at = (1 + process as usize * OWN + line) * LINE;
        &self.words[at..at + LINE]
    }

    /// The ring up to which a process has heard everything.
    pub(crate) fn heard(&self, process: u32) -> u64 {
        self.own(process, 0)[0].load(Ordering::Acquire)
    }

    /// This process has heard everything up to a ring: what was posted before may be written over.
    pub(crate) fn has_heard(&self, me: u32, ring: Ring) {
        self.own(me, 0)[0].store(ring.count(), Ordering::Release);
    }

    /// Writes a revocation to place `at` of this process.
    pub(crate) fn revoke(&self, me: u32, at: usize, key: CommKey, scope: Scope) {
        let word = word(key) | (scope as u64) << SCOPE;
        self.own(me, 1)[at].store(word, Ordering::Release);
    }

    /// The revocations that are written at a process.
    pub(crate) fn revocations(&self, process: u32) -> impl Iterator<Item = (CommKey, Scope)> {
        self.own(process, 1).iter().filter_map(|word| {
            let word = word.load(Ordering::Acquire);
            let scope = match (word & !TAKEN) >> SCOPE {
                1 => Scope::Collectives,
                2 => Scope::All,
                _ => return None,
            };
            Some((CommKey { cid: (word >> 16) as u16, epoch: word as u16 }, scope))
        })
    }

    /// Where a communicator has its posts.
    pub(crate) const fn slot(&self, key: CommKey) -> u8 {
        ((key.cid as u32 + 7 * (key.epoch as u32)) % self.slots) as u8
    }

    fn line(&self, slot: u8, process: u32) -> &'a [AtomicU64] {
        let before = 1 + self.processes as usize * (OWN + usize::from(slot));
        let at = (before + process as usize) * LINE;
        &self.words[at..at + LINE]
    }

    /// Gives the line of this process to a communicator; nothing is posted in it.
    pub(crate) fn claim(&self, slot: u8, me: u32, key: CommKey) {
        self.clear(slot, me);
        self.line(slot, me)[0].store(word(key), Ordering::Release);
    }

    /// Takes the line of this process from a communicator, unless another has it by now.
    pub fn release(&self, slot: u8, me: u32, key: CommKey) {
        if self.line(slot, me)[0].load(Ordering::Relaxed) == word(key) {
            self.clear(slot, me);
        }
    }

    fn clear(&self, slot: u8, me: u32) {
        let line = self.line(slot, me);
        line[0].store(0, Ordering::Relaxed);
        // Who reads the next key after this finds nothing under it.
        line[POSTS + 1].store(0, Ordering::Release);
        line[POSTS + 3].store(0, Ordering::Release);
    }

    /// Posts a flag in a line that is this process's and was claimed.
    #[inline]
    pub(crate) fn post(&self, slot: u8, me: u32, seq: u64, flag: u64) {
        let line = self.line(slot, me);
        let at = POSTS + 2 * (seq & 1) as usize;
        line[at].store(flag, Ordering::Relaxed);
        line[at + 1].store(seq + 1, Ordering::Release);
    }

    /// What `process` has posted under this number of a communicator.
    #[inline]
    pub(crate) fn read(&self, slot: u8, process: u32, key: CommKey, seq: u64) -> Option<u64> {
        let line = self.line(slot, process);
        let at = POSTS + 2 * (seq & 1) as usize;
        let there = line[0].load(Ordering::Acquire) == word(key)
            && line[at + 1].load(Ordering::Acquire) == seq + 1;
        there.then(|| line[at].load(Ordering::Relaxed))
    }
}

/// What the bell says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Ring(u64);

impl Ring {
    /// How often it was rung.
    pub const fn count(self) -> u64 {
        self.0 >> COUNT
    }

    /// Who has rung last.
    pub const fn who(self) -> u32 {
        self.0 as u32 & ((1 << COUNT) - 1)
    }
}

const fn word(key: CommKey) -> u64 {
    TAKEN | (key.cid as u64) << 16 | key.epoch as u64
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const KEY: CommKey = CommKey { cid: 5, epoch: 2 };
    const OTHER: CommKey = CommKey { cid: 5, epoch: 4 };

    #[test]
    fn what_is_posted_is_read_under_its_name_alone() {
        let words: Vec<_> = (0..Board::words(3, 2)).map(|_| AtomicU64::new(0)).collect();
        let board = Board::new(&words, 3);
        let slot = board.slot(KEY);
        assert_eq!(slot, board.slot(OTHER), "or nothing is tested");
        assert_eq!(board.read(slot, 2, KEY, 0), None);
        board.claim(slot, 2, KEY);
        assert_eq!(board.read(slot, 2, KEY, 0), None);
        board.post(slot, 2, 0, !0);
        board.post(slot, 2, 1, 0);
        assert_eq!([0, 1].map(|seq| board.read(slot, 2, KEY, seq)), [Some(!0), Some(0)]);
        board.post(slot, 2, 2, 7);
        assert_eq!([0, 1, 2].map(|seq| board.read(slot, 2, KEY, seq)), [None, Some(0), Some(7)]);
        assert_eq!(board.read(slot, 2, OTHER, 2), None);
        assert_eq!(board.read(slot, 1, KEY, 2), None);
        assert_eq!(board.read(slot ^ 1, 2, KEY, 2), None);
        board.claim(slot, 2, OTHER);
        assert_eq!(board.read(slot, 2, OTHER, 2), None, "nothing is left under the next name");
        board.post(slot, 2, 2, 9);
        assert_eq!(board.read(slot, 2, OTHER, 2), Some(9));
        board.release(slot, 2, KEY);
        assert_eq!(board.read(slot, 2, OTHER, 2), Some(9), "it is not that one's any more");
        board.release(slot, 2, OTHER);
        assert_eq!(board.read(slot, 2, OTHER, 2), None);
        board.claim(slot, 2, OTHER);
        assert_eq!(board.read(slot, 2, OTHER, 2), None, "the same name again");
    }

    #[test]
    fn a_revocation_is_read_as_it_was_written() {
        let words: Vec<_> = (0..Board::words(3, 2)).map(|_| AtomicU64::new(0)).collect();
        let board = Board::new(&words, 3);
        let last = CommKey { cid: u16::MAX, epoch: u16::MAX };
        board.revoke(1, 0, KEY, Scope::All);
        board.revoke(1, 7, last, Scope::Collectives);
        let there = |process| board.revocations(process).collect::<Vec<_>>();
        assert_eq!(there(1), [(KEY, Scope::All), (last, Scope::Collectives)]);
        assert!(there(0).is_empty() && there(2).is_empty());
        assert_eq!((board.bell(), board.ring(2).count()), (Ring::default(), 1));
        let ring = board.ring(1);
        assert_eq!((ring.count(), ring.who(), board.bell()), (2, 1, ring));
        board.has_heard(0, ring);
        assert_eq!([0, 1, 2].map(|process| board.heard(process)), [2, 0, 0]);
        for garbage in [1, u64::MAX, 3 << SCOPE, TAKEN] {
            words[3 * LINE - 1 + 2 * LINE].store(garbage, Ordering::Relaxed);
            assert_eq!(there(1).len(), 1, "{garbage:#x} revokes nothing");
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    fn words() -> Arc<Vec<AtomicU64>> {
        Arc::new((0..Board::words(1, 1)).map(|_| AtomicU64::new(0)).collect())
    }

    /// A reader finds the flag that was posted under the name and number that it asks for, or nothing: never one of another name or number.
    #[test]
    fn loom_a_post_is_whole() {
        const OLD: CommKey = CommKey { cid: 0, epoch: 0 };
        const NEW: CommKey = CommKey { cid: 1, epoch: 0 };
        loom::model(move || {
            let words = words();
            let board = Board::new(&words, 1);
            let slot = board.slot(OLD);
            board.claim(slot, 0, OLD);
            board.post(slot, 0, 0, 1);
            let writer = {
                let words = Arc::clone(&words);
                thread::spawn(move || {
                    let board = Board::new(&words, 1);
                    board.claim(slot, 0, NEW);
                    board.post(slot, 0, 0, 2);
                    board.post(slot, 0, 1, 3);
                })
            };
            for (seq, flag) in [(1, 3), (0, 2)] {
                let read = board.read(slot, 0, NEW, seq);
                assert!(read.is_none_or(|read| read == flag), "{read:?} for {seq}");
            }
            writer.join().expect("the writer ends");
            assert_eq!(board.read(slot, 0, NEW, 1), Some(3));
        });
    }

    /// Who hears the bell finds what was revoked before it was rung, also when two ring; and who has found it says so before it is written over.
    #[test]
    fn loom_what_is_rung_for_is_there() {
        loom::model(|| {
            let words: Arc<Vec<AtomicU64>> =
                Arc::new((0..Board::words(3, 1)).map(|_| AtomicU64::new(0)).collect());
            let key = |epoch| CommKey { cid: 1, epoch };
            let tell = |me: u32| {
                let words = Arc::clone(&words);
                thread::spawn(move || {
                    let board = Board::new(&words, 3);
                    board.revoke(me, 0, key(me as u16), Scope::All);
                    let ring = board.ring(me);
                    if me == 0 && board.heard(2) >= ring.count() {
                        board.revoke(0, 0, key(7), Scope::All);
                    }
                })
            };
            let threads = [tell(0), tell(1)];
            let board = Board::new(&words, 3);
            let ring = board.bell();
            let found: Vec<_> = (0..2).map(|who| board.revocations(who).next()).collect();
            board.has_heard(2, ring);
            if ring.count() > 0 {
                let who = ring.who() as usize;
                assert_eq!(found[who], Some((key(who as u16), Scope::All)));
            }
            if ring.count() == 2 {
                assert!(found.iter().all(Option::is_some));
            }
            threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
        });
    }
}
