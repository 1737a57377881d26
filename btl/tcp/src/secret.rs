//! Proofs of the job secret: keyed hashes over both nonces and both names, compared in constant time.
//!
//! Each side proves under a role of its own, so a proof cannot be sent back to its maker; each proof covers a
//! fresh nonce of the other side, so an overheard handshake cannot be replayed (law 9). It keeps strangers out;
//! it does not encrypt or sign what follows.

use crate::wire::Hello;
use ironweave_btl::secret::JobKey;
use zerocopy::IntoBytes;

/// Which side proves.
#[derive(Clone, Copy)]
pub enum Role {
    /// Who connected.
    Initiator,
    /// Who accepted.
    Acceptor,
}

/// The secret, bound to the job.
#[derive(Clone)]
pub struct HandshakeKey(JobKey);

impl HandshakeKey {
    /// The key of `job`, which all its processes derive from the same `secret`.
    pub fn new(secret: &[u8; 32], job: &str) -> Self {
        HandshakeKey(JobKey::derive("ironweave tcp handshake v1", secret, job))
    }

    fn hash(&self, role: Role, hello: &Hello, nonce: &[u8; 32]) -> blake3::Hash {
        let role = match role {
            Role::Initiator => b"initiator",
            Role::Acceptor => b"acceptor\0",
        };
        // The hello has names, version, attempt and the initiator's nonce.
        self.0.hash(&[role, hello.as_bytes(), nonce])
    }

    fn seal_of(&self, hello: &Hello) -> blake3::Hash {
        self.0.hash(&[b"hello\0\0\0\0", Hello { seal: [0; 32], ..*hello }.as_bytes()])
    }

    /// `hello` with its seal.
    pub fn seal(&self, hello: Hello) -> Hello {
        Hello { seal: *self.seal_of(&hello).as_bytes(), ..hello }
    }

    /// Whether somebody who knows the secret once made `hello`, perhaps long ago.
    pub fn is_sealed(&self, hello: &Hello) -> bool {
        self.seal_of(hello) == hello.seal
    }

    /// What `role` has to show after `hello` was answered with `nonce`.
    pub fn prove(&self, role: Role, hello: &Hello, nonce: &[u8; 32]) -> [u8; 32] {
        *self.hash(role, hello, nonce).as_bytes()
    }

    /// Whether `proof` is that; takes the same time whatever it is.
    pub fn verify(&self, role: Role, hello: &Hello, nonce: &[u8; 32], proof: &[u8; 32]) -> bool {
        // `blake3::Hash` compares in constant time.
        self.hash(role, hello, nonce) == *proof
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{HELLO_MAGIC, VERSION};

    fn hello() -> Hello {
        Hello {
            magic: HELLO_MAGIC,
            version: VERSION.into(),
            reserved: 0.into(),
            from: 1.into(),
            to: 2.into(),
            reserved2: 0.into(),
            attempt: 9.into(),
            nonce: [3; 32],
            seal: [0; 32],
        }
    }

    #[test]
    fn a_seal_holds_for_one_hello_and_one_job() {
        let key = HandshakeKey::new(&[7; 32], "job");
        let sealed = key.seal(hello());
        assert!(key.is_sealed(&sealed));
        assert!(!key.is_sealed(&hello()));
        assert!(!key.is_sealed(&Hello { from: 5.into(), ..sealed }));
        assert!(!HandshakeKey::new(&[7; 32], "bob").is_sealed(&sealed));
    }

    #[test]
    fn everything_that_is_proved_matters() {
        let key = HandshakeKey::new(&[7; 32], "job");
        let proof = key.prove(Role::Initiator, &hello(), &[5; 32]);
        assert!(key.verify(Role::Initiator, &hello(), &[5; 32], &proof));
        assert!(!key.verify(Role::Acceptor, &hello(), &[5; 32], &proof), "role");
        assert!(!key.verify(Role::Initiator, &hello(), &[6; 32], &proof), "nonce");
        assert!(!key.verify(Role::Initiator, &Hello { to: 3.into(), ..hello() }, &[5; 32], &proof));
        let other = Hello { nonce: [4; 32], ..hello() };
        assert!(!key.verify(Role::Initiator, &other, &[5; 32], &proof), "the other nonce");
        for stranger in [HandshakeKey::new(&[8; 32], "job"), HandshakeKey::new(&[7; 32], "bob")] {
            assert!(!stranger.verify(Role::Initiator, &hello(), &[5; 32], &proof));
        }
    }
}
