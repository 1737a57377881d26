//! Handles of what users make: a slot of a table and its generation. A stale or invented handle is found, never
//! dereferenced.
//!
//! The low half of a handle is the slot, counted from [`FIRST`] so that it is no predefined handle, the high half the
//! generation. `c2f` is the low half: Fortran programs see no generations. Looking up takes no lock; what it gives stays until the
//! handle is freed, so freeing an object while another thread uses it is the caller's mistake, as the standard has it.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The low half of the first handle that is not predefined.
pub const FIRST: u32 = 0x1000;
/// Slots of the first chunk; each further one has twice as many.
const CHUNK: u32 = 64;
const CHUNKS: usize = 24;

struct Slot<T> {
    /// Odd while it is in use.
    generation: AtomicU32,
    value: UnsafeCell<Option<T>>,
}

#[derive(Default)]
struct Vacancies {
    free: Vec<u32>,
    len: u32,
}

/// All objects of a kind.
pub struct Table<T> {
    chunks: [OnceLock<Box<[Slot<T>]>>; CHUNKS],
    vacancies: Mutex<Vacancies>,
}

// SAFETY: values are shared as `&T`, and moved in and out under the lock.
unsafe impl<T: Send + Sync> Sync for Table<T> {}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Table<T> {
    /// With nothing in it.
    #[must_use]
    pub const fn new() -> Self {
        Table {
            chunks: [const { OnceLock::new() }; CHUNKS],
            vacancies: Mutex::new(Vacancies { free: Vec::new(), len: 0 }),
        }
    }

    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        let chunk = (index / CHUNK + 1).ilog2();
        let start = ((1 << chunk) - 1) * CHUNK;
        self.chunks.get(chunk as usize)?.get()?.get((index - start) as usize)
    }

    /// The object of a handle.
    #[inline]
    pub fn get(&self, handle: usize) -> Option<&T> {
        let slot = self.slot((handle as u32).checked_sub(FIRST)?)?;
        let generation = (handle >> 32) as u32;
        if generation & 1 == 0 || slot.generation.load(Ordering::Acquire) != generation {
            return None;
        }
        // SAFETY: in use, so nobody writes it until `remove`, which the handle's owner does not call at the same time.
        unsafe { (*slot.value.get()).as_ref() }
    }

    /// A new handle for an object.
    pub fn insert(&self, value: T) -> usize {
        let mut vacancies = self.vacancies.lock().unwrap_or_else(PoisonError::into_inner);
        let index = vacancies.free.pop().unwrap_or_else(|| {
            let index = vacancies.len;
            let chunk = (index / CHUNK + 1).ilog2();
            self.chunks[chunk as usize].get_or_init(|| {
                let vacant =
                    || Slot { generation: AtomicU32::new(0), value: UnsafeCell::new(None) };
                (0..CHUNK << chunk).map(|_| vacant()).collect()
            });
            vacancies.len += 1;
            index
        });
        let slot = self.slot(index).expect("its chunk was just made");
        // SAFETY: vacant, and the lock is held: nobody reads it before the generation is stored.
        unsafe { *slot.value.get() = Some(value) };
        let generation = slot.generation.load(Ordering::Relaxed).wrapping_add(1);
        slot.generation.store(generation, Ordering::Release);
        (generation as usize) << 32 | (FIRST + index) as usize
    }

    /// Takes an object out: its handle is void from now on.
    pub fn remove(&self, handle: usize) -> Option<T> {
        let mut vacancies = self.vacancies.lock().unwrap_or_else(PoisonError::into_inner);
        self.get(handle)?;
        let index = handle as u32 - FIRST;
        let slot = self.slot(index)?;
        slot.generation.fetch_add(1, Ordering::AcqRel);
        vacancies.free.push(index);
        // SAFETY: it was in use, and its owner, who frees it, does not use it at the same time.
        unsafe { (*slot.value.get()).take() }
    }

    /// The handle of a Fortran handle: its slot with the generation of today.
    #[must_use]
    pub fn of_fortran(&self, low: u32) -> Option<usize> {
        let slot = self.slot(low.checked_sub(FIRST)?)?;
        let generation = slot.generation.load(Ordering::Acquire);
        (generation & 1 == 1).then_some((generation as usize) << 32 | low as usize)
    }

    /// Objects in use.
    #[must_use]
    pub fn in_use(&self) -> usize {
        let vacancies = self.vacancies.lock().unwrap_or_else(PoisonError::into_inner);
        vacancies.len as usize - vacancies.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_and_invented_handles_are_found() {
        let table = Table::new();
        let handles: Vec<usize> = (0..1000).map(|value| table.insert(value)).collect();
        for (value, &handle) in handles.iter().enumerate() {
            assert_eq!(table.get(handle), Some(&value));
            assert_eq!(table.of_fortran(handle as u32), Some(handle));
        }
        assert_eq!(table.remove(handles[7]), Some(7));
        assert_eq!((table.get(handles[7]), table.remove(handles[7])), (None, None));
        let again = table.insert(7000);
        assert_ne!(again, handles[7]);
        assert_eq!((table.get(again), table.get(handles[7])), (Some(&7000), None));
        for invented in [0, 1, 0x101, 0xfff, 0x1000, 1 << 32, usize::MAX, 3 << 32 | 0x1000] {
            assert_eq!(table.get(invented), None, "{invented:#x}");
        }
        assert_eq!(table.in_use(), 1000);
    }
}
