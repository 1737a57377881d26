//! Summonses: how members that wait in an operation with a key of its own (`assembly`) reach those that do not know of it.
//!
//! Who waits and learns of a failure or a revocation tells the key and the group to its neighbours on the circulant graph of
//! the group, and whoever hears of it for the first time passes it on, whether it waits, has left, or has never called (then
//! it refuses). Everybody tells log₂ n others, once: n log n messages, however many begin. Who learns that a neighbour
//! has died tells the one that takes its place, until all are known to have left; so the next living member is always told by
//! somebody, and every living member hears of it, whoever dies meanwhile (`ironweave_ft`, circulant graph).
//!
//! ```text
//!            0      1      2        4        6        8
//!  SUMMONS   | kind | last |  cid   | epoch  |  0     |  a piece of the group                          control channel
//!  group     for each run of processes: distance of its first from the end of the run before (zigzag), length; as LEB128
//! ```

use crate::assembly::Standing;
use crate::identity::Refusal;
use crate::{Core, Group};
use ironweave_btl::{Btl, Peer};
use ironweave_ft::{CommKey, Nanos, RankSet, circulant_neighbours};
use std::collections::BTreeMap;

/// First byte of a summons: apart from those of the control plane.
pub(crate) const SUMMONS: u8 = 0x81;
const HEADER: usize = 8;
/// Bytes of a group in one frame.
const PIECE: usize = 8000;
/// Half-received summonses, at most.
const MOST: usize = 1 << 16;
/// Bytes of one run, at most.
const RUN: usize = 10;

/// What is told, and what is being told by others.
#[derive(Default)]
pub(crate) struct Summonses {
    /// Told by this process, for as long as somebody may not have heard of it.
    told: BTreeMap<CommKey, Told>,
    /// Those of which not all pieces are here.
    partial: BTreeMap<(u32, CommKey), Vec<u8>>,
    /// Frames sent.
    sent: u64,
}

struct Told {
    group: Group,
    /// To these ranks.
    ranks: RankSet,
}

fn encode(group: &Group) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut number = |mut value: u64| {
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
    };
    let mut end = 0i64;
    for (first, len) in group.runs() {
        let distance = i64::from(first) - end;
        number((distance << 1 ^ distance >> 63) as u64);
        number(u64::from(len));
        end = i64::from(first) + i64::from(len);
    }
    bytes
}

/// The group, if it is one of processes of a job of `size` (law 9).
fn decode(bytes: &[u8], size: u32) -> Option<Group> {
    let mut rest = bytes;
    let mut number = || {
        let mut value = 0u64;
        for shift in [0, 7, 14, 21, 28] {
            let (&byte, behind) = rest.split_first()?;
            rest = behind;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    };
    let mut runs = Vec::new();
    let mut end = 0i64;
    while let Some(coded) = number() {
        let distance = (coded >> 1) as i64 ^ -((coded & 1) as i64);
        let first = u32::try_from(end.checked_add(distance)?).ok()?;
        let len = u32::try_from(number()?).ok()?;
        end = i64::from(first) + i64::from(len);
        runs.push((first, len));
    }
    rest.is_empty().then(|| Group::from_runs(&runs, size))?
}

impl Summonses {
    /// Whether nobody was told of any.
    pub fn are_none(&self) -> bool {
        self.told.is_empty()
    }
}

impl<B: Btl> Core<B> {
    /// Tells the group of the key, unless that has been done, or all have left already. `from`: who told it here.
    pub(crate) fn summon(&mut self, key: CommKey, group: &Group, from: Option<u32>) {
        let all_left = self.plane.has_ended(key) && self.plane.group(key).is_none();
        if all_left || self.summonses.told.contains_key(&key) {
            return;
        }
        let plane = &self.plane;
        self.summonses.told.retain(|key, _| plane.group(*key).is_some());
        let from = from.and_then(|process| group.rank_of(process));
        let told = Told { group: group.clone(), ranks: from.into_iter().collect() };
        self.summonses.told.insert(key, told);
        self.tell(key, from);
    }

    /// Somebody has died: its place is taken by others.
    pub(crate) fn summon_again(&mut self, dead: u32) {
        if self.summonses.told.is_empty() {
            return;
        }
        let plane = &self.plane;
        self.summonses.told.retain(|key, _| plane.group(*key).is_some());
        let with = self.summonses.told.iter().filter(|(_, told)| told.group.contains(dead));
        let keys: Vec<CommKey> = with.map(|(&key, _)| key).collect();
        keys.into_iter().for_each(|key| self.tell(key, None));
    }

    /// Tells the neighbours that have not been told.
    fn tell(&mut self, key: CommKey, from: Option<u32>) {
        let Some(told) = self.summonses.told.get_mut(&key) else { return };
        let Some(me) = told.group.rank_of(self.me.0) else { return };
        let dead: RankSet =
            self.known.iter().filter_map(|&process| told.group.rank_of(process)).collect();
        let all = circulant_neighbours(me, from, told.group.len(), &dead);
        let new: Vec<u32> = all.into_iter().filter(|&rank| told.ranks.insert(rank)).collect();
        let processes: Vec<u32> =
            new.into_iter().filter_map(|rank| told.group.process(rank)).collect();
        let whole = encode(&told.group);
        let pieces = whole.len().div_ceil(PIECE);
        let frames: Vec<Vec<u8>> = (1..)
            .zip(whole.chunks(PIECE))
            .map(|(number, piece)| {
                let mut frame = vec![SUMMONS, u8::from(number == pieces)];
                for half in [key.cid, key.epoch, 0] {
                    frame.extend_from_slice(&half.to_le_bytes());
                }
                frame.extend_from_slice(piece);
                frame
            })
            .collect();
        self.summonses.sent += (processes.len() * frames.len()) as u64;
        for process in processes {
            frames.iter().for_each(|frame| self.send_control(Peer(process), frame));
        }
    }

    /// Another member waits for this process in an operation that it may not know of.
    pub(crate) fn on_summons(&mut self, from: Peer, frame: &[u8], now: Nanos) {
        let Some((key, group)) = self.read_summons(from, frame) else { return };
        let is_new = !self.summonses.told.contains_key(&key);
        if !is_new || !group.contains(self.me.0) || !group.contains(from.0) || group.len() < 2 {
            return;
        }
        if !self.transients.live.contains_key(&key) && !self.plane.has_ended(key) {
            self.plane.add_comm(key, crate::core::members_for_plane(&group, self.config.size), now);
            self.plane.agree(key, 0, Refusal::Closed.contribution(), now);
            self.plane.free_comm(key, now);
            self.transients.live.insert(key, Standing::Refused);
            self.restless = true;
        }
        self.summon(key, &group, Some(from.0));
    }

    /// The key and the group, when all of it is here and makes sense (law 9).
    fn read_summons(&mut self, from: Peer, frame: &[u8]) -> Option<(CommKey, Group)> {
        let (header, piece) = frame.split_first_chunk::<HEADER>()?;
        let [_, last, c, d, e, f, ..] = *header;
        let key = CommKey { cid: u16::from_le_bytes([c, d]), epoch: u16::from_le_bytes([e, f]) };
        let partial = &mut self.summonses.partial;
        if !key.is_transient() || partial.len() >= MOST {
            return None;
        }
        let here = partial.entry((from.0, key)).or_default();
        here.extend_from_slice(piece);
        if here.len() > RUN * self.config.size as usize {
            partial.remove(&(from.0, key));
            return None;
        }
        if last == 0 {
            return None;
        }
        let whole = partial.remove(&(from.0, key))?;
        Some((key, decode(&whole, self.config.size)?))
    }

    /// Frames of summonses that this process has sent.
    #[must_use]
    pub const fn summonses_sent(&self) -> u64 {
        self.summonses.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn groups_survive_the_wire(members in proptest::collection::hash_set(0u32..5000, 1..300), turn in 0usize..300) {
            let mut members: Vec<u32> = members.into_iter().collect();
            members.sort_unstable();
            let turn = turn % members.len();
            members.rotate_left(turn);
            let group = Group::of(members).expect("distinct");
            prop_assert_eq!(decode(&encode(&group), 5000), Some(group));
        }

        #[test]
        fn garbage_is_refused_or_a_group(bytes in proptest::collection::vec(any::<u8>(), 0..100), size in 1u32..1000) {
            if let Some(group) = decode(&bytes, size) {
                prop_assert!(group.iter().all(|process| process < size));
            }
        }
    }

    #[test]
    fn a_regular_group_is_short_on_the_wire() {
        let group = Group::of((0..4096).filter(|process| process % 3 > 0)).expect("distinct");
        assert!(encode(&group).len() <= 2 * 1366);
    }
}
