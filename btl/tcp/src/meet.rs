//! How connections come to be: ours to peers, and those that others make to us.
//!
//! Whoever proved the secret is a peer; if both sides connected at once, both decide alike which connection stays.

use crate::dial::Dialed;
use crate::drive::Ending;
use crate::endpoint::{Link, Stream};
use crate::errno::{Call, fault};
use crate::events::Subject;
use crate::guests::{Outcome, say};
use crate::socket;
use crate::tcp::{PEERS_MAX, Tcp};
use crate::wire::{Hello, VERDICT_MAGIC, VERDICT_REFUSED, VERDICT_WELCOME, VERDICT_YIELD, Verdict};
use ironweave_btl::{Cause, Fault, Peer, Sink};
use rustix::event::epoll::{self, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, getpeername};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Connections accepted in one go.
const ACCEPTS: usize = 64;
/// Pause in accepting after descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// One line about strangers in this time.
const WARN_EVERY: Duration = Duration::from_secs(1);

impl Tcp {
    /// Our connection to `peer` goes on.
    pub(crate) fn dial_ready<S: Sink>(&mut self, peer: Peer, sink: &mut S) -> usize {
        let slot = &mut self.slots[peer.index()];
        let Link::Dialing(dial) = &mut slot.link else { return 0 };
        let generation = slot.generation;
        let dialed = match dial.ready() {
            Some(outcome) => outcome,
            None => dial.listen(&self.key),
        };
        let broken = |cause| Ending::Broken(Fault::rail(peer, cause));
        match dialed {
            Dialed::Pending => 0,
            Dialed::Greeted => {
                let subject = Subject::Endpoint { index: peer.0, generation };
                let data = subject.data();
                match epoll::modify(&self.epoll, &dial.socket, data, EventFlags::IN) {
                    Ok(()) => 0,
                    Err(errno) => {
                        self.end(peer, Ending::Broken(fault(peer, Call::Open, errno)), sink)
                    }
                }
            }
            Dialed::Welcome { superseded } => {
                let link = std::mem::replace(&mut slot.link, Link::Ending);
                let Link::Dialing(dial) = link else { return 0 };
                slot.link = Link::Up(Box::new(Stream::new(dial.socket, superseded)));
                sink.up(peer);
                1
            }
            Dialed::Yield => {
                let link = std::mem::replace(&mut slot.link, Link::Awaiting);
                if let Link::Dialing(dial) = link {
                    self.close(dial.socket);
                }
                0
            }
            Dialed::Refused => self.end(peer, broken(Cause::ConnectionRefused), sink),
            Dialed::Closed => self.end(peer, broken(Cause::Disconnected), sink),
            Dialed::Stranger => {
                self.counters.rejected.add(1);
                self.end(peer, broken(Cause::Authentication), sink)
            }
            Dialed::Failed(call, errno) => {
                self.end(peer, Ending::Broken(fault(peer, call, errno)), sink)
            }
        }
    }

    /// Takes new connections as guests.
    pub(crate) fn accept(&mut self, number: usize) {
        let now = Instant::now();
        if self.accept_after.is_some_and(|after| now < after) {
            return;
        }
        for _ in 0..ACCEPTS {
            let (room, dropped) = self.guests.make_room(now);
            if let Some(socket) = dropped {
                self.reject(&socket, "made room for a newer connection");
            }
            let Some(listener) = self.listeners.get(number).filter(|_| room) else { break };
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match accept_with(listener, flags) {
                Ok(socket) => {
                    let (key, generation) = self.guests.insert(socket, now);
                    let subject = Subject::Guest { index: key as u32, generation };
                    if let Some(socket) = self.guests.socket(key)
                        && let Err(errno) =
                            epoll::add(&self.epoll, socket, subject.data(), EventFlags::IN)
                    {
                        tracing::warn!(%errno, "a connection cannot be watched");
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    // The listener would be ready for ever: look away for a while.
                    tracing::warn!("no descriptor or memory for a new connection");
                    self.counters.retried.add(1);
                    self.accept_after = Some(now + ACCEPT_PAUSE);
                    self.watch_listeners(EventFlags::empty());
                    break;
                }
                Err(_) => {} // this one is gone already (accept(2) passes on errors of the connection)
            }
        }
    }

    fn watch_listeners(&self, flags: EventFlags) {
        for (number, listener) in self.listeners.iter().enumerate() {
            let data = Subject::Listener(number as u32).data();
            if let Err(errno) = epoll::modify(&self.epoll, listener, data, flags) {
                tracing::warn!(%errno, "the listener cannot be watched");
            }
        }
    }

    /// A guest says something.
    pub(crate) fn hear<S: Sink>(&mut self, index: u32, generation: u32, sink: &mut S) -> usize {
        match self.guests.ready(index as usize, generation, self.me, &self.key) {
            Outcome::Pending | Outcome::Left => 0,
            Outcome::Stranger(socket, what) => {
                self.reject(&socket, what);
                0
            }
            Outcome::Proved(socket, hello) => self.settle(socket, &hello, sink),
        }
    }

    /// A peer has connected and proved itself. Decides which connection stays:
    ///
    /// * both sides connect at once: that of the lower-numbered peer;
    /// * we are up already: the new one, if the peer began it after it knew of the old one; then it has lost that.
    fn settle<S: Sink>(&mut self, socket: OwnedFd, hello: &Hello, sink: &mut S) -> usize {
        let (peer, attempt) = (Peer(hello.from.get()), hello.attempt.get());
        if peer.0 >= PEERS_MAX {
            self.reject(&socket, "a peer number beyond the limit");
            return 0;
        }
        let (me, departed) = (self.me, self.departed);
        let slot = self.slot(peer);
        let superseded = slot.attempt;
        let verdict = match &slot.link {
            _ if slot.excluded || departed => VERDICT_REFUSED,
            Link::Dialing(_) if me < peer => VERDICT_YIELD,
            Link::Up(stream) if attempt <= stream.superseded => VERDICT_YIELD,
            _ => VERDICT_WELCOME,
        };
        let message = Verdict {
            magic: VERDICT_MAGIC,
            verdict,
            reserved: [0; 7],
            superseded: superseded.into(),
        };
        let mut reports = 0;
        if verdict != VERDICT_WELCOME {
            let _ = say(socket.as_fd(), message.as_bytes());
            return reports;
        }
        let slot = self.slot(peer);
        match &slot.link {
            Link::Up(_) | Link::Failed(_) => {
                let lost = Ending::Broken(Fault::rail(peer, Cause::Disconnected));
                reports += self.end(peer, lost, sink);
            }
            Link::Dialing(_) => {
                if let Link::Dialing(dial) = std::mem::take(&mut slot.link) {
                    self.close(dial.socket);
                }
            }
            Link::Closed | Link::Awaiting | Link::Ending => {}
        }
        let generation = self.next_generation(peer);
        let subject = Subject::Endpoint { index: peer.0, generation };
        let ready = socket::welcome(&socket, &self.config)
            .and_then(|()| epoll::modify(&self.epoll, &socket, subject.data(), EventFlags::IN))
            .and_then(|()| say(socket.as_fd(), message.as_bytes()));
        match ready {
            Ok(()) => {
                self.slot(peer).link = Link::Up(Box::new(Stream::new(socket, attempt)));
                sink.up(peer);
            }
            Err(errno) => {
                self.slot(peer).link = Link::Failed(fault(peer, Call::Receive, errno));
                self.trouble(peer);
            }
        }
        reports + 1
    }

    /// Ends what took too long.
    pub(crate) fn check_time<S: Sink>(&mut self, sink: &mut S) -> usize {
        let now = Instant::now();
        if self.accept_after.is_some_and(|after| after <= now) {
            self.accept_after = None;
            self.watch_listeners(EventFlags::IN);
        }
        while let Some(socket) = self.guests.expired(now, self.config.connect_timeout) {
            self.reject(&socket, "did not prove itself in time");
        }
        let mut reports = 0;
        while let Some(&(deadline, peer, generation)) = self.deadlines.front() {
            let slot = &self.slots[peer.index()];
            let waits = slot.generation == generation
                && matches!(slot.link, Link::Dialing(_) | Link::Awaiting);
            if waits && deadline > now {
                break;
            }
            self.deadlines.pop_front();
            if waits {
                let late = Ending::Broken(Fault::peer(peer, Cause::TimedOut));
                reports += self.end(peer, late, sink);
            }
        }
        reports
    }

    /// Counts a stranger, and tells about it now and then.
    fn reject(&mut self, socket: &OwnedFd, what: &'static str) {
        self.counters.rejected.add(1);
        let now = Instant::now();
        if self.warned.is_none_or(|last| now - last >= WARN_EVERY) {
            self.warned = Some(now);
            let from = getpeername(socket).ok().flatten();
            let from = from.and_then(|address| SocketAddr::try_from(address).ok());
            let total = self.counters.rejected.get();
            tracing::warn!(?from, total, "refused a connection: {what}");
        }
    }
}
