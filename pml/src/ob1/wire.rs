//! The frames of OB1, version 1: every layout in one place, and the decoder that believes nothing (law 9). Long, because one
//! file for each protocol is the rule.
//!
//! All integers are little-endian. A request is named on the wire by a token (slot and generation), never by a
//! pointer. What follows a header is the frame's payload.
//!
//! ```text
//!            0      1      2        4        6        8                12               16
//!  MATCH     | kind | flags|  cid   | epoch  |  seq   |    source      |      tag       |             16 bytes
//!            |  payload: the whole message
//!                                                                     16               24              32
//!  RNDV      |  MATCH, 16 bytes                                        |     length     |  sender token |
//!            |  payload: the first bytes of the message (all of them: a synchronous send)
//!            |  with WITHDRAW: that message, announced before, is to be dropped and answered by a NACK, unless it has matched
//!  STREAM    |  as RNDV; payload: the first bytes; the rest follows as FRAGs on the same rail without ACK
//!  RGET      |  as RNDV; payload: the key of the whole message, registered for the receiver to read
//!
//!            0      1      2           4          8               16               24            32       40
//!  ACK       | kind | flags|round | rail | zero  | sender token  | receiver token | offset      | length | want |
//!            |  48 bytes: send the bytes offset..offset+length as FRAGs. `want` is how many bytes of the message, counting
//!            |  those that came with it, the receiver takes in all: less than its length when it truncates. `round`
//!            |  counts the restarts of the message. With UNREAD no read of the message was begun
//!  RNDVRESTARTACK  as ACK: the receiver has forgotten what it had; send everything, in the next round
//!  PUT       |  as ACK; payload: the key of memory registered for the sender to write those bytes to, over the sender's rail
//!            |  number `rail` - 1 (0: the rail that the frame came over)
//!
//!            0      1      2           4          8               16               24
//!  FRAG      | kind | flags|round |      zero    | token         | offset         |                24 bytes
//!            |  token: the receiver's, or with EAGER the stream's; payload: the bytes at offset
//!
//!            0      1      2           4          8               16               24
//!  FIN       | kind | flags|status|round| zero   | token         | offset         | length     |   32 bytes
//!            |  with TO_SENDER: the message was read (RGET), or has arrived whole (CONFIRM); else the bytes offset..offset+length were written (PUT)
//!
//!            0      1      2           4          8               16
//!  NACK      | kind | flags| status    |   zero   | token         |                                 16 bytes
//!            |  the request named is over, without data: revoked, lost, stale
//!
//!            0      1      2      4       8               16               24
//!  RNDVRESTARTNOTIFY, RECVERRNOTIFY, RNDVRESTARTNACK (seed 002 §8)
//!            | kind | flags|round |  zero | sender token  | receiver token |                24 bytes
//!            |  to the receiver: parts were lost with a rail, begin again; to the sender: parts were lost here; to the
//!            |  sender: nothing is missing here
//!
//!            0      1      2           4          8               16               24
//!  CONTROL   | kind | flags|  zero     |   zero   | offset        | ack            | limit      |   32 bytes
//!            |  payload: a piece of the control stream at offset. Of the stream the other way, `ack` bytes have arrived
//!            |  and `limit` may be sent; with AGAIN, those from `ack` on are wanted again
//! ```
//!
//! What rails that can be lost need beneath all this (numbers, acknowledgements, frames in pieces) is in [`link`](super::link).

use super::link::{LINK, Link, LinkHeader, Piece, SPLIT, SplitHeader};
use super::slots::Key;
use zerocopy::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Version of these layouts, the high half of each kind byte.
pub const VERSION: u8 = 1;
/// Longest message: offsets plus lengths never overflow, also on the wire.
pub const LENGTH_MAX: u64 = 1 << 56;

/// Longest message in a STREAM: the receiver may have to keep it, so a sender must not choose the size alone.
pub const STREAM_MAX: u64 = 4 << 20;

const fn kind(number: u8) -> u8 {
    VERSION << 4 | number
}

/// Kind bytes.
pub mod kinds {
    use super::kind;
    /// An eager message of one frame.
    pub const MATCH: u8 = kind(1);
    /// The announcement of a message that needs an answer.
    pub const RNDV: u8 = kind(2);
    /// The announcement of a message that the receiver reads.
    pub const RGET: u8 = kind(3);
    /// The receiver asks for fragments.
    pub const ACK: u8 = kind(4);
    /// A fragment.
    pub const FRAG: u8 = kind(5);
    /// The receiver asks for a write.
    pub const PUT: u8 = kind(6);
    /// A read or write is done.
    pub const FIN: u8 = kind(7);
    /// A request is over without data.
    pub const NACK: u8 = kind(8);
    /// The sender asks to begin a rendezvous again.
    pub const RNDVRESTARTNOTIFY: u8 = kind(9);
    /// The receiver has lost parts of a rendezvous.
    pub const RECVERRNOTIFY: u8 = kind(10);
    /// The receiver is ready to begin again.
    pub const RNDVRESTARTACK: u8 = kind(11);
    /// The receiver has all it wanted.
    pub const RNDVRESTARTNACK: u8 = kind(12);
    /// A piece of the control stream.
    pub const CONTROL: u8 = kind(14);
    /// An eager message of several frames.
    pub const STREAM: u8 = kind(13);
}

/// Flag of MATCH and STREAM: a ready send.
pub const READY: u8 = 1;
/// Flag of FRAG: the token names an eager stream.
pub const EAGER: u8 = 2;
/// Flag of FIN and NACK: the token names a send request.
pub const TO_SENDER: u8 = 4;

/// Flag of RNDV: a FIN is wanted when all has arrived; of a numbered MATCH: an acknowledgement is wanted soon.
pub const CONFIRM: u8 = 16;
/// Flag of CONTROL: what is not acknowledged is wanted again.
pub const AGAIN: u8 = 8;
/// Flag of RNDV: the message, announced before as RNDV or RGET, is cancelled.
pub const WITHDRAW: u8 = 64;
/// Flag of ACK: no read of the message was begun, so its source can be closed without more ado.
pub const UNREAD: u8 = 32;

/// How an operation that a FIN or NACK ends came out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum WireStatus {
    /// All bytes moved.
    Done = 0,
    /// The read or write was refused or failed; the memory is as good as before: use fragments.
    Failed = 1,
    /// The communicator is revoked.
    Revoked = 2,
    /// A rail was lost under the message.
    Lost = 3,
    /// The communicator does not exist here any more.
    Stale = 4,
    /// The communicator's collectives are interrupted.
    Interrupted = 5,
    /// A ready send found no receive.
    NotReady = 6,
    /// The send was cancelled, and had not matched.
    Withdrawn = 7,
}

impl WireStatus {
    const fn from_wire(word: u16) -> Option<Self> {
        Some(match word {
            0 => WireStatus::Done,
            1 => WireStatus::Failed,
            2 => WireStatus::Revoked,
            3 => WireStatus::Lost,
            4 => WireStatus::Stale,
            5 => WireStatus::Interrupted,
            6 => WireStatus::NotReady,
            7 => WireStatus::Withdrawn,
            _ => return None,
        })
    }
}

/// What a message is matched by.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Match {
    /// One of [`kinds`].
    pub kind: u8,
    /// [`READY`].
    pub flags: u8,
    /// Communicator id.
    pub cid: U16,
    /// Which life of that id (law 4).
    pub epoch: U16,
    /// Number of the message among those of this (communicator, source, destination).
    pub seq: U16,
    /// Sender's rank in the communicator.
    pub source: U32,
    /// Tag.
    pub tag: I32,
}

/// RNDV, RGET and STREAM.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Announce {
    /// As in MATCH.
    pub matching: Match,
    /// Length of the message in bytes.
    pub length: U64,
    /// The send request, or the stream.
    pub token: U64,
}

/// ACK and PUT.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Grant {
    /// One of [`kinds`].
    pub kind: u8,
    /// Of ACK: [`UNREAD`].
    pub flags: u8,
    /// Restarts of the message so far.
    pub round: U16,
    /// Of PUT: the sender's rail for the write plus one, or 0.
    pub rail: U16,
    /// Zero.
    pub zero: [u8; 2],
    /// The send request.
    pub sender: U64,
    /// The receive request.
    pub receiver: U64,
    /// Of the bytes asked for.
    pub offset: U64,
    /// Of the bytes asked for.
    pub length: U64,
    /// Bytes of the message taken in all.
    pub want: U64,
}

/// FRAG.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Frag {
    /// One of [`kinds`].
    pub kind: u8,
    /// [`EAGER`].
    pub flags: u8,
    /// Restarts of the message so far.
    pub round: U16,
    /// Zero.
    pub zero: [u8; 4],
    /// The receive request, or the stream.
    pub token: U64,
    /// Of the payload in the message.
    pub offset: U64,
}

/// FIN.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Fin {
    /// One of [`kinds`].
    pub kind: u8,
    /// [`TO_SENDER`].
    pub flags: u8,
    /// A [`WireStatus`].
    pub status: U16,
    /// Restarts of the message so far.
    pub round: U16,
    /// Zero.
    pub zero: [u8; 2],
    /// The request.
    pub token: U64,
    /// Of the bytes written.
    pub offset: U64,
    /// Of the bytes written.
    pub length: U64,
}

/// NACK.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Nack {
    /// One of [`kinds`].
    pub kind: u8,
    /// [`TO_SENDER`].
    pub flags: u8,
    /// A [`WireStatus`].
    pub status: U16,
    /// Zero.
    pub zero: [u8; 4],
    /// The request.
    pub token: U64,
}

/// RNDVRESTARTNOTIFY, RECVERRNOTIFY and RNDVRESTARTNACK.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Restart {
    /// One of [`kinds`].
    pub kind: u8,
    /// Zero.
    pub flags: u8,
    /// Restarts of the message so far.
    pub round: U16,
    /// Zero.
    pub zero: [u8; 4],
    /// The send request.
    pub sender: U64,
    /// The receive request.
    pub receiver: U64,
}

/// CONTROL.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Control {
    /// One of [`kinds`].
    pub kind: u8,
    /// [`AGAIN`].
    pub flags: u8,
    /// Zero.
    pub zero: [u8; 6],
    /// Of the payload in the stream.
    pub offset: U64,
    /// Bytes of the other direction that have arrived.
    pub ack: U64,
    /// Bytes of the other direction that may be sent.
    pub limit: U64,
}

const _: () = {
    assert!(size_of::<Match>() == 16);
    assert!(size_of::<Announce>() == 32);
    assert!(size_of::<Grant>() == 48);
    assert!(size_of::<Frag>() == 24);
    assert!(size_of::<Fin>() == 32);
    assert!(size_of::<Nack>() == 16);
    assert!(size_of::<Control>() == 32);
    assert!(size_of::<Restart>() == 24);
};

/// The envelope of a message, checked as far as it can be without knowing any communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// Communicator id.
    pub cid: u16,
    /// Its epoch.
    pub epoch: u16,
    /// Sequence number.
    pub seq: u16,
    /// Sender's rank.
    pub source: u32,
    /// Tag.
    pub tag: i32,
    /// A ready send.
    pub ready: bool,
}

/// A decoded frame. Lengths agree with each other and with the payload; tokens are only numbers yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "fields are named as in the pictures above")]
pub enum Frame {
    /// The payload is the message.
    Match(Envelope),
    /// The payload is the start of a message that needs an answer.
    Rndv { envelope: Envelope, length: u64, sender: u64 },
    /// An announced message is cancelled.
    Withdraw { envelope: Envelope, sender: u64 },
    /// The payload is the start of a message that goes on by itself.
    Stream { envelope: Envelope, length: u64, stream: u64 },
    /// The payload is the key of a message to read.
    Rget { envelope: Envelope, length: u64, sender: u64 },
    /// Fragments are asked for.
    Ack(Asked),
    /// A write is asked for; the payload is the key.
    Put(Asked),
    /// The payload belongs at `offset` of a receive.
    Frag { receiver: u64, offset: u64, round: u16 },
    /// The payload belongs at `offset` of a stream.
    StreamFrag { stream: u64, offset: u64 },
    /// The receiver has read the message.
    ReadDone { sender: u64, status: WireStatus },
    /// The sender has written a piece.
    WriteDone { receiver: u64, offset: u64, length: u64, round: u16, status: WireStatus },
    /// The send request is over.
    NackSender { sender: u64, status: WireStatus },
    /// The receive request is over.
    NackReceiver { receiver: u64, status: WireStatus },
    /// The payload belongs at an offset of the control stream.
    Control(PieceOf),
    /// Parts of the message were lost on the way: it is to begin again.
    RestartNotify(Dance),
    /// Parts of the message were lost at the receiver.
    RecvError(Dance),
    /// The receiver has forgotten what it had.
    RestartAck(Asked),
    /// Nothing is missing at the receiver.
    RestartNack(Dance),
    /// About rails.
    Link(Link),
    /// The payload is a piece of a frame.
    Split(Piece),
}

/// Whose restart it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dance {
    /// The send request.
    pub sender: u64,
    /// The receive request.
    pub receiver: u64,
    /// Restarts of the message so far.
    pub round: u16,
}

/// Where a piece of a control stream belongs, and what its sender says of the other direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PieceOf {
    /// Of the payload in the stream.
    pub offset: u64,
    /// Bytes of the other direction that have arrived.
    pub ack: u64,
    /// Bytes of the other direction that may be sent; at least `ack`.
    pub limit: u64,
    /// Those from `ack` on are wanted again.
    pub again: bool,
}

/// What a receiver asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// The send request.
    pub sender: u64,
    /// The receive request.
    pub receiver: u64,
    /// Of the bytes.
    pub offset: u64,
    /// Of the bytes.
    pub length: u64,
    /// Bytes of the message taken in all; `offset + length` is at most this.
    pub want: u64,
    /// Restarts of the message so far.
    pub round: u16,
    /// Of PUT: the sender's rail for the write plus one, or 0.
    pub rail: u16,
    /// Of ACK: no read of the message was begun.
    pub unread: bool,
}

/// Why a frame is malformed, for counters and dumps.
pub type Malformed = &'static str;

/// Reads a frame's header. Pure: the same bytes give the same answer, whatever they are.
///
/// # Errors
/// What is wrong with it.
pub fn decode(header: &[u8], payload_len: usize) -> Result<Frame, Malformed> {
    match decode_match(header) {
        Some(envelope) => Ok(Frame::Match(envelope)),
        None => decode_rare(header, payload_len),
    }
}

/// As [`decode`], for MATCH alone: the fields stay in registers.
#[inline(always)]
#[must_use]
pub fn decode_match(header: &[u8]) -> Option<Envelope> {
    let header = Match::ref_from_bytes(header).ok()?;
    (header.kind == kinds::MATCH).then(|| envelope(header))
}

#[inline(always)]
pub(super) fn envelope(header: &Match) -> Envelope {
    Envelope {
        cid: header.cid.get(),
        epoch: header.epoch.get(),
        seq: header.seq.get(),
        source: header.source.get(),
        tag: header.tag.get(),
        ready: header.flags & READY != 0,
    }
}

fn exact<T: FromBytes + Immutable + KnownLayout + Unaligned>(
    bytes: &[u8],
) -> Result<&T, Malformed> {
    T::ref_from_bytes(bytes).map_err(|_| "header length")
}

fn decode_rare(header: &[u8], payload_len: usize) -> Result<Frame, Malformed> {
    let payload_len = payload_len as u64;
    let &kind = header.first().ok_or("empty header")?;
    match kind {
        kinds::RNDV | kinds::STREAM | kinds::RGET => {
            let header: &Announce = exact(header)?;
            let (envelope, length) = (envelope(&header.matching), header.length.get());
            let token = header.token.get();
            if length > if kind == kinds::STREAM { STREAM_MAX } else { LENGTH_MAX } {
                return Err("message length");
            }
            match kind {
                kinds::RGET if payload_len == 0 => Err("key length"),
                kinds::RGET => Ok(Frame::Rget { envelope, length, sender: token }),
                _ if payload_len > length => Err("more payload than message"),
                kinds::RNDV if header.matching.flags & WITHDRAW != 0 => match payload_len {
                    0 => Ok(Frame::Withdraw { envelope, sender: token }),
                    _ => Err("payload of a cancellation"),
                },
                kinds::RNDV => Ok(Frame::Rndv { envelope, length, sender: token }),
                _ => Ok(Frame::Stream { envelope, length, stream: token }),
            }
        }
        kinds::ACK | kinds::PUT | kinds::RNDVRESTARTACK => {
            let header: &Grant = exact(header)?;
            let asked = Asked {
                sender: header.sender.get(),
                receiver: header.receiver.get(),
                offset: header.offset.get(),
                length: header.length.get(),
                want: header.want.get(),
                round: header.round.get(),
                rail: header.rail.get(),
                unread: header.flags & UNREAD != 0,
            };
            let end = asked.offset.checked_add(asked.length).ok_or("range")?;
            if end > asked.want || asked.want > LENGTH_MAX {
                return Err("range");
            }
            match (kind, payload_len) {
                (kinds::ACK, 0) => Ok(Frame::Ack(asked)),
                (kinds::RNDVRESTARTACK, 0) => Ok(Frame::RestartAck(asked)),
                (kinds::ACK | kinds::RNDVRESTARTACK, _) => Err("payload of an ACK"),
                (_, 0) => Err("key length"),
                _ => Ok(Frame::Put(asked)),
            }
        }
        kinds::FRAG => {
            let header: &Frag = exact(header)?;
            let (token, offset) = (header.token.get(), header.offset.get());
            if offset.checked_add(payload_len).is_none_or(|end| end > LENGTH_MAX) {
                return Err("range");
            }
            Ok(if header.flags & EAGER != 0 {
                Frame::StreamFrag { stream: token, offset }
            } else {
                Frame::Frag { receiver: token, offset, round: header.round.get() }
            })
        }
        kinds::FIN => {
            let header: &Fin = exact(header)?;
            let status = WireStatus::from_wire(header.status.get()).ok_or("status")?;
            let (token, offset) = (header.token.get(), header.offset.get());
            let length = header.length.get();
            if status == WireStatus::Withdrawn {
                return Err("status");
            }
            if offset.checked_add(length).is_none_or(|end| end > LENGTH_MAX) {
                return Err("range");
            }
            Ok(if header.flags & TO_SENDER != 0 {
                Frame::ReadDone { sender: token, status }
            } else {
                let round = header.round.get();
                Frame::WriteDone { receiver: token, offset, length, round, status }
            })
        }
        kinds::NACK => {
            let header: &Nack = exact(header)?;
            let status = WireStatus::from_wire(header.status.get()).ok_or("status")?;
            let token = header.token.get();
            let to_sender = header.flags & TO_SENDER != 0;
            match status {
                WireStatus::Done => Err("status"),
                _ if to_sender => Ok(Frame::NackSender { sender: token, status }),
                WireStatus::Withdrawn => Err("status"),
                _ => Ok(Frame::NackReceiver { receiver: token, status }),
            }
        }
        kinds::CONTROL => {
            let header: &Control = exact(header)?;
            let (offset, again) = (header.offset.get(), header.flags & AGAIN != 0);
            let (ack, limit) = (header.ack.get(), header.limit.get());
            if offset.checked_add(payload_len).is_none_or(|end| end > LENGTH_MAX)
                || limit > LENGTH_MAX
                || ack > limit
            {
                return Err("range");
            }
            Ok(Frame::Control(PieceOf { offset, ack, limit, again }))
        }
        kinds::RNDVRESTARTNOTIFY | kinds::RECVERRNOTIFY | kinds::RNDVRESTARTNACK => {
            let header: &Restart = exact(header)?;
            let (sender, receiver) = (header.sender.get(), header.receiver.get());
            let dance = Dance { sender, receiver, round: header.round.get() };
            match kind {
                _ if payload_len > 0 => Err("payload of a restart"),
                kinds::RNDVRESTARTNOTIFY => Ok(Frame::RestartNotify(dance)),
                kinds::RECVERRNOTIFY => Ok(Frame::RecvError(dance)),
                _ => Ok(Frame::RestartNack(dance)),
            }
        }
        LINK => Ok(Frame::Link(exact::<LinkHeader>(header)?.decode(payload_len)?)),
        SPLIT => Ok(Frame::Split(exact::<SplitHeader>(header)?.decode(payload_len)?)),
        kinds::MATCH => Err("header length"),
        _ => Err("kind or version"),
    }
}

impl Match {
    /// A header of this kind.
    #[inline]
    #[must_use]
    pub const fn new(kind: u8, envelope: Envelope) -> Self {
        zerocopy::transmute!(Self::words(kind, envelope))
    }

    /// The sixteen bytes of a header of this kind, as two words.
    #[inline(always)]
    #[must_use]
    pub const fn words(kind: u8, envelope: Envelope) -> [u64; 2] {
        let flags = envelope.ready as u8 * READY;
        // Two whole words: written field by field, the header would not be forwarded to the copy into the ring, which
        // reads words, but make it wait.
        let first = kind as u64
            | (flags as u64) << 8
            | (envelope.cid as u64) << 16
            | (envelope.epoch as u64) << 32
            | (envelope.seq as u64) << 48;
        let second = envelope.source as u64 | (envelope.tag as u32 as u64) << 32;
        [first.to_le(), second.to_le()]
    }
}

impl Announce {
    /// A header of this kind.
    #[must_use]
    pub const fn new(kind: u8, envelope: Envelope, length: u64, token: u64) -> Self {
        Announce {
            matching: Match::new(kind, envelope),
            length: U64::new(length),
            token: U64::new(token),
        }
    }

    /// Cancels the message that was announced by this token.
    #[must_use]
    pub const fn withdraw(envelope: Envelope, token: u64) -> Self {
        let mut header = Announce::new(kinds::RNDV, envelope, 0, token);
        header.matching.flags |= WITHDRAW;
        header
    }
}

impl Grant {
    /// A header of this kind.
    #[must_use]
    pub const fn new(kind: u8, asked: Asked) -> Self {
        Grant {
            kind,
            flags: asked.unread as u8 * UNREAD,
            round: U16::new(asked.round),
            rail: U16::new(asked.rail),
            zero: [0; 2],
            sender: U64::new(asked.sender),
            receiver: U64::new(asked.receiver),
            offset: U64::new(asked.offset),
            length: U64::new(asked.length),
            want: U64::new(asked.want),
        }
    }
}

impl Frag {
    /// A fragment of a rendezvous.
    #[must_use]
    pub const fn new(receiver: u64, offset: u64, round: u16) -> Self {
        Frag {
            kind: kinds::FRAG,
            flags: 0,
            round: U16::new(round),
            zero: [0; 4],
            token: U64::new(receiver),
            offset: U64::new(offset),
        }
    }

    /// A fragment of an eager stream.
    #[must_use]
    pub const fn of_stream(stream: u64, offset: u64) -> Self {
        Frag { flags: EAGER, ..Self::new(stream, offset, 0) }
    }
}

impl Fin {
    /// To the sender: the message was read, or not.
    #[must_use]
    pub const fn to_sender(sender: u64, status: WireStatus) -> Self {
        Fin { flags: TO_SENDER, ..Self::to_receiver(sender, 0, 0, 0, status) }
    }

    /// To the receiver: a piece was written, or not.
    #[must_use]
    pub const fn to_receiver(
        receiver: u64,
        offset: u64,
        length: u64,
        round: u16,
        status: WireStatus,
    ) -> Self {
        Fin {
            kind: kinds::FIN,
            flags: 0,
            status: U16::new(status as u16),
            round: U16::new(round),
            zero: [0; 2],
            token: U64::new(receiver),
            offset: U64::new(offset),
            length: U64::new(length),
        }
    }
}

impl Nack {
    /// To the sender.
    #[must_use]
    pub const fn to_sender(sender: u64, status: WireStatus) -> Self {
        Nack { flags: TO_SENDER, ..Self::to_receiver(sender, status) }
    }

    /// To the receiver.
    #[must_use]
    pub const fn to_receiver(receiver: u64, status: WireStatus) -> Self {
        Nack {
            kind: kinds::NACK,
            flags: 0,
            status: U16::new(status as u16),
            zero: [0; 4],
            token: U64::new(receiver),
        }
    }
}

impl Restart {
    /// A header of this kind.
    #[must_use]
    pub const fn new(kind: u8, dance: Dance) -> Self {
        Restart {
            kind,
            flags: 0,
            round: U16::new(dance.round),
            zero: [0; 4],
            sender: U64::new(dance.sender),
            receiver: U64::new(dance.receiver),
        }
    }
}

impl Control {
    /// A header for this piece.
    #[must_use]
    pub const fn new(piece: PieceOf) -> Self {
        Control {
            kind: kinds::CONTROL,
            flags: piece.again as u8 * AGAIN,
            zero: [0; 6],
            offset: U64::new(piece.offset),
            ack: U64::new(piece.ack),
            limit: U64::new(piece.limit),
        }
    }
}

/// Whether a RNDV, RGET or MATCH wants its arrival confirmed.
#[must_use]
pub fn confirms(header: &[u8]) -> bool {
    header.get(1).is_some_and(|flags| flags & CONFIRM != 0)
}

/// Reads a token as the name of a request.
#[inline]
pub(super) const fn key(token: u64) -> Key {
    Key::from_wire(token)
}

#[cfg(test)]
mod tests;
