//! The transports over the libraries of fabrics, which may not be here.

/// libfabric's best provider of sockets.
pub const OFI: &[&str] = &["btl", "self,ofi", "btl_ofi_domain_include", "lo"];

/// UCX's tcp, and its shared memory.
pub const UCT: [&[&str]; 2] = [
    &["btl", "self,uct", "btl_uct_transports", "tcp", "btl_uct_devices", "lo"],
    &["btl", "self,uct", "btl_uct_transports", "posix"],
];

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
