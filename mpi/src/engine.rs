//! One process's whole stack: the core (PML, communicators, control plane) with what it must not know: a clock, the job the
//! process belongs to, and where news of failures come from.
//!
//! Single-threaded; who may call it when is decided in [`crate::threading`]. Failure knowledge is looked at in every
//! [`Engine::progress`], for the price of three cached words (blueprint, "Failure knowledge"): the launcher's liveness
//! page, the detector's news, and the bell of the host's board, by which revocations are told; beside them proof from transports. A suspicion alone never fails a process (law 3): it
//! makes the detector ask. When this process itself was declared failed nothing more leaves it (law 4).

use crate::detect::{Detect, News};
use crate::idle::Turns;
pub use crate::idle::{Crowd, Idle};
use crate::message::Status;
use crate::open;
use crate::rails::Rail;
use crate::{Error, Result};
use ironweave_btl::memory::RecvRegion;
use ironweave_btl::{Cause, Fault, Peer, Scope, decode_addresses};
use ironweave_coll::{Call, Memory, Patience, Reduction};
use ironweave_core::{Agreeing, CommHandle, Core, CoreError, TaskId};
use ironweave_ft::{FailureList, How, Nanos, Source as Told};
use ironweave_pml::ob1::{CommId, Ob1, PmlError, ReqId};
use ironweave_rte::launch::placement;
use ironweave_rte::{Job, liveness};
use rustix::time::{ClockId, clock_gettime};
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

/// The key under which each process publishes its rails' addresses.
const ADDRESSES: &str = "btl";
/// Time between two attempts to connect a lost rail again.
const HEAL: Duration = Duration::from_millis(50);

/// Operations that were over at once after which news is looked for.
const UNHEARD: u32 = 64;

/// Receives taken without a request, after which one goes the general way, which moves everything else on.
const UNATTENDED: u32 = 32;
/// Collectives at one go, none of which had to wait, after which everything else is moved on: some 50 microseconds.
const LONG_UNATTENDED: u32 = 512;
/// Looks at where the next message comes before a receive goes the general way, in which nothing else moves on: about a microsecond at a
/// ring. A look at a transport that asks the kernel each time (UCX over tcp) takes longer.
const LOOKS: u32 = 64;

/// The stack of one process.
pub struct Engine {
    /// Receives since one went the general way.
    unattended: u32,
    /// Looks at what is to come next, before a receive goes the general way.
    looks: u32,
    /// What the last short wait on shared cores found, for the wait that goes on.
    turns: Turns,
    /// Operations that were over at once since news was looked for.
    unheard: u32,
    core: Core<Rail>,
    /// The membership of the job.
    pub job: Job,
    /// Who is known to have failed.
    pub failures: FailureList,
    /// The beginning of the core's time.
    origin: Nanos,
    /// How many entries of the liveness page were read.
    page: usize,
    /// The page's version when it was last looked at.
    version: u64,
    detect: Detect,
    /// The detector's version when its news was last taken.
    news: u64,
    /// Polls before a waiting process offers its core to others.
    pub spin: u32,
    /// This process's share of its host's cores, one at least.
    pub cores: u32,
    /// The cores that the processes of this host share, and how many of those live.
    shared_cores: usize,
    living: usize,
    finalized: bool,
    /// Some process has finalized and left.
    departed: bool,
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
    pub fn start() -> Result<Engine> {
        crate::idle::share_cores();
        let mut job = Job::join()?;
        let pml = open::pml(&job)?;
        job.publish(ADDRESSES, &ironweave_btl::encode_addresses(&pml.addresses()))?;
        let mut detect = Detect::open(&mut job)?;
        job.fence()?;
        detect.start(&job)?;
        let core = Core::new(pml, open::core(&job)?, 0)?;
        let spin = open::spin(&job);
        let mut engine = Engine {
            unattended: 0,
            // With fewer cores than processes the message may be waiting for this very core.
            looks: if spin > LOOKS { LOOKS } else { 0 },
            turns: Turns::default(),
            unheard: 0,
            core,
            origin: read(ClockId::Monotonic),
            failures: FailureList::default(),
            page: 0,
            version: 0,
            detect,
            news: 0,
            spin,
            cores: open::cores(&job),
            shared_cores: job.cores(),
            living: job.local_ranks().count(),
            finalized: false,
            departed: false,
            watchdog: open::watchdog(),
            suspected: Vec::new(),
            healed: Instant::now(),
            patience: job.params().duration("rte_suspect_timeout"),
            job,
        };
        crate::idle::share_among(engine.living, engine.shared_cores);
        engine.learn_from_launcher();
        Ok(engine)
    }

    /// Moves everything that can move, and looks at what is known of failures. Returns how much happened.
    #[inline]
    pub fn progress(&mut self) -> usize {
        let checks = !cfg!(feature = "measure-unchecked");
        if checks && self.job.liveness().version() != self.version {
            self.learn_from_launcher();
            // Who waits may be done, and has its core now. To look further, or to offer the core, would give it to a process that ends
            // there, for most of a millisecond.
            return 1;
        }
        let clock = self.clock();
        let mut events = self.core.progress(clock);
        // Addresses of peers come this way, too.
        if self.core.has_news() {
            self.learn_from_core();
        }
        if !checks {
            return events;
        }
        if self.detect.version() != self.news || self.core.is_called() {
            self.learn();
            events += 1;
        }
        if self.core.pml.has_suspects() || !self.suspected.is_empty() {
            self.judge();
        }
        if self.core.pml.has_lost_rails() {
            self.heal();
        }
        events
    }

    /// To be called by operations that may be over at once. A process that does nothing else would never hear of anything: so
    /// one in [`UNHEARD`] of them looks for news.
    #[inline]
    pub fn listen(&mut self) {
        self.unheard += 1;
        if self.unheard >= UNHEARD {
            self.hear();
        }
    }

    #[cold]
    #[inline(never)]
    fn hear(&mut self) {
        self.unheard = 0;
        self.progress();
        // Others are told with the progress after that.
        if self.core.is_restless() {
            self.progress();
        }
    }

    /// A blocking receive from `source` with `tag` that ends soon and well: the bytes received. `None`: nothing was done, receive
    /// the general way.
    #[inline(always)]
    pub fn recv_soon(
        &mut self,
        comm: CommId,
        into: &RecvRegion,
        source: u32,
        tag: i32,
    ) -> Option<usize> {
        self.unattended += 1;
        if self.unattended >= UNATTENDED || self.core.is_restless() {
            self.unattended = 0;
            return None;
        }
        match self.looks {
            0 => self.recv_in_turn(comm, into, source, tag),
            looks => self.core.pml.recv_direct(comm, into, source, tag, looks),
        }
    }

    /// [`recv_soon`](Self::recv_soon) with more processes than cores: lets the others run, and looks again for what they send meanwhile.
    #[inline(never)]
    fn recv_in_turn(
        &mut self,
        comm: CommId,
        into: &RecvRegion,
        source: u32,
        tag: i32,
    ) -> Option<usize> {
        let pml = &mut self.core.pml;
        let mut times = 0;
        self.turns = Turns::default();
        loop {
            let received = pml.recv_direct(comm, into, source, tag, 0);
            times += 1;
            // Who may learn that the sender is dead does not offer the core once more.
            let waits = received.is_none()
                && pml.is_due(comm, into, source)
                && self.job.liveness().version() == self.version
                && self.turns.take(times);
            if !waits {
                return received;
            }
        }
    }

    /// Begins an agreement for a caller that waits for it: it may be over at once.
    pub fn begin_agreement(&mut self, comm: CommHandle, flag: u64) -> Result<Agreeing> {
        self.unattended += 1;
        if self.unattended >= LONG_UNATTENDED {
            self.unattended = 0;
            self.hear();
        }
        let (now, mut turns) = (self.clock()(), Turns::default());
        let shared = (self.looks == 0).then_some(&mut turns);
        Ok(self.core.agree(comm, flag, Soon { looks: self.looks, shared }, now)?)
    }

    /// After how long a wait in vain tells what it waits for.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// The time, as the core counts it.
    pub fn now(&self) -> Nanos {
        read(ClockId::Monotonic) - self.origin
    }

    /// The clock, for calls that ask it only when they have to: the coarse one while nothing is to be done at a certain time.
    pub fn clock(&self) -> impl FnOnce() -> Nanos + use<> {
        let (origin, hurried) = (self.origin, self.core.is_hurried());
        let clock = if hurried { ClockId::Monotonic } else { ClockId::MonotonicCoarse };
        move || read(clock).saturating_sub(origin)
    }

    /// Looks up addresses that the core wants, and notes failures that other processes told it of.
    #[cold]
    fn learn_from_core(&mut self) {
        for peer in self.core.take_wanted() {
            if let Err(error) = self.resolve(peer) {
                // Only the transports' own knowledge can say more; what waits for the peer must not wait for ever.
                tracing::warn!(%peer, %error, "no address");
                self.core.pml.unreachable(peer);
            }
        }
        // What others heard of the launcher stands there for this process, too.
        if self.job.liveness().version() != self.version {
            self.learn_from_launcher();
        }
        for process in self.core.take_failures() {
            if self.failures.record(process, How::Gone, Told::Told) {
                tracing::info!(process, "process failed, others say");
                self.suspected.retain(|(suspect, ..)| suspect.0 != process);
                self.detect.failed(process, true);
                self.spread(process);
            }
        }
    }

    /// Somebody has news.
    #[cold]
    fn learn(&mut self) {
        let called = self.core.is_called();
        // Who revokes because of a failure has learned of it first. Failures say more, so they come first, as far as they are known here, too.
        if self.job.liveness().version() != self.version {
            self.learn_from_launcher();
        }
        if self.detect.version() != self.news {
            self.learn_from_detector();
        }
        if called {
            let now = self.now();
            self.core.hear(now);
        }
    }

    fn learn_from_detector(&mut self) {
        self.news = self.detect.version();
        for news in self.detect.take_news() {
            match news {
                News::Failed { process, how, source } => self.proc_failed(process, how, source),
                // Only the way to it is lost: it may heal, and `judge` gives up when it does not.
                News::Lives(process) => tracing::debug!(process, "a suspect lives"),
                News::Fenced => self.stop(),
            }
        }
    }

    /// Reads the new entries of the liveness page.
    fn learn_from_launcher(&mut self) {
        self.version = self.job.liveness().version();
        crate::idle::expect_crowd();
        while let Some(failed) = self.next_on_page() {
            let how = match failed.how {
                liveness::How::Signal(signal) => How::Signal(i32::from(signal)),
                liveness::How::Exit(code) => How::Exit(i32::from(code)),
                liveness::How::HostLost => How::HostLost,
                liveness::How::Fenced => How::Silent,
                liveness::How::Aborted(code) => How::Aborted(i32::from(code)),
                liveness::How::Ending => How::Gone,
            };
            self.proc_failed(failed.rank, how, Told::Launcher);
        }
    }

    fn next_on_page(&mut self) -> Option<liveness::FailedRank> {
        self.job.liveness().failed_since(&mut self.page).next()
    }

    /// Looks at what transports say: proof fails the process, everything else only makes it a suspect, whom the detector
    /// asks at once. It, the launcher, or a rail that heals have [`Engine::patience`] to say what became of the suspect; then
    /// this process gives up on reaching it, so that nothing waits for ever (law 1), without holding it for dead (law 3).
    #[cold]
    fn judge(&mut self) {
        // The end of a process shows at its transports when the launcher has just told of it, and to wake the detector costs this core.
        if self.job.liveness().version() != self.version {
            self.learn_from_launcher();
        }
        let told: Vec<Fault> = self.core.pml.suspects().collect();
        for fault in told {
            let Some(peer) = fault.peer else {
                tracing::warn!(%fault, "a rail of this process is lost");
                continue;
            };
            let judged = self.detect.is_on() || self.job.liveness().is_kept();
            if fault.is_proof() {
                self.proc_failed(peer.0, How::Gone, Told::Transport);
            } else if fault.cause == Cause::Finalized {
                self.departed = true;
                self.core.pml.unreachable(peer);
            } else if !judged {
                self.core.pml.unreachable(peer);
            } else if fault.scope >= Scope::Rail && self.failures.suspect(peer.0) {
                tracing::debug!(%fault, "suspect");
                self.suspected.push((peer, fault.scope, Instant::now()));
                self.detect.suspect(peer.0);
            }
        }
        let patience = self.patience;
        let (pml, failures) = (&mut self.core.pml, &mut self.failures);
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
            self.core.pml.heal();
        }
    }

    /// Applies a failure that is known for sure, once.
    fn proc_failed(&mut self, process: u32, how: How, told: Told) {
        if process == self.job.rank() {
            self.stop();
        } else if self.failures.record(process, how, told) {
            tracing::info!(process, %how, ?told, "process failed");
            self.suspected.retain(|(suspect, ..)| suspect.0 != process);
            if told == Told::Transport {
                // Where the launcher tells of failures it tells everybody.
                self.detect.failed(process, self.job.liveness().is_kept());
            }
            let now = self.now();
            if told == Told::Launcher {
                self.core.proc_failed_by_page(process, now);
            } else {
                self.core.proc_failed(process, now);
            }
            self.spread(process);
        }
    }

    /// Where failures have left a core for each process of this host, they wait as in a job of so few from then on: offering their cores
    /// to nobody made exchanges five times as slow. Who is bound to fewer cores than there are processes left still shares them.
    fn spread(&mut self, failed: u32) {
        if self.spin >= open::COURTEOUS || !self.job.is_local(failed) {
            return;
        }
        self.living -= 1;
        let living = self.living;
        if living <= self.shared_cores && living <= placement::own_cores() {
            tracing::debug!(living, "a core for each from now on");
            self.spin = open::COURTEOUS;
            self.looks = LOOKS;
        }
    }

    /// This process was declared failed: the others have excluded it, and it excludes them, so that nothing more leaves
    /// it and no transport touches user memory. Calls under way and all later ones end with [`Error::Fenced`].
    fn stop(&mut self) {
        if !self.core.is_fenced() {
            tracing::error!("declared failed by the other processes: this one stops");
            self.core.fence();
            let others = (0..self.job.size()).filter(|process| *process != self.job.rank());
            others.for_each(|process| self.core.pml.proc_failed(Peer(process)));
        }
    }

    /// Runs `call`; when it wants a peer's addresses, looks them up (once per peer) and runs it again.
    #[inline]
    pub fn resolving<R>(
        &mut self,
        mut call: impl FnMut(&mut Ob1<Rail>) -> std::result::Result<R, PmlError>,
    ) -> Result<R> {
        loop {
            match call(&mut self.core.pml) {
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
        self.core.pml.add_peer(peer, &addresses)?;
        Ok(())
    }

    /// The end of a request; `None` while it is under way.
    #[inline]
    pub fn poll(&mut self, request: ReqId) -> Option<Result<Status>> {
        match self.core.pml.take_done(request) {
            Some(status) => Some(Ok(status.into())),
            None if self.core.pml.is_complete(request) => {
                self.poll_rare(request).map(|(status, result)| result.map(|()| status))
            }
            None => None,
        }
    }

    /// Sends, errors, cancellations: whatever the short cut for receives does not know.
    #[cold]
    fn poll_rare(&mut self, request: ReqId) -> Option<(Status, Result<()>)> {
        let completion = self.core.pml.test(request)?;
        Some((completion.status.into(), completion.result.map_err(Error::from)))
    }

    /// As [`poll`](Self::poll), with what is known of the message also where it ended with an error.
    #[inline]
    pub fn poll_message(&mut self, request: ReqId) -> Option<(Status, Result<()>)> {
        match self.core.pml.take_done(request) {
            Some(status) => Some((status.into(), Ok(()))),
            None if self.core.pml.is_complete(request) => self.poll_rare(request),
            None => None,
        }
    }

    /// Drives the stack to the end of a request.
    #[inline(always)]
    pub fn wait_for(&mut self, request: ReqId) -> Result<Status> {
        // The usual end, apart: its status goes to the caller in registers.
        match self.core.pml.take_done(request) {
            Some(status) => Ok(status.into()),
            None => self.wait_long(request),
        }
    }

    /// Looks for what a request waits for, where its message is read ([`Ob1::attend`]); whether something was there.
    #[inline]
    pub fn attend(&mut self, request: ReqId) -> bool {
        self.looks > 0 && self.core.pml.attend(request, self.looks)
    }

    #[inline(never)]
    fn wait_long(&mut self, request: ReqId) -> Result<Status> {
        let mut idle = Idle::after(&mut self.turns, self.spin, self.watchdog);
        loop {
            if let Some(ended) = self.poll(request) {
                return ended;
            }
            if self.attend(request) {
                continue;
            }
            self.step(&mut idle);
            if self.core.is_fenced() {
                return Err(Error::Fenced);
            }
        }
    }

    /// Runs a collective operation to its end, which uses `memory` until then. Success is one word in a register: what is read
    /// back from the stack right after a message went out may have to wait for the way to its receiver. Nor is `memory` moved:
    /// words stored one by one and loaded in pairs wait, too.
    ///
    /// # Errors
    /// See [`Unfinished`].
    pub fn collect(
        &mut self,
        comm: CommHandle,
        call: &Call,
        memory: &Memory,
        reduction: Option<&Reduction>,
    ) -> std::result::Result<(), Box<Unfinished>> {
        self.unattended += 1;
        // Who does not wait would only take in messages that are to be received where they lie: so that is put off, but not for
        // ever.
        let waits = self.unattended < UNATTENDED;
        let looks = if waits { self.looks } else { 0 };
        if self.unattended >= LONG_UNATTENDED || self.core.is_restless() {
            self.unattended = 0;
            self.hear();
        }
        let mut turns = Turns::default();
        let shared = if waits && self.looks == 0 { Some(&mut turns) } else { None };
        let patience = Soon { looks, shared };
        let begun = self.core.blocking_collective(comm, call, memory, reduction, patience);
        let mut collective = match begun {
            Ok(None) => return Ok(()),
            Ok(Some(collective)) => collective,
            Err(error) => return Err(Box::new(Unfinished::Over(error))),
        };
        self.unattended = 0;
        let mut idle = Idle::after(&mut turns, self.spin, self.watchdog);
        loop {
            let clock = self.clock();
            match collective.poll(&mut self.core, clock) {
                None if self.looks > 0 && collective.attend(&mut self.core, self.looks) => {}
                None => self.step(&mut idle),
                Some(Ok(())) => return Ok(()),
                Some(Err(error)) => return Err(Box::new(Unfinished::Over(error))),
            }
            if self.core.is_fenced() {
                return Err(Box::new(Unfinished::GivenUp));
            }
        }
    }

    /// Begins a collective operation. `Ok(None)`: it is over already, and went well.
    ///
    /// # Errors
    /// As [`Core::icollective`].
    pub fn icollect(
        &mut self,
        comm: CommHandle,
        call: &Call,
        memory: &Memory,
        reduction: Option<&Reduction>,
    ) -> std::result::Result<Option<TaskId>, CoreError> {
        self.listen();
        let clock = self.clock();
        self.core.icollective_soon(comm, call, memory, reduction, clock)
    }

    /// One round of a wait.
    #[inline]
    pub fn step(&mut self, idle: &mut Idle) {
        match self.progress() {
            0 => {
                if idle.pause() {
                    self.dump_to_stderr();
                }
                if !self.detect.is_on() && self.job.directory().has_told_of_death() {
                    self.learn_from_foreign_launcher();
                }
            }
            _ => idle.reset(),
        }
    }

    /// Hydra told that somebody died, and there is no detector that would ask who.
    #[cold]
    fn learn_from_foreign_launcher(&mut self) {
        match self.job.directory().told_dead() {
            Ok(dead) => dead.into_iter().flatten().for_each(|process| {
                self.proc_failed(process, How::Gone, Told::ResourceManager);
            }),
            Err(error) => tracing::warn!(%error, "cannot ask the launcher who died"),
        }
    }

    /// Drives the stack until `done` has an answer.
    #[inline]
    pub fn wait<R>(&mut self, mut done: impl FnMut(&mut Engine) -> Option<Result<R>>) -> Result<R> {
        let mut idle = Idle::new(self.spin, self.watchdog);
        loop {
            if let Some(answer) = done(self) {
                return answer;
            }
            self.step(&mut idle);
            if self.core.is_fenced() {
                return Err(Error::Fenced);
            }
        }
    }

    /// The calling thread is the only one of its program until it calls [`Engine::finalize`] (`MPI_THREAD_SINGLE`), so that nobody can cancel
    /// it: its system calls inside C libraries need not see to that (`ironweave_ffi::cancel`).
    pub fn assume_single_thread(&self) {
        let foreign = |rail: &Rail| matches!(rail, Rail::Net(net) if net.is_foreign());
        if self.core.pml.rails().iter().any(foreign) {
            ironweave_ffi::cancel::forbid();
        }
    }

    /// Whether [`Engine::finalize`] was called.
    pub fn is_finalized(&self) -> bool {
        self.finalized
    }

    /// Says good-bye: waits until what was sent is out of this process's hands, and leaves the job. Never waits for a
    /// dead peer.
    pub fn finalize(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.finalized, true) {
            return Ok(());
        }
        self.part_together()?;
        self.wait(|engine| (engine.pml.unflushed() == 0).then_some(Ok(())))?;
        self.core.pml.depart();
        self.wait(|engine| (engine.pml.unflushed() == 0).then_some(Ok(())))?;
        self.detect.leave();
        ironweave_ffi::cancel::allow();
        Ok(self.job.finalize()?)
    }

    /// Waits until every living process has come to the end: whoever leaves first takes along answers that agreements of others
    /// may still need (law 7). An agreement on nothing; one process that has left proves that it is decided.
    fn part_together(&mut self) -> Result<()> {
        let (world, now) = (self.core.world(), self.now());
        if self.job.size() == 1 || self.core.is_fenced() {
            return Ok(());
        }
        // The world's communicator is there until the end.
        let Ok(task) = self.core.iagree(world, 0, now) else { return Ok(()) };
        self.wait(|engine| (engine.core.test(task).is_some() || engine.departed).then_some(Ok(())))
    }

    /// Everything a person needs to see why nothing moves.
    #[cold]
    pub fn dump_to_stderr(&self) {
        let mut text = String::new();
        let rank = self.job.rank();
        // Writing to a string cannot fail.
        let _ = self.core.dump(&mut text);
        let text = format!(
            "ironweave watchdog: rank {rank} has waited in vain; failed: {:?}, suspects: {:?}\n{text}\n",
            self.failures.since(0).map(|failed| failed.process).collect::<Vec<_>>(),
            self.failures.suspects().collect::<Vec<_>>(),
        );
        eprint!("{text}"); // in one piece, beside those of other ranks
    }
}

/// Calls that need neither clock nor job go to the core.
impl Deref for Engine {
    type Target = Core<Rail>;

    #[inline]
    fn deref(&self) -> &Core<Rail> {
        &self.core
    }
}

impl DerefMut for Engine {
    #[inline]
    fn deref_mut(&mut self) -> &mut Core<Rail> {
        &mut self.core
    }
}

/// Nanoseconds on a clock of the host. The coarse one is some milliseconds behind, and cheaper than a message.
fn read(clock: ClockId) -> Nanos {
    let time = clock_gettime(clock);
    time.tv_sec as Nanos * 1_000_000_000 + time.tv_nsec as Nanos
}

/// How long a collective waits for a message before everything else is moved on, too.
struct Soon<'a> {
    looks: u32,
    /// With more processes than cores.
    shared: Option<&'a mut Turns>,
}

impl Patience for Soon<'_> {
    #[inline(always)]
    fn looks(&self) -> u32 {
        self.looks
    }

    #[inline(always)]
    fn again(&mut self, times: u32, is_due: impl FnOnce() -> bool) -> bool {
        self.shared.as_mut().is_some_and(|turns| is_due() && turns.take(times))
    }
}

/// Why a collective operation did not succeed.
#[derive(Debug)]
pub enum Unfinished {
    /// It was not begun, or is over: no message uses its memory.
    Over(CoreError),
    /// This process was excluded by the others. Messages may still use the memory.
    GivenUp,
}
