//! What the suite cannot know: reads that are cut off, providers that say "try again" for ever, restarted peers, wrong
//! addresses, queues that nobody reads. Both ends live in this process, which these providers allow; each test runs for
//! each library and provider, and says by name which is not there.
#![allow(unsafe_code)] // buffers that are lent and watched

mod killed;
mod lanes;
mod leads;
#[path = "../support/libraries.rs"]
mod libraries;
mod peers;
mod queues;
mod reads;
mod restarts;
mod shared;
mod silence;
mod vectors;
mod victims;

use ironweave_btl::memory::{OwnedBuffer, RecvRegion};
use ironweave_btl::{
    Address, Atomic, Btl, Cause, Descriptor, EndpointState, Fault, Landing, Peer, Refused,
    RemoteKey, Residue, RmaDescriptor, RmaKind, Scope, Sink, Token,
};
use ironweave_btl_ofi::{Ofi, OfiConfig, endpoint_name};
use libraries::{DEBIAN, V1_22, V2_5, library};
use std::process::Command;
use std::time::{Duration, Instant};

/// No test waits longer for anything.
const WATCHDOG: Duration = Duration::from_secs(40);
/// Bytes of a long read.
const LONG: usize = 8 << 20;

/// Whom each test is run for.
const WAYS: [(&str, &str, &str); 6] = [
    ("tcp_rxm_1_17", DEBIAN, "tcp;ofi_rxm"),
    ("net_1_17", DEBIAN, "net"),
    ("tcp_1_22", V1_22, "tcp"),
    ("tcp_rxm_1_22", V1_22, "tcp;ofi_rxm"),
    ("tcp_2_5", V2_5, "tcp"),
    ("sockets_1_17", DEBIAN, "sockets"),
];

#[derive(Default)]
struct Record {
    from: Vec<Peer>,
    frames: Vec<Vec<u8>>,
    rma: Vec<Result<(), Fault>>,
    up: u32,
    faults: Vec<Fault>,
    closed: u32,
    /// Memory is offered to frames that come in pieces; here it is, and what became of each, by number.
    lands: bool,
    targets: Vec<OwnedBuffer>,
    landed: Vec<(u64, Result<(), Fault>)>,
    /// What became of frames sent out of memory, by number.
    sent: Vec<(u64, Result<(), Fault>)>,
}

impl Sink for Record {
    fn landing(&mut self, _: Peer, _: &[u8], len: usize) -> Landing {
        if !self.lands {
            return Landing::Buffered;
        }
        let target = OwnedBuffer::zeroed(len);
        let token = Token(self.targets.len() as u64);
        // SAFETY: tests look at it after it came back only, and keep the record longer than the rail.
        let region = unsafe { target.recv_region() };
        self.targets.push(target);
        Landing::Direct { region, token }
    }

    fn landed(&mut self, _: Peer, _: RecvRegion, token: Token, outcome: Result<(), Fault>) {
        assert_eq!(self.closed, 0, "after the end");
        self.landed.push((token.0, outcome));
    }

    fn frame(&mut self, from: Peer, _: &[u8], payload: &[u8]) {
        self.from.push(from);
        self.frames.push(payload.to_vec());
    }

    fn completed(&mut self, descriptor: Descriptor, outcome: Result<(), Fault>) {
        assert_eq!(self.closed, 0, "after the end");
        self.sent.push((descriptor.token.0, outcome));
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
    me: Peer,
    btl: Ofi,
    seen: Record,
}

impl Node {
    /// A rail on loopback; `None` when that library or provider is not here.
    fn open(test: &str, way: (&str, &str, &str), me: u32) -> Option<Node> {
        Self::open_with(test, way, me, |_| {})
    }

    /// The same, with a change to the configuration.
    fn open_with(
        test: &str,
        way: (&str, &str, &str),
        me: u32,
        change: impl Fn(&mut OfiConfig),
    ) -> Option<Node> {
        let mut config = OfiConfig {
            me: Peer(me),
            secret: [7; 32],
            job: format!("faults-{}", std::process::id()),
            library: Some(library(way.1)),
            include: vec![way.2.to_owned()],
            domains: ["lo", "127.0.0.1/32"].map(str::to_owned).to_vec(),
            rails: 1,
            connect_timeout: Duration::from_secs(2),
            peer_timeout: Duration::from_millis(500),
            heads: me == 0, // one side reads in two pieces, the other at once
            ..OfiConfig::default()
        };
        change(&mut config);
        match Ofi::open_all(&config) {
            Ok(mut rails) => {
                Some(Node { me: Peer(me), btl: rails.remove(0), seen: Record::default() })
            }
            Err(why) => {
                println!("SKIP ofi/{}/{test}: {why}", way.0);
                None
            }
        }
    }

    /// How many of a thing there are, by what the rail says: the number before `word`.
    fn count(&self, word: &str) -> usize {
        let mut text = String::new();
        self.btl.dump(&mut text).expect("a string takes everything");
        let before = text.split(word).next().and_then(|text| text.rsplit(' ').next());
        before.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    }

    fn turn(&mut self) -> usize {
        self.btl.progress(&mut self.seen)
    }

    /// Begins to read what `remote` names into all of `target`, which is not looked at before the read came back.
    fn read(&mut self, peer: Peer, remote: RemoteKey, target: &OwnedBuffer) {
        // SAFETY: by the callers' promise above; tests keep the buffer longer than the rail.
        let kind = RmaKind::Get(unsafe { target.recv_region() });
        let read = RmaDescriptor { peer, kind, remote, remote_offset: 0, token: Token(1) };
        self.btl.rma(read).map_err(|(refused, _)| refused).expect("room for one read");
    }
}

struct Pair {
    a: Node,
    b: Node,
}

impl Pair {
    fn open(test: &str, way: (&str, &str, &str)) -> Option<Pair> {
        Self::open_with(test, way, |_| {})
    }

    /// The same, with a change to both configurations.
    fn open_with(
        test: &str,
        way: (&str, &str, &str),
        change: impl Fn(&mut OfiConfig),
    ) -> Option<Pair> {
        let (a, b) =
            (Node::open_with(test, way, 0, &change)?, Node::open_with(test, way, 1, &change)?);
        let mut pair = Pair { a, b };
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

/// Which way the process of a test is for.
const ONLY: &str = "IW_FAULTS_WAY";

/// Whether memory is read over that way; says so by name where not.
fn reads_over(test: &str, way: (&str, &str, &str), node: &Node) -> bool {
    let get = node.btl.caps().get;
    if !get {
        println!("SKIP ofi/{}/{test}: no memory is read over {}", way.0, way.2);
    }
    get
}

/// Runs a test for each of [`WAYS`].
fn each(test: &str, run: impl Fn((&str, &str, &str))) {
    each_of(&WAYS, test, run);
}

/// Runs a test for each way, in a process of its own: two versions of libfabric in one process share the providers that they load by
/// name, and both end them when the process ends, which corrupts its memory.
fn each_of(ways: &[(&str, &str, &str)], test: &str, run: impl Fn((&str, &str, &str))) {
    if let Ok(only) = std::env::var(ONLY) {
        let way = ways.iter().copied().find(|way| way.0 == only).expect("a way of ours");
        println!("{test} over {only}");
        return run(way);
    }
    for (way, ..) in ways {
        let mut child = Command::new(std::env::current_exe().expect("this program has a path"));
        child.args([test, "--nocapture", "--test-threads=1"]).env(ONLY, way);
        let output = child.output().expect("this program starts");
        let said = String::from_utf8_lossy(&output.stdout);
        print!("{said}");
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{test} over {way}: {}", output.status);
        assert!(said.contains(&format!("{test} over {way}")), "no test is named {test}");
    }
}
