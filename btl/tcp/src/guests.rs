//! Connections that have not proved the job secret yet: the acceptor's half of the handshake.
//!
//! A stranger costs one socket and a fixed 250 bytes, for a bounded time; their number is bounded too. When all
//! places are taken the oldest goes, but not before it had a fair chance; until then newcomers wait in the kernel's
//! backlog (law 9).

use crate::secret::{HandshakeKey, Role};
use crate::wire::{CHALLENGE_MAGIC, Challenge, HELLO_MAGIC, Hello, PROOF_MAGIC, Proof, VERSION};
use ironweave_btl::Peer;
use ironweave_btl::secret::random;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, send};
use slab::Slab;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// Guests at a time.
pub const GUESTS_MAX: usize = 256;
/// How long a guest is safe from being dropped for a newer one.
const GRACE: Duration = Duration::from_millis(500);

enum Stage {
    Hello,
    Proof { hello: Hello, nonce: [u8; 32] },
}

struct Guest {
    socket: OwnedFd,
    since: Instant,
    generation: u32,
    stage: Stage,
    buffer: [u8; size_of::<Hello>()],
    got: usize,
}

/// What became of a guest that had something to say.
pub enum Outcome {
    /// Not complete yet, or not there any more.
    Pending,
    /// It is the peer that it claims to be.
    Proved(OwnedFd, Hello),
    /// It is not.
    Stranger(OwnedFd, &'static str),
    /// It left by itself.
    Left,
}

/// All guests of one rail.
#[derive(Default)]
pub struct Guests {
    slab: Slab<Guest>,
    /// In order of arrival; entries of guests that left are skipped.
    order: VecDeque<(usize, u32)>,
    generation: u32,
}

impl Guests {
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Makes room for one more, if it can. Answers whether there is room, and a guest that had to go for it.
    pub fn make_room(&mut self, now: Instant) -> (bool, Option<OwnedFd>) {
        if self.slab.len() < GUESTS_MAX {
            return (true, None);
        }
        let dropped = self.drop_older_than(now.checked_sub(GRACE));
        (dropped.is_some(), dropped)
    }

    /// Takes out one guest that has been here for longer than `patience`.
    pub fn expired(&mut self, now: Instant, patience: Duration) -> Option<OwnedFd> {
        self.drop_older_than(now.checked_sub(patience))
    }

    /// When the next guest expires.
    pub fn next_deadline(&self, patience: Duration) -> Option<Instant> {
        self.slab.iter().map(|(_, guest)| guest.since + patience).min()
    }

    fn drop_older_than(&mut self, limit: Option<Instant>) -> Option<OwnedFd> {
        while let Some(&(key, generation)) = self.order.front() {
            match self.slab.get(key) {
                Some(guest) if guest.generation == generation => {
                    if limit.is_none_or(|limit| guest.since > limit) {
                        return None;
                    }
                    self.order.pop_front();
                    return Some(self.slab.remove(key).socket);
                }
                _ => {
                    self.order.pop_front();
                }
            }
        }
        None
    }

    /// Adds one; its index and generation name it from now on.
    pub fn insert(&mut self, socket: OwnedFd, now: Instant) -> (usize, u32) {
        self.generation = self.generation.wrapping_add(1) & crate::events::GENERATION_MASK;
        let generation = self.generation;
        let buffer = [0; size_of::<Hello>()];
        let guest = Guest { socket, since: now, generation, stage: Stage::Hello, buffer, got: 0 };
        let key = self.slab.insert(guest);
        if self.order.len() > 2 * GUESTS_MAX {
            let slab = &self.slab;
            self.order.retain(|&(key, generation)| {
                slab.get(key).is_some_and(|guest| guest.generation == generation)
            });
        }
        self.order.push_back((key, generation));
        (key, generation)
    }

    /// The socket of one, to be watched.
    pub fn socket(&self, key: usize) -> Option<&OwnedFd> {
        self.slab.get(key).map(|guest| &guest.socket)
    }

    /// Reads what a guest says. One that is done, for good or bad, is taken out.
    pub fn ready(
        &mut self,
        key: usize,
        generation: u32,
        me: Peer,
        secret: &HandshakeKey,
    ) -> Outcome {
        let Some(guest) = self.slab.get_mut(key).filter(|guest| guest.generation == generation)
        else {
            return Outcome::Pending;
        };
        match guest.listen(me, secret) {
            Ok(None) => Outcome::Pending,
            Ok(Some(hello)) => Outcome::Proved(self.slab.remove(key).socket, hello),
            Err(Some(what)) => Outcome::Stranger(self.slab.remove(key).socket, what),
            Err(None) => {
                self.slab.remove(key);
                Outcome::Left
            }
        }
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        self.slab.clear();
        self.order.clear();
    }
}

impl Guest {
    /// `Err(None)` when it left.
    fn listen(
        &mut self,
        me: Peer,
        secret: &HandshakeKey,
    ) -> Result<Option<Hello>, Option<&'static str>> {
        loop {
            let wanted = match self.stage {
                Stage::Hello => size_of::<Hello>(),
                Stage::Proof { .. } => size_of::<Proof>(),
            };
            let space = &mut self.buffer[self.got..wanted];
            match recv(&self.socket, space, RecvFlags::DONTWAIT) {
                // A peer that yields in a race leaves too, but never in the middle of a message.
                Ok((_, 0)) => return Err((self.got > 0).then_some("left in mid-sentence")),
                Ok((_, came)) => self.got += came,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(None),
                Err(_) => return Err(None),
            }
            // The magic decides at once: a stranger is not waited for.
            let magic = match self.stage {
                Stage::Hello => HELLO_MAGIC,
                Stage::Proof { .. } => PROOF_MAGIC,
            };
            let seen = self.got.min(magic.len());
            if self.buffer[..seen] != magic[..seen] {
                return Err(Some("not our protocol"));
            }
            if self.got < wanted {
                continue;
            }
            self.got = 0;
            match &self.stage {
                Stage::Hello => {
                    let hello = Hello::read_from_bytes(&self.buffer).expect("the buffer's length");
                    self.challenge(hello, me, secret).map_err(Some)?;
                }
                Stage::Proof { hello, nonce } => {
                    let proof = Proof::read_from_prefix(&self.buffer).expect("a shorter one").0;
                    if !secret.verify(Role::Initiator, hello, nonce, &proof.proof) {
                        return Err(Some("did not prove the job secret"));
                    }
                    return Ok(Some(*hello));
                }
            }
        }
    }

    fn challenge(
        &mut self,
        hello: Hello,
        me: Peer,
        secret: &HandshakeKey,
    ) -> Result<(), &'static str> {
        if hello.version.get() != VERSION {
            return Err("another version of the protocol");
        }
        if !secret.is_sealed(&hello) {
            return Err("did not prove the job secret");
        }
        if hello.to.get() != me.0 || hello.from.get() == me.0 {
            return Err("looks for somebody else");
        }
        let nonce = random().map_err(|_| "no randomness")?;
        let proof = secret.prove(Role::Acceptor, &hello, &nonce);
        let challenge = Challenge { magic: CHALLENGE_MAGIC, nonce, proof };
        say(self.socket.as_fd(), challenge.as_bytes()).map_err(|_| "left during the handshake")?;
        self.stage = Stage::Proof { hello, nonce };
        Ok(())
    }
}

/// Sends a handshake message. It always fits into the empty buffer of a fresh connection.
///
/// # Errors
/// The `errno` of `send`; `EMSGSIZE` should it ever not fit.
pub fn say(socket: rustix::fd::BorrowedFd<'_>, message: &[u8]) -> Result<(), Errno> {
    loop {
        match send(socket, message, crate::outbound::SEND) {
            Ok(sent) if sent == message.len() => return Ok(()),
            Ok(_) => return Err(Errno::MSGSIZE),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
