//! The endpoint of one peer on one rail, and what it is at the moment.

use crate::dial::Dial;
use crate::inbound::Inbound;
use crate::outbound::Outbound;
use crate::socket::is_near;
use ironweave_btl::{EndpointState, Fault};
use rustix::fd::OwnedFd;

/// What a rail knows of one peer, for as long as the rail lives.
#[derive(Debug, Default)]
pub struct Slot {
    /// Counts our attempts to connect.
    pub attempt: u64,
    /// Never again (law 4).
    pub excluded: bool,
    /// Outdates events of earlier connections.
    pub generation: u32,
    pub link: Link,
}

/// The connection.
#[derive(Debug, Default)]
pub enum Link {
    /// None.
    #[default]
    Closed,
    /// Ours is being made.
    Dialing(Box<Dial>),
    /// Ours was in the way of the peer's own, which is to arrive.
    Awaiting,
    /// Frames flow.
    Up(Box<Stream>),
    /// It ended before it was up, which is not reported yet.
    Failed(Fault),
    /// It ends at this moment.
    Ending,
}

/// What epoll tells about a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watch {
    /// Nothing: it is hot, and read anyway.
    None,
    /// When there is something to read.
    Read,
    /// And when it can be written to.
    ReadWrite,
}

/// An established connection.
#[derive(Debug)]
pub struct Stream {
    pub socket: OwnedFd,
    pub inbound: Inbound,
    pub outbound: Outbound,
    /// A write failed: what came in is still delivered, then it ends for this reason.
    pub doom: Option<Fault>,
    /// Hellos of the peer up to this attempt are older than this connection.
    pub superseded: u64,
    /// It is on the rail's list of those with something to write.
    pub listed: bool,
    /// Writes in a row that the kernel refused.
    pub stalls: u32,
    /// What epoll tells about it.
    pub watch: Watch,
    /// Reads in a row, since epoll was asked last, that brought something.
    pub streak: u32,
    /// It is on the rail's list of those that are read without asking epoll.
    pub hot: bool,
    /// Good-bye was queued; nothing is sent after it.
    pub departed: bool,
    /// Both ends are on this host.
    pub near: bool,
    /// Something came since a borrowed payload was sent last: so the peer may wait for the next one.
    pub spoken_to: bool,
}

impl Stream {
    pub fn new(socket: OwnedFd, superseded: u64) -> Self {
        let near = is_near(&socket);
        Stream {
            socket,
            inbound: Inbound::default(),
            outbound: Outbound::default(),
            doom: None,
            superseded,
            listed: false,
            stalls: 0,
            watch: Watch::Read,
            streak: 0,
            hot: false,
            departed: false,
            near,
            spoken_to: true,
        }
    }
}

impl Slot {
    pub fn state(&self) -> EndpointState {
        match &self.link {
            Link::Closed => EndpointState::Closed,
            Link::Dialing(_) | Link::Awaiting => EndpointState::Connecting,
            Link::Up(stream) if stream.doom.is_none() => EndpointState::Up,
            Link::Up(_) | Link::Failed(_) | Link::Ending => EndpointState::Failing,
        }
    }
}
