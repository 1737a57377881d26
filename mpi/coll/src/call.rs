//! What a user asks for, in bytes: the collective operations of MPI 5.0, chapter 6, as plain data.
//!
//! A call names everything that a schedule depends on and nothing else, so equal calls share a schedule. Buffers
//! come with the run ([`Memory`](crate::Memory)); the operation too ([`Reduction`](crate::Reduction)).

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

/// A collective operation, as one process calls it. All lengths are in bytes unless said otherwise.
///
/// With `in_place` the contribution is where MPI has it in the receive buffer (for scatters: the result stays where it is
/// in the send buffer, at the root), and the other buffer is not used.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Call {
    /// Returns when all have called it (§6.3).
    Barrier,
    /// The root's receive buffer goes to the others' (§6.4). All processes use [`Memory::recv`](crate::Memory).
    Bcast {
        /// Who has the data.
        root: Root,
        /// How much.
        len: usize,
    },
    /// Everybody gets the reduction of all (§6.9.6).
    Allreduce {
        /// What is reduced.
        elements: Elements,
        /// The contribution is in the receive buffer.
        in_place: bool,
    },
}
