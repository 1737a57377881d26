//! A few small simulations of the whole stack, and the oracle's own tests. Many seeds and 1,000 ranks: `ci/sim`.

mod sim;

#[test]
fn small_worlds_keep_the_laws() {
    for seed in 0..60 {
        if let Err(why) = sim::run(seed, 24, 30) {
            panic!("{why}");
        }
    }
}

#[test]
fn a_seed_replays_exactly() {
    let once = sim::run(3, 16, 20).expect("the laws hold");
    let again = sim::run(3, 16, 20).expect("the laws hold");
    assert_eq!(format!("{once:?}"), format!("{again:?}"));
}
