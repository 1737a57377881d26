//! Grids (MPI 5.0, §8.5.1 and 8.5.4–8.5.7).

use super::{Topology, check_rank, give, missing, of};
use crate::comm::{self, Comm};
use crate::construct::{Heritage, create};
use crate::prelude::*;
use ironweave_core::grid;
use std::sync::Arc;

/// A grid as the caller gives it.
fn given(
    there: &Comm,
    ndims: c_int,
    dims: *const c_int,
    periods: *const c_int,
) -> Result<(Vec<u32>, Vec<bool>, u32)> {
    if there.remote.is_some() {
        return Err(fail(MPI_ERR_COMM, "it is an inter-communicator"));
    }
    let n = crate::count::count("ndims", ndims).map_err(|error| error.recoded(MPI_ERR_DIMS))?;
    array("dims", dims, n)?;
    array("periods", periods, n)?;
    let mut all = (Vec::with_capacity(n), Vec::with_capacity(n), 1u64);
    for at in 0..n {
        // SAFETY: the caller's arrays have an entry for each dimension.
        let (dim, period) = unsafe { (*dims.add(at), *periods.add(at)) };
        let Ok(dim) = u32::try_from(dim) else {
            return Err(fail(MPI_ERR_DIMS, format!("dimension {at} is {dim}, which is negative")));
        };
        all.0.push(dim);
        all.1.push(period != 0);
        all.2 = all.2.saturating_mul(u64::from(dim));
    }
    let (dims, periods, nodes) = all;
    if nodes > u64::from(there.size) {
        let text =
            format!("a grid of {dims:?} needs {nodes} processes, and there are {}", there.size);
        return Err(fail(MPI_ERR_TOPOLOGY, text));
    }
    if nodes == 0 {
        return Err(fail(MPI_ERR_DIMS, format!("a grid of {dims:?} has no processes")));
    }
    Ok((dims, periods, nodes as u32))
}

fn cart(comm: MPI_Comm) -> Result<(&'static Comm, &'static [u32], &'static [bool])> {
    match of(comm)? {
        (there, Topology::Cart { dims, periods }) => Ok((there, dims, periods)),
        _ => Err(missing("Cartesian")),
    }
}

/// A communicator of those with a colour, with a grid.
fn made(
    comm: MPI_Comm,
    colour: Option<u32>,
    key: i32,
    dims: Vec<u32>,
    periods: Vec<bool>,
) -> Result<MPI_Comm> {
    let there = comm::get(comm)?;
    let topology = Some(Arc::new(Topology::Cart { dims, periods }));
    create(comm, Heritage { topology, ..Heritage::default() }, |inside| {
        let now = inside.engine.now();
        inside.engine.isplit(there.core, colour, key, now)
    })
}

mpi! {
    fn MPI_Cart_create(comm_old: MPI_Comm, ndims: c_int, dims: *const c_int, periods: *const c_int, _reorder: c_int, comm_cart: *mut MPI_Comm) on comm_old {
        let there = comm::get(comm_old)?;
        let (dims, periods, nodes) = given(there, ndims, dims, periods)?;
        let colour = (there.rank < nodes).then_some(0);
        let made = made(comm_old, colour, there.rank as i32, dims, periods)?;
        // SAFETY: the caller's result.
        unsafe { comm_cart.write(made) };
        Ok(())
    }

    fn MPI_Cart_map(comm: MPI_Comm, ndims: c_int, dims: *const c_int, periods: *const c_int, newrank: *mut c_int) on comm {
        let there = comm::get(comm)?;
        let (_, _, nodes) = given(there, ndims, dims, periods)?;
        let rank = if there.rank < nodes { there.rank as c_int } else { MPI_UNDEFINED };
        // SAFETY: the caller's result.
        unsafe { newrank.write(rank) };
        Ok(())
    }

    fn MPI_Cartdim_get(comm: MPI_Comm, ndims: *mut c_int) on comm {
        let (_, dims, _) = cart(comm)?;
        // SAFETY: the caller's result.
        unsafe { ndims.write(dims.len() as c_int) };
        Ok(())
    }

    fn MPI_Cart_get(comm: MPI_Comm, maxdims: c_int, dims: *mut c_int, periods: *mut c_int, coords: *mut c_int) on comm {
        let (there, all, rings) = cart(comm)?;
        // SAFETY: the caller's results.
        unsafe {
            give(all.iter().map(|&dim| dim as c_int), dims, maxdims)?;
            give(rings.iter().map(|&ring| c_int::from(ring)), periods, maxdims)?;
            give(grid::coords(all, there.rank).iter().map(|&coord| coord as c_int), coords, maxdims)?;
        }
        Ok(())
    }

    fn MPI_Cart_rank(comm: MPI_Comm, coords: *const c_int, rank: *mut c_int) on comm {
        let (_, dims, periods) = cart(comm)?;
        array("coords", coords, dims.len())?;
        let mut there = Vec::with_capacity(dims.len());
        for (at, (&dim, &ring)) in dims.iter().zip(periods).enumerate() {
            // SAFETY: the caller's array has an entry for each dimension.
            let coord = unsafe { *coords.add(at) };
            let inside = (0..i64::from(dim)).contains(&i64::from(coord));
            if !ring && !inside {
                return Err(fail(MPI_ERR_ARG, format!("coordinate {at} is {coord}, and the dimension has {dim}")));
            }
            there.push(i64::from(coord).rem_euclid(i64::from(dim)) as u32);
        }
        // SAFETY: the caller's result.
        unsafe { rank.write(grid::rank_of(dims, &there) as c_int) };
        Ok(())
    }

    fn MPI_Cart_coords(comm: MPI_Comm, rank: c_int, maxdims: c_int, coords: *mut c_int) on comm {
        let (there, dims, _) = cart(comm)?;
        let rank = check_rank(rank, there)?;
        // SAFETY: the caller's result.
        unsafe { give(grid::coords(dims, rank).iter().map(|&coord| coord as c_int), coords, maxdims)? };
        Ok(())
    }

    fn MPI_Cart_shift(comm: MPI_Comm, direction: c_int, disp: c_int, rank_source: *mut c_int, rank_dest: *mut c_int) on comm {
        let (there, dims, periods) = cart(comm)?;
        let along = usize::try_from(direction).ok().filter(|&along| along < dims.len());
        let along = along.ok_or_else(|| {
            fail(MPI_ERR_ARG, format!("the direction is {direction}, and there are {} dimensions", dims.len()))
        })?;
        let (source, dest) = grid::shift(dims, periods, there.rank, along, i64::from(disp));
        let rank = |rank: Option<u32>| rank.map_or(MPI_PROC_NULL, |rank| rank as c_int);
        // SAFETY: the caller's results.
        unsafe {
            rank_source.write(rank(source));
            rank_dest.write(rank(dest));
        }
        Ok(())
    }

    fn MPI_Cart_sub(comm: MPI_Comm, remain_dims: *const c_int, newcomm: *mut MPI_Comm) on comm {
        let (there, dims, periods) = cart(comm)?;
        array("remain_dims", remain_dims, dims.len())?;
        // SAFETY: the caller's array has an entry for each dimension.
        let stays: Vec<bool> = (0..dims.len()).map(|at| unsafe { *remain_dims.add(at) != 0 }).collect();
        let here = grid::coords(dims, there.rank);
        let part = |wanted: bool| {
            let of = |list: &[u32]| -> Vec<u32> {
                list.iter().zip(&stays).filter(|(_, stays)| **stays == wanted).map(|(&value, _)| value).collect()
            };
            (of(dims), of(&here))
        };
        let ((left, place), (gone, slice)) = (part(true), part(false));
        let rings = periods.iter().zip(&stays).filter(|(_, stays)| **stays).map(|(&ring, _)| ring).collect();
        let (colour, key) = (grid::rank_of(&gone, &slice), grid::rank_of(&left, &place));
        let made = made(comm, Some(colour), key as i32, left, rings)?;
        // SAFETY: the caller's result.
        unsafe { newcomm.write(made) };
        Ok(())
    }
}
