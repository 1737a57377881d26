//! A table of descriptors for one thread alone.
//!
//! Each system call on a descriptor looks it up in the process's table, and where several threads share that, holds the file
//! meanwhile, for another may close it: two atomic operations on a line of the file's. So a library that starts a thread makes
//! every system call of a program with one thread slower (8 B over libfabric's tcp to and fro: 3 %). A thread with a table of its own
//! costs the others nothing.
#![allow(unsafe_code)] // Raw system calls.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Gives the calling thread, and those that it starts, a table of descriptors of their own, in which only `keep` and standard error are,
/// under the same numbers. What the process opens or closes from then on, these threads do not see, and the other way round; what
/// they have opened is closed when the last of them ends. Signals are left to the other threads: handlers expect the process's
/// descriptors.
///
/// Call it before the thread owns a descriptor: one that is not kept is none any more, and its number may be given to another file.
///
/// # Errors
/// `ENOSYS` before Linux 5.9, `EPERM` where a container forbids it, `ENOMEM`: the table is the process's, as before.
pub fn part(keep: &[BorrowedFd<'_>]) -> io::Result<()> {
    // Nothing is open there: whether the call is to be had.
    close(u32::MAX, u32::MAX)?;
    let mut kept: Vec<u32> = keep.iter().map(|fd| fd.as_raw_fd().cast_unsigned()).collect();
    kept.push(libc::STDERR_FILENO.cast_unsigned());
    kept.sort_unstable();
    // SAFETY: concerns the calling thread alone, whose descriptors stay what they are.
    if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all-zero bytes are a set of signals, which is filled, and read by the second call; the old one is not asked for.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
    // From here on nothing fails that the first call did not.
    let mut from = 0;
    for fd in kept {
        if from < fd {
            close(from, fd - 1)?;
        }
        from = from.max(fd + 1);
    }
    close(from, u32::MAX)
}

/// Closes what is open from `first` to `last` in this thread's table.
fn close(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: takes no pointer. Callers have asked for these to be closed, in a table that nobody else has.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if closed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read, Write, pipe};
    use std::os::fd::AsFd;
    use std::sync::mpsc::channel;

    #[test]
    fn a_thread_keeps_what_it_asked_for_and_nothing_else() {
        let (mut kept, mut to_kept) = pipe().expect("a pipe");
        let (mut other, to_other) = pipe().expect("a pipe");
        let (parted, hears) = channel();
        let (go_on, waits) = channel::<()>();
        std::thread::scope(|scope| {
            let (kept, to_other) = (&mut kept, to_other.as_fd());
            let thread = scope.spawn(move || {
                part(&[kept.as_fd()]).expect("Linux 5.9, and no container that forbids it");
                let open = |fd: &dyn AsRawFd| {
                    std::fs::exists(format!("/proc/thread-self/fd/{}", fd.as_raw_fd()))
                        .expect("/proc")
                };
                let seen = (open(kept), open(&to_other));
                parted.send(()).expect("somebody hears it");
                waits.recv().expect("somebody says so");
                let mut byte = [0];
                (seen, kept.read(&mut byte).expect("a byte"), byte[0])
            });
            hears.recv().expect("it has parted");
            to_kept.write_all(&[7]).expect("a reader");
            go_on.send(()).expect("somebody waits");
            assert_eq!(thread.join().expect("no panic"), ((true, false), 1, 7));
        });
        // Nobody else holds the writing end: the thread's copy of it is no more, and ours is closed here.
        drop(to_other);
        assert_eq!(other.read(&mut [0]).map_err(|error| error.kind()), Ok::<_, ErrorKind>(0));
        assert!(
            kept.as_fd().try_clone_to_owned().is_ok(),
            "what the thread had is still open here"
        );
    }

    #[test]
    fn what_is_closed_elsewhere_while_the_thread_lives_is_closed() {
        let (mut reader, writer) = pipe().expect("a pipe");
        let (parted, hears) = channel();
        let (end, waits) = channel::<()>();
        let thread = std::thread::spawn(move || {
            part(&[]).expect("Linux 5.9, and no container that forbids it");
            parted.send(()).expect("somebody hears it");
            let _ = waits.recv();
        });
        hears.recv().expect("it has parted");
        drop(writer);
        assert_eq!(reader.read(&mut [0]).expect("the end"), 0);
        drop(end);
        thread.join().expect("no panic");
    }
}
