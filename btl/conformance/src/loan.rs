//! Buffers lent to a transport. The only place of the suite that makes regions.
#![allow(unsafe_code)]

use crate::pattern;
use ironweave_btl::memory::{OwnedBuffer, RecvRegion, SendRegion};

/// What a buffer is filled with when its operation is over.
const CANARY: u64 = 0xc0a1_a51d_0000_c0a1;

/// A buffer that a transport uses for a while. While it is lent nobody here touches it; freeing it unreturned
/// would be unsound, so it is leaked then.
#[derive(Debug)]
pub(crate) struct Loan {
    buffer: Option<OwnedBuffer>,
    lent: bool,
}

impl Loan {
    /// A buffer with the pattern of `key`.
    pub(crate) fn patterned(key: u64, offset: usize, len: usize) -> Self {
        let mut buffer = OwnedBuffer::zeroed(len);
        pattern::fill(key, offset, buffer.as_mut_slice());
        Loan { buffer: Some(buffer), lent: false }
    }

    /// A buffer of canary bytes to receive into.
    pub(crate) fn blank(len: usize) -> Self {
        Self::patterned(CANARY, 0, len)
    }

    fn buffer(&self) -> &OwnedBuffer {
        self.buffer.as_ref().expect("a loan holds its buffer until it is dropped")
    }

    pub(crate) fn len(&self) -> usize {
        self.buffer().len()
    }

    pub(crate) fn lend_source(&mut self) -> SendRegion {
        self.lent = true;
        // SAFETY: while `lent`, `bytes` and `scribble` refuse, and `drop` leaks: the buffer is neither written nor
        // freed until `returned` says that the transport gave it back.
        unsafe { self.buffer().send_region() }
    }

    pub(crate) fn lend_target(&mut self) -> RecvRegion {
        self.lent = true;
        // SAFETY: as `lend_source`; `bytes` refuses too, so nobody reads it either.
        unsafe { self.buffer().recv_region() }
    }

    /// The transport gave every region of it back.
    pub(crate) fn returned(&mut self) {
        self.lent = false;
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        assert!(!self.lent, "reading a buffer that is lent");
        self.buffer().as_slice()
    }

    /// Fills a returned buffer with canary bytes: whoever reads it now gets wrong data, whoever writes it is seen.
    pub(crate) fn scribble(&mut self) {
        assert!(!self.lent, "writing a buffer that is lent");
        let buffer = self.buffer.as_mut().expect("a loan holds its buffer until it is dropped");
        pattern::fill(CANARY, 0, buffer.as_mut_slice());
    }

    /// Where the canary is dead: the first byte that is not as [`Loan::scribble`] left it, from `from` on.
    pub(crate) fn disturbed(&self, from: usize) -> Option<usize> {
        pattern::mismatch(CANARY, from, &self.bytes()[from..])
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if self.lent
            && let Some(buffer) = self.buffer.take()
        {
            buffer.leak();
        }
    }
}
