//! Persistent collective operations (MPI standard 5.0, 6.13): arguments are bound and everything is planned once, in a
//! [`Scope`]; then the operation is started any number of times.
//!
//! All members make the same ones in the same order; they may start them in different orders. A failure does not end the
//! operation itself: the run ends with the error, and so does every later one on that communicator.
#![allow(unsafe_code)] // lends memory: see `lend`

use crate::lend::Lent;
use crate::message::ElementMut;
use crate::reduce::Op;
use crate::threading::{Handle, Single, Threading};
use crate::{Error, Neighborhood, Result, Scope, calls, lend};
use ironweave_coll::{Call, Elements, Memory, Reduction, Root};
use ironweave_core::{PersistentId, TaskId};
use zerocopy::IntoBytes as _;

/// A collective operation to be started any number of times. It owns the use of its buffers, and shows them between
/// runs. Dropped or forgotten, it goes at the end of the scope, which waits for a run that is under way.
///
/// ```
/// # let world = ironweave::World::init()?;
/// # let comm = world.comm();
/// use ironweave::Op;
/// let (mut mine, mut sum) = ([0u64], [0u64]);
/// comm.scope(|scope| {
///     let mut reduction = scope.allreduce_init(&mut mine, &mut sum, Op::SUM)?;
///     for round in 0..3 {
///         reduction.data_mut().expect("no run is under way")[0] = round;
///         reduction.start()?;
///         // … something else meanwhile …
///         reduction.wait()?;
///         assert_eq!(reduction.result(), Some(&[round * u64::from(comm.size())][..]));
///     }
///     let (_mine, _sum) = reduction.free()?;
///     Ok::<(), ironweave::Error>(())
/// })??;
/// # Ok::<(), ironweave::Error>(())
/// ```
///
/// During a run nobody sees the buffers, nor can they be used elsewhere:
///
/// ```compile_fail
/// # let world = ironweave::World::init().unwrap();
/// # let comm = world.comm();
/// let mut data = [0u8];
/// comm.scope(|scope| {
///     let mut bcast = scope.bcast_init(&mut data, 0)?;
///     bcast.start()?;
///     data[0] = 1;
///     bcast.wait()
/// });
/// ```
#[must_use = "an operation that is never started does nothing"]
pub struct PersistentCollective<'scope, 'env, E, T: Threading = Single> {
    scope: &'scope Scope<'scope, 'env, T>,
    id: PersistentId,
    /// Its place in the scope.
    place: usize,
    /// The run under way.
    run: Option<TaskId>,
    reduction: Option<Reduction>,
    data: Lent<&'scope mut [E]>,
    into: Lent<&'scope mut [E]>,
}

impl<'scope, E: ElementMut, T: Threading> PersistentCollective<'scope, '_, E, T> {
    /// Starts a run (`MPI_Start`).
    ///
    /// # Errors
    /// [`Error::ProcFailed`], [`Error::Revoked`] when the communicator is interrupted already; [`Error::Argument`] when a run
    /// is under way. Nothing was begun then.
    pub fn start(&mut self) -> Result<()> {
        let comm = self.scope.comm();
        if self.run.is_some() {
            let active = Error::Argument("the persistent operation is active".into());
            return comm.raise("the start of a persistent collective", Err(active));
        }
        // SAFETY: the end of the run is waited for, by `wait` or by the scope's end, before `'scope` ends; and until then
        // nobody gets at the buffers: `data_mut`, `result` and `result_mut` answer `None`, `free` waits.
        let memory = unsafe {
            Memory {
                send: lend::bytes(self.data.get_mut().as_bytes()),
                recv: lend::buffer(self.into.get_mut().as_mut_bytes()),
            }
        };
        let (id, reduction) = (self.id, self.reduction.as_ref());
        let started = comm.handle().with(|engine| {
            engine.listen();
            let now = engine.now();
            Ok(engine.collective_start(id, memory, reduction, now)?)
        });
        let run = comm.raise("the start of a persistent collective", started)?;
        self.run = Some(run);
        self.scope.runs(self.place, self.id, Some(run));
        Ok(())
    }

    /// Waits for the end of the run (`MPI_Wait`); at once when there is none. The operation can be started again.
    ///
    /// # Errors
    /// Those of the blocking call.
    pub fn wait(&mut self) -> Result<()> {
        let Some(run) = self.run else { return Ok(()) };
        let ended = self.scope.comm().handle().complete(run);
        if ended != Err(Error::Poisoned) {
            self.note_end();
        }
        self.scope.comm().raise("a persistent collective", ended.map(drop))
    }

    /// Whether no run is under way (`MPI_Test`); moves communication forward.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn test(&mut self) -> Result<bool> {
        let Some(run) = self.run else { return Ok(true) };
        let ended = self.scope.comm().handle().with(|engine| {
            engine.progress();
            Ok(engine.test(run))
        })?;
        let Some(ended) = ended else { return Ok(false) };
        self.note_end();
        let ended = ended.map(|_| true).map_err(Error::from);
        self.scope.comm().raise("a persistent collective", ended)
    }

    fn note_end(&mut self) {
        self.run = None;
        self.scope.runs(self.place, self.id, None);
    }

    /// The contribution, to be changed between runs; `None` during one. Empty for [`bcast`](Scope::bcast_init), whose
    /// data is its [`result`](Self::result_mut).
    pub fn data_mut(&mut self) -> Option<&mut [E]> {
        if self.run.is_some() { None } else { Some(self.data.get_mut()) }
    }

    /// What the last run brought; `None` during one.
    #[must_use]
    pub fn result(&self) -> Option<&[E]> {
        if self.run.is_some() { None } else { Some(self.into.get()) }
    }

    /// The result's buffer, to be changed between runs; `None` during one.
    pub fn result_mut(&mut self) -> Option<&mut [E]> {
        if self.run.is_some() { None } else { Some(self.into.get_mut()) }
    }

    /// Ends its life (`MPI_Request_free`), after the run that is under way, and gives the buffers back: data and result.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); it is gone in any case.
    #[allow(clippy::type_complexity)]
    pub fn free(mut self) -> Result<(&'scope mut [E], &'scope mut [E])> {
        self.wait()?;
        self.scope.comm().handle().with(|engine| {
            engine.collective_free(self.id);
            Ok(())
        })?;
        self.scope.forget(self.place);
        Ok((self.data.into_inner(), self.into.into_inner()))
    }
}

/// What a call that makes one answers.
type Made<'scope, 'env, E, T> = Result<PersistentCollective<'scope, 'env, E, T>>;

impl<'scope, 'env, T: Threading> Scope<'scope, 'env, T> {
    fn make<E: ElementMut>(
        &'scope self,
        call: &Call,
        data: &'scope mut [E],
        into: &'scope mut [E],
        reduction: Option<Reduction>,
    ) -> Made<'scope, 'env, E, T> {
        let comm = self.comm();
        let made = comm.handle().with(|engine| Ok(engine.collective_init(comm.core(), call)?));
        let id = comm.raise("the making of a persistent collective", made)?;
        let place = self.keep_persistent(id);
        let (data, into) = (Lent::new(data), Lent::new(into));
        Ok(PersistentCollective { scope: self, id, place, run: None, reduction, data, into })
    }

    fn make_reduction<E: ElementMut>(
        &'scope self,
        data: &'scope mut [E],
        into: &'scope mut [E],
        op: &Op<E>,
        count: usize,
        call: impl FnOnce(Elements) -> Call,
    ) -> Made<'scope, 'env, E, T> {
        let (reduction, elements) = op.on(count)?;
        self.make(&call(elements), data, into, Some(reduction))
    }

    /// [`Comm::barrier`](crate::Comm::barrier), persistent (`MPI_Barrier_init`).
    ///
    /// # Errors
    /// As of all calls here: [`Error::Argument`] for what is wrong with the arguments. Interruptions are told by
    /// [`start`](PersistentCollective::start) and [`wait`](PersistentCollective::wait).
    pub fn barrier_init(&'scope self) -> Made<'scope, 'env, u8, T> {
        self.make(&Call::Barrier, &mut [], &mut [], None)
    }

    /// [`Comm::bcast`](crate::Comm::bcast), persistent (`MPI_Bcast_init`): the one buffer is the result's, at the root too.
    ///
    /// # Errors
    /// As [`barrier_init`](Self::barrier_init).
    pub fn bcast_init<E: ElementMut>(
        &'scope self,
        data: &'scope mut [E],
        root: impl Into<Root>,
    ) -> Made<'scope, 'env, E, T> {
        self.make(&calls::bcast(data, root.into()), &mut [], data, None)
    }

    /// [`Comm::gather`](crate::Comm::gather), persistent (`MPI_Gather_init`).
    ///
    /// # Errors
    /// As [`barrier_init`](Self::barrier_init).
    pub fn gather_init<E: ElementMut>(
        &'scope self,
        data: &'scope mut [E],
        into: &'scope mut [E],
        root: impl Into<Root>,
    ) -> Made<'scope, 'env, E, T> {
        self.make(&calls::gather(data, into, self.comm().rooted(root, None))?, data, into, None)
    }

    /// [`Comm::gatherv`](crate::Comm::gatherv), persistent (`MPI_Gatherv_init`).
    ///
    /// # Errors
    /// As [`barrier_init`](Self::barrier_init).
    pub fn gatherv_init<E: ElementMut>(
        &'scope self,
        data: &'scope mut [E],
        into: &'scope mut [E],
        counts: &[usize],
        root: impl Into<Root>,
    ) -> Made<'scope, 'env, E, T> {
        let call = calls::gatherv(data, self.comm().rooted(root, Some(counts)));
        self.make(&call, data, into, None)
    }

    /// [`Comm::scatter`](crate::Comm::scatter), persistent (`MPI_Scatter_init`).
    ///
    /// # Errors
    /// As [`barrier_init`](Self::barrier_init).
    pub fn scatter_init<E: ElementMut>(
        &'scope self,
        data: &'scope mut [E],
        into: &'scope mut [E],
        root: impl Into<Root>,
    ) -> Made<'scope, 'env, E, T> {
        self.make(&calls::scatter(data, into, self.comm().rooted(root, None))?, data, into, None)
    }

    /// [`Comm::scatterv`](crate::Comm::scatterv), persistent (`MPI_Scatterv_init`).
    ///
    /// # Errors
    /// As [`barrier_init`](Self::barrier_init).
    pub fn scatterv_init<E: ElementMut>(
        &'scope self,
        data: &'scope mut [E],
        counts: &[usize],
        into: &'scope mut [E],
        root: impl Into<Root>,
    ) -> Made<'scope, 'env, E, T> {
        let call = calls::scatterv(into, self.comm().rooted(root, Some(counts)));
        self.make(&call, data, into, None)
    }

    /// [`Comm::allgather`](crate::Comm::allgather), persistent (`MPI_Allgather_init`).
    ///
    /// # Errors
    /// As [`barrier_init`](Self::barrier_init).
    pub fn allgather_init<E: ElementMut>(
        &'scope self,
        data: &'scope mut [E],
        into: &'scope mut [E],
    ) -> Made<'scope, 'env, E, T> {
        self.make(&calls::allgather(data), data, into, None)
    }

    /// [`Comm::allgatherv`](crate::Comm::allgatherv), persistent (`MPI_Allgatherv_init`).
    ///
    /// # Errors
    /// As [`barrier_init`](Self::barrier_init).
    pub fn allgatherv_init<E: ElementMut>(
        &'scope self,
        data: &'scope mut [E],
        into: &'scope mut [E],
        counts: &[usize],
    ) -> Made<'scope, 'env, E, T> {
        self.make(&calls::allgatherv(data, counts), data, into, None)
    }

    /// [`Comm::alltoall`](crate::Comm::alltoall), persistent (`MPI_Alltoall_init`).
    ///
    /// # Errors
    /// As [`barrier_init`](Self::barrier_init).
    pub fn alltoall_init<E: ElementMut>(
        &'scope self,
        data: &'scope mut [E],
        into: &'scope mut [E],
    ) -> Made<'scope, 'env, E, T> {
        let call = calls::alltoall(data, self.comm().size())?;
        self.make(&call, data, into, None)
    }

    /// [`Comm::alltoallv`](crate::Comm::alltoallv), persistent (`MPI_Alltoallv_init`).
    ///
    /// # Errors
    /// As [`barrier_init`](Self::barrier_init).
    pub fn alltoallv_init<E: ElementMut>(
        &'scope self,
        data: &'scope mut [E],
        given: &[usize],
        into: &'scope mut [E],
        taken: &[usize],
    ) -> Made<'scope, 'env, E, T> {
        self.make(&calls::alltoallv::<E>(given, taken), data, into, None)
    }

    /// [`Comm::reduce`](crate::Comm::reduce), persistent (`MPI_Reduce_init`).
    ///
    /// # Errors
    /// As [`barrier_init`](Self::barrier_init).
    pub fn reduce_init<E: ElementMut>(
        &'scope self,
        data: &'scope mut [E],
        into: &'scope mut [E],
        op: Op<E>,
        root: impl Into<Root>,
    ) -> Made<'scope, 'env, E, T> {
        let root = root.into();
        let count = calls::reduced(data, into, root);
        self.make_reduction(data, into, &op, count, |elements| calls::reduce(elements, root))
    }

    /// [`Comm::allreduce`](crate::Comm::allreduce), persistent (`MPI_Allreduce_init`).
    ///
    /// # Errors
    /// As [`barrier_init`](Self::barrier_init).
    pub fn allreduce_init<E: ElementMut>(
        &'scope self,
        data: &'scope mut [E],
        into: &'scope mut [E],
        op: Op<E>,
    ) -> Made<'scope, 'env, E, T> {
        let count = data.len();
        self.make_reduction(data, into, &op, count, calls::allreduce)
    }

    /// [`Comm::reduce_scatter`](crate::Comm::reduce_scatter), persistent (`MPI_Reduce_scatter_init`).
    ///
    /// # Errors
    /// As [`barrier_init`](Self::barrier_init).
    pub fn reduce_scatter_init<E: ElementMut>(
        &'scope self,
        data: &'scope mut [E],
        into: &'scope mut [E],
        counts: &[usize],
        op: Op<E>,
    ) -> Made<'scope, 'env, E, T> {
        let call = |elements| calls::reduce_scatter(elements, counts);
        self.make_reduction(data, into, &op, 0, call)
    }

    /// [`Comm::reduce_scatter_block`](crate::Comm::reduce_scatter_block), persistent (`MPI_Reduce_scatter_block_init`).
    ///
    /// # Errors
    /// As [`barrier_init`](Self::barrier_init).
    pub fn reduce_scatter_block_init<E: ElementMut>(
        &'scope self,
        data: &'scope mut [E],
        into: &'scope mut [E],
        op: Op<E>,
    ) -> Made<'scope, 'env, E, T> {
        let count = into.len();
        self.make_reduction(data, into, &op, count, calls::reduce_scatter_block)
    }

    /// [`Comm::scan`](crate::Comm::scan), persistent (`MPI_Scan_init`).
    ///
    /// # Errors
    /// As [`barrier_init`](Self::barrier_init).
    pub fn scan_init<E: ElementMut>(
        &'scope self,
        data: &'scope mut [E],
        into: &'scope mut [E],
        op: Op<E>,
    ) -> Made<'scope, 'env, E, T> {
        let count = data.len();
        self.make_reduction(data, into, &op, count, calls::scan)
    }

    /// [`Comm::exscan`](crate::Comm::exscan), persistent (`MPI_Exscan_init`).
    ///
    /// # Errors
    /// As [`barrier_init`](Self::barrier_init).
    pub fn exscan_init<E: ElementMut>(
        &'scope self,
        data: &'scope mut [E],
        into: &'scope mut [E],
        op: Op<E>,
    ) -> Made<'scope, 'env, E, T> {
        let count = data.len();
        self.make_reduction(data, into, &op, count, calls::exscan)
    }

    /// [`Neighborhood::neighbor_allgather`], persistent (`MPI_Neighbor_allgather_init`), in a scope of that neighborhood.
    ///
    /// # Errors
    /// As [`barrier_init`](Self::barrier_init); [`Error::Argument`] in a scope of another communicator.
    pub fn neighbor_allgather_init<E: ElementMut>(
        &'scope self,
        around: &Neighborhood<T>,
        data: &'scope mut [E],
        into: &'scope mut [E],
    ) -> Made<'scope, 'env, E, T> {
        let call = calls::neighbor_allgather(around.edges_in(self.comm())?, data);
        self.make(&call, data, into, None)
    }

    /// [`Neighborhood::neighbor_allgatherv`], persistent (`MPI_Neighbor_allgatherv_init`).
    ///
    /// # Errors
    /// As [`neighbor_allgather_init`](Self::neighbor_allgather_init).
    pub fn neighbor_allgatherv_init<E: ElementMut>(
        &'scope self,
        around: &Neighborhood<T>,
        data: &'scope mut [E],
        into: &'scope mut [E],
        counts: &[usize],
    ) -> Made<'scope, 'env, E, T> {
        let call = calls::neighbor_allgatherv(around.edges_in(self.comm())?, data, counts);
        self.make(&call, data, into, None)
    }

    /// [`Neighborhood::neighbor_alltoall`], persistent (`MPI_Neighbor_alltoall_init`).
    ///
    /// # Errors
    /// As [`neighbor_allgather_init`](Self::neighbor_allgather_init).
    pub fn neighbor_alltoall_init<E: ElementMut>(
        &'scope self,
        around: &Neighborhood<T>,
        data: &'scope mut [E],
        into: &'scope mut [E],
    ) -> Made<'scope, 'env, E, T> {
        let call = calls::neighbor_alltoall(around.edges_in(self.comm())?, data, into)?;
        self.make(&call, data, into, None)
    }

    /// [`Neighborhood::neighbor_alltoallv`], persistent (`MPI_Neighbor_alltoallv_init`).
    ///
    /// # Errors
    /// As [`neighbor_allgather_init`](Self::neighbor_allgather_init).
    pub fn neighbor_alltoallv_init<E: ElementMut>(
        &'scope self,
        around: &Neighborhood<T>,
        data: &'scope mut [E],
        given: &[usize],
        into: &'scope mut [E],
        taken: &[usize],
    ) -> Made<'scope, 'env, E, T> {
        let edges = around.edges_in(self.comm())?;
        self.make(&calls::neighbor_alltoallv::<E>(edges, given, taken), data, into, None)
    }
}
