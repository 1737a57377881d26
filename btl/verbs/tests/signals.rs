//! What the transport writes to hear of its own requests, counted: requests that ask for no completion must cost nothing
//! where traffic goes on.
//!
//! Both ends live in this process, on the devices of two hosts; runs in the virtual machine (`ci/hwtests`).

#[path = "support/nodes.rs"]
mod nodes;
mod support;

use ironweave_btl::{Btl, Peer};
use ironweave_hwtests::fabric::Wire;
use nodes::{Node, pair, until};
use support::given;

/// Round trips that are counted, and those before, in which rings are offered.
const TRIPS: usize = 100;
const FIRST: usize = 40;
/// What packets of host 0 take in the virtual machine: many looks at the connection.
const SLOW: &str = "delay 4ms";

/// Requests of its own, beside frames, that each has posted.
fn controls(nodes: &[Node]) -> [u64; 2] {
    [0, 1].map(|me: usize| nodes[me].btl.counters().controls.get())
}

/// Sends `count` frames to the other side, each as soon as there is room, and waits for all of them.
fn send(nodes: &mut [Node], from: usize, count: usize) {
    let to = 1 - from;
    let wanted = nodes[to].seen.frames.len() + count;
    let mut sent = 0;
    until("frames", nodes, |nodes| {
        while sent < count {
            match nodes[from].btl.send_short(Peer(to as u32), b"h", &[3; 40]) {
                Ok(()) => sent += 1,
                Err(_) => break,
            }
        }
        nodes[to].seen.frames.len() == wanted
    });
}

/// Whether all requests of a node have come back.
fn is_clear(node: &Node) -> bool {
    let dump = node.dump();
    let out = dump.split("requests ").nth(1).and_then(|rest| rest.split_once(' '));
    let (first, next) = out.and_then(|(range, _)| range.split_once("..")).expect("a connection");
    first == next
}

/// One message at a time, over a wire on which each takes far longer than a look: every request comes back by itself,
/// and every credit in a frame, so next to nothing else is written. That holds also for who answers before it has seen that the
/// request before has come back, as often happens on a machine with a load.
#[test]
fn a_slow_ping_pong_asks_for_nothing() {
    let test = "a_slow_ping_pong_asks_for_nothing";
    let Some((fabric, _alone)) = given(test) else { return };
    let mut nodes = pair(&fabric, test, |_| {});
    let trips = |nodes: &mut [Node], count| {
        let mut early = [0; 2];
        for _ in 0..count {
            for from in [0, 1] {
                early[from] += u64::from(!is_clear(&nodes[from]));
                send(nodes, from, 1);
            }
        }
        early
    };
    trips(&mut nodes, FIRST);
    let mut wire = Wire::of(0, 0);
    if let Some(wire) = &mut wire {
        wire.netem(SLOW);
    }
    let before = controls(&nodes);
    let packets = wire.as_ref().map(Wire::sent);
    let early = trips(&mut nodes, TRIPS);
    let after = controls(&nodes);
    let packets = wire.as_ref().map(|wire| wire.sent() - packets.unwrap_or(0));
    let written = [0, 1].map(|me: usize| after[me] - before[me]);
    println!(
        "{TRIPS} round trips: {written:?} requests beside them, {early:?} early answers, {packets:?} packets of host 0"
    );
    assert!(written.iter().all(|&written| written < TRIPS as u64 / 4), "{written:?}");
    assert!(nodes.iter().all(|node| node.seen.faults.is_empty()));
}

/// One way, as fast as room allows: credits are told once in half a window, and questions are few.
#[test]
fn a_stream_asks_seldom() {
    let test = "a_stream_asks_seldom";
    let Some((fabric, _alone)) = given(test) else { return };
    let mut nodes = pair(&fabric, test, |_| {});
    send(&mut nodes, 0, FIRST);
    let before = controls(&nodes);
    let count = 1600;
    send(&mut nodes, 0, count);
    let after = controls(&nodes);
    let [asked, told] = [0, 1].map(|me: usize| after[me] - before[me]);
    println!("{count} frames one way: {asked} questions, {told} credits");
    // Of 32 credits 16 are told at once; whatever else is written belongs to moments without a frame.
    assert!(told >= count as u64 / 16 - 2 && told <= count as u64 / 4, "{told} credits");
    assert!(asked <= count as u64 / 16, "{asked} questions");
    assert!(nodes.iter().all(|node| node.seen.faults.is_empty()));
}
