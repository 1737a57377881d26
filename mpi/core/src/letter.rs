//! Messages of the library's own between two processes, of a length that the receiver does not know.

use ironweave_btl::{Btl, Peer};
use ironweave_pml::ob1::{
    Buffer, CommId, Mode, Ob1, Payload, PmlError, ReqId, Source, Started, TagMatch, Unpack,
};
use std::sync::{Arc, Mutex, PoisonError};

/// A message out.
pub(crate) enum Outgoing {
    Waiting(Payload),
    Sent(ReqId),
    Over,
}

/// A message in.
pub(crate) enum Incoming {
    Expected,
    Receiving(ReqId, Arc<Mutex<Vec<u8>>>),
}

struct Into(Arc<Mutex<Vec<u8>>>, usize);

impl Unpack for Into {
    fn capacity(&self) -> usize {
        self.1
    }

    fn unpack(&mut self, offset: usize, packed: &[u8]) {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bytes[offset..offset + packed.len()].copy_from_slice(packed);
    }
}

/// How far a message is.
pub(crate) enum Mail<T> {
    Pending,
    Resolve(Peer),
    Over(T),
    Failed(PmlError),
}

impl Outgoing {
    pub fn new(bytes: Vec<u8>) -> Self {
        Outgoing::Waiting(Payload::owned(bytes))
    }

    pub fn poll<B: Btl>(&mut self, pml: &mut Ob1<B>, comm: CommId, to: u32, tag: i32) -> Mail<()> {
        match self {
            Outgoing::Waiting(payload) => match pml.send(comm, Mode::Standard, payload, to, tag) {
                Ok(Started::Done) => {}
                Ok(Started::Pending(request)) => {
                    *self = Outgoing::Sent(request);
                    return Mail::Pending;
                }
                Err(PmlError::Unresolved(peer)) => return Mail::Resolve(peer),
                Err(error) => return Mail::Failed(error),
            },
            Outgoing::Sent(request) => match pml.test(*request).map(|done| done.result) {
                None => return Mail::Pending,
                Some(Ok(())) => {}
                Some(Err(error)) => return Mail::Failed(error),
            },
            Outgoing::Over => {}
        }
        *self = Outgoing::Over;
        Mail::Over(())
    }
}

impl Incoming {
    pub fn poll<B: Btl>(
        &mut self,
        pml: &mut Ob1<B>,
        comm: CommId,
        from: u32,
        tag: i32,
    ) -> Mail<Vec<u8>> {
        match self {
            Incoming::Expected => match pml.mprobe(comm, Source::Rank(from), TagMatch::Tag(tag)) {
                Ok(None) => Mail::Pending,
                Ok(Some((message, status))) => {
                    let bytes = Arc::new(Mutex::new(vec![0; status.bytes]));
                    let into = Into(Arc::clone(&bytes), status.bytes);
                    match pml.mrecv(message, Buffer::Convertor(Box::new(into))) {
                        Ok(request) => {
                            *self = Incoming::Receiving(request, bytes);
                            self.poll(pml, comm, from, tag)
                        }
                        Err(error) => Mail::Failed(error),
                    }
                }
                Err(error) => Mail::Failed(error),
            },
            Incoming::Receiving(request, bytes) => match pml.test(*request).map(|d| d.result) {
                None => Mail::Pending,
                Some(Ok(())) => {
                    let mut bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner);
                    Mail::Over(std::mem::take(&mut *bytes))
                }
                Some(Err(error)) => Mail::Failed(error),
            },
        }
    }
}
