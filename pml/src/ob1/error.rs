//! What can go wrong with a point-to-point operation: one exhaustive enum (law 3).
//!
//! An error that is known when an operation is created because the *call* is wrong comes back from the call; an error
//! of the *operation* (a dead peer, a truncation, a lost rail) comes back with its completion (seed 003 §17.6.1).

use ironweave_btl::{Fault, Peer};

/// Why a point-to-point operation did not succeed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PmlError {
    /// The process at the other end has failed. `rank` is its rank in the operation's communicator.
    #[error("the process of rank {rank} has failed")]
    ProcFailed {
        /// Its rank in the (remote) group of the communicator.
        rank: u32,
    },
    /// A process that might have sent a message to this wildcard receive has failed. The request is *not* over: it
    /// stays posted and may still match; see [`Ob1::ack_failed`](super::Ob1::ack_failed).
    #[error("a potential sender has failed; the receive is still pending")]
    ProcFailedPending,
    /// The communicator has been revoked, here or at the other end.
    #[error("the communicator has been revoked")]
    Revoked,
    /// A member has failed, and a collective of this communicator was interrupted for it somewhere
    /// ([`Ob1::interrupt_collectives`](super::Ob1::interrupt_collectives)).
    #[error("the collectives of the communicator are interrupted")]
    Interrupted,
    /// The message was longer than the receive buffer, which holds its first `capacity` bytes.
    #[error("a message of {sent} bytes was truncated to {capacity}")]
    Truncated {
        /// Length of the message, in bytes.
        sent: u64,
        /// Length of the receive buffer, in bytes.
        capacity: u64,
    },
    /// A ready send found no receive posted (best effort: told only where the receiver can see it at once).
    #[error("a ready send found no matching receive posted")]
    NotReady,
    /// The rank is not in the communicator's (remote) group.
    #[error("rank {rank} is not in a group of {size}")]
    InvalidRank {
        /// The rank asked for.
        rank: u32,
        /// The number of ranks there are.
        size: u32,
    },
    /// The handle names no communicator (any more).
    #[error("no such communicator")]
    InvalidComm,
    /// The handle names no request or message (any more).
    #[error("no such request")]
    InvalidRequest,
    /// A communicator with this id and epoch cannot be added: the id is in use, or the epoch is over.
    #[error("communicator id {cid} is in use or its epoch {epoch} is over")]
    CidInUse {
        /// The id.
        cid: u16,
        /// The epoch.
        epoch: u16,
    },
    /// The addresses of this peer are not known yet: give them to [`Ob1::add_peer`](super::Ob1::add_peer) and try again.
    /// Nothing was started.
    #[error("the addresses of {0} are not known yet")]
    Unresolved(Peer),
    /// No rail of this process reaches the peer with the addresses it published.
    #[error("no rail reaches {0}")]
    NoRoute(Peer),
    /// The peer cannot be reached any more, although nobody says that it died.
    #[error("{0} cannot be reached any more")]
    Unreachable(Peer),
    /// Parts of this message were lost, and it could not be begun again: it was too often, or went over a rail that is never
    /// lost ([`Caps::lossless`](ironweave_btl::Caps)) and yet was. Otherwise lost rails end no message.
    #[error("a rail was lost under the message: {0}")]
    RailLost(Fault),
    /// The transport reports a fault that concerns this operation alone.
    #[error(transparent)]
    Io(Fault),
    /// The peer answered that it knows nothing of this communicator (any more).
    #[error("the communicator does not exist at the receiver any more")]
    Stale,
    /// A control message beyond [`CONTROL_MAX`](super::CONTROL_MAX).
    #[error("a control message has at most {max} bytes")]
    TooLong {
        /// The longest there is, in bytes.
        max: usize,
    },
    /// The operation needs more than there is (bounded by [`Config`](super::Config)).
    #[error("out of {0}")]
    Exhausted(&'static str),
}
