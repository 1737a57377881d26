//! Receive requests: posting, matching what came before, and the transitions up to completion.

use super::comm::Comm;
use super::convertor::Buffer;
use super::engine::Engine;
use super::lanes::POSTED;
use super::list::{Linked, Links};
use super::peer::{Life, StreamTarget, Verdict};
use super::slots::{Key, NIL};
use super::unexpected::{Body, Place, Unexpected};
use super::{
    CommId, Completion, FT_TAG_MAX, MessageId, PmlError, RailId, Source, Status, TagMatch,
};
use ironweave_btl::memory::RecvRegion;
use ironweave_btl::{Peer, RemoteKey};
use smallvec::SmallVec;

/// How far a receive is. Once it is `Complete` no rail holds any part of its buffer (law 2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(super) enum RecvState {
    /// In the queues.
    Posted,
    /// A message was found; its data is coming.
    Matched,
    /// The outcome is decided; rails still hold parts of the buffer.
    Draining,
    /// In the queues; to be told that a possible sender failed.
    Interrupted,
    /// `pml_complete` and `mpi_complete`.
    Complete,
}

/// What only receives with remote memory access have.
#[derive(Default)]
pub(super) struct Rdma {
    /// The message's key (RGET).
    pub source: Option<RemoteKey>,
    /// Where the next read, or registration, starts.
    pub next: u64,
    /// A read was refused: wait for those under way, then ask for fragments.
    pub refused: bool,
    /// Memory registered for the sender to write (PUT).
    pub targets: SmallVec<[Target; 4]>,
}

/// A piece of the buffer that the sender may write.
pub(super) struct Target {
    pub offset: u64,
    pub length: u64,
    pub rail: RailId,
    pub key: RemoteKey,
    /// Keeps the promise that the memory is in use.
    pub _region: RecvRegion,
}

/// A receive request, with the fields that fault tolerance asks for: peer, tag, communicator, error status.
pub(super) struct Recv {
    pub links: Links,
    /// Posting order within the communicator.
    pub order: u64,
    /// The communicator; it may be gone once the receive has left its queues.
    pub comm: CommId,
    pub source: Source,
    pub tag: TagMatch,
    pub state: RecvState,
    /// A caller blocks for it.
    pub blocking: bool,
    /// Nobody will ask for the completion.
    pub detached: bool,
    pub rail: RailId,
    pub buffer: Buffer,
    pub status: Status,
    /// The sender, once matched.
    pub peer: Peer,
    /// Regions of the buffer that rails hold.
    pub held: u32,
    /// Length of the message.
    pub length: u64,
    /// How much of it fits.
    pub want: u64,
    /// How much of that is here or landing, so that no peer can have more landed than was asked for.
    pub claimed: u64,
    /// How much is here.
    pub received: u64,
    /// The send request's token; 0 when nobody waits for an answer.
    pub sender: u64,
    /// Data was lost with a rail that is not closed yet: what that means shows then.
    pub lost: bool,
    pub error: Option<PmlError>,
    pub rdma: Option<Box<Rdma>>,
}

impl Linked<POSTED> for Recv {
    #[inline]
    fn links(&self) -> &Links {
        &self.links
    }
    #[inline]
    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl Recv {
    #[inline]
    pub fn new(
        comm: CommId,
        buffer: Buffer,
        source: Source,
        tag: TagMatch,
        blocking: bool,
    ) -> Self {
        let status = Status {
            source: if let Source::Rank(rank) = source { rank } else { Status::ANY },
            tag: if let TagMatch::Tag(tag) = tag { tag } else { Status::ANY_TAG },
            count_bytes: 0,
            cancelled: false,
        };
        Recv {
            links: Links::NONE,
            order: 0,
            comm,
            source,
            tag,
            state: RecvState::Posted,
            blocking,
            detached: false,
            rail: RailId(0),
            buffer,
            status,
            peer: Peer(u32::MAX),
            held: 0,
            length: 0,
            want: 0,
            claimed: 0,
            received: 0,
            sender: 0,
            lost: false,
            error: None,
            rdma: None,
        }
    }

    pub fn vacant() -> Self {
        let comm = CommId { slot: NIL, generation: 0 };
        Recv::new(comm, Buffer::List(Vec::new()), Source::Any, TagMatch::Any, false)
    }

    /// The message is found: from here on its sender, tag and length are known.
    #[inline]
    pub fn matched(&mut self, peer: Peer, source: u32, tag: i32, length: u64) {
        self.state = RecvState::Matched;
        self.peer = peer;
        self.status.source = source;
        self.status.tag = tag;
        self.length = length;
        self.want = length.min(self.buffer.capacity() as u64);
    }

    /// Takes bytes that are here now, as far as they fit.
    #[inline]
    pub fn take(&mut self, offset: u64, bytes: &[u8]) {
        let room = self.want.saturating_sub(offset).min(bytes.len() as u64) as usize;
        if room > 0 {
            self.buffer.unpack(offset as usize, &bytes[..room]);
            self.claimed += room as u64;
            self.received += room as u64;
        }
    }

    /// Whether it is in the queues.
    pub fn is_posted(&self) -> bool {
        matches!(self.state, RecvState::Posted | RecvState::Interrupted)
    }

    /// Whether the outcome is known.
    #[inline]
    fn is_decided(&self) -> bool {
        self.error.is_some() || self.received == self.want
    }
}

impl Engine {
    /// Moves a matched receive on when its outcome is known: the one place where receives complete.
    #[inline]
    pub fn settle_recv(&mut self, slot: u32) {
        let recv = &mut self.recvs[slot];
        if !recv.is_decided() {
            return;
        }
        if recv.rdma.is_some() {
            self.end_rdma(slot);
        }
        let recv = &mut self.recvs[slot];
        if recv.held > 0 {
            recv.state = RecvState::Draining;
            return;
        }
        recv.state = RecvState::Complete;
        recv.status.count_bytes = recv.received as usize;
        if recv.length > recv.want && recv.error.is_none() {
            recv.error = Some(PmlError::Truncated { sent: recv.length, capacity: recv.want });
        }
        if recv.detached {
            self.recvs.remove(slot, Recv::vacant());
        }
    }

    /// Ends a receive, matched or already out of the queues, with an error.
    pub fn fail_recv(&mut self, slot: u32, error: PmlError) {
        let recv = &mut self.recvs[slot];
        if recv.state == RecvState::Complete {
            return;
        }
        recv.error.get_or_insert(error);
        self.settle_recv(slot);
    }

    /// Checks the arguments of a receive or probe.
    #[inline]
    pub fn may_receive(
        &mut self,
        id: CommId,
        source: Source,
        tag: TagMatch,
    ) -> Result<&mut Comm, PmlError> {
        let comm = self.comms.get_mut(id)?;
        if let Source::Rank(rank) = source {
            comm.member(rank)?;
        }
        if comm.revoked && !is_resilient(tag) {
            return Err(PmlError::Revoked);
        }
        Ok(comm)
    }

    /// Posts a receive, or matches it with a message that came before.
    pub fn receive(
        &mut self,
        id: CommId,
        into: Buffer,
        source: Source,
        tag: TagMatch,
        blocking: bool,
    ) -> Result<Key, PmlError> {
        self.may_receive(id, source, tag)?;
        let comm = self.comms.at(id.slot);
        let message = comm.find_unexpected(&mut self.messages, source, tag);
        let key = self.recvs.insert(Recv::new(id, into, source, tag, blocking));
        if message != NIL {
            comm.unkeep(&mut self.messages, message);
            self.consume(key.slot, message);
            return Ok(key);
        }
        comm.post(&mut self.recvs, key.slot);
        if comm.failures.any() {
            self.check_posted(key.slot);
        }
        Ok(key)
    }

    /// Gives a message that has left the queues to a receive that is not in them.
    pub fn consume(&mut self, slot: u32, message: u32) {
        let name = self.messages.key(message);
        let whole = self.messages[message].is_whole();
        let Unexpected { source, tag, peer, length, body, .. } =
            self.messages.remove(message, Unexpected::VACANT);
        let recv = &mut self.recvs[slot];
        recv.matched(peer, source, tag, length);
        if let Life::Ended(verdict) = self.peers.state(peer).life
            && !whole
        {
            // Claimed before the failure, and incomplete.
            drop_body(&mut self.pool, body);
            return self.fail_recv(slot, verdict_error(verdict, peer, source));
        }
        let recv = &mut self.recvs[slot];
        match body {
            Body::Whole(held) => {
                recv.take(0, held.as_slice());
                self.pool.give_back(held);
                self.settle_recv(slot);
            }
            Body::Stream(held) => {
                recv.take(0, held.as_slice());
                self.pool.give_back(held);
                let target = StreamTarget::Recv(self.recvs.key(slot));
                self.aim_stream(peer, StreamTarget::Unexpected(name), target);
                self.settle_recv(slot);
            }
            Body::Rndv { held, sender, rail } => {
                recv.take(0, held.as_slice());
                self.pool.give_back(held);
                self.answer_rndv(slot, sender, rail);
            }
            Body::Rget { key, sender, rail } => self.answer_rget(slot, sender, rail, key),
        }
    }

    /// Redirects the eager stream that is arriving from `peer`, if it goes to `from` now.
    pub fn aim_stream(&mut self, peer: Peer, from: StreamTarget, to: StreamTarget) {
        if let Some(stream) = &mut self.peers.state(peer).stream_in
            && stream.target == from
        {
            stream.target = to;
        }
    }

    /// The first message that a receive would match, not touched; an error where the receive would end with one.
    pub fn look(&mut self, id: CommId, source: Source, tag: TagMatch) -> Result<u32, PmlError> {
        self.may_receive(id, source, tag)?;
        let comm = self.comms.at(id.slot);
        let message = comm.find_unexpected(&mut self.messages, source, tag);
        if message == NIL && comm.failures.any() {
            if let Source::Rank(rank) = source {
                let peer = comm.members[rank as usize].peer;
                if let Life::Ended(verdict) = self.peers.state(peer).life {
                    return Err(verdict_error(verdict, peer, rank));
                }
            } else if let Some(rank) = comm.failures.unacknowledged() {
                return Err(PmlError::ProcFailed { rank });
            }
        }
        Ok(message)
    }

    /// Takes a message out of the queues, for `mrecv`.
    pub fn claim(&mut self, id: CommId, message: u32) -> Result<MessageId, PmlError> {
        self.comms.get_mut(id)?.unkeep(&mut self.messages, message);
        self.messages[message].place = Place::Claimed;
        Ok(MessageId(self.messages.key(message)))
    }

    /// Receives a claimed message.
    pub fn receive_claimed(&mut self, message: MessageId, into: Buffer) -> Result<Key, PmlError> {
        let found = self.messages.get(message.0).ok_or(PmlError::InvalidRequest)?;
        if found.place != Place::Claimed {
            return Err(PmlError::InvalidRequest);
        }
        let (comm, source, tag) = (found.comm, found.source, found.tag);
        let recv = Recv::new(comm, into, Source::Rank(source), TagMatch::Tag(tag), false);
        let key = self.recvs.insert(recv);
        self.consume(key.slot, message.0.slot);
        Ok(key)
    }

    /// Answers for a receive that is complete, and frees it; for an interrupted one, leaves it.
    pub fn test_recv(&mut self, key: Key) -> Option<(Completion, Option<Buffer>)> {
        let Some(recv) = self.recvs.get_mut(key) else {
            let result = Err(PmlError::InvalidRequest);
            return Some((Completion { status: Status::EMPTY, result }, None));
        };
        match recv.state {
            RecvState::Complete => {
                let recv = self.recvs.remove(key.slot, Recv::vacant());
                let result = recv.error.map_or(Ok(()), Err);
                Some((Completion { status: recv.status, result }, Some(recv.buffer)))
            }
            RecvState::Interrupted => {
                let result = Err(PmlError::ProcFailedPending);
                Some((Completion { status: recv.status, result }, None))
            }
            RecvState::Posted | RecvState::Matched | RecvState::Draining => None,
        }
    }

    /// Cancels a receive that has not matched. One that has runs on, unless its peer is dead; then it is ended by
    /// `proc_failed` once the rails let go of it (seed 000, "Cancellation of failed requests").
    pub fn cancel_recv(&mut self, key: Key) {
        let Some(recv) = self.recvs.get_mut(key) else { return };
        if !matches!(recv.state, RecvState::Posted | RecvState::Interrupted) {
            return;
        }
        let comm = self.comms.at(recv.comm.slot);
        comm.unpost(&mut self.recvs, key.slot);
        let recv = &mut self.recvs[key.slot];
        recv.status.cancelled = true;
        recv.state = RecvState::Matched;
        self.settle_recv(key.slot);
    }

    /// Takes a posted receive out of the queues and ends it with an error.
    pub fn fail_posted(&mut self, slot: u32, error: PmlError) {
        let comm = self.recvs[slot].comm;
        self.comms.at(comm.slot).unpost(&mut self.recvs, slot);
        self.recvs[slot].state = RecvState::Matched;
        self.fail_recv(slot, error);
    }
}

/// Whether a receive works on a revoked communicator.
pub(super) const fn is_resilient(tag: TagMatch) -> bool {
    matches!(tag, TagMatch::Tag(tag) if tag <= FT_TAG_MAX)
}

/// The error of an operation with a peer that was judged.
pub(super) const fn verdict_error(verdict: Verdict, peer: Peer, rank: u32) -> PmlError {
    match verdict {
        Verdict::Failed => PmlError::ProcFailed { rank },
        Verdict::Unreachable => PmlError::Unreachable(peer),
    }
}

/// Frees what a message holds, without receiving it.
pub(super) fn drop_body(pool: &mut super::unexpected::Pool, body: Body) {
    match body {
        Body::Whole(held) | Body::Stream(held) | Body::Rndv { held, .. } => pool.give_back(held),
        Body::Rget { .. } => {}
    }
}
