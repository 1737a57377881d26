//! The short cut of collectives whose arguments are plain: an intra-communicator, predefined datatypes without gaps, predefined
//! operations, nothing in place. Nothing is moved around or allocated on the way to the schedule.
//!
//! Whatever is unusual or wrong is left to [`prepare`](super::prepare), which says what it is: nothing was done here then.

use super::super::op;
use super::run::unfinished;
use crate::comm::{self, Comm};
use crate::data;
use crate::prelude::*;
use crate::request::{self, Land, Request, SENT};
use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_coll::{Call, Elements, Memory, Reduction, Root};
use std::mem::ManuallyDrop;

/// A collective with everything it needs.
pub struct Plain {
    /// Of the kinds that own nothing.
    call: ManuallyDrop<Call>,
    memory: Memory,
    reduction: Option<&'static Reduction>,
}

impl Plain {
    #[inline(always)]
    const fn of(call: Call, memory: Memory, reduction: Option<&'static Reduction>) -> Plain {
        Plain { call: ManuallyDrop::new(call), memory, reduction }
    }
}

/// Runs to the end. `None`: nothing was done.
#[inline(always)]
pub fn blocking(
    comm: MPI_Comm,
    plain: impl FnOnce(&'static Comm) -> Option<Plain>,
) -> Option<Result<()>> {
    let there = comm::find(comm)?;
    if there.remote.is_some() {
        return None;
    }
    let Plain { call, memory, reduction } = plain(there)?;
    let mut inside = process::enter_now()?;
    if !inside.chores.is_empty() {
        return None;
    }
    let ended = inside.engine.collect(there.core, &call, &memory, reduction);
    drop(inside);
    match ended {
        Ok(()) => Some(Ok(())),
        Err(error) => Some(unfinished(*error)),
    }
}

/// Begins. `None`: nothing was done.
#[inline(always)]
pub fn immediate(
    comm: MPI_Comm,
    plain: impl FnOnce(&'static Comm) -> Option<Plain>,
) -> Option<Result<MPI_Request>> {
    let there = comm::find(comm)?;
    if there.remote.is_some() {
        return None;
    }
    let Plain { call, memory, reduction } = plain(there)?;
    let mut inside = process::enter_now()?;
    Some(match inside.engine.icollect(there.core, &call, &memory, reduction) {
        Ok(None) => Ok(SENT),
        Ok(Some(task)) => {
            let nothing_lands: Land = Box::new(|_, _| Ok(None));
            Ok(inside.requests.insert(comm, Request::Task(task, nothing_lands)))
        }
        Err(error) => request::deferred(&mut inside, comm, Err(error.into())),
    })
}

/// So many bytes at a buffer's address.
#[inline(always)]
fn bytes(buf: *const c_void, count: i64, datatype: MPI_Datatype) -> Option<(*mut u8, usize)> {
    match data::plain(buf, count, datatype) {
        Some(data::Data::Contiguous(start, len)) if buf.addr() != MPI_IN_PLACE => {
            Some((start, len))
        }
        _ => None,
    }
}

/// The two buffers of a call, which do not overlap.
#[inline(always)]
unsafe fn two(send: (*mut u8, usize), recv: (*mut u8, usize)) -> Option<Memory> {
    let (from, into) = (send.0.addr(), recv.0.addr());
    if from < into.wrapping_add(recv.1)
        && into < from.wrapping_add(send.1)
        && send.1 > 0
        && recv.1 > 0
    {
        return None;
    }
    // SAFETY: the caller's buffers.
    unsafe {
        Some(Memory {
            send: SendRegion::new(send.0, send.1),
            recv: RecvRegion::new(recv.0, recv.1),
        })
    }
}

pub fn barrier() -> Option<Plain> {
    Some(Plain::of(Call::Barrier, Memory::none(), None))
}

// Each of the following: the caller's buffers are as the standard has them, for as long as the operation runs.

#[inline(always)]
pub unsafe fn bcast(
    there: &Comm,
    buffer: *mut c_void,
    count: i64,
    datatype: MPI_Datatype,
    root: c_int,
) -> Option<Plain> {
    let (start, len) = bytes(buffer, count, datatype)?;
    if root as u32 >= there.size {
        return None;
    }
    let call = Call::Bcast { root: Root::Rank(root as u32), len };
    // SAFETY: the caller's buffer.
    let recv = unsafe { RecvRegion::new(start, len) };
    Some(Plain::of(call, Memory::in_place(recv), None))
}

#[inline(always)]
pub unsafe fn allgather(
    there: &Comm,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: MPI_Datatype,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: MPI_Datatype,
) -> Option<Plain> {
    let all = recvcount.checked_mul(i64::from(there.size))?;
    let send = bytes(sendbuf, sendcount, sendtype)?;
    let (start, block) = bytes(recvbuf, recvcount, recvtype)?;
    let recv = bytes(recvbuf, all, recvtype)?.1;
    let call = Call::Allgather { len: send.1, block, in_place: false };
    // SAFETY: the caller's buffers.
    let memory = unsafe { two(send, (start, recv))? };
    Some(Plain::of(call, memory, None))
}

#[inline(always)]
pub unsafe fn alltoall(
    there: &Comm,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: MPI_Datatype,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: MPI_Datatype,
) -> Option<Plain> {
    let all = |count: i64| count.checked_mul(i64::from(there.size));
    let (from, len) = bytes(sendbuf, sendcount, sendtype)?;
    let (into, block) = bytes(recvbuf, recvcount, recvtype)?;
    let send = bytes(sendbuf, all(sendcount)?, sendtype)?.1;
    let recv = bytes(recvbuf, all(recvcount)?, recvtype)?.1;
    let call = Call::Alltoall { len, block, in_place: false };
    // SAFETY: the caller's buffers.
    let memory = unsafe { two((from, send), (into, recv))? };
    Some(Plain::of(call, memory, None))
}

/// Elements of a reduction, and their bytes.
#[inline(always)]
fn elements(count: i64, reduction: &Reduction) -> Option<(Elements, usize)> {
    let count = usize::try_from(count).ok()?;
    let (extent, commutative) = (reduction.extent(), reduction.is_commutative());
    Some((Elements { count, extent, commutative }, count.checked_mul(extent)?))
}

/// The address of an operand of so many bytes.
#[inline(always)]
fn operand(buf: *const c_void, len: usize) -> Option<(*mut u8, usize)> {
    let good = buf.addr() != MPI_IN_PLACE && !(buf.is_null() && len > 0);
    good.then_some((buf.cast_mut().cast(), len))
}

#[inline(always)]
pub unsafe fn reduce(
    there: &Comm,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: MPI_Datatype,
    op: MPI_Op,
    root: c_int,
) -> Option<Plain> {
    let reduction = op::common(op, datatype)?;
    let (elements, len) = elements(count, reduction)?;
    if root as u32 >= there.size {
        return None;
    }
    let send = operand(sendbuf, len)?;
    let recv = match root as u32 == there.rank {
        true => operand(recvbuf, len)?,
        false => (std::ptr::null_mut(), 0),
    };
    let call = Call::Reduce { root: Root::Rank(root as u32), elements, in_place: false };
    // SAFETY: the caller's buffers.
    let memory = unsafe { two(send, recv)? };
    Some(Plain::of(call, memory, Some(reduction)))
}

#[inline(always)]
pub unsafe fn allreduce(
    _: &Comm,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: MPI_Datatype,
    op: MPI_Op,
) -> Option<Plain> {
    let reduction = op::common(op, datatype)?;
    let (elements, len) = elements(count, reduction)?;
    let call = Call::Allreduce { elements, in_place: false };
    // SAFETY: the caller's buffers.
    let memory = unsafe { two(operand(sendbuf, len)?, operand(recvbuf, len)?)? };
    Some(Plain::of(call, memory, Some(reduction)))
}
