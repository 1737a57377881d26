//! A sink that notes what becomes of long frames, for tests.
#![allow(unsafe_code)] // regions of a buffer that outlives them

use ironweave_btl::memory::{OwnedBuffer, RecvRegion};
use ironweave_btl::{Descriptor, Fault, Landing, Peer, RmaDescriptor, Sink, Token};

pub(crate) struct Log {
    pub target: Option<OwnedBuffer>,
    pub asked: usize,
    pub frames: Vec<Vec<u8>>,
    pub landed: Vec<Result<(), Fault>>,
}

impl Log {
    /// Offers a buffer of so many bytes to frames, or none.
    pub(crate) fn new(direct: Option<usize>) -> Log {
        let target = direct.map(OwnedBuffer::zeroed);
        Log { target, asked: 0, frames: Vec::new(), landed: Vec::new() }
    }
}

impl Sink for Log {
    fn frame(&mut self, _: Peer, _: &[u8], payload: &[u8]) {
        self.frames.push(payload.to_vec());
    }
    fn landing(&mut self, _: Peer, _: &[u8], _: usize) -> Landing {
        self.asked += 1;
        match &self.target {
            None => Landing::Buffered,
            Some(target) => {
                // SAFETY: the buffer is looked at after the region came back only.
                let region = unsafe { target.recv_region() };
                Landing::Direct { region, token: Token(5) }
            }
        }
    }
    fn landed(&mut self, _: Peer, _: RecvRegion, _: Token, outcome: Result<(), Fault>) {
        self.landed.push(outcome);
    }
    fn completed(&mut self, _: Descriptor, _: Result<(), Fault>) {}
    fn rma_completed(&mut self, _: RmaDescriptor, _: Result<(), Fault>) {}
    fn up(&mut self, _: Peer) {}
    fn fault(&mut self, _: Fault) {}
    fn closed(&mut self, _: Peer) {}
}

/// The payload of the first message of a long frame.
pub(crate) fn first(len: usize, piece: &[u8]) -> Vec<u8> {
    [&(len as u32).to_le_bytes()[..], piece].concat()
}
