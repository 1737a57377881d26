//! Opening a port: fabric, domain, vector, queue, endpoint, buffers, receives; what was made before a step that failed is
//! closed again.

use super::errno::Errno;
use super::info::Info;
use super::memory::Arena;
use super::port::{Context, NO_LANE, Operation, Options, Port, Stage, Work};
use super::{OfiError, raw};
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null, null_mut};

/// Operations with memory that is not the port's, at once.
const FOREIGN: usize = 256;
/// Longest address that is taken from the library, in bytes.
const NAME_MAX: usize = 1024;

/// Handles that were made and are to be closed again when the next step of `open` fails.
#[derive(Default)]
struct Made(Vec<*mut raw::Fid>);

impl Made {
    fn keep<T>(&mut self, made: *mut T, call: &'static str) -> Result<NonNull<T>, OfiError> {
        let object = NonNull::new(made).ok_or(OfiError::Call { call, error: Errno::OTHER })?;
        self.0.push(made.cast()); // every object begins with its `fid`
        Ok(object)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for fid in self.0.drain(..).rev() {
            // SAFETY: made and not closed; nothing was started on it.
            let _ = unsafe { close(fid) };
        }
    }
}

/// Closes an object.
///
/// # Safety
/// It is open, and is not used again when the answer is `Ok`.
pub(super) unsafe fn close(fid: *mut raw::Fid) -> Result<usize, Errno> {
    // SAFETY: by contract; every object has its table.
    Errno::check(unsafe { ((*(*fid).ops).close)(fid) } as isize)
}

pub(super) fn called(call: &'static str, returned: c_int) -> Result<(), OfiError> {
    Errno::check(returned as isize).map(drop).map_err(|error| OfiError::Call { call, error })
}

impl Port {
    /// Opens an endpoint on `info`, with its receives posted. Where the provider has nothing to wait on it is opened without.
    ///
    /// # Errors
    /// Which call failed and how.
    pub fn open(info: Info, mut options: Options) -> Result<Port, OfiError> {
        match Self::try_open(info.clone(), options.clone()) {
            Err(OfiError::Call { error: Errno::NOSYS | Errno::OPNOTSUPP, .. })
                if options.waitable =>
            {
                options.waitable = false;
                Self::try_open(info, options)
            }
            other => other,
        }
    }

    fn try_open(mut info: Info, options: Options) -> Result<Port, OfiError> {
        let ofi = info.ofi();
        let mut made = Made::default();
        // SAFETY (this and the following calls): the objects are open, the attributes valid for the call, and what
        // is written is read only after success. `info` is not changed by them but where the interface says so.
        let mut fabric = null_mut();
        // SAFETY: see above.
        let returned = unsafe { (ofi.fabric)((*info.raw()).fabric_attr, &mut fabric, null_mut()) };
        called("fi_fabric", returned)?;
        let fabric = made.keep(fabric, "fi_fabric")?;
        let mut domain = null_mut();
        // SAFETY: see above.
        let returned = unsafe {
            ((*(*fabric.as_ptr()).ops).domain)(fabric.as_ptr(), info.raw(), &mut domain, null_mut())
        };
        called("fi_domain", returned)?;
        let domain = made.keep(domain, "fi_domain")?;
        let mut attr = raw::AvAttr {
            kind: match info.domain_attr().av_type {
                0 => raw::AV_TABLE,
                kind => kind,
            },
            rx_ctx_bits: 0,
            count: options.peers,
            ep_per_node: 0,
            name: null(),
            map_addr: null_mut(),
            flags: 0,
        };
        let mut av = null_mut();
        // SAFETY: see above.
        let returned = unsafe {
            ((*(*domain.as_ptr()).ops).av_open)(domain.as_ptr(), &mut attr, &mut av, null_mut())
        };
        called("fi_av_open", returned)?;
        let av = made.keep(av, "fi_av_open")?;
        let buffers: usize = options.buffers.iter().map(|(count, _)| count).sum();
        let (tx, rx) = info.queue_sizes();
        let mut attr = raw::CqAttr {
            // Each operation and each message that one receive may take can have an entry at once.
            size: (tx.min(16384) + rx.min(16384)).max(2 * buffers + 4096),
            flags: 0,
            format: raw::CQ_FORMAT_DATA,
            wait_obj: if options.waitable { raw::WAIT_FD } else { raw::WAIT_NONE },
            signaling_vector: 0,
            wait_cond: 0,
            wait_set: null_mut(),
        };
        let mut cq = null_mut();
        // SAFETY: see above.
        let returned = unsafe {
            ((*(*domain.as_ptr()).ops).cq_open)(domain.as_ptr(), &mut attr, &mut cq, null_mut())
        };
        called("fi_cq_open", returned)?;
        let cq = made.keep(cq, "fi_cq_open")?;
        let mut fd: c_int = -1;
        if options.waitable {
            // SAFETY: GETWAIT of a queue with FI_WAIT_FD writes one descriptor.
            let returned = unsafe {
                ((*(*cq.as_ptr()).fid.ops).control)(
                    cq.as_ptr().cast(),
                    raw::GETWAIT,
                    (&raw mut fd).cast(),
                )
            };
            called("fi_control(FI_GETWAIT)", returned)?;
        }
        if options.early_completions {
            // SAFETY: `info` is this port's own, its attributes are there (invariant of `Info`).
            unsafe { (*(*info.raw()).tx_attr).op_flags = raw::INJECT_COMPLETE };
        }
        let mut ep = null_mut();
        // SAFETY: see above.
        let returned = unsafe {
            ((*(*domain.as_ptr()).ops).endpoint)(domain.as_ptr(), info.raw(), &mut ep, null_mut())
        };
        called("fi_endpoint", returned)?;
        let ep = made.keep(ep, "fi_endpoint")?;
        let set_least = || match info.has().multi_recv && options.multi_recv {
            // SAFETY: the endpoint is open.
            true => unsafe { set_least(ep, options.longest) },
            false => Ok(()),
        };
        // The option belongs before: but shm and sm2 have no place for it until they are enabled, and crash.
        let late = ["shm", "sm2"].contains(&&*info.provider());
        // SAFETY: all three were just opened.
        unsafe { bind_and_enable(ep, av, cq, || if late { Ok(()) } else { set_least() }) }?;
        if late {
            set_least()?;
        }
        let name = name_of(ep)?;
        info.forget_port();

        let multi_recv = info.has().multi_recv && options.multi_recv;
        let mut operations = Vec::new();
        let mut free = Vec::new();
        let mut offset = 0;
        let mut place = |count: usize, capacity: usize, work| {
            for _ in 0..count {
                let stage = Stage::Idle;
                let (mark, len, lane, local) = (0, 0, NO_LANE, None);
                operations.push(Operation {
                    offset,
                    capacity,
                    work,
                    stage,
                    mark,
                    len,
                    lane,
                    local,
                });
                offset += capacity.next_multiple_of(64);
            }
            operations.len() - count..operations.len()
        };
        let receive_len = if multi_recv { options.receive_len } else { options.longest };
        let to_post = place(options.receives, receive_len, Work::Receive).collect();
        for &(count, capacity) in &options.buffers {
            free.push(place(count, capacity, Work::Send).rev().collect());
        }
        let free_reads = place(FOREIGN, 0, Work::ReadInto).rev().collect();
        let (lane_receives, lane_receive_len) = match multi_recv && info.has_tags() {
            true => options.lane_receives,
            false => (0, 0),
        };
        let free_receives = place(lane_receives, lane_receive_len, Work::Receive).rev().collect();
        let contexts =
            operations.iter().map(|_| Context(UnsafeCell::new([0; 8]))).collect::<Box<[_]>>();
        let arena = Arena::new(offset);
        made.0.clear(); // From here on the port closes them.
        let mut port = Port {
            ep,
            cq,
            av,
            domain,
            fabric,
            local: None,
            registered: Vec::new(),
            arena: Some(arena),
            contexts,
            operations,
            free,
            to_post,
            left: VecDeque::new(),
            flying: 0,
            addresses: 0,
            lanes: Vec::new(),
            free_reads,
            free_receives,
            orphans: Vec::new(),
            multi_recv,
            next_key: 1,
            name,
            fd: options.waitable.then_some(fd),
            info,
            options,
        };
        if port.info.mr_mode(raw::MR_LOCAL) {
            let (start, len) = (port.arena().at(0), port.arena().len());
            let access = raw::SEND | raw::RECV | raw::READ | raw::WRITE;
            // SAFETY: the arena is not freed before this registration is closed (`drop`).
            let local = unsafe { port.register_raw(port.ep, start, len, access) };
            port.local = Some(local.map_err(|error| OfiError::Call { call: "fi_mr_reg", error })?);
        }
        port.post().map_err(|error| OfiError::Call { call: "fi_recv", error })?;
        Ok(port)
    }
}

/// Has a buffer for many messages be given back when less than a message of `least` bytes fits.
///
/// # Safety
/// The endpoint is open.
pub(super) unsafe fn set_least(ep: NonNull<raw::Ep>, least: usize) -> Result<(), OfiError> {
    // SAFETY: by contract; it keeps no pointer to the option's value.
    let returned = unsafe {
        ((*(*ep.as_ptr()).ops).setopt)(
            ep.as_ptr().cast(),
            raw::OPT_ENDPOINT,
            raw::OPT_MIN_MULTI_RECV,
            (&raw const least).cast::<c_void>(),
            size_of::<usize>(),
        )
    };
    called("fi_setopt(FI_OPT_MIN_MULTI_RECV)", returned)
}

/// Binds an endpoint to its vector and queue and enables it.
///
/// # Safety
/// All three are open, of one domain, and the endpoint is new.
pub(super) unsafe fn bind_and_enable(
    ep: NonNull<raw::Ep>,
    av: NonNull<raw::Av>,
    cq: NonNull<raw::Cq>,
    between: impl FnOnce() -> Result<(), OfiError>,
) -> Result<(), OfiError> {
    let fid = ep.as_ptr().cast::<raw::Fid>();
    // SAFETY: by contract.
    unsafe {
        let ops = &*(*fid).ops;
        called("fi_ep_bind(av)", (ops.bind)(fid, av.as_ptr().cast(), 0))?;
        let both = raw::TRANSMIT | raw::RECV;
        called("fi_ep_bind(cq)", (ops.bind)(fid, cq.as_ptr().cast(), both))?;
        between()?;
        called("fi_enable", (ops.control)(fid, raw::ENABLE, null_mut()))
    }
}

pub(super) fn name_of(ep: NonNull<raw::Ep>) -> Result<Vec<u8>, OfiError> {
    let mut name = vec![0; NAME_MAX];
    let mut len = name.len();
    // SAFETY: the endpoint is open; at most `len` bytes are written, and `len` is set to the address's length.
    let returned = unsafe {
        ((*(*ep.as_ptr()).cm).getname)(ep.as_ptr().cast(), name.as_mut_ptr().cast(), &mut len)
    };
    called("fi_getname", returned)?;
    name.truncate(len);
    Ok(name)
}
