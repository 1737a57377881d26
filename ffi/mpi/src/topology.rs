//! Virtual topologies (MPI 5.0, chapter 8): grids, graphs and distributed graphs. They name neighbors; ranks are never
//! reordered.

mod cartesian;
mod dims;
mod graph;

use crate::comm::{self, Comm};
use crate::prelude::*;
use ironweave_coll::{Neighbors, Pairing};
use ironweave_core::grid;
use std::sync::Arc;

/// What is attached to a communicator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Topology {
    /// A grid: processes in each dimension, and whether it closes to a ring. Ranks are in row-major order.
    Cart { dims: Vec<u32>, periods: Vec<bool> },
    /// A graph that every process has whole: where each process's edges end in the list, and the list.
    Graph { index: Vec<c_int>, edges: Vec<c_int> },
    /// This process's edges of a graph.
    Dist { sources: Vec<Edge>, destinations: Vec<Edge>, weighted: bool },
}

/// An edge of a distributed graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Edge {
    /// The other process, or `MPI_PROC_NULL`.
    pub rank: c_int,
    /// Its weight, 1 where there are none.
    pub weight: c_int,
}

fn missing(what: &str) -> Fail {
    fail(MPI_ERR_TOPOLOGY, format!("the communicator has no {what} topology"))
}

/// The topology of a communicator.
fn of(comm: MPI_Comm) -> Result<(&'static Comm, &'static Topology)> {
    let there = comm::get(comm)?;
    let topology = there.topology.get().ok_or_else(|| missing("virtual"))?;
    Ok((there, topology))
}

/// Copies a list for the caller, at most `most` of it.
///
/// # Errors
/// `MPI_ERR_ARG` when `most` is negative.
///
/// # Safety
/// `to` has room for as many.
unsafe fn give(list: impl IntoIterator<Item = c_int>, to: *mut c_int, most: c_int) -> Result<()> {
    let most = crate::count::count("the length of the array", most)
        .map_err(|error| error.recoded(MPI_ERR_ARG))?;
    for (at, value) in list.into_iter().take(most).enumerate() {
        array("an array of results", to, 1)?;
        // SAFETY: this function's contract.
        unsafe { to.add(at).write(value) };
    }
    Ok(())
}

fn check_rank(rank: c_int, there: &Comm) -> Result<u32> {
    let size = there.size;
    let found = u32::try_from(rank).ok().filter(|&rank| rank < size);
    found.ok_or_else(|| {
        fail(MPI_ERR_RANK, format!("the rank is {rank}, and the communicator has {size} ranks"))
    })
}

/// The edges of this process, as collectives on neighbors have them.
///
/// # Errors
/// `MPI_ERR_TOPOLOGY`.
pub fn neighbors(there: &Comm) -> Result<Neighbors> {
    let topology = there.topology.get().ok_or_else(|| missing("virtual"))?;
    let ranks = |list: &[c_int]| -> Arc<[Option<u32>]> {
        list.iter().map(|&rank| u32::try_from(rank).ok()).collect()
    };
    Ok(match topology.as_ref() {
        Topology::Cart { dims, periods } => grid::neighbors(dims, periods, there.rank),
        Topology::Graph { index, edges } => {
            let list = ranks(graph::edges_of(index, edges, there.rank));
            Neighbors { sources: Arc::clone(&list), destinations: list, pairing: Pairing::InOrder }
        }
        Topology::Dist { sources, destinations, .. } => {
            let list =
                |edges: &[Edge]| ranks(&edges.iter().map(|edge| edge.rank).collect::<Vec<_>>());
            let (sources, destinations) = (list(sources), list(destinations));
            Neighbors { sources, destinations, pairing: Pairing::InOrder }
        }
    })
}

mpi! {
    fn MPI_Topo_test(comm: MPI_Comm, status: *mut c_int) on comm {
        let which = match comm::get(comm)?.topology.get().map(AsRef::as_ref) {
            None => MPI_UNDEFINED,
            Some(Topology::Cart { .. }) => MPI_CART,
            Some(Topology::Graph { .. }) => MPI_GRAPH,
            Some(Topology::Dist { .. }) => MPI_DIST_GRAPH,
        };
        // SAFETY: the caller's result.
        unsafe { status.write(which) };
        Ok(())
    }
}
