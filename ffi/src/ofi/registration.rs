//! Memory that the library is told of: ours for its own use, and the user's for peers to read.

use super::errno::Errno;
use super::open::close;
use super::port::{Port, Registration};
use super::raw;
use std::ptr::{NonNull, null_mut};

impl Port {
    /// Lets peers read memory.
    ///
    /// # Errors
    /// The provider's; [`Errno::OPNOTSUPP`] without [`Wanted::rma`](super::Wanted).
    ///
    /// # Safety
    /// The memory is valid for reads until [`Port::deregister`] or the end of the port.
    pub unsafe fn register(&mut self, start: *const u8, len: usize) -> Result<Registration, Errno> {
        if !self.info.has().rma {
            return Err(Errno::OPNOTSUPP);
        }
        // SAFETY: by contract.
        unsafe { self.open_to_peers(start, len, raw::REMOTE_READ) }
    }

    /// Lets peers change memory by atomic operations.
    ///
    /// # Errors
    /// The provider's; [`Errno::OPNOTSUPP`] without [`Port::has_atomics`].
    ///
    /// # Safety
    /// The memory is valid for reads and writes until [`Port::deregister`] or the end of the port, and nobody here looks at it or writes
    /// it meanwhile but by atomic operations.
    pub unsafe fn register_target(
        &mut self,
        start: *mut u8,
        len: usize,
    ) -> Result<Registration, Errno> {
        if !self.has_atomics() {
            return Err(Errno::OPNOTSUPP);
        }
        // SAFETY: by contract.
        unsafe { self.open_to_peers(start, len, raw::REMOTE_READ | raw::REMOTE_WRITE) }
    }

    /// # Safety
    /// As the callers', for the accesses named.
    unsafe fn open_to_peers(
        &mut self,
        start: *const u8,
        len: usize,
        access: u64,
    ) -> Result<Registration, Errno> {
        // SAFETY: by contract.
        let mr = unsafe { self.register_raw(self.ep, start, len, access) }?;
        // SAFETY: a registration that is open.
        let key = unsafe { (*mr.as_ptr()).key };
        self.registered.push(mr);
        let base = if self.info.mr_mode(raw::MR_VIRT_ADDR) { start as u64 } else { 0 };
        Ok(Registration { key, base })
    }

    /// Ends the registration of that key; after the call no new access is let in. Unknown keys are ignored.
    pub fn deregister(&mut self, key: u64) {
        // SAFETY: registrations in the list are open.
        let known = self.registered.iter().position(|mr| unsafe { (*mr.as_ptr()).key } == key);
        if let Some(at) = known {
            let mr = self.registered.swap_remove(at);
            // SAFETY: open, and out of the list.
            let _ = unsafe { close(mr.as_ptr().cast()) };
        }
    }

    /// # Safety
    /// As [`Port::register`], for the accesses named.
    pub(super) unsafe fn register_raw(
        &mut self,
        ep: NonNull<raw::Ep>,
        start: *const u8,
        len: usize,
        access: u64,
    ) -> Result<NonNull<raw::Mr>, Errno> {
        self.next_key += 1;
        let mut mr = null_mut();
        // SAFETY: the domain is open; the memory is valid by contract.
        let returned = unsafe {
            ((*(*self.domain.as_ptr()).mr).reg)(
                self.domain.as_ptr().cast(),
                start.cast(),
                len,
                access,
                0,
                self.next_key,
                0,
                &mut mr,
                null_mut(),
            )
        };
        Errno::check(returned as isize)?;
        let mr = NonNull::new(mr).ok_or(Errno::OTHER)?;
        let fid = mr.as_ptr().cast::<raw::Fid>();
        // SAFETY: the registration is open; binding and enabling is what these modes ask for.
        let enabled = unsafe {
            let ops = &*(*fid).ops;
            let bound = if self.info.mr_mode(raw::MR_ENDPOINT) {
                (ops.bind)(fid, ep.as_ptr().cast(), 0)
            } else {
                0
            };
            let late = self.info.mr_mode(raw::MR_ENDPOINT) || self.info.mr_mode(raw::MR_RMA_EVENT);
            match Errno::check(bound as isize) {
                Ok(_) if late => Errno::check((ops.control)(fid, raw::ENABLE, null_mut()) as isize),
                other => other,
            }
        };
        match enabled {
            Ok(_) => Ok(mr),
            Err(error) => {
                // SAFETY: open and unknown to anybody.
                let _ = unsafe { close(fid) };
                Err(error)
            }
        }
    }
}
