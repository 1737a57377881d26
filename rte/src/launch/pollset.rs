//! The descriptors one turn of an event loop waits for, each with what it is. `poll`, not epoll: a
//! regular file may be anybody's standard input, and a host has thousands of descriptors at most.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// What a descriptor is to the loop that waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    /// Signals to this process.
    Signals,
    /// The launcher's own standard input.
    Stdin,
    /// The launcher's own output: 0 or 1 for standard output or error.
    Sink(usize),
    /// Where daemons connect to.
    Listener,
    /// A connection that has not proven itself.
    Stranger(usize),
    /// The connection to (or of) a host.
    Link(usize),
    /// The launch agent of a host has ended.
    Agent(usize),
    /// The process of a local rank (by index) has ended.
    Exit(usize),
    /// A local rank speaks PMI.
    Pmi(usize),
    /// A local rank writes: 0 or 1 for standard output or error.
    Output(usize, usize),
    /// Rank 0 takes input.
    Input(usize),
}

/// One turn's descriptors.
#[derive(Default)]
pub struct PollSet<'a> {
    fds: Vec<PollFd<'a>>,
    tokens: Vec<Token>,
}

impl<'a> PollSet<'a> {
    /// Waits for `fd` to be readable.
    pub fn readable(&mut self, fd: &'a impl AsFd, token: Token) {
        self.add(fd, token, PollFlags::IN);
    }

    /// Waits for `fd` to be writable.
    pub fn writable(&mut self, fd: &'a impl AsFd, token: Token) {
        self.add(fd, token, PollFlags::OUT);
    }

    /// Waits for `fd` to be readable, and writable too if `writable`.
    pub fn either(&mut self, fd: &'a impl AsFd, token: Token, writable: bool) {
        let out = if writable { PollFlags::OUT } else { PollFlags::empty() };
        self.add(fd, token, PollFlags::IN | out);
    }

    fn add(&mut self, fd: &'a impl AsFd, token: Token, flags: PollFlags) {
        self.fds.push(PollFd::new(fd, flags));
        self.tokens.push(token);
    }

    /// Waits until something is ready or `deadline` has passed; returns what is ready. Hang-ups and
    /// errors count as ready: the read or write that follows tells which.
    ///
    /// # Errors
    /// The system's, other than an interruption.
    pub fn wait(mut self, deadline: Option<Instant>) -> Result<Vec<Token>, Errno> {
        let timeout = deadline.map(|deadline| {
            // Round up, or the loop spins through the last fraction of a millisecond.
            let left =
                deadline.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        match poll(&mut self.fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let ready = self.fds.iter().zip(&self.tokens);
        Ok(ready.filter(|(fd, _)| !fd.revents().is_empty()).map(|(_, token)| *token).collect())
    }
}
