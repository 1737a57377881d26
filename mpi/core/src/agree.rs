//! Agreement of users (`MPIX_Comm_agree`, `MPIX_Comm_iagree`): works on revoked communicators and around failures.

use crate::core::Decision;
use crate::lane::Purpose;
use crate::summons::SUMMONS;
use crate::task::{Outcome, Output, Task, TaskId};
use crate::{CommHandle, Core, CoreError};
use ironweave_btl::{Btl, Peer};
use ironweave_coll::Patience;
use ironweave_ft::{CommKey, Contribution, Look, Nanos};
use smallvec::SmallVec;

enum State {
    /// A shrink that was called before has the next numbers.
    Queued(u64),
    /// On the board; the next number stays free until it is decided.
    Posted {
        key: CommKey,
        seq: u64,
        flag: u64,
    },
    Agreeing((CommKey, u64)),
    /// Decided; the PML still closes rails to the failed, whom the caller must find when it asks who failed.
    Recording(Output, Vec<u32>),
}

/// What a blocking agreement has come to at once.
#[derive(Debug)]
pub enum Agreeing {
    /// It is over.
    Over(Output),
    /// It goes on as a task.
    Waits(TaskId),
}

/// One agreement under way.
pub(crate) struct Agreement {
    comm: CommHandle,
    state: State,
}

impl Agreement {
    /// The agreement whose decision it waits for, if it waits for nothing else.
    pub const fn waits_for(&self) -> Option<(CommKey, u64)> {
        match self.state {
            State::Agreeing(which) => Some(which),
            _ => None,
        }
    }

    /// Whether it goes on by being looked at.
    pub const fn is_posted(&self) -> bool {
        matches!(self.state, State::Posted { .. })
    }

    pub fn step<B: Btl>(&mut self, me: TaskId, core: &mut Core<B>, now: Nanos) -> Option<Outcome> {
        let outcome = self.go_on(me, core, now)?;
        if let Ok(there) = core.comms.any_mut(self.comm) {
            there.recoveries.leave(me);
        }
        Some(outcome)
    }

    fn go_on<B: Btl>(&mut self, me: TaskId, core: &mut Core<B>, now: Nanos) -> Option<Outcome> {
        loop {
            match &mut self.state {
                State::Queued(flag) => {
                    let there = core.comms.any_mut(self.comm).ok()?;
                    if !there.recoveries.may_begin(me) {
                        return None;
                    }
                    match core.begin_agreement(self.comm, *flag, now) {
                        Ok(agreement) => self.state = State::Agreeing(agreement),
                        Err(error) => return Some(Err(error)),
                    }
                }
                State::Posted { key, seq, flag } => {
                    let (key, seq, flag) = (*key, *seq, *flag);
                    let board = core.board()?;
                    match core.plane.look(key, seq, &board) {
                        Look::Missing if core.fenced => return Some(Err(CoreError::Fenced)),
                        Look::Missing => return None,
                        Look::Decided(flag) => {
                            core.comms.any_mut(self.comm).ok()?.recoveries.next += 1;
                            return Some(Ok(Output::Agreed { flag, failure: None }));
                        }
                        Look::Split => match core.begin_agreement(self.comm, flag, now) {
                            Ok(agreement) => self.state = State::Agreeing(agreement),
                            Err(error) => return Some(Err(error)),
                        },
                    }
                }
                State::Agreeing(agreement) => {
                    let decision = match core.decision(*agreement, now)? {
                        Ok(decision) => decision,
                        Err(error) => return Some(Err(error)),
                    };
                    let there = core.comms.any(self.comm).ok()?;
                    let ranks =
                        decision.failed.iter().filter_map(|&process| there.rank_for_error(process));
                    let failure = match ranks.min() {
                        Some(rank) if !decision.acknowledged => {
                            Some(CoreError::ProcFailed { rank })
                        }
                        _ => None,
                    };
                    let output = Output::Agreed { flag: decision.flag, failure };
                    self.state = State::Recording(output, decision.failed);
                }
                State::Recording(output, failed) => {
                    return core.are_recorded(self.comm, failed).then(|| Ok(output.clone()));
                }
            }
        }
    }
}

impl<B: Btl> Core<B> {
    /// Agrees with all living members on the bitwise AND of what each contributes, and on who has failed. Collective;
    /// several may be under way. Never fails because of failures: if one of those agreed on is not acknowledged by all, the
    /// output says so, uniformly, beside the value ([`Output::Agreed`]). On an inter-communicator both groups agree on one value.
    ///
    /// # Errors
    /// [`CoreError::NoSuchComm`].
    pub fn iagree(&mut self, comm: CommHandle, flag: u64, now: Nanos) -> Result<TaskId, CoreError> {
        let state = match self.comms.get(comm)?.recoveries.is_empty() {
            true => State::Agreeing(self.begin_agreement(comm, flag, now)?),
            false => State::Queued(flag),
        };
        self.go_on_agreeing(comm, state, now)
    }

    /// As [`iagree`](Core::iagree), for a caller that waits. What it takes of other processes is looked for at once, past everything else,
    /// while `patience` lasts with each message: so call [`progress`](Core::progress) now and then, however often this ends at once.
    ///
    /// # Errors
    /// As `iagree`.
    pub fn agree(
        &mut self,
        comm: CommHandle,
        flag: u64,
        mut patience: impl Patience,
        now: Nanos,
    ) -> Result<Agreeing, CoreError> {
        self.catch_up(now);
        let there = self.comms.get(comm)?;
        let alone = there.recoveries.is_empty() && there.acked == 0 && !self.fenced;
        if alone && let Some(agreeing) = self.agree_by_board(comm, flag, &mut patience)? {
            return Ok(agreeing);
        }
        let quiet = self.held.is_empty() && !self.restless;
        if !alone || !quiet || self.has_unsent() || self.pml.has_control() {
            return self.iagree(comm, flag, now).map(Agreeing::Waits);
        }
        self.agree_soon(comm, flag, &mut patience, now)
    }

    /// [`agree`](Core::agree) by the board, where all members share it: posts the flag and looks for those of the others. `None`: not by the board.
    fn agree_by_board(
        &mut self,
        comm: CommHandle,
        flag: u64,
        patience: &mut impl Patience,
    ) -> Result<Option<Agreeing>, CoreError> {
        let Some(board) = self.board() else { return Ok(None) };
        let there = self.comms.get(comm)?;
        let (key, seq) = (Purpose::Recover.key(there.key()), there.recoveries.next);
        if !self.plane.post(key, seq, flag, &board) {
            return Ok(None);
        }
        let mut times = 0;
        // Whatever else is to be done is done while a task waits.
        while !self.restless {
            for _ in 0..=patience.looks() {
                match self.plane.look(key, seq, &board) {
                    Look::Decided(flag) => {
                        self.comms.get_mut(comm)?.recoveries.next += 1;
                        let output = Output::Agreed { flag, failure: None };
                        return Ok(Some(Agreeing::Over(output)));
                    }
                    Look::Split => return Ok(None),
                    Look::Missing => std::hint::spin_loop(),
                }
            }
            times += 1;
            if !patience.again(times, || true) {
                break;
            }
        }
        let state = State::Posted { key, seq, flag };
        let task = self.spawn_stepping(comm, Task::Agreement(Agreement { comm, state }));
        self.comms.get_mut(comm)?.recoveries.enter(task, true);
        Ok(Some(Agreeing::Waits(task)))
    }

    /// [`agree`](Core::agree) by the general machine, where nothing else is under way: its messages are looked for one by one where they
    /// arrive. What takes longer, or is out of the ordinary, goes on as a task.
    fn agree_soon(
        &mut self,
        comm: CommHandle,
        flag: u64,
        patience: &mut impl Patience,
        now: Nanos,
    ) -> Result<Agreeing, CoreError> {
        let agreement = self.begin_agreement(comm, flag, now)?;
        // From here on it tells whether anything else has come up.
        self.restless = false;
        let (mut times, mut awaited) = (0, SmallVec::<[u32; 4]>::new());
        loop {
            if awaited.is_empty() {
                self.carry_out(now);
                if self.restless || self.has_unsent() || self.pml.has_control() {
                    break;
                }
                awaited.extend(self.plane.awaits(agreement.0, agreement.1));
            }
            let Some(&first) = awaited.first() else { break };
            let before = awaited.len();
            awaited.retain(|process| !self.take_of(*process, patience.looks(), now));
            if awaited.len() < before {
                times = 0;
                continue;
            }
            times += 1;
            if !patience.again(times, || self.pml.is_control_due(Peer(first))) {
                break;
            }
        }
        if !self.restless
            && let Some(at) = self.awaited.iter().position(|(which, _)| *which == agreement)
            && let Some(Decision { flag, failed, .. }) = &self.awaited[at].1
            && failed.is_empty()
        {
            let flag = *flag;
            self.awaited.swap_remove(at);
            return Ok(Agreeing::Over(Output::Agreed { flag, failure: None }));
        }
        self.restless = true;
        self.go_on_agreeing(comm, State::Agreeing(agreement), now).map(Agreeing::Waits)
    }

    /// Takes the next control message of a process, if it is there within so many looks; whether it was.
    fn take_of(&mut self, process: u32, looks: u32, now: Nanos) -> bool {
        let (plane, mut summons) = (&mut self.plane, None);
        let taken = self.pml.take_control_soon(Peer(process), looks, |bytes| match bytes.first() {
            Some(&SUMMONS) => summons = Some(bytes.to_vec()),
            _ => plane.receive(process, bytes, now),
        });
        if let Some(frame) = &summons {
            self.on_summons(Peer(process), frame, now);
        }
        // It may have asked for one of these.
        self.restless |= taken && !self.unsaid.is_empty();
        taken && summons.is_none()
    }

    fn go_on_agreeing(
        &mut self,
        comm: CommHandle,
        state: State,
        now: Nanos,
    ) -> Result<TaskId, CoreError> {
        let task = self.spawn(comm, Task::Agreement(Agreement { comm, state }));
        self.comms.get_mut(comm)?.recoveries.enter(task, false);
        self.attend(now);
        Ok(task)
    }

    fn begin_agreement(
        &mut self,
        comm: CommHandle,
        flag: u64,
        now: Nanos,
    ) -> Result<(CommKey, u64), CoreError> {
        let acknowledged = self.acknowledged(comm)?;
        let mine = Contribution { flag, highest: 0, acknowledged };
        self.contribute(comm, Purpose::Recover, mine, true, now)
    }
}
