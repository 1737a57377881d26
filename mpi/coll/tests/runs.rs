//! Runs over the PML and simulated rails, in virtual time, with deaths at random moments: everybody alive returns, what
//! returns without error is right, and nothing is written after it returned (laws 1 and 2).
//!
//! `COLL_RUNS=n` runs that many seeds (default 150), `COLL_SEED=s` one of them.
#![allow(unsafe_code)] // regions of test buffers are made here

mod util;

use ironweave_btl::memory::OwnedBuffer;
use ironweave_btl::{Address, Loopback, Peer};
use ironweave_btl_sim::{Rail, RailModel, SimFault, SimNet};
use ironweave_coll::{
    CollError, Config, Context, Memory, Operation, Place, Poll, Reduction, plan as plan_one,
};
use ironweave_pml::ob1::{self, CommId, CommSpec, Ob1, PmlError};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::collections::VecDeque;
use std::sync::Arc;
use util::Kind;
use util::case::{Case, Who};
use util::oracle::{Buffers, after};

/// Events after which a simulation is believed to go on for ever.
const EVENTS_MAX: u64 = 3_000_000;
/// What memory is filled with that no operation uses any more.
const CANARY: u8 = 0x5a;

/// An operation under way, and its memory.
struct Open {
    number: usize,
    operation: Box<Operation>,
    memory: [OwnedBuffer; 2],
}

enum News {
    Dead(u32),
    Interrupted,
}

struct Process {
    me: u32,
    engine: Ob1<Rail>,
    comm: CommId,
    context: Context,
    open: VecDeque<Open>,
    next: usize,
    interrupted: bool,
    news: Vec<(u64, News)>,
    /// Memory of operations that are over.
    retired: Vec<[OwnedBuffer; 2]>,
    rng: SmallRng,
}

/// A script that everybody follows.
struct Plan {
    seed: u64,
    size: u32,
    cases: Vec<Case>,
    /// Which of them block their callers.
    blocking: Vec<bool>,
    /// Operations of a process that may be under way at a time.
    depth: usize,
    kills: Vec<(u64, u32)>,
    models: Vec<RailModel>,
    hosts: Option<Vec<u32>>,
    config: Arc<Config>,
}

impl Plan {
    fn of(seed: u64) -> Plan {
        let mut rng = SmallRng::seed_from_u64(seed);
        let size = rng.random_range(1..=12);
        let cases: Vec<Case> =
            (0..rng.random_range(2..=8)).map(|_| Case::random(&mut rng, size)).collect();
        let victims = if seed.is_multiple_of(3) { 0 } else { rng.random_range(1..=3u32.min(size)) };
        let kills = (0..victims)
            .map(|_| (rng.random_range(0..400_000), rng.random_range(0..size)))
            .collect();
        let mut shm = RailModel::shm();
        // Then messages can be received where they lie.
        shm.caps.lossless = rng.random_bool(0.7);
        let models = [shm, RailModel::tcp(), RailModel::verbs()];
        let models = match rng.random_range(0..4) {
            3 => vec![models[1].clone(), models[2].clone()],
            one => vec![models[one].clone()],
        };
        let hosts = rng.random_bool(0.5).then(|| (0..size).map(|rank| rank / 3).collect());
        let config = Arc::new(util::random_config(&mut rng));
        let depth = rng.random_range(1..=3);
        let blocking = cases.iter().map(|_| rng.random_bool(0.5)).collect();
        Plan { seed, size, cases, blocking, depth, kills, models, hosts, config }
    }
}

/// What happened, in one world or in many.
#[derive(Clone, Copy, Default, Debug)]
struct Done {
    /// Operations that succeeded, and of these the ones that ended after somebody had died.
    right: usize,
    right_after_deaths: usize,
    /// Operations that were interrupted.
    failed: usize,
    killed: usize,
    /// Processes that died in the middle of an operation.
    killed_inside: usize,
    /// Processes that interrupted their collectives, and those that revoked the communicator instead.
    interrupted: usize,
    revoked: usize,
}

impl Done {
    fn add(&mut self, other: Done) {
        self.right += other.right;
        self.right_after_deaths += other.right_after_deaths;
        self.failed += other.failed;
        self.killed += other.killed;
        self.killed_inside += other.killed_inside;
        self.interrupted += other.interrupted;
        self.revoked += other.revoked;
    }
}

struct World {
    plan: Plan,
    net: SimNet,
    processes: Vec<Option<Process>>,
    addresses: Vec<Vec<Address>>,
    /// Memory of the dead stays until the end.
    graves: Vec<Vec<[OwnedBuffer; 2]>>,
    places: Vec<Place>,
    /// Everybody's buffers before each call, and the receive buffers after it.
    before: Vec<Vec<Buffers>>,
    after: Vec<Vec<Vec<u8>>>,
    done: Done,
}

impl World {
    fn new(plan: Plan) -> World {
        let net = SimNet::new(plan.seed);
        let places = util::places(plan.size, plan.hosts.as_deref());
        let group: Vec<Peer> = (0..plan.size).map(Peer).collect();
        let mut addresses = Vec::new();
        let mut processes = Vec::new();
        for (me, place) in (0..).zip(&places) {
            let mut engine = Ob1::new(ob1::Config::new(Peer(me)));
            engine.add_btl(Rail::Own(Loopback::new(Peer(me))));
            for model in &plan.models {
                engine.add_btl(Rail::Sim(net.open(Peer(me), model)));
            }
            addresses.push(engine.addresses());
            let comm = engine
                .add_comm(CommSpec::intra(3, 0, me, group.clone()))
                .expect("the first communicator");
            processes.push(Some(Process {
                me,
                engine,
                comm,
                context: Context::new(comm, None, place.clone(), Arc::clone(&plan.config)),
                open: VecDeque::new(),
                next: 0,
                interrupted: false,
                news: Vec::new(),
                retired: Vec::new(),
                rng: SmallRng::seed_from_u64(plan.seed << 16 ^ u64::from(me)),
            }));
            net.wake_at(Peer(me), 0);
        }
        for &(at, victim) in &plan.kills {
            net.wake_at(Peer(victim), at);
        }
        let everybody = Who::all(&places);
        let mut before = Vec::new();
        let mut results = Vec::new();
        for case in &plan.cases {
            let buffers: Vec<Buffers> = everybody
                .iter()
                .map(|who| {
                    let schedule = plan_one(&case.call(*who), who.place, &plan.config);
                    let sizes = schedule.expect("right arguments").sizes();
                    case.before(*who, sizes.send, sizes.recv)
                })
                .collect();
            results.push(after(case, &everybody, &buffers));
            before.push(buffers);
        }
        World {
            net,
            processes,
            addresses,
            graves: Vec::new(),
            before,
            after: results,
            done: Done::default(),
            plan,
            places,
        }
    }

    fn run(mut self) -> Done {
        let seed = self.plan.seed;
        while let Some(Peer(me)) = self.net.next_ready() {
            self.step(me);
            if self.net.events() > EVENTS_MAX {
                panic!("seed {seed}: it never comes to rest\n{}", self.dump());
            }
        }
        for process in self.processes.iter().flatten() {
            let over = process.next == self.plan.cases.len() || process.interrupted;
            if !over || !process.open.is_empty() {
                panic!("seed {seed}: process {} hangs\n{}", process.me, self.dump());
            }
        }
        // What is still in the queues of a revoked communicator goes with the engines.
        for process in self.processes.iter_mut().flatten() {
            assert_eq!(self.net.outstanding(Peer(process.me)), 0, "seed {seed}: something is lent");
            for memory in process.retired.iter().flatten() {
                let intact = memory.as_slice().iter().all(|&byte| byte == CANARY);
                assert!(intact, "seed {seed}: memory of {} was written after the end", process.me);
            }
        }
        self.done
    }

    fn step(&mut self, me: u32) {
        if self.processes[me as usize].is_none() || self.killed(me) {
            return;
        }
        let mut process = self.processes[me as usize].take().expect("it was looked at");
        self.live(&mut process);
        self.processes[me as usize] = Some(process);
    }

    fn killed(&mut self, me: u32) -> bool {
        let now = self.net.now_ns();
        if !self.plan.kills.iter().any(|&(at, victim)| victim == me && at <= now) {
            return false;
        }
        self.net.fault(SimFault::Kill(Peer(me)));
        let process = self.processes[me as usize].take().expect("the living die once");
        let Process { engine, open, mut retired, .. } = process;
        self.done.killed += 1;
        self.done.killed_inside += usize::from(!open.is_empty());
        drop(engine);
        for Open { operation, memory, .. } in open {
            drop(operation);
            retired.push(memory);
        }
        self.graves.push(retired);
        self.tell(now, || News::Dead(me));
        true
    }

    /// Everybody alive will hear of something, each in its time.
    fn tell(&mut self, now: u64, news: impl Fn() -> News) {
        for process in self.processes.iter_mut().flatten() {
            let at = now + process.rng.random_range(0..200_000);
            process.news.push((at, news()));
            self.net.wake_at(Peer(process.me), at);
        }
    }

    fn live(&mut self, process: &mut Process) {
        let now = self.net.now_ns();
        let due: Vec<_> = process.news.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, news) in due {
            match news {
                News::Dead(peer) => process.engine.proc_failed(Peer(peer)),
                News::Interrupted => self.interrupt(process),
            }
        }
        // Not until nothing moves: what waits for room, for which time has to pass, counts as moving.
        for _ in 0..4 {
            if process.engine.progress() == 0 {
                break;
            }
        }
        let proven: Vec<Peer> = process
            .engine
            .suspects()
            .filter_map(|fault| fault.peer.filter(|_| fault.is_proof()))
            .collect();
        proven.into_iter().for_each(|peer| process.engine.proc_failed(peer));
        let mut moved = true;
        while moved {
            moved = false;
            while process.open.len() < self.plan.depth
                && process.next < self.plan.cases.len()
                && !process.interrupted
                // Whoever is blocked begins nothing; what it began before goes on.
                && !process.open.iter().any(|open| self.plan.blocking[open.number])
            {
                self.begin(process);
                moved = true;
            }
            let mut at = 0;
            while at < process.open.len() {
                match process.open[at].operation.runner().poll(&mut process.engine) {
                    Poll::Pending => {
                        let failing = process.open[at].operation.runner().failing().is_some();
                        if failing && !process.interrupted {
                            self.interrupt(process);
                            self.tell(now, || News::Interrupted);
                            moved = true;
                        }
                        at += 1;
                    }
                    Poll::Resolve(peer) => {
                        let addresses = &self.addresses[peer.index()];
                        process
                            .engine
                            .add_peer(peer, addresses)
                            .expect("the net reaches everybody");
                    }
                    Poll::Ready(outcome) => {
                        let open = process.open.remove(at).expect("it was polled");
                        self.over(process, open, outcome);
                        moved = true;
                    }
                }
            }
        }
        if process.engine.progress() > 0 || process.engine.rails().iter().any(Rail::restless) {
            self.net.wake_at(Peer(process.me), now + 300);
        }
    }

    fn begin(&mut self, process: &mut Process) {
        let case = &self.plan.cases[process.next];
        let kind = case.kind;
        let who = Who { place: &self.places[process.me as usize], second: false };
        let call = &case.call(who);
        let (send, recv) = self.before[process.next][process.me as usize].clone();
        let memory = [OwnedBuffer::from(send), OwnedBuffer::from(recv)];
        // SAFETY: the buffers live until the end of the simulation, after every engine, and are not touched while an
        // operation uses them.
        let lent =
            unsafe { Memory { send: memory[0].send_region(), recv: memory[1].recv_region() } };
        let reduction =
            Reduction::user(kind.extent(), kind == Kind::Numbers, Arc::new(kind.apply()));
        let reduction = reduction.expect("elements have bytes");
        let operation = match self.plan.blocking[process.next] {
            true => {
                let engine = &mut process.engine;
                let run = process.context.run(engine, call, &lent, Some(&reduction), 2);
                run.expect("right arguments")
            }
            false => {
                let started = process.context.start(call, lent, Some(&reduction));
                Some(started.expect("right arguments"))
            }
        };
        let number = process.next;
        process.next += 1;
        match operation {
            Some(operation) => process.open.push_back(Open { number, operation, memory }),
            None => {
                self.right(process.me, number, &memory);
                Self::retire(process, memory);
            }
        }
    }

    /// It was a success.
    fn right(&mut self, me: u32, number: usize, memory: &[OwnedBuffer; 2]) {
        self.done.right += 1;
        self.done.right_after_deaths += usize::from(self.done.killed > 0);
        let is_right = memory[1].as_slice() == self.after[number][me as usize];
        assert!(
            is_right,
            "seed {}: {:?} is wrong at {me}",
            self.plan.seed, self.plan.cases[number]
        );
    }

    /// Nobody writes it any more.
    fn retire(process: &mut Process, mut memory: [OwnedBuffer; 2]) {
        memory.iter_mut().for_each(|memory| memory.as_mut_slice().fill(CANARY));
        process.retired.push(memory);
    }

    fn over(&mut self, process: &mut Process, open: Open, outcome: Result<(), CollError>) {
        let Open { number, operation, memory } = open;
        process.context.recycle(operation);
        let case = &self.plan.cases[number];
        let me = process.me;
        match outcome {
            Ok(()) => self.right(me, number, &memory),
            Err(CollError::Pml(
                PmlError::ProcFailed { .. }
                | PmlError::Interrupted
                | PmlError::Revoked
                | PmlError::RailLost(_),
            )) if !self.plan.kills.is_empty() => {
                self.done.failed += 1;
                if !process.interrupted {
                    self.interrupt(process);
                    self.tell(self.net.now_ns(), || News::Interrupted);
                }
            }
            Err(error) => panic!("seed {}: {case:?} at {me}: {error}", self.plan.seed),
        }
        Self::retire(process, memory);
    }

    /// The communicator's collectives are over here.
    fn interrupt(&mut self, process: &mut Process) {
        let again = std::mem::replace(&mut process.interrupted, true);
        let revokes = process.rng.random_bool(0.2);
        self.done.interrupted += usize::from(!again);
        self.done.revoked += usize::from(!again && revokes);
        if !revokes {
            process.engine.interrupt_collectives(process.comm);
        } else {
            process.engine.revoke_comm(process.comm);
        }
    }

    fn dump(&self) -> String {
        let mut out = String::new();
        for process in self.processes.iter().flatten() {
            out += &format!("process {}:\n", process.me);
            for open in &process.open {
                out += &format!("  {:?}: {:?}\n", self.plan.cases[open.number], open.operation);
            }
            process.engine.dump(&mut out).expect("strings take everything");
        }
        out
    }
}

#[test]
fn everybody_returns_and_what_returns_is_right() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("COLL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("COLL_RUNS").unwrap_or(150),
    };
    // Fewer say nothing about how much happens in all.
    let are_many = seeds.end - seeds.start >= 150;
    let mut all = Done::default();
    for seed in seeds {
        println!("seed {seed}: COLL_SEED={seed} cargo nextest run -p ironweave-coll everybody");
        all.add(World::new(Plan::of(seed)).run());
    }
    println!("{all:?}");
    if are_many {
        assert!(
            all.right > 1000 && all.right_after_deaths > 100,
            "some succeed, also among the living"
        );
        assert!(all.killed > 100 && all.killed_inside > 30, "processes die, also in an operation");
        assert!(all.failed > 100 && all.interrupted > 100, "and operations end by it");
        assert!(all.revoked > 20, "some are ended by a revocation");
    }
}
