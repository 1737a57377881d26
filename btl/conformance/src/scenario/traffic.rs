//! While everything works: connecting, sizes, order, room, remote access.

use super::{all_back, received_by, sent_by, sent_to_frozen};
use crate::command::{Answer, Command, Flood, tier};
use crate::node::{longest, source_key};
use crate::run::{Run, Skip};
use crate::stage::Stage;
use crate::{Harness, Place};
use ironweave_btl::memory::SendRegion;
use ironweave_btl::{
    Address, Btl, Descriptor, EndpointState, Header, Peer, Refused, RemoteKey, Residue,
    RmaDescriptor, RmaKind, Token,
};
use rand::Rng;
use smallvec::smallvec;

/// Tries of `NoRoom` after which room is believed to be out.
const REFUSALS: u32 = 300;
/// Bytes that no transport may take for a peer that does not read.
const TOO_MUCH: usize = 1 << 30;

/// `up` is told once for both ways to connect, also when both sides connect at once, and `connect` again does
/// nothing.
///
/// # Errors
/// When the transport cannot run here; so for every scenario.
pub fn connects_once_and_reports_up<H: Harness>(run: &Run) -> Result<(), Skip> {
    run.rounds(5, |run| {
        let mut stage = Stage::<H>::open(run, if H::PLACE == Place::Alone { 1 } else { 3 })?;
        let peer = stage.peer();
        let caps = stage.me().caps();
        assert!(caps.max_bcopy > 0 && caps.fragment > 0, "{caps:?}");
        assert!(caps.max_short <= caps.max_bcopy + ironweave_btl::HEADER_MAX, "{caps:?}");
        assert_eq!(stage.me().btl().state(Peer(peer)), EndpointState::Closed);
        assert!(stage.connect(0, peer), "the first connect");
        let state = stage.me().btl().state(Peer(peer));
        assert!(matches!(state, EndpointState::Connecting | EndpointState::Up), "{state:?}");
        if H::PLACE != Place::Alone {
            // From both sides at once with one peer, from theirs alone with the other.
            let skew = stage.rng.random_range(0..30);
            stage.turns(skew);
            assert!(stage.connect(peer, 0), "the peer's connect");
            assert!(stage.connect(2, 0), "the third process's connect");
        }
        stage.until("endpoints to be up", |stage| {
            let check = &stage.me().check;
            let others = if H::PLACE == Place::Alone { 0..1 } else { 1..3 };
            others.into_iter().all(|peer| check.peers.get(&peer).is_some_and(|log| log.up))
        });
        assert!(stage.connect(0, peer), "connect when it is up");
        for process in 1..stage.processes() {
            stage.until("the peers to be up", |stage| {
                stage.turns(5);
                stage.status(process).up == 1
            });
        }
        stage.turns(50);
        let check = &stage.me().check;
        assert!(
            check.peers.values().all(|log| log.ups == 1 && log.closed == 0),
            "{:?}",
            check.peers
        );
        stage.finish();
        Ok(())
    })
}

/// Sends to nobody, too long sends and missing capabilities are refused in the contract's words, and descriptors
/// come back untouched.
///
/// # Errors
/// When the transport cannot run here.
pub fn refuses_what_it_cannot_take<H: Harness>(run: &Run) -> Result<(), Skip> {
    let mut stage = Stage::<H>::open(run, if H::PLACE == Place::Alone { 1 } else { 2 })?;
    let peer = stage.peer();
    let caps = stage.me().caps();
    for stranger in [7, u32::MAX, peer] {
        assert_eq!(stage.me().btl().state(Peer(stranger)), EndpointState::Closed);
        for tier in [tier::SHORT, tier::BCOPY, tier::ZCOPY] {
            let sent = stage.me().send(stranger, tier, 8.min(longest(&caps, tier)), false);
            let missing = tier == tier::ZCOPY && caps.max_zcopy == 0;
            if !missing {
                assert_eq!(
                    sent,
                    Err(Refused::Closed),
                    "tier {tier} to {stranger}, never connected"
                );
            }
        }
    }
    let foreign = Address { component: "no-such-component".into(), rail: 0, bytes: vec![1, 2, 3] };
    assert!(stage.me().btl().connect(Peer(peer), &foreign).is_err(), "a foreign address");
    let garbage = Address { bytes: vec![0xff; 7], ..stage.address(peer) };
    assert!(stage.me().btl().connect(Peer(peer), &garbage).is_err(), "a garbled address");
    assert_eq!(stage.me().btl().state(Peer(peer)), EndpointState::Closed);

    stage.connect_all();
    let long = vec![0; caps.max_bcopy.max(caps.max_short) + 1];
    let short = stage.me().btl().send_short(Peer(peer), b"h", &long[..caps.max_short]);
    assert_eq!(short, Err(Refused::TooLong { max: caps.max_short }), "header and payload count");
    let packed = stage.me().btl().send_bcopy(Peer(peer), b"h", caps.max_bcopy + 1, |_, _| {
        panic!("a refused frame was packed")
    });
    assert_eq!(packed, Err(Refused::TooLong { max: caps.max_bcopy }));
    if caps.max_zcopy < 64 << 20 {
        let bytes: &'static [u8] = vec![0; caps.max_zcopy + 1].leak();
        let descriptor = Descriptor {
            peer: Peer(peer),
            header: Header::new(b"h"),
            payload: smallvec![SendRegion::of_static(bytes)],
            token: Token(77),
        };
        let (refused, descriptor) =
            stage.me().btl().send_zcopy(descriptor).expect_err("longer than the limit");
        let right = if caps.max_zcopy == 0 {
            Refused::Unsupported
        } else {
            Refused::TooLong { max: caps.max_zcopy }
        };
        assert!(
            refused == right || refused == Refused::TooLong { max: caps.max_zcopy },
            "{refused}"
        );
        assert!(descriptor.token == Token(77) && descriptor.payload[0].as_ptr() == bytes.as_ptr());
    }
    let key = RemoteKey::new(&[9; 12]).expect("12 bytes fit");
    if !caps.put {
        let descriptor = RmaDescriptor {
            peer: Peer(peer),
            kind: RmaKind::Put(SendRegion::of_static(b"abc")),
            remote: key,
            remote_offset: 0,
            token: Token(78),
        };
        let (refused, descriptor) = stage.me().btl().rma(descriptor).expect_err("no put");
        assert!(refused == Refused::Unsupported && descriptor.token == Token(78), "{refused}");
    }
    if !caps.get {
        let region = SendRegion::of_static(b"abc");
        assert_eq!(
            stage.me().btl().register_source(Peer(peer), &region),
            Err(Refused::Unsupported)
        );
    }
    stage.me().btl().deregister(&key);
    // None of it left a trace.
    stage.flood(0, peer, 20, 100);
    let sent = sent_by(&mut stage, 0);
    received_by(&mut stage, peer, sent);
    stage.finish();
    Ok(())
}

/// All tiers at once, both ways, between three processes: each frame once, whole, in order.
///
/// # Errors
/// When the transport cannot run here.
pub fn delivers_exactly_once_in_order<H: Harness>(run: &Run) -> Result<(), Skip> {
    run.rounds(3, |run| {
        let mut stage = Stage::<H>::open(run, if H::PLACE == Place::Alone { 1 } else { 3 })?;
        stage.connect_all();
        let n = stage.processes();
        let longest = 1 << stage.rng.random_range(6..18);
        let peers: Vec<u32> = if n == 1 { vec![0] } else { (1..n).collect() };
        for &peer in &peers {
            stage.flood(0, peer, 1500, longest);
            if n > 1 {
                stage.flood(peer, 0, 1500, longest);
            }
        }
        let total = 1500 * peers.len() as u64;
        for process in 0..n {
            sent_by(&mut stage, process);
        }
        received_by(&mut stage, 0, total);
        for &peer in peers.iter().filter(|&&peer| peer != 0) {
            received_by(&mut stage, peer, 1500);
        }
        all_back(&mut stage);
        for process in 0..n {
            stage.until("operations of peers to come back", |stage| {
                stage.turns(5);
                stage.status(process).outstanding == 0
            });
            assert_eq!(stage.status(process).closed, 0, "an endpoint ended for no reason");
        }
        if !H::injects_errors() {
            let check = &stage.me().check;
            assert_eq!((check.completed_err, check.landed_err), (0, 0), "errors for no reason");
        }
        stage.finish();
        Ok(())
    })
}

/// A peer is never called silent before it is up, while something of it is here that was sent whole before, or after its end.
///
/// # Errors
/// When the transport cannot run here.
pub fn is_silent_only_where_nothing_is_here<H: Harness>(run: &Run) -> Result<(), Skip> {
    run.rounds(3, |run| {
        let alone = H::PLACE == Place::Alone;
        let mut stage = Stage::<H>::open(run, if alone { 1 } else { 2 })?;
        let peer = stage.peer();
        assert!(!stage.me().btl().is_silent(Peer(peer)), "never connected");
        assert!(!stage.me().btl().is_silent(Peer(u32::MAX)), "nobody");
        stage.connect_all();
        let mut total = 0;
        if !alone {
            // With that the peer's side is up too: it could not come up with somebody who is frozen.
            stage.flood(peer, 0, 1, 8);
            total = 1;
            received_by(&mut stage, 0, total);
        }
        for _ in 0..20 {
            let frames = stage.rng.random_range(1..5);
            let longest = 1 << stage.rng.random_range(3..12);
            total += frames;
            let all = if alone {
                let longest = longest.min(stage.me().caps().max_bcopy);
                for _ in 0..frames {
                    assert_eq!(stage.me().send(peer, tier::BCOPY, longest, false), Ok(()));
                }
                true
            } else {
                stage.tell(0, Command::Freeze(true));
                stage.flood(peer, 0, frames, longest);
                sent_to_frozen(&mut stage, peer)
            };
            if all {
                let before = stage.status(0).frames_received;
                let silent = stage.me().btl().is_silent(Peer(peer));
                stage.me().progress();
                let after = stage.status(0).frames_received;
                assert!(!silent || before == after, "silent, with {} frames here", after - before);
            }
            if !alone {
                stage.tell(0, Command::Freeze(false));
            }
            received_by(&mut stage, 0, total);
        }
        all_back(&mut stage);
        stage.tell(0, Command::Invalidate(peer, Residue::Deliver));
        stage.until("the end", |stage| !stage.me().check.log(peer).open);
        assert!(!stage.me().btl().is_silent(Peer(peer)), "its endpoint has ended");
        stage.finish();
        Ok(())
    })
}

/// Zero bytes, one byte, every power of two and its neighbours up to 8 MiB, over each tier, split to its limit.
///
/// # Errors
/// When the transport cannot run here.
pub fn carries_every_size<H: Harness>(run: &Run) -> Result<(), Skip> {
    let mut stage = Stage::<H>::open(run, if H::PLACE == Place::Alone { 1 } else { 2 })?;
    stage.connect_all();
    let peer = stage.peer();
    let caps = stage.me().caps();
    for tier in [tier::SHORT, tier::BCOPY, tier::ZCOPY] {
        // Megabytes in frames of a few bytes would take for ever and show nothing new.
        let most = match longest(&caps, tier) {
            0 => continue,
            limit => (8 << 20).min(limit.saturating_mul(4096)),
        };
        stage.tell(0, Command::Sweep(peer, most, tier));
        let sent = sent_by(&mut stage, 0);
        received_by(&mut stage, peer, sent);
    }
    all_back(&mut stage);
    let sent: u64 = stage.me().btl().counters().bytes_sent.get();
    stage.turns(5);
    let received = stage.status(peer).bytes_received;
    assert_eq!(sent, received, "bytes sent and received");
    stage.finish();
    Ok(())
}

/// A peer that does not read brings `NoRoom` (and no endless memory); when it reads again everything arrives and
/// there is room again.
///
/// # Errors
/// When the transport cannot run here.
pub fn runs_out_of_room_and_recovers<H: Harness>(run: &Run) -> Result<(), Skip> {
    let mut stage = Stage::<H>::open(run, if H::PLACE == Place::Alone { 1 } else { 2 })?;
    stage.connect_all();
    let peer = stage.peer();
    let alone = H::PLACE == Place::Alone;
    let caps = stage.me().caps();
    for tier in [tier::SHORT, tier::BCOPY, tier::ZCOPY] {
        let len = match longest(&caps, tier) {
            0 => continue,
            limit => limit.min(4096),
        };
        if alone && tier == tier::ZCOPY {
            continue; // nothing but the caller's own memory limits it
        }
        if !alone {
            stage.tell(peer, Command::Freeze(true));
        }
        let (mut taken, mut refused) = (0, 0);
        while refused < REFUSALS {
            match stage.me().send(peer, tier, len, false) {
                Ok(()) => {
                    taken += len;
                    refused = 0;
                    assert!(
                        taken < TOO_MUCH,
                        "{taken} bytes were taken for a peer that does not read"
                    );
                }
                Err(Refused::NoRoom) if alone => break,
                Err(Refused::NoRoom) => {
                    refused += 1;
                    stage.turn();
                }
                Err(other) => stage.fail(&format!("refused with {other} while it is up")),
            }
        }
        assert!(stage.me().btl().counters().refused.get() > 0, "the counter of refusals");
        if !alone {
            stage.tell(peer, Command::Freeze(false));
        }
        stage.until("room", |stage| {
            stage.turn();
            stage.me().send(peer, tier, len, false).is_ok()
        });
        let sent = sent_by(&mut stage, 0);
        received_by(&mut stage, peer, sent);
        all_back(&mut stage);
    }
    stage.finish();
    Ok(())
}

/// Puts and gets, as far as the transport has them: whole, in parts, beside frames, after deregistration, outside
/// of the memory, and into the end of the endpoint.
///
/// # Errors
/// When the transport cannot run here, or when one of the two processes has neither: capabilities are a process's own.
pub fn moves_registered_memory<H: Harness>(run: &Run) -> Result<(), Skip> {
    const LEN: usize = 300_000;
    // Where devices have limits: 64 bytes was the least and a byte for UCX's rc_verbs.
    const SHORT: [usize; 4] = [1, 7, 64, 65];
    run.rounds(3, |run| {
        let mut stage = Stage::<H>::open(run, if H::PLACE == Place::Alone { 1 } else { 2 })?;
        let caps = stage.me().caps();
        if !caps.put && !caps.get {
            return Err(Skip::from("the transport has neither put nor get"));
        }
        stage.connect_all();
        let peer = stage.peer();
        for put in [false, true] {
            if (put && !caps.put) || (!put && !caps.get) {
                continue;
            }
            let Some(remote) = register(&mut stage, peer, !put, LEN) else {
                return Err(Skip::from("the peer lends no memory: it chose otherwise than we did"));
            };
            let key = source_key(run.seed, peer);
            stage.flood(0, peer, 100, 4096);
            stage.flood(peer, 0, 100, 4096);
            let mut offset = 0;
            let mut short = SHORT.into_iter();
            while offset < LEN {
                let len = short.next().unwrap_or_else(|| stage.rng.random_range(1..=40_000));
                let len = len.min(LEN - offset);
                rma_when_there_is_room(&mut stage, peer, remote, put, key, offset, len);
                offset += len;
            }
            all_back(&mut stage);
            let check = &mut stage.me().check;
            assert_eq!(check.rma_err, 0, "an access failed: {:?}", check.rma_fault);
            stage.tell(peer, Command::Deregister(put.then_some(key)));
            // The key is void now: an error of the operation, or the rail's end, but no success.
            let done = stage.me().check.rma_ok;
            rma_when_there_is_room(&mut stage, peer, remote, put, key, 0, 1000);
            all_back(&mut stage);
            assert_eq!(stage.me().check.rma_ok, done, "memory was reached after deregistration");
            stage.me().check.rma_err = 0;
            stage.turns(20);
            if !stage.me().check.log(peer).open {
                stage.until("the peer's endpoint to close", |stage| {
                    stage.turns(5);
                    stage.status(peer).open == 0
                });
                stage.reach(peer);
            }
            // Into the end: everything comes back, and nothing touches local memory after.
            let remote = register(&mut stage, peer, !put, LEN).expect("it lent some before");
            for _ in 0..5 {
                rma_when_there_is_room(&mut stage, peer, remote, put, key, 0, LEN);
            }
            let turns = stage.rng.random_range(0..40);
            stage.turns(turns);
            stage.me().invalidate(peer, Residue::Deliver, false);
            stage.until("the endpoint to close", |stage| !stage.me().check.log(peer).open);
            stage.turns(50);
            stage.inspect(0);
            stage.me().check.rma_err = 0;
            stage.tell(peer, Command::Deregister(None));
            stage.reach(peer);
        }
        stage.finish();
        Ok(())
    })
}

/// Has `peer` register memory, as soon as there is room for a registration. `None` when its transport, as it is open there, has
/// nothing of the kind: a transport that measures what its node is good for may have found otherwise than ours.
pub(super) fn register<H: Harness>(
    stage: &mut Stage<H>,
    peer: u32,
    source: bool,
    len: usize,
) -> Option<RemoteKey> {
    let refusal = |why: Refused| Answer::Refused(why.to_string());
    let not_yet = [Refused::NoRoom, Refused::Connecting].map(refusal);
    loop {
        match stage.command(peer, Command::Register(source, len)) {
            Answer::Key(bytes) => return Some(RemoteKey::new(&bytes).expect("keys are short")),
            answer if answer == refusal(Refused::Unsupported) => return None,
            answer if not_yet.contains(&answer) => stage.turn(),
            other => stage.fail(&format!("registering says {other:?}")),
        }
    }
}

fn rma_when_there_is_room<H: Harness>(
    stage: &mut Stage<H>,
    peer: u32,
    remote: RemoteKey,
    put: bool,
    key: u64,
    offset: usize,
    len: usize,
) {
    stage.until("room for a put or get", |stage| {
        match stage.me().rma(peer, remote, put, key, offset, len) {
            Ok(()) | Err(Refused::Closed) => true,
            Err(Refused::NoRoom) => false,
            Err(other) => stage.fail(&format!("a put or get was refused: {other}")),
        }
    });
}

/// A flood of one tier, for scripts that want just that.
pub(super) fn one_tier(to: u32, frames: u64, longest: usize, tiers: u8) -> Command {
    Command::Flood(Flood { to, frames, longest, tiers, die_at: None })
}
