//! Threads that are not to be cancelled (`pthread_cancel(3)`).
//!
//! A thread that is cancelled inside a fabric library leaves its locks held and its queues half read; and what a thread does that is cancelled in
//! an MPI call is undefined (MPI-4.1, 11.6.2, "Interaction with thread cancellation"). But that is not why this is here: around each
//! system call in which a thread can be cancelled, glibc 2.36 marks it by atomic operations in a process of several threads, and a thread that is marked
//! for good costs none. An `epoll_wait` that finds nothing took 0.19 µs, and 0.14 so; libfabric's tcp provider makes some ten such calls
//! for a message of 8 bytes. To mark it for each wait gained nothing: that are four operations, too.
#![allow(unsafe_code)] // Two functions of the C library.

use std::cell::Cell;
use std::ffi::c_int;

/// Linux's values, in all its C libraries.
const DISABLE: c_int = 1;
const ASYNCHRONOUS: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
}

fn set_state(state: c_int) -> c_int {
    let mut old = 0;
    // SAFETY: writes the calling thread's former state; fails only for a value that it does not know, changing nothing.
    unsafe { pthread_setcancelstate(state, &raw mut old) };
    old
}

fn set_kind(kind: c_int) -> c_int {
    let mut old = 0;
    // SAFETY: as above. The asynchronous type has no effect while the state forbids it, or was the thread's own.
    unsafe { pthread_setcanceltype(kind, &raw mut old) };
    old
}

thread_local! {
    /// State and type as they were.
    static BEFORE: Cell<Option<[c_int; 2]>> = const { Cell::new(None) };
}

/// The calling thread is not cancelled from now on until [`allow`], which a request from meanwhile waits for.
pub fn forbid() {
    if BEFORE.get().is_none() {
        // In this order, and back in the other: with the new type and the old state it could be interrupted anywhere.
        let state = set_state(DISABLE);
        BEFORE.set(Some([state, set_kind(ASYNCHRONOUS)]));
    }
}

/// It may be cancelled as before, if this thread was forbidden to be.
pub fn allow() {
    if let Some([state, kind]) = BEFORE.take() {
        set_kind(kind);
        set_state(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// State and type of the calling thread.
    fn now() -> [c_int; 2] {
        let state = set_state(DISABLE);
        let kind = set_kind(ASYNCHRONOUS);
        set_kind(kind);
        set_state(state);
        [state, kind]
    }

    #[test]
    fn everything_is_as_it_was_afterwards() {
        let before = now();
        assert!(before[0] != DISABLE && before[1] != ASYNCHRONOUS, "{before:?}");
        for _ in 0..2 {
            forbid();
            assert_eq!(now(), [DISABLE, ASYNCHRONOUS]);
        }
        std::thread::spawn(allow).join().unwrap();
        assert_eq!(now(), [DISABLE, ASYNCHRONOUS], "another thread has no say");
        for _ in 0..2 {
            allow();
            assert_eq!(now(), before);
        }
    }

    #[test]
    fn who_is_cancelled_meanwhile_goes_on() {
        let cancelled = std::thread::spawn(|| {
            forbid();
            // SAFETY: the thread itself is there.
            let error = unsafe { libc::pthread_cancel(libc::pthread_self()) };
            assert_eq!(error, 0);
            // SAFETY: no descriptors; a call in which threads are cancelled.
            let ready = unsafe { libc::poll(std::ptr::null_mut(), 0, 1) };
            assert_eq!(ready, 0);
            7
        });
        assert_eq!(cancelled.join().unwrap(), 7);
    }
}
