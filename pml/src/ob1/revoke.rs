//! Revocation: the receiver decides, a NACK tells the sender (law 5; seed 000, "Supporting the Revoke operation").
//!
//! 1. Sends are never ended from here: they run on until the receiver answers.
//! 2. A receive that has matched runs on to completion.
//! 3. A posted receive leaves the queues and ends with [`PmlError::Revoked`]; so does each new one.
//! 4. A message without a receive, here or still to come, is answered with NACK if its sender waits, and dropped.
//!
//! Resilient tags ([`FT_TAG_MAX`]) are not touched.

use super::engine::Engine;
use super::recv::{RecvState, is_resilient};
use super::unexpected::Body;
use super::wire::WireStatus;
use super::{CommId, FT_TAG_MAX, PmlError};

impl Engine {
    pub fn revoke(&mut self, id: CommId) {
        let Ok(comm) = self.comms.get_mut(id) else { return };
        if std::mem::replace(&mut comm.revoked, true) {
            return;
        }
        comm.watch();
        let posted: Vec<u32> = self
            .recvs
            .iter()
            .filter(|(_, r)| matches!(r.state, RecvState::Posted | RecvState::Interrupted))
            .filter(|(_, r)| r.comm == id && !is_resilient(r.tag))
            .map(|(slot, _)| slot)
            .collect();
        for slot in posted {
            self.fail_posted(slot, PmlError::Revoked);
        }
        self.refuse_kept(id, WireStatus::Revoked);
    }

    /// Drops the messages of a communicator that no receive will take, and answers senders that wait.
    pub fn refuse_kept(&mut self, id: CommId, status: WireStatus) {
        let Ok(comm) = self.comms.get_mut(id) else { return };
        for message in comm.kept(&self.messages) {
            let kept = &self.messages[message];
            if status == WireStatus::Revoked && kept.tag <= FT_TAG_MAX {
                continue;
            }
            let peer = kept.peer;
            if let Body::Rndv { sender, .. } | Body::Rget { sender, .. } = kept.body {
                self.nack_sender(peer, sender, status);
            }
            self.discard(message);
        }
    }
}
