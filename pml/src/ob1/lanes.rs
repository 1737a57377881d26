//! The hash table from (source, tag) to the queue of what waits for that pair.
//!
//! Open addressing, multiply-shift, linear probing at half load: one multiplication and usually one cache line. A lane
//! whose lists ran empty stays, since tags recur; when the table is full of such, it is rebuilt without them.

use super::list::List;
use super::request::Source;

/// Kinds of lists that entries are in.
pub(super) const POSTED: usize = 0;
/// Unexpected messages of one (source, tag).
pub(super) const EXACT: usize = 0;
/// Unexpected messages of one source with tags of users.
pub(super) const BY_SOURCE: usize = 1;
/// Unexpected messages of a communicator.
pub(super) const ARRIVED: usize = 2;
/// Unexpected messages of one tag.
pub(super) const BY_TAG: usize = 3;

/// The source of a wildcard lane. No group is that large.
pub(super) const ANY_SOURCE: u32 = u32::MAX - 1;

/// What waits for one (source, tag).
#[derive(Clone, Copy)]
pub(super) struct Lane<const UNEXPECTED: usize> {
    key: u64,
    pub posted: List<POSTED>,
    pub unexpected: List<UNEXPECTED>,
}

impl<const UNEXPECTED: usize> Lane<UNEXPECTED> {
    const VACANT: Self = Lane { key: VACANT, posted: List::EMPTY, unexpected: List::EMPTY };

    fn is_idle(&self) -> bool {
        self.posted.is_empty() && self.unexpected.is_empty()
    }
}

const VACANT: u64 = u64::MAX;
const SMALLEST: usize = 16;

/// The pair as one word. Never [`VACANT`], for no source is `u32::MAX`.
#[inline(always)]
pub(super) const fn pair(source: u32, tag: i32) -> u64 {
    (source as u64) << 32 | tag as u32 as u64
}

#[inline]
pub(super) const fn source_word(source: Source) -> u32 {
    match source {
        Source::Any => ANY_SOURCE,
        Source::Rank(rank) => rank,
    }
}

/// The table. Empty, it allocates nothing.
pub(super) struct Lanes<const UNEXPECTED: usize> {
    lanes: Vec<Lane<UNEXPECTED>>,
    /// Lanes with a key.
    keyed: usize,
    shift: u32,
}

impl<const UNEXPECTED: usize> Lanes<UNEXPECTED> {
    pub const fn new() -> Self {
        Lanes { lanes: Vec::new(), keyed: 0, shift: 0 }
    }

    /// Where the lane of `key` is, or, if there is none, may be made (`Err`); beyond the end in an empty table.
    #[inline(always)]
    fn probe(&self, key: u64) -> Result<usize, usize> {
        let mask = self.lanes.len().wrapping_sub(1);
        let mut at = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize & mask;
        loop {
            match self.lanes.get(at) {
                Some(lane) if lane.key == key => return Ok(at),
                Some(lane) if lane.key != VACANT => at = (at + 1) & mask,
                _ => return Err(at),
            }
        }
    }

    /// The lane of `key`, if it was ever used.
    #[inline(always)]
    pub fn find(&mut self, key: u64) -> Option<&mut Lane<UNEXPECTED>> {
        let at = self.probe(key).ok()?;
        Some(&mut self.lanes[at])
    }

    /// The lane of `key`, made if there is none.
    #[inline(always)]
    pub fn lane(&mut self, key: u64) -> &mut Lane<UNEXPECTED> {
        match self.probe(key) {
            Ok(at) => &mut self.lanes[at],
            Err(_) => self.add(key),
        }
    }

    #[cold]
    fn add(&mut self, key: u64) -> &mut Lane<UNEXPECTED> {
        if (self.keyed + 1) * 2 > self.lanes.len() {
            self.rebuild();
        }
        let (Ok(at) | Err(at)) = self.probe(key);
        self.keyed += 1;
        self.lanes[at].key = key;
        &mut self.lanes[at]
    }

    /// Drops idle lanes, and doubles the table when that does not make half of the allowed room.
    fn rebuild(&mut self) {
        let busy = self.lanes.iter().filter(|lane| !lane.is_idle()).count();
        if busy == 0 && !self.lanes.is_empty() {
            // The usual case of tags that do not recur (collectives): nothing to keep, and room enough.
            self.lanes.fill(Lane::VACANT);
            self.keyed = 0;
            return;
        }
        let mut size = self.lanes.len().max(SMALLEST);
        while busy * 4 >= size {
            size *= 2;
        }
        let old = std::mem::replace(&mut self.lanes, vec![Lane::VACANT; size]);
        self.shift = u64::BITS - size.trailing_zeros();
        self.keyed = busy;
        for lane in old.into_iter().filter(|lane| !lane.is_idle()) {
            let (Ok(at) | Err(at)) = self.probe(lane.key);
            self.lanes[at] = lane;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ob1::list::{Linked, Links};
    use crate::ob1::slots::Slots;

    struct Node(Links);

    impl Linked<POSTED> for Node {
        fn links(&self) -> &Links {
            &self.0
        }
        fn links_mut(&mut self) -> &mut Links {
            &mut self.0
        }
    }

    #[test]
    fn busy_lanes_survive_growth_and_idle_ones_do_not_fill_the_table() {
        let mut slots = Slots::new();
        let mut lanes = Lanes::<EXACT>::new();
        for tag in 0..100 {
            let slot = slots.insert(Node(Links::NONE)).slot;
            lanes.lane(pair(7, tag)).posted.push_back(&mut slots, slot);
        }
        for tag in 0..100 {
            let slot = lanes.find(pair(7, tag)).expect("it is busy").posted.head();
            assert_eq!(slot, tag as u32);
        }
        for tag in 1000..100_000 {
            lanes.lane(pair(ANY_SOURCE, -tag));
        }
        assert_eq!(lanes.lanes.len(), 512, "100 busy lanes, whatever came and went");
        assert!(lanes.find(pair(7, 99)).is_some());
        assert!(lanes.find(pair(8, 99)).is_none());
    }
}
