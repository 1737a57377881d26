//! `benches/compare`: ours beside the peers in one run, a line a row (issue: "Side by side"; README.md says how to read it).
//!
//! It builds the peers' program, runs everybody in turn and round after round, throws away what was measured while the
//! cores moved, and judges medians of the same core placement. A program that does not run is named with its reason.

mod launch;
mod machine;
mod peers;
mod report;
mod rows;
mod run;
mod samples;
mod why;

use clap::{Parser, ValueEnum};
use ironweave_benches::probe::{self, Kind};
use peers::{Family, PROGRAMS, Places, Program, build_command};
use report::{Entry, full_name};
use rows::ROWS;
use run::{BUSY, Bench, Runner};
use samples::Samples;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Compares Ironweave with other MPI libraries on this machine, a line a row.
#[derive(Parser, Debug)]
#[command(name = "compare")]
struct Options {
    /// Fewer rounds: under five minutes in all.
    #[arg(long)]
    quick: bool,
    /// Only rows whose name contains one of these.
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    rows: Vec<String>,
    /// Only peers whose name contains one of these.
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    peers: Vec<String>,
    /// Whether to measure our side.
    #[arg(long, value_enum, default_value = "ironweave")]
    ours: Ours,
    /// Rounds over all programs [default: 8, quick: 4].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Write the result to benches/RESULTS.md.
    #[arg(long)]
    record: bool,
    /// List rows and programs with their settings, and stop.
    #[arg(long)]
    list: bool,
    /// Say whether the first two cores are near or far now, and stop.
    #[arg(long)]
    probe: bool,
}

/// Rounds that rows about starting take part in: a launch gives them one figure, and 16 ranks take long.
const STARTS: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Ours {
    Ironweave,
    None,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.list {
        list();
        return ExitCode::SUCCESS;
    }
    if options.probe {
        return say_placement();
    }
    match compare(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("compare: {message}");
            ExitCode::FAILURE
        }
    }
}

fn list() {
    for row in ROWS {
        println!("{:18} {:22} goal={}", row.name, row.spec.to_string(), row.goal.text());
    }
    for program in PROGRAMS {
        println!("{:32} {}", full_name(program), program.settings());
    }
}

fn say_placement() -> ExitCode {
    let measured = probe::allowed_cpus().and_then(|cpus| match cpus[..] {
        [here, there, ..] => probe::hand_over(here, there).map(Some),
        _ => Ok(None),
    });
    match measured {
        Ok(Some(ns)) => println!("{ns:.1} ns: {}", Kind::of(ns, ns).map_or("?", Kind::name)),
        Ok(None) => println!("one core only"),
        Err(error) => {
            eprintln!("compare: cannot probe: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn compare(options: &Options) -> Result<(), String> {
    let started = Instant::now();
    let (rounds, reps, budget) = if options.quick { (4, 3, 215) } else { (8, 5, 1500) };
    let (rounds, budget) = (options.rounds.unwrap_or(rounds), Duration::from_secs(budget));
    let places = places()?;
    let wanted = chosen_rows(&options.rows)?;
    let mut runners = chosen_programs(options, &wanted, &places)?;
    println!("# {}", machine::description());
    wait_until_quiet();

    let bench = Bench { places, reps, deadline: started + budget };
    let mut samples = Samples::default();
    let mut notes = Vec::new();
    let mut round = 0;
    while round < rounds && Instant::now() < bench.deadline {
        let due = |runner: &Runner| round < STARTS || !runner.program.suite.is_start();
        for runner in runners.iter_mut().filter(|runner| runner.is_in() && due(runner)) {
            let rows = runner.rows.clone();
            bench.measure(runner, &rows, &mut samples);
        }
        round += 1;
        progress(&format!("round {round} of {rounds}"), started, &samples);
    }
    // Whoever is short of blocks in the kind its row is judged by gets another chance, as long as the time lasts.
    let mut extra = 0;
    while extra < rounds
        && Instant::now() < bench.deadline
        && bench.measure_short(&mut runners, &mut samples)
    {
        extra += 1;
        progress(&format!("extra round {extra}"), started, &samples);
    }
    if Instant::now() >= bench.deadline {
        notes.push(format!(
            "NOTE the time of {} s was over before all rounds were",
            budget.as_secs()
        ));
    }
    if samples.usage.others() > BUSY {
        let share = samples.usage.others() * 100.0;
        notes.push(format!(
            "NOTE others used {share:.0} % of the processors during the run: figures are noise"
        ));
    }
    notes.extend(runners.iter().filter_map(Runner::remark));
    if let Err(error) = std::fs::remove_dir_all(&bench.places.scratch) {
        notes.push(format!("NOTE temporary files of launchers were left: {error}"));
    }

    let entries: Vec<Entry> = wanted.iter().map(|index| entry(*index, &runners)).collect();
    let report = report::report(&samples, &entries, options.ours == Ours::Ironweave, notes);
    for text in report.lines.iter().chain(&report.notes) {
        println!("{text}");
    }
    println!("\n{}", report.table);
    let how = format!(
        "{round} rounds and {extra} extra of {reps} blocks, {} s; {} blocks kept, {} discarded because the cores moved",
        started.elapsed().as_secs(),
        samples.kept,
        samples.discarded
    );
    println!("# {how}");
    if options.record {
        let path = bench.places.source.with_file_name("RESULTS.md");
        std::fs::write(&path, report::results_page(&report, &how))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn progress(what: &str, started: Instant, samples: &Samples) {
    let (seconds, kept, discarded) = (started.elapsed().as_secs(), samples.kept, samples.discarded);
    eprintln!("# {what}, {seconds} s, {kept} blocks kept, {discarded} discarded");
}

fn places() -> Result<Places, String> {
    let benches = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = benches.parent().ok_or("the crate has no parent folder")?;
    // This program is TARGET/release/compare or TARGET/debug/compare.
    let exe = std::env::current_exe().map_err(|error| format!("cannot find myself: {error}"))?;
    let target = exe.ancestors().nth(2).ok_or("I am not in a target folder")?.to_path_buf();
    let scratch = target.join("compare-tmp");
    for folder in [&target.join("peers"), &scratch] {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    Ok(Places { venv: root.join(".venv"), target, source: benches.join("peers"), scratch })
}

fn chosen_rows(parts: &[String]) -> Result<Vec<usize>, String> {
    let chosen =
        |name: &str| parts.is_empty() || parts.iter().any(|part| name.contains(part.as_str()));
    let rows: Vec<usize> = (0..ROWS.len()).filter(|index| chosen(ROWS[*index].name)).collect();
    if rows.is_empty() {
        Err(format!("no row is named like {}; see --list", parts.join(", ")))
    } else {
        Ok(rows)
    }
}

fn chosen_programs(
    options: &Options,
    rows: &[usize],
    places: &Places,
) -> Result<Vec<Runner>, String> {
    let mut broken = Vec::new();
    for family in Family::ALL {
        if let Some(command) = build_command(family, places)
            && let Err(reason) = launch::run(command, Duration::from_secs(120))
        {
            broken.push((family, reason));
        }
    }
    let asked = |program: &Program| match program.family {
        Family::Ours => options.ours == Ours::Ironweave,
        _ => {
            options.peers.is_empty()
                || options.peers.iter().any(|part| program.name.contains(part.as_str()))
        }
    };
    let runners: Vec<Runner> = PROGRAMS
        .iter()
        .filter(|program| asked(program))
        .map(|program| {
            let rows =
                rows.iter().copied().filter(|index| ROWS[*index].suite == program.suite).collect();
            let c = program.family != Family::Ours || program.suite.is_c();
            let failed = broken.iter().find(|(family, _)| c && *family == program.family);
            let missing = failed.map(|(_, reason)| format!("mpibench.c cannot be built: {reason}"));
            let missing = missing.or_else(|| program.missing(places));
            Runner { program, rows, failures: Vec::new(), missing }
        })
        .filter(|runner: &Runner| !runner.rows.is_empty())
        .collect();
    if runners.is_empty() {
        Err("nobody left to measure; see --list".to_owned())
    } else {
        Ok(runners)
    }
}

/// Gives others some time to finish; figures taken beside them are noise.
fn wait_until_quiet() {
    for look in 0..30 {
        if machine::busy_share(Duration::from_millis(300)) < BUSY {
            return;
        }
        if look == 0 {
            eprintln!("# others use the processors; waiting up to 10 s");
        }
    }
}

fn entry(index: usize, runners: &[Runner]) -> Entry {
    Entry {
        index,
        programs: runners
            .iter()
            .filter(|runner| runner.rows.contains(&index))
            .map(|runner| runner.program.name)
            .collect(),
    }
}
