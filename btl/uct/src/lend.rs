//! User memory in the library's hands: the only place where this crate makes promises about memory.
//!
//! Every call that keeps hold of memory is made for a task of [`crate::tasks`], which keeps the memory's owner until the
//! library told the end, or until the endpoint was fenced, or the port is gone (`Uct::end`, `Uct::lose`, and the order of
//! `Uct`'s fields). Tests: `moves_registered_memory` and `gives_everything_back_when_invalidated` of the suite.
#![allow(unsafe_code)] // Hands the address of lent memory to the library.

use ironweave_btl::RmaKind;
use ironweave_btl::memory::{OwnedBuffer, RecvRegion, SendRegion};
use ironweave_ffi_uct::{Direction, EpId, IfaceId, Memory, Port, RemoteMemory, Status, UctError};
use std::ops::Range;

/// Registers memory that is read: by the device, and by peers who are told the key.
pub(crate) fn source(
    port: &mut Port,
    iface: IfaceId,
    region: &SendRegion,
) -> Result<Memory, UctError> {
    // SAFETY: by the promise of `SendRegion`, valid and unwritten while the region exists; its holder deregisters first.
    unsafe { port.register(iface, (region.as_ptr(), region.len()), false) }
}

/// Registers memory that is written: by the device, and by peers who are told the key.
pub(crate) fn target(
    port: &mut Port,
    iface: IfaceId,
    region: &RecvRegion,
) -> Result<Memory, UctError> {
    // SAFETY: by the promise of `RecvRegion`, valid and its holder's alone while the region exists; it deregisters first.
    unsafe { port.register(iface, (region.as_mut_ptr().cast_const(), region.len()), true) }
}

/// The memory at the other end of an operation.
pub(crate) struct There<'a> {
    pub address: u64,
    pub memory: Option<&'a RemoteMemory>,
}

/// Puts, or gets into, the bytes of `range`, which are inside the region. `Ok` as for [`Port::rma`].
pub(crate) fn transfer(
    port: &mut Port,
    ep: EpId,
    kind: &RmaKind,
    range: Range<usize>,
    memory: Option<&Memory>,
    there: &There<'_>,
    cookie: u64,
) -> Result<bool, Status> {
    let (direction, start, len) = match kind {
        RmaKind::Put(region) => (Direction::Put, region.as_ptr().cast_mut(), region.len()),
        RmaKind::Get(region) => (Direction::Get, region.as_mut_ptr(), region.len()),
        RmaKind::Atomic(..) => return Err(Status::UNSUPPORTED),
    };
    assert!(range.start <= range.end && range.end <= len, "{range:?} of {len} bytes");
    let local = (start.wrapping_add(range.start), range.len());
    // SAFETY: inside of a region, which the task keeps (see above); a put only reads it.
    unsafe { port.rma(ep, direction, local, memory, there.address, there.memory, cookie) }
}

/// Gets as many bytes as `cell` has, which nobody looks at until then.
pub(crate) fn get_word(
    port: &mut Port,
    ep: EpId,
    cell: &OwnedBuffer,
    address: u64,
    cookie: u64,
) -> Result<bool, Status> {
    // SAFETY: the task keeps the cell (see above), and reads it when the operation is over.
    unsafe {
        let region = cell.recv_region();
        let local = (region.as_mut_ptr(), region.len());
        port.rma(ep, Direction::Get, local, None, address, None, cookie)
    }
}

/// Sends a message out of `pieces`, registered as `memory`.
pub(crate) fn message(
    port: &mut Port,
    ep: EpId,
    lead: &[u8],
    pieces: &[SendRegion],
    memory: &[Memory],
    cookie: u64,
) -> Result<bool, Status> {
    let pieces: Vec<_> = pieces
        .iter()
        .zip(memory)
        .map(|(region, memory)| (region.as_ptr(), region.len(), Some(memory)))
        .collect();
    // SAFETY: by the promise of `SendRegion`; the task keeps the regions (see above).
    unsafe { port.send_pieces(ep, lead, &pieces, cookie) }
}
