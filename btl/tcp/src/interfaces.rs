//! Which network interfaces there are, and which of them are used.

use crate::config::{OpenError, Selector, TcpConfig};
use ipnet::IpNet;
use nix::net::if_::InterfaceFlags;
use std::net::{IpAddr, Ipv6Addr};

/// Addresses of one rail at most: a listener each.
pub const ADDRESSES_MAX: usize = 4;

/// One interface that is up, with its usable addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    pub name: String,
    /// The kernel's number, the scope of link-local addresses.
    pub index: u32,
    pub loopback: bool,
    /// Address and prefix length.
    pub addresses: Vec<IpNet>,
}

/// All interfaces that are up and have an address.
pub fn list() -> Result<Vec<Interface>, OpenError> {
    let all = nix::ifaddrs::getifaddrs()
        .map_err(|errno| OpenError::os("getifaddrs", std::io::Error::from(errno)))?;
    let mut interfaces: Vec<Interface> = Vec::new();
    for entry in all {
        let up = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
        if !entry.flags.contains(up) {
            continue;
        }
        let Some((address, index)) = entry.address.as_ref().and_then(ip_of) else { continue };
        let prefix = entry.netmask.as_ref().and_then(ip_of).map_or(0, |(mask, _)| ones(mask));
        let Ok(net) = IpNet::new(address, prefix) else { continue };
        match interfaces.iter_mut().find(|known| known.name == entry.interface_name) {
            Some(known) => {
                known.addresses.push(net);
                known.index = known.index.max(index);
            }
            None => interfaces.push(Interface {
                name: entry.interface_name,
                index,
                loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
                addresses: vec![net],
            }),
        }
    }
    Ok(interfaces)
}

fn ip_of(address: &nix::sys::socket::SockaddrStorage) -> Option<(IpAddr, u32)> {
    if let Some(v4) = address.as_sockaddr_in() {
        return Some((v4.ip().into(), 0));
    }
    address.as_sockaddr_in6().map(|v6| (v6.ip().into(), v6.scope_id()))
}

fn ones(mask: IpAddr) -> u8 {
    let ones = match mask {
        IpAddr::V4(mask) => mask.to_bits().count_ones(),
        IpAddr::V6(mask) => mask.to_bits().count_ones(),
    };
    ones as u8 // at most 128
}

/// What `config` lets us use of `interfaces`: each with the addresses that may be used, best first.
pub fn select(interfaces: &[Interface], config: &TcpConfig) -> Result<Vec<Interface>, OpenError> {
    for selector in config.include.iter().chain(&config.exclude) {
        if let Selector::Name(name) = selector
            && !interfaces.iter().any(|known| known.name == *name)
        {
            let known = interfaces.iter().map(|known| known.name.as_str()).collect::<Vec<_>>();
            let (name, known) = (name.clone(), known.join(", "));
            return Err(OpenError::UnknownInterface { name, known });
        }
    }
    let mut chosen: Vec<Interface> = interfaces
        .iter()
        .filter_map(|interface| {
            let mut chosen = interface.clone();
            chosen.addresses.retain(|net| allowed(interface, net, config));
            chosen.addresses.sort_by_key(|net| rank(net.addr()));
            // Link-local is for interfaces that have nothing else.
            if chosen.addresses.iter().any(|net| !link_local(net.addr())) {
                chosen.addresses.retain(|net| !link_local(net.addr()));
            }
            chosen.addresses.truncate(ADDRESSES_MAX);
            (!chosen.addresses.is_empty()).then_some(chosen)
        })
        .collect();
    let only_if_nothing_else = config.include.is_empty() && !config.loopback;
    if only_if_nothing_else && chosen.iter().any(|interface| !interface.loopback) {
        chosen.retain(|interface| !interface.loopback);
    }
    if chosen.is_empty() {
        let known = interfaces
            .iter()
            .flat_map(|known| known.addresses.iter().map(|net| format!("{} {net}", known.name)))
            .collect::<Vec<_>>();
        return Err(OpenError::NoInterface { known: known.join(", ") });
    }
    Ok(chosen)
}

/// The addresses that rails opened with `config` are reached by, best first: for other sockets of the same process.
/// Link-local ones, which mean something on one link only, are left out.
///
/// # Errors
/// As [`Tcp::open_all`](crate::Tcp::open_all): an unknown interface, or none that may be used.
pub fn usable_addresses(config: &TcpConfig) -> Result<Vec<IpAddr>, OpenError> {
    let chosen = select(&list()?, config)?;
    let all = chosen.iter().flat_map(|interface| &interface.addresses).map(IpNet::addr);
    Ok(all.filter(|address| !link_local(*address)).collect())
}

fn allowed(interface: &Interface, net: &IpNet, config: &TcpConfig) -> bool {
    let matches = |selector: &Selector| match selector {
        Selector::Name(name) => *name == interface.name,
        Selector::Net(wanted) => wanted.contains(&net.addr()),
    };
    (config.include.is_empty() || config.include.iter().any(matches))
        && !config.exclude.iter().any(matches)
}

/// IPv4 first: where both work it is the one that always did.
fn rank(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(v4) if v4.is_link_local() => 2,
        IpAddr::V4(_) => 0,
        IpAddr::V6(v6) if is_v6_link_local(v6) => 3,
        IpAddr::V6(_) => 1,
    }
}

fn is_v6_link_local(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

/// Whether `address` means something on one link only.
pub fn link_local(address: IpAddr) -> bool {
    rank(address) >= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Vec<Interface> {
        let interface = |name: &str, index, nets: &[&str]| Interface {
            name: name.into(),
            index,
            loopback: name == "lo",
            addresses: nets.iter().map(|net| net.parse().expect("a network")).collect(),
        };
        vec![
            interface("lo", 1, &["127.0.0.1/8", "::1/128"]),
            interface("eth0", 2, &["fe80::1/64", "fd00::2/64", "10.0.0.2/24"]),
            interface("ib0", 3, &["10.9.0.2/16"]),
            interface("eth1", 4, &["fe80::2/64"]),
        ]
    }

    fn chosen(include: &[&str], exclude: &[&str], loopback: bool) -> Result<String, String> {
        let parse = |list: &[&str]| list.iter().map(|s| s.parse().expect("a selector")).collect();
        let config = TcpConfig {
            include: parse(include),
            exclude: parse(exclude),
            loopback,
            ..TcpConfig::default()
        };
        select(&machine(), &config).map_err(|error| error.to_string()).map(|chosen| {
            let show = |i: &Interface| {
                let addresses: Vec<_> = i.addresses.iter().map(|n| n.addr().to_string()).collect();
                format!("{}={}", i.name, addresses.join("+"))
            };
            chosen.iter().map(show).collect::<Vec<_>>().join(" ")
        })
    }

    #[test]
    fn include_and_exclude() {
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(chosen(&[], &[], false), ok("eth0=10.0.0.2+fd00::2 ib0=10.9.0.2 eth1=fe80::2"));
        assert_eq!(chosen(&["lo"], &[], false), ok("lo=127.0.0.1+::1"));
        assert_eq!(chosen(&["10.0.0.0/8"], &[], false), ok("eth0=10.0.0.2 ib0=10.9.0.2"));
        assert_eq!(chosen(&["eth0"], &["10.0.0.0/8"], false), ok("eth0=fd00::2"));
        assert_eq!(chosen(&[], &["eth0", "eth1", "ib0"], false), ok("lo=127.0.0.1+::1"));
        assert_eq!(chosen(&[], &["eth0", "eth1"], true), ok("lo=127.0.0.1+::1 ib0=10.9.0.2"));
        assert_eq!(
            chosen(&["eth7"], &[], false),
            Err("unknown interface `eth7` (known: lo, eth0, ib0, eth1)".into())
        );
        let none = chosen(&["172.16.0.0/12"], &[], false).unwrap_err();
        assert!(
            none.starts_with("no usable network interface") && none.contains("ib0 10.9.0.2/16")
        );
    }

    #[test]
    fn this_machine_has_loopback() {
        let all = list().expect("interfaces");
        let lo = all.iter().find(|interface| interface.loopback).expect("loopback");
        assert!(lo.addresses.iter().any(|net| net.addr().is_loopback()));
    }
}
