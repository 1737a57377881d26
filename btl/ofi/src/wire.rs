//! Every byte that crosses an endpoint: the prefix of each message, and the greetings. Pure; decoders believe nothing
//! (law 9). Version 8. Integers are little-endian.
//!
//! ```text
//!  0      1      2         4            8                 16
//!  ┌──────┬──────┬─────────┬────────────┬─────────────────┬──────────────┬─────────┐
//!  │ kind │ hlen │ credits │ number     │ token           │ header       │ payload │
//!  └──────┴──────┴─────────┴────────────┴─────────────────┴──────────────┴─────────┘
//!   token    what the receiver chose for this life of the connection: index of the sender, 24 bits, and 40 random ones
//!   credits  what the sender has read meanwhile, in units of 64 bytes: so much more the receiver may send
//!   number   of this frame in this life, counted by itself for messages of credits alone; of a good-bye, how many frames
//!            there were. What comes twice counts once
//!
//!  who connects                                 who is connected to
//!     │ HELLO   from, to, token, stamp, name, seal   │
//!     ├─────────────────────────────────────────────▶│
//!     │ WELCOME from, to, token, stamp echoed, seal  │
//!     │◀─────────────────────────────────────────────┤   the HELLO was fresh: its sender is up
//!     │ READY, or any frame with the token           │
//!     ├─────────────────────────────────────────────▶│   up
//! ```
//!
//! A greeting is sealed with the job's key and names the process it is for, so it cannot be made by a stranger nor be sent
//! to somebody else; its stamp only grows, so an overheard one is worth nothing later. Who knows a token was given it by
//! somebody who knows the key: that is all that later frames prove. Nothing is encrypted.

use ironweave_btl::HEADER_MAX;
use ironweave_btl::secret::JobKey;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The protocol's version; both sides must speak the same.
pub const VERSION: u16 = 8;
/// Length of the prefix, in bytes.
pub const PREFIX: usize = size_of::<Prefix>();
/// What comes before a payload at most, in bytes.
pub const LEAD_MAX: usize = PREFIX + HEADER_MAX;
/// Longest endpoint address that is exchanged, in bytes.
pub const NAME_MAX: usize = 512;
/// Longest greeting, in bytes.
pub const GREETING_MAX: usize = PREFIX + size_of::<Greeting>() + NAME_MAX + SEAL;
/// One credit, in bytes.
pub const UNIT: usize = 64;
/// Peers have indices below this.
pub const PEERS_MAX: u32 = 1 << 24;

const SEAL: usize = 32;

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A frame of the layer above.
    Data,
    /// Somebody wants to connect.
    Hello,
    /// The answer.
    Welcome,
    /// The welcome arrived.
    Ready,
    /// Credits alone.
    Credit,
    /// The sender's end of this life is over, without good order.
    Close,
    /// The sender has finalized.
    Bye,
    /// The good-bye arrived, and all before it.
    ByeAck,
    /// The connection is refused: the sender has finalized, or holds the receiver for dead.
    Refuse,
    /// About the sender's lane, over which the receiver may read (`news`).
    Lane,
    /// About two lanes.
    Joined,
    /// A long frame begins (`pieces`).
    Begin,
    /// It goes on.
    Piece,
    /// A long frame begins whose rest comes over the lanes (`leads`).
    Lead,
}

impl Kind {
    const ALL: [Kind; 14] = [
        Kind::Data,
        Kind::Hello,
        Kind::Welcome,
        Kind::Ready,
        Kind::Credit,
        Kind::Close,
        Kind::Bye,
        Kind::ByeAck,
        Kind::Refuse,
        Kind::Lane,
        Kind::Joined,
        Kind::Begin,
        Kind::Piece,
        Kind::Lead,
    ];

    const fn number(self) -> u8 {
        0xB0 + self as u8
    }

    fn of(number: u8) -> Option<Kind> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }
}

/// See the picture above.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
pub struct Prefix {
    kind: u8,
    hlen: u8,
    /// In units of [`UNIT`] bytes.
    pub credits: U16,
    /// Of this frame in its life.
    pub number: U32,
    /// The receiver's.
    pub token: U64,
}

impl Prefix {
    /// The prefix of a message.
    pub fn new(kind: Kind, hlen: usize, credits: u16, number: u32, token: u64) -> Self {
        assert!(hlen <= HEADER_MAX, "a frame header of {hlen} bytes");
        Prefix {
            kind: kind.number(),
            hlen: hlen as u8,
            credits: credits.into(),
            number: number.into(),
            token: token.into(),
        }
    }

    /// Takes a message apart: prefix, kind, header, payload. `None` when it is malformed.
    pub fn split(message: &[u8]) -> Option<(&Prefix, Kind, &[u8], &[u8])> {
        let (prefix, rest) = Prefix::ref_from_prefix(message).ok()?;
        let kind = Kind::of(prefix.kind)?;
        let hlen = usize::from(prefix.hlen);
        if hlen > HEADER_MAX || hlen > rest.len() {
            return None;
        }
        let (header, payload) = rest.split_at(hlen);
        Some((prefix, kind, header, payload))
    }
}

/// What a message of `len` bytes takes of the receiver's room, in units: its bytes, and something for being one.
pub const fn cost(len: usize) -> u32 {
    (len.div_ceil(UNIT) + 4) as u32
}

/// The fixed part of a HELLO or WELCOME; the endpoint's address and the seal follow.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
pub struct Greeting {
    /// [`VERSION`].
    pub version: U16,
    /// Which of the sender's rails.
    pub rail: U16,
    /// Who sends it.
    pub from: U32,
    /// Whom it is for.
    pub to: U32,
    name_len: U32,
    /// What frames to the sender shall carry.
    pub token: U64,
    /// Of a HELLO, grows with each connection its sender ever makes; a WELCOME echoes it.
    pub stamp: U64,
    /// Which incarnation of the receiver it is for: out of its address.
    pub incarnation: U64,
    /// The sender's own.
    pub own: U64,
    /// The sender's process, for providers of one host.
    pub pid: U32,
    reserved: U32,
}

/// Who greets: the same in all greetings of a rail.
#[derive(Clone, Copy, Debug)]
pub struct Greeter {
    pub rail: u16,
    pub me: u32,
    pub incarnation: u64,
    pub pid: u32,
}

/// The key that seals greetings of `job`.
pub fn job_key(secret: &[u8; 32], job: &str) -> JobKey {
    JobKey::derive("ironweave ofi greeting v1", secret, job)
}

fn seal_of(key: &JobKey, kind: Kind, body: &[u8]) -> blake3::Hash {
    key.hash(&[&[kind.number()], body])
}

impl Greeting {
    /// A greeting from `who` to that incarnation of `to`.
    pub fn new(who: Greeter, to: u32, incarnation: u64, token: u64, stamp: u64) -> Self {
        Greeting {
            version: VERSION.into(),
            rail: who.rail.into(),
            from: who.me.into(),
            own: who.incarnation.into(),
            pid: who.pid.into(),
            reserved: 0.into(),
            to: to.into(),
            name_len: 0.into(),
            token: token.into(),
            stamp: stamp.into(),
            incarnation: incarnation.into(),
        }
    }

    /// The whole message; `to_token` is the receiver's, 0 when it is not known yet.
    ///
    /// # Panics
    /// When `name` is longer than [`NAME_MAX`]: such endpoints are not opened.
    pub fn encode(mut self, kind: Kind, to_token: u64, name: &[u8], key: &JobKey) -> Vec<u8> {
        assert!(name.len() <= NAME_MAX, "an address of {} bytes", name.len());
        self.name_len = (name.len() as u32).into();
        let mut message = Prefix::new(kind, 0, 0, 0, to_token).as_bytes().to_vec();
        message.extend_from_slice(self.as_bytes());
        message.extend_from_slice(name);
        let seal = seal_of(key, kind, &message[PREFIX..]);
        message.extend_from_slice(seal.as_bytes());
        message
    }

    /// Reads what [`Greeting::encode`] put after the prefix; `None` when it is malformed or not sealed by the key.
    pub fn decode<'a>(kind: Kind, body: &'a [u8], key: &JobKey) -> Option<(Greeting, &'a [u8])> {
        let (signed, seal) = body.split_at_checked(body.len().checked_sub(SEAL)?)?;
        let seal: [u8; SEAL] = seal.try_into().ok()?;
        let (greeting, name) = Greeting::read_from_prefix(signed).ok()?;
        let right = greeting.version.get() == VERSION
            && greeting.name_len.get() as usize == name.len()
            && name.len() <= NAME_MAX
            && greeting.from.get() < PEERS_MAX;
        // `blake3::Hash` compares in constant time.
        (right && seal_of(key, kind, signed) == seal).then_some((greeting, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> JobKey {
        job_key(&[7; 32], "job")
    }

    #[test]
    fn a_greeting_comes_back_and_any_changed_byte_is_seen() {
        let who = Greeter { rail: 1, me: 2, incarnation: 8, pid: 7 };
        let greeting = Greeting::new(who, 3, 6, 4, 5);
        let message = greeting.encode(Kind::Hello, 9, b"address", &key());
        assert!(message.len() <= GREETING_MAX);
        let (prefix, kind, header, body) = Prefix::split(&message).unwrap();
        assert_eq!((prefix.token.get(), kind, header.len()), (9, Kind::Hello, 0));
        let (back, name) = Greeting::decode(kind, body, &key()).unwrap();
        assert_eq!((back.from.get(), back.stamp.get(), name), (2, 5, &b"address"[..]));
        assert!(Greeting::decode(Kind::Welcome, body, &key()).is_none(), "another kind");
        assert!(Greeting::decode(kind, body, &job_key(&[7; 32], "bob")).is_none());
        for at in 0..body.len() {
            let mut changed = body.to_vec();
            changed[at] ^= 1;
            assert!(Greeting::decode(kind, &changed, &key()).is_none(), "byte {at}");
            assert!(Greeting::decode(kind, &body[..at], &key()).is_none(), "cut at {at}");
        }
    }

    #[test]
    fn a_message_costs_more_than_its_bytes() {
        assert_eq!(cost(0), 4);
        assert_eq!(cost(65), 6);
    }

    proptest! {
        #[test]
        fn any_bytes_are_split_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some((_, kind, header, payload)) = Prefix::split(&bytes) {
                prop_assert_eq!(PREFIX + header.len() + payload.len(), bytes.len());
                prop_assert!(Greeting::decode(kind, payload, &key()).is_none());
            }
        }
    }
}
