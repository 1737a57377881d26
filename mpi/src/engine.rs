//! One process's whole stack: the PML over its rails, the job it belongs to, and what it knows of failures.
//!
//! Single-threaded; who may call it when is decided in [`crate::threading`]. Failure knowledge is looked at in every
//! [`Engine::progress`], for the price of one cached word (blueprint, "Failure knowledge"): the launcher's liveness
//! page, and proof from transports. A suspicion alone never fails a process (law 3).

use crate::message::Status;
use crate::open;
use crate::rails::Rail;
use crate::{Error, Result};
use ironweave_btl::{Cause, Fault, Peer, Scope, decode_addresses};
use ironweave_ft::{FailureList, How, Source as Told};
use ironweave_pml::ob1::{CommId, CommSpec, Ob1, PmlError, ReqId};
use ironweave_rte::{Job, liveness};
use std::time::{Duration, Instant};

/// The key under which each process publishes its rails' addresses.
const ADDRESSES: &str = "btl";
/// Time between two attempts to connect a lost rail again.
const HEAL: Duration = Duration::from_millis(50);

/// The stack of one process.
pub struct Engine {
    pub(crate) pml: Ob1<Rail>,
    pub(crate) job: Job,
    pub(crate) failures: FailureList,
    pub(crate) world: CommId,
    /// How many entries of the liveness page were read.
    page: usize,
    /// The page's version when it was last looked at.
    version: u64,
    /// Polls before a waiting process offers its core to others.
    pub(crate) spin: u32,
    finalized: bool,
    watchdog: Option<Duration>,
    /// Suspects nobody has judged yet, and since when.
    suspected: Vec<(Peer, Scope, Instant)>,
    /// When lost rails were last tried again.
    healed: Instant,
    /// How long nobody may say anything about a suspect.
    patience: Duration,
}

impl Engine {
    /// Joins the job, opens the transports, and exchanges addresses: the one fence of a job's life.
    pub(crate) fn start() -> Result<Engine> {
        let mut job = Job::join()?;
        let mut pml = open::pml(&job)?;
        job.publish(ADDRESSES, &ironweave_btl::encode_addresses(&pml.addresses()))?;
        job.fence()?;
        let group = (0..job.size()).map(Peer).collect();
        let world = pml.add_comm(CommSpec::intra(0, 0, job.rank(), group))?;
        let mut engine = Engine {
            pml,
            world,
            failures: FailureList::default(),
            page: 0,
            version: 0,
            spin: open::spin(&job),
            finalized: false,
            watchdog: open::watchdog(),
            suspected: Vec::new(),
            healed: Instant::now(),
            patience: job.params().duration("rte_suspect_timeout"),
            job,
        };
        engine.learn_from_launcher();
        Ok(engine)
    }

    /// Moves everything that can move, and looks at what is known of failures. Returns how much happened.
    #[inline]
    pub(crate) fn progress(&mut self) -> usize {
        let events = self.pml.progress();
        if self.job.liveness().version() != self.version {
            self.learn_from_launcher();
        }
        if self.pml.has_suspects() || !self.suspected.is_empty() {
            self.judge();
        }
        if self.pml.has_lost_rails() {
            self.heal();
        }
        events
    }

    /// Reads the new entries of the liveness page.
    #[cold]
    fn learn_from_launcher(&mut self) {
        self.version = self.job.liveness().version();
        let new: Vec<_> = self.job.liveness().failed_since(&mut self.page).collect();
        for failed in new {
            let how = match failed.how {
                liveness::How::Signal(signal) => How::Signal(i32::from(signal)),
                liveness::How::Exit(code) => How::Exit(i32::from(code)),
                liveness::How::HostLost => How::HostLost,
            };
            self.proc_failed(failed.rank, how, Told::Launcher);
        }
    }

    /// Looks at what transports say: proof fails the process, everything else only makes it a suspect. The launcher, if
    /// there is one that tells of failures, has [`Engine::patience`] to say that the suspect is dead; then this process
    /// gives up on reaching it, so that nothing waits for ever (law 1), without holding it for dead (law 3).
    #[cold]
    fn judge(&mut self) {
        let told: Vec<Fault> = self.pml.suspects().collect();
        for fault in told {
            let Some(peer) = fault.peer else {
                tracing::warn!(%fault, "a rail of this process is lost");
                continue;
            };
            if fault.is_proof() {
                self.proc_failed(peer.0, How::Gone, Told::Transport);
            } else if fault.cause == Cause::Finalized || !self.job.liveness().is_kept() {
                self.pml.unreachable(peer);
            } else if fault.scope >= Scope::Rail && self.failures.suspect(peer.0) {
                tracing::debug!(%fault, "suspect");
                self.suspected.push((peer, fault.scope, Instant::now()));
            }
        }
        let patience = self.patience;
        let (pml, failures) = (&mut self.pml, &mut self.failures);
        self.suspected.retain(|(peer, scope, since)| {
            if *scope == Scope::Rail && !pml.is_cut_off(*peer) {
                tracing::info!(%peer, "can be reached again");
                failures.trust(peer.0);
                return false;
            }
            let keep = since.elapsed() < patience;
            if !keep {
                tracing::warn!(%peer, "given up: cannot be reached, and nobody says that it died");
                pml.unreachable(*peer);
            }
            keep
        });
    }

    /// Tries lost rails again, at most every [`HEAL`].
    #[cold]
    fn heal(&mut self) {
        if self.healed.elapsed() >= HEAL {
            self.healed = Instant::now();
            self.pml.heal();
        }
    }

    /// Applies a failure that is known for sure, once.
    fn proc_failed(&mut self, process: u32, how: How, told: Told) {
        if process != self.job.rank() && self.failures.record(process, how, told) {
            tracing::info!(process, %how, ?told, "process failed");
            self.pml.proc_failed(Peer(process));
        }
    }

    /// Runs `call`; when it wants a peer's addresses, looks them up (once per peer) and runs it again.
    #[inline]
    pub(crate) fn resolving<R>(
        &mut self,
        mut call: impl FnMut(&mut Ob1<Rail>) -> std::result::Result<R, PmlError>,
    ) -> Result<R> {
        loop {
            match call(&mut self.pml) {
                Ok(done) => return Ok(done),
                Err(PmlError::Unresolved(peer)) => self.resolve(peer)?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Looks up where `peer` is reached.
    #[cold]
    fn resolve(&mut self, peer: Peer) -> Result<()> {
        let addresses = match self.job.lookup(peer.0, ADDRESSES)? {
            Some(blob) => decode_addresses(&blob)
                .map_err(|error| Error::Rte(format!("address of {peer}: {error}")))?,
            // It died before it published; its failure is, or will be, on the page.
            None => Vec::new(),
        };
        self.pml.add_peer(peer, &addresses)?;
        Ok(())
    }

    /// The end of a request; `None` while it is under way.
    #[inline]
    pub(crate) fn poll(&mut self, request: ReqId) -> Option<Result<Status>> {
        match self.pml.take_done(request) {
            Some(status) => Some(Ok(status.into())),
            None if self.pml.is_complete(request) => self.poll_rare(request),
            None => None,
        }
    }

    /// Sends, errors, cancellations: whatever the short cut for receives does not know.
    #[cold]
    fn poll_rare(&mut self, request: ReqId) -> Option<Result<Status>> {
        let completion = self.pml.test(request)?;
        match completion.result {
            Ok(()) => Some(Ok(completion.status.into())),
            Err(error) => Some(Err(error.into())),
        }
    }

    /// Drives the stack to the end of a request.
    #[inline(always)]
    pub(crate) fn wait_for(&mut self, request: ReqId) -> Result<Status> {
        // The usual end, apart: its status goes to the caller in registers.
        match self.pml.take_done(request) {
            Some(status) => Ok(status.into()),
            None => self.wait_long(request),
        }
    }

    #[inline(never)]
    fn wait_long(&mut self, request: ReqId) -> Result<Status> {
        let mut idle = Idle::new(self.spin, self.watchdog);
        loop {
            if let Some(ended) = self.poll(request) {
                return ended;
            }
            self.step(&mut idle);
        }
    }

    /// One round of a wait.
    #[inline]
    fn step(&mut self, idle: &mut Idle) {
        match self.progress() {
            0 => {
                if idle.pause() {
                    self.dump_to_stderr();
                }
            }
            _ => idle.reset(),
        }
    }

    /// Drives the stack until `done` has an answer.
    #[inline]
    pub(crate) fn wait<R>(&mut self, mut done: impl FnMut(&mut Engine) -> Option<R>) -> R {
        let mut idle = Idle::new(self.spin, self.watchdog);
        loop {
            if let Some(answer) = done(self) {
                return answer;
            }
            self.step(&mut idle);
        }
    }

    /// Says good-bye: waits until what was sent is out of this process's hands, and leaves the job. Never waits for a
    /// dead peer.
    pub(crate) fn finalize(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.finalized, true) {
            return Ok(());
        }
        self.wait(|engine| (engine.pml.unflushed() == 0).then_some(()));
        self.pml.depart();
        self.wait(|engine| (engine.pml.unflushed() == 0).then_some(()));
        Ok(self.job.finalize()?)
    }

    /// Everything a person needs to see why nothing moves.
    #[cold]
    pub(crate) fn dump_to_stderr(&self) {
        let mut text = String::new();
        let rank = self.job.rank();
        // Writing to a string cannot fail.
        let _ = self.pml.dump(&mut text);
        eprintln!(
            "ironweave watchdog: rank {rank} has waited in vain; failed: {:?}, suspects: {:?}\n{text}",
            self.failures.since(0).map(|failed| failed.process).collect::<Vec<_>>(),
            self.failures.suspects().collect::<Vec<_>>(),
        );
    }
}

/// How a process waits: polls for a while, then offers its core to others between polls.
pub(crate) struct Idle {
    spin: u32,
    polls: u32,
    watchdog: Option<Duration>,
    since: Option<Instant>,
}

impl Idle {
    pub(crate) fn new(spin: u32, watchdog: Option<Duration>) -> Idle {
        Idle { spin, polls: 0, watchdog, since: None }
    }

    pub(crate) fn reset(&mut self) {
        self.polls = 0;
        self.since = None;
    }

    /// One poll was in vain. `true` once, when the watchdog's time is over.
    #[inline]
    pub(crate) fn pause(&mut self) -> bool {
        self.polls += 1;
        if self.polls < self.spin {
            return false;
        }
        self.give_way()
    }

    #[cold]
    fn give_way(&mut self) -> bool {
        self.polls = self.spin; // keep yielding
        std::thread::yield_now();
        let Some(limit) = self.watchdog else { return false };
        let since = *self.since.get_or_insert_with(Instant::now);
        let over = since.elapsed() >= limit;
        if over {
            self.watchdog = None;
        }
        over
    }
}
