//! Creations of which one round of choosing an id is not enough, struck before, in, between and after the two.

use super::*;

/// What strikes a creation of which one round is not enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Blow {
    Death,
    Revoke,
}

/// At two members the ids of the first window are in use by turns: none is free at all. Freed ones have had their first epoch.
fn leave_no_common_id(cluster: &mut Cluster) {
    const WINDOW: u16 = 60;
    let both = [0, 1];
    let mut own: [Vec<(u16, CommHandle)>; 2] = Default::default();
    // Each tag looks at a random half of the window.
    for tag in 0..40 {
        for (me, own) in both.into_iter().zip(&mut own) {
            for _ in 0..4 {
                let now = cluster.now();
                let core = cluster.core(me);
                let (world, alone) = (core.world(), Group::range(me, 1));
                let task = core.icreate_group(world, &alone, tag, now).expect("world is there");
                cluster.settle();
                let comm = comm_of(&cluster.outcomes(&[(me, task)])[0]);
                let (cid, _) = cluster.core(me).identity(comm).expect("in use");
                own.push((cid, comm));
            }
        }
    }
    for (me, own) in both.into_iter().zip(own) {
        let here = own.iter().filter(|(cid, _)| *cid < WINDOW).count();
        assert_eq!(here, usize::from(WINDOW) - 2, "all but the ids of world and self");
        for (cid, comm) in own {
            if cid >= WINDOW || u32::from(cid) % 2 == me {
                cluster.core(me).free(comm).expect("in use");
            }
        }
    }
    cluster.settle();
}

/// A member dies, or the parent is revoked, before, in, between and after the two rounds.
fn two_rounds(blow: Blow) {
    const SIZE: u32 = 6;
    // By kind of creation: made, ended, and struck after somebody knew that there is to be another round.
    let mut counts = [[0; 3]; 3];
    for turns in 0..300 {
        let kind = turns % 3;
        let mut cluster = Cluster::new(SIZE, turns as u64);
        leave_no_common_id(&mut cluster);
        let repeated = |cluster: &mut Cluster| cluster.all(|core, _, _| core.rounds_repeated());
        // They know the ways to each other, so that turns are rounds and not connections.
        let first = cluster.all(|core, me, now| {
            (me, core.isplit(core.world(), None, 0, now).expect("world is there"))
        });
        cluster.settle();
        cluster.outcomes(&first);
        // What the communicators of one took, and this.
        let before = repeated(&mut cluster);
        let tasks = cluster.all(|core, me, now| {
            let task = match kind {
                0 => core.idup(core.world(), none(), None, now),
                1 => core.isplit(core.world(), Some(0), -(me as i32), now),
                _ => core.icreate_group(core.world(), &Group::range(0, SIZE), 99, now),
            };
            (me, task.expect("world is there"))
        });
        cluster.turns(turns);
        let over = tasks.iter().filter(|&&(me, task)| cluster.core(me).is_over(task)).count();
        let between = repeated(&mut cluster) != before && over == 0;
        // Also one of the two whose ids are in the way.
        let struck = turns as u32 / 3 % SIZE;
        match blow {
            Blow::Death => cluster.kill(struck),
            Blow::Revoke => {
                let now = cluster.now();
                let core = cluster.core(struck);
                core.revoke(core.world(), now).expect("world is there");
            }
        }
        cluster.settle();
        let made = cluster.made(&tasks);
        let [all_made, ended, amid] = &mut counts[kind];
        *amid += u32::from(between);
        match made {
            None => *ended += 1,
            Some(comms) => {
                *all_made += 1;
                let living = cluster.living();
                let mut names = living.iter().zip(&comms).map(|(&me, &comm)| {
                    cluster.cores[me as usize].as_ref().expect("it lives").identity(comm)
                });
                let first = names.next().expect("somebody lives").expect("in use");
                assert!(names.all(|name| name == Ok(first)), "{kind} {turns}: two names");
                // Of the dead one nobody knows what it had in use, if it died early.
                if blow == Blow::Revoke || struck > 1 {
                    assert!(first.0 >= 60, "the first window had no free id: {first:?}");
                    let after = repeated(&mut cluster);
                    let before = living.iter().map(|&me| before[me as usize]);
                    assert!(before.zip(after).all(|(before, after)| before < after), "one round");
                }
            }
        }
        // What is left works, twice.
        for _ in 0..2 {
            let shrinks =
                cluster.all(|core, me, now| (me, core.ishrink(core.world(), now).expect("there")));
            cluster.settle();
            cluster.outcomes(&shrinks).iter().for_each(|outcome| _ = comm_of(outcome));
        }
    }
    println!(
        "{blow:?}: made, ended, struck between the rounds, of dup, split, create_group: {counts:?}"
    );
    for [made, ended, between] in counts {
        assert!(made > 10 && ended > 10 && between > 10, "{counts:?}");
    }
}

#[test]
fn a_death_between_two_rounds_of_a_creation_is_the_same_for_all() {
    two_rounds(Blow::Death);
}

#[test]
fn a_revoke_between_two_rounds_of_a_creation_is_the_same_for_all() {
    two_rounds(Blow::Revoke);
}
