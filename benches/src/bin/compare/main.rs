//! `benches/compare`: ours beside the peers in one run, a line a row (issue: "Side by side"; README.md says how to read it).
//!
//! It builds the peers' program, runs everybody in turn and round after round, throws away what was measured while the
//! cores moved, and judges medians of the same core placement. A program that does not run is named with its reason.

mod launch;
mod machine;
mod peers;
mod report;
mod rows;
mod samples;

use clap::{Parser, ValueEnum};
use ironweave_benches::lines::Line;
use ironweave_benches::probe::{self, Kind};
use ironweave_benches::spec::Spec;
use peers::{Family, PROGRAMS, Places, Program, build_command};
use report::{Entry, full_name};
use rows::{ROWS, Suite};
use samples::Samples;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Messages in flight of the windowed rows; `mpibench`'s default.
const WINDOW: usize = 64;

/// A launch is hung after this long; the slowest was seen to take 5 s.
const LAUNCH_LIMIT: Duration = Duration::from_secs(25);

/// A program is given up after this many launches without a figure.
const FAILURES: usize = 2;

/// Blocks of each program that a row wants in the kind it is judged by; short of it, extra rounds are run.
const WANTED_BLOCKS: usize = 5;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Ours {
    Ironweave,
    None,
}

/// One program with the rows it is to run and what became of it.
struct Runner {
    program: &'static Program,
    rows: Vec<usize>,
    failures: usize,
    /// Why it takes no further part.
    out: Option<String>,
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
    let (rounds, reps, budget) = if options.quick { (4, 3, 240) } else { (8, 5, 1500) };
    let (rounds, budget) = (options.rounds.unwrap_or(rounds), Duration::from_secs(budget));
    let places = places()?;
    let wanted = chosen_rows(&options.rows)?;
    let mut runners = chosen_programs(options, &wanted, &places)?;
    println!("# {}", machine::description());
    if !machine::raise_autogroup() {
        println!("# may not raise its share of the processor (/proc/self/autogroup)");
    }
    let mut notes = Vec::new();
    note_if_busy("before", &mut notes);

    let mut samples = Samples::default();
    let mut round = 0;
    while round < rounds && started.elapsed() < budget {
        for runner in runners.iter_mut().filter(|runner| runner.out.is_none()) {
            let rows = runner.rows.clone();
            measure(runner, &rows, reps, &places, &mut samples);
        }
        round += 1;
        eprintln!(
            "# round {round} of {rounds}, {} s, {} blocks kept, {} discarded",
            started.elapsed().as_secs(),
            samples.kept,
            samples.discarded
        );
    }
    // Whoever is short of blocks in the kind its row is judged by gets another chance, as long as the time lasts.
    let mut extra = 0;
    while extra < rounds
        && started.elapsed() < budget
        && measure_short(&mut runners, reps, &places, &mut samples)
    {
        extra += 1;
        eprintln!("# extra round {extra}, {} s", started.elapsed().as_secs());
    }
    note_if_busy("after", &mut notes);
    for runner in &runners {
        if let Some(reason) = &runner.out {
            notes.push(format!("SKIP {}: {reason}", full_name(runner.program)));
        }
    }
    if let Err(error) = std::fs::remove_dir_all(&places.scratch) {
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
        let path = places.source.with_file_name("RESULTS.md");
        std::fs::write(&path, report::results_page(&report, &how))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
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
    for family in Family::PEERS {
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
            let failed = broken.iter().find(|(family, _)| *family == program.family);
            let out = failed.map(|(_, reason)| format!("mpibench.c cannot be built: {reason}"));
            Runner { program, rows, failures: 0, out: out.or_else(|| program.missing(places)) }
        })
        .filter(|runner: &Runner| !runner.rows.is_empty())
        .collect();
    if runners.is_empty() {
        Err("nobody left to measure; see --list".to_owned())
    } else {
        Ok(runners)
    }
}

fn note_if_busy(when: &str, notes: &mut Vec<String>) {
    match machine::busy_share(Duration::from_millis(300)) {
        Some(share) if share > 0.1 => {
            let note = format!(
                "NOTE others used {:.0} % of the processors just {when} the run: figures are noise",
                share * 100.0
            );
            eprintln!("{note}");
            notes.push(note);
        }
        _ => {}
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

/// Launches one program over `rows` and keeps what it measured.
fn measure(
    runner: &mut Runner,
    rows: &[usize],
    reps: usize,
    places: &Places,
    samples: &mut Samples,
) {
    match launch_once(runner.program, rows, reps, places) {
        Ok(blocks) => {
            for (row, kind, value) in blocks {
                samples.add(row, runner.program.name, kind, value);
            }
        }
        Err(reason) => {
            eprintln!("# {}: {reason}", full_name(runner.program));
            runner.failures += 1;
            if runner.failures >= FAILURES {
                runner.out = Some(format!("failed {FAILURES} times, last: {reason}"));
            }
        }
    }
}

/// One more launch for every program that is short of blocks; false if nobody is.
fn measure_short(
    runners: &mut [Runner],
    reps: usize,
    places: &Places,
    samples: &mut Samples,
) -> bool {
    let mut work: Vec<(usize, Vec<usize>)> = Vec::new();
    for (position, runner) in runners.iter().enumerate().filter(|(_, runner)| runner.out.is_none())
    {
        let short = runner.rows.iter().copied().filter(|row| {
            let running =
                runners.iter().filter(|other| other.out.is_none() && other.rows.contains(row));
            let names: Vec<&'static str> = running.map(|other| other.program.name).collect();
            let kind = samples.fairest_kind(*row, &names);
            kind.is_none_or(|kind| samples.count(*row, runner.program.name, kind) < WANTED_BLOCKS)
        });
        let short: Vec<usize> = short.collect();
        if !short.is_empty() {
            work.push((position, short));
        }
    }
    for (position, rows) in &work {
        measure(&mut runners[*position], rows, reps, places, samples);
    }
    !work.is_empty()
}

type Measured = (usize, Option<Kind>, f64);

fn launch_once(
    program: &Program,
    rows: &[usize],
    reps: usize,
    places: &Places,
) -> Result<Vec<Measured>, String> {
    let specs: Vec<Spec> = rows
        .iter()
        .map(|row| {
            let spec = ROWS[*row].spec;
            Spec { iterations: spec.iterations.min(program.at_most_iterations), ..spec }
        })
        .collect();
    let mut args = vec!["--autogroup".to_owned(), "--reps".to_owned(), reps.to_string()];
    args.extend(specs.iter().map(Spec::to_string));
    let loopback = machine::loopback_bytes();
    let output = launch::run(program.command(places, &args), LAUNCH_LIMIT)?;
    let crossed = machine::loopback_bytes().saturating_sub(loopback);
    let lines: Vec<Line> = output.stdout.iter().filter_map(|line| Line::parse(line)).collect();
    if !lines.contains(&Line::Done) {
        return Err(format!("did not run to the end: {}", output.complaint()));
    }
    check_binding(program, &lines)?;
    check_route(program, &specs, reps, crossed)?;
    let find = |test, size| {
        rows.iter()
            .copied()
            .find(|row| ROWS[*row].spec.test == test && ROWS[*row].spec.size == size)
    };
    let blocks = lines.iter().filter_map(|line| match line {
        Line::Block(block) => {
            Some((find(block.test, block.size)?, Kind::of(block.before, block.after), block.value))
        }
        Line::Bind(_) | Line::Done => None,
    });
    Ok(blocks.collect())
}

/// Two ranks must each hold one core of their own; four may be anywhere.
fn check_binding(program: &Program, lines: &[Line]) -> Result<(), String> {
    let bound: Vec<_> = lines
        .iter()
        .filter_map(|line| if let Line::Bind(bind) = line { Some(bind) } else { None })
        .collect();
    if bound.len() != program.suite.ranks() {
        return Err(format!("{} ranks reported, not {}", bound.len(), program.suite.ranks()));
    }
    if program.suite == Suite::Four {
        return Ok(());
    }
    if let Some(bind) = bound.iter().find(|bind| bind.allowed != 1 || bind.cpu != bind.first) {
        return Err(format!(
            "the binding does not hold: rank {} may use {} CPUs",
            bind.rank, bind.allowed
        ));
    }
    if bound[0].first == bound[1].first {
        return Err(format!("the binding does not hold: both ranks are on CPU {}", bound[0].first));
    }
    Ok(())
}

/// The payload must have crossed the loopback device if, and only if, TCP was asked for.
fn check_route(program: &Program, specs: &[Spec], reps: usize, crossed: u64) -> Result<(), String> {
    let blocks = reps as u64 + 1;
    let payload: u64 =
        specs.iter().map(|spec| blocks * spec.bytes_a_block(program.suite.ranks(), WINDOW)).sum();
    // Small messages leave little payload beside a launcher's own talk, which was seen below 2 MB.
    let talk = 4 << 20;
    match program.suite {
        Suite::Tcp if crossed < payload => {
            Err(format!("did not use TCP: {payload} bytes were sent, {crossed} crossed loopback"))
        }
        Suite::Shm | Suite::Four if crossed > payload / 2 + talk => {
            Err(format!("did not use shared memory: {crossed} of {payload} bytes crossed loopback"))
        }
        _ => Ok(()),
    }
}
