//! A few planes and the channels between them, without time: whoever uses it decides what happens next.
//!
//! What it watches: law 7 (whatever is returned for an agreement is the same everywhere, those included that die
//! afterwards), and what must hold when nothing can happen any more: every living member has every failure, every
//! revocation and every decision.

#![allow(dead_code, reason = "each test uses its part")]

use ironweave_ft::{
    CommKey, Contribution, Decided, Effect, Frame, Group, Plane, PlaneConfig, RankSet, Scope,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

pub const KEY: CommKey = CommKey { cid: 3, epoch: 1 };

/// Something that can happen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Event {
    /// The next frame from the first to the second process arrives.
    Deliver(u32, u32),
    /// A process dies. Of what it sent, all but the last frames of each channel still arrive: how many are lost is
    /// counted in one number over all channels, see [`Net::losses`].
    Crash(u32, u32),
    /// The first learns for sure that the second is dead.
    Detect(u32, u32),
    /// A process takes part in the next agreement.
    Contribute(u32),
    /// A process revokes.
    Revoke(u32),
    /// A process that lives is told dead to another.
    Accuse(u32, u32),
}

#[derive(Clone)]
pub struct Net {
    pub planes: Vec<Plane>,
    pub channels: BTreeMap<(u32, u32), VecDeque<Frame>>,
    pub alive: Vec<bool>,
    /// Living processes that somebody was told to be dead.
    pub accused: BTreeSet<u32>,
    /// Who has been told of whom by its own detector.
    pub detected: BTreeSet<(u32, u32)>,
    /// What was returned, by agreement; stays when the process dies.
    pub returned: BTreeMap<u64, Vec<(u32, Decided)>>,
    /// How many agreements each has begun, and may begin.
    pub begun: Vec<u64>,
    pub agreements: u64,
    /// Who has returned from which.
    pub ended: BTreeSet<(u32, u64)>,
    pub revoked: BTreeSet<u32>,
    pub revokers: BTreeSet<u32>,
    pub broken: Option<String>,
}

pub fn flag_of(process: u32, seq: u64) -> u64 {
    !(1 << (process as u64 + 8 * (seq % 4)))
}

impl Net {
    pub fn new(size: u32, fan: u32, agreements: u64, revokers: &[u32]) -> Self {
        let config = PlaneConfig { fan, notice_gap: 0, ..PlaneConfig::default() };
        let mut planes: Vec<Plane> = (0..size).map(|me| Plane::new(me, size, config)).collect();
        for plane in &mut planes {
            plane.add_comm(KEY, Group::world(size), 0);
        }
        Net {
            planes,
            channels: BTreeMap::new(),
            alive: vec![true; size as usize],
            accused: BTreeSet::new(),
            detected: BTreeSet::new(),
            returned: BTreeMap::new(),
            begun: vec![0; size as usize],
            agreements,
            ended: BTreeSet::new(),
            revoked: BTreeSet::new(),
            revokers: revokers.iter().copied().collect(),
            broken: None,
        }
    }

    pub fn size(&self) -> u32 {
        self.planes.len() as u32
    }

    /// Lives, and nobody holds it for dead.
    pub fn sound(&self, process: u32) -> bool {
        self.alive[process as usize] && !self.accused.contains(&process)
    }

    pub fn runs(&self, process: u32) -> bool {
        self.alive[process as usize] && !self.planes[process as usize].is_fenced()
    }

    /// Everything that can happen now, but crashes and accusations, which the caller rations.
    pub fn possible(&self) -> Vec<Event> {
        let mut events: Vec<Event> =
            self.channels.keys().map(|(from, to)| Event::Deliver(*from, *to)).collect();
        for me in (0..self.size()).filter(|me| self.runs(*me)) {
            if self.begun[me as usize] < self.agreements {
                events.push(Event::Contribute(me));
            }
            if self.revokers.contains(&me) {
                events.push(Event::Revoke(me));
            }
            for other in 0..self.size() {
                if !self.sound(other)
                    && other != me
                    && (!self.alive[other as usize] || self.accused.contains(&other))
                    && self.sound(me)
                    && !self.detected.contains(&(me, other))
                    && !self.planes[me as usize].dead().contains(other)
                {
                    events.push(Event::Detect(me, other));
                }
            }
        }
        events
    }

    /// Number of ways in which frames can be lost when `process` dies now.
    pub fn losses(&self, process: u32) -> u32 {
        let of = |to| self.channels.get(&(process, to)).map_or(0, VecDeque::len) as u32 + 1;
        (0..self.size()).map(of).product()
    }

    pub fn happen(&mut self, event: Event) {
        let acting = match event {
            Event::Deliver(from, to) => {
                let queue = self.channels.get_mut(&(from, to)).expect("a frame is there");
                let frame = queue.pop_front().expect("empty channels are removed");
                if queue.is_empty() {
                    self.channels.remove(&(from, to));
                }
                self.planes[to as usize].receive(from, &frame, 0);
                to
            }
            Event::Crash(process, mut loss) => {
                self.alive[process as usize] = false;
                for to in 0..self.size() {
                    if let Some(queue) = self.channels.get_mut(&(process, to)) {
                        let ways = queue.len() as u32 + 1;
                        queue.truncate(queue.len() - (loss % ways) as usize);
                        loss /= ways;
                    }
                }
                self.channels.retain(|(_, to), queue| *to != process && !queue.is_empty());
                return;
            }
            Event::Detect(me, other) | Event::Accuse(me, other) => {
                if let Event::Accuse(..) = event {
                    self.accused.insert(other);
                }
                self.detected.insert((me, other));
                self.planes[me as usize].failed(other, 0);
                me
            }
            Event::Contribute(me) => {
                let seq = self.begun[me as usize];
                self.begun[me as usize] += 1;
                // Odd ranks acknowledge what they know.
                let plane = &mut self.planes[me as usize];
                let acknowledged = if me % 2 == 1 { plane.dead().clone() } else { RankSet::new() };
                plane.agree(
                    KEY,
                    seq,
                    Contribution { flag: flag_of(me, seq), highest: u64::from(me), acknowledged },
                    0,
                );
                me
            }
            Event::Revoke(me) => {
                self.revokers.remove(&me);
                self.revoked.insert(me);
                self.planes[me as usize].revoke(KEY, Scope::All, 0);
                me
            }
        };
        self.planes[acting as usize].tick(0);
        self.effects(acting);
    }

    fn effects(&mut self, me: u32) {
        while let Some(effect) = self.planes[me as usize].poll_effect() {
            match effect {
                Effect::Send { to, bytes } => {
                    if self.alive[to as usize] {
                        self.channels.entry((me, to)).or_default().push_back(bytes);
                    }
                }
                Effect::Failed(process) => {
                    if self.sound(process) {
                        self.break_law(format!(
                            "{me} is told that {process} failed, but nobody said so"
                        ));
                    }
                }
                Effect::Revoked(..) => {
                    if !self.revoked.insert(me) {
                        self.break_law(format!("{me} is told twice of a revocation"));
                    }
                }
                Effect::Decided(decided) => {
                    if !self.ended.insert((me, decided.seq)) {
                        self.break_law(format!("{me} returns twice from {}", decided.seq));
                    }
                    self.check(me, &decided);
                    self.returned.entry(decided.seq).or_default().push((me, decided));
                }
                Effect::Fenced => {
                    if self.sound(me) {
                        self.break_law(format!("{me} is fenced, but nobody said that it failed"));
                    }
                }
            }
        }
    }

    fn check(&mut self, me: u32, decided: &Decided) {
        let seq = decided.seq;
        if let Some(other) = self.returned.get(&seq).and_then(|all| all.first())
            && other.1 != *decided
        {
            self.break_law(format!(
                "{me} returns {decided:?}, but {} returned {:?}",
                other.0, other.1
            ));
        }
        if let Some(process) = decided.failed.iter().find(|process| self.sound(*process)) {
            self.break_law(format!("{process} lives and is in {decided:?}"));
        }
        let part = (0..self.size()).filter(|process| decided.flag & !flag_of(*process, seq) == 0);
        if part.max().map(u64::from) != Some(decided.highest) {
            self.break_law(format!("the highest of {decided:?}"));
        }
        // Everybody who is not in the failed set has contributed; nobody else's flag is in it.
        for process in 0..self.size() {
            let bit = flag_of(process, seq);
            let is_in = decided.flag & !bit == 0;
            let has_begun = self.begun[process as usize] > seq;
            if (!decided.failed.contains(process) && !is_in) || (is_in && !has_begun) {
                self.break_law(format!("the contribution of {process} to {decided:?}"));
            }
        }
    }

    pub fn break_law(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    /// Nothing can happen any more: everything must have happened.
    pub fn check_end(&mut self) {
        let sound: Vec<u32> = (0..self.size()).filter(|process| self.sound(*process)).collect();
        let dead: RankSet = (0..self.size()).filter(|process| !self.sound(*process)).collect();
        let revoked = sound.iter().any(|process| self.revoked.contains(process));
        for process in sound {
            let plane = &self.planes[process as usize];
            let (known, accused) = (plane.dead().clone(), plane.is_fenced());
            if known != dead || accused {
                self.break_law(format!("{process} knows of {known:?}, not {dead:?}"));
            }
            if revoked && !self.revoked.contains(&process) {
                self.break_law(format!("{process} is not told of the revocation"));
            }
            for seq in 0..self.agreements {
                if self.begun[process as usize] > seq && !self.ended.contains(&(process, seq)) {
                    self.break_law(format!("{process} does not return from {seq}"));
                }
            }
            let counters = self.planes[process as usize].counters();
            if counters.malformed > 0 {
                self.break_law(format!("{process} holds a sound frame for malformed"));
            }
        }
    }

    pub fn fingerprint(&self) -> u64 {
        let mut state = DefaultHasher::new();
        for (me, plane) in self.planes.iter().enumerate() {
            self.alive[me].hash(&mut state);
            if self.alive[me] {
                plane.hash(&mut state);
            }
        }
        self.channels.hash(&mut state);
        (&self.accused, &self.begun, &self.ended, &self.revoked, &self.revokers).hash(&mut state);
        for decided in self.returned.values() {
            decided.first().map(|one| &one.1).hash(&mut state);
        }
        state.finish()
    }
}
