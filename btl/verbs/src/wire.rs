//! Every byte that crosses a rail, with its layout: greetings (datagrams that connect), frames, the control block.
//!
//! All of it is decoded without a device, from byte slices that are not believed (law 9). Version 4. Integers are
//! little-endian.
//!
//! ```text
//!  caller                                          answerer
//!     │ Hello    attempt, nonce c, queue pair, seal    │
//!     ├───────────────────────────────────────────────▶│  makes a queue pair, connects it
//!     │ Accept   both nonces, queue pair, seal         │
//!     │◀───────────────────────────────────────────────┤  again until confirmed
//!     │ Confirm  both nonces, seal                     │  connects its queue pair
//!     ├───────────────────────────────────────────────▶│  is up
//!     │ Ready    both nonces, seal                     │
//!     │◀───────────────────────────────────────────────┤  is up: frames can go both ways
//!     │◀═════════════ frames, reads, writes ══════════▶│
//!
//!  Refuse answers a Hello that leads nowhere; Reset tells that this end of a connection is over.
//!
//!  frame      0      1      2      3       4          8           12           16
//!             ┌──────┬──────┬──────┬───────┬──────────┬───────────┬────────────┬────────┬─────────┐
//!             │ 0xF6 │ kind │ hlen │ check │ from u32 │ taken u32 │ number u32 │ header │ payload │
//!             └──────┴──────┴──────┴───────┴──────────┴───────────┴────────────┴────────┴─────────┘
//!
//!  control block, written by the peer:  │ frames taken, u32 │ its complement │
//!
//!  A frame tells how many of the other side's frames were taken; the control block tells it where no frame goes that way.
//!  Frames are numbered from 0 in the order in which they are to be taken, those that go by the ring (`ring.rs`) among them.
//!  A payload may come alone, with what the rest would say beside it (`lean.rs`).
//!  A peer may offer such a ring, once in a connection, by a frame:  │ address u64 │ rkey u32 │ slots u32 │ size u32 │ 0 │ seal │
//! ```
//!
//! A seal is a keyed hash with the job's key: only members of the job make them. A Hello may be replayed; attempt
//! numbers only grow, so a replayed one changes nothing. All that follow cover a fresh nonce of the other side; so does an
//! offer, which makes the other side write.

use crate::ring::Shape;
use ironweave_btl::HEADER_MAX;
use ironweave_btl::secret::JobKey;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The protocol's version; both sides must speak the same.
pub const VERSION: u8 = 4;
/// Length of the part before a frame's header, in bytes.
pub const PREFIX: usize = 16;
/// Length of what comes before a payload at most, in bytes.
pub const LEAD_MAX: usize = PREFIX + HEADER_MAX;
/// Length of a control block, in bytes.
pub const CONTROL: usize = 8;

const MAGIC: [u8; 4] = *b"IWvG";
const FRAME_MAGIC: u8 = 0xF6;

/// What a greeting says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Hello,
    Accept,
    Confirm,
    Ready,
    Refuse,
    Reset,
}

impl Kind {
    const ALL: [Kind; 6] =
        [Kind::Hello, Kind::Accept, Kind::Confirm, Kind::Ready, Kind::Refuse, Kind::Reset];

    fn code(self) -> u8 {
        Self::ALL.iter().position(|&kind| kind == self).map_or(0, |at| at as u8 + 1)
    }

    fn of(code: u8) -> Option<Kind> {
        Self::ALL.get(usize::from(code.checked_sub(1)?)).copied()
    }
}

/// Where a port listens for greetings.
#[derive(
    FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, PartialEq, Eq, Debug,
)]
#[repr(C)]
pub struct Contact {
    pub gid: [u8; 16],
    pub lid: U16,
    /// 1 InfiniBand, 2 RoCE, 3 iWARP: the GID is an IP address then, the two numbers are ports for greetings and calls.
    pub link: u8,
    /// Path MTU as devices count: 1 to 5.
    pub mtu: u8,
    /// The datagram queue pair.
    pub number: U32,
    pub key: U32,
}

/// One end of a connection to be.
#[derive(
    FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, PartialEq, Eq, Debug,
)]
#[repr(C)]
pub struct End {
    /// The queue pair.
    pub number: U32,
    /// Its first packet's number.
    pub psn: U32,
    /// Frames that it takes before it tells.
    pub credits: U32,
    /// Right to write its control block …
    pub control_key: U32,
    /// … which is here.
    pub control: U64,
    /// Longest frame that it takes, prefix included, in bytes.
    pub buffer: U32,
    /// Reads that it answers at a time.
    pub reads: u8,
    pub unused: [u8; 3],
}

/// A datagram that connects. Kinds that have no use for a field leave it zero.
#[derive(
    FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, PartialEq, Eq, Debug,
)]
#[repr(C)]
pub struct Greeting {
    magic: [u8; 4],
    kind: u8,
    version: u8,
    unused: U16,
    pub from: U32,
    /// To whom: a queue pair that is somebody else's is noticed.
    pub to: U32,
    /// The caller's attempt; it grows with each.
    pub attempt: U64,
    /// In an Accept, how far the answerer's own attempts have come: its older Hellos mean nothing any more.
    pub answerer_attempt: U64,
    pub caller_nonce: [u8; 16],
    pub answerer_nonce: [u8; 16],
    pub contact: Contact,
    pub end: End,
    seal: [u8; 32],
}

/// Length of a greeting, in bytes: below the smallest MTU, 256.
pub const GREETING: usize = size_of::<Greeting>();
const _: () = assert!(GREETING <= 256);

impl Greeting {
    pub fn new(kind: Kind, from: u32, to: u32, attempt: u64, contact: Contact) -> Greeting {
        Greeting {
            magic: MAGIC,
            kind: kind.code(),
            version: VERSION,
            unused: 0.into(),
            from: from.into(),
            to: to.into(),
            attempt: attempt.into(),
            answerer_attempt: 0.into(),
            caller_nonce: [0; 16],
            answerer_nonce: [0; 16],
            contact,
            end: End::new_zeroed(),
            seal: [0; 32],
        }
    }

    /// Reads and verifies one; `None` when it is none, of another version, or of a stranger.
    pub fn decode(bytes: &[u8], key: &JobKey) -> Option<(Kind, Greeting)> {
        let greeting = Greeting::read_from_bytes(bytes).ok()?;
        let well_formed = greeting.magic == MAGIC && greeting.version == VERSION;
        let kind = Kind::of(greeting.kind).filter(|_| well_formed)?;
        // `blake3::Hash` compares in constant time.
        (greeting.seal_by(key) == greeting.seal).then_some((kind, greeting))
    }

    fn seal_by(&self, key: &JobKey) -> blake3::Hash {
        key.hash(&[Greeting { seal: [0; 32], ..*self }.as_bytes()])
    }

    pub fn sealed(self, key: &JobKey) -> Greeting {
        Greeting { seal: *self.seal_by(key).as_bytes(), ..self }
    }
}

/// The key that seals greetings of `job`.
pub fn job_key(secret: &[u8; 32], job: &str) -> JobKey {
    JobKey::derive("ironweave verbs greeting v1", secret, job)
}

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame {
    /// A header of this many bytes, and the payload.
    Data(usize),
    /// The peer finalized; nothing follows.
    Bye,
    /// The first of an iWARP connection: its caller is up.
    Open,
    /// An [`Offer`] follows.
    Offer,
}

/// The part before a frame's header. `taken` counts the frames that its sender took.
#[inline]
pub fn prefix(frame: Frame, from: u32, taken: u32, number: u32) -> [u8; PREFIX] {
    let (kind, header) = match frame {
        Frame::Data(header) => (1, header as u8), // at most HEADER_MAX
        Frame::Bye => (2, 0),
        Frame::Open => (3, 0),
        Frame::Offer => (4, 0),
    };
    let mut bytes = [0; PREFIX];
    bytes[..4].copy_from_slice(&[FRAME_MAGIC, kind, header, FRAME_MAGIC ^ kind ^ header ^ 0x5A]);
    bytes[4..8].copy_from_slice(&from.to_le_bytes());
    bytes[8..12].copy_from_slice(&taken.to_le_bytes());
    bytes[12..].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// What the part before a frame's header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Said {
    /// Who says to have sent it.
    pub from: u32,
    /// The header of [`Frame::Data`] is `bytes[PREFIX..PREFIX + n]`.
    pub frame: Frame,
    /// How many frames its sender took.
    pub taken: u32,
    /// Its place in the order of frames; a Bye has that of the frame that will not follow, an Open none.
    pub number: u32,
}

/// Reads a frame.
#[inline]
pub fn decode_frame(bytes: &[u8]) -> Option<Said> {
    let (&[magic, kind, header, check, numbers @ ..], rest) =
        bytes.split_first_chunk::<PREFIX>()?;
    if magic != FRAME_MAGIC || check != FRAME_MAGIC ^ kind ^ header ^ 0x5A {
        return None;
    }
    let frame = match (kind, usize::from(header)) {
        (1, header) if header <= HEADER_MAX && header <= rest.len() => Frame::Data(header),
        (2, 0) if rest.is_empty() => Frame::Bye,
        (3, 0) if rest.is_empty() => Frame::Open,
        (4, 0) if rest.len() == OFFER => Frame::Offer,
        _ => return None,
    };
    let [from, taken, number] =
        [0, 4, 8].map(|at| u32::from_le_bytes([0, 1, 2, 3].map(|byte| numbers[at + byte])));
    Some(Said { from, frame, taken, number })
}

/// A ring that the other side may write short frames to.
#[derive(
    FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, PartialEq, Eq, Debug,
)]
#[repr(C)]
pub struct Offer {
    address: U64,
    rkey: U32,
    slots: U32,
    size: U32,
    unused: U32,
    seal: [u8; 32],
}

/// Length of an offer, in bytes.
pub const OFFER: usize = size_of::<Offer>();

impl Offer {
    /// Sealed for the connection that `nonces` name, of which `from` is the end that will read.
    pub fn new(
        (address, rkey): (u64, u32),
        shape: Shape,
        key: &JobKey,
        from: u32,
        nonces: &([u8; 16], [u8; 16]),
    ) -> Offer {
        let offer = Offer {
            address: address.into(),
            rkey: rkey.into(),
            slots: shape.slots().into(),
            size: shape.size().into(),
            unused: 0.into(),
            seal: [0; 32],
        };
        Offer { seal: *offer.seal_by(key, from, nonces).as_bytes(), ..offer }
    }

    fn seal_by(&self, key: &JobKey, from: u32, nonces: &([u8; 16], [u8; 16])) -> blake3::Hash {
        let unsealed = Offer { seal: [0; 32], ..*self };
        // No greeting begins like this.
        key.hash(&[b"IWvR", &from.to_le_bytes(), &nonces.0, &nonces.1, unsealed.as_bytes()])
    }

    /// Address, right and shape of the ring; `None` when it is not of this connection's other end, or makes no sense.
    pub fn decode(
        bytes: &[u8],
        key: &JobKey,
        from: u32,
        nonces: &([u8; 16], [u8; 16]),
    ) -> Option<(u64, u32, Shape)> {
        let offer = Offer::read_from_bytes(bytes).ok()?;
        if offer.seal_by(key, from, nonces) != offer.seal {
            return None;
        }
        let shape = Shape::new(offer.slots.get(), offer.size.get())?;
        let address = offer.address.get();
        let sound = address != 0 && address.is_multiple_of(8);
        address.checked_add(shape.bytes() as u64).filter(|_| sound)?;
        Some((address, offer.rkey.get(), shape))
    }
}

/// A control block that says `taken`.
pub fn control(taken: u32) -> [u8; CONTROL] {
    let mut block = [0; CONTROL];
    block[..4].copy_from_slice(&taken.to_le_bytes());
    block[4..].copy_from_slice(&(!taken).to_le_bytes());
    block
}

/// Reads a control block; `None` while it is being written.
pub fn taken(words: (u32, u32)) -> Option<u32> {
    let (taken, complement) = (u32::from_le(words.0), u32::from_le(words.1));
    (taken == !complement).then_some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn greeting() -> Greeting {
        let contact = Contact { lid: 7.into(), mtu: 5, link: 2, ..Contact::new_zeroed() };
        Greeting::new(Kind::Accept, 3, 9, 77, contact)
    }

    #[test]
    fn greetings_are_believed_of_members_only() {
        let key = job_key(&[7; 32], "job");
        let sealed = greeting().sealed(&key);
        assert_eq!(Greeting::decode(sealed.as_bytes(), &key), Some((Kind::Accept, sealed)));
        for stranger in [job_key(&[8; 32], "job"), job_key(&[7; 32], "bob")] {
            assert_eq!(Greeting::decode(sealed.as_bytes(), &stranger), None);
        }
        for at in 0..GREETING {
            let mut changed = sealed;
            changed.as_mut_bytes()[at] ^= 0x10;
            assert_eq!(Greeting::decode(changed.as_bytes(), &key), None, "byte {at}");
        }
        assert_eq!(Greeting::decode(&sealed.as_bytes()[1..], &key), None);
    }

    #[test]
    fn frames_come_back() {
        let said = |from, frame, taken, number| Some(Said { from, frame, taken, number });
        let mut bytes = prefix(Frame::Data(5), 12, 0x0102_0304, 0x0506_0708).to_vec();
        bytes.extend_from_slice(b"hello world");
        assert_eq!(decode_frame(&bytes), said(12, Frame::Data(5), 0x0102_0304, 0x0506_0708));
        assert_eq!(decode_frame(&bytes[..PREFIX + 4]), None, "the header is cut");
        assert_eq!(decode_frame(&bytes[..PREFIX - 1]), None, "the prefix is cut");
        assert_eq!(decode_frame(&prefix(Frame::Bye, 1, 9, 7)), said(1, Frame::Bye, 9, 7));
        assert_eq!(decode_frame(&prefix(Frame::Open, 2, 0, 0)), said(2, Frame::Open, 0, 0));
        let mut offer = prefix(Frame::Offer, 3, 4, 5).to_vec();
        assert_eq!(decode_frame(&offer), None, "there is no offer");
        offer.extend_from_slice(&[0; OFFER]);
        assert_eq!(decode_frame(&offer), said(3, Frame::Offer, 4, 5));
        assert_eq!(decode_frame(&[0; 20]), None);
    }

    #[test]
    fn half_written_control_blocks_say_nothing() {
        let (old, new) = (control(0x01ff), control(0x0200));
        for cut in 1..CONTROL {
            let mut block = old;
            block[..cut].copy_from_slice(&new[..cut]);
            let word =
                |at: usize| u32::from_ne_bytes(block[at..at + 4].try_into().expect("four bytes"));
            // The last two bytes of the complement are the same in both.
            let expected = (cut >= 6).then_some(0x0200);
            assert_eq!(taken((word(0), word(4))), expected, "cut at {cut}");
        }
        assert_eq!(taken((5_u32.to_le(), (!5_u32).to_le())), Some(5));
    }

    #[test]
    fn offers_are_believed_of_the_other_end_only() {
        let (key, nonces) = (job_key(&[7; 32], "job"), ([1; 16], [2; 16]));
        let shape = Shape::new(32, 256).expect("a sound shape");
        let offer = Offer::new((0x7000, 9), shape, &key, 3, &nonces);
        let decode = |offer: &Offer| Offer::decode(offer.as_bytes(), &key, 3, &nonces);
        assert_eq!(decode(&offer), Some((0x7000, 9, shape)));
        for at in 0..OFFER {
            let mut changed = offer;
            changed.as_mut_bytes()[at] ^= 0x40;
            assert_eq!(decode(&changed), None, "byte {at}");
        }
        assert_eq!(Offer::decode(&offer.as_bytes()[1..], &key, 3, &nonces), None, "cut");
        assert_eq!(Offer::decode(offer.as_bytes(), &key, 4, &nonces), None, "of another peer");
        for other in [([1; 16], [3; 16]), ([3; 16], [2; 16]), ([2; 16], [1; 16])] {
            assert_eq!(Offer::decode(offer.as_bytes(), &key, 3, &other), None, "of another life");
        }
        let other = job_key(&[7; 32], "bob");
        assert_eq!(Offer::decode(offer.as_bytes(), &other, 3, &nonces), None, "of another job");
    }

    #[test]
    fn offers_that_make_no_sense_are_refused_though_they_are_sealed() {
        let (key, nonces) = (job_key(&[7; 32], "job"), ([1; 16], [2; 16]));
        let offer = |address: u64, slots: u32, size: u32| {
            let offer = Offer {
                address: address.into(),
                rkey: 1.into(),
                slots: slots.into(),
                size: size.into(),
                unused: 0.into(),
                seal: [0; 32],
            };
            let sealed = Offer { seal: *offer.seal_by(&key, 3, &nonces).as_bytes(), ..offer };
            Offer::decode(sealed.as_bytes(), &key, 3, &nonces)
        };
        assert!(offer(0x7000, 32, 256).is_some());
        for (address, slots, size) in [
            (0, 32, 256),
            (0x7001, 32, 256),
            (u64::MAX - 255, 32, 256),
            (0x7000, 0, 256),
            (0x7000, 1025, 256),
            (0x7000, u32::MAX, 256),
            (0x7000, 32, 0),
            (0x7000, 32, 100),
            (0x7000, 32, 1 << 20),
        ] {
            assert_eq!(offer(address, slots, size), None, "{slots} of {size} at {address:#x}");
        }
    }

    proptest! {
        #[test]
        fn noise_is_no_offer(bytes in proptest::collection::vec(any::<u8>(), OFFER)) {
            let nonces = ([1; 16], [2; 16]);
            prop_assert_eq!(Offer::decode(&bytes, &job_key(&[1; 32], "job"), 0, &nonces), None);
        }

        #[test]
        fn noise_is_no_greeting(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(Greeting::decode(&bytes, &job_key(&[1; 32], "job")), None);
            let _ = decode_frame(&bytes);
        }
    }
}
