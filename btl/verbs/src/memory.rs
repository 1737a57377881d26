//! Memory that the device touches: buffers to send from, buffers to receive into, control blocks, user memory.
//!
//! The only unsafe code of this transport. What makes it sound is a state for each buffer: a slot belongs to the device from
//! `post` until it is put back, which the owner does when its request came back or its queue pair is gone; a
//! receive belongs to the device from `post` until its completion. User memory is registered for one operation at a
//! time, while the operation holds the region, so a registration never outlives the promise that the memory stays
//! mapped: there is no cache that a `free` or `munmap` of the user could make stale, and no hook to notice them. Memory that
//! the user has from us is another matter (`cache.rs`), and so are devices that page on demand (`paged.rs`). Short operations
//! copy through a slot instead.
#![allow(unsafe_code)]

use crate::ring::{Found, Reader, Shape};
use ironweave_btl::lasting::Lasting;
use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_ffi_verbs::{
    Access, Device, Operation, Paging, QueuePair, Registration, Sge, SharedQueue, Slab, VerbsError,
};
use std::ops::Range;
use std::sync::Arc;

/// A buffer to send from, taken from [`Slots`].
#[derive(PartialEq, Eq, Debug)]
pub struct Slot(u32);

/// Buffers to send from, of one size.
pub struct Slots {
    slab: Slab,
    size: usize,
    free: Vec<u32>,
}

impl Slots {
    pub fn new(
        device: &Device,
        count: u32,
        size: usize,
        access: Access,
    ) -> Result<Slots, VerbsError> {
        let size = size.next_multiple_of(64);
        let slab = Slab::new(device, size * count as usize, access)?;
        Ok(Slots { slab, size, free: (0..count).rev().collect() })
    }

    pub fn take(&mut self) -> Option<Slot> {
        self.free.pop().map(Slot)
    }

    /// The device is done with it.
    pub fn put_back(&mut self, slot: Slot) {
        self.free.push(slot.0);
    }

    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// The bytes, to be filled before it is posted, or read after it came back.
    pub fn bytes(&mut self, slot: &Slot) -> &mut [u8] {
        // SAFETY: a slot in hand is not with the device before `piece` is posted and after its request came back;
        // `&mut self` excludes other slices.
        unsafe { self.slab.bytes_mut(slot.0 as usize * self.size, self.size) }
    }

    /// For a request of these bytes of it.
    pub fn piece(&self, slot: &Slot, part: Range<usize>) -> Sge {
        debug_assert!(part.end <= self.size);
        Sge {
            addr: self.slab.address(slot.0 as usize * self.size + part.start),
            length: part.len() as u32,
            lkey: self.slab.registration().lkey(),
        }
    }
}

/// Buffers to receive into, shared by all peers of a rail; more are added as peers come.
pub struct Receives {
    // The queue goes before the memory that is posted to it.
    queue: Arc<SharedQueue>,
    slabs: Vec<Slab>,
    size: usize,
    posted: u32,
    most: u32,
}

/// Buffers of one slab.
const SLAB: u32 = 64;

impl Receives {
    pub fn new(device: &Device, most: u32, size: usize) -> Result<Receives, VerbsError> {
        let queue = SharedQueue::new(device, most)?;
        Ok(Receives { queue, slabs: Vec::new(), size: size.next_multiple_of(64), posted: 0, most })
    }

    pub fn queue(&self) -> &Arc<SharedQueue> {
        &self.queue
    }

    /// Buffers that exist.
    pub fn count(&self) -> u32 {
        self.posted
    }

    /// Posts more, until there are at least `wanted` or the limit is reached.
    pub fn grow(&mut self, device: &Device, wanted: u32) -> Result<(), VerbsError> {
        while self.posted < wanted && self.posted + SLAB <= self.most {
            self.slabs.push(Slab::new(device, self.size * SLAB as usize, Access::LocalWrite)?);
            let first = self.posted;
            self.posted += SLAB;
            for index in first..first + SLAB {
                self.post(index.into())?;
            }
        }
        Ok(())
    }

    fn place(&self, index: u64) -> (&Slab, usize) {
        let index = index as usize;
        (&self.slabs[index / SLAB as usize], index % SLAB as usize * self.size)
    }

    /// Whether there is such a buffer.
    pub fn has(&self, index: u64) -> bool {
        index < u64::from(self.posted)
    }

    /// Gives a buffer (back) to the device.
    pub fn post(&self, index: u64) -> Result<(), VerbsError> {
        let (slab, offset) = self.place(index);
        let piece = Sge {
            addr: slab.address(offset),
            length: self.size as u32,
            lkey: slab.registration().lkey(),
        };
        // SAFETY: registered memory of our own that lives longer than the queue; nobody has a slice of it: `bytes`
        // is called between the completion and this call only.
        unsafe { self.queue.post(index, &piece) }
    }

    /// What was received into a buffer whose completion was just taken.
    pub fn bytes(&self, index: u64, len: usize) -> &[u8] {
        let (slab, offset) = self.place(index);
        // SAFETY: the device is done with a completed receive until it is posted again, for which `self` is needed
        // but not while this borrow lives and `post` follows it, as the only caller sees to.
        unsafe { slab.bytes(offset, len.min(self.size)) }
    }
}

/// Control blocks that peers write.
pub struct Controls {
    slabs: Vec<Slab>,
    used: u32,
    access: Access,
}

/// Blocks of one slab, and the distance between them: a cache line each, so that peers do not disturb one another.
const BLOCKS: u32 = 64;
const STRIDE: usize = 64;

impl Controls {
    pub fn new(access: Access) -> Controls {
        Controls { slabs: Vec::new(), used: 0, access }
    }

    /// A block nobody has; it is never given back: there is one for each peer.
    pub fn allocate(&mut self, device: &Device) -> Result<u32, VerbsError> {
        if self.used == self.slabs.len() as u32 * BLOCKS {
            self.slabs.push(Slab::new(device, BLOCKS as usize * STRIDE, self.access)?);
        }
        self.used += 1;
        Ok(self.used - 1)
    }

    fn place(&self, block: u32) -> (&Slab, usize) {
        (&self.slabs[(block / BLOCKS) as usize], (block % BLOCKS) as usize * STRIDE)
    }

    /// Address and right for the peer.
    pub fn remote(&self, block: u32) -> (u64, u32) {
        let (slab, offset) = self.place(block);
        (slab.address(offset), slab.registration().rkey())
    }

    /// Its two words as they are now.
    pub fn words(&self, block: u32) -> (u32, u32) {
        let (slab, offset) = self.place(block);
        (slab.word(offset), slab.word(offset + 4))
    }

    /// Writes it, before a new connection: no queue pair reaches it.
    pub fn reset(&mut self, block: u32, content: [u8; 8]) {
        let (slab, offset) = self.place(block);
        // SAFETY: the queue pair that could write it is gone, the next is not connected; `&mut self` excludes slices.
        unsafe { slab.bytes_mut(offset, 8) }.copy_from_slice(&content);
    }
}

/// Our ring for the short frames of one peer, which it may write while their queue pair lives. Registered for that life
/// alone, so that nobody who knew an earlier one can reach it.
pub struct Inbox {
    slab: Slab,
    reader: Reader,
}

impl Inbox {
    pub fn new(device: &Device, shape: Shape) -> Result<Inbox, VerbsError> {
        let slab = Slab::new(device, shape.bytes(), Access::RemoteWrite)?;
        Ok(Inbox { slab, reader: Reader::new(shape) })
    }

    /// Address and right for the peer.
    pub fn remote(&self) -> (u64, u32) {
        (self.slab.address(0), self.slab.registration().rkey())
    }

    /// Whether something may be in the next slot.
    #[inline]
    pub fn has_some(&self) -> bool {
        self.reader.has_lap(|word| self.slab.long(word * 8))
    }

    /// Copies the frame that is in the next slot, if it is whole.
    #[inline]
    pub fn look(&self, into: &mut [u64]) -> Found {
        self.reader.look(|word| self.slab.long(word * 8), into)
    }

    /// The frame in the next slot was taken.
    #[inline]
    pub fn took(&mut self) {
        self.reader.took();
    }
}

/// Registers user memory that an operation reads.
pub fn register_send(
    device: &Device,
    region: &SendRegion,
    access: Access,
    paging: Paging,
) -> Result<Registration, VerbsError> {
    // SAFETY: the region promises mapped memory while it lives; the caller keeps the registration no longer than the
    // region (with the operation, or until `deregister`) but for retired sources, whose pages the device holds itself
    // (`Open::retire` has none that is paged on demand), and devices only read it.
    unsafe { Registration::new(device, region.as_ptr().cast_mut(), region.len(), access, paging) }
}

/// Registers user memory that an operation writes.
pub fn register_receive(
    device: &Device,
    region: &RecvRegion,
    access: Access,
    paging: Paging,
) -> Result<Registration, VerbsError> {
    // SAFETY: as above; the region promises exclusive use.
    unsafe { Registration::new(device, region.as_mut_ptr(), region.len(), access, paging) }
}

/// Registers whole pages of the user's for operations of this side, on demand.
pub fn register_paged(
    device: &Device,
    pages: Range<usize>,
    access: Access,
) -> Result<Registration, VerbsError> {
    let start = std::ptr::without_provenance_mut(pages.start);
    // SAFETY: no peer has the key, and our own requests name regions only, which promise mapped memory while they live
    // (`rma.rs`); where something else is mapped there later, later requests mean that.
    unsafe { Registration::new(device, start, pages.len(), access, Paging::OnDemand) }
}

/// Registers a whole piece of lasting memory for operations of this side.
pub fn register_lasting(device: &Device, memory: &Lasting) -> Result<Registration, VerbsError> {
    // SAFETY: the memory stays mapped as long as `Kept`, which has both, and frees it after the registration.
    unsafe {
        Registration::new(device, memory.start(), memory.len(), Access::LocalWrite, Paging::Pinned)
    }
}

/// Posts a request whose memory is a slot, a control block or a registration that the caller keeps with the
/// request until it comes back or the queue pair is gone (`conn.rs`, `Work`).
#[inline]
pub fn post(
    queue_pair: &QueuePair,
    id: u64,
    operation: Operation<'_>,
    piece: &Sge,
    signalled: bool,
) -> Result<(), VerbsError> {
    // SAFETY: by the caller, as above: `Conn::post` puts every request's owner into `works` and takes it out only
    // when it is over.
    unsafe { queue_pair.post(id, operation, std::slice::from_ref(piece), signalled, false) }
}

/// Posts bytes that are copied during the call.
#[inline]
pub fn post_inline(
    queue_pair: &QueuePair,
    id: u64,
    operation: Operation<'_>,
    bytes: &[u8],
    signalled: bool,
) -> Result<(), VerbsError> {
    let piece = Sge { addr: bytes.as_ptr() as u64, length: bytes.len() as u32, lkey: 0 };
    // SAFETY: inline requests are read during the call, from a live slice.
    unsafe { queue_pair.post(id, operation, std::slice::from_ref(&piece), signalled, true) }
}

/// Buffers for greetings: those to receive are with the datagram queue pair, those to send with whoever took one.
pub struct Letters {
    slab: Slab,
    size: usize,
    receives: u32,
    count: u32,
    free: Vec<u32>,
}

impl Letters {
    /// `receives` and `sends` buffers of `size` bytes.
    pub fn new(
        device: &Device,
        receives: u32,
        sends: u32,
        size: usize,
    ) -> Result<Letters, VerbsError> {
        let size = size.next_multiple_of(64);
        let count = receives + sends;
        let slab = Slab::new(device, size * count as usize, Access::LocalWrite)?;
        Ok(Letters { slab, size, receives, count, free: (receives..count).collect() })
    }

    /// All buffers are with nobody: the queue pair was reset and its completions were taken. Posts all receives.
    pub fn renew(&mut self, queue_pair: &QueuePair) -> Result<(), VerbsError> {
        self.free = (self.receives..self.count).collect();
        self.post_all(queue_pair)
    }

    fn piece(&self, index: u32, len: usize) -> Sge {
        Sge {
            addr: self.slab.address(index as usize * self.size),
            length: len as u32,
            lkey: self.slab.registration().lkey(),
        }
    }

    /// Posts all receives.
    pub fn post_all(&self, queue_pair: &QueuePair) -> Result<(), VerbsError> {
        (0..self.receives).try_for_each(|index| self.post(queue_pair, index.into()))
    }

    /// Posts one receive (again).
    pub fn post(&self, queue_pair: &QueuePair, index: u64) -> Result<(), VerbsError> {
        let piece = self.piece(index as u32, self.size);
        // SAFETY: as `Receives::post`; `Verbs` drops the queue pair before the letters.
        unsafe { queue_pair.post_receive(index, &piece) }
    }

    /// Whether a completion is of a receive of ours.
    pub fn is_receive(&self, index: u64) -> bool {
        index < u64::from(self.receives)
    }

    /// What was received into a buffer whose completion was just taken.
    pub fn received(&self, index: u64, len: usize) -> &[u8] {
        // SAFETY: as `Receives::bytes`.
        unsafe { self.slab.bytes(index as usize * self.size, len.min(self.size)) }
    }

    /// Sends `bytes`; `false` when no buffer is free or the queue is full: whoever wants an answer asks again.
    pub fn send(&mut self, queue_pair: &QueuePair, operation: Operation<'_>, bytes: &[u8]) -> bool {
        let Some(index) = self.free.pop() else { return false };
        // SAFETY: a free buffer is not with the device; `&mut self` excludes other slices.
        let buffer = unsafe { self.slab.bytes_mut(index as usize * self.size, bytes.len()) };
        buffer.copy_from_slice(bytes);
        let piece = self.piece(index, bytes.len());
        if post(queue_pair, index.into(), operation, &piece, true).is_err() {
            self.free.push(index);
            return false;
        }
        true
    }

    /// A send is over.
    pub fn sent(&mut self, index: u64) {
        self.free.push(index as u32);
    }
}
