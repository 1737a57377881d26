//! The address blob of a rail: what peers must know to reach it, and to see that they cannot. Pure.
//!
//! ```text
//!  version u8 │ format u32 │ protocol u32, u32 │ incarnation u64 │ pid u32 │ provider: len u8, text │ name: len u16, bytes
//! ```

use crate::wire::NAME_MAX;

const VERSION: u8 = 1;

/// Where one rail is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blob {
    /// The number of the address format.
    pub format: u32,
    /// Wire protocol and its version.
    pub protocol: (u32, u32),
    /// Tells this process from any that had the address before.
    pub incarnation: u64,
    /// Its process, for providers of one host.
    pub pid: u32,
    /// The provider's name.
    pub provider: String,
    /// The endpoint's address, in the provider's format.
    pub name: Vec<u8>,
}

impl Blob {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        for number in [self.format, self.protocol.0, self.protocol.1] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        out.extend_from_slice(&self.pid.to_le_bytes());
        let provider = &self.provider.as_bytes()[..self.provider.len().min(255)];
        out.push(provider.len() as u8);
        out.extend_from_slice(provider);
        let name = &self.name[..self.name.len().min(NAME_MAX)];
        out.extend_from_slice(&(name.len() as u16).to_le_bytes());
        out.extend_from_slice(name);
        out
    }

    /// `None` when the bytes are no such blob.
    pub fn decode(bytes: &[u8]) -> Option<Blob> {
        let mut rest = bytes;
        let [version] = take(&mut rest)?;
        let format = u32::from_le_bytes(take(&mut rest)?);
        let protocol = (u32::from_le_bytes(take(&mut rest)?), u32::from_le_bytes(take(&mut rest)?));
        let incarnation = u64::from_le_bytes(take(&mut rest)?);
        let pid = u32::from_le_bytes(take(&mut rest)?);
        let [len] = take(&mut rest)?;
        let (provider, after) = rest.split_at_checked(usize::from(len))?;
        rest = after;
        let provider = std::str::from_utf8(provider).ok()?.to_owned();
        let len = u16::from_le_bytes(take(&mut rest)?);
        let right = version == VERSION
            && usize::from(len) == rest.len()
            && (1..=NAME_MAX).contains(&rest.len());
        let name = rest.to_vec();
        right.then_some(Blob { format, protocol, incarnation, pid, provider, name })
    }

    /// Whether an endpoint with the blob `self` can talk to one with the blob `other`.
    pub fn speaks_with(&self, other: &Blob) -> bool {
        (&self.provider, self.format, self.protocol)
            == (&other.provider, other.format, other.protocol)
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (array, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*array)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blobs_come_back(
            numbers in any::<(u32, u32, u32, u64, u32)>(),
            provider in "[a-z;_]{0,40}",
            name in proptest::collection::vec(any::<u8>(), 1..300),
        ) {
            let (format, p, v, incarnation, pid) = numbers;
            let blob = Blob { format, protocol: (p, v), incarnation, pid, provider, name };
            let bytes = blob.encode();
            prop_assert_eq!(Blob::decode(&bytes), Some(blob));
            for cut in 0..bytes.len() {
                prop_assert_eq!(Blob::decode(&bytes[..cut]), None);
            }
        }

        #[test]
        fn garbage_is_refused_or_reproduced(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Some(blob) = Blob::decode(&bytes) {
                prop_assert_eq!(blob.encode(), bytes);
            }
        }
    }
}
