//! One host of a job: starts its ranks, watches them, serves PMI to them, keeps the host's liveness
//! page, moves their input and output. The launcher runs one for its own host, a daemon one for its.
//!
//! Driven by an event loop: `register` what to wait for, `ready` for what happened, `apply` for the
//! head's orders; what the head should know is collected in `up`. Never blocks on a rank.
//! Order matters at a rank's end: all its PMI lines are read before its end is told (its finalize
//! may be the last of them), and its output is read to the last byte after.

use super::guard::Guard;
use super::local_rank::LocalRank;
use super::messages::{Down, LaunchSpec, OUTPUT_WINDOW, Stream, Up};
use super::placement;
use super::pollset::{PollSet, Standing, Token};
use super::spawn::{self, Process, Start, Streams};
use crate::board;
use crate::job::{BOARD_VARIABLE, CORES_VARIABLE, LIVENESS_VARIABLE, SINGLE_COPY_VARIABLE};
use crate::lifeline::Watch;
use crate::liveness::{FailedRank, How, LivenessWriter};
use crate::params::sources::MCA_VARIABLE;
use crate::pmi::server::Server;
use ironweave_btl_shm::SingleCopy;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Signal;
use rustix::thread::CpuSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long ranks have between the polite signal and the last one.
const POLITE: Duration = Duration::from_secs(2);
/// How long after everything has ended a pipe without data may stay open: something that left its
/// process group holds it.
const DRAIN: Duration = Duration::from_millis(300);

/// One host's part of a job.
#[derive(Debug)]
pub struct Node {
    first_rank: u32,
    ranks: Vec<LocalRank>,
    page: Option<Arc<Mutex<LivenessWriter>>>,
    /// Of the ranks that have started.
    watch: Option<Watch>,
    rested: bool,
    standing: Option<Standing>,
    board: Option<OwnedFd>,
    guard: Option<Guard>,
    /// The cores this host's ranks share, and the ones each is bound to if any.
    cores: usize,
    bindings: Option<Vec<CpuSet>>,
    /// How long messages go between two of them, if that was tried.
    single_copy: Option<SingleCopy>,
    credit: usize,
    kill_at: Option<Instant>,
    drain: Drain,
    /// What the head should know, in order; the loop takes it.
    pub up: Vec<Up>,
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
            watch: None,
            rested: false,
            standing: None,
            board: None,
            guard: None,
            cores: 0,
            bindings: None,
            single_copy: None,
            credit: OUTPUT_WINDOW,
            kill_at: None,
            drain: Drain::Running,
            up: Vec::new(),
        }
    }

    /// Adds what this host waits for.
    ///
    /// # Errors
    /// The system's.
    pub fn register<'a>(&'a mut self, set: &mut PollSet<'a>) -> Result<(), Errno> {
        let Some(standing) = &mut self.standing else { return Ok(()) };
        for (index, rank) in self.ranks.iter().enumerate() {
            standing.want(index, rank.wanted(self.credit > 0))?;
        }
        set.readable(standing, Token::Ranks);
        Ok(())
    }

    /// When [`tick`](Self::tick) wants to be called even if nothing happens.
    pub fn deadline(&self) -> Option<Instant> {
        let drain = match self.drain {
            Drain::Until(deadline) if self.credit > 0 => Some(deadline),
            _ => None,
        };
        [self.kill_at, drain].into_iter().flatten().min()
    }

    /// Says what of this host's ranks is ready. While these are being told of an end the cores are theirs: leaves of what is ready only
    /// what they may be waiting for, and if that is nothing sleeps for the rest of that time. The others are ready when they are
    /// waited for again. Not twice in a row, however many end.
    pub fn look(&mut self, ready: &mut Vec<Token>) {
        if let Some(at) = ready.iter().position(|token| *token == Token::Ranks) {
            ready.swap_remove(at);
            ready.extend(self.standing.iter().flat_map(Standing::ready));
        }
        let rested = std::mem::take(&mut self.rested);
        let Some(watch) = &self.watch else { return };
        let Some(rest) = watch.wants_rest(Instant::now()) else { return };
        let is_asked = |token: &Token| match token {
            Token::Pmi(index) => {
                self.ranks.get(*index).is_some_and(|rank| !watch.has_told_of(rank.rank()))
            }
            Token::Exit(_) | Token::Output(..) | Token::Input(_) => false,
            _ => true,
        };
        if ready.iter().any(is_asked) {
            ready.retain(is_asked);
        } else if !rested && !ready.is_empty() {
            ready.clear();
            std::thread::sleep(rest);
            self.rested = true;
        }
    }

    /// Something is ready.
    pub fn ready(&mut self, token: Token) {
        let (Token::Exit(index)
        | Token::Pmi(index)
        | Token::Output(index, _)
        | Token::Input(index)) = token
        else {
            return;
        };
        let Some(rank) = self.ranks.get_mut(index) else { return };
        match token {
            Token::Exit(_) => {
                if let Some(failed) = rank.check_exit(&mut self.up) {
                    // The head will say so too; those on this host need not wait for it.
                    self.publish(failed);
                }
            }
            Token::Pmi(_) => rank.serve_pmi(&mut self.up),
            Token::Output(_, which) => {
                self.credit -= rank.read_output(which, self.credit, &mut self.up);
                self.check_drained();
            }
            _ => rank.write_input(&mut self.up),
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
            self.ranks.iter_mut().for_each(|rank| rank.close_idle_outputs(&mut self.up));
            self.check_drained();
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
                if let Some(rank) = self.local(rank) {
                    rank.tell(|server| server.answer_get(value.as_deref()));
                }
            }
            Down::BarrierOut => self.ranks.iter_mut().for_each(|rank| rank.tell(Server::release)),
            Down::Failed(failed) => self.publish(failed),
            // Input is for rank 0, which is the first of its host.
            Down::Stdin(data) => match self.ranks.first_mut() {
                Some(rank) => rank.take_input(&data, &mut self.up),
                None => self.up.push(Up::StdinClosed),
            },
            Down::StdinEnd => {
                if let Some(rank) = self.ranks.first_mut() {
                    rank.end_input(&mut self.up);
                }
            }
            Down::OutputTaken(bytes) => {
                self.credit = self.credit.saturating_add(bytes).min(OUTPUT_WINDOW);
            }
            Down::OutputClosed(stream) => {
                let which = usize::from(stream == Stream::Err);
                self.ranks.iter_mut().for_each(|rank| rank.close_output(which, &mut self.up));
                self.check_drained();
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
            Down::Fence { rank } => {
                if let Some(rank) = self.local(rank) {
                    rank.signal(Signal::KILL);
                }
            }
            Down::Finish => self.finish(),
            Down::Ping => self.up.push(Up::Alive),
            Down::Look { by, number, process } => {
                let starved = process.is_held_up();
                self.up.push(Up::Looked { by, number, starved });
            }
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
        self.watch_lifelines(spec.size);
        let Some((why, code)) = error else { return };
        self.up.push(Up::LaunchFailed { why, code });
        // Those that did not start have ended, for the head to count.
        for index in self.ranks.len() as u32..spec.count {
            self.up.push(Up::Ended { rank: spec.first_rank + index, how: How::Exit(code) });
        }
    }

    /// Without it, ends of ranks are known when they are over.
    fn watch_lifelines(&mut self, size: u32) {
        let (Some(page), Some(board)) = (&self.page, &self.board) else { return };
        let Ok(shared) = board::map(board.as_fd(), size) else { return };
        let ranks = self.ranks.iter().filter_map(|rank| Some((rank.rank(), rank.pid()?)));
        match Watch::start(shared.lines, ranks, page) {
            Ok(watch) => self.watch = Some(watch),
            Err(error) => tracing::debug!(%error, "ends of processes are told by waitpid"),
        }
    }

    fn prepare(&mut self, spec: &LaunchSpec) -> Result<(), (String, u8)> {
        let job = std::path::Path::new(&spec.directory);
        let own = spec.apps.iter().filter_map(|app| app.directory.as_ref());
        for directory in std::iter::once(job.to_owned()).chain(own.map(|own| job.join(own))) {
            if !directory.is_dir() {
                let why =
                    format!("host {}: no directory {} to start in", spec.host, directory.display());
                return Err((why, 1));
            }
        }
        raise_descriptor_limit(u64::from(spec.count) * 6 + 64);
        let failed = |error| (format!("host {}: cannot wait for ranks: {error}", spec.host), 1);
        self.standing = Some(Standing::new().map_err(failed)?);
        let page = LivenessWriter::new(spec.size)
            .map_err(|error| (format!("host {}: {error}", spec.host), 1))?;
        self.page = Some(Arc::new(Mutex::new(page)));
        let board = board::make(spec.size);
        self.board = Some(board.map_err(|error| (format!("host {}: {error}", spec.host), 1))?);
        let cores = placement::cores();
        tracing::debug!(host = spec.host, cores = cores.sets.len(), "order from {}", cores.order);
        self.cores = cores.sets.len();
        self.bindings = placement::bindings(&cores.sets, spec.count, spec.bind);
        if let ([one, other, ..], 2..) = (&cores.sets[..], spec.count) {
            self.single_copy = ironweave_btl_shm::trial([one, other]);
        }
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
            self.spawn(spec, rank, index).map_err(|error| spawn_words(spec, rank, &error))?;
        tracing::info!(rank, pid = %process.pid(), host = spec.host, "started");
        if let Some(guard) = &mut self.guard {
            guard.watch(process.pid());
        }
        let server = Server::new(rank, spec.size, spec.app_of(rank).0, &spec.job);
        self.ranks.push(LocalRank::new(rank, process, streams, socket, server));
        Ok(())
    }

    fn spawn(
        &self,
        spec: &LaunchSpec,
        rank: u32,
        index: u32,
    ) -> io::Result<(Process, Streams, OwnedFd)> {
        let page = self.page.as_ref().ok_or_else(|| io::Error::other("no liveness page"))?;
        let page = page.lock().unwrap_or_else(PoisonError::into_inner);
        let board = self.board.as_ref().ok_or_else(|| io::Error::other("no board"))?;
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        let cpus = self.bindings.as_ref().and_then(|sets| sets.get(index as usize).copied());
        let descriptors = [theirs.as_fd(), page.as_fd(), board.as_fd()];
        let env = rank_environment(spec, rank, self.cores, self.single_copy, descriptors);
        let app = spec.app_of(rank).1;
        let directory = match &app.directory {
            Some(own) => std::path::Path::new(&spec.directory).join(own).into_os_string(),
            None => spec.directory.clone(),
        };
        let start = Start {
            program: &app.program,
            args: &app.args,
            env: &env,
            directory: &directory,
            inherits: &descriptors,
            cpus,
            input: rank == 0,
        };
        let bare =
            |error: &io::Error| error.kind() == io::ErrorKind::NotFound && !is_path(&app.program);
        let (process, streams) = match spawn::start(&start) {
            // As other launchers do: where there is no such program in PATH, one in the working directory.
            Err(error) if bare(&error) => {
                let here = std::path::Path::new(".").join(&app.program).into_os_string();
                spawn::start(&Start { program: &here, ..start })?
            }
            started => started?,
        };
        Ok((process, streams, ours))
    }

    fn publish(&mut self, failed: FailedRank) {
        if let Some(page) = &self.page {
            page.lock().unwrap_or_else(PoisonError::into_inner).publish(failed);
        }
    }

    fn check_drained(&mut self) {
        let silent = self.ranks.iter().all(LocalRank::is_silent);
        if silent && matches!(self.drain, Drain::Until(_)) {
            self.drain = Drain::Done;
            self.up.push(Up::Drained);
        }
    }

    fn finish(&mut self) {
        // Zombies still pin their numbers: nothing but the ranks' own groups is hit.
        self.signal_all(Signal::KILL);
        self.reap_all();
        self.watch = None;
        self.kill_at = None;
        self.drain = Drain::Until(Instant::now() + DRAIN);
        self.check_drained();
    }

    fn reap_all(&mut self) {
        for rank in &mut self.ranks {
            if let Some(mut process) = rank.take_process() {
                if let Some(guard) = &mut self.guard {
                    guard.forget(process.pid());
                }
                process.reap();
            }
        }
    }

    fn signal_all(&self, signal: Signal) {
        self.ranks.iter().for_each(|rank| rank.signal(signal));
    }

    fn local(&mut self, rank: u32) -> Option<&mut LocalRank> {
        self.ranks.get_mut(rank.checked_sub(self.first_rank)? as usize)
    }
}

/// What libraries below are told where the user has not told them otherwise: ofi_rxm of libfabric shares receives among its
/// connections, because it crashes in closing one that has receives of its own (`btl/ofi`, `Provider::of`).
const LIBRARIES: [(&str, &str); 1] = [("FI_OFI_RXM_USE_SRX", "1")];

/// A rank's environment: the job's, without another launcher's traces, with ours.
fn rank_environment(
    spec: &LaunchSpec,
    rank: u32,
    cores: usize,
    single_copy: Option<SingleCopy>,
    [pmi, page, board]: [BorrowedFd<'_>; 3],
) -> Vec<(OsString, OsString)> {
    let foreign = |name: &OsString| {
        let name = name.to_string_lossy();
        name.starts_with("PMI_") || name.starts_with("PMIX_")
    };
    let mut env: Vec<_> = spec.env.iter().filter(|(name, _)| !foreign(name)).cloned().collect();
    let added = &spec.app_of(rank).1.env;
    env.retain(|(name, _)| added.iter().all(|(added, _)| name != added));
    env.extend(added.iter().cloned());
    for (name, value) in LIBRARIES {
        if env.iter().all(|(known, _)| known != name) {
            env.push((name.into(), value.into()));
        }
    }
    let own = [
        ("PMI_FD", pmi.as_raw_fd().to_string()),
        ("PMI_RANK", rank.to_string()),
        ("PMI_SIZE", spec.size.to_string()),
        (LIVENESS_VARIABLE, page.as_raw_fd().to_string()),
        (BOARD_VARIABLE, board.as_raw_fd().to_string()),
        (MCA_VARIABLE, spec.mca.clone()),
        (CORES_VARIABLE, cores.to_string()),
        (SINGLE_COPY_VARIABLE, single_copy.unwrap_or_default().to_string()),
    ];
    env.retain(|(name, _)| own.iter().all(|(own, _)| name != own));
    env.extend(own.into_iter().map(|(name, value)| (name.into(), value.into())));
    env
}

fn is_path(program: &OsStr) -> bool {
    program.as_encoded_bytes().contains(&b'/')
}

fn spawn_words(spec: &LaunchSpec, rank: u32, error: &io::Error) -> (String, u8) {
    let (program, host) = (spec.app_of(rank).1.program.to_string_lossy(), &spec.host);
    match error.kind() {
        io::ErrorKind::NotFound if is_path(&spec.app_of(rank).1.program) => {
            (format!("host {host}: there is no program {program}"), 127)
        }
        io::ErrorKind::NotFound => {
            let words = "in PATH or in the working directory";
            (format!("host {host}: no program {program} {words}"), 127)
        }
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
