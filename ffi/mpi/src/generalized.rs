//! Generalized requests: operations of the user's that end like ours (MPI 5.0, §13.2). Their functions run with the engine
//! free.

use crate::prelude::*;
use crate::process::Inside;
use crate::request::{After, Ended, Operation, Request, unknown};

type QueryFn = unsafe extern "C" fn(*mut c_void, *mut MPI_Status) -> c_int;
type FreeFn = unsafe extern "C" fn(*mut c_void) -> c_int;
type CancelFn = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;

/// A generalized request.
#[derive(Clone, Copy)]
struct Generalized {
    query: QueryFn,
    free: FreeFn,
    cancel: CancelFn,
    extra: usize,
    complete: bool,
}

fn answer(code: c_int, what: &str) -> Result<()> {
    match code {
        MPI_SUCCESS => Ok(()),
        code => Err(fail(code, format!("the {what} function of a generalized request failed"))),
    }
}

impl Generalized {
    fn extra(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.extra)
    }

    /// What its end has to do outside: ask for the status, and free.
    fn last(self) -> After {
        Box::new(move |status: &mut MPI_Status| {
            *status = MPI_Status::EMPTY;
            // SAFETY: the user's functions, with what the standard says they get.
            unsafe {
                let asked = answer((self.query)(self.extra(), status), "query");
                let freed = answer((self.free)(self.extra()), "free");
                asked.and(freed)
            }
        })
    }
}

impl Operation for Generalized {
    fn poll(&mut self, _: &mut Inside) -> Option<Ended> {
        let after = self.complete.then(|| self.last())?;
        Some(Ended { after: Some(after), ..Ended::well(MPI_Status::EMPTY) })
    }

    fn free(self: Box<Self>, _: &mut Inside) -> Result<Option<After>> {
        // Freed before it is complete: the free function runs at once, for nobody can complete it any more by this handle.
        Ok(Some(Box::new(move |_: &mut MPI_Status| {
            // SAFETY: the user's function, with what the standard says it gets.
            unsafe { answer((self.free)(self.extra()), "free") }
        })))
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// The generalized request behind a handle.
fn find(inside: &mut Inside, handle: MPI_Request) -> Result<&mut Generalized> {
    let (request, _) = inside.requests.get(handle)?;
    let found = match request {
        Request::Other(operation, _) => operation.as_any().downcast_mut::<Generalized>(),
        _ => None,
    };
    found.ok_or_else(|| fail(MPI_ERR_REQUEST, "it is no generalized request"))
}

/// What `MPI_Cancel` does to a generalized request: its cancel function, to be run outside; `None` when it is none.
pub fn cancel(
    inside: &mut Inside,
    handle: MPI_Request,
) -> Option<impl FnOnce() -> Result<()> + use<>> {
    let found = *find(inside, handle).ok()?;
    Some(move || {
        // SAFETY: the user's function, with what the standard says it gets.
        unsafe { answer((found.cancel)(found.extra(), c_int::from(found.complete)), "cancel") }
    })
}

mpi! {
    fn MPI_Grequest_start(query_fn: QueryFn, free_fn: FreeFn, cancel_fn: CancelFn, extra_state: *mut c_void, request: *mut MPI_Request) on none {
        let generalized = Generalized {
            query: query_fn,
            free: free_fn,
            cancel: cancel_fn,
            extra: extra_state.expose_provenance(),
            complete: false,
        };
        let mut inside = process::enter()?;
        let made = inside.requests.insert(MPI_COMM_SELF, Request::Other(Box::new(generalized), true));
        // SAFETY: the caller's result.
        unsafe { request.write(made) };
        Ok(())
    }

    fn MPI_Grequest_complete(request: MPI_Request) on none {
        if request == MPI_REQUEST_NULL {
            return Err(unknown(request));
        }
        find(&mut *process::enter()?, request)?.complete = true;
        Ok(())
    }
}
