//! Requests: their public names and results, and the fields every request carries (seed 000, "Request fields").

use super::PmlError;
use super::slots::{Key, SLOT_BITS};
use std::num::NonZeroU64;

/// The name of a request. Stays unique for a very long time after the request is gone (slot and generation).
// One word, so that it travels in a register: the key's (slot, generation), and the kind in the top bits of the slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReqId(NonZeroU64);

/// Which slab a [`ReqId`] points into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Recv,
    Send,
    Persistent,
}

const KIND_SHIFT: u32 = SLOT_BITS;
const KIND_MASK: u64 = 3 << KIND_SHIFT;
/// What every word has set: generations in use are odd.
const ODD: NonZeroU64 = NonZeroU64::new(1 << 32).expect("it is not 0");

impl ReqId {
    #[inline]
    fn new(key: Key, kind: u64) -> Self {
        debug_assert!(key.generation & 1 == 1, "the name of a free slot");
        ReqId(ODD | key.to_wire() | kind << KIND_SHIFT)
    }

    #[inline]
    pub(super) fn send(key: Key) -> Self {
        Self::new(key, 1)
    }

    #[inline]
    pub(super) fn recv(key: Key) -> Self {
        Self::new(key, 0)
    }

    #[inline]
    pub(super) fn persistent(key: Key) -> Self {
        Self::new(key, 2)
    }

    #[inline]
    pub(super) const fn kind(self) -> Kind {
        match (self.0.get() & KIND_MASK) >> KIND_SHIFT {
            0 => Kind::Recv,
            1 => Kind::Send,
            _ => Kind::Persistent,
        }
    }

    #[inline]
    pub(super) const fn key(self) -> Key {
        Key::from_wire(self.0.get() & !KIND_MASK)
    }

    /// A number that is unique among this engine's requests, for tables of the owner.
    #[inline]
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0.get()
    }
}

/// A message taken out of the queues by [`Ob1::mprobe`](super::Ob1::mprobe).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MessageId(pub(super) Key);

/// From whom a receive takes messages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// Anybody in the (remote) group.
    Any,
    /// This rank.
    Rank(u32),
}

/// Which tag a receive takes.
///
/// Tags of users are 0 and above. Negative tags are the library's own (collectives); [`Any`](TagMatch::Any) does not
/// match them. Tags up to [`FT_TAG_MAX`] also work on a revoked communicator (agreement, shrink).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TagMatch {
    /// Any tag of users.
    Any,
    /// This tag.
    Tag(i32),
}

/// Tags from here down are resilient: they are neither interrupted nor refused on a revoked communicator.
pub const FT_TAG_MAX: i32 = -(1 << 30);

/// Tags from here down to [`FT_TAG_MAX`] are of point-to-point messages that must not meet those of users (partitioned ones, MPI
/// 5.0, chapter 4): no wildcard for tags matches them, a revoke ends them, an interrupted collective does not.
pub const PARTITIONED_TAG_MAX: i32 = FT_TAG_MAX / 4 * 3;

/// Whether a tag is one of collectives: negative, so that no wildcard for tags matches it, and above [`PARTITIONED_TAG_MAX`], so
/// that revoke and [`Ob1::interrupt_collectives`](super::Ob1::interrupt_collectives) reach it.
#[must_use]
pub const fn is_collective(tag: i32) -> bool {
    PARTITIONED_TAG_MAX < tag && tag < 0
}

/// When a send is complete, and what it may assume.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// Complete when the buffer can be used again.
    Standard,
    /// Complete when the receive has been matched, too.
    Synchronous,
    /// As standard; the caller promises that the receive is posted. Where the broken promise shows, the send ends with
    /// [`PmlError::NotReady`](super::PmlError): to oneself, and when the message is long enough to be announced.
    Ready,
    /// Complete at once: the data is copied.
    Buffered,
}

/// What a completed receive, or a probe, tells about the message.
// Whole words without padding: copying a padded tail piece by piece stalls the reader of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(C)]
pub struct Status {
    /// The sender's rank; for a receive that ended before it matched, the rank asked for or [`Status::ANY`].
    pub source: u32,
    /// The message's tag; for a receive that ended before it matched, the tag asked for or [`Status::ANY_TAG`].
    pub tag: i32,
    /// Bytes received (at most the buffer's length); for a probe the length of the message.
    pub bytes: usize,
}

impl Status {
    /// No source: nothing matched a wildcard.
    pub const ANY: u32 = u32::MAX;
    /// No tag: nothing matched a wildcard.
    pub const ANY_TAG: i32 = i32::MIN;

    /// The status of a send, and of an inactive persistent request.
    pub const EMPTY: Status = Status { source: Self::ANY, tag: Self::ANY_TAG, bytes: 0 };

    /// The status of a receive that was cancelled before it matched. No message has such a length.
    pub const CANCELLED: Status =
        Status { source: Self::ANY, tag: Self::ANY_TAG, bytes: usize::MAX };

    /// Whether the receive was cancelled before it matched; the fields say nothing then.
    #[inline]
    #[must_use]
    pub const fn is_cancelled(&self) -> bool {
        self.bytes == usize::MAX
    }
}

/// The end of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// What was received.
    pub status: Status,
    /// How it ended. With [`PmlError::ProcFailedPending`] it has not: the request is still there.
    pub result: Result<(), PmlError>,
}

/// A send that was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Started {
    /// Complete already: the buffer can be used again and there is no request.
    Done,
    /// Under way.
    Pending(ReqId),
}
