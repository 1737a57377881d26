//! `MPI_Dims_create` (MPI 5.0, §8.5.2): factors as close to each other as can be.

use crate::prelude::*;

/// Factors of `n` in so many dimensions, the largest first: with the smallest largest one, then the largest smallest one.
fn balanced(n: u32, dims: usize) -> Vec<u32> {
    fn search(n: u32, left: usize, most: u32, chosen: &mut Vec<u32>, best: &mut Option<Vec<u32>>) {
        let key =
            |dims: &Vec<u32>| (dims.first().copied(), std::cmp::Reverse(dims.last().copied()));
        if left == 1 {
            if n <= most {
                chosen.push(n);
                if best.as_ref().is_none_or(|best| key(chosen) < key(best)) {
                    *best = Some(chosen.clone());
                }
                chosen.pop();
            }
            return;
        }
        for divisor in (1..=n.min(most)).rev().filter(|divisor| n.is_multiple_of(*divisor)) {
            // What is left must fit into factors that are no larger.
            if u64::from(divisor).saturating_pow(left as u32) < u64::from(n) {
                break;
            }
            chosen.push(divisor);
            search(n / divisor, left - 1, divisor, chosen, best);
            chosen.pop();
        }
    }
    let mut best = None;
    search(n, dims, n, &mut Vec::with_capacity(dims), &mut best);
    best.unwrap_or_default()
}

mpi! {
    fn MPI_Dims_create(nnodes: c_int, ndims: c_int, dims: *mut c_int) on none {
        if nnodes < 1 {
            return Err(fail(MPI_ERR_ARG, format!("the number of nodes is {nnodes}")));
        }
        let ndims = crate::count::count("ndims", ndims).map_err(|error| error.recoded(MPI_ERR_DIMS))?;
        if ndims == 0 {
            return if nnodes == 1 { Ok(()) } else { Err(fail(MPI_ERR_DIMS, format!("{nnodes} nodes in no dimension"))) };
        }
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
            let mut factors = balanced((i64::from(nnodes) / fixed) as u32, free).into_iter();
            for dim in dims.iter_mut().filter(|dim| **dim == 0) {
                *dim = factors.next().unwrap_or(1) as c_int;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::balanced;

    #[test]
    fn factors_are_close() {
        let cases: [(u32, usize, &[u32]); 9] = [
            (6, 2, &[3, 2]),
            (7, 2, &[7, 1]),
            (12, 3, &[3, 2, 2]),
            (16, 3, &[4, 2, 2]),
            (16, 2, &[4, 4]),
            (60, 3, &[5, 4, 3]),
            (1, 3, &[1, 1, 1]),
            (5, 1, &[5]),
            (1 << 20, 2, &[1024, 1024]),
        ];
        for (n, dims, want) in cases {
            assert_eq!(balanced(n, dims), want, "{n} in {dims}");
        }
    }
}
