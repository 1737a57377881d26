//! Frames that no honest plane sends (law 9): honest traffic, changed on its way. Nothing may panic, grow without bound, or
//! be believed that excludes or revokes what the changed bytes do not name.

use ironweave_ft::{CommKey, Contribution, Effect, Frame, Group, Plane, PlaneConfig, Scope};
use proptest::prelude::*;

const SIZE: u32 = 6;
const KEY: CommKey = CommKey { cid: 2, epoch: 9 };

#[derive(Clone, Debug)]
enum Harm {
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Append(Vec<u8>),
    Twice,
    From(u32),
    Garbage(Vec<u8>),
    Lose,
}

fn harm() -> impl Strategy<Value = Option<Harm>> {
    let bytes = || proptest::collection::vec(any::<u8>(), 1..80);
    let harm = prop_oneof![
        (any::<prop::sample::Index>(), 1u8..).prop_map(|(at, with)| Harm::Flip(at, with)),
        any::<prop::sample::Index>().prop_map(Harm::Cut),
        bytes().prop_map(Harm::Append),
        Just(Harm::Twice),
        (0..SIZE + 2).prop_map(Harm::From),
        bytes().prop_map(Harm::Garbage),
        Just(Harm::Lose),
    ];
    proptest::option::weighted(0.3, harm)
}

fn receive(plane: &mut Plane, from: u32, frame: &[u8], harm: Option<&Harm>) {
    let mut changed = Frame::from_slice(frame);
    match harm {
        None => {}
        Some(Harm::Flip(at, with)) => {
            let at = at.index(changed.len());
            changed[at] ^= with;
        }
        Some(Harm::Cut(at)) => changed.truncate(at.index(changed.len() + 1)),
        Some(Harm::Append(more)) => changed.extend_from_slice(more),
        Some(Harm::Twice) => plane.receive(from, frame, 1),
        Some(Harm::From(other)) => return plane.receive(*other, frame, 1),
        Some(Harm::Garbage(bytes)) => return plane.receive(from, bytes, 1),
        Some(Harm::Lose) => return,
    }
    plane.receive(from, &changed, 1);
}

proptest! {
    #[test]
    fn changed_traffic_breaks_nothing(harms in proptest::collection::vec(harm(), 400), fan in 2u32..5, dead in 0u32..4) {
        let config = PlaneConfig { fan, early_bytes: 4096, ..PlaneConfig::default() };
        let mut planes: Vec<Plane> = (0..SIZE).map(|me| Plane::new(me, SIZE, config)).collect();
        for (me, plane) in planes.iter_mut().enumerate() {
            // Some come late to the communicator.
            if me % 3 != 2 {
                plane.add_comm(KEY, Group::world(SIZE), 0);
            }
        }
        if dead > 0 {
            planes[0].failed(dead, 0);
        }
        let mut harms = harms.iter();
        for round in 0..20u64 {
            for me in 0..SIZE {
                let plane = &mut planes[me as usize];
                match (round, me % 3) {
                    (3, 2) => plane.add_comm(KEY, Group::world(SIZE), round),
                    (1, 0 | 1) | (4, 2) => plane.agree(KEY, 0, Contribution::default(), round),
                    (6, 1) => {
                        plane.revoke(KEY, Scope::Collectives, round);
                    }
                    (7, _) => plane.agree(KEY, 1, Contribution::default(), round),
                    _ => {}
                }
                plane.tick(round);
                while let Some(effect) = planes[me as usize].poll_effect() {
                    if let Effect::Send { to, bytes } = effect {
                        prop_assert!(to < SIZE && to != me);
                        let harm = harms.next().and_then(Option::as_ref);
                        receive(&mut planes[to as usize], me, &bytes, harm);
                    }
                }
            }
        }
        prop_assert!(planes.iter().all(|plane| plane.comms() <= 1));
        prop_assert!(planes.iter().enumerate().all(|(me, plane)| !plane.dead().contains(me as u32)));
    }
}

/// What a peer can make a plane keep is bounded: messages for communicators that never come, agreements far ahead.
#[test]
fn strangers_fill_no_memory() {
    let config = PlaneConfig { early_bytes: 1000, ..PlaneConfig::default() };
    let mut plane = Plane::new(0, 8, config);
    plane.add_comm(KEY, Group::world(8), 0);
    // A revocation of each communicator that could be: version 1, kind 2, scope 2.
    for cid in 100..10_000u16 {
        let [low, high] = cid.to_le_bytes();
        plane.receive(1, &[0x12, 2, 0, 0, low, high, 0, 0], 0);
    }
    assert_eq!(plane.counters().malformed, 9_900 - 1000 / 8);
    // Confirmations of agreements that this process never begins: kind 4.
    let mut frame = [0u8; 32];
    frame[0] = 0x14;
    frame[4] = 2;
    frame[6] = 9;
    let before = plane.counters().malformed;
    for seq in 0..5_000u64 {
        frame[8..16].copy_from_slice(&seq.to_le_bytes());
        plane.receive(1, &frame, 0);
    }
    assert_eq!(plane.counters().malformed - before, 5_000 - 1024);
}
