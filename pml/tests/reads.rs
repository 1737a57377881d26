//! Messages that their receivers read at once, and requests that are attended.

mod util;

use ironweave_btl::Peer;
use ironweave_pml::ob1::{Completion, Mode, PmlError, Source, Started, TagMatch};
use util::{Memory, Profile, World, pattern};

const LEN: usize = 20_000;
const TURNS: u32 = 1;

fn pending(started: Started) -> ironweave_pml::ob1::ReqId {
    match started {
        Started::Pending(request) => request,
        Started::Done => panic!("it is over, and nobody read it"),
    }
}

/// Two processes that know over which rail each other's messages come.
fn world(profile: Profile) -> World {
    let mut world = World::new(2, &[profile]);
    for (from, to) in [(0, 1), (1, 0)] {
        let (data, into) = (Memory::of(vec![1]), Memory::zeroed(1));
        let receive = world.recv(to, &into, Source::Rank(from), TagMatch::Tag(0));
        assert_eq!(world.send(from, to, Mode::Standard, &data, 0), Started::Done);
        is_well(&world.finish(to, receive), 1);
    }
    world
}

/// Frames on their way to 1 and to 0.
fn under_way(world: &World) -> [usize; 2] {
    [world.fabric.waiting(Peer(0), Peer(1)), world.fabric.waiting(Peer(1), Peer(0))]
}

fn is_well(ended: &Completion, bytes: usize) {
    assert_eq!(ended.result, Ok(()));
    assert_eq!(ended.status.bytes, bytes);
}

#[test]
fn both_sides_attend() {
    let mut world = world(Profile::hands());
    let comm = world.comms[1];
    for seed in 0..3 {
        let (from, into) = (Memory::of(pattern(LEN, seed)), Memory::zeroed(LEN + 10));
        let receive = world.recv(1, &into, Source::Rank(0), TagMatch::Tag(7));
        assert!(!world.engines[1].attend(receive, TURNS), "nothing is here");
        let send = pending(world.send(0, 1, Mode::Standard, &from, 7));
        assert!(!world.engines[0].attend(send, TURNS));
        assert_eq!(under_way(&world), [1, 0]);
        assert!(world.engines[1].attend(receive, TURNS));
        assert_eq!(under_way(&world), [0, 1], "the answer is out at once");
        is_well(&world.engines[1].test(receive).unwrap(), LEN);
        assert!(into.bytes()[..LEN] == pattern(LEN, seed));
        assert!(world.engines[0].test(send).is_none());
        assert_eq!(world.fabric.registered(), 1);
        assert!(world.engines[0].attend(send, TURNS));
        assert_eq!(world.fabric.registered(), 0);
        assert_eq!(world.engines[0].test(send).unwrap().result, Ok(()));
        // Short ones come in their turn.
        let (short, place) = (Memory::of(pattern(9, seed)), Memory::zeroed(9));
        assert_eq!(world.send(0, 1, Mode::Standard, &short, 7), Started::Done);
        assert_eq!(world.engines[1].recv_direct(comm, &place.region(), 0, 7, TURNS), Some(9));
    }
    assert!(world.engines.iter().all(|engine| engine.usage() == Default::default()));
}

#[test]
fn who_attends_and_who_does_not_get_along() {
    for [sender, receiver] in [[false, false], [false, true], [true, false]] {
        let mut world = world(Profile::hands());
        let (from, into) = (Memory::of(pattern(LEN, 1)), Memory::zeroed(LEN));
        let receive = world.recv(1, &into, Source::Rank(0), TagMatch::Tag(7));
        let send = pending(world.send(0, 1, Mode::Synchronous, &from, 7));
        if receiver {
            assert!(world.engines[1].attend(receive, TURNS));
        } else {
            world.engines[1].progress();
        }
        assert_eq!(under_way(&world), [0, 1], "read, and answered, in one go");
        if sender {
            assert!(world.engines[0].attend(send, TURNS));
        } else {
            world.engines[0].progress();
        }
        is_well(&world.finish(1, receive), LEN);
        assert_eq!(world.finish(0, send).result, Ok(()));
        assert!(into.bytes() == pattern(LEN, 1));
        assert_eq!(world.fabric.registered(), 0);
    }
}

#[test]
fn what_is_offered_to_another_receive_goes_there() {
    let mut world = world(Profile::hands());
    let (from, first, second) =
        (Memory::of(pattern(LEN, 1)), Memory::zeroed(LEN), Memory::zeroed(LEN));
    let wild = world.recv(1, &first, Source::Any, TagMatch::Tag(7));
    let exact = world.recv(1, &second, Source::Rank(0), TagMatch::Tag(7));
    let send = world.send(0, 1, Mode::Standard, &from, 7);
    assert!(world.engines[1].attend(exact, TURNS));
    is_well(&world.finish(1, wild), LEN);
    assert_eq!(world.finish_send(0, send), Ok(()));
    assert!(first.bytes() == pattern(LEN, 1) && world.engines[1].test(exact).is_none());
}

#[test]
fn other_frames_are_left_where_they_are() {
    let mut world = world(Profile::hands());
    let (from, into) = (Memory::of(pattern(LEN, 1)), Memory::zeroed(LEN));
    let (short, place) = (Memory::of(pattern(9, 2)), Memory::zeroed(9));
    let receive = world.recv(1, &into, Source::Rank(0), TagMatch::Tag(7));
    assert_eq!(world.send(0, 1, Mode::Standard, &short, 8), Started::Done);
    let send = world.send(0, 1, Mode::Standard, &from, 7);
    assert!(!world.engines[1].attend(receive, TURNS));
    assert_eq!(under_way(&world), [2, 0]);
    is_well(&world.finish(1, receive), LEN);
    let other = world.recv(1, &place, Source::Rank(0), TagMatch::Tag(8));
    is_well(&world.finish(1, other), 9);
    assert_eq!(world.finish_send(0, send), Ok(()));
}

#[test]
fn what_does_not_fit_is_cut() {
    let mut world = world(Profile::hands());
    let (from, into) = (Memory::of(pattern(LEN, 1)), Memory::zeroed(LEN - 1));
    let receive = world.recv(1, &into, Source::Rank(0), TagMatch::Tag(7));
    let send = world.send(0, 1, Mode::Standard, &from, 7);
    assert!(world.engines[1].attend(receive, TURNS));
    let (sent, capacity) = (LEN as u64, LEN as u64 - 1);
    assert_eq!(world.finish(1, receive).result, Err(PmlError::Truncated { sent, capacity }));
    assert_eq!(world.finish_send(0, send), Ok(()));
    assert!(into.bytes() == pattern(LEN, 1)[..LEN - 1]);
}

#[test]
fn what_cannot_be_read_comes_in_fragments() {
    for attended in [false, true] {
        let profile = Profile { refuse_rma: true, ..Profile::hands() };
        let mut world = world(profile);
        let (from, into) = (Memory::of(pattern(LEN, 1)), Memory::zeroed(LEN));
        let receive = world.recv(1, &into, Source::Rank(0), TagMatch::Tag(7));
        let send = world.send(0, 1, Mode::Standard, &from, 7);
        assert!(!attended || world.engines[1].attend(receive, TURNS));
        is_well(&world.finish(1, receive), LEN);
        assert_eq!(world.finish_send(0, send), Ok(()));
        assert!(into.bytes() == pattern(LEN, 1));
        assert_eq!(world.fabric.registered(), 0);
    }
}

#[test]
fn the_rail_says_what_is_better_sent() {
    let mut world = world(Profile::hands());
    world.fabric.prefer_sending();
    // One that could go without asking, and a longer one; over this rail the longest frame has 4 KiB.
    for (len, asks) in [(12 << 10, false), (100 << 10, true)] {
        let (from, into) = (Memory::of(pattern(len, 1)), Memory::zeroed(len));
        let receive = world.recv(1, &into, Source::Rank(0), TagMatch::Tag(7));
        let send = world.send(0, 1, Mode::Standard, &from, 7);
        assert_eq!(send != Started::Done, asks);
        assert_eq!(world.fabric.registered(), 0);
        is_well(&world.finish(1, receive), len);
        assert_eq!(world.finish_send(0, send), Ok(()));
        assert!(into.bytes() == pattern(len, 1));
    }
}

#[test]
fn who_waits_for_the_end_of_a_read_does_its_part() {
    for attended in [false, true] {
        let mut world = world(Profile::shared());
        let (from, into) = (Memory::of(pattern(LEN, 1)), Memory::zeroed(LEN));
        let receive = world.recv(1, &into, Source::Rank(0), TagMatch::Tag(7));
        let send = pending(world.send(0, 1, Mode::Standard, &from, 7));
        assert!(world.engines[1].attend(receive, TURNS), "it has begun");
        assert!(!world.engines[1].attend(receive, TURNS));
        for _ in 0..3 {
            world.engines[1].progress();
        }
        assert!(world.engines[1].test(receive).is_none());
        assert_eq!(world.engines[1].usage().accesses, 1);
        if attended {
            assert!(!world.engines[0].attend(send, TURNS), "its part is no end of it");
        } else {
            world.engines[0].progress();
        }
        world.engines[1].progress();
        is_well(&world.engines[1].test(receive).unwrap(), LEN);
        assert_eq!(under_way(&world), [0, 1]);
        assert!(world.engines[0].attend(send, TURNS));
        assert_eq!(world.engines[0].test(send).unwrap().result, Ok(()));
        assert!(into.bytes() == pattern(LEN, 1));
        assert_eq!(world.fabric.registered(), 0);
        assert!(world.engines.iter().all(|engine| engine.usage() == Default::default()));
    }
}

#[test]
fn a_read_that_has_begun_ends_with_its_sender() {
    let mut world = world(Profile::shared());
    let (from, into) = (Memory::of(pattern(LEN, 1)), Memory::zeroed(LEN));
    let receive = world.recv(1, &into, Source::Rank(0), TagMatch::Tag(7));
    let _send = pending(world.send(0, 1, Mode::Standard, &from, 7));
    assert!(world.engines[1].attend(receive, TURNS));
    world.fabric.kill(Peer(0));
    world.engines[1].proc_failed(Peer(0));
    assert_eq!(world.finish(1, receive).result, Err(PmlError::ProcFailed { rank: 0 }));
    assert_eq!(world.engines[1].usage(), Default::default());
}

#[test]
fn a_revoked_communicator_is_left_to_progress() {
    let mut world = world(Profile::hands());
    let (from, into) = (Memory::of(pattern(LEN, 1)), Memory::zeroed(LEN));
    let receive = world.recv(1, &into, Source::Rank(0), TagMatch::Tag(7));
    let send = pending(world.send(0, 1, Mode::Standard, &from, 7));
    let comm = world.comms[1];
    world.engines[1].revoke_comm(comm);
    assert!(!world.engines[1].attend(receive, TURNS));
    assert_eq!(world.finish(1, receive).result, Err(PmlError::Revoked));
    assert_eq!(world.finish(0, send).result, Err(PmlError::Revoked));
    assert!(into.bytes().iter().all(|&byte| byte == 0));
}

#[test]
fn the_dead_are_left_to_progress() {
    let mut world = world(Profile::hands());
    let from = Memory::of(pattern(LEN, 1));
    let send = pending(world.send(0, 1, Mode::Standard, &from, 7));
    world.fabric.kill(Peer(1));
    assert!(!world.engines[0].attend(send, TURNS));
    world.engines[0].proc_failed(Peer(1));
    assert!(!world.engines[0].attend(send, TURNS));
    assert_eq!(world.finish(0, send).result, Err(PmlError::ProcFailed { rank: 1 }));
    assert_eq!(world.fabric.registered(), 0);
}

/// A world of rails with room for two frames, and messages to 1, more than that: what of them waits is as far as it gets.
fn crowd(rails: usize) -> (World, Vec<Started>) {
    let narrow = Profile { room: 2, ..Profile::get() };
    let mut world = World::new(2, &vec![narrow; rails]);
    let sends: Vec<_> = (0..MESSAGES)
        .map(|seed| world.send(0, 1, Mode::Standard, &Memory::of(pattern(LEN, seed)), 7))
        .collect();
    for _ in 0..100 {
        world.engines[0].progress();
    }
    assert!(under_way(&world)[0] >= 2, "there is no room");
    (world, sends)
}

const MESSAGES: u64 = 6;

/// All of them arrive, and no memory stays open.
fn drain(world: &mut World, sends: Vec<Started>) {
    for seed in 0..MESSAGES {
        let into = Memory::zeroed(LEN);
        let receive = world.recv(1, &into, Source::Rank(0), TagMatch::Tag(7));
        is_well(&world.finish(1, receive), LEN);
        assert!(into.bytes() == pattern(LEN, seed), "message {seed}");
    }
    for send in sends {
        assert_eq!(world.finish_send(0, send), Ok(()));
    }
    assert_eq!(world.fabric.registered(), 0);
}

#[test]
fn memory_of_an_offer_that_finds_no_room_is_registered_once() {
    let (mut world, sends) = crowd(1);
    assert_eq!(world.fabric.registered(), 3, "two are offered, one is about to be");
    assert_eq!(world.fabric.registrations(), 3);
    drain(&mut world, sends);
    assert_eq!(world.fabric.registrations(), MESSAGES);
}

#[test]
fn an_offer_that_found_no_room_goes_over_another_rail() {
    let (mut world, sends) = crowd(2);
    let before = world.fabric.registrations();
    world.fabric.cut(0, Peer(0), Peer(1));
    drain(&mut world, sends);
    assert!(world.fabric.registrations() > before, "a key is of one rail");
}

#[test]
fn an_offer_that_found_no_room_ends_with_its_receiver() {
    let (mut world, sends) = crowd(1);
    world.fabric.kill(Peer(1));
    world.engines[0].proc_failed(Peer(1));
    for send in sends {
        assert_eq!(world.finish_send(0, send), Err(PmlError::ProcFailed { rank: 1 }));
    }
    assert_eq!(world.fabric.registered(), 0);
}
