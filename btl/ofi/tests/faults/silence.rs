//! Peers to whom nothing gets through any more: the endpoint's deadline, and then it is for the detector.

use super::*;
use victims::{Victim, be_victim};

/// Waits for the end of the life with peer 1, which `send` is to keep busy: once, by the deadline.
fn falls_silent(
    way: &str,
    node: &mut Node,
    mut send: impl FnMut(&mut Node) -> Result<(), Refused>,
) {
    let start = Instant::now();
    let mut refused = false;
    until("the deadline", || {
        match send(node) {
            Ok(()) | Err(Refused::Closed) => {}
            Err(why) => {
                assert_eq!(why, Refused::NoRoom, "{way}");
                refused = true;
            }
        }
        node.turn();
        node.seen.closed > 0
    });
    assert!(refused, "{way}: everything was taken");
    assert!(start.elapsed() >= SILENCE, "{way}: before its time");
    let deadline = Fault::peer(Peer(1), Cause::TimedOut);
    assert_eq!(node.seen.faults, [deadline], "{way}: a suspect, no more");
    for _ in 0..1000 {
        node.turn();
    }
    assert_eq!((node.seen.closed, node.seen.faults.len()), (1, 1), "{way}: once");
    assert_eq!(node.btl.state(Peer(1)), EndpointState::Closed, "{way}");
}

/// How long nothing may get through.
const SILENCE: Duration = Duration::from_millis(400);

fn impatient(config: &mut OfiConfig) {
    config.peer_timeout = SILENCE;
    config.connect_timeout = 2 * WATCHDOG; // what ends before is not this one
    // More than sockets and queues hold: it is the provider that has no room.
    config.window = 64 << 20;
}

/// As [`impatient`], also with who does not answer: the system, which takes the greeting for it, is room enough for that.
fn unmet(config: &mut OfiConfig) {
    impatient(config);
    config.connect_timeout = SILENCE;
}

/// The child: takes what comes until it is killed, or stopped.
fn be_silent(mut node: Node) -> ! {
    let start = Instant::now();
    while start.elapsed() < WATCHDOG {
        node.turn();
    }
    std::process::exit(1);
}

/// A peer that is about to be met.
fn about_to_meet(
    test: &str,
    way: (&str, &str, &str),
    change: fn(&mut OfiConfig),
) -> Option<(Node, Victim, Address)> {
    let node = Node::open_with(test, way, 0, change)?;
    let victim = Victim::start(&format!("silence::{test}"), way.0, 0, None);
    let there = victim.address();
    Some((node, victim, there))
}

fn meet(test: &str, way: (&str, &str, &str)) -> Option<(Node, Victim)> {
    let (mut node, victim, there) = about_to_meet(test, way, impatient)?;
    node.btl.connect(Peer(1), &there).expect("the address is reachable");
    until("the child to be up", || {
        node.turn();
        node.seen.up == 1
    });
    Some((node, victim))
}

/// A peer is killed while nothing is on its way to it: "try again", say all but sockets to what is sent then, for ever; and the
/// life ends when the deadline is over.
#[test]
fn a_dead_peer_that_is_tried_again_and_again_is_given_up() {
    let test = "a_dead_peer_that_is_tried_again_and_again_is_given_up";
    if let Some(node) = be_victim(impatient) {
        be_silent(node);
    }
    each(test, |way| {
        let Some((mut node, mut victim)) = meet(test, way) else { return };
        victim.kill();
        let end = Instant::now() + Duration::from_millis(200);
        while Instant::now() < end {
            node.turn(); // the provider hears that the connection is gone
        }
        assert_eq!(node.seen.faults, [], "{}: nothing was sent", way.0);
        let send = |node: &mut Node| node.btl.send_short(Peer(1), b"h", &[1; 100]);
        if way.2 == "sockets" {
            let _ = send(&mut node);
            until("the end", || {
                node.turn();
                node.seen.closed == 1
            });
            assert_eq!(node.seen.faults, [Fault::rail(Peer(1), Cause::Unreachable)]);
            return;
        }
        falls_silent(way.0, &mut node, send);
    });
}

/// A peer is stopped before it is met: the system takes the connection for it, and nobody ever answers.
#[test]
fn a_stopped_peer_that_does_not_answer_is_given_up() {
    let test = "a_stopped_peer_that_does_not_answer_is_given_up";
    if let Some(node) = be_victim(impatient) {
        be_silent(node);
    }
    each(test, |way| {
        let Some((mut node, victim, there)) = about_to_meet(test, way, unmet) else { return };
        victim.stop();
        node.btl.connect(Peer(1), &there).expect("the address is reachable");
        let start = Instant::now();
        until("the deadline", || {
            node.turn();
            node.seen.closed > 0
        });
        assert!(start.elapsed() >= SILENCE, "{}: before its time", way.0);
        assert_eq!(node.seen.faults, [Fault::peer(Peer(1), Cause::TimedOut)], "{}", way.0);
        for _ in 0..1000 {
            node.turn();
        }
        assert_eq!((node.seen.closed, node.seen.faults.len()), (1, 1), "{}: once", way.0);
    });
}

/// A peer is stopped, and takes nothing from its socket. When that is full `sockets` has no room, and the deadline runs. The others
/// queue without a limit what their own windows let in (seen: 27 MB), never say "try again", and the life lasts: this is the detector's.
#[test]
fn a_stopped_peer_whose_socket_is_full_is_given_up_where_it_shows() {
    let test = "a_stopped_peer_whose_socket_is_full_is_given_up_where_it_shows";
    if let Some(node) = be_victim(impatient) {
        be_silent(node);
    }
    each(test, |way| {
        let Some((mut node, victim)) = meet(test, way) else { return };
        victim.stop();
        let mut sent = 0;
        let mut send =
            |node: &mut Node| node.btl.send_short(Peer(1), b"h", &[1; 100]).inspect(|()| sent += 1);
        if way.2 == "sockets" {
            falls_silent(way.0, &mut node, send);
            return;
        }
        until("the window to be full", || {
            node.turn();
            send(&mut node) == Err(Refused::NoRoom)
        });
        let end = Instant::now() + 2 * SILENCE;
        while Instant::now() < end {
            node.turn();
            assert_eq!(send(&mut node), Err(Refused::NoRoom), "{}", way.0);
        }
        println!("  {sent} frames were taken");
        assert_eq!((node.seen.closed, &node.seen.faults[..]), (0, &[][..]), "{}", way.0);
        node.btl.invalidate(Peer(1), Residue::Discard, &mut node.seen);
        assert_eq!(node.seen.closed, 1, "{}: at once, all the same", way.0);
    });
}
