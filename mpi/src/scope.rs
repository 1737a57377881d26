//! Non-blocking and persistent operations (MPI standard 5.0, 3.7 and 3.9) whose buffers are safe.
//!
//! A request borrows its buffer while the network may use it. A destructor could not enforce that (`mem::forget` is
//! safe), so requests live in a scope, like scoped threads: when [`Comm::scope`] returns, every operation started in it
//! is over, whatever became of the request values.
#![allow(unsafe_code)] // lends memory: see `lend`

use crate::lend::{self, Lent};
use crate::message::{Element, ElementMut, Source, Status, Tag};
use crate::threading::{Handle, Single, Threading, Ticket};
use crate::{Comm, Error, Result};
use ironweave_core::{PersistentId, TaskId};
use ironweave_pml::ob1::{self, Mode, ReqId, Started};
use std::cell::RefCell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use zerocopy::IntoBytes as _;

/// Where non-blocking operations live. Made by [`Comm::scope`].
///
/// ```
/// let world = ironweave::World::init()?;
/// let comm = world.comm();
/// let me = comm.rank();
/// let mut inbox = [0u32; 3];
/// comm.scope(|scope| {
///     let receive = scope.irecv(&mut inbox, me, 1)?;
///     scope.isend(&[1u32, 2, 3], me, 1)?; // the scope's end waits for it
///     let (status, inbox) = receive.finish()?;
///     assert_eq!((status.count::<u32>()?, &inbox[..]), (3, &[1, 2, 3][..]));
///     Ok::<(), ironweave::Error>(())
/// })??;
/// # Ok::<(), ironweave::Error>(())
/// ```
///
/// A buffer that does not live until the end of the scope is refused by the compiler:
///
/// ```compile_fail
/// # let world = ironweave::World::init().unwrap();
/// # let comm = world.comm();
/// comm.scope(|scope| {
///     let mut inbox = [0u32; 3];
///     scope.irecv(&mut inbox, 0, 1).map(std::mem::forget)
/// });
/// ```
pub struct Scope<'scope, 'env: 'scope, T: Threading = Single> {
    comm: &'env Comm<T>,
    open: RefCell<Open<Ticketed<T>>>,
    /// Invariant in both lifetimes, as in `std::thread::Scope`.
    _lifetimes: PhantomData<(&'scope mut &'scope (), &'env mut &'env ())>,
}

/// The ticket of an operation at thread level `T`.
type Ticketed<T> = <<T as Threading>::Handle as Handle>::Ticket;

/// The operations of a scope that nobody saw the end of.
struct Open<K> {
    slots: Vec<Slot<K>>,
    /// The first free slot; beyond the end when there is none.
    free: usize,
}

enum Slot<K> {
    /// Free, and the next free one.
    Free(usize),
    Once(K),
    /// A persistent request, active or not.
    Persistent(ReqId),
    /// A collective operation.
    Task(TaskId),
    /// A persistent collective operation, and its run under way.
    Series(PersistentId, Option<TaskId>),
}

impl<K> Open<K> {
    /// Puts into a free place what `make` makes there: built beside it and copied, it would be read back in wider words than it was
    /// written in, which waits for all stores before (an eighth of what a receiver of short messages does).
    #[inline(always)]
    fn insert(&mut self, make: impl FnOnce() -> Slot<K>) -> usize {
        let index = self.free;
        if let Some(place) = self.slots.get_mut(index)
            && let Slot::Free(next) = *place
        {
            self.free = next;
            *place = make();
            return index;
        }
        self.grow(make())
    }

    #[cold]
    fn grow(&mut self, slot: Slot<K>) -> usize {
        self.slots.push(slot);
        self.free = usize::MAX;
        self.slots.len() - 1
    }

    #[inline]
    fn remove(&mut self, index: usize) {
        self.slots[index] = Slot::Free(self.free);
        self.free = index;
    }
}

impl<'scope, 'env, T: Threading> Scope<'scope, 'env, T> {
    pub(crate) fn run<F, R>(comm: &'env Comm<T>, body: F) -> Result<R>
    where
        F: for<'a> FnOnce(&'a Scope<'a, 'env, T>) -> R,
    {
        let open = RefCell::new(Open { slots: Vec::new(), free: usize::MAX });
        let scope = Scope { comm, open, _lifetimes: PhantomData };
        let outcome = catch_unwind(AssertUnwindSafe(|| body(&scope)));
        let closed = scope.close(outcome.is_err());
        match outcome {
            Ok(value) => closed.map(|()| value),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Waits until every operation is over; after a panic, those that have not matched are cancelled first.
    fn close(&self, cancel: bool) -> Result<()> {
        let slots = std::mem::take(&mut self.open.borrow_mut().slots);
        let mut first = Ok(());
        for slot in &slots {
            let ended = match slot {
                Slot::Free(_) => Ok(()),
                Slot::Once(ticket) => self.end(ticket, cancel),
                Slot::Persistent(request) => self.retire(*request, cancel),
                Slot::Task(task) => self.end_task(*task, cancel),
                Slot::Series(id, run) => self.end_series(*id, *run, cancel),
            };
            first = first.and(ended);
        }
        first
    }

    /// Waits for the end of one operation. A wildcard receive that can only be completed by acknowledging a failure is
    /// cancelled: nobody is left who could acknowledge it.
    fn end(&self, ticket: &Ticketed<T>, cancel: bool) -> Result<()> {
        let mut pending = Ok(());
        let mut cancel = cancel;
        self.comm.handle().wait(|engine| {
            let started = ticket.started()?;
            if let (true, Ok(Started::Pending(request))) = (cancel, &started) {
                engine.pml.cancel(*request);
                cancel = false;
            }
            match ticket.poll(engine)? {
                Err(Error::ProcFailedPending) => {
                    pending = Err(Error::ProcFailedPending);
                    if let Ok(Started::Pending(request)) = started {
                        engine.pml.cancel(request);
                    }
                    None
                }
                ended => Some(pending.clone().and(ended.map(drop))),
            }
        })
    }

    /// Waits for the end of a collective operation. After a panic the others may wait for what this process will not do any
    /// more: then the communicator is revoked, which ends it everywhere.
    fn end_task(&self, task: TaskId, revoke: bool) -> Result<()> {
        if revoke {
            self.comm.revoke()?;
        }
        self.comm.handle().complete(task).map(drop)
    }

    /// Remembers a collective operation until somebody has seen its end; its place.
    pub(crate) fn keep(&self, task: TaskId) -> usize {
        self.open.borrow_mut().insert(|| Slot::Task(task))
    }

    /// Remembers a persistent collective operation until it is freed; its place.
    pub(crate) fn keep_persistent(&self, id: PersistentId) -> usize {
        self.open.borrow_mut().insert(|| Slot::Series(id, None))
    }

    /// Notes whether a run of it is under way.
    pub(crate) fn runs(&self, place: usize, id: PersistentId, run: Option<TaskId>) {
        self.open.borrow_mut().slots[place] = Slot::Series(id, run);
    }

    /// Waits for the end of the run of a persistent collective operation, as `end_task` does, and removes it.
    fn end_series(&self, id: PersistentId, run: Option<TaskId>, revoke: bool) -> Result<()> {
        let ended = run.map_or(Ok(()), |task| self.end_task(task, revoke));
        self.comm.handle().with(|engine| {
            engine.collective_free(id);
            Ok(())
        })?;
        ended
    }

    /// Its end was seen.
    pub(crate) fn forget(&self, place: usize) {
        self.open.borrow_mut().remove(place);
    }

    /// The communicator of the scope's operations.
    pub(crate) fn comm(&self) -> &'env Comm<T> {
        self.comm
    }

    /// Waits for the end of a persistent request's activity, and removes it.
    fn retire(&self, request: ReqId, cancel: bool) -> Result<()> {
        let mut cancel = cancel;
        let ended = self.comm.handle().wait(|engine| {
            if std::mem::take(&mut cancel) {
                engine.pml.cancel(request);
            }
            let completion = engine.pml.test(request)?;
            match completion.result {
                Err(ob1::PmlError::ProcFailedPending) => {
                    cancel = true;
                    None
                }
                result => Some(result.map_err(Error::from)),
            }
        });
        self.comm.handle().with(|engine| {
            engine.pml.request_free(request);
            Ok(())
        })?;
        ended
    }

    /// Starts a send in standard mode (`MPI_Isend`).
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::InvalidTag`]. A failure of `dest`, known or not, is told when the request is waited
    /// for (seed 003 §17.6.1).
    #[inline]
    pub fn isend<E: Element>(
        &'scope self,
        data: &'scope [E],
        dest: u32,
        tag: i32,
    ) -> Result<Request<'scope, 'env, (), T>> {
        let tag = Tag::check(tag)?;
        let bytes = data.as_bytes();
        if self.comm.handle().send_now(self.comm.id(), bytes, dest, tag) {
            let state = Progress::Done(Status::SENT);
            return Ok(Request { scope: self, state, buffer: Lent::new(()) });
        }
        self.isend_farther(bytes, dest, tag)
    }

    /// Starts a send that is not over at once.
    #[cold]
    #[inline(never)]
    fn isend_farther(
        &'scope self,
        bytes: &'scope [u8],
        dest: u32,
        tag: i32,
    ) -> Result<Request<'scope, 'env, (), T>> {
        let id = self.comm.id();
        let inline = self.comm.handle().with(|engine| {
            engine.listen();
            engine.resolving(|pml| pml.send_inline(id, bytes, dest, tag))
        })?;
        if inline {
            let state = Progress::Done(Status::SENT);
            return Ok(Request { scope: self, state, buffer: Lent::new(()) });
        }
        self.start_send(Mode::Standard, bytes, dest, tag)
    }

    /// Starts a send in synchronous mode (`MPI_Issend`): complete when a receive has matched it.
    ///
    /// # Errors
    /// As [`isend`](Self::isend).
    pub fn issend<E: Element>(
        &'scope self,
        data: &'scope [E],
        dest: u32,
        tag: i32,
    ) -> Result<Request<'scope, 'env, (), T>> {
        self.start_send(Mode::Synchronous, data.as_bytes(), dest, Tag::check(tag)?)
    }

    fn start_send(
        &'scope self,
        mode: Mode,
        bytes: &'scope [u8],
        dest: u32,
        tag: i32,
    ) -> Result<Request<'scope, 'env, (), T>> {
        // SAFETY: `close` waits for the end of the operation before `'scope` ends.
        let data = unsafe { lend::payload(bytes) };
        let ticket = self.comm.handle().send(self.comm.id(), mode, data, dest, tag)?;
        Ok(self.track(ticket, Lent::new(())))
    }

    /// Starts a receive (`MPI_Irecv`).
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::InvalidTag`]. A failure of the source is told when the request is waited for.
    #[inline(always)]
    pub fn irecv<E: ElementMut>(
        &'scope self,
        buffer: &'scope mut [E],
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Request<'scope, 'env, &'scope mut [E], T>> {
        let (source, tag) = (source.into().into(), tag.into().matching()?);
        let mut buffer = Lent::new(buffer);
        // SAFETY: as in `start_send`; and `buffer` is out of everybody's reach until the request ended.
        let into = unsafe { lend::buffer(buffer.get_mut().as_mut_bytes()) };
        let (handle, id) = (self.comm.handle(), self.comm.id());
        if let (ob1::Source::Rank(rank), ob1::TagMatch::Tag(tag)) = (source, tag)
            && let Some(ticket) = handle.recv_now(id, &into, rank, tag)
        {
            return Ok(self.track(ticket, buffer));
        }
        let ticket = handle.recv(id, into, source, tag, false)?;
        Ok(self.track(ticket, buffer))
    }

    /// Remembers an operation until somebody has seen its end.
    #[inline(always)]
    fn track<B>(&'scope self, ticket: Ticketed<T>, buffer: Lent<B>) -> Request<'scope, 'env, B, T> {
        let slot = self.open.borrow_mut().insert(|| Slot::Once(ticket.clone()));
        Request { scope: self, state: Progress::Open(ticket, slot), buffer }
    }

    /// Waits until all requests are complete (`MPI_Waitall`).
    ///
    /// # Errors
    /// The first request's that failed; all others are complete nevertheless.
    pub fn wait_all<B>(
        &'scope self,
        requests: impl IntoIterator<Item = Request<'scope, 'env, B, T>>,
    ) -> Result<()> {
        let mut first = Ok(());
        for mut request in requests {
            first = first.and(request.wait().map(drop));
        }
        first
    }

    /// Waits until one of the requests is complete, takes it out, and tells which it was (`MPI_Waitany`): its former
    /// index, what is known of the message, and the buffer. `None` when there are no requests.
    ///
    /// # Errors
    /// The error of the request that is complete; it is taken out, too, but for
    /// [`Error::ProcFailedPending`]: then it stays.
    #[allow(clippy::type_complexity)]
    pub fn wait_any<B>(
        &'scope self,
        requests: &mut Vec<Request<'scope, 'env, B, T>>,
    ) -> Result<Option<(usize, Status, B)>> {
        if requests.is_empty() {
            return Ok(None);
        }
        let (index, outcome) = self.comm.handle().wait(|engine| {
            requests.iter_mut().enumerate().find_map(|(index, request)| {
                let outcome = match &request.state {
                    Progress::Done(status) => Ok(*status),
                    Progress::Open(ticket, _) => ticket.poll(engine)?,
                };
                Some(Ok((index, outcome)))
            })
        })?;
        requests[index].note(&outcome);
        if outcome == Err(Error::ProcFailedPending) {
            return Err(Error::ProcFailedPending);
        }
        let request = requests.remove(index);
        outcome.map(|status| Some((index, status, request.buffer.into_inner())))
    }

    /// Makes a persistent send in standard mode (`MPI_Send_init`), to be started any number of times.
    ///
    /// # Errors
    /// As [`isend`](Self::isend).
    pub fn send_init<E: Element>(
        &'scope self,
        data: &'scope [E],
        dest: u32,
        tag: i32,
    ) -> Result<Persistent<'scope, 'env, &'scope [E], T>> {
        let tag = Tag::check(tag)?;
        // SAFETY: as in `start_send`; between activities the memory may be read by all.
        let payload = unsafe { lend::payload(data.as_bytes()) };
        let id = self.comm.id();
        let request = self.comm.handle().with(|engine| {
            engine.resolving(|pml| pml.send_init(id, Mode::Standard, payload.clone(), dest, tag))
        })?;
        Ok(self.persistent(request, Lent::new(data)))
    }

    /// Makes a persistent receive (`MPI_Recv_init`), to be started any number of times.
    ///
    /// ```
    /// # let world = ironweave::World::init()?;
    /// # let comm = world.comm();
    /// # let me = comm.rank();
    /// let mut inbox = [0u8];
    /// comm.scope(|scope| {
    ///     let mut receive = scope.recv_init(&mut inbox, me, 0)?;
    ///     for round in 0..3u8 {
    ///         receive.start()?;
    ///         comm.send(&[round], me, 0)?;
    ///         receive.wait()?;
    ///         assert_eq!(receive.buffer(), Some(&[round][..]));
    ///     }
    ///     Ok::<(), ironweave::Error>(())
    /// })??;
    /// # Ok::<(), ironweave::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`irecv`](Self::irecv).
    pub fn recv_init<E: ElementMut>(
        &'scope self,
        buffer: &'scope mut [E],
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Persistent<'scope, 'env, &'scope mut [E], T>> {
        let (source, tag) = (source.into().into(), tag.into().matching()?);
        let mut buffer = Lent::new(buffer);
        // SAFETY: as in `irecv`; between activities the engine does not touch it, and `Persistent::buffer` shows it
        // only then.
        let into = unsafe { lend::buffer(buffer.get_mut().as_mut_bytes()) };
        let id = self.comm.id();
        let request = self
            .comm
            .handle()
            .with(|engine| Ok(engine.pml.recv_init(id, into.into(), source, tag)?))?;
        Ok(self.persistent(request, buffer))
    }

    fn persistent<B>(
        &'scope self,
        request: ReqId,
        buffer: Lent<B>,
    ) -> Persistent<'scope, 'env, B, T> {
        self.open.borrow_mut().insert(|| Slot::Persistent(request));
        Persistent { scope: self, request, active: false, buffer }
    }
}

/// A non-blocking operation under way. Dropping or forgetting it does not end it: the end of the scope does.
#[must_use = "an operation that nobody waits for is over only at the end of the scope"]
pub struct Request<'scope, 'env, B, T: Threading = Single> {
    scope: &'scope Scope<'scope, 'env, T>,
    state: Progress<Ticketed<T>>,
    buffer: Lent<B>,
}

enum Progress<K> {
    /// Under way: the operation, and its place in the scope.
    Open(K, usize),
    /// Over.
    Done(Status),
}

impl<B, T: Threading> Request<'_, '_, B, T> {
    /// Waits for the end of the operation (`MPI_Wait`). Again after the end: the same status.
    ///
    /// # Errors
    /// [`Error::ProcFailed`], [`Error::Truncated`], [`Error::Revoked`] end the operation;
    /// [`Error::ProcFailedPending`] (wildcard receives only) does not: acknowledge the failure and wait again, or cancel.
    #[inline(always)]
    pub fn wait(&mut self) -> Result<Status> {
        // The usual end, apart: what is known of it stays in registers.
        if let Progress::Open(ticket, slot) = &self.state
            && let Some(status) = self.scope.comm.handle().done(ticket)
        {
            self.scope.open.borrow_mut().remove(*slot);
            self.state = Progress::Done(status);
            return Ok(status);
        }
        self.wait_rare()
    }

    fn wait_rare(&mut self) -> Result<Status> {
        let outcome = match &self.state {
            Progress::Done(status) => return Ok(*status),
            Progress::Open(ticket, _) => self.scope.comm.handle().finish(ticket),
        };
        self.note(&outcome);
        self.scope.comm.raise("the wait for a request", outcome)
    }

    /// Whether the operation is over (`MPI_Test`); moves communication forward.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn test(&mut self) -> Result<Option<Status>> {
        let ticket = match &self.state {
            Progress::Done(status) => return Ok(Some(*status)),
            Progress::Open(ticket, _) => ticket,
        };
        let polled = self.scope.comm.handle().with(|engine| {
            let ended = ticket.poll(engine).or_else(|| {
                engine.progress();
                ticket.poll(engine)
            });
            Ok(ended)
        })?;
        match polled {
            None => Ok(None),
            Some(outcome) => {
                self.note(&outcome);
                self.scope.comm.raise("the test of a request", outcome.map(Some))
            }
        }
    }

    /// Waits, and gives the buffer back. A wildcard receive that cannot go on without an acknowledgement is cancelled.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); the operation is over in any case.
    #[inline(always)]
    pub fn finish(self) -> Result<(Status, B)> {
        // The usual end, apart: what is known of it stays in registers.
        if let Progress::Open(ticket, slot) = &self.state
            && let Some(status) = self.scope.comm.handle().done(ticket)
        {
            self.scope.open.borrow_mut().remove(*slot);
            return Ok((status, self.buffer.into_inner()));
        }
        self.finish_rare()
    }

    fn finish_rare(mut self) -> Result<(Status, B)> {
        match self.wait() {
            Err(Error::ProcFailedPending) => {
                self.cancel()?;
                self.wait()?;
                Err(Error::ProcFailedPending)
            }
            outcome => outcome.map(|status| (status, self.buffer.into_inner())),
        }
    }

    /// Cancels a receive (`MPI_Cancel`): it still has to be waited for, and `is_cancelled` of the [`Status`] tells whether it was
    /// in time. Sends are not cancelled (deprecated in MPI 4.0).
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn cancel(&mut self) -> Result<()> {
        let Progress::Open(ticket, _) = &self.state else { return Ok(()) };
        self.scope.comm.handle().wait(|engine| {
            match ticket.started()? {
                Ok(Started::Pending(request)) => engine.pml.cancel(request),
                Ok(Started::Done) | Err(_) => {}
            }
            Some(Ok(()))
        })
    }

    /// Notes how the operation ended, if it did.
    #[inline]
    fn note(&mut self, outcome: &Result<Status>) {
        let status = match outcome {
            Ok(status) => *status,
            Err(Error::ProcFailedPending | Error::Poisoned) => return,
            Err(_) => Status::SENT,
        };
        if let Progress::Open(_, slot) = std::mem::replace(&mut self.state, Progress::Done(status))
        {
            self.scope.open.borrow_mut().remove(slot);
        }
    }
}

/// A persistent operation: its arguments are bound once, then it is started any number of times.
pub struct Persistent<'scope, 'env, B, T: Threading = Single> {
    scope: &'scope Scope<'scope, 'env, T>,
    request: ReqId,
    active: bool,
    buffer: Lent<B>,
}

impl<B, T: Threading> Persistent<'_, '_, B, T> {
    /// Starts it (`MPI_Start`).
    ///
    /// # Errors
    /// [`Error::Transport`] when it is active already. Failures of the peer are told by [`wait`](Self::wait).
    pub fn start(&mut self) -> Result<()> {
        let request = self.request;
        self.scope.comm.handle().with(|engine| engine.resolving(|pml| pml.start(request)))?;
        self.active = true;
        Ok(())
    }

    /// Waits for the end of the current activity; at once when there is none.
    ///
    /// # Errors
    /// As [`Request::wait`].
    pub fn wait(&mut self) -> Result<Status> {
        let request = self.request;
        let outcome = self.scope.comm.handle().wait(|engine| engine.poll(request));
        self.active = matches!(outcome, Err(Error::ProcFailedPending | Error::Poisoned));
        self.scope.comm.raise("the wait for a persistent request", outcome)
    }
}

impl<E, T: Threading> Persistent<'_, '_, &mut [E], T> {
    /// The buffer, between activities.
    #[must_use]
    pub fn buffer(&self) -> Option<&[E]> {
        (!self.active).then(|| &**self.buffer.get())
    }
}
