//! Messages that came before their receive: what is kept of them, and in what memory.
//!
//! Short payloads live in the node; longer ones in buffers that are pooled by size class, so that a steady flow of
//! unexpected messages allocates nothing.

use super::lanes::{ARRIVED, BY_SOURCE, BY_TAG, EXACT};
use super::list::{Linked, Links};
use super::{CommId, RailId, Status};
use ironweave_btl::copy::pack;
use ironweave_btl::{Peer, RemoteKey};

/// Bytes that fit in the node.
const INLINE: usize = 64;

/// Kept payload.
pub(super) enum Held {
    Inline {
        len: u8,
        bytes: [u8; INLINE],
    },
    /// The first `len` bytes of a buffer of a class's length.
    Pooled {
        len: usize,
        buffer: Vec<u8>,
    },
}

impl Held {
    pub const EMPTY: Held = Held::Inline { len: 0, bytes: [0; INLINE] };

    /// A key, which always fits.
    pub fn of_key(key: Option<&RemoteKey>) -> Self {
        let mut inline = [0; INLINE];
        let key = key.map_or(&[][..], RemoteKey::as_bytes);
        inline[..key.len()].copy_from_slice(key);
        Held::Inline { len: key.len() as u8, bytes: inline }
    }

    /// Gives pooled memory back; what stays is no message any more.
    #[inline]
    pub fn give_back(&mut self, pool: &mut Pool) {
        if let Held::Pooled { .. } = self {
            pool.give_back(std::mem::replace(self, Held::EMPTY));
        }
    }

    /// Adds bytes; there is room for the length that `hold` was told.
    pub fn extend(&mut self, more: &[u8]) {
        match self {
            Held::Inline { len, bytes } => {
                let start = usize::from(*len);
                bytes[start..start + more.len()].copy_from_slice(more);
                *len += more.len() as u8;
            }
            Held::Pooled { len, buffer } => {
                pack(&mut buffer[*len..*len + more.len()], more);
                *len += more.len();
            }
        }
    }

    pub fn as_slice(&self) -> &[u8] {
        match self {
            Held::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Held::Pooled { len, buffer } => &buffer[..*len],
        }
    }
}

/// Free buffers by size class: powers of two from 128 bytes to 1 MiB.
pub(super) struct Pool {
    classes: [Vec<Vec<u8>>; 14],
}

/// Bytes that one class may keep.
const CLASS_BYTES: usize = 4 << 20;

impl Pool {
    pub fn new() -> Self {
        Pool { classes: Default::default() }
    }

    fn class(len: usize) -> usize {
        (len.max(128).next_power_of_two().trailing_zeros() - 7) as usize
    }

    /// Keeps a copy of `bytes`, with room for `total`.
    #[inline]
    pub fn hold(&mut self, bytes: &[u8], total: usize) -> Held {
        if total <= INLINE {
            let mut inline = [0; INLINE];
            inline[..bytes.len()].copy_from_slice(bytes);
            return Held::Inline { len: bytes.len() as u8, bytes: inline };
        }
        let class = Self::class(total);
        let mut buffer = match self.classes.get_mut(class).and_then(Vec::pop) {
            Some(buffer) => buffer,
            None => vec![0; total.next_power_of_two().max(128)],
        };
        // Not the library's copy: a long buffer starts just behind the beginning of a page, where its strings are slow if the user's
        // buffer starts there (`copy`).
        pack(&mut buffer[..bytes.len()], bytes);
        Held::Pooled { len: bytes.len(), buffer }
    }

    /// As `hold`, of bytes that `fill` writes.
    pub fn hold_with(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Held {
        let mut held = self.hold(&[], len);
        match &mut held {
            Held::Inline { len: used, bytes } => {
                fill(&mut bytes[..len]);
                *used = len as u8;
            }
            Held::Pooled { len: used, buffer } => {
                fill(&mut buffer[..len]);
                *used = len;
            }
        }
        held
    }

    /// Takes the memory back.
    #[inline]
    pub fn give_back(&mut self, held: Held) {
        let Held::Pooled { buffer, .. } = held else { return };
        let class = Self::class(buffer.len());
        if let Some(free) = self.classes.get_mut(class)
            && (free.len() + 1) << (class + 7) <= CLASS_BYTES
        {
            free.push(buffer);
        }
    }
}

/// What came of a message so far.
pub(super) enum Body {
    /// All of it.
    Whole(Held),
    /// The start; the rest is on its way by itself.
    Stream(Held),
    /// The start; the sender waits for an answer.
    Rndv { held: Held, sender: u64, rail: RailId, confirm: bool },
    /// The key; the sender waits for an answer.
    Rget {
        key: RemoteKey,
        sender: u64,
        rail: RailId,
        confirm: bool,
        /// When it came: in which round of progress.
        round: u64,
    },
}

impl Body {
    /// The last fragment of a stream is here.
    pub fn finish_stream(&mut self) {
        if let Body::Stream(held) = self {
            *self = Body::Whole(std::mem::replace(held, Held::EMPTY));
        }
    }
}

/// Where the message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// In the queues of its communicator.
    Queued,
    /// Taken out by `mprobe`.
    Claimed,
    /// Nowhere: a free slot.
    Vacant,
}

/// A message without a receive.
pub(super) struct Unexpected {
    pub comm: CommId,
    pub source: u32,
    pub tag: i32,
    pub peer: Peer,
    /// Whole length.
    pub length: u64,
    /// When it came, for the order among queues.
    pub order: u64,
    pub place: Place,
    pub body: Body,
    pub links: [Links; 4],
}

impl Unexpected {
    pub const VACANT: Unexpected = Unexpected {
        comm: CommId { slot: 0, generation: 0 },
        source: 0,
        tag: 0,
        peer: Peer(u32::MAX),
        length: 0,
        order: 0,
        place: Place::Vacant,
        body: Body::Whole(Held::EMPTY),
        links: [Links::NONE; 4],
    };

    pub fn status(&self) -> Status {
        Status { source: self.source, tag: self.tag, bytes: self.length as usize }
    }

    /// Whether it can be received although nothing more comes from its sender.
    pub fn is_whole(&self) -> bool {
        match &self.body {
            Body::Whole(_) => true,
            Body::Stream(held) | Body::Rndv { held, .. } => {
                held.as_slice().len() as u64 == self.length
            }
            Body::Rget { .. } => false,
        }
    }
}

macro_rules! linked {
    ($($lane:ident),*) => {$(
        impl Linked<$lane> for Unexpected {
            #[inline]
            fn links(&self) -> &Links {
                &self.links[$lane]
            }
            #[inline]
            fn links_mut(&mut self) -> &mut Links {
                &mut self.links[$lane]
            }
        }
    )*};
}
linked!(EXACT, BY_SOURCE, ARRIVED, BY_TAG);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_in_steps_or_filled_is_what_was_given() {
        let mut pool = Pool::new();
        for _ in 0..2 {
            for len in [1, INLINE, INLINE + 1, 5000, 100_000] {
                let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
                let mut held = pool.hold(&bytes[..len / 3], len);
                for more in bytes[len / 3..].chunks(1 + len / 5) {
                    held.extend(more);
                }
                assert!(held.as_slice() == bytes, "{len} bytes in steps");
                let filled = pool.hold_with(len, |into| into.copy_from_slice(&bytes));
                assert!(filled.as_slice() == bytes, "{len} bytes at once");
                pool.give_back(held);
                pool.give_back(filled); // what is in them now means nothing
            }
        }
    }

    #[test]
    fn the_pool_reuses_what_it_gets_back() {
        let mut pool = Pool::new();
        for len in [0, 1, INLINE, INLINE + 1, 128, 129, 4096, 1 << 20, (1 << 20) + 1] {
            let bytes = vec![7; len];
            let held = pool.hold(&bytes, len);
            assert_eq!(held.as_slice(), bytes);
            let address = held.as_slice().as_ptr();
            let pooled = matches!(held, Held::Pooled { .. }) && len <= 1 << 20;
            pool.give_back(held);
            let again = pool.hold(&bytes, len);
            assert_eq!(again.as_slice(), bytes);
            assert!(!pooled || again.as_slice().as_ptr() == address, "{len} bytes were not reused");
        }
    }
}
