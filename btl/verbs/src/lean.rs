//! Frames of which only the payload is sent.
//!
//! A payload that fills its packets, and the prefix and header before it, take one packet more than the payload: for 4,096 bytes two instead of
//! one. So where that saves a packet, and the peer can tell the header by itself, the payload goes alone, with 32 bits beside it (immediate data):
//!
//! ```text
//!  31      30 ......... 16   15 ............ 0
//!  ┌──────┬────────────────┬──────────────────┐
//!  │ 1    │ taken, low     │ number, low      │   as in a frame's prefix (`wire.rs`)
//!  └──────┴────────────────┴──────────────────┘
//! ```
//!
//! Headers of messages that follow each other differ by a count or two: both sides keep the last header that was *sent* (not written to a ring) this way and
//! the step from the one before, in little-endian numbers of eight bytes, and what takes that step again need not be said. Sends of one queue pair arrive in
//! order, so both sides know the same. A peer that lies about that hands up a header of its own making, as it can with any frame
//! (law 9). Not on iWARP, whose sends carry no such bits.

use crate::credits::Credits;
use crate::wire::PREFIX;
use ironweave_btl::HEADER_MAX;

const MARK: u32 = 1 << 31;
const TAKEN: u32 = 0x7fff;
const NUMBER: u32 = 0xffff;
const WORDS: usize = HEADER_MAX / 8;

/// The headers that went one way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trail {
    last: [u64; WORDS],
    step: [u64; WORDS],
    len: usize,
    /// Frames that went without it.
    pub alone: u64,
}

impl Trail {
    /// A frame with this header went, whole or without it.
    #[inline]
    pub fn follow(&mut self, header: &[u8]) {
        self.len = header.len();
        let words = self.last.iter_mut().zip(&mut self.step);
        for (at, (last, step)) in words.enumerate() {
            let is = word(header, at);
            *step = is.wrapping_sub(*last);
            *last = is;
        }
    }

    /// The next, if it takes the same step: so many of these bytes.
    #[inline]
    pub fn next(&self) -> ([u8; HEADER_MAX], usize) {
        let mut header = [0; HEADER_MAX];
        for (at, (last, step)) in self.last.iter().zip(&self.step).enumerate() {
            header[8 * at..][..8].copy_from_slice(&last.wrapping_add(*step).to_le_bytes());
        }
        (header, self.len)
    }
}

/// Bytes 8 × `at` and on as a number; what is not there is 0.
#[inline]
fn word(header: &[u8], at: usize) -> u64 {
    let rest = header.get(8 * at..).unwrap_or_default();
    match rest.first_chunk() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => rest.iter().rev().fold(0, |is, &byte| is << 8 | u64::from(byte)),
    }
}

/// Whether a payload alone takes fewer packets of `mtu` bytes than with what comes before it.
#[inline]
pub fn saves(mtu: usize, header: usize, len: usize) -> bool {
    len > 0 && len.div_ceil(mtu) < (PREFIX + header + len).div_ceil(mtu)
}

/// Whether what is left of the counts is enough to tell them.
#[inline]
pub fn tells(credits: &Credits) -> bool {
    credits.theirs.max(credits.ours) <= TAKEN && credits.was_heard()
}

/// What is said beside the next payload.
#[inline]
pub fn say(credits: &Credits) -> u32 {
    MARK | (credits.received() & TAKEN) << 16 | credits.sent() & NUMBER
}

/// How many frames the peer took, as [`Credits::heard`] takes it, and the number of the frame; `None`: that was not said by [`say`].
#[inline]
pub fn read(said: u32, credits: &Credits) -> Option<(u32, u32)> {
    let near = |known: u32, low: u32, mask: u32| known.wrapping_add(low.wrapping_sub(known) & mask);
    let taken = near(credits.taken(), said >> 16 & TAKEN, TAKEN);
    let number = near(credits.received(), said & NUMBER, NUMBER);
    (said & MARK != 0).then_some((taken, number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_payload_that_fills_its_packets_saves_one() {
        assert!(
            [4096, 8192, 4065].iter().all(|&len| saves(4096, 16, len)) && saves(1024, 16, 4096)
        );
        assert!(![0, 1, 4064, 4097].iter().any(|&len| saves(4096, 16, len)));
        assert!(saves(4096, 17, 4064) && !saves(4096, 0, 4080) && saves(4096, 0, 4081));
    }

    /// Header `n` of a series, of this length.
    fn header(start: &[u64; WORDS], step: &[u64; WORDS], n: u64, len: usize) -> Vec<u8> {
        let words = start.iter().zip(step);
        let bytes =
            words.flat_map(|(start, step)| start.wrapping_add(step.wrapping_mul(n)).to_le_bytes());
        bytes.take(len).collect()
    }

    proptest! {
        /// Whatever was before: after two headers of whole numbers the third is told by the step between them.
        #[test]
        fn who_goes_on_as_before_is_known(
            before in prop::collection::vec(any::<u8>(), 0..=HEADER_MAX),
            start: [u64; WORDS], step: [u64; WORDS], words in 0..=WORDS,
        ) {
            let at = |n| header(&start, &step, n, 8 * words);
            let mut trail = Trail::default();
            trail.follow(&before);
            trail.follow(&at(0));
            trail.follow(&at(1));
            for n in 2..5 {
                let (next, len) = trail.next();
                prop_assert_eq!(&next[..len], at(n));
                trail.follow(&at(n));
            }
        }

        /// Both sides tell the same next header of whatever went, so that who compares it with the real one knows what the other would make of it.
        #[test]
        fn both_sides_tell_the_same(
            headers in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..=HEADER_MAX), 0..20)
        ) {
            let mut sides = [Trail::default(); 2];
            for header in headers {
                sides[0].follow(&header);
                sides[1].follow(&header);
                prop_assert_eq!(sides[0].next(), sides[1].next());
                prop_assert_eq!(sides[0].next().1, header.len());
            }
        }

        /// What is said is read as it was meant, wherever the counts are, for as many frames as may be under way.
        #[test]
        fn counts_are_told_in_part(start: u32, credits in 1..=TAKEN, there in 0_u32..40_000, back in 0_u32..40_000) {
            let mut ends = [Credits::both(credits, start), Credits::both(credits, start)];
            // Frames from 1 that 0 took, and told of by others; then some of 0's that 1 did not hear.
            for _ in 0..there.min(credits) {
                ends[1].use_one();
                ends[0].take_one();
            }
            let mut said = None;
            for _ in 0..back.min(credits) {
                said = Some((say(&ends[0]), ends[0].sent()));
                ends[0].use_one();
                let (taken, number) = read(said.unwrap().0, &ends[1]).unwrap();
                prop_assert_eq!(taken, ends[0].received());
                prop_assert_eq!(Some(number), said.map(|(_, number)| number));
                ends[1].take_one();
            }
            prop_assert_eq!(said.and_then(|(said, _)| read(said & !MARK, &ends[1])), None);
        }
    }
}
