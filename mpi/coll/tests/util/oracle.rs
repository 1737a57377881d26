//! What MPI says that calls do, as plainly as possible: from everybody's buffers before to everybody's after.

use super::case::{Case, Who};
use super::topology;
use ironweave_coll::{Block, Call, Root};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The buffers of a process.
pub type Buffers = (Vec<u8>, Vec<u8>);

/// The receive buffers after the call, by process.
pub fn after(case: &Case, everybody: &[Who<'_>], before: &[Buffers]) -> Vec<Vec<u8>> {
    let calls: Vec<Call> = everybody.iter().map(|who| case.call(*who)).collect();
    let oracle = Oracle { case, everybody, calls: &calls, before, known: RefCell::default() };
    (0..everybody.len()).map(|number| oracle.after(number)).collect()
}

struct Oracle<'a> {
    case: &'a Case,
    everybody: &'a [Who<'a>],
    calls: &'a [Call],
    before: &'a [Buffers],
    /// Reductions by whose they are.
    known: RefCell<BTreeMap<Vec<usize>, Vec<u8>>>,
}

fn range(block: Block) -> std::ops::Range<usize> {
    block.offset..block.offset + block.len
}

/// The bytes of a block; one without any may be anywhere.
fn piece(from: &[u8], block: Block) -> Vec<u8> {
    if block.len == 0 { Vec::new() } else { from[range(block)].to_vec() }
}

fn even(index: usize, block: usize) -> Block {
    Block { offset: index * block, len: block }
}

impl Oracle<'_> {
    /// The processes whose data `number` gets, by rank.
    fn sources(&self, number: usize) -> Vec<usize> {
        let who = &self.everybody[number];
        let inter = who.place.remote().is_some();
        let is_source = |other: &Who<'_>| !inter || other.second != who.second;
        let numbered = self.everybody.iter().enumerate();
        numbered.filter(|(_, other)| is_source(other)).map(|(number, _)| number).collect()
    }

    fn root(&self, number: usize) -> Option<Root> {
        match self.calls[number] {
            Call::Bcast { root, .. }
            | Call::Gather { root, .. }
            | Call::Gatherv { root, .. }
            | Call::Scatter { root, .. }
            | Call::Scatterv { root, .. }
            | Call::Reduce { root, .. } => Some(root),
            _ => None,
        }
    }

    fn is_root(&self, number: usize) -> bool {
        let rank = self.everybody[number].place.rank();
        let intra = self.everybody[number].place.remote().is_none();
        let root = self.root(number);
        root == Some(Root::Me) || intra && root == Some(Root::Rank(rank))
    }

    fn after(&self, number: usize) -> Vec<u8> {
        let mut out = self.before[number].1.clone();
        let sources = self.sources(number);
        let rank = self.everybody[number].place.rank() as usize;
        let mut put = |block: Block, bytes: &[u8]| {
            let into = if block.len == 0 { &mut [] } else { &mut out[range(block)] };
            into.copy_from_slice(bytes);
        };
        let gets = self.root(number).is_none() || self.is_root(number);
        match &self.calls[number] {
            Call::Barrier => {}
            Call::Bcast { root: Root::Rank(root), len } => {
                put(even(0, *len), &self.before[sources[*root as usize]].1);
            }
            Call::Bcast { .. } => {}
            Call::Gather { block, .. } | Call::Allgather { block, .. } if gets => {
                for (index, &source) in sources.iter().enumerate() {
                    put(even(index, *block), &self.contribution(source, index));
                }
            }
            Call::Gatherv { blocks, .. } | Call::Allgatherv { blocks, .. } if gets => {
                for (index, &source) in sources.iter().enumerate() {
                    put(blocks[index], &self.contribution(source, index));
                }
            }
            Call::Gather { .. } | Call::Gatherv { .. } => {}
            Call::Allgather { .. } | Call::Allgatherv { .. } => {}
            Call::Scatter { root: Root::Rank(root), block, in_place } => {
                if !(*in_place && self.is_root(number)) {
                    put(even(0, *block), &self.block_for(sources[*root as usize], rank));
                }
            }
            Call::Scatterv { root: Root::Rank(root), len, in_place, .. } => {
                if !(*in_place && self.is_root(number)) {
                    put(even(0, *len), &self.block_for(sources[*root as usize], rank));
                }
            }
            Call::Scatter { .. } | Call::Scatterv { .. } => {}
            Call::Alltoall { block, .. } => {
                for (index, &source) in sources.iter().enumerate() {
                    put(even(index, *block), &self.block_for(source, rank));
                }
            }
            Call::Alltoallv { recv, .. } => {
                for (index, &source) in sources.iter().enumerate() {
                    put(recv[index], &self.block_for(source, rank));
                }
            }
            Call::Reduce { .. } if !gets => {}
            Call::Reduce { .. } | Call::Allreduce { .. } => {
                let all = self.reduction(&sources);
                put(even(0, all.len()), &all);
            }
            Call::ReduceScatterBlock { elements, .. } => {
                let (all, block) = (self.reduction(&sources), elements.count * elements.extent);
                put(even(0, block), &all[rank * block..][..block]);
            }
            Call::ReduceScatter { counts, extent, .. } => {
                let all = self.reduction(&sources);
                let start = counts[..rank].iter().sum::<usize>() * extent;
                let block = counts[rank] * extent;
                put(even(0, block), &all[start..][..block]);
            }
            Call::Scan { .. } => {
                let all = self.reduction(&sources[..=rank]);
                put(even(0, all.len()), &all);
            }
            Call::Exscan { .. } if rank == 0 => {}
            Call::Exscan { .. } => {
                let all = self.reduction(&sources[..rank]);
                put(even(0, all.len()), &all);
            }
            Call::NeighborAllgather { neighbors, block, .. }
            | Call::NeighborAlltoall { neighbors, block, .. } => {
                for edge in 0..neighbors.sources.len() {
                    self.edge(number, edge, |bytes| put(even(edge, *block), bytes));
                }
            }
            Call::NeighborAllgatherv { neighbors, blocks, .. }
            | Call::NeighborAlltoallv { neighbors, recv: blocks, .. } => {
                for edge in 0..neighbors.sources.len() {
                    self.edge(number, edge, |bytes| put(blocks[edge], bytes));
                }
            }
        }
        out
    }

    /// What comes along an edge, if it is one.
    fn edge(&self, number: usize, edge: usize, put: impl FnOnce(&[u8])) {
        let place = self.everybody[number].place;
        let end = topology::other_end(self.case.salt, place.rank(), place.size(), edge);
        let Some((source, edge)) = end else { return };
        let send = &self.before[source as usize].0;
        let block = match &self.calls[source as usize] {
            Call::NeighborAllgather { len, .. } | Call::NeighborAllgatherv { len, .. } => {
                even(0, *len)
            }
            Call::NeighborAlltoall { len, .. } => even(edge, *len),
            Call::NeighborAlltoallv { send, .. } => send[edge],
            other => panic!("{other:?} has no edges"),
        };
        put(&piece(send, block));
    }

    /// Whether a process's data is in its receive buffer.
    fn is_in_place(&self, number: usize) -> bool {
        self.case.in_place && (self.root(number).is_none() || self.is_root(number))
    }

    /// The one block that a process gives, when it is the `index`-th.
    fn contribution(&self, number: usize, index: usize) -> Vec<u8> {
        let (send, recv) = &self.before[number];
        let block = match &self.calls[number] {
            Call::Gather { block, .. } => even(index, *block),
            Call::Allgather { block, .. } => even(index, *block),
            Call::Gatherv { blocks, .. } | Call::Allgatherv { blocks, .. } => {
                blocks.get(index).copied().unwrap_or(even(0, 0))
            }
            other => panic!("{other:?} has no blocks"),
        };
        let len = match self.calls[number] {
            Call::Gather { block, .. } => block,
            Call::Gatherv { len, .. } => len,
            Call::Allgather { len, .. } | Call::Allgatherv { len, .. } => len,
            _ => 0,
        };
        if self.is_in_place(number) { piece(recv, block) } else { send[..len].to_vec() }
    }

    /// The block that a process has for the `index`-th.
    fn block_for(&self, number: usize, index: usize) -> Vec<u8> {
        let (send, recv) = &self.before[number];
        let (from, block) = match &self.calls[number] {
            Call::Scatter { block, .. } => (send, even(index, *block)),
            Call::Scatterv { blocks, .. } => (send, blocks[index]),
            Call::Alltoall { block, in_place: true, .. } => (recv, even(index, *block)),
            Call::Alltoall { len, .. } => (send, even(index, *len)),
            Call::Alltoallv { recv: blocks, in_place: true, .. } => (recv, blocks[index]),
            Call::Alltoallv { send: blocks, .. } => (send, blocks[index]),
            other => panic!("{other:?} has no blocks"),
        };
        piece(from, block)
    }

    /// The reduction of what these processes contribute.
    fn reduction(&self, sources: &[usize]) -> Vec<u8> {
        if let Some(all) = self.known.borrow().get(sources) {
            return all.clone();
        }
        let data = |&number: &usize| {
            let (send, recv) = &self.before[number];
            if self.is_in_place(number) { recv.clone() } else { send.clone() }
        };
        let mut all = sources.last().map(data).expect("groups are not empty");
        for source in sources.iter().rev().skip(1) {
            self.case.kind.apply()(&data(source), &mut all);
        }
        self.known.borrow_mut().insert(sources.to_vec(), all.clone());
        all
    }
}
