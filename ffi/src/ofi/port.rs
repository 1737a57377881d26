//! One reliable-datagram endpoint with everything it needs, as one owned value.
//!
//! What is safe by construction: handles are made in `open` and closed in `drop` (lanes in `close_lane`), nowhere else, so
//! nothing is used after it was closed; buffers belong to the port, are with the library between a call and its completion
//! and out of reach meanwhile ([`Slot`] is given up to `send` and `read`), and are freed after the endpoint is closed. An
//! endpoint that does not close, or must not be closed ([`Options::closes`]), is left open, and its memory is never
//! freed: that leaks until the process ends, and harms nobody. `open`, `completion`, `registration` and `lane` hold the
//! port's other calls.

use super::errno::Errno;
use super::info::Info;
use super::memory::Arena;
use super::open::close;
use super::{raw, sockets};
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::os::fd::RawFd;
use std::ptr::{NonNull, null_mut};

pub use super::raw::FiAddr;

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
    /// Receive buffers of all lanes together, for many messages each, and the length of one in bytes. As many lanes as there are
    /// buffers for take messages ([`LANE_RECEIVES`] each); none without tags ([`Info::want_tags`]).
    pub lane_receives: (usize, usize),
    /// Longest message that a lane receives, in bytes, but for those into memory that is not the port's.
    pub lane_longest: usize,
    /// Completions can be waited for by a file descriptor.
    pub waitable: bool,
    /// When the endpoint may be closed.
    pub closes: Closes,
    /// Sends are over when their buffers are free again, rather than when the peer has them. Otherwise what the
    /// provider promises by itself.
    pub early_completions: bool,
}

/// When an endpoint may be closed: some providers crash at the wrong moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closes {
    /// At any moment.
    Busy,
    /// While none of its own operations is under way but receives.
    Idle,
    /// Never: peers may send meanwhile, which nobody here can stop.
    Never,
}

/// A buffer of the port that its holder may fill. Not to be copied: it is given up to a send or a read.
#[derive(Debug)]
pub struct Slot(usize);

impl Slot {
    pub(super) fn index(&self) -> usize {
        self.0
    }
}

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
    /// A send of a buffer over a lane ([`Port::send_over`]): nothing is reported but its failure.
    SendOver,
    /// The same, and its end is reported ([`Port::send_lent`]).
    SendLent,
    /// A send out of memory that is not the port's ([`Port::send_from`]).
    SendFrom,
    /// A receive into memory that is not the port's ([`Port::receive_into`]).
    ReceiveInto,
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
    /// A send out of memory that is not the port's, by [`Port::send_lent`] or [`Port::send_from`], is over; the memory is the caller's
    /// again.
    SentFrom {
        /// The caller's mark.
        mark: u64,
    },
    /// A receive into memory that is not the port's is over; the memory is the caller's again.
    ReceivedInto {
        /// The caller's mark.
        mark: u64,
        /// How many bytes came.
        len: usize,
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

/// Receive buffers of a lane that takes messages.
pub const LANE_RECEIVES: usize = 2;
/// The port's own endpoint.
pub(super) const NO_LANE: usize = usize::MAX;

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
    pub(super) offset: usize,
    pub(super) capacity: usize,
    pub(super) work: Work,
    pub(super) stage: Stage,
    pub(super) mark: u64,
    pub(super) len: usize,
    /// On which lane it is, or [`NO_LANE`]; and, of a read into other memory, that one's registration where the provider wants one.
    pub(super) lane: usize,
    pub(super) local: Option<NonNull<raw::Mr>>,
}

/// One endpoint. Calls must come from one thread at a time, which `&mut self` sees to.
pub struct Port {
    pub(super) ep: NonNull<raw::Ep>,
    pub(super) cq: NonNull<raw::Cq>,
    pub(super) av: NonNull<raw::Av>,
    pub(super) domain: NonNull<raw::Domain>,
    pub(super) fabric: NonNull<raw::Fabric>,
    /// The registration of `arena`, where the provider wants one.
    pub(super) local: Option<NonNull<raw::Mr>>,
    pub(super) registered: Vec<NonNull<raw::Mr>>,
    pub(super) arena: Option<Arena>,
    pub(super) contexts: Box<[Context]>,
    pub(super) operations: Vec<Operation>,
    /// Free buffers of each class in `options.buffers`, last used first: its memory is in the cache.
    pub(super) free: Vec<Vec<usize>>,
    pub(super) to_post: Vec<usize>,
    /// Completions that a look or a poll left for the next poll, which are taken before the queue is read again: what they name
    /// is not used anew before.
    pub(super) left: VecDeque<raw::CqEntry>,
    pub(super) flying: usize,
    pub(super) addresses: usize,
    /// Endpoints for other memory, the places of such operations that are free, receives for such endpoints, and what is left of
    /// closed ones.
    pub(super) lanes: Vec<Option<NonNull<raw::Ep>>>,
    pub(super) free_reads: Vec<usize>,
    pub(super) free_receives: Vec<usize>,
    pub(super) orphans: Vec<usize>,
    pub(super) multi_recv: bool,
    pub(super) next_key: u64,
    pub(super) name: Vec<u8>,
    pub(super) fd: Option<RawFd>,
    pub(super) info: Info,
    pub(super) options: Options,
}

// SAFETY: the handles are used by one thread at a time (`&mut self`), which is all that FI_THREAD_DOMAIN wants.
unsafe impl Send for Port {}

impl Port {
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
            1 if addr != raw::ADDR_UNSPEC => {
                self.addresses += 1;
                Ok(addr)
            }
            _ => Err(Errno::ADDRNOTAVAIL),
        }
    }

    /// Gives room for `bytes` bytes of input to each of the system's sockets that this endpoint has with the peer at
    /// `name`, or, by [`Port::name`], to all that peers will connect to. Only as much as the system allows. Tells
    /// how many there were: none where a provider's names are not those of sockets.
    pub fn make_room(&self, name: &[u8], bytes: usize) -> usize {
        sockets::make_room(name, bytes)
    }

    /// Ends the pacing of the system's connections within this host that one of the endpoints at `names` has. Tells how many there
    /// were that had one: none where a provider's names are not those of sockets.
    pub fn unpace(&self, names: &[&[u8]]) -> usize {
        sockets::unpace(names)
    }

    /// Whether an endpoint at `name` is on this host, by an address that is this endpoint's, too.
    #[must_use]
    pub fn is_near(&self, name: &[u8]) -> bool {
        sockets::are_near(&self.name, name)
    }

    /// Forgets a peer's address, which is not to be used any more: providers do not look whether it is there. One that was inserted
    /// twice may have the same number twice, and is forgotten when it was removed twice. No connection ends by it, unless
    /// `FI_AV_REMOVE_CLEANUP` is set.
    ///
    /// # Errors
    /// The provider's.
    pub fn remove(&mut self, mut addr: FiAddr) -> Result<(), Errno> {
        // SAFETY: the vector is open; one number is read.
        let returned =
            unsafe { ((*(*self.av.as_ptr()).ops).remove)(self.av.as_ptr(), &mut addr, 1, 0) };
        Errno::check(returned as isize)?;
        self.addresses -= 1;
        Ok(())
    }

    /// How many addresses were inserted and not removed.
    #[must_use]
    pub fn addresses(&self) -> usize {
        self.addresses
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

    pub(super) fn prepare(
        &mut self,
        slot: &Slot,
        len: usize,
        work: Work,
        mark: u64,
    ) -> (*mut c_void, *mut c_void, *mut c_void) {
        let operation = &mut self.operations[slot.0];
        assert!(operation.stage == Stage::Held && len <= operation.capacity, "{len} bytes");
        (operation.work, operation.mark, operation.len) = (work, mark, len);
        (operation.stage, operation.lane) = (Stage::Flying, NO_LANE);
        let buffer = self.arena().at(self.operations[slot.0].offset).cast();
        (buffer, self.desc(), self.contexts[slot.0].0.get().cast())
    }

    pub(super) fn started(&mut self, slot: Slot, returned: isize) -> Result<(), (Errno, Slot)> {
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

    pub(super) fn land(&mut self, at: usize) {
        self.flying -= 1;
        self.release(at);
    }

    #[inline]
    pub(super) fn release(&mut self, at: usize) {
        let operation = &mut self.operations[at];
        operation.stage = Stage::Idle;
        let capacity = operation.capacity;
        let class = self.options.buffers.iter().position(|&(_, length)| length == capacity);
        self.free[class.expect("a buffer has the length of its class")].push(at);
    }

    /// The descriptor that becomes readable when there may be something to [`Port::poll`]. `None`: something is there
    /// already, or there is no descriptor ([`Options::waitable`]).
    pub fn wait_on(&mut self) -> Option<RawFd> {
        let fd = self.fd.filter(|_| self.left.is_empty())?;
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

    pub(super) fn arena(&self) -> &Arena {
        self.arena.as_ref().expect("the arena is there until `drop`")
    }

    pub(super) fn desc(&self) -> *mut c_void {
        // SAFETY: a registration that is open.
        self.local.map_or(null_mut(), |mr| unsafe { (*mr.as_ptr()).desc })
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let leak = |port: &mut Port| {
            std::mem::forget(port.arena.take());
            std::mem::forget(std::mem::take(&mut port.contexts));
        };
        let may_close = match self.options.closes {
            Closes::Busy => true,
            Closes::Idle => self.flying == 0,
            Closes::Never => false,
        };
        if !may_close {
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
