//! How a thread waits that polls: for a while without a pause, then by offering its core to others between polls, and, where
//! somebody computes on that core, by sleeping shortly between them. Never by a system call that a sender would have to end.
//!
//! With more processes than cores the offer (`sched_yield`) is what an exchange costs, some 1.5 µs, whoever polls how: so it comes after
//! the first poll in vain. But a core that is offered to somebody who computes comes back with the system's next tick, 1 to
//! 10 ms later: nobody who only offers makes the system choose again. Who sleeps does, when he wakes up. Whether the other still
//! computes can only be seen by offering the core again, so that is done more and more rarely.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The slices of a core that a process asks for: when it wakes up, or is to end, it need not wait for the slice of another that
/// computes. A little longer than those of launcher and detector, who have the shortest there are (0.1 ms) and so come first.
/// Exchanges of more ranks than cores take as long with slices of 3 ms.
const SLICE: Duration = Duration::from_micros(120);
/// How long a thread sleeps between polls on a hogged core. Not less than the slice of who computes there: it would not be over
/// when the sleeper wakes up, and nobody would look again before the next tick.
const NAP: Duration = SLICE;
/// A core that was offered and came back later than this, and [`TURN`] for each process on a core, is in the hands of somebody who computes.
const LONG: Duration = Duration::from_millis(1);
/// What one of many that wait on a core may need of it once: to learn of a failure, to answer.
const TURN: Duration = Duration::from_micros(100);
/// How long the processes of a host may take to learn of a failure, one after the other: a core that comes back late then was with them.
const CROWD: Duration = Duration::from_millis(3);

/// Naps before a core that was found hogged is offered again, the first time: about as long as the offer may take.
const NAPS_MIN: u32 = 32;
/// Where it is found hogged again and again: about a second.
const NAPS_MAX: u32 = 8192;

/// Offers that were soon over before a core counts as free again: one may have gone to another who waits.
const CALM: u32 = 64;

/// What a thread knows about its core from earlier offers of one wait. Not from those of earlier waits: any tick may
/// find somebody else there for a moment, and naps in the waits that follow cost exchanges of more ranks than cores
/// more than offers in vain cost a rank beside one that computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Core {
    /// It comes back soon.
    #[default]
    Free,
    /// Somebody computes on it. It is offered again after `left` more naps; `naps` is what `left` began with, `calm` how many offers
    /// were soon over since.
    Hogged { left: u32, naps: u32, calm: u32 },
}

impl Core {
    /// After the core was offered, and was away for long or not.
    fn after(self, long: bool) -> Core {
        let hogged = |naps: u32| Core::Hogged { left: naps, naps, calm: 0 };
        match self {
            Core::Free if long => hogged(NAPS_MIN),
            Core::Free => Core::Free,
            Core::Hogged { naps, .. } if long => hogged((naps * 2).min(NAPS_MAX)),
            Core::Hogged { calm, .. } if calm >= CALM => Core::Free,
            Core::Hogged { left, naps, calm } => Core::Hogged { left, naps, calm: calm + 1 },
        }
    }

    /// Whether to sleep instead of offering the core, and what is known then.
    fn nap(self) -> Option<Core> {
        match self {
            Core::Hogged { left: left @ 1.., naps, calm } => {
                Some(Core::Hogged { left: left - 1, naps, calm })
            }
            Core::Hogged { .. } | Core::Free => None,
        }
    }
}

/// After how many microseconds a core was offered for long.
static LONG_HERE: AtomicU64 = AtomicU64::new(LONG.as_micros() as u64);

/// So many processes share so many cores.
pub(crate) fn share_among(processes: usize, cores: usize) {
    LONG_HERE.store(long_among(processes, cores).as_micros() as u64, Ordering::Relaxed);
}

fn long_among(processes: usize, cores: usize) -> Duration {
    LONG + TURN * processes.div_ceil(cores.max(1)) as u32
}

/// Until when others learn what this process has just learned, in microseconds.
static CROWDED_UNTIL: AtomicU64 = AtomicU64::new(0);

/// Everybody on this host is about to learn what this process has just learned, and needs a core for it.
pub(crate) fn expect_crowd() {
    let until = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default() + CROWD;
    CROWDED_UNTIL.store(until.as_micros() as u64, Ordering::Relaxed);
}

fn is_crowded(offered: Timespec) -> bool {
    let offered = Duration::try_from(offered).unwrap_or_default();
    (offered.as_micros() as u64) < CROWDED_UNTIL.load(Ordering::Relaxed)
}

/// Asks the system for short slices for this thread.
pub(crate) fn share_cores() {
    if let Err(error) = ironweave_ffi::system::prefer_short_slices(SLICE) {
        tracing::debug!(%error, "no short slices");
    }
}

/// Lets others have the core: what is known of it then.
fn offer(core: Core) -> Core {
    if let Some(known) = core.nap() {
        std::thread::sleep(NAP);
        return known;
    }
    // Whoever was away for long has missed a tick: mostly the coarse clock, which costs nothing, tells that there is nothing to measure.
    let (offered, tick) = (Instant::now(), clock_gettime(ClockId::MonotonicCoarse));
    std::thread::yield_now();
    let late = || offered.elapsed().as_micros() as u64 > LONG_HERE.load(Ordering::Relaxed);
    let long = clock_gettime(ClockId::MonotonicCoarse) != tick && late() && !is_crowded(tick);
    core.after(long)
}

/// The beginning of a wait on shared cores: offers the core a few times, for one message that is due.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    core: Core,
}

impl Turns {
    /// Offers for one message; what comes later is received the general way. Measured in turns, four ranks on two near cores, 8 bytes:
    /// 5.3 µs an exchange with this, 6.6 without; looks for 0.3 µs before each offer cost what it gains.
    const MOST: u32 = 4;

    /// After `times` looks in vain: offers the core, unless that is enough or somebody computes there. Whether it did.
    pub(crate) fn take(&mut self, times: u32) -> bool {
        let more = times <= Self::MOST && self.core == Core::Free;
        if more {
            self.core = offer(self.core);
        }
        more
    }
}

/// One wait.
pub struct Idle {
    spin: u32,
    polls: u32,
    core: Core,
    watchdog: Option<Duration>,
    since: Option<Instant>,
}

impl Idle {
    /// With so many polls before the core is offered, and after how long in vain to tell.
    pub fn new(spin: u32, watchdog: Option<Duration>) -> Idle {
        Idle { spin, polls: 0, core: Core::Free, watchdog, since: None }
    }

    /// The same, after `turns` in vain.
    pub(crate) fn after(turns: &mut Turns, spin: u32, watchdog: Option<Duration>) -> Idle {
        Idle { core: std::mem::take(&mut turns.core), ..Idle::new(spin, watchdog) }
    }

    /// Failures may have left more cores to those who live.
    pub fn suit(&mut self, spin: u32) {
        self.spin = spin;
    }

    /// Something happened.
    pub fn reset(&mut self) {
        self.polls = 0;
        self.core = Core::Free;
        self.since = None;
    }

    /// Another thread drives the engine: there is nothing to poll for, and it may be waiting for this very core.
    pub fn defer(&mut self) {
        const TRIES: u32 = 64;
        self.polls = self.polls.max(self.spin.saturating_sub(TRIES));
    }

    /// There are more threads than cores: whoever has something to do may be waiting for this very core.
    pub fn hurry(&mut self) {
        self.polls = self.polls.max(self.spin);
    }

    /// One poll was in vain. `true` once, when the watchdog's time is over.
    #[inline]
    pub fn pause(&mut self) -> bool {
        self.polls += 1;
        if self.polls < self.spin {
            return false;
        }
        self.give_way()
    }

    #[cold]
    fn give_way(&mut self) -> bool {
        self.polls = self.spin; // keep yielding
        self.core = offer(self.core);
        let Some(limit) = self.watchdog else { return false };
        let since = *self.since.get_or_insert_with(Instant::now);
        let over = since.elapsed() >= limit;
        if over {
            self.watchdog = None;
        }
        over
    }
}

/// The threads of a process that wait while another of them drives the engine.
#[derive(Debug, Default)]
pub struct Crowd {
    waiting: AtomicU32,
}

impl Crowd {
    /// Nobody.
    pub const fn new() -> Crowd {
        Crowd { waiting: AtomicU32::new(0) }
    }

    /// Whether they and the one who drives are more than `cores`.
    pub fn exceeds(&self, cores: u32) -> bool {
        self.waiting.load(Ordering::Relaxed) >= cores
    }

    /// A thread that has not met another at the engine yet.
    pub fn alone(&self) -> Place<'_> {
        Place { crowd: self, joined: false }
    }
}

/// A waiting thread's place in the [`Crowd`], which it leaves with the end of its wait.
#[derive(Debug)]
pub struct Place<'a> {
    crowd: &'a Crowd,
    joined: bool,
}

impl Place<'_> {
    /// Another thread was at the engine.
    pub fn join(&mut self) {
        if !std::mem::replace(&mut self.joined, true) {
            self.crowd.waiting.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.joined {
            self.crowd.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is known after offers that took long or not, and how many naps came before each.
    fn after(offers: impl IntoIterator<Item = bool>) -> (Core, Vec<u32>) {
        let (mut core, mut slept) = (Core::Free, Vec::new());
        for long in offers {
            let mut naps = 0;
            while let Some(known) = core.nap() {
                (core, naps) = (known, naps + 1);
            }
            slept.push(naps);
            core = core.after(long);
        }
        (core, slept)
    }

    #[test]
    fn a_crowd_is_of_those_who_met_somebody_and_still_wait() {
        let crowd = Crowd::new();
        let (mut first, mut second, third) = (crowd.alone(), crowd.alone(), crowd.alone());
        first.join();
        first.join();
        assert!(crowd.exceeds(1) && !crowd.exceeds(2));
        second.join();
        assert!(crowd.exceeds(2) && !crowd.exceeds(3));
        drop((first, third));
        assert!(crowd.exceeds(1) && !crowd.exceeds(2));
    }

    #[test]
    fn a_hogged_core_is_offered_more_and_more_rarely() {
        let (core, slept) = after([true; 20]);
        assert_eq!(slept[..4], [0, NAPS_MIN, 2 * NAPS_MIN, 4 * NAPS_MIN]);
        assert_eq!(core, Core::Hogged { left: NAPS_MAX, naps: NAPS_MAX, calm: 0 });
    }

    #[test]
    fn many_on_a_core_keep_it_for_longer_before_one_of_them_is_said_to_compute() {
        assert_eq!(long_among(2, 2), Duration::from_micros(1_100));
        assert_eq!(long_among(41, 2), Duration::from_micros(3_100));
        assert_eq!(long_among(8, 0), Duration::from_micros(1_800), "no cores known");
    }

    #[test]
    fn a_core_is_crowded_for_a_while_after_a_failure_was_learned() {
        let at = |after: Duration| {
            clock_gettime(ClockId::Monotonic) + Timespec::try_from(after).expect("short")
        };
        assert!(!is_crowded(at(Duration::ZERO)), "nobody has failed");
        expect_crowd();
        assert!(is_crowded(at(Duration::ZERO)));
        assert!(!is_crowded(at(CROWD + Duration::from_secs(1))));
    }

    #[test]
    fn a_core_that_comes_back_soon_again_and_again_is_free() {
        let soon = |times: u32| std::iter::repeat_n(false, times as usize);
        let (core, slept) = after([true].into_iter().chain(soon(CALM)).chain([true]));
        assert_eq!((slept[1], slept[2]), (NAPS_MIN, 0));
        assert_eq!(core, Core::Hogged { left: 2 * NAPS_MIN, naps: 2 * NAPS_MIN, calm: 0 });
        let (core, _) = after([true].into_iter().chain(soon(CALM + 1)));
        assert_eq!(core, Core::Free);
    }
}
