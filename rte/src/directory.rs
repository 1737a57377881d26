//! Asking the process manager while the job runs: where a rank is, what became of one that is silent, and who a foreign
//! launcher says is dead. A handle of its own, so that the detector's thread can ask while the program computes.
//!
//! Each question is one round trip to the process manager and blocks for as long; never for a peer.

use crate::error::{Result, RteError};
use crate::pmi::client::Client;
use crate::pmi::{mapping, text};
use crate::starved::Incarnation;
use rustix::process::Signal;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where Hydra lists the processes that died, as `0,3-5`.
const DEAD_KEY: &str = "PMI_dead_processes";
/// Asking our launcher for this key and a rank accuses the rank: it answers what became of it, and ends it if it should
/// be speaking. A key and not a command, so that any PMI-1 channel carries it, and a foreign launcher just has no such key.
pub(crate) const FATE_KEY: &str = "iw-fate-";
/// Asking our launcher for this key and a rank: whether the rank has finalized. Does nothing to it.
pub(crate) const LEFT_KEY: &str = "iw-left-";

/// Asking our launcher for this key and [`Look`]: whether that rank is kept from its core.
pub(crate) const STARVED_KEY: &str = "iw-starved-";
/// How long a rank's host may take to say so. Well within the time for which an accuser waits for a verdict.
const LOOK: Duration = Duration::from_millis(300);
/// Between two questions for its answer.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What is asked of the host of `rank`, in a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    pub rank: u32,
    pub process: Incarnation,
    /// Tells it from earlier ones of the same accuser.
    pub number: u32,
}

impl Look {
    fn key(self) -> String {
        let Look { rank, process: Incarnation { process, started }, number } = self;
        format!("{STARVED_KEY}{rank}-{process}-{started}-{number}")
    }

    pub(crate) fn parse(text: &str) -> Option<Look> {
        let mut words = text.split('-');
        let rank = words.next()?.parse().ok()?;
        let process = words.next()?.parse().ok()?;
        let started = words.next()?.parse().ok()?;
        let number = words.next()?.parse().ok()?;
        let look = Look { rank, process: Incarnation { process, started }, number };
        words.next().is_none().then_some(look)
    }
}

/// What is known of a [`Look`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The host has not answered yet.
    Asked,
    Starved,
    Not,
}

impl Seen {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Seen::Asked => "asked",
            Seen::Starved => "starved",
            Seen::Not => "not",
        }
    }
}

/// How keys travel: through a process manager, or nowhere in a job of one.
#[derive(Debug)]
pub(crate) enum Exchange {
    Pmi(Client),
    Alone(HashMap<String, Vec<u8>>),
}

/// What became of a rank that gives no sign of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It finalized: its silence is no failure.
    Left,
    /// It counts as failed for everybody, and is ended if it is not yet.
    Failed,
    /// The launcher cannot tell.
    Unknown,
}

impl Fate {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Fate::Left => "left",
            Fate::Failed => "failed",
            Fate::Unknown => "unknown",
        }
    }
}

/// A handle on the process manager; clones ask over the same connection, one at a time.
#[derive(Debug, Clone)]
pub struct Directory {
    exchange: Arc<Mutex<Exchange>>,
    size: u32,
    /// Whether our own launcher is at the other end.
    ours: bool,
    looks: Arc<AtomicU32>,
    /// Set by Hydra's signal that a process died; `None` under launchers that do not signal.
    signalled: Option<Arc<AtomicBool>>,
}

impl Directory {
    pub(crate) fn new(
        exchange: Exchange,
        size: u32,
        ours: bool,
        signalled: Option<Arc<AtomicBool>>,
    ) -> Directory {
        let (exchange, looks) = (Arc::new(Mutex::new(exchange)), Arc::default());
        Directory { exchange, size, ours, looks, signalled }
    }

    /// The connection, for one question and its answer.
    pub(crate) fn exchange(&self) -> MutexGuard<'_, Exchange> {
        // A question that panicked left the connection out of step; the next answer is garbled, which is an error.
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows `f` the descriptor of the connection, if there is one; it is the same for as long as the job runs.
    pub fn with_descriptor<R>(&self, f: impl FnOnce(Option<BorrowedFd<'_>>) -> R) -> R {
        match &*self.exchange() {
            Exchange::Pmi(client) => f(Some(client.as_fd())),
            Exchange::Alone(_) => f(None),
        }
    }

    /// What `rank` published under `key` before the fence; `None` if it did not, or died before.
    /// One round trip to the process manager, none to the rank.
    ///
    /// # Errors
    /// The process manager is gone, or the value is not one that was published.
    pub fn lookup(&self, rank: u32, key: &str) -> Result<Option<Vec<u8>>> {
        let mut exchange = self.exchange();
        let client = match &mut *exchange {
            Exchange::Alone(keys) => return Ok(keys.get(key).filter(|_| rank == 0).cloned()),
            Exchange::Pmi(client) => client,
        };
        let Some(piece) = client.get(&text::piece_key(rank, key, 0))? else { return Ok(None) };
        let garbled = || RteError::Protocol(format!("rank {rank}'s {key:?} is garbled"));
        let (count, mut value) = text::first(&piece).ok_or_else(garbled)?;
        for index in 1..count {
            // A rank that died between two of its puts published nothing.
            let Some(piece) = client.get(&text::piece_key(rank, key, index))? else {
                return Ok(None);
            };
            value.extend(text::decode(&piece).ok_or_else(garbled)?);
        }
        Ok(Some(value))
    }

    /// Accuses `rank` of silence. Our launcher ends it, even if it is stopped, unless it has finalized; it counts as failed
    /// for everybody from then on (law 4). Other launchers know nothing of that.
    ///
    /// # Errors
    /// The process manager is gone.
    pub fn accuse(&self, rank: u32) -> Result<Fate> {
        match &mut *self.exchange() {
            Exchange::Pmi(client) if self.ours => {
                let word = client.get(&format!("{FATE_KEY}{rank}"))?;
                let fates = [Fate::Left, Fate::Failed];
                let told = fates.into_iter().find(|fate| Some(fate.word()) == word.as_deref());
                Ok(told.unwrap_or(Fate::Unknown))
            }
            Exchange::Pmi(_) | Exchange::Alone(_) => Ok(Fate::Unknown),
        }
    }

    /// Whether `rank`, which said that it runs as `process`, is kept from its core, as our launcher's part on that rank's host sees it. `None`:
    /// nobody says, which takes a third of a second where it is because the host does not answer. Other launchers do not tell.
    ///
    /// # Errors
    /// The process manager is gone.
    pub fn is_starved(&self, rank: u32, process: Incarnation) -> Result<Option<bool>> {
        let number = self.looks.fetch_add(1, Ordering::Relaxed);
        let key = Look { rank, process, number }.key();
        let since = Instant::now();
        loop {
            let word = match &mut *self.exchange() {
                Exchange::Pmi(client) if self.ours => client.get(&key)?,
                Exchange::Pmi(_) | Exchange::Alone(_) => None,
            };
            let seen = [Seen::Asked, Seen::Starved, Seen::Not];
            match seen.into_iter().find(|seen| Some(seen.word()) == word.as_deref()) {
                Some(Seen::Asked) if since.elapsed() < LOOK => std::thread::sleep(LOOK_AGAIN),
                Some(Seen::Asked) | None => return Ok(None),
                Some(seen) => return Ok(Some(seen == Seen::Starved)),
            }
        }
    }

    /// Whether `rank` has finalized, as far as our launcher knows; other launchers do not tell.
    ///
    /// # Errors
    /// The process manager is gone.
    pub fn has_left(&self, rank: u32) -> Result<bool> {
        match &mut *self.exchange() {
            Exchange::Pmi(client) if self.ours => {
                Ok(client.get(&format!("{LEFT_KEY}{rank}"))?.as_deref() == Some(Fate::Left.word()))
            }
            Exchange::Pmi(_) | Exchange::Alone(_) => Ok(false),
        }
    }

    /// The ranks a foreign launcher says are dead, all of them each time, if it has said anything
    /// new since the last call; `None` otherwise, always so where there is a liveness page.
    ///
    /// One flag when there is no news, one round trip to the launcher when there is. Only Hydra
    /// tells (`PMI_dead_processes` after a SIGUSR1), and only with `-disable-auto-cleanup` does it
    /// let anybody live to hear it.
    ///
    /// # Errors
    /// The process manager is gone, or its list is garbled.
    pub fn told_dead(&self) -> Result<Option<Vec<u32>>> {
        let Some(signalled) = &self.signalled else { return Ok(None) };
        // One relaxed load for the usual answer; the swap only when there is something.
        if !signalled.load(Ordering::Relaxed) || !signalled.swap(false, Ordering::AcqRel) {
            return Ok(None);
        }
        let mut exchange = self.exchange();
        let Exchange::Pmi(client) = &mut *exchange else { return Ok(None) };
        let list = client.get(DEAD_KEY)?.unwrap_or_default();
        let garbled = || RteError::Protocol(format!("{DEAD_KEY} is garbled: {list:?}"));
        mapping::parse_ranks(&list, self.size).ok_or_else(garbled).map(Some)
    }

    /// Whether [`told_dead`](Self::told_dead) has news; asks nobody.
    #[must_use]
    pub fn has_told_of_death(&self) -> bool {
        self.signalled.as_ref().is_some_and(|signalled| signalled.load(Ordering::Relaxed))
    }

    /// Makes `wake` readable at its other end whenever a foreign launcher signals a death, for as long as the process runs.
    ///
    /// # Errors
    /// The system refuses another action for the signal.
    pub fn wake_on_death(&self, wake: &OwnedFd, woken: &OwnedFd) -> Result<()> {
        if self.signalled.is_some() {
            let system = |error| RteError::system("cannot listen to SIGUSR1", error);
            let (wake, woken) =
                (wake.try_clone().map_err(system)?, woken.try_clone().map_err(system)?);
            signal_hook::low_level::pipe::register(Signal::USR1.as_raw(), wake).map_err(system)?;
            // The handler stays for ever, and so must a reader of its pipe.
            std::mem::forget(woken);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_of_a_host_is_read() {
        let process = Incarnation { process: 4711, started: u64::MAX };
        let look = Look { rank: 3, process, number: u32::MAX };
        let key = look.key();
        let text = key.strip_prefix(STARVED_KEY).expect("the key begins so");
        assert_eq!(Look::parse(text), Some(look));
        for wrong in ["", "3", "3-1-2", "3-1-2-", "3-1-2-x", "3-1-2-4-5", "-3-1-2-4"] {
            assert_eq!(Look::parse(wrong), None, "{wrong}");
        }
    }
}
