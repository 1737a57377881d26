//! Registration of user memory with the provider: the only place where this crate makes a promise about memory.
#![allow(unsafe_code)] // Hands the address of lent memory to the library.

use ironweave_btl::memory::SendRegion;
use ironweave_ffi::ofi::{Errno, Port, Registration};

/// Lets peers read `region` until it is deregistered.
pub(crate) fn register(port: &mut Port, region: &SendRegion) -> Result<Registration, Errno> {
    // SAFETY: by the promise of `SendRegion`, the memory is valid and unwritten while the region exists, and whoever
    // registers it keeps it until after `deregister` (the contract of `Btl::register_source`).
    unsafe { port.register(region.as_ptr(), region.len()) }
}
