//! Small collectives that were called before allocate nothing.
#![allow(unsafe_code)] // a counting allocator and regions of live buffers

#[path = "../../../pml/tests/util/pipe.rs"]
mod pipe;

use ironweave_btl::memory::{OwnedBuffer, SendRegion};
use ironweave_coll::{
    Call, Config, Context, Elements, Memory, Op, Operation, Place, Poll, Reduction, Root, Type,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test, because the counter is the process's.
#[test]
fn a_call_like_one_before_allocates_nothing() {
    let mut rank = 0;
    let mut processes = pipe::engines().map(|(engine, comm)| {
        let context = Context::new(comm, None, Place::intra(rank, 2), Config::default().into());
        rank += 1;
        (engine, context)
    });
    let buffers = [OwnedBuffer::zeroed(64), OwnedBuffer::zeroed(64)];
    let sum = Reduction::new(Op::Sum, Type::U64).expect("it is defined");
    let elements = Elements { count: 4, extent: 8, commutative: true };
    let calls = [
        Call::Barrier,
        Call::Bcast { root: Root::Rank(1), len: 32 },
        Call::Allreduce { elements, in_place: false },
        Call::Allgather { len: 32, block: 32, in_place: false },
    ];
    let data: &'static [u8] = &[1; 64];
    let mut run = |call: &Call| {
        let mut begun: [Option<Box<Operation>>; 2] = [None, None];
        for ((begun, (_, context)), buffer) in begun.iter_mut().zip(&mut processes).zip(&buffers) {
            // SAFETY: the buffers live to the end and are not touched otherwise.
            let recv = unsafe { buffer.recv_region() };
            let memory = Memory { send: SendRegion::of_static(data), recv };
            *begun = Some(context.start(call, memory, Some(&sum)).expect("right arguments"));
        }
        while begun.iter().any(Option::is_some) {
            for (begun, (engine, context)) in begun.iter_mut().zip(&mut processes) {
                let Some(mut operation) = begun.take() else { continue };
                engine.progress();
                match operation.runner().poll(engine) {
                    Poll::Ready(outcome) => {
                        assert_eq!(outcome, Ok(()));
                        context.recycle(operation);
                    }
                    Poll::Pending => *begun = Some(operation),
                    Poll::Resolve(peer) => panic!("{peer} is known"),
                }
            }
        }
    };
    for _ in 0..100 {
        calls.iter().for_each(&mut run);
    }
    let before = ALLOCATIONS.load(Relaxed);
    for _ in 0..100 {
        calls.iter().for_each(&mut run);
    }
    assert_eq!(ALLOCATIONS.load(Relaxed) - before, 0, "in 400 calls");
}
