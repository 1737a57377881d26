//! Who cannot prove the job secret is refused and costs a bounded amount; who breaks the framing is not believed
//! (law 9).

mod common;

use common::{Node, config, link, listener, pair, pattern, redirected, until};
use ironweave_btl::{Btl, Cause, EndpointState, Fault, Peer};
use ironweave_btl_tcp::TcpConfig;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Whether the other side closed this connection.
fn thrown_out(socket: &mut TcpStream) -> bool {
    socket.set_nonblocking(true).expect("a socket");
    loop {
        match socket.read(&mut [0; 256]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(_) => return true,
        }
    }
}

#[test]
fn noise_is_refused_and_counted() {
    let (mut a, mut b) = pair();
    for round in 0..50 {
        let mut stranger = TcpStream::connect(listener(&a.btl.address())).expect("it listens");
        let _ = stranger.write_all(&pattern(round, 1000));
        until("refusal", &mut [&mut a, &mut b], |_| thrown_out(&mut stranger));
        assert_eq!(a.btl.counters().rejected.get(), round + 1);
    }
    assert_eq!((a.seen.up.len(), a.seen.faults.len()), (1, 0));
    a.btl.send_short(b.me, b"", b"undisturbed").expect("up");
    until("the frame", &mut [&mut a, &mut b], |nodes| nodes[1].seen.frames.len() == 1);
}

#[test]
fn another_secret_or_job_is_refused_on_both_sides() {
    for other in [
        TcpConfig { secret: [43; 32], ..config(1) },
        TcpConfig { job: "another".into(), ..config(1) },
    ] {
        let (mut a, mut b) = (Node::new(0), Node::with(other));
        for (from, to) in [(0, 1), (1, 0)] {
            let mut nodes = [&mut a, &mut b];
            let (peer, address) = (nodes[to].me, nodes[to].btl.address());
            nodes[from].btl.connect(peer, &address).expect("shows later");
            until("refusal", &mut nodes, |nodes| !nodes[from].seen.closed.is_empty());
            assert_eq!(nodes[from].seen.faults.len(), 1);
            assert!(nodes[to].btl.counters().rejected.get() > 0);
            assert_eq!((nodes[to].seen.up.len(), nodes[from].seen.up.len()), (0, 0));
        }
    }
}

#[test]
fn an_acceptor_without_the_secret_is_recognized() {
    let mut a = Node::new(0);
    let impostor = TcpListener::bind("127.0.0.1:0").expect("a port");
    let there = impostor.local_addr().expect("bound");
    let address = redirected(&Node::new(1).btl.address(), there);
    a.btl.connect(Peer(1), &address).expect("reachable");
    let (mut socket, _) = impostor.accept().expect("it connects");
    let mut challenge = b"IWtcpCHA".to_vec();
    challenge.extend(pattern(1, 64));
    socket.write_all(&challenge).expect("it listens");
    until("recognition", &mut [&mut a], |nodes| !nodes[0].seen.closed.is_empty());
    assert_eq!(a.seen.faults, [Fault::rail(Peer(1), Cause::Authentication)]);
    assert_eq!(a.btl.counters().rejected.get(), 1);
}

/// Everything between two rails goes through here.
struct Wire {
    to_a: TcpStream,
    to_b: TcpStream,
    /// What the initiator said so far.
    heard: Vec<u8>,
}

impl Wire {
    /// `a` connects to `b` through the wire.
    fn between(a: &mut Node, b: &mut Node) -> Wire {
        let tap = TcpListener::bind("127.0.0.1:0").expect("a port");
        let there = redirected(&b.btl.address(), tap.local_addr().expect("bound"));
        a.btl.connect(b.me, &there).expect("reachable");
        let (to_a, _) = tap.accept().expect("it connects");
        let to_b = TcpStream::connect(listener(&b.btl.address())).expect("it listens");
        for socket in [&to_a, &to_b] {
            socket.set_nonblocking(true).expect("a socket");
        }
        let mut wire = Wire { to_a, to_b, heard: Vec::new() };
        let peer = b.me;
        until("up through the wire", &mut [a, b], |nodes| {
            wire.carry();
            nodes.iter().all(|node| !node.seen.up.is_empty())
                && nodes[0].btl.state(peer) == EndpointState::Up
        });
        wire
    }

    fn carry(&mut self) {
        let mut bytes = [0; 4096];
        if let Ok(count) = self.to_a.read(&mut bytes) {
            self.heard.extend_from_slice(&bytes[..count]);
            self.to_b.write_all(&bytes[..count]).expect("room");
        }
        if let Ok(count) = self.to_b.read(&mut bytes) {
            self.to_a.write_all(&bytes[..count]).expect("room");
        }
    }
}

#[test]
fn an_overheard_handshake_cannot_be_replayed() {
    let (mut a, mut b) = (Node::new(0), Node::new(1));
    let wire = Wire::between(&mut a, &mut b);
    let mut replay = TcpStream::connect(listener(&b.btl.address())).expect("it listens");
    replay.write_all(&wire.heard).expect("room");
    until("refusal", &mut [&mut a, &mut b], |_| thrown_out(&mut replay));
    assert_eq!(b.btl.counters().rejected.get(), 1);
    assert_eq!((b.seen.up.len(), b.seen.faults.len(), b.seen.closed.len()), (1, 0, 0));
}

#[test]
fn broken_framing_ends_the_endpoint_and_nothing_else() {
    let good = |payload: &[u8]| {
        let mut bytes = ironweave_btl_tcp::wire::data_prefix(0, payload.len()).to_vec();
        bytes.extend_from_slice(payload);
        bytes
    };
    let mut lie = good(b"");
    lie[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    for (round, bad) in [vec![0; 8], pattern(9, 64), lie].into_iter().enumerate() {
        let (mut a, mut b) = (Node::new(0), Node::new(1));
        let mut wire = Wire::between(&mut a, &mut b);
        let mut bytes = good(b"whole");
        bytes.extend(bad);
        bytes.extend(good(b"after"));
        wire.to_b.write_all(&bytes).expect("room");
        until("the end", &mut [&mut a, &mut b], |nodes| !nodes[1].seen.closed.is_empty());
        assert_eq!(b.seen.frames.len(), 1, "round {round}: nothing after it was believed");
        match &b.seen.faults[..] {
            [Fault { peer: Some(Peer(0)), cause: Cause::Malformed(_), .. }] => {}
            other => panic!("{other:?}"),
        }
        drop(wire);
        until("both closed", &mut [&mut a, &mut b], |nodes| !nodes[0].seen.closed.is_empty());
        link(&mut a, &mut b);
    }
}

#[test]
fn a_flood_of_half_open_connections_is_bounded_and_passes() {
    let mut a = Node::with(TcpConfig { connect_timeout: Duration::from_secs(30), ..config(0) });
    let there: SocketAddr = listener(&a.btl.address());
    let flood: Vec<TcpStream> = (0..600)
        .map(|_| {
            a.progress();
            let mut socket = TcpStream::connect(there).expect("the backlog has room");
            socket.write_all(b"IWtcp").expect("room");
            socket
        })
        .collect();
    for _ in 0..1000 {
        a.progress();
    }
    let guests = || {
        let dump = a.dump();
        let (_, after) = dump.split_once(": ").expect("a colon");
        after.split_once(" guests").expect("guests").0.parse::<usize>().expect("a number")
    };
    assert!((1..=256).contains(&guests()), "{} guests", guests());
    let mut b = Node::with(TcpConfig { connect_timeout: Duration::from_secs(30), ..config(1) });
    link(&mut b, &mut a); // while the flood still holds its connections
    drop(flood);
    until("counting", &mut [&mut a, &mut b], |nodes| nodes[0].btl.counters().rejected.get() == 600);
    assert_eq!((a.seen.up.len(), a.seen.faults.len()), (1, 0));
}
