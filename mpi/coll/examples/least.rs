//! The least time that the engine takes for small collectives of two processes, beside that of the messages they consist
//! of, over the leanest transport: the minimum of many runs, which a busy machine does not disturb.
//! `cargo run --release -p ironweave-coll --example least`
#![allow(unsafe_code)] // regions of live buffers

#[path = "../../../pml/tests/util/pipe.rs"]
mod pipe;

use ironweave_btl::memory::{OwnedBuffer, SendRegion};
use ironweave_coll::{
    Call, Config, Context, Elements, Memory, Op, Operation, Place, Poll, Reduction, Root, Type,
};
use ironweave_pml::ob1::{CommId, Ob1, Source, TagMatch};
use pipe::Pipe;
use std::hint::black_box;
use std::time::Instant;

const RUNS: usize = 20_000;
const IN_A_ROW: usize = 16;

struct Process {
    engine: Ob1<Pipe>,
    comm: CommId,
    context: Context,
    buffer: &'static OwnedBuffer,
}

impl Process {
    fn start(&mut self, call: &Call, reduction: Option<&Reduction>) -> Box<Operation> {
        // SAFETY: the buffer is never freed, and read by nobody while an operation runs.
        let recv = unsafe { self.buffer.recv_region() };
        let memory = Memory { send: SendRegion::of_static(&[1; 8]), recv };
        self.context.start(call, memory, reduction).expect("right arguments")
    }

    fn is_over(&mut self, operation: &mut Operation) -> bool {
        match operation.runner().poll(&mut self.engine) {
            Poll::Ready(outcome) => {
                outcome.expect("nobody fails");
                true
            }
            Poll::Pending => false,
            Poll::Resolve(peer) => unreachable!("{peer} is known"),
        }
    }
}

/// Both processes call, one after the other, and poll by turns.
fn collective(processes: &mut [Process; 2], call: &Call, reduction: Option<&Reduction>) {
    let [a, b] = processes;
    let (mut one, mut two) = (a.start(call, reduction), b.start(call, reduction));
    let (mut one_over, mut two_over) = (a.is_over(&mut one), b.is_over(&mut two));
    while !one_over || !two_over {
        if !one_over {
            a.engine.progress();
            one_over = a.is_over(&mut one);
        }
        if !two_over {
            b.engine.progress();
            two_over = b.is_over(&mut two);
        }
    }
    a.context.recycle(one);
    b.context.recycle(two);
}

/// The same messages without a collective: each sends 8 bytes and receives 8.
fn exchange(processes: &mut [Process; 2]) {
    let post = |process: &mut Process, other: u32| {
        // SAFETY: as in `start`.
        let region = unsafe { process.buffer.recv_region() };
        process.engine.send_inline(process.comm, &[1; 8], other, 1).expect("right");
        let tag = TagMatch::Tag(1);
        process
            .engine
            .recv_into(process.comm, region, Source::Rank(other), tag, true)
            .expect("right")
    };
    let [a, b] = processes;
    let requests = [post(a, 1), post(b, 0)];
    for (process, request) in [a, b].into_iter().zip(requests) {
        while !process.engine.is_complete(request) {
            process.engine.progress();
        }
        black_box(process.engine.take_done(request));
    }
}

fn least(name: &str, mut work: impl FnMut()) {
    let mut least = u128::MAX;
    for _ in 0..RUNS {
        let at = Instant::now();
        for _ in 0..IN_A_ROW {
            work();
        }
        least = least.min(at.elapsed().as_nanos());
    }
    println!("{name}: {:.1} ns for both processes", least as f64 / IN_A_ROW as f64);
}

fn main() {
    let mut rank = 0;
    let mut processes = pipe::engines().map(|(engine, comm)| {
        let context = Context::new(comm, None, Place::intra(rank, 2), Config::default().into());
        rank += 1;
        Process { engine, comm, context, buffer: Box::leak(Box::new(OwnedBuffer::zeroed(8))) }
    });
    least("an exchange of 8 bytes", || exchange(&mut processes));
    least("barrier", || collective(&mut processes, &Call::Barrier, None));
    let call = Call::Bcast { root: Root::Rank(0), len: 8 };
    least("bcast of 8 bytes", || collective(&mut processes, &call, None));
    let sum = Reduction::new(Op::Sum, Type::F64).expect("it is defined");
    let elements = Elements { count: 1, extent: 8, commutative: true };
    let call = Call::Allreduce { elements, in_place: false };
    least("allreduce of 8 bytes", || collective(&mut processes, &call, Some(&sum)));

    for (name, op, ty) in [
        ("sum of f64", Op::Sum, Type::F64),
        ("sum of f32", Op::Sum, Type::F32),
        ("max of i32", Op::Max, Type::I32),
        ("product of complex f64", Op::Prod, Type::C64),
        ("minloc of (f64, int)", Op::Minloc, Type::DoubleInt),
    ] {
        let (from, mut into) = (vec![0u8; 16 << 10], vec![0u8; 16 << 10]);
        let mut least = u128::MAX;
        for _ in 0..2000 {
            let at = Instant::now();
            op.apply(ty, black_box(&from), black_box(&mut into)).expect("it is defined");
            least = least.min(at.elapsed().as_nanos());
        }
        println!("{name}: {:.1} GB/s", (16 << 10) as f64 / least as f64);
    }
}
