//! User memory that a transport may read or write for a while.
//!
//! A region is a promise by its maker (an MPI call, a safe wrapper that borrows the buffer) that the memory
//! stays valid until every region cut from it was given back. Transports and protocols above handle regions
//! only through the safe methods here, which check every range; they hold no pointer of their own. This is
//! "the registration of user memory", one of the three places where the blueprint allows `unsafe`.
#![allow(unsafe_code)]

use crate::copy;
use std::marker::PhantomData;
use std::ops::Range;

/// Memory that may be read. Copies name the same memory.
#[derive(Clone, Debug)]
pub struct SendRegion {
    start: *const u8,
    len: usize,
}

// SAFETY: a region is an address and a promise, made in `new`, that holds for all threads of the process.
unsafe impl Send for SendRegion {}
// SAFETY: it is only read through, and nobody writes the memory, by the promise of `new`.
unsafe impl Sync for SendRegion {}

impl SendRegion {
    /// # Safety
    /// `start` is valid for reads of `len` bytes, and nobody writes them, until this region and every copy
    /// and part of it is gone (given back by the transport, and dropped).
    #[inline]
    #[must_use]
    pub unsafe fn new(start: *const u8, len: usize) -> Self {
        SendRegion { start, len }
    }

    /// The region of memory that lives, unchanged, as long as the process.
    #[must_use]
    pub fn of_static(bytes: &'static [u8]) -> Self {
        SendRegion { start: bytes.as_ptr(), len: bytes.len() }
    }

    /// Length in bytes.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        if self.len == 0 {
            return &[]; // `start` may be null then
        }
        // SAFETY: valid and unwritten while `self` lives, by the promise of `new`.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// The part at `range`.
    ///
    /// # Panics
    /// When the range is not inside the region.
    #[inline]
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> SendRegion {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "part {range:?} of {} bytes",
            self.len
        );
        SendRegion { start: self.start.wrapping_add(range.start), len: range.len() }
    }

    /// Where it starts, for calls to the kernel or a device.
    #[inline]
    #[must_use]
    pub const fn as_ptr(&self) -> *const u8 {
        self.start
    }
}

/// Memory that may be written. Parts of it may be held at the same time as the whole (fragments of one
/// message land over several rails); writes go through raw copies, never through references, so that is sound.
#[derive(Debug)]
pub struct RecvRegion {
    start: *mut u8,
    len: usize,
    // Not `Sync`: two threads must not write through one region.
    _not_sync: PhantomData<std::cell::Cell<u8>>,
}

// SAFETY: as for `SendRegion`; the maker promised exclusive use by the holder of the region and its parts.
unsafe impl Send for RecvRegion {}

impl RecvRegion {
    /// # Safety
    /// `start` is valid for reads and writes of `len` bytes, and nobody else reads or writes them, until this
    /// region and every part of it is gone; all parts are used from one thread at a time.
    #[inline]
    #[must_use]
    pub unsafe fn new(start: *mut u8, len: usize) -> Self {
        RecvRegion { start, len, _not_sync: PhantomData }
    }

    /// Length in bytes.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A region of no bytes.
    #[inline]
    #[must_use]
    pub const fn empty() -> Self {
        RecvRegion { start: std::ptr::null_mut(), len: 0, _not_sync: PhantomData }
    }

    /// Copies `source` to `offset`.
    ///
    /// # Panics
    /// When it does not fit.
    #[inline(always)]
    pub fn write(&self, offset: usize, source: &[u8]) {
        assert!(
            offset <= self.len && source.len() <= self.len - offset,
            "write of {} bytes at {offset} into {} bytes",
            source.len(),
            self.len
        );
        // SAFETY: in bounds by the assertion, valid for writes by the promise of `new`; `source` is a live
        // slice, which by that promise cannot be the same memory.
        unsafe { copy::copy(source.as_ptr(), self.start.wrapping_add(offset), source.len()) }
    }

    /// As [`write`](RecvRegion::write), for bytes that another core has just stored.
    ///
    /// # Panics
    /// When it does not fit.
    pub fn write_ahead(&self, offset: usize, source: &[u8]) {
        assert!(
            offset <= self.len && source.len() <= self.len - offset,
            "write of {} bytes at {offset} into {} bytes",
            source.len(),
            self.len
        );
        // SAFETY: as in `write`.
        unsafe { copy::copy_ahead(source.as_ptr(), self.start.wrapping_add(offset), source.len()) }
    }

    /// As [`write`](RecvRegion::write), for bytes that come from far away.
    ///
    /// # Panics
    /// When it does not fit.
    pub fn write_string(&self, offset: usize, source: &[u8]) {
        assert!(
            offset <= self.len && source.len() <= self.len - offset,
            "write of {} bytes at {offset} into {} bytes",
            source.len(),
            self.len
        );
        // SAFETY: as in `write`.
        unsafe { copy::copy_string(source.as_ptr(), self.start.wrapping_add(offset), source.len()) }
    }

    /// As [`write`](RecvRegion::write), past the cache: for memory that is in nobody's cache. [`copy::settle`] before anybody is told.
    ///
    /// # Panics
    /// When it does not fit.
    pub fn write_past(&self, offset: usize, source: &[u8]) {
        assert!(
            offset <= self.len && source.len() <= self.len - offset,
            "write of {} bytes at {offset} into {} bytes",
            source.len(),
            self.len
        );
        // SAFETY: as in `write`.
        unsafe { copy::copy_past(source.as_ptr(), self.start.wrapping_add(offset), source.len()) }
    }

    /// The part at `range`.
    ///
    /// # Panics
    /// When the range is not inside the region.
    #[inline]
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> RecvRegion {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "part {range:?} of {} bytes",
            self.len
        );
        RecvRegion {
            start: self.start.wrapping_add(range.start),
            len: range.len(),
            _not_sync: PhantomData,
        }
    }

    /// Where it starts, for calls to the kernel or a device that write it.
    #[inline]
    #[must_use]
    pub const fn as_mut_ptr(&self) -> *mut u8 {
        self.start
    }

    /// What has been written so far (bytes never written are as the user left them).
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = vec![0; self.len];
        if self.len != 0 {
            // SAFETY: valid for reads by the promise of `new`; `out` is a fresh allocation of that length.
            unsafe { std::ptr::copy_nonoverlapping(self.start, out.as_mut_ptr(), self.len) };
        }
        out
    }
}

/// A heap buffer that regions point into: for tests, bounce buffers and buffered sends.
///
/// It must outlive its regions; the owner keeps it next to the operation and frees it when the operation came
/// back. `leak` is the way out when that never happens.
#[derive(Debug)]
pub struct OwnedBuffer {
    start: *mut u8,
    len: usize,
}

// SAFETY: it owns its allocation like a `Box<[u8]>`.
unsafe impl Send for OwnedBuffer {}

impl OwnedBuffer {
    /// A buffer of `len` zero bytes.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self::from(vec![0; len])
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A region of all its bytes to read from.
    ///
    /// # Safety
    /// The buffer is not dropped or written while the region, or a part of it, exists.
    #[must_use]
    pub unsafe fn send_region(&self) -> SendRegion {
        // SAFETY: the allocation lives and is unwritten as long as the region, by this function's contract.
        unsafe { SendRegion::new(self.start, self.len) }
    }

    /// A region of all its bytes to write to.
    ///
    /// # Safety
    /// The buffer is not dropped, read or written otherwise while the region, or a part of it, exists.
    #[must_use]
    pub unsafe fn recv_region(&self) -> RecvRegion {
        // SAFETY: the allocation is exclusive to the region while it lives, by this function's contract.
        unsafe { RecvRegion::new(self.start, self.len) }
    }

    /// The bytes, while no region to write to exists.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: made from a boxed slice of this length in `from`; raw writes by regions are over, by the
        // contract of `recv_region`.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// The bytes, while no region exists.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as `as_slice`, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }

    /// Never frees it: a region into it did not come back.
    pub fn leak(self) {
        std::mem::forget(self);
    }
}

impl From<Vec<u8>> for OwnedBuffer {
    fn from(bytes: Vec<u8>) -> Self {
        let bytes = Box::leak(bytes.into_boxed_slice());
        OwnedBuffer { start: bytes.as_mut_ptr(), len: bytes.len() }
    }
}

impl Drop for OwnedBuffer {
    fn drop(&mut self) {
        // SAFETY: `start` and `len` come from `Box::leak` in `from`, and are freed once.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.start, self.len)) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_write_disjoint_ranges() {
        let buffer = OwnedBuffer::zeroed(10);
        // SAFETY: `buffer` outlives the regions and is not touched in between.
        let whole = unsafe { buffer.recv_region() };
        let (left, right) = (whole.part(0..5), whole.part(5..10));
        right.write(0, b"world");
        left.write(0, b"hello");
        let _ = (left, right, whole);
        assert_eq!(buffer.as_slice(), b"helloworld");
    }

    #[test]
    fn every_alignment_copies_the_same() {
        let source: Vec<u8> = (0..20_000).map(|i| (i * 7 + i / 256) as u8).collect();
        let buffer = OwnedBuffer::zeroed(24_000);
        // SAFETY: `buffer` outlives the region; it is read only between writes.
        let region = unsafe { buffer.recv_region() };
        let page = source.as_ptr() as usize % 4096;
        let base = (page + 4096 - buffer.as_slice().as_ptr() as usize % 4096) % 4096;
        for above in [0, 1, 16, 63, 64, 65, 255, 256] {
            for len in [1023, 1024, 1025, 4096, 10_007] {
                region.write(base + above, &source[..len]);
                assert!(buffer.as_slice()[base + above..][..len] == source[..len]);
            }
        }
    }

    #[test]
    #[should_panic(expected = "write of 3 bytes at 8 into 10 bytes")]
    fn a_write_beyond_the_end_is_caught() {
        let buffer = OwnedBuffer::zeroed(10);
        // SAFETY: as above.
        unsafe { buffer.recv_region() }.write(8, b"abc");
    }

    #[test]
    fn empty_regions_may_be_null() {
        // SAFETY: zero bytes.
        let region = unsafe { SendRegion::new(std::ptr::null(), 0) };
        assert_eq!(region.as_slice(), b"");
        // SAFETY: zero bytes.
        unsafe { RecvRegion::new(std::ptr::null_mut(), 0) }.write(0, b"");
    }
}
