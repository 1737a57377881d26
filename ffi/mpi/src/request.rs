//! Requests (MPI 5.0, §3.7 and 3.9): their table, and what it is to poll, start, cancel and free one. Waiting for several is in
//! [`crate::completion`].
//!
//! The table is inside with the engine: whoever has a request in hand is alone. Sends that were over at once share one
//! handle, [`SENT`], and have no entry. A callback of the user's that an ending calls for runs outside ([`Ended::after`]).

use crate::prelude::*;
use crate::process::Inside;
use crate::{handle, status};
use ironweave_core::{Output, TaskId};
use ironweave_pml::ob1::{ReqId, Status};

/// Sends that were over when they began.
pub const SENT: MPI_Request = MPI_Request(0x181);

/// What an ending has to do with the engine free: it may write the status.
pub type After = Box<dyn FnOnce(&mut MPI_Status) -> Result<()> + Send>;

/// The end of an operation.
pub struct Ended {
    /// What is known of the message.
    pub status: MPI_Status,
    /// How it ended.
    pub result: Result<()>,
    /// Has to run once, outside, before the caller hears of the ending.
    pub after: Option<After>,
    /// The request goes on: a wildcard receive that has only told of a failure.
    pub pending: bool,
}

impl Ended {
    /// With this status and no error.
    #[must_use]
    pub fn well(status: MPI_Status) -> Ended {
        Ended { status, result: Ok(()), after: None, pending: false }
    }

    /// As an operation without a message ends.
    #[must_use]
    pub fn with(result: Result<()>) -> Ended {
        Ended { result, ..Ended::well(MPI_Status::EMPTY) }
    }

    /// As a request of the PML's ended.
    #[must_use]
    pub fn of(ended: std::result::Result<Status, ironweave::Error>) -> Ended {
        match ended {
            Ok(status) => Ended::well(status.into()),
            Err(error) => Ended::badly(MPI_Status::EMPTY, error),
        }
    }

    /// As a message ended, of which something may be known that did not go well: whose it was, when it was too long.
    #[must_use]
    pub fn of_message(
        ended: (ironweave::Status, std::result::Result<(), ironweave::Error>),
    ) -> Ended {
        let (status, result) = ended;
        match result {
            Ok(()) => Ended::well((*status).into()),
            Err(error) => Ended::badly((*status).into(), error),
        }
    }

    #[cold]
    fn badly(status: MPI_Status, error: ironweave::Error) -> Ended {
        let pending = error == ironweave::Error::ProcFailedPending;
        Ended { pending, result: Err(error.into()), ..Ended::well(status) }
    }
}

/// An operation of any other kind: what requests need of it.
pub trait Operation: Send {
    /// Its end, once; `None` while it is under way. Called only while it is active.
    fn poll(&mut self, inside: &mut Inside) -> Option<Ended>;

    /// Begins a run of a persistent operation (`MPI_Start`), which is inactive.
    fn start(&mut self, inside: &mut Inside) -> Result<()> {
        let _ = inside;
        Err(fail(MPI_ERR_REQUEST, "the request is not persistent"))
    }

    /// Whether it stays after its end, inactive, to be started again.
    fn is_persistent(&self) -> bool {
        false
    }

    /// Whether somebody has to poll it while it is active, since the engine does not know of it.
    fn is_chore(&self) -> bool {
        false
    }

    /// `MPI_Cancel`.
    fn cancel(&mut self, inside: &mut Inside) -> Result<()> {
        let _ = inside;
        Err(fail(MPI_ERR_REQUEST, "operations of this kind cannot be cancelled"))
    }

    /// `MPI_Request_free`: nobody will ask any more; memory that messages under way use has to stay.
    fn free(self: Box<Self>, inside: &mut Inside) -> Result<Option<After>>;

    /// For chapters that look for their own operations behind a handle.
    fn as_any(&mut self) -> &mut dyn std::any::Any;
}

/// What a handle stands for.
pub enum Request {
    /// A receive or a send of the PML's.
    Message(ReqId),
    /// A persistent send or receive of the PML's, and whether it is active.
    Persistent(ReqId, bool),
    /// An operation of the core's.
    Task(TaskId, Land),
    /// Anything else, and whether it is active.
    Other(Box<dyn Operation>, bool),
    /// It is being polled.
    Out,
}

/// What becomes of the output of a task: runs inside; what it answers runs outside.
pub type Land = Box<dyn FnOnce(&mut Inside, Output) -> Result<Option<After>> + Send>;

struct Slot {
    generation: u32,
    comm: MPI_Comm,
    request: Option<Request>,
}

/// All requests.
#[derive(Default)]
pub struct Requests {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Requests {
    /// A handle for a request of an operation on `comm`.
    #[inline]
    pub fn insert(&mut self, comm: MPI_Comm, request: Request) -> MPI_Request {
        let index = match self.free.pop() {
            Some(index) => {
                let slot = &mut self.slots[index as usize];
                slot.comm = comm;
                // Free slots hold nothing: nothing to drop.
                std::mem::forget(slot.request.replace(request));
                index
            }
            None => self.add(comm, request),
        };
        let generation = self.slots[index as usize].generation as usize;
        MPI_Request(generation << 32 | (handle::FIRST + index) as usize)
    }

    /// As [`insert`](Requests::insert), for a message: built in its place. Moved there it was read back in other pieces than it had
    /// been written in, which waits until the stores before it are in the cache: a tenth of the time of a receiver of short messages.
    #[inline(always)]
    pub fn insert_message(&mut self, comm: MPI_Comm, id: ReqId) -> MPI_Request {
        if let Some(&index) = self.free.last()
            && let slot = &mut self.slots[index as usize]
            && let vacant @ None = &mut slot.request
        {
            *vacant = Some(Request::Message(id));
            slot.comm = comm;
            self.free.truncate(self.free.len() - 1);
            return MPI_Request(
                (slot.generation as usize) << 32 | (handle::FIRST + index) as usize,
            );
        }
        self.insert(comm, Request::Message(id))
    }

    #[cold]
    #[inline(never)]
    fn add(&mut self, comm: MPI_Comm, request: Request) -> u32 {
        self.slots.push(Slot { generation: 1, comm, request: Some(request) });
        // So that freeing never allocates.
        self.free.reserve(self.slots.len());
        self.slots.len() as u32 - 1
    }

    /// Where the message of a handle is, if it is one.
    #[inline(always)]
    fn message(&self, request: MPI_Request) -> Option<(usize, ReqId)> {
        let index = (request.0 as u32).checked_sub(handle::FIRST)? as usize;
        let slot = self.slots.get(index)?;
        match slot.request {
            Some(Request::Message(id)) if slot.generation == (request.0 >> 32) as u32 => {
                Some((index, id))
            }
            _ => None,
        }
    }

    /// Frees the slot of a message.
    #[inline(always)]
    fn free_message(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.generation = slot.generation.wrapping_add(1).max(1);
        // A message holds nothing that has to be dropped.
        std::mem::forget(slot.request.take());
        self.free.push(index as u32);
    }

    #[inline]
    fn index(&self, request: MPI_Request) -> Option<usize> {
        let index = (request.0 as u32).checked_sub(handle::FIRST)? as usize;
        let slot = self.slots.get(index)?;
        (slot.generation == (request.0 >> 32) as u32 && slot.request.is_some()).then_some(index)
    }

    /// What a handle stands for, and its communicator.
    ///
    /// # Errors
    /// `MPI_ERR_REQUEST`.
    #[inline]
    pub fn get(&mut self, request: MPI_Request) -> Result<(&mut Request, MPI_Comm)> {
        let index = self.index(request).ok_or_else(|| unknown(request))?;
        let slot = &mut self.slots[index];
        match &mut slot.request {
            Some(found) => Ok((found, slot.comm)),
            None => Err(unknown(request)),
        }
    }

    /// Whether there is a request on a communicator.
    pub(crate) fn any_of(&self, comm: MPI_Comm) -> bool {
        self.slots.iter().any(|slot| slot.request.is_some() && slot.comm == comm)
    }

    /// The handle of a Fortran handle.
    #[must_use]
    pub fn of_fortran(&self, low: u32) -> Option<MPI_Request> {
        let slot = self.slots.get(low.checked_sub(handle::FIRST)? as usize)?;
        slot.request.as_ref()?;
        Some(MPI_Request((slot.generation as usize) << 32 | low as usize))
    }

    /// Takes a request out: its handle is void.
    #[inline]
    pub fn remove(&mut self, request: MPI_Request) -> Option<Request> {
        let index = self.index(request)?;
        let slot = &mut self.slots[index];
        slot.generation = slot.generation.wrapping_add(1).max(1);
        self.free.push(index as u32);
        slot.request.take()
    }

    /// Requests in use.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

/// No request has this handle.
#[cold]
#[must_use]
pub fn unknown(request: MPI_Request) -> Fail {
    fail(MPI_ERR_REQUEST, format!("{:#x} is no request", request.0))
}

/// What polling a handle tells.
pub enum Polled {
    /// It is `MPI_REQUEST_NULL`, or inactive.
    Inactive,
    /// It is under way.
    Pending,
    /// It has ended: the handle is void, or inactive, now, unless it is pending still.
    Ended(Ended),
}

/// What [`glance`] sees.
pub enum Glance {
    /// It is over and went well; the handle is void now.
    Over(Status),
    /// It is under way.
    Pending,
    /// Something else: nothing was done; ask [`poll`].
    Rare,
}

/// The short cut of [`poll`] for what waits see mostly: sends that were over when they began, and receives. One look at the
/// table, and nothing is moved around.
#[inline(always)]
pub fn glance(inside: &mut Inside, handle: &mut MPI_Request) -> Glance {
    if *handle == SENT {
        *handle = MPI_REQUEST_NULL;
        return Glance::Over(Status::EMPTY);
    }
    let Some((index, id)) = inside.requests.message(*handle) else { return Glance::Rare };
    match inside.engine.pml.take_done(id) {
        Some(status) => {
            inside.requests.free_message(index);
            *handle = MPI_REQUEST_NULL;
            Glance::Over(status)
        }
        None if inside.engine.pml.is_complete(id) => Glance::Rare,
        None => {
            inside.awaited = Some(id);
            Glance::Pending
        }
    }
}

/// Looks at a request, and ends it where it is over. Does not drive the engine.
///
/// # Errors
/// `MPI_ERR_REQUEST`.
#[inline]
pub fn poll(inside: &mut Inside, handle: &mut MPI_Request) -> Result<Polled> {
    match *handle {
        MPI_REQUEST_NULL => return Ok(Polled::Inactive),
        SENT => {
            *handle = MPI_REQUEST_NULL;
            return Ok(Polled::Ended(Ended::well(MPI_Status::EMPTY)));
        }
        _ => {}
    }
    let (request, comm) = inside.requests.get(*handle)?;
    if let Request::Message(id) = *request {
        let Some(ended) = inside.engine.poll_message(id) else {
            inside.awaited = Some(id);
            return Ok(Polled::Pending);
        };
        let mut ended = Ended::of_message(ended);
        if ended.pending {
            ended.result = ended.result.map_err(|error| error.on(comm));
            return Ok(Polled::Ended(ended));
        }
        inside.requests.remove(*handle);
        *handle = MPI_REQUEST_NULL;
        ended.result = ended.result.map_err(|error| error.on(comm));
        return Ok(Polled::Ended(ended));
    }
    poll_other(inside, handle)
}

#[cold]
fn poll_other(inside: &mut Inside, handle: &mut MPI_Request) -> Result<Polled> {
    let (place, comm) = inside.requests.get(*handle)?;
    let mut request = std::mem::replace(place, Request::Out);
    let (polled, stays) = poll_taken(inside, &mut request);
    let polled = match polled {
        Polled::Ended(ended) => {
            let result = ended.result.map_err(|error| error.on(comm));
            Polled::Ended(Ended { result, ..ended })
        }
        other => other,
    };
    if stays {
        let (place, _) = inside.requests.get(*handle)?;
        *place = request;
    } else {
        inside.requests.remove(*handle);
        *handle = MPI_REQUEST_NULL;
    }
    Ok(polled)
}

/// Polls a request that was taken out; answers whether it stays in the table.
fn poll_taken(inside: &mut Inside, request: &mut Request) -> (Polled, bool) {
    match request {
        Request::Message(_) | Request::Out => (Polled::Pending, true),
        Request::Persistent(_, false) | Request::Other(_, false) => (Polled::Inactive, true),
        Request::Persistent(id, active) => match inside.engine.poll_message(*id) {
            None => (Polled::Pending, true),
            Some(ended) => {
                let ended = Ended::of_message(ended);
                *active = ended.pending;
                (Polled::Ended(ended), true)
            }
        },
        Request::Other(operation, active) => match operation.poll(inside) {
            None => (Polled::Pending, true),
            Some(ended) => {
                *active = ended.pending;
                (Polled::Ended(ended), operation.is_persistent() || *active)
            }
        },
        Request::Task(task, _) => match inside.engine.test(*task) {
            None => (Polled::Pending, true),
            Some(Err(error)) => (Polled::Ended(Ended::with(Err(error.into()))), false),
            Some(Ok(output)) => {
                let Request::Task(_, land) = std::mem::replace(request, Request::Out) else {
                    unreachable!("it was a task above");
                };
                let (result, after) = match land(inside, output) {
                    Ok(after) => (Ok(()), after),
                    Err(error) => (Err(error), None),
                };
                (Polled::Ended(Ended { after, ..Ended::with(result) }), false)
            }
        },
    }
}

/// What a request would tell whoever waits for it now.
pub enum Seen {
    /// Nothing yet.
    Pending,
    /// It is over.
    Over(MPI_Status),
    /// A failure or a revocation ended it, or it is a wildcard receive that tells of a failure and goes on.
    Interrupted(MPI_Status),
}

impl Seen {
    fn of(ended: &Ended) -> Seen {
        match &ended.result {
            Err(error) if error.is_interruption() => Seen::Interrupted(ended.status),
            _ => Seen::Over(ended.status),
        }
    }
}

/// Whether a request is over, without ending it: `MPI_Request_get_status`. `Some` is the status.
///
/// # Errors
/// `MPI_ERR_REQUEST`.
pub fn peek(inside: &mut Inside, handle: MPI_Request) -> Result<Option<MPI_Status>> {
    Ok(match look(inside, handle)? {
        Seen::Pending => None,
        Seen::Over(status) | Seen::Interrupted(status) => Some(status),
    })
}

/// As [`peek`], and tells interruptions apart.
///
/// # Errors
/// `MPI_ERR_REQUEST`.
pub fn look(inside: &mut Inside, handle: MPI_Request) -> Result<Seen> {
    if matches!(handle, MPI_REQUEST_NULL | SENT) {
        return Ok(Seen::Over(MPI_Status::EMPTY));
    }
    // What ends here stays, as an operation that has ended, until somebody waits for it.
    let (place, _) = inside.requests.get(handle)?;
    if let Request::Other(operation, true) = place
        && let Some(over) = operation.as_any().downcast_ref::<Over>()
    {
        return Ok(over.ended.as_ref().map_or(Seen::Over(over.status), Seen::of));
    }
    let (place, _) = inside.requests.get(handle)?;
    let mut request = std::mem::replace(place, Request::Out);
    let (polled, stays) = match request {
        Request::Message(id) => match inside.engine.poll_message(id) {
            None => (Polled::Pending, true),
            Some(ended) => {
                let ended = Ended::of_message(ended);
                let pending = ended.pending;
                (Polled::Ended(ended), pending)
            }
        },
        _ => poll_taken(inside, &mut request),
    };
    let (request, seen) = match polled {
        Polled::Inactive => (request, Seen::Over(MPI_Status::EMPTY)),
        Polled::Pending => (request, Seen::Pending),
        // It goes on, and says so again when it is asked.
        Polled::Ended(ended) if ended.pending => (request, Seen::of(&ended)),
        Polled::Ended(ended) => {
            let seen = Seen::of(&ended);
            let inner = stays.then(|| Box::new(request));
            (Request::Other(Box::new(Over::new(ended, inner)), true), seen)
        }
    };
    let (place, _) = inside.requests.get(handle)?;
    *place = request;
    Ok(seen)
}

/// What a non-blocking call answers that did not begin: a failure, or a revocation, is told by the request's end, as if it had come
/// a moment later; anything else by the call itself.
pub fn deferred(
    inside: &mut Inside,
    comm: MPI_Comm,
    begun: Result<Request>,
) -> Result<MPI_Request> {
    match begun {
        Ok(request) => Ok(inside.requests.insert(comm, request)),
        Err(error) if error.is_interruption() => {
            let over = Over::new(Ended::with(Err(error)), None);
            Ok(inside.requests.insert(comm, Request::Other(Box::new(over), true)))
        }
        Err(error) => Err(error),
    }
}

/// An operation whose end was seen, but not told.
struct Over {
    status: MPI_Status,
    ended: Option<Ended>,
    /// A persistent request, inactive: what stays.
    inner: Option<Box<Request>>,
}

impl Over {
    fn new(ended: Ended, inner: Option<Box<Request>>) -> Over {
        Over { status: ended.status, ended: Some(ended), inner }
    }
}

impl Operation for Over {
    fn poll(&mut self, _: &mut Inside) -> Option<Ended> {
        self.ended.take()
    }

    fn start(&mut self, inside: &mut Inside) -> Result<()> {
        match &mut self.inner {
            Some(request) => start_taken(inside, request),
            None => Err(fail(MPI_ERR_REQUEST, "the request is not persistent")),
        }
    }

    fn is_persistent(&self) -> bool {
        self.inner.is_some()
    }

    fn cancel(&mut self, _: &mut Inside) -> Result<()> {
        Ok(())
    }

    fn free(self: Box<Self>, inside: &mut Inside) -> Result<Option<After>> {
        match self.inner {
            Some(request) => free_taken(inside, *request),
            None => Ok(self.ended.and_then(|ended| ended.after)),
        }
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// Whether the end of an operation was seen by [`peek`], and it stands there in its place.
pub fn is_over(operation: &dyn std::any::Any) -> bool {
    operation.is::<Over>()
}

/// Polls active requests that nobody else moves on.
#[cold]
pub fn attend(inside: &mut Inside) {
    let mut chores = std::mem::take(&mut inside.chores);
    // One that was freed, or is being polled just now, needs nobody else.
    chores.retain(|handle| matches!(peek(inside, *handle), Ok(None)));
    inside.chores.append(&mut chores);
}

/// Begins a run of a persistent request.
///
/// # Errors
/// `MPI_ERR_REQUEST` when it is none, or active; those of the operation.
pub fn start(inside: &mut Inside, handle: MPI_Request) -> Result<()> {
    if matches!(handle, MPI_REQUEST_NULL | SENT) {
        return Err(unknown(handle));
    }
    let (place, comm) = inside.requests.get(handle)?;
    let mut request = std::mem::replace(place, Request::Out);
    // An ending that was seen and told leaves the request itself.
    if let Request::Other(operation, false) = &mut request
        && let Some(over) = operation.as_any().downcast_mut::<Over>()
        && let Some(inner) = over.inner.take()
    {
        request = *inner;
    }
    let started = start_taken(inside, &mut request);
    if let (Ok(()), Request::Other(operation, _)) = (&started, &request)
        && operation.is_chore()
    {
        inside.chores.push(handle);
    }
    let (place, _) = inside.requests.get(handle)?;
    *place = request;
    started.map_err(|error| error.on(comm))
}

fn start_taken(inside: &mut Inside, request: &mut Request) -> Result<()> {
    match request {
        Request::Persistent(_, true) | Request::Other(_, true) => {
            Err(fail(MPI_ERR_REQUEST, "the request is active"))
        }
        Request::Persistent(id, active) => {
            inside.engine.resolving(|pml| pml.start(*id))?;
            *active = true;
            Ok(())
        }
        Request::Other(operation, active) => {
            operation.start(inside)?;
            *active = true;
            Ok(())
        }
        Request::Message(_) | Request::Task(..) | Request::Out => {
            Err(fail(MPI_ERR_REQUEST, "the request is not persistent"))
        }
    }
}

/// Marks a request for freeing: its operation goes on, and nobody will ask.
///
/// # Errors
/// `MPI_ERR_REQUEST`.
pub fn free(inside: &mut Inside, handle: MPI_Request) -> Result<Option<After>> {
    match handle {
        SENT => Ok(None),
        _ => {
            if let (Request::Task(..), comm) = inside.requests.get(handle)? {
                let text =
                    "requests of collective operations cannot be freed while they are active";
                return Err(fail(MPI_ERR_REQUEST, text).on(comm));
            }
            let request = inside.requests.remove(handle).ok_or_else(|| unknown(handle))?;
            free_taken(inside, request)
        }
    }
}

fn free_taken(inside: &mut Inside, request: Request) -> Result<Option<After>> {
    match request {
        Request::Message(id) | Request::Persistent(id, _) => inside.engine.pml.request_free(id),
        // Its memory goes with the request (§6.12).
        Request::Task(task, land) => {
            inside.engine.detach(task);
            std::mem::forget(land);
        }
        Request::Other(operation, _) => return operation.free(inside),
        Request::Out => {}
    }
    Ok(None)
}

/// Rounds of progress in which a process answers itself: a message to be dropped is asked for, found, and reported.
const ROUNDS_TO_ITSELF: u32 = 4;

/// Cancels a send or receive. What becomes of a send to this process itself is known when this returns: its answer needs nobody else,
/// and programs that do not wait before they receive again do not meet a half of what they cancelled.
fn cancel_message(inside: &mut Inside, request: ReqId) {
    inside.engine.pml.cancel(request);
    for _ in 0..ROUNDS_TO_ITSELF {
        if inside.engine.pml.is_complete(request) {
            return;
        }
        inside.progress();
    }
}

mpi! {
    fn MPI_Request_free(request: *mut MPI_Request) on none {
        // SAFETY: the caller's handle.
        let request = unsafe { &mut *request };
        if *request == MPI_REQUEST_NULL {
            return Err(unknown(*request));
        }
        let after = free(&mut *process::enter()?, *request)?;
        *request = MPI_REQUEST_NULL;
        match after {
            Some(after) => after(&mut MPI_Status::EMPTY.clone()),
            None => Ok(()),
        }
    }

    fn MPI_Cancel(request: *mut MPI_Request) on none {
        // SAFETY: the caller's handle.
        let handle = unsafe { *request };
        let mut inside = process::enter()?;
        if handle == SENT {
            return Ok(()); // it has been sent
        }
        if let Some(cancel) = crate::generalized::cancel(&mut inside, handle) {
            drop(inside);
            return cancel();
        }
        let (place, comm) = inside.requests.get(handle)?;
        let mut request = std::mem::replace(place, Request::Out);
        let answer = match &mut request {
            Request::Message(id) | Request::Persistent(id, true) => {
                cancel_message(&mut inside, *id);
                Ok(())
            }
            Request::Other(operation, true) => operation.cancel(&mut inside),
            Request::Persistent(..) | Request::Other(..) => {
                Err(fail(MPI_ERR_REQUEST, "the request is not active"))
            }
            Request::Task(..) | Request::Out => {
                Err(fail(MPI_ERR_REQUEST, "operations of this kind cannot be cancelled"))
            }
        };
        let (place, _) = inside.requests.get(handle)?;
        *place = request;
        answer.map_err(|error| error.on(comm))
    }

    fn MPI_Start(request: *mut MPI_Request) on none {
        // SAFETY: the caller's handle.
        start(&mut *process::enter()?, unsafe { *request })
    }

    fn MPI_Startall(count: c_int, requests: *mut MPI_Request) on none {
        let count = crate::count::count("count", count)?;
        let mut inside = process::enter()?;
        // SAFETY: the caller's array.
        (0..count).try_for_each(|index| start(&mut inside, unsafe { *requests.add(index) }))
    }

    fn MPI_Request_get_status(request: MPI_Request, flag: *mut c_int, out: *mut MPI_Status) on none {
        let mut inside = process::enter()?;
        let mut seen = peek(&mut inside, request)?;
        if seen.is_none() {
            inside.progress();
            seen = peek(&mut inside, request)?;
        }
        drop(inside);
        // SAFETY: the caller's results.
        unsafe {
            flag.write(c_int::from(seen.is_some()));
            if let Some(seen) = seen {
                status::give(|| seen, out);
            }
        }
        Ok(())
    }

    fn MPI_Test_cancelled(status: *const MPI_Status, flag: *mut c_int) on none {
        // SAFETY: the caller's status and result.
        unsafe { flag.write(c_int::from((*status).is_cancelled())) };
        Ok(())
    }

    fn MPI_Status_set_cancelled(status: *mut MPI_Status, flag: c_int) on ever {
        // SAFETY: the caller's status.
        unsafe { (*status).set_cancelled(flag != 0) };
        Ok(())
    }
}
