//! The matcher: receives and messages of one communicator find each other in MPI order, at a cost that does not grow
//! with how many wait (law 6).
//!
//! A receive waits in one of four kinds of lists: of its (source, tag), of its source with any tag, of its tag with any
//! source, or with any of both. Order numbers tell, among the heads of the at most four lists that a message may
//! match, which was posted first. An unexpected message waits in the list of its (source, tag), and, to be found by
//! wildcards, in those of its source, of its communicator and (from the first time that this would have
//! saved a long search) of its tag. Tags of the library (negative) are apart: a wildcard for tags does not see them.

use super::comm::Comm;
use super::lanes::{ANY_SOURCE, ARRIVED, BY_TAG, EXACT, Lanes, POSTED, pair, source_word};
use super::list::List;
use super::recv::Recv;
use super::slots::{Key, NIL, Slots};
use super::unexpected::{Place, Unexpected};
use super::{Source, TagMatch};

/// Messages looked at one by one for a receive with a tag from any source, before tags are indexed.
const SEARCH: usize = 32;

/// The queues of one communicator (but for those of one source, which are with the member).
pub(super) struct Queues {
    lanes: Lanes<EXACT>,
    any_any: List<POSTED>,
    /// Posted receives.
    posted: usize,
    /// Those of them with a wildcard.
    posted_wild: usize,
    /// Unexpected messages.
    unexpected: usize,
    /// Unexpected messages in order of arrival: with tags of users, with tags of the library.
    arrived: [List<ARRIVED>; 2],
    /// By tag alone; empty until wanted.
    tags: Option<Lanes<BY_TAG>>,
    /// Number of the next receive or message.
    order: u64,
}

#[inline]
const fn class(tag: i32) -> usize {
    (tag < 0) as usize
}

impl Queues {
    pub const fn new() -> Self {
        Queues {
            lanes: Lanes::new(),
            any_any: List::EMPTY,
            posted: 0,
            posted_wild: 0,
            unexpected: 0,
            arrived: [List::EMPTY; 2],
            tags: None,
            order: 0,
        }
    }

    pub const fn posted(&self) -> usize {
        self.posted
    }

    pub const fn unexpected(&self) -> usize {
        self.unexpected
    }

    /// Whether nothing waits here at all.
    #[inline(always)]
    pub const fn are_empty(&self) -> bool {
        self.posted | self.unexpected == 0
    }
}

impl Comm {
    /// The list in which a receive of this kind waits.
    #[inline]
    fn posted_list(&mut self, source: Source, tag: TagMatch) -> &mut List<POSTED> {
        match (source, tag) {
            (Source::Any, TagMatch::Any) => &mut self.queues.any_any,
            (Source::Rank(rank), TagMatch::Any) => &mut self.members[rank as usize].posted,
            (source, TagMatch::Tag(tag)) => {
                &mut self.queues.lanes.lane(pair(source_word(source), tag)).posted
            }
        }
    }

    /// Queues a receive that matched nothing.
    #[inline]
    pub fn post(&mut self, recvs: &mut Slots<Recv>, slot: u32) {
        let (source, tag) = (recvs[slot].source, recvs[slot].tag);
        recvs[slot].order = self.queues.order;
        self.queues.order += 1;
        self.queues.posted += 1;
        self.queues.posted_wild += usize::from(is_wild(source, tag));
        self.posted_list(source, tag).push_back(recvs, slot);
    }

    /// Queues a receive of one source and one tag in the slot that `recvs` reuses next, only if there is one, and no message is here: its
    /// name and what is in the slot, to be set.
    #[inline(always)]
    pub fn post_exact<'a>(
        &mut self,
        recvs: &'a mut Slots<Recv>,
        source: u32,
        tag: i32,
    ) -> Option<(Key, &'a mut Recv)> {
        let slot = recvs.next_free();
        let lane = self.queues.lanes.lane(pair(source, tag));
        if slot == NIL || !lane.unexpected.is_empty() {
            return None;
        }
        let links = lane.posted.append(recvs, slot);
        let (key, recv) = recvs.reuse_entry();
        recv.links = links;
        recv.order = self.queues.order;
        self.queues.order += 1;
        self.queues.posted += 1;
        Some((key, recv))
    }

    /// Takes a posted receive out.
    #[inline]
    pub fn unpost(&mut self, recvs: &mut Slots<Recv>, slot: u32) {
        let (source, tag) = (recvs[slot].source, recvs[slot].tag);
        self.queues.posted -= 1;
        self.queues.posted_wild -= usize::from(is_wild(source, tag));
        self.posted_list(source, tag).remove(recvs, slot);
    }

    /// The receive that a message from `source` with `tag` matches: still posted.
    #[inline]
    pub fn find_posted(&mut self, recvs: &Slots<Recv>, source: u32, tag: i32) -> u32 {
        if self.queues.posted == 0 {
            return NIL;
        }
        let exact =
            self.queues.lanes.find(pair(source, tag)).map_or(NIL, |lane| lane.posted.head());
        if self.queues.posted_wild == 0 {
            return exact;
        }
        self.find_posted_wild(recvs, source, tag, exact)
    }

    #[inline(never)]
    fn find_posted_wild(&mut self, recvs: &Slots<Recv>, source: u32, tag: i32, exact: u32) -> u32 {
        let any_source = self.queues.lanes.find(pair(ANY_SOURCE, tag));
        let any_source = any_source.map_or(NIL, |lane| lane.posted.head());
        let (any_tag, any) = if tag >= 0 {
            (self.members[source as usize].posted.head(), self.queues.any_any.head())
        } else {
            (NIL, NIL)
        };
        let candidates = [exact, any_source, any_tag, any];
        let posted = candidates.into_iter().filter(|&slot| slot != NIL);
        posted.min_by_key(|&slot| recvs[slot].order).unwrap_or(NIL)
    }

    /// Takes the receive that a message matches out of the queues, or answers [`NIL`].
    #[inline]
    pub fn take_posted(&mut self, recvs: &mut Slots<Recv>, source: u32, tag: i32) -> u32 {
        self.pop_posted(recvs, source, tag).map_or(NIL, |(slot, _)| slot)
    }

    /// Takes the receive that a message matches out of the queues: its slot and what is in it.
    #[inline(always)]
    pub fn pop_posted<'a>(
        &mut self,
        recvs: &'a mut Slots<Recv>,
        source: u32,
        tag: i32,
    ) -> Option<(u32, &'a mut Recv)> {
        if self.queues.posted == 0 {
            return None;
        }
        if self.queues.posted_wild == 0 {
            let lane = self.queues.lanes.find(pair(source, tag))?;
            let slot = lane.posted.head();
            if slot == NIL {
                return None;
            }
            self.queues.posted -= 1;
            return Some((slot, lane.posted.pop_front(recvs)));
        }
        let slot = self.take_posted_wild(recvs, source, tag);
        (slot != NIL).then(|| (slot, &mut recvs[slot]))
    }

    #[inline(never)]
    fn take_posted_wild(&mut self, recvs: &mut Slots<Recv>, source: u32, tag: i32) -> u32 {
        let slot = self.find_posted(recvs, source, tag);
        if slot != NIL {
            self.unpost(recvs, slot);
        }
        slot
    }

    /// Queues a message that matched nothing.
    #[inline]
    pub fn keep(&mut self, messages: &mut Slots<Unexpected>, slot: u32) {
        let Unexpected { source, tag, .. } = messages[slot];
        messages[slot].order = self.queues.order;
        self.queues.order += 1;
        self.queues.unexpected += 1;
        self.queues.lanes.lane(pair(source, tag)).unexpected.push_back(messages, slot);
        self.queues.arrived[class(tag)].push_back(messages, slot);
        if tag >= 0 {
            self.members[source as usize].unexpected.push_back(messages, slot);
        }
        if let Some(tags) = &mut self.queues.tags {
            tags.lane(pair(0, tag)).unexpected.push_back(messages, slot);
        }
    }

    /// Takes an unexpected message out of the queues.
    #[inline]
    pub fn unkeep(&mut self, messages: &mut Slots<Unexpected>, slot: u32) {
        let Unexpected { source, tag, .. } = messages[slot];
        debug_assert_eq!(messages[slot].place, Place::Queued);
        self.queues.unexpected -= 1;
        self.queues.lanes.lane(pair(source, tag)).unexpected.remove(messages, slot);
        self.queues.arrived[class(tag)].remove(messages, slot);
        if tag >= 0 {
            self.members[source as usize].unexpected.remove(messages, slot);
        }
        if let Some(tags) = &mut self.queues.tags {
            tags.lane(pair(0, tag)).unexpected.remove(messages, slot);
        }
    }

    /// The first message that a receive matches, still queued, or [`NIL`].
    #[inline]
    pub fn find_unexpected(
        &mut self,
        messages: &mut Slots<Unexpected>,
        source: Source,
        tag: TagMatch,
    ) -> u32 {
        if self.queues.unexpected == 0 {
            return NIL;
        }
        match (source, tag) {
            (Source::Rank(rank), TagMatch::Tag(tag)) => {
                self.queues.lanes.find(pair(rank, tag)).map_or(NIL, |lane| lane.unexpected.head())
            }
            (Source::Rank(rank), TagMatch::Any) => self.members[rank as usize].unexpected.head(),
            (Source::Any, TagMatch::Any) => self.queues.arrived[0].head(),
            (Source::Any, TagMatch::Tag(tag)) => self.find_by_tag(messages, tag),
        }
    }

    fn find_by_tag(&mut self, messages: &mut Slots<Unexpected>, tag: i32) -> u32 {
        if self.queues.tags.is_none() {
            let mut at = self.queues.arrived[class(tag)].head();
            for _ in 0..SEARCH {
                if at == NIL || messages[at].tag == tag {
                    return at;
                }
                at = List::<ARRIVED>::next(messages, at);
            }
            self.index_tags(messages);
        }
        let lane = self.queues.tags.as_mut().and_then(|tags| tags.find(pair(0, tag)));
        lane.map_or(NIL, |lane| lane.unexpected.head())
    }

    /// Starts to keep lists by tag. They are kept as long as the communicator.
    #[cold]
    fn index_tags(&mut self, messages: &mut Slots<Unexpected>) {
        let mut tags = Lanes::new();
        for arrived in self.queues.arrived {
            let mut at = arrived.head();
            while at != NIL {
                tags.lane(pair(0, messages[at].tag)).unexpected.push_back(messages, at);
                at = List::<ARRIVED>::next(messages, at);
            }
        }
        self.queues.tags = Some(tags);
    }

    /// All queued messages, those of users first, each kind in order of arrival.
    pub fn kept(&self, messages: &Slots<Unexpected>) -> Vec<u32> {
        let mut kept = Vec::with_capacity(self.queues.unexpected);
        for arrived in self.queues.arrived {
            let mut at = arrived.head();
            while at != NIL {
                kept.push(at);
                at = List::<ARRIVED>::next(messages, at);
            }
        }
        kept
    }
}

#[inline]
fn is_wild(source: Source, tag: TagMatch) -> bool {
    source == Source::Any || tag == TagMatch::Any
}
