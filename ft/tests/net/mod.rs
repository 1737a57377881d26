//! A few planes and the channels between them, without time: whoever uses it decides what happens next.
//!
//! What it watches: law 7 (whatever is returned for an agreement is the same everywhere, those included that die
//! afterwards), and what must hold when nothing can happen any more: every living member has every failure, every
//! revocation and every decision.
//!
//! A copy is cheap: planes and channels are shared until they change, and carry their hash.

#![allow(dead_code, reason = "each test uses its part")]

use ironweave_ft::{
    Board, CommKey, Contribution, Decided, Effect, Frame, Group, Look, Plane, PlaneConfig, RankSet,
    Scope,
};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

pub const KEY: CommKey = CommKey { cid: 3, epoch: 1 };

/// Something that can happen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Event {
    /// The next frame from the first to the second process arrives.
    Deliver(u32, u32),
    /// A process dies. Of each of its channels the last frames may be lost; the number says how many of which, see
    /// [`Net::losses`].
    Crash(u32, u32),
    /// The first learns by its own detector that the second is dead.
    Detect(u32, u32),
    /// A process takes part in the next agreement.
    Contribute(u32),
    /// A process looks at the board, which says more than that somebody is missing.
    Look(u32),
    /// A process revokes.
    Revoke(u32),
    /// A process writes a revocation on the board and dies before it rings the bell.
    Falter(u32),
    /// A process hears the bell of the board.
    Hear(u32),
    /// A process gets the communicator that others have already.
    Join(u32),
    /// The first, which lives, is told dead to the second.
    Accuse(u32, u32),
}

/// What is in the world, and what it is to do.
#[derive(Clone, Debug)]
pub struct Setting {
    pub size: u32,
    pub fan: u32,
    /// How many agreements each process takes part in.
    pub agreements: u64,
    /// Begin all agreements before anything else happens.
    pub at_once: bool,
    pub revokers: Vec<u32>,
    /// Everybody detects every death, in any order (else: only that of the next on the ring that it holds for living).
    pub all_detect: bool,
    /// Failure notices are lost: only detectors tell.
    pub mute: bool,
    /// What is on its way from a process is lost for whoever learns that it is dead, at once and not on arrival: the
    /// receiver would drop it. Then a crash itself need not lose anything.
    pub purge: bool,
    /// Messages outlive their senders: a death loses nothing, and is told after what came from the dead.
    pub outlive: bool,
    /// Agreements of flags alone, one after the other at each process, and revocations by the board where that is possible.
    pub board: bool,
    /// Processes that never post on it, as bits.
    pub aside: u32,
    /// Processes that get the communicator later, as bits.
    pub late: u32,
    /// Keep hashes, for [`Net::fingerprint`].
    pub hashed: bool,
}

#[derive(Clone)]
struct Hashed<T> {
    value: T,
    hash: u64,
}

impl Setting {
    fn hash(&self, value: &impl Hash) -> u64 {
        if self.hashed { hash_of(value) } else { 0 }
    }
}

/// What a plane is told.
type Act = Box<dyn FnOnce(&mut Plane) -> Option<Effect>>;

fn hash_of(value: &impl Hash) -> u64 {
    let mut state = DefaultHasher::new();
    value.hash(&mut state);
    state.finish()
}

#[derive(Clone)]
pub struct Net {
    setting: Rc<Setting>,
    planes: Vec<Rc<Hashed<Plane>>>,
    /// From each to each.
    channels: Vec<Option<Rc<Hashed<VecDeque<Frame>>>>>,
    /// Bits by process.
    alive: u32,
    /// Living processes that somebody was told to be dead.
    accused: u32,
    revoked: u32,
    revokers: u32,
    /// Processes that do not have the communicator yet.
    late: u32,
    /// What was first returned, by agreement; stays when the process dies.
    returned: Vec<Option<Rc<(u32, Decided)>>>,
    /// How many agreements each has begun.
    begun: Vec<u8>,
    /// The agreement that each has posted and not returned from, or taken the general way, plus one.
    posted: Vec<u8>,
    /// The words of the board.
    words: Vec<u64>,
    /// Which each has returned from, as bits.
    ended: Vec<u8>,
    pub broken: Option<Rc<str>>,
}

fn flag_of(process: u32, seq: u64) -> u64 {
    !(1 << (process as u64 + 8 * (seq % 4)))
}

impl Net {
    pub fn new(setting: Setting) -> Self {
        let size = setting.size;
        assert!(size <= 24 && setting.agreements <= 8);
        let config = PlaneConfig {
            fan: setting.fan,
            notice_gap: 0,
            fail_stop: setting.outlive,
            ..PlaneConfig::default()
        };
        let plane = |me| {
            let mut plane = Plane::new(me, size, config);
            if setting.late & 1 << me == 0 {
                plane.add_comm(KEY, Group::world(size), 0);
            }
            (0..size).for_each(|process| plane.outlives_sender(process));
            if setting.board {
                plane.share_board(0..size);
            }
            Rc::new(Hashed { hash: hash_of(&plane), value: plane })
        };
        let mut net = Net {
            planes: (0..size).map(plane).collect(),
            channels: vec![None; (size * size) as usize],
            alive: (1 << size) - 1,
            accused: 0,
            revoked: 0,
            late: setting.late,
            revokers: setting.revokers.iter().fold(0, |bits, process| bits | 1 << process),
            returned: vec![None; setting.agreements as usize],
            begun: vec![0; size as usize],
            posted: vec![0; size as usize],
            words: vec![0; Board::words(size, 1)],
            ended: vec![0; size as usize],
            broken: None,
            setting: Rc::new(setting),
        };
        if net.setting.at_once {
            for me in 0..size {
                for _ in 0..net.setting.agreements {
                    net.happen(Event::Contribute(me));
                }
            }
        }
        net
    }

    pub fn size(&self) -> u32 {
        self.setting.size
    }

    fn lives(&self, process: u32) -> bool {
        self.alive & 1 << process != 0
    }

    /// Lives, and nobody holds it for dead.
    pub fn sound(&self, process: u32) -> bool {
        self.alive & !self.accused & 1 << process != 0
    }

    pub fn all_sound(&self) -> Vec<u32> {
        (0..self.size()).filter(|process| self.sound(*process)).collect()
    }

    fn plane(&self, me: u32) -> &Plane {
        &self.planes[me as usize].value
    }

    fn channel(&self, from: u32, to: u32) -> usize {
        (from * self.size() + to) as usize
    }

    /// Everything that can happen now, but crashes and accusations, which the caller rations.
    pub fn possible(&self) -> Vec<Event> {
        let size = self.size();
        let mut events = Vec::new();
        for (at, channel) in self.channels.iter().enumerate() {
            if channel.is_some() {
                events.push(Event::Deliver(at as u32 / size, at as u32 % size));
            }
        }
        let (atomics, mut board) = (self.atomics(), None);
        if self.setting.board {
            board = Some(Board::new(&atomics, size));
        }
        for me in (0..size).filter(|me| self.lives(*me) && !self.plane(*me).is_fenced()) {
            if board.is_some_and(|board| self.plane(me).is_called(&board)) {
                events.push(Event::Hear(me));
            }
            if self.late & 1 << me != 0 {
                events.push(Event::Join(me));
            }
            let begun = self.begun[me as usize];
            let free = !self.setting.board || self.ended[me as usize].count_ones() == begun.into();
            let here = self.late & 1 << me == 0;
            if u64::from(begun) < self.setting.agreements && free && here {
                events.push(Event::Contribute(me));
            }
            if self.posted[me as usize] != 0 && self.look(me).1 != Look::Missing {
                events.push(Event::Look(me));
            }
            if self.revokers & 1 << me != 0 && here {
                events.push(Event::Revoke(me));
            }
            if !self.sound(me) {
                continue;
            }
            let dead = self.plane(me).dead();
            let unknown =
                (1..size).map(|step| (me + step) % size).filter(|other| !dead.contains(*other));
            let watched = if self.setting.all_detect { size as usize } else { 1 };
            let found = unknown.take(watched).filter(|other| !self.sound(*other));
            // What came from the dead is taken first.
            let empty = |other: &u32| self.channels[self.channel(*other, me)].is_none();
            let found = found.filter(|other| !self.setting.outlive || empty(other));
            events.extend(found.map(|other| Event::Detect(me, other)));
        }
        events
    }

    /// Whether it has returned from every agreement and takes part in no other.
    pub fn has_ended(&self, process: u32) -> bool {
        u32::from(self.ended[process as usize]) == (1u32 << self.setting.agreements) - 1
    }

    /// Number of ways in which frames can be lost when `process` dies now.
    pub fn losses(&self, process: u32) -> u32 {
        let of =
            |to| self.channels[self.channel(process, to)].as_ref().map_or(0, |one| one.value.len());
        if self.setting.outlive {
            return 1;
        }
        (0..self.size()).map(|to| of(to) as u32 + 1).product()
    }

    /// Whether it can die between writing a revocation on the board and ringing.
    pub fn may_falter(&self, process: u32) -> bool {
        let ready = self.revokers & !self.late & !self.setting.aside & 1 << process != 0;
        self.setting.board && ready && !self.plane(process).is_revoked(KEY, Scope::All)
    }

    /// Lets it happen; whether anybody could see that it did: a frame was sent, something was reported. Failure notices that
    /// are lost anyway do not count.
    pub fn happen(&mut self, event: Event) -> bool {
        let (me, act): (u32, Act) = match event {
            Event::Deliver(from, to) => {
                let at = self.channel(from, to);
                let mut frames = self.channels[at].take().expect("a frame is there").value.clone();
                let frame = frames.pop_front().expect("empty channels are none");
                if !frames.is_empty() {
                    self.channels[at] =
                        Some(Rc::new(Hashed { hash: self.setting.hash(&frames), value: frames }));
                }
                let act = move |plane: &mut Plane| {
                    plane.receive(from, &frame, 0);
                    None
                };
                (to, Box::new(act))
            }
            Event::Crash(process, mut loss) => {
                self.alive &= !(1 << process);
                for other in 0..self.size() {
                    let at = self.channel(process, other);
                    if let Some(channel) = self.channels[at].take() {
                        let mut frames = channel.value.clone();
                        let ways = frames.len() as u32 + 1;
                        frames.truncate(frames.len() - (loss % ways) as usize);
                        loss /= ways;
                        if !frames.is_empty() {
                            self.channels[at] = Some(Rc::new(Hashed {
                                hash: self.setting.hash(&frames),
                                value: frames,
                            }));
                        }
                    }
                    let at = self.channel(other, process);
                    self.channels[at] = None;
                }
                return true;
            }
            Event::Falter(me) => {
                let rung = self.words[0];
                self.happen(Event::Revoke(me));
                self.words[0] = rung;
                return self.happen(Event::Crash(me, 0));
            }
            Event::Detect(me, other) => (me, self.told(me, other)),
            Event::Accuse(other, me) => {
                self.accused |= 1 << other;
                (me, self.told(me, other))
            }
            Event::Hear(me) => (me, self.heard(me, false)),
            Event::Join(me) => {
                self.late &= !(1 << me);
                let size = self.size();
                let mut plane = self.plane(me).clone();
                plane.add_comm(KEY, Group::world(size), 0);
                if plane.is_behind() {
                    self.hear(me, false, &mut plane);
                }
                let act = move |known: &mut Plane| {
                    *known = plane;
                    None
                };
                (me, Box::new(act))
            }
            Event::Contribute(me) => {
                let seq = u64::from(self.begun[me as usize]);
                self.begun[me as usize] += 1;
                // Odd ranks acknowledge what they know.
                let acknowledged =
                    if me % 2 == 1 { self.plane(me).dead().clone() } else { RankSet::new() };
                let highest = if self.setting.board { 0 } else { u64::from(me) };
                let flag = flag_of(me, seq);
                let words = self.atomics();
                let board = Board::new(&words, self.size());
                let mut plane = self.plane(me).clone();
                let aside = self.setting.aside & 1 << me != 0;
                if self.setting.board && !aside && plane.post(KEY, seq, flag, &board) {
                    self.words = words.iter().map(|word| word.load(Relaxed)).collect();
                    self.posted[me as usize] = seq as u8 + 1;
                    let act = move |known: &mut Plane| {
                        *known = plane;
                        None
                    };
                    (me, Box::new(act))
                } else {
                    let mine = Contribution { flag, highest, acknowledged };
                    let act = move |plane: &mut Plane| {
                        plane.agree(KEY, seq, mine, 0);
                        None
                    };
                    (me, Box::new(act))
                }
            }
            Event::Look(me) => {
                let (plane, look) = self.look(me);
                let seq = u64::from(std::mem::take(&mut self.posted[me as usize]) - 1);
                let acknowledged =
                    if me % 2 == 1 { self.plane(me).dead().clone() } else { RankSet::new() };
                let mine = Contribution { flag: flag_of(me, seq), highest: 0, acknowledged };
                let act = move |known: &mut Plane| {
                    *known = plane;
                    let Look::Decided(flag) = look else {
                        known.agree(KEY, seq, mine, 0);
                        return None;
                    };
                    let failed = RankSet::new();
                    let decided =
                        Decided { key: KEY, seq, flag, highest: 0, failed, acknowledged: true };
                    Some(Effect::Decided(decided))
                };
                (me, Box::new(act))
            }
            Event::Revoke(me) => {
                self.revokers &= !(1 << me);
                self.revoked |= 1 << me;
                let mut plane = self.plane(me).clone();
                let words = self.atomics();
                let board = Board::new(&words, self.size());
                let aside = !self.setting.board || self.setting.aside & 1 << me != 0;
                if aside || !plane.revoke_by_board(KEY, Scope::All, &board) {
                    plane.revoke(KEY, Scope::All, 0);
                }
                self.words = words.iter().map(|word| word.load(Relaxed)).collect();
                let act = move |known: &mut Plane| {
                    *known = plane;
                    None
                };
                (me, Box::new(act))
            }
        };
        let mut plane = self.planes[me as usize].value.clone();
        let at_once = act(&mut plane);
        plane.tick(0);
        let mut seen = at_once.is_some();
        if let Some(effect) = at_once {
            self.effect(me, effect);
        }
        while let Some(effect) = plane.poll_effect() {
            seen |= !self.is_muted(&effect);
            if let Effect::Failed { processes, source } = &effect {
                if self.setting.outlive {
                    self.take_from(me, processes, &mut plane);
                }
                self.hear(me, true, &mut plane);
                plane.failed_from(processes, *source, 0);
            }
            self.effect(me, effect);
        }
        if self.setting.hashed && plane.counters().malformed > 0 {
            self.break_law(format!("{me} holds a sound frame for malformed"));
        }
        if self.setting.purge {
            for other in plane.dead().iter() {
                let at = self.channel(other, me);
                self.channels[at] = None;
            }
        }
        self.planes[me as usize] =
            Rc::new(Hashed { hash: self.setting.hash(&plane), value: plane });
        seen
    }

    fn atomics(&self) -> Vec<AtomicU64> {
        self.words.iter().map(|word| AtomicU64::new(*word)).collect()
    }

    /// Lets a process hear what is told by the board.
    fn hear(&mut self, me: u32, full: bool, plane: &mut Plane) {
        if self.setting.board {
            let words = self.atomics();
            plane.hear(self.late & 1 << me != 0, full, &Board::new(&words, self.size()));
            self.words = words.iter().map(|word| word.load(Relaxed)).collect();
        }
    }

    fn heard(&mut self, me: u32, full: bool) -> Act {
        let mut plane = self.plane(me).clone();
        self.hear(me, full, &mut plane);
        Box::new(move |known| {
            *known = plane;
            None
        })
    }

    /// What the dead have told is heard before their death is known.
    fn told(&mut self, me: u32, dead: u32) -> Act {
        let heard = self.heard(me, true);
        Box::new(move |plane| {
            heard(plane);
            plane.failed(dead, 0);
            None
        })
    }

    /// What a process that has posted finds on the board, and what it is then.
    fn look(&self, me: u32) -> (Plane, Look) {
        let (words, seq) = (self.atomics(), u64::from(self.posted[me as usize] - 1));
        let mut plane = self.plane(me).clone();
        let look = plane.look(KEY, seq, &Board::new(&words, self.size()));
        (plane, look)
    }

    /// Gives `me` what came from the dead.
    fn take_from(&mut self, me: u32, dead: &RankSet, plane: &mut Plane) {
        for process in dead.iter() {
            let at = self.channel(process, me);
            let frames = self.channels[at].take();
            for frame in frames.iter().flat_map(|channel| &channel.value) {
                plane.receive(process, frame, 0);
            }
        }
    }

    /// A failure notice that will be lost: the first kind of frame.
    fn is_muted(&self, effect: &Effect) -> bool {
        matches!(effect, Effect::Send { bytes, .. } if self.setting.mute && bytes[0] & 15 == 1)
    }

    fn effect(&mut self, me: u32, effect: Effect) {
        if self.is_muted(&effect) {
            return;
        }
        match effect {
            Effect::Send { to, bytes } => {
                if self.lives(to) {
                    let at = self.channel(me, to);
                    let mut frames = self.channels[at]
                        .take()
                        .map_or_else(VecDeque::new, |one| one.value.clone());
                    frames.push_back(bytes);
                    self.channels[at] =
                        Some(Rc::new(Hashed { hash: self.setting.hash(&frames), value: frames }));
                }
            }
            Effect::Failed { processes, .. } => {
                if let Some(process) = processes.iter().find(|process| self.sound(*process)) {
                    self.break_law(format!(
                        "{me} is told that {process} failed, but nobody said so"
                    ));
                }
            }
            Effect::Revoked(..) => {
                if self.revoked & 1 << me != 0 {
                    self.break_law(format!("{me} is told twice of a revocation"));
                }
                self.revoked |= 1 << me;
            }
            Effect::Decided(decided) => {
                let seq = decided.seq as usize;
                if self.ended[me as usize] & 1 << seq != 0 {
                    self.break_law(format!("{me} returns twice from {seq}"));
                }
                self.ended[me as usize] |= 1 << seq;
                self.check(me, &decided);
                self.returned[seq].get_or_insert_with(|| Rc::new((me, decided)));
            }
            Effect::Release(..) => unreachable!("nothing is freed"),
            Effect::Fenced => {
                if self.sound(me) {
                    self.break_law(format!("{me} is fenced, but nobody said that it failed"));
                }
            }
        }
    }

    fn check(&mut self, me: u32, decided: &Decided) {
        let seq = decided.seq;
        if let Some(other) = self.returned[seq as usize].clone()
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
        if !self.setting.board && part.max().map(u64::from) != Some(decided.highest) {
            self.break_law(format!("the highest of {decided:?}"));
        }
        // Everybody who is not in the failed set has contributed; nobody else's flag is in it.
        for process in 0..self.size() {
            let is_in = decided.flag & !flag_of(process, seq) == 0;
            let has_begun = u64::from(self.begun[process as usize]) > seq;
            if (!decided.failed.contains(process) && !is_in) || (is_in && !has_begun) {
                self.break_law(format!("the contribution of {process} to {decided:?}"));
            }
        }
    }

    fn break_law(&mut self, what: String) {
        self.broken.get_or_insert(what.into());
    }

    /// Nothing can happen any more: everything must have happened.
    pub fn check_end(&mut self) {
        let sound = self.all_sound();
        let dead: RankSet = (0..self.size()).filter(|process| !self.sound(*process)).collect();
        let revoked = sound.iter().any(|process| self.revoked & 1 << process != 0);
        for process in sound {
            let plane = self.plane(process);
            let (known, accused, counters) =
                (plane.dead().clone(), plane.is_fenced(), plane.counters());
            if known != dead || accused {
                self.break_law(format!("{process} knows of {known:?}, not {dead:?}"));
            }
            if revoked && self.revoked & 1 << process == 0 {
                self.break_law(format!("{process} is not told of the revocation"));
            }
            if (1u32 << self.begun[process as usize]) - 1 != u32::from(self.ended[process as usize])
            {
                self.break_law(format!("{process} does not return: {:?}", self.plane(process)));
            }
            if counters.malformed > 0 {
                self.break_law(format!("{process} holds a sound frame for malformed"));
            }
        }
    }

    /// What everybody has come to: returned, revoked, dead.
    pub fn outcome(&self) -> u64 {
        let returned: Vec<_> =
            self.returned.iter().map(|one| one.as_ref().map(|one| one.1.clone())).collect();
        hash_of(&(self.alive, self.accused, self.revoked, &self.ended, returned))
    }

    /// [`outcome`](Self::outcome) up to a rotation of the ranks.
    pub fn outcome_on_the_ring(&self) -> u64 {
        let size = self.size();
        let turn = |bits: u32, by: u32| (bits << by | bits >> (size - by)) & ((1 << size) - 1);
        let turned = |by: u32| {
            let place = |rank: u32| ((rank + size - by) % size) as usize;
            let ended: Vec<u8> = (0..size).map(|rank| self.ended[place(rank)]).collect();
            let returned = self.returned.iter().map(|one| {
                let decided = &one.as_ref()?.1;
                let part = (0..size).filter(|p| decided.flag & !flag_of(*p, decided.seq) == 0);
                let part = part.fold(0, |bits, process| bits | 1 << process);
                let failed = decided.failed.iter().fold(0, |bits, process| bits | 1 << process);
                // The highest follows from who took part: `check`.
                Some((turn(part, by), turn(failed, by), decided.acknowledged))
            });
            let returned: Vec<_> = returned.collect();
            let bits = [self.alive, self.accused, self.revoked].map(|bits| turn(bits, by));
            hash_of(&(bits, ended, returned))
        };
        (0..size).map(turned).min().unwrap_or(0)
    }

    pub fn fingerprint(&self) -> u64 {
        let living = |(me, plane): (usize, &Rc<Hashed<Plane>>)| {
            if self.lives(me as u32) { plane.hash } else { 0 }
        };
        let mut state = DefaultHasher::new();
        self.planes.iter().enumerate().map(living).for_each(|hash| hash.hash(&mut state));
        for channel in &self.channels {
            channel.as_ref().map_or(0, |one| one.hash).hash(&mut state);
        }
        (self.outcome(), self.revokers, self.late, &self.begun, &self.posted, &self.words)
            .hash(&mut state);
        state.finish()
    }
}
