//! Memory that goes away and comes back at the same address between two transfers: what arrives is what is there now.
//!
//! Both ends live in this process, on the devices of two hosts; runs in the virtual machine (`ci/hwtests`).
#![allow(unsafe_code)] // memory is mapped by hand, and lent

use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_btl::{
    Btl, Descriptor, Fault, Peer, RemoteKey, RmaDescriptor, RmaKind, Sink, Token, lasting,
};
use ironweave_btl_verbs::{OnDemand, Verbs, VerbsConfig};
use ironweave_ffi_verbs::Device;
use ironweave_hwtests::fabric::{Fabric, PAGING};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
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
    /// With devices that page on demand, if that is asked for; they need not show that they do it rightly. Soft-RoCE does for
    /// what begins and ends with a page (`ironweave-ffi-verbs`, `trial.rs`).
    fn open(test: &str, kept: usize, on_demand: OnDemand) -> Option<Pair> {
        Pair::open_tried(test, kept, on_demand, false)
    }

    fn open_tried(test: &str, kept: usize, on_demand: OnDemand, trial: bool) -> Option<Pair> {
        let Some(fabric) = Fabric::given() else {
            println!("SKIP verbs/{test}: no devices are given (IRONWEAVE_VERBS_HOSTS)");
            return None;
        };
        if on_demand != OnDemand::Never {
            let pages = |host| {
                let device = Device::open(fabric.device(host, 0)).expect("the device opens");
                device.limits().on_demand
            };
            if !(pages(0) && pages(1)) {
                assert!(std::env::var_os(PAGING).is_none(), "devices here page on demand");
                println!("SKIP verbs/{test}: the devices do not page on demand");
                return None;
            }
        }
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let end = |host: u32| {
            let config = VerbsConfig {
                me: Peer(host),
                secret: [7; 32],
                job: format!("registration-{}", std::process::id()),
                include: vec![fabric.device(host as usize, 0).to_owned()],
                kept,
                on_demand,
                trial,
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
        let len = memory.len();
        let target = map(None, 0);
        // SAFETY: mapped, and looked at when it is deregistered.
        let key = self.ends[1].0.register_target(&unsafe { RecvRegion::new(target, len) });
        let key = key.expect("it can be registered");
        self.rma(RmaKind::Put(memory), key);
        self.ends[1].0.deregister(&key);
        // SAFETY: mapped, and no peer reaches it any more.
        let arrived = unsafe { std::slice::from_raw_parts(target, len) }.to_vec();
        // SAFETY: nobody uses it.
        unsafe { munmap(target.cast(), LEN) }.expect("it was mapped");
        arrived
    }

    /// Has end 0 get `bytes` into `memory`.
    fn get(&mut self, bytes: &[u8], memory: RecvRegion) {
        let source = map(None, 0);
        // SAFETY: mapped, and no transfer is under way.
        unsafe { std::slice::from_raw_parts_mut(source, bytes.len()) }.copy_from_slice(bytes);
        // SAFETY: mapped until it was read to its end, and held by the device then, if at all.
        let region = unsafe { SendRegion::new(source, bytes.len()) };
        let key = self.ends[1].0.register_source(Peer(0), &region).expect("it can be registered");
        self.rma(RmaKind::Get(memory), key);
        self.ends[1].0.retire(&key);
        // SAFETY: nobody uses it.
        unsafe { munmap(source.cast(), LEN) }.expect("it was mapped");
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

/// Puts from and gets into memory that is unmapped and mapped anew at the same place after each round, with other contents.
fn mapped_anew(pair: &mut Pair, after: impl Fn(&Pair, u8)) {
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
        after(pair, byte);
        // SAFETY: nobody uses it.
        unsafe { munmap(start.cast(), LEN) }.expect("it was mapped");
        start = map(Some(start), byte + 1);
    }
    // SAFETY: as above.
    unsafe { munmap(start.cast(), LEN) }.expect("it was mapped");
}

/// Memory of the user's own is unmapped and mapped anew at the same place, with other contents.
#[test]
fn memory_that_is_mapped_anew_is_what_arrives() {
    let test = "memory_that_is_mapped_anew_is_what_arrives";
    let Some(mut pair) = Pair::open(test, 1 << 30, OnDemand::Never) else { return };
    mapped_anew(&mut pair, |_, _| {});
    assert!(pair.dump(0).contains(" 0 bytes kept"), "{}", pair.dump(0));
}

/// Lasting memory is registered once, given back, and given out again: perhaps at the same place.
#[test]
fn lasting_memory_is_registered_once() {
    let test = "lasting_memory_is_registered_once";
    let Some(mut pair) = Pair::open(test, 2 * LEN, OnDemand::Never) else { return };
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

/// Registrations that are paged on demand stay from the second use on, and what is mapped anew is what arrives all the same.
#[test]
fn memory_that_is_kept_on_demand_is_never_stale() {
    let test = "memory_that_is_kept_on_demand_is_never_stale";
    let Some(mut pair) = Pair::open(test, 0, OnDemand::Auto) else { return };
    mapped_anew(&mut pair, |pair, round| {
        // A source and a target.
        let paged = if round == 1 { " 0 paged" } else { " 2 paged" };
        assert!(pair.dump(0).contains(paged), "round {round}: {}", pair.dump(0));
    });
}

/// Half of what is registered goes away: the other half is reached as before, by the same registration.
#[test]
fn a_part_of_what_is_kept_on_demand_can_go() {
    let test = "a_part_of_what_is_kept_on_demand_can_go";
    let Some(mut pair) = Pair::open(test, 0, OnDemand::Always) else { return };
    let (start, half) = (map(None, 7), LEN / 2);
    // SAFETY: mapped, and left alone until the put is over.
    assert_eq!(pair.put(unsafe { SendRegion::new(start, LEN) }), [7; LEN]);
    // SAFETY: nobody uses it.
    unsafe { munmap(start.wrapping_add(half).cast(), half) }.expect("it was mapped");
    // SAFETY: as above, of what is left.
    assert_eq!(pair.put(unsafe { SendRegion::new(start, half) }), vec![7; half]);
    assert!(pair.dump(0).contains(" 1 paged"), "{}", pair.dump(0));
    // SAFETY: as above.
    unsafe { munmap(start.cast(), half) }.expect("it was mapped");
}

/// Memory that can only be read can be sent.
#[test]
fn what_can_only_be_read_is_sent_on_demand() {
    let test = "what_can_only_be_read_is_sent_on_demand";
    let Some(mut pair) = Pair::open(test, 0, OnDemand::Always) else { return };
    let start = map(None, 9);
    // SAFETY: mapped; nobody writes it any more.
    unsafe { mprotect(start.cast(), LEN, MprotectFlags::READ) }.expect("it is mapped");
    // SAFETY: mapped, and left alone until the put is over.
    assert_eq!(pair.put(unsafe { SendRegion::new(start, LEN) }), [9; LEN]);
    assert!(pair.dump(0).contains(" 1 paged"), "{}", pair.dump(0));
    // SAFETY: nobody uses it.
    unsafe { munmap(start.cast(), LEN) }.expect("it was mapped");
}

/// What lies around the bytes of a transfer, on the same pages, stays as it was, on both sides: on demand where the device has shown
/// that it can, and else by pinned memory, as long as there is any.
#[test]
fn the_rest_of_a_page_is_left_alone() {
    let test = "the_rest_of_a_page_is_left_alone";
    let Some(mut pair) = Pair::open_tried(test, 0, OnDemand::Always, true) else { return };
    let places = [(0, 0), (16, 0), (0, 24), (40, 100), (4095, 1), (4096 + 8, 4096 + 8)];
    assert_eq!(places.map(|place| moved_within(&mut pair, place)), [None; 6]);
    // The device's verdict upon itself is the one that we come to.
    let right = !pair.dump(0).contains(" 0 paged");
    drop(pair);
    let Some(mut pair) = Pair::open(test, 0, OnDemand::Always) else { return };
    let seen = places.map(|place| moved_within(&mut pair, place));
    assert_eq!(right, seen == [None; 6], "tried, it is right: {right}; used: {seen:?}");
    println!("the device pages on demand, and rightly: {right}");
}

/// A put out of memory and a get into it, both but for some bytes before and after: the first byte that is wrong.
fn moved_within(pair: &mut Pair, (before, after): (usize, usize)) -> Option<(usize, u8)> {
    let (ours, theirs) = (map(None, 1), map(None, 2));
    let len = LEN - before - after;
    let (from, to) = (ours.wrapping_add(before), theirs.wrapping_add(before));
    let wrong = |start: *mut u8, around: u8, inside: u8| {
        // SAFETY: mapped, and no transfer is under way.
        let bytes = unsafe { std::slice::from_raw_parts(start, LEN) };
        let inner = before..LEN - after;
        let wanted = |at| if inner.contains(&at) { inside } else { around };
        bytes.iter().copied().enumerate().find(|&(at, got)| got != wanted(at))
    };
    // SAFETY: mapped, and left alone until it is deregistered.
    let target = unsafe { RecvRegion::new(to, len) };
    let key = pair.ends[1].0.register_target(&target).expect("it can be registered");
    // SAFETY: mapped, and left alone until the put is over.
    pair.rma(RmaKind::Put(unsafe { SendRegion::new(from, len) }), key);
    pair.ends[1].0.deregister(&key);
    let put = wrong(theirs, 2, 1).or(wrong(ours, 1, 1));
    // SAFETY: as above.
    let source = unsafe { SendRegion::new(to, len) };
    // SAFETY: as above.
    unsafe { to.write_bytes(3, len) };
    let key = pair.ends[1].0.register_source(Peer(0), &source).expect("it can be registered");
    // SAFETY: as above.
    pair.rma(RmaKind::Get(unsafe { RecvRegion::new(from, len) }), key);
    pair.ends[1].0.deregister(&key);
    let got = wrong(ours, 1, 3).or(wrong(theirs, 2, 3));
    for start in [ours, theirs] {
        // SAFETY: nobody uses it.
        unsafe { munmap(start.cast(), LEN) }.expect("it was mapped");
    }
    put.or(got)
}

/// Where no more memory may be locked, both sides of a transfer are paged on demand, and what peers reach is closed after it.
#[test]
fn the_limit_of_locked_memory_does_not_bind_what_is_paged() {
    let test = "the_limit_of_locked_memory_does_not_bind_what_is_paged";
    // Before the device is opened: the kernel takes no requests for one that was opened with other capabilities.
    let bound = Bound::new();
    let Some(mut pair) = Pair::open(test, 1 << 30, OnDemand::Auto) else { return };
    bound.lock_no_more();
    let start = map(None, 3);
    // SAFETY: mapped, and left alone until the put is over.
    assert_eq!(pair.put(unsafe { SendRegion::new(start, LEN) }), [3; LEN]);
    // SAFETY: mapped, and looked at when the get is over.
    pair.get(&[4; LEN], unsafe { RecvRegion::new(start, LEN) });
    // SAFETY: as above.
    assert_eq!(unsafe { std::slice::from_raw_parts(start, LEN) }, [4; LEN]);
    assert!(pair.dump(0).contains(" 2 paged"), "{}", pair.dump(0));
    assert!(pair.dump(1).contains(" 0 retired"), "{}", pair.dump(1));
    // SAFETY: nobody uses it.
    unsafe { munmap(start.cast(), LEN) }.expect("it was mapped");
}

/// While it lives, the limit of locked memory is one for this thread.
struct Bound {
    limit: Rlimit,
    sets: CapabilitySets,
}

impl Bound {
    fn new() -> Bound {
        let (limit, sets) = (getrlimit(Resource::Memlock), capabilities(None).expect("our own"));
        let effective = sets.effective - CapabilitySet::IPC_LOCK;
        set_capabilities(None, CapabilitySets { effective, ..sets }).expect("less is allowed");
        Bound { limit, sets }
    }

    fn lock_no_more(&self) {
        let none = Rlimit { current: Some(0), ..self.limit };
        setrlimit(Resource::Memlock, none).expect("less is allowed");
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        setrlimit(Resource::Memlock, self.limit).expect("the hard limit is as it was");
        set_capabilities(None, self.sets).expect("they are permitted");
    }
}
