//! Sends begin: the small path without a request, and the general one.

use super::journal::{Matter, numbered};
use super::peer::{Life, ZCOPY_MIN};
use super::recv::verdict_error;
use super::send::{Send, SendState};
use super::slots::NIL;
use super::wire::{Envelope, Match, kinds};
use super::{CommId, Mode, Ob1, Payload, PmlError, ReqId, Started, UNCHECKED};
use ironweave_btl::Btl;
use ironweave_btl::copy::pack;
use zerocopy::IntoBytes;

impl<B: Btl> Ob1<B> {
    /// Sends an eager message of one frame in standard mode, straight out of `data`, if that can be done now: `Ok(true)` when it is out
    /// and `data` can be used again. `Ok(false)`: nothing was done; use [`send`](Ob1::send), which also tells what is wrong.
    /// No allocation, no lock, no request.
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
        let envelope = Envelope { cid, epoch, seq, source, tag, ready: false };
        let header = Match::new(kinds::MATCH, envelope);
        let btl = &mut self.rails[usize::from(fast.rail.0)];
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

    /// As `send_inline`, over a rail that can be lost: the bytes are kept until they have arrived.
    fn send_kept(&mut self, comm: CommId, data: &[u8], dest: u32, tag: i32) -> bool {
        let Ok(there) = self.engine.comms.get_mut(comm) else { return false };
        let (cid, epoch, source) = (there.cid, there.epoch, there.rank);
        let interrupted = there.interruption.any();
        let Some(member) = there.members.get_mut(dest as usize) else { return false };
        let peer = member.peer;
        let Some(state) = self.engine.peers.get_mut(peer) else { return false };
        let (Life::Alive, Some(lane)) = (state.life, state.lane) else { return false };
        let caps = &self.engine.caps[usize::from(lane.0)];
        let below = if caps.max_zcopy > 0 { ZCOPY_MIN } else { usize::MAX };
        if caps.lossless
            || interrupted
            || data.len() > caps.max_bcopy.min(caps.eager_limit)
            || data.len() >= below
            || !state.pending.is_empty()
            || !state.outbox.is_empty()
            || state.has_control()
            || state.room.announce
            || !state.journal().is_ready()
        {
            return false;
        }
        let seq = member.next_seq as u16;
        let envelope = Envelope { cid, epoch, seq, source, tag, ready: false };
        let base = Match::new(kinds::MATCH, envelope);
        let header = numbered(base.as_bytes(), state.journal().number());
        let btl = &mut self.rails[usize::from(lane.0)];
        let sent = if header.as_bytes().len() + data.len() <= caps.max_short {
            btl.send_short(peer, header.as_bytes(), data)
        } else {
            btl.send_bcopy(peer, header.as_bytes(), data.len(), |offset, piece| {
                piece.copy_from_slice(&data[offset..offset + piece.len()]);
            })
        };
        if sent.is_err() {
            return false;
        }
        let held = self.engine.pool.hold(data, data.len());
        state.journal().keep(base.as_bytes(), Matter::Copy(held));
        member.next_seq = member.next_seq.wrapping_add(1);
        true
    }

    fn send_general(
        &mut self,
        comm: CommId,
        mode: Mode,
        data: &Payload,
        dest: u32,
        tag: i32,
    ) -> Result<Started, PmlError> {
        if mode == Mode::Standard
            && let Some(bytes) = data.as_slice()
            && self.send_kept(comm, bytes, dest, tag)
        {
            return Ok(Started::Done);
        }
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
        let key = engine.sends.insert(Send::new(mode, peer, dest, envelope, payload, length));
        if let Life::Closing(verdict) | Life::Ended(verdict) = life {
            engine.fail_send(key.slot, verdict_error(verdict, peer, dest));
            return Ok(Started::Pending(ReqId::send(key)));
        }
        engine.peers.state(peer).pending.push_back(key);
        engine.refresh(peer);
        engine.peers.wake(peer);
        self.pump();
        let send = &mut self.engine.sends[key.slot];
        match send.state {
            SendState::Complete if send.error.is_none() => {
                self.engine.sends.remove(key.slot, Send::vacant());
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
