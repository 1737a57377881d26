//! Revocations by the board: how a process tells of them, and hears.
//!
//! *Telling.* The revocation is written to one of the teller's own places on the board, and the bell is rung. Both are stores: no message is sent,
//! and nobody is asked.
//!
//! *Hearing.* A process that finds the bell rung since it last heard reads the places of who rang; of everybody, if more than one ring was missed.
//! What it finds twice changes nothing.
//!
//! *Why all living hear if one does.* What one has heard is written on the board, and stays there until all living processes that share the board have
//! said that they heard up to the ring that came after it. Its teller lives, and has rung or will; or it has ended, and then its places stay as they
//! are for ever, and whoever learns of its end reads those of everybody before anything follows from it ([`Plane::hear`], `full`).
//!
//! *Communicators that are being made.* A member may hear of a communicator's revocation before it has it. As long as a process takes part in a creation, and
//! finds what it cannot place, it does not say that it has heard: it is *behind*, and reads again when the creation is over. In no creation, what
//! it cannot place is not its own, for nobody has a communicator before all its members take part in its making.
//!
//! Who has no place left (others compute, and have not heard yet) sends messages, as where the board is not shared.
//!
//! [`Plane::hear`]: crate::Plane::hear

use crate::board::{Board, REVOCATIONS, Ring};
use crate::wire::{CommKey, Scope};

/// One process's part in what is told by the board.
#[derive(Clone, Default, Hash, Debug)]
pub(crate) struct Herald {
    /// Up to where it has heard.
    bell: Ring,
    /// By place, the ring after which it was last written.
    told: [u64; REVOCATIONS],
    /// A place that may be written next, if one was found.
    vacant: Option<usize>,
    /// It has found what it cannot place, in a creation.
    behind: bool,
}

impl Herald {
    /// Whether the bell was rung since this process last heard.
    #[inline]
    pub fn is_called(&self, board: &Board) -> bool {
        board.bell() != self.bell
    }

    pub const fn is_behind(&self) -> bool {
        self.behind
    }

    /// Tells all `others`, the living processes that share the board with `me`. `false`: there is no place, nothing was done.
    pub fn tell(
        &mut self,
        (key, scope): (CommKey, Scope),
        me: u32,
        others: impl Iterator<Item = u32> + Clone,
        board: &Board,
    ) -> bool {
        let find = |told: &[u64; REVOCATIONS]| {
            let heard = others.clone().map(|process| board.heard(process)).min();
            told.iter().position(|ring| heard.is_none_or(|heard| *ring <= heard))
        };
        let Some(at) = self.vacant.take().or_else(|| find(&self.told)) else { return false };
        board.revoke(me, at, key, scope);
        let ring = board.ring(me);
        self.told[at] = ring.count();
        if ring.count() == self.bell.count() + 1 {
            self.have_heard(ring, me, board);
        }
        // They have been told: what follows is for the next time.
        self.vacant = find(&self.told);
        true
    }

    /// Reads what was told since this process last heard, or with `full` whatever is there. `place` is given each revocation and who told of it; `false`: it is
    /// to be given it again.
    pub fn hear(
        &mut self,
        full: bool,
        me: u32,
        sharing: impl Iterator<Item = u32>,
        board: &Board,
        mut place: impl FnMut(u32, CommKey, Scope) -> bool,
    ) {
        let ring = board.bell();
        let missed = ring.count().wrapping_sub(self.bell.count());
        let mut behind = false;
        let mut read = |process: u32| {
            for (key, scope) in board.revocations(process) {
                behind |= !place(process, key, scope);
            }
        };
        let all = full || self.behind || missed > 1;
        sharing
            .filter(|process| *process != me && (all || *process == ring.who()))
            .for_each(&mut read);
        self.behind = behind;
        self.have_heard(ring, me, board);
    }

    fn have_heard(&mut self, ring: Ring, me: u32, board: &Board) {
        self.bell = ring;
        if !self.behind {
            board.has_heard(me, ring);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    const fn key(cid: u16) -> CommKey {
        CommKey { cid, epoch: 3 }
    }

    fn words() -> Vec<AtomicU64> {
        (0..Board::words(3, 1)).map(|_| AtomicU64::new(0)).collect()
    }

    /// What process `me` of three hears.
    fn hear(herald: &mut Herald, me: u32, board: &Board, knows: impl Fn(u16) -> bool) -> Vec<u16> {
        let mut heard = Vec::new();
        herald.hear(false, me, 0..3, board, |_, key, _| {
            heard.push(key.cid);
            knows(key.cid)
        });
        heard
    }

    #[test]
    fn who_missed_several_rings_reads_everybody() {
        let words = words();
        let board = Board::new(&words, 3);
        let [mut one, mut two, mut three] = [(); 3].map(|()| Herald::default());
        assert!(one.tell((key(1), Scope::All), 0, [1, 2].into_iter(), &board));
        assert_eq!(hear(&mut two, 1, &board, |_| true), [1]);
        assert!(two.tell((key(2), Scope::All), 1, [0, 2].into_iter(), &board));
        assert!(!two.is_called(&board), "its own ring is no news");
        assert_eq!(hear(&mut three, 2, &board, |_| true), [1, 2]);
        assert_eq!(hear(&mut one, 0, &board, |_| true), [2]);
        assert!([&one, &two, &three].iter().all(|herald| !herald.is_called(&board)));
    }

    #[test]
    fn nothing_is_written_over_before_all_living_have_heard_it() {
        let words = words();
        let board = Board::new(&words, 3);
        let [mut one, mut two, mut three] = [(); 3].map(|()| Herald::default());
        let others = || [1, 2].into_iter();
        let tell = |one: &mut Herald, cid| one.tell((key(cid), Scope::All), 0, others(), &board);
        assert!((0..8).all(|cid| tell(&mut one, cid)));
        assert!(!tell(&mut one, 8), "all places are in use");
        assert_eq!(hear(&mut two, 1, &board, |_| true).len(), 8);
        assert!(!tell(&mut one, 8), "one has not heard");
        // It is behind: it cannot place the last.
        assert_eq!(hear(&mut three, 2, &board, |cid| cid != 7).len(), 8);
        assert!(three.is_behind() && !tell(&mut one, 8));
        assert_eq!(hear(&mut three, 2, &board, |_| true).len(), 8, "it reads all again");
        assert!(!three.is_behind() && tell(&mut one, 8));
        assert!(hear(&mut two, 1, &board, |_| true).contains(&8));
        assert!((9..16).all(|cid| tell(&mut one, cid)), "those that both have heard");
        assert!(!tell(&mut one, 16));
        // The dead are not waited for.
        assert!(two.is_called(&board));
        assert_eq!(hear(&mut two, 1, &board, |_| true).len(), 8);
        assert!(one.tell((key(16), Scope::All), 0, [1].into_iter(), &board));
    }
}
