//! Reads of peers' registered memory: straight into the user's, or, where a device answers, in chunks by way of the port's. Atomic operations go
//! by way of the port's, too.
//!
//! No provider can be made to forget an operation of one peer while its endpoint serves others. So a read straight into user
//! memory goes over a *lane*, an endpoint for that peer alone, which is closed before the memory is given back (law 2,
//! [`Reads::fence`]).
//!
//! The source has the same need: software answers out of the user's memory, at its leisure. So memory is lent over a lane too, the
//! one that its key names, which is closed when memory is taken back that may still be read ([`Reads::withdraw`]). What is under way over
//! that pair of lanes, either way, comes back with an error of the operation; its owner asks for the bytes in another way.

use crate::ahead::{HEAD, heads};
use crate::lanes::{Lanes, Way, is_probe};
use crate::lend;
use crate::news::News;
use crate::provider::{Place, Verdict, judge, names_the_key};
use ironweave_btl::{
    Atomic, Cause, Counters, Fault, Peer, RemoteKey, RmaDescriptor, RmaKind, Sink,
};
use ironweave_ffi::ofi::{Change, Errno, FiAddr, Port, Registration, Remote};
use slab::Slab;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Reads taken at once.
const TRANSFERS: usize = 64;
/// How long a pair of lanes may take to be joined.
const UNJOINED: Duration = Duration::from_secs(10);

/// A key on the wire: the provider's key, the base address, the length of the memory, the lane over which it is lent, 0
/// where the device itself answers, and the last bits of where the memory really lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub registration: Registration,
    pub len: u64,
    pub lane: u32,
    pub place: u16,
}

impl Key {
    pub(crate) fn encode(self) -> RemoteKey {
        let mut bytes = [0; 30];
        bytes[..8].copy_from_slice(&self.registration.key.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.registration.base.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.len.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.lane.to_le_bytes());
        bytes[28..].copy_from_slice(&self.place.to_le_bytes());
        RemoteKey::new(&bytes).expect("30 bytes fit")
    }

    /// `None` when the bytes are none of ours.
    pub(crate) fn decode(key: &RemoteKey) -> Option<Key> {
        let bytes: [u8; 30] = key.as_bytes().try_into().ok()?;
        let number = |at: usize| {
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("a slice of eight bytes"))
        };
        let lane = u32::from_le_bytes(bytes[24..28].try_into().expect("a slice of four bytes"));
        let place = u16::from_le_bytes([bytes[28], bytes[29]]);
        let registration = Registration { key: number(0), base: number(8) };
        Some(Key { registration, len: number(16), lane, place })
    }
}

struct Transfer {
    descriptor: RmaDescriptor,
    /// The life of the connection that it belongs to.
    life: u64,
    generation: u64,
    to: FiAddr,
    remote: Remote,
    /// The peer's lane that it goes to; 0: its endpoint.
    lane: u32,
    len: usize,
    /// How many of its first bytes are read by themselves, [`HEAD`] at a time, where they go over a lane.
    head: usize,
    /// Bytes asked for, and bytes there.
    asked: usize,
    landed: usize,
    /// Since when a lane is missed.
    misses: Option<Instant>,
}

impl Transfer {
    /// Bytes of it that were asked for may still come.
    fn is_under_way(&self) -> bool {
        self.asked > self.landed
    }
}

struct Chunk {
    transfer: usize,
    generation: u64,
    offset: usize,
    len: usize,
    /// The life whose lane carries it.
    lane: Option<u64>,
}

/// What became of a read that failed.
pub(crate) enum Failed {
    /// Its life is over, or it began again.
    Nobody,
    /// The connection of that life is broken.
    Life(u64),
    /// It alone is over: the peer took its memory back, or the lanes broke.
    Alone(RmaDescriptor),
}

/// What came of asking.
#[derive(Default)]
pub(crate) struct Asked {
    /// The lives whose provider has no room, and those that failed.
    pub troubles: Vec<(u64, Verdict)>,
    /// Reads that cannot be.
    pub void: Vec<(RmaDescriptor, Cause)>,
}

/// How far a transfer came.
enum Step {
    Whole,
    /// The port has no buffer.
    NoBuffer,
    Later(Option<Verdict>),
    Void(Cause),
}

/// All reads of one rail.
pub(crate) struct Reads {
    transfers: Slab<Transfer>,
    chunks: Slab<Chunk>,
    unasked: VecDeque<usize>,
    generations: u64,
    /// Memory is lent over lanes only.
    by_lanes: bool,
    /// [`OfiConfig::heads`](crate::OfiConfig::heads).
    always_heads: bool,
    pub lanes: Lanes,
    /// Lives whose lanes are to be closed: something failed over them.
    broken: Vec<u64>,
    /// Lives whose lanes were closed: what went over them may be lost (`leads`).
    pub fenced: Vec<u64>,
}

impl Reads {
    /// No reads; `lanes`: they go over those; `always_heads`: and are never whole.
    pub(crate) fn new(me: u32, lanes: bool, always_heads: bool) -> Self {
        Reads {
            transfers: Slab::new(),
            chunks: Slab::new(),
            unasked: VecDeque::new(),
            generations: 0,
            by_lanes: lanes,
            always_heads,
            lanes: Lanes::new(me, lanes),
            broken: Vec::new(),
            fenced: Vec::new(),
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.transfers.len() < TRANSFERS
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.unasked.is_empty()
            && self.broken.is_empty()
            && self.fenced.is_empty()
            && self.lanes.is_idle()
    }

    pub(crate) fn len(&self) -> usize {
        self.transfers.len()
    }

    /// Takes a read; `Err` with what is wrong with the peer's key.
    #[allow(clippy::result_large_err)] // the descriptor goes back
    pub(crate) fn take(
        &mut self,
        descriptor: RmaDescriptor,
        life: u64,
        to: FiAddr,
    ) -> Result<(), (Cause, RmaDescriptor)> {
        let (local, lanes, whole) = match &descriptor.kind {
            RmaKind::Get(region) => (region.as_mut_ptr(), self.by_lanes, 1),
            RmaKind::Atomic(_, region) => (region.as_mut_ptr(), false, Atomic::BYTES),
            RmaKind::Put(_) => return Err((Cause::Malformed("a write"), descriptor)),
        };
        let len = descriptor.kind.length();
        let inside = Key::decode(&descriptor.remote).filter(|there| {
            let end = descriptor.remote_offset.checked_add(len as u64);
            end.is_some_and(|end| end <= there.len) && (there.lane != 0) == lanes
        });
        let Some(Key { registration: Registration { key, base }, lane, place, .. }) = inside else {
            return Err((Cause::Malformed("a read outside of the peer's memory"), descriptor));
        };
        if !u64::from(place).wrapping_add(descriptor.remote_offset).is_multiple_of(whole as u64) {
            let cause = Cause::Malformed("an atomic operation on a number across eight bytes");
            return Err((cause, descriptor));
        }
        let remote = Remote { key, address: base.wrapping_add(descriptor.remote_offset) };
        self.generations += 1;
        let generation = self.generations;
        let (asked, landed, misses) = (0, 0, None);
        let there = usize::from(place).wrapping_add(descriptor.remote_offset as usize);
        let head = HEAD * heads(self.always_heads, there, local as usize, len);
        let transfer = Transfer {
            descriptor,
            life,
            generation,
            to,
            remote,
            lane,
            len,
            head,
            asked,
            landed,
            misses,
        };
        let at = self.transfers.insert(transfer);
        self.unasked.push_back(at);
        Ok(())
    }

    /// Asks for as many chunks as there is room for.
    pub(crate) fn pump(&mut self, port: &mut Port, chunk: usize) -> Asked {
        let mut asked = Asked::default();
        for _ in 0..self.unasked.len() {
            let Some(at) = self.unasked.pop_front() else { break };
            match self.transfers.get(at) {
                None => continue,
                Some(transfer) if transfer.len == 0 => {
                    self.unasked.push_back(at); // for `take_empty`
                    continue;
                }
                Some(_) => {}
            }
            match self.ask(port, at, chunk) {
                Step::Whole => {}
                Step::NoBuffer => {
                    self.unasked.push_front(at);
                    break;
                }
                Step::Later(verdict) => {
                    let life = self.transfers[at].life;
                    asked.troubles.extend(verdict.map(|verdict| (life, verdict)));
                    self.unasked.push_back(at); // others may have room
                }
                Step::Void(cause) => {
                    asked.void.push((self.transfers.remove(at).descriptor, cause));
                }
            }
        }
        asked
    }

    fn ask(&mut self, port: &mut Port, at: usize, chunk: usize) -> Step {
        let transfer = &self.transfers[at];
        if let RmaKind::Atomic(what, _) = transfer.descriptor.kind {
            return self.change(port, at, what);
        }
        if transfer.lane == 0 { self.ask_device(port, at, chunk) } else { self.ask_lane(port, at) }
    }

    /// Reads all of it straight into the user's memory, from lane to lane.
    fn ask_lane(&mut self, port: &mut Port, at: usize) -> Step {
        let transfer = &mut self.transfers[at];
        if self.broken.contains(&transfer.life) {
            return Step::Later(None); // the lane is to be closed first
        }
        let (lane, way) = self.lanes.way(transfer.life, transfer.lane);
        let (lane, from) = match (lane, way) {
            (Some(lane), Way::To(from)) => (lane, from),
            _ if transfer.is_under_way() => {
                // Not before its memory is out of reach.
                self.broken.push(transfer.life);
                return Step::Later(None);
            }
            (_, Way::Void) => return Step::Void(Cause::Malformed("the memory was taken back")),
            (_, Way::To(_) | Way::Wait) => {
                let since = *transfer.misses.get_or_insert_with(Instant::now);
                if since.elapsed() < UNJOINED {
                    return Step::Later(None);
                }
                let life = transfer.life;
                self.lanes.give_up(life);
                self.broken.push(life);
                return Step::Void(Cause::TimedOut);
            }
        };
        let RmaKind::Get(region) = &transfer.descriptor.kind else {
            return Step::Void(Cause::Malformed("not a read"));
        };
        if transfer.len > port.info().max_message() {
            return Step::Void(Cause::Malformed("a read longer than a message"));
        }
        let (life, generation) = (transfer.life, transfer.generation);
        while transfer.asked < transfer.len {
            let offset = transfer.asked;
            let end = if offset < transfer.head { offset + HEAD } else { transfer.len };
            let chunk =
                Chunk { transfer: at, generation, offset, len: end - offset, lane: Some(life) };
            let mark = self.chunks.insert(chunk);
            let mut remote = transfer.remote;
            remote.address = remote.address.wrapping_add(offset as u64);
            let read = lend::read_into(port, lane, region, offset..end, from, remote, mark as u64);
            if let Err(error) = read {
                self.chunks.remove(mark);
                return Step::Later(Some(judge(Place::Call, error)));
            }
            transfer.asked = end;
        }
        Step::Whole
    }

    /// Has a number changed; what was there comes as a read does.
    fn change(&mut self, port: &mut Port, at: usize, what: Atomic) -> Step {
        let transfer = &mut self.transfers[at];
        let Some(slot) = port.buffer(Port::CHANGE) else { return Step::NoBuffer };
        let (generation, len) = (transfer.generation, transfer.len);
        let chunk = Chunk { transfer: at, generation, offset: 0, len, lane: None };
        let mark = self.chunks.insert(chunk);
        let change = match what {
            Atomic::FetchAdd(number) => Change::Add(number),
            Atomic::CompareSwap { compare, swap } => Change::Swap(compare, swap),
        };
        match port.change(slot, change, transfer.to, transfer.remote, mark as u64) {
            Ok(()) => {
                transfer.asked = len;
                Step::Whole
            }
            Err((error, slot)) => {
                port.give_back(slot);
                self.chunks.remove(mark);
                Step::Later(Some(judge(Place::Call, error)))
            }
        }
    }

    /// Reads by way of buffers: the endpoint serves all peers.
    fn ask_device(&mut self, port: &mut Port, at: usize, chunk: usize) -> Step {
        let transfer = &mut self.transfers[at];
        while transfer.asked < transfer.len {
            let len = chunk.min(transfer.len - transfer.asked);
            let Some(slot) = port.buffer(len) else { return Step::NoBuffer };
            let (offset, generation) = (transfer.asked, transfer.generation);
            let chunk = Chunk { transfer: at, generation, offset, len, lane: None };
            let mark = self.chunks.insert(chunk);
            let mut remote = transfer.remote;
            remote.address = remote.address.wrapping_add(offset as u64);
            match port.read(slot, len, transfer.to, remote, mark as u64) {
                Ok(()) => transfer.asked += len,
                Err((error, slot)) => {
                    port.give_back(slot);
                    self.chunks.remove(mark);
                    return Step::Later(Some(judge(Place::Call, error)));
                }
            }
        }
        Step::Whole
    }

    /// A chunk is there. Gives the peer when its transfer is whole, and the descriptor.
    pub(crate) fn landed(&mut self, mark: u64, bytes: &[u8]) -> Option<RmaDescriptor> {
        let chunk = self.chunks.try_remove(mark as usize)?;
        let transfer = self.transfers.get_mut(chunk.transfer)?;
        if transfer.generation != chunk.generation {
            return None; // its life is over; the bytes go nowhere
        }
        if let RmaKind::Get(region) | RmaKind::Atomic(_, region) = &transfer.descriptor.kind {
            region.write(chunk.offset, bytes);
        }
        transfer.landed += bytes.len();
        let whole = transfer.landed >= transfer.len;
        whole.then(|| self.transfers.remove(chunk.transfer).descriptor)
    }

    /// A read straight into the user's memory, or a probe, is over.
    pub(crate) fn landed_whole(&mut self, mark: u64) -> Option<RmaDescriptor> {
        if is_probe(mark) {
            self.lanes.probed(mark, true);
            return None;
        }
        let chunk = self.chunks.try_remove(mark as usize)?;
        let transfer = self.transfers.get_mut(chunk.transfer)?;
        if transfer.generation != chunk.generation {
            return None;
        }
        transfer.landed += chunk.len;
        let whole = transfer.landed >= transfer.len;
        whole.then(|| self.transfers.remove(chunk.transfer).descriptor)
    }

    /// Takes all memory of a life out of the provider's reach, that of its reads and what is lent to its peer; `false` when the
    /// provider does not let go yet. Reads that were under way find that the peer's lane is gone.
    pub(crate) fn fence(&mut self, port: &mut Port, life: u64) -> bool {
        if !self.lanes.has(life) {
            return true;
        }
        if !self.lanes.close(port, life) {
            return false;
        }
        self.fenced.push(life);
        // Their events do not come.
        let (transfers, unasked) = (&mut self.transfers, &mut self.unasked);
        self.chunks.retain(|_, chunk| {
            if chunk.lane != Some(life) {
                return true;
            }
            if let Some(transfer) = transfers.get_mut(chunk.transfer)
                && transfer.generation == chunk.generation
            {
                (transfer.asked, transfer.landed) = (0, 0);
                unasked.push_back(chunk.transfer);
            }
            false
        });
        true
    }

    /// Ends all answers out of memory that was lent over lane `number` of ours; `false` when the provider does not let go yet.
    pub(crate) fn withdraw(&mut self, port: &mut Port, number: u32) -> bool {
        let life = self.lanes.life_of(number);
        life.is_none_or(|life| self.fence(port, life))
    }

    /// The peer of a life tells of its lane; `false` when the provider does not let go of memory yet: to be told again.
    pub(crate) fn heard(&mut self, port: &mut Port, life: u64, news: &News) -> bool {
        let over = match news {
            News::Gone { number, .. } => self.lanes.is_paired(life, *number),
            News::Never => true,
            News::Here { .. } | News::Joined { .. } => false,
        };
        if over && !self.fence(port, life) {
            return false;
        }
        self.lanes.heard(port, life, news);
        true
    }

    /// Joins lanes, and closes those that broke.
    pub(crate) fn tend_lanes(&mut self, port: &mut Port) {
        self.lanes.probe(port);
        for life in std::mem::take(&mut self.broken) {
            if !self.fence(port, life) {
                self.broken.push(life);
            }
        }
    }

    /// [`fence`](Reads::fence) for all lives; `false` when one of them is not let go of.
    pub(crate) fn fence_all(&mut self, port: &mut Port) -> bool {
        let lives = self.lanes.lives();
        lives.into_iter().filter(|&life| !self.fence(port, life)).count() == 0
    }

    /// A chunk failed, for that `error`.
    pub(crate) fn failed(&mut self, mark: u64, error: Errno) -> Failed {
        if is_probe(mark) {
            self.broken.extend(self.lanes.probed(mark, false));
            return Failed::Nobody;
        }
        let Some(chunk) = self.chunks.try_remove(mark as usize) else { return Failed::Nobody };
        match self.transfers.get_mut(chunk.transfer) {
            Some(transfer) if transfer.generation != chunk.generation => Failed::Nobody,
            // The peer has answered: the memory is not there any more.
            Some(transfer)
                if matches!(transfer.descriptor.kind, RmaKind::Atomic(..))
                    && names_the_key(error) =>
            {
                Failed::Alone(self.transfers.remove(chunk.transfer).descriptor)
            }
            Some(transfer) if transfer.lane == 0 => Failed::Life(transfer.life),
            Some(transfer) => {
                // What connects the two lanes is gone, or void; nobody may connect them anew.
                self.broken.push(transfer.life);
                transfer.asked -= chunk.len;
                if !transfer.is_under_way() {
                    return Failed::Alone(self.transfers.remove(chunk.transfer).descriptor);
                }
                // Its memory is not free before the rest came or the lane is closed. It is asked for again then, and void.
                self.generations += 1;
                (transfer.generation, transfer.asked, transfer.landed) = (self.generations, 0, 0);
                self.unasked.push_back(chunk.transfer);
                Failed::Nobody
            }
            None => Failed::Nobody,
        }
    }

    /// Empty reads are over when they are taken.
    pub(crate) fn take_empty(&mut self) -> Option<RmaDescriptor> {
        let at = self
            .unasked
            .iter()
            .position(|&at| self.transfers.get(at).is_some_and(|transfer| transfer.len == 0))?;
        let at = self.unasked.remove(at)?;
        Some(self.transfers.remove(at).descriptor)
    }

    /// Gives every read of a life back.
    pub(crate) fn purge<S: Sink>(
        &mut self,
        peer: Peer,
        life: u64,
        cause: &Cause,
        counters: &Counters,
        sink: &mut S,
    ) {
        let of_life: Vec<usize> = self
            .transfers
            .iter()
            .filter(|(_, transfer)| transfer.life == life)
            .map(|(at, _)| at)
            .collect();
        for at in of_life {
            let transfer = self.transfers.remove(at);
            counters.purged.add(1);
            sink.rma_completed(transfer.descriptor, Err(Fault::operation(peer, cause.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironweave_btl::Token;
    use ironweave_btl::memory::OwnedBuffer;

    #[test]
    fn keys_come_back_and_lies_are_refused() {
        let key = Key {
            registration: Registration { key: 5, base: 1 << 40 },
            len: 100,
            lane: 0,
            place: 9,
        };
        assert_eq!(Key::decode(&key.encode()), Some(key));
        assert_eq!(Key::decode(&RemoteKey::new(&[9; 12]).unwrap()), None);
        let lent = Key { lane: 7, ..key };
        assert_eq!(Key::decode(&lent.encode()), Some(lent));
        let mut reads = Reads::new(0, false, false);
        let endless = Key { len: u64::MAX, place: u16::MAX, ..key };
        for (key, offset, len, right) in [
            (key, 0, 100, true),
            (key, 1, 100, false),
            (key, u64::MAX, 2, false),
            (endless, u64::MAX - 9, 9, true), // the provider knows better
        ] {
            let buffer = OwnedBuffer::zeroed(len);
            #[allow(unsafe_code)]
            // SAFETY: the buffer lives to the end of this round, and the region is dropped before.
            let region = unsafe { buffer.recv_region() };
            let descriptor = RmaDescriptor {
                peer: Peer(1),
                kind: RmaKind::Get(region),
                remote: key.encode(),
                remote_offset: offset,
                token: Token(1),
            };
            assert_eq!(reads.take(descriptor, 1, 0).is_ok(), right, "{offset} {len}");
            reads.transfers.clear();
        }
    }
}
