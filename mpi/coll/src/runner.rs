//! Runs one process's schedule over the PML: begins a round's messages, waits for all of them, does the local work, and
//! so on.
//!
//! Never blocks, never progresses the engine, and knows no clock. On the first error it cancels the receives of the
//! round, begins nothing more, and waits until *every* message it began is over; only then it reports, and lets go of the
//! caller's memory (law 2; seed 000, "Internal request cleanup"). A send to a living process that itself left the
//! operation is over when that process refuses it, which is what an interruption of the communicator's collectives does
//! there. So the owner spreads that interruption as soon as the run is [`failing`](Runner::failing): if all waited for their
//! messages first, those who failed could wait for each other.
#![allow(unsafe_code)] // lends parts of the run's memory to messages, as the checked schedule says

use crate::CollError;
use crate::memory::{Areas, Memory, Spaces, fits};
use crate::op::Reduction;
use crate::schedule::{Schedule, Step, Target};
use ironweave_btl::copy::pack;
use ironweave_btl::memory::RecvRegion;
use ironweave_btl::{Btl, Peer};
use ironweave_pml::ob1::{CommId, Mode, Ob1, Payload, PmlError, ReqId, Source, Started, TagMatch};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// How far a run is.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum Poll {
    /// Messages are under way: progress the engine and poll again.
    Pending,
    /// Give the addresses of this process to [`Ob1::add_peer`], or have it judged, and poll again.
    Resolve(Peer),
    /// The run is over: no message of it is under way, and its memory was given back.
    Ready(Result<(), CollError>),
}

/// Where a run is. Messages may be under way in `Posting`, `Waiting` and `Failing`.
enum State {
    Idle,
    /// The round's messages from `step` on are to be begun.
    Posting {
        round: usize,
        step: usize,
    },
    /// All messages of the round were begun.
    Waiting {
        round: usize,
    },
    /// The outcome is known; messages are still under way.
    Failing(Box<CollError>),
}

/// A message under way.
struct Open {
    request: ReqId,
    with: Target,
    /// Length of a message to receive; [`SENT`] for one that is sent.
    expected: usize,
}

const SENT: usize = usize::MAX;

/// Why a round's messages were not all begun. Behind one word, so that success stays in a register: what is read back from
/// the stack right after a send may have to wait for the way to the receiver's cache.
struct Stop {
    /// The step that was not begun.
    step: usize,
    error: PmlError,
    with: Target,
}

/// How long a run at one go waits for a message.
pub trait Patience {
    /// Looks at the transport in a row.
    fn looks(&self) -> u32;

    /// They were in vain for the `times`-th time: whether to look again, which is of use only where the message `is_due`.
    fn again(&mut self, times: u32, is_due: impl FnOnce() -> bool) -> bool;
}

/// So many looks, once.
impl Patience for u32 {
    #[inline(always)]
    fn looks(&self) -> u32 {
        *self
    }

    #[inline(always)]
    fn again(&mut self, _: u32, _: impl FnOnce() -> bool) -> bool {
        false
    }
}

/// Where a run at one go has stopped.
struct Halt {
    round: usize,
    /// The step that was not begun: a message that does not go out, or has not come yet.
    step: usize,
    /// The message that came is not the one that was due.
    error: Option<Box<CollError>>,
}

impl Stop {
    #[cold]
    fn new(step: usize, error: PmlError, with: Target) -> Box<Stop> {
        Box::new(Stop { step, error, with })
    }
}

/// Receives a message of a run at one go.
#[inline(always)]
fn receive<B: Btl>(
    pml: &mut Ob1<B>,
    comm: CommId,
    region: &RecvRegion,
    from: u32,
    tag: i32,
    patience: &mut impl Patience,
) -> Option<usize> {
    let mut times = 0;
    loop {
        let got = pml.recv_direct(comm, region, from, tag, patience.looks());
        times += 1;
        if got.is_some() || !patience.again(times, || pml.is_due(comm, region, from)) {
            return got;
        }
    }
}

/// Runs a schedule, once or any number of times.
///
/// Dropped during a run, it keeps its scratch memory for ever and leaves the caller's to the messages under way: end runs
/// first.
pub struct Runner {
    schedule: Arc<Schedule>,
    comm: CommId,
    /// For members of the own group of an inter-communicator.
    local: Option<CommId>,
    tag: i32,
    reduction: Option<Reduction>,
    state: State,
    open: SmallVec<[Open; 4]>,
    spaces: Spaces,
}

impl Runner {
    /// For a schedule on a communicator; `local` is the communicator of the own group of an inter-communicator. Allocates
    /// all scratch memory.
    #[must_use]
    pub fn new(schedule: Arc<Schedule>, comm: CommId, local: Option<CommId>) -> Self {
        let spaces = Spaces::new(schedule.sizes().scratch);
        let state = State::Idle;
        Runner {
            schedule,
            comm,
            local,
            tag: 0,
            reduction: None,
            state,
            open: SmallVec::new(),
            spaces,
        }
    }

    /// Begins a run; the first messages go out with the first [`poll`](Self::poll). All processes give the same `tag`, which
    /// no other operation that may run at the same time uses (see [`Context`](crate::Context), which sees to that).
    ///
    /// # Errors
    /// [`CollError::Active`], [`CollError::ShortBuffer`], [`CollError::WrongElements`]: nothing was begun.
    pub fn start(
        &mut self,
        memory: Memory,
        reduction: Option<&Reduction>,
        tag: i32,
    ) -> Result<(), CollError> {
        self.check(&memory, reduction)?;
        self.spaces.lend(memory);
        self.reduction = reduction.cloned();
        self.tag = tag;
        self.state = State::Posting { round: 0, step: 0 };
        Ok(())
    }

    /// Whether a run can begin.
    #[inline(always)]
    fn check(&self, memory: &Memory, reduction: Option<&Reduction>) -> Result<(), CollError> {
        if !matches!(self.state, State::Idle) {
            return Err(CollError::Active);
        }
        let sizes = self.schedule.sizes();
        let got = reduction.map_or(0, Reduction::extent);
        if sizes.extent != 0 && got != sizes.extent {
            return Err(CollError::WrongElements { expected: sizes.extent, got });
        }
        fits(memory, sizes).map_err(|(which, needed, got)| CollError::ShortBuffer {
            which,
            needed,
            got,
        })
    }

    /// As [`start`](Self::start); and runs at one go, as long as each message goes out at once or comes while `patience` lasts;
    /// nothing else is moved on. `true`: the run is over, and nothing of it was kept. `false`: poll.
    ///
    /// # Errors
    /// As `start`.
    #[inline(always)]
    pub(crate) fn start_at_one_go<B: Btl>(
        &mut self,
        pml: &mut Ob1<B>,
        memory: &Memory,
        reduction: Option<&Reduction>,
        tag: i32,
        mut patience: impl Patience,
    ) -> Result<bool, CollError> {
        self.check(memory, reduction)?;
        match self.at_one_go(pml, self.spaces.with(memory), reduction, tag, &mut patience) {
            None => Ok(true),
            Some(halt) => {
                self.go_on(halt, memory.again(), reduction, tag);
                Ok(false)
            }
        }
    }

    /// The common way of [`start_at_one_go`](Self::start_at_one_go): where it stops, nothing is under way.
    #[inline(always)]
    fn at_one_go<B: Btl>(
        &self,
        pml: &mut Ob1<B>,
        areas: Areas<'_>,
        reduction: Option<&Reduction>,
        tag: i32,
        patience: &mut impl Patience,
    ) -> Option<Halt> {
        for round in 0..self.schedule.len() {
            let steps = self.schedule.round(round);
            for (step, send) in steps.sends.iter().enumerate() {
                let Step::Send { to, from } = *send else { continue };
                // SAFETY: nothing is under way, and the region is gone before anything is written.
                let data = unsafe { areas.outgoing(from) };
                let out = self
                    .comm_of(to)
                    .is_some_and(|comm| pml.send_direct(comm, data.as_slice(), to.rank(), tag));
                if !out {
                    return Some(Halt { round, step, error: None });
                }
            }
            for (step, recv) in (steps.sends.len()..).zip(steps.recvs) {
                let Step::Recv { from, into } = *recv else { continue };
                // SAFETY: nothing is under way, and the region is gone before anything else uses these bytes.
                let region = unsafe { areas.incoming(into) };
                let got = self
                    .comm_of(from)
                    .and_then(|comm| receive(pml, comm, &region, from.rank(), tag, patience));
                match got {
                    Some(got) if got == into.len() => {}
                    Some(got) => {
                        let (rank, expected) = (from.rank(), into.len());
                        let error = Box::new(CollError::Mismatch { rank, expected, got });
                        return Some(Halt { round, step, error: Some(error) });
                    }
                    None => return Some(Halt { round, step, error: None }),
                }
            }
            // SAFETY: no message is under way.
            unsafe { work(areas, reduction, steps.local) };
        }
        None
    }

    /// The rest of a run takes the general way.
    #[cold]
    fn go_on(&mut self, halt: Halt, memory: Memory, reduction: Option<&Reduction>, tag: i32) {
        let Halt { round, step, error } = halt;
        self.spaces.lend(memory);
        self.reduction = reduction.cloned();
        self.tag = tag;
        self.state = match error {
            None => State::Posting { round, step },
            Some(error) => State::Failing(error),
        };
    }

    /// The communicator on which a process is reached.
    #[inline(always)]
    fn comm_of(&self, with: Target) -> Option<CommId> {
        if with.is_local() { self.local } else { Some(self.comm) }
    }

    /// Whether a run was begun and is not over.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        !matches!(self.state, State::Idle)
    }

    /// Bytes of scratch memory.
    pub(crate) fn scratch(&self) -> usize {
        self.schedule.sizes().scratch
    }

    /// Moves the run on as far as it goes now. An idle runner is ready.
    #[inline]
    pub fn poll<B: Btl>(&mut self, pml: &mut Ob1<B>) -> Poll {
        if self.is_waiting(pml) { Poll::Pending } else { self.advance(pml) }
    }

    /// Looks for what the messages under way wait for, where they are read ([`Ob1::attend`]), within `turns` looks; whether something was
    /// there. Whoever waits for the run calls this and [`poll`](Self::poll) in turns with the engine's progress.
    #[inline]
    pub fn attend<B: Btl>(&self, pml: &mut Ob1<B>, turns: u32) -> bool {
        // One look each where there are several, for whichever comes first.
        let turns = if self.open.len() > 1 { 0 } else { turns };
        matches!(self.state, State::Waiting { .. })
            && self.open.iter().any(|open| pml.attend(open.request, turns))
    }

    /// Why the run cannot succeed, while messages of it are still under way. They may wait for members that wait for others in
    /// their turn: so the owner spreads the interruption now, not when all of them are over.
    #[inline]
    #[must_use]
    pub fn failing(&self) -> Option<&CollError> {
        match &self.state {
            State::Failing(error) => Some(error),
            State::Idle | State::Posting { .. } | State::Waiting { .. } => None,
        }
    }

    /// Whether messages are under way and none of them is over: the usual answer, in few instructions.
    #[inline]
    fn is_waiting<B: Btl>(&self, pml: &Ob1<B>) -> bool {
        matches!(self.state, State::Waiting { .. })
            && !self.open.is_empty()
            && !self.open.iter().any(|open| pml.is_complete(open.request))
    }

    #[inline(never)]
    fn advance<B: Btl>(&mut self, pml: &mut Ob1<B>) -> Poll {
        loop {
            match self.state {
                State::Idle => return Poll::Ready(Ok(())),
                State::Posting { round, .. } if round == self.schedule.len() => {
                    self.end();
                    return Poll::Ready(Ok(()));
                }
                State::Posting { round, step } => match self.post(pml, round, step) {
                    Ok(()) => {
                        self.state = State::Waiting { round };
                        // Nothing arrives before the engine is progressed; what came before is over.
                        if self.is_waiting(pml) {
                            return Poll::Pending;
                        }
                    }
                    Err(stop) => match *stop {
                        Stop { step, error: PmlError::Unresolved(peer), .. } => {
                            self.state = State::Posting { round, step };
                            return Poll::Resolve(peer);
                        }
                        Stop { error, with, .. } => self.fail(pml, because(error, with)),
                    },
                },
                State::Waiting { round } => match self.settle(pml) {
                    Err(error) => self.fail(pml, *error),
                    Ok(()) if !self.open.is_empty() => return Poll::Pending,
                    Ok(()) => {
                        self.work(round);
                        self.state = State::Posting { round: round + 1, step: 0 };
                    }
                },
                State::Failing(_) => {
                    // Only that they are over is of interest now.
                    while self.settle(pml).is_err() {}
                    if !self.open.is_empty() {
                        return Poll::Pending;
                    }
                    let State::Failing(error) = self.end() else { continue };
                    return Poll::Ready(Err(*error));
                }
            }
        }
    }

    /// Ends a run from outside with this error, because the owner knows that it cannot succeed. [`poll`](Self::poll) tells
    /// when it is over.
    pub fn fail<B: Btl>(&mut self, pml: &mut Ob1<B>, error: CollError) {
        match self.state {
            State::Idle | State::Failing(_) => {}
            State::Posting { .. } | State::Waiting { .. } => {
                // Sends run on: what a peer does with its message is for the peer to know (law 5).
                for open in self.open.iter().filter(|open| open.expected != SENT) {
                    pml.cancel(open.request);
                }
                self.state = State::Failing(error.into());
            }
        }
    }

    /// No message is under way: the caller's memory is its own again.
    fn end(&mut self) -> State {
        debug_assert!(self.open.is_empty());
        self.spaces.give_back();
        std::mem::replace(&mut self.state, State::Idle)
    }

    /// Begins the messages of a round from `first` on. Sends go out first: nothing arrives before the engine is progressed,
    /// so receives are in time, and the peers need not wait for our posting them.
    #[inline]
    fn post<B: Btl>(
        &mut self,
        pml: &mut Ob1<B>,
        round: usize,
        first: usize,
    ) -> Result<(), Box<Stop>> {
        let steps = self.schedule.round(round);
        let (ours, sent, tag) = ([Some(self.comm), self.local], steps.sends.len(), self.tag);
        let comm_of = |with: Target| ours[usize::from(with.is_local())];
        let areas = self.spaces.areas();
        for (index, step) in steps.sends.iter().enumerate().skip(first) {
            let Step::Send { to, from } = *step else { continue };
            let Some(comm) = comm_of(to) else {
                return Err(Stop::new(index, PmlError::InvalidComm, to));
            };
            // SAFETY: the messages of this round write nothing of `from`, by the check of the schedule, and local
            // work waits until the message is over.
            let data = unsafe { areas.outgoing(from) };
            // The usual short message; whatever else there is to say comes from `send`.
            if pml.send_direct(comm, data.as_slice(), to.rank(), tag) {
                continue;
            }
            match pml.send(comm, Mode::Standard, &Payload::Contiguous(data), to.rank(), tag) {
                Ok(Started::Done) => {}
                Ok(Started::Pending(request)) => {
                    self.open.push(Open { request, with: to, expected: SENT });
                }
                Err(error) => return Err(Stop::new(index, error, to)),
            }
        }
        for (index, step) in steps.recvs.iter().enumerate().skip(first.saturating_sub(sent)) {
            let Step::Recv { from, into } = *step else { continue };
            let Some(comm) = comm_of(from) else {
                return Err(Stop::new(sent + index, PmlError::InvalidComm, from));
            };
            // SAFETY: no other message of this round uses `into`, and local work waits, as above.
            let region = unsafe { areas.incoming(into) };
            let (source, matching) = (Source::Rank(from.rank()), TagMatch::Tag(tag));
            match pml.recv_into(comm, region, source, matching, true) {
                Ok(request) => self.open.push(Open { request, with: from, expected: into.len() }),
                Err(error) => return Err(Stop::new(sent + index, error, from)),
            }
        }
        Ok(())
    }

    /// Takes the messages that are over off the list; stops at one that failed.
    #[inline]
    fn settle<B: Btl>(&mut self, pml: &mut Ob1<B>) -> Result<(), Box<CollError>> {
        let mut at = 0;
        while at < self.open.len() {
            let Open { request, with, expected } = self.open[at];
            let got = if let Some(status) = pml.take_done(request) {
                status.bytes
            } else if pml.is_complete(request)
                && let Some(completion) = pml.test(request)
            {
                if let Err(error) = completion.result {
                    self.open.swap_remove(at);
                    return Err(because(error, with).into());
                }
                completion.status.bytes
            } else {
                at += 1;
                continue;
            };
            self.open.swap_remove(at);
            if got != expected && expected != SENT {
                return Err(Box::new(CollError::Mismatch { rank: with.rank(), expected, got }));
            }
        }
        Ok(())
    }

    /// The local steps of a round whose messages are over.
    #[inline]
    fn work(&mut self, round: usize) {
        debug_assert!(self.open.is_empty());
        let steps = self.schedule.round(round).local;
        // SAFETY: no message is under way.
        unsafe { work(self.spaces.areas(), self.reduction.as_ref(), steps) };
    }
}

/// Does local steps.
///
/// # Safety
/// No message of the run is under way.
#[inline(always)]
unsafe fn work(areas: Areas<'_>, reduction: Option<&Reduction>, steps: &[Step]) {
    for step in steps {
        match *step {
            // SAFETY: this function's contract.
            Step::Copy { from, into } => unsafe {
                areas.local(from, into, |from, into| pack(into, from));
            },
            Step::Reduce { from, into } => {
                let Some(reduction) = reduction else { continue };
                // SAFETY: this function's contract.
                unsafe { areas.local(from, into, |from, into| reduction.apply(from, into)) };
            }
            Step::Send { .. } | Step::Recv { .. } => {}
        }
    }
}

/// The error of a message as that of the operation.
fn because(error: PmlError, with: Target) -> CollError {
    if with.is_local() { CollError::Local(error) } else { CollError::Pml(error) }
}

impl Drop for Runner {
    fn drop(&mut self) {
        if !self.open.is_empty() {
            self.spaces.leak();
        }
    }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.schedule.len();
        match &self.state {
            State::Idle => write!(f, "idle, {of} rounds")?,
            State::Posting { round, step } => write!(f, "round {round} of {of}, step {step}")?,
            State::Waiting { round } => write!(f, "round {round} of {of}")?,
            State::Failing(error) => write!(f, "failing ({error})")?,
        }
        for open in &self.open {
            let way = if open.expected == SENT { "to" } else { "from" };
            write!(f, ", waits for a message {way} {:?}", open.with)?;
        }
        Ok(())
    }
}
