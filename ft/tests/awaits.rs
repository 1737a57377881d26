//! Who waits for an agreement may look for what it awaits and for nothing else: that ends it.

use ironweave_ft::{CommKey, Contribution, Effect, Frame, Group, Plane, PlaneConfig};
use std::collections::{HashMap, VecDeque};

const KEY: CommKey = CommKey { cid: 0, epoch: 0 };

/// What planes have sent, by sender and receiver.
type Wires = HashMap<(u32, u32), VecDeque<Frame>>;

/// Carries out what a plane wants; the flag that was agreed on, if it was.
fn carry_out(me: u32, plane: &mut Plane, wires: &mut Wires) -> Option<u64> {
    let mut decided = None;
    while let Some(effect) = plane.poll_effect() {
        match effect {
            Effect::Send { to, bytes } => wires.entry((me, to)).or_default().push_back(bytes),
            Effect::Decided(value) => decided = Some(value.flag),
            Effect::Failed { processes, source } => plane.failed_from(&processes, source, 0),
            other => panic!("process {me}: {other:?}"),
        }
    }
    decided
}

/// All but the `dead` agree, and each takes only what it awaits, one message at a time, the others' in between.
fn agree(size: u32, fan: u32, dead: &[u32]) {
    let config = PlaneConfig { fan, ..PlaneConfig::default() };
    let mut planes: Vec<Plane> = (0..size).map(|me| Plane::new(me, size, config)).collect();
    let living: Vec<u32> = (0..size).filter(|me| !dead.contains(me)).collect();
    let (mut wires, mut decided) = (Wires::new(), HashMap::new());
    for &me in &living {
        let plane = &mut planes[me as usize];
        plane.add_comm(KEY, Group::world(size), 0);
        plane.failed_all(dead, 0);
        assert_eq!(plane.awaits(KEY, 0).count(), 0, "nothing is begun");
    }
    // Of notices about the dead nobody needs to hear, since all know.
    for &me in &living {
        assert_eq!(carry_out(me, &mut planes[me as usize], &mut wires), None);
    }
    wires.clear();
    for &me in &living {
        let flag = Contribution { flag: !(1 << me), ..Contribution::default() };
        planes[me as usize].agree(KEY, 0, flag, 0);
    }
    while decided.len() < living.len() {
        let mut moved = 0;
        for &me in &living {
            let plane = &mut planes[me as usize];
            let flag = carry_out(me, plane, &mut wires);
            moved += usize::from(flag.is_some());
            decided.extend(flag.map(|flag| (me, flag)));
            let awaited: Vec<u32> = plane.awaits(KEY, 0).collect();
            assert_eq!(awaited.is_empty(), decided.contains_key(&me), "process {me}");
            assert!(awaited.iter().all(|other| *other != me && !dead.contains(other)));
            let there = |from: &u32| wires.get(&(*from, me)).is_some_and(|wire| !wire.is_empty());
            let Some(from) = awaited.into_iter().rfind(there) else { continue };
            let wire = wires.get_mut(&(from, me)).expect("something is there");
            plane.receive(from, &wire.pop_front().expect("something is there"), 0);
            moved += 1;
        }
        assert!(moved > 0, "{size} with a fan of {fan}: {} have decided", decided.len());
    }
    let all = living.iter().fold(!0, |all, me| all & !(1 << me));
    assert!(decided.values().all(|flag| *flag == all), "{decided:?}");
}

#[test]
fn an_agreement_ends_by_what_it_awaits() {
    for size in 1..40 {
        for fan in [2, 3, 4, 8] {
            agree(size, fan, &[]);
            if size > 5 {
                agree(size, fan, &[1, 4]);
            }
        }
    }
}
