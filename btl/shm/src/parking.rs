//! Parking: a quiet ring is no longer looked at, and its writer rings a bell; who sleeps has parked all. The ordering that the two sides
//! need is paid for here (`ring.rs`, `Fencing`).

use crate::endpoint::{Incoming, Phase};
use crate::primitive::{Ordering, fence};
use crate::socket;
use crate::transport::Shm;
use crate::wire::Message;
use ironweave_btl::{Armed, Peer};
use rustix::thread::{MembarrierCommand, membarrier};
use std::os::fd::AsRawFd;

impl Shm {
    /// Tells the reader of a parked ring that something is in it.
    #[cold]
    pub(crate) fn ring_bell(&mut self, peer: Peer) {
        let Some(Some(outgoing)) = self.tx.get(peer.index()) else { return };
        if !outgoing.outbox.ring(outgoing.bell) {
            return;
        }
        if let Phase::Up(session) = &self.endpoints[peer.index()].phase {
            // Refused for want of room: messages of ours are waiting there, so it will wake up anyway. Broken:
            // the event queue tells.
            let _ = socket::send(&session.socket, &Message::Wake, &[]);
        }
    }

    /// Polls the rings whose bells rang again.
    #[cold]
    pub(crate) fn answer_bells(&mut self) {
        let Shm { inbox, bells, rx, hot, .. } = self;
        inbox.answer(|bell| {
            let Some(Some(peer)) = bells.get(bell as usize) else { return };
            if let Some(Some(incoming)) = rx.get_mut(peer.index()) {
                wake_ring(hot, *peer, incoming);
            }
        });
    }

    /// Parks the ring at `hot[at]`, unless a record came meanwhile.
    #[cold]
    pub(crate) fn park(&mut self, at: usize) {
        let Some(Some(incoming)) = self.rx.get_mut(self.hot[at] as usize) else { return };
        incoming.reader.park();
        park_barrier(self.barrier);
        if incoming.reader.is_ready() {
            incoming.reader.unpark();
            incoming.idle = 0;
        } else {
            incoming.hot = false;
            self.hot.swap_remove(at);
        }
    }

    /// Parks all rings: what is there already, or what to sleep on.
    pub(crate) fn lie_down(&mut self) -> Armed {
        let busy = !self.gets.is_empty() || !self.stillborn.is_empty();
        if busy || self.urgent || !self.timed.is_empty() {
            return Armed::Ready;
        }
        for &peer in &self.hot {
            if let Some(Some(incoming)) = self.rx.get(peer as usize) {
                incoming.reader.park();
            }
        }
        park_barrier(self.barrier && !self.hot.is_empty());
        let mut at = 0;
        while at < self.hot.len() {
            match self.rx.get_mut(self.hot[at] as usize) {
                Some(Some(incoming)) if incoming.reader.is_ready() => {
                    incoming.reader.unpark();
                    at += 1;
                }
                Some(Some(incoming)) => {
                    incoming.hot = false;
                    self.hot.swap_remove(at);
                }
                _ => {
                    self.hot.swap_remove(at);
                }
            }
        }
        if !self.hot.is_empty() {
            return Armed::Ready;
        }
        if self.inbox.sleep() {
            self.inbox.awake();
            return Armed::Ready;
        }
        self.clear_away(usize::MAX); // who sleeps has the time
        self.asleep = true;
        self.urgent = true;
        Armed::Wait(self.events.as_raw_fd())
    }
}

/// Polls a ring again.
pub(crate) fn wake_ring(hot: &mut Vec<u32>, peer: Peer, incoming: &mut Incoming) {
    if !incoming.hot {
        incoming.hot = true;
        incoming.idle = 0;
        incoming.reader.unpark();
        hot.push(peer.0);
    }
}

/// The reader's half of parking: after this, a writer has either seen `PARKED` or its record is visible here.
fn park_barrier(barrier: bool) {
    fence(Ordering::SeqCst);
    if barrier {
        // Registered at opening, so it cannot fail.
        let _ = membarrier(MembarrierCommand::GlobalExpedited);
    }
}
