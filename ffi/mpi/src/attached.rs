//! Buffers that users attach for buffered sends, to the process, a communicator or a session (MPI 5.0, §3.6). Buffered sends are
//! copied by the engine: these are kept account of, and not needed.

use crate::comm;
use crate::prelude::*;
use crate::process::Inside;
use crate::request::{self, Attached, Ended, Operation, Request};

fn attach(start: usize, len: i64) -> Result<()> {
    attach_to(&mut process::enter()?.attached, start, len)
}

/// Attaches a buffer where none is.
pub(crate) fn attach_to(at: &mut Option<Attached>, start: usize, len: i64) -> Result<()> {
    if len < 0 {
        return Err(fail(MPI_ERR_ARG, format!("the buffer's size is {len}, which is negative")));
    }
    if at.is_some() {
        return Err(fail(MPI_ERR_BUFFER, "a buffer is attached already"));
    }
    *at = Some(Attached { start, len });
    Ok(())
}

/// [`flush`] as a request.
pub(crate) fn iflush(comm: MPI_Comm) -> Result<MPI_Request> {
    let mut inside = process::enter()?;
    Ok(inside.requests.insert(comm, Request::Other(Box::new(Flush), true)))
}

struct Flush;

impl Operation for Flush {
    fn poll(&mut self, inside: &mut Inside) -> Option<Ended> {
        (inside.engine.pml.unflushed() == 0).then(|| Ended::well(MPI_Status::EMPTY))
    }

    fn free(self: Box<Self>, _: &mut Inside) -> Result<Option<request::After>> {
        Ok(None)
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// Buffered sends are the engine's own: they need no buffer, but the standard promises that they are out (§3.6.1).
pub(crate) fn flush() -> Result<()> {
    process::wait(|inside| (inside.engine.pml.unflushed() == 0).then_some(Ok(())))
}

fn detach() -> Result<Attached> {
    flush()?;
    let mut inside = process::enter()?;
    Ok(inside.attached.take().unwrap_or(Attached { start: 0, len: 0 }))
}

mpi! {
    fn MPI_Buffer_attach / MPI_Buffer_attach_c(buffer: *mut c_void, size: Count) on none {
        attach(buffer as usize, size.wide())
    }

    fn MPI_Buffer_detach / MPI_Buffer_detach_c(buffer_addr: *mut c_void, size: *mut Count) on none {
        let Attached { start, len } = detach()?;
        // SAFETY: the caller's results.
        unsafe {
            buffer_addr.cast::<usize>().write(start);
            size.write(WriteCount::narrow(len));
        }
        Ok(())
    }

    fn MPI_Buffer_flush() on none {
        flush()
    }

    fn MPI_Buffer_iflush(request: *mut MPI_Request) on none {
        // SAFETY: the caller's result.
        unsafe { request.write(iflush(MPI_COMM_SELF)?) };
        Ok(())
    }

    fn MPI_Comm_attach_buffer / MPI_Comm_attach_buffer_c(comm: MPI_Comm, buffer: *mut c_void, size: Count) on comm {
        let there = comm::get(comm)?;
        let mut state = there.state();
        attach_to(&mut state.attached, buffer as usize, size.wide())
    }

    fn MPI_Comm_detach_buffer / MPI_Comm_detach_buffer_c(comm: MPI_Comm, buffer_addr: *mut c_void, size: *mut Count) on comm {
        let there = comm::get(comm)?;
        flush()?;
        let Attached { start, len } = there.state().attached.take().unwrap_or(Attached { start: 0, len: 0 });
        // SAFETY: the caller's results.
        unsafe {
            buffer_addr.cast::<usize>().write(start);
            size.write(WriteCount::narrow(len));
        }
        Ok(())
    }

    fn MPI_Comm_flush_buffer(comm: MPI_Comm) on comm {
        comm::get(comm)?;
        flush()
    }

    fn MPI_Comm_iflush_buffer(comm: MPI_Comm, request: *mut MPI_Request) on comm {
        comm::get(comm)?;
        // SAFETY: the caller's result.
        unsafe { request.write(iflush(comm)?) };
        Ok(())
    }
}
