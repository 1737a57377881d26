//! What a call of this crate can answer instead of success.

use ironweave_btl::Fault;
use ironweave_coll::CollError;
use ironweave_core::CoreError;
use ironweave_pml::ob1::PmlError;
use ironweave_rte::RteError;

/// The result of a call that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation did not succeed. MPI standard 5.0, chapter 9.4 (error classes) and the fault-tolerance classes of
/// ULFM (seed 000, "Introduction").
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process at the other end has failed (`MPIX_ERR_PROC_FAILED`).
    #[error("rank {rank} has failed")]
    ProcFailed {
        /// The failed process, by its rank in the communicator of the operation.
        rank: u32,
    },
    /// A process that could have matched a non-blocking wildcard receive has failed; the receive is still pending
    /// (`MPIX_ERR_PROC_FAILED_PENDING`).
    #[error("a possible sender has failed; the receive is still pending")]
    ProcFailedPending,
    /// The communicator was revoked (`MPIX_ERR_REVOKED`).
    #[error("the communicator has been revoked")]
    Revoked,
    /// The message is longer than the buffer; the buffer holds its beginning (`MPI_ERR_TRUNCATE`).
    #[error("the message has {sent} bytes, the buffer only {capacity}")]
    Truncated {
        /// Length of the message in bytes.
        sent: u64,
        /// Length of the buffer in bytes.
        capacity: u64,
    },
    /// The message's length is no multiple of the element's.
    #[error(
        "the message has {bytes} bytes, which is not a whole number of {element}-byte elements"
    )]
    PartialElement {
        /// Length of the message in bytes.
        bytes: usize,
        /// Length of one element in bytes.
        element: usize,
    },
    /// There is no such rank in the communicator (`MPI_ERR_RANK`).
    #[error("rank {rank} is not in the communicator, which has {size} ranks (0 to {})", size - 1)]
    InvalidRank {
        /// The rank asked for.
        rank: u32,
        /// How many there are.
        size: u32,
    },
    /// A tag to send with must be 0 to [`Tag::MAX`](crate::Tag::MAX) (`MPI_ERR_TAG`).
    #[error("tag {tag} is outside 0 to {}", i32::MAX)]
    InvalidTag {
        /// The tag asked for.
        tag: i32,
    },
    /// A ready-mode send found no posted receive (`MPI_ERR_OTHER`; MPI standard 5.0, 3.4: erroneous program).
    #[error("ready send: the receive was not posted")]
    NotReady,
    /// No rail reaches the process, though nobody says that it failed; or it has finalized.
    #[error("process {process} cannot be reached")]
    Unreachable {
        /// The process, by its rank in the world.
        process: u32,
    },
    /// Another member could not go on with its part of a collective operation, though nobody is known to have failed: a
    /// link was given up.
    #[error("another member gave the operation up")]
    Interrupted,
    /// The others hold this process for failed, because they did not hear of it for too long, and have excluded it for good:
    /// nothing that it sends arrives, every call ends with this error, and all it can do is to stop (law 4).
    #[error("this process was excluded by the others")]
    Fenced,
    /// Arguments that are wrong or do not fit each other: which, and why (`MPI_ERR_ARG` and its kin).
    #[error("{0}")]
    Argument(String),
    /// A transport could not be opened or is broken.
    #[error("transport: {0}")]
    Transport(String),
    /// The run-time environment: launcher, wire-up, parameters.
    #[error("run-time environment: {0}")]
    Rte(String),
    /// An earlier call panicked inside the library; the world cannot be used any more.
    #[error("an earlier call panicked inside the library")]
    Poisoned,
    /// Not supported here (`MPI_ERR_UNSUPPORTED_OPERATION`).
    #[error("not supported: {0}")]
    Unsupported(&'static str),
}

impl Error {
    /// Whether a failure or somebody's revocation interrupted the operation, so that recovery is the answer: see
    /// [`guide`](crate::guide).
    #[must_use]
    pub const fn is_interruption(&self) -> bool {
        matches!(
            self,
            Error::ProcFailed { .. }
                | Error::ProcFailedPending
                | Error::Revoked
                | Error::Interrupted
                | Error::Unreachable { .. }
        )
    }
}

impl From<CollError> for Error {
    fn from(error: CollError) -> Self {
        match error {
            CollError::Pml(error) | CollError::Local(error) => error.into(),
            CollError::InvalidRoot { root: rank, size }
            | CollError::InvalidNeighbor { rank, size } => Error::InvalidRank { rank, size },
            CollError::Invalid(bug) => Error::Transport(bug.to_string()),
            error => Error::Argument(error.to_string()),
        }
    }
}

impl From<CoreError> for Error {
    fn from(error: CoreError) -> Self {
        match error {
            CoreError::ProcFailed { rank } => Error::ProcFailed { rank },
            CoreError::ProcFailedPending => Error::ProcFailedPending,
            CoreError::Revoked => Error::Revoked,
            CoreError::Interrupted => Error::Interrupted,
            CoreError::Fenced => Error::Fenced,
            CoreError::Collective(error) => error.into(),
            CoreError::Pml(error) => error.into(),
            error @ (CoreError::Group(_)
            | CoreError::NoSuchComm
            | CoreError::NoSuchTask
            | CoreError::NoSuchKeyval
            | CoreError::Callback(_)
            | CoreError::WrongKind(_)
            | CoreError::Argument(_)) => Error::Argument(error.to_string()),
            error @ CoreError::Exhausted(_) => Error::Transport(error.to_string()),
        }
    }
}

impl From<RteError> for Error {
    fn from(error: RteError) -> Self {
        Error::Rte(error.to_string())
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Error::Transport(fault.to_string())
    }
}

impl From<PmlError> for Error {
    fn from(error: PmlError) -> Self {
        match error {
            PmlError::ProcFailed { rank } => Error::ProcFailed { rank },
            PmlError::ProcFailedPending => Error::ProcFailedPending,
            PmlError::Revoked => Error::Revoked,
            PmlError::Truncated { sent, capacity } => Error::Truncated { sent, capacity },
            PmlError::NotReady => Error::NotReady,
            PmlError::InvalidRank { rank, size } => Error::InvalidRank { rank, size },
            PmlError::Unreachable(peer) | PmlError::NoRoute(peer) | PmlError::Unresolved(peer) => {
                Error::Unreachable { process: peer.0 }
            }
            error @ (PmlError::InvalidComm
            | PmlError::InvalidRequest
            | PmlError::CidInUse { .. }
            | PmlError::RailLost(_)
            | PmlError::Io(_)
            | PmlError::Stale
            | PmlError::Interrupted
            | PmlError::TooLong { .. }
            | PmlError::Exhausted(_)) => Error::Transport(error.to_string()),
        }
    }
}
