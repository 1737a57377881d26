//! A sink that records, and helpers to drive rails until something happened or a watchdog ends the test.
#![allow(dead_code)] // each test program uses its part

use ironweave_btl::memory::{OwnedBuffer, RecvRegion};
use ironweave_btl::{
    Address, Btl, Descriptor, EndpointState, Fault, Landing, Peer, RmaDescriptor, Sink, Token,
};
use ironweave_btl_tcp::{Tcp, TcpConfig};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// No test waits longer for anything.
pub const WATCHDOG: Duration = Duration::from_secs(60);

pub type Frame = (Peer, Vec<u8>, Vec<u8>);

/// Everything that was reported.
#[derive(Default)]
pub struct Record {
    pub frames: Vec<Frame>,
    pub completed: Vec<(Token, Result<(), Fault>)>,
    pub landed: Vec<(RecvRegion, Token, Result<(), Fault>)>,
    pub up: Vec<Peer>,
    pub faults: Vec<Fault>,
    pub closed: Vec<Peer>,
    /// Regions to offer to long payloads, in order.
    pub offers: VecDeque<(RecvRegion, Token)>,
}

impl Sink for Record {
    fn frame(&mut self, from: Peer, header: &[u8], payload: &[u8]) {
        self.frames.push((from, header.to_vec(), payload.to_vec()));
    }

    fn landing(&mut self, _: Peer, _: &[u8], len: usize) -> Landing {
        match self.offers.front() {
            Some((region, _)) if region.len() >= len => {
                let (region, token) = self.offers.pop_front().expect("just seen");
                Landing::Direct { region, token }
            }
            _ => Landing::Buffered,
        }
    }

    fn landed(&mut self, _: Peer, region: RecvRegion, token: Token, outcome: Result<(), Fault>) {
        self.landed.push((region, token, outcome));
    }

    fn completed(&mut self, descriptor: Descriptor, outcome: Result<(), Fault>) {
        self.completed.push((descriptor.token, outcome));
    }

    fn rma_completed(&mut self, descriptor: RmaDescriptor, _: Result<(), Fault>) {
        panic!("tcp has no remote memory access: {descriptor:?}");
    }

    fn up(&mut self, peer: Peer) {
        self.up.push(peer);
    }

    fn fault(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    fn closed(&mut self, peer: Peer) {
        self.closed.push(peer);
    }
}

/// A rail with its record.
pub struct Node {
    pub btl: Tcp,
    pub seen: Record,
    pub me: Peer,
}

/// The configuration of the tests: loopback, short time limits.
pub fn config(me: u32) -> TcpConfig {
    TcpConfig {
        me: Peer(me),
        secret: [42; 32],
        job: "test".into(),
        include: vec!["127.0.0.0/8".parse().expect("a network")],
        connect_timeout: Duration::from_secs(5),
        ..TcpConfig::default()
    }
}

impl Node {
    pub fn new(me: u32) -> Node {
        Node::with(config(me))
    }

    pub fn with(config: TcpConfig) -> Node {
        let me = config.me;
        let btl = Tcp::open_all(config).expect("tcp opens").remove(0);
        Node { btl, seen: Record::default(), me }
    }

    pub fn connect(&mut self, other: &Node) {
        self.btl.connect(other.me, &other.btl.address()).expect("reachable");
    }

    pub fn progress(&mut self) -> usize {
        self.btl.progress(&mut self.seen)
    }

    pub fn state(&self, other: &Node) -> EndpointState {
        self.btl.state(other.me)
    }

    pub fn dump(&self) -> String {
        let mut out = String::new();
        self.btl.dump(&mut out).expect("a string takes all");
        out
    }
}

/// Drives `nodes` until `done`.
pub fn until(what: &str, nodes: &mut [&mut Node], done: impl FnMut(&mut [&mut Node]) -> bool) {
    within(WATCHDOG, what, nodes, done);
}

pub fn within(
    limit: Duration,
    what: &str,
    nodes: &mut [&mut Node],
    mut done: impl FnMut(&mut [&mut Node]) -> bool,
) {
    let start = Instant::now();
    while !done(nodes) {
        let reports: usize = nodes.iter_mut().map(|node| node.progress()).sum();
        if start.elapsed() > limit {
            let dumps: Vec<_> = nodes.iter().map(|node| node.dump()).collect();
            panic!("still waiting for {what}\n{}", dumps.join("\n"));
        }
        if reports == 0 {
            std::thread::yield_now();
        }
    }
}

/// Two rails that are up with each other.
pub fn pair() -> (Node, Node) {
    let (mut a, mut b) = (Node::new(0), Node::new(1));
    link(&mut a, &mut b);
    (a, b)
}

/// Connects `a` to `b` and waits until both are up.
pub fn link(a: &mut Node, b: &mut Node) {
    a.connect(b);
    until("both up", &mut [a, b], |nodes| {
        let (a, b) = (&nodes[0], &nodes[1]);
        a.state(b) == EndpointState::Up && b.state(a) == EndpointState::Up
    });
}

/// Where the port stands in an address blob with one IPv4 address.
const PORT: std::ops::Range<usize> = 20..22;

/// Where the rail of `address` listens (on 127.0.0.1).
pub fn listener(address: &Address) -> SocketAddr {
    let port = address.bytes[PORT].try_into().expect("two bytes");
    SocketAddr::from(([127, 0, 0, 1], u16::from_le_bytes(port)))
}

/// `address` with the port of somebody else.
pub fn redirected(address: &Address, to: SocketAddr) -> Address {
    let mut address = address.clone();
    address.bytes[PORT].copy_from_slice(&to.port().to_le_bytes());
    address
}

/// Bytes that differ from place to place and from seed to seed.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

/// A zero-copy send of all of `buffer`.
pub fn descriptor(peer: Peer, header: &[u8], buffer: &OwnedBuffer, token: u64) -> Descriptor {
    #[allow(unsafe_code)]
    // SAFETY: the tests keep their buffers until the descriptors came back.
    let region = unsafe { buffer.send_region() };
    Descriptor {
        peer,
        header: ironweave_btl::Header::new(header),
        payload: [region].into_iter().collect(),
        token: Token(token),
    }
}

/// A region of all of `buffer` to land in.
pub fn landing(buffer: &OwnedBuffer) -> RecvRegion {
    #[allow(unsafe_code)]
    // SAFETY: the tests keep their buffers, untouched, until the regions came back.
    unsafe {
        buffer.recv_region()
    }
}
