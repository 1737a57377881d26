//! A peer from which nothing comes any more, though no rail says so: requests wait, and end when the owner has judged.

mod util;

use ironweave_btl::Peer;
use ironweave_btl_sim::{Chaos, ChaosPlan, Rail, RailModel, SimNet};
use ironweave_pml::ob1::{
    CommSpec, Config, Mode, Ob1, PmlError, ReqId, Source, Started, TagMatch, Usage,
};
use util::{Memory, pattern};

type Engine = Ob1<Rail>;

/// Lets virtual time run until nothing moves any more.
fn settle(net: &SimNet, engines: &mut [Engine]) {
    for _ in 0..1_000_000 {
        let Some(Peer(at)) = net.next_ready() else { return };
        let engine = &mut engines[at as usize];
        if engine.progress() > 0 || engine.rails().iter().any(Rail::restless) {
            net.wake_at(Peer(at), net.now_ns() + 100);
        }
    }
    panic!("it never comes to rest");
}

#[test]
fn requests_with_a_peer_that_fell_silent_end_when_it_is_judged() {
    let (mut waited, mut over) = (0, 0);
    for seed in 0..40 {
        let models = [RailModel::tcp(), RailModel::shm(), RailModel::verbs(), RailModel::silent()];
        let model = &models[seed as usize % 4];
        let net = SimNet::new(seed);
        let mut engines: Vec<Engine> = (0..2)
            .map(|me| {
                let mut engine = Ob1::new(Config::new(Peer(me)));
                let mute = if me == 0 { 100 } else { 0 };
                let plan = ChaosPlan { seed, mute, losses_max: 1, ..ChaosPlan::default() };
                let rail = Chaos::new(net.open(Peer(me), model), plan);
                engine.add_btl(Rail::Chaos(Box::new(rail)));
                engine
            })
            .collect();
        let addresses: Vec<_> = engines.iter().map(Ob1::addresses).collect();
        let mut comms = Vec::new();
        for (rank, engine) in (0..).zip(&mut engines) {
            engine.add_peer(Peer(1 - rank), &addresses[1 - rank as usize]).expect("a route");
            let spec = CommSpec::intra(1, 0, rank, vec![Peer(0), Peer(1)]);
            comms.push(engine.add_comm(spec).expect("a new id"));
        }
        let mut open: Vec<(usize, ReqId)> = Vec::new();
        for number in 0..12 {
            let len = [8, 5_000, 200_000][number % 3];
            for (me, &comm) in comms.iter().enumerate() {
                let (data, into) = (Memory::of(pattern(len, 1)), Memory::zeroed(len));
                let (engine, other) = (&mut engines[me], 1 - me as u32);
                let posted = engine.recv(comm, into.buffer(), Source::Rank(other), TagMatch::Any);
                open.push((me, posted.expect("right")));
                let sent = engine.send(comm, Mode::Standard, &data.payload(), other, 1);
                if let Started::Pending(request) = sent.expect("right") {
                    open.push((me, request));
                }
                net.wake_at(Peer(me as u32), net.now_ns());
            }
            settle(&net, &mut engines);
        }
        let mut end = |engines: &mut [Engine], open: &mut Vec<(usize, ReqId)>| {
            open.retain(|&(me, request)| {
                let Some(completion) = engines[me].test(request) else { return true };
                let rank = 1 - me as u32;
                let fine = [Ok(()), Err(PmlError::ProcFailed { rank })];
                assert!(fine.contains(&completion.result), "seed {seed}: {completion:?}");
                over += 1;
                false
            });
        };
        end(&mut engines, &mut open);
        waited += open.len();
        for (me, engine) in engines.iter_mut().enumerate() {
            engine.proc_failed(Peer(1 - me as u32));
            net.wake_at(Peer(me as u32), net.now_ns());
        }
        settle(&net, &mut engines);
        end(&mut engines, &mut open);
        assert!(open.is_empty(), "seed {seed}: {} requests never end", open.len());
        for (me, (engine, &comm)) in engines.iter_mut().zip(&comms).enumerate() {
            // What was not received goes with the communicator.
            engine.free_comm(comm);
            assert_eq!(engine.usage(), Usage::default(), "seed {seed}: {me} holds something");
            let lent = (net.outstanding(Peer(me as u32)), net.registrations(Peer(me as u32)));
            assert_eq!(lent, (0, 0), "seed {seed}: {me} has lent something");
        }
    }
    println!("{waited} requests waited for a silent peer, {over} ended");
    assert!(waited > 100, "silence was seldom met: {waited}");
}
