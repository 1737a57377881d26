//! Abstract sockets: where a process is reached, and how descriptors travel. Never blocks, leaves no file (law 8).

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::{Pid, PidfdFlags};
use smallvec::SmallVec;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::wire::{MESSAGE_MAX, Message};

/// Diallers that may wait in the kernel for us (the kernel lowers it to `somaxconn`).
const BACKLOG: i32 = 4096;
/// Most descriptors in one message.
const DESCRIPTORS: usize = 2;

fn open() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// A socket on which peers reach us under the abstract name `name`.
pub(crate) fn listen(name: &[u8]) -> Result<OwnedFd, Errno> {
    let socket = open()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Connects to `name`. [`Errno::AGAIN`]: too many wait there already, try again.
pub(crate) fn dial(name: &[u8]) -> Result<OwnedFd, Errno> {
    let socket = open()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    Ok(socket)
}

/// The next dialler, if one waits.
pub(crate) fn accept(listener: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    loop {
        match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => return Ok(Some(socket)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Sends one message with `descriptors`.
pub(crate) fn send(
    socket: &OwnedFd,
    message: &Message,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let bytes = message.encode();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        let pushed = control.push(SendAncillaryMessage::ScmRights(descriptors));
        assert!(pushed, "more descriptors than a message has");
    }
    loop {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// What came out of a socket.
#[derive(Debug)]
pub(crate) enum Received {
    /// A message and its descriptors.
    Message(Message, SmallVec<[OwnedFd; DESCRIPTORS]>),
    /// Bytes that are no message.
    Malformed,
    /// Nothing now.
    Nothing,
    /// The other side closed it, or died.
    End,
}

/// Takes the next message.
pub(crate) fn receive(socket: &OwnedFd) -> Received {
    let mut bytes = [0; MESSAGE_MAX + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut resets = 0;
    loop {
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(socket, &mut parts, &mut control, flags) {
            Ok(got) if got.bytes == 0 => return Received::End,
            Ok(got) => {
                let mut descriptors = SmallVec::new();
                for message in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(fds) = message {
                        descriptors.extend(fds);
                    }
                }
                return match Message::decode(&bytes[..got.bytes.min(MESSAGE_MAX + 1)]) {
                    Some(message) => Received::Message(message, descriptors),
                    None => Received::Malformed,
                };
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Received::Nothing,
            // The other side closed it with messages of ours unread: said once, before its last messages.
            Err(Errno::CONNRESET) if resets == 0 => resets += 1,
            Err(_) => return Received::End,
        }
    }
}

/// Who is at the other end of `socket`, if it runs as the same user: its process, by identifier and by a
/// descriptor that becomes readable when it is gone. The identifier is checked not to have been used again.
pub(crate) fn identify(socket: &OwnedFd) -> Result<Option<(Pid, OwnedFd)>, Errno> {
    let credentials = rustix::net::sockopt::socket_peercred(socket)?;
    if credentials.uid != rustix::process::geteuid() {
        return Ok(None);
    }
    let process = rustix::process::pidfd_open(credentials.pid, PidfdFlags::empty())?;
    // If the process had ended before `pidfd_open`, its end of the socket would be closed by now.
    if is_set(&socket.as_fd(), PollFlags::HUP)? {
        return Err(Errno::SRCH);
    }
    Ok(Some((credentials.pid, process)))
}

/// Whether the process behind `process` is gone.
pub(crate) fn is_gone(process: &OwnedFd) -> bool {
    is_set(&process.as_fd(), PollFlags::IN).unwrap_or(false)
}

fn is_set(fd: &BorrowedFd<'_>, events: PollFlags) -> Result<bool, Errno> {
    let mut fds = [PollFd::new(fd, events)];
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        match poll(&mut fds, Some(&zero)) {
            Ok(_) => return Ok(fds[0].revents().intersects(events)),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
