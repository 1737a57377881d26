//! What peers may reach of this process's memory, and how they are told: keys. Pure but for the registrations it keeps.
//!
//! ```text
//!  key: base u64 │ length u64 │ what opens it, at most 16 bytes: the device's remote key, or
//!                               where the word of the registration is u64 │ what it holds u64
//! ```
//!
//! A device refuses who has no key. The kernel (`process_vm_readv`, UCX's `cma`) refuses nobody of the same user: so each
//! registration has a word in this process's memory that holds a number of its own until the registration ends, and who
//! has read the memory reads the word after it. What was read counts only when the number is still there; it is random, so
//! nor does another process of the same id have it. For writing there can be no such thing: what came late is written, so
//! nothing is put by way of the kernel (law 2). An address out of a key goes to the device or the kernel and is never
//! followed here (law 9).

use ironweave_btl::RemoteKey;
use ironweave_ffi_uct::{IfaceId, Memory};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Registrations at a time, where each has a word.
const WORDS: usize = 1024;
/// Longest part of a key that opens it, in bytes.
pub(crate) const OPENER_MAX: usize = RemoteKey::MAX - 16;

/// How memory of other processes is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// Not at all.
    Never,
    /// By the device that carries the frames, which checks keys.
    Device,
    /// By the kernel's copies, over this interface.
    Kernel(IfaceId),
}

/// What a peer is told of registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub base: u64,
    pub len: u64,
    opener: [u8; OPENER_MAX],
    opener_len: usize,
}

impl Key {
    /// `None` when what opens it is too long.
    pub fn new(base: u64, len: u64, opener: &[u8]) -> Option<Key> {
        let mut key = Key { base, len, opener: [0; OPENER_MAX], opener_len: opener.len() };
        key.opener.get_mut(..opener.len())?.copy_from_slice(opener);
        Some(key)
    }

    pub fn opener(&self) -> &[u8] {
        &self.opener[..self.opener_len]
    }

    pub fn encode(&self) -> RemoteKey {
        let mut bytes = [0; RemoteKey::MAX];
        bytes[..8].copy_from_slice(&self.base.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_le_bytes());
        bytes[16..16 + self.opener_len].copy_from_slice(self.opener());
        RemoteKey::new(&bytes[..16 + self.opener_len]).expect("not longer than a key")
    }

    /// `None` when the bytes are none of ours.
    pub fn decode(key: &RemoteKey) -> Option<Key> {
        let (base, rest) = key.as_bytes().split_first_chunk()?;
        let (len, opener) = rest.split_first_chunk()?;
        Key::new(u64::from_le_bytes(*base), u64::from_le_bytes(*len), opener)
    }

    /// The address of `len` bytes at `offset`, when they are inside.
    pub fn address(&self, offset: u64, len: usize) -> Option<u64> {
        let end = offset.checked_add(len as u64)?;
        self.base.checked_add(self.len)?;
        (end <= self.len).then(|| self.base + offset)
    }

    /// Where the word of the registration is, and what it holds.
    pub fn word(&self) -> Option<(u64, u64)> {
        let (at, rest) = self.opener().split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        rest.is_empty().then(|| (u64::from_le_bytes(*at), u64::from_le_bytes(*number)))
    }
}

/// What peers may reach.
pub(crate) struct Lent {
    /// Made with the first registration that needs one.
    words: Box<[AtomicU64]>,
    free: Vec<usize>,
    number: u64,
    memories: HashMap<RemoteKey, Memory>,
}

impl Lent {
    /// Nothing yet. `random`: what nobody else has.
    pub fn new(random: u64) -> Lent {
        Lent { words: Box::default(), free: Vec::new(), number: random, memories: HashMap::new() }
    }

    /// Opens memory by a word; `None` when all words are taken.
    pub fn open_word(&mut self, base: u64, len: usize) -> Option<RemoteKey> {
        if self.words.is_empty() {
            self.words = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
            self.free = (0..WORDS).rev().collect();
        }
        let index = self.free.pop()?;
        self.number = self.number.wrapping_add(1).max(1); // 0 is what a closed one holds
        self.words[index].store(self.number, Ordering::SeqCst);
        let at = (&raw const self.words[index]).addr() as u64;
        let opener = [at.to_le_bytes(), self.number.to_le_bytes()].concat();
        Key::new(base, len as u64, &opener).map(|key| key.encode())
    }

    /// Keeps what the device opened under `key`.
    pub fn keep(&mut self, key: RemoteKey, memory: Memory) {
        self.memories.insert(key, memory);
    }

    /// Closes what that key opened: a word here; a device's memory is for the caller to deregister.
    pub fn close(&mut self, key: &RemoteKey) -> Option<Memory> {
        if let Some(memory) = self.memories.remove(key) {
            return Some(memory);
        }
        let (at, number) = Key::decode(key)?.word()?;
        let first = self.words.as_ptr().addr() as u64;
        let index = usize::try_from(at.checked_sub(first)?).ok()? / size_of::<AtomicU64>();
        let word = self.words.get(index)?;
        if (&raw const *word).addr() as u64 == at
            && number != 0
            && word.load(Ordering::SeqCst) == number
        {
            word.store(0, Ordering::SeqCst);
            self.free.push(index);
        }
        None
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.memories.len() + self.words.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_word_holds_its_number_until_it_is_closed_and_no_other_key_closes_it() {
        let mut lent = Lent::new(41);
        let first = lent.open_word(1000, 50).unwrap();
        let second = lent.open_word(2000, 60).unwrap();
        let key = Key::decode(&first).unwrap();
        let (at, number) = key.word().unwrap();
        assert_eq!((key.base, key.len, number, lent.len()), (1000, 50, 42, 2));
        let held = |lent: &Lent| {
            let word = lent.words.iter().find(|word| (&raw const **word).addr() as u64 == at);
            word.unwrap().load(Ordering::SeqCst)
        };
        assert_eq!(held(&lent), 42);
        let opener = |at: u64, number: u64| [at.to_le_bytes(), number.to_le_bytes()].concat();
        for (at, number) in [(at, 43), (at + 1, 42), (at - 8, 42), (0, 0), (u64::MAX, 42)] {
            let wrong = Key::new(0, 0, &opener(at, number)).unwrap().encode();
            assert!(lent.close(&wrong).is_none());
        }
        assert_eq!((held(&lent), lent.len()), (42, 2));
        assert!(lent.close(&first).is_none());
        assert_eq!((held(&lent), lent.len()), (0, 1));
        lent.close(&first);
        lent.close(&second);
        assert_eq!(lent.len(), 0, "closed twice is closed once");
        let again = lent.open_word(1000, 50).unwrap();
        assert_ne!(again, first, "a number is never used again");
    }

    #[test]
    fn words_run_out_and_come_back() {
        let mut lent = Lent::new(u64::MAX - 5);
        let keys: Vec<RemoteKey> = (0..WORDS).map(|_| lent.open_word(0, 1).unwrap()).collect();
        assert!(keys.iter().all(|key| Key::decode(key).unwrap().word().unwrap().1 != 0));
        assert!(lent.open_word(0, 1).is_none());
        lent.close(&keys[7]);
        assert!(lent.open_word(0, 1).is_some());
    }

    proptest! {
        #[test]
        fn keys_come_back_and_reach_only_what_is_inside(
            base in any::<u64>(),
            len in any::<u64>(),
            opener in proptest::collection::vec(any::<u8>(), 0..OPENER_MAX + 3),
            offset in any::<u64>(),
            size in 0..1_usize << 40,
        ) {
            let Some(key) = Key::new(base, len, &opener) else {
                prop_assert!(opener.len() > OPENER_MAX);
                return Ok(());
            };
            prop_assert_eq!(Key::decode(&key.encode()), Some(key));
            prop_assert_eq!(key.opener(), &opener[..]);
            if let Some(address) = key.address(offset, size) {
                let end = u128::from(address) + size as u128;
                prop_assert!(address >= base && end <= u128::from(base) + u128::from(len));
            }
        }

        #[test]
        fn any_bytes_are_a_key_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..=RemoteKey::MAX)) {
            let raw = RemoteKey::new(&bytes).unwrap();
            match Key::decode(&raw) {
                Some(key) => prop_assert_eq!(key.encode(), raw),
                None => prop_assert!(bytes.len() < 16),
            }
            prop_assert!(Lent::new(1).close(&raw).is_none());
        }
    }
}
