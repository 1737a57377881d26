//! The transport: the fast path, and the end of endpoints. How they begin is in `connect.rs`, how a quiet ring is parked in
//! `parking.rs`.

use crate::assist::Helper;
use crate::cma::{self, Gets, Registry};
use crate::config::{OpenError, ShmConfig, SingleCopy, Stores};
use crate::ending::Remains;
use crate::endpoint::{Endpoint, Incoming, Outgoing, Phase, Sent, Stranger};
use crate::host::Place;
use crate::inbox::{BELL_COUNT, INBOX_LEN, Inbox};
use crate::pieces::{self, Cut, pieces};
use crate::primitive::Ordering;
use crate::record::{Malformed, UNIT};
use crate::ring::{Full, Geometry, Reader};
use crate::warmth::Warmth;
use crate::ways::READ_MIN;
use crate::wire::{HandshakeKey, Message, PEER_MAX};
use crate::{segment, socket, trial};
use ironweave_btl::copy::{can_demote, pack, strings_are_quick};
use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_btl::{
    Address, Armed, Btl, Caps, Cause, Counters, Descriptor, EndpointState, FailureReport, Fault,
    HEADER_MAX, Peer, Read, Refused, RemoteKey, Residue, RmaDescriptor, Sink, Tiny,
};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::thread::{MembarrierCommand, membarrier};
use slab::Slab;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The component's name.
pub(crate) const NAME: &str = "shm";
/// Records taken from one ring before the next is looked at.
const BURST: usize = 32;
/// So many frames at once, …
const STREAM: usize = 4;
/// … of so many bytes of records each, are a stream …
const STREAM_BYTES: u64 = 256;
/// … whose reader, when it has read all there is, looks away for so many pauses of the processor, some 0.4 µs: else it takes each line of
/// the next frame from its writer as soon as a part of it is written. Measured in turns, windows of 512 bytes between near cores 5.0 to
/// 6.2 million messages a second, of 1 KiB the same; of 64 bytes it would be 14 to 11.
const LOOK_AWAY: u32 = 24;
/// Polls without a record after which a ring may be parked.
const IDLE_POLLS: u32 = 4096;
/// So many rings are polled for ever: looking at them costs less than parking them.
const ALWAYS_HOT: usize = 4;
/// Calls of `progress` between two looks at the clock, a power of two; and where calls are rare, since every process that
/// waits gives its core away.
const CLOCK_CALLS: u32 = 256;
const CLOCK_CALLS_CROWDED: u32 = 32;
/// Calls of `progress` between two looks at the sockets, whatever the clock says, a power of two.
const SOCKET_CALLS: u32 = 2048;
/// Who has not looked for longer did something else.
const LATELY: Duration = Duration::from_millis(5);
/// Of so many ended endpoints what is left is freed with one look.
const CLEARED_AT_ONCE: usize = 4;
/// Nothing is freed for so long after somebody looked who had something else to see to: the news of the next failure may come right then, and
/// freeing took 0.3 ms of the 1 ms in which that should be known (samples of late kills, one after the other).
const CALM: Duration = Duration::from_millis(5);
/// Unless so many endpoints have ended.
const REMAINS_MAX: usize = 64;
/// By how many rows the tables of peers grow.
const ROWS: usize = 64;
/// The longest frame, and the fragments of long messages: a window of 4 MiB went 5 % faster than with half of it, and another
/// 5 % with longer pieces (`pieces.rs`). Where strings move quickly 512 KiB: windows of 1 MiB and of 4 MiB 2 % faster, on Zen 5 in turns.
pub(crate) fn max_bcopy() -> usize {
    if strings_are_quick() { 512 << 10 } else { 256 << 10 }
}
/// Up to here messages are sent without asking, unless single copy is faster. With half of it 1 MiB, whose first bytes go with the question, took 1 % longer.
pub(crate) const EAGER_LIMIT: usize = 128 << 10;
/// The longest inline frame: beyond it, moving through the bulk area is faster.
const INLINE_MAX: usize = 1024 + HEADER_MAX;
/// The same where payloads are moved towards the reader ([`await_next`](crate::ring::Writer::await_next)), which does more for those that go to and fro in
/// shuttles: 512 bytes 0.36 to 0.30 µs, 1 KiB 0.68 to 0.40, windows of 1 KiB twice as fast, in turns on a Xeon of the fifth generation.
const INLINE_MAX_DEMOTING: usize = 512;

/// Tokens of the event queue: what became readable.
pub(crate) mod token {
    pub(crate) const LISTENER: u64 = 0;
    pub(crate) const STRANGER: u64 = 1 << 32;
    pub(crate) const PEER: u64 = 2 << 32;
}

/// The shared-memory transport of one process.
///
/// On the death of a peer: frames that it published whole are delivered, then the fault
/// [`Cause::ProcessGone`] with [`Scope::Peer`](ironweave_btl::Scope) is reported, then `closed`.
#[derive(Debug)]
pub struct Shm {
    /// By peer: the way out, while the endpoint is Up.
    pub(crate) tx: Vec<Option<Outgoing>>,
    /// By peer: the way in.
    pub(crate) rx: Vec<Option<Box<Incoming>>>,
    /// The peers whose rings are polled.
    pub(crate) hot: Vec<u32>,
    pub(crate) inbox: Inbox,
    /// Calls of `progress`.
    calls: u32,
    /// Looks at what came: calls of `progress`, and frames taken without it.
    round: u32,
    /// Look at the sockets in the next `progress`.
    pub(crate) urgent: bool,
    /// The inbox says that we sleep.
    pub(crate) asleep: bool,
    pub(crate) counters: Arc<Counters>,
    pub(crate) warmth: Warmth,
    pub(crate) caps: Caps,
    max_inline: usize,

    pub(crate) me: Peer,
    pub(crate) key: HandshakeKey,
    pub(crate) geometry: Geometry,
    pub(crate) stores: Stores,
    /// There are more processes than cores.
    pub(crate) crowded: bool,
    /// The clock is looked at when these bits of `calls` are 0.
    clock_mask: u32,
    pub(crate) place: Place,
    pub(crate) listener: OwnedFd,
    pub(crate) events: OwnedFd,
    pub(crate) inbox_file: OwnedFd,
    /// We park with a barrier on all writers, and are reachable by others'.
    pub(crate) barrier: bool,
    pub(crate) reachable: bool,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) strangers: Slab<Stranger>,
    /// By bell: whose it is.
    pub(crate) bells: Vec<Option<Peer>>,
    /// Endpoints that time or a retry will move: dialling again, or waiting for a verdict.
    pub(crate) timed: Vec<Peer>,
    /// Endpoints in mid-handshake: sockets are looked at often.
    pub(crate) dialling: Vec<Peer>,
    pub(crate) departed: bool,
    pub(crate) registry: Registry,
    pub(crate) gets: Gets,
    /// Gets that failed before they began, to be reported.
    pub(crate) stillborn: Vec<(RmaDescriptor, Cause)>,
    /// The kernel refused to read a peer's memory.
    pub(crate) get_refused: bool,
    /// What the ring takes, in picoseconds a byte, as [`SingleCopy::Under`] has it: reads have to be faster.
    pub(crate) ring_ps: [u32; 2],
    /// Bytes that may be read at once before the next `progress`.
    pub(crate) read_budget: usize,
    /// What ended endpoints left.
    pub(crate) remains: Vec<Remains>,
    /// Peers were to be told with the last look, and wait for the next.
    put_off: bool,
    /// The last look of somebody who had something else to see to.
    occupied: Instant,
    /// Endpoints found broken where no sink was at hand.
    pub(crate) broken: Vec<(Peer, Fault)>,
    looked: Instant,
}

impl Shm {
    /// Opens the transport: a listening socket, an inbox, no ring yet. Does not block.
    ///
    /// # Errors
    /// When a size is out of its range or the operating system refuses.
    pub fn open(config: ShmConfig) -> Result<Shm, OpenError> {
        let geometry = Geometry::new(config.ring_bytes as u64, config.bulk_bytes as u64)
            .filter(|_| config.ring_bytes >= 16 << 10)
            .ok_or(OpenError::Size { what: "a ring", value: config.ring_bytes })?;
        if config.bulk_bytes < 64 << 10 {
            return Err(OpenError::Size { what: "a bulk area", value: config.bulk_bytes });
        }
        if config.me.0 > PEER_MAX {
            return Err(OpenError::Other(format!(
                "{} is beyond the limit of {PEER_MAX}",
                config.me
            )));
        }
        let os = |call| move |errno: Errno| OpenError::Os { call, errno: errno.raw_os_error() };
        raise_descriptor_limit();
        let place = Place::fresh().map_err(|(call, errno)| os(call)(errno))?;
        let listener = socket::listen(place.name()).map_err(os("bind"))?;
        let events = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(os("epoll_create"))?;
        epoll::add(
            &events,
            &listener,
            epoll::EventData::new_u64(token::LISTENER),
            epoll::EventFlags::IN,
        )
        .map_err(os("epoll_ctl"))?;
        let (shared, inbox_file) = segment::create("ironweave-inbox", INBOX_LEN)
            .map_err(|cause| OpenError::Other(cause.to_string()))?;
        let reachable = membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok();
        let single_copy = single_copy_under(config.single_copy);
        if single_copy.is_some() {
            cma::permit();
        }
        let max_inline = if can_demote() { INLINE_MAX_DEMOTING } else { INLINE_MAX };
        let max_inline = max_inline.min(geometry.inline_max());
        let max_bcopy = geometry
            .bulk_max()
            .min(max_bcopy())
            .min(geometry.ring() / 8 / UNIT * pieces::longest());
        Ok(Shm {
            tx: Vec::new(),
            rx: Vec::new(),
            hot: Vec::new(),
            inbox: Inbox::new(shared),
            calls: 0,
            round: 0,
            urgent: false,
            asleep: false,
            counters: Arc::default(),
            warmth: Warmth::new(),
            caps: Caps {
                name: NAME,
                device: String::from("memory"),
                max_short: max_inline,
                max_bcopy,
                max_zcopy: 0,
                zcopy_from: ironweave_btl::ZCOPY_FROM,
                eager_limit: max_bcopy.min(EAGER_LIMIT),
                posted_limit: max_bcopy.min(EAGER_LIMIT),
                rndv_eager_limit: max_bcopy.min(EAGER_LIMIT),
                fragment: max_bcopy,
                put: false,
                get: single_copy.is_some(),
                atomics: false,
                read_from: single_copy.map_or(usize::MAX, |_| read_from(config.oversubscribed)),
                ordered: true,
                lossless: true,
                latency_ns: 60,
                bandwidth_mbs: 20_000,
                exclusivity: 65_535,
                failure_report: FailureReport::Prompt,
            },
            max_inline,
            me: config.me,
            key: HandshakeKey::new(&config.secret, &config.job),
            geometry,
            stores: config.stores,
            crowded: config.oversubscribed,
            clock_mask: if config.oversubscribed { CLOCK_CALLS_CROWDED } else { CLOCK_CALLS } - 1,
            place,
            listener,
            events,
            inbox_file,
            barrier: reachable && !config.oversubscribed,
            reachable,
            endpoints: Vec::new(),
            strangers: Slab::new(),
            bells: Vec::new(),
            timed: Vec::new(),
            dialling: Vec::new(),
            departed: false,
            registry: Registry::new(),
            gets: Gets::default(),
            stillborn: Vec::new(),
            get_refused: false,
            read_budget: cma::BUDGET,
            ring_ps: single_copy.unwrap_or_default(),
            remains: Vec::new(),
            put_off: false,
            occupied: Instant::now(),
            broken: Vec::new(),
            looked: Instant::now(),
        })
    }

    /// The row of `peer` in the tables.
    pub(crate) fn endpoint(&mut self, peer: Peer) -> &mut Endpoint {
        debug_assert!(peer.0 <= PEER_MAX, "{peer} was not checked");
        let row = peer.index();
        if self.endpoints.len() <= row {
            // Not one by one: the first that is heard of a peer may be that it is dead, when others wait for this core.
            let rows = (row + 1).next_multiple_of(ROWS);
            self.endpoints.resize_with(rows, Endpoint::default);
            self.tx.resize_with(rows, || None);
            self.rx.resize_with(rows, || None);
        }
        &mut self.endpoints[row]
    }

    /// Why nothing can be sent to `peer`.
    #[cold]
    pub(crate) fn refusal(&self, peer: Peer) -> Refused {
        match self.state(peer) {
            EndpointState::Connecting => Refused::Connecting,
            _ => Refused::Closed,
        }
    }

    #[cold]
    fn full(&mut self, peer: Peer, full: Full) -> Refused {
        self.counters.refused.add(1);
        if full == Full::Broken {
            self.break_off(peer, Fault::rail(peer, Cause::Malformed("reader's index")));
        }
        Refused::NoRoom
    }

    /// The ring to `peer` is of no use; `progress` reports it.
    pub(crate) fn break_off(&mut self, peer: Peer, fault: Fault) {
        if let Some(row) = self.tx.get_mut(peer.index()) {
            *row = None;
        }
        self.broken.push((peer, fault));
        self.urgent = true;
    }

    /// Looks at what is not memory: sockets, processes, retries. Costs a system call.
    #[cold]
    fn look<S: Sink>(&mut self, sink: &mut S) -> usize {
        let now = Instant::now();
        let last = std::mem::replace(&mut self.looked, now);
        // Whoever looks for the first time after a while, or because something happened, has that to see to first.
        let occupied = std::mem::take(&mut self.urgent) || now.duration_since(last) > LATELY;
        if occupied {
            self.occupied = now;
        }
        self.put_off = occupied && !self.put_off;
        if !self.put_off {
            let calm = now.duration_since(self.occupied) >= CALM;
            let free = calm || self.remains.len() > REMAINS_MAX;
            self.clear_away(if free { CLEARED_AT_ONCE } else { 0 });
        }
        let mut reports = 0;
        for (peer, fault) in std::mem::take(&mut self.broken) {
            reports += self.end(peer, Some(fault), Residue::Deliver, Some(Message::Sever), sink);
        }
        let mut ready: Vec<epoll::Event> = Vec::with_capacity(64);
        let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        // EINTR and the like: the next look will tell.
        let _ = epoll::wait(&self.events, rustix::buffer::spare_capacity(&mut ready), Some(&zero));
        self.urgent |= ready.len() == ready.capacity();
        for event in ready {
            let data = event.data.u64();
            let index = data as u32;
            match data & !0xffff_ffff {
                token::LISTENER => self.accept(),
                token::STRANGER => reports += self.hear_stranger(index as usize, sink),
                _ => reports += self.hear_peer(Peer(index), now, sink),
            }
        }
        for peer in std::mem::take(&mut self.timed) {
            reports += self.tick(peer, now, sink);
        }
        let Shm { dialling, endpoints, .. } = self;
        dialling.retain(|peer| endpoints[peer.index()].state() == EndpointState::Connecting);
        reports
    }
}

/// Reads of peers' memory go on while they take less than so many picoseconds a byte; `None`: there are none.
fn single_copy_under(choice: SingleCopy) -> Option<[u32; 2]> {
    if choice == SingleCopy::None || !cma::is_permitted() {
        return None;
    }
    match if choice == SingleCopy::Auto { trial::chosen() } else { choice } {
        SingleCopy::Under(ps) => Some(ps),
        SingleCopy::Cma => Some([u32::MAX; 2]),
        SingleCopy::Auto | SingleCopy::None => None,
    }
}

/// The shortest messages that may be read, in bytes. Where processes share cores the answer takes a turn of the scheduler more: an exchange of
/// 32 KiB among four on two cores took 26 instead of 21 µs.
fn read_from(crowded: bool) -> usize {
    if crowded { 2 * READ_MIN } else { READ_MIN }
}

/// Each peer takes two descriptors: allow as many as the operating system lets us.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(errno) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!(%errno, "the limit of descriptors stays");
        }
    }
}

impl Btl for Shm {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn address(&self) -> Address {
        use zerocopy::IntoBytes;
        Address { component: NAME.into(), rail: 0, bytes: self.place.as_bytes().to_vec() }
    }

    fn connect(&mut self, peer: Peer, address: &Address) -> Result<(), Fault> {
        let unreachable = || Fault::rail(peer, Cause::Unreachable);
        if address.component != NAME || peer == self.me || peer.0 > PEER_MAX {
            return Err(unreachable());
        }
        let place = Place::decode(&address.bytes).ok_or_else(unreachable)?;
        if !place.is_on_host_of(&self.place) || self.endpoint(peer).excluded {
            return Err(unreachable());
        }
        if self.departed {
            return Err(Fault::rail(peer, Cause::Finalized));
        }
        match self.endpoint(peer).phase {
            Phase::Closed => self.dial(peer, place),
            Phase::Lending { .. } => return Err(unreachable()),
            _ => {}
        }
        Ok(())
    }

    fn state(&self, peer: Peer) -> EndpointState {
        self.endpoints.get(peer.index()).map_or(EndpointState::Closed, Endpoint::state)
    }

    #[inline]
    fn send_short(&mut self, peer: Peer, header: &[u8], payload: &[u8]) -> Result<(), Refused> {
        let Some(Some(outgoing)) = self.tx.get_mut(peer.index()) else {
            return Err(self.refusal(peer));
        };
        if header.len() + payload.len() > self.max_inline {
            return Err(Refused::TooLong { max: self.max_inline });
        }
        let writer = &mut outgoing.writer;
        let sent = if payload.len() < writer.bulk_from() {
            writer.send_inline(header, payload.len(), |shared, at| shared.write(at, payload))
        } else {
            writer.send_bulk(
                header,
                payload.len(),
                None,
                pieces(payload.len(), Cut::Streamed),
                |at, piece| {
                    pack(piece, &payload[at..at + piece.len()]);
                },
            )
        };
        match sent {
            Ok(()) => {
                outgoing.sent = Sent::Short;
                if outgoing.writer.reader_parked() {
                    self.ring_bell(peer);
                } else if outgoing.last_round == self.round {
                    outgoing.writer.claim_for_burst();
                } else {
                    outgoing.last_round = self.round;
                }
                self.counters.frames_sent.add(1);
                self.counters.bytes_sent.add(payload.len() as u64);
                Ok(())
            }
            Err(full) => Err(self.full(peer, full)),
        }
    }

    #[inline]
    fn send_bcopy<P>(
        &mut self,
        peer: Peer,
        header: &[u8],
        len: usize,
        mut fill: P,
    ) -> Result<(), Refused>
    where
        P: FnMut(usize, &mut [u8]),
    {
        let Some(Some(outgoing)) = self.tx.get_mut(peer.index()) else {
            return Err(self.refusal(peer));
        };
        let streamed = len >= outgoing.writer.bulk_from();
        let inline = header.len() + len <= self.max_inline && !streamed;
        let sent = if inline {
            outgoing
                .writer
                .send_inline(header, len, |shared, at| shared.with_mut(at, len, |b| fill(0, b)))
        } else if len <= self.caps.max_bcopy {
            let incoming = self.rx.get_mut(peer.index()).and_then(Option::as_mut);
            let shuttles = incoming.map(|incoming| &mut incoming.shuttles);
            pieces::send(&mut outgoing.writer, shuttles, self.crowded, header, len, fill)
        } else {
            return Err(Refused::TooLong { max: self.caps.max_bcopy });
        };
        match sent {
            Ok(()) => {
                outgoing.sent = Sent::Payload;
                if outgoing.writer.reader_parked() {
                    self.ring_bell(peer);
                }
                self.counters.frames_sent.add(1);
                self.counters.bytes_sent.add(len as u64);
                Ok(())
            }
            Err(full) => Err(self.full(peer, full)),
        }
    }

    fn send_zcopy(&mut self, descriptor: Descriptor) -> Result<(), (Refused, Descriptor)> {
        // Copying into the ring is all there is to sending: nothing to leave in user memory.
        Err((Refused::Unsupported, descriptor))
    }

    fn rma(&mut self, descriptor: RmaDescriptor) -> Result<(), (Refused, RmaDescriptor)> {
        self.begin_get(descriptor)
    }

    #[inline]
    fn read_now(&mut self, descriptor: &RmaDescriptor) -> Read {
        self.get_at_once(descriptor)
    }

    #[inline]
    fn assist(&mut self, peer: Peer) -> bool {
        self.registry.lends_to(peer) && self.assist_one(peer)
    }

    fn is_read(&mut self, peer: Peer, len: usize, _: bool) -> bool {
        let Some(Some(outgoing)) = self.tx.get_mut(peer.index()) else { return true };
        outgoing.choice.offers(len, outgoing.writer.complaints())
    }

    fn register_source(&mut self, peer: Peer, region: &SendRegion) -> Result<RemoteKey, Refused> {
        if !self.caps.get || self.get_refused {
            return Err(Refused::Unsupported);
        }
        let outgoing = self.tx.get(peer.index()).and_then(Option::as_ref);
        let heard = outgoing.map_or(0, |outgoing| outgoing.choice.heard(region.len()));
        self.registry.add(&self.inbox, peer, region, heard)
    }

    fn deregister(&mut self, key: &RemoteKey) {
        self.registry.remove(&self.inbox, key);
    }

    fn retire(&mut self, key: &RemoteKey) {
        self.registry.retire(key);
    }

    #[inline]
    fn progress<S: Sink>(&mut self, sink: &mut S) -> usize {
        let mut reports = 0;
        self.read_budget = cma::BUDGET;
        if self.asleep {
            self.asleep = false;
            self.inbox.awake();
        }
        if self.inbox.rang() {
            self.answer_bells();
        }
        let mut at = 0;
        while at < self.hot.len() {
            let peer = Peer(self.hot[at]);
            let Some(Some(incoming)) = self.rx.get_mut(peer.index()) else {
                self.hot.swap_remove(at);
                continue;
            };
            at += 1;
            // One look, and the shortest way out of it: this is what a process does that waits.
            if !incoming.reader.is_ready() {
                incoming.idle += 1;
                if incoming.idle > IDLE_POLLS && self.hot.len() > ALWAYS_HOT {
                    self.park(at - 1);
                }
                continue;
            }
            if let Some(Some(outgoing)) = self.tx.get_mut(peer.index())
                && outgoing.sent == Sent::Short
                && outgoing.writer.is_far()
            {
                outgoing.sent = Sent::Nothing;
                outgoing.writer.claim_next();
            }
            // A frame that came alone is handed up at once: looking for another one fetches, half of the time, the next line
            // from the writer's cache, and no store of an answer is seen by others before that line is here.
            let most = if incoming.idle == 0 { BURST } else { 1 };
            incoming.idle = 0;
            if let Some(manner) = incoming.manners.strayed() {
                incoming.reader.say(manner);
            }
            let mut taken = 0;
            let began = incoming.reader.position();
            let end = loop {
                let Incoming { reader, shuttles, .. } = &mut **incoming;
                match reader.poll(peer, sink, &self.counters, &mut self.warmth, shuttles) {
                    Ok(true) => {
                        taken += 1;
                        if taken > 2 {
                            incoming.reader.fetch_ahead();
                        }
                        if taken >= most && !(incoming.reader.is_amid() && taken < BURST) {
                            break Ok(());
                        }
                    }
                    Ok(false) => break Ok(()),
                    Err(malformed) => break Err(malformed),
                }
            };
            reports += taken;
            let bytes = incoming.reader.position() - began;
            let stream = (STREAM..BURST).contains(&taken) && bytes >= STREAM_BYTES * taken as u64;
            if stream && self.hot.len() == 1 && !self.crowded {
                (0..LOOK_AWAY).for_each(|_| std::hint::spin_loop());
            }
            if let Err(Malformed(what)) = end {
                self.counters.rejected.add(1);
                self.hot.retain(|&hot| hot != peer.0);
                self.break_off(peer, Fault::rail(peer, Cause::Malformed(what)));
            }
        }
        if self.registry.is_lending() {
            reports += self.assist_all();
        }
        if !self.gets.is_empty() || !self.stillborn.is_empty() {
            reports += self.progress_gets(sink);
        }
        self.calls = self.calls.wrapping_add(1);
        self.round = self.round.wrapping_add(1);
        if self.urgent || self.calls & self.clock_mask == 0 {
            let waiting =
                !self.timed.is_empty() || !self.dialling.is_empty() || !self.strangers.is_empty();
            if self.urgent
                || waiting
                || self.calls.is_multiple_of(SOCKET_CALLS)
                || self.looked.elapsed() >= Duration::from_millis(1)
            {
                reports += self.look(sink);
            }
        }
        reports
    }

    #[inline(always)]
    fn take_next<F>(&mut self, peer: Peer, turns: u32, take: F) -> bool
    where
        F: FnOnce(&[u8], &[u8]) -> bool,
    {
        let Some(Some(incoming)) = self.rx.get_mut(peer.index()) else { return false };
        let outgoing = self.tx.get(peer.index()).and_then(Option::as_ref);
        let helper = outgoing.map(|it| &it.helper).filter(|_| self.registry.lends_to(peer));
        let mut left = turns;
        while !incoming.reader.is_ready() {
            if left == 0 || helper.is_some_and(Helper::is_asked) {
                return false;
            }
            left -= 1;
            // Not in haste: a line that is asked for again and again comes 20 ns later, and its writer gets it later, too.
            std::hint::spin_loop();
        }
        if let Some(Some(outgoing)) = self.tx.get_mut(peer.index())
            && outgoing.sent == Sent::Short
            && outgoing.writer.is_far()
        {
            outgoing.sent = Sent::Nothing;
            outgoing.writer.claim_next();
        }
        incoming.idle = 0;
        self.round = self.round.wrapping_add(1);
        incoming.reader.take_inline(&self.counters, take)
    }

    #[inline(always)]
    fn send_tiny(&mut self, peer: Peer, header: [u64; 2], payload: &[u8]) -> bool {
        let Some(Some(outgoing)) = self.tx.get_mut(peer.index()) else { return false };
        if !outgoing.writer.send_tiny(header, payload) {
            return false;
        }
        outgoing.sent = Sent::Short;
        if outgoing.writer.reader_parked() {
            self.ring_bell(peer);
        } else if outgoing.last_round == self.round {
            outgoing.writer.claim_for_burst();
        } else {
            outgoing.last_round = self.round;
        }
        self.counters.frames_sent.add(1);
        self.counters.bytes_sent.add(payload.len() as u64);
        true
    }

    #[inline(always)]
    fn take_tiny(&mut self, peer: Peer, turns: u32, header: [u64; 2], into: &RecvRegion) -> Tiny {
        let Some(Some(incoming)) = self.rx.get_mut(peer.index()) else { return Tiny::Left };
        let Some(spot) = incoming.reader.next() else { return Tiny::Left };
        // Asked before the wait, not after it.
        let asks = |outgoing: &&mut Outgoing| outgoing.sent != Sent::Nothing;
        let mut outgoing = self.tx.get_mut(peer.index()).and_then(Option::as_mut).filter(asks);
        let claims = |outgoing: &Outgoing| outgoing.sent == Sent::Short && outgoing.writer.is_far();
        let claims = outgoing.as_deref().is_some_and(claims);
        let mut left = turns;
        // One of the two decides how both hand lines over.
        let leads = self.me < peer;
        if let Some(outgoing) = &mut outgoing
            && turns > 0
        {
            let manner = if leads { incoming.manners.now() } else { outgoing.writer.manner() };
            outgoing.writer.await_next(manner.moves());
            (0..manner.pauses()).for_each(|_| std::hint::spin_loop());
        }
        let word = loop {
            // Acquire: what the writer wrote before it published the word.
            let word = spot.word().load(Ordering::Acquire);
            if word != 0 {
                break word;
            }
            if left == 0 {
                return Tiny::Left;
            }
            left -= 1;
            // Not in haste: a line that is asked for again and again comes 20 ns later, and its writer gets it later, too.
            std::hint::spin_loop();
        };
        if let Some(outgoing) = outgoing {
            outgoing.sent = Sent::Nothing;
            if claims {
                outgoing.writer.claim_next();
            }
            if leads && let Some(manner) = incoming.manners.answered() {
                incoming.reader.say(manner);
            }
        }
        let len = match Reader::copy_tiny(spot, word, header, into) {
            Some(len) => {
                incoming.reader.pass(len);
                len
            }
            None => {
                let Incoming { reader, shuttles, .. } = &mut **incoming;
                let Some(len) = reader.take_whole(word, header, into, shuttles) else {
                    return Tiny::Left;
                };
                len
            }
        };
        incoming.idle = 0;
        self.round = self.round.wrapping_add(1);
        self.counters.frames_received.add(1);
        self.counters.bytes_received.add(len as u64);
        Tiny::Taken(len)
    }

    #[inline]
    fn is_silent(&self, peer: Peer) -> bool {
        // The way out is closed as soon as the endpoint is not up.
        let up = matches!(self.tx.get(peer.index()), Some(Some(_)));
        let incoming = self.rx.get(peer.index());
        up && matches!(incoming, Some(Some(incoming)) if !incoming.reader.is_ready())
    }

    fn arm(&mut self) -> Armed {
        self.lie_down()
    }

    fn invalidate<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        if self.state(peer) != EndpointState::Closed {
            self.end(peer, None, residue, Some(Message::Sever), sink);
        }
    }

    fn exclude<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        if peer.0 <= PEER_MAX {
            self.endpoint(peer).excluded = true;
            self.invalidate(peer, residue, sink);
        }
    }

    fn depart(&mut self) {
        self.departed = true;
        for (row, endpoint) in self.endpoints.iter().enumerate() {
            if let Phase::Up(session) = &endpoint.phase {
                self.tx[row] = None;
                let _ = socket::send(&session.socket, &Message::Goodbye, &[]); // it may be gone
            }
        }
    }

    fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    fn dump(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        writeln!(
            out,
            "shm of {}: {} rings polled, {} gets, {} strangers, bells {}, {:?}",
            self.me,
            self.hot.len(),
            self.gets.len(),
            self.strangers.len(),
            if self.inbox.rang() { "rang" } else { "silent" },
            self.counters.rows(),
        )?;
        for (row, endpoint) in self.endpoints.iter().enumerate() {
            if endpoint.excluded || !matches!(endpoint.phase, Phase::Closed) {
                let (tx, rx) = (&self.tx[row], &self.rx[row]);
                writeln!(out, "  peer {row}: {endpoint:?} out {tx:?} in {rx:?}")?;
            }
        }
        Ok(())
    }
}

const _: () = assert!(BELL_COUNT <= u32::MAX as usize && INLINE_MAX > HEADER_MAX);
