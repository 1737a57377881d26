//! Sets of ranks: small, ordered, and able to count around the dead.
//!
//! A set of the dead of a group of n answers in O(log dead) which living rank is the i-th, and who lives next on the
//! ring; that is what rebuilds every graph of the control plane after a failure. It never allocates while it is empty.

/// A set of ranks or processes, in ascending order.
///
/// ```
/// use ironweave_ft::RankSet;
/// let mut failed: RankSet = [7, 2].into_iter().collect();
/// assert!(failed.insert(3) && !failed.insert(3));
/// assert_eq!(failed.iter().collect::<Vec<_>>(), [2, 3, 7]);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct RankSet(Vec<u32>);

impl RankSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        RankSet(Vec::new())
    }

    /// Adds `rank`; `false` when it was there.
    pub fn insert(&mut self, rank: u32) -> bool {
        match self.0.binary_search(&rank) {
            Ok(_) => false,
            Err(at) => {
                self.0.insert(at, rank);
                true
            }
        }
    }

    /// Whether `rank` is a member.
    #[must_use]
    pub fn contains(&self, rank: u32) -> bool {
        self.0.binary_search(&rank).is_ok()
    }

    /// Number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The members, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// The members, ascending.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        &self.0
    }

    /// Whether every member is also one of `other`.
    #[must_use]
    pub fn is_subset(&self, other: &RankSet) -> bool {
        self.len() <= other.len() && self.iter().all(|rank| other.contains(rank))
    }

    /// Adds all members of `other`.
    pub fn union_with(&mut self, other: &RankSet) {
        if !other.is_subset(self) {
            self.0.extend_from_slice(&other.0);
            self.0.sort_unstable();
            self.0.dedup();
        }
    }

    /// Takes these out.
    pub(crate) fn remove_all(&mut self, ranks: &[u32]) {
        self.0.retain(|member| !ranks.contains(member));
    }

    /// The set whose members are `ranks`, which ascend strictly: what decoders have checked already.
    pub(crate) fn from_ascending(ranks: Vec<u32>) -> Self {
        debug_assert!(ranks.windows(2).all(|pair| pair[0] < pair[1]));
        RankSet(ranks)
    }

    /// With the members being the dead of a group: the index of the living `rank` among the living.
    pub(crate) fn index_among_living(&self, rank: u32) -> u32 {
        rank - self.0.partition_point(|dead| *dead < rank) as u32
    }

    /// With the members being the dead of a group: the living rank with this index among the living.
    pub(crate) fn living_at(&self, index: u32) -> u32 {
        // `dead[i] - i` living ranks precede the i-th dead one, and that number never falls.
        let (mut low, mut high) = (0, self.0.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.0[middle] - middle as u32 <= index { low = middle + 1 } else { high = middle }
        }
        index + low as u32
    }

    /// With the members being the dead of a group of `size`: the first living rank at or after `rank` on the ring.
    /// `None` when nobody lives.
    pub(crate) fn next_living(&self, rank: u32, size: u32) -> Option<u32> {
        let living = size - self.0.len() as u32;
        if living == 0 {
            return None;
        }
        let before = rank - self.0.partition_point(|dead| *dead < rank) as u32;
        Some(self.living_at(if before == living { 0 } else { before }))
    }
}

impl FromIterator<u32> for RankSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ranks: I) -> Self {
        let mut ranks: Vec<u32> = ranks.into_iter().collect();
        ranks.sort_unstable();
        ranks.dedup();
        RankSet(ranks)
    }
}

impl std::fmt::Debug for RankSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(&self.0).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Counting around the dead agrees with a list of the living.
        #[test]
        fn counts_around_the_dead(size in 1u32..60, dead in proptest::collection::vec(0u32..60, 0..60)) {
            let dead: RankSet = dead.into_iter().filter(|rank| *rank < size).collect();
            let living: Vec<u32> = (0..size).filter(|rank| !dead.contains(*rank)).collect();
            for (index, rank) in living.iter().enumerate() {
                prop_assert_eq!(dead.index_among_living(*rank), index as u32);
                prop_assert_eq!(dead.living_at(index as u32), *rank);
            }
            for from in 0..size {
                let next = living.iter().find(|rank| **rank >= from).or(living.first()).copied();
                prop_assert_eq!(dead.next_living(from, size), next);
            }
        }

        #[test]
        fn union_is_union(a in proptest::collection::btree_set(0u32..40, 0..20), b in proptest::collection::btree_set(0u32..40, 0..20)) {
            let (left, right): (RankSet, RankSet) = (a.iter().copied().collect(), b.iter().copied().collect());
            let mut both = left.clone();
            both.union_with(&right);
            prop_assert_eq!(both.iter().collect::<Vec<_>>(), a.union(&b).copied().collect::<Vec<_>>());
            prop_assert!(left.is_subset(&both) && right.is_subset(&both));
            prop_assert_eq!(both.is_subset(&left), b.is_subset(&a));
        }
    }
}
