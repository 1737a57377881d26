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
    /// Moves four blocks of `N` bytes, the strided ones `stride` bytes apart.
    ///
    /// # Safety
    /// As `fixed`, for each of the four.
    #[inline(always)]
    unsafe fn four<const N: usize>(strided: *mut u8, stride: isize, packed: *mut u8) {
        // SAFETY: by contract.
        unsafe {
            Self::fixed::<N>(strided, packed);
            Self::fixed::<N>(strided.wrapping_offset(stride), packed.add(N));
            Self::fixed::<N>(strided.wrapping_offset(2 * stride), packed.add(2 * N));
            Self::fixed::<N>(strided.wrapping_offset(3 * stride), packed.add(3 * N));
        }
    }
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

    /// Stores are what bounds it: several small blocks go out in one.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(always)]
    unsafe fn four<const N: usize>(strided: *mut u8, stride: isize, packed: *mut u8) {
        use std::arch::x86_64::{
            __m128i, _mm_loadl_epi64, _mm_loadu_si32, _mm_storeu_si128, _mm_unpacklo_epi32,
            _mm_unpacklo_epi64,
        };
        let at = |i: isize| strided.wrapping_offset(i * stride);
        // SAFETY: each load is of one block, the stores are of the four blocks' packed bytes, by contract; every x86-64 has
        // the instructions, and none needs alignment.
        unsafe {
            match N {
                4 => {
                    let load = |i| _mm_loadu_si32(at(i));
                    let low = _mm_unpacklo_epi32(load(0), load(1));
                    let high = _mm_unpacklo_epi32(load(2), load(3));
                    _mm_storeu_si128(packed.cast(), _mm_unpacklo_epi64(low, high));
                }
                8 => {
                    let load = |i| _mm_loadl_epi64(at(i).cast::<__m128i>());
                    let (low, high) = (
                        _mm_unpacklo_epi64(load(0), load(1)),
                        _mm_unpacklo_epi64(load(2), load(3)),
                    );
                    _mm_storeu_si128(packed.cast(), low);
                    _mm_storeu_si128(packed.add(16).cast(), high);
                }
                _ => {
                    for i in 0..4 {
                        Self::fixed::<N>(at(i), packed.add(i as usize * N));
                    }
                }
            }
        }
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
            32 => run_wide::<W, 32>(grid, strided, packed),
            48 => run_wide::<W, 48>(grid, strided, packed),
            64 => run_wide::<W, 64>(grid, strided, packed),
            128 => run_wide::<W, 128>(grid, strided, packed),
            _ => run_any::<W>(grid, strided, packed),
        }
    }
}

/// Blocks of 32 bytes and more, in wider registers where there are such.
#[inline(never)]
unsafe fn run_wide<W: Way, const N: usize>(grid: Grid, strided: *mut u8, packed: *mut u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        /// # Safety
        /// As [`run`]; the processor has AVX.
        #[target_feature(enable = "avx")]
        unsafe fn run_avx<W: Way, const N: usize>(grid: Grid, strided: *mut u8, packed: *mut u8) {
            // SAFETY: by contract.
            unsafe { loops::<W, N>(grid, strided, packed) }
        }
        /// # Safety
        /// As [`run`]; the processor has AVX-512.
        #[target_feature(enable = "avx512f")]
        unsafe fn run_avx512<W: Way, const N: usize>(
            grid: Grid,
            strided: *mut u8,
            packed: *mut u8,
        ) {
            // SAFETY: by contract.
            unsafe { loops::<W, N>(grid, strided, packed) }
        }
        // Processors with these instructions do not slow down for wide registers. Measured: a message of 1,024 blocks of 64
        // bytes, between near cores, in turns, 3.33 to 3.21 us.
        if N.is_multiple_of(64) && is_x86_feature_detected!("avx512vbmi2") {
            // SAFETY: by contract; the processor has it.
            return unsafe { run_avx512::<W, N>(grid, strided, packed) };
        }
        if is_x86_feature_detected!("avx") {
            // SAFETY: by contract; the processor has it.
            return unsafe { run_avx::<W, N>(grid, strided, packed) };
        }
    }
    // SAFETY: by contract.
    unsafe { loops::<W, N>(grid, strided, packed) }
}

#[inline(never)]
unsafe fn run_fixed<W: Way, const N: usize>(grid: Grid, strided: *mut u8, packed: *mut u8) {
    // SAFETY: by contract.
    unsafe { loops::<W, N>(grid, strided, packed) }
}

/// All blocks of a grid, `N` bytes each.
///
/// # Safety
/// As [`run`].
#[inline(always)]
unsafe fn loops<W: Way, const N: usize>(grid: Grid, strided: *mut u8, packed: *mut u8) {
    let Grid { count, stride, rows, pitch, .. } = grid;
    let (mut row, mut packed) = (strided, packed);
    for _ in 0..rows {
        let (mut block, mut left) = (row, count);
        while left >= 4 {
            // SAFETY: four more blocks of this row, by the count.
            unsafe {
                W::four::<N>(block, stride, packed);
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
