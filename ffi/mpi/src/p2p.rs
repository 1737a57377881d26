//! Point-to-point communication (MPI 5.0, chapter 3): sends in all modes, receives, and both at once; blocking, non-blocking and
//! persistent. Buffers that users attach for buffered sends are in `attached.rs`.

use crate::prelude::*;
use crate::process::Inside;
use crate::request::{Ended, Operation, Request, SENT};
use crate::{attached, comm, data, request, status};
use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_pml::ob1::{self, Buffer, MessageId, Mode, Payload, Source, Started, TagMatch};

/// The tag of a send.
#[inline(always)]
fn sending_tag(tag: c_int) -> Result<c_int> {
    if tag < 0 { Err(wrong_tag(tag)) } else { Ok(tag) }
}

/// Which tag a receive takes.
#[inline(always)]
pub(crate) fn matching(tag: c_int) -> Result<TagMatch> {
    match tag {
        0.. => Ok(TagMatch::Tag(tag)),
        MPI_ANY_TAG => Ok(TagMatch::Any),
        _ => Err(wrong_tag(tag)),
    }
}

#[cold]
fn wrong_tag(tag: c_int) -> Fail {
    fail(MPI_ERR_TAG, format!("the tag is {tag}; tags are 0 to {}", c_int::MAX))
}

#[cold]
pub(crate) fn wrong_rank(what: &str, rank: c_int, there: &comm::Comm) -> Fail {
    let peers = there.peers();
    fail(MPI_ERR_RANK, format!("the {what} is {rank}, and the communicator has {peers} ranks"))
}

/// The rank of a destination; `None` for `MPI_PROC_NULL`.
#[inline(always)]
fn destination(rank: c_int, there: &comm::Comm) -> Result<Option<u32>> {
    if (rank as u32) < there.peers() {
        return Ok(Some(rank as u32));
    }
    if rank == MPI_PROC_NULL { Ok(None) } else { Err(wrong_rank("destination", rank, there)) }
}

/// Where to receive from; `None` for `MPI_PROC_NULL`.
#[inline(always)]
pub(crate) fn source(rank: c_int, there: &comm::Comm) -> Result<Option<Source>> {
    if (rank as u32) < there.peers() {
        return Ok(Some(Source::Rank(rank as u32)));
    }
    match rank {
        MPI_ANY_SOURCE => Ok(Some(Source::Any)),
        MPI_PROC_NULL => Ok(None),
        _ => Err(wrong_rank("source", rank, there)),
    }
}

/// An operation with `MPI_PROC_NULL`: nothing to do, but a revoked communicator refuses it like any other.
#[cold]
pub(crate) fn nobody(there: &comm::Comm) -> Result<()> {
    if process::enter()?.engine.is_revoked(there.core)? {
        return Err(Fail::from(ironweave::Error::Revoked));
    }
    Ok(())
}

/// What a send's arguments are, whatever its kind.
struct Sending {
    there: &'static comm::Comm,
    payload: Payload,
    /// `None`: `MPI_PROC_NULL`.
    dest: Option<u32>,
    tag: c_int,
}

/// # Safety
/// As [`data::payload`].
#[inline(always)]
unsafe fn sending(
    buf: *const c_void,
    count: i64,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    comm: MPI_Comm,
) -> Result<Sending> {
    let there = comm::get(comm)?;
    let dest = destination(dest, there)?;
    let tag = sending_tag(tag)?;
    // SAFETY: this function's contract.
    let payload = unsafe { data::payload(buf, count, datatype)? };
    Ok(Sending { there, payload, dest, tag })
}

/// Begins a send.
#[inline(always)]
fn begin(inside: &mut Inside, mode: Mode, send: &Sending, dest: u32) -> Result<Started> {
    if matches!(mode, Mode::Buffered) {
        return begin_buffered(inside, send.there, &send.payload, dest, send.tag);
    }
    let (p2p, tag) = (send.there.p2p, send.tag);
    Ok(inside.engine.resolving(|pml| pml.send(p2p, mode, &send.payload, dest, tag))?)
}

/// Copies a message into what the user attached for it, and begins its send.
fn begin_buffered(
    inside: &mut Inside,
    there: &comm::Comm,
    payload: &Payload,
    dest: u32,
    tag: c_int,
) -> Result<Started> {
    let kept = attached::keep(inside, there, payload)?;
    Ok(inside.engine.resolving(|pml| pml.send(there.p2p, Mode::Buffered, &kept, dest, tag))?)
}

#[inline(always)]
fn send(mode: Mode, send: Result<Sending>) -> Result<()> {
    let send = send?;
    let Some(dest) = send.dest else { return nobody(send.there) };
    let mut inside = process::enter()?;
    inside.engine.listen();
    match begin(&mut inside, mode, &send, dest)? {
        Started::Done => Ok(()),
        Started::Pending(id) => process::finish(id, inside).map(drop),
    }
}

#[inline(always)]
fn isend(mode: Mode, send: Result<Sending>, comm: MPI_Comm) -> Result<MPI_Request> {
    let send = send?;
    let Some(dest) = send.dest else {
        return match nobody(send.there) {
            Ok(()) => Ok(SENT),
            Err(error) => request::deferred(&mut *process::enter()?, comm, Err(error)),
        };
    };
    let mut inside = process::enter()?;
    match begin(&mut inside, mode, &send, dest) {
        Ok(Started::Done) => Ok(SENT),
        Ok(Started::Pending(id)) => Ok(inside.requests.insert(comm, Request::Message(id))),
        Err(error) => request::deferred(&mut inside, comm, Err(error)),
    }
}

fn send_init(mode: Mode, send: Result<Sending>, comm: MPI_Comm) -> Result<MPI_Request> {
    let send = send?;
    let mut inside = process::enter()?;
    let Some(dest) = send.dest else { return Ok(nothing(&mut inside, comm)) };
    if matches!(mode, Mode::Buffered) {
        let again =
            BufferedAgain { comm, payload: send.payload, dest, tag: send.tag, failed: None };
        return Ok(inside.requests.insert(comm, Request::Other(Box::new(again), false)));
    }
    let (p2p, tag) = (send.there.p2p, send.tag);
    let id = inside.engine.pml.send_init(p2p, mode, send.payload, dest, tag)?;
    Ok(inside.requests.insert(comm, Request::Persistent(id, false)))
}

/// A persistent send in buffered mode: each run takes room of its own.
struct BufferedAgain {
    /// The communicator, which may be freed before this.
    comm: MPI_Comm,
    payload: Payload,
    dest: u32,
    tag: c_int,
    /// The run did not end well when it began: the engine says why.
    failed: Option<ob1::ReqId>,
}

impl Operation for BufferedAgain {
    fn poll(&mut self, inside: &mut Inside) -> Option<Ended> {
        let Some(id) = self.failed else { return Some(Ended::with(Ok(()))) };
        let ended = inside.engine.poll(id)?;
        self.failed = None;
        Some(Ended::of(ended.map(|status| *status)))
    }

    fn start(&mut self, inside: &mut Inside) -> Result<()> {
        let there = comm::get(self.comm)?;
        let begun = begin_buffered(inside, there, &self.payload, self.dest, self.tag)?;
        self.failed = match begun {
            Started::Done => None,
            Started::Pending(id) => Some(id),
        };
        Ok(())
    }

    fn is_persistent(&self) -> bool {
        true
    }

    fn free(self: Box<Self>, inside: &mut Inside) -> Result<Option<request::After>> {
        if let Some(id) = self.failed {
            inside.engine.pml.request_free(id);
        }
        Ok(None)
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// A persistent operation with `MPI_PROC_NULL`.
fn nothing(inside: &mut Inside, comm: MPI_Comm) -> MPI_Request {
    inside.requests.insert(comm, Request::Other(Box::new(Nothing), false))
}

struct Nothing;

impl Operation for Nothing {
    fn poll(&mut self, _: &mut Inside) -> Option<Ended> {
        Some(Ended::well(MPI_Status::NO_PROC))
    }

    fn start(&mut self, _: &mut Inside) -> Result<()> {
        Ok(())
    }

    fn is_persistent(&self) -> bool {
        true
    }

    fn cancel(&mut self, _: &mut Inside) -> Result<()> {
        Ok(())
    }

    fn free(self: Box<Self>, _: &mut Inside) -> Result<Option<request::After>> {
        Ok(None)
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// A receive that is over at once: from `MPI_PROC_NULL`.
pub(crate) struct NoProc;

impl Operation for NoProc {
    fn poll(&mut self, _: &mut Inside) -> Option<Ended> {
        Some(Ended::well(MPI_Status::NO_PROC))
    }

    fn cancel(&mut self, _: &mut Inside) -> Result<()> {
        Ok(())
    }

    fn free(self: Box<Self>, _: &mut Inside) -> Result<Option<request::After>> {
        Ok(None)
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// Begins a receive.
///
/// # Safety
/// As [`data::buffer`].
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn irecv(
    buf: *mut c_void,
    count: i64,
    datatype: MPI_Datatype,
    rank: c_int,
    tag: c_int,
    comm: MPI_Comm,
) -> Result<MPI_Request> {
    let there = comm::get(comm)?;
    let tag = matching(tag)?;
    // SAFETY: this function's contract.
    let into = unsafe { data::buffer(buf, count, datatype)? };
    let from = source(rank, there)?;
    let Some(from) = from else {
        let begun = nobody(there).map(|()| Request::Other(Box::new(NoProc), true));
        return request::deferred(&mut *process::enter()?, comm, begun);
    };
    let mut inside = process::enter()?;
    let begun = match into {
        Buffer::Contiguous(region) => {
            inside.engine.pml.recv_into(there.p2p, region, from, tag, false)
        }
        into => inside.engine.pml.recv(there.p2p, into, from, tag),
    };
    match begun {
        Ok(id) => Ok(inside.requests.insert(comm, Request::Message(id))),
        Err(error) => request::deferred(&mut inside, comm, Err(error.into())),
    }
}

/// Receives.
///
/// # Safety
/// As [`data::buffer`]; `out` is `MPI_STATUS_IGNORE` or valid.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn recv(
    buf: *mut c_void,
    count: i64,
    datatype: MPI_Datatype,
    rank: c_int,
    tag: c_int,
    comm: MPI_Comm,
    out: *mut MPI_Status,
) -> Result<()> {
    let there = comm::get(comm)?;
    let tag = matching(tag)?;
    // SAFETY: this function's contract.
    let into = unsafe { data::buffer(buf, count, datatype)? };
    let Some(from) = source(rank, there)? else {
        nobody(there)?;
        // SAFETY: this function's contract.
        unsafe { status::give(|| MPI_Status::NO_PROC, out) };
        return Ok(());
    };
    let mut inside = process::enter()?;
    let id = match into {
        Buffer::Contiguous(region) => {
            inside.engine.pml.recv_into(there.p2p, region, from, tag, true)?
        }
        into => inside.engine.pml.recv_blocking(there.p2p, into, from, tag)?,
    };
    let got = process::finish(id, inside)?;
    // SAFETY: this function's contract.
    unsafe { status::give(|| got.into(), out) };
    Ok(())
}

/// The short cut of sends in standard mode: a short message to a peer that can be reached at once, with nothing unusual about
/// it. Whether it is out; if not, nothing was done.
///
/// # Safety
/// As [`data::payload`].
#[inline(always)]
unsafe fn send_now(
    buf: *const c_void,
    count: i64,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    comm: MPI_Comm,
    blocking: bool,
) -> bool {
    let Some(there) = comm::find(comm) else { return false };
    let Some(data::Data::Contiguous(start, len)) = data::plain(buf, count, datatype) else {
        return false;
    };
    if dest as u32 >= there.peers() || tag < 0 {
        return false;
    }
    // SAFETY: this function's contract; gone when this returns.
    let region = unsafe { SendRegion::new(start, len) };
    let Some(mut inside) = process::enter_now() else { return false };
    let engine = &mut inside.engine;
    if blocking {
        engine.listen();
    }
    let out = engine.pml.send_direct(there.p2p, region.as_slice(), dest as u32, tag);
    inside.leave();
    out
}

/// Whether a send of this mode may be over as soon as its bytes are out, and is nothing more than that.
const fn is_standard(mode: Mode) -> bool {
    matches!(mode, Mode::Standard)
}

/// What a receive from one source with one tag into one piece of memory asks for.
struct Plain {
    there: &'static comm::Comm,
    into: RecvRegion,
    source: u32,
    tag: c_int,
}

/// # Safety
/// As [`data::buffer`].
#[inline(always)]
unsafe fn plain(
    buf: *mut c_void,
    count: i64,
    datatype: MPI_Datatype,
    rank: c_int,
    tag: c_int,
    comm: MPI_Comm,
) -> Option<Plain> {
    let there = comm::find(comm)?;
    let Some(data::Data::Contiguous(start, len)) = data::plain(buf, count, datatype) else {
        return None;
    };
    if rank as u32 >= there.peers() || tag < 0 {
        return None;
    }
    // SAFETY: this function's contract.
    let into = unsafe { RecvRegion::new(start, len) };
    Some(Plain { there, into, source: rank as u32, tag })
}

/// The short cut of `MPI_Recv`: a message that comes soon. Whether it was received; if not, nothing was done.
///
/// # Safety
/// As [`data::buffer`]; `out` is `MPI_STATUS_IGNORE` or valid.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn recv_soon(
    buf: *mut c_void,
    count: i64,
    datatype: MPI_Datatype,
    rank: c_int,
    tag: c_int,
    comm: MPI_Comm,
    out: *mut MPI_Status,
) -> bool {
    // SAFETY: this function's contract; given back before this returns.
    let Some(plain) = (unsafe { plain(buf, count, datatype, rank, tag, comm) }) else {
        return false;
    };
    let Plain { there, into, source, tag } = plain;
    let Some(mut inside) = process::enter_now() else { return false };
    if !inside.chores.is_empty() {
        return false;
    }
    let received = inside.engine.recv_soon(there.p2p, &into, source, tag);
    inside.leave();
    let Some(bytes) = received else { return false };
    // SAFETY: this function's contract.
    unsafe { status::give(|| ob1::Status { source, tag, bytes }.into(), out) };
    true
}

/// The short cut of `MPI_Irecv`. Whether the receive was posted; if not, nothing was done.
///
/// # Safety
/// As [`data::buffer`]; `request` is valid.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn irecv_now(
    buf: *mut c_void,
    count: i64,
    datatype: MPI_Datatype,
    rank: c_int,
    tag: c_int,
    comm: MPI_Comm,
    request: *mut MPI_Request,
) -> bool {
    if request.is_null() {
        return false;
    }
    // SAFETY: this function's contract.
    let Some(plain) = (unsafe { plain(buf, count, datatype, rank, tag, comm) }) else {
        return false;
    };
    let Plain { there, into, source, tag } = plain;
    let Some(mut inside) = process::enter_now() else { return false };
    let Some(id) = inside.engine.pml.recv_exact(there.p2p, into, source, tag) else {
        return false;
    };
    let posted = inside.requests.insert_message(comm, id);
    inside.leave();
    // SAFETY: this function's contract.
    unsafe { request.write(posted) };
    true
}

macro_rules! sends {
    ($($mode:ident: $blocking:ident $blocking_c:ident $immediate:ident $immediate_c:ident $init:ident $init_c:ident)*) => {$(
        mpi! {
            fn $blocking / $blocking_c(buf: *const c_void, count: Count, datatype: MPI_Datatype, dest: c_int, tag: c_int, comm: MPI_Comm) on comm first {
                // SAFETY: the caller's buffer, given back before this returns.
                is_standard(Mode::$mode) && unsafe { send_now(buf, count.wide(), datatype, dest, tag, comm, true) }
            } {
                // SAFETY: the caller's buffer, given back before this returns (buffered: copied).
                send(Mode::$mode, unsafe { sending(buf, count.wide(), datatype, dest, tag, comm) })
            }

            fn $immediate / $immediate_c(buf: *const c_void, count: Count, datatype: MPI_Datatype, dest: c_int, tag: c_int, comm: MPI_Comm, request: *mut MPI_Request) on comm first {
                // SAFETY: the caller's buffer, given back before this returns.
                let out = is_standard(Mode::$mode) && !request.is_null() && unsafe { send_now(buf, count.wide(), datatype, dest, tag, comm, false) };
                if out {
                    // SAFETY: the caller's result.
                    unsafe { request.write(SENT) };
                }
                out
            } {
                // SAFETY: the caller's buffer, which is the library's until the request is over, and result.
                unsafe {
                    let send = sending(buf, count.wide(), datatype, dest, tag, comm);
                    request.write(isend(Mode::$mode, send, comm)?);
                }
                Ok(())
            }

            fn $init / $init_c(buf: *const c_void, count: Count, datatype: MPI_Datatype, dest: c_int, tag: c_int, comm: MPI_Comm, request: *mut MPI_Request) on comm {
                // SAFETY: the caller's buffer, which is the library's while the request is active, and result.
                unsafe {
                    let send = sending(buf, count.wide(), datatype, dest, tag, comm);
                    request.write(send_init(Mode::$mode, send, comm)?);
                }
                Ok(())
            }
        }
    )*};
}

sends! {
    Standard: MPI_Send MPI_Send_c MPI_Isend MPI_Isend_c MPI_Send_init MPI_Send_init_c
    Synchronous: MPI_Ssend MPI_Ssend_c MPI_Issend MPI_Issend_c MPI_Ssend_init MPI_Ssend_init_c
    Ready: MPI_Rsend MPI_Rsend_c MPI_Irsend MPI_Irsend_c MPI_Rsend_init MPI_Rsend_init_c
    Buffered: MPI_Bsend MPI_Bsend_c MPI_Ibsend MPI_Ibsend_c MPI_Bsend_init MPI_Bsend_init_c
}

mpi! {
    fn MPI_Recv / MPI_Recv_c(buf: *mut c_void, count: Count, datatype: MPI_Datatype, source: c_int, tag: c_int, comm: MPI_Comm, out: *mut MPI_Status) on comm first {
        // SAFETY: the caller's buffer, given back before this returns, and result.
        unsafe { recv_soon(buf, count.wide(), datatype, source, tag, comm, out) }
    } {
        // SAFETY: the caller's buffer, given back before this returns, and result.
        unsafe { recv(buf, count.wide(), datatype, source, tag, comm, out) }
    }

    fn MPI_Irecv / MPI_Irecv_c(buf: *mut c_void, count: Count, datatype: MPI_Datatype, source: c_int, tag: c_int, comm: MPI_Comm, request: *mut MPI_Request) on comm first {
        // SAFETY: the caller's buffer, which is the library's until the request is over, and result.
        unsafe { irecv_now(buf, count.wide(), datatype, source, tag, comm, request) }
    } {
        // SAFETY: the caller's buffer, which is the library's until the request is over, and result.
        unsafe { request.write(irecv(buf, count.wide(), datatype, source, tag, comm)?) };
        Ok(())
    }

    fn MPI_Recv_init / MPI_Recv_init_c(buf: *mut c_void, count: Count, datatype: MPI_Datatype, source: c_int, tag: c_int, comm: MPI_Comm, request: *mut MPI_Request) on comm {
        let there = comm::get(comm)?;
        let tag = matching(tag)?;
        // SAFETY: the caller's buffer, which is the library's while the request is active.
        let into = unsafe { data::buffer(buf, count.wide(), datatype)? };
        let from = self::source(source, there)?;
        let mut inside = process::enter()?;
        let made = match from {
            None => nothing(&mut inside, comm),
            Some(from) => {
                let id = inside.engine.pml.recv_init(there.p2p, into, from, tag)?;
                inside.requests.insert(comm, Request::Persistent(id, false))
            }
        };
        // SAFETY: the caller's result.
        unsafe { request.write(made) };
        Ok(())
    }

    fn MPI_Sendrecv / MPI_Sendrecv_c(sendbuf: *const c_void, sendcount: Count, sendtype: MPI_Datatype, dest: c_int, sendtag: c_int, recvbuf: *mut c_void, recvcount: Count, recvtype: MPI_Datatype, source: c_int, recvtag: c_int, comm: MPI_Comm, out: *mut MPI_Status) on comm {
        // SAFETY: the caller's buffers, given back before this returns, and result.
        unsafe {
            let send = sending(sendbuf, sendcount.wide(), sendtype, dest, sendtag, comm)?;
            let receive = irecv(recvbuf, recvcount.wide(), recvtype, source, recvtag, comm)?;
            exchange(send, receive, comm, out)
        }
    }

    fn MPI_Sendrecv_replace / MPI_Sendrecv_replace_c(buf: *mut c_void, count: Count, datatype: MPI_Datatype, dest: c_int, sendtag: c_int, source: c_int, recvtag: c_int, comm: MPI_Comm, out: *mut MPI_Status) on comm {
        // SAFETY: the caller's buffer, given back before this returns, and result. What is sent is copied first.
        unsafe {
            let mut send = sending(buf, count.wide(), datatype, dest, sendtag, comm)?;
            send.payload = Payload::owned(send.payload.to_vec());
            let receive = irecv(buf, count.wide(), datatype, source, recvtag, comm)?;
            exchange(send, receive, comm, out)
        }
    }

    fn MPI_Isendrecv / MPI_Isendrecv_c(sendbuf: *const c_void, sendcount: Count, sendtype: MPI_Datatype, dest: c_int, sendtag: c_int, recvbuf: *mut c_void, recvcount: Count, recvtype: MPI_Datatype, source: c_int, recvtag: c_int, comm: MPI_Comm, request: *mut MPI_Request) on comm {
        // SAFETY: the caller's buffers, which are the library's until the request is over, and result.
        unsafe {
            let send = sending(sendbuf, sendcount.wide(), sendtype, dest, sendtag, comm)?;
            let receive = irecv(recvbuf, recvcount.wide(), recvtype, source, recvtag, comm)?;
            request.write(both(send, receive, comm)?);
        }
        Ok(())
    }

    fn MPI_Isendrecv_replace / MPI_Isendrecv_replace_c(buf: *mut c_void, count: Count, datatype: MPI_Datatype, dest: c_int, sendtag: c_int, source: c_int, recvtag: c_int, comm: MPI_Comm, request: *mut MPI_Request) on comm {
        // SAFETY: the caller's buffer, which is the library's until the request is over, and result. What is sent is copied first.
        unsafe {
            let mut send = sending(buf, count.wide(), datatype, dest, sendtag, comm)?;
            send.payload = Payload::owned(send.payload.to_vec());
            let receive = irecv(buf, count.wide(), datatype, source, recvtag, comm)?;
            request.write(both(send, receive, comm)?);
        }
        Ok(())
    }

    fn MPI_Mrecv / MPI_Mrecv_c(buf: *mut c_void, count: Count, datatype: MPI_Datatype, message: *mut MPI_Message, out: *mut MPI_Status) on none {
        // SAFETY: the caller's buffer, given back before this returns, and results.
        unsafe {
            let Some((id, comm, inside)) = mrecv(buf, count.wide(), datatype, message)? else {
                status::give(|| MPI_Status::NO_PROC, out);
                return Ok(());
            };
            let got = process::finish(id, inside).map_err(|error| error.on(comm))?;
            status::give(|| got.into(), out);
        }
        Ok(())
    }

    fn MPI_Imrecv / MPI_Imrecv_c(buf: *mut c_void, count: Count, datatype: MPI_Datatype, message: *mut MPI_Message, request: *mut MPI_Request) on none {
        // SAFETY: the caller's buffer, which is the library's until the request is over, and results.
        unsafe {
            let made = match mrecv(buf, count.wide(), datatype, message)? {
                Some((id, comm, mut inside)) => inside.requests.insert(comm, Request::Message(id)),
                None => {
                    let mut inside = process::enter()?;
                    inside.requests.insert(MPI_COMM_SELF, Request::Other(Box::new(NoProc), true))
                }
            };
            request.write(made);
        }
        Ok(())
    }
}

/// The two halves of a blocking exchange.
///
/// # Safety
/// `out` is `MPI_STATUS_IGNORE` or valid.
unsafe fn exchange(
    send: Sending,
    mut receive: MPI_Request,
    comm: MPI_Comm,
    out: *mut MPI_Status,
) -> Result<()> {
    let sent = isend(Mode::Standard, Ok(send), comm);
    let mut sent = match sent {
        Ok(sent) => sent,
        Err(error) => {
            // Nothing may use the buffer afterwards.
            withdraw(&mut receive)?;
            return Err(error);
        }
    };
    let got = end(&mut receive)?;
    // SAFETY: this function's contract.
    unsafe { status::give(|| got.status, out) };
    let gone = end(&mut sent)?;
    got.result.and(gone.result)
}

/// Waits for the end of a request that was just made.
fn end(handle: &mut MPI_Request) -> Result<Ended> {
    process::wait(|inside| match request::poll(inside, handle) {
        Ok(request::Polled::Ended(ended)) => {
            // A blocking call does not go on after the failure of a possible sender.
            if ended.pending {
                let withdrawn = inside.requests.get(*handle);
                if let Ok((Request::Message(id), _)) = withdrawn {
                    let id = *id;
                    inside.engine.pml.cancel(id);
                    while inside.engine.poll(id).is_none() {
                        inside.progress();
                    }
                }
                inside.requests.remove(*handle);
                let result = ended.result.map_err(|error| error.recoded(MPIX_ERR_PROC_FAILED));
                return Some(Ok(Ended { result, ..ended }));
            }
            Some(Ok(ended))
        }
        Ok(request::Polled::Pending) => None,
        Ok(request::Polled::Inactive) => Some(Ok(Ended::well(MPI_Status::EMPTY))),
        Err(error) => Some(Err(error)),
    })
}

/// Takes a receive back.
fn withdraw(handle: &mut MPI_Request) -> Result<()> {
    {
        let mut inside = process::enter()?;
        if let (Request::Message(id), _) = inside.requests.get(*handle)? {
            let id = *id;
            inside.engine.pml.cancel(id);
        }
    }
    end(handle).map(drop)
}

/// A send and a receive as one request: the status is the receive's (§3.11).
struct Both {
    receive: MPI_Request,
    send: MPI_Request,
    got: Option<Ended>,
    gone: Option<Ended>,
}

impl Operation for Both {
    fn poll(&mut self, inside: &mut Inside) -> Option<Ended> {
        for (handle, end) in [(&mut self.receive, &mut self.got), (&mut self.send, &mut self.gone)]
        {
            if end.is_none() {
                match request::poll(inside, handle) {
                    Ok(request::Polled::Pending) => {}
                    Ok(request::Polled::Inactive) => *end = Some(Ended::well(MPI_Status::EMPTY)),
                    Ok(request::Polled::Ended(ended)) => *end = Some(ended),
                    Err(error) => *end = Some(Ended::with(Err(error))),
                }
            }
        }
        if self.got.as_ref().is_some_and(|got| got.pending) {
            return self.got.take();
        }
        let (got, gone) = (self.got.take(), self.gone.take());
        match (got, gone) {
            (Some(got), Some(gone)) => {
                Some(Ended { result: got.result.and(gone.result), ..Ended::well(got.status) })
            }
            (got, gone) => {
                (self.got, self.gone) = (got, gone);
                None
            }
        }
    }

    fn free(self: Box<Self>, inside: &mut Inside) -> Result<Option<request::After>> {
        for handle in [self.receive, self.send] {
            if handle != MPI_REQUEST_NULL {
                request::free(inside, handle)?;
            }
        }
        Ok(None)
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

fn both(send: Sending, mut receive: MPI_Request, comm: MPI_Comm) -> Result<MPI_Request> {
    match isend(Mode::Standard, Ok(send), comm) {
        Err(error) => {
            withdraw(&mut receive)?;
            Err(error)
        }
        Ok(sent) => {
            let both = Both { receive, send: sent, got: None, gone: None };
            let mut inside = process::enter()?;
            Ok(inside.requests.insert(comm, Request::Other(Box::new(both), true)))
        }
    }
}

/// A message that a matched probe has taken, and where it came to.
pub(crate) struct Matched {
    pub id: MessageId,
    pub comm: MPI_Comm,
}

/// Messages that matched probes have taken.
pub(crate) static MESSAGES: crate::handle::Table<Matched> = crate::handle::Table::new();

/// Begins the receive of a matched message; `None` for `MPI_MESSAGE_NO_PROC`.
///
/// # Safety
/// As [`data::buffer`]; `message` is valid.
unsafe fn mrecv(
    buf: *mut c_void,
    count: i64,
    datatype: MPI_Datatype,
    message: *mut MPI_Message,
) -> Result<Option<(ob1::ReqId, MPI_Comm, process::Entered)>> {
    // SAFETY: this function's contract.
    let (handle, into) = unsafe { (*message, data::buffer(buf, count, datatype)?) };
    if handle == MPI_MESSAGE_NO_PROC {
        process::check()?;
        // SAFETY: this function's contract.
        unsafe { *message = MPI_MESSAGE_NULL };
        return Ok(None);
    }
    let mut inside = process::enter()?;
    let Some(Matched { id, comm }) = MESSAGES.remove(handle.0) else {
        return Err(fail(MPI_ERR_REQUEST, format!("{:#x} is no message", handle.0)));
    };
    // SAFETY: this function's contract.
    unsafe { *message = MPI_MESSAGE_NULL };
    let request = inside.engine.pml.mrecv(id, into).map_err(|error| Fail::from(error).on(comm))?;
    Ok(Some((request, comm, inside)))
}
