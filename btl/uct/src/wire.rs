//! Every byte of ours that crosses an endpoint: the word that starts each message, and the greetings. Pure; decoders
//! believe nothing (law 9). Version 2. Integers are little-endian.
//!
//! ```text
//!  0               20               52     56      64
//!  ┌───────────────┬────────────────┬──────┬───────┐┌────────┬─────────┐
//!  │ index         │ nonce          │ kind │ hlen  ││ header │ payload │
//!  └───────────────┴────────────────┴──────┴───────┘└────────┴─────────┘
//!   bits of the first word, which is what UCT's short messages carry beside their payload
//!   token = index + nonce: what the receiver chose for this life of the connection; the index is the sender's
//!
//!  who connects                                     who is connected to
//!     │ HELLO   from, to, token, stamp, contact, seal  │
//!     ├───────────────────────────────────────────────▶│  makes an endpoint the other way
//!     │ WELCOME from, to, token, stamp echoed, seal    │
//!     │◀───────────────────────────────────────────────┤  the HELLO was fresh: its sender is up
//!     │ READY, or any frame with the token             │
//!     ├───────────────────────────────────────────────▶│  up
//! ```
//!
//! A greeting is sealed with the job's key and names the process it is for, so it cannot be made by a stranger nor be sent
//! to somebody else; its stamp only grows, so an overheard one is worth nothing later. Who knows a token was given it by
//! somebody who knows the key: that is all that later frames prove. Nothing is encrypted.

use crate::contact::Contact;
use ironweave_btl::HEADER_MAX;
use ironweave_btl::secret::JobKey;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The protocol's version; both sides must speak the same.
pub const VERSION: u16 = 2;
/// Length of the first word, in bytes.
pub const PREFIX: usize = 8;
/// What comes before a payload at most, in bytes.
pub const LEAD_MAX: usize = PREFIX + HEADER_MAX;
/// Peers have indices below this.
pub const PEERS_MAX: u32 = 1 << INDEX_BITS;
/// Longest address of an endpoint that is exchanged, in bytes.
pub const EP_ADDRESS_MAX: usize = ironweave_ffi_uct::ADDRESS_MAX;

const INDEX_BITS: u32 = 20;
const TOKEN_BITS: u32 = 52;
const TOKEN_MASK: u64 = (1 << TOKEN_BITS) - 1;
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
    /// The sender's end of this life is over, without good order.
    Close,
    /// The sender has finalized.
    Bye,
    /// The good-bye arrived, and all before it.
    ByeAck,
    /// The connection is refused: the sender has finalized.
    RefuseFinalized,
    /// The connection is refused: the sender holds the receiver for dead.
    RefuseExcluded,
}

impl Kind {
    const ALL: [Kind; 9] = [
        Kind::Data,
        Kind::Hello,
        Kind::Welcome,
        Kind::Ready,
        Kind::Close,
        Kind::Bye,
        Kind::ByeAck,
        Kind::RefuseFinalized,
        Kind::RefuseExcluded,
    ];

    #[inline]
    fn of(number: u64) -> Option<Kind> {
        Self::ALL.get((number as usize).checked_sub(1)?).copied()
    }
}

/// A token, for the process of that index. Never 0.
#[inline]
pub fn token(index: u32, nonce: u32) -> u64 {
    u64::from(index) | u64::from(nonce | 1) << INDEX_BITS
}

/// The index in a token.
#[inline]
pub fn index_of(token: u64) -> usize {
    (token & u64::from(PEERS_MAX - 1)) as usize
}

/// The first word of a message.
#[inline]
pub fn word(kind: Kind, hlen: usize, token: u64) -> u64 {
    debug_assert!(hlen <= HEADER_MAX);
    (token & TOKEN_MASK) | (kind as u64 + 1) << TOKEN_BITS | (hlen as u64) << (TOKEN_BITS + 4)
}

/// Takes a message apart: token, kind, header, payload. `None` when it is malformed.
#[inline]
pub fn split(message: &[u8]) -> Option<(u64, Kind, &[u8], &[u8])> {
    let (word, rest) = message.split_first_chunk::<PREFIX>()?;
    let word = u64::from_le_bytes(*word);
    let hlen = (word >> (TOKEN_BITS + 4)) as usize;
    if hlen > HEADER_MAX || hlen > rest.len() {
        return None;
    }
    let kind = Kind::of((word >> TOKEN_BITS) & 0xf)?;
    let (header, payload) = rest.split_at(hlen);
    Some((word & TOKEN_MASK, kind, header, payload))
}

/// The fixed part of a HELLO or WELCOME; contact, endpoint address and seal follow.
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
    contact_len: U16,
    ep_len: U16,
    /// What frames to the sender shall carry.
    pub token: U64,
    /// Of a HELLO, grows with each connection its sender ever makes; a WELCOME echoes it.
    pub stamp: U64,
    /// Which incarnation of the receiver it is for: out of its address.
    pub incarnation: U64,
    /// The sender's own.
    pub own: U64,
}

/// Who greets: the same in all greetings of a rail.
#[derive(Clone, Copy, Debug)]
pub struct Greeter {
    pub rail: u16,
    pub me: u32,
    pub incarnation: u64,
}

/// The key that seals greetings and address blobs of `job`.
pub fn job_key(secret: &[u8; 32], job: &str) -> JobKey {
    JobKey::derive("ironweave uct greeting v1", secret, job)
}

/// The seal of a body; of greetings by their kind, of address blobs with `None`.
pub fn seal_of(key: &JobKey, kind: Option<Kind>, body: &[u8]) -> blake3::Hash {
    key.hash(&[&[kind.map_or(0, |kind| kind as u8 + 1)], body])
}

impl Greeting {
    /// A greeting from `who` to that incarnation of `to`.
    pub fn new(who: Greeter, to: u32, incarnation: u64, token: u64, stamp: u64) -> Self {
        Greeting {
            version: VERSION.into(),
            rail: who.rail.into(),
            from: who.me.into(),
            own: who.incarnation.into(),
            to: to.into(),
            contact_len: 0.into(),
            ep_len: 0.into(),
            token: token.into(),
            stamp: stamp.into(),
            incarnation: incarnation.into(),
        }
    }

    /// The whole message; `to_token` is the receiver's, 0 when it is not known yet. `ep` is the address of the sender's
    /// endpoint, empty where interfaces are connected to.
    pub fn encode(
        mut self,
        kind: Kind,
        to_token: u64,
        contact: &Contact,
        ep: &[u8],
        key: &JobKey,
    ) -> Vec<u8> {
        let contact = contact.encode();
        self.contact_len = (contact.len() as u16).into(); // at most six times 256 bytes
        self.ep_len = (ep.len() as u16).into(); // at most EP_ADDRESS_MAX
        let mut message = word(kind, 0, to_token).to_le_bytes().to_vec();
        message.extend_from_slice(self.as_bytes());
        message.extend_from_slice(&contact);
        message.extend_from_slice(ep);
        let seal = seal_of(key, Some(kind), &message[PREFIX..]);
        message.extend_from_slice(seal.as_bytes());
        message
    }

    /// Reads what [`Greeting::encode`] put after the word; `None` when it is malformed or not sealed by the key.
    pub fn decode<'a>(
        kind: Kind,
        body: &'a [u8],
        key: &JobKey,
    ) -> Option<(Greeting, Contact, &'a [u8])> {
        let (signed, seal) = body.split_at_checked(body.len().checked_sub(SEAL)?)?;
        let seal: [u8; SEAL] = seal.try_into().ok()?;
        // `blake3::Hash` compares in constant time.
        if seal_of(key, Some(kind), signed) != seal {
            return None;
        }
        let (greeting, rest) = Greeting::read_from_prefix(signed).ok()?;
        let (contact, ep) = rest.split_at_checked(greeting.contact_len.get().into())?;
        let right = greeting.version.get() == VERSION
            && usize::from(greeting.ep_len.get()) == ep.len()
            && ep.len() <= EP_ADDRESS_MAX
            && greeting.token.get() & !TOKEN_MASK == 0
            && greeting.token.get() != 0
            && greeting.from.get() < PEERS_MAX;
        right.then_some((greeting, Contact::decode(contact)?, ep))
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
        let who = Greeter { rail: 1, me: 2, incarnation: 8 };
        let greeting = Greeting::new(who, 3, 6, 4, 5);
        let contact = Contact::example();
        let message = greeting.encode(Kind::Hello, 9, &contact, b"endpoint", &key());
        let (token, kind, header, body) = split(&message).unwrap();
        assert_eq!((token, kind, header.len()), (9, Kind::Hello, 0));
        let (back, there, ep) = Greeting::decode(kind, body, &key()).unwrap();
        assert_eq!(
            (back.from.get(), back.stamp.get(), there, ep),
            (2, 5, contact, &b"endpoint"[..])
        );
        assert!(Greeting::decode(Kind::Welcome, body, &key()).is_none(), "another kind");
        assert!(Greeting::decode(kind, body, &job_key(&[7; 32], "bob")).is_none());
        for at in 0..body.len() {
            let mut changed = body.to_vec();
            changed[at] ^= 1;
            assert!(Greeting::decode(kind, &changed, &key()).is_none(), "byte {at}");
            assert!(Greeting::decode(kind, &body[..at], &key()).is_none(), "cut at {at}");
        }
    }

    proptest! {
        #[test]
        fn words_come_back(index in 0..PEERS_MAX, nonce in any::<u32>(), at in 0..9_usize, hlen in 0..=HEADER_MAX) {
            let (token, kind) = (token(index, nonce), Kind::ALL[at]);
            let mut message = word(kind, hlen, token).to_le_bytes().to_vec();
            message.extend_from_slice(&[1; HEADER_MAX]);
            let (token_back, kind_back, header, payload) = split(&message).unwrap();
            prop_assert_eq!((token_back, kind_back, index_of(token_back)), (token, kind, index as usize));
            prop_assert_eq!((header.len(), payload.len()), (hlen, HEADER_MAX - hlen));
        }

        #[test]
        fn any_bytes_are_split_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some((_, kind, header, payload)) = split(&bytes) {
                prop_assert_eq!(PREFIX + header.len() + payload.len(), bytes.len());
                prop_assert!(Greeting::decode(kind, payload, &key()).is_none());
            }
        }
    }
}
