//! Graphs, whole and distributed (MPI 5.0, §8.5.3–8.5.5 and 8.5.8).

use super::{Edge, Topology, check_rank, give, missing, of};
use crate::collective::argument::{uniform, varying};
use crate::collective::{prepare, run};
use crate::comm::{self, Comm};
use crate::construct::{Heritage, create};
use crate::info;
use crate::prelude::*;
use std::sync::Arc;

/// The neighbors of a process in a whole graph.
pub fn edges_of<'a>(index: &[c_int], edges: &'a [c_int], rank: u32) -> &'a [c_int] {
    let rank = rank as usize;
    let start = if rank == 0 { 0 } else { index[rank - 1] as usize };
    &edges[start..index[rank] as usize]
}

/// A graph as the caller gives it.
///
/// # Safety
/// The arrays are as long as `nnodes`, and as the last of the indices, say.
unsafe fn whole(
    there: &Comm,
    nnodes: c_int,
    index: *const c_int,
    edges: *const c_int,
) -> Result<(Vec<c_int>, Vec<c_int>)> {
    if there.remote.is_some() {
        return Err(fail(MPI_ERR_COMM, "it is an inter-communicator"));
    }
    let nodes =
        crate::count::count("nnodes", nnodes).map_err(|error| error.recoded(MPI_ERR_ARG))?;
    if nodes > there.size as usize {
        let text = format!("a graph of {nodes} nodes, and there are {} processes", there.size);
        return Err(fail(MPI_ERR_TOPOLOGY, text));
    }
    array("index", index, nodes)?;
    // SAFETY: this function's contract.
    let index: Vec<c_int> = (0..nodes).map(|at| unsafe { *index.add(at) }).collect();
    let mut before = 0;
    for &end in &index {
        if end < before {
            return Err(fail(MPI_ERR_ARG, format!("the indices {index:?} do not rise")));
        }
        before = end;
    }
    array("edges", edges, before as usize)?;
    // SAFETY: this function's contract.
    let edges: Vec<c_int> = (0..before as usize).map(|at| unsafe { *edges.add(at) }).collect();
    if let Some(wrong) = edges.iter().find(|edge| !(0..nnodes).contains(*edge)) {
        return Err(fail(MPI_ERR_ARG, format!("an edge to {wrong}, and there are {nnodes} nodes")));
    }
    Ok((index, edges))
}

fn graph(comm: MPI_Comm) -> Result<(&'static Comm, &'static [c_int], &'static [c_int])> {
    match of(comm)? {
        (there, Topology::Graph { index, edges }) => Ok((there, index, edges)),
        _ => Err(missing("graph")),
    }
}

fn dist(comm: MPI_Comm) -> Result<(&'static [Edge], &'static [Edge], bool)> {
    match of(comm)? {
        (_, Topology::Dist { sources, destinations, weighted }) => {
            Ok((sources, destinations, *weighted))
        }
        _ => Err(missing("distributed graph")),
    }
}

/// A duplicate with a topology.
fn with(comm: MPI_Comm, topology: Topology) -> Result<MPI_Comm> {
    let there = comm::get(comm)?;
    let heritage = Heritage { topology: Some(Arc::new(topology)), ..Heritage::default() };
    create(comm, heritage, |inside| {
        let now = inside.engine.now();
        inside.engine.isplit(there.core, Some(0), there.rank as i32, now)
    })
}

/// Whether a list of weights is one.
fn has_weights(weights: *const c_int) -> bool {
    !matches!(weights.addr(), MPI_UNWEIGHTED | MPI_WEIGHTS_EMPTY)
}

/// # Safety
/// The arrays are as long.
unsafe fn edges(
    there: &Comm,
    degree: c_int,
    ranks: *const c_int,
    weights: *const c_int,
) -> Result<Vec<Edge>> {
    let degree =
        crate::count::count("the degree", degree).map_err(|error| error.recoded(MPI_ERR_ARG))?;
    array("a list of neighbors", ranks, degree)?;
    array("a list of weights", weights, degree)?;
    let edge = |at| {
        // SAFETY: this function's contract.
        let (rank, weight) =
            unsafe { (*ranks.add(at), if has_weights(weights) { *weights.add(at) } else { 1 }) };
        if rank != MPI_PROC_NULL {
            check_rank(rank, there)?;
        }
        if weight < 0 {
            return Err(fail(MPI_ERR_ARG, format!("a weight is {weight}, which is negative")));
        }
        Ok(Edge { rank, weight })
    };
    (0..degree).map(edge).collect()
}

/// Sends each process the numbers that are for it, and answers what came from all, in the order of ranks.
fn exchange(comm: MPI_Comm, parts: &[Vec<c_int>]) -> Result<Vec<c_int>> {
    let n = parts.len();
    let give: Vec<c_int> = parts.iter().map(|part| part.len() as c_int).collect();
    let mut take = vec![0; n];
    run::blocking(comm, |there| {
        // SAFETY: both arrays have an entry for each process, and outlive the call.
        unsafe {
            let one = |array: *const c_int| uniform(array.cast(), 1, MPI_INT);
            prepare::alltoall(there, one(give.as_ptr()), one(take.as_mut_ptr()))
        }
    })?;
    let starts = |counts: &[c_int]| -> Vec<c_int> {
        let mut next = 0;
        let start = |&count: &c_int| {
            next += count;
            next - count
        };
        counts.iter().map(start).collect()
    };
    let (from, to) = (starts(&give), starts(&take));
    let out: Vec<c_int> = parts.concat();
    let mut came = vec![0; take.iter().sum::<c_int>() as usize];
    run::blocking(comm, |there| {
        // SAFETY: the arrays are as the counts and displacements say, and outlive the call.
        unsafe {
            let several = |array: *const c_int, counts: &[c_int], displs: &[c_int]| {
                varying(array.cast(), counts.as_ptr(), displs.as_ptr(), MPI_INT)
            };
            let out = several(out.as_ptr(), &give, &from);
            prepare::alltoallv(there, out, several(came.as_mut_ptr(), &take, &to))
        }
    })?;
    Ok(came)
}

/// This process's edges of a graph of which each process gives some edges of anybody.
///
/// # Safety
/// The arrays are as long as `n`, and as the sum of the degrees.
unsafe fn collect(
    comm: MPI_Comm,
    n: c_int,
    sources: *const c_int,
    degrees: *const c_int,
    destinations: *const c_int,
    weights: *const c_int,
) -> Result<Topology> {
    let there = comm::get(comm)?;
    let n = crate::count::count("n", n).map_err(|error| error.recoded(MPI_ERR_ARG))?;
    array("sources", sources, n)?;
    array("degrees", degrees, n)?;
    // For each process: (is it the destination, the other, the weight) for each edge.
    let mut parts = vec![Vec::new(); there.size as usize];
    let mut next = 0;
    for at in 0..n {
        // SAFETY: this function's contract.
        let (source, degree) = unsafe { (*sources.add(at), *degrees.add(at)) };
        let source = check_rank(source, there)?;
        // SAFETY: this function's contract.
        let list = unsafe {
            let weights = if has_weights(weights) { weights.add(next) } else { weights };
            edges(there, degree, destinations.add(next), weights)?
        };
        next += list.len();
        for Edge { rank, weight } in list {
            parts[source as usize].extend([0, rank, weight]);
            if let Some(part) = usize::try_from(rank).ok().and_then(|rank| parts.get_mut(rank)) {
                part.extend([1, source as c_int, weight]);
            }
        }
    }
    let weighted = weights.addr() != MPI_UNWEIGHTED;
    let came = exchange(comm, &parts)?;
    let (mut sources, mut destinations) = (Vec::new(), Vec::new());
    for edge in came.as_chunks::<3>().0 {
        let [incoming, rank, weight] = *edge;
        let list = if incoming == 1 { &mut sources } else { &mut destinations };
        list.push(Edge { rank, weight });
    }
    // In the order of ranks at both ends: several edges between two processes pair up by weight.
    sources.sort();
    destinations.sort();
    Ok(Topology::Dist { sources, destinations, weighted })
}

fn no_inter(there: &Comm) -> Result<()> {
    match there.remote {
        None => Ok(()),
        Some(_) => Err(fail(MPI_ERR_COMM, "it is an inter-communicator")),
    }
}

mpi! {
    fn MPI_Graph_create(comm_old: MPI_Comm, nnodes: c_int, index: *const c_int, edges: *const c_int, _reorder: c_int, comm_graph: *mut MPI_Comm) on comm_old {
        let there = comm::get(comm_old)?;
        // SAFETY: the caller's arrays.
        let (index, edges) = unsafe { whole(there, nnodes, index, edges)? };
        let colour = ((there.rank as usize) < index.len()).then_some(0);
        let topology = Some(Arc::new(Topology::Graph { index, edges }));
        let made = create(comm_old, Heritage { topology, ..Heritage::default() }, |inside| {
            let now = inside.engine.now();
            inside.engine.isplit(there.core, colour, there.rank as i32, now)
        })?;
        // SAFETY: the caller's result.
        unsafe { comm_graph.write(made) };
        Ok(())
    }

    fn MPI_Graph_map(comm: MPI_Comm, nnodes: c_int, index: *const c_int, edges: *const c_int, newrank: *mut c_int) on comm {
        let there = comm::get(comm)?;
        // SAFETY: the caller's arrays and result.
        unsafe {
            let (index, _) = whole(there, nnodes, index, edges)?;
            let inside = (there.rank as usize) < index.len();
            newrank.write(if inside { there.rank as c_int } else { MPI_UNDEFINED });
        }
        Ok(())
    }

    fn MPI_Graphdims_get(comm: MPI_Comm, nnodes: *mut c_int, nedges: *mut c_int) on comm {
        let (_, index, edges) = graph(comm)?;
        // SAFETY: the caller's results.
        unsafe {
            nnodes.write(index.len() as c_int);
            nedges.write(edges.len() as c_int);
        }
        Ok(())
    }

    fn MPI_Graph_get(comm: MPI_Comm, maxindex: c_int, maxedges: c_int, indices: *mut c_int, edges: *mut c_int) on comm {
        let (_, all, list) = graph(comm)?;
        // SAFETY: the caller's results.
        unsafe {
            give(all.iter().copied(), indices, maxindex)?;
            give(list.iter().copied(), edges, maxedges)?;
        }
        Ok(())
    }

    fn MPI_Graph_neighbors_count(comm: MPI_Comm, rank: c_int, nneighbors: *mut c_int) on comm {
        let (there, index, edges) = graph(comm)?;
        let rank = check_rank(rank, there)?;
        // SAFETY: the caller's result.
        unsafe { nneighbors.write(edges_of(index, edges, rank).len() as c_int) };
        Ok(())
    }

    fn MPI_Graph_neighbors(comm: MPI_Comm, rank: c_int, maxneighbors: c_int, neighbors: *mut c_int) on comm {
        let (there, index, edges) = graph(comm)?;
        let rank = check_rank(rank, there)?;
        // SAFETY: the caller's result.
        unsafe { give(edges_of(index, edges, rank).iter().copied(), neighbors, maxneighbors)? };
        Ok(())
    }

    fn MPI_Dist_graph_create_adjacent(comm_old: MPI_Comm, indegree: c_int, sources: *const c_int, sourceweights: *const c_int, outdegree: c_int, destinations: *const c_int, destweights: *const c_int, info: MPI_Info, _reorder: c_int, comm_dist_graph: *mut MPI_Comm) on comm_old {
        let there = comm::get(comm_old)?;
        no_inter(there)?;
        info::hints(info)?;
        // SAFETY: the caller's arrays and result.
        unsafe {
            let topology = Topology::Dist {
                sources: edges(there, indegree, sources, sourceweights)?,
                destinations: edges(there, outdegree, destinations, destweights)?,
                weighted: sourceweights.addr() != MPI_UNWEIGHTED,
            };
            comm_dist_graph.write(with(comm_old, topology)?);
        }
        Ok(())
    }

    fn MPI_Dist_graph_create(comm_old: MPI_Comm, n: c_int, sources: *const c_int, degrees: *const c_int, destinations: *const c_int, weights: *const c_int, info: MPI_Info, _reorder: c_int, comm_dist_graph: *mut MPI_Comm) on comm_old {
        no_inter(comm::get(comm_old)?)?;
        info::hints(info)?;
        // SAFETY: the caller's arrays and result.
        unsafe {
            let topology = collect(comm_old, n, sources, degrees, destinations, weights)?;
            comm_dist_graph.write(with(comm_old, topology)?);
        }
        Ok(())
    }

    fn MPI_Dist_graph_neighbors_count(comm: MPI_Comm, indegree: *mut c_int, outdegree: *mut c_int, weighted: *mut c_int) on comm {
        let (sources, destinations, has_weights) = dist(comm)?;
        // SAFETY: the caller's results.
        unsafe {
            indegree.write(sources.len() as c_int);
            outdegree.write(destinations.len() as c_int);
            weighted.write(c_int::from(has_weights));
        }
        Ok(())
    }

    fn MPI_Dist_graph_neighbors(comm: MPI_Comm, maxindegree: c_int, sources: *mut c_int, sourceweights: *mut c_int, maxoutdegree: c_int, destinations: *mut c_int, destweights: *mut c_int) on comm {
        let (from, to, weighted) = dist(comm)?;
        // SAFETY: the caller's results; weights are none where there are none.
        unsafe {
            give(from.iter().map(|edge| edge.rank), sources, maxindegree)?;
            give(to.iter().map(|edge| edge.rank), destinations, maxoutdegree)?;
            if weighted && has_weights(sourceweights) {
                give(from.iter().map(|edge| edge.weight), sourceweights, maxindegree)?;
            }
            if weighted && has_weights(destweights) {
                give(to.iter().map(|edge| edge.weight), destweights, maxoutdegree)?;
            }
        }
        Ok(())
    }
}
