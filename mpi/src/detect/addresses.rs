//! Where detectors are reached: the socket, the addresses published for it, and what is known of others'.
//!
//! ```text
//!   count u8 | (family 4 or 6, port u16, address 4 or 16 bytes) × count | where it runs (`home.rs`), or nothing
//! ```

use super::home::Home;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

/// The most addresses of one process.
const ADDRESSES_MAX: usize = 4;

/// Opens the socket for a process reached by `usable` addresses; by loopback alone when there are none.
pub fn open(usable: &[IpAddr]) -> std::io::Result<UdpSocket> {
    let socket = match usable {
        [] => UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?,
        // Both families on one socket, where the host has both.
        _ => UdpSocket::bind(("::", 0)).or_else(|_| UdpSocket::bind(("0.0.0.0", 0)))?,
    };
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// What to publish.
pub fn encode(usable: &[IpAddr], port: u16) -> Vec<u8> {
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
    let usable = if usable.is_empty() { &loopback } else { usable };
    let usable = &usable[..usable.len().min(ADDRESSES_MAX)];
    let mut blob = vec![usable.len() as u8];
    for address in usable {
        blob.push(if address.is_ipv4() { 4 } else { 6 });
        blob.extend(port.to_le_bytes());
        match address {
            IpAddr::V4(v4) => blob.extend(v4.octets()),
            IpAddr::V6(v6) => blob.extend(v6.octets()),
        }
    }
    blob
}

/// What another published, and where it runs if it told; nothing when it is garbage.
pub fn decode(blob: &[u8]) -> (Vec<SocketAddr>, Option<Home>) {
    fn next(blob: &mut &[u8]) -> Option<SocketAddr> {
        let (&[family, low, high], rest) = blob.split_first_chunk()?;
        let port = u16::from_le_bytes([low, high]);
        let address: IpAddr = match family {
            4 => {
                let (v4, rest) = rest.split_first_chunk::<4>()?;
                *blob = rest;
                (*v4).into()
            }
            6 => {
                let (v6, rest) = rest.split_first_chunk::<16>()?;
                *blob = rest;
                (*v6).into()
            }
            _ => return None,
        };
        (port != 0).then_some(SocketAddr::new(address, port))
    }
    let Some((&count, mut rest)) = blob.split_first() else { return (Vec::new(), None) };
    let all: Option<Vec<_>> =
        (0..usize::from(count).min(ADDRESSES_MAX + 1)).map(|_| next(&mut rest)).collect();
    let home = rest.try_into().ok().map(Home::decode);
    let all = all.filter(|all| all.len() <= ADDRESSES_MAX && (rest.is_empty() || home.is_some()));
    all.map_or_else(Default::default, |all| (all, home))
}

/// `to` in the form that a socket bound to `local` sends to.
pub fn for_socket(to: SocketAddr, local: SocketAddr) -> SocketAddr {
    match (to, local) {
        (SocketAddr::V4(v4), SocketAddr::V6(_)) => {
            SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
        }
        _ => to,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_read() {
        let usable: Vec<IpAddr> =
            ["10.1.2.3", "fd00::7"].iter().map(|text| text.parse().expect("an address")).collect();
        let blob = encode(&usable, 700);
        let expected: Vec<SocketAddr> =
            usable.iter().map(|address| SocketAddr::new(*address, 700)).collect();
        assert_eq!(decode(&blob), (expected.clone(), None));
        let loopback = vec!["127.0.0.1:9".parse().expect("an address")];
        assert_eq!(decode(&encode(&[], 9)), (loopback, None));
        let nothing = (Vec::new(), None);
        (0..blob.len()).for_each(|cut| assert_eq!(decode(&blob[..cut]), nothing));
        assert_eq!(decode(&[200; 300]), nothing);
        assert_eq!(decode(&[blob.clone(), vec![0]].concat()), nothing);
        let home = Home::here().expect("a Linux host");
        let both = [blob, home.encode().to_vec()].concat();
        assert_eq!(decode(&both), (expected, Some(home)));
        assert_eq!(decode(&both[..both.len() - 1]), nothing);
    }

    #[test]
    fn one_socket_reaches_both_families() {
        let one = open(&["127.0.0.1".parse().expect("an address")]).expect("a socket");
        let local = one.local_addr().expect("bound");
        let other = open(&[]).expect("a socket");
        let to = for_socket(other.local_addr().expect("bound"), local);
        one.send_to(b"x", to).expect("sent");
        let mut buffer = [0; 8];
        other.set_nonblocking(false).expect("a flag");
        assert_eq!(other.recv(&mut buffer).expect("arrives"), 1);
    }
}
