//! The memory of one run: what the caller lent, and scratch. The only place of this crate where a byte range becomes a
//! slice or a region (blueprint, "registration of user memory").
//!
//! Bytes are lent for a run and given back when every message of it is over (law 2). Derived datatypes will come in
//! here: [`Areas::outgoing`] and [`Areas::incoming`] are where a range of a buffer becomes a payload of the PML.
#![allow(unsafe_code)] // regions are cut from the caller's and from scratch memory

use crate::schedule::{At, Sizes, Space, Span};
use ironweave_btl::memory::{OwnedBuffer, RecvRegion, SendRegion};

/// What a caller lends to one run: its makers promise that it stays valid, and untouched by others, until the run is over.
#[derive(Debug)]
pub struct Memory {
    /// What this process contributes; empty where it contributes nothing, or in place.
    pub send: SendRegion,
    /// Where its result goes; contributions in place are in it. Empty where there is none.
    pub recv: RecvRegion,
}

impl Memory {
    /// Nothing: for a barrier.
    #[must_use]
    pub fn none() -> Self {
        Memory { send: SendRegion::of_static(&[]), recv: RecvRegion::empty() }
    }

    /// The same memory, for whoever goes on with the run.
    pub(crate) fn again(&self) -> Memory {
        Memory { send: self.send.clone(), recv: self.recv.part(0..self.recv.len()) }
    }

    /// In place, and operations with one buffer.
    #[must_use]
    pub fn in_place(recv: RecvRegion) -> Self {
        Memory { recv, ..Self::none() }
    }
}

/// Alignment of scratch memory.
const ALIGN: usize = 64;

/// The buffers of a run.
#[derive(Debug)]
pub(crate) struct Spaces {
    lent: Memory,
    scratch: RecvRegion,
    // `None` only after `leak`.
    owner: Option<OwnedBuffer>,
}

impl Spaces {
    /// With scratch memory of this many bytes.
    pub fn new(scratch: usize) -> Self {
        if scratch == 0 {
            return Spaces { lent: Memory::none(), scratch: RecvRegion::empty(), owner: None };
        }
        let owner = OwnedBuffer::zeroed(scratch + ALIGN);
        // SAFETY: `owner` lives as long as `self`, or for ever (`leak`), and is reached through this region only.
        let whole = unsafe { owner.recv_region() };
        let skip = whole.as_mut_ptr().align_offset(ALIGN).min(ALIGN);
        Spaces {
            lent: Memory::none(),
            scratch: whole.part(skip..skip + scratch),
            owner: Some(owner),
        }
    }

    /// Takes the caller's memory, of which [`fits`] has been asked.
    #[inline]
    pub fn lend(&mut self, memory: Memory) {
        self.lent = memory;
    }

    /// The buffers of the run that was lent its memory.
    #[inline]
    pub const fn areas(&self) -> Areas<'_> {
        Areas { lent: &self.lent, scratch: &self.scratch }
    }

    /// The buffers of a run that keeps nothing of this memory.
    #[inline]
    pub const fn with<'a>(&'a self, memory: &'a Memory) -> Areas<'a> {
        Areas { lent: memory, scratch: &self.scratch }
    }

    /// Lets go of the caller's memory.
    pub fn give_back(&mut self) {
        self.lent = Memory::none();
    }

    /// Never frees scratch memory: messages use it that nobody will wait for.
    pub fn leak(&mut self) {
        if let Some(owner) = self.owner.take() {
            owner.leak();
        }
    }
}

/// Whether the caller's memory is long enough; else the buffer that is not, what it needs and has.
#[inline]
pub(crate) const fn fits(
    memory: &Memory,
    sizes: Sizes,
) -> Result<(), (&'static str, usize, usize)> {
    if memory.send.len() < sizes.send {
        return Err(("send", sizes.send, memory.send.len()));
    }
    if memory.recv.len() < sizes.recv {
        return Err(("receive", sizes.recv, memory.recv.len()));
    }
    Ok(())
}

/// Where the ranges of a schedule are.
#[derive(Clone, Copy)]
pub(crate) struct Areas<'a> {
    lent: &'a Memory,
    scratch: &'a RecvRegion,
}

impl Areas<'_> {
    #[inline(always)]
    fn start(&self, at: At, len: usize) -> *const u8 {
        let range = at.offset()..at.offset() + len;
        match at.space() {
            Space::Send => self.lent.send.part(range).as_ptr(),
            Space::Recv => self.lent.recv.part(range).as_mut_ptr(),
            Space::Scratch => self.scratch.part(range).as_mut_ptr(),
        }
    }

    #[inline(always)]
    fn start_mut(&self, at: At, len: usize) -> *mut u8 {
        let range = at.offset()..at.offset() + len;
        match at.space() {
            Space::Send => panic!("the schedule writes the send buffer"),
            Space::Recv => self.lent.recv.part(range).as_mut_ptr(),
            Space::Scratch => self.scratch.part(range).as_mut_ptr(),
        }
    }

    /// A message's bytes.
    ///
    /// # Safety
    /// While the region is in use nothing writes `span`: no receive that is under way, no local step.
    #[inline]
    pub unsafe fn outgoing(&self, span: Span) -> SendRegion {
        if span.is_empty() {
            return SendRegion::of_static(&[]);
        }
        // SAFETY: inside of memory that its maker promised to keep valid until the run is over; unwritten by contract.
        unsafe { SendRegion::new(self.start(span.at(), span.len()), span.len()) }
    }

    /// Where a message goes.
    ///
    /// # Safety
    /// While the region is in use nothing else reads or writes `span`.
    #[inline]
    pub unsafe fn incoming(&self, span: Span) -> RecvRegion {
        if span.is_empty() {
            return RecvRegion::empty();
        }
        // SAFETY: inside of memory lent for reading and writing until the run is over; exclusive by contract.
        unsafe { RecvRegion::new(self.start_mut(span.at(), span.len()), span.len()) }
    }

    /// Gives `work` the bytes of `from`, and those of `into`, of the same length, to change.
    ///
    /// # Panics
    /// When the two overlap or are outside of their buffers.
    ///
    /// # Safety
    /// No message of the run is under way, and no other local step.
    #[inline]
    pub unsafe fn local(self, from: Span, into: At, work: impl FnOnce(&[u8], &mut [u8])) {
        let len = from.len();
        assert!(
            !Span::new(into.space(), into.offset(), len).overlaps(from),
            "{from:?} and {into:?} overlap"
        );
        if len == 0 {
            return;
        }
        let (source, target) = (self.start(from.at(), len), self.start_mut(into, len));
        // SAFETY: both are inside of memory that the run may use, by the checks in `start`; different spaces are different
        // memory by the promises of their makers, and within one space they do not overlap, as asserted. Nobody else uses
        // them now, by contract.
        let (source, target) = unsafe {
            (std::slice::from_raw_parts(source, len), std::slice::from_raw_parts_mut(target, len))
        };
        work(source, target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_are_apart_and_scratch_is_aligned() {
        let mut spaces = Spaces::new(100);
        let user = OwnedBuffer::zeroed(8);
        // SAFETY: `user` outlives the region and is not touched before it was given back.
        let recv = unsafe { user.recv_region() };
        let memory = Memory { send: SendRegion::of_static(b"operands"), recv };
        fits(&memory, Sizes { send: 8, recv: 8, ..Sizes::default() }).expect("long enough");
        spaces.lend(memory);
        let scratch = Span::new(Space::Scratch, 64, 8);
        // SAFETY: there are no messages.
        unsafe {
            let areas = spaces.areas();
            areas.local(Span::new(Space::Send, 0, 8), scratch.at(), |a, b| b.copy_from_slice(a));
            areas.local(scratch.part(2, 4), At::new(Space::Recv, 1), |a, b| b.copy_from_slice(a));
            assert_eq!(areas.outgoing(scratch).as_ptr() as usize % ALIGN, 0);
        }
        spaces.give_back();
        assert_eq!(user.as_slice(), b"\0eran\0\0\0");
    }

    #[test]
    fn short_buffers_are_named() {
        let sizes = Sizes { send: 0, recv: 9, ..Sizes::default() };
        assert_eq!(fits(&Memory::none(), sizes), Err(("receive", 9, 0)));
    }

    #[test]
    #[should_panic(expected = "overlap")]
    fn overlapping_operands_are_caught() {
        let spaces = Spaces::new(100);
        // SAFETY: there are no messages.
        unsafe {
            spaces.areas().local(
                Span::new(Space::Scratch, 0, 10),
                At::new(Space::Scratch, 5),
                |_, _| {},
            );
        }
    }
}
