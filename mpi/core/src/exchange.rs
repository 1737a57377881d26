//! Collectives of the library's own, on memory of its own: what creations of communicators tell each other.
//!
//! Never touches memory of users. A run that is dropped before its end leaks its buffers, so that messages under way
//! always find them (law 2).
#![allow(unsafe_code)] // lends buffers that it owns to the run

use ironweave_btl::memory::OwnedBuffer;
use ironweave_btl::{Btl, Peer};
use ironweave_coll::{Call, CollError, Context, Memory, Operation, Poll};
use ironweave_pml::ob1::Ob1;

/// One collective operation with its buffers.
pub(crate) struct Exchange {
    operation: Option<Box<Operation>>,
    send: Option<OwnedBuffer>,
    recv: Option<OwnedBuffer>,
    over: bool,
}

impl Exchange {
    /// Begins `call`, which counts in the order of calls from now on, with what this process contributes, and a result that
    /// starts out as `recv`.
    pub fn start(
        context: &mut Context,
        call: &Call,
        send: Vec<u8>,
        recv: Vec<u8>,
    ) -> Result<Self, CollError> {
        let (send, recv) = (OwnedBuffer::from(send), OwnedBuffer::from(recv));
        // SAFETY: both buffers are kept beside the operation, unread and unwritten until its run is over (`take` asks for
        // `over`), and never freed if it is not (`drop`).
        let memory = unsafe { Memory { send: send.send_region(), recv: recv.recv_region() } };
        let operation = Some(context.start(call, memory, None)?);
        Ok(Exchange { operation, send: Some(send), recv: Some(recv), over: false })
    }

    /// Replaces the beginning of the result of a run that has not been polled yet: for data that an earlier exchange brings.
    pub fn fill(&mut self, bytes: &[u8]) {
        if let Some(recv) = &mut self.recv {
            let length = bytes.len().min(recv.len());
            recv.as_mut_slice()[..length].copy_from_slice(&bytes[..length]);
        }
    }

    /// Moves it on.
    pub fn poll<B: Btl>(&mut self, pml: &mut Ob1<B>) -> Result<Step, CollError> {
        let Some(operation) = &mut self.operation else { return Ok(Step::Over) };
        match operation.runner().poll(pml) {
            Poll::Pending => Ok(Step::Pending),
            Poll::Resolve(peer) => Ok(Step::Resolve(peer)),
            Poll::Ready(outcome) => {
                self.over = true;
                outcome.map(|()| Step::Over)
            }
        }
    }

    /// The result of a run that is over.
    pub fn take(self) -> Vec<u8> {
        assert!(self.over, "the run is over");
        self.recv.as_ref().map_or_else(Vec::new, |recv| recv.as_slice().to_vec())
    }
}

/// How far an exchange is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Pending,
    /// The addresses of this process are wanted.
    Resolve(Peer),
    Over,
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let untouched =
            self.operation.as_mut().is_none_or(|operation| !operation.runner().is_active());
        if !untouched {
            self.send.take().into_iter().chain(self.recv.take()).for_each(OwnedBuffer::leak);
        }
    }
}
