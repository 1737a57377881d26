//! One directed ring: the only writer is one process, the only reader another. Its layout and the writing end; the reading end is
//! in `ring/reader.rs`.
//!
//! ```text
//!  0     PARKED, COMPLAINTS  4096  CONSUMED            8192              12288         … + ring      … + bulk     … + shuttles
//!  ┌─────┬─────────────────────┬─────┬───────────────────┬─────────────────┬─────────────┬─────────────┬────────────┐
//!  │ ··· │ reader sleeps here  │ ··· │ reader's indices  │ shared reads    │ records     │ bulk area   │ shuttles   │
//!  └─────┴─────────────────────┴─────┴───────────────────┴─────────────────┴─────────────┴─────────────┴────────────┘
//! ```
//! Small frames lie in the ring as one record with header and payload (`record.rs`). Larger payloads go to the
//! bulk area, contiguous, in the same order, or to a shuttle, if one is held (`shuttle.rs`); a long one is published
//! in pieces so that the reader copies out while the writer still copies in.
//!
//! * A record is there when its word is not 0; the writer stores the word last (Release), after it has cleared
//!   the word of the record to come, so bytes of an earlier lap never look like a record.
//! * The writer reads the reader's indices only when the room it knows of is used up; the reader stores them
//!   every quarter of a lap, so neither side reads a line of the other on the fast path but the one that
//!   carries the message.
//! * Where a payload lies in the bulk area both sides compute by the same rule; no offset is ever believed.
//!
//! * Payloads for far readers are stored past the cache (`distance.rs` says when and why).
//!
//! Pure memory: no system call, no knowledge of peers' states. A writer that dies in the middle of
//! anything leaves an unpublished record, which is no record (laws 1, 4); the reader checks every length (law 9).

#[cfg(all(test, loom))]
mod model;
mod reader;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use reader::Reader;

#[cfg(not(loom))]
use crate::assist::{self, Helper};
use crate::config::Stores;
use crate::distance::Distance;
use crate::manners::Manner;
use crate::primitive::{Ordering, compiler_fence, fence};
use crate::record::{Kind, Mark, UNIT, WORD, Word};
use crate::shared::{APART, Shared};
use crate::shuttle::{Dock, OWN, Shuttle, Shuttles};
use crate::ways::Complaints;
use ironweave_btl::copy::can_demote;
use ironweave_btl::{HEADER_MAX, TINY_MAX};
use std::fmt;

/// Not 0 while the reader does not look at this ring by itself (a word the reader stores, rarely).
const PARKED: usize = 2 * APART;
/// What the reader says of its reads of the writer's memory (`ways.rs`; a word the reader stores, rarely). Not in the page of its
/// indices, for the reason given there.
const COMPLAINTS: usize = if cfg!(loom) { PARKED + 8 } else { 3 * APART };
/// How the two sides of a pair hand lines over (`manners.rs`; a word that the reader stores, rarely, if it decides for both).
const MANNER: usize = COMPLAINTS + 8;
/// Bytes of the ring that the reader is done with, since the start (a word the reader stores). In a page of its own: the
/// writer reads [`PARKED`] with each frame, and processors learn to fetch what is used of the same page now and then. Then
/// the way to the reader cannot be timed (`distance.rs`): 64 KiB took 19 instead of 6 µs to a far one.
const CONSUMED: usize = if cfg!(loom) { APART } else { 4096 + APART };
/// The same of the bulk area.
const CONSUMED_BULK: usize = CONSUMED + 8;
/// What the two ends share of long reads (`assist.rs`), in a page of its own for the same reason.
const ASSIST: usize = if cfg!(loom) { 3 * APART } else { 8192 };
/// Where the records are.
const RING: usize = if cfg!(loom) { ASSIST } else { 8192 + 4096 };
/// Payloads in the bulk area start at multiples of this.
const BULK_ALIGN: usize = 64;
/// Longer payloads start at multiples of this.
const PAGE: usize = 4096;
/// Parts of the bulk area that one frame may take at most: a reader that has read everything always leaves
/// room for the longest frame (one part skipped at the wrap, one not yet given back, one for the frame).
const BULK_PARTS: usize = 4;

/// The longest shuttle: fragments of longer messages gained nothing by going to and fro (1 MiB took as long, 4 MiB rather longer).
const SHUTTLE_MAX: usize = 128 << 10;

/// Bytes packed at once before they are streamed: they stay in the first-level cache.
const SCRATCH: usize = 2048;

#[cfg(not(loom))]
const _: () = assert!(ASSIST + assist::LEN <= RING);

/// The sizes of a ring; checked once, then relied upon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Geometry {
    ring: usize,
    bulk: usize,
}

impl Geometry {
    /// A geometry that both sides can work with; `None` for any other numbers (they may come from a peer).
    /// `ring` is a power of two from 512 bytes to 16 MiB, `bulk` a multiple of 4096 up to 256 MiB.
    pub(crate) fn new(ring: u64, bulk: u64) -> Option<Geometry> {
        let ok = ring.is_power_of_two()
            && (if cfg!(loom) { 128 } else { 512 }..=16 << 20).contains(&ring)
            && bulk.is_multiple_of(if cfg!(loom) { 64 } else { 4096 })
            && bulk <= 256 << 20;
        ok.then_some(Geometry { ring: ring as usize, bulk: bulk as usize })
    }

    /// Bytes of ring.
    pub(crate) const fn ring(self) -> usize {
        self.ring
    }

    /// Bytes of bulk area.
    pub(crate) const fn bulk(self) -> usize {
        self.bulk
    }

    /// Bytes of the whole segment.
    pub(crate) const fn total(self) -> usize {
        self.shuttles() + OWN * self.shuttle()
    }

    /// Where the shuttles start.
    const fn shuttles(self) -> usize {
        RING + self.ring + self.bulk
    }

    /// Bytes of a shuttle: no frame is longer than the bulk area takes.
    const fn shuttle(self) -> usize {
        let max = self.bulk_max();
        if max < SHUTTLE_MAX { max } else { SHUTTLE_MAX }
    }

    /// Where the shuttles of such a segment are.
    fn dock(self, shared: &Shared) -> Dock {
        Dock { shared: shared.clone(), start: self.shuttles(), size: self.shuttle() }
    }

    /// The longest inline frame, header and payload, in bytes.
    pub(crate) const fn inline_max(self) -> usize {
        self.ring / 4 - WORD
    }

    /// The longest payload that the bulk area takes at once.
    pub(crate) const fn bulk_max(self) -> usize {
        self.bulk / BULK_PARTS
    }
}

/// How far before its next record a writer claims lines, in bytes.
const WRITE_AHEAD: usize = 512;

/// Where the next `len` bytes of payload lie in a bulk area of `bulk` bytes: not across its end, and long ones at
/// the start of a page, which makes copying them up to three times as fast.
#[inline(always)]
const fn place(bulk_pos: u64, len: usize, bulk: usize) -> u64 {
    let align = if len < PAGE { BULK_ALIGN } else { PAGE };
    let pos = bulk_pos.next_multiple_of(align as u64);
    let at = (pos % bulk as u64) as usize;
    if at + len > bulk { pos + (bulk - at) as u64 } else { pos }
}

/// Longer payloads are not moved towards the reader: 16 KiB gained nothing.
const DEMOTE_MAX: usize = 8 << 10;

/// Why a frame did not go into the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Full {
    /// No room until the reader has read more.
    NoRoom,
    /// The reader's index makes no sense; the ring is of no use any more.
    Broken,
}

/// How the writer makes sure that a parking reader and a publishing writer cannot miss each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fencing {
    /// A fence on each side.
    Both,
    /// The reader, who parks rarely, makes all writers pass a barrier (`membarrier`); the writer has none.
    Reader,
}

/// Memory whose contents say nothing to a reader of a dump. It starts a line, as what is streamed out of it does: where the
/// allocator had put it elsewhere, packing crossed lines, and the loads that follow waited for it (64 KiB to a far reader took
/// 7 to 9 instead of 5.5 µs, a window of 1 MiB went at 8 instead of 20 GB/s).
#[repr(align(64))]
struct Scratch([u8; SCRATCH]);

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// The writing end.
#[derive(Debug)]
pub(crate) struct Writer {
    shared: Shared,
    geometry: Geometry,
    fencing: Fencing,
    /// Bytes written since the start, skipped ones included; a multiple of [`UNIT`].
    pos: u64,
    /// `pos` must not pass this, as far as is known.
    limit: u64,
    /// Words of the units up to here are 0.
    cleared: u64,
    /// Records that end here or before need no question: there is room for them, they end in this lap, the word after them is
    /// cleared, and nothing as short is streamed. Never more than is true: all of these only grow.
    calm: u64,
    bulk_pos: u64,
    bulk_limit: u64,
    distance: Distance,
    /// The processor can move lines towards the reader.
    demotes: bool,
    /// The next frame is moved towards the reader once it is published: see [`await_next`](Writer::await_next).
    awaited: bool,
    /// Where payloads are packed before they are streamed.
    scratch: Box<Scratch>,
}

impl Writer {
    /// The writer of a fresh ring of zero bytes.
    ///
    /// # Panics
    /// When `shared` is smaller than the geometry.
    pub(crate) fn new(
        shared: Shared,
        geometry: Geometry,
        fencing: Fencing,
        stores: Stores,
    ) -> Self {
        assert!(shared.len() >= geometry.total(), "a ring in too small a segment");
        Writer {
            shared,
            geometry,
            fencing,
            pos: 0,
            limit: geometry.ring as u64,
            cleared: geometry.ring as u64,
            calm: 0,
            bulk_pos: 0,
            bulk_limit: geometry.bulk as u64,
            distance: Distance::new(stores),
            demotes: can_demote(),
            awaited: false,
            scratch: Box::new(Scratch([0; SCRATCH])),
        }
    }

    /// Whether the reader is likely to wait for the next frame that is sent. If so, and the processor can, the lines of one that is short are moved
    /// towards the cache that both share once it is published: there the reader finds them sooner than in ours (figures in `manners.rs`).
    /// In a burst the writer has no time for it: windows of 2 KiB went half as fast. What goes in pieces gains nothing. For a reader to move
    /// back what it has read made windows of 4 to 16 KiB a third to a half slower.
    #[inline(always)]
    pub(crate) fn await_next(&mut self, awaited: bool) {
        self.awaited = awaited & self.demotes;
    }

    /// Moves the record from `start` to here towards the reader, if it is likely to wait for it.
    #[inline(always)]
    fn hand_over(&mut self, start: u64) {
        if std::mem::take(&mut self.awaited) {
            let at = self.at(start) & !63;
            self.shared.demote(at, (self.at(self.pos - 1) + 1).saturating_sub(at));
        }
    }

    /// Payloads of at least this many bytes should go to the bulk area even if they could be inline.
    #[inline(always)]
    pub(crate) fn bulk_from(&self) -> usize {
        self.distance.streamed_from()
    }

    /// Where the shuttles of this segment are.
    pub(crate) fn dock(&self) -> Dock {
        self.geometry.dock(&self.shared)
    }

    /// Our end of the reads of our memory that the reader shares with us.
    #[cfg(not(loom))]
    pub(crate) fn helper(&self) -> Helper {
        Helper::new(self.shared.clone(), ASSIST)
    }

    /// Maps the page of the reader's indices, once the reader has it. Otherwise the first measurement of the distance, which counts until
    /// there are others, would have that in it, 1.7 µs, and find every reader far.
    pub(crate) fn map_indices(&self) {
        std::hint::black_box(self.shared.word(CONSUMED).load(Ordering::Relaxed));
    }

    pub(crate) fn set_fencing(&mut self, fencing: Fencing) {
        self.fencing = fencing;
    }

    #[inline(always)]
    fn at(&self, pos: u64) -> usize {
        RING + (pos as usize & (self.geometry.ring - 1))
    }

    /// Whether `len` more bytes of records may be written: room for them, for what is skipped at the end of
    /// the lap, and for the word to come.
    #[inline(always)]
    fn admit(&mut self, len: usize, bulk: u64) -> Result<(), Full> {
        let end = self.pos + (len + UNIT) as u64;
        if end <= self.limit && bulk <= self.bulk_limit {
            return Ok(());
        }
        self.refresh()?;
        if end <= self.limit && bulk <= self.bulk_limit { Ok(()) } else { Err(Full::NoRoom) }
    }

    /// Reads the reader's indices.
    #[cold]
    fn refresh(&mut self) -> Result<(), Full> {
        // Acquire: the reader is done with the bytes before we write them again.
        let Writer { shared, geometry, distance, .. } = self;
        let indices = || {
            let consumed = shared.word(CONSUMED).load(Ordering::Acquire);
            (consumed, shared.word(CONSUMED_BULK).load(Ordering::Acquire))
        };
        let known = (self.limit - geometry.ring as u64, self.bulk_limit - geometry.bulk as u64);
        let (consumed, bulk) = distance.measure(&known, indices);
        let sane = |consumed: u64, pos: u64, limit: u64, size: usize| {
            consumed <= pos && consumed.checked_add(size as u64).is_some_and(|new| new >= limit)
        };
        if !sane(consumed, self.pos, self.limit, self.geometry.ring)
            || !sane(bulk, self.bulk_pos, self.bulk_limit, self.geometry.bulk)
        {
            return Err(Full::Broken);
        }
        self.limit = consumed + self.geometry.ring as u64;
        self.bulk_limit = bulk + self.geometry.bulk as u64;
        Ok(())
    }

    /// Where a record of `len` bytes starts: not across the end of the ring.
    #[inline(always)]
    fn start(&self, len: usize) -> u64 {
        let at = self.pos as usize & (self.geometry.ring - 1);
        if at + len > self.geometry.ring {
            self.pos + (self.geometry.ring - at) as u64
        } else {
            self.pos
        }
    }

    /// Writes the record at `start` whose body after the word is in place, and shows it to the reader.
    #[inline(always)]
    fn publish(&mut self, start: u64, word: Word) {
        let end = start + word.footprint() as u64;
        // The reader looks there next: nothing yet. Ordered before the word below by its Release.
        if self.cleared <= end {
            self.shared.word(self.at(end)).store(0, Ordering::Relaxed);
            self.cleared = end + UNIT as u64;
        }
        let at = self.at(start);
        if start == self.pos {
            self.shared.word(at).store(word.encode(), Ordering::Release);
        } else {
            self.shared.word(at).store(word.encode(), Ordering::Relaxed);
            self.shared.word(self.at(self.pos)).store(Word::WRAP, Ordering::Release);
        }
        self.pos = end;
    }

    /// Clears the words of the units to come, room for another record of `len` bytes. This brings their lines
    /// into our cache while nobody waits, instead of when that record is written.
    #[inline(always)]
    fn clear_ahead(&mut self, len: usize) {
        let until = (self.pos + (len + 2 * UNIT) as u64).min(self.limit);
        while self.cleared < until {
            self.shared.word(self.at(self.cleared)).store(0, Ordering::Relaxed);
            self.cleared += UNIT as u64;
        }
        let lap = self.geometry.ring as u64;
        self.calm = match self.bulk_from() > TINY_MAX {
            true => (self.cleared.min(self.limit) - UNIT as u64).min((self.pos & !(lap - 1)) + lap),
            false => 0,
        };
    }

    /// Sends a frame that lies in the ring whole: `fill` writes the payload.
    ///
    /// # Panics
    /// When it is longer than [`Geometry::inline_max`].
    #[inline(always)]
    pub(crate) fn send_inline(
        &mut self,
        header: &[u8],
        payload: usize,
        fill: impl FnOnce(&Shared, usize),
    ) -> Result<(), Full> {
        assert!(
            header.len() <= HEADER_MAX && header.len() + payload <= self.geometry.inline_max(),
            "an inline frame of {} + {payload} bytes",
            header.len()
        );
        let word = Word {
            kind: Kind::Inline,
            header: header.len() as u8,
            mark: Mark::NONE,
            payload: payload as u32,
        };
        let start = self.start(word.footprint());
        self.admit((start - self.pos) as usize + word.footprint(), 0)?;
        let body = self.at(start) + WORD;
        self.shared.write(body, header);
        fill(&self.shared, body + header.len());
        self.publish(start, word);
        self.hand_over(start);
        self.clear_ahead(word.footprint());
        Ok(())
    }

    /// Sends a frame of a header of sixteen bytes and a few more, in as few steps as that takes: whether it is in the ring. If not,
    /// nothing was done; [`send_inline`](Self::send_inline) knows what to do at the end of a lap, or when room is short.
    #[inline(always)]
    pub(crate) fn send_tiny(&mut self, header: [u64; 2], payload: &[u8]) -> bool {
        // Rounded up in two steps: a length this short does not overflow.
        let len =
            (WORD + size_of::<[u64; 2]>() + payload.len().min(TINY_MAX) + UNIT - 1) & !(UNIT - 1);
        let end = self.pos + len as u64;
        if end > self.calm || payload.len() > TINY_MAX {
            return false;
        }
        let word = Word {
            kind: Kind::Inline,
            header: size_of::<[u64; 2]>() as u8,
            mark: Mark::NONE,
            payload: payload.len() as u32,
        };
        let start = self.pos;
        self.shared.put(self.at(start), word.encode(), header, payload);
        self.pos = end;
        self.hand_over(start);
        self.clear_ahead(len);
        true
    }

    /// Sends a frame whose payload lies in the bulk area, or in `shuttle`, that was lent for its length (the second of the pair
    /// knows where it is): `pack` fills it, piece by piece, and each piece is published when it is written. `pieces` gives
    /// the length of the piece at an offset.
    ///
    /// # Panics
    /// When the payload is longer than [`Geometry::bulk_max`].
    pub(crate) fn send_bulk(
        &mut self,
        header: &[u8],
        len: usize,
        shuttle: Option<(Shuttle, &Shuttles)>,
        pieces: impl Fn(usize) -> usize,
        mut pack: impl FnMut(usize, &mut [u8]),
    ) -> Result<(), Full> {
        assert!(
            header.len() <= HEADER_MAX && len <= self.geometry.bulk_max(),
            "a bulk frame of {} + {len} bytes",
            header.len()
        );
        let first = pieces(0).min(len);
        let far = len >= self.distance.streamed_from();
        let streamed = far && shuttle.is_none();
        let kind = match first == len {
            true => Kind::Bulk,
            false if far => Kind::Far,
            false => Kind::Begin,
        };
        let mark = shuttle.map_or(Mark::NONE, |(shuttle, _)| shuttle.mark());
        let word = Word { kind, header: header.len() as u8, mark, payload: len as u32 };
        let mut records = word.footprint();
        if kind != Kind::Bulk {
            let mut offset = 0;
            while offset < len {
                offset += pieces(offset).max(1);
                records += UNIT;
            }
        }
        assert!(records <= self.geometry.ring / 4, "a bulk frame in {records} bytes of records");
        let (place, end) = if shuttle.is_some() {
            (self.bulk_pos, self.bulk_pos)
        } else {
            let place = place(self.bulk_pos, len, self.geometry.bulk);
            (place, (place + len as u64).next_multiple_of(BULK_ALIGN as u64))
        };
        // What is skipped at the end of the lap is shorter than the longest record without payload.
        self.admit(records + WORD + HEADER_MAX, end)?;
        self.bulk_pos = end;
        let awaited = std::mem::take(&mut self.awaited);

        let bulk = RING + self.geometry.ring + (place % self.geometry.bulk as u64) as usize;
        let mut fill = |writer: &mut Self, offset, len| match shuttle {
            Some((shuttle, shuttles)) => {
                let (shared, at) = shuttles.place(shuttle);
                shared.with_mut(at + offset, len, |bytes| pack(offset, bytes));
            }
            None => writer.fill(bulk, offset, len, streamed, &mut pack),
        };
        let start = self.start(word.footprint());
        let body = self.at(start) + WORD;
        if kind == Kind::Bulk {
            fill(self, 0, len);
            // Just before the word: whoever waits for that fetches the line as soon as something is stored there, and everything that
            // is stored after it waits until the line is back. 2 KiB took 0.21 instead of 0.23 µs, 4 KiB 0.285 instead of 0.305.
            self.shared.write(body, header);
            self.publish(start, word);
            if awaited && !streamed && len <= DEMOTE_MAX {
                let (shared, at) =
                    shuttle.map_or((&self.shared, bulk), |(lent, shuttles)| shuttles.place(lent));
                shared.demote(at, len);
            }
            self.clear_ahead(UNIT);
            self.claim_ahead(len, streamed || shuttle.is_some());
            return Ok(());
        }
        self.shared.write(body, header);
        self.publish(start, word);
        let mut offset = 0;
        while offset < len {
            let piece = pieces(offset).max(1).min(len - offset);
            fill(self, offset, piece);
            let start = self.start(UNIT);
            let (mark, payload) = (Mark::NONE, piece as u32);
            self.publish(start, Word { kind: Kind::Piece, header: 0, mark, payload });
            offset += piece;
        }
        self.clear_ahead(UNIT);
        self.claim_ahead(len, streamed || shuttle.is_some());
        Ok(())
    }

    /// Brings the first lines of the next payload into our cache, if it is like this one, while nobody waits; unless this one
    /// went elsewhere.
    #[inline(always)]
    fn claim_ahead(&self, len: usize, elsewhere: bool) {
        if !elsewhere {
            let bulk = self.geometry.bulk;
            let place = place(self.bulk_pos, len, bulk);
            let at = RING + self.geometry.ring + (place % bulk as u64) as usize;
            self.shared.claim(at, len.min(4096));
        }
    }

    /// Lets `pack` fill the `len` bytes at `offset` of a payload that starts at byte `bulk`.
    #[inline(always)]
    fn fill(
        &mut self,
        bulk: usize,
        offset: usize,
        len: usize,
        streamed: bool,
        pack: &mut impl FnMut(usize, &mut [u8]),
    ) {
        // Only whole lines can be streamed.
        if !streamed || !offset.is_multiple_of(64) {
            self.shared.with_mut(bulk + offset, len, |bytes| pack(offset, bytes));
            return;
        }
        let mut done = 0;
        while done < len {
            let part = (len - done).min(SCRATCH);
            pack(offset + done, &mut self.scratch.0[..part]);
            self.shared.stream(bulk + offset + done, &self.scratch.0[..part]);
            done += part;
        }
        // Before the word that publishes this piece. Once a piece: each costs a hundred nanoseconds.
        self.shared.settle();
    }

    /// Whether lines come from the reader's cache slowly.
    #[inline(always)]
    pub(crate) fn is_far(&self) -> bool {
        self.distance.is_far()
    }

    /// Claims the line of the next record, which is about to be written. For far readers, when a question came that may
    /// be answered: what the way to the reader's cache takes passes while it is being read. A near reader, who looks at
    /// that line all the time, would have it back before it is written.
    #[inline(always)]
    pub(crate) fn claim_next(&self) {
        self.shared.claim(self.at(self.pos), 1);
    }

    /// Claims a line that a burst is about to reach, so that its records do not wait for the way to the reader and back.
    #[inline(always)]
    pub(crate) fn claim_for_burst(&self) {
        if self.pos + (WRITE_AHEAD as u64) < self.limit {
            self.shared.claim(self.at(self.pos + WRITE_AHEAD as u64), 1);
        }
    }

    /// How the reader wants lines handed over.
    #[inline(always)]
    pub(crate) fn manner(&self) -> Manner {
        Manner::said(self.shared.word(MANNER).load(Ordering::Relaxed))
    }

    /// What the reader says of reads of our memory.
    #[inline]
    pub(crate) fn complaints(&self) -> Complaints {
        Complaints(self.shared.word(COMPLAINTS).load(Ordering::Relaxed))
    }

    /// Whether the reader wants to be told of what was published just now.
    #[inline(always)]
    pub(crate) fn reader_parked(&self) -> bool {
        // The record must be visible before `PARKED` is read; `Reader::park` has the other half.
        match self.fencing {
            Fencing::Reader => compiler_fence(Ordering::SeqCst),
            Fencing::Both => fence(Ordering::SeqCst),
        }
        self.shared.word(PARKED).load(Ordering::Relaxed) != 0
    }
}
