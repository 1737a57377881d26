//! Reads of peers' registered memory: straight into the user's, or in chunks by way of the port's.
//!
//! No provider can be made to forget an operation of one peer while its endpoint serves others. So a read straight into user
//! memory goes over a *lane*, an endpoint for that peer alone, which is closed before the memory is given back (law 2,
//! [`Reads::fence`]). Where the provider's endpoints must not be closed with operations under way, where the read is short, or
//! where all lanes are taken, a chunk lands in memory of the port's and is copied when it is whole.

use crate::lanes::Lanes;
use crate::lend;
use crate::provider::{Place, Verdict, judge};
use ironweave_btl::{Cause, Counters, Fault, Peer, RemoteKey, RmaDescriptor, RmaKind, Sink};
use ironweave_ffi::ofi::{FiAddr, Port, Registration, Remote};
use slab::Slab;
use std::collections::VecDeque;

/// Reads taken at once.
const TRANSFERS: usize = 64;
/// Shorter reads are not worth one, in bytes.
const LANE_MIN: usize = 16 << 10;

/// A key on the wire: the provider's key, the base address, and the length of the memory.
pub(crate) fn encode_key(registration: Registration, len: usize) -> RemoteKey {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&registration.key.to_le_bytes());
    bytes[8..16].copy_from_slice(&registration.base.to_le_bytes());
    bytes[16..].copy_from_slice(&(len as u64).to_le_bytes());
    RemoteKey::new(&bytes).expect("24 bytes fit")
}

/// The registration in a key; `None` when the bytes are none of ours.
pub(crate) fn decode_key(key: &RemoteKey) -> Option<(Registration, u64)> {
    let bytes: [u8; 24] = key.as_bytes().try_into().ok()?;
    let number = |at: usize| {
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("a slice of eight bytes"))
    };
    Some((Registration { key: number(0), base: number(8) }, number(16)))
}

struct Transfer {
    descriptor: RmaDescriptor,
    /// The life of the connection that it belongs to.
    life: u64,
    generation: u64,
    to: FiAddr,
    remote: Remote,
    len: usize,
    /// Bytes asked for, and bytes there.
    asked: usize,
    landed: usize,
}

struct Chunk {
    transfer: usize,
    generation: u64,
    offset: usize,
    /// The life whose lane carries it.
    lane: Option<u64>,
}

/// All reads of one rail.
#[derive(Default)]
pub(crate) struct Reads {
    transfers: Slab<Transfer>,
    chunks: Slab<Chunk>,
    unasked: VecDeque<usize>,
    generations: u64,
    pub lanes: Lanes,
}

impl Reads {
    /// No reads; `lanes`: long ones go straight into user memory.
    pub(crate) fn new(lanes: bool) -> Self {
        Reads { lanes: Lanes::new(lanes), ..Reads::default() }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.transfers.len() < TRANSFERS
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.unasked.is_empty()
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
        let RmaKind::Get(region) = &descriptor.kind else {
            return Err((Cause::Malformed("not a read"), descriptor));
        };
        let len = region.len();
        let inside = decode_key(&descriptor.remote).filter(|(_, there)| {
            descriptor.remote_offset.checked_add(len as u64).is_some_and(|end| end <= *there)
        });
        let Some((Registration { key, base }, _)) = inside else {
            return Err((Cause::Malformed("a read outside of the peer's memory"), descriptor));
        };
        let remote = Remote { key, address: base.wrapping_add(descriptor.remote_offset) };
        self.generations += 1;
        let generation = self.generations;
        let transfer =
            Transfer { descriptor, life, generation, to, remote, len, asked: 0, landed: 0 };
        let at = self.transfers.insert(transfer);
        self.unasked.push_back(at);
        Ok(())
    }

    /// Asks for as many chunks as there is room for. Gives the lives whose provider has no room, and those that failed.
    pub(crate) fn pump(&mut self, port: &mut Port, chunk: usize) -> Vec<(u64, Verdict)> {
        let mut troubles = Vec::new();
        while let Some(&at) = self.unasked.front() {
            let Some(transfer) = self.transfers.get_mut(at) else {
                self.unasked.pop_front();
                continue;
            };
            if transfer.asked >= transfer.len {
                self.unasked.pop_front();
                continue;
            }
            if transfer.asked == 0
                && let RmaKind::Get(region) = &transfer.descriptor.kind
                && (LANE_MIN..=port.info().max_message()).contains(&transfer.len)
                && let Some((lane, there)) = self.lanes.open(port, transfer.life)
            {
                let (generation, lane_life) = (transfer.generation, Some(transfer.life));
                let whole = Chunk { transfer: at, generation, offset: 0, lane: lane_life };
                let mark = self.chunks.insert(whole);
                let (to, remote) = (there.unwrap_or(transfer.to), transfer.remote);
                match lend::read_into(port, lane, region, to, remote, mark as u64) {
                    Ok(()) => transfer.asked = transfer.len,
                    Err(error) => {
                        self.chunks.remove(mark);
                        troubles.push((transfer.life, judge(Place::Call, error)));
                        self.unasked.rotate_left(1);
                        if troubles.len() >= self.unasked.len() {
                            break;
                        }
                    }
                }
                continue;
            }
            let len = chunk.min(transfer.len - transfer.asked);
            let Some(slot) = port.buffer(len) else { break };
            let offset = transfer.asked;
            let generation = transfer.generation;
            let mark = self.chunks.insert(Chunk { transfer: at, generation, offset, lane: None });
            let mut remote = transfer.remote;
            remote.address = remote.address.wrapping_add(offset as u64);
            match port.read(slot, len, transfer.to, remote, mark as u64) {
                Ok(()) => transfer.asked += len,
                Err((error, slot)) => {
                    port.give_back(slot);
                    self.chunks.remove(mark);
                    troubles.push((transfer.life, judge(Place::Call, error)));
                    // Others may have room.
                    self.unasked.rotate_left(1);
                    if troubles.len() >= self.unasked.len() {
                        break;
                    }
                }
            }
        }
        troubles
    }

    /// A chunk is there. Gives the peer when its transfer is whole, and the descriptor.
    pub(crate) fn landed(&mut self, mark: u64, bytes: &[u8]) -> Option<RmaDescriptor> {
        let chunk = self.chunks.try_remove(mark as usize)?;
        let transfer = self.transfers.get_mut(chunk.transfer)?;
        if transfer.generation != chunk.generation {
            return None; // its life is over; the bytes go nowhere
        }
        if let RmaKind::Get(region) = &transfer.descriptor.kind {
            region.write(chunk.offset, bytes);
        }
        transfer.landed += bytes.len();
        let whole = transfer.landed >= transfer.len;
        whole.then(|| self.transfers.remove(chunk.transfer).descriptor)
    }

    /// A read straight into the user's memory is over.
    pub(crate) fn landed_whole(&mut self, mark: u64) -> Option<RmaDescriptor> {
        let chunk = self.chunks.try_remove(mark as usize)?;
        let transfer = self.transfers.get(chunk.transfer)?;
        (transfer.generation == chunk.generation)
            .then(|| self.transfers.remove(chunk.transfer).descriptor)
    }

    /// Takes all memory of a life's reads out of the provider's reach; `false` when it does not let go yet.
    pub(crate) fn fence(&mut self, port: &mut Port, life: u64) -> bool {
        if !self.lanes.has(life) {
            return true;
        }
        let closed = self.lanes.close(port, life);
        if closed {
            self.chunks.retain(|_, chunk| chunk.lane != Some(life)); // their events do not come
        }
        closed
    }

    /// [`fence`](Reads::fence) for all lives; `false` when one of them is not let go of.
    pub(crate) fn fence_all(&mut self, port: &mut Port) -> bool {
        let lives = self.lanes.lives();
        lives.into_iter().filter(|&life| !self.fence(port, life)).count() == 0
    }

    /// A chunk failed: the life that it belongs to, when that is not over.
    pub(crate) fn failed(&mut self, mark: u64) -> Option<u64> {
        let chunk = self.chunks.try_remove(mark as usize)?;
        let transfer = self.transfers.get(chunk.transfer)?;
        (transfer.generation == chunk.generation).then_some(transfer.life)
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
        let key = encode_key(Registration { key: 5, base: 1 << 40 }, 100);
        assert_eq!(decode_key(&key), Some((Registration { key: 5, base: 1 << 40 }, 100)));
        assert_eq!(decode_key(&RemoteKey::new(&[9; 12]).unwrap()), None);
        let mut reads = Reads::default();
        for (offset, len, right) in [(0, 100, true), (1, 100, false), (u64::MAX, 2, false)] {
            let buffer = OwnedBuffer::zeroed(len);
            #[allow(unsafe_code)]
            // SAFETY: the buffer lives to the end of this round, and the region is dropped before.
            let region = unsafe { buffer.recv_region() };
            let descriptor = RmaDescriptor {
                peer: Peer(1),
                kind: RmaKind::Get(region),
                remote: key,
                remote_offset: offset,
                token: Token(1),
            };
            assert_eq!(reads.take(descriptor, 1, 0).is_ok(), right, "{offset} {len}");
            reads.transfers.clear();
        }
    }
}
