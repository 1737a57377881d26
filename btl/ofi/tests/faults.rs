//! What the suite cannot know: reads that are cut off, providers that say "try again" for ever, restarted peers, wrong
//! addresses, queues that nobody reads. Both ends live in this process, which these providers allow; each test runs for
//! each library and provider, and says by name which is not there.
#![allow(unsafe_code)] // buffers that are lent and watched

#[path = "support/libraries.rs"]
mod libraries;

use ironweave_btl::memory::OwnedBuffer;
use ironweave_btl::{
    Address, Btl, Cause, Descriptor, EndpointState, Fault, Peer, Refused, Residue, RmaDescriptor,
    RmaKind, Scope, Sink, Token,
};
use ironweave_btl_ofi::{Ofi, OfiConfig};
use libraries::{DEBIAN, V1_22, V2_5, library};
use std::time::{Duration, Instant};

/// No test waits longer for anything.
const WATCHDOG: Duration = Duration::from_secs(40);
/// Bytes of a long read.
const LONG: usize = 8 << 20;

/// Whom each test is run for.
const WAYS: [(&str, &str, &str); 4] = [
    ("tcp_rxm_1_17", DEBIAN, "tcp;ofi_rxm"),
    ("tcp_1_22", V1_22, "tcp"),
    ("tcp_rxm_1_22", V1_22, "tcp;ofi_rxm"),
    ("tcp_2_5", V2_5, "tcp"),
];

#[derive(Default)]
struct Record {
    frames: Vec<Vec<u8>>,
    rma: Vec<Result<(), Fault>>,
    up: u32,
    faults: Vec<Fault>,
    closed: u32,
}

impl Sink for Record {
    fn frame(&mut self, _: Peer, _: &[u8], payload: &[u8]) {
        self.frames.push(payload.to_vec());
    }

    fn completed(&mut self, _: Descriptor, _: Result<(), Fault>) {
        unreachable!("this transport takes no zero-copy sends");
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
    btl: Ofi,
    seen: Record,
}

impl Node {
    /// A rail on loopback; `None` when that library or provider is not here.
    fn open(test: &str, way: (&str, &str, &str), me: u32) -> Option<Node> {
        let config = OfiConfig {
            me: Peer(me),
            secret: [7; 32],
            job: format!("faults-{}", std::process::id()),
            library: Some(library(way.1)),
            include: vec![way.2.to_owned()],
            domains: ["lo", "127.0.0.1/32"].map(str::to_owned).to_vec(),
            rails: 1,
            connect_timeout: Duration::from_secs(2),
            peer_timeout: Duration::from_millis(500),
            ..OfiConfig::default()
        };
        match Ofi::open_all(&config) {
            Ok(mut rails) => Some(Node { btl: rails.remove(0), seen: Record::default() }),
            Err(why) => {
                println!("SKIP ofi/{}/{test}: {why}", way.0);
                None
            }
        }
    }

    fn turn(&mut self) -> usize {
        self.btl.progress(&mut self.seen)
    }
}

struct Pair {
    a: Node,
    b: Node,
}

impl Pair {
    fn open(test: &str, way: (&str, &str, &str)) -> Option<Pair> {
        let mut pair = Pair { a: Node::open(test, way, 0)?, b: Node::open(test, way, 1)? };
        let address = pair.b.btl.address();
        pair.a.btl.connect(Peer(1), &address).expect("the address is reachable");
        until("both to be up", || {
            pair.turn();
            pair.a.seen.up == 1 && pair.b.seen.up == 1
        });
        Some(pair)
    }

    fn turn(&mut self) {
        if self.a.turn() + self.b.turn() == 0 {
            std::thread::yield_now();
        }
    }

    fn turns_for(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.turn();
        }
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < WATCHDOG, "waited in vain for {what}");
    }
}

/// Runs a test for each way.
fn each(test: &str, run: impl Fn((&str, &str, &str))) {
    for way in WAYS {
        println!("{test} over {}", way.0);
        run(way);
    }
}

/// Invalidated in the middle of a long read: the buffer, given back, is not written any more.
#[test]
fn a_read_that_is_cut_off_leaves_the_buffer_alone() {
    let test = "a_read_that_is_cut_off_leaves_the_buffer_alone";
    each(test, |way| {
        let mut cut = 0;
        for moment in 0..12_u32 {
            let Some(mut pair) = Pair::open(test, way) else { return };
            if !pair.a.btl.caps().get {
                return; // nothing is read over it
            }
            let source = OwnedBuffer::from(vec![0x5A; LONG]);
            let mut target = OwnedBuffer::zeroed(LONG);
            // SAFETY: `source` is kept until it is deregistered.
            let key = pair.b.btl.register_source(&unsafe { source.send_region() }).expect("memory");
            // SAFETY: `target` is looked at after the read came back only.
            let kind = RmaKind::Get(unsafe { target.recv_region() });
            let (peer, token) = (Peer(1), Token(1));
            let read = RmaDescriptor { peer, kind, remote: key, remote_offset: 0, token };
            pair.a.btl.rma(read).map_err(|(refused, _)| refused).expect("room for one read");
            // A few turns more each time: before the request is out, in the middle, or after the end.
            for _ in 0..moment * 3 {
                pair.turn();
            }
            let mut state = String::new();
            pair.a.btl.dump(&mut state).expect("a string takes everything");
            let lanes = if way.2 == "tcp" { "1 lanes" } else { "0 lanes" };
            assert!(state.contains(lanes), "{}: {state}", way.0);
            pair.a.btl.invalidate(Peer(1), Residue::Discard, &mut pair.a.seen);
            until("the end", || {
                pair.turn();
                pair.a.seen.closed == 1 && pair.a.seen.rma.len() == 1
            });
            match &pair.a.seen.rma[0] {
                Ok(()) => assert!(target.as_slice().iter().all(|&byte| byte == 0x5A), "a part"),
                Err(fault) => {
                    assert_eq!(fault.cause, Cause::Invalidated);
                    cut += 1;
                }
            }
            target.as_mut_slice().fill(0x11);
            pair.turns_for(Duration::from_millis(50));
            let untouched = target.as_slice().iter().all(|&byte| byte == 0x11);
            assert!(untouched, "{}: written after it came back", way.0);
            pair.b.btl.deregister(&key);
            assert_eq!(source.as_slice()[0], 0x5A);
        }
        assert!(cut > 0, "{}: no read was cut off", way.0);
    });
}

/// Our own end is closed with sends and reads under way: nothing crashes, and the peer's end can be closed too.
#[test]
fn a_rail_is_dropped_with_everything_under_way() {
    let test = "a_rail_is_dropped_with_everything_under_way";
    each(test, |way| {
        let Some(mut pair) = Pair::open(test, way) else { return };
        let source = OwnedBuffer::from(vec![0x5A; LONG]);
        let mut target = OwnedBuffer::zeroed(LONG);
        // SAFETY: `source` is kept until after the rail that lends it is dropped.
        let key = pair.b.btl.register_source(&unsafe { source.send_region() }).ok();
        if let Some(remote) = key {
            // SAFETY: `target` is looked at after the rail that writes it is dropped only.
            let kind = RmaKind::Get(unsafe { target.recv_region() });
            let (peer, token) = (Peer(1), Token(1));
            let read = RmaDescriptor { peer, kind, remote, remote_offset: 0, token };
            pair.a.btl.rma(read).map_err(|(refused, _)| refused).expect("room for one read");
        }
        while pair.a.btl.send_bcopy(Peer(1), b"h", 10_000, |_, piece| piece.fill(1)).is_ok() {}
        for _ in 0..5 {
            pair.turn();
        }
        let Pair { a, mut b } = pair;
        drop(a);
        target.as_mut_slice().fill(0x11);
        let end = Instant::now() + Duration::from_millis(100);
        while Instant::now() < end {
            b.turn();
        }
        assert!(target.as_slice().iter().all(|&byte| byte == 0x11), "written after the drop");
        b.btl.invalidate(Peer(0), Residue::Discard, &mut b.seen);
        assert_eq!(b.btl.state(Peer(0)), EndpointState::Closed);
        assert_eq!(b.seen.closed, 1);
    });
}

/// A peer is gone without a word: whatever the provider says to what is sent (nothing, "try again" for ever, an error), this
/// end is either silent or closes by itself with a fault that calls nobody dead, and it can be closed.
#[test]
fn sending_to_who_is_gone_ends_and_proves_nothing() {
    let test = "sending_to_who_is_gone_ends_and_proves_nothing";
    each(test, |way| {
        let Some(pair) = Pair::open(test, way) else { return };
        let Pair { mut a, b } = pair;
        drop(b);
        let end = Instant::now() + Duration::from_secs(2);
        let mut refused = Ok(());
        while Instant::now() < end && a.seen.closed == 0 {
            let sent = a.btl.send_short(Peer(1), b"h", &[1; 100]);
            refused = refused.and(sent);
            a.turn();
        }
        println!("  {:?}, {:?} at last, {} closed", a.seen.faults, refused, a.seen.closed);
        for fault in &a.seen.faults {
            assert_ne!(fault.cause, Cause::ProcessGone, "no provider knows that");
            assert_ne!(fault.scope, Scope::Operation);
            assert_eq!(fault.peer, Some(Peer(1)), "one peer, not the device");
        }
        if a.seen.closed == 0 {
            assert_eq!(refused, Err(Refused::NoRoom), "what nobody reads is not bounded");
            a.btl.invalidate(Peer(1), Residue::Discard, &mut a.seen);
        }
        assert_eq!((a.seen.closed, a.btl.state(Peer(1))), (1, EndpointState::Closed));
    });
}

/// A receiver that does not look for a while loses nothing: its completion queue holds all that the window lets in.
#[test]
fn a_queue_that_nobody_reads_does_not_overrun() {
    let test = "a_queue_that_nobody_reads_does_not_overrun";
    each(test, |way| {
        let Some(mut pair) = Pair::open(test, way) else { return };
        let mut sent = 0_u32;
        let end = Instant::now() + Duration::from_millis(300);
        while Instant::now() < end {
            match pair.a.btl.send_short(Peer(1), b"h", &sent.to_le_bytes()) {
                Ok(()) => sent += 1,
                Err(refused) => assert_eq!(refused, Refused::NoRoom),
            }
            pair.a.turn(); // b is not asked
            if pair.a.seen.closed > 0 {
                break; // the deadline for a provider that has no room
            }
        }
        assert!(sent > 100, "{sent} frames");
        let closed = pair.a.seen.closed > 0;
        until("all frames", || {
            pair.turn();
            closed || pair.b.seen.frames.len() == sent as usize
        });
        for (number, frame) in (0_u32..).zip(&pair.b.seen.frames) {
            assert_eq!(frame[..], number.to_le_bytes());
        }
        assert!(pair.b.seen.faults.is_empty(), "{:?}", pair.b.seen.faults);
    });
}

/// A process that was started again has another incarnation: whoever means the old one does not get it.
#[test]
fn a_restarted_peer_is_not_taken_for_the_old_one() {
    let test = "a_restarted_peer_is_not_taken_for_the_old_one";
    each(test, |way| {
        let Some(mut a) = Node::open(test, way, 0) else { return };
        let Some(old) = Node::open(test, way, 1) else { return };
        let of_old = old.btl.address();
        drop(old);
        let Some(mut new) = Node::open(test, way, 1) else { return };
        let of_new = new.btl.address();
        // The new one's address as the old one's: incarnations are bytes 13 to 21 (see the address blob).
        let mut mixed = of_new.bytes.clone();
        mixed[13..21].copy_from_slice(&of_old.bytes[13..21]);
        let mixed = Address { bytes: mixed, ..of_new.clone() };
        a.btl.connect(Peer(1), &mixed).expect("it is an address");
        until("the attempt to end", || {
            new.turn();
            a.turn();
            a.seen.closed == 1
        });
        assert_eq!((a.seen.up, new.seen.up), (0, 0), "{}: taken for the old one", way.0);
        a.btl.connect(Peer(1), &of_new).expect("it is an address");
        until("the new one to be up", || {
            new.turn();
            a.turn();
            a.seen.up == 1 && new.seen.up == 1
        });
    });
}

/// Blobs that are none, of another provider or rail are refused at once, in words; strange endpoint addresses never crash.
#[test]
fn wrong_addresses_are_refused() {
    let test = "wrong_addresses_are_refused";
    each(test, |way| {
        let Some(mut a) = Node::open(test, way, 0) else { return };
        let Some(b) = Node::open(test, way, 1) else { return };
        let right = b.btl.address();
        let changed = |change: &dyn Fn(&mut Address)| {
            let mut address = right.clone();
            change(&mut address);
            address
        };
        for wrong in [
            changed(&|address| address.bytes.clear()),
            changed(&|address| address.bytes.truncate(30)),
            changed(&|address| address.bytes[0] = 9),
            changed(&|address| address.bytes[26] ^= 1), // in the provider's name
            changed(&|address| address.rail += 1),
            changed(&|address| address.component = "tcp".into()),
        ] {
            let refused = a.btl.connect(Peer(1), &wrong).expect_err("a wrong address");
            assert_eq!(refused, Fault::rail(Peer(1), Cause::Unreachable), "{wrong:?}");
            assert_eq!(a.btl.state(Peer(1)), EndpointState::Closed);
        }
        let nowhere = changed(&|address| {
            let len = address.bytes.len();
            address.bytes[len - 8..].fill(0xff);
        });
        let lives = a.seen.closed;
        if a.btl.connect(Peer(1), &nowhere).is_ok() {
            until("the attempt to end", || {
                a.turn();
                a.seen.closed == lives + 1
            });
        }
        assert_eq!(a.seen.up, 0);
    });
}
