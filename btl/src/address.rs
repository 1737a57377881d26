//! Address blobs: where a rail is reached, published once and exchanged lazily.

/// Where one rail of one process is reached. The bytes mean something only to the transport that made them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Address {
    /// The component's name (`self`, `shm`, `tcp`, …).
    pub component: String,
    /// Which of the process's rails of this component: link and interface number.
    pub rail: u16,
    /// The transport's own bytes.
    pub bytes: Vec<u8>,
}

/// A published address list could not be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("malformed address list at byte {at}: {what}")]
pub struct AddressError {
    /// Where.
    pub at: usize,
    /// What is wrong.
    pub what: &'static str,
}

/// Longest address list that is read, in bytes: one comes from a peer.
const LIST_MAX: usize = 64 * 1024;

/// Packs the addresses of a process's rails into one blob to publish:
/// for each `u8` name length, name, `u16` rail, `u16` length, bytes; integers little-endian.
///
/// # Panics
/// When a component name is longer than 255 bytes or an address longer than 65,535: transports make both.
#[must_use]
pub fn encode_addresses(addresses: &[Address]) -> Vec<u8> {
    let mut out = Vec::new();
    for address in addresses {
        out.push(u8::try_from(address.component.len()).expect("component names are short"));
        out.extend_from_slice(address.component.as_bytes());
        out.extend_from_slice(&address.rail.to_le_bytes());
        let len = u16::try_from(address.bytes.len()).expect("addresses are short");
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&address.bytes);
    }
    out
}

/// Reads what [`encode_addresses`] wrote.
///
/// # Errors
/// When the bytes are not such a list.
pub fn decode_addresses(blob: &[u8]) -> Result<Vec<Address>, AddressError> {
    let err = |rest: &[u8], what| AddressError { at: blob.len() - rest.len(), what };
    if blob.len() > LIST_MAX {
        return Err(AddressError { at: 0, what: "too long" });
    }
    let mut rest = blob;
    let mut addresses = Vec::new();
    while !rest.is_empty() {
        let name = take_counted::<1>(&mut rest).ok_or(err(rest, "truncated name"))?;
        let component = std::str::from_utf8(name).map_err(|_| err(rest, "name is not UTF-8"))?;
        let (rail, after) = rest.split_first_chunk().ok_or(err(rest, "truncated rail number"))?;
        rest = after;
        let bytes = take_counted::<2>(&mut rest).ok_or(err(rest, "truncated address"))?;
        addresses.push(Address {
            component: component.to_owned(),
            rail: u16::from_le_bytes(*rail),
            bytes: bytes.to_vec(),
        });
    }
    Ok(addresses)
}

/// Takes a little-endian length of `N` bytes and that many bytes after it.
fn take_counted<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (prefix, after) = rest.split_first_chunk::<N>()?;
    let len = prefix.iter().rev().fold(0, |len, &byte| len << 8 | usize::from(byte));
    let (bytes, after) = after.split_at_checked(len)?;
    *rest = after;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(list in proptest::collection::vec(("[a-z]{1,8}", any::<u16>(), proptest::collection::vec(any::<u8>(), 0..300)), 0..6)) {
            let list: Vec<_> =
                list.into_iter().map(|(component, rail, bytes)| Address { component, rail, bytes }).collect();
            prop_assert_eq!(decode_addresses(&encode_addresses(&list)), Ok(list));
        }

        #[test]
        fn garbage_is_refused_or_reproduced(blob in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(list) = decode_addresses(&blob) {
                prop_assert_eq!(encode_addresses(&list), blob);
            }
        }
    }

    #[test]
    fn truncation_names_the_place() {
        let whole =
            encode_addresses(&[Address { component: "tcp".into(), rail: 1, bytes: vec![7; 9] }]);
        for cut in 1..whole.len() {
            decode_addresses(&whole[..cut]).unwrap_err();
        }
    }
}
