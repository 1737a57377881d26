//! Which way a long message takes: through the ring, or by single copy. Learned while messages go.
//!
//! What the kernel's copy takes is another matter from program to program. Where a sender's memory lies in the reader's own cache,
//! because it was read before and not written since, it is the quickest way there is (64 KiB in 4.0 µs, on a Xeon of the fifth
//! generation); memory that the sender has just written comes out of its cache line by line (8 to 9 µs), and what the ring takes,
//! 6.2 µs, lies in between. Into memory that is in no cache the ring is quicker, too (windows of 4 MiB 12 instead of 5.5 GB/s).
//!
//! So the reader takes the time of each of its reads, and of long frames that come through the ring. When most reads of a batch took longer
//! than the ring takes, as far as it knows, it complains,
//! in a word of the ring that the writer looks at before each long message. The writer then sends so many messages of that
//! length through the ring before it offers one to be read again; four times as many each time, unless reads went well in between.
//! If the ring turns out to be slower than the reads were, the complaint is withdrawn, and messages are read again at once.
//! What was offered before the writer heard the complaint is not read any more, but asked for in fragments. A batch is long because each way
//! leaves the caches as the other does not like them: it takes a window or two until reads are as quick as they get.
//!
//! Both sides keep book by classes of lengths. A peer that complains falsely only makes messages to itself slower (law 9).

use std::time::{Duration, Instant};

/// The shortest messages that may be read, in bytes: those of the first class. In turns with twice as much, on a Xeon of the fifth generation,
/// 32 KiB 4.3 to 3.3 µs, 48 KiB 5.3 to 3.8, windows of 32 KiB 10.4 to 12.5 GB/s; with half of it windows of 16 KiB lost a fifth.
pub(crate) const READ_MIN: usize = 32 << 10;
/// Classes of lengths, each twice as long as the one before.
const CLASSES: usize = 8;
/// Frames whose times are put together: what the ring takes is known anew after so many.
const FRAMES: u8 = 64;
/// Of a frame that took longer than so many times what was expected, only these count.
const OUTLIER: u64 = 2;
/// Frames that follow each other within this time are a stream.
const GAP: Duration = Duration::from_micros(2);
/// Reads that are judged together, …
const BATCH: u8 = 128;
/// … and so many of them that took too long are worth a complaint.
const TOO_MANY: u8 = 96;
/// Messages that go through the ring after a complaint, at first and at most.
const REST: [u16; 2] = [256, 16_384];
/// Messages that are read without a complaint until a later one counts as the first.
const WELL: u16 = 1024;

/// The class of messages of `len` bytes.
fn class(len: usize) -> usize {
    (len / READ_MIN).checked_ilog2().map_or(0, |class| (class as usize).min(CLASSES - 1))
}

/// What the reader tells of each class, modulo 256: complaints, and their withdrawals. An odd number is a complaint that stands.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Complaints(pub(crate) u64);

impl Complaints {
    /// Those about messages of `len` bytes.
    pub(crate) fn about(self, len: usize) -> u8 {
        self.0.to_le_bytes()[class(len)]
    }

    /// Whether a message of `len` bytes that was offered when so many were known is not to be read any more.
    pub(crate) fn are_new(self, len: usize, known: u8) -> bool {
        let now = self.about(len);
        now != known && !now.is_multiple_of(2)
    }

    fn add(&mut self, class: usize, count: u8) {
        let mut bytes = self.0.to_le_bytes();
        bytes[class] = bytes[class].wrapping_add(count);
        self.0 = u64::from_le_bytes(bytes);
    }

    fn stand(self, class: usize) -> bool {
        !self.0.to_le_bytes()[class].is_multiple_of(2)
    }
}

/// What frames of one kind take through the ring.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// In picoseconds a byte.
    ps: u32,
    /// Of the batch that is under way: frames, bytes, nanoseconds.
    frames: u8,
    bytes: u64,
    ns: u64,
}

impl Pace {
    const fn new(ps: u32) -> Pace {
        Pace { ps, frames: 0, bytes: 0, ns: 0 }
    }

    fn ns(&self, bytes: usize) -> u64 {
        bytes as u64 * u64::from(self.ps) / 1000
    }

    /// A frame more; whether what they take is known anew.
    fn hear(&mut self, bytes: usize, ns: u64) -> bool {
        // Whoever else had the core for a while says nothing about the ring.
        self.ns += ns.min(OUTLIER * self.ns(bytes));
        self.bytes += bytes as u64;
        self.frames += 1;
        if self.frames < FRAMES {
            return false;
        }
        *self = Pace::new(ps(self.ns, self.bytes));
        true
    }
}

/// Picoseconds a byte.
fn ps(ns: u64, bytes: u64) -> u32 {
    (ns * 1000 / bytes.max(1)).clamp(1, u64::from(u32::MAX) - 1) as u32
}

/// Reads of one class.
#[derive(Clone, Copy, Default, Debug)]
struct Reads {
    /// Of the batch that is under way: how many, and how many of them took longer than the ring takes.
    count: u8,
    slow: u8,
    bytes: u64,
    ns: u64,
    /// What the last took that were complained of, in picoseconds a byte.
    ps: u32,
}

/// The reader's side: what one peer's messages take either way.
#[derive(Debug)]
pub(crate) struct Experience {
    /// Through the ring: frames of the shortest messages that may be read, and of longer ones.
    ring: [Pace; 2],
    /// When the last frame was all there.
    frame_ended: Option<Instant>,
    reads: [Reads; CLASSES],
    pub(crate) complaints: Complaints,
}

impl Experience {
    /// Of reads that have to be faster than a ring that takes so many picoseconds a byte, for the shortest messages and for long
    /// ones, as far as is known. All reads are fast enough with the most, and nothing is learned.
    pub(crate) fn new(ring: [u32; 2]) -> Experience {
        Experience {
            ring: ring.map(Pace::new),
            frame_ended: None,
            reads: [Reads::default(); CLASSES],
            complaints: Complaints::default(),
        }
    }

    /// Nothing is ever read.
    pub(crate) fn none() -> Experience {
        Experience::new([0; 2])
    }

    /// When a frame of `len` bytes that has begun to come counts as begun; `None`: nothing is to be learned of it.
    #[inline]
    pub(crate) fn frame_begins(&self, len: usize) -> Option<Instant> {
        if len < READ_MIN || matches!(self.ring[0].ps, 0 | u32::MAX) {
            return None;
        }
        let now = Instant::now();
        // Of a stream what passes between two frames counts, too.
        Some(self.frame_ended.filter(|&ended| now.duration_since(ended) < GAP).unwrap_or(now))
    }

    /// Such a frame of `len` bytes is all there. Whether complaints are withdrawn.
    pub(crate) fn frame_ends(&mut self, len: usize, began: Instant) -> bool {
        let now = Instant::now();
        self.frame_ended = Some(now);
        self.frame_took(len, now.duration_since(began).as_nanos() as u64)
    }

    fn frame_took(&mut self, len: usize, ns: u64) -> bool {
        let kind = class(len).min(1);
        if !self.ring[kind].hear(len, ns) {
            return false;
        }
        let before = self.complaints;
        for class in (0..CLASSES).filter(|&class| class.min(1) == kind) {
            if before.stand(class) && self.reads[class].ps < self.ring[kind].ps {
                self.complaints.add(class, 1);
            }
        }
        self.complaints != before
    }

    /// A read of `part` bytes of a message of `len` bytes took `ns` nanoseconds. Whether that is one too many: then there is a
    /// complaint more.
    pub(crate) fn hear(&mut self, len: usize, part: usize, ns: u64) -> bool {
        let class = class(len);
        let (reads, expected) = (&mut self.reads[class], self.ring[class.min(1)].ns(part));
        reads.count += 1;
        reads.slow += u8::from(ns > expected);
        reads.bytes += part as u64;
        reads.ns += ns.min(OUTLIER * expected);
        let complains = reads.slow >= TOO_MANY;
        if complains {
            reads.ps = ps(reads.ns, reads.bytes);
            let count = if self.complaints.stand(class) { 2 } else { 1 };
            self.complaints.add(class, count);
        }
        if complains || reads.count == BATCH {
            *reads = Reads { ps: reads.ps, ..Reads::default() };
        }
        complains
    }
}

/// The writer's side: what follows from complaints.
#[derive(Debug)]
pub(crate) struct Choice {
    heard: Complaints,
    /// By class: messages that still go through the ring.
    rest: [u16; CLASSES],
    /// How many do after the next complaint.
    next: [u16; CLASSES],
    /// Messages offered since the last one.
    well: [u16; CLASSES],
}

impl Choice {
    pub(crate) fn new() -> Choice {
        let heard = Complaints::default();
        Choice { heard, rest: [0; CLASSES], next: [REST[0]; CLASSES], well: [0; CLASSES] }
    }

    /// The complaints that were heard before a message of `len` bytes was offered.
    pub(crate) fn heard(&self, len: usize) -> u8 {
        self.heard.about(len)
    }

    /// Whether the next message, of `len` bytes, is offered to be read, when the reader has complained so often.
    pub(crate) fn offers(&mut self, len: usize, complaints: Complaints) -> bool {
        let class = class(len);
        let (rest, next, well) =
            (&mut self.rest[class], &mut self.next[class], &mut self.well[class]);
        let told = complaints.about(len);
        if told != self.heard.about(len) {
            self.heard.add(class, told.wrapping_sub(self.heard.about(len)));
            let withdrawn = told.is_multiple_of(2);
            if *well >= WELL || withdrawn {
                *next = REST[0];
            }
            (*rest, *well) = (if withdrawn { 0 } else { *next }, 0);
            if !withdrawn {
                *next = next.saturating_mul(4).min(REST[1]);
            }
        }
        if *rest > 0 {
            *rest -= 1;
            return false;
        }
        *well = well.saturating_add(1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 128 << 10;

    /// Sends `count` messages, each of which takes so many picoseconds a byte when it is read, while the ring takes 100. How many
    /// were read.
    fn send(experience: &mut Experience, choice: &mut Choice, count: usize, ps: usize) -> usize {
        let mut read = 0;
        for _ in 0..count {
            if choice.offers(LEN, experience.complaints) {
                read += 1;
                experience.hear(LEN, LEN, (LEN * ps / 1000) as u64);
            }
        }
        read
    }

    #[test]
    fn what_is_read_quickly_is_read() {
        let (mut experience, mut choice) = (Experience::new([100; 2]), Choice::new());
        assert_eq!(send(&mut experience, &mut choice, 10_000, 90), 10_000);
    }

    #[test]
    fn what_is_read_slowly_is_hardly_read() {
        let (mut experience, mut choice) = (Experience::new([100; 2]), Choice::new());
        assert_eq!(send(&mut experience, &mut choice, 96 + 256, 110), 96);
        assert_eq!(send(&mut experience, &mut choice, 96 + 1024, 110), 96);
        let read = send(&mut experience, &mut choice, 100_000, 110);
        assert!((7 * 96..9 * 96).contains(&read), "{read}");
        // Other lengths are another matter.
        assert!(choice.offers(4 * LEN, experience.complaints));
    }

    #[test]
    fn a_program_that_changes_is_followed() {
        let (mut experience, mut choice) = (Experience::new([100; 2]), Choice::new());
        send(&mut experience, &mut choice, 1000, 150);
        let read = send(&mut experience, &mut choice, 10_000, 50);
        assert!(read > 8000, "{read}");
        // And back: as at first, because it went well for long.
        let read = send(&mut experience, &mut choice, 2 * 128 + 256, 150);
        assert!((96..=256).contains(&read), "{read}");
    }

    #[test]
    fn single_slow_reads_are_forgiven() {
        let mut experience = Experience::new([100; 2]);
        for i in 0..1000 {
            let ns = if i % 3 == 0 { 10_000 } else { 1_000_000 };
            assert!(!experience.hear(LEN, LEN, ns), "{i}");
        }
    }

    #[test]
    fn what_the_ring_takes_is_learned() {
        let (mut experience, mut choice) = (Experience::new([50; 2]), Choice::new());
        assert_eq!(send(&mut experience, &mut choice, 96 + 1, 90), 96);
        // It takes 120, in truth.
        let long_ago = Instant::now() - Duration::from_secs(1);
        assert!(!experience.frame_ends(LEN, long_ago));
        let mut frames = |count: u8, ps: usize| {
            (0..count).filter(|_| experience.frame_took(LEN, (LEN * ps / 1000) as u64)).count()
        };
        assert_eq!(frames(FRAMES - 1, 80), 0, "it is quicker than the reads were");
        assert_eq!(frames(FRAMES, 120), 1, "it is not");
        assert_eq!(frames(3 * FRAMES, 120), 0, "withdrawn once");
        assert_eq!((experience.ring[1].ps, experience.ring[0].ps), (119, 50));
        // At once, and for good.
        assert_eq!(send(&mut experience, &mut choice, 10_000, 90), 10_000);
        // What is complained of again was offered again, later than at first.
        assert_eq!(send(&mut experience, &mut choice, 2 * 96 + 1024 + 256, 150), 2 * 96);
    }

    #[test]
    fn frames_in_a_row_are_timed_from_the_one_before() {
        let mut experience = Experience::new([50; 2]);
        assert!(experience.frame_begins(READ_MIN - 1).is_none());
        let began = experience.frame_begins(LEN).unwrap();
        experience.frame_ended = Some(began);
        // Whichever it is here, it is none of the future.
        assert!(
            [began, Instant::now()]
                .iter()
                .any(|&time| experience.frame_begins(LEN).unwrap() >= time)
        );
        experience.frame_ended = Some(began - Duration::from_secs(1));
        assert!(experience.frame_begins(LEN).unwrap() >= began);
        assert!(Experience::none().frame_begins(LEN).is_none());
        assert!(Experience::new([u32::MAX; 2]).frame_begins(LEN).is_none());
    }

    #[test]
    fn classes_are_doubles() {
        let of = |kib: usize| class(kib << 10);
        assert_eq!([0, 1, 32, 63].map(of), [0; 4]);
        assert_eq!([64, 128, 512, 2047, 4096, 1 << 20].map(of), [1, 2, 4, 5, 7, 7]);
    }
}
