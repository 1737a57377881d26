//! The trial: whether long messages may go faster by single copy than through the ring, between two cores, by sending some.
//!
//! Two threads, each bound to a core, send messages to and fro: through rings, as processes do, where one side copies in while
//! the other copies out; and by the kernel's single copy, which both sides carry out (`assist.rs`), out of memory that nobody has written
//! since it was last read, which is where that is quickest. Nothing less tells: a plain copy within one process, whose buffers lie in one core's cache, was as fast as the kernel's
//! single copy where messages of 1 MiB between two cores took twice as long through the ring.
//!
//! Where single copy loses clearly even so, there is none. Otherwise what the ring takes is what each read is held against (`ways.rs`).
//!
//! Whatever disturbs a turn makes it longer, so the shortest of several counts; the two ways alternate. The kernel is asked for our
//! own memory, which it never refuses for the rules that it has about others' (`cma.rs` has more on those).
#![allow(unsafe_code)] // regions of buffers that both threads own

use crate::assist::{Asker, Help, Helper};
use crate::config::{ShmConfig, SingleCopy, Stores};
use crate::pieces;
use crate::primitive::{AtomicU64, Ordering};
use crate::ring::{Fencing, Geometry, Reader, Writer};
use crate::shuttle::Shuttles;
use crate::transport::max_bcopy;
use crate::warmth::Warmth;
use crate::ways::{Experience, READ_MIN};
use crate::{cma, segment};
use ironweave_btl::memory::{OwnedBuffer, RecvRegion, SendRegion};
use ironweave_btl::{
    Counters, Descriptor, Fault, HEADER_MAX, Landing, Peer, RmaDescriptor, Sink, Token,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Whether single copy is of use is tried with this length.
const LONG: usize = 256 << 10;
/// What the ring takes is tried with this, too: the shortest messages that may be read. A byte of longer ones takes less (100 and 75 ps on
/// a Xeon of the fifth generation).
const SHORT: usize = READ_MIN;
/// What of the time of such a message passes after its reader has seen the first piece, as reads are held against (`ways.rs`). With all of it,
/// an `MPI_Allreduce` of 64 KiB went on being read, in 12 instead of 9 µs.
const SEEN: f64 = 0.7;
/// Turns of one way in a row: each leaves the caches as it likes them.
const TURNS: usize = 6;
/// Changes between them.
const CHANGES: usize = 6;
/// Single copy may take this part of the ring's time here: in a program it may be the quicker way nevertheless, as is learned there, and a
/// trial of a few milliseconds finds it slow now and then (10 to 22 µs for 256 KiB, in a noisy hour; the ring always 21).
const WORTH: f64 = 1.3;
/// Longer it never takes: then somebody else has one of the cores.
const PATIENCE: Duration = Duration::from_millis(10);
/// Waits look at the clock once in so many looks at memory.
const LOOKS: u32 = 64;

/// Tries which way is faster between the two cores, in 1 to 4 ms; `None` when that could not be found out: a core is not ours
/// to run on, or busy. Starts two threads, leaves nothing behind.
#[must_use]
pub fn trial(cores: [&CpuSet; 2]) -> Option<SingleCopy> {
    let [mut near, mut far] = sides()?;
    let desk = Desk::new();
    let until = Instant::now() + PATIENCE;
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            sched_setaffinity(None, cores[1]).ok()?;
            far.echo(&desk, until)
        });
        let judge = scope.spawn(|| {
            let verdict = sched_setaffinity(None, cores[0])
                .ok()
                .and_then(|()| Judge { side: &mut near, desk: &desk, until, turn: 0 }.judge());
            desk.order.store(OVER, Ordering::Release);
            verdict
        });
        let verdict = judge.join().ok()?;
        echo.join().ok()?;
        verdict
    })
}

/// The same between two cores that this process may run on, once for all. With one core only, or where the trial fails, what a
/// plain copy says ([`cma::worth`]).
pub(crate) fn chosen() -> SingleCopy {
    static CHOSEN: OnceLock<SingleCopy> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let tried = two_cores().and_then(|[one, other]| trial([&one, &other]));
        tried.unwrap_or_else(|| {
            let worth = cma::worth();
            tracing::debug!(?worth, "single copy judged by copies on one core: no second one free");
            worth.map_or(SingleCopy::None, |ps| SingleCopy::Under([ps; 2]))
        })
    })
}

/// The core that we run on and another of those we may run on.
fn two_cores() -> Option<[CpuSet; 2]> {
    let allowed = sched_getaffinity(None).ok()?;
    let here = rustix::thread::sched_getcpu();
    let core = |cpu: usize| {
        let read = |what| {
            std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/{what}"))
                .ok()
        };
        Some((read("physical_package_id")?, read("core_id")?))
    };
    let ours = core(here)?;
    let after = (here + 1..CpuSet::MAX_CPU).chain(0..here);
    let other =
        after.filter(|&cpu| allowed.is_set(cpu)).find(|&cpu| core(cpu) != Some(ours.clone()));
    let only = |cpu| {
        let mut set = CpuSet::new();
        set.set(cpu);
        set
    };
    Some([only(here), only(other?)])
}

/// How a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Ring,
    Kernel,
}

/// What the two threads say to each other.
#[derive(Debug)]
struct Desk {
    /// The turn to come: its number, length and way; 0 at first.
    order: AtomicU64,
    /// The last turn that the echo has prepared.
    ready: AtomicU64,
    /// Where a message lies for the kernel to copy: to the echo, and back. Whoever takes it writes 0 there, before the other side
    /// can have the next.
    offers: [AtomicU64; 2],
}

/// No more turns.
const OVER: u64 = u64::MAX;

impl Desk {
    fn new() -> Desk {
        let word = || AtomicU64::new(0);
        Desk { order: word(), ready: word(), offers: [word(), word()] }
    }
}

fn encode(turn: u32, len: usize, way: Way) -> u64 {
    u64::from(turn) << 32 | (len as u64) << 1 | u64::from(way == Way::Kernel)
}

fn decode(order: u64) -> (usize, Way) {
    let way = if order & 1 == 0 { Way::Ring } else { Way::Kernel };
    ((order as u32 >> 1) as usize, way)
}

/// The address in an offer, if there is one.
fn take(offer: &AtomicU64) -> Option<u64> {
    let address = offer.load(Ordering::Acquire);
    if address != 0 {
        offer.store(0, Ordering::Relaxed);
    }
    (address != 0).then_some(address)
}

/// Looks until `look` returns something; `None` when `until` has passed.
fn wait<T>(until: Instant, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let mut looks = 0u32;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        looks += 1;
        if looks.is_multiple_of(LOOKS) && Instant::now() >= until {
            return None;
        }
        std::hint::spin_loop();
    }
}

/// One of the two threads: its ends of the rings, and its buffers.
struct Side {
    writer: Writer,
    reader: Reader,
    asker: Asker,
    helper: Helper,
    shuttles: Shuttles,
    warmth: Warmth,
    counters: Counters,
    source: Vec<u8>,
    inbound: Inbound,
}

/// Where messages land.
struct Inbound {
    buffer: OwnedBuffer,
    /// Bytes of frames that began, of the message under way; of those that are whole.
    begun: usize,
    whole: usize,
}

/// Two sides with a ring each way.
fn sides() -> Option<[Side; 2]> {
    let config = ShmConfig::new(Peer(0), "trial", [0; 32]);
    let geometry = Geometry::new(config.ring_bytes as u64, config.bulk_bytes as u64)?;
    let ring = || segment::create("ironweave-trial", geometry.total()).ok();
    let ((there, _), (back, _)) = (ring()?, ring()?);
    let side = |out: &crate::shared::Shared, into: &crate::shared::Shared| {
        let writer = Writer::new(out.clone(), geometry, Fencing::Both, Stores::Auto);
        let reader = Reader::new(into.clone(), geometry, Experience::none());
        let (asker, helper) = (reader.asker(), writer.helper());
        let shuttles = Shuttles::new(writer.dock(), reader.dock());
        let inbound = Inbound { buffer: OwnedBuffer::zeroed(LONG), begun: 0, whole: 0 };
        let (warmth, counters, source) = (Warmth::new(), Counters::default(), vec![0; LONG]);
        Side { writer, reader, asker, helper, shuttles, warmth, counters, source, inbound }
    };
    Some([side(&there, &back), side(&back, &there)])
}

impl Side {
    /// Sends the first `len` bytes of the source through the ring, as the layers above cut them.
    fn send(&mut self, len: usize, until: Instant) -> Option<()> {
        let Side { writer, shuttles, source, .. } = self;
        for frame in source[..len].chunks(max_bcopy()) {
            wait(until, || {
                let header = [0; HEADER_MAX / 2];
                let fill = |at: usize, piece: &mut [u8]| {
                    ironweave_btl::copy::pack(piece, &frame[at..at + piece.len()]);
                };
                pieces::send(writer, Some(shuttles), false, &header, frame.len(), fill).ok()
            })?;
        }
        Some(())
    }

    /// Receives `len` bytes from the ring.
    fn receive(&mut self, len: usize, until: Instant) -> Option<()> {
        let Side { reader, shuttles, warmth, counters, inbound, .. } = self;
        (inbound.begun, inbound.whole) = (0, 0);
        wait(until, || {
            while reader.poll(Peer(0), inbound, counters, warmth, shuttles).ok()? {}
            (inbound.whole >= len).then_some(())
        })
    }

    /// Reads `len` bytes of the other side at address `from`, which writes a part of them; `None` when the kernel refuses.
    fn read(&mut self, from: u64, len: usize, until: Instant) -> Option<()> {
        // SAFETY: the buffer is not touched otherwise while the region exists.
        let region = unsafe { self.inbound.buffer.recv_region() };
        let mut mine = Some(self.asker.ask((region.as_mut_ptr() as u64, len), (0, 0, 0)));
        while let Some(mut at) = mine {
            while at.start < at.end {
                let from = from + at.start as u64;
                match cma::read(rustix::process::getpid(), from, &region.part(at.clone())) {
                    Ok(0) | Err(_) => return None,
                    Ok(got) => at.start += got,
                }
            }
            mine = self.asker.take();
        }
        let helped = wait(until, || Some(self.asker.outcome()).filter(|&it| it != Help::UnderWay))?;
        (helped == Help::Done).then_some(())
    }

    /// Writes a part of what the other side reads of the source, if it asks for that.
    fn assist(&mut self) {
        if let Some(task) = self.helper.take() {
            // SAFETY: nobody writes the source.
            let source = unsafe { SendRegion::new(self.source.as_ptr(), self.source.len()) };
            let part = source.part(task.bytes.start as usize..task.bytes.end as usize);
            let to = task.grant.target + task.bytes.start;
            let written = cma::write(rustix::process::getpid(), to, &part);
            self.helper.finish(&task, written.is_ok());
        }
    }

    /// Answers each message with another one of that length, the same way, until it is over.
    fn echo(&mut self, desk: &Desk, until: Instant) -> Option<()> {
        let mut last = 0;
        loop {
            let order = wait(until, || {
                self.assist();
                Some(desk.order.load(Ordering::Acquire)).filter(|&order| order != last)
            })?;
            if order == OVER {
                return Some(());
            }
            last = order;
            let (len, way) = decode(order);
            desk.ready.store(order, Ordering::Release);
            match way {
                Way::Ring => {
                    self.receive(len, until)?;
                    self.send(len, until)?;
                }
                Way::Kernel => {
                    let from = wait(until, || take(&desk.offers[0]))?;
                    self.read(from, len, until)?;
                    desk.offers[1].store(self.source.as_ptr() as u64, Ordering::Release);
                }
            }
        }
    }
}

impl Sink for Inbound {
    fn frame(&mut self, _: Peer, _: &[u8], payload: &[u8]) {
        self.buffer.as_mut_slice()[self.begun..][..payload.len()].copy_from_slice(payload);
        self.begun += payload.len();
        self.whole += payload.len();
    }

    fn landing(&mut self, _: Peer, _: &[u8], len: usize) -> Landing {
        let at = self.begun;
        self.begun += len;
        // SAFETY: each frame of a message lands behind the one before, and nobody reads the buffer.
        let region = unsafe { self.buffer.recv_region() }.part(at..at + len);
        Landing::Direct { region, token: Token(0) }
    }

    fn landed(&mut self, _: Peer, region: RecvRegion, _: Token, _: Result<(), Fault>) {
        self.whole += region.len();
    }

    fn completed(&mut self, _: Descriptor, _: Result<(), Fault>) {}
    fn rma_completed(&mut self, _: RmaDescriptor, _: Result<(), Fault>) {}
    fn up(&mut self, _: Peer) {}
    fn fault(&mut self, _: Fault) {}
    fn closed(&mut self, _: Peer) {}
}

/// What follows from what a long message took through the ring, and by the kernel's copy, and a short one through the ring, in
/// seconds.
fn verdict([ring, kernel]: [f64; 2], short: f64) -> SingleCopy {
    if kernel < ring * WORTH {
        let ps = |seconds: f64, len: usize| (seconds * 1e12 / len as f64) as u32;
        SingleCopy::Under([ps(short * SEEN, SHORT), ps(ring, LONG)])
    } else {
        SingleCopy::None
    }
}

/// The side that begins each turn, and takes the time.
struct Judge<'a> {
    side: &'a mut Side,
    desk: &'a Desk,
    until: Instant,
    turn: u32,
}

impl Judge<'_> {
    /// Whether single copy may be faster.
    fn judge(&mut self) -> Option<SingleCopy> {
        // The pages of the bulk area come with its first use, and how far the reader is shows when the first lap is over
        // (`distance.rs`): between far cores the kernel won against a ring that did not know yet, though 1 MiB takes it twice as long.
        let lap = ShmConfig::new(Peer(0), "trial", [0; 32]).bulk_bytes / LONG;
        for _ in 0..=lap {
            self.turn(LONG, Way::Ring)?;
        }
        let mut best = [f64::INFINITY; 2];
        for change in 0..CHANGES {
            let (best, way) = (&mut best[change % 2], [Way::Ring, Way::Kernel][change % 2]);
            for _ in 0..TURNS {
                *best = best.min(self.turn(LONG, way)?.as_secs_f64());
            }
        }
        let mut short = f64::INFINITY;
        for _ in 0..2 * TURNS {
            short = short.min(self.turn(SHORT, Way::Ring)?.as_secs_f64());
        }
        // There and back.
        let [ring, kernel, short] = [best[0], best[1], short].map(|seconds| seconds / 2.0);
        tracing::debug!(ring, kernel, short, "seconds of {LONG} and {SHORT} bytes");
        Some(verdict([ring, kernel], short))
    }

    /// A message there and one back.
    fn turn(&mut self, len: usize, way: Way) -> Option<Duration> {
        let Judge { side, desk, until, turn } = self;
        *turn += 1;
        let order = encode(*turn, len, way);
        desk.order.store(order, Ordering::Release);
        wait(*until, || (desk.ready.load(Ordering::Acquire) == order).then_some(()))?;
        let start = Instant::now();
        match way {
            Way::Ring => {
                side.send(len, *until)?;
                side.receive(len, *until)?;
            }
            Way::Kernel => {
                desk.offers[0].store(side.source.as_ptr() as u64, Ordering::Release);
                let from = wait(*until, || {
                    side.assist();
                    take(&desk.offers[1])
                })?;
                side.read(from, len, *until)?;
            }
        }
        Some(start.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_ends_with_a_verdict_that_can_be_passed_on() {
        let any = sched_getaffinity(None).unwrap();
        let [one, other] = two_cores().unwrap_or([any, any]);
        // A busy core is no reason to fail.
        let verdict = trial([&one, &other]).unwrap_or(SingleCopy::None);
        let sane = match verdict {
            SingleCopy::Under(ps) => ps.iter().all(|&ps| ps > 0),
            other => other == SingleCopy::None,
        };
        assert!(sane, "{verdict:?}");
        assert_eq!(verdict.to_string().parse(), Ok(verdict));
    }

    #[test]
    fn a_core_that_is_not_ours_is_no_core_to_try_on() {
        assert_eq!(trial([&CpuSet::new(), &CpuSet::new()]), None);
    }

    #[test]
    fn single_copy_is_held_against_the_ring() {
        let bytes = LONG as f64;
        let short = SHORT as f64 * 120.5e-12 / SEEN;
        assert_eq!(verdict([100e-12, 131e-12].map(|ps| bytes * ps), short), SingleCopy::None);
        assert_eq!(
            verdict([100.5e-12, 50e-12].map(|ps| bytes * ps), short),
            SingleCopy::Under([120, 100])
        );
    }

    #[test]
    fn orders_are_read_as_they_were_given() {
        for (len, way) in [(LONG, Way::Ring), (LONG / 2, Way::Kernel)] {
            assert_eq!(decode(encode(7, len, way)), (len, way));
        }
    }
}
