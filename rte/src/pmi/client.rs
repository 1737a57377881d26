//! The PMI-1 client: how a rank talks to whichever process manager started it.
//!
//! Blocking, one request at a time, at start and end only. Works over an inherited descriptor
//! (`PMI_FD`: ours, Hydra's, Intel's, Slurm's) or a connection of its own (`PMI_PORT`). Never
//! fences after start, never waits for a peer in `finalize`.

use crate::error::{Result, RteError};
use crate::pmi::wire::{self, Command, Lines};
use rustix::io::Errno;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long `finalize` waits for the process manager's acknowledgement.
const FINALIZE_PATIENCE: Duration = Duration::from_secs(5);

/// The longest request. Process managers keep a whole line in 1,024 bytes whatever they tell of
/// their longest value: Slurm's ends the step over a longer one.
const MAX_REQUEST: usize = 1000;
/// The longest key used, whatever a process manager would take.
const MAX_KEY: usize = 63;

/// A connection to the process manager.
#[derive(Debug)]
pub struct Client {
    fd: OwnedFd,
    lines: Lines,
    kvs: String,
    key_limit: usize,
    value_limit: usize,
    finalized: bool,
}

/// What a process manager started by connection tells before anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// This process's rank.
    pub rank: u32,
    /// Ranks in the job.
    pub size: u32,
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Client {
    /// Speaks over a descriptor that is connected already.
    ///
    /// # Errors
    /// The process manager does not speak PMI-1, or is gone.
    pub fn over(fd: OwnedFd) -> Result<Client> {
        // A process manager may hand over a non-blocking socket; reads here wait.
        let flags = rustix::fs::fcntl_getfl(&fd)
            .map_err(|error| RteError::system("cannot use the PMI descriptor", error))?;
        rustix::fs::fcntl_setfl(&fd, flags - rustix::fs::OFlags::NONBLOCK)
            .map_err(|error| RteError::system("cannot use the PMI descriptor", error))?;
        let mut client = Client {
            fd,
            lines: Lines::default(),
            kvs: String::new(),
            key_limit: 32,
            value_limit: 64,
            finalized: false,
        };
        client.greet()?;
        Ok(client)
    }

    /// Connects to `PMI_PORT` (`host:port`) as process `id`.
    ///
    /// # Errors
    /// No connection, or the process manager does not speak PMI-1.
    pub fn connect(port: &str, id: &str) -> Result<(Client, Place)> {
        let stream = TcpStream::connect(port).map_err(|error| {
            RteError::system(format!("cannot connect to PMI_PORT {port}"), error)
        })?;
        let mut client = Client {
            fd: stream.into(),
            lines: Lines::default(),
            kvs: String::new(),
            key_limit: 32,
            value_limit: 64,
            finalized: false,
        };
        client.send(&format!("cmd=initack pmiid={id}\n"))?;
        client.receive("initack", |reply| check(reply, "initack"))?;
        let (mut rank, mut size) = (None, None);
        while rank.is_none() || size.is_none() {
            client.receive("set", |reply| {
                rank = reply.number("rank").or(rank);
                size = reply.number("size").or(size);
                Ok(())
            })?;
        }
        client.greet()?;
        let place = rank.zip(size).map(|(rank, size)| Place { rank, size });
        let place = place.ok_or_else(|| RteError::Protocol("no rank and size".into()))?;
        Ok((client, place))
    }

    fn greet(&mut self) -> Result<()> {
        self.ask("cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init", |reply| {
            check(reply, "init")
        })?;
        let (keys, values) = self.ask("cmd=get_maxes\n", "maxes", |reply| {
            let limit = |key| {
                reply
                    .number::<usize>(key)
                    .filter(|limit| *limit >= 16)
                    .ok_or_else(|| RteError::Protocol(format!("no usable {key} among its limits")))
            };
            Ok((limit("keylen_max")?, limit("vallen_max")?))
        })?;
        self.kvs = self.ask("cmd=get_my_kvsname\n", "my_kvsname", |reply| {
            let name = reply.get("kvsname");
            Ok(name.ok_or_else(|| RteError::Protocol("no kvsname".into()))?.to_owned())
        })?;
        // Their limits count the terminating NUL of a C string.
        self.key_limit = MAX_KEY.min(keys - 1);
        let room = MAX_REQUEST.checked_sub(self.put_line("", "").len() + self.key_limit);
        let room = room.filter(|room| *room >= 16).ok_or_else(|| {
            RteError::Protocol(format!("its kvsname leaves no room for values: {}", self.kvs))
        })?;
        self.value_limit = room.min(values - 1);
        Ok(())
    }

    /// The name of the key-value space, which is unique to the job.
    pub fn kvs(&self) -> &str {
        &self.kvs
    }

    /// The longest key, in bytes.
    pub fn key_limit(&self) -> usize {
        self.key_limit
    }

    /// The longest value, in bytes.
    pub fn value_limit(&self) -> usize {
        self.value_limit
    }

    /// Puts `value` (no spaces, no newline) under `key`; others see it after a fence.
    ///
    /// # Errors
    /// Key or value are too long, the process manager refuses, or is gone.
    pub fn put(&mut self, key: &str, value: &str) -> Result<()> {
        if key.len() > self.key_limit || value.len() > self.value_limit {
            return Err(RteError::Limit(format!(
                "the key {key:?} of {} bytes and its value of {} are over the process manager's \
                 limits ({} and {})",
                key.len(),
                value.len(),
                self.key_limit,
                self.value_limit
            )));
        }
        let line = self.put_line(key, value);
        self.ask(&line, "put_result", |reply| check(reply, "put"))
    }

    fn put_line(&self, key: &str, value: &str) -> String {
        format!("cmd=put kvsname={} key={key} value={value}\n", self.kvs)
    }

    /// The value under `key`; `None` when nobody put one, and after [`finalize`](Self::finalize): Hydra (5.0.2) ends, and its job with it, when it has
    /// an answer for a process that is gone. Its signal that the others end, as all do then, had the detector ask.
    ///
    /// # Errors
    /// The process manager is gone or breaks the protocol.
    pub fn get(&mut self, key: &str) -> Result<Option<String>> {
        if self.finalized {
            return Ok(None);
        }
        let line = format!("cmd=get kvsname={} key={key}\n", self.kvs);
        self.ask(&line, "get_result", |reply| {
            if reply.number::<i32>("rc").unwrap_or(0) != 0 {
                return Ok(None);
            }
            Ok(reply.get("value").map(str::to_owned))
        })
    }

    /// Waits until every process of the job has called it. Blocks; under our launcher a dead
    /// process is not waited for, under others it may be for ever: use it at start only.
    ///
    /// # Errors
    /// The process manager is gone or refuses.
    pub fn barrier(&mut self) -> Result<()> {
        self.ask("cmd=barrier_in\n", "barrier_out", |reply| check(reply, "barrier"))
    }

    /// Tells the process manager that this process finalized. Waits for its word for at most five
    /// seconds and never for a peer.
    ///
    /// # Errors
    /// The process manager is gone or silent.
    pub fn finalize(&mut self) -> Result<()> {
        self.finalized = true;
        self.send("cmd=finalize\n")?;
        let deadline = Instant::now() + FINALIZE_PATIENCE;
        self.receive_until("finalize_ack", Some(deadline), |reply| check(reply, "finalize"))
    }

    /// Tells the process manager to end the job with `code`, or these ranks of it only: ours does; others know nothing of
    /// `ranks` and end the job.
    ///
    /// # Errors
    /// The process manager is gone.
    pub fn abort(&mut self, code: i32, ranks: Option<&[u32]>) -> Result<()> {
        let whom = ranks.map(|ranks| format!(" ranks={}", wire::write_ranks(ranks)));
        // What does not go into a line goes for all.
        let whom = whom.filter(|whom| whom.len() < wire::MAX_LINE - 64).unwrap_or_default();
        self.send(&format!("cmd=abort exitcode={code}{whom}\n"))
    }

    fn ask<T>(
        &mut self,
        line: &str,
        reply: &'static str,
        read: impl FnOnce(&Command<'_>) -> Result<T>,
    ) -> Result<T> {
        self.send(line)?;
        self.receive(reply, read)
    }

    fn send(&mut self, line: &str) -> Result<()> {
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            match rustix::net::send(&self.fd, rest, rustix::net::SendFlags::NOSIGNAL) {
                Ok(sent) => rest = &rest[sent..],
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(RteError::LauncherGone),
                Err(error) => return Err(RteError::system("cannot write to PMI", error)),
            }
        }
        Ok(())
    }

    fn receive<T>(
        &mut self,
        expected: &'static str,
        read: impl FnOnce(&Command<'_>) -> Result<T>,
    ) -> Result<T> {
        self.receive_until(expected, None, read)
    }

    fn receive_until<T>(
        &mut self,
        expected: &'static str,
        deadline: Option<Instant>,
        read: impl FnOnce(&Command<'_>) -> Result<T>,
    ) -> Result<T> {
        let garbled = |error: wire::WireError| RteError::Protocol(error.to_string());
        loop {
            while !self.lines.has_line() {
                self.fill(deadline)?;
            }
            let line = self.lines.next_line().map_err(garbled)?.unwrap_or_default();
            let reply = wire::parse(line).map_err(garbled)?;
            if reply.name() == expected {
                return read(&reply);
            }
            // Settings may trickle in after those waited for (Hydra's `set debug=`).
            if reply.name() != "set" {
                return Err(RteError::Protocol(format!(
                    "expected {expected}, the process manager said {:?}",
                    reply.name()
                )));
            }
        }
    }

    fn fill(&mut self, deadline: Option<Instant>) -> Result<()> {
        self.wait_readable(deadline)?;
        let mut buffer = [0u8; 4096];
        match rustix::io::read(&self.fd, &mut buffer) {
            Ok(0) | Err(Errno::CONNRESET) => return Err(RteError::LauncherGone),
            Ok(length) => self.lines.push(&buffer[..length]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(RteError::system("cannot read from PMI", error)),
        }
        Ok(())
    }

    fn wait_readable(&self, deadline: Option<Instant>) -> Result<()> {
        let Some(deadline) = deadline else { return Ok(()) };
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = rustix::event::Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut fds = [rustix::event::PollFd::new(&self.fd, rustix::event::PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(0) => Err(RteError::Protocol("the process manager is silent".into())),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(RteError::system("cannot wait for PMI", error)),
        }
    }
}

/// An error when the reply's `rc` is there and not zero.
fn check(reply: &Command<'_>, request: &'static str) -> Result<()> {
    match reply.get("rc") {
        None | Some("0") => Ok(()),
        Some(rc) => {
            let reason = reply.get("msg").map_or_else(|| format!("rc={rc}"), str::to_owned);
            Err(RteError::Refused { request, reason })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::fs::File;
    use std::io::{BufRead, BufReader, Write};
    use std::thread::JoinHandle;

    /// A process manager that gives `answers` in turn, one to each line; returns the lines.
    fn manager(answers: Vec<String>) -> (OwnedFd, JoinHandle<Vec<String>>) {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .unwrap();
        let thread = std::thread::spawn(move || {
            let mut reader = BufReader::new(File::from(theirs));
            let mut lines = Vec::new();
            for answer in answers {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                lines.push(line);
                // In two pieces: an answer may arrive anyhow.
                let (head, tail) = answer.split_at(answer.len() / 2);
                reader.get_mut().write_all(head.as_bytes()).unwrap();
                reader.get_mut().write_all(tail.as_bytes()).unwrap();
            }
            lines
        });
        (ours, thread)
    }

    fn greeting(kvs: &str) -> Vec<String> {
        vec![
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n".into(),
            "cmd=maxes kvsname_max=256 keylen_max=256 vallen_max=1024\n".into(),
            format!("cmd=my_kvsname kvsname={kvs}\n"),
        ]
    }

    #[test]
    fn a_request_at_its_limits_stays_below_what_slurm_reads() {
        let mut answers = greeting("kvs_123456_0_0123456789_host");
        answers.push("cmd=put_result rc=0\n".into());
        let (fd, manager) = manager(answers);
        let mut client = Client::over(fd).unwrap();
        let (key, value) = ("k".repeat(client.key_limit()), "v".repeat(client.value_limit()));
        client.put(&key, &value).unwrap();
        assert!(matches!(client.put(&key, &format!("{value}v")), Err(RteError::Limit(_))));
        let lines = manager.join().unwrap();
        assert!((900..=MAX_REQUEST).contains(&lines[3].len()), "{}", lines[3].len());
    }

    #[test]
    fn refusals_surprises_and_the_end_are_errors() {
        let mut answers = greeting("kvs");
        answers.push("cmd=put_result rc=-1 msg=key exists\n".into());
        answers.push("cmd=get_result rc=-1 msg=no_such_key value=unknown\n".into());
        answers.push("cmd=set debug=1\ncmd=barrier_out\n".into());
        answers.push("cmd=what\n".into());
        let (fd, manager) = manager(answers);
        let mut client = Client::over(fd).unwrap();
        let refused = client.put("k", "v").unwrap_err().to_string();
        assert_eq!(refused, "PMI: the process manager refused put: key exists");
        assert_eq!(client.get("k").unwrap(), None);
        client.barrier().unwrap();
        assert!(matches!(client.get("k"), Err(RteError::Protocol(_))));
        manager.join().unwrap();
        assert!(matches!(client.barrier(), Err(RteError::LauncherGone)));
        assert!(matches!(client.finalize(), Err(RteError::LauncherGone)));
    }

    #[test]
    fn who_has_finalized_asks_nothing() {
        let mut answers = greeting("kvs");
        answers.push("cmd=get_result rc=0 value=2,3\n".into());
        answers.push("cmd=finalize_ack rc=0\n".into());
        let (fd, manager) = manager(answers);
        let mut client = Client::over(fd).unwrap();
        assert_eq!(client.get("PMI_dead_processes").unwrap().as_deref(), Some("2,3"));
        client.finalize().unwrap();
        assert_eq!(client.get("PMI_dead_processes").unwrap(), None);
        assert_eq!(manager.join().unwrap().len(), 5);
    }

    #[test]
    fn a_manager_that_cannot_hold_values_is_refused() {
        for maxes in ["cmd=maxes keylen_max=64 vallen_max=4\n", "cmd=maxes keylen_max=x\n"] {
            let mut answers = greeting("kvs");
            answers[1] = maxes.into();
            answers.truncate(2);
            let (fd, manager) = manager(answers);
            assert!(matches!(Client::over(fd), Err(RteError::Protocol(_))), "{maxes}");
            manager.join().unwrap();
        }
        let (fd, manager) = manager(greeting(&"k".repeat(990)));
        assert!(matches!(Client::over(fd), Err(RteError::Protocol(_))));
        manager.join().unwrap();
    }
}
