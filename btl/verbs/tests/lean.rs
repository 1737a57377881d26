//! Payloads that are sent alone, on devices: with headers of every kind between them, beside frames by ring, and ended in the middle.
//!
//! Both ends live in this process, on the devices of two hosts; runs in the virtual machine (`ci/hwtests`). Over iWARP no payload goes alone,
//! and all the same must come.

mod support;

use ironweave_btl::{Btl, Descriptor, Fault, Peer, Refused, Residue, RmaDescriptor, Sink};
use ironweave_btl_verbs::{Verbs, VerbsConfig};
use ironweave_hwtests::fabric::Fabric;
use std::time::{Duration, Instant};
use support::given;

/// No test waits longer for anything.
const WATCHDOG: Duration = Duration::from_secs(40);

type Frame = (Vec<u8>, Vec<u8>);

#[derive(Default)]
struct Seen {
    frames: Vec<Frame>,
    up: u32,
    closed: u32,
}

impl Sink for Seen {
    fn frame(&mut self, _: Peer, header: &[u8], payload: &[u8]) {
        self.frames.push((header.to_vec(), payload.to_vec()));
    }
    fn completed(&mut self, _: Descriptor, _: Result<(), Fault>) {}
    fn rma_completed(&mut self, _: RmaDescriptor, _: Result<(), Fault>) {}
    fn up(&mut self, _: Peer) {
        self.up += 1;
    }
    fn fault(&mut self, _: Fault) {}
    fn closed(&mut self, _: Peer) {
        self.closed += 1;
    }
}

struct Ends([(Verbs, Seen); 2]);

impl Ends {
    fn new(fabric: &Fabric, test: &str) -> Ends {
        let end = |rank: u32| {
            let config = VerbsConfig {
                me: Peer(rank),
                secret: [7; 32],
                job: format!("{test}-{}", std::process::id()),
                include: vec![fabric.device(rank as usize, 0).to_owned()],
                ..VerbsConfig::default()
            };
            (Verbs::open_all(config).expect("the device opens").remove(0), Seen::default())
        };
        let mut ends = Ends([end(0), end(1)]);
        ends.meet();
        ends
    }

    fn meet(&mut self) {
        let before = self.0.each_ref().map(|(_, seen)| seen.up);
        let address = self.0[1].0.address();
        self.0[0].0.connect(Peer(1), &address).expect("the address is good");
        self.until("both to be up", |ends| (0..2).all(|at| ends[at].1.up > before[at]));
    }

    fn turn(&mut self) {
        for (btl, seen) in &mut self.0 {
            btl.progress(seen);
        }
    }

    fn until(&mut self, what: &str, done: impl Fn(&[(Verbs, Seen); 2]) -> bool) {
        let end = Instant::now() + WATCHDOG;
        while !done(&self.0) {
            self.turn();
            std::thread::yield_now();
            assert!(Instant::now() < end, "waited for {what}\n{}\n{}", self.dump(0), self.dump(1));
        }
    }

    fn dump(&self, end: usize) -> String {
        let mut dump = String::new();
        let _ = self.0[end].0.dump(&mut dump);
        dump
    }

    /// How many payloads went out, and came, alone.
    fn alone(&self, end: usize) -> [u64; 2] {
        let dump = self.dump(end);
        let words: Vec<&str> = dump.split_whitespace().collect();
        let at = words.iter().position(|&word| word == "alone:").expect("it is told");
        [1, 3].map(|on| words[at + on].parse().expect("a number"))
    }

    fn send(&mut self, from: usize, (header, payload): &Frame) -> bool {
        let to = Peer(1 - from as u32);
        let btl = &mut self.0[from].0;
        let sent = if payload.len() + header.len() <= btl.caps().max_short {
            btl.send_short(to, header, payload)
        } else {
            btl.send_bcopy(to, header, payload.len(), |at, into| {
                into.copy_from_slice(&payload[at..at + into.len()]);
            })
        };
        match sent {
            Ok(()) => true,
            Err(Refused::NoRoom) => false,
            Err(refused) => panic!("{refused:?}\n{}", self.dump(from)),
        }
    }

    /// Sends these, each end its own, and has all of them come, in order and as they were.
    fn all_come(&mut self, frames: [&[Frame]; 2]) {
        let before = self.0.each_ref().map(|(_, seen)| seen.frames.len());
        let mut sent = [0; 2];
        let end = Instant::now() + WATCHDOG;
        while (0..2).any(|at| self.0[1 - at].1.frames.len() < before[1 - at] + frames[at].len()) {
            for (from, frames) in frames.iter().enumerate() {
                while sent[from] < frames.len() && self.send(from, &frames[sent[from]]) {
                    sent[from] += 1;
                }
            }
            self.turn();
            std::thread::yield_now();
            assert!(Instant::now() < end, "{sent:?}\n{}\n{}", self.dump(0), self.dump(1));
        }
        for (from, frames) in frames.iter().enumerate() {
            let came = &self.0[1 - from].1.frames[before[1 - from]..];
            for (number, (is, was)) in came.iter().zip(*frames).enumerate() {
                assert!(is == was, "frame {number} of {from}: header {:?}, was {:?}", is.0, was.0);
            }
            assert_eq!(came.len(), frames.len());
        }
    }
}

/// A header whose second half counts.
fn counting(first: u64, count: u64) -> Vec<u8> {
    [first.to_le_bytes(), count.to_le_bytes()].concat()
}

fn payload(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251 + seed * 7) as u8).collect()
}

/// Messages of which each header is one more than the one before, both ways at once.
#[test]
fn what_fills_its_packets_goes_alone() {
    let test = "what_fills_its_packets_goes_alone";
    let Some((fabric, _alone)) = given(test) else { return };
    let mut ends = Ends::new(&fabric, test);
    let frames = [0, 1].map(|from: usize| -> Vec<Frame> {
        (0..300)
            .map(|n| (counting(from as u64, n << 32), payload(n as usize + from, 4096)))
            .collect()
    });
    ends.all_come([&frames[0], &frames[1]]);
    let [first, second] = [ends.alone(0), ends.alone(1)];
    if fabric.is_iwarp() {
        assert_eq!([first, second], [[0; 2]; 2]);
        return;
    }
    assert_eq!([first[0], first[1]], [second[1], second[0]], "what goes alone comes alone");
    assert!(first[0] > 200 && second[0] > 200, "{first:?} {second:?}");
}

/// Headers that go on as before, and that do not, of every length, lengths that save a packet and that do not, short frames by ring and
/// not: all come as they were sent. The same after the connection was ended and made anew.
#[test]
fn headers_of_every_kind_come_as_they_were() {
    let test = "headers_of_every_kind_come_as_they_were";
    let Some((fabric, _alone)) = given(test) else { return };
    let mut ends = Ends::new(&fabric, test);
    for round in 0..4_usize {
        let frames = [0, 1].map(|from: usize| -> Vec<Frame> {
            let mut state = (round * 2 + from) as u64 + 1;
            let mut draw = |below: u64| {
                // Knuth's numbers, MMIX.
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            let (mut first, mut count, mut step) = (0, 0_u64, 1);
            let mut frames = Vec::new();
            for number in 0..400 {
                if draw(12) == 0 {
                    (first, step) = (draw(3), draw(1 << 20).wrapping_sub(1 << 19));
                }
                count = count.wrapping_add(step);
                let header = match draw(10) {
                    0 => vec![number as u8; 1 + draw(15) as usize],
                    _ => counting(first, count),
                };
                let lengths = [1, 8, 100, 600, 2048, 4064, 4065, 4096, 4096, 4096, 4097, 8192];
                frames.push((header, payload(number, lengths[draw(12) as usize])));
            }
            frames
        });
        ends.all_come([&frames[0], &frames[1]]);
        if !fabric.is_iwarp() {
            let [first, second] = [ends.alone(0), ends.alone(1)];
            assert_eq!([first[0], first[1]], [second[1], second[0]]);
            assert!(first[0] > 10 && second[0] > 10, "{first:?} {second:?}");
        }
        let before = ends.0.each_ref().map(|(_, seen)| seen.closed);
        let (btl, seen) = &mut ends.0[round % 2];
        btl.invalidate(Peer(1 - (round % 2) as u32), Residue::Deliver, seen);
        ends.until("both to be closed", |ends| (0..2).all(|at| ends[at].1.closed > before[at]));
        ends.meet();
    }
}

/// The connection ends while payloads are under way: what came is the beginning of what was sent, and the next connection starts from nothing.
#[test]
fn an_end_in_the_middle_of_payloads_alone() {
    let test = "an_end_in_the_middle_of_payloads_alone";
    let Some((fabric, _alone)) = given(test) else { return };
    let mut ends = Ends::new(&fabric, test);
    for round in 0..6_usize {
        let frames: Vec<Frame> = (0..200)
            .map(|n| (counting(round as u64, n << 32), payload(n as usize + round, 4096)))
            .collect();
        let before = ends.0.each_ref().map(|(_, seen)| (seen.frames.len(), seen.closed));
        let (mut sent, stop) = (0, 40 + 20 * round);
        let end = Instant::now() + WATCHDOG;
        while sent < stop {
            sent += usize::from(ends.send(0, &frames[sent]));
            ends.turn();
            assert!(Instant::now() < end, "{sent}\n{}\n{}", ends.dump(0), ends.dump(1));
        }
        if !fabric.is_iwarp() {
            assert!(ends.alone(0)[0] > 0, "{}", ends.dump(0));
        }
        // Now the one who sends ends it, now the other.
        let by = round % 2;
        let (btl, seen) = &mut ends.0[by];
        btl.invalidate(Peer(1 - by as u32), Residue::Deliver, seen);
        ends.until("both to be closed", |ends| (0..2).all(|at| ends[at].1.closed > before[at].1));
        let came = &ends.0[1].1.frames[before[1].0..];
        assert!(came.len() <= sent && *came == frames[..came.len()], "{} of {sent}", came.len());
        ends.meet();
        ends.all_come([&frames, &frames[..20]]);
    }
}
