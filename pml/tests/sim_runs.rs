//! A few small simulations of the whole stack, and the oracle's own tests. Many seeds and 1,000 ranks: `ci/sim`.

mod sim;

#[test]
fn small_worlds_keep_the_laws() {
    let mut all = sim::Summary::default();
    for seed in 0..60 {
        match sim::run(seed, 24, 30, false) {
            Ok(summary) => all.add(summary),
            Err(why) => panic!("{why}"),
        }
    }
    println!("{all:?}");
    assert!(all.withdrawn > 100, "sends were cancelled");
    assert!(all.killed > 10 && all.failed > 100, "processes died, and receives ended by it");
    assert!(
        all.revoked > 10 && all.nacks > 100,
        "groups were revoked, also before what was sent arrived"
    );
    assert!(all.stale > 10, "frames came that were for what was over");
    assert!(all.duplicates > 100, "messages came twice");
    assert!(all.healed > 100 && all.restarts > 10 && all.parted > 10, "rails were lost");
}

#[test]
fn a_seed_replays_exactly() {
    let once = sim::run(3, 16, 20, false).expect("the laws hold");
    let again = sim::run(3, 16, 20, false).expect("the laws hold");
    assert_eq!(format!("{once:?}"), format!("{again:?}"));
}

#[test]
fn a_broken_law_is_seen() {
    use sim::Sabotage::{Damage, LateWrite, Loss};
    for kind in [Damage, Loss, LateWrite] {
        let (mut done, mut seen) = (0, 0);
        for seed in 0..20 {
            if let Some(is_seen) = sim::is_seen(kind, seed) {
                done += 1;
                seen += u32::from(is_seen);
            }
        }
        // What happens to a message that nobody looks at is not seen: cancelled, truncated, or all bytes alike.
        println!("{kind:?}: done in {done} of 20 worlds, seen in {seen}");
        assert!(
            done >= 5 && seen * 3 >= done * 2,
            "{kind:?} was done {done} times and seen {seen} times"
        );
    }
}
