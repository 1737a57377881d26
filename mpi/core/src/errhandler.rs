//! Error handlers: what a communicator does about an error (MPI standard 5.0, 9.3). New communicators inherit them.
//!
//! Nothing here ends the process or calls a handler: what is to be done goes back to the caller ([`Raised`]), who holds no
//! lock then (law 3: ending the process is the business of whoever owns it).

use crate::CommHandle;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// A handler of the user's.
pub type UserHandler = Arc<dyn Fn(CommHandle, &(dyn Error + 'static)) + Send + Sync>;

/// What a communicator does about an error.
#[derive(Clone, Default)]
pub enum ErrorHandler {
    /// The error ends the job (MPI's default).
    #[default]
    Fatal,
    /// The call answers it.
    Return,
    /// It is handed to the user's function, then the call answers it.
    User(UserHandler),
}

/// What the caller has to do about an error.
pub enum Raised {
    /// Print this and end the job.
    Fatal(String),
    /// Answer the error.
    Return,
    /// Call this, then answer the error.
    Call(UserHandler),
}

impl ErrorHandler {
    /// What is to be done about `error` of the call `function` on the communicator called `comm`, of which this process is
    /// `rank`.
    #[must_use]
    pub fn raise(
        &self,
        rank: u32,
        comm: impl FnOnce() -> String,
        function: &str,
        error: &dyn Error,
    ) -> Raised {
        match self {
            ErrorHandler::Fatal => {
                let comm = comm();
                let text = format!("rank {rank}: {function} on communicator {comm}: {error}");
                Raised::Fatal(text)
            }
            ErrorHandler::Return => Raised::Return,
            ErrorHandler::User(handler) => Raised::Call(Arc::clone(handler)),
        }
    }
}

impl fmt::Debug for ErrorHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorHandler::Fatal => "Fatal",
            ErrorHandler::Return => "Return",
            ErrorHandler::User(_) => "User",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CoreError;
    use std::sync::Mutex;

    #[test]
    fn each_kind_says_what_to_do() {
        let error = CoreError::ProcFailed { rank: 3 };
        let world = || String::from("world");
        let fatal = ErrorHandler::default().raise(1, world, "barrier", &error);
        let Raised::Fatal(text) = fatal else { panic!("the default is fatal") };
        assert_eq!(text, "rank 1: barrier on communicator world: the process of rank 3 has failed");
        assert!(matches!(ErrorHandler::Return.raise(1, world, "send", &error), Raised::Return));
        let seen = Arc::new(Mutex::new(String::new()));
        let note = Arc::clone(&seen);
        let user = ErrorHandler::User(Arc::new(move |_, error: &(dyn Error + 'static)| {
            *note.lock().expect("nobody panics with it") = error.to_string();
        }));
        let Raised::Call(handler) = user.raise(1, world, "send", &error) else {
            panic!("a user's")
        };
        handler(CommHandle::NONE, &error);
        assert_eq!(*seen.lock().expect("nobody panics with it"), error.to_string());
    }
}
