//! The control plane bound to the rest: its effects are carried out, its agreements waited for.

use crate::core::Decision;
use crate::lane::Purpose;
use crate::{CommHandle, Core, CoreError};
use ironweave_btl::{Btl, Peer};
use ironweave_ft::{CommKey, Contribution, Decided, Effect, Nanos, Scope};

impl<B: Btl> Core<B> {
    /// Does what the control plane wants done; how much of that was news here.
    pub(crate) fn carry_out(&mut self, now: Nanos) -> usize {
        let mut done = if self.has_unsent() { self.send_unsent() } else { 0 };
        if !self.held.is_empty() {
            for decided in std::mem::take(&mut self.held) {
                self.decided(decided);
            }
        }
        while let Some(effect) = self.plane.poll_effect() {
            done += usize::from(!matches!(effect, Effect::Send { .. }));
            match effect {
                Effect::Send { to, bytes } => self.send_control(Peer(to), &bytes),
                Effect::Failed { processes, source } => self.told(&processes, source, now),
                Effect::Revoked(key, scope) => {
                    let Some(comm) = self.named(key) else { continue };
                    match scope {
                        Scope::All => self.revoked(comm),
                        Scope::Collectives => self.interrupt(comm, CoreError::Interrupted),
                    }
                }
                Effect::Decided(decided) => self.decided(decided),
                Effect::Release(slot, key) => {
                    if let Some(board) = self.board() {
                        board.release(slot, self.me.0, key);
                    }
                }
                Effect::Fenced => self.fence(),
            }
        }
        done
    }

    /// Returns a decision to who awaits it, at once or when what was sent before it is stored.
    fn decided(&mut self, decided: Decided) {
        let witness = self.plane.witness(decided.key).map(Peer);
        if witness.is_some_and(|peer| !self.pml.is_control_stored(peer)) {
            return self.held.push(decided);
        }
        let Decided { key, seq, flag, highest, failed, acknowledged } = decided;
        if let Some((_, awaited)) = self.awaited.iter_mut().find(|one| one.0 == (key, seq)) {
            let failed = failed.iter().collect();
            *awaited = Some(Decision { flag, highest, acknowledged, failed });
        }
    }

    /// The communicator that the control plane knows by this key.
    fn named(&self, key: CommKey) -> Option<CommHandle> {
        let &comm = self.by_cid.get(&key.cid)?;
        (self.comms.any(comm).ok()?.key() == key).then_some(comm)
    }

    /// Contributes to the next agreement of a lane; its key and number. Only what is `awaited` can be asked for.
    pub(crate) fn contribute(
        &mut self,
        comm: CommHandle,
        purpose: Purpose,
        contribution: Contribution,
        awaited: bool,
        now: Nanos,
    ) -> Result<(CommKey, u64), CoreError> {
        self.catch_up(now);
        let there = self.comms.any_mut(comm)?;
        let key = purpose.key(there.key());
        let lane = there.lane(purpose);
        let seq = lane.next;
        lane.next += 1;
        if awaited {
            self.awaited.push(((key, seq), None));
        }
        self.plane.agree(key, seq, contribution, now);
        self.restless = true;
        Ok((key, seq))
    }

    /// Whether all that this process has contributed to agreements under a key is decided, and no decision is held back.
    pub(crate) fn has_settled(&self, key: CommKey) -> bool {
        let done = !self.plane.is_agreeing(key) && !self.plane.has_effects();
        self.fenced || (done && self.held.is_empty())
    }

    /// Whether [`decision`](Self::decision) would answer.
    pub(crate) fn has_decided(&self, agreement: (CommKey, u64)) -> bool {
        self.fenced
            || self.awaited.iter().all(|(which, decided)| *which != agreement || decided.is_some())
    }

    /// The outcome of an agreement, once it is there. The failures that it tells of are known from now on.
    pub(crate) fn decision(
        &mut self,
        agreement: (CommKey, u64),
        now: Nanos,
    ) -> Option<Result<Decision, CoreError>> {
        let at = self.awaited.iter().position(|(which, _)| *which == agreement)?;
        match &self.awaited[at].1 {
            None if !self.fenced => None,
            None => {
                self.awaited.swap_remove(at);
                Some(Err(CoreError::Fenced))
            }
            Some(_) => {
                let decision = self.awaited.swap_remove(at).1?;
                decision.failed.iter().for_each(|&process| self.proc_failed(process, now));
                Some(Ok(decision))
            }
        }
    }
}
