//! Lifelines: how the launcher learns of a process's end when that begins, not when it is over.
//!
//! Before a process can be waited for, the system takes its memory apart, which takes longer than everything else between a
//! kill and the news of it. So the detector's thread of each rank holds two words of the board's memory ([`Held`]), and the
//! system marks them at the beginning of the thread's end. The launcher waits for the words of all ranks.
//!
//! Two threads of it do, each on one half of the cores, each for one word of every rank: the system wakes a thread where it ran before, or
//! where the dying one runs, which is not interrupted there, so that a thread alone would now and then wait until that is over. Whichever comes
//! first tells.
//!
//! A thread that ends without giving its words back ends with its process: by a signal, an exit, or because the process
//! becomes another program. That the *other* threads of it have stopped, on which agreements by the board depend (`Plane::share_board`),
//! is seen to before anybody is told: the launcher sends SIGKILL, which from then on stands before each of
//! them, and then has all cores that run one take notice (`membarrier`): none returns to its program again. What is left of the process is
//! the system's work. Where ranks share cores, that work is sent from one core to another, since who waits there for the
//! news would wait until it is done, and has the last place wherever the system chooses; and both threads run for a moment on each of their cores every now and then: who offered
//! its core to one that computes would else get it back with the system's next tick, 4 ms later.
//!
//! The end is told by `waitpid` alone where this cannot work: the kernel has no `futex_waitv` (before 5.16), the rank is
//! not the process that the launcher started but a child of it, or has no detector (`ft_detector off`).

use crate::liveness::{FailedRank, How, LivenessWriter};
use ironweave_ffi::robust::{DIED, Held, Word};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpriority_process, pidfd_open, pidfd_send_signal,
    setpriority_process,
};
use rustix::thread::futex::{self, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::thread::{
    ClockId, CpuSet, MembarrierCommand, membarrier, sched_getaffinity, sched_setaffinity,
};
use rustix::time::{Timespec, clock_gettime};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Words that one thread can wait for, its own included.
const WORDS_MAX: usize = 128;
/// How often a thread lets others have its core while another is about to tell, before it does so itself.
const TURNS: u32 = 20;
/// After how long what is left of a process is sent to the other half of the cores. Who waits there shall have
/// learned, and gone on: with 50 µs the thread that does this drove one off its core 43 µs after it had got it back (seen in a trace).
const STAY: Duration = Duration::from_micros(150);
/// How often the system is made to choose anew who runs on each core, once an end was told, with [`STAY`] between. Of 160 kills among 8 ranks on two
/// cores, on which two more computed, 22 were known later than after 1 ms before that (4.1 ms at worst), and then 1 (1.35 ms).
const ROUNDS: u32 = 12;
/// How long after an end has begun the launcher leaves the cores to the ranks that are being told. What else it has to do then (pipes and sockets
/// that have ended, the process itself, what others ask it) took 0.08 to 0.34 ms of the core of one that did not know yet, in four or five parts
/// (traces of slow kills).
const ALONE: Duration = Duration::from_millis(1);

/// A rank's line of the shared memory. All zero at first.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Line {
    words: [Word; 2],
    /// The process of the thread that holds them, or did.
    process: AtomicU32,
}

/// What a rank holds while it belongs to its job.
#[derive(Clone, Copy, Debug)]
pub struct Lifeline(&'static Line);

impl Lifeline {
    /// Has this process take part in the launcher's barriers, which costs nothing while it has one thread, and some milliseconds
    /// later. `None` where the system does not know them.
    pub(crate) fn new(line: &'static Line) -> Option<Lifeline> {
        membarrier(MembarrierCommand::RegisterGlobalExpedited).ok().map(|()| Lifeline(line))
    }

    /// Holds it until what is returned is dropped, or this thread ends: that is the end of the process to all others.
    ///
    /// # Errors
    /// The system's.
    pub fn hold(self) -> io::Result<Held> {
        self.0.process.store(std::process::id(), Ordering::Relaxed);
        let held = Held::hold(&self.0.words)?;
        // Whoever watches waits for the words as they were.
        for word in &self.0.words {
            let _ = futex::wake(&word.0, futex::Flags::empty(), 1);
        }
        Ok(held)
    }
}

/// A rank whose lifeline is watched.
#[derive(Debug)]
struct Watched {
    rank: u32,
    /// What the launcher started, and its number.
    process: OwnedFd,
    pid: Pid,
    line: &'static Line,
    /// Somebody is about to tell.
    taken: AtomicBool,
    told: AtomicBool,
}

/// The cores that this process may use, in two halves; and whether there are fewer than ranks.
#[derive(Clone, Copy, Debug)]
struct Cores {
    halves: [CpuSet; 2],
    shared: bool,
}

impl Cores {
    fn of_this_process(ranks: usize) -> io::Result<Cores> {
        let all = sched_getaffinity(None)?;
        let count = all.count() as usize;
        let mut halves = [CpuSet::new(); 2];
        let cores = (0..CpuSet::MAX_CPU).filter(|&core| all.is_set(core));
        for (nth, core) in cores.enumerate() {
            halves[usize::from(nth >= count / 2)].set(core);
        }
        if count < 2 {
            halves = [all; 2];
        }
        Ok(Cores { halves, shared: ranks > count })
    }

    /// Has the system choose anew who runs on each core of a half, by running there itself. One core it has by waking up.
    fn rouse(&self, half: usize) {
        let half = &self.halves[half];
        if half.count() > 1 {
            for core in (0..CpuSet::MAX_CPU).filter(|&core| half.is_set(core)) {
                let mut there = CpuSet::new();
                there.set(core);
                let _ = sched_setaffinity(None, &there);
            }
            let _ = sched_setaffinity(None, half);
        }
    }
}

/// When an end was seen last.
#[derive(Debug)]
struct Seen {
    since: Instant,
    /// In nanoseconds after that, and one more; 0: never.
    at: AtomicU64,
}

impl Seen {
    fn never() -> Seen {
        Seen { since: Instant::now(), at: AtomicU64::new(0) }
    }

    fn now(&self) {
        self.at.store(self.since.elapsed().as_nanos() as u64 + 1, Ordering::Relaxed);
    }

    /// How long others should still be left alone at `now`.
    fn left(&self, now: Instant) -> Option<Duration> {
        let at = self.at.load(Ordering::Relaxed).checked_sub(1)?;
        let until = self.since + Duration::from_nanos(at) + ALONE;
        until.checked_duration_since(now).filter(|left| !left.is_zero())
    }
}

/// The launcher's threads that watch lifelines, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    watched: Vec<Arc<[Watched]>>,
    stop: Arc<AtomicU32>,
    seen: Arc<Seen>,
    threads: Vec<JoinHandle<()>>,
}

impl Watch {
    /// Watches the lifelines of these ranks, each with its process; what ends is told on `page`.
    ///
    /// # Errors
    /// The system's: a process is gone already, no thread is to be had.
    pub fn start(
        lines: &'static [Line],
        ranks: impl Iterator<Item = (u32, Pid)>,
        page: &Arc<Mutex<LivenessWriter>>,
    ) -> io::Result<Watch> {
        let mut all = Vec::new();
        for (rank, pid) in ranks {
            let Some(line) = lines.get(rank as usize) else { continue };
            let process = pidfd_open(pid, PidfdFlags::empty())?;
            let (taken, told) = (AtomicBool::new(false), AtomicBool::new(false));
            all.push(Watched { rank, process, pid, line, taken, told });
        }
        let cores = Cores::of_this_process(all.len())?;
        let seen = Arc::new(Seen::never());
        let (watched, stop) = (Vec::new(), Arc::default());
        let mut watch = Watch { watched, stop, seen, threads: Vec::new() };
        while !all.is_empty() {
            let some: Arc<[_]> = all.drain(..all.len().min(WORDS_MAX - 1)).collect();
            let remains = Arc::default();
            for half in 0..2 {
                let (stop, page) = (Arc::clone(&watch.stop), Arc::clone(page));
                let (watched, ends) = (Arc::clone(&some), Arc::clone(&watch.seen));
                let remains = Arc::clone(&remains);
                let watcher = Watcher { watched, half, cores, stop, ends, page, remains };
                let thread = std::thread::Builder::new().name("iw-lifelines".into());
                watch.threads.push(thread.spawn(move || watcher.run())?);
            }
            watch.watched.push(some);
        }
        Ok(watch)
    }

    /// Whether this rank's end was told from here.
    pub fn has_told_of(&self, rank: u32) -> bool {
        let of_rank = |one: &&Watched| one.rank == rank;
        let one = self.watched.iter().flat_map(|some| some.iter()).find(of_rank);
        one.is_some_and(|one| one.told.load(Ordering::Relaxed))
    }

    /// How long from `now` the launcher should leave the cores to who is being told of an end.
    pub fn wants_rest(&self, now: Instant) -> Option<Duration> {
        self.seen.left(now)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(1, Ordering::Release);
        let _ = futex::wake(&self.stop, futex::Flags::empty(), u32::MAX >> 1);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that watches lifelines panicked");
            }
        }
    }
}

/// What is left of a process, in the last place among those that the system may choose to run until this is dropped. Without the
/// privilege for that it stays there: its memory is free, and `waitpid` tells, when others leave it the time. In turns, 192 kills among 8
/// idle ranks on two cores: known by all after 0.36 ms (the median of runs), at worst 0.99, and so 0.27 and 0.86.
struct Remains {
    /// Its threads, and the place that each had.
    threads: Vec<(Pid, i32)>,
    /// The cores that it may use.
    cores: CpuSet,
    /// The half of them that it was sent to at first, while it is there, and since when.
    first: Option<(usize, Instant)>,
}

/// The last place.
const NICE_MAX: i32 = 19;

impl Remains {
    fn new(threads: impl Iterator<Item = Pid>, cores: CpuSet) -> Remains {
        let was = |thread| Some((thread, getpriority_process(Some(thread)).ok()?));
        let threads: Vec<_> = threads.filter_map(was).collect();
        for &(thread, _) in &threads {
            let _ = setpriority_process(Some(thread), NICE_MAX); // it may be gone
        }
        Remains { threads, cores, first: None }
    }

    /// Sends it to those of these cores that it may use.
    fn send_to(&self, half: &CpuSet) {
        let mut cores = CpuSet::new();
        let both = |&core: &usize| half.is_set(core) && self.cores.is_set(core);
        (0..CpuSet::MAX_CPU).filter(both).for_each(|core| cores.set(core));
        if cores.count() == 0 {
            return;
        }
        for &(thread, _) in &self.threads {
            let _ = sched_setaffinity(Some(thread), &cores); // it may be gone
        }
    }
}

impl Drop for Remains {
    fn drop(&mut self) {
        for &(thread, nice) in &self.threads {
            let _ = setpriority_process(Some(thread), nice);
        }
    }
}

/// One of the threads.
struct Watcher {
    watched: Arc<[Watched]>,
    /// Its words, and its cores.
    half: usize,
    cores: Cores,
    stop: Arc<AtomicU32>,
    ends: Arc<Seen>,
    page: Arc<Mutex<LivenessWriter>>,
    remains: Arc<Mutex<Vec<Remains>>>,
}

impl Watcher {
    fn run(self) {
        // It runs for a moment after each end, and then others wait for it.
        let _ = ironweave_ffi::system::prefer_short_slices(Duration::from_micros(100));
        let _ = sched_setaffinity(None, &self.cores.halves[self.half]);
        let mut words = Vec::with_capacity(self.watched.len() + 1);
        let mut seen = vec![false; self.watched.len()];
        let mut rounds = 0;
        loop {
            words.clear();
            words.push(expect(&self.stop, 0));
            for (one, seen) in self.watched.iter().zip(&mut seen) {
                let word = &one.line.words[self.half].0;
                let value = word.load(Ordering::Acquire);
                if value & DIED != 0 && !std::mem::replace(seen, true) {
                    self.ends.now();
                    let told = one.has_ended(&self.page);
                    if self.cores.shared {
                        rounds = ROUNDS;
                        if told && let Ok(all) = sched_getaffinity(Some(one.pid)) {
                            let mut left = Remains::new(one.threads(), all);
                            left.send_to(&self.cores.halves[self.half]);
                            left.first = Some((self.half, Instant::now()));
                            self.remains().push(left);
                        }
                    }
                }
                words.push(expect(word, value));
            }
            if self.stop.load(Ordering::Acquire) != 0 {
                return;
            }
            let until = (rounds > 0).then(|| after(STAY));
            // To wait for the words of all costs most of a round, on a core for which ranks wait: they are looked at after it.
            let of = if rounds > 0 { &words[..1] } else { &words[..] };
            match futex::waitv(of, WaitvFlags::empty(), until.as_ref(), ClockId::Monotonic) {
                Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
                Err(error) => {
                    return tracing::debug!(%error, "ends of processes are told by waitpid");
                }
            }
            if rounds > 0 {
                rounds -= 1;
                self.fetch_remains(rounds == 0);
                self.cores.rouse(self.half);
            }
        }
    }

    fn remains(&self) -> MutexGuard<'_, Vec<Remains>> {
        self.remains.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings to these cores what has been on the others for long enough, and with the `last` round leaves all of it to the system. Not the
    /// thread that sent it there does that: what is left would keep it from its core, and once had that core for 0.48 ms, while a rank waited (a trace).
    fn fetch_remains(&self, last: bool) {
        let mut remains = self.remains();
        for left in remains.iter_mut() {
            if let Some((half, since)) = left.first
                && half != self.half
                && since.elapsed() >= STAY
            {
                left.send_to(&self.cores.halves[self.half]);
                left.first = None;
            }
        }
        let done = if last { std::mem::take(&mut *remains) } else { Vec::new() };
        drop(remains);
        drop(done);
    }
}

fn expect(word: &AtomicU32, value: u32) -> Wait {
    let mut wait = Wait::new();
    wait.val = value.into();
    wait.uaddr = WaitPtr::new(word.as_ptr().cast());
    wait.flags = WaitFlags::SIZE_U32;
    wait
}

/// The time in a while.
fn after(while_: Duration) -> Timespec {
    clock_gettime(ClockId::Monotonic) + while_.try_into().expect("microseconds")
}

impl Watched {
    /// Sees to it that the process runs nothing of its program any more, and tells: whether it was this thread that did. Otherwise
    /// leaves it to `waitpid`.
    fn has_ended(&self, page: &Mutex<LivenessWriter>) -> bool {
        let holder = self.line.process.load(Ordering::Relaxed);
        if holder != self.pid.as_raw_nonzero().get().cast_unsigned() {
            return false; // a child of the rank's
        }
        if self.taken.swap(true, Ordering::Relaxed) {
            // Others wait for this core, too. Unless whoever tells was held up.
            for _ in 0..TURNS {
                std::thread::yield_now();
                if self.told.load(Ordering::Relaxed) {
                    return false;
                }
            }
        }
        // Gone altogether, or stopped for good: both are what is wanted.
        let signalled = pidfd_send_signal(&self.process, Signal::KILL);
        let stopped = matches!(signalled, Ok(()) | Err(Errno::SRCH));
        if !stopped || membarrier(MembarrierCommand::GlobalExpedited).is_err() {
            return false;
        }
        let mut page = page.lock().unwrap_or_else(PoisonError::into_inner);
        page.publish(FailedRank { rank: self.rank, how: How::Ending });
        drop(page);
        tracing::debug!(rank = self.rank, "its end has begun");
        !self.told.swap(true, Ordering::Relaxed)
    }

    /// What is left of the process. Its last thread is the one that takes the memory apart, and that may be any.
    fn threads(&self) -> impl Iterator<Item = Pid> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid.as_raw_nonzero()));
        let number = |task: std::fs::DirEntry| task.file_name().to_str()?.parse().ok();
        let all =
            tasks.into_iter().flatten().flatten().filter_map(number).filter_map(Pid::from_raw);
        // Where that is hidden, its first thread at least.
        std::iter::once(self.pid).chain(all.filter(|&thread| thread != self.pid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board;
    use crate::liveness::Liveness;
    use rustix::process::Pid;
    use std::os::fd::{AsFd, AsRawFd};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command};

    /// A host of three ranks, of which the test plays the detectors' threads: each holds the line of a process that sleeps.
    struct Host {
        lines: &'static [Line],
        page: Arc<Mutex<LivenessWriter>>,
        liveness: Liveness,
        processes: Vec<Child>,
    }

    impl Host {
        fn new() -> Host {
            let fd = board::make(3).unwrap();
            let lines = board::map(fd.as_fd(), 3).unwrap().lines;
            let page = LivenessWriter::new(3).unwrap();
            let liveness = Liveness::map(page.as_fd(), 3).unwrap();
            let sleeps = |_| Command::new("sleep").arg("1000").spawn().unwrap();
            let processes: Vec<_> = (0..3).map(sleeps).collect();
            for (line, process) in lines.iter().zip(&processes) {
                line.process.store(process.id(), Ordering::Relaxed);
            }
            Host { lines, page: Arc::new(Mutex::new(page)), liveness, processes }
        }

        fn watch(&self) -> Watch {
            let ranks = (0..).zip(self.processes.iter().map(Pid::from_child));
            Watch::start(self.lines, ranks, &self.page).unwrap()
        }

        /// A thread that holds a line and ends, with or without giving it back.
        fn holder(&self, rank: usize, end: fn(Held)) -> JoinHandle<()> {
            let line = &self.lines[rank];
            let process = line.process.load(Ordering::Relaxed);
            std::thread::spawn(move || {
                let held = Lifeline(line).hold().unwrap();
                line.process.store(process, Ordering::Relaxed);
                end(held);
            })
        }

        fn hold(&self, rank: usize, end: fn(Held)) {
            self.holder(rank, end).join().unwrap();
        }

        fn failed(&self, count: usize) -> Vec<FailedRank> {
            let since = Instant::now();
            while self.liveness.version() < count as u64
                && since.elapsed() < Duration::from_secs(20)
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.liveness.failed_since(&mut 0).collect()
        }
    }

    impl Drop for Host {
        fn drop(&mut self) {
            for process in &mut self.processes {
                let _ = process.kill();
                let _ = process.wait();
            }
        }
    }

    fn ending(rank: u32) -> FailedRank {
        FailedRank { rank, how: How::Ending }
    }

    #[test]
    fn who_lets_go_of_its_line_by_ending_is_stopped_and_told() {
        let mut host = Host::new();
        host.hold(1, std::mem::forget); // before anybody watches
        let watch = host.watch();
        assert_eq!(host.failed(1), [ending(1)]);
        assert_eq!(host.processes[1].wait().unwrap().signal(), Some(9));
        host.hold(2, std::mem::forget);
        assert_eq!(host.failed(2), [ending(1), ending(2)]);
        assert_eq!(host.processes[2].wait().unwrap().signal(), Some(9));
        drop(watch);
        assert!(host.processes[0].try_wait().unwrap().is_none(), "the third goes on");
    }

    #[test]
    fn who_gives_its_line_back_and_who_is_a_child_of_the_rank_is_left_to_waitpid() {
        let mut host = Host::new();
        let watch = host.watch();
        host.hold(0, drop);
        host.lines[1].process.store(std::process::id(), Ordering::Relaxed);
        host.hold(1, std::mem::forget);
        host.hold(2, std::mem::forget);
        assert_eq!(
            host.failed(1),
            [ending(2)],
            "and of the others nothing, though they were first"
        );
        drop(watch);
        assert_eq!(host.liveness.version(), 1);
        for rank in 0..2 {
            assert!(host.processes[rank].try_wait().unwrap().is_none(), "rank {rank} lives");
        }
    }

    #[test]
    fn who_is_held_up_while_it_tells_is_helped() {
        let host = Host::new();
        let watched = |taken| Watched {
            rank: 1,
            process: pidfd_open(Pid::from_child(&host.processes[1]), PidfdFlags::empty()).unwrap(),
            pid: Pid::from_child(&host.processes[1]),
            line: &host.lines[1],
            taken: AtomicBool::new(taken),
            told: AtomicBool::new(false),
        };
        assert!(watched(true).has_ended(&host.page));
        assert_eq!(host.failed(1), [ending(1)]);
        let told = watched(true);
        told.told.store(true, Ordering::Relaxed);
        assert!(!told.has_ended(&host.page), "nothing is left to do");
        assert!(watched(false).has_ended(&host.page));
    }

    #[test]
    fn what_is_left_of_a_process_is_sent_to_half_of_the_cores_where_ranks_share_them() {
        let host = Host::new();
        let cores = Cores::of_this_process(host.processes.len()).unwrap();
        let left = Pid::from_child(&host.processes[1]);
        let before = sched_getaffinity(Some(left)).unwrap();
        let watch = host.watch();
        host.hold(1, std::mem::forget);
        assert_eq!(host.failed(1), [ending(1)]);
        std::thread::sleep(Duration::from_millis(50));
        drop(watch);
        // Its number is its own until somebody waits for it.
        let is = sched_getaffinity(Some(left)).unwrap();
        assert!(if cores.shared { cores.halves.contains(&is) } else { is == before });
        let all = sched_getaffinity(None).unwrap();
        let of =
            |half: usize| (0..CpuSet::MAX_CPU).filter(move |&core| cores.halves[half].is_set(core));
        let mut both: Vec<_> = of(0).chain(of(1)).collect();
        both.dedup();
        assert!(both.iter().copied().eq((0..CpuSet::MAX_CPU).filter(|&core| all.is_set(core))));
    }

    #[test]
    fn what_is_left_of_a_process_is_fetched_by_the_other_thread_once() {
        let host = Host::new();
        let cores = Cores::of_this_process(host.processes.len()).unwrap();
        let remains: Arc<Mutex<Vec<Remains>>> = Arc::default();
        let [first, second] = [0, 1].map(|half| Watcher {
            watched: Arc::new([]),
            half,
            cores,
            stop: Arc::default(),
            ends: Arc::new(Seen::never()),
            page: Arc::clone(&host.page),
            remains: Arc::clone(&remains),
        });
        let pid = Pid::from_child(&host.processes[1]);
        let all = sched_getaffinity(Some(pid)).unwrap();
        let mut left = Remains::new(std::iter::once(pid), all);
        left.send_to(&cores.halves[0]);
        let since = Instant::now();
        left.first = Some((0, since));
        first.remains().push(left);
        let is = || sched_getaffinity(Some(pid)).unwrap();
        second.fetch_remains(false);
        assert!(is() == cores.halves[0] || since.elapsed() >= STAY, "too early");
        first.remains()[0].first = Some((0, since.checked_sub(STAY).unwrap()));
        first.fetch_remains(false);
        assert_eq!(is(), cores.halves[0], "it is there already");
        second.fetch_remains(false);
        assert_eq!(is(), cores.halves[1]);
        first.fetch_remains(false);
        assert_eq!(is(), cores.halves[1], "once");
        second.fetch_remains(true);
        assert!(first.remains().is_empty());
    }

    /// How often the threads of the calling process were driven off their cores, by what they are called.
    fn driven_off(name: &str) -> u64 {
        let count = |task: std::fs::DirEntry| {
            let status = std::fs::read_to_string(task.path().join("status")).ok()?;
            let line = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
            let count = line("nonvoluntary_ctxt_switches:")?.trim().parse::<u64>().ok()?;
            (line("Name:")?.trim() == name).then_some(count)
        };
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        tasks.filter_map(count).sum()
    }

    #[test]
    fn who_computes_on_a_core_is_driven_off_it_for_a_moment() {
        let all = sched_getaffinity(None).unwrap();
        let cores = Cores { halves: [all, CpuSet::new()], shared: true };
        let (stop, on) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for core in (0..CpuSet::MAX_CPU).filter(|&core| all.is_set(core)) {
                let mut there = CpuSet::new();
                there.set(core);
                let (stop, on) = (&stop, &on);
                let name = format!("computes-{core}");
                let thread = std::thread::Builder::new().name(name);
                let run = move || {
                    sched_setaffinity(None, &there).unwrap();
                    on.fetch_add(1, Ordering::Relaxed);
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                };
                thread.spawn_scoped(scope, run).unwrap();
            }
            while on.load(Ordering::Relaxed) < all.count() {
                std::thread::yield_now();
            }
            let names: Vec<_> = (0..CpuSet::MAX_CPU)
                .filter(|&core| all.is_set(core))
                .map(|core| format!("computes-{core}"))
                .collect();
            let before: Vec<_> = names.iter().map(|name| driven_off(name)).collect();
            for _ in 0..100 {
                cores.rouse(0);
            }
            let after: Vec<_> = names.iter().map(|name| driven_off(name)).collect();
            stop.store(true, Ordering::Relaxed);
            for ((name, before), after) in names.iter().zip(before).zip(after) {
                // Not each time: the system may have moved the caller there by itself.
                assert!(all.count() == 1 || after >= before + 20, "{name}: {before}, then {after}");
            }
        });
        assert_eq!(sched_getaffinity(None), Ok(all), "the calling thread may be anywhere again");
    }

    #[test]
    fn what_is_left_of_a_process_has_the_last_place_for_a_while() {
        let mut process = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_child(&process);
        let nice = || getpriority_process(Some(pid)).unwrap();
        let before = nice();
        let cores = sched_getaffinity(Some(pid)).unwrap();
        let last = Remains::new(std::iter::once(pid), cores);
        assert_eq!(nice(), NICE_MAX);
        drop(last);
        let after = nice();
        // Not everybody may take a process out of the last place.
        let may = setpriority_process(Some(pid), before).is_ok();
        assert_eq!(after, if may { before } else { NICE_MAX });
        process.kill().unwrap();
        process.wait().unwrap();
        drop(Remains::new(std::iter::once(pid), cores)); // gone: nothing happens
    }

    #[test]
    fn what_is_left_of_a_process_is_all_its_threads() {
        let host = Host::new();
        let pid = rustix::process::getpid();
        let own = Watched {
            rank: 0,
            process: pidfd_open(pid, PidfdFlags::empty()).unwrap(),
            pid,
            line: &host.lines[0],
            taken: AtomicBool::new(false),
            told: AtomicBool::new(false),
        };
        let (says, said) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            says.send(rustix::thread::gettid()).unwrap();
            let _ = ends.recv();
        });
        let other_id = said.recv().unwrap();
        let threads: Vec<_> = own.threads().collect();
        assert!(threads.contains(&pid) && threads.contains(&other_id), "{threads:?}");
        assert_eq!(threads.iter().filter(|&&thread| thread == pid).count(), 1);
        drop(end);
        other.join().unwrap();
    }

    #[test]
    fn the_launcher_rests_for_a_moment_after_an_end() {
        let host = Host::new();
        let watch = host.watch();
        assert_eq!(watch.wants_rest(Instant::now()), None);
        let before = Instant::now();
        host.hold(1, std::mem::forget);
        assert_eq!(host.failed(1), [ending(1)]);
        while !watch.has_told_of(1) {
            std::thread::yield_now();
        }
        assert!(!watch.has_told_of(0) && !watch.has_told_of(3));
        let left = watch.wants_rest(before).expect("it has just been told");
        assert!(left >= ALONE && left <= before.elapsed() + ALONE, "{left:?}");
        assert_eq!(watch.wants_rest(before + left), None);
    }

    #[test]
    fn a_page_tells_once() {
        let host = Host::new();
        let watch = host.watch();
        host.hold(1, std::mem::forget);
        host.failed(1);
        host.page.lock().unwrap().publish(FailedRank { rank: 1, how: How::Signal(9) });
        drop(watch);
        assert_eq!(host.failed(1), [ending(1)]);
    }

    /// The number of the descriptor of the board whose words the child counts in.
    const COUNTS: &str = "IW_TEST_COUNTS";

    #[test]
    #[ignore = "started by nothing_of_the_program_runs_when_its_end_is_told"]
    fn counts() {
        let number = std::env::var(COUNTS).unwrap().parse().unwrap();
        let fd = ironweave_ffi::fd::inherited(number).unwrap();
        let shared = board::map(fd.as_fd(), 1).unwrap();
        let _lifeline = Lifeline::new(&shared.lines[0]).expect("barriers");
        let board = shared.board;
        let count = |word: &AtomicU64| -> ! {
            loop {
                word.fetch_add(1, Ordering::Relaxed);
            }
        };
        std::thread::spawn(move || count(&board[0]));
        count(&board[8]);
    }

    #[test]
    fn nothing_of_the_program_runs_when_its_end_is_told() {
        for _ in 0..10 {
            let fd = board::make(1).unwrap();
            let shared = board::map(fd.as_fd(), 1).unwrap();
            rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::empty()).unwrap();
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--ignored", "--exact", "lifeline::tests::counts"])
                .env(COUNTS, fd.as_raw_fd().to_string())
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            let page = LivenessWriter::new(1).unwrap();
            let liveness = Liveness::map(page.as_fd(), 1).unwrap();
            let host = Host {
                lines: shared.lines,
                page: Arc::new(Mutex::new(page)),
                liveness,
                processes: vec![child],
            };
            let line = &shared.lines[0];
            line.process.store(host.processes[0].id(), Ordering::Relaxed);
            let counted = || [0, 8].map(|at| shared.board[at].load(Ordering::Relaxed));
            let since = Instant::now();
            while counted().contains(&0) {
                assert!(since.elapsed() < Duration::from_secs(20), "the child does not count");
                std::thread::yield_now();
            }
            let watch = host.watch();
            let holder = host.holder(0, std::mem::forget);
            while host.liveness.version() == 0 {
                assert!(since.elapsed() < Duration::from_secs(20), "nothing is told");
                std::hint::spin_loop();
            }
            let told = counted();
            holder.join().unwrap();
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(counted(), told, "it goes on");
            drop(watch);
        }
    }
}
