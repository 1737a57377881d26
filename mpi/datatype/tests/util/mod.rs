//! The oracle: type maps as lists of (basic type, displacement), made by the standard's definitions word by word; and
//! random datatypes, each with its list.

use ironweave_datatype::{Basic, Constructor, DEFAULT_ARGUMENT, Datatype, Distribution, Order};
use rand::{Rng, rngs::SmallRng};

/// A type map, and the bounds where a constructor set them.
#[derive(Clone, Debug, Default)]
pub struct Naive {
    pub entries: Vec<(Basic, i64)>,
    pub marks: Option<(i64, i64)>,
}

impl Naive {
    pub fn of(basic: Basic) -> Naive {
        let entries = match basic.pair() {
            Some((value, index)) => {
                let mut second = value.size();
                while second % index.align() != 0 {
                    second += 1;
                }
                vec![(value, 0), (index, second as i64)]
            }
            None => vec![(basic, 0)],
        };
        Naive { entries, marks: None }
    }

    pub fn size(&self) -> i64 {
        self.entries.iter().map(|(basic, _)| basic.size() as i64).sum()
    }

    pub fn true_bounds(&self) -> (i64, i64) {
        let lb = self.entries.iter().map(|(_, at)| *at).min().unwrap_or(0);
        let ub = self.entries.iter().map(|(b, at)| at + b.size() as i64).max().unwrap_or(0);
        (lb, ub)
    }

    pub fn bounds(&self) -> (i64, i64) {
        if let Some(marks) = self.marks {
            return marks;
        }
        let (lb, mut ub) = self.true_bounds();
        let align = self.entries.iter().map(|(b, _)| b.align() as i64).max().unwrap_or(1);
        while (ub - lb) % align != 0 {
            ub += 1;
        }
        (lb, ub)
    }

    pub fn extent(&self) -> i64 {
        self.bounds().1 - self.bounds().0
    }

    /// Copies of `of` at displacements, one after the other.
    fn copies(parts: impl IntoIterator<Item = (i64, Naive)>) -> Naive {
        let mut all = Naive::default();
        for (at, part) in parts {
            all.entries.extend(part.entries.iter().map(|(basic, d)| (*basic, d + at)));
            if let Some((lb, ub)) = part.marks {
                let (a, b) = all.marks.unwrap_or((i64::MAX, i64::MIN));
                all.marks = Some((a.min(lb + at), b.max(ub + at)));
            }
        }
        all
    }

    pub fn repeat(&self, count: i64) -> Naive {
        Self::copies((0..count).map(|i| (i * self.extent(), self.clone())))
    }

    /// Blocks of `length` at `places`, in bytes.
    fn blocks(&self, blocks: impl IntoIterator<Item = (i64, i64)>) -> Naive {
        Self::copies(blocks.into_iter().map(|(length, at)| (at, self.repeat(length))))
    }

    /// The packed data of `memory`, whose displacement 0 is at `origin`.
    pub fn pack(&self, memory: &[u8], origin: i64) -> Vec<u8> {
        let entry = |(basic, at): &(Basic, i64)| {
            let from = (origin + at) as usize;
            memory[from..from + basic.size()].to_vec()
        };
        self.entries.iter().flat_map(entry).collect()
    }

    /// Where each packed byte goes.
    pub fn places(&self) -> Vec<i64> {
        let bytes = |(basic, at): &(Basic, i64)| *at..*at + basic.size() as i64;
        self.entries.iter().flat_map(bytes).collect()
    }
}

/// Types whose external32 form has the same length.
const BASICS: [Basic; 10] = [
    Basic::Char,
    Basic::Short,
    Basic::Int,
    Basic::Double,
    Basic::CFloatComplex,
    Basic::CDoubleComplex,
    Basic::DoubleInt,
    Basic::ShortInt,
    Basic::Int16,
    Basic::Byte,
];

/// A random datatype of at most `depth` constructors, with its list.
pub fn random(rng: &mut SmallRng, depth: usize) -> (Datatype, Naive) {
    if depth == 0 || rng.random_ratio(1, 8) {
        let basic = BASICS[rng.random_range(0..BASICS.len())];
        return (Datatype::named(basic), Naive::of(basic));
    }
    let (of, naive) = random(rng, depth - 1);
    let (constructor, expected) = match rng.random_range(0..12) {
        0 => {
            let count = rng.random_range(0..5);
            (Constructor::Contiguous { count, of }, naive.repeat(count))
        }
        kind @ (1 | 2) => {
            let (count, blocklength) = (rng.random_range(0..5), rng.random_range(0..4));
            let stride = rng.random_range(-6..12);
            let unit = if kind == 1 { naive.extent() } else { 1 };
            let blocks = (0..count).map(|i| (blocklength, i * stride * unit));
            let expected = naive.blocks(blocks);
            let made = match kind {
                1 => Constructor::Vector { count, blocklength, stride, of },
                _ => Constructor::Hvector { count, blocklength, stride, of },
            };
            (made, expected)
        }
        kind @ (3 | 4) => {
            let (blocklengths, displacements) = blocks(rng);
            let unit = if kind == 3 { naive.extent() } else { 1 };
            let places = blocklengths.iter().copied().zip(displacements.iter().map(|d| d * unit));
            let expected = naive.blocks(places);
            let made = match kind {
                3 => Constructor::Indexed { blocklengths, displacements, of },
                _ => Constructor::Hindexed { blocklengths, displacements, of },
            };
            (made, expected)
        }
        kind @ (5 | 6) => {
            let (_, displacements) = blocks(rng);
            let blocklength = rng.random_range(0..4);
            let unit = if kind == 5 { naive.extent() } else { 1 };
            let expected = naive.blocks(displacements.iter().map(|d| (blocklength, d * unit)));
            let made = match kind {
                5 => Constructor::IndexedBlock { blocklength, displacements, of },
                _ => Constructor::HindexedBlock { blocklength, displacements, of },
            };
            (made, expected)
        }
        7 => {
            let (blocklengths, displacements) = blocks(rng);
            let members: Vec<_> = blocklengths.iter().map(|_| random(rng, depth - 1)).collect();
            let expected = Naive::copies(
                members
                    .iter()
                    .zip(&blocklengths)
                    .zip(&displacements)
                    .filter(|((_, length), _)| **length > 0)
                    .map(|((member, length), at)| (*at, member.1.repeat(*length))),
            );
            let types = members.into_iter().map(|(datatype, _)| datatype).collect();
            (Constructor::Struct { blocklengths, displacements, types }, expected)
        }
        8 => {
            let (lb, extent) = (rng.random_range(-20..20), rng.random_range(-10..60));
            let expected = Naive { marks: Some((lb, lb + extent)), ..naive };
            (Constructor::Resized { lb, extent, of }, expected)
        }
        9 => subarray(rng, of, &naive),
        10 => darray(rng, of, &naive),
        _ => (Constructor::Dup(of), naive),
    };
    let datatype = Datatype::new(constructor).expect("arguments are right");
    // Keep lists short: deep nests of large ones add nothing.
    if expected.entries.len() > 500 { random(rng, depth - 1) } else { (datatype, expected) }
}

/// Lengths and displacements; often evenly spaced or adjacent, so that all ways of joining are met.
fn blocks(rng: &mut SmallRng) -> (Vec<i64>, Vec<i64>) {
    let n = rng.random_range(0..6);
    let lengths = match rng.random_range(0..3) {
        0 => vec![rng.random_range(0..4); n],
        _ => (0..n).map(|_| rng.random_range(0..4)).collect::<Vec<i64>>(),
    };
    let displacements = match rng.random_range(0..3) {
        0 => {
            let (start, step) = (rng.random_range(-9..9), rng.random_range(-9..9));
            (0..n as i64).map(|i| start + i * step).collect()
        }
        1 => {
            let mut at = 0;
            let next = |length: &i64| {
                let here = at;
                at += length * [1, 2, 4, 8][rng.random_range(0..4)];
                here
            };
            lengths.iter().map(next).collect()
        }
        _ => (0..n).map(|_| rng.random_range(-30..60)).collect(),
    };
    (lengths, displacements)
}

fn order(rng: &mut SmallRng) -> Order {
    if rng.random() { Order::C } else { Order::Fortran }
}

/// The elements that `has` says of an array, in memory order.
fn elements(sizes: &[i64], order: Order, naive: &Naive, has: impl Fn(usize, i64) -> bool) -> Naive {
    let total: i64 = sizes.iter().product();
    let fastest: Vec<usize> = match order {
        Order::C => (0..sizes.len()).rev().collect(),
        Order::Fortran => (0..sizes.len()).collect(),
    };
    let inside = |element: &i64| {
        let mut left = *element;
        fastest.iter().all(|&dim| {
            let index = left % sizes[dim];
            left /= sizes[dim];
            has(dim, index)
        })
    };
    let extent = naive.extent();
    let all = Naive::copies((0..total).filter(inside).map(|i| (i * extent, naive.clone())));
    Naive { marks: Some((0, total * extent)), ..all }
}

fn subarray(rng: &mut SmallRng, of: Datatype, naive: &Naive) -> (Constructor, Naive) {
    let dims = rng.random_range(1..4);
    let sizes: Vec<i64> = (0..dims).map(|_| rng.random_range(1..5)).collect();
    let subsizes: Vec<i64> = sizes.iter().map(|n| rng.random_range(1..=*n)).collect();
    let starts: Vec<i64> =
        sizes.iter().zip(&subsizes).map(|(n, sub)| rng.random_range(0..=n - sub)).collect();
    let order = order(rng);
    let expected = elements(&sizes, order, naive, |dim, index| {
        (starts[dim]..starts[dim] + subsizes[dim]).contains(&index)
    });
    (Constructor::Subarray { sizes, subsizes, starts, order, of }, expected)
}

fn darray(rng: &mut SmallRng, of: Datatype, naive: &Naive) -> (Constructor, Naive) {
    let dims = rng.random_range(1..4);
    let (mut gsizes, mut distributions, mut arguments, mut psizes) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut blocks = Vec::new();
    for _ in 0..dims {
        let size: i64 = rng.random_range(1..6);
        let mut processes = rng.random_range(1..4);
        let ceiling = (size + processes - 1) / processes;
        let default = rng.random();
        let (distribution, argument, block) = match rng.random_range(0..3) {
            0 => {
                processes = 1;
                (Distribution::None, DEFAULT_ARGUMENT, size)
            }
            1 if default => (Distribution::Block, DEFAULT_ARGUMENT, ceiling),
            1 => {
                let block = rng.random_range(ceiling..ceiling + 3);
                (Distribution::Block, block, block)
            }
            _ if default => (Distribution::Cyclic, DEFAULT_ARGUMENT, 1),
            _ => {
                let block = rng.random_range(1..4);
                (Distribution::Cyclic, block, block)
            }
        };
        gsizes.push(size);
        distributions.push(distribution);
        arguments.push(argument);
        psizes.push(processes);
        blocks.push(block);
    }
    let size: i64 = psizes.iter().product();
    let rank = rng.random_range(0..size);
    // Row-major ranks: the last coordinate runs fastest.
    let coordinate = |dim: usize| {
        let faster: i64 = psizes[dim + 1..].iter().product();
        rank / faster % psizes[dim]
    };
    let order = order(rng);
    let expected = elements(&gsizes, order, naive, |dim, index| {
        index / blocks[dim] % psizes[dim] == coordinate(dim)
    });
    let made =
        Constructor::Darray { size, rank, gsizes, distributions, arguments, psizes, order, of };
    (made, expected)
}
