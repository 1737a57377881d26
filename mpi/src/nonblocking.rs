//! Non-blocking collective operations (MPI standard 5.0, 6.12): begun in a [`Scope`], over at its end at the latest.
//!
//! They begin in the same order at every member, may overlap each other and everything else, and go on whenever the process
//! progresses. Failures end them as they end the blocking ones.
#![allow(unsafe_code)] // lends memory: see `lend`

use crate::lend::Lent;
use crate::message::ElementMut;
use crate::reduce::Op;
use crate::threading::{Handle, Single, Threading};
use crate::{Error, Result, Scope, calls, lend};
use ironweave_coll::{Call, Elements, Memory, Reduction, Root};
use ironweave_core::TaskId;
use zerocopy::IntoBytes as _;

/// A collective operation under way. Dropping or forgetting it does not end it: the end of the scope does.
#[must_use = "an operation that nobody waits for is over only at the end of the scope"]
pub struct Collective<'scope, 'env, B, T: Threading = Single> {
    scope: &'scope Scope<'scope, 'env, T>,
    /// The operation and its place in the scope; `None` when its end was seen.
    open: Option<(TaskId, usize)>,
    buffer: Lent<B>,
}

impl<B, T: Threading> Collective<'_, '_, B, T> {
    /// Waits for the end of the operation (`MPI_Wait`). Again after the end: success.
    ///
    /// # Errors
    /// Those of the blocking call.
    pub fn wait(&mut self) -> Result<()> {
        let Some((task, place)) = self.open else { return Ok(()) };
        let ended = self.scope.comm().handle().complete(task);
        if ended != Err(Error::Poisoned) {
            self.open = None;
            self.scope.forget(place);
        }
        self.scope.comm().raise("a collective operation", ended.map(drop))
    }

    /// Whether the operation is over (`MPI_Test`); moves communication forward.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn test(&mut self) -> Result<bool> {
        let Some((task, place)) = self.open else { return Ok(true) };
        let ended = self.scope.comm().handle().with(|engine| {
            engine.progress();
            Ok(engine.test(task))
        })?;
        let Some(ended) = ended else { return Ok(false) };
        self.open = None;
        self.scope.forget(place);
        let ended = ended.map(|_| true).map_err(Error::from);
        self.scope.comm().raise("a collective operation", ended)
    }

    /// Waits, and gives the result's buffer back.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn finish(mut self) -> Result<B> {
        self.wait()?;
        Ok(self.buffer.into_inner())
    }
}

/// What a call that fills a buffer answers.
pub(crate) type Filling<'scope, 'env, E, T> = Result<Collective<'scope, 'env, &'scope mut [E], T>>;

impl<'scope, 'env, T: Threading> Scope<'scope, 'env, T> {
    fn begin(
        &'scope self,
        call: &Call,
        memory: Memory,
        op: Option<&Reduction>,
    ) -> Result<(TaskId, usize)> {
        let comm = self.comm();
        let task = comm.handle().with(|engine| {
            engine.listen();
            let now = engine.now();
            Ok(engine.icollective(comm.core(), call, memory, op, now)?)
        })?;
        Ok((task, self.keep(task)))
    }

    /// Begins a collective that fills `into`.
    pub(crate) fn filling<E: ElementMut>(
        &'scope self,
        call: &Call,
        data: &'scope [u8],
        into: &'scope mut [E],
        op: Option<&Reduction>,
    ) -> Filling<'scope, 'env, E, T> {
        let mut buffer = Lent::new(into);
        // SAFETY: the scope's end waits for the end of the operation, before `'scope` ends; and `buffer` is out of everybody's reach
        // until then.
        let memory = unsafe {
            Memory { send: lend::bytes(data), recv: lend::buffer(buffer.get_mut().as_mut_bytes()) }
        };
        let open = Some(self.begin(call, memory, op)?);
        Ok(Collective { scope: self, open, buffer })
    }

    fn reducing<E: ElementMut>(
        &'scope self,
        data: &'scope [E],
        into: &'scope mut [E],
        op: &Op<E>,
        count: usize,
        call: impl FnOnce(Elements) -> Call,
    ) -> Filling<'scope, 'env, E, T> {
        let (reduction, elements) = op.on(count)?;
        self.filling(&call(elements), data.as_bytes(), into, Some(&reduction))
    }

    /// [`Comm::barrier`](crate::Comm::barrier) without waiting (`MPI_Ibarrier`).
    ///
    /// # Errors
    /// As of all calls here: [`Error::Revoked`], [`Error::ProcFailed`] when the communicator is interrupted already, and
    /// wrong arguments. Nothing was begun then.
    pub fn ibarrier(&'scope self) -> Result<Collective<'scope, 'env, (), T>> {
        let open = Some(self.begin(&Call::Barrier, Memory::none(), None)?);
        Ok(Collective { scope: self, open, buffer: Lent::new(()) })
    }

    /// [`Comm::bcast`](crate::Comm::bcast) without waiting (`MPI_Ibcast`).
    ///
    /// # Errors
    /// As [`ibarrier`](Self::ibarrier).
    pub fn ibcast<E: ElementMut>(
        &'scope self,
        data: &'scope mut [E],
        root: impl Into<Root>,
    ) -> Filling<'scope, 'env, E, T> {
        self.filling(&calls::bcast(data, root.into()), &[], data, None)
    }

    /// [`Comm::gather`](crate::Comm::gather) without waiting (`MPI_Igather`).
    ///
    /// # Errors
    /// As [`ibarrier`](Self::ibarrier).
    pub fn igather<E: ElementMut>(
        &'scope self,
        data: &'scope [E],
        into: &'scope mut [E],
        root: impl Into<Root>,
    ) -> Filling<'scope, 'env, E, T> {
        self.filling(
            &calls::gather(data, into, self.comm().rooted(root, None))?,
            data.as_bytes(),
            into,
            None,
        )
    }

    /// [`Comm::gatherv`](crate::Comm::gatherv) without waiting (`MPI_Igatherv`).
    ///
    /// # Errors
    /// As [`ibarrier`](Self::ibarrier).
    pub fn igatherv<E: ElementMut>(
        &'scope self,
        data: &'scope [E],
        into: &'scope mut [E],
        counts: &[usize],
        root: impl Into<Root>,
    ) -> Filling<'scope, 'env, E, T> {
        let call = calls::gatherv(data, self.comm().rooted(root, Some(counts)));
        self.filling(&call, data.as_bytes(), into, None)
    }

    /// [`Comm::scatter`](crate::Comm::scatter) without waiting (`MPI_Iscatter`).
    ///
    /// # Errors
    /// As [`ibarrier`](Self::ibarrier).
    pub fn iscatter<E: ElementMut>(
        &'scope self,
        data: &'scope [E],
        into: &'scope mut [E],
        root: impl Into<Root>,
    ) -> Filling<'scope, 'env, E, T> {
        self.filling(
            &calls::scatter(data, into, self.comm().rooted(root, None))?,
            data.as_bytes(),
            into,
            None,
        )
    }

    /// [`Comm::scatterv`](crate::Comm::scatterv) without waiting (`MPI_Iscatterv`).
    ///
    /// # Errors
    /// As [`ibarrier`](Self::ibarrier).
    pub fn iscatterv<E: ElementMut>(
        &'scope self,
        data: &'scope [E],
        counts: &[usize],
        into: &'scope mut [E],
        root: impl Into<Root>,
    ) -> Filling<'scope, 'env, E, T> {
        let call = calls::scatterv(into, self.comm().rooted(root, Some(counts)));
        self.filling(&call, data.as_bytes(), into, None)
    }

    /// [`Comm::allgather`](crate::Comm::allgather) without waiting (`MPI_Iallgather`).
    ///
    /// # Errors
    /// As [`ibarrier`](Self::ibarrier).
    pub fn iallgather<E: ElementMut>(
        &'scope self,
        data: &'scope [E],
        into: &'scope mut [E],
    ) -> Filling<'scope, 'env, E, T> {
        self.filling(&calls::allgather(data), data.as_bytes(), into, None)
    }

    /// [`Comm::allgatherv`](crate::Comm::allgatherv) without waiting (`MPI_Iallgatherv`).
    ///
    /// # Errors
    /// As [`ibarrier`](Self::ibarrier).
    pub fn iallgatherv<E: ElementMut>(
        &'scope self,
        data: &'scope [E],
        into: &'scope mut [E],
        counts: &[usize],
    ) -> Filling<'scope, 'env, E, T> {
        self.filling(&calls::allgatherv(data, counts), data.as_bytes(), into, None)
    }

    /// [`Comm::alltoall`](crate::Comm::alltoall) without waiting (`MPI_Ialltoall`).
    ///
    /// # Errors
    /// As [`ibarrier`](Self::ibarrier).
    pub fn ialltoall<E: ElementMut>(
        &'scope self,
        data: &'scope [E],
        into: &'scope mut [E],
    ) -> Filling<'scope, 'env, E, T> {
        let call = calls::alltoall(data, self.comm().size())?;
        self.filling(&call, data.as_bytes(), into, None)
    }

    /// [`Comm::alltoallv`](crate::Comm::alltoallv) without waiting (`MPI_Ialltoallv`).
    ///
    /// # Errors
    /// As [`ibarrier`](Self::ibarrier).
    pub fn ialltoallv<E: ElementMut>(
        &'scope self,
        data: &'scope [E],
        given: &[usize],
        into: &'scope mut [E],
        taken: &[usize],
    ) -> Filling<'scope, 'env, E, T> {
        self.filling(&calls::alltoallv::<E>(given, taken), data.as_bytes(), into, None)
    }

    /// [`Comm::reduce`](crate::Comm::reduce) without waiting (`MPI_Ireduce`).
    ///
    /// # Errors
    /// As [`ibarrier`](Self::ibarrier).
    pub fn ireduce<E: ElementMut>(
        &'scope self,
        data: &'scope [E],
        into: &'scope mut [E],
        op: Op<E>,
        root: impl Into<Root>,
    ) -> Filling<'scope, 'env, E, T> {
        let root = root.into();
        let count = calls::reduced(data, into, root);
        self.reducing(data, into, &op, count, |elements| calls::reduce(elements, root))
    }

    /// [`Comm::allreduce`](crate::Comm::allreduce) without waiting (`MPI_Iallreduce`).
    ///
    /// ```
    /// # let world = ironweave::World::init()?;
    /// # let comm = world.comm();
    /// use ironweave::Op;
    /// let mut sum = [0u64];
    /// comm.scope(|scope| {
    ///     let under_way = scope.iallreduce(&[1], &mut sum, Op::SUM)?;
    ///     // … something else meanwhile …
    ///     assert_eq!(under_way.finish()?, &[u64::from(comm.size())]);
    ///     Ok::<(), ironweave::Error>(())
    /// })??;
    /// # Ok::<(), ironweave::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`ibarrier`](Self::ibarrier).
    pub fn iallreduce<E: ElementMut>(
        &'scope self,
        data: &'scope [E],
        into: &'scope mut [E],
        op: Op<E>,
    ) -> Filling<'scope, 'env, E, T> {
        self.reducing(data, into, &op, data.len(), calls::allreduce)
    }

    /// [`Comm::reduce_scatter`](crate::Comm::reduce_scatter) without waiting (`MPI_Ireduce_scatter`).
    ///
    /// # Errors
    /// As [`ibarrier`](Self::ibarrier).
    pub fn ireduce_scatter<E: ElementMut>(
        &'scope self,
        data: &'scope [E],
        into: &'scope mut [E],
        counts: &[usize],
        op: Op<E>,
    ) -> Filling<'scope, 'env, E, T> {
        self.reducing(data, into, &op, 0, |elements| calls::reduce_scatter(elements, counts))
    }

    /// [`Comm::reduce_scatter_block`](crate::Comm::reduce_scatter_block) without waiting (`MPI_Ireduce_scatter_block`).
    ///
    /// # Errors
    /// As [`ibarrier`](Self::ibarrier).
    pub fn ireduce_scatter_block<E: ElementMut>(
        &'scope self,
        data: &'scope [E],
        into: &'scope mut [E],
        op: Op<E>,
    ) -> Filling<'scope, 'env, E, T> {
        let count = into.len();
        self.reducing(data, into, &op, count, calls::reduce_scatter_block)
    }

    /// [`Comm::scan`](crate::Comm::scan) without waiting (`MPI_Iscan`).
    ///
    /// # Errors
    /// As [`ibarrier`](Self::ibarrier).
    pub fn iscan<E: ElementMut>(
        &'scope self,
        data: &'scope [E],
        into: &'scope mut [E],
        op: Op<E>,
    ) -> Filling<'scope, 'env, E, T> {
        self.reducing(data, into, &op, data.len(), calls::scan)
    }

    /// [`Comm::exscan`](crate::Comm::exscan) without waiting (`MPI_Iexscan`).
    ///
    /// # Errors
    /// As [`ibarrier`](Self::ibarrier).
    pub fn iexscan<E: ElementMut>(
        &'scope self,
        data: &'scope [E],
        into: &'scope mut [E],
        op: Op<E>,
    ) -> Filling<'scope, 'env, E, T> {
        self.reducing(data, into, &op, data.len(), calls::exscan)
    }
}
