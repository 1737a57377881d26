//! Whether a process is kept from its core, seen from another process of its host.
//!
//! A process that is silent because others have its core is alive; to end it for that would make a failure of a busy machine. It
//! is told apart from one that is stopped or stuck by the state of its detector's thread: that one sleeps most of the time, and
//! when it is due and stays *runnable* it waits for a core.

use serde::{Deserialize, Serialize};
use std::fs;

/// The name of the detector's thread.
pub const DETECTOR_THREAD: &str = "iw-detector";

/// A process, as other processes of its host know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Incarnation {
    /// Its number.
    pub process: u32,
    /// When it was started, in clock ticks since the host's start: tells it from a later process of the same number.
    pub started: u64,
}

impl Incarnation {
    /// This process; `None` where the kernel does not tell.
    #[must_use]
    pub fn here() -> Option<Incarnation> {
        let process = std::process::id();
        Some(Incarnation { process, started: started(process)? })
    }

    /// Whether its detector waits for a core; or has one of its threads a core or waits for one, and there is no detector (yet): it gets to
    /// making one late, or has left, which others know. `false` when that cannot be told. Reads a few files of the kernel's.
    #[must_use]
    pub fn is_held_up(&self) -> bool {
        let threads = self.threads();
        let detector = threads.iter().find(|(name, _)| name == DETECTOR_THREAD);
        detector.map_or_else(|| threads.iter().any(|(_, runs)| *runs), |(_, runs)| *runs)
    }

    /// The names of its threads, and whether each has a core or waits for one; none when that cannot be told.
    fn threads(&self) -> Vec<(String, bool)> {
        if started(self.process) != Some(self.started) {
            return Vec::new();
        }
        let Ok(threads) = fs::read_dir(format!("/proc/{}/task", self.process)) else {
            return Vec::new();
        };
        let named = threads.flatten().filter_map(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).ok()?;
            parse(&stat).map(|(name, state, _)| (name.to_owned(), state == "R"))
        });
        named.collect()
    }
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
    fn names_may_hold_brackets_and_blanks() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(parse(stat), Some(("a) b (c", "S", "4711")));
        assert_eq!(parse("7 (a) S 1 2"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_runnable_detector_of_that_very_process_or_none_is_held_up() {
        let here = Incarnation::here().expect("a Linux host");
        assert!(here.is_held_up(), "nobody here has a detector, and this thread runs");
        static BUSY: AtomicBool = AtomicBool::new(true);
        let detector = std::thread::Builder::new().name(DETECTOR_THREAD.into()).spawn(|| {
            while BUSY.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            std::thread::sleep(Duration::from_secs(3600));
        });
        detector.expect("a thread");
        let until = Instant::now() + Duration::from_secs(20);
        let becomes = |held_up: bool| {
            while here.is_held_up() != held_up {
                assert!(Instant::now() < until, "never {held_up}");
            }
        };
        becomes(true);
        assert!(!Incarnation { started: here.started + 1, ..here }.is_held_up(), "an earlier one");
        BUSY.store(false, Ordering::Relaxed);
        // This thread runs, but who has a detector answers by it.
        becomes(false);
    }
}
