//! What travels: elements of plain data, and what is known of a message.

use crate::{Error, Result};
use ironweave_pml::ob1;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Elements that can be sent: plain data without padding, so that every byte of it is defined.
///
/// Integers, floats, arrays of them, and whatever derives zerocopy's `IntoBytes` and `Immutable`.
pub trait Element: IntoBytes + Immutable + 'static {}
impl<T: IntoBytes + Immutable + 'static> Element for T {}

/// Elements that can be received: any bytes are a value of them.
pub trait ElementMut: FromBytes + Element {}
impl<T: FromBytes + Element> ElementMut for T {}

/// From whom to receive (MPI standard 5.0, 3.2.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// Anybody in the communicator (`MPI_ANY_SOURCE`).
    Any,
    /// This rank.
    Rank(u32),
}

impl From<u32> for Source {
    fn from(rank: u32) -> Self {
        Source::Rank(rank)
    }
}

impl From<Source> for ob1::Source {
    #[inline]
    fn from(source: Source) -> Self {
        match source {
            Source::Any => ob1::Source::Any,
            Source::Rank(rank) => ob1::Source::Rank(rank),
        }
    }
}

/// Which tag to receive (MPI standard 5.0, 3.2.4). Tags are 0 to [`Tag::MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tag {
    /// Any tag (`MPI_ANY_TAG`).
    Any,
    /// This tag.
    Is(i32),
}

impl Tag {
    /// The largest tag (`MPI_TAG_UB`).
    pub const MAX: i32 = i32::MAX;

    /// The tag of a send: a number that users may use.
    #[inline]
    pub(crate) fn check(tag: i32) -> Result<i32> {
        if tag < 0 { Err(Error::InvalidTag { tag }) } else { Ok(tag) }
    }

    #[inline]
    pub(crate) fn matching(self) -> Result<ob1::TagMatch> {
        Ok(match self {
            Tag::Any => ob1::TagMatch::Any,
            Tag::Is(tag) => ob1::TagMatch::Tag(Tag::check(tag)?),
        })
    }
}

impl From<i32> for Tag {
    fn from(tag: i32) -> Self {
        Tag::Is(tag)
    }
}

/// What is known of a received or probed message: `source` (the sender's rank in the communicator), `tag`, `bytes` (the
/// length, of the message for a probe, of what is in the buffer for a receive); and `is_cancelled()`: the receive was
/// cancelled before it matched, and the fields say nothing.
// The engine's own record under another name: it is handed from the request to the caller in one piece.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(transparent)]
pub struct Status(ob1::Status);

impl std::ops::Deref for Status {
    type Target = ob1::Status;

    #[inline]
    fn deref(&self) -> &ob1::Status {
        &self.0
    }
}

impl Status {
    /// The status of a send, which says nothing.
    pub(crate) const SENT: Status = Status(ob1::Status::EMPTY);

    /// How many elements of type `T` that is (`MPI_Get_count`).
    ///
    /// # Errors
    /// [`Error::PartialElement`] when it is no whole number of them.
    pub fn count<T: Element>(&self) -> Result<usize> {
        let element = size_of::<T>();
        if element == 0 || !self.bytes.is_multiple_of(element) {
            return Err(Error::PartialElement { bytes: self.bytes, element });
        }
        Ok(self.bytes / element)
    }
}

impl From<ob1::Status> for Status {
    #[inline]
    fn from(status: ob1::Status) -> Self {
        Status(status)
    }
}
