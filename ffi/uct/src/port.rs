//! A worker with its interfaces and endpoints: everything needed to exchange messages over one transport.
//!
//! It owns every handle, hands out none, and closes them in the one order the library allows: endpoints, interfaces,
//! memory domains, worker. An [`EpId`] of an endpoint that was closed finds nothing.
//!
//! Long, because it is one owner: splitting it would split who closes what.
//!
//! The library runs no thread for it (its asynchronous work is done by [`Port::tend`]), and calls back only within calls
//! of the port.

use crate::inbox::{Event, Inbox, Note, Operation, Wish, arrived, broke, done, has_room, purged};
use crate::library::{DeviceKind, Resource, Uct, UctError, c_string, call};
use crate::raw::{self, Handle, flag, md_flag};
use crate::status::Status;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null_mut;

/// The active message that carries all of ours.
const MESSAGE: u8 = 9;
/// What an interface may ask for as a packed remote key, in bytes.
pub const RKEY_MAX: usize = 64;

/// Which of a port's interfaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IfaceId(usize);

/// Which of a port's endpoints, ever.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EpId {
    index: u32,
    generation: u32,
}

/// Where an interface is reached.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Name {
    /// The device's address.
    pub device: Vec<u8>,
    /// The interface's; empty when only endpoints have addresses.
    pub iface: Vec<u8>,
}

/// What an interface can do.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// Longest message, in bytes: short, packed, out of user memory.
    pub max_short: usize,
    /// See `max_short`.
    pub max_bcopy: usize,
    /// See `max_short`; 0 where there is none.
    pub max_zcopy: usize,
    /// Longest part of such a message that is not user memory, and how many pieces of it there may be.
    pub zcopy_header: usize,
    /// See `zcopy_header`.
    pub zcopy_pieces: usize,
    /// Longest put and get out of and into user memory, in bytes; 0 where there is none.
    pub max_put: usize,
    /// See `max_put`.
    pub max_get: usize,
    /// Shortest get, in bytes.
    pub min_get: usize,
    /// Shortest put, in bytes.
    pub min_put: usize,
    /// Length of the two parts of its name, and of an endpoint's address.
    pub device_addr_len: usize,
    /// See `device_addr_len`.
    pub iface_addr_len: usize,
    /// See `device_addr_len`.
    pub ep_addr_len: usize,
    /// Endpoints are connected to an interface's name.
    pub to_iface: bool,
    /// Endpoints are connected to an endpoint's address.
    pub to_ep: bool,
    /// The error handler is called when a peer fails.
    pub peer_failure: bool,
    /// Endpoints can be asked whether their peer is there.
    pub ep_check: bool,
    /// Endpoints can tell when they have room.
    pub pending: bool,
    /// Messages may come twice.
    pub duplicates: bool,
    /// One-way, in nanoseconds.
    pub latency_ns: u32,
    /// In megabytes a second.
    pub bandwidth_mbs: u32,
    /// Local memory must be registered for puts, gets and messages out of it.
    pub need_memory: bool,
    /// The key of remote memory is needed.
    pub need_rkey: bool,
    /// Length of a packed remote key, in bytes.
    pub rkey_len: usize,
}

struct Interface {
    raw: *mut raw::Iface,
    component: Handle,
    md: Handle,
    attributes: Attributes,
    way: Way,
}

/// Where messages are when the library has taken them.
#[derive(Clone, Copy)]
enum Way {
    Socket,
    Memory,
    Device,
}

struct Endpoint {
    raw: *mut raw::Ep,
    iface: usize,
    mark: u64,
    wish: RefCell<Option<Box<Wish>>>,
}

/// Registered memory. Given back to [`Port::deregister`]; the port's end ends it too.
#[derive(Debug)]
pub struct Memory {
    iface: usize,
    handle: Handle,
}

/// Another process's registered memory.
pub struct RemoteMemory {
    component: Handle,
    bundle: raw::RkeyBundle,
    release: unsafe extern "C" fn(Handle, *const raw::RkeyBundle) -> Status,
}

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

/// See the module.
pub struct Port {
    uct: &'static Uct,
    context: Handle,
    worker: Handle,
    ifaces: Vec<Interface>,
    endpoints: Vec<(u32, Option<Endpoint>)>,
    free: Vec<u32>,
    by_handle: HashMap<*mut raw::Ep, u32>,
    operations: HashMap<u64, Box<Operation>>,
    memory: Vec<(usize, Handle)>,
    inbox: Box<Inbox>,
}

// SAFETY: the library is used in its single-threaded mode: by one thread at a time, whichever it is. Nothing of a port is
// shared with another, and its callbacks come only within its calls.
unsafe impl Send for Port {}

impl Port {
    /// A worker without interfaces.
    ///
    /// # Errors
    /// The library's words.
    pub fn open(uct: &'static Uct) -> Result<Port, UctError> {
        let calls = &uct.calls;
        let (mut context, mut worker) = (null_mut(), null_mut());
        // SAFETY: results are written; on failure the context is destroyed.
        unsafe {
            let made = (calls.ucs_async_context_create)(raw::ASYNC_POLL, &mut context);
            call("ucs_async_context_create", made)?;
            let made = (calls.uct_worker_create)(context, raw::THREAD_SINGLE, &mut worker);
            if made.is_error() {
                (calls.ucs_async_context_destroy)(context);
                call("uct_worker_create", made)?;
            }
        }
        Ok(Port {
            uct,
            context,
            worker,
            ifaces: Vec::new(),
            endpoints: Vec::new(),
            free: Vec::new(),
            by_handle: HashMap::new(),
            operations: HashMap::new(),
            memory: Vec::new(),
            inbox: Box::default(),
        })
    }

    /// Opens an interface on a resource. `settings` are names and values of the transport's own configuration (`SEG_SIZE`,
    /// without the `UCX_POSIX_` before it); those that it does not know are left out.
    ///
    /// # Errors
    /// The library's words.
    pub fn add(
        &mut self,
        resource: &Resource,
        settings: &[(&str, String)],
    ) -> Result<IfaceId, UctError> {
        let (component, md) = self.uct.open_domain(resource)?;
        match self.open_iface(resource, settings, md) {
            Ok((raw, attributes)) => {
                let way = match resource.kind {
                    DeviceKind::SharedMemory | DeviceKind::Loopback => Way::Memory,
                    _ if resource.transport == "tcp" => Way::Socket,
                    _ => Way::Device,
                };
                self.ifaces.push(Interface { raw, component, md, attributes, way });
                Ok(IfaceId(self.ifaces.len() - 1))
            }
            Err(error) => {
                // SAFETY: opened above; no interface of it is left.
                unsafe { (self.uct.calls.uct_md_close)(md) };
                Err(error)
            }
        }
    }

    fn open_iface(
        &self,
        resource: &Resource,
        settings: &[(&str, String)],
        md: Handle,
    ) -> Result<(*mut raw::Iface, Attributes), UctError> {
        let calls = &self.uct.calls;
        let (transport, device) = (c_string(&resource.transport), c_string(&resource.device));
        let arg = (&raw const *self.inbox).cast_mut().cast::<c_void>();
        use raw::iface_field as field;
        let params = raw::IfaceParams {
            field_mask: field::CPU_MASK
                | field::OPEN_MODE
                | field::DEVICE
                | field::STATS_ROOT
                | field::RX_HEADROOM
                | field::ERR_HANDLER
                | field::ERR_HANDLER_ARG
                | field::ERR_HANDLER_FLAGS
                | field::FEATURES,
            cpu_mask: [0; 16],
            open_mode: raw::OPEN_MODE_DEVICE,
            transport: transport.as_ptr(),
            device: device.as_ptr(),
            rest_of_mode: [0; 3],
            stats_root: null_mut(),
            rx_headroom: 0,
            err_handler_arg: arg,
            err_handler: Some(broke),
            err_handler_flags: 0,
            tag: [null_mut(); 4],
            async_event: [null_mut(); 2],
            keepalive_interval: 0,
            am_alignment: 1,
            am_align_offset: 0,
            features: raw::FEATURES,
        };
        let (mut config, mut iface) = (null_mut(), null_mut());
        // SAFETY: names and parameters live through the calls, which copy them; the inbox outlives the interface.
        unsafe {
            let none = std::ptr::null();
            let read =
                (calls.uct_md_iface_config_read)(md, transport.as_ptr(), none, none, &mut config);
            call("uct_md_iface_config_read", read)?;
            for (name, value) in settings {
                let (name, value) = (c_string(name), c_string(value));
                (calls.uct_config_modify)(config, name.as_ptr(), value.as_ptr());
            }
            let opened = (calls.uct_iface_open)(md, self.worker, &params, config, &mut iface);
            (calls.uct_config_release)(config);
            call("uct_iface_open", opened)?;
        }
        match self.set_up(iface, md) {
            Ok(attributes) => Ok((iface, attributes)),
            Err(error) => {
                // SAFETY: opened above, without endpoints.
                unsafe { (calls.uct_iface_close)(iface) };
                Err(error)
            }
        }
    }

    fn set_up(&self, iface: *mut raw::Iface, md: Handle) -> Result<Attributes, UctError> {
        let calls = &self.uct.calls;
        let arg = (&raw const *self.inbox).cast_mut().cast::<c_void>();
        // SAFETY: all-zero bytes are a value of both structs, which are longer than what the library writes.
        let (mut attr, mut md_attr): (raw::IfaceAttr, raw::MdAttr) = unsafe { std::mem::zeroed() };
        // SAFETY: as above; the handler's argument outlives the interface, whose calls are the header's inline functions.
        unsafe {
            call("uct_iface_query", (calls.uct_iface_query)(iface, &mut attr))?;
            call("uct_md_query", (calls.uct_md_query)(md, &mut md_attr))?;
            if attr.flags & (flag::AM_SHORT | flag::AM_BCOPY | flag::AM_ZCOPY) != 0 {
                let set = (calls.uct_iface_set_am_handler)(iface, MESSAGE, arrived, arg, 0);
                call("uct_iface_set_am_handler", set)?;
            }
            ((*iface).ops.progress_enable)(iface, raw::PROGRESS_ALL);
        }
        Ok(attributes(&attr, &md_attr))
    }

    /// What an interface can do.
    #[must_use]
    pub fn attributes(&self, iface: IfaceId) -> &Attributes {
        &self.ifaces[iface.0].attributes
    }

    /// Where an interface is reached.
    ///
    /// # Errors
    /// The library's words.
    pub fn name(&self, iface: IfaceId) -> Result<Name, UctError> {
        let Interface { raw, attributes, .. } = &self.ifaces[iface.0];
        let mut name = Name {
            device: vec![0; attributes.device_addr_len],
            iface: vec![0; if attributes.to_iface { attributes.iface_addr_len } else { 0 }],
        };
        // SAFETY: the buffers are as long as the interface said that the addresses are.
        unsafe {
            if !name.device.is_empty() {
                let got =
                    (self.uct.calls.uct_iface_get_device_address)(*raw, name.device.as_mut_ptr());
                call("uct_iface_get_device_address", got)?;
            }
            if !name.iface.is_empty() {
                let got = (self.uct.calls.uct_iface_get_address)(*raw, name.iface.as_mut_ptr());
                call("uct_iface_get_address", got)?;
            }
        }
        Ok(name)
    }

    /// Whether a name has the lengths of this interface's own, and the library says that it can be reached.
    #[must_use]
    pub fn reaches(&self, iface: IfaceId, name: &Name) -> bool {
        let Interface { raw, attributes, .. } = &self.ifaces[iface.0];
        let iface_len = if attributes.to_iface { attributes.iface_addr_len } else { 0 };
        if name.device.len() != attributes.device_addr_len || name.iface.len() != iface_len {
            return false;
        }
        let (device, iface) = (padded(&name.device), padded(&name.iface));
        let iface = if name.iface.is_empty() { std::ptr::null() } else { iface.as_ptr() };
        // SAFETY: addresses of the lengths that the interface has, in longer buffers.
        unsafe { (self.uct.calls.uct_iface_is_reachable)(*raw, device.as_ptr(), iface) != 0 }
    }

    /// An endpoint to the interface of that name, which [`Port::reaches`].
    ///
    /// # Errors
    /// The library's words.
    pub fn connect(&mut self, iface: IfaceId, name: &Name, mark: u64) -> Result<EpId, UctError> {
        let (device, address) = (padded(&name.device), padded(&name.iface));
        use raw::ep_field as field;
        let params = raw::EpParams {
            field_mask: field::IFACE | field::DEV_ADDR | field::IFACE_ADDR,
            iface: self.ifaces[iface.0].raw,
            user_data: null_mut(),
            dev_addr: device.as_ptr(),
            iface_addr: address.as_ptr(),
            rest: [0; 15],
        };
        self.create(iface, &params, mark)
    }

    /// An endpoint that is not connected yet: see [`Port::join`].
    ///
    /// # Errors
    /// The library's words.
    pub fn prepare(&mut self, iface: IfaceId, mark: u64) -> Result<EpId, UctError> {
        let params = raw::EpParams {
            field_mask: raw::ep_field::IFACE,
            iface: self.ifaces[iface.0].raw,
            user_data: null_mut(),
            dev_addr: std::ptr::null(),
            iface_addr: std::ptr::null(),
            rest: [0; 15],
        };
        self.create(iface, &params, mark)
    }

    fn create(
        &mut self,
        iface: IfaceId,
        params: &raw::EpParams,
        mark: u64,
    ) -> Result<EpId, UctError> {
        let mut raw = null_mut();
        // SAFETY: addresses live through the call, which copies them.
        call("uct_ep_create", unsafe { (self.uct.calls.uct_ep_create)(params, &mut raw) })?;
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.endpoints.push((0, None));
                (self.endpoints.len() - 1) as u32
            }
        };
        let (generation, slot) = &mut self.endpoints[index as usize];
        *slot = Some(Endpoint { raw, iface: iface.0, mark, wish: RefCell::default() });
        self.by_handle.insert(raw, index);
        Ok(EpId { index, generation: *generation })
    }

    /// An endpoint's own address, for the peer to join.
    ///
    /// # Errors
    /// The library's words.
    pub fn ep_address(&self, id: EpId) -> Result<Vec<u8>, UctError> {
        let ep = self.endpoint(id).ok_or(CLOSED)?;
        let mut address = vec![0; self.ifaces[ep.iface].attributes.ep_addr_len];
        // SAFETY: as long as the interface said.
        let got = unsafe { (self.uct.calls.uct_ep_get_address)(ep.raw, address.as_mut_ptr()) };
        call("uct_ep_get_address", got)?;
        Ok(address)
    }

    /// Connects a prepared endpoint with a peer's, by the peer's device address and endpoint address.
    ///
    /// # Errors
    /// The library's words; also for addresses of another length.
    pub fn join(&mut self, id: EpId, device: &[u8], address: &[u8]) -> Result<(), UctError> {
        let ep = self.endpoint(id).ok_or(CLOSED)?;
        let attributes = &self.ifaces[ep.iface].attributes;
        if device.len() != attributes.device_addr_len || address.len() != attributes.ep_addr_len {
            return Err(UctError::Call {
                call: "uct_ep_connect_to_ep",
                status: Status::INVALID_ADDR,
            });
        }
        let (device, address) = (padded(device), padded(address));
        // SAFETY: addresses of the lengths that the interface has, in longer buffers.
        let joined = unsafe {
            (self.uct.calls.uct_ep_connect_to_ep)(ep.raw, device.as_ptr(), address.as_ptr())
        };
        call("uct_ep_connect_to_ep", joined).map(drop)
    }

    #[inline]
    fn endpoint(&self, id: EpId) -> Option<&Endpoint> {
        let (generation, slot) = self.endpoints.get(id.index as usize)?;
        slot.as_ref().filter(|_| *generation == id.generation)
    }

    /// Sends a message of 8 bytes and `rest`, which together are not longer than `max_short`.
    ///
    /// # Errors
    /// [`Status::NO_RESOURCE`]: no room now. Anything else: the endpoint is broken.
    #[inline]
    pub fn send_short(&self, id: EpId, first: u64, rest: &[u8]) -> Result<(), Status> {
        let ep = self.endpoint(id).ok_or(Status::NOT_CONNECTED)?.raw;
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
        let endpoint = self.endpoint(id).ok_or((Status::NOT_CONNECTED, false))?;
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

    /// Sends a message of `header`, not longer than `zcopy_header`, and `pieces` of memory, at most `zcopy_pieces`.
    /// `Ok(true)`: it is over; `Ok(false)`: [`Event::Done`] will tell.
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
        let ep = self.endpoint(id).ok_or(Status::NOT_CONNECTED)?.raw;
        let iov = |&(at, length, memory): &(*const u8, usize, Option<&Memory>)| raw::Iov {
            buffer: at.cast_mut().cast(),
            length,
            memh: memory.map_or(null_mut(), |memory| memory.handle),
            stride: 0,
            count: 1,
        };
        let iovs: Vec<raw::Iov> = pieces.iter().map(iov).collect();
        let completion = self.operation(cookie);
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
        let ep = self.endpoint(id).ok_or(Status::NOT_CONNECTED)?.raw;
        let iov = raw::Iov {
            buffer: local.cast(),
            length: len,
            memh: memory.map_or(null_mut(), |memory| memory.handle),
            stride: 0,
            count: 1,
        };
        let rkey = remote.map_or(usize::MAX, |remote| remote.bundle.rkey);
        let completion = self.operation(cookie);
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

    fn operation(&mut self, cookie: u64) -> *mut raw::Completion {
        let completion = raw::Completion { func: done, count: 1, status: Status::OK };
        let inbox = &raw const *self.inbox;
        let operation = Box::new(Operation { completion, inbox, cookie });
        let operation = self.operations.entry(cookie).insert_entry(operation).into_mut();
        &raw mut operation.completion
    }

    fn begun(&mut self, cookie: u64, status: Status) -> Result<bool, Status> {
        if status != Status::IN_PROGRESS {
            self.operations.remove(&cookie);
        }
        status.check().map(|status| status == Status::OK)
    }

    /// Operations that are not over.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.operations.len()
    }

    /// Asks to be told by [`Event::Room`] when an endpoint has room again; `false` when it has now, or cannot tell.
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
            Way::Device => {}
        }
        // SAFETY: a live endpoint; without a completion nothing is kept.
        let flushed = unsafe { ((*(*ep.raw).iface).ops.ep_flush)(ep.raw, 0, null_mut()) };
        flushed == Status::OK || (flushed.is_error() && flushed != Status::NO_RESOURCE)
    }

    /// Asks whether the peer is there; [`Event::Broke`] tells when it is not.
    ///
    /// # Errors
    /// It is known at once.
    pub fn check(&self, id: EpId) -> Result<(), Status> {
        let Some(ep) = self.endpoint(id) else { return Ok(()) };
        if !self.ifaces[ep.iface].attributes.ep_check {
            return Ok(());
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

    /// Closes an endpoint: what the library still had of it is cancelled. Its operations come back as [`Event::Done`] when
    /// the library tells of them.
    pub fn close(&mut self, id: EpId) {
        let Some((generation, slot)) = self.endpoints.get_mut(id.index as usize) else { return };
        if *generation != id.generation {
            return;
        }
        let Some(ep) = slot.take() else { return };
        *generation = generation.wrapping_add(1);
        self.free.push(id.index);
        self.by_handle.remove(&ep.raw);
        // SAFETY: a live endpoint, purged of the only request it can have, whose box is dropped after it.
        unsafe {
            let ops = &(*(*ep.raw).iface).ops;
            if ep.wish.borrow().as_ref().is_some_and(|wish| wish.waits) {
                (ops.pending_purge)(ep.raw, purged, null_mut());
            }
            (ops.ep_flush)(ep.raw, raw::FLUSH_CANCEL, null_mut());
            (self.uct.calls.uct_ep_destroy)(ep.raw);
        }
        self.inbox.notes.borrow_mut().retain(|note| match note {
            Note::Broke(of, _) | Note::Room(of) => *of != ep.raw,
            Note::Done(..) => true,
        });
    }

    /// Tells what happened meanwhile; how many callbacks of the library did something.
    #[inline]
    pub fn poll(&mut self, mut f: impl FnMut(Event<'_>)) -> usize {
        let (worker, stride) = (self.worker, self.uct.stride);
        let count = self.inbox.during(&mut |message: &[u8]| f(Event::Arrived(message)), || {
            let mut count = 0;
            for element in 0..raw::PROGRESS_ELEMENTS {
                // SAFETY: the worker starts with elements of that stride, each a callback and its argument; the
                // first without a callback is the last.
                unsafe {
                    let element = worker.byte_add(element * stride);
                    let Some(call) = element.cast::<Option<raw::Progress>>().read() else { break };
                    count += call(element.cast::<*mut c_void>().add(1).read()) as usize;
                }
            }
            count
        });
        if !self.inbox.notes.borrow().is_empty() {
            self.tell(&mut f);
        }
        count
    }

    #[cold]
    fn tell(&mut self, f: &mut impl FnMut(Event<'_>)) {
        let notes = std::mem::take(&mut *self.inbox.notes.borrow_mut());
        let mark = |ep: *mut raw::Ep| {
            let index = *self.by_handle.get(&ep)?;
            self.endpoints[index as usize].1.as_ref().map(|ep| ep.mark)
        };
        for note in notes {
            match note {
                Note::Broke(ep, status) => {
                    if let Some(mark) = mark(ep) {
                        f(Event::Broke { mark, status });
                    }
                }
                Note::Room(ep) => {
                    if let Some(mark) = mark(ep) {
                        f(Event::Room { mark });
                    }
                }
                Note::Done(cookie, status) => {
                    self.operations.remove(&cookie);
                    f(Event::Done { cookie, status });
                }
            }
        }
    }

    /// Does the library's asynchronous work (accepting connections, timers): to be called now and then.
    pub fn tend(&mut self) {
        // SAFETY: the port's own context.
        unsafe { (self.uct.calls.ucs_async_poll)(self.context) };
    }

    /// Bytes of messages that arrived outside of [`Port::poll`].
    #[must_use]
    pub fn unread(&self) -> usize {
        self.inbox.early_bytes()
    }

    /// The descriptors that become readable when an interface has something, armed; `None` when something is there already
    /// or an interface can only be polled.
    pub fn arm(&mut self) -> Option<Vec<RawFd>> {
        if !self.inbox.is_quiet() {
            return None;
        }
        let mut fds = Vec::new();
        for iface in &self.ifaces {
            let mut fd: c_int = -1;
            // SAFETY: a live interface; the descriptor is written and stays the interface's.
            let ready = unsafe {
                (self.uct.calls.uct_iface_event_fd_get)(iface.raw, &mut fd) == Status::OK
                    && (self.uct.calls.uct_iface_event_arm)(iface.raw, raw::EVENTS_ALL)
                        == Status::OK
            };
            if !ready {
                return None;
            }
            fds.push(fd);
        }
        Some(fds)
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

const CLOSED: UctError = UctError::Call { call: "endpoint", status: Status::NOT_CONNECTED };

/// Addresses are read by structs of the library that may be longer than the address, and want alignment.
fn padded(address: &[u8]) -> Vec<u8> {
    let mut padded = Vec::with_capacity(address.len() + 128);
    padded.extend_from_slice(address);
    padded.resize(address.len() + 128, 0);
    padded
}

fn attributes(attr: &raw::IfaceAttr, md: &raw::MdAttr) -> Attributes {
    let has = |flag: u64| attr.flags & flag != 0;
    let if_has = |flag: u64, size: usize| if has(flag) { size } else { 0 };
    let rkey_len = md.rkey_packed_size;
    let keys = md.flags & md_flag::NEED_RKEY == 0
        || (md.flags & md_flag::REG != 0 && rkey_len <= RKEY_MAX);
    let latency = attr.latency[0] + attr.overhead;
    let bandwidth = attr.bandwidth[0] + attr.bandwidth[1];
    Attributes {
        max_short: if_has(flag::AM_SHORT, attr.am.max_short),
        max_bcopy: if_has(flag::AM_BCOPY, attr.am.max_bcopy),
        max_zcopy: if_has(flag::AM_ZCOPY, attr.am.max_zcopy),
        zcopy_header: if_has(flag::AM_ZCOPY, attr.am.max_hdr),
        zcopy_pieces: if_has(flag::AM_ZCOPY, attr.am.max_iov),
        max_put: if keys { if_has(flag::PUT_ZCOPY, attr.put.max_zcopy) } else { 0 },
        max_get: if keys { if_has(flag::GET_ZCOPY, attr.get.max_zcopy) } else { 0 },
        min_get: attr.get.min_zcopy,
        min_put: attr.put.min_zcopy,
        device_addr_len: attr.device_addr_len,
        iface_addr_len: attr.iface_addr_len,
        ep_addr_len: attr.ep_addr_len,
        to_iface: has(flag::CONNECT_TO_IFACE),
        to_ep: has(flag::CONNECT_TO_EP),
        peer_failure: has(flag::PEER_FAILURE),
        ep_check: has(flag::EP_CHECK),
        pending: has(flag::PENDING),
        duplicates: has(flag::AM_DUP),
        latency_ns: (latency * 1e9).clamp(1.0, 1e9) as u32,
        bandwidth_mbs: (bandwidth / 1e6).clamp(1.0, 1e6) as u32,
        need_memory: md.flags & md_flag::NEED_MEMH != 0,
        need_rkey: md.flags & md_flag::NEED_RKEY != 0,
        rkey_len,
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        for index in 0..self.endpoints.len() {
            let generation = self.endpoints[index].0;
            self.close(EpId { index: index as u32, generation });
        }
        let calls = &self.uct.calls;
        // SAFETY: everything was opened by this port; nothing of it is used after its owner here is closed.
        unsafe {
            for (iface, handle) in self.memory.drain(..) {
                (calls.uct_md_mem_dereg)(self.ifaces[iface].md, handle);
            }
            for iface in self.ifaces.drain(..) {
                ((*iface.raw).ops.progress_disable)(iface.raw, raw::PROGRESS_ALL);
                (calls.uct_iface_close)(iface.raw);
                (calls.uct_md_close)(iface.md);
            }
            (calls.uct_worker_destroy)(self.worker);
            (calls.ucs_async_context_destroy)(self.context);
        }
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port")
            .field("interfaces", &self.ifaces.len())
            .field("endpoints", &self.by_handle.len())
            .field("operations", &self.operations.len())
            .field("unread", &self.unread())
            .finish()
    }
}
