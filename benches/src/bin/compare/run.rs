//! Runs programs in turn and keeps what they measured, after checking that they ran as they were told: bound where they
//! should be, and over the transport they were asked for. Decides who gets another chance; judges no figure.

use crate::launch;
use crate::machine::{self, Usage};
use crate::peers::{Places, Program};
use crate::report::full_name;
use crate::rows::{ROWS, Suite};
use crate::samples::Samples;
use ironweave_benches::lines::Line;
use ironweave_benches::probe::Kind;
use ironweave_benches::spec::Spec;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Messages in flight of the windowed rows; `mpibench`'s default.
const WINDOW: usize = 64;

/// A launch is hung after this long; the slowest was seen to take 5 s.
const LAUNCH_LIMIT: Duration = Duration::from_secs(25);

/// A program is given up after this many launches without a figure.
const FAILURES: usize = 2;

/// Blocks of each program that a row wants in the kind it is judged by; short of it, extra rounds are run.
const WANTED_BLOCKS: usize = 5;

/// What all launches have in common.
pub struct Bench {
    pub places: Places,
    /// Printed blocks of each row in one launch.
    pub reps: usize,
    /// No launch begins later.
    pub deadline: Instant,
}

/// Others use the processors from this share on.
pub const BUSY: f64 = 0.1;

/// One program with the rows it is to run and what became of it.
pub struct Runner {
    pub program: &'static Program,
    pub rows: Vec<usize>,
    /// Why launches did not count.
    pub failures: Vec<String>,
    /// It cannot be started at all, and why.
    pub missing: Option<String>,
}

impl Runner {
    /// Whether it still takes part.
    pub fn is_in(&self) -> bool {
        self.missing.is_none() && self.failures.len() < FAILURES
    }

    /// A line for the report about what went wrong, if anything did.
    pub fn remark(&self) -> Option<String> {
        let name = full_name(self.program);
        if let Some(reason) = &self.missing {
            return Some(format!("SKIP {name}: {reason}"));
        }
        let last = self.failures.last()?;
        Some(if self.is_in() {
            format!("NOTE {name}: one launch failed: {last}")
        } else {
            format!("SKIP {name}: failed {FAILURES} times, last: {last}")
        })
    }
}

impl Bench {
    /// Launches one program over `rows` and keeps what it measured.
    pub fn measure(&self, runner: &mut Runner, rows: &[usize], samples: &mut Samples) {
        if Instant::now() >= self.deadline {
            return;
        }
        let mut usage = Usage::default();
        let loopback = machine::loopback_bytes();
        let outcome = usage.watch(|| self.launch(runner.program, rows));
        let crossed = machine::loopback_bytes().saturating_sub(loopback);
        samples.usage += usage;
        let checked = outcome.and_then(|blocks| {
            // Somebody else may be using loopback, too: more than we sent says something only on a quiet machine.
            let most = if usage.others() < BUSY { Some(crossed) } else { None };
            check_route(runner.program.suite, self.payload(runner.program, rows), crossed, most)?;
            Ok(blocks)
        });
        match checked {
            Ok(blocks) => {
                for (row, kind, value) in blocks {
                    samples.add(row, runner.program.name, kind, value);
                }
            }
            Err(reason) => {
                eprintln!("# {}: {reason}", full_name(runner.program));
                runner.failures.push(reason);
            }
        }
    }

    /// One more launch for every program that is short of blocks; false if nobody is.
    pub fn measure_short(&self, runners: &mut [Runner], samples: &mut Samples) -> bool {
        let mut work: Vec<(usize, Vec<usize>)> = Vec::new();
        for (position, runner) in runners.iter().enumerate().filter(|(_, runner)| runner.is_in()) {
            let short: Vec<usize> = runner
                .rows
                .iter()
                .copied()
                .filter(|row| is_short(*row, runner, runners, samples))
                .collect();
            if !short.is_empty() {
                work.push((position, short));
            }
        }
        for (position, rows) in &work {
            self.measure(&mut runners[*position], rows, samples);
        }
        !work.is_empty()
    }

    fn launch(&self, program: &Program, rows: &[usize]) -> Result<Vec<Measured>, String> {
        let mut args = vec!["--autogroup".to_owned(), "--reps".to_owned()];
        if program.suite.is_start() {
            // One figure a launch.
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |t| t.as_secs_f64());
            args.extend(["1", "--no-probe", "--launched"].map(str::to_owned));
            args.push(format!("{now:.6}"));
        } else {
            args.push(self.reps.to_string());
        }
        args.extend(rows.iter().map(|row| spec(program, *row).to_string()));
        let output = launch::run(program.command(&self.places, &args), LAUNCH_LIMIT)?;
        let lines: Vec<Line> = output.stdout.iter().filter_map(|line| Line::parse(line)).collect();
        if !lines.contains(&Line::Done) {
            return Err(format!("did not run to the end: {}", output.complaint()));
        }
        check_binding(program.suite, &lines)?;
        let find = |test, size| {
            let same = |row: &usize| (ROWS[*row].spec.test, ROWS[*row].spec.size) == (test, size);
            rows.iter().copied().find(same)
        };
        let blocks = lines.iter().filter_map(|line| match line {
            Line::Block(block) => {
                let kind = Kind::of(block.before, block.after);
                Some((find(block.test, block.size)?, kind, block.value))
            }
            Line::Bind(_) | Line::Done => None,
        });
        Ok(blocks.collect())
    }

    /// Bytes that a launch sends between ranks.
    fn payload(&self, program: &Program, rows: &[usize]) -> u64 {
        let blocks = self.reps as u64 + 1; // and the unprinted one
        let ranks = program.suite.ranks();
        rows.iter().map(|row| blocks * spec(program, *row).bytes_a_block(ranks, WINDOW)).sum()
    }
}

/// Row index, kind (`None`: the cores moved), value.
type Measured = (usize, Option<Kind>, f64);

/// What `program` runs for a row.
fn spec(program: &Program, row: usize) -> Spec {
    let spec = ROWS[row].spec;
    Spec { iterations: spec.iterations.min(program.at_most_iterations), ..spec }
}

/// Whether `runner` has too few blocks in the kind that `row` would be judged by.
fn is_short(row: usize, runner: &Runner, runners: &[Runner], samples: &Samples) -> bool {
    if runner.program.suite.is_start() {
        return false;
    }
    let running = runners.iter().filter(|other| other.is_in() && other.rows.contains(&row));
    let names: Vec<&'static str> = running.map(|other| other.program.name).collect();
    let kind = samples.fairest_kind(row, &names);
    kind.is_none_or(|kind| samples.count(row, runner.program.name, kind) < WANTED_BLOCKS)
}

/// Two ranks must each hold one core of their own; four may be anywhere.
fn check_binding(suite: Suite, lines: &[Line]) -> Result<(), String> {
    let bound: Vec<_> = lines
        .iter()
        .filter_map(|line| if let Line::Bind(bind) = line { Some(bind) } else { None })
        .collect();
    if bound.len() != suite.ranks() {
        return Err(format!("{} ranks reported, not {}", bound.len(), suite.ranks()));
    }
    if suite.is_crowded() {
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

/// The payload must have crossed the loopback device (`least`) if TCP was asked for, and not (`most`, where known) if not.
fn check_route(suite: Suite, payload: u64, least: u64, most: Option<u64>) -> Result<(), String> {
    // Small messages leave little payload beside a launcher's own talk, which was seen below 2 MB.
    let talk = 4 << 20;
    match suite {
        Suite::Tcp | Suite::Ofi | Suite::OfiBare | Suite::UctTcpBare if least < payload => {
            Err(format!("did not use TCP: {payload} bytes were sent, {least} crossed loopback"))
        }
        // Launchers talk more than these do.
        Suite::Start2 | Suite::Start8 | Suite::Start16 => Ok(()),
        Suite::Shm | Suite::Four | Suite::Abi | Suite::AbiFour | Suite::UctPosixBare => {
            match most {
                Some(most) if most > payload / 2 + talk => {
                    Err(format!("did not use shared memory: {most} bytes crossed loopback"))
                }
                _ => Ok(()),
            }
        }
        Suite::Tcp | Suite::Ofi | Suite::OfiBare | Suite::UctTcpBare => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Runner, check_binding, check_route};
    use crate::peers::PROGRAMS;
    use crate::rows::Suite;
    use ironweave_benches::lines::{Bind, Line};

    fn bind(rank: usize, cpu: usize, allowed: usize) -> Line {
        Line::Bind(Bind { rank, cpu, allowed, first: cpu })
    }

    #[test]
    fn two_ranks_hold_a_core_each() {
        assert_eq!(check_binding(Suite::Shm, &[bind(0, 0, 1), bind(1, 1, 1)]), Ok(()));
        for wrong in [
            vec![bind(0, 0, 2), bind(1, 1, 1)],
            vec![bind(0, 0, 1), bind(1, 0, 1)],
            vec![bind(0, 0, 1)],
        ] {
            assert!(check_binding(Suite::Shm, &wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn four_ranks_may_be_anywhere() {
        let lines: Vec<Line> = (0..4).map(|rank| bind(rank, 0, 2)).collect();
        assert_eq!(check_binding(Suite::Four, &lines), Ok(()));
    }

    #[test]
    fn payload_crosses_loopback_only_over_tcp() {
        assert_eq!(check_route(Suite::Tcp, 1 << 30, 1 << 30, None), Ok(()));
        assert!(check_route(Suite::Tcp, 1 << 30, (1 << 30) - 1, None).is_err());
        assert_eq!(check_route(Suite::Shm, 1 << 30, 0, Some(1 << 20)), Ok(()));
        assert!(check_route(Suite::Shm, 1 << 30, 1 << 30, Some(1 << 30)).is_err());
        assert_eq!(check_route(Suite::Four, 1 << 30, 1 << 30, None), Ok(()));
    }

    #[test]
    fn whoever_fails_twice_is_out_and_named() {
        let mut runner =
            Runner { program: &PROGRAMS[0], rows: vec![0], failures: Vec::new(), missing: None };
        assert!(runner.is_in() && runner.remark().is_none());
        runner.failures.push("it hung".to_owned());
        assert!(runner.is_in());
        assert!(runner.remark().is_some_and(|text| text.starts_with("NOTE ours (shm): ")));
        runner.failures.push("it hung again".to_owned());
        assert!(!runner.is_in());
        assert!(
            runner
                .remark()
                .is_some_and(|text| text.starts_with("SKIP ") && text.ends_with("again"))
        );
    }
}
