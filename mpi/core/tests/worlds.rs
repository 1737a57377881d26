//! Worlds in virtual time: creations, collectives, revokes, agreements and shrinks, with and without deaths.

mod world;

use world::{Moment, Plan, Summary, Trouble, run};

/// `IRONWEAVE_CORE_SIM=seed,ranks,blocks,deaths` runs that one world instead.
fn replay(test: &'static str) -> Option<Plan> {
    let text = std::env::var("IRONWEAVE_CORE_SIM").ok()?;
    let numbers: Vec<u64> = text.split(',').filter_map(|part| part.parse().ok()).collect();
    let &[seed, ranks, blocks, deaths] = &numbers[..] else {
        panic!("IRONWEAVE_CORE_SIM: seed,ranks,blocks,deaths, not {text:?}");
    };
    Some(Plan::new(test, seed, ranks as u32, blocks as u32, deaths as u32))
}

/// One world says nothing about how much happens in all.
fn is_replayed() -> bool {
    std::env::var_os("IRONWEAVE_CORE_SIM").is_some()
}

/// How many times the usual number of worlds: `IRONWEAVE_CORE_SIM_BUDGET`.
fn budget() -> u64 {
    let text = std::env::var("IRONWEAVE_CORE_SIM_BUDGET").ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn worlds(test: &'static str, plans: impl Iterator<Item = Plan>) -> Summary {
    let mut all = Summary::default();
    let mut one = |plan| match run(plan) {
        Ok(done) => {
            all.events += done.events;
            all.killed += done.killed;
            all.fenced += done.fenced;
            all.made += done.made;
            all.errors += done.errors;
            all.agreed += done.agreed;
            all.summonses += done.summonses;
        }
        Err(why) => panic!("{why}"),
    };
    match replay(test) {
        Some(plan) => one(plan),
        None => plans.for_each(one),
    }
    println!("{test}: {all:?}");
    all
}

#[test]
fn without_deaths_everything_succeeds() {
    const TEST: &str = "without_deaths_everything_succeeds";
    let plans = (0..30 * budget()).map(|seed| {
        let mut plan = Plan::new(TEST, seed, 1 + seed as u32 % 20, 4, 0);
        plan.blocks.iter_mut().for_each(|b| b.retain(|op| !matches!(op, world::Op::Revoke(_))));
        plan
    });
    let all = worlds(TEST, plans);
    assert_eq!(all.errors, 0);
    assert!(is_replayed() || all.made > 30);
}

#[test]
fn with_deaths_nothing_hangs_and_all_see_the_same() {
    const TEST: &str = "with_deaths_nothing_hangs_and_all_see_the_same";
    let plans = (0..120 * budget()).map(|seed| {
        let ranks = 2 + seed as u32 * 7 % 23;
        Plan::new(TEST, seed, ranks, 3, 1 + seed as u32 % 5)
    });
    let all = worlds(TEST, plans);
    assert!(is_replayed() || (all.killed > 100 && all.errors > 100));
}

#[test]
fn hundreds_of_ranks_recover() {
    const TEST: &str = "hundreds_of_ranks_recover";
    let plans = (0..budget()).map(|seed| Plan::new(TEST, seed, 200, 2, 4));
    let all = worlds(TEST, plans);
    assert!(is_replayed() || all.killed > 0);
}

/// As `ironweave-core-sim` does with thousands.
#[test]
fn disasters_strike_at_any_moment() {
    const TEST: &str = "disasters_strike_at_any_moment";
    let plans = (0..24 * budget()).map(|seed| {
        let at = |of: usize, every: u64| (seed / every) as usize % of;
        let (moment, trouble) = (Moment::ALL[at(4, 1)], Trouble::ALL[at(3, 4)]);
        Plan::disaster(seed, 40 + seed as u32 % 40, moment, trouble, None)
    });
    let all = worlds(TEST, plans);
    assert!(all.killed > 100 && all.fenced > 10);
}

#[test]
fn a_world_replays_exactly() {
    let plan = || Plan::new("a_world_replays_exactly", 2, 16, 3, 3);
    assert_eq!(run(plan()).expect("the laws hold"), run(plan()).expect("the laws hold"));
}
