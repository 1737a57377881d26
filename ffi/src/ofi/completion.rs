//! What the library reports: its completion queue read, each entry matched with the operation it belongs to, receives posted
//! again. No entry is believed: one that names no operation under way, or bytes outside of what was posted, ends the port.

use super::errno::Errno;
use super::port::{Context, Event, NO_LANE, Operation, Port, Stage, Work};
use super::raw;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// Completions read in one call.
const BATCH: usize = 16;

/// What [`Port::look`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// Nothing is here.
    Empty,
    /// A message, which is over.
    Taken,
    /// The end of a send with that mark, which [`Port::poll`] does not tell again.
    Sent(u64),
    /// Something for [`Port::poll`].
    Left,
}

impl Port {
    /// Reports what is over or has arrived, up to a few batches. Returns how much; 0 means idle. A message that `stays` is reported
    /// first or by the next call, and so is what came after it.
    ///
    /// # Errors
    /// The completion queue itself failed (it overran): the port is of no use any more.
    #[inline]
    pub fn poll(
        &mut self,
        mut each: impl FnMut(Event<'_>),
        stays: impl Fn(&[u8]) -> bool,
    ) -> Result<usize, Errno> {
        let mut entries = [const { MaybeUninit::<raw::CqEntry>::uninit() }; BATCH];
        let mut reports = 0;
        while let Some(entry) = self.left.pop_front() {
            if reports > 0 && self.is_message(&entry, &stays) {
                self.left.push_front(entry);
                return self.polled(reports);
            }
            self.completed(&entry, &mut each)?;
            reports += 1;
        }
        for _ in 0..4 {
            // SAFETY: the queue is open, and has entries of this format; up to BATCH are written.
            let returned = unsafe {
                ((*(*self.cq.as_ptr()).ops).read)(
                    self.cq.as_ptr(),
                    entries.as_mut_ptr().cast(),
                    BATCH,
                )
            };
            match Errno::check(returned) {
                Ok(0) | Err(Errno::AGAIN) => {
                    if !self.orphans.is_empty() {
                        self.forget_orphans();
                    }
                    break;
                }
                Err(Errno::AVAIL) => {
                    if !self.read_error(&mut each) {
                        break;
                    }
                    reports += 1;
                }
                Err(error) => return Err(error),
                Ok(count) => {
                    for entry in &entries[..count.min(BATCH)] {
                        // SAFETY: the call says that it wrote that many.
                        let entry = unsafe { entry.assume_init() };
                        if !self.left.is_empty() || reports > 0 && self.is_message(&entry, &stays) {
                            self.left.push_back(entry);
                            continue;
                        }
                        self.completed(&entry, &mut each)?;
                        reports += 1;
                    }
                    if count < BATCH || !self.left.is_empty() {
                        break;
                    }
                }
            }
        }
        self.polled(reports)
    }

    #[inline]
    fn polled(&mut self, reports: usize) -> Result<usize, Errno> {
        if !self.to_post.is_empty() {
            self.post()?;
        }
        Ok(reports)
    }

    /// Whether an entry tells of a message that is such a one.
    #[inline]
    fn is_message(&self, entry: &raw::CqEntry, such: &impl Fn(&[u8]) -> bool) -> bool {
        entry.flags & raw::RECV != 0
            && self.operation_of(entry.context).is_some_and(|at| {
                let Operation { work, stage, .. } = self.operations[at];
                work == Work::Receive
                    && stage == Stage::Flying
                    && self.message(at, entry).is_ok_and(such)
            })
    }

    /// Looks once for what is over or has arrived. The first message is shown to `take`, which answers whether it takes it; a message that
    /// it does not take, and whatever else is there, is for [`Port::poll`].
    #[inline]
    pub fn look(&mut self, take: impl FnOnce(&[u8]) -> bool) -> Look {
        if !self.left.is_empty() {
            return Look::Left;
        }
        let mut entry = MaybeUninit::<raw::CqEntry>::uninit();
        // SAFETY: as in `poll`; one entry is written.
        let returned = unsafe {
            ((*(*self.cq.as_ptr()).ops).read)(self.cq.as_ptr(), entry.as_mut_ptr().cast(), 1)
        };
        let entry = match Errno::check(returned) {
            // SAFETY: the call says that it wrote one.
            Ok(1) => unsafe { entry.assume_init() },
            Ok(_) | Err(Errno::AGAIN) => return Look::Empty,
            Err(_) => return Look::Left, // what it is stays there
        };
        let Some(at) = self.operation_of(entry.context) else { return self.leave(entry) };
        let Operation { work, mark, stage, .. } = self.operations[at];
        if stage == Stage::Orphan {
            return self.leave(entry);
        }
        match work {
            Work::Send => {
                self.land(at);
                Look::Sent(mark)
            }
            Work::Receive if entry.flags & raw::RECV != 0 => {
                if !self.message(at, &entry).is_ok_and(take) {
                    return self.leave(entry);
                }
                self.received(at, &entry);
                if !self.to_post.is_empty() {
                    let _ = self.post(); // what is wrong is wrong the next time, too
                }
                Look::Taken
            }
            Work::Receive
            | Work::Read
            | Work::ReadInto
            | Work::SendOver
            | Work::SendLent
            | Work::SendFrom
            | Work::ReceiveInto => self.leave(entry),
        }
    }

    #[cold]
    fn leave(&mut self, entry: raw::CqEntry) -> Look {
        self.left.push_back(entry);
        Look::Left
    }

    /// The message that a receive is told of.
    #[inline]
    fn message(&self, at: usize, entry: &raw::CqEntry) -> Result<&[u8], Errno> {
        let Operation { offset, capacity, .. } = self.operations[at];
        let start = if entry.len == 0 {
            Some(offset) // of an empty message the sockets provider names no place
        } else if self.multi_recv {
            self.arena().locate(entry.buf.cast(), entry.len, &(offset..offset + capacity))
        } else {
            (entry.len <= capacity).then_some(offset)
        };
        // A message outside of what was posted: nothing it says can be believed.
        let start = start.ok_or(Errno::FAULT)?;
        Ok(self.arena().bytes(start..start + entry.len))
    }

    /// The message of a receive is done with, and perhaps the receive.
    #[inline]
    fn received(&mut self, at: usize, entry: &raw::CqEntry) {
        if !self.multi_recv || entry.flags & raw::MULTI_RECV != 0 {
            self.operations[at].stage = Stage::Idle;
            self.to_post.push(at);
        }
    }

    #[inline]
    fn completed(
        &mut self,
        entry: &raw::CqEntry,
        each: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Errno> {
        let Some(at) = self.operation_of(entry.context) else {
            return Err(Errno::OTHER); // an operation that we never started
        };
        let Operation { offset, work, mark, len, stage, .. } = self.operations[at];
        if stage == Stage::Orphan {
            return Ok(());
        }
        match work {
            Work::ReadInto => {
                self.finish_foreign(at);
                each(Event::ReadInto { mark });
            }
            Work::SendFrom => {
                self.finish_foreign(at);
                each(Event::SentFrom { mark });
            }
            Work::ReceiveInto => {
                self.finish_foreign(at);
                each(Event::ReceivedInto { mark, len: entry.len });
            }
            Work::SendOver => self.land(at),
            Work::SendLent => {
                self.land(at);
                each(Event::SentFrom { mark });
            }
            Work::Send => {
                self.land(at);
                each(Event::Sent { mark });
            }
            Work::Read => {
                each(Event::Read { mark, bytes: self.arena().bytes(offset..offset + len) });
                self.land(at);
            }
            Work::Receive => {
                if entry.flags & raw::RECV != 0 {
                    each(Event::Arrived(self.message(at, entry)?));
                }
                self.received(at, entry);
            }
        }
        Ok(())
    }

    #[cold]
    fn read_error(&mut self, each: &mut impl FnMut(Event<'_>)) -> bool {
        let mut entry = raw::CqErrEntry {
            context: null_mut(),
            flags: 0,
            len: 0,
            buf: null_mut(),
            data: 0,
            tag: 0,
            olen: 0,
            err: 0,
            prov_errno: 0,
            err_data: null_mut(),
            err_data_size: 0,
            later: [0; 8],
        };
        // SAFETY: the queue is open; one entry is written.
        let returned =
            unsafe { ((*(*self.cq.as_ptr()).ops).readerr)(self.cq.as_ptr(), &mut entry, 0) };
        if !matches!(Errno::check(returned), Ok(1)) {
            return false;
        }
        let (error, provider_error) = (Errno(entry.err), entry.prov_errno);
        let Some(at) = self.operation_of(entry.context) else {
            // Of an inject, or of nothing that has a name.
            each(Event::Failed { work: Work::Send, mark: 0, error, provider_error });
            return true;
        };
        let Operation { work, mark, stage, .. } = self.operations[at];
        if stage == Stage::Orphan {
            return true;
        }
        match work {
            Work::ReadInto | Work::SendFrom | Work::ReceiveInto => {
                self.finish_foreign(at);
                each(Event::Failed { work, mark, error, provider_error });
            }
            Work::Receive => {
                if !self.multi_recv || entry.flags & raw::MULTI_RECV != 0 {
                    self.operations[at].stage = Stage::Idle;
                    self.to_post.push(at);
                }
                each(Event::Failed { work, mark: 0, error, provider_error });
            }
            Work::Send | Work::Read | Work::SendOver | Work::SendLent => {
                self.land(at);
                each(Event::Failed { work, mark, error, provider_error });
            }
        }
        true
    }

    /// The operation whose context the library gave back; `None` when it is none of ours that is under way.
    #[inline]
    fn operation_of(&self, context: *const c_void) -> Option<usize> {
        let from_start = (context as usize).checked_sub(self.contexts.as_ptr() as usize)?;
        let at = from_start / size_of::<Context>();
        let whole = from_start.is_multiple_of(size_of::<Context>());
        let stage = self.operations.get(at)?.stage;
        (whole && matches!(stage, Stage::Flying | Stage::Orphan)).then_some(at)
    }

    /// Whether a receive that could not be posted may be later. Where none is posted, nothing would free the memory for it.
    #[cold]
    fn may_wait(&self, error: Errno) -> bool {
        let posted = |of: &Operation| {
            of.work == Work::Receive && of.stage == Stage::Flying && of.lane == NO_LANE
        };
        match error {
            Errno::AGAIN => true,
            Errno::NOMEM | Errno::NOBUFS => self.operations.iter().any(posted),
            _ => false,
        }
    }

    /// Posts the receives that are idle; those for which there is no room stay for the next time.
    pub(super) fn post(&mut self) -> Result<(), Errno> {
        while let Some(at) = self.to_post.pop() {
            let Operation { offset, capacity, lane, .. } = self.operations[at];
            let ep = match lane {
                NO_LANE => Some(self.ep),
                lane => self.lanes.get(lane).copied().flatten(),
            };
            let ep = ep.expect("a lane's receives end with it");
            let context = self.contexts[at].0.get().cast::<c_void>();
            let buffer = self.arena().at(offset).cast::<c_void>();
            let mut desc = self.desc();
            // SAFETY: the endpoint is open. The buffer is the library's until its completion is read, or the endpoint
            // is closed; what is described on the stack is read during the call only.
            let returned = unsafe {
                let msg = &*(*ep.as_ptr()).msg;
                if self.multi_recv {
                    let iov = libc::iovec { iov_base: buffer, iov_len: capacity };
                    let message = raw::Msg {
                        iov: &raw const iov,
                        desc: &raw mut desc,
                        iov_count: 1,
                        addr: raw::ADDR_UNSPEC,
                        context,
                        data: 0,
                    };
                    (msg.recvmsg)(ep.as_ptr(), &raw const message, raw::MULTI_RECV)
                } else {
                    let from = raw::ADDR_UNSPEC;
                    (msg.recv)(ep.as_ptr(), buffer, capacity, desc, from, context)
                }
            };
            match Errno::check(returned) {
                Ok(_) => self.operations[at].stage = Stage::Flying,
                Err(_) if lane != NO_LANE => {
                    self.to_post.insert(0, at); // its senders wait; nobody else does
                    return Ok(());
                }
                Err(error) => {
                    self.to_post.push(at);
                    return if self.may_wait(error) { Ok(()) } else { Err(error) };
                }
            }
        }
        Ok(())
    }
}
