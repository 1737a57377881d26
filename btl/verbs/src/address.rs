//! The address of a rail, which entries of a port's GID table it has, and by which of them two ports meet.
//!
//! ```text
//!  0         1                29                 45
//!  ┌─────────┬────────────────┬──────────────────┐
//!  │ version │ contact        │ GID or zeros     │   contact: see `wire.rs`; the other GID is of another family
//!  └─────────┴────────────────┴──────────────────┘
//! ```
//!
//! Over Ethernet a GID is an IP address. A port that has one of each family is reached by either: both ends of a
//! connection must use the same, so the caller chooses, and the first greeting says which.

use crate::wire::Contact;
use ironweave_ffi_verbs::{Device, Gid};
use std::path::Path;
use zerocopy::{FromBytes, IntoBytes};

const VERSION: u8 = 2;

/// An entry of our port's GID table.
pub type Entry = (u8, Gid);

/// The address of a port with these GIDs, of which the first is in `contact`.
pub fn encode(contact: &Contact, gids: &[Entry]) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(contact.as_bytes());
    bytes.extend_from_slice(&gids.get(1).map_or([0; 16], |(_, gid)| *gid));
    bytes
}

/// A port and its other GID, which may be all zeros; `None` when the bytes are not an address.
pub fn decode(bytes: &[u8]) -> Option<(Contact, Gid)> {
    let (&[version], rest) = bytes.split_first_chunk()?;
    let (rest, other) = rest.split_last_chunk::<16>()?;
    let contact = Contact::read_from_bytes(rest).ok()?;
    let sound =
        version == VERSION && (1..=3).contains(&contact.link) && (1..=5).contains(&contact.mtu);
    sound.then_some((contact, *other))
}

/// The contacts by which packets can go from `ours` to `theirs`, best first: the same kind of link and, over Ethernet, of
/// address.
pub fn ways(link: u8, ours: &[Entry], (contact, other): &(Contact, Gid)) -> Vec<Contact> {
    if link != contact.link {
        return Vec::new();
    }
    if link == 1 {
        return vec![*contact];
    }
    let theirs = [contact.gid, *other];
    let same = |(_, gid): &Entry| {
        let family = family(gid);
        let their = theirs.iter().find(|gid| family == self::family(gid) && family != Family::None);
        their.map(|&gid| Contact { gid, ..*contact })
    };
    ours.iter().filter_map(same).collect()
}

/// Our entry for packets to `gid`: of the same family; the first if there is none.
pub fn entry_for(ours: &[Entry], gid: &Gid) -> Entry {
    let same = ours.iter().find(|(_, ours)| family(ours) == family(gid));
    *same.or(ours.first()).expect("a rail has at least one GID")
}

/// Which Internet protocol connections over Ethernet may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ip {
    /// Whichever both ends have and the kernel finds a way for: IPv4 first.
    #[default]
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// What a GID is, best last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Family {
    None,
    LinkLocal,
    V6,
    V4,
}

fn family(gid: &Gid) -> Family {
    match gid {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ..] => Family::V4,
        [0xfe, 0x80, ..] => Family::LinkLocal,
        gid if gid.iter().all(|&byte| byte == 0) => Family::None,
        _ => Family::V6,
    }
}

/// The entries of the GID table to use, best first: RoCE v2, one of each routable family, IPv4 before IPv6, a link-local
/// one if there is nothing else; the first on InfiniBand.
pub fn choose_gids(device: &Device, port: u8, count: u32, ethernet: bool, ip: Ip) -> Vec<Entry> {
    let entry = |index: u32| device.gid(port, index).ok().map(|gid| (index as u8, gid));
    if !ethernet {
        return entry(0).into_iter().collect();
    }
    let types = Path::new("/sys/class/infiniband")
        .join(device.name())
        .join(format!("ports/{port}/gid_attrs/types"));
    let version_2 = |index: u8| {
        // Devices of kernels that do not tell have one type only.
        std::fs::read_to_string(types.join(index.to_string()))
            .map_or(!types.exists(), |text| text.contains("v2"))
    };
    let table = (0..count.min(256)).filter_map(entry).filter(|(index, _)| version_2(*index));
    best(table.collect(), ip)
}

/// One of each family that is allowed, best first, the first of each that the table has.
fn best(mut table: Vec<Entry>, ip: Ip) -> Vec<Entry> {
    table.retain(|(_, gid)| match family(gid) {
        Family::None => false,
        Family::V4 => ip != Ip::V6,
        Family::V6 | Family::LinkLocal => ip != Ip::V4,
    });
    table.sort_by_key(|(index, gid)| (std::cmp::Reverse(family(gid)), *index));
    table.dedup_by_key(|(_, gid)| family(gid));
    if table.len() > 1 {
        table.retain(|(_, gid)| family(gid) != Family::LinkLocal);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::FromZeros;

    fn contact(link: u8, gid: Gid) -> Contact {
        Contact { gid, link, mtu: 3, number: 5.into(), ..Contact::new_zeroed() }
    }

    fn v4(last: u8) -> Gid {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last]
    }

    fn v6(first: u8, last: u8) -> Gid {
        let mut gid = [0; 16];
        (gid[0], gid[1], gid[15]) = (first, 0x80, last);
        gid
    }

    #[test]
    fn round_trip_and_cuts() {
        let contact = contact(2, v4(1));
        for gids in [&[(1, v4(1))][..], &[(1, v4(1)), (2, v6(0xfd, 1))]] {
            let bytes = encode(&contact, gids);
            let other = gids.get(1).map_or([0; 16], |(_, gid)| *gid);
            assert_eq!(decode(&bytes), Some((contact, other)));
            for cut in 0..bytes.len() {
                assert_eq!(decode(&bytes[..cut]), None);
            }
        }
    }

    #[test]
    fn only_like_reaches_like() {
        let (a4, b4, a6, b6) = (v4(1), v4(2), v6(0xfd, 1), v6(0xfd, 2));
        let none = [0; 16];
        let gids = |ours: &[Gid], link, theirs: [Gid; 2]| -> Vec<Gid> {
            let ours: Vec<Entry> = ours.iter().map(|&gid| (0, gid)).collect();
            let theirs = (contact(2, theirs[0]), theirs[1]);
            ways(link, &ours, &theirs).iter().map(|way| way.gid).collect()
        };
        assert_eq!(gids(&[a4], 2, [b4, none]), [b4]);
        assert_eq!(gids(&[a4], 2, [b6, none]), [none; 0]);
        assert_eq!(gids(&[a4, a6], 2, [b6, none]), [b6]);
        assert_eq!(gids(&[a6], 2, [b4, b6]), [b6]);
        assert_eq!(gids(&[a4, a6], 2, [b6, b4]), [b4, b6], "in our own order");
        assert_eq!(gids(&[a4], 3, [b4, none]), [none; 0], "another kind of link");
        let infiniband = contact(1, a6);
        assert_eq!(ways(1, &[(0, none)], &(infiniband, none)), [infiniband]);
    }

    #[test]
    fn one_entry_of_each_family_is_chosen() {
        let (local, global) = (v6(0xfe, 1), v6(0xfd, 1));
        let table = vec![(0, local), (1, v4(1)), (2, v4(2)), (3, [0; 16]), (4, global)];
        assert_eq!(best(table.clone(), Ip::Any), [(1, v4(1)), (4, global)]);
        assert_eq!(best(table.clone(), Ip::V4), [(1, v4(1))]);
        assert_eq!(best(table, Ip::V6), [(4, global)]);
        assert_eq!(best(vec![(0, local)], Ip::Any), [(0, local)]);
        assert_eq!(best(vec![(0, local)], Ip::V4), []);
        let ours = [(1, v4(1)), (4, global)];
        assert_eq!(entry_for(&ours, &v6(0xfd, 9)).0, 4);
        assert_eq!(entry_for(&ours, &v4(9)).0, 1);
    }

    proptest! {
        #[test]
        fn garbage_is_refused_or_reproduced(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let Some((contact, other)) = decode(&bytes) {
                prop_assert_eq!(encode(&contact, &[(0, contact.gid), (0, other)]), bytes);
            }
        }
    }
}
