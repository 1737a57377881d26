//! The core-placement probe: how long one cache line takes from core to core, right now (`LOOPS.md`, "The probe").
//!
//! Two cores of a virtual machine are near or far, and that changes within seconds; figures of different kinds are never
//! compared. The probe binds its two threads itself and gives the caller's thread its binding back. It needs both cores for
//! about a millisecond and measures nonsense while something else holds them.

use rustix::io::Result;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

/// A hand-over below this many ns is near. Same-cache pairs were seen at 30–65 ns, others at 150–320 ns.
pub const NEAR_BELOW_NS: f64 = 110.0;

/// The ranks that do not probe give their cores away for this long.
pub const BUDGET_NS: u64 = 4_000_000;

const SAMPLES: usize = 64;
const TURNS: u32 = 64;

/// What the cores were during a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Near before and after.
    Near,
    /// Far before and after.
    Far,
    /// Not probed.
    Unknown,
}

impl Kind {
    /// The kind of a block by the hand-over before and after it; `None` if the cores changed in between.
    #[must_use]
    pub fn of(before: f64, after: f64) -> Option<Self> {
        let one = |ns: f64| match ns {
            ns if ns <= 0.0 => Self::Unknown,
            ns if ns < NEAR_BELOW_NS => Self::Near,
            _ => Self::Far,
        };
        (one(before) == one(after)).then(|| one(before))
    }

    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
            Self::Unknown => "unprobed",
        }
    }
}

/// One line, alone on its pair of cache lines.
#[repr(align(128))]
struct Baton(AtomicU32);

impl Baton {
    fn wait_for(&self, value: u32) {
        while self.0.load(Ordering::Acquire) != value {
            spin_loop();
        }
    }
}

/// The median one-way hand-over between cores `here` and `there`, in ns. Blocks for about a millisecond.
///
/// # Errors
/// If this process may not run on one of them.
pub fn hand_over(here: usize, there: usize) -> Result<f64> {
    let saved = sched_getaffinity(None)?;
    // Try the other core first, on this thread: the partner then cannot fail and leave us spinning.
    bind(there)?;
    bind(here)?;
    let baton = Baton(AtomicU32::new(0));
    let mut samples = thread::scope(|scope| {
        scope.spawn(|| {
            // Checked above; unbound it would still answer, only less exactly.
            let _ = bind(there);
            for turn in 0..SAMPLES as u32 * TURNS {
                baton.wait_for(2 * turn + 1);
                baton.0.store(2 * turn + 2, Ordering::Release);
            }
        });
        let mut turn = 0;
        let mut sample = || {
            let start = Instant::now();
            for _ in 0..TURNS {
                baton.0.store(2 * turn + 1, Ordering::Release);
                baton.wait_for(2 * turn + 2);
                turn += 1;
            }
            start.elapsed().as_nanos() as f64
        };
        (0..SAMPLES).map(|_| sample()).collect::<Vec<_>>()
    });
    sched_setaffinity(None, &saved)?;
    // The first sample holds the thread's start.
    samples.remove(0);
    samples.sort_by(f64::total_cmp);
    Ok(samples[samples.len() / 2] / (2.0 * f64::from(TURNS)))
}

/// The CPUs this thread may use, in order.
///
/// # Errors
/// If the kernel does not say.
pub fn allowed_cpus() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

fn bind(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
}

#[cfg(test)]
mod tests {
    use super::{Kind, allowed_cpus, hand_over};

    #[test]
    fn a_block_between_two_kinds_has_none() {
        assert_eq!(Kind::of(33.0, 40.0), Some(Kind::Near));
        assert_eq!(Kind::of(160.0, 210.0), Some(Kind::Far));
        assert_eq!(Kind::of(33.0, 160.0), None);
        assert_eq!(Kind::of(0.0, 0.0), Some(Kind::Unknown));
    }

    #[test]
    fn the_probe_measures_and_gives_the_binding_back() {
        let cpus = allowed_cpus().expect("the kernel tells our CPUs");
        if cpus.len() < 2 {
            println!("SKIP the_probe_measures_and_gives_the_binding_back: only one CPU");
            return;
        }
        let ns = hand_over(cpus[0], cpus[1]).expect("both CPUs are ours");
        assert!(ns > 0.0);
        assert_eq!(allowed_cpus().expect("the kernel tells our CPUs"), cpus);
    }
}
