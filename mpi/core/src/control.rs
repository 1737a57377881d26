//! The control plane bound to the rest: its effects are carried out, its agreements waited for.

use crate::core::Decision;
use crate::lane::Purpose;
use crate::{CommHandle, Core, CoreError};
use ironweave_btl::{Btl, Peer};
use ironweave_ft::{CommKey, Contribution, Decided, Effect, Nanos, Scope};

impl<B: Btl> Core<B> {
    /// Does what the control plane wants done; how much that was.
    pub(crate) fn carry_out(&mut self, now: Nanos) -> usize {
        let mut done = self.send_unsent();
        while let Some(effect) = self.plane.poll_effect() {
            done += 1;
            match effect {
                Effect::Send { to, bytes } => self.send_control(Peer(to), &bytes),
                Effect::Failed(process) => self.learn(process, now),
                Effect::Revoked(key, scope) => {
                    let Some(comm) = self.named(key) else { continue };
                    match scope {
                        Scope::All => self.revoked(comm, now),
                        Scope::Collectives => self.interrupt(comm, CoreError::Interrupted, now),
                    }
                }
                Effect::Decided(Decided { key, seq, flag, highest, failed, acknowledged }) => {
                    if let Some(awaited) = self.awaited.get_mut(&(key, seq)) {
                        let failed = failed.iter().collect();
                        *awaited = Some(Decision { flag, highest, acknowledged, failed });
                    }
                }
                Effect::Fenced => self.fence(),
            }
        }
        done
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
        let there = self.comms.any_mut(comm)?;
        let key = purpose.key(there.key());
        let lane = there.lane(purpose);
        let seq = lane.next;
        lane.next += 1;
        if awaited {
            self.awaited.insert((key, seq), None);
        }
        self.plane.agree(key, seq, contribution, now);
        self.restless = true;
        Ok((key, seq))
    }

    /// The outcome of an agreement, once it is there. The failures that it tells of are known from now on.
    pub(crate) fn decision(
        &mut self,
        agreement: (CommKey, u64),
        now: Nanos,
    ) -> Option<Result<Decision, CoreError>> {
        match self.awaited.get(&agreement) {
            Some(None) if self.fenced => {
                self.awaited.remove(&agreement);
                Some(Err(CoreError::Fenced))
            }
            Some(None) => None,
            _ => {
                let decision = self.awaited.remove(&agreement).flatten()?;
                decision.failed.iter().for_each(|&process| self.learn(process, now));
                Some(Ok(decision))
            }
        }
    }
}
