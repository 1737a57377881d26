//! Thread levels (MPI standard 5.0, 11.6): who may call the engine when.
//!
//! [`Single`] has no lock anywhere: its handles cannot leave their thread. With [`Multiple`], any thread may call. One
//! thread at a time drives the engine; an operation of another thread is put in a queue (crossbeam's) and started by
//! whoever drives it next, so that nobody waits for a lock to start one, and every waiting thread drives the engine when
//! it is free.

use crate::engine::{Crowd, Engine, Idle, Unfinished};
use crate::message::Status;
use crate::{Error, Result};
use crossbeam_queue::SegQueue;
use ironweave_btl::memory::RecvRegion;
use ironweave_coll::{Call, Memory, Reduction};
use ironweave_core::{CommHandle, Output, TaskId};
use ironweave_pml::ob1::{CommId, Mode, Payload, Source, Started, TagMatch};
use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock, TryLockError};

/// An operation that can wait in the queue of [`Multiple`].
enum Operation {
    Send { comm: CommId, mode: Mode, data: Payload, dest: u32, tag: i32 },
    Recv { comm: CommId, into: RecvRegion, source: Source, tag: TagMatch, blocking: bool },
}

impl Operation {
    fn start(self, engine: &mut Engine) -> Result<Started> {
        match self {
            Operation::Send { comm, mode, data, dest, tag } => {
                engine.resolving(|pml| pml.send(comm, mode, &data, dest, tag))
            }
            Operation::Recv { comm, into, source, tag, blocking } => {
                let request = engine.pml.recv_into(comm, into, source, tag, blocking)?;
                Ok(Started::Pending(request))
            }
        }
    }
}

/// A thread level. Sealed: [`Single`] and [`Multiple`] are all there is.
pub trait Threading: sealed::Sealed + Sized + 'static {
    /// What holds the engine.
    #[doc(hidden)]
    type Handle: Handle;
}

/// One thread uses the world: no lock, no atomic instruction. Handles are neither `Send` nor `Sync`.
#[derive(Debug)]
pub struct Single;

/// Any thread may use the world at any time (`MPI_THREAD_MULTIPLE`).
#[derive(Debug)]
pub struct Multiple;

impl Threading for Single {
    type Handle = SingleHandle;
}

impl Threading for Multiple {
    type Handle = MultipleHandle;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Single {}
    impl Sealed for super::Multiple {}
}

/// How the engine is reached.
#[doc(hidden)]
pub trait Handle: Clone {
    /// An operation that was handed over.
    type Ticket: Ticket;

    fn new(engine: Engine) -> Self;

    /// Runs `call` on the engine; waits for the engine when another thread drives it. After a panic inside the engine
    /// nobody gets at it any more: memory lent to it is then out of its reach for good.
    fn with<R>(&self, call: impl FnOnce(&mut Engine) -> Result<R>) -> Result<R>;

    /// Starts a send now, or hands it to the thread that drives the engine.
    fn send(
        &self,
        comm: CommId,
        mode: Mode,
        data: Payload,
        dest: u32,
        tag: i32,
    ) -> Result<Self::Ticket>;

    /// Starts a receive now, or hands it to the thread that drives the engine.
    fn recv(
        &self,
        comm: CommId,
        into: RecvRegion,
        source: Source,
        tag: TagMatch,
        blocking: bool,
    ) -> Result<Self::Ticket>;

    /// Sends a short message that goes out at once, without a request: whether it did. If not, nothing was done.
    fn send_now(&self, comm: CommId, data: &[u8], dest: u32, tag: i32) -> bool;

    /// Posts a receive from one source with one tag, where nothing is out of the ordinary and no such message is here. `None`: nothing
    /// was done.
    fn recv_now(
        &self,
        comm: CommId,
        into: &RecvRegion,
        source: u32,
        tag: i32,
    ) -> Option<Self::Ticket>;

    /// Receives a message that comes soon, without a request: its length. `None`: nothing was done.
    fn recv_soon(&self, comm: CommId, into: &RecvRegion, source: u32, tag: i32) -> Option<usize>;

    /// The end of a receive that is over without an error; `None` says nothing. Does not drive the engine.
    fn done(&self, ticket: &Self::Ticket) -> Option<Status>;

    /// Drives the engine to the end of an operation.
    fn finish(&self, ticket: &Self::Ticket) -> Result<Status>;

    /// Drives the engine until `done` has an answer.
    fn wait<R>(&self, done: impl FnMut(&mut Engine) -> Option<Result<R>>) -> Result<R>;

    /// Runs a collective operation to its end.
    fn collect(
        &self,
        comm: CommHandle,
        call: &Call,
        memory: Memory,
        reduction: Option<&Reduction>,
    ) -> Result<()> {
        let begun = self.with(|engine| {
            engine.listen();
            Ok(engine.blocking_collective(comm, call, &memory, reduction, 0)?)
        })?;
        let Some(mut collective) = begun else { return Ok(()) };
        self.wait(|engine| {
            let clock = engine.clock();
            collective.poll(engine, clock).map(|ended| ended.map_err(Error::from))
        })
    }

    /// Drives the engine to the end of an operation of the core.
    fn complete(&self, task: TaskId) -> Result<Output> {
        self.wait(|engine| engine.test(task).map(|ended| ended.map_err(Error::from)))
    }
}

/// An operation that was handed over: started, or in the queue.
#[doc(hidden)]
pub trait Ticket: Clone {
    /// How the operation was started; `None` while it is in the queue.
    fn started(&self) -> Option<Result<Started>>;

    /// The end of the operation; `None` while it is under way.
    #[inline]
    fn poll(&self, engine: &mut Engine) -> Option<Result<Status>> {
        match self.started()? {
            Ok(Started::Pending(request)) => engine.poll(request),
            Ok(Started::Done) => Some(Ok(Status::SENT)),
            Err(error) => Some(Err(error)),
        }
    }
}

impl Ticket for Started {
    #[inline]
    fn started(&self) -> Option<Result<Started>> {
        Some(Ok(*self))
    }
}

/// The ticket of [`Multiple`].
#[doc(hidden)]
#[derive(Clone)]
pub enum Posting {
    Started(Started),
    Queued(Arc<OnceLock<Result<Started>>>),
}

impl Ticket for Posting {
    fn started(&self) -> Option<Result<Started>> {
        match self {
            Posting::Started(started) => Some(Ok(*started)),
            Posting::Queued(slot) => slot.get().cloned(),
        }
    }
}

/// The handle of [`Single`].
#[doc(hidden)]
#[derive(Clone)]
pub struct SingleHandle(Rc<RefCell<Guarded>>);

/// The engine, and whether a call may go into it.
struct Guarded {
    engine: Engine,
    /// Set while a call is under way; a panic leaves it set, and so does the end of this process's membership.
    entered: bool,
}

impl Guarded {
    /// A call has left.
    #[inline(always)]
    fn leave(&mut self) {
        self.entered = self.engine.is_fenced();
    }

    #[cold]
    fn refusal(&self) -> Error {
        if self.engine.is_fenced() { Error::Fenced } else { Error::Poisoned }
    }
}

impl SingleHandle {
    /// Enters the engine; the caller says when it has left.
    #[inline(always)]
    fn enter(&self) -> Result<RefMut<'_, Guarded>> {
        let mut guarded = self.0.borrow_mut();
        if guarded.entered {
            return Err(guarded.refusal());
        }
        guarded.entered = true;
        Ok(guarded)
    }
}

impl Handle for SingleHandle {
    type Ticket = Started;

    fn new(engine: Engine) -> Self {
        SingleHandle(Rc::new(RefCell::new(Guarded { engine, entered: false })))
    }

    #[inline(always)]
    fn with<R>(&self, call: impl FnOnce(&mut Engine) -> Result<R>) -> Result<R> {
        let mut guarded = self.enter()?;
        let answer = call(&mut guarded.engine);
        guarded.leave();
        answer
    }

    #[inline(always)]
    fn send(
        &self,
        comm: CommId,
        mode: Mode,
        data: Payload,
        dest: u32,
        tag: i32,
    ) -> Result<Started> {
        self.with(|engine| engine.resolving(|pml| pml.send(comm, mode, &data, dest, tag)))
    }

    // The next four are spelled out, not made of `with`: their arguments and results stay in registers, which halves what a
    // short receive costs.

    #[inline(always)]
    fn recv(
        &self,
        comm: CommId,
        into: RecvRegion,
        source: Source,
        tag: TagMatch,
        blocking: bool,
    ) -> Result<Started> {
        let mut guarded = self.enter()?;
        let request = guarded.engine.pml.recv_into(comm, into, source, tag, blocking);
        guarded.leave();
        match request {
            Ok(request) => Ok(Started::Pending(request)),
            Err(error) => Err(error.into()),
        }
    }

    #[inline(always)]
    fn send_now(&self, comm: CommId, data: &[u8], dest: u32, tag: i32) -> bool {
        let Ok(mut guarded) = self.enter() else { return false };
        guarded.engine.listen();
        let out = guarded.engine.pml.send_direct(comm, data, dest, tag);
        guarded.leave();
        out
    }

    #[inline(always)]
    fn recv_now(&self, comm: CommId, into: &RecvRegion, source: u32, tag: i32) -> Option<Started> {
        let mut guarded = self.enter().ok()?;
        let whole = into.part(0..into.len());
        let posted = guarded.engine.pml.recv_exact(comm, whole, source, tag);
        guarded.leave();
        posted.map(Started::Pending)
    }

    #[inline(always)]
    fn recv_soon(&self, comm: CommId, into: &RecvRegion, source: u32, tag: i32) -> Option<usize> {
        let mut guarded = self.enter().ok()?;
        let received = guarded.engine.recv_soon(comm, into, source, tag);
        guarded.leave();
        received
    }

    #[inline(always)]
    fn done(&self, ticket: &Started) -> Option<Status> {
        let Started::Pending(request) = *ticket else { return None };
        let mut guarded = self.0.borrow_mut();
        // Entered without a note: this changes nothing before its last check has passed.
        if guarded.entered { None } else { guarded.engine.pml.take_done(request).map(Status::from) }
    }

    #[inline(always)]
    fn finish(&self, ticket: &Started) -> Result<Status> {
        let Started::Pending(request) = *ticket else { return Ok(Status::SENT) };
        let mut guarded = self.enter()?;
        let ended = guarded.engine.wait_for(request);
        guarded.leave();
        ended
    }

    #[inline(always)]
    fn wait<R>(&self, done: impl FnMut(&mut Engine) -> Option<Result<R>>) -> Result<R> {
        self.with(|engine| engine.wait(done))
    }

    #[inline]
    fn collect(
        &self,
        comm: CommHandle,
        call: &Call,
        memory: Memory,
        reduction: Option<&Reduction>,
    ) -> Result<()> {
        self.with(|engine| match engine.collect(comm, call, &memory, reduction) {
            Ok(()) => Ok(()),
            Err(unfinished) => Err(match *unfinished {
                Unfinished::Over(error) => error.into(),
                Unfinished::GivenUp => Error::Fenced,
            }),
        })
    }
}

/// The handle of [`Multiple`].
#[doc(hidden)]
#[derive(Clone)]
pub struct MultipleHandle(Arc<Shared>);

struct Shared {
    /// Poisoned by a panic inside the engine, which is how nobody gets at it any more.
    engine: Mutex<Engine>,
    posted: SegQueue<Posted>,
    crowd: Crowd,
    spin: u32,
    cores: u32,
}

struct Posted {
    operation: Operation,
    slot: Arc<OnceLock<Result<Started>>>,
}

impl Shared {
    fn start(&self, operation: Operation) -> Result<Posting> {
        match self.engine.try_lock() {
            Ok(engine) if engine.is_fenced() => Err(Error::Fenced),
            Ok(mut engine) => {
                self.drain(&mut engine);
                operation.start(&mut engine).map(Posting::Started)
            }
            Err(TryLockError::WouldBlock) => {
                let slot = Arc::new(OnceLock::new());
                self.posted.push(Posted { operation, slot: Arc::clone(&slot) });
                Ok(Posting::Queued(slot))
            }
            Err(TryLockError::Poisoned(_)) => Err(Error::Poisoned),
        }
    }

    /// Starts what other threads posted, in the order in which each posted it.
    fn drain(&self, engine: &mut Engine) {
        while let Some(Posted { operation, slot }) = self.posted.pop() {
            let started = operation.start(engine);
            // The poster keeps its own slot and nobody else fills it.
            let _ = slot.set(started);
        }
    }
}

impl Handle for MultipleHandle {
    type Ticket = Posting;

    fn new(engine: Engine) -> Self {
        let (spin, cores) = (engine.spin, engine.cores);
        MultipleHandle(Arc::new(Shared {
            engine: Mutex::new(engine),
            posted: SegQueue::new(),
            crowd: Crowd::new(),
            spin,
            cores,
        }))
    }

    fn with<R>(&self, call: impl FnOnce(&mut Engine) -> Result<R>) -> Result<R> {
        let mut engine = self.0.engine.lock().map_err(|_| Error::Poisoned)?;
        if engine.is_fenced() {
            return Err(Error::Fenced);
        }
        self.0.drain(&mut engine);
        call(&mut engine)
    }

    fn send(
        &self,
        comm: CommId,
        mode: Mode,
        data: Payload,
        dest: u32,
        tag: i32,
    ) -> Result<Posting> {
        self.0.start(Operation::Send { comm, mode, data, dest, tag })
    }

    fn recv(
        &self,
        comm: CommId,
        into: RecvRegion,
        source: Source,
        tag: TagMatch,
        blocking: bool,
    ) -> Result<Posting> {
        self.0.start(Operation::Recv { comm, into, source, tag, blocking })
    }

    #[inline(always)]
    fn send_now(&self, _: CommId, _: &[u8], _: u32, _: i32) -> bool {
        false
    }

    #[inline(always)]
    fn recv_now(&self, _: CommId, _: &RecvRegion, _: u32, _: i32) -> Option<Posting> {
        None
    }

    #[inline(always)]
    fn recv_soon(&self, _: CommId, _: &RecvRegion, _: u32, _: i32) -> Option<usize> {
        None
    }

    fn done(&self, _: &Posting) -> Option<Status> {
        None
    }

    fn finish(&self, ticket: &Posting) -> Result<Status> {
        self.wait(|engine| ticket.poll(engine))
    }

    fn wait<R>(&self, mut done: impl FnMut(&mut Engine) -> Option<Result<R>>) -> Result<R> {
        let mut idle = Idle::new(self.0.spin, crate::open::watchdog());
        let mut place = self.0.crowd.alone();
        loop {
            let events = match self.0.engine.try_lock() {
                Ok(engine) if engine.is_fenced() => return Err(Error::Fenced),
                Ok(mut engine) => {
                    self.0.drain(&mut engine);
                    if let Some(answer) = done(&mut engine) {
                        return answer;
                    }
                    idle.suit(engine.spin);
                    engine.progress()
                }
                Err(TryLockError::WouldBlock) => {
                    place.join();
                    idle.defer();
                    0
                }
                Err(TryLockError::Poisoned(_)) => return Err(Error::Poisoned),
            };
            match events {
                0 => {
                    if self.0.crowd.exceeds(self.0.cores) {
                        idle.hurry();
                    }
                    if idle.pause() {
                        self.with(|engine| {
                            engine.dump_to_stderr();
                            Ok(())
                        })?;
                    }
                }
                _ => idle.reset(),
            }
        }
    }
}
