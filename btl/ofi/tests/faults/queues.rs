//! Buffers and queues: what is under way when an endpoint closes, what nobody reads, and what lands slowly.

use super::*;

/// Our own end is closed with sends and reads under way: nothing crashes, and the peer's end can be closed too.
#[test]
fn a_rail_is_dropped_with_everything_under_way() {
    let test = "a_rail_is_dropped_with_everything_under_way";
    each(test, |way| {
        let Some(mut pair) = Pair::open(test, way) else { return };
        let source = OwnedBuffer::from(vec![0x5A; LONG]);
        let mut target = OwnedBuffer::zeroed(LONG);
        // SAFETY: `source` is kept until after the rail that lends it is dropped.
        let key = pair.b.btl.register_source(Peer(0), &unsafe { source.send_region() }).ok();
        if let Some(remote) = key {
            // SAFETY: `target` is looked at after the rail that writes it is dropped only.
            let kind = RmaKind::Get(unsafe { target.recv_region() });
            let (peer, token) = (Peer(1), Token(1));
            let read = RmaDescriptor { peer, kind, remote, remote_offset: 0, token };
            pair.a.btl.rma(read).map_err(|(refused, _)| refused).expect("room for one read");
        }
        while pair.a.btl.send_bcopy(Peer(1), b"h", 10_000, |_, piece| piece.fill(1)).is_ok() {}
        for _ in 0..5 {
            pair.turn();
        }
        let Pair { a, mut b } = pair;
        drop(a);
        target.as_mut_slice().fill(0x11);
        let end = Instant::now() + Duration::from_millis(100);
        while Instant::now() < end {
            b.turn();
        }
        assert!(target.as_slice().iter().all(|&byte| byte == 0x11), "written after the drop");
        b.btl.invalidate(Peer(0), Residue::Discard, &mut b.seen);
        assert_eq!(b.btl.state(Peer(0)), EndpointState::Closed);
        assert_eq!(b.seen.closed, 1);
    });
}

/// A receiver that does not look for a while loses nothing: its completion queue holds all that the window lets in. Where the
/// sender's patience ends before, what came is the beginning of what was sent, and both ends are over.
#[test]
fn a_queue_that_nobody_reads_does_not_overrun() {
    let test = "a_queue_that_nobody_reads_does_not_overrun";
    each(test, |way| {
        for patience in [Duration::ZERO, Duration::from_millis(50)] {
            let change = |config: &mut OfiConfig| config.peer_timeout = patience;
            let Some(mut pair) = Pair::open_with(test, way, change) else { return };
            let mut sent = 0_u32;
            let end = Instant::now() + Duration::from_millis(300);
            while Instant::now() < end && pair.a.seen.closed == 0 {
                match pair.a.btl.send_short(Peer(1), b"h", &sent.to_le_bytes()) {
                    Ok(()) => sent += 1,
                    Err(refused) => assert_eq!(refused, Refused::NoRoom),
                }
                pair.a.turn(); // b is not asked
            }
            assert!(sent > 100, "{sent} frames");
            until("all frames, or both ends", || {
                pair.turn();
                let all = pair.b.seen.frames.len() == sent as usize;
                if pair.a.seen.closed == 0 { all } else { pair.b.seen.closed == 1 }
            });
            println!("  {} of {sent} frames, {:?}", pair.b.seen.frames.len(), pair.a.seen.faults);
            assert!(pair.b.seen.frames.len() <= sent as usize, "more than was sent");
            for (number, frame) in (0_u32..).zip(&pair.b.seen.frames) {
                assert_eq!(frame[..], number.to_le_bytes());
            }
            if pair.a.seen.closed == 0 {
                assert_eq!((&pair.a.seen.faults[..], &pair.b.seen.faults[..]), (&[][..], &[][..]));
            } else {
                assert!(!patience.is_zero(), "an end without a deadline");
                assert_eq!(pair.a.seen.faults, [Fault::peer(Peer(1), Cause::TimedOut)]);
                assert!(pair.b.seen.faults.len() == 1, "{:?}", pair.b.seen.faults);
            }
        }
    });
}

/// Frames of all lengths wait unread, both ways, until no more is taken, and are read then: again and again, to the last.
/// (The sockets provider waits for whole headers without taking what is there, which closed a loopback's window for good.)
#[test]
fn what_waits_in_sockets_is_read_to_its_end() {
    const PAIRS: u64 = 20;
    let test = "what_waits_in_sockets_is_read_to_its_end";
    let way = ("sockets_1_17", DEBIAN, "sockets");
    // More, in all, than a socket holds.
    let wide = |config: &mut OfiConfig| config.window = 8 << 20;
    let mut seed = 1_u64;
    for number in 0..PAIRS {
        let Some(mut pair) = Pair::open_with(test, way, wide) else { return };
        let mut sent = [0_usize; 2];
        for _ in 0..4 {
            for (node, sent) in [&mut pair.a, &mut pair.b].into_iter().zip(&mut sent) {
                let peer = Peer(1 - node.me.0);
                loop {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let len = (seed >> 33) as usize % (2 << (seed >> 60));
                    match node.btl.send_bcopy(peer, b"h", len, |_, piece| piece.fill(1)) {
                        Ok(()) => *sent += 1,
                        Err(refused) => break assert_eq!(refused, Refused::NoRoom),
                    }
                }
                for _ in 0..200 {
                    node.turn();
                }
            }
            until(&format!("what was sent in pair {number}"), || {
                pair.turn();
                (pair.b.seen.frames.len(), pair.a.seen.frames.len()) == (sent[0], sent[1])
            });
        }
        assert!(sent[0] > 400 && sent[1] > 400, "{sent:?} frames");
        assert_eq!((&pair.a.seen.faults[..], &pair.b.seen.faults[..]), (&[][..], &[][..]));
    }
}

/// A long message is on its way into a buffer, its sender pauses, and others fill the buffer up, and all other buffers: none of
/// it is written over, and nobody is left waiting for a buffer. (1.17's `net` says that it is done with a buffer for many
/// messages while one still lands in it; `MultiRecv`.)
#[test]
fn a_long_message_is_not_written_over() {
    let test = "a_long_message_is_not_written_over";
    each(test, |way| {
        // More, in all, than a socket holds; in pieces it takes one frame.
        let eager = if way.2 == "tcp" { 8 << 20 } else { 2 << 20 };
        let wide = |config: &mut OfiConfig| {
            (config.eager, config.window) = (eager, 64 << 20);
            config.peer_timeout = Duration::ZERO;
        };
        let Some(mut reader) = Node::open_with(test, way, 0, wide) else { return };
        let Some(mut slow) = Node::open_with(test, way, 1, wide) else { return };
        let Some(mut fast) = Node::open_with(test, way, 2, wide) else { return };
        let address = reader.btl.address();
        for node in [&mut slow, &mut fast] {
            node.btl.connect(Peer(0), &address).expect("the address is reachable");
        }
        until("all to be up", || {
            reader.turn();
            slow.turn();
            fast.turn();
            reader.seen.up == 2 && slow.seen.up + fast.seen.up == 2
        });
        let len = eager.min(slow.btl.caps().max_bcopy);
        let send = |node: &mut Node, who: u8, number: u32| {
            node.btl.send_bcopy(Peer(0), &number.to_le_bytes(), len, |offset, piece| {
                for (at, byte) in (offset..).zip(piece) {
                    *byte = pattern(who, number, at);
                }
            })
        };
        // As much as the provider takes; its socket holds less, and nobody asks it to go on.
        let mut of_slow = 0;
        while send(&mut slow, 1, of_slow).is_ok() {
            of_slow += 1;
        }
        for _ in 0..2000 {
            reader.turn();
        }
        let landed = reader.seen.frames.len();
        println!("  {landed} of {of_slow} frames have landed");
        let more = (40 << 20) / len;
        let mut of_fast = 0;
        until("the other's frames", || {
            if of_fast < more && send(&mut fast, 2, of_fast as u32).is_ok() {
                of_fast += 1;
            }
            fast.turn();
            reader.turn();
            // Some of the slow one's may still land out of the socket.
            reader.seen.from.iter().filter(|&&from| from == Peer(2)).count() == more
        });
        until("the slow one's frames", || {
            slow.turn();
            reader.turn();
            reader.seen.frames.len() == of_slow as usize + more
        });
        assert!(reader.seen.faults.is_empty(), "{:?}", reader.seen.faults);
        let mut next = [0; 3];
        for (from, frame) in reader.seen.from.iter().zip(&reader.seen.frames) {
            let number = &mut next[from.index()];
            let right = (0..len).map(|at| pattern(from.0 as u8, *number, at));
            assert!(frame.iter().copied().eq(right), "{}: frame {number} of {from}", way.0);
            *number += 1;
        }
    });
}

/// A frame that comes in pieces is cut off in the middle: the memory it was going to comes back once, with an error, before the
/// end; what came whole is right; and a new life begins with a new frame.
#[test]
fn a_frame_that_stays_unfinished_is_given_back() {
    const LEN: usize = 8 << 20; // more than a socket takes at once
    let test = "a_frame_that_stays_unfinished_is_given_back";
    each(test, |way| {
        if way.2 != "tcp" {
            return; // frames come whole
        }
        let wide = |config: &mut OfiConfig| {
            (config.eager, config.window) = (LEN, 64 << 20);
            config.peer_timeout = Duration::ZERO;
        };
        let Some(mut reader) = Node::open_with(test, way, 0, wide) else { return };
        let Some(mut writer) = Node::open_with(test, way, 1, wide) else { return };
        let address = reader.btl.address();
        let len = writer.btl.caps().max_bcopy;
        assert_eq!(len, LEN);
        let send = |node: &mut Node, number: u32| {
            node.btl.send_bcopy(Peer(0), &number.to_le_bytes(), len, |offset, piece| {
                for (at, byte) in (offset..).zip(piece) {
                    *byte = pattern(1, number, at);
                }
            })
        };
        let right = |target: &OwnedBuffer, number: u64| {
            let all = (0..len).map(|at| pattern(1, number as u32, at));
            target.as_slice().iter().copied().eq(all)
        };
        let mut unfinished = 0;
        // Where in a frame the end falls depends on how fast everybody is: after the first three, other moments until it fell in one.
        let moments = [0, 1000, 2000, 500, 4000, 250, 8000, 100, 16_000, 50, 32_000];
        for (round, turns) in moments.into_iter().enumerate() {
            if round >= 3 && unfinished > 0 {
                break;
            }
            writer.btl.connect(Peer(0), &address).expect("the address is reachable");
            until("both to be up", || {
                reader.turn();
                writer.turn();
                let up = |node: &Node, peer| node.btl.state(peer) == EndpointState::Up;
                up(&reader, Peer(1)) && up(&writer, Peer(0))
            });
            reader.seen = Record { lands: true, ..Record::default() };
            writer.seen = Record::default();
            let mut sent = 0;
            while send(&mut writer, sent).is_ok() {
                sent += 1; // nobody asks the writer to go on
            }
            for _ in 0..turns {
                reader.turn();
            }
            reader.btl.invalidate(Peer(1), Residue::Deliver, &mut reader.seen);
            until("the ends", || {
                reader.turn();
                writer.turn();
                reader.seen.closed == 1 && writer.seen.closed == 1
            });
            let Record { targets, landed, .. } = &mut reader.seen;
            assert_eq!(landed.len(), targets.len(), "{}: each once", way.0);
            for (number, (token, outcome)) in (0..).zip(landed) {
                assert_eq!(*token, number, "{}: out of order", way.0);
                let target = &mut targets[number as usize];
                match outcome {
                    Ok(()) => assert!(right(target, number), "{}: frame {number}", way.0),
                    Err(fault) => {
                        assert_eq!(fault.cause, Cause::Invalidated);
                        unfinished += 1;
                    }
                }
                target.as_mut_slice().fill(0x11);
            }
            let end = Instant::now() + Duration::from_millis(20);
            while Instant::now() < end {
                reader.turn();
                writer.turn();
            }
            let untouched =
                |target: &OwnedBuffer| target.as_slice().iter().all(|&byte| byte == 0x11);
            assert!(reader.seen.targets.iter().all(untouched), "{}: written later", way.0);
        }
        assert!(unfinished > 0, "{}: none was cut off", way.0);
    });
}

fn pattern(who: u8, number: u32, at: usize) -> u8 {
    (at as u32).wrapping_mul(31).wrapping_add(number * 7) as u8 ^ (who << 7)
}
