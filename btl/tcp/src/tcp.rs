//! One TCP rail: an interface and a link, with a listener and a connection to each peer.
//!
//! This file has the contract's methods; `drive.rs` has what `progress` does, `meet.rs` how connections come to be. Sends go straight to the socket
//! while nothing waits before them; a burst between two calls of `progress` is gathered and written at once. It never
//! blocks, and never takes a broken connection for a dead process (laws 1, 2, 3 and 9).

use crate::blob::{Blob, HostId};
use crate::config::{OpenError, TcpConfig};
use crate::dial::Dial;
use crate::endpoint::{Link, Slot, Stream};
use crate::errno::{Call, fault};
use crate::events::{GENERATION_MASK, Subject};
use crate::guests::Guests;
use crate::inbound::STAGING;
use crate::interfaces::{Interface, list, select};
use crate::outbound::SEND;
use crate::pace::Pace;
use crate::raw::unacknowledged;
use crate::secret::HandshakeKey;
use crate::wire::{HELLO_MAGIC, Hello, LEAD_MAX, PAYLOAD_MAX, VERSION, bye, data_prefix};
use crate::{socket, wire};
use ironweave_btl::secret::random;
use ironweave_btl::{
    Address, Armed, Btl, Caps, Cause, Counters, Descriptor, EndpointState, FailureReport, Fault,
    HEADER_MAX, Peer, Refused, Residue, Sink,
};
use rustix::event::epoll::{self, EventFlags};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The component's name.
pub const NAME: &str = "tcp";
/// Longest header + payload of a short frame, in bytes.
const MAX_SHORT: usize = 4096;
/// Longest copied payload of one frame, in bytes.
const MAX_BCOPY: usize = 64 << 10;
/// Longest message that is sent without asking, in bytes: in one frame, straight out of the user's memory and into it. An answer costs
/// more than what it saves (loopback, in turns: 128 KiB 32 instead of 53 us, 256 KiB 45 instead of 69), also where nothing
/// is posted and the message is copied once more.
const EAGER_LIMIT: usize = 256 << 10;
/// The same to a peer whose receives are posted (512 KiB 87 to 91 instead of 92 us, 1 MiB 5 % less, 4 MiB no less). One that comes too
/// early is copied through fresh memory: 1 MiB 400 instead of 200 us.
const POSTED_LIMIT: usize = 1 << 20;
/// What goes along with an announcement, in bytes: the receiver answers when it has all of it (1 MiB with 64 KiB 147, with 8 or 16 134 us).
const RNDV_EAGER_LIMIT: usize = 16 << 10;
/// Peers are numbered below this: a number from the wire cannot make tables grow without bound.
pub const PEERS_MAX: u32 = 1 << 20;
/// Frames that are written one by one between two calls of `progress`; later ones are gathered.
const DIRECT: u32 = 4;
/// Bytes in one vectored send at most. Measured over loopback: smaller ones cost calls, and a message of 1 MiB takes
/// 115 µs with this and 183 with one call for all.
pub const CHUNK: usize = 1 << 20;

/// Bytes that a segment takes within a host, where the loopback device has Linux's usual MTU of 65536.
const SEGMENT: usize = 65_483;
/// What goes ahead, in a call of its own, of a longer payload that its receiver may wait for: it copies this while the rest is copied. In
/// turns, 64 KiB took 4 to 10 per cent less, 128 KiB 9, 256 KiB 4, 1 MiB 2 to 6. Only where all takes no segment more for it: one costs
/// 3 to 4 µs.
const CUT: usize = 32 << 10;

/// Longest stay of a departed rail for its last bytes to arrive.
const LINGER: Duration = Duration::from_secs(1);
/// By how many the table of peers grows.
const SLOTS: usize = 64;

/// One rail.
pub struct Tcp {
    pub(crate) me: Peer,
    rail: u16,
    scope: u32,
    caps: Caps,
    pub(crate) config: TcpConfig,
    pub(crate) key: HandshakeKey,
    blob: Blob,
    pub(crate) epoll: OwnedFd,
    pub(crate) timer: OwnedFd,
    pub(crate) listeners: Vec<OwnedFd>,
    /// No `accept` before this: descriptors ran out.
    pub(crate) accept_after: Option<Instant>,
    pub(crate) guests: Guests,
    pub(crate) slots: Vec<Slot>,
    /// Peers that read without asking epoll: those that talked last.
    pub(crate) hot: SmallVec<[Peer; 4]>,
    /// Peers with something to write.
    pub(crate) writers: Vec<Peer>,
    /// Peers that failed in a send or connect, to be reported.
    pub(crate) troubled: Vec<Peer>,
    /// Time limits of connects, earliest first; void when the generation is another.
    pub(crate) deadlines: VecDeque<(Instant, Peer, u32)>,
    /// Zero-copy sends that are over and not reported.
    pub(crate) done: VecDeque<Descriptor>,
    pub(crate) staging: Box<[u8]>,
    /// Where a frame is put together that is sent at once: room for the longest one.
    scratch: Box<[u8]>,
    /// Frames written one by one since the last `progress`.
    direct: u32,
    /// `writers`, `troubled` or `done` has something.
    pub(crate) busy: bool,
    pub(crate) pace: Pace,
    pub(crate) round: u32,
    /// The owner may have slept since the last poll.
    pub(crate) slept: bool,
    pub(crate) unflushed: usize,
    pub(crate) departed: bool,
    pub(crate) warned: Option<Instant>,
    pub(crate) counters: Arc<Counters>,
}

impl Tcp {
    /// Opens a rail for each usable interface and link, in the order of interfaces. Does not block on the
    /// network. Raises the soft limit of open files to the hard one.
    ///
    /// # Errors
    /// When a selector names no interface, none is left, a fixed port range is used up, or the system refuses.
    ///
    /// ```
    /// use ironweave_btl::{Btl, Peer};
    /// use ironweave_btl_tcp::{Tcp, TcpConfig};
    /// let config = TcpConfig { me: Peer(3), secret: [9; 32], job: "demo".into(), ..TcpConfig::default() };
    /// let rails = Tcp::open_all(config)?;
    /// assert_eq!(rails[0].address().component, "tcp");
    /// # Ok::<(), ironweave_btl_tcp::OpenError>(())
    /// ```
    pub fn open_all(config: TcpConfig) -> Result<Vec<Tcp>, OpenError> {
        if config.links == 0 {
            return Err(OpenError::NoLinks);
        }
        raise_file_limit();
        let host = HostId::of_this_process().map_err(|error| OpenError::os("host id", error))?;
        let interfaces = select(&list()?, &config)?;
        let mut rails = Vec::new();
        for interface in &interfaces {
            for link in 0..config.links {
                let rail = rails.len() as u16;
                rails.extend(Tcp::open(interface, link, rail, host, config.clone())?);
            }
        }
        if rails.is_empty() {
            let known = interfaces.iter().map(|interface| interface.name.as_str());
            return Err(OpenError::NoInterface { known: known.collect::<Vec<_>>().join(", ") });
        }
        Ok(rails)
    }

    /// One rail; `None` when none of the interface's addresses can be used (any more, or yet): interfaces come and go.
    fn open(
        interface: &Interface,
        link: u16,
        rail: u16,
        host: HostId,
        config: TcpConfig,
    ) -> Result<Option<Tcp>, OpenError> {
        let os = OpenError::os;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| os("epoll", e))?;
        let timer = rustix::time::timerfd_create(
            rustix::time::TimerfdClockId::Monotonic,
            rustix::time::TimerfdFlags::NONBLOCK | rustix::time::TimerfdFlags::CLOEXEC,
        )
        .map_err(|e| os("timerfd", e))?;
        epoll::add(&epoll, &timer, Subject::Timer.data(), EventFlags::IN)
            .map_err(|e| os("epoll", e))?;
        let (mut listeners, mut listening) = (Vec::new(), Vec::new());
        for net in &interface.addresses {
            let (listener, at) = match socket::listen_on(*net, interface.index, &config) {
                Ok(listening) => listening,
                Err(error) if error.is_passing() => {
                    tracing::debug!(interface = interface.name, address = %net, %error, "left out");
                    continue;
                }
                Err(error) => return Err(error),
            };
            let subject = Subject::Listener(listeners.len() as u32);
            epoll::add(&epoll, &listener, subject.data(), EventFlags::IN)
                .map_err(|e| os("epoll", e))?;
            listeners.push(listener);
            listening.push(at);
        }
        if listeners.is_empty() {
            return Ok(None);
        }
        Ok(Some(Tcp {
            me: config.me,
            rail,
            scope: interface.index,
            caps: caps(interface, link, config.links),
            key: HandshakeKey::new(&config.secret, &config.job),
            config,
            blob: Blob { host, listening },
            epoll,
            timer,
            listeners,
            accept_after: None,
            guests: Guests::default(),
            slots: Vec::new(),
            hot: SmallVec::new(),
            writers: Vec::new(),
            troubled: Vec::new(),
            deadlines: VecDeque::new(),
            done: VecDeque::new(),
            staging: vec![0; STAGING].into(),
            scratch: vec![0; LEAD_MAX + MAX_BCOPY].into(),
            direct: 0,
            busy: false,
            pace: Pace::new(Instant::now()),
            round: 0,
            slept: false,
            unflushed: 0,
            departed: false,
            warned: None,
            counters: Arc::default(),
        }))
    }

    /// The slot of `peer`, made if need be.
    pub(crate) fn slot(&mut self, peer: Peer) -> &mut Slot {
        if self.slots.len() <= peer.index() {
            // Not one by one: the first that is heard of a peer may be that it is dead, when others wait for this core.
            self.slots.resize_with((peer.index() + 1).next_multiple_of(SLOTS), Slot::default);
        }
        &mut self.slots[peer.index()]
    }

    /// The stream to `peer` when frames can be sent on it.
    #[inline]
    fn stream(slots: &mut [Slot], peer: Peer) -> Result<&mut Stream, Refused> {
        match slots.get_mut(peer.index()).map(|slot| &mut slot.link) {
            Some(Link::Up(stream)) if stream.doom.is_none() && !stream.departed => Ok(stream),
            Some(Link::Dialing(_) | Link::Awaiting) => Err(Refused::Connecting),
            _ => Err(Refused::Closed),
        }
    }

    /// Opens a socket to `peer` and waits for it.
    fn dial(&mut self, peer: Peer, there: &Blob) -> Result<(), Fault> {
        let Some((from, to)) = self.blob.route(there, self.scope) else {
            return Err(Fault::rail(peer, Cause::Unreachable));
        };
        let nonce = random().map_err(|errno| fault(peer, Call::Open, errno))?;
        let (me, deadline) = (self.me, Instant::now() + self.config.connect_timeout);
        let generation = self.next_generation(peer);
        let slot = self.slot(peer);
        slot.attempt += 1;
        let hello = Hello {
            magic: HELLO_MAGIC,
            version: VERSION.into(),
            reserved: 0.into(),
            from: me.0.into(),
            to: peer.0.into(),
            reserved2: 0.into(),
            attempt: slot.attempt.into(),
            nonce,
            seal: [0; 32],
        };
        let hello = self.key.seal(hello);
        let watched = socket::dial(&from, &to, &self.config).and_then(|socket| {
            let subject = Subject::Endpoint { index: peer.0, generation };
            epoll::add(&self.epoll, &socket, subject.data(), EventFlags::IN | EventFlags::OUT)?;
            Ok(socket)
        });
        let link = match watched {
            Ok(socket) => {
                self.deadlines.push_back((deadline, peer, generation));
                Link::Dialing(Box::new(Dial::new(socket, hello)))
            }
            Err(errno) => {
                self.trouble(peer);
                Link::Failed(fault(peer, Call::Connect, errno))
            }
        };
        self.slot(peer).link = link;
        self.pace.lively();
        Ok(())
    }

    /// A generation for the next connection to `peer`.
    pub(crate) fn next_generation(&mut self, peer: Peer) -> u32 {
        let slot = self.slot(peer);
        slot.generation = slot.generation.wrapping_add(1) & GENERATION_MASK;
        slot.generation
    }

    /// Puts `peer` on the list of those that failed.
    pub(crate) fn trouble(&mut self, peer: Peer) {
        self.troubled.push(peer);
        self.busy = true;
    }

    /// After a frame was taken: counts it.
    #[inline]
    fn sent(&mut self, peer: Peer, len: usize) {
        self.counters.frames_sent.add(1);
        self.counters.bytes_sent.add(len as u64);
        self.pace.lively();
        self.warm(peer);
    }

    /// Writes the frame of `len` bytes in `scratch` at once, and queues what the kernel does not take.
    fn send_scratch(&mut self, peer: Peer, len: usize) {
        let Ok(stream) = Self::stream(&mut self.slots, peer) else { return };
        let frame = &self.scratch[..len];
        let sent = loop {
            match rustix::net::send(&stream.socket, frame, SEND) {
                Err(Errno::INTR) => {}
                other => break other,
            }
        };
        match sent {
            Ok(sent) if sent == len => {}
            Ok(sent) => {
                stream.outbound.push_copied(&frame[sent..], 1);
                self.unflushed += 1;
                self.list_writer(peer);
            }
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => {
                stream.outbound.push_copied(frame, 1);
                self.unflushed += 1;
                self.list_writer(peer);
            }
            Err(errno) => {
                stream.doom = Some(fault(peer, Call::Send, errno));
                self.trouble(peer);
            }
        }
    }

    /// Puts `peer` on the list of those with something to write.
    fn list_writer(&mut self, peer: Peer) {
        if let Link::Up(stream) = &mut self.slots[peer.index()].link
            && !stream.listed
        {
            stream.listed = true;
            self.writers.push(peer);
        }
        self.busy = true;
    }

    /// Takes a copied frame, with `pack` called once on its whole payload.
    #[inline]
    fn send_copied(
        &mut self,
        peer: Peer,
        header: &[u8],
        len: usize,
        pack: impl FnOnce(&mut [u8]),
    ) -> Result<(), Refused> {
        if header.len() > HEADER_MAX {
            return Err(Refused::TooLong { max: HEADER_MAX });
        }
        let stream = Self::stream(&mut self.slots, peer)?;
        if stream.outbound.is_empty() && self.direct < DIRECT {
            self.direct += 1;
            let (lead, payload) = self.scratch.split_at_mut(wire::PREFIX + header.len());
            let (prefix, rest) = lead.split_at_mut(wire::PREFIX);
            prefix.copy_from_slice(&data_prefix(header.len(), len));
            rest.copy_from_slice(header);
            pack(&mut payload[..len]);
            self.send_scratch(peer, wire::PREFIX + header.len() + len);
        } else {
            let whole = wire::PREFIX + header.len() + len;
            if !stream.outbound.has_room(whole, self.config.queue) {
                self.counters.refused.add(1);
                return Err(Refused::NoRoom);
            }
            stream.outbound.push_packed(header, len, pack);
            self.unflushed += 1;
            self.list_writer(peer);
        }
        self.sent(peer, len);
        Ok(())
    }
}

/// The file limit is what bounds the number of endpoints. Refusal is no error: the soft limit may do.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!(%error, "the limit of open files stays");
        }
    }
}

/// Most bytes of the first of the calls that send a payload of `len` bytes that its receiver may wait for.
const fn first_cut(len: usize) -> usize {
    if len > SEGMENT && len % SEGMENT <= CUT { CUT } else { CHUNK }
}

fn caps(interface: &Interface, link: u16, links: u16) -> Caps {
    // In Mb/s; -1 or nothing where the device does not know.
    let speed = std::fs::read_to_string(format!("/sys/class/net/{}/speed", interface.name))
        .ok()
        .and_then(|text| text.trim().parse::<i64>().ok())
        .filter(|&speed| speed > 0)
        .and_then(|speed| u32::try_from(speed / 8).ok());
    let bandwidth = speed.unwrap_or(if interface.loopback { 7_000 } else { 1_250 });
    Caps {
        name: NAME,
        device: format!("{} link {link}", interface.name),
        max_short: MAX_SHORT,
        max_bcopy: MAX_BCOPY,
        max_zcopy: PAYLOAD_MAX,
        zcopy_from: ironweave_btl::ZCOPY_FROM,
        eager_limit: EAGER_LIMIT,
        posted_limit: POSTED_LIMIT,
        rndv_eager_limit: RNDV_EAGER_LIMIT,
        fragment: 1 << 20,
        put: false,
        get: false,
        atomics: false,
        read_from: usize::MAX,
        ordered: true,
        lossless: false,
        latency_ns: if interface.loopback { 4_000 } else { 15_000 },
        bandwidth_mbs: (bandwidth / u32::from(links)).max(1),
        exclusivity: 100,
        failure_report: FailureReport::Prompt,
    }
}

impl Btl for Tcp {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn address(&self) -> Address {
        Address { component: NAME.into(), rail: self.rail, bytes: self.blob.encode() }
    }

    fn connect(&mut self, peer: Peer, address: &Address) -> Result<(), Fault> {
        let there = (address.component == NAME).then(|| Blob::decode(&address.bytes)).flatten();
        let Some(there) = there.filter(|_| peer != self.me && peer.0 < PEERS_MAX) else {
            return Err(Fault::rail(peer, Cause::Unreachable));
        };
        if self.departed {
            return Err(Fault::rail(peer, Cause::Finalized));
        }
        match self.slot(peer) {
            Slot { excluded: true, .. } => Err(Fault::rail(peer, Cause::Invalidated)),
            Slot { link: Link::Closed, .. } => self.dial(peer, &there),
            slot if slot.state() == EndpointState::Failing => {
                Err(Fault::rail(peer, Cause::Disconnected))
            }
            _ => Ok(()),
        }
    }

    fn state(&self, peer: Peer) -> EndpointState {
        self.slots.get(peer.index()).map_or(EndpointState::Closed, Slot::state)
    }

    #[inline]
    fn send_short(&mut self, peer: Peer, header: &[u8], payload: &[u8]) -> Result<(), Refused> {
        if header.len() + payload.len() > MAX_SHORT {
            return Err(Refused::TooLong { max: MAX_SHORT });
        }
        self.send_copied(peer, header, payload.len(), |space| space.copy_from_slice(payload))
    }

    fn send_bcopy<P>(
        &mut self,
        peer: Peer,
        header: &[u8],
        len: usize,
        mut pack: P,
    ) -> Result<(), Refused>
    where
        P: FnMut(usize, &mut [u8]),
    {
        if len > MAX_BCOPY {
            return Err(Refused::TooLong { max: MAX_BCOPY });
        }
        self.send_copied(peer, header, len, |space| pack(0, space))
    }

    fn send_zcopy(&mut self, descriptor: Descriptor) -> Result<(), (Refused, Descriptor)> {
        let (peer, len) = (descriptor.peer, descriptor.payload_len());
        if len > PAYLOAD_MAX {
            return Err((Refused::TooLong { max: PAYLOAD_MAX }, descriptor));
        }
        let stream = match Self::stream(&mut self.slots, peer) {
            Ok(stream) => stream,
            Err(refused) => return Err((refused, descriptor)),
        };
        if !stream.outbound.has_room_borrowed() {
            self.counters.refused.add(1);
            return Err((Refused::NoRoom, descriptor));
        }
        let first = stream.outbound.is_empty() && self.direct < DIRECT;
        let answers = std::mem::take(&mut stream.spoken_to) && stream.near;
        stream.outbound.push_borrowed(descriptor, len);
        self.unflushed += 1;
        self.list_writer(peer);
        if first {
            self.direct += 1;
            self.flush_cut(peer, if answers { first_cut(len) } else { CHUNK });
        }
        self.sent(peer, len);
        Ok(())
    }

    #[inline]
    fn progress<S: Sink>(&mut self, sink: &mut S) -> usize {
        self.direct = 0;
        if !self.pace.due() && !self.busy {
            return 0;
        }
        self.drive(sink)
    }

    fn arm(&mut self) -> Armed {
        if self.watch_all() { Armed::Wait(self.epoll.as_raw_fd()) } else { Armed::Ready }
    }

    fn invalidate<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        if self.state(peer) != EndpointState::Closed {
            self.invalidated(peer, residue, sink);
        }
    }

    fn exclude<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        if peer.0 < PEERS_MAX {
            self.slot(peer).excluded = true;
            self.invalidate(peer, residue, sink);
        }
    }

    fn unflushed(&self) -> usize {
        self.unflushed
    }

    fn depart(&mut self) {
        if std::mem::replace(&mut self.departed, true) {
            return;
        }
        self.listeners.clear();
        self.guests.clear();
        for index in 0..self.slots.len() {
            let peer = Peer(index as u32);
            if let Ok(stream) = Self::stream(&mut self.slots, peer) {
                stream.outbound.push_copied(&bye(), 1);
                stream.departed = true;
                self.unflushed += 1;
                self.list_writer(peer);
                self.flush(peer);
            }
        }
    }

    fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    fn dump(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        writeln!(
            out,
            "tcp {} rail {}: {} guests, {} unflushed, {} to report, writers {:?}, hot {:?}",
            self.caps.device,
            self.rail,
            self.guests.len(),
            self.unflushed,
            self.done.len(),
            self.writers,
            self.hot
        )?;
        for (index, slot) in self.slots.iter().enumerate() {
            match &slot.link {
                Link::Closed => {}
                Link::Up(stream) => writeln!(
                    out,
                    "  peer {index}: {:?}, {} frames and {} bytes queued, {} in {:?}",
                    slot.state(),
                    stream.outbound.frames(),
                    stream.outbound.queued_bytes(),
                    stream.socket.as_fd().as_raw_fd(),
                    stream.inbound,
                )?,
                other => writeln!(out, "  peer {index}: {:?}", other)?,
            }
        }
        Ok(())
    }
}

impl Drop for Tcp {
    /// After a good-bye, stays until the peers' kernels have all of it, `LINGER` at most, and takes in what still
    /// arrives. A socket that is closed before answers what arrives with a reset, and the reset destroys what is on
    /// its way: frames would be lost, and a good end taken for a failure.
    fn drop(&mut self) {
        if !self.departed {
            return;
        }
        let limit = Instant::now() + LINGER;
        while (0..self.slots.len()).any(|index| self.lingers(Peer(index as u32)))
            && Instant::now() < limit
        {
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}

impl Tcp {
    /// Whether something of what was said to `peer` may still be lost.
    fn lingers(&mut self, peer: Peer) -> bool {
        self.flush(peer);
        let Link::Up(stream) = &self.slots[peer.index()].link else { return false };
        let flags = rustix::net::RecvFlags::DONTWAIT;
        match rustix::net::recv(&stream.socket, &mut *self.staging, flags) {
            Ok((_, 1..)) => return true,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok((_, 0)) | Err(_) => return false, // the peer is done too, or lost
        }
        stream.doom.is_none()
            && (!stream.outbound.is_empty()
                || unacknowledged(stream.socket.as_fd()).is_ok_and(|bytes| bytes > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_ahead_costs_no_segment_more() {
        assert_eq!(first_cut(64 << 10), CUT);
        assert_eq!(first_cut(1 << 20), CUT);
        for len in (0..1 << 20).step_by(509) {
            let first = first_cut(len).min(len);
            let segments = first.div_ceil(SEGMENT) + (len - first).div_ceil(SEGMENT);
            assert_eq!(segments, len.div_ceil(SEGMENT), "{first} of {len} bytes first");
        }
    }

    /// The machine this runs on has no address of the block for documentation (RFC 5737).
    #[test]
    fn an_interface_whose_addresses_went_away_is_left_out() {
        let interface = Interface {
            name: "gone0".into(),
            index: 77,
            addresses: vec!["203.0.113.77/24".parse().expect("a network")],
            loopback: false,
        };
        let host = HostId::of_this_process().expect("a host id");
        let opened = Tcp::open(&interface, 0, 0, host, TcpConfig::default());
        assert!(opened.expect("no error").is_none());
    }
}
