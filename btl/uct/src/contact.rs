//! Where a rail is reached: the names of its interfaces, and the address blob around them. Pure.
//!
//! ```text
//!  contact: six times (len u8, bytes): device and interface that carry frames; the same for letters, both empty where
//!           the first interface can be connected to; the same for reaching memory, both empty where none is its own
//!  blob:    version u8 │ incarnation u64 │ frame u32 │ transport: len u8, text │ contact │ seal 32
//! ```
//!
//! The blob is sealed with the job's key: the library reads addresses as structs, so none is given to it that a process of
//! the job did not make.

use crate::wire::seal_of;
use ironweave_btl::secret::JobKey;
use ironweave_ffi_uct::Name;

const VERSION: u8 = 2;
const SEAL: usize = 32;

/// The names of a rail's interfaces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contact {
    /// Carries frames.
    pub main: Name,
    /// Carries greetings, where the first can only be connected endpoint to endpoint.
    pub letters: Option<Name>,
    /// Reaches the process's memory, where the first does not.
    pub reach: Option<Name>,
}

/// An absent name.
const NONE: &Name = &Name { device: Vec::new(), iface: Vec::new() };

impl Contact {
    fn parts(&self) -> [&[u8]; 6] {
        let [letters, reach] =
            [&self.letters, &self.reach].map(|name| name.as_ref().unwrap_or(NONE));
        let names = [&self.main, letters, reach];
        let mut parts = [&[][..]; 6];
        for (at, name) in names.into_iter().enumerate() {
            (parts[2 * at], parts[2 * at + 1]) = (&name.device, &name.iface);
        }
        parts
    }

    /// Whether every part can be encoded.
    pub fn fits(&self) -> bool {
        self.parts().iter().all(|part| part.len() < 256)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for part in self.parts() {
            out.push(part.len() as u8); // rails whose names do not fit are not opened
            out.extend_from_slice(&part[..part.len().min(255)]);
        }
        out
    }

    /// `None` when the bytes are no such thing.
    pub fn decode(bytes: &[u8]) -> Option<Contact> {
        let mut rest = bytes;
        let mut part = || {
            let (&len, after) = rest.split_first()?;
            let (part, after) = after.split_at_checked(len.into())?;
            rest = after;
            Some(part.to_vec())
        };
        let main = Name { device: part()?, iface: part()? };
        let letters = Name { device: part()?, iface: part()? };
        let reach = Name { device: part()?, iface: part()? };
        let [letters, reach] = [letters, reach].map(|name| (name != *NONE).then_some(name));
        rest.is_empty().then_some(Contact { main, letters, reach })
    }

    #[cfg(test)]
    pub fn example() -> Contact {
        Contact { main: Name { device: vec![1, 2], iface: vec![3] }, letters: None, reach: None }
    }
}

/// The address of a rail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blob {
    /// Tells this process from any that had the address before.
    pub incarnation: u64,
    /// Longest payload of one frame, in bytes: transports of one host must agree on it.
    pub frame: u32,
    /// The transport's name.
    pub transport: String,
    /// Where.
    pub contact: Contact,
}

impl Blob {
    pub fn encode(&self, key: &JobKey) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        out.extend_from_slice(&self.frame.to_le_bytes());
        let transport = &self.transport.as_bytes()[..self.transport.len().min(255)];
        out.push(transport.len() as u8);
        out.extend_from_slice(transport);
        out.extend_from_slice(&self.contact.encode());
        let seal = seal_of(key, None, &out);
        out.extend_from_slice(seal.as_bytes());
        out
    }

    /// `None` when the bytes are no such blob, or not sealed by the key.
    pub fn decode(bytes: &[u8], key: &JobKey) -> Option<Blob> {
        let (signed, seal) = bytes.split_at_checked(bytes.len().checked_sub(SEAL)?)?;
        let seal: [u8; SEAL] = seal.try_into().ok()?;
        if seal_of(key, None, signed) != seal {
            return None;
        }
        let (&version, rest) = signed.split_first()?;
        let (incarnation, rest) = rest.split_first_chunk()?;
        let (frame, rest) = rest.split_first_chunk()?;
        let (&len, rest) = rest.split_first()?;
        let (transport, rest) = rest.split_at_checked(len.into())?;
        let blob = Blob {
            incarnation: u64::from_le_bytes(*incarnation),
            frame: u32::from_le_bytes(*frame),
            transport: std::str::from_utf8(transport).ok()?.to_owned(),
            contact: Contact::decode(rest)?,
        };
        (version == VERSION).then_some(blob)
    }

    /// Whether an endpoint with the blob `self` can talk to one with the blob `other`.
    pub fn speaks_with(&self, other: &Blob) -> bool {
        self.transport == other.transport
            && self.frame == other.frame
            && self.contact.letters.is_some() == other.contact.letters.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::job_key;
    use proptest::prelude::*;

    fn key() -> JobKey {
        job_key(&[3; 32], "job")
    }

    proptest! {
        #[test]
        fn blobs_come_back(
            incarnation in any::<u64>(),
            frame in any::<u32>(),
            transport in "[a-z_]{0,9}",
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..60), 6),
            letters in any::<bool>(),
            reach in any::<bool>(),
        ) {
            let name = |at: usize| Name { device: parts[at].clone(), iface: parts[at + 1].clone() };
            let (letters, reach) = (letters.then(|| name(2)), reach.then(|| name(4)));
            let contact = Contact { main: name(0), letters, reach };
            prop_assert!(contact.fits());
            let blob = Blob { incarnation, frame, transport, contact };
            let bytes = blob.encode(&key());
            prop_assert_eq!(Blob::decode(&bytes, &key()), Some(blob));
            prop_assert_eq!(Blob::decode(&bytes, &job_key(&[3; 32], "another")), None);
            for cut in 0..bytes.len() {
                prop_assert_eq!(Blob::decode(&bytes[..cut], &key()), None);
            }
        }

        #[test]
        fn garbage_is_no_contact_or_comes_back(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(Blob::decode(&bytes, &key()), None);
            if let Some(contact) = Contact::decode(&bytes) {
                prop_assert_eq!(contact.encode(), bytes);
            }
        }
    }
}
