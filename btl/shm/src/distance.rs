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
//!
//! What is far is another matter where all cores of a package share one cache over a mesh, as Intel's do: on a Xeon of the fifth
//! generation that load takes 130 to 150 ns between two cores of a package, and streaming is slower at all lengths: 4 MiB 480
//! instead of 466 µs, windows of 2 KiB 3.8 instead of 7.2 GB/s, of 64 KiB 7.8 instead of 9.5.

use crate::config::Stores;
use ironweave_btl::copy;
use std::time::Instant;

/// Up to here a line comes quickly, out of a cache that cores share, and going past that never pays.
const NEAR_NS: u32 = 64;
/// Up to here going past the cache never pays where cores share it over a mesh. (Two packages were not measured.)
const NEAR_NS_MESH: u32 = 220;
/// Far readers get payloads of this length and more by streaming.
const FAR_STREAMED: usize = 512;

/// What the writer knows of the way to its reader.
#[derive(Debug)]
pub(crate) struct Distance {
    stores: Stores,
    /// Up to here readers are near.
    near_ns: u32,
    /// What measuring nothing shows.
    overhead_ns: u32,
    /// The last measurements; of the first one three, as it is all that is known: a ring is read once in a lap, and a far reader
    /// would have got some megabytes the slow way.
    recent: Option<[u32; 3]>,
    next: usize,
    /// Payloads of at least this length are streamed.
    streamed_from: usize,
    /// A line of the reader's takes its time.
    is_far: bool,
}

impl Distance {
    pub(crate) fn new(stores: Stores) -> Self {
        let overhead_ns = (0..8).map(|_| time(|| ()).1).min().unwrap_or(0);
        let near_ns = if copy::is_amd() { NEAR_NS } else { NEAR_NS_MESH };
        let mut distance = Distance {
            stores,
            near_ns,
            overhead_ns,
            recent: None,
            next: 0,
            streamed_from: 0,
            is_far: false,
        };
        distance.judge();
        distance
    }

    /// Payloads of at least this many bytes are best streamed.
    #[inline(always)]
    pub(crate) fn streamed_from(&self) -> usize {
        self.streamed_from
    }

    /// Whether lines of the reader come slowly, so that those to be written are best asked for in time; also where streaming does
    /// not pay yet.
    #[inline(always)]
    pub(crate) fn is_far(&self) -> bool {
        self.is_far
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
        let [a, b, c] = self.recent.unwrap_or([0; 3]);
        let median = a.max(b).min(a.min(b).max(c));
        self.is_far = self.stores == Stores::Streaming || median > NEAR_NS;
        self.streamed_from = match self.stores {
            Stores::Cached => usize::MAX,
            Stores::Streaming => 1,
            Stores::Auto if median <= self.near_ns => usize::MAX,
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
            distance.near_ns = NEAR_NS;
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
