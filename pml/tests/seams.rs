//! The seams: non-contiguous data, messages to oneself, inter-communicators, routes, engines that move between threads.
#![allow(unsafe_code)] // regions of live buffers

mod util;

use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_btl::{Address, Btl, Loopback, Peer};
use ironweave_pml::ob1::{
    Buffer, CommSpec, Config, Mode, Ob1, Pack, Payload, PmlError, Source, Started, TagMatch, Unpack,
};
use std::sync::Arc;
use util::{Fabric, MemBtl, Memory, Profile, World, pattern};

/// Every second byte of a column of twice the length.
struct Strided(SendRegion);

impl Pack for Strided {
    fn packed_len(&self) -> usize {
        self.0.len() / 2
    }
    fn pack(&self, offset: usize, out: &mut [u8]) {
        for (i, byte) in out.iter_mut().enumerate() {
            *byte = self.0.as_slice()[2 * (offset + i)];
        }
    }
}

struct Unstrided(RecvRegion);

impl Unpack for Unstrided {
    fn capacity(&self) -> usize {
        self.0.len() / 2
    }
    fn unpack(&mut self, offset: usize, packed: &[u8]) {
        for (i, &byte) in packed.iter().enumerate() {
            self.0.write(2 * (offset + i), &[byte]);
        }
    }
}

fn region(memory: &Memory) -> SendRegion {
    match memory.payload() {
        Payload::Contiguous(region) => region,
        other => panic!("{other:?}"),
    }
}

#[test]
fn scattered_data_takes_every_protocol() {
    let rails = [Profile::copied(), Profile::zcopy(), Profile::get(), Profile::put()];
    for rail in rails {
        for len in [0, 1, 100, 9_000, 16_000, 100_000] {
            for mode in [Mode::Standard, Mode::Synchronous, Mode::Buffered] {
                let expected = pattern(len, 4);
                let spread: Vec<u8> = expected.iter().flat_map(|&byte| [byte, 0xAA]).collect();
                let (flat, spread) = (Memory::of(expected.clone()), Memory::of(spread));
                let cuts = [0, len / 5, len / 5, len / 2, len];
                let parts = cuts.windows(2).map(|cut| region(&flat).part(cut[0]..cut[1]));
                let payloads = [
                    flat.payload(),
                    Payload::List(parts.collect()),
                    Payload::Convertor(Arc::new(Strided(region(&spread)))),
                ];
                for (from, payload) in payloads.into_iter().enumerate() {
                    for to in 0..3 {
                        let into = Memory::zeroed(2 * len);
                        let buffer = match to {
                            0 => into.region().part(0..len).into(),
                            1 => Buffer::List(vec![
                                into.region().part(0..len / 3),
                                into.region().part(len / 3..len),
                            ]),
                            _ => Buffer::Convertor(Box::new(Unstrided(into.region()))),
                        };
                        let mut world = World::new(2, std::slice::from_ref(&rail));
                        let (c0, c1) = (world.comms[0], world.comms[1]);
                        let engine = &mut world.engines[1];
                        let request = engine.recv(c1, buffer, Source::Any, TagMatch::Any);
                        let sent = world.engines[0].send(c0, mode, &payload, 1, 1).expect("right");
                        let completion = world.finish(1, request.expect("right"));
                        let case = format!("{mode:?} {len} bytes, payload {from} into buffer {to}");
                        assert_eq!(completion.result, Ok(()), "{case}");
                        assert_eq!(world.finish_send(0, sent), Ok(()), "{case}");
                        let came = into.bytes();
                        let came: Vec<u8> = match to {
                            2 => came.iter().copied().step_by(2).collect(),
                            _ => came[..len].to_vec(),
                        };
                        assert!(came == expected, "{case}: other bytes");
                    }
                }
            }
        }
    }
}

/// To who receives into scattered memory it is no use to send without asking: the message could not land.
#[test]
fn long_messages_into_scattered_memory_are_asked_for() {
    let mut world = World::new(2, &[Profile { posted_limit: 100_000, ..Profile::zcopy() }]);
    let data = Memory::of(pattern(60_000, 2));
    for (scattered, told) in [(true, 0), (false, 1), (true, 1)] {
        for _ in 0..6 {
            let into = Memory::zeroed(60_000);
            let buffer = match scattered {
                true => Buffer::List(vec![into.region().part(0..9), into.region().part(9..60_000)]),
                false => into.buffer(),
            };
            let comm = world.comms[1];
            let request = world.engines[1].recv(comm, buffer, Source::Any, TagMatch::Any);
            let sent = world.send(0, 1, Mode::Standard, &data, 1);
            assert_eq!(world.finish(1, request.expect("right")).result, Ok(()));
            assert_eq!(world.finish_send(0, sent), Ok(()));
            assert!(into.bytes() == pattern(60_000, 2));
            if scattered {
                // It is not told, or told again that it has to ask.
                let late = world.send(0, 1, Mode::Standard, &data, 1);
                world.settle();
                assert!(world.engines[1].usage().unexpected_bytes < 10_000, "it came unasked");
                let request = world.recv(1, &into, Source::Any, TagMatch::Any);
                assert_eq!(world.finish(1, request).result, Ok(()));
                assert_eq!(world.finish_send(0, late), Ok(()));
            }
        }
        assert_eq!(world.engines[1].stats().unasked, told);
    }
}

#[test]
fn a_process_sends_to_itself() {
    let mut engine = Ob1::new(Config::new(Peer(0)));
    engine.add_btl(Loopback::new(Peer(0)));
    let spec = CommSpec::intra(0, 0, 0, vec![Peer(0)]);
    let comm = engine.add_comm(spec).expect("the first");
    let data = Memory::of(pattern(8, 1));
    let early = engine.send(comm, Mode::Standard, &data.payload(), 0, 1);
    assert_eq!(early, Err(PmlError::Unresolved(Peer(0))));
    assert!(!engine.knows_peer(Peer(0)));
    let addresses = engine.addresses();
    engine.add_peer(Peer(0), &addresses).expect("a process reaches itself");
    let ready = engine.send(comm, Mode::Ready, &data.payload(), 0, 1);
    assert_eq!(ready, Err(PmlError::NotReady));
    for len in [0, 8, 5000, 64 << 10, 100_000, 3_000_000] {
        for mode in [Mode::Standard, Mode::Synchronous, Mode::Buffered] {
            let (data, into) = (Memory::of(pattern(len, 2)), Memory::zeroed(len));
            let sent = engine.send(comm, mode, &data.payload(), 0, 1).expect("right");
            let request = engine.recv(comm, into.buffer(), Source::Any, TagMatch::Tag(1));
            let request = request.expect("right");
            for _ in 0..50 {
                engine.progress();
            }
            assert_eq!(engine.test(request).expect("complete").result, Ok(()));
            if let Started::Pending(sent) = sent {
                assert_eq!(engine.test(sent).expect("complete").result, Ok(()));
            }
            assert!(into.bytes() == pattern(len, 2), "{len} bytes");
        }
    }
}

#[test]
fn ranks_of_an_inter_communicator_are_those_of_the_other_group() {
    let mut world = World::new(4, &[Profile::copied()]);
    let (left, right) = (vec![Peer(0), Peer(1)], vec![Peer(3), Peer(2)]);
    let comms: Vec<_> = (0..4)
        .map(|me| {
            let (ours, theirs) =
                if me < 2 { (left.clone(), right.clone()) } else { (right.clone(), left.clone()) };
            let rank = ours.iter().position(|p| p.0 == me).expect("it is a member") as u32;
            let spec = CommSpec { cid: 5, epoch: 0, rank, group: ours, remote: Some(theirs) };
            world.engines[me as usize].add_comm(spec).expect("a new id")
        })
        .collect();
    // Rank 1 of the left (process 1) sends to rank 0 of the right (process 3).
    let (data, into) = (Memory::of(pattern(50_000, 1)), Memory::zeroed(50_000));
    let sent = world.engines[1].send(comms[1], Mode::Standard, &data.payload(), 0, 2);
    let request =
        world.engines[3].recv(comms[3], into.buffer(), Source::Any, TagMatch::Any).expect("right");
    let completion = world.finish(3, request);
    assert_eq!((completion.result, completion.status.source), (Ok(()), 1));
    assert_eq!(world.finish_send(1, sent.expect("right")), Ok(()));
    let beyond = world.engines[1].send(comms[1], Mode::Standard, &data.payload(), 2, 2);
    assert_eq!(beyond, Err(PmlError::InvalidRank { rank: 2, size: 2 }));
    // Process 1 dies: for the right group that is rank 1 of the left.
    world.fabric.kill(Peer(1));
    world.engines[3].proc_failed(Peer(1));
    assert_eq!(world.engines[3].failed_ranks(comms[3]), [1]);
}

#[test]
fn the_best_rails_are_used_and_the_others_kept_in_reserve() {
    let fabric = Fabric::default();
    let near = Profile { exclusivity: 200, ..Profile::copied() };
    let engine = |me| {
        let mut engine = Ob1::new(Config::new(Peer(me)));
        engine.add_btl(MemBtl::new(&fabric, Peer(me), 0, Profile::copied()));
        engine.add_btl(MemBtl::new(&fabric, Peer(me), 1, near.clone()));
        engine
    };
    let (mut a, mut b) = (engine(0), engine(1));
    let elsewhere = Address { component: "mem".into(), rail: 9, bytes: Vec::new() };
    assert_eq!(a.add_peer(Peer(1), &[elsewhere]), Err(PmlError::NoRoute(Peer(1))));
    a.add_peer(Peer(1), &b.addresses()).expect("a route");
    b.add_peer(Peer(0), &a.addresses()).expect("a route");
    for _ in 0..3 {
        a.progress();
        b.progress();
    }
    let up = |engine: &Ob1<MemBtl>, peer| {
        let states = engine.rails().iter().map(|btl| btl.state(Peer(peer)));
        states.map(|state| state == ironweave_btl::EndpointState::Up).collect::<Vec<_>>()
    };
    assert_eq!((up(&a, 1), up(&b, 0)), (vec![false, true], vec![false, true]));
}

#[test]
fn what_one_rail_takes_in_a_frame_goes_over_all_where_there_are_more() {
    let long = Profile { eager_limit: 256 << 10, ..Profile::zcopy() };
    for rails in [vec![long.clone()], vec![long.clone(), long]] {
        let mut world = World::new(2, &rails);
        world.settle();
        let came = |world: &World| -> Vec<u64> {
            let bytes = |btl: &MemBtl| btl.counters().bytes_received.get();
            world.engines[1].rails().iter().map(bytes).collect()
        };
        for (len, shares) in [(64 << 10, 1), (200_000, rails.len())] {
            let before = came(&world);
            let (data, into) = (Memory::of(pattern(len, 3)), Memory::zeroed(len));
            let request = world.recv(1, &into, Source::Rank(0), TagMatch::Any);
            let started = world.send(0, 1, Mode::Standard, &data, 1);
            assert_eq!(world.finish(1, request).result, Ok(()));
            assert_eq!(world.finish_send(0, started), Ok(()));
            assert!(into.bytes() == pattern(len, 3));
            let moved = came(&world).iter().zip(before).map(|(now, then)| now - then).collect();
            let many = |bytes: &Vec<u64>| bytes.iter().filter(|bytes| **bytes > 10_000).count();
            assert_eq!(many(&moved), shares, "{len} bytes over {} rails: {moved:?}", rails.len());
        }
    }
}

#[test]
fn sends_before_the_connection_is_up_go_out_in_order() {
    let fabric = Fabric::default();
    let mut engines = [0, 1].map(|me| {
        let mut engine = Ob1::new(Config::new(Peer(me)));
        engine.add_btl(MemBtl::new(&fabric, Peer(me), 0, Profile::copied()));
        let spec = CommSpec::intra(0, 0, me, vec![Peer(0), Peer(1)]);
        let comm = engine.add_comm(spec).expect("the first");
        (engine, comm)
    });
    let addresses = engines[1].0.addresses();
    let (a, ca) = &mut engines[0];
    a.add_peer(Peer(1), &addresses).expect("a route");
    let lens = [8, 20_000, 8, 10_000];
    for (i, len) in (0..).zip(lens) {
        let started = a.send(*ca, Mode::Standard, &Memory::of(pattern(len, i)).payload(), 1, 1);
        assert!(matches!(started, Ok(Started::Pending(_))));
    }
    let [(mut a, _), (mut b, cb)] = engines;
    for (i, len) in (0..).zip(lens) {
        let into = Memory::zeroed(len);
        let request = b.recv(cb, into.buffer(), Source::Any, TagMatch::Any).expect("right");
        for _ in 0..20 {
            a.progress();
            b.progress();
        }
        assert_eq!(b.test(request).expect("complete").result, Ok(()));
        assert!(into.bytes() == pattern(len, i), "message {i}");
    }
    // The receiver never asked for the sender's addresses: it answers where it was called from.
    assert!(b.knows_peer(Peer(0)));
}

#[test]
fn an_engine_moves_between_threads_with_its_rails() {
    fn is_send<T: Send>() {}
    is_send::<Ob1<Loopback>>();
}
