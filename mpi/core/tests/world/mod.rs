//! Whole stacks in virtual time: cores over simulated rails, programs that run in each process, deaths at any moment, one thread.
//!
//! A failure is told only to the living process before the dead one on the ring (that is what the detector promises), and shows
//! on rails as their models have it. Who is held for dead and lives is told so in the same time: that is the detector's, too,
//! for the rails to it are closed. Everything else the stack has to do.
#![allow(dead_code, unused_imports)] // each test uses a part

mod oracle;
mod plan;
mod program;

pub use oracle::Oracle;
pub use plan::{Moment, Op, Plan, Trouble};

use ironweave_btl::{Address, Peer};
use ironweave_btl_sim::{SimBtl, SimFault, SimNet};
use ironweave_core::{Config, Core};
use ironweave_ft::PlaneConfig;
use ironweave_pml::ob1::{Config as PmlConfig, Ob1};
use program::Program;
use std::fmt::Write;
use std::sync::Arc;

/// Events after which a world is believed to go on for ever, and how many more for each process.
const EVENTS_MAX: u64 = 2_000_000;
const EVENTS_EACH: u64 = 20_000;
/// Virtual time after the last program and the last death in which what is known has to be known by all.
const SPREAD: u64 = 20_000_000;

pub type Stack = Core<SimBtl>;

struct Process {
    core: Stack,
    program: Program,
    /// Deaths that this process will be told of, and when.
    news: Vec<(u64, u32)>,
    /// The living that this process will hold for dead, and when.
    lies: Vec<(u64, u32)>,
    /// The earliest time at which it is sure to be called again.
    alarm: u64,
    is_over: bool,
}

/// What a world did.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Summary {
    pub events: u64,
    pub virtual_ns: u64,
    pub killed: usize,
    /// Held for dead though they lived, until they heard of it.
    pub fenced: usize,
    pub made: usize,
    pub errors: usize,
    pub agreed: usize,
    /// Frames of summonses that those who lived to the end have sent.
    pub summonses: u64,
}

pub struct World {
    plan: Plan,
    net: SimNet,
    processes: Vec<Option<Process>>,
    addresses: Vec<Vec<Address>>,
    oracle: Oracle,
    told: Vec<Vec<u32>>,
    /// When each is killed, and when it is told that it is held for dead.
    doom: Vec<u64>,
    fence: Vec<u64>,
    /// Processes whose program goes on.
    running: usize,
    /// When the last program ended or process died.
    last: u64,
    killed: usize,
    fenced: usize,
}

impl World {
    pub fn new(plan: Plan) -> Self {
        let net = SimNet::new(plan.seed);
        let mut processes = Vec::new();
        let mut addresses = Vec::new();
        let board = plan.board();
        for me in 0..plan.ranks {
            let mut pml = Ob1::new(PmlConfig::new(Peer(me)));
            pml.add_btl(net.open(Peer(me), &plan.rail));
            addresses.push(pml.addresses());
            let config = Config {
                me: Peer(me),
                size: plan.ranks,
                collectives: Arc::default(),
                plane: PlaneConfig { fail_stop: board.is_some(), ..PlaneConfig::default() },
                board,
                hosts: plan.hosts.clone(),
            };
            let core = Core::new(pml, config, 0).expect("a new engine");
            let program = Program::new(&plan, me, &core);
            let (news, lies) = (Vec::new(), Vec::new());
            let process = Process { core, program, news, lies, alarm: u64::MAX, is_over: false };
            processes.push(Some(process));
            net.wake_at(Peer(me), 0);
        }
        let ranks = plan.ranks as usize;
        let (told, doom) = (vec![Vec::new(); ranks], vec![u64::MAX; ranks]);
        let oracle = Oracle::new(plan.ranks);
        let kills = plan.kills.clone();
        let mut world = World {
            plan,
            net,
            processes,
            addresses,
            oracle,
            told,
            doom,
            fence: vec![u64::MAX; ranks],
            running: ranks,
            last: 0,
            killed: 0,
            fenced: 0,
        };
        world.doom(0, &kills);
        world
    }

    /// These will die, so long after `now`.
    fn doom(&mut self, now: u64, kills: &[(u64, u32)]) {
        for &(after, victim) in kills {
            let at = &mut self.doom[victim as usize];
            *at = (*at).min(now + after);
            self.net.wake_at(Peer(victim), now + after);
        }
    }

    /// Runs to the end: all programs are over, and nothing moves any more.
    pub fn run(mut self) -> Result<Summary, String> {
        match self.go() {
            Ok(()) => Ok(Summary {
                events: self.net.events(),
                virtual_ns: self.net.now_ns(),
                killed: self.killed,
                fenced: self.fenced,
                summonses: self.summonses(),
                ..self.oracle.summary()
            }),
            Err(why) => Err(format!("{why}\n{}", self.dump())),
        }
    }

    fn go(&mut self) -> Result<(), String> {
        while let Some(Peer(me)) = self.net.next_ready() {
            self.step(me)?;
            if self.net.events() > EVENTS_MAX + EVENTS_EACH * u64::from(self.plan.ranks) {
                return Err(String::from("it never comes to rest"));
            }
            // Communicators that were revoked and freed are remembered for a minute; nothing happens in it.
            let rests = self.running == 0 && self.net.now_ns() > self.last + SPREAD;
            if rests && self.is_quiet() {
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
        // A flood is log n messages of each, and one more where a neighbour is replaced; there are a few of them.
        let floods =
            4 * u64::from(self.plan.ranks) * u64::from(u32::BITS - self.plan.ranks.leading_zeros());
        if self.plan.disaster.is_some() && self.summonses() > floods {
            return Err(format!("{} summonses, more than {floods}", self.summonses()));
        }
        self.all_know()
    }

    fn summonses(&self) -> u64 {
        self.processes.iter().flatten().map(|process| process.core.summonses_sent()).sum()
    }

    /// In the end every living process knows of every death, and of the revocation of the world if there was one.
    fn all_know(&self) -> Result<(), String> {
        let living =
            || (0_u32..).zip(&self.processes).filter_map(|(me, p)| Some((me, p.as_ref()?)));
        let dead: Vec<u32> =
            (0..self.plan.ranks).filter(|process| !self.oracle.is_alive(*process)).collect();
        let mut revoked = None;
        for (me, process) in living() {
            let core = &process.core;
            if let Some(unknown) = dead.iter().find(|dead| !core.is_failed(**dead)) {
                return Err(format!("{me} does not know that {unknown} is dead"));
            }
            let here = core.is_revoked(core.world()).map_err(|error| error.to_string())?;
            if *revoked.get_or_insert(here) != here {
                return Err(format!("law 5: the world is revoked at some, at {me}: {here}"));
            }
        }
        Ok(())
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
        self.pass_the_bell(me, now);
        if process.core.is_fenced() && !self.oracle.is_alive(me) {
            // It was held for dead, has heard of it, and stops (law 4).
            self.running -= usize::from(!process.is_over);
            self.last = now;
            self.fenced += 1;
            self.net.fault(SimFault::Kill(Peer(me)));
            self.observe(now);
            return Ok(());
        }
        if process.program.is_over() && !std::mem::replace(&mut process.is_over, true) {
            self.running -= 1;
            self.last = now;
        }
        let struck = |disaster: &mut plan::Disaster| process.program.is_at(disaster.moment);
        let disaster = self.plan.disaster.take_if(struck);
        self.processes[me as usize] = Some(process);
        if let Some(disaster) = disaster {
            self.doom(now, &disaster.kills);
            for (after, by, about) in disaster.lies {
                if let Some(process) = &mut self.processes[by as usize] {
                    process.lies.push((now + after, about));
                    self.net.wake_at(Peer(by), now + after);
                }
            }
        }
        verdict.map_err(|why| format!("process {me} at {now} ns: {why}"))
    }

    /// Wakes those who share the board with `me` when its bell was rung: nothing tells of it but looks.
    fn pass_the_bell(&mut self, me: u32, now: u64) {
        let Some(hosts) = self.plan.hosts.as_ref().filter(|_| self.plan.board) else { return };
        for (other, process) in (0..).zip(&self.processes) {
            if let Some(process) = process
                && hosts[other as usize] == hosts[me as usize]
                && process.core.is_called()
            {
                self.net.wake_at(Peer(other), now + 200);
            }
        }
    }

    /// Kills what is due; `true` when it was this process.
    fn killed(&mut self, me: u32, now: u64) -> bool {
        if self.doom[me as usize] > now {
            return false;
        }
        if self.processes.iter().flatten().take(2).count() < 2 {
            return false; // somebody has to be left
        }
        self.net.fault(SimFault::Kill(Peer(me)));
        if self.processes[me as usize].take().is_some_and(|process| !process.is_over) {
            self.running -= 1;
        }
        self.oracle.died(me);
        self.killed += 1;
        self.last = now;
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
        let Process { core, program, news, lies, .. } = process;
        let (due, later): (Vec<_>, Vec<_>) = lies.drain(..).partition(|&(at, _)| at <= now);
        *lies = later;
        for (_, about) in due {
            self.oracle.died(about);
            core.proc_failed(about, now);
            let told = &mut self.fence[about as usize];
            *told = (*told).min(now + self.plan.detection(about, me));
            self.net.wake_at(Peer(about), *told);
        }
        if self.fence[me as usize] <= now {
            core.fence();
        }
        // As the launcher's page tells of it, or by a detector.
        let by_page = self.plan.seed.is_multiple_of(2);
        news.retain(|&(at, dead)| {
            match at <= now {
                true if by_page => core.proc_failed_by_page(dead, now),
                true => core.proc_failed(dead, now),
                false => {}
            }
            at > now
        });
        let mut moved = false;
        for _ in 0..64 {
            if core.is_called() {
                core.hear(now);
            }
            let mut round = core.progress(|| now);
            if core.pml.has_suspects() {
                let suspects: Vec<_> = core.pml.suspects().collect();
                for fault in suspects {
                    let Some(Peer(peer)) = fault.peer else { continue };
                    if self.oracle.is_alive(peer) && self.oracle.is_alive(me) {
                        return Err(format!("suspects the living: {fault}"));
                    }
                    if fault.is_proof() {
                        core.proc_failed(peer, now);
                        round += 1; // others are told with the next call
                    }
                }
            }
            for peer in core.take_wanted() {
                let addresses = &self.addresses[peer.index()];
                core.pml.add_peer(peer, addresses).map_err(|error| error.to_string())?;
                round += 1;
            }
            if core.is_fenced() {
                break; // its program hears of it in whatever it is in
            }
            round += program.step(me, core, &mut self.oracle, now)?;
            if round == 0 {
                break;
            }
            moved = true;
        }
        if core.is_fenced() && self.oracle.is_alive(me) {
            return Err(String::from("was excluded, but lives"));
        }
        let deadline = core.next_deadline().map(|at| at.max(now + 1));
        // Nothing tells of what is posted on the board but looks.
        let looks = (self.plan.board && core.is_restless()).then_some(now + 5_000);
        let soon = moved.then_some(now + 300).or(looks);
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
