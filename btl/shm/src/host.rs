//! Which host this is, and the address blob of a process on it.
//!
//! Two processes can share memory when they run under the same kernel and see each other's abstract sockets:
//! the same boot, the same network namespace, the same process namespace. Never compares names of hosts.

use ironweave_btl::secret::random;
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of an abstract socket's name.
const NAME_LEN: usize = 32;

/// The address blob, version 1.
#[derive(
    FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, PartialEq, Eq, Debug,
)]
#[repr(C)]
pub(crate) struct Place {
    version: u8,
    host: [u8; 32],
    name: [u8; NAME_LEN],
}

const VERSION: u8 = 1;

impl Place {
    /// A fresh place on this host that nobody can guess.
    pub(crate) fn fresh() -> Result<Place, (&'static str, Errno)> {
        let mut name = *b"ironweave/shm/..................";
        let random: [u8; 18] = random().map_err(|errno| ("getrandom", errno))?;
        for (byte, random) in name[14..].iter_mut().zip(random) {
            *byte = b"abcdefghijklmnopqrstuvwxyz012345"[usize::from(random % 32)];
        }
        Ok(Place { version: VERSION, host: host()?, name })
    }

    /// The place in an address blob, `None` when it is not one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Place> {
        Place::read_from_bytes(bytes).ok().filter(|place| place.version == VERSION)
    }

    pub(crate) fn is_on_host_of(&self, other: &Place) -> bool {
        self.host == other.host
    }

    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }
}

fn host() -> Result<[u8; 32], (&'static str, Errno)> {
    let mut hasher = blake3::Hasher::new();
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id")
        .map_err(|error| ("read boot_id", Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    hasher.update(&boot);
    for namespace in ["/proc/self/ns/net", "/proc/self/ns/pid"] {
        let stat = rustix::fs::stat(namespace).map_err(|errno| ("stat namespace", errno))?;
        hasher.update(&stat.st_dev.to_le_bytes()).update(&stat.st_ino.to_le_bytes());
    }
    Ok(*hasher.finalize().as_bytes())
}
