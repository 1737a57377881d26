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
//!
//! The same word says whether long messages of the peer find their receives *posted*. Such a message lands where it belongs, and to ask
//! for it first only takes time; one that comes too early is copied twice, through memory that is not in any cache, and takes two to
//! three times as long as one that was asked for (`Caps::posted_limit`). So the first ones are announced, and the receiver counts those
//! that found their receives: after [`posted_run`](super::Config::posted_run) in a row their sender need not ask any longer. One that comes too early ends that, and the
//! next run has to be twice as long, up to [`RUN_MAX`]; but one among [`MANY`] is forgiven, and where so many were in time before it ended, it was worth it,
//! and the next run is as short as the first.

use super::RailId;
use super::engine::Engine;
use super::link::{Link, LinkHeader};
use super::unexpected::{Body, Unexpected};
use ironweave_btl::Peer;

/// The longest run that is asked for.
const RUN_MAX: u16 = 1024;
/// After so many long messages that came unasked and in time, one that comes too early is an accident.
const MANY: u16 = 32;

/// One peer's part, in both directions.
#[derive(Default, Debug)]
pub(super) struct Room {
    /// Bytes that are kept of its unexpected messages.
    kept: usize,
    /// It was told that we are full.
    full: bool,
    /// It was told that its long messages find their receives posted.
    posted: bool,
    /// Long messages in a row that did, and how many are to.
    run: u16,
    least: u16,
    /// Those that came unasked, and in time: since one came too early, and since the peer need not ask.
    timely: u16,
    worth: u16,
    /// Words told so far.
    told: u32,
    /// It is full: messages to it are announced.
    pub announce: bool,
    /// Our long messages find their receives posted there.
    pub waits: bool,
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
            self.tell_full(peer);
        }
    }

    /// A frame is kept before its turn, or before its communicator is there. That has a bound that breaks the peer: it is told in time.
    pub fn charge_early(&mut self, peer: Peer) {
        let state = self.peers.state(peer);
        if !state.room.full && state.early_bytes > self.config.early_bytes / 4 {
            self.tell_full(peer);
        }
    }

    #[cold]
    fn tell_full(&mut self, peer: Peer) {
        self.peers.state(peer).room.full = true;
        self.stats.throttled += 1;
        self.tell_room(peer);
    }

    /// A message is about to go.
    #[inline]
    pub fn discharge(&mut self, message: u32) {
        let (peer, cost) = (self.messages[message].peer, self.messages[message].cost());
        if peer == self.config.me {
            return;
        }
        self.kept -= cost;
        let room = &mut self.peers.state(peer).room;
        room.kept -= cost;
        if room.full {
            self.tell_empty(peer);
        }
    }

    /// Tells the peer that it need not announce any longer, if enough was taken.
    pub fn tell_empty(&mut self, peer: Peer) {
        let (all, limits) = (self.kept, (self.config.unexpected_bytes, self.config.unexpected_all));
        let state = self.peers.state(peer);
        let room = &mut state.room;
        let enough = room.kept <= limits.0 / 2 && all <= limits.1 / 2;
        let is_empty =
            state.early_bytes <= self.config.early_bytes / 8 && (enough || room.kept == 0);
        if room.full && is_empty {
            room.full = false;
            self.tell_room(peer);
        }
    }

    /// A message of `length` bytes was announced, and its receive was `posted`, or not.
    pub fn on_announced(&mut self, from: Peer, rail: RailId, length: u64, posted: bool) {
        let caps = &self.caps[usize::from(rail.0)];
        if length <= caps.eager_limit as u64 || length > caps.posted_limit as u64 {
            return;
        }
        let room = &mut self.peers.state(from).room;
        room.run = if posted { room.run.saturating_add(1) } else { 0 };
        if !room.posted && room.run >= room.least.max(self.config.posted_run) {
            (room.posted, room.worth) = (true, 0);
            self.stats.unasked += 1;
            self.tell_room(from);
        }
    }

    /// A message of `length` bytes came unasked, and lands where it belongs.
    #[inline]
    pub fn on_timely(&mut self, from: Peer, rail: RailId, length: usize) {
        if length > self.caps[usize::from(rail.0)].eager_limit {
            let room = &mut self.peers.state(from).room;
            room.timely = room.timely.saturating_add(1);
            room.worth = room.worth.saturating_add(1);
        }
    }

    /// A message of `length` bytes came unasked, and could not land where it belongs.
    pub fn on_too_early(&mut self, from: Peer, rail: RailId, length: usize) {
        if length <= self.caps[usize::from(rail.0)].eager_limit {
            return;
        }
        let room = &mut self.peers.state(from).room;
        if std::mem::take(&mut room.timely) >= MANY {
            return;
        }
        room.run = 0;
        if room.posted {
            room.posted = false;
            room.least = match room.worth {
                MANY.. => 0,
                _ => room.least.max(self.config.posted_run).saturating_mul(2).min(RUN_MAX),
            };
            self.tell_room(from);
        }
    }

    #[cold]
    fn tell_room(&mut self, peer: Peer) {
        let room = &mut self.peers.state(peer).room;
        room.told = room.told.wrapping_add(1);
        let word = Link::Room { count: room.told, full: room.full, waits: room.posted };
        self.control(peer, &LinkHeader::new(word), None);
    }

    /// The peer says whether it is full, and whether it waits for long messages. An older word changes nothing.
    pub fn on_room(&mut self, from: Peer, count: u32, full: bool, waits: bool) {
        let room = &mut self.peers.state(from).room;
        if count.wrapping_sub(room.heard) as i32 <= 0 {
            self.stats.stale += 1;
            return;
        }
        (room.heard, room.announce, room.waits) = (count, full, waits);
        self.refresh(from);
    }

    /// Bytes kept of unexpected messages, but for those to oneself.
    pub const fn kept(&self) -> usize {
        self.kept
    }
}
