//! The shortest way of short messages: out, and in, without a request.
//!
//! A blocking receive from one source with one tag, while nothing is posted and nothing was kept, matches the next message
//! from that source, if that is the one it asks for: then its bytes go from the transport's memory to the user's, and there
//! is no request, no queue and no state in between. Anything else is left where it is, for the general way. Never moves
//! anything else on: callers see to that (blueprint, "Failure knowledge", and law 1).

use super::link::unnumber_match;
use super::peer::Peers;
use super::wire::{Envelope, Match, kinds};
use super::{CommId, Ob1, ReqId, UNCHECKED};
use ironweave_btl::memory::RecvRegion;
use ironweave_btl::{Btl, Peer, Tiny};
use zerocopy::IntoBytes;

/// Longest buffer of a receive without a request, in bytes. What is longer comes in several pieces, which land at once where a
/// receive is posted.
const DIRECT_MAX: usize = 8 << 10;

/// Takes the expected message where it came over a rail that can be lost, in its turn, and fits: what it says that its sender has
/// seen.
#[inline(never)]
fn take_numbered(
    peers: &mut Peers,
    from: Peer,
    expected: Match,
    header: &[u8],
    payload: &[u8],
    into: &RecvRegion,
) -> Option<Option<u32>> {
    let (base, number) = unnumber_match(header)?;
    if *base != expected || payload.len() > into.len() {
        return None;
    }
    let seen = peers.note_next(from, number, payload.len())?;
    into.write(0, payload);
    Some(seen)
}

impl<B: Btl> Ob1<B> {
    /// Receives the next message of rank `source`, if it is here within `turns` looks, carries `tag`, fits, and nothing is out of the
    /// ordinary: no other receive is posted, no message kept, no failure known. Answers its length in bytes; `None`:
    /// nothing was done, use [`recv_into`](Ob1::recv_into).
    ///
    /// Nothing else is moved on meanwhile: call [`progress`](Ob1::progress) now and then, however often this succeeds.
    #[inline(always)]
    pub fn recv_direct(
        &mut self,
        comm: CommId,
        into: &RecvRegion,
        source: u32,
        tag: i32,
        turns: u32,
    ) -> Option<usize> {
        let waiting = self.engine.has_work();
        let there = self.engine.comms.get_mut(comm).ok()?;
        let (cid, epoch) = (there.cid, there.epoch);
        let troubled = !UNCHECKED && (there.careful || there.failures.any());
        let idle = there.queues.are_empty();
        let member = there.members.get_mut(source as usize)?;
        let rail = self.rails.get_mut(usize::from(member.heard.0))?;
        if waiting || troubled || !idle || into.len() > DIRECT_MAX {
            return None;
        }
        let seq = member.expected;
        let envelope = Envelope { cid, epoch, seq, source, tag, ready: false };
        let peer = member.peer;
        match rail.take_tiny(peer, turns, Match::words(kinds::MATCH, envelope), into) {
            Tiny::Taken(received) => {
                member.expected = seq.wrapping_add(1);
                Some(received)
            }
            Tiny::Left => None,
            Tiny::Unable => self.recv_shown(comm, into, source, tag, turns),
        }
    }

    /// The same, where the rail shows what it has: nothing is out of the ordinary.
    #[inline(never)]
    fn recv_shown(
        &mut self,
        comm: CommId,
        into: &RecvRegion,
        source: u32,
        tag: i32,
        turns: u32,
    ) -> Option<usize> {
        let there = self.engine.comms.get_mut(comm).ok()?;
        let (cid, epoch) = (there.cid, there.epoch);
        let member = there.members.get_mut(source as usize)?;
        let rail = self.rails.get_mut(usize::from(member.heard.0))?;
        let (seq, peer) = (member.expected, member.peer);
        let envelope = Envelope { cid, epoch, seq, source, tag, ready: false };
        match rail.take_expected(peer, turns, Match::words(kinds::MATCH, envelope), into) {
            Tiny::Taken(received) => {
                member.expected = seq.wrapping_add(1);
                return Some(received);
            }
            Tiny::Left => return None,
            Tiny::Unable => {}
        }
        let expected = Match::new(kinds::MATCH, envelope);
        let mut received = 0;
        let peers = &mut self.engine.peers;
        let mut news = None;
        let taken = rail.take_next(peer, turns, |header, payload| {
            if header == expected.as_bytes() && payload.len() <= into.len() {
                into.write(0, payload);
                received = payload.len();
                return true;
            }
            let Some(seen) = take_numbered(peers, peer, expected, header, payload, into) else {
                return false;
            };
            (received, news) = (payload.len(), seen);
            true
        });
        if !taken {
            return None;
        }
        member.expected = seq.wrapping_add(1);
        if let Some(ack) = news {
            self.engine.on_seen(peer, ack);
        }
        Some(received)
    }

    /// Whether [`recv_direct`](Ob1::recv_direct) found nothing only because nothing of `source` is here: another look may find its
    /// message. `false` over rails that cannot tell, and wherever the receive has to take the general way.
    #[must_use]
    pub fn is_due(&self, comm: CommId, into: &RecvRegion, source: u32) -> bool {
        let Ok(there) = self.engine.comms.get(comm) else { return false };
        let Some(member) = there.members.get(source as usize) else { return false };
        let Some(rail) = self.rails.get(usize::from(member.heard.0)) else { return false };
        let ordinary = !self.engine.has_work()
            && (UNCHECKED || !(there.careful || there.failures.any()))
            && there.queues.are_empty();
        ordinary && into.len() <= DIRECT_MAX && rail.is_silent(member.peer)
    }

    /// Posts a receive from `source` with `tag`, when nothing is out of the ordinary and no such message is here; `None`: nothing was
    /// done, use [`recv_into`](Ob1::recv_into).
    #[inline(always)]
    pub fn recv_exact(
        &mut self,
        comm: CommId,
        into: RecvRegion,
        source: u32,
        tag: i32,
    ) -> Option<ReqId> {
        let (key, recv) = self.engine.post_exact(comm, source, tag)?;
        recv.lend(into);
        Some(ReqId::recv(key))
    }

    /// Sends as [`send_inline`](Ob1::send_inline) does; whether it is out. If not, nothing was done: [`send`](Ob1::send) tells why.
    #[inline(always)]
    pub fn send_direct(&mut self, comm: CommId, data: &[u8], dest: u32, tag: i32) -> bool {
        self.send_tiny(comm, data, dest, tag) || self.send_direct_longer(comm, data, dest, tag)
    }

    #[inline(never)]
    fn send_direct_longer(&mut self, comm: CommId, data: &[u8], dest: u32, tag: i32) -> bool {
        matches!(self.send_inline(comm, data, dest, tag), Ok(true))
    }
}
