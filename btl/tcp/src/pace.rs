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
/// Calls between looks at the clock, where calls follow fast on each other.
const STRIDE: u32 = 16;
/// Slower calls than this look at the clock each time.
const SLOW_CALL: Duration = Duration::from_nanos(200);

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
            stride: STRIDE,
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
        let per_call = (now - self.looked) / self.stride;
        self.looked = now;
        self.stride = if per_call > SLOW_CALL { 1 } else { STRIDE };
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
