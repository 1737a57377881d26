//! What the suite cannot know: wires that are cut, lose packets, and devices in the middle of a write or read.
//!
//! Both ends live in this process, on the devices of two hosts; runs in the virtual machine (`ci/hwtests`).
#![allow(unsafe_code)] // buffers that are lent and watched

use ironweave_btl::memory::OwnedBuffer;
use ironweave_btl::{
    Btl, Cause, Descriptor, EndpointState, Fault, Header, Peer, RemoteKey, Residue, RmaDescriptor,
    RmaKind, Sink, Token,
};
use ironweave_btl_verbs::{Verbs, VerbsConfig};
use ironweave_hwtests::fabric::{Fabric, Wire};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// No test waits longer for anything.
const WATCHDOG: Duration = Duration::from_secs(40);
/// Bytes of a long put or get.
const LONG: usize = 4 << 20;

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

    fn rma(&mut self, kind: RmaKind, remote: RemoteKey) {
        let descriptor =
            RmaDescriptor { peer: Peer(1), kind, remote, remote_offset: 0, token: Token(1) };
        assert!(self.a.btl.rma(descriptor).is_ok(), "there is room");
    }
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251 + seed) as u8).collect()
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

/// Invalidated in the middle of a long read: the buffer, given back, is not written any more.
#[test]
fn a_read_that_is_cut_off_leaves_the_buffer_alone() {
    let test = "a_read_that_is_cut_off_leaves_the_buffer_alone";
    for moment in [0, 1, 5, 20, 60] {
        let Some(mut pair) = Pair::open(test, 0, |_| {}) else { return };
        let source = OwnedBuffer::from(vec![0x5A; LONG]);
        let mut target = OwnedBuffer::zeroed(LONG);
        // SAFETY: `source` is kept until it is deregistered.
        let key =
            pair.b.btl.register_source(Peer(0), &unsafe { source.send_region() }).expect("memory");
        // SAFETY: `target` is looked at after the read came back only.
        pair.rma(RmaKind::Get(unsafe { target.recv_region() }), key);
        pair.turns_for(Duration::from_millis(moment));
        pair.a.btl.invalidate(Peer(1), Residue::Discard, &mut pair.a.seen);
        pair.until("the end", |a, _| a.seen.closed == 1 && a.seen.rma.len() == 1);
        let read = target.as_slice().iter().filter(|&&byte| byte == 0x5A).count();
        println!("after {moment} ms: {read} of {LONG} bytes were read, {:?}", pair.a.seen.rma[0]);
        if pair.a.seen.rma[0].is_err() {
            assert!(matches!(&pair.a.seen.rma[0], Err(Fault { cause: Cause::Invalidated, .. })));
        }
        target.as_mut_slice().fill(0x11);
        pair.turns_for(Duration::from_millis(200));
        assert!(target.as_slice().iter().all(|&byte| byte == 0x11), "written after it came back");
        pair.b.btl.deregister(&key);
        assert_eq!(source.as_slice()[0], 0x5A);
    }
}

/// Invalidated in the middle of a long write: what is done to the buffer afterwards does not reach the peer.
#[test]
fn a_write_that_is_cut_off_sends_nothing_more() {
    let test = "a_write_that_is_cut_off_sends_nothing_more";
    for moment in [0, 1, 5, 20, 60] {
        let Some(mut pair) = Pair::open(test, 0, |_| {}) else { return };
        let mut source = OwnedBuffer::from(vec![0x5A; LONG]);
        let target = OwnedBuffer::zeroed(LONG);
        // SAFETY: `target` is looked at after it is deregistered only.
        let key = pair.b.btl.register_target(&unsafe { target.recv_region() }).expect("memory");
        // SAFETY: `source` is written after the write came back only.
        pair.rma(RmaKind::Put(unsafe { source.send_region() }), key);
        pair.turns_for(Duration::from_millis(moment));
        pair.a.btl.invalidate(Peer(1), Residue::Discard, &mut pair.a.seen);
        pair.until("the end", |a, _| a.seen.closed == 1 && a.seen.rma.len() == 1);
        source.as_mut_slice().fill(0xEE);
        pair.turns_for(Duration::from_millis(200));
        pair.b.btl.deregister(&key);
        assert!(
            target.as_slice().iter().all(|&byte| byte == 0x5A || byte == 0),
            "late bytes arrived"
        );
        let whole = target.as_slice().iter().all(|&byte| byte == 0x5A);
        assert!(whole || pair.a.seen.rma[0].is_err(), "success was told of a part");
    }
}
