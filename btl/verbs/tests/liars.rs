//! A peer that lies: it belongs to the job and has a connection, and says by it what no honest one says. It is found out,
//! its endpoint ends with a fault that names why, and nothing else is harmed: neither another peer nor its own next life.
//!
//! All ends live in this process, on the devices of two hosts; runs in the virtual machine (`ci/hwtests`). The liar is
//! made of a queue pair and what is written to it by hand; over iWARP, where connections are made otherwise, there is none.
#![allow(unsafe_code)] // requests are posted by hand

#[path = "support/nodes.rs"]
mod nodes;
mod support;

use ironweave_btl::secret::{JobKey, random};
use ironweave_btl::{Btl, Cause, EndpointState, Peer};
use ironweave_btl_verbs::VerbsConfig;
use ironweave_btl_verbs::ring::{Shape, Writer, laid};
use ironweave_btl_verbs::wire::{
    Contact, End, Frame, Greeting, Kind, OFFER, Offer, PREFIX, decode_frame, job_key, prefix,
};
use ironweave_ffi_verbs::{
    Access, AddressHandle, Channel, CompletionQueue, Device, Kind as QueueKind, Operation, Path,
    QueuePair, Sge, Slab, Status, Wc,
};
use ironweave_hwtests::fabric::{Fabric, is_ipv4};
use nodes::{Node, WATCHDOG, job, pair, until};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::given;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// The liar's rank; 0 is lied to, 1 is an honest neighbour.
const LIAR: u32 = 2;
/// Bytes of each of the liar's buffers, and how many there are to receive into; one more is to send from.
const BUFFER: usize = 16 << 10;
const BUFFERS: usize = 40;
/// Bytes of each buffer for greetings, and of what precedes a datagram in it.
const LETTER: usize = 512;
const LETTERS: usize = 8;
const GLOBAL_HEADER: usize = 40;
/// The key of the liar's datagram queue pair.
const KEY: u32 = 0x0123_4567;

/// Carries the liar's greetings.
struct Mail {
    // Before the memory that is posted to it.
    pair: QueuePair,
    queue: Arc<CompletionQueue>,
    memory: Slab,
    to: AddressHandle,
    number: u32,
    key: u32,
    seal: JobKey,
}

impl Mail {
    fn receive(&self, index: usize) {
        let piece = Sge {
            addr: self.memory.address(index * LETTER),
            length: LETTER as u32,
            lkey: self.memory.registration().lkey(),
        };
        // SAFETY: the memory goes after the queue pair, and is read after its completion only.
        unsafe { self.pair.post_receive(index as u64, &piece) }.expect("there is room");
    }

    fn say(&self, greeting: &Greeting) {
        let (at, bytes) = (LETTERS * LETTER, greeting.as_bytes());
        // SAFETY: what was sent from there before, if it is still out, was the same.
        unsafe { self.memory.bytes_mut(at, bytes.len()) }.copy_from_slice(bytes);
        let piece = Sge {
            addr: self.memory.address(at),
            length: bytes.len() as u32,
            lkey: self.memory.registration().lkey(),
        };
        let operation = Operation::Datagram { to: &self.to, number: self.number, key: self.key };
        // SAFETY: the memory goes after the queue pair.
        unsafe { self.pair.post(LETTERS as u64, operation, &[piece], true, false) }
            .expect("there is room");
    }

    /// Says `greeting` until it is answered by one of kind `wanted`.
    fn ask(&self, nodes: &mut [Node], greeting: Greeting, wanted: Kind) -> Greeting {
        let greeting = greeting.sealed(&self.seal);
        let end = Instant::now() + WATCHDOG;
        let mut said: Option<Instant> = None;
        loop {
            assert!(Instant::now() < end, "no {wanted:?}");
            if said.is_none_or(|said| said.elapsed() > Duration::from_millis(500)) {
                self.say(&greeting);
                said = Some(Instant::now());
            }
            nodes.iter_mut().for_each(Node::turn);
            let mut done = [Wc::default()];
            while self.queue.poll(&mut done) == Some(1) {
                let index = done[0].wr_id as usize;
                if index >= LETTERS {
                    continue; // ours was sent
                }
                let len = done[0].byte_len as usize;
                // SAFETY: the device is done with it until it is posted again.
                let letter =
                    unsafe { self.memory.bytes(index * LETTER, len) }[GLOBAL_HEADER..].to_vec();
                self.receive(index);
                let answer = Greeting::decode(&letter, &self.seal);
                if let Some((_, answer)) = answer.filter(|(kind, _)| *kind == wanted) {
                    return answer;
                }
            }
        }
    }
}

/// The other end of a connection with rank 0.
struct Liar {
    // Before the memory that is posted to it.
    pair: QueuePair,
    came: Arc<CompletionQueue>,
    over: Arc<CompletionQueue>,
    memory: Slab,
    control: Slab,
    device: Device,
    seal: JobKey,
    nonces: ([u8; 16], [u8; 16]),
    /// How many frames came.
    taken: u32,
    /// The number of the next frame.
    number: u32,
}

impl Liar {
    /// Calls rank 0, by the rules, and is up there.
    fn call(fabric: &Fabric, nodes: &mut [Node], job: &str, attempt: u64) -> Liar {
        let address = nodes[0].btl.address().bytes;
        let theirs = Contact::read_from_bytes(&address[1..1 + size_of::<Contact>()])
            .expect("the address has a contact");
        let device = Device::open(fabric.device(1, 0)).expect("the device opens");
        let channel = Channel::new(&device).expect("a channel");
        let queue = || CompletionQueue::new(&device, &channel, 256).expect("a completion queue");
        let pair = |kind, over: &Arc<_>, came: &Arc<_>, rooms| {
            QueuePair::new(&device, kind, over, came, None, rooms, 1, 0).expect("a queue pair")
        };
        let slab = |len, access| Slab::new(&device, len, access).expect("memory");

        let same =
            |index| device.gid(1, index).is_ok_and(|gid| is_ipv4(&gid) == is_ipv4(&theirs.gid));
        let path = Path {
            port: 1,
            gid_index: (0..16).find(|&index| same(index)).unwrap_or(0) as u8,
            global: theirs.link == 2,
            gid: theirs.gid,
            lid: theirs.lid.get(),
            service_level: 0,
            traffic_class: 0,
        };
        let post = queue();
        let letters = pair(QueueKind::Datagram, &post, &post, (64, LETTERS as u32));
        letters.open_for_datagrams(1, 0, KEY).expect("the port");
        let contact = Contact {
            gid: device.gid(1, path.gid_index.into()).expect("a GID"),
            lid: device.port(1).expect("a port").lid.into(),
            number: letters.number().into(),
            key: KEY.into(),
            ..theirs
        };
        let mail = Mail {
            pair: letters,
            queue: post,
            memory: slab((LETTERS + 1) * LETTER, Access::LocalWrite),
            to: AddressHandle::new(&device, &path).expect("a way there"),
            number: theirs.number.get(),
            key: theirs.key.get(),
            seal: job_key(&[7; 32], job),
        };
        (0..LETTERS).for_each(|index| mail.receive(index));

        let (came, over) = (queue(), queue());
        let pair = pair(QueueKind::Reliable, &over, &came, (64, BUFFERS as u32));
        pair.prepare(1, 0).expect("the port");
        let control = slab(64, Access::RemoteWrite);
        let mut hello = Greeting::new(Kind::Hello, LIAR, 0, attempt, contact);
        hello.caller_nonce = random().expect("the kernel has randomness");
        hello.end = End {
            number: pair.number().into(),
            psn: 7.into(),
            credits: 32.into(),
            control_key: control.registration().rkey().into(),
            control: control.address(0).into(),
            buffer: (BUFFER as u32).into(),
            reads: 1,
            ..End::new_zeroed()
        };
        let accept = mail.ask(nodes, hello, Kind::Accept);
        let nonces = (accept.caller_nonce, accept.answerer_nonce);
        assert_eq!(nonces.0, hello.caller_nonce);
        let (psns, timers) = ((7, accept.end.psn.get()), VerbsConfig::default().timers);
        pair.connect(&path, accept.end.number.get(), psns, theirs.mtu, 1, timers)
            .expect("a way there");
        let memory = slab((BUFFERS + 1) * BUFFER, Access::LocalWrite);
        let seal = mail.seal.clone();
        let (taken, number) = (0, 0);
        let liar = Liar { pair, came, over, memory, control, device, seal, nonces, taken, number };
        (0..BUFFERS).for_each(|index| liar.receive(index));
        let mut confirm = Greeting::new(Kind::Confirm, LIAR, 0, 0, contact);
        (confirm.caller_nonce, confirm.answerer_nonce) = nonces;
        mail.ask(nodes, confirm, Kind::Ready);
        assert_eq!(nodes[0].btl.state(Peer(LIAR)), EndpointState::Up);
        liar
    }

    fn receive(&self, index: usize) {
        let piece = Sge {
            addr: self.memory.address(index * BUFFER),
            length: BUFFER as u32,
            lkey: self.memory.registration().lkey(),
        };
        // SAFETY: the memory goes after the queue pair, and is read after its completion only.
        unsafe { self.pair.post_receive(index as u64, &piece) }.expect("there is room");
    }

    /// The next frame that came.
    fn frame(&mut self) -> Option<Vec<u8>> {
        let mut done = [Wc::default()];
        if self.came.poll(&mut done) != Some(1) || Status::of(done[0].status) != Status::Success {
            return None;
        }
        let (index, len) = (done[0].wr_id as usize, done[0].byte_len as usize);
        // SAFETY: the device is done with it until it is posted again.
        let frame = unsafe { self.memory.bytes(index * BUFFER, len) }.to_vec();
        self.receive(index);
        self.taken += 1;
        Some(frame)
    }

    /// Posts a request over `bytes` and waits for its end.
    fn post(&self, operation: Operation<'_>, bytes: &[u8]) -> Status {
        let at = BUFFERS * BUFFER;
        // SAFETY: nothing is out: every request is waited for.
        unsafe { self.memory.bytes_mut(at, bytes.len()) }.copy_from_slice(bytes);
        let piece = Sge {
            addr: self.memory.address(at),
            length: bytes.len() as u32,
            lkey: self.memory.registration().lkey(),
        };
        // SAFETY: the memory goes after the queue pair.
        unsafe { self.pair.post(0, operation, &[piece], true, false) }.expect("there is room");
        let end = Instant::now() + WATCHDOG;
        let mut done = [Wc::default()];
        while self.over.poll(&mut done) != Some(1) {
            assert!(Instant::now() < end, "a request never ends");
            std::thread::yield_now();
        }
        Status::of(done[0].status)
    }

    fn send(&self, bytes: &[u8]) {
        assert_eq!(self.post(Operation::Send, bytes), Status::Success);
    }

    /// A payload with `word` beside it.
    fn send_alone(&self, word: u32) {
        assert_eq!(self.post(Operation::SendBeside(word), &[7; 4096]), Status::Success);
    }

    /// A frame of `kind` as an honest peer sends it next.
    fn honest(&self, kind: Frame, content: &[u8]) -> Vec<u8> {
        let mut frame = prefix(kind, LIAR, self.taken, self.number).to_vec();
        frame.extend_from_slice(content);
        frame
    }

    fn send_next(&mut self, kind: Frame, content: &[u8]) {
        self.send(&self.honest(kind, content));
        self.number = self.number.wrapping_add(1);
    }

    /// An offer of `slots` of `size` bytes at `address`, sealed for these nonces as one of rank `from`.
    fn offer(
        &self,
        (address, rkey): (u64, u32),
        (slots, size): (u32, u32),
        from: u32,
        nonces: &([u8; 16], [u8; 16]),
    ) -> [u8; OFFER] {
        // Of any shape; `Offer::new` makes sound ones only.
        let mut bytes = [0; OFFER];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        for (at, word) in [(8, rkey), (12, slots), (16, size)] {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        let parts = [b"IWvR", &from.to_le_bytes()[..], &nonces.0, &nonces.1, &bytes];
        let seal = self.seal.hash(&parts);
        bytes[OFFER - 32..].copy_from_slice(seal.as_bytes());
        bytes
    }

    /// One that rank 0 believes.
    fn sound_offer(&self, place: (u64, u32)) -> [u8; OFFER] {
        self.offer(place, (32, 256), LIAR, &self.nonces)
    }

    /// Sends short frames until it has a ring of rank 0's, and the means to write there.
    fn ring(&mut self, nodes: &mut [Node]) -> Theirs {
        self.send_next(Frame::Data(1), b"hshort");
        let mut ring = None;
        until("a ring", nodes, |_| {
            let Some(frame) = self.frame() else { return false };
            let said = decode_frame(&frame).expect("an honest peer's");
            assert_eq!(said.frame, Frame::Offer);
            ring = Offer::decode(&frame[PREFIX..], &self.seal, 0, &self.nonces);
            true
        });
        let (address, rkey, shape) = ring.expect("an honest peer's");
        Theirs { address, rkey, shape, writer: Writer::new(shape) }
    }
}

/// Rank 0's ring.
struct Theirs {
    address: u64,
    rkey: u32,
    shape: Shape,
    writer: Writer,
}

impl Theirs {
    fn write(&self, liar: &Liar, offset: u64, bytes: &[u8]) -> Status {
        let place = Operation::Write { address: self.address + offset, rkey: self.rkey };
        liar.post(place, bytes)
    }

    /// Lays `frame` into the first slot, whole.
    fn lay(&self, liar: &Liar, frame: &[u8]) {
        let mut bytes = vec![0; laid(frame.len())];
        bytes[..frame.len()].copy_from_slice(frame);
        let offset = self.writer.lay(&mut bytes, frame.len());
        assert_eq!(self.write(liar, offset as u64, &bytes), Status::Success);
    }

    /// Writes what ends like a frame of `len` bytes into the first slot, and is none.
    fn lay_part(&self, liar: &Liar, len: u16) {
        let (sum, lap) = (0x0bad_5eed_u64, 1_u64);
        let trailer = sum | u64::from(len) << 32 | lap << 48;
        let offset = u64::from(self.shape.size()) - 8;
        assert_eq!(self.write(liar, offset, &trailer.to_le_bytes()), Status::Success);
    }
}

/// Rank 0, which is lied to, and rank 1.
struct Stage {
    fabric: Fabric,
    nodes: Vec<Node>,
    job: String,
    calls: u64,
    /// Frames that each liar sends before it lies.
    honest: usize,
}

impl Stage {
    fn new(fabric: Fabric, test: &str) -> Option<Stage> {
        if fabric.is_iwarp() {
            println!("SKIP verbs/{test}: the liar knows RoCE and InfiniBand only");
            return None;
        }
        let nodes = pair(&fabric, test, |config| {
            // Short frames go by ring at once, and what is stuck is found soon.
            config.ring_after = 1;
            config.stall_timeout = Duration::from_secs(4);
        });
        let job = job(test);
        let mut stage = Stage { fabric, nodes, job, calls: 0, honest: 0 };
        stage.neighbours();
        Some(stage)
    }

    fn liar(&mut self) -> Liar {
        self.calls += 1;
        Liar::call(&self.fabric, &mut self.nodes, &self.job, self.calls)
    }

    /// The neighbour's frames come and go, and it notices nothing.
    fn neighbours(&mut self) {
        let before = [0, 1].map(|me: usize| self.heard(me, 1 - me as u32));
        let mut sent = [0; 2];
        until("the neighbour's frames", &mut self.nodes, |nodes| {
            for (me, sent) in sent.iter_mut().enumerate() {
                let to = Peer(1 - me as u32);
                while *sent < 40 && nodes[me].btl.send_short(to, b"h", &[*sent; 30]).is_ok() {
                    *sent += 1;
                }
            }
            (0..2).all(|me| {
                let from = Peer(1 - me as u32);
                let frames = &nodes[me].seen.frames;
                frames.iter().filter(|(peer, _)| *peer == from).count() == before[me] + 40
            })
        });
        for (me, before) in before.into_iter().enumerate() {
            let from = Peer(1 - me as u32);
            let frames = self.nodes[me].seen.frames.iter().filter(|(peer, _)| *peer == from);
            let last = frames.skip(before).map(|(_, payload)| payload.clone());
            assert!(last.eq((0..40).map(|number| vec![number; 30])));
        }
        assert!(self.nodes[1].seen.faults.is_empty() && self.nodes[1].seen.closed == 0);
    }

    fn heard(&self, me: usize, from: u32) -> usize {
        self.nodes[me].seen.frames.iter().filter(|(peer, _)| *peer == Peer(from)).count()
    }

    /// A liar does this: rank 0 ends its endpoint with one of these causes, once, and nothing else happens.
    fn lie(&mut self, what: &str, causes: &[Cause], act: impl FnOnce(&mut Liar, &mut [Node])) {
        let mut liar = self.liar();
        let before = self.heard(0, LIAR);
        let closed = self.nodes[0].seen.closed;
        let rejected = self.nodes[0].btl.counters().rejected.get();
        let faults = self.nodes[0].seen.faults.len();
        act(&mut liar, &mut self.nodes);
        until(what, &mut self.nodes, |nodes| nodes[0].seen.closed > closed);
        let Node { btl, seen } = &self.nodes[0];
        assert_eq!(seen.closed, closed + 1, "{what}");
        let [fault] = &seen.faults[faults..] else { panic!("{what}: {:?}", seen.faults) };
        println!("{what}: {fault}");
        assert_eq!(fault.peer, Some(Peer(LIAR)), "{what}");
        assert!(causes.contains(&fault.cause), "{what}: {fault}");
        let malformed = matches!(fault.cause, Cause::Malformed(_));
        assert_eq!(btl.counters().rejected.get() - rejected, u64::from(malformed), "{what}");
        assert_eq!(btl.state(Peer(LIAR)), EndpointState::Closed, "{what}");
        assert_eq!(self.heard(0, LIAR) - before, self.honest, "{what}: a lie was believed");
        drop(liar);
        self.neighbours();
    }
}

const BAD_OFFER: &[Cause] = &[Cause::Malformed("an offer of a ring")];
const BAD_FRAME: &[Cause] = &[Cause::Malformed("a frame")];
const BAD_ORDER: &[Cause] = &[Cause::Malformed("a frame out of order")];
const BAD_LEAN: &[Cause] = &[Cause::Malformed("what was sent beside a payload")];
const BAD_IN_RING: &[Cause] = &[Cause::Malformed("a frame in a ring")];
const BAD_ORDER_IN_RING: &[Cause] = &[Cause::Malformed("a frame out of order in a ring")];
/// How a device tells that it refused a peer's write: by an event, or (Soft-RoCE) to whoever asks it for something next.
const BEHIND: &[Cause] =
    &[Cause::Device("the queue pair went into error"), Cause::Device(Status::Flushed.words())];
const PART_IN_RING: &[Cause] = &[Cause::Malformed("a part of a frame in a ring")];

/// Offers of rings that are not sealed for this connection, make no sense, or are said twice.
#[test]
fn bad_offers_are_refused() {
    let test = "bad_offers_are_refused";
    let Some((fabric, _alone)) = given(test) else { return };
    let Some(mut stage) = Stage::new(fabric, test) else { return };
    let place = |liar: &Liar| (liar.control.address(0), liar.control.registration().rkey());
    for at in [0, 9, 13, 17, OFFER - 1] {
        stage.lie(&format!("byte {at} changed"), BAD_OFFER, |liar, _| {
            let mut offer = liar.sound_offer(place(liar));
            offer[at] ^= 0x20;
            liar.send_next(Frame::Offer, &offer);
        });
    }
    for (address, slots, size) in [
        (0, 32, 256),
        (0x7001, 32, 256),
        (u64::MAX - 255, 32, 256),
        (0x7000, 0, 256),
        (0x7000, 1025, 256),
        (0x7000, 32, 100),
        (0x7000, 32, 1 << 20),
    ] {
        let what = format!("{slots} slots of {size} at {address:#x}");
        stage.lie(&what, BAD_OFFER, |liar, _| {
            let offer = liar.offer((address, 1), (slots, size), LIAR, &liar.nonces);
            liar.send_next(Frame::Offer, &offer);
        });
    }
    stage.lie("sealed as the neighbour's", BAD_OFFER, |liar, _| {
        let offer = liar.offer(place(liar), (32, 256), 1, &liar.nonces);
        liar.send_next(Frame::Offer, &offer);
    });
    let mut earlier = None;
    stage.lie("offered twice", BAD_OFFER, |liar, _| {
        let offer = liar.sound_offer(place(liar));
        earlier = Some(offer);
        liar.send_next(Frame::Offer, &offer);
        liar.send_next(Frame::Offer, &offer);
    });
    let earlier = earlier.expect("it was offered");
    stage.lie("of an earlier life", BAD_OFFER, |liar, _| {
        liar.send_next(Frame::Offer, &earlier);
    });
    stage.lie("of another job", BAD_OFFER, |liar, _| {
        liar.seal = job_key(&[8; 32], test);
        let offer = liar.sound_offer(place(liar));
        liar.send_next(Frame::Offer, &offer);
    });
    stage.lie("cut", BAD_FRAME, |liar, _| {
        let offer = liar.sound_offer(place(liar));
        liar.send_next(Frame::Offer, &offer[..OFFER - 1]);
    });
}

/// Payloads that come alone, with what no honest peer says beside them, or before it could.
#[test]
fn payloads_alone_that_lie() {
    let test = "payloads_alone_that_lie";
    let Some((fabric, _alone)) = given(test) else { return };
    let Some(mut stage) = Stage::new(fabric, test) else { return };
    let beside = |liar: &Liar, number: u32| 1 << 31 | (liar.taken & 0x7fff) << 16 | number & 0xffff;
    stage.lie("no mark", BAD_LEAN, |liar, _| {
        liar.send_alone(beside(liar, liar.number) & !(1 << 31));
    });
    stage.honest = 1;
    for (what, off) in
        [("of a frame to come", 1), ("of one that came", u32::MAX), ("far off", 0x7000)]
    {
        stage.lie(what, BAD_ORDER, |liar, _| {
            liar.send_next(Frame::Data(1), b"hfirst");
            liar.send_alone(beside(liar, liar.number.wrapping_add(off)));
        });
    }
}

/// Offers that are sealed well, of memory that is not there: the device refuses the write, and the endpoint ends.
#[test]
fn offers_of_nothing_end_the_endpoint() {
    let test = "offers_of_nothing_end_the_endpoint";
    let Some((fabric, _alone)) = given(test) else { return };
    let Some(mut stage) = Stage::new(fabric, test) else { return };
    let refused = [Cause::Device(Status::RemoteAccess.words())];
    /// Rank 0 sends until `enough` went to the liar's ring, or it sees that this leads nowhere.
    fn send(nodes: &mut [Node], enough: u64) {
        let before = nodes[0].btl.counters().ring_sent.get();
        until("frames by ring", nodes, |nodes| {
            let _ = nodes[0].btl.send_short(Peer(LIAR), b"h", &[9; 30]);
            nodes[0].btl.counters().ring_sent.get() - before >= enough
                || nodes[0].btl.state(Peer(LIAR)) != EndpointState::Up
        });
    }
    stage.lie("a right that is none", &refused, |liar, nodes| {
        let offer = liar.sound_offer((liar.control.address(0), 0x00de_ad00));
        liar.send_next(Frame::Offer, &offer);
        send(nodes, 1);
    });
    stage.lie("an address without memory", &refused, |liar, nodes| {
        let offer = liar.sound_offer((0x7000, liar.control.registration().rkey()));
        liar.send_next(Frame::Offer, &offer);
        send(nodes, 1);
    });
    stage.lie("memory that may only be read", &refused, |liar, nodes| {
        let ring = Slab::new(&liar.device, 32 * 256, Access::RemoteRead).expect("memory");
        let offer = liar.sound_offer((ring.address(0), ring.registration().rkey()));
        liar.send_next(Frame::Offer, &offer);
        send(nodes, 1);
        until("the end", nodes, |nodes| nodes[0].btl.state(Peer(LIAR)) != EndpointState::Up);
        assert!((0..32 * 32).all(|word| ring.long(word * 8) == 0), "it was written");
    });
    stage.lie("memory of two slots said to be 32", &refused, |liar, nodes| {
        let ring = Slab::new(&liar.device, 512, Access::RemoteWrite).expect("memory");
        let offer = liar.sound_offer((ring.address(0), ring.registration().rkey()));
        liar.send_next(Frame::Offer, &offer);
        send(nodes, 3);
        until("the end", nodes, |nodes| nodes[0].btl.state(Peer(LIAR)) != EndpointState::Up);
        assert!(ring.long(256 - 8) != 0 && ring.long(512 - 8) != 0, "two frames fitted");
    });
}

/// What is sent, and is no frame, of somebody else, or not the next.
#[test]
fn bad_frames_end_the_endpoint() {
    let test = "bad_frames_end_the_endpoint";
    let Some((fabric, _alone)) = given(test) else { return };
    let Some(mut stage) = Stage::new(fabric, test) else { return };
    stage.lie("noise", BAD_FRAME, |liar, _| liar.send(&[0xa5; 60]));
    stage.lie("less than a prefix", BAD_FRAME, |liar, _| liar.send(&[0xf6, 1, 1]));
    stage.lie("a header that is not all there", BAD_FRAME, |liar, _| {
        liar.send(&liar.honest(Frame::Data(9), b"h"));
    });
    stage.lie("of the neighbour", BAD_FRAME, |liar, _| {
        let mut frame = prefix(Frame::Data(1), 1, 0, 0).to_vec();
        frame.extend_from_slice(b"hello");
        liar.send(&frame);
    });
    stage.lie("of nobody", BAD_FRAME, |liar, _| {
        let mut frame = prefix(Frame::Data(1), u32::MAX, 0, 0).to_vec();
        frame.extend_from_slice(b"hello");
        liar.send(&frame);
    });
    for number in [1, 31, u32::MAX] {
        stage.lie(&format!("number {number} first"), BAD_ORDER, |liar, _| {
            liar.number = number;
            liar.send_next(Frame::Data(1), b"hello");
        });
    }
    stage.honest = 1;
    stage.lie("said twice", BAD_ORDER, |liar, _| {
        let frame = liar.honest(Frame::Data(1), b"hello");
        liar.send(&frame);
        liar.send(&frame);
    });
}

/// What is written to a ring, and is no frame, of somebody else, not the next, or never whole.
#[test]
fn bad_frames_in_a_ring_end_the_endpoint() {
    let test = "bad_frames_in_a_ring_end_the_endpoint";
    let Some((fabric, _alone)) = given(test) else { return };
    let Some(mut stage) = Stage::new(fabric, test) else { return };
    stage.honest = 1;
    stage.lie("noise in a slot", BAD_IN_RING, |liar, nodes| {
        liar.ring(nodes).lay(liar, &[0xa5; 60]);
    });
    stage.lie("an empty frame", BAD_IN_RING, |liar, nodes| liar.ring(nodes).lay(liar, &[]));
    stage.lie("of the neighbour", BAD_IN_RING, |liar, nodes| {
        let ring = liar.ring(nodes);
        let mut frame = prefix(Frame::Data(1), 1, 0, liar.number).to_vec();
        frame.extend_from_slice(b"hello");
        ring.lay(liar, &frame);
    });
    for kind in [Frame::Bye, Frame::Open] {
        stage.lie(&format!("{kind:?} in a slot"), BAD_IN_RING, |liar, nodes| {
            let ring = liar.ring(nodes);
            ring.lay(liar, &liar.honest(kind, &[]));
        });
    }
    for ahead in [u32::MAX, 32, 1000] {
        stage.lie(&format!("{ahead} ahead in a slot"), BAD_ORDER_IN_RING, |liar, nodes| {
            let ring = liar.ring(nodes);
            liar.number = liar.number.wrapping_add(ahead);
            ring.lay(liar, &liar.honest(Frame::Data(1), b"hello"));
        });
    }
    for len in [40, u16::MAX] {
        stage.lie(&format!("never whole, of {len} bytes"), PART_IN_RING, |liar, nodes| {
            liar.ring(nodes).lay_part(liar, len);
        });
    }
    stage.lie("behind the ring", BEHIND, |liar, nodes| {
        let ring = liar.ring(nodes);
        let status = ring.write(liar, ring.shape.bytes() as u64, &[1; 8]);
        assert_eq!(status, Status::RemoteAccess);
    });
}
