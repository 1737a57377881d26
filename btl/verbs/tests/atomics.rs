//! Atomic operations between two queue pairs that are connected by hand, on the devices of two hosts; runs in the virtual
//! machine (`ci/hwtests`). The transport's own: `changes_numbers_in_one_step` of the conformance suite.
#![allow(unsafe_code)] // requests are posted by hand

use ironweave_ffi_verbs::{
    Access, Channel, CompletionQueue, Device, Kind, Operation, Path, QueuePair, Sge, Slab, Status,
    Timers, Wc,
};
use ironweave_hwtests::fabric::{Fabric, is_ipv4};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// No test waits longer for a completion.
const WATCHDOG: Duration = Duration::from_secs(40);
const TIMERS: Timers = Timers { timeout: 14, retries: 6, busy_retries: 6, busy_wait: 12 };

/// One side: a queue pair, and a page of which the first word is the peer's to change, the second for answers.
struct End {
    // Before what it uses.
    queue_pair: QueuePair,
    completions: Arc<CompletionQueue>,
    slab: Slab,
    device: Device,
    gid: (u8, [u8; 16]),
}

impl End {
    fn open(name: &str, access: Access) -> End {
        let device = Device::open(name).expect("the device opens");
        let channel = Channel::new(&device).expect("a channel");
        let completions = CompletionQueue::new(&device, &channel, 64).expect("a queue");
        let queue_pair = QueuePair::new(
            &device,
            Kind::Reliable,
            &completions,
            &completions,
            None,
            (16, 1),
            1,
            0,
        )
        .expect("a queue pair");
        queue_pair.prepare(1, 0).expect("INIT");
        let slab = Slab::new(&device, 4096, access).expect("a page");
        // Over Ethernet: an IPv4 address, that both hosts have.
        let gid = (0..16_u8)
            .filter_map(|index| device.gid(1, index.into()).ok().map(|gid| (index, gid)))
            .find(|(_, gid)| is_ipv4(gid))
            .or_else(|| device.gid(1, 0).ok().map(|gid| (0, gid)))
            .expect("the port has a GID");
        End { queue_pair, completions, slab, device, gid }
    }

    fn connect(&self, other: &End) {
        let port = self.device.port(1).expect("the port's state");
        let path = Path {
            port: 1,
            gid_index: self.gid.0,
            global: port.ethernet,
            gid: other.gid.1,
            lid: other.device.port(1).expect("the port's state").lid,
            service_level: 0,
            traffic_class: 0,
        };
        self.queue_pair
            .connect(&path, other.queue_pair.number(), (1, 1), 3, 1, TIMERS)
            .expect("a way there");
    }

    fn word(&self) -> u64 {
        u64::from_ne_bytes(self.bytes(0))
    }

    fn bytes(&self, at: usize) -> [u8; 8] {
        let word = |at| self.slab.word(at).to_ne_bytes();
        let (low, high) = (word(at), word(at + 4));
        [low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]]
    }

    /// Runs one operation on the peer's first word: what was there before.
    fn run(&self, operation: Operation<'_>) -> Result<u64, Status> {
        let lkey = self.slab.registration().lkey();
        let piece = Sge { addr: self.slab.address(8), length: 8, lkey };
        // SAFETY: the slab outlives the queue pair, and nobody touches its second word until the request is over.
        unsafe { self.queue_pair.post(1, operation, &[piece], true, false) }.expect("it is taken");
        let end = Instant::now() + WATCHDOG;
        let mut done = [Wc::default()];
        while self.completions.poll(&mut done) == Some(0) {
            assert!(Instant::now() < end, "no completion");
            std::thread::yield_now();
        }
        match Status::of(done[0].status) {
            Status::Success => Ok(u64::from_ne_bytes(self.bytes(8))),
            status => Err(status),
        }
    }
}

/// Two ends that are connected; `None`, with a line that says so, where that cannot be.
fn pair(test: &str, access: Access) -> Option<[End; 2]> {
    let Some(fabric) = Fabric::given() else {
        println!("SKIP verbs/{test}: no devices are given (IRONWEAVE_VERBS_HOSTS)");
        return None;
    };
    let names = [fabric.device(0, 0), fabric.device(1, 0)];
    let atomics = |name: &&str| Device::open(name).is_ok_and(|device| device.limits().atomics);
    if let Some(without) = names.iter().find(|name| !atomics(name)) {
        println!("SKIP verbs/{test}: {without} has no atomic operations");
        return None;
    }
    let ends = names.map(|name| End::open(name, access));
    ends[0].connect(&ends[1]);
    ends[1].connect(&ends[0]);
    Some(ends)
}

#[test]
fn atomics_change_the_word_and_bring_what_was_there() {
    let Some([here, there]) = pair("atomics", Access::RemoteAtomic) else { return };
    let (address, rkey) = (there.slab.address(0), there.slab.registration().rkey());
    let swap = |compare, swap| Operation::CompareSwap { address, rkey, compare, swap };
    let add = |add| Operation::FetchAdd { address, rkey, add };
    assert_eq!(here.run(add(5)), Ok(0));
    assert_eq!(here.run(add(u64::MAX)), Ok(5), "adding wraps");
    assert_eq!(there.word(), 4);
    assert_eq!(here.run(swap(3, 1 << 60)), Ok(4), "something else is there");
    assert_eq!(there.word(), 4);
    assert_eq!(here.run(swap(4, 1 << 60)), Ok(4));
    assert_eq!(there.word(), 1 << 60);
}

#[test]
fn atomics_need_a_right_of_their_own() {
    let Some([here, there]) = pair("atomics_right", Access::RemoteBoth) else { return };
    let (address, rkey) = (there.slab.address(0), there.slab.registration().rkey());
    let refused = here.run(Operation::FetchAdd { address, rkey, add: 1 });
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(there.word(), 0, "it was changed all the same");
}
