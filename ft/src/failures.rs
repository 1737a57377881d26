//! The list of failed processes, and the set of suspects.

use std::collections::BTreeSet;
use std::fmt;

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum How {
    /// Killed by this signal.
    Signal(i32),
    /// Ended with this exit code without finalizing.
    Exit(i32),
    /// Its host, or the daemon there, is lost.
    HostLost,
    /// No sign of life for the detector's timeout: stopped, hung, or cut off.
    Silent,
    /// Another process aborted it, with this code.
    Aborted(i32),
    /// It is gone; how is not known.
    Gone,
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            How::Signal(signal) => write!(f, "killed by signal {signal}"),
            How::Exit(code) => write!(f, "exited with code {code} without finalizing"),
            How::HostLost => write!(f, "its host was lost"),
            How::Silent => write!(f, "no sign of life"),
            How::Aborted(code) => write!(f, "aborted with code {code}"),
            How::Gone => write!(f, "gone"),
        }
    }
}

/// Who told.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// The launcher's waitpid, through the liveness page.
    Launcher,
    /// A transport with proof (a pidfd that fired).
    Transport,
    /// This process's own detector declared it.
    Detector,
    /// Another process told.
    Told,
    /// A foreign launcher's list (Hydra's `PMI_dead_processes`).
    ResourceManager,
}

/// One entry of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failed {
    /// The process, by its index in the job.
    pub process: u32,
    /// How it ended, as far as the first source knew.
    pub how: How,
    /// Who told first.
    pub source: Source,
}

/// Every process known to have failed, in the order in which this process learned of it.
///
/// ```
/// use ironweave_ft::{FailureList, How, Source};
/// let mut failures = FailureList::default();
/// assert!(failures.record(7, How::Signal(9), Source::Launcher));
/// assert!(!failures.record(7, How::Gone, Source::Transport)); // known already
/// assert_eq!(failures.since(0).map(|failed| failed.process).collect::<Vec<_>>(), [7]);
/// ```
#[derive(Debug, Default)]
pub struct FailureList {
    /// Only grows; never reordered.
    order: Vec<Failed>,
    known: BTreeSet<u32>,
    suspects: BTreeSet<u32>,
}

impl FailureList {
    /// Adds a failure; `false` when it was known already. A failed process is no suspect any more.
    pub fn record(&mut self, process: u32, how: How, source: Source) -> bool {
        self.suspects.remove(&process);
        let new = self.known.insert(process);
        if new {
            self.order.push(Failed { process, how, source });
        }
        new
    }

    /// Notes that a transport cannot reach `process` any more; `false` when that was noted, or it failed, before.
    pub fn suspect(&mut self, process: u32) -> bool {
        !self.known.contains(&process) && self.suspects.insert(process)
    }

    /// A suspect can be reached again.
    pub fn trust(&mut self, process: u32) {
        self.suspects.remove(&process);
    }

    /// Whether `process` is known to have failed.
    #[must_use]
    pub fn contains(&self, process: u32) -> bool {
        self.known.contains(&process)
    }

    /// How many failures are known: the position to remember for [`since`](Self::since).
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether no failure is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The failures learned after the first `position`.
    pub fn since(&self, position: usize) -> impl Iterator<Item = &Failed> {
        self.order.iter().skip(position)
    }

    /// Processes that a transport cannot reach but that are not known to have failed.
    pub fn suspects(&self) -> impl Iterator<Item = u32> {
        self.suspects.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the sources say, in whatever order and however often: the list never shrinks, never changes what
        /// was there, has each process once, and no failed process is a suspect.
        #[test]
        fn grows_and_never_changes(told in proptest::collection::vec((0u32..20, any::<bool>()), 0..80)) {
            let mut failures = FailureList::default();
            let mut before: Vec<Failed> = Vec::new();
            for (process, proof) in told {
                let was_known = failures.contains(process);
                if proof {
                    prop_assert_eq!(failures.record(process, How::Gone, Source::Transport), !was_known);
                } else {
                    failures.suspect(process);
                }
                let now: Vec<Failed> = failures.since(0).copied().collect();
                prop_assert_eq!(&now[..before.len()], &before[..]);
                prop_assert_eq!(now.len(), failures.len());
                prop_assert!(failures.suspects().all(|suspect| !failures.contains(suspect)));
                before = now;
            }
            let mut once: Vec<u32> = before.iter().map(|failed| failed.process).collect();
            once.sort_unstable();
            once.dedup();
            prop_assert_eq!(once.len(), before.len());
        }
    }

    #[test]
    fn since_gives_only_what_is_new() {
        let mut failures = FailureList::default();
        failures.record(3, How::Signal(9), Source::Launcher);
        let position = failures.len();
        failures.record(1, How::HostLost, Source::Launcher);
        assert_eq!(failures.since(position).map(|f| f.process).collect::<Vec<_>>(), [1]);
    }
}
