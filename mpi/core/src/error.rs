//! What a call of this crate can answer instead of success: one exhaustive enum (law 3).

use crate::GroupError;
use ironweave_pml::ob1::PmlError;

/// Why an operation on a communicator did not succeed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CoreError {
    /// A member has failed: `rank` in the communicator (for an inter-communicator: in its remote group, or in its own when
    /// only members of that failed).
    #[error("the process of rank {rank} has failed")]
    ProcFailed {
        /// The first of them.
        rank: u32,
    },
    /// A possible sender of a wildcard receive has failed; the receive is still pending.
    #[error("a potential sender has failed; the receive is still pending")]
    ProcFailedPending,
    /// The communicator has been revoked.
    #[error("the communicator has been revoked")]
    Revoked,
    /// Another member could not go on with its part, though nobody is known to have failed: a link was given up.
    #[error("another member gave the operation up")]
    Interrupted,
    /// Others hold this process for failed and have excluded it: it has to stop (law 4).
    #[error("this process was excluded by the others")]
    Fenced,
    /// A collective operation failed otherwise.
    #[error(transparent)]
    Collective(ironweave_coll::CollError),
    /// A point-to-point operation failed otherwise.
    #[error(transparent)]
    Pml(PmlError),
    /// Ranks that make no group.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The handle names no communicator (any more).
    #[error("no such communicator")]
    NoSuchComm,
    /// The handle names no operation (any more).
    #[error("no such operation")]
    NoSuchTask,
    /// The handle names no attribute key (any more).
    #[error("no such attribute key")]
    NoSuchKeyval,
    /// An attribute callback refused with this code of its own.
    #[error("an attribute callback refused with code {0}")]
    Callback(i32),
    /// The operation is for the other kind of communicator (intra or inter).
    #[error("the operation is not for {0}-communicators")]
    WrongKind(&'static str),
    /// The arguments do not fit each other or the communicator.
    #[error("{0}")]
    Argument(&'static str),
    /// There are no more of them.
    #[error("out of {0}")]
    Exhausted(&'static str),
}

impl From<PmlError> for CoreError {
    fn from(error: PmlError) -> Self {
        match error {
            PmlError::ProcFailed { rank } => CoreError::ProcFailed { rank },
            PmlError::ProcFailedPending => CoreError::ProcFailedPending,
            PmlError::Revoked => CoreError::Revoked,
            PmlError::Interrupted => CoreError::Interrupted,
            PmlError::InvalidComm => CoreError::NoSuchComm,
            other => CoreError::Pml(other),
        }
    }
}
