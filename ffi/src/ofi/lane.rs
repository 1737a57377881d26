//! Endpoints beside a port's own, for reads straight into memory that is not the port's.
//!
//! Closing an endpoint is the only thing that makes every provider let go of memory: no operation can be taken back, and the
//! port's own endpoint serves all peers. So foreign memory is only ever given to an endpoint that serves one peer, and
//! [`Port::close_lane`] takes it back: after `fi_close` no completion is added and nothing is written. What the
//! queue holds of such operations by then is dropped (`Stage::Orphan`); their contexts are used again when the queue was empty
//! once.

use super::errno::Errno;
use super::open::{bind_and_enable, called, close, name_of};
use super::port::{Closes, FiAddr, Port, Remote, Stage, Work};
use super::{OfiError, raw};
use std::ptr::{NonNull, null_mut};

/// An endpoint beside a port's own. Not to be copied: it is given up to [`Port::close_lane`].
#[derive(Debug)]
pub struct Lane(usize);

impl Port {
    /// Opens an endpoint for reads of one peer's memory, which that peer's lane may read from too; and its address.
    ///
    /// # Errors
    /// The provider's; [`Errno::OPNOTSUPP`] without [`Wanted::rma`](super::Wanted), and where endpoints must not be closed
    /// with operations under way ([`Options::closes`](super::Options)).
    pub fn open_lane(&mut self) -> Result<(Lane, Vec<u8>), OfiError> {
        if !(self.info.has().rma && self.options.closes == Closes::Busy) {
            return Err(OfiError::Call { call: "fi_endpoint", error: Errno::OPNOTSUPP });
        }
        let mut ep = null_mut();
        // SAFETY: the domain is open, `info` describes it.
        let returned = unsafe {
            let ops = &*(*self.domain.as_ptr()).ops;
            (ops.endpoint)(self.domain.as_ptr(), self.info.raw(), &mut ep, null_mut())
        };
        called("fi_endpoint", returned)?;
        let none = OfiError::Call { call: "fi_endpoint", error: Errno::OTHER };
        let ep: NonNull<raw::Ep> = NonNull::new(ep).ok_or(none)?;
        // SAFETY: just opened, with the port's own vector and queue, which stay open for longer.
        let enabled = unsafe { bind_and_enable(ep, self.av, self.cq, || Ok(())) };
        let name = match enabled.and_then(|()| name_of(ep)) {
            Ok(name) => name,
            Err(error) => {
                // SAFETY: open, and nothing was started on it.
                let _ = unsafe { close(ep.as_ptr().cast()) };
                return Err(error);
            }
        };
        let at = self.lanes.iter().position(Option::is_none).unwrap_or_else(|| {
            self.lanes.push(None);
            self.lanes.len() - 1
        });
        self.lanes[at] = Some(ep);
        Ok((Lane(at), name))
    }

    /// Reads `len` bytes of a peer's memory to `start`; [`Event::ReadInto`](super::Event) or
    /// [`Event::Failed`](super::Event) follows.
    ///
    /// # Errors
    /// [`Errno::AGAIN`]: no room now. Others as the provider has them. Nothing was started.
    ///
    /// # Safety
    /// The memory is valid for writes, and nobody else touches it, until that event, or until [`Port::close_lane`] of this
    /// lane said `Ok`, or until the port is dropped.
    pub unsafe fn read_into(
        &mut self,
        lane: &Lane,
        (start, len): (*mut u8, usize),
        from: FiAddr,
        remote: Remote,
        mark: u64,
    ) -> Result<(), Errno> {
        let ep = self.lanes.get(lane.0).copied().flatten().ok_or(Errno::OPBADSTATE)?;
        let at = *self.free_reads.last().ok_or(Errno::AGAIN)?;
        let local = match self.info.mr_mode(raw::MR_LOCAL) {
            // SAFETY: by contract; it is closed with the operation or before the lane is closed.
            true => Some(unsafe { self.register_raw(ep, start, len, raw::READ) }?),
            false => None,
        };
        // SAFETY: a registration that is open.
        let desc = local.map_or(null_mut(), |mr| unsafe { (*mr.as_ptr()).desc });
        let context = self.contexts[at].0.get().cast();
        // SAFETY: the endpoint is open and, having the capability, has a table of these calls. The memory is the library's
        // until the completion or the endpoint's end, by contract.
        let returned = unsafe {
            let rma = NonNull::new((*ep.as_ptr()).rma.cast_mut()).ok_or(Errno::OPNOTSUPP)?;
            ((*rma.as_ptr()).read)(
                ep.as_ptr(),
                start.cast(),
                len,
                desc,
                from,
                remote.address,
                remote.key,
                context,
            )
        };
        if let Err(error) = Errno::check(returned) {
            close_registration(local);
            return Err(error);
        }
        self.free_reads.pop();
        let operation = &mut self.operations[at];
        (operation.work, operation.mark, operation.len) = (Work::ReadInto, mark, len);
        (operation.stage, operation.lane, operation.local) = (Stage::Flying, lane.0, local);
        self.flying += 1;
        Ok(())
    }

    /// Closes the endpoint. After `Ok` no memory that was given to it is touched, its answers to peers' reads are over, and none of
    /// its events comes.
    ///
    /// Not while a peer may be connecting to it: tcp (seen in 1.22) keeps a connection that it has accepted, but whose greeting
    /// it has not read, pointing to the endpoint, and crashes when that greeting comes. Callers see to that.
    ///
    /// # Errors
    /// The lane: the provider does not close it now, and its memory is not free.
    pub fn close_lane(&mut self, lane: Lane) -> Result<(), Lane> {
        let Some(ep) = self.lanes.get(lane.0).copied().flatten() else { return Ok(()) };
        let of_lane = |operation: &super::port::Operation| {
            operation.work == Work::ReadInto
                && operation.stage == Stage::Flying
                && operation.lane == lane.0
        };
        if self.info.mr_mode(raw::MR_ENDPOINT) {
            // Bound to the endpoint, so they go first.
            for operation in self.operations.iter_mut().filter(|operation| of_lane(operation)) {
                close_registration(operation.local.take());
            }
        }
        // SAFETY: open; not used again when it closed.
        if unsafe { close(ep.as_ptr().cast()) }.is_err() {
            return Err(lane);
        }
        self.lanes[lane.0] = None;
        for (at, operation) in self.operations.iter_mut().enumerate() {
            if of_lane(operation) {
                close_registration(operation.local.take());
                operation.stage = Stage::Orphan;
                self.orphans.push(at);
                self.flying -= 1;
            }
        }
        Ok(())
    }

    /// The memory of a read is the caller's again.
    pub(super) fn finish_read_into(&mut self, at: usize) {
        let operation = &mut self.operations[at];
        operation.stage = Stage::Idle;
        close_registration(operation.local.take());
        self.free_reads.push(at);
        self.flying -= 1;
    }

    /// The queue was empty: no more is to come of endpoints that were closed before.
    #[cold]
    pub(super) fn forget_orphans(&mut self) {
        for at in self.orphans.drain(..) {
            self.operations[at].stage = Stage::Idle;
            self.free_reads.push(at);
        }
    }

    /// Closes all lanes, for `drop`. `false` when one does not close.
    pub(super) fn close_lanes(&mut self) -> bool {
        for at in 0..self.lanes.len() {
            let _ = self.close_lane(Lane(at)); // the others all the same
        }
        self.lanes.iter().all(Option::is_none)
    }
}

fn close_registration(mr: Option<NonNull<raw::Mr>>) {
    if let Some(mr) = mr {
        // SAFETY: open, and taken out of the only place that knew it.
        let _ = unsafe { close(mr.as_ptr().cast()) };
    }
}
