//! One reliable-datagram endpoint with everything it needs, as one owned value.
//!
//! What is safe by construction: handles are made in `open` and closed in `drop`, nowhere else, so nothing is used after
//! it was closed; buffers belong to the port, are with the library between a call and its completion and out of reach
//! meanwhile ([`Slot`] is given up to `send` and `read`), and are freed after the endpoint is closed. An endpoint that does
//! not close, or must not be closed with operations under way ([`Options::close_busy`]), is left open, and its memory is
//! never freed: that leaks, and harms nobody. Long, because only what is in this file can reach the handles.

use super::errno::Errno;
use super::info::Info;
use super::memory::Arena;
use super::{OfiError, raw};
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr::{NonNull, null, null_mut};

pub use super::raw::FiAddr;

/// Reads into memory that is not the port's, at once.
const READS: usize = 64;
/// Completions read in one call.
const BATCH: usize = 16;
/// Longest address that is taken from the library, in bytes.
const NAME_MAX: usize = 1024;

/// How a port is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Buffers for sends and reads: how many of which length in bytes, shortest first.
    pub buffers: Vec<(usize, usize)>,
    /// Receive buffers under way at once.
    pub receives: usize,
    /// The length of one, in bytes, where many messages go into one.
    pub receive_len: usize,
    /// Longest message that is received, in bytes.
    pub longest: usize,
    /// Many messages go into one buffer, where the provider offers that.
    pub multi_recv: bool,
    /// About how many peers there will be.
    pub peers: usize,
    /// Completions can be waited for by a file descriptor.
    pub waitable: bool,
    /// The endpoint may be closed with operations under way; some providers crash then.
    pub close_busy: bool,
    /// Sends are over when their buffers are free again, rather than when the peer has them. Otherwise what the
    /// provider promises by itself.
    pub early_completions: bool,
}

/// A buffer of the port that its holder may fill. Not to be copied: it is given up to a send or a read.
#[derive(Debug)]
pub struct Slot(usize);

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// A send.
    Send,
    /// A read of a peer's memory.
    Read,
    /// The same, into memory that is not the port's ([`Port::read_into`]).
    ReadInto,
    /// A posted receive.
    Receive,
}

/// Something that the library reports.
#[derive(Debug)]
pub enum Event<'a> {
    /// A whole message; its bytes are in the port's memory and valid during the call only.
    Arrived(&'a [u8]),
    /// A send is over; its buffer is free again.
    Sent {
        /// The caller's mark.
        mark: u64,
    },
    /// A read is over; its buffer is free after the call.
    Read {
        /// The caller's mark.
        mark: u64,
        /// What was read.
        bytes: &'a [u8],
    },
    /// A read into memory that is not the port's is over; the memory is the caller's again.
    ReadInto {
        /// The caller's mark.
        mark: u64,
    },
    /// An operation failed; its buffer is free again.
    Failed {
        /// Which kind.
        work: Work,
        /// The caller's mark (0 for receives).
        mark: u64,
        /// Why.
        error: Errno,
        /// The provider's own number.
        provider_error: i32,
    },
}

/// Memory of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// The key it was registered by.
    pub key: u64,
    /// Where the access starts: what [`Registration::base`] said, plus an offset.
    pub address: u64,
}

/// Memory of ours that peers may read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registration {
    /// What peers need.
    pub key: u64,
    /// The remote address of its first byte: 0, or its virtual address, as the provider wants it.
    pub base: u64,
}

/// Room for the library's own use in each operation (`struct fi_context2`).
#[repr(C)]
pub(super) struct Context(pub(super) UnsafeCell<[usize; 8]>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Free: for a receive, to be posted again.
    Idle,
    /// With the caller, as a [`Slot`].
    Held,
    /// With the library.
    Flying,
    /// Its endpoint was closed; its completion may still be in the queue, and is dropped.
    Orphan,
}

/// One operation's place: its buffer and what it does.
pub(super) struct Operation {
    offset: usize,
    capacity: usize,
    pub(super) work: Work,
    pub(super) stage: Stage,
    pub(super) mark: u64,
    pub(super) len: usize,
    /// Of a read into other memory: on which lane, and the memory's registration where the provider wants one.
    pub(super) lane: usize,
    pub(super) local: Option<NonNull<raw::Mr>>,
}

/// One endpoint. Calls must come from one thread at a time, which `&mut self` sees to.
pub struct Port {
    ep: NonNull<raw::Ep>,
    pub(super) cq: NonNull<raw::Cq>,
    pub(super) av: NonNull<raw::Av>,
    pub(super) domain: NonNull<raw::Domain>,
    fabric: NonNull<raw::Fabric>,
    /// The registration of `arena`, where the provider wants one.
    local: Option<NonNull<raw::Mr>>,
    registered: Vec<NonNull<raw::Mr>>,
    arena: Option<Arena>,
    pub(super) contexts: Box<[Context]>,
    pub(super) operations: Vec<Operation>,
    /// Free buffers of each class in `options.buffers`, last used first: its memory is in the cache.
    free: Vec<Vec<usize>>,
    to_post: Vec<usize>,
    pub(super) flying: usize,
    /// Endpoints for reads into other memory, the places of such reads that are free, and those of closed endpoints.
    pub(super) lanes: Vec<Option<NonNull<raw::Ep>>>,
    pub(super) free_reads: Vec<usize>,
    pub(super) orphans: Vec<usize>,
    multi_recv: bool,
    next_key: u64,
    name: Vec<u8>,
    fd: Option<RawFd>,
    pub(super) info: Info,
    pub(super) options: Options,
}

// SAFETY: the handles are used by one thread at a time (`&mut self`), which is all that FI_THREAD_DOMAIN wants.
unsafe impl Send for Port {}

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

    fn try_open(info: Info, options: Options) -> Result<Port, OfiError> {
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
        let set_least = || {
            if !(info.has().multi_recv && options.multi_recv) {
                return Ok(());
            }
            let least: usize = options.longest;
            // SAFETY: the endpoint is open, and keeps no pointer to the option's value.
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
        };
        // The option belongs before: but shm and sm2 have no place for it until they are enabled, and crash.
        let late = ["shm", "sm2"].contains(&&*info.provider());
        // SAFETY: all three were just opened.
        unsafe { bind_and_enable(ep, av, cq, || if late { Ok(()) } else { set_least() }) }?;
        if late {
            set_least()?;
        }
        let name = name_of(ep)?;

        let multi_recv = info.has().multi_recv && options.multi_recv;
        let mut operations = Vec::new();
        let mut free = Vec::new();
        let mut offset = 0;
        let mut place = |count: usize, capacity: usize, work| {
            for _ in 0..count {
                let stage = Stage::Idle;
                let (mark, len, lane, local) = (0, 0, 0, None);
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
        let free_reads = place(READS, 0, Work::ReadInto).rev().collect();
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
            flying: 0,
            lanes: Vec::new(),
            free_reads,
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

    /// The endpoint's address, for peers' [`Port::insert`].
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// What it was opened on.
    #[must_use]
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Sends and reads that the library has.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.flying
    }

    /// Resolves a peer's address.
    ///
    /// # Errors
    /// It is not one of this provider's.
    pub fn insert(&mut self, name: &[u8]) -> Result<FiAddr, Errno> {
        let mut name = name.to_vec();
        name.resize(name.len().max(64), 0); // providers read an address of their own length
        let mut addr = raw::ADDR_UNSPEC;
        // SAFETY: the vector is open; one address is read, one number written.
        let returned = unsafe {
            ((*(*self.av.as_ptr()).ops).insert)(
                self.av.as_ptr(),
                name.as_ptr().cast(),
                1,
                &mut addr,
                0,
                null_mut(),
            )
        };
        match Errno::check(returned as isize)? {
            1 if addr != raw::ADDR_UNSPEC => Ok(addr),
            _ => Err(Errno::ADDRNOTAVAIL),
        }
    }

    /// Forgets a peer's address; its connection, if it has one, ends.
    ///
    /// # Errors
    /// The provider's.
    pub fn remove(&mut self, mut addr: FiAddr) -> Result<(), Errno> {
        // SAFETY: the vector is open; one number is read.
        let returned =
            unsafe { ((*(*self.av.as_ptr()).ops).remove)(self.av.as_ptr(), &mut addr, 1, 0) };
        Errno::check(returned as isize).map(drop)
    }

    /// Sends a message of at most [`Info::inject_size`] bytes, copied before the call returns; nothing is reported.
    ///
    /// # Errors
    /// [`Errno::AGAIN`]: no room now. Others as the provider has them.
    #[inline]
    pub fn inject(&mut self, to: FiAddr, message: &[u8]) -> Result<(), Errno> {
        // SAFETY: the endpoint is open; the bytes are read during the call only.
        let returned = unsafe {
            ((*(*self.ep.as_ptr()).msg).inject)(
                self.ep.as_ptr(),
                message.as_ptr().cast(),
                message.len(),
                to,
            )
        };
        Errno::check(returned).map(drop)
    }

    /// A buffer for `len` bytes; `None` when all are under way.
    #[inline]
    pub fn buffer(&mut self, len: usize) -> Option<Slot> {
        for (class, &(_, capacity)) in self.options.buffers.iter().enumerate() {
            if capacity >= len
                && let Some(at) = self.free[class].pop()
            {
                self.operations[at].stage = Stage::Held;
                return Some(Slot(at));
            }
        }
        None
    }

    /// The bytes of a buffer.
    #[inline]
    pub fn bytes_mut(&mut self, slot: &Slot) -> &mut [u8] {
        let Operation { offset, capacity, .. } = self.operations[slot.0];
        let arena = self.arena.as_mut().expect("the arena is there until `drop`");
        arena.bytes_mut(offset..offset + capacity)
    }

    /// Gives a buffer back unused.
    pub fn give_back(&mut self, slot: Slot) {
        self.release(slot.0);
    }

    /// Sends the first `len` bytes of a buffer; [`Event::Sent`] or [`Event::Failed`] follows.
    ///
    /// # Errors
    /// As [`Port::inject`], and the buffer as it was.
    pub fn send(
        &mut self,
        slot: Slot,
        len: usize,
        to: FiAddr,
        mark: u64,
    ) -> Result<(), (Errno, Slot)> {
        let (buffer, desc, context) = self.prepare(&slot, len, Work::Send, mark);
        // SAFETY: the endpoint is open. The buffer is the library's from here until its completion is read, or the
        // endpoint is closed: its stage is `Flying`.
        let returned = unsafe {
            ((*(*self.ep.as_ptr()).msg).send)(
                self.ep.as_ptr(),
                buffer.cast_const(),
                len,
                desc,
                to,
                context,
            )
        };
        self.started(slot, returned)
    }

    /// Reads `len` bytes of a peer's memory into a buffer; [`Event::Read`] or [`Event::Failed`] follows.
    ///
    /// # Errors
    /// As [`Port::send`].
    pub fn read(
        &mut self,
        slot: Slot,
        len: usize,
        from: FiAddr,
        remote: Remote,
        mark: u64,
    ) -> Result<(), (Errno, Slot)> {
        let (buffer, desc, context) = self.prepare(&slot, len, Work::Read, mark);
        let rma = NonNull::new(
            // SAFETY: the endpoint is open.
            unsafe { (*self.ep.as_ptr()).rma }.cast_mut(),
        );
        let (Some(rma), true) = (rma, self.info.has().rma) else {
            return self.started(slot, -(Errno::OPNOTSUPP.0 as isize));
        };
        // SAFETY: as `send`; the library writes the buffer.
        let returned = unsafe {
            ((*rma.as_ptr()).read)(
                self.ep.as_ptr(),
                buffer,
                len,
                desc,
                from,
                remote.address,
                remote.key,
                context,
            )
        };
        self.started(slot, returned)
    }

    fn prepare(
        &mut self,
        slot: &Slot,
        len: usize,
        work: Work,
        mark: u64,
    ) -> (*mut c_void, *mut c_void, *mut c_void) {
        let operation = &mut self.operations[slot.0];
        assert!(operation.stage == Stage::Held && len <= operation.capacity, "{len} bytes");
        operation.work = work;
        operation.mark = mark;
        operation.len = len;
        operation.stage = Stage::Flying;
        let buffer = self.arena().at(self.operations[slot.0].offset).cast();
        (buffer, self.desc(), self.contexts[slot.0].0.get().cast())
    }

    fn started(&mut self, slot: Slot, returned: isize) -> Result<(), (Errno, Slot)> {
        match Errno::check(returned) {
            Ok(_) => {
                self.flying += 1;
                Ok(())
            }
            Err(error) => {
                self.operations[slot.0].stage = Stage::Held;
                Err((error, slot))
            }
        }
    }

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
        let mr = unsafe { self.register_raw(self.ep, start, len, raw::REMOTE_READ) }?;
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

    /// Reports what is over or has arrived, up to a few batches. Returns how much; 0 means idle.
    ///
    /// # Errors
    /// The completion queue itself failed (it overran): the port is of no use any more.
    #[inline]
    pub fn poll(&mut self, mut each: impl FnMut(Event<'_>)) -> Result<usize, Errno> {
        let mut entries = [const { MaybeUninit::<raw::CqEntry>::uninit() }; BATCH];
        let mut reports = 0;
        for _ in 0..4 {
            // SAFETY: the queue is open, and has entries of this format; up to BATCH are written.
            let returned = unsafe {
                ((*(*self.cq.as_ptr()).ops).read)(
                    self.cq.as_ptr(),
                    entries.as_mut_ptr().cast(),
                    BATCH,
                )
            };
            match Errno::check(returned) {
                Ok(0) | Err(Errno::AGAIN) => {
                    if !self.orphans.is_empty() {
                        self.forget_orphans();
                    }
                    break;
                }
                Err(Errno::AVAIL) => {
                    if !self.read_error(&mut each) {
                        break;
                    }
                    reports += 1;
                }
                Err(error) => return Err(error),
                Ok(count) => {
                    for entry in &entries[..count.min(BATCH)] {
                        // SAFETY: the call says that it wrote that many.
                        let entry = unsafe { entry.assume_init() };
                        self.completed(&entry, &mut each)?;
                    }
                    reports += count;
                    if count < BATCH {
                        break;
                    }
                }
            }
        }
        if !self.to_post.is_empty() {
            self.post()?;
        }
        Ok(reports)
    }

    #[inline]
    fn completed(
        &mut self,
        entry: &raw::CqEntry,
        each: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Errno> {
        let Some(at) = self.operation_of(entry.context) else {
            return Err(Errno::OTHER); // an operation that we never started
        };
        let Operation { offset, capacity, work, mark, len, stage, .. } = self.operations[at];
        match work {
            Work::ReadInto => {
                if stage == Stage::Flying {
                    self.finish_read_into(at);
                    each(Event::ReadInto { mark });
                }
            }
            Work::Send => {
                self.land(at);
                each(Event::Sent { mark });
            }
            Work::Read => {
                each(Event::Read { mark, bytes: self.arena().bytes(offset..offset + len) });
                self.land(at);
            }
            Work::Receive => {
                if entry.flags & raw::RECV != 0 {
                    let range = offset..offset + capacity;
                    let start = if self.multi_recv {
                        self.arena().locate(entry.buf.cast(), entry.len, &range)
                    } else {
                        (entry.len <= capacity).then_some(offset)
                    };
                    // A message outside of what was posted: nothing it says can be believed.
                    let start = start.ok_or(Errno::FAULT)?;
                    each(Event::Arrived(self.arena().bytes(start..start + entry.len)));
                }
                if !self.multi_recv || entry.flags & raw::MULTI_RECV != 0 {
                    self.operations[at].stage = Stage::Idle;
                    self.to_post.push(at);
                }
            }
        }
        Ok(())
    }

    #[cold]
    fn read_error(&mut self, each: &mut impl FnMut(Event<'_>)) -> bool {
        let mut entry = raw::CqErrEntry {
            context: null_mut(),
            flags: 0,
            len: 0,
            buf: null_mut(),
            data: 0,
            tag: 0,
            olen: 0,
            err: 0,
            prov_errno: 0,
            err_data: null_mut(),
            err_data_size: 0,
            later: [0; 8],
        };
        // SAFETY: the queue is open; one entry is written.
        let returned =
            unsafe { ((*(*self.cq.as_ptr()).ops).readerr)(self.cq.as_ptr(), &mut entry, 0) };
        if !matches!(Errno::check(returned), Ok(1)) {
            return false;
        }
        let (error, provider_error) = (Errno(entry.err), entry.prov_errno);
        let Some(at) = self.operation_of(entry.context) else {
            // Of an inject, or of nothing that has a name.
            each(Event::Failed { work: Work::Send, mark: 0, error, provider_error });
            return true;
        };
        let Operation { work, mark, stage, .. } = self.operations[at];
        match work {
            Work::ReadInto => {
                if stage == Stage::Flying {
                    self.finish_read_into(at);
                    each(Event::Failed { work, mark, error, provider_error });
                }
            }
            Work::Receive => {
                if !self.multi_recv || entry.flags & raw::MULTI_RECV != 0 {
                    self.operations[at].stage = Stage::Idle;
                    self.to_post.push(at);
                }
                each(Event::Failed { work, mark: 0, error, provider_error });
            }
            Work::Send | Work::Read => {
                self.land(at);
                each(Event::Failed { work, mark, error, provider_error });
            }
        }
        true
    }

    /// The operation whose context the library gave back; `None` when it is none of ours that is under way.
    #[inline]
    fn operation_of(&self, context: *const c_void) -> Option<usize> {
        let from_start = (context as usize).checked_sub(self.contexts.as_ptr() as usize)?;
        let at = from_start / size_of::<Context>();
        let whole = from_start.is_multiple_of(size_of::<Context>());
        let stage = self.operations.get(at)?.stage;
        (whole && matches!(stage, Stage::Flying | Stage::Orphan)).then_some(at)
    }

    fn land(&mut self, at: usize) {
        self.flying -= 1;
        self.release(at);
    }

    #[inline]
    fn release(&mut self, at: usize) {
        let operation = &mut self.operations[at];
        operation.stage = Stage::Idle;
        let capacity = operation.capacity;
        let class = self.options.buffers.iter().position(|&(_, length)| length == capacity);
        self.free[class.expect("a buffer has the length of its class")].push(at);
    }

    /// Posts the receives that are idle; those for which there is no room stay for the next time.
    fn post(&mut self) -> Result<(), Errno> {
        while let Some(at) = self.to_post.pop() {
            let Operation { offset, capacity, .. } = self.operations[at];
            let context = self.contexts[at].0.get().cast::<c_void>();
            let buffer = self.arena().at(offset).cast::<c_void>();
            let mut desc = self.desc();
            // SAFETY: the endpoint is open. The buffer is the library's until its completion is read, or the endpoint
            // is closed; what is described on the stack is read during the call only.
            let returned = unsafe {
                let msg = &*(*self.ep.as_ptr()).msg;
                if self.multi_recv {
                    let iov = libc::iovec { iov_base: buffer, iov_len: capacity };
                    let message = raw::Msg {
                        iov: &raw const iov,
                        desc: &raw mut desc,
                        iov_count: 1,
                        addr: raw::ADDR_UNSPEC,
                        context,
                        data: 0,
                    };
                    (msg.recvmsg)(self.ep.as_ptr(), &raw const message, raw::MULTI_RECV)
                } else {
                    let from = raw::ADDR_UNSPEC;
                    (msg.recv)(self.ep.as_ptr(), buffer, capacity, desc, from, context)
                }
            };
            match Errno::check(returned) {
                Ok(_) => self.operations[at].stage = Stage::Flying,
                Err(error) => {
                    self.to_post.push(at);
                    return if error == Errno::AGAIN { Ok(()) } else { Err(error) };
                }
            }
        }
        Ok(())
    }

    /// The descriptor that becomes readable when there may be something to [`Port::poll`]. `None`: something is there
    /// already, or there is no descriptor ([`Options::waitable`]).
    pub fn wait_on(&mut self) -> Option<RawFd> {
        let fd = self.fd?;
        let mut fids = [self.cq.as_ptr().cast::<raw::Fid>()];
        // SAFETY: fabric and queue are open; one pointer is read.
        let returned = unsafe {
            ((*(*self.fabric.as_ptr()).ops).trywait)(self.fabric.as_ptr(), fids.as_mut_ptr(), 1)
        };
        (returned == 0).then_some(fd)
    }

    /// Whether there is a descriptor to wait on at all.
    #[must_use]
    pub fn is_waitable(&self) -> bool {
        self.fd.is_some()
    }

    fn arena(&self) -> &Arena {
        self.arena.as_ref().expect("the arena is there until `drop`")
    }

    fn desc(&self) -> *mut c_void {
        // SAFETY: a registration that is open.
        self.local.map_or(null_mut(), |mr| unsafe { (*mr.as_ptr()).desc })
    }
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

impl Drop for Port {
    fn drop(&mut self) {
        let leak = |port: &mut Port| {
            std::mem::forget(port.arena.take());
            std::mem::forget(std::mem::take(&mut port.contexts));
        };
        if self.flying > 0 && !self.options.close_busy {
            leak(self);
            return;
        }
        if !self.close_lanes() {
            // Nobody can be told: who gave memory to a lane waits for `close_lane` before.
            leak(self);
            return;
        }
        // SAFETY: everything is open, closed once and in the order in which one may refer to the other: memory that
        // peers reach, the endpoint (from here on nothing reaches the arena), then the rest. When the endpoint does
        // not close, the rest is left as it is and the arena is not freed.
        unsafe {
            for mr in self.registered.drain(..) {
                let _ = close(mr.as_ptr().cast());
            }
            let local_first = self.info.mr_mode(raw::MR_ENDPOINT);
            if let (true, Some(mr)) = (local_first, self.local) {
                let _ = close(mr.as_ptr().cast());
            }
            if close(self.ep.as_ptr().cast()).is_err() {
                leak(self);
                return;
            }
            if let (false, Some(mr)) = (local_first, self.local) {
                let _ = close(mr.as_ptr().cast());
            }
            let _ = close(self.cq.as_ptr().cast());
            let _ = close(self.av.as_ptr().cast());
            let _ = close(self.domain.as_ptr().cast());
            let _ = close(self.fabric.as_ptr().cast());
        }
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port")
            .field("info", &self.info)
            .field("flying", &self.flying)
            .field("to_post", &self.to_post.len())
            .finish_non_exhaustive()
    }
}
