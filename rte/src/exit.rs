//! The job's exit code: seed 003 §17.5.2 as a pure function.
//!
//! Without a failure it is rank 0's. With one: that of the lowest rank that exits after finalize;
//! failing that, of the last abort; failing that, rank 0's.

use crate::liveness::How;

/// How far a rank came before it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It never spoke PMI: a plain program, or one that died early.
    Plain,
    /// It joined the job.
    Joined,
    /// It finalized.
    Finalized,
}

/// A rank's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// How far it had come.
    pub stage: Stage,
    /// How it ended.
    pub how: How,
}

impl Ended {
    /// Whether this end is a process failure. After finalize nothing is; before it, everything but
    /// the clean exit of a program that never spoke MPI.
    pub fn is_failure(self) -> bool {
        match self.stage {
            Stage::Finalized => false,
            Stage::Joined => true,
            Stage::Plain => self.how != How::Exit(0),
        }
    }
}

/// The exit code of the job: `ranks` in order, `abort` the last code given to abort.
pub fn code(ranks: &[Ended], abort: Option<i32>) -> u8 {
    let rank_0 = ranks.first().map_or(0, |ended| code_of(ended.how));
    if abort.is_none() && !ranks.iter().any(|ended| ended.is_failure()) {
        return rank_0;
    }
    let finalized = ranks
        .iter()
        .find(|ended| ended.stage == Stage::Finalized && matches!(ended.how, How::Exit(_)));
    match (finalized, abort) {
        (Some(ended), _) => code_of(ended.how),
        (None, Some(code)) => code_of_abort(code),
        (None, None) => rank_0,
    }
}

/// As shells do: 128 and the signal's number; what is only lost has no code of its own.
pub fn code_of(how: How) -> u8 {
    match how {
        How::Exit(code) | How::Aborted(code) => code,
        How::Signal(number) => 128u8.saturating_add(number),
        How::HostLost | How::Fenced | How::Ending => 255,
    }
}

/// An abort code as an exit code: its low byte, but never zero for a code that is not.
pub fn code_of_abort(code: i32) -> u8 {
    match code as u8 {
        0 if code != 0 => 1,
        low => low,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_as_a_table() {
        use Stage::{Finalized, Joined, Plain};
        let exit = How::Exit;
        let killed = How::Signal(9);
        type Case = (&'static str, Vec<(Stage, How)>, Option<i32>, u8);
        let cases: Vec<Case> = vec![
            ("plain programs", vec![(Plain, exit(0)), (Plain, exit(0))], None, 0),
            (
                "no failure: rank 0's code",
                vec![(Finalized, exit(4)), (Finalized, exit(5))],
                None,
                4,
            ),
            (
                "rank 0 clean, rank 1 finalized with 5",
                vec![(Finalized, exit(0)), (Finalized, exit(5))],
                None,
                0,
            ),
            (
                "rank 0 killed: lowest finalized",
                vec![(Joined, killed), (Finalized, exit(7)), (Finalized, exit(8))],
                None,
                7,
            ),
            (
                "a survivor's 0 wins over the failure",
                vec![(Joined, killed), (Finalized, exit(0))],
                None,
                0,
            ),
            (
                "exit without finalize is a failure",
                vec![(Joined, exit(3)), (Finalized, exit(6))],
                None,
                6,
            ),
            (
                "nobody finalized: the last abort",
                vec![(Joined, killed), (Joined, exit(2))],
                Some(42),
                42,
            ),
            (
                "finalized wins over abort",
                vec![(Finalized, exit(1)), (Joined, killed)],
                Some(42),
                1,
            ),
            (
                "killed after finalize does not exit",
                vec![(Finalized, killed), (Joined, killed), (Finalized, exit(9))],
                None,
                9,
            ),
            (
                "neither finalize nor abort: rank 0's signal",
                vec![(Joined, killed), (Joined, exit(5))],
                None,
                137,
            ),
            ("a plain failing program", vec![(Plain, exit(3))], None, 3),
            ("only rank 1 fails, plainly", vec![(Plain, exit(0)), (Plain, exit(3))], None, 0),
            ("rank 0's host lost", vec![(Joined, How::HostLost)], None, 255),
            ("abort 256 is not success", vec![(Joined, exit(1))], Some(256), 1),
            ("abort 0", vec![(Joined, exit(1))], Some(0), 0),
            ("abort before init", vec![(Plain, exit(0))], Some(5), 5),
        ];
        for (name, ranks, abort, expected) in cases {
            let ranks: Vec<_> = ranks.iter().map(|&(stage, how)| Ended { stage, how }).collect();
            assert_eq!(code(&ranks, abort), expected, "{name}");
        }
    }
}
