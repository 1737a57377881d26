//! The least time the engine takes for a message of 8 bytes, in windows of 64 and one at a time, over the leanest transport: the minimum
//! of many runs, which a busy machine does not disturb. `cargo run --release -p ironweave-pml --example least`
#![allow(unsafe_code)] // a region of a live buffer

#[path = "../tests/util/pipe.rs"]
mod pipe;

use ironweave_btl::memory::OwnedBuffer;
use ironweave_pml::ob1::{Buffer, Source, TagMatch};
use std::hint::black_box;
use std::time::Instant;

const WINDOW: usize = 64;

fn main() {
    let into: &'static OwnedBuffer = Box::leak(Box::new(OwnedBuffer::zeroed(8)));
    // SAFETY: it is never freed, and nobody reads it.
    let region = || Buffer::from(unsafe { into.recv_region() });
    let [(mut a, ca), (mut b, cb)] = pipe::engines();
    let mut window = Vec::with_capacity(WINDOW);
    let mut least = [u128::MAX; 4];
    for _ in 0..20_000 {
        let at = Instant::now();
        for _ in 0..WINDOW {
            let request = b.recv(cb, region(), Source::Rank(0), TagMatch::Tag(1));
            window.push(request.expect("right"));
        }
        let posted = at.elapsed().as_nanos();
        for _ in 0..WINDOW {
            a.send_inline(ca, &[1; 8], 1, 1).expect("right");
        }
        let sent = at.elapsed().as_nanos();
        b.progress();
        let matched = at.elapsed().as_nanos();
        for request in window.drain(..) {
            black_box(b.take_done(request).expect("complete").bytes);
        }
        let tested = at.elapsed().as_nanos();
        let steps = [posted, sent - posted, matched - sent, tested - matched];
        for (least, step) in least.iter_mut().zip(steps) {
            *least = (*least).min(step);
        }
    }
    let mut alone = u128::MAX;
    for _ in 0..20_000 {
        let at = Instant::now();
        for _ in 0..WINDOW {
            let request = b.recv(cb, region(), Source::Rank(0), TagMatch::Tag(1)).expect("right");
            a.send_inline(ca, &[1; 8], 1, 1).expect("right");
            while !b.is_complete(request) {
                b.progress();
            }
            black_box(b.take_done(request).expect("complete").bytes);
        }
        alone = alone.min(at.elapsed().as_nanos());
    }
    let names = ["post", "send", "carry and match", "test"];
    for (name, least) in names.iter().zip(least) {
        println!("{name}: {:.1} ns", least as f64 / WINDOW as f64);
    }
    println!("one at a time, all of it: {:.1} ns", alone as f64 / WINDOW as f64);
}
