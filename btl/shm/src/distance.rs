//! How far the reader is, and so how payloads are best stored.
//!
//! A line that the writer has just stored has to be fetched out of its cache by the reader. Between cores that
//! share a cache this is quick; between others each line takes its 150–250 ns and few are under way at once, so
//! that a payload moves at 2 GB/s. Stores that go past the cache (*streaming*) move at 15–20 GB/s either way, but
//! cost more to begin with. Measured on two cores of a Zen 4 machine, one way, cached against streaming:
//!
//! | | 1 KiB | 4 KiB | 16 KiB | 1 MiB, pipelined through a ring of 1 MiB |
//! |---|---|---|---|---|
//! | near (65 ns a line) | 0.22 / 0.39 µs | 0.62 / 0.68 µs | 1.5 / 1.7 µs | 29 / 19 GB/s |
//! | far (240 ns a line) | 0.86 / 0.62 µs | 2.3 / 0.81 µs | 7.8 / 1.8 µs | 2.4 / 22 GB/s |
//!
//! Where a process runs may change at any time (a virtual machine's cores move), so the writer measures again and
//! again: it times the one load that has to fetch a line of the reader anyway, the reader's index. It takes 20 ns
//! near and 120 ns far, there.

use crate::config::Stores;
use std::time::Instant;

/// Up to here they share some cache, and going past it never pays.
const NEAR_NS: u32 = 64;
/// Far readers get payloads of this length and more by streaming.
const FAR_STREAMED: usize = 512;

/// What the writer knows of the way to its reader.
#[derive(Debug)]
pub(crate) struct Distance {
    stores: Stores,
    /// What measuring nothing shows.
    overhead_ns: u32,
    /// The last measurements; of the first one three, as it is all that is known: a ring is read once in a lap, and a far reader
    /// would have got some megabytes the slow way.
    recent: Option<[u32; 3]>,
    next: usize,
    /// Payloads of at least this length are streamed.
    streamed_from: usize,
}

impl Distance {
    pub(crate) fn new(stores: Stores) -> Self {
        let overhead_ns = (0..8).map(|_| time(|| ()).1).min().unwrap_or(0);
        let mut distance =
            Distance { stores, overhead_ns, recent: None, next: 0, streamed_from: 0 };
        distance.judge();
        distance
    }

    /// Payloads of at least this many bytes are best streamed.
    #[inline(always)]
    pub(crate) fn streamed_from(&self) -> usize {
        self.streamed_from
    }

    /// Loads through `load`, and learns from the time it takes when the value is another than `known`: only then
    /// was the line fetched from the reader for sure.
    pub(crate) fn measure<T: PartialEq>(&mut self, known: &T, load: impl FnOnce() -> T) -> T {
        if self.stores != Stores::Auto {
            return load();
        }
        let (value, took) = time(load);
        if value != *known {
            let took = took.saturating_sub(self.overhead_ns);
            self.recent.get_or_insert([took; 3])[self.next] = took;
            self.next = (self.next + 1) % 3;
            self.judge();
        }
        value
    }

    fn judge(&mut self) {
        let [a, b, c] = self.recent.unwrap_or([NEAR_NS; 3]);
        let median = a.max(b).min(a.min(b).max(c));
        self.streamed_from = match self.stores {
            Stores::Cached => usize::MAX,
            Stores::Streaming => 1,
            Stores::Auto if median <= NEAR_NS => usize::MAX,
            Stores::Auto => FAR_STREAMED,
        };
    }
}

/// What `work` returns and how many nanoseconds it took.
fn time<T>(work: impl FnOnce() -> T) -> (T, u32) {
    let start = Instant::now();
    let value = std::hint::black_box(work());
    (value, u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_three_decides() {
        let mut distance = Distance::new(Stores::Auto);
        for (recent, expected) in [
            ([20, 60, 5000], usize::MAX),
            ([200, 240, 40], FAR_STREAMED),
            ([240, 20, 20], usize::MAX),
            ([120, 60, 120], FAR_STREAMED),
        ] {
            distance.recent = Some(recent);
            distance.judge();
            assert_eq!(distance.streamed_from(), expected, "{recent:?}");
        }
    }

    #[test]
    fn the_first_measurement_decides_until_there_are_others() {
        let mut distance = Distance::new(Stores::Auto);
        assert_eq!(distance.streamed_from(), usize::MAX, "nothing is known");
        distance.measure(&0, || 0);
        assert_eq!(distance.recent, None, "the line need not have come from the reader");
        let slow = || {
            std::thread::sleep(std::time::Duration::from_millis(1));
            1
        };
        distance.measure(&0, slow);
        assert_eq!(distance.streamed_from(), FAR_STREAMED);
        distance.measure(&0, || 1);
        assert_eq!(distance.streamed_from(), FAR_STREAMED, "one of three");
    }
}
