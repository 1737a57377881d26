//! A rail that breaks a law once: the simulation must see it, or its silence means nothing.

use ironweave_btl::Peer;
use ironweave_btl::memory::RecvRegion;
use ironweave_btl_sim::{Passage, Watch};
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
}

impl Watch for Saboteur {
    /// Writes what it must not.
    fn wake(&mut self) {
        if let Some(region) = self.late.take() {
            region.write(0, &[0xEE]);
            self.done.set(true);
        }
    }

    fn arrives(&mut self, _: Peer, header: &[u8], payload: &[u8]) -> Passage {
        if !payload.is_empty() && self.now(Sabotage::Damage) {
            self.done.set(true);
            let mut payload = payload.to_vec();
            payload[0] ^= 0x10;
            return Passage::Instead(payload);
        }
        // A lost LINK frame costs nothing but time.
        let link = header[0] & 0xF == 0;
        if !link && self.now(Sabotage::Loss) {
            self.done.set(true);
            return Passage::Lose;
        }
        Passage::Pass
    }

    fn landed(&mut self, region: &RecvRegion) {
        if !region.is_empty() && self.now(Sabotage::LateWrite) {
            self.late = Some(region.part(0..1));
        }
    }
}
