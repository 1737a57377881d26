//! The transports of one process as one closed type: a predictable branch instead of a virtual call.

use ironweave_btl::{
    Address, Armed, Btl, Caps, Counters, Descriptor, EndpointState, Fault, Loopback, Peer, Refused,
    RemoteKey, Residue, RmaDescriptor, Sink,
    memory::{RecvRegion, SendRegion},
};
use ironweave_btl_shm::Shm;
use ironweave_btl_tcp::Tcp;
use std::sync::Arc;

/// One opened transport of any component.
pub enum Rail {
    /// `self`.
    Loopback(Box<Loopback>),
    /// `shm`.
    Shm(Box<Shm>),
    /// `tcp`: one interface and link.
    Tcp(Box<Tcp>),
}

/// Calls the same method on whichever transport it is.
macro_rules! each {
    ($rail:expr, $btl:ident => $call:expr) => {
        match $rail {
            Rail::Shm($btl) => $call,
            Rail::Tcp($btl) => $call,
            Rail::Loopback($btl) => $call,
        }
    };
}

impl Btl for Rail {
    fn caps(&self) -> &Caps {
        each!(self, btl => btl.caps())
    }

    fn address(&self) -> Address {
        each!(self, btl => btl.address())
    }

    fn connect(&mut self, peer: Peer, address: &Address) -> Result<(), Fault> {
        each!(self, btl => btl.connect(peer, address))
    }

    #[inline]
    fn state(&self, peer: Peer) -> EndpointState {
        each!(self, btl => btl.state(peer))
    }

    #[inline]
    fn send_short(&mut self, peer: Peer, header: &[u8], payload: &[u8]) -> Result<(), Refused> {
        each!(self, btl => btl.send_short(peer, header, payload))
    }

    #[inline]
    fn send_bcopy<P>(
        &mut self,
        peer: Peer,
        header: &[u8],
        len: usize,
        pack: P,
    ) -> Result<(), Refused>
    where
        P: FnMut(usize, &mut [u8]),
    {
        each!(self, btl => btl.send_bcopy(peer, header, len, pack))
    }

    fn send_zcopy(&mut self, descriptor: Descriptor) -> Result<(), (Refused, Descriptor)> {
        each!(self, btl => btl.send_zcopy(descriptor))
    }

    fn rma(&mut self, descriptor: RmaDescriptor) -> Result<(), (Refused, RmaDescriptor)> {
        each!(self, btl => btl.rma(descriptor))
    }

    fn register_source(&mut self, region: &SendRegion) -> Result<RemoteKey, Refused> {
        each!(self, btl => btl.register_source(region))
    }

    fn register_target(&mut self, region: &RecvRegion) -> Result<RemoteKey, Refused> {
        each!(self, btl => btl.register_target(region))
    }

    fn deregister(&mut self, key: &RemoteKey) {
        each!(self, btl => btl.deregister(key));
    }

    #[inline]
    fn progress<S: Sink>(&mut self, sink: &mut S) -> usize {
        each!(self, btl => btl.progress(sink))
    }

    fn arm(&mut self) -> Armed {
        each!(self, btl => btl.arm())
    }

    fn invalidate<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        each!(self, btl => btl.invalidate(peer, residue, sink));
    }

    fn exclude<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        each!(self, btl => btl.exclude(peer, residue, sink));
    }

    fn unflushed(&self) -> usize {
        each!(self, btl => btl.unflushed())
    }

    fn depart(&mut self) {
        each!(self, btl => btl.depart());
    }

    fn counters(&self) -> Arc<Counters> {
        each!(self, btl => btl.counters())
    }

    fn dump(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        each!(self, btl => btl.dump(out))
    }
}
