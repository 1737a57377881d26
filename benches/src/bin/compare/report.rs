//! Turns samples into lines, a table and `RESULTS.md`. Decides nothing but the verdict's word.

use crate::machine;
use crate::peers::{Family, PROGRAMS, Program};
use crate::rows::{ROWS, Row, Suite, show};
use crate::samples::{Samples, Standing};
use crate::why::why;
use ironweave_benches::probe::Kind;
use std::fmt::Write as _;

/// What a run leaves to say.
#[derive(Debug, Default)]
pub struct Report {
    /// One `row=…` line a row.
    pub lines: Vec<String>,
    /// A Markdown table: a row a line, a program a column entry.
    pub table: String,
    /// `SKIP` lines and remarks.
    pub notes: Vec<String>,
    /// Names of the rows that miss their goals.
    pub missed: Vec<&'static str>,
}

/// A row that was asked for, with the programs that take part in it.
pub struct Entry {
    pub index: usize,
    pub programs: Vec<&'static str>,
}

impl Entry {
    fn row(&self) -> &'static Row {
        &ROWS[self.index]
    }

    fn peers(&self) -> Vec<&'static str> {
        self.programs.iter().copied().filter(|name| *name != "ours").collect()
    }
}

/// Everything printable about `samples`. `with_ours` is false if only peers were asked for.
pub fn report(
    samples: &Samples,
    entries: &[Entry],
    with_ours: bool,
    mut notes: Vec<String>,
) -> Report {
    let mut lines = Vec::new();
    let mut missed = Vec::new();
    let mut table = String::from(
        "| row | cores | ours | best peer | ratio | goal | verdict | everyone (median, blocks) |\n|---|---|---|---|---|---|---|---|\n",
    );
    for entry in entries {
        let row = entry.row();
        let measured: Vec<&'static str> =
            entry.programs.iter().copied().filter(|name| seen(samples, entry, name)).collect();
        let judged = samples.fairest_kind(entry.index, &measured);
        let kinds = samples.kinds();
        match judged {
            Some(kind) => {
                let standing = samples.standing(entry.index, row, &entry.peers(), kind);
                lines.push(line(row, &standing, with_ours));
                if with_ours && verdict(row, &standing) != Some(true) {
                    missed.push(row.name);
                }
                for name in
                    measured.iter().filter(|name| samples.count(entry.index, name, kind) == 0)
                {
                    notes.push(format!(
                        "NOTE {}: {name} has no block on {} cores and was not compared",
                        row.name,
                        kind.name()
                    ));
                }
            }
            None => {
                lines.push(format!(
                    "row={} ours=- best=- peer=- ratio=- goal={} verdict={}",
                    row.name,
                    row.goal.text(),
                    word(None, with_ours)
                ));
            }
        }
        for kind in kinds {
            let standing = samples.standing(entry.index, row, &entry.peers(), kind);
            if standing.ours.is_some() || standing.best.is_some() {
                let verdict = if judged == Some(kind) {
                    word(verdict(row, &standing), with_ours)
                } else {
                    ""
                };
                table.push_str(&table_line(samples, entry, &standing, verdict));
            }
        }
    }
    Report { lines, table, notes, missed }
}

fn seen(samples: &Samples, entry: &Entry, name: &'static str) -> bool {
    [Kind::Near, Kind::Far, Kind::Unknown]
        .into_iter()
        .any(|kind| samples.count(entry.index, name, kind) > 0)
}

fn verdict(row: &Row, standing: &Standing) -> Option<bool> {
    standing.ratio().map(|ratio| row.goal.met_by(ratio))
}

fn word(verdict: Option<bool>, with_ours: bool) -> &'static str {
    match verdict {
        _ if !with_ours => "none",
        Some(true) => "ok",
        Some(false) | None => "miss",
    }
}

fn line(row: &Row, standing: &Standing, with_ours: bool) -> String {
    let dash = || "-".to_owned();
    format!(
        "row={} ours={} best={} peer={} ratio={} goal={} verdict={}",
        row.name,
        standing.ours.map_or_else(dash, |value| show(row.spec.test, value)),
        standing.best.map_or_else(dash, |(_, value)| show(row.spec.test, value)),
        standing.best.map_or("-", |(peer, _)| peer),
        standing.ratio().map_or_else(dash, |ratio| format!("{ratio:.2}")),
        row.goal.text(),
        word(verdict(row, standing), with_ours)
    )
}

fn table_line(samples: &Samples, entry: &Entry, standing: &Standing, verdict: &str) -> String {
    let row = entry.row();
    let value =
        |value: Option<f64>| value.map_or_else(String::new, |value| show(row.spec.test, value));
    let everyone: Vec<String> = entry
        .programs
        .iter()
        .filter_map(|name| {
            let median = samples.median(entry.index, name, standing.kind)?;
            Some(format!(
                "{name} {} ({})",
                show(row.spec.test, median),
                samples.count(entry.index, name, standing.kind)
            ))
        })
        .collect();
    let best = standing
        .best
        .map_or_else(String::new, |(peer, best)| format!("{} {peer}", show(row.spec.test, best)));
    format!(
        "| {} | {} | {} | {best} | {} | {} | {verdict} | {} |\n",
        row.name,
        standing.kind.name(),
        value(standing.ours),
        standing.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2}")),
        row.goal.text(),
        everyone.join(", ")
    )
}

/// The content of `RESULTS.md`.
pub fn results_page(report: &Report, how: &str) -> String {
    let mut page = String::from(
        "# Side by side\n\nWritten by `benches/compare --record`; README.md says how to read it. Figures are what this machine showed on that day; of other machines: [RESULTS-zen3.md](RESULTS-zen3.md), [RESULTS-zen4.md](RESULTS-zen4.md), [RESULTS-zen5.md](RESULTS-zen5.md).\n\n",
    );
    // Writing to a String cannot fail.
    let _ = writeln!(
        page,
        "- date: {}\n- machine: {}\n- run: {how}\n\n```text",
        machine::today(),
        machine::description()
    );
    for line in &report.lines {
        let _ = writeln!(page, "{line}");
    }
    for note in &report.notes {
        let _ = writeln!(page, "{note}");
    }
    page.push_str("```\n");
    if !report.missed.is_empty() {
        page.push_str("\n## Missed, and why\n\n");
    }
    for row in &report.missed {
        let _ = writeln!(page, "- `{row}`: {}.", why(row));
    }
    let _ = writeln!(
        page,
        "\n{}\n## Settings\n\n| suite | program | settings |\n|---|---|---|",
        report.table
    );
    for program in PROGRAMS {
        let _ = writeln!(
            page,
            "| {} | {} | `{}` |",
            suite_name(program.suite),
            program.name,
            program.settings()
        );
    }
    page
}

fn suite_name(suite: Suite) -> &'static str {
    match suite {
        Suite::Shm => "shm, 2 ranks",
        Suite::Tcp => "tcp, 2 ranks",
        Suite::Ofi => "libfabric over tcp, 2 ranks",
        Suite::OfiBare => "libfabric over tcp, bare",
        Suite::UctTcpBare => "UCX over tcp, bare",
        Suite::UctPosixBare => "UCX over posix, bare",
        Suite::Four => "shm, 4 ranks",
        Suite::Abi => "C, shm, 2 ranks",
        Suite::AbiFour => "C, shm, 4 ranks",
        Suite::Start2 => "start, 2 ranks",
        Suite::Start8 => "start, 8 ranks",
        Suite::Start16 => "start, 16 ranks",
    }
}

/// A program as it is named in SKIP lines: names repeat between suites.
pub fn full_name(program: &Program) -> String {
    let suite = match program.suite {
        Suite::Shm => "shm",
        Suite::Tcp => "tcp",
        Suite::Ofi => "ofi",
        Suite::OfiBare => "ofi_bare",
        Suite::UctTcpBare => "uct_tcp_bare",
        Suite::UctPosixBare => "uct_posix_bare",
        Suite::Four => "exchange4",
        Suite::Abi => "abi",
        Suite::AbiFour => "abi4",
        Suite::Start2 => "start2",
        Suite::Start8 => "start8",
        Suite::Start16 => "start16",
    };
    let kind = if program.family == Family::Ours { "ours" } else { program.name };
    format!("{kind} ({suite})")
}

#[cfg(test)]
mod tests {
    use super::{Entry, report, results_page};
    use crate::samples::Samples;
    use ironweave_benches::probe::Kind;

    fn samples() -> Samples {
        let mut samples = Samples::default();
        samples.add(0, "ours", Some(Kind::Near), 0.074);
        samples.add(0, "openmpi-ucx", Some(Kind::Near), 0.102);
        samples
    }

    fn entries() -> Vec<Entry> {
        vec![
            Entry { index: 0, programs: vec!["ours", "openmpi-ucx"] },
            Entry { index: 1, programs: vec!["ours"] },
        ]
    }

    #[test]
    fn a_line_a_row_in_the_agreed_form() {
        let report = report(&samples(), &entries(), true, Vec::new());
        assert_eq!(
            report.lines,
            [
                "row=shm_latency_8B ours=0.074us best=0.102us peer=openmpi-ucx ratio=0.73 goal<=0.75 verdict=ok".replace("goal<=", "goal=<="),
                "row=shm_latency_4KiB ours=- best=- peer=- ratio=- goal=<=0.90 verdict=miss".to_owned(),
            ]
        );
    }

    #[test]
    fn without_ours_there_is_no_verdict() {
        let report = report(&samples(), &entries(), false, Vec::new());
        assert!(
            report.lines.iter().all(|line| line.ends_with("verdict=none")),
            "{:?}",
            report.lines
        );
    }

    #[test]
    fn the_page_holds_lines_table_and_settings() {
        let page = results_page(
            &report(&samples(), &entries(), true, vec!["SKIP x: y".to_owned()]),
            "a test",
        );
        for part in [
            "row=shm_latency_8B",
            "| shm_latency_8B | near | 0.074us |",
            "SKIP x: y",
            "UCX_TLS=posix,self",
        ] {
            assert!(page.contains(part), "{part} is missing");
        }
    }
}
