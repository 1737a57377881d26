//! Messages on the socket between two processes: the handshake, then a few notices. Version 3 (segments have words for shared reads).
//!
//! ```text
//!  dialler                                   listener
//!    │ Hello   { from, to, nonce }              │
//!    │ ───────────────────────────────────────▶ │
//!    │ Challenge { nonce, proof }               │   keyed hash over role, job, from, to and both nonces
//!    │ ◀─────────────────────────────────────── │
//!    │ Offer { proof, rings… } + 2 descriptors  │   the dialler's ring to the listener, and its inbox
//!    │ ───────────────────────────────────────▶ │   ── listener: Up
//!    │ Accept { rings… } + 2 descriptors        │   the same the other way
//!    │ ◀─────────────────────────────────────── │   ── dialler: Up
//!    │ Wake, Goodbye, Sever  (both ways)        │
//! ```
//! Instead of any answer the listener may say `Refuse { reason }`. Each message is one packet of the size of its
//! struct; anything else is malformed. Integers are little-endian. Nothing is allocated for a stranger but a slot
//! in a table of fixed size.

use ironweave_btl::Peer;
use ironweave_btl::secret::JobKey;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of each message: name and version.
const MAGIC: [u8; 4] = *b"IWs\x03";
/// Bytes of the longest message.
pub(crate) const MESSAGE_MAX: usize = 96;
/// The highest peer index that is taken: it becomes an index into tables.
pub(crate) const PEER_MAX: u32 = (1 << 20) - 1;

pub(crate) type Nonce = [u8; 32];
pub(crate) type Proof = [u8; 32];

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Prefix {
    magic: [u8; 4],
    tag: u8,
    zero: [u8; 3],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct HelloBody {
    from: U32,
    to: U32,
    nonce: Nonce,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct ChallengeBody {
    nonce: Nonce,
    proof: Proof,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct AttachBody {
    ring: U64,
    bulk: U64,
    bell: U32,
    flags: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct OfferBody {
    proof: Proof,
    attach: AttachBody,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RefuseBody {
    reason: U32,
}

/// What one side gives the other to reach it. The descriptors of ring and inbox travel beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Attach {
    /// Sizes of the sender's ring.
    pub(crate) ring: u64,
    pub(crate) bulk: u64,
    /// Which bell in the sender's inbox the other side rings.
    pub(crate) bell: u32,
    /// The sender parks with a barrier on all its writers.
    pub(crate) barrier: bool,
    /// The sender lets itself be reached by such a barrier.
    pub(crate) reachable: bool,
}

const BARRIER: u32 = 1;
const REACHABLE: u32 = 2;

/// Why a handshake was turned down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// Try again in a moment: another connection between the two is being made or ended.
    Busy = 1,
    /// The dialler was excluded, or is not for us.
    Excluded = 2,
    /// The proof was wrong.
    Authentication = 3,
    /// The listener has said good-bye.
    Departed = 4,
    /// The listener has no room for more.
    Exhausted = 5,
    /// The listener does not understand.
    Malformed = 6,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    Hello {
        from: Peer,
        to: Peer,
        nonce: Nonce,
    },
    Challenge {
        nonce: Nonce,
        proof: Proof,
    },
    Offer {
        proof: Proof,
        attach: Attach,
    },
    Accept {
        attach: Attach,
    },
    Refuse {
        reason: Reason,
    },
    /// The reader of a parked ring is asleep: look.
    Wake,
    /// The sender leaves in good order; everything it sent is in the ring.
    Goodbye,
    /// The sender ended this connection and lives on.
    Sever,
}

impl Attach {
    fn body(self) -> AttachBody {
        let flags =
            if self.barrier { BARRIER } else { 0 } | if self.reachable { REACHABLE } else { 0 };
        AttachBody {
            ring: self.ring.into(),
            bulk: self.bulk.into(),
            bell: self.bell.into(),
            flags: flags.into(),
        }
    }

    fn read(body: &AttachBody) -> Attach {
        let flags = body.flags.get();
        Attach {
            ring: body.ring.get(),
            bulk: body.bulk.get(),
            bell: body.bell.get(),
            barrier: flags & BARRIER != 0,
            reachable: flags & REACHABLE != 0,
        }
    }
}

impl Message {
    /// Appends the message to `out`.
    pub(crate) fn encode(&self) -> smallvec::SmallVec<[u8; MESSAGE_MAX]> {
        let mut out = smallvec::SmallVec::new();
        let mut put = |tag, body: &[u8]| {
            out.extend_from_slice(Prefix { magic: MAGIC, tag, zero: [0; 3] }.as_bytes());
            out.extend_from_slice(body);
        };
        match *self {
            Message::Hello { from, to, nonce } => {
                put(1, HelloBody { from: from.0.into(), to: to.0.into(), nonce }.as_bytes());
            }
            Message::Challenge { nonce, proof } => {
                put(2, ChallengeBody { nonce, proof }.as_bytes());
            }
            Message::Offer { proof, attach } => {
                put(3, OfferBody { proof, attach: attach.body() }.as_bytes());
            }
            Message::Accept { attach } => put(4, attach.body().as_bytes()),
            Message::Refuse { reason } => {
                put(5, RefuseBody { reason: (reason as u32).into() }.as_bytes());
            }
            Message::Wake => put(6, &[]),
            Message::Goodbye => put(7, &[]),
            Message::Sever => put(8, &[]),
        }
        out
    }

    /// Reads what [`encode`](Message::encode) wrote; `None` for anything else.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Message> {
        let (prefix, body) = Prefix::read_from_prefix(bytes).ok()?;
        if prefix.magic != MAGIC || prefix.zero != [0; 3] {
            return None;
        }
        Some(match prefix.tag {
            1 => {
                let HelloBody { from, to, nonce } = HelloBody::read_from_bytes(body).ok()?;
                let (from, to) = (from.get(), to.get());
                if from > PEER_MAX || to > PEER_MAX {
                    return None;
                }
                Message::Hello { from: Peer(from), to: Peer(to), nonce }
            }
            2 => {
                let ChallengeBody { nonce, proof } = ChallengeBody::read_from_bytes(body).ok()?;
                Message::Challenge { nonce, proof }
            }
            3 => {
                let OfferBody { proof, attach } = OfferBody::read_from_bytes(body).ok()?;
                Message::Offer { proof, attach: Attach::read(&attach) }
            }
            4 => Message::Accept { attach: Attach::read(&AttachBody::read_from_bytes(body).ok()?) },
            5 => {
                let reason = match RefuseBody::read_from_bytes(body).ok()?.reason.get() {
                    1 => Reason::Busy,
                    2 => Reason::Excluded,
                    3 => Reason::Authentication,
                    4 => Reason::Departed,
                    5 => Reason::Exhausted,
                    6 => Reason::Malformed,
                    _ => return None,
                };
                Message::Refuse { reason }
            }
            6 if body.is_empty() => Message::Wake,
            7 if body.is_empty() => Message::Goodbye,
            8 if body.is_empty() => Message::Sever,
            _ => return None,
        })
    }
}

/// The key with which both sides prove that they belong to the job.
#[derive(Clone, Debug)]
pub(crate) struct HandshakeKey(JobKey);

/// Which side of a handshake a proof is for, so that one cannot be played back as the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Listener = 1,
    Dialler = 2,
}

/// Everything a proof covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transcript {
    pub(crate) from: Peer,
    pub(crate) to: Peer,
    pub(crate) dialler: Nonce,
    pub(crate) listener: Nonce,
}

impl HandshakeKey {
    pub(crate) fn new(secret: &[u8; 32], job: &str) -> Self {
        HandshakeKey(JobKey::derive("ironweave shm handshake v1", secret, job))
    }

    fn hash(&self, role: Role, transcript: &Transcript) -> blake3::Hash {
        let Transcript { from, to, dialler, listener } = transcript;
        let (from, to) = (from.0.to_le_bytes(), to.0.to_le_bytes());
        self.0.hash(&[&[role as u8], &from, &to, dialler, listener])
    }

    pub(crate) fn prove(&self, role: Role, transcript: &Transcript) -> Proof {
        *self.hash(role, transcript).as_bytes()
    }

    /// Compares in constant time.
    pub(crate) fn verify(&self, role: Role, transcript: &Transcript, proof: &Proof) -> bool {
        self.hash(role, transcript) == blake3::Hash::from_bytes(*proof)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_reproduced(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), framed: bool, tag in 0u8..10) {
            if framed && bytes.len() >= 8 {
                bytes[..8].copy_from_slice(Prefix { magic: MAGIC, tag, zero: [0; 3] }.as_bytes());
            }
            if let Some(message) = Message::decode(&bytes) {
                let again = message.encode();
                prop_assert!(again.len() <= MESSAGE_MAX);
                prop_assert_eq!(Message::decode(&again), Some(message));
            }
        }
    }

    #[test]
    fn a_proof_covers_role_secret_job_and_transcript() {
        let key = HandshakeKey::new(&[1; 32], "job");
        let transcript =
            Transcript { from: Peer(1), to: Peer(2), dialler: [3; 32], listener: [4; 32] };
        let proof = key.prove(Role::Dialler, &transcript);
        assert!(key.verify(Role::Dialler, &transcript, &proof));
        assert!(!key.verify(Role::Listener, &transcript, &proof));
        assert!(!HandshakeKey::new(&[2; 32], "job").verify(Role::Dialler, &transcript, &proof));
        assert!(!HandshakeKey::new(&[1; 32], "jab").verify(Role::Dialler, &transcript, &proof));
        let other = Transcript { from: Peer(9), ..transcript };
        assert!(!key.verify(Role::Dialler, &other, &proof));
    }
}
