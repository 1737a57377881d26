//! Everything of a rail but the library: peers, their endpoints, and what arrives.
//!
//! Driven by [`crate::rail`]: it hands in what the port reports, and carries out what is put in the lists here afterwards,
//! since nothing can be closed while the library is calling back.

use crate::endpoint::{Endpoint, Farewell, Lines, Phase, Seat};
use crate::rma::READS;
use crate::verdict::{Verdict, judge};
use crate::wire::{Greeter, Greeting, Kind, PEERS_MAX, index_of, split};
use ironweave_btl::secret::JobKey;
use ironweave_btl::{Cause, Counters, Fault, Peer, Sink};
use ironweave_ffi_uct::{EpId, Event, Status};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Greetings kept from one round to the next; more are dropped, and sent again by who means it.
const GREETINGS: usize = 64;

/// A message of the protocol's own, waiting for the library's room.
#[derive(Debug)]
pub(crate) struct Control {
    pub life: u64,
    /// Over the line for letters, where there is one.
    pub letter: bool,
    pub message: Vec<u8>,
}

/// Why a life ends.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// Something broke.
    Fault(Fault),
    /// This side wants it.
    Invalidated,
    /// The peer has finalized; `true`: and is owed an answer.
    Quiet(bool),
}

/// A life that is over, whose lines stay open for its last words.
#[derive(Debug)]
pub(crate) struct Parting {
    pub life: u64,
    pub lines: Lines,
    /// What is said over which line.
    pub words: VecDeque<(EpId, Vec<u8>)>,
    pub until: Instant,
}

pub(crate) struct Core {
    pub who: Greeter,
    pub key: JobKey,
    pub seats: Vec<Seat>,
    pub controls: VecDeque<Control>,
    /// Greetings to be answered.
    pub greetings: Vec<Vec<u8>>,
    /// WELCOMEs, which open the way back.
    pub welcomes: Vec<(Peer, Vec<u8>)>,
    /// Lives that are to end, and how.
    pub ending: Vec<(u64, End)>,
    /// Lives that came up, to be told in the next round.
    pub risen: Vec<u64>,
    /// Lives with a clock running.
    pub watched: Vec<u64>,
    pub partings: Vec<Parting>,
    /// Partings whose line broke.
    pub cut: Vec<u64>,
    pub counters: Arc<Counters>,
    /// Calls of the sink so far.
    pub reports: usize,
    pub departed: Option<Instant>,
    /// Operations that the library is done with.
    pub done: Vec<(u64, Status)>,
}

impl Core {
    pub fn new(who: Greeter, key: JobKey) -> Core {
        Core {
            who,
            key,
            seats: Vec::new(),
            controls: VecDeque::new(),
            greetings: Vec::new(),
            welcomes: Vec::new(),
            ending: Vec::new(),
            risen: Vec::new(),
            watched: Vec::new(),
            partings: Vec::new(),
            cut: Vec::new(),
            counters: Arc::default(),
            reports: 0,
            departed: None,
            done: Vec::new(),
        }
    }

    /// The place of a peer, made when it is new.
    pub fn seat(&mut self, peer: Peer) -> &mut Seat {
        assert!(peer.0 < PEERS_MAX, "{peer}: callers check the index");
        if self.seats.len() <= peer.index() {
            self.seats.resize_with(peer.index() + 1, Seat::default);
        }
        &mut self.seats[peer.index()]
    }

    #[inline]
    pub fn endpoint(&self, peer: Peer) -> Option<&Endpoint> {
        self.seats.get(peer.index())?.ep.as_deref()
    }

    /// The endpoint whose life that is, when it is not over.
    #[inline]
    pub fn live(&mut self, token: u64) -> Option<(Peer, &mut Endpoint)> {
        let index = index_of(token);
        let ep = self.seats.get_mut(index)?.ep.as_deref_mut()?;
        (ep.token == token).then_some((Peer(index as u32), ep))
    }

    /// Takes what the port reports.
    #[inline]
    pub fn event<S: Sink>(&mut self, event: Event<'_>, sink: &mut S) {
        match event {
            Event::Arrived(message) => self.arrived(message, sink),
            Event::Room { mark } => {
                if let Some((_, ep)) = self.live(mark) {
                    ep.stuck = None;
                }
            }
            Event::Broke { mark, .. } if mark & READS != 0 => {} // its operations tell
            Event::Broke { mark, status } => self.broke(mark, status),
            Event::Done { cookie, status } => self.done.push((cookie, status)),
        }
    }

    /// An endpoint of that life broke.
    #[cold]
    pub fn broke(&mut self, life: u64, status: Status) {
        tracing::debug!(life, %status, "uct endpoint error");
        match self.live(life) {
            Some((peer, _)) => {
                // Whatever it is, an endpoint whose handler was called is lost.
                let cause = match judge(status) {
                    Verdict::Rail(cause) => cause,
                    Verdict::Later => Cause::Device("UCX gave the endpoint up"),
                };
                self.ending.push((life, End::Fault(Fault::rail(peer, cause))));
            }
            None => self.cut.push(life),
        }
    }

    /// A message. Nothing in it is believed.
    #[inline]
    fn arrived<S: Sink>(&mut self, message: &[u8], sink: &mut S) {
        let Some((token, kind, header, payload)) = split(message) else {
            self.counters.rejected.add(1);
            return;
        };
        if kind == Kind::Data
            && let Some((peer, ep)) = self.live(token)
            && ep.phase == Phase::Up
        {
            self.counters.frames_received.add(1);
            self.counters.bytes_received.add(payload.len() as u64);
            self.reports += 1;
            sink.frame(peer, header, payload);
            return;
        }
        self.arrived_rarely(token, kind, message, sink);
    }

    #[cold]
    fn arrived_rarely<S: Sink>(&mut self, token: u64, kind: Kind, message: &[u8], sink: &mut S) {
        if kind == Kind::Hello {
            if self.greetings.len() < GREETINGS {
                self.greetings.push(message.to_vec());
            }
            return;
        }
        let live = self.live(token).filter(|(_, ep)| !matches!(ep.phase, Phase::Ending(_)));
        let Some((peer, ep)) = live else {
            self.counters.rejected.add(1); // of a life that is over, or of a stranger
            return;
        };
        match kind {
            Kind::Hello => {}
            Kind::Welcome => {
                if self.welcomes.len() < GREETINGS {
                    self.welcomes.push((peer, message.to_vec()));
                }
            }
            Kind::Close => {
                self.ending.push((token, End::Fault(Fault::rail(peer, Cause::Disconnected))));
            }
            Kind::RefuseFinalized => {
                self.ending.push((token, End::Fault(Fault::rail(peer, Cause::Finalized))));
            }
            Kind::RefuseExcluded => {
                self.ending.push((token, End::Fault(Fault::rail(peer, Cause::Unreachable))));
            }
            Kind::Data | Kind::Ready | Kind::Bye | Kind::ByeAck => {
                if ep.theirs == 0 {
                    self.counters.rejected.add(1); // they cannot have our token without our having theirs
                    return;
                }
                if ep.phase != Phase::Up {
                    self.come_up(peer, sink);
                }
                match kind {
                    Kind::Data => self.arrived(message, sink),
                    Kind::Bye => self.ending.push((token, End::Quiet(true))),
                    Kind::ByeAck => self.ending.push((token, End::Quiet(false))),
                    _ => {}
                }
            }
        }
    }

    /// Reads a WELCOME: the address of the peer's endpoint, when it is the right one.
    pub fn welcomed<'a>(&mut self, peer: Peer, message: &'a [u8]) -> Option<(Greeting, &'a [u8])> {
        let (token, kind, _, body) = split(message)?;
        let decoded = Greeting::decode(kind, body, &self.key);
        let who = self.who;
        let ep = self.endpoint(peer).filter(|ep| ep.token == token);
        let ep = ep.filter(|ep| !matches!(ep.phase, Phase::Ending(_)));
        let right = decoded.filter(|(greeting, _, _)| {
            ep.is_some_and(|ep| {
                greeting.from.get() == peer.0
                    && greeting.to.get() == who.me
                    && greeting.incarnation.get() == who.incarnation
                    && greeting.stamp.get() == ep.stamp
                    && (ep.theirs == 0 || ep.theirs == greeting.token.get())
            })
        });
        if right.is_none() {
            self.counters.rejected.add(1);
        }
        right.map(|(greeting, _, ep)| (greeting, ep))
    }

    pub fn come_up<S: Sink>(&mut self, peer: Peer, sink: &mut S) {
        let departed = self.departed.is_some();
        let Some(ep) = self.seats[peer.index()].ep.as_deref_mut() else { return };
        ep.phase = Phase::Up;
        ep.known = true;
        if departed {
            // It met us at the door.
            ep.farewell = Farewell::Said;
            let (life, theirs) = (ep.token, ep.theirs);
            self.tell(Kind::Bye, life, theirs);
        }
        self.reports += 1;
        sink.up(peer);
    }

    /// Queues a message that has only a word.
    pub fn tell(&mut self, kind: Kind, life: u64, theirs: u64) {
        let message = crate::wire::word(kind, 0, theirs).to_le_bytes().to_vec();
        self.controls.push_back(Control { life, letter: false, message });
    }

    /// Says good-bye to all.
    pub fn depart(&mut self, now: Instant) {
        self.departed = Some(now);
        for index in 0..self.seats.len() {
            if index == self.who.me as usize {
                continue;
            }
            let Some(ep) = self.seats[index].ep.as_deref_mut() else { continue };
            if ep.phase == Phase::Up && ep.farewell == Farewell::None {
                ep.farewell = Farewell::Said;
                let (life, theirs) = (ep.token, ep.theirs);
                self.tell(Kind::Bye, life, theirs);
            }
        }
    }

    pub fn is_live(&self, life: u64) -> bool {
        let ep = self.seats.get(index_of(life)).and_then(|seat| seat.ep.as_deref());
        life != 0 && ep.is_some_and(|ep| ep.token == life)
    }

    /// Nothing but the port and the clock could make anything happen.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.controls.is_empty()
            && self.greetings.is_empty()
            && self.welcomes.is_empty()
            && self.ending.is_empty()
            && self.risen.is_empty()
            && self.partings.is_empty()
            && self.cut.is_empty()
            && self.done.is_empty()
    }
}
