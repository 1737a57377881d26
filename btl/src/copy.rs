//! Copies between user memory and transport memory: how bytes move fastest on this processor.
//!
//! Knows lengths, alignments and caches; never whose memory it is or when it may be touched: that is its callers'
//! promise. Three kinds of lengths: a few bytes travel in registers without a call; up to `BLOCKS_FROM` the library's
//! copy is best; above it, blocks of vector registers. The library's own choice there,
//! `rep movsb`, falls to a third of the speed when the target's lines are in another core's cache (14 against 37 GB/s
//! between two Zen 4 cores), and to half when the target lies a little above the source within a page. Zen 5 has neither
//! fault, and moves strings twice as fast as blocks, and Intel's Xeons since the fourth generation write whole lines by strings without fetching them ([`strings_are_quick`]). Asking for the source ahead pays where it was stored by another core just now ([`copy_ahead`]), and nowhere else; but Zen 3 gains where neither
//! side is in the core's own cache when both are asked for well ahead (`is_zen3`).
#![allow(unsafe_code)] // copies memory by pointers: blueprint, "the registration of user memory"

/// From this length on copies go by blocks.
const BLOCKS_FROM: usize = 1024;

/// Bytes that are loaded before they are stored.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const BLOCK: usize = 256;

/// How far before its load a line is asked for by [`copy_ahead`], in bytes: a multiple of [`BLOCK`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
const AHEAD: usize = 2 * BLOCK;

/// From this length on lines are asked for on both sides where that pays ([`is_zen3`]): what is shorter is mostly in the core's
/// own cache.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const FAR_FROM: usize = 32 << 10;

/// How far before its load and store a line is asked for then, in bytes: a multiple of [`BLOCK`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
const FAR_AHEAD: usize = 8 * BLOCK;

/// From this length on strings are moved faster than blocks from far away.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const STRING_FROM: usize = 16 << 10;

/// From this length on strings are moved faster than blocks where that is quick ([`strings_are_quick`]). On a Xeon of the fifth
/// generation messages of 4 KiB to and fro took 3 per cent less, both ways at once 8 to 11.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const QUICK_STRING_FROM: usize = 4 << 10;

/// The same on Zen 5, where windows of 4 KiB went 4 per cent slower.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const QUICK_STRING_FROM_ZEN5: usize = 8 << 10;

/// Fills `to` with `from`, as `copy_from_slice` does.
///
/// # Panics
/// When the lengths differ.
#[inline(always)]
pub fn pack(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "a copy into another length");
    // SAFETY: both are live slices of that length; one is exclusive, so they do not overlap.
    unsafe { copy(from.as_ptr(), to.as_mut_ptr(), to.len()) }
}

/// Copies `len` bytes.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`] for bytes; of no bytes, any pointers will do.
#[inline(always)]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // Two possibly overlapping loads and stores of one size cover every length between that size and its double.
    macro_rules! pair {
        ($word:ty) => {{
            let last = len - size_of::<$word>();
            // SAFETY: both words are inside `len` bytes; the ranges do not overlap each other, by contract.
            unsafe {
                let (a, b) = (
                    from.cast::<$word>().read_unaligned(),
                    from.add(last).cast::<$word>().read_unaligned(),
                );
                to.cast::<$word>().write_unaligned(a);
                to.add(last).cast::<$word>().write_unaligned(b);
            }
        }};
    }
    match len {
        8..=16 => pair!(u64),
        0 => {}
        // SAFETY: one byte, by contract.
        1 => unsafe { to.write(from.read()) },
        2..=3 => pair!(u16),
        4..=7 => pair!(u32),
        17..=32 => pair!(u128),
        // SAFETY: by contract.
        33..BLOCKS_FROM => unsafe { std::ptr::copy_nonoverlapping(from, to, len) },
        // SAFETY: by contract.
        _ => unsafe { copy_long(from, to, len) },
    }
}

/// As [`copy`], for [`BLOCKS_FROM`] bytes and more.
#[inline(never)]
unsafe fn copy_long(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if is_x86_feature_detected!("avx") {
        // SAFETY: the processor has it; the rest by contract.
        return unsafe {
            if is_quick_string(len) {
                move_string(from, to, len);
            } else if len >= FAR_FROM && is_zen3() {
                copy_blocks::<FAR_AHEAD, FAR_AHEAD>(from, to, len)
            } else {
                copy_blocks::<0, 0>(from, to, len)
            }
        };
    }
    // SAFETY: by contract.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) }
}

/// As [`copy`], for a source that another core has just stored: its lines are asked for a little before they are loaded.
/// No line beyond the end is, for that core may be writing there.
///
/// # Safety
/// As [`copy`].
pub unsafe fn copy_ahead(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if len >= BLOCKS_FROM && !is_quick_string(len) && is_x86_feature_detected!("avx") {
        // SAFETY: the processor has it; the rest by contract.
        return unsafe { copy_blocks::<AHEAD, 0>(from, to, len) };
    }
    // SAFETY: by contract.
    unsafe { copy(from, to, len) }
}

/// As [`copy`], for a source that comes from far away, another core's cache with none between or memory: the processor's own
/// move of a string keeps more lines under way than loads do, and lines asked for ahead are only in its way. Measured on two Zen 3 cores that share no
/// cache, medians in turns, messages to and fro: 64 KiB 8.5 and 7.7 µs, 256 KiB 34 and 29; with lines asked for
/// ahead 1 MiB 168 µs, by string 114.
///
/// # Safety
/// As [`copy`].
pub unsafe fn copy_string(from: *const u8, to: *mut u8, len: usize) {
    // Where the target lies just ahead of the source within a page, strings move at a twentieth of the speed on some processors.
    let ahead = (to as usize).wrapping_sub(from as usize) % 4096;
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if len >= BLOCKS_FROM
        && (len < STRING_FROM || (1..64).contains(&ahead))
        && is_x86_feature_detected!("avx")
    {
        // SAFETY: the processor has it; the rest by contract.
        return unsafe { copy_blocks::<0, 0>(from, to, len) };
    }
    let _ = ahead;
    // SAFETY: by contract.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) }
}

/// Copies past the cache: for targets that nobody has in a cache, whose lines would have to be fetched only to be
/// overwritten. Others see it before what is stored later only after [`settle`].
///
/// # Safety
/// As [`copy`].
pub unsafe fn copy_past(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if len >= BLOCKS_FROM && is_x86_feature_detected!("avx") {
        // Whole lines can be streamed; what is before and after them is copied plainly.
        let head = to.align_offset(64);
        let body = (len - head) / BLOCK * BLOCK;
        let done = head + body;
        // SAFETY: `head`, `body` and the rest are the parts of `len` bytes, by contract; the body's target starts a
        // line and has a multiple of `BLOCK` bytes; the processor has the instructions.
        unsafe {
            copy(from, to, head);
            stream_blocks(from.add(head), to.add(head), body);
            copy(from.add(done), to.add(done), len - done);
        }
        return;
    }
    // SAFETY: by contract.
    unsafe { copy(from, to, len) }
}

/// Orders all that was copied past the cache before what is stored after this. Takes a hundred nanoseconds, so once a message, not
/// once a piece.
#[inline]
pub fn settle() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: part of x86-64; touches no memory.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Whether the processor has an instruction that moves a line towards the cache that cores share ([`demote`]): Intel's Xeons since the
/// fourth generation.
#[must_use]
pub fn can_demote() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        const LEAF: u32 = 7;
        const CLDEMOTE: u32 = 1 << 25;
        std::arch::x86_64::__cpuid_count(0, 0).eax >= LEAF
            && std::arch::x86_64::__cpuid_count(LEAF, 0).ecx & CLDEMOTE != 0
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    false
}

/// Moves the lines of `len` bytes towards the cache that cores share: for what another core is about to read. A hint that changes
/// nothing, wherever they are; no operation where [`can_demote`] is false.
#[inline(always)]
pub fn demote(from: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in (0..len).step_by(64) {
        // SAFETY: touches neither memory's contents nor registers, whatever the address.
        unsafe {
            std::arch::asm!(
                "cldemote [{line}]",
                line = in(reg) from.wrapping_add(line),
                options(nostack, preserves_flags, readonly)
            );
        }
    }
    let _ = (from, len);
}

/// Whether strings move quickly even near by: on Zen 5 cores, and on Intel's Xeons from the fourth generation on. Measured on Zen 5, in
/// turns: in a core's own cache 97 to 131 GB/s beside 45 to 53 by blocks (64 KiB, the most where the target begins a line), and between
/// two cores that share a third-level cache, messages to and fro, 64 KiB 1.43 to 1.23 µs, 1 MiB 23.3 to 21.0, 4 MiB 98 to 84; windows of
/// 4 KiB 4 % less, of 16 KiB 3 % more, of 32 KiB 17 %. On a Xeon of the fifth generation: 64 KiB 6.9 to 6.8 µs, 1 MiB 116 to 103,
/// 4 MiB 450 to 403, windows of 8 KiB to 1 MiB 5 to 14 % more.
#[inline]
#[must_use]
pub fn strings_are_quick() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        if is_amd() {
            // Those before Zen 5 have no VP2INTERSECT.
            is_x86_feature_detected!("avx512vp2intersect")
        } else {
            is_x86_feature_detected!("avx512fp16")
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    false
}

/// Whether this is one of AMD's processors: only they have SSE4a.
#[inline]
#[must_use]
pub fn is_amd() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        is_x86_feature_detected!("sse4a")
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    false
}

/// Whether so many bytes are best moved as a string wherever they are.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn is_quick_string(len: usize) -> bool {
    len >= QUICK_STRING_FROM && strings_are_quick() && (len >= QUICK_STRING_FROM_ZEN5 || !is_amd())
}

/// Copies by the processor's own move of a string. The library's copy takes it for some lengths only. Others may see its stores in any
/// order, but all of them before what is stored after it (as the library's copy relies on, too).
///
/// # Safety
/// As [`copy`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn move_string(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: reads and writes `len` bytes from both on, by contract; strings move upwards unless the direction flag is set, which
    // it is not (x86-64 psABI §3.2.3).
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len => _, inout("rsi") from => _, inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

/// Whether this is a Zen 3 core. Measured there, messages of 4 MiB to and fro in pieces of 64 KiB between two cores that share a
/// third-level cache, a loop of copies only: with lines of both sides asked for 2 KiB ahead 200 to 220 µs, without 250; 1 MiB 1 to 3 %
/// less, 64 KiB no less. Others have not been measured, or gained nothing.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn is_zen3() -> bool {
    // Those before Zen 3 have no VAES, those after it have AVX-512.
    is_amd() && is_x86_feature_detected!("vaes") && !is_x86_feature_detected!("avx512f")
}

/// Copies in blocks, each loaded whole before it is stored. Lines of the source are asked for `FROM` bytes before that, those of
/// the target, to be written, `TO` bytes; 0: not at all.
///
/// # Safety
/// As [`copy`]; the processor has AVX.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx")]
unsafe fn copy_blocks<const FROM: usize, const TO: usize>(
    from: *const u8,
    to: *mut u8,
    len: usize,
) {
    use std::arch::x86_64::{__m256i, _MM_HINT_T0, _mm_prefetch, _mm256_storeu_si256};
    // SAFETY: every block is inside `len` bytes; loads and stores need no alignment; the end may overlap the last
    // block, which then gets the same bytes again.
    unsafe {
        let mut done = 0;
        while done + BLOCK <= len {
            if FROM != 0 && done + FROM + BLOCK <= len {
                for line in 0..BLOCK / 64 {
                    _mm_prefetch::<_MM_HINT_T0>(from.add(done + FROM + 64 * line).cast());
                }
            }
            if TO != 0 && done + TO + BLOCK <= len {
                for line in 0..BLOCK / 64 {
                    claim(to.add(done + TO + 64 * line));
                }
            }
            move_block(from, to, done, |to: *mut __m256i, part| {
                _mm256_storeu_si256(to, part);
            });
            done += BLOCK;
        }
        std::ptr::copy_nonoverlapping(from.add(done), to.add(done), len - done);
    }
}

/// Asks for the line at `to`, which is about to be written: a hint that accesses nothing; a NOP where there is no PREFETCHW.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn claim(to: *mut u8) {
    // SAFETY: touches neither memory nor registers, whatever the address.
    unsafe {
        std::arch::asm!("prefetchw [{to}]", to = in(reg) to, options(nostack, preserves_flags, readonly));
    }
}

/// Copies whole blocks with stores that go past the cache.
///
/// # Safety
/// As [`copy`]; `to` is a multiple of 64, `len` one of [`BLOCK`]; the processor has AVX.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx")]
unsafe fn stream_blocks(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{__m256i, _mm256_stream_si256};
    // SAFETY: every block is inside `len` bytes, every store aligned, by contract.
    unsafe {
        let mut done = 0;
        while done < len {
            move_block(from, to, done, |to: *mut __m256i, part| {
                _mm256_stream_si256(to, part);
            });
            done += BLOCK;
        }
    }
}

/// Moves the block at `done` with `store`.
///
/// # Safety
/// As [`copy`] for `done + BLOCK` bytes; `store` may be given the addresses of the block.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx")]
#[inline]
unsafe fn move_block(
    from: *const u8,
    to: *mut u8,
    done: usize,
    store: impl Fn(*mut std::arch::x86_64::__m256i, std::arch::x86_64::__m256i),
) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256};
    // SAFETY: inside the block, by contract.
    let load = |i: usize| unsafe { _mm256_loadu_si256(from.add(done + 32 * i).cast::<__m256i>()) };
    // SAFETY: inside the block, by contract.
    let to = |i: usize| unsafe { to.add(done + 32 * i).cast::<__m256i>() };
    // One by one: an array of them would go through the stack.
    let (a, b, c, d) = (load(0), load(1), load(2), load(3));
    let (e, f, g, h) = (load(4), load(5), load(6), load(7));
    store(to(0), a);
    store(to(1), b);
    store(to(2), c);
    store(to(3), d);
    store(to(4), e);
    store(to(5), f);
    store(to(6), g);
    store(to(7), h);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies `len` bytes to a place `skip` bytes into a buffer, and checks it and what is around it.
    fn check(len: usize, skip: usize, copy: unsafe fn(*const u8, *mut u8, usize)) {
        let source: Vec<u8> = (0..len).map(|i| (i * 7 + i / 256) as u8).collect();
        let mut target = vec![0xee_u8; len + skip + 64];
        // SAFETY: `target` has room for `skip + len` bytes.
        unsafe { copy(source.as_ptr(), target.as_mut_ptr().add(skip), len) };
        assert!(target[skip..skip + len] == source[..], "{len} bytes at {skip}");
        assert!(target[..skip].iter().chain(&target[skip + len..]).all(|&b| b == 0xee), "{len}");
    }

    /// As [`copy`].
    unsafe fn copied_and_demoted(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: by contract.
        unsafe { copy(from, to, len) }
        demote(to, len);
    }

    #[test]
    fn every_length_and_alignment_copies_the_same() {
        // Few under Miri, which is slow and takes one way only.
        let step = if cfg!(miri) { 97 } else { 1 };
        for len in (0..70).chain((250..2700).step_by(step)).chain([10_007, 65_536]) {
            for skip in [0, 1, 16, 63] {
                check(len, skip, copy);
                check(len, skip, copied_and_demoted);
                check(len, skip, copy_ahead);
                check(len, skip, copy_past);
                check(len, skip, copy_string);
            }
        }
    }

    #[test]
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn strings_and_lines_asked_for_far_ahead_change_nothing() {
        /// As [`copy`].
        unsafe fn far(from: *const u8, to: *mut u8, len: usize) {
            // SAFETY: the test looked for AVX; the rest by contract.
            unsafe { copy_blocks::<FAR_AHEAD, FAR_AHEAD>(from, to, len) }
        }
        if is_x86_feature_detected!("avx") {
            for len in [0, 255, 256, FAR_AHEAD + BLOCK, FAR_FROM - 1, FAR_FROM, 70_001] {
                check(len, 1, far);
                check(len, 1, move_string);
                check(len, 1, copy);
            }
        }
    }

    #[test]
    #[should_panic(expected = "another length")]
    fn slices_of_two_lengths_are_refused() {
        pack(&mut [0; 3], &[0; 4]);
    }
}
