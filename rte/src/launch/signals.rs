//! Signals as something to read: one descriptor the event loop waits for.

use rustix::process::Signal;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// The signals passed on to ranks.
const PASSED: [Signal; 10] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::WINCH,
    Signal::TSTP,
    Signal::CONT,
];

/// The signals this process has been sent.
#[derive(Debug)]
pub struct Signals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
}

impl Signals {
    /// Takes over the signals that are passed on. What is started later gets their defaults back.
    ///
    /// # Errors
    /// The system refuses a handler or a socket pair.
    pub fn take_over() -> io::Result<Signals> {
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        write.set_nonblocking(true)?;
        let numbers = PASSED.map(Signal::as_raw);
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, numbers)?;
        Ok(Signals { delivery })
    }

    /// Those that have arrived.
    pub fn pending(&mut self) -> Vec<Signal> {
        self.delivery.pending().filter_map(Signal::from_named_raw).collect()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }
}
