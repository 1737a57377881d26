//! What `progress` does: report, write, read, accept, connect, end.

use crate::dial::Dialed;
use crate::endpoint::{Link, Slot, Stream};
use crate::errno::{Call, fault};
use crate::events::Subject;
use crate::guests::{Outcome, say};
use crate::inbound::{Delivery, End, Pumped};
use crate::outbound::Flushed;
use crate::socket;
use crate::tcp::{CHUNK, PEERS_MAX, Tcp};
use crate::wire::{Hello, VERDICT_MAGIC, VERDICT_REFUSED, VERDICT_WELCOME, VERDICT_YIELD, Verdict};
use ironweave_btl::{Cause, EndpointState, Fault, Peer, Residue, Sink};
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags, accept_with, getpeername, shutdown};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Bytes read from one connection in one call of `progress`, about: others have their turn too.
const BUDGET: usize = 1 << 20;
/// Refused writes in a row before epoll is asked to tell.
const STALLS: u32 = 64;
/// Polls of the hot connections between two looks at all others.
const ROUND: u32 = 16;
/// Connections accepted in one go.
const ACCEPTS: usize = 64;
/// Pause in accepting after descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// One line about strangers in this time.
const WARN_EVERY: Duration = Duration::from_secs(1);
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// How an endpoint ends.
enum Ending {
    /// It broke.
    Broken(Fault),
    /// By good-bye or by us: operations come back for this reason.
    Quiet(Cause),
}

impl Tcp {
    /// The whole of `progress`, when there may be something to do. Answers the number of reports.
    pub(crate) fn drive<S: Sink>(&mut self, sink: &mut S) -> usize {
        let mut active = self.flush_all();
        let mut reports = self.report_done(sink) + self.report_trouble(sink);
        self.round = self.round.wrapping_add(1);
        if !self.hot.is_empty() {
            reports += self.read_hot(sink);
        }
        if self.hot.is_empty()
            || self.round.is_multiple_of(ROUND)
            || std::mem::take(&mut self.slept)
        {
            reports += self.poll(sink);
        }
        self.busy = !(self.writers.is_empty() && self.troubled.is_empty() && self.done.is_empty());
        active |= reports > 0;
        if active {
            self.pace.lively()
        } else {
            self.pace.fruitless()
        }
        reports
    }

    fn report_done<S: Sink>(&mut self, sink: &mut S) -> usize {
        let mut reports = 0;
        while let Some(descriptor) = self.done.pop_front() {
            sink.completed(descriptor, Ok(()));
            reports += 1;
        }
        reports
    }

    /// Ends what failed in a send or connect. What came in before is delivered first: it may be a good-bye.
    fn report_trouble<S: Sink>(&mut self, sink: &mut S) -> usize {
        let mut reports = 0;
        while let Some(peer) = self.troubled.pop() {
            match &mut self.slots[peer.index()].link {
                Link::Up(stream) => {
                    let Some(doom) = stream.doom.clone() else { continue }; // another connection by now
                    let drained = self.pump(peer, usize::MAX, sink);
                    reports += drained.reports;
                    reports += match drained.end {
                        Some(End::Bye) => self.end(peer, Ending::Quiet(Cause::Finalized), sink),
                        _ => self.end(peer, Ending::Broken(doom), sink),
                    };
                }
                Link::Failed(fault) => {
                    let fault = fault.clone();
                    reports += self.end(peer, Ending::Broken(fault), sink);
                }
                _ => {} // it was invalidated meanwhile
            }
        }
        reports
    }

    /// Writes what waits. Answers whether anything moved.
    fn flush_all(&mut self) -> bool {
        let mut moved = false;
        let mut at = 0;
        while let Some(&peer) = self.writers.get(at) {
            moved |= self.flush(peer);
            // `flush` took it off the list (the last one is in its place), or it still waits.
            if self.writers.get(at) == Some(&peer) {
                at += 1;
            }
        }
        moved
    }

    /// Writes what waits for `peer`. Answers whether anything moved.
    pub(crate) fn flush(&mut self, peer: Peer) -> bool {
        let Some(Slot { link: Link::Up(stream), .. }) = self.slots.get_mut(peer.index()) else {
            self.unlist(peer);
            return false;
        };
        let before = (stream.outbound.frames(), stream.outbound.queued_bytes());
        let flushed = match stream.doom {
            None => stream.outbound.flush(stream.socket.as_fd(), CHUNK, &mut self.done),
            Some(_) => Ok(Flushed::All),
        };
        let after = (stream.outbound.frames(), stream.outbound.queued_bytes());
        self.unflushed -= before.0 - after.0;
        self.busy |= !self.done.is_empty();
        match flushed {
            Ok(Flushed::All) => {
                if stream.departed {
                    // The peer reads the good-bye, then the end of the stream.
                    let _ = shutdown(&stream.socket, Shutdown::Write);
                }
                self.unwatch(peer);
                self.unlist(peer);
            }
            Ok(Flushed::Blocked) if before != after => stream.stalls = 0,
            Ok(Flushed::Blocked) => {
                stream.stalls += 1;
                if stream.stalls >= STALLS && self.watch(peer) {
                    self.unlist(peer);
                }
            }
            Err(errno) => {
                stream.doom = Some(fault(peer, Call::Send, errno));
                self.unlist(peer);
                self.trouble(peer);
            }
        }
        before != after
    }

    fn unlist(&mut self, peer: Peer) {
        if let Some(Slot { link: Link::Up(stream), .. }) = self.slots.get_mut(peer.index())
            && !std::mem::replace(&mut stream.listed, false)
        {
            return;
        }
        if let Some(at) = self.writers.iter().position(|&writer| writer == peer) {
            self.writers.swap_remove(at);
        }
    }

    /// Asks epoll to tell when `peer` can be written to. Answers whether it will.
    fn watch(&mut self, peer: Peer) -> bool {
        let slot = &mut self.slots[peer.index()];
        let Link::Up(stream) = &mut slot.link else { return false };
        stream.stalls = 0;
        if !stream.watched {
            let subject = Subject::Endpoint { index: peer.0, generation: slot.generation };
            let flags = EventFlags::IN | EventFlags::OUT;
            stream.watched =
                epoll::modify(&self.epoll, &stream.socket, subject.data(), flags).is_ok();
        }
        stream.watched
    }

    fn unwatch(&mut self, peer: Peer) {
        let slot = &mut self.slots[peer.index()];
        if let Link::Up(stream) = &mut slot.link
            && stream.watched
        {
            let subject = Subject::Endpoint { index: peer.0, generation: slot.generation };
            stream.watched =
                epoll::modify(&self.epoll, &stream.socket, subject.data(), EventFlags::IN).is_err();
        }
    }

    /// Gets everything ready for a sleep on the epoll descriptor. Answers whether there is nothing to do before.
    pub(crate) fn watch_all(&mut self) -> bool {
        self.pace.lively();
        self.slept = true; // what wakes the owner may be any of them
        self.flush_all();
        for at in 0..self.writers.len() {
            self.watch(self.writers[at]);
        }
        if !self.done.is_empty() || !self.troubled.is_empty() {
            return false;
        }
        let connect = self.deadlines.front().map(|&(deadline, ..)| deadline);
        let guest = self.guests.next_deadline(self.config.connect_timeout);
        let next = [connect, guest, self.accept_after].into_iter().flatten().min();
        let wait = next.map_or(Duration::ZERO, |next| {
            next.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
        });
        let value = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        let once = rustix::time::Itimerspec { it_interval: NOW, it_value: value };
        let flags = rustix::time::TimerfdTimerFlags::empty();
        if rustix::time::timerfd_settime(&self.timer, flags, &once).is_err() {
            return false; // then the owner goes on polling
        }
        let mut event = [Event { flags: EventFlags::empty(), data: Subject::Timer.data() }];
        matches!(epoll::wait(&self.epoll, &mut event, Some(&NOW)), Ok(0))
    }

    fn read_hot<S: Sink>(&mut self, sink: &mut S) -> usize {
        let mut reports = 0;
        let hot = self.hot.clone();
        for peer in hot {
            reports += self.read(peer, sink);
        }
        reports
    }

    /// Reads what came from `peer`, and ends the endpoint if that was the last.
    fn read<S: Sink>(&mut self, peer: Peer, sink: &mut S) -> usize {
        let pumped = self.pump(peer, BUDGET, sink);
        let mut reports = pumped.reports;
        if pumped.bytes > 0 {
            self.pace.lively();
        }
        if let Some(end) = pumped.end {
            reports += self.end(peer, ending(peer, end), sink);
        }
        reports
    }

    fn pump<S: Sink>(&mut self, peer: Peer, budget: usize, sink: &mut S) -> Pumped {
        match self.slots.get_mut(peer.index()).map(|slot| &mut slot.link) {
            Some(Link::Up(stream)) => {
                let counters = &self.counters;
                let mut to = Delivery { from: peer, sink, counters };
                let (socket, staging) = (stream.socket.as_fd(), &mut self.staging);
                stream.inbound.pump(socket, staging, budget, &mut to)
            }
            _ => Pumped { reports: 0, bytes: 0, end: None },
        }
    }

    /// Ends the endpoint: fence, report, purge, `closed`. Answers the number of reports.
    fn end<S: Sink>(&mut self, peer: Peer, ending: Ending, sink: &mut S) -> usize {
        let mut reports = self.report_done(sink); // completions come before `closed`
        let link = std::mem::replace(&mut self.slots[peer.index()].link, Link::Ending);
        let was_open = !matches!(link, Link::Closed);
        let cause = match ending {
            Ending::Broken(fault) => {
                let cause = fault.cause.clone();
                self.counters.faults.add(1);
                sink.fault(fault);
                reports += 1;
                cause
            }
            Ending::Quiet(cause) => cause,
        };
        if let Link::Up(stream) = link {
            let Stream { socket, mut inbound, mut outbound, .. } = *stream;
            self.close(socket);
            self.hot.retain(|hot| *hot != peer);
            self.writers.retain(|writer| *writer != peer);
            self.unflushed -= outbound.frames();
            let lost = Fault::operation(peer, cause);
            for descriptor in outbound.purge() {
                sink.completed(descriptor, Err(lost.clone()));
                self.counters.purged.add(1);
                reports += 1;
            }
            let counters = &*self.counters;
            let purged = inbound.purge(&lost, &mut Delivery { from: peer, sink, counters });
            counters.purged.add(purged as u64);
            reports += purged;
        } else if let Link::Dialing(dial) = link {
            self.close(dial.socket);
        }
        self.slots[peer.index()].link = Link::Closed;
        if was_open {
            sink.closed(peer);
            reports += 1;
        }
        reports
    }

    /// Shuts down before closing: a child process may hold a copy of the descriptor.
    fn close(&self, socket: OwnedFd) {
        let _ = epoll::delete(&self.epoll, &socket);
        let _ = shutdown(&socket, Shutdown::Both);
    }

    pub(crate) fn invalidated<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        if residue == Residue::Deliver
            && let Some(Slot { link: Link::Up(stream), .. }) = self.slots.get(peer.index())
        {
            // What is here now, not what a lively peer goes on sending.
            let here = rustix::io::ioctl_fionread(&stream.socket).unwrap_or(0);
            self.pump(peer, usize::try_from(here).unwrap_or(usize::MAX), sink);
        }
        self.end(peer, Ending::Quiet(Cause::Invalidated), sink);
    }

    /// Looks at everything.
    fn poll<S: Sink>(&mut self, sink: &mut S) -> usize {
        let none = Event { flags: EventFlags::empty(), data: Subject::Timer.data() };
        let mut events = [none; 64];
        let count = epoll::wait(&self.epoll, &mut events, Some(&NOW)).unwrap_or(0);
        let mut reports = 0;
        for event in &events[..count] {
            let (data, flags) = (event.data, event.flags);
            reports += match Subject::of(data) {
                Subject::Listener(number) => self.accept(number as usize),
                Subject::Guest { index, generation } => self.hear(index, generation, sink),
                Subject::Endpoint { index, generation } => {
                    self.endpoint_ready(Peer(index), generation, flags, sink)
                }
                Subject::Timer => {
                    let _ = rustix::io::read(&self.timer, &mut [0; 8]);
                    0
                }
            };
        }
        if !self.deadlines.is_empty() || self.guests.len() > 0 || self.accept_after.is_some() {
            reports += self.check_time(sink);
        }
        reports
    }

    fn endpoint_ready<S: Sink>(
        &mut self,
        peer: Peer,
        generation: u32,
        flags: EventFlags,
        sink: &mut S,
    ) -> usize {
        match self.slots.get(peer.index()) {
            Some(slot) if slot.generation == generation => match slot.link {
                Link::Dialing(_) => self.dial_ready(peer, sink),
                Link::Up(_) => {
                    if flags.contains(EventFlags::OUT) {
                        self.flush(peer);
                    }
                    let reports = self.read(peer, sink);
                    if reports > 0 && self.state_of(peer) == EndpointState::Up {
                        self.warm(peer);
                    }
                    reports
                }
                _ => 0,
            },
            _ => 0,
        }
    }

    fn state_of(&self, peer: Peer) -> EndpointState {
        self.slots.get(peer.index()).map_or(EndpointState::Closed, Slot::state)
    }

    /// Our connection to `peer` goes on.
    fn dial_ready<S: Sink>(&mut self, peer: Peer, sink: &mut S) -> usize {
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
    fn accept(&mut self, number: usize) -> usize {
        let now = Instant::now();
        if self.accept_after.is_some_and(|after| now < after) {
            return 0;
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
        0
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
    fn hear<S: Sink>(&mut self, index: u32, generation: u32, sink: &mut S) -> usize {
        match self.guests.ready(index as usize, generation, self.me, &self.key) {
            Outcome::Pending | Outcome::Left => 0,
            Outcome::Stranger(socket, what) => {
                self.reject(&socket, what);
                0
            }
            Outcome::Proved(socket, hello) => self.settle(socket, &hello, sink),
        }
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
                let link = std::mem::take(&mut slot.link);
                if let Link::Dialing(dial) = link {
                    self.close(dial.socket);
                }
            }
            Link::Closed | Link::Awaiting | Link::Ending => {}
        }
        let generation = self.next_generation(peer);
        let subject = Subject::Endpoint { index: peer.0, generation };
        let ready = socket::set_patience(&socket, &self.config)
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
    fn check_time<S: Sink>(&mut self, sink: &mut S) -> usize {
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
}

fn ending(peer: Peer, end: End) -> Ending {
    match end {
        End::Bye => Ending::Quiet(Cause::Finalized),
        End::Eof => Ending::Broken(Fault::rail(peer, Cause::Disconnected)),
        End::Errno(errno) => Ending::Broken(fault(peer, Call::Receive, errno)),
        End::Malformed(what) => Ending::Broken(Fault::rail(peer, Cause::Malformed(what))),
    }
}
