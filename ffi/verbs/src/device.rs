//! Devices and their ports.

use crate::raw::{self, Symbols};
use crate::{Event, VerbsError, symbols};
use std::ffi::{CStr, c_int};
use std::os::fd::RawFd;
use std::sync::Arc;

/// The names of this machine's RDMA devices, in the library's order.
///
/// # Errors
/// When the library is not there or cannot list.
pub fn devices() -> Result<Vec<String>, VerbsError> {
    let mut names = Vec::new();
    each_device(symbols()?, |_, name| {
        names.push(name);
        None::<()>
    })?;
    Ok(names)
}

/// Calls `each` with the devices until it has found something.
fn each_device<T>(
    symbols: &Symbols,
    mut each: impl FnMut(*mut raw::Device, String) -> Option<T>,
) -> Result<Option<T>, VerbsError> {
    let mut count: c_int = 0;
    // SAFETY: writes the count and returns a list of that many, or null.
    let list = unsafe { (symbols.get_device_list)(&mut count) };
    if list.is_null() {
        return Err(VerbsError::last("ibv_get_device_list"));
    }
    let mut found = None;
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: `list` has `count` valid entries until it is freed below.
        let device = unsafe { *list.add(at) };
        // SAFETY: a device of the list; the name is a terminated string in it.
        let name = unsafe { CStr::from_ptr((symbols.get_device_name)(device)) };
        found = each(device, name.to_string_lossy().into_owned());
        if found.is_some() {
            break;
        }
    }
    // SAFETY: the list of above, freed once; opened devices keep what they need.
    unsafe { (symbols.free_device_list)(list) };
    Ok(found)
}

/// A global address: an IPv6 address, or an IPv4 one mapped into it.
pub type Gid = [u8; 16];

/// What a port is at the moment.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// Whether it carries data.
    pub active: bool,
    /// Ethernet (RoCE, iWARP), or InfiniBand.
    pub ethernet: bool,
    /// The local identifier; 0 on Ethernet.
    pub lid: u16,
    /// Path MTU as the device counts: 1 for 256 bytes to 5 for 4096.
    pub mtu: u8,
    /// Entries of the GID table.
    pub gids: u32,
    /// Entries of the partition table.
    pub partitions: u16,
    /// Longest message, in bytes.
    pub max_message: u32,
    /// Signalling rate times lanes, in MB/s.
    pub bandwidth_mbs: u32,
}

pub(crate) struct Opened {
    pub symbols: &'static Symbols,
    pub context: *mut raw::Context,
    pub pd: *mut raw::Pd,
    /// Whether queue pairs may grant atomic operations.
    pub atomics: bool,
}

// SAFETY: libibverbs is thread-safe for contexts and protection domains.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: everything made of them holds this owner, so nothing is left; each is freed once.
        unsafe {
            (self.symbols.dealloc_pd)(self.pd);
            (self.symbols.close_device)(self.context);
        }
    }
}

/// An opened device with its protection domain. Copies name the same one.
#[derive(Clone)]
pub struct Device {
    pub(crate) opened: Arc<Opened>,
    name: String,
    limits: Limits,
}

/// What a device can have at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests in a queue.
    pub queue: u32,
    /// Entries of a completion queue.
    pub completions: u32,
    /// Requests in a shared receive queue; 0 when it has none.
    pub shared: u32,
    /// Pieces of memory in a request.
    pub pieces: u32,
    /// Reads and atomic operations under way with one peer.
    pub reads: u8,
    /// Whether it has atomic operations.
    pub atomics: bool,
    /// Whether it pages memory on demand for reads and writes between connected queue pairs ([`Paging::OnDemand`]).
    ///
    /// [`Paging::OnDemand`]: crate::Paging::OnDemand
    pub on_demand: bool,
}

impl Device {
    /// Opens the device `name`.
    ///
    /// # Errors
    /// When the library or the device is not there or refuses.
    pub fn open(name: &str) -> Result<Device, VerbsError> {
        let symbols = symbols()?;
        let context = each_device(symbols, |device, known| {
            // SAFETY: a device of the list, which still exists.
            (known == name).then(|| unsafe { (symbols.open_device)(device) })
        })?;
        let Some(context) = context else {
            let known = devices()?.join(", ");
            return Err(VerbsError::NoDevice { name: name.to_owned(), known });
        };
        if context.is_null() {
            return Err(VerbsError::last("ibv_open_device"));
        }
        // SAFETY: an open context.
        let pd = unsafe { (symbols.alloc_pd)(context) };
        if pd.is_null() {
            let error = VerbsError::last("ibv_alloc_pd");
            // SAFETY: opened above; nothing was made of it.
            unsafe { (symbols.close_device)(context) };
            return Err(error);
        }
        let mut opened = Opened { symbols, context, pd, atomics: false };
        // SAFETY: an all-zero value is one of this plain C structure.
        let mut attr: raw::DeviceAttr = unsafe { std::mem::zeroed() };
        // SAFETY: an open context and a structure of the right layout.
        let code = unsafe { (symbols.query_device)(context, &mut attr) };
        VerbsError::check("ibv_query_device", code)?;
        opened.atomics = attr.atomic_cap != raw::ATOMIC_NONE;
        let opened = Arc::new(opened);
        let count = |value: c_int| u32::try_from(value).unwrap_or(0);
        let limits = Limits {
            queue: count(attr.max_qp_wr),
            completions: count(attr.max_cqe),
            shared: count(attr.max_srq_wr),
            pieces: count(attr.max_sge),
            reads: count(attr.max_qp_rd_atom.min(attr.max_qp_init_rd_atom)).min(255) as u8,
            atomics: opened.atomics,
            on_demand: on_demand(&opened),
        };
        let device = Device { opened, name: name.to_owned(), limits };
        // SAFETY: the descriptor of an open context.
        device.make_nonblocking(unsafe { (*context).async_fd })?;
        Ok(device)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is an iWARP device: TCP beneath, no datagrams, connections by the manager ([`crate::cm`]) only.
    #[must_use]
    pub fn is_iwarp(&self) -> bool {
        let path = format!("/sys/class/infiniband/{}/node_type", self.name);
        std::fs::read_to_string(path).is_ok_and(|text| text.starts_with('4')) // "4: RNIC"
    }

    /// What it can have at most.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The state of a port (numbered from 1).
    ///
    /// # Errors
    /// When there is no such port.
    pub fn port(&self, number: u8) -> Result<Port, VerbsError> {
        let mut attr = raw::PortAttr::default();
        // SAFETY: an open context; this symbol fills a prefix of the structure, the rest stays zero.
        let code =
            unsafe { (self.opened.symbols.query_port)(self.opened.context, number, &mut attr) };
        VerbsError::check("ibv_query_port", code)?;
        Ok(Port {
            active: attr.state == raw::PORT_ACTIVE,
            ethernet: attr.link_layer == raw::LINK_LAYER_ETHERNET,
            lid: attr.lid,
            mtu: attr.active_mtu.clamp(1, 5) as u8,
            gids: u32::try_from(attr.gid_tbl_len).unwrap_or(0),
            partitions: attr.pkey_tbl_len,
            max_message: attr.max_msg_sz,
            bandwidth_mbs: bandwidth_mbs(attr.active_speed, attr.active_width),
        })
    }

    /// An entry of a port's GID table.
    ///
    /// # Errors
    /// When there is no such entry.
    pub fn gid(&self, port: u8, index: u32) -> Result<Gid, VerbsError> {
        let mut gid = [0; 16];
        let index = c_int::try_from(index).unwrap_or(c_int::MAX);
        // SAFETY: an open context; writes sixteen bytes.
        let code =
            unsafe { (self.opened.symbols.query_gid)(self.opened.context, port, index, &mut gid) };
        VerbsError::check("ibv_query_gid", code)?;
        Ok(gid)
    }

    /// Readable when [`event`](Device::event) has something. Open as long as the device.
    #[must_use]
    pub fn event_fd(&self) -> RawFd {
        // SAFETY: an open context.
        unsafe { (*self.opened.context).async_fd }
    }

    /// The next asynchronous event; does not block.
    #[must_use]
    pub fn event(&self) -> Option<Event> {
        let mut event = raw::AsyncEvent { element: std::ptr::null_mut(), event_type: 0 };
        // SAFETY: an open context, whose descriptor does not block.
        if unsafe { (self.opened.symbols.get_async_event)(self.opened.context, &mut event) } != 0 {
            return None;
        }
        // The port number shares the pointer's place, in its first four bytes.
        let port = (event.element as usize & 0xff) as u8;
        // SAFETY: asked for where the element is the queue pair, which is not destroyed before the event is acknowledged, below.
        let number = || unsafe { (*event.element.cast::<raw::Qp>()).qp_num };
        let told = Event::of(event.event_type, port, number);
        // SAFETY: the event that was just got, acknowledged once.
        unsafe { (self.opened.symbols.ack_async_event)(&mut event) };
        Some(told)
    }

    pub(crate) fn make_nonblocking(&self, fd: RawFd) -> Result<(), VerbsError> {
        // SAFETY: plain system calls on a descriptor that is open.
        let done = unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFL);
            libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK)
        };
        if done < 0 { Err(VerbsError::last("fcntl")) } else { Ok(()) }
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.name)
    }
}

/// Whether a device pages on demand what reads and writes of connected queue pairs reach. What the header's
/// `ibv_query_device_ex` does: an extended context says so, any other cannot.
fn on_demand(opened: &Opened) -> bool {
    let context = opened.context;
    // SAFETY: an open context.
    if unsafe { (*context).abi_compat } != raw::EXTENDED {
        return false;
    }
    // SAFETY: an extended context has this in front of it, as far as `sz` reaches.
    let extended = unsafe { context.byte_sub(std::mem::offset_of!(raw::ExtendedContext, context)) }
        .cast::<raw::ExtendedContext>();
    // SAFETY: every extended context has this word.
    let reaches = unsafe { (*extended).sz } >= size_of::<raw::ExtendedContext>();
    // SAFETY: within what `sz` says.
    let Some(query) = (if reaches { unsafe { (*extended).query_device_ex } } else { None }) else {
        return false;
    };
    // SAFETY: an all-zero value is one of this plain C structure.
    let mut attr: raw::DeviceAttrEx = unsafe { std::mem::zeroed() };
    // SAFETY: an open context, no input, and a structure of the layout and size that are told.
    let code = unsafe { query(context, std::ptr::null(), &mut attr, size_of_val(&attr)) };
    let both = raw::ODP_SUPPORT_WRITE | raw::ODP_SUPPORT_READ;
    code == 0 && attr.odp_general & raw::ODP_SUPPORT != 0 && attr.odp_rc & both == both
}

/// MB/s of a speed and a width as ports tell them; a gigabyte for what is not known.
fn bandwidth_mbs(speed: u8, width: u8) -> u32 {
    // Tenths of Gbit/s of one lane: SDR, DDR, QDR, FDR10, FDR, EDR, HDR, and NDR as 128 & 255.
    let lane = match speed {
        1 => 25,
        2 => 50,
        4 | 8 => 100,
        16 => 140,
        32 => 250,
        64 => 500,
        128 => 1000,
        _ => return 1000,
    };
    let lanes = match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => return 1000,
    };
    lane * lanes * 100 / 8
}
