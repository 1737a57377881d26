//! Lanes: the sequences of agreements that a communicator has, each under a key of its own in the control plane.
//!
//! Each operation takes its numbers in call order, which is the same at all members. Creations and shrinks take as many as
//! they have rounds, so what comes behind one waits for it; agreements of users need not wait for each other.

use crate::task::TaskId;
use ironweave_ft::CommKey;
use std::collections::VecDeque;

/// Which sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Agreements and shrinks. Its key is also the one that is revoked.
    Recover,
    /// Creations: they end when the communicator's collectives are interrupted.
    Create,
}

impl Purpose {
    pub const ALL: [Purpose; 2] = [Purpose::Recover, Purpose::Create];

    /// The key under which the control plane has it. Ids of communicators are below 2^14.
    pub const fn key(self, comm: CommKey) -> CommKey {
        CommKey { cid: comm.cid | (self as u16) << 14, epoch: comm.epoch }
    }
}

/// A sequence of agreements.
#[derive(Default, Debug)]
pub(crate) struct Lane {
    /// Number of the next one.
    pub next: u64,
    /// Operations in call order, and whether what comes behind one has to wait for it.
    queue: VecDeque<(TaskId, bool)>,
    /// An operation that others wait for has contributed, and waits for the outcome.
    pub agreeing: bool,
}

impl Lane {
    pub fn enter(&mut self, task: TaskId, alone: bool) {
        self.queue.push_back((task, alone));
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether it is this operation's turn.
    pub fn may_begin(&self, task: TaskId) -> bool {
        let alone = self.queue.iter().any(|&(other, alone)| other == task && alone);
        let before = self.queue.iter().take_while(|&&(other, _)| other != task);
        let mut before = before.map(|&(_, alone)| alone);
        if alone { before.next().is_none() } else { !before.any(|alone| alone) }
    }

    pub fn leave(&mut self, task: TaskId) {
        self.queue.retain(|&(other, _)| other != task);
    }
}
