//! How often the kernel is asked: at every call while something is going on, and ever more rarely in silence.
//!
//! The interval grows to a sixteenth of the silence so far, and to [`REST`] at most: an awaited answer is found
//! late by at most six per cent of the time waited, and a rail that is not used costs its job about a nanosecond
//! a call.

use std::time::{Duration, Instant};

/// Fruitless polls before the clock is looked at: some 20 µs, more than a round trip.
const EAGER: u32 = 128;
/// Longest interval between polls.
const REST: Duration = Duration::from_micros(50);
/// The clock is looked at about this often in silence, in nanoseconds, guessed from the calls so far …
const LOOK: u32 = 1000;
/// … and at least every so many calls: more is lost when they become rare.
const STRIDE_MAX: u32 = 32;

/// The cadence of one rail.
#[derive(Debug)]
pub struct Pace {
    /// Calls until something is considered.
    countdown: u32,
    stride: u32,
    fruitless: u32,
    silent_since: Instant,
    looked: Instant,
    next: Instant,
}

impl Pace {
    /// In silence since `now`.
    pub fn new(now: Instant) -> Self {
        Pace {
            countdown: 1,
            stride: 1,
            fruitless: EAGER,
            silent_since: now,
            looked: now,
            next: now,
        }
    }

    /// Whether to poll in this call.
    #[inline]
    pub fn due(&mut self) -> bool {
        self.countdown -= 1;
        self.countdown == 0 && self.consider()
    }

    fn consider(&mut self) -> bool {
        if self.fruitless < EAGER {
            self.countdown = 1;
            return true;
        }
        let now = Instant::now();
        let per_call = (now - self.looked).as_nanos() / u128::from(self.stride);
        let per_call = u32::try_from(per_call).unwrap_or(u32::MAX).max(1);
        self.looked = now;
        self.stride = (LOOK / per_call).clamp(1, STRIDE_MAX);
        self.countdown = self.stride;
        now >= self.next
    }

    /// A poll found something, or something was sent: poll at each call for a while.
    #[inline]
    pub fn lively(&mut self) {
        self.fruitless = 0;
        self.countdown = 1;
    }

    /// A poll found nothing.
    pub fn fruitless(&mut self) {
        if self.fruitless < EAGER {
            self.countdown = 1;
            self.fruitless += 1;
            if self.fruitless == EAGER {
                self.silent_since = Instant::now();
            }
            return;
        }
        self.countdown = self.countdown.max(1);
        let now = Instant::now();
        self.next = now + ((now - self.silent_since) / 16).min(REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls until a poll is due.
    fn calls(pace: &mut Pace) -> u32 {
        (1..).find(|_| pace.due()).expect("it is due some time")
    }

    #[test]
    fn every_call_polls_while_something_is_going_on() {
        let mut pace = Pace::new(Instant::now());
        pace.lively();
        for _ in 0..EAGER {
            assert_eq!(calls(&mut pace), 1);
            pace.fruitless();
        }
    }

    #[test]
    fn silence_makes_polls_rare_but_they_never_end() {
        let mut pace = Pace::new(Instant::now() - Duration::from_secs(60));
        for _ in 0..10 {
            calls(&mut pace);
            pace.fruitless();
        }
        let start = Instant::now();
        calls(&mut pace);
        pace.fruitless();
        calls(&mut pace);
        assert!(start.elapsed() >= REST, "a minute of silence: the longest interval");
        pace.lively();
        assert_eq!(calls(&mut pace), 1);
    }

    #[test]
    fn rare_calls_all_look_at_the_clock() {
        let mut pace = Pace::new(Instant::now());
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(1));
            calls(&mut pace);
            pace.fruitless();
        }
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(1));
            assert_eq!(calls(&mut pace), 1, "longer than the longest interval since the last one");
            pace.fruitless();
        }
    }
}
