//! Short frames by ring: offering one to a peer that sends many, taking one that is offered, and what comes by it.
//!
//! The layout, and why nothing is taken in part or out of order, is in `ring.rs`. A ring belongs to one connection and ends
//! with it, after the queue pair (`close.rs`). There are few, for who comes first: each look costs a look at all of them.

use crate::conn::{Home, Work};
use crate::endpoint::Link;
use crate::fault::cause;
use crate::memory::Inbox;
use crate::rail::Verbs;
use crate::ring::{Found, Order, order};
use crate::wire::{self, Frame, Offer, PREFIX, Said};
use ironweave_btl::{Cause, Peer, Sink};
use ironweave_ffi_verbs::Operation;
use zerocopy::IntoBytes;

impl Verbs {
    /// Takes up to `most` frames that lie in the ring of `peer` and are next: how many.
    #[inline]
    pub(crate) fn poll_ring<S: Sink>(&mut self, peer: Peer, most: usize, sink: &mut S) -> usize {
        let mut taken = 0;
        let trouble = loop {
            let Verbs { slots, scratch, counters, .. } = &mut *self;
            let Link::Up(conn) = &mut slots[peer.index()].link else { break None };
            let Some(inbox) = conn.inbox().filter(|_| taken < most) else { break None };
            let found = inbox.look(scratch);
            conn.part = found == Found::Part;
            let Found::Whole(len) = found else { break None };
            let bytes = &scratch.as_bytes()[..len];
            let Some(Said { frame: Frame::Data(header), taken: heard, number, .. }) =
                wire::decode_frame(bytes).filter(|said| said.from == peer.0)
            else {
                break Some(Cause::Malformed("a frame in a ring"));
            };
            match order(number, &conn.credits) {
                Order::Now => {}
                Order::Later => break None, // what was sent comes first
                Order::Never => break Some(Cause::Malformed("a frame out of order in a ring")),
            }
            if let Some(inbox) = conn.inbox() {
                inbox.took();
            }
            conn.credits.heard(heard);
            conn.by_ring = true;
            taken += 1;
            if !conn.discards && !conn.finished {
                let (header, payload) = bytes[PREFIX..].split_at(header);
                counters.frames_received.add(1);
                counters.ring_received.add(1);
                counters.bytes_received.add(payload.len() as u64);
                sink.frame(peer, header, payload);
            }
            if let Err(error) = conn.took_frame() {
                break Some(cause(&error));
            }
        };
        if let Some(cause) = trouble {
            self.reject(peer, cause);
        }
        taken
    }

    /// Shows `take` the next frame of `peer` if it lies in its ring and is next, within so many looks more than one: whether it was
    /// taken. Whatever else is there, and all that is wrong with it, is for [`poll_ring`](Self::poll_ring).
    pub(crate) fn take_by_ring(
        &mut self,
        peer: Peer,
        turns: u32,
        take: impl FnOnce(&[u8], &[u8]) -> bool,
    ) -> bool {
        let Verbs { slots, scratch, counters, .. } = &mut *self;
        let Some(Link::Up(conn)) = slots.get_mut(peer.index()).map(|slot| &mut slot.link) else {
            return false;
        };
        let ends = conn.discards || conn.finished || conn.doom.is_some();
        // What did not come by the ring last presumably does not now, either, and `progress` looks for both.
        let turns = if conn.by_ring { turns } else { 0 };
        let Some(inbox) = conn.inbox().filter(|_| !ends) else { return false };
        // Without the processor's pause, which where processors are emulated lets go of the whole processor: 8 B over Soft-RoCE in a virtual
        // machine 185 instead of 214 µs, medians of nine in turns.
        for _ in 0..turns {
            if inbox.has_some() {
                break;
            }
        }
        let Found::Whole(len) = inbox.look(scratch) else { return false };
        let bytes = &scratch.as_bytes()[..len];
        let Some(Said { frame: Frame::Data(header), from, taken: heard, number }) =
            wire::decode_frame(bytes)
        else {
            return false;
        };
        let (header, payload) = bytes[PREFIX..].split_at(header);
        let next = from == peer.0 && order(number, &conn.credits) == Order::Now;
        if !next || !take(header, payload) {
            return false;
        }
        counters.frames_received.add(1);
        counters.ring_received.add(1);
        counters.bytes_received.add(payload.len() as u64);
        if let Some(inbox) = conn.inbox() {
            inbox.took();
        }
        conn.part = false;
        conn.by_ring = true;
        conn.credits.heard(heard);
        if let Err(error) = conn.took_frame() {
            self.reject(peer, cause(&error));
        }
        true
    }

    /// Looks into all rings: how many frames were taken.
    #[inline]
    pub(crate) fn poll_rings<S: Sink>(&mut self, sink: &mut S) -> usize {
        let mut taken = 0;
        let mut at = 0;
        while let Some(&peer) = self.rings.get(at) {
            taken += self.poll_ring(peer, crate::progress::BATCH, sink);
            at += 1;
        }
        taken
    }

    /// The connection ends; what makes no sense is counted, once, for it is the reason.
    pub(crate) fn reject(&mut self, peer: Peer, cause: Cause) {
        let lives = matches!(&self.slots[peer.index()].link, Link::Up(conn) if conn.doom.is_none());
        let malformed = matches!(cause, Cause::Malformed(_));
        self.counters.rejected.add(u64::from(lives && malformed));
        self.doom(peer, cause);
    }

    /// `peer` sends many short frames: it is offered a ring, if there is one to have and room to say so.
    pub(crate) fn offer_ring(&mut self, peer: Peer) {
        let Some(shape) = self.ring else { return };
        let full = self.rings.len() >= self.config.ring_peers as usize;
        let busy = full || self.in_flight >= self.most_in_flight || self.departed;
        let Verbs { slots, buffers, controls, device, key, me, rings, .. } = &mut *self;
        let Link::Up(conn) = &mut slots[peer.index()].link else { return };
        if busy {
            conn.owes_nothing();
            return; // when it sends the next
        }
        let block = conn.block;
        if !conn.has_room(1) || !conn.has_credit_for_offer(|| controls.words(block)) {
            return;
        }
        let Some(slot) = buffers.take() else { return };
        let inbox = match Inbox::new(device, shape) {
            Ok(inbox) => inbox,
            Err(error) => {
                tracing::debug!(%peer, %error, "no ring for short frames");
                buffers.put_back(slot);
                conn.home = Home::Never;
                return;
            }
        };
        let offer = Offer::new(inbox.remote(), shape, key, me.0, &conn.nonces);
        let total = PREFIX + offer.as_bytes().len();
        let bytes = buffers.bytes(&slot);
        bytes[..PREFIX].copy_from_slice(&conn.prefix(Frame::Offer, *me));
        bytes[PREFIX..total].copy_from_slice(offer.as_bytes());
        conn.home = Home::Offered(inbox);
        rings.push(peer);
        let piece = buffers.piece(&slot, 0..total);
        match conn.post(Operation::Send, &piece, Work::Frame(Some(slot)), false) {
            Ok(()) => self.in_flight += 1,
            Err((error, work)) => {
                if let Work::Frame(Some(slot)) = work {
                    buffers.put_back(slot);
                }
                self.doom(peer, cause(&error));
            }
        }
    }

    /// `peer` offers a ring.
    pub(crate) fn take_offer(&mut self, peer: Peer, bytes: &[u8]) {
        let longest = self.config.buffer; // what is laid out there fits into a buffer to send from
        let uses = self.ring.is_some();
        let Link::Up(conn) = &mut self.slots[peer.index()].link else { return };
        let offer = Offer::decode(bytes, &self.key, peer.0, &conn.nonces);
        let taken = offer.is_some_and(|(address, rkey, shape)| {
            !uses || conn.offered((address, rkey), shape, longest)
        });
        if !taken {
            self.reject(peer, Cause::Malformed("an offer of a ring"));
        }
    }
}
