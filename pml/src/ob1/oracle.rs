//! The matcher against a plain list: any mix of receives, messages, cancellations and probes matches the same.

use super::comm::{CommSpec, Comms};
use super::recv::Recv;
use super::slots::{NIL, Slots};
use super::unexpected::{Place, Unexpected};
use super::{CommId, Source, TagMatch};
use ironweave_btl::Peer;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Receive(Source, TagMatch),
    Message(u32, i32),
    Cancel(usize),
    Probe(Source, TagMatch),
}

const SOURCES: u32 = 3;

fn sources() -> impl Strategy<Value = Source> {
    prop_oneof![Just(Source::Any), (0..SOURCES).prop_map(Source::Rank)]
}

/// Tags of users and of the library; enough of them that tags get indexed.
fn tag() -> impl Strategy<Value = i32> {
    prop_oneof![4 => 0..40i32, 1 => -3..0i32]
}

fn tags() -> impl Strategy<Value = TagMatch> {
    prop_oneof![Just(TagMatch::Any), tag().prop_map(TagMatch::Tag)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (sources(), tags()).prop_map(|(source, tag)| Step::Receive(source, tag)),
        (0..SOURCES, tag()).prop_map(|(source, tag)| Step::Message(source, tag)),
        any::<usize>().prop_map(Step::Cancel),
        (sources(), tags()).prop_map(|(source, tag)| Step::Probe(source, tag)),
    ];
    // Phases of mostly messages and of mostly receives, so that long queues form of both.
    let many = (0..SOURCES, tag()).prop_map(|(source, tag)| Step::Message(source, tag));
    let posts = (sources(), tags()).prop_map(|(source, tag)| Step::Receive(source, tag));
    (
        proptest::collection::vec(many, 0..80),
        proptest::collection::vec(step, 0..120),
        proptest::collection::vec(posts, 0..80),
    )
        .prop_map(|(a, b, c)| [a, b, c].concat())
}

fn matches(source: Source, tag: TagMatch, (from, with): (u32, i32)) -> bool {
    let source = match source {
        Source::Any => true,
        Source::Rank(rank) => rank == from,
    };
    source
        && match tag {
            TagMatch::Any => with >= 0,
            TagMatch::Tag(tag) => tag == with,
        }
}

/// The matcher with its slabs.
struct Matcher {
    comms: Comms,
    id: CommId,
    recvs: Slots<Recv>,
    messages: Slots<Unexpected>,
}

impl Matcher {
    fn new() -> Self {
        let mut comms = Comms::new();
        let group = (0..SOURCES).map(Peer).collect();
        let id = comms.add(CommSpec::intra(3, 0, 0, group)).expect("the first");
        Matcher { comms, id, recvs: Slots::new(), messages: Slots::new() }
    }

    /// The message matched, or the receive posted.
    fn receive(&mut self, source: Source, tag: TagMatch) -> Result<u32, u32> {
        let comm = self.comms.at(self.id.slot);
        let message = comm.find_unexpected(&mut self.messages, source, tag);
        if message != NIL {
            comm.unkeep(&mut self.messages, message);
            return Ok(message);
        }
        let slot = self.recvs.take(Recv::fresh).slot;
        (self.recvs[slot].source, self.recvs[slot].tag) = (source, tag);
        match (source, tag) {
            (Source::Rank(rank), TagMatch::Tag(tag)) => {
                self.recvs.free(slot); // to be taken again
                let posted = comm.post_exact(&mut self.recvs, rank, tag);
                assert_eq!(posted.map(|(key, _)| key.slot), Some(slot));
            }
            _ => comm.post(&mut self.recvs, slot),
        }
        Err(slot)
    }

    /// The receive matched, or the message kept.
    fn message(&mut self, source: u32, tag: i32) -> Result<u32, u32> {
        let comm = self.comms.at(self.id.slot);
        let slot = comm.take_posted(&mut self.recvs, source, tag);
        if slot != NIL {
            return Ok(slot);
        }
        let slot = self.messages.insert(Unexpected::VACANT).slot;
        let message = &mut self.messages[slot];
        (message.source, message.tag, message.place) = (source, tag, Place::Queued);
        comm.keep(&mut self.messages, slot);
        Err(slot)
    }
}

proptest! {
    #[test]
    fn matches_like_a_list(steps in steps()) {
        let mut matcher = Matcher::new();
        let mut posted: Vec<(u32, Source, TagMatch)> = Vec::new();
        let mut kept: Vec<(u32, (u32, i32))> = Vec::new();
        for step in steps {
            match step {
                Step::Receive(source, tag) => {
                    let expected = kept.iter().position(|&(_, m)| matches(source, tag, m));
                    match (matcher.receive(source, tag), expected) {
                        (Ok(message), Some(at)) => prop_assert_eq!(message, kept.remove(at).0),
                        (Err(slot), None) => posted.push((slot, source, tag)),
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
                Step::Message(source, tag) => {
                    let wanted = |&(_, s, t): &(u32, Source, TagMatch)| matches(s, t, (source, tag));
                    let expected = posted.iter().position(wanted);
                    match (matcher.message(source, tag), expected) {
                        (Ok(slot), Some(at)) => prop_assert_eq!(slot, posted.remove(at).0),
                        (Err(slot), None) => kept.push((slot, (source, tag))),
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
                Step::Cancel(which) if !posted.is_empty() => {
                    let (slot, ..) = posted.remove(which % posted.len());
                    matcher.comms.at(matcher.id.slot).unpost(&mut matcher.recvs, slot);
                }
                Step::Cancel(_) => {}
                Step::Probe(source, tag) => {
                    let comm = matcher.comms.at(matcher.id.slot);
                    let found = comm.find_unexpected(&mut matcher.messages, source, tag);
                    let expected = kept.iter().find(|&&(_, m)| matches(source, tag, m));
                    prop_assert_eq!(found, expected.map_or(NIL, |m| m.0));
                }
            }
            let queues = &matcher.comms.at(matcher.id.slot).queues;
            prop_assert_eq!((queues.posted(), queues.unexpected()), (posted.len(), kept.len()));
        }
        let comm = matcher.comms.at(matcher.id.slot);
        let mut expected = kept.clone();
        expected.sort_by_key(|(_, (_, tag))| *tag < 0);
        let expected: Vec<u32> = expected.iter().map(|(slot, _)| *slot).collect();
        prop_assert_eq!(comm.kept(&matcher.messages), expected);
    }
}
