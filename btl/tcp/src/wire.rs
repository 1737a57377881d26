//! Every byte that crosses a connection, with its layout: the four handshake messages, then frames.
//!
//! All of it is decoded without sockets, from byte slices that are not believed (law 9): a length is checked
//! against a fixed limit before anything is kept for it. Version 1. Integers are little-endian.
//!
//! ```text
//!  initiator                                  acceptor
//!     │ Hello who, to whom, attempt, nonce, seal │
//!     ├─────────────────────────────────────────▶│  nothing is allocated for a stranger
//!     │ Challenge                   nonce, proof │
//!     │◀─────────────────────────────────────────┤
//!     │ Proof                              proof │
//!     ├─────────────────────────────────────────▶│  the peer is who it says: settle races
//!     │ Verdict                 welcome or refusal│
//!     │◀─────────────────────────────────────────┤
//!     │◀═══════════════ frames ═════════════════▶│
//!
//!  frame   0      1      2      3      4              8
//!          ┌──────┬──────┬──────┬──────┬──────────────┬───────────┬────────────┐
//!          │ 0xF7 │ kind │ hlen │check │ payload len  │ header    │ payload    │
//!          └──────┴──────┴──────┴──────┴──────────────┴───────────┴────────────┘
//!            check = 0xF7 ^ kind ^ hlen ^ 0x5A ^ each byte of payload len
//! ```

use ironweave_btl::HEADER_MAX;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The protocol's version; both sides must speak the same.
pub const VERSION: u16 = 1;
/// Longest payload of one frame, in bytes. A frame that claims more is malformed.
pub const PAYLOAD_MAX: usize = 16 << 20;
/// Length of the part before a frame's header, in bytes.
pub const PREFIX: usize = size_of::<Prefix>();
/// Length of what comes before a payload at most, in bytes.
pub const LEAD_MAX: usize = PREFIX + HEADER_MAX;

const FRAME_MAGIC: u8 = 0xF7;
const CHECK_SEED: u8 = 0x5A;
const KIND_DATA: u8 = 1;
const KIND_BYE: u8 = 2;

/// First message, initiator to acceptor.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct Hello {
    pub magic: [u8; 8],
    pub version: U16,
    pub reserved: U16,
    /// Who connects.
    pub from: U32,
    /// To whom: a listener that is somebody else's is noticed.
    pub to: U32,
    pub reserved2: U32,
    /// Grows with each attempt of `from` to reach `to`: see `race.rs`.
    pub attempt: U64,
    pub nonce: [u8; 32],
    /// Keyed hash of all above: strangers learn nothing and are told from peers at once. It may be replayed;
    /// what follows may not.
    pub seal: [u8; 32],
}

/// Second message, acceptor to initiator: proves the secret over both nonces.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct Challenge {
    pub magic: [u8; 8],
    pub nonce: [u8; 32],
    pub proof: [u8; 32],
}

/// Third message, initiator to acceptor.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct Proof {
    pub magic: [u8; 8],
    pub proof: [u8; 32],
}

/// Last message of the handshake, acceptor to initiator.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct Verdict {
    pub magic: [u8; 8],
    /// [`VERDICT_WELCOME`], ….
    pub verdict: u8,
    pub reserved: [u8; 7],
    /// The acceptor's own attempts up to this one are void.
    pub superseded: U64,
}

/// The connection is up; frames follow.
pub const VERDICT_WELCOME: u8 = 1;
/// Both sides connected at once and the acceptor's own connection is the one that stays.
pub const VERDICT_YIELD: u8 = 2;
/// The acceptor has finalized, or excluded the initiator.
pub const VERDICT_REFUSED: u8 = 3;

pub const HELLO_MAGIC: [u8; 8] = *b"IWtcpHEL";
pub const CHALLENGE_MAGIC: [u8; 8] = *b"IWtcpCHA";
pub const PROOF_MAGIC: [u8; 8] = *b"IWtcpPRO";
pub const VERDICT_MAGIC: [u8; 8] = *b"IWtcpVER";

/// What stands before each frame.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Prefix {
    magic: u8,
    kind: u8,
    header_len: u8,
    check: u8,
    payload_len: U32,
}

impl Prefix {
    fn new(kind: u8, header_len: u8, payload_len: u32) -> Self {
        let mut prefix = Prefix {
            magic: FRAME_MAGIC,
            kind,
            header_len,
            check: 0,
            payload_len: U32::new(payload_len),
        };
        prefix.check = prefix.sum();
        prefix
    }

    /// Not against an adversary (the handshake is): against two ends that lost step.
    fn sum(&self) -> u8 {
        let [a, b, c, d] = self.payload_len.to_bytes();
        self.magic ^ self.kind ^ self.header_len ^ CHECK_SEED ^ a ^ b ^ c ^ d
    }
}

/// The prefix of a data frame.
///
/// # Panics
/// When header or payload are beyond their limits: the callers check both.
#[inline]
#[must_use]
pub fn data_prefix(header_len: usize, payload_len: usize) -> [u8; PREFIX] {
    assert!(header_len <= HEADER_MAX && payload_len <= PAYLOAD_MAX, "a frame beyond the limits");
    zerocopy::transmute!(Prefix::new(KIND_DATA, header_len as u8, payload_len as u32))
}

/// The frame that says good-bye: the last one of its direction.
#[must_use]
pub fn bye() -> [u8; PREFIX] {
    zerocopy::transmute!(Prefix::new(KIND_BYE, 0, 0))
}

/// Bytes that are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(pub &'static str);

/// What stands at the beginning of some bytes.
#[derive(PartialEq, Eq, Debug)]
pub enum Step<'a> {
    /// A whole frame.
    Frame { header: &'a [u8], payload: &'a [u8] },
    /// The header is whole, the payload is not: `staged` is what is there of it.
    Started { header: &'a [u8], payload_len: usize, staged: &'a [u8] },
    /// The peer's last frame; nothing may follow.
    Bye,
    /// Not even the header is whole.
    Short,
}

/// Cuts bytes into frames.
///
/// ```
/// use ironweave_btl_tcp::wire::{Decoder, Step, data_prefix};
/// let mut bytes = data_prefix(2, 3).to_vec();
/// bytes.extend_from_slice(b"hdpay");
/// let mut decoder = Decoder::new(&bytes);
/// assert_eq!(decoder.step(), Ok(Step::Frame { header: b"hd", payload: b"pay" }));
/// assert_eq!(decoder.step(), Ok(Step::Short));
/// assert!(decoder.rest().is_empty());
/// ```
#[derive(Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Starts at the beginning of `bytes`, which must be the beginning of a frame.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Decoder { rest: bytes }
    }

    /// What was not taken yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next frame. Takes whole frames, and all bytes of a started one; leaves a [`Step::Short`] beginning.
    ///
    /// # Errors
    /// When the bytes cannot be, or become, a frame; nothing after it can be believed.
    #[inline]
    pub fn step(&mut self) -> Result<Step<'a>, Malformed> {
        let Ok((prefix, after)) = Prefix::ref_from_prefix(self.rest) else {
            return Ok(Step::Short);
        };
        if prefix.magic != FRAME_MAGIC || prefix.check != prefix.sum() {
            return Err(Malformed("not a frame"));
        }
        let (header_len, payload_len) =
            (usize::from(prefix.header_len), prefix.payload_len.get() as usize);
        match prefix.kind {
            KIND_DATA if header_len > HEADER_MAX => return Err(Malformed("header too long")),
            KIND_DATA if payload_len > PAYLOAD_MAX => return Err(Malformed("payload too long")),
            KIND_DATA => {}
            KIND_BYE if header_len != 0 || payload_len != 0 => {
                return Err(Malformed("good-bye with content"));
            }
            KIND_BYE => {
                self.rest = after;
                return Ok(Step::Bye);
            }
            _ => return Err(Malformed("unknown kind of frame")),
        }
        let Some((header, body)) = after.split_at_checked(header_len) else {
            return Ok(Step::Short);
        };
        match body.split_at_checked(payload_len) {
            Some((payload, rest)) => {
                self.rest = rest;
                Ok(Step::Frame { header, payload })
            }
            None => {
                self.rest = &[];
                Ok(Step::Started { header, payload_len, staged: body })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(header: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut bytes = data_prefix(header.len(), payload.len()).to_vec();
        bytes.extend_from_slice(header);
        bytes.extend_from_slice(payload);
        bytes
    }

    /// Header and payload.
    type Frame = (Vec<u8>, Vec<u8>);

    /// Cuts a whole stream by hand: the oracle is the list that made it.
    fn cut(bytes: &[u8]) -> Result<Vec<Frame>, Malformed> {
        let mut decoder = Decoder::new(bytes);
        let mut frames = Vec::new();
        while let Step::Frame { header, payload } = decoder.step()? {
            frames.push((header.to_vec(), payload.to_vec()));
        }
        Ok(frames)
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in(
            list in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..=HEADER_MAX),
                proptest::collection::vec(any::<u8>(), 0..300)), 0..8)
        ) {
            let bytes: Vec<u8> = list.iter().flat_map(|(h, p)| frame(h, p)).collect();
            prop_assert_eq!(cut(&bytes), Ok(list));
        }

        #[test]
        fn a_cut_frame_is_short_or_started(
            header in proptest::collection::vec(any::<u8>(), 0..=HEADER_MAX),
            payload in proptest::collection::vec(any::<u8>(), 1..300),
            at in any::<proptest::sample::Index>(),
        ) {
            let bytes = frame(&header, &payload);
            let at = at.index(bytes.len());
            let mut decoder = Decoder::new(&bytes[..at]);
            match decoder.step() {
                Ok(Step::Short) => {
                    prop_assert!(at < PREFIX + header.len());
                    prop_assert_eq!(decoder.rest(), &bytes[..at]);
                }
                Ok(Step::Started { header: h, payload_len, staged }) => {
                    prop_assert_eq!(h, &header[..]);
                    prop_assert_eq!(payload_len, payload.len());
                    prop_assert_eq!(staged, &payload[..at - PREFIX - header.len()]);
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }

        #[test]
        fn garbage_never_panics_and_never_claims_more_than_the_limits(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), fix in any::<bool>()
        ) {
            let mut bytes = bytes;
            if fix && bytes.len() >= PREFIX {
                bytes[0] = FRAME_MAGIC;
                bytes[3] = bytes[1] ^ bytes[2] ^ FRAME_MAGIC ^ CHECK_SEED ^ bytes[4] ^ bytes[5] ^ bytes[6] ^ bytes[7];
            }
            let mut decoder = Decoder::new(&bytes);
            while let Ok(step) = decoder.step() {
                match step {
                    Step::Frame { header, .. } => prop_assert!(header.len() <= HEADER_MAX),
                    Step::Started { payload_len, staged, .. } => {
                        prop_assert!(payload_len <= PAYLOAD_MAX && staged.len() < payload_len);
                        break;
                    }
                    Step::Bye => {}
                    Step::Short => break,
                }
            }
        }
    }

    #[test]
    fn each_flipped_bit_of_a_prefix_is_noticed() {
        let good = frame(b"h", b"p");
        for bit in 0..PREFIX * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Decoder::new(&bad).step().is_err(), "bit {bit}");
        }
    }

    #[test]
    fn limits_and_kinds_are_checked() {
        let step = |kind, hlen, plen| {
            let bytes: [u8; PREFIX] = zerocopy::transmute!(Prefix::new(kind, hlen, plen));
            Decoder::new(&bytes).step().map(|step| matches!(step, Step::Bye))
        };
        assert_eq!(step(KIND_DATA, 65, 0), Err(Malformed("header too long")));
        assert_eq!(step(KIND_DATA, 0, u32::MAX), Err(Malformed("payload too long")));
        assert_eq!(step(KIND_BYE, 1, 0), Err(Malformed("good-bye with content")));
        assert_eq!(step(77, 0, 0), Err(Malformed("unknown kind of frame")));
        assert_eq!(step(KIND_BYE, 0, 0), Ok(true));
    }
}
