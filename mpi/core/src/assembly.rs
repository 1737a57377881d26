//! Communicators made by some members of a communicator alone (`create_group`), or by two groups that have no communicator in
//! common (`intercomm_create`): one agreement among exactly them, under a key that lives as long as the operation.
//!
//! The key is computed from what all of them know: the parent, the tag, the group, and how often that has been used. The rest is
//! as in `create`, but for interruptions: who will never call cannot have a last say, since it does not know of the group. So
//! when a failure or a revoke makes the wait for such a member doubtful, the waiting members *summon* all (`summons`): each
//! hears of the key and the group, and whoever has not called refuses. A summons that finds a member waiting changes nothing.

use crate::create::Members;
use crate::identity::{Offer, ROUNDS, Refusal, Round, Search, mix, outcome};
use crate::task::{Outcome, Output, Task, TaskId};
use crate::{CommHandle, Core, CoreError, Group};
use ironweave_btl::Btl;
use ironweave_ft::{CommKey, Contribution, Nanos};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Keys whose uses are counted, at most.
const MOST: usize = 1 << 16;

/// Operations with keys of their own.
#[derive(Default)]
pub(crate) struct Transients {
    /// How often this process has used a key's stem.
    uses: BTreeMap<u64, u32>,
    /// Keys that are in use here.
    pub live: BTreeMap<CommKey, Standing>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    Waiting,
    /// Summoned, and refused, before the call.
    Refused,
}

impl Transients {
    /// The key of this process's next use of `stem`, on which all that take part count alike.
    fn next(&mut self, stem: u64) -> CommKey {
        if self.uses.len() >= MOST {
            self.uses.pop_first();
        }
        let uses = self.uses.entry(stem).or_default();
        let mixed = mix(stem);
        let epoch = (mixed >> 32) as u16;
        let epoch = epoch.wrapping_add(*uses as u16);
        *uses = uses.wrapping_add(1);
        CommKey { cid: CommKey::TRANSIENT | mixed as u16, epoch }
    }
}

/// What all that take part know, as a number.
pub(crate) fn stem(numbers: impl IntoIterator<Item = u64>, group: &Group) -> u64 {
    let runs = group.runs().map(|(first, len)| u64::from(first) << 32 | u64::from(len));
    numbers.into_iter().chain(runs).fold(0, |stem, number| mix(stem ^ number))
}

enum State {
    /// A key that happens to be the same is in use.
    Blocked,
    Ready,
    Agreeing {
        agreement: (CommKey, u64),
        offer: Offer,
    },
}

/// A creation by a group of its own, under way.
pub(crate) struct Assembly {
    key: CommKey,
    /// Everybody who takes part.
    group: Group,
    members: Members,
    parent: CommHandle,
    /// Communicators whose revocation ends it.
    watched: SmallVec<[CommHandle; 2]>,
    state: State,
    seq: u64,
    window: u16,
    tried: u16,
    /// This member does not go on with it.
    pub wrong: Option<CoreError>,
}

impl Assembly {
    pub fn new<B: Btl>(
        core: &mut Core<B>,
        stem: u64,
        window: u16,
        group: Group,
        members: Members,
        parent: CommHandle,
        watched: SmallVec<[CommHandle; 2]>,
    ) -> Self {
        let key = core.transients.next(stem);
        let (state, wrong) = (State::Blocked, None);
        Assembly { key, group, members, parent, watched, state, seq: 0, window, tried: 0, wrong }
    }

    pub fn step<B: Btl>(&mut self, core: &mut Core<B>, now: Nanos) -> Option<Outcome> {
        loop {
            match &self.state {
                State::Blocked => match core.transients.live.get(&self.key) {
                    Some(Standing::Refused) => {
                        core.transients.live.remove(&self.key);
                        return Some(Err(self.reason(core).unwrap_or(CoreError::Interrupted)));
                    }
                    Some(Standing::Waiting) => return None,
                    None => {
                        core.transients.live.insert(self.key, Standing::Waiting);
                        let members = crate::core::members_for_plane(&self.group, core.config.size);
                        core.plane.add_comm(self.key, members, now);
                        self.state = State::Ready;
                    }
                },
                State::Ready => {
                    if core.fenced {
                        return Some(Err(CoreError::Fenced));
                    }
                    let wrong = self.wrong.take().map(|error| (Refusal::Unsound, error));
                    let wrong = wrong.or_else(|| {
                        self.reason(core).map(|error| match error {
                            CoreError::Revoked => (Refusal::Revoked, error),
                            _ => (Refusal::Closed, error),
                        })
                    });
                    if let Some((refusal, error)) = wrong {
                        self.contribute(core, refusal.contribution(), false, now);
                        self.end(core, now);
                        return Some(Err(error));
                    }
                    let offer = core.ids.offer(self.search());
                    let agreement = self.contribute(core, offer.contribution(), true, now);
                    self.state = State::Agreeing { agreement, offer };
                }
                State::Agreeing { agreement, offer } => {
                    let (agreement, offer) = (*agreement, *offer);
                    let Some(decision) = core.decision(agreement, now) else {
                        if self.reason(core).is_some() {
                            self.summon(core);
                        }
                        return None;
                    };
                    let decision = match decision {
                        Ok(decision) => decision,
                        Err(error) => return Some(Err(error)),
                    };
                    let wanted = if self.members.remote.is_some() { 2 } else { 1 };
                    let window = self.search().window;
                    let round = outcome(decision.flag, decision.highest, window, wanted);
                    let chosen = if let Round::Chosen(chosen) = &round { &chosen[..] } else { &[] };
                    core.ids.settle(offer, chosen);
                    match round {
                        Round::Next | Round::Again => {
                            self.tried += 1;
                            core.ids.repeated += 1;
                            self.state = State::Ready;
                            if self.tried < ROUNDS {
                                continue;
                            }
                            self.end(core, now);
                            return Some(Err(CoreError::Exhausted("communicator ids")));
                        }
                        Round::Refused(refusal) => {
                            let error = match (refusal, self.reason(core)) {
                                (Refusal::Revoked, _) => CoreError::Revoked,
                                (_, Some(error)) => error,
                                (Refusal::Unsound, None) => {
                                    CoreError::Argument("another member could not take part")
                                }
                                (_, None) => CoreError::Interrupted,
                            };
                            self.end(core, now);
                            return Some(Err(error));
                        }
                        Round::Chosen(identities) => {
                            let Members { group, remote } = self.members.clone();
                            let made = core.establish(&identities, group, remote, self.parent, now);
                            self.end(core, now);
                            return Some(made.map(|comm| Output::Comm(Some(comm))));
                        }
                    }
                }
            }
        }
    }

    fn search(&self) -> Search {
        let CommKey { cid, epoch } = self.key;
        Search::new(self.window, u64::from(cid) << 16 | u64::from(epoch), self.tried)
    }

    fn contribute<B: Btl>(
        &mut self,
        core: &mut Core<B>,
        contribution: Contribution,
        awaited: bool,
        now: Nanos,
    ) -> (CommKey, u64) {
        let agreement = (self.key, self.seq);
        self.seq += 1;
        if awaited {
            core.awaited.push((agreement, None));
        }
        core.plane.agree(agreement.0, agreement.1, contribution, now);
        core.restless = true;
        agreement
    }

    /// Why it may be in vain to wait.
    fn reason<B: Btl>(&self, core: &Core<B>) -> Option<CoreError> {
        let revoked = |&comm: &CommHandle| core.is_revoked(comm).unwrap_or(false);
        if self.watched.iter().any(revoked) {
            return Some(CoreError::Revoked);
        }
        let failed = core.known.iter().find_map(|&process| {
            let there = self.members.remote.as_ref().and_then(|remote| remote.rank_of(process));
            there.or_else(|| self.members.group.rank_of(process))
        });
        failed.map(|rank| CoreError::ProcFailed { rank })
    }

    /// The key is not used any more.
    fn end<B: Btl>(&mut self, core: &mut Core<B>, now: Nanos) {
        core.plane.free_comm(self.key, now);
        core.transients.live.remove(&self.key);
        core.restless = true;
    }

    /// Tells the others of the key and the group.
    pub fn summon<B: Btl>(&self, core: &mut Core<B>) {
        core.summon(self.key, &self.group, None);
    }
}

impl<B: Btl> Core<B> {
    /// Makes a communicator of a group of the parent's members, by these alone: all of them call it with the same group and
    /// `tag`. Several may be under way with different tags. A process that is no member of the group gets nothing, at once.
    ///
    /// All members get the communicator, or all get an error: when the parent is revoked, or a member of the group fails, also
    /// if some member never calls.
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`], [`CoreError::WrongKind`]; [`CoreError::Argument`] for a group with strangers.
    pub fn icreate_group(
        &mut self,
        parent: CommHandle,
        group: &Group,
        tag: i32,
        now: Nanos,
    ) -> Result<TaskId, CoreError> {
        let there = self.comms.get(parent)?;
        if there.remote.is_some() {
            return Err(CoreError::WrongKind("intra"));
        }
        if !group.difference(&there.group).is_empty() {
            return Err(CoreError::Argument(
                "the group has processes that are not in the communicator",
            ));
        }
        let identity = there.identity;
        let known = [u64::from(identity.cid), u64::from(identity.epoch), tag as u32 as u64];
        let stem = stem(known, group);
        let window = identity.window();
        if !group.contains(self.me.0) {
            return Ok(self.spawn_over(parent, Ok(Output::Comm(None))));
        }
        let members = Members { group: group.clone(), remote: None };
        let watched = SmallVec::from_slice(&[parent]);
        let assembly = Assembly::new(self, stem, window, group.clone(), members, parent, watched);
        let task = self.spawn(parent, Task::Assembly(Box::new(assembly)));
        self.attend(now);
        Ok(task)
    }
}
