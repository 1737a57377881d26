//! Messages that stay in their senders' buffers until their receiver tells that they are there: it tells of many at once, and of the last
//! ones when it is asked, whatever becomes of the question.

mod util;

use ironweave_btl::Peer;
use ironweave_pml::ob1::{Mode, ReqId, Source, Started, TagMatch};
use util::{Memory, Profile, World, pattern};

/// Longer than what is copied whatever is under way, and shorter than what is told of at once.
const LEN: usize = 10_000;
const COUNT: usize = 100;

/// Messages from 0 to 1 that are out, posted where they go to; and one that is of another size.
struct Stream {
    world: World,
    sends: Vec<Started>,
    receives: Vec<(ReqId, Memory)>,
}

impl Stream {
    fn begin(ranks: u32, rails: &[Profile]) -> Self {
        let mut world = World::new(ranks, rails);
        let receives = (0..COUNT)
            .map(|_| {
                let into = Memory::zeroed(LEN);
                (world.recv(1, &into, Source::Rank(0), TagMatch::Any), into)
            })
            .collect();
        let sends = (0..COUNT)
            .map(|n| {
                let data = Memory::of(pattern(LEN, n as u64));
                world.send(0, 1, Mode::Standard, &data, n as i32)
            })
            .collect();
        Stream { world, sends, receives }
    }

    /// Sends that did not end.
    fn open(&mut self) -> usize {
        let engine = &self.world.engines[0];
        let open = |sent: &&Started| match sent {
            Started::Pending(request) => !engine.is_complete(*request),
            Started::Done => false,
        };
        self.sends.iter().filter(open).count()
    }

    fn end(mut self, name: &str) {
        for (n, (request, into)) in (0..).zip(self.receives) {
            assert_eq!(self.world.finish(1, request).result, Ok(()), "{name}");
            assert!(into.bytes() == pattern(LEN, n), "{name}: message {n}");
        }
        for sent in self.sends {
            assert_eq!(self.world.finish_send(0, sent), Ok(()), "{name}");
        }
        assert_eq!(self.world.engines[1].stats().malformed, 0, "{name}");
    }
}

fn wide() -> Profile {
    Profile { room: 1 << 20, ..Profile::zcopy() }
}

#[test]
fn many_are_told_of_in_few_words() {
    let mut stream = Stream::begin(2, &[wide()]);
    let out = stream.world.fabric.waiting(Peer(0), Peer(1));
    assert_eq!(out, COUNT, "all are out");
    for _ in 0..COUNT {
        stream.world.engines[1].progress();
    }
    let words = stream.world.fabric.waiting(Peer(1), Peer(0));
    assert!((1..=8).contains(&words), "{words} words for {COUNT} messages");
    stream.end("few words");
}

/// What is answered needs no word of its own, and windows of 32 or 64 messages are answered.
#[test]
fn of_short_ones_it_tells_by_itself_when_more_than_a_window_came() {
    let mut world = World::new(2, &[wide()]);
    let data = Memory::of(pattern(8, 1));
    let send = |world: &mut World, times: usize| {
        for _ in 0..times {
            assert!(matches!(world.send(0, 1, Mode::Standard, &data, 1), Started::Done));
        }
        for _ in 0..times {
            world.engines[1].progress();
        }
        world.fabric.waiting(Peer(1), Peer(0))
    };
    assert_eq!(send(&mut world, 64), 0, "the answer would tell");
    assert_eq!(send(&mut world, 1), 1, "nobody answers");
    assert_eq!(send(&mut world, 64), 1);
    // The answer tells.
    assert!(matches!(world.send(1, 0, Mode::Standard, &data, 1), Started::Done));
    assert_eq!(send(&mut world, 64), 2, "the word and the answer");
    for _ in 0..3 {
        world.engines[0].progress();
        world.engines[1].progress();
    }
    assert_eq!(send(&mut world, 1), 1);
    for _ in 0..64 + 1 + 64 + 64 + 1 {
        let request = world.recv(1, &Memory::zeroed(8), Source::Rank(0), TagMatch::Any);
        assert_eq!(world.finish(1, request).result, Ok(()));
    }
    let request = world.recv(0, &Memory::zeroed(8), Source::Rank(1), TagMatch::Any);
    assert_eq!(world.finish(0, request).result, Ok(()));
}

/// Where a header is left out that differs from the one before as that did (`verbs`), those of long messages must do so: each says what has arrived,
/// and does not say it now and then, as short ones do.
#[test]
fn headers_of_long_messages_go_on_in_even_steps() {
    let mut world = World::new(2, &[Profile::lossy()]);
    let sent = |world: &mut World, len: usize| -> Vec<Vec<u8>> {
        let data = Memory::of(pattern(len, 1));
        let one = |_| {
            let started = world.send(0, 1, Mode::Standard, &data, 1);
            let header = world.fabric.last_header(0, Peer(0), Peer(1));
            let into = Memory::zeroed(len);
            let request = world.recv(1, &into, Source::Rank(0), TagMatch::Any);
            assert_eq!(world.finish(1, request).result, Ok(()));
            assert_eq!(world.finish_send(0, started), Ok(()));
            // The answer, which is owed an acknowledgement.
            let back = world.send(1, 0, Mode::Standard, &data, 1);
            let request = world.recv(0, &into, Source::Rank(1), TagMatch::Any);
            assert_eq!(world.finish(0, request).result, Ok(()));
            assert_eq!(world.finish_send(1, back), Ok(()));
            header
        };
        (0..20).map(one).collect()
    };
    let words = |header: &Vec<u8>| -> Vec<u64> {
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        header.chunks(8).map(word).collect()
    };
    let short = sent(&mut world, 8);
    assert!(short.iter().any(|header| header.len() % 8 != 0), "short ones leave it out");
    for len in [1024, 4096] {
        let headers: Vec<_> = sent(&mut world, len).iter().map(words).collect();
        let steps: Vec<Vec<u64>> = headers
            .windows(2)
            .map(|pair| pair[0].iter().zip(&pair[1]).map(|(a, b)| b.wrapping_sub(*a)).collect())
            .collect();
        assert!(headers.iter().all(|header| header.len() == 3), "{len}: {headers:x?}");
        assert!(steps[1..].windows(2).all(|pair| pair[0] == pair[1]), "{len}: {steps:x?}");
    }
}

#[test]
fn of_the_last_ones_it_tells_when_it_is_asked() {
    let mut stream = Stream::begin(2, &[wide()]);
    for _ in 0..COUNT {
        stream.world.engines[1].progress();
    }
    while stream.world.fabric.waiting(Peer(1), Peer(0)) > 0 {
        stream.world.engines[0].progress();
    }
    assert!(stream.open() > 0, "some have not been told of");
    for _ in 0..3 {
        stream.world.engines[0].progress();
    }
    assert_eq!(stream.world.fabric.waiting(Peer(0), Peer(1)), 1, "the question");
    stream.world.engines[1].progress();
    assert_eq!(stream.world.fabric.waiting(Peer(1), Peer(0)), 1, "the answer");
    for _ in 0..3 {
        stream.world.engines[0].progress();
    }
    assert_eq!((stream.open(), stream.world.fabric.waiting(Peer(0), Peer(1))), (0, 0));
    stream.end("asked");
}

/// The sender hears from somebody else in every round.
#[test]
fn who_is_never_idle_asks_all_the_same() {
    let mut stream = Stream::begin(3, &[wide()]);
    let word = Memory::of(pattern(8, 1));
    let mut rounds = 0;
    while stream.open() > 0 {
        rounds += 1;
        assert!(rounds < 1000, "never asked: {}", stream.world.dump());
        let _ = stream.world.send(2, 0, Mode::Standard, &word, 7);
        stream.world.engines[2].progress();
        assert!(stream.world.engines[0].progress() > 0, "something came");
        stream.world.engines[1].progress();
    }
    for _ in 0..rounds {
        let request = stream.world.recv(0, &Memory::zeroed(8), Source::Rank(2), TagMatch::Any);
        assert_eq!(stream.world.finish(0, request).result, Ok(()));
    }
    stream.end("never idle");
}

/// The rail is lost before, while and after they are told of: with them, the question, or the answer.
#[test]
fn a_question_may_be_lost_with_its_rail() {
    let reserve = Profile { exclusivity: 1, ..wide() };
    for second in [wide(), reserve, Profile { room: 1 << 20, ..Profile::lossy() }] {
        for stage in 0..12 {
            let mut stream = Stream::begin(2, &[wide(), second.clone()]);
            let receiver = if stage < 6 { 0 } else { COUNT };
            for _ in 0..receiver {
                stream.world.engines[1].progress();
            }
            for _ in 0..stage {
                stream.world.engines[0].progress();
                if stage % 2 == 0 {
                    stream.world.engines[1].progress();
                }
            }
            stream.world.fabric.cut(0, Peer(0), Peer(1));
            stream.end(&format!("stage {stage}"));
        }
    }
}
