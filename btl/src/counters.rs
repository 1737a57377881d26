//! Counters on every path, readable without stopping anything.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that one thread adds to and any thread reads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only one thread may do so at a time (the transport's owner): this is a load and a store, not a
    /// locked instruction.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// The number now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What one transport did so far.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[$doc])* pub $name: Counter,)* }

        impl Counters {
            /// Name and value of each counter.
            #[must_use]
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get())),*]
            }
        }
    };
}

counters! {
    /// Frames taken for sending.
    frames_sent,
    /// Frames delivered to the sink, or landed.
    frames_received,
    /// Payload bytes taken.
    bytes_sent,
    /// Payload bytes delivered.
    bytes_received,
    /// Frames of those sent that the device wrote into a ring of the peer's, past its receives.
    ring_sent,
    /// Frames of those received that lay in such a ring of ours.
    ring_received,
    /// Requests to a device that carry neither a frame nor a put or get: credits told, probes, questions what arrived.
    controls,
    /// Puts and gets begun.
    rma,
    /// Pieces of peers' gets that were written by this process.
    assisted,
    /// Operations refused for want of room.
    refused,
    /// Things tried again by the transport itself (reconnects, interrupted calls).
    retried,
    /// Operations given back with an error because their endpoint ended.
    purged,
    /// Faults reported.
    faults,
    /// Strangers and malformed input turned away.
    rejected,
}
