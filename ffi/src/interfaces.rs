//! The network interfaces of this host, from `getifaddrs`. Asks the system each time; keeps nothing.
#![allow(unsafe_code)] // getifaddrs hands out a C list.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One address of an interface, or an interface without any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name, `eth0`.
    pub name: String,
    /// Whether it is up and has a carrier.
    pub up: bool,
    /// Whether it is the loopback.
    pub loopback: bool,
    /// The address; `None` for an interface that has none.
    pub address: Option<IpAddr>,
}

/// Every interface with each of its addresses, in the system's order.
///
/// # Errors
/// The system's.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `list` is a valid place for the head of the list.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found: Vec<Interface> = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: a non-null entry of a list that has not been freed yet.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        // SAFETY: ifa_name is a terminated string of that list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        let flags = entry.ifa_flags as libc::c_int;
        found.push(Interface {
            name,
            up: flags & libc::IFF_UP != 0 && flags & libc::IFF_RUNNING != 0,
            loopback: flags & libc::IFF_LOOPBACK != 0,
            // SAFETY: ifa_addr is null or a socket address of the list, as `ip_of` asks.
            address: unsafe { ip_of(entry.ifa_addr) },
        });
    }
    // SAFETY: the head given out above, freed once, and nothing above is borrowed from it.
    unsafe { libc::freeifaddrs(list) };
    // The list has an entry per address family: drop the bare ones of interfaces with addresses.
    let with_address: Vec<String> =
        found.iter().filter(|i| i.address.is_some()).map(|i| i.name.clone()).collect();
    found.retain(|i| i.address.is_some() || !with_address.contains(&i.name));
    Ok(found)
}

/// # Safety
/// `address` is null or points to a socket address as long as its family says.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null; every socket address begins with its family.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says it is a sockaddr_in; it may be unaligned for one.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says it is a sockaddr_in6; it may be unaligned for one.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_there_once_per_address() {
        let all = interfaces().unwrap();
        let loopbacks: Vec<_> = all.iter().filter(|i| i.loopback).collect();
        assert!(!loopbacks.is_empty());
        assert!(loopbacks.iter().filter_map(|i| i.address).all(|address| address.is_loopback()));
    }
}
