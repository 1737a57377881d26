//! Memory that a device may reach.

use crate::device::Opened;
use crate::{Device, VerbsError, raw};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

/// What a registration allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Our own requests read it.
    LocalRead,
    /// Our own requests write it.
    LocalWrite,
    /// The other side reads it.
    RemoteRead,
    /// The other side writes it.
    RemoteWrite,
    /// The other side writes it, and does atomic operations there; devices without them (`Limits::atomics`) refuse.
    RemoteChange,
    /// The other side reads and writes it.
    RemoteBoth,
    /// The other side reads and writes it, with atomic operations; devices without them (`Limits::atomics`) refuse.
    RemoteAtomic,
}

impl Access {
    fn flags(self) -> i32 {
        match self {
            Access::LocalRead => 0,
            Access::LocalWrite => raw::ACCESS_LOCAL_WRITE,
            Access::RemoteRead => raw::ACCESS_REMOTE_READ,
            Access::RemoteWrite => raw::ACCESS_REMOTE_WRITE | raw::ACCESS_LOCAL_WRITE,
            Access::RemoteChange => Access::RemoteWrite.flags() | raw::ACCESS_REMOTE_ATOMIC,
            Access::RemoteBoth => {
                raw::ACCESS_REMOTE_READ | raw::ACCESS_REMOTE_WRITE | raw::ACCESS_LOCAL_WRITE
            }
            Access::RemoteAtomic => Access::RemoteBoth.flags() | raw::ACCESS_REMOTE_ATOMIC,
        }
    }
}

/// How a device comes to the pages of what is registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Paging {
    /// It holds them, whatever the program does with its addresses meanwhile; they count as locked memory.
    Pinned,
    /// It asks the kernel for them when it reaches them, and the kernel tells it when they go away: what it reaches is
    /// always what the addresses mean at that moment, and an error where they mean nothing. For devices with
    /// `Limits::on_demand`.
    OnDemand,
}

/// Registered memory; the registration ends when this is dropped, the memory is somebody else's.
pub struct Registration {
    mr: *mut raw::Mr,
    paging: Paging,
    device: Arc<Opened>,
}

// SAFETY: registrations may be used and ended from any thread.
unsafe impl Send for Registration {}
// SAFETY: only its numbers are read through a shared one.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers `len` bytes at `start` (at least one byte).
    ///
    /// # Errors
    /// `ENOMEM` when the limit of locked memory or of the device is reached; `EFAULT` for no memory; `EOPNOTSUPP` from devices
    /// that cannot page on demand.
    ///
    /// # Safety
    /// Pinned: the memory stays mapped, and is what the registration allows devices to touch, until this is dropped. On demand:
    /// so is whatever is mapped there while a request or a peer with rights can reach it.
    pub unsafe fn new(
        device: &Device,
        start: *mut u8,
        len: usize,
        access: Access,
        paging: Paging,
    ) -> Result<Registration, VerbsError> {
        let on_demand = if paging == Paging::OnDemand { raw::ACCESS_ON_DEMAND } else { 0 };
        let flags = access.flags() | on_demand;
        let opened = Arc::clone(&device.opened);
        // SAFETY: an open protection domain; the kernel checks the range; the rest by contract.
        let mr = unsafe { (opened.symbols.reg_mr)(opened.pd, start.cast(), len, flags) };
        if mr.is_null() {
            return Err(VerbsError::last("ibv_reg_mr"));
        }
        Ok(Registration { mr, paging, device: opened })
    }

    /// How it was registered.
    #[must_use]
    pub fn paging(&self) -> Paging {
        self.paging
    }

    /// The key for requests of this side.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        // SAFETY: a registration that exists.
        unsafe { (*self.mr).lkey }
    }

    /// The key for the other side.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        // SAFETY: a registration that exists.
        unsafe { (*self.mr).rkey }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: ended once; queue pairs that could still use it get errors from the device.
        unsafe { (self.device.symbols.dereg_mr)(self.mr) };
    }
}

/// Page-aligned zeroed memory of our own, registered as a whole. Devices write it, so it is never lent as a slice
/// that outlives a call; the caller sees to it that no request is out for a part that it reads or writes.
pub struct Slab {
    // Before the memory: it goes first.
    registration: Registration,
    memory: Allocation,
}

struct Allocation {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its allocation.
unsafe impl Send for Allocation {}
// SAFETY: it has no way to the memory but through the slab.
unsafe impl Sync for Allocation {}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated in `Slab::new` with this layout, freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

impl Slab {
    /// `len` bytes, at least one.
    ///
    /// # Errors
    /// As [`Registration::new`]; `ENOMEM` when there is no memory.
    pub fn new(device: &Device, len: usize, access: Access) -> Result<Slab, VerbsError> {
        let no_memory = VerbsError::Call { call: "allocating", errno: libc::ENOMEM };
        let layout = Layout::from_size_align(len.max(1), 4096).map_err(|_| no_memory.clone())?;
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(no_memory)?;
        let memory = Allocation { start, layout };
        // SAFETY: the allocation lives until after the registration: field order.
        let registration = unsafe {
            Registration::new(device, start.as_ptr(), layout.size(), access, Paging::Pinned)?
        };
        Ok(Slab { registration, memory })
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.memory.layout.size()
    }

    /// Never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Its registration.
    #[must_use]
    pub fn registration(&self) -> &Registration {
        &self.registration
    }

    /// The address of byte `offset`, for requests.
    #[must_use]
    pub fn address(&self, offset: usize) -> u64 {
        assert!(offset <= self.len(), "byte {offset} of a slab of {}", self.len());
        self.memory.start.as_ptr() as u64 + offset as u64
    }

    /// `len` bytes from `offset` on.
    ///
    /// # Safety
    /// No device writes them while the slice lives.
    #[must_use]
    pub unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset <= self.len() && len <= self.len() - offset, "outside of the slab");
        // SAFETY: inside of the allocation by the assertion, unwritten by contract.
        unsafe { std::slice::from_raw_parts(self.memory.start.as_ptr().add(offset), len) }
    }

    /// As [`bytes`](Slab::bytes), to write.
    ///
    /// # Safety
    /// No device reads or writes them while the slice lives, and there is no other slice of them.
    #[must_use]
    #[allow(clippy::mut_from_ref)] // parts of one slab are used independently, by contract
    pub unsafe fn bytes_mut(&self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset <= self.len() && len <= self.len() - offset, "outside of the slab");
        // SAFETY: inside of the allocation by the assertion, exclusive by contract.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start.as_ptr().add(offset), len) }
    }

    /// The 32-bit word at `offset` (a multiple of 4), which a device may write at any moment.
    #[must_use]
    pub fn word(&self, offset: usize) -> u32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len(), "no word at {offset}");
        // SAFETY: aligned and inside by the assertion; volatile because a device writes it.
        unsafe { self.memory.start.as_ptr().add(offset).cast::<u32>().read_volatile() }
    }

    /// As [`word`](Slab::word), the 64-bit one at `offset` (a multiple of 8).
    #[inline]
    #[must_use]
    pub fn long(&self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len(), "no word at {offset}");
        // SAFETY: as for `word`.
        unsafe { self.memory.start.as_ptr().add(offset).cast::<u64>().read_volatile() }
    }
}
