//! Segments: memory files that have no name, are passed by descriptor, and vanish with their last user.
//!
//! Nothing here can be left behind (law 8): there is no path, and descriptors are closed as soon as the memory
//! is mapped. A segment from a peer is mapped only when it is sealed against growing and shrinking and has
//! exactly the size announced, so that no access can fault (law 9).

use crate::shared::Shared;
use ironweave_btl::Cause;
use memmap2::MmapRaw;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

fn os(call: &'static str) -> impl Fn(Errno) -> Cause {
    move |errno| match errno {
        Errno::MFILE | Errno::NFILE => Cause::Exhausted("file descriptors"),
        Errno::NOMEM | Errno::NOSPC => Cause::Exhausted("memory"),
        errno => Cause::Os { call, errno: errno.raw_os_error() },
    }
}

/// Maps all of `file`.
fn map(file: &OwnedFd) -> Result<Shared, Cause> {
    let map = MmapRaw::map_raw(file).map_err(|error| {
        os("mmap")(error.raw_os_error().map_or(Errno::NOMEM, Errno::from_raw_os_error))
    })?;
    Ok(Shared::mapping(map))
}

/// A fresh segment of `len` zero bytes, and the descriptor to pass on.
pub(crate) fn create(name: &str, len: usize) -> Result<(Shared, OwnedFd), Cause> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Not executable and sealed so, where the kernel knows that (6.3).
    let file = rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|error| match error {
            Errno::INVAL => rustix::fs::memfd_create(name, flags),
            error => Err(error),
        })
        .map_err(os("memfd_create"))?;
    rustix::fs::ftruncate(&file, len as u64).map_err(os("ftruncate"))?;
    rustix::fs::fcntl_add_seals(&file, SEALS).map_err(os("fcntl"))?;
    Ok((map(&file)?, file))
}

/// A peer's segment, which must have `len` bytes.
pub(crate) fn open(file: &OwnedFd, len: usize) -> Result<Shared, Cause> {
    let seals = rustix::fs::fcntl_get_seals(file)
        .map_err(|_| Cause::Malformed("a segment that is not a memory file"))?;
    if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
        return Err(Cause::Malformed("a segment that is not sealed"));
    }
    let size = rustix::fs::fstat(file).map_err(os("fstat"))?.st_size;
    if u64::try_from(size) != Ok(len as u64) {
        return Err(Cause::Malformed("a segment of another size than announced"));
    }
    map(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peers_segment_is_checked_before_it_is_mapped() {
        let (_, file) = create("test", 8192).unwrap();
        open(&file, 8192).unwrap();
        assert!(matches!(open(&file, 4096), Err(Cause::Malformed(_))));
        let unsealed = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&unsealed, 8192).unwrap();
        assert!(matches!(open(&unsealed, 8192), Err(Cause::Malformed(_))));
        let (pipe, _) = rustix::pipe::pipe().unwrap();
        assert!(matches!(open(&pipe, 8192), Err(Cause::Malformed(_))));
    }
}
