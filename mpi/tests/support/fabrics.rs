//! The transports over the libraries of fabrics, which may not be here.

#![allow(dead_code)] // each file uses its part

use std::path::Path;

/// libfabric's best provider of sockets.
pub const OFI: &[&str] = &["btl", "self,ofi", "btl_ofi_domain_include", "lo"];

/// libfabric's own tcp: with lanes, LEADs and pieces, which are not used where ofi_rxm is above it, as in Debian's 1.17.
pub const NATIVE_TCP: &[&str] = &[
    "btl",
    "self,ofi",
    "btl_ofi_domain_include",
    "lo",
    "btl_ofi_provider_include",
    "tcp",
    // A library without it gets no job instead of another provider.
    "btl_ofi_provider_exclude",
    "tcp;ofi_rxm",
];

/// A libfabric that has [`NATIVE_TCP`].
const NATIVE_LIBRARY: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../.venv/libfabric-1.22/lib/mpich/libfabric.so.1");

/// UCX's tcp, and its two kinds of shared memory.
pub const UCT: [&[&str]; 3] = [
    &["btl", "self,uct", "btl_uct_transports", "tcp", "btl_uct_devices", "lo"],
    &["btl", "self,uct", "btl_uct_transports", "posix"],
    &["btl", "self,uct", "btl_uct_transports", "sysv"],
];

/// The environment of jobs over [`NATIVE_TCP`]; says that they are skipped where the library is not here.
pub fn native_tcp() -> Option<[(&'static str, &'static str); 1]> {
    if !Path::new(NATIVE_LIBRARY).exists() {
        println!("SKIP jobs/native_tcp: libfabric 1.22 is not in .venv/libfabric-1.22 (ci/setup)");
        return None;
    }
    Some([("IRONWEAVE_OFI_LIB", NATIVE_LIBRARY)])
}

/// Whether libfabric is here; says that `test` is skipped when it is not.
pub fn has_libfabric(test: &str) -> bool {
    match ironweave_ffi::ofi::Ofi::open() {
        Ok(_) => true,
        Err(why) => {
            println!("SKIP jobs/ofi/{test}: {why}");
            false
        }
    }
}

/// Whether UCX is here; says that `test` is skipped when it is not.
pub fn has_uct(test: &str) -> bool {
    match ironweave_ffi_uct::Uct::open() {
        Ok(_) => true,
        Err(why) => {
            println!("SKIP jobs/uct/{test}: {why}");
            false
        }
    }
}
