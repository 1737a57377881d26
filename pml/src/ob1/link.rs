//! The frames beneath messages, by which two processes keep what lossy rails may lose (law 6 across a failover). A part of
//! [`wire`](super::wire); what is done with them is in `journal` and `failover`.
//!
//! ```text
//!  number    a MATCH, RNDV, RGET, ACK, PUT, FIN, NACK, restart or LINK header that went over a rail that can be lost ends with
//!            |   0      4      8
//!            | number | ack  |    the frame's number in its direction; the last number before which all have arrived here. A MATCH
//!            |                    may leave the ack out
//!
//!            0      1      2        4                   8              12             16
//!  LINK      | kind | what |  rail  |       id         |     mine      |     yours    |   16 bytes
//!            |  SEEN: nothing but `yours`, an ack. With a number: a place of a frame that is not needed any more
//!            |  UP, on the rail itself: this is my rail number `rail`, in its life number `mine`
//!            |  ROOM: my word number `mine`, in `yours`: 1 if I keep too many unexpected messages of yours, and 2 if long ones
//!            |        find their receives posted
//!            |  ASK: an ack is wanted of all that came before this
//!            |  LOST: the rail that both call `id`, in my life `mine` of it or your life `yours` (0: not heard of), is lost
//!
//!            0      1      2        4              8              12             16
//!  SPLIT     | kind | zero |  zero  |    number    |    offset    |    total     |   16 bytes
//!            |  a frame too long for the rail, sent again in pieces: length of its header (one byte), header, payload
//! ```

use super::wire::{Malformed, Match, STREAM_MAX, VERSION, kinds};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// LINK.
pub(super) const LINK: u8 = VERSION << 4;
/// SPLIT.
pub(super) const SPLIT: u8 = VERSION << 4 | 15;

/// Longest frame that is split: header and payload.
pub(super) const SPLIT_MAX: u64 = STREAM_MAX + 64;
/// A rail number that is not known.
pub(super) const NO_RAIL: u16 = u16::MAX;

/// The end of a numbered header.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Number {
    number: U32,
    ack: U32,
}

impl Number {
    /// The frame's number, and the last number before which all have arrived at its sender.
    #[must_use]
    pub const fn new(number: u32, ack: u32) -> Self {
        Number { number: U32::new(number), ack: U32::new(ack) }
    }

    /// The end without the ack.
    #[must_use]
    pub fn brief(&self) -> &[u8] {
        self.number.as_bytes()
    }
}

/// What the end of a numbered header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbered {
    /// The frame's number.
    pub number: u32,
    /// The last number before which all have arrived at its sender, if it says so.
    pub ack: Option<u32>,
}

impl Numbered {
    /// Reads what [`Number`] wrote.
    #[inline]
    fn read(end: &[u8]) -> Option<Self> {
        let (number, rest) = U32::ref_from_prefix(end).ok()?;
        let ack = if rest.is_empty() { None } else { Some(U32::ref_from_bytes(rest).ok()?.get()) };
        Some(Numbered { number: number.get(), ack })
    }
}

/// What a LINK frame says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Word {
    /// An acknowledgement.
    Seen = 0,
    /// A rail is up.
    Up = 1,
    /// A rail is lost.
    Lost = 2,
    /// Whether there is room for messages that nothing is posted for, and whether long ones find receives posted.
    Room = 3,
    /// An acknowledgement is wanted.
    Ask = 4,
}

/// LINK.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LinkHeader {
    kind: u8,
    what: u8,
    rail: U16,
    id: U32,
    mine: U32,
    yours: U32,
}

/// A decoded LINK frame; see the picture above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "fields are named as in the picture above")]
pub enum Link {
    Seen { ack: u32 },
    Up { rail: u16, life: u32 },
    Lost { id: u32, mine: u32, yours: u32 },
    Room { count: u32, full: bool, waits: bool },
    Ask,
}

impl LinkHeader {
    /// A header that says so.
    #[must_use]
    pub const fn new(link: Link) -> Self {
        let (what, rail, id, mine, yours) = match link {
            Link::Seen { ack } => (Word::Seen, 0, 0, 0, ack),
            Link::Up { rail, life } => (Word::Up, rail, 0, life, 0),
            Link::Lost { id, mine, yours } => (Word::Lost, 0, id, mine, yours),
            Link::Room { count, full, waits } => {
                (Word::Room, 0, 0, count, full as u32 | (waits as u32) << 1)
            }
            Link::Ask => (Word::Ask, 0, 0, 0, 0),
        };
        LinkHeader {
            kind: LINK,
            what: what as u8,
            rail: U16::new(rail),
            id: U32::new(id),
            mine: U32::new(mine),
            yours: U32::new(yours),
        }
    }

    pub(super) fn decode(&self, payload_len: u64) -> Result<Link, Malformed> {
        let (rail, id) = (self.rail.get(), self.id.get());
        let (mine, yours) = (self.mine.get(), self.yours.get());
        if payload_len > 0 {
            return Err("payload of a LINK");
        }
        match self.what {
            0 => Ok(Link::Seen { ack: yours }),
            1 if mine > 0 => Ok(Link::Up { rail, life: mine }),
            2 => Ok(Link::Lost { id, mine, yours }),
            3 if yours <= 3 => {
                Ok(Link::Room { count: mine, full: yours & 1 == 1, waits: yours & 2 == 2 })
            }
            4 => Ok(Link::Ask),
            _ => Err("what of a LINK"),
        }
    }
}

/// SPLIT.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SplitHeader {
    kind: u8,
    zero: [u8; 3],
    number: U32,
    offset: U32,
    total: U32,
}

/// A piece of a long frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The frame's number.
    pub number: u32,
    /// Of the piece in the frame's bytes.
    pub offset: u32,
    /// Of the frame's bytes; `offset` plus the payload is at most this.
    pub total: u32,
}

impl SplitHeader {
    /// A header of this piece.
    #[must_use]
    pub const fn new(piece: Piece) -> Self {
        SplitHeader {
            kind: SPLIT,
            zero: [0; 3],
            number: U32::new(piece.number),
            offset: U32::new(piece.offset),
            total: U32::new(piece.total),
        }
    }

    pub(super) fn decode(&self, payload_len: u64) -> Result<Piece, Malformed> {
        let piece =
            Piece { number: self.number.get(), offset: self.offset.get(), total: self.total.get() };
        let (end, total) = (u64::from(piece.offset) + payload_len, u64::from(piece.total));
        if payload_len == 0 || end > total || total > SPLIT_MAX {
            return Err("range of a piece");
        }
        Ok(piece)
    }
}

/// Splits a numbered MATCH, the header that comes most often.
#[inline]
pub(super) fn unnumber_match(header: &[u8]) -> Option<(&Match, Numbered)> {
    let (base, end) = Match::ref_from_prefix(header).ok()?;
    let number = Numbered::read(end)?;
    (base.kind == kinds::MATCH).then_some((base, number))
}

/// Splits the number off a header that has one.
#[must_use]
pub fn unnumber(header: &[u8]) -> (&[u8], Option<Numbered>) {
    let base = match header.first() {
        Some(&(kinds::MATCH | kinds::NACK | LINK)) => 16,
        Some(&(kinds::RNDV | kinds::RGET | kinds::FIN)) => 32,
        Some(&(kinds::ACK | kinds::PUT | kinds::RNDVRESTARTACK)) => 48,
        Some(&(kinds::RNDVRESTARTNOTIFY | kinds::RECVERRNOTIFY | kinds::RNDVRESTARTNACK)) => 24,
        _ => return (header, None),
    };
    match header.split_at_checked(base) {
        Some((base, end)) => match Numbered::read(end) {
            Some(number) if number.ack.is_some() || header[0] == kinds::MATCH => {
                (base, Some(number))
            }
            _ => (header, None),
        },
        None => (header, None),
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{Envelope, Frame, decode};
    use super::*;

    #[test]
    fn a_match_may_leave_the_ack_out() {
        let envelope = Envelope { cid: 1, epoch: 2, seq: 3, source: 4, tag: 5, ready: false };
        let base = Match::new(kinds::MATCH, envelope);
        let full = [base.as_bytes(), Number::new(7, 9).as_bytes()].concat();
        let brief = [base.as_bytes(), Number::new(7, 9).brief()].concat();
        for (header, ack) in [(&full, Some(9)), (&brief, None)] {
            let number = Numbered { number: 7, ack };
            assert_eq!(unnumber(header), (base.as_bytes(), Some(number)));
            assert_eq!(unnumber_match(header), Some((&base, number)));
        }
        for len in [0, 15, 16, 17, 19, 21, 23] {
            assert_eq!(unnumber_match(&full[..len]), None, "{len} bytes");
            assert_eq!(unnumber(&full[..len]).1, None, "{len} bytes");
        }
    }

    #[test]
    fn what_is_made_is_read() {
        let links = [
            Link::Seen { ack: 7 },
            Link::Up { rail: 3, life: 9 },
            Link::Lost { id: 0xABCD_1234, mine: 4, yours: 0 },
            Link::Room { count: 12, full: true, waits: false },
            Link::Room { count: 13, full: false, waits: true },
            Link::Ask,
        ];
        for link in links {
            let header = LinkHeader::new(link);
            assert_eq!(decode(header.as_bytes(), 0), Ok(Frame::Link(link)));
            assert!(decode(header.as_bytes(), 1).is_err());
            let mut numbered = header.as_bytes().to_vec();
            numbered.extend_from_slice(Number::new(5, 6).as_bytes());
            let (base, number) = unnumber(&numbered);
            let right = Numbered { number: 5, ack: Some(6) };
            assert_eq!((base, number), (header.as_bytes(), Some(right)));
            assert!(decode(&numbered, 0).is_err());
            assert_eq!(unnumber(&numbered[..20]), (&numbered[..20], None), "an ack is missing");
        }
        let piece = Piece { number: 1, offset: 10, total: 20 };
        assert_eq!(decode(SplitHeader::new(piece).as_bytes(), 10), Ok(Frame::Split(piece)));
        assert!(decode(SplitHeader::new(piece).as_bytes(), 11).is_err());
        assert!(decode(SplitHeader::new(piece).as_bytes(), 0).is_err());
        let long = Piece { total: u32::MAX, ..piece };
        assert!(decode(SplitHeader::new(long).as_bytes(), 1).is_err());
    }
}
