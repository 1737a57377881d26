//! The control plane of one process: failure notices, revocation and agreement put together.
//!
//! Pure: it is told what happened and when (`now`), and hands back effects. It knows no clock, thread, socket or file,
//! never blocks, and believes no peer (law 9): what is wrong in a frame is counted and dropped. Everything that has to
//! be told is kept as state until it is told, so no shortage stops a notice midway.

use crate::agreement::{CLOSE, Step};
use crate::comm::{Comm, Life, Rules, Taken, closed};
use crate::group::Group;
use crate::herald::Herald;
use crate::notices::Notices;
use crate::set::RankSet;
use crate::wire::{
    Brief, CommKey, FRAME_MAX, Frame, Input, Message, Scope, Terms, View, message_max,
};
use std::collections::{BTreeMap, VecDeque};

mod board;

/// Nanoseconds since an origin that the owner chooses.
pub type Nanos = u64;

/// Transient groups whose end is remembered.
const GONE_MAX: usize = 256;

/// What can be set. The defaults are right unless measured otherwise.
#[derive(Clone, Copy, Hash, Debug)]
pub struct PlaneConfig {
    /// Fan of the exchanges of an agreement: each member tells `fan` − 1 others in a round. 2 to 32; the same everywhere.
    pub fan: u32,
    /// Least time between two failure notices to the same neighbour, in nanoseconds.
    pub notice_gap: Nanos,
    /// How long those who read the same page have to learn of a failure there, before they are told, in nanoseconds: see
    /// [`Plane::failed_by_page`].
    pub page_first: Nanos,
    /// How long the revocation of a freed communicator is passed on to neighbours that replace dead ones, in
    /// nanoseconds: more than a failure takes to be known everywhere.
    pub retain: Nanos,
    /// Most bytes of messages that are kept for communicators which do not exist here yet.
    pub early_bytes: usize,
    /// Whether a process runs no instruction of its program any more when anybody is told that it failed: the launcher sees to that first. It
    /// allows what [`Plane::outlives_sender`] is about.
    pub fail_stop: bool,
}

impl Default for PlaneConfig {
    fn default() -> Self {
        PlaneConfig {
            fan: 4,
            notice_gap: 20_000,
            page_first: 1_000_000,
            retain: 60_000_000_000,
            early_bytes: 1 << 20,
            fail_stop: false,
        }
    }
}

/// What a process brings to an agreement.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contribution {
    /// Combined by bitwise AND.
    pub flag: u64,
    /// Combined by maximum.
    pub highest: u64,
    /// The processes whose failure this process has acknowledged on the communicator (failures that it merely knows of
    /// come in by themselves). Processes that are not members are left out.
    pub acknowledged: RankSet,
}

/// How an agreement ended: the same at every process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Decided {
    /// The communicator.
    pub key: CommKey,
    /// The number that was given to [`Plane::agree`].
    pub seq: u64,
    /// Bitwise AND of the contributions. Those of members in `failed` may be part of it or not.
    pub flag: u64,
    /// The highest of the contributions, likewise.
    pub highest: u64,
    /// The members (processes) that have failed: all that any participant knew of when the value was settled.
    pub failed: RankSet,
    /// Whether every participant had acknowledged every process in `failed`: then nobody needs to be told of an error.
    pub acknowledged: bool,
}

/// What the owner of a plane has to do.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// Send this frame, in order. To a process that is known to have failed it may be dropped.
    Send {
        /// To this process.
        to: u32,
        /// At most [`FRAME_MAX`] bytes.
        bytes: Frame,
    },
    /// The process `source` says that these have failed. To be answered by [`Plane::failed_from`], after the plane was given what has come
    /// from them. What was told by [`Plane::failed`] does not come back.
    Failed {
        /// Those that this process did not know of.
        processes: RankSet,
        /// Who says so.
        source: u32,
    },
    /// Another member has revoked this communicator, or interrupted its collective operations.
    Revoked(CommKey, Scope),
    /// An agreement that this process takes part in is decided.
    Decided(Decided),
    /// Take the line of this process in this slot of the board from the communicator: [`Board::release`](crate::Board::release).
    Release(u8, CommKey),
    /// Others hold this process for failed and have excluded it (law 4). It must stop; the plane does nothing any more.
    Fenced,
}

/// What the board says of an agreement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Look {
    /// All members agree on this flag, and that none of them has failed.
    Decided(u64),
    /// Somebody has not posted yet: to be looked at again.
    Missing,
    /// Nobody will find the posts of all: [`Plane::agree`] is to be called for this number.
    Split,
}

/// What was counted since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PlaneCounters {
    /// Frames handed out to be sent.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames that could not be read, or say what their sender cannot say, or exceed a bound.
    pub malformed: u64,
    /// Frames of excluded processes.
    pub excluded: u64,
    /// Notices that were known already.
    pub duplicates: u64,
    /// Messages about what is over: communicators, views, agreements.
    pub stale: u64,
}

/// Where effects are put.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox {
    effects: VecDeque<Effect>,
    counters: PlaneCounters,
    /// The time of the present call.
    pub now: Nanos,
}

impl Outbox {
    pub fn push(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    pub fn send(&mut self, to: u32, message: &Message) {
        let bytes = message.encode();
        if bytes.len() <= FRAME_MAX {
            return self.frame(to, bytes);
        }
        let total = bytes.len() as u32;
        let mut pieces = bytes.chunks(FRAME_MAX - 8).peekable();
        while let Some(bytes) = pieces.next() {
            let last = pieces.peek().is_none();
            self.frame(to, Message::Piece { last, total, bytes }.encode());
        }
    }

    fn count(&mut self, bytes: usize) {
        self.counters.frames += 1;
        self.counters.bytes += bytes as u64;
    }

    pub fn frame(&mut self, to: u32, bytes: Frame) {
        self.count(bytes.len());
        self.push(Effect::Send { to, bytes });
    }
}

/// The control plane of one process.
///
/// Four kinds of methods. What happened: [`failed`](Self::failed), [`failed_from`](Self::failed_from),
/// [`receive`](Self::receive), [`tick`](Self::tick). What the program wants: [`add_comm`](Self::add_comm), [`free_comm`](Self::free_comm), [`revoke`](Self::revoke),
/// [`agree`](Self::agree). What is to be done: [`poll_effect`](Self::poll_effect), to be called until it gives `None` after
/// any of the others, and [`next_deadline`](Self::next_deadline). And questions.
///
/// Frames between two living processes arrive in order and once. A failure that is told to a living process reaches every
/// living process, as long as each learns by itself of the failures between it and the next living process on
/// the ring of processes; an agreement ends when every living member has contributed and knows who is dead.
///
/// ```
/// use ironweave_ft::{CommKey, Contribution, Effect, Group, Plane, PlaneConfig};
///
/// let key = CommKey { cid: 0, epoch: 0 };
/// let mut planes: Vec<Plane> = (0..4).map(|me| Plane::new(me, 4, PlaneConfig::default())).collect();
/// for plane in &mut planes {
///     plane.add_comm(key, Group::world(4), 0);
/// }
/// // Process 3 dies; only process 0 sees it. All others agree.
/// planes[0].failed(3, 0);
/// for me in 0..3 {
///     let mine = Contribution { flag: !(1 << me), ..Contribution::default() };
///     planes[me].agree(key, 0, mine, 0);
/// }
/// let mut decided = Vec::new();
/// for _ in 0..100 {
///     for me in 0..3 {
///         while let Some(effect) = planes[me].poll_effect() {
///             match effect {
///                 Effect::Send { to: 3, .. } => {}
///                 Effect::Send { to, bytes } => planes[to as usize].receive(me as u32, &bytes, 0),
///                 Effect::Failed { processes, source } => planes[me].failed_from(&processes, source, 0),
///                 Effect::Decided(value) => decided.push((value.flag, value.failed.as_slice().to_vec())),
///                 _ => {}
///             }
///         }
///     }
/// }
/// assert_eq!(decided, vec![(!0b111, vec![3]); 3]);
/// ```
#[derive(Clone, Debug)]
pub struct Plane {
    me: u32,
    size: u32,
    config: PlaneConfig,
    notices: Notices,
    /// Processes to which messages outlive this one, and the other way round.
    outlived: RankSet,
    /// Processes that share the board with this one.
    sharing: RankSet,
    herald: Herald,
    /// Slots of the board that are a communicator's at this process, as bits.
    slots: u64,
    /// In the order of their keys.
    comms: Vec<Comm>,
    /// The latest epoch in which each id was in use here.
    latest: Vec<(u16, u16)>,
    /// Transient groups that ended last.
    gone: VecDeque<CommKey>,
    /// Messages for communicators that do not exist here yet, in order.
    early: VecDeque<(CommKey, u32, Frame)>,
    early_bytes: usize,
    /// When those freed communicators ended that are kept for the notice of their revocation, the first one first.
    retained: VecDeque<Nanos>,
    /// Messages in pieces, by sender.
    pieces: BTreeMap<u32, Vec<u8>>,
    out: Outbox,
    fenced: bool,
}

/// The state that decides what a plane will do: all but its counters and the time.
impl std::hash::Hash for Plane {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.me, self.fenced, &self.notices, &self.comms, &self.latest, &self.gone).hash(state);
        (&self.early, &self.pieces, &self.out.effects, &self.herald).hash(state);
    }
}

impl Plane {
    /// The control plane of process `me` in a job of `size`.
    ///
    /// # Panics
    /// When there is no such process, or `fan` is not from 2 to 32.
    #[must_use]
    pub fn new(me: u32, size: u32, config: PlaneConfig) -> Self {
        assert!(me < size, "process {me} in a job of {size}");
        assert!((2..=32).contains(&config.fan), "a fan from 2 to 32");
        Plane {
            me,
            size,
            config,
            notices: Notices::new(me, size),
            outlived: RankSet::new(),
            sharing: RankSet::new(),
            herald: Herald::default(),
            slots: 0,
            comms: Vec::new(),
            latest: Vec::new(),
            gone: VecDeque::new(),
            early: VecDeque::new(),
            early_bytes: 0,
            retained: VecDeque::new(),
            pieces: BTreeMap::new(),
            out: Outbox::default(),
            fenced: false,
        }
    }

    /// A communicator exists here from now on. Notices and messages about it that came before take effect now.
    ///
    /// # Panics
    /// When this process is no member, or there is a communicator of that name.
    pub fn add_comm(&mut self, key: CommKey, group: impl Into<Group>, now: Nanos) {
        let group = group.into();
        let me =
            group.rank_of(self.me).expect("a process adds communicators of which it is a member");
        let at = match self.find(key) {
            Ok(_) => panic!("communicator {key:?} exists"),
            Err(at) => at,
        };
        self.out.now = now;
        let mut comm = Comm::new(key, group, me, &self.outlived, &self.sharing);
        let rules = Rules { fan: self.config.fan, outlived: &self.outlived };
        comm.failed(self.notices.dead().as_slice(), rules, &mut self.out);
        self.comms.reserve_exact(1);
        self.comms.insert(at, comm);
        match self.latest.binary_search_by_key(&key.cid, |entry| entry.0) {
            _ if key.is_transient() => {}
            Ok(at) if newer(key.epoch, self.latest[at].1) => self.latest[at].1 = key.epoch,
            Ok(_) => {}
            Err(at) => self.latest.insert(at, (key.cid, key.epoch)),
        }
        if self.early.iter().any(|early| early.0 == key) {
            let (mine, others) =
                std::mem::take(&mut self.early).into_iter().partition(|early| early.0 == key);
            self.early = others;
            let mine: VecDeque<_> = mine;
            for (_, from, bytes) in mine {
                self.early_bytes -= bytes.len();
                self.receive(from, &bytes, now);
            }
        }
    }

    /// A communicator is freed. Nothing may be begun on it any more; what others may still have to ask about it is kept
    /// until all living members have freed it.
    ///
    /// # Panics
    /// When there is no such communicator.
    pub fn free_comm(&mut self, key: CommKey, now: Nanos) {
        self.out.now = now;
        let at = self.find(key).expect("a communicator that exists is freed");
        let rules = Rules { fan: self.config.fan, outlived: &self.outlived };
        self.comms[at].free(rules, &mut self.out);
        self.drop_if_closed(at);
    }

    /// `process` has failed, for sure. It is told to others, left out from now on, and agreements go on without it.
    pub fn failed(&mut self, process: u32, now: Nanos) {
        self.failed_all(&[process], now);
    }

    /// As [`failed`](Self::failed), for many at once: cheaper than one after the other.
    pub fn failed_all(&mut self, processes: &[u32], now: Nanos) {
        if self.fenced {
            return;
        }
        self.out.now = now;
        debug_assert!(processes.iter().all(|process| *process < self.size && *process != self.me));
        self.learn(processes, None, false);
    }

    /// As [`failed`](Self::failed), where the launcher has written it on a page that all processes of a host read. Those of them that share the board with
    /// this one ([`share_board`](Self::share_board)) are told [`PlaneConfig::page_first`] later, everybody else at once.
    pub fn failed_by_page(&mut self, process: u32, now: Nanos) {
        if self.fenced {
            return;
        }
        self.out.now = now;
        debug_assert!(process < self.size && process != self.me);
        self.learn(&[process], None, true);
    }

    /// Answers [`Effect::Failed`]: they have failed, as `source` says. As [`failed_all`](Self::failed_all).
    pub fn failed_from(&mut self, processes: &RankSet, source: u32, now: Nanos) {
        if self.fenced {
            return;
        }
        self.out.now = now;
        self.learn(processes.as_slice(), Some(source), false);
    }

    /// Promises that messages between `process` and this one outlive their sender, both ways, from now on: what
    /// [`Effect::Send`] sent is there to be received even if this process ends at once, and all that the other has sent is given to
    /// [`receive`](Self::receive) before its failure is told. Two living members then agree by one message each, and a decision may be
    /// returned once what was sent before it is there to be received (see [`witness`](Self::witness)).
    ///
    /// Does nothing without [`PlaneConfig::fail_stop`]: an excluded process that goes on could return another value.
    pub fn outlives_sender(&mut self, process: u32) {
        if self.config.fail_stop && process != self.me && process < self.size {
            self.outlived.insert(process);
            self.comms.iter_mut().for_each(|comm| comm.outlives(&self.outlived));
        }
    }

    /// Whether [`outlives_sender`](Self::outlives_sender) was promised, or does nothing.
    #[inline]
    #[must_use]
    pub fn is_outlived(&self, process: u32) -> bool {
        !self.config.fail_stop || self.outlived.contains(process)
    }

    /// The other living member, if there is one and a decision of the communicator rests on what it will receive of this process.
    #[must_use]
    pub fn witness(&self, key: CommKey) -> Option<u32> {
        self.comms[self.find(key).ok()?].witness()
    }

    /// Revokes a communicator (or interrupts its collectives) everywhere. `false` when it was before.
    ///
    /// # Panics
    /// When there is no such communicator.
    pub fn revoke(&mut self, key: CommKey, scope: Scope, now: Nanos) -> bool {
        self.out.now = now;
        let at = self.find(key).expect("a communicator that exists is revoked");
        !self.fenced && self.comms[at].revoke(scope, None, &mut self.out)
    }

    /// Whether a communicator that is not here has been here.
    fn is_over(&self, key: CommKey) -> bool {
        let latest = self.latest.binary_search_by_key(&key.cid, |entry| entry.0);
        latest.is_ok_and(|at| !newer(key.epoch, self.latest[at].1)) || self.gone.contains(&key)
    }

    /// Whether a communicator that exists is revoked, or at least its collectives interrupted.
    #[must_use]
    pub fn is_revoked(&self, key: CommKey, scope: Scope) -> bool {
        self.find(key).is_ok_and(|at| self.comms[at].is_revoked(scope))
    }

    /// Takes part in agreement `seq` of a communicator: every living member must, with the same number. Members begin
    /// agreements in the order of their numbers; several may be under way. It ends with [`Effect::Decided`].
    ///
    /// # Panics
    /// When there is no such communicator, or `seq` is not higher than all before, or is `u64::MAX`.
    pub fn agree(&mut self, key: CommKey, seq: u64, contribution: Contribution, now: Nanos) {
        assert!(seq != CLOSE, "the last number is taken");
        self.out.now = now;
        let at = self.find(key).expect("a process agrees on a communicator that exists");
        if self.fenced {
            return;
        }
        if !contribution.acknowledged.is_empty() {
            // Acknowledged is known.
            let (me, size) = (self.me, self.size);
            let others = contribution.acknowledged.iter();
            let others: Vec<u32> =
                others.filter(|process| *process < size && *process != me).collect();
            self.learn(&others, None, false);
        }
        let rules = Rules { fan: self.config.fan, outlived: &self.outlived };
        self.comms[at].agree(seq, &contribution, rules, &mut self.out);
    }

    /// Whether an agreement of a communicator is under way that this process has contributed to.
    #[must_use]
    pub fn is_agreeing(&self, key: CommKey) -> bool {
        self.find(key).is_ok_and(|at| self.comms[at].is_agreeing())
    }

    /// Whether others have contributed to an agreement of a communicator to which this process has not.
    #[must_use]
    pub fn is_asked(&self, key: CommKey) -> bool {
        self.find(key).is_ok_and(|at| self.comms[at].is_asked())
    }

    /// Whom an agreement that this process has contributed to has to hear next: in the round of the exchange that it is in. Nobody when it is
    /// decided.
    pub fn awaits(&self, key: CommKey, seq: u64) -> impl Iterator<Item = u32> {
        let rules = Rules { fan: self.config.fan, outlived: &self.outlived };
        let comm = self.find(key).ok().map(|at| &self.comms[at]);
        comm.into_iter().flat_map(move |comm| comm.awaits(seq, rules))
    }

    /// A frame from `from`.
    pub fn receive(&mut self, from: u32, bytes: &[u8], now: Nanos) {
        if self.fenced {
            return;
        }
        self.out.now = now;
        if from >= self.size || from == self.me {
            self.out.counters.malformed += 1;
        } else if self.notices.dead().contains(from) {
            self.out.counters.excluded += 1;
        } else if let Some((key, seq, slot, brief)) = Brief::decode(bytes)
            && let Ok(at) = self.find(key)
        {
            let step = match brief {
                Brief::Gather(flag, acknowledged) => {
                    let terms = Terms { flag, acknowledged, ..Terms::NEUTRAL };
                    Step::Gather { slot, done: seq, input: Input::Open(terms) }
                }
                Brief::Confirm => Step::Confirm { slot },
            };
            let rules = Rules { fan: self.config.fan, outlived: &self.outlived };
            let taken = self.comms[at].step(from, seq, View::default(), step, rules, &mut self.out);
            self.took(at, taken);
        } else {
            match Message::decode(bytes, self.size) {
                Some(Message::Piece { last, total, bytes }) => self.piece(from, last, total, bytes),
                Some(message) => self.message(from, message, bytes),
                None => self.out.counters.malformed += 1,
            }
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Nanos) {
        self.out.now = now;
        if self.fenced {
            return;
        }
        self.notices.spread(now, self.config.notice_gap, &self.sharing, &mut self.out);
        let retain = self.config.retain;
        let over = |closed: Nanos| closed.saturating_add(retain) <= now;
        if self.retained.front().is_none_or(|closed| !over(*closed)) {
            return;
        }
        self.retained.retain(|closed| !over(*closed));
        self.comms.retain(|comm| !matches!(comm.life, Life::Closed(closed) if over(closed)));
    }

    /// When [`tick`](Self::tick) wants to be called, at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        if self.fenced {
            return None;
        }
        let over = self.retained.front().map(|closed| closed.saturating_add(self.config.retain));
        over.into_iter().chain(self.notices.deadline()).min()
    }

    /// The next thing to do.
    #[inline]
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.out.effects.pop_front()
    }

    /// Whether [`poll_effect`](Self::poll_effect) has something to give.
    #[inline]
    #[must_use]
    pub fn has_effects(&self) -> bool {
        !self.out.effects.is_empty()
    }

    /// Number of communicators that are kept, freed ones that others may still ask about included.
    #[must_use]
    pub fn comms(&self) -> usize {
        self.comms.len()
    }

    /// Number of values of agreements that are kept for those who may still ask: a few for each communicator that agrees.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.comms.iter().map(Comm::kept).sum()
    }

    /// The group of a communicator that exists.
    #[must_use]
    pub fn group(&self, key: CommKey) -> Option<&Group> {
        self.find(key).ok().map(|at| self.comms[at].group())
    }

    /// Whether a transient group has ended here, or is about to.
    #[must_use]
    pub fn has_ended(&self, key: CommKey) -> bool {
        self.gone.contains(&key)
            || self.find(key).is_ok_and(|at| !matches!(self.comms[at].life, Life::Here))
    }

    /// The processes of the job that are known to have failed.
    #[must_use]
    pub fn dead(&self) -> &RankSet {
        self.notices.dead()
    }

    /// Whether others have excluded this process.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> PlaneCounters {
        self.out.counters
    }

    /// Gives back memory that bursts of messages have left.
    pub fn trim(&mut self) {
        self.out.effects.shrink_to_fit();
        self.notices.trim();
    }

    fn find(&self, key: CommKey) -> Result<usize, usize> {
        self.comms.binary_search_by_key(&key, |comm| comm.key)
    }

    /// Failures become known, from `source` or here, or `by_page`.
    fn learn(&mut self, processes: &[u32], source: Option<u32>, by_page: bool) {
        if processes.is_empty() {
            return;
        }
        let new = self.notices.learn(processes, source, &mut self.out);
        if new.is_empty() {
            return;
        }
        for process in &new {
            self.pieces.remove(process);
        }
        if by_page {
            self.notices.spare(self.out.now.saturating_add(self.config.page_first));
        }
        // Before anything of a new view: then the notice is there first. As is the page for those who read it.
        self.notices.spread(self.out.now, self.config.notice_gap, &self.sharing, &mut self.out);
        let rules = Rules { fan: self.config.fan, outlived: &self.outlived };
        for comm in &mut self.comms {
            comm.failed(&new, rules, &mut self.out);
        }
        for at in (0..self.comms.len()).rev() {
            self.drop_if_closed(at);
        }
    }

    fn piece(&mut self, from: u32, last: bool, total: u32, bytes: &[u8]) {
        let whole = self.pieces.entry(from).or_default();
        whole.extend_from_slice(bytes);
        let wrong = total as usize > message_max(self.size)
            || whole.len() > total as usize
            || last != (whole.len() == total as usize);
        if !wrong && !last {
            return;
        }
        let whole = self.pieces.remove(&from).unwrap_or_default();
        match Message::decode(&whole, self.size) {
            Some(message) if !wrong && !matches!(message, Message::Piece { .. }) => {
                self.message(from, message, &whole);
            }
            _ => self.out.counters.malformed += 1,
        }
    }

    fn message(&mut self, from: u32, message: Message, bytes: &[u8]) {
        let key = match &message {
            Message::Failed(processes) => {
                return self.told(from, processes);
            }
            Message::Piece { .. } => return,
            Message::Revoke { key, .. }
            | Message::Gather { key, .. }
            | Message::Confirm { key, .. }
            | Message::Decision { key, .. } => *key,
        };
        let Ok(at) = self.find(key) else {
            return self.unknown(key, from, &message, bytes);
        };
        let rules = Rules { fan: self.config.fan, outlived: &self.outlived };
        let (comm, out) = (&mut self.comms[at], &mut self.out);
        let taken = match message {
            Message::Revoke { scope, .. } => {
                if comm.group().rank_of(from).is_none() {
                    Taken::Malformed
                } else {
                    if !matches!(comm.life, Life::Here) {
                        // Passed on, but nobody here is interested any more.
                        if !comm.revoke(scope, Some(from), out) {
                            out.counters.duplicates += 1;
                        }
                    } else if comm.revoke(scope, Some(from), out) {
                        out.push(Effect::Revoked(key, scope));
                    } else {
                        out.counters.duplicates += 1;
                    }
                    Taken::Fine
                }
            }
            Message::Gather { seq, view, slot, done, input, .. } => {
                comm.step(from, seq, view, Step::Gather { slot, done, input }, rules, out)
            }
            Message::Confirm { seq, view, slot, .. } => {
                comm.step(from, seq, view, Step::Confirm { slot }, rules, out)
            }
            Message::Decision { seq, value, .. } => comm.decision(from, seq, value, rules, out),
            Message::Failed(_) | Message::Piece { .. } => Taken::Malformed,
        };
        self.took(at, taken);
    }

    /// How a communicator took a message.
    fn took(&mut self, at: usize, taken: Taken) {
        match taken {
            Taken::Fine => {}
            Taken::Stale => self.out.counters.stale += 1,
            Taken::Malformed => self.out.counters.malformed += 1,
        }
        self.drop_if_closed(at);
    }

    /// Others say that these have failed.
    fn told(&mut self, from: u32, processes: &RankSet) {
        if processes.contains(self.me) {
            self.fenced = true;
            self.out.effects.clear();
            self.out.push(Effect::Fenced);
        } else if processes.contains(from) {
            // Nobody tells of its own failure.
            self.out.counters.malformed += 1;
        } else if processes.is_subset(self.notices.dead()) {
            self.out.counters.duplicates += 1;
        } else {
            let dead = self.notices.dead();
            let processes = processes.iter().filter(|process| !dead.contains(*process)).collect();
            self.out.push(Effect::Failed { processes, source: from });
        }
    }

    /// A message for a communicator that is not here: not yet, or not any more.
    fn unknown(&mut self, key: CommKey, from: u32, message: &Message, bytes: &[u8]) {
        if self.is_over(key) {
            self.out.counters.stale += 1;
            if let Message::Gather { seq: CLOSE, .. } = message {
                self.out.send(from, &closed(key));
            }
        } else if self.early_bytes + bytes.len() > self.config.early_bytes {
            self.out.counters.malformed += 1;
        } else {
            self.early_bytes += bytes.len();
            self.early.push_back((key, from, Frame::from_slice(bytes)));
        }
    }

    /// Forgets a communicator that has ended, unless the notice of its revocation may have to be passed on.
    fn drop_if_closed(&mut self, at: usize) {
        let comm = &mut self.comms[at];
        let Life::Closed(closed) = comm.life else { return };
        if let Some(slot) = comm.slot.take() {
            self.slots &= !(1 << slot);
            self.out.push(Effect::Release(slot, comm.key));
        }
        if comm.passes_on() {
            if !std::mem::replace(&mut comm.retained, true) {
                self.retained.push_back(closed);
            }
        } else {
            let key = self.comms.remove(at).key;
            if key.is_transient() {
                self.gone.push_back(key);
                if self.gone.len() > GONE_MAX {
                    self.gone.pop_front();
                }
            }
        }
    }
}

/// Whether epoch `a` comes after `b`; epochs wrap around.
fn newer(a: u16, b: u16) -> bool {
    a.wrapping_sub(b) as i16 > 0
}
