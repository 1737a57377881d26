//! A sender that runs ahead of its receiver is slowed down before the receiver's memory is gone, on simulated rails; and one whose long
//! messages find their receives posted is told that it need not ask.

mod util;

use ironweave_btl::{Loopback, Peer};
use ironweave_btl_sim::{Rail, RailModel, SimFault, SimNet};
use ironweave_pml::ob1::{
    CommId, CommSpec, Config, Mode, Ob1, PmlError, ReqId, Source, Started, TagMatch,
};
use util::{Memory, Profile, World, pattern};

/// What the receiver keeps before it asks for mercy, in bytes.
const LIMIT: usize = 64 << 10;
/// What may be on its way when the word goes out: the credits of a rail, times its longest eager message, and the journal.
const ON_THE_WAY: usize = 1 << 20;
const MESSAGES: usize = 4000;

fn rails() -> Vec<(&'static str, RailModel)> {
    let mut memory = RailModel::shm();
    (memory.caps.lossless, memory.caps.max_zcopy) = (true, 0);
    vec![("memory", memory), ("sockets", RailModel::tcp()), ("device", RailModel::verbs())]
}

/// Length of a message; some have none.
fn len(index: usize) -> usize {
    index * 37 % 2000
}

struct Pair {
    net: SimNet,
    engines: Vec<Option<Ob1<Rail>>>,
    comms: Vec<CommId>,
}

impl Pair {
    fn new(seed: u64, model: &RailModel, configure: impl Fn(&mut Config)) -> Pair {
        let net = SimNet::new(seed);
        let mut engines: Vec<Ob1<Rail>> = (0..2)
            .map(|me| {
                let mut config = Config::new(Peer(me));
                configure(&mut config);
                let mut engine = Ob1::new(config);
                engine.add_btl(Rail::Own(Loopback::new(Peer(me))));
                engine.add_btl(Rail::Sim(net.open(Peer(me), model)));
                engine
            })
            .collect();
        let addresses: Vec<_> = engines.iter().map(Ob1::addresses).collect();
        let mut comms = Vec::new();
        for (rank, engine) in (0..).zip(&mut engines) {
            for (peer, addresses) in (0..).map(Peer).zip(&addresses) {
                engine.add_peer(peer, addresses).expect("the net reaches everybody");
            }
            let spec = CommSpec::intra(1, 0, rank, vec![Peer(0), Peer(1)]);
            comms.push(engine.add_comm(spec).expect("a new id"));
        }
        let mut pair = Pair { net, engines: engines.into_iter().map(Some).collect(), comms };
        pair.settle();
        pair
    }

    fn engine(&mut self, at: usize) -> &mut Ob1<Rail> {
        self.net.wake_at(Peer(at as u32), self.net.now_ns());
        self.engines[at].as_mut().expect("it lives")
    }

    fn settle(&mut self) {
        for _ in 0..10_000_000 {
            let Some(Peer(at)) = self.net.next_ready() else { return };
            let Some(engine) = &mut self.engines[at as usize] else { continue };
            if engine.progress() > 0 || engine.rails().iter().any(Rail::restless) {
                self.net.wake_at(Peer(at), self.net.now_ns() + 100);
            }
        }
        panic!("it never comes to rest");
    }

    fn send(&mut self, from: usize, index: usize) -> Started {
        let (comm, data) = (self.comms[from], Memory::of(pattern(len(index), index as u64)));
        let sent =
            self.engine(from).send(comm, Mode::Standard, &data.payload(), 1 - from as u32, 3);
        sent.expect("arguments are right")
    }

    /// All messages, while the receiver progresses and receives nothing.
    fn flood(&mut self) -> Vec<ReqId> {
        let mut pending = Vec::new();
        for index in 0..MESSAGES {
            if let Started::Pending(request) = self.send(0, index) {
                pending.push(request);
            }
            if index % 16 == 0 {
                self.settle();
            }
            let kept = self.engine(1).usage().unexpected_bytes;
            assert!(kept <= LIMIT + ON_THE_WAY, "{kept} bytes are kept");
        }
        self.settle();
        pending
    }

    fn receive(&mut self, index: usize) -> Result<(), PmlError> {
        let (comm, into) = (self.comms[1], Memory::zeroed(2000));
        let request = self.engine(1).recv(comm, into.buffer(), Source::Any, TagMatch::Any);
        self.settle();
        let completion = self.engine(1).test(request.expect("right")).expect("it is over");
        if completion.result.is_ok() {
            let bytes = completion.status.bytes;
            assert_eq!(into.bytes()[..bytes], pattern(len(index), index as u64), "message {index}");
        }
        completion.result
    }
}

#[test]
fn a_receiver_that_is_full_has_its_sender_keep_the_rest() {
    for (name, model) in rails() {
        let mut pair = Pair::new(5, &model, |config| config.unexpected_bytes = LIMIT);
        let pending = pair.flood();
        let kept = pair.engine(1).usage();
        println!("{name}: {kept:?}, {} sends wait", pending.len());
        assert!(pending.len() > MESSAGES / 2, "{name}: the sender was not stopped");
        assert_eq!((kept.unexpected, pair.engine(1).stats().throttled), (MESSAGES, 1), "{name}");
        // All come, in order, and the sender is free again before the last has.
        for index in 0..MESSAGES {
            assert_eq!(pair.receive(index), Ok(()), "{name} {index}");
        }
        for request in pending {
            let sent = pair.engine(0).test(request).expect("it was received");
            assert_eq!(sent.result, Ok(()), "{name}");
        }
        assert_eq!(pair.engine(1).usage().unexpected_bytes, 0, "{name}");
        assert_eq!(pair.send(0, 5), Started::Done, "{name}: the sender is held back for ever");
        assert_eq!(pair.receive(5), Ok(()), "{name}");
    }
}

#[test]
fn all_senders_together_are_bounded_too() {
    let (_, model) = &rails()[0];
    let mut pair = Pair::new(6, model, |config| config.unexpected_all = LIMIT);
    let pending = pair.flood();
    assert!(pending.len() > MESSAGES / 2);
    for index in 0..MESSAGES {
        assert_eq!(pair.receive(index), Ok(()), "{index}");
    }
    assert_eq!(pair.engine(1).usage().unexpected_bytes, 0);
}

#[test]
fn a_sender_that_dies_while_it_waits_leaves_nothing_behind() {
    for (name, model) in rails() {
        let mut pair = Pair::new(7, &model, |config| config.unexpected_bytes = LIMIT);
        pair.flood();
        pair.net.fault(SimFault::Kill(Peer(0)));
        pair.engines[0] = None;
        pair.engine(1).proc_failed(Peer(0));
        pair.settle();
        let comm = pair.comms[1];
        pair.engine(1).ack_failed(comm);
        // What had come in full is delivered, in order; then no more.
        let whole = pair.engine(1).usage().unexpected;
        assert!(0 < whole && whole < MESSAGES / 2, "{name}: {whole}");
        for index in 0..whole {
            assert_eq!(pair.receive(index), Ok(()), "{name} {index}");
        }
        let usage = pair.engine(1).usage();
        assert_eq!((usage.unexpected, usage.unexpected_bytes), (0, 0), "{name}");
    }
}

#[test]
fn messages_to_oneself_are_not_held_back() {
    let (_, model) = &rails()[0];
    let mut pair = Pair::new(8, model, |config| config.unexpected_bytes = LIMIT);
    let (comm, data) = (pair.comms[0], Memory::of(pattern(2000, 1)));
    for _ in 0..200 {
        let sent = pair.engine(0).send(comm, Mode::Standard, &data.payload(), 0, 3);
        assert_eq!(sent, Ok(Started::Done), "it would wait for itself");
        pair.settle();
    }
}

/// Longer than what goes unasked to anybody, and not longer than what does to who waits.
const LONG: usize = 60_000;

fn waiting_world() -> World {
    let profile = Profile { posted_limit: 100_000, ..Profile::zcopy() };
    World::new(2, &[profile])
}

/// A long message from 0 to 1, received before it is sent, or after it is there; answers how many bytes were kept meanwhile.
fn long_message(world: &mut World, seed: u64, posted: bool) -> usize {
    let (data, into) = (Memory::of(pattern(LONG, seed)), Memory::zeroed(LONG));
    let (source, tag) = (Source::Rank(0), TagMatch::Tag(3));
    let early = posted.then(|| world.recv(1, &into, source, tag));
    let sent = world.send(0, 1, Mode::Standard, &data, 3);
    world.settle();
    let kept = world.engines[1].usage().unexpected_bytes;
    let request = early.unwrap_or_else(|| world.recv(1, &into, source, tag));
    assert_eq!(world.finish(1, request).result, Ok(()), "message {seed}");
    assert_eq!(world.finish_send(0, sent), Ok(()), "message {seed}");
    assert!(into.bytes() == pattern(LONG, seed), "message {seed}: other bytes");
    kept
}

#[test]
fn who_waits_for_long_messages_is_not_asked() {
    let mut world = waiting_world();
    let unasked = |world: &World| world.engines[1].stats().unasked;
    for (run, least) in [4, 8, 16].into_iter().enumerate() {
        for seed in 0..least {
            assert_eq!(unasked(&world), run as u64, "told after {seed} of {least}");
            assert_eq!(long_message(&mut world, seed, true), 0);
        }
        assert_eq!(unasked(&world), run as u64 + 1, "not told after {least}");
        // It comes whole, unasked, and too early: from then on they are announced again.
        assert!(long_message(&mut world, 100, false) > LONG);
        for seed in 101..104 {
            let kept = long_message(&mut world, seed, false);
            assert!(0 < kept && kept < LONG / 2, "{kept} bytes came unasked");
        }
    }
    assert_eq!(world.engines[0].stats().unasked, 0);
}

/// What would be read goes unasked to who waits for it, and to who would have, had its own send not come first.
#[test]
fn who_waits_for_messages_that_are_read_is_not_asked_either() {
    let profile = Profile { posted_limit: 100_000, get: true, ..Profile::zcopy() };
    for late in [0, 1, 2, 5] {
        let mut world = World::new(2, std::slice::from_ref(&profile));
        for seed in 0..4 {
            let (data, into) = (Memory::of(pattern(LONG, seed)), Memory::zeroed(LONG));
            let (source, tag) = (Source::Rank(0), TagMatch::Tag(3));
            let sent = world.send(0, 1, Mode::Standard, &data, 3);
            while world.engines[1].usage().unexpected == 0 {
                world.engines[0].progress();
                world.engines[1].progress();
            }
            for _ in 0..late {
                world.engines[1].progress();
            }
            let request = world.recv(1, &into, source, tag);
            assert_eq!(world.finish(1, request).result, Ok(()), "message {seed}");
            assert_eq!(world.finish_send(0, sent), Ok(()), "message {seed}");
            assert!(into.bytes() == pattern(LONG, seed), "message {seed}: other bytes");
        }
        assert_eq!(world.engines[1].stats().unasked, u64::from(late <= 1), "{late} rounds");
        world.settle();
        let kept = long_message(&mut world, 100, false);
        assert_eq!(kept > LONG, late <= 1, "{kept} bytes kept, {late} rounds");
    }
}

#[test]
fn one_among_many_that_comes_too_early_is_forgiven() {
    let mut world = waiting_world();
    for seed in 0..4 + 32 {
        long_message(&mut world, seed, true);
    }
    assert!(long_message(&mut world, 100, false) > LONG, "it came unasked");
    assert!(long_message(&mut world, 101, false) > LONG, "and so does the next");
    // That was one too many.
    assert!(long_message(&mut world, 102, false) < LONG / 2);
}

#[test]
fn where_many_were_in_time_the_next_run_is_short_again() {
    for (many, least) in [(31, 8), (32, 4)] {
        let mut world = waiting_world();
        let unasked = |world: &World| world.engines[1].stats().unasked;
        for seed in 0..4 + many {
            long_message(&mut world, seed, true);
        }
        // The first of 32 is forgiven, the second is not.
        for seed in 0..2 {
            long_message(&mut world, seed, false);
        }
        for seed in 0..least {
            assert_eq!(unasked(&world), 1, "told after {seed} of {least}");
            long_message(&mut world, seed, true);
        }
        assert_eq!(unasked(&world), 2, "not told after {least}");
    }
}

#[test]
fn one_that_is_late_begins_the_run_again() {
    let mut world = waiting_world();
    for seed in 0..20 {
        long_message(&mut world, seed, seed % 4 != 3);
    }
    assert_eq!(world.engines[1].stats().unasked, 0);
}

#[test]
fn who_has_several_rails_announces_what_is_striped() {
    let profile = Profile { posted_limit: 1 << 20, ..Profile::zcopy() };
    let mut world = World::new(2, &[profile.clone(), profile]);
    let long = |world: &mut World, posted: bool| {
        let (data, into) = (Memory::of(pattern(200_000, 1)), Memory::zeroed(200_000));
        let early = posted.then(|| world.recv(1, &into, Source::Rank(0), TagMatch::Any));
        let sent = world.send(0, 1, Mode::Standard, &data, 3);
        world.settle();
        let kept = world.engines[1].usage().unexpected_bytes;
        let request = early.unwrap_or_else(|| world.recv(1, &into, Source::Any, TagMatch::Any));
        assert_eq!(world.finish(1, request).result, Ok(()));
        assert_eq!(world.finish_send(0, sent), Ok(()));
        kept
    };
    for _ in 0..6 {
        long(&mut world, true);
    }
    assert_eq!(world.engines[1].stats().unasked, 1);
    assert!(long(&mut world, false) < 100_000, "it came whole, over one of two rails");
    // One of them is lost.
    for _ in 0..8 {
        long(&mut world, true);
    }
    world.fabric.cut(1, Peer(0), Peer(1));
    world.settle();
    assert!(long(&mut world, false) > 200_000, "it was announced");
}
