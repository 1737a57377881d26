//! What the control plane keeps of one communicator: who of it is dead, whether it is revoked, its agreements, and what
//! has to stay of it after it was freed.
//!
//! A freed communicator that had agreements is *closing* until every living member has told that it decided all of
//! them. One that was revoked stays for a while longer (`retain`), so that the notice is passed on when a
//! neighbour turns out to have died with it.

use crate::agreement::exchange::Exchange;
use crate::agreement::{Agreement, Around, CLOSE, News, Step};
use crate::board::Board;
use crate::circulant::neighbours;
use crate::group::Group;
use crate::plane::{Contribution, Decided, Effect, Look, Nanos, Outbox};
use crate::set::RankSet;
use crate::wire::{CommKey, Input, Message, Scope, Terms, Value, View};

/// Agreements of one communicator that others may begin before this process has contributed.
const AHEAD_MAX: usize = 1 << 10;
/// Messages of one communicator that may wait for this process.
const EARLY_MAX: usize = 1 << 16;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Life {
    /// In use.
    Here,
    /// Freed; its last agreements may still be asked for.
    Closing,
    /// Freed and closed. Only the notice of its revocation may still have to be passed on, until then.
    Closed(Nanos),
}

#[derive(Clone, Hash, Debug)]
pub(crate) struct Comm {
    pub key: CommKey,
    group: Group,
    me: u32,
    dead: RankSet,
    view: View,
    /// The one other living member, if messages between the two outlive their senders.
    witness: Option<u32>,
    revoked: Option<Scope>,
    /// By a notice that members pass on to each other, not by the board alone.
    passed_on: bool,
    pub life: Life,
    /// It has ended, and is kept for the notice of its revocation.
    pub retained: bool,
    /// Every agreement that this process has contributed to is below this number.
    started: u64,
    /// By number.
    agreements: Vec<Agreement>,
    /// All members share the board with this process.
    sharing: bool,
    /// The slot of the board that is this communicator's at this process.
    pub slot: Option<u8>,
    /// What was posted there last, until it is decided or goes the general way.
    posted: Option<Posted>,
}

/// An agreement that this process has posted on the board.
#[derive(Clone, Copy, Hash, Debug)]
struct Posted {
    seq: u64,
    /// Of this process and all ranks below `next`.
    flag: u64,
    next: u32,
}

/// What holds for all communicators of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules<'a> {
    pub fan: u32,
    /// Processes with which messages outlive their senders.
    pub outlived: &'a RankSet,
}

/// How a message was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    Fine,
    Stale,
    Malformed,
}

impl Comm {
    pub fn new(key: CommKey, group: Group, me: u32, outlived: &RankSet, sharing: &RankSet) -> Self {
        let mut comm = Comm {
            key,
            group,
            me,
            dead: RankSet::new(),
            view: View::default(),
            witness: None,
            revoked: None,
            passed_on: false,
            life: Life::Here,
            retained: false,
            started: 0,
            agreements: Vec::new(),
            sharing: false,
            slot: None,
            posted: None,
        };
        comm.shares(sharing);
        comm.witness = comm.look_for_witness(outlived);
        comm
    }

    /// The one other living member, if messages between the two outlive their senders.
    pub const fn witness(&self) -> Option<u32> {
        self.witness
    }

    /// Messages to and from another process outlive their senders, too.
    pub fn outlives(&mut self, outlived: &RankSet) {
        self.witness = self.look_for_witness(outlived);
    }

    fn look_for_witness(&self, outlived: &RankSet) -> Option<u32> {
        if outlived.is_empty() || self.group.size() - self.dead.len() as u32 != 2 {
            return None;
        }
        let other = self.dead.next_living((self.me + 1) % self.group.size(), self.group.size())?;
        let process = self.group.process(other);
        outlived.contains(process).then_some(process)
    }

    pub fn group(&self) -> &Group {
        &self.group
    }

    pub fn is_revoked(&self, scope: Scope) -> bool {
        self.revoked.is_some_and(|revoked| revoked >= scope)
    }

    /// These processes are known dead now.
    pub fn failed(&mut self, processes: &[u32], rules: Rules<'_>, out: &mut Outbox) {
        let new =
            |process: &u32| self.group.rank_of(*process).filter(|rank| !self.dead.contains(*rank));
        let ranks: Vec<u32> = processes.iter().filter_map(new).collect();
        if ranks.is_empty() {
            return;
        }
        let told = self.revoked.filter(|_| self.passed_on);
        let told = told.map(|_| neighbours(self.me, None, self.group.size(), &self.dead));
        for rank in &ranks {
            self.dead.insert(*rank);
            self.view.add(*rank);
        }
        self.witness = self.look_for_witness(rules.outlived);
        if let (Some(scope), Some(told)) = (self.revoked, told) {
            // Who takes the place of a dead neighbour has not been told, at least not by this process.
            let message = Message::Revoke { key: self.key, scope };
            let now = neighbours(self.me, None, self.group.size(), &self.dead);
            for rank in now.iter().filter(|rank| !told.contains(rank)) {
                out.send(self.group.process(*rank), &message);
            }
        }
        let open: Vec<u64> =
            self.agreements.iter().filter(|one| one.is_open()).map(|one| one.seq).collect();
        for seq in open {
            let at = self.find(seq).expect("a decision drops others, never this one");
            self.on(at, rules, out, |agreement, at, out| agreement.enter_view(at, out));
        }
    }

    /// Revoked, here (`source` is `None`) or by a notice of the process `source`. `false` when it was before.
    pub fn revoke(&mut self, scope: Scope, source: Option<u32>, out: &mut Outbox) -> bool {
        if self.is_revoked(scope) {
            return false;
        }
        self.revoked = Some(scope);
        self.passed_on = true;
        let source = source.and_then(|process| self.group.rank_of(process));
        let message = Message::Revoke { key: self.key, scope };
        for rank in neighbours(self.me, source, self.group.size(), &self.dead) {
            out.send(self.group.process(rank), &message);
        }
        true
    }

    /// Whether its revocation may be told by the board: all members read it.
    pub fn is_told_by_board(&self) -> bool {
        self.sharing && !self.key.is_transient()
    }

    /// Revoked, by the board: all other members read the same there. `false` when it was before.
    pub fn revoke_by_board(&mut self, scope: Scope) -> bool {
        let new = !self.is_revoked(scope);
        if new {
            self.revoked = Some(scope);
        }
        new
    }

    /// Whether the notice of a revocation has to be passed on to who takes the place of a dead neighbour, also after the end.
    pub const fn passes_on(&self) -> bool {
        self.passed_on
    }

    /// This process contributes to agreement `seq`.
    pub fn agree(&mut self, seq: u64, mine: &Contribution, rules: Rules<'_>, out: &mut Outbox) {
        assert!(self.life == Life::Here, "agree on a communicator that was freed");
        assert!(
            seq >= self.started,
            "agreements of a communicator begin in the order of their numbers"
        );
        self.started = seq + 1;
        self.contribute(seq, mine, rules, out);
    }

    /// Posts a flag for agreement `seq` on the board that all members share. `false`: nothing was done, and nothing may be posted for this number any
    /// more: `agree` it is.
    ///
    /// **Why a look is an agreement.** Everybody posts, or takes the general way without having posted. Who sees the posts of all members
    /// returns their AND ([`look`](Self::look)). Who has posted leaves for the general way only for one of two reasons, each of which says that
    /// nobody ever sees the posts of all: a member is known to have ended that has not posted, or a message of the general way has come, whose
    /// sender left for a reason or never posts. So all return by the board, or none does. Each of them gets to know: a post stays readable (see
    /// `board`), an end becomes known, and a message of the general way reaches all living members, hand to hand, since who hears it begins, too.
    pub fn post(&mut self, seq: u64, flag: u64, me: u32, board: &Board) -> bool {
        let Some(slot) = self.slot.filter(|_| self.may_post(seq)) else { return false };
        board.post(slot, me, seq, flag);
        self.posted = Some(Posted { seq, flag, next: 0 });
        true
    }

    /// Whether agreement `seq` may be posted, once the board's slot is this communicator's.
    pub fn may_post(&self, seq: u64) -> bool {
        let undisturbed = self.dead.is_empty() && self.life == Life::Here && self.posted.is_none();
        self.sharing
            && undisturbed
            && seq >= self.started
            && self.agreements.iter().all(Agreement::is_decided)
    }

    /// Reads what the others have posted for agreement `seq`, which this process has posted.
    pub fn look(&mut self, seq: u64, me: u32, board: &Board) -> Look {
        let posted = self.posted.as_mut().filter(|posted| posted.seq == seq);
        let (Some(posted), Some(slot)) = (posted, self.slot) else { return Look::Split };
        while posted.next < self.group.size() {
            let process = self.group.process(posted.next);
            if process != me {
                let Some(flag) = board.read(slot, process, self.key, seq) else { break };
                posted.flag &= flag;
            }
            posted.next += 1;
        }
        let (flag, next) = (posted.flag, posted.next);
        if next == self.group.size() {
            self.posted = None;
            self.started = seq + 1;
            return Look::Decided(flag);
        }
        // Those below `next` have posted.
        let missing = |rank: u32| {
            rank >= next && board.read(slot, self.group.process(rank), self.key, seq).is_none()
        };
        if self.find(seq).is_ok() || self.dead.iter().any(missing) {
            self.posted = None;
            return Look::Split;
        }
        Look::Missing
    }

    /// How many values are kept for those who may still ask.
    pub fn kept(&self) -> usize {
        self.agreements.iter().filter(|one| one.is_decided()).count()
    }

    /// Whether an agreement is under way that this process has contributed to.
    pub fn is_agreeing(&self) -> bool {
        self.agreements.iter().any(Agreement::is_open)
    }

    /// Whether others have contributed to an agreement to which this process has not.
    pub fn is_asked(&self) -> bool {
        self.agreements.iter().any(Agreement::is_waiting)
    }

    /// Whether all members share the board with this process.
    pub fn shares(&mut self, sharing: &RankSet) {
        let mut members = (0..self.group.size()).map(|rank| self.group.process(rank));
        self.sharing = !sharing.is_empty() && members.all(|process| sharing.contains(process));
    }

    /// Whom agreement `seq` has to hear next, by process.
    pub fn awaits<'a>(&'a self, seq: u64, rules: Rules<'a>) -> impl Iterator<Item = u32> + 'a {
        let (size, dead, me, fan) = (self.group.size(), &self.dead, self.me, rules.fan);
        let agreement = self.find(seq).ok().map(|at| &self.agreements[at]);
        let awaits = move |one: &'a Agreement| one.awaits(Exchange { size, dead, me, fan });
        agreement.into_iter().flat_map(awaits).map(|rank| self.group.process(rank))
    }

    fn contribute(&mut self, seq: u64, mine: &Contribution, rules: Rules<'_>, out: &mut Outbox) {
        let ranks =
            mine.acknowledged.iter().filter_map(|process| self.group.rank_of(process)).collect();
        let at = self.open(seq);
        self.on(at, rules, out, |agreement, at, out| {
            agreement.contribute(mine.flag, mine.highest, ranks, at, out)
        });
    }

    /// Freed: nothing is begun on it any more.
    pub fn free(&mut self, rules: Rules<'_>, out: &mut Outbox) {
        assert!(self.life == Life::Here, "a communicator is freed once");
        self.life = Life::Closing;
        self.close(rules, out);
    }

    /// Begins the last agreement once all others are decided.
    fn close(&mut self, rules: Rules<'_>, out: &mut Outbox) {
        if self.is_agreeing() {
            return;
        }
        if self.started == 0 {
            self.life = Life::Closed(out.now);
            self.agreements = Vec::new();
            return;
        }
        self.contribute(CLOSE, &Contribution::default(), rules, out);
    }

    /// A message of a phase of agreement `seq`.
    pub fn step(
        &mut self,
        from: u32,
        seq: u64,
        view: View,
        step: Step,
        rules: Rules<'_>,
        out: &mut Outbox,
    ) -> Taken {
        let Some(from) = self.group.rank_of(from).filter(|rank| *rank != self.me) else {
            return Taken::Malformed;
        };
        if let Step::Gather { input: Input::Locked { value, .. }, .. } = &step
            && !self.may_be_failed(&value.failed)
        {
            return Taken::Malformed;
        }
        if matches!(self.life, Life::Closed(_)) {
            if seq != CLOSE {
                return Taken::Stale;
            }
            self.tell_closed(from, out);
            return Taken::Fine;
        }
        let at = match self.find(seq) {
            Ok(at) => at,
            // Dropped, because all living members have decided it.
            Err(_) if seq < self.started => return Taken::Stale,
            Err(_)
                if self.agreements.iter().filter(|one| one.is_waiting()).count() >= AHEAD_MAX =>
            {
                return Taken::Malformed;
            }
            Err(_) => self.open(seq),
        };
        let mut room = match self.agreements[at].is_open() && view == self.view {
            true => 0, // taken at once
            false => EARLY_MAX.saturating_sub(self.agreements.iter().map(Agreement::early).sum()),
        };
        self.on(at, rules, out, |agreement, at, out| {
            agreement.step(from, view, step, &mut room, at, out)
        })
    }

    /// Somebody has decided agreement `seq`.
    pub fn decision(
        &mut self,
        from: u32,
        seq: u64,
        value: Value,
        rules: Rules<'_>,
        out: &mut Outbox,
    ) -> Taken {
        let Some(from) = self.group.rank_of(from).filter(|rank| *rank != self.me) else {
            return Taken::Malformed;
        };
        if !self.may_be_failed(&value.failed) {
            return Taken::Malformed;
        }
        let Ok(at) = self.find(seq) else { return Taken::Stale };
        self.on(at, rules, out, |agreement, at, out| agreement.decision(from, value, at, out))
    }

    /// A member asks for the end of a communicator that has ended here.
    fn tell_closed(&self, rank: u32, out: &mut Outbox) {
        out.send(self.group.process(rank), &closed(self.key));
    }

    /// Whether these can be the failed of a value: members, and not this one.
    fn may_be_failed(&self, failed: &RankSet) -> bool {
        failed.iter().last().is_none_or(|last| last < self.group.size())
            && !failed.contains(self.me)
    }

    fn find(&self, seq: u64) -> Result<usize, usize> {
        self.agreements.binary_search_by_key(&seq, |agreement| agreement.seq)
    }

    /// Where agreement `seq` is, for which room is made unless there is one.
    fn open(&mut self, seq: u64) -> usize {
        self.find(seq).unwrap_or_else(|at| {
            self.agreements.reserve_exact(1);
            self.agreements.insert(at, Agreement::new(seq));
            at
        })
    }

    /// Below this number all agreements are decided here.
    fn done(&self) -> u64 {
        let open = self.agreements.iter().find(|agreement| agreement.is_open());
        open.map_or(self.started, |agreement| agreement.seq)
    }

    /// Lets an agreement do something, and follows up what came of it.
    fn on(
        &mut self,
        at: usize,
        rules: Rules<'_>,
        out: &mut Outbox,
        act: impl FnOnce(&mut Agreement, &Around, &mut Outbox) -> News,
    ) -> Taken {
        let seq = self.agreements[at].seq;
        let done = self.done().min(seq);
        let around = Around {
            key: self.key,
            group: &self.group,
            exchange: Exchange {
                size: self.group.size(),
                dead: &self.dead,
                me: self.me,
                fan: rules.fan,
            },
            view: self.view,
            done,
            witnessed: self.witness.is_some(),
        };
        let news = act(&mut self.agreements[at], &around, out);
        if let Some(all_done) = news.all_done
            && self.agreements[0].seq < all_done
        {
            self.agreements.retain(|one| one.seq >= all_done || one.is_open() || one.is_waiting());
        }
        if let Some(value) = news.decided {
            if seq == CLOSE {
                self.life = Life::Closed(out.now);
                self.agreements = Vec::new();
            } else {
                let failed = value.failed.iter().map(|rank| self.group.process(rank)).collect();
                out.push(Effect::Decided(Decided {
                    key: self.key,
                    seq,
                    flag: value.terms.flag,
                    highest: value.terms.highest,
                    failed,
                    acknowledged: value.terms.acknowledged,
                }));
                if self.life == Life::Closing {
                    self.close(rules, out);
                }
            }
        }
        match (news.malformed, news.stale) {
            (true, _) => Taken::Malformed,
            (_, true) => Taken::Stale,
            _ => Taken::Fine,
        }
    }
}

/// What is answered about the end of a communicator that has ended here.
pub(crate) fn closed(key: CommKey) -> Message<'static> {
    let value = Value { terms: Terms::NEUTRAL, failed: RankSet::new() };
    Message::Decision { key, seq: CLOSE, value }
}
