//! Long frames out of the sender's memory straight into the receiver's, unasked: over the pair of lanes of the two, whose closing takes all
//! of it out of the provider's reach (law 2).
//!
//! ```text
//!  the sender's lane                                the receiver's
//!     │ LEAD  header, length of the whole payload, 4 bytes, its first piece
//!     ├────────────────────────────────────────────────▶│   a message like others, but for the way it takes
//!     │ the rest of the payload, with a tag             │   where the owner wants it: the receiver posts it when the LEAD's turn
//!     ├────────────────────────────────────────────────▶│   has come
//! ```
//!
//! The first piece, which the receiver copies, keeps it busy while the sender's kernel copies the rest. A LEAD has a number as
//! all frames have, and counts as read when its rest is there; others that come before that wait. The tag is made of the number and
//! the receiver's token, which nobody knows but the sender.
//!
//! Shorter frames ([`LENT_FROM`] to [`LENT_MAX`] bytes) go over the pair, too, each as one message out of the sender's memory into a buffer of
//! the receiver, which copies it.
//!
//! A long frame asks its owner at once where it shall go, and who has just heard that his send is over has not posted his next receive
//! yet. So one that comes together with other news is put off until the next call of `progress` (two processes that send to and fro: the answer is
//! on its way before the sender has looked for the end of its own send). One message that is longer than `eager` bytes, too: its owner counts
//! whether such frames find a place.
//!
//! What is under way over a pair that is closed is lost, and with it the life of the connection: each side tells the other with the
//! end of its lane which frame it awaits, so the sender knows whether what it had sent over the pair has arrived
//! ([`Leads::lost`]).

use crate::pieces::WHOLE;
use crate::wire::{Kind, Prefix};
use ironweave_btl::copy::pack;
use ironweave_btl::memory::{OwnedBuffer, RecvRegion};
use ironweave_btl::{Descriptor, Fault, Header, Landing, Peer, Sink, Token};
use slab::Slab;
use std::ops::Range;

/// How much of a payload comes with its LEAD, in bytes.
pub(crate) const FIRST: usize = 24 << 10;
/// The same where such frames are on their way already, which keep the receiver busy: so much less is copied.
pub(crate) const FIRST_AMONG: usize = 2 << 10;
/// Longest frame that goes so, in bytes, unless frames may be longer all the same.
pub(crate) const LONGEST: usize = 512 << 10;
/// Frames from this length on, in bytes, go out of the sender's memory, too, as one message.
pub(crate) const LENT_FROM: usize = 6 << 10;
/// The longest that does, in bytes. The kernel takes 6 to 10 us for a message before it copies the first byte, so a second one costs more
/// than the receiver's copy of all this (in turns, to and fro, two messages and one: 40 KiB 24.7 and 18.4 us, 112 KiB 40.2 and 34.9,
/// 128 KiB 45.7 and 44.7, of its quicker runs 37.8 and 41.3).
pub(crate) const LENT_MAX: usize = 112 << 10;
/// So many of them make a pair of lanes worth it.
pub(crate) const WORTH: u8 = 32;
/// Frames of one rail on their way out at once.
const OUT: usize = 64;

/// The tag of the rest of frame `number`, for who has `token`.
#[inline]
pub(crate) fn tag(token: u64, number: u32) -> u64 {
    token.wrapping_add(u64::from(number) << 24) // the index of the sender, below, stays
}

/// A frame on its way out.
struct Outgoing {
    life: u64,
    number: u32,
    /// How much of the payload went with the first message, perhaps all.
    first: usize,
    descriptor: Descriptor,
}

/// What of a rail's frames goes over lanes, or is to come over them.
pub(crate) struct Leads {
    out: Slab<Outgoing>,
    /// Those whose rest the provider had no room for.
    unstarted: Vec<usize>,
    /// Lives whose peer's LEAD is here, and whose lane is to be told where the rest goes.
    pub awaited: Vec<u64>,
    /// Lives whose next frame, a long one, is here and was put off.
    pub later: Vec<u64>,
    /// Frames that went by way of buffers after all: to be given back.
    pub copied: Vec<Descriptor>,
    /// Frames so far, for dumps.
    went: u64,
    pub came: u64,
}

impl Leads {
    pub(crate) fn new() -> Self {
        let (unstarted, awaited, later) = (Vec::new(), Vec::new(), Vec::new());
        let copied = Vec::new();
        Leads { out: Slab::new(), unstarted, awaited, later, copied, went: 0, came: 0 }
    }

    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.out.len() < OUT
    }

    pub(crate) fn went(&self) -> u64 {
        self.went
    }

    pub(crate) fn len(&self) -> usize {
        self.out.len() + self.copied.len()
    }

    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        let none_waits = self.awaited.is_empty() && self.later.is_empty();
        self.unstarted.is_empty() && none_waits && self.copied.is_empty()
    }

    /// The mark of the next frame.
    pub(crate) fn next(&self) -> usize {
        self.out.vacant_key()
    }

    /// A frame has gone out, or its LEAD; its mark, or that of its rest.
    pub(crate) fn add(
        &mut self,
        life: u64,
        number: u32,
        first: usize,
        descriptor: Descriptor,
    ) -> usize {
        self.went += 1;
        self.out.insert(Outgoing { life, number, first, descriptor })
    }

    /// The rest of a frame could not be handed over yet.
    pub(crate) fn wait(&mut self, mark: usize) {
        self.unstarted.push(mark);
    }

    pub(crate) fn take_unstarted(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.unstarted)
    }

    /// Life, number, length of the first piece, and memory of a frame on its way out.
    pub(crate) fn get(&self, mark: usize) -> Option<(u64, u32, usize, &Descriptor)> {
        self.out.get(mark).map(|out| (out.life, out.number, out.first, &out.descriptor))
    }

    /// The provider has sent the rest of a frame.
    #[inline]
    pub(crate) fn sent(&mut self, mark: u64) -> Option<Descriptor> {
        self.out.try_remove(mark as usize).map(|out| out.descriptor)
    }

    /// The life of a frame on its way out.
    pub(crate) fn life_of(&self, mark: u64) -> Option<u64> {
        self.out.get(mark as usize).map(|out| out.life)
    }

    /// Whether frames of that life are not out yet.
    pub(crate) fn has(&self, life: u64) -> bool {
        self.out.iter().any(|(_, out)| out.life == life)
    }

    /// The same of frames with a LEAD.
    pub(crate) fn has_long(&self, life: u64) -> bool {
        let is_long = |out: &Outgoing| out.first < out.descriptor.payload_len();
        self.out.iter().any(|(_, out)| out.life == life && is_long(out))
    }

    /// Takes everything back that goes to `peer`, whose life is over. Its lane is closed.
    pub(crate) fn purge(&mut self, peer: Peer, life: u64) -> Vec<Descriptor> {
        let of_life = self.out.iter().filter(|(_, out)| out.life == life);
        let marks: Vec<usize> = of_life.map(|(mark, _)| mark).collect();
        self.unstarted.retain(|mark| !marks.contains(mark));
        self.awaited.retain(|of| *of != life);
        self.later.retain(|of| *of != life);
        let mut taken: Vec<Descriptor> = Vec::new();
        taken.extend(self.copied.extract_if(.., |descriptor| descriptor.peer == peer));
        taken.extend(marks.into_iter().map(|mark| self.out.remove(mark).descriptor));
        taken
    }
}

#[derive(Debug)]
enum Body {
    /// In memory of ours.
    Buffered { header: Header, payload: OwnedBuffer },
    /// Where the owner wants it.
    Direct { region: RecvRegion, token: Token },
}

/// The memory that a rest goes to.
pub(crate) enum Place<'a> {
    Ours(&'a OwnedBuffer),
    Owners(&'a RecvRegion),
}

/// A frame whose LEAD is here, and its turn, and whose rest is not.
#[derive(Debug)]
pub(crate) struct Led {
    body: Body,
    first: usize,
    len: usize,
    /// Length of the LEAD's message, in bytes.
    pub message: usize,
}

impl Led {
    /// Takes up a LEAD, of a frame of at most `most` bytes; the error says what is wrong with it.
    pub(crate) fn begin<S: Sink>(
        from: Peer,
        (header, payload): (&[u8], &[u8]),
        message: usize,
        most: usize,
        sink: &mut S,
    ) -> Result<Led, &'static str> {
        let Some((len, first)) = payload.split_first_chunk::<WHOLE>() else {
            return Err("a long frame without a length");
        };
        let len = u32::from_le_bytes(*len) as usize;
        if len > most || first.len() >= len {
            return Err("the length of a long frame");
        }
        let body = match sink.landing(from, header, len) {
            Landing::Buffered => {
                let mut payload = OwnedBuffer::zeroed(len);
                pack(&mut payload.as_mut_slice()[..first.len()], first);
                Body::Buffered { header: Header::new(header), payload }
            }
            Landing::Direct { region, token } => {
                assert!(region.len() >= len, "a landing of {} bytes for {len}", region.len());
                region.write(0, first);
                Body::Direct { region, token }
            }
        };
        Ok(Led { body, first: first.len(), len, message })
    }

    /// How many bytes are to come.
    pub(crate) fn rest(&self) -> usize {
        self.len - self.first
    }

    /// Where they go.
    pub(crate) fn place(&self) -> (Place<'_>, Range<usize>) {
        let place = match &self.body {
            Body::Buffered { payload, .. } => Place::Ours(payload),
            Body::Direct { region, .. } => Place::Owners(region),
        };
        (place, self.first..self.len)
    }

    /// The rest is there: reports the frame, and tells its length.
    pub(crate) fn whole<S: Sink>(self, from: Peer, sink: &mut S) -> usize {
        match self.body {
            Body::Buffered { header, payload } => {
                sink.frame(from, header.as_bytes(), payload.as_slice());
            }
            Body::Direct { region, token } => sink.landed(from, region, token, Ok(())),
        }
        self.len
    }

    /// The rest will not come; whether that was reported.
    pub(crate) fn give_up<S: Sink>(self, from: Peer, fault: &Fault, sink: &mut S) -> bool {
        match self.body {
            Body::Buffered { .. } => false,
            Body::Direct { region, token } => {
                sink.landed(from, region, token, Err(fault.clone()));
                true
            }
        }
    }
}

/// Whether a message is a LEAD.
pub(crate) fn is_lead(message: &[u8]) -> bool {
    Prefix::split(message).is_some_and(|(_, kind, ..)| kind == Kind::Lead)
}

/// Whether a message is a LEAD, or a frame of more than `eager` bytes: whether its owner is asked where it shall go.
pub(crate) fn asks(message: &[u8], eager: usize) -> bool {
    Prefix::split(message).is_some_and(|(_, kind, _, payload)| match kind {
        Kind::Lead => true,
        Kind::Data => payload.len() > eager,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    #![allow(unsafe_code)] // regions of a buffer that outlives them

    use super::*;
    use crate::log::{Log, first};
    use ironweave_btl::Cause;

    fn begin(log: &mut Log, payload: &[u8], most: usize) -> Result<Led, &'static str> {
        Led::begin(Peer(3), (b"h", payload), 40 + payload.len(), most, log)
    }

    #[test]
    fn lies_about_lengths_are_refused() {
        let mut log = Log::new(None);
        for lie in [&first(5000, b"x")[..], &first(3, b"abc"), &first(0, b""), b"abc", b""] {
            assert!(begin(&mut log, lie, 4096).is_err(), "{lie:?}");
        }
        assert_eq!(log.asked, 0, "nobody was asked for memory");
    }

    #[test]
    fn a_frame_is_whole_with_its_rest_or_its_memory_comes_back() {
        for direct in [false, true] {
            for comes in [false, true] {
                let mut log = Log::new(direct.then_some(300));
                let led = begin(&mut log, &first(200, &[7; 80]), 200).expect("no lie");
                assert_eq!((led.rest(), led.message, log.asked), (120, 124, 1));
                let (place, rest) = led.place();
                let region = match place {
                    // SAFETY: nobody looks at the memory meanwhile.
                    Place::Ours(buffer) => unsafe { buffer.recv_region() }.part(rest),
                    Place::Owners(region) => region.part(rest),
                };
                assert_eq!(region.len(), 120);
                let fault = Fault::rail(Peer(3), Cause::Disconnected);
                if !comes {
                    assert_eq!(led.give_up(Peer(3), &fault, &mut log), direct);
                    let back: Vec<_> = direct.then_some(Err(fault)).into_iter().collect();
                    assert_eq!((log.landed, log.frames), (back, vec![]));
                    continue;
                }
                region.write(0, &[8; 120]);
                assert_eq!(led.whole(Peer(3), &mut log), 200);
                let right = [[7; 80].to_vec(), [8; 120].to_vec()].concat();
                match &log.target {
                    Some(target) => {
                        assert_eq!(target.as_slice()[..200], right);
                        assert_eq!((&log.landed[..], log.frames.len()), (&[Ok(())][..], 0));
                    }
                    None => assert_eq!((log.landed.len(), log.frames), (0, vec![right])),
                }
            }
        }
    }

    #[test]
    fn tags_differ_with_number_and_receiver() {
        let (one, other) = (0x1234_5678_9abc_0001, 0x4321_5678_9abc_0001);
        let mut all: Vec<u64> = (0..1000).flat_map(|n| [tag(one, n), tag(other, n)]).collect();
        all.extend([tag(one, u32::MAX), tag(other, u32::MAX)]);
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
