//! What the suite cannot know: wires that are cut, lose packets, and devices in the middle of a write or read.
//!
//! Both ends live in this process, on the devices of two hosts, but for peers that are killed; runs in the virtual machine
//! (`ci/hwtests`).
#![allow(unsafe_code)] // buffers that are lent and watched

#[path = "faults/killed.rs"]
mod killed;
#[allow(dead_code)] // peers that are killed are not met in pairs
#[path = "support/nodes.rs"]
mod nodes;

use ironweave_btl::memory::OwnedBuffer;
use ironweave_btl::{
    Btl, Cause, Descriptor, EndpointState, Fault, Header, Peer, RemoteKey, Residue, RmaDescriptor,
    RmaKind, Sink, Token,
};
use ironweave_btl_verbs::{Verbs, VerbsConfig};
use ironweave_hwtests::fabric::{Fabric, VM, Wire};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// No test waits longer for anything.
const WATCHDOG: Duration = Duration::from_secs(40);
/// Bytes of a long put or get.
const LONG: usize = 4 << 20;
/// Moments in it, as bytes that have arrived. Not times: emulated devices take from 0.05 to some seconds for all of it.
const MOMENTS: [usize; 5] = [0, 1, LONG / 8, LONG / 2, LONG - LONG / 8];
/// How long a buffer that came back is watched.
const WATCHED: Duration = Duration::from_millis(200);

/// One test at a time has the wires.
static ALONE: Mutex<()> = Mutex::new(());

#[derive(Default)]
struct Record {
    frames: Vec<Vec<u8>>,
    completed: Vec<Result<(), Fault>>,
    rma: Vec<Result<(), Fault>>,
    up: u32,
    faults: Vec<Fault>,
    closed: u32,
}

impl Sink for Record {
    fn frame(&mut self, _: Peer, _: &[u8], payload: &[u8]) {
        self.frames.push(payload.to_vec());
    }

    fn completed(&mut self, _: Descriptor, outcome: Result<(), Fault>) {
        self.completed.push(outcome);
    }

    fn rma_completed(&mut self, _: RmaDescriptor, outcome: Result<(), Fault>) {
        self.rma.push(outcome);
    }

    fn up(&mut self, _: Peer) {
        self.up += 1;
    }

    fn fault(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    fn closed(&mut self, _: Peer) {
        self.closed += 1;
    }
}

struct Node {
    btl: Verbs,
    seen: Record,
}

struct Pair {
    a: Node,
    b: Node,
    _alone: MutexGuard<'static, ()>,
}

impl Pair {
    /// Host 0 and host 1, connected over `rail`; `None`, with a line that says so, where there are none.
    fn open(test: &str, rail: usize, change: impl Fn(&mut VerbsConfig)) -> Option<Pair> {
        let Some(fabric) = Fabric::given() else {
            println!("SKIP verbs/{test}: no devices are given (IRONWEAVE_VERBS_HOSTS)");
            return None;
        };
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let node = |host: u32| {
            let mut config = VerbsConfig {
                me: Peer(host),
                secret: [7; 32],
                job: format!("faults-{}", std::process::id()),
                include: vec![fabric.device(host as usize, rail).to_owned()],
                ..VerbsConfig::default()
            };
            change(&mut config);
            let btl = Verbs::open_all(config).expect("the device opens").remove(0);
            Node { btl, seen: Record::default() }
        };
        let mut pair = Pair { a: node(0), b: node(1), _alone };
        let address = pair.b.btl.address();
        pair.a.btl.connect(Peer(1), &address).expect("the address is reachable");
        pair.until("both to be up", |a, b| a.seen.up == 1 && b.seen.up == 1);
        Some(pair)
    }

    fn turn(&mut self) {
        let busy = self.a.btl.progress(&mut self.a.seen) + self.b.btl.progress(&mut self.b.seen);
        if busy == 0 {
            std::thread::yield_now();
        }
    }

    fn turns_for(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.turn();
        }
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Node, &mut Node) -> bool) {
        let end = Instant::now() + WATCHDOG;
        while !done(&mut self.a, &mut self.b) {
            self.turn();
            if Instant::now() > end {
                let mut dump = String::new();
                let _ = self.a.btl.dump(&mut dump);
                let _ = self.b.btl.dump(&mut dump);
                panic!(
                    "waited for {what}\n{dump}{:?}\n{:?}",
                    self.a.seen.faults, self.b.seen.faults
                );
            }
        }
    }

    /// Hands down a frame as soon as there is room; `false` when the endpoint is closed.
    fn send(&mut self, buffer: &OwnedBuffer, number: u64) -> bool {
        // SAFETY: the tests keep `buffer` until everything came back, and write it then only.
        let payload = [unsafe { buffer.send_region() }].into_iter().collect();
        let mut descriptor =
            Descriptor { peer: Peer(1), header: Header::new(b"h"), payload, token: Token(number) };
        let end = Instant::now() + WATCHDOG;
        loop {
            match self.a.btl.send_zcopy(descriptor) {
                Ok(()) => return true,
                Err((ironweave_btl::Refused::NoRoom, back)) => descriptor = back,
                Err(_) => return false,
            }
            assert!(Instant::now() < end, "no room and no end");
            self.turn();
        }
    }

    /// Turns until as much has arrived at `start`, or the operation is over.
    fn until_arrived(&mut self, start: *const u8, bytes: usize) {
        self.until("bytes to arrive", |a, _| has_arrived(start, bytes) || !a.seen.rma.is_empty());
    }

    fn rma(&mut self, kind: RmaKind, remote: RemoteKey) {
        let descriptor =
            RmaDescriptor { peer: Peer(1), kind, remote, remote_offset: 0, token: Token(1) };
        assert!(self.a.btl.rma(descriptor).is_ok(), "there is room");
    }
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251 + seed) as u8).collect()
}

/// Whether the first `bytes` are there, of a buffer that was zero: devices write from its beginning to its end.
fn has_arrived(start: *const u8, bytes: usize) -> bool {
    // SAFETY: callers hold that many bytes, which a device, nobody in this process, may be writing: hence volatile.
    bytes == 0 || unsafe { start.add(bytes - 1).read_volatile() } != 0
}

/// How many have come of the bytes that all are 0x5A.
fn come(buffer: &[u8]) -> usize {
    assert!(buffer.iter().all(|&byte| byte == 0x5A || byte == 0), "bytes that nobody sent");
    buffer.iter().filter(|&&byte| byte == 0x5A).count()
}

/// At one moment at least an operation must really have been in its middle. Real devices may be through with all of it before
/// anybody has looked.
fn assert_cut(cut: u32) {
    assert!(cut > 0 || std::env::var_os(VM).is_none(), "nothing was cut off in its middle");
}

fn wire(test: &str, host: usize, rail: usize) -> Option<Wire> {
    let wire = Wire::of(host, rail);
    if wire.is_none() {
        println!("SKIP verbs/{test}: there are no wires to cut outside of the virtual machine");
    }
    wire
}

/// A wire that loses and reorders: slow, and right.
#[test]
fn carries_all_over_a_wire_that_loses() {
    let test = "carries_all_over_a_wire_that_loses";
    let Some(mut pair) = Pair::open(test, 1, |_| {}) else { return };
    let (Some(mut there), Some(mut back)) = (wire(test, 0, 1), wire(test, 1, 1)) else { return };
    there.netem("delay 200us reorder 10% loss 5%");
    back.netem("loss 5%");
    let buffers: Vec<OwnedBuffer> =
        (0..60).map(|number| OwnedBuffer::from(pattern(number, number * 131))).collect();
    for (number, buffer) in buffers.iter().enumerate() {
        assert!(pair.send(buffer, number as u64), "the endpoint is up: {:?}", pair.a.seen.faults);
    }
    pair.until("frames", |_, b| b.seen.frames.len() == buffers.len());
    pair.until("completions", |a, _| a.seen.completed.len() == buffers.len());
    for (frame, buffer) in pair.b.seen.frames.iter().zip(&buffers) {
        assert!(frame == buffer.as_slice());
    }
    assert!(pair.a.seen.completed.iter().all(Result::is_ok));
}

/// A wire that is cut for longer than the limits ends the endpoint at both ends, though the device itself may never
/// say a word; everything comes back.
#[test]
fn a_cut_wire_shows() {
    let test = "a_cut_wire_shows";
    for host in [0, 1] {
        let change = |config: &mut VerbsConfig| {
            config.link_timeout = Duration::from_secs(1);
            config.stall_timeout = Duration::from_secs(4);
        };
        let Some(mut pair) = Pair::open(test, 0, change) else { return };
        let Some(mut wire) = wire(test, host, 0) else { return };
        let buffers: Vec<_> = (0..8).map(|seed| OwnedBuffer::from(pattern(seed, 3000))).collect();
        assert!(pair.send(&buffers[0], 0));
        pair.until("a frame", |_, b| b.seen.frames.len() == 1);
        wire.down();
        let mut out = 1;
        for (number, buffer) in buffers.iter().enumerate().skip(1) {
            out += usize::from(pair.send(buffer, number as u64));
        }
        pair.until("both ends to close", |a, b| a.seen.closed == 1 && b.seen.closed == 1);
        assert_eq!(pair.a.seen.completed.len(), out, "each came back, once");
        assert!(pair.a.seen.faults.len() == 1 && pair.b.seen.faults.len() == 1);
        println!("cut at host {host}: {} / {}", pair.a.seen.faults[0], pair.b.seen.faults[0]);
        assert!(!pair.a.seen.faults[0].is_proof(), "a cut wire proves no death");
        // Mended, it carries again.
        wire.up();
        let address = pair.b.btl.address();
        let end = Instant::now() + WATCHDOG;
        while pair.a.seen.up < 2 {
            assert!(
                Instant::now() < end,
                "the mended wire carries nothing: {:?}",
                pair.a.seen.faults
            );
            if pair.a.btl.state(Peer(1)) == EndpointState::Closed {
                let _ = pair.a.btl.connect(Peer(1), &address);
            }
            pair.turn();
        }
        assert!(pair.send(&buffers[0], 99));
        pair.until("a frame over the mended wire", |_, b| {
            b.seen.frames.last().is_some_and(|frame| *frame == buffers[0].as_slice())
                && b.seen.frames.len() >= 2
        });
    }
}

/// A short cut heals, or shows; nothing is lost without a word.
#[test]
fn a_short_cut_heals_or_shows() {
    let test = "a_short_cut_heals_or_shows";
    let Some(mut pair) = Pair::open(test, 0, |_| {}) else { return };
    let Some(mut wire) = wire(test, 1, 0) else { return };
    let buffers: Vec<_> = (0..8).map(|seed| OwnedBuffer::from(pattern(seed, 5000))).collect();
    wire.down();
    let mut out = 0;
    for (number, buffer) in buffers.iter().enumerate() {
        out += usize::from(pair.send(buffer, number as u64));
    }
    pair.turns_for(Duration::from_millis(100));
    wire.up();
    pair.until("frames, or the end", |a, _| a.seen.completed.len() == out);
    let well = pair.a.seen.completed.iter().filter(|outcome| outcome.is_ok()).count();
    if well < out {
        pair.until("the end", |a, _| a.seen.closed == 1);
        assert_eq!(pair.a.seen.faults.len(), 1);
    }
    println!("a cut of 100 ms: {well} of {out} arrived, faults {:?}", pair.a.seen.faults);
    // Over iWARP they come back when TCP has taken them, and arrive when it has sent them again.
    pair.until("what came back well to be there", |_, b| b.seen.frames.len() >= well);
}

/// Requests that are late are sent again, and both arrive: the second finds the memory, though the read is long over and
/// its owner was told, or the connection would end for nothing.
#[test]
fn a_read_that_is_asked_for_twice_ends_nothing() {
    let test = "a_read_that_is_asked_for_twice_ends_nothing";
    let Some(mut pair) = Pair::open(test, 1, |_| {}) else { return };
    let Some(mut there) = wire(test, 0, 1) else { return };
    let retired = |btl: &Verbs| {
        let mut dump = String::new();
        let _ = btl.dump(&mut dump);
        !dump.contains(" 0 retired")
    };
    // The device asks again after 67 ms.
    there.netem("delay 90ms");
    let len = 64 << 10;
    for round in 0..5 {
        let source = OwnedBuffer::from(pattern(round, len));
        // SAFETY: kept until it was read to its end.
        let key = pair.b.btl.register_source(Peer(0), &unsafe { source.send_region() });
        let key = key.expect("it can be registered");
        let target = OwnedBuffer::zeroed(len);
        // SAFETY: looked at when the read is over.
        pair.rma(RmaKind::Get(unsafe { target.recv_region() }), key);
        pair.until("a read", |a, _| a.seen.rma.len() > round);
        assert_eq!(pair.a.seen.rma.last(), Some(&Ok(())));
        assert!(target.as_slice() == source.as_slice());
        pair.b.btl.retire(&key);
        assert!(retired(&pair.b.btl));
        drop(source);
        pair.turns_for(Duration::from_millis(200));
        assert!(pair.a.seen.faults.is_empty(), "round {round}: {:?}", pair.a.seen.faults);
        assert!(pair.b.seen.faults.is_empty(), "round {round}: {:?}", pair.b.seen.faults);
    }
    pair.until("the retired to be closed", |_, b| !retired(&b.btl));
}

/// Cut for less long than requests are repeated, both ways, all of it arrives and nobody hears of it.
#[test]
fn a_cut_shorter_than_the_tries_heals() {
    let test = "a_cut_shorter_than_the_tries_heals";
    // Soft-RoCE gives up after 2 s then; starting `tc` alone takes some 20 ms there.
    let change = |config: &mut VerbsConfig| config.timers.timeout = 16;
    let Some(mut pair) = Pair::open(test, 0, change) else { return };
    let (Some(mut there), Some(mut back)) = (wire(test, 0, 0), wire(test, 1, 0)) else { return };
    let buffers: Vec<_> = (0..16).map(|seed| OwnedBuffer::from(pattern(seed, 5000))).collect();
    let source = OwnedBuffer::from(vec![0x5A; LONG / 8]);
    let target = OwnedBuffer::zeroed(LONG / 8);
    // SAFETY: `target` is looked at after it is deregistered only.
    let key = pair.b.btl.register_target(&unsafe { target.recv_region() }).expect("memory");
    assert!(pair.send(&buffers[0], 0));
    pair.until("a frame", |a, b| a.seen.completed.len() == 1 && b.seen.frames.len() == 1);
    there.netem("loss 100%");
    back.netem("loss 100%");
    for (number, buffer) in buffers.iter().enumerate().skip(1) {
        assert!(pair.send(buffer, number as u64), "the endpoint is up: {:?}", pair.a.seen.faults);
    }
    // SAFETY: `source` is kept to the end.
    pair.rma(RmaKind::Put(unsafe { source.send_region() }), key);
    pair.turns_for(Duration::from_millis(100));
    assert_eq!(pair.b.seen.frames.len(), 1, "the wire is cut");
    there.clean();
    back.clean();
    pair.until("all to arrive", |a, b| {
        let back = a.seen.completed.len() + a.seen.rma.len();
        b.seen.frames.len() == buffers.len() && back == buffers.len() + 1
    });
    pair.b.btl.deregister(&key);
    for (frame, buffer) in pair.b.seen.frames.iter().zip(&buffers) {
        assert!(frame == buffer.as_slice());
    }
    assert_eq!(come(target.as_slice()), LONG / 8);
    assert!(pair.a.seen.completed.iter().chain(&pair.a.seen.rma).all(Result::is_ok));
    for node in [&pair.a, &pair.b] {
        assert!(node.seen.faults.is_empty(), "{:?}", node.seen.faults);
        assert_eq!((node.seen.up, node.seen.closed), (1, 0));
    }
}

/// Invalidated in the middle of a long read: the buffer, given back, is not written any more.
#[test]
fn a_read_that_is_cut_off_leaves_the_buffer_alone() {
    let test = "a_read_that_is_cut_off_leaves_the_buffer_alone";
    let mut cut = 0;
    for moment in MOMENTS {
        let Some(mut pair) = Pair::open(test, 0, |_| {}) else { return };
        let source = OwnedBuffer::from(vec![0x5A; LONG]);
        let mut target = OwnedBuffer::zeroed(LONG);
        // SAFETY: `source` is kept until it is deregistered.
        let key =
            pair.b.btl.register_source(Peer(0), &unsafe { source.send_region() }).expect("memory");
        // SAFETY: `target` is looked at after the read came back only, but by `has_arrived`.
        let region = unsafe { target.recv_region() };
        let start = region.as_mut_ptr().cast_const();
        pair.rma(RmaKind::Get(region), key);
        pair.until_arrived(start, moment);
        pair.a.btl.invalidate(Peer(1), Residue::Discard, &mut pair.a.seen);
        pair.until("the end", |a, _| a.seen.closed == 1 && a.seen.rma.len() == 1);
        let read = come(target.as_slice());
        println!("{read} of {LONG} bytes were read, {:?}", pair.a.seen.rma[0]);
        match &pair.a.seen.rma[0] {
            Ok(()) => assert_eq!(read, LONG, "success was told of a part"),
            Err(fault) => {
                assert_eq!(fault.cause, Cause::Invalidated);
                cut += u32::from(read > 0 && read < LONG);
            }
        }
        target.as_mut_slice().fill(0x11);
        pair.turns_for(WATCHED);
        assert!(target.as_slice().iter().all(|&byte| byte == 0x11), "written after it came back");
        assert_eq!((pair.a.seen.closed, pair.a.seen.rma.len()), (1, 1), "once");
        pair.b.btl.deregister(&key);
        assert_eq!(source.as_slice()[0], 0x5A);
    }
    assert_cut(cut);
}

/// Invalidated in the middle of a long write: what is done to the buffer afterwards does not reach the peer.
#[test]
fn a_write_that_is_cut_off_sends_nothing_more() {
    let test = "a_write_that_is_cut_off_sends_nothing_more";
    let mut cut = 0;
    for moment in MOMENTS {
        let Some(mut pair) = Pair::open(test, 0, |_| {}) else { return };
        let mut source = OwnedBuffer::from(vec![0x5A; LONG]);
        let target = OwnedBuffer::zeroed(LONG);
        // SAFETY: `target` is looked at after it is deregistered only, but by `has_arrived`.
        let region = unsafe { target.recv_region() };
        let key = pair.b.btl.register_target(&region).expect("memory");
        // SAFETY: `source` is written after the write came back only.
        pair.rma(RmaKind::Put(unsafe { source.send_region() }), key);
        pair.until_arrived(region.as_mut_ptr(), moment);
        pair.a.btl.invalidate(Peer(1), Residue::Discard, &mut pair.a.seen);
        pair.until("the end", |a, _| a.seen.closed == 1 && a.seen.rma.len() == 1);
        source.as_mut_slice().fill(0xEE);
        pair.turns_for(WATCHED);
        pair.b.btl.deregister(&key);
        let written = come(target.as_slice());
        println!("{written} of {LONG} bytes were written, {:?}", pair.a.seen.rma[0]);
        assert!(written == LONG || pair.a.seen.rma[0].is_err(), "success was told of a part");
        cut += u32::from(written > 0 && written < LONG);
        assert_eq!((pair.a.seen.closed, pair.a.seen.rma.len()), (1, 1), "once");
    }
    assert_cut(cut);
}

/// What a target does in the middle of a peer's write.
#[derive(Clone, Copy, PartialEq, Debug)]
enum TakesBack {
    /// Ends the endpoint; the memory stays open.
    Endpoint,
    /// Closes the memory; the endpoint stays.
    Memory,
}

/// The target ends a peer's write in its middle: from then on its buffer is its own, though the peer's device, which nobody
/// has told, goes on sending.
#[test]
fn a_target_that_is_taken_back_is_left_alone() {
    let test = "a_target_that_is_taken_back_is_left_alone";
    for what in [TakesBack::Endpoint, TakesBack::Memory] {
        let mut cut = 0;
        for moment in MOMENTS {
            let Some(mut pair) = Pair::open(test, 0, |_| {}) else { return };
            let source = OwnedBuffer::from(vec![0x5A; LONG]);
            let mut target = OwnedBuffer::zeroed(LONG);
            // SAFETY: `target` is touched after it was taken back only, but by `has_arrived`.
            let region = unsafe { target.recv_region() };
            let key = pair.b.btl.register_target(&region).expect("memory");
            // SAFETY: `source` is kept until the write came back.
            pair.rma(RmaKind::Put(unsafe { source.send_region() }), key);
            pair.until_arrived(region.as_mut_ptr(), moment);
            match what {
                TakesBack::Endpoint => {
                    let Node { btl, seen } = &mut pair.b;
                    btl.invalidate(Peer(0), Residue::Discard, seen);
                    assert_eq!(seen.closed, 1, "it is closed when the call returns");
                }
                TakesBack::Memory => pair.b.btl.deregister(&key),
            }
            let written = come(target.as_slice());
            target.as_mut_slice().fill(0x11);
            let untouched =
                |target: &OwnedBuffer| target.as_slice().iter().all(|&byte| byte == 0x11);
            // Only the target moves: the writer does not learn of it, and its device repeats all by itself.
            let end = Instant::now() + WATCHED;
            while Instant::now() < end {
                pair.b.btl.progress(&mut pair.b.seen);
            }
            assert!(untouched(&target), "{what:?}: written after it was taken back");
            pair.until("the write to come back", |a, _| a.seen.rma.len() == 1);
            if pair.a.seen.rma[0].is_err() {
                pair.until("the end", |a, b| a.seen.closed == 1 && b.seen.closed == 1);
                cut += u32::from(written > 0 && written < LONG);
            } else {
                assert_eq!(written, LONG, "success was told of a part");
            }
            println!("{what:?}: {written} of {LONG} were written, {:?}", pair.a.seen.rma[0]);
            pair.turns_for(WATCHED);
            assert!(untouched(&target), "{what:?}: written after the end");
            assert_eq!(pair.a.seen.rma.len(), 1, "once");
            pair.b.btl.deregister(&key);
        }
        assert_cut(cut);
    }
}
