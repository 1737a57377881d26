//! Rails of both hosts in this process, driven in turns, and what each of them reported.

use ironweave_btl::{Btl, Descriptor, Fault, Peer, RmaDescriptor, Sink};
use ironweave_btl_verbs::{Ring, Verbs, VerbsConfig};
use ironweave_hwtests::fabric::Fabric;
use std::time::{Duration, Instant};

/// No test waits longer for anything.
pub const WATCHDOG: Duration = Duration::from_secs(40);

/// What was reported.
#[derive(Default)]
pub struct Seen {
    pub frames: Vec<(Peer, Vec<u8>)>,
    /// What came back, by its number.
    #[allow(dead_code)] // each file uses its part, here and below
    pub given_back: Vec<(u64, Result<(), Fault>)>,
    pub up: u32,
    pub faults: Vec<Fault>,
    pub closed: u32,
}

impl Sink for Seen {
    fn frame(&mut self, from: Peer, header: &[u8], payload: &[u8]) {
        assert_eq!(header, b"h");
        self.frames.push((from, payload.to_vec()));
    }
    fn completed(&mut self, descriptor: Descriptor, outcome: Result<(), Fault>) {
        self.given_back.push((descriptor.token.0, outcome));
    }
    fn rma_completed(&mut self, descriptor: RmaDescriptor, outcome: Result<(), Fault>) {
        self.given_back.push((descriptor.token.0, outcome));
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

/// One rail, with rings wherever that is possible.
pub struct Node {
    pub btl: Verbs,
    pub seen: Seen,
}

impl Node {
    /// Rank 0 is on host 0, all others on host 1.
    pub fn open(fabric: &Fabric, rank: u32, job: &str, change: impl Fn(&mut VerbsConfig)) -> Node {
        let mut config = VerbsConfig {
            me: Peer(rank),
            secret: [7; 32],
            job: job.to_owned(),
            include: vec![fabric.device(usize::from(rank > 0), 0).to_owned()],
            ring: Ring::On,
            ..VerbsConfig::default()
        };
        change(&mut config);
        let btl = Verbs::open_all(config).expect("the device opens").remove(0);
        Node { btl, seen: Seen::default() }
    }

    pub fn turn(&mut self) {
        self.btl.progress(&mut self.seen);
    }

    pub fn dump(&self) -> String {
        let mut dump = String::new();
        let _ = self.btl.dump(&mut dump);
        dump
    }
}

/// A name for the job of a test.
pub fn job(test: &str) -> String {
    format!("{test}-{}", std::process::id())
}

/// Ranks 0 and 1, connected.
pub fn pair(fabric: &Fabric, test: &str, change: impl Fn(&mut VerbsConfig)) -> Vec<Node> {
    let mut nodes: Vec<Node> =
        (0..2).map(|rank| Node::open(fabric, rank, &job(test), &change)).collect();
    meet(&mut nodes);
    nodes
}

/// Has 0 call 1.
pub fn meet(nodes: &mut [Node]) {
    let before: Vec<u32> = nodes.iter().map(|node| node.seen.up).collect();
    let address = nodes[1].btl.address();
    nodes[0].btl.connect(Peer(1), &address).expect("the address is good");
    until("both to be up", nodes, |nodes| {
        nodes[0].seen.up > before[0] && nodes[1].seen.up > before[1]
    });
}

/// Drives all of them until `done`, and fails with their state after too long.
pub fn until(what: &str, nodes: &mut [Node], mut done: impl FnMut(&mut [Node]) -> bool) {
    let end = Instant::now() + WATCHDOG;
    while !done(nodes) {
        nodes.iter_mut().for_each(Node::turn);
        std::thread::yield_now();
        if Instant::now() > end {
            let dumps: String = nodes.iter().map(Node::dump).collect();
            let faults: Vec<_> = nodes.iter().map(|node| &node.seen.faults).collect();
            panic!("waited for {what}\n{dumps}{faults:?}");
        }
    }
}
