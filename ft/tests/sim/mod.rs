//! Thousands of planes in virtual time, a program that uses all of them, and failures at any moment of it: single
//! processes, whole hosts, cascades of up to half the job, and processes that are held for dead though they live.
//!
//! The program of each process: an agreement; two at once; a shrink (the communicator may have been revoked by somebody
//! meanwhile); the new communicator; an agreement there; the old communicator is freed; another agreement; the end.
//!
//! Checked: what is returned for an agreement or shrink is the same everywhere (law 7), also where the process then died
//! or was excluded; every living process knows every failure in the end, hears of every revocation, and gets to the end.
//!
//! With odd seeds the launcher of a host writes on a page that its processes share, and who died has stopped: nobody is accused.

#![allow(dead_code, reason = "tests and examples use different parts")]

pub mod wire;

use ironweave_ft::{
    CommKey, Contribution, Decided, Effect, Group, Plane, PlaneConfig, RankSet, Scope, Shrink,
    Shrunk, agreement_number,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::{Model, What, Wire};

const OLD: CommKey = CommKey { cid: 0, epoch: 0 };
const NEW: CommKey = CommKey { cid: 0, epoch: 1 };
/// Only ever revoked.
const SIDE: CommKey = CommKey { cid: 1, epoch: 0 };
/// Processes of a host learn from their launcher.
const HOST: u32 = 32;
/// After so long a death that nobody told is found by who watches.
const WATCH: u64 = 300_000;
/// Virtual time in which everything must have ended.
const PATIENCE: u64 = 10_000_000_000;

/// How much fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    None,
    /// A few processes.
    Few,
    /// A few processes and a whole host.
    Host,
    /// Up to half of all.
    Half,
}

#[derive(Clone, Debug)]
enum Event {
    /// The next step of a process's program.
    Step(u32),
    Kill(u32),
    /// A host's launcher tells the first of the second.
    Told(u32, u32),
    /// Whoever watches this process now finds it dead.
    Watch(u32),
    /// This one is held for dead by the other.
    Accuse(u32, u32),
    Revoke(u32, CommKey),
    Tick(u32),
}

/// Where a process is in its program.
#[derive(Clone, Debug)]
enum Place {
    First,
    Two { missing: u8 },
    Shrinking(Option<Shrink>),
    Smaller,
    Last,
    End,
}

/// What a run did.
#[derive(Clone, Copy, Default, Debug)]
pub struct Summary {
    pub messages: u64,
    pub bytes: u64,
    pub events: u64,
    pub killed: u32,
    pub accused: u32,
    pub survivors: u32,
    /// Processes that revoked something or were told of it, by communicator.
    pub revoked: u32,
    /// Decisions that name somebody who failed.
    pub with_failures: u32,
    /// Processes that got a smaller communicator without everybody, and those that came to their program's end.
    pub shrunk: u32,
    pub ended: u32,
    pub virtual_ns: u64,
}

impl Summary {
    pub fn add(&mut self, other: Summary) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.events += other.events;
        self.killed += other.killed;
        self.accused += other.accused;
        self.survivors += other.survivors;
        self.revoked += other.revoked;
        self.with_failures += other.with_failures;
        self.shrunk += other.shrunk;
        self.ended += other.ended;
        self.virtual_ns += other.virtual_ns;
    }
}

struct Sim {
    size: u32,
    random: SmallRng,
    wire: Wire<Event>,
    planes: Vec<Plane>,
    places: Vec<Place>,
    alive: Vec<bool>,
    /// When it died, or will have: what it sends later is not sent.
    dies: Vec<u64>,
    /// Frames of a dead process that would arrive later are lost.
    lost_from: Vec<u64>,
    /// Launchers tell by a page.
    by_page: bool,
    accused: Vec<bool>,
    /// Who knows of the revocation of `OLD`, and of `SIDE`.
    revoked: Vec<[bool; 2]>,
    ticking: Vec<bool>,
    returned: BTreeMap<(CommKey, u64), (u32, Decided)>,
    shrunk: Option<(u32, Shrunk)>,
    /// Decisions that name somebody who failed, and shrinks that left somebody out.
    with_failures: u32,
    without_some: u32,
    broken: Option<String>,
    now: u64,
    last_progress: u64,
}

/// One run. `Err` is what broke, and how to see it again.
pub fn run(seed: u64, ranks: u32, trouble: Option<Trouble>) -> Result<Summary, String> {
    let mut sim = Sim::new(seed, ranks);
    let trouble = trouble.unwrap_or_else(|| {
        [Trouble::None, Trouble::Few, Trouble::Host, Trouble::Half][sim.random.random_range(0..4)]
    });
    sim.plan(trouble);
    sim.run();
    let killed = sim.alive.iter().filter(|alive| !**alive).count() as u32;
    let accused = sim.accused.iter().filter(|accused| **accused).count() as u32;
    match sim.broken {
        Some(broken) => Err(format!(
            "seed {seed}, {ranks} ranks, {trouble:?}, at {} ns: {broken}\nreplay: cargo run --release -p ironweave-ft --example ironweave-ft-sim -- --seed {seed} --ranks {ranks} --trouble {}",
            sim.now,
            format!("{trouble:?}").to_lowercase()
        )),
        None => Ok(Summary {
            messages: sim.wire.messages,
            bytes: sim.wire.bytes,
            events: sim.wire.events,
            killed,
            accused,
            survivors: (0..ranks).filter(|process| sim.sound(*process)).count() as u32,
            revoked: sim.revoked.iter().flatten().filter(|revoked| **revoked).count() as u32,
            with_failures: sim.with_failures,
            shrunk: sim.without_some,
            ended: sim.places.iter().filter(|place| matches!(place, Place::End)).count() as u32,
            virtual_ns: sim.last_progress,
        }),
    }
}

impl Sim {
    fn new(seed: u64, size: u32) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let by_page = seed % 2 == 1;
        let config = PlaneConfig {
            fan: random.random_range(2..=5),
            retain: 1_000_000_000,
            fail_stop: by_page,
            ..PlaneConfig::default()
        };
        let plane = |me: u32| {
            let mut plane = Plane::new(me, size, config);
            if by_page {
                let host = me / HOST * HOST;
                plane.share_board(host..host + HOST);
            }
            plane.add_comm(OLD, Group::world(size), 0);
            plane.add_comm(SIDE, Group::world(size), 0);
            plane
        };
        let all = size as usize;
        Sim {
            size,
            random,
            wire: Wire::new(Model::TCP, size),
            planes: (0..size).map(plane).collect(),
            places: vec![Place::First; all],
            alive: vec![true; all],
            dies: vec![u64::MAX; all],
            lost_from: vec![u64::MAX; all],
            by_page,
            accused: vec![false; all],
            revoked: vec![[false; 2]; all],
            ticking: vec![false; all],
            returned: BTreeMap::new(),
            shrunk: None,
            with_failures: 0,
            without_some: 0,
            broken: None,
            now: 0,
            last_progress: 0,
        }
    }

    /// Decides who begins when, and who dies when.
    fn plan(&mut self, trouble: Trouble) {
        let size = self.size;
        for process in 0..size {
            let begin = self.random.random_range(0..50_000);
            self.wire.at(begin, Event::Step(process));
        }
        // All of it takes about this long without failures.
        let span = 1_500_000;
        let kills = match trouble {
            Trouble::None => 0,
            Trouble::Few | Trouble::Host => self.random.random_range(1..=(size / 8).clamp(1, 10)),
            Trouble::Half => self.random.random_range(size / 4..=size / 2),
        };
        // Half of the cascades come within a moment.
        let (from, until) = if self.random.random() {
            (0, span)
        } else {
            let from = self.random.random_range(0..span);
            (from, from + 100_000)
        };
        for _ in 0..kills.min(size - 1) {
            let (at, victim) =
                (self.random.random_range(from..until), self.random.random_range(1..size));
            self.wire.at(at, Event::Kill(victim));
        }
        if trouble == Trouble::Host && size > 2 * HOST {
            let (at, host) =
                (self.random.random_range(0..span), self.random.random_range(1..size / HOST));
            (host * HOST..(host + 1) * HOST)
                .for_each(|process| self.wire.at(at, Event::Kill(process)));
        }
        if trouble != Trouble::None && size > 4 && self.random.random_ratio(1, 2) {
            let (at, victim) =
                (self.random.random_range(0..span), self.random.random_range(2..size));
            // Process 0 is never accused nor killed, so somebody is left; it accuses as well as any.
            self.wire.at(at, Event::Accuse(victim, self.random.random_range(0..2)));
        }
        for key in [OLD, SIDE] {
            for _ in 0..self.random.random_range(0..3) {
                let (at, who) =
                    (self.random.random_range(0..span), self.random.random_range(0..size));
                self.wire.at(at, Event::Revoke(who, key));
            }
        }
    }

    fn sound(&self, process: u32) -> bool {
        self.alive[process as usize] && !self.accused[process as usize]
    }

    fn acts(&self, process: u32) -> bool {
        self.alive[process as usize] && !self.planes[process as usize].is_fenced()
    }

    fn run(&mut self) {
        while let Some((time, what)) = self.wire.next() {
            self.now = time;
            if time > PATIENCE {
                break;
            }
            match what {
                What::Arrive { from, to, frame } => {
                    if self.acts(to) && time < self.lost_from[from as usize] {
                        let now = self.wire.attend(to, time, true);
                        if now < self.dies[to as usize] {
                            self.planes[to as usize].receive(from, &frame, now);
                            self.effects(to, now);
                        }
                    }
                }
                What::Other(event) => self.event(event, time),
            }
            if self.broken.is_some() {
                return;
            }
        }
        self.check_end();
    }

    fn event(&mut self, event: Event, time: u64) {
        match event {
            Event::Step(me) => self.on(me, time, Self::step),
            Event::Tick(me) => {
                self.ticking[me as usize] = false;
                self.on(me, time, |sim, me, now| sim.planes[me as usize].tick(now));
            }
            Event::Revoke(me, key) => self.on(me, time, |sim, me, now| {
                let place = &sim.places[me as usize];
                if key == SIDE
                    || matches!(place, Place::First | Place::Two { .. } | Place::Shrinking(_))
                {
                    sim.revoked[me as usize][usize::from(key == SIDE)] = true;
                    sim.planes[me as usize].revoke(key, Scope::All, now);
                }
            }),
            Event::Kill(victim) => {
                if !std::mem::replace(&mut self.alive[victim as usize], false) {
                    return;
                }
                self.dies[victim as usize] = time;
                self.lost_from[victim as usize] = time + self.random.random_range(0..10_000);
                // The launcher, if it lives, tells the others of the host.
                let host = victim / HOST * HOST;
                if (host..(host + HOST).min(self.size)).any(|process| self.alive[process as usize])
                {
                    for process in host..(host + HOST).min(self.size) {
                        let at = time + self.random.random_range(1_000..100_000);
                        self.wire.at(at, Event::Told(process, victim));
                    }
                }
                self.watch_from(victim, time);
            }
            Event::Told(me, victim) => {
                if me != victim {
                    self.on(me, time, |sim, me, now| {
                        let plane = &mut sim.planes[me as usize];
                        if sim.by_page {
                            plane.failed_by_page(victim, now);
                        } else {
                            plane.failed(victim, now);
                        }
                    });
                }
            }
            Event::Watch(victim) => {
                let mut me = victim;
                loop {
                    me = (me + self.size - 1) % self.size;
                    if self.sound(me) {
                        break;
                    }
                }
                self.on(me, time, |sim, me, now| sim.planes[me as usize].failed(victim, now));
            }
            Event::Accuse(victim, by) => {
                if self.sound(victim) && self.sound(by) && victim != by && !self.by_page {
                    self.accused[victim as usize] = true;
                    self.on(by, time, |sim, by, now| sim.planes[by as usize].failed(victim, now));
                    self.watch_from(victim, time);
                }
            }
        }
    }

    /// `gone` watches nobody any more, and is watched: it and those that it should have watched are found by another.
    fn watch_from(&mut self, gone: u32, time: u64) {
        let mut victim = gone;
        while !self.sound(victim) {
            let at = time + WATCH + self.random.random_range(0..50_000);
            self.wire.at(at, Event::Watch(victim));
            victim = (victim + 1) % self.size;
            if victim == gone {
                break;
            }
        }
    }

    /// Lets a process do something, if it can.
    fn on(&mut self, me: u32, time: u64, act: impl FnOnce(&mut Self, u32, u64)) {
        if self.acts(me) {
            let now = self.wire.attend(me, time, false);
            act(self, me, now);
            self.effects(me, now);
        }
    }

    /// Goes on with the program.
    fn step(&mut self, me: u32, now: u64) {
        self.last_progress = now;
        let flag = !(1 << (me % 64));
        let plane = &mut self.planes[me as usize];
        let acknowledged = if me.is_multiple_of(2) { plane.dead().clone() } else { RankSet::new() };
        let mine = Contribution { flag, highest: u64::from(me), acknowledged };
        let place = &mut self.places[me as usize];
        match place {
            Place::First => plane.agree(OLD, agreement_number(0), mine, now),
            Place::Two { .. } => {
                plane.agree(OLD, agreement_number(1), mine.clone(), now);
                plane.agree(OLD, agreement_number(2), mine, now);
            }
            Place::Shrinking(shrink) => {
                *shrink = Some(Shrink::start(plane, OLD, 3, flag, u64::from(me), now));
            }
            Place::Smaller => {
                let group: Arc<[u32]> = match &self.shrunk {
                    Some((_, shrunk)) => shrunk.group(),
                    None => return,
                };
                plane.add_comm(NEW, group, now);
                plane.agree(NEW, agreement_number(0), mine, now);
            }
            Place::Last => {
                plane.free_comm(OLD, now);
                plane.agree(NEW, agreement_number(1), mine, now);
            }
            Place::End => plane.free_comm(NEW, now),
        }
    }

    fn effects(&mut self, me: u32, now: u64) {
        while let Some(effect) = self.planes[me as usize].poll_effect() {
            match effect {
                Effect::Send { to, bytes } => {
                    let dies = self.dies[me as usize];
                    self.wire.send(me, to, bytes, &mut self.random, |leaves, _| leaves < dies);
                }
                Effect::Failed { processes, source } => {
                    if let Some(process) = processes.iter().find(|process| self.sound(*process)) {
                        self.break_law(format!("{me} is told that {process} failed, which lives"));
                    }
                    self.planes[me as usize].failed_from(&processes, source, now);
                }
                Effect::Revoked(key, _) => {
                    let told = &mut self.revoked[me as usize][usize::from(key == SIDE)];
                    if key == NEW || std::mem::replace(told, true) {
                        self.break_law(format!(
                            "{me} is told of the revocation of {key:?}, not once"
                        ));
                    }
                }
                Effect::Decided(decided) => self.decided(me, decided, now),
                Effect::Release(..) => unreachable!("nothing is posted"),
                Effect::Fenced => {
                    if self.sound(me) {
                        self.break_law(format!("{me} is fenced without reason"));
                    }
                }
            }
        }
        if !self.ticking[me as usize]
            && let Some(deadline) = self.planes[me as usize].next_deadline()
            && deadline < PATIENCE
        {
            self.ticking[me as usize] = true;
            self.wire.at(deadline.max(now), Event::Tick(me));
        }
    }

    fn decided(&mut self, me: u32, decided: Decided, now: u64) {
        let first = self
            .returned
            .entry((decided.key, decided.seq))
            .or_insert_with(|| (me, decided.clone()));
        if first.1 != decided {
            let why = format!("{me} returns {decided:?}, but {} returned {:?}", first.0, first.1);
            return self.break_law(why);
        }
        if let Some(process) = decided.failed.iter().find(|process| self.sound(*process)) {
            return self.break_law(format!("{process} lives and is in {decided:?}"));
        }
        self.with_failures += u32::from(!decided.failed.is_empty());
        let place = std::mem::replace(&mut self.places[me as usize], Place::First);
        let next = match place {
            Place::First => Place::Two { missing: 2 },
            Place::Two { missing: 2 } => {
                self.places[me as usize] = Place::Two { missing: 1 };
                return;
            }
            Place::Two { .. } => Place::Shrinking(None),
            Place::Shrinking(None) => {
                return self.break_law(format!("{me} returns {decided:?} early"));
            }
            Place::Shrinking(Some(mut shrink)) => {
                let plane = &mut self.planes[me as usize];
                let flag = !(1 << (me % 64));
                let Some(shrunk) = shrink.decided(plane, &decided, flag, u64::from(me), now) else {
                    self.places[me as usize] = Place::Shrinking(Some(shrink));
                    return;
                };
                let first = self.shrunk.get_or_insert_with(|| (me, shrunk.clone()));
                if first.1 != shrunk {
                    let why =
                        format!("{me} shrinks to {shrunk:?}, but {} to {:?}", first.0, first.1);
                    return self.break_law(why);
                }
                self.without_some += u32::from(!shrunk.failed.is_empty());
                Place::Smaller
            }
            Place::Smaller => Place::Last,
            Place::Last => Place::End,
            Place::End => return self.break_law(format!("{me} returns {decided:?} at its end")),
        };
        self.places[me as usize] = next;
        let pause = self.random.random_range(0..20_000);
        self.wire.at(now + pause, Event::Step(me));
    }

    fn break_law(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    /// Nothing happens any more.
    fn check_end(&mut self) {
        let gone: RankSet = (0..self.size).filter(|process| !self.sound(*process)).collect();
        let sound: Vec<u32> = (0..self.size).filter(|process| self.sound(*process)).collect();
        let revoked = sound.iter().any(|process| self.revoked[*process as usize][1]);
        for process in sound {
            let (plane, at) = (&self.planes[process as usize], process as usize);
            let why = if !matches!(self.places[at], Place::End) {
                format!("{process} hangs: {:?}; {plane:?}", self.places[at])
            } else if *plane.dead() != gone {
                format!("{process} knows {:?} of {gone:?}", plane.dead())
            } else if revoked && !self.revoked[at][1] {
                format!("{process} is not told of the revocation")
            } else if plane.counters().malformed > 0 {
                format!("{process} holds a sound frame for malformed")
            } else if plane.comms() > 1 {
                format!("{process} keeps a communicator: {plane:?}")
            } else {
                continue;
            };
            return self.break_law(why);
        }
    }
}
