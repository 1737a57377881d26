//! Failover between rails of living processes, and rails that come back (seed 002; law 6).
//!
//! Frames that start or answer messages are sent again by the journal. What is left is data that was on the rail as
//! fragments or remote accesses: such a message begins again as a whole, by the seed's dance (§8), over whatever rails
//! there are. Its number of restarts, the *round*, is in every fragment, so that late ones of an earlier round are dropped.
//!
//! ```text
//!  sender    parts lost; outstanding completions 0 ──▶ RNDVRESTARTNOTIFY     receiver
//!                                                     outstanding completions 0; forgets what it had
//!            sends all of it again            ◀── RNDVRESTARTACK             (or RNDVRESTARTNACK: it has everything)
//!            parts lost at the receiver       ◀── RECVERRNOTIFY              then as above
//! ```
//!
//! A sender keeps its request until the receiver has confirmed the whole message (a FIN), wherever a rail could be
//! lost; so the receiver can always be given what it misses. Reads of the receiver (RGET) need no dance: it asks for
//! fragments instead.
//!
//! The other end of a half-broken link is told over a working rail (§9), with the number of the life it is about, so that a rail
//! that came back meanwhile is left alone. A rail that cannot be lost while both processes live is not covered by any
//! of this: if it breaks after all, the peer is cut off.

use super::engine::{Engine, Port};
use super::link::{Link, LinkHeader};
use super::peer::{Life, RailState};
use super::recv::RecvState;
use super::send::{Confirm, SendState};
use super::wire::{Asked, Dance, Grant, Nack, Restart, WireStatus, kinds};
use super::{Ob1, RailId};
use ironweave_btl::{Address, Btl, Cause, EndpointState, Fault, Peer, Residue};
use zerocopy::IntoBytes;

/// Restarts of one message, after which it is given up at both ends: something is wrong that no rail mends.
const RESTARTS_MAX: u16 = 64;

/// A name of a rail that all processes give it: a hash of what makes addresses reach each other.
pub(super) fn rail_id(address: &Address) -> u32 {
    let bytes = address.component.bytes().chain(address.rail.to_le_bytes());
    bytes.fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

impl Engine {
    /// A rail to a peer that may live is closed. What was on it begins again; frames are the journal's.
    pub fn forsake(&mut self, rail: RailId, peer: Peer, fault: &Fault) {
        let bit = 1 << (rail.0 & 63);
        let sends: Vec<u32> = self
            .sends
            .iter()
            .filter(|(_, s)| s.peer == peer && s.state != SendState::Complete && s.error.is_none())
            .map(|(slot, _)| slot)
            .collect();
        for slot in sends {
            let send = &mut self.sends[slot];
            if send.source.is_some_and(|(of, _)| of == rail) {
                self.deregister.extend(send.source.take());
            }
            let touched = std::mem::take(&mut send.lost) || send.rails_used & bit != 0;
            send.rails_used &= !bit;
            if touched && send.state == SendState::Flowing && send.receiver != 0 {
                self.restart(slot, fault);
            }
        }
        let recvs: Vec<u32> = self
            .recvs
            .iter()
            .filter(|(_, r)| r.peer == peer && r.state == RecvState::Matched && r.lost)
            .map(|(slot, _)| slot)
            .collect();
        for slot in recvs {
            self.recvs[slot].lost = false;
            self.tell_recv_error(slot);
        }
    }

    /// Parts of a message were lost on the way to its receiver.
    pub fn restart(&mut self, slot: u32, fault: &Fault) {
        let send = &mut self.sends[slot];
        if send.round >= RESTARTS_MAX {
            return self.abandon_send(slot, fault.clone());
        }
        send.state = SendState::Restarting;
        send.ranges.clear();
        send.writes.clear();
        self.stats.restarts += 1;
        self.notify(slot);
    }

    /// When no rail holds any part of it: asks the receiver to begin again.
    pub fn notify(&mut self, slot: u32) {
        let send = &mut self.sends[slot];
        if send.state != SendState::Restarting || send.held > 0 || send.error.is_some() {
            return;
        }
        send.state = SendState::Notified;
        let (peer, receiver, round) = (send.peer, send.receiver, send.round);
        let dance = Dance { sender: self.sends.key(slot).to_wire(), receiver, round };
        self.control(peer, &Restart::new(kinds::RNDVRESTARTNOTIFY, dance), None);
    }

    /// The sender has lost parts of a message.
    pub fn on_restart_notify(&mut self, from: Peer, dance: Dance) {
        let key = super::wire::key(dance.receiver);
        match self.recvs.get_mut(key) {
            Some(recv) if recv.peer == from && recv.sender == dance.sender => {
                if recv.round != dance.round {
                    self.stats.stale += 1;
                } else if recv.state == RecvState::Matched && recv.error.is_none() {
                    recv.restarting = true;
                    self.end_rdma(key.slot);
                    self.begin_again(key.slot);
                } else if recv.state == RecvState::Complete {
                    self.control(from, &Restart::new(kinds::RNDVRESTARTNACK, dance), None);
                }
                // Draining: its FIN, or NACK, is the answer.
            }
            _ => self.control(from, &Restart::new(kinds::RNDVRESTARTNACK, dance), None),
        }
    }

    /// When no rail holds any part of the buffer: forgets what came, and asks for everything.
    pub fn begin_again(&mut self, slot: u32) {
        let recv = &mut self.recvs[slot];
        if !recv.restarting || recv.held > 0 {
            return;
        }
        recv.restarting = false;
        recv.round += 1;
        (recv.claimed, recv.received, recv.lost, recv.asked) = (0, 0, false, true);
        recv.pieces.clear();
        recv.rdma = None;
        let (peer, want, round) = (recv.peer, recv.want, recv.round);
        let asked = Asked {
            sender: recv.sender,
            receiver: self.recvs.key(slot).to_wire(),
            offset: 0,
            length: want,
            want,
            round,
            rail: 0,
            unread: false,
        };
        self.control(peer, &Grant::new(kinds::RNDVRESTARTACK, asked), None);
    }

    /// Tells the sender that parts were lost here.
    pub fn tell_recv_error(&mut self, slot: u32) {
        let recv = &self.recvs[slot];
        let (peer, sender, round) = (recv.peer, recv.sender, recv.round);
        if sender == 0 {
            return; // an eager message, which is sent again by itself
        }
        let dance = Dance { sender, receiver: self.recvs.key(slot).to_wire(), round };
        self.control(peer, &Restart::new(kinds::RECVERRNOTIFY, dance), None);
    }

    /// The receiver has lost parts of a message.
    pub fn on_recv_error(&mut self, from: Peer, dance: Dance) {
        let key = super::wire::key(dance.sender);
        match self.sends.get(key) {
            Some(send) if send.peer != from => self.malformed(from, "an answer to another's send"),
            Some(send) if send.error.is_none() && send.state == SendState::Flowing => {
                if send.receiver == dance.receiver && send.round == dance.round {
                    self.restart(key.slot, &Fault::rail(from, Cause::Disconnected));
                } else {
                    self.stats.stale += 1;
                }
            }
            Some(send) if matches!(send.state, SendState::Restarting | SendState::Notified) => {}
            // It was complete here without anybody's confirmation: nothing can be sent again.
            _ => {
                let nack = Nack::to_receiver(dance.receiver, WireStatus::Lost);
                self.control(from, &nack, None);
            }
        }
    }

    /// The receiver is ready for all of it.
    pub fn on_restart_ack(&mut self, from: Peer, asked: Asked) {
        let key = super::wire::key(asked.sender);
        let Some(send) = self.sends.get_mut(key) else {
            self.stats.stale += 1;
            return;
        };
        let fits = send.receiver == asked.receiver
            && asked.round == send.round.wrapping_add(1)
            && asked.want <= send.length
            && (asked.offset, asked.length) == (0, asked.want);
        if send.peer != from || send.state != SendState::Notified || send.error.is_some() {
            self.stats.stale += 1;
            return;
        }
        if !fits {
            return self.malformed(from, "a restart that does not fit the message");
        }
        send.round = asked.round;
        (send.sent, send.want, send.rails_used) = (0, Some(asked.want), 0);
        send.state = SendState::Flowing;
        if asked.want > 0 {
            send.ranges.push(0..asked.want);
            if send.lossy {
                send.confirm = Confirm::Due;
            }
            self.flow(key.slot);
        }
        self.settle_send(key.slot);
    }

    /// The receiver misses nothing.
    pub fn on_restart_nack(&mut self, from: Peer, dance: Dance) {
        let key = super::wire::key(dance.sender);
        match self.sends.get_mut(key) {
            Some(send) if send.peer == from && send.state == SendState::Notified => {
                (send.confirm, send.want) = (Confirm::Done, Some(send.want.unwrap_or(send.length)));
                send.sent = send.length;
                self.settle_send(key.slot);
            }
            _ => self.stats.stale += 1,
        }
    }

    /// What the other side says of rails.
    pub fn on_link(&mut self, rail: RailId, from: Peer, link: Link) {
        match link {
            Link::Seen { ack } => self.on_seen(from, ack),
            Link::Ask => {
                self.peers.state(from).journal().tell = true;
                self.peers.wake(from);
            }
            Link::Room { count, full, waits } => self.on_room(from, count, full, waits),
            Link::Up { rail: theirs, life } => {
                let row = self.peers.state(from).rail_mut(rail);
                // One of an earlier life is late.
                if life > row.heard_life {
                    (row.theirs, row.their_life, row.heard_life) = (theirs, life, life);
                    if life <= row.lost_life && row.state == RailState::Up {
                        self.drop_later(rail, from); // the word of its end overtook it
                    }
                }
            }
            Link::Lost { id, mine, yours } => {
                let Some(at) = self.caps.iter().position(|caps| caps.id == id) else { return };
                let rail = RailId(at as u16);
                let row = self.peers.state(from).rail_mut(rail);
                row.lost_life = row.lost_life.max(mine);
                // Where neither has heard of the other's life, there was nothing but this one.
                let unheard = row.their_life == 0 && yours == 0;
                let known = row.their_life != 0 && row.their_life == mine;
                match row.state {
                    RailState::Up if known || unheard || row.life == yours => {
                        self.drop_later(rail, from);
                    }
                    // The word of the end is here before that of the beginning.
                    RailState::Connecting if unheard => row.doomed = true,
                    RailState::Closed if unheard && row.life == 0 => row.doomed = true,
                    _ => {}
                }
            }
        }
    }

    pub fn drop_later(&mut self, rail: RailId, peer: Peer) {
        let row = self.peers.state(peer).rail_mut(rail);
        row.fault.get_or_insert(Fault::rail(peer, Cause::Disconnected));
        self.dropping.push((peer, rail));
    }

    /// Tells the other side over a working rail that this one is lost.
    pub fn tell_lost(&mut self, rail: RailId, peer: Peer) {
        let Some(row) = self.peers.state(peer).rail(rail) else { return };
        let id = self.caps[usize::from(rail.0)].id;
        let lost = Link::Lost { id, mine: row.life, yours: row.their_life };
        self.control(peer, &LinkHeader::new(lost), None);
    }
}

impl<B: Btl> Ob1<B> {
    /// Whether a rail to some peer is lost that [`heal`](Ob1::heal) could bring back.
    #[inline]
    #[must_use]
    pub fn has_lost_rails(&self) -> bool {
        !self.engine.lost.is_empty()
    }

    /// Tries once to connect each lost rail again: to be called now and then while there are any. A rail that comes back
    /// carries messages again; a peer that was cut off is served again as if nothing had been.
    pub fn heal(&mut self) {
        for (peer, rail) in std::mem::take(&mut self.engine.lost) {
            let state = self.engine.peers.state(peer);
            let over = matches!(state.life, Life::Closing(_) | Life::Ended(_));
            let row = state.rail_mut(rail);
            if over || row.state != RailState::Closed {
                continue;
            }
            let Some(address) = row.address.clone() else { continue };
            let btl = &mut self.rails[usize::from(rail.0)];
            let connected = btl.connect(peer, &address);
            let up = btl.state(peer) == EndpointState::Up;
            match connected {
                Ok(()) => {
                    let row = self.engine.peers.state(peer).rail_mut(rail);
                    row.state = RailState::Connecting;
                    self.engine.refresh(peer);
                    if up {
                        self.engine.up(rail, peer);
                    }
                }
                Err(fault) => {
                    tracing::debug!(%peer, rail = rail.0, %fault, "cannot connect again");
                    self.engine.lost.push((peer, rail));
                }
            }
        }
        self.settle();
    }

    /// Whether no rail reaches this peer now, and nobody has judged it.
    #[must_use]
    pub fn is_cut_off(&self, peer: Peer) -> bool {
        self.engine.peers.get(peer).is_some_and(|state| state.life == Life::CutOff)
    }

    /// The owner does not trust a rail to a peer any more, although it has not told of a fault: it is closed here, the other
    /// side is told over another one, and what was on it goes over others.
    pub fn drop_rail(&mut self, peer: Peer, rail: RailId) {
        if let Some(row) = self.engine.peers.state(peer).rails.iter_mut().find(|r| r.rail == rail) {
            row.fault.get_or_insert(Fault::rail(peer, Cause::TimedOut));
            self.engine.dropping.push((peer, rail));
            self.settle();
        }
    }

    /// Closes rails that the other side, or the owner, holds for lost.
    pub(super) fn drop_rails(&mut self) {
        for (peer, rail) in std::mem::take(&mut self.engine.dropping) {
            let mut port = Port { engine: &mut self.engine, rail };
            self.rails[usize::from(rail.0)].invalidate(peer, Residue::Deliver, &mut port);
        }
    }

    /// Tells the other side which of its rails is which, once for each life of a rail.
    pub(super) fn introduce(&mut self, peer: Peer) {
        let state = self.engine.peers.state(peer);
        for row in state.rails.iter_mut().filter(|row| row.hello && row.state == RailState::Up) {
            let header = LinkHeader::new(Link::Up { rail: row.rail.0, life: row.life });
            let btl = &mut self.rails[usize::from(row.rail.0)];
            row.hello = btl.send_bcopy(peer, header.as_bytes(), 0, |_, _| {}).is_err();
        }
    }
}
