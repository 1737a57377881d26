//! One host of a job: starts its ranks, watches them, serves PMI to them, keeps the host's liveness
//! page, moves their input and output. The launcher runs one for its own host, a daemon one for its.
//!
//! Driven by an event loop: `register` what to wait for, `ready` for what happened, `apply` for the
//! head's orders; what the head should know is collected in `up`. Never blocks on a rank.
//! Order matters at a rank's end: all its PMI lines are read before its end is told (its finalize
//! may be the last of them), and its output is read to the last byte after.

use super::guard::Guard;
use super::messages::{CHUNK, Down, LaunchSpec, OUTPUT_WINDOW, Stream, Up};
use super::placement;
use super::pollset::{PollSet, Token};
use super::spawn::{self, Process, Start, Streams};
use crate::exit::{Ended, Stage};
use crate::job::{CORES_VARIABLE, LIVENESS_VARIABLE};
use crate::liveness::{FailedRank, How, LivenessWriter};
use crate::params::sources::MCA_VARIABLE;
use crate::pmi::server::{Request, Server};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Signal;
use rustix::thread::CpuSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long ranks have between the polite signal and the last one.
const POLITE: Duration = Duration::from_secs(2);
/// How often a rank's PMI socket is read in one turn: more than its buffer holds, so that all a dead
/// rank said is read, and few enough that one that never stops talking does not hold up the rest.
const PMI_READS: usize = 128;
/// How long after everything has ended a pipe without data may stay open: something that left its
/// process group holds it.
const DRAIN: Duration = Duration::from_millis(300);

/// One host's part of a job.
#[derive(Debug)]
pub struct Node {
    first_rank: u32,
    ranks: Vec<LocalRank>,
    page: Option<LivenessWriter>,
    guard: Option<Guard>,
    /// The cores this host's ranks share, and the ones each is bound to if any.
    cores: usize,
    bindings: Option<Vec<CpuSet>>,
    credit: usize,
    kill_at: Option<Instant>,
    drain: Drain,
    /// What the head should know, in order; the loop takes it.
    pub up: Vec<Up>,
}

#[derive(Debug)]
struct LocalRank {
    process: Option<Process>,
    stage: Stage,
    ended: bool,
    pmi: Option<Pmi>,
    outputs: [Option<OwnedFd>; 2],
    input: Option<OwnedFd>,
    unwritten: Vec<u8>,
    input_ends: bool,
}

#[derive(Debug)]
struct Pmi {
    socket: OwnedFd,
    server: Server,
}

/// How far the end of the job has come on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drain {
    Running,
    /// Every group is killed and reaped; the last output is read until then at least.
    Until(Instant),
    Done,
}

impl Default for Node {
    fn default() -> Node {
        Node::new()
    }
}

impl Node {
    /// A host that waits for its launch order.
    pub fn new() -> Node {
        Node {
            first_rank: 0,
            ranks: Vec::new(),
            page: None,
            guard: None,
            cores: 0,
            bindings: None,
            credit: OUTPUT_WINDOW,
            kill_at: None,
            drain: Drain::Running,
            up: Vec::new(),
        }
    }

    /// Adds what this host waits for.
    pub fn register<'a>(&'a self, set: &mut PollSet<'a>) {
        for (index, rank) in self.ranks.iter().enumerate() {
            if let Some(process) = rank.process.as_ref().filter(|_| !rank.ended) {
                set.readable(process, Token::Exit(index));
            }
            if let Some(pmi) = &rank.pmi {
                set.either(&pmi.socket, Token::Pmi(index), pmi.server.has_output());
            }
            for (which, output) in rank.outputs.iter().enumerate() {
                if let Some(output) = output.as_ref().filter(|_| self.credit > 0) {
                    set.readable(output, Token::Output(index, which));
                }
            }
            if let Some(input) = rank.input.as_ref().filter(|_| !rank.unwritten.is_empty()) {
                set.writable(input, Token::Input(index));
            }
        }
    }

    /// When [`tick`](Self::tick) wants to be called even if nothing happens.
    pub fn deadline(&self) -> Option<Instant> {
        let drain = match self.drain {
            Drain::Until(deadline) if self.credit > 0 => Some(deadline),
            _ => None,
        };
        [self.kill_at, drain].into_iter().flatten().min()
    }

    /// Something is ready.
    pub fn ready(&mut self, token: Token) {
        match token {
            Token::Exit(index) => self.check_exit(index),
            Token::Pmi(index) => self.pmi(index),
            Token::Output(index, which) => self.read_output(index, which),
            Token::Input(index) => self.write_input(index),
            _ => {}
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Instant) {
        if self.kill_at.is_some_and(|at| at <= now) {
            self.kill_at = None;
            self.signal_all(Signal::KILL);
        }
        if let Drain::Until(deadline) = self.drain {
            if deadline > now || self.credit == 0 {
                return;
            }
            for index in 0..self.ranks.len() {
                for which in 0..2 {
                    self.close_silent_output(index, which);
                }
            }
            if self.drain != Drain::Done {
                self.drain = Drain::Until(now + DRAIN);
            }
        }
    }

    /// Carries out an order of the head.
    pub fn apply(&mut self, order: Down) {
        match order {
            Down::Launch(spec) => self.launch(&spec),
            Down::GetReply { rank, value } => {
                if let Some(index) = self.index(rank) {
                    self.tell(index, |server| server.answer_get(value.as_deref()));
                }
            }
            Down::BarrierOut => {
                for index in 0..self.ranks.len() {
                    self.tell(index, Server::release);
                }
            }
            Down::Failed(failed) => self.publish(failed),
            Down::Stdin(data) => self.take_input(data),
            Down::StdinEnd => {
                if let Some(rank) = self.ranks.first_mut() {
                    rank.input_ends = true;
                }
                self.write_input(0);
            }
            Down::OutputTaken(bytes) => {
                self.credit = self.credit.saturating_add(bytes).min(OUTPUT_WINDOW);
            }
            Down::OutputClosed(stream) => {
                for index in 0..self.ranks.len() {
                    self.close_output(index, usize::from(stream == Stream::Err));
                }
            }
            Down::Signal(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    self.signal_all(signal);
                }
            }
            Down::Terminate => {
                self.signal_all(Signal::TERM);
                self.signal_all(Signal::CONT);
                self.kill_at = Some(Instant::now() + POLITE);
            }
            Down::Kill => self.signal_all(Signal::KILL),
            Down::Finish => self.finish(),
            Down::Shutdown => {}
        }
    }

    /// Ends everything at once: the head is gone.
    pub fn kill_and_reap(&mut self) {
        self.signal_all(Signal::KILL);
        self.reap_all();
    }

    fn launch(&mut self, spec: &LaunchSpec) {
        self.first_rank = spec.first_rank;
        let error = match self.prepare(spec) {
            Ok(()) => (0..spec.count).find_map(|index| self.start_rank(spec, index).err()),
            Err(error) => Some(error),
        };
        let Some((why, code)) = error else { return };
        self.up.push(Up::LaunchFailed { why, code });
        // Those that did not start have ended, for the head to count.
        for index in self.ranks.len() as u32..spec.count {
            self.up.push(Up::Ended { rank: spec.first_rank + index, how: How::Exit(code) });
        }
    }

    fn prepare(&mut self, spec: &LaunchSpec) -> Result<(), (String, u8)> {
        let directory = std::path::Path::new(&spec.directory);
        if !directory.is_dir() {
            let why =
                format!("host {}: no directory {} to start in", spec.host, directory.display());
            return Err((why, 1));
        }
        raise_descriptor_limit(u64::from(spec.count) * 6 + 64);
        let page = LivenessWriter::new(spec.size)
            .map_err(|error| (format!("host {}: {error}", spec.host), 1))?;
        self.page = Some(page);
        let cores = placement::cores();
        self.cores = cores.len();
        self.bindings = placement::bindings(&cores, spec.count, spec.bind);
        match Guard::start() {
            Ok(guard) => self.guard = Some(guard),
            Err(error) => {
                tracing::warn!(%error, "no guard: grandchildren may outlive the launcher")
            }
        }
        Ok(())
    }

    fn start_rank(&mut self, spec: &LaunchSpec, index: u32) -> Result<(), (String, u8)> {
        let rank = spec.first_rank + index;
        let (process, streams, socket) =
            self.spawn(spec, rank, index).map_err(|error| spawn_words(spec, &error))?;
        tracing::info!(rank, pid = %process.pid(), host = spec.host, "started");
        if let Some(guard) = &mut self.guard {
            guard.watch(process.pid());
        }
        let Streams { input, out, err } = streams;
        self.ranks.push(LocalRank {
            process: Some(process),
            stage: Stage::Plain,
            ended: false,
            pmi: Some(Pmi { socket, server: Server::new(rank, spec.size, &spec.job) }),
            outputs: [Some(out), Some(err)],
            input,
            unwritten: Vec::new(),
            input_ends: false,
        });
        Ok(())
    }

    fn spawn(
        &self,
        spec: &LaunchSpec,
        rank: u32,
        index: u32,
    ) -> io::Result<(Process, Streams, OwnedFd)> {
        let page = self.page.as_ref().ok_or_else(|| io::Error::other("no liveness page"))?;
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        let cpus = self.bindings.as_ref().and_then(|sets| sets.get(index as usize).copied());
        let env = rank_environment(spec, rank, self.cores, theirs.as_fd(), page.as_fd());
        let (process, streams) = spawn::start(&Start {
            program: &spec.program,
            args: &spec.args,
            env: &env,
            directory: &spec.directory,
            inherits: &[theirs.as_fd(), page.as_fd()],
            cpus,
            input: rank == 0,
        })?;
        Ok((process, streams, ours))
    }

    fn check_exit(&mut self, index: usize) {
        let ended = |rank: &LocalRank| rank.process.as_ref().and_then(Process::ended);
        let Some(how) = self.ranks.get(index).filter(|rank| !rank.ended).and_then(ended) else {
            return;
        };
        self.pmi(index);
        let rank_number = self.first_rank + index as u32;
        let rank = &mut self.ranks[index];
        rank.ended = true;
        rank.pmi = None;
        rank.input = None;
        let stage = rank.stage;
        if (Ended { stage, how }).is_failure()
            && let Some(process) = &rank.process
        {
            // The rank is dead to the job: so is what it started (law 4).
            process.signal_group(Signal::KILL);
        }
        if index == 0 && rank_number == 0 {
            self.up.push(Up::StdinClosed);
        }
        if stage != Stage::Finalized {
            // The head will say so too; those on this host need not wait for it.
            self.publish(FailedRank { rank: rank_number, how });
        }
        self.up.push(Up::Ended { rank: rank_number, how });
    }

    fn publish(&mut self, failed: FailedRank) {
        if let Some(page) = &mut self.page {
            page.publish(failed);
        }
    }

    fn pmi(&mut self, index: usize) {
        let first_rank = self.first_rank;
        let Some(rank) = self.ranks.get_mut(index) else { return };
        let Some(pmi) = &mut rank.pmi else { return };
        let mut requests = Vec::new();
        let mut buffer = [0u8; 4096];
        let mut open = true;
        for _ in 0..PMI_READS {
            match rustix::io::read(&pmi.socket, &mut buffer) {
                Ok(length) if length > 0 => pmi.server.feed(&buffer[..length], &mut requests),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Ok(_) | Err(_) => {
                    open = false;
                    break;
                }
            }
        }
        let open = flush(pmi) && open;
        for request in requests {
            match request {
                Request::Joined if rank.stage == Stage::Plain => rank.stage = Stage::Joined,
                Request::Finalized => rank.stage = Stage::Finalized,
                _ => {}
            }
            self.up.push(Up::Request { rank: first_rank + index as u32, request });
        }
        if !open {
            rank.pmi = None;
        }
    }

    /// Lets the server of a rank say something, and sends it.
    fn tell(&mut self, index: usize, say: impl FnOnce(&mut Server)) {
        let Some(rank) = self.ranks.get_mut(index) else { return };
        if let Some(pmi) = &mut rank.pmi {
            say(&mut pmi.server);
            if !flush(pmi) {
                rank.pmi = None;
            }
        }
    }

    fn read_output(&mut self, index: usize, which: usize) {
        let limit = CHUNK.min(self.credit);
        let Some(rank) = self.ranks.get_mut(index) else { return };
        let Some(fd) = &rank.outputs[which] else { return };
        if limit == 0 {
            return;
        }
        let mut data = vec![0u8; limit];
        match rustix::io::read(fd, &mut data) {
            Ok(0) => self.close_output(index, which),
            Ok(length) => {
                data.truncate(length);
                self.credit -= length;
                let stream = if which == 0 { Stream::Out } else { Stream::Err };
                self.up.push(Up::Output { rank: self.first_rank + index as u32, stream, data });
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.close_output(index, which),
        }
    }

    fn close_output(&mut self, index: usize, which: usize) {
        let rank = &mut self.ranks[index];
        rank.outputs[which] = None;
        if rank.outputs.iter().all(Option::is_none) {
            self.up.push(Up::OutputEnd { rank: self.first_rank + index as u32 });
            self.check_drained();
        }
    }

    fn check_drained(&mut self) {
        let silent = self.ranks.iter().all(|rank| rank.outputs.iter().all(Option::is_none));
        if silent && matches!(self.drain, Drain::Until(_)) {
            self.drain = Drain::Done;
            self.up.push(Up::Drained);
        }
    }

    /// Closes an output that has no data although everything has ended.
    fn close_silent_output(&mut self, index: usize, which: usize) {
        let Some(fd) = &self.ranks[index].outputs[which] else { return };
        let waiting = rustix::io::ioctl_fionread(fd).unwrap_or(0);
        if waiting == 0 {
            self.close_output(index, which);
        }
    }

    fn take_input(&mut self, data: Vec<u8>) {
        match self.ranks.first_mut().filter(|rank| rank.input.is_some()) {
            Some(rank) => {
                rank.unwritten.extend(data);
                self.write_input(0);
            }
            None => self.up.push(Up::StdinClosed),
        }
    }

    fn write_input(&mut self, index: usize) {
        let Some(rank) = self.ranks.get_mut(index) else { return };
        let Some(input) = &rank.input else { return };
        let had = !rank.unwritten.is_empty();
        while !rank.unwritten.is_empty() {
            match rustix::io::write(input, &rank.unwritten) {
                Ok(length) => drop(rank.unwritten.drain(..length)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    rank.unwritten.clear();
                    rank.input = None;
                    self.up.push(Up::StdinClosed);
                    return;
                }
            }
        }
        if rank.input_ends {
            rank.input = None;
        } else if had {
            self.up.push(Up::StdinTaken);
        }
    }

    fn finish(&mut self) {
        // Zombies still pin their numbers: nothing but the ranks' own groups is hit.
        self.signal_all(Signal::KILL);
        self.reap_all();
        self.kill_at = None;
        self.drain = Drain::Until(Instant::now() + DRAIN);
        self.check_drained();
    }

    fn reap_all(&mut self) {
        for rank in &mut self.ranks {
            if let Some(mut process) = rank.process.take() {
                if let Some(guard) = &mut self.guard {
                    guard.forget(process.pid());
                }
                process.reap();
            }
        }
    }

    fn signal_all(&self, signal: Signal) {
        for process in self.ranks.iter().filter_map(|rank| rank.process.as_ref()) {
            process.signal_group(signal);
        }
    }

    fn index(&self, rank: u32) -> Option<usize> {
        let index = rank.checked_sub(self.first_rank)? as usize;
        (index < self.ranks.len()).then_some(index)
    }
}

/// Sends what the server has to say; whether the connection is still there.
fn flush(pmi: &mut Pmi) -> bool {
    let out = pmi.server.output();
    while !out.is_empty() {
        match rustix::net::send(&pmi.socket, out, rustix::net::SendFlags::NOSIGNAL) {
            Ok(length) => drop(out.drain(..length)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return true,
            // The rank closed its end; what it said before is still to be read.
            Err(_) => {
                out.clear();
                return false;
            }
        }
    }
    true
}

/// A rank's environment: the job's, without another launcher's traces, with ours.
fn rank_environment(
    spec: &LaunchSpec,
    rank: u32,
    cores: usize,
    pmi: BorrowedFd<'_>,
    page: BorrowedFd<'_>,
) -> Vec<(OsString, OsString)> {
    let foreign = |name: &OsString| {
        let name = name.to_string_lossy();
        name.starts_with("PMI_") || name.starts_with("PMIX_")
    };
    let mut env: Vec<_> = spec.env.iter().filter(|(name, _)| !foreign(name)).cloned().collect();
    let own = [
        ("PMI_FD", pmi.as_raw_fd().to_string()),
        ("PMI_RANK", rank.to_string()),
        ("PMI_SIZE", spec.size.to_string()),
        (LIVENESS_VARIABLE, page.as_raw_fd().to_string()),
        (MCA_VARIABLE, spec.mca.clone()),
        (CORES_VARIABLE, cores.to_string()),
    ];
    env.retain(|(name, _)| own.iter().all(|(own, _)| name != own));
    env.extend(own.into_iter().map(|(name, value)| (name.into(), value.into())));
    env
}

fn spawn_words(spec: &LaunchSpec, error: &io::Error) -> (String, u8) {
    let (program, host) = (spec.program.to_string_lossy(), &spec.host);
    match error.kind() {
        io::ErrorKind::NotFound if program.contains('/') => {
            (format!("host {host}: there is no program {program}"), 127)
        }
        io::ErrorKind::NotFound => (format!("host {host}: no program {program} in PATH"), 127),
        io::ErrorKind::PermissionDenied => {
            (format!("host {host}: {program} is not a program that may be executed"), 126)
        }
        _ => (format!("host {host}: cannot start {program}: {error}"), 126),
    }
}

/// Raises the soft limit of open descriptors to `wanted`, as far as the hard one lets.
fn raise_descriptor_limit(wanted: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < wanted) {
        let raised = maximum.map_or(wanted, |maximum| maximum.min(wanted));
        let limit = Rlimit { current: Some(raised), maximum };
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, wanted, "cannot raise the limit of open descriptors");
        }
    }
}
