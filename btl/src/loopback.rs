//! `self`: frames from a process to itself.
//!
//! Frames are queued and delivered by `progress`, never inside the send, so that the layer above is not
//! re-entered. It cannot fail; it can be invalidated like any other endpoint, and keeps the same laws.

use crate::{
    Address, Btl, Caps, Cause, Counters, Descriptor, EndpointState, FailureReport, Fault, Peer,
    Refused, Residue, Sink,
};
use std::collections::VecDeque;
use std::sync::Arc;

/// The component's name.
const NAME: &str = "self";
/// Bytes of copied frames that may be queued.
const QUEUE_BYTES: usize = 4 << 20;
/// Frames that may be queued.
const QUEUE_FRAMES: usize = 4096;
/// Longest copied payload of one frame.
const MAX_COPIED: usize = 64 << 10;

enum Queued {
    /// Header and payload, copied, next in `Batch::bytes`.
    Copied { header: usize, payload: usize },
    /// The payload is delivered straight out of user memory.
    Borrowed(Descriptor),
}

/// Frames waiting for delivery, with the bytes of the copied ones in one reused buffer.
#[derive(Default)]
struct Batch {
    frames: VecDeque<Queued>,
    bytes: Vec<u8>,
}

/// The `self` transport.
pub struct Loopback {
    me: Peer,
    caps: Caps,
    state: EndpointState,
    /// `up` was not reported yet.
    announce: bool,
    excluded: bool,
    /// What is sent goes to `filling`; `progress` swaps and delivers the other.
    filling: Batch,
    draining: Batch,
    counters: Arc<Counters>,
}

impl Loopback {
    /// The transport of process `me` to itself.
    #[must_use]
    pub fn new(me: Peer) -> Self {
        Loopback {
            me,
            caps: Caps {
                name: NAME,
                device: String::from("loopback"),
                max_short: 4096,
                max_bcopy: MAX_COPIED,
                max_zcopy: usize::MAX,
                zcopy_from: crate::ZCOPY_FROM,
                eager_limit: MAX_COPIED,
                posted_limit: MAX_COPIED,
                rndv_eager_limit: MAX_COPIED,
                fragment: 1 << 20,
                put: false,
                get: false,
                atomics: false,
                read_from: usize::MAX,
                ordered: true,
                lossless: true,
                latency_ns: 10,
                bandwidth_mbs: 50_000,
                exclusivity: 65_536,
                failure_report: FailureReport::Prompt,
            },
            state: EndpointState::Closed,
            announce: false,
            excluded: false,
            filling: Batch::default(),
            draining: Batch::default(),
            counters: Arc::default(),
        }
    }

    /// Whether a frame of `len` bytes to `peer` can be queued.
    fn admit(&self, peer: Peer, len: usize) -> Result<(), Refused> {
        if peer != self.me {
            return Err(Refused::Closed);
        }
        match self.state {
            EndpointState::Connecting => return Err(Refused::Connecting),
            EndpointState::Failing | EndpointState::Closed => return Err(Refused::Closed),
            EndpointState::Up => {}
        }
        if self.filling.frames.len() >= QUEUE_FRAMES || self.filling.bytes.len() + len > QUEUE_BYTES
        {
            self.counters.refused.add(1);
            return Err(Refused::NoRoom);
        }
        Ok(())
    }

    /// Delivers, or drops, what `draining` holds.
    fn drain<S: Sink>(&mut self, residue: Residue, sink: &mut S) -> usize {
        let mut reports = 0;
        let mut bytes = self.draining.bytes.as_slice();
        for queued in self.draining.frames.drain(..) {
            reports += 1;
            match (queued, residue) {
                (Queued::Copied { header, payload }, residue) => {
                    let (frame, rest) = bytes.split_at(header + payload);
                    bytes = rest;
                    if residue == Residue::Deliver {
                        let (header, payload) = frame.split_at(header);
                        self.counters.frames_received.add(1);
                        self.counters.bytes_received.add(payload.len() as u64);
                        sink.frame(self.me, header, payload);
                    }
                }
                (Queued::Borrowed(descriptor), Residue::Deliver) => {
                    self.counters.frames_received.add(1);
                    self.counters.bytes_received.add(descriptor.payload_len() as u64);
                    match &descriptor.payload[..] {
                        [whole] => {
                            sink.frame(self.me, descriptor.header.as_bytes(), whole.as_slice());
                        }
                        parts => {
                            let joined: Vec<u8> =
                                parts.iter().flat_map(|part| part.as_slice()).copied().collect();
                            sink.frame(self.me, descriptor.header.as_bytes(), &joined);
                        }
                    }
                    sink.completed(descriptor, Ok(()));
                }
                (Queued::Borrowed(descriptor), Residue::Discard) => {
                    self.counters.purged.add(1);
                    sink.completed(descriptor, Err(Fault::operation(self.me, Cause::Invalidated)));
                }
            }
        }
        self.draining.bytes.clear();
        reports
    }
}

impl Btl for Loopback {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn address(&self) -> Address {
        Address { component: NAME.into(), rail: 0, bytes: self.me.0.to_le_bytes().to_vec() }
    }

    fn connect(&mut self, peer: Peer, address: &Address) -> Result<(), Fault> {
        if peer != self.me || *address != self.address() || self.excluded {
            return Err(Fault::rail(peer, Cause::Unreachable));
        }
        if self.state == EndpointState::Closed {
            self.state = EndpointState::Up;
            self.announce = true;
        }
        Ok(())
    }

    fn state(&self, peer: Peer) -> EndpointState {
        if peer == self.me { self.state } else { EndpointState::Closed }
    }

    #[inline]
    fn send_short(&mut self, peer: Peer, header: &[u8], payload: &[u8]) -> Result<(), Refused> {
        if header.len() + payload.len() > self.caps.max_short {
            return Err(Refused::TooLong { max: self.caps.max_short });
        }
        self.send_bcopy(peer, header, payload.len(), |offset, piece| {
            piece.copy_from_slice(&payload[offset..offset + piece.len()]);
        })
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
        self.admit(peer, header.len() + len)?;
        let batch = &mut self.filling;
        batch.bytes.extend_from_slice(header);
        let start = batch.bytes.len();
        batch.bytes.resize(start + len, 0);
        pack(0, &mut batch.bytes[start..]);
        batch.frames.push_back(Queued::Copied { header: header.len(), payload: len });
        self.counters.frames_sent.add(1);
        self.counters.bytes_sent.add(len as u64);
        Ok(())
    }

    fn send_zcopy(&mut self, descriptor: Descriptor) -> Result<(), (Refused, Descriptor)> {
        if let Err(refused) = self.admit(descriptor.peer, 0) {
            return Err((refused, descriptor));
        }
        self.counters.frames_sent.add(1);
        self.counters.bytes_sent.add(descriptor.payload_len() as u64);
        self.filling.frames.push_back(Queued::Borrowed(descriptor));
        Ok(())
    }

    fn take_next<F>(&mut self, peer: Peer, _: u32, take: F) -> bool
    where
        F: FnOnce(&[u8], &[u8]) -> bool,
    {
        let Batch { frames, bytes } = &mut self.filling;
        // One alone: the bytes of others would have to move up.
        let (1, Some(&Queued::Copied { header, payload })) = (frames.len(), frames.front()) else {
            return false;
        };
        let (header, payload) = bytes[..header + payload].split_at(header);
        if peer != self.me || !take(header, payload) {
            return false;
        }
        self.counters.frames_received.add(1);
        self.counters.bytes_received.add(payload.len() as u64);
        frames.clear();
        bytes.clear();
        true
    }

    fn is_silent(&self, peer: Peer) -> bool {
        let up = self.state == EndpointState::Up && !self.announce;
        peer == self.me && up && self.filling.frames.is_empty()
    }

    #[inline]
    fn progress<S: Sink>(&mut self, sink: &mut S) -> usize {
        if self.announce {
            self.announce = false;
            sink.up(self.me);
            return 1;
        }
        if self.filling.frames.is_empty() {
            return 0;
        }
        std::mem::swap(&mut self.filling, &mut self.draining);
        self.drain(Residue::Deliver, sink)
    }

    fn invalidate<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        if peer != self.me || self.state == EndpointState::Closed {
            return;
        }
        self.state = EndpointState::Failing;
        self.announce = false;
        std::mem::swap(&mut self.filling, &mut self.draining);
        self.drain(residue, sink);
        self.state = EndpointState::Closed;
        sink.closed(self.me);
    }

    fn exclude<S: Sink>(&mut self, peer: Peer, residue: Residue, sink: &mut S) {
        self.invalidate(peer, residue, sink);
        self.excluded |= peer == self.me;
    }

    fn unflushed(&self) -> usize {
        self.filling.frames.len()
    }

    fn depart(&mut self) {}

    fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    fn dump(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        writeln!(out, "self: {:?}, {} frames queued", self.state, self.filling.frames.len())
    }
}
