//! Reads of other processes' memory: what may be read, who helps, and how memory that a peer may still write comes back.
#![allow(unsafe_code, clippy::unwrap_used)] // regions of test buffers; helpers outside `#[test]`

#[path = "util/node.rs"]
mod node;

use ironweave_btl::memory::{OwnedBuffer, RecvRegion};
use ironweave_btl::{
    Btl, Cause, EndpointState, Fault, Peer, Read, Refused, RemoteKey, Residue, RmaDescriptor,
    RmaKind, Scope, Token,
};
use ironweave_btl_shm::{ShmConfig, SingleCopy};
use node::{Event, Node, SECRET, bytes, child_node, join, numbers, start_child, until};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::io::Write;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn gets_read_what_is_registered_and_nothing_else() {
    let config = |me| {
        let mut config = ShmConfig::new(Peer(me), "endpoints", SECRET);
        config.single_copy = SingleCopy::Cma;
        config
    };
    let (mut a, mut b) = (Node::with(config(0)), Node::with(config(1)));
    if !a.shm.caps().get {
        println!(
            "SKIP gets_read_what_is_registered_and_nothing_else: ptrace scope forbids process_vm_readv"
        );
        return;
    }
    join(&mut a, &mut b);
    let len = 5 << 20;
    let source = OwnedBuffer::from(bytes(1, len));
    // SAFETY: `source` outlives the region and is not written.
    let key = b.shm.register_source(Peer(0), &unsafe { source.send_region() }).unwrap();
    let get = |key, start: usize, len: usize, remote_offset: u64| {
        let target = OwnedBuffer::zeroed(len.max(start + len));
        // SAFETY: `target` is returned beside the descriptor and read after it came back.
        let region = unsafe { target.recv_region() }.part(start..start + len);
        let kind = RmaKind::Get(region);
        (RmaDescriptor { peer: Peer(1), kind, remote: key, remote_offset, token: Token(5) }, target)
    };
    let mut run = |a: &mut Node, descriptor| {
        a.shm.rma(descriptor).map_err(|(refused, _)| refused).unwrap();
        until(&mut [a, &mut b], "get", |n| !n[0].log.gets.is_empty());
        let (descriptor, outcome) = a.log.gets.pop().unwrap();
        assert_eq!(descriptor.token, Token(5));
        outcome
    };
    for (offset, len) in [(0, len), (1, 1), (4097, 3 << 20), (7, 0), (len, 0)] {
        let (descriptor, target) = get(key, 0, len, offset as u64);
        run(&mut a, descriptor).unwrap();
        assert!(target.as_slice()[..len] == source.as_slice()[offset..offset + len]);
    }
    let fails = |outcome: Result<(), Fault>| {
        let fault = outcome.unwrap_err();
        assert_eq!((fault.scope, fault.peer), (Scope::Operation, Some(Peer(1))));
    };
    fails(run(&mut a, get(key, 0, 2, len as u64 - 1).0));
    fails(run(&mut a, get(key, 0, 2, u64::MAX).0));
    let garbage = RemoteKey::new(&[0xff; 32]).unwrap();
    fails(run(&mut a, get(garbage, 0, 2, 0).0));
    fails(run(&mut a, get(RemoteKey::new(b"short").unwrap(), 0, 2, 0).0));
    // Invalidated with a get outstanding: it comes back, then closed.
    a.shm.rma(get(key, 0, len, 0).0).map_err(|(refused, _)| refused).unwrap();
    a.shm.invalidate(Peer(1), Residue::Discard, &mut a.log);
    fails(a.log.gets.pop().unwrap().1);
    assert_eq!(a.events(), [Event::Closed(Peer(1))]);
}

#[test]
fn a_registration_that_ended_cannot_be_read() {
    let mut config = ShmConfig::new(Peer(0), "endpoints", SECRET);
    config.single_copy = SingleCopy::Cma;
    let (mut a, mut b) = (
        Node::with(config),
        Node::with({
            let mut config = ShmConfig::new(Peer(1), "endpoints", SECRET);
            config.single_copy = SingleCopy::Cma;
            config
        }),
    );
    if !a.shm.caps().get {
        println!(
            "SKIP a_registration_that_ended_cannot_be_read: ptrace scope forbids process_vm_readv"
        );
        return;
    }
    join(&mut a, &mut b);
    let source = OwnedBuffer::zeroed(64);
    // SAFETY: `source` outlives the region and is not written.
    let region = unsafe { source.send_region() };
    let ended = b.shm.register_source(Peer(0), &region).unwrap();
    b.shm.deregister(&ended);
    b.shm.deregister(&ended);
    let retired = b.shm.register_source(Peer(0), &region).unwrap();
    b.shm.retire(&retired);
    // Has the slot of both; what is said of them now, again, does nothing to it.
    let living = b.shm.register_source(Peer(0), &region).unwrap();
    b.shm.deregister(&ended);
    b.shm.deregister(&retired);
    b.shm.retire(&retired);
    assert!(![ended, retired].contains(&living));
    let mut get = |b: &mut Node, key| {
        let target = OwnedBuffer::zeroed(64);
        // SAFETY: `target` outlives the get.
        let kind = RmaKind::Get(unsafe { target.recv_region() });
        let get =
            RmaDescriptor { peer: Peer(1), kind, remote: key, remote_offset: 0, token: Token(0) };
        a.shm.rma(get).map_err(|(refused, _)| refused).unwrap();
        until(&mut [&mut a, b], "get", |n| !n[0].log.gets.is_empty());
        a.log.gets.pop().unwrap().1
    };
    get(&mut b, living).unwrap();
    get(&mut b, ended).unwrap_err();
    // Nobody reads what was retired; the slot's registrations have one generation until one of them is ended.
    get(&mut b, retired).unwrap();
    b.shm.deregister(&living);
    get(&mut b, living).unwrap_err();
    get(&mut b, retired).unwrap_err();
}

/// Two processes, of which each reads the other's memory as long as that takes less than `ps` picoseconds a byte; `None` where the
/// kernel does not let them.
fn readers(ps: u32) -> Option<[Node; 2]> {
    let [mut a, mut b] = [0, 1].map(|me| {
        let mut config = ShmConfig::new(Peer(me), "endpoints", SECRET);
        config.single_copy = SingleCopy::Under([ps; 2]);
        Node::with(config)
    });
    if !a.shm.caps().get {
        return None;
    }
    join(&mut a, &mut b);
    Some([a, b])
}

/// A get of memory of peer 1 into all of `into`.
fn get(key: &RemoteKey, offset: u64, into: &RecvRegion) -> RmaDescriptor {
    let kind = RmaKind::Get(into.part(0..into.len()));
    RmaDescriptor { peer: Peer(1), kind, remote: *key, remote_offset: offset, token: Token(0) }
}

/// The same at once: how it went, or `None` when nothing was done.
fn read_now(node: &mut Node, get: RmaDescriptor) -> Option<Result<(), Fault>> {
    match node.shm.read_now(&get) {
        Read::Over(outcome) => Some(outcome),
        Read::Left => None,
        Read::Begun => panic!("nobody is there to help"),
    }
}

#[test]
fn reads_at_once_check_what_they_are_given() {
    let Some([mut a, mut b]) = readers(u32::MAX) else {
        println!(
            "SKIP reads_at_once_check_what_they_are_given: ptrace scope forbids process_vm_readv"
        );
        return;
    };
    let (source, target) = (OwnedBuffer::from(bytes(3, 100_000)), OwnedBuffer::zeroed(70_000));
    // SAFETY: both outlive the regions; `source` is not written.
    let (from, into) = unsafe { (source.send_region(), target.recv_region()) };
    let key = b.shm.register_source(Peer(0), &from).unwrap();
    read_now(&mut a, get(&key, 30_000, &into)).unwrap().unwrap();
    assert!(target.as_slice() == &source.as_slice()[30_000..]);
    let key_of = |bytes: &[u8]| RemoteKey::new(bytes).unwrap();
    // Beyond the end, of no sense, of somebody who is not there: nothing is done.
    for (peer, key, offset) in [
        (Peer(1), key, 30_001),
        (Peer(1), key, u64::MAX),
        (Peer(1), key_of(&[0xff; 32]), 0),
        (Peer(1), key_of(b"short"), 0),
        (Peer(2), key, 0),
    ] {
        let get = RmaDescriptor { peer, ..get(&key, offset, &into) };
        assert!(read_now(&mut a, get).is_none(), "{peer} {offset}");
    }
    b.shm.deregister(&key);
    let fault = read_now(&mut a, get(&key, 0, &into)).unwrap().unwrap_err();
    assert_eq!((fault.scope, fault.peer), (Scope::Operation, Some(Peer(1))));
    // So much at once, and no more before the next `progress`.
    let key = b.shm.register_source(Peer(0), &from).unwrap();
    let mut times = 0;
    while read_now(&mut a, get(&key, 0, &into)).is_some() {
        times += 1;
        assert!(times < 100, "it reads for ever");
    }
    a.turn();
    read_now(&mut a, get(&key, 0, &into)).unwrap().unwrap();
    // After others that wait.
    a.shm.rma(get(&key, 0, &into)).map_err(|(refused, _)| refused).unwrap();
    let other = OwnedBuffer::zeroed(10);
    // SAFETY: it outlives the region.
    let into = unsafe { other.recv_region() };
    assert!(read_now(&mut a, get(&key, 0, &into)).is_none());
}

#[test]
fn messages_whose_reads_take_too_long_are_sent_for_a_while() {
    // No read is as quick as this.
    let Some([mut a, mut b]) = readers(1) else {
        println!(
            "SKIP messages_whose_reads_take_too_long_are_sent_for_a_while: ptrace scope forbids process_vm_readv"
        );
        return;
    };
    const LEN: usize = 64 << 10;
    let (source, target) = (OwnedBuffer::zeroed(LEN), OwnedBuffer::zeroed(LEN));
    // SAFETY: both outlive the regions; `source` is not written.
    let (from, into) = unsafe { (source.send_region(), target.recv_region()) };
    let mut read = 0;
    assert!(b.shm.is_read(Peer(0), LEN, true));
    let late = loop {
        let key = b.shm.register_source(Peer(0), &from).unwrap();
        let Some(outcome) = read_now(&mut a, get(&key, 0, &into)) else { break key };
        outcome.unwrap();
        b.shm.retire(&key);
        a.turn();
        read += 1;
        assert!(read < 1000, "it reads for ever");
    };
    // That was offered before the complaint was heard; part of a message that was begun is read on.
    assert_eq!(a.shm.rma(get(&late, 0, &into)).unwrap_err().0, Refused::Unsupported);
    a.shm.rma(get(&late, 1, &into.part(1..LEN))).map_err(|(refused, _)| refused).unwrap();
    until(&mut [&mut a, &mut b], "get", |n| !n[0].log.gets.is_empty());
    a.log.gets.pop().unwrap().1.unwrap();
    b.shm.retire(&late);
    // Other lengths have nothing to do with it.
    assert!(b.shm.is_read(Peer(0), 2 * LEN, true));
    let sent = (0..10_000).take_while(|_| !b.shm.is_read(Peer(0), LEN, true)).count();
    assert!((1..10_000).contains(&sent), "{sent}");
    let key = b.shm.register_source(Peer(0), &from).unwrap();
    read_now(&mut a, get(&key, 0, &into)).unwrap().unwrap();
}

/// From now on the kernel refuses this system call to this thread, as it does `process_vm_readv` in many containers. `false`: it does
/// not let us ask for that.
fn forbid(call: libc::c_long) -> bool {
    const fn step(code: u32, k: u32, jf: u8) -> libc::sock_filter {
        libc::sock_filter { code: code as u16, jt: 0, jf, k }
    }
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0), // the number of the call
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, 1),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the kernel copies the program, which lives through the call.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
    }
}

/// Single copy that the kernel refuses comes back as an operation's fault, once; then there is no single copy any more,
/// and everything else goes on.
#[test]
fn refused_single_copy_is_given_up() {
    // A thread of its own, with which the ban ends.
    let outcome = std::thread::spawn(|| {
        let config = |me| {
            let mut config = ShmConfig::new(Peer(me), "endpoints", SECRET);
            config.single_copy = SingleCopy::Cma;
            config
        };
        let (mut a, mut b) = (Node::with(config(0)), Node::with(config(1)));
        if !a.shm.caps().get || !forbid(libc::SYS_process_vm_readv) {
            println!(
                "SKIP refused_single_copy_is_given_up: no single copy, or no way to forbid it"
            );
            return;
        }
        join(&mut a, &mut b);
        let source = OwnedBuffer::zeroed(1 << 20);
        // SAFETY: `source` outlives the region and is not written.
        let region = unsafe { source.send_region() };
        let key = b.shm.register_source(Peer(0), &region).unwrap();
        let target = OwnedBuffer::zeroed(1 << 20);
        let get = || RmaDescriptor {
            peer: Peer(1),
            // SAFETY: `target` outlives every get, of which one is under way at a time.
            kind: RmaKind::Get(unsafe { target.recv_region() }),
            remote: key,
            remote_offset: 0,
            token: Token(7),
        };
        a.shm.rma(get()).map_err(|(refused, _)| refused).unwrap();
        until(&mut [&mut a, &mut b], "the refusal", |n| !n[0].log.gets.is_empty());
        let fault = a.log.gets.pop().unwrap().1.unwrap_err();
        assert_eq!(fault.scope, Scope::Operation);
        assert!(matches!(fault.cause, Cause::Os { errno: libc::EPERM, .. }), "{fault}");
        let (refused, descriptor) = a.shm.rma(get()).unwrap_err();
        assert_eq!((refused, descriptor.token), (Refused::Unsupported, Token(7)));
        assert_eq!(a.shm.register_source(Peer(1), &region).unwrap_err(), Refused::Unsupported);
        a.send(1, b"frames still go").unwrap();
        until(&mut [&mut a, &mut b], "a frame", |n| n[1].log.frames.len() == 1);
    });
    outcome.join().unwrap();
}

/// Who cannot write the memory of others says so, and they read all of it themselves, from then on without asking.
#[test]
fn who_cannot_help_is_not_asked_again() {
    const LEN: usize = 32 << 20;
    let Some([mut a, mut b]) = readers(u32::MAX) else {
        println!("SKIP who_cannot_help_is_not_asked_again: ptrace scope forbids process_vm_readv");
        return;
    };
    let (source, target) = (OwnedBuffer::from(bytes(5, LEN)), OwnedBuffer::zeroed(LEN));
    // SAFETY: both outlive the regions; `source` is not written.
    let (from, into) = unsafe { (source.send_region(), target.recv_region()) };
    let key = b.shm.register_source(Peer(0), &from).unwrap();
    let over = AtomicBool::new(false);
    let mut helper = |able: bool| {
        // A thread of its own, with which the ban ends.
        while (able || forbid(libc::SYS_process_vm_writev)) && !over.load(Ordering::Relaxed) {
            b.turn();
        }
        b.shm.counters().assisted.get()
    };
    let mut reader = || {
        for _ in 0..2 {
            a.shm.rma(get(&key, 0, &into)).map_err(|(refused, _)| refused).unwrap();
            until(&mut [&mut a], "get", |n| !n[0].log.gets.is_empty());
            a.log.gets.pop().unwrap().1.unwrap();
            assert!(into.to_vec() == bytes(5, LEN));
            into.write(0, &bytes(6, LEN));
        }
        over.store(true, Ordering::Relaxed);
    };
    for able in [false, true] {
        over.store(false, Ordering::Relaxed);
        let assisted = std::thread::scope(|scope| {
            let assisted = scope.spawn(|| helper(able));
            reader();
            assisted.join().unwrap()
        });
        assert_eq!(assisted, 0, "{able}");
    }
}

/// A process that lends `LENT` bytes, and helps with reads of them.
struct Lender {
    child: Child,
    key: RemoteKey,
}

const LENT: usize = 64 << 20;

impl Lender {
    fn start(a: &mut Node) -> Lender {
        let (child, mut lines) = start_child(a, "lending_process");
        let key = lines.find_map(|line| Some(line.unwrap().strip_prefix("key ")?.to_string()));
        Lender { child, key: RemoteKey::new(&numbers(&key.unwrap())).unwrap() }
    }

    /// Sends `signal`. Who is to stop has stopped when this returns: it is through with what the kernel did for it.
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
        if signal == Signal::STOP {
            waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT).unwrap();
        }
    }

    /// Whether it has ended; it stays a zombie.
    fn is_gone(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        waitid(WaitId::Pid(Pid::from_child(&self.child)), options).unwrap().is_some()
    }
}

/// Not a test by itself: the process of [`Lender`].
#[test]
#[ignore = "started by other tests"]
fn lending_process() {
    let Some(mut node) = child_node(SingleCopy::Cma) else { return };
    let source = OwnedBuffer::from(vec![7; LENT]);
    // SAFETY: `source` lives as long as the process, and is not written.
    let region = unsafe { source.send_region() };
    let key = node.shm.register_source(Peer(0), &region).unwrap();
    let key: Vec<_> = key.as_bytes().iter().map(u8::to_string).collect();
    println!("\nkey {}", key.join(","));
    std::io::stdout().flush().unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        node.turn();
    }
}

/// An endpoint ends while its peer, which gets a signal first, writes a part of what we read: no get is given back and nothing is closed
/// before the peer is done with our memory, for which it may have to get another signal.
fn end_while_a_peer_writes(name: &str, first: Signal, excluded: bool, then: Option<Signal>) {
    for _ in 0..30 {
        let mut config = ShmConfig::new(Peer(0), "endpoints", SECRET);
        config.single_copy = SingleCopy::Cma;
        let mut a = Node::with(config);
        if !a.shm.caps().get {
            return println!("SKIP {name}: ptrace scope forbids process_vm_readv");
        }
        let mut lender = Lender::start(&mut a);
        let target = OwnedBuffer::zeroed(LENT);
        // SAFETY: `target` outlives the region.
        let into = unsafe { target.recv_region() };
        a.shm.rma(get(&lender.key, 0, &into)).map_err(|(refused, _)| refused).unwrap();
        a.turn();
        assert_eq!(a.log.gets.len(), 0, "it takes several turns");
        a.events();
        lender.signal(first);
        let Node { shm, log } = &mut a;
        if excluded {
            shm.exclude(Peer(1), Residue::Deliver, log);
        } else {
            shm.invalidate(Peer(1), Residue::Deliver, log);
        }
        // Or it was between two pieces, or is through.
        let met = shm.state(Peer(1)) == EndpointState::Failing;
        if met {
            let there = shm.address();
            assert_eq!(shm.connect(Peer(1), &there).unwrap_err().cause, Cause::Unreachable);
            shm.invalidate(Peer(1), Residue::Deliver, log);
            let start = Instant::now();
            while then.is_some() && start.elapsed() < Duration::from_millis(50) {
                a.turn();
            }
            assert!(a.log.gets.is_empty() && a.log.events.is_empty(), "it may still write");
            then.into_iter().for_each(|signal| lender.signal(signal));
        }
        until(&mut [&mut a], "closed", |n| !n[0].log.events.is_empty());
        assert_eq!(a.events(), [Event::Closed(Peer(1))]);
        assert!(!met || lender.is_gone() == then.is_none(), "it dies, if it has to");
        assert!(a.log.gets.pop().unwrap().1.is_err() && a.log.gets.is_empty());
        let there = into.to_vec();
        std::thread::sleep(Duration::from_millis(10));
        assert!(into.to_vec() == there, "written after the end");
        lender.child.kill().unwrap();
        lender.child.wait().unwrap();
        if met {
            return;
        }
    }
    panic!("it was never met in the middle of a piece");
}

#[test]
fn memory_comes_back_when_a_stopped_peer_goes_on() {
    let name = "memory_comes_back_when_a_stopped_peer_goes_on";
    end_while_a_peer_writes(name, Signal::STOP, false, Some(Signal::CONT));
}

#[test]
fn memory_comes_back_with_the_end_of_a_killed_peer() {
    let name = "memory_comes_back_with_the_end_of_a_killed_peer";
    for excluded in [false, true] {
        end_while_a_peer_writes(name, Signal::KILL, excluded, None);
    }
}

#[test]
fn who_is_excluded_and_does_not_give_memory_back_dies() {
    let name = "who_is_excluded_and_does_not_give_memory_back_dies";
    end_while_a_peer_writes(name, Signal::STOP, true, None);
}
