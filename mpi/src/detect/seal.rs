//! Datagrams between detectors: sealed with the job's secret, opened only if they are from a process of this job, for this
//! one, and new (law 9). Pure.
//!
//! ```text
//!   0  magic  "IWH1"    4  from u32    8  to u32    12  number u64    20  message …    end − 32  BLAKE3 keyed hash of all before
//! ```
//! The key is derived from the job's secret and name. Numbers grow with every datagram of a sender; what is not newer
//! than the last one from it is a copy, a replay, or was overtaken: it is dropped, and whoever needs it sends again.

use ironweave_ft::detector::{MESSAGE_MAX, Message};
use std::collections::HashMap;

const MAGIC: [u8; 4] = *b"IWH1";
const HEADER: usize = 20;
const SEAL: usize = 32;
/// The longest datagram.
pub const DATAGRAM_MAX: usize = HEADER + MESSAGE_MAX + SEAL;

/// One process's end of all its sealed exchanges.
#[derive(Debug)]
pub struct Sealer {
    key: [u8; 32],
    me: u32,
    size: u32,
    sent: u64,
    /// The last number from each process heard.
    seen: HashMap<u32, u64>,
}

impl Sealer {
    pub fn new(secret: &[u8; 32], job: &str, me: u32, size: u32) -> Sealer {
        let mut material = secret.to_vec();
        material.extend(job.as_bytes());
        let key = blake3::derive_key("ironweave 2026-11 detector datagrams", &material);
        Sealer { key, me, size, sent: 0, seen: HashMap::new() }
    }

    /// The datagram that carries `message` to `to`.
    pub fn seal(&mut self, to: u32, message: &Message) -> Vec<u8> {
        self.sent += 1;
        let mut bytes = Vec::with_capacity(128);
        bytes.extend(MAGIC);
        bytes.extend(self.me.to_le_bytes());
        bytes.extend(to.to_le_bytes());
        bytes.extend(self.sent.to_le_bytes());
        message.encode(&mut bytes);
        let seal = blake3::keyed_hash(&self.key, &bytes);
        bytes.extend(seal.as_bytes());
        bytes
    }

    /// Who sent a datagram, and what it says; `None` for everything that is not to be believed.
    pub fn open(&mut self, datagram: &[u8]) -> Option<(u32, Message)> {
        let (bytes, seal) = datagram.split_last_chunk::<SEAL>()?;
        let (header, body) = bytes.split_first_chunk::<HEADER>()?;
        let word = |at: usize| header[at..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let (from, to) = (word(4)?, word(8)?);
        let number = u64::from_le_bytes(*header.last_chunk()?);
        if header[..4] != MAGIC || to != self.me || from == self.me || from >= self.size {
            return None;
        }
        // `blake3::Hash` compares in constant time.
        if blake3::keyed_hash(&self.key, bytes) != *seal {
            return None;
        }
        let seen = self.seen.entry(from).or_insert(0);
        if number <= *seen {
            return None;
        }
        *seen = number;
        Some((from, Message::decode(body, self.size)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Sealer, Sealer) {
        (Sealer::new(&[1; 32], "job", 0, 3), Sealer::new(&[1; 32], "job", 1, 3))
    }

    #[test]
    fn a_datagram_is_believed_once() {
        let (mut from, mut to) = pair();
        let first = from.seal(1, &Message::Probe { token: 7 });
        let second = from.seal(1, &Message::Observe);
        assert_eq!(to.open(&second), Some((0, Message::Observe)));
        assert_eq!(to.open(&second), None, "replayed");
        assert_eq!(to.open(&first), None, "overtaken");
    }

    #[test]
    fn no_bit_may_be_changed_and_no_byte_be_cut() {
        let (mut from, mut to) = pair();
        let datagram = from.seal(1, &Message::Fence { living: 2, lowest: 1 });
        for bit in 0..datagram.len() * 8 {
            let mut changed = datagram.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(to.open(&changed), None, "bit {bit}");
        }
        (0..datagram.len()).for_each(|cut| assert_eq!(to.open(&datagram[..cut]), None));
        assert!(to.open(&datagram).is_some());
    }

    #[test]
    fn other_jobs_other_receivers_and_own_echoes_are_dropped() {
        let (mut from, mut to) = pair();
        let beat = Message::Observe;
        let elsewhere = from.seal(2, &beat);
        assert_eq!(to.open(&elsewhere), None);
        assert_eq!(to.open(&Sealer::new(&[2; 32], "job", 0, 3).seal(1, &beat)), None);
        assert_eq!(to.open(&Sealer::new(&[1; 32], "other", 0, 3).seal(1, &beat)), None);
        let echo = to.seal(1, &beat);
        assert_eq!(to.open(&echo), None);
        assert_eq!(
            to.open(&Sealer::new(&[1; 32], "job", 3, 4).seal(1, &beat)),
            None,
            "no such process"
        );
    }

    #[test]
    fn the_longest_message_fits() {
        let (mut from, mut to) = pair();
        let known = ironweave_ft::detector::Digest::default();
        let failed = vec![2; ironweave_ft::detector::NOTICE_MAX];
        let longest = Message::Notice { token: 1, sync: true, known, failed };
        let datagram = from.seal(1, &longest);
        assert!(datagram.len() <= DATAGRAM_MAX && DATAGRAM_MAX <= 1280 - 48, "{}", datagram.len());
        assert_eq!(to.open(&datagram), Some((0, longest)));
    }
}
