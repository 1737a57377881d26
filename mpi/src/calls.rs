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

pub(crate) fn bcast<E: Element>(data: &[E], root: u32) -> Call {
    Call::Bcast { root: Root::Rank(root), len: size_of_val(data) }
}

pub(crate) fn gather<E: Element>(data: &[E], root: u32) -> Call {
    Call::Gather { root: Root::Rank(root), block: size_of_val(data), in_place: false }
}

/// `counts` matter at the root only.
pub(crate) fn gatherv<E: Element>(data: &[E], counts: &[usize], me: u32, root: u32) -> Call {
    let blocks = if me == root { blocks::<E>(counts) } else { Arc::from([]) };
    Call::Gatherv { root: Root::Rank(root), len: size_of_val(data), blocks, in_place: false }
}

pub(crate) fn scatter<E: Element>(into: &[E], root: u32) -> Call {
    Call::Scatter { root: Root::Rank(root), block: size_of_val(into), in_place: false }
}

/// `counts` matter at the root only.
pub(crate) fn scatterv<E: Element>(into: &[E], counts: &[usize], me: u32, root: u32) -> Call {
    let blocks = if me == root { blocks::<E>(counts) } else { Arc::from([]) };
    Call::Scatterv { root: Root::Rank(root), len: size_of_val(into), blocks, in_place: false }
}

pub(crate) fn allgather<E: Element>(data: &[E]) -> Call {
    let len = size_of_val(data);
    Call::Allgather { len, block: len, in_place: false }
}

pub(crate) fn allgatherv<E: Element>(data: &[E], counts: &[usize]) -> Call {
    Call::Allgatherv { len: size_of_val(data), blocks: blocks::<E>(counts), in_place: false }
}

pub(crate) fn alltoall<E: Element>(data: &[E], size: u32) -> Result<Call> {
    let parts = size as usize;
    if !data.len().is_multiple_of(parts) {
        let given = data.len();
        return Err(Error::Argument(format!("{given} elements are not {parts} equal parts")));
    }
    let block = size_of_val(data) / parts;
    Ok(Call::Alltoall { len: block, block, in_place: false })
}

pub(crate) fn alltoallv<E: Element>(given: &[usize], taken: &[usize]) -> Call {
    Call::Alltoallv { send: blocks::<E>(given), recv: blocks::<E>(taken), in_place: false }
}

pub(crate) fn reduce(elements: Elements, root: u32) -> Call {
    Call::Reduce { root: Root::Rank(root), elements, in_place: false }
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
