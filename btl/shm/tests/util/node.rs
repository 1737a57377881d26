//! A process of a test: its transport, and all that it reported. Several in one process, or each in one of its own.
#![allow(dead_code, unsafe_code, clippy::unwrap_used)] // each test uses what it needs; regions of test buffers; helpers outside `#[test]`

use ironweave_btl::memory::{OwnedBuffer, RecvRegion};
use ironweave_btl::{
    Address, Btl, Descriptor, EndpointState, Fault, Landing, Peer, Refused, RmaDescriptor, Sink,
    Token,
};
use ironweave_btl_shm::{Shm, ShmConfig, SingleCopy};
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

pub const SECRET: [u8; 32] = [9; 32];

/// Everything that was reported, in order.
#[derive(Default)]
pub struct Log {
    pub frames: Vec<(Peer, Vec<u8>, Vec<u8>)>,
    pub events: Vec<Event>,
    pub buffer: Option<OwnedBuffer>,
    pub landed: Vec<usize>,
    pub gets: Vec<(RmaDescriptor, Result<(), Fault>)>,
}

#[derive(PartialEq, Debug)]
pub enum Event {
    Up(Peer),
    Fault(Fault),
    Closed(Peer),
}

impl Sink for Log {
    fn frame(&mut self, from: Peer, header: &[u8], payload: &[u8]) {
        self.frames.push((from, header.to_vec(), payload.to_vec()));
    }
    fn landing(&mut self, _: Peer, _: &[u8], len: usize) -> Landing {
        match &self.buffer {
            Some(buffer) => {
                // SAFETY: the buffer lives as long as the log; one region at a time.
                let region = unsafe { buffer.recv_region() }.part(0..len);
                Landing::Direct { region, token: Token(1) }
            }
            None => Landing::Buffered,
        }
    }
    fn landed(&mut self, _: Peer, region: RecvRegion, _: Token, outcome: Result<(), Fault>) {
        outcome.unwrap();
        self.landed.push(region.len());
    }
    fn completed(&mut self, _: Descriptor, _: Result<(), Fault>) {
        panic!("no zero-copy send was handed down");
    }
    fn rma_completed(&mut self, descriptor: RmaDescriptor, outcome: Result<(), Fault>) {
        self.gets.push((descriptor, outcome));
    }
    fn up(&mut self, peer: Peer) {
        self.events.push(Event::Up(peer));
    }
    fn fault(&mut self, fault: Fault) {
        self.events.push(Event::Fault(fault));
    }
    fn closed(&mut self, peer: Peer) {
        self.events.push(Event::Closed(peer));
    }
}

pub struct Node {
    pub shm: Shm,
    pub log: Log,
}

impl Node {
    pub fn new(me: u32) -> Node {
        Node::with(ShmConfig::new(Peer(me), "endpoints", SECRET))
    }

    pub fn with(mut config: ShmConfig) -> Node {
        config.bulk_bytes = 256 << 10;
        Node { shm: Shm::open(config).unwrap(), log: Log::default() }
    }

    pub fn connect(&mut self, peer: u32, other: &Node) {
        self.shm.connect(Peer(peer), &other.shm.address()).unwrap();
    }

    pub fn turn(&mut self) {
        self.shm.progress(&mut self.log);
    }

    pub fn send(&mut self, to: u32, payload: &[u8]) -> Result<(), Refused> {
        self.shm.send_bcopy(Peer(to), b"head", payload.len(), |at, piece| {
            piece.copy_from_slice(&payload[at..at + piece.len()]);
        })
    }

    pub fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.log.events)
    }

    pub fn dump(&self) -> String {
        let mut out = String::new();
        self.shm.dump(&mut out).unwrap();
        out
    }
}

/// Runs `nodes` until `done`; a watchdog dumps their state and fails.
pub fn until(nodes: &mut [&mut Node], what: &str, mut done: impl FnMut(&[&mut Node]) -> bool) {
    let start = Instant::now();
    while !done(nodes) {
        for node in nodes.iter_mut() {
            node.turn();
        }
        if start.elapsed() > Duration::from_secs(20) {
            let dumps: Vec<_> = nodes.iter().map(|node| node.dump()).collect();
            panic!("{what} did not happen:\n{}", dumps.join("\n"));
        }
    }
}

pub fn pair() -> (Node, Node) {
    let (mut a, mut b) = (Node::new(0), Node::new(1));
    join(&mut a, &mut b);
    (a, b)
}

pub fn join(a: &mut Node, b: &mut Node) {
    a.connect(1, b);
    assert_eq!(a.shm.state(Peer(1)), EndpointState::Connecting);
    assert_eq!(a.send(1, b"early"), Err(Refused::Connecting));
    until(&mut [a, b], "up", |n| n[0].log.events.len() + n[1].log.events.len() == 2);
    assert_eq!(a.events(), [Event::Up(Peer(1))]);
    assert_eq!(b.events(), [Event::Up(Peer(0))]);
}

pub fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (seed * 131 + i * 7 + i / 251) as u8).collect()
}

pub fn numbers(list: &str) -> Vec<u8> {
    list.split(',').map(|byte| byte.parse().unwrap()).collect()
}

/// Another process, which runs `test` of this binary, and its output. It has connected.
pub fn start_child(a: &mut Node, test: &str) -> (Child, Lines<BufReader<ChildStdout>>) {
    let address: Vec<_> = a.shm.address().bytes.iter().map(u8::to_string).collect();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", test, "--nocapture"])
        .env("IRONWEAVE_TEST_ADDRESS", address.join(","))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    until(&mut [a], "up", |n| !n[0].log.events.is_empty());
    assert_eq!(a.events(), [Event::Up(Peer(1))]);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

/// In such a process: peer 1, connected to the other.
pub fn child_node(single_copy: SingleCopy) -> Option<Node> {
    let bytes = numbers(&std::env::var("IRONWEAVE_TEST_ADDRESS").ok()?);
    let mut config = ShmConfig::new(Peer(1), "endpoints", SECRET);
    config.single_copy = single_copy;
    let mut node = Node::with(config);
    node.shm.connect(Peer(0), &Address { component: "shm".into(), rail: 0, bytes }).unwrap();
    until(&mut [&mut node], "up", |n| !n[0].log.events.is_empty());
    Some(node)
}
