//! The control plane alone, simulated: a few runs here, as many as wanted by `ironweave-ft-sim` (an example).
//! `IRONWEAVE_FT_SIM_SEEDS=n` runs more of the small ones.

mod sim;

use sim::{Summary, Trouble};

fn all(seeds: std::ops::Range<u64>, ranks: u32, trouble: Option<Trouble>) -> Summary {
    let mut all = Summary::default();
    for seed in seeds {
        match sim::run(seed, ranks, trouble) {
            Ok(done) => all.add(done),
            Err(why) => panic!("{why}"),
        }
    }
    println!("{ranks} ranks: {all:?}");
    all
}

fn seeds() -> u64 {
    std::env::var("IRONWEAVE_FT_SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(25)
}

#[test]
fn small_jobs_in_trouble() {
    let mut sum = Summary::default();
    for ranks in [1, 2, 3, 5, 8, 17, 100] {
        sum.add(all(0..seeds(), ranks, None));
    }
    println!("{sum:?}");
    if seeds() >= 25 {
        assert!(
            sum.killed > 100 && sum.accused > 10,
            "processes died, and the living were accused"
        );
        assert!(sum.with_failures > 500 && sum.shrunk > 100, "while others agreed and shrank");
        assert!(sum.revoked > 500, "and revoked");
    }
}

#[test]
fn five_hundred_lose_a_half() {
    let all = all(0..2, 500, Some(Trouble::Half));
    assert!(all.killed >= 250 && all.shrunk > 100 && all.survivors > 500);
}

#[test]
fn four_thousand_lose_a_few() {
    let all = all(1..3, 4096, Some(Trouble::Few));
    assert!(all.killed >= 2 && all.with_failures > 4096 && all.revoked > 4096 && all.shrunk > 2048);
}
