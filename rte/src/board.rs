//! The board's memory: words that all ranks of a host read and write, where they post what they bring to an agreement and what they revoke (`ironweave-ft`, `Board`, says
//! how); and behind them a line for each rank's lifeline (`lifeline`).
//!
//! One memfd per host, all zero, made by the launcher (or the host's daemon) and inherited by the ranks. Nothing has a name, so nothing is left
//! behind (law 8). It is sealed against shrinking: no access can fault. Only what is touched takes memory.
#![allow(unsafe_code)] // Atomics in memory shared between processes have no safe form.

use crate::error::{Result, RteError};
use crate::lifeline::Line;
use memmap2::MmapOptions;
use rustix::fs::{MemfdFlags, SealFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

/// Words of a cache line.
const LINE: usize = 8;
/// Words of a rank: two lines of its own and a line in each of 64 slots.
const WORDS: usize = (2 + 64) * LINE;

/// Makes the board of a host of a job of `size` ranks.
///
/// # Errors
/// The system has no memfd or no memory for one.
pub(crate) fn make(size: u32) -> Result<OwnedFd> {
    let failed = |error| RteError::system("cannot make the board", error);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("ironweave-board", flags).map_err(failed)?;
    rustix::fs::ftruncate(&fd, length(size) as u64).map_err(failed)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&fd, seals).map_err(failed)?;
    Ok(fd)
}

/// What all ranks of a host share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared {
    pub board: &'static [AtomicU64],
    /// Of each rank of the job.
    pub lines: &'static [Line],
}

/// Maps the board behind `fd`, for as long as the process runs.
///
/// # Errors
/// The descriptor is not a sealed board of a job of that size, or the mapping fails.
pub(crate) fn map(fd: BorrowedFd<'_>, size: u32) -> Result<Shared> {
    let wrong = |why: &str| RteError::Environment(format!("the board {why}"));
    let seals = rustix::fs::fcntl_get_seals(fd.as_fd()).map_err(|_| wrong("is not a memfd"))?;
    if !seals.contains(SealFlags::SHRINK) {
        return Err(wrong("is not sealed against shrinking"));
    }
    let stat = rustix::fs::fstat(fd);
    let stat = stat.map_err(|error| RteError::system("cannot stat the board", error))?;
    if stat.st_size as usize != length(size) {
        return Err(wrong("is that of another job"));
    }
    let map = MmapOptions::new().len(length(size)).map_raw(&fd);
    let map = map.map_err(|error| RteError::system("cannot map the board", error))?;
    let words = map.as_mut_ptr().cast::<AtomicU64>();
    std::mem::forget(map);
    // SAFETY: a mapping of that length, aligned to a page, never unmapped, of a file that cannot shrink; every process accesses it through
    // atomics alone. The lines begin behind the words, at a multiple of their own length.
    Ok(unsafe {
        let lines = words.add(words_of(size)).cast::<Line>();
        Shared {
            board: std::slice::from_raw_parts(words, words_of(size)),
            lines: std::slice::from_raw_parts(lines, size as usize),
        }
    })
}

const fn words_of(size: u32) -> usize {
    LINE + size as usize * WORDS
}

const fn length(size: u32) -> usize {
    words_of(size) * size_of::<AtomicU64>() + size as usize * size_of::<Line>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn all_who_map_it_see_the_same_words() {
        let fd = make(3).unwrap();
        let (one, other) = (map(fd.as_fd(), 3).unwrap(), map(fd.as_fd(), 3).unwrap());
        assert_eq!((one.lines.len(), other.lines.len()), (3, 3));
        let (one, other) = (one.board, other.board);
        assert_eq!(one.len(), LINE + 3 * WORDS);
        assert!(one.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        one[WORDS].store(7, Ordering::Release);
        assert_eq!(other[WORDS].load(Ordering::Acquire), 7);
        assert!(rustix::fs::ftruncate(&fd, 0).is_err(), "nobody shrinks it");
    }

    #[test]
    fn what_is_no_board_of_the_job_is_refused() {
        let fd = make(3).unwrap();
        assert!(map(fd.as_fd(), 2).is_err());
        assert!(map(fd.as_fd(), 4).is_err());
        let other = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(map(other.as_fd(), 3).is_err());
    }
}
