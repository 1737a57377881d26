//! Parts of multidimensional arrays: a box cut out of one, and one process's share of a distributed one.
//!
//! Both build one dimension after the other, from the one whose elements are adjacent in memory to the slowest, and set
//! the bounds to those of the whole array (MPI 5.0, sections 5.1.3 and 5.1.4).

use crate::datatype::Datatype;
use crate::error::{Argument, TypeError, at_least, same_length, wrong};
use crate::map::{Builder, Map};

/// Which index of an array runs fastest. Values are the ABI's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The last (row-major).
    C = 0xC,
    /// The first (column-major).
    Fortran = 0xF,
}

/// How one dimension is dealt out to processes. Values are the ABI's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Not at all.
    None = 16,
    /// One block each.
    Block = 17,
    /// Blocks in turn.
    Cyclic = 18,
}

/// The distribution argument that stands for the default. The value is the ABI's.
pub const DEFAULT_ARGUMENT: i64 = 19;

/// One dimension of a distributed array.
pub(crate) struct Dim {
    /// Elements of the whole array.
    size: i64,
    /// Elements in a block.
    block: i64,
    /// Processes.
    processes: i64,
}

/// Indices of the dimensions from the fastest to the slowest.
fn fastest_first(dims: usize, order: Order) -> impl Iterator<Item = usize> {
    (0..dims).map(move |i| if order == Order::C { dims - 1 - i } else { i })
}

pub(crate) fn subarray(
    sizes: &[i64],
    subsizes: &[i64],
    starts: &[i64],
    order: Order,
    of: &Datatype,
) -> Result<Map, TypeError> {
    if sizes.is_empty() {
        return Err(wrong(Argument::Dimensions, 0, 0, "1 or more"));
    }
    same_length(Argument::SubarraySize, subsizes.len(), sizes.len())?;
    same_length(Argument::Start, starts.len(), sizes.len())?;
    let (mut map, mut stride, mut start) = (of.map().clone(), of.extent(), 0_i64);
    for i in fastest_first(sizes.len(), order) {
        at_least(Argument::ArraySize, i, sizes[i], 1)?;
        at_least(Argument::SubarraySize, i, subsizes[i], 1)?;
        at_least(Argument::Start, i, starts[i], 0)?;
        if subsizes[i] > sizes[i] {
            return Err(wrong(Argument::SubarraySize, i, subsizes[i], "at most the array's"));
        }
        if starts[i] > sizes[i] - subsizes[i] {
            return Err(wrong(Argument::Start, i, starts[i], "such that the part is inside"));
        }
        map = map.repeat(subsizes[i], stride)?;
        start = add(start, mul(starts[i], stride)?)?;
        stride = mul(stride, sizes[i])?;
    }
    let map = map.shifted(start)?;
    Ok(Map { bounds: map.bounds.with(0, stride), ..map })
}

/// Checks the dimensions of a distributed array.
pub(crate) fn dims(
    gsizes: &[i64],
    distributions: &[Distribution],
    arguments: &[i64],
    psizes: &[i64],
) -> Result<Vec<Dim>, TypeError> {
    if gsizes.is_empty() {
        return Err(wrong(Argument::Dimensions, 0, 0, "1 or more"));
    }
    same_length(Argument::Distribution, distributions.len(), gsizes.len())?;
    same_length(Argument::DistributionArgument, arguments.len(), gsizes.len())?;
    same_length(Argument::ProcessGrid, psizes.len(), gsizes.len())?;
    (0..gsizes.len())
        .map(|i| dim(i, gsizes[i], distributions[i], arguments[i], psizes[i]))
        .collect()
}

fn dim(
    i: usize,
    size: i64,
    distribution: Distribution,
    argument: i64,
    processes: i64,
) -> Result<Dim, TypeError> {
    at_least(Argument::ArraySize, i, size, 1)?;
    at_least(Argument::ProcessGrid, i, processes, 1)?;
    let given = argument != DEFAULT_ARGUMENT;
    let block = match distribution {
        Distribution::None if processes != 1 => {
            return Err(wrong(Argument::ProcessGrid, i, processes, "1 where nothing is dealt out"));
        }
        Distribution::None => size,
        Distribution::Block | Distribution::Cyclic if given => {
            at_least(Argument::DistributionArgument, i, argument, 1)?
        }
        Distribution::Block => (size - 1) / processes + 1,
        Distribution::Cyclic => 1,
    };
    if distribution == Distribution::Block
        && i128::from(block) * i128::from(processes) < size.into()
    {
        let must = "such that the blocks cover the array";
        return Err(wrong(Argument::DistributionArgument, i, argument, must));
    }
    Ok(Dim { size, block, processes })
}

pub(crate) fn darray(
    size: i64,
    rank: i64,
    dims: &[Dim],
    order: Order,
    of: &Datatype,
) -> Result<Map, TypeError> {
    at_least(Argument::Size, 0, size, 1)?;
    at_least(Argument::Rank, 0, rank, 0)?;
    if rank >= size {
        return Err(wrong(Argument::Rank, 0, rank, "less than the size"));
    }
    let grid = dims.iter().try_fold(1_i64, |all, dim| all.checked_mul(dim.processes));
    if grid != Some(size) {
        return Err(wrong(Argument::Size, 0, size, "the product of the process grid"));
    }
    // The grid's last coordinate runs fastest, whatever the array's order.
    let mut coordinates = vec![0; dims.len()];
    let mut left = rank;
    for (coordinate, dim) in coordinates.iter_mut().zip(dims).rev() {
        (*coordinate, left) = (left % dim.processes, left / dim.processes);
    }
    let (mut map, mut stride) = (of.map().clone(), of.extent());
    for i in fastest_first(dims.len(), order) {
        map = share(&map, stride, &dims[i], coordinates[i])?;
        stride = mul(stride, dims[i].size)?;
    }
    Ok(Map { bounds: map.bounds.with(0, stride), ..map })
}

/// The elements of one dimension that the process at `coordinate` has.
fn share(map: &Map, stride: i64, dim: &Dim, coordinate: i64) -> Result<Map, TypeError> {
    let wide = |value: i128| i64::try_from(value).map_err(|_| TypeError::TooLarge);
    let first = i128::from(coordinate) * i128::from(dim.block);
    let round = i128::from(dim.processes) * i128::from(dim.block);
    let left = i128::from(dim.size) - first;
    let mut builder = Builder::default();
    if left > 0 {
        // Whole blocks, and what remains of the last one.
        let full = (left - i128::from(dim.block)).div_euclid(round) + 1;
        let rest = (left - full * round).clamp(0, i128::from(dim.block));
        let place = |blocks: i128| wide((first + blocks * round) * i128::from(stride));
        if full > 0 {
            let block = map.repeat(dim.block, stride)?;
            let pitch = if full > 1 { wide(round * i128::from(stride))? } else { 0 };
            builder.push(&block, wide(full)?, pitch, place(0)?)?;
        }
        if rest > 0 {
            builder.push(map, wide(rest)?, stride, place(full)?)?;
        }
    }
    Ok(builder.finish())
}

fn add(a: i64, b: i64) -> Result<i64, TypeError> {
    a.checked_add(b).ok_or(TypeError::TooLarge)
}

fn mul(a: i64, b: i64) -> Result<i64, TypeError> {
    a.checked_mul(b).ok_or(TypeError::TooLarge)
}
