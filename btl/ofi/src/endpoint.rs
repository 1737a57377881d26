//! One peer's end: which life of the connection it is in, and what may be sent. Pure: no port, no clock of its own.
//!
//! A *life* begins when one side connects and ends on both sides for good; each side names its half by a token that the
//! other puts on every message. Messages of other lives find no endpoint and are dropped (law 4).

use crate::leads::{self, Led};
use crate::pieces::Piecewise;
use crate::wire::{UNIT, cost};
use ironweave_btl::EndpointState;
use ironweave_ffi::ofi::{FiAddr, Slot};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

/// How far the greeting is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Our HELLO is out.
    Dialing,
    /// Theirs was answered.
    Answering,
    /// Both tokens are proved.
    Up,
}

/// How a good-bye stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Farewell {
    /// Nobody said it.
    None,
    /// We did, and they have not answered.
    Said,
    /// They did, and frames that they sent before are still to come: so many in all.
    Heard { frames: u32 },
}

/// A frame that was taken while the provider had no room.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub slot: Slot,
    pub len: usize,
}

/// One life of the connection with a peer.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub phase: Phase,
    /// Our token: on every message to us.
    pub token: u64,
    /// Theirs; 0 until it is known.
    pub theirs: u64,
    /// The stamp of the greeting that began this life: of our HELLO, or of theirs.
    pub stamp: u64,
    pub to: FiAddr,
    /// The layer above knows of it: it asked for it, or was told that it is up.
    pub known: bool,
    /// Number of the next frame to send, and of the next to come.
    pub next_out: u32,
    pub next_in: u32,
    /// The same of messages of credits alone; of those to come, numbers that came before their turn.
    pub credits_out: u32,
    credits_in: u32,
    early_credits: BTreeSet<u32>,
    /// Units sent that the peer did not give back.
    pub unread: u32,
    /// Units read that we did not give back.
    owed: u32,
    /// Sends that the provider has.
    pub flying: u32,
    pub backlog: VecDeque<Waiting>,
    /// Frames that came before their turn, by number. A provider that keeps messages in order matches them in order; long
    /// ones may still be complete later than short ones after them.
    early: BTreeMap<u32, Vec<u8>>,
    /// What they cost, in units.
    early_cost: u32,
    /// A frame that has begun to arrive.
    pub begun: Option<Piecewise>,
    /// The next frame, whose rest comes over the lanes.
    pub led: Option<Led>,
    /// The last frame that we sent so, and of which we do not know whether it arrived.
    pub last_lead: Option<u32>,
    /// Frames that could have gone as one message over lanes, where there are none.
    lendable: u8,
    pub farewell: Farewell,
    /// Since when the provider takes nothing for this peer.
    pub stuck: Option<Instant>,
    pub since: Instant,
    /// When the HELLO was last sent.
    pub greeted: Instant,
}

impl Endpoint {
    pub(crate) fn new(phase: Phase, token: u64, stamp: u64, to: FiAddr, now: Instant) -> Self {
        Endpoint {
            phase,
            token,
            theirs: 0,
            stamp,
            to,
            known: false,
            next_out: 0,
            next_in: 0,
            credits_out: 0,
            credits_in: 0,
            early_credits: BTreeSet::new(),
            unread: 0,
            owed: 0,
            flying: 0,
            backlog: VecDeque::new(),
            early: BTreeMap::new(),
            early_cost: 0,
            begun: None,
            led: None,
            last_lead: None,
            lendable: 0,
            farewell: Farewell::None,
            stuck: None,
            since: now,
            greeted: now,
        }
    }

    pub(crate) fn state(&self) -> EndpointState {
        match (self.known, self.phase) {
            (false, _) => EndpointState::Closed,
            (true, Phase::Up) => EndpointState::Up,
            (true, Phase::Dialing | Phase::Answering) => EndpointState::Connecting,
        }
    }

    /// Whether a message of `len` bytes fits into the peer's `window` units.
    #[inline]
    pub(crate) fn has_room(&self, len: usize, window: u32) -> bool {
        self.has_room_for(cost(len), window)
    }

    /// Whether messages that cost so many units do.
    #[inline]
    pub(crate) fn has_room_for(&self, units: u32, window: u32) -> bool {
        self.backlog.is_empty() && self.unread + units <= window
    }

    /// Counts a frame of `len` bytes as sent; its number.
    #[inline]
    pub(crate) fn count_out(&mut self, len: usize) -> u32 {
        self.unread += cost(len);
        let number = self.next_out;
        self.next_out = number.wrapping_add(1);
        number
    }

    /// The peer has read `units` more. `false` when it gives back what it was never sent.
    #[inline]
    pub(crate) fn give_back(&mut self, units: u16) -> bool {
        match self.unread.checked_sub(units.into()) {
            Some(left) => {
                self.unread = left;
                true
            }
            None => false,
        }
    }

    /// Counts a frame of `len` bytes as read; `true` when so much is owed that credits should go out by themselves.
    #[inline]
    pub(crate) fn count_in(&mut self, len: usize, window: u32) -> bool {
        let before = self.owed;
        self.next_in = self.next_in.wrapping_add(1);
        self.owed = before + cost(len);
        let due = window / 8 * 3;
        before < due && self.owed >= due
    }

    /// Whether nothing but the next frame is awaited: none came early, none is half here, and there is no good-bye that waits for it.
    #[inline]
    pub(crate) fn expects_frames(&self) -> bool {
        let whole = self.early.is_empty() && self.begun.is_none() && self.led.is_none();
        self.phase == Phase::Up && self.theirs != 0 && whole && self.farewell == Farewell::None
    }

    /// Whether a frame of that number did not come before.
    #[inline]
    pub(crate) fn is_new_frame(&self, number: u32) -> bool {
        let is_next = number == self.next_in && self.led.is_none();
        is_next || (ahead(self.next_in, number) && !self.early.contains_key(&number))
    }

    /// Whether the rest of a frame is to come over the lanes.
    pub(crate) fn awaits_rest(&self) -> bool {
        self.led.is_some() || self.early.values().any(|message| leads::is_lead(message))
    }

    /// A frame could have gone over lanes, as one message; whether there were so many that lanes are worth it.
    pub(crate) fn wants_lane(&mut self) -> bool {
        self.lendable = self.lendable.saturating_add(1);
        self.lendable >= leads::WORTH
    }

    /// The lanes are closed, and `next` is the frame that the peer awaits; whether a frame that we sent over them is lost.
    pub(crate) fn has_lost_lead(&mut self, next: u32) -> bool {
        self.last_lead.take().is_some_and(|last| last == next || ahead(next, last))
    }

    /// Whether credits of that number did not come before; notes that they did now.
    #[inline]
    pub(crate) fn is_new_credit(&mut self, number: u32) -> bool {
        if number != self.credits_in {
            // Each gives back a quarter of the window, so there are never many on their way.
            let few = self.early_credits.len() < 64;
            return few && ahead(self.credits_in, number) && self.early_credits.insert(number);
        }
        self.credits_in = number.wrapping_add(1);
        while !self.early_credits.is_empty() && self.early_credits.remove(&self.credits_in) {
            self.credits_in = self.credits_in.wrapping_add(1);
        }
        true
    }

    /// Keeps a frame until its turn comes; the error says how the peer broke the rules.
    pub(crate) fn stash(
        &mut self,
        number: u32,
        message: &[u8],
        window: u32,
    ) -> Result<(), &'static str> {
        debug_assert!(self.is_new_frame(number), "frame {number} twice");
        let cost = cost(message.len());
        if self.early_cost + cost > window {
            return Err("more frames than there was room for");
        }
        self.early_cost += cost;
        self.early.insert(number, message.to_vec());
        Ok(())
    }

    /// Whether the next frame came early, and asks its owner where it shall go.
    #[inline]
    pub(crate) fn asks_next(&self, eager: usize) -> bool {
        let next = self.early.get(&self.next_in).filter(|_| self.led.is_none());
        next.is_some_and(|message| leads::asks(message, eager))
    }

    /// The next frame, if it came early.
    #[inline]
    pub(crate) fn take_stashed(&mut self) -> Option<Vec<u8>> {
        if self.early.is_empty() || self.led.is_some() {
            return None;
        }
        let message = self.early.remove(&self.next_in)?;
        self.early_cost -= cost(message.len());
        Some(message)
    }

    /// Credits to send along.
    #[inline]
    pub(crate) fn take_owed(&mut self) -> u16 {
        let units = self.owed.min(u32::from(u16::MAX));
        self.owed -= units;
        units as u16
    }

    /// Credits that could not be sent after all.
    #[inline]
    pub(crate) fn owe(&mut self, units: u16) {
        self.owed += u32::from(units);
    }
}

/// Whether `number` is still to come where `next` is the next; numbers wrap.
#[inline]
fn ahead(next: u32, number: u32) -> bool {
    (1..=u32::MAX / 2).contains(&number.wrapping_sub(next))
}

/// A window of `bytes` in units.
pub(crate) fn window_units(bytes: usize) -> u32 {
    (bytes / UNIT).min(1 << 24) as u32
}

/// The index in a token.
#[inline]
pub(crate) fn index_of(token: u64) -> usize {
    (token & 0xff_ffff) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint() -> Endpoint {
        Endpoint::new(Phase::Up, 1, 1, 0, Instant::now())
    }

    #[test]
    fn room_is_what_the_peer_has_read() {
        let mut ep = endpoint();
        let window = window_units(64 << 10);
        let mut sent = 0;
        while ep.has_room(4096, window) {
            assert_eq!(ep.count_out(4096), sent);
            sent += 1;
        }
        assert_eq!(sent, 1024 / cost(4096));
        assert!(ep.give_back(cost(4096) as u16));
        assert!(ep.has_room(4096, window));
        assert!(!ep.give_back(u16::MAX), "more than was sent");
    }

    #[test]
    fn early_frames_wait_for_their_turn() {
        let mut ep = endpoint();
        let window = window_units(64 << 10);
        assert_eq!(ep.stash(2, b"two", window), Ok(()));
        assert_eq!(ep.stash(1, b"one", window), Ok(()));
        assert!(!ep.is_new_frame(2), "twice");
        assert!(!ep.is_new_frame(u32::MAX), "of the past");
        assert!(ep.is_new_frame(0) && ep.is_new_frame(3));
        assert!(ep.stash(3, &[0; 64 << 10], window).is_err(), "too much");
        assert_eq!(ep.take_stashed(), None);
        ep.count_in(3, window);
        assert_eq!(ep.take_stashed().as_deref(), Some(&b"one"[..]));
        ep.count_in(3, window);
        assert_eq!(ep.take_stashed().as_deref(), Some(&b"two"[..]));
        assert_eq!((ep.take_stashed(), ep.early_cost), (None, 0));
    }

    #[test]
    fn what_went_over_lanes_is_lost_from_the_frame_that_is_awaited_on() {
        let mut ep = endpoint();
        assert!(!ep.has_lost_lead(0), "nothing went");
        for (last, next, lost) in [(5, 5, true), (5, 4, true), (5, 6, false), (u32::MAX, 0, false)]
        {
            ep.last_lead = Some(last);
            assert_eq!(ep.has_lost_lead(next), lost, "{last} of {next}");
            assert!(!ep.has_lost_lead(last), "it is told once");
        }
    }

    #[test]
    fn credits_count_once_in_any_order() {
        let mut ep = endpoint();
        let counted: Vec<bool> =
            [1, 0, 0, 1, 2, 5, 5, 3, 4, 4, 6].map(|number| ep.is_new_credit(number)).to_vec();
        let right = [true, true, false, false, true, true, false, true, true, false, true];
        assert_eq!(counted, right);
        assert!(ep.early_credits.is_empty() && ep.credits_in == 7);
        let many = (0..1000).filter(|n| ep.is_new_credit(100 + 2 * n)).count();
        assert_eq!(many, 64, "a peer cannot make us remember more");
    }

    #[test]
    fn credits_are_asked_for_once_a_quarter() {
        let mut ep = endpoint();
        let window = 100;
        assert!(!ep.count_in(0, window));
        assert!((0..10).any(|_| ep.count_in(0, window)));
        assert!(!ep.count_in(0, window), "only when the line is crossed");
        assert_eq!(ep.take_owed() % 4, 0);
        assert_eq!(ep.take_owed(), 0);
    }
}
