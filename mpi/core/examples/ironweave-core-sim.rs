//! Simulates whole stacks in virtual time, thousands of ranks: failures, cascades and false suspicions in the middle of
//! creations, revokes, agreements and shrinks, seed after seed, until the time is up or a law is broken.

#[path = "../tests/world/mod.rs"]
mod world;

use clap::Parser;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use world::{Moment, Op, Plan, Trouble, run};

/// Disasters, held against laws 4, 5 and 7: all survivors return, know all deaths and have the same groups.
#[derive(Parser)]
#[command(name = "ironweave-core-sim")]
struct Arguments {
    /// Run this seed only.
    #[arg(long)]
    seed: Option<u64>,
    /// The first of many seeds.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many seeds: each moment with each kind of trouble takes twelve.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// Stop after the seed in which this many seconds are over.
    #[arg(long, env = "IRONWEAVE_SIM_BUDGET", default_value_t = 600)]
    budget: u64,
    /// Processes.
    #[arg(long, default_value_t = 4096)]
    ranks: u32,
    /// Only this moment: creation, revoke, agree or shrink.
    #[arg(long, value_parser = |name: &str| named(name, &Moment::ALL))]
    moment: Option<Moment>,
    /// Only this trouble: few (deaths), suspicion (of the living) or half (of all die).
    #[arg(long, value_parser = |name: &str| named(name, &Trouble::ALL))]
    trouble: Option<Trouble>,
    /// Only creations of this kind: dup, dups, create, create-group, split or inter.
    #[arg(long, value_parser = creation)]
    creation: Option<Op>,
}

/// The one of `all` with this name.
fn named<T: Copy + std::fmt::Debug>(name: &str, all: &[T]) -> Result<T, String> {
    let is = |one: &&T| format!("{one:?}").eq_ignore_ascii_case(name);
    all.iter().find(is).copied().ok_or_else(|| format!("one of {all:?}"))
}

fn creation(name: &str) -> Result<Op, String> {
    let found = Op::CREATIONS.iter().find(|(known, _)| *known == name);
    found.map(|(_, op)| *op).ok_or_else(|| format!("one of {:?}", Op::CREATIONS.map(|(n, _)| n)))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let start = Instant::now();
    let seeds = match arguments.seed {
        Some(seed) => seed..seed + 1,
        None => arguments.from..arguments.from + arguments.seeds,
    };
    let (mut done, mut events, mut killed, mut fenced) = (0_u32, 0, 0, 0);
    for seed in seeds {
        // A different pair for each of twelve seeds, and all kinds of trouble soon.
        let moment = arguments.moment.unwrap_or(Moment::ALL[seed as usize % 4]);
        let trouble = arguments.trouble.unwrap_or(Trouble::ALL[seed as usize % 3]);
        let plan = Plan::disaster(seed, arguments.ranks, moment, trouble, arguments.creation);
        let began = Instant::now();
        match run(plan) {
            Ok(summary) => {
                println!("{seed}: {moment:?}, {trouble:?}: {summary:?} in {:?}", began.elapsed());
                events += summary.events;
                killed += summary.killed;
                fenced += summary.fenced;
            }
            Err(why) => {
                eprintln!("{why}");
                return ExitCode::FAILURE;
            }
        }
        done += 1;
        if start.elapsed() >= Duration::from_secs(arguments.budget) {
            break;
        }
    }
    println!(
        "simulated {done} worlds of {} ranks in {:.1} s: {events} events, {killed} processes killed, {fenced} \
         wrongly held for dead, no law broken",
        arguments.ranks,
        start.elapsed().as_secs_f64(),
    );
    ExitCode::SUCCESS
}
