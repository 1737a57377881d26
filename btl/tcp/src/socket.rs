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

const BBR: &str = "bbr";
/// Every system has it and lets everybody have it.
const RENO: &str = "reno";
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

/// Makes a connection within this host what nothing is congested on: bounds the buffers that nobody has chosen, and takes it away from BBR, which would take the
/// sender's pauses for want of bandwidth.
fn set_near(socket: &OwnedFd, near: bool, config: &TcpConfig) -> Result<(), Errno> {
    if near && config.sndbuf.is_none() {
        sockopt::set_socket_send_buffer_size(socket, NEAR_SNDBUF)?;
    }
    if near && config.rcvbuf.is_none() {
        sockopt::set_socket_recv_buffer_size(socket, NEAR_RCVBUF)?;
    }
    if near && sockopt::tcp_congestion(socket).is_ok_and(|name| name == BBR) {
        sockopt::set_tcp_congestion(socket, RENO)?;
    }
    Ok(())
}

fn within_host(from: IpAddr, to: IpAddr) -> bool {
    from == to || from.is_loopback() && to.is_loopback()
}

/// Whether both ends of a connection are on this host.
pub fn is_near(socket: &OwnedFd) -> bool {
    let here = getsockname(socket).map(SocketAddr::try_from);
    let there = getpeername(socket).map(|peer| peer.map(SocketAddr::try_from));
    matches!((here, there), (Ok(Ok(here)), Ok(Some(Ok(there)))) if within_host(here.ip(), there.ip()))
}

/// The options of an accepted connection.
pub fn welcome(socket: &OwnedFd, config: &TcpConfig) -> Result<(), Errno> {
    set_near(socket, is_near(socket), config)?;
    set_patience(socket, config)
}

/// Starts to connect; the outcome shows when the socket is writable.
pub fn dial(from: &SocketAddr, to: &SocketAddr, config: &TcpConfig) -> Result<OwnedFd, Errno> {
    let socket = open(to, config)?;
    bind(&socket, from)?;
    set_near(&socket, within_host(from.ip(), to.ip()), config)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_within_the_host_are_not_bbrs() {
        let config = TcpConfig::default();
        let net: IpNet = "127.0.0.1/8".parse().expect("a network");
        let (listener, Listening { port, .. }) = listen_on(net, 0, &config).expect("listens");
        let (from, to) = (socket_address(net.addr(), 0, 0), socket_address(net.addr(), port, 0));
        let dialled = dial(&from, &to, &config).expect("dials");
        let system = sockopt::tcp_congestion(&listener).expect("has one");
        let has = sockopt::tcp_congestion(&dialled).expect("has one");
        let wanted = if system == BBR { RENO } else { &system };
        assert_eq!(has, wanted);
    }
}
