//! What comes in on one connection: frames cut out of the stream and handed to the sink.
//!
//! Small frames are read many at a time into the rail's staging memory and delivered from there. A long payload
//! that is still on its way is offered to the sink first, and read straight to where the sink wants it, together
//! with the beginning of the next frames in the same call.

use crate::errno::{Call, Class, classify};
use crate::raw::read_into;
use crate::wire::{Decoder, Malformed, Step};
use ironweave_btl::memory::RecvRegion;
use ironweave_btl::{Counters, Fault, Header, Landing, Peer, Sink, Token, copy};
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, IoSliceMut, readv};
use rustix::net::{RecvFlags, recv};

/// Length of the staging memory of a rail, in bytes: the longest eager frame and some more.
pub const STAGING: usize = 80 << 10;
/// Bytes read ahead beyond a long payload, and at the beginning of a frame that is probably long: what is read
/// of a long payload in this way has to be copied.
const LEAD: usize = 4 << 10;
/// Payloads up to this length are always put together in transport memory.
const SMALL: usize = 4 << 10;
/// After payloads of this length and more, only the beginning of the next frame is read to staging memory: a second call for the rest
/// costs more than the copy of anything shorter. Measured over loopback in turns, copied against read in two calls: 64 KiB 17
/// against 21 µs on a Zen 4 core; 32 KiB 9.7 against 9.3 and 64 KiB 17.0 against 16.2 on a Xeon of the fifth generation, whose copies take
/// longer, and 24 KiB 8.1 against 8.3.
fn long_from() -> usize {
    if copy::is_amd() { (64 << 10) + 1 } else { 32 << 10 }
}

/// Why no more can come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// The peer said good-bye.
    Bye,
    /// The stream ended without a good-bye.
    Eof,
    /// The call failed.
    Errno(Errno),
    /// Not our framing.
    Malformed(&'static str),
}

/// What one pump did.
#[derive(Debug)]
pub struct Pumped {
    /// Reports made.
    pub reports: usize,
    /// Bytes that came.
    pub bytes: usize,
    /// Nothing can come any more.
    pub end: Option<End>,
}

#[derive(Debug, Default)]
enum Body {
    /// Between frames, or inside a prefix or header.
    #[default]
    None,
    /// A payload goes to memory of ours.
    Buffered { header: Header, payload: Vec<u8>, filled: usize },
    /// A payload goes where the sink wanted it.
    Direct { region: RecvRegion, token: Token, filled: usize, len: usize },
}

/// The incoming half of one connection.
#[derive(Debug, Default)]
pub struct Inbound {
    /// The beginning of a frame that did not come whole yet.
    carry: Vec<u8>,
    body: Body,
    /// The last frame was long: read only the beginning of the next one to staging memory.
    long: bool,
}

/// Where reports go, with what they need: one argument instead of four.
pub struct Delivery<'a, S> {
    pub from: Peer,
    pub sink: &'a mut S,
    pub counters: &'a Counters,
}

impl<S: Sink> Delivery<'_, S> {
    fn frame(&mut self, header: &[u8], payload: &[u8]) {
        self.count(payload.len());
        self.sink.frame(self.from, header, payload);
    }

    fn count(&self, len: usize) {
        self.counters.frames_received.add(1);
        self.counters.bytes_received.add(len as u64);
    }
}

impl Inbound {
    /// Reads and delivers until the socket is empty, or a little more than `budget` bytes came.
    pub fn pump<S: Sink>(
        &mut self,
        socket: BorrowedFd<'_>,
        staging: &mut [u8],
        budget: usize,
        to: &mut Delivery<'_, S>,
    ) -> Pumped {
        let mut pumped = Pumped { reports: 0, bytes: 0, end: None };
        while pumped.bytes < budget {
            let (came, wanted) = match self.read(socket, staging) {
                Ok(read) => read,
                Err(errno) => match classify(Call::Receive, errno) {
                    Class::Again => continue,
                    Class::Later => break,
                    Class::Lost(..) => {
                        pumped.end = Some(End::Errno(errno));
                        break;
                    }
                },
            };
            if came == 0 {
                pumped.end = Some(End::Eof);
                break;
            }
            pumped.bytes += came;
            match self.take(came, wanted, staging, to) {
                Ok((reports, end)) => {
                    pumped.reports += reports;
                    pumped.end = end;
                }
                Err(Malformed(what)) => pumped.end = Some(End::Malformed(what)),
            }
            if pumped.end.is_some() || came < wanted {
                break;
            }
        }
        pumped
    }

    /// One read; how many bytes came, and how many could have.
    fn read(
        &mut self,
        socket: BorrowedFd<'_>,
        staging: &mut [u8],
    ) -> Result<(usize, usize), Errno> {
        match &mut self.body {
            Body::None => {
                let start = self.carry.len();
                staging[..start].copy_from_slice(&self.carry);
                let end = if self.long { start + LEAD } else { staging.len() };
                let space = &mut staging[start..end];
                let wanted = space.len();
                recv(socket, space, RecvFlags::DONTWAIT).map(|(_, came)| (came, wanted))
            }
            Body::Buffered { payload, filled, .. } => {
                let rest = &mut payload[*filled..];
                let wanted = rest.len() + LEAD;
                let ahead = IoSliceMut::new(&mut staging[..LEAD]);
                readv(socket, &mut [IoSliceMut::new(rest), ahead]).map(|came| (came, wanted))
            }
            Body::Direct { region, filled, len, .. } => {
                let wanted = *len - *filled + LEAD;
                read_into(socket, region, *filled, *len, &mut staging[..LEAD])
                    .map(|came| (came, wanted))
            }
        }
    }

    /// Hands on what one read brought.
    fn take<S: Sink>(
        &mut self,
        came: usize,
        wanted: usize,
        staging: &[u8],
        to: &mut Delivery<'_, S>,
    ) -> Result<(usize, Option<End>), Malformed> {
        let mut reports = 0;
        let ahead = match &mut self.body {
            Body::None => {
                let all = self.carry.len() + came;
                self.carry.clear();
                self.long &= came < wanted; // a full read of small frames: there are many, read more at once
                all
            }
            Body::Buffered { payload, filled, .. } => {
                let part = came.min(payload.len() - *filled);
                *filled += part;
                if *filled < payload.len() {
                    return Ok((0, None));
                }
                came - part
            }
            Body::Direct { filled, len, .. } => {
                let part = came.min(*len - *filled);
                *filled += part;
                if *filled < *len {
                    return Ok((0, None));
                }
                came - part
            }
        };
        match std::mem::take(&mut self.body) {
            Body::None => {}
            Body::Buffered { header, payload, .. } => {
                to.frame(header.as_bytes(), &payload);
                reports += 1;
            }
            Body::Direct { region, token, len, .. } => {
                to.count(len);
                to.sink.landed(to.from, region, token, Ok(()));
                reports += 1;
            }
        }
        let (more, end) = self.cut(&staging[..ahead], to)?;
        Ok((reports + more, end))
    }

    /// Delivers the whole frames in `bytes` and keeps what is left.
    fn cut<S: Sink>(
        &mut self,
        bytes: &[u8],
        to: &mut Delivery<'_, S>,
    ) -> Result<(usize, Option<End>), Malformed> {
        let mut decoder = Decoder::new(bytes);
        let mut reports = 0;
        loop {
            let before = decoder.rest();
            match decoder.step()? {
                Step::Frame { header, payload } => {
                    self.long = payload.len() >= long_from();
                    to.frame(header, payload);
                    reports += 1;
                }
                Step::Started { payload_len, .. } if payload_len <= SMALL => {
                    self.carry.extend_from_slice(before);
                    return Ok((reports, None));
                }
                Step::Started { header, payload_len, staged } => {
                    self.long = payload_len >= long_from();
                    self.begin(header, payload_len, staged, to);
                    return Ok((reports, None));
                }
                Step::Bye => return Ok((reports, Some(End::Bye))),
                Step::Short => {
                    self.carry.extend_from_slice(before);
                    return Ok((reports, None));
                }
            }
        }
    }

    /// A long payload begins: asks where it shall go.
    fn begin<S: Sink>(
        &mut self,
        header: &[u8],
        len: usize,
        staged: &[u8],
        to: &mut Delivery<'_, S>,
    ) {
        let filled = staged.len();
        self.body = match to.sink.landing(to.from, header, len) {
            Landing::Buffered => {
                let mut payload = vec![0; len];
                payload[..filled].copy_from_slice(staged);
                Body::Buffered { header: Header::new(header), payload, filled }
            }
            Landing::Direct { region, token } => {
                assert!(region.len() >= len, "a landing of {} bytes for {len}", region.len());
                region.write(0, staged);
                Body::Direct { region, token, filled, len }
            }
        };
    }

    /// Gives back a region that will not be filled any more, and forgets what came in part.
    pub fn purge<S: Sink>(&mut self, fault: &Fault, to: &mut Delivery<'_, S>) -> usize {
        self.carry.clear();
        match std::mem::take(&mut self.body) {
            Body::Direct { region, token, .. } => {
                to.sink.landed(to.from, region, token, Err(fault.clone()));
                1
            }
            Body::None | Body::Buffered { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(unsafe_code)] // regions of a buffer that outlives them

    use super::*;
    use crate::wire::{bye, data_prefix};
    use ironweave_btl::memory::OwnedBuffer;
    use ironweave_btl::{Descriptor, RmaDescriptor};
    use proptest::prelude::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    /// Lands every other long payload in `target`.
    struct Log {
        frames: Vec<(Vec<u8>, Vec<u8>)>,
        target: OwnedBuffer,
        landing: Vec<u8>,
        asked: usize,
    }

    impl Sink for Log {
        fn frame(&mut self, _: Peer, header: &[u8], payload: &[u8]) {
            self.frames.push((header.to_vec(), payload.to_vec()));
        }

        fn landing(&mut self, _: Peer, header: &[u8], len: usize) -> Landing {
            self.asked += 1;
            if self.asked.is_multiple_of(2) {
                return Landing::Buffered;
            }
            self.landing = header.to_vec();
            // SAFETY: `target` outlives the test's connection; one landing at a time is under way.
            let region = unsafe { self.target.recv_region() }.part(0..len);
            Landing::Direct { region, token: Token(len as u64) }
        }

        fn landed(
            &mut self,
            _: Peer,
            region: RecvRegion,
            token: Token,
            outcome: Result<(), Fault>,
        ) {
            assert_eq!((region.len() as u64, outcome), (token.0, Ok(())));
            self.frames.push((std::mem::take(&mut self.landing), region.to_vec()));
        }

        fn completed(&mut self, _: Descriptor, _: Result<(), Fault>) {}
        fn rma_completed(&mut self, _: RmaDescriptor, _: Result<(), Fault>) {}
        fn up(&mut self, _: Peer) {}
        fn fault(&mut self, _: Fault) {}
        fn closed(&mut self, _: Peer) {}
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// However the stream is cut into pieces, the frames are the same.
        #[test]
        fn pieces_do_not_matter(
            frames in proptest::collection::vec(
                (0..=64_usize, prop_oneof![0..64_usize, 3_000..9_000_usize, 60_000..200_000_usize], any::<u8>()),
                1..12,
            ),
            cuts in proptest::collection::vec(prop_oneof![1..20_usize, 1_000..100_000_usize], 1..40),
        ) {
            let (mut writer, reader) = UnixStream::pair().expect("a pair");
            reader.set_nonblocking(true).expect("as a connection's socket is");
            let frames: Vec<(Vec<u8>, Vec<u8>)> = frames
                .into_iter()
                .map(|(header, len, seed)| {
                    let byte = |at: usize| (at / 251) as u8 ^ (at as u8) ^ seed;
                    ((0..header).map(byte).collect(), (0..len).map(byte).collect())
                })
                .collect();
            let mut stream = Vec::new();
            for (header, payload) in &frames {
                stream.extend(data_prefix(header.len(), payload.len()));
                stream.extend(header);
                stream.extend(payload);
            }
            stream.extend(bye());
            let mut log = Log {
                frames: Vec::new(),
                target: OwnedBuffer::zeroed(200_000),
                landing: Vec::new(),
                asked: 0,
            };
            let counters = Counters::default();
            let (mut inbound, mut staging) = (Inbound::default(), vec![0; STAGING]);
            let (mut rest, mut cuts) = (&stream[..], cuts.iter().cycle());
            let mut end = None;
            while end.is_none() {
                let cut = cuts.next().map_or(1, |cut| (*cut).min(rest.len()));
                writer.write_all(&rest[..cut]).expect("the buffer has room");
                rest = &rest[cut..];
                let mut to = Delivery { from: Peer(0), sink: &mut log, counters: &counters };
                end = inbound.pump(reader.as_fd(), &mut staging, usize::MAX, &mut to).end;
            }
            prop_assert_eq!(end, Some(End::Bye));
            prop_assert!(rest.is_empty());
            prop_assert!(log.frames == frames);
            prop_assert_eq!(counters.frames_received.get(), frames.len() as u64);
        }
    }
}
