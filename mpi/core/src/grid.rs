//! Arithmetic of grids (MPI 5.0, §8.5): coordinates, shifts and neighbors, in row-major order of ranks; and dimensions as
//! close to each other as can be. Pure; knows no communicator.

use ironweave_coll::{Neighbors, Pairing};
use std::cmp::Reverse;
use std::sync::Arc;

/// The coordinates of a rank. No dimension is 0.
#[must_use]
pub fn coords(dims: &[u32], rank: u32) -> Vec<u32> {
    let mut rest = rank;
    let mut coords: Vec<u32> = dims
        .iter()
        .rev()
        .map(|&dim| {
            let coord = rest % dim;
            rest /= dim;
            coord
        })
        .collect();
    coords.reverse();
    coords
}

/// The rank at coordinates within the grid.
#[must_use]
pub fn rank_of(dims: &[u32], coords: &[u32]) -> u32 {
    dims.iter().zip(coords).fold(0, |rank, (dim, coord)| rank * dim + coord)
}

/// The source and the destination of a shift of `rank` along `direction`; `None` beyond a border.
#[must_use]
pub fn shift(
    dims: &[u32],
    periods: &[bool],
    rank: u32,
    direction: usize,
    by: i64,
) -> (Option<u32>, Option<u32>) {
    let here = coords(dims, rank);
    let side = |by: i64| {
        let dim = i64::from(dims[direction]);
        let moved = i64::from(here[direction]) + by;
        let moved = if periods[direction] { moved.rem_euclid(dim) } else { moved };
        (0..dim).contains(&moved).then(|| {
            let mut there = here.clone();
            there[direction] = moved as u32;
            rank_of(dims, &there)
        })
    };
    (side(-by), side(by))
}

/// The edges of `rank`: for each dimension the process before it and the one behind it.
#[must_use]
pub fn neighbors(dims: &[u32], periods: &[bool], rank: u32) -> Neighbors {
    let around = |direction| <[_; 2]>::from(shift(dims, periods, rank, direction, 1));
    let list: Arc<[Option<u32>]> = (0..dims.len()).flat_map(around).collect();
    Neighbors { sources: Arc::clone(&list), destinations: list, pairing: Pairing::Opposite }
}

/// Factors of `n` in so many dimensions, the largest first: as close to each other as can be, which is that the largest and the
/// smallest differ least; of several such, those with the largest smallest one, and then the smaller ones in order.
#[must_use]
pub fn balanced(n: u32, dims: usize) -> Vec<u32> {
    if dims == 0 {
        return Vec::new();
    }
    let mut factors = Factors { divisors: divisors(n), chosen: Vec::new(), best: None };
    for first in 0..factors.divisors.len() {
        factors.search(n, dims, first);
    }
    factors.best.unwrap_or_default()
}

/// All divisors, in order.
fn divisors(n: u32) -> Vec<u32> {
    let small = (1..=n).take_while(|d| u64::from(*d).pow(2) <= u64::from(n));
    let small: Vec<u32> = small.filter(|d| n.is_multiple_of(*d)).collect();
    let large = small.iter().rev().map(|d| n / d).filter(|d| u64::from(*d).pow(2) > u64::from(n));
    small.iter().copied().chain(large).collect()
}

/// The search for balanced factors.
struct Factors {
    divisors: Vec<u32>,
    chosen: Vec<u32>,
    best: Option<Vec<u32>>,
}

/// How far the largest is from the smallest, and the smallest.
fn spread(factors: &[u32]) -> (u32, Reverse<u32>) {
    let (largest, smallest) = (factors[0], factors[factors.len() - 1]);
    (largest - smallest, Reverse(smallest))
}

impl Factors {
    /// `left` factors of `n`, the first of them the divisor number `at`, the others no larger.
    fn search(&mut self, n: u32, left: usize, at: usize) {
        let first = self.divisors[at];
        let reaches = |factor: u32| u64::from(factor).saturating_pow(left as u32);
        // The smallest that is no worse than the best: with it, or less, in all places that are left, it reaches too far.
        let largest = self.chosen.first().copied().unwrap_or(first);
        let least =
            self.best.as_ref().map_or(1, |best| largest.saturating_sub(spread(best).0)).max(1);
        let hopeless = first < least || reaches(least) > u64::from(n);
        if !n.is_multiple_of(first) || reaches(first) < u64::from(n) || hopeless {
            return;
        }
        self.chosen.push(first);
        if left > 1 {
            (0..=at).rev().for_each(|next| self.search(n / first, left - 1, next));
        } else if first == n {
            let key = |factors| (spread(factors), factors);
            if self.best.as_deref().is_none_or(|best| key(&self.chosen) < key(best)) {
                self.best = Some(self.chosen.clone());
            }
        }
        self.chosen.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_and_ranks_are_inverse() {
        let dims = [3, 4, 5];
        for rank in 0..60 {
            assert_eq!(rank_of(&dims, &coords(&dims, rank)), rank);
        }
        assert_eq!(coords(&dims, 27), [1, 1, 2]);
        assert_eq!((coords(&[], 0), rank_of(&[], &[])), (vec![], 0));
    }

    #[test]
    fn shifts_stop_at_borders_and_go_round_rings() {
        let (dims, periods) = ([3, 4], [false, true]);
        assert_eq!(shift(&dims, &periods, 0, 0, 1), (None, Some(4)));
        assert_eq!(shift(&dims, &periods, 8, 0, 1), (Some(4), None));
        assert_eq!(shift(&dims, &periods, 4, 1, 1), (Some(7), Some(5)));
        assert_eq!(shift(&dims, &periods, 4, 1, -5), (Some(5), Some(7)));
        let around = neighbors(&dims, &periods, 0);
        assert_eq!(around.sources[..], [None, Some(4), Some(3), Some(1)]);
        assert_eq!(around.sources, around.destinations);
    }

    #[test]
    fn factors_are_close() {
        let cases: [(u32, usize, &[u32]); 14] = [
            (6, 2, &[3, 2]),
            (7, 2, &[7, 1]),
            (12, 3, &[3, 2, 2]),
            (16, 3, &[4, 2, 2]),
            (16, 2, &[4, 4]),
            (60, 3, &[5, 4, 3]),
            (1, 3, &[1, 1, 1]),
            (5, 1, &[5]),
            (5, 0, &[]),
            (1 << 20, 2, &[1024, 1024]),
            (7488, 3, &[26, 18, 16]),
            (5616, 4, &[13, 9, 8, 6]),
            (884_736, 17, &[4, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]),
            (2_147_483_647, 2, &[2_147_483_647, 1]),
        ];
        for (n, dims, want) in cases {
            assert_eq!(balanced(n, dims), want, "{n} in {dims}");
        }
    }
}
