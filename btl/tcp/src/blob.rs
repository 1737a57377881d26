//! The address blob of a rail, and the choice of a way from one rail to another.
//!
//! ```text
//!  0         1                 17       18
//!  ┌─────────┬─────────────────┬────────┬── count times ─────────────────────────────┐
//!  │ version │ host id         │ count  │ family 4|6, prefix len, port u16, 4|16 bytes│
//!  └─────────┴─────────────────┴────────┴────────────────────────────────────────────┘
//! ```

use crate::interfaces::{ADDRESSES_MAX, link_local};
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

const VERSION: u8 = 1;

/// Names one network stack: loopback addresses reach only processes with the same one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostId(pub [u8; 16]);

impl HostId {
    /// Boot of this kernel and network namespace of this process (containers have their own loopback).
    pub fn of_this_process() -> std::io::Result<Self> {
        let boot = std::fs::read("/proc/sys/kernel/random/boot_id")?;
        let namespace = std::fs::read_link("/proc/self/ns/net")?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&boot);
        hasher.update(namespace.as_os_str().as_encoded_bytes());
        let mut id = [0; 16];
        id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Ok(HostId(id))
    }
}

/// One address that somebody listens on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listening {
    pub net: IpNet,
    pub port: u16,
}

/// Where one rail is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blob {
    pub host: HostId,
    pub listening: Vec<Listening>,
}

impl Blob {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.host.0);
        out.push(self.listening.len() as u8); // at most ADDRESSES_MAX
        for Listening { net, port } in &self.listening {
            out.push(if net.addr().is_ipv4() { 4 } else { 6 });
            out.push(net.prefix_len());
            out.extend_from_slice(&port.to_le_bytes());
            match net.addr() {
                IpAddr::V4(v4) => out.extend_from_slice(&v4.octets()),
                IpAddr::V6(v6) => out.extend_from_slice(&v6.octets()),
            }
        }
        out
    }

    /// `None` when the bytes are not a blob.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[version], rest) = bytes.split_first_chunk()?;
        let (&host, rest) = rest.split_first_chunk()?;
        let (&[count], mut rest) = rest.split_first_chunk()?;
        if version != VERSION || usize::from(count) > ADDRESSES_MAX {
            return None;
        }
        let mut listening = Vec::new();
        for _ in 0..count {
            let (&[family, prefix, port @ ..], after) = rest.split_first_chunk::<4>()?;
            let (address, after): (IpAddr, _) = match family {
                4 => after.split_first_chunk::<4>().map(|(&a, rest)| (a.into(), rest))?,
                6 => after.split_first_chunk::<16>().map(|(&a, rest)| (a.into(), rest))?,
                _ => return None,
            };
            let net = IpNet::new(address, prefix).ok()?;
            listening.push(Listening { net, port: u16::from_le_bytes(port) });
            rest = after;
        }
        rest.is_empty().then_some(Blob { host: HostId(host), listening })
    }

    /// The best way from a rail with the addresses of `self` to `other`: source address and destination.
    /// `scope` is the number of our interface.
    ///
    /// Same subnet first, then any of the same family; loopback only inside one network stack, link-local only
    /// to link-local. `None` when there is no way.
    pub fn route(&self, other: &Blob, scope: u32) -> Option<(SocketAddr, SocketAddr)> {
        let pairs = self
            .listening
            .iter()
            .flat_map(|ours| other.listening.iter().map(move |theirs| (ours, theirs)));
        let (ours, theirs) = pairs
            .filter_map(|(ours, theirs)| {
                let (from, to) = (ours.net.addr(), theirs.net.addr());
                let possible = from.is_ipv4() == to.is_ipv4()
                    && from.is_loopback() == to.is_loopback()
                    && link_local(from) == link_local(to)
                    && (!to.is_loopback() || self.host == other.host);
                possible.then_some((!ours.net.contains(&to), ours, theirs))
            })
            .min_by_key(|(elsewhere, _, _)| *elsewhere)
            .map(|(_, ours, theirs)| (ours, theirs))?;
        let at = |address: IpAddr, port| socket_address(address, port, scope);
        Some((at(ours.net.addr(), 0), at(theirs.net.addr(), theirs.port)))
    }
}

/// With the scope that link-local addresses need.
pub fn socket_address(address: IpAddr, port: u16, scope: u32) -> SocketAddr {
    match address {
        IpAddr::V6(v6) if link_local(address) => SocketAddrV6::new(v6, port, 0, scope).into(),
        _ => SocketAddr::new(address, port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn blob(host: u8, nets: &[&str]) -> Blob {
        let listening = nets
            .iter()
            .zip(1000..)
            .map(|(net, port)| Listening { net: net.parse().expect("a network"), port });
        Blob { host: HostId([host; 16]), listening: listening.collect() }
    }

    fn way(ours: &Blob, theirs: &Blob) -> Option<String> {
        ours.route(theirs, 5).map(|(from, to)| format!("{from} {to}"))
    }

    #[test]
    fn ways() {
        let ours = blob(1, &["10.0.0.1/24", "10.5.0.1/24", "fd00::1/64"]);
        let route = |nets: &[&str]| way(&ours, &blob(2, nets));
        assert_eq!(
            route(&["10.9.0.2/24", "10.5.0.2/24"]),
            Some("10.5.0.1:0 10.5.0.2:1001".into()),
            "same subnet first"
        );
        assert_eq!(route(&["10.9.0.2/24"]), Some("10.0.0.1:0 10.9.0.2:1000".into()));
        assert_eq!(route(&["fd00::2/64"]), Some("[fd00::1]:0 [fd00::2]:1000".into()));
        assert_eq!(route(&["127.0.0.1/8"]), None);
        let local = blob(1, &["127.0.0.1/8"]);
        assert_eq!(way(&local, &local), Some("127.0.0.1:0 127.0.0.1:1000".into()));
        assert_eq!(way(&local, &blob(2, &["127.0.0.1/8"])), None, "another host's loopback");
        let (a, b) = (blob(1, &["fe80::1/64"]), blob(2, &["fe80::2/64"]));
        assert_eq!(way(&a, &b), Some("[fe80::1%5]:0 [fe80::2%5]:1000".into()));
        assert_eq!(way(&ours, &b), None);
    }

    #[test]
    fn round_trip() {
        let blob = blob(1, &["10.0.0.1/24", "fd00::1/64"]);
        assert_eq!(Blob::decode(&blob.encode()), Some(blob.clone()));
        let bytes = blob.encode();
        for cut in 0..bytes.len() {
            assert_eq!(Blob::decode(&bytes[..cut]), None);
        }
    }

    proptest! {
        #[test]
        fn garbage_is_refused_or_reproduced(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Some(blob) = Blob::decode(&bytes) {
                prop_assert_eq!(blob.encode(), bytes);
            }
        }
    }
}
