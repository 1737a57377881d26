//! A worker with its interfaces and endpoints: everything needed to exchange messages over one transport.
//!
//! It owns every handle, hands out none, and closes them in the one order the library allows: endpoints, interfaces,
//! memory domains, worker. An [`EpId`] of an endpoint that was closed finds nothing.
//!
//! Here: how all of it is opened, connected and closed. `send`: messages. `memory`: what reaches memory of the user's, and how
//! it is taken out of the library's hands. `turn`: progress, and sleep.
//!
//! The library runs no thread for it (its asynchronous work is done by [`Port::tend`]), and calls back only within calls
//! of the port.

mod memory;
mod send;
mod turn;

pub use memory::{Direction, Memory, RemoteMemory};
pub use turn::NotWaitable;

use crate::attributes::{Attributes, attributes};
use crate::inbox::{Inbox, Note, Wish, arrived, broke, purged};
use crate::library::{DeviceKind, Resource, Uct, UctError, c_string, call};
use crate::raw::{self, Handle, flag};
use crate::sleep::Bed;
use crate::status::Status;
use memory::UnderWay;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// The active message that carries all of ours.
const MESSAGE: u8 = 9;

/// How long operations of an endpoint that is closed are waited for, and copies of the kernel's, which end by themselves and
/// must have.
const SETTLE: Duration = Duration::from_millis(50);
/// See `SETTLE`.
const COPIED: Duration = Duration::from_secs(3600);

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
    /// Null while it has a queue and is not joined, and when it could not be.
    raw: *mut raw::Ep,
    iface: usize,
    mark: u64,
    wish: RefCell<Option<Box<Wish>>>,
    /// Nothing may be given to the library while a wish waits: transports of devices keep that order, and UCX 1.13 as
    /// Debian builds it ends the process of who does not.
    strict: bool,
    /// The interface that only its peer writes to.
    queue: Option<*mut raw::Iface>,
    /// When it was last asked whether its peer is there.
    asked: Cell<Option<Instant>>,
    /// The line with the end of the peer's queue, which every message to it changes; null where there is none.
    head: *const u8,
}

impl Endpoint {
    /// Has the end of the peer's queue brought here, since a message of the peer's is likely to be answered. The peer has it: UCX
    /// built with assertions, as Debian's is, reads it with each message, and the answer waited for it to come back (8 B to and
    /// fro over posix, in turns: 540 to 420 ns between far cores, whole messages 0.19 to 0.13 and 0.61 to 0.41 µs).
    #[inline(always)]
    fn claim(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint about an address, any address, that accesses nothing; processors without PREFETCHW take it for a NOP.
        unsafe {
            std::arch::asm!(
                "prefetchw [{line}]",
                line = in(reg) self.head,
                options(nostack, preserves_flags, readonly)
            );
        }
    }

    /// A wish is in the library's hands.
    fn waits(&self) -> bool {
        self.wish.borrow().as_ref().is_some_and(|wish| wish.waits)
    }

    /// Takes it out of them.
    ///
    /// # Safety
    /// The endpoint is a live one.
    unsafe fn purge(&self) {
        if self.waits() {
            // SAFETY: by contract; the wish's box outlives the endpoint.
            unsafe { ((*(*self.raw).iface).ops.pending_purge)(self.raw, purged, null_mut()) };
        }
    }
}

/// See the module.
pub struct Port {
    uct: &'static Uct,
    context: Handle,
    worker: Handle,
    ifaces: Vec<Interface>,
    endpoints: Vec<(u32, Option<Endpoint>)>,
    vacant: Vec<u32>,
    by_handle: HashMap<*mut raw::Ep, u32>,
    operations: HashMap<u64, UnderWay>,
    /// How many of them have to be asked whether they are over; a socket that has room wakes for them.
    unsaid: usize,
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
            vacant: Vec::new(),
            by_handle: HashMap::new(),
            operations: HashMap::new(),
            unsaid: 0,
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
                let own = format!("{}_", resource.transport.to_uppercase());
                for prefix in ["", "MM_", "RC_", "UD_", &own] {
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
        let index = match self.vacant.pop() {
            Some(index) => index,
            None => {
                self.endpoints.push((0, None));
                (self.endpoints.len() - 1) as u32
            }
        };
        let (generation, slot) = &mut self.endpoints[index as usize];
        let strict = matches!(self.ifaces[iface.0].way, Way::Device);
        let wish = RefCell::default();
        let asked = Cell::new(None);
        let head = std::ptr::null();
        *slot = Some(Endpoint { raw, iface: iface.0, mark, wish, strict, queue, asked, head });
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
        let ep = self.joinable(id).ok_or(CLOSED)?;
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
    /// The library's words; also for addresses of another length. An endpoint that the library could not connect is only good to be closed.
    pub fn join(&mut self, id: EpId, device: &[u8], address: &[u8]) -> Result<(), UctError> {
        let ep = self.joinable(id).ok_or(CLOSED)?;
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
        if joined.is_error()
            && let (_, Some(ep)) = &mut self.endpoints[id.index as usize]
        {
            // UCX 1.13 takes an endpoint to tcp whose peer refuses for one of its own, and ends it in a later call of progress; unless its
            // owner does so before. Test: `survives_the_death_of_a_peer`, in which one in thirty processes ended in UCX's assertions.
            // SAFETY: a live endpoint, purged of the only request it can have; nobody gets at it any more.
            unsafe {
                ep.purge();
                let raw = std::mem::replace(&mut ep.raw, null_mut());
                self.by_handle.remove(&raw);
                (self.uct.calls.uct_ep_destroy)(raw);
            }
        }
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
            // The second word of an endpoint of shared memory is where the peer's queue begins, with its end (1.13 to 1.22): not for
            // anybody to know, so nothing is read there. An address that is none costs a hint.
            // SAFETY: endpoints have several words.
            ep.head = unsafe { raw.cast::<*const u8>().add(1).read() };
        }
        self.by_handle.insert(raw, id.index);
        Ok(())
    }

    #[inline]
    fn slot(&self, id: EpId) -> Option<&Endpoint> {
        let (generation, slot) = self.endpoints.get(id.index as usize)?;
        slot.as_ref().filter(|_| *generation == id.generation)
    }

    fn is_socket(&self, ep: &Endpoint) -> bool {
        matches!(self.ifaces[ep.iface].way, Way::Socket)
    }

    /// One that the library takes something for.
    #[inline]
    fn free(&self, id: EpId) -> Result<&Endpoint, Status> {
        let ep = self.endpoint(id).ok_or(Status::NOT_CONNECTED)?;
        if ep.strict && ep.waits() {
            return Err(Status::NO_RESOURCE);
        }
        Ok(ep)
    }

    /// One that the library has, or will have.
    fn joinable(&self, id: EpId) -> Option<&Endpoint> {
        self.slot(id).filter(|ep| ep.queue.is_some() || !ep.raw.is_null())
    }

    /// One that the library has.
    #[inline]
    fn endpoint(&self, id: EpId) -> Option<&Endpoint> {
        self.slot(id).filter(|ep| !ep.raw.is_null())
    }

    /// Closes an endpoint: what the library still had of it is cancelled. Operations that are under way are given a moment
    /// to come back ([`Port::fence`]).
    pub fn close(&mut self, id: EpId) {
        if let Some(ep) = self.endpoint(id) {
            let copied = matches!(self.ifaces[ep.iface].way, Way::Memory);
            self.fence(id, if copied { COPIED } else { SETTLE });
        }
        let Some((generation, slot)) = self.endpoints.get_mut(id.index as usize) else { return };
        if *generation != id.generation {
            return;
        }
        let Some(ep) = slot.take() else { return };
        *generation = generation.wrapping_add(1);
        self.vacant.push(id.index);
        self.by_handle.remove(&ep.raw);
        // SAFETY: a live endpoint, purged of the only request it can have, whose box is dropped after it; a queue of which
        // that was the only endpoint.
        unsafe {
            if !ep.raw.is_null() {
                let ops = &(*(*ep.raw).iface).ops;
                ep.purge();
                // What a device still has counts against the room of all other endpoints until it came back.
                let until = Instant::now() + SETTLE;
                let cancel = || (ops.ep_flush)(ep.raw, raw::FLUSH_CANCEL, null_mut());
                while ep.strict
                    && matches!(cancel(), Status::IN_PROGRESS | Status::NO_RESOURCE)
                    && Instant::now() < until
                {
                    (ops.iface_progress)((*ep.raw).iface);
                }
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
}

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
