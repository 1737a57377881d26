//! One peer's end: which life of the connection it is in. Pure: no port, no clock of its own.
//!
//! A *life* begins when one side connects and ends on both sides for good; each side names its half by a token that the
//! other puts on every message. Messages of other lives find no endpoint and are dropped (law 4).

use crate::contact::Contact;
use ironweave_btl::EndpointState;
use ironweave_ffi_uct::EpId;
use std::cell::Cell;
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
    /// It is over since then, and waits for the library to let go of what its operations reach.
    Ending(Instant),
}

/// How a good-bye stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Farewell {
    /// Nobody said it.
    None,
    /// We did, and they have not answered.
    Said,
}

/// The library's endpoints of a life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lines {
    /// Carries frames.
    pub main: EpId,
    /// Carries greetings, where `main` is joined by them.
    pub letters: Option<EpId>,
    /// Reaches the peer's memory, where `main` cannot; made when it is needed.
    pub reach: Option<EpId>,
}

impl Lines {
    pub fn for_letters(&self) -> EpId {
        self.letters.unwrap_or(self.main)
    }
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
    pub lines: Lines,
    /// Where the two sides' `main` must be joined: it is.
    pub joined: bool,
    /// The layer above knows of it: it asked for it, or was told that it is up.
    pub known: bool,
    pub farewell: Farewell,
    /// Frames were sent that may not be out of this process's hands.
    pub unflushed: Cell<bool>,
    /// Since when the library takes nothing for this peer.
    pub stuck: Option<Instant>,
    pub since: Instant,
    /// When the HELLO was last sent.
    pub greeted: Instant,
}

impl Endpoint {
    pub fn new(phase: Phase, token: u64, stamp: u64, lines: Lines, now: Instant) -> Self {
        Endpoint {
            phase,
            token,
            theirs: 0,
            stamp,
            lines,
            joined: lines.letters.is_none(),
            known: false,
            farewell: Farewell::None,
            unflushed: Cell::new(false),
            stuck: None,
            since: now,
            greeted: now,
        }
    }

    #[inline]
    pub fn state(&self) -> EndpointState {
        match (self.known, self.phase) {
            (false, _) => EndpointState::Closed,
            (true, Phase::Up) => EndpointState::Up,
            (true, Phase::Dialing | Phase::Answering) => EndpointState::Connecting,
            (true, Phase::Ending(_)) => EndpointState::Failing,
        }
    }
}

/// A peer, connected or not.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    pub ep: Option<Box<Endpoint>>,
    pub excluded: bool,
    /// Which incarnation of it: out of its address, for greetings.
    pub incarnation: u64,
    /// The newest stamp that it ever greeted with, and the newest whose life is over.
    pub heard: u64,
    pub over: u64,
    /// Where it is, by its last greeting or its address.
    pub contact: Contact,
}
