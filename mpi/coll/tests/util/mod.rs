//! What the tests of algorithms share: an interpreter of schedules, data with which nothing can go wrong unseen, and the
//! worlds that are tried.
#![allow(dead_code)] // each test uses a part

pub mod case;
pub mod interpreter;
pub mod oracle;
pub mod topology;

use ironweave_coll::{Config, Place};
use rand::{Rng, rngs::SmallRng};

/// Numbers of processes that are tried.
pub fn sizes() -> impl Iterator<Item = u32> {
    (1..=17).chain(31..=33).chain([64])
}

/// Numbers of elements that are tried.
pub const COUNTS: [usize; 6] = [0, 1, 2, 13, 64, 997];

/// Roots worth trying.
pub fn roots(size: u32) -> Vec<u32> {
    let mut roots = vec![0, 1 % size, size / 2, size - 1];
    roots.sort_unstable();
    roots.dedup();
    roots
}

/// Which process is on which host: not told, in blocks of three, taking turns, and as it comes.
pub fn hosts(size: u32) -> Vec<Option<Vec<u32>>> {
    vec![
        None,
        Some((0..size).map(|rank| 100 - rank / 3).collect()),
        Some((0..size).map(|rank| rank % 2).collect()),
        Some((0..size).map(|rank| (rank * 7 + 3) % 11 % 4).collect()),
    ]
}

/// The places of all processes.
pub fn places(size: u32, hosts: Option<&[u32]>) -> Vec<Place> {
    let place = |rank| match hosts {
        None => Place::intra(rank, size),
        Some(hosts) => Place::intra(rank, size).with_hosts(hosts).expect("one colour each"),
    };
    (0..size).map(place).collect()
}

/// Both groups of an inter-communicator: the first, then the second.
pub fn inter_places(first: u32, second: u32) -> Vec<Place> {
    let a = (0..first).map(|rank| Place::inter(rank, first, second));
    a.chain((0..second).map(|rank| Place::inter(rank, second, first))).collect()
}

/// Bytes that tell who sent them and where they belong.
pub fn pattern(rank: u32, to: u32, len: usize) -> Vec<u8> {
    let seed = u64::from(rank) << 32 | u64::from(to);
    let word = |i: usize| {
        (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(i as u64 * 0x2545_f491)
    };
    (0..len).map(|i| (word(i) >> 13) as u8).collect()
}

/// An element of a reduction whose operands must come in the order of ranks, each once, and stay at their index: the
/// ranks `from..to`, and the index. As strings that are concatenated, but of constant length.
pub const RANGE: usize = 16;

/// The contribution of the process that is `rank`-th in the order of operands.
pub fn range(rank: u32, count: usize) -> Vec<u8> {
    let (from, to) = (rank, rank + 1);
    let element = |index: usize| {
        [from.to_ne_bytes(), to.to_ne_bytes(), (index as u32).to_ne_bytes(), [0xab; 4]].concat()
    };
    (0..count).flat_map(element).collect()
}

/// Concatenates ranges; what does not fit together becomes all zeros, for good.
pub fn concatenate(left: &[u8], right: &mut [u8]) {
    for (left, right) in left.chunks_exact(RANGE).zip(right.chunks_exact_mut(RANGE)) {
        let fits = left[4..8] == right[..4] && left[8..] == right[8..] && left[12..] == [0xab; 4];
        if fits {
            right[..4].copy_from_slice(&left[..4]);
        } else {
            right.fill(0);
        }
    }
}

/// Elements of a reduction that commutes: numbers that tell who they are from when they are added.
pub const NUMBER: usize = 8;

/// The contribution of `rank`.
pub fn numbers(rank: u32, count: usize) -> Vec<u8> {
    let number = |index: usize| {
        (u64::from(rank) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(index as u32 % 64)
            ^ index as u64
    };
    (0..count).flat_map(|index| number(index).to_ne_bytes()).collect()
}

/// Adds.
pub fn add(left: &[u8], right: &mut [u8]) {
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
    for (left, right) in left.chunks_exact(NUMBER).zip(right.chunks_exact_mut(NUMBER)) {
        right.copy_from_slice(&word(left).wrapping_add(word(right)).to_ne_bytes());
    }
}

/// A kind of reduction, with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It commutes.
    Numbers,
    /// It does not.
    Ranges,
}

impl Kind {
    pub const ALL: [Kind; 2] = [Kind::Numbers, Kind::Ranges];

    pub fn extent(self) -> usize {
        match self {
            Kind::Numbers => NUMBER,
            Kind::Ranges => RANGE,
        }
    }

    pub fn apply(self) -> fn(&[u8], &mut [u8]) {
        match self {
            Kind::Numbers => add,
            Kind::Ranges => concatenate,
        }
    }

    /// What `rank` contributes.
    pub fn of(self, rank: u32, count: usize) -> Vec<u8> {
        match self {
            Kind::Numbers => numbers(rank, count),
            Kind::Ranges => range(rank, count),
        }
    }
}

/// A configuration with algorithms of any kind, or left to the table.
pub fn random_config(rng: &mut SmallRng) -> Config {
    use ironweave_coll::algorithm::*;
    fn one<A: Copy>(rng: &mut SmallRng, all: &[A]) -> Option<A> {
        all.get(rng.random_range(0..2 * all.len())).copied()
    }
    Config {
        barrier: one(rng, Barrier::ALL),
        bcast: one(rng, Bcast::ALL),
        reduce: one(rng, Reduce::ALL),
        allreduce: one(rng, Allreduce::ALL),
        gather: one(rng, Gather::ALL),
        scatter: one(rng, Scatter::ALL),
        allgather: one(rng, Allgather::ALL),
        alltoall: one(rng, Alltoall::ALL),
        reduce_scatter: one(rng, ReduceScatter::ALL),
        scan: one(rng, Scan::ALL),
        segment: 1 << rng.random_range(6..16),
    }
}
