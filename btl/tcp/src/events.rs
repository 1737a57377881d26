//! What the kernel's events are about: a kind, an index, and a generation that outdates events of things past.

use rustix::event::epoll::EventData;

/// Generations count modulo this mask plus one.
pub const GENERATION_MASK: u32 = (1 << 30) - 1;

/// The subject of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// The listener of this number.
    Listener(u32),
    /// A connection that has not proved itself.
    Guest { index: u32, generation: u32 },
    /// The connection to a peer.
    Endpoint { index: u32, generation: u32 },
    /// A time limit.
    Timer,
}

impl Subject {
    /// As epoll keeps it: two bits of kind, thirty of generation, the index.
    pub fn data(self) -> EventData {
        let (kind, generation, index) = match self {
            Subject::Listener(index) => (0, 0, index),
            Subject::Guest { index, generation } => (1, generation, index),
            Subject::Endpoint { index, generation } => (2, generation, index),
            Subject::Timer => (3, 0, 0),
        };
        debug_assert!(generation <= GENERATION_MASK);
        EventData::new_u64(kind << 62 | u64::from(generation) << 32 | u64::from(index))
    }

    /// The inverse of [`data`](Self::data).
    pub fn of(data: EventData) -> Self {
        let raw = data.u64();
        let (index, generation) = (raw as u32, (raw >> 32) as u32 & GENERATION_MASK);
        match raw >> 62 {
            0 => Subject::Listener(index),
            1 => Subject::Guest { index, generation },
            2 => Subject::Endpoint { index, generation },
            _ => Subject::Timer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        for subject in [
            Subject::Listener(3),
            Subject::Guest { index: 7, generation: GENERATION_MASK },
            Subject::Endpoint { index: u32::MAX, generation: 1 },
            Subject::Timer,
        ] {
            assert_eq!(Subject::of(subject.data()), subject);
        }
    }
}
