//! What two processes tell each other of their lanes (`lanes`), in LANE and JOINED messages. Pure; decoding believes nothing
//! (law 9).
//!
//! ```text
//!  LANE    number: of the sender's lane; 0: it can have none
//!          payload: answers, 4 bytes │ takes messages, 1 │ key, 8 │ base, 8 │ address
//!                   or the number of the next frame that the sender awaits, 4: the lane is closed, and what came over it up to
//!                   that one has arrived; or nothing, with number 0
//!  JOINED  number: of the receiver's lane; payload: that of the sender's, 4 bytes
//! ```

use crate::wire::{Kind, NAME_MAX};
use ironweave_ffi::ofi::Registration;

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// There is a lane.
    Here {
        number: u32,
        /// The receiver's, if it told of one before: the two shall be a pair.
        answers: u32,
        /// Messages may go to it.
        takes: bool,
        /// Bytes of no meaning, for probes to read.
        beacon: Registration,
        name: Vec<u8>,
    },
    /// It is closed; `next` is the first frame that has not arrived.
    Gone { number: u32, next: u32 },
    /// There can be none.
    Never,
    /// The receiver's lane and the sender's are connected.
    Joined { yours: u32, mine: u32 },
}

impl News {
    /// The kind and number of the message, and its payload.
    pub(crate) fn encode(&self) -> (Kind, u32, Vec<u8>) {
        match self {
            News::Here { number, answers, takes, beacon, name } => {
                let mut payload = answers.to_le_bytes().to_vec();
                payload.push(u8::from(*takes));
                payload.extend_from_slice(&beacon.key.to_le_bytes());
                payload.extend_from_slice(&beacon.base.to_le_bytes());
                payload.extend_from_slice(name);
                (Kind::Lane, *number, payload)
            }
            News::Gone { number, next } => (Kind::Lane, *number, next.to_le_bytes().to_vec()),
            News::Never => (Kind::Lane, 0, Vec::new()),
            News::Joined { yours, mine } => (Kind::Joined, *yours, mine.to_le_bytes().to_vec()),
        }
    }

    /// `None` when it is none of ours.
    pub(crate) fn decode(kind: Kind, number: u32, payload: &[u8]) -> Option<News> {
        match (kind, number, payload.len()) {
            (Kind::Lane, 0, 0) => Some(News::Never),
            (Kind::Lane, 1.., 4) => {
                let next = u32::from_le_bytes(payload.try_into().ok()?);
                Some(News::Gone { number, next })
            }
            (Kind::Lane, 1.., 22..) if payload.len() <= 21 + NAME_MAX => {
                let (answers, rest) = payload.split_first_chunk()?;
                let (&takes, rest) = rest.split_first()?;
                if takes > 1 {
                    return None;
                }
                let (key, rest) = rest.split_first_chunk()?;
                let (base, name) = rest.split_first_chunk()?;
                let (key, base) = (u64::from_le_bytes(*key), u64::from_le_bytes(*base));
                let answers = u32::from_le_bytes(*answers);
                let beacon = Registration { key, base };
                Some(News::Here { number, answers, takes: takes == 1, beacon, name: name.to_vec() })
            }
            (Kind::Joined, 1.., 4) => {
                let mine = u32::from_le_bytes(payload.try_into().ok()?);
                Some(News::Joined { yours: number, mine })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_come_back_and_other_bytes_are_refused() {
        let beacon = Registration { key: 3, base: 1 << 50 };
        let all = [
            News::Here { number: 1, answers: 0, takes: true, beacon, name: b"address".to_vec() },
            News::Gone { number: 7, next: 1 << 31 },
            News::Never,
            News::Joined { yours: 9, mine: 8 },
        ];
        for news in all {
            let (kind, number, payload) = news.encode();
            assert_eq!(News::decode(kind, number, &payload), Some(news));
            let longer = [&payload[..], &[0; 600]].concat();
            assert_eq!(News::decode(kind, number, &longer), None);
            if payload.len() > 1 {
                assert_eq!(News::decode(kind, number, &payload[..1]), None);
                assert_eq!(News::decode(kind, 0, &payload), None);
            }
            assert_eq!(News::decode(Kind::Data, number, &payload), None);
        }
    }
}
