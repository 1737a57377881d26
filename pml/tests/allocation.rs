//! The small path allocates nothing, and neither do long messages in steady state on the receiving side's match.
#![allow(unsafe_code)] // a counting allocator and regions of live buffers

#[path = "util/pipe.rs"]
mod pipe;

use ironweave_btl::memory::{OwnedBuffer, RecvRegion, SendRegion};
use ironweave_pml::ob1::{Buffer, Mode, Payload, Source, Started, TagMatch};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// This thread's allocations count: the test harness has threads of its own.
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}

fn count() {
    if COUNTED.try_with(Cell::get).unwrap_or(false) {
        ALLOCATIONS.fetch_add(1, Relaxed);
    }
}

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The allocations of the second of two runs of `work`: the first may fill pools and tables.
fn in_steady_state(mut work: impl FnMut()) -> u64 {
    work();
    work();
    let before = ALLOCATIONS.load(Relaxed);
    COUNTED.set(true);
    work();
    COUNTED.set(false);
    ALLOCATIONS.load(Relaxed) - before
}

/// One test, because the counter is the process's.
#[test]
fn the_small_path_allocates_nothing() {
    for lossless in [true, false] {
        nothing_is_allocated(lossless);
    }
}

fn nothing_is_allocated(lossless: bool) {
    let [(mut a, ca), (mut b, cb)] = pipe::engines_over(lossless);
    let data: &'static [u8] = &[7; 1024];
    let into = OwnedBuffer::zeroed(1024);
    // SAFETY: `into` lives to the end and is not touched otherwise.
    let whole: RecvRegion = unsafe { into.recv_region() };
    let region = || Buffer::from(whole.part(0..1024));
    let payload = Payload::from(SendRegion::of_static(data));

    let mut window = Vec::with_capacity(64);
    let expected = in_steady_state(|| {
        for source in [Source::Rank(0), Source::Any] {
            for tag in [TagMatch::Tag(3), TagMatch::Any] {
                for _ in 0..64 {
                    window.push(b.recv(cb, region(), source, tag).expect("right"));
                }
                for i in 0..64 {
                    if i % 2 == 0 {
                        assert_eq!(a.send_inline(ca, data, 1, 3), Ok(true));
                    } else {
                        let started = a.send(ca, Mode::Standard, &payload, 1, 3);
                        assert_eq!(started, Ok(Started::Done));
                    }
                    if i % 16 == 15 {
                        b.progress();
                        a.progress(); // it is told what has arrived
                    }
                }
                for request in window.drain(..) {
                    assert!(b.is_complete(request));
                    assert_eq!(b.test(request).expect("complete").result, Ok(()));
                }
            }
        }
    });
    assert_eq!(expected, 0, "expected messages allocate, lossless: {lossless}");

    let unexpected = in_steady_state(|| {
        for i in 0..64 {
            assert_eq!(a.send_inline(ca, &data[..16 * (i % 60)], 1, 3), Ok(true));
            if i % 16 == 15 {
                b.progress();
                a.progress();
            }
        }
        for _ in 0..64 {
            let request = b.recv(cb, region(), Source::Rank(0), TagMatch::Tag(3)).expect("right");
            assert_eq!(b.test(request).expect("it is here").result, Ok(()));
        }
    });
    assert_eq!(unexpected, 0, "unexpected messages allocate, lossless: {lossless}");
}
