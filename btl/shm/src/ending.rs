//! How an endpoint ends: fenced first, then emptied, then everything of it is given back and the end reported, once.

use crate::assist::Help;
use crate::endpoint::{Incoming, Outgoing, Phase, Session, Step};
use crate::record::Malformed;
use crate::socket;
use crate::transport::Shm;
use crate::warmth::Warmth;
use crate::wire::Message;
use ironweave_btl::{Cause, Counters, Fault, Peer, Residue, Sink};
use rustix::net::Shutdown;
use rustix::process::{Signal, pidfd_send_signal};
use std::time::{Duration, Instant};

/// How long a closed socket may wait for the proof that the process behind it is gone.
const VERDICT: Duration = Duration::from_millis(200);
/// How long who is excluded may keep memory that it was lent: what it has to do takes a hundredth of it.
const GRACE: Duration = Duration::from_millis(20);

/// What an ended endpoint leaves to be freed: rings that nobody writes or reads any more, and a socket. The system takes 0.1 to
/// 0.2 ms for that, for which whoever learns of a failure, and what else it has to do then, should not wait.
#[derive(Debug)]
pub(crate) struct Remains {
    session: Option<Session>,
    /// The socket is still open and watched: with the next look the peer, if it lives, is told this, and sees its end.
    untold: Option<Message>,
    _rings: (Option<Outgoing>, Option<Box<Incoming>>),
}

impl Remains {
    /// Nothing goes over the socket any more, and the peer, if it lives, sees that at once: it may have missed the notice.
    fn of(
        outgoing: Option<Outgoing>,
        incoming: Option<Box<Incoming>>,
        session: Option<Session>,
    ) -> Remains {
        if let Some(session) = &session {
            shut(session);
        }
        Remains { session, untold: None, _rings: (outgoing, incoming) }
    }
}

fn shut(session: &Session) {
    let _ = rustix::net::shutdown(&session.socket, Shutdown::Both); // the peer may be gone
}

impl Shm {
    /// The last that the peer is told, and the end of looking at what comes from it. A forked child may still hold a copy of the
    /// descriptors, so closing them is not enough.
    fn part(&self, session: &Session, notice: Option<Message>) {
        if let Some(notice) = notice {
            let _ = socket::send(&session.socket, &notice, &[]); // it may be gone
        }
        self.unwatch(session);
    }

    /// Tells who was not told yet, and frees what at most so many ended endpoints left.
    pub(crate) fn clear_away(&mut self, most: usize) {
        let mut remains = std::mem::take(&mut self.remains);
        for left in &mut remains {
            if let (Some(notice), Some(session)) = (left.untold.take(), &left.session) {
                self.part(session, Some(notice));
                shut(session);
            }
        }
        remains.drain(..remains.len().min(most));
        self.remains = remains;
    }

    /// Ends the endpoint: fences it, delivers or drops what arrived, reports `fault`, purges, reports `closed`.
    /// `notice` tells the peer, if it still listens. Returns the number of reports.
    pub(crate) fn end<S: Sink>(
        &mut self,
        peer: Peer,
        fault: Option<Fault>,
        residue: Residue,
        notice: Option<Message>,
        sink: &mut S,
    ) -> usize {
        let phase = std::mem::take(&mut self.endpoint(peer).phase);
        if matches!(phase, Phase::Closed | Phase::Lending { .. }) {
            self.endpoint(peer).phase = phase;
            return 0;
        }
        // Fence: without the writer nothing reaches the ring any more.
        let outgoing = self.tx[peer.index()].take();
        let mut reports = 1;
        let mut unfinished = None;
        if let Some(mut incoming) = self.rx[peer.index()].take() {
            self.hot.retain(|&hot| hot != peer.0);
            if residue == Residue::Deliver {
                reports += drain(&mut incoming, peer, sink, &self.counters, &mut self.warmth);
            }
            unfinished = Some(incoming);
        }
        let session = match phase {
            Phase::Up(session) | Phase::Failing { session, .. } => Some(session),
            Phase::Connecting(dial) => {
                if let Step::Greeted { socket, process, .. } = &dial.step {
                    self.forget(socket);
                    self.forget(process);
                }
                match dial.step {
                    Step::Offered { session, .. } => Some(session),
                    _ => None,
                }
            }
            Phase::Closed | Phase::Lending { .. } => None,
        };
        // Who is excluded is mostly dead, and its process may be just about to take this core: what it had part in ends first.
        let mut untold = notice.filter(|_| self.endpoint(peer).excluded);
        if let Some(session) = &session {
            self.bells[session.bell as usize] = None;
            if untold.is_none() {
                self.part(session, notice);
            }
        }
        let cause = fault.as_ref().map_or(Cause::Invalidated, |fault| fault.cause.clone());
        if let Some(fault) = fault {
            tracing::debug!(%fault, "endpoint ends");
            self.counters.faults.add(1);
            reports += 1;
            sink.fault(fault);
        }
        if let Some(incoming) = &mut unfinished {
            incoming.reader.abandon(peer, &cause, sink);
        }
        let is_gone = |session: &Session| socket::is_gone(&session.process);
        let mut lent = None;
        for mut get in self.gets.purge(peer) {
            self.counters.purged.add(1);
            let asker = unfinished.as_mut().map(|incoming| &mut incoming.asker);
            if asker.is_some_and(|asker| get.stop(asker))
                && session.as_ref().is_some_and(|session| !is_gone(session))
            {
                lent = Some(get.descriptor);
                continue;
            }
            reports += 1;
            sink.rma_completed(get.descriptor, Err(Fault::operation(peer, cause.clone())));
        }
        reports += self.report_stillborn(sink);
        let (session, incoming) = match (lent, session, unfinished) {
            (Some(descriptor), Some(session), Some(incoming)) => {
                if let Some(notice) = untold.take() {
                    self.part(&session, Some(notice));
                }
                shut(&session);
                self.remains.push(Remains::of(outgoing, None, None));
                let since = Instant::now();
                self.endpoint(peer).phase =
                    Phase::Lending { session, incoming, descriptor, cause, since };
                self.timed.push(peer);
                return reports - 1;
            }
            (_, session, incoming) => (session, incoming),
        };
        self.remains.push(match untold {
            // With the next look that is due, not at once: who learns of a failure has better things to do.
            Some(_) => Remains { session, untold, _rings: (outgoing, incoming) },
            None => Remains::of(outgoing, incoming, session),
        });
        sink.closed(peer);
        reports
    }

    /// Closes an endpoint that has ended when the peer is done with the memory that it was lent. Whoever is excluded dies for it, if it has
    /// not come back soon: it may be stopped in the middle, and never tell.
    pub(crate) fn take_memory_back<S: Sink>(
        &mut self,
        peer: Peer,
        now: Instant,
        sink: &mut S,
    ) -> usize {
        let endpoint = self.endpoint(peer);
        let Phase::Lending { session, incoming, since, .. } = &mut endpoint.phase else { return 0 };
        if incoming.asker.outcome() == Help::UnderWay && !socket::is_gone(&session.process) {
            if endpoint.excluded && now.duration_since(*since) > GRACE {
                // It ends by itself, or cannot be reached any more: the next look tells.
                let _ = pidfd_send_signal(&session.process, Signal::KILL);
            }
            self.timed.push(peer);
            return 0;
        }
        if let Phase::Lending { session, incoming, descriptor, cause, .. } =
            std::mem::take(&mut endpoint.phase)
        {
            sink.rma_completed(descriptor, Err(Fault::operation(peer, cause)));
            self.remains.push(Remains::of(None, Some(incoming), Some(session)));
        }
        sink.closed(peer);
        2
    }

    /// Waits for the verdict on a peer whose socket ended without a good-bye.
    pub(crate) fn suspect(&mut self, peer: Peer, now: Instant) {
        self.tx[peer.index()] = None;
        let endpoint = self.endpoint(peer);
        match std::mem::take(&mut endpoint.phase) {
            Phase::Up(session) => {
                endpoint.phase = Phase::Failing { session, until: now + VERDICT };
                // The end of the socket stays readable: listen to the process only.
                self.timed.push(peer);
                if let Phase::Failing { session, .. } = &self.endpoints[peer.index()].phase {
                    self.forget(&session.socket);
                }
            }
            other => endpoint.phase = other,
        }
    }
}

/// Takes everything whole out of a ring that is about to be closed. Bounded by what it can hold.
fn drain<S: Sink>(
    incoming: &mut Incoming,
    peer: Peer,
    sink: &mut S,
    counters: &Counters,
    warmth: &mut Warmth,
) -> usize {
    for taken in 0..incoming.reader.capacity() {
        let Incoming { reader, shuttles, .. } = &mut *incoming;
        match reader.poll(peer, sink, counters, warmth, shuttles) {
            Ok(true) => {}
            Ok(false) => return taken,
            Err(Malformed(what)) => {
                tracing::warn!(%peer, what, "malformed record in the residue of a ring");
                counters.rejected.add(1);
                return taken;
            }
        }
    }
    incoming.reader.capacity()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send};
    use rustix::process::{PidfdFlags, getpid, pidfd_open};

    #[test]
    fn a_peer_sees_the_end_before_the_socket_is_closed() {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (socket, peer) =
            rustix::net::socketpair(family, kind, SocketFlags::NONBLOCK, None).expect("a pair");
        send(&socket, b"notice", SendFlags::empty()).expect("room");
        let pid = getpid();
        let process = pidfd_open(pid, PidfdFlags::empty()).expect("this process");
        let remains = Remains::of(None, None, Some(Session::new(socket, process, pid, 0)));
        let mut buffer = [0; 16];
        let mut heard = || recv(&peer, &mut buffer, RecvFlags::empty()).map(|(len, _)| len);
        assert_eq!(heard(), Ok(6), "what was sent before");
        assert_eq!(heard(), Ok(0), "the end");
        drop(remains);
    }
}
