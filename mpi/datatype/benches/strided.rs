//! Packing and unpacking of strided vectors beside a plain copy of the same number of bytes. Prints the ratio of the rates: 1.00
//! is the speed of memcpy. A vector whose blocks are shorter than a cache line moves more lines than the copy, by up to the ratio
//! of stride and block: it cannot reach 1.00 where lines are what costs. Not criterion: what counts is the ratio, taken from interleaved runs.
#![allow(unsafe_code)] // layouts over buffers of the benchmark

use ironweave_datatype::{Basic, Constructor, Datatype, RecvLayout, SendLayout};
use ironweave_pml::ob1::{Pack, Unpack};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Packed bytes: in the first, second and last cache, and beyond.
const SIZES: [usize; 4] = [16 << 10, 256 << 10, 4 << 20, 32 << 20];
/// Bytes of a block, and how many times that the stride is.
const SHAPES: [(i64, i64); 9] =
    [(4, 2), (8, 2), (8, 16), (8, 512), (16, 2), (24, 2), (64, 2), (1024, 2), (8192, 2)];

fn vector(len: usize, block: i64, ratio: i64) -> Datatype {
    let make = |constructor| Datatype::new(constructor).expect("right");
    make(Constructor::Hvector {
        count: len as i64 / block,
        blocklength: block,
        stride: block * ratio,
        of: Datatype::named(Basic::Byte),
    })
}

/// The least time that `run` takes, of several, in turn with the others.
fn best<const N: usize>(mut runs: [&mut dyn FnMut(); N]) -> [Duration; N] {
    let mut least = [Duration::MAX; N];
    let end = Instant::now() + Duration::from_millis(150);
    while Instant::now() < end {
        for (run, least) in runs.iter_mut().zip(&mut least) {
            let start = Instant::now();
            run();
            *least = start.elapsed().min(*least);
        }
    }
    least
}

fn main() {
    if !std::env::args().any(|arg| arg == "--bench") {
        return; // built and started by the test runner
    }
    println!(
        "{:>9} {:>6} {:>7} {:>12} {:>6} {:>6}",
        "bytes", "block", "stride", "memcpy GB/s", "pack", "unpack"
    );
    for len in SIZES {
        for (block, ratio) in SHAPES {
            let len = len / block as usize * block as usize;
            let span = len * ratio as usize;
            if span > 1 << 30 {
                continue;
            }
            let datatype = vector(len, block, ratio);
            let mut memory = vec![1_u8; span];
            let (mut packed, plain) = (vec![2_u8; len], vec![3_u8; len]);
            let mut other = vec![2_u8; len];
            let base = memory.as_mut_ptr();
            // SAFETY: the vector is inside the memory, which outlives both layouts and is used through them alone, one
            // at a time.
            let (sender, mut receiver) = unsafe {
                (
                    SendLayout::new(&datatype, 1, base).expect("fits"),
                    RecvLayout::new(&datatype, 1, base).expect("fits"),
                )
            };
            let [copy, pack, unpack] = best([
                &mut || {
                    other.copy_from_slice(black_box(&plain));
                    black_box(&mut other);
                },
                &mut || sender.pack(0, black_box(&mut packed)),
                &mut || receiver.unpack(0, black_box(&plain)),
            ]);
            let ratio_of = |time: Duration| copy.as_secs_f64() / time.as_secs_f64();
            let rate = len as f64 / copy.as_secs_f64() / 1e9;
            let stride = block * ratio;
            let (pack, unpack) = (ratio_of(pack), ratio_of(unpack));
            println!("{len:>9} {block:>6} {stride:>7} {rate:>12.1} {pack:>6.2} {unpack:>6.2}");
        }
    }
}
