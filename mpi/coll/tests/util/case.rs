//! Collective calls as all processes make them together, with data.

use super::{Kind, pattern, topology};
use ironweave_coll::{Block, Call, Elements, Place, Root};
use rand::{Rng, rngs::SmallRng};

/// Which collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    Barrier,
    Bcast,
    Gather,
    Gatherv,
    Scatter,
    Scatterv,
    Allgather,
    Allgatherv,
    Alltoall,
    Alltoallv,
    Reduce,
    Allreduce,
    ReduceScatterBlock,
    ReduceScatter,
    Scan,
    Exscan,
    NeighborAllgather,
    NeighborAllgatherv,
    NeighborAlltoall,
    NeighborAlltoallv,
}

impl Shape {
    pub const ALL: [Shape; 20] = [
        Shape::Barrier,
        Shape::Bcast,
        Shape::Gather,
        Shape::Gatherv,
        Shape::Scatter,
        Shape::Scatterv,
        Shape::Allgather,
        Shape::Allgatherv,
        Shape::Alltoall,
        Shape::Alltoallv,
        Shape::Reduce,
        Shape::Allreduce,
        Shape::ReduceScatterBlock,
        Shape::ReduceScatter,
        Shape::Scan,
        Shape::Exscan,
        Shape::NeighborAllgather,
        Shape::NeighborAllgatherv,
        Shape::NeighborAlltoall,
        Shape::NeighborAlltoallv,
    ];

    pub fn is_rooted(self) -> bool {
        use Shape::{Bcast, Gather, Gatherv, Reduce, Scatter, Scatterv};
        matches!(self, Bcast | Gather | Gatherv | Scatter | Scatterv | Reduce)
    }

    pub fn is_reduction(self) -> bool {
        use Shape::{Allreduce, Exscan, Reduce, ReduceScatter, ReduceScatterBlock, Scan};
        matches!(self, Reduce | Allreduce | ReduceScatterBlock | ReduceScatter | Scan | Exscan)
    }

    pub fn has_in_place(self) -> bool {
        !matches!(self, Shape::Barrier | Shape::Bcast) && !self.is_along_edges()
    }

    pub fn is_for_inter(self) -> bool {
        !matches!(self, Shape::Scan | Shape::Exscan) && !self.is_along_edges()
    }

    pub fn is_along_edges(self) -> bool {
        use Shape::{NeighborAllgather, NeighborAllgatherv, NeighborAlltoall, NeighborAlltoallv};
        matches!(
            self,
            NeighborAllgather | NeighborAllgatherv | NeighborAlltoall | NeighborAlltoallv
        )
    }
}

/// A process of a call.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    pub place: &'a Place,
    /// It is in the second group of an inter-communicator.
    pub second: bool,
}

impl<'a> Who<'a> {
    /// All processes, as `places` has them.
    pub fn all(places: &'a [Place]) -> Vec<Who<'a>> {
        let first = places[0].size() as usize;
        let who = |(number, place)| Who { place, second: number >= first };
        places.iter().enumerate().map(who).collect()
    }

    /// A number of its own.
    fn id(&self) -> u32 {
        self.place.rank() + if self.second { 1 << 16 } else { 0 }
    }

    /// The numbers of those whose blocks it gets.
    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        match self.place.remote() {
            None => 0..self.place.size(),
            Some(remote) if self.second => 0..remote,
            Some(remote) => (1 << 16)..(1 << 16) + remote,
        }
    }
}

/// What all processes call.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub shape: Shape,
    /// Of the only group, or the first.
    pub root: u32,
    /// Elements of reductions, bytes of everything else.
    pub count: usize,
    pub kind: Kind,
    pub in_place: bool,
    /// Varies the lengths and places of blocks.
    pub salt: u32,
}

impl Case {
    /// Any case.
    pub fn random(rng: &mut SmallRng, size: u32) -> Case {
        let kind = Kind::ALL[rng.random_range(0..2)];
        let shape = Shape::ALL[rng.random_range(0..Shape::ALL.len())];
        let count = match rng.random_range(0..10) {
            0 => 0,
            1..6 => rng.random_range(1..40),
            6..9 => rng.random_range(40..1500),
            _ => rng.random_range(1500..8_000),
        };
        let root = rng.random_range(0..size);
        Case { shape, root, count, kind, in_place: rng.random_bool(0.3), salt: rng.random() }
    }

    fn root(&self, who: Who<'_>) -> Root {
        match who.place.remote() {
            None => Root::Rank(self.root),
            Some(_) if who.second => Root::Rank(self.root),
            Some(_) if who.place.rank() == self.root => Root::Me,
            Some(_) => Root::Other,
        }
    }

    fn elements(&self) -> Elements {
        let commutative = self.kind == Kind::Numbers;
        Elements { count: self.count, extent: self.kind.extent(), commutative }
    }

    /// Length of the block from one to another in calls with blocks of any length. Some have none.
    fn len(&self, from: u32, to: u32) -> usize {
        let (from, to) = if self.in_place { (from.min(to), from.max(to)) } else { (from, to) };
        let part = from.wrapping_mul(31).wrapping_add(to.wrapping_mul(17)).wrapping_add(self.salt);
        (part % 5) as usize * self.count / 3
    }

    /// Blocks with gaps between them, in this order or the other way round.
    fn blocks(&self, lens: impl Iterator<Item = usize>) -> Vec<Block> {
        let lens: Vec<usize> = lens.collect();
        let mut offset = self.salt as usize % 3;
        let mut blocks = vec![Block { offset: 0, len: 0 }; lens.len()];
        let order: Vec<usize> = match self.salt % 2 {
            0 => (0..lens.len()).collect(),
            _ => (0..lens.len()).rev().collect(),
        };
        for at in order {
            blocks[at] = Block { offset, len: lens[at] };
            offset += lens[at] + self.salt as usize % 4;
        }
        blocks
    }

    /// The call of one process.
    pub fn call(&self, who: Who<'_>) -> Call {
        let (root, in_place, me) = (self.root(who), self.in_place, who.id());
        let elements = self.elements();
        // The groups of an inter-communicator give different amounts where they may.
        let differs = who.place.remote().is_some();
        let (len, block) = (
            self.count + usize::from(differs && who.second),
            self.count + usize::from(differs && !who.second),
        );
        let is_root = root == Root::Me || root == Root::Rank(me);
        let listed = |from_me: bool| {
            let list = |other| if from_me { self.len(me, other) } else { self.len(other, me) };
            if is_root { self.blocks(who.others().map(list)) } else { Vec::new() }
        };
        let root_id = self.root;
        match self.shape {
            Shape::Barrier => Call::Barrier,
            Shape::Bcast => Call::Bcast { root, len: self.count },
            Shape::Gather => Call::Gather { root, block: self.count, in_place },
            Shape::Gatherv => {
                let blocks = listed(false).into();
                Call::Gatherv { root, len: self.len(me, root_id), blocks, in_place }
            }
            Shape::Scatter => Call::Scatter { root, block: self.count, in_place },
            Shape::Scatterv => {
                let blocks = listed(true).into();
                Call::Scatterv { root, len: self.len(root_id, me), blocks, in_place }
            }
            Shape::Allgather => Call::Allgather { len, block, in_place },
            Shape::Allgatherv => {
                let blocks = self.blocks(who.others().map(|other| self.len(other, 0))).into();
                Call::Allgatherv { len: self.len(me, 0), blocks, in_place }
            }
            Shape::Alltoall => Call::Alltoall { len, block, in_place },
            Shape::Alltoallv => {
                let send = self.blocks(who.others().map(|other| self.len(me, other))).into();
                let recv = self.blocks(who.others().map(|other| self.len(other, me))).into();
                Call::Alltoallv { send, recv, in_place }
            }
            Shape::Reduce => Call::Reduce { root, elements, in_place },
            Shape::Allreduce => Call::Allreduce { elements, in_place },
            Shape::ReduceScatterBlock => {
                // In both groups as many in all.
                let count = self.count * who.place.remote().unwrap_or(1) as usize;
                Call::ReduceScatterBlock { elements: Elements { count, ..elements }, in_place }
            }
            Shape::ReduceScatter => {
                let Elements { extent, commutative, .. } = elements;
                let counts = self.counts(who).into();
                Call::ReduceScatter { counts, extent, commutative, in_place }
            }
            Shape::Scan => Call::Scan { elements, in_place },
            Shape::Exscan => Call::Exscan { elements, in_place },
            Shape::NeighborAllgather => {
                let neighbors = topology::neighbors(self.salt, me, who.place.size());
                Call::NeighborAllgather { neighbors, len, block }
            }
            Shape::NeighborAllgatherv => {
                let neighbors = topology::neighbors(self.salt, me, who.place.size());
                let lens = |&from: &Option<u32>| from.map_or(3, |from| self.len(from, 0));
                let blocks = self.blocks(neighbors.sources.iter().map(lens)).into();
                Call::NeighborAllgatherv { neighbors, len: self.len(me, 0), blocks }
            }
            Shape::NeighborAlltoall => {
                let neighbors = topology::neighbors(self.salt, me, who.place.size());
                Call::NeighborAlltoall { neighbors, len, block }
            }
            Shape::NeighborAlltoallv => {
                let neighbors = topology::neighbors(self.salt, me, who.place.size());
                // By the number of the edge at its source.
                let edge_len = |from: u32, edge: usize| self.len(from, edge as u32);
                let given = 0..neighbors.destinations.len();
                let send = self.blocks(given.map(|edge| edge_len(me, edge))).into();
                let taken = (0..neighbors.sources.len()).map(|edge| {
                    let source = topology::other_end(self.salt, me, who.place.size(), edge);
                    source.map_or(3, |(from, edge)| edge_len(from, edge))
                });
                let recv = self.blocks(taken).into();
                Call::NeighborAlltoallv { neighbors, send, recv }
            }
        }
    }

    /// Elements for each member of the group; in both groups as many in all.
    fn counts(&self, who: Who<'_>) -> Vec<usize> {
        let size = who.place.size();
        let mut counts: Vec<usize> = (0..size).map(|rank| self.len(rank, 7)).collect();
        if let Some(remote) = who.place.remote() {
            let all = self.count * (size + remote) as usize;
            counts = vec![0; size as usize];
            counts[size as usize / 2] = all / 3;
            counts[0] += all - all / 3;
        }
        counts
    }

    /// The buffers of a process before the call, of the lengths that the call needs.
    pub fn before(&self, who: Who<'_>, send: usize, recv: usize) -> (Vec<u8>, Vec<u8>) {
        if !self.shape.is_reduction() {
            return (pattern(who.id(), 0, send), pattern(who.id(), 1, recv));
        }
        let extent = self.kind.extent();
        let data = |len: usize| self.kind.of(who.place.rank(), len / extent);
        (data(send), data(recv))
    }
}
