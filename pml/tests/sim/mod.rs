//! The whole point-to-point stack in virtual time: many processes, random traffic, random deaths, one thread.
//!
//! Laws held after each step: 1 (each request ends once, with success or an error that is true), 2 (memory that no
//! request uses was not written), 3 (no panic, and no error between the living), 5 (what a receiver has, its sender was
//! not told to be revoked), 6 (order, by the oracle, among what was taken), all data bit-exact, control messages in order and
//! once; in the end: nothing lost between the living, nothing pending with the dead once everybody knows, nothing outstanding in
//! any transport, and everybody leaves in good order (`laws.rs`).
#![allow(dead_code)] // the test and the program each use a part

mod arena;
mod laws;
mod oracle;
mod plan;
mod sabotage;
mod traffic;

pub use plan::Plan;
pub use sabotage::Sabotage;

use arena::{Arena, Piece};
use ironweave_btl::{Cause, Loopback, Peer};
use ironweave_btl_sim::{Chaos, RailModel, SimBtl, SimNet};
use ironweave_pml::ob1::{
    CommId, CommSpec, Completion, Config, Ob1, PmlError, ReqId, Stats, Status,
};
use oracle::{Fate, MessageNumber, Oracle, ReceiveNumber};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use sabotage::Saboteur;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::rc::Rc;

/// A rail here.
type Rail = ironweave_btl_sim::Rail<Saboteur>;

/// Tags in use: few, so that messages compete.
const TAGS: i32 = 3;
/// Longest message, in bytes: with the limits of the simulated rails, many fragments.
const LONGEST: usize = 6_000;
/// Operations of a process that are open at a time.
const OPEN_MAX: usize = 8;
/// Rounds that a process waits with all its requests open before it goes on to the end: its script may wait for
/// receives that nobody's script posts.
const PATIENCE: u32 = 100;
/// Events after which a simulation is believed to go on for ever.
const EVENTS_MAX: u64 = 5_000_000;

/// Memory of a request.
enum Use {
    One(Piece),
    List(Vec<Piece>),
}

impl Use {
    fn pieces(&self) -> &[Piece] {
        match self {
            Use::One(piece) => std::slice::from_ref(piece),
            Use::List(pieces) => pieces,
        }
    }
}

enum What {
    Send { message: MessageNumber, cancelled: bool },
    Recv { receive: ReceiveNumber, capacity: usize, blocking: bool, cancelled: bool },
}

struct Open {
    request: ReqId,
    memory: Use,
    what: What,
    group: usize,
    persistent: bool,
}

/// What an owner of an engine comes to know.
#[derive(Clone, Copy)]
enum News {
    Dead(u32),
    /// It lives, but there is no way to it any more.
    Unreachable(u32),
    /// It was cut off some time ago: is it still?
    CutOff(u32),
    /// Somebody revoked this group.
    Revoked(usize),
}

/// A communicator as one process has it.
struct Membership {
    group: usize,
    id: CommId,
}

struct Process {
    me: u32,
    // Before `arena`, which their regions point into.
    engine: Ob1<Rail>,
    arena: Arena,
    comms: Vec<Membership>,
    open: Vec<Open>,
    left: u32,
    waited: u32,
    next_at: u64,
    /// The earliest time at which it is sure to be called again.
    alarm: u64,
    /// What this process will hear of, and when.
    news: Vec<(u64, News)>,
    known_dead: Vec<u32>,
    draining: bool,
    departed: bool,
    /// When lost rails are tried again.
    heal_at: u64,
    rng: SmallRng,
}

/// What a simulation did.
#[derive(Clone, Copy, Default, Debug)]
pub struct Summary {
    pub events: u64,
    pub messages: usize,
    pub receives: usize,
    pub failed: usize,
    pub cancelled: usize,
    pub withdrawn: usize,
    pub killed: usize,
    pub revoked: usize,
    pub controls: usize,
    pub restarts: u64,
    /// Frames for what was over, and messages that had come before, that living processes dropped.
    pub stale: u64,
    pub duplicates: u64,
    /// Requests that living processes ended at others, because the communicator was revoked.
    pub nacks: u64,
    /// Times a process said that it need not be asked before long messages.
    pub unasked: u64,
    pub healed: u64,
    pub parted: usize,
    pub virtual_ns: u64,
}

impl Summary {
    pub fn add(&mut self, other: Summary) {
        self.events += other.events;
        self.messages += other.messages;
        self.receives += other.receives;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.withdrawn += other.withdrawn;
        self.killed += other.killed;
        self.revoked += other.revoked;
        self.controls += other.controls;
        self.restarts += other.restarts;
        self.stale += other.stale;
        self.duplicates += other.duplicates;
        self.nacks += other.nacks;
        self.unasked += other.unasked;
        self.healed += other.healed;
        self.parted += other.parted;
        self.virtual_ns += other.virtual_ns;
    }
}

pub struct World {
    plan: Plan,
    net: SimNet,
    // After the processes: their rails close ports of the net, which hold regions of their arenas.
    processes: Vec<Option<Process>>,
    /// Memory of the dead stays: the living may not touch it either.
    graves: Vec<Arena>,
    addresses: Vec<Vec<ironweave_btl::Address>>,
    oracle: Oracle,
    dead: Vec<u32>,
    /// Pairs of the living whose owners gave each other up, the lower first.
    apart: BTreeSet<(u32, u32)>,
    /// By process: whether it was killed.
    is_dead: Vec<bool>,
    /// By group: whether somebody revoked it.
    revoked: Vec<bool>,
    /// By sender and receiver: control messages on their way.
    controls: BTreeMap<(u32, u32), VecDeque<Vec<u8>>>,
    controls_taken: usize,
    busy: u32,
    draining: bool,
    departing: bool,
}

type Verdict = Result<(), String>;

impl World {
    pub fn new(plan: Plan) -> Self {
        Self::with(plan, |_, rail| Rail::Sim(rail))
    }

    fn with(plan: Plan, mut wrap: impl FnMut(u32, SimBtl) -> Rail) -> Self {
        let net = SimNet::new(plan.seed);
        let mut processes: Vec<Option<Process>> = Vec::new();
        let mut addresses = Vec::new();
        for me in 0..plan.ranks {
            let mut config = Config::new(Peer(me));
            if plan.seed.is_multiple_of(2) {
                // So little that a few unexpected messages stop a sender.
                config.unexpected_bytes = 2_000;
            }
            // Two processes exchange few long messages here.
            config.posted_run = 1;
            let mut engine = Ob1::new(config);
            engine.add_btl(Rail::Own(Loopback::new(Peer(me))));
            for (at, model) in plan.rails.iter().enumerate() {
                let rail = net.open(Peer(me), model);
                engine.add_btl(if plan.chaos {
                    Rail::Chaos(Box::new(Chaos::new(rail, plan.chaos_plan(me, at))))
                } else {
                    wrap(me, rail)
                });
            }
            addresses.push(engine.addresses());
            processes.push(Some(Process {
                me,
                engine,
                arena: Arena::default(),
                comms: Vec::new(),
                open: Vec::new(),
                left: plan.operations,
                waited: 0,
                alarm: u64::MAX,
                next_at: 0,
                news: Vec::new(),
                known_dead: Vec::new(),
                draining: false,
                departed: false,
                heal_at: 0,
                rng: SmallRng::seed_from_u64(plan.seed << 20 ^ u64::from(me)),
            }));
            net.wake_at(Peer(me), 0);
        }
        for (group, members) in plan.groups.iter().enumerate() {
            let peers: Vec<Peer> = members.iter().copied().map(Peer).collect();
            for (rank, &member) in (0..).zip(members) {
                let process = processes[member as usize].as_mut().expect("nobody is dead yet");
                let spec = CommSpec::intra(group as u16, 0, rank, peers.clone());
                let id = process.engine.add_comm(spec).expect("a new communicator");
                process.comms.push(Membership { group, id });
            }
        }
        for (at, fault) in &plan.cuts {
            net.fault_at(*at, fault.clone());
        }
        for &(at, victim) in &plan.kills {
            net.wake_at(Peer(victim), at);
        }
        for &(at, by, group) in &plan.revokes {
            let process = processes[by as usize].as_mut().expect("nobody is dead yet");
            process.news.push((at, News::Revoked(group)));
            net.wake_at(Peer(by), at);
        }
        World {
            net,
            processes,
            graves: Vec::new(),
            addresses,
            oracle: Oracle::new(plan.seed),
            dead: Vec::new(),
            apart: BTreeSet::new(),
            is_dead: vec![false; plan.ranks as usize],
            revoked: vec![false; plan.groups.len()],
            controls: BTreeMap::new(),
            controls_taken: 0,
            busy: plan.ranks,
            draining: false,
            departing: false,
            plan,
        }
    }

    /// Runs to the end.
    pub fn run(mut self) -> Result<Summary, String> {
        match self.go() {
            Ok(()) => Ok(self.summary()),
            Err(why) => Err(format!("{why}\n{}", self.dump())),
        }
    }

    fn go(&mut self) -> Verdict {
        loop {
            while let Some(Peer(process)) = self.net.next_ready() {
                self.step(process)?;
                if self.net.events() > EVENTS_MAX {
                    return Err(String::from("it never comes to rest"));
                }
            }
            if self.departing {
                break;
            }
            if self.draining {
                self.judge()?;
                self.depart()?;
                continue;
            }
            // Nothing will happen any more by itself. What is left of the script waits for receives that the script
            // never posts.
            self.start_draining();
        }
        for process in self.processes.iter_mut().flatten() {
            for fault in process.engine.suspects() {
                let known = fault.peer.is_some_and(|p| self.is_dead[p.index()]);
                if fault.cause != Cause::Finalized && !known && !self.plan.losses {
                    return Err(format!("process {} takes a good-bye for {fault}", process.me));
                }
            }
        }
        Ok(())
    }

    /// The end of all: everybody has nothing left to say, and leaves.
    fn depart(&mut self) -> Verdict {
        self.departing = true;
        for process in self.processes.iter_mut().flatten() {
            let unflushed = process.engine.unflushed();
            if unflushed > 0 {
                return Err(format!("process {} has {unflushed} frames left to say", process.me));
            }
        }
        for process in self.processes.iter_mut().flatten() {
            process.departed = true;
            process.engine.depart();
        }
        Ok(())
    }

    fn start_draining(&mut self) {
        self.draining = true;
        for process in self.processes.iter_mut().flatten() {
            process.left = 0;
            self.net.wake_at(Peer(process.me), self.net.now_ns());
        }
    }

    /// Kills what is due; `true` when it was this process.
    fn killed(&mut self, me: u32) -> bool {
        let now = self.net.now_ns();
        let due = self.plan.kills.iter().any(|&(at, victim)| victim == me && at <= now);
        if !due || self.draining {
            return false;
        }
        self.net.fault(ironweave_btl_sim::SimFault::Kill(Peer(me)));
        let process = self.processes[me as usize].take().expect("the living are killed once");
        let Process { engine, arena, left, .. } = process;
        drop(engine);
        self.graves.push(arena);
        self.dead.push(me);
        self.is_dead[me as usize] = true;
        if left > 0 {
            self.busy -= 1;
        }
        // Everybody who shares a communicator with it hears of it, some time.
        let mut told = Vec::new();
        for members in self.plan.groups.iter().filter(|members| members.contains(&me)) {
            told.extend(members.iter().copied().filter(|&member| member != me));
        }
        told.sort_unstable();
        told.dedup();
        for survivor in told {
            if let Some(process) = &mut self.processes[survivor as usize] {
                let at = now + process.rng.random_range(0..=self.plan.spread_ns);
                process.news.push((at, News::Dead(me)));
                self.net.wake_at(Peer(survivor), at);
            }
        }
        true
    }

    /// One process is given the processor.
    fn step(&mut self, me: u32) -> Verdict {
        if self.processes[me as usize].is_none() || self.killed(me) {
            return Ok(());
        }
        let now = self.net.now_ns();
        let mut process = self.processes[me as usize].take().expect("looked at above");
        let verdict = self.live(&mut process, now);
        self.processes[me as usize] = Some(process);
        let verdict = verdict.and_then(|()| self.check_memory(me));
        verdict.map_err(|why| format!("process {me} at {now} ns: {why}"))
    }

    /// Has `process` called at `at`, unless it is called before anyway.
    fn wake(&self, process: &mut Process, at: u64) {
        if at < process.alarm {
            process.alarm = at;
            self.net.wake_at(Peer(process.me), at);
        }
    }

    fn live(&mut self, process: &mut Process, now: u64) -> Verdict {
        if process.alarm <= now {
            process.alarm = u64::MAX;
        }
        let mut at = 0;
        while at < process.news.len() {
            if process.news[at].0 <= now {
                let (_, news) = process.news.swap_remove(at);
                self.hear(process, news)?;
            } else {
                at += 1;
            }
        }
        if process.engine.has_lost_rails() && !process.departed {
            if now >= process.heal_at {
                process.engine.heal();
                process.heal_at = now + 100_000 + process.rng.random_range(0..100_000);
            }
            self.wake(process, process.heal_at);
        }
        for _ in 0..4 {
            if process.engine.progress() == 0 {
                break;
            }
        }
        self.take_controls(process)?;
        if process.departed {
            return Ok(());
        }
        if process.engine.has_lost_rails() {
            self.wake(process, process.heal_at); // lost just now, perhaps with the last that happens
        }
        if process.engine.has_suspects() {
            self.judge_suspects(process)?;
        }
        self.reap(process)?;
        if self.draining {
            self.drain(process)?;
            self.reap(process)?;
        } else if process.left > 0 {
            if now >= process.next_at && process.open.len() < OPEN_MAX {
                process.left -= 1;
                self.operate(process)?;
                self.reap(process)?;
                if process.left == 0 {
                    self.ends_its_script();
                }
                process.next_at = now + process.rng.random_range(0..=self.plan.think_ns);
            }
            if process.left > 0 && process.open.len() < OPEN_MAX {
                self.wake(process, process.next_at.max(now + 1));
            } else if process.left > 0 {
                // As a program that waits for what it has begun, and gives up a receive now and then.
                process.waited += 1;
                if process.waited.is_multiple_of(8) {
                    self.cancel_some(process, 20);
                    self.cancel_sends(process, 10);
                }
                if process.waited > PATIENCE {
                    process.left = 0;
                    self.ends_its_script();
                } else {
                    self.wake(process, now + 20_000);
                }
            }
        }
        let moved = process.engine.progress() > 0;
        let restless = process.engine.rails().iter().any(Rail::restless);
        // Whoever ends the last script is not among those that draining wakes.
        let late = self.draining && !process.draining;
        if moved || restless || late {
            self.wake(process, now + 300);
        }
        Ok(())
    }

    fn ends_its_script(&mut self) {
        self.busy -= 1;
        if self.busy == 0 {
            self.start_draining();
        }
    }

    fn hear(&mut self, process: &mut Process, news: News) -> Verdict {
        match news {
            News::Dead(peer) => {
                process.known_dead.push(peer);
                process.engine.proc_failed(Peer(peer));
            }
            News::Unreachable(peer) => {
                process.known_dead.push(peer);
                process.engine.unreachable(Peer(peer));
            }
            News::CutOff(peer) => {
                if process.engine.is_cut_off(Peer(peer)) && !self.is_dead[peer as usize] {
                    self.part(process, peer)?;
                }
            }
            News::Revoked(group) => self.revoke(process, group),
        }
        Ok(())
    }

    /// A process comes to know that a group is revoked, and if it is the first, everybody else does, some time.
    fn revoke(&mut self, process: &mut Process, group: usize) {
        let comm = process.comms.iter().find(|comm| comm.group == group);
        process.engine.revoke_comm(comm.expect("a member").id);
        if std::mem::replace(&mut self.revoked[group], true) {
            return;
        }
        let now = self.net.now_ns();
        for &member in &self.plan.groups[group] {
            if let Some(other) = &mut self.processes[member as usize] {
                let at = now + other.rng.random_range(0..=self.plan.spread_ns);
                other.news.push((at, News::Revoked(group)));
                self.net.wake_at(Peer(member), at);
            }
        }
    }

    /// Control messages arrive in order and once.
    fn take_controls(&mut self, process: &mut Process) -> Verdict {
        while let Some((Peer(from), bytes)) = process.engine.take_control() {
            let way = self.controls.get_mut(&(from, process.me));
            let want = way.and_then(VecDeque::pop_front);
            if want.as_deref() != Some(&bytes) {
                return Err(format!("a control message of {from} that is not the next one"));
            }
            self.controls_taken += 1;
        }
        Ok(())
    }

    fn are_apart(&self, a: u32, b: u32) -> bool {
        self.apart.contains(&(a.min(b), a.max(b)))
    }

    /// No rail between the living came back in time. Their owners give each other up, each in its time.
    fn part(&mut self, process: &mut Process, peer: u32) -> Verdict {
        let me = process.me;
        if !self.apart.insert((me.min(peer), me.max(peer))) {
            return Ok(());
        }
        let now = self.net.now_ns();
        self.hear(process, News::Unreachable(peer))?;
        if let Some(other) = &mut self.processes[peer as usize] {
            let at = now + other.rng.random_range(0..=self.plan.spread_ns);
            other.news.push((at, News::Unreachable(me)));
            self.net.wake_at(Peer(peer), at);
        }
        Ok(())
    }

    fn judge_suspects(&mut self, process: &mut Process) -> Verdict {
        let suspects: Vec<_> = process.engine.suspects().collect();
        for fault in suspects {
            let Some(Peer(peer)) = fault.peer else {
                if self.plan.losses {
                    continue;
                }
                return Err(format!("suspects a device: {fault}"));
            };
            if !self.is_dead[peer as usize] {
                if !self.plan.losses || fault.is_proof() {
                    return Err(format!("suspects the living: {fault}"));
                }
                let at = self.net.now_ns() + self.plan.patience_ns;
                process.news.push((at, News::CutOff(peer)));
                self.net.wake_at(Peer(process.me), at);
                continue;
            }
            if fault.is_proof() && !process.known_dead.contains(&peer) {
                self.hear(process, News::Dead(peer))?;
            }
        }
        Ok(())
    }

    /// Takes what is complete.
    fn reap(&mut self, process: &mut Process) -> Verdict {
        let mut at = 0;
        while at < process.open.len() {
            let request = process.open[at].request;
            match process.engine.test(request) {
                None => at += 1,
                Some(Completion { result: Err(PmlError::ProcFailedPending), .. }) => {
                    self.pending(process, at)?;
                    at += 1;
                }
                Some(completion) => {
                    let open = process.open.swap_remove(at);
                    if open.persistent {
                        process.engine.request_free(request);
                    }
                    self.complete(process, open, completion)?;
                    // Law 1: a name that ended is not known any more.
                    match process.engine.test(request) {
                        Some(Completion { result: Err(PmlError::InvalidRequest), .. }) => {}
                        other => return Err(format!("a request ended twice: {other:?}")),
                    }
                }
            }
        }
        Ok(())
    }

    /// A wildcard receive is interrupted by a death.
    fn pending(&mut self, process: &mut Process, at: usize) -> Verdict {
        let group = process.open[at].group;
        let members = &self.plan.groups[group];
        if !members.iter().any(|member| process.known_dead.contains(member)) {
            return Err(String::from("ProcFailedPending although nobody is known to be dead"));
        }
        let comm = process.comms.iter().find(|comm| comm.group == group);
        let comm = comm.expect("requests are in communicators of the process").id;
        if self.draining || process.rng.random_range(0..3) == 0 {
            process.engine.ack_failed(comm);
        } else {
            self.wake(process, self.net.now_ns() + 1000);
        }
        Ok(())
    }

    fn retire(&mut self, process: &mut Process, memory: &Use) {
        for &piece in memory.pieces() {
            process.arena.retire(piece);
        }
    }

    /// Cancels each open receive with this chance in a hundred.
    fn cancel_some(&mut self, process: &mut Process, percent: u32) {
        for open in &mut process.open {
            if let What::Recv { cancelled, .. } = &mut open.what
                && process.rng.random_range(0..100) < percent
            {
                *cancelled = true;
                process.engine.cancel(open.request);
            }
        }
    }

    /// Cancels each open send with this chance in a hundred, if its message can name itself.
    fn cancel_sends(&mut self, process: &mut Process, percent: u32) {
        for open in &mut process.open {
            if let What::Send { message, cancelled } = &mut open.what
                && self.oracle.messages[*message as usize].len as usize >= oracle::STAMP
                && process.rng.random_range(0..100) < percent
            {
                *cancelled = true;
                self.oracle.messages[*message as usize].cancelling = true;
                process.engine.cancel(open.request);
            }
        }
    }

    /// The end: nothing new, no receive left, and everything that still comes is received.
    fn drain(&mut self, process: &mut Process) -> Verdict {
        if !std::mem::replace(&mut process.draining, true) {
            self.cancel_some(process, 100);
            self.cancel_sends(process, 25);
            self.reap(process)?;
        }
        for at in 0..process.comms.len() {
            let (group, comm) = (process.comms[at].group, process.comms[at].id);
            process.engine.ack_failed(comm);
            loop {
                let open = process.open.len();
                self.mprobe(process, group, comm)?;
                if process.open.len() == open {
                    break;
                }
                self.reap(process)?;
            }
        }
        Ok(())
    }
}

/// A small calm world in which one process has a rail that breaks a law: `None` when there was no occasion, else whether
/// it was seen.
pub fn is_seen(kind: Sabotage, seed: u64) -> Option<bool> {
    let mut plan = Plan::new(seed, 6, 40);
    plan.rails = vec![Plan::small(RailModel::tcp().calm())];
    plan.chaos = false;
    plan.kills.clear();
    plan.cuts.clear();
    plan.revokes.clear();
    (plan.losses, plan.errors) = (false, false);
    let done = Rc::new(Cell::new(false));
    let world = World::with(plan, |me, rail| match me {
        0 => Rail::Watched(rail, Saboteur::new(kind, 1 + seed as u32 % 7, Rc::clone(&done))),
        _ => Rail::Sim(rail),
    });
    let verdict = world.run();
    done.get().then_some(verdict.is_err())
}

/// Runs one seed. The error ends with the command that runs it again.
pub fn run(seed: u64, ranks: u32, operations: u32, losses: bool) -> Result<Summary, String> {
    let mut plan = Plan::new(seed, ranks, operations);
    plan.chaos |= losses;
    plan.losses |= losses;
    let chaos = plan.chaos;
    let also = if losses { " --losses" } else { "" };
    let world = move || World::new(plan).run();
    // Law 3: a panic is a broken law like any other.
    let verdict = std::panic::catch_unwind(world).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("of an unknown kind")))
    });
    verdict.map_err(|why| {
        format!(
            "seed {seed} broke a law: {why}\nchaos: {chaos}\nto run it again:\n  \
             ci/sim --seed {seed} --ranks {ranks} --operations {operations}{also}"
        )
    })
}
