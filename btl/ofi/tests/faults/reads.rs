//! Reads that are cut off.

use super::*;

/// Invalidated in the middle of a long read: the buffer, given back, is not written any more.
#[test]
fn a_read_that_is_cut_off_leaves_the_buffer_alone() {
    let test = "a_read_that_is_cut_off_leaves_the_buffer_alone";
    each(test, |way| {
        let mut cut = 0;
        for moment in 0..12_u32 {
            // They outlive the pair: an answer under way may be read out of the source until the endpoint is closed.
            let source = OwnedBuffer::from(vec![0x5A; LONG]);
            let mut target = OwnedBuffer::zeroed(LONG);
            let Some(mut pair) = Pair::open(test, way) else { return };
            if !pair.a.btl.caps().get {
                return; // nothing is read over it
            }
            // SAFETY: `source` is kept until it is deregistered.
            let key = pair.b.btl.register_source(&unsafe { source.send_region() }).expect("memory");
            // SAFETY: `target` is looked at after the read came back only.
            let kind = RmaKind::Get(unsafe { target.recv_region() });
            let (peer, token) = (Peer(1), Token(1));
            let read = RmaDescriptor { peer, kind, remote: key, remote_offset: 0, token };
            pair.a.btl.rma(read).map_err(|(refused, _)| refused).expect("room for one read");
            // A few turns more each time: before the request is out, in the middle, or after the end.
            for _ in 0..moment * 3 {
                pair.turn();
            }
            let mut state = String::new();
            pair.a.btl.dump(&mut state).expect("a string takes everything");
            let lanes = if way.2 == "tcp" { "1 lanes" } else { "0 lanes" };
            assert!(state.contains(lanes), "{}: {state}", way.0);
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
            let source = OwnedBuffer::from(vec![0x5A; LONG]);
            let mut targets = [OwnedBuffer::zeroed(LONG), OwnedBuffer::zeroed(LONG)];
            let Some(mut pair) = Pair::open(test, way) else { return };
            if !pair.a.btl.caps().get {
                return; // nothing is read over it
            }
            // SAFETY: `source` is kept until both keys are deregistered.
            let region = unsafe { source.send_region() };
            let keys = [&mut pair.a, &mut pair.b]
                .map(|node| node.btl.register_source(&region).expect("memory"));
            // The first reads make the lanes known to each other.
            for round in 0..2 {
                pair.a.read(Peer(1), keys[1], &targets[0]);
                pair.b.read(Peer(0), keys[0], &targets[1]);
                until("whole reads", || {
                    pair.turn();
                    pair.a.seen.rma.len() > round && pair.b.seen.rma.len() > round
                });
            }
            let joined = if way.2 == "tcp" { "1 lanes, 1 joined" } else { "0 lanes, 0 joined" };
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
