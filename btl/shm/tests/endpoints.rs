//! Endpoints of real transports: how they begin, what they carry, how they end. Both ends live in this process,
//! but where a death must be real.
#![allow(unsafe_code, clippy::unwrap_used)] // regions of test buffers; helpers outside `#[test]`

use ironweave_btl::memory::{OwnedBuffer, RecvRegion};
use ironweave_btl::{
    Address, Armed, Btl, Cause, Descriptor, EndpointState, Fault, Landing, Peer, Read, Refused,
    RemoteKey, Residue, RmaDescriptor, RmaKind, Scope, Sink, Token,
};
use ironweave_btl_shm::{Shm, ShmConfig, SingleCopy};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::fd::BorrowedFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SECRET: [u8; 32] = [9; 32];

/// Everything that was reported, in order.
#[derive(Default)]
struct Log {
    frames: Vec<(Peer, Vec<u8>, Vec<u8>)>,
    events: Vec<Event>,
    buffer: Option<OwnedBuffer>,
    landed: Vec<usize>,
    gets: Vec<(RmaDescriptor, Result<(), Fault>)>,
}

#[derive(PartialEq, Debug)]
enum Event {
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

struct Node {
    shm: Shm,
    log: Log,
}

impl Node {
    fn new(me: u32) -> Node {
        Node::with(ShmConfig::new(Peer(me), "endpoints", SECRET))
    }

    fn with(mut config: ShmConfig) -> Node {
        config.bulk_bytes = 256 << 10;
        Node { shm: Shm::open(config).unwrap(), log: Log::default() }
    }

    fn connect(&mut self, peer: u32, other: &Node) {
        self.shm.connect(Peer(peer), &other.shm.address()).unwrap();
    }

    fn turn(&mut self) {
        self.shm.progress(&mut self.log);
    }

    fn send(&mut self, to: u32, payload: &[u8]) -> Result<(), Refused> {
        self.shm.send_bcopy(Peer(to), b"head", payload.len(), |at, piece| {
            piece.copy_from_slice(&payload[at..at + piece.len()]);
        })
    }

    fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.log.events)
    }

    fn dump(&self) -> String {
        let mut out = String::new();
        self.shm.dump(&mut out).unwrap();
        out
    }
}

/// Runs `nodes` until `done`; a watchdog dumps their state and fails.
fn until(nodes: &mut [&mut Node], what: &str, mut done: impl FnMut(&[&mut Node]) -> bool) {
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

fn pair() -> (Node, Node) {
    let (mut a, mut b) = (Node::new(0), Node::new(1));
    join(&mut a, &mut b);
    (a, b)
}

fn join(a: &mut Node, b: &mut Node) {
    a.connect(1, b);
    assert_eq!(a.shm.state(Peer(1)), EndpointState::Connecting);
    assert_eq!(a.send(1, b"early"), Err(Refused::Connecting));
    until(&mut [a, b], "up", |n| n[0].log.events.len() + n[1].log.events.len() == 2);
    assert_eq!(a.events(), [Event::Up(Peer(1))]);
    assert_eq!(b.events(), [Event::Up(Peer(0))]);
}

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (seed * 131 + i * 7 + i / 251) as u8).collect()
}

#[test]
fn a_peer_is_silent_between_its_frames_while_it_is_up() {
    let (mut a, mut b) = (Node::new(0), Node::new(1));
    assert!(!a.shm.is_silent(Peer(1)), "not connected");
    join(&mut a, &mut b);
    for len in [0, 8, 3000, 60_000] {
        assert!(a.shm.is_silent(Peer(1)), "before {len} bytes");
        b.send(0, &bytes(1, len)).unwrap();
        assert!(!a.shm.is_silent(Peer(1)), "{len} bytes are here");
        until(&mut [&mut a, &mut b], "the frame", |n| !n[0].log.frames.is_empty());
        a.log.frames.clear();
    }
    let Node { shm, log } = &mut a;
    shm.invalidate(Peer(1), Residue::Deliver, log);
    assert!(!a.shm.is_silent(Peer(1)), "it has ended");
}

#[test]
fn frames_of_every_size_both_ways() {
    let (mut a, mut b) = pair();
    let max = a.shm.caps().max_bcopy;
    let mut sizes = vec![0, 1, max];
    for power in 1..usize::BITS {
        let size = 1_usize << power;
        sizes.extend([size - 1, size, size + 1].into_iter().filter(|&size| size <= max));
    }
    for direct in [false, true] {
        b.log.buffer = direct.then(|| OwnedBuffer::zeroed(max));
        for (seed, &size) in sizes.iter().enumerate() {
            let payload = bytes(seed, size);
            a.send(1, &payload).unwrap();
            until(&mut [&mut a, &mut b], "frame", |n| {
                n[1].log.frames.len() + n[1].log.landed.len() == 1
            });
            if let Some(landed) = b.log.landed.pop() {
                assert!(direct && landed == size);
                assert!(b.log.buffer.as_ref().unwrap().as_slice()[..size] == payload);
            } else {
                let (from, header, got) = b.log.frames.pop().unwrap();
                assert_eq!((from, &header[..]), (Peer(0), &b"head"[..]));
                assert!(got == payload, "{size} bytes");
                b.send(0, &got).unwrap();
                until(&mut [&mut a, &mut b], "echo", |n| n[0].log.frames.len() == 1);
                assert!(a.log.frames.pop().unwrap().2 == payload);
            }
        }
    }
    assert_eq!(a.send(1, &bytes(0, max + 1)), Err(Refused::TooLong { max }));
}

#[test]
fn a_full_ring_refuses_then_takes_again_in_order() {
    let (mut a, mut b) = pair();
    let (mut sent, mut refused) = (0_u32, 0);
    while sent < 20_000 {
        let len = if sent.is_multiple_of(100) { 9000 } else { 40 };
        let mut payload = bytes(sent as usize, len);
        payload[..4].copy_from_slice(&sent.to_le_bytes());
        match a.send(1, &payload) {
            Ok(()) => sent += 1,
            Err(Refused::NoRoom) => {
                refused += 1;
                b.turn();
            }
            Err(other) => panic!("{other}"),
        }
    }
    until(&mut [&mut a, &mut b], "all", |n| n[1].log.frames.len() == 20_000);
    for (i, (_, _, payload)) in b.log.frames.iter().enumerate() {
        assert_eq!(payload[..4], (i as u32).to_le_bytes());
    }
    assert!(refused > 0);
    let count = |name: &str, node: &Node| {
        node.shm.counters().rows().iter().find(|row| row.0 == name).unwrap().1
    };
    assert_eq!(count("frames_sent", &a), 20_000);
    assert_eq!(count("frames_received", &b), 20_000);
    assert_eq!(count("bytes_sent", &a), count("bytes_received", &b));
}

#[test]
fn both_dial_at_once() {
    for _ in 0..50 {
        let (mut a, mut b) = (Node::new(0), Node::new(1));
        a.connect(1, &b);
        b.connect(0, &a);
        until(&mut [&mut b, &mut a], "up", |n| n.iter().all(|n| !n.log.events.is_empty()));
        for _ in 0..200 {
            a.turn();
            b.turn();
        }
        assert_eq!(a.events(), [Event::Up(Peer(1))]);
        assert_eq!(b.events(), [Event::Up(Peer(0))]);
        a.send(1, b"over").unwrap();
        b.send(0, b"and out").unwrap();
        until(&mut [&mut a, &mut b], "frames", |n| n.iter().all(|n| n.log.frames.len() == 1));
    }
}

#[test]
fn a_good_bye_is_no_fault_and_loses_nothing() {
    let (mut a, mut b) = pair();
    a.send(1, b"last words").unwrap();
    a.shm.depart();
    drop(a);
    let mut nodes = [&mut b];
    until(&mut nodes, "closed", |n| !n[0].log.events.is_empty());
    assert_eq!(b.events(), [Event::Closed(Peer(0))]);
    assert_eq!(b.log.frames[0].2, b"last words");
    assert_eq!(b.send(0, b"?"), Err(Refused::Closed));
}

#[test]
fn an_end_without_good_bye_is_a_disconnection() {
    let (mut a, mut b) = pair();
    a.send(1, b"cut off").unwrap();
    drop(a);
    until(&mut [&mut b], "closed", |n| n[0].log.events.len() == 2);
    let fault = Fault::rail(Peer(0), Cause::Disconnected);
    assert_eq!(b.events(), [Event::Fault(fault), Event::Closed(Peer(0))]);
    assert_eq!(b.log.frames.len(), 1, "what arrived whole is delivered");
}

#[test]
fn invalidation_ends_both_sides_and_both_can_connect_again() {
    let (mut a, mut b) = pair();
    for residue in [Residue::Deliver, Residue::Discard] {
        b.send(0, b"residue").unwrap();
        a.shm.invalidate(Peer(1), residue, &mut a.log);
        assert_eq!(a.events(), [Event::Closed(Peer(1))]);
        assert_eq!(a.log.frames.len(), usize::from(residue == Residue::Deliver));
        assert_eq!(a.send(1, b"?"), Err(Refused::Closed));
        a.shm.invalidate(Peer(1), residue, &mut a.log);
        assert_eq!(a.events(), [], "once");
        a.log.frames.clear();
        // Before b has noticed: it has to refuse, and we to dial again.
        a.connect(1, &b);
        until(&mut [&mut a, &mut b], "up again", |n| {
            n[0].log.events.len() + n[1].log.events.len() == 4
        });
        assert_eq!(a.events(), [Event::Up(Peer(1))]);
        let fault = Fault::rail(Peer(0), Cause::Disconnected);
        assert_eq!(b.events(), [Event::Fault(fault), Event::Closed(Peer(0)), Event::Up(Peer(0))]);
        a.send(1, b"healed").unwrap();
        until(&mut [&mut a, &mut b], "frame", |n| n[1].log.frames.len() == 1);
        b.log.frames.clear();
    }
}

#[test]
fn the_excluded_stay_out() {
    let (mut a, mut b) = pair();
    a.shm.exclude(Peer(1), Residue::Discard, &mut a.log);
    assert_eq!(a.events(), [Event::Closed(Peer(1))]);
    a.shm.connect(Peer(1), &b.shm.address()).unwrap_err();
    until(&mut [&mut a, &mut b], "closed", |n| n[1].log.events.len() == 2);
    b.events();
    b.connect(0, &a);
    until(&mut [&mut a, &mut b], "refused", |n| n[1].log.events.len() == 2);
    let fault = Fault::rail(Peer(0), Cause::ConnectionRefused);
    assert_eq!(b.events(), [Event::Fault(fault), Event::Closed(Peer(0))]);
    assert_eq!(a.events(), []);
}

#[test]
fn strangers_are_refused_and_counted() {
    let mut a = Node::new(0);
    let mut other = Node::with(ShmConfig::new(Peer(1), "endpoints", [8; 32]));
    other.connect(0, &a);
    until(&mut [&mut a, &mut other], "refusal", |n| n[1].log.events.len() == 2);
    // The listener proves itself first, so it is the dialler who notices.
    let fault = Fault::rail(Peer(0), Cause::Authentication);
    assert_eq!(other.events(), [Event::Fault(fault), Event::Closed(Peer(0))]);
    assert_eq!(a.events(), []);

    // Bytes that are no handshake.
    let name = &a.shm.address().bytes[33..];
    for noise in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 96], &[0xff; 3000], b"IWs\x01\x03\0\0\0"] {
        use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketType};
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name).unwrap()).unwrap();
        let before = a.shm.counters().rejected.get();
        rustix::net::send(&socket, noise, SendFlags::NOSIGNAL).unwrap();
        until(&mut [&mut a], "refusal", |n| n[0].shm.counters().rejected.get() > before);
    }
    assert_eq!(a.events(), []);
    let mut b = Node::new(1);
    b.connect(0, &a);
    until(&mut [&mut a, &mut b], "up after strangers", |n| n[0].log.events.len() == 1);
}

#[test]
fn the_silent_do_not_keep_others_out() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let (mut a, mut b) = (Node::new(0), Node::new(1));
    let address = a.shm.address();
    let name = SocketAddrUnix::new_abstract_name(&address.bytes[33..]).unwrap();
    let mut silent = vec![];
    for _ in 0..1100 {
        let flags = SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
                .unwrap();
        // The kernel's queue may be shorter than this: let it be emptied.
        while rustix::net::connect(&socket, &name).is_err() {
            a.turn();
        }
        silent.push(socket);
    }
    b.connect(0, &a);
    until(&mut [&mut a, &mut b], "up", |n| n[0].log.events.len() + n[1].log.events.len() == 2);
    assert!(a.shm.counters().rejected.get() > 0, "the oldest had to go");
}

#[test]
fn addresses_that_cannot_be_reached() {
    let mut a = Node::new(0);
    let good = Node::new(1).shm.address();
    let with = |change: fn(&mut Address)| {
        let mut address = good.clone();
        change(&mut address);
        address
    };
    for address in [
        with(|a| a.component = "tcp".into()),
        with(|a| a.bytes[1] ^= 1), // another host
        with(|a| a.bytes[0] = 9),  // another version
        with(|a| a.bytes.truncate(20)),
        with(|a| a.bytes.clear()),
    ] {
        let fault = a.shm.connect(Peer(1), &address).unwrap_err();
        assert_eq!((fault.scope, fault.cause), (Scope::Rail, Cause::Unreachable));
        assert_eq!(a.shm.state(Peer(1)), EndpointState::Closed);
    }
    // The transport at this address has been dropped.
    a.shm.connect(Peer(1), &good).unwrap();
    until(&mut [&mut a], "refusal", |n| n[0].log.events.len() == 2);
    let fault = Fault::rail(Peer(1), Cause::ConnectionRefused);
    assert_eq!(a.events(), [Event::Fault(fault), Event::Closed(Peer(1))]);
}

fn is_readable(fd: i32) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    // SAFETY: the descriptor belongs to a transport that the caller holds.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

#[test]
fn a_sleeper_is_woken_by_a_frame() {
    for oversubscribed in [false, true] {
        let config = |me| {
            let mut config = ShmConfig::new(Peer(me), "endpoints", SECRET);
            config.oversubscribed = oversubscribed;
            config
        };
        let (mut a, mut b) = (Node::with(config(0)), Node::with(config(1)));
        join(&mut a, &mut b);
        for round in 0..20 {
            let fd = loop {
                match b.shm.arm() {
                    Armed::Ready => b.turn(),
                    Armed::Wait(fd) => break fd,
                    Armed::PollOnly => panic!("it can be waited for"),
                }
            };
            assert!(!is_readable(fd), "nothing has come yet");
            a.send(1, &bytes(round, 100 * round)).unwrap();
            assert!(is_readable(fd), "asleep in round {round}");
            b.turn();
            assert_eq!(b.log.frames.len(), round + 1);
        }
        // Ready at once when the frame came before.
        while !matches!(b.shm.arm(), Armed::Wait(_)) {
            b.turn();
        }
        b.turn();
        a.send(1, b"before").unwrap();
        assert_eq!(b.shm.arm(), Armed::Ready);
    }
}

#[test]
fn quiet_rings_are_parked_and_heard_again() {
    let mut a = Node::new(0);
    let mut others: Vec<Node> = (1..40).map(Node::new).collect();
    for other in &mut others {
        other.connect(0, &a);
        until(&mut [other, &mut a], "up", |n| !n[0].log.events.is_empty());
    }
    for _ in 0..300_000 {
        a.turn();
    }
    assert!(a.dump().contains(": 4 rings polled"), "{}", a.dump());
    for (i, other) in others.iter_mut().enumerate().rev() {
        other.send(0, &bytes(i, 50)).unwrap();
        other.send(0, &bytes(i, 5000)).unwrap();
    }
    until(&mut [&mut a], "all frames", |n| n[0].log.frames.len() == 2 * 39);
}

/// Gets by single copy. The peer is this very process, which the kernel always lets read itself.
#[test]
fn gets_read_what_is_registered_and_nothing_else() {
    let config = |me| {
        let mut config = ShmConfig::new(Peer(me), "endpoints", SECRET);
        config.single_copy = SingleCopy::Cma;
        config
    };
    let (mut a, mut b) = (Node::with(config(0)), Node::with(config(1)));
    if !a.shm.caps().get {
        println!(
            "SKIP gets_read_what_is_registered_and_nothing_else: ptrace scope forbids process_vm_readv"
        );
        return;
    }
    join(&mut a, &mut b);
    let len = 5 << 20;
    let source = OwnedBuffer::from(bytes(1, len));
    // SAFETY: `source` outlives the region and is not written.
    let key = b.shm.register_source(Peer(0), &unsafe { source.send_region() }).unwrap();
    let get = |key, start: usize, len: usize, remote_offset: u64| {
        let target = OwnedBuffer::zeroed(len.max(start + len));
        // SAFETY: `target` is returned beside the descriptor and read after it came back.
        let region = unsafe { target.recv_region() }.part(start..start + len);
        let kind = RmaKind::Get(region);
        (RmaDescriptor { peer: Peer(1), kind, remote: key, remote_offset, token: Token(5) }, target)
    };
    let mut run = |a: &mut Node, descriptor| {
        a.shm.rma(descriptor).map_err(|(refused, _)| refused).unwrap();
        until(&mut [a, &mut b], "get", |n| !n[0].log.gets.is_empty());
        let (descriptor, outcome) = a.log.gets.pop().unwrap();
        assert_eq!(descriptor.token, Token(5));
        outcome
    };
    for (offset, len) in [(0, len), (1, 1), (4097, 3 << 20), (7, 0), (len, 0)] {
        let (descriptor, target) = get(key, 0, len, offset as u64);
        run(&mut a, descriptor).unwrap();
        assert!(target.as_slice()[..len] == source.as_slice()[offset..offset + len]);
    }
    let fails = |outcome: Result<(), Fault>| {
        let fault = outcome.unwrap_err();
        assert_eq!((fault.scope, fault.peer), (Scope::Operation, Some(Peer(1))));
    };
    fails(run(&mut a, get(key, 0, 2, len as u64 - 1).0));
    fails(run(&mut a, get(key, 0, 2, u64::MAX).0));
    let garbage = RemoteKey::new(&[0xff; 32]).unwrap();
    fails(run(&mut a, get(garbage, 0, 2, 0).0));
    fails(run(&mut a, get(RemoteKey::new(b"short").unwrap(), 0, 2, 0).0));
    // Invalidated with a get outstanding: it comes back, then closed.
    a.shm.rma(get(key, 0, len, 0).0).map_err(|(refused, _)| refused).unwrap();
    a.shm.invalidate(Peer(1), Residue::Discard, &mut a.log);
    fails(a.log.gets.pop().unwrap().1);
    assert_eq!(a.events(), [Event::Closed(Peer(1))]);
}

#[test]
fn a_registration_that_ended_cannot_be_read() {
    let mut config = ShmConfig::new(Peer(0), "endpoints", SECRET);
    config.single_copy = SingleCopy::Cma;
    let (mut a, mut b) = (
        Node::with(config),
        Node::with({
            let mut config = ShmConfig::new(Peer(1), "endpoints", SECRET);
            config.single_copy = SingleCopy::Cma;
            config
        }),
    );
    if !a.shm.caps().get {
        println!(
            "SKIP a_registration_that_ended_cannot_be_read: ptrace scope forbids process_vm_readv"
        );
        return;
    }
    join(&mut a, &mut b);
    let source = OwnedBuffer::zeroed(64);
    // SAFETY: `source` outlives the region and is not written.
    let region = unsafe { source.send_region() };
    let ended = b.shm.register_source(Peer(0), &region).unwrap();
    b.shm.deregister(&ended);
    b.shm.deregister(&ended);
    let retired = b.shm.register_source(Peer(0), &region).unwrap();
    b.shm.retire(&retired);
    // Has the slot of both; what is said of them now, again, does nothing to it.
    let living = b.shm.register_source(Peer(0), &region).unwrap();
    b.shm.deregister(&ended);
    b.shm.deregister(&retired);
    b.shm.retire(&retired);
    assert!(![ended, retired].contains(&living));
    let mut get = |b: &mut Node, key| {
        let target = OwnedBuffer::zeroed(64);
        // SAFETY: `target` outlives the get.
        let kind = RmaKind::Get(unsafe { target.recv_region() });
        let get =
            RmaDescriptor { peer: Peer(1), kind, remote: key, remote_offset: 0, token: Token(0) };
        a.shm.rma(get).map_err(|(refused, _)| refused).unwrap();
        until(&mut [&mut a, b], "get", |n| !n[0].log.gets.is_empty());
        a.log.gets.pop().unwrap().1
    };
    get(&mut b, living).unwrap();
    get(&mut b, ended).unwrap_err();
    // Nobody reads what was retired; the slot's registrations have one generation until one of them is ended.
    get(&mut b, retired).unwrap();
    b.shm.deregister(&living);
    get(&mut b, living).unwrap_err();
    get(&mut b, retired).unwrap_err();
}

/// Two processes, of which each reads the other's memory as long as that takes less than `ps` picoseconds a byte; `None` where the
/// kernel does not let them.
fn readers(ps: u32) -> Option<[Node; 2]> {
    let [mut a, mut b] = [0, 1].map(|me| {
        let mut config = ShmConfig::new(Peer(me), "endpoints", SECRET);
        config.single_copy = SingleCopy::Under([ps; 2]);
        Node::with(config)
    });
    if !a.shm.caps().get {
        return None;
    }
    join(&mut a, &mut b);
    Some([a, b])
}

/// A get of memory of peer 1 into all of `into`.
fn get(key: &RemoteKey, offset: u64, into: &RecvRegion) -> RmaDescriptor {
    let kind = RmaKind::Get(into.part(0..into.len()));
    RmaDescriptor { peer: Peer(1), kind, remote: *key, remote_offset: offset, token: Token(0) }
}

/// The same at once: how it went, or `None` when nothing was done.
fn read_now(node: &mut Node, get: RmaDescriptor) -> Option<Result<(), Fault>> {
    match node.shm.read_now(&get) {
        Read::Over(outcome) => Some(outcome),
        Read::Left => None,
        Read::Begun => panic!("nobody is there to help"),
    }
}

#[test]
fn reads_at_once_check_what_they_are_given() {
    let Some([mut a, mut b]) = readers(u32::MAX) else {
        println!(
            "SKIP reads_at_once_check_what_they_are_given: ptrace scope forbids process_vm_readv"
        );
        return;
    };
    let (source, target) = (OwnedBuffer::from(bytes(3, 100_000)), OwnedBuffer::zeroed(70_000));
    // SAFETY: both outlive the regions; `source` is not written.
    let (from, into) = unsafe { (source.send_region(), target.recv_region()) };
    let key = b.shm.register_source(Peer(0), &from).unwrap();
    read_now(&mut a, get(&key, 30_000, &into)).unwrap().unwrap();
    assert!(target.as_slice() == &source.as_slice()[30_000..]);
    let key_of = |bytes: &[u8]| RemoteKey::new(bytes).unwrap();
    // Beyond the end, of no sense, of somebody who is not there: nothing is done.
    for (peer, key, offset) in [
        (Peer(1), key, 30_001),
        (Peer(1), key, u64::MAX),
        (Peer(1), key_of(&[0xff; 32]), 0),
        (Peer(1), key_of(b"short"), 0),
        (Peer(2), key, 0),
    ] {
        let get = RmaDescriptor { peer, ..get(&key, offset, &into) };
        assert!(read_now(&mut a, get).is_none(), "{peer} {offset}");
    }
    b.shm.deregister(&key);
    let fault = read_now(&mut a, get(&key, 0, &into)).unwrap().unwrap_err();
    assert_eq!((fault.scope, fault.peer), (Scope::Operation, Some(Peer(1))));
    // So much at once, and no more before the next `progress`.
    let key = b.shm.register_source(Peer(0), &from).unwrap();
    let mut times = 0;
    while read_now(&mut a, get(&key, 0, &into)).is_some() {
        times += 1;
        assert!(times < 100, "it reads for ever");
    }
    a.turn();
    read_now(&mut a, get(&key, 0, &into)).unwrap().unwrap();
    // After others that wait.
    a.shm.rma(get(&key, 0, &into)).map_err(|(refused, _)| refused).unwrap();
    let other = OwnedBuffer::zeroed(10);
    // SAFETY: it outlives the region.
    let into = unsafe { other.recv_region() };
    assert!(read_now(&mut a, get(&key, 0, &into)).is_none());
}

#[test]
fn messages_whose_reads_take_too_long_are_sent_for_a_while() {
    // No read is as quick as this.
    let Some([mut a, mut b]) = readers(1) else {
        println!(
            "SKIP messages_whose_reads_take_too_long_are_sent_for_a_while: ptrace scope forbids process_vm_readv"
        );
        return;
    };
    const LEN: usize = 64 << 10;
    let (source, target) = (OwnedBuffer::zeroed(LEN), OwnedBuffer::zeroed(LEN));
    // SAFETY: both outlive the regions; `source` is not written.
    let (from, into) = unsafe { (source.send_region(), target.recv_region()) };
    let mut read = 0;
    assert!(b.shm.is_read(Peer(0), LEN));
    let late = loop {
        let key = b.shm.register_source(Peer(0), &from).unwrap();
        let Some(outcome) = read_now(&mut a, get(&key, 0, &into)) else { break key };
        outcome.unwrap();
        b.shm.retire(&key);
        a.turn();
        read += 1;
        assert!(read < 1000, "it reads for ever");
    };
    // That was offered before the complaint was heard; part of a message that was begun is read on.
    assert_eq!(a.shm.rma(get(&late, 0, &into)).unwrap_err().0, Refused::Unsupported);
    a.shm.rma(get(&late, 1, &into.part(1..LEN))).map_err(|(refused, _)| refused).unwrap();
    until(&mut [&mut a, &mut b], "get", |n| !n[0].log.gets.is_empty());
    a.log.gets.pop().unwrap().1.unwrap();
    b.shm.retire(&late);
    // Other lengths have nothing to do with it.
    assert!(b.shm.is_read(Peer(0), 2 * LEN));
    let sent = (0..10_000).take_while(|_| !b.shm.is_read(Peer(0), LEN)).count();
    assert!((1..10_000).contains(&sent), "{sent}");
    let key = b.shm.register_source(Peer(0), &from).unwrap();
    read_now(&mut a, get(&key, 0, &into)).unwrap().unwrap();
}

/// From now on the kernel refuses this system call to this thread, as it does `process_vm_readv` in many containers. `false`: it does
/// not let us ask for that.
fn forbid(call: libc::c_long) -> bool {
    const fn step(code: u32, k: u32, jf: u8) -> libc::sock_filter {
        libc::sock_filter { code: code as u16, jt: 0, jf, k }
    }
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0), // the number of the call
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, 1),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the kernel copies the program, which lives through the call.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
    }
}

/// Single copy that the kernel refuses comes back as an operation's fault, once; then there is no single copy any more,
/// and everything else goes on.
#[test]
fn refused_single_copy_is_given_up() {
    // A thread of its own, with which the ban ends.
    let outcome = std::thread::spawn(|| {
        let config = |me| {
            let mut config = ShmConfig::new(Peer(me), "endpoints", SECRET);
            config.single_copy = SingleCopy::Cma;
            config
        };
        let (mut a, mut b) = (Node::with(config(0)), Node::with(config(1)));
        if !a.shm.caps().get || !forbid(libc::SYS_process_vm_readv) {
            println!(
                "SKIP refused_single_copy_is_given_up: no single copy, or no way to forbid it"
            );
            return;
        }
        join(&mut a, &mut b);
        let source = OwnedBuffer::zeroed(1 << 20);
        // SAFETY: `source` outlives the region and is not written.
        let region = unsafe { source.send_region() };
        let key = b.shm.register_source(Peer(0), &region).unwrap();
        let target = OwnedBuffer::zeroed(1 << 20);
        let get = || RmaDescriptor {
            peer: Peer(1),
            // SAFETY: `target` outlives every get, of which one is under way at a time.
            kind: RmaKind::Get(unsafe { target.recv_region() }),
            remote: key,
            remote_offset: 0,
            token: Token(7),
        };
        a.shm.rma(get()).map_err(|(refused, _)| refused).unwrap();
        until(&mut [&mut a, &mut b], "the refusal", |n| !n[0].log.gets.is_empty());
        let fault = a.log.gets.pop().unwrap().1.unwrap_err();
        assert_eq!(fault.scope, Scope::Operation);
        assert!(matches!(fault.cause, Cause::Os { errno: libc::EPERM, .. }), "{fault}");
        let (refused, descriptor) = a.shm.rma(get()).unwrap_err();
        assert_eq!((refused, descriptor.token), (Refused::Unsupported, Token(7)));
        assert_eq!(a.shm.register_source(Peer(1), &region).unwrap_err(), Refused::Unsupported);
        a.send(1, b"frames still go").unwrap();
        until(&mut [&mut a, &mut b], "a frame", |n| n[1].log.frames.len() == 1);
    });
    outcome.join().unwrap();
}

/// Who cannot write the memory of others says so, and they read all of it themselves, from then on without asking.
#[test]
fn who_cannot_help_is_not_asked_again() {
    const LEN: usize = 32 << 20;
    let Some([mut a, mut b]) = readers(u32::MAX) else {
        println!("SKIP who_cannot_help_is_not_asked_again: ptrace scope forbids process_vm_readv");
        return;
    };
    let (source, target) = (OwnedBuffer::from(bytes(5, LEN)), OwnedBuffer::zeroed(LEN));
    // SAFETY: both outlive the regions; `source` is not written.
    let (from, into) = unsafe { (source.send_region(), target.recv_region()) };
    let key = b.shm.register_source(Peer(0), &from).unwrap();
    let over = AtomicBool::new(false);
    let mut helper = |able: bool| {
        // A thread of its own, with which the ban ends.
        while (able || forbid(libc::SYS_process_vm_writev)) && !over.load(Ordering::Relaxed) {
            b.turn();
        }
        b.shm.counters().assisted.get()
    };
    let mut reader = || {
        for _ in 0..2 {
            a.shm.rma(get(&key, 0, &into)).map_err(|(refused, _)| refused).unwrap();
            until(&mut [&mut a], "get", |n| !n[0].log.gets.is_empty());
            a.log.gets.pop().unwrap().1.unwrap();
            assert!(into.to_vec() == bytes(5, LEN));
            into.write(0, &bytes(6, LEN));
        }
        over.store(true, Ordering::Relaxed);
    };
    for able in [false, true] {
        over.store(false, Ordering::Relaxed);
        let assisted = std::thread::scope(|scope| {
            let assisted = scope.spawn(|| helper(able));
            reader();
            assisted.join().unwrap()
        });
        assert_eq!(assisted, 0, "{able}");
    }
}

/// A process that lends `LENT` bytes, and helps with reads of them.
struct Lender {
    child: Child,
    key: RemoteKey,
}

const LENT: usize = 64 << 20;

impl Lender {
    fn start(a: &mut Node) -> Lender {
        let (child, mut lines) = start_child(a, "lending_process");
        let key = lines.find_map(|line| Some(line.unwrap().strip_prefix("key ")?.to_string()));
        Lender { child, key: RemoteKey::new(&numbers(&key.unwrap())).unwrap() }
    }

    /// Sends `signal`. Who is to stop has stopped when this returns: it is through with what the kernel did for it.
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
        if signal == Signal::STOP {
            waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT).unwrap();
        }
    }

    /// Whether it has ended; it stays a zombie.
    fn is_gone(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        waitid(WaitId::Pid(Pid::from_child(&self.child)), options).unwrap().is_some()
    }
}

/// Not a test by itself: the process of [`Lender`].
#[test]
#[ignore = "started by other tests"]
fn lending_process() {
    let Some(mut node) = child_node(SingleCopy::Cma) else { return };
    let source = OwnedBuffer::from(vec![7; LENT]);
    // SAFETY: `source` lives as long as the process, and is not written.
    let region = unsafe { source.send_region() };
    let key = node.shm.register_source(Peer(0), &region).unwrap();
    let key: Vec<_> = key.as_bytes().iter().map(u8::to_string).collect();
    println!("\nkey {}", key.join(","));
    std::io::stdout().flush().unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        node.turn();
    }
}

/// An endpoint ends while its peer, which gets a signal first, writes a part of what we read: no get is given back and nothing is closed
/// before the peer is done with our memory, for which it may have to get another signal.
fn end_while_a_peer_writes(name: &str, first: Signal, excluded: bool, then: Option<Signal>) {
    for _ in 0..30 {
        let mut config = ShmConfig::new(Peer(0), "endpoints", SECRET);
        config.single_copy = SingleCopy::Cma;
        let mut a = Node::with(config);
        if !a.shm.caps().get {
            return println!("SKIP {name}: ptrace scope forbids process_vm_readv");
        }
        let mut lender = Lender::start(&mut a);
        let target = OwnedBuffer::zeroed(LENT);
        // SAFETY: `target` outlives the region.
        let into = unsafe { target.recv_region() };
        a.shm.rma(get(&lender.key, 0, &into)).map_err(|(refused, _)| refused).unwrap();
        a.turn();
        assert_eq!(a.log.gets.len(), 0, "it takes several turns");
        a.events();
        lender.signal(first);
        let Node { shm, log } = &mut a;
        if excluded {
            shm.exclude(Peer(1), Residue::Deliver, log);
        } else {
            shm.invalidate(Peer(1), Residue::Deliver, log);
        }
        // Or it was between two pieces, or is through.
        let met = shm.state(Peer(1)) == EndpointState::Failing;
        if met {
            let there = shm.address();
            assert_eq!(shm.connect(Peer(1), &there).unwrap_err().cause, Cause::Unreachable);
            shm.invalidate(Peer(1), Residue::Deliver, log);
            let start = Instant::now();
            while then.is_some() && start.elapsed() < Duration::from_millis(50) {
                a.turn();
            }
            assert!(a.log.gets.is_empty() && a.log.events.is_empty(), "it may still write");
            then.into_iter().for_each(|signal| lender.signal(signal));
        }
        until(&mut [&mut a], "closed", |n| !n[0].log.events.is_empty());
        assert_eq!(a.events(), [Event::Closed(Peer(1))]);
        assert!(!met || lender.is_gone() == then.is_none(), "it dies, if it has to");
        assert!(a.log.gets.pop().unwrap().1.is_err() && a.log.gets.is_empty());
        let there = into.to_vec();
        std::thread::sleep(Duration::from_millis(10));
        assert!(into.to_vec() == there, "written after the end");
        lender.child.kill().unwrap();
        lender.child.wait().unwrap();
        if met {
            return;
        }
    }
    panic!("it was never met in the middle of a piece");
}

#[test]
fn memory_comes_back_when_a_stopped_peer_goes_on() {
    let name = "memory_comes_back_when_a_stopped_peer_goes_on";
    end_while_a_peer_writes(name, Signal::STOP, false, Some(Signal::CONT));
}

#[test]
fn memory_comes_back_with_the_end_of_a_killed_peer() {
    let name = "memory_comes_back_with_the_end_of_a_killed_peer";
    for excluded in [false, true] {
        end_while_a_peer_writes(name, Signal::KILL, excluded, None);
    }
}

#[test]
fn who_is_excluded_and_does_not_give_memory_back_dies() {
    let name = "who_is_excluded_and_does_not_give_memory_back_dies";
    end_while_a_peer_writes(name, Signal::STOP, true, None);
}

fn numbers(list: &str) -> Vec<u8> {
    list.split(',').map(|byte| byte.parse().unwrap()).collect()
}

/// Another process, which runs `test` of this binary, and its output. It has connected.
fn start_child(a: &mut Node, test: &str) -> (Child, Lines<BufReader<ChildStdout>>) {
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
fn child_node(single_copy: SingleCopy) -> Option<Node> {
    let bytes = numbers(&std::env::var("IRONWEAVE_TEST_ADDRESS").ok()?);
    let mut config = ShmConfig::new(Peer(1), "endpoints", SECRET);
    config.single_copy = single_copy;
    let mut node = Node::with(config);
    node.shm.connect(Peer(0), &Address { component: "shm".into(), rail: 0, bytes }).unwrap();
    until(&mut [&mut node], "up", |n| !n[0].log.events.is_empty());
    Some(node)
}

/// Not a test by itself: the process that `a_killed_process_is_proof` kills.
#[test]
#[ignore = "started by a_killed_process_is_proof"]
fn child_process() {
    let Some(mut node) = child_node(SingleCopy::Auto) else { return };
    for i in 0..10 {
        node.send(0, &bytes_of(i)).unwrap();
    }
    println!("\nsent");
    std::io::stdout().flush().unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

fn bytes_of(i: usize) -> Vec<u8> {
    bytes(i, 3000 * i)
}

#[test]
fn a_killed_process_is_proof() {
    let mut a = Node::new(0);
    let (mut child, mut lines) = start_child(&mut a, "child_process");
    while lines.next().unwrap().unwrap() != "sent" {}
    child.kill().unwrap();
    // Not reaped yet: a zombie is gone, too.
    until(&mut [&mut a], "closed", |n| n[0].log.events.len() == 2);
    let fault = Fault::peer(Peer(1), Cause::ProcessGone);
    assert!(fault.is_proof());
    assert_eq!(a.events(), [Event::Fault(fault), Event::Closed(Peer(1))]);
    let got: Vec<_> = a.log.frames.drain(..).map(|frame| frame.2).collect();
    assert!(got == (0..10).map(bytes_of).collect::<Vec<_>>(), "what was sent whole arrives");
    assert_eq!(a.send(1, b"?"), Err(Refused::Closed));
    child.wait().unwrap();
}
