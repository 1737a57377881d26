//! The control plane alone, simulated: a few runs here, as many as wanted by `ironweave-ft-sim` (an example).
//! `IRONWEAVE_FT_SIM_SEEDS=n` runs more of the small ones.

mod sim;

use sim::Trouble;

fn all(seeds: std::ops::Range<u64>, ranks: u32, trouble: Option<Trouble>) {
    for seed in seeds {
        if let Err(why) = sim::run(seed, ranks, trouble) {
            panic!("{why}");
        }
    }
}

fn seeds() -> u64 {
    std::env::var("IRONWEAVE_FT_SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(25)
}

#[test]
fn small_jobs_in_trouble() {
    for ranks in [1, 2, 3, 5, 8, 17, 100] {
        all(0..seeds(), ranks, None);
    }
}

#[test]
fn five_hundred_lose_a_half() {
    all(0..2, 500, Some(Trouble::Half));
}

#[test]
fn four_thousand_lose_a_few() {
    all(1..3, 4096, Some(Trouble::Few));
}
