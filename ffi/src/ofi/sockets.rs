//! The system's sockets beneath a provider: found by their addresses, for libfabric gives none of them out.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;

/// Gives room for `bytes` bytes of input to each socket of this process that `address` (as `fi_getname` gives it) is
/// one end of; so also those that will be accepted by a listener there. As much of it as the system allows
/// (`net.core.rmem_max`); none gets less than it has. Tells how many sockets there were.
///
/// Descriptors are looked at while other threads may close and open some: in the worst case a socket that is not
/// the provider's gets more room, too.
pub(super) fn make_room(address: &[u8], bytes: usize) -> usize {
    let Some(address) = End::decode(address) else { return 0 };
    open().filter(|&fd| is_at(fd, &address)).map(|fd| widen(fd, bytes)).count()
}

/// Takes each connection within this host that one of `addresses` is one end of away from BBR, if it has that, so that nothing is
/// paced where nothing can be congested. Tells how many there were. The caveat of [`make_room`] holds.
pub(super) fn unpace(addresses: &[&[u8]]) -> usize {
    let ends: Vec<End> = addresses.iter().filter_map(|bytes| End::decode(bytes)).collect();
    let within = |fd: RawFd| {
        let (here, there) = (end(fd, libc::getsockname)?, end(fd, libc::getpeername)?);
        let ours = ends.contains(&here) || ends.contains(&there);
        (here.host == there.host && ours && has_bbr(fd)).then_some(fd)
    };
    if ends.is_empty() {
        return 0;
    }
    // Every system has this one, and lets everybody have it.
    open()
        .filter_map(within)
        .map(|fd| set(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, b"reno"))
        .count()
}

/// Whether both are addresses of one host's sockets.
pub(super) fn are_near(one: &[u8], other: &[u8]) -> bool {
    matches!((End::decode(one), End::decode(other)), (Some(a), Some(b)) if a.host == b.host)
}

/// This process's descriptors.
fn open() -> impl Iterator<Item = RawFd> {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Family, port and host of a socket address.
#[derive(PartialEq, Eq, Debug)]
struct End {
    family: u16,
    port: [u8; 2],
    host: [u8; 16],
}

impl End {
    /// Reads `sockaddr_in` and `sockaddr_in6`, which is what sockets' providers have for names.
    fn decode(bytes: &[u8]) -> Option<End> {
        let (family, rest) = bytes.split_first_chunk()?;
        let (&port, rest) = rest.split_first_chunk()?;
        let family = u16::from_ne_bytes(*family);
        let mut host = [0; 16];
        match i32::from(family) {
            libc::AF_INET => host[..4].copy_from_slice(rest.get(..4)?),
            libc::AF_INET6 => host.copy_from_slice(rest.get(4..20)?), // after the flow's label
            _ => return None,
        }
        Some(End { family, port, host })
    }
}

type NameOf = unsafe extern "C" fn(c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> c_int;

fn end(fd: RawFd, of: NameOf) -> Option<End> {
    let mut bytes = [0u8; size_of::<libc::sockaddr_in6>()];
    let mut len = bytes.len() as libc::socklen_t;
    // SAFETY: at most `len` bytes are written; a number that is no open socket is an error.
    let returned = unsafe { of(fd, bytes.as_mut_ptr().cast(), &mut len) };
    (returned == 0).then(|| End::decode(bytes.get(..len as usize)?)).flatten()
}

fn is_at(fd: RawFd, address: &End) -> bool {
    end(fd, libc::getsockname).as_ref() == Some(address)
        || end(fd, libc::getpeername).as_ref() == Some(address)
}

fn widen(fd: RawFd, bytes: usize) {
    let mut now: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: one number is written; a number that is no open socket any more is an error.
    unsafe {
        let (level, option) = (libc::SOL_SOCKET, libc::SO_RCVBUF);
        libc::getsockopt(fd, level, option, (&raw mut now).cast::<c_void>(), &mut len);
    }
    let wanted = c_int::try_from(bytes).unwrap_or(c_int::MAX);
    if now < wanted {
        set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &wanted.to_ne_bytes());
    }
}

/// Whether a connection is driven by BBR, in whatever version; no for what is no TCP socket.
fn has_bbr(fd: RawFd) -> bool {
    let mut name = [0u8; 16];
    let mut len = name.len() as libc::socklen_t;
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_CONGESTION);
    // SAFETY: at most `len` bytes are written; a number that is no open socket is an error.
    let returned = unsafe {
        libc::getsockopt(fd, level, option, name.as_mut_ptr().cast::<c_void>(), &mut len)
    };
    returned == 0 && name.starts_with(b"bbr")
}

fn set(fd: RawFd, level: c_int, option: c_int, value: &[u8]) {
    let len = value.len() as libc::socklen_t;
    // SAFETY: the value is read only; a number that is no open socket any more is an error.
    unsafe {
        libc::setsockopt(fd, level, option, value.as_ptr().cast::<c_void>(), len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    const WANTED: usize = 200_000; // what a system allows that nobody told otherwise

    fn bytes_of(address: SocketAddr) -> Vec<u8> {
        let (family, host) = match address {
            SocketAddr::V4(v4) => (libc::AF_INET, v4.ip().octets().to_vec()),
            SocketAddr::V6(v6) => (libc::AF_INET6, [&[0; 4][..], &v6.ip().octets()].concat()),
        };
        let mut bytes = (family as u16).to_ne_bytes().to_vec();
        bytes.extend(address.port().to_be_bytes());
        bytes.extend(host);
        bytes.extend([0; 8]); // padding, or the scope
        bytes
    }

    fn room_of(socket: &impl AsRawFd) -> usize {
        let mut now: c_int = 0;
        let mut len = size_of::<c_int>() as libc::socklen_t;
        // SAFETY: one number is written.
        let returned = unsafe {
            let (level, option) = (libc::SOL_SOCKET, libc::SO_RCVBUF);
            libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut now).cast(), &mut len)
        };
        assert_eq!(returned, 0);
        now as usize
    }

    #[test]
    fn listeners_what_they_accept_and_what_connected_there_get_room_and_no_other() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(local) else {
                println!("SKIP room_of_sockets/{local}: there is no such address");
                continue;
            };
            let address = listener.local_addr().unwrap();
            let before = TcpStream::connect(address).unwrap();
            let other = TcpListener::bind(local).unwrap();
            let untouched = room_of(&other);
            assert!(room_of(&before) < WANTED, "the system's default leaves nothing to see");
            let found = make_room(&bytes_of(address), WANTED);
            assert_eq!(found, 2, "the listener and one that connected");
            assert!(room_of(&before) >= WANTED);
            let _earlier = listener.accept().unwrap();
            let _after = TcpStream::connect(address).unwrap();
            let (accepted, _) = listener.accept().unwrap();
            assert!(room_of(&accepted) >= WANTED, "inherited");
            assert_eq!(room_of(&other), untouched);
            make_room(&bytes_of(address), 4096);
            assert!(room_of(&accepted) >= WANTED, "never less");
        }
    }

    #[test]
    fn connections_within_the_host_are_not_paced_and_no_other_socket_is_touched() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = bytes_of(listener.local_addr().unwrap());
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = |to: &TcpListener| TcpStream::connect(to.local_addr().unwrap()).unwrap();
        let (elsewhere, dialed) = (connect(&other), connect(&listener));
        let (accepted, _) = listener.accept().unwrap();
        for socket in [&elsewhere, &dialed, &accepted] {
            set(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, b"bbr");
        }
        if !has_bbr(dialed.as_raw_fd()) {
            println!("SKIP pacing_of_sockets: the system has no BBR for us");
            return;
        }
        assert_eq!(unpace(&[b"fi_shm://1"]), 0);
        assert_eq!(unpace(&[&address, b"fi_shm://1"]), 2, "both ends are here");
        let paced = [&elsewhere, &dialed, &accepted].map(|socket| has_bbr(socket.as_raw_fd()));
        assert_eq!(paced, [true, false, false]);
        assert_eq!(unpace(&[&address]), 0, "once");
    }

    #[test]
    fn hosts_are_told_apart() {
        let address = |text: &str| bytes_of(text.parse().unwrap());
        assert!(are_near(&address("127.0.0.1:1"), &address("127.0.0.1:2")));
        assert!(!are_near(&address("127.0.0.1:1"), &address("127.0.0.2:1")));
        assert!(!are_near(&address("[::1]:1"), &address("[::2]:1")));
        assert!(!are_near(b"fi_shm://1", b"fi_shm://1"));
    }

    #[test]
    fn what_is_no_address_finds_nothing() {
        assert_eq!(make_room(&[], WANTED), 0);
        assert_eq!(make_room(b"fi_shm://1", WANTED), 0);
        let short = &bytes_of("127.0.0.1:80".parse().unwrap())[..6];
        assert_eq!(make_room(short, WANTED), 0);
    }
}
