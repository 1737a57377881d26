//! skeleton
mod config;
mod convertor;
mod error;
mod request;
mod slots;
pub mod wire;

pub use config::Config;
pub use convertor::{Buffer, Pack, Payload, Unpack};
pub use error::PmlError;
pub use request::{
    Completion, FT_TAG_MAX, MessageId, Mode, ReqId, Source, Started, Status, TagMatch,
};
use ironweave_btl::{Address, Armed, Btl, Fault, Peer};
use std::fmt;

/// One opened rail of this engine, by its index in the order of [`Ob1::add_btl`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RailId(pub u16);

/// A communicator of this engine: index and generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CommId {
    slot: u32,
    generation: u32,
}

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

/// The engine. See the crate's documentation.
pub struct Ob1<B: Btl> {
    rails: Vec<B>,
}

#[allow(unused_variables, clippy::todo, missing_docs)]
impl<B: Btl> Ob1<B> {
    pub fn new(config: Config) -> Self {
        todo!()
    }
    pub fn add_btl(&mut self, btl: B) -> RailId {
        todo!()
    }
    pub fn addresses(&self) -> Vec<Address> {
        self.rails.iter().map(Btl::address).collect()
    }
    /// Chooses rails by exclusivity and starts to connect.
    pub fn add_peer(&mut self, peer: Peer, addresses: &[Address]) -> Result<(), PmlError> {
        todo!()
    }
    /// Whether sends to the peer can be started (else they say [`PmlError::Unresolved`]).
    pub fn knows_peer(&self, peer: Peer) -> bool {
        todo!()
    }
    pub fn add_comm(&mut self, spec: CommSpec) -> Result<CommId, PmlError> {
        todo!()
    }
    pub fn free_comm(&mut self, comm: CommId) {
        todo!()
    }
    /// Blocking fast path: `Ok(true)` when the message went out whole at once (standard mode), `Ok(false)` when
    /// nothing was done and `send` must be used. Never needs a region, never allocates.
    #[inline]
    pub fn send_inline(&mut self, comm: CommId, data: &[u8], dest: u32, tag: i32) -> Result<bool, PmlError> {
        todo!()
    }
    pub fn send(&mut self, comm: CommId, mode: Mode, data: &Payload, dest: u32, tag: i32) -> Result<Started, PmlError> {
        todo!()
    }
    pub fn recv(&mut self, comm: CommId, into: Buffer, source: Source, tag: TagMatch) -> Result<ReqId, PmlError> {
        todo!()
    }
    /// As `recv`, for a caller that blocks: a wildcard receive ends with `ProcFailed` where a non-blocking one tells
    /// `ProcFailedPending` and stays.
    pub fn recv_blocking(&mut self, comm: CommId, into: Buffer, source: Source, tag: TagMatch) -> Result<ReqId, PmlError> {
        todo!()
    }
    /// Err when the communicator is revoked or the source has failed and no message of it is there.
    pub fn probe(&mut self, comm: CommId, source: Source, tag: TagMatch) -> Result<Option<Status>, PmlError> {
        todo!()
    }
    pub fn mprobe(&mut self, comm: CommId, source: Source, tag: TagMatch) -> Result<Option<(MessageId, Status)>, PmlError> {
        todo!()
    }
    pub fn mrecv(&mut self, message: MessageId, into: Buffer) -> Result<ReqId, PmlError> {
        todo!()
    }
    /// `None`: under way. The request is gone after `Some`, unless persistent or `ProcFailedPending`.
    pub fn test(&mut self, request: ReqId) -> Option<Completion> {
        todo!()
    }
    /// Whether `test` would answer.
    #[inline]
    pub fn is_complete(&self, request: ReqId) -> bool {
        todo!()
    }
    /// Receives only; it is complete (`cancelled`) at once when it had not matched.
    pub fn cancel(&mut self, request: ReqId) {
        todo!()
    }
    pub fn send_init(&mut self, comm: CommId, mode: Mode, data: Payload, dest: u32, tag: i32) -> Result<ReqId, PmlError> {
        todo!()
    }
    pub fn recv_init(&mut self, comm: CommId, into: Buffer, source: Source, tag: TagMatch) -> Result<ReqId, PmlError> {
        todo!()
    }
    pub fn start(&mut self, request: ReqId) -> Result<(), PmlError> {
        todo!()
    }
    /// Persistent: removes it (after its current activity). Others: they complete unseen.
    pub fn request_free(&mut self, request: ReqId) {
        todo!()
    }
    #[inline]
    pub fn progress(&mut self) -> usize {
        todo!()
    }
    /// The process is known to be dead.
    pub fn proc_failed(&mut self, peer: Peer) {
        todo!()
    }
    /// The upper layer gives up on reaching it, without holding it for dead.
    pub fn unreachable(&mut self, peer: Peer) {
        todo!()
    }
    /// Faults of scope Peer, and lost rails that cut a peer off, since the last call.
    pub fn suspects(&mut self) -> std::vec::Drain<'_, Fault> {
        todo!()
    }
    /// Whether wildcard receives are enabled: no failure in the communicator is unacknowledged.
    pub fn any_source_enabled(&self, comm: CommId) -> bool {
        todo!()
    }
    /// Ranks of the (remote) group known to have failed, in the order in which that became known.
    pub fn failed_ranks(&self, comm: CommId) -> &[u32] {
        todo!()
    }
    /// Acknowledges the failures known now; returns how many of `failed_ranks` that covers.
    pub fn ack_failed(&mut self, comm: CommId) -> usize {
        todo!()
    }
    pub fn revoke_comm(&mut self, comm: CommId) {
        todo!()
    }
    pub fn is_revoked(&self, comm: CommId) -> bool {
        todo!()
    }
    /// What is not yet out of this process's hands; 0 before `depart`.
    pub fn unflushed(&self) -> usize {
        todo!()
    }
    pub fn depart(&mut self) {
        todo!()
    }
    /// Each rail's answer, for sleeping.
    pub fn arm(&mut self) -> Vec<Armed> {
        todo!()
    }
    pub fn dump(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        todo!()
    }
}
