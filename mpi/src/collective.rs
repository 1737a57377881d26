//! Blocking collective operations (MPI standard 5.0, chapter 6). Every member calls the same ones in the same order.
//!
//! When a member fails in the middle, every living member's call ends: with success where its part was done already (then
//! its data is right), with [`Error::ProcFailed`](crate::Error) elsewhere. Collectives on that communicator fail from then
//! on; point-to-point goes on. [`Comm::shrink`] gives one that works. Buffers of calls that failed hold undefined contents, and
//! nothing writes them any more (law 2).
//!
//! Algorithms are chosen by size and number of ranks, or by parameters (`coll_*_algorithm`).
#![allow(unsafe_code)] // lends memory: see `lend`

use crate::message::{Element, ElementMut};
use crate::reduce::Op;
use crate::threading::{Handle, Threading};
use crate::{Comm, Error, Result, lend};
use ironweave_coll::{Call, Elements, Memory, Reduction, Root};
use zerocopy::IntoBytes as _;

impl<T: Threading> Comm<T> {
    /// Runs a collective to its end.
    fn collective(
        &self,
        call: &Call,
        send: &[u8],
        recv: &mut [u8],
        reduction: Option<&Reduction>,
    ) -> Result<()> {
        // SAFETY: `wait` below returns only when no message of the operation is under way.
        let memory = unsafe { Memory { send: lend::bytes(send), recv: lend::buffer(recv) } };
        let mut collective = self
            .handle()
            .with(|engine| Ok(engine.collective(self.core(), call, memory, reduction)?))?;
        self.handle().wait(|engine| {
            let clock = engine.clock();
            collective.poll(engine, clock).map(|ended| ended.map_err(Error::from))
        })
    }

    fn reducing<E: Element>(
        &self,
        data: &[E],
        into: &mut [u8],
        op: &Op<E>,
        count: usize,
        call: impl FnOnce(Elements) -> Call,
    ) -> Result<()> {
        let reduction = op.reduction()?;
        let commutative = reduction.is_commutative();
        let elements = Elements { count, extent: size_of::<E>(), commutative };
        self.collective(&call(elements), data.as_bytes(), into, Some(&reduction))
    }

    /// Returns when every member has called it (`MPI_Barrier`).
    ///
    /// # Errors
    /// [`Error::ProcFailed`], [`Error::Revoked`], as of all collectives.
    pub fn barrier(&self) -> Result<()> {
        self.collective(&Call::Barrier, &[], &mut [], None)
    }

    /// Gives `root`'s data to everybody (`MPI_Bcast`). All buffers are of the same length.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier); [`Error::Argument`] for wrong arguments, as of all collectives.
    pub fn bcast<E: ElementMut>(&self, data: &mut [E], root: u32) -> Result<()> {
        let len = size_of_val(data);
        let call = Call::Bcast { root: Root::Rank(root), len };
        self.collective(&call, &[], data.as_mut_bytes(), None)
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
        self.reducing(data, into.as_mut_bytes(), &op, data.len(), |elements| Call::Allreduce {
            elements,
            in_place: false,
        })
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
}
