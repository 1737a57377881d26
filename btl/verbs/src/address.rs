//! The address of a rail, and which entry of a port's GID table it is.
//!
//! ```text
//!  0         1                29
//!  ┌─────────┬────────────────┐
//!  │ version │ contact        │   see `wire.rs`
//!  └─────────┴────────────────┘
//! ```

use crate::wire::Contact;
use ironweave_ffi_verbs::{Device, Gid};
use std::path::Path;
use zerocopy::{FromBytes, IntoBytes};

const VERSION: u8 = 1;

pub fn encode(contact: &Contact) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(contact.as_bytes());
    bytes
}

/// `None` when the bytes are not an address.
pub fn decode(bytes: &[u8]) -> Option<Contact> {
    let (&[version], rest) = bytes.split_first_chunk()?;
    let contact = Contact::read_from_bytes(rest).ok()?;
    let sound =
        version == VERSION && (1..=3).contains(&contact.link) && (1..=5).contains(&contact.mtu);
    sound.then_some(contact)
}

/// Whether packets can go from one to the other: the same kind of link and, over Ethernet, of address.
pub fn reaches(ours: &Contact, theirs: &Contact) -> bool {
    ours.link == theirs.link && (ours.link == 1 || family(&ours.gid) == family(&theirs.gid))
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

/// The entry of the GID table to use: RoCE v2, routable, IPv4 before IPv6; the first on InfiniBand.
pub fn choose_gid(device: &Device, port: u8, count: u32, ethernet: bool) -> Option<(u8, Gid)> {
    let entry = |index: u32| device.gid(port, index).ok().map(|gid| (index, gid));
    if !ethernet {
        return entry(0).map(|(index, gid)| (index as u8, gid));
    }
    let types = Path::new("/sys/class/infiniband")
        .join(device.name())
        .join(format!("ports/{port}/gid_attrs/types"));
    let version_2 = |index: &u32| {
        // Devices of kernels that do not tell have one type only.
        std::fs::read_to_string(types.join(index.to_string()))
            .map_or(!types.exists(), |text| text.contains("v2"))
    };
    (0..count.min(256))
        .filter_map(entry)
        .filter(|(index, gid)| family(gid) != Family::None && version_2(index))
        .max_by_key(|(index, gid)| (family(gid), std::cmp::Reverse(*index)))
        .map(|(index, gid)| (index as u8, gid))
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

    #[test]
    fn round_trip_and_cuts() {
        let contact = contact(2, v4(1));
        let bytes = encode(&contact);
        assert_eq!(decode(&bytes), Some(contact));
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut]), None);
        }
    }

    #[test]
    fn only_like_reaches_like() {
        let mut v6 = [0; 16];
        (v6[0], v6[15]) = (0xfd, 1);
        assert!(reaches(&contact(2, v4(1)), &contact(2, v4(2))));
        assert!(!reaches(&contact(2, v4(1)), &contact(2, v6)));
        assert!(!reaches(&contact(2, v4(1)), &contact(1, v4(2))));
        assert!(reaches(&contact(1, v6), &contact(1, [0; 16])));
        assert!(reaches(&contact(3, v4(1)), &contact(3, v4(2))));
        assert!(!reaches(&contact(3, v4(1)), &contact(2, v4(2))));
    }

    proptest! {
        #[test]
        fn garbage_is_refused_or_reproduced(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(contact) = decode(&bytes) {
                prop_assert_eq!(encode(&contact), bytes);
            }
        }
    }
}
