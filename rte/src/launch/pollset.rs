//! The descriptors one turn of an event loop waits for, each with what it is. `poll`, not epoll: a regular file may be
//! anybody's standard input. Those of a host's ranks, of which there are hundreds, stand behind one ([`Standing`]).

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// What is ready of ranks at once, at most.
const READY_MAX: usize = 256;

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
    /// Something of a host's ranks: [`Standing::ready`] says what.
    Ranks,
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

/// How many descriptors a rank has.
const EACH: usize = 5;

/// The descriptors of a rank that are open, and what is waited for of them: its process, its PMI connection, its two outputs, its
/// input.
pub type Wanted<'a> = [Option<(BorrowedFd<'a>, Option<epoll::EventFlags>)>; EACH];

/// The descriptors of a host's ranks, which stay from turn to turn: epoll, so that a turn costs no more for those that are quiet. When a
/// rank ends, others are to have the cores.
#[derive(Debug)]
pub struct Standing {
    events: OwnedFd,
    known: Vec<[Option<(RawFd, epoll::EventFlags)>; EACH]>,
}

impl Standing {
    /// # Errors
    /// The system's.
    pub fn new() -> Result<Standing, Errno> {
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Standing { events, known: Vec::new() })
    }

    /// From now on this is waited for of a rank, and nothing else. What has been closed since is forgotten by the system itself: of each
    /// descriptor there must have been only one.
    ///
    /// # Errors
    /// The system's.
    pub fn want(&mut self, index: usize, wanted: Wanted<'_>) -> Result<(), Errno> {
        if self.known.len() <= index {
            self.known.resize(index + 1, [None; EACH]);
        }
        for (which, (known, wanted)) in self.known[index].iter_mut().zip(wanted).enumerate() {
            let new = wanted.and_then(|(fd, flags)| Some((fd.as_raw_fd(), flags?)));
            if new == *known {
                continue;
            }
            let data = epoll::EventData::new_u64((index * EACH + which) as u64);
            match (wanted, *known) {
                (Some((fd, Some(flags))), None) => epoll::add(&self.events, fd, data, flags)?,
                (Some((fd, Some(flags))), Some(_)) => {
                    epoll::modify(&self.events, fd, data, flags)?;
                }
                (Some((fd, None)), Some(_)) => epoll::delete(&self.events, fd)?,
                (None | Some((_, None)), _) => {}
            }
            *known = new;
        }
        Ok(())
    }

    /// What is ready, at most some of it: the rest is with the next turn.
    pub fn ready(&self) -> Vec<Token> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(READY_MAX);
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Interrupted: the next turn will tell.
        let room = rustix::buffer::spare_capacity(&mut events);
        let _ = epoll::wait(&self.events, room, Some(&zero));
        let token = |event: &epoll::Event| {
            let number = event.data.u64() as usize;
            let index = number / EACH;
            match number % EACH {
                0 => Token::Exit(index),
                1 => Token::Pmi(index),
                which @ (2 | 3) => Token::Output(index, which - 2),
                _ => Token::Input(index),
            }
        };
        events.iter().map(token).collect()
    }
}

impl AsFd for Standing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::epoll::EventFlags;
    use rustix::pipe::pipe;

    #[test]
    fn what_stands_is_told_until_it_is_no_longer_wanted_or_closed() {
        let mut standing = Standing::new().unwrap();
        let pipes: Vec<_> = (0..2).map(|_| pipe().unwrap()).collect();
        let read = |of: &(OwnedFd, OwnedFd)| rustix::io::read(&of.0, &mut [0; 8]).unwrap();
        let want = |standing: &mut Standing, fds: [Option<&OwnedFd>; 2], flags| {
            for (index, fd) in fds.into_iter().enumerate() {
                let output = fd.map(|fd| (fd.as_fd(), flags));
                standing.want(index, [None, None, None, output, None]).unwrap();
            }
        };
        let both = [Some(&pipes[0].0), Some(&pipes[1].0)];
        want(&mut standing, both, Some(EventFlags::IN));
        assert_eq!(standing.ready(), []);
        rustix::io::write(&pipes[1].1, b"words").unwrap();
        for _ in 0..2 {
            assert_eq!(standing.ready(), [Token::Output(1, 1)], "until it is read");
            want(&mut standing, both, Some(EventFlags::IN));
        }
        want(&mut standing, both, None);
        assert_eq!(standing.ready(), [], "not wanted");
        want(&mut standing, both, Some(EventFlags::IN));
        assert_eq!(standing.ready(), [Token::Output(1, 1)], "wanted again");
        assert_eq!(read(&pipes[1]), 5);
        let mut pipes = pipes.into_iter();
        let (first, (second, writer)) = (pipes.next().unwrap(), pipes.next().unwrap());
        drop(first);
        want(&mut standing, [None, Some(&second)], Some(EventFlags::IN));
        drop(writer);
        assert_eq!(standing.ready(), [Token::Output(1, 1)], "a hang-up counts");
        // Its number may be somebody else's by now.
        drop(second);
        let (reader, writer) = pipe().unwrap();
        rustix::io::write(&writer, b"words").unwrap();
        want(&mut standing, [None, None], Some(EventFlags::IN));
        assert_eq!(standing.ready(), []);
        want(&mut standing, [Some(&reader), None], Some(EventFlags::IN));
        assert_eq!(standing.ready(), [Token::Output(0, 1)]);
    }
}
