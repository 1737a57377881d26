//! Address vectors: peers come out of them and go in again. Below the transport, on the port itself.

use super::*;
use ironweave_ffi::ofi::{Closes, Errno, Event, FiAddr, Ofi as Library, Options, Port};

const LEN: usize = 8192;

fn open(test: &str, way: (&str, &str, &str)) -> Option<Port> {
    let port = Library::open_named(&library(way.1)).and_then(|library| {
        let mut ways = library.offers(way.2)?;
        ways.retain(|offer| offer.provider() == way.2 && offer.domain() == "lo");
        ways.sort_by_key(|offer| offer.ip_version());
        let first = ways.into_iter().next();
        first.map(|first| Port::open(first, options())).transpose()
    });
    match port {
        Ok(Some(port)) => Some(port),
        Ok(None) => {
            println!("SKIP ofi/{}/{test}: no such provider", way.0);
            None
        }
        Err(why) => {
            println!("SKIP ofi/{}/{test}: {why}", way.0);
            None
        }
    }
}

fn options() -> Options {
    Options {
        buffers: vec![(64, LEN)],
        receives: 64,
        receive_len: LEN,
        longest: LEN,
        multi_recv: false,
        peers: 8,
        waitable: false,
        closes: Closes::Busy,
        lane_receives: (0, 0),
        lane_longest: 0,
        early_completions: false,
    }
}

/// One message; `true` when it was taken.
fn send(port: &mut Port, to: FiAddr, byte: u8) -> bool {
    let Some(slot) = port.buffer(LEN) else { return false };
    port.bytes_mut(&slot).fill(byte);
    match port.send(slot, LEN, to, u64::from(byte)) {
        Ok(()) => true,
        Err((_, slot)) => {
            port.give_back(slot);
            false
        }
    }
}

/// The first bytes of what arrived.
fn poll(port: &mut Port) -> Result<Vec<u8>, Errno> {
    let mut arrived = Vec::new();
    let tell = |event: Event<'_>| {
        if let Event::Arrived(message) = event {
            arrived.push(message[0]);
        }
    };
    port.poll(tell, |_| false)?;
    Ok(arrived)
}

fn reach(from: &mut Port, addr: FiAddr, to: &mut Port, byte: u8) {
    let mut sent = false;
    until("a message to arrive", || {
        sent = sent || send(from, addr, byte);
        let _ = poll(from).expect("a queue that works");
        poll(to).expect("a queue that works").contains(&byte)
    });
}

/// A peer is taken out while messages for it are on their way, alive or dead: the others are served on, and it can be put in
/// again, where it was or elsewhere.
#[test]
fn a_peer_taken_out_of_the_vector_harms_no_other() {
    let test = "a_peer_taken_out_of_the_vector_harms_no_other";
    each(test, |way| {
        for dies in [false, true] {
            let Some(mut a) = open(test, way) else { return };
            let Some(mut b) = open(test, way) else { return };
            let Some(mut c) = open(test, way) else { return };
            let of_b = a.insert(b.name()).expect("an address");
            let of_c = a.insert(c.name()).expect("an address");
            reach(&mut a, of_b, &mut b, 1);
            reach(&mut a, of_c, &mut c, 2);
            let mut taken = 0;
            while taken < 40 && send(&mut a, of_b, 3) {
                taken += 1; // nobody asks b
            }
            let name = b.name().to_vec();
            if dies {
                drop(b);
                assert_eq!(a.remove(of_b), Ok(()), "{}: dead, {taken} on their way", way.0);
                let Some(again) = open(test, way) else { return };
                b = again;
            } else {
                assert_eq!(a.remove(of_b), Ok(()), "{}: alive, {taken} on their way", way.0);
            }
            assert_eq!(a.addresses(), 1, "{}: c's", way.0);
            for byte in 10..20 {
                reach(&mut a, of_c, &mut c, byte);
            }
            let of_b = a.insert(b.name()).expect("an address");
            assert_eq!(name == b.name(), !dies);
            reach(&mut a, of_b, &mut b, 4);
            reach(&mut a, of_c, &mut c, 5);
        }
    });
}

/// Addresses come and go: what was removed makes room for the next, and a peer is reached by its new number, not by its old.
#[test]
fn what_was_removed_makes_room() {
    const MANY: u16 = 500;
    let test = "what_was_removed_makes_room";
    each(test, |way| {
        let Some(mut a) = open(test, way) else { return };
        let Some(mut b) = open(test, way) else { return };
        let of_b = a.insert(b.name()).expect("an address");
        reach(&mut a, of_b, &mut b, 1);
        let mut highest = 0;
        for port in 1..=MANY {
            let mut elsewhere = b.name().to_vec();
            elsewhere[2..4].copy_from_slice(&port.to_be_bytes()); // of a socket's address
            let nobody = a.insert(&elsewhere).expect("an address");
            assert_ne!(nobody, of_b, "{}", way.0);
            highest = highest.max(nobody);
            assert_eq!(a.remove(nobody), Ok(()), "{}", way.0);
        }
        assert!(highest < u64::from(MANY) / 10, "{}: number {highest}", way.0);
        assert_eq!(a.remove(of_b), Ok(()), "{}", way.0);
        // Twice is one more than once.
        let twice = [(); 2].map(|()| a.insert(b.name()).expect("an address"));
        assert_eq!(a.remove(twice[0]), Ok(()), "{}", way.0);
        reach(&mut a, twice[1], &mut b, 2);
        assert_eq!(a.addresses(), 1, "{}", way.0);
    });
}
