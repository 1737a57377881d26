//! Peers that are killed and started again, over and over: what is known of where they were is forgotten.

use super::*;
use ironweave_btl_ofi::provider::Provider;
use victims::{Victim, be_victim};

/// Restarts in one test of real deaths.
const RESTARTS: u32 = 4;
/// Bytes that are read each time, where memory is read.
const READ: usize = 64 << 10;

/// The number that the vector has for the peer.
fn number_of(node: &Node) -> u64 {
    let mut text = String::new();
    node.btl.dump(&mut text).expect("a string takes everything");
    let after = text.split(" to: ").nth(1).and_then(|text| text.split(',').next());
    after.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

/// The child: says a word, lends memory where it can, and takes what comes until it is killed.
fn be_restarted(mut node: Node) -> ! {
    let source = OwnedBuffer::from(vec![0xA5; READ]);
    let (start, mut said) = (Instant::now(), false);
    while start.elapsed() < WATCHDOG {
        node.turn();
        if node.btl.state(Peer(0)) == EndpointState::Up && !said {
            let mut word = Vec::new();
            if node.btl.caps().get {
                // SAFETY: the buffer is kept until the process ends.
                let region = unsafe { source.send_region() };
                let key = node.btl.register_source(Peer(0), &region).expect("memory");
                word.extend_from_slice(key.as_bytes());
            }
            said = node.btl.send_short(Peer(0), b"here", &word).is_ok();
        }
    }
    std::process::exit(1);
}

/// A peer is killed with messages for it on their way, and is started again, at the same address or at another: each time it is met,
/// and in the end the vector has forgotten where it and its lanes were, and gives out their numbers again.
#[test]
fn a_peer_that_is_killed_is_forgotten_and_met_again() {
    let test = "a_peer_that_is_killed_is_forgotten_and_met_again";
    let few = |config: &mut OfiConfig| {
        config.peers = 4;
        config.connect_timeout = Duration::from_secs(20);
    };
    if let Some(node) = be_victim(few) {
        be_restarted(node);
    }
    each(test, |way| {
        let Some(mut node) = Node::open_with(test, way, 0, few) else { return };
        assert!(Provider::of(way.2).remove, "{}: addresses stay for good", way.0);
        let mut last = None;
        let mut address: Option<Address> = None;
        for round in 0..=RESTARTS {
            let again = address.take().and_then(|address| endpoint_name(&address.bytes));
            let here = again.filter(|_| round % 3 == 1);
            let path = format!("restarts::{test}");
            let mut victim = Victim::start(&path, way.0, round, here.as_deref());
            let there = victim.address();
            let name = endpoint_name(&there.bytes);
            assert_eq!(name == last, here.is_some(), "{}: round {round}", way.0);
            node.seen = Record::default();
            until("the child to be up, and its word", || {
                // What is left of the old connection may cost an attempt or two.
                if node.btl.state(Peer(1)) == EndpointState::Closed {
                    node.seen.frames.clear();
                    node.btl.connect(Peer(1), &there).expect("the address is reachable");
                }
                node.turn();
                !node.seen.frames.is_empty()
            });
            if round == RESTARTS {
                let number = number_of(&node);
                assert!(number < 4, "{}: number {number} for the only peer", way.0);
            }
            if node.btl.caps().get {
                let target = OwnedBuffer::zeroed(READ);
                let key = RemoteKey::new(&node.seen.frames[0]).expect("a key");
                node.read(Peer(1), key, &target);
                until("a whole read", || {
                    node.turn();
                    node.seen.rma.len() == 1
                });
                assert_eq!(node.seen.rma[0], Ok(()), "{}: round {round}", way.0);
                assert!(target.as_slice().iter().all(|&byte| byte == 0xA5), "other bytes");
            }
            let send = |node: &mut Node| {
                node.btl.send_bcopy(Peer(1), b"h", 10_000, |_, piece| piece.fill(1))
            };
            for _ in 0..round {
                let _ = send(&mut node);
            }
            victim.kill();
            for _ in 0..round {
                let _ = send(&mut node);
                node.turn();
            }
            node.btl.invalidate(Peer(1), Residue::Discard, &mut node.seen);
            until("the end", || {
                node.turn();
                node.btl.state(Peer(1)) == EndpointState::Closed
            });
            last = name;
            address = Some(there);
            if round + 1 >= RESTARTS {
                until("all to be forgotten", || {
                    node.turn();
                    node.count(" addresses") == 0
                });
            }
        }
    });
}

/// Peers that are started elsewhere while the process lives on (here: this one) are known by their new address alone, whoever
/// connects: the vector does not grow with each of them.
#[test]
fn a_peer_that_moves_is_known_where_it_is() {
    const MOVES: u8 = 10;
    let test = "a_peer_that_moves_is_known_where_it_is";
    each(test, |way| {
        let few = |config: &mut OfiConfig| config.peers = 4;
        let Some(mut a) = Node::open_with(test, way, 0, few) else { return };
        let of_a = a.btl.address();
        let mut highest = 0;
        for round in 0..2 * MOVES {
            let Some(mut b) = Node::open(test, way, 1) else { return };
            if round % 2 == 0 {
                a.btl.invalidate(Peer(1), Residue::Discard, &mut a.seen);
                a.seen = Record::default();
                a.btl.connect(Peer(1), &b.btl.address()).expect("the address is reachable");
            } else {
                a.seen = Record::default();
                b.btl.connect(Peer(0), &of_a).expect("the address is reachable");
            }
            until("both to be up", || {
                a.turn();
                b.turn();
                a.seen.up == 1 && b.seen.up == 1
            });
            a.btl.send_short(Peer(1), b"h", &[round]).expect("room for one");
            until("a frame", || {
                a.turn();
                b.turn();
                !b.seen.frames.is_empty()
            });
            assert_eq!(b.seen.frames, [vec![round]], "{}", way.0);
            highest = highest.max(number_of(&a));
            // What the last ones were to be told may wait for a while.
            if round % MOVES == MOVES - 1 {
                until("the others to be forgotten", || {
                    a.turn();
                    b.turn();
                    a.count(" addresses") == 1
                });
            }
        }
        println!("  numbers up to {highest}");
        assert!(highest < 3 * u64::from(MOVES) / 2, "{}: number {highest} for one peer", way.0);
    });
}
