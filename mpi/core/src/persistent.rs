//! Persistent collective operations (MPI 5.0, §6.13): made once, run any number of times, each run a task.
//!
//! An operation lies here while it is inactive; its run's task takes it along, and brings it back when it is over, unless it
//! was freed meanwhile.

use crate::collective::Collective;
use crate::task::{Outcome, Output, Task, TaskId};
use crate::{CommHandle, Core, CoreError};
use ironweave_btl::Btl;
use ironweave_coll::{Call, CollError, Memory, Reduction};
use ironweave_ft::Nanos;

/// A persistent collective operation: slot and generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PersistentId {
    slot: u32,
    generation: u32,
}

enum State {
    Vacant,
    Inactive(Collective),
    /// Its run has it.
    Active,
}

struct Slot {
    generation: u32,
    state: State,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Persistents {
    slots: Vec<Slot>,
    vacant: Vec<u32>,
}

impl Persistents {
    fn add(&mut self, collective: Collective) -> PersistentId {
        let state = State::Inactive(collective);
        let slot = match self.vacant.pop() {
            Some(at) => {
                self.slots[at as usize].state = state;
                at
            }
            None => {
                self.slots.push(Slot { generation: 0, state });
                self.slots.len() as u32 - 1
            }
        };
        PersistentId { slot, generation: self.slots[slot as usize].generation }
    }

    fn state(&mut self, id: PersistentId) -> Option<&mut State> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        let is_here = slot.generation == id.generation && !matches!(slot.state, State::Vacant);
        is_here.then_some(&mut slot.state)
    }

    /// Takes an inactive one out, for a run.
    fn take(&mut self, id: PersistentId) -> Result<Collective, CoreError> {
        let state = self.state(id).ok_or(CoreError::NoSuchTask)?;
        match std::mem::replace(state, State::Active) {
            State::Inactive(collective) => Ok(collective),
            _ => Err(CoreError::Collective(CollError::Active)),
        }
    }

    /// Its run is over. One that was freed goes.
    fn bring_back(&mut self, id: PersistentId, collective: Collective) {
        if let Some(state) = self.state(id) {
            *state = State::Inactive(collective);
        }
    }

    fn remove(&mut self, id: PersistentId) {
        let Some(state) = self.state(id) else { return };
        *state = State::Vacant;
        let slot = &mut self.slots[id.slot as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.vacant.push(id.slot);
    }
}

/// A run under way.
pub(crate) struct Run {
    id: PersistentId,
    /// Until it is over.
    collective: Option<Collective>,
}

impl Run {
    pub fn step<B: Btl>(&mut self, core: &mut Core<B>, now: Nanos) -> Option<Outcome> {
        let ended = self.collective.as_mut()?.poll(core, || now)?;
        core.persistents.bring_back(self.id, self.collective.take()?);
        Some(ended.map(|()| Output::Done))
    }
}

impl<B: Btl> Core<B> {
    /// Makes a persistent collective operation, inactive, whose runs are tasks. All members make the same ones in the same
    /// order; runs of different ones begin in any order.
    ///
    /// # Errors
    /// As [`persistent_collective`](Core::persistent_collective).
    pub fn collective_init(
        &mut self,
        comm: CommHandle,
        call: &Call,
    ) -> Result<PersistentId, CoreError> {
        let collective = self.persistent_collective(comm, call)?;
        Ok(self.persistents.add(collective))
    }

    /// Begins a run of it.
    ///
    /// # Errors
    /// As [`collective`](Core::collective), and it stays inactive; [`CollError::Active`] during a run;
    /// [`CoreError::NoSuchTask`].
    pub fn collective_start(
        &mut self,
        id: PersistentId,
        memory: Memory,
        reduction: Option<&Reduction>,
        now: Nanos,
    ) -> Result<TaskId, CoreError> {
        let mut collective = self.persistents.take(id)?;
        if let Err(error) = collective.restart(self, memory, reduction) {
            self.persistents.bring_back(id, collective);
            return Err(error);
        }
        let on = collective.comm();
        let task = self.spawn(on, Task::Persistent(Run { id, collective: Some(collective) }));
        self.attend(now);
        Ok(task)
    }

    /// Lets go of it; a run that is under way goes on to its end.
    pub fn collective_free(&mut self, id: PersistentId) {
        self.persistents.remove(id);
    }
}
