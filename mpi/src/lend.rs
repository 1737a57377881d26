//! Lends user memory to the engine: the only place of this crate where a slice becomes a region.
//!
//! Two kinds of callers: a blocking call, which takes the memory back before it returns, and a
//! [`Scope`](crate::Scope), which takes it back before the borrow ends.
#![allow(unsafe_code)]

use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_pml::ob1::Payload;
use std::mem::MaybeUninit;

/// # Safety
/// The engine gives the payload back (its request completes, or the engine is poisoned and never runs again) before the
/// borrow of `bytes` ends.
#[inline]
pub(crate) unsafe fn payload(bytes: &[u8]) -> Payload {
    // SAFETY: this function's contract.
    Payload::Contiguous(unsafe { self::bytes(bytes) })
}

/// # Safety
/// As [`payload`], and nobody reads or writes `bytes` until then.
#[inline]
pub(crate) unsafe fn buffer(bytes: &mut [u8]) -> RecvRegion {
    // SAFETY: borrowed exclusively until the engine gave it back, by this function's contract.
    unsafe { RecvRegion::new(bytes.as_mut_ptr(), bytes.len()) }
}

/// A borrow of memory that the engine may be using: it can be moved, which a plain `&mut` could not without a claim to
/// be the only one that uses the memory. A pointer taken through [`get_mut`](Lent::get_mut) stays good until
/// [`into_inner`](Lent::into_inner).
#[repr(transparent)]
pub(crate) struct Lent<B>(MaybeUninit<B>);

impl<B> Lent<B> {
    #[inline(always)]
    pub(crate) fn new(buffer: B) -> Self {
        Lent(MaybeUninit::new(buffer))
    }

    /// The borrow, to take a pointer from it.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self) -> &mut B {
        // SAFETY: initialised in `new`; nothing takes it out but `into_inner`, which ends `self`.
        unsafe { self.0.assume_init_mut() }
    }

    /// The borrow, to read the memory while the engine does not write it.
    pub(crate) fn get(&self) -> &B {
        // SAFETY: as in `get_mut`.
        unsafe { self.0.assume_init_ref() }
    }

    /// The borrow, once the engine gave the memory back.
    #[inline(always)]
    pub(crate) fn into_inner(self) -> B {
        // SAFETY: as in `get_mut`.
        unsafe { self.0.assume_init() }
    }
}

/// # Safety
/// As [`payload`].
pub(crate) unsafe fn bytes(bytes: &[u8]) -> SendRegion {
    // SAFETY: borrowed shared, hence valid and unwritten, until the engine gave it back, by this function's contract.
    unsafe { SendRegion::new(bytes.as_ptr(), bytes.len()) }
}
