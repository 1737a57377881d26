//! User memory in the provider's hands: the only place where this crate makes promises about memory.
#![allow(unsafe_code)] // Hands the address of lent memory to the library.

use ironweave_btl::memory::{OwnedBuffer, RecvRegion, SendRegion};
use ironweave_ffi::ofi::{Errno, FiAddr, Lane, Port, Registration, Remote};
use std::ops::Range;

/// Lets peers read `region` until it is deregistered.
pub(crate) fn register(port: &mut Port, region: &SendRegion) -> Result<Registration, Errno> {
    // SAFETY: by the promise of `SendRegion`, the memory is valid and unwritten while the region exists, and whoever
    // registers it keeps it until after `deregister` (the contract of `Btl::register_source`).
    unsafe { port.register(region.as_ptr(), region.len()) }
}

/// Lets peers read bytes that never go.
pub(crate) fn register_static(
    port: &mut Port,
    bytes: &'static [u8],
) -> Result<Registration, Errno> {
    // SAFETY: they are valid and unwritten for ever.
    unsafe { port.register(bytes.as_ptr(), bytes.len()) }
}

/// Has the provider read bytes of no meaning into all of `landing`, which nobody looks at.
pub(crate) fn probe(
    port: &mut Port,
    lane: &Lane,
    landing: &OwnedBuffer,
    from: FiAddr,
    remote: Remote,
    mark: u64,
) -> Result<(), Errno> {
    // SAFETY: nobody looks at the buffer or writes it, and it is dropped after the port (`Ofi`'s fields, in their order).
    unsafe {
        let region = landing.recv_region();
        port.read_into(lane, (region.as_mut_ptr(), region.len()), from, remote, mark)
    }
}

/// Has the provider read a peer's memory into `range` of `region`.
pub(crate) fn read_into(
    port: &mut Port,
    lane: &Lane,
    region: &RecvRegion,
    range: Range<usize>,
    from: FiAddr,
    remote: Remote,
    mark: u64,
) -> Result<(), Errno> {
    assert!(range.start <= range.end && range.end <= region.len(), "{range:?}");
    let start = region.as_mut_ptr().wrapping_add(range.start);
    // SAFETY: by the promise of `RecvRegion`, the memory is valid and its holder's alone while the region exists. The
    // transfer keeps it until the event of this read, or until `Reads::fence` closed the lane; when the port is dropped
    // (`Ofi::lose`, or with the whole rail), lanes are closed before regions go.
    unsafe { port.read_into(lane, (start, range.len()), from, remote, mark) }
}
