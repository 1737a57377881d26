//! Which way a long message takes: through the ring, or by single copy. Learned while messages go.
//!
//! What the kernel's copy takes is another matter from program to program. Where a sender's memory lies in the reader's own cache,
//! because it was read before and not written since, it is the quickest way there is (64 KiB in 4.0 µs, on a Xeon of the fifth
//! generation); memory that the sender has just written comes out of its cache line by line (8 to 9 µs), and what the ring takes,
//! 6.2 µs, lies in between. Into memory that is in no cache the ring is quicker, too (windows of 4 MiB 12 instead of 5.5 GB/s).
//!
//! So the reader takes the time of each of its reads. When most of a batch took longer than the ring is known to take, it complains,
//! in a word of the ring that the writer looks at before each long message. The writer then sends so many messages of that
//! length through the ring before it offers one to be read again; four times as many each time, unless reads went well in between.
//! What was offered before the writer heard the complaint is not read any more, but asked for in fragments. A batch is long because each way
//! leaves the caches as the other does not like them: it takes a window or two until reads are as quick as they get.
//!
//! Both sides keep book by classes of lengths. A peer that complains falsely only makes messages to itself slower (law 9).

/// The shortest messages that may be read, in bytes: those of the first class.
pub(crate) const READ_MIN: usize = 64 << 10;
/// Classes of lengths, each twice as long as the one before.
const CLASSES: usize = 8;
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

/// Complaints of each class, modulo 256: what the reader tells.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Complaints(pub(crate) u64);

impl Complaints {
    /// Those about messages of `len` bytes.
    pub(crate) fn about(self, len: usize) -> u8 {
        self.0.to_le_bytes()[class(len)]
    }

    fn set(&mut self, len: usize, count: u8) {
        let mut bytes = self.0.to_le_bytes();
        bytes[class(len)] = count;
        self.0 = u64::from_le_bytes(bytes);
    }
}

/// The reader's side: what reads of one peer's memory took.
#[derive(Debug)]
pub(crate) struct Judge {
    /// What the ring takes, by class, in picoseconds a byte.
    ring_ps: [u32; CLASSES],
    /// Of the batch that is under way, by class: reads, and those that took longer.
    reads: [u8; CLASSES],
    slow: [u8; CLASSES],
    pub(crate) complaints: Complaints,
}

impl Judge {
    /// Of reads that have to be faster than a ring that takes so many picoseconds a byte, for the shortest messages and for long ones.
    pub(crate) fn new([short, long]: [u32; 2]) -> Judge {
        let mut ring_ps = [long; CLASSES];
        (ring_ps[0], ring_ps[1]) = (short, short.midpoint(long));
        let (reads, slow) = ([0; CLASSES], [0; CLASSES]);
        Judge { ring_ps, reads, slow, complaints: Complaints::default() }
    }

    /// A read of `part` bytes of a message of `len` bytes took `ns` nanoseconds. Whether that is one too many: then there is a
    /// complaint more.
    pub(crate) fn hear(&mut self, len: usize, part: usize, ns: u64) -> bool {
        let ring_ns = part as u64 * u64::from(self.ring_ps[class(len)]) / 1000;
        let (reads, slow) = (&mut self.reads[class(len)], &mut self.slow[class(len)]);
        *reads += 1;
        *slow += u8::from(ns > ring_ns);
        let complains = *slow >= TOO_MANY;
        if complains || *reads == BATCH {
            (*reads, *slow) = (0, 0);
        }
        if !complains {
            return false;
        }
        let count = self.complaints.about(len).wrapping_add(1);
        self.complaints.set(len, count);
        true
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
        if complaints.about(len) != self.heard.about(len) {
            self.heard.set(len, complaints.about(len));
            if *well >= WELL {
                *next = REST[0];
            }
            (*rest, *well) = (*next, 0);
            *next = next.saturating_mul(4).min(REST[1]);
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
    fn send(judge: &mut Judge, choice: &mut Choice, count: usize, ps: usize) -> usize {
        let mut read = 0;
        for _ in 0..count {
            if choice.offers(LEN, judge.complaints) {
                read += 1;
                judge.hear(LEN, LEN, (LEN * ps / 1000) as u64);
            }
        }
        read
    }

    #[test]
    fn what_is_read_quickly_is_read() {
        let (mut judge, mut choice) = (Judge::new([100; 2]), Choice::new());
        assert_eq!(send(&mut judge, &mut choice, 10_000, 90), 10_000);
    }

    #[test]
    fn what_is_read_slowly_is_hardly_read() {
        let (mut judge, mut choice) = (Judge::new([100; 2]), Choice::new());
        assert_eq!(send(&mut judge, &mut choice, 96 + 256, 110), 96);
        assert_eq!(send(&mut judge, &mut choice, 96 + 1024, 110), 96);
        let read = send(&mut judge, &mut choice, 100_000, 110);
        assert!((7 * 96..9 * 96).contains(&read), "{read}");
        // Other lengths are another matter.
        assert!(choice.offers(4 * LEN, judge.complaints));
    }

    #[test]
    fn a_program_that_changes_is_followed() {
        let (mut judge, mut choice) = (Judge::new([100; 2]), Choice::new());
        send(&mut judge, &mut choice, 1000, 150);
        let read = send(&mut judge, &mut choice, 10_000, 50);
        assert!(read > 8000, "{read}");
        // And back: as at first, because it went well for long.
        let read = send(&mut judge, &mut choice, 2 * 128 + 256, 150);
        assert!((96..=256).contains(&read), "{read}");
    }

    #[test]
    fn single_slow_reads_are_forgiven() {
        let mut judge = Judge::new([100; 2]);
        for i in 0..1000 {
            let ns = if i % 3 == 0 { 10_000 } else { 1_000_000 };
            assert!(!judge.hear(LEN, LEN, ns), "{i}");
        }
    }

    #[test]
    fn classes_are_doubles() {
        let of = |kib: usize| class(kib << 10);
        assert_eq!([0, 1, 64, 127].map(of), [0; 4]);
        assert_eq!([128, 256, 1024, 4095, 8192, 1 << 20].map(of), [1, 2, 4, 5, 7, 7]);
    }
}
