//! Error handlers: which object has which (MPI 5.0, §9.3). Handlers of the user's run with no lock held and the engine free.

use crate::abi::*;
use crate::comm;
use crate::error::{Fail, Result, Target, fail};
use crate::handle::Table;
use std::ffi::c_int;
use std::sync::Arc;

/// `MPI_Comm_errhandler_function`; those of sessions, windows and files take their own handle in the same way.
pub type Function = unsafe extern "C" fn(*mut usize, *mut c_int, ...);

/// Whose handlers a function is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Communicators.
    Comm,
    /// Sessions.
    Session,
    /// Windows.
    Win,
    /// Files.
    File,
}

/// A handler of the user's.
#[derive(Debug)]
pub struct User {
    /// For which objects.
    pub kind: Kind,
    /// What it calls.
    pub function: Function,
    /// By which handle it was attached: `MPI_Comm_get_errhandler` answers it.
    pub handle: std::sync::atomic::AtomicUsize,
}

impl User {
    /// Tells it.
    pub fn call(&self, target: Target, code: c_int) {
        let mut handle = match target {
            Target::None => MPI_COMM_SELF.0,
            Target::Comm(comm) => comm.0,
            Target::Session(session) => session.0,
            Target::Win(win) => win.0,
            Target::File(file) => file.0,
        };
        let mut code = code;
        // SAFETY: the user made the handler of this function, for objects of this kind.
        unsafe { (self.function)(&raw mut handle, &raw mut code) }
    }
}

/// What an object does about errors.
#[derive(Clone, Debug)]
pub enum Handler {
    /// The job ends.
    Fatal,
    /// The processes of the communicator end; here that is the job.
    Abort,
    /// The call answers the code.
    Return,
    /// The user's function is called, then the call answers the code.
    User(Arc<User>),
}

/// Handlers that users made.
pub static HANDLERS: Table<Arc<User>> = Table::new();

impl Handler {
    /// The handler behind a handle, for objects of `kind`.
    ///
    /// # Errors
    /// `MPI_ERR_ERRHANDLER`; `MPI_ERR_ARG` for a handler of other objects.
    pub fn of(handle: MPI_Errhandler, kind: Kind) -> Result<Handler> {
        match handle {
            MPI_ERRORS_ARE_FATAL => Ok(Handler::Fatal),
            MPI_ERRORS_ABORT => Ok(Handler::Abort),
            MPI_ERRORS_RETURN => Ok(Handler::Return),
            MPI_Errhandler(word) => match HANDLERS.get(word) {
                Some(user) if user.kind == kind => Ok(Handler::User(Arc::clone(user))),
                Some(user) => Err(fail(
                    MPI_ERR_ARG,
                    format!("the error handler is for {:?} objects, not {kind:?}", user.kind),
                )),
                None => Err(invalid(handle)),
            },
        }
    }
}

/// No error handler has this handle.
#[must_use]
pub fn invalid(handle: MPI_Errhandler) -> Fail {
    fail(MPI_ERR_ERRHANDLER, format!("{:#x} is no error handler", handle.0))
}

/// The handler that is due. Where the object is none, that of `MPI_COMM_SELF`.
#[must_use]
pub fn of(target: Target) -> Handler {
    let own = match target {
        Target::Comm(handle) => comm::get(handle).ok().map(|there| there.state().handler.clone()),
        // Sessions bring their own; windows and files are to come.
        Target::None | Target::Session(_) | Target::Win(_) | Target::File(_) => None,
    };
    own.or_else(|| comm::get(MPI_COMM_SELF).ok().map(|there| there.state().handler.clone()))
        .unwrap_or(Handler::Fatal)
}
