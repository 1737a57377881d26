//! Whether another host's daemon still does its work. Its system may answer TCP for ever while the daemon itself is stopped or
//! hung, so it is asked, and counts as lost when it has been silent for too long. Pure.
//!
//! Silence is what the launcher listened to: time in which it did not run itself (stopped from the
//! keyboard together with the job, starved) does not count.

use std::time::{Duration, Instant};

/// The silence of one daemon.
#[derive(Debug)]
pub struct Pulse {
    patience: Duration,
    silent: Duration,
    last: Instant,
    ask_at: Instant,
}

/// What follows from the time that passed.
#[derive(Debug, PartialEq, Eq)]
pub enum Beat {
    /// Nothing.
    Calm,
    /// Ask it.
    Ask,
    /// It is lost.
    Lost,
}

impl Pulse {
    /// A daemon that was just heard; lost after `patience` without a word.
    pub fn new(patience: Duration, now: Instant) -> Pulse {
        let mut pulse = Pulse { patience, silent: Duration::ZERO, last: now, ask_at: now };
        pulse.ask_at += pulse.interval();
        pulse
    }

    fn interval(&self) -> Duration {
        self.patience / 8
    }

    /// It said something.
    pub fn heard(&mut self, now: Instant) {
        self.silent = Duration::ZERO;
        self.last = now;
    }

    /// When [`tick`](Self::tick) wants to be called.
    pub fn deadline(&self) -> Instant {
        self.ask_at
    }

    /// Time has passed, and what had arrived was heard.
    pub fn tick(&mut self, now: Instant) -> Beat {
        if now < self.ask_at {
            return Beat::Calm;
        }
        self.silent += now.saturating_duration_since(self.last).min(self.interval() * 2);
        self.last = now;
        self.ask_at = now + self.interval();
        if self.silent >= self.patience { Beat::Lost } else { Beat::Ask }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(8);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_silent_daemon_is_lost_after_the_patience_and_one_that_answers_never() {
        let start = Instant::now();
        let (mut silent, mut speaks) = (Pulse::new(PATIENCE, start), Pulse::new(PATIENCE, start));
        for second in 1..8 {
            assert_eq!(silent.tick(start + SECOND * second), Beat::Ask);
            assert_eq!(silent.tick(start + SECOND * second), Beat::Calm);
        }
        assert_eq!(silent.tick(start + SECOND * 8), Beat::Lost);
        for second in 1..100 {
            assert_eq!(speaks.tick(start + SECOND * second), Beat::Ask);
            speaks.heard(start + SECOND * second);
        }
    }

    #[test]
    fn the_launchers_own_sleep_does_not_count() {
        let start = Instant::now();
        let mut pulse = Pulse::new(PATIENCE, start);
        assert_eq!(pulse.tick(start + SECOND * 1000), Beat::Ask);
        pulse.heard(start + SECOND * 1000);
        assert_eq!(pulse.tick(start + SECOND * 2000), Beat::Ask);
    }
}
