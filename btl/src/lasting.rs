//! Memory of our own that stays mapped for as long as a transport wants it: what may be registered once and for all.
//!
//! A registration that outlives its operation is only safe when the memory cannot be unmapped, and mapped anew with
//! something else, behind the transport's back: the device would go on with the old pages. Of a user's own `free`
//! and `munmap` a library hears nothing that it may rely on, so transports register such memory for one operation
//! at a time. Memory that was allocated here (`MPI_Alloc_mem`) is known: [`release`] takes it back from the user, and
//! the last holder of its [`Lasting`] frees it. Never moves or reuses memory by itself.
#![allow(unsafe_code)] // an allocator

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the user has, by its start.
static GIVEN: Mutex<BTreeMap<usize, Arc<Lasting>>> = Mutex::new(BTreeMap::new());
/// How many those are: who never allocated here pays one load.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// One piece of such memory. It exists, at the same place, until the last holder drops this.
#[derive(Debug)]
pub struct Lasting {
    start: NonNull<u8>,
    layout: Layout,
    released: AtomicBool,
}

// SAFETY: it owns its memory and reaches it only to free it.
unsafe impl Send for Lasting {}
// SAFETY: as above.
unsafe impl Sync for Lasting {}

impl Lasting {
    /// Where it starts.
    #[must_use]
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.layout.size()
    }

    /// Never: there is at least one byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The user gave it back: holders should let go of it.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }
}

impl Drop for Lasting {
    fn drop(&mut self) {
        // SAFETY: allocated in `allocate` with this layout, freed once: this is the only owner.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

fn given() -> MutexGuard<'static, BTreeMap<usize, Arc<Lasting>>> {
    GIVEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory of at least one byte, uninitialized; `None` when there is no more.
///
/// ```
/// use ironweave_btl::lasting;
/// use std::alloc::Layout;
///
/// let start = lasting::allocate(Layout::from_size_align(1 << 20, 4096)?).expect("a megabyte");
/// let piece = lasting::covering(start.as_ptr().wrapping_add(100), 5000).expect("it is inside");
/// assert_eq!((piece.start(), piece.len()), (start.as_ptr(), 1 << 20));
/// assert!(lasting::release(start.as_ptr()));
/// assert!(piece.is_released()); // it goes with `piece`
/// # Ok::<(), std::alloc::LayoutError>(())
/// ```
#[must_use]
pub fn allocate(layout: Layout) -> Option<NonNull<u8>> {
    let layout = Layout::from_size_align(layout.size().max(1), layout.align()).ok()?;
    // SAFETY: the layout is not empty.
    let start = NonNull::new(unsafe { alloc(layout) })?;
    let piece = Lasting { start, layout, released: AtomicBool::new(false) };
    given().insert(start.as_ptr().addr(), Arc::new(piece));
    COUNT.fetch_add(1, Ordering::Release);
    Some(start)
}

/// The user is done with the memory that [`allocate`] gave at `start`; `false` when it gave none there. The user must not
/// touch it any more: it is freed now or when the last transport lets go of it.
pub fn release(start: *mut u8) -> bool {
    let Some(piece) = given().remove(&start.addr()) else { return false };
    COUNT.fetch_sub(1, Ordering::Release);
    piece.released.store(true, Ordering::Release);
    true
}

/// The piece that these bytes are inside of, if there is one that was not released.
#[must_use]
pub fn covering(start: *const u8, len: usize) -> Option<Arc<Lasting>> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let given = given();
    let (_, piece) = given.range(..=start.addr()).next_back()?;
    let offset = start.addr() - piece.start().addr();
    (offset <= piece.len() && len <= piece.len() - offset).then(|| Arc::clone(piece))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(len: usize) -> *mut u8 {
        let layout = Layout::from_size_align(len, 64).expect("a sound layout");
        allocate(layout).expect("memory").as_ptr()
    }

    #[test]
    fn pieces_are_found_by_what_is_inside_of_them() {
        let (a, b) = (piece(1000), piece(4096));
        let start = |at: *mut u8, len| covering(at, len).map(|piece| piece.start());
        assert_eq!(start(a, 1000), Some(a));
        assert_eq!(start(a.wrapping_add(999), 1), Some(a));
        assert_eq!(start(a, 1001), None, "beyond its end");
        assert_eq!(start(b.wrapping_add(100), 50), Some(b));
        let mine = [0_u8; 8];
        assert!(covering(mine.as_ptr(), 8).is_none());
        assert!(release(a) && release(b));
        assert!(!release(a), "it was given back");
        assert_eq!(start(b, 1), None);
    }

    #[test]
    fn memory_stays_while_somebody_holds_it() {
        let start = piece(1 << 16);
        let held = covering(start, 1).expect("it is there");
        assert!(release(start));
        // Were it free, this one could get the same place.
        let next = piece(1 << 16);
        assert_ne!(start, next);
        assert!(held.is_released());
        drop(held);
        assert!(release(next));
    }
}
