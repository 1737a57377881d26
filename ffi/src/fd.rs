//! A descriptor whose number came through an environment variable (`PMI_FD` and the like) becomes
//! an owned one. Never takes the original over: whoever owns it, if anybody, keeps it.
#![allow(unsafe_code)] // F_DUPFD on a bare number has no safe wrapper.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Duplicates the inherited descriptor `number`; the copy closes on exec.
///
/// The original is marked close-on-exec as well, so that what this process starts later does not
/// hold the other end open.
///
/// # Errors
/// `EBADF` when no descriptor of that number is open.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl takes plain integers; F_DUPFD_CLOEXEC leaves the original untouched and fails
    // on a number that is not open.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above; FD_CLOEXEC changes no ownership.
    unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    // SAFETY: `copy` was made by the call above and is known to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_copy_of_an_open_number_works_and_a_closed_number_is_an_error() {
        let (mut reader, writer) = io::pipe().unwrap();
        let copy = inherited(writer.as_raw_fd()).unwrap();
        drop(writer);
        let mut copy = std::fs::File::from(copy);
        copy.write_all(b"x").unwrap();
        drop(copy);
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"x");
        assert_eq!(inherited(1_000_000).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert!(inherited(-1).is_err());
    }
}
