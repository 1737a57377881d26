//! What breaks, breaks with a typed fault, everything comes back once, and `closed` ends it (laws 1, 2, 3).

mod common;

use common::{Node, config, descriptor, landing, link, pair, pattern, until};
use ironweave_btl::memory::OwnedBuffer;
use ironweave_btl::{Btl, Cause, EndpointState, Fault, Peer, Refused, Residue, Scope, Token};
use ironweave_btl_tcp::{OpenError, Tcp, TcpConfig};
use std::time::Duration;

#[test]
fn a_crash_is_a_lost_rail_and_everything_comes_back() {
    let (mut a, b) = pair();
    let source = OwnedBuffer::from(pattern(1, 8 << 20));
    for token in 0..20 {
        a.btl.send_zcopy(descriptor(b.me, b"x", &source, token)).expect("room");
    }
    a.btl.send_short(b.me, b"x", b"copied").expect("room");
    let peer = b.me;
    drop(b); // without a good-bye: a crash
    until("closed", &mut [&mut a], |nodes| nodes[0].seen.closed == [peer]);
    let mut tokens: Vec<u64> = a.seen.completed.iter().map(|(token, _)| token.0).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (0..20).collect::<Vec<_>>());
    assert!(a.seen.completed.iter().any(|(_, outcome)| outcome.is_err()));
    assert_eq!(a.seen.faults, [Fault::rail(peer, Cause::Disconnected)]);
    assert_eq!((a.btl.unflushed(), a.btl.state(peer)), (0, EndpointState::Closed));
    assert_eq!(a.btl.send_short(peer, b"", b""), Err(Refused::Closed));
}

#[test]
fn frames_that_came_whole_before_a_crash_are_delivered() {
    let (mut a, mut b) = pair();
    for number in 0..100_u8 {
        b.btl.send_short(a.me, &[number], b"last words").expect("room");
    }
    until("written", &mut [&mut b], |nodes| nodes[0].btl.unflushed() == 0);
    drop(b);
    // Writing to it fails first; what it said is read nevertheless.
    let _ = a.btl.send_short(Peer(1), b"", b"");
    let _ = a.btl.send_short(Peer(1), b"", b"");
    until("closed", &mut [&mut a], |nodes| nodes[0].seen.closed == [Peer(1)]);
    assert_eq!(a.seen.frames.len(), 100);
}

#[test]
fn a_landing_is_given_back_when_the_peer_breaks_off() {
    let (mut a, mut b) = pair();
    let source = OwnedBuffer::from(pattern(1, 16 << 20));
    let target = OwnedBuffer::zeroed(16 << 20);
    a.seen.offers.push_back((landing(&target), Token(9)));
    b.btl.send_zcopy(descriptor(a.me, b"", &source, 1)).expect("room");
    until("some bytes", &mut [&mut a], |nodes| nodes[0].seen.offers.is_empty());
    drop(b);
    until("closed", &mut [&mut a], |nodes| nodes[0].seen.closed == [Peer(1)]);
    let (_, token, outcome) = a.seen.landed.pop().expect("given back");
    assert_eq!(token, Token(9));
    assert_eq!(outcome, Err(Fault::operation(Peer(1), Cause::Disconnected)));
    assert_eq!(a.btl.counters().purged.get(), 1);
}

#[test]
fn invalidate_fences_purges_and_closes_once() {
    for residue in [Residue::Deliver, Residue::Discard] {
        let (mut a, mut b) = pair();
        let source = OwnedBuffer::from(pattern(1, 16 << 20));
        let target = OwnedBuffer::zeroed(16 << 20);
        b.btl.send_short(a.me, b"", b"before").expect("room");
        a.seen.offers.push_back((landing(&target), Token(9)));
        b.btl.send_zcopy(descriptor(a.me, b"", &source, 1)).expect("room");
        for token in 0..5 {
            a.btl.send_zcopy(descriptor(b.me, b"", &source, token)).expect("room");
        }
        std::thread::sleep(Duration::from_millis(20)); // the kernel moves what it can
        a.btl.invalidate(b.me, residue, &mut a.seen);
        assert_eq!(a.seen.closed, [b.me]);
        assert_eq!(a.seen.faults, []);
        assert_eq!(a.seen.completed.len(), 5);
        assert_eq!(a.seen.frames.len(), usize::from(residue == Residue::Deliver));
        let offered = a.seen.offers.len() + a.seen.landed.len();
        assert_eq!(offered, 1, "offered or given back");
        let invalidated = Err(Fault::operation(b.me, Cause::Invalidated));
        assert!(a.seen.completed.iter().any(|(_, outcome)| *outcome == invalidated));
        let before = target.as_slice().to_vec();
        until("the other side", &mut [&mut a, &mut b], |nodes| !nodes[1].seen.closed.is_empty());
        assert!(target.as_slice() == before, "hands off");
        a.btl.invalidate(b.me, residue, &mut a.seen);
        assert_eq!(a.seen.closed.len(), 1, "nothing to close any more");
        // The rail heals.
        link(&mut a, &mut b);
        a.btl.send_short(b.me, b"", b"again").expect("room");
        until("again", &mut [&mut a, &mut b], |nodes| {
            nodes[1].seen.frames.iter().any(|(_, _, payload)| payload == b"again")
        });
    }
}

#[test]
fn the_excluded_stay_out() {
    let (mut a, mut b) = pair();
    a.btl.exclude(b.me, Residue::Discard, &mut a.seen);
    until("closed", &mut [&mut a, &mut b], |nodes| nodes[1].seen.closed.len() == 1);
    a.btl.connect(b.me, &b.btl.address()).unwrap_err();
    b.connect(&a);
    until("refusal", &mut [&mut a, &mut b], |nodes| nodes[1].seen.closed.len() == 2);
    assert_eq!(b.seen.faults[1], Fault::rail(a.me, Cause::ConnectionRefused));
    assert_eq!((a.seen.up.len(), b.seen.up.len()), (1, 1));
}

#[test]
fn nobody_listens_is_a_reason_to_suspect_the_peer() {
    let (mut a, b) = (Node::new(0), Node::new(1));
    let (peer, address) = (b.me, b.btl.address());
    drop(b);
    a.btl.connect(peer, &address).expect("shows later");
    until("closed", &mut [&mut a], |nodes| nodes[0].seen.closed == [peer]);
    assert_eq!(a.seen.faults, [Fault::peer(peer, Cause::ConnectionRefused)]);
}

#[test]
fn silence_in_the_handshake_ends_in_time() {
    let mut a = Node::with(TcpConfig { connect_timeout: Duration::from_millis(200), ..config(0) });
    let b = Node::new(1); // never makes progress
    a.connect(&b);
    until("closed", &mut [&mut a], |nodes| nodes[0].seen.closed == [Peer(1)]);
    assert_eq!(a.seen.faults, [Fault::peer(Peer(1), Cause::TimedOut)]);
}

#[test]
fn addresses_that_cannot_be_reached_are_refused_at_once() {
    let (mut a, b) = (Node::new(0), Node::new(1));
    let good = b.btl.address();
    for bytes in [vec![], vec![1; 40], good.bytes[..good.bytes.len() - 1].to_vec()] {
        let bad = ironweave_btl::Address { bytes, ..good.clone() };
        let fault = a.btl.connect(b.me, &bad).unwrap_err();
        assert_eq!(fault, Fault::rail(b.me, Cause::Unreachable));
    }
    let other = ironweave_btl::Address { component: "shm".into(), ..good.clone() };
    a.btl.connect(b.me, &other).unwrap_err();
    a.btl.connect(Peer(u32::MAX), &good).unwrap_err();
    a.btl.connect(a.me, &good).unwrap_err();
    assert_eq!(a.btl.state(b.me), EndpointState::Closed);
}

#[test]
fn a_used_up_port_range_is_named() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("bound").port();
    let error = Tcp::open_all(TcpConfig { ports: Some(port..=port), ..config(0) }).err();
    match error.expect("it is in use") {
        OpenError::PortsInUse { first, last, .. } => assert_eq!((first, last), (port, port)),
        other => panic!("{other}"),
    }
    drop(free);
    Tcp::open_all(TcpConfig { ports: Some(port..=port), ..config(0) }).expect("free now");
}

#[test]
fn unknown_interfaces_are_named_with_the_known() {
    let include = vec!["nosuch0".parse().expect("a name")];
    let error = Tcp::open_all(TcpConfig { include, ..config(0) }).err().expect("unknown");
    let text = error.to_string();
    assert!(text.contains("`nosuch0`") && text.contains("lo"), "{text}");
}

#[test]
fn links_are_rails_of_their_own() {
    let open = |me| Tcp::open_all(TcpConfig { links: 3, ..config(me) }).expect("opens");
    let node = |me, btl| Node { btl, seen: common::Record::default(), me: Peer(me) };
    let mut left: Vec<Node> = open(0).into_iter().map(|btl| node(0, btl)).collect();
    let mut right: Vec<Node> = open(1).into_iter().map(|btl| node(1, btl)).collect();
    assert_eq!((left.len(), right.len()), (3, 3));
    for (rail, (a, b)) in left.iter_mut().zip(&mut right).enumerate() {
        assert_eq!(usize::from(a.btl.address().rail), rail);
        link(a, b);
    }
    let Node { btl, seen, .. } = &mut left[1];
    btl.invalidate(Peer(1), Residue::Discard, seen);
    for rail in [0, 2] {
        let (a, b) = (&mut left[rail], &mut right[rail]);
        a.btl.send_short(Peer(1), b"", b"still here").expect("room");
        until("the frame", &mut [a, b], |nodes| nodes[1].seen.frames.len() == 1);
    }
    left.clear();
}

#[test]
fn both_connect_at_once_and_one_connection_stays() {
    for round in 0..200_u32 {
        let (mut a, mut b) = (Node::new(0), Node::new(1));
        a.connect(&b);
        if round % 4 == 1 {
            for _ in 0..round {
                a.progress();
                b.progress();
            }
        }
        b.connect(&a);
        // The order in which the two get to work differs from round to round.
        for turn in 0..(round % 64) {
            if (round >> (turn % 6)) & 1 == 0 {
                a.progress()
            } else {
                b.progress()
            };
        }
        until("both up", &mut [&mut a, &mut b], |nodes| {
            nodes.iter().all(|node| !node.seen.up.is_empty())
        });
        for number in 0..20_u8 {
            a.btl.send_short(b.me, &[number], b"a").expect("up");
            b.btl.send_short(a.me, &[number], b"b").expect("up");
        }
        until("frames", &mut [&mut a, &mut b], |nodes| {
            nodes.iter().all(|node| node.seen.frames.len() == 20)
        });
        for _ in 0..200 {
            a.progress();
            b.progress();
        }
        for node in [&a, &b] {
            assert_eq!(node.seen.up.len(), 1, "round {round}");
            assert_eq!((node.seen.faults.len(), node.seen.closed.len()), (0, 0), "round {round}");
            let order: Vec<u8> = node.seen.frames.iter().map(|(_, header, _)| header[0]).collect();
            assert_eq!(order, (0..20).collect::<Vec<_>>(), "round {round}");
        }
    }
}

#[test]
fn a_peer_that_lost_the_connection_may_make_a_new_one() {
    let (mut a, mut b) = pair();
    for _ in 0..20 {
        // `b` gives up and connects again before `a` noticed anything.
        b.btl.invalidate(a.me, Residue::Discard, &mut b.seen);
        b.connect(&a);
        let ups = b.seen.up.len() + 1;
        until("up again", &mut [&mut a, &mut b], |nodes| {
            nodes[0].seen.up.len() == ups && nodes[1].seen.up.len() == ups
        });
        a.btl.send_short(b.me, b"", b"x").expect("up");
        b.btl.send_short(a.me, b"", b"x").expect("up");
        let frames = ups - 1;
        until("frames", &mut [&mut a, &mut b], |nodes| {
            nodes.iter().all(|node| node.seen.frames.len() == frames)
        });
        assert_eq!(a.seen.closed.len(), ups - 1);
    }
    assert!(a.seen.faults.iter().all(|fault| fault.scope == Scope::Rail));
}

#[test]
fn many_endpoints() {
    let mut hub = Node::new(0);
    let mut spokes: Vec<Node> = (1..400).map(Node::new).collect();
    for spoke in &mut spokes {
        spoke.connect(&hub);
    }
    let start = std::time::Instant::now();
    while hub.seen.up.len() < spokes.len() {
        hub.progress();
        for spoke in &mut spokes {
            spoke.progress();
            assert!(spoke.seen.faults.is_empty(), "{:?}", spoke.seen.faults);
        }
        assert!(start.elapsed() < common::WATCHDOG, "{}", hub.dump());
    }
    for spoke in &mut spokes {
        until("up", &mut [spoke], |nodes| !nodes[0].seen.up.is_empty());
        spoke.btl.send_short(Peer(0), b"", b"hello").expect("up");
        hub.btl.send_short(spoke.me, b"", b"hello").expect("up");
    }
    until("all", &mut [&mut hub], |nodes| nodes[0].seen.frames.len() == 399);
    for spoke in &mut spokes {
        until("hello", &mut [spoke, &mut hub], |nodes| nodes[0].seen.frames.len() == 1);
    }
}

#[test]
fn a_sleeper_is_woken_by_frames_connections_and_time_limits() {
    use rustix::event::{PollFd, PollFlags, poll};
    // Sleeps once, if nothing is left to do.
    let sleep = |node: &mut Node| {
        if node.progress() > 0 {
            return;
        }
        let ironweave_btl::Armed::Wait(fd) = node.btl.arm() else { return };
        #[allow(unsafe_code)]
        // SAFETY: the transport lives on and keeps the descriptor open.
        let fd = unsafe { rustix::fd::BorrowedFd::borrow_raw(fd) };
        let limit = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
        let woken = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)).expect("poll");
        assert_eq!(woken, 1, "slept for a minute\n{}", node.dump());
    };
    let mut a = Node::with(TcpConfig { connect_timeout: Duration::from_millis(300), ..config(0) });
    let silent = Node::new(2);
    let blob = a.btl.address();
    let talker = std::thread::spawn(move || {
        let mut b = Node::new(1);
        std::thread::sleep(Duration::from_millis(30));
        b.btl.connect(Peer(0), &blob).expect("reachable");
        until("up", &mut [&mut b], |nodes| !nodes[0].seen.up.is_empty());
        std::thread::sleep(Duration::from_millis(30));
        b.btl.send_short(Peer(0), b"", b"wake up").expect("up");
        until("good-bye", &mut [&mut b], |nodes| !nodes[0].seen.closed.is_empty());
    });
    while a.seen.frames.is_empty() {
        sleep(&mut a);
    }
    a.connect(&silent);
    while a.seen.faults.is_empty() {
        sleep(&mut a);
    }
    assert_eq!(a.seen.faults, [Fault::peer(Peer(2), Cause::TimedOut)]);
    a.btl.depart();
    until("flushed", &mut [&mut a], |nodes| nodes[0].btl.unflushed() == 0);
    talker.join().expect("the other side");
}
