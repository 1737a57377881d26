//! The life of links and endpoints: connect, fail, close, and everything that breaks them.
//!
//! An endpoint is fenced in one place, [`Net::fail`]: from there on its operations only wait to be given back.

use super::SimFault;
use super::state::{
    Cut, End, Endpoint, Event, Link, LinkId, Net, OpId, OpKind, PortId, Received, Report,
};
use ironweave_btl::{Cause, EndpointState, FailureReport, Fault, Peer, Residue};
use std::collections::VecDeque;

impl Net {
    pub(crate) fn blocked(&self, a: PortId, b: PortId) -> bool {
        if self.cuts.is_empty() {
            return false;
        }
        let (a, b) = (self.port(a), self.port(b));
        self.cuts.iter().any(|cut| match cut {
            Cut::Pair(p, q, rail) => {
                let here = |x: &super::state::Port| rail.is_none_or(|rail| rail == x.rail);
                (a.process == *p && b.process == *q && here(a))
                    || (b.process == *p && a.process == *q && here(b))
            }
            Cut::Group(group) => {
                group.contains(&Peer(a.process)) != group.contains(&Peer(b.process))
            }
        })
    }

    fn link_blocked(&self, link: LinkId) -> bool {
        let ends = &self.link(link).ends;
        self.blocked(ends[0].port, ends[1].port)
    }

    /// Starts to connect; the address was checked.
    pub(crate) fn connect(&mut self, port: PortId, target: PortId) -> Result<(), Fault> {
        let (me, peer) = (self.port(port).process, self.port(target).process);
        let unreachable = || Err(Fault::rail(Peer(peer), Cause::Unreachable));
        if !self.is_alive(me) || self.port(port).departed {
            return unreachable();
        }
        if let Some(endpoint) = self.endpoint_mut(port, peer) {
            match endpoint.state {
                EndpointState::Connecting | EndpointState::Up => return Ok(()),
                EndpointState::Failing => return unreachable(),
                EndpointState::Closed if endpoint.excluded => return unreachable(),
                EndpointState::Closed => {}
            }
        }
        let end = |port, process| End {
            port,
            process,
            attached: false,
            next_seq: 0,
            arrived: 0,
            lost_from: u32::MAX,
            last_arrival: 0,
            in_flight: 0,
            stalled: VecDeque::new(),
        };
        let link = u32::try_from(self.links.len()).expect("fewer than 2^32 links");
        self.links.push(Link {
            ends: [end(port, me), end(target, peer)],
            ending: false,
            since: self.now,
        });
        self.attach(link, 0, EndpointState::Connecting);
        let model = &self.port(port).model;
        let (delay, jitter) = (model.connect_ns + model.latency_ns, model.connect_ns);
        let at = self.now + delay + self.upto(jitter);
        self.schedule(at, Event::Knock(link));
        Ok(())
    }

    fn attach(&mut self, link: LinkId, side: usize, state: EndpointState) {
        let ends = &mut self.link_mut(link).ends;
        ends[side].attached = true;
        let (port, peer) = (ends[side].port, ends[1 - side].process);
        self.port_mut(port).endpoints.insert(peer, Endpoint::new(state, link, side));
        if state == EndpointState::Up {
            self.report(port, Report::Up(Peer(peer)));
        }
    }

    /// A connection request reaches its target.
    pub(crate) fn knock(&mut self, link: LinkId) {
        let [from, to] = &self.link(link).ends;
        if !from.attached {
            return;
        }
        let (source, target, peer) = (from.port, to.port, from.process);
        let model = &self.port(source).model;
        let (latency, retry) = (model.latency_ns, model.retry_ns);
        let silent = model.caps.failure_report == FailureReport::Silent;
        let refuse = |after, cause| (after, Err(cause));
        let gone = {
            let port = self.port(target);
            !port.open || port.departed
        };
        let (after, accepted) = if self.blocked(source, target) {
            if self.now < self.link(link).since + retry {
                // Asked again, as a network stack does.
                self.schedule(self.now + retry / 4, Event::Knock(link));
                return;
            }
            refuse(0, Cause::TimedOut)
        } else if gone && silent {
            refuse(retry, Cause::TimedOut)
        } else if gone {
            refuse(latency, Cause::ConnectionRefused)
        } else {
            let me = self.port(target).process;
            match self.endpoint_mut(target, peer) {
                Some(endpoint) if endpoint.excluded => refuse(latency, Cause::ConnectionRefused),
                None => {
                    self.attach(link, 1, EndpointState::Up);
                    (latency, Ok(()))
                }
                Some(endpoint) => match endpoint.state {
                    EndpointState::Closed => {
                        self.attach(link, 1, EndpointState::Up);
                        (latency, Ok(()))
                    }
                    EndpointState::Connecting if peer < me => {
                        // Both connect at once: the lower process's link is the one.
                        let own = endpoint.link;
                        self.link_mut(own).ends[0].attached = false;
                        self.attach(link, 1, EndpointState::Up);
                        (latency, Ok(()))
                    }
                    // The other link will come, or this one times out.
                    EndpointState::Connecting => refuse(2 * retry, Cause::TimedOut),
                    EndpointState::Up => {
                        endpoint.next = Some(link);
                        let fault = Fault::rail(Peer(peer), Cause::Disconnected);
                        let old = (endpoint.link, endpoint.side);
                        self.end_of_stream(old.0, old.1, Some(fault));
                        return;
                    }
                    EndpointState::Failing => {
                        endpoint.next = Some(link);
                        return;
                    }
                },
            }
        };
        self.send_answer(link, after, accepted);
    }

    fn send_answer(&mut self, link: LinkId, after: u64, accepted: Result<(), Cause>) {
        let at = self.now + after;
        let end = &mut self.link_mut(link).ends[1];
        end.last_arrival = end.last_arrival.max(at);
        self.schedule(at, Event::Answer { link, accepted });
    }

    /// The answer to a connection request is back.
    pub(crate) fn answer(&mut self, link: LinkId, accepted: Result<(), Cause>) {
        let Some(endpoint) = self.attached(link, 0) else {
            return;
        };
        if endpoint.state != EndpointState::Connecting {
            return;
        }
        if accepted.is_ok() && self.link_blocked(link) {
            let retry = self.port(self.link(link).ends[0].port).model.retry_ns;
            let late = self.now >= self.link(link).since + 2 * retry;
            let accepted = if late { Err(Cause::TimedOut) } else { Ok(()) };
            self.schedule(self.now + retry / 4, Event::Answer { link, accepted });
            return;
        }
        let (port, peer) = {
            let ends = &self.link(link).ends;
            (ends[0].port, ends[1].process)
        };
        match accepted {
            Ok(()) => {
                let endpoint = self.attached(link, 0).expect("looked up above");
                endpoint.state = EndpointState::Up;
                self.report(port, Report::Up(Peer(peer)));
            }
            Err(cause) => self.fail(port, peer, Fault::rail(Peer(peer), cause), true),
        }
    }

    /// The end of a link shows at `side`.
    pub(crate) fn gone(&mut self, link: LinkId, side: usize, fault: Option<Fault>) {
        if !self.link(link).ends[side].attached {
            return;
        }
        let late = Fault::rail(Peer(self.link(link).ends[1 - side].process), Cause::TimedOut);
        if self.link_blocked(link) && fault.as_ref() != Some(&late) {
            // The word does not get through; silence does.
            let at = self.now + self.port(self.link(link).ends[side].port).model.retry_ns;
            self.schedule(at, Event::Gone { link, side, fault: Some(late) });
            return;
        }
        self.end_of_stream(link, side, fault);
    }

    /// Puts the end behind the frames that arrived; `progress` finds it there.
    fn end_of_stream(&mut self, link: LinkId, side: usize, fault: Option<Fault>) {
        let (port, peer) = {
            let ends = &self.link(link).ends;
            (ends[side].port, ends[1 - side].process)
        };
        let Some(endpoint) = self.attached(link, side) else {
            return;
        };
        if endpoint.state == EndpointState::Connecting {
            let fault = fault.unwrap_or(Fault::rail(Peer(peer), Cause::ConnectionRefused));
            self.fail(port, peer, fault, true);
            return;
        }
        if endpoint.state != EndpointState::Up
            || matches!(endpoint.received.back(), Some(Received::End(_)))
        {
            return;
        }
        endpoint.received.push_back(Received::End(fault));
        self.report(port, Report::Received(Peer(peer)));
    }

    /// Tells the end opposite of `side` that this one is no more, as the transport's caps have it.
    fn tell_other_end(&mut self, link: LinkId, side: usize, fault: Option<Fault>) {
        let ends = &self.link(link).ends;
        if !ends[1 - side].attached {
            return;
        }
        let (other, last) = (ends[1 - side].port, ends[side].last_arrival);
        let model = &self.port(other).model;
        let quiet = fault.is_none();
        let (detect, latency) = (model.detect_ns, model.latency_ns);
        if quiet || model.caps.failure_report == FailureReport::Prompt {
            let wait = if quiet { 0 } else { self.upto(detect) };
            let at = (self.now + latency + wait).max(last + 1);
            self.schedule(at, Event::Gone { link, side: 1 - side, fault });
        }
    }

    /// A frame met nobody at the far end: where use shows failure, it shows now.
    pub(crate) fn nobody_there(&mut self, link: LinkId, side: usize) {
        let ends = &self.link(link).ends;
        let (port, peer) = (ends[side].port, ends[1 - side].process);
        if self.port(ends[1 - side].port).departed {
            return; // its good-bye is on the way
        }
        let model = &self.port(port).model;
        if model.caps.failure_report == FailureReport::OnUse && !self.link(link).ending {
            let fault = if self.is_alive(peer) {
                Fault::rail(Peer(peer), Cause::Disconnected)
            } else {
                self.port(port).model.death.fault(Peer(peer))
            };
            let at = self.now + self.port(port).model.latency_ns;
            self.link_mut(link).ending = true;
            self.schedule(at, Event::Gone { link, side, fault: Some(fault) });
        }
    }

    /// Fences an endpoint and begins to give everything back. With `tell`, the fault itself is reported first.
    pub(crate) fn fail(&mut self, port: PortId, peer: u32, fault: Fault, tell: bool) {
        let slow = self.port(port).model.slow_close;
        let slow = self.chance(slow);
        let Some(endpoint) = self.endpoint_mut(port, peer) else {
            return;
        };
        debug_assert!(matches!(endpoint.state, EndpointState::Connecting | EndpointState::Up));
        endpoint.state = EndpointState::Failing;
        endpoint.fault = Some(fault.clone());
        endpoint.received.clear();
        endpoint.busy = false;
        let (link, side) = (endpoint.link, endpoint.side);
        let ops = endpoint.ops.clone();
        for &id in &ops {
            let op = self.op_mut(id).expect("an endpoint's operations are in the table");
            op.fenced = true;
            if let OpKind::Send { frame: Some(frame), .. } = &op.kind {
                let lost = frame.seq;
                self.lose_from(link, side, lost);
            }
        }
        self.link_mut(link).ends[side].attached = false;
        let me = self.port(port).process;
        if fault.cause != Cause::Finalized {
            self.tell_other_end(link, side, Some(Fault::rail(Peer(me), Cause::Disconnected)));
        }
        if tell {
            self.report(port, Report::Fault(fault.clone()));
        }
        let later = if slow { self.upto(ops.len() as u64) as usize } else { 0 };
        for &id in &ops[..ops.len() - later] {
            self.purge(id, &fault);
        }
        if slow {
            let at = self.now + 1 + self.upto(50_000);
            self.schedule(at, Event::FinishClose { port, peer, link });
        } else {
            self.report(port, Report::Closed(Peer(peer)));
        }
    }

    /// A frame whose payload was never read takes those behind it along.
    fn lose_unread(&mut self, kind: &OpKind, link: LinkId, side: usize) {
        if let OpKind::Send { frame: Some(frame), .. } = kind {
            self.lose_from(link, side, frame.seq);
        }
    }

    fn lose_from(&mut self, link: LinkId, side: usize, seq: u32) {
        let end = &mut self.link_mut(link).ends[side];
        end.lost_from = end.lost_from.min(seq);
    }

    pub(crate) fn finish_close(&mut self, port: PortId, peer: u32, link: LinkId) {
        let Some(endpoint) = self.endpoint_mut(port, peer) else {
            return;
        };
        if endpoint.link != link || endpoint.state != EndpointState::Failing {
            return;
        }
        let fault = endpoint.fault.clone().expect("a failing endpoint has a fault");
        for id in endpoint.ops.clone() {
            self.purge(id, &fault);
        }
        self.report(port, Report::Closed(Peer(peer)));
    }

    /// Gives one fenced operation back.
    fn purge(&mut self, id: OpId, fault: &Fault) {
        let Some(op) = self.remove_op(id) else {
            return;
        };
        self.port(op.port).counters.purged.add(1);
        let fault = fault.clone();
        let report = match op.kind {
            OpKind::Send { descriptor, .. } => Report::Completed(descriptor, Err(fault)),
            OpKind::Rma { descriptor, .. } => Report::RmaCompleted(descriptor, Err(fault)),
            OpKind::Landing { region, token, .. } => {
                Report::Landed(Peer(op.peer), region, token, Err(fault))
            }
        };
        self.report(op.port, report);
    }

    /// From this side: see [`ironweave_btl::Btl::invalidate`]. Gives back the frames to deliver first.
    pub(crate) fn invalidate(
        &mut self,
        port: PortId,
        peer: u32,
        residue: Residue,
    ) -> Vec<super::flow::Frame> {
        let Some(endpoint) = self.endpoint_mut(port, peer) else {
            return Vec::new();
        };
        if !matches!(endpoint.state, EndpointState::Connecting | EndpointState::Up) {
            return Vec::new();
        }
        // A landing frame at the head was taken out already; what is here arrived whole.
        let frames = match residue {
            Residue::Discard => Vec::new(),
            Residue::Deliver => endpoint
                .received
                .drain(..)
                .filter_map(|received| match received {
                    Received::Frame(frame) => Some(frame),
                    Received::End(_) => None,
                })
                .collect(),
        };
        self.fail(port, peer, Fault::operation(Peer(peer), Cause::Invalidated), false);
        frames
    }

    pub(crate) fn exclude(&mut self, port: PortId, peer: u32) {
        let endpoints = &mut self.port_mut(port).endpoints;
        let endpoint = endpoints
            .entry(peer)
            .or_insert_with(|| Endpoint::new(EndpointState::Closed, LinkId::MAX, 0));
        endpoint.excluded = true;
    }

    /// The `closed` report is being told: the endpoint may begin a new life.
    pub(crate) fn closed(&mut self, port: PortId, peer: u32) {
        let endpoint = self.endpoint_mut(port, peer).expect("only known endpoints close");
        debug_assert!(endpoint.ops.is_empty(), "closed with operations outstanding");
        endpoint.state = EndpointState::Closed;
        if let Some(link) = endpoint.next.take()
            && self.link(link).ends[0].attached
        {
            self.schedule(self.now, Event::Knock(link));
        }
    }

    /// Breaks or repairs something.
    pub(crate) fn break_now(&mut self, fault: SimFault) {
        match fault {
            SimFault::Kill(process) => {
                if self.is_alive(process.0) && !self.rails(process.0).is_empty() {
                    for port in self.bury(process.0) {
                        self.close_port(port);
                    }
                }
            }
            SimFault::Cut(a, b, rail) => self.cut(Cut::Pair(a.0, b.0, rail)),
            SimFault::Partition(group) => self.cut(Cut::Group(group)),
            SimFault::Heal => self.heal(),
            SimFault::Device(process, rail) => self.lose_device(process.0, rail),
            SimFault::Break(a, b, rail) => {
                if let Some(&port) = self.rails(a.0).get(usize::from(rail))
                    && let Some(endpoint) = self.port(port).endpoints.get(&b.0)
                {
                    self.break_link(endpoint.link, Cause::Injected("link broken"));
                }
            }
        }
    }

    /// Both attached ends of a link see it break.
    fn break_link(&mut self, link: LinkId, cause: Cause) {
        if self.links.get(link as usize).is_none() {
            return;
        }
        for side in 0..2 {
            let peer = self.link(link).ends[1 - side].process;
            self.end_of_stream(link, side, Some(Fault::rail(Peer(peer), cause.clone())));
            let end = &mut self.link_mut(link).ends[side];
            end.lost_from = end.lost_from.min(end.arrived);
        }
    }

    /// The process of this port died, or dropped its transport without a word.
    pub(crate) fn close_port(&mut self, port: PortId) {
        let (me, departed) = {
            let port = self.port_mut(port);
            if !port.open {
                return;
            }
            port.open = false;
            port.inbox.clear();
            port.registered.clear();
            (port.process, port.departed)
        };
        for (_, mut endpoint) in std::mem::take(&mut self.port_mut(port).endpoints) {
            let (link, side) = (endpoint.link, endpoint.side);
            for id in std::mem::take(&mut endpoint.ops) {
                if let Some(op) = self.remove_op(id) {
                    self.lose_unread(&op.kind, link, side);
                }
            }
            if link == LinkId::MAX || !self.link(link).ends[side].attached {
                continue;
            }
            self.link_mut(link).ends[side].attached = false;
            if !departed {
                // Some of what is on the wire still arrives, by the seed.
                let end = &self.link(link).ends[side];
                let (arrived, next) = (end.arrived, end.next_seq);
                let lost = arrived + self.upto(u64::from(next.saturating_sub(arrived))) as u32;
                let end = &mut self.link_mut(link).ends[side];
                end.lost_from = end.lost_from.min(lost);
                self.cut_landing(link, 1 - side);
                let other = self.link(link).ends[1 - side].port;
                let fault = if self.is_alive(me) {
                    Fault::rail(Peer(me), Cause::Disconnected)
                } else {
                    self.port(other).model.death.fault(Peer(me))
                };
                self.tell_other_end(link, side, Some(fault));
            }
        }
    }

    /// Says good-bye on every link, behind everything that was sent.
    pub(crate) fn depart(&mut self, port: PortId) {
        if std::mem::replace(&mut self.port_mut(port).departed, true) {
            return;
        }
        let links: Vec<_> = self
            .port(port)
            .endpoints
            .values()
            .filter(|endpoint| endpoint.link != LinkId::MAX)
            .map(|endpoint| (endpoint.link, endpoint.side))
            .collect();
        for (link, side) in links {
            if self.link(link).ends[side].attached {
                self.tell_other_end(link, side, None);
            }
            if !self.link(link).ends[1 - side].attached {
                // Nobody answered yet, and nobody shall.
                self.link_mut(link).ends[side].attached = false;
            }
        }
    }

    fn lose_device(&mut self, process: u32, rail: u16) {
        let Some(&port) = self.rails(process).get(usize::from(rail)) else {
            return;
        };
        if !self.port(port).open {
            return;
        }
        let fault = Fault::device(Cause::Injected("device lost"));
        self.report(port, Report::Fault(fault.clone()));
        let peers: Vec<u32> = self.port(port).endpoints.keys().copied().collect();
        for peer in peers {
            let endpoint = self.endpoint_mut(port, peer).expect("listed above");
            if matches!(endpoint.state, EndpointState::Connecting | EndpointState::Up) {
                self.fail(port, peer, fault.clone(), false);
            }
        }
    }

    fn cut(&mut self, cut: Cut) {
        self.cuts.push(cut);
        for link in 0..self.links.len() as LinkId {
            let ends = &self.link(link).ends;
            if ends[0].attached
                && ends[1].attached
                && self.link_blocked(link)
                && self.port(ends[0].port).model.caps.failure_report == FailureReport::Prompt
            {
                self.start_giving_up(link);
            }
        }
    }

    pub(crate) fn start_giving_up(&mut self, link: LinkId) {
        let retry = self.port(self.link(link).ends[0].port).model.retry_ns;
        let at = self.now + retry + self.upto(retry);
        self.schedule(at, Event::GiveUp { link, heals: self.heals });
    }

    /// The cut of then may have been healed, and another be there now: that one has its own time.
    pub(crate) fn give_up(&mut self, link: LinkId, heals: u32) {
        if self.heals == heals && self.link_blocked(link) {
            self.break_link(link, Cause::TimedOut);
        }
    }

    fn heal(&mut self) {
        self.cuts.clear();
        self.heals += 1;
        for event in std::mem::take(&mut self.held_back) {
            self.schedule(self.now, event);
        }
        for link in 0..self.links.len() as LinkId {
            for side in 0..2 {
                for frame in std::mem::take(&mut self.link_mut(link).ends[side].stalled) {
                    self.arrive(link, side, frame);
                }
            }
        }
    }
}
