//! What detectors say to each other, and how it looks in a datagram. Decoding believes nothing (law 9): wrong lengths,
//! unknown kinds and processes outside the job make no message. Who sent it, and that it is one of ours, is proven by
//! whoever carries the datagrams.
//!
//! ```text
//!   Beat     1 | known 12 | count u8 | (first, len) 2 u32 × count
//!   Notice   5 | token u32 | sync u8 | known 12 | count u16 | failed u32 × count
//!   Observe  2                                                  Ack    6 | token u32
//!   Probe    3 | token u32                                      Leave  7 | token u32 | emitter u32 | observer u32
//!   Answer   4 | token u32                                      Fence  8 | living u32 | lowest u32
//!   known = count u32 | mix u64; nobody = u32::MAX; all little-endian
//! ```

/// The most runs in one [`Message::Beat`]'s chain.
pub const CHAIN_MAX: usize = 8;
/// The most processes in one [`Message::Notice`].
pub const NOTICE_MAX: usize = 256;
/// The longest message in bytes; with its seal it fits into the smallest IPv6 packet.
pub const MESSAGE_MAX: usize = 1 + 4 + 1 + 12 + 2 + 4 * NOTICE_MAX;

/// A set of failed processes in twelve bytes: equal sets have equal digests, others almost surely not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Digest {
    /// How many there are.
    pub count: u32,
    /// All of them, mixed.
    pub mix: u64,
}

impl Digest {
    /// Adds a process that is not in the set.
    pub fn add(&mut self, process: u32) {
        self.count += 1;
        // SplitMix64's finalizer: neighbours must not cancel each other out.
        let mut z = (u64::from(process) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.mix ^= z ^ (z >> 31);
    }
}

/// Members of the ring in a row, backwards: `first`, the process before it, …, `len` of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Where it begins.
    pub first: u32,
    /// How many; at least one, fewer than the job has.
    pub len: u32,
}

/// One message between two detectors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// To the observer, every period: I live.
    Beat {
        /// Who is before me, dead or alive, without those that left; as many runs as there is room for.
        chain: Vec<Run>,
        /// The failures I know.
        known: Digest,
    },
    /// To the process watched from now on: beat for me.
    Observe,
    /// Do you live?
    Probe {
        /// Comes back in the answer.
        token: u32,
    },
    /// I do.
    Answer {
        /// The probe's.
        token: u32,
    },
    /// These have failed.
    Notice {
        /// Comes back in the acknowledgement.
        token: u32,
        /// Tell me what you know beyond `known`.
        sync: bool,
        /// The failures I know.
        known: Digest,
        /// Some of them.
        failed: Vec<u32>,
    },
    /// That notice, or that leave, has arrived.
    Ack {
        /// Its token.
        token: u32,
    },
    /// I leave the job, which is no failure; these two are neighbours now.
    Leave {
        /// Comes back in the acknowledgement.
        token: u32,
        /// Whom I watched.
        emitter: Option<u32>,
        /// Whom I beat for.
        observer: Option<u32>,
    },
    /// You were declared failed: stop. For the case that both sides say so of each other it tells the sender's side.
    Fence {
        /// How many live on it.
        living: u32,
        /// The lowest of them.
        lowest: u32,
    },
}

const NOBODY: u32 = u32::MAX;

impl Message {
    /// Appends the message's bytes, at most [`MESSAGE_MAX`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        let known_to = |out: &mut Vec<u8>, known: &Digest| {
            out.extend(known.count.to_le_bytes());
            out.extend(known.mix.to_le_bytes());
        };
        match self {
            Message::Beat { chain, known } => {
                assert!(chain.len() <= CHAIN_MAX);
                out.push(1);
                known_to(out, known);
                out.push(chain.len() as u8);
                for run in chain {
                    out.extend(run.first.to_le_bytes());
                    out.extend(run.len.to_le_bytes());
                }
            }
            Message::Observe => out.push(2),
            Message::Probe { token } => {
                out.push(3);
                out.extend(token.to_le_bytes());
            }
            Message::Answer { token } => {
                out.push(4);
                out.extend(token.to_le_bytes());
            }
            Message::Notice { token, sync, known, failed } => {
                assert!(failed.len() <= NOTICE_MAX);
                out.push(5);
                out.extend(token.to_le_bytes());
                out.push(u8::from(*sync));
                known_to(out, known);
                out.extend((failed.len() as u16).to_le_bytes());
                failed.iter().for_each(|process| out.extend(process.to_le_bytes()));
            }
            Message::Ack { token } => {
                out.push(6);
                out.extend(token.to_le_bytes());
            }
            Message::Leave { token, emitter, observer } => {
                out.push(7);
                out.extend(token.to_le_bytes());
                out.extend(emitter.unwrap_or(NOBODY).to_le_bytes());
                out.extend(observer.unwrap_or(NOBODY).to_le_bytes());
            }
            Message::Fence { living, lowest } => {
                out.push(8);
                out.extend(living.to_le_bytes());
                out.extend(lowest.to_le_bytes());
            }
        }
    }

    /// Reads exactly one message of a job of `size` processes; `None` when the bytes are anything else.
    #[must_use]
    pub fn decode(bytes: &[u8], size: u32) -> Option<Message> {
        let mut rest = Reader(bytes);
        let [kind] = rest.take()?;
        let message = match kind {
            1 => {
                let known = rest.known()?;
                let [count] = rest.take()?;
                if usize::from(count) > CHAIN_MAX {
                    return None;
                }
                let chain: Option<Vec<Run>> = (0..count).map(|_| rest.run(size)).collect();
                Message::Beat { known, chain: chain? }
            }
            2 => Message::Observe,
            3 => Message::Probe { token: rest.word()? },
            4 => Message::Answer { token: rest.word()? },
            5 => {
                let token = rest.word()?;
                let sync = match rest.take()? {
                    [0] => false,
                    [1] => true,
                    [_] => return None,
                };
                let known = rest.known()?;
                let count = usize::from(u16::from_le_bytes(rest.take()?));
                if count > NOTICE_MAX {
                    return None;
                }
                Message::Notice { token, sync, known, failed: rest.processes(count, size)? }
            }
            6 => Message::Ack { token: rest.word()? },
            7 => {
                let token = rest.word()?;
                let emitter = rest.maybe(size)?;
                Message::Leave { token, emitter, observer: rest.maybe(size)? }
            }
            8 => {
                let living = rest.word().filter(|living| *living <= size)?;
                Message::Fence { living, lowest: rest.word().filter(|lowest| *lowest < size)? }
            }
            _ => return None,
        };
        rest.0.is_empty().then_some(message)
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn known(&mut self) -> Option<Digest> {
        Some(Digest { count: self.word()?, mix: u64::from_le_bytes(self.take()?) })
    }

    fn run(&mut self, size: u32) -> Option<Run> {
        let run = Run { first: self.word()?, len: self.word()? };
        (run.first < size && (1..size).contains(&run.len)).then_some(run)
    }

    fn processes(&mut self, count: usize, size: u32) -> Option<Vec<u32>> {
        (0..count).map(|_| self.word().filter(|process| *process < size)).collect()
    }

    /// A process or nobody; the outer `None` is garbage.
    fn maybe(&mut self, size: u32) -> Option<Option<u32>> {
        match self.word()? {
            NOBODY => Some(None),
            process if process < size => Some(Some(process)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn messages() -> impl Strategy<Value = Message> {
        let process = 0u32..50;
        let known = (any::<u32>(), any::<u64>()).prop_map(|(count, mix)| Digest { count, mix });
        let run = (0u32..50, 1u32..50).prop_map(|(first, len)| Run { first, len });
        let chain = proptest::collection::vec(run, 0..=CHAIN_MAX);
        let list = |most| proptest::collection::vec(0u32..50, 0..=most);
        prop_oneof![
            (chain, known.clone()).prop_map(|(chain, known)| Message::Beat { chain, known }),
            Just(Message::Observe),
            any::<u32>().prop_map(|token| Message::Probe { token }),
            any::<u32>().prop_map(|token| Message::Answer { token }),
            (any::<u32>(), any::<bool>(), known, list(NOTICE_MAX)).prop_map(
                |(token, sync, known, failed)| Message::Notice { token, sync, known, failed }
            ),
            any::<u32>().prop_map(|token| Message::Ack { token }),
            (any::<u32>(), proptest::option::of(process.clone()), proptest::option::of(process))
                .prop_map(|(token, emitter, observer)| Message::Leave { token, emitter, observer }),
            (0u32..=50, 0u32..50).prop_map(|(living, lowest)| Message::Fence { living, lowest }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_nothing_shorter_or_longer_is(message in messages()) {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            prop_assert!(bytes.len() <= MESSAGE_MAX);
            prop_assert_eq!(Message::decode(&bytes, 50), Some(message));
            for cut in 0..bytes.len() {
                prop_assert_eq!(Message::decode(&bytes[..cut], 50), None);
            }
            bytes.push(0);
            prop_assert_eq!(Message::decode(&bytes, 50), None);
        }

        #[test]
        fn garbage_is_no_message_or_names_only_processes_of_the_job(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Some(Message::Notice { failed, .. }) = Message::decode(&bytes, 7) {
                prop_assert!(failed.iter().all(|process| *process < 7));
            }
        }
    }

    #[test]
    fn digests_tell_sets_apart_whatever_the_order() {
        let of = |set: &[u32]| {
            let mut digest = Digest::default();
            set.iter().for_each(|process| digest.add(*process));
            digest
        };
        assert_eq!(of(&[1, 2, 3]), of(&[3, 1, 2]));
        assert_ne!(of(&[1, 2]), of(&[0, 3]));
        assert_ne!(of(&[0]), of(&[]));
    }
}
