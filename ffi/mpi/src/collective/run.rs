//! The three ways to run a collective: to its end, in a request, and over and over (MPI 5.0, §6.12 and 6.13).

use super::side::Side;
use crate::prelude::*;
use crate::process::Inside;
use crate::request::{self, After, Ended, Land, Operation, Request, SENT};
use crate::{comm, comm::Comm};
use ironweave::raw::Unfinished;
use ironweave_coll::{Call, Memory, Reduction};
use ironweave_core::{Collective, CoreError};

/// A collective with everything it needs.
pub struct Prepared {
    pub call: Call,
    pub send: Side,
    pub recv: Side,
    pub reduction: Option<Reduction>,
    /// What came does not go home: it was no receive (the root of a broadcast).
    pub keep: bool,
}

impl Prepared {
    pub fn new(call: Call, send: Side, recv: Side) -> Prepared {
        Prepared { call, send, recv, reduction: None, keep: false }
    }

    /// # Safety
    /// The run is over before `self` goes.
    unsafe fn memory(&self) -> Memory {
        // SAFETY: this function's contract.
        unsafe { Memory { send: self.send.lend(), recv: self.recv.lend_mut() } }
    }

    fn land(&mut self) {
        if !self.keep {
            self.recv.land();
        }
    }
}

/// Runs to the end.
pub fn blocking(
    comm: MPI_Comm,
    prepare: impl FnOnce(&'static Comm) -> Result<Prepared>,
) -> Result<()> {
    process::check()?;
    let there = comm::get(comm)?;
    let mut prepared = prepare(there);
    // Used where it was made: words that were just written piece by piece are slow to move.
    let Ok(ready) = &mut prepared else { return prepared.map(drop) };
    let inside = process::enter()?;
    // SAFETY: `collect` ends only when no message of it is under way, or says so.
    let memory = unsafe { ready.memory() };
    let reduction = ready.reduction.as_ref();
    match process::collect(inside, there.core, &ready.call, memory, reduction) {
        Ok(()) => {
            ready.land();
            Ok(())
        }
        Err(error) => {
            if matches!(*error, Unfinished::GivenUp) {
                std::mem::forget(prepared); // messages may still use the memory (law 2)
            }
            unfinished(*error)
        }
    }
}

/// Why a collective did not succeed.
#[cold]
pub fn unfinished(why: Unfinished) -> Result<()> {
    match why {
        Unfinished::Over(error) => Err(error.into()),
        Unfinished::GivenUp => {
            process::check()?;
            Err(ironweave::Error::Fenced.into())
        }
    }
}

/// Begins, and gives a request.
///
/// # Safety
/// `request_out` is valid.
pub unsafe fn immediate(
    comm: MPI_Comm,
    prepare: impl FnOnce(&'static Comm) -> Result<Prepared>,
    request_out: *mut MPI_Request,
) -> Result<()> {
    process::check()?;
    let there = comm::get(comm)?;
    let mut prepared = prepare(there)?;
    let mut inside = process::enter()?;
    // SAFETY: `prepared` is in the request, which stays until the operation is over.
    let memory = unsafe { prepared.memory() };
    let reduction = prepared.reduction.as_ref();
    let made = match inside.engine.icollect(there.core, &prepared.call, &memory, reduction) {
        Ok(None) => {
            prepared.land();
            SENT
        }
        begun => {
            let land: Land = Box::new(move |_, _| {
                prepared.land();
                Ok(None)
            });
            let task = begun.transpose().map(|task| task.map(|task| Request::Task(task, land)));
            let task = task.unwrap_or_else(|| Err(CoreError::NoSuchTask));
            request::deferred(&mut inside, comm, task.map_err(Fail::from))?
        }
    };
    // SAFETY: this function's contract.
    unsafe { request_out.write(made) };
    Ok(())
}

/// Makes a persistent request, inactive. The arguments are looked at now: arrays and datatypes may go, the buffers stay.
///
/// # Safety
/// `request` is valid.
pub unsafe fn persistent(
    comm: MPI_Comm,
    prepare: impl FnOnce(&'static Comm) -> Result<Prepared>,
    request: *mut MPI_Request,
) -> Result<()> {
    process::check()?;
    let there = comm::get(comm)?;
    let prepared = prepare(there)?;
    let mut inside = process::enter()?;
    let collective = inside.engine.persistent_collective(there.core, &prepared.call)?;
    let again = Again { collective, prepared, running: false, ended: None };
    let made = inside.requests.insert(comm, Request::Other(Box::new(again), false));
    // SAFETY: this function's contract.
    unsafe { request.write(made) };
    Ok(())
}

/// A persistent collective.
struct Again {
    collective: Collective,
    prepared: Prepared,
    running: bool,
    /// It was over when it began.
    ended: Option<std::result::Result<(), CoreError>>,
}

impl Operation for Again {
    fn poll(&mut self, inside: &mut Inside) -> Option<Ended> {
        let clock = inside.engine.clock();
        let ended = match self.ended.take() {
            Some(ended) => ended,
            None => self.collective.poll(&mut inside.engine, clock)?,
        };
        self.running = false;
        Some(Ended::with(match ended {
            Ok(()) => {
                self.prepared.land();
                Ok(())
            }
            Err(error) => Err(error.into()),
        }))
    }

    fn start(&mut self, inside: &mut Inside) -> Result<()> {
        inside.engine.listen();
        self.prepared.send.refresh();
        self.prepared.recv.refresh();
        // SAFETY: it is kept until the run is over.
        let memory = unsafe { self.prepared.memory() };
        let reduction = self.prepared.reduction.as_ref();
        self.collective.restart(&mut inside.engine, memory, reduction)?;
        self.running = true;
        // Its first messages go out now.
        let clock = inside.engine.clock();
        self.ended = self.collective.poll(&mut inside.engine, clock);
        Ok(())
    }

    fn is_persistent(&self) -> bool {
        true
    }

    fn is_chore(&self) -> bool {
        true
    }

    fn free(self: Box<Self>, _: &mut Inside) -> Result<Option<After>> {
        if self.running {
            // Nobody will ask, and messages may still use the memory.
            std::mem::forget(self);
        }
        Ok(None)
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}
