//! Sockets with the options we want: listeners, outgoing connections, established ones.

use crate::blob::{Listening, socket_address};
use crate::config::{OpenError, TcpConfig};
use ipnet::IpNet;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, getpeername, getsockname, listen,
    socket_with,
};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Connections that wait in the kernel for `accept`; it cuts this to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Buffers between processes of one host, where nothing is under way but what lies in them: as much as stays in the caches.
/// The kernel's own grow to megabytes. Measured with windows of 1 MiB, in turns: 4.4 and 4.0 GB/s against 3.7 and 3.6 near,
/// 2.6 and 2.5 against 2.4 and 2.3 far; single messages of 1 MiB took a tenth less, 64 KiB as long. Half or twice as much gained
/// less, or nothing.
const NEAR_SNDBUF: usize = 512 << 10;
const NEAR_RCVBUF: usize = 1 << 20;

/// A non-blocking TCP socket with its buffer sizes, which count from the first segment on.
fn open(address: &SocketAddr, config: &TcpConfig) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    if let Some(bytes) = config.sndbuf {
        sockopt::set_socket_send_buffer_size(&socket, bytes)?;
    }
    if let Some(bytes) = config.rcvbuf {
        sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
    }
    Ok(socket)
}

/// Listens on `net`'s address: on a port of the configured range that is free, or on any.
pub fn listen_on(
    net: IpNet,
    scope: u32,
    config: &TcpConfig,
) -> Result<(OwnedFd, Listening), OpenError> {
    let try_port = |port: u16| -> Result<(OwnedFd, Listening), Errno> {
        let address = socket_address(net.addr(), port, scope);
        let socket = open(&address, config)?;
        if address.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, true)?;
        }
        // With a fixed range, connections of an earlier job in TIME_WAIT are not in the way.
        sockopt::set_socket_reuseaddr(&socket, port != 0)?;
        bind(&socket, &address)?;
        listen(&socket, BACKLOG)?;
        let bound = SocketAddr::try_from(getsockname(&socket)?)?;
        Ok((socket, Listening { net, port: bound.port() }))
    };
    let ports = config.ports.clone().unwrap_or(0..=0);
    let (first, last) = (*ports.start(), *ports.end());
    for port in ports {
        match try_port(port) {
            Err(Errno::ADDRINUSE) => {}
            Err(errno) => return Err(OpenError::os("listen", errno)),
            Ok(listener) => return Ok(listener),
        }
    }
    Err(OpenError::PortsInUse { address: net.addr(), first, last })
}

/// Bounds the buffers of a connection within this host that nobody has chosen.
fn bound_buffers(
    socket: &OwnedFd,
    from: IpAddr,
    to: IpAddr,
    config: &TcpConfig,
) -> Result<(), Errno> {
    let near = from == to || from.is_loopback() && to.is_loopback();
    if near && config.sndbuf.is_none() {
        sockopt::set_socket_send_buffer_size(socket, NEAR_SNDBUF)?;
    }
    if near && config.rcvbuf.is_none() {
        sockopt::set_socket_recv_buffer_size(socket, NEAR_RCVBUF)?;
    }
    Ok(())
}

/// The options of an accepted connection.
pub fn welcome(socket: &OwnedFd, config: &TcpConfig) -> Result<(), Errno> {
    let ends = (
        SocketAddr::try_from(getsockname(socket)?),
        getpeername(socket)?.map(SocketAddr::try_from),
    );
    if let (Ok(here), Some(Ok(there))) = ends {
        bound_buffers(socket, here.ip(), there.ip(), config)?;
    }
    set_patience(socket, config)
}

/// Starts to connect; the outcome shows when the socket is writable.
pub fn dial(from: &SocketAddr, to: &SocketAddr, config: &TcpConfig) -> Result<OwnedFd, Errno> {
    let socket = open(to, config)?;
    bind(&socket, from)?;
    bound_buffers(&socket, from.ip(), to.ip(), config)?;
    set_patience(&socket, config)?;
    match connect(&socket, to) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

/// How long the kernel waits for a silent peer, and no waiting for more to send.
fn set_patience(socket: &OwnedFd, config: &TcpConfig) -> Result<(), Errno> {
    let socket = socket.as_fd();
    let at_least_a_second = |time: Duration| time.max(Duration::from_secs(1));
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, at_least_a_second(config.keepalive_idle))?;
    sockopt::set_tcp_keepintvl(socket, at_least_a_second(config.keepalive_interval))?;
    sockopt::set_tcp_keepcnt(socket, config.keepalive_count.max(1))?;
    let millis = u32::try_from(config.user_timeout.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(socket, millis)
}
