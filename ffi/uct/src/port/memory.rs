//! What reaches memory of the caller's: messages out of it, puts, gets, and what they need (registrations, keys).
//!
//! The library has its hands on such memory from the call to [`Event::Done`](crate::Event::Done)(crate::Event::Done). [`Port::fence`] is how they
//! are taken off it before that: transports of devices cancel (the queue pair goes to ERR, and every request of it comes
//! back), the kernel's copies (cma) come to their end, which no peer can delay.

use super::{EpId, IfaceId, Interface, MESSAGE, Port, padded};
use crate::inbox::{Note, Operation};
use crate::library::{UctError, call};
use crate::raw::{self, Handle};
use crate::status::Status;
use std::ffi::c_uint;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// An operation that the library has not told the end of.
pub(super) struct UnderWay {
    ep: EpId,
    operation: Box<Operation>,
}

/// Registered memory. Given back to [`Port::deregister`]; the port's end ends it too.
#[derive(Debug)]
pub struct Memory {
    iface: usize,
    handle: Handle,
}

// SAFETY: a handle that only calls of its port look into, by whichever thread has that.
unsafe impl Send for Memory {}

/// Another process's registered memory.
pub struct RemoteMemory {
    component: Handle,
    bundle: raw::RkeyBundle,
    release: unsafe extern "C" fn(Handle, *const raw::RkeyBundle) -> Status,
}

// SAFETY: as for `Memory`; the component it is released to belongs to the library, and to no thread.
unsafe impl Send for RemoteMemory {}

impl Drop for RemoteMemory {
    fn drop(&mut self) {
        if !self.component.is_null() {
            // SAFETY: unpacked by that component, and not used any more.
            unsafe { (self.release)(self.component, &self.bundle) };
        }
    }
}

/// Which way a put or get goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Local memory is written to the peer's.
    Put,
    /// The peer's is read into local memory.
    Get,
}

impl Port {
    /// Sends a message of `header`, not longer than `zcopy_header`, and `pieces` of memory, at most `zcopy_pieces`.
    /// `Ok(true)`: it is over; `Ok(false)`: [`Event::Done`](crate::Event::Done) will tell.
    ///
    /// # Errors
    /// As [`Port::send_short`].
    ///
    /// # Safety
    /// The pieces (address, length, registration where `need_memory`) stay valid and unwritten until the operation is over,
    /// or the port is gone.
    pub unsafe fn send_pieces(
        &mut self,
        id: EpId,
        header: &[u8],
        pieces: &[(*const u8, usize, Option<&Memory>)],
        cookie: u64,
    ) -> Result<bool, Status> {
        let ep = self.free(id)?.raw;
        let iov = |&(at, length, memory): &(*const u8, usize, Option<&Memory>)| raw::Iov {
            buffer: at.cast_mut().cast(),
            length,
            memh: memory.map_or(null_mut(), |memory| memory.handle),
            stride: 0,
            count: 1,
        };
        let iovs: Vec<raw::Iov> = pieces.iter().map(iov).collect();
        let completion = self.operation(id, cookie);
        // SAFETY: a live endpoint; the library copies header and vector; the memory by contract.
        let sent = unsafe {
            ((*(*ep).iface).ops.am_zcopy)(
                ep,
                MESSAGE,
                header.as_ptr().cast(),
                header.len() as c_uint,
                iovs.as_ptr(),
                iovs.len(),
                0,
                completion,
            )
        };
        self.begun(cookie, sent)
    }

    /// Puts to or gets from `remote` memory at `address`. `Ok` as for [`Port::send_pieces`].
    ///
    /// # Errors
    /// As [`Port::send_short`].
    ///
    /// # Safety
    /// `len` bytes at `local`, registered where `need_memory`, stay valid for reads (put) or writes (get) until the
    /// operation is over, or the port is gone.
    #[allow(clippy::too_many_arguments)] // the two ends of an operation
    pub unsafe fn rma(
        &mut self,
        id: EpId,
        direction: Direction,
        (local, len): (*mut u8, usize),
        memory: Option<&Memory>,
        address: u64,
        remote: Option<&RemoteMemory>,
        cookie: u64,
    ) -> Result<bool, Status> {
        let ep = self.free(id)?.raw;
        let iov = raw::Iov {
            buffer: local.cast(),
            length: len,
            memh: memory.map_or(null_mut(), |memory| memory.handle),
            stride: 0,
            count: 1,
        };
        let rkey = remote.map_or(usize::MAX, |remote| remote.bundle.rkey);
        let completion = self.operation(id, cookie);
        // SAFETY: a live endpoint; the library copies the vector; the memory by contract.
        let begun = unsafe {
            let ops = &(*(*ep).iface).ops;
            let call = match direction {
                Direction::Put => ops.put_zcopy,
                Direction::Get => ops.get_zcopy,
            };
            call(ep, &iov, 1, address, rkey, completion)
        };
        self.begun(cookie, begun)
    }

    fn operation(&mut self, ep: EpId, cookie: u64) -> *mut raw::Completion {
        let inbox = &raw const *self.inbox;
        let socket = self.endpoint(ep).is_some_and(|ep| self.is_socket(ep));
        let operation = match socket {
            true => Operation::uncalled(inbox, cookie),
            false => Operation::called(inbox, cookie),
        };
        let completion = operation.completion();
        self.operations.insert(cookie, UnderWay { ep, operation });
        completion
    }

    fn begun(&mut self, cookie: u64, status: Status) -> Result<bool, Status> {
        if status != Status::IN_PROGRESS {
            self.operations.remove(&cookie);
        } else if self.operations.get(&cookie).is_some_and(|it| it.operation.is_uncalled()) {
            self.unsaid += 1;
        }
        status.check().map(|status| status == Status::OK)
    }

    /// Takes note of what the library is done with and would not say.
    #[cold]
    pub(super) fn hear_unsaid(&mut self) {
        let mut notes = self.inbox.notes.borrow_mut();
        let operations = self.operations.values().map(|under_way| &under_way.operation);
        for (cookie, status) in operations.filter_map(|it| Some((it.cookie, it.take_unsaid()?))) {
            self.unsaid -= 1;
            notes.push(Note::Done(cookie, status));
        }
    }

    /// Whether the library has nothing under way over an endpoint that reaches memory of the caller's.
    #[must_use]
    pub fn is_quiet(&self, id: EpId) -> bool {
        let busy = |under: &UnderWay| under.ep == id && !under.operation.is_over();
        !self.operations.values().any(busy)
    }

    /// Takes the library's hands off all memory that operations over an endpoint reach: cancels them where the transport can,
    /// and waits until each has come back, at most for `patience`. With operations under way the endpoint is of no use
    /// after. `false`: not all came back; then only the end of the port ends what they reach.
    ///
    /// Messages that arrive meanwhile are handed on by the next [`Port::poll`].
    pub fn fence(&mut self, id: EpId, patience: Duration) -> bool {
        if self.is_quiet(id) {
            return true;
        }
        let Some(ep) = self.endpoint(id).map(|ep| ep.raw) else { return false };
        if let Some(ep) = self.endpoint(id) {
            // SAFETY: a live endpoint.
            unsafe { ep.purge() };
        }
        let until = Instant::now() + patience;
        let mut cancelled = false;
        loop {
            // SAFETY: a live endpoint and its interface; without a completion nothing is kept.
            unsafe {
                let ops = &(*(*ep).iface).ops;
                if !cancelled {
                    let flushed = (ops.ep_flush)(ep, raw::FLUSH_CANCEL, null_mut());
                    cancelled = flushed != Status::NO_RESOURCE;
                }
                (ops.iface_progress)((*ep).iface);
            }
            if self.is_quiet(id) {
                return true;
            }
            if Instant::now() > until {
                return false;
            }
        }
    }

    /// Operations that are not over.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.operations.len()
    }

    /// Registers memory for operations of an interface, here and by peers.
    ///
    /// # Errors
    /// The library's words.
    ///
    /// # Safety
    /// `len` bytes at `at` stay valid until they are deregistered or the port is gone; valid for writes when `written`.
    pub unsafe fn register(
        &mut self,
        iface: IfaceId,
        (at, len): (*const u8, usize),
        written: bool,
    ) -> Result<Memory, UctError> {
        use raw::access;
        let flags = match written {
            true => access::LOCAL_READ | access::LOCAL_WRITE | access::REMOTE_PUT,
            false => access::LOCAL_READ | access::REMOTE_GET,
        };
        let mut handle = null_mut();
        let md = self.ifaces[iface.0].md;
        // SAFETY: the memory by contract.
        let done = unsafe {
            (self.uct.calls.uct_md_mem_reg)(md, at.cast_mut().cast(), len, flags, &mut handle)
        };
        call("uct_md_mem_reg", done)?;
        self.memory.push((iface.0, handle));
        Ok(Memory { iface: iface.0, handle })
    }

    /// Ends a registration.
    pub fn deregister(&mut self, memory: Memory) {
        let Some(at) = self.memory.iter().position(|known| *known == (memory.iface, memory.handle))
        else {
            return;
        };
        self.memory.swap_remove(at);
        // SAFETY: registered with that domain, and not deregistered yet.
        unsafe { (self.uct.calls.uct_md_mem_dereg)(self.ifaces[memory.iface].md, memory.handle) };
    }

    /// What a peer needs to reach registered memory.
    ///
    /// # Errors
    /// The library's words.
    pub fn pack_key(&self, memory: &Memory) -> Result<Vec<u8>, UctError> {
        let iface = &self.ifaces[memory.iface];
        let mut key = vec![0; iface.attributes.rkey_len];
        // SAFETY: as long as the domain said.
        let packed = unsafe {
            (self.uct.calls.uct_md_mkey_pack)(iface.md, memory.handle, key.as_mut_ptr().cast())
        };
        call("uct_md_mkey_pack", packed)?;
        Ok(key)
    }

    /// Reads a peer's key.
    ///
    /// # Errors
    /// The library's words; also for a key of another length.
    pub fn unpack_key(&self, iface: IfaceId, key: &[u8]) -> Result<RemoteMemory, UctError> {
        let Interface { component, attributes, .. } = &self.ifaces[iface.0];
        let mut bundle = raw::RkeyBundle { rkey: 0, handle: null_mut(), kind: null_mut() };
        if key.len() != attributes.rkey_len {
            return Err(UctError::Call { call: "uct_rkey_unpack", status: Status::INVALID_PARAM });
        }
        let key = padded(key);
        // SAFETY: a key of the domain's length, in a longer buffer.
        let unpacked = unsafe {
            (self.uct.calls.uct_rkey_unpack)(*component, key.as_ptr().cast(), &mut bundle)
        };
        call("uct_rkey_unpack", unpacked)?;
        Ok(RemoteMemory { component: *component, bundle, release: self.uct.calls.uct_rkey_release })
    }
}
