//! Whole stacks in virtual time: cores over simulated rails, programs that run in each process, deaths at any moment, one thread.
//!
//! A failure is told only to the living process before the dead one on the ring (that is what the detector promises), and shows
//! on rails as their models have it. Everything else the stack has to do.
#![allow(dead_code)] // each test uses a part

mod oracle;
mod program;

pub use oracle::Oracle;
pub use program::{Op, Plan};

use ironweave_btl::{Address, Peer};
use ironweave_btl_sim::{SimBtl, SimFault, SimNet};
use ironweave_core::{Config, Core};
use ironweave_ft::PlaneConfig;
use ironweave_pml::ob1::{Config as PmlConfig, Ob1};
use program::Program;
use std::fmt::Write;
use std::sync::Arc;

/// Events after which a world is believed to go on for ever.
const EVENTS_MAX: u64 = 2_000_000;

pub type Stack = Core<SimBtl>;

struct Process {
    core: Stack,
    program: Program,
    /// Deaths that this process will be told of, and when.
    news: Vec<(u64, u32)>,
    /// The earliest time at which it is sure to be called again.
    alarm: u64,
}

/// What a world did.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Summary {
    pub events: u64,
    pub virtual_ns: u64,
    pub killed: usize,
    pub made: usize,
    pub errors: usize,
    pub agreed: usize,
}

pub struct World {
    plan: Plan,
    net: SimNet,
    processes: Vec<Option<Process>>,
    addresses: Vec<Vec<Address>>,
    oracle: Oracle,
    told: Vec<Vec<u32>>,
    killed: usize,
}

impl World {
    pub fn new(plan: Plan) -> Self {
        let net = SimNet::new(plan.seed);
        let mut processes = Vec::new();
        let mut addresses = Vec::new();
        for me in 0..plan.ranks {
            let mut pml = Ob1::new(PmlConfig::new(Peer(me)));
            pml.add_btl(net.open(Peer(me), &plan.rail));
            addresses.push(pml.addresses());
            let config = Config {
                me: Peer(me),
                size: plan.ranks,
                collectives: Arc::default(),
                plane: PlaneConfig::default(),
                hosts: plan.hosts.clone(),
            };
            let core = Core::new(pml, config, 0).expect("a new engine");
            let program = Program::new(&plan, me, &core);
            processes.push(Some(Process { core, program, news: Vec::new(), alarm: u64::MAX }));
            net.wake_at(Peer(me), 0);
        }
        for &(at, victim) in &plan.kills {
            net.wake_at(Peer(victim), at);
        }
        let told = vec![Vec::new(); plan.ranks as usize];
        let oracle = Oracle::new(plan.ranks);
        World { plan, net, processes, addresses, oracle, told, killed: 0 }
    }

    /// Runs to the end: all programs are over, and nothing moves any more.
    pub fn run(mut self) -> Result<Summary, String> {
        match self.go() {
            Ok(()) => Ok(Summary {
                events: self.net.events(),
                virtual_ns: self.net.now_ns(),
                killed: self.killed,
                ..self.oracle.summary()
            }),
            Err(why) => Err(format!("{why}\n{}", self.dump())),
        }
    }

    fn go(&mut self) -> Result<(), String> {
        while let Some(Peer(me)) = self.net.next_ready() {
            self.step(me)?;
            if self.net.events() > EVENTS_MAX {
                return Err(String::from("it never comes to rest"));
            }
            // Communicators that were revoked and freed are remembered for a minute; nothing happens in it.
            if self.processes.iter().flatten().all(|p| p.program.is_over()) && self.is_quiet() {
                break;
            }
        }
        let hangs: Vec<u32> = (0..)
            .zip(&self.processes)
            .filter(|(_, process)| process.as_ref().is_some_and(|p| !p.program.is_over()))
            .map(|(me, _)| me)
            .collect();
        if !hangs.is_empty() {
            let some = &hangs[..hangs.len().min(10)];
            return Err(format!("{} processes wait for ever: {some:?} …", hangs.len()));
        }
        self.oracle.judge()
    }

    fn is_quiet(&self) -> bool {
        self.processes.iter().flatten().all(|process| !process.core.is_restless())
    }

    fn step(&mut self, me: u32) -> Result<(), String> {
        let now = self.net.now_ns();
        if self.processes[me as usize].is_none() || self.killed(me, now) {
            return Ok(());
        }
        let mut process = self.processes[me as usize].take().expect("looked at above");
        let verdict = self.live(me, &mut process, now);
        self.processes[me as usize] = Some(process);
        verdict.map_err(|why| format!("process {me} at {now} ns: {why}"))
    }

    /// Kills what is due; `true` when it was this process.
    fn killed(&mut self, me: u32, now: u64) -> bool {
        if !self.plan.kills.iter().any(|&(at, victim)| victim == me && at <= now) {
            return false;
        }
        if self.processes.iter().flatten().count() < 2 {
            return false; // somebody has to be left
        }
        self.net.fault(SimFault::Kill(Peer(me)));
        self.processes[me as usize] = None;
        self.oracle.died(me);
        self.killed += 1;
        self.observe(now);
        true
    }

    /// Each living process is told, in time, of those that have died between it and the next living one on the ring.
    fn observe(&mut self, now: u64) {
        let size = self.plan.ranks;
        for me in 0..size {
            let Some(process) = &mut self.processes[me as usize] else { continue };
            let mut next = (me + 1) % size;
            let mut dead = Vec::new();
            while next != me && !self.oracle.is_alive(next) {
                dead.push(next);
                next = (next + 1) % size;
            }
            for dead in dead {
                if !self.told[me as usize].contains(&dead) {
                    self.told[me as usize].push(dead);
                    let at = now + self.plan.detection(me, dead);
                    process.news.push((at, dead));
                    self.net.wake_at(Peer(me), at);
                }
            }
        }
    }

    fn live(&mut self, me: u32, process: &mut Process, now: u64) -> Result<(), String> {
        if process.alarm <= now {
            process.alarm = u64::MAX;
        }
        let Process { core, program, news, .. } = process;
        news.retain(|&(at, dead)| {
            if at <= now {
                core.proc_failed(dead, now);
            }
            at > now
        });
        let mut moved = false;
        for _ in 0..64 {
            let mut round = core.progress(|| now);
            if core.pml.has_suspects() {
                let suspects: Vec<_> = core.pml.suspects().collect();
                for fault in suspects {
                    let Some(Peer(peer)) = fault.peer else { continue };
                    if self.oracle.is_alive(peer) {
                        return Err(format!("suspects the living: {fault}"));
                    }
                    if fault.is_proof() {
                        core.proc_failed(peer, now);
                    }
                }
            }
            for peer in core.take_wanted() {
                let addresses = &self.addresses[peer.index()];
                core.pml.add_peer(peer, addresses).map_err(|error| error.to_string())?;
                round += 1;
            }
            round += program.step(me, core, &mut self.oracle, now)?;
            if round == 0 {
                break;
            }
            moved = true;
        }
        if core.is_fenced() {
            return Err(String::from("was excluded, but lives"));
        }
        let deadline = core.next_deadline().map(|at| at.max(now + 1));
        let soon = moved.then_some(now + 300);
        if let Some(at) = soon.into_iter().chain(deadline).chain(program.wakes_at(now)).min()
            && at < process.alarm
        {
            process.alarm = at;
            self.net.wake_at(Peer(me), at);
        }
        Ok(())
    }

    fn dump(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "plan: {:?}", self.plan);
        let _ = self.net.dump(&mut out);
        out.truncate(4_000);
        let stuck = (0..).zip(&self.processes).filter_map(|(me, p)| Some((me, p.as_ref()?)));
        for (me, process) in stuck.filter(|(_, p)| !p.program.is_over()).take(4) {
            let _ = writeln!(out, "process {me}: {:?}", process.program);
            let mut core = String::new();
            let _ = process.core.dump(&mut core);
            core.truncate(3_000);
            out.push_str(&core);
        }
        out
    }
}

/// Runs one plan; an error ends with the command that runs it again.
pub fn run(plan: Plan) -> Result<Summary, String> {
    let command = plan.command();
    let world = move || World::new(plan).run();
    // Law 3: a panic is a broken law like any other.
    let verdict = std::panic::catch_unwind(world).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("of an unknown kind")))
    });
    verdict.map_err(|why| format!("a law is broken: {why}\nto run it again:\n  {command}"))
}
