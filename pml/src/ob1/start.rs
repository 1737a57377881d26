//! Sends begin: the small path without a request, and the general one.

use super::link::Number;
use super::peer::{Fast, Life, PeerState};
use super::progress::Attempt;
use super::recv::verdict_error;
use super::send::{Send, SendState};
use super::slots::NIL;
use super::unexpected::Pool;
use super::wire::{Envelope, Match, kinds};
use super::{CommId, Mode, Ob1, Payload, PmlError, ReqId, Started, UNCHECKED};
use ironweave_btl::copy::pack;
use ironweave_btl::{Btl, Peer};
use zerocopy::IntoBytes;

/// A message of so many bytes always says what has arrived here: four bytes are nothing beside it, and a rail that need not send a header which
/// differs from the one before as that did (`verbs`: 4 KiB in one packet) meets headers of one kind.
const SAYS_ALL: usize = 1024;

/// Sends a message over a rail that can be lost: a copy is kept until it has arrived. Whether it is out.
#[inline(never)]
fn send_kept<B: Btl>(
    btl: &mut B,
    state: &mut PeerState,
    pool: &mut Pool,
    fast: Fast,
    peer: Peer,
    base: Match,
    data: &[u8],
) -> bool {
    const BASE: usize = size_of::<Match>();
    let quiet = state.outbox.is_empty();
    let journal = state.journal();
    if !quiet || !journal.is_ready() {
        return false;
    }
    let (number, brief) = (journal.number(), journal.is_brief() && data.len() < SAYS_ALL);
    let mut header = [0; BASE + size_of::<Number>()];
    header[..BASE].copy_from_slice(base.as_bytes());
    header[BASE..].copy_from_slice(number.as_bytes());
    let header = &header[..if brief { BASE + number.brief().len() } else { header.len() }];
    let sent = if data.len() < fast.short_below as usize {
        btl.send_short(peer, header, data)
    } else {
        btl.send_bcopy(peer, header, data.len(), |offset, piece| {
            pack(piece, &data[offset..offset + piece.len()]);
        })
    };
    if sent.is_err() {
        return false;
    }
    journal.keep_message(&base, pool.hold(data, data.len()), data.len(), brief);
    true
}

impl<B: Btl> Ob1<B> {
    /// Sends an eager message of one frame in standard mode, straight out of `data`, if that can be done now: `Ok(true)` when it is out
    /// and `data` can be used again. `Ok(false)`: nothing was done; use [`send`](Ob1::send), which also tells what is wrong.
    /// No lock, no request; no allocation but by pools that grow.
    ///
    /// # Errors
    /// [`PmlError::InvalidComm`], [`PmlError::InvalidRank`].
    #[inline]
    pub fn send_inline(
        &mut self,
        comm: CommId,
        data: &[u8],
        dest: u32,
        tag: i32,
    ) -> Result<bool, PmlError> {
        let there = self.engine.comms.get_mut(comm)?;
        let (cid, epoch, source) = (there.cid, there.epoch, there.rank);
        let size = there.members.len();
        let interrupted = !UNCHECKED && there.interruption.any();
        let Some(member) = there.members.get_mut(dest as usize) else {
            return Err(PmlError::InvalidRank { rank: dest, size: size as u32 });
        };
        let Some(fast) = self.engine.peers.fast(member.peer) else { return Ok(false) };
        if data.len() >= fast.below as usize || interrupted {
            return Ok(false);
        }
        let seq = member.next_seq as u16;
        // By value to whoever needs it, and no envelope is kept: one whose address leaves this function goes through memory, field by
        // field, and the copy into the ring, which reads words, waits until all stores before it are in the cache. That was
        // half of what an `MPI_Iallreduce` of 8 bytes spent in here.
        let header =
            Match::new(kinds::MATCH, Envelope { cid, epoch, seq, source, tag, ready: false });
        let btl = &mut self.rails[usize::from(fast.rail.0)];
        if fast.kept {
            let Some(state) = self.engine.peers.get_mut(member.peer) else { return Ok(false) };
            let sent =
                send_kept(btl, state, &mut self.engine.pool, fast, member.peer, header, data);
            member.next_seq = member.next_seq.wrapping_add(sent.into());
            return Ok(sent);
        }
        let sent = if data.len() < fast.short_below as usize {
            btl.send_short(member.peer, header.as_bytes(), data)
        } else {
            btl.send_bcopy(member.peer, header.as_bytes(), data.len(), |offset, piece| {
                pack(piece, &data[offset..offset + piece.len()]);
            })
        };
        if sent.is_err() {
            return Ok(false);
        }
        member.next_seq = member.next_seq.wrapping_add(1);
        Ok(true)
    }

    /// Sends a message of a few bytes in standard mode, if nothing is in its way and the rail has a short cut for it
    /// ([`Btl::send_tiny`]); whether it is out. If not, nothing was done.
    #[inline(always)]
    pub fn send_tiny(&mut self, comm: CommId, data: &[u8], dest: u32, tag: i32) -> bool {
        let Ok(there) = self.engine.comms.get_mut(comm) else { return false };
        let (cid, epoch, source) = (there.cid, there.epoch, there.rank);
        let interrupted = !UNCHECKED && there.interruption.any();
        let Some(member) = there.members.get_mut(dest as usize) else { return false };
        let Some(fast) = self.engine.peers.fast(member.peer) else { return false };
        let Some(btl) = self.rails.get_mut(usize::from(fast.rail.0)) else { return false };
        if data.len() >= fast.short_below as usize || fast.kept || interrupted {
            return false;
        }
        let seq = member.next_seq as u16;
        let header =
            Match::words(kinds::MATCH, Envelope { cid, epoch, seq, source, tag, ready: false });
        let sent = btl.send_tiny(member.peer, header, data);
        if sent {
            member.next_seq = member.next_seq.wrapping_add(1);
        }
        sent
    }

    /// Starts a send. Never blocks. Short messages are mostly [`Started::Done`] at once.
    ///
    /// When the peer has failed the request completes with [`PmlError::ProcFailed`] (seed 003 §17.6.1).
    ///
    /// # Errors
    /// [`PmlError::Unresolved`]: give the peer's addresses to [`add_peer`](Ob1::add_peer) and try again;
    /// [`PmlError::Revoked`], [`PmlError::Interrupted`], [`PmlError::InvalidComm`], [`PmlError::InvalidRank`],
    /// [`PmlError::NotReady`]. Nothing was started.
    #[inline]
    pub fn send(
        &mut self,
        comm: CommId,
        mode: Mode,
        data: &Payload,
        dest: u32,
        tag: i32,
    ) -> Result<Started, PmlError> {
        if mode == Mode::Standard
            && let Some(bytes) = data.as_slice()
            && self.send_inline(comm, bytes, dest, tag)?
        {
            return Ok(Started::Done);
        }
        self.send_general(comm, mode, data, dest, tag)
    }

    fn send_general(
        &mut self,
        comm: CommId,
        mode: Mode,
        data: &Payload,
        dest: u32,
        tag: i32,
    ) -> Result<Started, PmlError> {
        let engine = &mut self.engine;
        let there = engine.comms.get_mut(comm)?;
        if let Some(error) = there.interruption.error(tag) {
            return Err(error);
        }
        let peer = there.member(dest)?.peer;
        let (rank, to_self) = (there.rank, peer == engine.config.me);
        if mode == Mode::Ready && to_self && there.find_posted(&engine.recvs, rank, tag) == NIL {
            return Err(PmlError::NotReady);
        }
        let state = engine.peers.state(peer);
        let life = state.life;
        if !state.known && life == Life::Alive {
            return Err(PmlError::Unresolved(peer));
        }
        let (cid, epoch) = (there.cid, there.epoch);
        let member = &mut there.members[dest as usize];
        let (seq, ready) = (member.next_seq as u16, mode == Mode::Ready);
        member.next_seq = member.next_seq.wrapping_add(1);
        let envelope = Envelope { cid, epoch, seq, source: rank, tag, ready };
        let payload = if mode == Mode::Buffered { data.copied() } else { data.clone() };
        let length = data.len() as u64;
        let key = engine.sends.take(Send::fresh);
        engine.sends[key.slot].begin(mode, peer, dest, envelope, payload, length);
        if let Life::Closing(verdict) | Life::Ended(verdict) = life {
            engine.fail_send(key.slot, verdict_error(verdict, peer, dest));
            return Ok(Started::Pending(ReqId::send(key)));
        }
        let state = engine.peers.state(peer);
        // Nothing is before it: then it need not wait in the queue to be found there.
        let free = state.lane.filter(|_| life == Life::Alive && !state.busy && !state.has_work());
        if free.is_none_or(|lane| self.launch(key, lane) != Attempt::Done) {
            let engine = &mut self.engine;
            engine.peers.state(peer).pending.push_back(key);
            engine.refresh(peer);
            engine.peers.wake(peer);
            self.pump();
        }
        let send = &mut self.engine.sends[key.slot];
        match send.state {
            SendState::Complete if send.error.is_none() => {
                self.engine.free_send(key.slot);
                Ok(Started::Done)
            }
            SendState::Complete => Ok(Started::Pending(ReqId::send(key))),
            _ if mode == Mode::Buffered => {
                send.detached = true;
                Ok(Started::Done)
            }
            _ => Ok(Started::Pending(ReqId::send(key))),
        }
    }
}
