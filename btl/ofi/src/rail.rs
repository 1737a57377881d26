//! The transport: one libfabric endpoint on one domain, driven as the BTL contract wants it.
//!
//! Everything that is sent is in the port's memory before the provider sees it: small messages are injected, longer ones
//! packed into its buffers. No provider can be made to let go of one peer's operations while it lives on for the others;
//! so the port's endpoint never has anything of the user's to let go of. Long messages are read by their receiver, out of
//! the sender's memory and straight into the receiver's, over an endpoint of their own that is closed first when the
//! connection ends (`reads`), or sent over it in the same way (`leads`): so a life ends at once, whether its peer lives or not (law 2).
//! What the provider still holds for a life that is over are buffers of ours, and their completions find no endpoint.

use crate::blob::Blob;
use crate::config::{OfiConfig, OpenError, choose};
use crate::core::{Core, End};
use crate::endpoint::{Endpoint, Phase, Waiting, window_units};
use crate::leading::copy_regions;
use crate::leads::{self, Leads};
use crate::pieces;
use crate::provider::{Answers, Place, Provider, Verdict, judge};
use crate::reads::{Key, Reads};
use crate::wire::{
    GREETING_MAX, Greeter, Kind, LEAD_MAX, NAME_MAX, PEERS_MAX, PREFIX, Prefix, cost, job_key,
};
use crate::{NAME, lend};
use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_btl::secret::random;
use ironweave_btl::{
    Address, Armed, Btl, Caps, Cause, Counters, Descriptor, EndpointState, FailureReport, Fault,
    HEADER_MAX, Peer, Refused, RemoteKey, Residue, RmaDescriptor, RmaKind, Sink, Token,
};
use ironweave_ffi::ofi::{Info, Look, Ofi as Library, Options, Port, Slot};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use zerocopy::IntoBytes;

/// Longest frame, header and payload, that is sent by `send_short`, in bytes.
const MAX_SHORT: usize = 1024;
/// Buffers of the small class, and their length in bytes: control messages and short frames.
const SMALL: (usize, usize) = (256, 2048);
/// Bytes of long buffers, and as many of those for reads where these are longer.
const LONG_BYTES: usize = 4 << 20;
/// Receive buffers for many messages each: how many, of how many bytes.
const RECEIVE: (usize, usize) = (8, 512 << 10);
/// The same where messages wait in the kernel: few, so that they stay in a core's cache.
const RECEIVE_CACHED: (usize, usize) = (4, 192 << 10);
/// Receive buffers of all lanes, and of how many bytes: for the 16 that there are at once, and some that the queue may still name.
const LANE_RECEIVES: (usize, usize) = (40, 144 << 10);
/// Bytes of receive buffers for one message each.
const RECEIVE_SINGLE: usize = 4 << 20;
/// Looks for what has arrived at the end of a connection: at most, and so many in a row that see nothing. A provider takes a message out of
/// its socket in steps, one each look: the head of it and what comes with that, a part that lies in one segment, the rest.
const LOOKS: (u32, u32) = (512, 4);
/// Bytes of input that sockets get where the provider peeks: many times what a segment keeps in use.
pub(crate) const ROOM: usize = 1 << 20;

/// One rail: an endpoint of a libfabric provider on one domain.
pub struct Ofi {
    /// `None` after the device was lost.
    pub(crate) port: Option<Port>,
    pub(crate) core: Core,
    caps: Caps,
    pub(crate) blob: Blob,
    pub(crate) config: OfiConfig,
    pub(crate) provider: Provider,
    /// Where short frames are put together.
    scratch: Box<[u8]>,
    inject: usize,
    /// Payloads that are longer go in pieces of at most so many bytes.
    pub(crate) piece: usize,
    /// The buffers of their messages, while they are filled.
    slots: Vec<Slot>,
    /// Longest piece of a read that goes by way of a buffer.
    pub(crate) read_piece: usize,
    pub(crate) ticks: u32,
    pub(crate) stamp: u64,
}

impl Ofi {
    /// Opens the rails that `config` asks for: one for each domain of the best provider that is left.
    ///
    /// # Errors
    /// In words: no library, no provider, or what the provider says.
    pub fn open_all(config: &OfiConfig) -> Result<Vec<Ofi>, OpenError> {
        if !(1024..=8 << 20).contains(&config.eager) {
            return Err(OpenError::FrameSize(config.eager));
        }
        let least = 2 * (config.eager + 4096);
        if config.window < least {
            return Err(OpenError::Window { is: config.window, least, frame: config.eager });
        }
        let library = match &config.library {
            Some(name) => Library::open_named(name)?,
            None => Library::open()?,
        };
        let ways = choose(library, config)?;
        let rails = ways.into_iter().enumerate();
        let about = (library.version(), library.saves_messages());
        rails.map(|(rail, way)| Self::open(config, rail as u16, way, about)).collect()
    }

    fn open(
        config: &OfiConfig,
        rail: u16,
        mut info: Info,
        (version, saves): ((u32, u32), bool),
    ) -> Result<Ofi, OpenError> {
        let random = random().map(u64::from_le_bytes).map_err(OpenError::Random)?;
        let incarnation = random | 1;
        let provider = Provider::of(&info.provider());
        if provider.files && info.addresses_are_text() {
            // So that what is left of a killed process can be told apart from others'.
            let name = format!("{}-{}-{}-{rail}", config.job, config.me.0, std::process::id());
            info.set_source_text(&name);
        }
        if let (0, Some(address)) = (rail, &config.address) {
            info.set_source(address);
        }
        let piece = provider.pieces.max(config.eager.div_ceil(pieces::MOST).next_multiple_of(64));
        let longest = match piece < config.eager {
            true => LEAD_MAX + pieces::WHOLE + piece,
            false => LEAD_MAX + config.eager,
        };
        let longest = longest.min(info.max_message()).min(provider.one_piece);
        let count = |len: usize| ((LONG_BYTES / len).max(8), len);
        let read_piece = longest.max(provider.read_piece.min(info.max_message()));
        let mut buffers = vec![SMALL, count(longest)];
        if provider.answers != Answers::Never && read_piece > longest {
            buffers.push(count(read_piece));
        }
        let multi_recv = provider.multi_recv.holds(version);
        let receive = if provider.hardware { RECEIVE } else { RECEIVE_CACHED };
        let in_pieces = piece < config.eager && longest == LEAD_MAX + pieces::WHOLE + piece;
        let leads = provider.leads && multi_recv && in_pieces && !saves;
        if leads {
            info.want_tags();
        }
        // In pieces it has room, too.
        if provider.atomics {
            info.want_atomics();
        }
        let longest_led =
            if leads { leads::LONGEST.min(config.window / 2).max(config.eager) } else { 0 };
        let options = Options {
            buffers,
            receives: match multi_recv {
                true => receive.0,
                false => (RECEIVE_SINGLE / longest).clamp(16, info.queue_sizes().1.max(16)),
            },
            receive_len: receive.1.max(2 * longest),
            multi_recv,
            longest,
            lane_receives: if leads { LANE_RECEIVES } else { (0, 0) },
            lane_longest: LEAD_MAX + (pieces::WHOLE + leads::FIRST).max(leads::LENT_MAX),
            peers: config.peers,
            waitable: config.waitable && provider.waits,
            closes: provider.closes,
            early_completions: provider.early_completions,
        };
        let (name, domain) = (info.provider(), info.domain());
        let failed =
            |error| OpenError::Provider { provider: name.clone(), domain: domain.clone(), error };
        let port = Port::open(info, options).map_err(failed)?;
        if provider.peeks {
            port.make_room(port.name(), ROOM);
        }
        let info = port.info();
        if port.name().len() > NAME_MAX {
            return Err(OpenError::Name(port.name().len()));
        }
        let eager = if in_pieces { config.eager } else { longest - LEAD_MAX };
        let mut caps = caps(&provider, info, eager, leads::LENT_FROM.min(piece)..longest_led);
        caps.atomics = port.has_atomics();
        let blob = Blob {
            format: info.addr_format(),
            protocol: info.protocol(),
            incarnation,
            pid: std::process::id(),
            provider: info.provider(),
            name: port.name().to_vec(),
        };
        let inject = info.inject_size().min(PREFIX + MAX_SHORT);
        let core = Core {
            who: Greeter { rail, me: config.me.0, incarnation, pid: std::process::id() },
            key: job_key(&config.secret, &config.job),
            window: window_units(config.window),
            longest: if in_pieces { eager.max(longest_led) } else { 0 },
            longest_led,
            eager,
            peers: Vec::new(),
            controls: Default::default(),
            due: Vec::new(),
            waiting: Vec::new(),
            unused: Vec::new(),
            greetings: Vec::new(),
            lane_news: Vec::new(),
            failing: Vec::new(),
            ending: Vec::new(),
            met: Vec::new(),
            watched: Vec::new(),
            ended: Vec::new(),
            stale: Vec::new(),
            reads: Reads::new(config.me.0, provider.answers == Answers::ByLanes, config.heads),
            leads: Leads::new(),
            wrong_reads: Vec::new(),
            counters: Arc::default(),
            reports: 0,
            departed: None,
        };
        Ok(Ofi {
            port: Some(port),
            core,
            caps,
            blob,
            config: config.clone(),
            provider,
            scratch: vec![0; PREFIX + MAX_SHORT].into(),
            inject,
            piece: if in_pieces { piece } else { eager },
            slots: Vec::with_capacity(pieces::MOST),
            read_piece,
            ticks: 0,
            stamp: 0,
        })
    }

    /// Sends a message that is in a buffer; it is taken whatever the provider says.
    fn launch(&mut self, peer: Peer, slot: Slot, len: usize) {
        let (Some(port), Some(ep)) =
            (self.port.as_mut(), self.core.peers[peer.index()].ep.as_deref_mut())
        else {
            return;
        };
        if !ep.backlog.is_empty() {
            return ep.backlog.push_back(Waiting { slot, len }); // after its frame's first piece
        }
        match port.send(slot, len, ep.to, ep.token) {
            Ok(()) => ep.flying += 1,
            Err((error, slot)) => {
                ep.backlog.push_back(Waiting { slot, len });
                let life = ep.token;
                self.core.waiting.push(peer.0);
                self.no_room(life, judge(Place::Call, error));
            }
        }
    }

    /// The provider did not take something of that life.
    #[cold]
    pub(crate) fn no_room(&mut self, life: u64, verdict: Verdict) {
        let Some((peer, ep)) = self.core.live(life) else { return };
        match verdict {
            Verdict::Rail(cause) => self.core.failing.push((life, Fault::rail(peer, cause))),
            Verdict::Device(cause) => self.core.failing.push((0, Fault::device(cause))),
            Verdict::Later | Verdict::Discard => {
                if ep.stuck.is_none() {
                    ep.stuck = Some(Instant::now());
                    self.core.watched.push(life);
                }
                self.core.counters.retried.add(1);
            }
        }
    }

    /// The endpoint that takes frames for `peer`.
    #[inline]
    pub(crate) fn sendable(&mut self, peer: Peer) -> Result<&mut Endpoint, Refused> {
        let place = self.core.peers.get_mut(peer.index());
        let ep = place.and_then(|place| place.ep.as_deref_mut()).ok_or(Refused::Closed)?;
        match ep.phase {
            Phase::Up => Ok(ep),
            // Also when the peer greeted and the layer above does not know yet: it will, in a moment.
            Phase::Dialing | Phase::Answering => Err(Refused::Connecting),
        }
    }

    /// A buffer with the prefix and header of a frame whose payload has `len` bytes.
    #[inline]
    fn prepare(&mut self, peer: Peer, header: &[u8], len: usize) -> Result<Slot, Refused> {
        let total = PREFIX + header.len() + len;
        let window = self.core.window;
        let room = self.sendable(peer)?.has_room(total, window);
        let slot = match (room, self.port.as_mut()) {
            (true, Some(port)) => port.buffer(total),
            _ => None,
        };
        let (Some(slot), Some(port)) = (slot, self.port.as_mut()) else {
            self.core.counters.refused.add(1);
            return Err(Refused::NoRoom);
        };
        let ep = self.core.peers[peer.index()].ep.as_deref_mut().ok_or(Refused::Closed)?;
        let credits = ep.take_owed();
        let number = ep.count_out(total);
        let prefix = Prefix::new(Kind::Data, header.len(), credits, number, ep.theirs);
        let bytes = port.bytes_mut(&slot);
        bytes[..PREFIX].copy_from_slice(prefix.as_bytes());
        bytes[PREFIX..PREFIX + header.len()].copy_from_slice(header);
        Ok(slot)
    }

    pub(crate) fn count_sent(&self, payload: usize) {
        self.core.counters.frames_sent.add(1);
        self.core.counters.bytes_sent.add(payload as u64);
    }

    /// Sends a long frame in pieces, each as soon as it is packed: all of them, or none.
    fn send_pieces<P>(
        &mut self,
        peer: Peer,
        header: &[u8],
        len: usize,
        mut pack: P,
    ) -> Result<(), Refused>
    where
        P: FnMut(usize, &mut [u8]),
    {
        let (each, window) = (pieces::cut(len, self.piece), self.core.window);
        let before = |offset| if offset == 0 { header.len() + pieces::WHOLE } else { 0 };
        let lens = (0..len)
            .step_by(each)
            .map(|offset| (offset, PREFIX + before(offset), each.min(len - offset)));
        let units = lens.clone().map(|(_, lead, piece)| cost(lead + piece)).sum();
        let room = self.sendable(peer)?.has_room_for(units, window);
        let Some(port) = self.port.as_mut() else { return Err(Refused::Closed) };
        if room {
            self.slots.extend(lens.clone().map_while(|(_, lead, piece)| port.buffer(lead + piece)));
        }
        if self.slots.len() < lens.len() {
            self.slots.drain(..).for_each(|slot| port.give_back(slot));
            self.core.counters.refused.add(1);
            return Err(Refused::NoRoom);
        }
        self.count_sent(len);
        let mut slots = std::mem::take(&mut self.slots);
        for ((offset, lead, piece), slot) in lens.zip(slots.drain(..)) {
            let (Some(port), Some(ep)) =
                (self.port.as_mut(), self.core.peers[peer.index()].ep.as_deref_mut())
            else {
                break; // they end with the port
            };
            let (kind, header) =
                if offset == 0 { (Kind::Begin, header) } else { (Kind::Piece, &[][..]) };
            let credits = ep.take_owed();
            let number = ep.count_out(lead + piece);
            let prefix = Prefix::new(kind, header.len(), credits, number, ep.theirs);
            let bytes = port.bytes_mut(&slot);
            bytes[..PREFIX].copy_from_slice(prefix.as_bytes());
            bytes[PREFIX..PREFIX + header.len()].copy_from_slice(header);
            if offset == 0 {
                bytes[PREFIX + header.len()..lead].copy_from_slice(&(len as u32).to_le_bytes());
            }
            pack(offset, &mut bytes[lead..lead + piece]);
            self.launch(peer, slot, lead + piece);
        }
        self.slots = slots;
        Ok(())
    }

    /// What the port reports. A frame whose owner is asked where it shall go is put off for other news if `waits`.
    #[inline]
    fn poll<S: Sink>(&mut self, waits: bool, sink: &mut S) -> usize {
        if !self.core.leads.later.is_empty() {
            self.core.catch_up_later(sink);
        }
        let Some(port) = self.port.as_mut() else { return 0 };
        let core = &mut self.core;
        let eager = core.eager;
        let stays = |message: &[u8]| waits && leads::asks(message, eager);
        match port.poll(|event| core.event(event, sink), stays) {
            Ok(count) => count,
            Err(error) => {
                let Verdict::Device(cause) = judge(Place::Queue, error) else { return 0 };
                self.lose(cause, sink);
                1
            }
        }
    }

    fn lingers(&self) -> bool {
        self.core.departed.is_some_and(|since| since.elapsed() < self.config.linger)
    }
}

impl Btl for Ofi {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn address(&self) -> Address {
        Address { component: NAME.into(), rail: self.core.who.rail, bytes: self.blob.encode() }
    }

    fn connect(&mut self, peer: Peer, address: &Address) -> Result<(), Fault> {
        let right = address.component == NAME && address.rail == self.core.who.rail;
        let there = right.then(|| Blob::decode(&address.bytes)).flatten();
        let there = there.filter(|there| {
            peer.0 != self.core.who.me && peer.0 < PEERS_MAX && self.blob.speaks_with(there)
        });
        let Some(there) = there.filter(|_| self.port.is_some()) else {
            return Err(Fault::rail(peer, Cause::Unreachable));
        };
        if self.core.departed.is_some() {
            return Err(Fault::rail(peer, Cause::Finalized));
        }
        let place = self.core.place(peer);
        if place.excluded {
            return Err(Fault::rail(peer, Cause::Invalidated));
        }
        place.incarnation = there.incarnation;
        place.pid = there.pid;
        if let Some(ep) = place.ep.as_deref_mut() {
            ep.known = true; // it is being made by the peer's greeting, or is there
            return Ok(());
        }
        let to =
            self.resolve(peer, &there.name).map_err(|_| Fault::rail(peer, Cause::Unreachable))?;
        let stamp = self.next_stamp();
        let Some(ep) = self.begin(peer, Phase::Dialing, stamp, to) else {
            return Err(Fault::rail(peer, Cause::Exhausted("randomness")));
        };
        ep.known = true;
        let name = self.blob.name.clone();
        self.core.greet(peer, Kind::Hello, &name);
        Ok(())
    }

    #[inline]
    fn state(&self, peer: Peer) -> EndpointState {
        self.core.endpoint(peer).map_or(EndpointState::Closed, Endpoint::state)
    }

    #[inline]
    fn send_short(&mut self, peer: Peer, header: &[u8], payload: &[u8]) -> Result<(), Refused> {
        let len = header.len() + payload.len();
        if len > self.caps.max_short {
            return Err(Refused::TooLong { max: self.caps.max_short });
        }
        let total = PREFIX + len;
        if total > self.inject {
            return self.send_bcopy(peer, header, payload.len(), |offset, piece| {
                piece.copy_from_slice(&payload[offset..offset + piece.len()]);
            });
        }
        let window = self.core.window;
        let ep = self.sendable(peer)?;
        if !ep.has_room(total, window) {
            self.core.counters.refused.add(1);
            return Err(Refused::NoRoom);
        }
        let credits = ep.take_owed();
        let (number, theirs, to, life) = (ep.next_out, ep.theirs, ep.to, ep.token);
        let prefix = Prefix::new(Kind::Data, header.len(), credits, number, theirs);
        let Some(port) = self.port.as_mut() else { return Err(Refused::Closed) };
        let message = &mut self.scratch[..total];
        message[..PREFIX].copy_from_slice(prefix.as_bytes());
        message[PREFIX..PREFIX + header.len()].copy_from_slice(header);
        message[PREFIX + header.len()..].copy_from_slice(payload);
        let sent = port.inject(to, message);
        let ep = self.core.peers[peer.index()].ep.as_deref_mut().ok_or(Refused::Closed)?;
        match sent {
            Ok(()) => {
                ep.count_out(total);
                ep.stuck = None;
                self.core.counters.frames_sent.add(1);
                self.core.counters.bytes_sent.add(payload.len() as u64);
                Ok(())
            }
            Err(error) => {
                ep.owe(credits);
                if credits != 0 && !self.core.due.contains(&peer.0) {
                    self.core.due.push(peer.0);
                }
                self.no_room(life, judge(Place::Call, error));
                self.core.counters.refused.add(1);
                Err(Refused::NoRoom)
            }
        }
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
        if len > self.caps.max_bcopy {
            return Err(Refused::TooLong { max: self.caps.max_bcopy });
        }
        assert!(header.len() <= HEADER_MAX, "a frame header of {} bytes", header.len());
        if len > self.piece {
            return self.send_pieces(peer, header, len, pack);
        }
        let slot = self.prepare(peer, header, len)?;
        let lead = PREFIX + header.len();
        if let Some(port) = self.port.as_mut() {
            pack(0, &mut port.bytes_mut(&slot)[lead..lead + len]);
        }
        self.count_sent(len);
        self.launch(peer, slot, lead + len);
        Ok(())
    }

    fn send_zcopy(&mut self, descriptor: Descriptor) -> Result<(), (Refused, Descriptor)> {
        let (peer, len) = (descriptor.peer, descriptor.payload_len());
        match self.caps.max_zcopy {
            0 => return Err((Refused::Unsupported, descriptor)),
            max if len > max => return Err((Refused::TooLong { max }, descriptor)),
            _ => {}
        }
        let descriptor = match len >= self.caps.zcopy_from {
            true => match self.lead(descriptor) {
                Ok(()) => return Ok(()),
                Err((None, descriptor)) => descriptor,
                Err((Some(refused), descriptor)) => return Err((refused, descriptor)),
            },
            false => descriptor,
        };
        let Descriptor { header, payload, .. } = &descriptor;
        let pack = |offset, piece: &mut [u8]| copy_regions(payload, offset, piece);
        let sent = match len > self.piece {
            true => self.send_pieces(peer, header.as_bytes(), len, pack),
            false => self.send_bcopy(peer, header.as_bytes(), len, pack),
        };
        match sent {
            Ok(()) => {
                self.core.leads.copied.push(descriptor);
                Ok(())
            }
            Err(refused) => Err((refused, descriptor)),
        }
    }

    fn rma(&mut self, descriptor: RmaDescriptor) -> Result<(), (Refused, RmaDescriptor)> {
        let has = match descriptor.kind {
            RmaKind::Get(_) => self.caps.get,
            RmaKind::Put(_) => self.caps.put,
            RmaKind::Atomic(..) => self.caps.atomics,
        };
        if !has {
            return Err((Refused::Unsupported, descriptor));
        }
        let (life, to) = match self.sendable(descriptor.peer) {
            Ok(ep) => (ep.token, ep.to),
            Err(refused) => return Err((refused, descriptor)),
        };
        if !self.core.reads.has_room() {
            self.core.counters.refused.add(1);
            return Err((Refused::NoRoom, descriptor));
        }
        match self.core.reads.take(descriptor, life, to) {
            Ok(()) => {}
            Err((cause, descriptor)) => self.core.wrong_reads.push((descriptor, cause)),
        }
        self.core.counters.rma.add(1);
        self.ask_for_reads();
        Ok(())
    }

    fn register_source(&mut self, peer: Peer, region: &SendRegion) -> Result<RemoteKey, Refused> {
        if !self.caps.get {
            return Err(Refused::Unsupported);
        }
        let life = self.sendable(peer)?.token;
        let port = self.port.as_mut().ok_or(Refused::Closed)?;
        let lane = match self.provider.answers {
            Answers::ByLanes => self.core.reads.lanes.offer(port, life).ok_or(Refused::NoRoom)?,
            Answers::ByDevice | Answers::Never => 0,
        };
        let registered = lend::register(port, region);
        if !self.core.reads.lanes.is_idle() {
            self.tend_lanes();
            self.flush(); // before the frame that carries the key
        }
        match registered {
            Ok(registration) => {
                self.core.reads.lanes.count_lent(lane, true);
                let place = region.as_ptr() as usize as u16;
                Ok(Key { registration, len: region.len() as u64, lane, place }.encode())
            }
            Err(error) => {
                tracing::debug!(%error, "ofi registration refused");
                Err(Refused::NoRoom)
            }
        }
    }

    /// For atomic operations: nobody writes over this transport.
    fn register_target(&mut self, region: &RecvRegion) -> Result<RemoteKey, Refused> {
        if !self.caps.atomics {
            return Err(Refused::Unsupported);
        }
        let port = self.port.as_mut().ok_or(Refused::Closed)?;
        match lend::register_target(port, region) {
            Ok(registration) => {
                let place = region.as_mut_ptr() as usize as u16;
                Ok(Key { registration, len: region.len() as u64, lane: 0, place }.encode())
            }
            Err(error) => {
                tracing::debug!(%error, "ofi registration refused");
                Err(Refused::NoRoom)
            }
        }
    }

    fn deregister(&mut self, key: &RemoteKey) {
        let (Some(key), Some(port)) = (Key::decode(key), self.port.as_mut()) else { return };
        port.deregister(key.registration.key);
        self.core.reads.lanes.count_lent(key.lane, false);
        if key.lane != 0 && !self.core.reads.withdraw(port, key.lane) {
            // No provider was seen to refuse it. The rail is no good any more.
            let fault = Fault::device(Cause::Malformed("the provider does not close a lane"));
            self.core.failing.push((0, fault));
        }
    }

    fn retire(&mut self, key: &RemoteKey) {
        if let (Some(key), Some(port)) = (Key::decode(key), self.port.as_mut()) {
            port.deregister(key.registration.key);
            self.core.reads.lanes.count_lent(key.lane, false);
        }
    }

    /// Where others are on their way, each waits for those before it anyway, and reads are faster: 256 KiB, 64 at a time, 6.0 beside 4.0 GB/s.
    fn is_read(&mut self, peer: Peer, _: usize, unasked: bool) -> bool {
        let Some(life) = self.core.endpoint(peer).map(|ep| ep.token) else { return true };
        !unasked || self.core.leads.has_long(life) || self.core.reads.lanes.lends(life)
    }

    #[inline]
    fn progress<S: Sink>(&mut self, sink: &mut S) -> usize {
        let before = self.core.reports;
        self.poll(true, sink);
        if !self.core.leads.is_idle() {
            self.tend_leads(sink);
        }
        if !self.core.is_idle() {
            self.chores(sink);
        }
        self.core.reports - before
    }

    #[inline]
    fn take_next<F>(&mut self, peer: Peer, turns: u32, take: F) -> bool
    where
        F: FnOnce(&[u8], &[u8]) -> bool,
    {
        let up = self.core.endpoint(peer).is_some_and(Endpoint::expects_frames);
        let (Some(port), true) = (self.port.as_mut(), up) else { return false };
        let core = &mut self.core;
        let (mut left, mut take) = (turns, Some(take));
        loop {
            let show = |message: &[u8]| {
                let take = take.take();
                take.is_some_and(|take| core.show(peer, message, take))
            };
            match port.look(show) {
                Look::Taken => return true,
                Look::Empty if left > 0 => left -= 1,
                Look::Sent(life) => core.sent(life),
                Look::Empty | Look::Left => return false,
            }
        }
    }

    fn arm(&mut self) -> Armed {
        let Some(port) = self.port.as_mut() else { return Armed::PollOnly };
        if !port.is_waitable() {
            return Armed::PollOnly;
        }
        if !self.core.is_idle() || !self.core.leads.is_idle() {
            return Armed::Ready;
        }
        port.wait_on().map_or(Armed::Ready, Armed::Wait)
    }

    fn invalidate<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        if residue == Residue::Deliver && self.state(peer) == EndpointState::Up {
            // What has arrived for it is among what has arrived for all.
            let mut quiet = 0;
            for _ in 0..LOOKS.0 {
                let seen = self.poll(false, sink);
                self.core.catch_up_later(sink); // nobody posts anything meanwhile
                let comes = seen > 0 || !self.core.leads.awaited.is_empty();
                quiet = if comes { 0 } else { quiet + 1 };
                if quiet == LOOKS.1 {
                    break;
                }
                self.tend_leads(sink);
            }
        }
        self.finish(peer, End::Invalidated, sink);
    }

    fn exclude<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        if peer.0 < PEERS_MAX {
            self.invalidate(peer, residue, sink);
            self.flush();
            self.core.exclude(peer);
        }
    }

    fn unflushed(&self) -> usize {
        self.core.unflushed(self.lingers())
    }

    fn depart(&mut self) {
        if self.core.departed.is_none() {
            self.core.depart(Instant::now());
            self.flush();
        }
    }

    fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.core.counters)
    }

    fn dump(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        writeln!(
            out,
            "ofi rail {} ({}): {:?}, {} controls, {} reads, {} lanes, {} joined, {} stranded, {} led out, {} led in, {} addresses",
            self.core.who.rail,
            self.caps.device,
            self.port,
            self.core.controls.len(),
            self.core.reads.len(),
            self.core.reads.lanes.len(),
            self.core.reads.lanes.joined(),
            self.core.reads.lanes.stranded(),
            self.core.leads.went(),
            self.core.leads.came,
            self.port.as_ref().map_or(0, Port::addresses)
        )?;
        for (index, place) in self.core.peers.iter().enumerate().take(64) {
            if let Some(ep) = &place.ep {
                writeln!(out, "  {index}: {ep:?}")?;
            }
        }
        Ok(())
    }
}

impl Drop for Ofi {
    /// After a good-bye, waits until the peers that live have heard it, at most [`OfiConfig::linger`]; otherwise this is
    /// what a crash looks like.
    fn drop(&mut self) {
        while self.lingers() && (self.unflushed() > 0 || !self.core.controls.is_empty()) {
            if self.progress(&mut Nobody) == 0 {
                std::thread::yield_now();
            }
        }
    }
}

/// Nobody listens any more.
struct Nobody;

impl Sink for Nobody {
    fn frame(&mut self, _: Peer, _: &[u8], _: &[u8]) {}
    fn landed(&mut self, _: Peer, _: RecvRegion, _: Token, _: Result<(), Fault>) {}
    fn completed(&mut self, _: Descriptor, _: Result<(), Fault>) {}
    fn rma_completed(&mut self, _: RmaDescriptor, _: Result<(), Fault>) {}
    fn up(&mut self, _: Peer) {}
    fn fault(&mut self, _: Fault) {}
    fn closed(&mut self, _: Peer) {}
}

fn caps(provider: &Provider, info: &Info, eager: usize, led: Range<usize>) -> Caps {
    let has = info.has();
    Caps {
        name: NAME,
        device: format!("{} on {} ({})", info.provider(), info.domain(), info.fabric()),
        max_short: MAX_SHORT.min(eager),
        max_bcopy: eager,
        max_zcopy: led.end,
        zcopy_from: led.start,
        eager_limit: eager,
        posted_limit: eager.max(led.end),
        rndv_eager_limit: eager,
        fragment: eager,
        put: false,
        get: provider.answers != Answers::Never && has.rma,
        atomics: false,
        read_from: if led.end > eager { eager + 1 } else { usize::MAX },
        // Whatever the provider keeps: frames are numbered.
        ordered: true,
        lossless: false,
        latency_ns: provider.latency_ns,
        bandwidth_mbs: provider.bandwidth_mbs,
        // Devices before our own tcp, that before libfabric's ways to do the same.
        exclusivity: if provider.hardware { 200 } else { 90 },
        failure_report: FailureReport::Silent,
    }
}

const _: () = assert!(GREETING_MAX <= SMALL.1);
const _: () = assert!(PREFIX + MAX_SHORT + HEADER_MAX <= SMALL.1);
