//! How long after a kill the processes of the host know it: `ironweave run -n 42 kill_latency`. A thread of rank 0 kills rank 41, 40, … one after the other;
//! ranks 0 and 1 wait for the news in a blocked receive, and the slower one counts. Prints median, p99 and the worst in microseconds,
//! and how much passed until the system itself said that the process had ended (its pidfd was readable there). Both ranks, and that thread, measure
//! how fast the machine is at that moment, too (one of virtual cores may for a while be ten times as slow as it was): kills during which it had less than
//! half of the best pace are counted, and the worst of the others is told. So are kills during which others had the cores for 0.1 ms: the host of a virtual
//! machine, or a thread that works for somebody else (`kill_latency/others.rs`). Each kill that took more than a millisecond is told with who that was.
//! `kill_latency all` has every rank wait in a blocked receive, not only those two, and the slowest counts. `kill_latency busy` (or `all busy`) has as many
//! ranks as there are cores compute meanwhile, and these are not killed. `kill_latency apart` has only rank 0 wait,
//! on the first core, and the victims end on the others, as on a host with a core for each rank.

#![allow(unsafe_code)] // words of memory that processes share

use ironweave::{ElementMut, Error as MpiError, World};
use ironweave_ffi::system::prefer_short_slices;
use memmap2::{MmapOptions, MmapRaw};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, getppid, kill_process, pidfd_open};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::fs::File;
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[path = "kill_latency/others.rs"]
mod others;
use others::{Others, may_serve_the_job};

type Outcome = Result<(), Box<dyn Error>>;

/// A kill that takes longer to be known is told one by one, in nanoseconds: was it the system that took so long to end the process, the launcher to
/// see that, a rank to get a core, or had somebody else the cores?
const SLOW: u64 = 1_000_000;

/// After how long the measurement gives up on a rank.
const TOO_LATE: u64 = 60_000_000_000;

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

fn receive_all<T: ElementMut + Default + Copy, const N: usize>(
    world: &World,
    from: u32,
) -> Result<[T; N], Box<dyn Error>> {
    let mut values = [T::default(); N];
    world.comm().recv(&mut values, from, 1)?;
    Ok(values)
}

/// Where ranks note when they knew what: memory that all share. A message to rank 0, or a system call, would take time of a core on which others wait to
/// learn the same.
struct Book {
    memory: MmapRaw,
    size: u32,
}

/// What a rank notes of a kill, in words: when it knew, and the pace then (0: not measured).
const NOTE: usize = 2;

impl Book {
    /// Rank 0's, and how the others find it.
    fn new(size: u32) -> Result<(Book, [i32; 2]), Box<dyn Error>> {
        let file = File::from(memfd_create("kill_latency", MemfdFlags::CLOEXEC)?);
        file.set_len(u64::from(size) * u64::from(size) * (NOTE * 8) as u64)?;
        let place = [getpid().as_raw_nonzero().get(), file.into_raw_fd()];
        Ok((Book::open(place, size)?, place))
    }

    fn open([pid, fd]: [i32; 2], size: u32) -> Result<Book, Box<dyn Error>> {
        let file = File::options().read(true).write(true).open(format!("/proc/{pid}/fd/{fd}"))?;
        let book = Book { memory: MmapOptions::new().map_raw(&file)?, size };
        // No page is to be found for it when time counts.
        for at in 0..book.memory.len() / 8 {
            let _ = book.word(at).compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        Ok(book)
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < self.memory.len() / 8, "a rank that is none");
        // SAFETY: in bounds (just seen) and aligned, as mappings are; it lives as long as `self`, and all use it by atomics alone.
        unsafe { AtomicU64::from_ptr(self.memory.as_mut_ptr().cast::<u64>().add(at)) }
    }

    fn place(&self, victim: u32, rank: u32) -> usize {
        (victim * self.size + rank) as usize * NOTE
    }

    fn note(&self, victim: u32, rank: u32, at: u64, pace: u64) {
        let place = self.place(victim, rank);
        self.word(place + 1).store(pace, Ordering::Relaxed);
        self.word(place).store(at, Ordering::Release);
    }

    /// `None`: it does not know yet.
    fn read(&self, victim: u32, rank: u32) -> Option<[u64; 2]> {
        let place = self.place(victim, rank);
        let at = self.word(place).load(Ordering::Acquire);
        (at != 0).then(|| [at, self.word(place + 1).load(Ordering::Relaxed)])
    }
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

/// Learns of the end of each of `victims`, which are killed one after the other, and notes when that was, and the pace then if that is asked for: others
/// may not know yet.
fn learn_all(
    world: &World,
    victims: impl Iterator<Item = u32>,
    measures: bool,
    book: &Book,
) -> Outcome {
    for victim in victims {
        let at = learned(world, victim)?;
        book.note(victim, world.rank(), at, if measures { pace() } else { 0 });
    }
    Ok(())
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
    let waiting = Waiting { apart, all, busy };
    let victims = (2 + cores..size).rev();
    if me == 0 {
        kill_all(&world, waiting, victims)?;
        return Ok(world.finalize()?);
    }
    world.comm().send(&[getpid().as_raw_nonzero().get()], 0, 1)?;
    let book = Book::open(receive_all(&world, 0)?, size)?;
    if me == 1 && apart {
        // Until all are gone, in no core's way.
        while world.comm().iprobe(0, 1)?.is_none() {
            std::thread::sleep(Duration::from_millis(50));
        }
    } else if me == 1 {
        learn_all(&world, victims, !all, &book)?;
    } else {
        if busy && me < 2 + cores {
            loop {
                std::hint::spin_loop(); // until the job is over
            }
        }
        if all {
            learn_all(&world, victims.take_while(|&victim| victim > me), false, &book)?;
            // Nobody sends that: until it is killed itself.
            receive_all::<u8, 1>(&world, 0)?;
        }
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    receive_all::<u8, 1>(&world, 0)?;
    Ok(world.finalize()?)
}

/// Who waits for the news.
#[derive(Clone, Copy)]
struct Waiting {
    apart: bool,
    all: bool,
    busy: bool,
}

impl Waiting {
    /// Those who do when `victim` is killed.
    fn ranks(self, victim: u32, cores: u32) -> impl Iterator<Item = u32> {
        let others = match (self.all, self.busy) {
            (false, _) => 0..0,
            (true, false) => 2..victim,
            (true, true) => 2 + cores..victim,
        };
        (0..if self.apart { 1 } else { 2 }).chain(others)
    }
}

/// Rank 0's part: it waits like the others, and a thread of it does the rest.
fn kill_all(
    world: &World,
    waiting: Waiting,
    victims: impl Iterator<Item = u32> + Clone + Send,
) -> Outcome {
    let size = world.size();
    let cores = std::thread::available_parallelism()?.get() as u32;
    let mut pids = vec![Pid::INIT; size as usize];
    for rank in 1..size {
        let [pid] = receive_all(world, rank)?;
        pids[rank as usize] = Pid::from_raw(pid).ok_or("no process number")?;
    }
    let (book, place) = Book::new(size)?;
    for rank in 1..size {
        world.comm().send(&place, rank, 1)?;
    }
    if let Some(why) = Others::new()?.unknown() {
        println!("what the host takes is not known: {why}");
    }
    std::thread::sleep(Duration::from_millis(200));
    std::thread::scope(|scope| -> Outcome {
        let (book, pids, killed) = (&book, &pids, victims.clone());
        let conduct = move || -> Outcome {
            let _ = prefer_short_slices(Duration::from_micros(100));
            let mut kills = Vec::new();
            for victim in killed {
                let of = waiting.ranks(victim, cores);
                kills.push(kill(pids[victim as usize], victim, of, waiting.apart, book)?);
                std::thread::sleep(Duration::from_millis(20));
            }
            tell(&kills);
            Ok(())
        };
        let conductor = scope.spawn(move || {
            if let Err(error) = conduct() {
                eprintln!("{error}");
                std::process::exit(1); // the ranks wait for kills that will not come
            }
        });
        learn_all(world, victims, !waiting.all, book)?;
        Ok(conductor.join().map_err(|_| "the thread that kills panicked")?)
    })?;
    world.comm().send(&[0_u8], 1, 1)?;
    for rank in 2..2 + cores {
        kill_process(pids[rank as usize], Signal::KILL)?;
    }
    Ok(())
}

/// One kill: how long it took to be known, and the system to end the process, in nanoseconds, the machine's pace, and whether the job had the cores to itself.
struct Kill {
    took: u64,
    ended: u64,
    pace: u64,
    alone: bool,
}

/// Kills a process when all ranks have begun to wait, from a thread that does nothing else, and waits until those ranks know: a rank that did it would have
/// to wait behind all others for the time that it had used for that. Measures the pace on the victims' cores if they end `apart`.
fn kill(
    pid: Pid,
    victim: u32,
    waiting: impl Iterator<Item = u32>,
    apart: bool,
    book: &Book,
) -> Result<Kill, Box<dyn Error>> {
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let (stay, theirs) = (sched_getaffinity(None)?, sched_getaffinity(Some(pid))?);
    let strangers = Others::new()?;
    std::thread::sleep(Duration::from_millis(1)); // they wait by then
    let mut slowest = pace();
    let before = strangers.until_now()?;
    let start = now();
    kill_process(pid, Signal::KILL)?;
    // Interrupted, it comes a little early.
    let _ = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None);
    let ended = now();
    let mut known = Vec::new();
    for rank in waiting {
        let [at, pace] = loop {
            if let Some(note) = book.read(victim, rank) {
                break note;
            }
            if now() - start > TOO_LATE {
                return Err(format!("rank {rank} does not know that {victim} is dead").into());
            }
            std::thread::sleep(Duration::from_micros(500)); // in nobody's way
        };
        slowest = slowest.max(pace);
        known.push((at, rank));
    }
    let taken = strangers.between(&before, &strangers.until_now()?, TOLD);
    if apart {
        sched_setaffinity(None, &theirs)?;
        slowest = slowest.max(pace());
        sched_setaffinity(None, &stay)?;
    }
    let after = |at: u64| at.saturating_sub(start);
    let (here, (there, last)) = (known[0].0, known.iter().max().copied().unwrap_or_default());
    let took = after(there);
    if took > SLOW {
        let [ended, here, there] = [ended, here, there].map(|at| after(at) as f64 / 1e6);
        println!(
            "slow: rank {victim} ended after {ended:.2} ms, 0 knew it after {here:.2} ms, {last} after {there:.2} ms"
        );
        for (who, time) in &taken {
            println!("  meanwhile {:.2} ms for {who}", *time as f64 / 1e6);
        }
    }
    let alone = taken.iter().all(|(who, time)| *time < SHORT || may_serve_the_job(who));
    Ok(Kill { took, ended: after(ended), pace: slowest, alone })
}

fn tell(kills: &[Kill]) {
    let slow_from = 2 * kills.iter().map(|kill| kill.pace).min().unwrap_or_default();
    let sorted = |of: &dyn Fn(&Kill) -> u64| {
        let mut times: Vec<u64> = kills.iter().map(of).collect();
        times.sort_unstable();
        times
    };
    let worst = |of: &dyn Fn(&Kill) -> bool| {
        let of: Vec<u64> = kills.iter().filter(|kill| of(kill)).map(|kill| kill.took).collect();
        (kills.len() - of.len(), of.into_iter().max().unwrap_or_default() as f64 / 1e3)
    };
    let (slow, worst_fast) = worst(&|kill| kill.pace < slow_from);
    let (shared, worst_alone) = worst(&|kill| kill.pace < slow_from && kill.alone);
    let (took, ends) = (sorted(&|kill| kill.took), sorted(&|kill| kill.ended));
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
