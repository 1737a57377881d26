//! Error handlers: which object has which (MPI 5.0, §9.3). Handlers of the user's run with no lock held and the engine free.

use crate::comm;
use crate::error::Target;
use crate::handle::Table;
use crate::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    pub handle: AtomicUsize,
    /// How often that handle was given out and not freed.
    pub refs: AtomicUsize,
}

impl User {
    /// Tells it.
    pub fn call(&self, target: Target, code: c_int) {
        let mut handle = match target {
            Target::None | Target::Ever | Target::Tool => MPI_COMM_SELF.0,
            Target::Comm(comm) => comm.0,
            Target::Session(session) => session.0,
            Target::NewComm(_) => MPI_COMM_NULL.0,
            Target::NewSession(_) => MPI_SESSION_NULL.0,
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
    /// The processes of the communicator end, or for a session this process.
    Abort,
    /// The call answers the code.
    Return,
    /// The user's function is called, then the call answers the code.
    User(Arc<User>),
}

/// Handlers that users made.
pub static HANDLERS: Table<Arc<User>> = Table::new();

/// How the launcher tells the initial error handler (`mpiexec -initial-errhandler`; MPI 5.0, §9.3 and 11.5).
const INITIAL: &str = "IRONWEAVE_INITIAL_ERRHANDLER";

/// The name of the initial error handler, where one was asked for.
#[must_use]
pub fn initial_name() -> Option<String> {
    std::env::var(INITIAL).ok()
}

impl Handler {
    /// The one that the predefined communicators begin with, and that is told of what no object has to do with before there are
    /// any.
    #[must_use]
    pub fn initial() -> Handler {
        match initial_name().as_deref() {
            Some("mpi_errors_return") => Handler::Return,
            Some("mpi_errors_abort") => Handler::Abort,
            _ => Handler::Fatal,
        }
    }

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

/// The handler that is due. Where there is no object, that of `MPI_COMM_SELF`; where that is not there either (before `MPI_Init`,
/// after `MPI_Finalize`, with sessions only), the initial one (§9.3).
#[must_use]
pub fn of(target: Target) -> Handler {
    let own = match target {
        Target::NewComm(handle) => Handler::of(handle, Kind::Comm).ok(),
        Target::NewSession(handle) => Handler::of(handle, Kind::Session).ok(),
        _ if !process::is_running() => None,
        Target::Comm(handle) => comm::handler(handle),
        Target::Session(handle) => crate::session::handler(handle),
        // Windows and files are to come.
        Target::None | Target::Ever | Target::Win(_) | Target::File(_) | Target::Tool => None,
    };
    own.or_else(|| comm::handler(MPI_COMM_SELF)).unwrap_or_else(Handler::initial)
}

/// Makes a handler of the user's.
pub fn create(kind: Kind, function: Function) -> MPI_Errhandler {
    let user =
        Arc::new(User { kind, function, handle: AtomicUsize::new(0), refs: AtomicUsize::new(1) });
    let handle = HANDLERS.insert(Arc::clone(&user));
    user.handle.store(handle, Ordering::Relaxed);
    MPI_Errhandler(handle)
}

/// A handle for what is attached to an object: one more to be freed.
#[must_use]
pub fn handle_of(handler: &Handler) -> MPI_Errhandler {
    match handler {
        Handler::Fatal => MPI_ERRORS_ARE_FATAL,
        Handler::Abort => MPI_ERRORS_ABORT,
        Handler::Return => MPI_ERRORS_RETURN,
        Handler::User(user) => {
            let handle = user.handle.load(Ordering::Relaxed);
            if HANDLERS.get(handle).is_some_and(|there| Arc::ptr_eq(there, user)) {
                user.refs.fetch_add(1, Ordering::Relaxed);
                return MPI_Errhandler(handle);
            }
            // Its handles were freed, and it lives on with the object.
            let handle = HANDLERS.insert(Arc::clone(user));
            user.handle.store(handle, Ordering::Relaxed);
            user.refs.store(1, Ordering::Relaxed);
            MPI_Errhandler(handle)
        }
    }
}

/// Frees a handle.
///
/// # Errors
/// `MPI_ERR_ERRHANDLER`.
pub fn free(handle: MPI_Errhandler) -> Result<()> {
    if matches!(handle, MPI_ERRORS_ARE_FATAL | MPI_ERRORS_ABORT | MPI_ERRORS_RETURN) {
        return Ok(());
    }
    let user = HANDLERS.get(handle.0).ok_or_else(|| invalid(handle))?;
    if user.refs.fetch_sub(1, Ordering::AcqRel) == 1 {
        HANDLERS.remove(handle.0);
    }
    Ok(())
}

mpi! {
    fn MPI_Comm_create_errhandler / MPI_Errhandler_create(function: Function, errhandler: *mut MPI_Errhandler) on none {
        // SAFETY: the caller's result.
        unsafe { errhandler.write(create(Kind::Comm, function)) };
        Ok(())
    }

    fn MPI_Comm_set_errhandler / MPI_Errhandler_set(comm: MPI_Comm, errhandler: MPI_Errhandler) on comm {
        let handler = Handler::of(errhandler, Kind::Comm)?;
        comm::get(comm)?.state().handler = handler;
        Ok(())
    }

    fn MPI_Comm_get_errhandler / MPI_Errhandler_get(comm: MPI_Comm, errhandler: *mut MPI_Errhandler) on comm {
        let handle = handle_of(&comm::get(comm)?.state().handler);
        // SAFETY: the caller's result.
        unsafe { errhandler.write(handle) };
        Ok(())
    }

    fn MPI_Comm_call_errhandler(comm: MPI_Comm, errorcode: c_int) on none {
        comm::get(comm)?;
        let error = fail(errorcode, "called by the program");
        crate::error::raise("MPI_Comm_call_errhandler", comm.into(), error);
        Ok(())
    }

    fn MPI_Errhandler_free(errhandler: *mut MPI_Errhandler) on ever {
        // SAFETY: the caller's handle.
        unsafe {
            free(*errhandler)?;
            errhandler.write(MPI_ERRHANDLER_NULL);
        }
        Ok(())
    }
}
