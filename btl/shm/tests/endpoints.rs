//! Endpoints of real transports: how they begin, what they carry, how they end. Both ends live in this process,
//! but where a death must be real.
#![allow(unsafe_code, clippy::unwrap_used)] // regions of test buffers; helpers outside `#[test]`

#[path = "util/node.rs"]
mod node;

use ironweave_btl::memory::OwnedBuffer;
use ironweave_btl::{
    Address, Armed, Btl, Cause, EndpointState, Fault, Peer, Refused, Residue, Scope,
};
use ironweave_btl_shm::{ShmConfig, SingleCopy};
use node::{Event, Node, SECRET, bytes, child_node, join, pair, start_child, until};
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::time::Duration;

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
