//! The cost of a match with 1, 10, …, 10,000 others waiting: posted receives with tags of their own that are passed by,
//! and unexpected messages that stay. Prints the curve; flat means flat.
#![allow(missing_docs, unsafe_code)] // criterion's macros; a region of a live buffer

#[path = "../tests/util/pipe.rs"]
mod pipe;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use ironweave_btl::memory::OwnedBuffer;
use ironweave_pml::ob1::{Buffer, Source, TagMatch};
use std::hint::black_box;

const WAITING: [i32; 5] = [1, 10, 100, 1000, 10_000];

fn region(of: &'static OwnedBuffer) -> Buffer {
    // SAFETY: it is never freed, and nobody reads it.
    unsafe { of.recv_region() }.into()
}

fn matching(c: &mut Criterion) {
    let buffer: &'static OwnedBuffer = Box::leak(Box::new(OwnedBuffer::zeroed(8)));
    let kinds = [
        ("source and tag", Source::Rank(0), TagMatch::Tag(0)),
        ("any source", Source::Any, TagMatch::Tag(0)),
    ];
    for (kind, source, tag) in kinds {
        let mut group = c.benchmark_group(format!("posted, {kind}"));
        for waiting in WAITING {
            let [(mut a, ca), (mut b, cb)] = pipe::engines();
            for i in 1..=waiting {
                b.recv(cb, region(buffer), source, TagMatch::Tag(i)).expect("right");
            }
            group.bench_function(BenchmarkId::from_parameter(waiting), |bench| {
                bench.iter(|| {
                    let request = b.recv(cb, region(buffer), source, tag).expect("right");
                    a.send_inline(ca, &[1; 8], 1, 0).expect("right");
                    b.progress();
                    black_box(b.test(request)).expect("complete")
                });
            });
        }
        group.finish();
        let mut group = c.benchmark_group(format!("unexpected, {kind}"));
        for waiting in WAITING {
            let [(mut a, ca), (mut b, cb)] = pipe::engines();
            for i in 1..=waiting {
                while a.send_inline(ca, &[1; 8], 1, i) != Ok(true) {
                    b.progress();
                }
            }
            b.progress();
            group.bench_function(BenchmarkId::from_parameter(waiting), |bench| {
                bench.iter(|| {
                    a.send_inline(ca, &[1; 8], 1, 0).expect("right");
                    b.progress();
                    let request = b.recv(cb, region(buffer), source, tag).expect("right");
                    black_box(b.test(request)).expect("complete")
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, matching);
criterion_main!(benches);
