//! Reads that are cut off.

use super::*;

/// Invalidated in the middle of a long read: the buffer, given back, is not written any more.
#[test]
fn a_read_that_is_cut_off_leaves_the_buffer_alone() {
    let test = "a_read_that_is_cut_off_leaves_the_buffer_alone";
    each(test, |way| {
        let mut cut = 0;
        for moment in 0..12_u32 {
            let Some(mut pair) = Pair::open(test, way) else { return };
            if !reads_over(test, way, &pair.a) {
                return;
            }
            // They are gone before the pair is.
            let source = OwnedBuffer::from(vec![0x5A; LONG]);
            let mut target = OwnedBuffer::zeroed(LONG);
            // SAFETY: `source` is kept until it is deregistered.
            let key = pair
                .b
                .btl
                .register_source(Peer(0), &unsafe { source.send_region() })
                .expect("memory");
            // SAFETY: `target` is looked at after the read came back only.
            let kind = RmaKind::Get(unsafe { target.recv_region() });
            let (peer, token) = (Peer(1), Token(1));
            let read = RmaDescriptor { peer, kind, remote: key, remote_offset: 0, token };
            pair.a.btl.rma(read).map_err(|(refused, _)| refused).expect("room for one read");
            until("a lane", || {
                pair.turn();
                let mut state = String::new();
                pair.a.btl.dump(&mut state).expect("a string takes everything");
                state.contains("1 lanes, 1 joined")
            });
            // A few turns more each time: before much is there, in the middle, or after the end.
            for _ in 0..moment * 3 {
                pair.turn();
            }
            pair.a.btl.invalidate(Peer(1), Residue::Discard, &mut pair.a.seen);
            until("the end", || {
                pair.turn();
                pair.a.seen.closed == 1 && pair.a.seen.rma.len() == 1
            });
            match &pair.a.seen.rma[0] {
                Ok(()) => assert!(target.as_slice().iter().all(|&byte| byte == 0x5A), "a part"),
                Err(fault) => {
                    assert_eq!(fault.cause, Cause::Invalidated);
                    cut += 1;
                }
            }
            target.as_mut_slice().fill(0x11);
            pair.turns_for(Duration::from_millis(50));
            let untouched = target.as_slice().iter().all(|&byte| byte == 0x11);
            assert!(untouched, "{}: written after it came back", way.0);
            pair.b.btl.deregister(&key);
            assert_eq!(source.as_slice()[0], 0x5A);
        }
        assert!(cut > 0, "{}: no read was cut off", way.0);
    });
}

/// Both ends read over lanes that are joined, and one of them invalidates: neither buffer is written after it came back.
#[test]
fn reads_both_ways_are_cut_off_together() {
    let test = "reads_both_ways_are_cut_off_together";
    each(test, |way| {
        let mut cut = 0;
        for moment in 0..10_u32 {
            let Some(mut pair) = Pair::open(test, way) else { return };
            if !reads_over(test, way, &pair.a) {
                return;
            }
            let source = OwnedBuffer::from(vec![0x5A; LONG]);
            let mut targets = [OwnedBuffer::zeroed(LONG), OwnedBuffer::zeroed(LONG)];
            // SAFETY: `source` is kept until both keys are deregistered.
            let region = unsafe { source.send_region() };
            let keys = [(&mut pair.a, Peer(1)), (&mut pair.b, Peer(0))]
                .map(|(node, peer)| node.btl.register_source(peer, &region).expect("memory"));
            // The first reads make the lanes known to each other.
            for round in 0..2 {
                pair.a.read(Peer(1), keys[1], &targets[0]);
                pair.b.read(Peer(0), keys[0], &targets[1]);
                until("whole reads", || {
                    pair.turn();
                    pair.a.seen.rma.len() > round && pair.b.seen.rma.len() > round
                });
            }
            let joined = "1 lanes, 1 joined";
            for node in [&pair.a, &pair.b] {
                let mut state = String::new();
                node.btl.dump(&mut state).expect("a string takes everything");
                assert!(state.contains(joined), "{}: {state}", way.0);
            }
            pair.a.seen.rma.clear();
            pair.b.seen.rma.clear();
            targets[0].as_mut_slice().fill(0);
            targets[1].as_mut_slice().fill(0);
            pair.a.read(Peer(1), keys[1], &targets[0]);
            pair.b.read(Peer(0), keys[0], &targets[1]);
            for _ in 0..moment * 3 {
                pair.turn();
            }
            pair.a.btl.invalidate(Peer(1), Residue::Discard, &mut pair.a.seen);
            until("both ends", || {
                pair.turn();
                let over = |node: &Node| node.seen.closed == 1 && node.seen.rma.len() == 1;
                over(&pair.a) && over(&pair.b)
            });
            for (node, target) in [&pair.a, &pair.b].into_iter().zip(&mut targets) {
                match &node.seen.rma[0] {
                    Ok(()) => assert!(target.as_slice().iter().all(|&byte| byte == 0x5A), "a part"),
                    Err(_) => cut += 1,
                }
                target.as_mut_slice().fill(0x11);
            }
            pair.turns_for(Duration::from_millis(30));
            let untouched = targets.iter().all(|all| all.as_slice().iter().all(|&b| b == 0x11));
            assert!(untouched, "{}: written after it came back", way.0);
            pair.a.btl.deregister(&keys[0]);
            pair.b.btl.deregister(&keys[1]);
        }
        assert!(cut > 0, "{}: no read was cut off", way.0);
    });
}

/// The owner takes memory back while it is read: from then on nobody looks at it (it is written over, and unmapped), and the read
/// fails, or had all of it. So may what the owner itself was reading, over the same lanes. The connection lives on.
#[test]
fn a_source_that_is_taken_back_is_read_no_more() {
    const LEN: usize = 32 << 20; // more than the sockets hold
    let test = "a_source_that_is_taken_back_is_read_no_more";
    each(test, |way| {
        let mut cut = 0;
        let Some(mut pair) = Pair::open(test, way) else { return };
        if !reads_over(test, way, &pair.a) {
            return;
        }
        for moment in 0..12_u32 {
            let mut source = OwnedBuffer::from(vec![0x5A; LEN]);
            let others = OwnedBuffer::from(vec![0xA5; LONG]);
            let targets = [OwnedBuffer::zeroed(LEN), OwnedBuffer::zeroed(LONG)];
            // SAFETY: each is kept until it is deregistered.
            let (lent, of_a) = unsafe { (source.send_region(), others.send_region()) };
            let key = pair.b.btl.register_source(Peer(0), &lent).expect("memory");
            let key_of_a = pair.a.btl.register_source(Peer(1), &of_a).expect("memory");
            pair.a.seen = Record::default();
            pair.b.seen = Record::default();
            pair.a.read(Peer(1), key, &targets[0]);
            pair.b.read(Peer(0), key_of_a, &targets[1]);
            for _ in 0..moment * 3 {
                pair.turn();
            }
            for _ in 0..moment * 20 {
                pair.b.turn(); // the reader does not look: the answer stands where its socket is full
            }
            pair.b.btl.deregister(&key);
            source.as_mut_slice().fill(0x11);
            if moment % 2 == 1 {
                drop(source);
            }
            until("both reads", || {
                pair.turn();
                pair.a.seen.rma.len() == 1 && pair.b.seen.rma.len() == 1
            });
            match &pair.a.seen.rma[0] {
                Ok(()) => {
                    let right = targets[0].as_slice().iter().all(|&byte| byte == 0x5A);
                    assert!(right, "{}: read after it was taken back", way.0);
                }
                Err(fault) => {
                    assert_eq!(fault.scope, Scope::Operation);
                    cut += 1;
                }
            }
            match &pair.b.seen.rma[0] {
                Ok(()) => {
                    let right = targets[1].as_slice().iter().all(|&byte| byte == 0xA5);
                    assert!(right, "{}: a part", way.0);
                }
                Err(fault) => assert_eq!(fault.scope, Scope::Operation),
            }
            pair.a.btl.deregister(&key_of_a);
            // SAFETY: as above.
            let again = unsafe { others.send_region() };
            let target = OwnedBuffer::zeroed(LONG);
            let key = pair.b.btl.register_source(Peer(0), &again).expect("memory");
            pair.a.read(Peer(1), key, &target);
            until("a whole read", || {
                pair.turn();
                pair.a.seen.rma.len() == 2
            });
            assert_eq!(pair.a.seen.rma[1], Ok(()), "{}: after one was taken back", way.0);
            assert!(target.as_slice().iter().all(|&byte| byte == 0xA5), "{}: a part", way.0);
            pair.b.btl.retire(&key);
            for node in [&pair.a, &pair.b] {
                assert!(node.seen.faults.is_empty(), "{}: {:?}", way.0, node.seen.faults);
                assert_eq!(node.seen.closed, 0, "{}: the connection lives on", way.0);
            }
        }
        assert!(cut > 0, "{}: no read was cut off", way.0);
    });
}

/// Numbers are changed where the provider does that in its progress, and a number whose memory was taken back is not: the operation alone fails.
#[test]
fn numbers_are_changed_over_ofi_rxm_until_their_memory_is_taken_back() {
    let test = "numbers_are_changed_over_ofi_rxm_until_their_memory_is_taken_back";
    each(test, |way| {
        let Some(mut pair) = Pair::open(test, way) else { return };
        let has = way.2.ends_with(";ofi_rxm");
        assert_eq!(pair.a.btl.caps().atomics, has, "{}", way.0);
        let number = OwnedBuffer::from(7_u64.to_ne_bytes().to_vec());
        let before = OwnedBuffer::zeroed(8);
        // SAFETY: looked at when nothing is under way only.
        let (target, result) = unsafe { (number.recv_region(), || before.recv_region()) };
        let key = match (pair.b.btl.register_target(&target), has) {
            (Ok(key), true) => key,
            (Err(Refused::Unsupported), false) => return,
            (other, _) => panic!("{}: {other:?}", way.0),
        };
        let swaps = Atomic::CompareSwap { compare: 12, swap: 1 };
        let changes = [(Atomic::FetchAdd(5), 7, 12), (swaps, 12, 1), (swaps, 1, 1)];
        for (round, (what, was, is)) in changes.into_iter().enumerate() {
            pair.change(key, what, result());
            pair.until_over(round + 1);
            assert_eq!(pair.a.seen.rma[round], Ok(()), "{}: {what:?}", way.0);
            assert_eq!(before.as_slice(), u64::to_ne_bytes(was), "{}: {what:?}", way.0);
            assert_eq!(number.as_slice(), u64::to_ne_bytes(is), "{}: {what:?}", way.0);
        }
        pair.b.btl.deregister(&key);
        pair.change(key, Atomic::FetchAdd(1), result());
        pair.until_over(4);
        let void = Fault::operation(Peer(1), Cause::Malformed("the memory's key is void"));
        assert_eq!(pair.a.seen.rma[3], Err(void), "{}", way.0);
        assert_eq!(number.as_slice(), 1_u64.to_ne_bytes(), "{}: taken back", way.0);
        pair.turns_for(Duration::from_millis(100));
        assert_eq!((pair.a.seen.closed, pair.a.seen.faults.len()), (0, 0), "{}", way.0);
    });
}

impl Pair {
    fn change(&mut self, remote: RemoteKey, what: Atomic, result: RecvRegion) {
        let (kind, remote_offset, token) = (RmaKind::Atomic(what, result), 0, Token(1));
        let descriptor = RmaDescriptor { peer: Peer(1), kind, remote, remote_offset, token };
        assert!(self.a.btl.rma(descriptor).is_ok(), "there is room");
    }

    fn until_over(&mut self, operations: usize) {
        until("an atomic operation", || {
            self.turn();
            self.a.seen.rma.len() == operations
        });
    }
}
