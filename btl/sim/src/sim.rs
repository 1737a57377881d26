//! One rail of one process on the simulated net, as the contract has it.

use crate::model::RailModel;
use crate::net::{PortId, Registered, Report};
use crate::net::{SimNet, Taken};
use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_btl::{
    Address, Btl, Caps, Cause, Counters, Descriptor, EndpointState, Fault, Header, Peer, Refused,
    RemoteKey, Residue, RmaDescriptor, RmaKind, Sink, TINY_MAX, Tiny,
};
use std::sync::Arc;

/// Most reports of one `progress` call: real transports stop somewhere too.
const REPORTS_MAX: u64 = 32;

/// A simulated rail. Dropping it without `depart` is what a crash looks like to peers.
pub struct SimBtl {
    net: SimNet,
    port: PortId,
    me: Peer,
    caps: Caps,
    counters: Arc<Counters>,
}

impl SimBtl {
    pub(crate) fn new(net: SimNet, port: PortId, me: Peer, model: &RailModel) -> Self {
        let counters = Arc::clone(&net.0.borrow().port(port).counters);
        SimBtl { net, port, me, caps: model.caps.clone(), counters }
    }

    /// The net it is a part of.
    #[must_use]
    pub fn net(&self) -> &SimNet {
        &self.net
    }

    /// Checks that a header and a payload fit.
    fn fits(len: usize, max: usize) -> Result<(), Refused> {
        if len > max { Err(Refused::TooLong { max }) } else { Ok(()) }
    }

    fn tell<S: Sink>(&self, sink: &mut S, report: Report) {
        match report {
            Report::Up(peer) => sink.up(peer),
            Report::Received(_) => unreachable!("the net turns these into frames"),
            Report::Completed(descriptor, outcome) => sink.completed(descriptor, outcome),
            Report::RmaCompleted(descriptor, outcome) => sink.rma_completed(descriptor, outcome),
            Report::Landed(peer, region, token, outcome) => {
                if let Ok(len) = outcome {
                    self.net.0.borrow().count_received(self.port, len);
                }
                sink.landed(peer, region, token, outcome.map(|_| ()));
            }
            Report::Fault(fault) => {
                self.counters.faults.add(1);
                sink.fault(fault);
            }
            Report::Closed(peer) => sink.closed(peer),
        }
    }

    /// Tells everything about `peer` that waits.
    fn tell_about<S: Sink>(&self, peer: Peer, sink: &mut S) {
        loop {
            let next = self.net.0.borrow_mut().take_about(self.port, peer.0);
            match next {
                Some(report) => self.tell(sink, report),
                None => return,
            }
        }
    }
}

impl Btl for SimBtl {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn address(&self) -> Address {
        let rail = self.net.0.borrow().port(self.port).rail;
        let mut bytes = self.port.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.me.0.to_le_bytes());
        Address { component: self.caps.name.into(), rail, bytes }
    }

    fn connect(&mut self, peer: Peer, address: &Address) -> Result<(), Fault> {
        let unreachable = Fault::rail(peer, Cause::Unreachable);
        let Ok(bytes) = <[u8; 8]>::try_from(address.bytes.as_slice()) else {
            return Err(Fault::rail(peer, Cause::Malformed("not an address of the simulated net")));
        };
        let [a, b, c, d, e, f, g, h] = bytes;
        let target = u32::from_le_bytes([a, b, c, d]);
        let process = Peer(u32::from_le_bytes([e, f, g, h]));
        let mut net = self.net.0.borrow_mut();
        let known = net.ports.get(target as usize).is_some_and(|port| {
            port.process == process.0 && port.model.caps.name == self.caps.name
        });
        if address.component != self.caps.name || !known || process != peer || peer == self.me {
            return Err(unreachable);
        }
        net.connect(self.port, target)
    }

    fn state(&self, peer: Peer) -> EndpointState {
        let net = self.net.0.borrow();
        let endpoint = net.port(self.port).endpoints.get(&peer.0);
        endpoint.map_or(EndpointState::Closed, |endpoint| endpoint.state)
    }

    fn send_short(&mut self, peer: Peer, header: &[u8], payload: &[u8]) -> Result<(), Refused> {
        Self::fits(header.len() + payload.len(), self.caps.max_short)?;
        let mut net = self.net.0.borrow_mut();
        let link = net.admit(self.port, peer.0)?;
        net.send_copied(link, Header::new(header), payload.to_vec());
        Ok(())
    }

    fn send_bcopy<P>(
        &mut self,
        peer: Peer,
        header: &[u8],
        len: usize,
        mut pack: P,
    ) -> Result<(), Refused>
    where
        P: FnMut(usize, &mut [u8]),
    {
        Self::fits(len, self.caps.max_bcopy)?;
        let mut net = self.net.0.borrow_mut();
        let link = net.admit(self.port, peer.0)?;
        let mut payload = vec![0; len];
        // In one piece or two, by the seed.
        let middle = if len > 1 && net.chance(200) { net.upto(len as u64) as usize } else { 0 };
        let (front, back) = payload.split_at_mut(middle);
        if !front.is_empty() {
            pack(0, front);
        }
        pack(middle, back);
        net.send_copied(link, Header::new(header), payload);
        Ok(())
    }

    fn send_zcopy(&mut self, descriptor: Descriptor) -> Result<(), (Refused, Descriptor)> {
        let mut net = self.net.0.borrow_mut();
        let admitted = Self::fits(descriptor.payload_len(), self.caps.max_zcopy)
            .and_then(|()| net.admit(self.port, descriptor.peer.0));
        match admitted {
            Ok(link) => {
                net.send_zcopy(link, descriptor);
                Ok(())
            }
            Err(refused) => Err((refused, descriptor)),
        }
    }

    fn rma(&mut self, descriptor: RmaDescriptor) -> Result<(), (Refused, RmaDescriptor)> {
        let able = match &descriptor.kind {
            RmaKind::Put(_) => self.caps.put,
            RmaKind::Get(_) => self.caps.get,
            RmaKind::Atomic(..) => self.caps.atomics,
        };
        if !able {
            return Err((Refused::Unsupported, descriptor));
        }
        let mut net = self.net.0.borrow_mut();
        match net.admit(self.port, descriptor.peer.0) {
            Ok(link) => {
                net.start_rma(link, descriptor);
                Ok(())
            }
            Err(refused) => Err((refused, descriptor)),
        }
    }

    fn register_source(&mut self, _: Peer, region: &SendRegion) -> Result<RemoteKey, Refused> {
        if !self.caps.get {
            return Err(Refused::Unsupported);
        }
        let region = Registered::Source(region.clone());
        Ok(self.net.0.borrow_mut().register(self.port, region))
    }

    fn register_target(&mut self, region: &RecvRegion) -> Result<RemoteKey, Refused> {
        if !self.caps.put {
            return Err(Refused::Unsupported);
        }
        let region = Registered::Target(region.part(0..region.len()));
        Ok(self.net.0.borrow_mut().register(self.port, region))
    }

    fn deregister(&mut self, key: &RemoteKey) {
        self.net.0.borrow_mut().deregister(self.port, key);
    }

    fn progress<S: Sink>(&mut self, sink: &mut S) -> usize {
        let limit = {
            let mut net = self.net.0.borrow_mut();
            if net.port(self.port).inbox.is_empty() {
                return 0;
            }
            net.upto(REPORTS_MAX - 1) as usize + 1
        };
        let mut reports = 0;
        while reports < limit {
            let taken = self.net.0.borrow_mut().take(self.port);
            let Some(taken) = taken else {
                break;
            };
            reports += 1;
            match taken {
                Taken::Tell(report) => self.tell(sink, report),
                Taken::Frame(from, frame) => {
                    sink.frame(from, frame.header.as_bytes(), &frame.payload);
                }
                Taken::Ask(from, frame) => {
                    let landing = sink.landing(from, frame.header.as_bytes(), frame.payload.len());
                    let now = self.net.0.borrow_mut().landing(self.port, from.0, frame, landing);
                    if let Some(frame) = now {
                        sink.frame(from, frame.header.as_bytes(), &frame.payload);
                    }
                }
            }
        }
        let mut net = self.net.0.borrow_mut();
        if !net.port(self.port).inbox.is_empty() {
            net.make_ready(self.me.0);
        }
        reports
    }

    fn take_next<F>(&mut self, peer: Peer, _: u32, take: F) -> bool
    where
        F: FnOnce(&[u8], &[u8]) -> bool,
    {
        self.net.0.borrow_mut().take_next(self.port, peer.0, take)
    }

    // As over shared memory: rails that can be lost carry numbered frames, which are taken with `take_next`.

    fn send_tiny(&mut self, peer: Peer, header: [u64; 2], payload: &[u8]) -> bool {
        let header = header.map(u64::to_ne_bytes);
        self.caps().lossless
            && payload.len() <= TINY_MAX
            && self.send_short(peer, header.as_flattened(), payload).is_ok()
    }

    fn take_tiny(&mut self, peer: Peer, turns: u32, header: [u64; 2], into: &RecvRegion) -> Tiny {
        if !self.caps().lossless {
            return Tiny::Unable;
        }
        let header = header.map(u64::to_ne_bytes);
        let mut tiny = Tiny::Left;
        self.take_next(peer, turns, |found, payload| {
            if found == header.as_flattened() && payload.len() <= into.len() {
                into.write(0, payload);
                tiny = Tiny::Taken(payload.len());
            }
            tiny != Tiny::Left
        });
        tiny
    }

    fn invalidate<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        if !matches!(self.state(peer), EndpointState::Connecting | EndpointState::Up) {
            return;
        }
        self.tell_about(peer, sink);
        let frames = self.net.0.borrow_mut().invalidate(self.port, peer.0, residue);
        for frame in frames {
            self.net.0.borrow().count_received(self.port, frame.payload.len());
            sink.frame(peer, frame.header.as_bytes(), &frame.payload);
        }
        self.tell_about(peer, sink);
    }

    fn exclude<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        self.invalidate(peer, residue, sink);
        self.net.0.borrow_mut().exclude(self.port, peer.0);
    }

    fn unflushed(&self) -> usize {
        self.net.0.borrow().unread_sends(self.port)
    }

    fn depart(&mut self) {
        self.net.0.borrow_mut().depart(self.port);
    }

    fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    fn dump(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        let net = self.net.0.borrow();
        net.describe_port(net.port(self.port), false, out)
    }
}

impl Drop for SimBtl {
    fn drop(&mut self) {
        // The driver may drop it while it holds the net only in a panic.
        if let Ok(mut net) = self.net.0.try_borrow_mut() {
            net.close_port(self.port);
        }
    }
}
