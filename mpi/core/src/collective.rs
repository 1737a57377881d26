//! Collective operations bound to communicators.
//!
//! A blocking caller begins one, polls it while it progresses, and is done: nothing is allocated for a call like one that
//! was made before. A non-blocking one gives it to a task. When one ends with an error, every member's ends: by the
//! failure that all learn of, or by a notice; and not before all of its messages are over (law 2; `ironweave_coll`).

use crate::task::{Task, TaskId};
use crate::{CommHandle, Core, CoreError};
use ironweave_btl::Btl;
use ironweave_coll::{Call, CollError, Context, Memory, Operation, Poll, Reduction};
use ironweave_ft::Nanos;

/// A collective operation under way. Poll it to its end; one that is dropped before keeps memory of the library's for
/// ever, and leaves the caller's to messages under way.
pub struct Collective {
    comm: CommHandle,
    operation: Option<Box<Operation>>,
    /// All messages are over; why it was interrupted is not known yet.
    ended: Option<Box<CollError>>,
    persistent: bool,
    /// It cannot succeed, and the other members are told.
    told: bool,
}

impl<B: Btl> Core<B> {
    /// Begins a collective operation. Poll it, also for its first messages to go out. All members make the same calls in the same
    /// order.
    ///
    /// # Errors
    /// What is wrong with the arguments ([`CoreError::Collective`]): nothing was begun. [`CoreError::ProcFailed`],
    /// [`CoreError::Interrupted`], [`CoreError::Revoked`] when collectives of this communicator are over.
    pub fn collective(
        &mut self,
        comm: CommHandle,
        call: &Call,
        memory: Memory,
        reduction: Option<&Reduction>,
    ) -> Result<Collective, CoreError> {
        self.begin(comm, |there| there.start(call, memory, reduction))
    }

    /// As [`collective`](Core::collective), for a caller that blocks: until this one is over here, it begins no other one
    /// by this function. What blocks at one member does so at all.
    ///
    /// # Errors
    /// As `collective`.
    #[inline(always)]
    pub fn blocking_collective(
        &mut self,
        comm: CommHandle,
        call: &Call,
        memory: Memory,
        reduction: Option<&Reduction>,
    ) -> Result<Collective, CoreError> {
        self.begin(comm, |there| there.start_blocking(call, memory, reduction))
    }

    #[inline(always)]
    fn begin(
        &mut self,
        comm: CommHandle,
        start: impl FnOnce(&mut Context) -> Result<Box<Operation>, CollError>,
    ) -> Result<Collective, CoreError> {
        let there = self.comms.get_mut(comm)?;
        if there.interruption.any() {
            return Err(there.interruption.error().unwrap_or(CoreError::Interrupted));
        }
        let operation = start(&mut there.collectives).map_err(CoreError::Collective)?;
        there.users += 1;
        Ok(Collective {
            comm,
            operation: Some(operation),
            ended: None,
            persistent: false,
            told: false,
        })
    }

    /// As [`collective`](Core::collective), as a task.
    ///
    /// # Errors
    /// As `collective`.
    pub fn icollective(
        &mut self,
        comm: CommHandle,
        call: &Call,
        memory: Memory,
        reduction: Option<&Reduction>,
        now: Nanos,
    ) -> Result<TaskId, CoreError> {
        let collective = self.collective(comm, call, memory, reduction)?;
        let task = self.spawn(comm, Task::Collective(collective));
        self.attend(now);
        Ok(task)
    }

    /// Makes a persistent collective operation, inactive. Begin each run with [`Collective::restart`].
    ///
    /// # Errors
    /// As [`collective`](Core::collective), but for interruptions, which [`Collective::restart`] reports.
    pub fn persistent_collective(
        &mut self,
        comm: CommHandle,
        call: &Call,
    ) -> Result<Collective, CoreError> {
        let there = self.comms.get_mut(comm)?;
        let operation = Some(there.collectives.init(call).map_err(CoreError::Collective)?);
        Ok(Collective { comm, operation, ended: None, persistent: true, told: false })
    }
}

impl Collective {
    /// The communicator it is bound to.
    pub(crate) const fn comm(&self) -> CommHandle {
        self.comm
    }

    /// Begins a run of a persistent operation whose last run is over.
    ///
    /// # Errors
    /// As [`Core::collective`].
    pub fn restart<B: Btl>(
        &mut self,
        core: &mut Core<B>,
        memory: Memory,
        reduction: Option<&Reduction>,
    ) -> Result<(), CoreError> {
        let there = core.comms.get_mut(self.comm)?;
        if let Some(error) = there.interruption.error() {
            return Err(error);
        }
        let Some(operation) = &mut self.operation else { return Err(CoreError::NoSuchTask) };
        operation.restart(memory, reduction).map_err(CoreError::Collective)?;
        there.users += 1;
        Ok(())
    }

    /// Moves the operation on; `None` while it is under way: progress the core and poll again. Once answered it is over,
    /// and a persistent one can be restarted. With an error no message of it is under way, and all members' end.
    #[inline]
    pub fn poll<B: Btl>(
        &mut self,
        core: &mut Core<B>,
        now: impl FnOnce() -> Nanos,
    ) -> Option<Result<(), CoreError>> {
        if self.ended.is_none() {
            let Some(operation) = &mut self.operation else { return Some(Ok(())) };
            match operation.runner().poll(&mut core.pml) {
                Poll::Pending => {
                    if operation.runner().failing().is_some() && !self.told {
                        self.tell(core, now());
                    }
                    return None;
                }
                Poll::Ready(Ok(())) => {
                    self.leave(core);
                    return Some(Ok(()));
                }
                Poll::Resolve(peer) => {
                    core.want(peer);
                    return None;
                }
                Poll::Ready(Err(error)) => self.ended = Some(error.into()),
            }
        }
        self.explain(core, now())
    }

    /// It cannot succeed any more. What it still waits for may depend on the others' knowing.
    #[cold]
    fn tell<B: Btl>(&mut self, core: &mut Core<B>, now: Nanos) {
        self.told = true;
        let Some(operation) = &mut self.operation else { return };
        if let Some(error) = operation.runner().failing().cloned() {
            core.give_up(self.comm, &error, now);
        }
    }

    #[cold]
    fn explain<B: Btl>(&mut self, core: &mut Core<B>, now: Nanos) -> Option<Result<(), CoreError>> {
        let error = core.give_up(self.comm, self.ended.as_deref()?, now)?;
        (self.ended, self.told) = (None, false);
        self.leave(core);
        Some(Err(error))
    }

    /// Its run is over.
    #[inline]
    fn leave<B: Btl>(&mut self, core: &mut Core<B>) {
        let Ok(there) = core.comms.any_mut(self.comm) else { return };
        there.users -= 1;
        if !self.persistent
            && let Some(operation) = self.operation.take()
        {
            there.collectives.recycle(operation);
        }
    }
}
