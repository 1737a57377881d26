//! The transports of one process as one closed type: a predictable branch instead of a virtual call.

use ironweave_btl::{
    Address, Armed, Btl, Caps, Counters, Descriptor, EndpointState, Fault, Loopback, Peer, Read,
    Refused, RemoteKey, Residue, RmaDescriptor, Sink, Tiny,
    memory::{RecvRegion, SendRegion},
};
use ironweave_btl_ofi::Ofi;
use ironweave_btl_shm::Shm;
use ironweave_btl_tcp::Tcp;
use ironweave_btl_uct::Uct;
use ironweave_btl_verbs::Verbs;
use std::sync::Arc;

/// One opened transport of any component. Two levels: the branch of the fast ones stays what it is however many networks
/// there are, and a network's microseconds do not notice a second.
pub enum Rail {
    /// `self`.
    Loopback(Box<Loopback>),
    /// `shm`.
    Shm(Box<Shm>),
    /// A network.
    Net(Box<Net>),
}

/// One opened transport to other hosts.
#[allow(clippy::large_enum_variant)] // a handful, each in a box of its own
pub enum Net {
    /// `tcp`: one interface and link.
    Tcp(Tcp),
    /// `verbs`: one port of an RDMA device.
    Verbs(Verbs),
    /// `ofi`: one domain of a libfabric provider.
    Ofi(Ofi),
    /// `uct`: one device of a transport of UCX.
    Uct(Uct),
}

impl Net {
    /// Whether it waits in system calls of a C library.
    pub fn is_foreign(&self) -> bool {
        matches!(self, Net::Ofi(_) | Net::Uct(_))
    }
}

/// The contract, carried out by whichever variant it is.
macro_rules! one_of {
    ($name:ident: $($variant:ident)*) => {
        impl Btl for $name {
            fn caps(&self) -> &Caps {
                match self { $($name::$variant(btl) => btl.caps(),)* }
            }

            fn address(&self) -> Address {
                match self { $($name::$variant(btl) => btl.address(),)* }
            }

            fn connect(&mut self, peer: Peer, address: &Address) -> Result<(), Fault> {
                match self { $($name::$variant(btl) => btl.connect(peer, address),)* }
            }

            #[inline]
            fn state(&self, peer: Peer) -> EndpointState {
                match self { $($name::$variant(btl) => btl.state(peer),)* }
            }

            #[inline]
            fn send_short(&mut self, peer: Peer, header: &[u8], payload: &[u8]) -> Result<(), Refused> {
                match self { $($name::$variant(btl) => btl.send_short(peer, header, payload),)* }
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
                match self { $($name::$variant(btl) => btl.send_bcopy(peer, header, len, pack),)* }
            }

            fn send_zcopy(&mut self, descriptor: Descriptor) -> Result<(), (Refused, Descriptor)> {
                match self { $($name::$variant(btl) => btl.send_zcopy(descriptor),)* }
            }

            fn rma(&mut self, descriptor: RmaDescriptor) -> Result<(), (Refused, RmaDescriptor)> {
                match self { $($name::$variant(btl) => btl.rma(descriptor),)* }
            }

            fn is_read(&mut self, peer: Peer, len: usize, unasked: bool) -> bool {
                match self { $($name::$variant(btl) => btl.is_read(peer, len, unasked),)* }
            }

            #[inline]
            fn read_now(&mut self, descriptor: &RmaDescriptor) -> Read {
                match self { $($name::$variant(btl) => btl.read_now(descriptor),)* }
            }

            #[inline]
            fn assist(&mut self, peer: Peer) -> bool {
                match self { $($name::$variant(btl) => btl.assist(peer),)* }
            }

            fn register_source(&mut self, peer: Peer, region: &SendRegion) -> Result<RemoteKey, Refused> {
                match self { $($name::$variant(btl) => btl.register_source(peer, region),)* }
            }

            fn register_target(&mut self, region: &RecvRegion) -> Result<RemoteKey, Refused> {
                match self { $($name::$variant(btl) => btl.register_target(region),)* }
            }

            fn deregister(&mut self, key: &RemoteKey) {
                match self { $($name::$variant(btl) => btl.deregister(key),)* };
            }

            fn retire(&mut self, key: &RemoteKey) {
                match self { $($name::$variant(btl) => btl.retire(key),)* };
            }

            #[inline]
            fn progress<S: Sink>(&mut self, sink: &mut S) -> usize {
                match self { $($name::$variant(btl) => btl.progress(sink),)* }
            }

            #[inline(always)]
            fn take_next<F>(&mut self, peer: Peer, turns: u32, take: F) -> bool
            where
                F: FnOnce(&[u8], &[u8]) -> bool,
            {
                match self { $($name::$variant(btl) => btl.take_next(peer, turns, take),)* }
            }

            #[inline(always)]
            fn send_tiny(&mut self, peer: Peer, header: [u64; 2], payload: &[u8]) -> bool {
                match self { $($name::$variant(btl) => btl.send_tiny(peer, header, payload),)* }
            }

            #[inline(always)]
            fn take_tiny(&mut self, peer: Peer, turns: u32, header: [u64; 2], into: &RecvRegion) -> Tiny {
                match self { $($name::$variant(btl) => btl.take_tiny(peer, turns, header, into),)* }
            }

            #[inline]
            fn take_expected(&mut self, peer: Peer, turns: u32, header: [u64; 2], into: &RecvRegion) -> Tiny {
                match self { $($name::$variant(btl) => btl.take_expected(peer, turns, header, into),)* }
            }

            #[inline]
            fn is_silent(&self, peer: Peer) -> bool {
                match self { $($name::$variant(btl) => btl.is_silent(peer),)* }
            }

            fn arm(&mut self) -> Armed {
                match self { $($name::$variant(btl) => btl.arm(),)* }
            }

            fn invalidate<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
                match self { $($name::$variant(btl) => btl.invalidate(peer, residue, sink),)* };
            }

            fn exclude<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
                match self { $($name::$variant(btl) => btl.exclude(peer, residue, sink),)* };
            }

            fn unflushed(&self) -> usize {
                match self { $($name::$variant(btl) => btl.unflushed(),)* }
            }

            fn depart(&mut self) {
                match self { $($name::$variant(btl) => btl.depart(),)* };
            }

            fn counters(&self) -> Arc<Counters> {
                match self { $($name::$variant(btl) => btl.counters(),)* }
            }

            fn dump(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
                match self { $($name::$variant(btl) => btl.dump(out),)* }
            }
        }
    };
}

one_of!(Rail: Shm Net Loopback);
one_of!(Net: Tcp Verbs Ofi Uct);
