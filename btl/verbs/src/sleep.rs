//! What a sleeping owner waits on.
#![allow(unsafe_code)] // one borrow of a descriptor that the library owns

use rustix::fd::{BorrowedFd, OwnedFd, RawFd};
use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
use std::time::Duration;

/// A descriptor that a channel or device keeps open.
pub fn borrow(fd: &RawFd) -> BorrowedFd<'_> {
    // SAFETY: `Channel::fd` and `Device::event_fd` promise that it is open as long as their owner, which outlives the
    // one call that this borrow is for.
    unsafe { BorrowedFd::borrow_raw(*fd) }
}

/// Makes `timer` readable after `wait`, once.
pub fn set(timer: &OwnedFd, wait: Duration) -> rustix::io::Result<()> {
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    let value = Timespec { tv_sec: wait.as_secs() as _, tv_nsec: wait.subsec_nanos().max(1) as _ };
    let setting = Itimerspec { it_interval: zero, it_value: value };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &setting).map(|_| ())
}
