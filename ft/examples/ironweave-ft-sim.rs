//! Simulates the control plane alone, seed after seed, until the time is up or a law is broken.

#[path = "../tests/sim/mod.rs"]
mod sim;

use clap::{Parser, ValueEnum};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, ValueEnum)]
enum Trouble {
    None,
    Few,
    Host,
    Half,
}

/// Failures during agreements, revocations and shrinks in virtual time: what is returned is the same everywhere (law 7), every
/// survivor knows every failure and revocation, and comes to the end. No messages of users are sent and no ids are
/// chosen: law 5 is for ironweave-sim (ci/sim), creations of communicators are for ironweave-core-sim (ci/worlds).
#[derive(Parser)]
#[command(name = "ironweave-ft-sim")]
struct Arguments {
    /// Run this seed only.
    #[arg(long)]
    seed: Option<u64>,
    /// The first of many seeds.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// Stop after the seed in which this many seconds are over.
    #[arg(long, env = "IRONWEAVE_SIM_BUDGET", default_value_t = 600)]
    budget: u64,
    /// Processes.
    #[arg(long, default_value_t = 4096)]
    ranks: u32,
    /// How much fails; by the seed unless told.
    #[arg(long)]
    trouble: Option<Trouble>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let start = Instant::now();
    let seeds = match arguments.seed {
        Some(seed) => seed..seed + 1,
        None => arguments.from..arguments.from + arguments.seeds,
    };
    let trouble = arguments.trouble.map(|trouble| match trouble {
        Trouble::None => sim::Trouble::None,
        Trouble::Few => sim::Trouble::Few,
        Trouble::Host => sim::Trouble::Host,
        Trouble::Half => sim::Trouble::Half,
    });
    let (mut done, mut broken) = (0, 0);
    let mut total = sim::Summary::default();
    for seed in seeds {
        match sim::run(seed, arguments.ranks, trouble) {
            Ok(summary) => {
                total.add(summary);
                if arguments.seed.is_some() {
                    println!("{summary:?}");
                }
            }
            Err(why) => {
                eprintln!("{why}");
                broken += 1;
                break;
            }
        }
        done += 1;
        if start.elapsed() >= Duration::from_secs(arguments.budget) {
            break;
        }
    }
    println!(
        "simulated {done} seeds of {} ranks in {:.1} s ({:.2} s each): {} messages, {} events, {} processes killed, \
         {} wrongly held for dead, {broken} laws broken",
        arguments.ranks,
        start.elapsed().as_secs_f64(),
        start.elapsed().as_secs_f64() / f64::from(done.max(1)),
        total.messages,
        total.events,
        total.killed,
        total.accused,
    );
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
