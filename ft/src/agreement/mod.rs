//! One agreement: a machine that terminates under any number of failures at any moment and returns the same value
//! everywhere it returns (law 7), those included that die right afterwards.
//!
//! **How.** A *view* is the set of members that a process knows dead. Within a view its living members exchange twice
//! (see `exchange`):
//! 1. *Gather.* Everybody's input flows to everybody; who has it all *locks* the result. An input is the contribution or,
//!    from a process that locked in an earlier view, the locked value, which then wins (the latest view's).
//! 2. *Confirm.* Everybody tells everybody that it has locked; who has heard so from all *decides*, and returns.
//!
//! A process that learns of another death goes to the larger view and begins the exchange again. Failure notices reach
//! everybody, so in the end all are in the same view and nobody dies any more: it terminates. Notices of deaths and
//! messages of views travel separately; messages of a view larger than one's own wait until the notice is there.
//!
//! **Why it is the same everywhere.** Decided in view F means: all members but F had locked v in F before they left it.
//! A later view holds a subset of them, each with v as the lock of its latest view, so v wins there, and so on. Two
//! views in which anything is decided are one inside the other, unless two processes hold each other for dead. An
//! excluded process that still lives can only decide with the help of those that exclude it: before they learned
//! of it, and then they hold the lock. So a value returned anywhere is the only one, whoever dies when.
//!
//! **Early return.** Who decides does not wait for the others. It keeps the value and answers with it whoever still asks
//! (having been driven to another view by a failure); who decides by such an answer passes it on to all its neighbours.
//! The value is dropped when every living member has told, in a later agreement, that it has decided this one: `done`,
//! a minimum, rides on the first phase. For a communicator that is freed a last agreement, of one phase and without
//! value, does the same (`CLOSE`); who then asks is answered from the memory that the id is gone.
//!
//! **Two, whose messages outlive them.** Where what a process has sent is received though it died, before its death is told, and who is told
//! to have failed has ended for sure (two processes of a host under our launcher), two living members need no second phase:
//! decided in view F means that the other was in F too and will take this process's input, which is there for it, before
//! it can leave F. So it locks the same. It needs no decision of this process to go on, and one that goes by both phases is answered
//! with the value.
//!
//! **On one host** flags are agreed on without any of this: see `Comm::post`. What is here is then for failures.
//!
//! **Cost without failures.** 2·⌈log_fan n⌉ rounds of fan − 1 messages of 20 and 12 bytes (56 and 32 where a view has dead). A tree
//! would need four sweeps for the same promise (contributions up, value down, receipt up, permission down).

pub(crate) mod exchange;

use crate::plane::Outbox;
use crate::set::RankSet;
use crate::wire::{Brief, CommKey, Input, Message, Terms, Value, View};
use exchange::Exchange;

/// Number of the agreement that ends a communicator. Only its first phase takes place.
pub(crate) const CLOSE: u64 = u64::MAX;

/// What an agreement sees of its communicator.
pub(crate) struct Around<'a> {
    pub key: CommKey,
    pub group: &'a crate::group::Group,
    pub exchange: Exchange<'a>,
    pub view: View,
    /// Agreements of the communicator below this number are decided here.
    pub done: u64,
    /// The view has one other member, and messages between the two outlive their senders.
    pub witnessed: bool,
}

/// A message of one phase.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Step {
    Gather { slot: u8, done: u64, input: Input },
    Confirm { slot: u8 },
}

impl Step {
    /// Its phase and slot.
    fn place(&self) -> (u8, u8) {
        match self {
            Step::Gather { slot, .. } => (0, *slot),
            Step::Confirm { slot } => (1, *slot),
        }
    }
}

/// A message that cannot be used yet.
#[derive(Clone, Hash, Debug)]
struct Early {
    from: u32,
    view: View,
    step: Step,
}

/// What happened to an agreement.
#[derive(Default, Debug)]
pub(crate) struct News {
    /// All living members have decided all agreements below this number.
    pub all_done: Option<u64>,
    /// The decision.
    pub decided: Option<Value>,
    /// The message was wrong, and nothing was done with it.
    pub malformed: bool,
    /// The message told nothing new.
    pub stale: bool,
}

/// One agreement at one process.
#[derive(Clone, Debug)]
pub(crate) struct Agreement {
    pub seq: u64,
    state: State,
    early: Vec<Early>,
}

/// In which order messages came that cannot be used yet makes no difference.
impl std::hash::Hash for Agreement {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        let mut early: Vec<&Early> = self.early.iter().collect();
        early.sort_unstable_by_key(|one| (one.from, one.view.count, one.step.place()));
        (self.seq, &self.state, early).hash(state);
    }
}

#[derive(Clone, Hash, Debug)]
enum State {
    /// Others have begun, this process has not.
    Waiting,
    /// This process has contributed.
    Exchanging(Exchanging),
    /// The value, kept for those who ask.
    Decided(Value),
}

#[derive(Clone, Hash, Debug)]
struct Exchanging {
    flag: u64,
    highest: u64,
    acknowledged: RankSet,
    /// The value of the latest view that got so far, and the number of dead in it.
    lock: Option<(u32, Value)>,
    /// From here on about the present view. What was gathered.
    gathered: Input,
    done: u64,
    /// Slots heard, by phase.
    heard: [u64; 2],
    /// Rounds over, both phases counted.
    round: u8,
    /// Locked in this view.
    confirming: bool,
}

impl Input {
    /// What both tell together. Commutative, associative, idempotent.
    fn join(self, other: Input) -> Input {
        match (self, other) {
            (Input::Open(a), Input::Open(b)) => Input::Open(a.join(b)),
            (locked @ Input::Locked { .. }, Input::Open(_))
            | (Input::Open(_), locked @ Input::Locked { .. }) => locked,
            (Input::Locked { count: a, value: v }, Input::Locked { count: b, value: w }) => {
                // Of the same count, they are of the same view and equal, unless a peer lies: still a join.
                match a.cmp(&b) {
                    std::cmp::Ordering::Greater => Input::Locked { count: a, value: v },
                    std::cmp::Ordering::Less => Input::Locked { count: b, value: w },
                    std::cmp::Ordering::Equal if v == w => Input::Locked { count: a, value: v },
                    std::cmp::Ordering::Equal => Input::Locked { count: a, value: v.min(w) },
                }
            }
        }
    }
}

impl Agreement {
    pub fn new(seq: u64) -> Self {
        Agreement { seq, state: State::Waiting, early: Vec::new() }
    }

    /// Whether this process has contributed and has no decision yet.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Exchanging(_))
    }

    /// Whether its value is known.
    pub fn is_decided(&self) -> bool {
        matches!(self.state, State::Decided(_))
    }

    /// Whether this process has not contributed.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting)
    }

    /// This process contributes. `acknowledged`, by rank, is part of the dead of the view.
    pub fn contribute(
        &mut self,
        flag: u64,
        highest: u64,
        acknowledged: RankSet,
        at: &Around,
        out: &mut Outbox,
    ) -> News {
        debug_assert!(self.is_waiting() && acknowledged.is_subset(at.exchange.dead));
        self.state = State::Exchanging(Exchanging {
            flag,
            highest,
            acknowledged,
            lock: None,
            gathered: Input::Open(Terms::NEUTRAL),
            done: 0,
            heard: [0; 2],
            round: 0,
            confirming: false,
        });
        self.enter_view(at, out)
    }

    /// Begins the exchange of the view that holds now.
    pub fn enter_view(&mut self, at: &Around, out: &mut Outbox) -> News {
        let State::Exchanging(mine) = &mut self.state else {
            return News::default();
        };
        mine.gathered = match &mine.lock {
            Some((count, value)) => Input::Locked { count: *count, value: value.clone() },
            // What was acknowledged is known dead, so having acknowledged all is a question of numbers.
            None => Input::Open(Terms {
                flag: mine.flag,
                highest: mine.highest,
                acknowledged: mine.acknowledged.len() == at.exchange.dead.len(),
            }),
        };
        mine.done = at.done;
        mine.heard = [0; 2];
        mine.round = 0;
        mine.confirming = false;
        mine.send_round(self.seq, at, out);
        // What was early and is not of this view: later ones still wait, others never come true.
        let early = std::mem::take(&mut self.early);
        for Early { from, view, step } in early {
            if view == at.view {
                mine.hear(from, step, at);
            } else if view.count > at.view.count && !at.exchange.dead.contains(from) {
                self.early.push(Early { from, view, step });
            }
        }
        if mine.heard == [0; 2] && mine.done == at.done && at.exchange.rounds() > 0 {
            return News::default(); // nothing was early
        }
        self.advance(at, out)
    }

    /// A message of a phase from the living member `from`. `room`: how many early ones may still be kept.
    pub fn step(
        &mut self,
        from: u32,
        view: View,
        step: Step,
        room: &mut usize,
        at: &Around,
        out: &mut Outbox,
    ) -> News {
        match &mut self.state {
            State::Decided(value) => {
                let message =
                    Message::Decision { key: at.key, seq: self.seq, value: value.clone() };
                out.send(at.group.process(from), &message);
                return News::default();
            }
            State::Exchanging(mine) if view == at.view => {
                if !mine.hear(from, step, at) {
                    return News { malformed: true, ..News::default() };
                }
            }
            State::Exchanging(_) if view.count <= at.view.count => {
                return News { stale: true, ..News::default() };
            }
            State::Exchanging(_) | State::Waiting => {
                // A sender's views only grow, and its messages come in order: older ones of it are over.
                self.early.retain(|early| early.from != from || early.view.count >= view.count);
                if *room == 0 {
                    return News { malformed: true, ..News::default() };
                }
                *room -= 1;
                self.early.push(Early { from, view, step });
                return News::default();
            }
        }
        self.advance(at, out)
    }

    /// Somebody has decided.
    pub fn decision(&mut self, from: u32, value: Value, at: &Around, out: &mut Outbox) -> News {
        let State::Exchanging(mine) = &self.state else {
            return News { stale: true, ..News::default() };
        };
        // Whoever may wait for this process in this view will not hear of it again otherwise.
        let heard = (0..exchange::SLOTS_MAX as u8)
            .filter(|slot| (mine.heard[0] | mine.heard[1]) & 1 << slot != 0)
            .filter_map(|slot| at.exchange.source(slot));
        let mut tell: RankSet = at.exchange.targets().chain(heard).collect();
        tell.union_with(&self.early.iter().map(|early| early.from).collect());
        tell.remove_all(&[from]);
        self.decide(value, tell, at, out)
    }

    /// Whom it has to hear in the round that it is in, by rank.
    pub fn awaits<'a>(&'a self, exchange: Exchange<'a>) -> impl Iterator<Item = u32> + 'a {
        let mine = match &self.state {
            State::Exchanging(mine) => Some(mine),
            State::Waiting | State::Decided(_) => None,
        };
        let rounds = exchange.rounds();
        mine.filter(|mine| mine.round < 2 * rounds).into_iter().flat_map(move |mine| {
            let (phase, round) = (mine.round / rounds, mine.round % rounds);
            let heard = mine.heard[usize::from(phase)];
            let missing = exchange.slots(round).filter(move |slot| heard & 1 << slot == 0);
            missing.filter_map(move |slot| exchange.source(slot))
        })
    }

    /// How many early messages are kept.
    pub fn early(&self) -> usize {
        self.early.len()
    }

    fn advance(&mut self, at: &Around, out: &mut Outbox) -> News {
        let mut news = News::default();
        let State::Exchanging(mine) = &mut self.state else {
            return news;
        };
        let rounds = at.exchange.rounds();
        loop {
            if mine.round == rounds && !mine.confirming {
                mine.confirming = true;
                news.all_done = Some(mine.done);
                let value = mine.settled(at);
                if self.seq == CLOSE || rounds == 0 || at.witnessed {
                    return self.decide_complete(value, news, at, out);
                }
                mine.lock = Some((at.view.count, value));
                mine.send_round(self.seq, at, out);
            }
            if mine.round == 2 * rounds {
                let (_, value) = mine.lock.clone().expect("locked when the first phase ended");
                return self.decide_complete(value, news, at, out);
            }
            let (phase, round) = (mine.round / rounds, mine.round % rounds);
            let needed = at.exchange.mask(round);
            if mine.heard[phase as usize] & needed != needed {
                return news;
            }
            mine.round += 1;
            if mine.round != rounds && mine.round != 2 * rounds {
                mine.send_round(self.seq, at, out);
            }
        }
    }

    /// Decides because the exchange is complete: those whom this process heard in this view need nothing more from it.
    fn decide_complete(&mut self, value: Value, news: News, at: &Around, out: &mut Outbox) -> News {
        let tell = self.early.iter().map(|early| early.from).collect();
        News { all_done: news.all_done, ..self.decide(value, tell, at, out) }
    }

    fn decide(&mut self, value: Value, tell: RankSet, at: &Around, out: &mut Outbox) -> News {
        if !tell.is_empty() {
            let message = Message::Decision { key: at.key, seq: self.seq, value: value.clone() };
            let living = tell.iter().filter(|rank| !at.exchange.dead.contains(*rank));
            living.for_each(|rank| out.send(at.group.process(rank), &message));
        }
        self.early = Vec::new();
        self.state = State::Decided(value.clone());
        News { decided: Some(value), ..News::default() }
    }
}

impl Exchanging {
    /// Takes a message of this view; `false` when it is not one that `from` may send.
    fn hear(&mut self, from: u32, step: Step, at: &Around) -> bool {
        let (phase, slot) = step.place();
        let phase = usize::from(phase);
        if at.exchange.source(slot) != Some(from) || self.heard[phase] & 1 << slot != 0 {
            return false;
        }
        self.heard[phase] |= 1 << slot;
        if let Step::Gather { done, input, .. } = step {
            self.done = self.done.min(done);
            match (&mut self.gathered, input) {
                (Input::Open(mine), Input::Open(terms)) => *mine = mine.join(terms),
                (gathered, input) => {
                    let mine = std::mem::replace(gathered, Input::Open(Terms::NEUTRAL));
                    *gathered = mine.join(input);
                }
            }
        }
        true
    }

    /// What was gathered from all members of the view.
    fn settled(&self, at: &Around) -> Value {
        match &self.gathered {
            // Everybody is in this view, so its dead are exactly those whom all of them know.
            Input::Open(terms) => Value { terms: *terms, failed: at.exchange.dead.clone() },
            Input::Locked { value, .. } => value.clone(),
        }
    }

    fn send_round(&self, seq: u64, at: &Around, out: &mut Outbox) {
        let rounds = at.exchange.rounds();
        let round = if self.confirming { self.round - rounds } else { self.round };
        let brief = match (&self.gathered, self.confirming) {
            _ if at.view.count > 0 => None,
            (_, true) => Some(Brief::Confirm),
            (Input::Open(terms), false) if self.done == seq && terms.highest == 0 => {
                Some(Brief::Gather(terms.flag, terms.acknowledged))
            }
            _ => None,
        };
        for slot in at.exchange.slots(round) {
            let target = at.exchange.target(slot).expect("a slot of the view has a target");
            let (key, view) = (at.key, at.view);
            if let Some(frame) = brief.and_then(|brief| brief.encode(key, seq, slot)) {
                out.frame(at.group.process(target), frame);
                continue;
            }
            let message = if self.confirming {
                Message::Confirm { key, seq, view, slot }
            } else {
                Message::Gather {
                    key,
                    seq,
                    view,
                    slot,
                    done: self.done,
                    input: self.gathered.clone(),
                }
            };
            out.send(at.group.process(target), &message);
        }
    }
}
