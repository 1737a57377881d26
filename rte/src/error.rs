//! What can go wrong between a process and its job, in words a person can act on.

use std::io;

/// An error of the run-time environment.
#[derive(Debug, thiserror::Error)]
pub enum RteError {
    /// The launcher's variables are contradictory or unusable.
    #[error("the launcher's environment is unusable: {0}")]
    Environment(String),
    /// The process manager broke the PMI-1 protocol.
    #[error("PMI: {0}")]
    Protocol(String),
    /// The process manager answered with an error.
    #[error("PMI: the process manager refused {request}: {reason}")]
    Refused {
        /// What was asked.
        request: &'static str,
        /// Its `msg`, or its `rc` when it gave none.
        reason: String,
    },
    /// The launcher is gone; this process is about to be ended as well.
    #[error("the launcher is gone (its PMI connection closed)")]
    LauncherGone,
    /// A key, a value or a rank outside what the process manager can hold.
    #[error("{0}")]
    Limit(String),
    /// A parameter that does not exist or has an impossible value.
    #[error(transparent)]
    Param(#[from] crate::params::ParamError),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
}

impl RteError {
    /// Wraps a failed system call with what was being done.
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> RteError {
        RteError::System { what: what.into(), source: source.into() }
    }
}

/// The result of an operation of the run-time environment.
pub type Result<T, E = RteError> = std::result::Result<T, E>;
