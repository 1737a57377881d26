//! Operations that reach user memory: puts, gets, and messages sent out of it. The machine; [`crate::lend`] makes the calls.
//!
//! A task owns its descriptor, and with it the user's promise, until it is over: the library told so, or the endpoint that
//! carries it was fenced first ([`Tasks::cancel`]). Each has one operation under way at a time, of bounded length where the
//! kernel copies, since that cannot be cancelled, only waited for.

use crate::lend::{self, There};
use crate::reach::{Key, Reach};
use crate::verdict::{Verdict, judge};
use ironweave_btl::memory::OwnedBuffer;
use ironweave_btl::{Cause, Descriptor, Fault, RmaDescriptor, RmaKind};
use ironweave_ffi_uct::{EpId, IfaceId, Memory, Port, RemoteMemory, Status};
use std::collections::{BTreeMap, VecDeque};

/// Tasks at a time.
const TASKS: usize = 64;
/// Longest piece that the kernel is asked to copy, in bytes.
const COPY: usize = 1 << 20;

/// Operations that are over, to be told.
type Over<D> = Vec<(D, Result<(), Fault>)>;

/// A put or get.
struct Move {
    life: u64,
    line: EpId,
    descriptor: RmaDescriptor,
    key: Key,
    address: u64,
    /// Bytes that are there, and bytes under way.
    at: usize,
    flying: usize,
    /// What the word of the registration held after the last byte was there; asked for once.
    word: Option<OwnedBuffer>,
    local: Option<Memory>,
    remote: Option<RemoteMemory>,
    /// Nothing more of it is begun.
    stopped: bool,
}

/// What an atomic operation is told, which `rma` refuses before it comes here.
const NO_ATOMICS: Cause = Cause::Device("no atomic operations");

/// A message sent out of user memory.
struct Sending {
    life: u64,
    descriptor: Descriptor,
    memory: Vec<Memory>,
}

/// What is to be done next for a move.
enum Next {
    Bytes,
    Word,
    Over(Result<(), Cause>),
}

impl Move {
    fn len(&self) -> usize {
        self.descriptor.kind.length()
    }

    fn next(&self, reach: Reach) -> Next {
        match (self.at < self.len(), reach, &self.word) {
            (true, ..) => Next::Bytes,
            (false, Reach::Kernel(_), None) if self.len() > 0 => Next::Word,
            (false, _, None) => Next::Over(Ok(())),
            (false, _, Some(word)) => {
                let held = word.as_slice();
                let right = self.key.word().is_some_and(|(_, number)| held == number.to_ne_bytes());
                Next::Over(
                    right.then_some(()).ok_or(Cause::Malformed("memory that was taken back")),
                )
            }
        }
    }

    /// Begins what is next. `Ok(true)`: it is done already.
    fn begin(&mut self, next: &Next, ways: &mut Ways<'_>, cookie: u64) -> Result<bool, Stop> {
        if matches!(next, Next::Word) {
            let at = self.key.word().map_or(0, |(at, _)| at);
            let cell = self.word.insert(OwnedBuffer::zeroed(size_of::<u64>()));
            return match lend::get_word(ways.port, self.line, cell, at, cookie) {
                Err(status) => {
                    self.word = None;
                    Err(Stop::of(status))
                }
                begun => begun.map_err(Stop::of),
            };
        }
        let attributes = ways.port.attributes(ways.main);
        let (least, most) = match (&self.descriptor.kind, ways.reach) {
            (_, Reach::Kernel(_)) => (0, COPY),
            (RmaKind::Put(_), _) => (attributes.min_put, attributes.max_put),
            (RmaKind::Get(_), _) => (attributes.min_get, attributes.max_get),
            (RmaKind::Atomic(..), _) => return Err(Stop::Over(NO_ATOMICS)),
        };
        let len = (self.len() - self.at).min(most);
        if len < least {
            return Err(Stop::Over(Cause::Device("it moves nothing as short")));
        }
        if ways.reach == Reach::Device && self.remote.is_none() {
            self.register(ways)?;
        }
        let there = There { address: self.address + self.at as u64, memory: self.remote.as_ref() };
        let range = self.at..self.at + len;
        let (kind, local) = (&self.descriptor.kind, self.local.as_ref());
        let begun = lend::transfer(ways.port, self.line, kind, range, local, &there, cookie);
        let done = begun.map_err(Stop::of)?;
        (self.at, self.flying) = if done { (self.at + len, 0) } else { (self.at, len) };
        Ok(done)
    }

    /// What the device needs to know of both ends.
    fn register(&mut self, ways: &mut Ways<'_>) -> Result<(), Stop> {
        let registered = match &self.descriptor.kind {
            RmaKind::Put(region) => lend::source(ways.port, ways.main, region),
            RmaKind::Get(region) => lend::target(ways.port, ways.main, region),
            RmaKind::Atomic(..) => return Err(Stop::Over(NO_ATOMICS)),
        };
        let local = registered.map_err(|_| Stop::Over(Cause::Exhausted("registrations")))?;
        self.local = Some(local);
        let remote = ways.port.unpack_key(ways.main, self.key.opener());
        self.remote = Some(remote.map_err(|_| Stop::Over(Cause::Malformed("a remote key")))?);
        Ok(())
    }
}

/// Why a move does not go on.
enum Stop {
    Later,
    Over(Cause),
}

impl Stop {
    fn of(status: Status) -> Stop {
        match judge(status) {
            Verdict::Later => Stop::Later,
            Verdict::Rail(cause) => Stop::Over(cause),
        }
    }
}

/// What moves go by.
pub(crate) struct Ways<'a> {
    pub port: &'a mut Port,
    pub main: IfaceId,
    pub reach: Reach,
}

/// All tasks of a rail.
#[derive(Default)]
pub(crate) struct Tasks {
    moves: BTreeMap<u64, Move>,
    sends: BTreeMap<u64, Sending>,
    waiting: VecDeque<u64>,
    cookies: u64,
    /// Over, and to be told.
    pub moved: Over<RmaDescriptor>,
    /// See `moved`.
    pub sent: Over<Descriptor>,
}

impl Tasks {
    pub fn has_room(&self) -> bool {
        self.len() < TASKS
    }

    pub fn len(&self) -> usize {
        self.moves.len() + self.sends.len()
    }

    /// Nothing is to be told, or waits for room.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.moved.is_empty() && self.sent.is_empty()
    }

    /// Whether the library may have its hands on memory of that life.
    pub fn has(&self, life: u64) -> bool {
        self.moves.values().any(|task| task.life == life)
            || self.sends.values().any(|task| task.life == life)
    }

    /// Takes a put or get of that life over that line; nothing of it is begun.
    pub fn take(&mut self, descriptor: RmaDescriptor, life: u64, line: EpId, reach: Reach) {
        let len = descriptor.kind.length();
        let key = Key::decode(&descriptor.remote)
            .filter(|key| !matches!(reach, Reach::Kernel(_)) || key.word().is_some());
        let place = key.and_then(|key| Some((key, key.address(descriptor.remote_offset, len)?)));
        let Some((key, address)) = place else {
            let cause = Cause::Malformed("a put or get outside of the peer's memory");
            let fault = Fault::operation(descriptor.peer, cause);
            return self.moved.push((descriptor, Err(fault)));
        };
        self.cookies += 1;
        let task = Move {
            life,
            line,
            descriptor,
            key,
            address,
            at: 0,
            flying: 0,
            word: None,
            local: None,
            remote: None,
            stopped: false,
        };
        self.moves.insert(self.cookies, task);
        self.waiting.push_back(self.cookies);
    }

    /// Sends a message out of user memory that is registered as `memory`; `Err` gives both back.
    #[allow(clippy::result_large_err)] // descriptors are given back by value
    pub fn send(
        &mut self,
        port: &mut Port,
        (life, line): (u64, EpId),
        lead: &[u8],
        descriptor: Descriptor,
        memory: Vec<Memory>,
    ) -> Result<(), (Status, Descriptor, Vec<Memory>)> {
        self.cookies += 1;
        match lend::message(port, line, lead, &descriptor.payload, &memory, self.cookies) {
            Ok(true) => {
                memory.into_iter().for_each(|memory| port.deregister(memory));
                self.sent.push((descriptor, Ok(())));
                Ok(())
            }
            Ok(false) => {
                self.sends.insert(self.cookies, Sending { life, descriptor, memory });
                Ok(())
            }
            Err(status) => Err((status, descriptor, memory)),
        }
    }

    /// Goes on with what waits, as far as there is room.
    pub fn pump(&mut self, ways: &mut Ways<'_>) {
        for _ in 0..self.waiting.len() {
            let Some(cookie) = self.waiting.pop_front() else { break };
            let Some(task) = self.moves.get_mut(&cookie).filter(|task| !task.stopped) else {
                continue;
            };
            let outcome = loop {
                let next = task.next(ways.reach);
                if let Next::Over(outcome) = next {
                    break Some(outcome);
                }
                match task.begin(&next, ways, cookie) {
                    Ok(true) => {}
                    Ok(false) => break None,
                    Err(Stop::Over(cause)) => break Some(Err(cause)),
                    Err(Stop::Later) => {
                        self.waiting.push_back(cookie); // others may have room
                        break None;
                    }
                }
            };
            if let Some(outcome) = outcome {
                self.finish(cookie, outcome, ways.port);
            }
        }
    }

    fn finish(&mut self, cookie: u64, outcome: Result<(), Cause>, port: &mut Port) {
        let Some(task) = self.moves.remove(&cookie) else { return };
        if let Some(memory) = task.local {
            port.deregister(memory);
        }
        let peer = task.descriptor.peer;
        let outcome = outcome.map_err(|cause| Fault::operation(peer, cause));
        self.moved.push((task.descriptor, outcome));
    }

    /// The library is done with an operation. One of a life that is over finds nothing.
    pub fn done(&mut self, cookie: u64, status: Status, port: &mut Port) {
        let failed = match judge(status) {
            Verdict::Rail(cause) => Some(cause),
            Verdict::Later if status.is_error() => Some(Cause::Device("it gave up")),
            Verdict::Later => None,
        };
        if let Some(Sending { descriptor, memory, .. }) = self.sends.remove(&cookie) {
            memory.into_iter().for_each(|memory| port.deregister(memory));
            let fault = failed.map(|cause| Fault::operation(descriptor.peer, cause));
            return self.sent.push((descriptor, fault.map_or(Ok(()), Err)));
        }
        let Some(task) = self.moves.get_mut(&cookie) else { return };
        match failed {
            Some(cause) => self.finish(cookie, Err(cause), port),
            None => {
                task.at += std::mem::take(&mut task.flying);
                self.waiting.push_back(cookie);
            }
        }
    }

    /// Begins nothing more of a life.
    pub fn stop(&mut self, life: u64) {
        let its = self.moves.values_mut().filter(|task| task.life == life);
        its.for_each(|task| task.stopped = true);
    }

    /// Gives up all of a life whose endpoint was fenced, or whose port is gone.
    pub fn cancel(
        &mut self,
        life: u64,
        mut port: Option<&mut Port>,
    ) -> (Vec<RmaDescriptor>, Vec<Descriptor>) {
        let mut forget = |memory: Memory| {
            if let Some(port) = port.as_deref_mut() {
                port.deregister(memory);
            }
        };
        let (mut moves, mut sends) = (Vec::new(), Vec::new());
        for (_, task) in self.moves.extract_if(.., |_, task| task.life == life) {
            task.local.into_iter().for_each(&mut forget);
            moves.push(task.descriptor);
        }
        for (_, task) in self.sends.extract_if(.., |_, task| task.life == life) {
            task.memory.into_iter().for_each(&mut forget);
            sends.push(task.descriptor);
        }
        (moves, sends)
    }
}
