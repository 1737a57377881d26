//! The graph on which notices spread: a circulant ("binomial") graph over a ring of ranks.
//!
//! Rank i tells the ranks i + 1, i + 2, i + 4, … of the ring; where one of them is known dead, the first living rank
//! after it takes its place. Each rank that hears something for the first time tells its own neighbours.
//!
//! **What that gives.** With fewer failures than neighbours (⌈log₂ n⌉) some path of living ranks remains, so the notice
//! arrives without any repair. With more, the repair does it: the nearest living rank clockwise is always a neighbour
//! once those between are *known* dead, and whoever learns that a neighbour died tells the replacement all that it had
//! told the dead one. So if every living rank learns sooner or later
//! who died between it and the next living rank on the ring, then what one living rank knows goes clockwise to all.
//! For failure notices that is the detector's duty (its heartbeat ring is this ring, or the launcher tells); for revoke
//! notices it follows from the delivery of failure notices to all.
//!
//! **Time.** What came over 2^k is sent on over 2^(k−1), …, 1 first: that is the binomial broadcast tree, so the others,
//! which are there for failures, never delay it.

use crate::set::RankSet;
use smallvec::SmallVec;

/// Neighbours in the order in which they are told.
pub type Neighbours = SmallVec<[u32; 24]>;

/// The rank that `me` tells at distance 2^level; `None` when everybody from there on to `me` is out. `next` is the first rank at
/// or after one, on the ring, that is not out; `me` may count or not.
fn neighbour(me: u32, level: u32, size: u32, next: impl Fn(u32) -> Option<u32>) -> Option<u32> {
    let wanted = (u64::from(me) + (1 << level)) % u64::from(size);
    let target = next(wanted as u32)?;
    // Past `me` again: nearer levels reach who lives.
    let (reached, least) = (distance(me, target, size), 1u64 << level);
    (target != me && u64::from(reached) >= least).then_some(target)
}

/// Steps from `from` to `to`, clockwise.
fn distance(from: u32, to: u32, size: u32) -> u32 {
    if to >= from { to - from } else { size - from + to }
}

fn levels(size: u32) -> u32 {
    u32::BITS - size.saturating_sub(1).leading_zeros()
}

/// Whom `me` of `size` ranks tells of something that it heard from `source` (`None`: it is the first to know), in the best
/// order. Who learns that one of them died tells the rank that takes its place.
#[must_use]
pub fn neighbours(me: u32, source: Option<u32>, size: u32, dead: &RankSet) -> Neighbours {
    neighbours_by(me, source, size, |rank| dead.next_living(rank, size))
}

/// As [`neighbours`], for an owner that knows by itself who is the first at or after a rank that is not out.
pub(crate) fn neighbours_by(
    me: u32,
    source: Option<u32>,
    size: u32,
    next: impl Fn(u32) -> Option<u32>,
) -> Neighbours {
    let levels = levels(size);
    let start = source.map_or(levels, |from| distance(from, me, size).checked_ilog2().unwrap_or(0));
    let start = start.min(levels);
    let mut found = Neighbours::new();
    for level in (0..start).rev().chain((start..levels).rev()) {
        if let Some(target) = neighbour(me, level, size, &next)
            && Some(target) != source
            && !found.contains(&target)
        {
            found.push(target);
        }
    }
    found
}

/// Whether `rank` is a neighbour of `me`.
pub(crate) fn is_neighbour(me: u32, rank: u32, size: u32, dead: &RankSet) -> bool {
    let next = |rank| dead.next_living(rank, size);
    (0..levels(size)).any(|level| neighbour(me, level, size, next) == Some(rank))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_order_is_the_binomial_tree_first() {
        let none = RankSet::new();
        assert_eq!(neighbours(0, None, 16, &none)[..], [8, 4, 2, 1]);
        assert_eq!(neighbours(4, Some(0), 16, &none)[..], [6, 5, 12, 8]);
        assert_eq!(neighbours(8, Some(0), 16, &none)[..], [12, 10, 9]);
        assert_eq!(neighbours(0, None, 2, &none)[..], [1]);
        assert!(neighbours(0, None, 1, &none).is_empty());
    }

    proptest! {
        /// The next living rank of the ring is a neighbour, whoever is dead: what delivery rests on.
        #[test]
        fn the_next_living_is_a_neighbour(size in 1u32..200, me in 0u32..200, dead in proptest::collection::vec(0u32..200, 0..200)) {
            let me = me % size;
            let dead: RankSet = dead.into_iter().filter(|rank| *rank < size && *rank != me).collect();
            let found = neighbours(me, None, size, &dead);
            let next = (1..size).map(|step| (me + step) % size).find(|rank| !dead.contains(*rank));
            match next {
                Some(next) => prop_assert!(found.contains(&next)),
                None => prop_assert!(found.is_empty()),
            }
            prop_assert!(found.iter().all(|rank| *rank != me && !dead.contains(*rank)));
            prop_assert!(found.len() <= levels(size) as usize);
            for rank in 0..size {
                prop_assert_eq!(is_neighbour(me, rank, size, &dead), found.contains(&rank));
            }
        }

        /// Old neighbours that live stay neighbours, so only replacements need what was told before.
        #[test]
        fn only_the_dead_are_replaced(size in 2u32..100, dead in proptest::collection::vec(1u32..100, 1..60)) {
            let dead: Vec<u32> = dead.into_iter().filter(|rank| *rank < size).collect();
            let mut known = RankSet::new();
            let mut told: Vec<u32> = neighbours(0, None, size, &known).to_vec();
            for died in dead {
                if !known.insert(died) { continue; }
                let now = neighbours(0, None, size, &known);
                let left = told.iter().filter(|rank| !known.contains(**rank));
                prop_assert!(left.into_iter().all(|rank| now.contains(rank)));
                told = now.to_vec();
            }
        }
    }
}
