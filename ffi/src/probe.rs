//! Which fabric and topology libraries this machine has, in which version: the material of
//! `ironweave doctor`. Never initialises a library; it asks for versions only.
#![allow(unsafe_code)] // Calls version functions of C libraries through their documented types.

use crate::library::{Library, LibraryError};
use std::ffi::{CStr, c_char, c_uint};
use std::path::PathBuf;

/// A library Ironweave can make use of, and what for.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// Its common name.
    pub name: &'static str,
    /// The soname it is opened by.
    pub soname: &'static str,
    /// What it brings, for people.
    pub brings: &'static str,
    /// The Debian package that holds it.
    pub package: &'static str,
    version: VersionOf,
    marker: &'static str,
}

/// How a library tells its version.
#[derive(Debug, Clone, Copy)]
enum VersionOf {
    /// `uint32_t f(void)`, major in the high half, minor in the low half (libfabric).
    HighLow(&'static str),
    /// `unsigned f(void)`, `0x00XXYYZZ` (hwloc's API version).
    Hex(&'static str),
    /// `const char *f(void)` (PMIx).
    Text(&'static str),
    /// The same in another library of the package, which need not be there (UCX: libuct does not tell, and its file is 0.0.0 in all).
    TextOf(&'static str, &'static str),
    /// No function tells it: the file name does.
    FileName,
}

/// The libraries asked for, in the order a person would read them.
pub const KNOWN: &[Known] = &[
    Known {
        name: "libfabric",
        soname: "libfabric.so.1",
        brings: "the ofi transports (EFA, Slingshot, Omni-Path, verbs)",
        package: "libfabric1",
        version: VersionOf::HighLow("fi_version"),
        marker: "fi_version",
    },
    Known {
        name: "libibverbs",
        soname: "libibverbs.so.1",
        brings: "the verbs transport (InfiniBand, RoCE, iWARP)",
        package: "libibverbs1",
        version: VersionOf::FileName,
        marker: "ibv_get_device_list",
    },
    Known {
        name: "libuct",
        soname: "libuct.so.0",
        brings: "the uct transports (UCX)",
        package: "libucx0",
        version: VersionOf::TextOf("libucp.so.0", "ucp_get_version_string"),
        marker: "uct_query_components",
    },
    Known {
        name: "libhwloc",
        soname: "libhwloc.so.15",
        brings: "ranks placed in the order of packages, caches and NUMA nodes",
        package: "libhwloc15",
        version: VersionOf::Hex("hwloc_get_api_version"),
        marker: "hwloc_get_api_version",
    },
    Known {
        name: "libpmix",
        soname: "libpmix.so.2",
        brings: "start-up under PMIx resource managers",
        package: "libpmix2",
        version: VersionOf::Text("PMIx_Get_version"),
        marker: "PMIx_Get_version",
    },
];

/// A library that opened.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its version as it tells itself, or as its file name does.
    pub version: String,
    /// The file.
    pub path: PathBuf,
}

/// Opens `known` and asks its version.
///
/// # Errors
/// The dynamic linker's reason, or the symbol that shows it is not the library expected.
pub fn probe(known: &Known) -> Result<Found, LibraryError> {
    let library = Library::open(known.soname)?;
    library.symbol(known.marker)?;
    let path = library.path_of(known.marker).unwrap_or_else(|| PathBuf::from(known.soname));
    let from_file = || {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        file.split_once(".so.").map_or(file.clone(), |(_, version)| version.to_owned())
    };
    let version = match known.version {
        VersionOf::HighLow(symbol) => {
            let version = call_number(&library, symbol)?;
            format!("{}.{}", version >> 16, version & 0xffff)
        }
        VersionOf::Hex(symbol) => {
            let version = call_number(&library, symbol)?;
            format!("{}.{}.{}", version >> 16, (version >> 8) & 0xff, version & 0xff)
        }
        VersionOf::Text(symbol) => call_text(&library, symbol)?.unwrap_or_else(from_file),
        VersionOf::TextOf(soname, symbol) => Library::open(soname)
            .and_then(|beside| call_text(&beside, symbol))
            .ok()
            .flatten()
            .unwrap_or_else(from_file),
        VersionOf::FileName => from_file(),
    };
    Ok(Found { version, path })
}

fn call_number(library: &Library, symbol: &str) -> Result<c_uint, LibraryError> {
    let address = library.symbol(symbol)?;
    // SAFETY: every `HighLow` and `Hex` row names a function documented as `unsigned f(void)`.
    let function: extern "C" fn() -> c_uint = unsafe { std::mem::transmute(address.as_ptr()) };
    Ok(function())
}

fn call_text(library: &Library, symbol: &str) -> Result<Option<String>, LibraryError> {
    let address = library.symbol(symbol)?;
    // SAFETY: every `Text` and `TextOf` row names a function documented as `const char *f(void)`.
    let function: extern "C" fn() -> *const c_char =
        unsafe { std::mem::transmute(address.as_ptr()) };
    let text = function();
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, and documented as a static terminated string.
    Ok(Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_library_is_found_with_a_version_or_named_in_the_reason() {
        for known in KNOWN {
            match probe(known) {
                Ok(found) => assert!(
                    found.version.starts_with(|c: char| c.is_ascii_digit())
                        || found.version.contains('.'),
                    "{}: version {:?}",
                    known.name,
                    found.version
                ),
                Err(error) => assert!(error.to_string().contains("lib"), "{error}"),
            }
        }
    }
}
