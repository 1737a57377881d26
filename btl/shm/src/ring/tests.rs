//! The ring over plain memory. Shorter under Miri, which needs its weak-memory emulation off: it does not take
//! atomics on memory that was plain bytes a lap before (loom has that part).
//! `MIRIFLAGS=-Zmiri-disable-weak-memory-emulation cargo +nightly miri test -p ironweave-btl-shm --lib ring::`
#![allow(unsafe_code, clippy::unwrap_used)] // regions of test buffers; helpers outside `#[test]`

use super::*;
use crate::record::Malformed;
use crate::warmth::Warmth;
use crate::ways::Experience;
use ironweave_btl::memory::{OwnedBuffer, RecvRegion};
use ironweave_btl::{
    Cause, Counters, Descriptor, Fault, Landing, Peer, RmaDescriptor, Sink, Token,
};
use proptest::prelude::*;

const FROM: Peer = Peer(3);

/// Keeps what arrives. Lands payloads directly when it has a buffer.
#[derive(Default)]
struct Log {
    frames: Vec<(Vec<u8>, Vec<u8>)>,
    landed: Vec<(Vec<u8>, bool)>,
    buffer: Option<OwnedBuffer>,
}

impl Sink for Log {
    fn frame(&mut self, _: Peer, header: &[u8], payload: &[u8]) {
        self.frames.push((header.to_vec(), payload.to_vec()));
    }

    fn landing(&mut self, _: Peer, _: &[u8], len: usize) -> Landing {
        match &self.buffer {
            Some(buffer) => {
                // SAFETY: the buffer lives as long as the log and is not touched while a region exists.
                let region = unsafe { buffer.recv_region() }.part(0..len);
                Landing::Direct { region, token: Token(7) }
            }
            None => Landing::Buffered,
        }
    }

    fn landed(&mut self, _: Peer, region: RecvRegion, token: Token, outcome: Result<(), Fault>) {
        assert_eq!(token, Token(7));
        self.landed.push((region.to_vec(), outcome.is_ok()));
    }

    fn completed(&mut self, _: Descriptor, _: Result<(), Fault>) {}
    fn rma_completed(&mut self, _: RmaDescriptor, _: Result<(), Fault>) {}
    fn up(&mut self, _: Peer) {}
    fn fault(&mut self, _: Fault) {}
    fn closed(&mut self, _: Peer) {}
}

fn pair(ring: u64, bulk: u64) -> (Writer, Reader, Shared) {
    pair_with(ring, bulk, Stores::Cached)
}

fn pair_with(ring: u64, bulk: u64, stores: Stores) -> (Writer, Reader, Shared) {
    let geometry = Geometry::new(ring, bulk).unwrap();
    let shared = Shared::heap(geometry.total());
    let writer = Writer::new(shared.clone(), geometry, Fencing::Both, stores);
    (writer, Reader::new(shared.clone(), geometry, Experience::none()), shared)
}

/// One side of two rings, one each way.
struct Side {
    writer: Writer,
    reader: Reader,
    shuttles: Shuttles,
    log: Log,
}

impl Side {
    fn send(&mut self, payload: &[u8]) -> Result<(), Full> {
        let Side { writer, shuttles, .. } = self;
        let lent = shuttles.lend(payload.len());
        let shuttle = lent.map(|shuttle| (shuttle, &*shuttles));
        let sent = writer.send_bulk(
            b"header",
            payload.len(),
            shuttle,
            |_| 192,
            |at, piece| {
                piece.copy_from_slice(&payload[at..at + piece.len()]);
            },
        );
        if let (Err(_), Some(shuttle)) = (&sent, lent) {
            shuttles.keep(shuttle);
        }
        sent
    }

    fn receive(&mut self) -> Result<Option<Vec<u8>>, Malformed> {
        let Side { reader, shuttles, log, .. } = self;
        let counters = Counters::default();
        while reader.poll(FROM, log, &counters, &mut Warmth::with_cache(0), shuttles)? {}
        Ok(log.frames.pop().map(|(_, payload)| payload).or_else(|| {
            log.landed.pop().map(|(payload, ok)| {
                assert!(ok);
                payload
            })
        }))
    }

    /// How many shuttles it holds.
    fn holds(&mut self) -> usize {
        let held: Vec<Shuttle> = std::iter::from_fn(|| self.shuttles.lend(0)).collect();
        held.iter().rev().for_each(|&shuttle| self.shuttles.keep(shuttle));
        held.len()
    }
}

/// Two sides; the second one takes payloads directly.
fn sides(ring: u64, bulk: u64) -> [Side; 2] {
    sides_with(ring, bulk, Stores::Cached)
}

fn sides_with(ring: u64, bulk: u64, stores: Stores) -> [Side; 2] {
    let [(there, here, _), (back, home, _)] = [(); 2].map(|()| pair_with(ring, bulk, stores));
    let side = |writer: Writer, reader: Reader, log| {
        let shuttles = Shuttles::new(writer.dock(), reader.dock());
        Side { writer, reader, shuttles, log }
    };
    let buffer = Some(OwnedBuffer::zeroed(bulk as usize));
    [side(there, home, Log::default()), side(back, here, Log { buffer, ..Log::default() })]
}

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (seed * 31 + i * 7) as u8).collect()
}

fn send(writer: &mut Writer, header: &[u8], payload: &[u8]) -> Result<(), Full> {
    if header.len() + payload.len() <= writer.geometry.inline_max() {
        writer.send_inline(header, payload.len(), |shared, at| shared.write(at, payload))
    } else {
        let pieces = |offset| if offset == 0 { 100 } else { 1000 };
        writer.send_bulk(header, payload.len(), None, pieces, |at, piece| {
            piece.copy_from_slice(&payload[at..at + piece.len()]);
        })
    }
}

fn poll(reader: &mut Reader, log: &mut Log) -> Result<bool, Malformed> {
    // Every landing counts as cold, and so goes past the cache.
    let shuttles = &mut Shuttles::new(reader.dock(), reader.dock());
    reader.poll(FROM, log, &Counters::default(), &mut Warmth::with_cache(0), shuttles)
}

#[test]
fn frames_of_every_shape_arrive_in_order_over_many_laps() {
    let (mut writer, mut reader, _) = pair(2048, 16384);
    let mut log = Log::default();
    for round in 0..if cfg!(miri) { 30 } else { 200 } {
        let len = [0, 1, 7, 8, 24, 25, 200, 480, 600, 4096][round % 10];
        let header = bytes(round, [0, 8, 16, 33, HEADER_MAX][round % 5]);
        let payload = bytes(round + 1, len);
        send(&mut writer, &header, &payload).unwrap();
        while poll(&mut reader, &mut log).unwrap() {}
        assert_eq!(log.frames.pop().unwrap(), (header, payload), "round {round}");
    }
    assert!(log.frames.is_empty());
}

/// Short messages by the short cut, now and then by the general way, to a reader that takes some in one way and some in the other,
/// over many laps.
#[test]
fn short_cuts_and_the_general_way_mix() {
    let (mut writer, mut reader, _) = pair(2048, 4096);
    let mut log = Log::default();
    let (mut sent, mut taken) = (0, 0);
    let mut waiting = std::collections::VecDeque::new();
    for round in 0..if cfg!(miri) { 200 } else { 5000 } {
        let len = (round * 7) % (TINY_MAX + 2);
        let (header, payload) = ([round as u64, !(round as u64)], bytes(round, len));
        if writer.send_tiny(header, &payload) {
            assert!(len <= TINY_MAX);
            sent += 1;
        } else {
            let header = header.map(u64::to_ne_bytes);
            send(&mut writer, header.as_flattened(), &payload).unwrap();
        }
        waiting.push_back((header, payload));
        // Up to a quarter of the ring waits.
        if round % 5 < 3 {
            continue;
        }
        while let Some((header, payload)) = waiting.pop_front() {
            let spot = reader.next().unwrap();
            let word = spot.word().load(Ordering::Acquire);
            let into = OwnedBuffer::zeroed(TINY_MAX + 2);
            // SAFETY: `into` outlives the regions.
            let (region, narrow) = unsafe {
                (into.recv_region(), into.recv_region().part(0..payload.len().saturating_sub(1)))
            };
            // Neither another message nor one that does not fit is taken.
            assert_eq!(Reader::copy_tiny(spot, word, [header[1], header[0]], &region), None);
            let fits = Reader::copy_tiny(spot, word, header, &narrow).is_some();
            assert!(!fits || payload.is_empty());
            if round % 2 == 0 && Reader::copy_tiny(spot, word, header, &region).is_some() {
                assert_eq!(into.as_slice()[..payload.len()], payload);
                reader.pass(payload.len());
                taken += 1;
            } else {
                while log.frames.is_empty() {
                    assert!(poll(&mut reader, &mut log).unwrap());
                }
                let header = header.map(u64::to_ne_bytes).as_flattened().to_vec();
                assert_eq!(log.frames.pop().unwrap(), (header, payload), "round {round}");
            }
        }
        assert!(!poll(&mut reader, &mut log).unwrap());
    }
    assert!(sent > 100 && taken > 20, "{sent} sent and {taken} taken by the short cuts");
}

/// A word that promises more than the ring has left, or has a header of another length, is nothing for the short cut.
#[test]
fn short_cuts_believe_nothing() {
    let (_, mut reader, shared) = pair(2048, 4096);
    let into = OwnedBuffer::zeroed(64 << 10);
    // SAFETY: `into` outlives the region.
    let region = unsafe { into.recv_region() };
    let at_the_end = (2048 / UNIT) - 1;
    for units in [0, at_the_end] {
        (0..units).for_each(|_| reader.pass(0));
        let spot = reader.next().unwrap();
        for word in [0x1001 | 2048 << 32, 0x1001 | 0xffff_ffff << 32, 0x1002, 0x0801, 0x11001, 5] {
            assert_eq!(Reader::copy_tiny(spot, word, [0; 2], &region), None, "{word:#x}");
        }
        let room = 2048 - units * UNIT - WORD - 16;
        let fits = 0x1001 | (room as u64) << 32;
        assert_eq!(Reader::copy_tiny(spot, fits, [0; 2], &region), Some(room));
        let beyond = 0x1001 | (room as u64 + 1) << 32;
        assert_eq!(Reader::copy_tiny(spot, beyond, [0; 2], &region), None);
    }
    drop(shared);
}

#[test]
fn a_full_ring_refuses_and_recovers() {
    for len in if cfg!(miri) { vec![100] } else { vec![8, 100, 400] } {
        let (mut writer, mut reader, _) = pair(2048, 4096);
        let mut log = Log::default();
        let (mut sent, mut refused) = (0, 0);
        while sent < 100 {
            match send(&mut writer, &[1; 16], &bytes(sent, len)) {
                Ok(()) => sent += 1,
                Err(Full::NoRoom) => {
                    refused += 1;
                    assert!(poll(&mut reader, &mut log).unwrap(), "full, yet nothing to read");
                    while poll(&mut reader, &mut log).unwrap() {}
                }
                Err(Full::Broken) => panic!("broken"),
            }
        }
        assert!(refused > 0);
        while poll(&mut reader, &mut log).unwrap() {}
        let expected: Vec<_> = (0..100).map(|i| (vec![1; 16], bytes(i, len))).collect();
        assert!(log.frames == expected, "{len} bytes");
    }
}

#[test]
fn whatever_was_sent_an_empty_ring_takes_the_longest_frame() {
    let before = [0, 1, 100, 500, 900, 1024];
    for before in if cfg!(miri) { &before[4..] } else { &before[..] } {
        let before = *before;
        let (mut writer, mut reader, _) = pair(2048, 4096);
        let mut log = Log::default();
        let longest = [writer.geometry.inline_max() - 16, writer.geometry.bulk_max()];
        for round in 0..if cfg!(miri) { 6 } else { 40 } {
            send(&mut writer, &[2; 16], &bytes(round, before)).unwrap();
            while poll(&mut reader, &mut log).unwrap() {}
            send(&mut writer, &[3; 16], &bytes(round, longest[round % 2])).unwrap();
            while poll(&mut reader, &mut log).unwrap() {}
        }
        assert_eq!(log.frames.len(), if cfg!(miri) { 12 } else { 80 });
    }
}

#[test]
fn pieces_land_directly_and_a_frame_cut_short_is_given_back() {
    let (mut writer, mut reader, _) = pair(2048, 16384);
    let mut log = Log { buffer: Some(OwnedBuffer::zeroed(4096)), ..Log::default() };
    let payload = bytes(5, 3000);
    send(&mut writer, b"header", &payload).unwrap();
    while poll(&mut reader, &mut log).unwrap() {}
    assert_eq!(log.landed, [(payload.clone(), true)]);

    send(&mut writer, b"header", &payload).unwrap();
    for _ in 0..3 {
        assert!(poll(&mut reader, &mut log).unwrap());
    }
    reader.abandon(FROM, &Cause::ProcessGone, &mut log);
    assert_eq!(log.landed.len(), 2);
    let (got, ok) = &log.landed[1];
    assert!(!ok && got[..1100] == payload[..1100]);
    reader.abandon(FROM, &Cause::ProcessGone, &mut log);
    assert_eq!(log.landed.len(), 2, "once");
}

#[test]
fn two_threads() {
    let (mut writer, mut reader, _) = pair(1024, 8192);
    let count = if cfg!(miri) { 30 } else { 2_000 };
    let sender = std::thread::spawn(move || {
        for i in 0..count {
            let len = i * 13 % 1500;
            while send(&mut writer, &(i as u64).to_le_bytes(), &bytes(i, len)).is_err() {
                std::thread::yield_now();
            }
        }
    });
    let mut log = Log::default();
    for i in 0..count {
        while log.frames.is_empty() {
            if !poll(&mut reader, &mut log).unwrap() {
                std::thread::yield_now();
            }
        }
        let expected = ((i as u64).to_le_bytes().to_vec(), bytes(i, i * 13 % 1500));
        assert!(log.frames.pop() == Some(expected), "frame {i}");
    }
    sender.join().unwrap();
}

#[test]
fn a_readers_index_that_makes_no_sense_breaks_the_ring() {
    for index in [1 << 20, u64::MAX, 31] {
        let (mut writer, _, shared) = pair(512, 4096);
        shared.word(CONSUMED).store(index, Ordering::Relaxed);
        let mut sent = 0;
        let end = loop {
            match send(&mut writer, &[0; 16], &[0; 8]) {
                Ok(()) => sent += 1,
                Err(full) => break full,
            }
        };
        assert!(sent <= 16);
        assert_eq!(end, if index == 31 { Full::NoRoom } else { Full::Broken });
    }
}

#[test]
fn both_sides_hand_lines_over_as_the_reader_says() {
    let (writer, reader, shared) = pair(512, 4096);
    assert_eq!(writer.manner(), Manner::PLAIN);
    reader.say(Manner::said(2));
    assert!(writer.manner().moves());
    shared.word(MANNER).store(u64::MAX, Ordering::Relaxed);
    assert_eq!(writer.manner(), Manner::said(u64::MAX));
    assert_eq!(writer.complaints().0, 0, "a word of its own");
}

/// Tiny, inline, in shuttles and in the bulk area, whole and in pieces, over many laps.
#[test]
fn frames_that_are_moved_towards_the_reader_arrive_like_others() {
    let mut sides = sides_with(2048, 1 << 20, Stores::Cached);
    for side in &mut sides {
        side.writer.demotes = true; // no operation where it cannot be
    }
    let [mut a, mut b] = sides;
    let (header, mut random, mut tiny) = ([5, !0], 7_usize, 0);
    a.writer.await_next(true);
    assert!(!a.writer.send_tiny(header, &[0; TINY_MAX + 1]) && a.writer.awaited, "still to come");
    for round in 0..if cfg!(miri) { 40 } else { 4000 } {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let most = [TINY_MAX, 400, 3000, 20_000][round % 4];
        let payload = bytes(round, (random >> 33) % most + 1);
        let Side { writer, shuttles, .. } = &mut a;
        writer.await_next(round % 5 != 0);
        let header_bytes = header.map(u64::to_ne_bytes);
        if round % 4 == 0 && writer.send_tiny(header, &payload) {
            tiny += 1;
        } else if round % 4 < 2 {
            let fill = |shared: &Shared, at| shared.write(at, &payload);
            writer.send_inline(header_bytes.as_flattened(), payload.len(), fill).unwrap();
        } else {
            let lent = if round % 3 == 0 { shuttles.lend(payload.len()) } else { None };
            let whole = payload.len() <= 8192;
            let sent = writer.send_bulk(
                header_bytes.as_flattened(),
                payload.len(),
                lent.map(|shuttle| (shuttle, &*shuttles)),
                |_| if whole { payload.len() } else { 4096 },
                |at, piece| piece.copy_from_slice(&payload[at..at + piece.len()]),
            );
            sent.unwrap();
        }
        assert!(!a.writer.awaited, "the next one only");
        assert_eq!(b.receive(), Ok(Some(payload)), "round {round}");
        std::mem::swap(&mut a, &mut b);
    }
    assert!(tiny > 0, "no frame was tiny");
}

#[test]
fn payloads_go_to_and_fro_in_shuttles_however_far_the_reader_is() {
    for stores in [Stores::Cached, Stores::Streaming] {
        let mut sides = sides_with(4096, 16384, stores);
        for round in 0..if cfg!(miri) { 8 } else { 200 } {
            let [from, to] = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            let payload = bytes(round, [1, 64, 1000, 4096, 300][round % 5]);
            sides[from].send(&payload).unwrap();
            assert_eq!(sides[from].holds(), OWN - 1 + from, "round {round}");
            assert_eq!(sides[to].receive(), Ok(Some(payload)), "round {round}");
            assert_eq!(sides[to].holds(), OWN + to, "round {round}");
        }
        // Nothing went to the bulk areas.
        assert!(sides.iter().all(|side| side.writer.bulk_pos == 0));
    }
}

/// Payloads that lie elsewhere, whole or in pieces, in shuttles and in the bulk area, to a reader that tries the short cut first.
#[test]
fn whole_payloads_are_taken_by_the_short_cut() {
    let [mut a, mut b] = sides(2048, 16384);
    let mut taken = [0; 2];
    for round in 0..if cfg!(miri) { 40 } else { 400 } {
        let payload = bytes(round, [1, 64, 1000, 4096, 300][round % 5]);
        let (header, whole) = ([round as u64, !0], round % 7 != 0 || payload.len() == 1);
        let lent = if round % 2 == 0 { a.shuttles.lend(payload.len()) } else { None };
        let sent = a.writer.send_bulk(
            header.map(u64::to_ne_bytes).as_flattened(),
            payload.len(),
            lent.map(|shuttle| (shuttle, &a.shuttles)),
            |_| if whole { payload.len() } else { payload.len() / 2 + 1 },
            |at, piece| piece.copy_from_slice(&payload[at..at + piece.len()]),
        );
        sent.unwrap();
        // At the end of a lap.
        let mut word = b.reader.next().unwrap().word().load(Ordering::Acquire);
        if word == Word::WRAP {
            let counters = Counters::default();
            let Side { reader, shuttles, log, .. } = &mut b;
            reader.poll(FROM, log, &counters, &mut Warmth::with_cache(0), shuttles).unwrap();
            word = reader.next().unwrap().word().load(Ordering::Acquire);
        }
        let into = OwnedBuffer::zeroed(4096);
        // SAFETY: `into` outlives the regions.
        let (region, narrow) =
            unsafe { (into.recv_region(), into.recv_region().part(0..payload.len() - 1)) };
        let mut take = |header, region| b.reader.take_whole(word, header, region, &mut b.shuttles);
        // Neither another message nor one that does not fit is taken, nor one of which there is only a piece.
        assert_eq!(take([header[1], header[0]], &region), None);
        assert_eq!(take(header, &narrow), None);
        match if round % 3 == 0 { None } else { take(header, &region) } {
            Some(len) => {
                assert!(whole && len == payload.len(), "round {round}");
                assert_eq!(into.as_slice()[..len], payload, "round {round}");
                taken[usize::from(lent.is_some())] += 1;
            }
            None => {
                assert!(!whole || round % 3 == 0, "round {round}");
                assert_eq!(b.receive(), Ok(Some(payload)), "round {round}");
            }
        }
        // The shuttle goes home.
        if lent.is_some() {
            b.send(b"answer").unwrap();
            assert_eq!(a.receive(), Ok(Some(b"answer".to_vec())));
        }
        assert_eq!((a.holds(), b.holds()), (OWN, OWN), "round {round}");
        assert!(!b.reader.is_ready());
    }
    assert!(taken.iter().all(|&taken| taken > 5), "{taken:?} by the short cut");
}

#[test]
fn a_stream_one_way_uses_up_the_shuttles_and_then_the_bulk_area() {
    let [mut a, mut b] = sides(4096, 16384);
    for round in 0..40 {
        let payload = bytes(round, 1500);
        a.send(&payload).unwrap();
        assert_eq!(b.receive(), Ok(Some(payload)), "round {round}");
        assert_eq!(a.holds(), OWN.saturating_sub(round + 1));
        assert_eq!(a.writer.bulk_pos > 0, round >= OWN);
    }
    assert_eq!(b.holds(), 2 * OWN);
    // What is too long for a shuttle leaves them where they are.
    let payload = bytes(7, a.writer.geometry.bulk_max());
    assert!(payload.len() <= b.shuttles.dock(Shuttle::first()).size);
    b.send(&payload).unwrap();
    assert_eq!((b.holds(), a.receive(), a.holds()), (2 * OWN - 1, Ok(Some(payload)), 1));
}

#[test]
fn a_refused_frame_leaves_its_shuttle() {
    let [mut a, mut b] = sides(512, 16384);
    let mut sent = 0;
    while a.send(&bytes(sent, 64)) == Ok(()) {
        sent += 1;
    }
    assert!(sent > OWN, "the ring is full, not the shuttles empty");
    let mut got = 0;
    while let Ok(true) = b.reader.poll(
        FROM,
        &mut b.log,
        &Counters::default(),
        &mut Warmth::with_cache(0),
        &mut b.shuttles,
    ) {
        got += 1;
    }
    assert!(got >= sent);
    assert_eq!((a.holds(), b.holds()), (0, 2 * OWN));
    b.send(&[1; 64]).unwrap();
    assert_eq!(a.receive(), Ok(Some(vec![1; 64])));
    // Full once more: now with a shuttle at hand.
    while a.writer.send_inline(&[0; 16], 8, |_, _| {}).is_ok() {}
    assert_eq!((a.send(&[2; 64]), a.holds()), (Err(Full::NoRoom), 1));
}

#[test]
fn a_shuttle_that_its_writer_does_not_hold_is_malformed() {
    let word = |mark, payload| Word { kind: Kind::Bulk, header: 0, mark: Mark::new(mark), payload };
    let size = Geometry::new(4096, 16384).unwrap().shuttle() as u32;
    let own = OWN as u8;
    let cases = [
        (word(1, 10), true),
        (word(own, 10), true),
        // Ours, which never left.
        (word(own + 1, 10), false),
        (word(2 * own, 10), false),
        // None at all.
        (word(2 * own + 1, 10), false),
        (word(Mark::MAX, 10), false),
        (word(1, size), true),
        (word(1, size + 1), false),
    ];
    for (word, fine) in cases {
        let [_, mut b] = sides(4096, 16384);
        b.reader.shared.word(RING).store(word.encode(), Ordering::Relaxed);
        assert_eq!(b.receive().is_ok(), fine, "{word:?}");
        // Twice the same one: it is the reader's now.
        b.reader.shared.word(RING + UNIT).store(word.encode(), Ordering::Relaxed);
        assert!(b.receive().is_err(), "{word:?}");
    }
}

#[test]
fn an_unpublished_record_is_no_record() {
    // The writer is killed after it has written all but the word.
    let (writer, mut reader, shared) = pair(512, 4096);
    shared.write(writer.at(0) + WORD, &[0xff; 40]);
    assert_eq!(poll(&mut reader, &mut Log::default()), Ok(false));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A hostile writer: any bytes, with words that are nearly right. The reader ends or reports, in bounds.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn any_ring_is_read_within_its_bounds(
        fill: Vec<u8>,
        words in proptest::collection::vec((0usize..64, 0u8..7, 0u8..70, 0u32..5000, 0u8..8, any::<bool>()), 0..64),
        direct: bool,
    ) {
        let (_, mut reader, shared) = pair(2048, 8192);
        for (i, chunk) in fill.chunks(8).take(256).enumerate() {
            shared.write(RING + 8 * i, chunk);
        }
        for (unit, kind, header, payload, mark, wild) in words {
            let word = u64::from(kind) | u64::from(header) << 8 | u64::from(payload) << 32
                | u64::from(mark.saturating_sub(3)) << 16
                | if wild { 1 << 30 } else { 0 };
            shared.word(RING + UNIT * unit).store(word, Ordering::Relaxed);
        }
        let mut log =
            Log { buffer: direct.then(|| OwnedBuffer::zeroed(8192)), ..Log::default() };
        for _ in 0..1000 {
            match poll(&mut reader, &mut log) {
                Ok(true) => {}
                Ok(false) | Err(_) => break,
            }
        }
        reader.abandon(FROM, &Cause::Malformed("test"), &mut log);
        for (header, payload) in &log.frames {
            prop_assert!(header.len() <= HEADER_MAX && payload.len() <= 2048);
        }
    }
}
