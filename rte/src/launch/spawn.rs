//! Starts one process of a job: its descriptors, its process group, its cores, and the promise that
//! it does not outlive who started it.
#![allow(unsafe_code)] // pre_exec: the parent-death signal can only be asked for by the child.

use rustix::process::{Pid, PidfdFlags, Signal, WaitIdOptions};
use rustix::thread::CpuSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crate::liveness::How;

/// What to start.
#[derive(Debug)]
pub struct Start<'a> {
    /// The program.
    pub program: &'a OsString,
    /// Its arguments.
    pub args: &'a [OsString],
    /// Its whole environment.
    pub env: &'a [(OsString, OsString)],
    /// The directory it starts in.
    pub directory: &'a OsString,
    /// Descriptors it inherits under their own numbers.
    pub inherits: &'a [BorrowedFd<'a>],
    /// The cores it is bound to.
    pub cpus: Option<CpuSet>,
    /// Whether it gets a pipe for input; /dev/null if not.
    pub input: bool,
}

/// A started process. It leads a process group of its own, is killed when this thread ends, and
/// keeps its process number, as a zombie, until [`reap`](Process::reap): a signal to its group
/// never hits a stranger.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pid: Pid,
    exit: OwnedFd,
}

/// Our ends of a process's standard streams.
#[derive(Debug)]
pub struct Streams {
    /// Its input, if it has one.
    pub input: Option<OwnedFd>,
    /// Its output.
    pub out: OwnedFd,
    /// Its errors.
    pub err: OwnedFd,
}

/// Starts a process; the streams returned are non-blocking.
///
/// # Errors
/// The system's: program not found, not executable, no more processes or descriptors.
pub fn start(start: &Start<'_>) -> io::Result<(Process, Streams)> {
    let (out, child_out) = io::pipe()?;
    let (err, child_err) = io::pipe()?;
    let (child_in, input) = match start.input {
        true => {
            let (child_in, input) = io::pipe()?;
            (Stdio::from(child_in), Some(OwnedFd::from(input)))
        }
        false => (Stdio::null(), None),
    };
    let streams = Streams { input, out: out.into(), err: err.into() };
    for fd in streams.input.iter().chain([&streams.out, &streams.err]) {
        rustix::io::ioctl_fionbio(fd, true)?;
    }
    let mut command = Command::new(start.program);
    command
        .args(start.args)
        .env_clear()
        .envs(start.env.iter().map(|(name, value)| (name, value)))
        .current_dir(start.directory)
        .process_group(0)
        .stdin(child_in)
        .stdout(child_out)
        .stderr(child_err);
    let inherits: Vec<_> = start.inherits.iter().map(AsRawFd::as_raw_fd).collect();
    let cpus = start.cpus;
    let parent = rustix::process::getpid();
    let before_exec = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if rustix::process::getppid() != Some(parent) {
            return Err(io::ErrorKind::BrokenPipe.into()); // the parent died before that took effect
        }
        for number in &inherits {
            // SAFETY: the descriptors are open here as they were in the parent when it forked, where
            // `Start` borrowed them until after the spawn.
            let fd = unsafe { BorrowedFd::borrow_raw(*number) };
            rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
        }
        if let Some(cpus) = &cpus {
            // A core taken away since (hotplug, cgroup) is no reason not to run.
            let _ = rustix::thread::sched_setaffinity(None, cpus);
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes plain system calls only: no allocation, no
    // lock, nothing that is not async-signal-safe.
    unsafe { command.pre_exec(before_exec) };
    let child = command.spawn()?;
    let pid = Pid::from_child(&child);
    let exit = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    Ok((Process { child, pid, exit }, streams))
}

impl Process {
    /// Its process number, which is its group's too.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// How it ended, if it has; does not reap it.
    pub fn ended(&self) -> Option<How> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let id = rustix::process::WaitId::PidFd(self.exit.as_fd());
        let status = rustix::process::waitid(id, options).ok()??;
        Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => How::Exit(code as u8),
            (None, signal) => How::Signal(signal.unwrap_or(0) as u8),
        })
    }

    /// Sends `signal` to its whole group; a group that is gone is no error.
    pub fn signal_group(&self, signal: Signal) {
        let _ = rustix::process::kill_process_group(self.pid, signal);
    }

    /// Gives its process number back. Call after it has ended and its group was killed.
    pub fn reap(&mut self) {
        let _ = self.child.wait();
    }
}

impl AsFd for Process {
    /// Readable once the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.exit.as_fd()
    }
}
