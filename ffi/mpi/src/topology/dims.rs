//! `MPI_Dims_create` (MPI 5.0, §8.5.2): factors as close to each other as can be.

use crate::prelude::*;
use ironweave_core::grid;

mpi! {
    fn MPI_Dims_create(nnodes: c_int, ndims: c_int, dims: *mut c_int) on none {
        if nnodes < 1 {
            return Err(fail(MPI_ERR_ARG, format!("the number of nodes is {nnodes}")));
        }
        let ndims = crate::count::count("ndims", ndims).map_err(|error| error.recoded(MPI_ERR_DIMS))?;
        if ndims == 0 {
            return if nnodes == 1 { Ok(()) } else { Err(fail(MPI_ERR_DIMS, format!("{nnodes} nodes in no dimension"))) };
        }
        array("dims", dims, ndims)?;
        // SAFETY: the caller's array.
        let dims = unsafe { std::slice::from_raw_parts_mut(dims, ndims) };
        if let Some(wrong) = dims.iter().find(|dim| **dim < 0) {
            return Err(fail(MPI_ERR_DIMS, format!("a dimension is {wrong}, which is negative")));
        }
        let fixed = dims.iter().filter(|dim| **dim > 0).try_fold(1i64, |all, dim| all.checked_mul(i64::from(*dim)));
        let free = dims.iter().filter(|dim| **dim == 0).count();
        let fixed = fixed.filter(|fixed| i64::from(nnodes) % fixed == 0 && (free > 0 || *fixed == i64::from(nnodes)));
        let Some(fixed) = fixed else {
            return Err(fail(MPI_ERR_DIMS, format!("{nnodes} nodes do not fill the dimensions {dims:?}")));
        };
        if free > 0 {
            let mut factors = grid::balanced((i64::from(nnodes) / fixed) as u32, free).into_iter();
            for dim in dims.iter_mut().filter(|dim| **dim == 0) {
                *dim = factors.next().unwrap_or(1) as c_int;
            }
        }
        Ok(())
    }
}
