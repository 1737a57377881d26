//! The inner loops: blocks of equal length at a constant stride, to and from contiguous memory.
//!
//! Lengths that one or a few registers hold have loops of their own.

use ironweave_btl::copy::copy;

/// Rows of blocks: `rows` times, `pitch` bytes apart, `count` blocks of `len` bytes, `stride` bytes apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    pub len: usize,
    pub count: usize,
    pub stride: isize,
    pub rows: usize,
    pub pitch: isize,
}

/// Which way bytes go.
pub(super) trait Way {
    /// Moves `N` bytes between the strided and the packed place.
    ///
    /// # Safety
    /// Both are valid for `N` bytes, and do not overlap.
    unsafe fn fixed<const N: usize>(strided: *mut u8, packed: *mut u8);
    /// As `fixed`, of `len` bytes.
    ///
    /// # Safety
    /// As `fixed`.
    unsafe fn any(strided: *mut u8, packed: *mut u8, len: usize);
}

/// From the strided place to the packed one.
pub(super) struct Gather;
/// From the packed place to the strided one.
pub(super) struct Scatter;

impl Way for Gather {
    #[inline(always)]
    unsafe fn fixed<const N: usize>(strided: *mut u8, packed: *mut u8) {
        // SAFETY: by contract.
        unsafe { packed.copy_from_nonoverlapping(strided, N) }
    }

    #[inline(always)]
    unsafe fn any(strided: *mut u8, packed: *mut u8, len: usize) {
        // SAFETY: by contract.
        unsafe { copy(strided, packed, len) }
    }
}

impl Way for Scatter {
    #[inline(always)]
    unsafe fn fixed<const N: usize>(strided: *mut u8, packed: *mut u8) {
        // SAFETY: by contract.
        unsafe { strided.copy_from_nonoverlapping(packed, N) }
    }

    #[inline(always)]
    unsafe fn any(strided: *mut u8, packed: *mut u8, len: usize) {
        // SAFETY: by contract.
        unsafe { copy(packed, strided, len) }
    }
}

/// Moves all blocks of `grid`, the first of which is at `strided`; the packed bytes are at `packed`.
///
/// # Safety
/// Every block is valid for the way's access to it, and so are the packed bytes, which no block overlaps.
pub(super) unsafe fn run<W: Way>(grid: Grid, strided: *mut u8, packed: *mut u8) {
    // SAFETY: by contract.
    unsafe {
        match grid.len {
            1 => run_fixed::<W, 1>(grid, strided, packed),
            2 => run_fixed::<W, 2>(grid, strided, packed),
            4 => run_fixed::<W, 4>(grid, strided, packed),
            8 => run_fixed::<W, 8>(grid, strided, packed),
            12 => run_fixed::<W, 12>(grid, strided, packed),
            16 => run_fixed::<W, 16>(grid, strided, packed),
            24 => run_fixed::<W, 24>(grid, strided, packed),
            32 => run_fixed::<W, 32>(grid, strided, packed),
            64 => run_fixed::<W, 64>(grid, strided, packed),
            _ => run_any::<W>(grid, strided, packed),
        }
    }
}

#[inline(never)]
unsafe fn run_fixed<W: Way, const N: usize>(grid: Grid, strided: *mut u8, packed: *mut u8) {
    let Grid { count, stride, rows, pitch, .. } = grid;
    let (mut row, mut packed) = (strided, packed);
    for _ in 0..rows {
        let (mut block, mut left) = (row, count);
        while left >= 4 {
            // SAFETY: four more blocks of this row, by the count.
            unsafe {
                W::fixed::<N>(block, packed);
                W::fixed::<N>(block.wrapping_offset(stride), packed.add(N));
                W::fixed::<N>(block.wrapping_offset(2 * stride), packed.add(2 * N));
                W::fixed::<N>(block.wrapping_offset(3 * stride), packed.add(3 * N));
                packed = packed.add(4 * N);
            }
            block = block.wrapping_offset(4 * stride);
            left -= 4;
        }
        for _ in 0..left {
            // SAFETY: one more block of this row, by the count.
            unsafe {
                W::fixed::<N>(block, packed);
                packed = packed.add(N);
            }
            block = block.wrapping_offset(stride);
        }
        row = row.wrapping_offset(pitch);
    }
}

#[inline(never)]
unsafe fn run_any<W: Way>(grid: Grid, strided: *mut u8, packed: *mut u8) {
    let Grid { len, count, stride, rows, pitch } = grid;
    let (mut row, mut packed) = (strided, packed);
    for _ in 0..rows {
        let mut block = row;
        for _ in 0..count {
            // SAFETY: one more block of this row, by the count.
            unsafe {
                W::any(block, packed, len);
                packed = packed.add(len);
            }
            block = block.wrapping_offset(stride);
        }
        row = row.wrapping_offset(pitch);
    }
}
