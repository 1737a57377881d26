//! From the arguments of each collective to the call that schedules know (MPI 5.0, §6.3–6.11), with the checks of the
//! arguments that matter at this process. Everything here is done before anything is sent.

use super::argument::{Operands, Uniform, Varying};
use super::run::Prepared;
use super::side::{Piece, Side};
use crate::comm::Comm;
use crate::data;
use crate::op::{self, Combination, combination};
use crate::prelude::*;
use ironweave_coll::{Call, Root};

/// This process's part in a rooted operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// It is the root.
    Root,
    /// The root is another process, of the other group on an inter-communicator.
    Leaf,
    /// The root is another process of this group of an inter-communicator: nothing to do.
    Idle,
}

fn root(there: &Comm, root: c_int) -> Result<(Root, Part)> {
    let wrong = || {
        let peers = there.peers();
        Err(fail(
            MPI_ERR_ROOT,
            format!("the root is {root}, and the communicator has {peers} ranks"),
        ))
    };
    match (there.remote, u32::try_from(root)) {
        (None, Ok(rank)) if rank < there.size => {
            let part = if rank == there.rank { Part::Root } else { Part::Leaf };
            Ok((Root::Rank(rank), part))
        }
        (Some(remote), Ok(rank)) if rank < remote => Ok((Root::Rank(rank), Part::Leaf)),
        (Some(_), Err(_)) if root == MPI_ROOT => Ok((Root::Me, Part::Root)),
        (Some(_), Err(_)) if root == MPI_PROC_NULL => Ok((Root::Other, Part::Idle)),
        _ => wrong(),
    }
}

fn is_in_place(buf: *const c_void) -> bool {
    buf.addr() == MPI_IN_PLACE
}

/// Whether a call is in place, where it may be.
fn in_place(there: &Comm, buf: *const c_void, allowed: bool) -> Result<bool> {
    if !is_in_place(buf) {
        return Ok(false);
    }
    if allowed && there.remote.is_none() {
        return Ok(true);
    }
    Err(fail(MPI_ERR_BUFFER, "MPI_IN_PLACE is not allowed here"))
}

/// This process's own block in a rooted operation.
struct Own {
    is_root: bool,
    /// It is where it belongs already.
    in_place: bool,
    /// It goes to the root, or comes from it.
    moves: bool,
}

/// What becomes of the own block, whose buffer says whether the operation is in place.
fn own(there: &Comm, part: Part, buf: *const c_void) -> Result<Own> {
    let is_root = part == Part::Root;
    let in_place = part != Part::Idle && in_place(there, buf, is_root)?;
    let moves = !in_place && (part == Part::Leaf || is_root && there.remote.is_none());
    Ok(Own { is_root, in_place, moves })
}

/// What is received cannot be what is sent.
pub(super) fn distinct(
    sendbuf: *const c_void,
    recvbuf: *const c_void,
    send: &Side,
    recv: &Side,
) -> Result<()> {
    apart(sendbuf, recvbuf, send, recv)?;
    if send.meets(recv) {
        let text =
            "the send and the receive buffer overlap: use MPI_IN_PLACE for what is in its place";
        return Err(fail(MPI_ERR_BUFFER, text));
    }
    Ok(())
}

/// What is received does not begin where it is sent from. All that can be asked of elements with gaps, which may lie between
/// each other.
fn apart(sendbuf: *const c_void, recvbuf: *const c_void, send: &Side, recv: &Side) -> Result<()> {
    if sendbuf == recvbuf && !sendbuf.is_null() && send.len() > 0 && recv.len() > 0 {
        let text = "the send and the receive buffer are the same: use MPI_IN_PLACE";
        return Err(fail(MPI_ERR_BUFFER, text));
    }
    Ok(())
}

pub fn barrier() -> Prepared {
    Prepared::new(Call::Barrier, Side::nothing(), Side::nothing())
}

// Each of the following: the caller's buffers and arrays are as the standard has them, for as long as the operation runs.

pub unsafe fn bcast(there: &Comm, buffer: Uniform, rank: c_int) -> Result<Prepared> {
    let (root, part) = root(there, rank)?;
    let recv = match part {
        Part::Idle => Side::nothing(),
        // SAFETY: the caller's buffer.
        _ => unsafe { Side::receiving(buffer.piece()?, part == Part::Root)? },
    };
    let call = Call::Bcast { root, len: recv.len() };
    Ok(Prepared { keep: part == Part::Root, ..Prepared::new(call, Side::nothing(), recv) })
}

pub unsafe fn gather(there: &Comm, from: Uniform, into: Uniform, rank: c_int) -> Result<Prepared> {
    let (root, part) = root(there, rank)?;
    let Own { is_root, in_place, moves: sends } = own(there, part, from.buf)?;
    // SAFETY: the caller's buffers.
    unsafe {
        let send = if sends { Side::sending(from.piece()?)? } else { Side::nothing() };
        let (recv, block) = if is_root {
            let recv = Side::receiving(into.times(there.peers())?, in_place)?;
            let block = recv.len() / there.peers().max(1) as usize;
            (recv, block)
        } else {
            (Side::nothing(), send.len())
        };
        distinct(from.buf, into.buf, &send, &recv)?;
        Ok(Prepared::new(Call::Gather { root, block, in_place }, send, recv))
    }
}

pub unsafe fn gatherv(there: &Comm, from: Uniform, into: Varying, rank: c_int) -> Result<Prepared> {
    let (root, part) = root(there, rank)?;
    let Own { is_root, in_place, moves: sends } = own(there, part, from.buf)?;
    // SAFETY: the caller's buffers and arrays.
    unsafe {
        let send = if sends { Side::sending(from.piece()?)? } else { Side::nothing() };
        let recv = if is_root {
            Side::several_to_receive(into.pieces(there.peers())?, in_place)?
        } else {
            Side::nothing()
        };
        distinct(from.buf, into.buf, &send, &recv)?;
        let blocks = recv.blocks();
        let own = blocks.get(there.rank as usize).map_or(0, |block| block.len);
        let len = if in_place { own } else { send.len() };
        Ok(Prepared::new(Call::Gatherv { root, len, blocks, in_place }, send, recv))
    }
}

pub unsafe fn scatter(there: &Comm, from: Uniform, into: Uniform, rank: c_int) -> Result<Prepared> {
    let (root, part) = root(there, rank)?;
    let Own { is_root, in_place, moves: receives } = own(there, part, into.buf)?;
    // SAFETY: the caller's buffers.
    unsafe {
        let recv = if receives { Side::receiving(into.piece()?, false)? } else { Side::nothing() };
        let (send, block) = if is_root {
            let send = Side::sending(from.times(there.peers())?)?;
            let block = send.len() / there.peers().max(1) as usize;
            (send, block)
        } else {
            (Side::nothing(), recv.len())
        };
        distinct(from.buf, into.buf, &send, &recv)?;
        Ok(Prepared::new(Call::Scatter { root, block, in_place }, send, recv))
    }
}

pub unsafe fn scatterv(
    there: &Comm,
    from: Varying,
    into: Uniform,
    rank: c_int,
) -> Result<Prepared> {
    let (root, part) = root(there, rank)?;
    let Own { is_root, in_place, moves: receives } = own(there, part, into.buf)?;
    // SAFETY: the caller's buffers and arrays.
    unsafe {
        let recv = if receives { Side::receiving(into.piece()?, false)? } else { Side::nothing() };
        let send = if is_root {
            Side::several(from.pieces(there.peers())?, true)?
        } else {
            Side::nothing()
        };
        distinct(from.buf, into.buf, &send, &recv)?;
        let blocks = send.blocks();
        let own = blocks.get(there.rank as usize).map_or(0, |block| block.len);
        let len = if in_place { own } else { recv.len() };
        Ok(Prepared::new(Call::Scatterv { root, len, blocks, in_place }, send, recv))
    }
}

pub unsafe fn allgather(there: &Comm, from: Uniform, into: Uniform) -> Result<Prepared> {
    let in_place = in_place(there, from.buf, true)?;
    // SAFETY: the caller's buffers.
    unsafe {
        let recv = Side::receiving(into.times(there.peers())?, in_place)?;
        let block = recv.len() / there.peers().max(1) as usize;
        let (send, len) = if in_place {
            (Side::nothing(), block)
        } else {
            let send = Side::sending(from.piece()?)?;
            let len = send.len();
            (send, len)
        };
        distinct(from.buf, into.buf, &send, &recv)?;
        Ok(Prepared::new(Call::Allgather { len, block, in_place }, send, recv))
    }
}

pub unsafe fn allgatherv(there: &Comm, from: Uniform, into: Varying) -> Result<Prepared> {
    let in_place = in_place(there, from.buf, true)?;
    // SAFETY: the caller's buffers and arrays.
    unsafe {
        let pieces = into.pieces(there.peers())?;
        let recv = Side::several(pieces, in_place)?;
        let blocks = recv.blocks();
        let (send, len) = if in_place {
            (Side::nothing(), blocks.get(there.rank as usize).map_or(0, |block| block.len))
        } else {
            let send = Side::sending(from.piece()?)?;
            let len = send.len();
            (send, len)
        };
        distinct(from.buf, into.buf, &send, &recv)?;
        Ok(Prepared::new(Call::Allgatherv { len, blocks, in_place }, send, recv))
    }
}

pub unsafe fn alltoall(there: &Comm, from: Uniform, into: Uniform) -> Result<Prepared> {
    let in_place = in_place(there, from.buf, true)?;
    let n = there.peers();
    // SAFETY: the caller's buffers.
    unsafe {
        let recv = Side::receiving(into.times(n)?, in_place)?;
        let block = recv.len() / n.max(1) as usize;
        let (send, len) = if in_place {
            (Side::nothing(), block)
        } else {
            let send = Side::sending(from.times(n)?)?;
            let len = send.len() / n.max(1) as usize;
            (send, len)
        };
        distinct(from.buf, into.buf, &send, &recv)?;
        Ok(Prepared::new(Call::Alltoall { len, block, in_place }, send, recv))
    }
}

pub unsafe fn alltoallv(there: &Comm, from: Varying, into: Varying) -> Result<Prepared> {
    let in_place = in_place(there, from.buf, true)?;
    let n = there.peers();
    // SAFETY: the caller's buffers and arrays.
    unsafe {
        let recv = Side::several_to_receive(into.pieces(n)?, in_place)?;
        let send = if in_place { Side::nothing() } else { Side::several(from.pieces(n)?, true)? };
        distinct(from.buf, into.buf, &send, &recv)?;
        let call = Call::Alltoallv { send: send.blocks(), recv: recv.blocks(), in_place };
        Ok(Prepared::new(call, send, recv))
    }
}

/// A side of a reduction: so many elements.
unsafe fn operand(
    buf: *const c_void,
    count: usize,
    datatype: MPI_Datatype,
    combination: &Combination,
    holds: bool,
) -> Result<Side> {
    let piece = Piece { at: buf.cast_mut(), count, datatype };
    // SAFETY: the caller's buffer.
    unsafe {
        if combination.whole {
            Side::raw(buf.cast_mut().cast(), data::bytes(count, combination.reduction.extent())?)
        } else {
            Side::receiving(piece, holds)
        }
    }
}

/// The buffers of a reduction do not overlap; elements that only the user's operation knows may have gaps.
fn operands_differ(
    operands: Operands,
    combination: &Combination,
    send: &Side,
    recv: &Side,
) -> Result<()> {
    let gaps = combination.whole && op::predefined(operands.op).is_none();
    let check = if gaps { apart } else { distinct };
    check(operands.sendbuf, operands.recvbuf, send, recv)
}

/// What reductions of both buffers at each process have in common.
unsafe fn reducing(
    there: &Comm,
    operands: Operands,
    send: usize,
    recv: usize,
    combination: Combination,
    call: impl FnOnce(bool) -> Call,
) -> Result<Prepared> {
    let Operands { sendbuf, recvbuf, datatype, .. } = operands;
    let in_place = in_place(there, sendbuf, true)?;
    // The contribution in place is in the receive buffer, and may be longer than the result.
    let recv = if in_place { send.max(recv) } else { recv };
    // SAFETY: the caller's buffers.
    unsafe {
        let into = operand(recvbuf, recv, datatype, &combination, in_place)?;
        let from = if in_place {
            Side::nothing()
        } else {
            operand(sendbuf, send, datatype, &combination, true)?
        };
        operands_differ(operands, &combination, &from, &into)?;
        let reduction = Some(combination.reduction);
        Ok(Prepared { reduction, ..Prepared::new(call(in_place), from, into) })
    }
}

pub unsafe fn reduce(
    there: &Comm,
    operands: Operands,
    count: i64,
    rank: c_int,
) -> Result<Prepared> {
    let Operands { sendbuf, recvbuf, datatype, .. } = operands;
    let (root, part) = root(there, rank)?;
    // Who has nothing to do has no arguments that matter.
    let combination = match part {
        Part::Idle => combination(MPI_SUM, MPI_INT)?,
        _ => combination(operands.op, operands.datatype)?,
    };
    let count = if part == Part::Idle { 0 } else { count };
    let elements = combination.on(count)?;
    let Own { is_root, in_place, moves: sends } = own(there, part, sendbuf)?;
    // SAFETY: the caller's buffers.
    unsafe {
        let send = if sends {
            operand(sendbuf, elements.count, datatype, &combination, true)?
        } else {
            Side::nothing()
        };
        let recv = if is_root {
            operand(recvbuf, elements.count, datatype, &combination, in_place)?
        } else {
            Side::nothing()
        };
        operands_differ(operands, &combination, &send, &recv)?;
        let call = Call::Reduce { root, elements, in_place };
        let reduction = Some(combination.reduction);
        Ok(Prepared { reduction, ..Prepared::new(call, send, recv) })
    }
}

pub unsafe fn allreduce(there: &Comm, operands: Operands, count: i64) -> Result<Prepared> {
    let combination = combination(operands.op, operands.datatype)?;
    let elements = combination.on(count)?;
    let n = elements.count;
    // SAFETY: the caller's buffers.
    unsafe {
        reducing(there, operands, n, n, combination, |in_place| Call::Allreduce {
            elements,
            in_place,
        })
    }
}

pub unsafe fn reduce_scatter(
    there: &Comm,
    operands: Operands,
    recvcounts: Counts,
) -> Result<Prepared> {
    let combination = combination(operands.op, operands.datatype)?;
    if recvcounts.is_null() {
        return Err(fail(MPI_ERR_ARG, "recvcounts is a null pointer"));
    }
    let counts = (0..there.size as usize).map(|rank| {
        // SAFETY: the caller's array has an entry for each rank of the local group.
        crate::count::count("recvcounts", unsafe { recvcounts.get(rank) })
    });
    let counts: Vec<usize> = counts.collect::<Result<_>>()?;
    let (all, own) = (counts.iter().sum(), counts[there.rank as usize]);
    let (extent, commutative) =
        (combination.reduction.extent(), combination.reduction.is_commutative());
    // SAFETY: the caller's buffers.
    unsafe {
        reducing(there, operands, all, own, combination, |in_place| Call::ReduceScatter {
            counts: counts.into(),
            extent,
            commutative,
            in_place,
        })
    }
}

pub unsafe fn reduce_scatter_block(
    there: &Comm,
    operands: Operands,
    recvcount: i64,
) -> Result<Prepared> {
    let combination = combination(operands.op, operands.datatype)?;
    let elements = combination.on(recvcount)?;
    let (all, own) = (data::bytes(elements.count, there.size as usize)?, elements.count);
    // SAFETY: the caller's buffers.
    unsafe {
        reducing(there, operands, all, own, combination, |in_place| Call::ReduceScatterBlock {
            elements,
            in_place,
        })
    }
}

pub unsafe fn scan(
    there: &Comm,
    operands: Operands,
    count: i64,
    exclusive: bool,
) -> Result<Prepared> {
    if there.remote.is_some() {
        return Err(fail(MPI_ERR_COMM, "it is an inter-communicator"));
    }
    let combination = combination(operands.op, operands.datatype)?;
    let elements = combination.on(count)?;
    let n = elements.count;
    // SAFETY: the caller's buffers.
    unsafe {
        reducing(there, operands, n, n, combination, |in_place| {
            if exclusive {
                Call::Exscan { elements, in_place }
            } else {
                Call::Scan { elements, in_place }
            }
        })
    }
}
