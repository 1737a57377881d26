//! A bound on what a process keeps of messages that nothing is posted for.
//!
//! Eager messages that come before their receives are kept here, and their sender is free: nothing else would stop a sender
//! that runs ahead before this process's memory is gone. So a receiver counts what it keeps of each peer, and of all. Beyond
//! its limits it tells the peer that it is *full*: from then on that one announces each message (RNDV without data, or RGET)
//! and keeps the data, and the request, itself until a receive has matched. When enough was taken the peer is told so.
//!
//! The bound: the limit, plus what was on its way when the word went out, plus a node for each send that its sender still
//! holds open. A process's messages to itself are not counted: it would wait for itself. Nothing here is needed for
//! progress: who never hears the word only goes on as before.

use super::engine::Engine;
use super::link::{Link, LinkHeader};
use super::unexpected::{Body, Unexpected};
use ironweave_btl::Peer;

/// One peer's part, in both directions.
#[derive(Default, Debug)]
pub(super) struct Room {
    /// Bytes that are kept of its unexpected messages.
    kept: usize,
    /// It was told that we are full.
    full: bool,
    /// Words told so far.
    told: u32,
    /// It is full: messages to it are announced.
    pub announce: bool,
    /// The last of its words that was heard.
    heard: u32,
}

impl Unexpected {
    /// Bytes that are kept because of it.
    fn cost(&self) -> usize {
        let payload = match &self.body {
            Body::Whole(_) | Body::Stream(_) => self.length as usize,
            Body::Rndv { held, .. } => held.as_slice().len(),
            Body::Rget { .. } => 0,
        };
        size_of::<Unexpected>() + payload
    }
}

impl Engine {
    /// A message is kept from now on.
    pub fn charge(&mut self, message: u32) {
        let (peer, cost) = (self.messages[message].peer, self.messages[message].cost());
        if peer == self.config.me {
            return;
        }
        self.kept += cost;
        let (all, limits) = (self.kept, (self.config.unexpected_bytes, self.config.unexpected_all));
        let room = &mut self.peers.state(peer).room;
        room.kept += cost;
        if !room.full && (room.kept > limits.0 || all > limits.1) {
            self.tell_room(peer, true);
        }
    }

    /// A message is about to go.
    #[inline]
    pub fn discharge(&mut self, message: u32) {
        let (peer, cost) = (self.messages[message].peer, self.messages[message].cost());
        if peer == self.config.me {
            return;
        }
        self.kept -= cost;
        let (all, limits) = (self.kept, (self.config.unexpected_bytes, self.config.unexpected_all));
        let room = &mut self.peers.state(peer).room;
        room.kept -= cost;
        let enough = room.kept <= limits.0 / 2 && all <= limits.1 / 2;
        if room.full && (enough || room.kept == 0) {
            self.tell_room(peer, false);
        }
    }

    #[cold]
    fn tell_room(&mut self, peer: Peer, full: bool) {
        let room = &mut self.peers.state(peer).room;
        room.full = full;
        room.told = room.told.wrapping_add(1);
        let word = Link::Room { count: room.told, full };
        self.stats.throttled += u64::from(full);
        self.control(peer, &LinkHeader::new(word), None);
    }

    /// The peer says whether it is full. An older word changes nothing.
    pub fn on_room(&mut self, from: Peer, count: u32, full: bool) {
        let room = &mut self.peers.state(from).room;
        if count.wrapping_sub(room.heard) as i32 <= 0 {
            self.stats.stale += 1;
            return;
        }
        (room.heard, room.announce) = (count, full);
        self.refresh(from);
    }

    /// Bytes kept of unexpected messages, but for those to oneself.
    pub const fn kept(&self) -> usize {
        self.kept
    }
}
