//! Groups: ordered sets of processes (MPI standard 5.0, 7.3). Values; no communication, no communicator.
//!
//! A group is kept as *runs* of consecutive processes in rank order, as long as they can be: the world of a million
//! processes is one run, and operations cost by runs, not by members, wherever runs stay whole. The representation is
//! unique, so equal groups are equal values.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock};

/// Consecutive processes with consecutive ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Run {
    rank: u32,
    process: u32,
    len: u32,
}

impl Run {
    const fn end(self) -> u32 {
        self.process + self.len
    }
}

/// An ordered set of processes. Cheap to clone.
///
/// ```
/// use ironweave_core::{Comparison, Group};
/// let world = Group::range(0, 1_000_000);
/// let low = world.range_incl(&[(0, 9, 1)])?;
/// let rest = world.difference(&low);
/// assert_eq!((rest.len(), rest.process(0), rest.rank_of(10)), (999_990, Some(10), Some(0)));
/// assert_eq!(low.union(&rest).compare(&world), Comparison::Identical);
/// # Ok::<(), ironweave_core::GroupError>(())
/// ```
#[derive(Clone)]
pub struct Group(Arc<Members>);

struct Members {
    runs: Box<[Run]>,
    len: u32,
    /// The runs by process: made at the first question that needs it.
    by_process: OnceLock<Box<[u32]>>,
}

/// How two groups relate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// The same processes in the same order.
    Identical,
    /// The same processes in another order.
    Similar,
    /// Different processes.
    Unequal,
}

/// Ranks that make no group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GroupError {
    /// There is no such rank in the group.
    #[error("rank {rank} is not in a group of {size}")]
    Rank {
        /// The rank asked for.
        rank: i64,
        /// How many there are.
        size: u32,
    },
    /// A rank, or a process, is named twice.
    #[error("{0} is named twice")]
    Twice(u32),
    /// A range with stride 0.
    #[error("a range with stride 0")]
    Stride,
}

/// Ranks from the first to the last, both included, by a stride that is not 0: (first, last, stride).
pub type RankRange = (u32, u32, i32);

impl Group {
    /// The group without members.
    #[must_use]
    pub fn empty() -> Group {
        Builder::default().build()
    }

    /// `len` processes from `first` on, by their index in the job.
    ///
    /// # Panics
    /// When the last one's index needs more than 32 bits.
    #[must_use]
    pub fn range(first: u32, len: u32) -> Group {
        assert!(first.checked_add(len).is_some(), "processes are numbered in 32 bits");
        let mut builder = Builder::default();
        builder.push(first, len);
        builder.build()
    }

    /// These processes, by rank.
    ///
    /// # Errors
    /// [`GroupError::Twice`].
    pub fn of(processes: impl IntoIterator<Item = u32>) -> Result<Group, GroupError> {
        let mut builder = Builder::default();
        processes.into_iter().for_each(|process| builder.push(process, 1));
        let group = builder.build();
        group.check_distinct()?;
        Ok(group)
    }

    /// How many members it has.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.0.len
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The process of a rank.
    #[must_use]
    pub fn process(&self, rank: u32) -> Option<u32> {
        if rank >= self.len() {
            return None;
        }
        let runs = &self.0.runs;
        let run = runs[runs.partition_point(|run| run.rank <= rank) - 1];
        Some(run.process + (rank - run.rank))
    }

    /// The rank of a process.
    #[must_use]
    pub fn rank_of(&self, process: u32) -> Option<u32> {
        let runs = &self.0.runs;
        let run = match runs.len() {
            0 => return None,
            1 => runs[0],
            _ => {
                let order = self.by_process();
                let after = order.partition_point(|&run| runs[run as usize].process <= process);
                runs[order[after.checked_sub(1)?] as usize]
            }
        };
        let within = process.checked_sub(run.process)?;
        (within < run.len).then(|| run.rank + within)
    }

    /// Whether a process is a member.
    #[must_use]
    pub fn contains(&self, process: u32) -> bool {
        self.rank_of(process).is_some()
    }

    /// The processes by rank.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.runs.iter().flat_map(|run| run.process..run.end())
    }

    /// The members as (first process, how many), in the order of ranks.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.0.runs.iter().map(|run| (run.process, run.len))
    }

    /// The group of these runs of processes of a job of `size`, if it is one.
    pub(crate) fn from_runs(runs: &[(u32, u32)], size: u32) -> Option<Group> {
        let mut builder = Builder::default();
        for &(process, len) in runs {
            if process.checked_add(len)? > size || builder.len.checked_add(len)? > size {
                return None;
            }
            builder.push(process, len);
        }
        let group = builder.build();
        group.check_distinct().ok()?;
        Some(group)
    }

    /// The members of `self`, then those of `other` that are not among them.
    #[must_use]
    pub fn union(&self, other: &Group) -> Group {
        let mut builder = Builder::from(self);
        other.cut(self, |process, len, inside| {
            if !inside {
                builder.push(process, len);
            }
        });
        builder.build()
    }

    /// The members of `self` that are in `other`, too, in the order of `self`.
    #[must_use]
    pub fn intersection(&self, other: &Group) -> Group {
        self.select(other, true)
    }

    /// The members of `self` that are not in `other`, in the order of `self`.
    #[must_use]
    pub fn difference(&self, other: &Group) -> Group {
        self.select(other, false)
    }

    /// The members with these ranks, in this order.
    ///
    /// # Errors
    /// [`GroupError::Rank`], [`GroupError::Twice`].
    pub fn incl(&self, ranks: &[u32]) -> Result<Group, GroupError> {
        let mut builder = Builder::default();
        for &rank in ranks {
            builder.push(self.member(i64::from(rank))?, 1);
        }
        let group = builder.build();
        group.check_distinct()?;
        Ok(group)
    }

    /// The members without these ranks.
    ///
    /// # Errors
    /// [`GroupError::Rank`], [`GroupError::Twice`].
    pub fn excl(&self, ranks: &[u32]) -> Result<Group, GroupError> {
        Ok(self.difference(&self.incl(ranks)?))
    }

    /// The members whose ranks are in these ranges, in the order of the ranges.
    ///
    /// # Errors
    /// [`GroupError::Rank`], [`GroupError::Twice`], [`GroupError::Stride`].
    pub fn range_incl(&self, ranges: &[RankRange]) -> Result<Group, GroupError> {
        let mut builder = Builder::default();
        for &(first, last, stride) in ranges {
            let (first, last, stride) = (i64::from(first), i64::from(last), i64::from(stride));
            if stride == 0 {
                return Err(GroupError::Stride);
            }
            // The MPI standard: ranks first, first + stride, …, up to the last that is not beyond `last`.
            if (last - first) * stride.signum() < 0 {
                continue;
            }
            self.member(first)?;
            self.member(first + (last - first) / stride * stride)?;
            if stride == 1 {
                self.slice(first as u32, (last - first + 1) as u32, &mut builder);
            } else {
                for step in 0..=(last - first) / stride {
                    builder.push(self.member(first + step * stride)?, 1);
                }
            }
        }
        let group = builder.build();
        group.check_distinct()?;
        Ok(group)
    }

    /// The members whose ranks are in none of these ranges.
    ///
    /// # Errors
    /// As [`range_incl`](Group::range_incl).
    pub fn range_excl(&self, ranges: &[RankRange]) -> Result<Group, GroupError> {
        Ok(self.difference(&self.range_incl(ranges)?))
    }

    /// Which ranks in `other` the processes of these ranks have; `None` where they are not in it.
    ///
    /// # Errors
    /// [`GroupError::Rank`].
    pub fn translate_ranks(
        &self,
        ranks: &[u32],
        other: &Group,
    ) -> Result<Vec<Option<u32>>, GroupError> {
        ranks.iter().map(|&rank| Ok(other.rank_of(self.member(i64::from(rank))?))).collect()
    }

    /// How it relates to `other`.
    #[must_use]
    pub fn compare(&self, other: &Group) -> Comparison {
        if self == other {
            Comparison::Identical
        } else if self.len() == other.len() && self.difference(other).is_empty() {
            Comparison::Similar
        } else {
            Comparison::Unequal
        }
    }

    fn member(&self, rank: i64) -> Result<u32, GroupError> {
        let process = u32::try_from(rank).ok().and_then(|rank| self.process(rank));
        process.ok_or(GroupError::Rank { rank, size: self.len() })
    }

    fn by_process(&self) -> &[u32] {
        self.0.by_process.get_or_init(|| {
            let runs = &self.0.runs;
            let mut order: Vec<u32> = (0..runs.len() as u32).collect();
            order.sort_unstable_by_key(|&run| runs[run as usize].process);
            order.into()
        })
    }

    fn check_distinct(&self) -> Result<(), GroupError> {
        let sorted = self.by_process();
        for pair in sorted.windows(2) {
            let [a, b] = [pair[0], pair[1]].map(|run| self.0.runs[run as usize]);
            if b.process < a.end() {
                return Err(GroupError::Twice(b.process));
            }
        }
        Ok(())
    }

    /// Adds the members of ranks from `rank` on.
    fn slice(&self, rank: u32, len: u32, builder: &mut Builder) {
        let runs = &self.0.runs;
        let (mut rank, end) = (rank, rank + len);
        let mut at = runs.partition_point(|run| run.rank <= rank) - 1;
        while rank < end {
            let run = runs[at];
            let until = end.min(run.rank + run.len);
            builder.push(run.process + (rank - run.rank), until - rank);
            (rank, at) = (until, at + 1);
        }
    }

    fn select(&self, other: &Group, wanted: bool) -> Group {
        let mut builder = Builder::default();
        self.cut(other, |process, len, inside| {
            if inside == wanted {
                builder.push(process, len);
            }
        });
        builder.build()
    }

    /// Cuts the members into pieces of consecutive processes that are all in `other`, or all not.
    fn cut(&self, other: &Group, mut piece: impl FnMut(u32, u32, bool)) {
        let (runs, order) = (&other.0.runs, other.by_process());
        for run in &self.0.runs {
            let (mut at, end) = (run.process, run.end());
            let mut next = order.partition_point(|&run| runs[run as usize].end() <= at);
            while at < end {
                let there = order.get(next).map(|&run| runs[run as usize]);
                let (until, inside) = match there {
                    Some(there) if there.process <= at => (there.end().min(end), true),
                    Some(there) => (there.process.min(end), false),
                    None => (end, false),
                };
                piece(at, until - at, inside);
                (at, next) = (until, next + usize::from(inside));
            }
        }
    }
}

impl PartialEq for Group {
    fn eq(&self, other: &Group) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.runs == other.0.runs
    }
}

impl Eq for Group {}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = &self.0.runs;
        f.write_str("Group[")?;
        for (at, run) in runs.iter().take(16).enumerate() {
            let gap = if at > 0 { ", " } else { "" };
            match run.len {
                1 => write!(f, "{gap}{}", run.process)?,
                _ => write!(f, "{gap}{}..={}", run.process, run.end() - 1)?,
            }
        }
        f.write_str(if runs.len() > 16 { ", …]" } else { "]" })
    }
}

/// Members in the order in which they come.
#[derive(Default)]
struct Builder {
    runs: Vec<Run>,
    len: u32,
}

impl From<&Group> for Builder {
    fn from(group: &Group) -> Self {
        Builder { runs: group.0.runs.to_vec(), len: group.len() }
    }
}

impl Builder {
    fn push(&mut self, process: u32, len: u32) {
        match self.runs.last_mut() {
            _ if len == 0 => return,
            Some(last) if last.end() == process => last.len += len,
            _ => self.runs.push(Run { rank: self.len, process, len }),
        }
        self.len += len;
    }

    fn build(self) -> Group {
        let (runs, len) = (self.runs.into(), self.len);
        Group(Arc::new(Members { runs, len, by_process: OnceLock::new() }))
    }
}
