//! Waiting for one request whose message is read: the frame that it waits for is looked for where it arrives.
//!
//! A message that its receiver reads out of the sender's memory (RGET) takes a frame to offer it and one to end it (FIN), and each of
//! them is waited for by somebody who does nothing else. Handed up by the rail and taken through the engine's queues, each takes a third
//! of a microsecond, which is a good part of what the read itself takes. Here the receiver reads and answers as soon as it sees the
//! offer, where the rail reads with the processor's own hands ([`Btl::read_now`]), and the sender ends its request as soon as it sees the
//! answer. Whatever else is there, or is out of the ordinary, is left to [`progress`](Ob1::progress), or goes the general way from here.

use super::convertor::Buffer;
use super::engine::{Rma, RmaOwner};
use super::recv::RecvState;
use super::request::Kind;
use super::send::SendState;
use super::slots::Key;
use super::wire::{Announce, Envelope, Fin, Match, WireStatus, kinds};
use super::{Ob1, ReqId, Source, TagMatch, UNCHECKED};
use ironweave_btl::{Btl, Peer, Read, RemoteKey, RmaDescriptor, RmaKind, Token};
use zerocopy::{FromBytes, IntoBytes};

impl<B: Btl> Ob1<B> {
    /// Looks for the frame that moves `request` on, within `turns` looks; whether there was one. Only for requests of messages that
    /// are read; of others nothing is looked for. Moves nothing else on: call [`progress`](Ob1::progress) in between.
    #[inline]
    pub fn attend(&mut self, request: ReqId, turns: u32) -> bool {
        if self.engine.has_work() {
            return false;
        }
        match request.kind() {
            Kind::Recv => self.attend_recv(request.key(), turns),
            Kind::Send => self.attend_send(request.key(), turns),
            Kind::Persistent => false,
        }
    }

    /// The receiver has read, or will: its FIN.
    fn attend_send(&mut self, key: Key, turns: u32) -> bool {
        let Some(send) = self.engine.sends.get(key) else { return false };
        let (SendState::Announced, Some((rail, _))) = (send.state, send.source) else {
            return false;
        };
        let (peer, done) = (send.peer, WireStatus::Done);
        let fin = Fin::to_sender(key.to_wire(), done);
        let btl = &mut self.rails[usize::from(rail.0)];
        while !btl.take_next(peer, turns, |header, _| header == fin.as_bytes()) {
            // Our part of the read comes first.
            if !btl.assist(peer) {
                return false;
            }
        }
        self.engine.on_read_done(peer, key.to_wire(), done);
        self.deregister();
        true
    }

    /// The next message of the source: its RGET.
    fn attend_recv(&mut self, key: Key, turns: u32) -> bool {
        let engine = &mut self.engine;
        let Some(recv) = engine.recvs.get_mut(key) else { return false };
        let (RecvState::Posted, Buffer::Contiguous(region)) = (recv.state, &recv.buffer) else {
            return false;
        };
        let (Source::Rank(source), TagMatch::Tag(tag)) = (recv.source, recv.tag) else {
            return false;
        };
        let Ok(there) = engine.comms.get_mut(recv.comm) else { return false };
        let Some(member) = there.members.get(source as usize) else { return false };
        let (peer, rail, seq) = (member.peer, member.heard, member.expected);
        let Some(caps) = engine.caps.get(usize::from(rail.0)) else { return false };
        let troubled = !UNCHECKED && (there.careful || there.failures.any());
        // Shorter messages are not offered to be read, and what can be lost ends with a number, which is not looked for here.
        if troubled
            || !caps.lossless
            || !engine.config.rdma
            || !caps.get
            || region.len() < caps.read_from
        {
            return false;
        }
        let (cid, epoch) = (there.cid, there.epoch);
        let envelope = Envelope { cid, epoch, seq, source, tag, ready: false };
        let expected = Match::new(kinds::RGET, envelope);
        let mut offer = None;
        let btl = &mut self.rails[usize::from(rail.0)];
        btl.take_next(peer, turns, |header, payload| {
            offer = Announce::read_from_bytes(header)
                .ok()
                .filter(|found| found.matching == expected)
                .and_then(|found| Some((found, RemoteKey::new(payload)?)));
            offer.is_some()
        });
        let Some((offer, source_key)) = offer else { return false };
        if there.find_posted(&engine.recvs, source, tag) == key.slot
            && self.read_offered(key, peer, &offer, &source_key)
        {
            return true;
        }
        // Not here, or not at once: as if `progress` had found it.
        self.engine.frame_other(rail, peer, offer.as_bytes(), source_key.as_bytes());
        true
    }

    /// Reads the message offered into the buffer of the receive, ends that, and tells the sender; or begins to, if the sender takes a
    /// part of it and is not through. Whether that was possible; if not, nothing was done.
    fn read_offered(
        &mut self,
        key: Key,
        peer: Peer,
        offer: &Announce,
        source_key: &RemoteKey,
    ) -> bool {
        let engine = &mut self.engine;
        let (length, sender) = (offer.length.get(), offer.token.get());
        let recv = &mut engine.recvs[key.slot];
        let (Source::Rank(source), TagMatch::Tag(tag)) = (recv.source, recv.tag) else {
            return false;
        };
        if length > recv.buffer.capacity() as u64 {
            return false;
        }
        let Some(region) = recv.buffer.region(0..length as usize) else { return false };
        let there = engine.comms.at(recv.comm.slot);
        let member = &mut there.members[source as usize];
        let rail = member.heard;
        let btl = &mut self.rails[usize::from(rail.0)];
        let rma = engine.rmas.insert(Rma { owner: RmaOwner::Recv(key), offset: 0, length });
        let (kind, token) = (RmaKind::Get(region), Token(rma.to_wire()));
        let get = RmaDescriptor { peer, kind, remote: *source_key, remote_offset: 0, token };
        let read = btl.read_now(&get);
        if !matches!(read, Read::Begun) {
            engine.rmas.remove(rma.slot, Rma::vacant());
        }
        if !matches!(read, Read::Begun | Read::Over(Ok(()))) {
            return false;
        }
        member.expected = member.expected.wrapping_add(1);
        there.unpost(&mut engine.recvs, key.slot);
        let recv = &mut engine.recvs[key.slot];
        if let Read::Begun = read {
            recv.matched(peer, source, tag, length);
            (recv.sender, recv.rail) = (sender, rail);
            recv.pieces.clear();
            recv.rdma = Some(engine.rdmas.lend(length, Some(*source_key)));
            (recv.claimed, recv.held) = (length, 1);
            return true;
        }
        recv.read_whole(source, tag, length as usize);
        let fin = Fin::to_sender(sender, WireStatus::Done);
        if btl.send_short(peer, fin.as_bytes(), &[]).is_err() {
            engine.control(peer, &fin, None);
        }
        true
    }
}
