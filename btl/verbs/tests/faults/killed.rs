//! Peers that are killed in the middle of an RDMA read or write: processes of their own, by SIGKILL.
//!
//! The victim's memory is a file that the survivor can look into, so that bytes are counted on both sides, after its death too.
//!
//! What emulated devices show of a death, and what they do not: no device says anything. The kernel destroys the dead's queue
//! pair, as it would on hardware; a survivor with a request out sees its retries end, one without is told by our probe
//! only. Packets of the dead that are under way are few, and in the same machine, so that these tests say little of late
//! ones: `a_target_that_is_taken_back_is_left_alone` has a peer that lives and goes on sending.

use super::nodes::{Node, job, until};
use super::{ALONE, LONG, MOMENTS, WATCHDOG, WATCHED, assert_cut, come, has_arrived};
use ironweave_btl::memory::{OwnedBuffer, RecvRegion, SendRegion};
use ironweave_btl::{
    Address, Btl, Descriptor, EndpointState, Header, Peer, RemoteKey, Residue, RmaDescriptor,
    RmaKind, Token,
};
use ironweave_btl_verbs::{NAME, Ring, VerbsConfig};
use ironweave_hwtests::fabric::Fabric;
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// Tells a child what to do; set in children alone.
const PLAYS: &str = "IRONWEAVE_VERBS_VICTIM";
/// The number of the put or get; frames have those below.
const OPERATION: u64 = 100;
/// Frames that are out at the death, too.
const FRAMES: u64 = 3;

/// Who of both begins the operation.
#[derive(Clone, Copy, PartialEq, Debug)]
enum By {
    Survivor,
    Victim,
}

/// Which way the bytes go, seen from who begins.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    Put,
    Get,
}

/// How the survivor comes to end the endpoint.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Learns {
    /// It finds out by itself.
    Alone,
    /// At once, as from the launcher or the detector.
    Told,
}

/// Limits that make an end of a peer show soon.
fn soon(config: &mut VerbsConfig) {
    config.ring = Ring::Auto;
    config.timers.timeout = 12;
    config.probe = Duration::from_millis(100);
    config.stall_timeout = Duration::from_secs(4);
}

/// A process that is killed, at the latest when its parent is done with it.
struct Victim {
    process: Child,
    address: Address,
    memory: File,
}

impl Victim {
    fn start(job: &str, by: By, way: Way) -> Victim {
        // Without CLOEXEC: the child has it under the same number.
        let memory = rustix::fs::memfd_create("victim", MemfdFlags::empty()).expect("memory");
        let memory = File::from(memory);
        let sends = (by == By::Victim) == (way == Way::Put);
        memory.write_all_at(&vec![if sends { 0x5A } else { 0 }; LONG], 0).expect("room");
        let mut process = Command::new(std::env::current_exe().expect("a test has a file"))
            .args(["--exact", "killed::plays_the_victim", "--nocapture"])
            .env(PLAYS, format!("{job} {} {by:?} {way:?}", memory.as_raw_fd()))
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started");
        let lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let bytes = lines
            .map_while(Result::ok)
            .find_map(|line| line.split_once("address ").map(|(_, hex)| bytes_of(hex)))
            .expect("the victim tells its address");
        let address = Address { component: NAME.into(), rail: 0, bytes };
        Victim { process, address, memory }
    }

    /// What is in its memory; outlives it.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; LONG];
        self.memory.read_exact_at(&mut bytes, 0).expect("the file is that long");
        bytes
    }

    fn has(&self, bytes: usize) -> bool {
        let mut last = [1];
        bytes == 0 || self.memory.read_exact_at(&mut last, bytes as u64 - 1).is_ok() && last[0] != 0
    }

    fn kill(&mut self) {
        self.process.kill().expect("it runs");
    }

    fn wait(&mut self) {
        self.process.wait().expect("it was killed");
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits = hex.trim().as_bytes().chunks(2);
    let text = |pair| std::str::from_utf8(pair).expect("hexadecimal digits");
    digits.map(|pair| u8::from_str_radix(text(pair), 16).expect("two digits")).collect()
}

/// Begins a put or get of all the memory at `start`.
fn begin(node: &mut Node, peer: Peer, way: Way, start: *mut u8, remote: RemoteKey) {
    // SAFETY: the caller's memory stays until the operation came back, and is only looked at by `has_arrived`; one of the two is used.
    let (from, into) = unsafe { (SendRegion::new(start, LONG), RecvRegion::new(start, LONG)) };
    let kind = match way {
        Way::Put => RmaKind::Put(from),
        Way::Get => RmaKind::Get(into),
    };
    let token = Token(OPERATION);
    let descriptor = RmaDescriptor { peer, kind, remote, remote_offset: 0, token };
    assert!(node.btl.rma(descriptor).is_ok(), "there is room");
}

/// Opens all the memory at `start` to what the peer begins.
fn lend(node: &mut Node, peer: Peer, way: Way, start: *mut u8) -> RemoteKey {
    // SAFETY: the memory stays until the key is deregistered or the process ends; the survivor writes it when the endpoint is
    // closed, which is what is tested. One of the two is used.
    let (from, into) = unsafe { (SendRegion::new(start, LONG), RecvRegion::new(start, LONG)) };
    let key = match way {
        Way::Put => node.btl.register_target(&into),
        Way::Get => node.btl.register_source(peer, &from),
    };
    let key = key.expect("it can be registered");
    node.btl.send_short(peer, b"h", key.as_bytes()).expect("room for one frame");
    key
}

/// The key that the peer has sent.
fn lent(node: &Node) -> Option<RemoteKey> {
    node.seen.frames.first().and_then(|(_, key)| RemoteKey::new(key))
}

/// Not a test: the victim. It lends its memory, or reads or writes the survivor's, and waits for its end.
#[test]
fn plays_the_victim() {
    let (Ok(plays), Some(fabric)) = (std::env::var(PLAYS), Fabric::given()) else { return };
    let words: Vec<&str> = plays.split(' ').collect();
    let [job, memory, by, way] = words[..] else { panic!("{plays}") };
    let way = if way == "Put" { Way::Put } else { Way::Get };
    let memory = File::options().read(true).write(true).open(format!("/proc/self/fd/{memory}"));
    let memory = memory.expect("the parent's file");
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: anywhere that is free; never unmapped.
    let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), LONG, access, flags, &memory, 0) };
    let start = start.expect("it can be mapped").cast();
    let mut node = Node::open(&fabric, 1, job, soon);
    let hex: String = node.btl.address().bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("\naddress {hex}");
    let mut idle = true;
    let end = Instant::now() + WATCHDOG;
    while Instant::now() < end {
        node.turn();
        if !idle || node.btl.state(Peer(0)) != EndpointState::Up {
            continue;
        }
        if by == "Survivor" {
            lend(&mut node, Peer(0), way, start);
            idle = false;
        } else if let Some(theirs) = lent(&node) {
            begin(&mut node, Peer(0), way, start, theirs);
            idle = false;
        }
    }
}

/// Kills the victim in several moments of an operation, and looks what becomes of the survivor's buffer and descriptors.
fn killed(test: &str, by: By, way: Way) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(fabric) = Fabric::given() else {
        println!("SKIP verbs/{test}: no devices are given (IRONWEAVE_VERBS_HOSTS)");
        return;
    };
    let mut cut = 0;
    for (moment, learns) in
        MOMENTS.into_iter().zip([Learns::Alone, Learns::Told].into_iter().cycle())
    {
        cut += u32::from(killed_once(&fabric, &job(test), (by, way), moment, learns));
    }
    assert_cut(cut);
}

/// Whether the operation was cut off in its middle: a part of its bytes had arrived, and who survived was not told that all had.
fn killed_once(
    fabric: &Fabric,
    name: &str,
    (by, way): (By, Way),
    moment: usize,
    learns: Learns,
) -> bool {
    // Whether the bytes go to the survivor.
    let here = (by == By::Survivor) == (way == Way::Get);
    let job = format!("{name}-{moment}");
    let mut ours = OwnedBuffer::from(vec![if here { 0 } else { 0x5A }; LONG]);
    // SAFETY: what is made of it is described where it is made.
    let start = unsafe { ours.recv_region() }.as_mut_ptr();
    let mut victim = Victim::start(&job, by, way);
    let mut nodes = vec![Node::open(fabric, 0, &job, soon)];
    nodes[0].btl.connect(Peer(1), &victim.address).expect("the address is good");
    until("the victim to be up", &mut nodes, |nodes| nodes[0].seen.up == 1);
    let mut out = Vec::new();
    let mut key = None;
    if by == By::Survivor {
        until("a key", &mut nodes, |nodes| lent(&nodes[0]).is_some());
        let theirs = lent(&nodes[0]).expect("just seen");
        begin(&mut nodes[0], Peer(1), way, start, theirs);
        out.push(OPERATION);
    } else {
        key = Some(lend(&mut nodes[0], Peer(1), way, start));
    }
    until("bytes to arrive", &mut nodes, |_| {
        if here { has_arrived(start, moment) } else { victim.has(moment) }
    });
    let frame = OwnedBuffer::from(vec![1; 100]);
    for number in 0..FRAMES {
        // SAFETY: `frame` is kept to the end.
        let payload = [unsafe { frame.send_region() }].into_iter().collect();
        let (header, token) = (Header::new(b"h"), Token(number));
        let descriptor = Descriptor { peer: Peer(1), header, payload, token };
        if nodes[0].btl.send_zcopy(descriptor).is_ok() {
            out.push(number);
        }
    }
    victim.kill();
    if learns == Learns::Told {
        let Node { btl, seen } = &mut nodes[0];
        btl.invalidate(Peer(1), Residue::Discard, seen);
        assert_eq!(seen.closed, 1, "it is closed when the call returns");
    }
    until("the end", &mut nodes, |nodes| nodes[0].seen.closed == 1);

    // From here on the buffer is the survivor's alone, though its key still stands and the victim may not be quite dead.
    let came_here = if here { come(ours.as_slice()) } else { 0 };
    ours.as_mut_slice().fill(0x11);
    victim.wait();
    let end = Instant::now() + WATCHED;
    until("a while", &mut nodes, |_| Instant::now() > end);
    assert!(ours.as_slice().iter().all(|&byte| byte == 0x11), "written after the end");
    // What the victim has is of the time before, too.
    let arrived = if here { came_here } else { come(&victim.bytes()) };
    if let Some(key) = key {
        nodes[0].btl.deregister(&key);
    }
    let seen = &nodes[0].seen;
    let mut back: Vec<u64> = seen.given_back.iter().map(|(number, _)| *number).collect();
    back.sort_unstable();
    out.sort_unstable();
    assert_eq!(back, out, "each came back, once");
    assert_eq!(seen.closed, 1);
    assert_eq!(seen.faults.len(), usize::from(learns == Learns::Alone), "{:?}", seen.faults);
    assert!(seen.faults.iter().all(|fault| !fault.is_proof()), "a device's word proves no death");
    let outcome = seen.given_back.iter().find(|(number, _)| *number == OPERATION);
    let outcome = outcome.map(|(_, outcome)| outcome);
    println!(
        "{by:?} {way:?}, {learns:?}: {arrived} of {LONG} arrived, {outcome:?}, {:?}",
        seen.faults
    );
    assert!(arrived == LONG || outcome != Some(&Ok(())), "success was told of a part");
    arrived > 0 && arrived < LONG
}

#[test]
fn a_peer_killed_while_it_is_read_from() {
    killed("a_peer_killed_while_it_is_read_from", By::Survivor, Way::Get);
}

#[test]
fn a_peer_killed_while_it_is_written_to() {
    killed("a_peer_killed_while_it_is_written_to", By::Survivor, Way::Put);
}

#[test]
fn a_peer_killed_while_it_reads() {
    killed("a_peer_killed_while_it_reads", By::Victim, Way::Get);
}

#[test]
fn a_peer_killed_while_it_writes() {
    killed("a_peer_killed_while_it_writes", By::Victim, Way::Put);
}
