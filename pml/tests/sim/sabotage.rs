//! A rail that breaks a law once: the simulation must see it, or its silence means nothing.

use ironweave_btl::memory::RecvRegion;
use ironweave_btl::{Descriptor, Fault, Landing, Peer, RmaDescriptor, Sink, Token};
use std::cell::Cell;
use std::rc::Rc;

/// Which law.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// A byte of a payload changes on its way.
    Damage,
    /// A frame is lost on a rail that promised not to.
    Loss,
    /// Memory is written after it was given back (law 2).
    LateWrite,
}

/// Breaks it, once, after some occasions.
pub struct Saboteur {
    kind: Sabotage,
    wait: u32,
    done: Rc<Cell<bool>>,
    late: Option<RecvRegion>,
}

impl Saboteur {
    pub fn new(kind: Sabotage, wait: u32, done: Rc<Cell<bool>>) -> Self {
        Saboteur { kind, wait, done, late: None }
    }

    /// Whether the moment is now.
    fn now(&mut self, kind: Sabotage) -> bool {
        if self.kind != kind || self.done.get() {
            return false;
        }
        self.wait = self.wait.saturating_sub(1);
        self.wait == 0
    }

    /// Writes what it must not.
    pub fn strike(&mut self) {
        if let Some(region) = self.late.take() {
            region.write(0, &[0xEE]);
            self.done.set(true);
        }
    }
}

/// The sink that the rail sees.
pub struct Tampered<'a, S: Sink> {
    pub sink: &'a mut S,
    pub saboteur: &'a mut Saboteur,
}

impl<S: Sink> Sink for Tampered<'_, S> {
    fn frame(&mut self, from: Peer, header: &[u8], payload: &[u8]) {
        if !payload.is_empty() && self.saboteur.now(Sabotage::Damage) {
            self.saboteur.done.set(true);
            let mut payload = payload.to_vec();
            payload[0] ^= 0x10;
            return self.sink.frame(from, header, &payload);
        }
        // A lost LINK frame costs nothing but time.
        let link = header[0] & 0xF == 0;
        if !link && self.saboteur.now(Sabotage::Loss) {
            return self.saboteur.done.set(true);
        }
        self.sink.frame(from, header, payload);
    }

    fn landing(&mut self, from: Peer, header: &[u8], payload_len: usize) -> Landing {
        self.sink.landing(from, header, payload_len)
    }

    fn landed(&mut self, from: Peer, region: RecvRegion, token: Token, outcome: Result<(), Fault>) {
        if !region.is_empty() && self.saboteur.now(Sabotage::LateWrite) {
            self.saboteur.late = Some(region.part(0..1));
        }
        self.sink.landed(from, region, token, outcome);
    }

    fn completed(&mut self, descriptor: Descriptor, outcome: Result<(), Fault>) {
        self.sink.completed(descriptor, outcome);
    }

    fn rma_completed(&mut self, descriptor: RmaDescriptor, outcome: Result<(), Fault>) {
        self.sink.rma_completed(descriptor, outcome);
    }

    fn up(&mut self, peer: Peer) {
        self.sink.up(peer);
    }

    fn fault(&mut self, fault: Fault) {
        self.sink.fault(fault);
    }

    fn closed(&mut self, peer: Peer) {
        self.sink.closed(peer);
    }
}
