//! What the processes of a job have and nobody else: keys that are derived from the job's secret, and numbers that cannot be
//! guessed. Handshakes prove with them that a peer belongs to the job (law 9); nothing is encrypted.

use rustix::rand::{GetRandomFlags, getrandom};

/// A key of a job for one purpose. Never printed.
#[derive(Clone)]
pub struct JobKey([u8; 32]);

impl JobKey {
    /// The key of `job` for `purpose` (a transport's handshake, say), which all its processes derive from the same
    /// `secret`. No purpose contains a zero byte.
    #[must_use]
    pub fn derive(purpose: &str, secret: &[u8; 32], job: &str) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(secret);
        hasher.update(purpose.as_bytes()).update(b"\0").update(job.as_bytes());
        JobKey(*hasher.finalize().as_bytes())
    }

    /// The keyed hash of all `parts` after each other, which only who has the key can make. All but the last are of
    /// lengths that both sides know beforehand. Comparing a [`blake3::Hash`] with 32 bytes takes the same time whatever
    /// they are.
    #[must_use]
    pub fn hash(&self, parts: &[&[u8]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in parts {
            hasher.update(part);
        }
        hasher.finalize()
    }
}

impl std::fmt::Debug for JobKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JobKey(…)")
    }
}

/// `N` bytes that nobody can guess.
///
/// # Errors
/// When the kernel has no randomness to give.
pub fn random<const N: usize>() -> rustix::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_depends_on_purpose_secret_job_and_every_part() {
        let key = JobKey::derive("greeting", &[7; 32], "job");
        let hash = key.hash(&[b"kind", b"body"]);
        assert_eq!(hash, JobKey::derive("greeting", &[7; 32], "job").hash(&[b"kind", b"body"]));
        for other in [
            JobKey::derive("handshake", &[7; 32], "job"),
            JobKey::derive("greeting", &[8; 32], "job"),
            JobKey::derive("greeting", &[7; 32], "bob"),
        ] {
            assert_ne!(hash, other.hash(&[b"kind", b"body"]));
        }
        assert_ne!(hash, key.hash(&[b"kind", b"bodY"]));
        assert_ne!(hash, key.hash(&[b"find", b"body"]));
        assert_ne!(hash, key.hash(&[b"kind"]));
        assert_eq!(format!("{key:?}"), "JobKey(…)");
    }

    #[test]
    fn no_two_are_the_same() {
        assert_ne!(random::<32>().unwrap(), random::<32>().unwrap());
        assert_eq!(random::<0>().unwrap(), []);
        assert!(random::<1000>().unwrap().iter().any(|&byte| byte != 0));
    }
}
