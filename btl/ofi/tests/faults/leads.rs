//! Long frames over lanes: in their order among others, and what becomes of those that a pair of lanes ends under.

use super::*;

/// Bytes of a long frame: more than a socket takes at once, where several are under way.
const FRAME: usize = 400 << 10;
/// Of one that goes as one message, out of the sender's memory like the long ones.
const SHORT: usize = 30_000;
/// So many are more than the system takes at once. Every third is a short one.
const FRAMES: usize = 36;

fn is_short(number: usize) -> bool {
    number % 3 == 2
}

/// The bytes of the frame with that number.
fn frame(number: usize) -> Vec<u8> {
    bytes_of(if is_short(number) { SHORT } else { FRAME }, number)
}

/// Frames that went out over lanes, and that came by them: what the rail says.
fn led(node: &Node) -> [usize; 2] {
    [" led out", " led in"].map(|word| node.count(word))
}

fn bytes_of(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251 + seed * 7) as u8).collect()
}

/// Sends all of `source`, which is kept until it came back.
fn send(node: &mut Node, to: Peer, source: &OwnedBuffer, token: u64) -> Result<(), Refused> {
    let header = ironweave_btl::Header::new(b"long");
    // SAFETY: tests keep the buffer longer than the rail, or until it came back.
    let payload = [unsafe { source.send_region() }].into_iter().collect();
    let descriptor = Descriptor { peer: to, header, payload, token: Token(token) };
    node.btl.send_zcopy(descriptor).map_err(|(refused, _)| refused)
}

/// A pair with lanes that carry frames; `None` where there are none.
fn joined(test: &str, way: (&str, &str, &str)) -> Option<Pair> {
    let mut pair = Pair::open(test, way)?;
    // By any other way they go through buffers.
    assert_eq!(pair.a.btl.caps().max_zcopy > 0, way.2 == "tcp", "{}", way.0);
    assert_eq!(std::env::var_os("FI_TCP_MAX_SAVED"), None, "for the library's first call only");
    if way.2 != "tcp" {
        return None;
    }
    let source = OwnedBuffer::from(bytes_of(120_000, 0));
    let mut token = 0;
    until("a frame over lanes", || {
        for (from, to) in [(&mut pair.a, Peer(1)), (&mut pair.b, Peer(0))] {
            token += 1;
            let _ = send(from, to, &source, token); // no room: the next time
        }
        pair.turn();
        led(&pair.a)[0] > 0 && led(&pair.b)[0] > 0
    });
    until("all to be back", || {
        pair.turn();
        [&pair.a, &pair.b].iter().all(|node| node.btl.unflushed() == 0)
    });
    pair.turns_for(Duration::from_millis(20));
    for node in [&mut pair.a, &mut pair.b] {
        assert!(node.seen.sent.iter().all(|(_, outcome)| outcome.is_ok()), "{}", way.0);
        assert!(node.seen.frames.iter().all(|frame| frame == source.as_slice()), "{}", way.0);
        node.seen = Record::default();
    }
    Some(pair)
}

#[test]
fn long_frames_keep_their_place_among_others() {
    let test = "long_frames_keep_their_place_among_others";
    each(test, |way| {
        for lands in [false, true] {
            let Some(mut pair) = joined(test, way) else { return };
            pair.b.seen.lands = lands;
            let lens = [
                140_000,
                112 << 10,
                200,
                200_000,
                9_000,
                FRAME,
                114_000,
                1,
                20_000,
                170_000,
                80_000,
            ];
            let frames: Vec<Vec<u8>> =
                (0..200).map(|n| bytes_of(lens[n % lens.len()] + n, n)).collect();
            let before = led(&pair.b)[1];
            let sources: Vec<OwnedBuffer> = frames.iter().cloned().map(OwnedBuffer::from).collect();
            for (number, source) in sources.iter().enumerate() {
                until("room", || {
                    let sent = match source.len() {
                        0..1000 => pair.a.btl.send_short(Peer(1), b"short", source.as_slice()),
                        _ => send(&mut pair.a, Peer(1), source, number as u64),
                    };
                    pair.turn();
                    sent.is_ok()
                });
            }
            let long = frames.iter().filter(|frame| frame.len() >= 1000).count();
            until("all to arrive", || {
                pair.turn();
                let came = pair.b.seen.frames.len() + pair.b.seen.landed.len();
                came == frames.len() && pair.a.seen.sent.len() == long
            });
            assert!(led(&pair.b)[1] > before + 50, "{}: they went another way", way.0);
            assert!(pair.a.seen.sent.iter().all(|(_, outcome)| outcome.is_ok()), "{}", way.0);
            // Those that land come in the order in which memory was asked for them, and so do the others.
            let mut others = pair.b.seen.frames.iter();
            let mut landed = pair.b.seen.landed.iter();
            for frame in &frames {
                let target = landed.as_slice().first().map(|(at, _)| *at as usize);
                let here = target.map(|at| pair.b.seen.targets[at].as_slice());
                if here == Some(&frame[..]) {
                    assert_eq!(landed.next().map(|(_, outcome)| outcome.clone()), Some(Ok(())));
                } else {
                    assert!(others.next() == Some(frame), "{}: out of order", way.0);
                }
            }
            assert_eq!(lands, !pair.b.seen.landed.is_empty(), "{}", way.0);
            for node in [&pair.a, &pair.b] {
                assert!(node.seen.faults.is_empty(), "{}: {:?}", way.0, node.seen.faults);
            }
        }
    });
}

/// Who has just heard of something may be about to post the receive that a LEAD belongs to: memory for its rest is asked for in another
/// call of `progress`, whichever of them came first, and by whichever way.
#[test]
fn a_long_frame_waits_for_who_hears_other_news() {
    let test = "a_long_frame_waits_for_who_hears_other_news";
    each(test, |way| {
        let Some(Pair { mut a, mut b }) = joined(test, way) else { return };
        b.seen.lands = true;
        let before = led(&b)[1];
        for round in 0..40 {
            // With a LEAD, and as one message.
            let len = if round % 4 < 2 { 120_000 } else { 70_000 };
            let source = OwnedBuffer::from(bytes_of(len + round, round));
            let (mut news, mut long) = (false, false);
            until("room", || {
                news = news || a.btl.send_short(Peer(1), b"news", &[round as u8; 8]).is_ok();
                long = news && (long || send(&mut a, Peer(1), &source, round as u64).is_ok());
                a.btl.progress(&mut a.seen);
                long
            });
            if round % 2 == 0 {
                // Both are there when it looks.
                std::thread::sleep(Duration::from_millis(2));
            }
            until("both", || {
                // What came as one message is whole when it is asked for; of a LEAD the rest comes later, and is other news.
                let news = |seen: &Record| {
                    let rests = if len == 120_000 { seen.landed.len() } else { 0 };
                    seen.frames.len() + rests
                };
                let (heard, asked) = (news(&b.seen), b.seen.targets.len());
                b.btl.progress(&mut b.seen);
                a.btl.progress(&mut a.seen);
                let hears = news(&b.seen) > heard;
                assert!(!(hears && b.seen.targets.len() > asked), "{}: round {round}", way.0);
                b.seen.landed.len() == round + 1 && a.seen.sent.len() == round + 1
            });
            let (at, outcome) = b.seen.landed.last().expect("it landed");
            assert_eq!((outcome, b.seen.frames.len()), (&Ok(()), round + 1), "{}", way.0);
            assert!(b.seen.targets[*at as usize].as_slice() == source.as_slice(), "{}", way.0);
        }
        assert_eq!(led(&b)[1] - before, 20, "{}: half of them with a LEAD", way.0);
    });
}

/// An end that delivers what has arrived delivers all of it, as many frames as the window has room for.
#[test]
fn what_has_arrived_is_delivered_at_the_end() {
    const SOME: usize = 20;
    let test = "what_has_arrived_is_delivered_at_the_end";
    each(test, |way| {
        let Some(Pair { mut a, mut b }) = joined(test, way) else { return };
        b.seen.lands = true;
        // Every third has a LEAD.
        let len = |n: usize| if n % 3 == 1 { 120_000 } else { 36_000 };
        let sources: Vec<OwnedBuffer> =
            (0..100).map(|n| OwnedBuffer::from(bytes_of(len(n) + n, n))).collect();
        let mut count = 0;
        until("the window to be full", || {
            let sent = send(&mut a, Peer(1), &sources[count], count as u64).is_ok();
            count += usize::from(sent);
            a.btl.progress(&mut a.seen);
            !sent && a.seen.sent.len() == count
        });
        assert!(count > SOME, "{}: {count} frames", way.0);
        let before = led(&b)[1];
        b.btl.invalidate(Peer(0), Residue::Deliver, &mut b.seen);
        let led_in = led(&b)[1] - before;
        let landed = b.seen.landed.iter().filter(|(_, outcome)| outcome.is_ok()).count();
        let whole = landed + b.seen.frames.len();
        println!("{}: {whole} of {count} frames, {landed} with a LEAD", way.0);
        assert_eq!((whole, landed), (count, (count + 1) / 3), "{}", way.0);
        assert_eq!(led_in, landed, "{}: those are LEADs", way.0);
        let (led, others): (Vec<_>, Vec<_>) =
            sources[..count].iter().partition(|source| source.len() >= 120_000);
        for ((at, _), source) in b.seen.landed.iter().zip(led) {
            let target = &b.seen.targets[*at as usize].as_slice()[..source.len()];
            assert!(target == source.as_slice(), "{}", way.0);
        }
        for (frame, source) in b.seen.frames.iter().zip(others) {
            assert!(frame == source.as_slice(), "{}", way.0);
        }
    });
}

/// The receiver does not look while frames are on their way, and its sender gives the connection up, or takes back memory that it has lent
/// over the same lanes. Its memory comes back at once, and may be written; what the receiver has as whole is right, and the rest of
/// its memory is its own again.
#[test]
fn frames_that_are_cut_off_leave_memory_alone() {
    let test = "frames_that_are_cut_off_leave_memory_alone";
    each(test, |way| {
        for (gives_up, turns) in [(true, 1), (true, 40), (false, 1), (false, 40), (false, 4000)] {
            let Some(Pair { mut a, mut b }) = joined(test, way) else { return };
            b.seen.lands = true;
            let lent = OwnedBuffer::from(vec![1; 1 << 20]);
            // SAFETY: kept longer than the rail.
            let key = a.btl.register_source(Peer(1), &unsafe { lent.send_region() });
            let key = key.expect("memory");
            let mut sources: Vec<OwnedBuffer> =
                (0..FRAMES).map(|n| OwnedBuffer::from(frame(n))).collect();
            for (number, source) in sources.iter().enumerate() {
                send(&mut a, Peer(1), source, number as u64).expect("room for some frames");
            }
            for turn in 0..turns {
                a.turn();
                if turn % 8 == 7 && turn < 32 {
                    b.turn();
                }
            }
            for short in [false, true] {
                let is_back = |n| a.seen.sent.iter().any(|(token, _)| *token == n as u64);
                let stuck = (0..FRAMES).filter(|&n| is_short(n) == short && !is_back(n)).count();
                assert!(stuck > 0, "{}: some are under way", way.0);
            }
            if gives_up {
                a.btl.invalidate(Peer(1), Residue::Discard, &mut a.seen);
            } else {
                a.btl.deregister(&key);
                until("the end of the connection", || a.turn() + a.seen.closed as usize > 0);
                until("all to be back", || {
                    a.turn();
                    a.seen.closed == 1
                });
                let fault = a.seen.faults.first().expect("it is told");
                assert_eq!(fault.scope, Scope::Rail, "{}", way.0);
            }
            assert_eq!(a.seen.sent.len(), FRAMES, "{}: all are back", way.0);
            for source in &mut sources {
                source.as_mut_slice().fill(0xEE);
            }
            until("the other side to see it", || {
                a.turn();
                b.turn();
                b.seen.closed == 1
            });
            let (short, long): (Vec<usize>, Vec<usize>) = (0..FRAMES).partition(|&n| is_short(n));
            for (at, outcome) in &b.seen.landed {
                if outcome.is_ok() {
                    let whole = b.seen.targets[*at as usize].as_slice();
                    assert!(whole == frame(long[*at as usize]), "{}: frame {at}", way.0);
                }
            }
            for (at, whole) in b.seen.frames.iter().enumerate() {
                assert!(*whole == frame(short[at]), "{}: short frame {at}", way.0);
            }
            assert_eq!(b.seen.landed.len(), b.seen.targets.len(), "{}: all is back", way.0);
            for target in &mut b.seen.targets {
                target.as_mut_slice().fill(0xDD);
            }
            // A new life, and new lanes.
            let address = b.btl.address();
            a.seen = Record { up: 0, ..Record::default() };
            a.btl.connect(Peer(1), &address).expect("it is reachable");
            let again = OwnedBuffer::from(bytes_of(FRAME, 99));
            until("a new life", || {
                a.turn();
                b.turn();
                a.seen.up == 1
            });
            let known = b.seen.targets.len();
            b.seen.closed = 0;
            let before = led(&a)[0];
            until("new lanes", || {
                let _ = send(&mut a, Peer(1), &again, 1);
                a.turn();
                b.turn();
                led(&a)[0] > before
            });
            until("the last to arrive", || {
                a.turn();
                b.turn();
                a.btl.unflushed() == 0
                    && b.seen.landed.len() == b.seen.targets.len()
                    && b.seen.targets.len() > known
            });
            for target in &b.seen.targets[..known] {
                let still = target.as_slice().iter().all(|&byte| byte == 0xDD);
                assert!(still, "{}: memory that was given back was written", way.0);
            }
            for target in &b.seen.targets[known..] {
                assert!(target.as_slice() == again.as_slice(), "{}: other bytes", way.0);
            }
        }
    });
}

/// The sender has its memory back, but the receiver closes its lane before it has looked: the frame is lost, and both see that.
#[test]
fn a_frame_that_was_sent_and_never_read_is_missed() {
    let test = "a_frame_that_was_sent_and_never_read_is_missed";
    each(test, |way| {
        for len in [SHORT, 80_000, 140_000] {
            let Some(Pair { mut a, mut b }) = joined(test, way) else { return };
            let lent = OwnedBuffer::from(vec![1; 1 << 20]);
            // SAFETY: kept longer than the rail.
            let key = b.btl.register_source(Peer(0), &unsafe { lent.send_region() });
            let key = key.expect("memory");
            let source = OwnedBuffer::from(bytes_of(len, 1));
            send(&mut a, Peer(1), &source, 1).expect("room for one frame");
            until("it to be sent", || {
                a.turn();
                !a.seen.sent.is_empty()
            });
            assert_eq!(a.seen.sent, [(1, Ok(()))], "{}", way.0);
            b.btl.deregister(&key);
            until("both to see it", || {
                a.turn();
                b.turn();
                a.seen.closed == 1 && b.seen.closed == 1
            });
            assert!(b.seen.frames.is_empty() && b.seen.landed.is_empty(), "{}", way.0);
            assert_eq!(a.seen.faults.first().map(|fault| fault.scope), Some(Scope::Rail));
        }
    });
}
