//! What a port sleeps on: one descriptor (epoll) for all of its interfaces', and a timer.
//!
//! An interface's descriptor leaves by itself when the library closes it.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

pub(crate) struct Bed {
    epoll: OwnedFd,
    timer: OwnedFd,
}

impl Bed {
    /// `None` when the system has no descriptors left.
    pub fn new() -> Option<Bed> {
        // SAFETY: takes a flag; answers a new descriptor or -1.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: as above.
        let timer = owned(unsafe {
            libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK)
        })?;
        let bed = Bed { epoll, timer };
        bed.add(bed.timer.as_raw_fd()).then_some(bed)
    }

    /// Has a descriptor that becomes readable wake the sleeper; `false` when the system refuses.
    pub fn add(&self, fd: RawFd) -> bool {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: the event lives through the call, which copies it.
        let added =
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) };
        added == 0
    }

    /// Starts the timer: the descriptor to sleep on.
    pub fn lie_down(&self, pause: Duration) -> Option<RawFd> {
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let pause = pause.max(Duration::from_micros(1)); // zero would stop it
        let it_value = libc::timespec {
            tv_sec: pause.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: pause.subsec_nanos().into(),
        };
        let spec = libc::itimerspec { it_interval: never, it_value };
        // SAFETY: the specification lives through the call; setting it also takes back what an earlier one has told.
        let set = unsafe {
            libc::timerfd_settime(self.timer.as_raw_fd(), 0, &spec, std::ptr::null_mut())
        };
        (set == 0).then(|| self.epoll.as_raw_fd())
    }
}

fn owned(fd: RawFd) -> Option<OwnedFd> {
    // SAFETY: a descriptor that was just opened, and is nobody else's.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}
