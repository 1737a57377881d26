//! Endpoints beside a port's own, for reads straight into memory that is not the port's, and for messages straight out of such
//! memory and into it, which are known by their tags.
//!
//! Closing an endpoint is the only thing that makes every provider let go of memory: no operation can be taken back, and the
//! port's own endpoint serves all peers. So foreign memory is only ever given to an endpoint that serves one peer, and
//! [`Port::close_lane`] takes it back: after `fi_close` no completion is added and nothing is written. What the
//! queue holds of such operations by then is dropped (`Stage::Orphan`); their contexts are used again when the queue was empty
//! once.

use super::errno::Errno;
use super::open::{bind_and_enable, called, close, name_of, set_least};
use super::port::{
    Closes, FiAddr, LANE_RECEIVES, NO_LANE, Operation, Port, Remote, Slot, Stage, Work,
};
use super::{OfiError, raw};
use libc::iovec;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

/// An endpoint beside a port's own. Not to be copied: it is given up to [`Port::close_lane`].
#[derive(Debug)]
pub struct Lane(usize);

impl Port {
    /// Opens an endpoint for reads of one peer's memory, which that peer's lane may read from too; and its address. With tags
    /// ([`Info::want_tags`](super::Info::want_tags)) and receive buffers for it ([`Options::lane_receives`](super::Options)) it takes
    /// messages, too.
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
        let least = self.options.lane_longest;
        let receives = match self.free_receives.len() >= LANE_RECEIVES {
            true => LANE_RECEIVES,
            false => 0,
        };
        // SAFETY: just opened, with the port's own vector and queue, which stay open for longer.
        let enabled = unsafe {
            let prepare = || if receives > 0 { set_least(ep, least) } else { Ok(()) };
            bind_and_enable(ep, self.av, self.cq, prepare)
        };
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
        for receive in self.free_receives.drain(self.free_receives.len() - receives..) {
            self.operations[receive].lane = at;
            self.to_post.push(receive);
        }
        let posted = if receives > 0 { self.post() } else { Ok(()) };
        match posted {
            Ok(()) => Ok((Lane(at), name)),
            Err(error) => {
                let _ = self.close_lane(Lane(at));
                Err(OfiError::Call { call: "fi_recv", error })
            }
        }
    }

    /// Whether a lane takes messages: there are [`LANE_RECEIVES`] buffers for each that does.
    #[must_use]
    pub fn takes_messages(&self, lane: &Lane) -> bool {
        let of = |of: &Operation| of.work == Work::Receive && of.lane == lane.0;
        self.operations.iter().any(of)
    }

    /// Sends the first `len` bytes of a buffer over a lane, and as many behind them as `more` has; nothing but an
    /// [`Event::Failed`](super::Event) follows.
    ///
    /// # Errors
    /// As [`Port::send`], and the buffer as it was. [`Errno::OPNOTSUPP`] where foreign memory has to be registered.
    ///
    /// # Safety
    /// `more` is valid for reads, and nobody writes it, until the [`Event::SentFrom`](super::Event) of a message that was sent over
    /// this lane later (what goes to one peer over one endpoint is sent in order), or until [`Port::close_lane`] of this lane said
    /// `Ok`, or until the port is dropped.
    pub unsafe fn send_over(
        &mut self,
        lane: &Lane,
        (slot, len): (Slot, usize),
        more: (*const u8, usize),
        to: FiAddr,
        mark: u64,
    ) -> Result<(), (Errno, Slot)> {
        self.send_both(lane, (slot, len), more, to, (Work::SendOver, mark))
    }

    /// The same, but [`Event::SentFrom`](super::Event) or [`Event::Failed`](super::Event) follows.
    ///
    /// # Errors
    /// As [`Port::send_over`].
    ///
    /// # Safety
    /// `more` is valid for reads, and nobody writes it, until that event, or until [`Port::close_lane`] of this lane said `Ok`, or
    /// until the port is dropped.
    pub unsafe fn send_lent(
        &mut self,
        lane: &Lane,
        own: (Slot, usize),
        more: (*const u8, usize),
        to: FiAddr,
        mark: u64,
    ) -> Result<(), (Errno, Slot)> {
        self.send_both(lane, own, more, to, (Work::SendLent, mark))
    }

    fn send_both(
        &mut self,
        lane: &Lane,
        (slot, len): (Slot, usize),
        more: (*const u8, usize),
        to: FiAddr,
        (work, mark): (Work, u64),
    ) -> Result<(), (Errno, Slot)> {
        let Some(ep) = self.lanes.get(lane.0).copied().flatten() else {
            return Err((Errno::OPBADSTATE, slot));
        };
        if self.info.mr_mode(raw::MR_LOCAL) {
            return Err((Errno::OPNOTSUPP, slot));
        }
        let at = slot.index();
        let (buffer, desc, context) = self.prepare(&slot, len, work, mark);
        self.operations[at].lane = lane.0;
        let both = [
            iovec { iov_base: buffer, iov_len: len },
            iovec { iov_base: more.0.cast_mut().cast(), iov_len: more.1 },
        ];
        let mut descs = [desc, null_mut()];
        // SAFETY: the endpoint is open. The buffer is the library's from here until its completion is read, or the endpoint is
        // closed: its stage is `Flying`. The rest is by contract; the array is read by the call alone.
        let returned = unsafe {
            let send = (*(*ep.as_ptr()).msg).sendv;
            send(ep.as_ptr(), both.as_ptr(), descs.as_mut_ptr(), both.len(), to, context)
        };
        self.started(slot, returned)
    }

    /// Sends `len` bytes at `start` over a lane, with a tag; [`Event::SentFrom`](super::Event) or [`Event::Failed`](super::Event)
    /// follows.
    ///
    /// # Errors
    /// [`Errno::AGAIN`]: no room now. Others as the provider has them. Nothing was started.
    ///
    /// # Safety
    /// The memory is valid for reads, and nobody writes it, until that event, or until [`Port::close_lane`] of this lane said
    /// `Ok`, or until the port is dropped.
    pub unsafe fn send_from(
        &mut self,
        lane: &Lane,
        (start, len): (*const u8, usize),
        to: FiAddr,
        tag: u64,
        mark: u64,
    ) -> Result<(), Errno> {
        let start = start.cast_mut().cast();
        self.foreign(lane, Work::SendFrom, (len, mark), |ep, tagged, context| {
            // SAFETY: the endpoint is open and has this table; the memory is the library's by contract.
            unsafe { (tagged.send)(ep, start, len, null_mut(), to, tag, context) }
        })
    }

    /// Receives a message with a tag over a lane, from whoever sends one, to `start`; [`Event::ReceivedInto`](super::Event) or
    /// [`Event::Failed`](super::Event) follows. A longer one than `len` bytes fails.
    ///
    /// # Errors
    /// As [`Port::send_from`].
    ///
    /// # Safety
    /// As for [`Port::read_into`].
    pub unsafe fn receive_into(
        &mut self,
        lane: &Lane,
        (start, len): (*mut u8, usize),
        tag: u64,
        mark: u64,
    ) -> Result<(), Errno> {
        let start: *mut c_void = start.cast();
        self.foreign(lane, Work::ReceiveInto, (len, mark), |ep, tagged, context| {
            // SAFETY: as in `send_from`.
            unsafe { (tagged.recv)(ep, start, len, null_mut(), raw::ADDR_UNSPEC, tag, 0, context) }
        })
    }

    /// Starts an operation with memory that is not the port's. Not where such memory has to be registered.
    fn foreign(
        &mut self,
        lane: &Lane,
        work: Work,
        (len, mark): (usize, u64),
        start: impl FnOnce(*mut raw::Ep, &raw::TaggedOps, *mut c_void) -> isize,
    ) -> Result<(), Errno> {
        if !self.info.has_tags() || self.info.mr_mode(raw::MR_LOCAL) {
            return Err(Errno::OPNOTSUPP);
        }
        let ep = self.lanes.get(lane.0).copied().flatten().ok_or(Errno::OPBADSTATE)?;
        let at = *self.free_reads.last().ok_or(Errno::AGAIN)?;
        // SAFETY: open; the table lives as long as the endpoint.
        let tagged = unsafe { (*ep.as_ptr()).tagged.as_ref() }.ok_or(Errno::OPNOTSUPP)?;
        Errno::check(start(ep.as_ptr(), tagged, self.contexts[at].0.get().cast()))?;
        self.free_reads.pop();
        let operation = &mut self.operations[at];
        (operation.work, operation.mark, operation.len) = (work, mark, len);
        (operation.stage, operation.lane, operation.local) = (Stage::Flying, lane.0, None);
        self.flying += 1;
        Ok(())
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
        let of_lane =
            |operation: &Operation| operation.stage == Stage::Flying && operation.lane == lane.0;
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
                (operation.stage, operation.lane) = (Stage::Orphan, NO_LANE);
                self.orphans.push(at);
                self.flying -= usize::from(operation.work != Work::Receive);
            }
        }
        let operations = &mut self.operations;
        let idle = self.to_post.extract_if(.., |at| operations[*at].lane == lane.0);
        self.free_receives.extend(idle);
        self.free_receives.iter().for_each(|&at| operations[at].lane = NO_LANE);
        Ok(())
    }

    /// The memory of an operation with other memory is the caller's again.
    pub(super) fn finish_foreign(&mut self, at: usize) {
        let operation = &mut self.operations[at];
        operation.stage = Stage::Idle;
        close_registration(operation.local.take());
        self.free_reads.push(at);
        self.flying -= 1;
    }

    /// The queue was empty: no more is to come of endpoints that were closed before.
    #[cold]
    pub(super) fn forget_orphans(&mut self) {
        for at in std::mem::take(&mut self.orphans) {
            self.operations[at].stage = Stage::Idle;
            match self.operations[at].work {
                Work::Receive => self.free_receives.push(at),
                Work::Send | Work::Read | Work::SendOver | Work::SendLent => self.release(at),
                Work::ReadInto | Work::SendFrom | Work::ReceiveInto => self.free_reads.push(at),
            }
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
