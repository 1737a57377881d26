//! Receive requests: posting, matching what came before, and the transitions up to completion.

use super::convertor::Buffer;
use super::engine::Engine;
use super::lanes::{POSTED, pair};
use super::list::{Linked, Links};
use super::peer::{Life, StreamTarget, Verdict};
use super::ranges::Ranges;
use super::slots::{Key, NIL};
use super::unexpected::{Body, Place, Unexpected};
use super::wire::{Fin, WireStatus};
use super::{CommId, Completion, MessageId, PmlError, RailId, Source, Status, TagMatch, UNCHECKED};
use ironweave_btl::memory::RecvRegion;
use ironweave_btl::{Peer, RemoteKey};
use smallvec::SmallVec;

/// A message that is to be read and finds its receive within so many rounds of progress would have found it posted, had its receiver
/// not waited for the end of a send of its own: that end, and the offer, come together.
const SOON: u64 = 1;

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

/// Those that no receive has now, so that a message that is read does without an allocation.
#[derive(Default)]
#[allow(clippy::vec_box)] // the boxes are what is lent
pub(super) struct Rdmas(Vec<Box<Rdma>>);

impl Rdmas {
    /// As many as are kept.
    const MOST: usize = 64;

    pub fn lend(&mut self, next: u64, source: Option<RemoteKey>) -> Box<Rdma> {
        let mut rdma = self.0.pop().unwrap_or_default();
        (rdma.next, rdma.source, rdma.refused) = (next, source, false);
        rdma
    }

    pub fn give_back(&mut self, rdma: Box<Rdma>) {
        debug_assert!(rdma.targets.is_empty());
        if self.0.len() < Self::MOST {
            self.0.push(rdma);
        }
    }
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
///
/// What short messages use comes first: with the slot's own words, two cache lines.
#[repr(C)]
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
    /// Data was lost with a rail that is not closed yet: what that means shows then.
    pub lost: bool,
    /// The sender asked to begin again; rails still hold parts of the buffer.
    pub restarting: bool,
    /// Regions of the buffer that rails hold.
    pub held: u32,
    pub buffer: Buffer,
    /// The status in two words, read as they were written: source and tag, …
    sender_tag: u64,
    /// … and the bytes that are here once it is complete.
    bytes: usize,
    pub error: Option<Box<PmlError>>,
    pub rdma: Option<Box<Rdma>>,
    /// The sender, once matched.
    pub peer: Peer,
    pub rail: RailId,
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
    /// The sender waits for a word when all is here.
    pub confirm: bool,
    /// It was asked for data.
    pub asked: bool,
    /// Restarts so far.
    pub round: u16,
    /// Which bytes of fragments are here, or landing.
    pub pieces: Ranges,
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
    /// A request that was never used.
    pub fn fresh() -> Self {
        Recv {
            links: Links::NONE,
            order: 0,
            comm: CommId { slot: NIL, generation: 0 },
            source: Source::Any,
            tag: TagMatch::Any,
            state: RecvState::Complete,
            blocking: false,
            detached: false,
            rail: RailId(0),
            buffer: Buffer::NONE,
            sender_tag: 0,
            bytes: 0,
            peer: Peer(u32::MAX),
            held: 0,
            length: 0,
            want: 0,
            claimed: 0,
            received: 0,
            sender: 0,
            lost: false,
            restarting: false,
            confirm: false,
            asked: false,
            round: 0,
            pieces: Ranges::default(),
            error: None,
            rdma: None,
        }
    }

    /// Begins a new life. What only long messages use is set when one matches; the error and remote memory access of the
    /// last life went when it ended.
    #[inline]
    fn begin(
        &mut self,
        comm: CommId,
        buffer: Buffer,
        source: Source,
        tag: TagMatch,
        blocking: bool,
    ) {
        (self.comm, self.source, self.tag) = (comm, source, tag);
        (self.blocking, self.detached) = (blocking, false);
        self.state = RecvState::Posted;
        self.buffer = buffer;
    }

    /// Sets the buffer of a request that has just begun.
    #[inline]
    pub fn lend(&mut self, region: RecvRegion) {
        match &mut self.buffer {
            // The usual case, without a look at what the old buffer might have to free.
            Buffer::Contiguous(old) => *old = region,
            other => *other = Buffer::Contiguous(region),
        }
    }

    #[inline(always)]
    fn set_status(&mut self, source: u32, tag: i32, bytes: usize) {
        self.sender_tag = pair(source, tag);
        self.bytes = bytes;
    }

    /// What is known of its message.
    #[inline(always)]
    pub fn status(&self) -> Status {
        let (source, tag) = ((self.sender_tag >> 32) as u32, self.sender_tag as u32 as i32);
        Status { source, tag, bytes: self.bytes }
    }

    /// The status of a receive that ends without a message.
    fn unmatched(&self) -> Status {
        Status {
            source: if let Source::Rank(rank) = self.source { rank } else { Status::ANY },
            tag: if let TagMatch::Tag(tag) = self.tag { tag } else { Status::ANY_TAG },
            bytes: 0,
        }
    }

    /// It left the queues without a message, and is about to end.
    fn dismissed(&mut self) {
        let Status { source, tag, .. } = self.unmatched();
        self.matched(Peer(u32::MAX), source, tag, 0);
    }

    /// The message is found: from here on its sender, tag and length are known.
    #[inline]
    pub fn matched(&mut self, peer: Peer, source: u32, tag: i32, length: u64) {
        self.state = RecvState::Matched;
        self.peer = peer;
        self.set_status(source, tag, 0);
        self.length = length;
        self.want = length.min(self.buffer.capacity() as u64);
        (self.claimed, self.received, self.held) = (0, 0, 0);
        (self.sender, self.lost) = (0, false);
        (self.confirm, self.asked, self.restarting, self.round) = (false, false, false, 0);
    }

    /// The message is found, and all of it is here: matched and complete in one step.
    #[inline(always)]
    pub fn matched_whole(&mut self, source: u32, tag: i32, bytes: &[u8]) {
        self.set_status(source, tag, bytes.len());
        self.state = RecvState::Complete;
        match &self.buffer {
            Buffer::Contiguous(region) if bytes.len() <= region.len() => region.write(0, bytes),
            _ => self.take_whole(bytes),
        }
    }

    /// The message is found, and was read into the buffer: matched and complete in one step.
    #[inline]
    pub fn read_whole(&mut self, source: u32, tag: i32, bytes: usize) {
        self.set_status(source, tag, bytes);
        self.state = RecvState::Complete;
    }

    #[cold]
    fn take_whole(&mut self, bytes: &[u8]) {
        let capacity = self.buffer.capacity();
        let fits = bytes.len().min(capacity);
        self.buffer.unpack(0, &bytes[..fits]);
        if fits < bytes.len() {
            self.bytes = fits;
            let (sent, capacity) = (bytes.len() as u64, capacity as u64);
            self.error = Some(Box::new(PmlError::Truncated { sent, capacity }));
        }
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

    /// Whether a rail could write a message of `length` bytes where it belongs.
    pub fn lands_whole(&self, length: u64) -> bool {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        length <= self.buffer.capacity() && self.buffer.region(0..length).is_some()
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
        recv.bytes = recv.received as usize;
        if let Some(rdma) = recv.rdma.take() {
            self.rdmas.give_back(rdma);
        }
        let recv = &mut self.recvs[slot];
        let (peer, sender) = (recv.peer, recv.sender);
        let confirm = recv.confirm && recv.asked && recv.error.is_none();
        if recv.length > recv.want && recv.error.is_none() {
            let error = PmlError::Truncated { sent: recv.length, capacity: recv.want };
            recv.error = Some(Box::new(error));
        }
        if recv.detached {
            self.free_recv(slot);
        }
        if confirm {
            self.control(peer, &Fin::to_sender(sender, WireStatus::Done), None);
        }
    }

    /// Frees a completed receive.
    pub fn free_recv(&mut self, slot: u32) {
        let recv = &mut self.recvs[slot];
        debug_assert!(recv.state == RecvState::Complete && recv.held == 0 || recv.detached);
        recv.rdma = None;
        recv.error = None;
        if !matches!(recv.buffer, Buffer::Contiguous(_)) {
            recv.buffer = Buffer::NONE;
        }
        self.recvs.free(slot);
    }

    /// Ends a receive, matched or already out of the queues, with an error.
    pub fn fail_recv(&mut self, slot: u32, error: PmlError) {
        let recv = &mut self.recvs[slot];
        if recv.state == RecvState::Complete {
            return;
        }
        recv.error.get_or_insert_with(|| Box::new(error));
        self.settle_recv(slot);
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
        let comm = self.comms.for_receive(id, source, tag)?;
        let message = comm.find_unexpected(&mut self.messages, source, tag);
        let key = self.recvs.take(Recv::fresh);
        self.recvs[key.slot].begin(id, into, source, tag, blocking);
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

    /// Posts a receive for one source and one tag, when nothing is out of the ordinary: no message here, no failure,
    /// no revocation. Its buffer is to be lent to it at once.
    #[inline(always)]
    pub fn post_exact(&mut self, id: CommId, rank: u32, tag: i32) -> Option<(Key, &mut Recv)> {
        let comm = self.comms.get_mut(id).ok()?;
        let troubled = !UNCHECKED && (comm.interruption.any() || comm.failures.any());
        if rank >= comm.size() || troubled {
            return None;
        }
        let (key, recv) = comm.post_exact(&mut self.recvs, rank, tag)?;
        (recv.comm, recv.source, recv.tag) = (id, Source::Rank(rank), TagMatch::Tag(tag));
        recv.state = RecvState::Posted;
        (recv.blocking, recv.detached) = (false, false);
        Some((key, recv))
    }

    /// Frees a receive that is complete without error.
    #[inline(always)]
    pub fn take_done(&mut self, key: Key) -> Option<Status> {
        self.recvs.free_if(key, |recv| {
            if recv.state != RecvState::Complete || recv.error.is_some() || recv.rdma.is_some() {
                return None;
            }
            if !matches!(recv.buffer, Buffer::Contiguous(_)) {
                recv.buffer = Buffer::NONE;
            }
            Some(recv.status())
        })
    }

    /// Gives a message that has left the queues to a receive that is not in them.
    pub fn consume(&mut self, slot: u32, message: u32) {
        self.discharge(message);
        let there = &mut self.messages[message];
        if let Body::Whole(held) = &mut there.body {
            self.recvs[slot].matched_whole(there.source, there.tag, held.as_slice());
            held.give_back(&mut self.pool);
            return self.messages.free(message);
        }
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
            Body::Whole(held) | Body::Stream(held) => {
                recv.take(0, held.as_slice());
                self.pool.give_back(held);
                let target = StreamTarget::Recv(self.recvs.key(slot));
                self.aim_stream(peer, StreamTarget::Unexpected(name), target);
                self.settle_recv(slot);
            }
            Body::Rndv { held, sender, rail, confirm } => {
                recv.take(0, held.as_slice());
                self.pool.give_back(held);
                self.answer_rndv(slot, sender, rail, confirm);
            }
            Body::Rget { key, sender, rail, confirm, round } => {
                let posted = self.round - round <= SOON && self.recvs[slot].lands_whole(length);
                self.on_announced(peer, rail, length, posted);
                self.answer_rget(slot, sender, rail, key, confirm);
            }
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
        let comm = self.comms.for_receive(id, source, tag)?;
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
        let key = self.recvs.take(Recv::fresh);
        let (source, tag) = (Source::Rank(source), TagMatch::Tag(tag));
        self.recvs[key.slot].begin(comm, into, source, tag, false);
        self.consume(key.slot, message.0.slot);
        Ok(key)
    }

    /// Answers for a receive that is complete, and frees it; for an interrupted one, leaves it.
    pub fn test_recv(&mut self, key: Key) -> Option<Completion> {
        let Some(recv) = self.recvs.get_mut(key) else {
            let result = Err(PmlError::InvalidRequest);
            return Some(Completion { status: Status::EMPTY, result });
        };
        if recv.state == RecvState::Complete {
            let result = recv.error.take().map_or(Ok(()), |error| Err(*error));
            let status = recv.status();
            self.free_recv(key.slot);
            return Some(Completion { status, result });
        }
        if recv.state == RecvState::Interrupted {
            let result = Err(PmlError::ProcFailedPending);
            return Some(Completion { status: recv.unmatched(), result });
        }
        None
    }

    /// The buffer of a completed receive, to be lent again.
    pub fn take_buffer(&mut self, key: Key) -> Option<Buffer> {
        let recv = self.recvs.get_mut(key).filter(|recv| recv.state == RecvState::Complete)?;
        Some(std::mem::replace(&mut recv.buffer, Buffer::NONE))
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
        recv.dismissed();
        self.settle_recv(key.slot);
        if let Some(recv) = self.recvs.get_mut(key) {
            let Status { source, tag, bytes } = Status::CANCELLED;
            recv.set_status(source, tag, bytes);
        }
    }

    /// Takes a posted receive out of the queues and ends it with an error.
    pub fn fail_posted(&mut self, slot: u32, error: PmlError) {
        let comm = self.recvs[slot].comm;
        self.comms.at(comm.slot).unpost(&mut self.recvs, slot);
        self.recvs[slot].dismissed();
        self.fail_recv(slot, error);
    }
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
