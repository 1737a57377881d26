//! The output lines both twins print (`LOOPS.md`): written by `iw-mpibench`, read by `compare`.
//! A line that is not one of ours is not an error: launchers print things too.

use crate::spec::Test;
use std::collections::HashMap;
use std::fmt;

/// Where a rank may run, printed once a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The rank.
    pub rank: usize,
    /// The CPU it was on when it looked.
    pub cpu: usize,
    /// How many CPUs it may use.
    pub allowed: usize,
    /// The first CPU it may use.
    pub first: usize,
}

/// One measured block.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Which loop.
    pub test: Test,
    /// Message size in bytes.
    pub size: usize,
    /// Number of the repetition in this run, from 0.
    pub rep: usize,
    /// The measured value, in the test's unit.
    pub value: f64,
    /// Line hand-over before the block, ns; 0 if not probed.
    pub before: f64,
    /// Line hand-over after the block, ns; 0 if not probed.
    pub after: f64,
}

/// One line of output.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// A rank's binding.
    Bind(Bind),
    /// A measured block.
    Block(Block),
    /// Everything asked for was run.
    Done,
}

impl Line {
    /// The line's meaning, or `None` if it is not one of ours.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text == "done" {
            return Some(Self::Done);
        }
        let fields: HashMap<&str, &str> =
            text.split_whitespace().filter_map(|word| word.split_once('=')).collect();
        let number = |name: &str| fields.get(name)?.parse::<usize>().ok();
        let real =
            |name: &str| fields.get(name)?.parse::<f64>().ok().filter(|value| value.is_finite());
        if text.starts_with("bind ") {
            let (rank, cpu) = (number("rank")?, number("cpu")?);
            return Some(Self::Bind(Bind {
                rank,
                cpu,
                allowed: number("allowed")?,
                first: number("first")?,
            }));
        }
        let test: Test = fields.get("test")?.parse().ok()?;
        if *fields.get("unit")? != test.unit() {
            return None;
        }
        Some(Self::Block(Block {
            test,
            size: number("size")?,
            rep: number("rep")?,
            value: real("value").filter(|value| *value > 0.0)?,
            before: real("before")?,
            after: real("after")?,
        }))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind(Bind { rank, cpu, allowed, first }) => {
                write!(f, "bind rank={rank} cpu={cpu} allowed={allowed} first={first}")
            }
            Self::Block(Block { test, size, rep, value, before, after }) => write!(
                f,
                "test={} size={size} rep={rep} value={value:.6} unit={} before={before:.1} after={after:.1}",
                test.name(),
                test.unit()
            ),
            Self::Done => write!(f, "done"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bind, Block, Line};
    use crate::spec::Test;

    #[test]
    fn what_is_printed_is_read_back() {
        let lines = [
            Line::Bind(Bind { rank: 1, cpu: 3, allowed: 1, first: 3 }),
            Line::Block(Block {
                test: Test::MbwMr,
                size: 8,
                rep: 2,
                value: 1.5e7,
                before: 33.0,
                after: 161.5,
            }),
            Line::Done,
        ];
        for line in lines {
            assert_eq!(Line::parse(&line.to_string()), Some(line));
        }
    }

    #[test]
    fn the_c_twins_exponents_are_read() {
        let line = "test=mbw_mr size=8 rep=0 value=8.15256e+06 unit=msg/s before=152.3 after=156.0";
        let Some(Line::Block(block)) = Line::parse(line) else { panic!("not read: {line}") };
        assert_eq!(block.value, 8_152_560.0);
    }

    #[test]
    fn other_peoples_lines_and_broken_ones_are_nothing() {
        for text in [
            "",
            "mpiexec: warning=1",
            "test=latency size=8 rep=0 value=nan unit=us before=1 after=1",
            "test=latency size=8 rep=0 value=0 unit=us before=1 after=1",
            "test=latency size=8 rep=0 value=1.0 unit=MB/s before=1 after=1",
            "test=latency size=8 rep=0 value=1.0 unit=us before=1",
        ] {
            assert_eq!(Line::parse(text), None, "{text}");
        }
    }
}
