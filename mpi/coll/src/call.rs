//! What a user asks for, in bytes: the collective operations of MPI 5.0, chapters 6 and 8.6, as plain data.
//!
//! A call names everything that a schedule depends on and nothing else, so equal calls share a schedule. Buffers
//! come with the run ([`Memory`](crate::Memory)); the operation too ([`Reduction`](crate::Reduction)).

use std::sync::Arc;

/// The root of a rooted operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Root {
    /// This rank; on an inter-communicator a rank of the remote group.
    Rank(u32),
    /// Inter-communicators: this process is it (`MPI_ROOT`).
    Me,
    /// Inter-communicators: another process of this group is it (`MPI_PROC_NULL`); this one takes no part.
    Other,
}

/// The root's rank.
impl From<u32> for Root {
    fn from(rank: u32) -> Root {
        Root::Rank(rank)
    }
}

/// Elements of a reduction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Elements {
    /// How many.
    pub count: usize,
    /// Bytes of each.
    pub extent: usize,
    /// The operation's operands may change places.
    pub commutative: bool,
}

/// A piece of a buffer, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Block {
    /// Where it starts.
    pub offset: usize,
    /// How long it is.
    pub len: usize,
}

/// How the edges between the same two processes pair up, where there are several.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pairing {
    /// The n-th in the list of the one that sends is the n-th in the list of the other: graphs.
    InOrder,
    /// Sources and destinations are the same list, of two neighbors for each dimension; what goes in one direction comes
    /// from the other: Cartesian topologies (§8.6; it matters in periodic dimensions of one or two processes).
    Opposite,
}

/// The edges of a process in a virtual topology (MPI 5.0, chapter 8), in the order of its blocks. `None` is `MPI_PROC_NULL`:
/// its block is left as it is. A process may be there several times, and may be its own neighbor.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Neighbors {
    /// Ranks that blocks come from.
    pub sources: Arc<[Option<u32>]>,
    /// Ranks that blocks go to.
    pub destinations: Arc<[Option<u32>]>,
    /// Which edge is which.
    pub pairing: Pairing,
}

/// A collective operation, as one process calls it. All lengths are in bytes unless said otherwise; lists have one entry
/// for each rank (of the remote group, on an inter-communicator), or for each neighbor.
///
/// `in_place` is `MPI_IN_PLACE`, on intra-communicators only: the contribution is where MPI has it in the receive buffer, and
/// the send buffer is not used (for scatters: the root's part stays where it is in the send buffer, and its receive
/// buffer is not used).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Call {
    /// Returns when all have called it (§6.3).
    Barrier,
    /// The root's data goes to all (§6.4). The one buffer is the *receive* buffer, at the root too.
    Bcast {
        /// Who has the data.
        root: Root,
        /// How much.
        len: usize,
    },
    /// The root gets a block from each (§6.5).
    Gather {
        /// Who gets them.
        root: Root,
        /// Length of each.
        block: usize,
        /// At the root: its own block is in the receive buffer.
        in_place: bool,
    },
    /// As `Gather`, with blocks of any length (§6.5).
    Gatherv {
        /// Who gets them.
        root: Root,
        /// Length of this process's block.
        len: usize,
        /// At the root: where they go. Elsewhere empty.
        blocks: Arc<[Block]>,
        /// As in `Gather`.
        in_place: bool,
    },
    /// The root has a block for each (§6.6).
    Scatter {
        /// Who has them.
        root: Root,
        /// Length of each.
        block: usize,
        /// At the root: its own block stays where it is.
        in_place: bool,
    },
    /// As `Scatter`, with blocks of any length (§6.6).
    Scatterv {
        /// Who has them.
        root: Root,
        /// Length of this process's block.
        len: usize,
        /// At the root: where they are. Elsewhere empty.
        blocks: Arc<[Block]>,
        /// As in `Scatter`.
        in_place: bool,
    },
    /// Everybody gets a block from each (§6.7).
    Allgather {
        /// Length of this process's block; in place and on intra-communicators that is `block`.
        len: usize,
        /// Length of each block that comes.
        block: usize,
        /// The own block is in the receive buffer.
        in_place: bool,
    },
    /// As `Allgather`, with blocks of any length (§6.7).
    Allgatherv {
        /// Length of this process's block; on intra-communicators that of its entry in `blocks`.
        len: usize,
        /// Where they go; the lengths are the same at each process of a group.
        blocks: Arc<[Block]>,
        /// As in `Allgather`.
        in_place: bool,
    },
    /// Everybody has a block for each (§6.8).
    Alltoall {
        /// Length of each block that goes; in place and on intra-communicators that is `block`.
        len: usize,
        /// Length of each block that comes.
        block: usize,
        /// The blocks to send are in the receive buffer.
        in_place: bool,
    },
    /// As `Alltoall`, with blocks of any length; with offsets and lengths in bytes it is `MPI_Alltoallw` too (§6.8).
    Alltoallv {
        /// Where the blocks to send are. In place it is not looked at: they are where `recv` says.
        send: Arc<[Block]>,
        /// Where the blocks that come go.
        recv: Arc<[Block]>,
        /// As in `Alltoall`.
        in_place: bool,
    },
    /// The root gets the reduction of all contributions (§6.9.1).
    Reduce {
        /// Who gets it.
        root: Root,
        /// What is reduced.
        elements: Elements,
        /// At the root: its contribution is in the receive buffer.
        in_place: bool,
    },
    /// Everybody gets the reduction of all contributions (§6.9.6).
    Allreduce {
        /// What is reduced.
        elements: Elements,
        /// The contribution is in the receive buffer.
        in_place: bool,
    },
    /// Everybody gets an equal part of the reduction (§6.10.1).
    ReduceScatterBlock {
        /// What each process gets.
        elements: Elements,
        /// The contribution is in the receive buffer, and the result goes to its beginning.
        in_place: bool,
    },
    /// Everybody gets a part of the reduction (§6.10.2).
    ReduceScatter {
        /// Elements that each process (of the own group) gets.
        counts: Arc<[usize]>,
        /// Bytes of an element.
        extent: usize,
        /// The operation's operands may change places.
        commutative: bool,
        /// As in `ReduceScatterBlock`.
        in_place: bool,
    },
    /// Everybody gets the reduction of the ranks up to its own (§6.11.1).
    Scan {
        /// What is reduced.
        elements: Elements,
        /// The contribution is in the receive buffer.
        in_place: bool,
    },
    /// Everybody gets the reduction of the ranks before its own; rank 0's receive buffer is left as it is (§6.11.2).
    Exscan {
        /// What is reduced.
        elements: Elements,
        /// The contribution is in the receive buffer.
        in_place: bool,
    },
    /// Each destination gets the one block (§8.6.1). Intra-communicators only, as all that follow.
    NeighborAllgather {
        /// The edges.
        neighbors: Neighbors,
        /// Length of this process's block.
        len: usize,
        /// Length of each block that comes.
        block: usize,
    },
    /// As `NeighborAllgather`, with blocks of any length (§8.6.1).
    NeighborAllgatherv {
        /// The edges.
        neighbors: Neighbors,
        /// Length of this process's block.
        len: usize,
        /// Where they go, by source.
        blocks: Arc<[Block]>,
    },
    /// There is a block for each destination (§8.6.2).
    NeighborAlltoall {
        /// The edges.
        neighbors: Neighbors,
        /// Length of each block that goes.
        len: usize,
        /// Length of each block that comes.
        block: usize,
    },
    /// As `NeighborAlltoall`, with blocks of any length; it is `MPI_Neighbor_alltoallw` too (§8.6.2).
    NeighborAlltoallv {
        /// The edges.
        neighbors: Neighbors,
        /// Where the blocks to send are, by destination.
        send: Arc<[Block]>,
        /// Where the blocks that come go, by source.
        recv: Arc<[Block]>,
    },
}
