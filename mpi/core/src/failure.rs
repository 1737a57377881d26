//! Failures and revocation, as communicators see them.
//!
//! A failure that is known for sure reaches every living process (`ft`), and each ends the collectives of every communicator
//! that the failed process is a member of: that is the implicit revoke of seed 000, "Interrupting collectives in error",
//! without a message of its own. A collective that ends for another reason (a link was given up) is interrupted by a notice.
//!
//! *Creations.* They end in an agreement, which waits for all living members; but who was interrupted may never call what
//! another member waits in. So with the interruption every member has its last say: it contributes a refusal to the creation agreement that
//! follows the last one it took part in, as soon as another member's contribution asks for it, or it calls a creation itself, or frees the
//! communicator: most communicators see no creation after a failure or a revocation, and no message is sent for them. Nobody waits in vain, and
//! because a creation needs everybody's consent, all members get the communicator or none does.

use crate::comm::Interruption;
use crate::lane::Purpose;
use crate::{CommHandle, Core, CoreError, Group};
use ironweave_btl::{Btl, Peer};
use ironweave_coll::CollError;
use ironweave_ft::{CommKey, Nanos, Plane, RankSet, Scope};
use ironweave_pml::ob1::PmlError;

impl<B: Btl> Core<B> {
    /// The process is known for sure to have failed, from any source. Excluded for good (law 4). The one
    /// way in for failures: the PML learns of it from here. It ends what waits for the process and no more: the next call of
    /// [`progress`](Core::progress) tells all others, for which who waits should not have to wait as well.
    pub fn proc_failed(&mut self, process: u32, now: Nanos) {
        self.apply(process, now, Plane::failed);
    }

    /// As [`proc_failed`](Core::proc_failed), where the launcher tells all processes of this host by the page that they share: those are left to
    /// learn of it there first ([`Plane::failed_by_page`]). While nothing here depends on the control plane it learns of it later, too
    /// (`late.rs`).
    pub fn proc_failed_by_page(&mut self, process: u32, now: Nanos) {
        if !self.may_be_late() {
            self.apply(process, now, Plane::failed_by_page);
        } else if self.exclude(process) {
            self.interrupt_with(process);
            self.be_late(process, now);
        }
    }

    fn apply(&mut self, process: u32, now: Nanos, learn: impl FnOnce(&mut Plane, u32, Nanos)) {
        if self.exclude(process) {
            self.fresh.push(process);
            self.restless = true;
            self.untold = true;
            self.take_controls(now);
            self.hear_board(true);
            learn(&mut self.plane, process, now);
            self.interrupt_with(process);
        }
    }

    /// Others, first among them the process `source`, say that these have failed.
    pub(crate) fn told(&mut self, processes: &RankSet, source: u32, now: Nanos) {
        self.catch_up(now);
        let new: Vec<u32> = processes.iter().filter(|&process| self.exclude(process)).collect();
        self.fresh.extend(&new);
        self.restless |= !new.is_empty();
        self.take_controls(now);
        self.hear_board(true);
        self.plane.failed_from(processes, source, now);
        new.into_iter().for_each(|process| self.interrupt_with(process));
    }

    /// Closes the rails to a process; what had come from it before can be taken now. `false`: that was done before.
    fn exclude(&mut self, process: u32) -> bool {
        if process == self.me.0 || process >= self.config.size || !self.known.insert(process) {
            return false;
        }
        self.pml.proc_failed(Peer(process));
        true
    }

    /// Ends the collectives that the process has part in, and calls those that it should have called.
    fn interrupt_with(&mut self, process: u32) {
        self.summon_again(process);
        let touched: Vec<(CommHandle, u32)> = self
            .comms
            .iter()
            .filter_map(|(handle, comm)| Some((handle, comm.rank_for_error(process)?)))
            .collect();
        for (comm, rank) in touched {
            self.interrupt(comm, CoreError::ProcFailed { rank });
        }
    }

    /// Whether a process is known to have failed.
    #[must_use]
    pub fn is_failed(&self, process: u32) -> bool {
        self.known.contains(&process)
    }

    /// Others hold this process for failed and have excluded it: it has to stop (law 4). Everything under way ends.
    #[must_use]
    pub const fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// Others, as the failure detector was told, hold this process for failed: everything under way ends.
    pub fn fence(&mut self) {
        (self.fenced, self.restless) = (true, true);
        let all: Vec<CommHandle> = self.comms.iter().map(|(handle, _)| handle).collect();
        for comm in all {
            let Ok(there) = self.comms.any_mut(comm) else { continue };
            there.interruption = Interruption::Revoked;
            there.closed = Some(CoreError::Fenced);
            let contexts: Vec<_> = there.contexts().collect();
            contexts.into_iter().for_each(|id| self.pml.revoke_comm(id));
        }
    }

    /// A new communicator may have members that failed before.
    pub(crate) fn inherit_failures(&mut self, comm: CommHandle) {
        let Ok(there) = self.comms.any(comm) else { return };
        let ranks = self.known.iter().filter_map(|&process| there.rank_for_error(process));
        if let Some(rank) = ranks.min() {
            self.interrupt(comm, CoreError::ProcFailed { rank });
        }
    }

    /// Ends the communicator's collectives here.
    pub(crate) fn interrupt(&mut self, comm: CommHandle, reason: CoreError) {
        let Ok(there) = self.comms.any_mut(comm) else { return };
        match (&there.interruption, &reason) {
            (Interruption::Nothing, _)
            // A failure says more than that somebody gave up.
            | (Interruption::Collectives(CoreError::Interrupted), CoreError::ProcFailed { .. }) => {
                there.interruption = Interruption::Collectives(reason);
            }
            _ => return,
        }
        let contexts: Vec<_> = there.contexts().collect();
        contexts.into_iter().for_each(|id| self.pml.interrupt_collectives(id));
        self.unsaid.push(comm);
        self.restless = true;
    }

    /// The communicator is revoked, here or elsewhere.
    pub(crate) fn revoked(&mut self, comm: CommHandle) {
        let Ok(there) = self.comms.any_mut(comm) else { return };
        there.interruption = Interruption::Revoked;
        let contexts: Vec<_> = there.contexts().collect();
        contexts.into_iter().for_each(|id| self.pml.revoke_comm(id));
        self.unsaid.push(comm);
        self.restless = true;
    }

    /// Has the last say on creations on interrupted communicators where somebody asks for it, or about to be freed.
    pub(crate) fn have_last_says(&mut self, now: Nanos) {
        if self.unsaid.is_empty() {
            return;
        }
        for comm in std::mem::take(&mut self.unsaid) {
            let Ok(there) = self.comms.any(comm) else { continue };
            let asked = self.plane.is_asked(Purpose::Create.key(there.key()));
            if asked || there.freeing {
                self.close_creations(comm, now);
            } else if there.closed.is_none() {
                self.unsaid.push(comm);
            }
        }
    }

    /// Has the last say on creations on an interrupted communicator, unless an outcome is awaited: then after it.
    pub(crate) fn close_creations(&mut self, comm: CommHandle, now: Nanos) {
        let Ok(there) = self.comms.any_mut(comm) else { return };
        let (Some(refusal), Some(error)) =
            (there.interruption.refusal(), there.interruption.error())
        else {
            return;
        };
        if there.creations.agreeing || there.closed.is_some() {
            return;
        }
        there.closed = Some(error);
        if there.joined.len() > 1 {
            // It exists, or `closed` could not have been set.
            let _ = self.contribute(comm, Purpose::Create, refusal.contribution(), false, now);
        }
    }

    /// Revokes a communicator: everything on it but agreements, shrinks and questions about failures ends with
    /// [`CoreError::Revoked`] at all living members (law 5). Does not block; once is enough, more does no harm.
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`].
    pub fn revoke(&mut self, comm: CommHandle, now: Nanos) -> Result<(), CoreError> {
        let there = self.comms.get(comm)?;
        if there.interruption != Interruption::Revoked {
            let key = there.key();
            self.give_notice(key, Scope::All, now);
            self.carry_out(now); // the notice first
            self.revoked(comm);
            self.attend(now);
        }
        Ok(())
    }

    /// Tells all members: by the board where they share it.
    fn give_notice(&mut self, key: CommKey, scope: Scope, now: Nanos) {
        self.catch_up(now);
        let board = self.board();
        if !board.is_some_and(|board| self.plane.revoke_by_board(key, scope, &board)) {
            self.plane.revoke(key, scope, now);
        }
    }

    /// Whether the communicator is revoked, as far as is known here.
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`].
    pub fn is_revoked(&self, comm: CommHandle) -> Result<bool, CoreError> {
        Ok(self.comms.get(comm)?.interruption == Interruption::Revoked)
    }

    /// What an error inside of a collective means. Unless all members will hear of the reason anyway, they are told to end
    /// theirs (seed 000: "safe to bail-out"). `None`: somebody has interrupted it, and why will be known soon.
    pub(crate) fn give_up(
        &mut self,
        comm: CommHandle,
        error: &CollError,
        now: Nanos,
    ) -> Option<CoreError> {
        let Ok(there) = self.comms.any(comm) else { return Some(CoreError::NoSuchComm) };
        let known = there.interruption.error();
        let (pml, local) = match error {
            CollError::Pml(error) => (error, false),
            CollError::Local(error) => (error, true),
            _ => {
                self.spread(comm, now);
                return Some(CoreError::Collective(error.clone()));
            }
        };
        match (pml, known) {
            (PmlError::Interrupted | PmlError::Revoked, known) => known,
            (
                PmlError::ProcFailed { .. } | PmlError::RailLost(_) | PmlError::Stale,
                Some(known),
            ) => Some(known),
            (PmlError::Stale, None) => {
                // A member has freed the communicator in the middle of a collective: it knows of a failure, or of an
                // interruption, that is not known here yet.
                self.spread(comm, now);
                Some(CoreError::Interrupted)
            }
            (PmlError::ProcFailed { rank }, None) => {
                let group = if local { &there.group } else { there.peers() };
                if let Some(process) = group.process(*rank) {
                    self.proc_failed(process, now);
                }
                Some(CoreError::ProcFailed { rank: *rank })
            }
            (error, _) => {
                let error = error.clone().into();
                self.spread(comm, now);
                Some(error)
            }
        }
    }

    /// Tells all members to end their collectives, and ends them here.
    fn spread(&mut self, comm: CommHandle, now: Nanos) {
        let Ok(there) = self.comms.any(comm) else { return };
        if there.interruption == Interruption::Nothing {
            let key = there.key();
            self.give_notice(key, Scope::Collectives, now);
            self.interrupt(comm, CoreError::Interrupted);
        }
    }

    /// Members that are known to have failed, of both groups of an inter-communicator, in the order in which that became
    /// known, which stays (`MPIX_Comm_get_failed`).
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`].
    pub fn failed(&mut self, comm: CommHandle) -> Result<Group, CoreError> {
        self.note_failures(comm)?;
        Ok(Group::of(self.comms.get(comm)?.failures.clone())?)
    }

    /// Acknowledges the failures known now, which enables wildcard receives again; how many there are
    /// (`MPIX_Comm_failure_ack`).
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`].
    pub fn ack_failed(&mut self, comm: CommHandle) -> Result<usize, CoreError> {
        self.ack_failed_up_to(comm, usize::MAX)
    }

    /// Acknowledges the first `most` of [`failed`](Core::failed). How many are acknowledged now: more, if more were before.
    /// Wildcard receives are enabled when all are (`MPIX_Comm_ack_failed`).
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`].
    pub fn ack_failed_up_to(&mut self, comm: CommHandle, most: usize) -> Result<usize, CoreError> {
        self.note_failures(comm)?;
        let there = self.comms.get_mut(comm)?;
        there.acked = there.acked.max(most.min(there.failures.len()));
        // Each of the PML's lists has its failures in the same order: what is acknowledged is a beginning of it.
        let acked = &there.failures[..there.acked];
        let mut ack = |id, group: &Group| {
            let of = |&&rank: &&u32| group.process(rank).is_some_and(|p| acked.contains(&p));
            let count = self.pml.failed_ranks(id).iter().take_while(of).count();
            self.pml.ack_failed_up_to(id, count);
        };
        ack(there.main, there.peers());
        if let Some(local) = there.local {
            ack(local, &there.group);
        }
        Ok(there.acked)
    }

    /// The failures that were acknowledged (`MPIX_Comm_failure_get_acked`).
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`].
    pub fn acked(&self, comm: CommHandle) -> Result<Group, CoreError> {
        let there = self.comms.get(comm)?;
        Ok(Group::of(there.failures[..there.acked].to_vec())?)
    }

    /// Failures that the PML has recorded since are told after those that were told before.
    fn note_failures(&mut self, comm: CommHandle) -> Result<(), CoreError> {
        let recorded = self.recorded(comm)?;
        let there = self.comms.get_mut(comm)?;
        for process in recorded {
            if !there.failures.contains(&process) {
                there.failures.push(process);
            }
        }
        Ok(())
    }

    /// Members whose failures the PML has recorded.
    fn recorded(&self, comm: CommHandle) -> Result<Vec<u32>, CoreError> {
        let there = self.comms.get(comm)?;
        let of = |id, group: &Group| -> Vec<u32> {
            self.pml.failed_ranks(id).iter().filter_map(|&rank| group.process(rank)).collect()
        };
        let mut recorded = of(there.main, there.peers());
        if let Some(local) = there.local {
            recorded.extend(of(local, &there.group));
        }
        Ok(recorded)
    }

    pub(crate) fn acknowledged(&self, comm: CommHandle) -> Result<RankSet, CoreError> {
        let there = self.comms.any(comm)?;
        Ok(match there.acked {
            0 => RankSet::new(),
            acked => there.failures[..acked].iter().copied().collect(),
        })
    }

    /// The members that are known to have failed.
    pub(crate) fn known_in(&self, group: &Group) -> RankSet {
        self.known.iter().copied().filter(|&process| group.contains(process)).collect()
    }

    /// Whether everybody will find these failures when asking what failed: the PML has closed its rails to them.
    pub(crate) fn are_recorded(&self, comm: CommHandle, processes: &[u32]) -> bool {
        processes.is_empty()
            || self
                .recorded(comm)
                .map_or(true, |recorded| processes.iter().all(|process| recorded.contains(process)))
    }
}
