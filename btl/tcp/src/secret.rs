//! Proofs of the job secret: keyed hashes over both nonces and both names, compared in constant time.
//!
//! Each side proves under a role of its own, so a proof cannot be sent back to its maker; each proof covers a
//! fresh nonce of the other side, so an overheard handshake cannot be replayed (law 9). It keeps strangers out;
//! it does not encrypt or sign what follows.

use crate::wire::Hello;
use zerocopy::IntoBytes;

/// The secret, bound to the job. Never printed.
#[derive(Clone)]
pub struct JobKey([u8; 32]);

/// Which side proves.
#[derive(Clone, Copy)]
pub enum Role {
    /// Who connected.
    Initiator,
    /// Who accepted.
    Acceptor,
}

impl JobKey {
    /// The key of `job`, which all its processes derive from the same `secret`.
    pub fn new(secret: &[u8; 32], job: &str) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(secret);
        hasher.update(b"ironweave tcp handshake v1\0");
        hasher.update(job.as_bytes());
        JobKey(*hasher.finalize().as_bytes())
    }

    fn hash(&self, role: Role, hello: &Hello, nonce: &[u8; 32]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(match role {
            Role::Initiator => b"initiator",
            Role::Acceptor => b"acceptor\0",
        });
        hasher.update(hello.as_bytes()); // names, version, attempt and the initiator's nonce
        hasher.update(nonce);
        hasher.finalize()
    }

    fn seal_of(&self, hello: &Hello) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(b"hello\0\0\0\0");
        hasher.update(Hello { seal: [0; 32], ..*hello }.as_bytes());
        hasher.finalize()
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

/// 32 bytes nobody can guess.
///
/// # Errors
/// When the kernel has no randomness to give.
pub fn nonce() -> rustix::io::Result<[u8; 32]> {
    let mut nonce = [0; 32];
    let mut filled = 0;
    while filled < nonce.len() {
        match rustix::rand::getrandom(&mut nonce[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(nonce)
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
        let key = JobKey::new(&[7; 32], "job");
        let sealed = key.seal(hello());
        assert!(key.is_sealed(&sealed));
        assert!(!key.is_sealed(&hello()));
        assert!(!key.is_sealed(&Hello { from: 5.into(), ..sealed }));
        assert!(!JobKey::new(&[7; 32], "bob").is_sealed(&sealed));
    }

    #[test]
    fn everything_that_is_proved_matters() {
        let key = JobKey::new(&[7; 32], "job");
        let proof = key.prove(Role::Initiator, &hello(), &[5; 32]);
        assert!(key.verify(Role::Initiator, &hello(), &[5; 32], &proof));
        assert!(!key.verify(Role::Acceptor, &hello(), &[5; 32], &proof), "role");
        assert!(!key.verify(Role::Initiator, &hello(), &[6; 32], &proof), "nonce");
        assert!(!key.verify(Role::Initiator, &Hello { to: 3.into(), ..hello() }, &[5; 32], &proof));
        let other = Hello { nonce: [4; 32], ..hello() };
        assert!(!key.verify(Role::Initiator, &other, &[5; 32], &proof), "the other nonce");
        for stranger in [JobKey::new(&[8; 32], "job"), JobKey::new(&[7; 32], "bob")] {
            assert!(!stranger.verify(Role::Initiator, &hello(), &[5; 32], &proof));
        }
    }

    #[test]
    fn nonces_differ() {
        assert_ne!(nonce().expect("randomness"), nonce().expect("randomness"));
    }
}
