//! Loom explores the ring: `RUSTFLAGS="--cfg loom" cargo test -p ironweave-btl-shm --release --lib loom`.
//!
//! Bytes are relaxed atomics here (`shared.rs`), so a missing Release, Acquire or clear-next shows as a frame
//! with wrong bytes or as one that was never sent.

#![allow(unsafe_code)] // regions of test buffers

use super::*;
use crate::warmth::Warmth;
use crate::ways::Experience;
use ironweave_btl::memory::OwnedBuffer;
use ironweave_btl::{Counters, Descriptor, Fault, Peer, RmaDescriptor, Sink};
use loom::thread;

struct Expect {
    next: u64,
    sizes: &'static [usize],
}

impl Sink for Expect {
    fn frame(&mut self, _: Peer, header: &[u8], payload: &[u8]) {
        assert_eq!(header, (self.next + 1).to_le_bytes());
        assert_eq!(payload, vec![self.next as u8 + 1; self.sizes[self.next as usize]]);
        self.next += 1;
    }
    fn completed(&mut self, _: Descriptor, _: Result<(), Fault>) {}
    fn rma_completed(&mut self, _: RmaDescriptor, _: Result<(), Fault>) {}
    fn up(&mut self, _: Peer) {}
    fn fault(&mut self, _: Fault) {}
    fn closed(&mut self, _: Peer) {}
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}

/// Sends and receives frames of `sizes` through a ring that is shorter than all of them.
fn stream(ring: u64, bulk: u64, sizes: &'static [usize]) {
    let geometry = Geometry::new(ring, bulk).unwrap();
    let shared = Shared::heap(geometry.total());
    let mut writer = Writer::new(shared.clone(), geometry, Fencing::Both, Stores::Cached);
    let mut reader = Reader::new(shared, geometry, Experience::none());
    let mut shuttles = Shuttles::new(reader.dock(), reader.dock());
    let sender = thread::spawn(move || {
        for (i, &len) in sizes.iter().enumerate() {
            let header = (i as u64 + 1).to_le_bytes();
            let payload = vec![i as u8 + 1; len];
            loop {
                let sent = if 8 + len <= geometry.inline_max() {
                    writer.send_inline(&header, len, |shared, at| shared.write(at, &payload))
                } else {
                    writer.send_bulk(&header, len, None, |_| 32, |_, piece| piece.fill(i as u8 + 1))
                };
                match sent {
                    Ok(()) => break,
                    Err(Full::NoRoom) => thread::yield_now(),
                    Err(Full::Broken) => panic!("broken"),
                }
            }
        }
    });
    let mut sink = Expect { next: 0, sizes };
    let (counters, mut warmth) = (Counters::default(), Warmth::with_cache(0));
    while sink.next < sizes.len() as u64 {
        if !reader.poll(Peer(0), &mut sink, &counters, &mut warmth, &mut shuttles).unwrap() {
            thread::yield_now();
        }
    }
    sender.join().unwrap();
    assert!(!reader.poll(Peer(0), &mut sink, &counters, &mut warmth, &mut shuttles).unwrap());
}

#[test]
fn loom_one_unit_frames_over_two_laps() {
    check(3, || stream(128, 0, &[8, 8, 8, 8, 8, 8, 8]));
}

/// Short messages by the short cuts, and by the general way where those do not lead: at the end of a lap, or when room is short.
fn short_cuts(ring: u64, sizes: &'static [usize]) {
    let geometry = Geometry::new(ring, 0).unwrap();
    let shared = Shared::heap(geometry.total());
    let mut writer = Writer::new(shared.clone(), geometry, Fencing::Both, Stores::Cached);
    let mut reader = Reader::new(shared, geometry, Experience::none());
    let header = |i: usize| [i as u64 + 1, !(i as u64)];
    let sender = thread::spawn(move || {
        let mut cuts = 0;
        for (i, &len) in sizes.iter().enumerate() {
            let payload = vec![i as u8 + 1; len];
            let bytes = header(i).map(u64::to_ne_bytes);
            if writer.send_tiny(header(i), &payload) {
                cuts += 1;
                continue;
            }
            let write = |shared: &Shared, at| shared.write(at, &payload);
            while writer.send_inline(bytes.as_flattened(), len, write).is_err() {
                thread::yield_now();
            }
        }
        cuts
    });
    for (i, &len) in sizes.iter().enumerate() {
        let into = OwnedBuffer::zeroed(len);
        // SAFETY: `into` outlives the region.
        let region = unsafe { into.recv_region() };
        loop {
            let spot = reader.next().unwrap();
            match spot.word().load(Ordering::Acquire) {
                0 => thread::yield_now(),
                Word::WRAP => {
                    let (counters, mut warmth) = (Counters::default(), Warmth::with_cache(0));
                    let mut shuttles = Shuttles::new(reader.dock(), reader.dock());
                    let mut sink = Expect { next: 0, sizes: &[] };
                    reader.poll(Peer(0), &mut sink, &counters, &mut warmth, &mut shuttles).unwrap();
                }
                word => {
                    assert_eq!(Reader::copy_tiny(spot, word, header(i), &region), Some(len));
                    reader.pass(len);
                    break;
                }
            }
        }
        assert_eq!(into.as_slice(), vec![i as u8 + 1; len]);
    }
    assert!(sender.join().unwrap() > 0, "no message went the short way");
}

#[test]
fn loom_short_cuts() {
    check(3, || short_cuts(256, &[8, 8, 8, 8, 8, 8, 8, 8, 8]));
    check(2, || short_cuts(256, &[8, 24, 8, 24, 8, 24]));
}

#[test]
fn loom_frames_that_wrap() {
    // Eight units; the fourth frame skips the last unit.
    check(2, || stream(256, 0, &[40, 40, 8, 40, 8]));
}

#[test]
fn loom_bulk_frames_in_pieces() {
    check(2, || stream(512, 256, &[16, 64, 64, 64, 64]));
}

/// Sends a frame of 64 bytes, all `round`, in a shuttle that is held.
fn send_in_shuttle(writer: &mut Writer, shuttles: &mut Shuttles, round: u64) {
    let lent = shuttles.lend(64).expect("one is held");
    let header = round.to_le_bytes();
    let fill = |_, piece: &mut [u8]| piece.fill(round as u8);
    writer.send_bulk(&header, 64, Some((lent, shuttles)), |_| 32, fill).unwrap();
}

/// The same memory to and fro: what the one has read the other may write.
#[test]
fn loom_shuttles_to_and_fro() {
    check(2, || {
        let geometry = Geometry::new(1024, 256).unwrap();
        let [there, back] = [(); 2].map(|()| Shared::heap(geometry.total()));
        let side = |out: &Shared, into: &Shared| {
            let writer = Writer::new(out.clone(), geometry, Fencing::Both, Stores::Cached);
            let reader = Reader::new(into.clone(), geometry, Experience::none());
            let shuttles = Shuttles::new(writer.dock(), reader.dock());
            (writer, reader, shuttles)
        };
        let receive = |reader: &mut Reader, shuttles: &mut Shuttles, round: u64| {
            let mut sink = Expect { next: round - 1, sizes: &[64; 3] };
            let (counters, mut warmth) = (Counters::default(), Warmth::with_cache(0));
            while sink.next < round {
                if !reader.poll(Peer(0), &mut sink, &counters, &mut warmth, shuttles).unwrap() {
                    thread::yield_now();
                }
            }
        };
        let (mut writer, mut reader, mut shuttles) = side(&back, &there);
        let answering = thread::spawn(move || {
            receive(&mut reader, &mut shuttles, 1);
            send_in_shuttle(&mut writer, &mut shuttles, 2);
            receive(&mut reader, &mut shuttles, 3);
        });
        let (mut writer, mut reader, mut shuttles) = side(&there, &back);
        send_in_shuttle(&mut writer, &mut shuttles, 1);
        receive(&mut reader, &mut shuttles, 2);
        send_in_shuttle(&mut writer, &mut shuttles, 3);
        answering.join().unwrap();
    });
}

/// The writer that publishes and the reader that parks cannot miss each other.
#[test]
fn loom_parking() {
    check(4, || {
        let geometry = Geometry::new(128, 0).unwrap();
        let shared = Shared::heap(geometry.total());
        let mut writer = Writer::new(shared.clone(), geometry, Fencing::Both, Stores::Cached);
        let reader = Reader::new(shared, geometry, Experience::none());
        let sender = thread::spawn(move || {
            writer.send_inline(&[1; 8], 0, |_, _| {}).unwrap();
            writer.reader_parked()
        });
        reader.park();
        fence(Ordering::SeqCst);
        let seen = reader.is_ready();
        let told = sender.join().unwrap();
        assert!(seen || told, "a record that nobody looks at");
    });
}
