//! How endpoints begin: dialling, the handshake of `wire.rs` from both sides, and what sockets tell later.
//!
//! A dialler proves the job secret before anything but a slot in a bounded table is spent on it. When two
//! processes dial each other at the same time, the connection dialled by the lower peer index is kept. There is
//! no time limit: a live process may be computing for minutes before it looks at its sockets, and a dead one
//! shows at once.

use crate::endpoint::{Dial, Incoming, Outgoing, Phase, Sent, Session, Step, Stranger};
use crate::host::Place;
use crate::inbox::{BELL_COUNT, INBOX_LEN, Inbox};
use crate::manners::Manners;
use crate::parking::wake_ring;
use crate::ring::{Fencing, Geometry, Reader, Writer};
use crate::segment;
use crate::shuttle::Shuttles;
use crate::socket::{self, Received};
use crate::transport::{Shm, token};
use crate::ways::{Choice, Experience};
use crate::wire::{Attach, Message, Reason, Role, Transcript};
use ironweave_btl::copy::can_demote;
use ironweave_btl::secret::random;
use ironweave_btl::{Cause, Fault, Peer, Residue, Sink};
use rustix::event::epoll;
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Diallers that may be in mid-handshake at a time.
const STRANGERS: usize = 1024;
/// Diallers taken in by one look at the sockets.
const ACCEPTED_AT_ONCE: usize = 64;
/// How long to wait before dialling again.
const RETRY: Duration = Duration::from_millis(1);

impl Shm {
    /// Starts to dial.
    pub(crate) fn dial(&mut self, peer: Peer, place: Place) {
        let step = self.first_step(peer, &place, Instant::now());
        self.dialling.push(peer);
        self.endpoint(peer).phase = Phase::Connecting(Dial { place, step });
    }

    fn first_step(&mut self, peer: Peer, place: &Place, now: Instant) -> Step {
        let step = match self.greet(peer, place) {
            Ok(step) => return step,
            Err(Errno::AGAIN) => Step::Waiting { at: now + RETRY },
            Err(Errno::CONNREFUSED | Errno::CONNRESET | Errno::PIPE | Errno::SRCH) => {
                Step::Failed(Fault::rail(peer, Cause::ConnectionRefused))
            }
            Err(Errno::PERM) => Step::Failed(Fault::rail(peer, Cause::Authentication)),
            Err(Errno::MFILE | Errno::NFILE) => {
                Step::Failed(Fault::rail(peer, Cause::Exhausted("file descriptors")))
            }
            Err(errno) => Step::Failed(Fault::rail(
                peer,
                Cause::Os { call: "connect", errno: errno.raw_os_error() },
            )),
        };
        self.urgent = true;
        self.timed.push(peer);
        step
    }

    fn greet(&mut self, peer: Peer, place: &Place) -> Result<Step, Errno> {
        let socket = socket::dial(place.name())?;
        let Some((pid, process)) = socket::identify(&socket)? else { return Err(Errno::PERM) };
        let nonce = random()?;
        socket::send(&socket, &Message::Hello { from: self.me, to: peer, nonce }, &[])?;
        self.watch(&socket, token::PEER | u64::from(peer.0))?;
        self.watch(&process, token::PEER | u64::from(peer.0))?;
        Ok(Step::Greeted { socket, process, pid, nonce })
    }

    fn watch(&self, fd: &OwnedFd, token: u64) -> Result<(), Errno> {
        epoll::add(&self.events, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
    }

    /// Stops watching; a forked child may still hold a copy, so closing is not enough.
    pub(crate) fn forget(&self, fd: &OwnedFd) {
        let _ = epoll::delete(&self.events, fd); // not watched any more: fine
    }

    /// Looks at nothing more that comes from a session, or becomes of its process.
    pub(crate) fn unwatch(&self, session: &Session) {
        self.forget(&session.socket);
        self.forget(&session.process);
    }

    /// Gives back what a session took.
    pub(crate) fn release(&mut self, session: &Session) {
        self.unwatch(session);
        self.bells[session.bell as usize] = None;
    }

    /// Takes diallers in. When the table is full the oldest has to go: a member of the job dials again, and a
    /// stranger that says nothing cannot keep others out.
    pub(crate) fn accept(&mut self) {
        for _ in 0..ACCEPTED_AT_ONCE {
            let socket = match socket::accept(&self.listener) {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                Err(errno) => {
                    tracing::warn!(%errno, "cannot accept a dialler");
                    return;
                }
            };
            if self.strangers.len() == STRANGERS {
                let oldest = self.strangers.iter().next().map(|(key, _)| key);
                if let Some(stranger) = oldest.map(|key| self.strangers.remove(key)) {
                    self.forget(&stranger.socket);
                    self.counters.rejected.add(1);
                }
            }
            let refused = match socket::identify(&socket) {
                Ok(Some((pid, process))) => {
                    let key = self.strangers.vacant_key();
                    match self.watch(&socket, token::STRANGER | key as u64) {
                        Ok(()) => {
                            let stranger = Stranger { socket, process, pid, transcript: None };
                            self.strangers.insert(stranger);
                            self.urgent = true;
                            continue;
                        }
                        Err(_) => "no room to watch it",
                    }
                }
                Ok(None) => "it runs as another user",
                Err(_) => "it is gone already",
            };
            tracing::warn!(refused, "turned a dialler away");
            self.counters.rejected.add(1);
        }
        // The kernel keeps the others until the next look.
        self.urgent = true;
    }

    /// Something came from a dialler that is not a peer yet.
    pub(crate) fn hear_stranger<S: Sink>(&mut self, key: usize, sink: &mut S) -> usize {
        let Some(stranger) = self.strangers.get_mut(key) else { return 0 };
        let refusal = match (socket::receive(&stranger.socket), stranger.transcript) {
            (Received::Nothing, _) => return 0,
            (Received::End, _) => None,
            (Received::Message(Message::Hello { from, to, nonce }, _), None) => {
                if to != self.me || from == self.me {
                    Some(Reason::Excluded)
                } else if let Ok(listener) = random() {
                    let transcript = Transcript { from, to, dialler: nonce, listener };
                    stranger.transcript = Some(transcript);
                    let answer = Message::Challenge {
                        nonce: transcript.listener,
                        proof: self.key.prove(Role::Listener, &transcript),
                    };
                    match socket::send(&stranger.socket, &answer, &[]) {
                        Ok(()) => return 0,
                        Err(_) => None,
                    }
                } else {
                    Some(Reason::Exhausted)
                }
            }
            (Received::Message(Message::Offer { proof, attach }, fds), Some(transcript)) => {
                if self.key.verify(Role::Dialler, &transcript, &proof) {
                    let stranger = self.strangers.remove(key);
                    self.forget(&stranger.socket);
                    return self.welcome(transcript.from, stranger, attach, &fds, sink);
                }
                Some(Reason::Authentication)
            }
            _ => Some(Reason::Malformed),
        };
        let stranger = self.strangers.remove(key);
        self.forget(&stranger.socket);
        if let Some(reason) = refusal {
            tracing::warn!(pid = stranger.pid.as_raw_pid(), ?reason, "turned a dialler away");
            self.counters.rejected.add(1);
            let _ = socket::send(&stranger.socket, &Message::Refuse { reason }, &[]); // it may be gone
        }
        0
    }

    /// A dialler has proved to be `peer`.
    fn welcome<S: Sink>(
        &mut self,
        peer: Peer,
        stranger: Stranger,
        attach: Attach,
        fds: &[OwnedFd],
        sink: &mut S,
    ) -> usize {
        let lower = self.me < peer;
        let departed = self.departed;
        let endpoint = self.endpoint(peer);
        let reason = match &endpoint.phase {
            _ if departed => Some(Reason::Departed),
            _ if endpoint.excluded => Some(Reason::Excluded),
            // Not yet noticed that the last connection is over.
            Phase::Up(_) | Phase::Failing { .. } | Phase::Lending { .. } => Some(Reason::Busy),
            Phase::Connecting(Dial {
                step: Step::Greeted { .. } | Step::Offered { .. }, ..
            }) if lower => Some(Reason::Busy),
            Phase::Connecting(_) | Phase::Closed => None,
        };
        let refuse = |reason| {
            let _ = socket::send(&stranger.socket, &Message::Refuse { reason }, &[]); // it may be gone
            0
        };
        if let Some(reason) = reason {
            return refuse(reason);
        }
        let (writer, file, bell) = match self.make_ring(peer) {
            Ok(made) => made,
            Err(cause) => {
                tracing::warn!(%peer, %cause, "no ring for a peer");
                return refuse(Reason::Exhausted);
            }
        };
        let answer = Message::Accept { attach: self.attach(bell) };
        let session = Session::new(stranger.socket, stranger.process, stranger.pid, bell);
        let ready = self.map(&attach, fds).and_then(|parts| {
            let os = |call| move |errno: Errno| Cause::Os { call, errno: errno.raw_os_error() };
            let token = token::PEER | u64::from(peer.0);
            self.watch(&session.socket, token).map_err(os("epoll_ctl"))?;
            self.watch(&session.process, token).map_err(os("epoll_ctl"))?;
            let files = [file.as_fd(), self.inbox_file.as_fd()];
            socket::send(&session.socket, &answer, &files).map_err(os("sendmsg"))?;
            Ok(parts)
        });
        match ready {
            Ok((reader, outbox)) => {
                self.abandon_dial(peer);
                self.establish(peer, session, writer, reader, outbox, attach, sink)
            }
            Err(cause) => {
                tracing::warn!(%peer, %cause, "turned a peer away");
                self.counters.rejected.add(1);
                let reason = Message::Refuse { reason: Reason::Malformed };
                let _ = socket::send(&session.socket, &reason, &[]); // it may be gone
                self.release(&session);
                0
            }
        }
    }

    /// Drops our own dialling in favour of the peer's.
    fn abandon_dial(&mut self, peer: Peer) {
        match std::mem::take(&mut self.endpoint(peer).phase) {
            Phase::Connecting(Dial { step: Step::Greeted { socket, process, .. }, .. }) => {
                self.forget(&socket);
                self.forget(&process);
            }
            Phase::Connecting(Dial { step: Step::Offered { session, .. }, .. }) => {
                self.release(&session);
            }
            _ => {}
        }
    }

    /// Both directions are there.
    #[allow(clippy::too_many_arguments)] // the parts of an endpoint, each once
    fn establish<S: Sink>(
        &mut self,
        peer: Peer,
        session: Session,
        mut writer: Writer,
        reader: Reader,
        outbox: Inbox,
        attach: Attach,
        sink: &mut S,
    ) -> usize {
        writer.map_indices();
        if attach.barrier && self.reachable {
            writer.set_fencing(Fencing::Reader);
        }
        let shuttles = Shuttles::new(writer.dock(), reader.dock());
        let (helper, mut asker) = (writer.helper(), reader.asker());
        if self.crowded {
            // Who helps may lose its core in the middle of it, and would be waited for.
            asker.never();
        }
        self.endpoint(peer).phase = Phase::Up(session);
        self.tx[peer.index()] = Some(Outgoing {
            writer,
            outbox,
            bell: attach.bell,
            helper,
            choice: Choice::new(),
            last_round: 0,
            sent: Sent::Nothing,
        });
        let mut incoming = Box::new(Incoming {
            reader,
            asker,
            shuttles,
            manners: Manners::new(can_demote()),
            idle: 0,
            hot: false,
        });
        wake_ring(&mut self.hot, peer, &mut incoming);
        self.rx[peer.index()] = Some(incoming);
        tracing::debug!(%peer, "up");
        sink.up(peer);
        1
    }

    /// Our ring to `peer`, the descriptor to pass on, and the peer's bell in our inbox.
    fn make_ring(&mut self, peer: Peer) -> Result<(Writer, OwnedFd, u32), Cause> {
        let bell = match self.bells.iter().position(Option::is_none) {
            Some(bell) => bell,
            None if self.bells.len() < BELL_COUNT => {
                self.bells.push(None);
                self.bells.len() - 1
            }
            None => return Err(Cause::Exhausted("bells")),
        };
        let (shared, file) = segment::create("ironweave-ring", self.geometry.total())?;
        self.bells[bell] = Some(peer);
        let writer = Writer::new(shared, self.geometry, Fencing::Both, self.stores);
        Ok((writer, file, bell as u32))
    }

    fn attach(&self, bell: u32) -> Attach {
        Attach {
            ring: self.geometry.ring() as u64,
            bulk: self.geometry.bulk() as u64,
            bell,
            barrier: self.barrier,
            reachable: self.reachable,
        }
    }

    /// The peer's ring and inbox, checked and mapped.
    fn map(&self, attach: &Attach, fds: &[OwnedFd]) -> Result<(Reader, Inbox), Cause> {
        let [ring, inbox] = fds else {
            return Err(Cause::Malformed("not two descriptors"));
        };
        let geometry = Geometry::new(attach.ring, attach.bulk)
            .ok_or(Cause::Malformed("sizes of a ring that cannot be"))?;
        if attach.bell as usize >= BELL_COUNT {
            return Err(Cause::Malformed("a bell that cannot be"));
        }
        let ring = segment::open(ring, geometry.total())?;
        let inbox = segment::open(inbox, INBOX_LEN)?;
        let reader = Reader::new(ring, geometry, Experience::new(self.ring_ps));
        reader.touch();
        Ok((reader, Inbox::new(inbox)))
    }

    /// Something came from a peer, or its process ended.
    pub(crate) fn hear_peer<S: Sink>(&mut self, peer: Peer, now: Instant, sink: &mut S) -> usize {
        let mut reports = 0;
        loop {
            let Some(endpoint) = self.endpoints.get(peer.index()) else { return reports };
            reports += match &endpoint.phase {
                Phase::Closed | Phase::Lending { .. } => return reports,
                Phase::Connecting(dial) => {
                    let (Step::Greeted { socket, .. }
                    | Step::Offered { session: Session { socket, .. }, .. }) = &dial.step
                    else {
                        return reports;
                    };
                    match socket::receive(socket) {
                        Received::Nothing => return reports,
                        received => self.hear_listener(peer, received, now, sink),
                    }
                }
                Phase::Up(session) => match socket::receive(&session.socket) {
                    Received::Message(Message::Wake, _) => 0,
                    Received::Message(Message::Goodbye, _) => {
                        self.end(peer, None, Residue::Deliver, None, sink)
                    }
                    Received::Message(Message::Sever, _) => {
                        let fault = Fault::rail(peer, Cause::Disconnected);
                        self.end(peer, Some(fault), Residue::Deliver, None, sink)
                    }
                    Received::Message(..) | Received::Malformed => {
                        self.counters.rejected.add(1);
                        let fault = Fault::rail(peer, Cause::Malformed("message on the socket"));
                        self.end(peer, Some(fault), Residue::Deliver, Some(Message::Sever), sink)
                    }
                    Received::End if !socket::is_gone(&session.process) => {
                        self.suspect(peer, now);
                        return reports;
                    }
                    Received::Nothing if !socket::is_gone(&session.process) => return reports,
                    Received::End | Received::Nothing => self.end_of_process(peer, sink),
                },
                Phase::Failing { session, .. } => {
                    if !socket::is_gone(&session.process) {
                        return reports;
                    }
                    self.end_of_process(peer, sink)
                }
            };
        }
    }

    fn end_of_process<S: Sink>(&mut self, peer: Peer, sink: &mut S) -> usize {
        let fault = Fault::peer(peer, Cause::ProcessGone);
        self.end(peer, Some(fault), Residue::Deliver, None, sink)
    }

    /// The listener that we dialled answers.
    fn hear_listener<S: Sink>(
        &mut self,
        peer: Peer,
        received: Received,
        now: Instant,
        sink: &mut S,
    ) -> usize {
        let Phase::Connecting(Dial { place, step }) =
            std::mem::take(&mut self.endpoint(peer).phase)
        else {
            unreachable!("only a dialler hears a listener");
        };
        let failed = |cause| Step::Failed(Fault::rail(peer, cause));
        let next = match (step, received) {
            (
                Step::Greeted { socket, process, pid, nonce },
                Received::Message(Message::Challenge { nonce: listener, proof }, _),
            ) => {
                let transcript = Transcript { from: self.me, to: peer, dialler: nonce, listener };
                if self.key.verify(Role::Listener, &transcript, &proof) {
                    match self.offer(peer, &transcript, socket, process, pid) {
                        Ok(step) => step,
                        Err(cause) => failed(cause),
                    }
                } else {
                    self.forget(&socket);
                    self.forget(&process);
                    self.counters.rejected.add(1);
                    failed(Cause::Authentication)
                }
            }
            (
                Step::Offered { session, writer },
                Received::Message(Message::Accept { attach }, fds),
            ) => match self.map(&attach, &fds) {
                Ok((reader, outbox)) => {
                    return self.establish(peer, session, *writer, reader, outbox, attach, sink);
                }
                Err(cause) => {
                    self.counters.rejected.add(1);
                    self.release(&session);
                    failed(cause)
                }
            },
            (step, received) => {
                let mut gone = false;
                match &step {
                    Step::Greeted { socket, process, .. } => {
                        self.forget(socket);
                        self.forget(process);
                    }
                    Step::Offered { session, .. } => {
                        // It proved the secret: the end of its process is believed.
                        gone = socket::is_gone(&session.process);
                        self.release(session);
                    }
                    Step::Waiting { .. } | Step::Failed(_) => {}
                }
                match received {
                    Received::Message(Message::Refuse { reason }, _) => match reason {
                        Reason::Busy => Step::Waiting { at: now + RETRY },
                        Reason::Departed => {
                            self.endpoint(peer).phase =
                                Phase::Connecting(Dial { place, step: Step::Waiting { at: now } });
                            return self.end(peer, None, Residue::Discard, None, sink);
                        }
                        Reason::Authentication => failed(Cause::Authentication),
                        Reason::Excluded => failed(Cause::ConnectionRefused),
                        Reason::Exhausted => failed(Cause::Exhausted("room at the peer")),
                        Reason::Malformed => {
                            failed(Cause::Malformed("our handshake, says the peer"))
                        }
                    },
                    Received::End if gone => Step::Failed(Fault::peer(peer, Cause::ProcessGone)),
                    // Dial again: a dead process refuses, a live one had its reason.
                    Received::End => Step::Waiting { at: now + RETRY },
                    _ => {
                        self.counters.rejected.add(1);
                        failed(Cause::Malformed("answer to our handshake"))
                    }
                }
            }
        };
        if matches!(next, Step::Waiting { .. } | Step::Failed(_)) {
            self.timed.push(peer);
            self.urgent |= matches!(next, Step::Failed(_));
        }
        self.endpoint(peer).phase = Phase::Connecting(Dial { place, step: next });
        0
    }

    /// Answers the challenge with our proof and our ring.
    fn offer(
        &mut self,
        peer: Peer,
        transcript: &Transcript,
        socket: OwnedFd,
        process: OwnedFd,
        pid: rustix::process::Pid,
    ) -> Result<Step, Cause> {
        let (writer, file, bell) = self.make_ring(peer)?;
        let session = Session::new(socket, process, pid, bell);
        let proof = self.key.prove(Role::Dialler, transcript);
        let message = Message::Offer { proof, attach: self.attach(bell) };
        let files = [file.as_fd(), self.inbox_file.as_fd()];
        if let Err(errno) = socket::send(&session.socket, &message, &files) {
            self.release(&session);
            return Err(match errno {
                Errno::PIPE | Errno::CONNRESET => Cause::ConnectionRefused,
                errno => Cause::Os { call: "sendmsg", errno: errno.raw_os_error() },
            });
        }
        Ok(Step::Offered { session, writer: Box::new(writer) })
    }

    /// Moves an endpoint on that waits for time.
    pub(crate) fn tick<S: Sink>(&mut self, peer: Peer, now: Instant, sink: &mut S) -> usize {
        let endpoint = self.endpoint(peer);
        match &mut endpoint.phase {
            Phase::Connecting(Dial { place, step }) => match step {
                Step::Waiting { at } if *at <= now => {
                    let place = *place;
                    self.counters.retried.add(1);
                    let step = self.first_step(peer, &place, now);
                    self.endpoint(peer).phase = Phase::Connecting(Dial { place, step });
                    0
                }
                Step::Waiting { .. } => {
                    self.timed.push(peer);
                    0
                }
                Step::Failed(fault) => {
                    let fault = fault.clone();
                    self.end(peer, Some(fault), Residue::Discard, None, sink)
                }
                Step::Greeted { .. } | Step::Offered { .. } => 0,
            },
            Phase::Failing { session, until } => {
                if socket::is_gone(&session.process) {
                    self.end_of_process(peer, sink)
                } else if *until <= now {
                    let fault = Fault::rail(peer, Cause::Disconnected);
                    self.end(peer, Some(fault), Residue::Deliver, None, sink)
                } else {
                    self.timed.push(peer);
                    0
                }
            }
            Phase::Lending { .. } => self.take_memory_back(peer, now, sink),
            Phase::Closed | Phase::Up(_) => 0,
        }
    }
}
