//! Every protocol moves every length, in every mode, posted before and after.

mod util;

use ironweave_btl::Peer;
use ironweave_pml::ob1::wire::{Announce, Envelope, Nack, WireStatus};
use ironweave_pml::ob1::{Completion, Mode, PmlError, ReqId, Source, Started, TagMatch};
use util::{Memory, Profile, World, pattern};
use zerocopy::IntoBytes;

const LENGTHS: [usize; 16] = [
    0,
    1,
    7,
    8,
    63,
    64,
    65,
    240,
    241,
    4096,
    4097,
    8192,
    16 << 10,
    (16 << 10) + 1,
    100_000,
    3_000_000,
];

fn rails() -> Vec<(&'static str, Vec<Profile>)> {
    let refusing = Profile { refuse_rma: true, ..Profile::get() };
    let refusing_put = Profile { refuse_rma: true, ..Profile::put() };
    vec![
        ("copied", vec![Profile::copied()]),
        ("zcopy", vec![Profile::zcopy()]),
        ("get", vec![Profile::get()]),
        ("put", vec![Profile::put()]),
        ("get refused", vec![refusing]),
        ("get at the sender alone", vec![Profile { unlike: true, ..Profile::get() }]),
        ("put refused", vec![refusing_put]),
        ("two rails", vec![Profile::copied(), Profile::zcopy()]),
        ("four rails", vec![Profile::zcopy(); 4]),
    ]
}

#[test]
fn every_length_in_every_mode_over_every_protocol() {
    for (name, rails) in rails() {
        for mode in [Mode::Standard, Mode::Synchronous, Mode::Buffered, Mode::Ready] {
            let mut world = World::new(2, &rails);
            for (seed, len) in (1..).zip(LENGTHS) {
                for posted_first in [true, false] {
                    if mode == Mode::Ready && !posted_first {
                        continue;
                    }
                    let (data, into) = (Memory::of(pattern(len, seed)), Memory::zeroed(len));
                    let post =
                        |world: &mut World| world.recv(1, &into, Source::Rank(0), TagMatch::Tag(5));
                    let (request, sent) = if posted_first {
                        let request = post(&mut world);
                        (request, world.send(0, 1, mode, &data, 5))
                    } else {
                        let sent = world.send(0, 1, mode, &data, 5);
                        world.settle();
                        if let (Mode::Synchronous, Started::Pending(sent)) = (mode, sent) {
                            assert!(
                                !world.engines[0].is_complete(sent),
                                "matched before a receive"
                            );
                        }
                        (post(&mut world), sent)
                    };
                    let completion = world.finish(1, request);
                    let case = format!("{name} {mode:?} {len} bytes, posted first {posted_first}");
                    assert_eq!(completion.result, Ok(()), "{case}");
                    assert_eq!(completion.status.bytes, len, "{case}");
                    assert_eq!((completion.status.source, completion.status.tag), (0, 5));
                    assert!(into.bytes() == pattern(len, seed), "{case}: other bytes");
                    assert_eq!(world.finish_send(0, sent), Ok(()), "{case}");
                }
            }
            assert_eq!(world.fabric.registered(), 0, "{name}: memory is still open");
            assert_eq!(world.engines.iter().map(|e| e.stats().malformed).sum::<u64>(), 0);
            for engine in &world.engines {
                assert_eq!(engine.unflushed(), 0);
            }
        }
    }
}

#[test]
fn a_truncated_message_fills_the_buffer_and_no_more() {
    for (name, rails) in rails() {
        for mode in [Mode::Standard, Mode::Synchronous] {
            for (len, room) in [(8, 3), (5000, 4097), (5000, 10), (100_000, 99_999), (100_000, 0)] {
                for posted_first in [true, false] {
                    let mut world = World::new(2, &rails);
                    let data = Memory::of(pattern(len, 3));
                    let into = Memory::of(vec![0xEE; room + 64]);
                    let region = || into.region().part(0..room).into();
                    let comm = world.comms[1];
                    let early = posted_first
                        .then(|| world.engines[1].recv(comm, region(), Source::Any, TagMatch::Any));
                    let sent = world.send(0, 1, mode, &data, 5);
                    world.settle();
                    let request = early.unwrap_or_else(|| {
                        world.engines[1].recv(comm, region(), Source::Any, TagMatch::Any)
                    });
                    let completion = world.finish(1, request.expect("arguments are right"));
                    let (sent_len, capacity) = (len as u64, room as u64);
                    let error = PmlError::Truncated { sent: sent_len, capacity };
                    assert_eq!(completion.result, Err(error), "{name} {len} into {room}");
                    assert_eq!(completion.status.bytes, room);
                    assert!(into.bytes()[..room] == pattern(len, 3)[..room], "{name}: other bytes");
                    assert!(into.bytes()[room..].iter().all(|&b| b == 0xEE), "{name}: overrun");
                    assert_eq!(world.finish_send(0, sent), Ok(()));
                    assert_eq!(world.fabric.registered(), 0);
                }
            }
        }
    }
}

#[test]
fn many_messages_of_all_lengths_arrive_in_order() {
    for (name, rails) in rails() {
        let mut world = World::new(2, &rails);
        let lens: Vec<usize> = (0..200).map(|i| LENGTHS[(i * 7 + i / 16) % 15]).collect();
        let sent: Vec<_> = (0..)
            .zip(&lens)
            .map(|(i, &len)| {
                let data = Memory::of(pattern(len, i));
                world.send(
                    0,
                    1,
                    if i % 3 == 0 { Mode::Synchronous } else { Mode::Standard },
                    &data,
                    1,
                )
            })
            .collect();
        let mut received = Vec::new();
        for &len in &lens {
            let into = Memory::zeroed(len);
            let request = world.recv(1, &into, Source::Rank(0), TagMatch::Any);
            received.push((request, into));
            world.poll();
        }
        for (i, ((request, into), &len)) in (0..).zip(received.into_iter().zip(&lens)) {
            let completion = world.finish(1, request);
            assert_eq!(completion.result, Ok(()), "{name} message {i}");
            assert!(into.bytes() == pattern(len, i), "{name}: message {i} is another");
        }
        for sent in sent {
            assert_eq!(world.finish_send(0, sent), Ok(()));
        }
    }
}

#[test]
fn probes_find_and_claim_messages() {
    let mut world = World::new(2, &[Profile::copied()]);
    let (comm, long) = (world.comms[1], 50_000);
    let nothing = world.engines[1].probe(comm, Source::Any, TagMatch::Any);
    assert_eq!(nothing, Ok(None));
    let _ = world.send(0, 1, Mode::Standard, &Memory::of(pattern(9, 1)), 4);
    let sent = world.send(0, 1, Mode::Standard, &Memory::of(pattern(long, 2)), 4);
    let _ = world.send(0, 1, Mode::Standard, &Memory::of(pattern(7, 3)), 4);
    world.settle();
    let engine = &mut world.engines[1];
    let seen = engine.probe(comm, Source::Rank(0), TagMatch::Tag(4)).expect("no failure");
    assert_eq!(seen.expect("a message is here").bytes, 9);
    let (first, status) = engine
        .mprobe(comm, Source::Any, TagMatch::Tag(4))
        .expect("no failure")
        .expect("it is here");
    assert_eq!(status.bytes, 9);
    let (second, status) =
        engine.mprobe(comm, Source::Any, TagMatch::Any).expect("no failure").expect("it is here");
    assert_eq!(status.bytes, long);
    // A receive gets the third, for the others are taken.
    let into = Memory::zeroed(7);
    let third = engine.recv(comm, into.buffer(), Source::Any, TagMatch::Any).expect("right");
    assert!(engine.is_complete(third));
    let (a, b) = (Memory::zeroed(9), Memory::zeroed(long));
    let second = engine.mrecv(second, b.buffer()).expect("a claimed message");
    let again = first;
    let first = engine.mrecv(first, a.buffer()).expect("a claimed message");
    assert_eq!(engine.mrecv(again, a.buffer()), Err(PmlError::InvalidRequest));
    assert_eq!(world.finish(1, first).result, Ok(()));
    assert_eq!(world.finish(1, second).result, Ok(()));
    assert_eq!(world.finish_send(0, sent), Ok(()));
    assert!(a.bytes() == pattern(9, 1) && b.bytes() == pattern(long, 2));
}

#[test]
fn a_posted_receive_can_be_cancelled_and_a_matched_one_not() {
    let mut world = World::new(2, &[Profile::copied()]);
    let into = Memory::zeroed(50_000);
    let posted = world.recv(1, &into, Source::Any, TagMatch::Tag(9));
    world.engines[1].cancel(posted);
    let completion = world.finish(1, posted);
    assert!(completion.status.is_cancelled() && completion.result == Ok(()));

    let matched = world.recv(1, &into, Source::Any, TagMatch::Tag(9));
    let data = Memory::of(pattern(50_000, 1));
    let sent = world.send(0, 1, Mode::Standard, &data, 9);
    world.engines[1].progress();
    world.engines[1].cancel(matched);
    let completion = world.finish(1, matched);
    assert!(!completion.status.is_cancelled() && completion.result == Ok(()));
    assert_eq!(world.finish_send(0, sent), Ok(()));
}

/// The request of a send that is not over at once.
fn pending(started: Started) -> ReqId {
    match started {
        Started::Pending(request) => request,
        Started::Done => panic!("the send is over"),
    }
}

/// MPI §3.8.4: a cancelled send ends, whatever its receiver's program does; its message is received, or never was there.
#[test]
fn a_send_without_a_receive_can_be_cancelled_and_a_matched_one_not() {
    for (name, rails) in rails() {
        for len in [0, 100, 100_000, 3_000_000] {
            let mut world = World::new(2, &rails);
            let (data, into) = (Memory::of(pattern(len, 1)), Memory::zeroed(len));
            // Before anything of it is out, and when the receiver has kept it.
            for settle in [false, true] {
                let sent = pending(world.send(0, 1, Mode::Synchronous, &data, 5));
                if settle {
                    world.settle();
                    assert!(!world.engines[0].is_complete(sent), "{name}: {len} bytes");
                }
                world.engines[0].cancel(sent);
                world.engines[0].cancel(sent); // twice is once
                let Completion { status, result } = world.finish(0, sent);
                assert!(
                    status.is_cancelled() && result == Ok(()),
                    "{name}: {len} bytes: {result:?}"
                );
                let comm = world.comms[1];
                let probed = world.engines[1].probe(comm, Source::Any, TagMatch::Any);
                assert_eq!(probed, Ok(None), "{name}: a cancelled message of {len} bytes");
            }
            // With a receive, and when `mprobe` has taken it.
            let request = world.recv(1, &into, Source::Rank(0), TagMatch::Tag(5));
            let sent = pending(world.send(0, 1, Mode::Synchronous, &data, 5));
            world.engines[0].cancel(sent);
            assert_eq!(world.finish(1, request).status.bytes, len, "{name}");
            assert!(!world.finish(0, sent).status.is_cancelled());
            assert!(into.bytes() == pattern(len, 1));
            let sent = pending(world.send(0, 1, Mode::Synchronous, &data, 6));
            world.settle();
            let comm = world.comms[1];
            let claimed = world.engines[1].mprobe(comm, Source::Rank(0), TagMatch::Tag(6));
            let (message, _) = claimed.expect("right").expect("it is there");
            world.engines[0].cancel(sent);
            world.settle();
            assert!(!world.engines[0].is_complete(sent));
            let request = world.engines[1].mrecv(message, into.buffer()).expect("claimed");
            assert_eq!(world.finish(1, request).status.bytes, len);
            assert!(!world.finish(0, sent).status.is_cancelled());
            assert_eq!(world.engines[1].stats().malformed + world.engines[0].stats().malformed, 0);
            assert_eq!(world.fabric.registered(), 0, "{name}");
        }
    }
}

/// The word that a message is cancelled comes before the message, over another rail or a faster way.
#[test]
fn a_message_that_was_cancelled_before_it_came_is_dropped_when_it_comes() {
    for posted in [false, true] {
        let mut world = World::new(2, &[Profile::copied()]);
        let (data, into) = (Memory::of(pattern(100, 1)), Memory::zeroed(100));
        let warm = world.recv(1, &into, Source::Any, TagMatch::Any);
        let sent = world.send(0, 1, Mode::Standard, &data, 4);
        world.finish(1, warm);
        world.finish_send(0, sent).expect("both live");
        let request = posted.then(|| world.recv(1, &into, Source::Any, TagMatch::Tag(5)));
        let sent = pending(world.send(0, 1, Mode::Synchronous, &data, 5));
        world.engines[0].cancel(sent);
        world.engines[0].progress();
        assert_eq!(world.fabric.waiting(Peer(0), Peer(1)), 2, "the message and its cancellation");
        world.fabric.swap_first(0, Peer(0), Peer(1));
        let completion = world.finish(0, sent);
        assert_eq!(completion.result, Ok(()));
        assert_eq!(completion.status.is_cancelled(), !posted);
        if let Some(request) = request {
            assert_eq!(world.finish(1, request).status.bytes, 100);
        }
        // What follows is received as ever.
        let request = world.recv(1, &into, Source::Any, TagMatch::Any);
        let sent = world.send(0, 1, Mode::Synchronous, &data, 6);
        assert_eq!(world.finish(1, request).status.tag, 6);
        world.finish_send(0, sent).expect("both live");
    }
}

/// A peer that cancels what it never announced, or answers a cancellation that nobody asked for, changes nothing.
#[test]
fn cancellations_of_nothing_change_nothing() {
    let mut world = World::new(2, &[Profile::copied()]);
    let (data, into) = (Memory::of(pattern(100, 1)), Memory::zeroed(100));
    let sent = pending(world.send(0, 1, Mode::Synchronous, &data, 5));
    world.settle();
    // One of these names it.
    for generation in 0..8 {
        let nack = Nack::to_sender(generation << 32, WireStatus::Withdrawn);
        world.fabric.inject(0, Peer(1), Peer(0), nack.as_bytes(), &[]);
    }
    world.settle();
    assert_eq!(world.engines[0].stats().malformed, 1, "nobody had cancelled it");
    let request = world.recv(1, &into, Source::Any, TagMatch::Any);
    assert_eq!(world.finish(1, request).status.bytes, 100);
    assert_eq!(world.finish_send(0, Started::Pending(sent)), Ok(()));
    for seq in [0, 1, 7] {
        let envelope = Envelope { cid: 0, epoch: 0, seq, source: 0, tag: 5, ready: false };
        let header = Announce::withdraw(envelope, 99);
        world.fabric.inject(0, Peer(0), Peer(1), header.as_bytes(), &[]);
    }
    world.settle();
    let request = world.recv(1, &into, Source::Any, TagMatch::Any);
    let sent = world.send(0, 1, Mode::Synchronous, &data, 6);
    assert_eq!(world.finish(1, request).status.tag, 6);
    assert_eq!(world.finish_send(0, sent), Ok(()));
}

#[test]
fn persistent_requests_start_again_and_again() {
    let mut world = World::new(2, &[Profile::copied()]);
    for len in [8, 60_000] {
        let (data, into) = (Memory::of(pattern(len, 1)), Memory::zeroed(len));
        let (c0, c1) = (world.comms[0], world.comms[1]);
        let send = world.engines[0].send_init(c0, Mode::Standard, data.payload(), 1, 2);
        let recv = world.engines[1].recv_init(c1, into.buffer(), Source::Any, TagMatch::Tag(2));
        let (send, recv) = (send.expect("right"), recv.expect("right"));
        // Inactive ones answer at once, with nothing.
        assert_eq!(world.finish(1, recv).status.bytes, 0);
        for _ in 0..3 {
            world.engines[0].start(send).expect("inactive");
            world.engines[1].start(recv).expect("inactive");
            assert_eq!(world.engines[1].start(recv), Err(PmlError::InvalidRequest));
            assert_eq!(world.finish(1, recv).status.bytes, len);
            assert_eq!(world.finish(0, send).result, Ok(()));
            assert!(into.bytes() == pattern(len, 1));
        }
        world.engines[0].request_free(send);
        world.engines[1].request_free(recv);
        assert_eq!(world.engines[1].start(recv), Err(PmlError::InvalidRequest));
    }
}

#[test]
fn messages_for_a_communicator_to_come_wait_for_it() {
    use ironweave_btl::Peer;
    use ironweave_pml::ob1::CommSpec;
    for (name, rails) in rails() {
        let mut world = World::new(2, &rails);
        let group = vec![Peer(0), Peer(1)];
        let spec = |rank, epoch| CommSpec::intra(7, epoch, rank, group.clone());
        for epoch in 0..3 {
            let ours = world.engines[0].add_comm(spec(0, epoch)).expect("a new epoch");
            let lens = [8, 10_000, 16_000, 50_000];
            let sent: Vec<_> = (0..)
                .zip(lens)
                .map(|(i, len)| {
                    let data = Memory::of(pattern(len, i));
                    world.engines[0].send(ours, Mode::Standard, &data.payload(), 1, 3)
                })
                .collect();
            if epoch == 1 {
                world.poll(); // some of a stream is here, some not
            } else {
                world.settle();
            }
            let theirs = world.engines[1].add_comm(spec(1, epoch)).expect("a new epoch");
            for (i, len) in (0..).zip(lens) {
                let into = Memory::zeroed(len);
                let request = world.engines[1]
                    .recv(theirs, into.buffer(), Source::Any, TagMatch::Any)
                    .expect("right");
                assert_eq!(world.finish(1, request).result, Ok(()), "{name} {len}");
                assert!(into.bytes() == pattern(len, i), "{name} {len} bytes, epoch {epoch}");
            }
            for sent in sent {
                assert_eq!(world.finish_send(0, sent.expect("right")), Ok(()));
            }
            let same = world.engines[1].add_comm(spec(1, epoch));
            assert_eq!(same, Err(PmlError::CidInUse { cid: 7, epoch }));
            world.engines[0].free_comm(ours);
            world.engines[1].free_comm(theirs);
            let same = world.engines[1].add_comm(spec(1, epoch));
            assert_eq!(same, Err(PmlError::CidInUse { cid: 7, epoch }));
        }
    }
}

#[test]
fn freed_requests_complete_unseen_and_leave_nothing() {
    for (name, rails) in rails() {
        for len in [8, 20_000, 200_000] {
            let mut world = World::new(2, &rails);
            let (data, into) = (Memory::of(pattern(len, 1)), Memory::zeroed(len));
            let request = world.recv(1, &into, Source::Rank(0), TagMatch::Tag(1));
            world.engines[1].request_free(request);
            let sent = world.send(0, 1, Mode::Synchronous, &data, 1);
            if let Started::Pending(sent) = sent {
                world.engines[0].request_free(sent);
            }
            world.settle();
            assert!(into.bytes() == pattern(len, 1), "{name} {len} bytes");
            for engine in &world.engines {
                let mut dump = String::new();
                engine.dump(&mut dump).expect("strings take everything");
                assert!(dump.starts_with("ob1: 0 receives, 0 sends, 0 messages"), "{name}: {dump}");
            }
            assert_eq!(world.fabric.registered(), 0, "{name}");
            let gone = world.engines[1].test(request).expect("it answers");
            assert_eq!(gone.result, Err(PmlError::InvalidRequest));
        }
    }
}

#[test]
fn a_ready_send_without_a_receive_is_told_where_it_shows() {
    for rail in [Profile::copied(), Profile::zcopy(), Profile::get(), Profile::put()] {
        let mut world = World::new(2, std::slice::from_ref(&rail));
        let sent = world.send(0, 1, Mode::Ready, &Memory::of(pattern(100_000, 1)), 1);
        assert_eq!(world.finish_send(0, sent), Err(PmlError::NotReady));
        assert_eq!(world.fabric.registered(), 0);
        // A short one was over before: it is received, and the long one is not in its way.
        let sent = world.send(0, 1, Mode::Ready, &Memory::of(pattern(100, 2)), 1);
        assert_eq!(world.finish_send(0, sent), Ok(()));
        let into = Memory::zeroed(100);
        let request = world.recv(1, &into, Source::Any, TagMatch::Any);
        assert_eq!(world.finish(1, request).result, Ok(()));
        assert!(into.bytes() == pattern(100, 2));
        // With a receive it is like any other.
        let into = Memory::zeroed(100_000);
        let request = world.recv(1, &into, Source::Any, TagMatch::Any);
        let sent = world.send(0, 1, Mode::Ready, &Memory::of(pattern(100_000, 3)), 1);
        assert_eq!(world.finish(1, request).result, Ok(()));
        assert_eq!(world.finish_send(0, sent), Ok(()));
        assert!(into.bytes() == pattern(100_000, 3));
    }
}
