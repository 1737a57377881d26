//! The board: memory that the processes of a host share, where each posts what it brings to an agreement and reads what the others do.
//!
//! Two properties make one look at it an agreement (`Comm::post` says why). What is posted is there for all or for nobody, since it is one
//! store; and it outlives who posted it. So when a process is known to have ended, nothing it did not post can still appear.
//!
//! ```text
//! slot 0:  [ process 0 | process 1 | … ]   a line of 64 bytes each, written by that process alone
//! slot 1:  [ process 0 | process 1 | … ]
//!          line: key, 0, flag, number, flag, number, 0, 0   u64 each
//! ```
//! A communicator has one slot, the same at all members, if it is free at a process when that first posts; it stays taken there until all
//! living members have told that they decided everything (`CLOSE`), so nobody misses what another writes over. Of one communicator the last two
//! posts stay: who posts number n + 2 has returned from n + 1, to which all living members have contributed, and those have returned from n.

use crate::wire::CommKey;
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

    /// Words of a slot for so many processes.
    #[must_use]
    pub const fn words(processes: u32) -> usize {
        processes as usize * LINE
    }

    /// The board in these words, for a job of so many processes.
    ///
    /// # Panics
    /// When these are not the [`words`](Self::words) of 1 to [`SLOTS_MAX`](Self::SLOTS_MAX) slots.
    #[must_use]
    pub fn new(words: &'a [AtomicU64], processes: u32) -> Self {
        let slots = words.len() / Self::words(processes);
        let whole = slots * Self::words(processes) == words.len();
        assert!(whole && (1..=Self::SLOTS_MAX as usize).contains(&slots), "words of a board");
        Board { words, processes, slots: slots as u32 }
    }

    /// Where a communicator has its posts.
    pub(crate) const fn slot(&self, key: CommKey) -> u8 {
        ((key.cid as u32 + 7 * (key.epoch as u32)) % self.slots) as u8
    }

    fn line(&self, slot: u8, process: u32) -> &'a [AtomicU64] {
        let at = (usize::from(slot) * self.processes as usize + process as usize) * LINE;
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
        let words: Vec<_> = (0..2 * Board::words(3)).map(|_| AtomicU64::new(0)).collect();
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
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    fn words() -> Arc<Vec<AtomicU64>> {
        Arc::new((0..Board::words(1)).map(|_| AtomicU64::new(0)).collect())
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
}
