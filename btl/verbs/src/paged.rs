//! Registrations of the user's own memory that are kept between operations, for devices that page on demand.
//!
//! Such a device asks the kernel where a page is when it reaches it, and the kernel tells the device when the page goes away. So
//! a kept registration cannot become stale: memory that was freed and mapped anew at the same address is what the device reaches
//! then. Nobody has to notice a `free` or `munmap`. Only our own side of puts and gets is kept so, as everywhere (law 2): no
//! peer has the key.
//!
//! A range is kept from its second use on: what is used once is registered faster than a device faults it in page by page.
//! Ranges are whole pages, their number is bounded, and what was used least lately goes first. Sources and targets are apart: a
//! device that may write has the kernel make pages writable, which memory that can only be read is not.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Registrations that are kept at most.
const MOST: usize = 128;
/// Ranges remembered that were used once.
const SEEN: usize = 64;
/// The kernel's unit, in bytes.
const PAGE: usize = 4096;

/// Kept registrations of one direction; an operation in flight holds its own too.
pub struct Paged<R> {
    /// Least lately used first.
    entries: Vec<(Range<usize>, Arc<R>)>,
    /// Used once, and not registered.
    seen: VecDeque<Range<usize>>,
    /// Keep from the first use on.
    at_once: bool,
}

/// The whole pages that memory lies in.
fn pages(start: usize, len: usize) -> Range<usize> {
    start & !(PAGE - 1)
        ..start.saturating_add(len).checked_next_multiple_of(PAGE).unwrap_or(usize::MAX)
}

fn within(inner: &Range<usize>, outer: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

impl<R> Paged<R> {
    /// None yet.
    pub fn new(at_once: bool) -> Paged<R> {
        Paged { entries: Vec::new(), seen: VecDeque::new(), at_once }
    }

    /// Whether [`of`](Paged::of) would have memory registered, or has.
    pub fn wants(&self, start: usize, len: usize) -> bool {
        let wanted = pages(start, len);
        let ranges = self.entries.iter().map(|(range, _)| range).chain(&self.seen);
        self.at_once || ranges.into_iter().any(|range| within(&wanted, range))
    }

    /// The registration that covers `len` bytes at `start`, made by `register` (of the whole pages) if there is none and they
    /// were used before; `None` when they were not, or the device refuses.
    pub fn of<E>(
        &mut self,
        start: usize,
        len: usize,
        register: impl FnOnce(Range<usize>) -> Result<R, E>,
    ) -> Option<Arc<R>> {
        let wanted = pages(start, len);
        if let Some(at) = self.entries.iter().rposition(|(range, _)| within(&wanted, range)) {
            self.entries[at..].rotate_left(1);
            return self.entries.last().map(|(_, registration)| Arc::clone(registration));
        }
        match self.seen.iter().position(|range| within(&wanted, range)) {
            Some(at) => drop(self.seen.remove(at)),
            None if self.at_once => {}
            None => {
                self.seen.truncate(SEEN - 1);
                self.seen.push_front(wanted);
                return None;
            }
        }
        self.keep(wanted, register).ok()
    }

    /// The same, from the first use on: where nothing else can be had.
    ///
    /// # Errors
    /// The device's.
    pub fn now<E>(
        &mut self,
        start: usize,
        len: usize,
        register: impl FnOnce(Range<usize>) -> Result<R, E>,
    ) -> Result<Arc<R>, E> {
        self.keep(pages(start, len), register)
    }

    fn keep<E>(
        &mut self,
        wanted: Range<usize>,
        register: impl FnOnce(Range<usize>) -> Result<R, E>,
    ) -> Result<Arc<R>, E> {
        let registration = Arc::new(register(wanted.clone())?);
        // What it covers is of no more use.
        self.entries.retain(|(range, _)| !within(range, &wanted));
        if self.entries.len() == MOST {
            self.entries.remove(0);
        }
        self.entries.push((wanted, Arc::clone(&registration)));
        Ok(registration)
    }

    /// Lets go of all: the device has no room for something else. Whether there was any.
    pub fn clear(&mut self) -> bool {
        let any = !self.entries.is_empty();
        self.entries.clear();
        any
    }

    /// Registrations that are kept.
    pub fn count(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Has `paged` make one of `len` bytes at `start`: what it is of, and whether it was made just now.
    fn get(
        paged: &mut Paged<Range<usize>>,
        start: usize,
        len: usize,
    ) -> (Option<Range<usize>>, bool) {
        let made = Cell::new(false);
        let kept = paged.of(start, len, |pages| {
            made.set(true);
            Ok::<_, ()>(pages)
        });
        (kept.map(|range| (*range).clone()), made.get())
    }

    #[test]
    fn memory_is_kept_from_its_second_use_on() {
        let mut paged = Paged::new(false);
        let whole = 0x1000..0x4000;
        assert!(!paged.wants(0x1010, 0x2000));
        assert_eq!(get(&mut paged, 0x1010, 0x2000), (None, false));
        assert!(paged.wants(0x1010, 0x2000) && !paged.wants(0, 0x2000));
        assert_eq!(get(&mut paged, 0x1010, 0x2000), (Some(whole.clone()), true));
        assert!(paged.wants(0x1010, 0x2000));
        assert_eq!(get(&mut paged, 0x3fff, 1), (Some(whole.clone()), false), "a part of it");
        assert_eq!(get(&mut paged, 0x3fff, 2), (None, false), "a page more");
        assert_eq!(paged.count(), 1);
    }

    #[test]
    fn at_once_is_from_the_first_use_on() {
        let mut paged = Paged::new(true);
        assert_eq!(get(&mut paged, 0x1000, 0x1000), (Some(0x1000..0x2000), true));
        assert_eq!(get(&mut paged, 0x1000, 0x1000), (Some(0x1000..0x2000), false));
    }

    #[test]
    fn what_a_longer_one_covers_goes() {
        let mut paged = Paged::new(true);
        let inner = paged.now(0x2000, 0x1000, Ok::<_, ()>).unwrap();
        assert_eq!(get(&mut paged, 0x1000, 0x3000), (Some(0x1000..0x4000), true));
        assert_eq!((paged.count(), Arc::strong_count(&inner)), (1, 1));
    }

    #[test]
    fn the_least_lately_used_goes_first_and_what_is_in_use_lives_on() {
        let mut paged = Paged::new(true);
        let used = paged.now(0, PAGE, Ok::<_, ()>).unwrap();
        for nth in 1..MOST {
            get(&mut paged, nth * PAGE, PAGE);
        }
        assert_eq!(get(&mut paged, 0, PAGE), (Some(0..PAGE), false));
        get(&mut paged, MOST * PAGE, PAGE);
        assert_eq!(paged.count(), MOST);
        assert!(!get(&mut paged, 0, PAGE).1, "it was used after the others");
        assert!(get(&mut paged, PAGE, PAGE).1, "it was the oldest");
        assert!(paged.clear() && paged.count() == 0 && !paged.clear());
        assert_eq!(Arc::strong_count(&used), 1);
    }

    #[test]
    fn a_refusal_keeps_nothing() {
        let mut paged = Paged::<()>::new(true);
        assert!(paged.of(0, 1, |_| Err(())).is_none());
        assert_eq!(paged.now(0, 1, |_| Err(7)), Err(7));
        assert_eq!(paged.count(), 0);
    }

    #[test]
    fn ranges_at_the_end_of_all_addresses_are_ranges() {
        assert_eq!(pages(usize::MAX - 1, 10), usize::MAX - 4095..usize::MAX);
        assert_eq!(pages(4096, 1), 4096..8192);
    }
}
