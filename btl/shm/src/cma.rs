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
//! The kernel may refuse (ptrace scope, containers): then gets end with a fault of the operation, and from then
//! on are refused as unsupported; nothing else changes.
#![allow(unsafe_code)] // one system call that has no safe wrapper

use crate::inbox::{Inbox, REGISTRATIONS};
use crate::primitive::Ordering;
use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_btl::{Cause, Peer, Refused, RemoteKey, RmaDescriptor, RmaKind};
use rustix::io::Errno;
use rustix::process::Pid;
use std::collections::VecDeque;
use std::time::Instant;
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
    /// By slot: the serial of the registration that has it; 0: none has.
    taken: Vec<u32>,
    serial: u32,
}

impl Registry {
    pub(crate) fn new() -> Self {
        let free = (0..REGISTRATIONS as u16).rev().collect();
        Registry { free, taken: vec![0; REGISTRATIONS], serial: 0 }
    }

    pub(crate) fn add(
        &mut self,
        inbox: &Inbox,
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
        self.taken[usize::from(slot)] = self.serial;
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
        if *taken == 0 || *taken != key.serial.get() {
            return None;
        }
        *taken = 0;
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

    /// Copies from `offset` on into `region`, of which `done` bytes are there, at most `budget` bytes, which are taken off.
    fn copy(
        &self,
        source: (Pid, &Inbox),
        offset: u64,
        region: &RecvRegion,
        done: &mut usize,
        budget: &mut usize,
    ) -> Step {
        let (pid, outbox) = source;
        while *done < region.len() {
            if *budget == 0 {
                return Step::More;
            }
            let len = (region.len() - *done).min(CHUNK).min(*budget);
            let from = self.base.get() + offset + *done as u64;
            match read(pid, from, &region.part(*done..*done + len)) {
                Ok(0) => return Step::Done(Err(Cause::Malformed("a key to memory that is not"))),
                Ok(got) => {
                    *done += got;
                    *budget -= got.min(*budget);
                }
                Err(Errno::INTR) => {}
                Err(Errno::SRCH) => return Step::Done(Err(Cause::ProcessGone)),
                Err(errno) => {
                    let errno = errno.raw_os_error();
                    return Step::Done(Err(Cause::Os { call: "process_vm_readv", errno }));
                }
            }
        }
        let word = outbox.generation(usize::from(self.slot.get()));
        Step::Done(if word.load(Ordering::SeqCst) == self.generation.get() {
            Ok(())
        } else {
            Err(Cause::Malformed("a registration that ended"))
        })
    }
}

/// A get under way.
#[derive(Debug)]
pub(crate) struct Get {
    pub(crate) descriptor: RmaDescriptor,
    key: Key,
    done: usize,
    /// Nanoseconds of copying, the last of them here.
    took: u64,
    until: Instant,
}

/// How far a get came.
#[derive(Debug)]
pub(crate) enum Step {
    /// To be continued.
    More,
    /// Over.
    Done(Result<(), Cause>),
}

impl Get {
    /// A get of `descriptor`, checked against its key; otherwise why it cannot be.
    pub(crate) fn new(descriptor: RmaDescriptor) -> Result<Get, (Cause, RmaDescriptor)> {
        let RmaKind::Get(region) = &descriptor.kind else {
            return Err((Cause::Malformed("not a get"), descriptor));
        };
        match Key::decode(&descriptor.remote, descriptor.remote_offset, region.len()) {
            Ok(key) => Ok(Get { descriptor, key, done: 0, took: 0, until: Instant::now() }),
            Err(cause) => Err((cause, descriptor)),
        }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Copies some of it, at most `budget` bytes, and takes them off.
    fn advance(&mut self, source: (Pid, &Inbox), budget: &mut usize) -> Step {
        let RmaKind::Get(region) = &self.descriptor.kind else {
            unreachable!("checked when it was made");
        };
        let offset = self.descriptor.remote_offset;
        let start = Instant::now();
        let step = self.key.copy(source, offset, region, &mut self.done, budget);
        self.until = Instant::now();
        self.took += nanoseconds(start, self.until);
        step
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

/// Reads all of `region` from `offset` on of the memory that `key` names, within the call.
pub(crate) fn read_whole(
    source: (Pid, &Inbox),
    key: &Key,
    offset: u64,
    region: &RecvRegion,
) -> Ended {
    let start = Instant::now();
    let step = key.copy(source, offset, region, &mut 0, &mut region.len().max(1));
    let Step::Done(outcome) = step else { unreachable!("the budget is the whole length") };
    let at = Instant::now();
    Ended { outcome, len: region.len(), of: key.len(), at, took: nanoseconds(start, at) }
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

    /// Moves gets on until one ends, which it takes out, or `budget` bytes are read; `source` gives process and inbox of a peer.
    pub(crate) fn next<'a>(
        &mut self,
        source: impl Fn(Peer) -> Option<(Pid, &'a Inbox)>,
        budget: &mut usize,
    ) -> Option<(RmaDescriptor, Ended)> {
        let get = self.queue.front_mut()?;
        let step = match source(get.descriptor.peer) {
            Some(source) => get.advance(source, budget),
            None => Step::Done(Err(Cause::Invalidated)),
        };
        match step {
            Step::More => None,
            Step::Done(outcome) => self.queue.pop_front().map(|get| {
                let Get { descriptor, key, done, took, until: at } = get;
                (descriptor, Ended { outcome, len: done, of: key.len(), at, took })
            }),
        }
    }

    /// Takes out all gets from `peer`.
    pub(crate) fn purge(&mut self, peer: Peer) -> impl Iterator<Item = RmaDescriptor> {
        let (gone, rest): (VecDeque<Get>, VecDeque<Get>) =
            self.queue.drain(..).partition(|get| get.descriptor.peer == peer);
        self.queue = rest;
        gone.into_iter().map(|get| get.descriptor)
    }
}

/// Reads memory of process `pid` at address `from` into `region`; may read less.
pub(crate) fn read(pid: Pid, from: u64, region: &RecvRegion) -> Result<usize, Errno> {
    let local = libc::iovec { iov_base: region.as_mut_ptr().cast(), iov_len: region.len() };
    let remote = libc::iovec { iov_base: from as *mut libc::c_void, iov_len: region.len() };
    // SAFETY: the kernel writes at most `region.len()` bytes at `region`, which is valid for writes while it
    // exists; `remote` is an address in the other process, which the kernel checks. Test: `tests/endpoints.rs`.
    let got = unsafe { libc::process_vm_readv(pid.as_raw_pid(), &local, 1, &remote, 1, 0) };
    match usize::try_from(got) {
        Ok(got) => Ok(got),
        Err(_) => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
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
