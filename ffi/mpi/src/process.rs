//! The life of the library in this process (MPI 5.0, chapter 11), and the way to the engine.
//!
//! One thread at a time is inside ([`enter`]). Up to `MPI_THREAD_SERIALIZED` the user sees to that, and a flag only finds
//! calls from callbacks; with `MPI_THREAD_MULTIPLE` there is a lock, which waiting threads give up between polls.

use crate::error::{Fail, Result, fail};
use crate::{abi, comm, request};
use ironweave::raw::{Engine, Idle, Unfinished};
use ironweave_coll::{Call, Memory, Reduction};
use ironweave_core::CommHandle;
use ironweave_pml::ob1::{ReqId, Status};
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::io::Write;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Where the library is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Phase {
    /// Not initialized yet.
    Before,
    /// Running, for one thread at a time.
    Single,
    /// Running, for any thread at any time.
    Multiple,
    /// Finalized.
    After,
}

/// What is inside.
pub struct Inside {
    /// The engine.
    pub engine: Engine,
    /// Requests of the user's.
    pub requests: request::Requests,
    /// The buffer that the user attached for buffered sends.
    pub attached: Option<crate::attached::Attached>,
    /// Active requests that the engine does not move on by itself.
    pub chores: Vec<abi::MPI_Request>,
    /// A message that was looked at in vain: what a wait attends to first.
    pub awaited: Option<ReqId>,
}

impl Inside {
    /// Moves everything that can move. Returns how much happened.
    #[inline]
    pub fn progress(&mut self) -> usize {
        let events = self.engine.progress();
        if !self.chores.is_empty() {
            request::attend(self);
        }
        events
    }

    /// As [`progress`](Self::progress), in a wait.
    #[inline]
    fn step(&mut self, idle: &mut Idle) {
        if let Some(request) = self.awaited.take()
            && self.engine.attend(request)
        {
            return idle.reset();
        }
        self.engine.step(idle);
        if !self.chores.is_empty() {
            request::attend(self);
        }
    }
}

struct Process {
    phase: AtomicU8,
    /// What bars the way in without the lock: 0 is nothing. See [`bar`].
    gate: AtomicU8,
    lock: Mutex<()>,
    inside: UnsafeCell<Option<Inside>>,
}

// SAFETY: `inside` is reached through `Entered` only, one at a time: by the lock, or by the user's promise of thread levels below
// `MPI_THREAD_MULTIPLE` together with the flag.
unsafe impl Sync for Process {}

/// The bits of the gate: one look at all of them, where every call passes.
mod bar {
    /// The library does not run, or runs for several threads: [`Phase::Single`](super::Phase) is another phase.
    pub const CLOSED: u8 = 1;
    /// Somebody is inside (without the lock).
    pub const ENTERED: u8 = 2;
    /// A call panicked inside: nobody gets in any more.
    pub const POISONED: u8 = 4;
}

impl Process {
    /// Sets and clears bits of the gate. Not at one stroke: only who is alone inside, by the user's promise or by the lock, changes
    /// any.
    #[inline(always)]
    fn set_gate(&self, set: u8, clear: u8) {
        let bars = self.gate.load(Ordering::Relaxed);
        self.gate.store(bars & !clear | set, Ordering::Relaxed);
    }

    fn is_poisoned(&self) -> bool {
        self.gate.load(Ordering::Relaxed) & bar::POISONED != 0
    }

    fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
        let closed = if phase == Phase::Single { 0 } else { bar::CLOSED };
        let bars = self.gate.load(Ordering::Relaxed) & !bar::CLOSED;
        self.gate.store(bars | closed, Ordering::Release);
    }
}

static PROCESS: Process = Process {
    phase: AtomicU8::new(Phase::Before as u8),
    gate: AtomicU8::new(bar::CLOSED),
    lock: Mutex::new(()),
    inside: UnsafeCell::new(None),
};

thread_local! {
    /// With the lock: this thread holds it.
    static HOLDS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// The library's phase.
#[must_use]
pub fn phase() -> Phase {
    match PROCESS.phase.load(Ordering::Acquire) {
        0 => Phase::Before,
        1 => Phase::Single,
        2 => Phase::Multiple,
        _ => Phase::After,
    }
}

/// Whether calls can be made.
#[inline(always)]
#[must_use]
pub fn is_running() -> bool {
    let phase = PROCESS.phase.load(Ordering::Relaxed);
    phase == Phase::Single as u8 || phase == Phase::Multiple as u8
}

/// The right to use what is inside.
pub struct Entered {
    lock: Option<MutexGuard<'static, ()>>,
}

impl Deref for Entered {
    type Target = Inside;

    #[inline(always)]
    fn deref(&self) -> &Inside {
        // SAFETY: whoever has an `Entered` is alone inside, and while the library runs `inside` is there.
        unsafe { (*PROCESS.inside.get()).as_ref().unwrap_unchecked() }
    }
}

impl DerefMut for Entered {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Inside {
        // SAFETY: as in `deref`.
        unsafe { (*PROCESS.inside.get()).as_mut().unwrap_unchecked() }
    }
}

impl Entered {
    /// Goes out, in the fewest steps: nothing panicked, or this would not be called. Dropping does the same.
    #[inline(always)]
    pub fn leave(self) {
        if self.lock.is_none() {
            PROCESS.set_gate(0, bar::ENTERED);
            std::mem::forget(self);
        }
    }
}

impl Drop for Entered {
    #[inline(always)]
    fn drop(&mut self) {
        let poison = if std::thread::panicking() { bar::POISONED } else { 0 };
        match &self.lock {
            None => PROCESS.set_gate(poison, bar::ENTERED),
            Some(_) => {
                if poison != 0 {
                    PROCESS.set_gate(poison, 0);
                }
                HOLDS.set(false);
            }
        }
    }
}

/// Goes inside; with `MPI_THREAD_MULTIPLE`, waits until it is free.
///
/// # Errors
/// `MPI_ERR_OTHER` before initialization, after finalization, after a panic inside, and from callbacks that run inside.
#[inline(always)]
pub fn enter() -> Result<Entered> {
    match enter_now() {
        Some(entered) => Ok(entered),
        None => enter_rare(),
    }
}

/// Goes inside when nothing stands in the way: the library runs for one thread at a time, and nobody is inside. `None`: nothing
/// was done; [`enter`] tells why. No closure in between: what short calls do with it stays in registers.
#[inline(always)]
pub fn enter_now() -> Option<Entered> {
    if PROCESS.gate.load(Ordering::Acquire) != 0 {
        return None;
    }
    PROCESS.gate.store(bar::ENTERED, Ordering::Relaxed);
    Some(Entered { lock: None })
}

#[cold]
#[inline(never)]
fn enter_rare() -> Result<Entered> {
    check()?;
    if phase() == Phase::Multiple && !HOLDS.get() {
        let lock = PROCESS.lock.lock().unwrap_or_else(PoisonError::into_inner);
        HOLDS.set(true);
        return Ok(Entered { lock: Some(lock) });
    }
    Err(fail(abi::MPI_ERR_OTHER, "called from inside of another call, which this one must not be"))
}

/// Whether calls can be made, with the reason why not.
///
/// # Errors
/// As [`enter`].
pub fn check() -> Result<()> {
    let why = match phase() {
        Phase::Before => "called before MPI_Init",
        Phase::After => "called after MPI_Finalize",
        _ if PROCESS.is_poisoned() => "an earlier call panicked inside the library",
        _ => return Ok(()),
    };
    Err(fail(abi::MPI_ERR_OTHER, why))
}

/// Drives the engine until `done` has an answer.
///
/// # Errors
/// That of `done`; those of [`enter`]; `MPIX_ERR_PROC_FAILED` when this process was excluded by the others.
pub fn wait<R>(done: impl FnMut(&mut Inside) -> Option<Result<R>>) -> Result<R> {
    match phase() {
        Phase::Multiple => wait_shared(done),
        _ => wait_alone(done),
    }
}

fn excluded(inside: &Inside) -> Result<()> {
    if inside.engine.is_fenced() { Err(Fail::from(ironweave::Error::Fenced)) } else { Ok(()) }
}

/// Whether this process was excluded by the others. Not asked from inside.
#[must_use]
pub fn is_fenced() -> bool {
    enter().is_ok_and(|inside| inside.engine.is_fenced())
}

fn wait_alone<R>(mut done: impl FnMut(&mut Inside) -> Option<Result<R>>) -> Result<R> {
    let mut inside = enter()?;
    let mut idle = Idle::new(inside.engine.spin, inside.engine.watchdog());
    loop {
        if let Some(answer) = done(&mut inside) {
            return answer;
        }
        inside.step(&mut idle);
        excluded(&inside)?;
    }
}

fn wait_shared<R>(mut done: impl FnMut(&mut Inside) -> Option<Result<R>>) -> Result<R> {
    let (spin, watchdog) = {
        let inside = enter()?;
        (inside.engine.spin, inside.engine.watchdog())
    };
    let mut idle = Idle::new(spin, watchdog);
    loop {
        let events = match PROCESS.lock.try_lock() {
            Ok(lock) => {
                check()?;
                HOLDS.set(true);
                let mut inside = Entered { lock: Some(lock) };
                if let Some(answer) = done(&mut inside) {
                    return answer;
                }
                excluded(&inside)?;
                inside.progress()
            }
            Err(TryLockError::WouldBlock) => {
                idle.defer();
                0
            }
            Err(TryLockError::Poisoned(_)) => {
                check()?;
                0
            }
        };
        // Outside: whoever has news for itself to find must get in.
        match events {
            0 if idle.pause() => enter()?.engine.dump_to_stderr(),
            0 => {}
            _ => idle.reset(),
        }
    }
}

/// Drives the engine to the end of a request of the PML's that nobody else knows.
///
/// # Errors
/// Those of the request.
#[inline]
pub fn finish(request: ReqId, mut inside: Entered) -> Result<Status> {
    if inside.lock.is_none() && inside.chores.is_empty() {
        return match inside.engine.wait_for(request) {
            Ok(status) => Ok(*status),
            Err(error) => Err(error.into()),
        };
    }
    drop(inside);
    wait(|inside| {
        let ended = inside.engine.poll(request)?;
        Some(ended.map(|status| *status).map_err(Fail::from))
    })
}

/// Runs a collective operation to its end.
///
/// # Errors
/// Those of the operation; in [`Unfinished::GivenUp`], those of [`wait`], which was given up then: messages may still use the
/// operation's memory.
#[inline]
pub fn collect(
    mut inside: Entered,
    comm: CommHandle,
    call: &Call,
    memory: Memory,
    reduction: Option<&Reduction>,
) -> std::result::Result<(), Box<Unfinished>> {
    if inside.lock.is_none() && inside.chores.is_empty() {
        return inside.engine.collect(comm, call, &memory, reduction);
    }
    collect_shared(inside, comm, call, memory, reduction)
}

#[cold]
fn collect_shared(
    mut inside: Entered,
    comm: CommHandle,
    call: &Call,
    memory: Memory,
    reduction: Option<&Reduction>,
) -> std::result::Result<(), Box<Unfinished>> {
    inside.engine.listen();
    let begun = inside.engine.blocking_collective(comm, call, &memory, reduction, 0);
    let begun = begun.map_err(|error| Box::new(Unfinished::Over(error)))?;
    drop(inside);
    let Some(mut collective) = begun else { return Ok(()) };
    let ended = wait(|inside| {
        let clock = inside.engine.clock();
        collective.poll(&mut inside.engine, clock).map(Ok)
    });
    match ended {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Box::new(Unfinished::Over(error))),
        Err(_) => Err(Box::new(Unfinished::GivenUp)),
    }
}

/// Joins the job. Once in a process's life.
///
/// # Errors
/// `MPI_ERR_OTHER` when it was called before, or the job cannot be joined.
pub fn start(level: c_int) -> Result<()> {
    static STARTED: AtomicBool = AtomicBool::new(false);
    if STARTED.swap(true, Ordering::SeqCst) {
        return Err(fail(abi::MPI_ERR_OTHER, "the library was initialized before"));
    }
    let engine = Engine::start()?;
    if level == abi::MPI_THREAD_SINGLE {
        engine.assume_single_thread();
    }
    let inside = Inside {
        engine,
        requests: request::Requests::default(),
        attached: None,
        chores: Vec::new(),
        awaited: None,
    };
    comm::start(&inside.engine)?;
    let job = &inside.engine.job;
    if job.size() > 1 && job.params().text("rte_line_buffered") == "on" {
        print_by_lines();
    }
    // SAFETY: nobody is inside before the phase says so, and this is reached once.
    unsafe { *PROCESS.inside.get() = Some(inside) };
    let phase = if level == abi::MPI_THREAD_MULTIPLE { Phase::Multiple } else { Phase::Single };
    PROCESS.set_phase(phase);
    Ok(())
}

/// What is printed into a pipe to the launcher goes out at the end of each line, as on a terminal: a process that is killed takes
/// what its C library still keeps with it.
fn print_by_lines() {
    unsafe extern "C" {
        static stdout: *mut libc::FILE;
    }
    // SAFETY: all zeros is a `stat`; the stream is there as long as the process, and its buffer stays its own.
    unsafe {
        let mut file: libc::stat = std::mem::zeroed();
        if libc::fstat(libc::STDOUT_FILENO, &raw mut file) == 0
            && file.st_mode & libc::S_IFMT == libc::S_IFIFO
        {
            libc::setvbuf(stdout, std::ptr::null_mut(), libc::_IOLBF, 0);
        }
    }
}

/// Leaves the job.
///
/// # Errors
/// Those of the run-time environment.
pub fn stop() -> Result<()> {
    let mut inside = enter()?;
    PROCESS.set_phase(Phase::After);
    inside.engine.finalize()?;
    Ok(())
}

/// This process, for messages to people.
#[must_use]
pub fn describe() -> String {
    match comm::everyone() {
        Ok(world) => format!("rank {}", world.rank),
        Err(_) => format!("process {}", std::process::id()),
    }
}

/// Tells people something, who says it before. In one piece: what others say at the same time, or the launcher after it, does not
/// come in between.
pub fn tell(what: std::fmt::Arguments<'_>) {
    let line = format!("ironweave: {}: {what}\n", describe());
    // Nobody may be listening.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Ends the job with this code.
pub fn abort(code: c_int) -> ! {
    abort_all_or(code, |_| None)
}

/// Ends the processes of a communicator with this code, this process too; the others go on, as after any failure. Who is of no
/// communicator that is there ends the job.
pub fn abort_members(handle: abi::MPI_Comm, code: c_int) -> ! {
    let members = |inside: &Inside| {
        let there = comm::find(handle)?;
        let mut members: Vec<u32> = inside.engine.group(there.core).ok()?.iter().collect();
        if let Some(remote) = inside.engine.remote_group(there.core).ok()? {
            members.extend(remote.iter());
        }
        Some(members)
    };
    abort_all_or(code, members)
}

/// Ends this process, and no other, with this code.
pub fn abort_alone(code: c_int) -> ! {
    abort_all_or(code, |inside| Some(vec![inside.engine.job.rank()]))
}

fn abort_all_or(code: c_int, some: impl FnOnce(&Inside) -> Option<Vec<u32>>) -> ! {
    // Launchers and shells see the low byte only: an error must not look like success.
    let code = if code & 0xff == 0 && code != 0 { 1 } else { code };
    if is_running()
        && let Ok(mut inside) = enter()
        // Who was excluded is no part of the job any more, and ends alone.
        && !inside.engine.is_fenced()
    {
        match some(&inside).filter(|some| some.len() < inside.engine.job.size() as usize) {
            Some(some) => inside.engine.job.abort_ranks(code, &some),
            None => inside.engine.job.abort(code),
        }
    }
    std::process::exit(code)
}
