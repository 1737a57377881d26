//! OB1: messages in fragments over byte transports (blueprint, "PML OB1").
//!
//! # Who calls what
//! The owner gives the engine its rails ([`Ob1::add_btl`]), the peers' addresses when they are wanted
//! ([`Ob1::add_peer`]) and the communicators ([`Ob1::add_comm`]); starts operations ([`Ob1::send`], [`Ob1::recv`], …);
//! calls [`Ob1::progress`] for as long as it waits, and asks [`Ob1::test`] what came of an operation. It takes
//! [`Ob1::suspects`] now and then, finds out what they mean, and says so with [`Ob1::proc_failed`],
//! [`Ob1::unreachable`] or [`Ob1::revoke_comm`]. While [`Ob1::has_lost_rails`] says so it calls [`Ob1::heal`] now and then; a
//! suspect that is not [cut off](Ob1::is_cut_off) any more was taken back. Nothing blocks, and nothing is called back.
//!
//! # Protocols
//! ```text
//!  MATCH   short: one frame, or a STREAM of ordered frames       complete when the rail has taken it
//!  RNDV    long or synchronous: RNDV → ACK → FRAG …               fragments striped over all rails
//!          or RNDV → PUT → write, FIN …                            where the rail writes remote memory
//!  RGET    long: RGET → read … → FIN                               where the rail reads remote memory
//! ```
//! All layouts are in [`wire`].
//!
//! # Example
//! ```
//! use ironweave_btl::{Loopback, Peer, memory::OwnedBuffer};
//! use ironweave_pml::ob1::{CommSpec, Config, Mode, Ob1, Payload, Source, Started, TagMatch};
//!
//! let me = Peer(0);
//! let mut engine = Ob1::new(Config::new(me));
//! engine.add_btl(Loopback::new(me));
//! let addresses = engine.addresses();
//! engine.add_peer(me, &addresses)?;
//! let comm = engine.add_comm(CommSpec::intra(0, 0, 0, vec![me]))?;
//!
//! let into = OwnedBuffer::zeroed(5);
//! // SAFETY: `into` is not touched until the receive is complete.
//! let region = unsafe { into.recv_region() };
//! let request = engine.recv(comm, region.into(), Source::Rank(0), TagMatch::Any)?;
//! let hello = Payload::owned(*b"hello");
//! assert_eq!(engine.send(comm, Mode::Standard, &hello, 0, 7)?, Started::Done);
//! let completion = loop {
//!     engine.progress();
//!     if let Some(completion) = engine.test(request) {
//!         break completion;
//!     }
//! };
//! completion.result?;
//! assert_eq!((completion.status.tag, into.as_slice()), (7, b"hello".as_slice()));
//! # Ok::<(), ironweave_pml::ob1::PmlError>(())
//! ```

mod arrive;
mod attend;
mod channel;
mod comm;
mod config;
mod convertor;
mod direct;
mod dump;
mod engine;
mod error;
mod failover;
mod failure;
mod journal;
mod lanes;
pub mod link;
mod list;
mod matching;
#[cfg(test)]
mod oracle;
mod peer;
mod persistent;
mod progress;
mod ranges;
mod recv;
mod rendezvous;
mod request;
mod revoke;
mod room;
mod route;
mod send;
mod slots;
mod start;
mod unexpected;
pub mod wire;

pub use channel::{CONTROL_MAX, ControlMessage};
pub use comm::CommSpec;
pub use config::Config;
pub use convertor::{Buffer, Pack, Payload, Unpack};
pub use engine::{Stats, Usage};
pub use error::PmlError;
pub use request::{
    Completion, FT_TAG_MAX, MessageId, Mode, PARTITIONED_TAG_MAX, ReqId, Source, Started, Status,
    TagMatch, is_collective,
};

use engine::Engine;
use ironweave_btl::memory::RecvRegion;
use ironweave_btl::{Address, Armed, Btl, Fault, Peer};
use peer::{PeerState, RailCaps};
use persistent::{Activity, Operation, Persistent};
use recv::RecvState;
use request::Kind;
use revoke::Interruption;
use send::SendState;
use slots::NIL;
use std::fmt;

/// Checks for failures are left out: see `measure-unchecked` in Cargo.toml.
const UNCHECKED: bool = cfg!(feature = "measure-unchecked");

/// One opened rail of this engine, by its index in the order of [`Ob1::add_btl`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RailId(pub u16);

/// A communicator of this engine: index and generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CommId {
    slot: u32,
    generation: u32,
}

/// The engine. One thread at a time; knows no clock, thread, socket or file.
pub struct Ob1<B: Btl> {
    rails: Vec<B>,
    engine: Engine,
    /// Spare list of busy peers, swapped with the engine's.
    scratch: Vec<Peer>,
}

impl<B: Btl> Ob1<B> {
    /// An engine without rails.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Ob1 { rails: Vec::new(), engine: Engine::new(config), scratch: Vec::new() }
    }

    /// Adds an opened rail. Before any peer.
    ///
    /// # Panics
    /// At more than 65,535 rails.
    pub fn add_btl(&mut self, btl: B) -> RailId {
        let rail = RailId(u16::try_from(self.rails.len()).expect("a machine has fewer rails"));
        let mut caps = RailCaps::from(btl.caps());
        if let Some(limit) = self.engine.config.eager_limit {
            caps.eager_limit = caps.eager_limit.min(limit);
            caps.posted_limit = caps.posted_limit.min(limit);
            caps.rndv_eager_limit = caps.rndv_eager_limit.min(limit);
        }
        caps.id = failover::rail_id(&btl.address());
        self.engine.caps.push(caps);
        self.rails.push(btl);
        rail
    }

    /// Where peers reach this process: to be published.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        self.rails.iter().map(Btl::address).collect()
    }

    /// The rails, for counters and capabilities.
    #[must_use]
    pub fn rails(&self) -> &[B] {
        &self.rails
    }

    /// Makes a communicator, and matches what came for it before.
    ///
    /// # Errors
    /// [`PmlError::CidInUse`] when the id is taken, or the epoch is not later than that of the last life of the id.
    pub fn add_comm(&mut self, spec: CommSpec) -> Result<CommId, PmlError> {
        let cid = spec.cid;
        let id = self.engine.comms.add(spec)?;
        self.engine.inherit_failures(id);
        self.engine.replay_early(cid);
        Ok(id)
    }

    /// Ends a communicator. Receives still posted end with [`PmlError::InvalidComm`]; messages that nobody received are
    /// dropped and their waiting senders told; operations under way run on.
    pub fn free_comm(&mut self, comm: CommId) {
        self.engine.free_comm(comm);
        self.settle();
    }

    /// How many operations of a communicator are under way: those that `free_comm` would end, or let run on. Looks at all
    /// requests.
    #[must_use]
    pub fn open_requests(&self, comm: CommId) -> usize {
        let Ok(there) = self.engine.comms.get(comm) else { return 0 };
        let recvs = self.engine.recvs.iter().filter(|(_, r)| r.comm == comm);
        let recvs = recvs.filter(|(_, r)| r.state != RecvState::Complete).count();
        let sends = self.engine.sends.iter().filter(|(_, s)| s.state != SendState::Complete);
        let same = |e: &wire::Envelope| (e.cid, e.epoch) == (there.cid, there.epoch);
        recvs + sends.filter(|(_, s)| same(&s.envelope)).count()
    }

    /// Posts a receive. Never blocks; complete at once when the message is here.
    ///
    /// When the source has failed the request completes with [`PmlError::ProcFailed`]; a wildcard receive on a
    /// communicator with an unacknowledged failure answers [`PmlError::ProcFailedPending`] and stays posted.
    ///
    /// # Errors
    /// [`PmlError::InvalidComm`], [`PmlError::InvalidRank`], [`PmlError::Revoked`]: nothing was posted.
    #[inline(always)]
    pub fn recv(
        &mut self,
        comm: CommId,
        into: Buffer,
        source: Source,
        tag: TagMatch,
    ) -> Result<ReqId, PmlError> {
        self.post(comm, into, source, tag, false)
    }

    /// As [`recv`](Ob1::recv), or with `blocking` as [`recv_blocking`](Ob1::recv_blocking), into one piece of memory, which
    /// stays in registers on the usual way.
    ///
    /// # Errors
    /// As `recv`.
    #[inline(always)]
    pub fn recv_into(
        &mut self,
        comm: CommId,
        region: RecvRegion,
        source: Source,
        tag: TagMatch,
        blocking: bool,
    ) -> Result<ReqId, PmlError> {
        if let (Source::Rank(rank), TagMatch::Tag(tag)) = (source, tag)
            && let Some((key, recv)) = self.engine.post_exact(comm, rank, tag)
        {
            recv.lend(region);
            return Ok(ReqId::recv(key));
        }
        self.post_rare(comm, Buffer::Contiguous(region), source, tag, blocking)
    }

    /// The common part of both kinds of receive: the usual case in registers, everything else out of line.
    #[inline(always)]
    fn post(
        &mut self,
        comm: CommId,
        into: Buffer,
        source: Source,
        tag: TagMatch,
        blocking: bool,
    ) -> Result<ReqId, PmlError> {
        let into = match (into, source, tag) {
            (Buffer::Contiguous(region), Source::Rank(rank), TagMatch::Tag(tag)) => {
                if let Some((key, recv)) = self.engine.post_exact(comm, rank, tag) {
                    recv.lend(region);
                    return Ok(ReqId::recv(key));
                }
                Buffer::Contiguous(region)
            }
            (into, ..) => into,
        };
        self.post_rare(comm, into, source, tag, blocking)
    }

    fn post_rare(
        &mut self,
        comm: CommId,
        into: Buffer,
        source: Source,
        tag: TagMatch,
        blocking: bool,
    ) -> Result<ReqId, PmlError> {
        let key = self.engine.receive(comm, into, source, tag, blocking)?;
        self.settle();
        Ok(ReqId::recv(key))
    }

    /// As [`recv`](Ob1::recv), for a caller that blocks: a wildcard receive that a failure concerns ends with
    /// [`PmlError::ProcFailed`] where the other would be pending.
    ///
    /// # Errors
    /// As `recv`.
    #[inline(always)]
    pub fn recv_blocking(
        &mut self,
        comm: CommId,
        into: Buffer,
        source: Source,
        tag: TagMatch,
    ) -> Result<ReqId, PmlError> {
        self.post(comm, into, source, tag, true)
    }

    /// Looks for a message without receiving it. Does not progress.
    ///
    /// # Errors
    /// [`PmlError::Revoked`]; [`PmlError::ProcFailed`] where a blocking receive would end with it; wrong arguments.
    pub fn probe(
        &mut self,
        comm: CommId,
        source: Source,
        tag: TagMatch,
    ) -> Result<Option<Status>, PmlError> {
        let message = self.engine.look(comm, source, tag)?;
        Ok((message != NIL).then(|| self.engine.messages[message].status()))
    }

    /// Looks for a message and takes it out of the queues: only [`mrecv`](Ob1::mrecv) receives it.
    ///
    /// # Errors
    /// As [`probe`](Ob1::probe).
    pub fn mprobe(
        &mut self,
        comm: CommId,
        source: Source,
        tag: TagMatch,
    ) -> Result<Option<(MessageId, Status)>, PmlError> {
        let message = self.engine.look(comm, source, tag)?;
        if message == NIL {
            return Ok(None);
        }
        let status = self.engine.messages[message].status();
        Ok(Some((self.engine.claim(comm, message)?, status)))
    }

    /// Receives a message that `mprobe` took.
    ///
    /// # Errors
    /// [`PmlError::InvalidRequest`] when it was received already.
    pub fn mrecv(&mut self, message: MessageId, into: Buffer) -> Result<ReqId, PmlError> {
        let key = self.engine.receive_claimed(message, into)?;
        self.settle();
        Ok(ReqId::recv(key))
    }

    /// What came of a request; `None` while it is under way. After an answer the request is gone, unless it is persistent
    /// or the answer is [`PmlError::ProcFailedPending`].
    #[inline]
    pub fn test(&mut self, request: ReqId) -> Option<Completion> {
        if let Some(status) = self.take_done(request) {
            return Some(Completion { status, result: Ok(()) });
        }
        self.test_rare(request)
    }

    fn test_rare(&mut self, request: ReqId) -> Option<Completion> {
        match request.kind() {
            Kind::Recv => self.engine.test_recv(request.key()),
            Kind::Send => self.engine.test_send(request.key()),
            Kind::Persistent => self.test_persistent(request.key()),
        }
    }

    /// The short cut of `test` for a receive that is complete without error: its status, and the request is gone. `None`:
    /// nothing was done; ask `test`, which answers for everything.
    #[inline(always)]
    pub fn take_done(&mut self, request: ReqId) -> Option<Status> {
        match request.kind() {
            Kind::Recv => self.engine.take_done(request.key()),
            Kind::Send | Kind::Persistent => None,
        }
    }

    /// Whether [`test`](Ob1::test) would answer.
    #[inline]
    #[must_use]
    pub fn is_complete(&self, request: ReqId) -> bool {
        let key = request.key();
        match request.kind() {
            Kind::Recv => {
                self.engine.recvs.get(key).is_none_or(|r| r.state >= RecvState::Interrupted)
            }
            Kind::Send => self.engine.sends.get(key).is_none_or(|s| s.state == SendState::Complete),
            Kind::Persistent => match self.engine.persistent.get(key).map(|p| &p.activity) {
                Some(Activity::Running(request)) => self.is_complete(*request),
                _ => true,
            },
        }
    }

    /// Cancels an operation. A receive is complete at once, `cancelled`, unless it has matched; then it runs on. A send that
    /// waits for its receiver completes as the receiver says: `cancelled`, or, where it has matched, as ever. One that
    /// does not wait for it runs on.
    pub fn cancel(&mut self, request: ReqId) {
        match request.kind() {
            Kind::Recv => self.engine.cancel_recv(request.key()),
            Kind::Send => self.engine.cancel_send(request.key()),
            Kind::Persistent => {
                if let Some(Persistent { activity: Activity::Running(request), .. }) =
                    self.engine.persistent.get(request.key())
                {
                    self.cancel(*request);
                }
            }
        }
    }

    /// Makes a persistent send, inactive. Arguments are checked when it is started.
    pub fn send_init(
        &mut self,
        comm: CommId,
        mode: Mode,
        payload: Payload,
        dest: u32,
        tag: i32,
    ) -> Result<ReqId, PmlError> {
        self.engine.comms.get(comm)?.member(dest)?;
        Ok(self.init(Operation::Send { comm, mode, payload, dest, tag }))
    }

    /// Makes a persistent receive, inactive.
    pub fn recv_init(
        &mut self,
        comm: CommId,
        into: Buffer,
        source: Source,
        tag: TagMatch,
    ) -> Result<ReqId, PmlError> {
        let there = self.engine.comms.get(comm)?;
        if let Source::Rank(rank) = source {
            there.member(rank)?;
        }
        Ok(self.init(Operation::Recv { comm, buffer: Some(into), source, tag }))
    }

    fn init(&mut self, operation: Operation) -> ReqId {
        let persistent = Persistent { operation, activity: Activity::Inactive };
        ReqId::persistent(self.engine.persistent.insert(persistent))
    }

    /// Lets go of a request without waiting. Its operation runs on, unseen; the buffer stays in use until it is over
    /// (or, if it never is, until the engine is dropped).
    pub fn request_free(&mut self, request: ReqId) {
        match request.kind() {
            Kind::Persistent => {
                if self.engine.persistent.get(request.key()).is_some() {
                    let slot = request.key().slot;
                    let was = self.engine.persistent.remove(slot, Persistent::VACANT);
                    if let Activity::Running(active) = was.activity {
                        self.request_free(active);
                    }
                }
            }
            _ => {
                if self.is_complete(request) {
                    self.test(request);
                }
                match request.kind() {
                    Kind::Recv => {
                        if let Some(recv) = self.engine.recvs.get_mut(request.key()) {
                            recv.detached = true;
                        }
                    }
                    _ => {
                        if let Some(send) = self.engine.sends.get_mut(request.key()) {
                            send.detached = true;
                        }
                    }
                }
            }
        }
    }

    /// Whether [`suspects`](Ob1::suspects) has something to tell.
    #[inline]
    #[must_use]
    pub fn has_suspects(&self) -> bool {
        !self.engine.suspects.is_empty()
    }

    /// Faults of peers, and lost rails that cut a peer off, since the last call. The owner finds out what they mean; a proof
    /// ([`Fault::is_proof`]) may be given to [`proc_failed`](Ob1::proc_failed) at once.
    pub fn suspects(&mut self) -> std::vec::Drain<'_, Fault> {
        self.engine.suspects.drain(..)
    }

    /// Whether wildcard receives are enabled: no failure in the communicator is unacknowledged.
    #[must_use]
    pub fn any_source_enabled(&self, comm: CommId) -> bool {
        self.engine.comms.get(comm).is_ok_and(|c| c.failures.unacknowledged().is_none())
    }

    /// Ranks of the (remote) group known to have failed, in the order in which that became known.
    #[must_use]
    pub fn failed_ranks(&self, comm: CommId) -> &[u32] {
        self.engine.comms.get(comm).map_or(&[], |c| c.failures.ranks())
    }

    /// Acknowledges the failures known now, which enables wildcard receives again; returns how many there are.
    pub fn ack_failed(&mut self, comm: CommId) -> usize {
        self.ack_failed_up_to(comm, usize::MAX)
    }

    /// Acknowledges the first `most` of [`failed_ranks`](Ob1::failed_ranks); returns how many are acknowledged now, which is
    /// more if more were before. Wildcard receives are enabled when all are.
    pub fn ack_failed_up_to(&mut self, comm: CommId, most: usize) -> usize {
        self.engine.acknowledge(comm, most)
    }

    /// The communicator is revoked: what has not matched is interrupted, here and at the senders (law 5).
    pub fn revoke_comm(&mut self, comm: CommId) {
        self.engine.interrupt(comm, Interruption::Revoked);
        self.settle();
    }

    /// A member has failed, and a collective of the communicator was given up somewhere: collectives end everywhere, by the
    /// rules of `revoke_comm`, with [`PmlError::Interrupted`], and none starts any more on this communicator. Point-to-point
    /// messages of users and resilient tags are not touched (seed 000, "Interrupting collectives in error").
    pub fn interrupt_collectives(&mut self, comm: CommId) {
        self.engine.interrupt(comm, Interruption::Collectives);
        self.settle();
    }

    /// Whether collectives of the communicator end with an error: interrupted, or revoked.
    #[must_use]
    pub fn are_collectives_interrupted(&self, comm: CommId) -> bool {
        self.engine.comms.get(comm).is_ok_and(|c| c.interruption.any())
    }

    /// Whether the communicator is revoked.
    #[must_use]
    pub fn is_revoked(&self, comm: CommId) -> bool {
        self.engine.comms.get(comm).is_ok_and(|c| c.interruption == Interruption::Revoked)
    }

    /// What is not yet out of this process's hands: frames that wait here, and those in the rails. Call `progress` until it
    /// is 0 before [`depart`](Ob1::depart); what waits for peers that are cut off does not count.
    #[must_use]
    pub fn unflushed(&self) -> usize {
        let here = self.engine.peers.iter().filter(|(_, p)| !p.is_cut_off());
        let unsent = |p: &PeerState| p.channel.as_ref().map_or(0, |channel| channel.unsent());
        let again = |p: &PeerState| p.journal.as_ref().map_or(0, |journal| journal.to_send());
        let owed = |p: &PeerState| usize::from(p.journal.as_ref().is_some_and(|j| j.tell));
        let queued = |p: &PeerState| p.outbox.len() + p.pending.len() + p.flows.len();
        let waiting = |p: &PeerState| queued(p) + unsent(p) + again(p) + owed(p);
        let here: usize = here.map(|(_, p)| waiting(p)).sum();
        here + self.rails.iter().map(Btl::unflushed).sum::<usize>()
    }

    /// Says good-bye on all rails. Does not block.
    pub fn depart(&mut self) {
        self.rails.iter_mut().for_each(Btl::depart);
    }

    /// Prepares for sleeping: one answer per rail. With work of its own the engine is always ready.
    pub fn arm(&mut self) -> Vec<Armed> {
        if self.engine.has_work() || !self.engine.asking.is_empty() {
            return vec![Armed::Ready];
        }
        self.rails.iter_mut().map(Btl::arm).collect()
    }

    /// What happened so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine.stats
    }

    /// What is held now. Looks at all peers.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.engine.usage()
    }

    /// Sends answers and closes memory right after a call that may have made some.
    #[inline]
    fn settle(&mut self) {
        if self.engine.has_work() {
            self.pump();
        }
    }

    /// A few lines about requests, peers and rails, for watchdogs.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn dump(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        self.engine.dump(out)?;
        self.rails.iter().try_for_each(|btl| btl.dump(out))
    }
}
