//! Who tells whom in which round of an exchange: dissemination with a fan.
//!
//! The living members of a view stand on a ring, by their index among the living. In round r each sends to those
//! j · fan^r further on, j = 1 … fan − 1, and needs what those as far behind send. After round r it has heard, directly or
//! not, from the fan^(r+1) − 1 behind it; so after ⌈log_fan members⌉ rounds from all. What is gathered is idempotent, so
//! it does no harm that the last round may reach around the ring twice.

use crate::set::RankSet;

/// Most slots of a phase: 64 bits say which were heard.
pub(crate) const SLOTS_MAX: u32 = 64;

/// The exchange of one view.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange<'a> {
    /// Size of the group, the dead included.
    pub size: u32,
    /// The dead of the view, by rank.
    pub dead: &'a RankSet,
    /// Rank of this process, which is not dead.
    pub me: u32,
    /// How many are told in a round, and one.
    pub fan: u32,
}

impl Exchange<'_> {
    fn members(&self) -> u32 {
        self.size - self.dead.len() as u32
    }

    /// Number of rounds of a phase; 0 for one alone.
    pub fn rounds(&self) -> u8 {
        let (mut reached, mut rounds) = (1u64, 0);
        while reached < u64::from(self.members()) {
            reached *= u64::from(self.fan);
            rounds += 1;
        }
        rounds
    }

    /// Steps along the ring of a slot; `None` if this view has no such slot.
    fn offset(&self, slot: u8) -> Option<u32> {
        let slot = u32::from(slot);
        if slot < self.fan - 1 {
            // The first round, which is all there is for small groups: without a division.
            return (slot + 1 < self.members()).then_some(slot + 1);
        }
        if slot >= SLOTS_MAX {
            return None; // whatever a peer says
        }
        let (round, j) = (slot / (self.fan - 1), u64::from(slot % (self.fan - 1)) + 1);
        let offset = u64::from(self.fan).checked_pow(round)?.checked_mul(j)?;
        (offset < u64::from(self.members())).then_some(offset as u32)
    }

    /// First slot of a round, and how many it has.
    fn span(&self, round: u8) -> (u32, u32) {
        if round == 0 {
            return (0, (self.members() - 1).min(self.fan - 1));
        }
        let first = u32::from(round) * (self.fan - 1);
        let Some(step) = u64::from(self.fan).checked_pow(u32::from(round)) else {
            return (first, 0);
        };
        let within = u64::from(self.members() - 1) / step;
        let count = within.min(u64::from(self.fan - 1)) as u32;
        (first, count.min(SLOTS_MAX.saturating_sub(first)))
    }

    /// The slots of a round, which are those that must be heard before the next.
    pub fn slots(&self, round: u8) -> impl Iterator<Item = u8> + use<> {
        let (first, count) = self.span(round);
        (first..first + count).map(|slot| slot as u8)
    }

    /// The slots of a round as bits.
    pub fn mask(&self, round: u8) -> u64 {
        match self.span(round) {
            (_, 0) => 0,
            (first, count) => u64::MAX >> (SLOTS_MAX - count) << first,
        }
    }

    /// Whom this process tells in a slot.
    pub fn target(&self, slot: u8) -> Option<u32> {
        let offset = self.offset(slot)?;
        let index = self.dead.index_among_living(self.me);
        Some(self.dead.living_at(around(index, offset, self.members())))
    }

    /// Whom this process hears in a slot.
    pub fn source(&self, slot: u8) -> Option<u32> {
        let offset = self.offset(slot)?;
        let index = self.dead.index_among_living(self.me);
        Some(self.dead.living_at(around(index, self.members() - offset, self.members())))
    }

    /// Everybody whom this process tells in some round.
    pub fn targets(&self) -> impl Iterator<Item = u32> + use<'_> {
        (0..self.rounds()).flat_map(|round| self.slots(round)).filter_map(|slot| self.target(slot))
    }
}

/// `index + offset` on a ring of `members`, both less than it or equal, without overflow.
fn around(index: u32, offset: u32, members: u32) -> u32 {
    let at = u64::from(index) + u64::from(offset);
    if at < u64::from(members) { at as u32 } else { (at - u64::from(members)) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots come from peers, who may name any.
    #[test]
    fn every_number_is_a_slot_or_none() {
        let dead = RankSet::default();
        for fan in 2..=64 {
            for size in [1, 2, 6, 64, 1000, 1 << 20] {
                let exchange = Exchange { size, dead: &dead, me: size / 2, fan };
                let slots = (0..=u8::MAX).filter(|&slot| exchange.source(slot).is_some());
                let told: Vec<u8> =
                    (0..exchange.rounds()).flat_map(|round| exchange.slots(round)).collect();
                assert!(slots.eq(told), "fan {fan}, {size} members");
            }
        }
    }

    /// For every size, fan and some dead: what one sends in a slot the other expects in it, and after all rounds
    /// everybody has heard from everybody.
    #[test]
    fn everybody_hears_from_everybody() {
        for size in 1..70u32 {
            for (fan, dead) in [(2, 0), (3, 5), (4, 0), (4, 3), (8, 1)] {
                let dead: RankSet = (0..size).filter(|rank| dead > 0 && rank % dead == 1).collect();
                let living: Vec<u32> = (0..size).filter(|rank| !dead.contains(*rank)).collect();
                let exchange = |me| Exchange { size, dead: &dead, me, fan };
                let mut heard: Vec<u128> = (0..size).map(|rank| 1 << rank).collect();
                let rounds = exchange(living[0]).rounds();
                for round in 0..rounds {
                    let before = heard.clone();
                    for me in &living {
                        for slot in exchange(*me).slots(round) {
                            let target = exchange(*me).target(slot).expect("a slot of the view");
                            assert_eq!(exchange(target).source(slot), Some(*me));
                            assert_ne!(target, *me);
                            heard[target as usize] |= before[*me as usize];
                        }
                    }
                }
                let all = living.iter().fold(0u128, |all, rank| all | 1 << rank);
                assert!(
                    living.iter().all(|rank| heard[*rank as usize] == all),
                    "{size} {fan} {dead:?}"
                );
            }
        }
    }

    #[test]
    fn masks_have_the_slots_that_exist() {
        for (size, fan) in (1..200).flat_map(|size| [2, 3, 4, 8, 16, 32].map(|fan| (size, fan))) {
            let dead = RankSet::new();
            let exchange = Exchange { size, dead: &dead, me: 0, fan };
            for round in 0..=exchange.rounds() {
                let first = u32::from(round) * (fan - 1);
                let there =
                    |slot: &u32| *slot < SLOTS_MAX && exchange.offset(*slot as u8).is_some();
                let slots: Vec<u8> =
                    (first..first + fan - 1).filter(there).map(|slot| slot as u8).collect();
                assert_eq!(
                    exchange.slots(round).collect::<Vec<_>>(),
                    slots,
                    "{size} {fan} {round}"
                );
                let mask = slots.iter().fold(0u64, |mask, slot| mask | 1 << slot);
                assert_eq!(exchange.mask(round), mask);
            }
        }
    }

    #[test]
    fn slots_fit_for_the_biggest_jobs() {
        for (size, fan) in [(1 << 30, 4), (1 << 20, 8), (u32::MAX, 2), (u32::MAX, 4)] {
            let dead = RankSet::new();
            let exchange = Exchange { size, dead: &dead, me: 0, fan };
            let last =
                exchange.slots(exchange.rounds() - 1).last().expect("the last round has slots");
            assert!(u32::from(last) < SLOTS_MAX);
            assert!(exchange.target(last).is_some() && exchange.source(last).is_some());
        }
    }
}
