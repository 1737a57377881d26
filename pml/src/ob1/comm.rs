//! Communicators: who is in one, where each direction of each pair stands, and how the id on the wire finds it.

use super::engine::Engine;
use super::failure::Failures;
use super::lanes::{BY_SOURCE, POSTED};
use super::list::List;
use super::matching::Queues;
use super::revoke::Interruption;
use super::slots::{Key, NIL, Slots};
use super::wire::{Envelope, WireStatus};
use super::{CommId, PmlError, RailId, Source, TagMatch};
use ironweave_btl::{Header, Peer};
use std::collections::BTreeMap;

/// What makes a communicator, the same at each member but for `rank`.
#[derive(Clone, Debug)]
pub struct CommSpec {
    /// Its id on the wire.
    pub cid: u16,
    /// Which life of the id (law 4): grows each time the id is used again.
    pub epoch: u16,
    /// The rank of this process in its own group.
    pub rank: u32,
    /// The processes, by rank.
    pub group: Vec<Peer>,
    /// For an inter-communicator, the processes of the other group: ranks of sends and receives are theirs.
    pub remote: Option<Vec<Peer>>,
}

impl CommSpec {
    /// An intra-communicator.
    #[must_use]
    pub const fn intra(cid: u16, epoch: u16, rank: u32, group: Vec<Peer>) -> Self {
        CommSpec { cid, epoch, rank, group, remote: None }
    }
}

/// A process that messages of a communicator go to and come from.
pub(super) struct Member {
    pub peer: Peer,
    /// Number of the next message to it, in the low half. A word of its own: read back from a wider one, a number stored
    /// just now has to wait for the way to the cache.
    pub next_seq: u32,
    /// Number of the next message from it that may match (law 6).
    pub expected: u16,
    /// The rail of the last message from it.
    pub heard: RailId,
    /// A receive from it ended in error: no message of it is delivered any more (seed 003 §17.6, advice).
    pub poisoned: bool,
    /// Receives posted for it with any tag.
    pub posted: List<POSTED>,
    /// Its unexpected messages with tags of users.
    pub unexpected: List<BY_SOURCE>,
}

/// A communicator.
pub(super) struct Comm {
    pub cid: u16,
    pub epoch: u16,
    pub rank: u32,
    pub interruption: Interruption,
    /// Members from which a receive ended in error.
    pub poisoned: u32,
    /// Arriving messages take the long way: it is interrupted, has poisoned members, or messages wait for their turn.
    pub careful: bool,
    pub members: Vec<Member>,
    /// Each member's rank is its process.
    by_process: bool,
    pub queues: Queues,
    pub failures: Failures,
    /// Messages that came ahead of their turn, by (source, sequence number).
    pub parked: BTreeMap<(u32, u16), Parked>,
}

/// A match frame ahead of its turn.
pub(super) struct Parked {
    pub rail: RailId,
    pub header: Header,
    pub payload: Vec<u8>,
}

impl Comm {
    fn new(spec: CommSpec) -> Self {
        let group = spec.remote.unwrap_or(spec.group);
        let by_process = (0..).zip(&group).all(|(rank, peer)| peer.0 == rank);
        let members = group.into_iter().map(|peer| Member {
            peer,
            next_seq: 0,
            expected: 0,
            heard: RailId(u16::MAX),
            poisoned: false,
            posted: List::EMPTY,
            unexpected: List::EMPTY,
        });
        Comm {
            cid: spec.cid,
            epoch: spec.epoch,
            rank: spec.rank,
            interruption: Interruption::Nothing,
            poisoned: 0,
            careful: false,
            members: members.collect(),
            by_process,
            queues: Queues::new(),
            failures: Failures::default(),
            parked: BTreeMap::new(),
        }
    }

    /// The member of this rank.
    pub fn member(&self, rank: u32) -> Result<&Member, PmlError> {
        self.members.get(rank as usize).ok_or(PmlError::InvalidRank { rank, size: self.size() })
    }

    /// The frames that wait for earlier ones, and whose they are.
    fn take_parked(&mut self) -> Vec<(Peer, Parked)> {
        let parked = std::mem::take(&mut self.parked);
        parked.into_iter().map(|((of, _), it)| (self.members[of as usize].peer, it)).collect()
    }

    /// To be called when one of the causes of care comes or goes.
    pub fn watch(&mut self) {
        self.careful = self.interruption.any() || self.poisoned > 0 || !self.parked.is_empty();
    }

    /// How many ranks there are to send to.
    pub fn size(&self) -> u32 {
        self.members.len() as u32
    }

    /// The ranks of a process: one, but for programs that put a process twice into a group.
    pub fn ranks_of(&self, peer: Peer) -> impl Iterator<Item = u32> {
        // Not to look at each of many members for one.
        let ranks = match (self.by_process, peer.0 as usize) {
            (true, at) if at < self.members.len() => at..at + 1,
            (true, _) => 0..0,
            (false, _) => 0..self.members.len(),
        };
        let first = ranks.start as u32;
        (first..)
            .zip(&self.members[ranks])
            .filter(move |(_, m)| m.peer == peer)
            .map(|(rank, _)| rank)
    }
}

/// Where a message's communicator is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// Here, and the sender is who it says.
    Here(u32),
    /// Not made here yet.
    NotYet,
    /// Over.
    Stale,
    /// The sender is not the member it says it is.
    Impostor,
}

/// All communicators.
pub(super) struct Comms {
    pub slots: Slots<Option<Comm>>,
    /// Slot by id, [`NIL`] where there is none.
    by_cid: Vec<u32>,
    /// What is over, by id.
    past: Vec<Past>,
}

/// The lives of an id that are over.
#[derive(Clone, Copy)]
struct Past {
    /// The first epoch that the id can still be used with.
    next_epoch: u32,
    /// How the last of them was interrupted: messages that come after its end are answered as before it.
    interruption: Interruption,
}

impl Comms {
    pub const fn new() -> Self {
        Comms { slots: Slots::new(), by_cid: Vec::new(), past: Vec::new() }
    }

    pub fn add(&mut self, spec: CommSpec) -> Result<CommId, PmlError> {
        let (cid, epoch, at) = (spec.cid, spec.epoch, usize::from(spec.cid));
        if self.by_cid.len() <= at {
            self.by_cid.resize(at + 1, NIL);
            self.past.resize(at + 1, Past { next_epoch: 0, interruption: Interruption::Nothing });
        }
        if self.by_cid[at] != NIL || u32::from(epoch) < self.past[at].next_epoch {
            return Err(PmlError::CidInUse { cid, epoch });
        }
        let Key { slot, generation } = self.slots.insert(Some(Comm::new(spec)));
        self.by_cid[at] = slot;
        Ok(CommId { slot, generation })
    }

    pub fn remove(&mut self, id: CommId) -> Option<Comm> {
        self.get(id).ok()?;
        let comm = self.slots.remove(id.slot, None)?;
        let at = usize::from(comm.cid);
        self.by_cid[at] = NIL;
        let (next_epoch, interruption) = (u32::from(comm.epoch) + 1, comm.interruption);
        self.past[at] = Past { next_epoch, interruption };
        Some(comm)
    }

    #[inline]
    pub fn get(&self, id: CommId) -> Result<&Comm, PmlError> {
        let key = Key { slot: id.slot, generation: id.generation };
        self.slots.get(key).and_then(Option::as_ref).ok_or(PmlError::InvalidComm)
    }

    #[inline]
    pub fn get_mut(&mut self, id: CommId) -> Result<&mut Comm, PmlError> {
        let key = Key { slot: id.slot, generation: id.generation };
        self.slots.get_mut(key).and_then(Option::as_mut).ok_or(PmlError::InvalidComm)
    }

    /// The communicator of a receive or probe, whose arguments are right.
    #[inline]
    pub fn for_receive(
        &mut self,
        id: CommId,
        source: Source,
        tag: TagMatch,
    ) -> Result<&mut Comm, PmlError> {
        let comm = self.get_mut(id)?;
        if let Source::Rank(rank) = source {
            comm.member(rank)?;
        }
        if let Some(error) = comm.interruption.receive_error(tag) {
            return Err(error);
        }
        Ok(comm)
    }

    /// The communicator that an envelope names.
    #[inline]
    pub fn named(&mut self, envelope: &Envelope) -> Option<(u32, &mut Comm)> {
        let &slot = self.by_cid.get(usize::from(envelope.cid))?;
        // No slot is `NIL`.
        let comm = self.slots.at_mut(slot)?.as_mut()?;
        (comm.epoch == envelope.epoch).then_some((slot, comm))
    }

    /// The handle of a slot in use.
    #[inline]
    pub fn id(&self, slot: u32) -> CommId {
        let Key { slot, generation } = self.slots.key(slot);
        CommId { slot, generation }
    }

    /// The communicator in a slot, which requests and messages in its queues point to.
    #[inline]
    pub fn at(&mut self, slot: u32) -> &mut Comm {
        self.slots[slot].as_mut().expect("nothing points to a freed communicator")
    }

    /// Looks a message's communicator up, and checks that `from` is who the message says (law 9).
    #[inline]
    pub fn find(&self, from: Peer, envelope: &Envelope) -> Found {
        if let Some(&slot) = self.by_cid.get(usize::from(envelope.cid))
            && slot != NIL
            && let Some(comm) = &self.slots[slot]
            && comm.epoch == envelope.epoch
        {
            return match comm.members.get(envelope.source as usize) {
                Some(member) if member.peer == from => Found::Here(slot),
                _ => Found::Impostor,
            };
        }
        self.find_rare(envelope)
    }

    #[cold]
    fn find_rare(&self, envelope: &Envelope) -> Found {
        let (at, epoch) = (usize::from(envelope.cid), u32::from(envelope.epoch));
        let Some(&slot) = self.by_cid.get(at) else { return Found::NotYet };
        let now = match slot {
            NIL => self.past[at].next_epoch,
            slot => self.slots[slot].as_ref().map_or(0, |comm| u32::from(comm.epoch)),
        };
        if epoch < now { Found::Stale } else { Found::NotYet }
    }

    /// What a message of a communicator that is over is answered.
    #[cold]
    pub fn past_status(&self, envelope: &Envelope) -> WireStatus {
        let past = self.past.get(usize::from(envelope.cid));
        past.filter(|past| u32::from(envelope.epoch) + 1 == past.next_epoch)
            .and_then(|past| past.interruption.status(envelope.tag))
            .unwrap_or(WireStatus::Stale)
    }

    /// All communicators, by slot.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Comm)> {
        self.slots.iter().filter_map(|(slot, comm)| Some((slot, comm.as_ref()?)))
    }
}

impl Engine {
    /// Ends a communicator.
    pub fn free_comm(&mut self, comm: CommId) {
        if self.comms.get(comm).is_err() {
            return;
        }
        let posted: Vec<u32> = self
            .recvs
            .iter()
            .filter(|(_, r)| r.comm == comm && r.is_posted())
            .map(|(slot, _)| slot)
            .collect();
        for slot in posted {
            self.fail_posted(slot, PmlError::InvalidComm);
        }
        self.refuse_kept(comm, |_| Some(WireStatus::Stale));
        let parked = self.comms.at(comm.slot).take_parked();
        self.comms.remove(comm);
        // They come again, too late now: their senders are told, and their room is free.
        for (from, parked) in parked {
            self.arrive_parked(from, &parked);
        }
    }
}
