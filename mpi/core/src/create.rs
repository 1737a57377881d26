//! Communicators made from a communicator: dup, split, create, merge, shrink.
//!
//! 1. *Gathering*, where members have to tell each other something (colours and keys): a collective of the parent, begun at
//!    the call, so that it has its place in the order of calls.
//! 2. *Queued*: creations of one parent go one after the other, in call order. Those of different parents do not wait for each
//!    other, whatever threads and orders they are called in: an id that one is offering is not offered by another.
//! 3. *Agreeing*: one agreement chooses (cid, epoch) and is the consent of all (`identity`). If no id of the window is free at
//!    all of them, the next window is tried in another. Who cannot take part, or was interrupted, refuses in it, and gets its
//!    error when that is decided: before, the refusal could be lost with its sender, and others would get the communicator.
//!
//! A shrink is a creation whose group is decided by the agreement itself: the members without those who failed; if anybody
//! learned of a failure only by it, there is another round (`ironweave_ft::Shrink` is the same rule without ids). It
//! works on revoked and interrupted communicators, and of inter-communicators on both groups.

use crate::attributes::Attributes;
use crate::comm::{Communicator, Info};
use crate::core::Decision;
use crate::gather::{Ballot, Ballots, Gather};
use crate::identity::{Identity, Offer, ROUNDS, Refusal, Round, Search, outcome};
use crate::lane::Purpose;
use crate::task::{Outcome, Output, Task, TaskId};
use crate::{CommHandle, Core, CoreError, Group};
use ironweave_btl::Btl;
use ironweave_ft::{CommKey, Nanos};

/// What is made.
#[derive(Debug)]
pub(crate) enum Making {
    Duplicate,
    Split,
    Include(Group),
    Merge { high: bool },
    Shrink,
}

/// The members of what is made, as far as this process is one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Members {
    pub group: Group,
    pub remote: Option<Group>,
}

enum State {
    Gathering(Gather),
    Queued,
    Agreeing { agreement: (CommKey, u64), offer: Option<Offer> },
}

/// A creation under way.
pub(crate) struct Creation {
    parent: CommHandle,
    making: Making,
    state: State,
    /// What the members told each other.
    ballots: Ballots,
    /// This member does not go on with it.
    wrong: Option<CoreError>,
    /// Windows tried.
    tried: u16,
    info: Option<Info>,
    attributes: Attributes,
}

impl Creation {
    const fn purpose(&self) -> Purpose {
        match self.making {
            Making::Shrink => Purpose::Recover,
            _ => Purpose::Create,
        }
    }

    pub fn step<B: Btl>(&mut self, me: TaskId, core: &mut Core<B>, now: Nanos) -> Option<Outcome> {
        let outcome = self.go_on(me, core, now)?;
        if let Ok(there) = core.comms.any_mut(self.parent) {
            there.lane(self.purpose()).leave(me);
        }
        Some(outcome)
    }

    fn go_on<B: Btl>(&mut self, me: TaskId, core: &mut Core<B>, now: Nanos) -> Option<Outcome> {
        loop {
            match &mut self.state {
                State::Gathering(gather) => {
                    match gather.poll(core, self.parent, now)? {
                        Ok(ballots) => self.ballots = ballots,
                        Err(error) => self.wrong = Some(error),
                    }
                    self.state = State::Queued;
                }
                State::Queued => {
                    let purpose = self.purpose();
                    if purpose == Purpose::Create {
                        core.close_creations(self.parent, now);
                    }
                    let there = core.comms.any_mut(self.parent).ok()?;
                    if !there.lane(purpose).may_begin(me) {
                        return None;
                    }
                    if core.fenced {
                        return Some(Err(CoreError::Fenced));
                    }
                    if purpose == Purpose::Create
                        && let Some(closed) = there.closed.clone()
                    {
                        // This member's refusal is what others go by once it is decided, not before: it might be lost with this process.
                        let key = purpose.key(there.key());
                        let refused = self.wrong.take().unwrap_or(closed);
                        return match core.has_settled(key) {
                            true => Some(Err(refused)),
                            false => self.put_off(refused),
                        };
                    }
                    if self.wrong.is_some() {
                        there.lane(purpose).agreeing = true;
                        let refusal = Refusal::Unsound.contribution();
                        match core.contribute(self.parent, purpose, refusal, true, now) {
                            Ok(agreement) => {
                                self.state = State::Agreeing { agreement, offer: None }
                            }
                            Err(error) => return Some(Err(error)),
                        }
                        continue;
                    }
                    let search = self.search(there);
                    there.lane(purpose).agreeing = true;
                    let is_member = matches!(self.making, Making::Shrink)
                        || self.members(there, core.me.0, &[]).is_some();
                    let offer = is_member.then(|| core.ids.offer(search));
                    // Who is not a member of what is made has nothing against any id.
                    let mut mine = offer.map_or_else(Offer::of_others, Offer::contribution);
                    if purpose == Purpose::Recover {
                        let joined = core.comms.any(self.parent).ok()?.joined.clone();
                        mine.acknowledged = core.known_in(&joined);
                    }
                    match core.contribute(self.parent, purpose, mine, true, now) {
                        Ok(agreement) => self.state = State::Agreeing { agreement, offer },
                        Err(error) => return Some(Err(error)),
                    }
                }
                State::Agreeing { agreement, offer } => {
                    let offer = *offer;
                    let decision = match core.decision(*agreement, now)? {
                        Ok(decision) => decision,
                        Err(error) => return Some(Err(error)),
                    };
                    let ended = self.conclude(core, &decision, offer, now);
                    core.close_creations(self.parent, now);
                    if let Some(wrong) = self.wrong.take() {
                        return Some(Err(wrong));
                    }
                    if ended.is_some() {
                        return ended;
                    }
                    self.state = State::Queued;
                }
            }
        }
    }

    /// It has failed, but does not end yet.
    fn put_off(&mut self, error: CoreError) -> Option<Outcome> {
        self.wrong = Some(error);
        None
    }

    /// Does what was decided; `None`: another round.
    fn conclude<B: Btl>(
        &mut self,
        core: &mut Core<B>,
        decision: &Decision,
        offer: Option<Offer>,
        now: Nanos,
    ) -> Option<Outcome> {
        let purpose = self.purpose();
        let me = core.me.0;
        let Ok(there) = core.comms.any_mut(self.parent) else {
            return Some(Err(CoreError::NoSuchComm));
        };
        there.lane(purpose).agreeing = false;
        let wanted = if self.makes_inter(there) { 2 } else { 1 };
        let window = self.search(there).window;
        let round = outcome(decision.flag, decision.highest, window, wanted);
        // Somebody died, or it became known, during the round: the next one starts with that knowledge.
        let late = matches!(self.making, Making::Shrink) && !decision.acknowledged;
        let round = if late && matches!(round, Round::Chosen(_)) { Round::Again } else { round };
        let members = self.members(there, me, &decision.failed);
        let chosen = match &round {
            Round::Chosen(chosen) if members.is_some() => &chosen[..],
            _ => &[],
        };
        if let Some(offer) = offer {
            core.ids.settle(offer, chosen);
        }
        match round {
            Round::Again => None,
            Round::Next => {
                self.tried += 1;
                core.ids.repeated += 1;
                (self.tried == ROUNDS).then_some(Err(CoreError::Exhausted("communicator ids")))
            }
            Round::Refused(Refusal::Unsound) => {
                Some(Err(CoreError::Argument("another member could not take part in the creation")))
            }
            Round::Refused(refusal) => {
                let failed = decision.failed.iter().filter_map(|&p| there.rank_for_error(p));
                let error = match (refusal, there.interruption.error(), failed.min()) {
                    (Refusal::Revoked, ..) => CoreError::Revoked,
                    (_, Some(error), _) => error,
                    (_, None, Some(rank)) => CoreError::ProcFailed { rank },
                    (_, None, None) => CoreError::Interrupted,
                };
                // Somebody has had the last say.
                there.closed.get_or_insert_with(|| error.clone());
                Some(Err(error))
            }
            Round::Chosen(_) if members.is_none() => {
                there.window = window;
                Some(Ok(Output::Comm(None)))
            }
            Round::Chosen(chosen) => {
                there.window = window;
                let made = members.map(|members| self.establish(core, &chosen, members, now));
                made.map(|made| made.map(|comm| Output::Comm(Some(comm))))
            }
        }
    }

    fn establish<B: Btl>(
        &mut self,
        core: &mut Core<B>,
        identities: &[Identity],
        members: Members,
        now: Nanos,
    ) -> Result<CommHandle, CoreError> {
        let Members { group, remote } = members;
        let comm = core.establish(identities, group, remote, self.parent, now)?;
        let duplicate = matches!(self.making, Making::Duplicate);
        let there = core.comms.any_mut(comm)?;
        there.attributes = std::mem::take(&mut self.attributes);
        match self.info.take() {
            Some(info) => there.info = Some(info),
            None if duplicate => {}
            None => there.info = None,
        }
        Ok(comm)
    }

    /// Where this round looks for ids.
    fn search(&self, parent: &Communicator) -> Search {
        Search::new(parent.window, parent.identity.number(), self.tried)
    }

    fn makes_inter(&self, parent: &Communicator) -> bool {
        parent.remote.is_some() && !matches!(self.making, Making::Merge { .. })
    }

    /// The members of what is made; `None` where this process is not one.
    fn members(&self, parent: &Communicator, me: u32, failed: &[u32]) -> Option<Members> {
        let (group, remote) = (&parent.group, parent.remote.as_ref());
        let members = match &self.making {
            Making::Duplicate => Members { group: group.clone(), remote: remote.cloned() },
            Making::Shrink => {
                // Whom an agreement names is a process, once.
                let failed = Group::of(failed.iter().copied()).ok()?;
                let living = |group: &Group| group.difference(&failed);
                Members { group: living(group), remote: remote.map(living) }
            }
            Making::Split => {
                let mine = self.ballots.own.get(parent.rank as usize)?;
                let same = |group: &Group, ballots: &[Ballot]| {
                    let mut chosen: Vec<(i32, u32)> = (0..)
                        .zip(ballots)
                        .filter(|(_, ballot)| ballot.colour == mine.colour)
                        .map(|(rank, ballot)| (ballot.key, rank))
                        .collect();
                    chosen.sort_unstable();
                    let ranks: Vec<u32> = chosen.into_iter().map(|(_, rank)| rank).collect();
                    group.incl(&ranks).ok()
                };
                mine.colour?;
                let remote = match remote {
                    Some(remote) => Some(same(remote, &self.ballots.remote)?),
                    None => None,
                };
                Members { group: same(group, &self.ballots.own)?, remote }
            }
            Making::Include(members) => {
                let remote = match remote {
                    Some(remote) => {
                        let mut chosen: Vec<(i32, u32)> = (0..)
                            .zip(&self.ballots.remote)
                            .filter(|(_, ballot)| ballot.colour.is_some())
                            .map(|(rank, ballot)| (ballot.key, rank))
                            .collect();
                        chosen.sort_unstable();
                        let ranks: Vec<u32> = chosen.into_iter().map(|(_, rank)| rank).collect();
                        Some(remote.incl(&ranks).ok()?)
                    }
                    None => None,
                };
                Members { group: members.clone(), remote }
            }
            Making::Merge { high } => {
                let remote = remote?;
                let theirs = self.ballots.remote.first().is_some_and(|ballot| ballot.key != 0);
                let joined = match (high, theirs) {
                    (false, true) => group.union(remote),
                    (true, false) => remote.union(group),
                    _ => parent.joined.clone(),
                };
                Members { group: joined, remote: None }
            }
        };
        let lonely = members.remote.as_ref().is_some_and(Group::is_empty)
            && !matches!(self.making, Making::Shrink | Making::Duplicate);
        (members.group.contains(me) && !lonely).then_some(members)
    }
}

impl<B: Btl> Core<B> {
    fn creation(
        &mut self,
        parent: CommHandle,
        making: Making,
        ballot: Option<Ballot>,
        with: (Option<Info>, Result<Attributes, CoreError>),
        now: Nanos,
    ) -> Result<TaskId, CoreError> {
        let there = self.comms.get_mut(parent)?;
        let (info, attributes) = with;
        let (attributes, wrong) = match attributes {
            Ok(attributes) => (attributes, None),
            Err(error) => (Attributes::default(), Some(error)),
        };
        let mut creation = Creation {
            parent,
            making,
            state: State::Queued,
            ballots: Ballots::default(),
            wrong,
            tried: 0,
            info,
            attributes,
        };
        if let Some(ballot) = ballot {
            let all = matches!(creation.making, Making::Split);
            match Gather::start(there, ballot, all) {
                Ok(gather) => creation.state = State::Gathering(gather),
                Err(error) => creation.wrong = Some(error),
            }
        }
        let purpose = creation.purpose();
        let task = self.spawn(parent, Task::Creation(Box::new(creation)));
        self.comms.get_mut(parent)?.lane(purpose).enter(task, true);
        self.attend(now);
        Ok(task)
    }

    /// Duplicates a communicator: same groups, error handler and hints (or the `info` given), another identity. Collective.
    /// `attributes` are what [`Attributes::copied`] made of the parent's; an error there makes the duplication fail at all
    /// members. Ends with [`Output::Comm`].
    ///
    /// All members get the communicator, or all get an error: [`CoreError::ProcFailed`], [`CoreError::Revoked`] and
    /// [`CoreError::Interrupted`] when the parent's collectives are interrupted, as with every creation but [`shrink`](Core::ishrink).
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`].
    pub fn idup(
        &mut self,
        parent: CommHandle,
        attributes: Result<Attributes, CoreError>,
        info: Option<Info>,
        now: Nanos,
    ) -> Result<TaskId, CoreError> {
        self.creation(parent, Making::Duplicate, None, (info, attributes), now)
    }

    /// Splits a communicator into one for each colour, ranks in the order of `key`, equal keys in that of the parent's ranks.
    /// Without a colour this process is in none. Collective. On an inter-communicator members of both groups with the same colour
    /// are together; a colour without members at one side gives nothing.
    ///
    /// # Errors
    /// As [`idup`](Core::idup).
    pub fn isplit(
        &mut self,
        parent: CommHandle,
        colour: Option<u32>,
        key: i32,
        now: Nanos,
    ) -> Result<TaskId, CoreError> {
        let ballot = Ballot { colour, key };
        let nothing = (None, Ok(Attributes::default()));
        self.creation(parent, Making::Split, Some(ballot), nothing, now)
    }

    /// Splits a communicator by hosts (`MPI_Comm_split_type` with `MPI_COMM_TYPE_SHARED`), which the configuration names; with
    /// `taking_part` false this process is in none. Collective.
    ///
    /// # Errors
    /// As [`idup`](Core::idup).
    pub fn isplit_shared(
        &mut self,
        parent: CommHandle,
        taking_part: bool,
        key: i32,
        now: Nanos,
    ) -> Result<TaskId, CoreError> {
        let mine = self.config.hosts.as_ref().and_then(|hosts| hosts.get(self.me.0 as usize));
        // Without knowledge of hosts each process is one of its own.
        let host = mine.copied().unwrap_or(self.me.0);
        self.isplit(parent, taking_part.then_some(host), key, now)
    }

    /// Makes a communicator of a group of the parent's own group. Collective over the parent: each member names the group that
    /// it is in, or any of which it is no member. On an inter-communicator the result has both sides' groups.
    ///
    /// # Errors
    /// As [`idup`](Core::idup). A group with strangers makes the creation fail at all members.
    pub fn icreate(
        &mut self,
        parent: CommHandle,
        group: &Group,
        now: Nanos,
    ) -> Result<TaskId, CoreError> {
        let there = self.comms.get(parent)?;
        let wrong = !group.difference(&there.group).is_empty();
        let ballot = there.remote.is_some().then(|| {
            let rank = group.rank_of(self.me.0);
            Ballot { colour: rank.map(|_| 0), key: rank.map_or(0, |rank| rank as i32) }
        });
        let attributes = if wrong {
            Err(CoreError::Argument("the group has processes that are not in the communicator"))
        } else {
            Ok(Attributes::default())
        };
        self.creation(parent, Making::Include(group.clone()), ballot, (None, attributes), now)
    }

    /// Merges the two groups of an inter-communicator into an intra-communicator; all members of a group say the same, and
    /// the group that says `high` comes after the other. Collective.
    ///
    /// # Errors
    /// As [`idup`](Core::idup); [`CoreError::WrongKind`].
    pub fn imerge(
        &mut self,
        inter: CommHandle,
        high: bool,
        now: Nanos,
    ) -> Result<TaskId, CoreError> {
        if self.comms.get(inter)?.remote.is_none() {
            return Err(CoreError::WrongKind("inter"));
        }
        let ballot = Ballot { colour: None, key: i32::from(high) };
        let nothing = (None, Ok(Attributes::default()));
        self.creation(inter, Making::Merge { high }, Some(ballot), nothing, now)
    }

    /// Makes a communicator of the living: all members agree on who has failed, and go on without them in the old order.
    /// Collective over the living; works on revoked and interrupted communicators, and ends whatever fails meanwhile (who fails
    /// after its contribution may be in the result, which then starts out interrupted). Of an inter-communicator both groups
    /// shrink, and the remote one may be empty.
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`].
    pub fn ishrink(&mut self, comm: CommHandle, now: Nanos) -> Result<TaskId, CoreError> {
        self.creation(comm, Making::Shrink, None, (None, Ok(Attributes::default())), now)
    }
}
