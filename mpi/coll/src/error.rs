//! What can go wrong with a collective operation: one exhaustive enum (law 3).

use crate::op::{Op, Type};
use crate::schedule::Invalid;
use ironweave_pml::ob1::PmlError;

/// Why a collective operation did not succeed, or was not started.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CollError {
    /// A message of the operation failed; ranks in it are those of the communicator.
    #[error(transparent)]
    Pml(PmlError),
    /// A message within the local group of an inter-communicator failed; ranks in it are those of the local group.
    #[error("within the local group: {0}")]
    Local(PmlError),
    /// Another process takes part with a different amount of data.
    #[error("rank {rank} sent {got} bytes where {expected} were expected: the arguments differ")]
    Mismatch {
        /// The sender, in the group it was received from.
        rank: u32,
        /// Bytes that the arguments here call for.
        expected: usize,
        /// Bytes that came.
        got: usize,
    },
    /// MPI does not define this operation for this type.
    #[error("{op} is not defined for {ty}")]
    IllegalOp {
        /// The operation.
        op: Op,
        /// The type.
        ty: Type,
    },
    /// Elements of no bytes, or a number of bytes that is not a number of elements.
    #[error("the data is not a number of whole elements")]
    NoElements,
    /// A reduction without an operation, or with one for elements of another size.
    #[error(
        "the operation works on elements of {got} bytes, the call is about elements of {expected}"
    )]
    WrongElements {
        /// Bytes of an element in the call.
        expected: usize,
        /// Bytes of an element of the operation; 0 when none was given.
        got: usize,
    },
    /// The root is not in the group.
    #[error("root {root} is not in a group of {size}")]
    InvalidRoot {
        /// The root asked for.
        root: u32,
        /// The size of the group.
        size: u32,
    },
    /// A neighbor is not in the group.
    #[error("neighbor {rank} is not in a group of {size}")]
    InvalidNeighbor {
        /// Its rank.
        rank: u32,
        /// The size of the group.
        size: u32,
    },
    /// A list with one entry for each process, or neighbor, has another length.
    #[error("{got} entries instead of {expected}")]
    WrongCount {
        /// How many there have to be.
        expected: usize,
        /// How many there are.
        got: usize,
    },
    /// Two blocks of a receive buffer have bytes in common.
    #[error("blocks of the receive buffer overlap")]
    Overlap,
    /// The own block has another length than this process says for its rank.
    #[error("the own block has {got} bytes where {expected} belong")]
    OwnBlock {
        /// Bytes where blocks go to, or come from.
        expected: usize,
        /// Bytes of the own block.
        got: usize,
    },
    /// More bytes than can be addressed.
    #[error("the data is longer than memory")]
    TooLong,
    /// A buffer is shorter than the call needs.
    #[error("the {which} buffer has {got} bytes, the call needs {needed}")]
    ShortBuffer {
        /// `"send"` or `"receive"`.
        which: &'static str,
        /// Bytes that the call needs.
        needed: usize,
        /// Bytes there are.
        got: usize,
    },
    /// The call does not exist on this kind of communicator.
    #[error("not possible on an {0}")]
    WrongKind(&'static str),
    /// The operation is running already.
    #[error("the operation is running")]
    Active,
    /// There is no algorithm of that name.
    #[error("{collective} has no algorithm {name:?}; there are: {known}")]
    UnknownAlgorithm {
        /// The collective operation.
        collective: &'static str,
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// An algorithm made a schedule that breaks its rules: a bug of this crate.
    #[error("internal error: {0}")]
    Invalid(#[from] Invalid),
}
