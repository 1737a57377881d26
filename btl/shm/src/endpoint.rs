//! What is kept for each peer and for each dialler that is not a peer yet.

use crate::assist::{Asker, Helper};
use crate::host::Place;
use crate::inbox::Inbox;
use crate::manners::Manners;
use crate::ring::{Reader, Writer};
use crate::shuttle::Shuttles;
use crate::socket;
use crate::ways::Choice;
use crate::wire::{Nonce, Transcript};
use ironweave_btl::{Cause, EndpointState, Fault, RmaDescriptor};
use rustix::process::Pid;
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Where frames to a peer go; exists only while the endpoint is Up.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) writer: Writer,
    /// The peer's inbox, and our bell in it.
    pub(crate) outbox: Inbox,
    pub(crate) bell: u32,
    /// Our part of what the peer reads of our memory.
    pub(crate) helper: Helper,
    /// Which way long messages go.
    pub(crate) choice: Choice,
    /// Before which look at what came the last frame was sent: several before one are a burst.
    pub(crate) last_round: u32,
    /// What was sent since the last frame came.
    pub(crate) sent: Sent,
}

/// What an answer may be expected to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sent {
    Nothing,
    /// A frame that takes longer to write than a line takes to come.
    Payload,
    /// A short frame: its answer, and what is sent after that, may be short, too.
    Short,
}

/// Where frames from a peer come from.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) reader: Reader,
    /// The peer's part of what we read of its memory.
    pub(crate) asker: Asker,
    /// The memory that goes to and fro.
    pub(crate) shuttles: Shuttles,
    /// How the two sides hand lines over, if we decide that.
    pub(crate) manners: Manners,
    /// Polls in a row that found nothing.
    pub(crate) idle: u32,
    /// Whether `progress` polls it; otherwise it is parked and has a bell.
    pub(crate) hot: bool,
}

/// The other end of an established connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) socket: OwnedFd,
    /// Readable when the process is gone.
    pub(crate) process: OwnedFd,
    pub(crate) pid: Pid,
    /// The peer's bell in our inbox.
    pub(crate) bell: u32,
    /// When the process was last seen to live.
    alive: Cell<Option<Instant>>,
}

/// For so long after a process was seen to live nobody else has its identifier: those are given out in turn, so the process would have
/// to end, be waited for, and as many others begin as there are identifiers (32,768 and more).
const NO_OTHER: Duration = Duration::from_millis(1);

impl Session {
    pub(crate) fn new(socket: OwnedFd, process: OwnedFd, pid: Pid, bell: u32) -> Session {
        Session { socket, process, pid, bell, alive: Cell::new(None) }
    }

    /// Whether the identifier names the process that we met, and named no other up to `now`. Asks the system at most once in
    /// [`NO_OTHER`].
    pub(crate) fn is_the_same(&self, now: Instant) -> bool {
        if self.alive.get().is_some_and(|alive| now.duration_since(alive) < NO_OTHER) {
            return true;
        }
        let gone = socket::is_gone(&self.process);
        self.alive.set((!gone).then_some(now));
        !gone
    }
}

/// How far our own dialling is.
#[derive(Debug)]
pub(crate) enum Step {
    /// To be tried (again) at this time.
    Waiting { at: Instant },
    /// It failed; to be reported.
    Failed(Fault),
    /// Said hello, waiting for the challenge.
    Greeted { socket: OwnedFd, process: OwnedFd, pid: Pid, nonce: Nonce },
    /// Gave our ring, waiting for the other.
    Offered { session: Session, writer: Box<Writer> },
}

/// Our own dialling of a peer.
#[derive(Debug)]
pub(crate) struct Dial {
    pub(crate) place: Place,
    pub(crate) step: Step,
}

/// The life of an endpoint with what belongs to each state.
#[derive(Debug, Default)]
pub(crate) enum Phase {
    #[default]
    Closed,
    Connecting(Dial),
    Up(Session),
    /// The socket ended without a good-bye; until `until` it may turn out that the process is gone.
    Failing {
        session: Session,
        until: Instant,
    },
    /// It has ended, but for memory that the peer may be writing until it says that it is done, or is gone.
    Lending {
        session: Session,
        incoming: Box<Incoming>,
        /// What lent it, and why it ends.
        descriptor: RmaDescriptor,
        cause: Cause,
        since: Instant,
    },
}

/// One peer.
#[derive(Debug, Default)]
pub(crate) struct Endpoint {
    pub(crate) phase: Phase,
    /// Declared failed for good (law 4).
    pub(crate) excluded: bool,
}

impl Endpoint {
    pub(crate) fn state(&self) -> EndpointState {
        match self.phase {
            Phase::Closed => EndpointState::Closed,
            Phase::Connecting(_) => EndpointState::Connecting,
            Phase::Up(_) => EndpointState::Up,
            Phase::Failing { .. } | Phase::Lending { .. } => EndpointState::Failing,
        }
    }
}

/// A dialler that has not proved anything yet.
#[derive(Debug)]
pub(crate) struct Stranger {
    pub(crate) socket: OwnedFd,
    pub(crate) process: OwnedFd,
    pub(crate) pid: Pid,
    /// What its proof must cover, once it said hello.
    pub(crate) transcript: Option<Transcript>,
}
