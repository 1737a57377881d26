//! Keeps measured blocks by row, program and core placement, and judges a row.
//!
//! Blocks are only compared with blocks of the same kind (near or far). A block during which the cores changed is counted as
//! discarded and never used. The judge knows nothing of how the values came about.

use crate::machine::Usage;
use crate::rows::Row;
use ironweave_benches::probe::Kind;
use ironweave_benches::stats::median;
use std::collections::BTreeMap;

/// Blocks of each program that make a median worth judging by.
const ENOUGH: usize = 3;

/// Row index, program name.
type Key = (usize, &'static str);

/// All blocks of a run.
#[derive(Debug, Default)]
pub struct Samples {
    values: BTreeMap<(Key, Kind), Vec<f64>>,
    pub kept: usize,
    pub discarded: usize,
    /// Who used the processors while blocks were measured.
    pub usage: Usage,
}

/// How a row came out in one kind of core placement.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    pub kind: Kind,
    pub ours: Option<f64>,
    /// The best peer and its median.
    pub best: Option<(&'static str, f64)>,
}

impl Standing {
    pub fn ratio(&self) -> Option<f64> {
        Some(self.ours? / self.best?.1)
    }
}

impl Samples {
    /// Takes one block; `kind` is `None` if the cores changed during it.
    pub fn add(&mut self, row: usize, program: &'static str, kind: Option<Kind>, value: f64) {
        match kind {
            Some(kind) => {
                self.values.entry(((row, program), kind)).or_default().push(value);
                self.kept += 1;
            }
            None => self.discarded += 1,
        }
    }

    pub fn count(&self, row: usize, program: &'static str, kind: Kind) -> usize {
        self.values.get(&((row, program), kind)).map_or(0, Vec::len)
    }

    pub fn median(&self, row: usize, program: &'static str, kind: Kind) -> Option<f64> {
        median(self.values.get(&((row, program), kind))?)
    }

    /// The kinds seen at all.
    pub fn kinds(&self) -> Vec<Kind> {
        let mut kinds: Vec<Kind> = self.values.keys().map(|(_, kind)| *kind).collect();
        kinds.sort();
        kinds.dedup();
        kinds
    }

    /// The kind to judge a row by: the first one, near before far, in which each of `programs` has [`ENOUGH`] blocks;
    /// failing that, the one in which nobody has fewer than in the others. The choice must not follow the figures.
    pub fn fairest_kind(&self, row: usize, programs: &[&'static str]) -> Option<Kind> {
        let counts =
            |kind: Kind| programs.iter().map(move |program| self.count(row, program, kind));
        let fewest = |kind: Kind| counts(kind).min().unwrap_or(0);
        let total = |kind: Kind| counts(kind).sum::<usize>();
        let kinds = self.kinds();
        kinds.iter().copied().find(|kind| fewest(*kind) >= ENOUGH).or_else(|| {
            let most = kinds.into_iter().rev().max_by_key(|kind| (fewest(*kind), total(*kind)));
            most.filter(|kind| total(*kind) > 0)
        })
    }

    /// Medians of ours and of the best of `peers` in `kind`.
    pub fn standing(
        &self,
        index: usize,
        row: &Row,
        peers: &[&'static str],
        kind: Kind,
    ) -> Standing {
        let medians =
            peers.iter().filter_map(|peer| Some((*peer, self.median(index, peer, kind)?)));
        let best =
            medians.reduce(|best, next| if row.goal.prefers(next.1, best.1) { next } else { best });
        Standing { kind, ours: self.median(index, "ours", kind), best }
    }
}

#[cfg(test)]
mod tests {
    use super::Samples;
    use crate::rows::ROWS;
    use ironweave_benches::probe::Kind;

    #[test]
    fn only_blocks_of_one_kind_are_compared() {
        let mut samples = Samples::default();
        for value in [0.10, 0.12, 0.11] {
            samples.add(0, "ours", Some(Kind::Near), value);
        }
        samples.add(0, "ours", Some(Kind::Far), 9.0);
        samples.add(0, "ours", None, 100.0);
        samples.add(0, "a", Some(Kind::Near), 0.22);
        samples.add(0, "b", Some(Kind::Near), 0.33);
        samples.add(0, "b", Some(Kind::Far), 0.01);
        assert_eq!(samples.discarded, 1);
        let kind = samples.fairest_kind(0, &["ours", "a", "b"]).expect("there are samples");
        assert_eq!(kind, Kind::Near);
        let standing = samples.standing(0, &ROWS[0], &["a", "b"], kind);
        assert_eq!(standing.best, Some(("a", 0.22)));
        assert!((standing.ratio().expect("both are there") - 0.5).abs() < 1e-9);
    }

    #[test]
    fn the_kind_where_nobody_is_missing_wins() {
        let mut samples = Samples::default();
        for _ in 0..9 {
            samples.add(0, "ours", Some(Kind::Near), 1.0);
        }
        samples.add(0, "ours", Some(Kind::Far), 2.0);
        samples.add(0, "a", Some(Kind::Far), 2.0);
        assert_eq!(samples.fairest_kind(0, &["ours", "a"]), Some(Kind::Far));
        assert_eq!(samples.fairest_kind(1, &["ours", "a"]), None);
    }

    #[test]
    fn near_is_judged_once_everybody_has_enough_of_it() {
        let mut samples = Samples::default();
        for program in ["ours", "a"] {
            for _ in 0..9 {
                samples.add(0, program, Some(Kind::Far), 2.0);
            }
            for _ in 0..2 {
                samples.add(0, program, Some(Kind::Near), 1.0);
            }
        }
        assert_eq!(samples.fairest_kind(0, &["ours", "a"]), Some(Kind::Far));
        samples.add(0, "ours", Some(Kind::Near), 1.0);
        samples.add(0, "a", Some(Kind::Near), 1.0);
        assert_eq!(samples.fairest_kind(0, &["ours", "a"]), Some(Kind::Near));
    }

    #[test]
    fn higher_is_better_for_bandwidth() {
        let row =
            ROWS.iter().position(|row| row.name == "shm_bw_1MiB").expect("a row of the table");
        let mut samples = Samples::default();
        samples.add(row, "a", Some(Kind::Far), 10.0);
        samples.add(row, "b", Some(Kind::Far), 20.0);
        assert_eq!(
            samples.standing(row, &ROWS[row], &["a", "b"], Kind::Far).best,
            Some(("b", 20.0))
        );
    }
}
