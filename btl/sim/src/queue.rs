//! The event queue: earliest first, ties broken by the seed, events out of line so that the heap stays small.

use rand::{Rng, rngs::SmallRng};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events in the order of their virtual time.
pub(crate) struct EventQueue<E> {
    heap: BinaryHeap<Reverse<(u64, u32, u32)>>,
    events: Vec<Option<E>>,
    free: Vec<u32>,
}

impl<E> EventQueue<E> {
    pub(crate) fn new() -> Self {
        EventQueue { heap: BinaryHeap::new(), events: Vec::new(), free: Vec::new() }
    }

    /// Adds an event at `at` nanoseconds.
    pub(crate) fn push(&mut self, at: u64, event: E, rng: &mut SmallRng) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            u32::try_from(self.events.len() - 1).expect("fewer than 2^32 events are pending")
        });
        self.events[slot as usize] = Some(event);
        self.heap.push(Reverse((at, rng.random(), slot)));
    }

    /// Takes the next event and its time.
    pub(crate) fn pop(&mut self) -> Option<(u64, E)> {
        let Reverse((at, _, slot)) = self.heap.pop()?;
        self.free.push(slot);
        let event = self.events[slot as usize].take().expect("a queued slot holds its event");
        Some((at, event))
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }
}
