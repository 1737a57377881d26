//! How long after a kill the processes of the host know it: `ironweave run -n 42 kill_latency`. Rank 0 kills rank 41, 40, … one after the other;
//! ranks 0 and 1 wait for the news in a blocked receive, and the slower one counts. Prints median, p99 and the worst in microseconds,
//! and how much passed until the system itself said that the process had ended (its pidfd was readable at rank 0). Both ranks, and who watches for that, measure
//! how fast the machine is at that moment, too (one of virtual cores may for a while be ten times as slow as it was): kills during which it had less than
//! half of the best pace are counted, and the worst of the others is told. So are kills during which others had the cores for 0.1 ms: the host of a virtual
//! machine, or a thread that works for somebody else (`kill_latency/others.rs`). Each kill that took more than a millisecond is told with who that was.
//! `kill_latency all` has every rank wait in a blocked receive, not only those two, and the slowest counts. `kill_latency busy` (or `all busy`) has as many
//! ranks as there are cores compute meanwhile, and these are not killed. `kill_latency apart` has only rank 0 wait,
//! on the first core, and the victims end on the others, as on a host with a core for each rank.

use ironweave::{ElementMut, Error as MpiError, World};
use ironweave_ffi::system::prefer_short_slices;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, getppid, kill_process, pidfd_open};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::Duration;

#[path = "kill_latency/others.rs"]
mod others;
use others::{Others, may_serve_the_job};

type Outcome = Result<(), Box<dyn Error>>;

/// A kill that takes longer to be known is told one by one, in nanoseconds: was it the system that took so long to end the process, the launcher to
/// see that, a rank to get a core, or had somebody else the cores?
const SLOW: u64 = 1_000_000;

/// Who had the cores for less while a kill was on is not told.
const TOLD: u64 = 20_000;

/// Who had them for less is not said to have been in the job's way.
const SHORT: u64 = 100_000;

/// How long the machine takes now for a few system calls, in nanoseconds. The least of some times, so that it counts nothing that others had the core for.
fn pace() -> u64 {
    let some = || {
        let start = now();
        for _ in 0..40 {
            std::hint::black_box(getppid());
        }
        now() - start
    };
    (0..5).map(|_| some()).min().unwrap_or_default()
}

/// Nanoseconds on the host's one clock.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn receive<T: ElementMut + Default + Copy>(world: &World, from: u32) -> Result<T, Box<dyn Error>> {
    receive_all::<T, 1>(world, from).map(|[value]| value)
}

fn receive_all<T: ElementMut + Default + Copy, const N: usize>(
    world: &World,
    from: u32,
) -> Result<[T; N], Box<dyn Error>> {
    let mut values = [T::default(); N];
    world.comm().recv(&mut values, from, 1)?;
    Ok(values)
}

/// When this process knows that `victim`, which sends nothing, is dead.
fn learned(world: &World, victim: u32) -> Result<u64, Box<dyn Error>> {
    match world.comm().recv(&mut [0_u8], victim, 2) {
        Err(MpiError::ProcFailed { .. }) => {
            let at = now();
            let _ = getppid(); // what a tracer sees of it
            Ok(at)
        }
        other => Err(format!("a receive that nobody sends to: {other:?}").into()),
    }
}

/// Learns of the end of each of `victims`, which are killed one after the other, and tells rank 0 when that was, and the pace then if that is asked for: others
/// may not know yet.
fn learn_all(world: &World, victims: impl Iterator<Item = u32>, measures: bool) -> Outcome {
    for victim in victims {
        let at = learned(world, victim)?;
        world.comm().send(&[at, if measures { pace() } else { 0 }], 0, 1)?;
    }
    Ok(())
}

/// When the system says that a process has ended, and the machine's pace as soon as that is `known` to the ranks, in whose way it would be before, from a
/// thread that does nothing else: on the victims' cores if they end `apart`.
fn ended(
    pid: Pid,
    apart: bool,
    known: Receiver<()>,
) -> Result<JoinHandle<[u64; 2]>, Box<dyn Error>> {
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let theirs = if apart { Some(sched_getaffinity(Some(pid))?) } else { None };
    Ok(std::thread::spawn(move || {
        let _ = prefer_short_slices(Duration::from_micros(100));
        // Interrupted, it comes a little early.
        let _ = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None);
        let at = now();
        let _ = known.recv(); // or nobody is to know it any more
        let _ = theirs.map(|cores| sched_setaffinity(None, &cores));
        [at, pace()]
    }))
}

/// Has the waiting rank the first core and all others the rest.
fn part(me: u32) -> Outcome {
    let ours = sched_getaffinity(None)?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| ours.is_set(core));
    let first = cores.next().ok_or("no core")?;
    let mut wanted = CpuSet::new();
    match me {
        0 => wanted.set(first),
        _ => cores.for_each(|core| wanted.set(core)),
    }
    if wanted.count() == 0 {
        return Err("two cores at least (--bind-to none)".into());
    }
    Ok(sched_setaffinity(None, &wanted)?)
}

fn main() -> Outcome {
    let how: Vec<String> = std::env::args().skip(1).collect();
    let [busy, apart, all] = ["busy", "apart", "all"].map(|word| how.iter().any(|is| is == word));
    if apart && all {
        return Err("apart, only rank 0 waits".into());
    }
    if apart {
        // Before there are threads, which have the same cores then.
        let rank = std::env::var("PMI_RANK")?.parse()?;
        part(rank)?;
    }
    let world = World::init()?;
    let (me, size) = (world.rank(), world.size());
    if size < 5 {
        return Err("five processes at least".into());
    }
    let cores = std::thread::available_parallelism()?.get() as u32;
    match me {
        0 => {
            kill_all(&world, Waiting { apart, all, busy })?;
            Ok(world.finalize()?)
        }
        1 if apart => {
            // Until all are gone, in no core's way.
            while world.comm().iprobe(0, 1)?.is_none() {
                std::thread::sleep(Duration::from_millis(50));
            }
            receive::<u8>(&world, 0)?;
            Ok(world.finalize()?)
        }
        1 => {
            learn_all(&world, (2 + cores..size).rev(), !all)?;
            Ok(world.finalize()?)
        }
        _ => {
            world.comm().send(&[getpid().as_raw_nonzero().get()], 0, 1)?;
            if busy && me < 2 + cores {
                loop {
                    std::hint::spin_loop(); // until the job is over
                }
            }
            if all {
                learn_all(
                    &world,
                    (2 + cores..size).rev().take_while(|&victim| victim > me),
                    false,
                )?;
                // Nobody sends that: until it is killed itself.
                receive::<u8>(&world, 0)?;
            }
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
    }
}

/// Who waits for the news.
#[derive(Clone, Copy)]
struct Waiting {
    apart: bool,
    all: bool,
    busy: bool,
}

fn kill_all(world: &World, Waiting { apart, all, busy }: Waiting) -> Outcome {
    let size = world.size();
    let cores = std::thread::available_parallelism()?.get() as u32;
    let pids: Result<Vec<i32>, _> = (2..size).map(|rank| receive::<i32>(world, rank)).collect();
    let pids = pids?;
    let pid = |rank: u32| Pid::from_raw(pids[rank as usize - 2]).ok_or("no process number");
    std::thread::sleep(Duration::from_millis(200));
    let (mut kills, mut ends) = (Vec::new(), Vec::new());
    for victim in (2 + cores..size).rev() {
        let strangers = Others::new()?;
        if let Some(why) = strangers.unknown().filter(|_| kills.is_empty()) {
            println!("what the host takes is not known: {why}");
        }
        let (known, knows) = std::sync::mpsc::channel();
        let end = ended(pid(victim)?, apart, knows)?;
        std::thread::sleep(Duration::from_millis(1)); // it waits by then
        let pace_before = pace();
        let before = strangers.until_now()?;
        let start = now();
        kill_process(pid(victim)?, Signal::KILL)?;
        let here = learned(world, victim)?;
        let pace_here = if all { 0 } else { pace() };
        let (mut last, mut pace_there, mut there) = (1, pace_here, here);
        let first = if busy { 2 + cores } else { 2 };
        let others = if all { first..victim } else { 0..0 };
        for rank in (1..if apart { 1 } else { 2 }).chain(others) {
            let [at, pace] = receive_all::<u64, 2>(world, rank)?;
            pace_there = pace_there.max(pace);
            if at > there || rank == 1 {
                (last, there) = (rank, at);
            }
        }
        known.send(())?;
        let [ended, pace_after] = end.join().map_err(|_| "the thread that watched panicked")?;
        let taken = strangers.between(&before, &strangers.until_now()?, TOLD);
        let after = |at: u64| at.saturating_sub(start);
        let took = after(here.max(there));
        if took > SLOW {
            let [ended, here, there] = [ended, here, there].map(|at| after(at) as f64 / 1e6);
            println!(
                "slow: rank {victim} ended after {ended:.2} ms, 0 knew it after {here:.2} ms, {last} after {there:.2} ms"
            );
            for (who, time) in &taken {
                println!("  meanwhile {:.2} ms for {who}", *time as f64 / 1e6);
            }
        }
        let pace = pace_before.max(pace_here).max(pace_there).max(pace_after);
        let alone = taken.iter().all(|(who, time)| *time < SHORT || may_serve_the_job(who));
        kills.push(Kill { took, pace, alone });
        ends.push(after(ended));
        std::thread::sleep(Duration::from_millis(20));
    }
    tell(&kills, ends);
    if apart {
        world.comm().send(&[0_u8], 1, 1)?;
    }
    for rank in 2..2 + cores {
        kill_process(pid(rank)?, Signal::KILL)?;
    }
    Ok(())
}

/// One kill: how long it took to be known, in nanoseconds, the machine's pace, and whether the job had the cores to itself.
struct Kill {
    took: u64,
    pace: u64,
    alone: bool,
}

fn tell(kills: &[Kill], mut ends: Vec<u64>) {
    let slow_from = 2 * kills.iter().map(|kill| kill.pace).min().unwrap_or_default();
    let mut took: Vec<u64> = kills.iter().map(|kill| kill.took).collect();
    let worst = |of: &dyn Fn(&Kill) -> bool| {
        let of: Vec<u64> = kills.iter().filter(|kill| of(kill)).map(|kill| kill.took).collect();
        (kills.len() - of.len(), of.into_iter().max().unwrap_or_default() as f64 / 1e3)
    };
    let (slow, worst_fast) = worst(&|kill| kill.pace < slow_from);
    let (shared, worst_alone) = worst(&|kill| kill.pace < slow_from && kill.alone);
    took.sort_unstable();
    ends.sort_unstable();
    let at = |of: &[u64], share: f64| of[((of.len() - 1) as f64 * share) as usize] as f64 / 1e3;
    println!(
        "kills={} median={:.0}us p99={:.0}us worst={:.0}us; ended: median={:.0}us worst={:.0}us; at a slow pace: {slow}, worst of the others={worst_fast:.0}us; or others had the cores: {shared}, worst of the rest={worst_alone:.0}us",
        kills.len(),
        at(&took, 0.5),
        at(&took, 0.99),
        at(&took, 1.0),
        at(&ends, 0.5),
        at(&ends, 1.0),
    );
}
