//! Frames that prove themselves: a header that names sender, receiver, life and number, and a payload that
//! follows from it, so that a byte out of place shows wherever it lands.

use ironweave_btl::TINY_MAX;

/// Length of the fixed part of a test header, in bytes; up to [`PAD_MAX`] bytes of padding follow.
///
/// ```text
///  0        4       8      12      16       20    21     22       24        32        40
///  | "IWCF" | from  | to   | life  | check  | pad | tier | unused | number  | length  | padding …
/// ```
/// Little-endian. Frames of [`TINY_MAX`](ironweave_btl::TINY_MAX) bytes may have the brief header instead, sixteen bytes:
///
/// ```text
///  0     1        2      4    6      8        12      16
///  | "T" | length | from | to | life | number | check |
/// ```
const FIXED: usize = 40;
/// Longest padding, so that header lengths vary.
const PAD_MAX: usize = 16;
const MAGIC: [u8; 4] = *b"IWCF";
const BRIEF: u8 = b'T';

/// What a test frame says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Label {
    pub from: u32,
    pub to: u32,
    /// How often the sender's endpoint was closed before.
    pub life: u32,
    /// Counts the frames of this sender, receiver and life.
    pub number: u64,
    pub len: u64,
}

impl Label {
    /// The key of the payload's pattern.
    pub(crate) fn key(&self, seed: u64) -> u64 {
        let ends = u64::from(self.from) << 32 | u64::from(self.to);
        mix(mix(seed ^ ends) ^ mix(self.number ^ u64::from(self.life) << 48))
    }

    pub(crate) fn encode(&self, seed: u64) -> ([u8; FIXED + PAD_MAX], usize) {
        let key = self.key(seed);
        let pad = (key % (PAD_MAX as u64 + 1)) as usize;
        let mut out = [0; FIXED + PAD_MAX];
        out[..4].copy_from_slice(&MAGIC);
        out[4..8].copy_from_slice(&self.from.to_le_bytes());
        out[8..12].copy_from_slice(&self.to.to_le_bytes());
        out[12..16].copy_from_slice(&self.life.to_le_bytes());
        out[16..20].copy_from_slice(&(key as u32).to_le_bytes());
        out[20] = pad as u8;
        out[24..32].copy_from_slice(&self.number.to_le_bytes());
        out[32..40].copy_from_slice(&self.len.to_le_bytes());
        fill(key, 0, &mut out[FIXED..FIXED + pad]);
        (out, FIXED + pad)
    }

    /// The brief header, where all that it says fits into it.
    pub(crate) fn brief(&self, seed: u64) -> Option<[u64; 2]> {
        let len = u8::try_from(self.len).ok().filter(|len| usize::from(*len) <= TINY_MAX)?;
        let half = |number: u32| u16::try_from(number).ok();
        let mut out = [BRIEF; size_of::<[u64; 2]>()];
        out[1] = len;
        out[2..4].copy_from_slice(&half(self.from)?.to_le_bytes());
        out[4..6].copy_from_slice(&half(self.to)?.to_le_bytes());
        out[6..8].copy_from_slice(&half(self.life)?.to_le_bytes());
        out[8..12].copy_from_slice(&u32::try_from(self.number).ok()?.to_le_bytes());
        out[12..].copy_from_slice(&(self.key(seed) as u32).to_le_bytes());
        let word = |at: usize| u64::from_ne_bytes(out[at..at + 8].try_into().expect("eight bytes"));
        Some([word(0), word(8)])
    }

    fn decode_brief(header: &[u8], seed: u64) -> Result<Label, &'static str> {
        let half = |at: usize| u32::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let number = u64::from(half(8) | half(10) << 16);
        let (from, to, life) = (half(2), half(4), half(6));
        let label = Label { from, to, life, number, len: header[1].into() };
        if header[0] != BRIEF || half(12) | half(14) << 16 != label.key(seed) as u32 {
            return Err("brief header with wrong bytes");
        }
        Ok(label)
    }

    /// Reads a header; the error says what is wrong with it.
    pub(crate) fn decode(header: &[u8], seed: u64) -> Result<Label, &'static str> {
        if header.len() == size_of::<[u64; 2]>() {
            return Label::decode_brief(header, seed);
        }
        let word = |at: usize| {
            let bytes = header[at..at + 4].try_into().expect("a range of four bytes");
            u32::from_le_bytes(bytes)
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if header.len() < FIXED || header.len() > FIXED + PAD_MAX {
            return Err("header of a wrong length");
        }
        if header[..4] != MAGIC {
            return Err("header without the magic bytes");
        }
        let label =
            Label { from: word(4), to: word(8), life: word(12), number: long(24), len: long(32) };
        let key = label.key(seed);
        if word(16) != key as u32 || header.len() != FIXED + usize::from(header[20]) {
            return Err("header with wrong bytes");
        }
        if mismatch(key, 0, &header[FIXED..]).is_some() {
            return Err("header with wrong padding");
        }
        Ok(label)
    }
}

/// The finalizer of splitmix64.
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

fn word(key: u64, index: u64) -> [u8; 8] {
    let x = (key ^ index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ x >> 29).to_le_bytes()
}

/// Writes the pattern's bytes from `offset` on.
pub(crate) fn fill(key: u64, offset: usize, out: &mut [u8]) {
    let mut at = offset;
    let mut out = out;
    while !out.is_empty() {
        let bytes = word(key, at as u64 / 8);
        let skip = at % 8;
        let len = (8 - skip).min(out.len());
        out[..len].copy_from_slice(&bytes[skip..skip + len]);
        out = &mut out[len..];
        at += len;
    }
}

/// The first offset at which `bytes`, from `offset` of the pattern on, differ from it.
pub(crate) fn mismatch(key: u64, offset: usize, bytes: &[u8]) -> Option<usize> {
    let mut at = offset;
    let mut rest = bytes;
    while !rest.is_empty() {
        let expected = word(key, at as u64 / 8);
        let skip = at % 8;
        let len = (8 - skip).min(rest.len());
        if rest[..len] != expected[skip..skip + len] {
            let inside = (0..len).find(|&i| rest[i] != expected[skip + i])?;
            return Some(at + inside);
        }
        rest = &rest[len..];
        at += len;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_same_pattern_and_a_flipped_bit_shows() {
        let mut whole = [0; 100];
        fill(7, 0, &mut whole);
        let mut pieces = [0; 100];
        for (start, end) in [(0, 3), (3, 8), (8, 29), (29, 100)] {
            fill(7, start, &mut pieces[start..end]);
        }
        assert_eq!(whole, pieces);
        assert_eq!(mismatch(7, 13, &whole[13..]), None);
        whole[77] ^= 4;
        assert_eq!(mismatch(7, 13, &whole[13..]), Some(77));
    }

    #[test]
    fn labels_come_back_and_damage_is_seen() {
        let label = Label { from: 1, to: 2, life: 3, number: 4, len: 5 };
        let (mut bytes, len) = label.encode(9);
        assert_eq!(Label::decode(&bytes[..len], 9), Ok(label));
        assert!(Label::decode(&bytes[..len], 8).is_err());
        bytes[9] ^= 1;
        assert!(Label::decode(&bytes[..len], 9).is_err());
        let brief = label.brief(9).unwrap().map(u64::to_ne_bytes);
        assert_eq!(Label::decode(brief.as_flattened(), 9), Ok(label));
        assert!(Label::decode(brief.as_flattened(), 8).is_err());
        assert_eq!(Label { len: TINY_MAX as u64 + 1, ..label }.brief(9), None);
    }
}
