//! Where a process's detector runs: enough to ask the kernel, from another process of the same host, whether it is being kept
//! from its core.
//!
//! ```text
//!   host, 16 bytes | process u32 | start time u64        in the form of the system that published it
//! ```
//! A process that is silent because others have its core is alive; to end it for that would make a failure of a busy machine. It
//! is told apart from one that is stopped or stuck by the state of its detector's thread: that one sleeps most of the time, and
//! when it is due and stays *runnable* it waits for a core.

use std::fs;

/// The name of the detector's thread.
pub const THREAD: &str = "iw-detector";
/// Bytes of what is published.
pub const LENGTH: usize = 28;

/// A process, on its host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Home {
    host: [u8; 16],
    process: u32,
    /// In clock ticks since the host's start: tells it from a later process of the same number.
    started: u64,
}

impl Home {
    /// This process's; `None` where the kernel does not tell.
    pub fn here() -> Option<Home> {
        let process = std::process::id();
        Some(Home { host: host()?, process, started: started(process)? })
    }

    /// What to publish.
    pub fn encode(&self) -> [u8; LENGTH] {
        let mut blob = [0; LENGTH];
        blob[..16].copy_from_slice(&self.host);
        blob[16..20].copy_from_slice(&self.process.to_le_bytes());
        blob[20..].copy_from_slice(&self.started.to_le_bytes());
        blob
    }

    /// What another published.
    pub fn decode(blob: &[u8; LENGTH]) -> Home {
        let number = |from: usize, to: usize| {
            blob[from..to].iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let mut host = [0; 16];
        host.copy_from_slice(&blob[..16]);
        Home { host, process: number(16, 20) as u32, started: number(20, LENGTH) }
    }

    /// Whether that process is on this host and its detector waits for a core. `false` when that cannot be told.
    pub fn is_starved(&self) -> bool {
        if host() != Some(self.host) || started(self.process) != Some(self.started) {
            return false;
        }
        let Ok(threads) = fs::read_dir(format!("/proc/{}/task", self.process)) else {
            return false;
        };
        threads.flatten().any(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            parse(&stat).is_some_and(|(name, state, _)| name == THREAD && state == "R")
        })
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

/// When the process was started.
fn started(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    parse(&stat)?.2.parse().ok()
}

/// Name, state and start time in a line of `stat` (proc(5)); the name may hold anything.
fn parse(stat: &str) -> Option<(&str, &str, &str)> {
    let (_, rest) = stat.split_once('(')?;
    let (name, rest) = rest.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    Some((name, state, fields.nth(18)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    #[test]
    fn what_is_published_is_read() {
        let home = Home::here().expect("a Linux host");
        assert_eq!(Home::decode(&home.encode()), home);
        assert_eq!(home.process, std::process::id());
    }

    #[test]
    fn names_may_hold_brackets_and_blanks() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(parse(stat), Some(("a) b (c", "S", "4711")));
        assert_eq!(parse("7 (a) S 1 2"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn only_a_runnable_detector_of_that_very_process_is_starved() {
        let home = Home::here().expect("a Linux host");
        assert!(!home.is_starved(), "nobody here has a detector");
        static BUSY: AtomicBool = AtomicBool::new(true);
        let detector = std::thread::Builder::new().name(THREAD.into()).spawn(|| {
            while BUSY.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            std::thread::sleep(Duration::from_secs(3600));
        });
        detector.expect("a thread");
        let until = Instant::now() + Duration::from_secs(20);
        let becomes = |starved: bool| {
            while home.is_starved() != starved {
                assert!(Instant::now() < until, "never {starved}");
            }
        };
        becomes(true);
        assert!(!Home { started: home.started + 1, ..home }.is_starved(), "an earlier process");
        assert!(!Home { host: [0; 16], ..home }.is_starved(), "another host");
        BUSY.store(false, Ordering::Relaxed);
        becomes(false);
    }
}
