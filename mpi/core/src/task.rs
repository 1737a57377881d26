//! Tasks: operations of several steps that go on while the process progresses.
//!
//! A blocking call of the layer above spawns the task and waits; a non-blocking one keeps its [`TaskId`]. Each task ends once
//! (law 1), and its outcome is kept until somebody takes it or says that nobody will.

use crate::agree::Agreement;
use crate::assembly::Assembly;
use crate::collective::Collective;
use crate::create::Creation;
use crate::intercomm::Introduction;
use crate::persistent::Run;
use crate::{CommHandle, Core, CoreError};
use ironweave_btl::Btl;
use ironweave_ft::Nanos;

/// An operation under way: slot and generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TaskId {
    slot: u32,
    generation: u32,
}

/// What a task brings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// A new communicator; `None` where this process is not a member.
    Comm(Option<CommHandle>),
    /// An agreement.
    Agreed {
        /// The bitwise AND of what the living contributed.
        flag: u64,
        /// Some failure is not acknowledged by all: the error that the call raises beside the value, the same at all members.
        failure: Option<CoreError>,
    },
    /// Nothing: a collective operation.
    Done,
}

pub(crate) type Outcome = Result<Output, CoreError>;

/// Each kind of task.
pub(crate) enum Task {
    Agreement(Agreement),
    Collective(Collective),
    Persistent(Run),
    Creation(Box<Creation>),
    Assembly(Box<Assembly>),
    Introduction(Box<Introduction>),
}

impl Task {
    fn step<B: Btl>(&mut self, me: TaskId, core: &mut Core<B>, now: Nanos) -> Option<Outcome> {
        match self {
            Task::Agreement(task) => task.step(me, core, now),
            Task::Collective(task) => {
                let done = task.poll(core, || now)?;
                Some(done.map(|()| Output::Done))
            }
            Task::Persistent(task) => task.step(core, now),
            Task::Creation(task) => task.step(me, core, now),
            Task::Assembly(task) => task.step(core, now),
            Task::Introduction(task) => task.step(core, now),
        }
    }

    /// Whether it goes on only when a message of the control plane arrives, or needs nothing but looks.
    const fn is_quiet(&self) -> bool {
        match self {
            Task::Agreement(task) => task.waits_for().is_some() || task.is_posted(),
            _ => self.is_stepping(),
        }
    }

    /// Whether it goes on by being looked at: a collective, or what was posted on the board.
    const fn is_stepping(&self) -> bool {
        match self {
            Task::Collective(_) | Task::Persistent(_) => true,
            Task::Agreement(task) => task.is_posted(),
            _ => false,
        }
    }

    /// Whether it makes a communicator.
    const fn is_making(&self) -> bool {
        matches!(self, Task::Creation(_) | Task::Assembly(_) | Task::Introduction(_))
    }

    const fn name(&self) -> &'static str {
        match self {
            Task::Agreement(_) => "agreement",
            Task::Collective(_) | Task::Persistent(_) => "collective",
            Task::Creation(_) => "creation",
            Task::Assembly(_) => "creation by a group",
            Task::Introduction(_) => "creation of an inter-communicator",
        }
    }
}

enum State {
    Running(Task),
    /// It is being stepped.
    Out,
    Over(Outcome),
    Vacant,
}

struct Slot {
    generation: u32,
    state: State,
    /// Nobody will ask.
    detached: bool,
    /// The communicator that it needs.
    on: CommHandle,
}

/// All tasks.
#[derive(Default)]
pub(crate) struct Tasks {
    slots: Vec<Slot>,
    vacant: Vec<u32>,
    active: Vec<u32>,
}

impl Tasks {
    pub fn are_none(&self) -> bool {
        self.active.is_empty()
    }

    /// Whether some task goes on by being looked at.
    pub fn are_some_stepping(&self) -> bool {
        self.active.iter().any(|&at| match &self.slots[at as usize].state {
            State::Running(task) => task.is_stepping(),
            _ => false,
        })
    }

    /// Whether some task makes a communicator.
    pub fn are_some_making(&self) -> bool {
        self.active.iter().any(|&at| match &self.slots[at as usize].state {
            State::Running(task) => task.is_making(),
            State::Out => true, // it may
            _ => false,
        })
    }

    /// Whether every task goes on by messages of the control plane or by being looked at.
    pub fn are_quiet(&self) -> bool {
        self.active.iter().all(|&at| match &self.slots[at as usize].state {
            State::Running(task) => task.is_quiet(),
            _ => true,
        })
    }

    fn add(&mut self, state: State, on: CommHandle) -> TaskId {
        let slot = match self.vacant.pop() {
            Some(at) => {
                let slot = &mut self.slots[at as usize];
                (slot.state, slot.detached, slot.on) = (state, false, on);
                at
            }
            None => {
                self.slots.push(Slot { generation: 0, state, detached: false, on });
                self.slots.len() as u32 - 1
            }
        };
        TaskId { slot, generation: self.slots[slot as usize].generation }
    }

    fn get(&mut self, id: TaskId) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        (slot.generation == id.generation && !matches!(slot.state, State::Vacant)).then_some(slot)
    }

    fn vacate(&mut self, at: u32) {
        let slot = &mut self.slots[at as usize];
        slot.state = State::Vacant;
        slot.generation = slot.generation.wrapping_add(1);
        self.vacant.push(at);
    }
}

impl<B: Btl> Core<B> {
    /// Adds a task; `on` stays until it is over.
    pub(crate) fn spawn(&mut self, on: CommHandle, task: Task) -> TaskId {
        self.restless = true;
        self.spawn_stepping(on, task)
    }

    /// As [`spawn`](Core::spawn), for a task that has been stepped, and that nothing but messages of its communicator moves on.
    pub(crate) fn spawn_stepping(&mut self, on: CommHandle, task: Task) -> TaskId {
        if let Ok(comm) = self.comms.any_mut(on) {
            comm.users += 1;
        }
        let id = self.tasks.add(State::Running(task), on);
        self.tasks.active.push(id.slot);
        self.stepping = true;
        id
    }

    /// A task that is over already.
    pub(crate) fn spawn_over(&mut self, on: CommHandle, outcome: Outcome) -> TaskId {
        self.tasks.add(State::Over(outcome), on)
    }

    /// The outcome of a task; `None` while it is under way. After an answer the task is gone.
    pub fn test(&mut self, task: TaskId) -> Option<Result<Output, CoreError>> {
        let Some(slot) = self.tasks.get(task) else { return Some(Err(CoreError::NoSuchTask)) };
        // What somebody does who waits: little is moved.
        let State::Over(outcome) = &mut slot.state else { return None };
        let outcome = std::mem::replace(outcome, Ok(Output::Done));
        self.tasks.vacate(task.slot);
        Some(outcome)
    }

    /// Whether [`test`](Core::test) would answer.
    #[must_use]
    pub fn is_over(&self, task: TaskId) -> bool {
        self.tasks.slots.get(task.slot as usize).is_none_or(|slot| {
            slot.generation != task.generation
                || matches!(slot.state, State::Over(_) | State::Vacant)
        })
    }

    /// Lets go of a task: it runs on, unseen. A communicator that it makes is freed.
    pub fn detach(&mut self, task: TaskId) {
        if let Some(outcome) = self.test(task) {
            self.drop_outcome(outcome);
        } else if let Some(slot) = self.tasks.get(task) {
            slot.detached = true;
        }
    }

    fn drop_outcome(&mut self, outcome: Outcome) {
        if let Ok(Output::Comm(Some(comm))) = outcome {
            // It was made a moment ago, so it is there.
            let _ = self.free(comm);
        }
    }

    /// Moves all tasks on; how many ended.
    pub(crate) fn step_tasks(&mut self, now: Nanos) -> usize {
        let mut ended = 0;
        let mut at = 0;
        while at < self.tasks.active.len() {
            let index = self.tasks.active[at];
            let slot = &mut self.tasks.slots[index as usize];
            if let State::Running(Task::Agreement(task)) = &slot.state
                && task.waits_for().is_some_and(|which| !self.has_decided(which))
            {
                at += 1;
                continue;
            }
            let slot = &mut self.tasks.slots[index as usize];
            let id = TaskId { slot: index, generation: slot.generation };
            let outcome = match &mut slot.state {
                // The usual one, which is small.
                State::Running(Task::Collective(task)) => {
                    let mut out = task.take();
                    let done = out.poll(self, || now);
                    if done.is_none() {
                        self.tasks.slots[index as usize].state =
                            State::Running(Task::Collective(out));
                    }
                    done.map(|done| done.map(|()| Output::Done))
                }
                state => {
                    let State::Running(mut task) = std::mem::replace(state, State::Out) else {
                        unreachable!("active tasks run");
                    };
                    let outcome = task.step(id, self, now);
                    if outcome.is_none() {
                        self.tasks.slots[index as usize].state = State::Running(task);
                    }
                    outcome
                }
            };
            let slot = &mut self.tasks.slots[index as usize];
            let Some(outcome) = outcome else {
                at += 1;
                continue;
            };
            ended += 1;
            slot.state = State::Over(outcome);
            let (on, detached) = (slot.on, slot.detached);
            self.tasks.active.remove(at);
            if let Ok(comm) = self.comms.any_mut(on) {
                comm.users -= 1;
            }
            if detached {
                let Some(outcome) = self.test(id) else { continue };
                self.drop_outcome(outcome);
            }
        }
        ended
    }

    /// What is under way, for watchdogs.
    pub(crate) fn running(&self) -> impl Iterator<Item = (&'static str, CommHandle)> {
        let slots = self.tasks.active.iter().map(|&at| &self.tasks.slots[at as usize]);
        slots.filter_map(|slot| match &slot.state {
            State::Running(task) => Some((task.name(), slot.on)),
            _ => None,
        })
    }
}
