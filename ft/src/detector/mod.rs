//! The failure detector: who is alive, told by heartbeats on a ring (Bosilca, Bouteiller, Guermouche, Herault, Robert,
//! Sens, Dongarra: "Failure detection and propagation in HPC systems", SC 2016).
//!
//! Each process beats to its *observer*, the next member of the ring, and watches its *emitter*, the one before. When
//! the emitter is silent for [`Config::timeout`] it is declared failed, the next one before it is watched instead, and
//! notices travel over a circulant graph, acknowledged, so that everybody hears within a logarithmic number of hops.
//! Beyond the paper:
//! - silence is what this process *listened to*: time in which it did not run itself (stopped, starved, suspended with the
//!   whole machine) does not count, so nobody is accused by a sleeper who wakes up;
//! - many in a row (a host that is lost): while the emitter is silent, those before it are probed already, four times as
//!   many each time, so they are not found one after the other;
//! - heartbeats carry a digest of what is known: two that differ for a while tell each other everything, so news that the
//!   graph lost, or that came from a launcher which does not reach everybody, arrives all the same;
//! - a declared process that lives is told so by everybody it talks to, and stops (law 4). If two sides declare each other,
//!   the smaller one stops;
//! - leaving the job is no failure: both neighbours are told, and told whom to watch. When neighbours leave and die at once
//!   nobody may be left who knows, so whoever is accused is asked for at the launcher first ([`Effect::Accused`]). Where all
//!   living processes have agreed to leave, nobody waits for answers of those that may have left already: a few farewells do.
//!
//! Pure: no clock, thread, socket or randomness. In order: [`Detector::handle`] for what happened, [`Detector::tick`] at
//! [`Detector::next_deadline`] or later, after everything that has arrived was handled; then [`Detector::poll_effect`]
//! until it is empty. Datagrams may be lost, late, doubled or reordered; that they are from whom they say is proven
//! below (law 9).

mod leaving;
mod message;
mod ring;
mod spread;

pub use message::{CHAIN_MAX, Digest, MESSAGE_MAX, Message, NOTICE_MAX, Run};

use leaving::Farewell;
use ring::Ring;
use spread::Spread;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

/// Nanoseconds since an origin the owner chooses.
pub type Nanos = u64;

/// How often, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Between two heartbeats.
    pub period: Nanos,
    /// A watched process that is silent for so long has failed.
    pub timeout: Nanos,
    /// A process that a transport cannot reach, and that does not answer for so long, has failed.
    pub probe_timeout: Nanos,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A message arrived, proven to be from `from`.
    Message {
        /// Who sent it.
        from: u32,
        /// What it says.
        message: Message,
    },
    /// Processes are known for sure to have failed. Unless `everybody` hears that from the same source, it is passed on.
    Failed {
        /// The failed processes. Those that are known together should be told together: nobody asks the next one to beat that is dead, too.
        processes: Vec<u32>,
        /// Whether the source tells everybody.
        everybody: bool,
    },
    /// A transport cannot reach this process: ask it at once.
    Suspect(u32),
    /// The answer to [`Effect::Accused`]: whether the process counts as failed, or has left the job.
    Verdict {
        /// Who was accused.
        process: u32,
        /// `false`: it left, which is no failure.
        failed: bool,
    },
    /// The other answer to [`Effect::Accused`]: it lives, and is kept from its core. Its silence counts anew.
    Starved(u32),
    /// Nothing that was to be sent to it has gone out before now: its silence counts from here on.
    Unasked(u32),
    /// This process itself has not yet got to asking for the verdicts that it waits for, for want of a core: the time for them counts anew.
    Waiting,
    /// The answer to [`Effect::Missing`] when the process has left the job; when it has not there is nothing to say.
    HasLeft(u32),
    /// This process leaves the job; [`Effect::Left`] follows.
    Leave {
        /// All living processes are about to, and know it: a neighbour that does not answer has left before, and nobody
        /// is needed who would tell that.
        together: bool,
    },
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Send a datagram.
    Send {
        /// To whom.
        to: u32,
        /// What.
        message: Message,
    },
    /// This process was silent for too long. Whoever knows more, a launcher, is to be asked: it may have left the job. Give
    /// [`Event::Verdict`] or [`Event::Starved`]; without one it is declared failed after half a timeout more, a second at least.
    Accused(u32),
    /// This process leaves and waits for that one, which does not answer: it may have left before, of which only its neighbours
    /// were told. Ask a launcher, if there is one, and give [`Event::HasLeft`] if so. Asked again with each repeated farewell.
    Missing(u32),
    /// This process declares `0` failed: see to it that it stops.
    Declared(u32),
    /// Another detector says that this process has failed.
    Told(u32),
    /// A suspect answered, or left the job: it did not fail.
    Lives(u32),
    /// This process itself was declared failed: it stops.
    Fenced,
    /// The others know that this process left, or never will.
    Left,
}

/// A verdict is waited for at least so long: on a busy machine a launcher answers late, and who is busy is no less alive.
const VERDICT_MIN: Nanos = 1_000_000_000;

/// 2^32 by the golden section.
const GOLDEN: u32 = 0x9e37_79b9;

/// How far this process is in its life as a member.
#[derive(Debug)]
enum Phase {
    Member,
    Leaving { until: Nanos, together: bool, farewells: Vec<Farewell> },
    Left,
    Fenced,
}

/// The process before this one, as far as it was heard.
#[derive(Debug)]
struct Watch {
    emitter: u32,
    silent: Nanos,
    /// Up to when its silence is counted, or when it was heard.
    counted: Nanos,
    /// When to ask it (again) to beat for this process, if it is silent then.
    ask_at: Nanos,
    /// Who is before it: all but those that left, of whom only their neighbours were told.
    chain: Vec<Run>,
    /// Heartbeats in a row that showed other knowledge than ours.
    differing: u8,
}

/// A process that is asked whether it lives.
#[derive(Debug)]
struct Probe {
    process: u32,
    token: u32,
    silent: Nanos,
    /// Up to when its silence is counted.
    counted: Nanos,
    limit: Nanos,
    again_at: Nanos,
    /// A transport wants to know, too.
    asked: bool,
}

/// How far the members before a silent emitter have been probed.
#[derive(Debug, Clone, Copy)]
enum Scout {
    /// The emitter speaks.
    Idle,
    /// That many; `step` in all at `at`.
    Searching { step: usize, at: Nanos },
    /// One of them answered.
    Found,
}

/// The detector of one process.
///
/// ```
/// use ironweave_ft::detector::{Config, Detector, Effect, Event};
/// let config = Config { period: 10, timeout: 100, probe_timeout: 30 };
/// let mut detector = Detector::new(0, 2, config, 0);
/// // Process 1 never says anything.
/// let mut declared = None;
/// while declared.is_none() {
///     let now = detector.next_deadline().expect("it watches process 1");
///     detector.tick(now);
///     while let Some(effect) = detector.poll_effect() {
///         match effect {
///             Effect::Accused(1) => detector.handle(Event::Verdict { process: 1, failed: true }, now),
///             Effect::Declared(1) => declared = Some(now),
///             _ => {}
///         }
///     }
/// }
/// assert!(matches!(declared, Some(100..=110)));
/// ```
#[derive(Debug)]
pub struct Detector {
    config: Config,
    ring: Ring,
    phase: Phase,
    observer: Option<u32>,
    watch: Option<Watch>,
    probes: Vec<Probe>,
    scout: Scout,
    spread: Spread,
    /// Those that told this process that they leave.
    leavers: Vec<u32>,
    /// Silent for too long, and how much longer a verdict is waited for. Counted from tick to tick, as silence is: a process that
    /// slept could hear no verdict either.
    accused: BTreeMap<u32, Nanos>,
    /// Declared by this process and not known to be gone: told every period until then.
    condemned: BTreeMap<u32, Nanos>,
    /// When dead processes that talk to us were last told to stop.
    fenced_at: BTreeMap<u32, Nanos>,
    began: Nanos,
    beat_at: Nanos,
    last_tick: Nanos,
    effects: VecDeque<Effect>,
}

impl Detector {
    /// The detector of process `me` of `size`, all of them members at first.
    ///
    /// # Panics
    /// `me` is no process of the job, or a time is zero.
    #[must_use]
    pub fn new(me: u32, size: u32, config: Config, now: Nanos) -> Detector {
        assert!(config.period > 0 && config.timeout > 0 && config.probe_timeout > 0);
        let ring = Ring::new(me, size);
        let observer = ring.after(me);
        let mut detector = Detector {
            config,
            observer,
            watch: None,
            ring,
            phase: Phase::Member,
            probes: Vec::new(),
            scout: Scout::Idle,
            spread: Spread::new(config.period, config.timeout),
            leavers: Vec::new(),
            accused: BTreeMap::new(),
            condemned: BTreeMap::new(),
            fenced_at: BTreeMap::new(),
            began: now,
            beat_at: now,
            last_tick: now,
            effects: VecDeque::new(),
        };
        if let Some(emitter) = detector.ring.before(me) {
            // It beats for this process by itself: no need to ask.
            let chain = match size {
                0..=2 => Vec::new(),
                _ => vec![Run { first: (emitter + size - 1) % size, len: size - 2 }],
            };
            let ask_at = now + config.period * 3;
            detector.watch =
                Some(Watch { emitter, silent: 0, counted: now, ask_at, chain, differing: 0 });
        }
        detector
    }

    /// Whom this process watches.
    #[must_use]
    pub fn emitter(&self) -> Option<u32> {
        self.watch.as_ref().map(|watch| watch.emitter)
    }

    /// Whom this process beats for.
    #[must_use]
    pub fn observer(&self) -> Option<u32> {
        self.observer
    }

    /// The processes this one knows to have failed, by number.
    pub fn failed(&self) -> impl Iterator<Item = u32> + '_ {
        self.ring.dead()
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When [`tick`](Self::tick) wants to be called; `None` when it never does.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        let farewell = match &self.phase {
            Phase::Left | Phase::Fenced => return None,
            Phase::Member => None,
            Phase::Leaving { until, farewells, .. } => {
                farewells.iter().map(|farewell| farewell.again_at).chain([*until]).min()
            }
        };
        // Every period at least, for silence is counted from tick to tick.
        let beat = self.watch.as_ref().map(|_| self.beat_at);
        let probe = self.probes.iter().map(|probe| probe.again_at).min();
        let condemned = self.condemned.first_key_value().map(|_| self.beat_at);
        let verdict = self.accused.values().min();
        let verdict = verdict.map(|left| self.last_tick + (*left).min(self.config.period));
        [beat, probe, condemned, verdict, farewell, self.spread.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether a verdict on this process is still waited for: since [`Effect::Accused`] nothing was heard from it.
    pub fn accuses(&self, process: u32) -> bool {
        self.accused.contains_key(&process)
    }

    /// Something happened.
    pub fn handle(&mut self, event: Event, now: Nanos) {
        if matches!(self.phase, Phase::Left | Phase::Fenced) {
            return;
        }
        match event {
            Event::Message { from, message } => self.message(from, message, now),
            Event::Failed { processes, .. } if processes.contains(&self.ring.me) => self.stop(),
            Event::Failed { mut processes, everybody } => {
                processes.retain(|process| *process < self.ring.size);
                self.condemned.retain(|process, _| !processes.contains(process));
                self.fail(&processes, None, !everybody, now);
            }
            Event::Suspect(process)
                if process < self.ring.size && self.ring.is_other_member(process) =>
            {
                self.probe(process, self.config.probe_timeout, true, now);
            }
            Event::Suspect(_) => {}
            Event::Verdict { process, failed } => {
                if self.accused.remove(&process).is_some() {
                    match failed {
                        true => self.declare(&[process], now),
                        false => self.left(process, None, None, now),
                    }
                }
            }
            Event::Starved(process) => {
                if self.accused.remove(&process).is_some() {
                    self.listen_anew(process, now);
                }
            }
            Event::Unasked(process) => {
                self.accused.remove(&process);
                self.listen_anew(process, now);
            }
            Event::Waiting => {
                let whole = self.patience();
                self.accused.values_mut().for_each(|left| *left = whole);
            }
            Event::HasLeft(process) => {
                if process < self.ring.size && self.ring.is_other_member(process) {
                    self.left(process, None, None, now);
                }
            }
            Event::Leave { together } => {
                if matches!(self.phase, Phase::Member) {
                    let until = now + self.config.timeout;
                    self.phase = Phase::Leaving { until, together, farewells: Vec::new() };
                    self.say_farewell(now);
                }
            }
        }
        self.drive_notices(now);
        self.finish_leaving(now);
    }

    /// Time has passed, and everything that had arrived was handled.
    pub fn tick(&mut self, now: Nanos) {
        if matches!(self.phase, Phase::Left | Phase::Fenced) {
            return;
        }
        // A long gap was this process's own sleep, in which it could hear nobody.
        let listened = now.saturating_sub(self.last_tick).min(2 * self.config.period);
        self.last_tick = now;
        let mut silent = self.listen_to_emitter(listened, now);
        self.ask_suspects(listened, now, &mut silent);
        if matches!(self.phase, Phase::Member) {
            for left in self.accused.values_mut() {
                *left = left.saturating_sub(listened);
            }
            let whole = self.patience();
            for process in silent {
                if let Entry::Vacant(new) = self.accused.entry(process) {
                    new.insert(whole);
                    self.effects.push_back(Effect::Accused(process));
                }
            }
            let over: Vec<u32> =
                self.accused.iter().filter(|(_, left)| **left == 0).map(|(p, _)| *p).collect();
            self.accused.retain(|_, left| *left > 0);
            self.declare(&over, now);
        }
        if now >= self.beat_at {
            self.beat_at = self.next_beat(now);
            if let Some(observer) = self.observer {
                self.beat(observer);
            }
            self.remind_condemned(now);
        }
        self.repeat_farewells(now);
        self.drive_notices(now);
        self.finish_leaving(now);
    }

    /// When to beat again: once a period, the processes of a job each at a time of its own in it. Many on few cores that beat at once
    /// keep those for milliseconds from whoever wants them then; golden sections part any number of neighbours well. Nobody's time
    /// moves because a beat was late, for all that wait for one core are late together.
    fn next_beat(&self, now: Nanos) -> Nanos {
        let period = self.config.period;
        let share = u64::from(self.ring.me.wrapping_mul(GOLDEN));
        let own = self.began + ((u128::from(share) * u128::from(period)) >> u32::BITS) as Nanos;
        let gone = now.saturating_sub(own) / period;
        if now < own { own } else { own + (gone + 1) * period }
    }

    /// How long a verdict is waited for.
    fn patience(&self) -> Nanos {
        (self.config.timeout / 2).max(VERDICT_MIN)
    }

    fn message(&mut self, from: u32, message: Message, now: Nanos) {
        if from >= self.ring.size || from == self.ring.me {
            return;
        }
        if self.ring.is_dead(from) {
            match message {
                // Each of the two declared the other.
                Message::Fence { living, lowest } if self.is_smaller_than(living, lowest) => {
                    self.stop();
                }
                _ => self.fence(from, now),
            }
            return;
        }
        match message {
            Message::Beat { chain, known } => self.heartbeat(from, chain, known, now),
            Message::Observe => self.observed_by(from),
            Message::Probe { token } => self.send(from, Message::Answer { token }),
            Message::Answer { token } => {
                let asked = |probe: &Probe| probe.process == from && probe.token == token;
                if self.probes.iter().any(asked) {
                    self.lives(from);
                }
            }
            Message::Notice { token, sync, known, failed } => {
                if failed.contains(&self.ring.me) {
                    self.stop();
                    return;
                }
                self.send(from, Message::Ack { token });
                self.spread.heard(from, &failed);
                self.fail(&failed, Some(from), true, now);
                if sync && self.ring.known() != known && !self.ring.is_dead(from) {
                    let all: Vec<u32> = self.ring.dead().collect();
                    self.spread.offer(from, all, false);
                }
            }
            Message::Ack { token } => {
                self.spread.acknowledged(from, token);
                if let Phase::Leaving { farewells, .. } = &mut self.phase {
                    for farewell in farewells.iter_mut().filter(|f| f.token == token) {
                        farewell.acknowledged = true;
                    }
                }
            }
            Message::Leave { token, emitter, observer } => {
                self.send(from, Message::Ack { token });
                self.left(from, emitter, observer, now);
            }
            Message::Fence { .. } => self.stop(),
        }
    }

    /// Declares processes failed, on this process's own word.
    fn declare(&mut self, processes: &[u32], now: Nanos) {
        for &process in processes {
            self.effects.push_back(Effect::Declared(process));
            self.condemned.insert(process, now + self.config.timeout);
            self.fence(process, now);
        }
        self.fail(processes, None, true, now);
    }

    fn send(&mut self, to: u32, message: Message) {
        self.effects.push_back(Effect::Send { to, message });
    }

    /// This process was declared failed: from here on it says nothing (law 4).
    fn stop(&mut self) {
        self.phase = Phase::Fenced;
        self.effects.clear();
        self.effects.push_back(Effect::Fenced);
    }

    /// Whether this side of a split is the one that stops: fewer live on it, or as many and the lowest not.
    fn is_smaller_than(&self, living: u32, lowest: u32) -> bool {
        let (mine, my_lowest) = self.ring.living();
        mine < living || mine == living && my_lowest > lowest
    }

    /// Tells a process that it was declared failed, at most once a period.
    fn fence(&mut self, process: u32, now: Nanos) {
        let at = self.fenced_at.entry(process).or_insert(0);
        if *at == 0 || now.saturating_sub(*at) >= self.config.period {
            *at = now.max(1);
            let (living, lowest) = self.ring.living();
            self.send(process, Message::Fence { living, lowest });
        }
    }

    fn remind_condemned(&mut self, now: Nanos) {
        self.condemned.retain(|_, until| now < *until);
        let condemned: Vec<u32> = self.condemned.keys().copied().collect();
        condemned.into_iter().for_each(|process| self.fence(process, now));
    }
}

/// The ring: heartbeats, and who watches whom.
impl Detector {
    fn beat(&mut self, observer: u32) {
        let mine = |watch: &Watch| self.ring.chain_of_mine(watch.emitter, &watch.chain);
        let chain = self.watch.as_ref().map(mine).unwrap_or_default();
        self.send(observer, Message::Beat { chain, known: self.ring.known() });
    }

    fn heartbeat(&mut self, from: u32, chain: Vec<Run>, known: Digest, now: Nanos) {
        let ours = self.ring.known();
        let Some(watch) = self.watch.as_mut().filter(|watch| watch.emitter == from) else { return };
        watch.silent = 0;
        watch.counted = now;
        self.accused.remove(&from);
        watch.chain = chain;
        watch.differing = if known == ours { 0 } else { watch.differing + 1 };
        let tell = watch.differing == 3;
        if tell {
            watch.differing = 0;
        }
        self.scout = Scout::Idle;
        // For a transport's suspicion only the answer counts: this may have been sent before the suspect died.
        self.probes.retain(|probe| probe.process != from || probe.asked);
        if tell {
            let all: Vec<u32> = self.ring.dead().collect();
            self.spread.offer(from, all, true);
        }
    }

    fn observed_by(&mut self, from: u32) {
        // Whoever asks holds everybody between us for dead, and knowledge only grows: the farther one knows more.
        let me = self.ring.me;
        let farther = |observer| self.ring.distance(me, from) >= self.ring.distance(me, observer);
        if self.ring.is_other_member(from) && self.observer.is_none_or(farther) {
            self.observer = Some(from);
        }
        self.beat(from);
    }

    fn watch(&mut self, emitter: Option<u32>, now: Nanos) {
        let old = self.watch.take().map(|watch| watch.chain).unwrap_or_default();
        let Some(emitter) = emitter else { return };
        let chain = self.ring.chain_before(emitter, &old);
        let ask_at = now + self.config.period;
        self.watch = Some(Watch { emitter, silent: 0, counted: now, ask_at, chain, differing: 0 });
        self.send(emitter, Message::Observe);
    }

    /// Counts the emitter's silence; returns it when it was too long.
    fn listen_to_emitter(&mut self, listened: Nanos, now: Nanos) -> Vec<u32> {
        let Config { period, timeout, .. } = self.config;
        let Some(watch) = &mut self.watch else { return Vec::new() };
        watch.silent += listened.min(now.saturating_sub(watch.counted));
        watch.counted = now;
        let (emitter, silent) = (watch.emitter, watch.silent);
        if silent >= timeout {
            return vec![emitter];
        }
        if now >= watch.ask_at && silent > 2 * period {
            watch.ask_at = now + period;
            self.send(emitter, Message::Observe);
        }
        if silent >= timeout / 3 {
            self.scout(now);
        }
        Vec::new()
    }

    /// Probes members before the silent emitter, more each time none of them has answered.
    fn scout(&mut self, now: Nanos) {
        let step = match self.scout {
            Scout::Idle => 4,
            Scout::Searching { step, at } if now >= at => step * 4,
            Scout::Searching { .. } | Scout::Found => return,
        };
        let Some(watch) = &self.watch else { return };
        let next: Vec<u32> = self.ring.members(&watch.chain).take(step).collect();
        next.into_iter().for_each(|process| self.probe(process, self.config.timeout, false, now));
        let at = now + (self.config.timeout / 6).max(1);
        self.scout = Scout::Searching { step, at };
    }

    fn probe(&mut self, process: u32, limit: Nanos, asked: bool, now: Nanos) {
        if let Some(probe) = self.probes.iter_mut().find(|probe| probe.process == process) {
            probe.asked |= asked;
            probe.limit = probe.limit.min(probe.silent.saturating_add(limit));
            return;
        }
        let token = self.spread.token();
        let again_at = now + self.probe_gap(limit);
        self.probes.push(Probe { process, token, silent: 0, counted: now, limit, again_at, asked });
        self.send(process, Message::Probe { token });
    }

    fn probe_gap(&self, limit: Nanos) -> Nanos {
        self.config.period.min(limit / 8).max(1)
    }

    /// Asks suspects again; adds those that were silent for too long to `silent`.
    fn ask_suspects(&mut self, listened: Nanos, now: Nanos, silent: &mut Vec<u32>) {
        let mut again = Vec::new();
        let period = self.config.period;
        for probe in &mut self.probes {
            // Not before it was asked.
            probe.silent += listened.min(now.saturating_sub(probe.counted));
            probe.counted = now;
            if probe.silent >= probe.limit {
                if !silent.contains(&probe.process) {
                    silent.push(probe.process);
                }
            } else if now >= probe.again_at {
                probe.again_at = now + period.min(probe.limit / 8).max(1);
                again.push((probe.process, probe.token));
            }
        }
        for (process, token) in again {
            self.send(process, Message::Probe { token });
        }
    }

    /// What was heard of a process until now is forgiven.
    fn listen_anew(&mut self, process: u32, now: Nanos) {
        if let Some(watch) = self.watch.as_mut().filter(|watch| watch.emitter == process) {
            watch.silent = 0;
            watch.counted = now;
        }
        for probe in self.probes.iter_mut().filter(|probe| probe.process == process) {
            probe.silent = 0;
            probe.counted = now;
        }
    }

    /// A probed process showed that it lives.
    fn lives(&mut self, process: u32) {
        self.accused.remove(&process);
        if let Some(at) = self.probes.iter().position(|probe| probe.process == process) {
            let probe = self.probes.swap_remove(at);
            if probe.asked {
                self.effects.push_back(Effect::Lives(process));
            } else if matches!(self.scout, Scout::Searching { .. }) {
                self.scout = Scout::Found;
            }
        }
    }

    /// Applies failures, once each: passes them on, and closes the ring over them.
    fn fail(&mut self, failed: &[u32], from: Option<u32>, pass_on: bool, now: Nanos) {
        let before = self.ring.targets();
        let new: Vec<u32> =
            failed.iter().copied().filter(|process| self.ring.fail(*process)).collect();
        for &process in &new {
            if from.is_some() {
                self.effects.push_back(Effect::Told(process));
            }
            self.probes.retain(|probe| probe.process != process);
            self.accused.remove(&process);
            self.spread.forget(process);
            if pass_on {
                self.spread.remember(process);
            }
        }
        if new.is_empty() {
            return;
        }
        // What came over a distance goes on over shorter ones first, the longest of them first: the binomial tree.
        let (me, mut targets) = (self.ring.me, self.ring.targets());
        let came = from.map_or(self.ring.size, |from| self.ring.distance(from, me));
        targets.sort_unstable_by_key(|target| {
            let distance = self.ring.distance(me, *target);
            (distance >= came, std::cmp::Reverse(distance))
        });
        for target in targets {
            if !before.contains(&target) {
                self.spread.offer_recent(target);
            } else if pass_on && Some(target) != from {
                self.spread.offer(target, new.iter().copied(), false);
            }
        }
        self.close_ring(None, None, now);
    }

    fn left(&mut self, process: u32, emitter: Option<u32>, observer: Option<u32>, now: Nanos) {
        let before = self.ring.targets();
        let me = self.ring.me;
        self.ring.leave(process);
        if !self.leavers.contains(&process) {
            self.leavers.push(process);
        }
        // Told again when a neighbour of it has left before it: everybody between these two is out, and nobody else
        // would say so.
        let skipped: Vec<u32> = match (emitter, observer) {
            (Some(emitter), Some(observer)) => self.ring.between(emitter, observer).collect(),
            _ => Vec::new(),
        };
        skipped.into_iter().filter(|out| *out != me).for_each(|out| self.ring.leave(out));
        self.lives(process);
        self.spread.forget(process);
        let new = self.ring.targets().into_iter().filter(|target| !before.contains(target));
        new.for_each(|target| self.spread.offer_recent(target));
        self.close_ring(emitter, observer, now);
    }

    /// Takes the next members for neighbours that are out; whoever left said who these are.
    fn close_ring(&mut self, emitter: Option<u32>, observer: Option<u32>, now: Nanos) {
        let mut changed = false;
        if let Some(watch) = self.watch.as_ref().filter(|w| !self.ring.is_other_member(w.emitter)) {
            let told = emitter.filter(|process| self.ring.is_other_member(*process));
            let next = told.or_else(|| self.ring.members(&watch.chain).next());
            let next = next.or_else(|| self.ring.before(watch.emitter));
            self.watch(next, now);
            changed = true;
        }
        if let Some(old) = self.observer.filter(|old| !self.ring.is_other_member(*old)) {
            let told = observer.filter(|process| self.ring.is_other_member(*process));
            self.observer = told.or_else(|| self.ring.after(old));
            changed = true;
        }
        if changed && matches!(self.phase, Phase::Leaving { .. }) {
            self.say_farewell(now);
        }
    }

    fn drive_notices(&mut self, now: Nanos) {
        let known = self.ring.known();
        for mute in self.spread.drive(now, known, &mut self.effects) {
            // It left, and nobody told us, or it is being found dead: the one after it then.
            if let Some(next) = self.ring.after(mute) {
                self.spread.offer_recent(next);
            }
        }
    }
}
