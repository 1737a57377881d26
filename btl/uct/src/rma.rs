//! The rail's side of user memory: registrations, and beginning, telling and ending what reaches it.
//!
//! How hands are taken off (law 2). Ours, when a life ends: [`Port::fence`] cancels, and the life is [`Phase::Ending`] until the
//! library gave everything back; if a device does not within [`FENCE`], the port is closed with all its queue pairs
//! ([`Uct::lose`]). The peer's, when a registration ends: the device forgets the key at once, also one of memory that was
//! read to its end (UCX opens all memory for writing too, so none may stay open for late repetitions), and who read by way
//! of the kernel finds that it does not count (`reach`).
//!
//! Where messages are not sent out of user memory although UCX could: over tcp to an interface, half a message stays in a stream that
//! UCX leaves open (between endpoints it is closed: [`Connect`](crate::Connect)), and over ud the queue pair goes on reading what a flush
//! gave back.

use crate::core::End;
use crate::endpoint::Phase;
use crate::lend;
use crate::rail::Uct;
use crate::reach::{Key, Reach};
use crate::tasks::Ways;
use crate::wire::{Kind, PREFIX, word};
use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_btl::{
    Cause, Descriptor, Fault, HEADER_MAX, Peer, Refused, RemoteKey, RmaDescriptor, RmaKind, Sink,
};
use ironweave_ffi_uct::{EpId, IfaceId, Memory, Port, UctError};
use std::time::{Duration, Instant};

/// How long a device may take to give everything of one endpoint back: UCX takes no cancellation while a queue pair is full, and
/// where nobody answers any more that is so until the device's retries are over, two seconds (`settings`).
const FENCE: Duration = Duration::from_secs(20);
/// How long the first try waits for it: most often that is enough.
const MOMENT: Duration = Duration::from_millis(20);
/// In the mark of an endpoint of the kernel's copies: what becomes of it is no matter of its life.
pub(crate) const READS: u64 = 1 << 63;

impl Uct {
    /// The line over which memory of a peer is reached.
    fn reach_line(&mut self, peer: Peer) -> Result<EpId, Refused> {
        let seat = self.core.seats.get_mut(peer.index());
        let seat = seat.filter(|seat| seat.ep.is_some()).ok_or(Refused::Closed)?;
        let ep = seat.ep.as_deref_mut().ok_or(Refused::Closed)?;
        match ep.phase {
            Phase::Up => {}
            Phase::Dialing | Phase::Answering => return Err(Refused::Connecting),
            Phase::Ending(_) => return Err(Refused::Closed),
        }
        let iface = match self.reach {
            Reach::Never => return Err(Refused::Unsupported),
            Reach::Device => return Ok(ep.lines.main),
            Reach::Kernel(iface) => iface,
        };
        if let Some(line) = ep.lines.reach {
            return Ok(line);
        }
        let (Some(there), Some(port)) = (&seat.contact.reach, self.port.as_mut()) else {
            return Err(Refused::Unsupported);
        };
        if !port.reaches(iface, there) {
            return Err(Refused::Unsupported);
        }
        let line = port.connect(iface, there, ep.token | READS);
        ep.lines.reach = line.ok();
        ep.lines.reach.ok_or(Refused::Unsupported)
    }

    #[allow(clippy::result_large_err)] // descriptors are given back by value
    pub(crate) fn start_move(
        &mut self,
        descriptor: RmaDescriptor,
    ) -> Result<(), (Refused, RmaDescriptor)> {
        let possible = match &descriptor.kind {
            RmaKind::Put(_) => self.caps.put,
            RmaKind::Get(_) => self.caps.get,
            RmaKind::Atomic(..) => self.caps.atomics,
        };
        let peer = descriptor.peer;
        let line = if possible { self.reach_line(peer) } else { Err(Refused::Unsupported) };
        let line = match line {
            Ok(line) => line,
            Err(refused) => return Err((refused, descriptor)),
        };
        let Some(life) = self.core.endpoint(peer).map(|ep| ep.token) else {
            return Err((Refused::Closed, descriptor));
        };
        if !self.tasks.has_room() {
            self.core.counters.refused.add(1);
            return Err((Refused::NoRoom, descriptor));
        }
        self.core.counters.rma.add(1);
        self.tasks.take(descriptor, life, line, self.reach);
        self.pump();
        Ok(())
    }

    fn pump(&mut self) {
        if let Some(port) = self.port.as_mut() {
            self.tasks.pump(&mut Ways { port, main: self.main, reach: self.reach });
        }
    }

    /// Takes what the library is done with, goes on with what waits, and tells what is over.
    #[cold]
    pub(crate) fn tend_tasks<S: Sink>(&mut self, sink: &mut S) {
        for (cookie, status) in std::mem::take(&mut self.core.done) {
            if let Some(port) = self.port.as_mut() {
                self.tasks.done(cookie, status, port);
            }
        }
        self.pump();
        for (descriptor, outcome) in std::mem::take(&mut self.tasks.moved) {
            self.core.reports += 1;
            self.core.counters.purged.add(u64::from(outcome.is_err()));
            sink.rma_completed(descriptor, outcome);
        }
        for (descriptor, outcome) in std::mem::take(&mut self.tasks.sent) {
            self.core.reports += 1;
            self.core.counters.purged.add(u64::from(outcome.is_err()));
            sink.completed(descriptor, outcome);
        }
    }

    /// Sends a frame out of user memory, or a copy of it where that is as good.
    #[allow(clippy::result_large_err)]
    pub(crate) fn start_send(
        &mut self,
        descriptor: Descriptor,
    ) -> Result<(), (Refused, Descriptor)> {
        let (peer, len) = (descriptor.peer, descriptor.payload_len());
        if self.caps.max_zcopy == 0 {
            return Err((Refused::Unsupported, descriptor));
        }
        let (line, theirs) = match self.admit(peer, len, self.caps.max_zcopy) {
            Ok(admitted) => admitted,
            Err(refused) => return Err((refused, descriptor)),
        };
        let (Some(port), Some(life)) =
            (self.port.as_mut(), self.core.endpoint(peer).map(|ep| ep.token))
        else {
            return Err((Refused::Closed, descriptor));
        };
        if !self.tasks.has_room() {
            self.core.counters.refused.add(1);
            return Err((Refused::NoRoom, descriptor));
        }
        let most = port.attributes(self.main).zcopy_pieces;
        let mut memory: Vec<Memory> = Vec::new();
        if len > 0 && descriptor.payload.len() <= most {
            let register = |region| lend::source(port, self.main, region).ok();
            memory = descriptor.payload.iter().map_while(register).collect();
        }
        if memory.len() != descriptor.payload.len() || len == 0 {
            memory.into_iter().for_each(|memory| port.deregister(memory));
            return self.send_copy(descriptor);
        }
        let header = descriptor.header;
        let header = header.as_bytes();
        let mut lead = [0; PREFIX + HEADER_MAX];
        lead[..PREFIX].copy_from_slice(&word(Kind::Data, header.len(), theirs).to_le_bytes());
        lead[PREFIX..PREFIX + header.len()].copy_from_slice(header);
        let lead = &lead[..PREFIX + header.len()];
        match self.tasks.send(port, (life, line), lead, descriptor, memory) {
            Ok(()) => {
                self.count(len);
                Ok(())
            }
            Err((status, descriptor, memory)) => {
                memory.into_iter().for_each(|memory| port.deregister(memory));
                Err((self.refused(peer, status), descriptor))
            }
        }
    }

    /// Sends a copy of a frame that cannot be registered.
    #[allow(clippy::result_large_err)]
    fn send_copy(&mut self, descriptor: Descriptor) -> Result<(), (Refused, Descriptor)> {
        use ironweave_btl::Btl;
        let len = descriptor.payload_len();
        let pack = |offset: usize, bytes: &mut [u8]| {
            debug_assert_eq!(offset, 0, "transport memory is in one piece");
            let mut at = 0;
            for region in &descriptor.payload {
                bytes[at..at + region.len()].copy_from_slice(region.as_slice());
                at += region.len();
            }
        };
        match self.send_bcopy(descriptor.peer, descriptor.header.as_bytes(), len, pack) {
            Ok(()) => {
                self.tasks.sent.push((descriptor, Ok(())));
                Ok(())
            }
            Err(refused) => Err((refused, descriptor)),
        }
    }

    /// Opens memory to a peer's gets.
    pub(crate) fn open_source(
        &mut self,
        peer: Peer,
        region: &SendRegion,
    ) -> Result<RemoteKey, Refused> {
        if !self.caps.get {
            return Err(Refused::Unsupported);
        }
        self.reach_line(peer)?;
        let (base, len) = (region.as_ptr().addr() as u64, region.len());
        if let Reach::Kernel(_) = self.reach {
            return self.lent.open_word(base, len).ok_or(Refused::NoRoom);
        }
        self.open_device(base, len, |port, main| lend::source(port, main, region))
    }

    /// Opens memory to peers' puts.
    pub(crate) fn open_target(&mut self, region: &RecvRegion) -> Result<RemoteKey, Refused> {
        if !self.caps.put {
            return Err(Refused::Unsupported);
        }
        let (base, len) = (region.as_mut_ptr().addr() as u64, region.len());
        self.open_device(base, len, |port, main| lend::target(port, main, region))
    }

    /// Has the device open memory.
    fn open_device(
        &mut self,
        base: u64,
        len: usize,
        register: impl FnOnce(&mut Port, IfaceId) -> Result<Memory, UctError>,
    ) -> Result<RemoteKey, Refused> {
        let port = self.port.as_mut().ok_or(Refused::Closed)?;
        let keyed = |opener: &[u8]| Key::new(base, len as u64, opener).map(|key| key.encode());
        if len == 0 {
            return keyed(&[]).ok_or(Refused::NoRoom);
        }
        let memory = register(port, self.main).map_err(|error| {
            tracing::debug!(%error, "uct registration refused");
            Refused::NoRoom
        })?;
        match port.pack_key(&memory).ok().and_then(|opener| keyed(&opener)) {
            Some(key) => {
                self.lent.keep(key, memory);
                Ok(key)
            }
            None => {
                port.deregister(memory);
                Err(Refused::NoRoom)
            }
        }
    }

    /// Closes memory to peers.
    pub(crate) fn close_memory(&mut self, key: &RemoteKey) {
        if let (Some(memory), Some(port)) = (self.lent.close(key), self.port.as_mut()) {
            port.deregister(memory);
        }
    }

    /// Takes the library's hands off what tasks of a life reach, which is tried since `since`: whether its main line is of use
    /// after; `None`: not yet.
    pub(crate) fn fence(
        &mut self,
        life: u64,
        (main, reach): (EpId, Option<EpId>),
        since: Option<Instant>,
    ) -> Option<bool> {
        if !self.tasks.has(life) {
            return Some(since.is_none());
        }
        self.tasks.stop(life);
        let Some(port) = self.port.as_mut() else { return Some(false) };
        let line = if let Reach::Kernel(_) = self.reach { reach.unwrap_or(main) } else { main };
        if port.fence(line, if since.is_none() { MOMENT } else { Duration::ZERO }) {
            return Some(line != main);
        }
        if since.is_none_or(|since| since.elapsed() < FENCE) {
            return None;
        }
        self.lose(Cause::Device("it does not give memory back"));
        Some(false)
    }

    /// Closes everything: the device cannot be trusted with memory any more.
    #[cold]
    fn lose(&mut self, cause: Cause) {
        self.port = None;
        self.core.partings.clear();
        for (index, seat) in self.core.seats.iter().enumerate() {
            if let Some(ep) = &seat.ep {
                let fault = Fault::rail(Peer(index as u32), cause.clone());
                self.core.ending.push((ep.token, End::Fault(fault)));
            }
        }
    }
}
