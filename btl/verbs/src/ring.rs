//! The ring for short frames of one peer: the sender writes each into the receiver's next slot, past the shared receives,
//! and the receiver finds it by looking at memory. Layout, laps and order, without a device.
//!
//! ```text
//!  slot, `size` bytes                                                          the last word
//!  ┌ ─ ─ ─ ─ ─ ─ ┬─────────────────────────┬───────────────┬───────────┬─────────┬─────────┐
//!    as it was   │ frame, with its prefix  │ 0 to 7 zeros  │ check u32 │ len u16 │ lap u16 │
//!  └ ─ ─ ─ ─ ─ ─ ┴─────────────────────────┴───────────────┴───────────┴─────────┴─────────┘
//! ```
//!
//! Frames end where the slot ends, whatever their length, so the lap is always at the same place, where nothing else ever
//! lay, and is the last that a device writes of it. Slots are used in turn; laps count from 1 and never are 0, which is
//! what fresh memory has. A slot is whole when it has the right lap *and* the check over all words, length and lap is
//! right: writing the last byte last is what devices do in practice, but IBA does not promise it, a processor that
//! copies for a device (Soft-RoCE) may show a string of bytes in another order, and weakly ordered ones may read so.
//!
//! Every frame has a number, by ring or not, and is taken when its number is next. A slot is free again when the peer says
//! to have taken the frame that lay in it, which credits tell anyway; if none is free, or the frame is too long, it is sent. A
//! sent frame completes only after all writes before it are visible (IBA 9.5, RFC 5040 5.5): whoever receives it looks at
//! the ring first, and then it is next, or the peer lies.

use crate::credits::Credits;
use std::sync::atomic::{Ordering, fence};

/// Bytes after a frame's padding.
const TRAILER: usize = 8;
/// Limits of a ring; whoever offers keeps them, and whoever is offered one checks them.
pub const SLOTS_MAX: u32 = 1024;
pub const SIZE_MIN: u32 = 128;
pub const SIZE_MAX: u32 = 4096;
/// Slots begin at cache lines.
const ALIGN: u32 = 64;

/// How many slots, of how many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    slots: u32,
    size: u32,
}

impl Shape {
    /// `None` beyond the limits.
    pub fn new(slots: u32, size: u32) -> Option<Shape> {
        let sound = (1..=SLOTS_MAX).contains(&slots)
            && (SIZE_MIN..=SIZE_MAX).contains(&size)
            && size.is_multiple_of(ALIGN);
        sound.then_some(Shape { slots, size })
    }

    /// The nearest to what was asked for.
    pub fn nearest(slots: u32, size: usize) -> Shape {
        let size = size.clamp(SIZE_MIN as usize, SIZE_MAX as usize) as u32;
        Shape { slots: slots.clamp(1, SLOTS_MAX), size: size.next_multiple_of(ALIGN) }
    }

    pub fn slots(self) -> u32 {
        self.slots
    }

    pub fn size(self) -> u32 {
        self.size
    }

    /// Bytes of the whole ring.
    pub fn bytes(self) -> usize {
        self.slots as usize * self.size as usize
    }

    /// Words of a slot.
    pub fn words(self) -> usize {
        self.size as usize / 8
    }

    /// Longest frame, with its prefix, in bytes.
    pub fn longest(self) -> usize {
        self.size as usize - TRAILER
    }
}

/// The bytes that a frame of `len` takes.
#[inline]
pub fn laid(len: usize) -> usize {
    len.next_multiple_of(8) + TRAILER
}

/// Which slot is next, and in which lap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Turn {
    slot: u32,
    lap: u16,
}

impl Turn {
    const FIRST: Turn = Turn { slot: 0, lap: 1 };

    fn next(self, shape: Shape) -> Turn {
        match self.slot + 1 {
            slot if slot < shape.slots => Turn { slot, ..self },
            _ => Turn { slot: 0, lap: self.lap.checked_add(1).unwrap_or(1) },
        }
    }
}

/// What tells a whole frame from a part of one: each word changes it, and so do length and lap.
#[inline]
fn check(words: impl Iterator<Item = u64>, len: u16, lap: u16) -> u32 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut sum = u64::from(len) << 16 | u64::from(lap);
    for word in words {
        sum = (sum ^ word).wrapping_mul(ODD).rotate_left(29);
    }
    ((sum ^ sum >> 31).wrapping_mul(ODD) >> 32) as u32
}

fn trailer(check: u32, len: u16, lap: u16) -> u64 {
    u64::from(check) | u64::from(len) << 32 | u64::from(lap) << 48
}

/// The sender's side.
#[derive(Debug)]
pub struct Writer {
    shape: Shape,
    turn: Turn,
    /// The number of the frame that was last written to each slot.
    numbers: Box<[Option<u32>]>,
}

impl Writer {
    pub fn new(shape: Shape) -> Writer {
        let numbers = vec![None; shape.slots as usize].into_boxed_slice();
        Writer { shape, turn: Turn::FIRST, numbers }
    }

    /// Whether the next slot is free.
    #[inline]
    pub fn has_room(&self, credits: &Credits) -> bool {
        !self.numbers[self.turn.slot as usize].is_some_and(|number| credits.is_out(number))
    }

    /// Completes the frame in `bytes[..len]`, of which [`laid`] many are to be written then, this far into the ring.
    #[inline]
    pub fn lay(&self, bytes: &mut [u8], len: usize) -> usize {
        assert!(len <= self.shape.longest(), "a frame of {len} bytes for {:?}", self.shape);
        let padded = len.next_multiple_of(8);
        bytes[len..padded].fill(0);
        let (frame, rest) = bytes.split_at_mut(padded);
        let (words, _) = frame.as_chunks::<8>();
        let words = words.iter().map(|word| u64::from_le_bytes(*word));
        let (len, lap) = (len as u16, self.turn.lap); // `SIZE_MAX` is below 65,536
        let sum = check(words, len, lap);
        rest[..TRAILER].copy_from_slice(&trailer(sum, len, lap).to_le_bytes());
        (self.turn.slot as usize + 1) * self.shape.size as usize - padded - TRAILER
    }

    /// That frame, of this number, is on its way.
    #[inline]
    pub fn wrote(&mut self, number: u32) {
        self.numbers[self.turn.slot as usize] = Some(number);
        self.turn = self.turn.next(self.shape);
    }
}

/// What is in the next slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Nothing new, as far as its last bytes tell.
    Nothing,
    /// A part of a frame, or what is none.
    Part,
    /// A whole frame of this many bytes, which were copied.
    Whole(usize),
}

/// The receiver's side.
#[derive(Debug)]
pub struct Reader {
    shape: Shape,
    turn: Turn,
}

impl Reader {
    pub fn new(shape: Shape) -> Reader {
        Reader { shape, turn: Turn::FIRST }
    }

    fn last_word(&self) -> usize {
        (self.turn.slot as usize + 1) * self.shape.words() - 1
    }

    /// Whether the next slot has its lap; `word` reads a word of the ring.
    #[inline]
    pub fn has_lap(&self, word: impl Fn(usize) -> u64) -> bool {
        (u64::from_le(word(self.last_word())) >> 48) as u16 == self.turn.lap
    }

    /// Copies the frame that is in the next slot, if it is whole. The peer may write there at any time, so nobody looks at
    /// it twice.
    #[inline]
    pub fn look(&self, word: impl Fn(usize) -> u64, into: &mut [u64]) -> Found {
        let last = self.last_word();
        let trailer = u64::from_le(word(last));
        let (sum, len, lap) = (trailer as u32, (trailer >> 32) as u16, (trailer >> 48) as u16);
        if lap != self.turn.lap {
            return Found::Nothing;
        }
        fence(Ordering::Acquire); // the rest is read after the lap
        if usize::from(len) > self.shape.longest() {
            return Found::Part;
        }
        let words = usize::from(len).div_ceil(8);
        let copy = &mut into[..words];
        for (at, to) in copy.iter_mut().enumerate() {
            *to = word(last - words + at);
        }
        let whole = check(copy.iter().map(|word| u64::from_le(*word)), len, lap) == sum;
        if whole { Found::Whole(len.into()) } else { Found::Part }
    }

    /// The frame in the next slot was taken.
    #[inline]
    pub fn took(&mut self) {
        self.turn = self.turn.next(self.shape);
    }
}

/// When a frame may be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    Now,
    /// Others, which were sent otherwise, come first.
    Later,
    /// No honest peer sends this number now.
    Never,
}

/// The order of frame `number`.
#[inline]
pub fn order(number: u32, credits: &Credits) -> Order {
    match number.wrapping_sub(credits.received()) {
        0 => Order::Now,
        ahead if ahead < credits.ours => Order::Later,
        _ => Order::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Frame, PREFIX, Said, decode_frame, prefix};
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use zerocopy::IntoBytes;

    fn shape(slots: u32, size: u32) -> Shape {
        Shape::new(slots, size).expect("a sound shape")
    }

    /// A ring's memory.
    struct Memory(Vec<u8>);

    impl Memory {
        fn new(shape: Shape) -> Memory {
            Memory(vec![0; shape.bytes()])
        }

        fn word(&self, at: usize) -> u64 {
            u64::from_ne_bytes(self.0[at * 8..at * 8 + 8].try_into().expect("eight bytes"))
        }

        fn look(&self, reader: &Reader) -> (Found, Vec<u8>) {
            let mut copy = vec![0; reader.shape.words()];
            let found = reader.look(|at| self.word(at), &mut copy);
            let len = if let Found::Whole(len) = found { len } else { 0 };
            (found, copy.as_bytes()[..len].to_vec())
        }
    }

    /// What is to be written for `frame`, and where.
    fn lay(writer: &Writer, frame: &[u8]) -> (usize, Vec<u8>) {
        let mut bytes = vec![0xEE; laid(frame.len())];
        bytes[..frame.len()].copy_from_slice(frame);
        let offset = writer.lay(&mut bytes, frame.len());
        (offset, bytes)
    }

    #[test]
    fn shapes_have_limits() {
        for (slots, size) in
            [(0, 256), (1025, 256), (1, 64), (1, 4160), (1, 250), (u32::MAX, u32::MAX)]
        {
            assert_eq!(Shape::new(slots, size), None, "{slots} slots of {size}");
            assert!(Shape::nearest(slots, size as usize).bytes() > 0);
        }
        assert_eq!(Shape::nearest(32, 250), shape(32, 256));
        assert_eq!(Shape::nearest(0, 1 << 20), shape(1, 4096));
    }

    #[test]
    fn laps_come_back_without_ever_being_none() {
        let shape = shape(1, 128);
        let (mut turn, mut seen) = (Turn::FIRST, 0_u32);
        while seen < 200_000 {
            let next = turn.next(shape);
            assert!(next.lap != 0 && next.lap != turn.lap);
            (turn, seen) = (next, seen + 1);
        }
    }

    #[test]
    fn a_slot_is_free_when_its_frame_was_taken() {
        let mut credits = Credits::both(100, 0);
        let mut writer = Writer::new(shape(3, 128));
        for _ in 0..3 {
            assert!(writer.has_room(&credits));
            writer.wrote(credits.sent());
            credits.use_one();
            credits.use_one(); // a frame that went otherwise
        }
        assert!(!writer.has_room(&credits));
        credits.heard(0);
        assert!(!writer.has_room(&credits));
        credits.heard(1);
        assert!(writer.has_room(&credits));
        writer.wrote(credits.sent());
        credits.use_one();
        assert!(!writer.has_room(&credits), "frame 2 is still there");
        credits.heard(7);
        assert!(writer.has_room(&credits));
    }

    proptest! {
        /// Whatever part of a frame has been written, in whatever order, over whatever lay in the slot before.
        #[test]
        fn no_part_of_a_frame_is_taken(
            frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..=120), 2..8),
            order in any::<proptest::sample::Index>(),
            seed in any::<u64>(),
        ) {
            let shape = shape(2, 128);
            let (mut writer, mut reader) = (Writer::new(shape), Reader::new(shape));
            let mut memory = Memory::new(shape);
            for (number, frame) in frames.iter().enumerate() {
                let (offset, bytes) = lay(&writer, frame);
                // Byte by byte: forwards, backwards, or mixed.
                let mut places: Vec<usize> = (0..bytes.len()).collect();
                match order.index(3) {
                    0 => {}
                    1 => places.reverse(),
                    _ => places.sort_by_key(|at| (*at as u64 + 1).wrapping_mul(seed | 1) >> 7),
                }
                let same = |memory: &Memory| memory.0[offset..offset + bytes.len()] == bytes[..];
                for at in places {
                    if !same(&memory) {
                        let (found, _) = memory.look(&reader);
                        prop_assert!(!matches!(found, Found::Whole(_)), "a part was taken");
                        if order.index(3) == 0 && at + 1 < bytes.len() {
                            prop_assert_eq!(found, Found::Nothing, "the lap comes last");
                        }
                    }
                    memory.0[offset + at] = bytes[at];
                }
                prop_assert_eq!(memory.look(&reader), (Found::Whole(frame.len()), frame.clone()));
                writer.wrote(number as u32);
                reader.took();
                prop_assert_eq!(memory.look(&reader).0, Found::Nothing, "taken twice");
            }
        }

        /// Memory that somebody filled with anything is read without a step outside of the slot.
        #[test]
        fn noise_is_no_frame(noise in proptest::collection::vec(any::<u8>(), 256), lap in 0..3_u16) {
            let shape = shape(2, 128);
            let mut memory = Memory(noise);
            memory.0[126..128].copy_from_slice(&lap.to_le_bytes());
            let (found, _) = memory.look(&Reader::new(shape));
            prop_assert_eq!(found == Found::Nothing, lap != 1);
            prop_assert!(!matches!(found, Found::Whole(_)));
        }

        /// Frames by ring and by SEND, the receiver looking at any moment, arrive in the order in which they were sent.
        #[test]
        fn order_is_kept_over_both_ways(
            steps in proptest::collection::vec((0..4_u8, 0..110_usize), 1..400),
            slots in 1..6_u32,
            window in 2..9_u32,
            start in prop_oneof![Just(0), Just(u32::MAX - 20)],
        ) {
            let mut both = Both::new(shape(slots, 128), window, start);
            for (step, len) in steps {
                match step {
                    0 | 1 => both.send(len, step == 1),
                    2 => both.device(),
                    _ => both.receive(),
                }
            }
            for _ in 0..1000 {
                both.device();
                both.receive();
            }
            prop_assert_eq!(&both.received, &both.sent);
            prop_assert!(both.wire.is_empty() && both.completed.is_empty());
        }
    }

    /// What is on the wire, in order: a byte of a write, or a send.
    enum Packet {
        Byte(usize, u8),
        Send(Vec<u8>),
    }

    /// A sender, a device that writes byte by byte and completes sends, and a receiver that does what `progress.rs` does.
    struct Both {
        ours: Credits,
        theirs: Credits,
        writer: Writer,
        reader: Reader,
        memory: Memory,
        wire: VecDeque<Packet>,
        completed: VecDeque<Vec<u8>>,
        sent: Vec<Vec<u8>>,
        received: Vec<Vec<u8>>,
    }

    impl Both {
        fn new(shape: Shape, window: u32, start: u32) -> Both {
            let credits = Credits::both(window, start);
            Both {
                ours: credits,
                theirs: credits,
                writer: Writer::new(shape),
                reader: Reader::new(shape),
                memory: Memory::new(shape),
                wire: VecDeque::new(),
                completed: VecDeque::new(),
                sent: Vec::new(),
                received: Vec::new(),
            }
        }

        fn send(&mut self, len: usize, otherwise: bool) {
            // The control block tells at any time.
            self.ours.heard(self.theirs.received());
            if !self.ours.cover(1) {
                return;
            }
            let number = self.ours.sent();
            let payload: Vec<u8> =
                (0..len.min(104)).map(|at| (at + self.sent.len()) as u8).collect();
            let mut frame = prefix(Frame::Data(0), 1, 0, number).to_vec();
            frame.extend_from_slice(&payload);
            if !otherwise && self.writer.has_room(&self.ours) {
                let (offset, bytes) = lay(&self.writer, &frame);
                let write = |(at, &byte)| Packet::Byte(offset + at, byte);
                self.wire.extend(bytes.iter().enumerate().map(write));
                self.writer.wrote(number);
            } else {
                self.wire.push_back(Packet::Send(frame));
            }
            self.ours.use_one();
            self.sent.push(payload);
        }

        fn device(&mut self) {
            for _ in 0..37 {
                match self.wire.pop_front() {
                    Some(Packet::Byte(at, byte)) => self.memory.0[at] = byte,
                    Some(Packet::Send(frame)) => self.completed.push_back(frame),
                    None => return,
                }
            }
        }

        fn take(&mut self, frame: &[u8]) {
            self.received.push(frame[PREFIX..].to_vec());
            self.theirs.take_one();
        }

        fn drain(&mut self) {
            while let (Found::Whole(_), frame) = self.memory.look(&self.reader) {
                let Said { number, .. } = decode_frame(&frame).expect("a whole frame");
                match order(number, &self.theirs) {
                    Order::Now => {
                        self.reader.took();
                        self.take(&frame);
                    }
                    Order::Later => return,
                    Order::Never => panic!("frame {number}, {}", self.theirs),
                }
            }
        }

        fn receive(&mut self) {
            self.drain();
            if let Some(frame) = self.completed.pop_front() {
                self.drain();
                let Said { number, .. } = decode_frame(&frame).expect("a whole frame");
                assert_eq!(order(number, &self.theirs), Order::Now, "frame {number}");
                self.take(&frame);
            }
        }
    }
}
