//! The reading end of a ring: takes records out, lands payloads while they are being written, gives room back. Believes nothing
//! that the writer stored before it has checked it (law 9); `ring.rs` has the layout.

#[cfg(not(loom))]
use super::ASSIST;
use super::{
    BULK_ALIGN, COMPLAINTS, CONSUMED, CONSUMED_BULK, Geometry, MANNER, PARKED, RING, place,
};
#[cfg(not(loom))]
use crate::assist::Asker;
use crate::manners::Manner;
use crate::primitive::Ordering;
use crate::record::{Kind, Malformed, Mark, UNIT, WORD, Word};
use crate::shared::{Shared, Spot};
use crate::shuttle::{Dock, Shuttle, Shuttles};
use crate::warmth::{Warmth, Way};
use crate::ways::Experience;
use ironweave_btl::memory::RecvRegion;
use ironweave_btl::{Cause, Counters, Fault, Header, Landing, Peer, Sink, Token, copy};
use std::time::Instant;

/// The reader gives bulk space back in parts of this fraction.
const BULK_GIVE_BACK: usize = 8;
/// How far before its next record a reader in the middle of a burst asks for lines, in bytes. Nearer ones are under
/// way; asking for lines that the writer has not written yet would take them away from it.
const READ_AHEAD: usize = 256;
/// A cache line, in bytes.
const LINE: u64 = 64;

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
    /// When it began to come, where that is of interest.
    began: Option<Instant>,
}

/// What was written in this way is all there for whoever is told now, on any core.
#[inline]
fn settle(way: Way) {
    if way == Way::Past {
        copy::settle();
    }
}

/// The reading end.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(super) shared: Shared,
    geometry: Geometry,
    pos: u64,
    /// What the writer was told of `pos`.
    published: u64,
    bulk_pos: u64,
    bulk_published: u64,
    partial: Option<Partial>,
    /// What long messages take.
    pub(crate) experience: Experience,
}

impl Reader {
    /// The reader of a fresh ring.
    ///
    /// # Panics
    /// When `shared` is smaller than the geometry.
    pub(crate) fn new(shared: Shared, geometry: Geometry, experience: Experience) -> Self {
        assert!(shared.len() >= geometry.total(), "a ring in too small a segment");
        Reader {
            shared,
            geometry,
            pos: 0,
            published: 0,
            bulk_pos: 0,
            bulk_published: 0,
            partial: None,
            experience,
        }
    }

    /// Where the shuttles of this segment are.
    pub(crate) fn dock(&self) -> Dock {
        self.geometry.dock(&self.shared)
    }

    /// Our end of the reads of the writer's memory that it shares with us.
    #[cfg(not(loom))]
    pub(crate) fn asker(&self) -> Asker {
        Asker::new(self.shared.clone(), ASSIST)
    }

    #[inline(always)]
    fn at(&self, pos: u64) -> usize {
        RING + (pos as usize & (self.geometry.ring - 1))
    }

    /// Says how both sides are to hand lines over.
    #[cold]
    pub(crate) fn say(&self, manner: Manner) {
        // A hint: whoever sees it late does once what it did before.
        self.shared.word(MANNER).store(manner.word(), Ordering::Relaxed);
    }

    /// Whether a record is there.
    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        self.shared.word(self.at(self.pos)).load(Ordering::Acquire) != 0
    }

    /// Bytes of records that were read, since the start.
    #[inline(always)]
    pub(crate) fn position(&self) -> u64 {
        self.pos
    }

    /// Whether a frame has begun of which more is to come.
    #[inline(always)]
    pub(crate) fn is_amid(&self) -> bool {
        self.partial.is_some()
    }

    /// Asks for the lines of the records after the next, of which some seem to be there.
    #[inline(always)]
    pub(crate) fn fetch_ahead(&self) {
        // Of several records in a line the first asks for all.
        if self.pos.is_multiple_of(LINE) {
            self.shared.fetch(self.at(self.pos + READ_AHEAD as u64));
        }
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
        let spot = self.spot();
        // Acquire: what the writer wrote before it published the word.
        let word = spot.word().load(Ordering::Acquire);
        if word == 0 {
            return Ok(false);
        }
        // The usual record in few steps; whatever is unusual about it, `take` finds.
        if let Some((header, len)) = Word::decode_inline(word)
            && self.partial.is_none()
            && let Some(body) = spot.body(header + len)
            && let Some((header, payload)) = body.split_at_checked(header)
        {
            counters.frames_received.add(1);
            counters.bytes_received.add(len as u64);
            sink.frame(from, header, payload);
            self.advance((WORD + body.len() + UNIT - 1) & !(UNIT - 1));
            return Ok(true);
        }
        self.take(word, from, sink, counters, warmth, shuttles)?;
        Ok(true)
    }

    /// Where the next record begins; `None` in the middle of a frame.
    #[inline(always)]
    pub(crate) fn next(&self) -> Option<Spot<'_>> {
        self.partial.is_none().then(|| self.spot())
    }

    /// Where the next record begins, and the rest of the lap.
    #[inline(always)]
    fn spot(&self) -> Spot<'_> {
        let at = self.pos as usize & (self.geometry.ring - 1);
        self.shared.spot(RING + at, self.geometry.ring - at)
    }

    /// What the record at `spot`, whose word is `word`, has for `into`, if it is a frame that lies here whole with a header of these
    /// sixteen bytes, and its payload fits: how many bytes were written there. [`pass`](Self::pass) goes past it.
    #[inline(always)]
    pub(crate) fn copy_tiny(
        spot: Spot<'_>,
        word: u64,
        header: [u64; 2],
        into: &RecvRegion,
    ) -> Option<usize> {
        const HEADER: usize = size_of::<[u64; 2]>();
        const ASKED: u64 =
            Word { kind: Kind::Inline, header: HEADER as u8, mark: Mark::NONE, payload: 0 }
                .encode();
        let (asked, len) = (word as u32, (word >> 32) as usize);
        if u64::from(asked) != ASKED || len > into.len() {
            return None;
        }
        let body = spot.body(HEADER + len)?;
        let (found, payload) = body.split_first_chunk::<HEADER>()?;
        let [first, second]: [u64; 2] = zerocopy::transmute!(*found);
        if first != header[0] || second != header[1] {
            return None;
        }
        into.write(0, payload);
        Some(len)
    }

    /// Goes past a frame of [`copy_tiny`](Self::copy_tiny) with a payload of `len` bytes.
    #[inline(always)]
    pub(crate) fn pass(&mut self, len: usize) {
        // Rounded up in two steps: a record is shorter than the ring.
        self.advance((WORD + size_of::<[u64; 2]>() + len + UNIT - 1) & !(UNIT - 1));
    }

    /// Takes the next record, whose word is `word`, if it is a frame with a header of these sixteen bytes whose payload lies elsewhere,
    /// whole, and fits into `into`, which then has it: its length in bytes. Whatever else it is, or is wrong with it, is left to
    /// [`poll`](Reader::poll). Not in the middle of a frame.
    #[inline(never)]
    pub(crate) fn take_whole(
        &mut self,
        word: u64,
        header: [u64; 2],
        into: &RecvRegion,
        shuttles: &mut Shuttles,
    ) -> Option<usize> {
        let at = self.at(self.pos);
        let word = Word::decode(word).ok()??;
        let len = word.payload as usize;
        if word.kind != Kind::Bulk
            || usize::from(word.header) != size_of_val(&header)
            || len > into.len()
            || word.fits(RING + self.geometry.ring - at, self.geometry.bulk_max()).is_err()
        {
            return None;
        }
        let source = self.source(word, shuttles).ok()?;
        let expected = self.shared.with(at + WORD, size_of_val(&header), |found| {
            found == zerocopy::IntoBytes::as_bytes(&header)
        });
        if !expected {
            return None;
        }
        let (shared, from) = self.locate(source, 0, shuttles);
        shared.with(from, len, |payload| into.write(0, payload));
        self.done(source, len, shuttles);
        self.advance(word.footprint());
        Some(len)
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
            Kind::Begin | Kind::Far => {
                let source = self.source(word, shuttles)?;
                let header = self.shared.with(at + WORD, header, Header::new);
                let landing = match sink.landing(from, header.as_bytes(), len) {
                    Landing::Direct { region, token } => Some((region, token)),
                    Landing::Buffered => None,
                };
                let way = landing.as_ref().map_or(Way::Through, |(region, _)| {
                    warmth.way(region.as_mut_ptr() as usize, region.len())
                });
                let way = if word.kind == Kind::Far { way.when_far() } else { way };
                if let Source::Bulk(place) = source {
                    self.bulk_pos = place;
                }
                let began = landing.as_ref().and_then(|_| self.experience.frame_begins(len));
                self.partial = Some(Partial { header, source, len, got: 0, landing, way, began });
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
                Way::String => region.write_string(partial.got, bytes),
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
                settle(partial.way);
                counters.frames_received.add(1);
                counters.bytes_received.add(partial.len as u64);
                sink.landed(from, region, token, Ok(()));
                if partial.began.is_some_and(|began| self.experience.frame_ends(partial.len, began))
                {
                    self.tell_experience();
                }
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
    /// [`Fencing`](super::Fencing) asks for, then with [`is_ready`](Reader::is_ready).
    pub(crate) fn park(&self) {
        self.shared.word(PARKED).store(1, Ordering::Relaxed);
    }

    /// Looks by itself again.
    pub(crate) fn unpark(&self) {
        self.shared.word(PARKED).store(0, Ordering::Relaxed);
    }

    /// Tells the writer whether reads of its memory take too long.
    pub(crate) fn tell_experience(&self) {
        self.shared.word(COMPLAINTS).store(self.experience.complaints.0, Ordering::Relaxed);
    }

    /// Touches the pages of indices and records first, so that they are allocated near this, the polling, side.
    #[cfg(not(loom))]
    pub(crate) fn touch(&self) {
        self.shared.touch(0, RING + self.geometry.ring);
    }

    /// Ends a frame that will never be whole, with `cause`.
    pub(crate) fn abandon<S: Sink>(&mut self, from: Peer, cause: &Cause, sink: &mut S) {
        if let Some(Partial { landing: Some((region, token)), way, .. }) = self.partial.take() {
            settle(way);
            sink.landed(from, region, token, Err(Fault::operation(from, cause.clone())));
        }
    }

    /// The most records that can be in the ring at once.
    pub(crate) fn capacity(&self) -> usize {
        self.geometry.ring / UNIT
    }
}
