//! Many detectors in virtual time over a network that loses, delays, doubles and reorders, with kills, pauses and leavers.
//! Every run is made from its seed: `IRONWEAVE_SEED=N cargo nextest run -p ironweave-ft TEST` replays one.

use ironweave_ft::detector::{Config, Detector, Digest, Effect, Event, Message, Nanos};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

const US: Nanos = 1_000;
const MS: Nanos = 1_000_000;
const CONFIG: Config = Config { period: 100 * MS, timeout: 1_200 * MS, probe_timeout: 500 * MS };

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.below(n) == 0
    }
}

#[derive(Clone, Debug)]
enum What {
    Arrives {
        from: u32,
        to: u32,
        message: Message,
    },
    Wakes(u32),
    Kill(u32),
    Pause(u32),
    Resume(u32),
    Leave(u32),
    /// The launcher, which reaches everybody or only some, tells `to` that `dead` failed.
    Page {
        to: u32,
        dead: u32,
    },
    Suspect {
        by: u32,
        process: u32,
    },
    Verdict {
        by: u32,
        process: u32,
        failed: bool,
    },
    Starved {
        by: u32,
        process: u32,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Runs,
    Paused,
    Dead,
    Left,
    Fenced,
}

struct Process {
    detector: Detector,
    state: State,
    /// What arrived while it was paused.
    inbox: Vec<(u32, Message)>,
    wakes_at: Nanos,
    declared: BTreeSet<u32>,
    lives: BTreeSet<u32>,
    knows_at: BTreeMap<u32, Nanos>,
}

struct World {
    now: Nanos,
    random: Random,
    /// One in so many datagrams is lost; 0: none.
    loss: u64,
    processes: Vec<Process>,
    heap: BinaryHeap<Reverse<(Nanos, u64)>>,
    events: BTreeMap<u64, What>,
    next: u64,
    sent: u64,
    /// Nothing goes between processes below and from this one on.
    cut: Option<u32>,
    /// Whether somebody knows who left.
    launcher: bool,
    /// Whether paused processes are seen to wait for a core.
    starvation_shows: bool,
}

impl World {
    fn new(size: u32, seed: u64, loss: u64) -> World {
        World::with(size, seed, loss, CONFIG)
    }

    fn with(size: u32, seed: u64, loss: u64, config: Config) -> World {
        println!("replay with IRONWEAVE_SEED={seed}");
        let process = |me| Process {
            detector: Detector::new(me, size, config, 0),
            state: State::Runs,
            inbox: Vec::new(),
            wakes_at: Nanos::MAX,
            declared: BTreeSet::new(),
            lives: BTreeSet::new(),
            knows_at: BTreeMap::new(),
        };
        let mut world = World {
            now: 0,
            random: Random(seed),
            loss,
            processes: (0..size).map(process).collect(),
            heap: BinaryHeap::new(),
            events: BTreeMap::new(),
            next: 0,
            sent: 0,
            cut: None,
            launcher: false,
            starvation_shows: false,
        };
        (0..size).for_each(|me| world.after(me));
        world
    }

    fn at(&mut self, at: Nanos, what: What) {
        self.heap.push(Reverse((at, self.next)));
        self.events.insert(self.next, what);
        self.next += 1;
    }

    /// Carries out what a detector wants after it was called.
    fn after(&mut self, me: u32) {
        while let Some(effect) = self.processes[me as usize].detector.poll_effect() {
            let process = &mut self.processes[me as usize];
            match effect {
                Effect::Send { to, message } => {
                    assert_ne!(to, me);
                    self.sent += 1;
                    let copies = if self.random.one_in(20) { 2 } else { 1 };
                    for _ in 0..copies {
                        let slow = if self.random.one_in(50) { 40 * MS } else { MS };
                        let delay = 20 * US + self.random.below(slow);
                        if !self.random.one_in(self.loss) {
                            let message = message.clone();
                            self.at(self.now + delay, What::Arrives { from: me, to, message });
                        }
                    }
                }
                Effect::Declared(dead) | Effect::Told(dead) => {
                    if matches!(effect, Effect::Declared(_)) {
                        process.declared.insert(dead);
                    }
                    assert!(process.knows_at.insert(dead, self.now).is_none(), "told twice");
                }
                Effect::Accused(process) => {
                    let state = self.processes[process as usize].state;
                    let left = state == State::Left;
                    if self.starvation_shows && state == State::Paused {
                        self.at(self.now + MS, What::Starved { by: me, process });
                    } else if self.launcher {
                        self.at(self.now + MS, What::Verdict { by: me, process, failed: !left });
                    } else {
                        let verdict = Event::Verdict { process, failed: true };
                        self.processes[me as usize].detector.handle(verdict, self.now);
                    }
                }
                Effect::Missing(process) => {
                    if self.launcher && self.processes[process as usize].state == State::Left {
                        let left = Event::HasLeft(process);
                        self.processes[me as usize].detector.handle(left, self.now);
                    }
                }
                Effect::Lives(suspect) => drop(process.lives.insert(suspect)),
                Effect::Fenced => process.state = State::Fenced,
                Effect::Left => process.state = State::Left,
            }
        }
        let process = &mut self.processes[me as usize];
        if process.state == State::Runs
            && let Some(deadline) = process.detector.next_deadline()
        {
            // Timers are late, too.
            let at = deadline.max(self.now) + self.random.below(2 * MS);
            if at < process.wakes_at || process.wakes_at <= self.now {
                process.wakes_at = at;
                self.at(at, What::Wakes(me));
            }
        }
    }

    fn happen(&mut self, me: u32, event: Event) {
        if self.processes[me as usize].state == State::Runs {
            self.processes[me as usize].detector.handle(event, self.now);
            self.after(me);
        }
    }

    fn run_until(&mut self, end: Nanos) {
        while let Some(&Reverse((at, id))) = self.heap.peek() {
            if at > end {
                break;
            }
            self.heap.pop();
            self.now = at;
            let what = self.events.remove(&id).expect("each event happens once");
            self.step(what);
        }
        self.now = end;
    }

    fn step(&mut self, what: What) {
        match what {
            What::Arrives { from, to, .. }
                if self.cut.is_some_and(|cut| (from < cut) != (to < cut)) => {}
            What::Arrives { from, to, message } => {
                // What is sent is what is read.
                let mut bytes = Vec::new();
                message.encode(&mut bytes);
                let size = self.processes.len() as u32;
                assert_eq!(Message::decode(&bytes, size).as_ref(), Some(&message));
                if self.processes[to as usize].state == State::Paused {
                    self.processes[to as usize].inbox.push((from, message));
                } else {
                    self.happen(to, Event::Message { from, message });
                }
            }
            What::Wakes(me) => {
                let process = &mut self.processes[me as usize];
                if process.state == State::Runs && process.wakes_at == self.now {
                    process.wakes_at = Nanos::MAX;
                    process.detector.tick(self.now);
                    self.after(me);
                }
            }
            What::Kill(me) => self.processes[me as usize].state = State::Dead,
            What::Pause(me) => {
                if self.processes[me as usize].state == State::Runs {
                    self.processes[me as usize].state = State::Paused;
                }
            }
            What::Resume(me) => {
                if self.processes[me as usize].state == State::Paused {
                    self.processes[me as usize].state = State::Runs;
                    for (from, message) in std::mem::take(&mut self.processes[me as usize].inbox) {
                        self.happen(me, Event::Message { from, message });
                    }
                    if self.processes[me as usize].state == State::Runs {
                        self.processes[me as usize].detector.tick(self.now);
                        self.after(me);
                    }
                }
            }
            What::Leave(me) => self.happen(me, Event::Leave { together: false }),
            What::Page { to, dead } => {
                self.processes[to as usize].knows_at.entry(dead).or_insert(self.now);
                self.happen(to, Event::Failed { processes: vec![dead], everybody: true });
            }
            What::Suspect { by, process } => self.happen(by, Event::Suspect(process)),
            What::Verdict { by, process, failed } => {
                self.happen(by, Event::Verdict { process, failed });
            }
            What::Starved { by, process } => self.happen(by, Event::Starved(process)),
        }
    }

    fn in_state(&self, state: State) -> BTreeSet<u32> {
        (0u32..).zip(&self.processes).filter(|(_, p)| p.state == state).map(|(me, _)| me).collect()
    }

    /// Everybody who runs knows exactly that `out` failed, and watches the one before it.
    fn assert_all_know(&self, out: &BTreeSet<u32>) {
        let running: Vec<u32> = self.in_state(State::Runs).into_iter().collect();
        for (index, &me) in running.iter().enumerate() {
            let detector = &self.processes[me as usize].detector;
            let known: BTreeSet<u32> = detector.failed().collect();
            if &known != out {
                println!("{:#?}", self.processes[me as usize].detector);
            }
            assert_eq!(&known, out, "process {me} at {} ms", self.now / MS);
            let others = running.len() > 1;
            let before = running[(index + running.len() - 1) % running.len()];
            let after = running[(index + 1) % running.len()];
            assert_eq!(detector.emitter(), others.then_some(before), "watched by {me}");
            if others {
                // The last one may go on beating for a process of whose leaving only others were told.
                assert_eq!(detector.observer(), Some(after), "observer of {me}");
            }
        }
    }

    fn assert_none_declared(&self) {
        for (me, process) in self.processes.iter().enumerate() {
            assert!(process.declared.is_empty(), "process {me} declared {:?}", process.declared);
        }
    }

    fn last_to_know(&self, dead: u32) -> Nanos {
        let running = self.processes.iter().filter(|process| process.state == State::Runs);
        running.map(|process| process.knows_at[&dead]).max().expect("somebody runs")
    }
}

fn seeds(many: u64) -> Vec<u64> {
    match std::env::var("IRONWEAVE_SEED") {
        Ok(seed) => vec![seed.parse().expect("IRONWEAVE_SEED is a number")],
        Err(_) => (1..=many).collect(),
    }
}

/// All have agreed to leave; somebody died meanwhile, of whom not all know, and half of all datagrams are lost: nobody waits for
/// the timeout, which is the only thing that could tell them more.
#[test]
fn who_leaves_together_waits_for_nobody() {
    for seed in seeds(200) {
        let mut world = World::new(3 + (seed % 20) as u32, seed, 2);
        let dead = world.random.below(world.processes.len() as u64) as u32;
        world.run_until(CONFIG.period / 2);
        world.processes[dead as usize].state = State::Dead;
        for me in (0..world.processes.len() as u32).filter(|me| *me != dead) {
            if world.random.one_in(2) {
                world.happen(me, Event::Failed { processes: vec![dead], everybody: true });
            }
            world.happen(me, Event::Leave { together: true });
        }
        world.run_until(world.now + CONFIG.timeout / 2);
        assert!(world.in_state(State::Runs).is_empty(), "{:?} stay", world.in_state(State::Runs));
    }
}

/// A process that is kept from its core just after it asked about a silent one could not hear the answer: it does not declare that
/// one failed when it wakes, but waits on.
#[test]
fn who_sleeps_over_an_accusation_still_waits_for_the_answer() {
    let mut detector = Detector::new(0, 2, CONFIG, 0);
    let mut now = 0;
    let mut tick = |detector: &mut Detector, after: Nanos| {
        now += after;
        detector.tick(now);
        std::iter::from_fn(|| detector.poll_effect()).collect::<Vec<_>>()
    };
    while !tick(&mut detector, CONFIG.period).contains(&Effect::Accused(1)) {}
    let woken = tick(&mut detector, 100 * CONFIG.timeout);
    assert!(!woken.contains(&Effect::Declared(1)) && detector.accuses(1), "{woken:?}");
    let mut waited = 0;
    while !tick(&mut detector, CONFIG.period).contains(&Effect::Declared(1)) {
        waited += CONFIG.period;
        assert!(waited < CONFIG.timeout, "never declared");
    }
    assert!(!detector.accuses(1));
}

/// On a busy machine a launcher needs longer to answer than half of a short timeout.
#[test]
fn a_verdict_is_waited_for_a_second_at_least() {
    let quick = Config { period: 50 * MS, timeout: 300 * MS, probe_timeout: 200 * MS };
    let mut detector = Detector::new(0, 2, quick, 0);
    let (mut now, mut accused) = (0, None);
    let declared = loop {
        now += quick.period;
        detector.tick(now);
        let effects: Vec<Effect> = std::iter::from_fn(|| detector.poll_effect()).collect();
        if effects.contains(&Effect::Accused(1)) {
            accused = Some(now);
        }
        if effects.contains(&Effect::Declared(1)) {
            break now;
        }
        assert!(now < 10_000 * MS, "never declared");
    };
    let waited = declared - accused.expect("accused before it is declared");
    assert!((1_000 * MS..=1_000 * MS + quick.period).contains(&waited), "{} ms", waited / MS);
}

/// Whoever asked about a silent process hears it, or its answer, before the verdict: that verdict ends nobody any more.
#[test]
fn who_speaks_before_the_verdict_is_not_declared() {
    for suspected in [false, true] {
        let mut detector = Detector::new(0, 2, CONFIG, 0);
        let (mut now, mut token) = (0, 0);
        if suspected {
            detector.handle(Event::Suspect(1), now);
        }
        while !detector.accuses(1) {
            now += CONFIG.period;
            assert!(now <= CONFIG.timeout + CONFIG.period, "never accused");
            detector.tick(now);
            while let Some(effect) = detector.poll_effect() {
                if let Effect::Send { message: Message::Probe { token: new }, .. } = effect {
                    token = new;
                }
            }
        }
        let message = match suspected {
            true => Message::Answer { token },
            false => Message::Beat { chain: Vec::new(), known: Digest::default() },
        };
        detector.handle(Event::Message { from: 1, message }, now);
        assert!(!detector.accuses(1));
        detector.handle(Event::Verdict { process: 1, failed: true }, now);
        detector.tick(now + 1);
        let effects: Vec<Effect> = std::iter::from_fn(|| detector.poll_effect()).collect();
        assert!(!effects.contains(&Effect::Declared(1)), "{effects:?}");
        assert_eq!(effects.contains(&Effect::Lives(1)), suspected, "{effects:?}");
        assert_eq!(detector.failed().count(), 0);
    }
}

/// Some get no core for a while and die before they do: that is found, from their death on.
#[test]
fn who_waits_for_a_core_and_dies_is_declared() {
    for seed in seeds(20) {
        let mut world = World::new(16, seed, 10);
        world.starvation_shows = true;
        let dead: BTreeSet<u32> = (0..3).map(|_| world.random.below(16) as u32).collect();
        for &who in &dead {
            let at = (1_000 + world.random.below(1_000)) * MS;
            world.at(at, What::Pause(who));
            let at = (20_000 + world.random.below(5_000)) * MS;
            world.at(at, What::Kill(who));
        }
        world.run_until(20_000 * MS);
        world.assert_none_declared();
        world.run_until(40_000 * MS);
        world.assert_all_know(&dead);
        assert_eq!(world.in_state(State::Fenced), BTreeSet::new());
    }
}

/// When each of these beats next, for some periods, ticked when they want to be.
fn beats(detectors: &mut [Detector], until: Nanos) -> Vec<Nanos> {
    let mut beats = Vec::new();
    for detector in detectors {
        while let Some(at) = detector.next_deadline().filter(|at| *at < until) {
            detector.tick(at);
            while let Some(effect) = detector.poll_effect() {
                beats.extend(
                    matches!(effect, Effect::Send { message: Message::Beat { .. }, .. })
                        .then_some(at),
                );
            }
            // Whom it watches beats, so that nobody is asked or accused.
            let from = detector.emitter().expect("all live");
            let message = Message::Beat { chain: Vec::new(), known: Digest::default() };
            detector.handle(Event::Message { from, message }, at);
        }
    }
    beats.sort_unstable();
    beats
}

#[test]
fn heartbeats_of_many_do_not_come_at_once() {
    let period = CONFIG.period;
    for size in [2, 8, 42, 60, 1000_u32] {
        let mut all: Vec<_> = (0..size).map(|me| Detector::new(me, size, CONFIG, 0)).collect();
        let mut from = 0;
        for _ in 0..3 {
            // They all get to it together, and late.
            let late = from + period + period / 3;
            all.iter_mut().for_each(|detector| detector.tick(late));
            all.iter_mut().for_each(|detector| while detector.poll_effect().is_some() {});
            from = late;
            let beats = beats(&mut all, late + period);
            assert_eq!(beats.len(), size as usize, "each once a period");
            for window in 0..16 {
                let (low, high) = (late + window * period / 16, late + (window + 1) * period / 16);
                let within = beats.iter().filter(|at| (low..high).contains(at)).count();
                assert!(within as u32 <= size / 16 + 2, "{size}: {within} in window {window}");
            }
        }
    }
}

#[test]
fn only_a_living_one_is_asked_to_beat_when_many_died_at_once() {
    let mut detector = Detector::new(0, 50, CONFIG, 0);
    while detector.poll_effect().is_some() {}
    let processes: Vec<u32> = (40..50).chain([99]).collect();
    detector.handle(Event::Failed { processes, everybody: true }, 1);
    let asked: Vec<u32> = std::iter::from_fn(|| detector.poll_effect())
        .filter_map(|effect| match effect {
            Effect::Send { to, message: Message::Observe } => Some(to),
            _ => None,
        })
        .collect();
    assert_eq!((asked, detector.emitter()), (vec![39], Some(39)));
    assert!(detector.failed().eq(40..50), "and there is no process 99");
}

#[test]
fn nobody_is_accused_while_all_live() {
    for seed in seeds(10) {
        let mut world = World::new(24, seed, 8); // every eighth datagram is lost
        // Pauses up to half of the timeout, and one of the whole machine that is much longer.
        for slot in 0..60 {
            let who = slot as u32 * 7 % 24;
            let at = (slot * 700 + world.random.below(700)) * MS;
            let long = world.random.below(600) * MS;
            world.at(at, What::Pause(who));
            world.at(at + long, What::Resume(who));
        }
        for who in 0..24 {
            let (late, later) = (world.random.below(20) * MS, world.random.below(20) * MS);
            world.at(45_000 * MS + late, What::Pause(who));
            world.at(75_000 * MS + later, What::Resume(who));
        }
        world.run_until(90_000 * MS);
        world.assert_all_know(&BTreeSet::new());
    }
}

#[test]
fn the_dead_are_found_by_all_however_many() {
    for seed in seeds(30) {
        let mut random = Random(seed);
        let size = 2 + random.below(40) as u32;
        let mut world = World::new(size, seed, [0, 30, 10][random.below(3) as usize]);
        let mut dead = BTreeSet::new();
        // Up to all but one, at any time, in rows too.
        for _ in 0..random.below(u64::from(size)) {
            let first = random.below(u64::from(size)) as u32;
            let row = 1 + random.below(4) as u32;
            let at = random.below(5_000) * MS;
            for who in (first..first + row).map(|who| who % size) {
                if dead.len() + 1 < size as usize && dead.insert(who) {
                    world.at(at, What::Kill(who));
                }
            }
        }
        world.run_until(60_000 * MS);
        world.assert_all_know(&dead);
        assert_eq!(world.in_state(State::Fenced), BTreeSet::new());
    }
}

#[test]
fn one_failure_is_known_within_the_timeout_and_some_hops() {
    let mut world = World::new(64, 1, 0);
    world.at(3_000 * MS, What::Kill(17));
    world.run_until(10_000 * MS);
    world.assert_all_know(&BTreeSet::from([17]));
    let took = world.last_to_know(17) - 3_000 * MS;
    // A heartbeat may just have been sent; a tick's grain; six hops of at most 40 ms.
    assert!(took < CONFIG.timeout + CONFIG.period * 2 + 240 * MS, "{} ms", took / MS);
}

#[test]
fn a_lost_host_of_32_is_found_in_about_the_time_of_one() {
    let mut world = World::new(64, 2, 20);
    for who in 10..42 {
        world.at(3_000 * MS, What::Kill(who));
    }
    world.run_until(6_000 * MS);
    world.assert_all_know(&(10..42).collect());
}

#[test]
fn who_slept_too_long_is_fenced_and_nobody_else() {
    for seed in seeds(20) {
        let mut world = World::new(16, seed, 10);
        let who = world.random.below(16) as u32;
        world.at(2_000 * MS, What::Pause(who));
        world.at(9_000 * MS, What::Resume(who));
        world.run_until(20_000 * MS);
        assert_eq!(world.in_state(State::Fenced), BTreeSet::from([who]));
        assert!(world.processes[who as usize].declared.is_empty(), "a sleeper accuses nobody");
        world.assert_all_know(&BTreeSet::from([who]));
    }
}

/// Some get no core for several timeouts, again and again, while others die: only these are declared.
#[test]
fn who_waits_for_a_core_is_not_declared() {
    for seed in seeds(20) {
        let mut world = World::new(16, seed, 10);
        world.starvation_shows = true;
        let starved: Vec<u32> = (0..3).map(|_| world.random.below(16) as u32).collect();
        for (round, who) in (0..4).flat_map(|round| starved.iter().map(move |who| (round, *who))) {
            let at = (1_000 + 15_000 * round + world.random.below(3_000)) * MS;
            world.at(at, What::Pause(who));
            let long = 1_200 + world.random.below(6_000);
            world.at(at + long * MS, What::Resume(who));
            if round == 1 {
                let later = at + world.random.below(3_000) * MS;
                world.at(later, What::Suspect { by: (who + 8) % 16, process: who });
            }
        }
        let dead = (0..16).find(|who| !starved.contains(who)).expect("three of sixteen");
        let at = world.random.below(50_000) * MS;
        world.at(at, What::Kill(dead));
        world.run_until(80_000 * MS);
        assert_eq!(world.in_state(State::Fenced), BTreeSet::new());
        world.assert_all_know(&BTreeSet::from([dead]));
    }
}

#[test]
fn a_suspect_answers_or_is_declared_before_the_timeout() {
    for seed in seeds(10) {
        let mut world = World::new(20, seed, 10);
        world.at(1_000 * MS, What::Suspect { by: 3, process: 12 });
        world.at(2_000 * MS, What::Kill(15));
        world.at(2_001 * MS, What::Suspect { by: 5, process: 15 });
        world.run_until(30_000 * MS);
        assert!(world.processes[3].lives.contains(&12));
        assert!(world.processes[5].declared.contains(&15), "seed {seed}");
        let took = world.processes[5].knows_at[&15] - 2_000 * MS;
        assert!(took < CONFIG.probe_timeout + 3 * CONFIG.period, "{} ms", took / MS);
        world.assert_all_know(&BTreeSet::from([15]));
    }
}

#[test]
fn leaving_is_no_failure_in_whatever_order_and_at_once() {
    for seed in seeds(30) {
        let mut random = Random(seed);
        let size = 2 + random.below(30) as u32;
        let mut world = World::new(size, seed, [0, 10][random.below(2) as usize]);
        world.launcher = true;
        let spread = [0, 1, 300, 4_000][random.below(4) as usize];
        let stays = random.below(u64::from(size)) as u32;
        for who in (0..size).filter(|who| *who != stays) {
            let at = (1_000 + random.below(spread + 1)) * MS;
            world.at(at, What::Leave(who));
        }
        world.run_until(20_000 * MS);
        assert_eq!(world.in_state(State::Runs), BTreeSet::from([stays]), "seed {seed}");
        world.assert_all_know(&BTreeSet::new());
        assert!(world.processes.iter().all(|process| process.declared.is_empty()), "seed {seed}");
    }
}

#[test]
fn leavers_and_deaths_mixed_are_told_apart() {
    for seed in seeds(30) {
        let mut random = Random(seed);
        let size = 8 + random.below(24) as u32;
        let mut world = World::new(size, seed, [0, 10][random.below(2) as usize]);
        world.launcher = seed % 2 == 0;
        let mut dead = BTreeSet::new();
        for who in 0..size {
            match random.below(4) {
                0 => world.at((1_000 + random.below(1_000)) * MS, What::Leave(who)),
                1 => {
                    dead.insert(who);
                    world.at((4_000 + random.below(4_000)) * MS, What::Kill(who));
                }
                _ => {}
            }
        }
        world.run_until(40_000 * MS);
        if world.launcher {
            world.assert_all_know(&dead);
        }
        // Without a launcher, when nobody who knew that one left is there, it may count as failed; a living one never does.
        let gone: BTreeSet<u32> = world.in_state(State::Left).union(&dead).copied().collect();
        for me in world.in_state(State::Runs) {
            let known = world.processes[me as usize].detector.failed().collect();
            assert!(dead.is_subset(&known) && known.is_subset(&gone), "{me}: {known:?}");
        }
    }
}

#[test]
fn news_that_reached_only_some_reaches_all() {
    for seed in seeds(10) {
        let mut world = World::new(30, seed, 10);
        let dead = world.random.below(30) as u32;
        world.at(1_000 * MS, What::Kill(dead));
        for to in (0..30).filter(|to| *to != dead) {
            // The launcher tells half of the hosts.
            if to < 15 {
                world.at(1_000 * MS + 500 * US, What::Page { to, dead });
            }
        }
        world.run_until(20_000 * MS);
        world.assert_all_know(&BTreeSet::from([dead]));
    }
}

#[test]
fn two_sides_that_declared_each_other_do_not_both_stop() {
    // Two halves cannot hear each other for a long time, then they can.
    for (cut, survivors) in [(4u32, 4..12u32), (8, 0..8), (6, 0..6)] {
        let mut world = World::new(12, 7, 0);
        world.cut = Some(cut);
        world.run_until(15_000 * MS);
        assert!(world.in_state(State::Fenced).is_empty(), "nobody could tell the other side");
        world.cut = None;
        // One word from each side to the other after the link is back.
        for (from, to) in [(0, cut), (cut, 0)] {
            world.at(world.now, What::Arrives { from, to, message: Message::Observe });
        }
        let end = world.now + 20_000 * MS;
        world.run_until(end);
        let fenced = world.in_state(State::Fenced);
        assert!(!fenced.is_empty(), "one side is told");
        assert!(fenced.iter().all(|who| !survivors.contains(who)), "{fenced:?}");
    }
}

#[test]
fn half_of_a_thousand_die_at_once() {
    let mut world = World::new(1_000, 3, 50);
    let mut dead = BTreeSet::new();
    while dead.len() < 500 {
        dead.insert(world.random.below(1_000) as u32);
    }
    for &who in &dead {
        world.at(2_000 * MS, What::Kill(who));
    }
    world.run_until(20_000 * MS);
    world.assert_all_know(&dead);
    println!("{} datagrams in 20 s", world.sent);
}
