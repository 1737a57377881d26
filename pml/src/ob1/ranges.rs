//! Which bytes of something are here: sorted, disjoint ranges, bounded, because a peer chooses them (law 9).

use smallvec::SmallVec;
use std::ops::Range;

/// More pieces than any honest sender leaves apart.
const PIECES_MAX: usize = 4096;

/// What came of a new range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Added {
    /// None of it was here.
    New,
    /// All of it was here.
    Again,
    /// Some of it was here, or there are too many pieces.
    Refused,
}

/// The ranges.
#[derive(Default)]
pub(super) struct Ranges(SmallVec<[Range<u64>; 2]>);

impl Ranges {
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a range of which nothing is here yet.
    pub fn add(&mut self, new: Range<u64>) -> Added {
        if new.is_empty() {
            return Added::New;
        }
        // The first that does not lie wholly before it.
        let at = self.0.partition_point(|range| range.end <= new.start);
        if let Some(next) = self.0.get(at)
            && next.start < new.end
        {
            let inside = next.start <= new.start && new.end <= next.end;
            return if inside { Added::Again } else { Added::Refused };
        }
        let joins_next = self.0.get(at).is_some_and(|next| next.start == new.end);
        let joins_last = at > 0 && self.0[at - 1].end == new.start;
        match (joins_last, joins_next) {
            (true, true) => {
                self.0[at - 1].end = self.0[at].end;
                self.0.remove(at);
            }
            (true, false) => self.0[at - 1].end = new.end,
            (false, true) => self.0[at].start = new.start,
            (false, false) if self.0.len() >= PIECES_MAX => return Added::Refused,
            (false, false) => self.0.insert(at, new),
        }
        Added::New
    }

    /// Whether all of it is here.
    pub fn holds(&self, range: &Range<u64>) -> bool {
        self.0.iter().any(|r| r.start <= range.start && range.end <= r.end)
    }

    /// Takes a range out again that was added.
    pub fn remove(&mut self, old: &Range<u64>) {
        let Some(at) = self.0.iter().position(|r| r.start <= old.start && old.end <= r.end) else {
            return;
        };
        let whole = self.0[at].clone();
        self.0.remove(at);
        for part in [old.end..whole.end, whole.start..old.start] {
            if !part.is_empty() {
                self.0.insert(at, part);
            }
        }
    }

    /// Whether it is exactly `0..end`.
    pub fn is_all(&self, end: u64) -> bool {
        self.0.len() == 1 && self.0[0] == (0..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_a_set_of_bytes(steps in proptest::collection::vec((0..40u64, 0..12u64, any::<bool>()), 0..40)) {
            let (mut ranges, mut bytes) = (Ranges::default(), [false; 64]);
            for (start, len, remove) in steps {
                let range = start..start + len;
                let there = range.clone().filter(|&at| bytes[at as usize]).count() as u64;
                if remove && there == len && len > 0 {
                    ranges.remove(&range);
                    range.for_each(|at| bytes[at as usize] = false);
                    continue;
                }
                let want = match there {
                    0 => Added::New,
                    there if there == len => Added::Again,
                    _ => Added::Refused,
                };
                prop_assert_eq!(ranges.add(range.clone()), want);
                if want == Added::New {
                    range.for_each(|at| bytes[at as usize] = true);
                }
                let pieces = (0..64).filter(|&at| bytes[at] && (at == 0 || !bytes[at - 1])).count();
                prop_assert_eq!(ranges.0.len(), pieces);
            }
        }
    }

    #[test]
    fn pieces_are_bounded() {
        let mut ranges = Ranges::default();
        for at in 0..PIECES_MAX as u64 {
            assert_eq!(ranges.add(2 * at..2 * at + 1), Added::New);
        }
        assert_eq!(ranges.add(1 << 40..2 << 40), Added::Refused);
        assert_eq!(ranges.add(1..2), Added::New);
    }
}
