//! Collectives on neighbors in a virtual topology (MPI 5.0, §8.6 and 8.7).

use super::argument::{Uniform, Varying};
use super::prepare::distinct;
use super::run::Prepared;
use super::side::Side;
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

pub unsafe fn allgather(there: &Comm, from: Uniform, into: Uniform) -> Result<Prepared> {
    let neighbors = neighbors(there)?;
    let (indegree, _) = degrees(&neighbors);
    // SAFETY: the caller's buffers.
    unsafe {
        let send = Side::sending(from.piece()?)?;
        let recv = Side::receiving(into.times(indegree)?, has_holes(&neighbors))?;
        distinct(from.buf, into.buf, &send, &recv)?;
        let (len, block) = (send.len(), recv.len() / indegree.max(1) as usize);
        Ok(Prepared::new(Call::NeighborAllgather { neighbors, len, block }, send, recv))
    }
}

pub unsafe fn allgatherv(there: &Comm, from: Uniform, into: Varying) -> Result<Prepared> {
    let neighbors = neighbors(there)?;
    let (indegree, _) = degrees(&neighbors);
    // SAFETY: the caller's buffers and arrays.
    unsafe {
        let send = Side::sending(from.piece()?)?;
        let recv = Side::several_to_receive(into.pieces(indegree)?, has_holes(&neighbors))?;
        distinct(from.buf, into.buf, &send, &recv)?;
        let (len, blocks) = (send.len(), recv.blocks());
        Ok(Prepared::new(Call::NeighborAllgatherv { neighbors, len, blocks }, send, recv))
    }
}

pub unsafe fn alltoall(there: &Comm, from: Uniform, into: Uniform) -> Result<Prepared> {
    let neighbors = neighbors(there)?;
    let (indegree, outdegree) = degrees(&neighbors);
    // SAFETY: the caller's buffers.
    unsafe {
        let send = Side::sending(from.times(outdegree)?)?;
        let recv = Side::receiving(into.times(indegree)?, has_holes(&neighbors))?;
        distinct(from.buf, into.buf, &send, &recv)?;
        let len = send.len() / outdegree.max(1) as usize;
        let block = recv.len() / indegree.max(1) as usize;
        Ok(Prepared::new(Call::NeighborAlltoall { neighbors, len, block }, send, recv))
    }
}

pub unsafe fn alltoallv(there: &Comm, from: Varying, into: Varying) -> Result<Prepared> {
    let neighbors = neighbors(there)?;
    let (indegree, outdegree) = degrees(&neighbors);
    // SAFETY: the caller's buffers and arrays.
    unsafe {
        let send = Side::several(from.pieces(outdegree)?, true)?;
        let recv = Side::several_to_receive(into.pieces(indegree)?, has_holes(&neighbors))?;
        distinct(from.buf, into.buf, &send, &recv)?;
        let (given, taken) = (send.blocks(), recv.blocks());
        let call = Call::NeighborAlltoallv { neighbors, send: given, recv: taken };
        Ok(Prepared::new(call, send, recv))
    }
}
