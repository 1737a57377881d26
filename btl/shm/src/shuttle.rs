//! Shuttles: memory for payloads that goes to and fro between two processes.
//!
//! Between cores that share a cache, whoever reads a line that another core has just stored gets it into its own cache, and it
//! seems to be the other's no more (inferred from what follows, two Zen 4 cores). A writer that comes back to lines that its
//! reader has read a moment ago waits for each of them; who answers on the very lines that it has just read waits for nothing.
//! Measured in turns, messages to and fro, a loop with nothing but copies in it: a ring each way of 64 KiB 7.7 µs for 64 KiB,
//! of 1 MiB 3.9, of 2 MiB, twice a core's own cache, 2.5; one piece of memory for both ways 2.15. The same for 16 KiB: 0.89 µs
//! and 0.73, for 4 KiB 0.40 and 0.25. For 1 MiB it makes no difference.
//!
//! Between cores that share no cache the same holds, and stores past the cache, which are best for a stream one way (`distance.rs`), gain
//! nothing: on two Zen 3 cores, medians in turns, 2 KiB 1.32 to 0.86 µs, 4 KiB 1.35 to 1.14, 64 KiB 7.8 to 7.5, 128 KiB 15.7 to 13.6.
//!
//! Each of two processes brings [`OWN`] shuttles, at the end of its ring's segment. A frame whose payload lies in a shuttle
//! takes it along: from then on the reader holds it, and nobody else touches it until the reader sends it back with a
//! payload of its own. Who holds none, as in a stream one way, writes to the bulk area. The one that was read last is written
//! first: its lines are in the nearest cache.
//!
//! Both sides keep book of who holds what, so a record that names a shuttle that its writer does not hold is malformed
//! (law 9). A pair's segments end together, and with them their shuttles.

use crate::record::{Malformed, Mark};
use crate::shared::Shared;

/// Shuttles that each side brings: one would do for messages to and fro, two let both sides send at once.
pub(crate) const OWN: usize = 2;
const _: () = assert!(2 * OWN <= Mark::MAX as usize);

/// Where the shuttles of one segment are.
#[derive(Clone, Debug)]
pub(crate) struct Dock {
    /// The segment.
    pub(crate) shared: Shared,
    /// Where the first one starts.
    pub(crate) start: usize,
    /// Bytes of each.
    pub(crate) size: usize,
}

/// A shuttle as this side numbers them: its own from 0, then those that the peer brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shuttle(u8);

impl Shuttle {
    /// How a record of ours names it: what is in the ring's own segment comes first.
    #[inline(always)]
    pub(crate) const fn mark(self) -> Mark {
        Mark::new(self.0 + 1)
    }

    /// The first of our own.
    #[cfg(test)]
    pub(crate) const fn first() -> Shuttle {
        Shuttle(0)
    }

    /// Which one the number `0 < mark` of a record of the peer's names; `None`: there is none of that number.
    #[inline(always)]
    const fn numbered(mark: u8) -> Option<Shuttle> {
        const HALF: u8 = OWN as u8;
        const ALL: u8 = 2 * HALF;
        match mark - 1 {
            n @ ..HALF => Some(Shuttle(n + HALF)),
            n @ HALF..ALL => Some(Shuttle(n - HALF)),
            _ => None,
        }
    }
}

/// The shuttles of a pair, as one side sees them.
#[derive(Debug)]
pub(crate) struct Shuttles {
    /// Of our segment, then of the peer's.
    docks: [Dock; 2],
    /// Those we hold, the one that was read last at the end.
    held: [Shuttle; 2 * OWN],
    count: usize,
}

impl Shuttles {
    /// Each side holds what it brings.
    pub(crate) fn new(ours: Dock, theirs: Dock) -> Self {
        let mut held = [Shuttle(0); 2 * OWN];
        for (i, shuttle) in held[..OWN].iter_mut().enumerate() {
            *shuttle = Shuttle(i as u8);
        }
        Shuttles { docks: [ours, theirs], held, count: OWN }
    }

    #[inline(always)]
    pub(crate) fn dock(&self, shuttle: Shuttle) -> &Dock {
        &self.docks[usize::from(shuttle.0) / OWN]
    }

    /// Where the shuttle is: its segment, its first byte.
    #[inline(always)]
    pub(crate) fn place(&self, shuttle: Shuttle) -> (&Shared, usize) {
        let dock = self.dock(shuttle);
        (&dock.shared, dock.start + usize::from(shuttle.0) % OWN * dock.size)
    }

    /// The shuttle to send `len` bytes in, if one is held that takes them. It is the peer's from now on, unless it is
    /// [kept](Shuttles::keep).
    #[inline(always)]
    pub(crate) fn lend(&mut self, len: usize) -> Option<Shuttle> {
        let last = self.count.checked_sub(1)?;
        let shuttle = self.held[last];
        if len > self.dock(shuttle).size {
            return None;
        }
        self.count = last;
        Some(shuttle)
    }

    /// Holds a shuttle that was read, or could not be sent.
    #[inline(always)]
    pub(crate) fn keep(&mut self, shuttle: Shuttle) {
        self.held[self.count] = shuttle;
        self.count += 1;
    }

    /// Which shuttle a record of the peer's with `len` bytes of payload names.
    ///
    /// # Errors
    /// When the peer does not hold it, or it is too short.
    #[inline(always)]
    pub(crate) fn named(&self, mark: Mark, len: usize) -> Result<Option<Shuttle>, Malformed> {
        if mark == Mark::NONE {
            return Ok(None);
        }
        match Shuttle::numbered(mark.get()) {
            Some(shuttle) if !self.held[..self.count].contains(&shuttle) => {
                if len > self.dock(shuttle).size {
                    return Err(Malformed("a payload longer than its shuttle"));
                }
                Ok(Some(shuttle))
            }
            _ => Err(Malformed("a shuttle that its writer does not hold")),
        }
    }
}
