//! Puts, gets and atomic operations: both sides' registrations, and the requests that move the bytes.
//!
//! What peers are given rights to is closed to them by `deregister` at once (law 2). A source that was read to its end may
//! be retired instead: a responder takes a read that is asked for again, because its first answer came late, for a
//! violation when the memory is gone, and ends the connection (seen on Soft-RoCE with requests delayed by 90 ms), so it
//! stays readable for as long as requests are repeated.

use crate::config::VerbsConfig;
use crate::conn::{Through, Work};
use crate::endpoint::{Link, Slot};
use crate::fault::cause;
use crate::iwarp::Iwarp;
use crate::memory::{register_lasting, register_paged, register_receive, register_send};
use crate::rail::Verbs;
use ironweave_btl::lasting;
use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_btl::{Atomic, Cause, Fault, Refused, RemoteKey, RmaDescriptor, RmaKind};
use ironweave_ffi_verbs::{
    Access, Device, Operation, Paging, Registration, Sge, VerbsError, try_on_demand,
};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// A put or get is cut into parts of at least this many bytes …
const PART: usize = 8 << 20;
/// … and at most this many parts, so that its progress shows.
const PARTS: usize = 32;
/// A retired source stays readable no longer than this, whatever the timers say.
const RETIRED_MAX: Duration = Duration::from_secs(2);

/// What peers may reach.
pub struct Open {
    /// By key.
    targets: HashMap<u32, Registration>,
    /// Sources that were read to their end, with the bytes of each; those to be closed first first.
    retired: VecDeque<(Instant, usize, Registration)>,
    bytes: usize,
    /// How long those stay, and how many bytes of them.
    stay: Duration,
    most: usize,
}

impl Open {
    /// Nothing yet. Devices repeat requests (iWARP's leave that to TCP), for as long as the timers say.
    pub fn new(config: &VerbsConfig, repeats: bool) -> Open {
        let stay = if repeats { config.timers.longest().min(RETIRED_MAX) } else { Duration::ZERO };
        let (targets, retired) = (HashMap::new(), VecDeque::new());
        Open { targets, retired, bytes: 0, stay, most: config.kept }
    }

    /// Closes the retired whose time is over.
    pub fn sweep(&mut self, now: Instant) {
        while self.retired.front().is_some_and(|(until, ..)| *until <= now) {
            self.close_oldest();
        }
    }

    fn close_oldest(&mut self) {
        if let Some((_, len, _)) = self.retired.pop_front() {
            self.bytes -= len;
        }
    }

    fn retire(&mut self, rkey: u32, len: usize, now: Instant) {
        let Some(registration) = self.targets.remove(&rkey) else { return };
        // Pages that the device does not hold may be another's by then.
        let held = registration.paging() == Paging::Pinned;
        if self.stay.is_zero() || len > self.most || !held {
            return;
        }
        while self.bytes + len > self.most {
            self.close_oldest();
        }
        self.bytes += len;
        self.retired.push_back((now + self.stay, len, registration));
    }

    /// Closes all that are retired; whether there were any.
    fn clear(&mut self) -> bool {
        let any = !self.retired.is_empty();
        self.retired.clear();
        self.bytes = 0;
        any
    }

    /// Bytes of retired sources.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Verbs {
    /// Starts a put or get, or refuses it.
    #[allow(clippy::result_large_err)] // descriptors are given back by value
    pub(crate) fn start_rma(
        &mut self,
        descriptor: RmaDescriptor,
    ) -> Result<(), (Refused, RmaDescriptor)> {
        let peer = descriptor.peer;
        let atomic = matches!(descriptor.kind, RmaKind::Atomic(..));
        if atomic && !self.caps.atomics {
            return Err((Refused::Unsupported, descriptor));
        }
        let len = descriptor.kind.length();
        let parts =
            len.div_ceil(PART.max(len.div_ceil(PARTS)).max(1)) + usize::from(self.iwarp.is_some());
        let full = self.in_flight + parts > self.most_in_flight;
        match self.conn(peer) {
            Err(refused) => return Err((refused, descriptor)),
            Ok(conn) if full || !conn.has_room(parts) => {
                return Err((self.refuse().expect_err("a refusal"), descriptor));
            }
            Ok(_) => {}
        }
        let inside = read_key(&descriptor.remote).filter(|(_, size, _)| {
            let end = descriptor.remote_offset.checked_add(len as u64);
            end.is_some_and(|end| end <= *size) && len.div_ceil(PARTS) <= self.max_message
        });
        let Some((address, _, rkey)) = inside else {
            let fault =
                Fault::operation(peer, Cause::Malformed("a put or get outside of the memory"));
            self.counters.rma.add(1);
            self.done.push_back((descriptor, Err(fault)));
            return Ok(());
        };
        if len == 0 {
            self.counters.rma.add(1);
            self.done.push_back((descriptor, Ok(())));
            return Ok(());
        }
        let address = address.wrapping_add(descriptor.remote_offset);
        if atomic && !address.is_multiple_of(Atomic::BYTES as u64) {
            let cause = Cause::Malformed("an atomic operation on a number across eight bytes");
            self.counters.rma.add(1);
            self.done.push_back((descriptor, Err(Fault::operation(peer, cause))));
            return Ok(());
        }
        self.post_rma(descriptor, Remote { address, rkey, len })
    }

    /// Opens memory to peers' gets.
    pub(crate) fn open_source(&mut self, region: &SendRegion) -> Result<RemoteKey, Refused> {
        if region.is_empty() {
            return Ok(key(0, 0, 0));
        }
        let registration = self
            .register_open(|device, paging| {
                register_send(device, region, Access::RemoteRead, paging)
            })
            .map_err(|_| Refused::NoRoom)?;
        let key = key(region.as_ptr() as u64, region.len(), registration.rkey());
        self.open.targets.insert(registration.rkey(), registration);
        Ok(key)
    }

    /// Opens memory to peers' puts and, where the device has them and can do them there, atomic operations.
    pub(crate) fn open_target(&mut self, region: &RecvRegion) -> Result<RemoteKey, Refused> {
        if region.is_empty() {
            return Ok(key(0, 0, 0));
        }
        let atomics = self.caps.atomics;
        let registration = self
            .register_open(|device, paging| {
                let open = |access| register_receive(device, region, access, paging);
                match atomics.then(|| open(Access::RemoteChange)) {
                    Some(Ok(registration)) => Ok(registration),
                    Some(Err(_)) | None => open(Access::RemoteWrite),
                }
            })
            .map_err(|_| Refused::NoRoom)?;
        let key = key(region.as_mut_ptr() as u64, region.len(), registration.rkey());
        self.open.targets.insert(registration.rkey(), registration);
        Ok(key)
    }

    /// Registers memory for peers, for one operation: pinned, as long as that can be had.
    fn register_open(
        &mut self,
        register: impl Fn(&Device, Paging) -> Result<Registration, VerbsError>,
    ) -> Result<Registration, VerbsError> {
        let pinned = match register(&self.device, Paging::Pinned) {
            Err(_) if self.make_room() => register(&self.device, Paging::Pinned),
            outcome => outcome,
        };
        match pinned {
            Err(_) if self.pages_on_demand() => register(&self.device, Paging::OnDemand),
            outcome => outcome,
        }
    }

    /// Whether memory may be paged on demand; the first time, the device has to show that.
    fn pages_on_demand(&mut self) -> bool {
        if self.paged.is_some() && std::mem::take(&mut self.untried) {
            let path = self.path(&self.contact);
            let tried =
                try_on_demand(&self.device, &path, self.config.pkey_index, self.contact.mtu);
            if let Err(error) = tried {
                let device = self.device.name();
                tracing::warn!(device, %error, "it says it pages memory on demand, but not rightly: not used");
                self.paged = None;
            }
        }
        self.paged.is_some()
    }

    /// Closes memory to peers, now.
    pub(crate) fn close_target(&mut self, key: &RemoteKey) {
        if let Some((_, 1.., rkey)) = read_key(key) {
            self.open.targets.remove(&rkey);
        }
    }

    /// Closes a source that was read to its end, when requests that are repeated can no longer come.
    pub(crate) fn retire_source(&mut self, key: &RemoteKey) {
        if let Some((_, len @ 1.., rkey)) = read_key(key) {
            self.open.retire(rkey, len as usize, Instant::now());
        }
    }

    /// Gives back pinned registrations that nothing needs; whether there were any.
    fn make_room(&mut self) -> bool {
        let retired = self.open.clear();
        self.kept.clear() || retired
    }

    /// Registers our side of a put or get, or finds it registered.
    fn register_ours(&mut self, kind: &RmaKind) -> Result<Through, VerbsError> {
        // On iWARP what a read writes is open to the peer: that is for one operation only.
        let open = self.iwarp.is_some() && matches!(kind, RmaKind::Get(_));
        let (start, len) = match kind {
            RmaKind::Put(region) => (region.as_ptr(), region.len()),
            RmaKind::Get(region) | RmaKind::Atomic(_, region) => {
                (region.as_mut_ptr().cast_const(), region.len())
            }
        };
        if !open && let Some(memory) = lasting::covering(start, len) {
            let device = &self.device;
            let kept = self.kept.of(memory, |memory| register_lasting(device, memory));
            if let Some(kept) = kept {
                return Ok(Through::Kept(kept));
            }
        }
        let (direction, ours) = match kind {
            RmaKind::Put(_) => (0, Access::LocalRead),
            RmaKind::Get(_) | RmaKind::Atomic(..) => (1, Access::LocalWrite),
        };
        let wanted = !open
            && self.paged.as_ref().is_some_and(|paged| paged[direction].wants(start.addr(), len));
        if (!wanted || self.pages_on_demand())
            && let (false, Some(paged)) = (open, &mut self.paged)
        {
            let register = |pages| register_paged(&self.device, pages, ours);
            if let Some(kept) = paged[direction].of(start.addr(), len, register) {
                return Ok(Through::Paged(kept));
            }
        }
        let access = if open { Access::RemoteWrite } else { ours };
        let pin = |device: &Device| match kind {
            RmaKind::Put(region) => register_send(device, region, access, Paging::Pinned),
            RmaKind::Get(region) | RmaKind::Atomic(_, region) => {
                register_receive(device, region, access, Paging::Pinned)
            }
        };
        let pinned = match pin(&self.device) {
            Err(_) if self.make_room() => pin(&self.device),
            outcome => outcome,
        };
        if pinned.is_ok() || open || !self.pages_on_demand() {
            return pinned.map(Through::Registered);
        }
        let paged = &mut self.paged.as_mut().expect("pages are had on demand")[direction];
        let register = |pages| register_paged(&self.device, pages, ours);
        match paged.now(start.addr(), len, register) {
            // The device has no more: those that are kept go.
            Err(_) if paged.clear() => paged.now(start.addr(), len, register),
            outcome => outcome,
        }
        .map(Through::Paged)
    }

    /// A put or get through a slot or a registration of the region.
    #[allow(clippy::result_large_err)]
    fn post_rma(
        &mut self,
        descriptor: RmaDescriptor,
        remote: Remote,
    ) -> Result<(), (Refused, RmaDescriptor)> {
        let peer = descriptor.peer;
        let len = remote.len;
        let put = matches!(descriptor.kind, RmaKind::Put(_));
        let through = if len <= self.config.buffer {
            let Some(slot) = self.buffers.take() else {
                return Err((self.refuse().expect_err("a refusal"), descriptor));
            };
            if let RmaKind::Put(region) = &descriptor.kind {
                self.buffers.bytes(&slot)[..len].copy_from_slice(region.as_slice());
            }
            Through::Slot(slot)
        } else {
            let registered = self.register_ours(&descriptor.kind);
            match registered {
                Ok(through) => through,
                // Others will come back and free some.
                Err(_) if self.in_flight > 0 => {
                    return Err((self.refuse().expect_err("a refusal"), descriptor));
                }
                Err(error) => {
                    let fault = Fault::operation(peer, cause(&error));
                    self.done.push_back((descriptor, Err(fault)));
                    return Ok(());
                }
            }
        };
        let lkey = match &through {
            Through::Slot(slot) => self.buffers.piece(slot, 0..len).lkey,
            Through::Registered(registration) => registration.lkey(),
            Through::Kept(kept) => kept.registration.lkey(),
            Through::Paged(registration) => registration.lkey(),
        };
        let addr = match (&through, &descriptor.kind) {
            (Through::Slot(slot), _) => self.buffers.piece(slot, 0..len).addr,
            (_, RmaKind::Put(region)) => region.as_ptr() as u64,
            (_, RmaKind::Get(region) | RmaKind::Atomic(_, region)) => region.as_mut_ptr() as u64,
        };
        let local = Sge { addr, length: 0, lkey };
        let part = PART.max(len.div_ceil(PARTS));
        let conn = match self.slots.get_mut(peer.index()) {
            Some(Slot { link: Link::Up(conn), .. }) => conn,
            _ => unreachable!("the caller saw the connection"),
        };
        // On iWARP a write that is over was taken by TCP, no more: a read behind it tells that it arrived.
        let last = self.iwarp.as_ref().filter(|_| put).map(Iwarp::scratch);
        let mut at = 0;
        let mut posted = 0;
        let outcome = loop {
            let size = part.min(len - at);
            let piece = Sge { addr: local.addr + at as u64, length: size as u32, lkey: local.lkey };
            let (address, rkey) = (remote.address + at as u64, remote.rkey);
            let operation = match descriptor.kind {
                RmaKind::Put(_) => Operation::Write { address, rkey },
                RmaKind::Get(_) => Operation::Read { address, rkey },
                RmaKind::Atomic(Atomic::FetchAdd(add), _) => {
                    Operation::FetchAdd { address, rkey, add }
                }
                RmaKind::Atomic(Atomic::CompareSwap { compare, swap }, _) => {
                    Operation::CompareSwap { address, rkey, compare, swap }
                }
            };
            at += size;
            if at == len && last.is_none() {
                break conn.post(operation, &piece, Work::Rma(descriptor, through), true);
            }
            // A completion for each part, so that progress shows.
            if let Err((error, _)) = conn.post(operation, &piece, Work::Part, true) {
                break Err((error, Work::Rma(descriptor, through)));
            }
            posted += 1;
            if let (true, Some(scratch)) = (at == len, &last) {
                break conn.read_control(scratch, Work::Rma(descriptor, through));
            }
        };
        match outcome {
            Ok(()) => {
                self.in_flight += posted + 1;
                self.counters.rma.add(1);
                Ok(())
            }
            Err((error, work)) => {
                // Parts may be under way: it stays with the connection, which ends now, and comes back with it.
                self.in_flight += posted + 1;
                conn.works.push_back(work);
                self.lost(peer, cause(&error));
                Ok(())
            }
        }
    }
}

/// A peer's registered memory, as its key says, cut to an operation.
struct Remote {
    address: u64,
    rkey: u32,
    len: usize,
}

/// A remote key: address, length, rkey; 20 bytes.
fn key(address: u64, len: usize, rkey: u32) -> RemoteKey {
    let mut bytes = [0; 20];
    bytes[..8].copy_from_slice(&address.to_le_bytes());
    bytes[8..16].copy_from_slice(&(len as u64).to_le_bytes());
    bytes[16..].copy_from_slice(&rkey.to_le_bytes());
    RemoteKey::new(&bytes).expect("twenty bytes fit")
}

fn read_key(key: &RemoteKey) -> Option<(u64, u64, u32)> {
    let (address, rest) = key.as_bytes().split_first_chunk::<8>()?;
    let (len, rest) = rest.split_first_chunk::<8>()?;
    let rkey: [u8; 4] = rest.try_into().ok()?;
    Some((u64::from_le_bytes(*address), u64::from_le_bytes(*len), u32::from_le_bytes(rkey)))
}
