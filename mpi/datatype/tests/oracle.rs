//! Random datatypes against lists of basic types and displacements: sizes, bounds, packing and unpacking in pieces of
//! any size and order, counting, signatures and external32.
//!
//! `IRONWEAVE_DATATYPE_RUNS=n` runs that many seeds (default 1500), `IRONWEAVE_SEED=s` one of them.
#![allow(unsafe_code)] // layouts over test buffers are made here

mod util;

use ironweave_datatype::{Constructor, Datatype, RecvLayout, SendLayout};
use ironweave_pml::ob1::{Pack, Unpack};
use rand::{Rng, SeedableRng, rngs::SmallRng, seq::SliceRandom};
use std::collections::HashSet;
use std::ops::Range;
use util::Naive;

/// Runs `check` for each seed, and says how to replay one that fails.
fn seeds(check: impl Fn(&mut SmallRng) + std::panic::RefUnwindSafe) {
    let number = |name| std::env::var(name).ok().map(|s| s.parse().expect("a number"));
    let default = if cfg!(miri) { 10 } else { 1500 };
    let seeds: Vec<u64> = match number("IRONWEAVE_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("IRONWEAVE_DATATYPE_RUNS").unwrap_or(default)).collect(),
    };
    for seed in seeds {
        let run = || check(&mut SmallRng::seed_from_u64(seed));
        if let Err(panic) = std::panic::catch_unwind(run) {
            println!(
                "replay: IRONWEAVE_SEED={seed} cargo nextest run -p ironweave-datatype --test oracle"
            );
            std::panic::resume_unwind(panic);
        }
    }
}

/// A buffer that holds `count` of a datatype, and where displacement 0 is in it.
struct Memory {
    bytes: Vec<u8>,
    origin: i64,
}

impl Memory {
    fn of(all: &Naive, rng: &mut SmallRng) -> Memory {
        let (lb, ub) = all.true_bounds();
        let origin = (-lb).max(0);
        let bytes = (0..(origin + ub).max(1)).map(|_| rng.random()).collect();
        Memory { bytes, origin }
    }

    fn sender(&self, datatype: &Datatype, count: i64) -> SendLayout {
        let base = self.bytes.as_ptr().wrapping_offset(self.origin as isize);
        // SAFETY: the buffer has all bytes of the type map, and is not written while the layout lives.
        unsafe { SendLayout::new(datatype, count, base) }.expect("small")
    }

    fn receiver(&mut self, datatype: &Datatype, count: i64) -> RecvLayout {
        let base = self.bytes.as_mut_ptr().wrapping_offset(self.origin as isize);
        // SAFETY: the buffer has all bytes of the type map, and is used through the layout alone while that lives.
        unsafe { RecvLayout::new(datatype, count, base) }.expect("small")
    }
}

/// `0..len` cut at random places, in random order.
fn pieces(rng: &mut SmallRng, len: usize) -> Vec<Range<usize>> {
    let mut cuts: Vec<usize> =
        (0..rng.random_range(0..6)).map(|_| rng.random_range(0..=len)).collect();
    cuts.extend([0, len]);
    cuts.sort_unstable();
    let mut pieces: Vec<_> = cuts.windows(2).map(|w| w[0]..w[1]).collect();
    pieces.shuffle(rng);
    pieces
}

#[test]
fn bounds_and_sizes_are_the_definitions() {
    seeds(|rng| {
        let (datatype, naive) = util::random(rng, 3);
        assert_eq!(datatype.size(), naive.size(), "size");
        assert_eq!(
            (datatype.lb(), datatype.extent()),
            (naive.bounds().0, naive.extent()),
            "bounds"
        );
        let (lb, ub) = naive.true_bounds();
        assert_eq!((datatype.true_lb(), datatype.true_extent()), (lb, ub - lb), "true bounds");
        let count = rng.random_range(0..4);
        if let Some(offset) = datatype.is_dense(count) {
            let places = naive.repeat(count).places();
            assert!(places.iter().zip(offset..).all(|(place, at)| *place == at), "dense");
        }
    });
}

#[test]
fn pieces_pack_as_the_list_says() {
    seeds(|rng| {
        let (datatype, naive) = util::random(rng, 3);
        let count = rng.random_range(0..5);
        let all = naive.repeat(count);
        let memory = Memory::of(&all, rng);
        let expected = all.pack(&memory.bytes, memory.origin);
        let layout = memory.sender(&datatype, count);
        assert_eq!(layout.packed_len(), expected.len());
        for piece in pieces(rng, expected.len()) {
            let mut out = vec![0; piece.len()];
            layout.pack(piece.start, &mut out);
            assert_eq!(out, expected[piece.clone()], "{piece:?} of {}", expected.len());
        }
        for _ in 0..4.min(expected.len()) {
            let at = rng.random_range(0..expected.len());
            let (offset, contiguous) = layout.shape().locate(at);
            let from = (memory.origin + offset) as usize;
            assert_eq!(memory.bytes[from..from + contiguous], expected[at..at + contiguous]);
        }
    });
}

#[test]
fn pieces_unpack_as_the_list_says() {
    seeds(|rng| {
        let (datatype, naive) = util::random(rng, 3);
        let count = rng.random_range(0..5);
        let all = naive.repeat(count);
        let places = all.places();
        if places.iter().collect::<HashSet<_>>().len() < places.len() {
            return; // erroneous to receive with: entries overlap
        }
        let mut memory = Memory::of(&all, rng);
        let packed: Vec<u8> = places.iter().map(|_| rng.random()).collect();
        let mut expected = memory.bytes.clone();
        for (place, byte) in places.iter().zip(&packed) {
            expected[(memory.origin + place) as usize] = *byte;
        }
        let mut layout = memory.receiver(&datatype, count);
        assert_eq!(layout.capacity(), packed.len());
        for piece in pieces(rng, packed.len()) {
            layout.unpack(piece.start, &packed[piece]);
        }
        drop(layout);
        assert!(memory.bytes == expected, "bytes of the type map changed, and no others");
    });
}

#[test]
fn elements_and_signatures_are_those_of_the_list() {
    seeds(|rng| {
        let (datatype, naive) = util::random(rng, 3);
        let count = rng.random_range(1..4);
        let all = naive.repeat(count);
        let signature = datatype.signature();
        let mut ends = vec![0];
        for (basic, _) in &all.entries {
            ends.push(ends[ends.len() - 1] + basic.size() as i64);
        }
        for bytes in 0..=all.size() {
            let elements = ends.binary_search(&bytes).ok().map(|n| n as i64);
            assert_eq!(signature.elements_in(bytes), elements, "{bytes} bytes");
        }
        for (elements, end) in ends.iter().enumerate() {
            assert_eq!(signature.bytes_of(elements as i64), Some(*end));
        }
        let flat = Datatype::new(Constructor::Struct {
            blocklengths: vec![1; all.entries.len()],
            displacements: all.entries.iter().map(|(_, at)| *at).collect(),
            types: all.entries.iter().map(|(basic, _)| Datatype::named(*basic)).collect(),
        })
        .expect("right");
        assert_eq!(signature.hash(count), flat.signature().hash(1));
        let kinds: HashSet<_> = all.entries.iter().map(|(basic, _)| *basic).collect();
        if let Some(basic) = signature.homogeneous() {
            assert!(basic.pair().is_some() || kinds == HashSet::from([basic]));
        } else {
            assert_ne!(kinds.len(), 1);
        }
    });
}

#[test]
fn external32_reverses_each_number() {
    seeds(|rng| {
        let (datatype, naive) = util::random(rng, 3);
        let count = rng.random_range(0..4);
        let all = naive.repeat(count);
        let mut memory = Memory::of(&all, rng);
        let mut expected = Vec::new();
        for (basic, at) in &all.entries {
            let mut from = (memory.origin + at) as usize;
            for scalar in basic.scalars() {
                expected.extend(memory.bytes[from..from + scalar.size()].iter().rev());
                from += scalar.size();
            }
        }
        let mut out = vec![0xaa; expected.len() + 5];
        let mut position = 3;
        let layout = memory.sender(&datatype, count);
        layout.pack_external_at(&mut out, &mut position).expect("fits");
        assert_eq!(out[3..expected.len() + 3], expected);
        assert_eq!(position, expected.len() + 3);
        position = 6;
        assert!(layout.pack_external_at(&mut out, &mut position).is_err());
        drop(layout);
        let before = memory.bytes.clone();
        for place in all.places() {
            memory.bytes[(memory.origin + place) as usize] = 0;
        }
        position = 3;
        let mut layout = memory.receiver(&datatype, count);
        layout.unpack_external_at(&out, &mut position).expect("complete");
        drop(layout);
        assert!(memory.bytes == before, "back as it was");
    });
}

#[test]
fn large_blocks_are_given_out_as_they_are() {
    seeds(|rng| {
        let blocklength = rng.random_range(1..5) * 4096;
        let gap = rng.random_range(1..3000);
        let byte = Datatype::named(ironweave_datatype::Basic::Byte);
        let count = rng.random_range(1..6);
        let datatype = Datatype::new(Constructor::Vector {
            count,
            blocklength,
            stride: blocklength + gap,
            of: byte,
        })
        .expect("right");
        let len = (count * blocklength) as usize;
        let bytes: Vec<u8> = (0..count * (blocklength + gap)).map(|i| (i / 64) as u8).collect();
        let mut memory = Memory { bytes, origin: 0 };
        let mut packed = vec![0; len];
        let layout = memory.sender(&datatype, 1);
        layout.pack(0, &mut packed);
        let (a, b) = (rng.random_range(0..len), rng.random_range(0..=len));
        let range = a.min(b)..a.max(b);
        let regions = layout.regions(range.clone());
        if count <= 4 && range.len() > 20_000 {
            assert!(regions.is_some(), "{range:?} of {len} in {count}");
        }
        if let Some(regions) = regions {
            let joined: Vec<u8> = regions.iter().flat_map(|r| r.as_slice()).copied().collect();
            assert!(joined == packed[range.clone()]);
        }
        drop(layout);
        let before = memory.bytes.clone();
        let layout = memory.receiver(&datatype, 1);
        let one_block = !range.is_empty()
            && range.start / blocklength as usize == (range.end - 1) / blocklength as usize;
        let region = layout.region(range.clone());
        assert_eq!(region.is_some(), one_block);
        if let Some(region) = region {
            region.write(0, &packed[range]);
            assert!(memory.bytes == before);
        }
    });
}
