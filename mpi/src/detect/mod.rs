//! The failure detector of a process: the pure machine of `ironweave_ft::detector`, driven by a thread of its own, so that
//! a program that computes and never calls the library still beats, and still learns.
//!
//! The engine sees one word ([`Detect::version`]); only when it changed is there news to take. Nothing here is on the way
//! of a message. A job of one, and one with `ft_detector off`, has no thread, no socket, and a word that never changes.

mod addresses;
mod driver;
mod home;
mod seal;

use crate::open::tcp_config;
use crate::{Error, Result};
use ironweave_btl_tcp::usable_addresses;
use ironweave_ft::detector::Config;
use ironweave_ft::{How, Source};
use ironweave_rte::Job;
use rustix::fd::OwnedFd;
use rustix::pipe::{PipeFlags, pipe_with};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The key under which each process publishes where its detector is reached.
const KEY: &str = "ft";

/// What the detector found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// This process has failed.
    Failed { process: u32, how: How, source: Source },
    /// A suspect lives: only the way to it is lost.
    Lives(u32),
    /// This process itself was declared failed.
    Fenced,
}

/// What the engine tells the detector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Command {
    Suspect(u32),
    Failed { process: u32, everybody: bool },
    Leave,
    Stop,
}

/// What the two threads share. The descriptors are the process's, which closes them when the detector's threads, with a table of
/// their own (`ironweave_ffi::descriptors`), are over: so the engine's thread has to be the last to let go of this.
#[derive(Debug)]
struct Shared {
    /// Heartbeats come and go by it.
    socket: UdpSocket,
    /// Grows with every piece of news.
    version: AtomicU64,
    desk: Mutex<Desk>,
    over: Condvar,
    /// A byte in it wakes the thread.
    wake: OwnedFd,
    /// The other end. It lives as long as any writer: a write to a pipe without a reader would end a process that has C's
    /// default for `SIGPIPE`.
    woken: OwnedFd,
}

#[derive(Debug, Default)]
struct Desk {
    news: Vec<News>,
    commands: Vec<Command>,
    /// The thread has ended, or is about to.
    over: bool,
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        // Lists of plain values: a panic leaves them as they are.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, news: News) {
        self.desk().news.push(news);
        self.version.fetch_add(1, Ordering::Release);
    }

    fn command(&self, command: Command) {
        self.desk().commands.push(command);
        // Full: it has enough reason to wake up.
        let _ = rustix::io::write(&self.wake, &[1]);
    }
}

/// The engine's end of its process's detector.
#[derive(Debug)]
pub(crate) struct Detect {
    ready: Option<Ready>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// How long leaving may take.
    patience: Duration,
}

/// What the thread needs that comes before the fence.
#[derive(Debug)]
pub(crate) struct Ready {
    socket: UdpSocket,
    config: Config,
}

impl Detect {
    /// Opens the socket and publishes its addresses, before the job's fence.
    pub(crate) fn open(job: &mut Job) -> Result<Detect> {
        let params = job.params();
        let unchecked = cfg!(feature = "measure-unchecked");
        if job.size() == 1 || params.text("ft_detector") == "off" || unchecked {
            return Ok(Detect { ready: None, running: None });
        }
        let nanos = |name: &str| params.duration(name).as_nanos().clamp(1_000_000, 1 << 60) as u64;
        let config = Config {
            period: nanos("ft_detector_period"),
            timeout: nanos("ft_detector_timeout"),
            probe_timeout: nanos("ft_probe_timeout"),
        };
        if config.timeout < 2 * config.period {
            return Err(Error::Rte(
                "ft_detector_timeout is less than two ft_detector_period".into(),
            ));
        }
        let usable = match job.local_ranks().count() == job.size() as usize {
            true => Vec::new(),
            false => usable_addresses(&tcp_config(job)?)
                .map_err(|error| Error::Rte(format!("failure detector: {error}")))?,
        };
        let system = |error| Error::Rte(format!("failure detector: cannot open a socket: {error}"));
        let socket = addresses::open(&usable).map_err(system)?;
        let port = socket.local_addr().map_err(system)?.port();
        let mut blob = addresses::encode(&usable, port);
        blob.extend(home::Home::here().iter().flat_map(home::Home::encode));
        job.publish(KEY, &blob)?;
        Ok(Detect { ready: Some(Ready { socket, config }), running: None })
    }

    /// Starts the thread, after the job's fence.
    pub(crate) fn start(&mut self, job: &Job) -> Result<()> {
        let Some(ready) = self.ready.take() else { return Ok(()) };
        let system = |error: std::io::Error| Error::Rte(format!("failure detector: {error}"));
        let (woken, wake) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(|errno| system(errno.into()))?;
        job.directory().wake_on_death(&wake, &woken)?;
        let patience = Duration::from_nanos(ready.config.timeout) + Duration::from_secs(1);
        let Ready { socket, config } = ready;
        let shared = Arc::new(Shared {
            socket,
            version: AtomicU64::new(0),
            desk: Mutex::default(),
            over: Condvar::new(),
            wake,
            woken,
        });
        let driver = driver::Driver::new(config, job, Arc::clone(&shared)).map_err(system)?;
        let (holds, held) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name(ironweave_rte::starved::DETECTOR_THREAD.into())
            .spawn(move || driver.run(&holds))
            .map_err(system)?;
        // Whoever ends from here on is known to.
        let _ = held.recv();
        self.running = Some(Running { shared, thread: Some(thread), patience });
        Ok(())
    }

    /// Whether somebody judges suspects.
    pub(crate) fn is_on(&self) -> bool {
        self.running.is_some()
    }

    /// Changes when there is news: one cached word.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.running.as_ref().map_or(0, |running| running.shared.version.load(Ordering::Acquire))
    }

    /// The news since the last call.
    pub(crate) fn take_news(&self) -> Vec<News> {
        let running = self.running.as_ref();
        running.map(|running| std::mem::take(&mut running.shared.desk().news)).unwrap_or_default()
    }

    /// A transport cannot reach `process`: find out whether it lives. The answer is news.
    pub(crate) fn suspect(&self, process: u32) {
        self.command(Command::Suspect(process));
    }

    /// `process` is known to have failed, from a source that tells `everybody` or not.
    pub(crate) fn failed(&self, process: u32, everybody: bool) {
        self.command(Command::Failed { process, everybody });
    }

    fn command(&self, command: Command) {
        if let Some(running) = &self.running {
            running.shared.command(command);
        }
    }

    /// Tells the neighbours that this process leaves, and ends the thread. For when all living processes have agreed to leave:
    /// a neighbour that does not answer has left before, and is not waited for.
    pub(crate) fn leave(&mut self) {
        if let Some(Running { shared, patience, .. }) = &self.running {
            shared.command(Command::Leave);
            let until = Instant::now() + *patience;
            let mut desk = shared.desk();
            while !desk.over {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                let waited = shared.over.wait_timeout(desk, left);
                desk = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(desk, _)| desk);
            }
        }
        self.running = None;
    }
}

impl Drop for Running {
    /// Silently: a process that did not leave is a failure to the others (law 4).
    fn drop(&mut self) {
        self.shared.command(Command::Stop);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the failure detector's thread panicked");
        }
    }
}
