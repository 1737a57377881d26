//! The endpoint of one peer on one rail, and what it is at the moment.

use crate::conn::Conn;
use crate::wire::{Contact, Greeting};
use ironweave_btl::{EndpointState, Fault};
use ironweave_ffi_verbs::AddressHandle;
use std::time::Instant;

/// What a rail knows of one peer, for as long as the rail lives.
#[derive(Default)]
pub struct Slot {
    /// Counts our attempts to connect.
    pub attempt: u64,
    /// The peer's attempts up to this one are over.
    pub seen: u64,
    /// Never again (law 4).
    pub excluded: bool,
    /// Outdates completions of earlier connections.
    pub generation: u32,
    /// Our control block for it.
    pub block: Option<u32>,
    /// Where its greetings are sent, and how; iWARP has no address handles.
    pub way: Option<(Contact, Option<AddressHandle>)>,
    pub link: Link,
}

/// The connection.
#[derive(Default)]
pub enum Link {
    /// None.
    #[default]
    Closed,
    /// Our Hello, then our Confirm is out.
    Calling(Box<Meeting>),
    /// Our Accept is out.
    Answering(Box<Meeting>),
    /// Frames flow.
    Up(Box<Conn>),
    /// It ended before it was up, which is not reported yet.
    Failed(Fault),
    /// It ends at this moment.
    Ending,
}

impl Link {
    /// The connection, up or to be.
    pub fn conn(&mut self) -> Option<&mut Conn> {
        match self {
            Link::Up(conn) => Some(conn),
            Link::Calling(meeting) | Link::Answering(meeting) => Some(&mut meeting.conn),
            Link::Closed | Link::Failed(_) | Link::Ending => None,
        }
    }

    /// Whether queue pair `number` is the connection's.
    pub fn is_by(&self, number: u32) -> bool {
        let conn = match self {
            Link::Up(conn) => conn,
            Link::Calling(meeting) | Link::Answering(meeting) => &meeting.conn,
            Link::Closed | Link::Failed(_) | Link::Ending => return false,
        };
        conn.queue_pair.number() == number
    }
}

/// A connection to be.
pub struct Meeting {
    pub conn: Conn,
    /// Our queue pair is connected with theirs.
    pub joined: bool,
    /// Said again until it is answered.
    pub greeting: Greeting,
    /// The owner wants it; otherwise only the peer does, and the owner is told when it is up.
    pub wanted: bool,
    pub until: Instant,
    pub again: Instant,
    pub tries: u32,
    /// Receives that came before the last greeting: buffer and length.
    pub held: Vec<(u64, usize)>,
}

impl Slot {
    #[inline]
    pub fn state(&self) -> EndpointState {
        match &self.link {
            Link::Up(conn) if conn.doom.is_none() => EndpointState::Up,
            Link::Closed => EndpointState::Closed,
            Link::Calling(_) => EndpointState::Connecting,
            Link::Answering(meeting) if meeting.wanted => EndpointState::Connecting,
            Link::Answering(_) => EndpointState::Closed,
            Link::Up(_) | Link::Failed(_) | Link::Ending => EndpointState::Failing,
        }
    }
}
