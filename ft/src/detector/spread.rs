//! Passing notices on, reliably over datagrams that may be lost: to each neighbour one notice is under way at a time and
//! sent again until it is acknowledged; what comes up meanwhile goes together into the next.

use super::message::{Digest, Message, NOTICE_MAX};
use super::{Effect, Nanos};
use std::collections::VecDeque;

/// How many of the latest failures are told again to a neighbour that takes a dead one's place: the dead one may have
/// acknowledged them without passing them on. What is older is found by comparing digests.
const RECENT: usize = 64;

#[derive(Debug)]
struct Link {
    to: u32,
    pending: Vec<u32>,
    /// Also ask for what the other side knows beyond us.
    sync: bool,
    flight: Option<Flight>,
}

#[derive(Debug)]
struct Flight {
    token: u32,
    failed: Vec<u32>,
    sync: bool,
    since: Nanos,
    again_at: Nanos,
    wait: Nanos,
}

/// The notices of one process that have not arrived everywhere they have to.
#[derive(Debug)]
pub struct Spread {
    links: Vec<Link>,
    recent: VecDeque<u32>,
    next_token: u32,
    /// The first and the longest wait for an acknowledgement.
    first: Nanos,
    longest: Nanos,
    /// After this a neighbour is passed over.
    patience: Nanos,
}

impl Spread {
    pub fn new(period: Nanos, patience: Nanos) -> Spread {
        Spread {
            links: Vec::new(),
            recent: VecDeque::new(),
            next_token: 1,
            first: (period / 8).max(1),
            longest: period,
            patience,
        }
    }

    pub fn token(&mut self) -> u32 {
        let token = self.next_token;
        self.next_token = self.next_token.wrapping_add(1);
        token
    }

    /// Notes a failure that others may have to hear from this process.
    pub fn remember(&mut self, process: u32) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(process);
    }

    /// Wants `to` to know that `failed` have failed, and with `sync` to know what it knows.
    pub fn offer(&mut self, to: u32, failed: impl IntoIterator<Item = u32>, sync: bool) {
        let at = self.links.iter().position(|link| link.to == to).unwrap_or_else(|| {
            self.links.push(Link { to, pending: Vec::new(), sync: false, flight: None });
            self.links.len() - 1
        });
        let link = &mut self.links[at];
        link.sync |= sync;
        for process in failed {
            let under_way = |flight: &Flight| flight.failed.contains(&process);
            if process != to
                && !link.pending.contains(&process)
                && !link.flight.as_ref().is_some_and(under_way)
            {
                link.pending.push(process);
            }
        }
    }

    /// `to` takes the place of a neighbour that failed.
    pub fn offer_recent(&mut self, to: u32) {
        let recent: Vec<u32> = self.recent.iter().copied().collect();
        self.offer(to, recent, false);
    }

    /// `from` knows of `failed` itself.
    pub fn heard(&mut self, from: u32, failed: &[u32]) {
        if let Some(link) = self.links.iter_mut().find(|link| link.to == from) {
            link.pending.retain(|process| !failed.contains(process));
        }
    }

    /// A notice has arrived.
    pub fn acknowledged(&mut self, from: u32, token: u32) {
        let link = self.links.iter_mut().find(|link| link.to == from);
        if let Some(link) = link
            && link.flight.as_ref().is_some_and(|flight| flight.token == token)
        {
            link.flight = None;
        }
    }

    /// Tells `process`, which is out of the ring, nothing any more.
    pub fn forget(&mut self, process: u32) {
        self.links.retain(|link| link.to != process);
    }

    /// Sends what can be sent, and again what was not acknowledged. Returns neighbours that never answer: whoever comes
    /// after them has to be told instead.
    pub fn drive(&mut self, now: Nanos, known: Digest, effects: &mut VecDeque<Effect>) -> Vec<u32> {
        let mut mute = Vec::new();
        for link in &mut self.links {
            if let Some(flight) = &mut link.flight {
                if now.saturating_sub(flight.since) >= self.patience {
                    mute.push(link.to);
                } else if now >= flight.again_at {
                    flight.wait = (flight.wait * 2).min(self.longest);
                    flight.again_at = now + flight.wait;
                    effects.push_back(flight.message(link.to, known));
                }
            } else if !link.pending.is_empty() || link.sync {
                let rest = link.pending.split_off(link.pending.len().min(NOTICE_MAX));
                let failed = std::mem::replace(&mut link.pending, rest);
                // Asked with the last piece: the answer is what is still missing then.
                let sync = link.sync && link.pending.is_empty();
                link.sync &= !sync;
                let token = self.next_token;
                self.next_token = self.next_token.wrapping_add(1);
                let (wait, again_at) = (self.first, now + self.first);
                let flight = Flight { token, failed, sync, since: now, again_at, wait };
                effects.push_back(flight.message(link.to, known));
                link.flight = Some(flight);
            }
        }
        self.links.retain(|link| {
            !mute.contains(&link.to)
                && (link.flight.is_some() || !link.pending.is_empty() || link.sync)
        });
        mute
    }

    /// Whether everything has arrived.
    pub fn is_idle(&self) -> bool {
        self.links.is_empty()
    }

    /// When [`drive`](Self::drive) has something to send again.
    pub fn deadline(&self) -> Option<Nanos> {
        let flights = self.links.iter().filter_map(|link| link.flight.as_ref());
        flights.map(|flight| flight.again_at).min()
    }
}

impl Flight {
    fn message(&self, to: u32, known: Digest) -> Effect {
        let (token, sync, failed) = (self.token, self.sync, self.failed.clone());
        Effect::Send { to, message: Message::Notice { token, sync, known, failed } }
    }
}
