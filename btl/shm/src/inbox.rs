//! The inbox: one small segment of each process, which all its writers map.
//!
//! ```text
//!  SUMMARY: one bit for 256 bells │ SLEEPING │ GENERATIONS: one word a registration │ BELLS: one bit each
//! ```
//! A ring that its reader does not look at (*parked*) has a *bell* here. The writer, after publishing into a
//! parked ring, sets the bell's bit, then the summary's; the reader looks at the one summary word. Bits are hints
//! only: a peer that sets wrong ones makes us look at quiet rings, nothing more (law 9).

#[cfg(all(test, loom))]
mod model;

use crate::primitive::{AtomicU64, Ordering, fence};
use crate::shared::{APART, Shared};

const SUMMARY: usize = 0;
const SLEEPING: usize = APART;
const BELLS: usize = if cfg!(loom) { 2 * APART } else { 4096 };
/// Words of bells that one bit of the summary stands for.
const GROUP: usize = 4;
/// How many bells there are: the most peers one process can have through this transport.
pub(crate) const BELL_COUNT: usize = 64 * GROUP * if cfg!(loom) { 1 } else { 64 };
const GENERATIONS: usize = BELLS + BELL_COUNT / 8;
/// How many registrations there can be at a time.
pub(crate) const REGISTRATIONS: usize = if cfg!(loom) { 1 } else { 2048 };
/// Bytes of an inbox.
pub(crate) const INBOX_LEN: usize =
    (GENERATIONS + REGISTRATIONS * 8).next_multiple_of(if cfg!(loom) { 8 } else { 4096 });

/// An inbox, our own or a peer's.
#[derive(Clone, Debug)]
pub(crate) struct Inbox(Shared);

impl Inbox {
    /// # Panics
    /// When the segment is too small.
    pub(crate) fn new(shared: Shared) -> Self {
        assert!(shared.len() >= INBOX_LEN, "an inbox in too small a segment");
        Inbox(shared)
    }

    fn bells(&self, word: usize) -> &AtomicU64 {
        self.0.word(BELLS + 8 * word)
    }

    /// Writer: rings bell `bell`. Returns whether the owner sleeps and is ours to wake.
    pub(crate) fn ring(&self, bell: u32) -> bool {
        let bell = bell as usize % BELL_COUNT;
        let bit = 1 << (bell % 64);
        let word = self.bells(bell / 64);
        // Still ringing: the owner will look after it has cleared the bit.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::AcqRel);
        }
        let group = 1 << (bell / 64 / GROUP);
        let summary = self.0.word(SUMMARY);
        if summary.load(Ordering::Relaxed) & group == 0 {
            summary.fetch_or(group, Ordering::AcqRel);
        }
        // The bell is up before we look whether the owner sleeps; `sleep` has the other half.
        fence(Ordering::SeqCst);
        let sleeping = self.0.word(SLEEPING);
        sleeping.load(Ordering::Relaxed) != 0 && sleeping.swap(0, Ordering::Relaxed) != 0
    }

    /// Owner: whether any bell rang.
    #[inline(always)]
    pub(crate) fn rang(&self) -> bool {
        self.0.word(SUMMARY).load(Ordering::Relaxed) != 0
    }

    /// Owner: stops all bells and says which rang.
    pub(crate) fn answer(&self, mut rang: impl FnMut(u32)) {
        let mut groups = self.0.word(SUMMARY).swap(0, Ordering::AcqRel);
        while groups != 0 {
            let group = groups.trailing_zeros() as usize;
            groups &= groups - 1;
            for word in group * GROUP..(group + 1) * GROUP {
                let mut bits = self.bells(word).swap(0, Ordering::AcqRel);
                while bits != 0 {
                    rang((word * 64) as u32 + bits.trailing_zeros());
                    bits &= bits - 1;
                }
            }
        }
    }

    /// Owner: about to sleep. Returns whether a bell rang already; who rings after this wakes us.
    pub(crate) fn sleep(&self) -> bool {
        self.0.word(SLEEPING).store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.0.word(SUMMARY).load(Ordering::Relaxed) != 0
    }

    /// Owner: awake again.
    pub(crate) fn awake(&self) {
        self.0.word(SLEEPING).store(0, Ordering::Relaxed);
    }

    /// The generation of a registration; odd while it is valid.
    pub(crate) fn generation(&self, slot: usize) -> &AtomicU64 {
        self.0.word(GENERATIONS + 8 * (slot % REGISTRATIONS))
    }
}
