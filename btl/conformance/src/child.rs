//! The other processes: the test binary started again, playing one part of a stage.

use crate::command::{Answer, Command};
use crate::node::Node;
use crate::run;
use crate::{Harness, Site};
use ironweave_btl::Peer;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

/// Names the part that a started process plays.
const VARIABLE: &str = "IRONWEAVE_CONFORMANCE_ROLE";

/// Which processes of a stage live in one started process.
#[derive(Clone, Debug)]
pub(crate) struct Role {
    pub first: u32,
    pub count: u32,
    pub site: Site,
}

impl Role {
    fn encode(&self) -> String {
        let site = &self.site;
        let secret: String = site.secret.iter().map(|byte| format!("{byte:02x}")).collect();
        format!(
            "{} {} {} {} {} {secret} {}",
            self.first,
            self.count,
            site.processes,
            site.seed,
            site.job,
            site.scratch.display()
        )
    }

    pub(crate) fn from_environment() -> Option<Role> {
        let text = std::env::var(VARIABLE).ok()?;
        let mut words = text.splitn(7, ' ');
        let mut next = || words.next().expect("a role has seven words");
        let number = |word: &str| word.parse::<u64>().expect("the stage wrote a number");
        let (first, count, processes) = (number(next()), number(next()), number(next()));
        let (seed, job, secret) = (number(next()), next().to_owned(), next().to_owned());
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&secret[2 * at..2 * at + 2], 16).expect("hex digits");
        }
        let site = Site {
            me: Peer(first as u32),
            processes: processes as u32,
            job,
            secret: bytes,
            scratch: PathBuf::from(next()),
            seed,
        };
        Some(Role { first: first as u32, count: count as u32, site })
    }

    /// Starts the process that plays this role in the test `name`.
    pub(crate) fn start(&self, name: &str) -> std::io::Result<(Child, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        let child = std::process::Command::new(std::env::current_exe()?)
            .args([name, "--exact", "--nocapture", "--test-threads=1"])
            .env(VARIABLE, self.encode())
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()?;
        ours.set_nonblocking(true)?;
        Ok((child, ours))
    }
}

/// Kills this process as `kill -9` does.
pub(crate) fn die() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    unreachable!("a process survived SIGKILL");
}

/// Plays a part until the stage hangs up.
pub(crate) fn play<H: Harness>(role: &Role) -> ! {
    let _watch = run::watch(format!("this is process {} of a stage", role.first));
    run::raise_descriptor_limit();
    let control =
        std::io::stdin().as_fd().try_clone_to_owned().expect("stdin is the control socket");
    let mut control = Control::new(UnixStream::from(control));
    let world = H::world(&role.site);
    let mut nodes = Vec::new();
    for me in role.first..role.first + role.count {
        match Node::<H>::open(&world, Site { me: Peer(me), ..role.site.clone() }) {
            Ok(node) => nodes.push(node),
            Err(why) => {
                control.send(&Answer::Refused(why).encode());
                std::process::exit(0);
            }
        }
    }
    control.send(&Answer::Done.encode());
    let mut idle = 0;
    loop {
        let mut busy = false;
        match control.receive() {
            Ok(Some(line)) => {
                busy = true;
                let (at, rest) = line.split_once(' ').expect("a line names its process");
                let at: u32 = at.parse().expect("the stage wrote a number");
                let command = Command::decode(rest)
                    .unwrap_or_else(|| panic!("a command nobody knows: {rest}"));
                run::doing(rest);
                let answer = nodes[(at - role.first) as usize].execute(command);
                control.send(&answer.encode());
            }
            Ok(None) => {}
            Err(Hangup) => std::process::exit(0),
        }
        for node in &mut nodes {
            busy |= node.step();
        }
        idle = if busy { 0 } else { idle + 1 };
        nap(idle);
    }
}

/// Gives the processor away: there are more processes than processors.
pub(crate) fn nap(idle: u32) {
    match idle {
        0..50 => {}
        50..200 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(200)),
    }
}

/// The stage ended.
pub(crate) struct Hangup;

/// Lines over a non-blocking socket.
pub(crate) struct Control {
    stream: UnixStream,
    buffer: Vec<u8>,
}

impl Control {
    pub(crate) fn new(stream: UnixStream) -> Self {
        stream.set_nonblocking(true).expect("sockets can be made non-blocking");
        Control { stream, buffer: Vec::new() }
    }

    /// Writes a line. That the other side is gone shows on the next `receive`.
    pub(crate) fn send(&mut self, line: &str) {
        let mut bytes = line.as_bytes().to_vec();
        bytes.push(b'\n');
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    /// The next line, if it is there.
    pub(crate) fn receive(&mut self) -> Result<Option<String>, Hangup> {
        if let Some(line) = self.take_line() {
            return Ok(Some(line));
        }
        let mut piece = [0; 4096];
        match self.stream.read(&mut piece) {
            Ok(0) => Err(Hangup),
            Ok(n) => {
                self.buffer.extend_from_slice(&piece[..n]);
                Ok(self.take_line())
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(None)
            }
            Err(_) => Err(Hangup),
        }
    }

    fn take_line(&mut self) -> Option<String> {
        let end = self.buffer.iter().position(|&byte| byte == b'\n')?;
        let line = self.buffer.drain(..=end).take(end).collect();
        Some(String::from_utf8(line).expect("lines are text"))
    }
}
