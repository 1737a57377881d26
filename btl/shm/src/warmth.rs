//! Which user memory is likely in a cache, so that long payloads are copied into it the right way.
//!
//! A store to a line that is in no cache fetches the line first, only to overwrite it; stores that go past the cache
//! save that, which is half of the memory traffic of a receive. Into lines that are in the cache they are slower, and
//! drive them out. The processor does not tell which is the case, but we know what was received where: memory that
//! we filled recently is warm, and as long as little was received in all, everything counts as warm.
//! Measured (64 receives of 1 MiB under way, two Zen 4 cores): 20 GB/s through the cache, 25 past it.
//!
//! What was filled a moment ago is hot: then nothing but fetching the lines from the writer's cache takes time, and asking
//! for them ahead saves some of it. Measured, latency between near cores, in turns: 64 KiB 1 to 4 % less in four runs, 1 MiB
//! within the noise; at 4 MiB, where nothing is hot, it would cost 15 %. What comes from a far core is never worth asking for ahead (`Way::when_far`).
//!
//! Only a guess, and only about speed: bytes end up in the same place either way.

/// Shorter frames are not worth a guess.
const LEN_MIN: usize = 32 << 10;
/// Memory is remembered by blocks of this many bytes (the shift), …
const BLOCK_SHIFT: u32 = 16;
/// … so many of them, a power of two.
const BLOCKS: usize = 1024;

/// Where very many cores share one cache, what one of them finds there again is far less than its size says. On a Xeon of the fifth generation,
/// whose cache has 300 MiB, windows that receive 32 MiB in turn went at 20 GB/s through the cache and at 14 past it, and windows of 64 MiB at 9 and at 11
/// (through the ring alone at 9.6 and 12.9).
const SHARE_MAX: u64 = 48 << 20;

/// Memory that was filled within so many bytes is hot.
const HOT: u64 = 2 << 20;

/// How bytes out of a ring are best written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Through the cache, asking ahead for what is copied.
    Ahead,
    /// Through the cache.
    Through,
    /// Past it.
    Past,
    /// Through it, as the processor moves strings.
    String,
}

impl Way {
    /// The same for what a far core has stored, in its cache or past it: asking for lines ahead costs more than it saves.
    pub(crate) const fn when_far(self) -> Way {
        match self {
            Way::Past => Way::Past,
            _ => Way::String,
        }
    }
}

/// When a block was filled last.
#[derive(Clone, Copy, Debug)]
struct Seen {
    block: usize,
    landed: u64,
}

/// What is remembered. The table is made with the first long frame.
#[derive(Debug)]
pub(crate) struct Warmth {
    /// Bytes of long frames so far.
    landed: u64,
    /// After so many more bytes a block is cold again.
    cache: u64,
    table: Vec<Seen>,
}

impl Warmth {
    /// For this machine: a process may count on a quarter of the last cache, but not on more than [`SHARE_MAX`].
    pub(crate) fn new() -> Self {
        let size = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index3/size");
        let kib = size.ok().and_then(|size| size.trim().strip_suffix('K')?.parse::<u64>().ok());
        Self::with_cache(kib.unwrap_or(16 << 10).clamp(4 << 10, SHARE_MAX >> 8) << 8)
    }

    /// For a cache of this many bytes.
    pub(crate) const fn with_cache(cache: u64) -> Self {
        Warmth { landed: 0, cache, table: Vec::new() }
    }

    /// How the memory at address `start` is best filled with the `len` bytes that are about to come.
    pub(crate) fn way(&mut self, start: usize, len: usize) -> Way {
        if len < LEN_MIN {
            return Way::Through;
        }
        if self.table.is_empty() {
            self.table = vec![Seen { block: usize::MAX, landed: 0 }; BLOCKS];
        }
        self.landed += len as u64;
        let block = start >> BLOCK_SHIFT;
        let seen = &mut self.table[block % BLOCKS];
        let since = (seen.block == block).then_some(self.landed - seen.landed);
        *seen = Seen { block, landed: self.landed };
        match since {
            Some(..=HOT) => Way::Ahead,
            Some(since) if since <= self.cache => Way::Through,
            _ if self.landed <= self.cache => Way::Through,
            _ => Way::Past,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 128 << 10;

    /// How the frames to `buffers` buffers in turn, `rounds` times, are written: ahead, through, past.
    fn ways(buffers: usize, rounds: usize) -> [usize; 3] {
        let mut warmth = Warmth::with_cache(8 << 20);
        let mut count = [0; 3];
        for i in (0..rounds).flat_map(|_| 0..buffers) {
            count[warmth.way(4096 + i * LEN, LEN) as usize] += 1;
        }
        count
    }

    #[test]
    fn buffers_that_fit_the_cache_stay_warm() {
        assert_eq!(ways(1, 1000), [999, 1, 0]);
        assert_eq!(ways(16, 10), [144, 16, 0]);
        assert_eq!(ways(64, 10), [0, 640, 0]);
    }

    #[test]
    fn more_buffers_than_the_cache_holds_are_cold_after_a_while() {
        assert_eq!(ways(512, 3), [0, 64, 3 * 512 - 64]);
    }

    #[test]
    fn short_frames_are_never_cold() {
        let mut warmth = Warmth::with_cache(0);
        assert_eq!(warmth.way(0, LEN_MIN - 1), Way::Through);
        assert_eq!(warmth.way(0, LEN_MIN), Way::Past);
    }
}
