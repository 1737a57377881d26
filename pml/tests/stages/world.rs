//! Three processes over simulated rails whose frames are recorded: 0 sends, 1 receives, 2 looks on.
#![allow(unsafe_code)] // frees the memory that it lent when everybody is gone

use super::util::{Memory, pattern};
use ironweave_btl::{Loopback, Peer};
use ironweave_btl_sim::{Passage, Rail, RailModel, SimFault, SimNet, Watch};
use ironweave_pml::ob1::{
    CommId, CommSpec, Config, MessageId, Mode, Ob1, PmlError, ReqId, Source, Started, TagMatch,
    Usage,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

pub const SENDER: u32 = 0;
pub const RECEIVER: u32 = 1;
pub const BYSTANDER: u32 = 2;
pub const TAG: i32 = 5;
/// What a receive's memory is filled with when it is over, and a send's.
const AFTER: [u8; 2] = [0xEE, 0x11];
/// Steps after which a world is believed to go on for ever.
const STEPS_MAX: usize = 1_000_000;

/// A frame as it was sent.
#[derive(Clone)]
struct Frame {
    from: u32,
    to: u32,
    header: Vec<u8>,
    payload: Vec<u8>,
}

/// What passed between all rails and their owners.
#[derive(Default)]
struct Record {
    frames: Vec<Frame>,
    /// By process and kind of frame.
    sent: BTreeMap<(u32, u8), usize>,
    arrived: BTreeMap<(u32, u8), usize>,
    /// Reads and writes begun, by process.
    accesses: BTreeMap<u32, usize>,
    /// Frames that come once more.
    late: VecDeque<Frame>,
}

/// One process's part in the record.
pub struct Tap {
    me: u32,
    record: Rc<RefCell<Record>>,
}

impl Watch for Tap {
    fn sent(&mut self, to: Peer, header: &[u8], payload: &[u8]) {
        let mut record = self.record.borrow_mut();
        *record.sent.entry((self.me, header[0])).or_default() += 1;
        let (header, payload) = (header.to_vec(), payload.to_vec());
        record.frames.push(Frame { from: self.me, to: to.0, header, payload });
    }

    fn accessed(&mut self, _: Peer) {
        *self.record.borrow_mut().accesses.entry(self.me).or_default() += 1;
    }

    fn arrives(&mut self, from: Peer, header: &[u8], _: &[u8]) -> Passage {
        self.lands(from, header);
        Passage::Pass
    }

    fn lands(&mut self, _: Peer, header: &[u8]) {
        *self.record.borrow_mut().arrived.entry((self.me, header[0])).or_default() += 1;
    }

    fn insert(&mut self) -> Option<(Peer, Vec<u8>, Vec<u8>)> {
        let mut record = self.record.borrow_mut();
        let at = record.late.iter().position(|frame| frame.to == self.me)?;
        let Frame { from, header, payload, .. } = record.late.remove(at)?;
        Some((Peer(from), header, payload))
    }
}

/// How far a message shall be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// At the start.
    AtOnce,
    /// The process has sent so many frames of this kind, which are on their way.
    Sent(u32, u8, usize),
    /// So many frames of this kind have come to the process.
    Came(u32, u8, usize),
    /// The process has begun a read or write.
    Access(u32),
    /// Nothing moves any more.
    AtRest,
}

/// How an operation ended.
pub type Outcome = Result<(), PmlError>;
/// A receive from anybody that a failure interrupts.
pub const PENDING: Outcome = Err(PmlError::ProcFailedPending);

struct Open {
    at: u32,
    request: ReqId,
    persistent: bool,
    memory: usize,
}

/// One end's operation: the memory it used, and what came of it.
pub struct Done {
    memory: Memory,
    /// Of a receive: what is to come.
    expected: Option<Vec<u8>>,
    pub outcome: Option<Outcome>,
}

pub struct World {
    net: SimNet,
    record: Rc<RefCell<Record>>,
    pub engines: Vec<Option<Ob1<Rail<Tap>>>>,
    comms: Vec<CommId>,
    spare: Vec<CommId>,
    open: Vec<Open>,
    pub done: Vec<Done>,
    /// What this world is, for messages.
    name: String,
}

impl World {
    pub fn new(name: &str, seed: u64, models: &[RailModel]) -> World {
        let net = SimNet::new(seed);
        let record = Rc::new(RefCell::new(Record::default()));
        let mut engines: Vec<Ob1<Rail<Tap>>> = (0..3)
            .map(|me| {
                let mut engine = Ob1::new(Config::new(Peer(me)));
                engine.add_btl(Rail::Own(Loopback::new(Peer(me))));
                for model in models {
                    let tap = Tap { me, record: Rc::clone(&record) };
                    engine.add_btl(Rail::Watched(net.open(Peer(me), model), tap));
                }
                engine
            })
            .collect();
        let addresses: Vec<_> = engines.iter().map(Ob1::addresses).collect();
        let (mut comms, mut spare) = (Vec::new(), Vec::new());
        for (rank, engine) in (0..).zip(&mut engines) {
            for (peer, addresses) in (0..).map(Peer).zip(&addresses) {
                engine.add_peer(peer, addresses).expect("the net reaches everybody");
            }
            let mut add = |cid| engine.add_comm(CommSpec::intra(cid, 0, rank, group()));
            comms.push(add(1).expect("a new id"));
            spare.push(add(2).expect("a new id"));
        }
        let engines = engines.into_iter().map(Some).collect();
        let (open, done, name) = (Vec::new(), Vec::new(), name.to_owned());
        let mut world = World { net, record, engines, comms, spare, open, done, name };
        world.settle();
        // Everybody has heard of everybody, so that what comes later comes the usual way.
        world.check_survivors(&[8]);
        world.record.replace(Record::default());
        world
    }

    pub fn engine(&mut self, at: u32) -> &mut Ob1<Rail<Tap>> {
        self.net.wake_at(Peer(at), self.net.now_ns());
        self.engines[at as usize].as_mut().expect("only the living are asked")
    }

    fn living(&self) -> Vec<u32> {
        (0..3).filter(|&at| self.engines[at as usize].is_some()).collect()
    }

    /// One process's turn; `false` when nothing moves any more.
    fn step(&mut self) -> bool {
        let Some(Peer(at)) = self.net.next_ready() else { return false };
        let Some(engine) = &mut self.engines[at as usize] else { return true };
        if engine.progress() > 0 || engine.rails().iter().any(Rail::restless) {
            self.net.wake_at(Peer(at), self.net.now_ns() + 100);
        }
        self.look();
        true
    }

    pub fn settle(&mut self) {
        for _ in 0..STEPS_MAX {
            if !self.step() {
                return;
            }
        }
        panic!("{}: it never comes to rest\n{}", self.name, self.dump());
    }

    /// Up to so many turns.
    pub fn turns(&mut self, turns: usize) {
        for _ in 0..turns {
            self.step();
        }
    }

    pub fn reach(&mut self, when: When) {
        loop {
            let record = self.record.borrow();
            let count = |of: &BTreeMap<(u32, u8), usize>, at, kind| of.get(&(at, kind)).copied();
            let reached = match when {
                When::AtOnce => true,
                When::AtRest => false,
                When::Sent(by, kind, n) => count(&record.sent, by, kind) >= Some(n),
                When::Came(to, kind, n) => count(&record.arrived, to, kind) >= Some(n),
                When::Access(by) => record.accesses.contains_key(&by),
            };
            drop(record);
            if reached {
                return;
            }
            if !self.step() {
                let sent = &self.record.borrow().sent;
                assert!(when == When::AtRest, "{}: never {when:x?}: {sent:x?}", self.name);
                return;
            }
        }
    }

    // Operations.

    fn remember(&mut self, memory: Memory, expected: Option<Vec<u8>>) -> usize {
        self.done.push(Done { memory, expected, outcome: None });
        self.done.len() - 1
    }

    /// Begins a send of `len` bytes, which may be refused.
    pub fn send(&mut self, from: u32, to: u32, mode: Mode, len: usize, persistent: bool) -> usize {
        let data = Memory::of(pattern(len, 1));
        let (comm, payload) = (self.comms[from as usize], data.payload());
        let memory = self.remember(data, None);
        let engine = self.engine(from);
        let started = if persistent {
            let made = engine.send_init(comm, mode, payload, to, TAG).expect("right");
            engine.start(made).map(|()| Started::Pending(made))
        } else {
            engine.send(comm, mode, &payload, to, TAG)
        };
        match started {
            Ok(Started::Done) => self.over(memory, Ok(())),
            Ok(Started::Pending(request)) => {
                self.open.push(Open { at: from, request, persistent, memory });
            }
            Err(error) => self.over(memory, Err(error)),
        }
        self.look();
        memory
    }

    /// Begins a receive of what `send` sends, which may be refused.
    pub fn receive(&mut self, at: u32, from: Source, len: usize, persistent: bool) -> usize {
        let into = Memory::zeroed(len);
        let (comm, buffer) = (self.comms[at as usize], into.buffer());
        let memory = self.remember(into, Some(pattern(len, 1)));
        let (engine, tag) = (self.engine(at), TagMatch::Tag(TAG));
        let posted = if persistent {
            let made = engine.recv_init(comm, buffer, from, tag).expect("right");
            engine.start(made).map(|()| made)
        } else {
            engine.recv(comm, buffer, from, tag)
        };
        self.posted(at, memory, persistent, posted)
    }

    fn posted(
        &mut self,
        at: u32,
        memory: usize,
        persistent: bool,
        posted: Result<ReqId, PmlError>,
    ) -> usize {
        match posted {
            Ok(request) => self.open.push(Open { at, request, persistent, memory }),
            Err(error) => self.over(memory, Err(error)),
        }
        self.look();
        memory
    }

    /// Takes the message out of the queues of its receiver.
    pub fn claim(&mut self, at: u32) -> MessageId {
        self.look_for(at).unwrap_or_else(|| panic!("{}: no message to take", self.name))
    }

    /// As `claim`, if there is one.
    pub fn look_for(&mut self, at: u32) -> Option<MessageId> {
        let comm = self.comms[at as usize];
        let found = self.engine(at).mprobe(comm, Source::Any, TagMatch::Any).expect("right");
        found.map(|(message, _)| message)
    }

    pub fn receive_claimed(&mut self, at: u32, message: MessageId, len: usize) -> usize {
        let into = Memory::zeroed(len);
        let buffer = into.buffer();
        let memory = self.remember(into, Some(pattern(len, 1)));
        let posted = self.engine(at).mrecv(message, buffer);
        self.posted(at, memory, false, posted)
    }

    /// Whether the operation has ended.
    pub fn is_over(&self, memory: usize) -> bool {
        self.done[memory].outcome.is_some()
    }

    /// Sees which requests are over; each answers once.
    fn look(&mut self) {
        let mut at = 0;
        while at < self.open.len() {
            let Open { at: process, request, persistent, memory } = self.open[at];
            let Some(engine) = &mut self.engines[process as usize] else {
                self.open.swap_remove(at);
                continue;
            };
            let complete = engine.is_complete(request);
            let Some(completion) = engine.test(request) else {
                assert!(!complete, "{}: complete without an answer", self.name);
                at += 1;
                continue;
            };
            assert!(complete, "{}: an answer before it was complete", self.name);
            if completion.result == PENDING {
                self.done[memory].outcome = Some(PENDING);
                at += 1;
                continue;
            }
            let again = engine.test(request).map(|completion| completion.result);
            let once = if persistent { Ok(()) } else { Err(PmlError::InvalidRequest) };
            assert_eq!(again, Some(once), "{}: it ends twice", self.name);
            if persistent {
                engine.request_free(request);
            }
            self.open.swap_remove(at);
            self.over(memory, completion.result);
        }
    }

    /// The operation is over: its memory is the user's again, who writes it.
    fn over(&mut self, memory: usize, outcome: Outcome) {
        let done = &mut self.done[memory];
        let open = matches!(done.outcome, None | Some(PENDING));
        assert!(open, "{}: it ends twice", self.name);
        if let (Ok(()), Some(expected)) = (&outcome, &done.expected) {
            assert!(done.memory.bytes() == *expected, "{}: other bytes", self.name);
        }
        let fill = AFTER[usize::from(done.expected.is_none())];
        let region = done.memory.region();
        region.write(0, &vec![fill; region.len()]);
        done.outcome = Some(outcome);
    }

    // Events.

    pub fn revoke(&mut self, at: u32) {
        let comm = self.comms[at as usize];
        self.engine(at).revoke_comm(comm);
        self.look();
    }

    /// The process dies; nobody is told.
    pub fn kill(&mut self, victim: u32) {
        self.net.fault(SimFault::Kill(Peer(victim)));
        self.engines[victim as usize] = None;
        self.look();
    }

    /// All living are told that the process has failed.
    pub fn tell(&mut self, victim: u32) {
        for at in self.living() {
            self.engine(at).proc_failed(Peer(victim));
        }
        self.look();
    }

    /// What a failure left pending goes on when it is acknowledged; then it is cancelled, unless it has ended.
    pub fn end_pending(&mut self) {
        for Open { at, request, persistent, memory } in std::mem::take(&mut self.open) {
            let comm = self.comms[at as usize];
            let engine = self.engine(at);
            engine.ack_failed(comm);
            engine.cancel(request);
            let ended = engine.test(request);
            if persistent {
                engine.request_free(request);
            }
            let cancelled = ended.is_some_and(|ended| ended.status.is_cancelled());
            assert!(cancelled, "{}: it does not end\n{}", self.name, self.dump());
            self.over(memory, Err(PmlError::InvalidRequest));
        }
    }

    // Checks.

    /// Nothing is under way, nothing is held, and nobody wrote what is not his any more.
    pub fn check_rest(&mut self, what: &str) {
        assert!(self.open.is_empty(), "{}: {what}: still open\n{}", self.name, self.dump());
        for done in &self.done {
            let fill = AFTER[usize::from(done.expected.is_none())];
            let intact = done.memory.bytes().iter().all(|&byte| byte == fill);
            // Of the dead, nobody saw the end.
            assert!(intact || done.outcome.is_none(), "{}: {what}: memory was written", self.name);
        }
        for at in self.living() {
            let usage = self.engine(at).usage();
            let kept = usage.unacknowledged;
            // Short traffic is acknowledged by what goes the other way, or when it becomes more.
            assert!(kept < 32, "{}: {what}: {at} keeps {kept} frames", self.name);
            let rest = Usage { unacknowledged: 0, ..usage };
            assert_eq!(rest, Usage::default(), "{}: {what}: {at} holds something", self.name);
            let (lent, open) = (self.net.outstanding(Peer(at)), self.net.registrations(Peer(at)));
            assert_eq!((lent, open), (0, 0), "{}: {what}: {at} has lent something", self.name);
            let suspects: Vec<_> = self.engine(at).suspects().collect();
            let wrong = suspects
                .iter()
                .find(|fault| fault.peer.is_none_or(|peer| self.engines[peer.index()].is_some()));
            assert!(wrong.is_none(), "{}: {what}: {at} suspects {wrong:?}", self.name);
            let malformed = self.engine(at).stats().malformed;
            assert_eq!(malformed, 0, "{}: {what}: {at} calls frames malformed", self.name);
        }
    }

    /// Everything that was ever sent comes again, to all that live; from the dead a message that was never sent, too.
    pub fn replay(&mut self) {
        let frames = self.record.borrow().frames.clone();
        let living = self.living();
        let mut late: VecDeque<Frame> = frames.into();
        late.retain(|frame| living.contains(&frame.to));
        self.record.borrow_mut().late = late;
        for at in living {
            self.engine(at);
        }
        self.settle();
        assert!(self.record.borrow().late.is_empty(), "{}: nobody took late frames", self.name);
    }

    /// The living talk to each other over the other communicator, and the dead, though frames of them come, do not.
    pub fn check_survivors(&mut self, lens: &[usize]) {
        let living = self.living();
        for &from in &living {
            for &to in living.iter().filter(|&&to| to != from) {
                for &len in lens {
                    let (data, into) = (Memory::of(pattern(len, 7)), Memory::zeroed(len));
                    let (ours, theirs) = (self.spare[from as usize], self.spare[to as usize]);
                    let request = self
                        .engine(to)
                        .recv(theirs, into.buffer(), Source::Rank(from), TagMatch::Any)
                        .expect("right");
                    let sent = self.engine(from).send(ours, Mode::Standard, &data.payload(), to, 1);
                    self.settle();
                    let came = self.engine(to).test(request).map(|completion| completion.result);
                    assert_eq!(came, Some(Ok(())), "{}: {from} to {to}", self.name);
                    assert!(into.bytes() == pattern(len, 7), "{}: {from} to {to}", self.name);
                    if let Ok(Started::Pending(sent)) = sent {
                        let sent = self.engine(from).test(sent).map(|completion| completion.result);
                        assert_eq!(sent, Some(Ok(())), "{}: {from} to {to}", self.name);
                    }
                }
            }
        }
    }

    /// The communicator is made again under its old id: frames of its earlier life do not reach it.
    pub fn renew(&mut self) {
        let mut posted = Vec::new();
        for at in self.living() {
            let old = self.comms[at as usize];
            let engine = self.engine(at);
            engine.free_comm(old);
            let comm = engine.add_comm(CommSpec::intra(1, 1, at, group())).expect("a later life");
            let into = Memory::of(vec![0x33; 64]);
            engine.ack_failed(comm);
            let any = (Source::Any, TagMatch::Any);
            posted.push((at, engine.recv(comm, into.buffer(), any.0, any.1).expect("right"), into));
            self.comms[at as usize] = comm;
        }
        self.replay();
        for (at, request, into) in posted {
            let name = self.name.clone();
            let engine = self.engine(at);
            assert!(!engine.is_complete(request), "{name}: {at} got a message of an earlier life");
            assert!(into.bytes() == [0x33; 64], "{name}: {at}: memory was written");
            engine.cancel(request);
            assert!(
                engine.test(request).is_some_and(|completion| completion.status.is_cancelled())
            );
        }
    }

    /// A message of the next number comes from the dead, over the rail that carried the last one.
    pub fn forge(&mut self, dead: u32) {
        use ironweave_pml::ob1::wire::{Envelope, Match, kinds};
        use zerocopy::IntoBytes;
        for at in self.living() {
            let comm = self.spare[at as usize];
            let into = Memory::of(vec![0x33; 8]);
            let engine = self.engine(at);
            engine.ack_failed(comm);
            let request = engine.recv(comm, into.buffer(), Source::Any, TagMatch::Any);
            let request = request.expect("right");
            for seq in 0..3 {
                let envelope =
                    Envelope { cid: 2, epoch: 0, seq, source: dead, tag: 1, ready: false };
                let header = Match::new(kinds::MATCH, envelope).as_bytes().to_vec();
                let frame = Frame { from: dead, to: at, header, payload: vec![9; 8] };
                self.record.borrow_mut().late.push_back(frame);
            }
            self.settle();
            let name = self.name.clone();
            let engine = self.engine(at);
            assert!(!engine.is_complete(request), "{name}: {at} got a message of the dead");
            assert!(into.bytes() == [0x33; 8], "{name}: {at}: memory was written");
            engine.cancel(request);
            assert!(
                engine.test(request).is_some_and(|completion| completion.status.is_cancelled())
            );
        }
    }

    pub fn dump(&self) -> String {
        let mut out = String::new();
        for engine in self.engines.iter().flatten() {
            engine.dump(&mut out).expect("strings take everything");
        }
        out
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.engines.clear();
        for done in &self.done {
            // SAFETY: all engines and their rails are gone, and with them all regions; it is freed once.
            unsafe { done.memory.free() };
        }
    }
}

fn group() -> Vec<Peer> {
    (0..3).map(Peer).collect()
}
