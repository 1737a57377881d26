//! The two system calls that have no safe form: reading straight into user memory, and asking how much of what was
//! sent is unacknowledged. The one place of this crate that needs `unsafe`.
//!
//! A [`RecvRegion`] is written by raw copies everywhere else; the kernel is handed its bytes here for the time of
//! one `readv`. Sending needs nothing of the kind: a send region lends its bytes as a slice.
#![allow(unsafe_code)]

use ironweave_btl::memory::RecvRegion;
use rustix::fd::BorrowedFd;
use rustix::io::{IoSliceMut, Result, readv};
use rustix::ioctl::{Getter, Opcode, ioctl};

/// Reads what is there: first into bytes `from..to` of `region`, and when those are full, into `ahead` (the
/// beginning of the next frames). Returns how many bytes came in both together; 0 is the end of the stream.
///
/// # Errors
/// The `errno` of `readv`.
///
/// # Panics
/// When the range is not inside the region.
pub fn read_into(
    socket: BorrowedFd<'_>,
    region: &RecvRegion,
    from: usize,
    to: usize,
    ahead: &mut [u8],
) -> Result<usize> {
    let part = region.part(from..to);
    let bytes: &mut [u8] = if part.is_empty() {
        &mut [] // its address may be null
    } else {
        // SAFETY: the bytes are valid for reads and writes, and nobody else touches them, by the promise of
        // `RecvRegion::new`; other parts of the same memory are used from this thread only, hence not during
        // this call, which keeps no reference. Broken by: `btl/tcp/tests/transfer.rs`, the canary tests.
        unsafe { std::slice::from_raw_parts_mut(part.as_mut_ptr(), part.len()) }
    };
    readv(socket, &mut [IoSliceMut::new(bytes), IoSliceMut::new(ahead)])
}

/// `SIOCOUTQ` of tcp(7), the same number as `TIOCOUTQ`.
const SIOCOUTQ: Opcode = 0x5411;

/// How many bytes, with the end of the stream as one, the other side's kernel has not acknowledged yet.
///
/// # Errors
/// The `errno` of `ioctl`.
pub fn unacknowledged(socket: BorrowedFd<'_>) -> Result<usize> {
    // SAFETY: on a TCP socket this request writes one `int`, as the type says; the opcode is tcp(7)'s.
    let bytes = unsafe { ioctl(socket, Getter::<SIOCOUTQ, i32>::new()) }?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}
