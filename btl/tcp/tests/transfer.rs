//! Frames of every tier and length arrive whole, once and in order; buffers are left alone afterwards (laws 1, 2, 6).

mod common;

use common::{Node, descriptor, landing, link, pair, pattern, until};
use ironweave_btl::memory::OwnedBuffer;
use ironweave_btl::{Btl, EndpointState, Peer, Refused, Token};

/// Every power of two up to 8 MiB, and one less and one more.
fn lengths() -> Vec<usize> {
    let mut all = vec![0];
    for power in 0..=23 {
        let len = 1_usize << power;
        all.extend([len - 1, len, len + 1]);
    }
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn short_and_copied_frames_of_every_length() {
    let (mut a, mut b) = pair();
    let (max_short, max_bcopy) = (a.btl.caps().max_short, a.btl.caps().max_bcopy);
    for len in lengths() {
        let payload = pattern(len as u64, len);
        let header = pattern(7, len % 65);
        let mut expected = 0;
        if header.len() + len <= max_short {
            a.btl.send_short(b.me, &header, &payload).expect("room");
            expected += 1;
        } else {
            let refused = a.btl.send_short(b.me, &header, &payload);
            assert_eq!(refused, Err(Refused::TooLong { max: max_short }));
        }
        let mut calls = 0;
        let sent = a.btl.send_bcopy(b.me, &header, len, |offset, piece| {
            calls += 1;
            piece.copy_from_slice(&payload[offset..offset + piece.len()]);
        });
        if len <= max_bcopy {
            sent.expect("room");
            assert_eq!(calls, 1);
            expected += 1;
        } else {
            assert_eq!((sent, calls), (Err(Refused::TooLong { max: max_bcopy }), 0));
        }
        until("frames", &mut [&mut a, &mut b], |nodes| nodes[1].seen.frames.len() == expected);
        for frame in b.seen.frames.drain(..) {
            assert!(frame == (Peer(0), header.clone(), payload.clone()), "length {len}");
        }
    }
    assert_eq!(a.btl.unflushed(), 0);
}

#[test]
fn borrowed_frames_of_every_length_buffered_and_landed() {
    let (mut a, mut b) = pair();
    for direct in [false, true] {
        for len in lengths() {
            let source = OwnedBuffer::from(pattern(len as u64, len));
            let target = OwnedBuffer::zeroed(len + 16);
            if direct {
                b.seen.offers.push_back((landing(&target), Token(len as u64)));
            }
            let frame = descriptor(b.me, b"header", &source, 5);
            a.btl.send_zcopy(frame).expect("room");
            until("the frame", &mut [&mut a, &mut b], |nodes| {
                nodes[1].seen.frames.len() + nodes[1].seen.landed.len() == 1
                    && nodes[0].seen.completed.len() == 1
            });
            assert_eq!(a.seen.completed.pop(), Some((Token(5), Ok(()))));
            if let Some((_, token, outcome)) = b.seen.landed.pop() {
                assert_eq!((token, outcome), (Token(len as u64), Ok(())));
                assert!(target.as_slice()[..len] == *source.as_slice(), "length {len}");
                assert_eq!(target.as_slice()[len..], [0; 16], "nothing beyond the payload");
            } else {
                let frame = b.seen.frames.pop().expect("delivered or landed");
                assert!(frame == (Peer(0), b"header".to_vec(), source.as_slice().to_vec()));
            }
            b.seen.offers.clear();
        }
    }
}

#[test]
fn landed_payloads_are_left_alone_by_what_follows() {
    let (mut a, mut b) = pair();
    let len = 1 << 20;
    let source = OwnedBuffer::from(pattern(1, len));
    let target = OwnedBuffer::zeroed(len);
    b.seen.offers.push_back((landing(&target), Token(1)));
    a.btl.send_zcopy(descriptor(b.me, b"1", &source, 1)).expect("room");
    until("landing", &mut [&mut a, &mut b], |nodes| nodes[1].seen.landed.len() == 1);
    let canary = OwnedBuffer::from(pattern(2, len));
    target.as_slice().iter().zip(source.as_slice()).for_each(|(a, b)| assert_eq!(a, b));
    b.seen.landed.clear();
    for token in 0..8 {
        a.btl.send_zcopy(descriptor(b.me, b"2", &canary, token)).expect("room");
    }
    until("the rest", &mut [&mut a, &mut b], |nodes| {
        nodes[1].seen.frames.len() == 8 && nodes[0].seen.completed.len() == 9
    });
    assert!(target.as_slice() == source.as_slice(), "the canary pattern is whole");
}

#[test]
fn all_tiers_keep_one_order_in_both_directions() {
    let (mut a, mut b) = pair();
    let long = OwnedBuffer::from(pattern(3, 300_000));
    let mut sent = [0_u32; 2];
    let total = 3000;
    until("all frames", &mut [&mut a, &mut b], |nodes| {
        for (me, other) in [(0, Peer(1)), (1, Peer(0))] {
            for _ in 0..20 {
                let number = sent[me];
                if number == total {
                    break;
                }
                let header = number.to_le_bytes();
                let taken = match number % 7 {
                    0 => nodes[me]
                        .btl
                        .send_zcopy(descriptor(other, &header, &long, u64::from(number)))
                        .map_err(|(refused, _)| refused),
                    1 => nodes[me].btl.send_bcopy(other, &header, 9_000, |_, piece| piece.fill(1)),
                    _ => nodes[me].btl.send_short(other, &header, b"short"),
                };
                match taken {
                    Ok(()) => sent[me] += 1,
                    Err(Refused::NoRoom) => break,
                    Err(other) => panic!("{other}"),
                }
            }
        }
        nodes.iter().all(|node| node.seen.frames.len() == total as usize)
    });
    for node in [&a, &b] {
        for (number, (_, header, payload)) in (0_u32..).zip(&node.seen.frames) {
            assert_eq!(*header, number.to_le_bytes());
            assert_eq!(payload.len(), [300_000, 9_000, 5, 5, 5, 5, 5][number as usize % 7]);
        }
    }
    until("completions", &mut [&mut a, &mut b], |nodes| {
        nodes.iter().all(|node| node.seen.completed.len() == total.div_ceil(7) as usize)
    });
    assert_eq!((a.btl.unflushed(), b.btl.unflushed()), (0, 0));
}

#[test]
fn without_a_reader_there_is_no_room_and_with_one_there_is_again() {
    let (mut a, mut b) = pair();
    let mut taken = 0;
    loop {
        match a.btl.send_bcopy(b.me, &[], 60_000, |_, piece| piece.fill(taken as u8)) {
            Ok(()) => taken += 1,
            Err(Refused::NoRoom) => break,
            Err(other) => panic!("{other}"),
        }
        a.progress();
        assert!(taken < 10_000, "the queue has no bound");
    }
    assert!(a.btl.unflushed() > 0 && a.btl.counters().refused.get() == 1);
    until("all", &mut [&mut a, &mut b], |nodes| nodes[1].seen.frames.len() == taken);
    for (number, (_, _, payload)) in b.seen.frames.iter().enumerate() {
        assert_eq!(payload[59_999], number as u8);
    }
    assert_eq!(a.btl.unflushed(), 0);
    a.btl.send_short(b.me, b"", b"again").expect("room");
}

#[test]
fn good_bye_comes_after_everything_and_closes_quietly() {
    let (mut a, mut b) = pair();
    let long = OwnedBuffer::from(pattern(3, 3_000_000));
    for number in 0..10 {
        a.btl.send_zcopy(descriptor(b.me, b"", &long, number)).expect("room");
    }
    a.btl.depart();
    assert_eq!(a.btl.send_short(b.me, b"", b""), Err(Refused::Closed));
    until("closed", &mut [&mut a, &mut b], |nodes| nodes[1].seen.closed == [Peer(0)]);
    assert_eq!(b.seen.frames.len(), 10);
    assert_eq!(b.seen.faults, []);
    until("closed here", &mut [&mut a, &mut b], |nodes| !nodes[0].seen.closed.is_empty());
    assert_eq!(a.seen.completed.len(), 10);
    assert_eq!((a.state(&b), b.state(&a)), (EndpointState::Closed, EndpointState::Closed));
    assert!(b.btl.connect(a.me, &a.btl.address()).is_ok(), "it shows later that nobody is there");
    until("refusal", &mut [&mut a, &mut b], |nodes| nodes[1].seen.faults.len() == 1);
}

#[test]
fn ipv6() {
    let config = |me| ironweave_btl_tcp::TcpConfig {
        include: vec!["::1/128".parse().expect("a network")],
        ..common::config(me)
    };
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        println!("SKIP ipv6: no ::1 on this machine");
        return;
    }
    let (mut a, mut b) = (Node::with(config(0)), Node::with(config(1)));
    link(&mut a, &mut b);
    a.btl.send_short(b.me, b"h", b"six").expect("room");
    until("the frame", &mut [&mut a, &mut b], |nodes| nodes[1].seen.frames.len() == 1);
}

/// A closed socket answers late bytes with a reset, which must not destroy what the leaver said.
#[test]
fn a_good_bye_survives_what_is_sent_to_the_leaver() {
    for round in 0..30 {
        let (mut a, mut b) = pair();
        let (leaver, count) = (a.me, 40);
        let long = OwnedBuffer::from(pattern(round, 100_000));
        for number in 0..count {
            a.btl.send_zcopy(descriptor(b.me, b"", &long, number)).expect("room");
        }
        let talk = std::thread::spawn(move || {
            // Talks to the leaver all the time, and reads late.
            let _ = b.btl.send_short(leaver, b"", b"unread");
            until("closed", &mut [&mut b], |nodes| {
                let _ = nodes[0].btl.send_bcopy(leaver, b"", 5000, |_, piece| piece.fill(1));
                !nodes[0].seen.closed.is_empty()
            });
            b
        });
        until("flushed", &mut [&mut a], |nodes| nodes[0].btl.unflushed() == 0);
        a.btl.depart();
        drop(a);
        let b = talk.join().expect("the other side");
        assert_eq!((b.seen.frames.len() as u64, &b.seen.faults[..]), (count, &[][..]));
    }
}
