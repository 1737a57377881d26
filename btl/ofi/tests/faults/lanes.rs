//! Lanes: one that could not be closed is used again, and a pair is ended by either side.

use super::*;

/// Lanes of ours, of these joined, and kept for others: what the rail says.
fn lanes(node: &Node) -> [usize; 3] {
    [" lanes", " joined", " stranded"].map(|word| node.count(word))
}

/// Has `reader` read all of `source`, which `lender` lends it.
fn read_whole(reader: &mut Node, lender: &mut Node, way: &str, source: &OwnedBuffer) {
    let (me, you) = (reader.me, lender.me);
    // SAFETY: the source is kept until it is retired.
    let key = lender.btl.register_source(me, &unsafe { source.send_region() }).expect("memory");
    let target = OwnedBuffer::zeroed(source.as_slice().len());
    let before = reader.seen.rma.len();
    reader.read(you, key, &target);
    until("a whole read", || {
        reader.turn();
        lender.turn();
        reader.seen.rma.len() > before
    });
    assert_eq!(reader.seen.rma[before], Ok(()), "{way}");
    assert_eq!(target.as_slice(), source.as_slice(), "{way}: other bytes");
    lender.btl.retire(&key);
}

/// The side that must not close its lane while its peer may be connecting keeps it, and gives it to whoever comes next: the same
/// peer, whose probe of the first one may still come, or another. Each reads whole and right.
#[test]
fn a_lane_that_was_kept_is_used_again() {
    let test = "a_lane_that_was_kept_is_used_again";
    each(test, |way| {
        // Taken back before anything was done; when the peer has heard; while it connects; about when they are joined.
        for turns in [0, 1, 2, 4, 8, 16, 32] {
            let Some(mut reader) = Node::open(test, way, 0) else { return };
            let Some(mut other) = Node::open(test, way, 1) else { return };
            let Some(mut lender) = Node::open(test, way, 2) else { return };
            if !reads_over(test, way, &lender) {
                return;
            }
            let address = lender.btl.address();
            for node in [&mut reader, &mut other] {
                node.btl.connect(Peer(2), &address).expect("the address is reachable");
            }
            until("all to be up", || {
                reader.turn();
                other.turn();
                lender.turn();
                lender.seen.up == 2 && reader.seen.up + other.seen.up == 2
            });
            let source = OwnedBuffer::from(vec![0x5A; 1 << 20]);
            // SAFETY: the source is kept until it is deregistered.
            let region = unsafe { source.send_region() };
            let key = lender.btl.register_source(Peer(0), &region).expect("memory");
            assert_eq!(lanes(&lender), [1, 0, 0], "{}", way.0);
            for _ in 0..turns {
                reader.turn();
                lender.turn();
            }
            let joined = lanes(&lender)[1] == 1;
            lender.btl.deregister(&key);
            assert_eq!(lanes(&lender), [0, 0, usize::from(!joined)], "{}: {turns} turns", way.0);
            println!("  after {turns} turns: {}", if joined { "closed" } else { "kept" });
            // What the reader makes of the old one comes before or after.
            for _ in 0..turns {
                reader.turn();
                lender.turn();
            }
            let others = OwnedBuffer::from(vec![0xA5; 1 << 20]);
            if turns % 4 == 0 {
                read_whole(&mut other, &mut lender, way.0, &others);
                read_whole(&mut reader, &mut lender, way.0, &source);
            } else {
                read_whole(&mut reader, &mut lender, way.0, &source);
                read_whole(&mut other, &mut lender, way.0, &others);
            }
            assert_eq!(lanes(&lender)[2], 0, "{}: the kept one is used", way.0);
            for node in [&reader, &other, &lender] {
                assert!(node.seen.faults.is_empty(), "{}: {:?}", way.0, node.seen.faults);
                assert_eq!(node.seen.closed, 0, "{}: the connection lives on", way.0);
            }
        }
    });
}

/// Either side ends a pair that is joined, the lower rank or the higher, with nothing under way or with a read of the other's:
/// both see it, the read is whole or fails alone, and a new pair takes over.
#[test]
fn either_side_ends_a_pair() {
    let test = "either_side_ends_a_pair";
    each(test, |way| {
        for (ends, reading) in [(0, false), (1, false), (0, true), (1, true), (0, true), (1, true)]
        {
            let Some(mut pair) = Pair::open(test, way) else { return };
            if !reads_over(test, way, &pair.a) {
                return;
            }
            let source = OwnedBuffer::from(vec![0x5A; LONG]);
            let target = OwnedBuffer::zeroed(LONG);
            let Pair { a, b } = &mut pair;
            let (ender, peer) = if ends == 0 { (a, b) } else { (b, a) };
            read_whole(peer, ender, way.0, &source);
            assert_eq!([lanes(ender), lanes(peer)], [[1, 1, 0]; 2], "{}", way.0);
            // SAFETY: the source is kept until it is deregistered.
            let region = unsafe { source.send_region() };
            let key = ender.btl.register_source(peer.me, &region).expect("memory");
            let before = peer.seen.rma.len();
            if reading {
                peer.read(ender.me, key, &target);
                for _ in 0..4 {
                    ender.turn(); // the reader does not look: the answer stands where its socket is full
                }
            }
            ender.btl.deregister(&key);
            assert_eq!(lanes(ender), [0, 0, 0], "{}: rank {ends} closes its own", way.0);
            until("the other side to see it", || {
                ender.turn();
                peer.turn();
                let read = !reading || peer.seen.rma.len() == before + 1;
                read && lanes(peer)[1] == 0
            });
            if let Some(Err(fault)) = peer.seen.rma.get(before) {
                assert_eq!(fault.scope, Scope::Operation, "{}", way.0);
            }
            read_whole(peer, ender, way.0, &source);
            read_whole(ender, peer, way.0, &source);
            assert_eq!([lanes(ender), lanes(peer)], [[1, 1, 0]; 2], "{}: a new pair", way.0);
            for node in [&*ender, &*peer] {
                assert!(node.seen.faults.is_empty(), "{}: {:?}", way.0, node.seen.faults);
                assert_eq!(node.seen.closed, 0, "{}: the connection lives on", way.0);
            }
        }
    });
}
