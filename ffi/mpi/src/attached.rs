//! Buffers that users attach for buffered sends, to the process, a communicator or a session (MPI 5.0, §3.6).
//!
//! A message under way is kept in memory of the library's; the user's buffer says how many bytes may be kept at a time. A message
//! takes its own length of it, and gives that back when it is out: no program that is right is refused, and one that counts on
//! more than it attached hears `MPI_ERR_BUFFER`. Which session a communicator came from is not known: the buffers of all sessions
//! serve all communicators that have none of their own.

use crate::comm::{self, Comm};
use crate::prelude::*;
use crate::process::Inside;
use crate::request::{self, Ended, Operation, Request};
use ironweave_pml::ob1::Payload;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A buffer that the user attached for buffered sends.
pub struct Attached {
    /// Its address.
    start: usize,
    /// Its length in bytes.
    len: i64,
    /// Bytes of messages under way.
    held: Arc<AtomicUsize>,
}

impl Attached {
    fn room(&self, bytes: usize) -> Option<Room> {
        let size = match self.start {
            MPI_BUFFER_AUTOMATIC => usize::MAX,
            _ => self.len as usize,
        };
        let more = |held: usize| held.checked_add(bytes).filter(|held| *held <= size);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Room { held: Arc::clone(&self.held), bytes })
    }

    /// Gives it back to the user.
    ///
    /// # Safety
    /// Both are valid.
    pub(crate) unsafe fn give<C: WriteCount>(
        attached: Option<Attached>,
        buffer_addr: *mut c_void,
        size: *mut C,
    ) {
        let (start, len) = attached.map_or((0, 0), |attached| (attached.start, attached.len));
        // SAFETY: this function's contract.
        unsafe {
            buffer_addr.cast::<usize>().write(start);
            size.write(WriteCount::narrow(len));
        }
    }
}

/// What a message takes of a buffer while it is under way.
struct Room {
    held: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A message under way.
struct Kept {
    bytes: Vec<u8>,
    _room: Room,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The buffers of sessions, by handle.
static OF_SESSIONS: Mutex<Vec<(MPI_Session, Attached)>> = Mutex::new(Vec::new());

/// The buffers of sessions.
fn of_sessions() -> MutexGuard<'static, Vec<(MPI_Session, Attached)>> {
    OF_SESSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Copies a message for a buffered send over a communicator.
///
/// # Errors
/// `MPI_ERR_BUFFER`: nothing is attached, or not enough is free.
pub(crate) fn keep(inside: &Inside, there: &Comm, payload: &Payload) -> Result<Payload> {
    let bytes = payload.len();
    let own = there.state().attached.as_ref().map(|attached| attached.room(bytes));
    let room = own.unwrap_or_else(|| {
        let theirs = of_sessions().iter().find_map(|(_, attached)| attached.room(bytes));
        theirs.or_else(|| inside.attached.as_ref()?.room(bytes))
    });
    let room = room.ok_or_else(|| {
        let text = format!("no buffer is attached that has {bytes} bytes free for this message");
        fail(MPI_ERR_BUFFER, text)
    })?;
    Ok(Payload::owned(Kept { bytes: payload.to_vec(), _room: room }))
}

/// A buffer to attach.
fn attached(start: usize, len: i64) -> Result<Attached> {
    if len < 0 {
        return Err(fail(MPI_ERR_ARG, format!("the buffer's size is {len}, which is negative")));
    }
    Ok(Attached { start, len, held: Arc::default() })
}

fn twice() -> Fail {
    fail(MPI_ERR_BUFFER, "a buffer is attached already")
}

/// Attaches a buffer where none is.
fn attach_to(at: &mut Option<Attached>, start: usize, len: i64) -> Result<()> {
    let new = attached(start, len)?;
    if at.is_some() {
        return Err(twice());
    }
    *at = Some(new);
    Ok(())
}

/// Attaches a buffer to a session that has none.
pub(crate) fn attach_to_session(session: MPI_Session, start: usize, len: i64) -> Result<()> {
    let new = attached(start, len)?;
    let mut all = of_sessions();
    if all.iter().any(|(of, _)| *of == session) {
        return Err(twice());
    }
    all.push((session, new));
    Ok(())
}

/// Takes the buffer of a session, once what is in it is out.
pub(crate) fn detach_from_session(session: MPI_Session) -> Result<Option<Attached>> {
    flush(&held_of_session(session))?;
    let mut all = of_sessions();
    let at = all.iter().position(|(of, _)| *of == session);
    Ok(at.map(|at| all.swap_remove(at).1))
}

/// Bytes of messages under way in a buffer; `None`: no buffer.
type Held = Option<Arc<AtomicUsize>>;

fn held(attached: Option<&Attached>) -> Held {
    attached.map(|attached| Arc::clone(&attached.held))
}

/// What the messages in a session's buffer hold.
pub(crate) fn held_of_session(session: MPI_Session) -> Held {
    held(of_sessions().iter().find(|(of, _)| *of == session).map(|(_, attached)| attached))
}

fn is_empty(held: &Held) -> bool {
    held.as_ref().is_none_or(|held| held.load(Ordering::Relaxed) == 0)
}

/// Waits until every message in a buffer is out, or its receiver has failed.
pub(crate) fn flush(held: &Held) -> Result<()> {
    process::wait(|_| is_empty(held).then_some(Ok(())))
}

/// [`flush`] as a request.
pub(crate) fn iflush(held: Held, comm: MPI_Comm) -> Result<MPI_Request> {
    let mut inside = process::enter()?;
    Ok(inside.requests.insert(comm, Request::Other(Box::new(Flush(held)), true)))
}

struct Flush(Held);

impl Operation for Flush {
    fn poll(&mut self, _: &mut Inside) -> Option<Ended> {
        is_empty(&self.0).then(|| Ended::well(MPI_Status::EMPTY))
    }

    fn free(self: Box<Self>, _: &mut Inside) -> Result<Option<request::After>> {
        Ok(None)
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// What the messages in the process's buffer hold.
fn held_of_process() -> Result<Held> {
    Ok(held(process::enter()?.attached.as_ref()))
}

fn held_of_comm(comm: MPI_Comm) -> Result<Held> {
    Ok(held(comm::get(comm)?.state().attached.as_ref()))
}

mpi! {
    fn MPI_Buffer_attach / MPI_Buffer_attach_c(buffer: *mut c_void, size: Count) on none {
        attach_to(&mut process::enter()?.attached, buffer as usize, size.wide())
    }

    fn MPI_Buffer_detach / MPI_Buffer_detach_c(buffer_addr: *mut c_void, size: *mut Count) on none {
        flush(&held_of_process()?)?;
        let attached = process::enter()?.attached.take();
        // SAFETY: the caller's results.
        unsafe { Attached::give(attached, buffer_addr, size) };
        Ok(())
    }

    fn MPI_Buffer_flush() on none {
        flush(&held_of_process()?)
    }

    fn MPI_Buffer_iflush(request: *mut MPI_Request) on none {
        // SAFETY: the caller's result.
        unsafe { request.write(iflush(held_of_process()?, MPI_COMM_SELF)?) };
        Ok(())
    }

    fn MPI_Comm_attach_buffer / MPI_Comm_attach_buffer_c(comm: MPI_Comm, buffer: *mut c_void, size: Count) on comm {
        let there = comm::get(comm)?;
        let mut state = there.state();
        attach_to(&mut state.attached, buffer as usize, size.wide())
    }

    fn MPI_Comm_detach_buffer / MPI_Comm_detach_buffer_c(comm: MPI_Comm, buffer_addr: *mut c_void, size: *mut Count) on comm {
        flush(&held_of_comm(comm)?)?;
        let attached = comm::get(comm)?.state().attached.take();
        // SAFETY: the caller's results.
        unsafe { Attached::give(attached, buffer_addr, size) };
        Ok(())
    }

    fn MPI_Comm_flush_buffer(comm: MPI_Comm) on comm {
        flush(&held_of_comm(comm)?)
    }

    fn MPI_Comm_iflush_buffer(comm: MPI_Comm, request: *mut MPI_Request) on comm {
        // SAFETY: the caller's result.
        unsafe { request.write(iflush(held_of_comm(comm)?, comm)?) };
        Ok(())
    }
}
