//! User-level failure mitigation: revoke, shrink, agree, and what is known of failures (ULFM, both generations of names; seed 000).
//! Those that the forum has voted into the standard have their `MPI_` names too.

use crate::comm::Comm;
use crate::construct::{Heritage, create, icreate};
use crate::prelude::*;
use crate::process::Inside;
use crate::request::Request;
use crate::{comm, group};
use ironweave_core::{Agreeing, Output};

/// Where flags are in the 64 bits that all members agree on. On an inter-communicator each gets the AND of what the remote group gave,
/// so either group has a half of its own.
#[derive(Clone, Copy)]
struct Halves {
    given: u32,
    taken: u32,
}

impl Halves {
    fn of(inside: &Inside, comm: &Comm) -> Result<Halves> {
        if comm.remote.is_none() {
            return Ok(Halves { given: 0, taken: 0 });
        }
        let first = inside.engine.group(comm.core)?.process(0);
        // The groups have nobody in common: all members see the same one as the lower.
        let is_lower =
            first < inside.engine.remote_group(comm.core)?.and_then(|group| group.process(0));
        Ok(if is_lower { Halves { given: 0, taken: 32 } } else { Halves { given: 32, taken: 0 } })
    }

    /// What to contribute: nothing to the other half.
    fn give(self, flag: c_int) -> u64 {
        !(u64::from(!flag as u32) << self.given)
    }

    /// An agreement's value, and the error that goes with it: some failure is not acknowledged by all.
    fn take(self, output: Output) -> (c_int, Result<()>) {
        match output {
            Output::Agreed { flag, failure } => {
                let flag = (flag >> self.taken) as u32 as c_int;
                (flag, failure.map_or(Ok(()), |error| Err(error.into())))
            }
            Output::Comm(_) | Output::Done => (0, Err(fail(MPI_ERR_INTERN, "not an agreement"))),
        }
    }
}

mpi! {
    fn MPIX_Comm_revoke / MPI_Comm_revoke(comm: MPI_Comm) on comm {
        let there = comm::get(comm)?;
        let mut inside = process::enter()?;
        let now = inside.engine.now();
        inside.engine.revoke(there.core, now)?;
        inside.progress();
        Ok(())
    }

    fn MPIX_Comm_is_revoked / MPI_Comm_is_revoked(comm: MPI_Comm, flag: *mut c_int) on comm {
        let there = comm::get(comm)?;
        let mut inside = process::enter()?;
        inside.progress();
        // SAFETY: the caller's result.
        unsafe { flag.write(c_int::from(inside.engine.is_revoked(there.core)?)) };
        Ok(())
    }

    fn MPIX_Comm_shrink(comm: MPI_Comm, newcomm: *mut MPI_Comm) on comm {
        let there = comm::get(comm)?;
        let made = create(comm, Heritage::default(), |inside| {
            let now = inside.engine.now();
            inside.engine.ishrink(there.core, now)
        })?;
        // SAFETY: the caller's result.
        unsafe { newcomm.write(made) };
        Ok(())
    }

    fn MPIX_Comm_ishrink(comm: MPI_Comm, newcomm: *mut MPI_Comm, request: *mut MPI_Request) on comm {
        let there = comm::get(comm)?;
        // SAFETY: the caller's results.
        unsafe {
            icreate(comm, Heritage::default(), newcomm, request, |inside| {
                let now = inside.engine.now();
                inside.engine.ishrink(there.core, now)
            })
        }
    }

    fn MPIX_Comm_agree(comm: MPI_Comm, flag: *mut c_int) on comm {
        let there = comm::get(comm)?;
        let (halves, begun) = {
            let mut inside = process::enter()?;
            let halves = Halves::of(&inside, there)?;
            // SAFETY: the caller's value.
            let given = halves.give(unsafe { *flag });
            (halves, inside.engine.begin_agreement(there.core, given)?)
        };
        let output = match begun {
            Agreeing::Over(output) => output,
            Agreeing::Waits(task) => process::wait(|inside| {
                inside.engine.test(task).map(|ended| ended.map_err(Fail::from))
            })?,
        };
        let (value, answer) = halves.take(output);
        // SAFETY: the caller's result.
        unsafe { flag.write(value) };
        answer
    }

    fn MPIX_Comm_iagree(comm: MPI_Comm, flag: *mut c_int, request: *mut MPI_Request) on comm {
        let there = comm::get(comm)?;
        let mut inside = process::enter()?;
        let now = inside.engine.now();
        let halves = Halves::of(&inside, there)?;
        // SAFETY: the caller's value.
        let task = inside.engine.iagree(there.core, halves.give(unsafe { *flag }), now)?;
        let flag = flag.expose_provenance();
        let land = move |_: &mut Inside, output: Output| {
            let (value, answer) = halves.take(output);
            // SAFETY: the caller's, until the request is over.
            unsafe { std::ptr::with_exposed_provenance_mut::<c_int>(flag).write(value) };
            answer.map(|()| None)
        };
        let made = inside.requests.insert(comm, Request::Task(task, Box::new(land)));
        // SAFETY: the caller's result.
        unsafe { request.write(made) };
        Ok(())
    }

    fn MPIX_Comm_failure_ack(comm: MPI_Comm) on comm {
        let there = comm::get(comm)?;
        let mut inside = process::enter()?;
        inside.progress();
        inside.engine.ack_failed(there.core)?;
        Ok(())
    }

    fn MPIX_Comm_ack_failed / MPI_Comm_ack_failed(comm: MPI_Comm, num_to_ack: c_int, num_acked: *mut c_int) on comm {
        let there = comm::get(comm)?;
        let most = crate::count::count("num_to_ack", num_to_ack).map_err(|error| error.recoded(MPI_ERR_ARG))?;
        let mut inside = process::enter()?;
        let acked = inside.engine.ack_failed_up_to(there.core, most)?;
        // SAFETY: the caller's result.
        unsafe { num_acked.write(acked as c_int) };
        Ok(())
    }

    fn MPIX_Comm_failure_get_acked(comm: MPI_Comm, failedgrp: *mut MPI_Group) on comm {
        let there = comm::get(comm)?;
        let acked = process::enter()?.engine.acked(there.core)?;
        // SAFETY: the caller's result.
        unsafe { failedgrp.write(group::adopt(acked)) };
        Ok(())
    }

    fn MPIX_Comm_get_failed / MPI_Comm_get_failed(comm: MPI_Comm, failedgrp: *mut MPI_Group) on comm {
        let there = comm::get(comm)?;
        let mut inside = process::enter()?;
        inside.progress();
        let failed = inside.engine.failed(there.core)?;
        // SAFETY: the caller's result.
        unsafe { failedgrp.write(group::adopt(failed)) };
        Ok(())
    }
}
