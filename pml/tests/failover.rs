//! Rails are lost between living processes, in every stage of every protocol, and come back: nothing is lost, doubled or
//! overtaken, and nobody is told of anything (law 6; seed 002).

mod util;

use ironweave_btl::Peer;
use ironweave_pml::ob1::{Mode, RailId, Source, Started, TagMatch};
use util::{Memory, Profile, World, pattern};

const LENGTHS: [usize; 5] = [8, 3000, 10_000, 60_000, 200_000];
const MODES: [Mode; 3] = [Mode::Standard, Mode::Synchronous, Mode::Buffered];

/// Pairs of rails of all kinds; the second has longer, or shorter, frames than the first.
fn rails() -> Vec<(&'static str, Vec<Profile>)> {
    let short = Profile { max_bcopy: 700, max_short: 100, eager_limit: 900, ..Profile::lossy() };
    let reserve = Profile { exclusivity: 1, ..Profile::zcopy() };
    // Lone messages up to here are copied when they are out, longer ones wait for the word that they arrived.
    let eager = Profile { eager_limit: 256 << 10, ..Profile::zcopy() };
    vec![
        ("copied, copied", vec![Profile::lossy(), Profile::lossy()]),
        ("zcopy, zcopy", vec![Profile::zcopy(), Profile::zcopy()]),
        ("zcopy, short", vec![Profile::zcopy(), short.clone()]),
        ("short, zcopy", vec![short.clone(), Profile::zcopy()]),
        ("get, put", vec![Profile::get(), Profile::put()]),
        ("put, get", vec![Profile::put(), Profile::get()]),
        ("get, zcopy", vec![Profile::get(), Profile::zcopy()]),
        ("put, zcopy", vec![Profile::put(), Profile::zcopy()]),
        ("long zcopy, short", vec![eager.clone(), short]),
        ("long zcopy, long zcopy", vec![eager.clone(), eager.clone()]),
        ("long zcopy, zcopy in reserve", vec![eager, reserve.clone()]),
        ("zcopy, zcopy in reserve", vec![Profile::zcopy(), reserve]),
    ]
}

/// How a rail is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    /// Both ends see it, and what is on it is gone.
    Both,
    /// One end gives it up; the other is told.
    Half(usize),
}

fn lose(world: &mut World, loss: Loss, rail: u16) {
    match loss {
        Loss::Both => world.fabric.cut(rail, Peer(0), Peer(1)),
        Loss::Half(me) => world.engines[me].drop_rail(Peer(1 - me as u32), RailId(rail)),
    }
}

/// A few messages of mixed lengths each way, with one of `len` in the middle; the loss after `stage` polls.
fn run(
    name: &str,
    rails: &[Profile],
    len: usize,
    mode: Mode,
    stage: usize,
    loss: Loss,
    posted: bool,
) {
    let name = format!("{name}: {mode:?} {len} bytes, stage {stage}, {loss:?}, posted {posted}");
    let mut world = World::new(2, rails);
    let lens = [8, len, 40, 5000, len];
    let mut sends = Vec::new();
    let mut receives = Vec::new();
    let post = |world: &mut World, receives: &mut Vec<_>| {
        for me in [0, 1] {
            for (i, len) in (0..).zip(lens) {
                let into = Memory::zeroed(len);
                let request = world.recv(me, &into, Source::Rank(1 - me), TagMatch::Any);
                receives.push((me, request, into, pattern(len, i + u64::from(me))));
            }
        }
    };
    if posted {
        post(&mut world, &mut receives);
    }
    for (i, len) in (0..).zip(lens) {
        for me in [0, 1] {
            let data = Memory::of(pattern(len, i + u64::from(1 - me)));
            sends.push((me, world.send(me, 1 - me, mode, &data, i as i32)));
        }
    }
    for me in [0u32, 1] {
        for i in 0..20 {
            let sent = world.engines[me as usize].send_control(Peer(1 - me), &pattern(3000, i));
            sent.expect("known");
        }
    }
    for _ in 0..stage {
        world.poll();
    }
    lose(&mut world, loss, 0);
    world.settle();
    if !posted {
        post(&mut world, &mut receives);
    }
    for (me, request, into, want) in receives {
        let completion = world.finish(me, request);
        assert_eq!(completion.result, Ok(()), "{name}");
        assert!(into.bytes() == want, "{name}: other bytes, tag {}", completion.status.tag);
    }
    for (me, sent) in sends {
        assert_eq!(world.finish_send(me, sent), Ok(()), "{name}");
    }
    for me in [0, 1] {
        let mut control = 0;
        for _ in 0..20 {
            while let Some((_, bytes)) = world.engines[me].take_control() {
                assert!(*bytes == pattern(3000, control), "{name}: control message {control}");
                control += 1;
            }
            world.settle();
        }
        assert_eq!(control, 20, "{name}");
        assert_eq!(world.engines[me].suspects().count(), 0, "{name}: the peer is still there");
        let stats = world.engines[me].stats();
        assert_eq!((stats.malformed, stats.overflowed), (0, 0), "{name}: {stats:?}");
    }
    assert!((0..2).all(|me| world.engines[me].unflushed() == 0), "{name}");
    assert_eq!(world.fabric.registered(), 0, "{name}");
}

#[test]
fn a_rail_lost_in_any_stage_costs_nothing() {
    for (name, rails) in rails() {
        for len in LENGTHS {
            for stage in 0..16 {
                let mode = MODES[stage % 3];
                run(name, &rails, len, mode, stage, Loss::Both, stage % 2 == 0);
                if rails[1].exclusivity == rails[0].exclusivity {
                    let loss = Loss::Half(stage / 2 % 2);
                    run(name, &rails, len, mode, stage, loss, stage % 3 != 0);
                }
            }
        }
    }
}

#[test]
fn the_only_rail_comes_back_and_everything_goes_on() {
    for profile in [Profile::lossy(), Profile::zcopy(), Profile::get(), Profile::put()] {
        for len in LENGTHS {
            for stage in 0..12 {
                let mut world = World::new(2, std::slice::from_ref(&profile));
                let (data, into) = (Memory::of(pattern(len, 1)), Memory::zeroed(len));
                let request = world.recv(0, &into, Source::Rank(1), TagMatch::Any);
                let sent = world.send(1, 0, MODES[stage % 3], &data, 1);
                for _ in 0..stage {
                    world.poll();
                }
                world.fabric.cut(0, Peer(0), Peer(1));
                world.settle();
                for me in [0, 1] {
                    assert_eq!(world.engines[me].suspects().count(), 1);
                    assert!(world.engines[me].is_cut_off(Peer(1 - me as u32)));
                    assert!(world.engines[me].has_lost_rails());
                    world.engines[me].heal();
                    assert!(world.engines[me].is_cut_off(Peer(1 - me as u32)), "it is still cut");
                }
                world.fabric.mend(0, Peer(0), Peer(1));
                world.engines[stage % 2].heal();
                assert_eq!(world.finish(0, request).result, Ok(()), "{len} bytes, stage {stage}");
                assert!(into.bytes() == pattern(len, 1), "{len} bytes, stage {stage}");
                assert_eq!(world.finish_send(1, sent), Ok(()), "{len} bytes, stage {stage}");
                for me in [0, 1] {
                    assert!(!world.engines[me].is_cut_off(Peer(1 - me as u32)));
                    assert_eq!(world.engines[me].stats().healed, 1);
                    assert_eq!(world.engines[me].stats().malformed, 0);
                }
                assert_eq!(world.fabric.registered(), 0);
            }
        }
    }
}

#[test]
fn rails_fail_and_heal_in_turn_under_a_long_exchange() {
    let rails = [Profile::zcopy(), Profile::put(), Profile::lossy()];
    for seed in 0..6 {
        let mut world = World::new(2, &rails);
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for round in 0..24u16 {
            for me in [0, 1] {
                let len = LENGTHS[(usize::from(round) * 7 + seed + me as usize) % 4];
                let (data, into) = (Memory::of(pattern(len, round.into())), Memory::zeroed(len));
                sends.push((me, world.send(me, 1 - me, MODES[usize::from(round) % 3], &data, 1)));
                let request = world.recv(1 - me, &into, Source::Rank(me), TagMatch::Tag(1));
                receives.push((1 - me, request, into, pattern(len, round.into())));
            }
            for _ in 0..(seed + 1) {
                world.poll();
            }
            let lost = (round + seed as u16) % 3;
            world.fabric.cut(lost, Peer(0), Peer(1));
            world.poll();
            world.poll();
            world.fabric.mend(lost, Peer(0), Peer(1));
            for me in [0, 1] {
                world.engines[me].heal();
            }
        }
        for (me, request, into, want) in receives {
            assert_eq!(world.finish(me, request).result, Ok(()), "seed {seed}");
            assert!(into.bytes() == want, "seed {seed}");
        }
        for (me, sent) in sends {
            assert_eq!(world.finish_send(me, sent), Ok(()), "seed {seed}");
        }
        let stats = world.engines[0].stats();
        assert!(stats.healed > 6 && stats.malformed == 0, "seed {seed}: {stats:?}");
    }
}

#[test]
fn a_rail_that_cannot_be_lost_is_not_mended() {
    let mut world = World::new(2, &[Profile::copied(), Profile::lossy()]);
    let _ = world.send(0, 1, Mode::Standard, &Memory::of(pattern(8, 1)), 1);
    world.fabric.cut(0, Peer(0), Peer(1));
    world.settle();
    for me in [0, 1] {
        assert_eq!(world.engines[me].suspects().count(), 1);
        assert!(world.engines[me].is_cut_off(Peer(1 - me as u32)));
    }
}

/// Its sender does not wait for the receiver, and what it does with its buffer afterwards changes nothing.
#[test]
fn a_lone_message_is_over_when_the_rail_has_it_and_survives_the_rail() {
    let mut world = World::new(2, &[Profile::zcopy(), Profile::lossy()]);
    let (data, into) = (Memory::of(pattern(10_000, 1)), Memory::zeroed(10_000));
    let Started::Pending(sent) = world.send(0, 1, Mode::Standard, &data, 1) else {
        panic!("the rail holds the buffer for a while");
    };
    for _ in 0..4 {
        world.engines[0].progress();
    }
    let completion = world.engines[0].test(sent).expect("over without a word of the receiver");
    assert_eq!(completion.result, Ok(()));
    data.region().write(0, &[0; 10_000]);
    world.fabric.cut(0, Peer(0), Peer(1));
    let request = world.recv(1, &into, Source::Rank(0), TagMatch::Tag(1));
    assert_eq!(world.finish(1, request).result, Ok(()));
    assert!(into.bytes() == pattern(10_000, 1));
    assert_eq!(world.engines[0].unflushed(), 0);
}

#[test]
fn small_messages_over_a_lossy_rail_are_kept_within_bounds() {
    let mut world = World::new(2, &[Profile { room: 1 << 20, ..Profile::lossy() }]);
    let (data, comm) = (Memory::of(pattern(8, 1)), world.comms[0]);
    let sends: Vec<_> = (0..5000)
        .map(|_| world.engines[0].send(comm, Mode::Standard, &data.payload(), 1, 1).expect("right"))
        .collect();
    // The peer says nothing: what is not acknowledged is bounded, the rest waits.
    for _ in 0..100 {
        world.engines[0].progress();
    }
    assert!(world.fabric.waiting(Peer(0), Peer(1)) <= 1030);
    for _ in 0..5000 {
        let request = world.recv(1, &Memory::zeroed(8), Source::Any, TagMatch::Any);
        assert_eq!(world.finish(1, request).result, Ok(()));
    }
    for sent in sends {
        assert_eq!(world.finish_send(0, sent), Ok(()));
    }
}
