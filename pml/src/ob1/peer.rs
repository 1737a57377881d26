//! Peers: which rails reach one, which of them carries its ordered frames, and what waits to be sent to it.
//!
//! Match and control frames to a peer all go over one rail, its *lane*: the first of its best rails that came up. Data
//! fragments are striped over all. When the lane is lost, another rail is the lane; what may not have arrived goes out again
//! (`journal`, `failover`). Only where the lane was one that cannot be lost, nothing was kept, and its end cuts the peer off.

use super::RailId;
use super::channel::Channel;
use super::journal::Journal;
use super::link::{NO_RAIL, Number};
use super::room::Room;
use super::slots::Key;
use super::wire::Match;
use ironweave_btl::{Address, Caps, Fault, Header, Peer, RemoteKey};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// What the engine remembers of a rail's capabilities.
#[derive(Clone, Copy, Debug)]
pub(super) struct RailCaps {
    pub max_short: usize,
    pub max_bcopy: usize,
    pub max_zcopy: usize,
    pub zcopy_from: usize,
    pub eager_limit: usize,
    pub posted_limit: usize,
    pub rndv_eager_limit: usize,
    pub fragment: usize,
    pub put: bool,
    pub get: bool,
    pub read_from: usize,
    pub ordered: bool,
    pub lossless: bool,
    /// The same at all processes for rails that reach each other.
    pub id: u32,
    pub latency_ns: u32,
    pub bandwidth_mbs: u32,
    pub exclusivity: u32,
}

impl RailCaps {
    /// Whether what the rail has taken arrives, in order, as long as both processes live.
    pub const fn is_sure(&self) -> bool {
        self.lossless && self.ordered
    }
}

impl From<&Caps> for RailCaps {
    fn from(caps: &Caps) -> Self {
        RailCaps {
            max_short: caps.max_short,
            max_bcopy: caps.max_bcopy,
            max_zcopy: caps.max_zcopy,
            zcopy_from: caps.zcopy_from.max(1),
            eager_limit: caps.eager_limit,
            posted_limit: caps.posted_limit.max(caps.eager_limit),
            rndv_eager_limit: caps.rndv_eager_limit.min(caps.max_bcopy),
            fragment: caps.fragment.max(1),
            put: caps.put,
            get: caps.get,
            read_from: caps.read_from,
            ordered: caps.ordered,
            lossless: caps.lossless,
            id: 0,
            latency_ns: caps.latency_ns,
            bandwidth_mbs: caps.bandwidth_mbs.max(1),
            exclusivity: caps.exclusivity,
        }
    }
}

/// What is known of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Life {
    /// Nothing bad.
    Alive,
    /// No rail is left, or the lane is lost; the upper layer was told and will judge. Requests wait for that.
    CutOff,
    /// Judged: its rails are closing; then its requests end with this verdict.
    Closing(Verdict),
    /// Judged, and all that it had part in has ended.
    Ended(Verdict),
}

/// How the upper layer judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The process has failed.
    Failed,
    /// Nobody can reach it.
    Unreachable,
}

/// The state of one rail to one peer, as the transport told it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RailState {
    /// Asked to connect.
    Connecting,
    Up,
    /// A fault was told; `closed` follows.
    Failing,
    Closed,
}

/// One rail to one peer.
#[derive(Debug)]
pub(super) struct PeerRail {
    pub rail: RailId,
    pub state: RailState,
    /// Ordered frames were sent or received over it.
    pub carried: bool,
    /// It was up since it last was closed.
    pub was_up: bool,
    /// Bytes of fragments given to it, for striping in proportion.
    pub given: u64,
    /// What broke it; `closed` follows.
    pub fault: Option<Fault>,
    /// How often it came up.
    pub life: u32,
    /// The other side's number of it, and of its life there (0: not heard yet).
    pub theirs: u16,
    pub their_life: u32,
    /// Its next life here is one that the other side said is over.
    pub doomed: bool,
    /// The latest life there that was heard of, in whatever life here.
    pub heard_life: u32,
    /// The last of its lives there that the other side said is over.
    pub lost_life: u32,
    /// The other side is to be told ours.
    pub hello: bool,
    /// Where it is connected to, if this side ever was told.
    pub address: Option<Box<Address>>,
}

/// A control frame that waits for room.
#[derive(Debug)]
pub(super) struct Control {
    pub header: Header,
    pub key: Option<RemoteKey>,
}

/// The eager stream that is arriving from a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamIn {
    pub stream: u64,
    pub rail: RailId,
    pub target: StreamTarget,
    /// Bytes that came.
    pub offset: u64,
    pub length: u64,
}

/// Where an eager stream goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StreamTarget {
    Recv(Key),
    Unexpected(Key),
    /// With the frame that opened it, which waits for its turn.
    Waiting,
    Nowhere,
}

/// Where a new eager message of one frame can go without any further question.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fast {
    /// Messages shorter than this go by `send_short`.
    pub short_below: u32,
    /// Messages shorter than this go by `send_bcopy`; 0 when questions are to be asked.
    pub below: u32,
    pub rail: RailId,
    /// They are kept until they have arrived.
    pub kept: bool,
}

impl Fast {
    const NONE: Fast = Fast { short_below: 0, below: 0, rail: RailId(0), kept: false };
}

/// Longer messages are worth more than one rail, in bytes.
const STRIPED_FROM: usize = 64 << 10;

/// One peer.
pub(super) struct PeerState {
    pub life: Life,
    /// [`add_peer`](super::Ob1::add_peer) was called, or the peer connected by itself.
    pub known: bool,
    /// In the list of peers that have something to send.
    pub busy: bool,
    pub lane: Option<RailId>,
    pub rails: SmallVec<[PeerRail; 2]>,
    /// Rails of lower exclusivity, tried when no better one comes up.
    pub reserve: Vec<(RailId, Address)>,
    /// Control frames in order.
    pub outbox: VecDeque<Control>,
    /// Sends whose first frame is not out, in order; the first may be a stream partly out.
    pub pending: VecDeque<Key>,
    /// Rendezvous with fragments to send, served in turn.
    pub flows: VecDeque<Key>,
    /// Receives with reads to begin.
    pub reads: VecDeque<Key>,
    pub stream_in: Option<StreamIn>,
    pub next_stream: u64,
    /// Frames kept before their turn or communicator.
    pub early_frames: usize,
    pub early_bytes: usize,
    /// It was reported, for malformed frames or for more early ones than there is room for.
    pub reported: bool,
    /// What went over rails that can be lost, once used.
    pub journal: Option<Box<Journal>>,
    /// Frames that nobody kept were lost: it can never be served again.
    pub is_broken: bool,
    /// The control channel, once used.
    pub channel: Option<Box<Channel>>,
    /// How full this process is of messages of it, and it of ours.
    pub room: Room,
}

impl PeerState {
    pub fn new() -> Self {
        PeerState {
            life: Life::Alive,
            known: false,
            busy: false,
            lane: None,
            rails: SmallVec::new(),
            reserve: Vec::new(),
            outbox: VecDeque::new(),
            pending: VecDeque::new(),
            flows: VecDeque::new(),
            reads: VecDeque::new(),
            stream_in: None,
            next_stream: 1,
            early_frames: 0,
            early_bytes: 0,
            reported: false,
            journal: None,
            is_broken: false,
            channel: None,
            room: Room::default(),
        }
    }

    pub fn rail(&self, rail: RailId) -> Option<&PeerRail> {
        self.rails.iter().find(|r| r.rail == rail)
    }

    /// The row of `rail`, made if there is none.
    pub fn rail_mut(&mut self, rail: RailId) -> &mut PeerRail {
        let at = self.rails.iter().position(|r| r.rail == rail).unwrap_or_else(|| {
            let state = RailState::Closed;
            self.rails.push(PeerRail {
                rail,
                state,
                carried: false,
                was_up: false,
                given: 0,
                fault: None,
                life: 0,
                theirs: NO_RAIL,
                their_life: 0,
                doomed: false,
                heard_life: 0,
                lost_life: 0,
                hello: false,
                address: None,
            });
            self.rails.len() - 1
        });
        &mut self.rails[at]
    }

    /// Chooses the lane, and whether short messages may go by the fast path. To be called whenever a rail's state,
    /// the life of the peer, or what waits changes.
    pub fn refresh(&mut self, caps: &[RailCaps]) -> Fast {
        let up = |rail: RailId| self.rail(rail).is_some_and(|r| r.state == RailState::Up);
        if !self.lane.is_some_and(up) {
            let up = self.rails.iter().filter(|r| r.state == RailState::Up).map(|r| r.rail);
            let best = |rail: &RailId| {
                let caps = &caps[usize::from(rail.0)];
                (std::cmp::Reverse(caps.exclusivity), caps.latency_ns, *rail)
            };
            self.lane = up.min_by_key(best);
            if let Some(lane) = self.lane {
                self.rail_mut(lane).carried = true;
            }
            if let Some(channel) = &mut self.channel {
                channel.rewind();
            }
            if let Some(journal) = &mut self.journal {
                journal.rewind();
            }
        }
        let waits = self.room.announce || !self.pending.is_empty() || self.has_control();
        if let (Some(rail), Life::Alive, false) = (self.lane, self.life, waits) {
            let caps = &caps[usize::from(rail.0)];
            let zcopy = if caps.max_zcopy > 0 { caps.zcopy_from - 1 } else { usize::MAX };
            let below = (caps.max_bcopy.min(caps.eager_limit).min(zcopy) + 1).min(caps.read_from);
            let kept = !caps.lossless;
            let header = size_of::<Match>() + if kept { size_of::<Number>() } else { 0 };
            let short_below = (caps.max_short + 1).saturating_sub(header).min(below);
            let clamp = |bytes| u32::try_from(bytes).unwrap_or(u32::MAX);
            return Fast { short_below: clamp(short_below), below: clamp(below), rail, kept };
        }
        Fast::NONE
    }

    /// The longest message that goes without asking over a rail with these capabilities: it takes no other, so that where there are
    /// several what is long is announced, and striped.
    pub fn eager_limit(&self, lane: &RailCaps) -> usize {
        let up = self.rails.iter().filter(|row| row.state == RailState::Up).count();
        let limit = if self.room.waits { lane.posted_limit } else { lane.eager_limit };
        if up > 1 { limit.min(STRIPED_FROM) } else { limit }
    }

    /// Whether messages to the peer may have to be sent again over another rail.
    pub fn is_lossy(&self, caps: &[RailCaps]) -> bool {
        self.rails.iter().any(|row| !caps[usize::from(row.rail.0)].lossless)
    }

    /// Whether any rail may still carry something, now or later.
    pub fn has_hope(&self) -> bool {
        self.rails.iter().any(|r| matches!(r.state, RailState::Connecting | RailState::Up))
    }

    pub fn has_work(&self) -> bool {
        !(self.outbox.is_empty()
            && self.pending.is_empty()
            && self.flows.is_empty()
            && self.reads.is_empty()
            && !self.has_control()
            && !self.has_journal_work()
            && !self.rails.iter().any(|row| row.hello && row.state == RailState::Up))
    }

    /// The rails that are up, best for the next fragment first: the one that has been given least for its bandwidth.
    /// A message whose arrival nobody confirms goes over rails that cannot be lost.
    pub fn stripe(&self, caps: &[RailCaps], confirmed: bool) -> SmallVec<[RailId; 4]> {
        let mut up: SmallVec<[(u64, RailId); 4]> = self
            .rails
            .iter()
            .filter(|r| r.state == RailState::Up)
            .filter(|r| confirmed || caps[usize::from(r.rail.0)].lossless)
            .map(|r| (r.given / u64::from(caps[usize::from(r.rail.0)].bandwidth_mbs), r.rail))
            .collect();
        up.sort_unstable();
        up.into_iter().map(|(_, rail)| rail).collect()
    }

    /// Counts a fragment; the counts are kept relative to the least, so that a rail that comes late gets its share only.
    pub fn given(&mut self, rail: RailId, bytes: u64) {
        self.rail_mut(rail).given += bytes;
    }
}

/// All peers, by index. Grows with the highest that was ever named by a transport or a communicator; of those that were not
/// named themselves, it keeps a few bytes.
pub(super) struct Peers {
    /// Apart, so that short messages read nothing else.
    fast: Vec<Fast>,
    states: Vec<Option<Box<PeerState>>>,
    /// Those with something to send.
    pub busy: Vec<Peer>,
}

/// More processes than any job has: a transport that names one beyond is wrong.
pub(super) const PEERS_MAX: usize = 1 << 24;
/// By how many rows the tables grow.
const ROWS: usize = 64;

impl Peers {
    pub const fn new() -> Self {
        Peers { fast: Vec::new(), states: Vec::new(), busy: Vec::new() }
    }

    /// The way of short messages to a peer, if it was ever named.
    #[inline]
    pub fn fast(&self, peer: Peer) -> Option<Fast> {
        self.fast.get(peer.index()).copied()
    }

    /// Sets it, for a peer that has a state.
    pub fn set_fast(&mut self, peer: Peer, fast: Fast) {
        self.fast[peer.index()] = fast;
    }

    #[inline]
    pub fn get(&self, peer: Peer) -> Option<&PeerState> {
        self.states.get(peer.index())?.as_deref()
    }

    #[inline]
    pub fn get_mut(&mut self, peer: Peer) -> Option<&mut PeerState> {
        self.states.get_mut(peer.index())?.as_deref_mut()
    }

    /// The state of a peer, made if there is none.
    #[inline]
    pub fn state(&mut self, peer: Peer) -> &mut PeerState {
        if peer.index() >= self.states.len() {
            self.grow(peer);
        }
        self.states[peer.index()].get_or_insert_with(|| Box::new(PeerState::new()))
    }

    #[cold]
    fn grow(&mut self, peer: Peer) {
        assert!(peer.index() < PEERS_MAX, "{peer} is beyond any job");
        // Not one by one: the first that is heard of a peer may be that it is dead, when others wait for this core.
        let rows = (peer.index() + 1).next_multiple_of(ROWS);
        self.states.resize_with(rows, || None);
        self.fast.resize(rows, Fast::NONE);
    }

    /// Puts a peer on the list of those with something to send.
    pub fn wake(&mut self, peer: Peer) {
        let state = self.state(peer);
        if !std::mem::replace(&mut state.busy, true) {
            self.busy.push(peer);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (Peer, &PeerState)> {
        (0..)
            .map(Peer)
            .zip(&self.states)
            .filter_map(|(peer, state)| Some((peer, state.as_deref()?)))
    }
}
