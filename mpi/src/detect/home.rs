//! Where a process's detector runs: enough to ask whether it is being kept from its core (`ironweave_rte::starved`): the kernel, from
//! another process of the same host, or the launcher, from one of another.
//!
//! ```text
//!   host, 16 bytes | process u32 | start time u64        in the form of the system that published it
//! ```

use ironweave_rte::Incarnation;
use std::fs;

/// Bytes of what is published.
pub const LENGTH: usize = 28;

/// A process, on its host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Home {
    pub host: [u8; 16],
    pub process: Incarnation,
}

impl Home {
    /// This process's; `None` where the kernel does not tell.
    pub fn here() -> Option<Home> {
        Some(Home { host: host()?, process: Incarnation::here()? })
    }

    /// What to publish.
    pub fn encode(&self) -> [u8; LENGTH] {
        let mut blob = [0; LENGTH];
        blob[..16].copy_from_slice(&self.host);
        blob[16..20].copy_from_slice(&self.process.process.to_le_bytes());
        blob[20..].copy_from_slice(&self.process.started.to_le_bytes());
        blob
    }

    /// What another published.
    pub fn decode(blob: &[u8; LENGTH]) -> Home {
        let number = |from: usize, to: usize| {
            blob[from..to].iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let mut host = [0; 16];
        host.copy_from_slice(&blob[..16]);
        let (process, started) = (number(16, 20) as u32, number(20, LENGTH));
        Home { host, process: Incarnation { process, started } }
    }

    /// Whether that process is on this host.
    pub fn is_here(&self) -> bool {
        host() == Some(self.host)
    }
}

/// The same for all processes that see each other's numbers, and for no others.
fn host() -> Option<[u8; 16]> {
    let boot = fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = rustix::fs::stat("/proc/self/ns/pid").ok()?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&boot);
    hasher.update(&namespace.st_dev.to_le_bytes()).update(&namespace.st_ino.to_le_bytes());
    hasher.finalize().as_bytes()[..16].try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_read() {
        let home = Home::here().expect("a Linux host");
        assert_eq!(Home::decode(&home.encode()), home);
        assert_eq!(home.process.process, std::process::id());
        assert!(home.is_here() && !Home { host: [0; 16], ..home }.is_here());
    }
}
