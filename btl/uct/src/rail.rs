//! The transport: one interface of UCT, driven as the BTL contract wants it.
//!
//! Frames are copied into the library's memory before a call returns, and what reaches the user's is fenced before an
//! endpoint ends (`rma`), so that happens at once, whether its peer lives or not (law 2). Room is the library's own: a
//! refused frame is not queued.

use crate::NAME;
use crate::config::{OpenError, UctConfig, choose, settings};
use crate::contact::{Blob, Contact};
use crate::core::{Core, End};
use crate::endpoint::{Endpoint, Farewell, Phase};
use crate::reach::{Lent, OPENER_MAX, Reach};
use crate::tasks::Tasks;
use crate::verdict::{Verdict, judge};
use crate::wire::{
    EP_ADDRESS_MAX, Greeter, Kind, LEAD_MAX, PEERS_MAX, PREFIX, job_key, split, word,
};
use ironweave_btl::copy::pack;
use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_btl::secret::random;
use ironweave_btl::{
    Address, Armed, Btl, Caps, Cause, Counters, Descriptor, EndpointState, FailureReport, Fault,
    HEADER_MAX, Peer, Refused, RemoteKey, Residue, RmaDescriptor, Sink, Tiny, Token,
};
use ironweave_ffi_uct::{
    Attributes, DeviceKind, EpId, Expected, IfaceId, Look, MESSAGE_MIN, Port, Resource, Status,
    Uct as Library,
};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Longest frame, header and payload, that is sent by `send_short`, in bytes.
const MAX_SHORT: usize = 1024;
/// Longest frame that is put together on the stack, in bytes.
const INLINE: usize = 256;
/// The same, in so little of it that clearing it costs nothing.
const LINE: usize = 64;
/// Bytes that the loop-back transport may hold for us.
const UNREAD_MAX: usize = 1 << 20;
/// Longest message that is sent without asking, in bytes: longer frames are parts of messages that were asked for.
const EAGER_MAX: usize = 64 << 10;
/// What goes along with an announcement, in bytes: the receiver answers when it has all of it.
const RNDV_EAGER_LIMIT: usize = 16 << 10;
/// How long nobody sleeps on a rail: accepting connections, checks and clocks have no descriptor.
const PAUSE: Duration = Duration::from_millis(10);

/// One rail: an interface of a transport of UCX on one device.
pub struct Uct {
    /// `None` after the device was lost.
    pub(crate) port: Option<Port>,
    pub(crate) main: IfaceId,
    pub(crate) letters: Option<IfaceId>,
    pub(crate) core: Core,
    /// After the port: what is in its hands outlives it.
    pub(crate) tasks: Tasks,
    pub(crate) lent: Lent,
    pub(crate) reach: Reach,
    pub(crate) caps: Caps,
    pub(crate) blob: Blob,
    pub(crate) config: UctConfig,
    kind: DeviceKind,
    /// Each peer writes to an interface of its own; `main` takes greetings, and is looked at now and then.
    pub(crate) queues: bool,
    /// Something can wake who sleeps on this rail.
    waitable: bool,
    /// Longest message that the library takes at once, in bytes.
    short: usize,
    ticks: u32,
    /// Somebody slept: what has no descriptor is looked at first.
    armed: bool,
    /// Polls from one look at the clock to the next.
    every: u32,
    pub(crate) tended: Instant,
    pub(crate) checked: Instant,
    pub(crate) stamp: u64,
}

impl Uct {
    /// Opens the rails that `config` asks for: one for each device of each transport.
    ///
    /// # Errors
    /// In words: no library, no such transport or device, or what the library says.
    pub fn open_all(config: &UctConfig) -> Result<Vec<Uct>, OpenError> {
        if config.frame != 0 && !(1024..=8 << 20).contains(&config.frame) {
            return Err(OpenError::FrameSize(config.frame));
        }
        let library = match &config.library {
            Some(name) => Library::open_named(name)?,
            None => Library::open()?,
        };
        let ways = choose(library, config)?.into_iter().enumerate();
        ways.map(|(rail, way)| Self::open(library, config, rail as u16, &way)).collect()
    }

    fn open(
        library: &'static Library,
        config: &UctConfig,
        rail: u16,
        resource: &Resource,
    ) -> Result<Uct, OpenError> {
        let random = || random().map(u64::from_le_bytes).map_err(OpenError::Random);
        let incarnation = random()? | 1;
        let (transport, device) = (resource.transport.clone(), resource.device.clone());
        let failed = |error| OpenError::Transport {
            transport: transport.clone(),
            device: device.clone(),
            error,
        };
        let unfit =
            |why| OpenError::Unfit { transport: transport.clone(), device: device.clone(), why };
        let mut port = Port::open(library).map_err(failed)?;
        let queues = resource.kind == DeviceKind::SharedMemory;
        let frame = crate::config::frame(config, resource);
        let message = (LEAD_MAX + frame).max(MESSAGE_MIN); // greetings are that long
        let main = port.add(resource, &settings(resource, message)).map_err(failed)?;
        let attributes = *port.attributes(main);
        if let Some(why) = attributes.unfit() {
            return Err(unfit(why));
        }
        let chosen = attributes.to_ep && config.connect.by_endpoints(&resource.transport);
        let by_endpoints = !attributes.to_iface || chosen;
        let mut contact = Contact { main: port.name(main).map_err(failed)?, ..Contact::default() };
        let mut aside = None;
        if queues {
            if attributes.iface_addr_len > EP_ADDRESS_MAX {
                return Err(unfit("the address of a queue is too long to be exchanged"));
            }
            contact.letters = Some(contact.main.clone());
            aside = Some(main);
            port.set_aside(main);
        }
        if by_endpoints && attributes.to_iface {
            // One interface does for both, and one system call to look at it.
            contact.letters = Some(contact.main.clone());
            aside = Some(main);
        } else if by_endpoints {
            let way = crate::config::letters(library, resource)?
                .ok_or_else(|| unfit("nothing on its device carries greetings"))?;
            let iface = port.add(&way, &settings(&way, 8192)).map_err(failed)?;
            contact.letters = Some(port.name(iface).map_err(failed)?);
            aside = Some(iface);
        }
        let reach = match crate::config::reader(library, config, resource)? {
            Some(way) => {
                let iface = port.add(&way, &settings(&way, 0)).map_err(failed)?;
                contact.reach = Some(port.name(iface).map_err(failed)?);
                Reach::Kernel(iface)
            }
            None if reads(resource, &attributes) => Reach::Device,
            None => Reach::Never,
        };
        if !contact.fits() {
            return Err(unfit("its address is too long to be exchanged"));
        }
        let frame = frame.min(attributes.max_bcopy - LEAD_MAX);
        let blob = Blob {
            incarnation,
            frame: frame as u32,
            transport: resource.transport.clone(),
            contact,
        };
        let now = Instant::now();
        let who = Greeter { rail, me: config.me.0, incarnation };
        Ok(Uct {
            port: Some(port),
            main,
            letters: aside,
            core: Core::new(who, job_key(&config.secret, &config.job)),
            tasks: Tasks::default(),
            lent: Lent::new(random()?),
            reach,
            caps: caps(resource, &attributes, frame, reach, by_endpoints),
            blob,
            config: config.clone(),
            kind: resource.kind,
            short: attributes.max_short,
            queues,
            waitable: attributes.waitable,
            ticks: 0,
            armed: false,
            // A poll of a network is a system call, beside which a look at the clock is nothing.
            every: if resource.kind == DeviceKind::Network { 8 } else { 256 },
            tended: now,
            checked: now,
            stamp: 0,
        })
    }

    /// The endpoint that takes frames for `peer`.
    #[inline]
    fn sendable(&mut self, peer: Peer) -> Result<&mut Endpoint, Refused> {
        let seat = self.core.seats.get_mut(peer.index());
        let ep = seat.and_then(|seat| seat.ep.as_deref_mut()).ok_or(Refused::Closed)?;
        match ep.phase {
            Phase::Up => Ok(ep),
            // Also when the peer greeted and the layer above does not know yet: it will, in a moment.
            Phase::Dialing | Phase::Answering => Err(Refused::Connecting),
            Phase::Ending(_) => Err(Refused::Closed),
        }
    }

    /// Whether a frame may be sent now: the line, and the peer's token.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        peer: Peer,
        len: usize,
        max: usize,
    ) -> Result<(EpId, u64), Refused> {
        if len > max {
            return Err(Refused::TooLong { max });
        }
        let ep = self.sendable(peer)?;
        ep.unflushed.set(true);
        let (line, theirs) = (ep.lines.main, ep.theirs);
        if self.port.as_ref().is_none_or(|port| port.unread() > UNREAD_MAX) {
            self.core.counters.refused.add(1);
            return Err(Refused::NoRoom);
        }
        Ok((line, theirs))
    }

    #[inline]
    pub(crate) fn count(&self, payload: usize) {
        self.core.counters.frames_sent.add(1);
        self.core.counters.bytes_sent.add(payload as u64);
    }

    /// The library did not take a frame.
    #[cold]
    pub(crate) fn refused(&mut self, peer: Peer, status: Status) -> Refused {
        let Some(ep) = self.core.seats[peer.index()].ep.as_deref_mut() else {
            return Refused::Closed;
        };
        match judge(status) {
            Verdict::Later => {
                if let Some(port) = self.port.as_ref()
                    && ep.stuck.is_none()
                {
                    ep.stuck = Some(Instant::now());
                    self.core.watched.push(ep.token);
                    port.wish(ep.lines.main);
                }
                self.core.counters.refused.add(1);
                Refused::NoRoom
            }
            Verdict::Rail(cause) => {
                self.core.ending.push((ep.token, End::Fault(Fault::rail(peer, cause))));
                Refused::Closed
            }
        }
    }

    #[inline]
    pub(crate) fn poll<S: Sink>(&mut self, sink: &mut S) -> usize {
        let Some(port) = self.port.as_mut() else { return 0 };
        let core = &mut self.core;
        port.poll(|event| core.event(event, sink))
    }

    /// Tells all peers, as far as there is room, that this end is no more.
    fn hang_up(&mut self) {
        let Some(port) = self.port.as_ref() else { return };
        for ep in self.core.seats.iter().filter_map(|seat| seat.ep.as_deref()) {
            if ep.phase == Phase::Up && ep.theirs != ep.token {
                let _ = send_message(
                    port,
                    ep.lines.main,
                    &word(Kind::Close, 0, ep.theirs).to_le_bytes(),
                );
            }
        }
    }

    fn lingers(&self) -> bool {
        self.core.departed.is_some_and(|since| since.elapsed() < self.config.linger)
    }
}

/// Sends a message of the protocol's own.
pub(crate) fn send_message(port: &Port, line: EpId, message: &[u8]) -> Result<(), Verdict> {
    let sent = port.send_packed(line, message.len(), |bytes| bytes.copy_from_slice(message));
    sent.map_err(|(status, _)| judge(status))
}

impl Btl for Uct {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn address(&self) -> Address {
        let bytes = self.blob.encode(&self.core.key);
        Address { component: NAME.into(), rail: self.core.who.rail, bytes }
    }

    fn connect(&mut self, peer: Peer, address: &Address) -> Result<(), Fault> {
        let lost = |cause| Fault::rail(peer, cause);
        let right = address.component == NAME && address.rail == self.core.who.rail;
        let there = right.then(|| Blob::decode(&address.bytes, &self.core.key)).flatten();
        let own = peer.0 == self.core.who.me;
        let there = there.filter(|there| {
            own == (self.kind == DeviceKind::Loopback)
                && peer.0 < PEERS_MAX
                && self.blob.speaks_with(there)
                && self.reaches(&there.contact)
        });
        let Some(there) = there else { return Err(lost(Cause::Unreachable)) };
        if self.core.departed.is_some() {
            return Err(lost(Cause::Finalized));
        }
        let seat = self.core.seat(peer);
        if seat.excluded {
            return Err(lost(Cause::Unreachable));
        }
        seat.incarnation = there.incarnation;
        if let Some(ep) = seat.ep.as_deref_mut() {
            if let Phase::Ending(_) = ep.phase {
                return Err(lost(Cause::Invalidated)); // not before it is closed
            }
            ep.known = true; // it is being made by the peer's greeting, or is there
            return Ok(());
        }
        seat.contact = there.contact.clone();
        self.dial(peer, &there.contact).map_err(lost)
    }

    #[inline]
    fn state(&self, peer: Peer) -> EndpointState {
        self.core.endpoint(peer).map_or(EndpointState::Closed, Endpoint::state)
    }

    #[inline]
    fn send_short(&mut self, peer: Peer, header: &[u8], payload: &[u8]) -> Result<(), Refused> {
        assert!(header.len() <= HEADER_MAX, "a frame header of {} bytes", header.len());
        let inner = header.len() + payload.len();
        let (line, theirs) = self.admit(peer, inner, self.caps.max_short)?;
        let Some(port) = self.port.as_ref() else { return Err(Refused::Closed) };
        let word = word(Kind::Data, header.len(), theirs);
        let write = |bytes: &mut [u8]| {
            let (head, tail) = bytes.split_at_mut(header.len());
            pack(head, header);
            pack(tail, payload);
        };
        let sent = if inner <= LINE && PREFIX + inner <= self.short {
            let mut bytes = [0; LINE];
            write(&mut bytes[..inner]);
            port.send_short(line, word.to_le(), &bytes[..inner])
        } else if inner <= INLINE && PREFIX + inner <= self.short {
            let mut bytes = [0; INLINE];
            write(&mut bytes[..inner]);
            port.send_short(line, word.to_le(), &bytes[..inner])
        } else {
            let packed = port.send_packed(line, PREFIX + inner, |bytes| {
                bytes[..PREFIX].copy_from_slice(&word.to_le_bytes());
                write(&mut bytes[PREFIX..]);
            });
            packed.map_err(|(status, _)| status)
        };
        match sent {
            Ok(()) => {
                self.count(payload.len());
                Ok(())
            }
            Err(status) => Err(self.refused(peer, status)),
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
        assert!(header.len() <= HEADER_MAX, "a frame header of {} bytes", header.len());
        let (line, theirs) = self.admit(peer, len, self.caps.max_bcopy)?;
        let Some(port) = self.port.as_ref() else { return Err(Refused::Closed) };
        let word = word(Kind::Data, header.len(), theirs);
        let (lead, total) = (PREFIX + header.len(), PREFIX + header.len() + len);
        let sent = port.send_packed(line, total, |bytes| {
            bytes[..PREFIX].copy_from_slice(&word.to_le_bytes());
            bytes[PREFIX..lead].copy_from_slice(header);
            pack(0, &mut bytes[lead..]);
        });
        match sent {
            Ok(()) => {}
            Err((status, false)) => return Err(self.refused(peer, status)),
            // What was packed cannot be given back: it is lost with the endpoint.
            Err((status, true)) => {
                let cause = match judge(status) {
                    Verdict::Rail(cause) => cause,
                    Verdict::Later => Cause::Device("UCX lost a message"),
                };
                let life = self.core.endpoint(peer).map_or(0, |ep| ep.token);
                self.core.ending.push((life, End::Fault(Fault::rail(peer, cause))));
            }
        }
        self.count(len);
        Ok(())
    }

    fn send_zcopy(&mut self, descriptor: Descriptor) -> Result<(), (Refused, Descriptor)> {
        self.start_send(descriptor)
    }

    fn rma(&mut self, descriptor: RmaDescriptor) -> Result<(), (Refused, RmaDescriptor)> {
        self.start_move(descriptor)
    }

    fn register_source(&mut self, peer: Peer, region: &SendRegion) -> Result<RemoteKey, Refused> {
        self.open_source(peer, region)
    }

    fn register_target(&mut self, region: &RecvRegion) -> Result<RemoteKey, Refused> {
        self.open_target(region)
    }

    fn deregister(&mut self, key: &RemoteKey) {
        self.close_memory(key);
    }

    #[inline]
    fn progress<S: Sink>(&mut self, sink: &mut S) -> usize {
        let before = self.core.reports;
        self.poll(sink);
        self.ticks += 1;
        if self.ticks >= self.every || self.armed {
            self.ticks = 0;
            self.armed = false;
            self.tick(sink);
        }
        if !self.core.is_idle() || !self.tasks.is_idle() {
            self.chores(sink);
        }
        self.core.reports - before
    }

    #[inline]
    fn take_next<F>(&mut self, peer: Peer, turns: u32, take: F) -> bool
    where
        F: FnOnce(&[u8], &[u8]) -> bool,
    {
        let (Some(port), Some(ep)) = (self.port.as_mut(), self.core.endpoint(peer)) else {
            return false;
        };
        if ep.phase != Phase::Up {
            return false;
        }
        let (line, life, counters) = (ep.lines.main, ep.token, &self.core.counters);
        let mut take = Some(take);
        let mut show = |message: &[u8]| match split(message) {
            Some((token, Kind::Data, header, payload)) if token == life => {
                let taken = take.take().is_some_and(|take| take(header, payload));
                if taken {
                    counters.frames_received.add(1);
                    counters.bytes_received.add(payload.len() as u64);
                }
                taken
            }
            _ => false,
        };
        let mut left = turns;
        loop {
            self.ticks = self.ticks.saturating_add(1);
            match port.look(line, &mut show) {
                Look::Empty if left > 0 => {
                    left -= 1;
                    // As in shm: a line that is asked for again and again comes later; and between far cores the looks have to last
                    // for a round trip (8 B over posix 0.648 to 0.631 us, in turns; near cores the same).
                    std::hint::spin_loop();
                }
                look => return look == Look::Taken,
            }
        }
    }

    #[inline]
    fn take_expected(
        &mut self,
        peer: Peer,
        turns: u32,
        header: [u64; 2],
        into: &RecvRegion,
    ) -> Tiny {
        if !self.queues {
            return Tiny::Unable;
        }
        let (Some(port), Some(ep)) = (self.port.as_mut(), self.core.endpoint(peer)) else {
            return Tiny::Left;
        };
        if ep.phase != Phase::Up {
            return Tiny::Left;
        }
        let (line, life) = (ep.lines.main, ep.token);
        let lead = [word(Kind::Data, size_of_val(&header), life).to_le(), header[0], header[1]];
        let received = Cell::new(None);
        let take = |payload: &[u8]| {
            into.write(0, payload);
            received.set(Some(payload.len()));
        };
        let longer = |message: &[u8]| {
            let payload = message.strip_prefix(lead.as_bytes());
            payload.filter(|payload| payload.len() <= into.len()).map(take).is_some()
        };
        let look = port.expect(line, Expected { lead, room: into.len() }, turns, take, longer);
        if look == Look::Empty {
            self.ticks = self.ticks.saturating_add(turns);
        }
        let Some(len) = received.get() else { return Tiny::Left };
        self.core.counters.frames_received.add(1);
        self.core.counters.bytes_received.add(len as u64);
        Tiny::Taken(len)
    }

    fn arm(&mut self) -> Armed {
        if !self.waitable {
            return Armed::PollOnly;
        }
        if !self.core.is_idle() || !self.tasks.is_idle() {
            return Armed::Ready;
        }
        self.armed = true;
        match self.port.as_mut().map(|port| port.arm(PAUSE)) {
            Some(Ok(fd)) => fd.map_or(Armed::Ready, Armed::Wait),
            Some(Err(_)) | None => Armed::PollOnly,
        }
    }

    fn invalidate<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        if residue == Residue::Deliver && self.state(peer) == EndpointState::Up {
            // What has arrived for it is among what has arrived for all.
            for _ in 0..64 {
                if self.poll(sink) == 0 {
                    break;
                }
            }
        }
        self.end(peer, End::Invalidated, sink);
    }

    fn exclude<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        if peer.0 < PEERS_MAX {
            self.invalidate(peer, residue, sink);
            self.core.seat(peer).excluded = true;
        }
    }

    fn unflushed(&self) -> usize {
        let Some(port) = &self.port else { return 0 };
        let lingers = self.lingers();
        let of = |ep: &Endpoint| {
            let answer = lingers && ep.farewell == Farewell::Said;
            let frames = ep.phase == Phase::Up && ep.unflushed.get();
            let out = !frames || port.is_flushed(ep.lines.main);
            ep.unflushed.set(frames && !out);
            usize::from(!out) + usize::from(answer)
        };
        let endpoints: usize =
            self.core.seats.iter().filter_map(|seat| seat.ep.as_deref()).map(of).sum();
        let live = |control: &&crate::core::Control| self.core.is_live(control.life);
        endpoints + self.core.controls.iter().filter(live).count()
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
            "uct rail {} ({}): {:?}, {} controls, {} partings, {} tasks, {} lent, departed {:?}",
            self.core.who.rail,
            self.caps.device,
            self.port,
            self.core.controls.len(),
            self.core.partings.len(),
            self.tasks.len(),
            self.lent.len(),
            self.core.departed.map(|since| since.elapsed()),
        )?;
        for (index, seat) in self.core.seats.iter().enumerate().take(64) {
            if let Some(ep) = &seat.ep {
                writeln!(
                    out,
                    "  {index}: {:?}, {:x} to {:x}, joined {}, {:?}, stuck {:?}",
                    ep.phase,
                    ep.token,
                    ep.theirs,
                    ep.joined,
                    ep.farewell,
                    ep.stuck.map(|since| since.elapsed())
                )?;
            }
        }
        Ok(())
    }
}

impl Drop for Uct {
    /// After a good-bye, waits until the peers that live have heard it, at most [`UctConfig::linger`]; otherwise this is
    /// what a crash looks like, which shared memory would not show while the process lives.
    fn drop(&mut self) {
        if self.core.departed.is_none() {
            self.hang_up();
        }
        while self.lingers() && (self.unflushed() > 0 || !self.core.partings.is_empty()) {
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

/// Whether a device moves memory, by keys that can be told.
fn reads(resource: &Resource, attributes: &Attributes) -> bool {
    // Over tcp a put is written by the target's process, to whatever address the peer says.
    resource.kind == DeviceKind::Network
        && resource.transport != "tcp"
        && attributes.max_get > 0
        && attributes.need_rkey
        && (1..=OPENER_MAX).contains(&attributes.rkey_len)
}

fn caps(
    resource: &Resource,
    attributes: &Attributes,
    frame: usize,
    reach: Reach,
    by_endpoints: bool,
) -> Caps {
    let device = reach == Reach::Device;
    // Where a fence is one (`rma`).
    let fences = device || resource.transport == "tcp" && by_endpoints;
    let zcopy = fences && attributes.zcopy_header >= LEAD_MAX;
    // Over ud a peer that is gone looks as one that is busy, for minutes.
    let tells =
        (attributes.peer_failure || attributes.ep_check) && !resource.transport.starts_with("ud_");
    Caps {
        name: NAME,
        device: format!("{} on {}", resource.transport, resource.device),
        max_short: MAX_SHORT.min(frame),
        max_bcopy: frame,
        max_zcopy: if zcopy { frame.min(attributes.max_zcopy.saturating_sub(LEAD_MAX)) } else { 0 },
        zcopy_from: ironweave_btl::ZCOPY_FROM,
        eager_limit: frame.min(EAGER_MAX),
        posted_limit: frame.min(EAGER_MAX),
        rndv_eager_limit: frame.min(RNDV_EAGER_LIMIT),
        fragment: frame,
        put: device && attributes.max_put > 0,
        get: reach != Reach::Never,
        atomics: false,
        read_from: usize::MAX,
        ordered: true,
        // Memory of this host is there while both processes are. A peer that takes nothing for minutes is given up, not the rail.
        lossless: matches!(resource.kind, DeviceKind::SharedMemory | DeviceKind::Loopback),
        latency_ns: attributes.latency_ns,
        bandwidth_mbs: attributes.bandwidth_mbs,
        exclusivity: match resource.kind {
            DeviceKind::Loopback => 1 << 16,
            DeviceKind::SharedMemory => 2048,
            _ if resource.transport == "tcp" => 90,
            _ => 200,
        },
        failure_report: if tells { FailureReport::Prompt } else { FailureReport::Silent },
    }
}

const _: () = assert!(MAX_SHORT <= MESSAGE_MIN);

/// Jobs with many threads hand their rails around.
const fn is_send<T: Send>() {}
const _: () = is_send::<Uct>();
