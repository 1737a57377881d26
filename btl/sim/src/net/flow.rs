//! Frames on their way, payloads read and landing, remote access: everything that touches user memory.
//!
//! Each access is a separate event at a time chosen by the seed, so that a buffer that is used too early or too
//! late shows as wrong bytes.

use super::state::{
    Endpoint, Event, LinkId, Net, Op, OpId, OpKind, Port, PortId, Received, Registered, Report,
    registered,
};
use ironweave_btl::memory::RecvRegion;
use ironweave_btl::{
    Atomic, Cause, Descriptor, EndpointState, FailureReport, Fault, Header, Landing, Peer, Refused,
    RmaDescriptor, RmaKind,
};

/// A frame on the wire.
#[derive(Debug)]
pub(crate) struct Frame {
    pub seq: u32,
    pub header: Header,
    pub payload: Vec<u8>,
}

/// What `progress` does next.
pub(crate) enum Taken {
    Tell(Report),
    Frame(Peer, Frame),
    /// Ask `landing` for this frame first.
    Ask(Peer, Frame),
}

impl Net {
    /// Whether a frame can be sent now, and over which link.
    pub(crate) fn admit(&mut self, port: PortId, peer: u32) -> Result<(LinkId, usize), Refused> {
        if self.port(port).departed || !self.port(port).open {
            return Err(Refused::Closed);
        }
        let Some(endpoint) = self.endpoint_mut(port, peer) else {
            return Err(Refused::Closed);
        };
        match endpoint.state {
            EndpointState::Connecting => return Err(Refused::Connecting),
            EndpointState::Failing | EndpointState::Closed => return Err(Refused::Closed),
            EndpointState::Up => {}
        }
        let (link, side) = (endpoint.link, endpoint.side);
        let model = &self.port(port).model;
        let (credits, no_room, retry) = (model.credits, model.no_room, model.latency_ns + 1);
        if self.link(link).ends[side].in_flight >= credits {
            self.endpoint_mut(port, peer).expect("looked up above").starved = true;
            self.port(port).counters.refused.add(1);
            return Err(Refused::NoRoom);
        }
        if self.chance(no_room) {
            let at = self.now + self.upto(retry);
            let process = self.port(port).process;
            self.schedule(at, Event::Wake(process));
            self.port(port).counters.refused.add(1);
            return Err(Refused::NoRoom);
        }
        Ok((link, side))
    }

    /// LogGP: when a frame of `len` bytes that is sent now arrives.
    fn timing(&mut self, link: LinkId, side: usize, len: usize) -> u64 {
        let ends = &self.link(link).ends;
        let (from, to) = (ends[side].port, ends[1 - side].port);
        let model = std::rc::Rc::clone(&self.port(from).model);
        let wire = len as u64 * model.byte_ps / 1000;
        let depart = (self.now + model.overhead_ns).max(self.port(from).sender_free);
        self.port_mut(from).sender_free = depart + model.gap_ns + wire;
        let at_receiver = (depart + model.latency_ns).max(self.port(to).receiver_free) + wire;
        self.port_mut(to).receiver_free = at_receiver + model.gap_ns;
        let mut arrive = at_receiver + self.upto(model.jitter_ns);
        if self.chance(model.spike) {
            arrive += model.spike_ns;
        }
        let end = &mut self.link_mut(link).ends[side];
        if model.caps.ordered {
            arrive = arrive.max(end.last_arrival + 1);
        }
        end.last_arrival = end.last_arrival.max(arrive);
        arrive
    }

    /// Numbers a frame and counts it.
    fn new_frame(&mut self, link: LinkId, side: usize, len: usize) -> u32 {
        let end = &mut self.link_mut(link).ends[side];
        let seq = end.next_seq;
        end.next_seq += 1;
        end.in_flight += 1;
        let port = end.port;
        let counters = &self.port(port).counters;
        counters.frames_sent.add(1);
        counters.bytes_sent.add(len as u64);
        seq
    }

    /// Puts a copied frame on the wire; it was admitted.
    pub(crate) fn send_copied(
        &mut self,
        (link, side): (LinkId, usize),
        header: Header,
        payload: Vec<u8>,
    ) {
        let seq = self.new_frame(link, side, payload.len());
        let arrive = self.timing(link, side, header.as_bytes().len() + payload.len());
        let frame = Frame { seq, header, payload };
        self.schedule(arrive, Event::Arrive { link, side, frame });
    }

    /// Takes a zero-copy send; it was admitted.
    pub(crate) fn send_zcopy(&mut self, (link, side): (LinkId, usize), descriptor: Descriptor) {
        let len = descriptor.payload_len();
        let seq = self.new_frame(link, side, len);
        let arrive = self.timing(link, side, len);
        let frame = Frame { seq, header: descriptor.header, payload: Vec::with_capacity(len) };
        let (port, peer) = (self.link(link).ends[side].port, descriptor.peer.0);
        let kind = OpKind::Send { descriptor, frame: Some(frame), arrive };
        let op = self.add_op(Op { port, peer, link, fenced: false, kind });
        let at = self.now + self.upto(arrive - self.now);
        self.schedule(at, Event::Read(op));
    }

    /// Reads one or all pieces of a zero-copy payload; the last puts the frame on the wire.
    pub(crate) fn read(&mut self, id: OpId) {
        let whole = self.rng_bool();
        let now = self.now;
        let Some(op) = self.op_mut(id) else {
            return;
        };
        if op.fenced {
            return;
        }
        let link = op.link;
        let OpKind::Send { descriptor, frame: slot, arrive } = &mut op.kind else {
            unreachable!("only sends are read");
        };
        let arrive = *arrive;
        let frame = slot.as_mut().expect("a frame is there until the payload was read");
        let read = frame.payload.len();
        let total = descriptor.payload_len();
        let upto = if whole || total - read < 2 { total } else { read + (total - read) / 2 };
        let mut start = 0;
        for part in &descriptor.payload {
            let bytes = part.as_slice();
            let from = frame.payload.len().clamp(start, start + bytes.len()) - start;
            let to = upto.clamp(start, start + bytes.len()) - start;
            frame.payload.extend_from_slice(&bytes[from..to.max(from)]);
            start += bytes.len();
        }
        if upto < total {
            let at = now + self.upto(arrive.saturating_sub(now));
            self.schedule(at, Event::Read(id));
            return;
        }
        let frame = slot.take().expect("seen above");
        let port = op.port;
        let side = usize::from(self.link(link).ends[0].port != port);
        self.schedule(arrive, Event::Arrive { link, side, frame });
        // The transport may be done with it now, or hear of it only from the peer.
        if self.rng_bool() {
            self.complete(id);
        } else {
            let latency = self.port(port).model.latency_ns;
            self.schedule(arrive + latency, Event::Acknowledge(id));
        }
    }

    fn rng_bool(&mut self) -> bool {
        use rand::Rng;
        self.rng.random()
    }

    /// The peer's acknowledgement of a zero-copy frame, if the peer is there to give one.
    pub(crate) fn acknowledge(&mut self, id: OpId) {
        let Some(op) = self.op_mut(id) else {
            return;
        };
        if op.fenced {
            return;
        }
        let (link, port) = (op.link, op.port);
        let side = usize::from(self.link(link).ends[0].port != port);
        let ends = &self.link(link).ends;
        if !ends[1 - side].attached {
            self.nobody_there(link, side);
        } else if self.blocked(ends[0].port, ends[1].port) {
            self.after_heal(link, port, Event::Acknowledge(id));
        } else {
            self.complete(id);
        }
    }

    /// A cut is in the way: the operation goes on when it is healed, or the link gives up (where failure is silent it
    /// never does).
    fn after_heal(&mut self, link: LinkId, port: PortId, event: Event) {
        self.held_back.push(event);
        if self.port(port).model.caps.failure_report != FailureReport::Silent {
            self.start_giving_up(link);
        }
    }

    fn complete(&mut self, id: OpId) {
        let op = self.remove_op(id).expect("checked by the caller");
        let OpKind::Send { descriptor, .. } = op.kind else {
            unreachable!("only sends are acknowledged");
        };
        self.report(op.port, Report::Completed(descriptor, Ok(())));
    }

    /// A frame reaches the end opposite of `side`.
    pub(crate) fn arrive(&mut self, link: LinkId, side: usize, frame: Frame) {
        let ends = &self.link(link).ends;
        if frame.seq >= ends[side].lost_from {
            return;
        }
        let (from, to) = (&ends[side], &ends[1 - side]);
        if !to.attached {
            self.nobody_there(link, side);
            return;
        }
        if self.blocked(from.port, to.port) || !from.stalled.is_empty() {
            let silent = self.port(from.port).model.caps.failure_report == FailureReport::Silent;
            let first = from.stalled.is_empty();
            self.link_mut(link).ends[side].stalled.push_back(frame);
            if first && !silent {
                self.start_giving_up(link);
            }
            return;
        }
        let (port, peer) = (to.port, from.process);
        self.answer_early(link, 1 - side);
        let end = &mut self.link_mut(link).ends[side];
        end.arrived = end.arrived.max(frame.seq + 1);
        if let Some(endpoint) = self.attached(link, 1 - side)
            && endpoint.state == EndpointState::Up
            && !matches!(endpoint.received.back(), Some(Received::End(_)))
        {
            endpoint.received.push_back(Received::Frame(frame));
            self.report(port, Report::Received(Peer(peer)));
        }
    }

    /// A frame over an unordered link may overtake the answer to `connect`: it is an answer itself.
    fn answer_early(&mut self, link: LinkId, side: usize) {
        if side == 0 && self.attached(link, 0).is_some_and(|e| e.state == EndpointState::Connecting)
        {
            self.answer(link, Ok(()));
        }
    }

    /// The next thing that `progress` tells; `None` when there is nothing.
    pub(crate) fn take(&mut self, port: PortId) -> Option<Taken> {
        loop {
            let report = self.port_mut(port).inbox.pop_front()?;
            match report {
                Report::Received(peer) => {
                    if let Some(taken) = self.take_received(port, peer.0) {
                        return Some(taken);
                    }
                }
                Report::Closed(peer) => {
                    self.closed(port, peer.0);
                    return Some(Taken::Tell(Report::Closed(peer)));
                }
                report => return Some(Taken::Tell(report)),
            }
        }
    }

    /// Shows `take` the next frame of `peer`, if that is the next thing to tell of it. Whether it was taken.
    pub(crate) fn take_next(
        &mut self,
        port: PortId,
        peer: u32,
        take: impl FnOnce(&[u8], &[u8]) -> bool,
    ) -> bool {
        let inbox = &self.port(port).inbox;
        let about = inbox.iter().position(|report| report.peer() == Some(Peer(peer)));
        let is_received = |at: &usize| matches!(inbox[*at], Report::Received(_));
        let Some(at) = about.filter(is_received) else { return false };
        let Some(endpoint) = self.endpoint_mut(port, peer) else { return false };
        let (link, side) = (endpoint.link, endpoint.side);
        let Some(Received::Frame(frame)) = endpoint.received.front() else { return false };
        let len = frame.payload.len();
        if endpoint.busy || endpoint.asked || !take(frame.header.as_bytes(), &frame.payload) {
            return false;
        }
        endpoint.received.pop_front();
        self.port_mut(port).inbox.remove(at);
        self.consumed(link, side, port, Some(len));
        true
    }

    /// The first report about `peer`, for `invalidate`.
    pub(crate) fn take_about(&mut self, port: PortId, peer: u32) -> Option<Report> {
        let inbox = &mut self.port_mut(port).inbox;
        loop {
            let at = inbox.iter().position(|report| report.peer() == Some(Peer(peer)))?;
            match inbox.remove(at).expect("the index is in range") {
                Report::Received(_) => {}
                Report::Closed(_) => {
                    self.closed(port, peer);
                    return Some(Report::Closed(Peer(peer)));
                }
                report => return Some(report),
            }
        }
    }

    fn take_received(&mut self, port: PortId, peer: u32) -> Option<Taken> {
        let endpoint = self.endpoint_mut(port, peer)?;
        if endpoint.busy {
            return None; // `go_on` looks again
        }
        let (link, side) = (endpoint.link, endpoint.side);
        match endpoint.received.pop_front()? {
            Received::Frame(frame) => {
                let asked = std::mem::take(&mut endpoint.asked);
                let model = &self.port(port).model;
                let (least, often) = (model.landing_min, model.landing);
                if !asked && frame.payload.len() >= least && self.chance(often) {
                    return Some(Taken::Ask(Peer(peer), frame));
                }
                self.consumed(link, side, port, Some(frame.payload.len()));
                Some(Taken::Frame(Peer(peer), frame))
            }
            Received::End(Some(fault)) => {
                self.fail(port, peer, fault, true);
                None
            }
            Received::End(None) => {
                self.fail(port, peer, Fault::operation(Peer(peer), Cause::Finalized), false);
                None
            }
        }
    }

    pub(crate) fn count_received(&self, port: PortId, len: usize) {
        let counters = &self.port(port).counters;
        counters.frames_received.add(1);
        counters.bytes_received.add(len as u64);
    }

    /// The frame's credit goes back to the sender. A frame that is not `delivered` yet is counted when it landed.
    fn consumed(&mut self, link: LinkId, side: usize, port: PortId, delivered: Option<usize>) {
        if let Some(len) = delivered {
            self.count_received(port, len);
        }
        let end = &mut self.link_mut(link).ends[1 - side];
        end.in_flight = end.in_flight.saturating_sub(1);
        if let Some(endpoint) = self.attached(link, 1 - side)
            && std::mem::take(&mut endpoint.starved)
        {
            let sender = &self.link(link).ends[1 - side];
            let (process, latency) = (sender.process, self.port(sender.port).model.latency_ns);
            self.schedule(self.now + latency, Event::Wake(process));
        }
    }

    /// The sink said where a payload goes. Gives the frame back if it is to be delivered at once.
    pub(crate) fn landing(
        &mut self,
        port: PortId,
        peer: u32,
        frame: Frame,
        landing: Landing,
    ) -> Option<Frame> {
        let now_or_later = self.rng_bool();
        let endpoint = self.endpoint_mut(port, peer).expect("the frame came from it");
        let (link, side) = (endpoint.link, endpoint.side);
        match landing {
            Landing::Buffered if now_or_later => {
                self.consumed(link, side, port, Some(frame.payload.len()));
                Some(frame)
            }
            Landing::Buffered => {
                endpoint.busy = true;
                endpoint.asked = true;
                endpoint.received.push_front(Received::Frame(frame));
                let at = self.now + 1 + self.upto(5_000);
                self.schedule(at, Event::Resume { port, peer, link });
                None
            }
            Landing::Direct { region, token } => {
                assert!(region.len() >= frame.payload.len(), "a landing region is long enough");
                endpoint.busy = true;
                self.consumed(link, side, port, None);
                let kind = OpKind::Landing { region, token, payload: frame.payload, written: 0 };
                let op = self.add_op(Op { port, peer, link, fenced: false, kind });
                let at = self.now + self.upto(5_000);
                self.schedule(at, Event::Land(op));
                None
            }
        }
    }

    /// Writes one or all pieces of a landing payload.
    pub(crate) fn land(&mut self, id: OpId) {
        let whole = self.rng_bool();
        let Some(op) = self.op_mut(id) else {
            return;
        };
        if op.fenced {
            return;
        }
        let OpKind::Landing { region, payload, written, .. } = &mut op.kind else {
            unreachable!("only landings land");
        };
        let rest = payload.len() - *written;
        let piece = if whole || rest < 2 { rest } else { rest / 2 };
        region.write(*written, &payload[*written..*written + piece]);
        *written += piece;
        if *written < payload.len() {
            let at = self.now + self.upto(5_000);
            self.schedule(at, Event::Land(id));
            return;
        }
        let op = self.remove_op(id).expect("looked up above");
        let OpKind::Landing { region, token, payload, .. } = op.kind else {
            unreachable!("seen above");
        };
        let landed = Report::Landed(Peer(op.peer), region, token, Ok(payload.len()));
        self.report(op.port, landed);
        self.go_on(op.port, op.peer);
    }

    pub(crate) fn resume(&mut self, port: PortId, peer: u32, link: LinkId) {
        if self.endpoint_mut(port, peer).is_some_and(|e| e.link == link && e.busy) {
            self.go_on(port, peer);
        }
    }

    /// Later frames of an endpoint that was busy come up again.
    fn go_on(&mut self, port: PortId, peer: u32) {
        let endpoint = self.endpoint_mut(port, peer).expect("the caller saw it");
        endpoint.busy = false;
        for _ in 0..endpoint.received.len() {
            self.report(port, Report::Received(Peer(peer)));
        }
    }

    /// The sender at the other end died: by the seed, the payload that lands at `side` never becomes whole.
    pub(crate) fn cut_landing(&mut self, link: LinkId, side: usize) {
        let cut = self.rng_bool();
        let Some(Endpoint { busy: true, ops, .. }) = self.attached(link, side) else {
            return;
        };
        let ops = ops.clone();
        for id in ops {
            if cut
                && let Some(op) = self.op_mut(id)
                && matches!(op.kind, OpKind::Landing { .. })
            {
                // It waits, half written, until the endpoint fails; frames behind it are lost.
                op.fenced = true;
                let endpoint = self.attached(link, side).expect("seen above");
                endpoint.busy = false;
                endpoint.received.clear();
                let end = &mut self.link_mut(link).ends[1 - side];
                end.lost_from = end.lost_from.min(end.arrived);
            }
        }
    }

    /// Takes a put or get.
    pub(crate) fn start_rma(&mut self, (link, side): (LinkId, usize), descriptor: RmaDescriptor) {
        let len = descriptor.kind.length();
        let arrive = self.timing(link, side, len);
        let (port, peer) = (self.link(link).ends[side].port, descriptor.peer.0);
        self.port(port).counters.rma.add(1);
        let kind = OpKind::Rma { descriptor, done: 0 };
        let op = self.add_op(Op { port, peer, link, fenced: false, kind });
        self.schedule(arrive, Event::Rma(op));
    }

    /// Moves one or all pieces of a put or get.
    pub(crate) fn move_piece(&mut self, id: OpId) {
        let whole = self.rng_bool();
        let Some(op) = self.op_mut(id) else {
            return;
        };
        if op.fenced {
            return;
        }
        let (link, port, peer) = (op.link, op.port, op.peer);
        let side = usize::from(self.link(link).ends[0].port != port);
        let ends = &self.link(link).ends;
        let target = ends[1 - side].port;
        if !ends[1 - side].attached {
            self.nobody_there(link, side);
            return;
        }
        if self.blocked(port, target) {
            self.after_heal(link, port, Event::Rma(id));
            return;
        }
        let (op, ports) = self.op_and_ports(id).expect("looked up above");
        let OpKind::Rma { descriptor, done } = &mut op.kind else {
            unreachable!("only puts and gets move");
        };
        let rest = descriptor.kind.length() - *done;
        let whole = whole || matches!(descriptor.kind, RmaKind::Atomic(..));
        let piece = if whole || rest < 2 { rest } else { rest / 2 };
        let moved = copy_piece(ports, target, descriptor, *done, piece);
        *done += piece;
        if moved.is_ok() && piece < rest {
            let at = self.now + self.upto(self.port(port).model.latency_ns);
            self.schedule(at, Event::Rma(id));
            return;
        }
        let op = self.remove_op(id).expect("looked up above");
        let OpKind::Rma { descriptor, .. } = op.kind else {
            unreachable!("seen above");
        };
        let outcome = moved.map_err(|what| Fault::operation(Peer(peer), Cause::Malformed(what)));
        self.report(port, Report::RmaCompleted(descriptor, outcome));
    }
}

/// Moves `piece` bytes, `done` bytes into the operation, if the key allows it.
fn copy_piece(
    ports: &mut [Port],
    target: PortId,
    descriptor: &RmaDescriptor,
    done: usize,
    piece: usize,
) -> Result<(), &'static str> {
    const OUTSIDE: &str = "outside the registered memory";
    let (port, region) =
        registered(ports, &descriptor.remote).ok_or("the remote key names nothing")?;
    if port != target {
        return Err("the remote key is of another process");
    }
    let start = usize::try_from(descriptor.remote_offset)
        .ok()
        .and_then(|offset| offset.checked_add(done))
        .ok_or(OUTSIDE)?;
    let end = start.checked_add(piece).ok_or(OUTSIDE)?;
    match (&descriptor.kind, region) {
        (RmaKind::Put(source), Some(Registered::Target(region))) => {
            if end > region.len() {
                return Err(OUTSIDE);
            }
            region.write(start, &source.as_slice()[done..done + piece]);
        }
        (RmaKind::Get(local), Some(Registered::Source(region))) => {
            local.write(done, region.as_slice().get(start..end).ok_or(OUTSIDE)?);
        }
        (RmaKind::Atomic(what, local), Some(Registered::Target(region))) => {
            let there = change(*what, region, start).ok_or(OUTSIDE)?;
            local.write(0, &there.to_ne_bytes());
        }
        _ => return Err("the remote key does not allow this"),
    }
    Ok(())
}

/// Changes the number at `start`: what was there before. `None` where there is no number.
fn change(what: Atomic, region: &RecvRegion, start: usize) -> Option<u64> {
    let end = start.checked_add(Atomic::BYTES).filter(|end| *end <= region.len())?;
    let place = region.part(start..end);
    if !(place.as_mut_ptr().addr()).is_multiple_of(Atomic::BYTES) {
        return None;
    }
    let there = u64::from_ne_bytes(place.to_vec().try_into().ok()?);
    place.write(0, &what.applied_to(there).to_ne_bytes());
    Some(there)
}
