//! The engine alone: send, transport (bytes in a vector), match, completion.
#![allow(missing_docs, unsafe_code)] // criterion's macros; a region of a live buffer

#[path = "../tests/util/pipe.rs"]
mod pipe;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ironweave_btl::memory::OwnedBuffer;
use ironweave_pml::ob1::{Buffer, Mode, Payload, Source, Started, TagMatch};
use std::hint::black_box;

fn buffer(len: usize) -> &'static OwnedBuffer {
    Box::leak(Box::new(OwnedBuffer::zeroed(len)))
}

fn region(of: &'static OwnedBuffer) -> Buffer {
    // SAFETY: it is never freed, and nobody reads it.
    unsafe { of.recv_region() }.into()
}

fn whole_path(c: &mut Criterion) {
    let mut group = c.benchmark_group("8 bytes");
    let into = buffer(8);
    let [(mut a, ca), (mut b, cb)] = pipe::engines();
    group.throughput(Throughput::Elements(64));
    let mut window = Vec::with_capacity(64);
    group.bench_function("window of 64: post, send, progress, test", |bench| {
        bench.iter(|| {
            for _ in 0..64 {
                let request = b.recv(cb, region(into), Source::Rank(0), TagMatch::Tag(1));
                window.push(request.expect("right"));
            }
            for _ in 0..64 {
                a.send_inline(ca, &[1; 8], 1, 1).expect("right");
            }
            b.progress();
            for request in window.drain(..) {
                black_box(b.test(request)).expect("complete");
            }
        });
    });
    group.bench_function("window of 64: unexpected", |bench| {
        bench.iter(|| {
            for _ in 0..64 {
                a.send_inline(ca, &[1; 8], 1, 1).expect("right");
            }
            b.progress();
            for _ in 0..64 {
                let request = b.recv(cb, region(into), Source::Rank(0), TagMatch::Tag(1));
                black_box(b.test(request.expect("right"))).expect("complete");
            }
        });
    });
    group.bench_function("one at a time: post, send, progress, test", |bench| {
        bench.iter(|| {
            for _ in 0..64 {
                let request = b.recv(cb, region(into), Source::Rank(0), TagMatch::Tag(1));
                a.send_inline(ca, &[1; 8], 1, 1).expect("right");
                b.progress();
                black_box(b.test(request.expect("right"))).expect("complete");
            }
        });
    });
    group.finish();

    let mut group = c.benchmark_group("lengths");
    for len in [1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20, 4 << 20] {
        let [(mut a, ca), (mut b, cb)] = pipe::engines();
        let (from, into) = (buffer(len), buffer(len));
        // SAFETY: it is never freed, and nobody writes it.
        let payload = Payload::from(unsafe { from.send_region() });
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(BenchmarkId::from_parameter(len), |bench| {
            bench.iter(|| {
                let request = b.recv(cb, region(into), Source::Rank(0), TagMatch::Tag(1));
                let request = request.expect("right");
                let started = a.send(ca, Mode::Standard, &payload, 1, 1).expect("right");
                while !b.is_complete(request) {
                    b.progress();
                    a.progress();
                }
                b.test(request).expect("complete");
                if let Started::Pending(sent) = started {
                    a.test(sent).expect("complete");
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, whole_path);
criterion_main!(benches);
