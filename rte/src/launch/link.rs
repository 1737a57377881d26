//! The connection between the head and a daemon: TCP, proven by the job secret from both sides,
//! then framed messages.
//!
//! ```text
//!   head → daemon   nonce_h                                            32
//!   daemon → head   magic "IWD1" | host u32 | nonce_d | proof          4 + 4 + 32 + 32
//!   head → daemon   proof                                              32
//!   proof = BLAKE3(key = derive("…control…", secret), role | nonce_h | nonce_d | host)
//!   then            length u32 LE | postcard message                   each way
//! ```
//! Fixed sizes until proven: a stranger cannot make us allocate (law 9). Proofs are compared in
//! constant time (`blake3::Hash`). What follows is authenticated as a connection, not encrypted:
//! the control network is trusted not to hijack established connections.

use crate::secret::Secret;
use rustix::io::Errno;
use rustix::net::sockopt;
use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// What a daemon begins with.
const MAGIC: [u8; 4] = *b"IWD1";
/// The length of a daemon's first message.
pub const HELLO: usize = 4 + 4 + 32 + 32;
/// The longest message taken. An environment with arguments stays far below.
const MAX_FRAME: usize = 32 << 20;
/// A proven connection; non-blocking.
#[derive(Debug)]
pub struct Link {
    stream: TcpStream,
    received: Vec<u8>,
    unsent: Vec<u8>,
}

/// The connection is of no more use.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The other side closed it.
    #[error("closed by the other side")]
    Closed,
    /// The network or the other host is gone.
    #[error("{0}")]
    Broken(#[from] io::Error),
    /// The other side's system answers, the other side does not.
    #[error("no sign of life")]
    Silent,
    /// What arrived is no message.
    #[error("a message that cannot be read")]
    Garbled,
}

impl Link {
    /// Takes over a connection whose other side has proven itself. It counts as lost when the other
    /// host's system has not answered for `patience` (rounded to seconds, at least three).
    ///
    /// # Errors
    /// A socket option is refused.
    pub fn new(stream: TcpStream, patience: Duration) -> io::Result<Link> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        // A host that vanishes says nothing: probe it, and bound the unacknowledged.
        sockopt::set_socket_keepalive(&stream, true)?;
        let seconds = patience.as_secs().clamp(3, 3600);
        let probes = (seconds - 1).min(4);
        let interval = Duration::from_secs((seconds / (probes + 1)).max(1));
        sockopt::set_tcp_keepidle(&stream, interval)?;
        sockopt::set_tcp_keepintvl(&stream, interval)?;
        sockopt::set_tcp_keepcnt(&stream, probes as u32)?;
        // It rules over the number of probes once data is under way, and over theirs too.
        sockopt::set_tcp_user_timeout(&stream, seconds as u32 * 1000)?;
        Ok(Link { stream, received: Vec::new(), unsent: Vec::new() })
    }

    /// Queues `message` and sends what can be sent now.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn send<T: Serialize>(&mut self, message: &T) -> Result<(), LinkError> {
        let body = postcard::to_stdvec(message).map_err(|_| LinkError::Garbled)?;
        let length = u32::try_from(body.len()).ok().filter(|length| *length as usize <= MAX_FRAME);
        self.unsent.extend(length.ok_or(LinkError::Garbled)?.to_le_bytes());
        self.unsent.extend(body);
        self.flush()
    }

    /// Sends what can be sent now.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn flush(&mut self) -> Result<(), LinkError> {
        let mut sent = 0;
        let result = loop {
            if sent == self.unsent.len() {
                break Ok(());
            }
            match self.stream.write(&self.unsent[sent..]) {
                Ok(0) => break Err(LinkError::Closed),
                Ok(length) => sent += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                Err(error) => break Err(error.into()),
            }
        };
        self.unsent.drain(..sent);
        result
    }

    /// Whether something waits to be sent.
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// The messages that have arrived.
    ///
    /// # Errors
    /// The connection is lost; `into` holds what arrived before.
    pub fn receive<T: DeserializeOwned>(&mut self, into: &mut Vec<T>) -> Result<(), LinkError> {
        let mut buffer = [0u8; 64 * 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(LinkError::Closed),
                Ok(length) => {
                    self.received.extend_from_slice(&buffer[..length]);
                    self.cut(into)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn cut<T: DeserializeOwned>(&mut self, into: &mut Vec<T>) -> Result<(), LinkError> {
        let mut taken = 0;
        while let Some((length, rest)) = self.received[taken..].split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            if length > MAX_FRAME {
                return Err(LinkError::Garbled);
            }
            let Some(body) = rest.get(..length) else { break };
            into.push(postcard::from_bytes(body).map_err(|_| LinkError::Garbled)?);
            taken += 4 + length;
        }
        self.received.drain(..taken);
        Ok(())
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Who proves itself.
#[derive(Debug, Clone, Copy)]
enum Role {
    Head,
    Daemon,
}

fn proof(
    secret: &Secret,
    role: Role,
    nonce_h: &Secret,
    nonce_d: &Secret,
    host: u32,
) -> blake3::Hash {
    let key = blake3::derive_key("ironweave 2026-11 control connection of a daemon", secret);
    let mut hasher = blake3::Hasher::new_keyed(&key);
    let role: &[u8] = match role {
        Role::Head => b"head..",
        Role::Daemon => b"daemon",
    };
    hasher.update(role).update(nonce_h).update(nonce_d).update(&host.to_le_bytes());
    hasher.finalize()
}

/// The daemon's side: proves itself and checks the head. Blocks, at most `timeout` a step.
///
/// # Errors
/// The connection fails; `PermissionDenied` when either side does not know the secret.
pub fn prove_to_head(
    mut stream: TcpStream,
    secret: &Secret,
    nonce_d: &Secret,
    host: u32,
    timeout: Duration,
    patience: Duration,
) -> io::Result<Link> {
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let mut nonce_h = Secret::default();
    stream.read_exact(&mut nonce_h)?;
    let mut hello = Vec::with_capacity(HELLO);
    hello.extend(MAGIC);
    hello.extend(host.to_le_bytes());
    hello.extend(nonce_d);
    hello.extend(proof(secret, Role::Daemon, &nonce_h, nonce_d, host).as_bytes());
    stream.write_all(&hello)?;
    let mut answer = [0u8; 32];
    stream.read_exact(&mut answer).map_err(|_| {
        io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the launcher refused this daemon: it does not hold the job's secret",
        )
    })?;
    if proof(secret, Role::Head, &nonce_h, nonce_d, host) != answer {
        let words = "who answers is not the launcher of this job: it does not hold the secret";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, words));
    }
    Link::new(stream, patience)
}

/// The head's side of a connection that has not proven itself yet; non-blocking.
#[derive(Debug)]
pub struct Stranger {
    stream: TcpStream,
    nonce_h: Secret,
    hello: [u8; HELLO],
    filled: usize,
}

/// What has become of a stranger.
#[derive(Debug)]
pub enum Verdict {
    /// It has not said enough.
    Waiting(Stranger),
    /// It is the daemon of this host.
    Daemon(u32, Link),
    /// It is none of ours, and why.
    Refused(&'static str),
}

impl Stranger {
    /// Greets a new connection with the challenge.
    ///
    /// # Errors
    /// The connection is gone already.
    pub fn greet(mut stream: TcpStream, nonce_h: Secret) -> io::Result<Stranger> {
        stream.set_nonblocking(true)?;
        // A new connection has room for 32 bytes.
        stream.write_all(&nonce_h)?;
        Ok(Stranger { stream, nonce_h, hello: [0; HELLO], filled: 0 })
    }

    /// Reads what it has said and judges it.
    pub fn judge(mut self, secret: &Secret, patience: Duration) -> Verdict {
        while self.filled < HELLO {
            match self.stream.read(&mut self.hello[self.filled..]) {
                Ok(0) => return Verdict::Refused("it closed the connection"),
                Ok(length) => self.filled += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Verdict::Waiting(self);
                }
                Err(_) => return Verdict::Refused("its connection broke"),
            }
        }
        let (magic, rest) = self.hello.split_at(4);
        let (host, rest) = rest.split_at(4);
        let (nonce_d, claimed) = rest.split_at(32);
        let (Ok(host), Ok(nonce_d), Ok(claimed)) = (
            host.try_into().map(u32::from_le_bytes),
            Secret::try_from(nonce_d),
            Secret::try_from(claimed),
        ) else {
            return Verdict::Refused("its greeting has the wrong size");
        };
        if magic != MAGIC {
            return Verdict::Refused("it is no ironweave daemon of this version");
        }
        if proof(secret, Role::Daemon, &self.nonce_h, &nonce_d, host) != claimed {
            return Verdict::Refused("it does not hold the job's secret");
        }
        let answer = proof(secret, Role::Head, &self.nonce_h, &nonce_d, host);
        match self
            .stream
            .write_all(answer.as_bytes())
            .and_then(|()| Link::new(self.stream, patience))
        {
            Ok(link) => Verdict::Daemon(host, link),
            Err(_) => Verdict::Refused("its connection broke"),
        }
    }
}

impl AsFd for Stranger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Whether a listener's error is only about the connection that was being accepted.
pub fn concerns_one_connection(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::CONNABORTED | Errno::INTR | Errno::AGAIN | Errno::PERM))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::messages::Down;
    use std::net::TcpListener;

    const WAIT: Duration = Duration::from_secs(20);

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn meet(head_secret: Secret, daemon_secret: Secret) -> (Verdict, io::Result<Link>) {
        let (client, server) = connected();
        let daemon = std::thread::spawn(move || {
            prove_to_head(client, &daemon_secret, &[7; 32], 3, WAIT, WAIT)
        });
        let mut verdict = Verdict::Waiting(Stranger::greet(server, [9; 32]).unwrap());
        while let Verdict::Waiting(stranger) = verdict {
            let mut fds = [rustix::event::PollFd::new(&stranger, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut fds, None).unwrap();
            verdict = stranger.judge(&head_secret, WAIT);
        }
        (verdict, daemon.join().unwrap())
    }

    #[test]
    fn who_holds_the_secret_is_let_in_and_messages_arrive_whole() {
        let (Verdict::Daemon(3, mut head), Ok(mut daemon)) = meet([1; 32], [1; 32]) else {
            panic!("not let in");
        };
        head.send(&Down::Stdin(vec![5; 300_000])).unwrap();
        let mut got: Vec<Down> = Vec::new();
        while got.is_empty() {
            head.flush().unwrap();
            daemon.receive(&mut got).unwrap();
        }
        assert!(matches!(&got[..], [Down::Stdin(data)] if data.len() == 300_000));
        drop(head);
        assert!(matches!(daemon.receive(&mut got), Err(LinkError::Closed)));
    }

    #[test]
    fn who_does_not_is_refused_on_both_sides() {
        let (verdict, daemon) = meet([1; 32], [2; 32]);
        assert!(matches!(verdict, Verdict::Refused(why) if why.contains("secret")));
        assert_eq!(daemon.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn garbage_and_giant_frames_are_refused() {
        let (mut client, server) = connected();
        let stranger = Stranger::greet(server, [9; 32]).unwrap();
        client.write_all(&[0xff; HELLO]).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut verdict = Verdict::Waiting(stranger);
        while let Verdict::Waiting(stranger) = verdict {
            verdict = stranger.judge(&[1; 32], WAIT);
        }
        assert!(matches!(verdict, Verdict::Refused(_)));

        let (mut client, server) = connected();
        let mut link = Link::new(server, WAIT).unwrap();
        client.write_all(&u32::MAX.to_le_bytes()).unwrap();
        let mut got: Vec<Down> = Vec::new();
        let error = loop {
            if let Err(error) = link.receive(&mut got) {
                break error;
            }
        };
        assert!(matches!(error, LinkError::Garbled));
    }
}
