//! What a dead process, a lost rail and a revoked communicator do to operations in every stage of every protocol.

mod util;

use ironweave_btl::{Cause, Peer, Scope};
use ironweave_pml::ob1::wire::{Announce, Envelope, Match, kinds};
use ironweave_pml::ob1::{
    CommSpec, FT_TAG_MAX, Mode, PARTITIONED_TAG_MAX, PmlError, Source, Started, TagMatch,
};
use util::{Memory, Profile, World, pattern};
use zerocopy::IntoBytes;

fn rails() -> Vec<(&'static str, Vec<Profile>)> {
    vec![
        ("copied", vec![Profile::copied()]),
        ("zcopy", vec![Profile::zcopy()]),
        ("get", vec![Profile::get()]),
        ("put", vec![Profile::put()]),
        ("two rails", vec![Profile::copied(), Profile::zcopy()]),
    ]
}

const LENGTHS: [usize; 4] = [8, 10_000, 100_000, 1_200_000];
const MODES: [Mode; 2] = [Mode::Standard, Mode::Synchronous];
/// Progress calls before the blow: stages of the longest protocol.
const STAGES: std::ops::Range<usize> = 0..14;

fn exact(tag: i32) -> TagMatch {
    TagMatch::Tag(tag)
}

/// Each case of length, mode, stage and protocol.
fn each_case(mut case: impl FnMut(&str, &[Profile], usize, Mode, usize)) {
    for (name, rails) in rails() {
        for len in LENGTHS {
            for mode in MODES {
                for stage in STAGES {
                    let name = format!("{name} {mode:?} {len} bytes, stage {stage}");
                    case(&name, &rails, len, mode, stage);
                }
            }
        }
    }
}

/// Survivors go on.
fn check_survivors(world: &mut World, a: u32, b: u32) {
    let (data, into) = (Memory::of(pattern(70_000, 9)), Memory::zeroed(70_000));
    let request = world.recv(b, &into, Source::Rank(a), exact(77));
    let sent = world.send(a, b, Mode::Standard, &data, 77);
    assert_eq!(world.finish(b, request).result, Ok(()));
    assert_eq!(world.finish_send(a, sent), Ok(()));
    assert!(into.bytes() == pattern(70_000, 9));
}

#[test]
fn a_receive_from_a_process_that_dies_in_any_stage_ends_and_is_left_alone() {
    each_case(|name, rails, len, mode, stage| {
        let mut world = World::new(3, rails);
        let (data, into) = (Memory::of(pattern(len, 1)), Memory::zeroed(len));
        let request = world.recv(0, &into, Source::Rank(1), exact(1));
        let _ = world.send(1, 0, mode, &data, 1);
        for _ in 0..stage {
            world.poll();
        }
        world.fabric.kill(Peer(1));
        world.engines[0].proc_failed(Peer(1));
        world.engines[2].proc_failed(Peer(1));
        let completion = world.finish(0, request);
        match completion.result {
            Ok(()) => assert!(into.bytes() == pattern(len, 1), "{name}: complete with other bytes"),
            Err(PmlError::ProcFailed { rank: 1 }) => {}
            other => panic!("{name}: {other:?}"),
        }
        // Law 2: nothing writes the buffer any more, and no memory of ours is open.
        assert_eq!(world.fabric.registered_by(Peer(0)), 0, "{name}");
        let after = into.bytes();
        into.region().write(0, &vec![0xEE; len]);
        check_survivors(&mut world, 2, 0);
        assert!(into.bytes().iter().all(|&b| b == 0xEE), "{name}: written after completion");
        drop(after);
        // Once ended with an error, always with an error.
        if completion.result.is_err() {
            let later = world.recv(0, &into, Source::Rank(1), exact(1));
            let error = Err(PmlError::ProcFailed { rank: 1 });
            assert_eq!(world.finish(0, later).result, error, "{name}");
        }
    });
}

#[test]
fn a_send_to_a_process_that_dies_in_any_stage_ends() {
    each_case(|name, rails, len, mode, stage| {
        for posted in [true, false] {
            let mut world = World::new(3, rails);
            let (data, into) = (Memory::of(pattern(len, 1)), Memory::zeroed(len));
            if posted {
                world.recv(1, &into, Source::Rank(0), exact(1));
            }
            let sent = world.send(0, 1, mode, &data, 1);
            for _ in 0..stage {
                world.poll();
            }
            world.fabric.kill(Peer(1));
            world.engines[0].proc_failed(Peer(1));
            world.engines[2].proc_failed(Peer(1));
            match world.finish_send(0, sent) {
                Ok(()) | Err(PmlError::ProcFailed { rank: 1 }) => {}
                other => panic!("{name}: {other:?}"),
            }
            assert_eq!(world.fabric.registered_by(Peer(0)), 0, "{name}");
            check_survivors(&mut world, 0, 2);
            // Seed 003 §17.6.1: known to be dead, the error comes with the completion.
            let later = world.send(0, 1, mode, &data, 1);
            assert!(matches!(later, Started::Pending(_)));
            let error = Err(PmlError::ProcFailed { rank: 1 });
            assert_eq!(world.finish_send(0, later), error, "{name}");
        }
    });
}

#[test]
fn what_came_in_full_before_the_failure_is_delivered_in_order_and_only_that() {
    for (name, rails) in rails() {
        let mut world = World::new(2, &rails);
        for (i, len) in [(1, 8), (2, 3000), (3, 100_000), (4, 8)] {
            let _ = world.send(1, 0, Mode::Standard, &Memory::of(pattern(len, i)), i as i32);
        }
        for _ in 0..6 {
            world.poll();
        }
        world.fabric.kill(Peer(1));
        world.engines[0].proc_failed(Peer(1));
        for (i, len) in [(1, 8), (2, 3000)] {
            let into = Memory::zeroed(len);
            let request = world.recv(0, &into, Source::Rank(1), TagMatch::Any);
            assert_eq!(world.finish(0, request).result, Ok(()), "{name} message {i}");
            assert!(into.bytes() == pattern(len, i), "{name} message {i}");
        }
        // The third had not come in full; the fourth must not overtake it.
        for _ in 0..3 {
            let request = world.recv(0, &Memory::zeroed(8), Source::Rank(1), TagMatch::Any);
            let error = Err(PmlError::ProcFailed { rank: 1 });
            assert_eq!(world.finish(0, request).result, error, "{name}");
        }
    }
}

#[test]
fn an_error_for_one_tag_closes_the_source() {
    let mut world = World::new(2, &[Profile::copied()]);
    let _ = world.send(1, 0, Mode::Standard, &Memory::of(pattern(8, 1)), 5);
    world.settle();
    world.engines[0].proc_failed(Peer(1));
    let comm = world.comms[0];
    let probe = world.engines[0].probe(comm, Source::Rank(1), exact(6));
    assert_eq!(probe, Err(PmlError::ProcFailed { rank: 1 }));
    assert!(matches!(world.engines[0].probe(comm, Source::Rank(1), exact(5)), Ok(Some(_))));
    let missing = world.recv(0, &Memory::zeroed(8), Source::Rank(1), exact(6));
    assert!(world.finish(0, missing).result.is_err());
    let late = world.recv(0, &Memory::zeroed(8), Source::Rank(1), exact(5));
    assert!(world.finish(0, late).result.is_err(), "seed 003 §17.6, advice to implementors");
}

#[test]
fn wildcard_receives_are_interrupted_until_acknowledged() {
    let mut world = World::new(3, &[Profile::copied()]);
    let into = Memory::zeroed(8);
    let waiting = world.recv(0, &into, Source::Any, exact(1));
    let comm = world.comms[0];
    let blocking = world.engines[0]
        .recv_blocking(comm, Memory::zeroed(8).buffer(), Source::Any, exact(2))
        .expect("right");
    assert!(world.engines[0].any_source_enabled(comm));
    world.fabric.kill(Peer(1));
    world.engines[0].proc_failed(Peer(1));
    assert!(!world.engines[0].any_source_enabled(comm));
    assert_eq!(world.engines[0].failed_ranks(comm), [1]);
    let pending = Err(PmlError::ProcFailedPending);
    assert_eq!(world.finish(0, blocking).result, Err(PmlError::ProcFailed { rank: 1 }));
    assert_eq!(world.finish(0, waiting).result, pending);
    assert_eq!(world.finish(0, waiting).result, pending, "it stays");
    // New ones too, blocking or not; but what is here is delivered first.
    let fresh = world.recv(0, &Memory::zeroed(8), Source::Any, exact(3));
    assert_eq!(world.finish(0, fresh).result, pending);
    world.engines[0].cancel(fresh);
    assert!(world.finish(0, fresh).status.is_cancelled());
    let _ = world.send(2, 0, Mode::Standard, &Memory::of(pattern(8, 2)), 4);
    world.settle();
    let here = world.recv(0, &Memory::zeroed(8), Source::Any, exact(4));
    assert_eq!(world.finish(0, here).result, Ok(()));

    assert_eq!(world.engines[0].ack_failed(comm), 1);
    assert!(world.engines[0].any_source_enabled(comm));
    world.settle();
    assert!(world.engines[0].test(waiting).is_none(), "it waits again");
    let _ = world.send(2, 0, Mode::Standard, &Memory::of(pattern(8, 3)), 1);
    assert_eq!(world.finish(0, waiting).result, Ok(()));
    assert!(into.bytes() == pattern(8, 3));
    // Acknowledged failures do not interrupt, new ones do.
    let again = world.recv(0, &into, Source::Any, exact(1));
    world.settle();
    assert!(!world.engines[0].is_complete(again));
    world.engines[0].proc_failed(Peer(2));
    assert_eq!(world.finish(0, again).result, pending);
}

#[test]
fn a_process_that_left_ends_its_receives_and_no_wildcards() {
    let mut world = World::new(3, &[Profile::copied()]);
    let wild = world.recv(0, &Memory::zeroed(8), Source::Any, exact(1));
    world.engines[0].unreachable(Peer(1));
    let comm = world.comms[0];
    assert!(world.engines[0].any_source_enabled(comm));
    world.settle();
    assert!(!world.engines[0].is_complete(wild));
    for _ in 0..2 {
        let late = world.recv(0, &Memory::zeroed(8), Source::Rank(1), exact(1));
        assert_eq!(world.finish(0, late).result, Err(PmlError::Unreachable(Peer(1))));
    }
    let probe = world.engines[0].probe(comm, Source::Rank(1), exact(1));
    assert_eq!(probe, Err(PmlError::Unreachable(Peer(1))));
    // It turns out to be dead.
    world.engines[0].proc_failed(Peer(1));
    assert!(!world.engines[0].any_source_enabled(comm));
    assert_eq!(world.finish(0, wild).result, Err(PmlError::ProcFailedPending));
}

#[test]
fn failures_are_acknowledged_one_after_the_other() {
    let mut world = World::new(4, &[Profile::copied()]);
    let waiting = world.recv(0, &Memory::zeroed(8), Source::Any, exact(1));
    for victim in [2, 1] {
        world.fabric.kill(Peer(victim));
        world.engines[0].proc_failed(Peer(victim));
    }
    let (comm, pending) = (world.comms[0], Err(PmlError::ProcFailedPending));
    assert_eq!(world.engines[0].failed_ranks(comm), [2, 1]);
    for (most, acknowledged) in [(0, 0), (1, 1), (0, 1)] {
        assert_eq!(world.engines[0].ack_failed_up_to(comm, most), acknowledged);
        assert!(!world.engines[0].any_source_enabled(comm));
        assert_eq!(world.finish(0, waiting).result, pending, "one is not acknowledged");
    }
    assert_eq!(world.engines[0].ack_failed_up_to(comm, 9), 2);
    assert!(world.engines[0].any_source_enabled(comm));
    let _ = world.send(3, 0, Mode::Standard, &Memory::of(pattern(8, 1)), 1);
    assert_eq!(world.finish(0, waiting).result, Ok(()));
}

#[test]
fn an_interrupted_receive_still_matches() {
    let mut world = World::new(3, &[Profile::copied()]);
    let into = Memory::zeroed(8);
    let waiting = world.recv(0, &into, Source::Any, TagMatch::Any);
    world.engines[0].proc_failed(Peer(1));
    assert!(world.engines[0].is_complete(waiting));
    let _ = world.send(2, 0, Mode::Standard, &Memory::of(pattern(8, 3)), 1);
    let completion = world.finish(0, waiting);
    assert_eq!((completion.result, completion.status.source), (Ok(()), 2));
}

#[test]
fn a_new_communicator_knows_its_dead_members() {
    let mut world = World::new(3, &[Profile::copied()]);
    world.engines[0].proc_failed(Peer(1));
    let group = vec![Peer(2), Peer(1), Peer(0)];
    let comm = world.engines[0].add_comm(CommSpec::intra(9, 0, 2, group)).expect("a new id");
    assert_eq!(world.engines[0].failed_ranks(comm), [1]);
    let into = Memory::zeroed(8);
    let request = world.engines[0].recv(comm, into.buffer(), Source::Rank(1), exact(1));
    let error = Err(PmlError::ProcFailed { rank: 1 });
    assert_eq!(world.finish(0, request.expect("right")).result, error);
}

#[test]
fn the_loss_of_the_only_rail_is_a_suspicion_that_the_owner_judges() {
    for verdict in ["failed", "unreachable"] {
        each_case(|name, rails, len, mode, stage| {
            if rails.len() > 1 || len == 1_200_000 {
                return;
            }
            let mut world = World::new(2, rails);
            let (data, into) = (Memory::of(pattern(len, 1)), Memory::zeroed(len));
            let request = world.recv(0, &into, Source::Rank(1), exact(1));
            let sent = world.send(1, 0, mode, &data, 1);
            for _ in 0..stage {
                world.poll();
            }
            world.fabric.cut(0, Peer(0), Peer(1));
            world.settle();
            for me in [0, 1] {
                let suspects: Vec<_> = world.engines[me].suspects().collect();
                assert_eq!(suspects.len(), 1, "{name}: {suspects:?}");
                assert_eq!(suspects[0].scope, Scope::Rail, "a lost rail is not a dead process");
                assert!(!suspects[0].is_proof());
                let other = Peer(1 - me as u32);
                match verdict {
                    "failed" => world.engines[me].proc_failed(other),
                    _ => world.engines[me].unreachable(other),
                }
            }
            let error = |rank| match verdict {
                "failed" => PmlError::ProcFailed { rank },
                _ => PmlError::Unreachable(Peer(rank)),
            };
            match world.finish(0, request).result {
                Ok(()) => assert!(into.bytes() == pattern(len, 1), "{name}"),
                Err(e) => assert_eq!(e, error(1), "{name}"),
            }
            match world.finish_send(1, sent) {
                Ok(()) => {}
                Err(e) => assert_eq!(e, error(0), "{name}"),
            }
            assert_eq!(world.fabric.registered(), 0, "{name}");
        });
    }
}

#[test]
fn the_loss_of_a_striping_rail_costs_only_messages_under_way_and_both_sides_agree() {
    let rails = [Profile::zcopy(), Profile::zcopy(), Profile::copied()];
    for lost in [1, 2] {
        for stage in 0..20 {
            let mut world = World::new(2, &rails);
            let len = 1_000_000;
            let (data, into) = (Memory::of(pattern(len, 1)), Memory::zeroed(len));
            let request = world.recv(0, &into, Source::Rank(1), exact(1));
            let sent = world.send(1, 0, Mode::Standard, &data, 1);
            for _ in 0..stage {
                world.poll();
            }
            world.fabric.cut(lost, Peer(0), Peer(1));
            let received = world.finish(0, request).result;
            let sent = world.finish_send(1, sent);
            match (&received, &sent) {
                (Ok(()), Ok(())) => assert!(into.bytes() == pattern(len, 1)),
                // The last bytes had left the sender's hands when the rail went.
                (Err(PmlError::RailLost(_)), Ok(()) | Err(PmlError::RailLost(_))) => {}
                other => panic!("rail {lost}, stage {stage}: {other:?}"),
            }
            assert_eq!(world.engines[0].suspects().count(), 0, "the peer is still there");
            check_survivors(&mut world, 1, 0);
            check_survivors(&mut world, 0, 1);
        }
    }
}

#[test]
fn a_revoked_communicator_ends_what_has_not_matched_and_both_sides_agree() {
    each_case(|name, rails, len, mode, stage| {
        for posted in [true, false] {
            let mut world = World::new(2, rails);
            let (data, into) = (Memory::of(pattern(len, 1)), Memory::zeroed(len));
            let request = posted.then(|| world.recv(0, &into, Source::Rank(1), exact(1)));
            let sent = world.send(1, 0, mode, &data, 1);
            for _ in 0..stage {
                world.poll();
            }
            let comm = world.comms[0];
            world.engines[0].revoke_comm(comm);
            assert!(world.engines[0].is_revoked(comm));
            let received = request.map(|request| world.finish(0, request).result);
            let sent = world.finish_send(1, sent);
            let waits = mode == Mode::Synchronous || len > 16 << 10;
            match (received, sent) {
                // It had matched (case 2): it runs on, at both ends.
                (Some(Ok(())), Ok(())) => assert!(into.bytes() == pattern(len, 1), "{name}"),
                // It had not (cases 3 and 4): both are told, but an eager send was over before.
                (None | Some(Err(PmlError::Revoked)), Err(PmlError::Revoked)) => {}
                (None | Some(Err(PmlError::Revoked)), Ok(())) => assert!(!waits, "{name}"),
                other => panic!("{name}, posted {posted}: {other:?}"),
            }
            assert_eq!(world.fabric.registered(), 0, "{name}");
            let engine = &mut world.engines[0];
            let refused = engine.recv(comm, into.buffer(), Source::Any, TagMatch::Any);
            assert_eq!(refused, Err(PmlError::Revoked));
            let refused = engine.send(comm, Mode::Standard, &data.payload(), 1, 1);
            assert_eq!(refused, Err(PmlError::Revoked));
            let refused = engine.probe(comm, Source::Any, TagMatch::Any);
            assert_eq!(refused, Err(PmlError::Revoked));
        }
    });
}

#[test]
fn interrupted_collectives_end_by_the_rules_of_revoke_and_leave_users_alone() {
    const COLL: i32 = -5;
    each_case(|name, rails, len, mode, stage| {
        for posted in [true, false] {
            let mut world = World::new(2, rails);
            let (data, into) = (Memory::of(pattern(len, 1)), Memory::zeroed(len));
            let (user, kept) = (Memory::zeroed(len), Memory::zeroed(len));
            let user_request = world.recv(0, &user, Source::Any, TagMatch::Any);
            let request = posted.then(|| world.recv(0, &into, Source::Rank(1), exact(COLL)));
            let sent = world.send(1, 0, mode, &data, COLL);
            for _ in 0..stage {
                world.poll();
            }
            let comm = world.comms[0];
            world.engines[0].interrupt_collectives(comm);
            assert!(world.engines[0].are_collectives_interrupted(comm));
            assert!(!world.engines[0].is_revoked(comm));
            let received = request.map(|request| world.finish(0, request).result);
            let sent = world.finish_send(1, sent);
            let waits = mode == Mode::Synchronous || len > 16 << 10;
            match (received, sent) {
                (Some(Ok(())), Ok(())) => assert!(into.bytes() == pattern(len, 1), "{name}"),
                (None | Some(Err(PmlError::Interrupted)), Err(PmlError::Interrupted)) => {}
                (None | Some(Err(PmlError::Interrupted)), Ok(())) => assert!(!waits, "{name}"),
                other => panic!("{name}, posted {posted}: {other:?}"),
            }
            // No wildcard of a user took it, and users go on, both ways.
            assert!(!world.engines[0].is_complete(user_request), "{name}");
            let sent = world.send(1, 0, mode, &data, 3);
            assert_eq!(world.finish(0, user_request).result, Ok(()), "{name}");
            assert!(user.bytes() == pattern(len, 1), "{name}");
            assert_eq!(world.finish_send(1, sent), Ok(()), "{name}");
            let back = world.recv(1, &kept, Source::Any, TagMatch::Any);
            let sent = world.send(0, 1, mode, &data, 4);
            assert_eq!(world.finish(1, back).result, Ok(()), "{name}");
            assert_eq!(world.finish_send(0, sent), Ok(()), "{name}");
            // Nor are partitioned messages touched.
            let part = world.recv(0, &into, Source::Rank(1), exact(PARTITIONED_TAG_MAX));
            let sent = world.send(1, 0, mode, &data, PARTITIONED_TAG_MAX);
            assert_eq!(world.finish(0, part).result, Ok(()), "{name}");
            assert_eq!(world.finish_send(1, sent), Ok(()), "{name}");
            // Nothing of collectives starts any more, until the end of the communicator; resilient tags work.
            let engine = &mut world.engines[0];
            let refused = engine.recv(comm, into.buffer(), Source::Rank(1), exact(COLL));
            assert_eq!(refused, Err(PmlError::Interrupted));
            let refused = engine.send(comm, Mode::Standard, &data.payload(), 1, COLL);
            assert_eq!(refused, Err(PmlError::Interrupted));
            assert!(engine.recv(comm, into.buffer(), Source::Rank(1), exact(FT_TAG_MAX)).is_ok());
            // A revoke still reaches the rest.
            engine.revoke_comm(comm);
            let refused = engine.recv(comm, into.buffer(), Source::Any, TagMatch::Any);
            assert_eq!(refused, Err(PmlError::Revoked));
        }
    });
}

#[test]
fn resilient_tags_work_on_a_revoked_communicator() {
    let mut world = World::new(2, &[Profile::copied()]);
    for rank in 0..2 {
        let comm = world.comms[rank];
        world.engines[rank].revoke_comm(comm);
    }
    for len in [8, 100_000] {
        let (data, into) = (Memory::of(pattern(len, 1)), Memory::zeroed(len));
        let request = world.recv(0, &into, Source::Any, exact(FT_TAG_MAX - 1));
        let sent = world.send(1, 0, Mode::Standard, &data, FT_TAG_MAX - 1);
        assert_eq!(world.finish(0, request).result, Ok(()));
        assert_eq!(world.finish_send(1, sent), Ok(()));
    }
}

#[test]
fn a_peer_dies_while_a_communicator_is_revoked() {
    each_case(|name, rails, len, mode, stage| {
        let mut world = World::new(2, rails);
        let (data, into) = (Memory::of(pattern(len, 1)), Memory::zeroed(len));
        let request = world.recv(0, &into, Source::Rank(1), exact(1));
        let back = world.send(0, 1, mode, &data, 1);
        let _ = world.send(1, 0, mode, &data, 1);
        for _ in 0..stage {
            world.poll();
        }
        let comm = world.comms[0];
        world.engines[0].revoke_comm(comm);
        world.poll();
        world.fabric.kill(Peer(1));
        world.engines[0].proc_failed(Peer(1));
        match world.finish(0, request).result {
            Ok(()) | Err(PmlError::ProcFailed { rank: 1 } | PmlError::Revoked) => {}
            other => panic!("{name}: {other:?}"),
        }
        match world.finish_send(0, back) {
            Ok(()) | Err(PmlError::ProcFailed { rank: 1 } | PmlError::Revoked) => {}
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(world.fabric.registered_by(Peer(0)), 0, "{name}");
    });
}

#[test]
fn the_end_of_a_communicator_ends_its_receives_and_tells_waiting_senders() {
    let mut world = World::new(2, &[Profile::copied()]);
    let sent = world.send(1, 0, Mode::Synchronous, &Memory::of(pattern(8, 1)), 1);
    world.settle();
    let posted = world.recv(0, &Memory::zeroed(8), Source::Any, exact(2));
    let comm = world.comms[0];
    world.engines[0].free_comm(comm);
    assert_eq!(world.finish(0, posted).result, Err(PmlError::InvalidComm));
    assert_eq!(world.finish_send(1, sent), Err(PmlError::Stale));
    // And those that come later.
    let late = world.send(1, 0, Mode::Synchronous, &Memory::of(pattern(8, 1)), 1);
    assert_eq!(world.finish_send(1, late), Err(PmlError::Stale));
    assert_eq!(world.engines[0].stats().stale, 1);
    let gone = world.engines[0].recv(comm, Memory::zeroed(8).buffer(), Source::Any, exact(2));
    assert_eq!(gone, Err(PmlError::InvalidComm));
}

/// The sender may hear of the revocation only by this answer: it has to say more than that the communicator is gone.
#[test]
fn a_communicator_that_ended_revoked_says_so() {
    let mut world = World::new(2, &[Profile::copied()]);
    let comm = world.comms[0];
    world.engines[0].revoke_comm(comm);
    world.engines[0].free_comm(comm);
    let late = |world: &mut World| {
        let sent = world.send(1, 0, Mode::Synchronous, &Memory::of(pattern(8, 1)), 1);
        world.finish_send(1, sent)
    };
    assert_eq!(late(&mut world), Err(PmlError::Revoked));
    // Also while the id is used again, until that life is over too.
    let again = CommSpec::intra(1, 1, 0, vec![Peer(0), Peer(1)]);
    let again = world.engines[0].add_comm(again).expect("the next life of the id");
    assert_eq!(late(&mut world), Err(PmlError::Revoked));
    world.engines[0].free_comm(again);
    assert_eq!(late(&mut world), Err(PmlError::Stale));
}

#[test]
fn messages_that_overtake_wait_and_copies_are_dropped() {
    let mut world = World::new(2, &[Profile::copied()]);
    for i in 1..=4 {
        let _ = world.send(1, 0, Mode::Standard, &Memory::of(pattern(8, i)), 1);
    }
    world.fabric.swap_first(0, Peer(1), Peer(0));
    world.fabric.duplicate_first(0, Peer(1), Peer(0));
    for i in 1..=4 {
        let into = Memory::zeroed(8);
        let request = world.recv(0, &into, Source::Any, TagMatch::Any);
        assert_eq!(world.finish(0, request).result, Ok(()));
        assert!(into.bytes() == pattern(8, i), "message {i}");
    }
    let stats = world.engines[0].stats();
    assert_eq!((stats.duplicates, stats.malformed), (1, 0));
    assert!(stats.early >= 1);
}

#[test]
fn early_messages_beyond_the_bound_are_reported() {
    let mut world = World::with(2, &[Profile::copied()], |config| config.early_frames = 3);
    let group = vec![Peer(0), Peer(1)];
    let comm = world.engines[1].add_comm(CommSpec::intra(4, 0, 1, group)).expect("a new id");
    for _ in 0..5 {
        let sent = world.engines[1].send(comm, Mode::Standard, &Memory::zeroed(8).payload(), 0, 1);
        assert_eq!(sent, Ok(Started::Done));
    }
    world.settle();
    assert_eq!(world.engines[0].stats().overflowed, 2);
    let suspects: Vec<_> = world.engines[0].suspects().collect();
    assert!(matches!(&suspects[..], [s] if matches!(s.cause, Cause::Exhausted(_))), "{suspects:?}");
}

/// Who sends long messages unasked into a communicator that its receiver has not made yet is told to announce before the bound is
/// reached.
#[test]
fn long_messages_to_a_communicator_that_is_not_there_are_not_too_many() {
    const LONG: usize = 1 << 20;
    let profile = Profile { posted_limit: LONG, room: 1 << 20, ..Profile::zcopy() };
    let mut world = World::new(2, &[profile]);
    let data = Memory::of(pattern(LONG, 1));
    let (into, zeros) = (Memory::zeroed(LONG), vec![0; LONG]);
    for _ in 0..4 {
        let request = world.recv(0, &into, Source::Any, TagMatch::Any);
        let sent = world.send(1, 0, Mode::Standard, &data, 1);
        assert_eq!(world.finish(0, request).result, Ok(()));
        assert_eq!(world.finish_send(1, sent), Ok(()));
    }
    assert_eq!(world.engines[0].stats().unasked, 1);
    let group = || vec![Peer(0), Peer(1)];
    let comm = world.engines[1].add_comm(CommSpec::intra(4, 0, 1, group())).expect("a new id");
    let sends: Vec<_> = (0..100)
        .map(|_| world.engines[1].send(comm, Mode::Standard, &data.payload(), 0, 1))
        .map(|sent| sent.expect("right"))
        .collect();
    world.settle();
    let stats = world.engines[0].stats();
    assert!(stats.early > 16, "they came announced: {stats:?}");
    assert_eq!((stats.overflowed, stats.throttled), (0, 1), "{stats:?}");
    let there = world.engines[0].add_comm(CommSpec::intra(4, 0, 0, group())).expect("a new id");
    for sent in sends {
        into.region().write(0, &zeros);
        let request = world.engines[0].recv(there, into.buffer(), Source::Any, TagMatch::Any);
        assert_eq!(world.finish(0, request.expect("right")).result, Ok(()));
        assert!(into.bytes() == pattern(LONG, 1));
        assert_eq!(world.finish_send(1, sent), Ok(()));
    }
    let sent = world.send(1, 0, Mode::Standard, &Memory::zeroed(5), 1);
    assert_eq!(sent, Started::Done, "it has to announce for ever");
}

/// A message that waits for its turn may fill this process; when its turn has come, and its receive was waiting, it is taken.
#[test]
fn a_turn_that_has_come_makes_room() {
    let mut world = World::with(2, &[Profile::copied()], |config| config.early_bytes = 8000);
    let (short, long) = (Memory::zeroed(8), Memory::zeroed(3000));
    let requests = [&short, &long].map(|into| world.recv(0, into, Source::Any, TagMatch::Any));
    let _ = world.send(1, 0, Mode::Standard, &Memory::of(pattern(8, 1)), 1);
    let _ = world.send(1, 0, Mode::Standard, &Memory::of(pattern(3000, 2)), 1);
    world.fabric.swap_first(0, Peer(1), Peer(0));
    for request in requests {
        assert_eq!(world.finish(0, request).result, Ok(()));
    }
    assert!(long.bytes() == pattern(3000, 2));
    assert_eq!(world.engines[0].stats().throttled, 1);
    let sent = world.send(1, 0, Mode::Standard, &Memory::zeroed(5), 1);
    assert_eq!(sent, Started::Done, "it has to announce for ever");
}

/// What waits for earlier messages when its communicator is freed is answered, and takes no room any more.
#[test]
fn frames_that_wait_in_a_freed_communicator_are_answered() {
    let mut world = World::with(2, &[Profile::copied()], |config| config.early_bytes = 8000);
    let envelope = |seq| Envelope { cid: 1, epoch: 0, seq, source: 1, tag: 1, ready: false };
    let whole = Match::new(kinds::MATCH, envelope(5));
    world.fabric.inject(0, Peer(1), Peer(0), whole.as_bytes(), &pattern(3000, 1));
    let announced = Announce::new(kinds::RNDV, envelope(6), 100_000, 77);
    world.fabric.inject(0, Peer(1), Peer(0), announced.as_bytes(), &[]);
    world.settle();
    let stats = world.engines[0].stats();
    assert_eq!((world.engines[0].usage().early, stats.throttled, stats.stale), (2, 1, 0));
    let comm = world.comms[0];
    world.engines[0].free_comm(comm);
    assert_eq!((world.engines[0].usage().early, world.engines[0].stats().stale), (0, 2));
    world.settle();
    let group = || vec![Peer(0), Peer(1)];
    let [_, there] = [0, 1].map(|rank| {
        let spec = CommSpec::intra(4, 0, rank, group());
        world.engines[rank as usize].add_comm(spec).expect("a new id")
    });
    let sent = world.engines[1].send(there, Mode::Standard, &Memory::zeroed(5).payload(), 0, 1);
    assert_eq!(sent, Ok(Started::Done), "it has to announce for ever");
}
