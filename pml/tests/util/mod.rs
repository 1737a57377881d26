//! An in-memory fabric between engines in one thread, and a small world on it.
//!
//! The fabric is simple and adversarial where the contract allows it to be: frames wait until the receiver polls,
//! zero-copy sends and landings stay open over several polls, reads and writes complete late, and a process that is
//! killed leaves everything as it is at that moment.
#![allow(dead_code, unsafe_code)] // each test uses a part of it; regions of test buffers are made here

use ironweave_btl::memory::{OwnedBuffer, RecvRegion, SendRegion};
use ironweave_btl::{
    Address, Btl, Caps, Cause, Counters, Descriptor, EndpointState, FailureReport, Fault, Landing,
    Peer, Read, Refused, RemoteKey, Residue, RmaDescriptor, RmaKind, Sink, Token,
};
use ironweave_pml::ob1::{
    Buffer, CommId, CommSpec, Completion, Config, Mode, Ob1, Payload, PmlError, ReqId, Source,
    Started, TagMatch,
};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

/// What a rail of the fabric can do.
#[derive(Clone)]
pub struct Profile {
    pub max_short: usize,
    pub max_bcopy: usize,
    pub max_zcopy: usize,
    pub eager_limit: usize,
    /// The same to who waits for it, if more.
    pub posted_limit: usize,
    pub fragment: usize,
    pub put: bool,
    pub get: bool,
    /// Only process 0 has `get`, as where each tried by itself which way is faster.
    pub unlike: bool,
    pub landing: bool,
    /// Frames that may wait in one direction.
    pub room: usize,
    pub exclusivity: u32,
    pub bandwidth_mbs: u32,
    /// The kernel refuses reads and writes with an error of the operation.
    pub refuse_rma: bool,
    /// It is never lost between the living.
    pub lossless: bool,
    /// It reads peers' memory with its own hands, and shows the next frame: shm with single copy.
    pub hands: bool,
    /// Reads end when their owner has done its part.
    pub shared: bool,
    /// The shortest messages that it asks to be read.
    pub read_from: usize,
}

impl Profile {
    /// Copies only, with rings: shm's pipeline.
    pub fn copied() -> Self {
        Profile {
            max_short: 256,
            max_bcopy: 4096,
            max_zcopy: 0,
            eager_limit: 16 << 10,
            posted_limit: 0,
            fragment: 4096,
            put: false,
            get: false,
            unlike: false,
            landing: false,
            room: 16,
            exclusivity: 100,
            bandwidth_mbs: 1000,
            refuse_rma: false,
            lossless: true,
            hands: false,
            shared: false,
            read_from: usize::MAX,
        }
    }

    /// Copies only, and may be lost.
    pub fn lossy() -> Self {
        Profile { lossless: false, ..Self::copied() }
    }

    /// Zero copy on both sides: tcp.
    pub fn zcopy() -> Self {
        Profile { max_zcopy: 1 << 20, fragment: 10_000, landing: true, ..Self::lossy() }
    }

    /// The receiver reads: single copy, verbs.
    pub fn get() -> Self {
        Profile { get: true, ..Self::lossy() }
    }

    /// The receiver reads at once: shm with single copy.
    pub fn hands() -> Self {
        Profile { get: true, hands: true, read_from: 8 << 10, ..Self::copied() }
    }

    /// The receiver reads a part, and the sender writes the other.
    pub fn shared() -> Self {
        Profile { shared: true, ..Self::hands() }
    }

    /// The receiver has the sender write.
    pub fn put() -> Self {
        Profile { put: true, ..Self::lossy() }
    }
}

struct Packet {
    header: Vec<u8>,
    payload: Vec<u8>,
    zcopy: bool,
}

enum Registered {
    Source(SendRegion),
    Target(RecvRegion),
}

#[derive(Default)]
struct Net {
    packets: HashMap<(u16, Peer, Peer), VecDeque<Packet>>,
    memory: HashMap<u64, (Peer, Registered)>,
    next_key: u64,
    dead: HashSet<Peer>,
    /// Rails cut between two processes.
    cut: HashSet<(u16, Peer, Peer)>,
    /// What is still sent this way goes nowhere: the other end has closed.
    deaf: HashSet<(u16, Peer, Peer)>,
    /// Messages are better sent than read.
    unread: bool,
    /// Who connected to whom.
    hello: HashSet<(u16, Peer, Peer)>,
    /// Whose memory is read by whom, and has not done its part.
    asked: HashSet<(Peer, Peer)>,
}

/// The fabric.
#[derive(Clone, Default)]
pub struct Fabric(Rc<RefCell<Net>>);

impl Fabric {
    /// The process stops: what it has sent is still there.
    pub fn kill(&self, peer: Peer) {
        self.0.borrow_mut().dead.insert(peer);
    }

    /// One rail between two processes is lost, with what is on it.
    pub fn cut(&self, rail: u16, a: Peer, b: Peer) {
        let mut net = self.0.borrow_mut();
        for (a, b) in [(a, b), (b, a)] {
            net.cut.insert((rail, a, b));
            net.hello.remove(&(rail, a, b));
            net.packets.remove(&(rail, a, b));
        }
    }

    /// The rail between two processes works again.
    pub fn mend(&self, rail: u16, a: Peer, b: Peer) {
        let mut net = self.0.borrow_mut();
        for (a, b) in [(a, b), (b, a)] {
            net.cut.remove(&(rail, a, b));
        }
    }

    /// From now on messages that may be read are better sent.
    pub fn prefer_sending(&self) {
        self.0.borrow_mut().unread = true;
    }

    /// Frames on their way from one process to another.
    pub fn waiting(&self, from: Peer, to: Peer) -> usize {
        let net = self.0.borrow();
        net.packets
            .iter()
            .filter(|((_, a, b), _)| (*a, *b) == (from, to))
            .map(|(_, q)| q.len())
            .sum()
    }

    /// The header of the frame that was sent last of those on their way.
    pub fn last_header(&self, rail: u16, from: Peer, to: Peer) -> Vec<u8> {
        let net = self.0.borrow();
        let last = net.packets.get(&(rail, from, to)).and_then(|queue| queue.back());
        last.expect("a frame waits").header.clone()
    }

    /// Memory registered and not closed again.
    pub fn registered(&self) -> usize {
        self.0.borrow().memory.len()
    }

    /// Registrations so far, closed ones too.
    pub fn registrations(&self) -> u64 {
        self.0.borrow().next_key
    }

    /// As `registered`, of one process.
    pub fn registered_by(&self, peer: Peer) -> usize {
        self.0.borrow().memory.values().filter(|(owner, _)| *owner == peer).count()
    }

    /// Puts a frame of an attacker on the wire.
    pub fn inject(&self, rail: u16, from: Peer, to: Peer, header: &[u8], payload: &[u8]) {
        let packet = Packet { header: header.to_vec(), payload: payload.to_vec(), zcopy: false };
        self.0.borrow_mut().packets.entry((rail, from, to)).or_default().push_back(packet);
    }

    /// Exchanges the first two frames that wait.
    pub fn swap_first(&self, rail: u16, from: Peer, to: Peer) {
        self.0.borrow_mut().packets.get_mut(&(rail, from, to)).expect("frames wait").swap(0, 1);
    }

    /// Doubles the first frame that waits.
    pub fn duplicate_first(&self, rail: u16, from: Peer, to: Peer) {
        let mut net = self.0.borrow_mut();
        let queue = net.packets.get_mut(&(rail, from, to)).expect("frames wait");
        let first = &queue[0];
        let copy =
            Packet { header: first.header.clone(), payload: first.payload.clone(), zcopy: false };
        queue.push_front(copy);
    }
}

struct Endpoint {
    state: EndpointState,
    announce: bool,
}

/// One rail of one process.
pub struct MemBtl {
    me: Peer,
    rail: u16,
    fabric: Fabric,
    caps: Caps,
    profile: Profile,
    endpoints: HashMap<Peer, Endpoint>,
    excluded: HashSet<Peer>,
    sending: Vec<(Descriptor, u8)>,
    landing: Vec<(Peer, RecvRegion, Token, Vec<u8>)>,
    rma: Vec<RmaDescriptor>,
    counters: Arc<Counters>,
}

impl MemBtl {
    pub fn new(fabric: &Fabric, me: Peer, rail: u16, profile: Profile) -> Self {
        let caps = Caps {
            name: "mem",
            device: format!("mem{rail}"),
            max_short: profile.max_short,
            max_bcopy: profile.max_bcopy,
            max_zcopy: profile.max_zcopy,
            zcopy_from: ironweave_btl::ZCOPY_FROM,
            eager_limit: profile.eager_limit,
            posted_limit: profile.posted_limit.max(profile.eager_limit),
            rndv_eager_limit: profile.eager_limit.min(2000),
            fragment: profile.fragment,
            put: profile.put,
            get: profile.get && (me == Peer(0) || !profile.unlike),
            atomics: false,
            read_from: profile.read_from,
            ordered: true,
            lossless: profile.lossless,
            latency_ns: 100 + u32::from(rail),
            bandwidth_mbs: profile.bandwidth_mbs,
            exclusivity: profile.exclusivity,
            failure_report: FailureReport::Silent,
        };
        MemBtl {
            me,
            rail,
            fabric: fabric.clone(),
            caps,
            profile,
            endpoints: HashMap::new(),
            excluded: HashSet::new(),
            sending: Vec::new(),
            landing: Vec::new(),
            rma: Vec::new(),
            counters: Arc::default(),
        }
    }

    fn admit(&self, peer: Peer) -> Result<(), Refused> {
        match self.endpoints.get(&peer).map(|e| e.state) {
            Some(EndpointState::Up) => {}
            Some(EndpointState::Connecting) => return Err(Refused::Connecting),
            _ => return Err(Refused::Closed),
        }
        let net = self.fabric.0.borrow();
        let waiting = net.packets.get(&(self.rail, self.me, peer)).map_or(0, VecDeque::len);
        if waiting >= self.profile.room { Err(Refused::NoRoom) } else { Ok(()) }
    }

    fn push(&self, peer: Peer, packet: Packet) {
        let mut net = self.fabric.0.borrow_mut();
        if !net.deaf.contains(&(self.rail, self.me, peer)) {
            net.packets.entry((self.rail, self.me, peer)).or_default().push_back(packet);
        }
    }

    fn deliver<S: Sink>(&mut self, peer: Peer, packet: Packet, sink: &mut S) {
        self.counters.frames_received.add(1);
        self.counters.bytes_received.add(packet.payload.len() as u64);
        if packet.zcopy
            && self.profile.landing
            && let Landing::Direct { region, token } =
                sink.landing(peer, &packet.header, packet.payload.len())
        {
            self.landing.push((peer, region, token, packet.payload));
            return;
        }
        sink.frame(peer, &packet.header, &packet.payload);
    }

    fn purge<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        if self.endpoints.get(&peer).is_none_or(|e| e.state == EndpointState::Closed) {
            return;
        }
        self.endpoints.get_mut(&peer).expect("it is there").state = EndpointState::Failing;
        let fault = || Fault::operation(peer, Cause::Invalidated);
        for (from, region, token, _) in self.landing.extract_if(.., |(from, ..)| *from == peer) {
            sink.landed(from, region, token, Err(fault()));
        }
        let waiting = self.fabric.0.borrow_mut().packets.remove(&(self.rail, peer, self.me));
        if residue == Residue::Deliver {
            for packet in waiting.into_iter().flatten() {
                sink.frame(peer, &packet.header, &packet.payload);
            }
        }
        for (descriptor, _) in self.sending.extract_if(.., |(d, _)| d.peer == peer) {
            sink.completed(descriptor, Err(fault()));
        }
        for descriptor in self.rma.extract_if(.., |d| d.peer == peer) {
            sink.rma_completed(descriptor, Err(fault()));
        }
        self.endpoints.get_mut(&peer).expect("it is there").state = EndpointState::Closed;
        let mut net = self.fabric.0.borrow_mut();
        let was_open = net.hello.remove(&(self.rail, peer, self.me));
        net.hello.remove(&(self.rail, self.me, peer));
        if was_open {
            net.deaf.insert((self.rail, peer, self.me));
        }
        net.deaf.remove(&(self.rail, self.me, peer));
        drop(net);
        sink.closed(peer);
    }
}

impl Btl for MemBtl {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn address(&self) -> Address {
        Address {
            component: "mem".into(),
            rail: self.rail,
            bytes: self.me.0.to_le_bytes().to_vec(),
        }
    }

    fn connect(&mut self, peer: Peer, _: &Address) -> Result<(), Fault> {
        let cut = self.fabric.0.borrow().cut.contains(&(self.rail, self.me, peer));
        if cut || self.excluded.contains(&peer) {
            return Err(Fault::rail(peer, Cause::Unreachable));
        }
        let endpoint = self
            .endpoints
            .entry(peer)
            .or_insert(Endpoint { state: EndpointState::Closed, announce: false });
        if endpoint.state == EndpointState::Closed {
            endpoint.state = EndpointState::Connecting;
            self.fabric.0.borrow_mut().hello.insert((self.rail, self.me, peer));
        }
        Ok(())
    }

    fn state(&self, peer: Peer) -> EndpointState {
        self.endpoints.get(&peer).map_or(EndpointState::Closed, |e| e.state)
    }

    fn send_short(&mut self, peer: Peer, header: &[u8], payload: &[u8]) -> Result<(), Refused> {
        if header.len() + payload.len() > self.caps.max_short {
            return Err(Refused::TooLong { max: self.caps.max_short });
        }
        self.admit(peer)?;
        let packet = Packet { header: header.to_vec(), payload: payload.to_vec(), zcopy: false };
        self.push(peer, packet);
        Ok(())
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
        self.admit(peer)?;
        let mut payload = vec![0; len];
        let (left, right) = payload.split_at_mut(len / 3);
        let at = left.len();
        pack(0, left);
        pack(at, right);
        self.push(peer, Packet { header: header.to_vec(), payload, zcopy: false });
        Ok(())
    }

    fn send_zcopy(&mut self, descriptor: Descriptor) -> Result<(), (Refused, Descriptor)> {
        if descriptor.payload_len() > self.caps.max_zcopy {
            return Err((Refused::TooLong { max: self.caps.max_zcopy }, descriptor));
        }
        if let Err(refused) = self.admit(descriptor.peer) {
            return Err((refused, descriptor));
        }
        let header = descriptor.header.as_bytes().to_vec();
        let payload = descriptor.payload.iter().flat_map(|r| r.as_slice()).copied().collect();
        self.push(descriptor.peer, Packet { header, payload, zcopy: true });
        self.sending.push((descriptor, 2));
        Ok(())
    }

    fn rma(&mut self, descriptor: RmaDescriptor) -> Result<(), (Refused, RmaDescriptor)> {
        if !self.caps.get && !self.caps.put {
            return Err((Refused::Unsupported, descriptor));
        }
        if let Err(refused) = self.admit(descriptor.peer) {
            return Err((refused, descriptor));
        }
        self.rma.push(descriptor);
        Ok(())
    }

    fn is_read(&mut self, _: Peer, len: usize, _: bool) -> bool {
        assert!(len >= self.profile.read_from);
        !self.fabric.0.borrow().unread
    }

    fn read_now(&mut self, get: &RmaDescriptor) -> Read {
        if !self.profile.hands {
            return Read::Left;
        }
        if self.profile.shared {
            self.fabric.0.borrow_mut().asked.insert((get.peer, self.me));
            self.rma.push(get.handle());
            return Read::Begun;
        }
        Read::Over(self.perform(get))
    }

    fn assist(&mut self, peer: Peer) -> bool {
        self.fabric.0.borrow_mut().asked.remove(&(self.me, peer))
    }

    fn take_next<F>(&mut self, peer: Peer, _: u32, take: F) -> bool
    where
        F: FnOnce(&[u8], &[u8]) -> bool,
    {
        let mut net = self.fabric.0.borrow_mut();
        let Some(queue) = net.packets.get_mut(&(self.rail, peer, self.me)) else { return false };
        let shown = queue.front().filter(|packet| self.profile.hands && !packet.zcopy);
        let taken = shown.is_some_and(|packet| take(&packet.header, &packet.payload));
        if taken {
            queue.pop_front();
        }
        taken
    }

    fn register_source(&mut self, _: Peer, region: &SendRegion) -> Result<RemoteKey, Refused> {
        self.register(Registered::Source(region.clone()))
    }

    fn register_target(&mut self, region: &RecvRegion) -> Result<RemoteKey, Refused> {
        self.register(Registered::Target(region.part(0..region.len())))
    }

    fn deregister(&mut self, key: &RemoteKey) {
        let key = key.as_bytes().try_into().map(u64::from_le_bytes);
        let was = self.fabric.0.borrow_mut().memory.remove(&key.expect("our own key"));
        assert!(was.is_some(), "a key is closed twice");
    }

    fn progress<S: Sink>(&mut self, sink: &mut S) -> usize {
        if self.fabric.0.borrow().dead.contains(&self.me) {
            return 0;
        }
        let mut reports = 0;
        // Somebody connects: both ends are up when both know.
        let hellos: Vec<Peer> = {
            let net = self.fabric.0.borrow();
            let to_me =
                net.hello.iter().filter(|(rail, _, to)| (*rail, *to) == (self.rail, self.me));
            to_me.map(|(_, from, _)| *from).collect()
        };
        for peer in hellos {
            if !self.excluded.contains(&peer) && self.state(peer) == EndpointState::Closed {
                self.endpoints
                    .insert(peer, Endpoint { state: EndpointState::Connecting, announce: false });
                self.fabric.0.borrow_mut().hello.insert((self.rail, self.me, peer));
            }
            let endpoint = self.endpoints.get_mut(&peer);
            if let Some(endpoint) = endpoint
                && endpoint.state == EndpointState::Connecting
            {
                endpoint.state = EndpointState::Up;
                reports += 1;
                sink.up(peer);
            }
        }
        let cut: Vec<Peer> = {
            let net = self.fabric.0.borrow();
            let mine = net.cut.iter().filter(|(rail, me, _)| (*rail, *me) == (self.rail, self.me));
            mine.map(|(_, _, peer)| *peer).collect()
        };
        for peer in cut {
            if self.state(peer) == EndpointState::Up {
                sink.fault(Fault::rail(peer, Cause::Disconnected));
                self.purge(peer, Residue::Deliver, sink);
                reports += 1;
            }
        }
        for (peer, region, token, bytes) in std::mem::take(&mut self.landing) {
            region.write(0, &bytes);
            sink.landed(peer, region, token, Ok(()));
            reports += 1;
        }
        for (_, left) in &mut self.sending {
            *left -= 1;
        }
        for (descriptor, _) in self.sending.extract_if(.., |(_, left)| *left == 0) {
            sink.completed(descriptor, Ok(()));
            reports += 1;
        }
        let asked = {
            let mut net = self.fabric.0.borrow_mut();
            net.asked.retain(|(owner, _)| *owner != self.me);
            net.asked.clone()
        };
        let (me, shared) = (self.me, self.profile.shared);
        let over = |d: &mut RmaDescriptor| !shared || !asked.contains(&(d.peer, me));
        for descriptor in self.rma.extract_if(.., over).collect::<Vec<_>>() {
            let outcome = self.perform(&descriptor);
            sink.rma_completed(descriptor, outcome);
            reports += 1;
        }
        let up = self.endpoints.iter().filter(|(_, e)| e.state == EndpointState::Up);
        let peers: Vec<Peer> = up.map(|(&peer, _)| peer).collect();
        for peer in peers {
            for _ in 0..8 {
                let mut net = self.fabric.0.borrow_mut();
                let queue = net.packets.get_mut(&(self.rail, peer, self.me));
                let Some(packet) = queue.and_then(VecDeque::pop_front) else { break };
                drop(net);
                self.deliver(peer, packet, sink);
                reports += 1;
            }
        }
        reports
    }

    fn invalidate<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        self.purge(peer, residue, sink);
    }

    fn exclude<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        self.excluded.insert(peer);
        self.purge(peer, residue, sink);
    }

    fn depart(&mut self) {}

    fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    fn dump(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        writeln!(
            out,
            "mem{}: {} sending, {} landing",
            self.rail,
            self.sending.len(),
            self.landing.len()
        )
    }
}

impl MemBtl {
    fn register(&mut self, what: Registered) -> Result<RemoteKey, Refused> {
        let mut net = self.fabric.0.borrow_mut();
        net.next_key += 1;
        let key = net.next_key;
        net.memory.insert(key, (self.me, what));
        Ok(RemoteKey::new(&key.to_le_bytes()).expect("8 bytes fit"))
    }

    fn perform(&self, descriptor: &RmaDescriptor) -> Result<(), Fault> {
        let refused = || Fault::operation(descriptor.peer, Cause::Injected("refused"));
        let net = self.fabric.0.borrow();
        if self.profile.refuse_rma || net.dead.contains(&descriptor.peer) {
            return Err(refused());
        }
        let key = descriptor.remote.as_bytes().try_into().map(u64::from_le_bytes);
        let (owner, memory) = net.memory.get(&key.map_err(|_| refused())?).ok_or_else(refused)?;
        assert_eq!(*owner, descriptor.peer);
        let start = descriptor.remote_offset as usize;
        match (&descriptor.kind, memory) {
            (RmaKind::Get(into), Registered::Source(from)) => {
                into.write(0, &from.as_slice()[start..start + into.len()]);
            }
            (RmaKind::Put(from), Registered::Target(into)) => into.write(start, from.as_slice()),
            _ => return Err(refused()),
        }
        Ok(())
    }
}

/// A message's bytes, told apart by a seed.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let word = |i: usize| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed * 0x1f3);
    (0..len).map(|i| (word(i) >> 24) as u8).collect()
}

/// A buffer that lives until the end of the test, so that regions of it may be handed around.
pub struct Memory(*mut OwnedBuffer);

impl Memory {
    pub fn of(bytes: Vec<u8>) -> Self {
        Memory(Box::into_raw(Box::new(OwnedBuffer::from(bytes))))
    }

    /// Frees the buffer.
    ///
    /// # Safety
    /// No region of it is in use any more, by anybody.
    pub unsafe fn free(&self) {
        // SAFETY: it came from a box, and by contract nobody uses it.
        drop(unsafe { Box::from_raw(self.0) });
    }

    fn owner(&self) -> &OwnedBuffer {
        // SAFETY: it came from a box that nobody freed, and the buffer is only reached through regions.
        unsafe { &*self.0 }
    }

    pub fn zeroed(len: usize) -> Self {
        Self::of(vec![0; len])
    }

    pub fn payload(&self) -> Payload {
        // SAFETY: the buffer is never freed, and nobody writes it.
        Payload::from(unsafe { self.owner().send_region() })
    }

    pub fn buffer(&self) -> Buffer {
        // SAFETY: the buffer is never freed, and read only after the request is complete.
        Buffer::from(unsafe { self.owner().recv_region() })
    }

    pub fn region(&self) -> RecvRegion {
        // SAFETY: as above.
        unsafe { self.owner().recv_region() }
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.region().to_vec()
    }
}

/// Engines on one fabric, with a communicator of all.
pub struct World {
    pub fabric: Fabric,
    pub engines: Vec<Ob1<MemBtl>>,
    pub comms: Vec<CommId>,
}

impl World {
    pub fn new(size: u32, rails: &[Profile]) -> Self {
        Self::with(size, rails, |_| {})
    }

    pub fn with(size: u32, rails: &[Profile], configure: impl Fn(&mut Config)) -> Self {
        let fabric = Fabric::default();
        let peers: Vec<Peer> = (0..size).map(Peer).collect();
        let mut engines: Vec<_> = peers
            .iter()
            .map(|&me| {
                let mut config = Config::new(me);
                configure(&mut config);
                let mut engine = Ob1::new(config);
                for (rail, profile) in (0..).zip(rails) {
                    engine.add_btl(MemBtl::new(&fabric, me, rail, profile.clone()));
                }
                engine
            })
            .collect();
        let addresses: Vec<_> = engines.iter().map(Ob1::addresses).collect();
        let mut comms = Vec::new();
        for (rank, engine) in (0..).zip(&mut engines) {
            for (peer, addresses) in peers.iter().zip(&addresses) {
                if peer.0 != rank {
                    engine.add_peer(*peer, addresses).expect("the fabric reaches everybody");
                }
            }
            let spec = CommSpec::intra(1, 0, rank, peers.clone());
            comms.push(engine.add_comm(spec).expect("the first communicator"));
        }
        let mut world = World { fabric, engines, comms };
        for _ in 0..3 {
            world.poll();
        }
        world
    }

    /// Each engine progresses once.
    pub fn poll(&mut self) -> usize {
        let dead = self.fabric.0.borrow().dead.clone();
        let alive = (0..).map(Peer).zip(&mut self.engines).filter(|(peer, _)| !dead.contains(peer));
        alive.map(|(_, engine)| engine.progress()).sum()
    }

    /// Progresses until nothing happens any more.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            if self.poll() == 0 && self.poll() == 0 && self.poll() == 0 {
                return;
            }
        }
        panic!("the engines never come to rest: {}", self.dump());
    }

    pub fn dump(&self) -> String {
        let mut out = String::new();
        for engine in &self.engines {
            engine.dump(&mut out).expect("strings take everything");
        }
        out
    }

    pub fn send(&mut self, from: u32, to: u32, mode: Mode, data: &Memory, tag: i32) -> Started {
        let comm = self.comms[from as usize];
        let started = self.engines[from as usize].send(comm, mode, &data.payload(), to, tag);
        started.expect("arguments are right")
    }

    pub fn recv(&mut self, at: u32, into: &Memory, source: Source, tag: TagMatch) -> ReqId {
        let comm = self.comms[at as usize];
        let posted = self.engines[at as usize].recv(comm, into.buffer(), source, tag);
        posted.expect("arguments are right")
    }

    /// The answer for a request; fails the test with a dump when there is none after all came to rest.
    pub fn finish(&mut self, at: u32, request: ReqId) -> Completion {
        self.settle();
        match self.engines[at as usize].test(request) {
            Some(completion) => completion,
            None => panic!("request {request:?} of {at} is not complete:\n{}", self.dump()),
        }
    }

    /// As `finish`, for what `send` answered.
    pub fn finish_send(&mut self, at: u32, started: Started) -> Result<(), PmlError> {
        match started {
            Started::Done => Ok(()),
            Started::Pending(request) => self.finish(at, request).result,
        }
    }
}
