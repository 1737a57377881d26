//! User-level failure mitigation: revoke, shrink, agree, and what is known of failures (ULFM, both generations of names; seed 000).
//! Those that the forum has voted into the standard have their `MPI_` names too.

use crate::construct::{Heritage, create, icreate};
use crate::prelude::*;
use crate::process::Inside;
use crate::request::Request;
use crate::{comm, group};
use ironweave_core::{Agreeing, Output};

/// An agreement's value, and the error that goes with it: some failure is not acknowledged by all.
fn agreed(output: Output) -> (c_int, Result<()>) {
    match output {
        Output::Agreed { flag, failure } => {
            (flag as u32 as c_int, failure.map_or(Ok(()), |error| Err(error.into())))
        }
        Output::Comm(_) | Output::Done => (0, Err(fail(MPI_ERR_INTERN, "not an agreement"))),
    }
}

/// The bits of a flag, as all members see them.
fn bits(flag: c_int) -> u64 {
    u64::from(flag as u32)
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
        let begun = {
            let mut inside = process::enter()?;
            // SAFETY: the caller's value.
            inside.engine.begin_agreement(there.core, bits(unsafe { *flag }))?
        };
        let output = match begun {
            Agreeing::Over(output) => output,
            Agreeing::Waits(task) => process::wait(|inside| {
                inside.engine.test(task).map(|ended| ended.map_err(Fail::from))
            })?,
        };
        let (value, answer) = agreed(output);
        // SAFETY: the caller's result.
        unsafe { flag.write(value) };
        answer
    }

    fn MPIX_Comm_iagree(comm: MPI_Comm, flag: *mut c_int, request: *mut MPI_Request) on comm {
        let there = comm::get(comm)?;
        let mut inside = process::enter()?;
        let now = inside.engine.now();
        // SAFETY: the caller's value.
        let task = inside.engine.iagree(there.core, bits(unsafe { *flag }), now)?;
        let flag = flag.expose_provenance();
        let land = move |_: &mut Inside, output: Output| {
            let (value, answer) = agreed(output);
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
