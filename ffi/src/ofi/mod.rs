//! libfabric (OFI), opened at run time: which providers there are, and a safe way to drive one endpoint.
//!
//! * [`Ofi`] is an opened library. [`Ofi::open`] takes what `IRONWEAVE_OFI_LIB` names (a vendor's library, by path or
//!   soname), or `libfabric.so.1`. Symbols are pinned to the version whose layouts `raw.rs` holds, so one
//!   binary runs on 1.9 to 2.x; absent or too old is said in words.
//! * [`Info`] is one provider and domain as `fi_getinfo` offers it; it belongs to us and is freed once.
//! * [`Port`] is one endpoint with all it needs: fabric, domain, address vector, completion queue, and the memory that
//!   the library reads and writes. It owns every handle and every buffer, hands out neither pointers nor handles, and
//!   closes them in its `drop` alone: nothing can be used after it was closed, and no buffer is freed before the
//!   endpoint that may write it is closed.
//!
//! It knows nothing of peers' liveness (no provider tells, FACTS) and decides nothing about errors: what the library
//! returns is handed up as [`Errno`] (law 3: no exit, no panic on anything that the library says).

#![allow(unsafe_code)] // Calls a C library through its documented types; each file here says by which invariant.

mod atomic;
mod completion;
mod errno;
mod info;
mod lane;
mod memory;
mod open;
mod port;
mod raw;
mod registration;
mod settings;
mod sockets;
mod standing;

pub use atomic::Change;
pub use completion::Look;
pub use errno::Errno;
pub use info::{Info, Wanted};
pub use lane::Lane;
pub use port::{
    Closes, Event, FiAddr, LANE_RECEIVES, Options, Port, Registration, Remote, Slot, Work,
};
pub use standing::{Standing, standing};

use crate::library::{Library, LibraryError};
use std::ffi::{CStr, c_char, c_int};
use std::sync::Mutex;

/// The environment variable that names the library.
pub const VARIABLE: &str = "IRONWEAVE_OFI_LIB";
/// The library that is opened otherwise.
const SONAME: &str = "libfabric.so.1";

/// Why there is no libfabric, or why it cannot be used, in words for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OfiError {
    /// The dynamic linker's words.
    #[error("no libfabric: {0}")]
    Absent(String),
    /// It is older than the symbols that are needed.
    #[error("{name} is libfabric {}.{}: too old, 1.9 or later is needed", version.0, version.1)]
    TooOld {
        /// The name it was opened by.
        name: String,
        /// Its version.
        version: (u32, u32),
    },
    /// A call failed.
    #[error("{call}: {error}")]
    Call {
        /// Which one.
        call: &'static str,
        /// What it returned.
        error: Errno,
    },
}

type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const raw::Info,
    *mut *mut raw::Info,
) -> c_int;

/// An opened libfabric. Stays open, and at its place, for the life of the process.
#[derive(Debug)]
pub struct Ofi {
    name: String,
    library: Library,
    version: u32,
    saves: bool,
    getinfo: GetInfo,
    freeinfo: unsafe extern "C" fn(*mut raw::Info),
    dupinfo: unsafe extern "C" fn(*const raw::Info) -> *mut raw::Info,
    fabric: unsafe extern "C" fn(
        *mut raw::FabricAttr,
        *mut *mut raw::Fabric,
        *mut std::ffi::c_void,
    ) -> c_int,
    strerror: unsafe extern "C" fn(c_int) -> *const c_char,
}

/// The libraries opened so far, by name: a process seldom has more than one.
static OPENED: Mutex<Vec<&'static Ofi>> = Mutex::new(Vec::new());

impl Ofi {
    /// Opens the library that `IRONWEAVE_OFI_LIB` names, or `libfabric.so.1`. The second call is free.
    ///
    /// # Errors
    /// In words: absent, or too old.
    pub fn open() -> Result<&'static Ofi, OfiError> {
        match std::env::var(VARIABLE) {
            Ok(name) if !name.is_empty() => Self::open_named(&name),
            _ => Self::open_named(SONAME),
        }
    }

    /// Opens the library `name`: a soname or a path.
    ///
    /// # Errors
    /// As [`Ofi::open`].
    pub fn open_named(name: &str) -> Result<&'static Ofi, OfiError> {
        // A panic while it was locked left a complete list: it is only pushed to.
        let mut opened = OPENED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(ofi) = opened.iter().find(|ofi| ofi.name == name) {
            return Ok(ofi);
        }
        let ofi: &'static Ofi = Box::leak(Box::new(Self::load(name)?));
        opened.push(ofi);
        Ok(ofi)
    }

    fn load(name: &str) -> Result<Ofi, OfiError> {
        let ours = !settings::is_loaded(name);
        let library = Library::open(name).map_err(|error| OfiError::Absent(error.to_string()))?;
        let version =
            call_version(&library).map_err(|error| OfiError::Absent(error.to_string()))?;
        let too_old = |_: LibraryError| OfiError::TooOld {
            name: name.to_owned(),
            version: (version >> 16, version & 0xffff),
        };
        if version < raw::OLDEST {
            return Err(too_old(LibraryError::Open(String::new())));
        }
        let at = |symbol, of| library.symbol_of_version(symbol, of).map_err(too_old);
        let getinfo = at("fi_getinfo", "FABRIC_1.3")?;
        let freeinfo = at("fi_freeinfo", "FABRIC_1.3")?;
        let dupinfo = at("fi_dupinfo", "FABRIC_1.3")?;
        let fabric = at("fi_fabric", "FABRIC_1.1")?;
        let strerror = at("fi_strerror", "FABRIC_1.0")?;
        let saves = settings::initialize(&library, ours);
        // SAFETY: functions of these names and versions have these types; so says the header, and a symbol version
        // never changes. The library is never closed.
        unsafe {
            use std::mem::transmute;
            Ok(Ofi {
                getinfo: transmute::<*mut _, GetInfo>(getinfo.as_ptr()),
                freeinfo: transmute::<*mut _, unsafe extern "C" fn(*mut raw::Info)>(
                    freeinfo.as_ptr(),
                ),
                dupinfo: transmute::<
                    *mut _,
                    unsafe extern "C" fn(*const raw::Info) -> *mut raw::Info,
                >(dupinfo.as_ptr()),
                fabric: transmute::<
                    *mut _,
                    unsafe extern "C" fn(
                        *mut raw::FabricAttr,
                        *mut *mut raw::Fabric,
                        *mut std::ffi::c_void,
                    ) -> c_int,
                >(fabric.as_ptr()),
                strerror: transmute::<*mut _, unsafe extern "C" fn(c_int) -> *const c_char>(
                    strerror.as_ptr(),
                ),
                name: name.to_owned(),
                version,
                saves,
                library,
            })
        }
    }

    /// Major and minor version, as the library tells.
    #[must_use]
    pub fn version(&self) -> (u32, u32) {
        (self.version >> 16, self.version & 0xffff)
    }

    /// Whether its tcp provider saves messages with tags that nothing is posted for: then closing a connection that such a
    /// message comes by is not safe.
    #[must_use]
    pub fn saves_messages(&self) -> bool {
        self.saves
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> std::path::PathBuf {
        self.library.path_of("fi_version").unwrap_or_else(|| self.name.clone().into())
    }

    /// The interface asked for: the newest that both sides know.
    fn api(&self) -> u32 {
        raw::API.min(self.version)
    }

    /// libfabric's words for an error.
    #[must_use]
    pub fn describe(&self, error: Errno) -> String {
        // SAFETY: documented to return a terminated string that lives as long as the library, or null.
        unsafe {
            let text = (self.strerror)(error.0);
            if text.is_null() {
                return error.to_string();
            }
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}

fn call_version(library: &Library) -> Result<u32, LibraryError> {
    let address = library.symbol_of_version("fi_version", "FABRIC_1.0")?;
    // SAFETY: `uint32_t fi_version(void)` since the first release.
    let function: extern "C" fn() -> u32 = unsafe { std::mem::transmute(address.as_ptr()) };
    Ok(function())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_libfabric_is_told_in_words() {
        let absent = Ofi::open_named("libironweave-none.so.9").unwrap_err().to_string();
        assert!(absent.starts_with("no libfabric: libironweave-none.so.9"), "{absent}");
        let other = Ofi::open_named("libc.so.6").unwrap_err().to_string();
        assert!(other.contains("no symbol fi_version@FABRIC_1.0"), "{other}");
        let old = OfiError::TooOld { name: String::from("libfabric.so.1"), version: (1, 6) };
        assert!(old.to_string().contains("1.6: too old, 1.9 or later"), "{old}");
    }
}
