//! What a program does about failures: find out, interrupt, agree, and go on with those who are left (ULFM; seed 000, and the
//! guide page [`guide`](crate::guide)).

use crate::threading::{Handle, Single, Threading};
use crate::{Comm, Error, Result};
use ironweave_core::{Agreeing, Output, TaskId};

/// What [`Comm::agree`] decided: the same at all living processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// The bitwise AND of what the processes contributed. One that died before it contributed counts as all ones.
    pub flag: u64,
    /// A failure that was not acknowledged by everybody ([`Comm::ack_failed`]): one such rank. It is what
    /// `MPIX_Comm_agree` reports as `MPIX_ERR_PROC_FAILED` beside its value.
    pub new_failure: Option<u32>,
}

/// An operation under way that needs no buffer: [`Comm::iagree`], [`Comm::ishrink`]. Goes on whenever the process progresses.
/// Dropped, it runs on unseen.
#[must_use = "its outcome is lost when nobody waits for it"]
pub struct Deferred<R, T: Threading = Single> {
    comm: Comm<T>,
    task: Option<TaskId>,
    outcome: fn(&Comm<T>, Output) -> Result<R>,
}

impl<R, T: Threading> Deferred<R, T> {
    /// Waits for the outcome.
    ///
    /// # Errors
    /// Those of the blocking call.
    pub fn wait(mut self) -> Result<R> {
        let task = self.task.take().expect("taken by `wait` and `test` alone, which end it");
        let output = self.comm.handle().complete(task)?;
        (self.outcome)(&self.comm, output)
    }

    /// The outcome if it is there, or the operation again; moves communication forward.
    ///
    /// # Errors
    /// Those of the blocking call.
    pub fn test(mut self) -> Result<std::result::Result<R, Self>> {
        let task = self.task.take().expect("taken by `wait` and `test` alone, which end it");
        let polled = self.comm.handle().with(|engine| {
            engine.progress();
            Ok(engine.test(task))
        })?;
        match polled {
            None => {
                self.task = Some(task);
                Ok(Err(self))
            }
            Some(output) => (self.outcome)(&self.comm, output?).map(Ok),
        }
    }
}

impl<R, T: Threading> Drop for Deferred<R, T> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            // Nobody can be told of an engine that is out of order.
            let _ = self.comm.handle().with(|engine| {
                engine.detach(task);
                Ok(())
            });
        }
    }
}

fn agreed(output: Output) -> Result<Agreed> {
    match output {
        Output::Agreed { flag, failure: None } => Ok(Agreed { flag, new_failure: None }),
        Output::Agreed { flag, failure: Some(failure) } => match failure.into() {
            Error::ProcFailed { rank } => Ok(Agreed { flag, new_failure: Some(rank) }),
            other => Err(other),
        },
        other => unreachable!("an agreement brings no {other:?}"),
    }
}

impl<T: Threading> Comm<T> {
    /// Ranks of this communicator known to have failed, in the order in which this process learned of them
    /// (`MPIX_Comm_get_failed`); of an inter-communicator those of the remote group. Looks for news first; does not block.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn failed(&self) -> Result<Vec<u32>> {
        self.handle().with(|engine| {
            engine.progress();
            Ok(engine.pml.failed_ranks(self.id()).to_vec())
        })
    }

    /// Acknowledges the failures known now, so that wildcard receives work again (`MPIX_Comm_failure_ack`). Returns how
    /// many of [`failed`](Self::failed) that covers (on an inter-communicator failures of the own group count, too).
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn ack_failed(&self) -> Result<usize> {
        self.ack_failed_up_to(usize::MAX)
    }

    /// Acknowledges the first `most` of the failures in the order in which they became known (`MPIX_Comm_ack_failed`), so
    /// that a program acknowledges what it has looked at and nothing that it has not. Returns how many are
    /// acknowledged now: more, if more were before. Wildcard receives work again when all are.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn ack_failed_up_to(&self, most: usize) -> Result<usize> {
        self.handle().with(|engine| Ok(engine.ack_failed_up_to(self.core(), most)?))
    }

    /// Interrupts everybody (`MPIX_Comm_revoke`): at all living members everything on this communicator that is not over,
    /// and all that is started later, ends with [`Error::Revoked`]; but [`agree`](Self::agree), [`shrink`](Self::shrink),
    /// [`failed`](Self::failed) and [`ack_failed`](Self::ack_failed) work on. Does not block, and is not collective: one
    /// process that calls it is enough, and more do no harm. The notice reaches every living member, whoever dies meanwhile.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn revoke(&self) -> Result<()> {
        self.handle().with(|engine| {
            let now = engine.clock()();
            Ok(engine.revoke(self.core(), now)?)
        })
    }

    /// Whether the communicator is revoked, as far as this process knows (`MPIX_Comm_is_revoked`). Looks for news first;
    /// does not block.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn is_revoked(&self) -> Result<bool> {
        self.handle().with(|engine| {
            engine.progress();
            Ok(engine.is_revoked(self.core())?)
        })
    }

    /// Agrees with all living members on one value (`MPIX_Comm_agree`; ERA, Herault et al., SC'15): the bitwise AND of the
    /// flags. Collective among the living, also on a revoked communicator; ends under any number of failures at any
    /// moment, with the same answer wherever it ends (law 7). Failures are no error of it: see [`Agreed::new_failure`].
    ///
    /// ```
    /// # let world = ironweave::World::init()?;
    /// # let comm = world.comm();
    /// let fine = true; // at this process
    /// let everywhere = comm.agree(u64::from(fine))?.flag == 1;
    /// # assert!(everywhere);
    /// # Ok::<(), ironweave::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Fenced`] when the others have excluded this process, [`Error::Poisoned`].
    pub fn agree(&self, flag: u64) -> Result<Agreed> {
        // Not by way of `Deferred`: its making takes a good part of what a message between two takes.
        let begun = self.handle().with(|engine| engine.begin_agreement(self.core(), flag))?;
        match begun {
            Agreeing::Over(output) => agreed(output),
            Agreeing::Waits(task) => agreed(self.handle().complete(task)?),
        }
    }

    /// [`agree`](Self::agree) without waiting (`MPIX_Comm_iagree`). Several may be under way; they begin in the same order at
    /// every member.
    ///
    /// # Errors
    /// As `agree`.
    pub fn iagree(&self, flag: u64) -> Result<Deferred<Agreed, T>> {
        let task = self.handle().with(|engine| {
            let now = engine.clock()();
            Ok(engine.iagree(self.core(), flag, now)?)
        })?;
        let outcome = |_: &Comm<T>, output| agreed(output);
        Ok(Deferred { comm: self.clone(), task: Some(task), outcome })
    }

    /// A communicator of the living (`MPIX_Comm_shrink`), with ranks in the same order: the same group at each of them,
    /// without anybody who was known to have failed to any of them. Collective among the living, also on a revoked
    /// communicator; failures during it make it smaller, never fail it.
    ///
    /// # Errors
    /// [`Error::Fenced`] when the others have excluded this process, [`Error::Poisoned`].
    pub fn shrink(&self) -> Result<Comm<T>> {
        self.ishrink()?.wait()
    }

    /// [`shrink`](Self::shrink) without waiting (`MPIX_Comm_ishrink`).
    ///
    /// # Errors
    /// As `shrink`.
    pub fn ishrink(&self) -> Result<Deferred<Comm<T>, T>> {
        let task = self.handle().with(|engine| {
            let now = engine.now();
            Ok(engine.ishrink(self.core(), now)?)
        })?;
        let outcome = |comm: &Comm<T>, output| match output {
            Output::Comm(Some(made)) => Comm::new(comm.handle().clone(), made, true),
            other => {
                unreachable!("whoever shrinks is alive and gets a communicator, not {other:?}")
            }
        };
        Ok(Deferred { comm: self.clone(), task: Some(task), outcome })
    }
}
