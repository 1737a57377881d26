//! Peers that are gone, are started again, or never were.

use super::*;

/// A peer is gone without a word: whatever the provider says to what is sent (nothing, "try again" for ever, an error), this
/// end is either silent or closes by itself with a fault that calls nobody dead, and it can be closed.
#[test]
fn sending_to_who_is_gone_ends_and_proves_nothing() {
    let test = "sending_to_who_is_gone_ends_and_proves_nothing";
    each(test, |way| {
        let Some(pair) = Pair::open(test, way) else { return };
        let Pair { mut a, b } = pair;
        drop(b);
        let end = Instant::now() + Duration::from_secs(2);
        let mut refused = Ok(());
        while Instant::now() < end && a.seen.closed == 0 {
            let sent = a.btl.send_short(Peer(1), b"h", &[1; 100]);
            refused = refused.and(sent);
            a.turn();
        }
        println!("  {:?}, {:?} at last, {} closed", a.seen.faults, refused, a.seen.closed);
        for fault in &a.seen.faults {
            assert_ne!(fault.cause, Cause::ProcessGone, "no provider knows that");
            assert_ne!(fault.scope, Scope::Operation);
            assert_eq!(fault.peer, Some(Peer(1)), "one peer, not the device");
        }
        if a.seen.closed == 0 {
            assert_eq!(refused, Err(Refused::NoRoom), "what nobody reads is not bounded");
            a.btl.invalidate(Peer(1), Residue::Discard, &mut a.seen);
        }
        assert_eq!((a.seen.closed, a.btl.state(Peer(1))), (1, EndpointState::Closed));
    });
}

/// What an excluded peer was to be told is said once, or never: a dead one, for which most providers have no room, costs the
/// living nothing, and is not waited for when they leave.
#[test]
fn who_is_excluded_is_told_once_or_never() {
    let test = "who_is_excluded_is_told_once_or_never";
    each(test, |way| {
        let Some(Pair { mut a, b }) = Pair::open(test, way) else { return };
        drop(b);
        // Before its end is known, and after.
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(200) {
            a.turn();
        }
        a.btl.exclude(Peer(1), Residue::Discard, &mut a.seen);
        assert_eq!((a.seen.closed, a.btl.state(Peer(1))), (1, EndpointState::Closed));
        let mut state = String::new();
        a.btl.dump(&mut state).expect("text is written");
        assert!(state.contains(" 0 controls"), "{state}");
    });
}

/// What an invalidated peer is to be told is tried again from time to time only: each time costs the living a connection that is refused.
#[test]
fn who_is_gone_is_not_tried_in_every_round() {
    const APART: Duration = Duration::from_millis(100);
    let test = "who_is_gone_is_not_tried_in_every_round";
    each(test, |way| {
        let Some(Pair { mut a, b }) = Pair::open(test, way) else { return };
        drop(b);
        let start = Instant::now();
        while start.elapsed() < 2 * APART {
            a.turn();
        }
        a.btl.invalidate(Peer(1), Residue::Discard, &mut a.seen);
        let (before, since) = (a.btl.counters().retried.get(), Instant::now());
        for _ in 0..20_000 {
            a.turn();
        }
        let tried = a.btl.counters().retried.get() - before;
        let most = since.elapsed().div_duration_f64(APART) as u64 + 1;
        println!("  {tried} times in 20,000 rounds");
        assert!(tried <= most, "{tried} times, {most} at most");
    });
}

/// A process that was started again has another incarnation: whoever means the old one does not get it.
#[test]
fn a_restarted_peer_is_not_taken_for_the_old_one() {
    let test = "a_restarted_peer_is_not_taken_for_the_old_one";
    each(test, |way| {
        let Some(mut a) = Node::open(test, way, 0) else { return };
        let Some(old) = Node::open(test, way, 1) else { return };
        let of_old = old.btl.address();
        drop(old);
        let Some(mut new) = Node::open(test, way, 1) else { return };
        let of_new = new.btl.address();
        // The new one's address as the old one's: incarnations are bytes 13 to 21 (see the address blob).
        let mut mixed = of_new.bytes.clone();
        mixed[13..21].copy_from_slice(&of_old.bytes[13..21]);
        let mixed = Address { bytes: mixed, ..of_new.clone() };
        a.btl.connect(Peer(1), &mixed).expect("it is an address");
        until("the attempt to end", || {
            new.turn();
            a.turn();
            a.seen.closed == 1
        });
        assert_eq!((a.seen.up, new.seen.up), (0, 0), "{}: taken for the old one", way.0);
        a.btl.connect(Peer(1), &of_new).expect("it is an address");
        until("the new one to be up", || {
            new.turn();
            a.turn();
            a.seen.up == 1 && new.seen.up == 1
        });
    });
}

/// A process dies with frames for it on their way, and is started again where it was: it gets none of them, is reached by a new
/// connection, and both ways work.
#[test]
fn a_peer_restarted_at_the_same_address_begins_anew() {
    let test = "a_peer_restarted_at_the_same_address_begins_anew";
    each(test, |way| {
        let Some(mut pair) = Pair::open(test, way) else { return };
        while pair.a.btl.send_bcopy(Peer(1), b"h", 10_000, |_, piece| piece.fill(1)).is_ok() {}
        pair.a.turn();
        let Pair { mut a, b: old } = pair;
        let of_old = old.btl.address();
        drop(old);
        let here = endpoint_name(&of_old.bytes);
        let patient = |config: &mut OfiConfig| {
            config.address = here.clone();
            config.connect_timeout = Duration::from_secs(20);
        };
        let Some(mut new) = Node::open_with(test, way, 1, patient) else { return };
        let of_new = new.btl.address();
        assert_eq!(endpoint_name(&of_new.bytes), here, "{}: somewhere else", way.0);
        assert_ne!(of_new.bytes, of_old.bytes, "another incarnation");
        a.btl.invalidate(Peer(1), Residue::Discard, &mut a.seen);
        assert_eq!(a.seen.closed, 1);
        until("the new one to be up", || {
            // What is left of the old connection may cost an attempt or two.
            if a.btl.state(Peer(1)) == EndpointState::Closed {
                a.btl.connect(Peer(1), &of_new).expect("it is an address");
            }
            new.turn();
            a.turn();
            a.btl.state(Peer(1)) == EndpointState::Up && new.btl.state(Peer(0)) == EndpointState::Up
        });
        let (mut there, mut back) = (false, false);
        until("a frame each way", || {
            there = there || a.btl.send_short(Peer(1), b"h", b"there").is_ok();
            back = back || new.btl.send_short(Peer(0), b"h", b"back").is_ok();
            new.turn();
            a.turn();
            !new.seen.frames.is_empty() && !a.seen.frames.is_empty()
        });
        let all = (new.seen.frames.as_slice(), a.seen.frames.as_slice());
        assert_eq!(all, (&[b"there".to_vec()][..], &[b"back".to_vec()][..]), "{}", way.0);
        assert!(new.seen.faults.is_empty(), "{:?}", new.seen.faults);
    });
}

/// Blobs that are none, of another provider or rail are refused at once, in words; strange endpoint addresses never crash.
#[test]
fn wrong_addresses_are_refused() {
    let test = "wrong_addresses_are_refused";
    each(test, |way| {
        let Some(mut a) = Node::open(test, way, 0) else { return };
        let Some(b) = Node::open(test, way, 1) else { return };
        let right = b.btl.address();
        let changed = |change: &dyn Fn(&mut Address)| {
            let mut address = right.clone();
            change(&mut address);
            address
        };
        for wrong in [
            changed(&|address| address.bytes.clear()),
            changed(&|address| address.bytes.truncate(30)),
            changed(&|address| address.bytes[0] = 9),
            changed(&|address| address.bytes[26] ^= 1), // in the provider's name
            changed(&|address| address.rail += 1),
            changed(&|address| address.component = "tcp".into()),
        ] {
            let refused = a.btl.connect(Peer(1), &wrong).expect_err("a wrong address");
            assert_eq!(refused, Fault::rail(Peer(1), Cause::Unreachable), "{wrong:?}");
            assert_eq!(a.btl.state(Peer(1)), EndpointState::Closed);
        }
        let nowhere = changed(&|address| {
            let len = address.bytes.len();
            address.bytes[len - 8..].fill(0xff);
        });
        let lives = a.seen.closed;
        if a.btl.connect(Peer(1), &nowhere).is_ok() {
            until("the attempt to end", || {
                a.turn();
                a.seen.closed == lives + 1
            });
        }
        assert_eq!(a.seen.up, 0);
    });
}
