//! What the code of one frame costs, without the way between two cores: both ends in one thread.
//! Between two processes: `examples/shm_pingpong`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ironweave_btl::{Btl, Descriptor, EndpointState, Fault, Peer, RmaDescriptor, Sink};
use ironweave_btl_shm::{Shm, ShmConfig};
use std::hint::black_box;

struct Count(u64);

impl Sink for Count {
    fn frame(&mut self, _: Peer, header: &[u8], payload: &[u8]) {
        black_box((header, payload));
        self.0 += 1;
    }
    fn completed(&mut self, _: Descriptor, _: Result<(), Fault>) {}
    fn rma_completed(&mut self, _: RmaDescriptor, _: Result<(), Fault>) {}
    fn up(&mut self, _: Peer) {}
    fn fault(&mut self, fault: Fault) {
        panic!("{fault}");
    }
    fn closed(&mut self, _: Peer) {}
}

fn path(criterion: &mut Criterion) {
    let open = |me| Shm::open(ShmConfig::new(Peer(me), "bench", [1; 32])).expect("open");
    let (mut a, mut b, mut sink) = (open(0), open(1), Count(0));
    a.connect(Peer(1), &b.address()).expect("connect");
    while a.state(Peer(1)) != EndpointState::Up || b.state(Peer(0)) != EndpointState::Up {
        a.progress(&mut sink);
        b.progress(&mut sink);
    }
    let mut group = criterion.benchmark_group("path");
    for len in [8, 256, 1024, 65_536] {
        let payload = vec![1; len];
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(format!("send and receive {len}"), |bencher| {
            bencher.iter(|| {
                a.send_bcopy(Peer(1), &[0; 16], len, |at, piece| {
                    piece.copy_from_slice(&payload[at..at + piece.len()]);
                })
                .expect("room");
                let before = sink.0;
                while sink.0 == before {
                    b.progress(&mut sink);
                }
            });
        });
    }
    group.finish();
    criterion.bench_function("idle progress, one ring", |bencher| {
        bencher.iter(|| b.progress(&mut sink));
    });
}

criterion_group!(benches, path);
criterion_main!(benches);
