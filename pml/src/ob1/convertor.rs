//! The convertor seam: where a message's bytes come from and go to.
//!
//! Contiguous memory is the fast path and can be handed to rails as it is. Everything else (an iovec, a derived
//! datatype) is packed and unpacked piece by piece at byte offsets of the packed message, in any order of pieces. No
//! method here allocates, and none touches memory outside what its maker promised.

use ironweave_btl::copy::pack;
use ironweave_btl::memory::{RecvRegion, SendRegion};
use smallvec::SmallVec;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Non-contiguous data to send: the packed message is what `pack` writes for each range of its bytes.
pub trait Pack: Send + Sync {
    /// Length of the packed message, in bytes. Constant.
    fn packed_len(&self) -> usize;
    /// Writes the packed bytes from `offset` on into the whole of `out`. `offset + out.len()` is at most the length.
    fn pack(&self, offset: usize, out: &mut [u8]);
    /// The memory that holds the packed bytes of `range`, in order, when a few contiguous pieces do.
    fn regions(&self, range: Range<usize>) -> Option<SmallVec<[SendRegion; 2]>> {
        let _ = range;
        None
    }
}

/// Non-contiguous data to receive into.
pub trait Unpack: Send {
    /// Longest packed message that fits, in bytes. Constant.
    fn capacity(&self) -> usize;
    /// Takes the packed bytes at `offset`. `offset + packed.len()` is at most the capacity. Pieces come in any
    /// order, each once.
    fn unpack(&mut self, offset: usize, packed: &[u8]);
    /// The memory that shall hold the packed bytes of `range`, when one contiguous piece does.
    fn region(&self, range: Range<usize>) -> Option<RecvRegion> {
        let _ = range;
        None
    }
}

/// The data of a send. Cheap to clone; copies name the same memory.
#[derive(Clone)]
pub enum Payload {
    /// One piece of user memory.
    Contiguous(SendRegion),
    /// Several pieces of user memory, one after the other (an iovec).
    List(Arc<[SendRegion]>),
    /// Bytes that go with the message (buffered sends), and are dropped when it is out.
    Owned(Arc<dyn AsRef<[u8]> + Send + Sync>),
    /// Anything else.
    Convertor(Arc<dyn Pack>),
}

impl Payload {
    /// A message of no bytes.
    #[must_use]
    pub fn empty() -> Self {
        Payload::Contiguous(SendRegion::of_static(&[]))
    }

    /// A message of these bytes, which go with it and are dropped when it is out.
    #[must_use]
    pub fn owned(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Payload::Owned(Arc::new(bytes))
    }

    /// Length of the packed message, in bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Payload::Contiguous(region) => region.len(),
            Payload::List(parts) => parts.iter().map(SendRegion::len).sum(),
            Payload::Owned(bytes) => (**bytes).as_ref().len(),
            Payload::Convertor(pack) => pack.packed_len(),
        }
    }

    /// Whether the message has no bytes.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the packed bytes from `offset` on into the whole of `out`.
    ///
    /// # Panics
    /// When `out` reaches beyond the end of the message.
    #[inline]
    pub fn pack(&self, offset: usize, out: &mut [u8]) {
        match self {
            Payload::Contiguous(region) => {
                pack(out, &region.as_slice()[offset..offset + out.len()]);
            }
            Payload::Owned(bytes) => pack(out, &(**bytes).as_ref()[offset..offset + out.len()]),
            Payload::List(parts) => pack_list(parts, offset, out),
            Payload::Convertor(pack) => pack.pack(offset, out),
        }
    }

    /// The whole message as one slice, if it is one.
    #[inline]
    pub(super) fn as_slice(&self) -> Option<&[u8]> {
        match self {
            Payload::Contiguous(region) => Some(region.as_slice()),
            Payload::Owned(bytes) => Some((**bytes).as_ref()),
            Payload::List(_) | Payload::Convertor(_) => None,
        }
    }

    /// Whether its bytes have to be packed.
    pub(super) const fn is_packed(&self) -> bool {
        matches!(self, Payload::Convertor(_))
    }

    /// The memory of `range` for a zero-copy send, when there is such memory.
    pub(super) fn regions(&self, range: Range<usize>) -> Option<SmallVec<[SendRegion; 2]>> {
        match self {
            Payload::Contiguous(region) => {
                let mut regions = SmallVec::new();
                regions.push(region.part(range));
                Some(regions)
            }
            Payload::Owned(_) => None,
            Payload::List(parts) => {
                let mut regions = SmallVec::new();
                let mut start = 0;
                for part in parts.iter() {
                    let (from, until) = (range.start.max(start), range.end.min(start + part.len()));
                    if from < until {
                        regions.push(part.part(from - start..until - start));
                    }
                    start += part.len();
                }
                Some(regions)
            }
            Payload::Convertor(pack) => pack.regions(range),
        }
    }

    /// The whole message as one region of user memory, if it is one.
    pub(super) fn whole(&self) -> Option<SendRegion> {
        match self {
            Payload::Contiguous(region) => Some(region.clone()),
            _ => None,
        }
    }

    /// The packed bytes.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.pack(0, &mut bytes);
        bytes
    }

    /// Bytes that go with the message, for a buffered send.
    pub(super) fn copied(&self) -> Payload {
        match self {
            Payload::Owned(_) => self.clone(),
            _ => Payload::owned(self.to_vec()),
        }
    }
}

fn pack_list(parts: &[SendRegion], offset: usize, out: &mut [u8]) {
    let (mut skip, mut out) = (offset, out);
    for part in parts {
        if out.is_empty() {
            return;
        }
        if skip >= part.len() {
            skip -= part.len();
            continue;
        }
        let n = (part.len() - skip).min(out.len());
        let (now, rest) = out.split_at_mut(n);
        pack(now, &part.as_slice()[skip..skip + n]);
        (out, skip) = (rest, 0);
    }
    assert!(out.is_empty(), "a piece beyond the end of the message");
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.len())
    }
}

impl From<SendRegion> for Payload {
    fn from(region: SendRegion) -> Self {
        Payload::Contiguous(region)
    }
}

/// Where the data of a receive goes.
pub enum Buffer {
    /// One piece of user memory.
    Contiguous(RecvRegion),
    /// Several pieces of user memory, one after the other (an iovec).
    List(Vec<RecvRegion>),
    /// Anything else.
    Convertor(Box<dyn Unpack>),
}

impl Buffer {
    /// No room at all.
    pub(super) const NONE: Buffer = Buffer::Contiguous(RecvRegion::empty());

    /// Longest packed message that fits, in bytes.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        match self {
            Buffer::Contiguous(region) => region.len(),
            Buffer::List(parts) => parts.iter().map(RecvRegion::len).sum(),
            Buffer::Convertor(unpack) => unpack.capacity(),
        }
    }

    /// Takes the packed bytes at `offset`.
    ///
    /// # Panics
    /// When they reach beyond the capacity.
    #[inline]
    pub fn unpack(&mut self, offset: usize, packed: &[u8]) {
        match self {
            Buffer::Contiguous(region) => region.write(offset, packed),
            Buffer::List(parts) => unpack_list(parts, offset, packed),
            Buffer::Convertor(unpack) => unpack.unpack(offset, packed),
        }
    }

    /// The memory of `range`, for data that a rail writes itself.
    #[inline]
    pub(super) fn region(&self, range: Range<usize>) -> Option<RecvRegion> {
        match self {
            Buffer::Contiguous(region) => Some(region.part(range)),
            Buffer::List(parts) => {
                let mut start = 0;
                for part in parts {
                    if range.start >= start && range.end <= start + part.len() {
                        return Some(part.part(range.start - start..range.end - start));
                    }
                    start += part.len();
                }
                None
            }
            Buffer::Convertor(unpack) => unpack.region(range),
        }
    }
}

fn unpack_list(parts: &[RecvRegion], offset: usize, packed: &[u8]) {
    let (mut skip, mut packed) = (offset, packed);
    for part in parts {
        if packed.is_empty() {
            return;
        }
        if skip >= part.len() {
            skip -= part.len();
            continue;
        }
        let (now, rest) = packed.split_at((part.len() - skip).min(packed.len()));
        part.write(skip, now);
        (packed, skip) = (rest, 0);
    }
    assert!(packed.is_empty(), "a piece beyond the end of the buffer");
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.capacity())
    }
}

impl From<RecvRegion> for Buffer {
    fn from(region: RecvRegion) -> Self {
        Buffer::Contiguous(region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An iovec over parts of one static array.
    fn list(lens: &[usize]) -> (Payload, Vec<u8>) {
        static BYTES: [u8; 256] = {
            let mut bytes = [0; 256];
            let mut i = 0;
            while i < 256 {
                bytes[i] = i as u8;
                i += 1;
            }
            bytes
        };
        let part = |(i, &n): (usize, &usize)| SendRegion::of_static(&BYTES[i * 7..][..n]);
        let parts: Vec<_> = lens.iter().enumerate().map(part).collect();
        let flat = parts.iter().flat_map(|part| part.as_slice()).copied().collect();
        (Payload::List(parts.into()), flat)
    }

    proptest! {
        #[test]
        fn any_range_of_a_list_packs(lens in proptest::collection::vec(0..40usize, 0..6), cut in any::<(u16, u16)>()) {
            let (payload, flat) = list(&lens);
            prop_assert_eq!(payload.len(), flat.len());
            let a = usize::from(cut.0) % (flat.len() + 1);
            let b = a + usize::from(cut.1) % (flat.len() - a + 1);
            let mut out = vec![0; b - a];
            payload.pack(a, &mut out);
            prop_assert_eq!(&out[..], &flat[a..b]);
            let regions = payload.regions(a..b).expect("a list has memory");
            let joined: Vec<u8> = regions.iter().flat_map(|r| r.as_slice()).copied().collect();
            prop_assert_eq!(&joined[..], &flat[a..b]);
        }
    }

    #[test]
    #[should_panic(expected = "beyond the end of the message")]
    fn packing_beyond_a_list_is_caught() {
        list(&[3, 4]).0.pack(5, &mut [0; 3]);
    }
}
