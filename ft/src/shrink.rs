//! Shrink: agreements on who has failed, until nothing changed during one. All survivors come to the same group.
//!
//! Each round is one agreement. Everybody contributes as acknowledged all failures that it knows, so the result says
//! whether every participant began the round knowing all that was agreed to have failed. If so, the round is the last:
//! usually the first, when the failure notices came before the shrink. If not, somebody died (or its death became known)
//! during the round, and there is another. All see the same results, so all do the same number of rounds: at most one
//! more than there are failures.
//!
//! What the owner does: it starts a shrink on all living members of the communicator (revoked or not), gives it the
//! decisions of its agreements, and makes the new communicator when it is over: group [`Shrunk::group`], and what the new
//! communicator needs is carried by the last round: `flag` (bitwise AND: say, 64 ids that are free here, as bits) and
//! `highest` (say, the highest epoch used here). Everybody gets the same [`Shrunk`], so if one makes the communicator all
//! survivors do. A member of the new group may die before it made it; then it is a failure of the new communicator.

use crate::group::Group;
use crate::plane::{Contribution, Decided, Nanos, Plane};
use crate::set::RankSet;
use crate::wire::CommKey;
use std::sync::Arc;

/// Bits of an agreement's number that count rounds.
const ROUND_BITS: u32 = 20;

/// The number of the (first) agreement of an operation, to be given to [`Plane::agree`]: operations of a communicator are
/// counted by its owner, in the order in which they begin, and a [`Shrink`] takes several numbers of one operation.
///
/// # Panics
/// From 2⁴⁴ operations on.
#[must_use]
pub fn agreement_number(operation: u64) -> u64 {
    assert!(operation < 1 << (u64::BITS - ROUND_BITS), "more operations than can be numbered");
    operation << ROUND_BITS
}

/// A shrink that is under way. It never blocks.
///
/// ```
/// use ironweave_ft::{CommKey, Effect, Group, Plane, PlaneConfig, Shrink};
///
/// let key = CommKey { cid: 0, epoch: 0 };
/// let mut plane = Plane::new(0, 2, PlaneConfig::default());
/// plane.add_comm(key, Group::world(2), 0);
/// plane.failed(1, 0);
/// // Free ids, as bits; the highest epoch that was in use here.
/// let mut shrink = Shrink::start(&mut plane, key, 7, 0b1100, 5, 0);
/// let decided = loop {
///     match plane.poll_effect().expect("nobody else lives") {
///         Effect::Decided(decided) if shrink.is_mine(&decided) => break decided,
///         _ => {}
///     }
/// };
/// let shrunk = shrink.decided(&mut plane, &decided, 0b1100, 5, 0).expect("nothing changed");
/// assert_eq!((&shrunk.group()[..], shrunk.flag, shrunk.highest), (&[0][..], 0b1100, 5));
/// ```
#[derive(Clone, Hash, Debug)]
pub struct Shrink {
    key: CommKey,
    /// Number of the agreement under way.
    seq: u64,
}

/// The end of a shrink, the same at all survivors.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Shrunk {
    /// The communicator that was shrunk.
    of: Group,
    /// Those left out.
    pub failed: RankSet,
    /// Bitwise AND of what was given for the last round.
    pub flag: u64,
    /// Maximum of it.
    pub highest: u64,
}

impl Shrunk {
    /// The surviving processes, in the order of the communicator: a list that is made here, in O(n).
    #[must_use]
    pub fn group(&self) -> Arc<[u32]> {
        let all = (0..self.of.size()).map(|rank| self.of.process(rank));
        all.filter(|process| !self.failed.contains(*process)).collect()
    }
}

impl Shrink {
    /// Begins operation `operation` of the communicator: all living members must, as with [`Plane::agree`].
    ///
    /// # Panics
    /// As [`Plane::agree`].
    pub fn start(
        plane: &mut Plane,
        key: CommKey,
        operation: u64,
        flag: u64,
        highest: u64,
        now: Nanos,
    ) -> Self {
        let shrink = Shrink { key, seq: agreement_number(operation) };
        shrink.contribute(plane, flag, highest, now);
        shrink
    }

    /// Whether a decision is of the agreement that this waits for.
    #[must_use]
    pub fn is_mine(&self, decided: &Decided) -> bool {
        (decided.key, decided.seq) == (self.key, self.seq)
    }

    /// Takes the decision for which [`is_mine`](Self::is_mine) holds. `None`: another round has begun, with `flag` and
    /// `highest` as they are now.
    pub fn decided(
        &mut self,
        plane: &mut Plane,
        decided: &Decided,
        flag: u64,
        highest: u64,
        now: Nanos,
    ) -> Option<Shrunk> {
        debug_assert!(self.is_mine(decided));
        if !decided.acknowledged {
            self.seq += 1;
            self.contribute(plane, flag, highest, now);
            return None;
        }
        let group = plane.group(self.key).expect("a communicator is not freed while it is shrunk");
        Some(Shrunk {
            of: group.clone(),
            failed: decided.failed.clone(),
            flag: decided.flag,
            highest: decided.highest,
        })
    }

    fn contribute(&self, plane: &mut Plane, flag: u64, highest: u64, now: Nanos) {
        let acknowledged = plane.dead().clone();
        plane.agree(self.key, self.seq, Contribution { flag, highest, acknowledged }, now);
    }
}
