//! One directed ring: the only writer is one process, the only reader another.
//!
//! ```text
//!  0     PARKED              4096  CONSUMED            8192               8192 + ring          … + bulk    … + shuttles
//!  ┌─────┬─────────────────────┬─────┬───────────────────┬──────────────────┬────────────────────┬────────────┐
//!  │ ··· │ reader sleeps here  │ ··· │ reader's indices  │ records          │ bulk area          │ shuttles   │
//!  └─────┴─────────────────────┴─────┴───────────────────┴──────────────────┴────────────────────┴────────────┘
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
#[cfg(all(test, not(loom)))]
mod tests;

use crate::config::Stores;
use crate::distance::Distance;
use crate::primitive::{Ordering, compiler_fence, fence};
use crate::record::{Kind, Malformed, Mark, UNIT, WORD, Word};
use crate::shared::{APART, Shared};
use crate::shuttle::{Dock, OWN, Shuttle, Shuttles};
use crate::warmth::{Warmth, Way};
use ironweave_btl::memory::RecvRegion;
use ironweave_btl::{Cause, Counters, Fault, HEADER_MAX, Header, Landing, Peer, Sink, Token};
use std::fmt;

/// Not 0 while the reader does not look at this ring by itself (a word the reader stores, rarely).
const PARKED: usize = 2 * APART;
/// Bytes of the ring that the reader is done with, since the start (a word the reader stores). In a page of its own: the
/// writer reads [`PARKED`] with each frame, and processors learn to fetch what is used of the same page now and then. Then
/// the way to the reader cannot be timed (`distance.rs`): 64 KiB took 19 instead of 6 µs to a far one.
const CONSUMED: usize = if cfg!(loom) { APART } else { 4096 + APART };
/// The same of the bulk area.
const CONSUMED_BULK: usize = CONSUMED + 8;
/// Where the records are.
const RING: usize = if cfg!(loom) { 3 * APART } else { 8192 };
/// Payloads in the bulk area start at multiples of this.
const BULK_ALIGN: usize = 64;
/// Longer payloads start at multiples of this.
const PAGE: usize = 4096;
/// Parts of the bulk area that one frame may take at most: a reader that has read everything always leaves
/// room for the longest frame (one part skipped at the wrap, one not yet given back, one for the frame).
const BULK_PARTS: usize = 4;
/// The reader gives bulk space back in parts of this fraction.
const BULK_GIVE_BACK: usize = 8;

/// The longest shuttle: fragments of longer messages gained nothing by going to and fro (1 MiB took as long, 4 MiB rather longer).
const SHUTTLE_MAX: usize = 128 << 10;

/// Bytes packed at once before they are streamed: they stay in the first-level cache.
const SCRATCH: usize = 2048;

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
/// How far before its next record a reader in the middle of a burst asks for lines, in bytes. Nearer ones are under
/// way; asking for lines that the writer has not written yet would take them away from it.
const READ_AHEAD: usize = 256;

/// Where the next `len` bytes of payload lie in a bulk area of `bulk` bytes: not across its end, and long ones at
/// the start of a page, which makes copying them up to three times as fast.
#[inline(always)]
const fn place(bulk_pos: u64, len: usize, bulk: usize) -> u64 {
    let align = if len < PAGE { BULK_ALIGN } else { PAGE };
    let pos = bulk_pos.next_multiple_of(align as u64);
    let at = (pos % bulk as u64) as usize;
    if at + len > bulk { pos + (bulk - at) as u64 } else { pos }
}

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
    bulk_pos: u64,
    bulk_limit: u64,
    distance: Distance,
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
            bulk_pos: 0,
            bulk_limit: geometry.bulk as u64,
            distance: Distance::new(stores),
            scratch: Box::new(Scratch([0; SCRATCH])),
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
        self.clear_ahead(word.footprint());
        Ok(())
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
        let streamed = shuttle.is_none() && len >= self.distance.streamed_from();
        let kind = match first == len {
            true => Kind::Bulk,
            false if streamed => Kind::Streamed,
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
        self.shared.write(body, header);
        if kind == Kind::Bulk {
            fill(self, 0, len);
            self.publish(start, word);
            self.clear_ahead(UNIT);
            self.claim_ahead(len, streamed || shuttle.is_some());
            return Ok(());
        }
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
        self.distance.streamed_from() != usize::MAX
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

/// Where a payload lies.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// In the bulk area, from this position on.
    Bulk(u64),
    Shuttle(Shuttle),
}

/// A frame of which not all pieces have arrived.
#[derive(Debug)]
struct Partial {
    header: Header,
    /// Where the payload is.
    source: Source,
    len: usize,
    got: usize,
    /// Where it goes; `None`: it stays where it is until it is whole.
    landing: Option<(RecvRegion, Token)>,
    /// How it is written there.
    way: Way,
}

/// The reading end.
#[derive(Debug)]
pub(crate) struct Reader {
    shared: Shared,
    geometry: Geometry,
    pos: u64,
    /// What the writer was told of `pos`.
    published: u64,
    bulk_pos: u64,
    bulk_published: u64,
    partial: Option<Partial>,
}

impl Reader {
    /// The reader of a fresh ring.
    ///
    /// # Panics
    /// When `shared` is smaller than the geometry.
    pub(crate) fn new(shared: Shared, geometry: Geometry) -> Self {
        assert!(shared.len() >= geometry.total(), "a ring in too small a segment");
        Reader {
            shared,
            geometry,
            pos: 0,
            published: 0,
            bulk_pos: 0,
            bulk_published: 0,
            partial: None,
        }
    }

    /// Where the shuttles of this segment are.
    pub(crate) fn dock(&self) -> Dock {
        self.geometry.dock(&self.shared)
    }

    #[inline(always)]
    fn at(&self, pos: u64) -> usize {
        RING + (pos as usize & (self.geometry.ring - 1))
    }

    /// Whether a record is there.
    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        self.shared.word(self.at(self.pos)).load(Ordering::Acquire) != 0
    }

    /// Whether a frame has begun of which more is to come.
    #[inline(always)]
    pub(crate) fn is_amid(&self) -> bool {
        self.partial.is_some()
    }

    /// Asks for the lines of the records after the next, of which some seem to be there.
    #[inline(always)]
    pub(crate) fn fetch_ahead(&self) {
        self.shared.fetch(self.at(self.pos + READ_AHEAD as u64));
    }

    /// Takes the next record, if one is there, and reports what it completes. `Ok(false)`: nothing is there.
    ///
    /// # Errors
    /// When the writer broke the layout; nothing after that may be believed.
    #[inline(always)]
    pub(crate) fn poll<S: Sink>(
        &mut self,
        from: Peer,
        sink: &mut S,
        counters: &Counters,
        warmth: &mut Warmth,
        shuttles: &mut Shuttles,
    ) -> Result<bool, Malformed> {
        let at = self.at(self.pos);
        // Acquire: what the writer wrote before it published the word.
        let word = self.shared.word(at).load(Ordering::Acquire);
        if word == 0 {
            return Ok(false);
        }
        // The usual record in few steps; whatever is unusual about it, `take` finds.
        if let Some((header, len)) = Word::decode_inline(word)
            && WORD + header + len <= RING + self.geometry.ring - at
            && self.partial.is_none()
        {
            counters.frames_received.add(1);
            counters.bytes_received.add(len as u64);
            self.shared.with(at + WORD, header + len, |bytes| {
                let (header, payload) = bytes.split_at(header);
                sink.frame(from, header, payload);
            });
            self.advance((WORD + header + len).next_multiple_of(UNIT));
            return Ok(true);
        }
        self.take(word, from, sink, counters, warmth, shuttles)?;
        Ok(true)
    }

    /// Shows the next record to `take`, if it is a frame that lies here whole, and goes past it when `take` takes it. Whatever
    /// else is here is left to [`poll`](Reader::poll).
    #[inline(always)]
    pub(crate) fn take_inline(
        &mut self,
        counters: &Counters,
        take: impl FnOnce(&[u8], &[u8]) -> bool,
    ) -> bool {
        let at = self.at(self.pos);
        // Acquire: as in `poll`. A word of 0 is no frame.
        let word = self.shared.word(at).load(Ordering::Acquire);
        let Some((header, len)) = Word::decode_inline(word) else { return false };
        if WORD + header + len > RING + self.geometry.ring - at || self.partial.is_some() {
            return false;
        }
        let taken = self.shared.with(at + WORD, header + len, |bytes| {
            let (header, payload) = bytes.split_at(header);
            take(header, payload)
        });
        if taken {
            self.advance((WORD + header + len).next_multiple_of(UNIT));
            counters.frames_received.add(1);
            counters.bytes_received.add(len as u64);
        }
        taken
    }

    #[allow(clippy::too_many_arguments)] // what `poll` has
    #[inline(never)]
    fn take<S: Sink>(
        &mut self,
        word: u64,
        from: Peer,
        sink: &mut S,
        counters: &Counters,
        warmth: &mut Warmth,
        shuttles: &mut Shuttles,
    ) -> Result<(), Malformed> {
        let at = self.at(self.pos);
        let room = RING + self.geometry.ring - at;
        let Some(word) = Word::decode(word)? else { return Ok(()) };
        word.fits(room, self.geometry.bulk_max())?;
        let (header, len) = (usize::from(word.header), word.payload as usize);
        match word.kind {
            Kind::Piece => self.piece(len, from, sink, counters, shuttles)?,
            _ if self.partial.is_some() => return Err(Malformed("a frame inside a frame")),
            Kind::Inline => {
                self.shared.with(at + WORD, header + len, |bytes| {
                    let (header, payload) = bytes.split_at(header);
                    counters.frames_received.add(1);
                    counters.bytes_received.add(len as u64);
                    sink.frame(from, header, payload);
                });
            }
            Kind::Bulk => {
                let source = self.source(word, shuttles)?;
                self.shared.with(at + WORD, header, |header| {
                    self.deliver(from, header, source, len, sink, counters, shuttles);
                });
                self.done(source, len, shuttles);
            }
            Kind::Begin | Kind::Streamed => {
                let source = self.source(word, shuttles)?;
                let header = self.shared.with(at + WORD, header, Header::new);
                let landing = match sink.landing(from, header.as_bytes(), len) {
                    Landing::Direct { region, token } => Some((region, token)),
                    Landing::Buffered => None,
                };
                let way = landing.as_ref().map_or(Way::Through, |(region, _)| {
                    warmth.way(region.as_mut_ptr() as usize, region.len())
                });
                // What is in no cache is not worth asking for (`warmth.rs`).
                let way = match way {
                    Way::Ahead if word.kind == Kind::Streamed => Way::Through,
                    way => way,
                };
                if let Source::Bulk(place) = source {
                    self.bulk_pos = place;
                }
                self.partial = Some(Partial { header, source, len, got: 0, landing, way });
            }
            Kind::Wrap => {
                self.advance(room);
                return Ok(());
            }
        }
        self.advance(word.footprint());
        Ok(())
    }

    /// Where the payload of the frame that begins with `word` lies.
    fn source(&self, word: Word, shuttles: &Shuttles) -> Result<Source, Malformed> {
        let len = word.payload as usize;
        Ok(match shuttles.named(word.mark, len)? {
            Some(shuttle) => Source::Shuttle(shuttle),
            None => Source::Bulk(place(self.bulk_pos, len, self.geometry.bulk)),
        })
    }

    /// The segment of a payload and its byte at `offset` there.
    fn locate<'a>(
        &'a self,
        source: Source,
        offset: usize,
        shuttles: &'a Shuttles,
    ) -> (&'a Shared, usize) {
        match source {
            Source::Bulk(place) => (&self.shared, self.bulk_at(place + offset as u64)),
            Source::Shuttle(shuttle) => {
                let (shared, at) = shuttles.place(shuttle);
                (shared, at + offset)
            }
        }
    }

    /// All of a payload has been read.
    fn done(&mut self, source: Source, len: usize, shuttles: &mut Shuttles) {
        match source {
            Source::Bulk(place) => {
                self.bulk_done((place + len as u64).next_multiple_of(BULK_ALIGN as u64));
            }
            Source::Shuttle(shuttle) => shuttles.keep(shuttle),
        }
    }

    /// Hands up a whole frame.
    #[allow(clippy::too_many_arguments)] // a frame, and who is told
    fn deliver<S: Sink>(
        &self,
        from: Peer,
        header: &[u8],
        source: Source,
        len: usize,
        sink: &mut S,
        counters: &Counters,
        shuttles: &Shuttles,
    ) {
        counters.frames_received.add(1);
        counters.bytes_received.add(len as u64);
        let (shared, at) = self.locate(source, 0, shuttles);
        shared.with(at, len, |payload| sink.frame(from, header, payload));
    }

    fn bulk_at(&self, place: u64) -> usize {
        // An empty payload may lie at the very end.
        RING + self.geometry.ring + (place % (self.geometry.bulk.max(1)) as u64) as usize
    }

    fn piece<S: Sink>(
        &mut self,
        len: usize,
        from: Peer,
        sink: &mut S,
        counters: &Counters,
        shuttles: &mut Shuttles,
    ) -> Result<(), Malformed> {
        let Some(mut partial) = self.partial.take() else {
            return Err(Malformed("a piece of no frame"));
        };
        if len > partial.len - partial.got {
            self.partial = Some(partial);
            return Err(Malformed("more pieces than the frame has"));
        }
        if let Some((region, _)) = &partial.landing {
            let (shared, at) = self.locate(partial.source, partial.got, shuttles);
            shared.with(at, len, |bytes| match partial.way {
                Way::Ahead => region.write_ahead(partial.got, bytes),
                Way::Through => region.write(partial.got, bytes),
                Way::Past => region.write_past(partial.got, bytes),
            });
            if let Source::Bulk(place) = partial.source {
                // Only what is read for good: the last, unfinished unit of alignment is not given back yet.
                let end = place + (partial.got + len) as u64;
                self.bulk_done(end - end % BULK_ALIGN as u64);
            }
        }
        partial.got += len;
        if partial.got < partial.len {
            self.partial = Some(partial);
            return Ok(());
        }
        match partial.landing {
            Some((region, token)) => {
                counters.frames_received.add(1);
                counters.bytes_received.add(partial.len as u64);
                sink.landed(from, region, token, Ok(()));
            }
            None => {
                let (header, source, len) = (partial.header, partial.source, partial.len);
                self.deliver(from, header.as_bytes(), source, len, sink, counters, shuttles);
            }
        }
        self.done(partial.source, partial.len, shuttles);
        Ok(())
    }

    /// Goes past `len` bytes of records.
    #[inline(always)]
    fn advance(&mut self, len: usize) {
        self.pos += len as u64;
        if self.pos - self.published >= (self.geometry.ring / 4) as u64 {
            self.published = self.pos;
            // Release: our reads of these bytes are over before the writer writes them again.
            self.shared.word(CONSUMED).store(self.pos, Ordering::Release);
        }
    }

    /// Is done with the bulk area up to `end`.
    fn bulk_done(&mut self, end: u64) {
        self.bulk_pos = end;
        if self.bulk_pos - self.bulk_published >= (self.geometry.bulk / BULK_GIVE_BACK) as u64 {
            self.bulk_published = self.bulk_pos;
            self.shared.word(CONSUMED_BULK).store(self.bulk_pos, Ordering::Release);
        }
    }

    /// Stops looking: from now on the writer rings the bell. Follow with the barrier that the writer's
    /// [`Fencing`] asks for, then with [`is_ready`](Reader::is_ready).
    pub(crate) fn park(&self) {
        self.shared.word(PARKED).store(1, Ordering::Relaxed);
    }

    /// Looks by itself again.
    pub(crate) fn unpark(&self) {
        self.shared.word(PARKED).store(0, Ordering::Relaxed);
    }

    /// Touches the pages of indices and records first, so that they are allocated near this, the polling, side.
    #[cfg(not(loom))]
    pub(crate) fn touch(&self) {
        self.shared.touch(0, RING + self.geometry.ring);
    }

    /// Ends a frame that will never be whole, with `cause`.
    pub(crate) fn abandon<S: Sink>(&mut self, from: Peer, cause: &Cause, sink: &mut S) {
        if let Some(Partial { landing: Some((region, token)), .. }) = self.partial.take() {
            sink.landed(from, region, token, Err(Fault::operation(from, cause.clone())));
        }
    }

    /// The most records that can be in the ring at once.
    pub(crate) fn capacity(&self) -> usize {
        self.geometry.ring / UNIT
    }
}
