//! Operations that outlive the call: owned values, given to the BTL and given back exactly once (law 1).

use crate::Peer;
use crate::memory::{RecvRegion, SendRegion};
use smallvec::SmallVec;
use std::fmt;

/// Longest frame header, in bytes.
pub const HEADER_MAX: usize = 64;

/// What the owner wrote on an operation, to know it again. Opaque to the transport.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Token(pub u64);

/// A frame header held by value.
#[derive(Clone, Copy)]
pub struct Header {
    bytes: [u8; HEADER_MAX],
    len: u8,
}

impl Header {
    /// Copies `bytes`.
    ///
    /// # Panics
    /// When `bytes` is longer than [`HEADER_MAX`]: headers are made by protocols, not by users.
    #[inline]
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        assert!(bytes.len() <= HEADER_MAX, "a frame header of {} bytes", bytes.len());
        let mut header = Header { bytes: [0; HEADER_MAX], len: bytes.len() as u8 };
        header.bytes[..bytes.len()].copy_from_slice(bytes);
        header
    }

    /// The bytes.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Header({:02x?})", self.as_bytes())
    }
}

/// A zero-copy send: the transport reads the payload out of user memory until it gives this back through
/// [`Sink::completed`](crate::Sink::completed).
#[derive(Debug)]
pub struct Descriptor {
    /// To whom.
    pub peer: Peer,
    /// The frame's header.
    pub header: Header,
    /// The frame's payload: these regions, one after the other.
    pub payload: SmallVec<[SendRegion; 2]>,
    /// The owner's mark.
    pub token: Token,
}

impl Descriptor {
    /// Length of the payload in bytes.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.payload.iter().map(SendRegion::len).sum()
    }
}

/// What a peer needs to reach registered memory: made by [`Btl::register_source`](crate::Btl::register_source), carried
/// in a rendezvous header, understood only by the same kind of transport. At most 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteKey {
    bytes: [u8; RemoteKey::MAX],
    len: u8,
}

impl RemoteKey {
    /// Longest key, in bytes.
    pub const MAX: usize = 32;

    /// Copies `bytes`; `None` when they are too many (they may come from the wire).
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut key = RemoteKey { bytes: [0; Self::MAX], len: bytes.len().try_into().ok()? };
        key.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(key)
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for RemoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteKey({:02x?})", self.as_bytes())
    }
}

/// Which way remote memory access goes.
#[derive(Debug)]
pub enum RmaKind {
    /// Local memory is written to the peer's.
    Put(SendRegion),
    /// The peer's memory is read into local memory.
    Get(RecvRegion),
    /// A number in the peer's memory changes, and what was there before is written to the eight bytes of local memory.
    Atomic(Atomic, RecvRegion),
}

impl RmaKind {
    /// Length of the operation, in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        match self {
            RmaKind::Put(region) => region.len(),
            RmaKind::Get(region) => region.len(),
            RmaKind::Atomic(..) => Atomic::BYTES,
        }
    }
}

/// An operation that a device does on a number in a peer's memory, as one step for all that reach it by that device: eight bytes in the
/// order of the host, at an address that is a multiple of eight, in memory of
/// [`Btl::register_target`](crate::Btl::register_target). Not one step for the processor's own loads and stores: the owner
/// of the memory looks when nobody changes it, or changes it over the device, too. One that comes back with an error may have been
/// carried out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Atomic {
    /// Adds; what is too much for 64 bits is lost.
    FetchAdd(u64),
    /// Writes `swap` where `compare` is there.
    CompareSwap {
        /// What has to be there.
        compare: u64,
        /// What it becomes then.
        swap: u64,
    },
}

impl Atomic {
    /// How long the number is.
    pub const BYTES: usize = 8;

    /// What becomes of a number: for transports that do it themselves.
    #[must_use]
    pub const fn applied_to(self, there: u64) -> u64 {
        match self {
            Atomic::FetchAdd(add) => there.wrapping_add(add),
            Atomic::CompareSwap { compare, swap } if there == compare => swap,
            Atomic::CompareSwap { .. } => there,
        }
    }
}

/// A put, get or atomic operation: the transport touches the local region until it gives this back through
/// [`Sink::rma_completed`](crate::Sink::rma_completed).
#[derive(Debug)]
pub struct RmaDescriptor {
    /// With whom.
    pub peer: Peer,
    /// What is done, and local memory; its length is the length of the operation.
    pub kind: RmaKind,
    /// The peer's registered memory.
    pub remote: RemoteKey,
    /// Where in that memory, in bytes from its start.
    pub remote_offset: u64,
    /// The owner's mark.
    pub token: Token,
}

impl RmaDescriptor {
    /// Another handle to the same: for a transport that begins what it was shown ([`Btl::read_now`](crate::Btl::read_now)).
    #[must_use]
    pub fn handle(&self) -> Self {
        let kind = match &self.kind {
            RmaKind::Put(region) => RmaKind::Put(region.clone()),
            RmaKind::Get(region) => RmaKind::Get(region.part(0..region.len())),
            RmaKind::Atomic(what, region) => RmaKind::Atomic(*what, region.part(0..region.len())),
        };
        RmaDescriptor { kind, ..*self }
    }
}
