//! Identities of communicators: (cid, epoch), chosen together by all members in one reduction.
//!
//! Seed 000, "Changing CID algorithms": every rank proposes one *or many* ids that are free at it, a reduction finds one that is
//! free everywhere, the epoch is folded into the confirmation, "ideally in a combined fashion". Here a member offers all
//! free ids of a *window* as bits, and nothing else may have them until the outcome is known, so the bitwise AND over the
//! members confirms as it chooses (creations that meet in one window in different orders get different ids: each offers a
//! random half of it, by its parent, and goes on to windows in an order of its own); the maximum of the first epochs that are unused at each member comes with it (law 4). The
//! reduction is an agreement, so all members learn the same, whoever dies (law 7).
//!
//! ```text
//!  bit  0 … 59   ids of the window that are free here
//!       60       willing: this member goes on with the creation
//!       61       open: creations on the parent still succeed at this member
//!       62       the parent is not revoked at this member
//!       63       nothing else went wrong at this member (an argument)
//! ```

use ironweave_ft::Contribution;
use std::collections::BTreeMap;

/// Ids live at a time in one process, at most. Ids above are keys of the control plane that no message carries.
pub(crate) const CIDS: u16 = 1 << 14;
/// Ids in a window.
const WINDOW: u16 = 60;
/// Lives of an id. Half of what fits: whoever compares two epochs modulo 2^16 never errs about which is later.
const EPOCHS: u16 = 1 << 15;
/// How many windows there are: a prime, so that steps of any length come by all of them.
pub(crate) const WINDOWS: u16 = 271;
const _: () = assert!(WINDOWS * WINDOW <= CIDS);

const WILLING: u64 = 1 << 60;
const OPEN: u64 = 1 << 61;
const NOT_REVOKED: u64 = 1 << 62;
const SOUND: u64 = 1 << 63;
const IDS: u64 = (1 << WINDOW) - 1;

/// The ids of this process.
#[derive(Default)]
pub(crate) struct Ids {
    /// Bits of ids in use or offered, by window.
    taken: BTreeMap<u16, u64>,
    /// The first unused epoch of ids that were used before; [`EPOCHS`] when there is none left.
    next_epoch: BTreeMap<u16, u16>,
    /// Rounds after which another window had to be tried.
    pub repeated: u64,
}

/// Where a creation looks for ids in one round; the same at all members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Search {
    pub window: u16,
    mask: u64,
}

/// Rounds after which a creation has looked everywhere.
pub(crate) const ROUNDS: u16 = 2 * WINDOWS;

impl Search {
    /// Round `round` of a creation known by `salt`, of which the first looks at `window`.
    pub const fn new(window: u16, salt: u64, round: u16) -> Search {
        let step = 1 + mix(salt) % (WINDOWS as u64 - 1);
        let window = ((window as u64 + round as u64 * step) % WINDOWS as u64) as u16;
        // After all windows the other halves.
        let half = mix(salt ^ (round % WINDOWS) as u64);
        let mask = if round < WINDOWS { half } else { !half };
        Search { window, mask: mask & IDS }
    }
}

/// Mixes a number well: the finalizer of splitmix64.
pub(crate) const fn mix(number: u64) -> u64 {
    let mut word = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// What this process offers in one round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offer {
    pub window: u16,
    bits: u64,
    epoch: u16,
}

/// An identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub cid: u16,
    pub epoch: u16,
}

/// Why a member does not go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The parent is revoked here.
    Revoked,
    /// A failure, or a link that was given up, has ended collectives of the parent here.
    Closed,
    /// This creation is wrong here; the next one may succeed.
    Unsound,
}

/// What the members have decided in one round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Round {
    /// These identities, as many as were asked for.
    Chosen(Vec<Identity>),
    /// Not enough ids are free everywhere in this window: try the next one.
    Next,
    /// Again, with what is known now.
    Again,
    /// Somebody does not go on. The worst of the reasons.
    Refused(Refusal),
}

impl Ids {
    /// Takes an id without asking anybody: for communicators that exist from the start.
    pub fn take(&mut self, cid: u16) {
        *self.taken.entry(cid / WINDOW).or_default() |= 1 << (cid % WINDOW);
    }

    /// The id is free again, from the epoch after `identity`'s on.
    pub fn release(&mut self, identity: Identity) {
        self.next_epoch.insert(identity.cid, identity.epoch + 1);
        self.untake(identity.cid / WINDOW, 1 << (identity.cid % WINDOW));
    }

    fn untake(&mut self, window: u16, bits: u64) {
        if let Some(taken) = self.taken.get_mut(&window) {
            *taken &= !bits;
            if *taken == 0 {
                self.taken.remove(&window);
            }
        }
    }

    /// Offers what is free in a window. It stays reserved until [`settle`](Ids::settle).
    pub fn offer(&mut self, Search { window, mask }: Search) -> Offer {
        let mut bits = !self.taken.get(&window).copied().unwrap_or(0) & mask;
        let mut epoch = 0;
        let first = window * WINDOW;
        for (&cid, &next) in self.next_epoch.range(first..first + WINDOW) {
            let bit = 1 << (cid % WINDOW);
            if next >= EPOCHS {
                bits &= !bit;
            } else if bits & bit != 0 {
                epoch = epoch.max(next);
            }
        }
        *self.taken.entry(window).or_default() |= bits;
        Offer { window, bits, epoch }
    }

    /// The round of this offer is over: what was not chosen is free again.
    pub fn settle(&mut self, offer: Offer, chosen: &[Identity]) {
        let kept = chosen.iter().fold(0, |kept, id| kept | 1 << (id.cid % WINDOW));
        self.untake(offer.window, offer.bits & !kept);
    }
}

impl Identity {
    /// The window that its id is in.
    pub const fn window(self) -> u16 {
        self.cid / WINDOW
    }

    /// As a number.
    pub const fn number(self) -> u64 {
        (self.cid as u64) << 16 | self.epoch as u64
    }
}

impl Offer {
    /// This member's part in the round.
    pub fn contribution(self) -> Contribution {
        let flag = self.bits | SOUND | NOT_REVOKED | OPEN | WILLING;
        Contribution { flag, highest: u64::from(self.epoch), ..Contribution::default() }
    }

    /// The part of a member that will not be in what is made: it has nothing against any id.
    pub fn of_others() -> Contribution {
        Contribution { flag: !0, ..Contribution::default() }
    }
}

impl Refusal {
    /// The part of a member that does not go on.
    pub fn contribution(self) -> Contribution {
        let all = !(IDS | WILLING);
        let flag = match self {
            Refusal::Revoked => all & !(OPEN | NOT_REVOKED),
            Refusal::Closed => all & !OPEN,
            Refusal::Unsound => all & !SOUND,
        };
        Contribution { flag, ..Contribution::default() }
    }
}

/// What the AND over all parts, and the highest of the epochs, say, when `wanted` ids of `window` are looked for.
pub(crate) fn outcome(flag: u64, epoch: u64, window: u16, wanted: usize) -> Round {
    if flag & WILLING == 0 {
        return Round::Refused(if flag & NOT_REVOKED == 0 {
            Refusal::Revoked
        } else if flag & OPEN == 0 {
            Refusal::Closed
        } else {
            Refusal::Unsound
        });
    }
    // Nobody offers an id with a higher one.
    let epoch = epoch.min(u64::from(EPOCHS) - 1) as u16;
    let free = (0..WINDOW).filter(|at| flag & 1 << at != 0);
    let first = window * WINDOW;
    let chosen: Vec<_> = free.take(wanted).map(|at| Identity { cid: first + at, epoch }).collect();
    if chosen.len() == wanted { Round::Chosen(chosen) } else { Round::Next }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Members with random histories find an identity that is new to each of them, and one creation at a time has it.
        #[test]
        fn what_is_chosen_is_free_and_new_everywhere(
            used in prop::collection::vec(prop::collection::vec((0..2 * WINDOW, 0..9u16, any::<bool>()), 0..50), 1..5),
            wanted in 1..3usize,
        ) {
            let mut members: Vec<Ids> = used.iter().map(|used| {
                let mut ids = Ids::default();
                for &(cid, epoch, freed) in used {
                    ids.take(cid);
                    if freed {
                        ids.release(Identity { cid, epoch });
                    }
                }
                ids
            }).collect();
            let mut tried = 0;
            let chosen = loop {
                let search = Search::new(0, 7, tried);
                let window = search.window;
                let offers: Vec<Offer> = members.iter_mut().map(|ids| ids.offer(search)).collect();
                let flag = offers.iter().fold(!0, |flag, offer| flag & offer.contribution().flag);
                // Another creation of the same process gets nothing of what is offered.
                prop_assert_eq!(members[0].offer(search).bits, 0);
                let epoch = offers.iter().map(|offer| offer.contribution().highest).max().unwrap_or(0);
                let round = outcome(flag, epoch, window, wanted);
                let chosen = if let Round::Chosen(chosen) = &round { &chosen[..] } else { &[] };
                for (ids, offer) in members.iter_mut().zip(offers) {
                    ids.settle(offer, chosen);
                }
                match round {
                    Round::Chosen(chosen) => break chosen,
                    other => prop_assert_eq!(other, Round::Next),
                }
                tried += 1;
            };
            prop_assert_eq!(chosen.len(), wanted);
            for &Identity { cid, epoch } in &chosen {
                for (ids, used) in members.iter().zip(&used) {
                    let last = used.iter().rev().find(|&&(id, ..)| id == cid);
                    prop_assert!(last.is_none_or(|&(_, last, freed)| freed && last < epoch));
                    prop_assert!(ids.taken[&(cid / WINDOW)] & 1 << (cid % WINDOW) != 0);
                }
            }
        }
    }

    const ALL: Search = Search { window: 0, mask: IDS };

    #[test]
    fn a_search_comes_by_every_id() {
        for salt in 0..20 {
            let mut seen = BTreeMap::new();
            for round in 0..ROUNDS {
                let Search { window, mask } = Search::new(5, salt, round);
                *seen.entry(window).or_insert(0) |= mask;
            }
            assert_eq!(seen.len(), usize::from(WINDOWS));
            assert!(seen.values().all(|&mask| mask == IDS));
        }
    }

    #[test]
    fn who_refuses_is_heard_and_the_worst_reason_counts() {
        let mut ids = Ids::default();
        let offer = ids.offer(ALL);
        let with = |others: &[Refusal]| {
            let flag = others
                .iter()
                .fold(offer.contribution().flag, |flag, other| flag & other.contribution().flag);
            outcome(flag, 0, 0, 1)
        };
        assert!(matches!(with(&[]), Round::Chosen(_)));
        assert_eq!(with(&[Refusal::Unsound]), Round::Refused(Refusal::Unsound));
        assert_eq!(with(&[Refusal::Unsound, Refusal::Closed]), Round::Refused(Refusal::Closed));
        assert_eq!(with(&[Refusal::Revoked, Refusal::Closed]), Round::Refused(Refusal::Revoked));
    }

    #[test]
    fn an_id_whose_epochs_are_used_up_is_never_offered_again() {
        let mut ids = Ids::default();
        ids.take(3);
        ids.release(Identity { cid: 3, epoch: EPOCHS - 1 });
        let offer = ids.offer(ALL);
        assert_eq!((offer.bits, offer.epoch), (IDS & !(1 << 3), 0));
        ids.settle(offer, &[]);
        assert!(ids.taken.is_empty());
    }
}
