//! A queue pair that is full of what nobody answers, when its life is to end: UCX takes no cancellation then, and everything
//! comes back all the same, once the device's retries are over; the rail lives on.
#![allow(unsafe_code)] // a buffer that is lent

use ironweave_btl::memory::OwnedBuffer;
use ironweave_btl::{
    Btl, Descriptor, EndpointState, Fault, Header, Peer, Refused, Residue, RmaDescriptor, Sink,
    Token,
};
use ironweave_btl_uct::{Uct, UctConfig};
use ironweave_hwtests::fabric::{Fabric, Wire};
use std::time::{Duration, Instant};

/// No test waits longer for anything.
const WATCHDOG: Duration = Duration::from_secs(60);
/// More frames than a queue pair of UCX's has places.
const MANY: u64 = 2000;

#[derive(Default)]
struct Record {
    completed: u64,
    up: u32,
    faults: Vec<Fault>,
    closed: u32,
}

impl Sink for Record {
    fn frame(&mut self, _: Peer, _: &[u8], _: &[u8]) {}

    fn completed(&mut self, _: Descriptor, _: Result<(), Fault>) {
        assert_eq!(self.closed, 0, "after the end");
        self.completed += 1;
    }

    fn rma_completed(&mut self, _: RmaDescriptor, _: Result<(), Fault>) {
        unreachable!("nothing is put or got");
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
    btl: Uct,
    seen: Record,
}

fn open(fabric: &Fabric, host: u32) -> Node {
    let config = UctConfig {
        me: Peer(host),
        secret: [7; 32],
        job: format!("full-{}", std::process::id()),
        transports: vec![String::from("rc_verbs")],
        devices: vec![format!("{}:1", fabric.device(host as usize, 0))],
        rails: 1,
        ..UctConfig::default()
    };
    let btl = Uct::open_all(&config).expect("the device opens").remove(0);
    Node { btl, seen: Record::default() }
}

fn until(nodes: &mut [Node; 2], what: &str, mut done: impl FnMut(&mut [Node; 2]) -> bool) {
    let end = Instant::now() + WATCHDOG;
    while !done(nodes) {
        let busy: usize = nodes.iter_mut().map(|node| node.btl.progress(&mut node.seen)).sum();
        if busy == 0 {
            std::thread::yield_now();
        }
        if Instant::now() > end {
            let mut dump = String::new();
            nodes.iter().for_each(|node| {
                let _ = node.btl.dump(&mut dump);
            });
            panic!("waited in vain for {what}\n{dump}{:?}", nodes[0].seen.faults);
        }
    }
}

#[test]
fn a_full_queue_to_nobody_is_given_back() {
    let Some((fabric, mut wire)) = Fabric::given().zip(Wire::of(0, 0)) else {
        println!("SKIP uct/a_full_queue_to_nobody_is_given_back: there is no wire to cut");
        return;
    };
    let buffer = OwnedBuffer::from(vec![0x5A; 2048]);
    let mut nodes = [open(&fabric, 0), open(&fabric, 1)];
    let there = nodes[1].btl.address();
    nodes[0].btl.connect(Peer(1), &there).expect("the address is reachable");
    until(&mut nodes, "both to be up", |nodes| nodes.iter().all(|node| node.seen.up == 1));
    wire.netem("loss 100%");
    // Some out of memory that is to come back, then as many as there is room for.
    let a = &mut nodes[0];
    let mut lent = 0;
    let mut full = false;
    for number in 0..MANY {
        // SAFETY: the buffer is not written, and is gone after the rails.
        let payload = [unsafe { buffer.send_region() }].into_iter().collect();
        let token = Token(number);
        let frame = Descriptor { peer: Peer(1), header: Header::new(b"h"), payload, token };
        let sent = if number < 16 {
            a.btl.send_zcopy(frame).map(|()| lent += 1).map_err(|(refused, _)| refused)
        } else {
            a.btl.send_short(Peer(1), b"h", &[1; 8])
        };
        full = sent == Err(Refused::NoRoom);
        if full {
            break;
        }
        assert_eq!(sent, Ok(()));
    }
    assert!(full, "{MANY} frames did not fill the queue");
    a.btl.invalidate(Peer(1), Residue::Discard, &mut a.seen);
    assert_ne!(a.btl.state(Peer(1)), EndpointState::Up);
    assert_eq!(a.btl.send_short(Peer(1), b"h", &[1; 8]), Err(Refused::Closed));
    until(&mut nodes, "the end", |[a, _]| a.seen.closed == 1);
    assert_eq!((nodes[0].seen.completed, &nodes[0].seen.faults), (lent, &Vec::new()));
    wire.clean();
    nodes[0].seen.closed = 0;
    until(&mut nodes, "a new life", |[a, _]| {
        if a.btl.state(Peer(1)) == EndpointState::Closed {
            let _ = a.btl.connect(Peer(1), &there);
        }
        a.seen.up == 2
    });
}
