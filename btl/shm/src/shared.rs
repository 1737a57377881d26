//! Memory that another process may read and write at the same time, seen through checked offsets.
//!
//! This is the only place that turns an offset into a pointer: every access is bounds-checked here, so that a
//! wrong offset is a panic in a test, never a stray write. Who may touch which bytes when is the ring's protocol
//! (`ring.rs`). Never maps files itself: `segment.rs` does.
#![allow(unsafe_code)] // the ring's memory: blueprint, "unsafe lives in ffi/, in the shm ring …"

use crate::primitive::AtomicU64;
use std::sync::Arc;

/// Size and alignment of the unit of sharing that all layouts keep apart: two cache lines, because the
/// adjacent-line prefetcher pulls lines in pairs.
pub(crate) const APART: usize = 128;

#[cfg(not(loom))]
pub(crate) use real::{Shared, Spot};

#[cfg(loom)]
pub(crate) use model::{Shared, Spot};

#[cfg(not(loom))]
mod real {
    use super::{Arc, AtomicU64};
    use memmap2::MmapRaw;
    use std::fmt;
    use std::marker::PhantomData;

    /// What keeps the memory alive.
    enum Keep {
        Mapping(#[allow(dead_code)] MmapRaw),
        #[cfg(test)]
        Heap(#[allow(dead_code)] Vec<Block>),
    }

    #[cfg(test)]
    /// Heap memory with the alignment of a mapping, as far as the ring relies on it.
    #[repr(C, align(4096))]
    struct Block([AtomicU64; 512]);

    // SAFETY: both are plain memory, accessed only through `Shared`'s methods.
    unsafe impl Send for Keep {}
    // SAFETY: as above.
    unsafe impl Sync for Keep {}

    // Without arguments, and apart: what a panic is told would be put together on the way past it.
    #[cold]
    #[inline(never)]
    fn out_of_bounds() -> ! {
        panic!("shared memory out of bounds")
    }

    #[cold]
    #[inline(never)]
    fn unaligned() -> ! {
        panic!("a word of shared memory that is not aligned")
    }

    /// A view of shared memory. Clones view the same memory.
    #[derive(Clone)]
    pub(crate) struct Shared {
        base: *mut u8,
        len: usize,
        keep: Arc<Keep>,
    }

    // SAFETY: `base` points into memory that `keep` owns; words are atomics, and for bytes the protocol of the
    // ring orders accesses (loom model `ring::model`, Miri test `ring::tests`).
    unsafe impl Send for Shared {}

    impl Shared {
        /// The memory of a mapping.
        pub(crate) fn mapping(map: MmapRaw) -> Self {
            Shared { base: map.as_mut_ptr(), len: map.len(), keep: Arc::new(Keep::Mapping(map)) }
        }

        /// `len` zero bytes of this process.
        #[cfg(test)]
        pub(crate) fn heap(len: usize) -> Self {
            let blocks = len.div_ceil(size_of::<Block>());
            let heap: Vec<Block> =
                (0..blocks).map(|_| Block([const { AtomicU64::new(0) }; 512])).collect();
            let base = heap.as_ptr().cast_mut().cast::<u8>();
            Shared { base, len, keep: Arc::new(Keep::Heap(heap)) }
        }

        /// Length in bytes.
        pub(crate) fn len(&self) -> usize {
            self.len
        }

        #[inline(always)]
        fn at(&self, at: usize, len: usize) -> *mut u8 {
            if at > self.len || len > self.len - at {
                out_of_bounds();
            }
            // SAFETY: inside the allocation, by the assertion.
            unsafe { self.base.add(at) }
        }

        /// The 8-byte word at byte `at`, a multiple of 8.
        #[inline(always)]
        pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
            if !at.is_multiple_of(8) {
                unaligned();
            }
            // SAFETY: in bounds and aligned (mappings and heap blocks are page-aligned); every other access to
            // a word while it is in use as one is atomic too, by the layouts in `ring.rs` and `inbox.rs`.
            unsafe { AtomicU64::from_ptr(self.at(at, 8).cast()) }
        }

        /// Copies `bytes` to byte `at`.
        #[inline(always)]
        pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
            let to = self.at(at, bytes.len());
            // SAFETY: in bounds; the writer owns these bytes until it publishes them (`ring.rs`), and `bytes`
            // cannot be shared memory: slices of that exist only inside `with` and `with_mut`.
            unsafe { ironweave_btl::copy::copy(bytes.as_ptr(), to, bytes.len()) }
        }

        /// Stores a record at byte `at`, a multiple of 8: `header` and `payload` behind the word, which is stored last (Release).
        #[inline(always)]
        pub(crate) fn put(&self, at: usize, word: u64, header: [u64; 2], payload: &[u8]) {
            const BODY: usize = 8 + size_of::<[u64; 2]>();
            let to = self.at(at, BODY + payload.len());
            if !at.is_multiple_of(8) {
                unaligned();
            }
            // SAFETY: in bounds and aligned, as in `word`; the writer owns the bytes of the record until the word is there, and
            // `payload` cannot be shared memory (see `write`).
            unsafe {
                to.add(8).cast::<[u64; 2]>().write(header);
                ironweave_btl::copy::copy(payload.as_ptr(), to.add(BODY), payload.len());
                AtomicU64::from_ptr(to.cast()).store(word, std::sync::atomic::Ordering::Release);
            }
        }

        /// Copies `bytes` to byte `at`, a multiple of 64, past the cache where the processor can. Such stores
        /// are ordered before later ones only by [`settle`](Shared::settle).
        pub(crate) fn stream(&self, at: usize, bytes: &[u8]) {
            let to = self.at(at, bytes.len());
            assert!(at.is_multiple_of(64), "streamed bytes start a line");
            // SAFETY: as `write`; `to` is 64-byte aligned because the memory is page-aligned.
            unsafe { super::copy_streaming(bytes.as_ptr(), to, bytes.len()) }
        }

        /// Orders all streamed bytes before what is stored after this.
        #[inline(always)]
        pub(crate) fn settle(&self) {
            ironweave_btl::copy::settle();
        }

        /// Asks for the lines of the `len` bytes at `at`, which are about to be written.
        #[inline(always)]
        pub(crate) fn claim(&self, at: usize, len: usize) {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            for line in (0..len).step_by(64) {
                // SAFETY: a hint about an address, in bounds here, that accesses nothing; processors without
                // PREFETCHW take it for a NOP.
                unsafe {
                    std::arch::asm!(
                        "prefetchw [{line}]",
                        line = in(reg) self.at(at + line, 1),
                        options(nostack, preserves_flags, readonly)
                    );
                }
            }
        }

        /// Moves the lines of the `len` bytes at `at`, which are written and published, towards the cache that others share.
        #[inline(always)]
        pub(crate) fn demote(&self, at: usize, len: usize) {
            ironweave_btl::copy::demote(self.at(at, len), len);
        }

        /// Asks for the line at `at`, which is about to be read.
        #[inline(always)]
        pub(crate) fn fetch(&self, at: usize) {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: part of x86-64; a hint about an address, in bounds here, that accesses nothing.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(self.at(at, 1).cast());
            }
        }

        /// Shows the `len` bytes at `at` to `read`.
        #[inline(always)]
        pub(crate) fn with<R>(&self, at: usize, len: usize, read: impl FnOnce(&[u8]) -> R) -> R {
            // SAFETY: in bounds; the reader owns these bytes between the Acquire load that showed them
            // published and the Release store that gives them back. A writer that breaks this can confuse
            // only those who believe bytes that they did not copy first (law 9).
            read(unsafe { std::slice::from_raw_parts(self.at(at, len), len) })
        }

        /// The 8-byte word at byte `at`, a multiple of 8, and what may follow it: `room` bytes in all.
        #[inline(always)]
        pub(crate) fn spot(&self, at: usize, room: usize) -> Spot<'_> {
            if !at.is_multiple_of(8) {
                unaligned();
            }
            if room < 8 {
                out_of_bounds();
            }
            Spot { start: self.at(at, room), room, of: PhantomData }
        }

        /// Lets `write` fill the `len` bytes at `at`.
        #[inline(always)]
        pub(crate) fn with_mut<R>(
            &self,
            at: usize,
            len: usize,
            write: impl FnOnce(&mut [u8]) -> R,
        ) -> R {
            // SAFETY: in bounds; the writer owns these bytes until it publishes them.
            write(unsafe { std::slice::from_raw_parts_mut(self.at(at, len), len) })
        }

        /// Reads one byte of each page, so that they are allocated near this thread.
        pub(crate) fn touch(&self, from: usize, to: usize) {
            for page in (from..to).step_by(4096) {
                self.word(page).fetch_or(0, std::sync::atomic::Ordering::Relaxed);
            }
        }
    }

    /// A word and what may follow it, checked once and looked at again and again.
    #[derive(Clone, Copy)]
    pub(crate) struct Spot<'a> {
        start: *mut u8,
        room: usize,
        of: PhantomData<&'a Shared>,
    }

    impl<'a> Spot<'a> {
        /// The word.
        #[inline(always)]
        pub(crate) fn word(self) -> &'a AtomicU64 {
            // SAFETY: in bounds and aligned, by `Shared::spot`; else as `Shared::word`.
            unsafe { AtomicU64::from_ptr(self.start.cast()) }
        }

        /// The `len` bytes after the word; `None` when there are not so many.
        #[inline(always)]
        pub(crate) fn body(self, len: usize) -> Option<&'a [u8]> {
            if len > self.room - 8 {
                return None;
            }
            // SAFETY: in bounds, by the check; else as `Shared::with`: callers have read the word that publishes these bytes, and
            // look at them before they give them back.
            Some(unsafe { std::slice::from_raw_parts(self.start.add(8), len) })
        }
    }

    impl fmt::Debug for Shared {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "Shared({} bytes, {} users)", self.len, Arc::strong_count(&self.keep))
        }
    }
}

/// Copies `len` bytes with stores that go past the cache.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`], and `to` is 64-byte aligned.
#[cfg(all(not(loom), target_arch = "x86_64", not(miri)))]
unsafe fn copy_streaming(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    let lines = len / 64;
    // SAFETY: reads and writes `lines` whole lines inside `len` bytes; SSE2 is part of x86-64; every address
    // written is a multiple of 16 because `to` is one of 64. The rest, less than a line, is copied plainly.
    unsafe {
        for line in 0..lines {
            let (from, to) = (from.add(64 * line), to.add(64 * line));
            let part = |i: usize| _mm_loadu_si128(from.add(16 * i).cast::<__m128i>());
            let (a, b, c, d) = (part(0), part(1), part(2), part(3));
            _mm_stream_si128(to.cast::<__m128i>(), a);
            _mm_stream_si128(to.add(16).cast::<__m128i>(), b);
            _mm_stream_si128(to.add(32).cast::<__m128i>(), c);
            _mm_stream_si128(to.add(48).cast::<__m128i>(), d);
        }
        std::ptr::copy_nonoverlapping(from.add(64 * lines), to.add(64 * lines), len % 64);
    }
}

/// As above, where there are no such stores.
#[cfg(all(not(loom), any(not(target_arch = "x86_64"), miri)))]
unsafe fn copy_streaming(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: by contract.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) }
}

#[cfg(loom)]
mod model {
    use super::{Arc, AtomicU64};
    use crate::primitive::Ordering;

    /// The same view over loom's atomics: bytes travel as relaxed words, so that a missing Release or Acquire
    /// in the protocol shows as stale bytes in some interleaving. Offsets of bytes are multiples of 8 here.
    #[derive(Clone, Debug)]
    pub(crate) struct Shared {
        words: Arc<Vec<AtomicU64>>,
    }

    impl Shared {
        pub(crate) fn heap(len: usize) -> Self {
            Shared { words: Arc::new((0..len / 8).map(|_| AtomicU64::new(0)).collect()) }
        }

        pub(crate) fn len(&self) -> usize {
            self.words.len() * 8
        }

        pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
            assert!(at % 8 == 0, "unaligned word");
            &self.words[at / 8]
        }

        pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
            for (i, chunk) in bytes.chunks(8).enumerate() {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                self.word(at + 8 * i).store(u64::from_le_bytes(word), Ordering::Relaxed);
            }
        }

        pub(crate) fn put(&self, at: usize, word: u64, header: [u64; 2], payload: &[u8]) {
            for (i, half) in header.into_iter().enumerate() {
                self.word(at + 8 * (i + 1)).store(half, Ordering::Relaxed);
            }
            self.write(at + 24, payload);
            self.word(at).store(word, Ordering::Release);
        }

        pub(crate) fn spot(&self, at: usize, room: usize) -> Spot<'_> {
            Spot { shared: self, at, room }
        }

        pub(crate) fn stream(&self, at: usize, bytes: &[u8]) {
            self.write(at, bytes);
        }

        pub(crate) fn settle(&self) {}

        pub(crate) fn claim(&self, _: usize, _: usize) {}

        pub(crate) fn demote(&self, _: usize, _: usize) {}

        pub(crate) fn fetch(&self, _: usize) {}

        pub(crate) fn with<R>(&self, at: usize, len: usize, read: impl FnOnce(&[u8]) -> R) -> R {
            let mut bytes = Vec::new();
            for i in 0..len.div_ceil(8) {
                bytes.extend(self.word(at + 8 * i).load(Ordering::Relaxed).to_le_bytes());
            }
            read(&bytes[..len])
        }

        pub(crate) fn with_mut<R>(
            &self,
            at: usize,
            len: usize,
            write: impl FnOnce(&mut [u8]) -> R,
        ) -> R {
            let mut bytes = vec![0; len];
            let result = write(&mut bytes);
            self.write(at, &bytes);
            result
        }
    }

    /// As the real one; bytes are read when they are asked for.
    #[derive(Clone, Copy)]
    pub(crate) struct Spot<'a> {
        shared: &'a Shared,
        at: usize,
        room: usize,
    }

    impl<'a> Spot<'a> {
        pub(crate) fn word(self) -> &'a AtomicU64 {
            self.shared.word(self.at)
        }

        pub(crate) fn body(self, len: usize) -> Option<Vec<u8>> {
            (len <= self.room - 8).then(|| self.shared.with(self.at + 8, len, <[u8]>::to_vec))
        }
    }
}
