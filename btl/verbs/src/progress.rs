//! What `progress` does: completions at every call; letters, events and silence when the clock says so.

use crate::close::Ending;
use crate::conn::{Conn, Look};
use crate::endpoint::{Link, Slot};
use crate::fault::{Verdict, cause, of_event, of_status};
use crate::lean;
use crate::rail::Verbs;
use crate::ring::{Order, order};
use crate::wire::{self, Frame, OFFER, PREFIX};
use ironweave_btl::{Cause, Fault, Peer, Residue, Sink};
use ironweave_ffi_verbs::{CompletionQueue, Status, Wc};
use std::time::{Duration, Instant};

/// Completions taken in one go.
pub const BATCH: usize = 16;
/// The clock is looked at every so many calls.
const STRIDE: u32 = 32;
/// While no frame, put or get is out: every so many calls look whether a credit, a probe or a queue pair is over.
const OVER_EVERY: u32 = 8;
/// Time between looks at letters and events while no connection is being made.
const LOOK: Duration = Duration::from_millis(1);
/// Time between looks at connections, by how many there are.
const SWEEP: Duration = Duration::from_millis(1);
const SWEEP_EACH: Duration = Duration::from_micros(20);

impl Verbs {
    #[inline]
    pub(crate) fn make_progress<S: Sink>(&mut self, sink: &mut S) -> usize {
        // Those of requests are few where one waits for a peer, and looking for them takes as long as looking for what arrives.
        let over = self.in_flight > 0 || self.calls.is_multiple_of(OVER_EVERY);
        let mut reports = self.poll_arrivals(sink).0;
        if over {
            reports += self.poll_over(sink).0;
        }
        while let Some((descriptor, outcome)) = self.done.pop_front() {
            reports += 1;
            self.counters.purged.add(u64::from(outcome.is_err()));
            sink.rma_completed(descriptor, outcome);
        }
        self.calls = self.calls.wrapping_add(1);
        if !self.meeting.is_empty() || self.short || self.calls.is_multiple_of(STRIDE) {
            reports += self.look_around(Instant::now(), sink);
        }
        while let Some(peer) = self.troubled.pop() {
            reports += self.end_troubled(peer, sink);
        }
        reports
    }

    /// Has the next call look at the clock: after a sleep many a call may not follow for long.
    pub(crate) fn look_soon(&mut self) {
        self.calls |= STRIDE - 1;
    }

    /// Takes a batch of completions of both queues and of what lies in rings: how many reports were made, and whether
    /// there was nothing.
    pub(crate) fn poll_queues<S: Sink>(&mut self, sink: &mut S) -> (usize, bool) {
        let (arrived, none) = self.poll_arrivals(sink);
        let (over, nothing) = self.poll_over(sink);
        (arrived + over, none && nothing)
    }

    /// Takes a batch of what arrived.
    fn poll_arrivals<S: Sink>(&mut self, sink: &mut S) -> (usize, bool) {
        // Completions that `arm` found came before all others.
        let mut reports = if self.found.is_empty() { 0 } else { self.take_found(sink) };
        let by_ring = self.poll_rings(sink);
        reports += by_ring;
        let (batch, arrived) = self.poll(|of| &of.arrivals);
        for completion in &batch[..arrived] {
            reports += self.arrived(completion, sink);
        }
        self.batch = batch;
        (reports, arrived == 0 && by_ring == 0)
    }

    /// Takes a batch of requests that are over.
    fn poll_over<S: Sink>(&mut self, sink: &mut S) -> (usize, bool) {
        let (batch, over) = self.poll(|of| &of.sends);
        let mut reports = 0;
        for completion in &batch[..over] {
            reports += self.request_over(completion, sink);
        }
        self.batch = batch;
        (reports, over == 0)
    }

    /// What is in a queue, and how many. The batch is out of `self` for as long as it is read; made once, for clearing it at each look
    /// would take longer than the look.
    #[inline]
    fn poll(&mut self, queue: impl Fn(&Verbs) -> &CompletionQueue) -> (Vec<Wc>, usize) {
        let mut batch = std::mem::take(&mut self.batch);
        batch.resize(BATCH, Wc::default());
        let polled = queue(self).poll(&mut batch);
        if polled.is_none() {
            self.device_broke();
        }
        (batch, polled.unwrap_or(0))
    }

    /// Takes all completions that are there now: how many reports were made.
    pub(crate) fn drain<S: Sink>(&mut self, sink: &mut S) -> usize {
        let most = (self.receives.count() + self.config.queue) as usize / BATCH + 2;
        let mut reports = 0;
        for _ in 0..most {
            let (told, idle) = self.poll_queues(sink);
            reports += told;
            if idle {
                break;
            }
        }
        reports
    }

    /// The connection that a completion of a request is of.
    fn owner(&mut self, completion: &Wc) -> Option<Peer> {
        let peer = Peer((completion.wr_id >> 44) as u32);
        let generation = (completion.wr_id >> 32 & 0xfff) as u32;
        let slot = self.slots.get_mut(peer.index())?;
        if slot.generation & 0xfff != generation {
            return None;
        }
        // On iWARP the first frame is sent before the connection is up.
        let conn = slot.link.conn()?;
        conn.has(completion.wr_id as u32).then_some(peer)
    }

    /// A request, and those before it, are over.
    pub(crate) fn request_over<S: Sink>(&mut self, completion: &Wc, sink: &mut S) -> usize {
        let Some(peer) = self.owner(completion) else { return 0 };
        let status = Status::of(completion.status);
        let number = completion.wr_id as u32;
        let Some(conn) = self.slots[peer.index()].link.conn() else { return 0 };
        // The first error tells that all before it succeeded; those that follow tell nothing of others.
        let well = match status {
            Status::Success => conn.over(number),
            // On iWARP each tells of itself.
            _ if conn.is_flushing() || conn.manager.is_some() => 0,
            _ => conn.over(number) - 1,
        };
        let mut reports = 0;
        for _ in 0..well {
            let conn = self.slots[peer.index()].link.conn();
            let Some(work) = conn.and_then(Conn::pop) else { break };
            reports += self.give_back(peer, work, Ok(()), sink);
        }
        if status != Status::Success
            && let Link::Up(conn) = &mut self.slots[peer.index()].link
        {
            conn.flushed(number);
            if conn.doom.is_none() {
                tracing::debug!(%peer, ?status, vendor = completion.vendor_err, "a request failed");
                conn.doom = Some(Fault::rail(peer, of_status(status)));
                self.troubled.push(peer);
            }
        }
        reports
    }

    /// As `request_over`, when nobody hears reports any more.
    pub(crate) fn acknowledged(&mut self, completion: &Wc) {
        let Some(peer) = self.owner(completion) else { return };
        let Link::Up(conn) = &mut self.slots[peer.index()].link else { return };
        if Status::of(completion.status) == Status::Success {
            for _ in 0..conn.over(completion.wr_id as u32) {
                conn.pop();
            }
        } else {
            conn.doom = Some(Fault::rail(peer, Cause::Disconnected));
        }
    }

    pub(crate) fn post_receive(&mut self, index: u64) {
        if self.receives.has(index) && self.receives.post(index).is_err() {
            self.device_broke();
        }
    }

    /// Something was received.
    pub(crate) fn arrived<S: Sink>(&mut self, completion: &Wc, sink: &mut S) -> usize {
        let index = completion.wr_id;
        if !self.receives.has(index) {
            return 0;
        }
        if Status::of(completion.status) != Status::Success {
            self.post_receive(index); // flushed: its queue pair ends
            return 0;
        }
        let len = completion.byte_len as usize;
        let number = completion.qp_num;
        if let Some(beside) = completion.beside() {
            return self.arrived_lean((index, len, beside), number, sink);
        }
        let said = wire::decode_frame(self.receives.bytes(index, len));
        let is_its = |slot: &Slot| slot.link.is_by(number);
        // Who says to have sent it must be whom the queue pair belongs to.
        let slot_of = |said: &wire::Said| self.slots.get(Peer(said.from).index());
        let said = said.filter(|said| slot_of(said).is_some_and(is_its));
        let Some(said) = said else {
            self.post_receive(index);
            if let Some(at) = self.slots.iter().position(is_its) {
                self.counters.rejected.add(1);
                self.doom(Peer(at as u32), Cause::Malformed("a frame"));
            }
            return 0;
        };
        let peer = Peer(said.from);
        let meets = matches!(self.slots[peer.index()].link, Link::Calling(_) | Link::Answering(_));
        if said.frame == Frame::Open && meets && self.iwarp.is_some() {
            self.post_receive(index);
            return self.opened(peer, sink);
        }
        if let Link::Calling(meeting) | Link::Answering(meeting) =
            &mut self.slots[peer.index()].link
        {
            meeting.held.push((index, len)); // until the last greeting
            return 0;
        }
        self.frame(index, len, None, peer, sink)
    }

    /// A payload that was sent alone; whose, only the queue pair tells.
    fn arrived_lean<S: Sink>(
        &mut self,
        (index, len, beside): (u64, usize, u32),
        number: u32,
        sink: &mut S,
    ) -> usize {
        let is_its = |slot: &Slot| slot.link.is_by(number);
        if !self.slots.get(self.lean_from.index()).is_some_and(is_its) {
            let Some(at) = self.slots.iter().position(is_its) else {
                self.post_receive(index);
                return 0;
            };
            self.lean_from = Peer(at as u32);
        }
        let peer = self.lean_from;
        if let Link::Up(conn) = &self.slots[peer.index()].link
            && conn.mtu > 0
        {
            return self.frame(index, len, Some(beside), peer, sink);
        }
        // Who sends so has heard of a frame that was taken here.
        self.post_receive(index);
        self.counters.rejected.add(1);
        self.doom(peer, Cause::Malformed("a payload alone"));
        0
    }

    /// A frame of a connection that is up, in a buffer that is posted again. Those that were written to the ring before it
    /// are there, and go first.
    pub(crate) fn frame<S: Sink>(
        &mut self,
        index: u64,
        len: usize,
        lean: Option<u32>,
        peer: Peer,
        sink: &mut S,
    ) -> usize {
        let mut reports = self.poll_ring(peer, usize::MAX, sink);
        let Link::Up(conn) = &mut self.slots[peer.index()].link else {
            self.post_receive(index);
            return reports;
        };
        let said = match lean {
            None => wire::decode_frame(self.receives.bytes(index, len)),
            Some(beside) => lean::read(beside, &conn.credits).map(|(taken, number)| {
                let frame = Frame::Data(conn.came.next().1);
                wire::Said { from: peer.0, frame, taken, number }
            }),
        };
        let Some(said) = said else {
            self.post_receive(index);
            self.reject(peer, Cause::Malformed("what was sent beside a payload"));
            return reports;
        };
        conn.credits.heard(said.taken);
        if said.frame == Frame::Open {
            self.post_receive(index); // said again; it took no credit and has no number
            return reports;
        }
        if order(said.number, &conn.credits) != Order::Now {
            self.post_receive(index);
            self.reject(peer, Cause::Malformed("a frame out of order"));
            return reports;
        }
        let bytes = self.receives.bytes(index, len);
        let mut offers = false;
        match said.frame {
            Frame::Data(header) if !conn.discards && !conn.finished => {
                let next;
                let (header, payload) = match lean {
                    None => bytes[PREFIX..].split_at(header),
                    Some(_) => {
                        next = conn.came.next().0;
                        (&next[..header], bytes)
                    }
                };
                conn.came.follow(header);
                conn.came.alone += u64::from(lean.is_some());
                conn.by_ring = false;
                offers = self.ring.is_some_and(|shape| lean.is_none() && len <= shape.longest())
                    && conn.sent_short(self.config.ring_after);
                self.counters.frames_received.add(1);
                self.counters.bytes_received.add(payload.len() as u64);
                sink.frame(peer, header, payload);
                reports += 1;
            }
            Frame::Offer => {
                let offer = bytes[PREFIX..].first_chunk::<OFFER>().copied();
                self.take_offer(peer, &offer.unwrap_or([0; OFFER]));
            }
            Frame::Bye if !conn.finished => {
                conn.finished = true;
                if conn.doom.is_none() {
                    self.troubled.push(peer);
                }
            }
            _ => {}
        }
        if self.receives.post(index).is_err() {
            self.device_broke();
            return reports;
        }
        let Link::Up(conn) = &mut self.slots[peer.index()].link else { return reports };
        if let Err(error) = conn.took_frame() {
            self.doom(peer, cause(&error));
        }
        if offers {
            self.offer_ring(peer);
        }
        reports
    }

    /// A connection is to end, in this call of `progress`.
    pub(crate) fn doom(&mut self, peer: Peer, cause: Cause) {
        if let Link::Up(conn) = &mut self.slots[peer.index()].link
            && conn.doom.is_none()
        {
            conn.doom = Some(Fault::rail(peer, cause));
            self.troubled.push(peer);
        }
    }

    fn end_troubled<S: Sink>(&mut self, peer: Peer, sink: &mut S) -> usize {
        // Its good-bye may lie beside the error that its going made, behind many frames.
        let before = self.drain(sink);
        let ending = match &self.slot(peer).link {
            Link::Failed(fault) => Ending::Broken(fault.clone()),
            Link::Up(conn) => match &conn.doom {
                _ if conn.finished => Ending::Finalized,
                Some(fault) => Ending::Broken(fault.clone()),
                None => return before,
            },
            _ => return before, // it ended meanwhile
        };
        before + self.end(peer, ending, Residue::Deliver, sink)
    }

    /// What needs the clock.
    fn look_around<S: Sink>(&mut self, now: Instant, sink: &mut S) -> usize {
        let mut reports = 0;
        if !self.meeting.is_empty() || now - self.looked >= LOOK {
            self.looked = now;
            reports += match self.iwarp {
                Some(_) => self.read_socket(sink) + self.hear_manager(sink),
                None => self.read_letters(sink),
            };
            reports += self.hear_events(now, sink);
            self.hear_again(now);
            reports += self.meet_again(now, sink);
        }
        let pause = SWEEP.max(SWEEP_EACH * self.live.len() as u32);
        if std::mem::take(&mut self.short) || now - self.swept >= pause {
            self.swept = now;
            self.kept.sweep();
            self.open.sweep(now);
            self.sweep(now);
        }
        reports
    }

    /// Looks at each connection that is up: credits to tell, requests that got stuck, peers that say nothing.
    fn sweep(&mut self, now: Instant) {
        let cut = self.down_since.is_some_and(|since| now - since > self.config.link_timeout);
        for at in 0..self.live.len() {
            let peer = self.live[at];
            let Link::Up(conn) = &mut self.slots[peer.index()].link else { continue };
            if conn.doom.is_some() || conn.finished {
                continue;
            }
            let part = conn.part_for(now) > self.config.stall_timeout;
            let outcome = match conn.look(now) {
                Ok(_) if part => Err(Cause::Malformed("a part of a frame in a ring")),
                Ok(_) if cut => Err(Cause::Unreachable),
                Ok(Look::Stuck(quiet)) if quiet > self.config.stall_timeout => Err(Cause::TimedOut),
                Ok(Look::Idle(quiet))
                    if !self.config.probe.is_zero()
                        && quiet > self.config.probe
                        && !self.departed =>
                {
                    let probed = match &self.iwarp {
                        Some(iwarp) => conn.ask(&iwarp.scratch()),
                        None => conn.tell(true),
                    };
                    let probed = probed.map_err(|error| cause(&error));
                    conn.probed(now);
                    probed
                }
                Ok(_) => Ok(()),
                Err(error) => Err(cause(&error)),
            };
            if let Err(cause) = outcome {
                self.reject(peer, cause);
            }
        }
    }

    fn hear_events<S: Sink>(&mut self, now: Instant, sink: &mut S) -> usize {
        while let Some(event) = self.device.event() {
            tracing::debug!(device = self.device.name(), ?event, "event");
            match of_event(event, self.port) {
                Verdict::Connection(number) => {
                    let its = |slot: &Slot| matches!(&slot.link, Link::Up(conn) if conn.queue_pair.number() == number);
                    if let Some(at) = self.slots.iter().position(its) {
                        self.doom(Peer(at as u32), Cause::Device("the queue pair went into error"));
                    }
                }
                Verdict::PortDown => {
                    self.down_since.get_or_insert(now);
                }
                Verdict::PortUp => self.down_since = None,
                Verdict::Device => self.device_broke(),
                Verdict::None => {}
            }
        }
        match &self.broken {
            Some(cause) if !self.told_broken => {
                self.told_broken = true;
                self.counters.faults.add(1);
                sink.fault(Fault::device(cause.clone()));
                1
            }
            _ => 0,
        }
    }

    /// Nothing of this device can be trusted any more: all connections end.
    pub(crate) fn device_broke(&mut self) {
        if self.broken.is_none() {
            let cause = Cause::Device("the device is broken or gone");
            self.broken = Some(cause.clone());
            for peer in self.live.clone() {
                self.doom(peer, cause.clone());
            }
        }
    }
}
