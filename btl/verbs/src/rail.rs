//! One rail: a port of a device, with a queue pair for each connected peer.
//!
//! This file has the contract's methods; `progress.rs` has what `progress` does, `meet.rs` how connections come to be,
//! `close.rs` how they end. It never blocks but in set-up calls of the kernel, and never takes a broken connection for
//! a dead process (laws 1, 2, 3 and 9). Long, because the contract is one `impl`.

use crate::address::{self, Entry};
use crate::cache::Cache;
use crate::close::Ending;
use crate::config::{OnDemand, OpenError, Ring, VerbsConfig};
use crate::conn::{Conn, Way, Work};
use crate::endpoint::{Link, Slot};
use crate::fault::cause;
use crate::iwarp::{self, Iwarp};
use crate::memory::{Controls, Letters, Receives, Slots};
use crate::paged::Paged;
use crate::ports::candidates;
use crate::ring::Shape;
use crate::rma::Open;
use crate::wire::{self, Contact, Frame, GREETING, LEAD_MAX, PREFIX};
use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_btl::secret::{JobKey, random};
use ironweave_btl::{
    Address, Armed, Btl, Caps, Cause, Counters, Descriptor, EndpointState, FailureReport, Fault,
    Peer, Refused, RemoteKey, Residue, RmaDescriptor, Sink,
};
use ironweave_ffi_verbs::{
    Access, AddressHandle, Channel, CompletionQueue, Device, Kind, Operation, QueuePair,
    Registration, Wc,
};
use rustix::event::epoll::{self, EventFlags};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The component's name.
pub const NAME: &str = "verbs";
/// Longest header + payload of a short frame, in bytes.
const MAX_SHORT: usize = 2048;
/// Peers are numbered below this: a number from the wire cannot make tables grow without bound.
pub const PEERS_MAX: u32 = 1 << 20;
/// Bytes taken inline at most: they are put together on the stack.
const INLINE_MAX: usize = 512;
/// Datagrams that may arrive between two looks.
const LETTERS: u32 = 256;
/// The global header that precedes a datagram in its buffer.
pub const GLOBAL_HEADER: usize = 40;
/// How long a departed rail stays for its last frames to be acknowledged.
const LINGER: Duration = Duration::from_secs(1);
/// Sleep at most this long while a peer's credits are used up, or a peer may write to a ring: nothing wakes for those.
const STARVED: Duration = Duration::from_millis(1);

/// One rail.
pub struct Verbs {
    // Queue pairs first, then what they use: fields are dropped in this order.
    pub(crate) slots: Vec<Slot>,
    /// None on iWARP.
    pub(crate) datagrams: Option<QueuePair>,
    /// On iWARP: what carries greetings and makes connections.
    pub(crate) iwarp: Option<Iwarp>,
    pub(crate) letters: Letters,
    /// Address handles of earlier connections, which a datagram under way may still use.
    pub(crate) old_ways: Vec<AddressHandle>,
    pub(crate) buffers: Slots,
    pub(crate) receives: Receives,
    pub(crate) controls: Controls,
    /// What peers may reach.
    pub(crate) open: Open,
    pub(crate) kept: Cache<Registration>,
    /// Kept sources and targets, if the device pages on demand and may …
    pub(crate) paged: Option<[Paged<Registration>; 2]>,
    /// … and still has to show that it does so rightly.
    pub(crate) untried: bool,
    pub(crate) sends: Arc<CompletionQueue>,
    pub(crate) arrivals: Arc<CompletionQueue>,
    pub(crate) post: Arc<CompletionQueue>,
    channel: Arc<Channel>,
    pub(crate) device: Device,
    pub(crate) port: u8,
    /// The entries of the port's GID table in use, best first; never empty.
    pub(crate) gids: Vec<Entry>,
    pub(crate) contact: Contact,
    pub(crate) me: Peer,
    rail: u16,
    pub(crate) caps: Caps,
    pub(crate) config: VerbsConfig,
    pub(crate) key: JobKey,
    pub(crate) max_message: usize,
    pub(crate) reads: u8,
    epoll: OwnedFd,
    timer: OwnedFd,
    /// Room for what a look at a queue finds.
    pub(crate) batch: Vec<Wc>,
    /// Completions that `arm` found.
    pub(crate) found: VecDeque<(Queue, Wc)>,
    /// Peers with a connection that is up.
    pub(crate) live: Vec<Peer>,
    /// Peers that are calling or being answered.
    pub(crate) meeting: Vec<Peer>,
    /// Peers that failed and must be closed.
    pub(crate) troubled: Vec<Peer>,
    /// Puts and gets that are over without the device.
    pub(crate) done: VecDeque<(RmaDescriptor, Result<(), Fault>)>,
    pub(crate) in_flight: usize,
    /// Rings for short frames, if they are used.
    pub(crate) ring: Option<Shape>,
    /// Peers that have one of ours.
    pub(crate) rings: Vec<Peer>,
    /// A frame out of a ring.
    pub(crate) scratch: Vec<u64>,
    /// Connections that broke: each may have kept a receive that the device had begun to fill.
    pub(crate) lost: u32,
    pub(crate) most_in_flight: usize,
    /// Places in the queue of completed requests.
    pub(crate) completions: u32,
    pub(crate) calls: u32,
    /// Whose payload came alone last.
    pub(crate) lean_from: Peer,
    pub(crate) looked: Instant,
    pub(crate) swept: Instant,
    /// The port is down since then.
    pub(crate) down_since: Option<Instant>,
    /// The datagram queue pair is in error since a look: it was flushed when the port went down.
    pub(crate) deaf: Option<Instant>,
    pub(crate) broken: Option<Cause>,
    pub(crate) told_broken: bool,
    /// A send was refused for want of what unsignalled requests hold.
    pub(crate) short: bool,
    pub(crate) departed: bool,
    pub(crate) counters: Arc<Counters>,
}

/// Which completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    Sends,
    Arrivals,
    Post,
}

impl Verbs {
    /// Opens a rail for each usable port. Does not block on the network.
    ///
    /// # Errors
    /// When libibverbs or a device is not there, no port is active, or the device or the system refuses (locked
    /// memory, say) a port that was named, or all of them.
    pub fn open_all(config: VerbsConfig) -> Result<Vec<Verbs>, OpenError> {
        let ports = candidates(&config)?;
        let mut rails = Vec::new();
        let mut first = None;
        for (device, port) in ports {
            let name = format!("{}:{port}", device.name());
            let error = match Verbs::open(device, port, rails.len() as u16, config.clone()) {
                Ok(rail) => {
                    rails.push(rail);
                    continue;
                }
                Err(OpenError::Verbs(source)) => OpenError::of(&name, source),
                Err(other) => other,
            };
            if !config.include.is_empty() {
                return Err(error); // it was asked for by name
            }
            tracing::warn!(%error, "a port is left out");
            first.get_or_insert(error);
        }
        match first {
            Some(error) if rails.is_empty() => Err(error),
            _ => Ok(rails),
        }
    }

    fn open(device: Device, port: u8, rail: u16, config: VerbsConfig) -> Result<Verbs, OpenError> {
        let os = |call: &'static str| {
            move |errno: rustix::io::Errno| OpenError::Os { call, source: errno.into() }
        };
        let state = device.port(port)?;
        let limits = device.limits();
        let name = format!("{}:{port}", device.name());
        let iwarp = match device.is_iwarp() {
            true => Some(Iwarp::open(&device, port)?),
            false => None,
        };
        let gids: Vec<Entry> = match (&iwarp, config.gid_index) {
            (Some(iwarp), _) => vec![(0, iwarp.gid)],
            (None, Some(index)) => {
                let gid = device.gid(port, index.into()).ok();
                let used = gid.filter(|gid| gid.iter().any(|&byte| byte != 0));
                used.map(|gid| (index, gid)).into_iter().collect()
            }
            (None, None) => {
                address::choose_gids(&device, port, state.gids, state.ethernet, config.ip)
            }
        };
        let &(_, gid) = gids.first().ok_or_else(|| OpenError::NoGid {
            device: name.clone(),
            wanted: config.gid_index,
            entries: state.gids,
        })?;
        if config.pkey_index >= state.partitions.max(1) {
            return Err(OpenError::NoPartition {
                device: name,
                wanted: config.pkey_index,
                entries: state.partitions,
            });
        }

        let channel = Channel::new(&device)?;
        let completions = config.completions.min(limits.completions);
        let most = config.receives_max.min(limits.shared).min(limits.completions);
        let sends = CompletionQueue::new(&device, &channel, completions)?;
        let arrivals = CompletionQueue::new(&device, &channel, most)?;
        let post = CompletionQueue::new(&device, &channel, 2 * LETTERS)?;
        let letter = GLOBAL_HEADER + GREETING;
        let letters = Letters::new(&device, LETTERS, LETTERS / 2, letter)?;
        let rooms = (LETTERS / 2, LETTERS);
        let random = random().map_err(os("getrandom"))?;
        let queue_key = u32::from_le_bytes(random) & 0x7fff_ffff;
        let datagrams = match iwarp {
            Some(_) => None,
            None => {
                let kind = Kind::Datagram;
                let pair = QueuePair::new(&device, kind, &post, &post, None, rooms, 1, 0)?;
                pair.open_for_datagrams(port, config.pkey_index, queue_key)?;
                letters.post_all(&pair)?;
                Some(pair)
            }
        };
        let (number, number_key) = match (&iwarp, &datagrams) {
            (Some(iwarp), _) => (iwarp.ports.0.into(), iwarp.ports.1.into()),
            (None, pair) => (pair.as_ref().map_or(0, QueuePair::number), queue_key),
        };
        let contact = Contact {
            gid,
            lid: state.lid.into(),
            link: match (&iwarp, state.ethernet) {
                (Some(_), _) => iwarp::LINK,
                (None, true) => 2,
                (None, false) => 1,
            },
            mtu: state.mtu.min(config.mtu.max(1)),
            number: number.into(),
            key: number_key.into(),
        };

        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(os("epoll"))?;
        let timer = rustix::time::timerfd_create(
            rustix::time::TimerfdClockId::Monotonic,
            rustix::time::TimerfdFlags::NONBLOCK | rustix::time::TimerfdFlags::CLOEXEC,
        )
        .map_err(os("timerfd"))?;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(0), EventFlags::IN)
            .map_err(os("epoll"))?;
        let mut wakers = vec![channel.fd(), device.event_fd()];
        if let Some(iwarp) = &iwarp {
            wakers.extend([iwarp.manager.fd(), iwarp.socket.as_raw_fd()]);
        }
        for fd in wakers {
            let fd = crate::sleep::borrow(&fd);
            epoll::add(&epoll, fd, epoll::EventData::new_u64(1), EventFlags::IN)
                .map_err(os("epoll"))?;
        }

        let ring = match config.ring {
            Ring::Off => None,
            Ring::Auto if iwarp.is_some() => None,
            _ if config.ring_after == 0 => None,
            _ => Some(Shape::nearest(config.ring_slots, config.ring_size)),
        };
        let stride = LEAD_MAX + config.buffer;
        // iWARP has the answer to a read write its target as a peer would, and peers read control blocks.
        let (sink, block) = match iwarp {
            Some(_) => (Access::RemoteWrite, Access::RemoteBoth),
            None => (Access::LocalWrite, Access::RemoteWrite),
        };
        let buffers = Slots::new(&device, config.slots, stride, sink)?;
        let receives = Receives::new(&device, most, stride)?;
        let now = Instant::now();
        let open = Open::new(&config, iwarp.is_none());
        let may = limits.on_demand && config.on_demand != OnDemand::Never;
        let at_once = config.on_demand == OnDemand::Always;
        // On iWARP a completion means that TCP has the request, and Soft-iWARP has none of them.
        let atomics = limits.atomics && iwarp.is_none();
        let paged = may.then(|| [Paged::new(at_once), Paged::new(at_once)]);
        Ok(Verbs {
            slots: Vec::new(),
            datagrams,
            iwarp,
            letters,
            old_ways: Vec::new(),
            buffers,
            receives,
            controls: Controls::new(block),
            open,
            kept: Cache::new(config.kept),
            paged,
            untried: config.trial,
            sends,
            arrivals,
            post,
            channel,
            port,
            gids,
            contact,
            me: config.me,
            rail,
            caps: Caps {
                name: NAME,
                device: name,
                max_short: MAX_SHORT,
                max_bcopy: config.buffer,
                max_zcopy: config.buffer,
                zcopy_from: ironweave_btl::ZCOPY_FROM,
                eager_limit: 2 * config.buffer,
                posted_limit: 2 * config.buffer,
                rndv_eager_limit: config.buffer,
                fragment: config.buffer,
                put: true,
                get: true,
                atomics,
                read_from: usize::MAX,
                ordered: true,
                lossless: false,
                latency_ns: 2_000,
                bandwidth_mbs: state.bandwidth_mbs,
                exclusivity: 1_024,
                failure_report: if config.probe.is_zero() {
                    FailureReport::OnUse
                } else {
                    FailureReport::Prompt
                },
            },
            key: wire::job_key(&config.secret, &config.job),
            max_message: state.max_message as usize,
            reads: limits.reads.clamp(1, 16),
            device,
            config,
            epoll,
            timer,
            batch: Vec::new(),
            found: VecDeque::new(),
            live: Vec::new(),
            meeting: Vec::new(),
            troubled: Vec::new(),
            done: VecDeque::new(),
            in_flight: 0,
            ring,
            rings: Vec::new(),
            scratch: vec![0; ring.map_or(0, Shape::words)],
            lost: 0,
            // The rest is for credits and probes, see `provide`.
            most_in_flight: completions as usize / 2,
            completions,
            calls: 0,
            lean_from: Peer(0),
            looked: now,
            swept: now,
            down_since: None,
            deaf: None,
            broken: None,
            told_broken: false,
            short: false,
            departed: false,
            counters: Arc::default(),
        })
    }

    /// The connection to `peer`, if sends are taken.
    #[inline]
    pub(crate) fn conn(&mut self, peer: Peer) -> Result<&mut Conn, Refused> {
        self.may_send(peer)?;
        match &mut self.slots[peer.index()].link {
            Link::Up(conn) => Ok(conn),
            _ => Err(Refused::Closed),
        }
    }

    /// Whether the endpoint takes sends.
    #[inline]
    fn may_send(&self, peer: Peer) -> Result<(), Refused> {
        match self.state(peer) {
            EndpointState::Up if !self.departed => Ok(()),
            EndpointState::Connecting => Err(Refused::Connecting),
            _ => Err(Refused::Closed),
        }
    }

    /// Whether a frame to `peer` can be sent now; its connection has room and credit then.
    #[inline]
    fn admit(&mut self, peer: Peer, len: usize, max: usize) -> Result<(), Refused> {
        if len > max {
            return Err(Refused::TooLong { max });
        }
        self.may_send(peer)?;
        let free = self.in_flight < self.most_in_flight;
        let Verbs { slots, controls, .. } = self;
        let Link::Up(conn) = &mut slots[peer.index()].link else { return Err(Refused::Closed) };
        let block = conn.block;
        if len > (conn.theirs.buffer as usize).saturating_sub(LEAD_MAX) {
            return Err(Refused::TooLong { max: conn.theirs.buffer as usize - LEAD_MAX });
        }
        if free && conn.has_room(1) && conn.has_credit(|| controls.words(block)) {
            return Ok(());
        }
        self.refuse()
    }

    pub(crate) fn refuse(&mut self) -> Result<(), Refused> {
        self.short = true;
        self.counters.refused.add(1);
        Err(Refused::NoRoom)
    }

    fn count(&mut self, bytes: usize, by_ring: bool) {
        self.in_flight += 1;
        self.counters.frames_sent.add(1);
        self.counters.ring_sent.add(u64::from(by_ring));
        self.counters.bytes_sent.add(bytes as u64);
    }

    /// The device refused a request: the endpoint is lost.
    pub(crate) fn lost(&mut self, peer: Peer, cause: Cause) {
        if let Some(Slot { link: Link::Up(conn), .. }) = self.slots.get_mut(peer.index())
            && conn.doom.is_none()
        {
            conn.doom = Some(Fault::rail(peer, cause));
            self.troubled.push(peer);
        }
    }

    /// Sends a frame that `fill` writes into a slot, behind prefix and header.
    #[allow(clippy::result_large_err)] // descriptors are given back by value
    fn send_slot(
        &mut self,
        peer: Peer,
        header: &[u8],
        len: usize,
        fill: impl FnOnce(&mut [u8]),
        work: impl FnOnce(crate::memory::Slot) -> Work,
        important: bool,
    ) -> Result<(), (Refused, Option<Work>)> {
        let Some(slot) = self.buffers.take() else {
            return Err((self.refuse().expect_err("a refusal"), None));
        };
        let me = self.me;
        let Verbs { slots, buffers, .. } = self;
        let Link::Up(conn) = &mut slots[peer.index()].link else {
            unreachable!("the caller admitted it");
        };
        let total = PREFIX + header.len() + len;
        let bytes = buffers.bytes(&slot);
        bytes[..PREFIX].copy_from_slice(&conn.prefix(Frame::Data(header.len()), me));
        bytes[PREFIX..PREFIX + header.len()].copy_from_slice(header);
        fill(&mut bytes[PREFIX + header.len()..total]);
        let (way, len_of_request) = conn.lay(bytes, total);
        let way = conn.lean(way, header, len);
        let first = if let Way::Lean(_) = way { total - len } else { 0 };
        let piece = buffers.piece(&slot, first..len_of_request);
        match conn.post_frame(way, &piece, work(slot), important) {
            Ok(()) => {
                self.count(len, way.is_ring());
                Ok(())
            }
            Err((error, work)) => {
                self.lost(peer, cause(&error));
                Err((Refused::Closed, Some(work)))
            }
        }
    }

    fn give_back_slot(&mut self, work: Option<Work>) -> Option<Descriptor> {
        match work? {
            Work::Frame(Some(slot)) => {
                self.buffers.put_back(slot);
                None
            }
            Work::Zcopy(descriptor, slot) => {
                self.buffers.put_back(slot);
                Some(descriptor)
            }
            _ => None,
        }
    }
}

impl Btl for Verbs {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn address(&self) -> Address {
        let bytes = address::encode(&self.contact, &self.gids);
        Address { component: NAME.into(), rail: self.rail, bytes }
    }

    fn connect(&mut self, peer: Peer, address: &Address) -> Result<(), Fault> {
        let theirs = (address.component == NAME).then(|| address::decode(&address.bytes)).flatten();
        let ways = theirs.map(|theirs| address::ways(self.contact.link, &self.gids, &theirs));
        self.call(peer, &ways.unwrap_or_default())
    }

    #[inline]
    fn state(&self, peer: Peer) -> EndpointState {
        self.slots.get(peer.index()).map_or(EndpointState::Closed, Slot::state)
    }

    #[inline]
    fn send_short(&mut self, peer: Peer, header: &[u8], payload: &[u8]) -> Result<(), Refused> {
        let len = header.len() + payload.len();
        self.admit(peer, len, MAX_SHORT)?;
        let total = PREFIX + len;
        let me = self.me;
        let conn = self.conn(peer)?;
        if conn.takes(total) <= (conn.queue_pair.inline() as usize).min(INLINE_MAX) {
            let mut bytes = [0; INLINE_MAX];
            bytes[..PREFIX].copy_from_slice(&conn.prefix(Frame::Data(header.len()), me));
            bytes[PREFIX..PREFIX + header.len()].copy_from_slice(header);
            bytes[PREFIX + header.len()..total].copy_from_slice(payload);
            let (way, len) = conn.lay(&mut bytes, total);
            let way = conn.sends_whole(way, header);
            if let Err(error) = conn.post_frame_inline(way, &bytes[..len]) {
                self.lost(peer, cause(&error));
                return Err(Refused::Closed);
            }
            self.count(payload.len(), way.is_ring());
            return Ok(());
        }
        let fill = |piece: &mut [u8]| piece.copy_from_slice(payload);
        let work = |slot| Work::Frame(Some(slot));
        self.send_slot(peer, header, payload.len(), fill, work, false).map_err(|(refused, work)| {
            self.give_back_slot(work);
            refused
        })
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
        self.admit(peer, len, self.caps.max_bcopy)?;
        let work = |slot| Work::Frame(Some(slot));
        let sent = self.send_slot(peer, header, len, |piece| pack(0, piece), work, false);
        match sent {
            Ok(()) => Ok(()),
            Err((refused, None)) => Err(refused),
            Err((_, work)) => {
                // It was packed, which cannot be taken back: the frame is lost with the endpoint, which ends.
                self.give_back_slot(work);
                self.counters.frames_sent.add(1);
                self.counters.bytes_sent.add(len as u64);
                Ok(())
            }
        }
    }

    fn send_zcopy(&mut self, descriptor: Descriptor) -> Result<(), (Refused, Descriptor)> {
        // Copied all the same: within one buffer that is cheaper than a registration. What it gains its owner is to
        // hear whether the frame arrived.
        let len = descriptor.payload_len();
        let (peer, header) = (descriptor.peer, descriptor.header);
        if let Err(refused) = self.admit(peer, len, self.caps.max_zcopy) {
            return Err((refused, descriptor));
        }
        let regions = descriptor.payload.clone();
        let fill = |mut piece: &mut [u8]| {
            for region in &regions {
                let (part, rest) = piece.split_at_mut(region.len());
                part.copy_from_slice(region.as_slice());
                piece = rest;
            }
        };
        let mut waiting = Some(descriptor);
        let work = |slot| Work::Zcopy(waiting.take().expect("one frame has one descriptor"), slot);
        match self.send_slot(peer, header.as_bytes(), len, fill, work, true) {
            Ok(()) => Ok(()),
            Err((refused, work)) => {
                let descriptor = self.give_back_slot(work).or(waiting);
                Err((refused, descriptor.expect("it is in the work or was not used")))
            }
        }
    }

    fn rma(&mut self, descriptor: RmaDescriptor) -> Result<(), (Refused, RmaDescriptor)> {
        self.start_rma(descriptor)
    }

    fn register_source(&mut self, _: Peer, region: &SendRegion) -> Result<RemoteKey, Refused> {
        self.open_source(region)
    }

    fn register_target(&mut self, region: &RecvRegion) -> Result<RemoteKey, Refused> {
        self.open_target(region)
    }

    fn deregister(&mut self, key: &RemoteKey) {
        self.close_target(key);
    }

    fn retire(&mut self, key: &RemoteKey) {
        self.retire_source(key);
    }

    #[inline]
    fn progress<S: Sink>(&mut self, sink: &mut S) -> usize {
        self.make_progress(sink)
    }

    #[inline]
    fn take_next<F>(&mut self, peer: Peer, turns: u32, take: F) -> bool
    where
        F: FnOnce(&[u8], &[u8]) -> bool,
    {
        self.take_by_ring(peer, turns, take)
    }

    fn arm(&mut self) -> Armed {
        let idle = self.found.is_empty() && self.done.is_empty() && self.troubled.is_empty();
        if !idle || self.broken.is_some() {
            return Armed::Ready;
        }
        self.channel.drain();
        let queues = [
            (Queue::Sends, &self.sends),
            (Queue::Arrivals, &self.arrivals),
            (Queue::Post, &self.post),
        ];
        for (name, queue) in queues {
            if queue.arm().is_err() {
                return Armed::PollOnly;
            }
            let mut one = [Wc::default()];
            if queue.poll(&mut one) != Some(0) {
                self.found.push_back((name, one[0]));
            }
        }
        let Verbs { rings, slots, .. } = self;
        let waits = |peer: &Peer| match &mut slots[peer.index()].link {
            Link::Up(conn) => conn.inbox().is_some_and(|inbox| inbox.has_some()),
            _ => false,
        };
        if !self.found.is_empty() || rings.iter().any(waits) {
            return Armed::Ready;
        }
        let unheard = !self.rings.is_empty();
        let starved = self.live.iter().any(|peer| match &self.slots[peer.index()].link {
            Link::Up(conn) => conn.is_starved(),
            _ => false,
        });
        let wait = if starved || unheard || !self.meeting.is_empty() || self.unflushed() > 0 {
            STARVED
        } else if self.config.probe.is_zero() {
            Duration::from_millis(100)
        } else {
            self.config.probe.min(Duration::from_millis(100))
        };
        if crate::sleep::set(&self.timer, wait).is_err() {
            return Armed::PollOnly;
        }
        self.look_soon();
        Armed::Wait(self.epoll.as_fd().as_raw_fd())
    }

    fn invalidate<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        if peer.index() < self.slots.len() {
            self.end(peer, Ending::Invalidated, residue, sink);
        }
    }

    fn exclude<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        if peer.0 < PEERS_MAX {
            self.slot(peer).excluded = true;
            self.invalidate(peer, residue, sink);
        }
    }

    fn unflushed(&self) -> usize {
        let out = |peer: &Peer| match &self.slots[peer.index()].link {
            Link::Up(conn) if conn.doom.is_none() => conn.frames_out(),
            _ => 0,
        };
        self.live.iter().map(out).sum()
    }

    fn depart(&mut self) {
        if self.departed {
            return;
        }
        let scratch = self.iwarp.as_ref().map(Iwarp::scratch);
        for peer in self.live.clone() {
            let me = self.me;
            if let Ok(conn) = self.conn(peer) {
                let bye = conn.prefix(Frame::Bye, me);
                // A peer that does not get it sees a failure, as it would of a lost network.
                let _ = conn.post_inline(Operation::Send, &bye, Work::Control, true);
                if let Some(scratch) = &scratch {
                    let _ = conn.ask(scratch);
                }
            }
        }
        self.departed = true;
    }

    fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    fn dump(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        writeln!(
            out,
            "verbs {}: {} up, {} meeting, {} in flight, {} slots free, {} receives, {} rings, {} bytes kept, {} paged, {} retired, down since {:?}, broken {:?}",
            self.caps.device,
            self.live.len(),
            self.meeting.len(),
            self.in_flight,
            self.buffers.free(),
            self.receives.count(),
            self.rings.len(),
            self.kept.bytes(),
            self.paged.iter().flatten().map(Paged::count).sum::<usize>(),
            self.open.bytes(),
            self.down_since.map(|since| since.elapsed()),
            self.broken
        )?;
        for (index, slot) in self.slots.iter().enumerate() {
            match &slot.link {
                Link::Closed => {}
                Link::Up(conn) => writeln!(out, "  peer {index}: {conn:?}")?,
                Link::Calling(meeting) => {
                    writeln!(
                        out,
                        "  peer {index}: calling, attempt {}, try {}",
                        slot.attempt, meeting.tries
                    )?;
                }
                Link::Answering(meeting) => {
                    writeln!(
                        out,
                        "  peer {index}: answering, attempt {}, try {}",
                        slot.seen, meeting.tries
                    )?;
                }
                Link::Failed(fault) => writeln!(out, "  peer {index}: {fault}")?,
                Link::Ending => writeln!(out, "  peer {index}: ending")?,
            }
        }
        Ok(())
    }
}

impl Drop for Verbs {
    fn drop(&mut self) {
        // Good-byes are on their way: a queue pair that is gone does not send them again.
        let start = Instant::now();
        let mut completions = [Wc::default(); 16];
        while self.departed && start.elapsed() < LINGER {
            let Some(count) = self.sends.poll(&mut completions) else { break };
            for completion in &completions[..count] {
                self.acknowledged(completion);
            }
            let waits = |peer: &Peer| match &self.slots[peer.index()].link {
                Link::Up(conn) => conn.doom.is_none() && !conn.works.is_empty(),
                _ => false,
            };
            if !self.live.iter().any(waits) {
                break;
            }
            std::thread::yield_now();
        }
        for slot in &mut self.slots {
            slot.link = Link::Closed;
        }
    }
}
