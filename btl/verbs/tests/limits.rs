//! What runs out, and what was never right: receives, queue pairs, completion queues, addresses, entries of tables. Each
//! is a clear error for whoever asks, in bounded time, and no harm to the others.
//!
//! All ends live in this process, on the devices of two hosts; runs in the virtual machine (`ci/hwtests`).

mod support;

use ironweave_btl::{
    Btl, Cause, Descriptor, EndpointState, Fault, Peer, Refused, RmaDescriptor, Sink,
};
use ironweave_btl_verbs::{Ip, OpenError, Timers, Verbs, VerbsConfig};
use ironweave_ffi_verbs::{
    Channel, CompletionQueue, Device, Kind, Operation, Path, QueuePair, SharedQueue, Status, Wc,
};
use ironweave_hwtests::fabric::{Fabric, VM, Wire, is_ipv4};
use std::time::{Duration, Instant};
use support::given;

/// No test waits longer for anything.
const WATCHDOG: Duration = Duration::from_secs(40);

#[derive(Default)]
struct Seen {
    frames: Vec<(Peer, Vec<u8>)>,
    up: Vec<Peer>,
    faults: Vec<Fault>,
    closed: Vec<Peer>,
}

impl Sink for Seen {
    fn frame(&mut self, from: Peer, _: &[u8], payload: &[u8]) {
        self.frames.push((from, payload.to_vec()));
    }
    fn completed(&mut self, _: Descriptor, _: Result<(), Fault>) {}
    fn rma_completed(&mut self, _: RmaDescriptor, _: Result<(), Fault>) {}
    fn up(&mut self, peer: Peer) {
        self.up.push(peer);
    }
    fn fault(&mut self, fault: Fault) {
        self.faults.push(fault);
    }
    fn closed(&mut self, peer: Peer) {
        self.closed.push(peer);
    }
}

struct Node {
    btl: Verbs,
    seen: Seen,
}

impl Node {
    fn try_open(
        fabric: &Fabric,
        rank: u32,
        change: impl Fn(&mut VerbsConfig),
    ) -> Result<Node, OpenError> {
        let mut config = VerbsConfig {
            me: Peer(rank),
            secret: [7; 32],
            job: format!("limits-{}", std::process::id()),
            include: vec![fabric.device(usize::from(rank > 0), 0).to_owned()],
            ..VerbsConfig::default()
        };
        change(&mut config);
        Ok(Node { btl: Verbs::open_all(config)?.remove(0), seen: Seen::default() })
    }

    fn open(fabric: &Fabric, rank: u32, change: impl Fn(&mut VerbsConfig)) -> Node {
        Node::try_open(fabric, rank, change).expect("the device opens")
    }

    fn turn(&mut self) {
        self.btl.progress(&mut self.seen);
    }
}

fn until(what: &str, nodes: &mut [Node], mut done: impl FnMut(&mut [Node]) -> bool) {
    let end = Instant::now() + WATCHDOG;
    while !done(nodes) {
        nodes.iter_mut().for_each(Node::turn);
        std::thread::yield_now();
        if Instant::now() > end {
            let mut dump = String::new();
            for node in nodes.iter() {
                let _ = node.btl.dump(&mut dump);
            }
            panic!("waited for {what}\n{dump}");
        }
    }
}

/// Rank 0 has room for two peers and a part of a third: those are served, with what is left, and none ever finds it
/// without a receive; one more is refused in words, and the others do not notice.
#[test]
fn receives_that_run_out_refuse_a_peer() {
    let Some((fabric, _alone)) = given("receives_that_run_out_refuse_a_peer") else { return };
    let mut nodes = vec![Node::open(&fabric, 0, |config| {
        config.receives_max = 64;
        config.credits = 24;
    })];
    let address = nodes[0].btl.address();
    for rank in 1..=4 {
        let mut node = Node::open(&fabric, rank, |_| {});
        node.btl.connect(Peer(0), &address).expect("the address is good");
        nodes.push(node);
        let rank = rank as usize;
        until("an answer", &mut nodes, |nodes| {
            nodes[rank].btl.state(Peer(0)) != EndpointState::Connecting
        });
    }
    assert_eq!(nodes[0].seen.up, [Peer(1), Peer(2), Peer(3)]);
    let refused = nodes.pop().expect("the fourth");
    let causes: Vec<_> = refused.seen.faults.iter().map(|fault| fault.cause.clone()).collect();
    assert_eq!(causes, [Cause::ConnectionRefused]);
    // Everybody sends as much as is taken while rank 0 does nothing, for longer than any retry.
    let mut sent = [0_u32; 4];
    let quiet = Instant::now() + Duration::from_millis(500);
    while Instant::now() < quiet {
        for rank in 1..=3 {
            match nodes[rank].btl.send_short(Peer(0), b"", &sent[rank].to_le_bytes()) {
                Ok(()) => sent[rank] += 1,
                Err(refused) => assert_eq!(refused, Refused::NoRoom),
            }
            nodes[rank].turn();
        }
    }
    assert_eq!(&sent[1..3], &[24, 24], "as many as there are credits");
    assert!((4..24).contains(&sent[3]), "as many as were left: {}", sent[3]);
    let total = sent.iter().sum::<u32>() as usize;
    until("the frames", &mut nodes, |nodes| nodes[0].seen.frames.len() == total);
    for rank in 1..=3 {
        let from = nodes[0].seen.frames.iter().filter(|(from, _)| *from == Peer(rank));
        let numbers = from.map(|(_, payload)| payload.clone());
        assert!(numbers.eq((0..sent[rank as usize]).map(|number| number.to_le_bytes().to_vec())));
    }
    assert!(nodes.iter().all(|node| node.seen.faults.is_empty()));
}

/// A completion queue that is small never overruns: fewer requests are under way, and a peer too many is told.
#[test]
fn a_small_completion_queue_is_enough_for_few() {
    let Some((fabric, _alone)) = given("a_small_completion_queue_is_enough_for_few") else {
        return;
    };
    let mut nodes = vec![Node::open(&fabric, 0, |config| config.completions = 32)];
    for rank in 1..=3 {
        nodes.push(Node::open(&fabric, rank, |_| {}));
        let address = nodes[rank as usize].btl.address();
        let called = nodes[0].btl.connect(Peer(rank), &address);
        if rank < 3 {
            called.expect("there is room for two");
            until("a connection", &mut nodes, |nodes| nodes[0].seen.up.len() == rank as usize);
        } else {
            let cause = called.expect_err("there is no room for three").cause;
            assert!(cause.to_string().contains("completion queue"), "{cause}");
        }
    }
    let mut sent = [0_u32; 3];
    until("frames", &mut nodes, |nodes| {
        for (rank, sent) in sent.iter_mut().enumerate().skip(1) {
            let to = Peer(rank as u32);
            while *sent < 300 && nodes[0].btl.send_short(to, b"", &[1; 40]).is_ok() {
                *sent += 1;
            }
        }
        nodes[1].seen.frames.len() == 300 && nodes[2].seen.frames.len() == 300
    });
    assert!(nodes.iter().all(|node| node.seen.faults.is_empty()));
}

/// The device has no more queue pairs for this process (as many as its control group allows): a call fails in words.
#[test]
fn queue_pairs_that_run_out_are_told() {
    let test = "queue_pairs_that_run_out_are_told";
    let Some((fabric, _alone)) = given(test) else { return };
    if std::env::var_os(VM).is_none() {
        println!("SKIP verbs/{test}: control groups are changed in the virtual machine only");
        return;
    }
    let script = "mkdir -p /run/cgroup && (mountpoint -q /run/cgroup || mount -t cgroup2 none /run/cgroup) && \
        echo +rdma >/run/cgroup/cgroup.subtree_control && mkdir -p /run/cgroup/few && echo $PPID >/run/cgroup/few/cgroup.procs";
    let moved =
        std::process::Command::new("bash").args(["-c", script]).output().expect("bash runs");
    assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
    let mut nodes = vec![Node::open(&fabric, 0, |_| {}), Node::open(&fabric, 1, |_| {})];
    let current =
        std::fs::read_to_string("/run/cgroup/few/rdma.current").expect("the group counts");
    let device = fabric.device(0, 0);
    let objects = current
        .lines()
        .filter(|line| line.starts_with(device))
        .find_map(|line| line.split("hca_object=").nth(1)?.trim().parse::<u32>().ok())
        .expect("the device's objects are counted");
    let limit = |objects: &str| {
        let line = format!("{device} hca_object={objects}");
        std::fs::write("/run/cgroup/few/rdma.max", line).expect("a limit can be set");
    };
    let address = nodes[1].btl.address();
    // A call makes an address handle, registers memory twice, and makes a queue pair: each is refused in turn.
    for (more, words) in
        [(0, "address handles"), (1, "registered"), (2, "registered"), (3, "queue pairs")]
    {
        limit(&(objects + more).to_string());
        let refused = nodes[0].btl.connect(Peer(1), &address);
        let cause = refused.expect_err("there is no object left").cause;
        println!("{more} more objects: {cause}");
        assert!(matches!(cause, Cause::Exhausted(what) if what.contains(words)), "{cause}");
    }
    limit("max");
    // Nothing is broken by that.
    nodes[0].btl.connect(Peer(1), &address).expect("there are queue pairs again");
    until("a connection", &mut nodes, |nodes| nodes[0].seen.up == [Peer(1)]);
    assert_eq!(nodes[0].btl.send_short(Peer(1), b"h", b"well"), Ok(()));
    until("a frame", &mut nodes, |nodes| nodes[1].seen.frames.len() == 1);
}

/// Addresses that are none, of somebody else, or of nobody, are refused at once or given up in time.
#[test]
fn wrong_addresses_lead_nowhere() {
    let Some((fabric, _alone)) = given("wrong_addresses_lead_nowhere") else { return };
    let quick = |config: &mut VerbsConfig| config.connect_timeout = Duration::from_secs(2);
    let mut nodes = vec![Node::open(&fabric, 0, quick), Node::open(&fabric, 1, quick)];
    let good = nodes[1].btl.address();
    for cut in [0, 1, 5, good.bytes.len() - 1] {
        let mut bad = good.clone();
        bad.bytes.truncate(cut);
        let cause = nodes[0].btl.connect(Peer(1), &bad).expect_err("cut short").cause;
        assert_eq!(cause, Cause::Unreachable);
    }
    let mut other = good.clone();
    other.component = "tcp".into();
    assert!(nodes[0].btl.connect(Peer(1), &other).is_err(), "another component's");
    // Right in form: a queue pair that nobody has.
    let mut nobody = good.clone();
    nobody.bytes[21] ^= 0x40;
    nobody.bytes[22] ^= 0x11;
    nodes[0].btl.connect(Peer(1), &nobody).expect("it may be somebody");
    until("the end of a call to nobody", &mut nodes, |nodes| nodes[0].seen.closed == [Peer(1)]);
    assert_eq!(nodes[0].seen.faults[0].cause, Cause::TimedOut);
    // A host that does not exist: the device says so at once, or nobody answers.
    let mut nowhere = good.clone();
    nowhere.bytes[16] ^= 0x55;
    let last = nowhere.bytes.len() - 1;
    nowhere.bytes[last] ^= 0x55; // by IPv6 neither
    if let Err(fault) = nodes[0].btl.connect(Peer(1), &nowhere) {
        println!("to nowhere: {fault}");
    } else {
        until("the end of a call to nowhere", &mut nodes, |nodes| nodes[0].seen.closed.len() == 2);
        println!("to nowhere: {}", nodes[0].seen.faults[1]);
    }
    // The right one works after all that.
    nodes[0].btl.connect(Peer(1), &good).expect("the address is good");
    until("a connection", &mut nodes, |nodes| nodes[1].seen.up == [Peer(0)]);
}

/// Connects 0 with 1 and sends a frame each way.
fn talk(nodes: &mut [Node]) {
    let address = nodes[1].btl.address();
    nodes[0].btl.connect(Peer(1), &address).expect("there is a way");
    until("both to be up", nodes, |nodes| nodes.iter().all(|node| node.seen.up.len() == 1));
    for (from, to) in [(0, 1), (1, 0)] {
        let sent = nodes[from].btl.send_short(Peer(to as u32), b"h", b"well");
        assert_eq!(sent, Ok(()));
        until("a frame", nodes, |nodes| nodes[to].seen.frames.len() == 1);
    }
}

/// Ports with addresses of both families meet by either: the one that is configured at one end, or that leads there.
#[test]
fn ports_meet_by_either_family() {
    let test = "ports_meet_by_either_family";
    let Some((fabric, _alone)) = given(test) else { return };
    let Some(mut wire) = Wire::of(0, 0) else {
        println!("SKIP verbs/{test}: ports are known to have both in the virtual machine only");
        return;
    };
    let open = |ips: [Ip; 2]| -> Vec<Node> {
        let node =
            |(rank, ip): (usize, &Ip)| Node::open(&fabric, rank as u32, |config| config.ip = *ip);
        ips.iter().enumerate().map(node).collect()
    };
    for ips in [[Ip::Any, Ip::Any], [Ip::V6, Ip::V6], [Ip::Any, Ip::V6], [Ip::V6, Ip::Any]] {
        talk(&mut open(ips));
    }
    let mut nodes = open([Ip::V4, Ip::V6]);
    let address = nodes[1].btl.address();
    let refused = nodes[0].btl.connect(Peer(1), &address).expect_err("no family in common");
    assert_eq!(refused.cause, Cause::Unreachable);
    wire.without_ipv4();
    let mut nodes = open([Ip::V4, Ip::Any]);
    let address = nodes[1].btl.address();
    let refused = nodes[0].btl.connect(Peer(1), &address).expect_err("nobody is there");
    println!("by IPv4: {}", refused.cause);
    talk(&mut open([Ip::Any, Ip::Any]));
}

/// Devices and entries of tables that do not exist, in words.
#[test]
fn what_does_not_exist_is_named() {
    let Some((fabric, _alone)) = given("what_does_not_exist_is_named") else { return };
    let told = |change: &dyn Fn(&mut VerbsConfig), words: &[&str]| {
        let error = Node::try_open(&fabric, 0, change).err().expect("it does not exist");
        let text = error.to_string();
        println!("{text}");
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    };
    let device = fabric.device(0, 0);
    told(&|config| config.include = vec!["nosuch0".into()], &["nosuch0", device]);
    told(&|config| config.include = vec![format!("{device}:7")], &["no usable RDMA port", device]);
    told(&|config| config.gid_index = Some(200), &[device, "entry 200", "GID"]);
    told(&|config| config.pkey_index = 4321, &[device, "entry 4321", "partition"]);
    told(&|config| config.exclude = vec![device.to_owned()], &["no usable RDMA port"]);
    // More than a device has: the library's word, with the call's name.
    let device = Device::open(device).expect("the device opens");
    let channel = Channel::new(&device).expect("a channel");
    let refused = CompletionQueue::new(&device, &channel, i32::MAX as u32).err();
    let text = refused.expect("no device has so many").to_string();
    assert!(text.starts_with("ibv_create_cq: "), "{text}");
    let text = SharedQueue::new(&device, u32::MAX).err().expect("too many").to_string();
    assert!(text.starts_with("ibv_create_srq: "), "{text}");
}

/// A receiver without a receive, which our credits never let happen, ends a send in words after a bounded time.
#[test]
fn a_receiver_that_is_not_ready_is_told() {
    let Some((fabric, _alone)) = given("a_receiver_that_is_not_ready_is_told") else { return };
    let open = |host: usize| {
        let device = Device::open(fabric.device(host, 0)).expect("the device opens");
        let channel = Channel::new(&device).expect("a channel");
        let queue = CompletionQueue::new(&device, &channel, 16).expect("a completion queue");
        let pair = QueuePair::new(&device, Kind::Reliable, &queue, &queue, None, (4, 4), 1, 64)
            .expect("a queue pair");
        pair.prepare(1, 0).expect("the port");
        let lid = device.port(1).expect("a port").lid;
        // Both ends by the same protocol: the kernel finds no way from one to the other.
        let end = Instant::now() + WATCHDOG;
        let is_ip4 = |index: &u32| device.gid(1, *index).is_ok_and(|gid| is_ipv4(&gid));
        let index = loop {
            match (0..16).find(is_ip4) {
                Some(index) => break index,
                None if lid != 0 => break 0,
                None => {
                    assert!(Instant::now() < end, "{} has no GID of IPv4", fabric.device(host, 0))
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let gid = device.gid(1, index).expect("a GID");
        (device, queue, pair, index as u8, gid, lid)
    };
    let ends = [open(0), open(1)];
    let timers = Timers { timeout: 12, retries: 3, busy_retries: 3, busy_wait: 12 };
    for (ours, theirs) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
        let path = Path {
            port: 1,
            gid_index: ours.3,
            global: theirs.5 == 0,
            gid: theirs.4,
            lid: theirs.5,
            service_level: 0,
            traffic_class: 0,
        };
        let connected = ours.2.connect(&path, theirs.2.number(), (5, 5), 3, 1, timers);
        connected.unwrap_or_else(|error| panic!("from {:?} by {path:?}: {error}", ours.4));
    }
    post_inline(&ends[0].2, b"to nobody");
    let end = Instant::now() + WATCHDOG;
    let mut done = [Wc::default()];
    while ends[0].1.poll(&mut done) == Some(0) {
        assert!(Instant::now() < end, "a send to a receiver that is not ready never ends");
        std::thread::yield_now();
    }
    let status = Status::of(done[0].status);
    assert_eq!(status, Status::ReceiverNotReady, "{}", status.words());
}

#[allow(unsafe_code)] // requests are posted by hand
fn post_inline(pair: &QueuePair, bytes: &[u8]) {
    let piece = ironweave_ffi_verbs::Sge {
        addr: bytes.as_ptr() as u64,
        length: bytes.len() as u32,
        lkey: 0,
    };
    // SAFETY: inline: the bytes are read during the call.
    let posted = unsafe { pair.post(1, Operation::Send, &[piece], true, true) };
    posted.expect("the queue takes a request");
}
