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
            if !pair.a.btl.caps().get {
                return; // nothing is read over it
            }
            let source = OwnedBuffer::from(vec![0x5A; LONG]);
            let mut target = OwnedBuffer::zeroed(LONG);
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
