//! Collectives on neighbors in a virtual topology (MPI 5.0, §8.6 and 8.7).

use super::prepare::{by_rank, by_type, distinct, times};
use super::run::Prepared;
use super::side::{Piece, Side};
use crate::comm::Comm;
use crate::prelude::*;
use crate::topology::neighbors;
use ironweave_coll::{Call, Neighbors};

/// Whether some block does not come, and keeps what it holds.
fn has_holes(neighbors: &Neighbors) -> bool {
    neighbors.sources.contains(&None)
}

fn degrees(neighbors: &Neighbors) -> (u32, u32) {
    (neighbors.sources.len() as u32, neighbors.destinations.len() as u32)
}

// Each of the following: the caller's buffers and arrays are as the standard has them, for as long as the operation runs.

pub unsafe fn allgather(
    there: &Comm,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: MPI_Datatype,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: MPI_Datatype,
) -> Result<Prepared> {
    let neighbors = neighbors(there)?;
    let (indegree, _) = degrees(&neighbors);
    // SAFETY: the caller's buffers.
    unsafe {
        let send = Side::sending(Piece::new(sendbuf, sendcount, sendtype)?)?;
        let all = Piece::new(recvbuf, times(recvcount, indegree)?, recvtype)?;
        let recv = Side::receiving(all, has_holes(&neighbors))?;
        distinct(sendbuf, recvbuf, &send, &recv)?;
        let (len, block) = (send.len(), recv.len() / indegree.max(1) as usize);
        Ok(Prepared::new(Call::NeighborAllgather { neighbors, len, block }, send, recv))
    }
}

#[allow(clippy::too_many_arguments)]
pub unsafe fn allgatherv(
    there: &Comm,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: MPI_Datatype,
    recvbuf: *mut c_void,
    recvcounts: Counts,
    displs: Counts,
    recvtype: MPI_Datatype,
) -> Result<Prepared> {
    let neighbors = neighbors(there)?;
    let (indegree, _) = degrees(&neighbors);
    // SAFETY: the caller's buffers and arrays.
    unsafe {
        let send = Side::sending(Piece::new(sendbuf, sendcount, sendtype)?)?;
        let pieces = by_rank(recvbuf, recvcounts, displs, recvtype, indegree)?;
        let recv = Side::several(pieces, has_holes(&neighbors))?;
        distinct(sendbuf, recvbuf, &send, &recv)?;
        let (len, blocks) = (send.len(), recv.blocks());
        Ok(Prepared::new(Call::NeighborAllgatherv { neighbors, len, blocks }, send, recv))
    }
}

pub unsafe fn alltoall(
    there: &Comm,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: MPI_Datatype,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: MPI_Datatype,
) -> Result<Prepared> {
    let neighbors = neighbors(there)?;
    let (indegree, outdegree) = degrees(&neighbors);
    // SAFETY: the caller's buffers.
    unsafe {
        let given = Piece::new(sendbuf, times(sendcount, outdegree)?, sendtype)?;
        let taken = Piece::new(recvbuf, times(recvcount, indegree)?, recvtype)?;
        let (send, recv) = (Side::sending(given)?, Side::receiving(taken, has_holes(&neighbors))?);
        distinct(sendbuf, recvbuf, &send, &recv)?;
        let len = send.len() / outdegree.max(1) as usize;
        let block = recv.len() / indegree.max(1) as usize;
        Ok(Prepared::new(Call::NeighborAlltoall { neighbors, len, block }, send, recv))
    }
}

#[allow(clippy::too_many_arguments)]
pub unsafe fn alltoallv(
    there: &Comm,
    sendbuf: *const c_void,
    sendcounts: Counts,
    sdispls: Counts,
    sendtype: MPI_Datatype,
    recvbuf: *mut c_void,
    recvcounts: Counts,
    rdispls: Counts,
    recvtype: MPI_Datatype,
) -> Result<Prepared> {
    let neighbors = neighbors(there)?;
    let (indegree, outdegree) = degrees(&neighbors);
    // SAFETY: the caller's buffers and arrays.
    unsafe {
        let given = by_rank(sendbuf, sendcounts, sdispls, sendtype, outdegree)?;
        let taken = by_rank(recvbuf, recvcounts, rdispls, recvtype, indegree)?;
        exchange(neighbors, sendbuf, recvbuf, given, taken)
    }
}

#[allow(clippy::too_many_arguments)]
pub unsafe fn alltoallw(
    there: &Comm,
    sendbuf: *const c_void,
    sendcounts: Counts,
    sdispls: Counts,
    sendtypes: *const MPI_Datatype,
    recvbuf: *mut c_void,
    recvcounts: Counts,
    rdispls: Counts,
    recvtypes: *const MPI_Datatype,
) -> Result<Prepared> {
    let neighbors = neighbors(there)?;
    let (indegree, outdegree) = degrees(&neighbors);
    // SAFETY: the caller's buffers and arrays.
    unsafe {
        let given = by_type(sendbuf, sendcounts, sdispls, sendtypes, outdegree)?;
        let taken = by_type(recvbuf, recvcounts, rdispls, recvtypes, indegree)?;
        exchange(neighbors, sendbuf, recvbuf, given, taken)
    }
}

unsafe fn exchange(
    neighbors: Neighbors,
    sendbuf: *const c_void,
    recvbuf: *const c_void,
    given: Vec<Piece>,
    taken: Vec<Piece>,
) -> Result<Prepared> {
    // SAFETY: the caller's buffers.
    let (send, recv) =
        unsafe { (Side::several(given, true)?, Side::several(taken, has_holes(&neighbors))?) };
    distinct(sendbuf, recvbuf, &send, &recv)?;
    let (given, taken) = (send.blocks(), recv.blocks());
    Ok(Prepared::new(Call::NeighborAlltoallv { neighbors, send: given, recv: taken }, send, recv))
}
