//! Blocking collective operations (MPI standard 5.0, chapter 6). Every member calls the same ones in the same order.
//!
//! When a member fails in the middle, every living member's call ends: with success where its part was done already (then
//! its data is right), with [`Error::ProcFailed`](crate::Error) elsewhere. Collectives on that communicator fail from then
//! on; point-to-point goes on. [`Comm::shrink`] gives one that works. Buffers of calls that failed hold undefined contents, and
//! nothing writes them any more (law 2).
//!
//! On an inter-communicator what comes is the other side's. The root of an operation is a rank of the other side there; on its own side
//! the root says [`Root::Me`], and all others [`Root::Other`].
//!
//! Algorithms are chosen by size and number of ranks, or by parameters (`coll_*_algorithm`).
#![allow(unsafe_code)] // lends memory: see `lend`

use crate::calls::Rooted;
use crate::message::{Element, ElementMut};
use crate::reduce::Op;
use crate::threading::{Handle, Threading};
use crate::{Comm, Result, calls, lend};
use ironweave_coll::{Call, Elements, Memory, Reduction, Root};
use zerocopy::IntoBytes as _;

impl<T: Threading> Comm<T> {
    /// Runs a collective to its end.
    pub(crate) fn collective(
        &self,
        call: &Call,
        send: &[u8],
        recv: &mut [u8],
        reduction: Option<&Reduction>,
    ) -> Result<()> {
        // SAFETY: `collect` returns only when no message of the operation is under way, or nobody drives the engine any more.
        let memory = unsafe { Memory { send: lend::bytes(send), recv: lend::buffer(recv) } };
        let ended = self.handle().collect(self.core(), call, memory, reduction);
        self.raise("a collective operation", ended)
    }

    /// What this process is in an operation with that root; `counts` matter at the root only.
    pub(crate) fn rooted<'a>(
        &self,
        root: impl Into<Root>,
        counts: Option<&'a [usize]>,
    ) -> Rooted<'a> {
        let root = root.into();
        // On an inter-communicator the rank is that of another process.
        let is_root = match root {
            Root::Rank(rank) => rank == self.rank(),
            Root::Me => true,
            Root::Other => false,
        };
        Rooted { root, size: self.size(), counts: counts.filter(|_| is_root) }
    }

    fn reducing<E: Element>(
        &self,
        data: &[E],
        into: &mut [u8],
        op: &Op<E>,
        count: usize,
        call: impl FnOnce(Elements) -> Call,
    ) -> Result<()> {
        let (reduction, elements) = op.on(count)?;
        self.collective(&call(elements), data.as_bytes(), into, Some(&reduction))
    }

    /// Returns when every member has called it (`MPI_Barrier`).
    ///
    /// # Errors
    /// [`Error::ProcFailed`](crate::Error::ProcFailed), [`Error::Revoked`](crate::Error::Revoked), as of all collectives.
    pub fn barrier(&self) -> Result<()> {
        self.collective(&Call::Barrier, &[], &mut [], None)
    }

    /// Gives `root`'s data to everybody (`MPI_Bcast`). All buffers are of the same length.
    ///
    /// ```
    /// # let world = ironweave::World::init()?;
    /// # let comm = world.comm();
    /// let mut answer = if comm.rank() == 0 { [42] } else { [0] };
    /// comm.bcast(&mut answer, 0)?;
    /// assert_eq!(answer, [42]);
    /// # Ok::<(), ironweave::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier); [`Error::Argument`](crate::Error::Argument) for wrong arguments, as of all collectives.
    pub fn bcast<E: ElementMut>(&self, data: &mut [E], root: impl Into<Root>) -> Result<()> {
        self.collective(&calls::bcast(data, root.into()), &[], data.as_mut_bytes(), None)
    }

    /// Collects everybody's data at `root`, in the order of ranks (`MPI_Gather`). All give equally much; `into` matters at the
    /// root only, where it has room for all.
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast).
    pub fn gather<E: ElementMut>(
        &self,
        data: &[E],
        into: &mut [E],
        root: impl Into<Root>,
    ) -> Result<()> {
        self.collective(
            &calls::gather(data, into, self.rooted(root, None))?,
            data.as_bytes(),
            into.as_mut_bytes(),
            None,
        )
    }

    /// As [`gather`](Self::gather), rank r giving `counts[r]` elements (`MPI_Gatherv`). `into` and `counts` matter at the root
    /// only.
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast).
    pub fn gatherv<E: ElementMut>(
        &self,
        data: &[E],
        into: &mut [E],
        counts: &[usize],
        root: impl Into<Root>,
    ) -> Result<()> {
        let call = calls::gatherv(data, self.rooted(root, Some(counts)));
        self.collective(&call, data.as_bytes(), into.as_mut_bytes(), None)
    }

    /// Gives each rank its part of `root`'s data (`MPI_Scatter`). `data` matters at the root only.
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast).
    pub fn scatter<E: ElementMut>(
        &self,
        data: &[E],
        into: &mut [E],
        root: impl Into<Root>,
    ) -> Result<()> {
        self.collective(
            &calls::scatter(data, into, self.rooted(root, None))?,
            data.as_bytes(),
            into.as_mut_bytes(),
            None,
        )
    }

    /// As [`scatter`](Self::scatter), rank r getting `counts[r]` elements (`MPI_Scatterv`). `data` and `counts` matter at the
    /// root only.
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast).
    pub fn scatterv<E: ElementMut>(
        &self,
        data: &[E],
        counts: &[usize],
        into: &mut [E],
        root: impl Into<Root>,
    ) -> Result<()> {
        let call = calls::scatterv(into, self.rooted(root, Some(counts)));
        self.collective(&call, data.as_bytes(), into.as_mut_bytes(), None)
    }

    /// Gives everybody's data to everybody, in the order of ranks (`MPI_Allgather`). All give equally much.
    ///
    /// ```
    /// # let world = ironweave::World::init()?;
    /// # let comm = world.comm();
    /// let mut all = vec![0; comm.size() as usize];
    /// comm.allgather(&[comm.rank()], &mut all)?;
    /// assert!(all.iter().copied().eq(0..comm.size()));
    /// # Ok::<(), ironweave::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast).
    pub fn allgather<E: ElementMut>(&self, data: &[E], into: &mut [E]) -> Result<()> {
        self.collective(&calls::allgather(data), data.as_bytes(), into.as_mut_bytes(), None)
    }

    /// As [`allgather`](Self::allgather), rank r giving `counts[r]` elements (`MPI_Allgatherv`).
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast).
    pub fn allgatherv<E: ElementMut>(
        &self,
        data: &[E],
        into: &mut [E],
        counts: &[usize],
    ) -> Result<()> {
        let call = calls::allgatherv(data, counts);
        self.collective(&call, data.as_bytes(), into.as_mut_bytes(), None)
    }

    /// Gives each rank its part of everybody's data (`MPI_Alltoall`): part r of `data` goes to rank r, and what comes from rank
    /// r is part r of `into`. All parts are equally long.
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast).
    pub fn alltoall<E: ElementMut>(&self, data: &[E], into: &mut [E]) -> Result<()> {
        let call = calls::alltoall(data, self.size())?;
        self.collective(&call, data.as_bytes(), into.as_mut_bytes(), None)
    }

    /// As [`alltoall`](Self::alltoall), with parts of any length (`MPI_Alltoallv`): `given[r]` elements go to rank r, `taken[r]`
    /// come from it.
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast).
    pub fn alltoallv<E: ElementMut>(
        &self,
        data: &[E],
        given: &[usize],
        into: &mut [E],
        taken: &[usize],
    ) -> Result<()> {
        let call = calls::alltoallv::<E>(given, taken);
        self.collective(&call, data.as_bytes(), into.as_mut_bytes(), None)
    }

    /// Combines everybody's data at `root`, element by element (`MPI_Reduce`). `into` matters at the root only.
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast).
    pub fn reduce<E: ElementMut>(
        &self,
        data: &[E],
        into: &mut [E],
        op: Op<E>,
        root: impl Into<Root>,
    ) -> Result<()> {
        let root = root.into();
        let count = calls::reduced(data, into, root);
        let call = |elements| calls::reduce(elements, root);
        self.reducing(data, into.as_mut_bytes(), &op, count, call)
    }

    /// Combines everybody's data for everybody, element by element (`MPI_Allreduce`). All get the same bits.
    ///
    /// ```
    /// # let world = ironweave::World::init()?;
    /// # let comm = world.comm();
    /// use ironweave::Op;
    /// let mut sum = [0.0];
    /// comm.allreduce(&[1.5], &mut sum, Op::SUM)?;
    /// assert_eq!(sum, [1.5 * f64::from(comm.size())]);
    /// # Ok::<(), ironweave::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast).
    pub fn allreduce<E: ElementMut>(&self, data: &[E], into: &mut [E], op: Op<E>) -> Result<()> {
        self.reducing(data, into.as_mut_bytes(), &op, data.len(), calls::allreduce)
    }

    /// As [`allreduce`](Self::allreduce), the result taking the place of the data (`MPI_IN_PLACE`).
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast).
    pub fn allreduce_in_place<E: ElementMut>(&self, data: &mut [E], op: Op<E>) -> Result<()> {
        let count = data.len();
        self.reducing(&[], data.as_mut_bytes(), &op, count, |elements| Call::Allreduce {
            elements,
            in_place: true,
        })
    }

    /// Combines everybody's data, rank r getting `counts[r]` elements of the result (`MPI_Reduce_scatter`).
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast).
    pub fn reduce_scatter<E: ElementMut>(
        &self,
        data: &[E],
        into: &mut [E],
        counts: &[usize],
        op: Op<E>,
    ) -> Result<()> {
        let call = |elements| calls::reduce_scatter(elements, counts);
        self.reducing(data, into.as_mut_bytes(), &op, 0, call)
    }

    /// As [`reduce_scatter`](Self::reduce_scatter), all getting equally much: as many as `into` has elements
    /// (`MPI_Reduce_scatter_block`).
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast).
    pub fn reduce_scatter_block<E: ElementMut>(
        &self,
        data: &[E],
        into: &mut [E],
        op: Op<E>,
    ) -> Result<()> {
        let count = into.len();
        self.reducing(data, into.as_mut_bytes(), &op, count, calls::reduce_scatter_block)
    }

    /// Combines the data of the ranks up to and with this one (`MPI_Scan`).
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast).
    pub fn scan<E: ElementMut>(&self, data: &[E], into: &mut [E], op: Op<E>) -> Result<()> {
        self.reducing(data, into.as_mut_bytes(), &op, data.len(), calls::scan)
    }

    /// Combines the data of the ranks before this one (`MPI_Exscan`). At rank 0 `into` stays as it is.
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast).
    pub fn exscan<E: ElementMut>(&self, data: &[E], into: &mut [E], op: Op<E>) -> Result<()> {
        self.reducing(data, into.as_mut_bytes(), &op, data.len(), calls::exscan)
    }
}
