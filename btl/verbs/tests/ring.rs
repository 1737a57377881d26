//! The ring for short frames on devices: that it is used, full, shared out, and ended in the middle of traffic.
//!
//! Both ends live in this process, on the devices of two hosts, but for the peer that is killed; runs in the virtual machine
//! (`ci/hwtests`), on iWARP with the ring forced on.

#[path = "support/nodes.rs"]
mod nodes;
mod support;

use ironweave_btl::{Address, Armed, Btl, EndpointState, Peer, Refused, Residue};
use ironweave_btl_verbs::{NAME, Ring};
use ironweave_hwtests::fabric::Fabric;
use nodes::{Node, Seen, WATCHDOG, job, meet, pair, until};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::given;

/// Has this program play the peer that is killed; the job's name.
const PLAYS: &str = "IRONWEAVE_VERBS_RING_JOB";

impl Node {
    fn by_ring(&self) -> (u64, u64) {
        let counters = self.btl.counters();
        (counters.ring_sent.get(), counters.ring_received.get())
    }

    /// Sends payload `number` if there is room.
    fn send(&mut self, to: u32, number: u32, longest: usize) -> bool {
        let payload = payload(number, longest);
        let sent = if number.is_multiple_of(3) {
            self.btl.send_bcopy(Peer(to), b"h", payload.len(), |at, into| {
                into.copy_from_slice(&payload[at..at + into.len()]);
            })
        } else {
            self.btl.send_short(Peer(to), b"h", &payload)
        };
        sent.is_ok()
    }
}

/// Begins with its number, and is of any length up to `longest`.
fn payload(number: u32, longest: usize) -> Vec<u8> {
    let len = 4 + number as usize * 37 % longest;
    let fill = (0..len - 4).map(|at| (at as u32 * 31 + number) as u8);
    number.to_le_bytes().into_iter().chain(fill).collect()
}

/// The frames of `from` are the first `count` or more, in order, each once and whole.
fn in_order(seen: &Seen, from: u32, first: u32, longest: usize) -> u32 {
    let frames = seen.frames.iter().filter(|(peer, _)| *peer == Peer(from));
    let mut number = first;
    for (_, frame) in frames {
        assert!(*frame == payload(number, longest), "frame {number} of {from}: {frame:?}");
        number += 1;
    }
    number - first
}

/// Traffic both ways, of frames that fit into a slot and frames that do not: all of it comes, in order, most of the short
/// by ring.
#[test]
fn short_frames_go_by_ring() {
    let test = "short_frames_go_by_ring";
    let Some((fabric, _alone)) = given(test) else { return };
    let longest = 600;
    let mut nodes = pair(&fabric, test, |_| {});
    let mut sent = [0; 2];
    until("frames", &mut nodes, |nodes| {
        for (me, sent) in sent.iter_mut().enumerate() {
            while *sent < 2000 && nodes[me].send(1 - me as u32, *sent, longest) {
                *sent += 1;
            }
        }
        nodes.iter().all(|node| node.seen.frames.len() == 2000)
    });
    for me in 0..2 {
        in_order(&nodes[me].seen, 1 - me as u32, 0, longest);
        let (by_ring, _) = nodes[me].by_ring();
        assert_eq!(by_ring, nodes[1 - me].by_ring().1, "what was written was taken");
        println!("{by_ring} of 2000 frames by ring");
        assert!(by_ring > 300 && by_ring < 2000, "{by_ring} by ring, the others sent");
        assert!(nodes[me].seen.faults.is_empty() && nodes[me].dump().contains(" 1 rings,"));
    }
}

/// A ring of few slots is full while the receiver does something else: what finds none free is sent, and taken in order.
#[test]
fn a_full_ring_falls_back_to_sends() {
    let test = "a_full_ring_falls_back_to_sends";
    let Some((fabric, _alone)) = given(test) else { return };
    let longest = 100;
    let mut nodes = pair(&fabric, test, |config| config.ring_slots = 4);
    let mut sent = 0;
    until("a ring", &mut nodes, |nodes| {
        sent += u32::from(nodes[0].send(1, sent, longest));
        nodes[0].by_ring().0 > 0
    });
    for round in 0..20 {
        until("quiet", &mut nodes, |nodes| {
            nodes[1].seen.frames.len() == sent as usize && nodes[0].btl.unflushed() == 0
        });
        let told = Instant::now() + Duration::from_millis(100); // that all of them were taken
        until("credits", &mut nodes, |_| Instant::now() > told);
        let before = nodes[0].by_ring().0;
        let refused = nodes[0].btl.counters().refused.get();
        // Only the sender moves.
        let start = sent;
        while sent < start + 32 && nodes[0].send(1, sent, longest) {
            sent += 1;
        }
        assert_eq!(sent - start, 32, "round {round}: as many as there are credits");
        assert_eq!(nodes[0].by_ring().0 - before, 4, "round {round}: four found a slot");
        assert_eq!(nodes[0].btl.counters().refused.get(), refused, "none was refused");
        assert_eq!(nodes[0].btl.send_short(Peer(1), b"h", b"more"), Err(Refused::NoRoom));
    }
    until("the last", &mut nodes, |nodes| nodes[1].seen.frames.len() == sent as usize);
    in_order(&nodes[1].seen, 0, 0, longest);
    assert!(nodes.iter().all(|node| node.seen.faults.is_empty()));
}

/// Ended by either side at any moment of the traffic: what came is a beginning of what was sent, the rings are given
/// back, and the next life has frames of its own only, by rings of its own.
#[test]
fn an_end_in_the_middle_of_ring_traffic() {
    let test = "an_end_in_the_middle_of_ring_traffic";
    let Some((fabric, _alone)) = given(test) else { return };
    let longest = 150;
    let mut nodes = pair(&fabric, test, |_| {});
    let mut first = [0, 0];
    for round in 0..12_u32 {
        let ender = (round % 2) as usize;
        let residue = if round % 4 < 2 { Residue::Deliver } else { Residue::Discard };
        let mut sent = first;
        let before: Vec<_> = nodes.iter().map(Node::by_ring).collect();
        let enough = u64::from(20 + round * 7);
        until("ring traffic", &mut nodes, |nodes| {
            for (me, sent) in sent.iter_mut().enumerate() {
                while nodes[me].send(1 - me as u32, *sent, longest) {
                    *sent += 1;
                }
            }
            (0..2).all(|me| nodes[me].by_ring().0 - before[me].0 > enough)
        });
        let closed = nodes[ender].seen.closed;
        let Node { btl, seen } = &mut nodes[ender];
        btl.invalidate(Peer(1 - ender as u32), residue, seen);
        assert_eq!(seen.closed, closed + 1, "round {round}");
        assert!(nodes[ender].dump().contains(" 0 rings,"), "{}", nodes[ender].dump());
        // The other one goes on writing until it notices.
        until("the other end to close", &mut nodes, |nodes| {
            let other = 1 - ender;
            while nodes[other].send(ender as u32, sent[other], longest) {
                sent[other] += 1;
            }
            nodes[other].seen.closed > round
        });
        assert!(nodes[1 - ender].dump().contains(" 0 rings,"));
        for me in 0..2 {
            let came = in_order(&nodes[me].seen, 1 - me as u32, first[1 - me], longest);
            assert!(came > 0 && first[1 - me] + came <= sent[1 - me], "round {round}");
        }
        nodes.iter_mut().for_each(|node| node.seen.frames.clear());
        first = sent.map(|sent| sent + 1000);
        until("both to be closed", &mut nodes, |nodes| {
            (0..2).all(|me| nodes[me].btl.state(Peer(1 - me as u32)) == EndpointState::Closed)
        });
        meet(&mut nodes);
        assert!(nodes.iter().all(|node| node.seen.frames.is_empty()), "a frame of a former life");
    }
}

/// A process that is killed while frames of both ways go by ring: its survivor has a beginning of what it sent, gives
/// the ring back and closes, once.
#[test]
fn a_peer_that_is_killed_in_ring_traffic() {
    let test = "a_peer_that_is_killed_in_ring_traffic";
    let Some((fabric, _alone)) = given(test) else { return };
    let longest = 150;
    for round in 0..3_u64 {
        let job = format!("{}-{round}", job(test));
        let mut child = Command::new(std::env::current_exe().expect("a test has a file"))
            .args(["--exact", "plays_the_peer", "--nocapture"])
            .env(PLAYS, &job)
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let address = lines
            .map_while(Result::ok)
            .find_map(|line| line.split_once("address ").map(|(_, hex)| bytes_of(hex)))
            .expect("the peer tells its address");
        let address = Address { component: NAME.into(), rail: 0, bytes: address };
        let mut nodes = vec![Node::open(&fabric, 0, &job, |_| {})];
        nodes[0].btl.connect(Peer(1), &address).expect("the address is good");
        let mut sent = 0;
        until("ring traffic", &mut nodes, |nodes| {
            while nodes[0].send(1, sent, longest) {
                sent += 1;
            }
            let (out, come) = nodes[0].by_ring();
            out > 100 + round * 50 && come > 100 + round * 50
        });
        child.kill().expect("it runs");
        child.wait().expect("it was killed");
        until("the end", &mut nodes, |nodes| {
            while nodes[0].send(1, sent, longest) {
                sent += 1;
            }
            nodes[0].seen.closed == 1
        });
        assert!(in_order(&nodes[0].seen, 1, 0, longest) > 100);
        println!("round {round}: {:?}", nodes[0].seen.faults);
        assert_eq!(nodes[0].seen.faults.len(), 1);
        assert!(nodes[0].dump().contains(" 0 rings,"));
        let came = nodes[0].seen.frames.len();
        for _ in 0..1000 {
            nodes[0].turn();
        }
        assert_eq!(nodes[0].seen.frames.len(), came, "frames of the dead");
        assert_eq!(nodes[0].seen.closed, 1);
    }
}

/// Not a test: the peer of the one above. It sends until it is killed.
#[test]
fn plays_the_peer() {
    let (Ok(job), Some(fabric)) = (std::env::var(PLAYS), Fabric::given()) else { return };
    let mut node = Node::open(&fabric, 1, &job, |_| {});
    let hex: String = node.btl.address().bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("\naddress {hex}");
    let end = Instant::now() + WATCHDOG;
    let mut sent = 0;
    while Instant::now() < end {
        node.turn();
        while node.send(0, sent, 150) {
            sent += 1;
        }
    }
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits = hex.trim().as_bytes().chunks(2);
    let text = |pair| std::str::from_utf8(pair).expect("hexadecimal digits");
    digits.map(|pair| u8::from_str_radix(text(pair), 16).expect("two digits")).collect()
}

/// Of many peers as many have a ring as there may be, first come; all are served, and who comes later has one when
/// another has gone.
#[test]
fn rings_are_for_few() {
    let test = "rings_are_for_few";
    let Some((fabric, _alone)) = given(test) else { return };
    let longest = 100;
    let name = job(test);
    let mut nodes: Vec<Node> = (0..5)
        .map(|rank| Node::open(&fabric, rank, &name, |config| config.ring_peers = 2))
        .collect();
    let address = nodes[0].btl.address();
    for node in &mut nodes[1..] {
        node.btl.connect(Peer(0), &address).expect("the address is good");
    }
    until("all to be up", &mut nodes, |nodes| nodes[0].seen.up == 4);
    let mut sent = [0; 5];
    let traffic = |nodes: &mut [Node], sent: &mut [u32; 5], until: u32| {
        for rank in 1..5 {
            while sent[rank] < until && nodes[rank].send(0, sent[rank], longest) {
                sent[rank] += 1;
            }
        }
    };
    until("frames", &mut nodes, |nodes| {
        traffic(nodes, &mut sent, 300);
        nodes[0].seen.frames.len() == 1200
    });
    let with =
        |nodes: &[Node]| (1..5).filter(|&rank| nodes[rank].by_ring().0 > 0).collect::<Vec<usize>>();
    let had = with(&nodes);
    assert_eq!(had.len(), 2, "{had:?}");
    assert!(nodes[0].dump().contains(" 2 rings,"));
    let Node { btl, seen } = &mut nodes[0];
    btl.invalidate(Peer(had[0] as u32), Residue::Deliver, seen);
    until("another to have it", &mut nodes, |nodes| {
        let more = sent.iter().max().copied().unwrap_or(0) + 1;
        traffic(nodes, &mut sent, more);
        with(nodes).len() == 3
    });
    for rank in (1..5).filter(|&rank| rank != had[0]) {
        in_order(&nodes[0].seen, rank as u32, 0, longest);
    }
}

/// Off at one end, nothing goes by ring, and all of it arrives.
#[test]
fn a_ring_that_is_off_is_not_used() {
    let test = "a_ring_that_is_off_is_not_used";
    let Some((fabric, _alone)) = given(test) else { return };
    let iwarp = fabric.device(0, 0).starts_with("siw");
    for how in ["at one end", "by number", "by itself"] {
        let mut nodes = pair(&fabric, test, |config| match how {
            "at one end" if config.me == Peer(0) => config.ring = Ring::Off,
            "by number" => config.ring_after = 0,
            "by itself" => config.ring = Ring::Auto,
            _ => {}
        });
        let mut sent = 0;
        until("frames", &mut nodes, |nodes| {
            while sent < 200 && nodes[0].send(1, sent, 100) && nodes[1].send(0, sent, 100) {
                sent += 1;
            }
            nodes.iter().all(|node| node.seen.frames.len() >= 200)
        });
        let used = nodes.iter().any(|node| node.by_ring().0 > 0);
        assert_eq!(used, how == "by itself" && !iwarp, "{how}");
        assert!(nodes.iter().all(|node| node.seen.faults.is_empty()), "{how}");
    }
}

/// A frame that was written to a ring before its owner falls asleep keeps it awake, and one that comes later wakes it in
/// a while, though no device tells of it.
#[test]
fn a_sleeper_finds_what_came_by_ring() {
    let test = "a_sleeper_finds_what_came_by_ring";
    let Some((fabric, _alone)) = given(test) else { return };
    let longest = 100;
    let mut nodes = pair(&fabric, test, |_| {});
    let mut sent = 0;
    until("a ring", &mut nodes, |nodes| {
        sent += u32::from(nodes[0].send(1, sent, longest));
        nodes[0].by_ring().0 > 0
    });
    until("all frames", &mut nodes, |nodes| nodes[1].seen.frames.len() == sent as usize);
    for _ in 0..50 {
        let end = Instant::now() + WATCHDOG;
        until("room", &mut nodes, |nodes| nodes[0].send(1, sent, longest));
        sent += 1;
        while nodes[1].seen.frames.len() < sent as usize {
            nodes[0].turn();
            match nodes[1].btl.arm() {
                Armed::Ready | Armed::PollOnly => {}
                Armed::Wait(fd) => sleep_on(fd),
            }
            nodes[1].turn();
            assert!(Instant::now() < end, "slept through a frame");
        }
    }
    assert!(nodes[0].by_ring().0 > 50);
}

#[allow(unsafe_code)] // one borrow of a descriptor
fn sleep_on(fd: std::os::fd::RawFd) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    // SAFETY: `Armed::Wait` promises a descriptor that stays open until the transport is called again.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    let limit = Timespec { tv_sec: 5, tv_nsec: 0 };
    let woken = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit));
    assert_ne!(woken, Ok(0), "nothing wakes it");
}
