//! Interruption: the receiver decides, a NACK tells the sender (law 5; seed 000, "Supporting the Revoke operation").
//!
//! 1. Sends are never ended from here: they run on until the receiver answers.
//! 2. A receive that has matched runs on to completion.
//! 3. A posted receive leaves the queues and ends with [`PmlError::Revoked`]; so does each new one.
//! 4. A message without a receive, here or still to come, is answered with NACK if its sender waits, and dropped.
//!
//! The same four cases serve the implicit revoke of collectives (seed 000, "Interrupting collectives in error"): it reaches
//! tags of collectives only, its error is [`PmlError::Interrupted`], and what users send each other goes on. Like a revoke it
//! is for good: a member has failed, so no later collective of this communicator could succeed either. A shrunken
//! communicator has collectives again.
//!
//! Resilient tags ([`FT_TAG_MAX`]) are not touched by either.

use super::engine::Engine;
use super::recv::RecvState;
use super::unexpected::Body;
use super::wire::WireStatus;
use super::{CommId, FT_TAG_MAX, PmlError, TagMatch, is_collective};

/// What of a communicator is interrupted. It only grows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(super) enum Interruption {
    Nothing,
    /// Tags of collectives.
    Collectives,
    /// All but resilient tags.
    Revoked,
}

impl Interruption {
    /// Whether questions are to be asked at all.
    #[inline]
    pub const fn any(self) -> bool {
        self as u8 != 0
    }

    /// What a message with this tag is answered, if it is interrupted.
    pub const fn status(self, tag: i32) -> Option<WireStatus> {
        match self {
            Interruption::Revoked if tag > FT_TAG_MAX => Some(WireStatus::Revoked),
            Interruption::Collectives if is_collective(tag) => Some(WireStatus::Interrupted),
            _ => None,
        }
    }

    /// The error of an operation with this tag, if it is interrupted.
    pub fn error(self, tag: i32) -> Option<PmlError> {
        self.status(tag).map(|status| match status {
            WireStatus::Interrupted => PmlError::Interrupted,
            _ => PmlError::Revoked,
        })
    }

    /// As `error`, of a receive or probe. Wildcards match tags of users.
    pub fn receive_error(self, tag: TagMatch) -> Option<PmlError> {
        self.error(if let TagMatch::Tag(tag) = tag { tag } else { 0 })
    }
}

impl Engine {
    /// Interrupts a communicator, as far as it is not yet.
    pub fn interrupt(&mut self, id: CommId, what: Interruption) {
        let Ok(comm) = self.comms.get_mut(id) else { return };
        if comm.interruption >= what {
            return;
        }
        comm.interruption = what;
        comm.watch();
        let posted: Vec<(u32, PmlError)> = self
            .recvs
            .iter()
            .filter(|(_, r)| matches!(r.state, RecvState::Posted | RecvState::Interrupted))
            .filter(|(_, r)| r.comm == id)
            .filter_map(|(slot, r)| Some((slot, what.receive_error(r.tag)?)))
            .collect();
        for (slot, error) in posted {
            self.fail_posted(slot, error);
        }
        self.refuse_kept(id, |tag| what.status(tag));
    }

    /// Drops those messages of a communicator that no receive will take, and answers senders that wait.
    pub fn refuse_kept(&mut self, id: CommId, status: impl Fn(i32) -> Option<WireStatus>) {
        let Ok(comm) = self.comms.get_mut(id) else { return };
        for message in comm.kept(&self.messages) {
            let kept = &self.messages[message];
            let Some(status) = status(kept.tag) else { continue };
            let peer = kept.peer;
            if let Body::Rndv { sender, .. } | Body::Rget { sender, .. } = kept.body {
                self.nack_sender(peer, sender, status);
            }
            self.discard(message);
        }
    }
}
