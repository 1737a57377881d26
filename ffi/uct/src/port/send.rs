//! Messages: short, and packed straight into the transport's memory; room, and whether all of it is out. The library keeps
//! nothing of the caller's when these calls return.

use super::{EpId, Interface, MESSAGE, Port, Way};
use crate::inbox::{Wish, has_room};
use crate::raw;
use crate::status::Status;
use std::ffi::{c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// How long a device takes at most to say that nobody answers. Not asked again before that: whatever is posted has Soft-RoCE (Linux
/// 6.12) wait anew before it repeats what is out, so that who asks too often never hears that a peer is dead.
const ANSWER: Duration = Duration::from_secs(5);

impl Port {
    /// Sends a message of 8 bytes and `rest`, which together are not longer than `max_short`.
    ///
    /// # Errors
    /// [`Status::NO_RESOURCE`]: no room now. Anything else: the endpoint is broken.
    #[inline]
    pub fn send_short(&self, id: EpId, first: u64, rest: &[u8]) -> Result<(), Status> {
        let ep = self.free(id)?.raw;
        // SAFETY: a live endpoint; the library copies the bytes before it returns.
        let sent = unsafe {
            ((*(*ep).iface).ops.am_short)(
                ep,
                MESSAGE,
                first,
                rest.as_ptr().cast(),
                rest.len() as c_uint,
            )
        };
        sent.check().map(drop)
    }

    /// Sends a message of `len` bytes, not more than `max_bcopy`, that `fill` writes into the transport's memory.
    ///
    /// # Errors
    /// As [`Port::send_short`]; the flag says whether `fill` was called all the same.
    #[inline]
    pub fn send_packed(
        &self,
        id: EpId,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), (Status, bool)> {
        struct Packing<F> {
            fill: Option<F>,
            len: usize,
            panic: Option<Box<dyn std::any::Any + Send>>,
        }
        unsafe extern "C" fn pack<F: FnOnce(&mut [u8])>(
            dest: *mut c_void,
            arg: *mut c_void,
        ) -> usize {
            // SAFETY: the argument is the packing below, during its call.
            let packing = unsafe { &mut *arg.cast::<Packing<F>>() };
            // SAFETY: the library lends `max_bcopy` bytes, of which `len` are at most all.
            let bytes = unsafe { std::slice::from_raw_parts_mut(dest.cast::<u8>(), packing.len) };
            if let Some(fill) = packing.fill.take()
                && let Err(panic) = catch_unwind(AssertUnwindSafe(|| fill(bytes)))
            {
                packing.panic = Some(panic);
            }
            packing.len
        }
        fn pack_of<F: FnOnce(&mut [u8])>(_: &Packing<F>) -> raw::Pack {
            pack::<F>
        }
        let endpoint = self.free(id).map_err(|status| (status, false))?;
        let ep = endpoint.raw;
        if len > self.ifaces[endpoint.iface].attributes.max_bcopy {
            return Err((Status::EXCEEDS_LIMIT, false));
        }
        let mut packing = Packing { fill: Some(fill), len, panic: None };
        let call = pack_of(&packing);
        // SAFETY: a live endpoint; the packing lives through the call, within which alone it is used.
        let sent = unsafe {
            ((*(*ep).iface).ops.am_bcopy)(ep, MESSAGE, call, (&raw mut packing).cast(), 0)
        };
        if let Some(panic) = packing.panic {
            resume_unwind(panic);
        }
        if sent < 0 {
            return Err((Status(sent.max(-128) as i8), packing.fill.is_none()));
        }
        Ok(())
    }

    /// Asks to be told by [`Event::Room`](crate::Event::Room) when an endpoint has room again; `false` when it has now, or cannot tell.
    pub fn wish(&self, id: EpId) -> bool {
        let Some(ep) = self.endpoint(id) else { return false };
        if !self.ifaces[ep.iface].attributes.pending {
            return false;
        }
        let inbox = &raw const *self.inbox;
        let mut wish = ep.wish.borrow_mut();
        let wish = wish.get_or_insert_with(|| {
            let request = raw::PendingReq { func: has_room, private: [0; 5] };
            Box::new(Wish { request, inbox, ep: ep.raw, waits: false })
        });
        if !wish.waits {
            // SAFETY: a live endpoint; the request stays in its box until it was called back, which happens while
            // polling, or purged.
            let added =
                unsafe { ((*(*ep.raw).iface).ops.pending_add)(ep.raw, &raw mut wish.request, 0) };
            wish.waits = added == Status::OK;
        }
        wish.waits
    }

    /// Whether everything that was sent is out of this process's hands.
    #[must_use]
    pub fn is_flushed(&self, id: EpId) -> bool {
        let Some(ep) = self.endpoint(id) else { return true };
        match self.ifaces[ep.iface].way {
            // A flush would ask the peer for an answer; there is room when all is in the socket.
            Way::Socket => return !self.wish(id),
            // It is in the receiver's memory.
            Way::Memory => return true,
            Way::Device if ep.waits() => return false,
            Way::Device => {}
        }
        // SAFETY: a live endpoint; without a completion nothing is kept.
        let flushed = unsafe { ((*(*ep.raw).iface).ops.ep_flush)(ep.raw, 0, null_mut()) };
        flushed == Status::OK || (flushed.is_error() && flushed != Status::NO_RESOURCE)
    }

    /// Asks whether the peer is there; [`Event::Broke`](crate::Event::Broke) tells when it is not. Devices are asked again only when
    /// nothing is out any more, or nothing can have been for long.
    ///
    /// # Errors
    /// It is known at once.
    pub fn check(&self, id: EpId) -> Result<(), Status> {
        // Beside a waiting wish too: a peer that died when it had answered all would not show otherwise.
        let Some(ep) = self.endpoint(id) else { return Ok(()) };
        let Interface { attributes, way, .. } = &self.ifaces[ep.iface];
        if !attributes.ep_check {
            return Ok(());
        }
        if let Way::Device = way {
            let asked = ep.asked.get().is_some_and(|asked| asked.elapsed() < ANSWER);
            if asked && !self.is_flushed(id) {
                return Ok(());
            }
            ep.asked.set(Some(Instant::now()));
        }
        // SAFETY: a live endpoint; without a completion nothing is kept.
        let checked = unsafe { ((*(*ep.raw).iface).ops.ep_check)(ep.raw, 0, null_mut()) };
        match checked {
            Status::NO_RESOURCE | Status::BUSY | Status::UNSUPPORTED | Status::NOT_IMPLEMENTED => {
                Ok(())
            }
            other => other.check().map(drop),
        }
    }
}
