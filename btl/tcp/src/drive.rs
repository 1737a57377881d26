//! What `progress` does with connections that are up: report, write, read, end.

use crate::endpoint::{Link, Slot, Stream, Watch};
use crate::errno::{Call, fault};
use crate::events::Subject;
use crate::inbound::{Delivery, End, Pumped};
use crate::outbound::Flushed;
use crate::tcp::{CHUNK, Tcp};
use ironweave_btl::{Cause, EndpointState, Fault, Peer, Residue, Sink};
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{Shutdown, shutdown};

/// Bytes read from one connection in one call of `progress`, about: others have their turn too.
const BUDGET: usize = 1 << 20;
/// Refused writes in a row before epoll is asked to tell.
const STALLS: u32 = 64;
/// Polls of the hot connections between two looks at all others.
const ROUND: u32 = 16;
/// Reads in a row that brought something before a connection is taken out of epoll.
const STREAK: u32 = 64;
/// Does not wait.
pub(crate) const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// How an endpoint ends.
pub(crate) enum Ending {
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
    pub(crate) fn flush_all(&mut self) -> bool {
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
        self.flush_cut(peer, CHUNK)
    }

    /// As `flush`, with at most `first` bytes in the first call.
    pub(crate) fn flush_cut(&mut self, peer: Peer, first: usize) -> bool {
        let Some(Slot { link: Link::Up(stream), .. }) = self.slots.get_mut(peer.index()) else {
            self.unlist(peer);
            return false;
        };
        let before = (stream.outbound.frames(), stream.outbound.queued_bytes());
        let flushed = match stream.doom {
            None => stream.outbound.flush(stream.socket.as_fd(), first, CHUNK, &mut self.done),
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
                if stream.watch == Watch::ReadWrite {
                    self.watch(peer, Watch::Read);
                }
                self.unlist(peer);
            }
            Ok(Flushed::Blocked) if before != after => stream.stalls = 0,
            Ok(Flushed::Blocked) => {
                stream.stalls += 1;
                if stream.stalls >= STALLS {
                    stream.stalls = 0;
                    if self.watch(peer, Watch::ReadWrite) {
                        self.unlist(peer);
                    }
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
            if let Link::Up(stream) = &mut self.slots[peer.index()].link {
                stream.spoken_to = true;
            }
        }
        if let Some(end) = pumped.end {
            reports += self.end(peer, ending(peer, end), sink);
        } else if pumped.reports > 0
            && let Link::Up(stream) = &mut self.slots[peer.index()].link
            && stream.hot
            && stream.watch == Watch::Read
        {
            stream.streak += 1;
            if stream.streak >= STREAK {
                self.watch(peer, Watch::None);
            }
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
    pub(crate) fn end<S: Sink>(&mut self, peer: Peer, ending: Ending, sink: &mut S) -> usize {
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
    pub(crate) fn close(&self, socket: OwnedFd) {
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
                Subject::Listener(number) => {
                    self.accept(number as usize);
                    0
                }
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
}

fn ending(peer: Peer, end: End) -> Ending {
    match end {
        End::Bye => Ending::Quiet(Cause::Finalized),
        End::Eof => Ending::Broken(Fault::rail(peer, Cause::Disconnected)),
        End::Errno(errno) => Ending::Broken(fault(peer, Call::Receive, errno)),
        End::Malformed(what) => Ending::Broken(Fault::rail(peer, Cause::Malformed(what))),
    }
}
