//! The algorithms: pure functions that write one process's steps. All members run the same function with the same
//! arguments but their own index, so that each message has both its ends.

mod allgather;
mod allreduce;
mod alltoall;
mod barrier;
mod bcast;
mod gather;
pub(crate) mod inter;
mod neighbor;
mod operands;
mod reduce;
mod reduce_scatter;
mod scan;
mod scatter;

pub(crate) use allgather::allgather;
pub(crate) use allreduce::allreduce;
pub(crate) use alltoall::{alltoall, exchange};
pub(crate) use barrier::barrier;
pub(crate) use bcast::bcast;
pub(crate) use gather::{gather, gatherv};
pub(crate) use neighbor::{Edge, neighbor_exchange, turn};
pub(crate) use reduce::reduce;
pub(crate) use reduce_scatter::reduce_scatter;
pub(crate) use scan::{exscan, scan};
pub(crate) use scatter::{scatter, scatterv};

use crate::builder::{Builder, Group};
use crate::choose::{Config, Facts};
use crate::place::Hosts;

/// The processes of a call, and what decides on the algorithm.
#[derive(Clone, Copy)]
pub(crate) struct Team<'a> {
    /// Who takes part.
    pub group: Group<'a>,
    /// Which of them share a host, when that is of use; then the group is all ranks.
    pub hosts: Option<&'a Hosts>,
    /// All of them are known to share one.
    pub together: bool,
    /// What was set.
    pub config: &'a Config,
}

impl<'a> Team<'a> {
    /// Some processes without regard to hosts.
    pub const fn flat(group: Group<'a>, config: &'a Config) -> Self {
        Team { group, hosts: None, together: false, config }
    }

    /// What the table looks at for `len` bytes.
    fn facts(&self, b: &Builder, len: usize) -> Facts {
        Facts {
            size: self.group.size,
            len,
            extent: b.extent(),
            commutative: b.commutative,
            hosts: self.hosts.is_some(),
            together: self.together,
            in_order: self.hosts.is_some_and(|hosts| hosts.in_order),
        }
    }
}

/// The processes of a call on several hosts: those of this host, and one of each.
struct Split {
    /// Members of this host.
    mine: Box<[u32]>,
    /// This process's index there.
    me: u32,
    /// The index of the one that speaks for the host.
    speaker: u32,
    /// Who speaks for each host.
    speakers: Box<[u32]>,
    /// This host's index.
    host: u32,
    /// The index of the root's host.
    root_host: u32,
}

impl Split {
    /// Each host's first member speaks for it, but `root` for its own.
    fn new(hosts: &Hosts, root: u32) -> Self {
        let root_host = hosts.of[root as usize];
        let mut speakers = hosts.leaders.clone();
        speakers[root_host as usize] = root;
        let speaker = speakers[hosts.host as usize];
        let speaker = hosts.mine.iter().take_while(|&&rank| rank != speaker).count() as u32;
        let (me, host) = (hosts.me, hosts.host);
        Split { mine: hosts.mine.clone(), me, speaker, speakers, host, root_host }
    }

    fn inside(&self) -> Group<'_> {
        Group::of(self.me, &self.mine)
    }

    /// The speakers' group, for one of them.
    fn between(&self) -> Option<Group<'_>> {
        (self.me == self.speaker).then(|| Group::of(self.host, &self.speakers))
    }
}
