//! The control channel: in order and once, with credits of its own, on every kind of rail.

mod util;

use ironweave_btl::{Loopback, Peer};
use ironweave_btl_sim::{RailModel, SimNet};
use ironweave_pml::ob1::{
    CONTROL_MAX, CommSpec, Config, Mode, Ob1, Payload, PmlError, Source, TagMatch,
};
use std::collections::VecDeque;
use util::{Memory, Profile, World, pattern};

/// Lengths around everything that could matter, shortest and longest among them.
const LENGTHS: [usize; 8] = [0, 1, 4, 31, 1000, 4092, 4096, CONTROL_MAX];

fn message(i: usize) -> Vec<u8> {
    pattern(LENGTHS[i % LENGTHS.len()], i as u64)
}

/// Takes everything that is here.
fn take(world: &mut World, at: usize, into: &mut Vec<(u32, Vec<u8>)>) {
    while let Some((Peer(from), bytes)) = world.engines[at].take_control() {
        into.push((from, bytes.into_vec()));
    }
}

#[test]
fn messages_arrive_in_order_and_once_on_every_rail() {
    for profile in [Profile::copied(), Profile::zcopy(), Profile::get(), Profile::put()] {
        let mut world = World::new(3, &[profile]);
        for i in 0..60 {
            for (from, to) in [(0, 1), (1, 0), (2, 1)] {
                let sent = world.engines[from].send_control(Peer(to), &message(i));
                sent.expect("the peer is known");
            }
        }
        let mut got = [const { Vec::new() }; 2];
        for _ in 0..2000 {
            world.poll();
            take(&mut world, 0, &mut got[0]);
            take(&mut world, 1, &mut got[1]);
        }
        for (at, from) in [(1, 0), (0, 1), (1, 2)] {
            let of = got[at].iter().filter(|(sender, _)| *sender == from);
            let bytes: Vec<&Vec<u8>> = of.map(|(_, bytes)| bytes).collect();
            assert_eq!(bytes.len(), 60, "from {from} at {at}");
            assert!(
                (0..60).zip(bytes).all(|(i, bytes)| *bytes == message(i)),
                "from {from} at {at}"
            );
        }
        assert!((0..3).all(|at| world.engines[at].unflushed() == 0));
        assert!((0..3).all(|at| world.engines[at].stats().malformed == 0));
    }
}

#[test]
fn a_process_that_does_not_take_keeps_a_bounded_amount_and_data_goes_on() {
    let mut world = World::new(2, &[Profile::copied()]);
    for i in 0..1000 {
        let bytes = pattern(CONTROL_MAX, i);
        world.engines[0].send_control(Peer(1), &bytes).expect("it is queued here");
    }
    world.settle();
    let into = Memory::zeroed(70_000);
    let request = world.recv(1, &into, Source::Rank(0), TagMatch::Tag(1));
    let sent = world.send(0, 1, Mode::Standard, &Memory::of(pattern(70_000, 1)), 1);
    assert_eq!(world.finish(1, request).result, Ok(()));
    assert_eq!(world.finish_send(0, sent), Ok(()));
    // Four of the longest are there; the rest waits at the sender until they are taken.
    let mut got = Vec::new();
    take(&mut world, 1, &mut got);
    assert_eq!(got.len(), 4);
    assert!(world.engines[0].unflushed() > 0);
    while got.len() < 1000 {
        world.settle();
        let before = got.len();
        take(&mut world, 1, &mut got);
        assert!(got.len() > before, "it goes on: {}", world.dump());
    }
    assert!((0..).zip(&got).all(|(i, (_, bytes))| *bytes == pattern(CONTROL_MAX, i)));
    assert_eq!(world.engines[0].unflushed(), 0);
}

#[test]
fn data_does_not_starve_it() {
    let mut world = World::new(2, &[Profile::copied()]);
    let (data, comm) = (Memory::of(pattern(8, 1)), world.comms[0]);
    // Nobody receives, and the ring is full: each place that comes free is asked for by data first.
    for round in 0..40 {
        for _ in 0..100 {
            let _ = world.engines[0].send(comm, Mode::Standard, &data.payload(), 1, 1);
        }
        if round == 3 {
            world.engines[0].send_control(Peer(1), b"at once").expect("known");
        }
        for _ in 0..50 {
            let _ = world.engines[0].send_inline(comm, &[1; 8], 1, 1);
        }
        world.engines[1].progress();
        let _ = world.engines[0].send(comm, Mode::Standard, &data.payload(), 1, 1);
        if let Some((from, bytes)) = world.engines[1].take_control() {
            assert_eq!((from, &*bytes), (Peer(0), &b"at once"[..]));
            assert!(round <= 8, "it waited until round {round}");
            return;
        }
    }
    panic!("data starved it: {}", world.dump());
}

/// What is looked for at once is the next message, and only a short one that is there whole; the window goes on.
#[test]
fn messages_are_taken_at_once_and_otherwise_in_order() {
    const ME: Peer = Peer(0);
    let mut engine = Ob1::new(Config::new(ME));
    engine.add_btl(Loopback::new(ME));
    let addresses = engine.addresses();
    engine.add_peer(ME, &addresses).expect("a new peer");
    let soon = |engine: &mut Ob1<Loopback>| {
        let mut got = None;
        let taken = engine.take_control_soon(ME, 0, |bytes| got = Some(bytes.to_vec()));
        assert_eq!(taken, got.is_some());
        got
    };
    let later = |engine: &mut Ob1<Loopback>| {
        (0..10).find_map(|_| {
            engine.progress();
            engine.take_control().map(|(_, bytes)| bytes.into_vec())
        })
    };
    assert_eq!(soon(&mut engine), None);
    let mut direct = 0;
    for i in 0..5_000_usize {
        let message = pattern([20, 56, 4, 0, 92, 93, 4000][i % 7], i as u64);
        engine.send_control(ME, &message).expect("known");
        let got = soon(&mut engine);
        direct += u32::from(got.is_some());
        assert_eq!(got.or_else(|| later(&mut engine)), Some(message), "message {i}");
    }
    assert!(direct > 2_000, "{direct} of 5,000");
    // Two in the queue, one of them taken off the rail: then nothing is taken past it.
    for message in [b"a", b"b"] {
        engine.send_control(ME, message).expect("known");
    }
    engine.progress();
    engine.send_control(ME, b"c").expect("known");
    assert_eq!(soon(&mut engine), None);
    let rest: Vec<_> = std::iter::from_fn(|| later(&mut engine)).collect();
    assert_eq!(rest, [b"a", b"b", b"c"]);
    assert_eq!(engine.stats().malformed, 0);
}

#[test]
fn arguments_and_judged_peers() {
    let mut world = World::new(3, &[Profile::copied()]);
    let long = vec![0; CONTROL_MAX + 1];
    let error = Err(PmlError::TooLong { max: CONTROL_MAX });
    assert_eq!(world.engines[0].send_control(Peer(1), &long), error);
    assert_eq!(world.engines[0].send_control(Peer(7), b"who"), Err(PmlError::Unresolved(Peer(7))));
    // What had come before the verdict may be taken; what comes after is dropped.
    world.engines[1].send_control(Peer(0), b"before").expect("known");
    world.settle();
    world.engines[0].proc_failed(Peer(1));
    world.engines[1].send_control(Peer(0), b"after").expect("known");
    world.engines[0].send_control(Peer(1), b"nobody").expect("dropped without a word");
    world.settle();
    let mut got = Vec::new();
    take(&mut world, 0, &mut got);
    assert_eq!(got, [(1, b"before".to_vec())]);
    // A revoked communicator has nothing to do with it.
    let comm = world.comms[0];
    world.engines[0].revoke_comm(comm);
    world.engines[0].send_control(Peer(2), b"revoked").expect("known");
    world.settle();
    assert!(
        matches!(world.engines[2].take_control(), Some((Peer(0), bytes)) if &*bytes == b"revoked")
    );
    assert!(!world.engines[2].has_control());
}

#[test]
fn to_oneself() {
    let me = Peer(0);
    let mut engine = Ob1::new(Config::new(me));
    engine.add_btl(Loopback::new(me));
    let addresses = engine.addresses();
    engine.add_peer(me, &addresses).expect("oneself is there");
    let mut sent = VecDeque::new();
    for i in 0..200 {
        engine.send_control(me, &message(i)).expect("known");
        sent.push_back(message(i));
        engine.progress();
        if i % 3 == 0
            && let Some((from, bytes)) = engine.take_control()
        {
            assert_eq!((from, bytes.into_vec()), (me, sent.pop_front().expect("it was sent")));
        }
    }
    while !sent.is_empty() {
        engine.progress();
        while let Some((_, bytes)) = engine.take_control() {
            assert_eq!(bytes.into_vec(), sent.pop_front().expect("it was sent"));
        }
    }
}

#[test]
fn pieces_out_of_order_and_twice() {
    // A rail that can be lost: of others nothing is kept, since they break no order.
    let mut world = World::new(2, &[Profile::lossy()]);
    for i in 0..3 {
        world.engines[0].send_control(Peer(1), &message(3 + i)).expect("known");
        world.engines[0].progress();
    }
    world.fabric.swap_first(0, Peer(0), Peer(1));
    world.fabric.duplicate_first(0, Peer(0), Peer(1));
    world.settle();
    let mut got = Vec::new();
    take(&mut world, 1, &mut got);
    assert_eq!(got.len(), 3);
    assert!((0..).zip(&got).all(|(i, (_, bytes))| *bytes == message(3 + i)));
    assert_eq!(world.engines[1].stats().malformed, 0);
}

#[test]
fn what_breaks_the_protocol_is_refused_and_told_once() {
    use ironweave_pml::ob1::wire::{Control, PieceOf};
    use zerocopy::IntoBytes;
    let fine = PieceOf { offset: 0, ack: 0, limit: 32 << 10, again: false };
    let wrong: [(PieceOf, Vec<u8>); 4] = [
        (PieceOf { ack: 1, ..fine }, vec![]),
        (PieceOf { offset: 1 << 30, ..fine }, vec![1]),
        (fine, vec![0xFF; 8]),
        (fine, vec![0; 64 << 10]),
    ];
    for (piece, payload) in wrong {
        let mut world = World::new(2, &[Profile::copied()]);
        for _ in 0..3 {
            world.fabric.inject(0, Peer(1), Peer(0), Control::new(piece).as_bytes(), &payload);
        }
        world.settle();
        assert_eq!(world.engines[0].suspects().count(), 1, "{piece:?}");
        assert_eq!(world.engines[0].stats().malformed, 1, "{piece:?}");
        assert_eq!(world.engines[0].take_control(), None);
    }
}

/// On the simulated net: also on a rail that reorders.
#[test]
fn in_virtual_time() {
    for model in [RailModel::tcp(), RailModel::shm(), RailModel::verbs(), RailModel::silent()] {
        for seed in 0..20 {
            let net = SimNet::new(seed);
            let mut engines = [0, 1].map(|me| {
                let mut engine = Ob1::new(Config::new(Peer(me)));
                engine.add_btl(net.open(Peer(me), &model));
                engine
            });
            let group = vec![Peer(0), Peer(1)];
            let comms = [0, 1].map(|rank| {
                let addresses = engines[1 - rank].addresses();
                engines[rank].add_peer(Peer(1 - rank as u32), &addresses).expect("a net");
                let spec = CommSpec::intra(0, 0, rank as u32, group.clone());
                engines[rank].add_comm(spec).expect("the first")
            });
            for i in 0..40 {
                for (me, comm) in comms.iter().enumerate() {
                    let peer = 1 - me as u32;
                    engines[me].send_control(Peer(peer), &message(i + me)).expect("known");
                    let data = Payload::owned(pattern(3000, 1));
                    let _ = engines[me].send(*comm, Mode::Buffered, &data, peer, 1);
                }
            }
            let mut next = [0, 0];
            while let Some(Peer(me)) = net.next_ready() {
                let me = me as usize;
                while engines[me].progress() > 0 {}
                while let Some((from, bytes)) = engines[me].take_control() {
                    assert_eq!(from, Peer(1 - me as u32));
                    let want = message(next[me] + 1 - me);
                    assert!(
                        *bytes == want,
                        "{} seed {seed}: message {}",
                        model.caps.name,
                        next[me]
                    );
                    next[me] += 1;
                }
                while engines[me].progress() > 0 {}
            }
            assert_eq!(next, [40, 40], "{} seed {seed}", model.caps.name);
            assert!(engines.iter().all(|engine| engine.stats().malformed == 0));
        }
    }
}
