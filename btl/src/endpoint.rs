//! Who is at the other end, and in which state the connection to it is.

use std::fmt;

/// A process, by its index in the job (its rank in the world; dynamically joined processes follow).
///
/// A BTL has at most one endpoint for each peer, so the peer names the endpoint. Several links to one
/// peer are several BTLs (rails).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(transparent)]
pub struct Peer(pub u32);

impl Peer {
    /// The index into tables that have a row for each process.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peer {}", self.0)
    }
}

/// The life of an endpoint. There are no other states, and error-handler mode is always on.
///
/// ```text
///   connect / hello of the peer        handshake done          fault or invalidate      all came back
///  ────────────────────────▶ Connecting ─────────────▶ Up ─────────────────▶ Failing ────────────▶ Closed
///                                 └──────────────── fault or invalidate ────────▶┘
/// ```
///
/// `Closed` may be followed by a new `Connecting` (a rail that heals) unless the peer was excluded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum EndpointState {
    /// The handshake is under way; sends are refused with [`Refused::Connecting`](crate::Refused).
    Connecting,
    /// Sends are taken.
    Up,
    /// Fenced; outstanding operations are coming back with errors.
    Failing,
    /// Nothing of it is outstanding. Also the state of an endpoint that never was.
    Closed,
}
