//! What each collective operation of this crate asks of the schedules (`ironweave_coll`), for blocking and non-blocking calls
//! alike. Counts become bytes here.

use crate::message::Element;
use crate::{Error, Result};
use ironweave_coll::{Block, Call, Elements, Neighbors, Root};
use std::sync::Arc;

/// Blocks of these many elements one after the other, in bytes.
fn blocks<E>(counts: &[usize]) -> Arc<[Block]> {
    let mut offset = 0;
    let mut block = |count: &usize| {
        let block = Block { offset, len: count * size_of::<E>() };
        offset += block.len;
        block
    };
    counts.iter().map(&mut block).collect()
}

pub(crate) fn bcast<E: Element>(data: &[E], root: Root) -> Call {
    Call::Bcast { root, len: size_of_val(data) }
}

/// What this process is in a rooted operation.
#[derive(Clone, Copy)]
pub(crate) struct Rooted<'a> {
    pub root: Root,
    /// On an inter-communicator the processes of the other side.
    pub size: u32,
    /// It is the root, and these are the counts of all.
    pub counts: Option<&'a [usize]>,
}

impl Rooted<'_> {
    /// Bytes of one process's part: its own, or, at a root that has none because it is on the other side, a part of `all`.
    fn block<E>(self, own: &[E], all: &[E]) -> Result<usize> {
        match self.root {
            Root::Rank(_) | Root::Other => Ok(size_of_val(own)),
            Root::Me => part(all, self.size),
        }
    }

    fn blocks<E>(self) -> Arc<[Block]> {
        self.counts.map_or_else(|| Arc::from([]), blocks::<E>)
    }
}

/// Bytes of each of so many equal parts.
fn part<E>(all: &[E], parts: u32) -> Result<usize> {
    if !all.len().is_multiple_of(parts as usize) {
        let given = all.len();
        return Err(Error::Argument(format!("{given} elements are not {parts} equal parts")));
    }
    // Of an inter-communicator that lost its other side there are none, which is told later.
    Ok(size_of_val(all).checked_div(parts as usize).unwrap_or(0))
}

pub(crate) fn gather<E: Element>(data: &[E], into: &[E], rooted: Rooted<'_>) -> Result<Call> {
    Ok(Call::Gather { root: rooted.root, block: rooted.block(data, into)?, in_place: false })
}

pub(crate) fn gatherv<E: Element>(data: &[E], rooted: Rooted<'_>) -> Call {
    let (root, blocks) = (rooted.root, rooted.blocks::<E>());
    Call::Gatherv { root, len: size_of_val(data), blocks, in_place: false }
}

pub(crate) fn scatter<E: Element>(data: &[E], into: &[E], rooted: Rooted<'_>) -> Result<Call> {
    Ok(Call::Scatter { root: rooted.root, block: rooted.block(into, data)?, in_place: false })
}

pub(crate) fn scatterv<E: Element>(into: &[E], rooted: Rooted<'_>) -> Call {
    let (root, blocks) = (rooted.root, rooted.blocks::<E>());
    Call::Scatterv { root, len: size_of_val(into), blocks, in_place: false }
}

pub(crate) fn allgather<E: Element>(data: &[E]) -> Call {
    let len = size_of_val(data);
    Call::Allgather { len, block: len, in_place: false }
}

pub(crate) fn allgatherv<E: Element>(data: &[E], counts: &[usize]) -> Call {
    Call::Allgatherv { len: size_of_val(data), blocks: blocks::<E>(counts), in_place: false }
}

pub(crate) fn alltoall<E: Element>(data: &[E], size: u32) -> Result<Call> {
    let block = part(data, size)?;
    Ok(Call::Alltoall { len: block, block, in_place: false })
}

pub(crate) fn alltoallv<E: Element>(given: &[usize], taken: &[usize]) -> Call {
    Call::Alltoallv { send: blocks::<E>(given), recv: blocks::<E>(taken), in_place: false }
}

/// How many elements a reduction has: a root on the other side gives none.
pub(crate) fn reduced<E>(data: &[E], into: &[E], root: Root) -> usize {
    if root == Root::Me { into.len() } else { data.len() }
}

pub(crate) fn reduce(elements: Elements, root: Root) -> Call {
    Call::Reduce { root, elements, in_place: false }
}

pub(crate) fn allreduce(elements: Elements) -> Call {
    Call::Allreduce { elements, in_place: false }
}

pub(crate) fn reduce_scatter(elements: Elements, counts: &[usize]) -> Call {
    let Elements { extent, commutative, .. } = elements;
    Call::ReduceScatter { counts: counts.into(), extent, commutative, in_place: false }
}

pub(crate) fn reduce_scatter_block(elements: Elements) -> Call {
    Call::ReduceScatterBlock { elements, in_place: false }
}

pub(crate) fn scan(elements: Elements) -> Call {
    Call::Scan { elements, in_place: false }
}

pub(crate) fn exscan(elements: Elements) -> Call {
    Call::Exscan { elements, in_place: false }
}

pub(crate) fn neighbor_allgather<E: Element>(edges: &Neighbors, data: &[E]) -> Call {
    let len = size_of_val(data);
    Call::NeighborAllgather { neighbors: edges.clone(), len, block: len }
}

pub(crate) fn neighbor_allgatherv<E: Element>(
    edges: &Neighbors,
    data: &[E],
    counts: &[usize],
) -> Call {
    let (neighbors, len) = (edges.clone(), size_of_val(data));
    Call::NeighborAllgatherv { neighbors, len, blocks: blocks::<E>(counts) }
}

pub(crate) fn neighbor_alltoall<E: Element>(
    edges: &Neighbors,
    data: &[E],
    into: &[E],
) -> Result<Call> {
    let part = |list: &[E], parts: usize| match parts {
        0 if list.is_empty() => Ok(0),
        0 => Err(Error::Argument(format!("{} elements, and no neighbor", list.len()))),
        _ if list.len().is_multiple_of(parts) => Ok(size_of_val(list) / parts),
        _ => Err(Error::Argument(format!("{} elements are not {parts} equal parts", list.len()))),
    };
    let len = part(data, edges.destinations.len())?;
    let block = part(into, edges.sources.len())?;
    Ok(Call::NeighborAlltoall { neighbors: edges.clone(), len, block })
}

pub(crate) fn neighbor_alltoallv<E: Element>(
    edges: &Neighbors,
    given: &[usize],
    taken: &[usize],
) -> Call {
    let (send, recv) = (blocks::<E>(given), blocks::<E>(taken));
    Call::NeighborAlltoallv { neighbors: edges.clone(), send, recv }
}
