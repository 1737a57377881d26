//! What the control plane does by the board that the processes of a host share: agreements of flags, and revocations.

use super::{Effect, Look, Plane};
use crate::board::Board;
use crate::comm::Life;
use crate::wire::{CommKey, Scope};

impl Plane {
    /// Promises that these processes and this one read and write the same [`Board`], from now on, and that each is known to have failed only
    /// after it has run its last instruction. Does nothing without [`PlaneConfig::fail_stop`](super::PlaneConfig::fail_stop).
    pub fn share_board(&mut self, processes: impl IntoIterator<Item = u32>) {
        if self.config.fail_stop {
            self.sharing = processes.into_iter().filter(|process| *process < self.size).collect();
            self.comms.iter_mut().for_each(|comm| comm.shares(&self.sharing));
        }
    }

    /// [`agree`](Self::agree) of flags alone by the board, where all members share it and nothing is out of the ordinary: posts the flag. The
    /// outcome is what [`look`](Self::look) says, not an effect. `false`: nothing was done, and `agree` is to be called for this number.
    pub fn post(&mut self, key: CommKey, seq: u64, flag: u64, board: &Board) -> bool {
        let Ok(at) = self.find(key) else { return false };
        let comm = &mut self.comms[at];
        if self.fenced || !comm.may_post(seq) {
            return false;
        }
        if comm.slot.is_none() {
            let slot = board.slot(key);
            if self.slots & 1 << slot != 0 {
                return false;
            }
            self.slots |= 1 << slot;
            comm.slot = Some(slot);
            board.claim(slot, self.me, key);
        }
        comm.post(seq, flag, self.me, board)
    }

    /// What has become of agreement `seq`, which [`post`](Self::post) has begun. Costs a look at each member's line of the board that was not
    /// seen yet.
    pub fn look(&mut self, key: CommKey, seq: u64, board: &Board) -> Look {
        match self.find(key) {
            Ok(at) => self.comms[at].look(seq, self.me, board),
            Err(_) => Look::Split,
        }
    }

    /// [`revoke`](Self::revoke) by the board, where all members share it: one store, and the bell is rung. The others [`hear`](Self::hear) of it. `false`: nothing was
    /// done, and `revoke` is to be called.
    pub fn revoke_by_board(&mut self, key: CommKey, scope: Scope, board: &Board) -> bool {
        let Ok(at) = self.find(key) else { return false };
        let comm = &mut self.comms[at];
        if self.fenced || !comm.is_told_by_board() || !matches!(comm.life, Life::Here) {
            return false;
        }
        if comm.is_revoked(scope) {
            return true;
        }
        let (me, dead) = (self.me, self.notices.dead());
        let others = |process: &u32| *process != me && !dead.contains(*process);
        let others = self.sharing.as_slice().iter().copied().filter(others);
        self.herald.tell((key, scope), me, others, board) && comm.revoke_by_board(scope)
    }

    /// Whether there is something to [`hear`](Self::hear) on the board. Costs a look at one word.
    #[inline]
    #[must_use]
    pub fn is_called(&self, board: &Board) -> bool {
        self.herald.is_called(board)
    }

    /// Whether the board has what could not be placed: to be heard when the creations that are under way are over.
    #[inline]
    #[must_use]
    pub const fn is_behind(&self) -> bool {
        self.herald.is_behind()
    }

    /// Takes what others have revoked by the board; `making` says whether this process takes part in the creation of a communicator. With
    /// `full` everything is read that is there: to be done before [`failed`](Self::failed) and [`failed_from`](Self::failed_from), for the dead do not ring.
    pub fn hear(&mut self, making: bool, full: bool, board: &Board) {
        if self.fenced || self.sharing.is_empty() {
            return;
        }
        let mut herald = std::mem::take(&mut self.herald);
        let sharing = std::mem::take(&mut self.sharing);
        herald.hear(full, self.me, sharing.iter(), board, |process, key, scope| {
            self.place(process, key, scope) || !making
        });
        (self.herald, self.sharing) = (herald, sharing);
    }

    /// `process` has revoked a communicator by the board. `false` where that is not known here.
    fn place(&mut self, process: u32, key: CommKey, scope: Scope) -> bool {
        let Ok(at) = self.find(key) else { return self.is_over(key) };
        let comm = &mut self.comms[at];
        // Others may have one of the same name.
        if comm.group().rank_of(process).is_some()
            && comm.revoke_by_board(scope)
            && matches!(comm.life, Life::Here)
        {
            self.out.push(Effect::Revoked(key, scope));
        }
        true
    }
}
