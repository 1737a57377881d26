//! Simulates the whole point-to-point stack, seed after seed, until the time is up or a law is broken. `ci/sim` runs it.

#[path = "../tests/sim/mod.rs"]
mod sim;

use clap::Parser;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Random traffic and random deaths in virtual time, held against the laws of ARCHITECTURE.md.
#[derive(Parser)]
#[command(name = "ironweave-sim")]
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
    #[arg(long, default_value_t = 1000)]
    ranks: u32,
    /// Operations that each process starts.
    #[arg(long, default_value_t = 16)]
    operations: u32,
    /// Lose rails between living processes in every seed, not only in half of them.
    #[arg(long)]
    losses: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let start = Instant::now();
    let seeds = match arguments.seed {
        Some(seed) => seed..seed + 1,
        None => arguments.from..arguments.from + arguments.seeds,
    };
    let (mut done, mut failed) = (0, 0);
    let (mut messages, mut events, mut deaths, mut ended) = (0, 0, 0, 0);
    for seed in seeds {
        match sim::run(seed, arguments.ranks, arguments.operations, arguments.losses) {
            Ok(summary) => {
                messages += summary.messages;
                events += summary.events;
                deaths += summary.killed;
                ended += summary.failed;
                if arguments.seed.is_some() {
                    println!("{summary:?}");
                }
            }
            Err(why) => {
                eprintln!("{why}");
                failed += 1;
                break;
            }
        }
        done += 1;
        if start.elapsed() >= Duration::from_secs(arguments.budget) {
            break;
        }
    }
    println!(
        "simulated {done} seeds of {} ranks in {:.1} s ({:.2} s each): {messages} messages, {events} events, \
         {deaths} processes killed, {ended} receives ended by it, {failed} laws broken",
        arguments.ranks,
        start.elapsed().as_secs_f64(),
        start.elapsed().as_secs_f64() / f64::from(done.max(1)),
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
