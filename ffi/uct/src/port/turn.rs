//! Progress, what happened meanwhile, and what to sleep on.

use super::{EpId, IfaceId, Port};
use crate::inbox::{Event, Expected, Look, Note};
use crate::raw;
use crate::sleep::Bed;
use crate::status::Status;
use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::time::Duration;

/// Nobody can sleep on this port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotWaitable;

impl Port {
    /// Leaves an interface out of [`Port::poll`]: [`Port::glance`] looks at it.
    pub fn set_aside(&mut self, iface: IfaceId) {
        let raw = self.ifaces[iface.0].raw;
        // SAFETY: a live interface.
        unsafe { ((*raw).ops.progress_disable)(raw, raw::PROGRESS_ALL) };
    }

    /// As [`Port::poll`], for one interface that was set aside.
    pub fn glance(&mut self, iface: IfaceId, f: impl FnMut(Event<'_>)) -> usize {
        let raw = self.ifaces[iface.0].raw;
        // SAFETY: a live interface, which nobody polls otherwise.
        self.run(f, || unsafe { ((*raw).ops.iface_progress)(raw) } as usize)
    }

    /// Tells what happened meanwhile; how many callbacks of the library did something.
    #[inline]
    pub fn poll(&mut self, f: impl FnMut(Event<'_>)) -> usize {
        let (worker, stride) = (self.worker, self.uct.stride);
        self.run(f, || {
            let mut count = 0;
            for element in 0..raw::PROGRESS_ELEMENTS {
                // SAFETY: the worker starts with elements of that stride, each a callback and its argument; the
                // first without a callback is the last.
                unsafe {
                    let element = worker.byte_add(element * stride);
                    let Some(call) = element.cast::<Option<raw::Progress>>().read() else { break };
                    count += call(element.cast::<*mut c_void>().add(1).read()) as usize;
                }
            }
            count
        })
    }

    /// Looks once for a message where an endpoint's peer writes to, and shows the first to `take`, which answers whether it
    /// takes it. Whatever else is there is for [`Port::poll`]. Nothing else is told.
    #[inline]
    pub fn look(&mut self, id: EpId, take: impl FnMut(&[u8]) -> bool) -> Look {
        let Some(ep) = self.endpoint(id) else { return Look::Left };
        let raw = ep.queue.unwrap_or(self.ifaces[ep.iface].raw);
        // SAFETY: a live interface.
        let look = self.inbox.first(take, || unsafe {
            ((*raw).ops.iface_progress)(raw);
        });
        if look == Look::Taken {
            ep.claim();
        }
        look
    }

    /// Looks once, and up to `turns` times more, for a message where an endpoint's peer writes to. If it is what is `expected` and short,
    /// `brief` is given what follows its lead; otherwise it is shown to `take`, as by [`Port::look`].
    #[inline(always)]
    pub fn expect(
        &mut self,
        id: EpId,
        expected: Expected,
        turns: u32,
        brief: impl FnOnce(&[u8]),
        take: impl FnMut(&[u8]) -> bool,
    ) -> Look {
        let Some(ep) = self.endpoint(id) else { return Look::Left };
        let raw = ep.queue.unwrap_or(self.ifaces[ep.iface].raw);
        // SAFETY: a live interface, whose table of calls lives as long.
        let progress = unsafe { (*raw).ops.iface_progress };
        let look = self.inbox.expect(expected, turns, brief, take, || {
            // SAFETY: as above.
            unsafe { progress(raw) };
        });
        if look == Look::Taken {
            ep.claim();
        }
        look
    }

    #[inline]
    fn run(&mut self, mut f: impl FnMut(Event<'_>), progress: impl FnOnce() -> usize) -> usize {
        let count = self.inbox.during(&mut |message: &[u8]| f(Event::Arrived(message)), progress);
        if self.unsaid > 0 {
            self.hear_unsaid();
        }
        if !self.inbox.notes.borrow().is_empty() {
            self.tell(&mut f);
        }
        count
    }

    #[cold]
    fn tell(&mut self, f: &mut impl FnMut(Event<'_>)) {
        let notes = std::mem::take(&mut *self.inbox.notes.borrow_mut());
        let mark = |ep: *mut raw::Ep| {
            let index = *self.by_handle.get(&ep)?;
            self.endpoints[index as usize].1.as_ref().map(|ep| ep.mark)
        };
        for note in notes {
            match note {
                Note::Broke(ep, status) => {
                    if let Some(mark) = mark(ep) {
                        f(Event::Broke { mark, status });
                    }
                }
                Note::Room(ep) => {
                    if let Some(mark) = mark(ep) {
                        f(Event::Room { mark });
                    }
                }
                Note::Done(cookie, status) => {
                    self.operations.remove(&cookie);
                    f(Event::Done { cookie, status });
                }
            }
        }
    }

    /// Does the library's asynchronous work (accepting connections, timers): to be called now and then.
    pub fn tend(&mut self) {
        // SAFETY: the port's own context.
        unsafe { (self.uct.calls.ucs_async_poll)(self.context) };
    }

    /// Bytes of messages that arrived outside of [`Port::poll`].
    #[must_use]
    pub fn unread(&self) -> usize {
        self.inbox.early_bytes()
    }

    /// Prepares for sleeping: a descriptor that becomes readable when an interface has something, and after `pause` in any
    /// case, since no descriptor tells of the library's asynchronous work. `None`: something is there already.
    ///
    /// # Errors
    /// An interface can only be polled, or the system has no descriptor to give.
    pub fn arm(&mut self, pause: Duration) -> Result<Option<RawFd>, NotWaitable> {
        let deaf =
            |iface: &super::Interface| iface.attributes.max_bcopy > 0 && !iface.attributes.waitable;
        if self.ifaces.iter().any(deaf) {
            return Err(NotWaitable);
        }
        if self.operations.len() > self.unsaid {
            return Ok(None); // some go on only while somebody polls
        }
        if self.bed.is_none() {
            let bed = Bed::new().ok_or(NotWaitable)?;
            for raw in self.all_ifaces() {
                self.watch(&bed, raw);
            }
            self.bed = Some(bed);
        }
        if !self.inbox.is_quiet() {
            return Ok(None);
        }
        for raw in self.all_ifaces() {
            // SAFETY: a live interface.
            let armed = unsafe { (self.uct.calls.uct_iface_event_arm)(raw, raw::EVENTS_ALL) };
            if armed != Status::OK {
                return Ok(None);
            }
        }
        Ok(self.bed.as_ref().and_then(|bed| bed.lie_down(pause)))
    }

    /// The interfaces that carry messages, and the endpoints' queues.
    pub(super) fn all_ifaces(&self) -> impl Iterator<Item = *mut raw::Iface> {
        let queues = self.endpoints.iter().filter_map(|(_, ep)| ep.as_ref()?.queue);
        let carries = self.ifaces.iter().filter(|iface| iface.attributes.max_bcopy > 0);
        carries.map(|iface| iface.raw).chain(queues)
    }

    /// Has an interface wake the sleeper, as long as it is open.
    pub(super) fn watch(&self, bed: &Bed, iface: *mut raw::Iface) {
        let mut fd: c_int = -1;
        // SAFETY: a live interface; the descriptor is written and stays the interface's.
        let got = unsafe { (self.uct.calls.uct_iface_event_fd_get)(iface, &mut fd) };
        if got == Status::OK {
            bed.add(fd);
        }
    }
}
