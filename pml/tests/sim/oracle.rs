//! The plain oracle: every message and receive of a simulation, and the rules of MPI said once more without queues,
//! hashing or protocols.
//!
//! A message is known again by what its bytes say. What matched what is checked when all is over (law 6): if a
//! receive took message `k'` of a sender although it would have taken an earlier `k`, then `k` was taken by a receive
//! that was posted before.

use std::collections::BTreeMap;

pub type MessageNumber = u32;
pub type ReceiveNumber = u32;

/// One message as its sender handed it down.
#[derive(Debug)]
pub struct Message {
    pub comm: u16,
    pub from: u32,
    pub to: u32,
    pub tag: i32,
    pub len: u32,
    /// Counts the messages of this sender, receiver and communicator.
    pub number: u32,
    pub synchronous: bool,
    /// The sender was told that it is complete, without an error.
    pub sent: bool,
    /// The sender was told that the receiver does not take it.
    pub revoked: bool,
    /// The sender asked to have it cancelled: the receiver may drop it, and its answer may be lost.
    pub cancelling: bool,
    /// The sender was told that it has cancelled it.
    pub withdrawn: bool,
    pub taken_by: Option<ReceiveNumber>,
}

impl Message {
    /// Nobody took it, and it was not said that nobody will.
    const fn is_free(&self) -> bool {
        self.taken_by.is_none() && !self.revoked && !self.withdrawn
    }
}

/// How a receive ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Open,
    Took(MessageNumber),
    Cancelled,
    /// With the death of a process.
    Failed,
}

/// One receive, posted or by a matched probe.
#[derive(Debug)]
pub struct Receive {
    pub comm: u16,
    pub at: u32,
    /// The process; `None` for any.
    pub from: Option<u32>,
    pub tag: Option<i32>,
    pub fate: Fate,
}

#[derive(Default)]
pub struct Oracle {
    seed: u64,
    pub messages: Vec<Message>,
    pub receives: Vec<Receive>,
    /// By receiver, sender and communicator, in the order of sending.
    streams: BTreeMap<(u32, u32, u16), Vec<MessageNumber>>,
    /// What receives got that is too short to name a message.
    unnamed: BTreeMap<ReceiveNumber, Shown>,
}

/// What a receive shows of a message: as much of the stamp as it had room for, and how long it is in all.
#[derive(Debug)]
struct Shown {
    tag: i32,
    stamp: Vec<u8>,
    len: usize,
}

impl Shown {
    fn is_of(&self, message: &Message) -> bool {
        message.tag == self.tag
            && message.len as usize == self.len
            && message.number.to_le_bytes().starts_with(&self.stamp)
    }
}

/// Bytes of a message that hold its number, as far as it has room for them.
pub const STAMP: usize = 4;

fn byte(seed: u64, message: &Message, at: usize) -> u8 {
    let key = u64::from(message.from) << 40 ^ u64::from(message.to) << 20 ^ u64::from(message.comm);
    let key = (seed ^ key).wrapping_add(u64::from(message.number) << 7).wrapping_mul(0x9e37_79b9);
    ((key ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

impl Oracle {
    pub fn new(seed: u64) -> Self {
        Oracle { seed, ..Self::default() }
    }

    pub fn send(&mut self, message: Message) -> MessageNumber {
        let number = self.messages.len() as u32;
        let key = (message.to, message.from, message.comm);
        self.streams.entry(key).or_default().push(number);
        self.messages.push(message);
        number
    }

    /// The number that the next message gets in its stream.
    pub fn next_number(&self, to: u32, from: u32, comm: u16) -> u32 {
        self.streams.get(&(to, from, comm)).map_or(0, |stream| stream.len() as u32)
    }

    pub fn post(&mut self, receive: Receive) -> ReceiveNumber {
        self.receives.push(receive);
        self.receives.len() as u32 - 1
    }

    pub fn content(&self, message: &Message) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            (0..message.len as usize).map(|at| byte(self.seed, message, at)).collect();
        let stamp = message.number.to_le_bytes();
        let n = bytes.len().min(STAMP);
        bytes[..n].copy_from_slice(&stamp[..n]);
        bytes
    }

    /// A receive says that it has a message of `from` with this tag and these bytes, of `len` in all: which, and is
    /// it right?
    pub fn took(
        &mut self,
        receive: ReceiveNumber,
        from: u32,
        tag: i32,
        bytes: &[u8],
        len: usize,
    ) -> Result<(), String> {
        let Receive { comm, at, from: wanted, tag: wanted_tag, fate } =
            self.receives[receive as usize];
        if fate != Fate::Open {
            return Err(format!("receive {receive} ended twice: {fate:?}, and now with a message"));
        }
        if wanted.is_some_and(|wanted| wanted != from) || wanted_tag.is_some_and(|t| t != tag) {
            return Err(format!(
                "receive {receive} for {wanted:?}, tag {wanted_tag:?} got {from}, tag {tag}"
            ));
        }
        let stream = self.streams.get(&(at, from, comm)).map_or(&[][..], Vec::as_slice);
        let shown = Shown { tag, stamp: bytes[..bytes.len().min(STAMP)].to_vec(), len };
        let fits = |&&number: &&u32| shown.is_of(&self.messages[number as usize]);
        let number = if bytes.len() >= STAMP {
            let n = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            stream.get(n as usize).filter(|number| fits(number)).copied()
        } else {
            // Too short to name itself: the first that nobody took.
            let free = |number: &&u32| self.messages[**number as usize].is_free();
            stream.iter().find(|number| free(number) && fits(number)).copied()
        };
        let Some(number) = number else {
            return Err(format!(
                "receive {receive} at {at} got {len} bytes of {from}, tag {tag}, that were never sent: {:02x?}",
                &bytes[..bytes.len().min(16)]
            ));
        };
        let message = &self.messages[number as usize];
        if let Some(other) = message.taken_by {
            return Err(format!("{message:?} was taken by receives {other} and {receive}"));
        }
        let wrong = (STAMP.min(bytes.len())..bytes.len())
            .find(|&at| bytes[at] != byte(self.seed, message, at));
        if let Some(wrong) = wrong {
            return Err(format!("byte {wrong} of {message:?} in receive {receive} is wrong"));
        }
        if message.revoked {
            return Err(format!("{message:?} was received although its sender was told otherwise"));
        }
        if message.withdrawn {
            return Err(format!("{message:?} was received although its sender has cancelled it"));
        }
        // Messages that are too short to name themselves cannot be told apart, and an earlier one may be over later (a full
        // receiver had it announced first): which receive took which is what order demands, if it can be had at all.
        let unnamed = bytes.len() < STAMP;
        let mut alike: Vec<MessageNumber> = match unnamed {
            true => stream
                .iter()
                .copied()
                .filter(|other| fits(&other) && self.messages[*other as usize].taken_by.is_some())
                .collect(),
            false => Vec::new(),
        };
        if unnamed {
            self.unnamed.insert(receive, shown);
        }
        self.messages[number as usize].taken_by = Some(receive);
        alike.push(number);
        alike.sort_unstable();
        let mut takers: Vec<ReceiveNumber> =
            alike.iter().filter_map(|number| self.messages[*number as usize].taken_by).collect();
        takers.sort_unstable();
        for (number, taker) in alike.iter().zip(&takers) {
            self.messages[*number as usize].taken_by = Some(*taker);
            self.receives[*taker as usize].fate = Fate::Took(*number);
        }
        alike.iter().zip(&takers).try_for_each(|(number, taker)| self.in_order(*number, *taker))
    }

    /// Law 6 among what was taken so far: no message of the same sender that was sent before, and that `receive` would
    /// have taken, went to a receive that was posted later; nor the other way round.
    fn in_order(&self, number: MessageNumber, receive: ReceiveNumber) -> Result<(), String> {
        let message = &self.messages[number as usize];
        let stream = &self.streams[&(message.to, message.from, message.comm)];
        let would = |receive: ReceiveNumber, message: &Message| {
            self.receives[receive as usize].tag.is_none_or(|tag| tag == message.tag)
        };
        for &other in stream {
            let there = &self.messages[other as usize];
            let Some(by) = there.taken_by else { continue };
            let overtaken = match other.cmp(&number) {
                std::cmp::Ordering::Less => by > receive && would(receive, there),
                std::cmp::Ordering::Equal => false,
                std::cmp::Ordering::Greater => by < receive && would(by, message),
            };
            if overtaken {
                return Err(format!("{message:?} by receive {receive}, but {there:?} by {by}"));
            }
        }
        Ok(())
    }

    /// Nobody has taken this message after all: if a receive that cannot tell was held to have, it has taken one like it.
    fn hand_on(&mut self, number: MessageNumber) -> Result<(), String> {
        let message = &self.messages[number as usize];
        let Some(receive) = message.taken_by else { return Ok(()) };
        let Some(unnamed) = self.unnamed.get(&receive) else { return Ok(()) };
        let stream = &self.streams[&(message.to, message.from, message.comm)];
        let like = |of: &&MessageNumber| {
            let other = &self.messages[**of as usize];
            other.is_free() && unnamed.is_of(other)
        };
        let Some(&other) = stream.iter().find(like) else { return Ok(()) };
        self.messages[number as usize].taken_by = None;
        self.messages[other as usize].taken_by = Some(receive);
        self.receives[receive as usize].fate = Fate::Took(other);
        self.in_order(other, receive)
    }

    /// The sender is told that the receiver does not take it (law 5).
    pub fn revoked(&mut self, message: MessageNumber) -> Result<(), String> {
        self.hand_on(message)?;
        let message = &mut self.messages[message as usize];
        message.revoked = true;
        match message.taken_by {
            Some(receive) => Err(format!("{message:?} is revoked, and received by {receive}")),
            None => Ok(()),
        }
    }

    /// The sender is told that it has cancelled the message (MPI §3.8.4: or it is received, one of both).
    pub fn withdrawn(&mut self, message: MessageNumber) -> Result<(), String> {
        self.hand_on(message)?;
        let message = &mut self.messages[message as usize];
        message.withdrawn = true;
        match message.taken_by {
            Some(receive) => Err(format!("{message:?} is cancelled, and received by {receive}")),
            None => Ok(()),
        }
    }

    pub fn ended(&mut self, receive: ReceiveNumber, fate: Fate) -> Result<(), String> {
        let before = std::mem::replace(&mut self.receives[receive as usize].fate, fate);
        if before == Fate::Open {
            return Ok(());
        }
        Err(format!("receive {receive} ended twice: {before:?}, then {fate:?}"))
    }

    /// What must hold when all is over. `alive` tells who was never killed, `apart` which two were cut off from each
    /// other for good: between those messages may be lost.
    pub fn judge(
        &self,
        alive: impl Fn(u32) -> bool,
        apart: impl Fn(u32, u32) -> bool,
        revoked: impl Fn(u16) -> bool,
    ) -> Result<(), String> {
        // Receives that ended with a death may have taken a message that nobody saw.
        let mut failed: BTreeMap<(u32, u16), Vec<ReceiveNumber>> = BTreeMap::new();
        for (number, receive) in (0..).zip(&self.receives) {
            if receive.fate == Fate::Failed {
                failed.entry((receive.at, receive.comm)).or_default().push(number);
            }
            if receive.fate == Fate::Open && alive(receive.at) {
                return Err(format!("receive {number} never ended: {receive:?}"));
            }
        }
        for (&(to, from, comm), stream) in &self.streams {
            if !alive(to) {
                continue; // what it took nobody knows
            }
            let none = Vec::new();
            let failed = failed.get(&(to, comm)).unwrap_or(&none);
            let whole = alive(from) && !apart(from, to) && !revoked(comm);
            self.judge_stream(stream, whole, failed)?;
        }
        Ok(())
    }

    fn judge_stream(
        &self,
        stream: &[MessageNumber],
        sender_lives: bool,
        failed: &[ReceiveNumber],
    ) -> Result<(), String> {
        // The latest receive that took a message so far: of any tag, and by tag.
        let mut latest_of_all = 0;
        let mut latest: BTreeMap<i32, ReceiveNumber> = BTreeMap::new();
        for &number in stream {
            let message = &self.messages[number as usize];
            if message.withdrawn {
                continue;
            }
            let taken = match message.taken_by {
                Some(receive) => receive,
                None if sender_lives && message.sent => {
                    return Err(format!("nobody received {message:?}, and it was sent"));
                }
                None if sender_lives => {
                    return Err(format!("{message:?} between the living was never sent"));
                }
                None if message.cancelling => continue,
                None => {
                    // The dead sender's: lost, or in a receive that failed with it.
                    let holder = failed.iter().copied().find(|&receive| {
                        let receive = &self.receives[receive as usize];
                        receive.from.is_none_or(|from| from == message.from)
                            && receive.tag.is_none_or(|tag| tag == message.tag)
                    });
                    holder.unwrap_or(u32::MAX)
                }
            };
            if let Some(receive) = message.taken_by {
                let wildcard = self.receives[receive as usize].tag.is_none();
                let before = if wildcard {
                    latest_of_all
                } else {
                    latest.get(&message.tag).copied().unwrap_or(0)
                };
                if receive < before {
                    return Err(format!(
                        "{message:?} was taken by receive {receive} ({:?}), but an earlier message \
                         that it would have taken went to receive {before}, posted later, or to none",
                        self.receives[receive as usize]
                    ));
                }
            }
            latest_of_all = latest_of_all.max(taken);
            let of_tag = latest.entry(message.tag).or_default();
            *of_tag = (*of_tag).max(taken);
        }
        Ok(())
    }

    /// A synchronous send is complete: its receive must have been posted.
    pub fn unmatched_synchronous(
        &self,
        alive: impl Fn(u32) -> bool,
        apart: impl Fn(u32, u32) -> bool,
    ) -> Option<&Message> {
        self.messages.iter().find(|m| {
            let lives = alive(m.to) && alive(m.from) && !apart(m.from, m.to);
            m.synchronous && m.sent && m.taken_by.is_none() && lives
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(tags: &[i32]) -> Oracle {
        let mut oracle = Oracle::new(1);
        for (number, &tag) in (0..).zip(tags) {
            let (comm, from, to) = (0, 1, 0);
            oracle.send(Message {
                comm,
                from,
                to,
                tag,
                len: 8,
                number,
                synchronous: false,
                sent: true,
                revoked: false,
                cancelling: false,
                withdrawn: false,
                taken_by: None,
            });
        }
        oracle
    }

    fn receive(oracle: &mut Oracle, tag: Option<i32>) -> ReceiveNumber {
        oracle.post(Receive { comm: 0, at: 0, from: Some(1), tag, fate: Fate::Open })
    }

    fn take(oracle: &mut Oracle, receive: ReceiveNumber, message: usize) -> Result<(), String> {
        let bytes = oracle.content(&oracle.messages[message]);
        let tag = oracle.messages[message].tag;
        oracle.took(receive, 1, tag, &bytes, 8)
    }

    #[test]
    fn overtaking_is_seen() {
        let mut oracle = stream(&[5, 5]);
        let (a, b) = (receive(&mut oracle, Some(5)), receive(&mut oracle, Some(5)));
        take(&mut oracle, a, 1).expect("it was sent");
        take(&mut oracle, b, 0).expect_err("seen as soon as both are taken");
        let judged = oracle.judge(|_| true, |_, _| false, |_| false);
        judged.expect_err("the second message overtook the first");
    }

    #[test]
    fn other_tags_may_overtake_and_wildcards_may_not() {
        for (tag, legal) in [(Some(6), true), (None, false)] {
            let mut oracle = stream(&[5, 6]);
            let (a, b) = (receive(&mut oracle, tag), receive(&mut oracle, Some(5)));
            take(&mut oracle, a, 1).expect("it was sent");
            assert_eq!(take(&mut oracle, b, 0).is_ok(), legal);
            assert_eq!(oracle.judge(|_| true, |_, _| false, |_| false).is_ok(), legal);
        }
    }

    #[test]
    fn what_the_dead_asked_to_cancel_holds_up_nothing() {
        for cancelling in [false, true] {
            let mut oracle = stream(&[5, 5]);
            oracle.messages[0].cancelling = cancelling;
            let a = receive(&mut oracle, Some(5));
            take(&mut oracle, a, 1).expect("it was sent");
            let judged = oracle.judge(|process| process != 1, |_, _| false, |_| false);
            assert_eq!(judged.is_ok(), cancelling, "{judged:?}");
        }
    }

    #[test]
    fn what_is_too_short_to_tell_is_not_what_was_cancelled() {
        for early in [false, true] {
            let mut oracle = stream(&[5, 5]);
            let a = receive(&mut oracle, Some(5));
            if early {
                oracle.withdrawn(0).expect("nobody took it");
            }
            oracle.took(a, 1, 5, &[], 8).expect("the other");
            if !early {
                oracle.withdrawn(0).expect("the other was taken");
            }
            assert_eq!(oracle.messages[1].taken_by, Some(a));
            oracle.withdrawn(1).expect_err("somebody took one of them");
        }
    }

    #[test]
    fn loss_doubling_and_damage_are_seen() {
        let mut oracle = stream(&[5, 5]);
        let (a, b) = (receive(&mut oracle, Some(5)), receive(&mut oracle, Some(5)));
        take(&mut oracle, a, 0).expect("it was sent");
        oracle
            .judge(|_| true, |_, _| false, |_| false)
            .expect_err("a message was lost, a receive is open");
        take(&mut oracle, b, 0).expect_err("taken twice");
        let mut bytes = oracle.content(&oracle.messages[1]);
        bytes[6] ^= 1;
        oracle.took(b, 1, 5, &bytes, 8).expect_err("a byte is wrong");
    }
}
