//! The record: how one frame lies in the ring.
//!
//! ```text
//!  byte 0      1            2      3   4              8                8+header         8+header+payload
//!  ┌──────┬────────────┬──────┬───┬──────────────┬────────────────┬────────────────┬───────────┐
//!  │ kind │ header len │ mark │ 0 │ payload len  │ header         │ payload        │ … to 32·n │
//!  └──────┴────────────┴──────┴───┴──────────────┴────────────────┴────────────────┴───────────┘
//!   ◀────────── the record word, stored last ───▶                  (INLINE only; BULK keeps it elsewhere)
//! ```
//! Records start at multiples of [`UNIT`]; integers are little-endian. A 16-byte header with 8 bytes of payload
//! takes one unit, half a cache line. Everything here is pure: a word comes from another process and is
//! believed only after [`Word::decode`] and [`Word::fits`] (law 9).

use ironweave_btl::HEADER_MAX;

/// Records start at multiples of this, in bytes.
pub const UNIT: usize = 32;

/// Bytes of the record word.
pub const WORD: usize = 8;

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Header and payload follow the word.
    Inline = 1,
    /// The header follows the word; the payload is next in the bulk area.
    Bulk = 2,
    /// The header follows the word; the payload comes as the next records of kind `Piece`.
    Begin = 3,
    /// Some more of the payload of the frame begun before lies next in the bulk area. No header.
    Piece = 4,
    /// Nothing more until the end of the ring: go on at its start.
    Wrap = 5,
    /// As `Begin`, by a writer that is far from its reader (`distance.rs`).
    Far = 6,
}

/// Which shuttle has a payload: 0, none; otherwise one more than its number, those of the ring's own segment first
/// (`shuttle.rs`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark(u8);

impl Mark {
    /// The highest one.
    pub const MAX: u8 = 16;
    /// The payload lies in no shuttle.
    pub const NONE: Mark = Mark(0);

    pub(crate) const fn new(mark: u8) -> Mark {
        Mark(mark)
    }

    pub(crate) const fn get(self) -> u8 {
        self.0
    }
}

/// A decoded record word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word {
    /// What it is.
    pub kind: Kind,
    /// Length of the header in bytes, at most [`HEADER_MAX`].
    pub header: u8,
    /// The shuttle that has the payload; only of `Bulk`, `Begin` and `Far`.
    pub mark: Mark,
    /// Length of the payload in bytes.
    pub payload: u32,
}

/// A record that no correct writer makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("malformed record: {0}")]
pub struct Malformed(pub &'static str);

impl Word {
    /// The word that marks the end of a lap.
    pub const WRAP: u64 = Kind::Wrap as u64;

    /// As it is stored. Never 0: that means "nothing here yet".
    #[inline]
    #[must_use]
    pub const fn encode(self) -> u64 {
        self.kind as u64
            | (self.header as u64) << 8
            | (self.mark.0 as u64) << 16
            | (self.payload as u64) << 32
    }

    /// Reads what [`encode`](Word::encode) made; `None` for 0, nothing here yet.
    ///
    /// # Errors
    /// When no correct writer stores such a word.
    #[inline]
    pub const fn decode(word: u64) -> Result<Option<Word>, Malformed> {
        if word == 0 {
            return Ok(None);
        }
        let kind = match word as u8 {
            1 => Kind::Inline,
            2 => Kind::Bulk,
            3 => Kind::Begin,
            4 => Kind::Piece,
            5 => Kind::Wrap,
            6 => Kind::Far,
            _ => return Err(Malformed("unknown kind")),
        };
        let (header, mark, zero) = ((word >> 8) as u8, (word >> 16) as u8, (word >> 24) as u8);
        let payload = (word >> 32) as u32;
        if header as usize > HEADER_MAX {
            return Err(Malformed("header too long"));
        }
        if zero != 0 {
            return Err(Malformed("a reserved byte is not zero"));
        }
        if mark > Mark::MAX || mark != 0 && !matches!(kind, Kind::Bulk | Kind::Begin | Kind::Far) {
            return Err(Malformed("a shuttle where none can be"));
        }
        if matches!(kind, Kind::Wrap) && (header != 0 || payload != 0)
            || matches!(kind, Kind::Piece) && (header != 0 || payload == 0)
        {
            return Err(Malformed("a length where none can be"));
        }
        Ok(Some(Word { kind, header, mark: Mark(mark), payload }))
    }

    /// Reads the usual word, of an inline frame, in fewer steps: lengths of header and payload. `None`: ask
    /// [`decode`](Word::decode).
    #[inline(always)]
    #[must_use]
    pub const fn decode_inline(word: u64) -> Option<(usize, usize)> {
        const KIND_AND_ZERO: u64 = 0xffff_00ff;
        let (header, payload) = ((word >> 8) as u8 as usize, (word >> 32) as usize);
        if word & KIND_AND_ZERO == Kind::Inline as u64 && header <= HEADER_MAX {
            Some((header, payload))
        } else {
            None
        }
    }

    /// Bytes the record takes in the ring, a multiple of [`UNIT`]. For `Wrap`, one unit.
    #[inline]
    #[must_use]
    pub const fn footprint(self) -> usize {
        let inline = if matches!(self.kind, Kind::Inline) { self.payload as usize } else { 0 };
        (WORD + self.header as usize + inline).next_multiple_of(UNIT)
    }

    /// Checks the record against the `room` bytes left in this lap of the ring and the longest payload that
    /// the bulk area takes at once.
    ///
    /// # Errors
    /// When it reaches beyond either.
    #[inline]
    pub const fn fits(self, room: usize, bulk_max: usize) -> Result<(), Malformed> {
        if self.footprint() > room {
            return Err(Malformed("record reaches beyond the ring"));
        }
        if matches!(self.kind, Kind::Bulk | Kind::Begin | Kind::Far | Kind::Piece)
            && self.payload as usize > bulk_max
        {
            return Err(Malformed("payload longer than the bulk area takes"));
        }
        Ok(())
    }
}

/// What [`decode`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decoded<'a> {
    /// The record word.
    pub word: Word,
    /// The header.
    pub header: &'a [u8],
    /// The payload, when it is inline.
    pub inline: &'a [u8],
}

/// The first record in `ring`, with its header and inline payload, as a reader would see it at the start of a
/// lap; `None` when there is none yet. For fuzzing and dumps; the reader takes the same steps in place.
///
/// # Errors
/// When no correct writer makes such bytes.
pub fn decode(ring: &[u8], bulk_max: usize) -> Result<Option<Decoded<'_>>, Malformed> {
    let Some((first, rest)) = ring.split_first_chunk::<WORD>() else {
        return Err(Malformed("shorter than a record word"));
    };
    let Some(word) = Word::decode(u64::from_le_bytes(*first))? else { return Ok(None) };
    word.fits(ring.len(), bulk_max)?;
    let (header, rest) = rest.split_at(usize::from(word.header));
    let inline = if word.kind == Kind::Inline { word.payload as usize } else { 0 };
    Ok(Some(Decoded { word, header, inline: &rest[..inline] }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_word_is_refused_or_reproduced(word: u64) {
            if let Ok(Some(decoded)) = Word::decode(word) {
                prop_assert_eq!(decoded.encode(), word);
            }
        }

        #[test]
        fn any_bytes_decode_inside_themselves(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 0u8..7, header in 0u8..70) {
            if bytes.len() >= 8 {
                bytes[0] = kind;
                bytes[1] = header;
                bytes[2..4].fill(0);
                bytes[5..8].fill(0);
            }
            if let Ok(Some(Decoded { word, header, inline })) = decode(&bytes, 4096) {
                prop_assert_eq!(header.len(), usize::from(word.header));
                prop_assert!(WORD + header.len() + inline.len() <= bytes.len());
            }
        }
    }

    proptest! {
        #[test]
        fn the_short_way_reads_what_the_long_way_does(kind in 0u8..7, header in 0u8..70, zero in 0u16..2, payload: u32) {
            let word = u64::from(kind) | u64::from(header) << 8 | u64::from(zero) << 16 | u64::from(payload) << 32;
            let long = match Word::decode(word) {
                Ok(Some(Word { kind: Kind::Inline, header, payload, .. })) => {
                    Some((usize::from(header), payload as usize))
                }
                _ => None,
            };
            prop_assert_eq!(Word::decode_inline(word), long);
        }
    }

    #[test]
    fn payloads_that_lie_elsewhere_can_be_in_shuttles() {
        for kind in [Kind::Bulk, Kind::Begin, Kind::Far] {
            for mark in [Mark::NONE, Mark::new(1), Mark::new(Mark::MAX)] {
                let word = Word { kind, header: 16, mark, payload: 4096 };
                assert_eq!(Word::decode(word.encode()), Ok(Some(word)));
            }
        }
        for kind in [Kind::Inline, Kind::Piece, Kind::Wrap] {
            let word = Word { kind, header: 0, mark: Mark::new(1), payload: 0 };
            assert_eq!(Word::decode(word.encode()), Err(Malformed("a shuttle where none can be")));
        }
    }

    #[test]
    fn an_eight_byte_message_with_a_match_header_is_one_unit() {
        assert_eq!(
            Word { kind: Kind::Inline, header: 16, mark: Mark::NONE, payload: 8 }.footprint(),
            UNIT
        );
    }
}
