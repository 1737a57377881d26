//! Runs programs in turn and keeps what they measured, after checking that they ran as they were told: bound where they
//! should be, and over the transport they were asked for. Decides who gets another chance; judges no figure.

use crate::launch;
use crate::machine;
use crate::peers::{Places, Program};
use crate::report::full_name;
use crate::rows::{ROWS, Suite};
use crate::samples::Samples;
use ironweave_benches::lines::Line;
use ironweave_benches::probe::Kind;
use ironweave_benches::spec::Spec;
use std::time::Duration;

/// Messages in flight of the windowed rows; `mpibench`'s default.
const WINDOW: usize = 64;

/// A launch is hung after this long; the slowest was seen to take 5 s.
const LAUNCH_LIMIT: Duration = Duration::from_secs(25);

/// A program is given up after this many launches without a figure.
const FAILURES: usize = 2;

/// Blocks of each program that a row wants in the kind it is judged by; short of it, extra rounds are run.
const WANTED_BLOCKS: usize = 5;

/// One program with the rows it is to run and what became of it.
pub struct Runner {
    pub program: &'static Program,
    pub rows: Vec<usize>,
    pub failures: usize,
    /// Why it takes no further part.
    pub out: Option<String>,
}

/// Launches one program over `rows` and keeps what it measured.
pub fn measure(
    runner: &mut Runner,
    rows: &[usize],
    reps: usize,
    places: &Places,
    samples: &mut Samples,
) {
    let mut usage = samples.usage;
    let outcome = usage.watch(|| launch_once(runner.program, rows, reps, places));
    samples.usage = usage;
    match outcome {
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
pub fn measure_short(
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

#[cfg(test)]
mod tests {
    use super::{check_binding, check_route};
    use crate::peers::{PROGRAMS, Program};
    use crate::rows::Suite;
    use ironweave_benches::lines::{Bind, Line};
    use ironweave_benches::spec::{Spec, Test};

    fn program(suite: Suite) -> &'static Program {
        PROGRAMS.iter().find(|program| program.suite == suite).expect("every suite has programs")
    }

    fn bind(rank: usize, cpu: usize, allowed: usize) -> Line {
        Line::Bind(Bind { rank, cpu, allowed, first: cpu })
    }

    #[test]
    fn two_ranks_hold_a_core_each() {
        let two = program(Suite::Shm);
        assert_eq!(check_binding(two, &[bind(0, 0, 1), bind(1, 1, 1)]), Ok(()));
        for wrong in [
            vec![bind(0, 0, 2), bind(1, 1, 1)],
            vec![bind(0, 0, 1), bind(1, 0, 1)],
            vec![bind(0, 0, 1)],
        ] {
            assert!(check_binding(two, &wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn four_ranks_may_be_anywhere() {
        let lines: Vec<Line> = (0..4).map(|rank| bind(rank, 0, 2)).collect();
        assert_eq!(check_binding(program(Suite::Four), &lines), Ok(()));
    }

    #[test]
    fn payload_crosses_loopback_only_over_tcp() {
        let specs = [Spec { test: Test::Latency, size: 1 << 20, iterations: 30 }];
        // 2 directions, 33 iterations, 4 blocks.
        let payload = (2 * 33 * 4) << 20;
        assert_eq!(check_route(program(Suite::Tcp), &specs, 3, payload + 1000), Ok(()));
        assert!(check_route(program(Suite::Tcp), &specs, 3, payload - 1).is_err());
        assert_eq!(check_route(program(Suite::Shm), &specs, 3, 1 << 20), Ok(()));
        assert!(check_route(program(Suite::Shm), &specs, 3, payload).is_err());
    }
}
