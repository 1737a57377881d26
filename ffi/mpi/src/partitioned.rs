//! Partitioned communication (MPI 5.0, chapter 4): a message whose parts are given one by one, and arrive one by one.
//!
//! The two sides meet in the order in which they were initialized (§4.2.1), not in that of their starts: `MPI_Psend_init` tells the
//! receiver which parts the sender has, and by which tags they come ([`hello`]); the k-th such word of a sender, tag and
//! communicator is for the k-th `MPI_Precv_init`. Each part is a message of its own as soon as it is ready, and its receive is
//! posted when the receiver starts: the receiver's parts may be others ([`Shape`]).
//!
//! All tags are apart from those of users; a revoke reaches them, the failure of a collective does not.

use crate::prelude::*;
use crate::process::Inside;
use crate::request::{After, Ended, Operation, Request, unknown};
use crate::{comm, data, p2p};
use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_coll::{PARTITION_TAGS, partition_tag, partitioned_tag};
use ironweave_pml::ob1::{
    Buffer, CommId, Mode, Pack, Payload, ReqId, Source, Started, TagMatch, Unpack,
};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// The parts of a message: so many of so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    parts: usize,
    bytes: usize,
}

impl Shape {
    /// The bytes of a part.
    fn range(self, part: usize) -> Range<usize> {
        part * self.bytes..(part + 1) * self.bytes
    }

    /// The parts that a part of another shape needs. Where there are no bytes, it is the same part, or all of them.
    fn parts_for(self, other: Shape, part: usize) -> Range<usize> {
        let range = other.range(part);
        match self.bytes {
            _ if self == other => part..part + 1,
            1.. if !range.is_empty() => {
                range.start / self.bytes..range.end.div_ceil(self.bytes).min(self.parts)
            }
            _ => 0..self.parts,
        }
    }

    /// All bytes.
    fn len(self) -> usize {
        self.parts.saturating_mul(self.bytes)
    }
}

/// What a sender tells when it initializes: its shape, and the number of its first part's tag. Three words of 8 bytes.
const HELLO: usize = 24;

fn hello(shape: Shape, first: u32) -> Vec<u8> {
    [shape.parts as u64, shape.bytes as u64, u64::from(first)].map(u64::to_le_bytes).concat()
}

/// Parts without bytes that a sender is believed to have, beyond as many as the receiver has: each is a receive to be posted.
const EMPTY_PARTS: usize = 1 << 16;

/// What a sender told, for a receiver of this shape.
///
/// # Errors
/// `MPI_ERR_TRUNCATE` when there is no room for it; `MPI_ERR_OTHER` when it cannot be true (law 9).
fn read_hello(bytes: &[u8], mine: Shape) -> Result<(Shape, u32)> {
    let wrong = || fail(MPI_ERR_OTHER, "what the sender tells of its partitions makes no sense");
    let words: Vec<u64> =
        bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let [parts, bytes, first] = words[..] else { return Err(wrong()) };
    let all = parts.checked_mul(bytes).ok_or_else(wrong)?;
    if all > mine.len() as u64 {
        let text = format!("{all} bytes are sent, and there is room for {}", mine.len());
        return Err(fail(MPI_ERR_TRUNCATE, text));
    }
    let tags = u64::from(PARTITION_TAGS);
    let empty = bytes == 0 && parts > mine.parts.max(EMPTY_PARTS) as u64;
    if empty || parts > tags || first > tags - parts {
        return Err(wrong());
    }
    Ok((Shape { parts: parts as usize, bytes: bytes as usize }, first as u32))
}

/// The numbers of tags that are in use for partitions sent over a communicator, and the next to be given.
#[derive(Debug, Default)]
pub struct Numbers {
    next: u32,
    used: Vec<Range<u32>>,
}

impl Numbers {
    /// `n` numbers in a row that nobody uses.
    fn take(&mut self, n: usize) -> Result<u32> {
        let n = u32::try_from(n).ok().filter(|n| *n <= PARTITION_TAGS);
        let n = n.ok_or_else(|| fail(MPI_ERR_ARG, "too many partitions"))?;
        // Each range in use, and the end of the circle, can be in the way once.
        for _ in 0..self.used.len() + 2 {
            if PARTITION_TAGS - self.next < n {
                self.next = 0;
            }
            let wanted = self.next..self.next + n;
            match self.used.iter().find(|used| used.start < wanted.end && wanted.start < used.end) {
                Some(used) => self.next = used.end % PARTITION_TAGS,
                None => {
                    self.next = wanted.end % PARTITION_TAGS;
                    self.used.push(wanted.clone());
                    return Ok(wanted.start);
                }
            }
        }
        Err(fail(MPI_ERR_OTHER, "too many partitions of this communicator are in use"))
    }

    fn give_back(&mut self, first: u32) {
        self.used.retain(|used| used.start != first);
    }
}

/// A range of the packed bytes of something with gaps.
struct PackPart {
    whole: Arc<dyn Pack>,
    range: Range<usize>,
}

impl Pack for PackPart {
    fn packed_len(&self) -> usize {
        self.range.len()
    }

    fn pack(&self, offset: usize, out: &mut [u8]) {
        self.whole.pack(self.range.start + offset, out);
    }

    fn regions(&self, range: Range<usize>) -> Option<SmallVec<[SendRegion; 2]>> {
        self.whole.regions(self.range.start + range.start..self.range.start + range.end)
    }
}

/// A range of the packed bytes of something with gaps, to receive into.
struct UnpackPart {
    whole: Box<dyn Unpack>,
    range: Range<usize>,
}

impl Unpack for UnpackPart {
    fn capacity(&self) -> usize {
        self.range.len()
    }

    fn unpack(&mut self, offset: usize, packed: &[u8]) {
        self.whole.unpack(self.range.start + offset, packed);
    }

    fn region(&self, range: Range<usize>) -> Option<RecvRegion> {
        self.whole.region(self.range.start + range.start..self.range.start + range.end)
    }
}

/// The sending side.
struct Sender {
    payload: Payload,
    /// The number of the first part's tag.
    first: u32,
    /// The word to the receiver, while it is under way.
    hello: Option<ReqId>,
}

/// The receiving side.
struct Receiver {
    /// Address, elements, datatype.
    buf: usize,
    count: i64,
    datatype: MPI_Datatype,
    sender: Told,
    /// Where its word comes to.
    word: Box<[u8; HELLO]>,
}

/// What a receiver knows of its sender.
#[derive(Clone, Copy)]
enum Told {
    /// Its word is awaited.
    Awaited(ReqId),
    /// Its parts, and the number of the first one's tag.
    Parts(Shape, u32),
    /// Nothing can be received any more: with this code its word ended, or could not be true.
    Never(c_int),
}

/// Which side of it this is.
enum Side {
    Send(Sender),
    Receive(Receiver),
}

/// Where a part of a run stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Not given by the user; not posted.
    Missing,
    /// The message is under way.
    UnderWay(ReqId),
    /// It is out; it has arrived.
    Done,
}

/// Where a run stands.
enum Run {
    /// Not started, or over.
    Idle,
    /// So many parts are not done.
    Active { parts: Vec<Part>, left: usize, error: Option<Fail> },
    /// It is over, and nobody has asked.
    Over(Option<Ended>),
}

struct Partitioned {
    /// The communicator, which may be freed before this.
    comm: MPI_Comm,
    p2p: CommId,
    /// `None`: `MPI_PROC_NULL`.
    peer: Option<u32>,
    tag: c_int,
    /// This side's.
    shape: Shape,
    side: Side,
    run: Run,
}

impl Partitioned {
    /// Sends a part that is ready.
    fn send(&mut self, inside: &mut Inside, part: usize) -> Result<()> {
        let (Side::Send(sender), Some(peer)) = (&self.side, self.peer) else { return Ok(()) };
        let Run::Active { parts, left, .. } = &mut self.run else { return Ok(()) };
        let range = self.shape.range(part);
        let payload = match &sender.payload {
            Payload::Contiguous(region) => Payload::Contiguous(region.part(range)),
            Payload::Convertor(whole) => {
                Payload::Convertor(Arc::new(PackPart { whole: Arc::clone(whole), range }))
            }
            other => other.clone(),
        };
        let (p2p, tag) = (self.p2p, partition_tag(sender.first + part as u32));
        let sent =
            inside.engine.resolving(|pml| pml.send(p2p, Mode::Standard, &payload, peer, tag))?;
        parts[part] = match sent {
            Started::Done => {
                *left -= 1;
                Part::Done
            }
            Started::Pending(id) => Part::UnderWay(id),
        };
        Ok(())
    }

    /// Posts the receives of a run, once the sender has told its parts.
    fn post(&mut self, inside: &mut Inside) -> Result<()> {
        let (Side::Receive(receiver), Some(peer)) = (&mut self.side, self.peer) else {
            return Ok(());
        };
        let Run::Active { parts, left, .. } = &mut self.run else { return Ok(()) };
        if !parts.is_empty() {
            return Ok(());
        }
        if let Told::Awaited(id) = receiver.sender {
            let Some(ended) = inside.engine.poll(id) else { return Ok(()) };
            let told = ended.map_err(Fail::from).and_then(|status| {
                read_hello(&receiver.word[..status.bytes.min(HELLO)], self.shape)
            });
            receiver.sender = match &told {
                Ok((shape, first)) => Told::Parts(*shape, *first),
                Err(why) => Told::Never(why.code()),
            };
            told?;
        }
        let (shape, first) = match receiver.sender {
            Told::Parts(shape, first) => (shape, first),
            Told::Awaited(_) => return Ok(()),
            Told::Never(code) => return Err(fail(code, "the sender's parts were never known")),
        };
        (*parts, *left) = (vec![Part::Missing; shape.parts], shape.parts);
        for (part, at) in parts.iter_mut().enumerate() {
            let (buf, range) = (receiver.buf, shape.range(part));
            let buf = std::ptr::with_exposed_provenance_mut(buf);
            // SAFETY: the caller's buffer, which is the library's while the request is active; parts do not overlap.
            let into = match unsafe { data::buffer(buf, receiver.count, receiver.datatype)? } {
                Buffer::Contiguous(region) => Buffer::Contiguous(region.part(range)),
                Buffer::Convertor(whole) => {
                    Buffer::Convertor(Box::new(UnpackPart { whole, range }))
                }
                other => other,
            };
            let tag = TagMatch::Tag(partition_tag(first + part as u32));
            let id = inside.engine.pml.recv(self.p2p, into, Source::Rank(peer), tag)?;
            *at = Part::UnderWay(id);
        }
        Ok(())
    }

    /// Looks what has ended.
    fn advance(&mut self, inside: &mut Inside) {
        let posted = self.post(inside);
        let told = match &mut self.side {
            Side::Send(Sender { hello, .. }) => match hello.map(|id| inside.engine.poll(id)) {
                Some(None) => false,
                Some(Some(ended)) => {
                    *hello = None;
                    if let (Err(why), Run::Active { error, .. }) = (ended, &mut self.run) {
                        error.get_or_insert(why.into());
                    }
                    true
                }
                None => true,
            },
            Side::Receive(receiver) => !matches!(receiver.sender, Told::Awaited(_)),
        };
        let Run::Active { parts, left, error } = &mut self.run else { return };
        if let Err(why) = posted {
            error.get_or_insert(why);
        }
        let mut under_way = 0;
        for part in parts.iter_mut() {
            let Part::UnderWay(id) = *part else { continue };
            match inside.engine.poll(id) {
                Some(ended) => {
                    (*part, *left) = (Part::Done, *left - 1);
                    if let Err(why) = ended {
                        error.get_or_insert(why.into());
                    }
                }
                None => under_way += 1,
            }
        }
        // After an error nothing more is sent; what is under way is waited for (law 2).
        let failed = error.is_some() && under_way == 0;
        if failed || told && *left == 0 {
            let status = self.status();
            let Run::Active { error, .. } = &mut self.run else { return };
            let result = error.take().map_or(Ok(()), Err);
            self.run = Run::Over(Some(Ended { result, ..Ended::well(status) }));
        }
    }

    /// What a run that went well tells.
    fn status(&self) -> MPI_Status {
        match (&self.side, self.peer) {
            (_, None) => MPI_Status::NO_PROC,
            (Side::Send(_), _) => MPI_Status::EMPTY,
            (Side::Receive(receiver), Some(source)) => {
                let Told::Parts(shape, _) = receiver.sender else { return MPI_Status::EMPTY };
                let bytes = shape.len();
                ironweave_pml::ob1::Status { source, tag: self.tag, bytes }.into()
            }
        }
    }

    fn part(&self, partition: c_int) -> Result<usize> {
        let part = usize::try_from(partition).ok().filter(|&part| part < self.shape.parts);
        let all = self.shape.parts;
        part.ok_or_else(|| fail(MPI_ERR_ARG, format!("partition {partition}, and there are {all}")))
    }

    fn ready(&mut self, inside: &mut Inside, partition: c_int) -> Result<()> {
        let part = self.part(partition)?;
        if !matches!(self.side, Side::Send(_)) {
            return Err(fail(MPI_ERR_REQUEST, "it is no partitioned send"));
        }
        match &mut self.run {
            Run::Idle => Err(fail(MPI_ERR_REQUEST, "the partitioned send is not active")),
            // To nobody, or it has failed: the parts go nowhere.
            Run::Over(_) => Ok(()),
            Run::Active { parts, .. } if parts[part] != Part::Missing => {
                Err(fail(MPI_ERR_ARG, format!("partition {partition} was ready before")))
            }
            Run::Active { .. } => self.send(inside, part),
        }
    }

    /// Whether a part of the receiver's has arrived.
    fn arrived(&mut self, inside: &mut Inside, partition: c_int) -> Result<bool> {
        let part = self.part(partition)?;
        let Side::Receive(_) = &self.side else {
            return Err(fail(MPI_ERR_REQUEST, "it is no partitioned receive"));
        };
        if matches!(self.run, Run::Active { .. }) {
            inside.engine.progress();
            self.advance(inside);
        }
        let Side::Receive(receiver) = &self.side else { return Ok(false) };
        Ok(match (&self.run, receiver.sender) {
            // Before and after a run nothing is missing (§4.2.2).
            (Run::Idle | Run::Over(_), _) => true,
            (Run::Active { parts, .. }, Told::Parts(shape, _)) => {
                let needed = shape.parts_for(self.shape, part);
                parts.get(needed).is_some_and(|all| all.iter().all(|part| *part == Part::Done))
            }
            (Run::Active { .. }, Told::Awaited(_) | Told::Never(_)) => false,
        })
    }
}

impl Operation for Partitioned {
    fn poll(&mut self, inside: &mut Inside) -> Option<Ended> {
        self.advance(inside);
        let Run::Over(ended) = &mut self.run else { return None };
        let ended = ended.take();
        self.run = Run::Idle;
        ended
    }

    fn start(&mut self, inside: &mut Inside) -> Result<()> {
        if self.peer.is_none() {
            self.run = Run::Over(Some(Ended::well(self.status())));
            return Ok(());
        }
        let (parts, left) = match &self.side {
            Side::Send(_) => (vec![Part::Missing; self.shape.parts], self.shape.parts),
            // Not known before the sender has told.
            Side::Receive(_) => (Vec::new(), 0),
        };
        self.run = Run::Active { parts, left, error: None };
        let Err(why) = self.post(inside) else { return Ok(()) };
        match &mut self.run {
            // What is posted has the user's memory: the run has to be waited for (law 2).
            Run::Active { parts, error, .. } if parts.iter().any(|part| *part != Part::Missing) => {
                *error = Some(why);
                Ok(())
            }
            run => {
                *run = Run::Idle;
                Err(why)
            }
        }
    }

    fn is_persistent(&self) -> bool {
        true
    }

    fn is_chore(&self) -> bool {
        // Whatever else the process waits for, the receives are posted when the sender has told its parts.
        matches!(&self.side, Side::Receive(Receiver { sender: Told::Awaited(_), .. }))
    }

    fn free(mut self: Box<Self>, inside: &mut Inside) -> Result<Option<After>> {
        if let Run::Active { parts, .. } = &self.run {
            for part in parts {
                if let Part::UnderWay(id) = part {
                    inside.engine.pml.request_free(*id);
                }
            }
        }
        match &mut self.side {
            Side::Send(sender) => {
                if let Some(there) = comm::find(self.comm) {
                    there.state().partitions.give_back(sender.first);
                }
                if let Some(id) = sender.hello.take() {
                    inside.engine.pml.request_free(id);
                }
            }
            Side::Receive(receiver) => {
                if let Told::Awaited(id) = receiver.sender {
                    inside.engine.pml.request_free(id);
                    // The word may still come.
                    std::mem::forget(self);
                }
            }
        }
        Ok(None)
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// Partitions and the elements of all of them.
fn total(partitions: c_int, count: MPI_Count) -> Result<(usize, i64)> {
    let n = crate::count::count("partitions", partitions)
        .map_err(|error| error.recoded(MPI_ERR_ARG))?;
    if count < 0 {
        return Err(fail(MPI_ERR_COUNT, format!("count is {count}, which is negative")));
    }
    let all = count.checked_mul(i64::from(partitions));
    Ok((n, all.ok_or_else(|| fail(MPI_ERR_COUNT, "the counts overflow"))?))
}

fn peer(rank: c_int, there: &comm::Comm) -> Result<Option<u32>> {
    match u32::try_from(rank) {
        Ok(rank) if rank < there.peers() => Ok(Some(rank)),
        Err(_) if rank == MPI_PROC_NULL => Ok(None),
        _ => Err(p2p::wrong_rank("other rank", rank, there)),
    }
}

fn user_tag(tag: c_int) -> Result<c_int> {
    match p2p::matching(tag)? {
        TagMatch::Tag(tag) => Ok(tag),
        TagMatch::Any => Err(fail(MPI_ERR_TAG, "partitioned operations need a tag")),
    }
}

/// Runs `with` on a partitioned request; `over` is for one whose end was seen.
fn find<R>(
    handle: MPI_Request,
    over: impl FnOnce() -> Result<R>,
    with: impl FnOnce(&mut Partitioned, &mut Inside) -> Result<R>,
) -> Result<R> {
    let mut inside = process::enter()?;
    if handle == MPI_REQUEST_NULL {
        return Err(unknown(handle));
    }
    let (place, comm) = inside.requests.get(handle)?;
    let mut request = std::mem::replace(place, Request::Out);
    let foreign = || fail(MPI_ERR_REQUEST, "it is no partitioned request");
    let answer = match &mut request {
        Request::Other(operation, _) => {
            let operation = operation.as_any();
            if let Some(found) = operation.downcast_mut::<Partitioned>() {
                with(found, &mut inside)
            } else if crate::request::is_over(operation) {
                over()
            } else {
                Err(foreign())
            }
        }
        _ => Err(foreign()),
    };
    *inside.requests.get(handle)?.0 = request;
    answer.map_err(|error| error.on(comm))
}

/// Marks partitions as ready.
fn ready(request: MPI_Request, partitions: impl Iterator<Item = c_int>) -> Result<()> {
    let mut partitions = partitions;
    let over = || Ok(());
    find(request, over, |found, inside| partitions.try_for_each(|part| found.ready(inside, part)))
}

fn insert(
    inside: &mut Inside,
    comm: MPI_Comm,
    made: Partitioned,
    request: *mut MPI_Request,
) -> Result<()> {
    let made = inside.requests.insert(comm, Request::Other(Box::new(made), false));
    // SAFETY: the caller's result.
    unsafe { request.write(made) };
    Ok(())
}

mpi! {
    fn MPI_Psend_init(buf: *const c_void, partitions: c_int, count: MPI_Count, datatype: MPI_Datatype, dest: c_int, tag: c_int, comm: MPI_Comm, _info: MPI_Info, request: *mut MPI_Request) on comm {
        let there = comm::get(comm)?;
        let (parts, all) = total(partitions, count)?;
        // SAFETY: the caller's buffer, which is the library's while the request is active.
        let payload = unsafe { data::payload(buf, all, datatype)? };
        let shape = Shape { parts, bytes: payload.len() / parts.max(1) };
        let (peer, tag) = (peer(dest, there)?, user_tag(tag)?);
        let first = there.state().partitions.take(parts)?;
        let mut inside = process::enter()?;
        let mut sender = Sender { payload, first, hello: None };
        if let Some(peer) = peer {
            let (word, to) = (Payload::owned(hello(shape, first)), partitioned_tag(tag));
            let sent = inside.engine.resolving(|pml| pml.send(there.p2p, Mode::Standard, &word, peer, to));
            match sent.inspect_err(|_| there.state().partitions.give_back(first))? {
                Started::Done => {}
                Started::Pending(id) => sender.hello = Some(id),
            }
        }
        let made = Partitioned { comm, p2p: there.p2p, peer, tag, shape, side: Side::Send(sender), run: Run::Idle };
        insert(&mut inside, comm, made, request)
    }

    fn MPI_Precv_init(buf: *mut c_void, partitions: c_int, count: MPI_Count, datatype: MPI_Datatype, source: c_int, tag: c_int, comm: MPI_Comm, _info: MPI_Info, request: *mut MPI_Request) on comm {
        let there = comm::get(comm)?;
        let (parts, all) = total(partitions, count)?;
        // SAFETY: not used beyond its capacity.
        let len = unsafe { data::buffer(buf, all, datatype)? }.capacity();
        let shape = Shape { parts, bytes: len / parts.max(1) };
        let (peer, tag) = (peer(source, there)?, user_tag(tag)?);
        let mut inside = process::enter()?;
        let mut receiver = Receiver { buf: buf.expose_provenance(), count: all, datatype, sender: Told::Never(MPI_ERR_RANK), word: Box::new([0; HELLO]) };
        if let Some(peer) = peer {
            // SAFETY: it goes when the word has come, or not at all.
            let into = unsafe { RecvRegion::new(receiver.word.as_mut_ptr(), HELLO) };
            let from = (Source::Rank(peer), TagMatch::Tag(partitioned_tag(tag)));
            receiver.sender = Told::Awaited(inside.engine.pml.recv(there.p2p, Buffer::Contiguous(into), from.0, from.1)?);
        }
        let made = Partitioned { comm, p2p: there.p2p, peer, tag, shape, side: Side::Receive(receiver), run: Run::Idle };
        insert(&mut inside, comm, made, request)
    }

    fn MPI_Pready(partition: c_int, request: MPI_Request) on none {
        ready(request, std::iter::once(partition))
    }

    fn MPI_Pready_range(partition_low: c_int, partition_high: c_int, request: MPI_Request) on none {
        ready(request, partition_low..=partition_high)
    }

    fn MPI_Pready_list(length: c_int, partitions: *const c_int, request: MPI_Request) on none {
        let n = crate::count::count("length", length).map_err(|error| error.recoded(MPI_ERR_ARG))?;
        // SAFETY: the caller's array.
        ready(request, (0..n).map(|at| unsafe { *partitions.add(at) }))
    }

    fn MPI_Parrived(request: MPI_Request, partition: c_int, flag: *mut c_int) on none {
        let arrived = find(request, || Ok(true), |found, inside| found.arrived(inside, partition))?;
        // SAFETY: the caller's result.
        unsafe { flag.write(c_int::from(arrived)) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sender_tells_is_believed_within_reason() {
        let mine = Shape { parts: 4, bytes: 25 };
        let told = |parts, bytes, first| {
            read_hello(&hello(Shape { parts, bytes }, first), mine).map_err(|error| error.code())
        };
        for (parts, bytes, first) in [(4, 25, 0), (100, 1, 7), (1, 0, 0), (0, 100, PARTITION_TAGS)]
        {
            assert_eq!(told(parts, bytes, first), Ok((Shape { parts, bytes }, first)));
        }
        assert_eq!(told(4, 26, 0), Err(MPI_ERR_TRUNCATE));
        for (parts, bytes, first) in [
            (usize::MAX, 2, 0),
            (usize::MAX, 0, 0),
            (EMPTY_PARTS + 1, 0, 0),
            (4, 25, u32::MAX),
            (4, 25, PARTITION_TAGS - 3),
        ] {
            assert_eq!(told(parts, bytes, first), Err(MPI_ERR_OTHER), "{parts} {bytes} {first}");
        }
        let short = &hello(mine, 0)[..HELLO - 1];
        assert_eq!(read_hello(short, mine).map_err(|error| error.code()), Err(MPI_ERR_OTHER));
    }

    #[test]
    fn numbers_in_use_are_not_given_again() {
        let mut numbers = Numbers::default();
        let (first, second) = (numbers.take(3).unwrap(), numbers.take(5).unwrap());
        assert_eq!((first, second), (0, 3));
        numbers.next = PARTITION_TAGS - 2;
        assert_eq!(numbers.take(2).unwrap(), PARTITION_TAGS - 2);
        assert_eq!(numbers.take(1).unwrap(), 8, "the circle begins again behind what is in use");
        numbers.give_back(first);
        numbers.next = 0;
        assert_eq!(numbers.take(3).unwrap(), 0);
        assert!(numbers.take(PARTITION_TAGS as usize).is_err());
    }
}
