//! The simulated net by itself: a seed replays exactly, seeds differ, and a killed process is seen as its rail
//! says. What every transport must keep is in the conformance suite (`tests/conformance.rs`).

use ironweave_btl::{Btl, Descriptor, EndpointState, Fault, Peer, Refused, RmaDescriptor, Sink};
use ironweave_btl_sim::{RailModel, SimBtl, SimFault, SimNet};
use std::fmt::Write;

#[derive(Default)]
struct Log(String);

impl Sink for Log {
    fn frame(&mut self, from: Peer, header: &[u8], payload: &[u8]) {
        let _ = writeln!(self.0, "frame {from} {header:?} {}", payload.len());
    }
    fn completed(&mut self, descriptor: Descriptor, outcome: Result<(), Fault>) {
        let _ = writeln!(self.0, "completed {:?} {outcome:?}", descriptor.token);
    }
    fn rma_completed(&mut self, descriptor: RmaDescriptor, outcome: Result<(), Fault>) {
        let _ = writeln!(self.0, "rma {:?} {outcome:?}", descriptor.token);
    }
    fn up(&mut self, peer: Peer) {
        let _ = writeln!(self.0, "up {peer}");
    }
    fn fault(&mut self, fault: Fault) {
        let _ = writeln!(self.0, "fault {fault}");
    }
    fn closed(&mut self, peer: Peer) {
        let _ = writeln!(self.0, "closed {peer}");
    }
}

struct World {
    net: SimNet,
    rails: Vec<SimBtl>,
    log: Log,
}

impl World {
    fn new(seed: u64, n: u32, model: &RailModel) -> Self {
        let net = SimNet::new(seed);
        let rails = (0..n).map(|me| net.open(Peer(me), model)).collect();
        World { net, rails, log: Log::default() }
    }

    /// Runs until nothing happens any more.
    fn settle(&mut self) {
        while let Some(process) = self.net.next_ready() {
            let _ = writeln!(self.log.0, "{} ns, {process}:", self.net.now_ns());
            self.rails[process.index()].progress(&mut self.log);
        }
    }

    fn connect(&mut self, from: u32, to: u32) {
        let address = self.rails[to as usize].address();
        self.rails[from as usize].connect(Peer(to), &address).expect("a good address");
    }
}

fn traffic(seed: u64) -> String {
    let mut world = World::new(seed, 4, &RailModel::tcp());
    for (from, to) in [(0, 1), (1, 0), (2, 3), (0, 3)] {
        world.connect(from, to);
    }
    world.settle();
    for round in 0..20 {
        for (from, to) in [(0, 1), (1, 0), (3, 2), (0, 3)] {
            let _ = world.rails[from].send_bcopy(Peer(to), &[round], 3000, |_, _| {});
        }
        if round == 10 {
            world.net.fault_at(world.net.now_ns() + 9_000, SimFault::Kill(Peer(3)));
        }
    }
    world.settle();
    world.net.assert_quiescent();
    world.log.0
}

#[test]
fn a_seed_replays_exactly_and_seeds_differ() {
    assert_eq!(traffic(5), traffic(5));
    assert_ne!(traffic(5), traffic(6));
}

#[test]
fn death_shows_as_the_rail_has_it() {
    for (model, shown) in [
        (
            RailModel::shm(),
            Some("fault process fault with peer 1: the process is gone\nclosed peer 1"),
        ),
        (
            RailModel::tcp(),
            Some(
                "fault rail fault with peer 1: the connection was closed by the other side\nclosed peer 1",
            ),
        ),
        (RailModel::verbs(), None),
        (RailModel::silent(), None),
    ] {
        let mut world = World::new(1, 2, &model.calm());
        world.connect(0, 1);
        world.settle();
        world.net.fault(SimFault::Kill(Peer(1)));
        world.settle();
        match shown {
            Some(text) => {
                assert!(world.log.0.contains(text), "{}", world.log.0);
                assert_eq!(world.rails[0].state(Peer(1)), EndpointState::Closed);
            }
            None => assert_eq!(world.rails[0].state(Peer(1)), EndpointState::Up),
        }
    }
}

#[test]
fn death_shows_on_use_and_a_silent_rail_runs_out_of_room() {
    for (model, on_use) in [(RailModel::verbs(), true), (RailModel::silent(), false)] {
        let credits = model.credits;
        let mut world = World::new(1, 2, &model.calm());
        world.connect(0, 1);
        world.settle();
        world.net.fault(SimFault::Kill(Peer(1)));
        for _ in 0..credits {
            world.rails[0].send_short(Peer(1), b"h", b"x").unwrap();
        }
        assert_eq!(world.rails[0].send_short(Peer(1), b"h", b"x"), Err(Refused::NoRoom));
        world.settle();
        let now = world.rails[0].send_short(Peer(1), b"h", b"x");
        assert_eq!(now, Err(if on_use { Refused::Closed } else { Refused::NoRoom }));
    }
}

#[test]
fn a_cut_delays_if_healed_in_time_and_breaks_the_rail_if_not() {
    for healed in [true, false] {
        let mut world = World::new(3, 2, &RailModel::tcp().calm());
        world.connect(0, 1);
        world.settle();
        let now = world.net.now_ns();
        world.net.fault(SimFault::Cut(Peer(0), Peer(1), None));
        if healed {
            world.net.fault_at(now + 1_000_000, SimFault::Heal);
        }
        for round in 0..5 {
            world.rails[0].send_short(Peer(1), &[round], b"x").unwrap();
        }
        world.settle();
        let frames = world.log.0.matches("frame peer 0").count();
        let faults = world.log.0.matches("no answer in the time allowed").count();
        assert_eq!((frames, faults), if healed { (5, 0) } else { (0, 2) }, "{}", world.log.0);
    }
}
