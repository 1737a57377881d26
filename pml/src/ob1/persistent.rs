//! Persistent requests: the arguments of an operation, started again and again.
//!
//! Starting one never fails because of a failed process: the error comes with the completion (seed 003 §17.6.1).

use super::convertor::{Buffer, Payload};
use super::request::Kind;
use super::slots::Key;
use super::{CommId, Completion, Mode, Ob1, PmlError, ReqId, Source, Started, Status, TagMatch};
use ironweave_btl::Btl;

/// The operation.
pub(super) enum Operation {
    Send {
        comm: CommId,
        mode: Mode,
        payload: Payload,
        dest: u32,
        tag: i32,
    },
    /// The buffer is with the engine while the receive is active.
    Recv {
        comm: CommId,
        buffer: Option<Buffer>,
        source: Source,
        tag: TagMatch,
    },
    /// A free slot.
    Vacant,
}

/// Whether it is active.
pub(super) enum Activity {
    Inactive,
    Running(ReqId),
    /// Complete without a request of its own, not asked for yet.
    Done(Completion),
}

/// A persistent request.
pub(super) struct Persistent {
    pub operation: Operation,
    pub activity: Activity,
}

impl Persistent {
    pub const VACANT: Persistent =
        Persistent { operation: Operation::Vacant, activity: Activity::Inactive };
}

impl<B: Btl> Ob1<B> {
    /// Starts an inactive persistent request.
    ///
    /// # Errors
    /// [`PmlError::Unresolved`]: nothing was started; anything else comes with the completion.
    /// [`PmlError::InvalidRequest`] for a request that is not persistent, or is active.
    pub fn start(&mut self, request: ReqId) -> Result<(), PmlError> {
        let persistent =
            self.engine.persistent.get_mut(request.key()).ok_or(PmlError::InvalidRequest)?;
        if !matches!(persistent.activity, Activity::Inactive) {
            return Err(PmlError::InvalidRequest);
        }
        let started = match &mut persistent.operation {
            Operation::Send { comm, mode, payload, dest, tag } => {
                let (comm, mode, dest, tag) = (*comm, *mode, *dest, *tag);
                let payload = payload.clone();
                self.send(comm, mode, &payload, dest, tag)
            }
            Operation::Recv { comm, buffer, source, tag } => {
                let (comm, source, tag) = (*comm, *source, *tag);
                let lent = buffer.take();
                self.start_recv(request.key(), lent, comm, source, tag)
            }
            Operation::Vacant => Err(PmlError::InvalidRequest),
        };
        let activity = match started {
            Ok(Started::Pending(request)) => Activity::Running(request),
            Ok(Started::Done) => {
                Activity::Done(Completion { status: Status::EMPTY, result: Ok(()) })
            }
            Err(PmlError::Unresolved(peer)) => return Err(PmlError::Unresolved(peer)),
            Err(error) => Activity::Done(Completion { status: Status::EMPTY, result: Err(error) }),
        };
        if let Some(persistent) = self.engine.persistent.get_mut(request.key()) {
            persistent.activity = activity;
        }
        Ok(())
    }

    /// Posts the receive; where that is refused the buffer goes back.
    fn start_recv(
        &mut self,
        key: Key,
        buffer: Option<Buffer>,
        comm: CommId,
        source: Source,
        tag: TagMatch,
    ) -> Result<Started, PmlError> {
        let buffer = buffer.ok_or(PmlError::InvalidRequest)?;
        if let Err(error) = self.engine.comms.for_receive(comm, source, tag) {
            if let Some(Persistent { operation: Operation::Recv { buffer: home, .. }, .. }) =
                self.engine.persistent.get_mut(key)
            {
                *home = Some(buffer);
            }
            return Err(error);
        }
        self.recv(comm, buffer, source, tag).map(Started::Pending)
    }

    /// Answers for a persistent request; inactive ones answer with the empty status.
    pub(super) fn test_persistent(&mut self, key: Key) -> Option<Completion> {
        let Some(persistent) = self.engine.persistent.get_mut(key) else {
            return Some(Completion {
                status: Status::EMPTY,
                result: Err(PmlError::InvalidRequest),
            });
        };
        match std::mem::replace(&mut persistent.activity, Activity::Inactive) {
            Activity::Inactive => Some(Completion { status: Status::EMPTY, result: Ok(()) }),
            Activity::Done(completion) => Some(completion),
            Activity::Running(request) => {
                let back = match request.kind() {
                    Kind::Recv => self.engine.take_buffer(request.key()),
                    _ => None,
                };
                let completion = self.test(request);
                let over = completion
                    .as_ref()
                    .is_some_and(|c| c.result != Err(PmlError::ProcFailedPending));
                let persistent = self.engine.persistent.get_mut(key)?;
                if !over {
                    persistent.activity = Activity::Running(request);
                }
                if let (Operation::Recv { buffer, .. }, Some(back)) =
                    (&mut persistent.operation, back)
                {
                    *buffer = Some(back);
                }
                completion
            }
        }
    }
}
