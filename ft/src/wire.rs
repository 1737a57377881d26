//! The frames of the control plane, version 1: every layout in one place, and the decoder that believes nothing (law 9).
//!
//! All integers are little-endian. A communicator is named by (cid, epoch), a member by its rank there.
//!
//! ```text
//!            0      1      2      3      4        6        8                16              24              32
//!  FAILED    | kind |  0   |  0   |  0   |  a set of processes: they have failed
//!
//!  REVOKE    | kind | scope|  0   |  0   |  cid   | epoch  |                                       8 bytes
//!            |  scope: 1 collective operations of the communicator end, 2 all communication does
//!
//!  GATHER    | kind | bits | slot |  0   |  cid   | epoch  |  seq (u64)     |  view hash    | view count u32 | lock u32 |
//!         32 |  flag (u64)    |  highest (u64) |  done (u64)   |                               56 bytes
//!            |  first phase: what the sender has gathered so far, sent for one slot of the exchange. bits: 1 all have
//!            |  acknowledged, 2 locked: then flag, highest and bits are those of the locked value, `lock` is the count of
//!            |  the view in which it was locked, and the set of its failed ranks follows
//!
//!  CONFIRM   | kind |  0   | slot |  0   |  cid   | epoch  |  seq (u64)     |  view hash    | view count u32 |  0      |
//!            |  second phase: the sender, and those that it heard from, have locked in this view       32 bytes
//!
//!  DECISION  | kind | bits |  0   |  0   |  cid   | epoch  |  seq (u64)     |  flag (u64)   | highest (u64) |
//!            |  32 bytes; the set of failed ranks follows
//!
//!  BRIEF     | kind | bits | slot |  0   |  cid   | epoch  |  seq (u32)  |  flag (u64)   |          20 bytes
//!            |  the usual GATHER: nobody of the view is dead, nothing is locked, `highest` is 0, `done` is `seq`
//!
//!  BRIEFLY   | kind |  0   | slot |  0   |  cid   | epoch  |  seq (u32)  |                          12 bytes
//!            |  the usual CONFIRM: nobody of the view is dead
//!
//!  PIECE     | kind | last |  0   |  0   |  length of the whole message u32  |                       8 bytes
//!            |  the next bytes of a message that is longer than a frame
//!
//!  a set     | form | 0 | 0 | 0 | count u32 | then by form
//!            |  1 list: count ranks, ascending      2 runs: count pairs (first, length), ascending, apart
//!            |  3 bits: count bytes, bit 0 of the first is rank 0, the last byte is not 0
//! ```
//!
//! `count` of a view is how many members the sender knows dead, `hash` the exclusive or of a mix of their ranks. Two
//! different views are taken for one with a chance of 2⁻⁶⁴.

use crate::set::RankSet;
use smallvec::SmallVec;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Version of these layouts, the high half of each kind byte.
pub const VERSION: u8 = 1;
/// The longest frame, in bytes: longer messages go in pieces.
pub const FRAME_MAX: usize = 8 << 10;

/// The bytes of a frame; those of agreements without failures stay inline.
pub type Frame = SmallVec<[u8; 56]>;

const FAILED: u8 = VERSION << 4 | 1;
const REVOKE: u8 = VERSION << 4 | 2;
const GATHER: u8 = VERSION << 4 | 3;
const CONFIRM: u8 = VERSION << 4 | 4;
const DECISION: u8 = VERSION << 4 | 5;
const PIECE: u8 = VERSION << 4 | 6;
const BRIEF: u8 = VERSION << 4 | 7;
const BRIEFLY: u8 = VERSION << 4 | 8;

const ACKNOWLEDGED: u8 = 1;
const LOCKED: u8 = 2;

const LIST: u8 = 1;
const RUNS: u8 = 2;
const BITS: u8 = 3;

/// Names a communicator: its id and which life of that id (law 4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommKey {
    /// Communicator id.
    pub cid: u16,
    /// How often the id was in use before.
    pub epoch: u16,
}

impl CommKey {
    /// Ids from here on name groups without a communicator, which live as long as one operation and take their epochs in no
    /// order: nothing but their own end makes a message about one stale.
    pub const TRANSIENT: u16 = 3 << 14;

    /// Whether it names such a group.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        self.cid >= Self::TRANSIENT
    }
}

/// What a revoke notice ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scope {
    /// Collective operations only: a member saw a failure inside one (seed 000, `coll_only`).
    Collectives = 1,
    /// All communication.
    All = 2,
}

/// What a process knows of the dead of a group, in short.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct View {
    pub count: u32,
    pub hash: u64,
}

impl View {
    /// This view and one more dead rank.
    pub fn add(&mut self, rank: u32) {
        // The finalizer of splitmix64: well mixed, and cheap.
        let mut word = (u64::from(rank) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.hash ^= word ^ (word >> 31);
        self.count += 1;
    }
}

/// What contributions come to, put together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Terms {
    /// Bitwise AND.
    pub flag: u64,
    /// Maximum.
    pub highest: u64,
    /// Whether every participant has acknowledged all the dead.
    pub acknowledged: bool,
}

impl Terms {
    /// What changes nothing that it is joined with.
    pub const NEUTRAL: Terms = Terms { flag: !0, highest: 0, acknowledged: true };

    /// Both together. Commutative, associative, idempotent.
    pub fn join(self, other: Terms) -> Terms {
        Terms {
            flag: self.flag & other.flag,
            highest: self.highest.max(other.highest),
            acknowledged: self.acknowledged && other.acknowledged,
        }
    }
}

/// A value on which an agreement settles.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Value {
    pub terms: Terms,
    /// The dead, by rank.
    pub failed: RankSet,
}

/// What a member brings to a view, and what the first phase gathers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Input {
    /// Nobody whose input is in this one has locked.
    Open(Terms),
    /// Somebody has locked this value, in a view of `count` dead.
    Locked { count: u32, value: Value },
}

/// A decoded frame. Ranks in sets are below the bound that the decoder was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message<'a> {
    Failed(RankSet),
    Revoke { key: CommKey, scope: Scope },
    Gather { key: CommKey, seq: u64, view: View, slot: u8, done: u64, input: Input },
    Confirm { key: CommKey, seq: u64, view: View, slot: u8 },
    Decision { key: CommKey, seq: u64, value: Value },
    Piece { last: bool, total: u32, bytes: &'a [u8] },
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireRevoke {
    kind: u8,
    scope: u8,
    zero: U16,
    cid: U16,
    epoch: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireStep {
    kind: u8,
    bits: u8,
    slot: u8,
    zero: u8,
    cid: U16,
    epoch: U16,
    seq: U64,
    hash: U64,
    count: U32,
    lock: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireGathered {
    flag: U64,
    highest: U64,
    done: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireBrief {
    kind: u8,
    bits: u8,
    slot: u8,
    zero: u8,
    cid: U16,
    epoch: U16,
    seq: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireBriefGathered {
    head: WireBrief,
    flag: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireDecision {
    kind: u8,
    bits: u8,
    zero: U16,
    cid: U16,
    epoch: U16,
    seq: U64,
    flag: U64,
    highest: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WirePiece {
    kind: u8,
    last: u8,
    zero: U16,
    total: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireSet {
    form: u8,
    zero: [u8; 3],
    count: U32,
}

/// Appends a set in its shortest form.
fn put_set(frame: &mut Frame, set: &RankSet) {
    let ranks = set.as_slice();
    let runs = ranks.len() - ranks.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
    let bytes = ranks.last().map_or(0, |last| *last as usize / 8 + 1);
    let shortest = (4 * ranks.len()).min(8 * runs).min(bytes);
    let mut head = |form, count: usize| {
        let head = WireSet { form, zero: [0; 3], count: U32::new(count as u32) };
        frame.extend_from_slice(head.as_bytes());
    };
    if shortest == 4 * ranks.len() {
        head(LIST, ranks.len());
        ranks.iter().for_each(|rank| frame.extend_from_slice(&rank.to_le_bytes()));
    } else if shortest == 8 * runs {
        head(RUNS, runs);
        for run in ranks.chunk_by(|a, b| a + 1 == *b) {
            frame.extend_from_slice(&run[0].to_le_bytes());
            frame.extend_from_slice(&(run.len() as u32).to_le_bytes());
        }
    } else {
        head(BITS, bytes);
        let start = frame.len();
        frame.resize(start + bytes, 0);
        for rank in ranks {
            frame[start + *rank as usize / 8] |= 1 << (rank % 8);
        }
    }
}

/// Reads a set that must fill `bytes` and whose members must be below `bound`.
fn take_set(bytes: &[u8], bound: u32) -> Option<RankSet> {
    let (head, rest) = WireSet::ref_from_prefix(bytes).ok()?;
    let count = head.count.get() as usize;
    if head.zero != [0; 3] || count > bound as usize {
        return None;
    }
    let words = || {
        rest.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
    };
    let ranks: Vec<u32> = match head.form {
        LIST if rest.len() == 4 * count => {
            let ranks: Vec<u32> = words().collect();
            if !ranks.windows(2).all(|pair| pair[0] < pair[1]) {
                return None;
            }
            ranks
        }
        RUNS if rest.len() == 8 * count => {
            let (mut ranks, mut next) = (Vec::new(), 0u64);
            for run in rest.chunks_exact(8) {
                let first = u32::from_le_bytes([run[0], run[1], run[2], run[3]]);
                let length = u32::from_le_bytes([run[4], run[5], run[6], run[7]]);
                let end = u64::from(first) + u64::from(length);
                if length == 0 || u64::from(first) < next || end > u64::from(bound) {
                    return None;
                }
                next = end + 1;
                ranks.extend(first..end as u32);
            }
            ranks
        }
        BITS if rest.len() == count && rest.last().is_none_or(|last| *last != 0) => {
            let bits = |(at, byte): (usize, &u8)| {
                let (at, byte) = (at as u32 * 8, *byte);
                (0..8).filter(move |bit| byte & 1 << bit != 0).map(move |bit| at + bit)
            };
            rest.iter().enumerate().flat_map(bits).collect()
        }
        _ => return None,
    };
    ranks.last().is_none_or(|last| *last < bound).then(|| RankSet::from_ascending(ranks))
}

impl Message<'_> {
    /// The frame of a step that has a short form.
    fn brief(&self) -> Option<Frame> {
        match self {
            Message::Gather { key, seq, view, slot, done, input: Input::Open(terms) }
                if *view == View::default() && done == seq && terms.highest == 0 =>
            {
                Brief::Gather(terms.flag, terms.acknowledged).encode(*key, *seq, *slot)
            }
            Message::Confirm { key, seq, view, slot } if *view == View::default() => {
                Brief::Confirm.encode(*key, *seq, *slot)
            }
            _ => None,
        }
    }

    /// The bytes of this message, in one frame even if it is longer than [`FRAME_MAX`].
    pub fn encode(&self) -> Frame {
        if let Some(frame) = self.brief() {
            return frame;
        }
        let mut frame = Frame::new();
        let step = |kind, bits, slot, key: &CommKey, seq, view: &View, lock| WireStep {
            kind,
            bits,
            slot,
            zero: 0,
            cid: U16::new(key.cid),
            epoch: U16::new(key.epoch),
            seq: U64::new(seq),
            hash: U64::new(view.hash),
            count: U32::new(view.count),
            lock: U32::new(lock),
        };
        match self {
            Message::Failed(set) => {
                frame.extend_from_slice(&[FAILED, 0, 0, 0]);
                put_set(&mut frame, set);
            }
            Message::Revoke { key, scope } => {
                let head = WireRevoke {
                    kind: REVOKE,
                    scope: *scope as u8,
                    zero: U16::ZERO,
                    cid: U16::new(key.cid),
                    epoch: U16::new(key.epoch),
                };
                frame.extend_from_slice(head.as_bytes());
            }
            Message::Gather { key, seq, view, slot, done, input } => {
                let (terms, bits, lock, failed) = match input {
                    Input::Open(terms) => (terms, 0, 0, None),
                    Input::Locked { count, value } => {
                        (&value.terms, LOCKED, *count, Some(&value.failed))
                    }
                };
                let bits = bits | u8::from(terms.acknowledged);
                frame
                    .extend_from_slice(step(GATHER, bits, *slot, key, *seq, view, lock).as_bytes());
                let gathered = WireGathered {
                    flag: U64::new(terms.flag),
                    highest: U64::new(terms.highest),
                    done: U64::new(*done),
                };
                frame.extend_from_slice(gathered.as_bytes());
                if let Some(failed) = failed {
                    put_set(&mut frame, failed);
                }
            }
            Message::Confirm { key, seq, view, slot } => {
                frame.extend_from_slice(step(CONFIRM, 0, *slot, key, *seq, view, 0).as_bytes());
            }
            Message::Decision { key, seq, value } => {
                let head = WireDecision {
                    kind: DECISION,
                    bits: u8::from(value.terms.acknowledged),
                    zero: U16::ZERO,
                    cid: U16::new(key.cid),
                    epoch: U16::new(key.epoch),
                    seq: U64::new(*seq),
                    flag: U64::new(value.terms.flag),
                    highest: U64::new(value.terms.highest),
                };
                frame.extend_from_slice(head.as_bytes());
                put_set(&mut frame, &value.failed);
            }
            Message::Piece { last, total, bytes } => {
                let head = WirePiece {
                    kind: PIECE,
                    last: u8::from(*last),
                    zero: U16::ZERO,
                    total: U32::new(*total),
                };
                frame.extend_from_slice(head.as_bytes());
                frame.extend_from_slice(bytes);
            }
        }
        frame
    }

    /// Reads a message. `None` when anything is wrong with it; then nothing of it is used. No member of a set is
    /// `bound` or more.
    pub fn decode(bytes: &[u8], bound: u32) -> Option<Message<'_>> {
        match *bytes.first()? {
            FAILED => {
                let (head, set) = bytes.split_at_checked(4)?;
                (head[1..] == [0; 3]).then_some(())?;
                Some(Message::Failed(take_set(set, bound)?))
            }
            REVOKE => {
                let head = WireRevoke::ref_from_bytes(bytes).ok()?;
                let scope = match head.scope {
                    1 => Scope::Collectives,
                    2 => Scope::All,
                    _ => return None,
                };
                let key = CommKey { cid: head.cid.get(), epoch: head.epoch.get() };
                (head.zero == U16::ZERO).then_some(Message::Revoke { key, scope })
            }
            GATHER => {
                let (head, rest) = WireStep::ref_from_prefix(bytes).ok()?;
                let (gathered, rest) = WireGathered::ref_from_prefix(rest).ok()?;
                let (key, view) = head.names(bound)?;
                let terms = Terms {
                    flag: gathered.flag.get(),
                    highest: gathered.highest.get(),
                    acknowledged: head.bits & ACKNOWLEDGED != 0,
                };
                let input = if head.bits & LOCKED != 0 {
                    let value = Value { terms, failed: take_set(rest, bound)? };
                    let count = head.lock.get();
                    // Locked in an earlier view, which the sender's own contains; made in that one or before.
                    if count > view.count || value.failed.len() as u64 > u64::from(count) {
                        return None;
                    }
                    Input::Locked { count, value }
                } else if rest.is_empty() && head.lock == U32::ZERO {
                    Input::Open(terms)
                } else {
                    return None;
                };
                (head.bits & !(ACKNOWLEDGED | LOCKED) == 0).then_some(())?;
                let (seq, done) = (head.seq.get(), gathered.done.get());
                Some(Message::Gather { key, seq, view, slot: head.slot, done, input })
            }
            CONFIRM => {
                let head = WireStep::ref_from_bytes(bytes).ok()?;
                let (key, view) = head.names(bound)?;
                (head.bits == 0 && head.lock == U32::ZERO).then_some(())?;
                Some(Message::Confirm { key, seq: head.seq.get(), view, slot: head.slot })
            }
            DECISION => {
                let (head, set) = WireDecision::ref_from_prefix(bytes).ok()?;
                (head.bits & !ACKNOWLEDGED == 0 && head.zero == U16::ZERO).then_some(())?;
                let key = CommKey { cid: head.cid.get(), epoch: head.epoch.get() };
                let terms = Terms {
                    flag: head.flag.get(),
                    highest: head.highest.get(),
                    acknowledged: head.bits & ACKNOWLEDGED != 0,
                };
                let value = Value { terms, failed: take_set(set, bound)? };
                Some(Message::Decision { key, seq: head.seq.get(), value })
            }
            BRIEF | BRIEFLY => {
                let (key, seq, slot, step) = Brief::decode(bytes)?;
                let view = View::default();
                Some(match step {
                    Brief::Gather(flag, acknowledged) => {
                        let input = Input::Open(Terms { flag, acknowledged, ..Terms::NEUTRAL });
                        Message::Gather { key, seq, view, slot, done: seq, input }
                    }
                    Brief::Confirm => Message::Confirm { key, seq, view, slot },
                })
            }
            PIECE => {
                let (head, bytes) = WirePiece::ref_from_prefix(bytes).ok()?;
                (head.last <= 1 && head.zero == U16::ZERO && !bytes.is_empty()).then_some(())?;
                Some(Message::Piece { last: head.last == 1, total: head.total.get(), bytes })
            }
            _ => None,
        }
    }
}

/// A step of an agreement in its short form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Brief {
    /// The first phase: the flag, and whether all have acknowledged.
    Gather(u64, bool),
    /// The second phase.
    Confirm,
}

impl Brief {
    /// The frame of such a step; `None` when its number is too high for it.
    pub fn encode(self, key: CommKey, seq: u64, slot: u8) -> Option<Frame> {
        if !is_brief(seq) {
            return None;
        }
        Some(match self {
            Brief::Gather(flag, acknowledged) => {
                let head = WireBrief::new(BRIEF, u8::from(acknowledged), slot, key, seq);
                let gathered = WireBriefGathered { head, flag: U64::new(flag) };
                Frame::from_slice(gathered.as_bytes())
            }
            Brief::Confirm => {
                Frame::from_slice(WireBrief::new(BRIEFLY, 0, slot, key, seq).as_bytes())
            }
        })
    }

    /// What a frame says, if it is a sound one of this form: the communicator, the agreement, the slot, and the step.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Option<(CommKey, u64, u8, Brief)> {
        match *bytes.first()? {
            BRIEF => {
                let WireBriefGathered { head, flag } =
                    WireBriefGathered::ref_from_bytes(bytes).ok()?;
                (head.bits & !ACKNOWLEDGED == 0).then_some(())?;
                let (key, seq) = head.names()?;
                let step = Brief::Gather(flag.get(), head.bits & ACKNOWLEDGED != 0);
                Some((key, seq, head.slot, step))
            }
            BRIEFLY => {
                let head = WireBrief::ref_from_bytes(bytes).ok()?;
                (head.bits == 0).then_some(())?;
                let (key, seq) = head.names()?;
                Some((key, seq, head.slot, Brief::Confirm))
            }
            _ => None,
        }
    }
}

/// Whether the number of an agreement fits into a short form.
fn is_brief(seq: u64) -> bool {
    seq <= u64::from(u32::MAX)
}

impl WireBrief {
    fn new(kind: u8, bits: u8, slot: u8, key: CommKey, seq: u64) -> Self {
        let (cid, epoch) = (U16::new(key.cid), U16::new(key.epoch));
        WireBrief { kind, bits, slot, zero: 0, cid, epoch, seq: U32::new(seq as u32) }
    }

    fn names(&self) -> Option<(CommKey, u64)> {
        let key = CommKey { cid: self.cid.get(), epoch: self.epoch.get() };
        (self.zero == 0).then_some((key, u64::from(self.seq.get())))
    }
}

impl WireStep {
    fn names(&self, bound: u32) -> Option<(CommKey, View)> {
        let key = CommKey { cid: self.cid.get(), epoch: self.epoch.get() };
        let view = View { count: self.count.get(), hash: self.hash.get() };
        (self.zero == 0 && view.count < bound).then_some((key, view))
    }
}

/// The longest message in a job of `size` processes: a decision or a gather with a set of any of them.
pub(crate) fn message_max(size: u32) -> usize {
    64 + size as usize / 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sets() -> impl Strategy<Value = RankSet> {
        let scattered = proptest::collection::vec(0u32..2000, 0..60);
        let runs =
            (0u32..1900, 0u32..100).prop_map(|(from, length)| (from..from + length).collect());
        prop_oneof![scattered, runs].prop_map(|ranks: Vec<u32>| ranks.into_iter().collect())
    }

    fn messages() -> impl Strategy<Value = Message<'static>> {
        let key = || (any::<u16>(), any::<u16>()).prop_map(|(cid, epoch)| CommKey { cid, epoch });
        let view = || (0u32..2000, any::<u64>()).prop_map(|(count, hash)| View { count, hash });
        let terms = || {
            (any::<u64>(), any::<u64>(), any::<bool>())
                .prop_map(|(flag, highest, acknowledged)| Terms { flag, highest, acknowledged })
        };
        let value = || (terms(), sets()).prop_map(|(terms, failed)| Value { terms, failed });
        let open = terms().prop_map(Input::Open);
        let locked =
            value().prop_map(|value| Input::Locked { count: value.failed.len() as u32, value });
        prop_oneof![
            sets().prop_map(Message::Failed),
            (key(), prop_oneof![Just(Scope::All), Just(Scope::Collectives)])
                .prop_map(|(key, scope)| Message::Revoke { key, scope }),
            (key(), any::<u64>(), view(), 0u8..64, any::<u64>(), prop_oneof![open, locked])
                .prop_map(|(key, seq, mut view, slot, done, input)| {
                    if let Input::Locked { count, .. } = input {
                        view.count = view.count.max(count);
                    }
                    Message::Gather { key, seq, view, slot, done, input }
                }),
            (key(), any::<u64>(), view(), 0u8..64)
                .prop_map(|(key, seq, view, slot)| Message::Confirm { key, seq, view, slot }),
            (key(), any::<u32>(), 0u8..64, any::<u64>(), any::<bool>()).prop_map(
                |(key, seq, slot, flag, acknowledged)| {
                    let (seq, view) = (u64::from(seq), View::default());
                    let terms = Terms { flag, highest: 0, acknowledged };
                    Message::Gather { key, seq, view, slot, done: seq, input: Input::Open(terms) }
                }
            ),
            (key(), any::<u32>(), 0u8..64).prop_map(|(key, seq, slot)| {
                Message::Confirm { key, seq: seq.into(), view: View::default(), slot }
            }),
            (key(), any::<u64>(), value()).prop_map(|(key, seq, value)| Message::Decision {
                key,
                seq,
                value
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_was_sent_is_read(message in messages()) {
            let frame = message.encode();
            prop_assert!(frame.len() <= message_max(2000) + 24);
            prop_assert_eq!(Message::decode(&frame, 2000), Some(message));
        }

        /// Cut short or made longer, it is refused; changed anywhere, it is refused or is another sound message.
        #[test]
        fn what_is_broken_is_refused(message in messages(), at in any::<prop::sample::Index>(), with in 1u8..) {
            let frame = message.encode();
            for length in 0..frame.len() {
                prop_assert_eq!(Message::decode(&frame[..length], 2000), None);
            }
            let mut longer = frame.clone();
            longer.push(with);
            prop_assert_eq!(Message::decode(&longer, 2000), None);
            let mut changed = frame.clone();
            let at = at.index(changed.len());
            changed[at] ^= with;
            if let Some(read) = Message::decode(&changed, 2000) {
                let again = read.encode();
                prop_assert_eq!(Message::decode(&again, 2000), Some(read));
            }
        }

        /// Members beyond the bound are refused.
        #[test]
        fn ranks_are_bounded(set in sets()) {
            let frame = Message::Failed(set.clone()).encode();
            let least = set.iter().last().map_or(0, |last| last + 1);
            prop_assert_eq!(Message::decode(&frame, least.max(1)), Some(Message::Failed(set)));
            if least > 1 {
                prop_assert_eq!(Message::decode(&frame, least - 1), None);
            }
        }
    }

    #[test]
    fn usual_steps_are_brief() {
        let (key, view) = (CommKey { cid: 3, epoch: 4 }, View::default());
        let gather = |seq, view, done, highest| {
            let input = Input::Open(Terms { flag: 6, highest, acknowledged: true });
            Message::Gather { key, seq, view, slot: 2, done, input }.encode().len()
        };
        assert_eq!(gather(9, view, 9, 0), 20);
        let dead = View { count: 1, hash: 5 };
        let lengths = [gather(9, dead, 9, 0), gather(9, view, 8, 0), gather(9, view, 9, 1)];
        assert_eq!((lengths, gather(1 << 32, view, 1 << 32, 0)), ([56; 3], 56));
        let confirm = |seq, view| Message::Confirm { key, seq, view, slot: 2 }.encode().len();
        assert_eq!((confirm(9, view), confirm(9, dead), confirm(u64::MAX, view)), (12, 32, 32));
    }

    #[test]
    fn the_shortest_form_is_taken() {
        let length = |set: RankSet| Message::Failed(set).encode().len() - 12;
        assert_eq!(length([5, 900_000].into_iter().collect()), 8);
        assert_eq!(length((1000..900_000).collect()), 8);
        assert_eq!(length((0..4096).step_by(2).collect()), 512);
    }
}
