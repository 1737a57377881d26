//! Collective operations bound to communicators.
//!
//! A blocking caller begins one, polls it while it progresses, and is done: nothing is allocated for a call like one that
//! was made before. A non-blocking one gives it to a task. When one ends with an error, every member's ends: by the
//! failure that all learn of, or by a notice; and not before all of its messages are over (law 2; `ironweave_coll`).

use crate::task::{Output, Task, TaskId};
use crate::{CommHandle, Core, CoreError};
use ironweave_btl::Btl;
use ironweave_coll::{Call, CollError, Memory, Operation, Patience, Poll, Reduction};
use ironweave_ft::Nanos;
use std::cell::LazyCell;

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
        let there = self.comms.get_mut(comm)?;
        if there.interruption.any() {
            return Err(there.interruption.error().unwrap_or(CoreError::Interrupted));
        }
        let operation = there.collectives.start(call, memory, reduction);
        let operation = operation.map_err(CoreError::Collective)?;
        there.users += 1;
        Ok(Collective::of(comm, operation))
    }

    /// As [`collective`](Core::collective), for a caller that blocks: until this one is over here, it begins no other one
    /// by this function. What blocks at one member does so at all.
    ///
    /// What is over while `patience` lasts with each message (see [`Context::run`](ironweave_coll::Context::run)) is over when this returns,
    /// and answered with `None`. Nothing else is moved on meanwhile: progress now and then, however often that happens.
    ///
    /// # Errors
    /// As `collective`.
    #[inline(always)]
    pub fn blocking_collective(
        &mut self,
        comm: CommHandle,
        call: &Call,
        memory: &Memory,
        reduction: Option<&Reduction>,
        patience: impl Patience,
    ) -> Result<Option<Collective>, CoreError> {
        let there = self.comms.get_mut(comm)?;
        if there.interruption.any() {
            return Err(there.interruption.error().unwrap_or(CoreError::Interrupted));
        }
        let run = there.collectives.run(&mut self.pml, call, memory, reduction, patience);
        let Some(operation) = run.map_err(CoreError::Collective)? else { return Ok(None) };
        there.users += 1;
        Ok(Some(Collective::of(comm, operation)))
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
        match self.icollective_soon(comm, call, &memory, reduction, || now)? {
            Some(task) => Ok(task),
            None => Ok(self.spawn_over(comm, Ok(Output::Done))),
        }
    }

    /// As [`icollective`](Core::icollective). `None`: it is over already, and went well, because each message went out at once or
    /// was there.
    ///
    /// # Errors
    /// As `icollective`.
    pub fn icollective_soon(
        &mut self,
        comm: CommHandle,
        call: &Call,
        memory: &Memory,
        reduction: Option<&Reduction>,
        now: impl FnOnce() -> Nanos,
    ) -> Result<Option<TaskId>, CoreError> {
        let there = self.comms.get_mut(comm)?;
        if there.interruption.any() {
            return Err(there.interruption.error().unwrap_or(CoreError::Interrupted));
        }
        let run = there.collectives.run_now(&mut self.pml, call, memory, reduction);
        let Some(operation) = run.map_err(CoreError::Collective)? else { return Ok(None) };
        there.users += 1;
        let mut collective = Collective::of(comm, operation);
        let now = LazyCell::new(now);
        let task = match collective.poll(self, || *now) {
            Some(ended) => self.spawn_over(comm, ended.map(|()| Output::Done)),
            None => self.spawn_stepping(comm, Task::Collective(collective)),
        };
        if self.plane.has_effects() {
            self.attend(*now);
        }
        Ok(Some(task))
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
        let operation = there.collectives.init(call).map_err(CoreError::Collective)?;
        Ok(Collective { persistent: true, ..Collective::of(comm, operation) })
    }
}

impl Collective {
    const fn of(comm: CommHandle, operation: Box<Operation>) -> Collective {
        let operation = Some(operation);
        Collective { comm, operation, ended: None, persistent: false, told: false }
    }

    /// Itself; what stays behind is over.
    pub(crate) const fn take(&mut self) -> Collective {
        let Collective { comm, persistent, told, .. } = *self;
        Collective {
            comm,
            operation: self.operation.take(),
            ended: self.ended.take(),
            persistent,
            told,
        }
    }

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

    /// Looks for what its messages wait for, as [`Runner::attend`](ironweave_coll::Runner::attend) does.
    #[inline]
    pub fn attend<B: Btl>(&mut self, core: &mut Core<B>, turns: u32) -> bool {
        let running = self.operation.as_mut().filter(|_| self.ended.is_none());
        running.is_some_and(|operation| operation.runner().attend(&mut core.pml, turns))
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
