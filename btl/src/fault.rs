//! What can go wrong, classified totally (law 3).

use crate::Peer;
use std::fmt;

/// How far a fault reaches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scope {
    /// One operation failed; the endpoint and the rail go on.
    Operation,
    /// The rail to this peer (or, without a peer, the whole device) is lost. Other rails may still work:
    /// this says nothing about the process at the other end.
    Rail,
    /// The process at the other end is suspected, or proved ([`Cause::ProcessGone`]), to be gone.
    Peer,
}

/// Why it went wrong.
#[derive(Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// Proof that the process no longer exists (its pidfd fired, the kernel says ESRCH). The only cause
    /// that makes a transport's word a process failure.
    #[error("the process is gone")]
    ProcessGone,
    /// The peer closed the connection without saying good-bye.
    #[error("the connection was closed by the other side")]
    Disconnected,
    /// No answer in the time allowed.
    #[error("no answer in the time allowed")]
    TimedOut,
    /// Nobody listens at the address.
    #[error("connection refused")]
    ConnectionRefused,
    /// There is no route or no such address.
    #[error("no route to the address")]
    Unreachable,
    /// The other side did not prove the job secret.
    #[error("the other side did not prove the job secret")]
    Authentication,
    /// The other side broke the framing; nothing it sent after that was believed (law 9).
    #[error("malformed input: {0}")]
    Malformed(&'static str),
    /// The endpoint was invalidated from this side ([`Btl::invalidate`](crate::Btl::invalidate)).
    #[error("the endpoint was invalidated")]
    Invalidated,
    /// The peer finalized and left in good order.
    #[error("the peer has finalized")]
    Finalized,
    /// A resource of this process ran out for good (descriptors, memory).
    #[error("out of {0}")]
    Exhausted(&'static str),
    /// An error of the operating system that has no better name here.
    #[error("{call}: {}", std::io::Error::from_raw_os_error(*errno))]
    Os {
        /// The call that failed.
        call: &'static str,
        /// Its `errno`.
        errno: i32,
    },
    /// What a device says of a request, a queue or itself, in words.
    #[error("the device: {0}")]
    Device(&'static str),
    /// Put there by the chaos wrapper or the simulator.
    #[error("injected: {0}")]
    Injected(&'static str),
}

/// Something broke: how far, with whom, and why.
#[derive(Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub struct Fault {
    /// How far it reaches.
    pub scope: Scope,
    /// The peer concerned; `None` when a whole device is.
    pub peer: Option<Peer>,
    /// Why.
    pub cause: Cause,
}

impl Fault {
    /// A fault of one operation with `peer`.
    #[must_use]
    pub const fn operation(peer: Peer, cause: Cause) -> Self {
        Fault { scope: Scope::Operation, peer: Some(peer), cause }
    }

    /// The rail to `peer` is lost.
    #[must_use]
    pub const fn rail(peer: Peer, cause: Cause) -> Self {
        Fault { scope: Scope::Rail, peer: Some(peer), cause }
    }

    /// The whole device is lost.
    #[must_use]
    pub const fn device(cause: Cause) -> Self {
        Fault { scope: Scope::Rail, peer: None, cause }
    }

    /// The process `peer` is suspected, or with [`Cause::ProcessGone`] known, to be gone.
    #[must_use]
    pub const fn peer(peer: Peer, cause: Cause) -> Self {
        Fault { scope: Scope::Peer, peer: Some(peer), cause }
    }

    /// Whether this is proof that the process is gone, not only a suspicion.
    #[must_use]
    pub fn is_proof(&self) -> bool {
        self.scope == Scope::Peer && self.cause == Cause::ProcessGone
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scope = match self.scope {
            Scope::Operation => "operation",
            Scope::Rail => "rail",
            Scope::Peer => "process",
        };
        match self.peer {
            Some(peer) => write!(f, "{scope} fault with {peer}: {}", self.cause),
            None => write!(f, "{scope} fault: {}", self.cause),
        }
    }
}

/// Why a transport did not take an operation. What was handed down is still the caller's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Refused {
    /// No room now; there will be after [`Btl::progress`](crate::Btl::progress), or the endpoint will fail.
    /// Never answered for a peer known to be dead (law 1).
    #[error("no room now")]
    NoRoom,
    /// The endpoint is being connected; [`Sink::up`](crate::Sink::up) will tell.
    #[error("the endpoint is being connected")]
    Connecting,
    /// There is no endpoint that could carry it: never connected, failing, or closed.
    #[error("the endpoint is closed")]
    Closed,
    /// Longer than the transport's limit for this tier.
    #[error("longer than the transport's limit of {max} bytes")]
    TooLong {
        /// The limit, in bytes.
        max: usize,
    },
    /// The transport does not have this operation; its capabilities say so.
    #[error("not supported by this transport")]
    Unsupported,
}
