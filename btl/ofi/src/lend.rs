//! User memory in the provider's hands: the only place where this crate makes promises about memory.
#![allow(unsafe_code)] // Hands the address of lent memory to the library.

use crate::leads::{Led, Place};
use ironweave_btl::memory::{OwnedBuffer, RecvRegion, SendRegion};
use ironweave_ffi::ofi::{Errno, FiAddr, Lane, Port, Registration, Remote, Slot};
use std::ops::Range;

/// Lets peers read `region` until it is deregistered.
pub(crate) fn register(port: &mut Port, region: &SendRegion) -> Result<Registration, Errno> {
    // SAFETY: by the promise of `SendRegion`, the memory is valid and unwritten while the region exists, and whoever
    // registers it keeps it until after `deregister` (the contract of `Btl::register_source`).
    unsafe { port.register(region.as_ptr(), region.len()) }
}

/// Lets peers change `region` by atomic operations until it is deregistered.
pub(crate) fn register_target(port: &mut Port, region: &RecvRegion) -> Result<Registration, Errno> {
    // SAFETY: by the promise of `RecvRegion`, the memory is valid and its holder's alone while the region exists, and whoever registers
    // it keeps it, and leaves it to peers, until after `deregister` (the contract of `Btl::register_target`).
    unsafe { port.register_target(region.as_mut_ptr(), region.len()) }
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

/// Has the provider send a buffer of its own and, behind it, the first bytes of `region`. What comes after them in `region` is sent over the
/// same lane later ([`send_from`]).
pub(crate) fn send_over(
    port: &mut Port,
    lane: &Lane,
    own: (Slot, usize),
    (region, first): (&SendRegion, usize),
    to: FiAddr,
    mark: u64,
) -> Result<(), (Errno, Slot)> {
    let first = region.part(0..first);
    // SAFETY: by the promise of `SendRegion`, the memory is valid and unwritten while the region exists. `Leads` keeps its descriptor
    // until the event of the rest, which is sent later, or until `Reads::fence` closed the lane; when the port is dropped, lanes are
    // closed before regions go.
    unsafe { port.send_over(lane, own, (first.as_ptr(), first.len()), to, mark) }
}

/// Has the provider send a buffer of its own and, behind it, all of `region`.
pub(crate) fn send_lent(
    port: &mut Port,
    lane: &Lane,
    own: (Slot, usize),
    region: &SendRegion,
    to: FiAddr,
    mark: u64,
) -> Result<(), (Errno, Slot)> {
    // SAFETY: by the promise of `SendRegion`, the memory is valid and unwritten while the region exists. `Leads` keeps its descriptor
    // until the event of this send, or until `Reads::fence` closed the lane; when the port is dropped, lanes are closed before
    // regions go.
    unsafe { port.send_lent(lane, own, (region.as_ptr(), region.len()), to, mark) }
}

/// Has the provider send what of `region` comes after its first `from` bytes.
pub(crate) fn send_from(
    port: &mut Port,
    lane: &Lane,
    (region, from): (&SendRegion, usize),
    to: FiAddr,
    (tag, mark): (u64, u64),
) -> Result<(), Errno> {
    let rest = region.part(from..region.len());
    // SAFETY: by the promise of `SendRegion`, the memory is valid and unwritten while the region exists. `Leads` keeps its descriptor
    // until the event of this send, or until `Reads::fence` closed the lane; when the port is dropped, lanes are closed before
    // regions go.
    unsafe { port.send_from(lane, (rest.as_ptr(), rest.len()), to, tag, mark) }
}

/// Has the provider receive the rest of a frame where it belongs.
pub(crate) fn receive_into(
    port: &mut Port,
    lane: &Lane,
    led: &Led,
    (tag, mark): (u64, u64),
) -> Result<(), Errno> {
    let (place, rest) = led.place();
    let region = match place {
        // SAFETY: nobody looks at the buffer before the rest is there, and it is dropped with the life, whose lane is closed
        // before, or after the port.
        Place::Ours(buffer) => unsafe { buffer.recv_region() }.part(rest),
        Place::Owners(region) => region.part(rest),
    };
    // SAFETY: by the promise of `RecvRegion`, the memory is valid and its holder's alone while the region exists. The endpoint keeps it
    // until the event of this receive, or until `Reads::fence` closed the lane; when the port is dropped, lanes are closed
    // before regions go.
    unsafe { port.receive_into(lane, (region.as_mut_ptr(), region.len()), tag, mark) }
}
