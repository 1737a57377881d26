//! The liveness page: how the launcher tells every process of a host, at once and without a system
//! call on their side, which ranks are gone.
//!
//! One memfd per host, written by the launcher (or the host's daemon) alone, mapped read-only by
//! the ranks, who inherit its descriptor. Nothing has a name, so nothing is left behind (law 8).
//! Once sealed the file can neither shrink under a reader nor be opened for writing again.
//!
//! ```text
//!   0  magic    u64   "IWALIVE1"
//!   8  capacity u64   entries there is room for (the size of the job)
//!  64  version  u64   number of entries written; alone in its cache line
//! 128  entries  u64*  [ rank: 32 | kind: 8 | value: 24 ], in order of detection, append-only
//! ```
//! The writer stores an entry, then the version with release order; a reader that acquires the
//! version sees every entry below it. It never tells *suspicions*: an entry is a process that is
//! proven gone, or on its way out of the system with no instruction of its program left to run (`lifeline`), or one, or a
//! whole host, that the launcher has given up for good (laws 3 and 4).
#![allow(unsafe_code)] // Atomics in memory shared between processes have no safe form.

use crate::error::{Result, RteError};
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"IWALIVE1");
const CAPACITY: usize = 8;
const VERSION: usize = 64;
const ENTRIES: usize = 128;
const ENTRY: usize = 8;

/// How a process ended, or how it is known to be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum How {
    /// It exited with this code.
    Exit(u8),
    /// This signal ended it.
    Signal(u8),
    /// The connection to its host's daemon is lost.
    HostLost,
    /// It gave no sign of life, was declared failed, and is being ended.
    Fenced,
    /// Another rank aborted it, with this code.
    Aborted(u8),
    /// It runs no instruction of its program any more, and the system is about to end it; how, is not known yet.
    Ending,
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            How::Exit(code) => write!(f, "exited with code {code}"),
            How::Signal(number) => write!(f, "killed by signal {number}"),
            How::HostLost => f.write_str("its host is lost"),
            How::Fenced => f.write_str("no sign of life"),
            How::Aborted(code) => write!(f, "aborted with code {code}"),
            How::Ending => f.write_str("ending"),
        }
    }
}

/// One entry of the page: a rank that is gone, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FailedRank {
    /// Its rank in the job.
    pub rank: u32,
    /// How it went.
    pub how: How,
}

impl FailedRank {
    fn pack(self) -> u64 {
        let (kind, value) = match self.how {
            How::Exit(code) => (1u64, code),
            How::Signal(number) => (2, number),
            How::HostLost => (3, 0),
            How::Fenced => (4, 0),
            How::Aborted(code) => (5, code),
            How::Ending => (6, 0),
        };
        u64::from(self.rank) << 32 | kind << 24 | u64::from(value)
    }

    fn unpack(word: u64) -> Option<FailedRank> {
        let rank = (word >> 32) as u32;
        let value = (word & 0xff) as u8;
        let how = match word >> 24 & 0xff {
            1 => How::Exit(value),
            2 => How::Signal(value),
            3 => How::HostLost,
            4 => How::Fenced,
            5 => How::Aborted(value),
            6 => How::Ending,
            _ => return None,
        };
        Some(FailedRank { rank, how })
    }
}

/// A reader's view of the page; an empty stand-in where no launcher keeps one.
///
/// All methods take `&self`, never block and make no system call. Clones see the same page.
#[derive(Debug, Clone)]
pub struct Liveness {
    /// The version word, in `page` or the static stand-in: one pointer, no branch.
    version: NonNull<AtomicU64>,
    page: Option<Arc<Words>>,
    capacity: usize,
}

// SAFETY: the pointer leads into memory that lives as long as `page` (or for ever) and is only read
// through an atomic.
unsafe impl Send for Liveness {}
// SAFETY: as above.
unsafe impl Sync for Liveness {}

static NEVER: AtomicU64 = AtomicU64::new(0);

impl Liveness {
    /// A page on which nothing ever happens: singletons, and launchers that keep none.
    pub fn absent() -> Liveness {
        Liveness { version: NonNull::from(&NEVER), page: None, capacity: 0 }
    }

    /// Maps the page behind `fd` for a job of `size` ranks.
    ///
    /// # Errors
    /// The descriptor is not a sealed liveness page of that size, or the mapping fails.
    pub fn map(fd: BorrowedFd<'_>, size: u32) -> Result<Liveness> {
        let wrong = |why: &str| RteError::Environment(format!("the liveness page {why}"));
        let seals = rustix::fs::fcntl_get_seals(fd).map_err(|_| wrong("is not a memfd"))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(wrong("is not sealed against shrinking"));
        }
        let length = rustix::fs::fstat(fd)
            .map_err(|error| RteError::system("cannot stat the liveness page", error))?
            .st_size;
        if (length as usize) < page_length(size) {
            return Err(wrong("is too short for this job"));
        }
        // Sealed against shrinking (checked above): no access to it can fault.
        let page = MmapOptions::new().len(page_length(size)).map_raw_read_only(&fd);
        let page = Words(page.map_err(|e| RteError::system("cannot map the liveness page", e))?);
        if page.at(0).load(Ordering::Relaxed) != MAGIC
            || page.at(CAPACITY).load(Ordering::Relaxed) != u64::from(size)
        {
            return Err(wrong("is of another layout or another job"));
        }
        let version = NonNull::from(page.at(VERSION));
        Ok(Liveness { version, page: Some(Arc::new(page)), capacity: size as usize })
    }

    /// How many failures have been published; a change means [`failed_since`](Self::failed_since)
    /// has news. One acquire load of one word that stays in this core's cache between failures.
    #[inline]
    pub fn version(&self) -> u64 {
        // SAFETY: `version` points into the live mapping or at a static, see the field.
        unsafe { self.version.as_ref() }.load(Ordering::Acquire)
    }

    /// The failures published since `cursor` (0 at first) in order of detection; moves `cursor`
    /// past every one returned.
    pub fn failed_since<'a>(
        &'a self,
        cursor: &'a mut usize,
    ) -> impl Iterator<Item = FailedRank> + 'a {
        let end = (self.version() as usize).min(self.capacity);
        std::iter::from_fn(move || {
            let page = self.page.as_ref()?;
            while *cursor < end {
                let entry = page.at(ENTRIES + *cursor * ENTRY).load(Ordering::Relaxed);
                *cursor += 1;
                let failed = FailedRank::unpack(entry);
                if let Some(failed) = failed.filter(|f| (f.rank as usize) < self.capacity) {
                    return Some(failed);
                }
            }
            None
        })
    }

    /// Whether a launcher keeps this page: when not, only the detector tells of failures.
    pub fn is_kept(&self) -> bool {
        self.page.is_some()
    }
}

/// The launcher's end: makes the page and publishes failures.
#[derive(Debug)]
pub struct LivenessWriter {
    page: Words,
    fd: OwnedFd,
    published: Vec<bool>,
    count: usize,
}

impl LivenessWriter {
    /// A new page for a job of `size` ranks, sealed.
    ///
    /// # Errors
    /// The system has no memfd or no memory for one.
    pub fn new(size: u32) -> Result<LivenessWriter> {
        let failed = |error| RteError::system("cannot make the liveness page", error);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("ironweave-liveness", flags).map_err(failed)?;
        rustix::fs::ftruncate(&fd, page_length(size) as u64).map_err(failed)?;
        let page = MmapOptions::new().len(page_length(size)).map_raw(&fd);
        let page = Words(page.map_err(|e| RteError::system("cannot map the liveness page", e))?);
        page.at(0).store(MAGIC, Ordering::Relaxed);
        page.at(CAPACITY).store(u64::from(size), Ordering::Relaxed);
        let seals = SealFlags::SHRINK | SealFlags::GROW;
        rustix::fs::fcntl_add_seals(&fd, seals).map_err(failed)?;
        // Linux 5.1 and later: no new writable view, ours stays. Older kernels do without.
        let last = SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        let _ = rustix::fs::fcntl_add_seals(&fd, last);
        Ok(LivenessWriter { page, fd, published: vec![false; size as usize], count: 0 })
    }

    /// Publishes that `failed` is gone; readers see it with their next load. A rank is published
    /// once: what comes later about it is dropped.
    pub fn publish(&mut self, failed: FailedRank) {
        let Some(published) = self.published.get_mut(failed.rank as usize) else { return };
        if std::mem::replace(published, true) {
            return;
        }
        self.page.at(ENTRIES + self.count * ENTRY).store(failed.pack(), Ordering::Relaxed);
        self.count += 1;
        self.page.at(VERSION).store(self.count as u64, Ordering::Release);
    }
}

impl AsFd for LivenessWriter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn page_length(size: u32) -> usize {
    ENTRIES + size as usize * ENTRY
}

/// A shared mapping, accessed as atomic words alone.
#[derive(Debug)]
struct Words(MmapRaw);

impl Words {
    /// The word at byte `offset`.
    ///
    /// # Panics
    /// The offset is outside the mapping or not a multiple of eight: a mistake in this file.
    fn at(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(ENTRY) && offset + ENTRY <= self.0.len());
        // SAFETY: in bounds and aligned (asserted; mappings begin at a page), alive as long as
        // `self`, and no process forms any other kind of access than through atomics. Readers map it
        // read-only and only load.
        unsafe { AtomicU64::from_ptr(self.0.as_mut_ptr().add(offset).cast::<u64>()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(size: u32) -> (LivenessWriter, Liveness) {
        let writer = LivenessWriter::new(size).unwrap();
        let reader = Liveness::map(writer.as_fd(), size).unwrap();
        (writer, reader)
    }

    #[test]
    fn readers_see_failures_in_order_and_once() {
        let (mut writer, reader) = pair(4);
        let mut cursor = 0;
        assert_eq!(reader.version(), 0);
        writer.publish(FailedRank { rank: 2, how: How::Signal(9) });
        writer.publish(FailedRank { rank: 2, how: How::HostLost });
        assert_eq!(reader.version(), 1);
        let seen: Vec<_> = reader.failed_since(&mut cursor).collect();
        assert_eq!(seen, [FailedRank { rank: 2, how: How::Signal(9) }]);
        assert_eq!(reader.failed_since(&mut cursor).count(), 0);
        writer.publish(FailedRank { rank: 0, how: How::Exit(3) });
        writer.publish(FailedRank { rank: 3, how: How::HostLost });
        let first = reader.failed_since(&mut cursor).next();
        assert_eq!(first, Some(FailedRank { rank: 0, how: How::Exit(3) }));
        let rest: Vec<_> = reader.failed_since(&mut cursor).collect();
        assert_eq!(rest, [FailedRank { rank: 3, how: How::HostLost }]);
        writer.publish(FailedRank { rank: 9, how: How::HostLost });
        assert_eq!(reader.version(), 3, "a rank outside the job is not published");
    }

    #[test]
    fn the_absent_page_tells_nothing() {
        let absent = Liveness::absent();
        assert_eq!((absent.version(), absent.is_kept()), (0, false));
        assert_eq!(absent.failed_since(&mut 0).count(), 0);
    }

    #[test]
    fn a_page_cannot_be_shrunk_or_written_by_those_who_inherit_it() {
        let (writer, _reader) = pair(2);
        assert!(rustix::fs::ftruncate(&writer, 0).is_err());
        assert!(rustix::io::write(&writer, b"x").is_err());
    }

    #[test]
    fn a_page_of_another_job_and_a_file_that_is_no_page_are_refused() {
        let (writer, _reader) = pair(2);
        assert!(Liveness::map(writer.as_fd(), 3).is_err());
        assert!(Liveness::map(writer.as_fd(), 1).is_err());
        let other = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(Liveness::map(other.as_fd(), 2).is_err());
    }

    #[test]
    fn every_how_survives_packing() {
        let exits = [How::Exit(0), How::Exit(255)];
        let others = [
            How::Signal(9),
            How::Signal(64),
            How::HostLost,
            How::Fenced,
            How::Aborted(42),
            How::Ending,
        ];
        for how in exits.into_iter().chain(others) {
            let failed = FailedRank { rank: u32::MAX - 1, how };
            assert_eq!(FailedRank::unpack(failed.pack()), Some(failed));
        }
        assert_eq!(FailedRank::unpack(0), None);
    }
}
