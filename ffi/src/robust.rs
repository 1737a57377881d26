//! Words in shared memory that the system marks when the thread that holds them ends without giving them back: robust
//! futexes (Linux's `robust-futexes` document, `set_robust_list(2)`).
//!
//! The system does it at the beginning of a thread's end, before it takes the process's memory apart, which may take
//! most of a millisecond. So whoever waits for the word learns of a process's end long before its parent can.
#![allow(unsafe_code)] // The list is the kernel's, which knows it by its address.

use std::io;
use std::marker::PhantomData;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicU32, Ordering};

/// Set in a word whose holder's thread has ended.
pub const DIED: u32 = libc::FUTEX_OWNER_DIED;

/// A word that can be held. One follows the other as entries of the kernel's list do, which leads to a word from each of its entries
/// by one offset.
#[derive(Debug, Default)]
#[repr(C, align(8))]
pub struct Word(pub AtomicU32);
const _: () = assert!(size_of::<Word>() == size_of::<Entry>());

/// One word that is held, as the kernel reads it.
#[repr(C)]
struct Entry {
    next: *mut Entry,
}

/// `struct robust_list_head`, and the two entries of it.
#[repr(C)]
struct List {
    /// Leads to the first entry, which leads to the second, which leads back here.
    head: Entry,
    /// From an entry to its word.
    offset: libc::c_long,
    pending: *mut Entry,
    entries: [Entry; 2],
}

/// Length of `struct robust_list_head`.
const HEAD: usize = 3 * size_of::<usize>();

/// Two words that this thread holds. Dropped, they are 0 again; a thread that ends without that leaves [`DIED`] in both and wakes
/// one of those who wait for each, as the end of the process by whatever cause does.
///
/// ```
/// use ironweave_ffi::robust::{DIED, Held, Word};
/// use std::sync::atomic::{AtomicU32, Ordering::Acquire};
///
/// static WORDS: [Word; 2] = [Word(AtomicU32::new(0)), Word(AtomicU32::new(0))];
/// let ends = std::thread::spawn(|| Held::hold(&WORDS).map(std::mem::forget));
/// ends.join().expect("no panic")?;
/// assert!(WORDS.iter().all(|word| word.0.load(Acquire) & DIED == DIED));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Held {
    words: &'static [Word; 2],
    /// The kernel's from `hold` to `drop`, or to the thread's end.
    list: *mut List,
    /// What the C library has there.
    before: (usize, usize),
    /// The list is the thread's.
    not_send: PhantomData<*mut ()>,
}

impl Held {
    /// Holds `words` from now on. A thread holds one pair at a time. While it does, robust mutexes of the C library that it locks are
    /// ordinary ones.
    ///
    /// # Errors
    /// The system's: it has no robust futexes, or a container forbids them.
    pub fn hold(words: &'static [Word; 2]) -> io::Result<Held> {
        let before = list()?;
        let list = Box::into_raw(Box::new(List {
            head: Entry { next: null_mut() },
            offset: 0,
            pending: null_mut(),
            entries: [const { Entry { next: null_mut() } }; 2],
        }));
        // SAFETY: fresh memory of ours, which nobody else knows of yet.
        unsafe {
            (*list).head.next = &raw mut (*list).entries[0];
            (*list).entries[0].next = &raw mut (*list).entries[1];
            (*list).entries[1].next = list.cast::<Entry>();
            let word = words[0].0.as_ptr().addr();
            let entry = (&raw const (*list).entries[0]).addr();
            (*list).offset = word.wrapping_sub(entry) as libc::c_long;
        }
        if let Err(error) = set_list(list.expose_provenance(), HEAD) {
            // SAFETY: the kernel did not take it.
            drop(unsafe { Box::from_raw(list) });
            return Err(error);
        }
        // SAFETY: takes and changes nothing.
        let thread = unsafe { libc::gettid() }.cast_unsigned();
        for word in words {
            word.0.store(thread | libc::FUTEX_WAITERS, Ordering::Release);
        }
        Ok(Held { words, list, before, not_send: PhantomData })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for word in self.words {
            word.0.store(0, Ordering::Release);
        }
        let (address, length) = self.before;
        if set_list(address, length).is_ok() {
            // SAFETY: from `hold`, and no longer the kernel's.
            drop(unsafe { Box::from_raw(self.list) });
        }
    }
}

/// Where this thread's list is, and the length of its head.
fn list() -> io::Result<(usize, usize)> {
    let (mut head, mut length) = (null_mut::<List>(), 0_usize);
    let this_thread: libc::c_long = 0;
    // SAFETY: a pointer and a length are written.
    let got = unsafe {
        libc::syscall(libc::SYS_get_robust_list, this_thread, &raw mut head, &raw mut length)
    };
    if got == 0 { Ok((head.expose_provenance(), length)) } else { Err(io::Error::last_os_error()) }
}

fn set_list(address: usize, length: usize) -> io::Result<()> {
    let head = with_exposed_provenance_mut::<List>(address);
    // SAFETY: a list of this thread that stays where it is: `Held`'s, or the one that was there before.
    let set = unsafe { libc::syscall(libc::SYS_set_robust_list, head, length) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_not_marked_at_the_threads_end() {
        static WORDS: [Word; 2] = [Word(AtomicU32::new(0)), Word(AtomicU32::new(0))];
        let values = || WORDS.each_ref().map(|word| word.0.load(Ordering::Acquire));
        let thread = std::thread::spawn(move || {
            for _ in 0..2 {
                let held = Held::hold(&WORDS).expect("robust futexes");
                for value in values() {
                    assert!(value & libc::FUTEX_WAITERS != 0 && value & DIED == 0, "{value:x}");
                }
                drop(held);
                assert_eq!(values(), [0; 2]);
            }
        });
        thread.join().expect("no panic");
        assert_eq!(values(), [0; 2]);
    }
}
