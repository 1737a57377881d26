//! A peer that is killed in the middle of reads both ways: a process of its own, by SIGKILL.

use super::*;
use victims::{Victim, be_victim};

/// Lends memory to the peer, and sends it the key.
fn lend(node: &mut Node, peer: Peer, source: &OwnedBuffer) -> RemoteKey {
    // SAFETY: callers keep the buffer until the key is deregistered, or the process ends.
    let key = node.btl.register_source(peer, &unsafe { source.send_region() }).expect("memory");
    node.btl.send_short(peer, b"key", key.as_bytes()).expect("room for one frame");
    key
}

/// The key that the peer has sent.
fn lent(node: &Node) -> Option<RemoteKey> {
    node.seen.frames.first().and_then(|frame| RemoteKey::new(frame))
}

/// The child: lends memory, and reads the parent's over and over, until it is killed.
fn be_killed(mut node: Node) -> ! {
    let (source, target) = (OwnedBuffer::from(vec![0xA5; LONG]), OwnedBuffer::zeroed(LONG));
    let (start, mut begun, mut has_lent) = (Instant::now(), 0, false);
    while start.elapsed() < WATCHDOG {
        node.turn();
        if node.btl.state(Peer(0)) != EndpointState::Up {
            continue;
        }
        if !std::mem::replace(&mut has_lent, true) {
            lend(&mut node, Peer(0), &source);
        }
        if let (Some(theirs), true) = (lent(&node), node.seen.rma.len() == begun) {
            begun += 1;
            node.read(Peer(0), theirs, &target);
        }
    }
    std::process::exit(1);
}

#[test]
fn a_peer_killed_in_the_middle_of_reads_leaves_the_buffer_alone() {
    let test = "a_peer_killed_in_the_middle_of_reads_leaves_the_buffer_alone";
    if let Some(node) = be_victim(|_| {}) {
        be_killed(node);
    }
    each(test, |way| {
        let Some(mut node) = Node::open(test, way, 0) else { return };
        if !reads_over(test, way, &node) {
            return;
        }
        let mut cut = 0;
        for round in 0..4 {
            // They are gone before the rail is.
            let source = OwnedBuffer::from(vec![0x5A; LONG]);
            let mut target = OwnedBuffer::zeroed(LONG);
            let mut victim = Victim::start(&format!("killed::{test}"), way.0, round, None);
            let address = victim.address();
            node.seen = Record::default();
            node.btl.connect(Peer(1), &address).expect("the address is reachable");
            until("the child to be up", || {
                node.turn();
                node.seen.up == 1
            });
            let key = lend(&mut node, Peer(1), &source);
            until("the child's key", || {
                node.turn();
                lent(&node).is_some()
            });
            let theirs = lent(&node).expect("just seen");
            // Whole reads first, so that each side knows the other's lane.
            for whole in 1..=2 {
                node.read(Peer(1), theirs, &target);
                until("a whole read", || {
                    node.turn();
                    node.seen.rma.len() == whole
                });
                assert_eq!(node.seen.rma[whole - 1], Ok(()));
                assert!(target.as_slice().iter().all(|&byte| byte == 0xA5), "a part");
            }
            node.seen.rma.clear();
            target.as_mut_slice().fill(0);
            node.read(Peer(1), theirs, &target);
            for _ in 0..round * 120 {
                node.turn();
            }
            victim.kill();
            for _ in 0..round * 50 {
                node.turn();
            }
            // What the launcher or the detector would do, if the provider did not show it.
            node.btl.invalidate(Peer(1), Residue::Discard, &mut node.seen);
            until("the end", || {
                node.turn();
                node.seen.closed == 1 && node.seen.rma.len() == 1
            });
            match &node.seen.rma[0] {
                Ok(()) => assert!(target.as_slice().iter().all(|&byte| byte == 0xA5), "a part"),
                Err(_) => cut += 1,
            }
            target.as_mut_slice().fill(0x11);
            node.btl.deregister(&key);
            drop(source);
            let end = Instant::now() + Duration::from_millis(30);
            while Instant::now() < end {
                node.turn();
            }
            let untouched = target.as_slice().iter().all(|&byte| byte == 0x11);
            assert!(untouched, "{}: written after it came back", way.0);
        }
        assert!(cut > 0, "{}: no read was cut off", way.0);
    });
}
