//! Probes, plain and matched (MPI 5.0, §3.8).

use crate::p2p::{MESSAGES, Matched, matching, source};
use crate::prelude::*;
use crate::{comm, status};

/// What a probe found: nothing yet, or a status; for matched ones with the message.
fn probe(
    inside: &mut process::Inside,
    rank: c_int,
    tag: c_int,
    comm: MPI_Comm,
    take: bool,
) -> Result<Option<(MPI_Message, MPI_Status)>> {
    let there = comm::get(comm)?;
    let tag = matching(tag)?;
    let Some(from) = source(rank, there)? else {
        if inside.engine.is_revoked(there.core)? {
            return Err(ironweave::Error::Revoked.into());
        }
        return Ok(Some((MPI_MESSAGE_NO_PROC, MPI_Status::NO_PROC)));
    };
    if !take {
        let found = inside.engine.pml.probe(there.p2p, from, tag)?;
        return Ok(found.map(|found| (MPI_MESSAGE_NULL, found.into())));
    }
    let found = inside.engine.pml.mprobe(there.p2p, from, tag)?;
    Ok(found.map(|(id, found)| (MPI_Message(MESSAGES.insert(Matched { id, comm })), found.into())))
}

fn wait(rank: c_int, tag: c_int, comm: MPI_Comm, take: bool) -> Result<(MPI_Message, MPI_Status)> {
    process::wait(|inside| probe(inside, rank, tag, comm, take).transpose())
}

fn test(
    rank: c_int,
    tag: c_int,
    comm: MPI_Comm,
    take: bool,
) -> Result<Option<(MPI_Message, MPI_Status)>> {
    let mut inside = process::enter()?;
    inside.progress();
    probe(&mut inside, rank, tag, comm, take)
}

mpi! {
    fn MPI_Probe(source: c_int, tag: c_int, comm: MPI_Comm, out: *mut MPI_Status) on comm {
        let (_, found) = wait(source, tag, comm, false)?;
        // SAFETY: the caller's result.
        unsafe { status::give(|| found, out) };
        Ok(())
    }

    fn MPI_Iprobe(source: c_int, tag: c_int, comm: MPI_Comm, flag: *mut c_int, out: *mut MPI_Status) on comm {
        let found = test(source, tag, comm, false)?;
        // SAFETY: the caller's results.
        unsafe {
            flag.write(c_int::from(found.is_some()));
            if let Some((_, found)) = found {
                status::give(|| found, out);
            }
        }
        Ok(())
    }

    fn MPI_Mprobe(source: c_int, tag: c_int, comm: MPI_Comm, message: *mut MPI_Message, out: *mut MPI_Status) on comm {
        let (taken, found) = wait(source, tag, comm, true)?;
        // SAFETY: the caller's results.
        unsafe {
            message.write(taken);
            status::give(|| found, out);
        }
        Ok(())
    }

    fn MPI_Improbe(source: c_int, tag: c_int, comm: MPI_Comm, flag: *mut c_int, message: *mut MPI_Message, out: *mut MPI_Status) on comm {
        let found = test(source, tag, comm, true)?;
        // SAFETY: the caller's results.
        unsafe {
            flag.write(c_int::from(found.is_some()));
            if let Some((taken, found)) = found {
                message.write(taken);
                status::give(|| found, out);
            }
        }
        Ok(())
    }
}
