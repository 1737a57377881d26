//! Neighborhood collectives (MPI 5.0 §8.6): checks of what a process says of its edges.

use super::{Planner, bytes, reach, received, sent, targets, tidy};
use crate::CollError;
use crate::algorithms::{Edge, neighbor_exchange, turn};
use crate::builder::Layout;
use crate::call::{Block, Neighbors, Pairing};
use crate::schedule::{Schedule, Span};

impl Planner<'_> {
    pub(super) fn neighbor_allgather(
        &self,
        neighbors: &Neighbors,
        len: usize,
        block: usize,
    ) -> Result<Schedule, CollError> {
        let recv = bytes(neighbors.sources.len(), block)?;
        let out = Layout::Even { whole: received(recv), block };
        let len = bytes(len, 1)?;
        self.along_edges(neighbors, len, recv, |_| sent(len), out)
    }

    pub(super) fn neighbor_allgatherv(
        &self,
        neighbors: &Neighbors,
        len: usize,
        blocks: &[Block],
    ) -> Result<Schedule, CollError> {
        let (recv, blocks) = targets(&self.of_real(blocks, &neighbors.sources)?)?;
        let out = Layout::Listed { whole: received(recv), blocks: &blocks };
        let len = bytes(len, 1)?;
        self.along_edges(neighbors, len, recv, |_| sent(len), out)
    }

    pub(super) fn neighbor_alltoall(
        &self,
        neighbors: &Neighbors,
        len: usize,
        block: usize,
    ) -> Result<Schedule, CollError> {
        let recv = bytes(neighbors.sources.len(), block)?;
        let send = bytes(neighbors.destinations.len(), len)?;
        let input = Layout::Even { whole: sent(send), block: len };
        let out = Layout::Even { whole: received(recv), block };
        self.along_edges(neighbors, send, recv, |index| input.block(index), out)
    }

    pub(super) fn neighbor_alltoallv(
        &self,
        neighbors: &Neighbors,
        send: &[Block],
        recv: &[Block],
    ) -> Result<Schedule, CollError> {
        let send = self.of_real(send, &neighbors.destinations)?;
        let (reach_send, send) = (reach(&send)?, tidy(&send));
        let (reach_recv, recv) = targets(&self.of_real(recv, &neighbors.sources)?)?;
        let input = Layout::Listed { whole: sent(reach_send), blocks: &send };
        let out = Layout::Listed { whole: received(reach_recv), blocks: &recv };
        self.along_edges(neighbors, reach_send, reach_recv, |index| input.block(index), out)
    }

    /// One block for each neighbor; where there is none, nothing.
    fn of_real(&self, blocks: &[Block], ranks: &[Option<u32>]) -> Result<Vec<Block>, CollError> {
        self.count(blocks.len(), ranks.len())?;
        let none = Block { offset: 0, len: 0 };
        Ok(blocks.iter().zip(ranks).map(|(block, rank)| rank.map_or(none, |_| *block)).collect())
    }

    fn along_edges(
        &self,
        neighbors: &Neighbors,
        send: usize,
        recv: usize,
        input: impl Fn(u32) -> Span,
        out: Layout<'_>,
    ) -> Result<Schedule, CollError> {
        let Neighbors { sources, destinations, pairing } = neighbors;
        self.check_neighbors(neighbors)?;
        let edges = |ranks: &[Option<u32>], memory: &dyn Fn(u32) -> Span| -> Vec<Edge> {
            (0..).zip(ranks).map(|(index, &other)| (other, memory(index))).collect()
        };
        let outgoing = edges(destinations, &input);
        let incoming = edges(sources, &|index| out.block(index));
        self.check_own(&outgoing, &incoming, *pairing)?;
        self.build(send, recv, None, |b, team| {
            neighbor_exchange(b, &team.group, &outgoing, &incoming, *pairing);
        })
    }

    fn check_neighbors(&self, neighbors: &Neighbors) -> Result<(), CollError> {
        if self.place.remote().is_some() {
            return Err(CollError::WrongKind("inter-communicator"));
        }
        let Neighbors { sources, destinations, pairing } = neighbors;
        let size = self.place.size();
        let stranger =
            sources.iter().chain(&destinations[..]).flatten().find(|&&rank| rank >= size);
        if let Some(&rank) = stranger {
            return Err(CollError::InvalidNeighbor { rank, size });
        }
        if *pairing == Pairing::Opposite {
            self.count(destinations.len(), sources.len())?;
            self.count(sources.len(), sources.len().next_multiple_of(2))?;
        }
        Ok(())
    }

    /// Edges of this process to itself have both their ends here, and these must fit.
    fn check_own(
        &self,
        outgoing: &[Edge],
        incoming: &[Edge],
        pairing: Pairing,
    ) -> Result<(), CollError> {
        let is_own = |&(other, _): &Edge| other == Some(self.me());
        let given: Vec<Edge> = outgoing.iter().copied().filter(is_own).collect();
        let in_turn = (0..incoming.len()).map(|index| incoming[turn(index, pairing)]);
        let taken: Vec<Edge> = in_turn.filter(is_own).collect();
        self.count(taken.len(), given.len())?;
        for ((_, from), (_, into)) in given.into_iter().zip(taken) {
            super::own(into.len(), from.len())?;
        }
        Ok(())
    }
}
