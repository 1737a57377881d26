//! A worker with its interfaces and endpoints: everything needed to exchange messages over one transport.
//!
//! It owns every handle, hands out none, and closes them in the one order the library allows: endpoints, interfaces,
//! memory domains, worker. An [`EpId`] of an endpoint that was closed finds nothing.
//!
//! Long, because it is one owner: splitting it would split who closes what.
//!
//! The library runs no thread for it (its asynchronous work is done by [`Port::tend`]), and calls back only within calls
//! of the port.

use crate::attributes::{Attributes, attributes};
use crate::inbox::{Event, Inbox, Note, Operation, Wish, arrived, broke, done, has_room, purged};
use crate::library::{DeviceKind, Resource, Uct, UctError, c_string, call};
use crate::raw::{self, Handle, flag};
use crate::sleep::Bed;
use crate::status::Status;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null_mut;
use std::time::Duration;

/// The active message that carries all of ours.
const MESSAGE: u8 = 9;

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

struct Interface {
    raw: *mut raw::Iface,
    component: Handle,
    md: Handle,
    attributes: Attributes,
    way: Way,
    /// To open more of them.
    resource: Resource,
    settings: Vec<(&'static str, String)>,
}

/// Where messages are when the library has taken them.
#[derive(Clone, Copy)]
enum Way {
    Socket,
    Memory,
    Device,
}

struct Endpoint {
    /// Null while it has a queue and is not joined.
    raw: *mut raw::Ep,
    iface: usize,
    mark: u64,
    wish: RefCell<Option<Box<Wish>>>,
    /// The interface that only its peer writes to.
    queue: Option<*mut raw::Iface>,
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
    bed: Option<Bed>,
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
            bed: None,
        })
    }

    /// Opens an interface on a resource. `settings` are names and values of the transport's own configuration (`SEG_SIZE`,
    /// without the `UCX_POSIX_` before it); those that it does not know are left out. The library wants the name of the
    /// table that an option is in before the option's (1.13: `MM_SEG_SIZE`) or the transport's (1.22), so each is tried.
    ///
    /// # Errors
    /// The library's words.
    pub fn add(
        &mut self,
        resource: &Resource,
        settings: &[(&'static str, String)],
    ) -> Result<IfaceId, UctError> {
        let (component, md) = self.uct.open_domain(resource)?;
        match self.open_iface(resource, settings, md) {
            Ok((raw, attributes)) => {
                let way = match resource.kind {
                    DeviceKind::SharedMemory | DeviceKind::Loopback => Way::Memory,
                    _ if resource.transport == "tcp" => Way::Socket,
                    _ => Way::Device,
                };
                self.ifaces.push(Interface {
                    raw,
                    component,
                    md,
                    attributes,
                    way,
                    resource: resource.clone(),
                    settings: settings.to_vec(),
                });
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
                let value = c_string(value);
                for prefix in ["", "MM_", "RC_", &format!("{}_", resource.transport.to_uppercase())]
                {
                    let name = c_string(&format!("{prefix}{name}"));
                    (calls.uct_config_modify)(config, name.as_ptr(), value.as_ptr());
                }
            }
            let opened = (calls.uct_iface_open)(md, self.worker, &params, config, &mut iface);
            (calls.uct_config_release)(config);
            call("uct_iface_open", opened)?;
        }
        match self.set_up(iface, md) {
            Ok(attributes) => {
                if let Some(bed) = &self.bed {
                    self.watch(bed, iface);
                }
                Ok((iface, attributes))
            }
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
        let params = params_of(self.ifaces[iface.0].raw, &device, &address);
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

    /// An endpoint that is not connected yet, with an interface of its own, opened as `like` was, for its peer to write to.
    ///
    /// The transports of shared memory have one queue for all who write to an interface: a process killed between taking
    /// a place in it and filling that place blocks it for all others, for good. In a queue of its own it blocks nobody.
    ///
    /// # Errors
    /// The library's words.
    pub fn prepare_queue(&mut self, like: IfaceId, mark: u64) -> Result<EpId, UctError> {
        let Interface { md, resource, settings, .. } = &self.ifaces[like.0];
        let (queue, _) = self.open_iface(resource, settings, *md)?;
        Ok(self.enter(null_mut(), like, mark, Some(queue)))
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
        Ok(self.enter(raw, iface, mark, None))
    }

    fn enter(
        &mut self,
        raw: *mut raw::Ep,
        iface: IfaceId,
        mark: u64,
        queue: Option<*mut raw::Iface>,
    ) -> EpId {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.endpoints.push((0, None));
                (self.endpoints.len() - 1) as u32
            }
        };
        let (generation, slot) = &mut self.endpoints[index as usize];
        *slot = Some(Endpoint { raw, iface: iface.0, mark, wish: RefCell::default(), queue });
        if !raw.is_null() {
            self.by_handle.insert(raw, index);
        }
        EpId { index, generation: *generation }
    }

    /// An endpoint's own address, or its queue's, for the peer to join.
    ///
    /// # Errors
    /// The library's words.
    pub fn ep_address(&self, id: EpId) -> Result<Vec<u8>, UctError> {
        let ep = self.slot(id).ok_or(CLOSED)?;
        let attributes = &self.ifaces[ep.iface].attributes;
        let len =
            if ep.queue.is_some() { attributes.iface_addr_len } else { attributes.ep_addr_len };
        let mut address = vec![0; len];
        // SAFETY: as long as the interface said.
        unsafe {
            if let Some(queue) = ep.queue {
                let got = (self.uct.calls.uct_iface_get_address)(queue, address.as_mut_ptr());
                call("uct_iface_get_address", got)?;
            } else {
                let got = (self.uct.calls.uct_ep_get_address)(ep.raw, address.as_mut_ptr());
                call("uct_ep_get_address", got)?;
            }
        }
        Ok(address)
    }

    /// Connects a prepared endpoint with a peer's, by the peer's device address and what its [`Port::ep_address`] is.
    ///
    /// # Errors
    /// The library's words; also for addresses of another length.
    pub fn join(&mut self, id: EpId, device: &[u8], address: &[u8]) -> Result<(), UctError> {
        let ep = self.slot(id).ok_or(CLOSED)?;
        let attributes = &self.ifaces[ep.iface].attributes;
        if let Some(queue) = ep.queue {
            return self.join_queue(id, queue, device, address);
        }
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

    fn join_queue(
        &mut self,
        id: EpId,
        queue: *mut raw::Iface,
        device: &[u8],
        address: &[u8],
    ) -> Result<(), UctError> {
        let name = Name { device: device.to_vec(), iface: address.to_vec() };
        let like = self.slot(id).map(|ep| IfaceId(ep.iface)).ok_or(CLOSED)?;
        if !self.reaches(like, &name) {
            return Err(UctError::Call { call: "uct_ep_create", status: Status::UNREACHABLE });
        }
        let (device, address) = (padded(device), padded(address));
        let params = params_of(queue, &device, &address);
        let mut raw = null_mut();
        // SAFETY: addresses live through the call, which copies them.
        call("uct_ep_create", unsafe { (self.uct.calls.uct_ep_create)(&params, &mut raw) })?;
        if let (_, Some(ep)) = &mut self.endpoints[id.index as usize] {
            ep.raw = raw;
        }
        self.by_handle.insert(raw, id.index);
        Ok(())
    }

    #[inline]
    fn slot(&self, id: EpId) -> Option<&Endpoint> {
        let (generation, slot) = self.endpoints.get(id.index as usize)?;
        slot.as_ref().filter(|_| *generation == id.generation)
    }

    /// One that the library has.
    #[inline]
    fn endpoint(&self, id: EpId) -> Option<&Endpoint> {
        self.slot(id).filter(|ep| !ep.raw.is_null())
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
        // SAFETY: a live endpoint, purged of the only request it can have, whose box is dropped after it; a queue of which
        // that was the only endpoint.
        unsafe {
            if !ep.raw.is_null() {
                let ops = &(*(*ep.raw).iface).ops;
                if ep.wish.borrow().as_ref().is_some_and(|wish| wish.waits) {
                    (ops.pending_purge)(ep.raw, purged, null_mut());
                }
                (ops.ep_flush)(ep.raw, raw::FLUSH_CANCEL, null_mut());
                (self.uct.calls.uct_ep_destroy)(ep.raw);
            }
            if let Some(queue) = ep.queue {
                ((*queue).ops.progress_disable)(queue, raw::PROGRESS_ALL);
                (self.uct.calls.uct_iface_close)(queue);
            }
        }
        self.inbox.notes.borrow_mut().retain(|note| match note {
            Note::Broke(of, _) | Note::Room(of) => *of != ep.raw,
            Note::Done(..) => true,
        });
    }

    /// Leaves an interface out of [`Port::poll`]: [`Port::glance`] looks at it.
    pub fn set_aside(&mut self, iface: IfaceId) {
        let raw = self.ifaces[iface.0].raw;
        // SAFETY: a live interface.
        unsafe { ((*raw).ops.progress_disable)(raw, raw::PROGRESS_ALL) };
    }

    /// As [`Port::poll`], for one interface that was set aside.
    pub fn glance(&mut self, iface: IfaceId, f: impl FnMut(Event<'_>)) -> usize {
        let raw = self.ifaces[iface.0].raw;
        // SAFETY: a live interface, which nobody polls otherwise.
        self.run(f, || unsafe { ((*raw).ops.iface_progress)(raw) } as usize)
    }

    /// Tells what happened meanwhile; how many callbacks of the library did something.
    #[inline]
    pub fn poll(&mut self, f: impl FnMut(Event<'_>)) -> usize {
        let (worker, stride) = (self.worker, self.uct.stride);
        self.run(f, || {
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
        })
    }

    #[inline]
    fn run(&mut self, mut f: impl FnMut(Event<'_>), progress: impl FnOnce() -> usize) -> usize {
        let count = self.inbox.during(&mut |message: &[u8]| f(Event::Arrived(message)), progress);
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

    /// Prepares for sleeping: a descriptor that becomes readable when an interface has something, and after `pause` in any
    /// case, since no descriptor tells of the library's asynchronous work. `None`: something is there already.
    ///
    /// # Errors
    /// An interface can only be polled, or the system has no descriptor to give.
    pub fn arm(&mut self, pause: Duration) -> Result<Option<RawFd>, NotWaitable> {
        if self.ifaces.iter().any(|iface| !iface.attributes.waitable) {
            return Err(NotWaitable);
        }
        if self.bed.is_none() {
            let bed = Bed::new().ok_or(NotWaitable)?;
            for raw in self.all_ifaces() {
                self.watch(&bed, raw);
            }
            self.bed = Some(bed);
        }
        if !self.inbox.is_quiet() {
            return Ok(None);
        }
        for raw in self.all_ifaces() {
            // SAFETY: a live interface.
            let armed = unsafe { (self.uct.calls.uct_iface_event_arm)(raw, raw::EVENTS_ALL) };
            if armed != Status::OK {
                return Ok(None);
            }
        }
        Ok(self.bed.as_ref().and_then(|bed| bed.lie_down(pause)))
    }

    /// The interfaces, and the endpoints' queues.
    fn all_ifaces(&self) -> impl Iterator<Item = *mut raw::Iface> {
        let queues = self.endpoints.iter().filter_map(|(_, ep)| ep.as_ref()?.queue);
        self.ifaces.iter().map(|iface| iface.raw).chain(queues)
    }

    /// Has an interface wake the sleeper, as long as it is open.
    fn watch(&self, bed: &Bed, iface: *mut raw::Iface) {
        let mut fd: c_int = -1;
        // SAFETY: a live interface; the descriptor is written and stays the interface's.
        let got = unsafe { (self.uct.calls.uct_iface_event_fd_get)(iface, &mut fd) };
        if got == Status::OK {
            bed.add(fd);
        }
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

/// Nobody can sleep on this port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotWaitable;

const CLOSED: UctError = UctError::Call { call: "endpoint", status: Status::NOT_CONNECTED };

/// Of an endpoint to be connected to an interface; the addresses are [`padded`].
fn params_of(iface: *mut raw::Iface, device: &[u8], address: &[u8]) -> raw::EpParams {
    use raw::ep_field as field;
    raw::EpParams {
        field_mask: field::IFACE | field::DEV_ADDR | field::IFACE_ADDR,
        iface,
        user_data: null_mut(),
        dev_addr: device.as_ptr(),
        iface_addr: address.as_ptr(),
        rest: [0; 15],
    }
}

/// Addresses are read by structs of the library that may be longer than the address, and want alignment.
fn padded(address: &[u8]) -> Vec<u8> {
    let mut padded = Vec::with_capacity(address.len() + 128);
    padded.extend_from_slice(address);
    padded.resize(address.len() + 128, 0);
    padded
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
