//! A shared library opened at run time. A thin owner over `dlopen`, with versioned lookup
//! (`dlvsym`), which libfabric needs: its struct layouts follow the symbol version. Never closes a
//! library: fabric libraries start threads and register exit handlers that must stay mapped.
#![allow(unsafe_code)] // dlopen, dlsym and dlvsym are the purpose of this file.

use std::ffi::{CStr, CString, c_void};
use std::path::PathBuf;
use std::ptr::NonNull;

/// Why a library or a symbol of it cannot be used, in the words of the dynamic linker.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// No file of that name on the search path, or it does not load.
    #[error("{0}")]
    Open(String),
    /// The library is there but lacks this symbol (of this version).
    #[error("{library} has no symbol {symbol}")]
    Symbol {
        /// The name the library was opened by.
        library: String,
        /// The symbol, with `@version` when one was asked for.
        symbol: String,
    },
}

/// An open library; stays open for the life of the process.
#[derive(Debug)]
pub struct Library {
    handle: NonNull<c_void>,
    name: String,
}

// SAFETY: a dlopen handle may be used from any thread; dlsym is thread-safe.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Opens `name` (a soname such as `libfabric.so.1`, or a path), symbols local and bound now.
    ///
    /// Runs the library's constructors: open only libraries meant to be used.
    ///
    /// # Errors
    /// The dynamic linker's own words.
    pub fn open(name: &str) -> Result<Library, LibraryError> {
        let c_name = CString::new(name)
            .map_err(|_| LibraryError::Open(format!("{name:?}: a NUL byte in the name")))?;
        // SAFETY: c_name is a terminated string; constructors of fabric libraries are trusted, as
        // linking to them would be.
        let handle = unsafe { libc::dlopen(c_name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        match NonNull::new(handle) {
            Some(handle) => Ok(Library { handle, name: name.to_owned() }),
            None => Err(LibraryError::Open(last_error(name))),
        }
    }

    /// The address of `symbol` in its default version.
    ///
    /// # Errors
    /// The library has no such symbol.
    pub fn symbol(&self, symbol: &str) -> Result<NonNull<c_void>, LibraryError> {
        let missing = || self.missing(symbol.to_owned());
        let c_symbol = CString::new(symbol).map_err(|_| missing())?;
        // SAFETY: the handle is open and the string terminated.
        let address = unsafe { libc::dlsym(self.handle.as_ptr(), c_symbol.as_ptr()) };
        NonNull::new(address).ok_or_else(missing)
    }

    /// The address of `symbol` as of `version` (for example `fi_getinfo`, `FABRIC_1.3`).
    ///
    /// # Errors
    /// The library has no such symbol of that version.
    pub fn symbol_of_version(
        &self,
        symbol: &str,
        version: &str,
    ) -> Result<NonNull<c_void>, LibraryError> {
        let missing = || self.missing(format!("{symbol}@{version}"));
        let c_symbol = CString::new(symbol).map_err(|_| missing())?;
        let c_version = CString::new(version).map_err(|_| missing())?;
        // SAFETY: the handle is open and both strings are terminated.
        let address =
            unsafe { libc::dlvsym(self.handle.as_ptr(), c_symbol.as_ptr(), c_version.as_ptr()) };
        NonNull::new(address).ok_or_else(missing)
    }

    /// The file that holds `symbol`, as the dynamic linker mapped it.
    pub fn path_of(&self, symbol: &str) -> Option<PathBuf> {
        let address = self.symbol(symbol).ok()?;
        // SAFETY: an all-zero Dl_info is a valid value of that plain C struct.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: dladdr only compares the address with the mapped objects and fills `info`.
        let found = unsafe { libc::dladdr(address.as_ptr(), &mut info) };
        if found == 0 || info.dli_fname.is_null() {
            return None;
        }
        // SAFETY: a non-null dli_fname is a terminated string owned by the linker, which lives as
        // long as the library, and the library is never closed.
        let name = unsafe { CStr::from_ptr(info.dli_fname) };
        let path = PathBuf::from(name.to_string_lossy().into_owned());
        Some(path.canonicalize().unwrap_or(path))
    }

    /// The name the library was opened by.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn missing(&self, symbol: String) -> LibraryError {
        LibraryError::Symbol { library: self.name.clone(), symbol }
    }
}

fn last_error(name: &str) -> String {
    // SAFETY: dlerror returns null or a terminated string valid until the next dl* call on this
    // thread; it is copied at once.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return format!("{name}: the dynamic linker gives no reason");
    }
    // SAFETY: not null, see above.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libc_opens_with_plain_and_versioned_symbols() {
        let libc_so = Library::open("libc.so.6").unwrap();
        libc_so.symbol("getpid").unwrap();
        assert!(libc_so.path_of("getpid").unwrap().is_absolute());
        let missing = libc_so.symbol_of_version("getpid", "FABRIC_1.3").unwrap_err();
        assert_eq!(missing.to_string(), "libc.so.6 has no symbol getpid@FABRIC_1.3");
    }

    #[test]
    fn a_missing_library_is_named_in_the_error() {
        let error = Library::open("libironweave-none.so.9").unwrap_err().to_string();
        assert!(error.contains("libironweave-none.so.9"), "{error}");
    }
}
