//! iWARP: TCP beneath, no datagrams, and connections by the connection manager only.
//!
//! Greetings are the same; they go over a UDP socket at the port's IP address. After Hello and Accept the caller does not
//! join the queue pairs itself: the manager carries its sealed Confirm as a connection request, the answerer accepts it with
//! the queue pair that the Accept named. The first frame each way is Open, the caller's before the answerer's, who must
//! not send first (RFC 5044, 7.1.2); who has heard it is up.
//!
//! A completed send or write was taken by TCP, no more. What arrived is asked by reading from the peer's control block: the
//! answer is made when all that was sent before it was taken in (RFC 5040, 5.5). So a put ends with such a read, and
//! so does a good-bye.

use crate::config::OpenError;
use crate::conn::{Nonces, Work};
use crate::endpoint::Link;
use crate::fault::cause;
use crate::rail::Verbs;
use crate::wire::{Contact, Frame, GREETING, Greeting, Kind};
use ironweave_btl::secret::JobKey;
use ironweave_btl::{Cause, Fault, Peer, Sink};
use ironweave_ffi_verbs::cm::{Id, Key, Manager, PRIVATE_MAX, Told};
use ironweave_ffi_verbs::{Access, Device, Gid, Operation, Sge, Slab, VerbsError};
use rustix::io::Errno;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// The kind of link in a contact.
pub const LINK: u8 = 3;
/// Bytes that a probe reads.
const PROBE: usize = 8;
/// A caller says Open so often …
pub const OPENS: u32 = 3;
/// … and again after this time, then after eight times as long.
const OPEN_AGAIN: Duration = Duration::from_millis(30);
/// Time for each step of a call, in milliseconds; the whole has its own limit.
const STEP: i32 = 5000;

const _: () = assert!(GREETING <= PRIVATE_MAX);

/// What a rail over iWARP has beside the others.
pub struct Iwarp {
    // The listener goes before the manager's channel by itself.
    _listener: Id,
    pub manager: Manager,
    pub socket: UdpSocket,
    address: IpAddr,
    scratch: Slab,
    pub gid: Gid,
    /// Where greetings are heard, and calls.
    pub ports: (u16, u16),
}

impl Iwarp {
    pub fn open(device: &Device, port: u8) -> Result<Iwarp, OpenError> {
        let name = format!("{}:{port}", device.name());
        let address = address_of(device, port).ok_or(OpenError::NoGid {
            device: name,
            wanted: None,
            entries: 0,
        })?;
        let os = |source| OpenError::Os { call: "a socket for greetings", source };
        let socket = UdpSocket::bind((address, 0)).map_err(os)?;
        socket.set_nonblocking(true).map_err(os)?;
        let manager = Manager::new()?;
        let (_listener, calls) = manager.listen(address)?;
        let greetings = socket.local_addr().map_err(os)?.port();
        let gid = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
        let scratch = Slab::new(device, PROBE, Access::RemoteWrite)?;
        let ports = (greetings, calls);
        Ok(Iwarp { _listener, manager, socket, address, scratch, gid, ports })
    }

    /// Sends a greeting, once; it may be lost.
    pub fn send(&self, to: &Contact, bytes: &[u8]) {
        let _ = self.socket.send_to(bytes, place(to, to.number.get()));
    }

    /// The memory that a probe reads into: nobody looks at it.
    pub fn scratch(&self) -> Sge {
        Sge {
            addr: self.scratch.address(0),
            length: PROBE as u32,
            lkey: self.scratch.registration().lkey(),
        }
    }

    /// Begins to connect; the rest follows what the manager tells.
    pub fn call(&self, to: &Contact) -> Result<Id, VerbsError> {
        self.manager.call(self.address, place(to, to.key.get()), STEP)
    }
}

fn place(contact: &Contact, port: u32) -> SocketAddr {
    let address = Ipv6Addr::from(contact.gid).to_canonical();
    SocketAddr::new(address, port as u16)
}

/// The IP address of the interface that the device sits on: its GID is that one's hardware address.
fn address_of(device: &Device, port: u8) -> Option<IpAddr> {
    let gid = device.gid(port, 0).ok()?;
    let hardware: Vec<String> = gid[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    let hardware = hardware.join(":");
    let is_its = |name: &str| {
        let path = format!("/sys/class/net/{name}/address");
        std::fs::read_to_string(path).is_ok_and(|text| text.trim() == hardware)
    };
    let usable = |address: &IpAddr| match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    };
    let mut found: Vec<IpAddr> = ironweave_ffi::interfaces()
        .ok()?
        .into_iter()
        .filter(|interface| interface.up && is_its(&interface.name))
        .filter_map(|interface| interface.address.filter(usable))
        .collect();
    found.sort_by_key(IpAddr::is_ipv6);
    found.first().copied()
}

/// Reads the confirmation in a connection request.
fn confirmation(bytes: &[u8], key: &JobKey) -> Option<(Peer, Nonces)> {
    let (kind, greeting) = Greeting::decode(bytes.get(..GREETING)?, key)?;
    let nonces = (greeting.caller_nonce, greeting.answerer_nonce);
    (kind == Kind::Confirm).then_some((Peer(greeting.from.get()), nonces))
}

/// The manager chose a port of ours from which TCP has, or had a moment ago, a connection to the same place: another one will do.
fn is_port_taken(error: &VerbsError) -> bool {
    let taken = [Errno::ADDRINUSE, Errno::ADDRNOTAVAIL].map(Errno::raw_os_error);
    matches!(error, VerbsError::Call { call: "rdma_connect", errno } if taken.contains(errno))
}

impl Verbs {
    /// Reads the greetings that came over the socket.
    pub(crate) fn read_socket<S: Sink>(&mut self, sink: &mut S) -> usize {
        let mut reports = 0;
        let mut bytes = [0; GREETING + 1];
        while let Some(Ok(len)) = self.iwarp.as_ref().map(|iwarp| iwarp.socket.recv(&mut bytes)) {
            reports += self.greeted(&bytes[..len], sink);
        }
        reports
    }

    /// Does what the manager's news ask for.
    pub(crate) fn hear_manager<S: Sink>(&mut self, sink: &mut S) -> usize {
        let mut reports = 0;
        while let Some(told) = self.iwarp.as_ref().and_then(|iwarp| iwarp.manager.told()) {
            tracing::debug!(device = self.device.name(), ?told, "the connection manager");
            match told {
                Told::Addressed(key) => self.step(key, |id, _, _, _| id.find_route(STEP)),
                Told::Routed(key) => {
                    self.step(key, |id, number, reads, confirm| id.connect(number, reads, confirm))
                }
                Told::Called(id, bytes) => self.called(id, &bytes),
                Told::Established(key) => self.established(key),
                Told::Failed(key, ..) => {
                    if let Some(peer) = self.meeting_of_key(key) {
                        self.gave_up(peer, Cause::ConnectionRefused);
                    }
                }
                Told::Ended(key) => {
                    // What it said before it left goes first.
                    reports += self.drain(sink);
                    let has = |slot: &crate::endpoint::Slot| matches!(&slot.link, Link::Up(conn) if conn.manager.as_ref().is_some_and(|id| id.key() == key));
                    if let Some(at) = self.slots.iter().position(has) {
                        self.doom(Peer(at as u32), Cause::Disconnected);
                    } else if let Some(peer) = self.meeting_of_key(key) {
                        self.gave_up(peer, Cause::Disconnected);
                    }
                }
                Told::Other(_) => {}
            }
        }
        reports
    }

    /// The peer that a connection that is being made is of.
    fn meeting_of_key(&self, key: Key) -> Option<Peer> {
        self.meeting.iter().copied().find(|peer| {
            let (Link::Calling(meeting) | Link::Answering(meeting)) =
                &self.slots[peer.index()].link
            else {
                return false;
            };
            meeting.conn.manager.as_ref().is_some_and(|id| id.key() == key)
        })
    }

    /// A connection that was being made is not to be. Its owner hears of it, if the owner wanted it.
    fn gave_up(&mut self, peer: Peer, cause: Cause) {
        match std::mem::take(&mut self.slot(peer).link) {
            Link::Answering(meeting) if !meeting.wanted => self.forget(peer, *meeting),
            Link::Calling(meeting) | Link::Answering(meeting) => {
                self.forget(peer, *meeting);
                self.slot(peer).link = Link::Failed(Fault::rail(peer, cause));
                self.troubled.push(peer);
            }
            other => self.slot(peer).link = other,
        }
    }

    /// Takes the next step of a call.
    fn step(&mut self, key: Key, step: impl FnOnce(&Id, u32, u8, &[u8]) -> Result<(), VerbsError>) {
        let Some(peer) = self.meeting_of_key(key) else { return };
        let Link::Calling(meeting) = &mut self.slots[peer.index()].link else { return };
        let Some(id) = &meeting.conn.manager else { return };
        let confirm = meeting.greeting.sealed(&self.key);
        let number = meeting.conn.queue_pair.number();
        let mut taken = step(id, number, self.reads, confirm.as_bytes());
        if let (Err(error), Some(iwarp), Some(to)) = (&taken, &self.iwarp, id.called())
            && is_port_taken(error)
        {
            tracing::debug!(%to, "called again from another port");
            taken = iwarp.manager.call(iwarp.address, to, STEP).map(|again| {
                meeting.conn.manager = Some(again);
            });
        }
        if let Err(error) = taken {
            self.gave_up(peer, cause(&error));
        }
    }

    /// A peer asks to be connected: whom we answered is accepted, everybody else refused by dropping `id`.
    fn called(&mut self, id: Id, bytes: &[u8]) {
        let Some((peer, nonces)) = confirmation(bytes, &self.key) else {
            self.counters.rejected.add(1);
            return;
        };
        let reads = self.reads;
        let accepted = match self.slots.get_mut(peer.index()).map(|slot| &mut slot.link) {
            Some(Link::Answering(meeting))
                if meeting.conn.nonces == nonces && meeting.conn.manager.is_none() =>
            {
                let accepted = id.accept(meeting.conn.queue_pair.number(), reads);
                meeting.conn.manager = Some(id);
                accepted
            }
            _ => return,
        };
        if let Err(error) = accepted {
            self.gave_up(peer, cause(&error));
        }
    }

    /// A connection carries data: its caller says Open, and is up when the answerer said so too.
    fn established(&mut self, key: Key) {
        let Some(peer) = self.meeting_of_key(key) else { return };
        if let Link::Calling(meeting) = &mut self.slots[peer.index()].link {
            // An answerer's comes when it has heard the caller's.
            (meeting.tries, meeting.again) = (1, Instant::now() + OPEN_AGAIN);
            self.say_open(peer);
        }
    }

    /// The answerer did not say Open yet. Soft-iWARP overlooks what arrives while its `siw_accept` is at work, until more
    /// arrives: so more is sent, though not much, for it may just be slow.
    pub(crate) fn open_again(&mut self, peer: Peer, now: Instant) {
        if let Link::Calling(meeting) = &mut self.slots[peer.index()].link {
            meeting.tries += 1;
            let last = meeting.tries >= OPENS;
            meeting.again = if last { meeting.until } else { now + OPEN_AGAIN * 8 };
            self.say_open(peer);
        }
    }

    /// `false` when that could not be sent; the attempt is over then.
    fn say_open(&mut self, peer: Peer) -> bool {
        let me = self.me;
        let (Link::Calling(meeting) | Link::Answering(meeting)) =
            &mut self.slots[peer.index()].link
        else {
            return false;
        };
        let open = meeting.conn.prefix(Frame::Open, me);
        match meeting.conn.post_inline(Operation::Send, &open, Work::Control, true) {
            Ok(()) => true,
            Err(error) => {
                self.gave_up(peer, cause(&error));
                false
            }
        }
    }

    /// The first frame of a connection came.
    pub(crate) fn opened<S: Sink>(&mut self, peer: Peer, sink: &mut S) -> usize {
        let answers = matches!(self.slots[peer.index()].link, Link::Answering(_));
        if answers && !self.say_open(peer) {
            return 0;
        }
        self.up(peer, sink)
    }
}
