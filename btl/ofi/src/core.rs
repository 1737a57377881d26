//! Everything of a rail but the provider: peers, their endpoints, what arrives, and how a life ends.
//!
//! Driven by [`crate::rail`]: it hands in what the port reports and sends what is put in `controls` and `due`. Law 1:
//! [`Core::end`] is the only way out of a life, and gives everything of it back.

use crate::endpoint::{Endpoint, Farewell, Phase, index_of};
use crate::leads::{Leads, Led};
use crate::news::News;
use crate::pieces::{Next, Piecewise};
use crate::provider::{Place, Verdict, judge};
use crate::reads::{Failed, Reads};
use crate::wire::{Greeter, Greeting, Kind, PEERS_MAX, PREFIX, Prefix};
use ironweave_btl::secret::JobKey;
use ironweave_btl::{Cause, Counters, Fault, Landing, Peer, RmaDescriptor, Sink};
use ironweave_ffi::ofi::{Event, FiAddr, Slot, Work};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Greetings kept from one round to the next; more are dropped, and sent again by who means it.
const GREETINGS: usize = 64;
/// How long something is tried to be told to a peer that is over with.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Longer than any life waits for room: its own clock ends it.
const LIFELONG: Duration = Duration::from_secs(1 << 30);

/// A message of the protocol's own, waiting for the provider's room.
#[derive(Debug)]
pub(crate) struct Control {
    /// The life that it belongs to; 0: none, it is told once and for all.
    pub life: u64,
    pub to: FiAddr,
    pub message: Vec<u8>,
    pub until: Instant,
    /// Not before, and how often again: what goes over a connection that just broke may be lost without a word.
    pub after: Option<Instant>,
    pub again: u8,
}

/// A peer, connected or not.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    pub ep: Option<Box<Endpoint>>,
    pub excluded: bool,
    /// Where it is, as the address vector has it.
    pub addr: Option<(Vec<u8>, FiAddr)>,
    /// Which incarnation of it: out of its address, for greetings.
    pub incarnation: u64,
    pub pid: u32,
    /// The newest stamp that it ever greeted with, and the newest whose life is over.
    pub heard: u64,
    pub over: u64,
}

/// Why a life ends.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// Something broke.
    Fault(Fault),
    /// This side wants it.
    Invalidated,
    /// The peer has finalized.
    Quiet,
}

pub(crate) struct Core {
    pub who: Greeter,
    pub key: JobKey,
    /// In units.
    pub window: u32,
    /// Longest payload of a frame that comes in pieces, in bytes; 0 when none does.
    pub longest: usize,
    /// The same of one whose rest comes over the lanes.
    pub longest_led: usize,
    /// Longest payload of one message whose owner is not asked where it shall go, in bytes.
    pub eager: usize,
    pub peers: Vec<Seat>,
    pub controls: VecDeque<Control>,
    /// Peers that are owed a message of credits.
    pub due: Vec<u32>,
    /// Peers with a backlog.
    pub waiting: Vec<u32>,
    /// Buffers of backlogs that are over.
    pub unused: Vec<Slot>,
    /// Greetings to be answered.
    pub greetings: Vec<Vec<u8>>,
    /// What peers tell of their lanes.
    pub lane_news: Vec<(u64, News)>,
    /// Lives that broke, and how.
    pub failing: Vec<(u64, Fault)>,
    /// Lives that are over as soon as the provider has let go of their memory.
    pub ending: Vec<(u64, End)>,
    /// Peers that came up since the last chores.
    pub met: Vec<u32>,
    /// Lives with a clock running.
    pub watched: Vec<u64>,
    /// Peers whose life ended: their endpoints may be gone for good.
    pub ended: Vec<u32>,
    /// Addresses where nobody is any more, to be taken out of the vector when nothing goes there.
    pub stale: Vec<FiAddr>,
    pub reads: Reads,
    pub leads: Leads,
    /// Reads that make no sense, to be given back.
    pub wrong_reads: Vec<(RmaDescriptor, Cause)>,
    pub counters: Arc<Counters>,
    /// Calls of the sink so far.
    pub reports: usize,
    pub departed: Option<Instant>,
}

impl Core {
    /// The place of a peer, made when it is new.
    pub(crate) fn place(&mut self, peer: Peer) -> &mut Seat {
        assert!(peer.0 < PEERS_MAX, "{peer}: callers check the index");
        if self.peers.len() <= peer.index() {
            self.peers.resize_with(peer.index() + 1, Seat::default);
        }
        &mut self.peers[peer.index()]
    }

    #[inline]
    pub(crate) fn endpoint(&self, peer: Peer) -> Option<&Endpoint> {
        self.peers.get(peer.index())?.ep.as_deref()
    }

    /// The endpoint whose life that is, when it is not over.
    #[inline]
    pub(crate) fn live(&mut self, token: u64) -> Option<(Peer, &mut Endpoint)> {
        let index = index_of(token);
        let ep = self.peers.get_mut(index)?.ep.as_deref_mut()?;
        (ep.token == token).then_some((Peer(index as u32), ep))
    }

    /// Queues a message that has only a prefix.
    pub(crate) fn tell(&mut self, kind: Kind, life: u64, to: FiAddr, token: u64, number: u32) {
        let message = Prefix::new(kind, 0, 0, number, token).as_bytes().to_vec();
        let until = Instant::now() + if life == 0 { LAST_WORDS } else { LIFELONG };
        self.controls.push_back(Control { life, to, message, until, after: None, again: 0 });
    }

    /// Tells the peer of a life what there is to tell of lanes.
    pub(crate) fn tell_news(&mut self, life: u64, news: &News) {
        let Some((_, ep)) = self.live(life) else { return };
        let (to, theirs, next) = (ep.to, ep.theirs, ep.next_in);
        let (kind, number, payload) = match *news {
            News::Gone { number, .. } => News::Gone { number, next }.encode(),
            _ => news.encode(),
        };
        self.tell(kind, life, to, theirs, number);
        self.controls.back_mut().expect("just queued").message.extend_from_slice(&payload);
    }

    /// Greets a peer, or answers its greeting.
    pub(crate) fn greet(&mut self, peer: Peer, kind: Kind, my_name: &[u8]) {
        let Some(place) = self.peers.get(peer.index()) else { return };
        let Some(ep) = &place.ep else { return };
        let stamp = if kind == Kind::Hello { ep.stamp } else { place.heard };
        let greeting = Greeting::new(self.who, peer.0, place.incarnation, ep.token, stamp);
        let theirs = if kind == Kind::Hello { 0 } else { ep.theirs };
        let name = if kind == Kind::Hello { my_name } else { &[] };
        let message = greeting.encode(kind, theirs, name, &self.key);
        let (life, to) = (ep.token, ep.to);
        let until = Instant::now() + LIFELONG;
        self.controls.push_back(Control { life, to, message, until, after: None, again: 0 });
    }

    /// Takes what the port reports.
    #[inline]
    pub(crate) fn event<S: Sink>(&mut self, event: Event<'_>, sink: &mut S) {
        match event {
            Event::Arrived(message) => self.arrived(message, sink),
            Event::Sent { mark } => self.sent(mark),
            Event::Read { mark, bytes } => {
                if let Some(descriptor) = self.reads.landed(mark, bytes) {
                    self.reports += 1;
                    if let Some(ep) = self.peers[descriptor.peer.index()].ep.as_deref_mut() {
                        ep.stuck = None;
                    }
                    sink.rma_completed(descriptor, Ok(()));
                }
            }
            Event::ReadInto { mark } => {
                if let Some(descriptor) = self.reads.landed_whole(mark) {
                    self.reports += 1;
                    if let Some(ep) = self.peers[descriptor.peer.index()].ep.as_deref_mut() {
                        ep.stuck = None;
                    }
                    sink.rma_completed(descriptor, Ok(()));
                }
            }
            Event::SentFrom { mark } => {
                if let Some(descriptor) = self.leads.sent(mark) {
                    self.reports += 1;
                    if let Some(ep) = self.peers[descriptor.peer.index()].ep.as_deref_mut() {
                        ep.stuck = None;
                    }
                    sink.completed(descriptor, Ok(()));
                }
            }
            Event::ReceivedInto { mark, len } => self.rest_came(mark, len, sink),
            Event::Failed { work, mark, error, provider_error } => {
                tracing::debug!(?work, mark, %error, provider_error, "ofi completion error");
                let (place, life) = match work {
                    Work::Send => (Place::Sent, Some(mark)),
                    Work::Read | Work::ReadInto => match self.reads.failed(mark, error) {
                        Failed::Nobody => (Place::Read, None),
                        Failed::Life(life) => (Place::Read, Some(life)),
                        Failed::Alone(descriptor) => {
                            let cause = match judge(Place::Read, error) {
                                Verdict::Rail(cause) | Verdict::Device(cause) => cause,
                                Verdict::Later | Verdict::Discard => Cause::Disconnected,
                            };
                            self.wrong_reads.push((descriptor, cause));
                            (Place::Read, None)
                        }
                    },
                    Work::Receive => (Place::Received, None),
                    Work::SendOver => (Place::Sent, Some(mark)),
                    Work::SendFrom | Work::SendLent => (Place::Sent, self.leads.life_of(mark)),
                    Work::ReceiveInto => (Place::Received, Some(mark)),
                };
                let over_lanes = matches!(
                    work,
                    Work::SendOver | Work::SendLent | Work::SendFrom | Work::ReceiveInto
                );
                if work == Work::Send
                    && let Some((_, ep)) = self.live(mark)
                {
                    ep.flying -= 1;
                }
                match judge(place, error) {
                    // Nobody sends that again.
                    Verdict::Later | Verdict::Discard if over_lanes => {
                        if let Some((peer, _)) = life.and_then(|life| self.live(life)) {
                            let fault = Fault::rail(peer, Cause::Disconnected);
                            self.failing.push((life.unwrap_or_default(), fault));
                        }
                    }
                    Verdict::Rail(cause) => {
                        if let Some((peer, _)) = life.and_then(|life| self.live(life)) {
                            let life = life.unwrap_or_default();
                            self.failing.push((life, Fault::rail(peer, cause)));
                        }
                    }
                    Verdict::Device(cause) => self.failing.push((0, Fault::device(cause))),
                    Verdict::Later | Verdict::Discard => self.counters.rejected.add(1),
                }
            }
        }
    }

    /// A send of that life is over.
    #[inline]
    pub(crate) fn sent(&mut self, life: u64) {
        if let Some((_, ep)) = self.live(life) {
            ep.flying -= 1;
            ep.stuck = None;
        }
    }

    /// Shows a message to `take`, if it is the next frame of `peer` and nothing is out of the ordinary; whether that took it, which it is
    /// not shown otherwise. As little is believed as by [`Core::arrived`].
    #[inline]
    pub(crate) fn show(
        &mut self,
        peer: Peer,
        message: &[u8],
        take: impl FnOnce(&[u8], &[u8]) -> bool,
    ) -> bool {
        let window = self.window;
        let Some((prefix, Kind::Data, header, payload)) = Prefix::split(message) else {
            return false;
        };
        let Some(ep) = self.peers[peer.index()].ep.as_deref_mut() else { return false };
        let (number, credits) = (prefix.number.get(), prefix.credits.get());
        let next = prefix.token.get() == ep.token && number == ep.next_in;
        if !next || !ep.expects_frames() || ep.unread < credits.into() || !take(header, payload) {
            return false;
        }
        ep.stuck = None;
        ep.unread -= u32::from(credits);
        if ep.count_in(message.len(), window) {
            self.due.push(peer.0);
        }
        self.counters.frames_received.add(1);
        self.counters.bytes_received.add(payload.len() as u64);
        true
    }

    /// A message. Nothing in it is believed.
    #[inline]
    fn arrived<S: Sink>(&mut self, message: &[u8], sink: &mut S) {
        let Some((prefix, kind, header, payload)) = Prefix::split(message) else {
            self.counters.rejected.add(1);
            return;
        };
        if kind == Kind::Hello {
            if self.greetings.len() < GREETINGS {
                self.greetings.push(message.to_vec());
            }
            return;
        }
        let token = prefix.token.get();
        let window = self.window;
        let Some((peer, ep)) = self.live(token) else {
            self.counters.rejected.add(1); // of a life that is over, or of a stranger
            return;
        };
        ep.stuck = None;
        if kind == Kind::Welcome {
            return self.welcomed(peer, payload, sink);
        }
        if ep.phase != Phase::Up && matches!(kind, Kind::Close | Kind::Refuse) {
            // See below.
        } else if ep.theirs == 0 {
            self.counters.rejected.add(1); // they cannot have our token without our having theirs
            return;
        } else if ep.phase != Phase::Up {
            self.come_up(peer, sink);
        }
        let Some((_, ep)) = self.live(token) else { return };
        let number = prefix.number.get();
        let fresh = match kind {
            Kind::Data | Kind::Begin | Kind::Piece | Kind::Lead => ep.is_new_frame(number),
            Kind::Credit => ep.is_new_credit(number),
            _ => true, // saying it again changes nothing
        };
        if !fresh {
            self.counters.rejected.add(1); // udp;ofi_rxd delivers messages twice when packets are lost
            return;
        }
        if !ep.give_back(prefix.credits.get()) {
            self.failing.push((token, Fault::rail(peer, Cause::Malformed("credits"))));
            return;
        }
        match kind {
            Kind::Data | Kind::Begin | Kind::Piece | Kind::Lead
                if prefix.number.get() == ep.next_in =>
            {
                self.deliver(peer, kind, message.len(), header, payload, sink);
                self.catch_up(peer, token, false, sink);
            }
            Kind::Data | Kind::Begin | Kind::Piece | Kind::Lead => {
                if let Err(what) = ep.stash(prefix.number.get(), message, window) {
                    self.failing.push((token, Fault::rail(peer, Cause::Malformed(what))));
                }
            }
            Kind::Bye => {
                let frames = prefix.number.get();
                if ep.next_in == frames {
                    self.heard_all(peer, sink);
                } else {
                    ep.farewell = Farewell::Heard { frames };
                }
            }
            Kind::ByeAck => self.end(peer, End::Quiet, sink),
            Kind::Close => {
                self.failing.push((token, Fault::rail(peer, Cause::Disconnected)));
            }
            Kind::Refuse => {
                let finalized = prefix.number.get() == REFUSE_FINALIZED;
                let cause = if finalized { Cause::Finalized } else { Cause::Unreachable };
                self.failing.push((token, Fault::rail(peer, cause)));
            }
            Kind::Lane | Kind::Joined => match News::decode(kind, number, payload) {
                Some(news) if self.lane_news.len() < GREETINGS + 4 * self.peers.len() => {
                    self.lane_news.push((token, news));
                }
                _ => self.counters.rejected.add(1),
            },
            Kind::Ready | Kind::Credit | Kind::Hello | Kind::Welcome => {}
        }
    }

    /// Hands up the next message of a peer: a frame, or a piece of one.
    #[inline]
    fn deliver<S: Sink>(
        &mut self,
        peer: Peer,
        kind: Kind,
        len: usize,
        header: &[u8],
        payload: &[u8],
        sink: &mut S,
    ) {
        let window = self.window;
        let Some(ep) = self.peers[peer.index()].ep.as_deref_mut() else { return };
        if kind == Kind::Lead && ep.begun.is_none() {
            // It counts as read when its rest is there.
            match Led::begin(peer, (header, payload), len, self.longest_led, sink) {
                Ok(led) => {
                    ep.led = Some(led);
                    self.leads.awaited.push(ep.token);
                }
                Err(what) => {
                    self.failing.push((ep.token, Fault::rail(peer, Cause::Malformed(what))));
                }
            }
            return;
        }
        let due = ep.count_in(len, window);
        let last = ep.farewell == Farewell::Heard { frames: ep.next_in };
        if due {
            self.due.push(peer.0);
        }
        if kind == Kind::Data && ep.begun.is_none() {
            self.handed_up(payload.len());
            if payload.len() > self.eager {
                land(peer, header, payload, sink);
            } else {
                sink.frame(peer, header, payload);
            }
        } else {
            self.piece(peer, kind, header, payload, sink);
        }
        if last {
            self.heard_all(peer, sink);
        }
    }

    /// The rest of a frame came over the lane of that life.
    fn rest_came<S: Sink>(&mut self, life: u64, len: usize, sink: &mut S) {
        let window = self.window;
        let Some((peer, ep)) = self.live(life) else { return };
        let Some(led) = ep.led.take() else { return };
        ep.stuck = None;
        if len != led.rest() {
            let fault = Fault::rail(peer, Cause::Malformed("the length of a frame's rest"));
            self.failing.push((life, fault.clone()));
            self.reports += usize::from(led.give_up(peer, &fault, sink));
            return;
        }
        let due = ep.count_in(led.message, window);
        let last = ep.farewell == Farewell::Heard { frames: ep.next_in };
        if due {
            self.due.push(peer.0);
        }
        let whole = led.whole(peer, sink);
        self.leads.came += 1;
        self.handed_up(whole);
        if last {
            self.heard_all(peer, sink);
        }
        self.catch_up(peer, life, false, sink);
    }

    /// The lane of that life was closed: what was on its way over it is lost.
    pub(crate) fn lost_lane(&mut self, life: u64) {
        let unsent = self.leads.has(life);
        if let Some((peer, ep)) = self.live(life)
            && (unsent || ep.awaits_rest())
        {
            self.failing.push((life, Fault::rail(peer, Cause::Disconnected)));
        }
    }

    /// The peer has closed its lane, and awaits frame `next`.
    pub(crate) fn heard_of_end(&mut self, life: u64, next: u32) {
        if let Some((peer, ep)) = self.live(life)
            && ep.has_lost_lead(next)
        {
            self.failing.push((life, Fault::rail(peer, Cause::Disconnected)));
        }
    }

    #[inline]
    fn handed_up(&mut self, len: usize) {
        self.counters.frames_received.add(1);
        self.counters.bytes_received.add(len as u64);
        self.reports += 1;
    }

    /// A message that begins a long frame, or goes on with it.
    fn piece<S: Sink>(
        &mut self,
        peer: Peer,
        kind: Kind,
        header: &[u8],
        payload: &[u8],
        sink: &mut S,
    ) {
        let Some(ep) = self.peers[peer.index()].ep.as_deref_mut() else { return };
        let next = match (kind, ep.begun.take()) {
            (_, Some(begun)) => begun.next(peer, kind, payload, sink),
            (Kind::Begin, None) => Piecewise::begin(peer, header, payload, self.longest, sink),
            _ => Next::Wrong("a piece of nothing"),
        };
        match next {
            Next::Whole(len) => self.handed_up(len),
            Next::More(begun) => ep.begun = Some(begun),
            Next::Wrong(what) => {
                let life = ep.token;
                self.failing.push((life, Fault::rail(peer, Cause::Malformed(what))));
            }
        }
    }

    /// Hands up frames that came before their turn, and whose turn it is now; one whose owner is asked where it shall go only if `long`, and
    /// otherwise later.
    #[inline]
    fn catch_up<S: Sink>(&mut self, peer: Peer, token: u64, long: bool, sink: &mut S) {
        let eager = self.eager;
        while let Some((_, ep)) = self.live(token) {
            if !long && ep.asks_next(eager) {
                self.leads.later.push(token);
                return;
            }
            let Some(message) = ep.take_stashed() else { return };
            let Some((_, kind, header, payload)) = Prefix::split(&message) else { return };
            self.deliver(peer, kind, message.len(), header, payload, sink);
        }
    }

    /// Hands up long frames that were put off.
    #[cold]
    pub(crate) fn catch_up_later<S: Sink>(&mut self, sink: &mut S) {
        for life in std::mem::take(&mut self.leads.later) {
            if let Some((peer, _)) = self.live(life) {
                self.catch_up(peer, life, true, sink);
            }
        }
    }

    /// A peer has finalized, and all it sent has arrived.
    fn heard_all<S: Sink>(&mut self, peer: Peer, sink: &mut S) {
        if let Some(ep) = self.endpoint(peer) {
            let (to, theirs) = (ep.to, ep.theirs);
            self.tell(Kind::ByeAck, 0, to, theirs, 0);
            self.end(peer, End::Quiet, sink);
        }
    }

    /// The answer to our HELLO.
    #[cold]
    fn welcomed<S: Sink>(&mut self, peer: Peer, body: &[u8], sink: &mut S) {
        let decoded =
            Greeting::decode(Kind::Welcome, body, &self.key).map(|(greeting, _)| greeting);
        let who = self.who;
        let right = |greeting: &Greeting, ep: &Endpoint| {
            greeting.from.get() == peer.0
                && greeting.to.get() == who.me
                && greeting.incarnation.get() == who.incarnation
                && greeting.stamp.get() == ep.stamp
                && (ep.theirs == 0 || ep.theirs == greeting.token.get())
        };
        let ep = self.peers[peer.index()].ep.as_deref_mut();
        match (decoded, ep) {
            (Some(greeting), Some(ep)) if right(&greeting, ep) => {
                ep.theirs = greeting.token.get();
                let (up, life, to, theirs) = (ep.phase == Phase::Up, ep.token, ep.to, ep.theirs);
                self.tell(Kind::Ready, life, to, theirs, 0);
                if !up {
                    self.come_up(peer, sink);
                }
            }
            _ => self.counters.rejected.add(1),
        }
    }

    fn come_up<S: Sink>(&mut self, peer: Peer, sink: &mut S) {
        let Some(ep) = self.peers[peer.index()].ep.as_deref_mut() else { return };
        ep.phase = Phase::Up;
        ep.known = true;
        let (life, to, theirs) = (ep.token, ep.to, ep.theirs);
        if self.departed.is_some() {
            // It met us at the door.
            ep.farewell = Farewell::Said;
            self.tell(Kind::Bye, life, to, theirs, 0);
        }
        self.met.push(peer.0);
        self.reports += 1;
        sink.up(peer);
    }

    /// Ends a life: what was taken comes back, then `closed`, once. Nothing when there is none.
    #[cold]
    pub(crate) fn end<S: Sink>(&mut self, peer: Peer, end: End, sink: &mut S) {
        let Some(place) = self.peers.get_mut(peer.index()) else { return };
        let Some(ep) = place.ep.take() else { return };
        if self.reads.lanes.has(ep.token) {
            // First the fence, which needs the port: `Ofi::finish`.
            self.ending.push((ep.token, end));
            place.ep = Some(ep);
            return;
        }
        self.reads.lanes.forget(ep.token);
        place.over = place.heard; // a greeting that comes again begins nothing
        let excluded = place.excluded;
        let Endpoint { token, theirs, to, known, backlog, begun, led, .. } = *ep;
        self.ended.push(peer.0);
        self.counters.purged.add(backlog.len() as u64);
        self.unused.extend(backlog.into_iter().map(|waiting| waiting.slot));
        if theirs != 0 && !excluded {
            match &end {
                End::Quiet | End::Fault(Fault { cause: Cause::Finalized, .. }) => {}
                End::Fault(_) | End::Invalidated => {
                    self.tell(Kind::Close, 0, to, theirs, 0);
                    self.controls.back_mut().expect("just queued").again = 2;
                }
            }
        }
        if !known {
            return;
        }
        let cause = match &end {
            End::Fault(fault) => fault.cause.clone(),
            End::Invalidated => Cause::Invalidated,
            End::Quiet => Cause::Finalized,
        };
        if let End::Fault(fault) = end {
            self.counters.faults.add(1);
            self.reports += 1;
            sink.fault(fault);
        }
        let fault = Fault::operation(peer, cause.clone());
        let given_up = begun.is_some_and(|begun| begun.give_up(peer, &fault, sink))
            || led.is_some_and(|led| led.give_up(peer, &fault, sink));
        if given_up {
            self.reports += 1;
            self.counters.purged.add(1);
        }
        for descriptor in self.leads.purge(peer, token) {
            self.reports += 1;
            self.counters.purged.add(1);
            sink.completed(descriptor, Err(fault.clone()));
        }
        let (wrong, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.wrong_reads)
            .into_iter()
            .partition(|(descriptor, _)| descriptor.peer == peer);
        self.wrong_reads = others;
        for (descriptor, cause) in wrong {
            self.reports += 1;
            self.counters.purged.add(1);
            sink.rma_completed(descriptor, Err(Fault::operation(peer, cause)));
        }
        let before = self.reads.len();
        let counters = Arc::clone(&self.counters);
        self.reads.purge(peer, token, &cause, &counters, sink);
        self.reports += before - self.reads.len() + 1;
        sink.closed(peer);
    }

    /// Nothing more is heard from `peer` or said to it. Most often it is dead: where the provider had no room for the last word it never
    /// will have, and as long as that waited every round of progress took the long way, a third longer for 8 bytes over sockets.
    pub(crate) fn exclude(&mut self, peer: Peer) {
        let seat = self.place(peer);
        seat.excluded = true;
        if let Some((_, addr)) = seat.addr {
            self.controls.retain(|control| control.life != 0 || control.to != addr);
        }
    }

    /// Says good-bye to all.
    pub(crate) fn depart(&mut self, now: Instant) {
        self.departed = Some(now);
        for index in 0..self.peers.len() {
            let Some(ep) = self.peers[index].ep.as_deref_mut() else { continue };
            if ep.phase == Phase::Up && ep.farewell == Farewell::None {
                ep.farewell = Farewell::Said;
                let (life, to, theirs, frames) = (ep.token, ep.to, ep.theirs, ep.next_out);
                self.tell(Kind::Bye, life, to, theirs, frames);
            }
        }
        // What belongs to a life waits for room as long as that lasts.
        for control in self.controls.iter_mut().filter(|control| control.life != 0) {
            control.until = now + LIFELONG;
        }
    }

    /// How much is still on its way out of this process.
    pub(crate) fn unflushed(&self, lingers: bool) -> usize {
        let of = |ep: &Endpoint| {
            let answer = lingers && ep.farewell == Farewell::Said;
            ep.flying as usize + ep.backlog.len() + usize::from(answer)
        };
        let endpoints: usize =
            self.peers.iter().filter_map(|place| place.ep.as_deref()).map(of).sum();
        endpoints
            + self.leads.len()
            + self.controls.iter().filter(|control| self.is_live(control.life)).count()
    }

    pub(crate) fn is_live(&self, life: u64) -> bool {
        self.peers
            .get(index_of(life))
            .and_then(|place| place.ep.as_deref())
            .is_some_and(|ep| life != 0 && ep.token == life)
    }

    /// Whether something is still to be sent to `addr`. Providers do not look: over tcp and ofi_rxm what goes to an address that is
    /// not in the vector ends the process.
    pub(crate) fn goes_to(&self, addr: FiAddr) -> bool {
        self.controls.iter().any(|control| control.to == addr)
            || self.peers.iter().filter_map(|seat| seat.ep.as_deref()).any(|ep| ep.to == addr)
    }

    /// Nothing but the port could make anything happen.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.controls.is_empty()
            && self.due.is_empty()
            && self.waiting.is_empty()
            && self.greetings.is_empty()
            && self.lane_news.is_empty()
            && self.failing.is_empty()
            && self.ending.is_empty()
            && self.watched.is_empty()
            && self.met.is_empty()
            && self.ended.is_empty()
            && self.unused.is_empty()
            && self.reads.is_idle()
            && self.leads.is_idle()
            && self.wrong_reads.is_empty()
    }
}

/// Hands up a frame of one message, to where its owner wants it.
fn land<S: Sink>(peer: Peer, header: &[u8], payload: &[u8], sink: &mut S) {
    match sink.landing(peer, header, payload.len()) {
        Landing::Buffered => sink.frame(peer, header, payload),
        Landing::Direct { region, token } => {
            region.write(0, payload);
            sink.landed(peer, region, token, Ok(()));
        }
    }
}

/// Why a connection is refused, in the number of a REFUSE.
pub(crate) const REFUSE_FINALIZED: u32 = 1;
pub(crate) const REFUSE_EXCLUDED: u32 = 2;

/// Where a greeting starts in its message.
pub(crate) const GREETING_AT: usize = PREFIX;
