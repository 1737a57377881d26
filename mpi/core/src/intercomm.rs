//! Inter-communicators made of two groups that only their leaders can introduce to each other (`MPI_Intercomm_create`).
//!
//! 1. The leaders send each other their groups, with the user's tag over the communicator that they share.
//! 2. Each leader tells its group, by two broadcasts (how much, and what).
//! 3. Everybody assembles (`assembly`): one agreement among both groups chooses the identities.
//!
//! Whoever finds an error after it has learned of the other group refuses and summons everybody, so nobody waits for members
//! that will never know; whoever waits summons when it learns of a failure.

use crate::assembly::{Assembly, stem};
use crate::comm::join;
use crate::create::Members;
use crate::exchange::{Exchange, Step};
use crate::identity::Identity;
use crate::letter::{Incoming, Mail, Outgoing};
use crate::task::{Outcome, Task, TaskId};
use crate::{CommHandle, Core, CoreError, Group};
use ironweave_btl::Btl;
use ironweave_coll::{Call, CollError, Root};
use ironweave_ft::Nanos;
use ironweave_pml::ob1::{CommId, PmlError};
use smallvec::SmallVec;

/// Bytes of the first broadcast: how many runs the remote group has, and the identity of its communicator; or 0, and why.
const NOTE: usize = 8;
/// Why the leaders did not meet: the communicator they share is revoked.
const REVOKED: u8 = 1;
/// The other leader has failed, or cannot be reached.
const LOST: u8 = 2;
/// The identity of the remote group's communicator, and the group, encoded.
type Met = ([u8; 4], Vec<u8>);

/// Bytes of a run.
const RUN: usize = 8;

/// What only leaders have.
struct Leader {
    comm: CommHandle,
    context: CommId,
    remote: u32,
    tag: i32,
    out: Outgoing,
    sent: bool,
    letter: Incoming,
    received: Option<Vec<u8>>,
}

enum State {
    /// Leaders only.
    Meeting,
    /// To be told how much there is.
    Note,
    Noting(Exchange),
    Telling(Exchange),
    Assembling(Box<Assembly>),
    /// A broadcast has failed; why is not known yet.
    Failing(CollError),
}

/// A creation of an inter-communicator under way.
pub(crate) struct Introduction {
    local: CommHandle,
    local_leader: u32,
    tag: i32,
    leader: Option<Leader>,
    state: State,
    /// The identity of the remote group's communicator.
    identity: [u8; 4],
    /// The remote group, encoded.
    remote: Vec<u8>,
    /// Why the leader has none.
    wrong: Option<CoreError>,
}

/// A leader's letter: the identity of its communicator, and the group.
fn encode(identity: Identity, group: &Group) -> Vec<u8> {
    let mut bytes = [identity.cid.to_le_bytes(), identity.epoch.to_le_bytes()].concat();
    bytes.extend(encode_group(group));
    bytes
}

fn encode_group(group: &Group) -> Vec<u8> {
    let runs = group.runs();
    runs.flat_map(|(first, len)| [first.to_le_bytes(), len.to_le_bytes()].concat()).collect()
}

fn decode(bytes: &[u8], size: u32) -> Option<Group> {
    let runs = bytes.as_chunks::<RUN>().0.iter().map(|&[a, b, c, d, e, f, g, h]| {
        (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
    });
    Group::from_runs(&runs.collect::<Vec<_>>(), size).filter(|group| !group.is_empty())
}

impl Introduction {
    pub fn step<B: Btl>(&mut self, core: &mut Core<B>, now: Nanos) -> Option<Outcome> {
        loop {
            match &mut self.state {
                State::Meeting => {
                    match self.meet(core)? {
                        Ok((identity, remote)) => (self.identity, self.remote) = (identity, remote),
                        Err(error) => self.wrong = Some(error),
                    }
                    self.state = State::Note;
                }
                State::Note => {
                    let mut note = vec![0; NOTE];
                    note[..4].copy_from_slice(&((self.remote.len() / RUN) as u32).to_le_bytes());
                    note[4..].copy_from_slice(&self.identity);
                    match self.wrong {
                        Some(CoreError::Revoked) => note[4] = REVOKED,
                        Some(CoreError::ProcFailed { .. } | CoreError::Interrupted) => {
                            note[4] = LOST;
                        }
                        _ => {}
                    }
                    match self.broadcast(core, note) {
                        Ok(exchange) => self.state = State::Noting(exchange),
                        Err(error) => return Some(Err(self.leave(core, error, now))),
                    }
                }
                State::Noting(exchange) | State::Telling(exchange) => {
                    match exchange.poll(&mut core.pml) {
                        Ok(Step::Pending) => return None,
                        Ok(Step::Resolve(peer)) => {
                            core.want(peer);
                            return None;
                        }
                        Ok(Step::Over) => {}
                        Err(error) => {
                            self.state = State::Failing(error);
                            continue;
                        }
                    }
                    let noted = matches!(self.state, State::Noting(_));
                    let state = std::mem::replace(&mut self.state, State::Note);
                    let (State::Noting(exchange) | State::Telling(exchange)) = state else {
                        unreachable!("looked at above");
                    };
                    let bytes = exchange.take();
                    if noted {
                        if let Some(ended) = self.noted(core, &bytes, now) {
                            return Some(ended);
                        }
                    } else {
                        match self.assemble(core, &bytes) {
                            Ok(assembly) => self.state = State::Assembling(assembly),
                            Err(error) => return Some(Err(error)),
                        }
                    }
                }
                State::Failing(error) => {
                    let error = error.clone();
                    let error = core.give_up(self.local, &error, now)?;
                    return Some(Err(self.leave(core, error, now)));
                }
                State::Assembling(assembly) => return assembly.step(core, now),
            }
        }
    }

    /// The leaders exchange their groups: the remote one, or why there is none.
    fn meet<B: Btl>(&mut self, core: &mut Core<B>) -> Option<Result<Met, CoreError>> {
        let Some(leader) = &mut self.leader else { return Some(Ok(([0; 4], Vec::new()))) };
        let (context, remote, tag) = (leader.context, leader.remote, leader.tag);
        let mut wrong = None;
        if !leader.sent {
            match leader.out.poll(&mut core.pml, context, remote, tag) {
                Mail::Pending => {}
                Mail::Resolve(peer) => core.want(peer),
                Mail::Over(()) => leader.sent = true,
                Mail::Failed(error) => wrong = Some(error),
            }
        }
        if leader.received.is_none() {
            match leader.letter.poll(&mut core.pml, context, remote, tag) {
                Mail::Pending => {}
                Mail::Resolve(peer) => core.want(peer),
                Mail::Over(bytes) => leader.received = Some(bytes),
                Mail::Failed(error) => wrong = Some(error),
            }
        }
        if let Some(error) = wrong {
            return Some(Err(explain(core, leader.comm, error)));
        }
        if !leader.sent {
            return None;
        }
        let letter = leader.received.take()?;
        let own = core.comms.any(self.local).ok()?.group.clone();
        let fits = |group: Group| group.intersection(&own).is_empty();
        Some(match letter.split_first_chunk() {
            Some((&identity, group)) if decode(group, core.config.size).is_some_and(fits) => {
                Ok((identity, group.to_vec()))
            }
            _ => Err(CoreError::Argument("the two groups have a process in common")),
        })
    }

    fn broadcast<B: Btl>(&self, core: &mut Core<B>, bytes: Vec<u8>) -> Result<Exchange, CoreError> {
        let there = core.comms.any_mut(self.local)?;
        let call = Call::Bcast { root: Root::Rank(self.local_leader), len: bytes.len() };
        let exchange = Exchange::start(&mut there.collectives, &call, Vec::new(), bytes);
        exchange.map_err(CoreError::Collective)
    }

    /// The group knows how much there is.
    fn noted<B: Btl>(&mut self, core: &mut Core<B>, note: &[u8], now: Nanos) -> Option<Outcome> {
        let runs = note.first_chunk().map_or(0, |&count| u32::from_le_bytes(count));
        self.identity = note.last_chunk().copied().unwrap_or_default();
        if runs == 0 {
            let error = self.wrong.take().unwrap_or(match self.identity[0] {
                REVOKED => CoreError::Revoked,
                LOST => CoreError::Interrupted,
                _ => CoreError::Argument("the leaders could not introduce the groups"),
            });
            return Some(Err(self.leave(core, error, now)));
        }
        let bytes = if self.leader.is_some() {
            self.remote.clone()
        } else {
            vec![0; RUN * runs.min(core.config.size) as usize]
        };
        match self.broadcast(core, bytes) {
            Ok(exchange) => {
                self.state = State::Telling(exchange);
                None
            }
            Err(error) => Some(Err(self.leave(core, error, now))),
        }
    }

    fn assemble<B: Btl>(
        &self,
        core: &mut Core<B>,
        remote: &[u8],
    ) -> Result<Box<Assembly>, CoreError> {
        let there = core.comms.any(self.local)?;
        let (own, Identity { cid, epoch }) = (there.group.clone(), there.identity);
        let remote = decode(remote, core.config.size).ok_or(CoreError::Argument("not a group"))?;
        let joined = join(&own, &remote);
        // The same on both sides. A communicator that failed at this never meets its successor's key.
        let mine = u64::from(cid) << 16 | u64::from(epoch);
        let [a, b, c, d] = self.identity.map(u64::from);
        let theirs = (a | b << 8) << 16 | c | d << 8;
        let (first, second) =
            if joined.process(0) == own.process(0) { (mine, theirs) } else { (theirs, mine) };
        let stem = stem([u64::MAX, first, second, self.tag as u32 as u64], &joined);
        let mut watched: SmallVec<[CommHandle; 2]> = SmallVec::from_slice(&[self.local]);
        watched.extend(self.leader.as_ref().map(|leader| leader.comm));
        let members = Members { group: own, remote: Some(remote) };
        let assembly = Assembly::new(core, stem, 0, joined, members, self.local, watched);
        Ok(Box::new(assembly))
    }

    /// Ends with an error; if the other group is known here, it is told.
    fn leave<B: Btl>(&mut self, core: &mut Core<B>, error: CoreError, now: Nanos) -> CoreError {
        if !self.remote.is_empty()
            && let Ok(mut assembly) = self.assemble(core, &self.remote.clone())
        {
            assembly.wrong = Some(error.clone());
            // Who refuses does not wait.
            let _ = assembly.step(core, now);
            assembly.summon(core);
        }
        error
    }
}

/// What an error of the leaders' exchange means.
fn explain<B: Btl>(core: &Core<B>, comm: CommHandle, error: PmlError) -> CoreError {
    match core.comms.any(comm) {
        Ok(there) => match (&error, there.interruption.error()) {
            (PmlError::Interrupted | PmlError::Revoked | PmlError::Stale, Some(reason)) => reason,
            // The other leader has freed it: it knows of a failure that is not known here yet.
            (PmlError::Stale, None) => CoreError::Interrupted,
            _ => error.into(),
        },
        Err(error) => error,
    }
}

impl<B: Btl> Core<B> {
    /// Makes an inter-communicator of the groups of two intra-communicators. Collective over both: all members of `local` name
    /// the same `local_leader` and `tag`; the leader also gives the communicator in which it reaches the other leader, with
    /// that one's rank there (`peer`, ignored elsewhere). The leaders' messages use `tag` on that communicator; no other
    /// collective of `local` may begin before it is over. Ends with an inter-communicator at all members, or with an error
    /// at all of them.
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`], [`CoreError::WrongKind`], [`CoreError::Argument`].
    pub fn iintercomm_create(
        &mut self,
        local: CommHandle,
        local_leader: u32,
        peer: Option<(CommHandle, u32)>,
        tag: i32,
        now: Nanos,
    ) -> Result<TaskId, CoreError> {
        let there = self.comms.get(local)?;
        if there.remote.is_some() {
            return Err(CoreError::WrongKind("intra"));
        }
        if local_leader >= there.group.len() || tag < 0 {
            return Err(CoreError::Argument("no such leader, or a negative tag"));
        }
        let leader = match peer {
            _ if there.rank != local_leader => None,
            None => return Err(CoreError::Argument("the leader needs a way to the other leader")),
            Some((comm, remote)) => {
                let context = self.comms.get(comm)?.main;
                let out = Outgoing::new(encode(there.identity, &there.group));
                let letter = Incoming::Expected;
                let (sent, received) = (false, None);
                Some(Leader { comm, context, remote, tag, out, sent, letter, received })
            }
        };
        let (state, remote, wrong) = (State::Meeting, Vec::new(), None);
        let identity = [0; 4];
        let introduction =
            Introduction { local, local_leader, tag, leader, state, identity, remote, wrong };
        let task = self.spawn(local, Task::Introduction(Box::new(introduction)));
        self.attend(now);
        Ok(task)
    }
}
