//! Long frames over lanes as the rail drives them ([`leads`] has what is kept of them): a LEAD is sent, its rest handed to the provider, and
//! the rest of a peer's LEAD given a place to land.

use crate::endpoint::index_of;
use crate::provider::{Place, judge};
use crate::rail::Ofi;
use crate::wire::{Kind, PREFIX, Prefix};
use crate::{leads, lend, pieces};
use ironweave_btl::copy::pack;
use ironweave_btl::memory::SendRegion;
use ironweave_btl::{Cause, Descriptor, Fault, Peer, Refused, Sink};
use ironweave_ffi::ofi::Errno;
use zerocopy::IntoBytes;

impl Ofi {
    /// Sends a long frame over the lanes: its first piece now, the rest out of the user's memory. `Err(None)` where there are no lanes
    /// for that, or not yet.
    #[allow(clippy::result_large_err)] // the descriptor goes back
    pub(crate) fn lead(
        &mut self,
        descriptor: Descriptor,
    ) -> Result<(), (Option<Refused>, Descriptor)> {
        let (peer, window) = (descriptor.peer, self.core.window);
        let [region] = &descriptor.payload[..] else { return Err((None, descriptor)) };
        let region = region.part(0..region.len());
        let whole = region.len() <= leads::LENT_MAX;
        if let Err(refused) = self.sendable(peer) {
            return Err((Some(refused), descriptor));
        }
        let ep = self.core.peers[peer.index()].ep.as_deref_mut();
        let (Some(ep), Some(port)) = (ep, self.port.as_mut()) else {
            return Err((Some(Refused::Closed), descriptor));
        };
        let life = ep.token;
        let (kind, length, first) = match whole {
            true => (Kind::Data, 0, region.len()),
            false if self.core.leads.has_long(life) => {
                (Kind::Lead, pieces::WHOLE, leads::FIRST_AMONG)
            }
            false => (Kind::Lead, pieces::WHOLE, leads::FIRST),
        };
        let lead = PREFIX + descriptor.header.as_bytes().len() + length;
        let total = lead + first;
        let Some((lane, to)) = self.core.reads.lanes.outward(life) else {
            let wanted = !whole || ep.wants_lane();
            let offered = wanted && self.core.reads.lanes.offer(port, life).is_some();
            if offered && !self.core.reads.lanes.is_idle() {
                self.tend_lanes();
                self.flush();
            }
            return Err((None, descriptor));
        };
        let room = ep.has_room(total, window) && self.core.leads.has_room();
        let Some(slot) = room.then(|| port.buffer(lead)).flatten() else {
            self.core.counters.refused.add(1);
            return Err((Some(Refused::NoRoom), descriptor));
        };
        let (credits, number, theirs) = (ep.take_owed(), ep.next_out, ep.theirs);
        let header = descriptor.header.as_bytes();
        let prefix = Prefix::new(kind, header.len(), credits, number, theirs);
        let bytes = port.bytes_mut(&slot);
        bytes[..PREFIX].copy_from_slice(prefix.as_bytes());
        bytes[PREFIX..PREFIX + header.len()].copy_from_slice(header);
        let own = (slot, lead);
        let sent = match whole {
            true => lend::send_lent(port, lane, own, &region, to, self.core.leads.next() as u64),
            false => {
                let length = (region.len() as u32).to_le_bytes();
                bytes[PREFIX + header.len()..lead].copy_from_slice(&length);
                lend::send_over(port, lane, own, (&region, first), to, life)
            }
        };
        if let Err((error, slot)) = sent {
            port.give_back(slot);
            ep.owe(credits);
            if credits != 0 && !self.core.due.contains(&peer.0) {
                self.core.due.push(peer.0);
            }
            self.no_room(life, judge(Place::Call, error));
            self.core.counters.refused.add(1);
            return Err((Some(Refused::NoRoom), descriptor));
        }
        ep.count_out(total);
        ep.last_lead = Some(number);
        let mark = self.core.leads.add(life, number, first, descriptor);
        self.count_sent(region.len());
        if !whole {
            self.send_rest(mark);
        }
        Ok(())
    }

    /// Hands the rest of a frame to the provider.
    fn send_rest(&mut self, mark: usize) {
        let core = &mut self.core;
        let (Some(port), Some((life, number, first, descriptor))) =
            (self.port.as_mut(), core.leads.get(mark))
        else {
            return;
        };
        let Some(ep) = core.peers[descriptor.peer.index()].ep.as_deref() else { return };
        let Some((lane, to)) = core.reads.lanes.outward(life) else { return }; // `lost_lane` tells
        let whole = (&descriptor.payload[0], first);
        let marks = (leads::tag(ep.theirs, number), mark as u64);
        if let Err(error) = lend::send_from(port, lane, whole, to, marks) {
            core.leads.wait(mark);
            self.no_room(life, judge(Place::Call, error));
        }
    }

    /// Goes on with what goes and comes over lanes.
    pub(crate) fn tend_leads<S: Sink>(&mut self, sink: &mut S) {
        for life in std::mem::take(&mut self.core.leads.awaited) {
            self.take_rest(life);
        }
        for mark in self.core.leads.take_unstarted() {
            self.send_rest(mark);
        }
        for descriptor in std::mem::take(&mut self.core.leads.copied) {
            self.core.reports += 1;
            sink.completed(descriptor, Ok(()));
        }
    }

    /// Has the rest of a peer's frame land where it belongs.
    #[inline]
    fn take_rest(&mut self, life: u64) {
        let core = &mut self.core;
        let lane = core.reads.lanes.inward(life);
        let Some(ep) = core.peers.get(index_of(life)).and_then(|seat| seat.ep.as_deref()) else {
            return;
        };
        let (Some(led), true, Some(port)) = (&ep.led, ep.token == life, self.port.as_mut()) else {
            return;
        };
        let marks = (leads::tag(life, ep.next_in), life);
        let taken = match lane {
            Some(lane) => lend::receive_into(port, lane, led, marks),
            None => Err(Errno::OPBADSTATE), // closed meanwhile
        };
        match taken {
            Ok(()) => {}
            Err(Errno::AGAIN) => core.leads.awaited.push(life),
            Err(error) => {
                tracing::debug!(%error, "the rest of a frame cannot be received");
                let peer = Peer(index_of(life) as u32);
                core.failing.push((life, Fault::rail(peer, Cause::Disconnected)));
            }
        }
    }
}

/// Writes the bytes of `regions` from `offset` on, as one after the other, to all of `into`.
pub(crate) fn copy_regions(regions: &[SendRegion], mut offset: usize, mut into: &mut [u8]) {
    for region in regions {
        if into.is_empty() {
            return;
        }
        let there = &region.as_slice()[offset.min(region.len())..];
        offset -= region.len() - there.len();
        let (now, rest) = into.split_at_mut(there.len().min(into.len()));
        pack(now, &there[..now.len()]);
        into = rest;
    }
    assert!(into.is_empty(), "fewer bytes than the payload has");
}
