//! Atomic operations on numbers of eight bytes in peers' memory, by way of a port's buffers.

use super::errno::Errno;
use super::port::{FiAddr, Port, Remote, Slot, Work};
use super::raw;
use std::ffi::c_void;

/// What becomes of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// It is added to.
    Add(u64),
    /// It is replaced by the second where it is the first.
    Swap(u64, u64),
}

/// Bytes of a number.
const NUMBER: usize = 8;

impl Port {
    /// Bytes of a buffer for an operation: what was there, and what is to be done.
    pub const CHANGE: usize = 3 * NUMBER;

    /// Whether the provider adds to numbers of eight bytes and compares and swaps them, as
    /// [`Info::want_atomics`](super::Info::want_atomics) asked it to.
    #[must_use]
    pub fn has_atomics(&self) -> bool {
        // SAFETY: the endpoint is open and has the table where it is not null.
        let Some(atomic) = (unsafe { self.atomics() }) else { return false };
        let ep = self.ep.as_ptr();
        let (mut added, mut swapped) = (0, 0);
        // SAFETY: the endpoint is open; one number is written by each.
        let answers = unsafe {
            (
                (atomic.readwritevalid)(ep, raw::UINT64, raw::SUM, &mut added),
                (atomic.compwritevalid)(ep, raw::UINT64, raw::CSWAP, &mut swapped),
            )
        };
        answers == (0, 0) && added > 0 && swapped > 0
    }

    /// # Safety
    /// Not used after the port's end.
    unsafe fn atomics(&self) -> Option<&raw::AtomicOps> {
        // SAFETY: the endpoint is open; its tables live as long.
        let table = unsafe { (*self.ep.as_ptr()).atomic.as_ref() };
        table.filter(|_| self.info.wants_atomics())
    }

    /// Changes a number in a peer's memory in one step. What was there is in the [`Event::Read`](super::Event) that follows, if no
    /// [`Event::Failed`](super::Event) does. The buffer has [`Port::CHANGE`] bytes or more.
    ///
    /// # Errors
    /// As [`Port::send`].
    pub fn change(
        &mut self,
        slot: Slot,
        change: Change,
        at: FiAddr,
        remote: Remote,
        mark: u64,
    ) -> Result<(), (Errno, Slot)> {
        let (operand, compare) = match change {
            Change::Add(number) => (number, 0),
            Change::Swap(compare, number) => (number, compare),
        };
        let bytes = self.bytes_mut(&slot);
        bytes[NUMBER..2 * NUMBER].copy_from_slice(&operand.to_ne_bytes());
        bytes[2 * NUMBER..Self::CHANGE].copy_from_slice(&compare.to_ne_bytes());
        let (result, desc, context) = self.prepare(&slot, NUMBER, Work::Read, mark);
        let part = |number: usize| result.cast::<u8>().wrapping_add(number * NUMBER);
        let (operand, compare): (*const c_void, *const c_void) = (part(1).cast(), part(2).cast());
        let ep = self.ep.as_ptr();
        // SAFETY: the endpoint is open.
        let Some(atomic) = (unsafe { self.atomics() }) else {
            return self.started(slot, -(Errno::OPNOTSUPP.0 as isize));
        };
        let Remote { address, key } = remote;
        // SAFETY: the endpoint is open. The buffer is the library's from here until its completion is read, or the endpoint is
        // closed: its stage is `Flying`. All three numbers lie in it.
        let returned = unsafe {
            match change {
                Change::Add(_) => (atomic.readwrite)(
                    ep,
                    operand,
                    1,
                    desc,
                    result,
                    desc,
                    at,
                    address,
                    key,
                    raw::UINT64,
                    raw::SUM,
                    context,
                ),
                Change::Swap(..) => (atomic.compwrite)(
                    ep,
                    operand,
                    1,
                    desc,
                    compare,
                    desc,
                    result,
                    desc,
                    at,
                    address,
                    key,
                    raw::UINT64,
                    raw::CSWAP,
                    context,
                ),
            }
        };
        self.started(slot, returned)
    }
}
