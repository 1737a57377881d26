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

/// One word that is held, as the kernel reads it.
#[repr(C)]
struct Entry {
    next: *mut Entry,
}

/// `struct robust_list_head`, and the one entry of it.
#[repr(C)]
struct List {
    /// Leads to `entry`, which leads back here.
    head: Entry,
    /// From an entry to its word.
    offset: libc::c_long,
    pending: *mut Entry,
    entry: Entry,
}

/// Length of `struct robust_list_head`.
const HEAD: usize = 3 * size_of::<usize>();

/// A word that this thread holds. Dropped, the word is 0 again; a thread that ends without that leaves [`DIED`] in it and wakes
/// one of those who wait for it, as the end of the process by whatever cause does.
///
/// ```
/// use ironweave_ffi::robust::{DIED, Held};
/// use std::sync::atomic::{AtomicU32, Ordering::Acquire};
///
/// static WORD: AtomicU32 = AtomicU32::new(0);
/// let ends = std::thread::spawn(|| Held::hold(&WORD).map(std::mem::forget));
/// ends.join().expect("no panic")?;
/// assert_eq!(WORD.load(Acquire) & DIED, DIED);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Held {
    word: &'static AtomicU32,
    /// The kernel's from `hold` to `drop`, or to the thread's end.
    list: *mut List,
    /// What the C library has there.
    before: (usize, usize),
    /// The list is the thread's.
    not_send: PhantomData<*mut ()>,
}

impl Held {
    /// Holds `word` from now on. A thread holds one at a time. While it does, robust mutexes of the C library that it locks are
    /// ordinary ones.
    ///
    /// # Errors
    /// The system's: it has no robust futexes, or a container forbids them.
    pub fn hold(word: &'static AtomicU32) -> io::Result<Held> {
        let before = list()?;
        let list = Box::into_raw(Box::new(List {
            head: Entry { next: null_mut() },
            offset: 0,
            pending: null_mut(),
            entry: Entry { next: null_mut() },
        }));
        // SAFETY: fresh memory of ours, which nobody else knows of yet.
        unsafe {
            (*list).head.next = &raw mut (*list).entry;
            (*list).entry.next = list.cast::<Entry>();
            let (word, entry) = (word.as_ptr().addr(), (&raw const (*list).entry).addr());
            (*list).offset = word.wrapping_sub(entry) as libc::c_long;
        }
        if let Err(error) = set_list(list.expose_provenance(), HEAD) {
            // SAFETY: the kernel did not take it.
            drop(unsafe { Box::from_raw(list) });
            return Err(error);
        }
        // SAFETY: takes and changes nothing.
        let thread = unsafe { libc::gettid() }.cast_unsigned();
        word.store(thread | libc::FUTEX_WAITERS, Ordering::Release);
        Ok(Held { word, list, before, not_send: PhantomData })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.word.store(0, Ordering::Release);
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
        static WORD: AtomicU32 = AtomicU32::new(0);
        let thread = std::thread::spawn(|| {
            for _ in 0..2 {
                let held = Held::hold(&WORD).expect("robust futexes");
                let value = WORD.load(Ordering::Acquire);
                assert!(value & libc::FUTEX_WAITERS != 0 && value & DIED == 0, "{value:x}");
                drop(held);
                assert_eq!(WORD.load(Ordering::Acquire), 0);
            }
        });
        thread.join().expect("no panic");
        assert_eq!(WORD.load(Ordering::Acquire), 0);
    }
}
