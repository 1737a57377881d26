//! Receives without a request: they take what they ask for and leave everything else as it was.
#![allow(unsafe_code, clippy::unwrap_used)] // regions of test buffers; helpers outside `#[test]`

#[path = "util/pipe.rs"]
mod pipe;

use ironweave_btl::{Loopback, Peer, memory::OwnedBuffer};
use ironweave_pml::ob1::{
    CommId, CommSpec, Completion, Config, Mode, Ob1, Payload, PmlError, Source, Started, TagMatch,
};

const ME: Peer = Peer(0);

struct Alone {
    engine: Ob1<Loopback>,
    comm: CommId,
}

impl Alone {
    /// One process that has heard of itself once.
    fn new() -> Alone {
        let mut engine = Ob1::new(Config::new(ME));
        engine.add_btl(Loopback::new(ME));
        let addresses = engine.addresses();
        engine.add_peer(ME, &addresses).unwrap();
        let comm = engine.add_comm(CommSpec::intra(0, 0, 0, vec![ME])).unwrap();
        let mut alone = Alone { engine, comm };
        alone.send(b"first", 1);
        assert_eq!(alone.direct(16, 1), None, "not heard of before");
        assert_eq!(alone.receive(16, 1), (b"first".to_vec(), Ok(())));
        alone
    }

    fn send(&mut self, data: &[u8], tag: i32) {
        let data = Payload::owned(data.to_vec());
        assert_eq!(self.engine.send(self.comm, Mode::Standard, &data, 0, tag), Ok(Started::Done));
    }

    /// Receives without a request into a buffer of `len` bytes.
    fn direct(&mut self, len: usize, tag: i32) -> Option<Vec<u8>> {
        let into = OwnedBuffer::zeroed(len);
        // SAFETY: given back when the call returns, before `into` is looked at.
        let region = unsafe { into.recv_region() };
        let bytes = self.engine.recv_direct(self.comm, &region, 0, tag, 0)?;
        Some(into.as_slice()[..bytes].to_vec())
    }

    /// Whether another look may find what `direct` did not.
    fn is_due(&self, len: usize) -> bool {
        let into = OwnedBuffer::zeroed(len);
        // SAFETY: nothing is written there.
        let region = unsafe { into.recv_region() };
        self.engine.is_due(self.comm, &region, 0)
    }

    /// Receives with one.
    fn receive(&mut self, len: usize, tag: i32) -> (Vec<u8>, Result<(), PmlError>) {
        let into = OwnedBuffer::zeroed(len);
        // SAFETY: `into` is looked at after the receive is complete.
        let region = unsafe { into.recv_region() };
        let (from, tag) = (Source::Rank(0), TagMatch::Tag(tag));
        let request = self.engine.recv(self.comm, region.into(), from, tag).unwrap();
        for _ in 0..1000 {
            self.engine.progress();
            if let Some(Completion { status, result }) = self.engine.test(request) {
                return (into.as_slice()[..status.bytes].to_vec(), result);
            }
        }
        panic!("the receive does not end");
    }
}

#[test]
fn messages_are_taken_in_order_with_others_between() {
    let mut alone = Alone::new();
    for round in 0..100_000_u32 {
        let data = round.to_le_bytes();
        alone.send(&data, 7);
        let got = match round % 3 {
            0 => alone.receive(4, 7).0,
            _ => alone.direct(4 + (round % 2) as usize, 7).expect("it is the next"),
        };
        assert_eq!(got, data, "numbers of messages wrap around, too");
    }
    assert_eq!(alone.direct(4, 7), None, "nothing is left");
    assert_eq!(alone.engine.stats().duplicates, 0);
}

#[test]
fn only_what_another_look_may_find_is_due() {
    let mut alone = Alone::new();
    assert!(alone.is_due(16) && !alone.is_due(1 << 20), "nothing is here; the second is too long");
    alone.send(b"other", 8);
    assert_eq!(alone.direct(16, 7), None);
    assert!(!alone.is_due(16), "another message is here");
    assert_eq!(alone.receive(16, 8).1, Ok(()));
    assert!(alone.is_due(16));
    let posted = OwnedBuffer::zeroed(4);
    // SAFETY: `posted` lives longer than the engine uses it.
    let region = unsafe { posted.recv_region() };
    let (from, tag) = (Source::Rank(0), TagMatch::Tag(9));
    let request = alone.engine.recv(alone.comm, region.into(), from, tag).unwrap();
    assert!(!alone.is_due(16), "another receive is posted");
    alone.engine.cancel(request);
    assert!((0..100).any(|_| {
        alone.engine.progress();
        alone.engine.test(request).is_some()
    }));
    assert!(alone.is_due(16));
    alone.engine.proc_failed(ME);
    assert!(!alone.is_due(16), "its failure is known");
}

#[test]
fn another_message_stays() {
    let mut alone = Alone::new();
    alone.send(b"other", 8);
    assert_eq!(alone.direct(16, 7), None);
    assert_eq!(alone.receive(16, 8), (b"other".to_vec(), Ok(())));
}

#[test]
fn one_that_does_not_fit_stays_and_is_truncated_the_general_way() {
    let mut alone = Alone::new();
    alone.send(b"long", 7);
    assert_eq!(alone.direct(3, 7), None);
    let truncated = Err(PmlError::Truncated { sent: 4, capacity: 3 });
    assert_eq!(alone.receive(3, 7), (b"lon".to_vec(), truncated));
}

#[test]
fn long_buffers_are_left_to_the_general_way() {
    let mut alone = Alone::new();
    alone.send(b"short", 7);
    assert_eq!(alone.direct(16384, 7), None);
    assert_eq!(alone.receive(16384, 7), (b"short".to_vec(), Ok(())));
}

#[test]
fn a_receive_posted_before_comes_first() {
    let mut alone = Alone::new();
    let into = OwnedBuffer::zeroed(5);
    // SAFETY: `into` is looked at after the receive is complete.
    let region = unsafe { into.recv_region() };
    let request = alone.engine.recv(alone.comm, region.into(), Source::Any, TagMatch::Any).unwrap();
    alone.send(b"early", 7);
    assert_eq!(alone.direct(16, 7), None);
    alone.engine.progress();
    assert_eq!(alone.engine.test(request).unwrap().result, Ok(()));
    assert_eq!(into.as_slice(), b"early");
}

#[test]
fn a_message_kept_before_comes_first() {
    let mut alone = Alone::new();
    alone.send(b"1", 7);
    alone.engine.progress();
    alone.send(b"2", 7);
    assert_eq!(alone.direct(16, 7), None);
    assert_eq!(alone.receive(16, 7).0, b"1");
    assert_eq!(alone.receive(16, 7).0, b"2");
}

#[test]
fn nothing_is_taken_on_a_revoked_communicator() {
    let mut alone = Alone::new();
    alone.send(b"late", 7);
    alone.engine.revoke_comm(alone.comm);
    assert_eq!(alone.direct(16, 7), None);
}

/// Over a rail that can be lost messages are numbered: those that are taken count as those that are received.
#[test]
fn messages_of_a_rail_that_can_be_lost_are_taken_and_acknowledged() {
    let [(mut a, ca), (mut b, cb)] = pipe::engines_over(false);
    let into = OwnedBuffer::zeroed(8);
    let mut taken = 0;
    for round in 0..5000_u64 {
        assert_eq!(a.send_inline(ca, &round.to_le_bytes(), 1, 7), Ok(true), "round {round}");
        if round % 100 == 1 {
            b.progress(); // it is kept, since nothing is posted
        }
        // SAFETY: given back before `into` is looked at.
        let region = unsafe { into.recv_region() };
        let direct = b.recv_direct(cb, &region, 0, 7, 0);
        let bytes = match direct {
            Some(bytes) => bytes,
            None => {
                let (from, tag) = (Source::Rank(0), TagMatch::Tag(7));
                let request = b.recv(cb, region.into(), from, tag).unwrap();
                b.progress();
                b.test(request).expect("it is here").status.bytes
            }
        };
        assert_eq!((bytes, into.as_slice()), (8, &round.to_le_bytes()[..]));
        taken += u32::from(direct.is_some());
        a.progress();
        if round % 7 == 0 {
            // Each way tells what has arrived of the other.
            assert_eq!(b.send_inline(cb, b"answer", 0, 8), Ok(true));
            a.progress();
            // SAFETY: as above.
            let region = unsafe { into.recv_region() };
            let request = a.recv(ca, region.into(), Source::Rank(1), TagMatch::Tag(8)).unwrap();
            assert_eq!(a.test(request).expect("it is here").status.bytes, 6);
        }
    }
    assert!(taken > 4000, "{taken} were taken");
    for engine in [&mut a, &mut b] {
        assert_eq!((engine.stats().duplicates, engine.stats().malformed), (0, 0));
        assert!(engine.usage().unacknowledged < 64, "{:?}", engine.usage());
    }
}
