//! Tag-matching transports (MTLs): fabrics that match messages themselves.
//!
//! There is none yet: every message goes through OB1 over byte transports. `ironweave info` says so by listing
//! [`COMPONENTS`], which is empty. The first MTL (OFI) comes with the fabric transports; its contract is written then,
//! from the list of what is missing in Open MPI's (seed 000, "OFI fault tolerance with the OFI MTL").

/// The names of the MTLs that exist.
pub const COMPONENTS: &[&str] = &[];
