//! The memory that the library reads and writes on a port's behalf: one page-aligned block, handed out in ranges.
//!
//! The block never moves. Rust code reaches it only by `bytes` and `bytes_mut`, for ranges that the port knows not to be
//! with the library just then.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Range;
use std::ptr::NonNull;

/// Pages of the usual size: what devices like.
const ALIGN: usize = 4096;

/// A block of zeroed memory. Pages that nobody touched cost nothing.
pub(super) struct Arena {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its block like a `Box<[u8]>`.
unsafe impl Send for Arena {}

impl Arena {
    /// A block of at least `len` bytes.
    pub(super) fn new(len: usize) -> Self {
        let layout = Layout::from_size_align(len.max(1).next_multiple_of(ALIGN), ALIGN)
            .expect("a few megabytes, aligned to a page");
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) };
        Arena { start: NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout)), layout }
    }

    pub(super) fn len(&self) -> usize {
        self.layout.size()
    }

    /// Where a range starts, for the library.
    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len(), "offset {offset} of {} bytes", self.len());
        self.start.as_ptr().wrapping_add(offset)
    }

    /// The bytes of `range`, which the library does not write just now.
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?}");
        // SAFETY: in bounds and initialised (zeroed at first). The port asks only for ranges that the library gave
        // back, or that it handed up as a whole message and does not write again before they are posted again.
        unsafe { std::slice::from_raw_parts(self.at(range.start), range.len()) }
    }

    /// The bytes of `range`, which the library neither reads nor writes just now.
    pub(super) fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?}");
        // SAFETY: as `bytes`; `&mut self` excludes other slices.
        unsafe { std::slice::from_raw_parts_mut(self.at(range.start), range.len()) }
    }

    /// Where `pointer` lies, when all of `len` bytes from it lie inside `range`.
    pub(super) fn locate(
        &self,
        pointer: *const u8,
        len: usize,
        range: &Range<usize>,
    ) -> Option<usize> {
        let offset = (pointer as usize).checked_sub(self.start.as_ptr() as usize)?;
        let end = offset.checked_add(len)?;
        (offset >= range.start && end <= range.end).then_some(offset)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_located_or_refused() {
        let mut arena = Arena::new(5000);
        assert_eq!(arena.len(), 8192);
        arena.bytes_mut(10..13).copy_from_slice(b"abc");
        assert_eq!(arena.bytes(9..14), b"\0abc\0");
        let at = arena.at(10);
        assert_eq!(arena.locate(at, 3, &(0..20)), Some(10));
        assert_eq!(arena.locate(at, 11, &(0..20)), None);
        assert_eq!(arena.locate(at, usize::MAX, &(0..20)), None);
        assert_eq!(arena.locate(std::ptr::null(), 1, &(0..20)), None);
    }
}
