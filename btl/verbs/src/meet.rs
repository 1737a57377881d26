//! How connections come to be: greetings over the datagram queue pair, said again until they are answered.
//!
//! If both sides call at once, the lower rank's call stands: the other answers it with the queue pair it had made for its
//! own. A peer whose call is newer than the connection that stands here has begun anew: the old one ends first.

use crate::address;
use crate::close::Ending;
use crate::conn::{CONTROLS, Conn, Nonces, Theirs};
use crate::endpoint::{Link, Meeting, Slot};
use crate::fault::cause;
use crate::rail::{GLOBAL_HEADER, PEERS_MAX, Queue, Verbs};
use crate::wire::{self, Contact, End, GREETING, Greeting, Kind, LEAD_MAX};
use ironweave_btl::secret::random;
use ironweave_btl::{Cause, Fault, Peer, Residue, Sink};
use ironweave_ffi_verbs::{
    AddressHandle, Kind as QueueKind, Operation, Path, QueuePair, VerbsError, Wc,
};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// First pause before a greeting is said again; it doubles up to the last.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(320);
/// Receives beside a peer's credits: for its good-bye, and on iWARP for its Opens.
const BESIDE: u32 = 1 + crate::iwarp::OPENS;
/// Receives that connections which broke may have kept for good, at most: the device had begun to fill them.
const LOST_MAX: u32 = 1024;
/// The least that a peer must get to be worth a connection.
const CREDITS_MIN: u32 = 4;
/// What runs out when one more peer finds no place, as the failed call of an error.
pub const RECEIVES: &str = "receives";
pub const COMPLETIONS: &str = "completions";

impl Verbs {
    /// The slot of `peer`, made if it is not there.
    pub(crate) fn slot(&mut self, peer: Peer) -> &mut Slot {
        if self.slots.len() <= peer.index() {
            self.slots.resize_with(peer.index() + 1, Slot::default);
        }
        &mut self.slots[peer.index()]
    }

    /// The way to a contact.
    pub(crate) fn path(&self, contact: &Contact) -> Path {
        Path {
            port: self.port,
            gid_index: address::entry_for(&self.gids, &contact.gid).0,
            global: contact.link == 2 || self.config.global || contact.lid.get() == 0,
            gid: contact.gid,
            lid: contact.lid.get(),
            service_level: self.config.service_level,
            traffic_class: self.config.traffic_class,
        }
    }

    /// Has the way for greetings to `peer` lead to `contact`.
    fn find_way(&mut self, peer: Peer, contact: Contact) -> Result<(), VerbsError> {
        let known = self.slot(peer).way.as_ref().is_some_and(|(way, _)| *way == contact);
        if !known {
            let handle = match self.iwarp {
                Some(_) => None,
                None => Some(AddressHandle::new(&self.device, &self.path(&contact))?),
            };
            let old = self.slot(peer).way.replace((contact, handle));
            self.old_ways.extend(old.and_then(|(_, handle)| handle));
        }
        Ok(())
    }

    /// Sends a greeting, once.
    fn say(&mut self, peer: Peer, greeting: Greeting) {
        let greeting = greeting.sealed(&self.key);
        if self.deaf.is_some() {
            return; // said again later
        }
        let Verbs { letters, datagrams, slots, iwarp, .. } = self;
        match (&slots[peer.index()].way, iwarp, datagrams) {
            (Some((contact, Some(handle))), _, Some(datagrams)) => {
                let (number, key) = (contact.number.get(), contact.key.get());
                let operation = Operation::Datagram { to: handle, number, key };
                letters.send(datagrams, operation, greeting.as_bytes());
            }
            (Some((contact, None)), Some(iwarp), _) => iwarp.send(contact, greeting.as_bytes()),
            _ => {}
        }
    }

    fn greeting(&self, kind: Kind, peer: Peer, attempt: u64) -> Greeting {
        // Of the family by which the peer is reached: it answers there, and joins the queue pairs so.
        let way = self.slots.get(peer.index()).and_then(|slot| slot.way.as_ref());
        let gid =
            way.map_or(self.contact.gid, |(way, _)| address::entry_for(&self.gids, &way.gid).1);
        Greeting::new(kind, self.me.0, peer.0, attempt, Contact { gid, ..self.contact })
    }

    /// A queue pair for `peer`, and receives for it.
    fn new_conn(&mut self, peer: Peer) -> Result<Conn, VerbsError> {
        let block = match self.slot(peer).block {
            Some(block) => block,
            None => {
                let block = self.controls.allocate(&self.device)?;
                self.slot(peer).block = Some(block);
                block
            }
        };
        self.controls.reset(block, wire::control(0));
        let credits = self.provide(peer)?;
        let queue_pair = QueuePair::new(
            &self.device,
            QueueKind::Reliable,
            &self.sends,
            &self.arrivals,
            Some(self.receives.queue()),
            (self.config.queue, 0),
            1,
            self.config.inline,
        )?;
        match self.iwarp {
            Some(_) => queue_pair.prepare_for_manager()?,
            None => queue_pair.prepare(self.port, self.config.pkey_index)?,
        }
        let slot = self.slot(peer);
        slot.generation = slot.generation.wrapping_add(1);
        let id = u64::from(peer.0) << 44 | u64::from(slot.generation & 0xfff) << 32;
        // A number of 24 bits that need not be secret.
        let psn = u32::from_le_bytes(random().unwrap_or_default()) >> 8;
        let counters = std::sync::Arc::clone(&self.counters);
        Ok(Conn::new(queue_pair, id, block, psn, self.config.queue, credits, counters))
    }

    /// Buffers for one more peer: how many frames it may send before it is told of more. Never more than there are, so
    /// that no peer ever finds a receiver that is not ready.
    fn provide(&mut self, peer: Peer) -> Result<u32, VerbsError> {
        let short =
            |call| VerbsError::Call { call, errno: rustix::io::Errno::NOMEM.raw_os_error() };
        let mut promised = self.lost.min(LOST_MAX);
        let mut peers = 1;
        for &other in self.live.iter().chain(&self.meeting).filter(|&&other| other != peer) {
            let its = match &self.slots[other.index()].link {
                Link::Up(conn) => conn.credits.ours,
                Link::Calling(meeting) | Link::Answering(meeting) => meeting.conn.credits.ours,
                _ => continue,
            };
            promised += its + BESIDE;
            peers += 1;
        }
        if peers * 2 * CONTROLS > self.completions {
            return Err(short(COMPLETIONS));
        }
        self.receives.grow(&self.device, promised + self.config.credits + BESIDE)?;
        let left = self.receives.count().saturating_sub(promised + BESIDE);
        if left < CREDITS_MIN.min(self.config.credits) {
            return Err(short(RECEIVES));
        }
        Ok(left.min(self.config.credits))
    }

    /// Our end, as the peer needs to know it.
    fn end_of(&self, conn: &Conn) -> End {
        let (control, control_key) = self.controls.remote(conn.block);
        End {
            number: conn.queue_pair.number().into(),
            psn: conn.psn.into(),
            credits: conn.credits.ours.into(),
            control_key: control_key.into(),
            control: control.into(),
            buffer: ((LEAD_MAX + self.config.buffer) as u32).into(),
            reads: self.reads,
            unused: [0; 3],
        }
    }

    /// Connects our queue pair with theirs.
    fn join(&self, conn: &mut Conn, greeting: &Greeting) -> Result<(), VerbsError> {
        let (contact, end) = (&greeting.contact, &greeting.end);
        conn.credits.theirs = end.credits.get();
        conn.theirs = Theirs {
            control: end.control.get(),
            control_key: end.control_key.get(),
            buffer: end.buffer.get().max(LEAD_MAX as u32),
        };
        if self.iwarp.is_some() {
            return Ok(()); // the manager connects it
        }
        let mtu = contact.mtu.clamp(1, self.contact.mtu);
        let reads = end.reads.clamp(1, self.reads);
        let psns = (conn.psn, end.psn.get() & 0x00ff_ffff);
        let path = self.path(contact);
        conn.mtu = if self.iwarp.is_some() { 0 } else { 128_usize << mtu };
        conn.queue_pair.connect(&path, end.number.get(), psns, mtu, reads, self.config.timers)
    }

    /// The owner wants `peer`, which can be reached by one of `ways`.
    pub(crate) fn call(&mut self, peer: Peer, ways: &[Contact]) -> Result<(), Fault> {
        let lost = |cause| Fault::rail(peer, cause);
        let over = self.departed || self.broken.is_some();
        if peer == self.me || peer.0 >= PEERS_MAX || over || ways.is_empty() {
            return Err(lost(Cause::Unreachable));
        }
        let slot = self.slot(peer);
        if slot.excluded {
            return Err(lost(Cause::Unreachable));
        }
        match &mut slot.link {
            Link::Closed => {}
            Link::Answering(meeting) => {
                meeting.wanted = true;
                return Ok(());
            }
            Link::Calling(_) | Link::Up(_) => return Ok(()),
            Link::Failed(_) | Link::Ending => return Err(lost(Cause::Disconnected)),
        }
        let verbs = |error: VerbsError| lost(cause(&error));
        // The first that the kernel finds a way for; its word on the last, if there is none.
        for (left, way) in (0..ways.len()).rev().zip(ways) {
            match self.find_way(peer, *way) {
                Ok(()) => break,
                Err(error) if left == 0 => return Err(verbs(error)),
                Err(error) => tracing::debug!(%peer, %error, "there is another way"),
            }
        }
        let mut conn = self.new_conn(peer).map_err(verbs)?;
        conn.nonces.0 = random()
            .map_err(|errno| lost(Cause::Os { call: "getrandom", errno: errno.raw_os_error() }))?;
        let slot = self.slot(peer);
        slot.attempt += 1;
        let attempt = slot.attempt;
        let mut greeting = self.greeting(Kind::Hello, peer, attempt);
        greeting.caller_nonce = conn.nonces.0;
        greeting.end = self.end_of(&conn);
        let meeting = self.meeting_of(conn, greeting, true);
        self.slot(peer).link = Link::Calling(meeting);
        self.meeting.push(peer);
        self.say(peer, greeting);
        Ok(())
    }

    fn meeting_of(&self, conn: Conn, greeting: Greeting, wanted: bool) -> Box<Meeting> {
        let now = Instant::now();
        let until = now + self.config.connect_timeout;
        let held = Vec::new();
        let again = now + PAUSE;
        Box::new(Meeting { conn, joined: false, greeting, wanted, until, again, tries: 1, held })
    }

    /// Reads the letters that came.
    pub(crate) fn read_letters<S: Sink>(&mut self, sink: &mut S) -> usize {
        let mut reports = 0;
        let mut completions = [Wc::default(); 16];
        loop {
            let Some(count) = self.post.poll(&mut completions) else {
                self.device_broke();
                return reports;
            };
            for completion in &completions[..count] {
                reports += self.letter(completion, sink);
            }
            if count < completions.len() {
                return reports;
            }
        }
    }

    /// Resets the datagram queue pair that a port took down with it, under its published number, when the port is up
    /// again.
    pub(crate) fn hear_again(&mut self, now: Instant) {
        let Some(since) = self.deaf else { return };
        if now - since < PAUSE {
            return;
        }
        self.deaf = Some(now);
        if !self.device.port(self.port).is_ok_and(|port| port.active) {
            return;
        }
        let key = self.contact.key.get();
        let Some(datagrams) = &self.datagrams else { return };
        let renewed = datagrams.reset().and_then(|()| {
            let mut old = [Wc::default(); 16];
            while self.post.poll(&mut old).is_some_and(|count| count > 0) {}
            datagrams.open_for_datagrams(self.port, self.config.pkey_index, key)?;
            self.letters.renew(datagrams)
        });
        match renewed {
            Ok(()) => self.deaf = None,
            Err(error) => tracing::debug!(%error, "the datagram queue pair stays in error"),
        }
    }

    /// A letter came, or one of ours was sent.
    pub(crate) fn letter<S: Sink>(&mut self, completion: &Wc, sink: &mut S) -> usize {
        let index = completion.wr_id;
        if completion.status != 0 {
            // The port went down and flushed the queue pair. Nothing is posted to it until it is reset.
            self.deaf.get_or_insert_with(Instant::now);
        }
        if !self.letters.is_receive(index) {
            self.letters.sent(index);
            return 0;
        }
        if completion.status != 0 {
            return 0;
        }
        let mut copy = [0; GREETING];
        let bytes = self.letters.received(index, completion.byte_len as usize);
        let letter = bytes.get(GLOBAL_HEADER..).filter(|letter| letter.len() == GREETING);
        let whole = letter.map(|letter| copy.copy_from_slice(letter)).is_some();
        let posted = self.datagrams.as_ref().map(|pair| self.letters.post(pair, index));
        if self.deaf.is_none() && matches!(posted, Some(Err(_))) {
            self.device_broke();
        }
        self.greeted(if whole { &copy } else { &[] }, sink)
    }

    /// A greeting came, or noise.
    pub(crate) fn greeted<S: Sink>(&mut self, bytes: &[u8], sink: &mut S) -> usize {
        let to_us = |(_, greeting): &(Kind, Greeting)| {
            greeting.to.get() == self.me.0
                && greeting.from.get() < PEERS_MAX
                && greeting.from.get() != self.me.0
        };
        let Some((kind, greeting)) = Greeting::decode(bytes, &self.key).filter(to_us) else {
            self.counters.rejected.add(1);
            return 0;
        };
        let peer = Peer(greeting.from.get());
        match kind {
            Kind::Hello => self.hello(peer, greeting, sink),
            Kind::Accept => self.accepted(peer, greeting),
            Kind::Confirm => self.confirmed(peer, greeting, sink),
            Kind::Ready => self.ready(peer, &greeting, sink),
            Kind::Refuse => self.refused(peer, &greeting),
            Kind::Reset => self.reset(peer, &greeting, sink),
        }
    }

    /// The peer calls.
    fn hello<S: Sink>(&mut self, peer: Peer, greeting: Greeting, sink: &mut S) -> usize {
        let attempt = greeting.attempt.get();
        let refuse = self.departed || self.slot(peer).excluded;
        if attempt <= self.slot(peer).seen && !refuse {
            // Said again: so is the answer. Or it is of the past.
            let Link::Answering(meeting) = &self.slot(peer).link else { return 0 };
            if meeting.greeting.caller_nonce == greeting.caller_nonce {
                let answer = meeting.greeting;
                self.say(peer, answer);
            }
            return 0;
        }
        if self.find_way(peer, greeting.contact).is_err() {
            return 0; // it will call again, or give up
        }
        if refuse {
            self.refuse_call(peer, &greeting);
            return 0;
        }
        let mut reports = 0;
        if matches!(self.slot(peer).link, Link::Up(_)) {
            let gone = Fault::rail(peer, Cause::Disconnected);
            reports = self.end(peer, Ending::Broken(gone), Residue::Deliver, sink);
        }
        let me = self.me;
        let slot = self.slot(peer);
        let (conn, wanted) = match std::mem::take(&mut slot.link) {
            Link::Closed => (None, false),
            Link::Calling(meeting) if meeting.joined => {
                // It had answered, and calls anew: that answer is void.
                self.forget(peer, *meeting);
                (None, true)
            }
            Link::Calling(meeting) if peer < me => (Some(meeting.conn), true),
            Link::Answering(meeting) => {
                let wanted = meeting.wanted;
                self.forget(peer, *meeting);
                (None, wanted)
            }
            // Our own call stands; or the owner has yet to hear of the last end.
            other => {
                slot.link = other;
                return reports;
            }
        };
        self.meeting.retain(|&other| other != peer);
        self.slot(peer).seen = attempt;
        match self.answer(peer, conn, &greeting, wanted) {
            Ok(()) => {}
            Err(error) => {
                tracing::debug!(%peer, %error, "a call cannot be answered");
                self.refuse_call(peer, &greeting);
                if wanted {
                    self.slot(peer).link = Link::Failed(Fault::rail(peer, cause(&error)));
                    self.troubled.push(peer);
                }
            }
        }
        reports
    }

    /// The caller need not wait for its time limit.
    fn refuse_call(&mut self, peer: Peer, hello: &Greeting) {
        let mut answer = self.greeting(Kind::Refuse, peer, hello.attempt.get());
        answer.caller_nonce = hello.caller_nonce;
        self.say(peer, answer);
    }

    fn answer(
        &mut self,
        peer: Peer,
        conn: Option<Conn>,
        hello: &Greeting,
        wanted: bool,
    ) -> Result<(), VerbsError> {
        let mut conn = match conn {
            Some(conn) => conn,
            None => self.new_conn(peer)?,
        };
        self.join(&mut conn, hello)?;
        let errno = |errno: rustix::io::Errno| VerbsError::Call {
            call: "getrandom",
            errno: errno.raw_os_error(),
        };
        conn.nonces = (hello.caller_nonce, random().map_err(errno)?);
        let mut answer = self.greeting(Kind::Accept, peer, hello.attempt.get());
        answer.answerer_attempt = self.slot(peer).attempt.into();
        (answer.caller_nonce, answer.answerer_nonce) = conn.nonces;
        answer.end = self.end_of(&conn);
        let meeting = self.meeting_of(conn, answer, wanted);
        self.slot(peer).link = Link::Answering(meeting);
        self.meeting.push(peer);
        self.say(peer, answer);
        Ok(())
    }

    /// Our call was answered.
    fn accepted(&mut self, peer: Peer, greeting: Greeting) -> usize {
        let slot = self.slot(peer);
        let nonces = (greeting.caller_nonce, greeting.answerer_nonce);
        match &slot.link {
            Link::Calling(meeting)
                if !meeting.joined
                    && meeting.conn.nonces.0 == nonces.0
                    && greeting.attempt.get() == slot.attempt => {}
            // Our Confirm is said again anyway until the peer is ready.
            _ => return 0,
        }
        let Link::Calling(mut meeting) = std::mem::take(&mut slot.link) else { return 0 };
        slot.seen = slot.seen.max(greeting.answerer_attempt.get());
        if let Err(error) = self.join(&mut meeting.conn, &greeting) {
            self.meeting.retain(|&other| other != peer);
            self.slot(peer).link = Link::Failed(Fault::rail(peer, cause(&error)));
            self.troubled.push(peer);
            return 0;
        }
        meeting.joined = true;
        meeting.conn.nonces = nonces;
        meeting.greeting = self.about(Kind::Confirm, peer, nonces);
        if let Some(iwarp) = &self.iwarp {
            // The manager carries the Confirm.
            match iwarp.call(&greeting.contact) {
                Ok(id) => {
                    meeting.conn.manager = Some(id);
                    meeting.again = meeting.until;
                    self.slot(peer).link = Link::Calling(meeting);
                }
                Err(error) => {
                    self.meeting.retain(|&other| other != peer);
                    self.slot(peer).link = Link::Failed(Fault::rail(peer, cause(&error)));
                    self.troubled.push(peer);
                }
            }
            return 0;
        }
        (meeting.tries, meeting.again) = (1, Instant::now() + PAUSE);
        let confirm = meeting.greeting;
        self.slot(peer).link = Link::Calling(meeting);
        self.say(peer, confirm);
        0
    }

    /// A greeting about a connection that both know.
    fn about(&self, kind: Kind, peer: Peer, nonces: Nonces) -> Greeting {
        let mut greeting = self.greeting(kind, peer, 0);
        (greeting.caller_nonce, greeting.answerer_nonce) = nonces;
        greeting
    }

    /// The peer, whom we answered, has connected its queue pair.
    fn confirmed<S: Sink>(&mut self, peer: Peer, greeting: Greeting, sink: &mut S) -> usize {
        let nonces = (greeting.caller_nonce, greeting.answerer_nonce);
        let ready = self.about(Kind::Ready, peer, nonces);
        match &self.slot(peer).link {
            Link::Answering(meeting) if meeting.conn.nonces == nonces => {}
            Link::Up(conn) if conn.nonces == nonces => {
                self.say(peer, ready); // the first was lost
                return 0;
            }
            _ => return 0,
        }
        self.say(peer, ready);
        self.up(peer, sink)
    }

    /// The peer, who answered us, is up.
    fn ready<S: Sink>(&mut self, peer: Peer, greeting: &Greeting, sink: &mut S) -> usize {
        let nonces = (greeting.caller_nonce, greeting.answerer_nonce);
        match &self.slot(peer).link {
            Link::Calling(meeting) if meeting.joined && meeting.conn.nonces == nonces => {
                self.up(peer, sink)
            }
            _ => 0,
        }
    }

    pub(crate) fn up<S: Sink>(&mut self, peer: Peer, sink: &mut S) -> usize {
        let (Link::Calling(meeting) | Link::Answering(meeting)) =
            std::mem::take(&mut self.slot(peer).link)
        else {
            return 0;
        };
        self.meeting.retain(|&other| other != peer);
        let Meeting { conn, held, .. } = *meeting;
        self.slot(peer).link = Link::Up(Box::new(conn));
        self.live.push(peer);
        sink.up(peer);
        let mut reports = 1;
        for (index, len) in held {
            reports += self.frame(index, len, None, peer, sink);
        }
        reports
    }

    /// Our call leads nowhere.
    fn refused(&mut self, peer: Peer, greeting: &Greeting) -> usize {
        let slot = self.slot(peer);
        if matches!(&slot.link, Link::Calling(meeting) if meeting.conn.nonces.0 == greeting.caller_nonce)
        {
            slot.link = Link::Failed(Fault::rail(peer, Cause::ConnectionRefused));
            self.meeting.retain(|&other| other != peer);
            self.troubled.push(peer);
        }
        0
    }

    /// The peer's end of a connection is over.
    fn reset<S: Sink>(&mut self, peer: Peer, greeting: &Greeting, sink: &mut S) -> usize {
        let nonces = (greeting.caller_nonce, greeting.answerer_nonce);
        let gone = Fault::rail(peer, Cause::Disconnected);
        match &self.slot(peer).link {
            Link::Up(conn) if conn.nonces == nonces => {}
            Link::Calling(meeting) | Link::Answering(meeting) if meeting.conn.nonces == nonces => {}
            // A caller that gave up before it was answered does not know our nonce.
            Link::Answering(meeting) if (meeting.conn.nonces.0, [0; 16]) == nonces => {}
            _ => return 0,
        }
        self.end(peer, Ending::Broken(gone), Residue::Deliver, sink)
    }

    /// Tells the peer that our end of a connection is over; it would find out by itself, later.
    pub(crate) fn say_reset(&mut self, peer: Peer, nonces: Nonces) {
        let greeting = self.about(Kind::Reset, peer, nonces);
        self.say(peer, greeting);
    }

    /// A connection that was not up is no more.
    pub(crate) fn forget(&mut self, peer: Peer, meeting: Meeting) {
        self.meeting.retain(|&other| other != peer);
        for (index, _) in meeting.held {
            self.post_receive(index);
        }
        self.lost = self.lost.saturating_add(1);
    }

    /// Says again what was not answered, and gives up on what takes too long.
    pub(crate) fn meet_again<S: Sink>(&mut self, now: Instant, sink: &mut S) -> usize {
        let mut reports = 0;
        let over_tcp = self.iwarp.is_some();
        for peer in self.meeting.clone() {
            let (Link::Calling(meeting) | Link::Answering(meeting)) = &mut self.slot(peer).link
            else {
                continue;
            };
            if now >= meeting.until {
                let late = Fault::rail(peer, Cause::TimedOut);
                reports += self.end(peer, Ending::Broken(late), Residue::Discard, sink);
            } else if now >= meeting.again && meeting.joined && over_tcp {
                self.open_again(peer, now);
            } else if now >= meeting.again {
                meeting.again = now + PAUSE_MAX.min(PAUSE * (1 << meeting.tries.min(5)));
                meeting.tries += 1;
                let greeting = meeting.greeting;
                self.counters.retried.add(1);
                self.say(peer, greeting);
            }
        }
        reports
    }

    /// Completions that `arm` found go first.
    pub(crate) fn take_found<S: Sink>(&mut self, sink: &mut S) -> usize {
        let mut reports = 0;
        while let Some((queue, completion)) = self.found.pop_front() {
            reports += match queue {
                Queue::Sends => self.request_over(&completion, sink),
                Queue::Arrivals => self.arrived(&completion, sink),
                Queue::Post => self.letter(&completion, sink),
            };
        }
        reports
    }
}
