//! Single copy: reading a peer's memory through the kernel (`process_vm_readv`).
//!
//! A registration is a slot in our inbox with a generation, and a key that names slot, generation, address and
//! length. The reader checks that its request lies inside what the key names and, after the copy, that the
//! registration was still valid and the process still the same; so a get that succeeded read what was
//! registered. A registration whose reads are all over is *retired*: its slot goes to the next with the generation that it has,
//! so in the usual case nobody writes the word, and the reader's look at it finds it in its own cache (with one question less
//! to the kernel, 64 KiB 5.25 instead of 5.95 µs, in turns on a Xeon of the fifth generation). An address from a key is only ever handed to the kernel, for the very process that made it:
//! whatever a peer writes into a key, only memory of its own can come back (law 9).
//!
//! Long gets are shared with the peer, who writes a part of them (`process_vm_writev`) while it waits for their end: `assist.rs`. It writes
//! to the process that it shook hands with, and to no other of the same number: our launcher's processes keep their numbers to the
//! end of the job, as zombies; of others' it was seen a moment ago that they live (`Session::is_the_same`).
//!
//! The kernel may refuse (ptrace scope, containers): then gets end with a fault of the operation, and from then
//! on are refused as unsupported; nothing else changes.
#![allow(unsafe_code)] // two system calls that have no safe wrapper

use crate::assist::{Asker, Help, Task};
use crate::inbox::{Inbox, REGISTRATIONS};
use crate::primitive::Ordering;
use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_btl::{Cause, Peer, Refused, RemoteKey, RmaDescriptor, RmaKind};
use rustix::io::Errno;
use rustix::process::Pid;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes that one call of `progress` moves at most, and as many at once before the next: longer gets go on there. After each that
/// fills a core's cache nothing of the engine is left in it: with a quarter of this 4 MiB took 398 instead of 380 µs, in turns.
pub(crate) const BUDGET: usize = 4 << 20;
/// Bytes copied by one system call. With a quarter of this 1 MiB took 68.0 instead of 64.3 µs, in turns.
pub(crate) const CHUNK: usize = 1 << 20;

/// What [`RemoteKey`] holds for this transport.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Key {
    slot: U16,
    /// The complaints about such messages that the owner had heard when it offered this one (`ways.rs`).
    pub(crate) heard: u8,
    zero: u8,
    /// Which registration of the slot this is, for its owner; nothing to a reader.
    serial: U32,
    generation: U64,
    base: U64,
    len: U64,
}

/// Our registrations: which slots of the inbox are free, and whose the others are.
#[derive(Debug)]
pub(crate) struct Registry {
    free: Vec<u16>,
    /// By slot: the registration that has it.
    taken: Vec<Option<Registered>>,
    serial: u32,
    /// By peer: its registrations.
    readers: Vec<Reader>,
    /// The peers that have some; those that have none any more are found when the list is gone through.
    listed: Vec<Peer>,
}

/// Memory that a peer may read.
#[derive(Debug)]
struct Registered {
    serial: u32,
    peer: Peer,
    region: SendRegion,
}

#[derive(Clone, Copy, Default, Debug)]
struct Reader {
    registrations: u16,
    is_listed: bool,
}

impl Registry {
    pub(crate) fn new() -> Self {
        let free = (0..REGISTRATIONS as u16).rev().collect();
        let taken = (0..REGISTRATIONS).map(|_| None).collect();
        Registry { free, taken, serial: 0, readers: Vec::new(), listed: Vec::new() }
    }

    pub(crate) fn add(
        &mut self,
        inbox: &Inbox,
        peer: Peer,
        region: &SendRegion,
        heard: u8,
    ) -> Result<RemoteKey, Refused> {
        let slot = self.free.pop().ok_or(Refused::NoRoom)?;
        let word = inbox.generation(slot.into());
        let mut generation = word.load(Ordering::Relaxed);
        if generation.is_multiple_of(2) {
            generation += 1;
            word.store(generation, Ordering::Release);
        }
        self.serial = self.serial.checked_add(1).unwrap_or(1);
        let registered = Registered { serial: self.serial, peer, region: region.clone() };
        self.taken[usize::from(slot)] = Some(registered);
        if self.readers.len() <= peer.index() {
            self.readers.resize_with(peer.index() + 1, Reader::default);
        }
        let reader = &mut self.readers[peer.index()];
        reader.registrations += 1;
        if !std::mem::replace(&mut reader.is_listed, true) {
            self.listed.push(peer);
        }
        let key = Key {
            slot: slot.into(),
            heard,
            zero: 0,
            serial: self.serial.into(),
            generation: generation.into(),
            base: (region.as_ptr() as u64).into(),
            len: (region.len() as u64).into(),
        };
        Ok(RemoteKey::new(key.as_bytes()).expect("a key has 32 bytes"))
    }

    /// Takes the slot of a registration back; keys that are none of ours, or not any more, have none.
    fn take_back(&mut self, key: &RemoteKey) -> Option<Key> {
        let key = Key::read_from_bytes(key.as_bytes()).ok()?;
        let taken = self.taken.get_mut(usize::from(key.slot.get()))?;
        let registered = taken.take_if(|registered| registered.serial == key.serial.get())?;
        self.readers[registered.peer.index()].registrations -= 1;
        self.free.push(key.slot.get());
        Some(key)
    }

    /// Ends a registration: gets of it that are not over fail.
    pub(crate) fn remove(&mut self, inbox: &Inbox, key: &RemoteKey) {
        if let Some(key) = self.take_back(key) {
            let word = inbox.generation(usize::from(key.slot.get()));
            word.store(key.generation.get() + 1, Ordering::SeqCst);
        }
    }

    /// Ends a registration whose gets are all over, or were never begun.
    pub(crate) fn retire(&mut self, key: &RemoteKey) {
        let _ = self.take_back(key);
    }

    /// Whether a peer may read something, as far as is known.
    #[inline(always)]
    pub(crate) fn is_lending(&self) -> bool {
        !self.listed.is_empty()
    }

    /// The peer at `index` of those that may read something.
    pub(crate) fn reader(&mut self, index: usize) -> Option<Peer> {
        loop {
            let peer = *self.listed.get(index)?;
            let reader = &mut self.readers[peer.index()];
            if reader.registrations > 0 {
                return Some(peer);
            }
            reader.is_listed = false;
            self.listed.swap_remove(index);
        }
    }

    /// Whether `peer` may read something.
    #[inline(always)]
    pub(crate) fn lends_to(&self, peer: Peer) -> bool {
        self.readers.get(peer.index()).is_some_and(|reader| reader.registrations > 0)
    }

    /// The bytes of our memory that `task` is about, if `peer` may read them.
    pub(crate) fn part(&self, peer: Peer, task: &Task) -> Option<SendRegion> {
        let registered = self.taken.get(usize::from(task.grant.slot))?.as_ref()?;
        let from = task.grant.offset.checked_add(task.bytes.start)?;
        let until = task.grant.offset.checked_add(task.bytes.end)?;
        let is_it = registered.serial == task.grant.serial && registered.peer == peer;
        (is_it && from <= until && until <= registered.region.len() as u64)
            .then(|| registered.region.part(from as usize..until as usize))
    }
}

impl Key {
    /// A key that covers `len` bytes from `offset` on; otherwise what is wrong with it.
    pub(crate) fn decode(remote: &RemoteKey, offset: u64, len: usize) -> Result<Key, Cause> {
        let key = Key::read_from_bytes(remote.as_bytes())
            .map_err(|_| Cause::Malformed("a key of another kind"))?;
        let end = offset.checked_add(len as u64);
        if end.is_none_or(|end| end > key.len.get())
            || key.base.get().checked_add(key.len.get()).is_none()
            || usize::from(key.slot.get()) >= REGISTRATIONS
            || key.generation.get().is_multiple_of(2)
        {
            return Err(Cause::Malformed("a key that does not cover the request"));
        }
        Ok(key)
    }

    /// Bytes that it names.
    pub(crate) fn len(&self) -> usize {
        self.len.get() as usize
    }

    /// Copies bytes `at` of `region`, which are read from `offset` on, as far as `budget` goes, which is lessened.
    fn copy(
        &self,
        pid: Pid,
        offset: u64,
        region: &RecvRegion,
        at: &mut Range<usize>,
        budget: &mut usize,
    ) -> Result<(), Cause> {
        while at.start < at.end && *budget > 0 {
            let len = at.len().min(CHUNK).min(*budget);
            let from = self.base.get() + offset + at.start as u64;
            match read(pid, from, &region.part(at.start..at.start + len)) {
                Ok(0) => return Err(Cause::Malformed("a key to memory that is not")),
                Ok(got) => {
                    at.start += got;
                    *budget -= got.min(*budget);
                }
                Err(Errno::INTR) => {}
                Err(Errno::SRCH) => return Err(Cause::ProcessGone),
                Err(errno) => {
                    let errno = errno.raw_os_error();
                    return Err(Cause::Os { call: "process_vm_readv", errno });
                }
            }
        }
        Ok(())
    }

    /// Whether the registration was still there, after the copy.
    fn check(&self, outbox: &Inbox) -> Result<(), Cause> {
        let word = outbox.generation(usize::from(self.slot.get()));
        if word.load(Ordering::SeqCst) == self.generation.get() {
            Ok(())
        } else {
            Err(Cause::Malformed("a registration that ended"))
        }
    }
}

/// A get under way.
#[derive(Debug)]
pub(crate) struct Get {
    pub(crate) descriptor: RmaDescriptor,
    key: Key,
    part: Part,
    /// The bytes to be read next.
    at: Range<usize>,
    /// It fails for this.
    failed: Option<Cause>,
    /// Nanoseconds of copying, the last of them here.
    took: u64,
    until: Instant,
}

/// Who copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// Not begun.
    Fresh,
    /// We do, alone.
    Alone,
    /// The peer, too.
    Shared,
    /// Only the peer, what is left.
    Theirs,
}

/// How far a get came.
#[derive(Debug)]
pub(crate) enum Step {
    /// To be continued.
    More,
    /// The peer is not done with its part.
    Waits,
    /// Over.
    Over,
}

/// Whose memory is read: the process, and the inbox that says what of it may be.
pub(crate) type Source<'a> = (Pid, &'a Inbox);

/// For so long a peer is waited for in one go: it writes a piece in that time, if it is not interrupted.
const PATIENCE: Duration = Duration::from_micros(50);

impl Get {
    /// A get of `descriptor`, checked against its key; otherwise why it cannot be.
    pub(crate) fn new(descriptor: RmaDescriptor) -> Result<Get, (Cause, RmaDescriptor)> {
        let RmaKind::Get(region) = &descriptor.kind else {
            return Err((Cause::Malformed("not a get"), descriptor));
        };
        match Key::decode(&descriptor.remote, descriptor.remote_offset, region.len()) {
            Ok(key) => Ok(Get::of(descriptor, key)),
            Err(cause) => Err((cause, descriptor)),
        }
    }

    /// One that its peer is asked to do a part of.
    pub(crate) fn shared(descriptor: RmaDescriptor, key: Key, asker: &mut Asker) -> Get {
        let mut get = Get::of(descriptor, key);
        get.share(asker);
        get
    }

    fn of(descriptor: RmaDescriptor, key: Key) -> Get {
        let (part, until) = (Part::Fresh, Instant::now());
        let mut get = Get { descriptor, key, part, at: 0..0, failed: None, took: 0, until };
        get.at.end = get.len();
        get
    }

    /// Asks the peer for a part.
    fn share(&mut self, asker: &mut Asker) {
        let RmaKind::Get(region) = &self.descriptor.kind else { return };
        let of = (self.key.slot.get(), self.key.serial.get(), self.descriptor.remote_offset);
        self.at = asker.ask((region.as_mut_ptr() as u64, region.len()), of);
        self.part = Part::Shared;
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Bytes of it.
    pub(crate) fn len(&self) -> usize {
        match &self.descriptor.kind {
            RmaKind::Get(region) => region.len(),
            RmaKind::Put(_) | RmaKind::Atomic(..) => 0,
        }
    }

    /// Moves it on, by at most `budget` bytes, which is lessened. `source` is `None` where there is no connection any more.
    pub(crate) fn advance(
        &mut self,
        source: Option<Source>,
        asker: &mut Asker,
        budget: &mut usize,
    ) -> Step {
        let start = if self.part == Part::Theirs { self.until } else { Instant::now() };
        let step = self.go_on(source, asker, budget, start);
        self.until = Instant::now();
        self.took += nanoseconds(start, self.until);
        step
    }

    fn go_on(
        &mut self,
        source: Option<Source>,
        asker: &mut Asker,
        budget: &mut usize,
        now: Instant,
    ) -> Step {
        if self.part == Part::Fresh && source.is_some() && asker.asks(self.len()) {
            self.share(asker);
        }
        let RmaKind::Get(region) = &self.descriptor.kind else {
            unreachable!("checked when it was made");
        };
        loop {
            match self.part {
                Part::Fresh => self.part = Part::Alone,
                Part::Alone | Part::Shared => {
                    let offset = self.descriptor.remote_offset;
                    let copied = match source {
                        Some((pid, _)) => self.key.copy(pid, offset, region, &mut self.at, budget),
                        None => Err(Cause::Invalidated),
                    };
                    let well = copied.map_err(|cause| self.failed = Some(cause)).is_ok();
                    if well && !self.at.is_empty() {
                        return Step::More;
                    }
                    if self.part == Part::Alone {
                        if let (true, Some((_, outbox))) = (well, source) {
                            self.failed = self.key.check(outbox).err();
                        }
                        return Step::Over;
                    }
                    if !well {
                        asker.close();
                    }
                    match asker.take() {
                        Some(bytes) => self.at = bytes,
                        None => self.part = Part::Theirs,
                    }
                }
                Part::Theirs => match wait(asker, now) {
                    Help::UnderWay => return Step::Waits,
                    Help::Failed { from } if self.failed.is_none() => {
                        (self.part, self.at) = (Part::Alone, from..region.len());
                    }
                    // All of it is there, if nothing else failed.
                    Help::Done | Help::Failed { .. } => {
                        (self.part, self.at) = (Part::Alone, 0..0);
                        if self.failed.is_some() {
                            return Step::Over;
                        }
                    }
                },
            }
        }
    }

    /// Nobody takes a part of it any more; whether the peer may still be writing one.
    pub(crate) fn stop(&mut self, asker: &mut Asker) -> bool {
        if !matches!(self.part, Part::Shared | Part::Theirs) {
            return false;
        }
        asker.close();
        asker.outcome() == Help::UnderWay
    }

    /// What it comes to, when it is over.
    pub(crate) fn end(self) -> (RmaDescriptor, Ended) {
        let (len, of) = (self.len(), self.key.len());
        let outcome = self.failed.map_or(Ok(()), Err);
        (self.descriptor, Ended { outcome, len, of, at: self.until, took: self.took })
    }
}

/// Reads all of `region` from `offset` on of the memory that `key` names, within the call.
pub(crate) fn read_whole(
    (pid, outbox): Source,
    key: &Key,
    offset: u64,
    region: &RecvRegion,
) -> Ended {
    let start = Instant::now();
    let (mut at, mut budget) = (0..region.len(), usize::MAX);
    let copied = key.copy(pid, offset, region, &mut at, &mut budget);
    let outcome = copied.and_then(|()| key.check(outbox));
    let at = Instant::now();
    Ended { outcome, len: region.len(), of: key.len(), at, took: nanoseconds(start, at) }
}

/// What the peer has made of its part, when it has had some time since `from`.
fn wait(asker: &mut Asker, from: Instant) -> Help {
    loop {
        for _ in 0..64 {
            match asker.outcome() {
                Help::UnderWay => std::hint::spin_loop(),
                other => return other,
            }
        }
        if from.elapsed() > PATIENCE {
            return Help::UnderWay;
        }
    }
}

/// A get that is over.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) outcome: Result<(), Cause>,
    /// Bytes that were asked for, …
    pub(crate) len: usize,
    /// … and those of all that the key names.
    pub(crate) of: usize,
    /// When, and nanoseconds of copying until then.
    pub(crate) at: Instant,
    pub(crate) took: u64,
}

fn nanoseconds(from: Instant, until: Instant) -> u64 {
    until.duration_since(from).as_nanos() as u64
}

/// Gets under way, in the order in which they were taken.
#[derive(Debug, Default)]
pub(crate) struct Gets {
    queue: VecDeque<Get>,
}

impl Gets {
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn push(&mut self, get: Get) {
        self.queue.push_back(get);
    }

    /// Moves gets on by `advance` until one ends, which it takes out, or no more can be done now. Who waits for its peer holds up nobody.
    pub(crate) fn next(&mut self, mut advance: impl FnMut(&mut Get) -> Step) -> Option<Get> {
        for index in 0..self.queue.len() {
            match advance(&mut self.queue[index]) {
                Step::More => return None,
                Step::Waits => {}
                Step::Over => return self.queue.remove(index),
            }
        }
        None
    }

    /// Takes out all gets from `peer`.
    pub(crate) fn purge(&mut self, peer: Peer) -> VecDeque<Get> {
        let (gone, rest): (VecDeque<Get>, VecDeque<Get>) =
            self.queue.drain(..).partition(|get| get.descriptor.peer == peer);
        self.queue = rest;
        gone
    }
}

/// Reads memory of process `pid` at address `from` into `region`; may read less.
pub(crate) fn read(pid: Pid, from: u64, region: &RecvRegion) -> Result<usize, Errno> {
    let local = libc::iovec { iov_base: region.as_mut_ptr().cast(), iov_len: region.len() };
    let remote = libc::iovec { iov_base: from as *mut libc::c_void, iov_len: region.len() };
    // SAFETY: the kernel writes at most `region.len()` bytes at `region`, which is valid for writes while it
    // exists; `remote` is an address in the other process, which the kernel checks. Test: `tests/reads.rs`.
    let got = unsafe { libc::process_vm_readv(pid.as_raw_pid(), &local, 1, &remote, 1, 0) };
    match usize::try_from(got) {
        Ok(got) => Ok(got),
        Err(_) => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Writes `source` to memory of process `pid` at address `to`.
pub(crate) fn write(pid: Pid, to: u64, source: &SendRegion) -> Result<(), Errno> {
    let mut done = 0;
    while done < source.len() {
        let rest = source.part(done..source.len());
        let local = libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() };
        let remote = to.checked_add(done as u64).ok_or(Errno::FAULT)?;
        let remote = libc::iovec { iov_base: remote as *mut libc::c_void, iov_len: rest.len() };
        // SAFETY: the kernel reads at most `rest.len()` bytes of `rest`, which is valid for reads while it exists; `remote` is an
        // address in the other process, which the kernel checks. Test: `tests/reads.rs`.
        let put = unsafe { libc::process_vm_writev(pid.as_raw_pid(), &local, 1, &remote, 1, 0) };
        match usize::try_from(put) {
            Ok(0) => return Err(Errno::FAULT),
            Ok(put) => done += put,
            Err(_) => match Errno::from_io_error(&std::io::Error::last_os_error()) {
                Some(Errno::INTR) => {}
                errno => return Err(errno.unwrap_or(Errno::IO)),
            },
        }
    }
    Ok(())
}

/// Whether the kernel's rules let processes of one user read each other's memory, as far as can be told before
/// trying. Under Yama's scope 1 a process has to allow it, which [`permit`] does.
pub(crate) fn is_permitted() -> bool {
    match std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope") {
        Ok(scope) => matches!(scope.trim(), "0" | "1"),
        Err(_) => true, // no Yama
    }
}

/// Lets processes of the same user read our memory where Yama would not.
pub(crate) fn permit() {
    // SAFETY: no pointers; sets an attribute of this process. Without Yama it fails, and is not needed.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
}

/// What reads are held against (`ways.rs`), in picoseconds a byte, where single copy is likely to beat copy-in, copy-out and there is no
/// second core to try it on (`trial.rs`). Takes about a millisecond.
///
/// A pipeline of two copies on two cores is at best as fast as one plain copy, and was seen at half to nine
/// tenths of it (one Zen 4 machine); so the kernel's copy has to reach [`WORTH`] of a plain copy's speed. That both buffers lie in
/// one core's cache here favours the plain copy: a no may be wrong.
pub(crate) fn worth() -> Option<u32> {
    const LEN: usize = 512 << 10;
    const WORTH: f64 = 0.6;
    let source = vec![1_u8; LEN];
    let mut target = vec![2_u8; LEN];
    let me = rustix::process::getpid();
    let mut best = [f64::INFINITY; 2];
    for _ in 0..4 {
        let start = Instant::now();
        std::hint::black_box(&mut target).copy_from_slice(std::hint::black_box(&source));
        best[0] = best[0].min(start.elapsed().as_secs_f64());
        let start = Instant::now();
        // SAFETY: `target` lives through the loop and is not touched while the region exists.
        let region = unsafe { RecvRegion::new(target.as_mut_ptr(), LEN) };
        let mut done = 0;
        while done < LEN {
            match read(me, source.as_ptr() as u64 + done as u64, &region.part(done..LEN)) {
                Ok(0) | Err(_) => return None,
                Ok(got) => done += got,
            }
        }
        best[1] = best[1].min(start.elapsed().as_secs_f64());
    }
    tracing::debug!(copy = best[0], kernel = best[1], "seconds to copy {LEN} bytes");
    let ring = best[0] / WORTH;
    (best[1] < ring).then_some((ring * 1e12 / LEN as f64) as u32)
}
