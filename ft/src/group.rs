//! The members of a communicator, for the control plane: processes by rank, shared, and ranks by process.
//!
//! A group is never copied: a clone is a reference. It never holds a table for what is the identity or in order.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Processes by rank. For an inter-communicator both groups joined, in the same order at both sides.
///
/// ```
/// use ironweave_ft::Group;
/// use std::sync::Arc;
/// let group = Group::new(Arc::from([4, 2, 9]));
/// assert_eq!((group.size(), group.process(1), group.rank_of(9)), (3, 2, Some(2)));
/// assert_eq!(Group::world(8).rank_of(8), None);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Group(Members);

#[derive(Clone, PartialEq, Eq)]
enum Members {
    /// The processes 0 to size − 1, each with its own number as rank.
    World(u32),
    /// In ascending order.
    Ascending(Arc<[u32]>),
    /// In any order; beside them (process, rank) in the order of processes.
    Any(Arc<[u32]>, Arc<[(u32, u32)]>),
}

impl Group {
    /// The group of these processes, by rank. O(n), or O(n log n) when they are not in ascending order.
    ///
    /// # Panics
    /// When a process is named twice.
    #[must_use]
    pub fn new(processes: Arc<[u32]>) -> Self {
        if processes.iter().enumerate().all(|(rank, process)| rank == *process as usize) {
            return Group::world(processes.len() as u32);
        }
        if processes.windows(2).all(|pair| pair[0] < pair[1]) {
            return Group(Members::Ascending(processes));
        }
        let mut index: Vec<(u32, u32)> =
            processes.iter().zip(0..).map(|(process, rank)| (*process, rank)).collect();
        index.sort_unstable();
        assert!(index.windows(2).all(|pair| pair[0].0 < pair[1].0), "a process is named twice");
        Group(Members::Any(processes, index.into()))
    }

    /// All processes of a job of `size`, in order; takes no memory.
    #[must_use]
    pub fn world(size: u32) -> Self {
        Group(Members::World(size))
    }

    /// Number of members.
    #[must_use]
    pub fn size(&self) -> u32 {
        match &self.0 {
            Members::World(size) => *size,
            Members::Ascending(processes) | Members::Any(processes, _) => processes.len() as u32,
        }
    }

    /// The process with this rank.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn process(&self, rank: u32) -> u32 {
        match &self.0 {
            Members::World(size) => {
                assert!(rank < *size, "rank {rank} of a group of {size}");
                rank
            }
            Members::Ascending(processes) | Members::Any(processes, _) => processes[rank as usize],
        }
    }

    /// The rank of `process`, if it is a member.
    #[must_use]
    pub fn rank_of(&self, process: u32) -> Option<u32> {
        match &self.0 {
            Members::World(size) => (process < *size).then_some(process),
            Members::Ascending(processes) => {
                processes.binary_search(&process).ok().map(|at| at as u32)
            }
            Members::Any(_, index) => {
                index.binary_search_by_key(&process, |entry| entry.0).ok().map(|at| index[at].1)
            }
        }
    }
}

impl From<Arc<[u32]>> for Group {
    fn from(processes: Arc<[u32]>) -> Self {
        Group::new(processes)
    }
}

/// By size only: a group never changes, so states that are compared differ elsewhere.
impl Hash for Group {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.size().hash(state);
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "group of {}", self.size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_processes_are_inverse() {
        for processes in [vec![0, 1, 2, 3], vec![1, 4, 6], vec![9, 3, 5, 0], vec![]] {
            let group = Group::new(processes.clone().into());
            assert_eq!(group.size() as usize, processes.len());
            for process in 0..12 {
                let rank = processes.iter().position(|member| *member == process);
                assert_eq!(group.rank_of(process), rank.map(|rank| rank as u32));
                assert!(rank.is_none_or(|rank| group.process(rank as u32) == process));
            }
        }
    }
}
