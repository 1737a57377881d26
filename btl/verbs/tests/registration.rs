//! Memory that goes away and comes back at the same address between two transfers: what arrives is what is there now.
//!
//! Both ends live in this process, on the devices of two hosts; runs in the virtual machine (`ci/hwtests`).
#![allow(unsafe_code)] // memory is mapped by hand, and lent

use ironweave_btl::memory::{OwnedBuffer, RecvRegion, SendRegion};
use ironweave_btl::{
    Btl, Descriptor, Fault, Peer, RemoteKey, RmaDescriptor, RmaKind, Sink, Token, lasting,
};
use ironweave_btl_verbs::{Verbs, VerbsConfig};
use ironweave_hwtests::fabric::Fabric;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::alloc::Layout;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// No test waits longer for anything.
const WATCHDOG: Duration = Duration::from_secs(40);
/// Bytes of a transfer: long enough to be registered.
const LEN: usize = 256 << 10;

/// One test at a time has the devices.
static ALONE: Mutex<()> = Mutex::new(());

#[derive(Default)]
struct Seen {
    up: u32,
    rma: Vec<Result<(), Fault>>,
}

impl Sink for Seen {
    fn frame(&mut self, _: Peer, _: &[u8], _: &[u8]) {}
    fn completed(&mut self, _: Descriptor, _: Result<(), Fault>) {}
    fn rma_completed(&mut self, _: RmaDescriptor, outcome: Result<(), Fault>) {
        self.rma.push(outcome);
    }
    fn up(&mut self, _: Peer) {
        self.up += 1;
    }
    fn fault(&mut self, fault: Fault) {
        panic!("{fault}");
    }
    fn closed(&mut self, _: Peer) {}
}

struct Pair {
    ends: [(Verbs, Seen); 2],
    _alone: MutexGuard<'static, ()>,
}

impl Pair {
    fn open(test: &str, kept: usize) -> Option<Pair> {
        let Some(fabric) = Fabric::given() else {
            println!("SKIP verbs/{test}: no devices are given (IRONWEAVE_VERBS_HOSTS)");
            return None;
        };
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let end = |host: u32| {
            let config = VerbsConfig {
                me: Peer(host),
                secret: [7; 32],
                job: format!("registration-{}", std::process::id()),
                include: vec![fabric.device(host as usize, 0).to_owned()],
                kept,
                ..VerbsConfig::default()
            };
            (Verbs::open_all(config).expect("the device opens").remove(0), Seen::default())
        };
        let mut pair = Pair { ends: [end(0), end(1)], _alone };
        let address = pair.ends[1].0.address();
        pair.ends[0].0.connect(Peer(1), &address).expect("the address is reachable");
        pair.until("both to be up", |ends| ends.iter().all(|(_, seen)| seen.up == 1));
        Some(pair)
    }

    fn until(&mut self, what: &str, done: impl Fn(&[(Verbs, Seen); 2]) -> bool) {
        let end = Instant::now() + WATCHDOG;
        while !done(&self.ends) {
            for (btl, seen) in &mut self.ends {
                btl.progress(seen);
            }
            std::thread::yield_now();
            assert!(Instant::now() < end, "waited for {what}\n{}{}", self.dump(0), self.dump(1));
        }
    }

    fn dump(&self, end: usize) -> String {
        let mut dump = String::new();
        let _ = self.ends[end].0.dump(&mut dump);
        dump
    }

    /// A put or get of end 0, to its end.
    fn rma(&mut self, kind: RmaKind, remote: RemoteKey) {
        let descriptor =
            RmaDescriptor { peer: Peer(1), kind, remote, remote_offset: 0, token: Token(1) };
        let before = self.ends[0].1.rma.len();
        assert!(self.ends[0].0.rma(descriptor).is_ok(), "there is room");
        self.until("a put or get", |ends| ends[0].1.rma.len() > before);
        assert_eq!(self.ends[0].1.rma.last(), Some(&Ok(())));
    }

    /// `memory`, put by end 0, as end 1 has it then.
    fn put(&mut self, memory: SendRegion) -> Vec<u8> {
        let target = OwnedBuffer::zeroed(memory.len());
        // SAFETY: `target` is looked at when it is deregistered.
        let key = self.ends[1].0.register_target(&unsafe { target.recv_region() });
        let key = key.expect("it can be registered");
        self.rma(RmaKind::Put(memory), key);
        self.ends[1].0.deregister(&key);
        target.as_slice().to_vec()
    }

    /// Has end 0 get `bytes` into `memory`.
    fn get(&mut self, bytes: &[u8], memory: RecvRegion) {
        let source = OwnedBuffer::from(bytes.to_vec());
        // SAFETY: `source` is kept until it was read to its end.
        let key = self.ends[1].0.register_source(Peer(0), &unsafe { source.send_region() });
        let key = key.expect("it can be registered");
        self.rma(RmaKind::Get(memory), key);
        self.ends[1].0.retire(&key);
    }
}

/// New memory at `at`, or wherever there is room.
fn map(at: Option<*mut u8>, byte: u8) -> *mut u8 {
    let flags = match at {
        Some(_) => MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE,
        None => MapFlags::PRIVATE,
    };
    let hint = at.unwrap_or(std::ptr::null_mut());
    // SAFETY: new memory where nothing is.
    let start =
        unsafe { mmap_anonymous(hint.cast(), LEN, ProtFlags::READ | ProtFlags::WRITE, flags) };
    let start: *mut u8 = start.expect("there is memory").cast();
    // SAFETY: just mapped, of this length.
    unsafe { start.write_bytes(byte, LEN) };
    start
}

/// Memory of the user's own is unmapped and mapped anew at the same place, with other contents.
#[test]
fn memory_that_is_mapped_anew_is_what_arrives() {
    let Some(mut pair) = Pair::open("memory_that_is_mapped_anew_is_what_arrives", 1 << 30) else {
        return;
    };
    let mut start = map(None, 1);
    for byte in 1..6_u8 {
        // SAFETY: mapped, and left alone until the put is over.
        let arrived = pair.put(unsafe { SendRegion::new(start, LEN) });
        assert!(arrived.iter().all(|&got| got == byte), "round {byte}: the old pages were sent");
        // SAFETY: as above, for the get.
        pair.get(&vec![byte + 100; LEN], unsafe { RecvRegion::new(start, LEN) });
        // SAFETY: mapped, and no transfer is under way.
        let landed = unsafe { std::slice::from_raw_parts(start, LEN) };
        assert!(landed.iter().all(|&got| got == byte + 100), "round {byte}: it landed elsewhere");
        // SAFETY: nobody uses it.
        unsafe { munmap(start.cast(), LEN) }.expect("it was mapped");
        start = map(Some(start), byte + 1);
    }
    // SAFETY: as above.
    unsafe { munmap(start.cast(), LEN) }.expect("it was mapped");
    assert!(pair.dump(0).contains(" 0 bytes kept"), "{}", pair.dump(0));
}

/// Lasting memory is registered once, given back, and given out again: perhaps at the same place.
#[test]
fn lasting_memory_is_registered_once() {
    let Some(mut pair) = Pair::open("lasting_memory_is_registered_once", 2 * LEN) else { return };
    let layout = Layout::from_size_align(LEN, 4096).expect("a sound layout");
    for byte in 1..6_u8 {
        let start = lasting::allocate(layout).expect("there is memory").as_ptr();
        for part in [0..LEN, 1000..LEN - 5] {
            let (at, len) = (start.wrapping_add(part.start), part.len());
            // SAFETY: allocated, no transfer is under way.
            unsafe { start.write_bytes(byte, LEN) };
            // SAFETY: allocated, and left alone until the put is over.
            let arrived = pair.put(unsafe { SendRegion::new(at, len) });
            assert!(arrived.iter().all(|&got| got == byte), "round {byte}");
            // SAFETY: as above, for the get.
            pair.get(&vec![byte + 100; len], unsafe { RecvRegion::new(at, len) });
            // SAFETY: allocated, no transfer is under way.
            let landed = unsafe { std::slice::from_raw_parts(at, len) };
            assert!(landed.iter().all(|&got| got == byte + 100), "round {byte}");
            // One registration, of the whole, for both and for all parts.
            let kept = format!(" {LEN} bytes kept");
            assert!(pair.dump(0).contains(&kept), "{}", pair.dump(0));
        }
        let held = lasting::covering(start, LEN).map(|memory| std::sync::Arc::downgrade(&memory));
        assert!(lasting::release(start));
        let held = held.expect("it was there");
        pair.until("the registration to end", |_| held.upgrade().is_none());
        assert!(pair.dump(0).contains(" 0 bytes kept"), "{}", pair.dump(0));
    }
}
