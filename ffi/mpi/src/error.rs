//! Errors on their way to the caller: classes, texts, and the boundary where they meet error handlers (MPI 5.0, chapter 9).
//!
//! An error code is an error class, or a code of the user's. The text of an error goes to whoever prints it; callers get the
//! code. No panic crosses the boundary.

use crate::abi::*;
use crate::{comm, errhandler, process};
use std::any::TypeId;
use std::ffi::{c_char, c_int};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a body answers.
pub type Result<T> = std::result::Result<T, Fail>;

/// Why a call did not succeed. One word, so that success costs nothing.
#[derive(Debug)]
pub struct Fail(Box<Failure>);

#[derive(Debug)]
struct Failure {
    code: c_int,
    text: String,
    on: Option<Target>,
    /// What the caller gets, when that is not the code that the error handler hears.
    answer: Option<c_int>,
}

/// An error of this class, or user's code.
#[cold]
#[must_use]
pub fn fail(code: c_int, text: impl Into<String>) -> Fail {
    Fail(Box::new(Failure { code, text: text.into(), on: None, answer: None }))
}

impl Fail {
    /// The code that the caller gets.
    #[must_use]
    pub fn code(&self) -> c_int {
        self.0.code
    }

    /// What went wrong.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The error handler of this object is told, whatever the call was made on.
    #[must_use]
    pub fn on(mut self, target: impl Into<Target>) -> Fail {
        self.0.on.get_or_insert(target.into());
        self
    }

    /// The same error under another code.
    #[must_use]
    pub fn recoded(mut self, code: c_int) -> Fail {
        self.0.code = code;
        self
    }

    /// The error handler hears this error's own code, and the caller gets another: calls on several requests answer
    /// `MPI_ERR_IN_STATUS`.
    #[must_use]
    pub fn answering(mut self, code: c_int) -> Fail {
        self.0.answer = Some(code);
        self
    }

    /// Whether a failure or a revocation is the cause: what waits for others beside it may wait in vain.
    #[must_use]
    pub fn is_interruption(&self) -> bool {
        let code = self.0.code;
        matches!(code, MPIX_ERR_PROC_FAILED | MPIX_ERR_PROC_FAILED_PENDING | MPIX_ERR_REVOKED)
    }
}

impl fmt::Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl From<ironweave::Error> for Fail {
    #[cold]
    fn from(error: ironweave::Error) -> Fail {
        use ironweave::Error;
        let code = match &error {
            Error::ProcFailed { .. } | Error::Unreachable { .. } => MPIX_ERR_PROC_FAILED,
            Error::Interrupted | Error::Fenced => MPIX_ERR_PROC_FAILED,
            Error::ProcFailedPending => MPIX_ERR_PROC_FAILED_PENDING,
            Error::Revoked => MPIX_ERR_REVOKED,
            Error::Truncated { .. } => MPI_ERR_TRUNCATE,
            Error::InvalidRank { .. } => MPI_ERR_RANK,
            Error::InvalidTag { .. } => MPI_ERR_TAG,
            Error::Argument(_) => MPI_ERR_ARG,
            Error::Unsupported(_) => MPI_ERR_UNSUPPORTED_OPERATION,
            Error::Poisoned => MPI_ERR_INTERN,
            _ => MPI_ERR_OTHER,
        };
        fail(code, error.to_string())
    }
}

impl From<ironweave_core::CoreError> for Fail {
    #[cold]
    fn from(error: ironweave_core::CoreError) -> Fail {
        ironweave::Error::from(error).into()
    }
}

impl From<ironweave_pml::ob1::PmlError> for Fail {
    #[cold]
    fn from(error: ironweave_pml::ob1::PmlError) -> Fail {
        ironweave::Error::from(error).into()
    }
}

/// The object whose error handler is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// None: that of `MPI_COMM_SELF` is told, where that is there; else the initial one (§9.3).
    None,
    /// A communicator.
    Comm(MPI_Comm),
    /// A session.
    Session(MPI_Session),
    /// A communicator that is to come to be, with this error handler.
    NewComm(MPI_Errhandler),
    /// A session that is to come to be, with this error handler: nothing need be there before.
    NewSession(MPI_Errhandler),
    /// A window.
    Win(MPI_Win),
    /// A file.
    File(MPI_File),
    /// The tool interface: no error handler is told (§15.3.9).
    Tool,
    /// As `None`, of calls that may be made before initialization and after finalization too (§11.4.1).
    Ever,
}

/// For `on tool`.
#[derive(Clone, Copy)]
pub struct Tool;

impl From<Tool> for Target {
    fn from(_: Tool) -> Self {
        Target::Tool
    }
}

/// For `on` the error handler of the communicator that a call makes.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct NewComm(pub MPI_Errhandler);

impl From<NewComm> for Target {
    fn from(NewComm(handler): NewComm) -> Self {
        Target::NewComm(handler)
    }
}

/// For `on` the error handler of the session that a call makes.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct NewSession(pub MPI_Errhandler);

impl From<NewSession> for Target {
    fn from(NewSession(handler): NewSession) -> Self {
        Target::NewSession(handler)
    }
}

/// For `on ever`.
#[derive(Clone, Copy)]
pub struct Ever;

/// For `on ever`.
#[allow(non_upper_case_globals)]
pub const ever: Ever = Ever;

impl From<Ever> for Target {
    #[inline(always)]
    fn from(_: Ever) -> Self {
        Target::Ever
    }
}

/// For `on none`.
#[allow(non_upper_case_globals)]
pub const none: () = ();

impl From<()> for Target {
    #[inline(always)]
    fn from((): ()) -> Self {
        Target::None
    }
}

macro_rules! targets {
    ($($ty:ident => $variant:ident)*) => {$(
        impl From<$ty> for Target {
            #[inline(always)]
            fn from(handle: $ty) -> Self {
                Target::$variant(handle)
            }
        }
    )*};
}

targets! { MPI_Comm => Comm  MPI_Session => Session  MPI_Win => Win  MPI_File => File }

/// Runs the body of a call and answers its code.
#[inline(always)]
pub fn boundary(name: &'static str, on: Target, body: impl FnOnce() -> Result<()>) -> c_int {
    // Much would still work then, by chance.
    let early = matches!(on, Target::Ever | Target::Tool | Target::NewSession(_));
    if !early && !process::is_running() {
        return out_of_time(name, on);
    }
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => MPI_SUCCESS,
        Ok(Err(error)) => raise(name, on, error),
        Err(panic) => panicked(name, on, panic.as_ref()),
    }
}

/// Whether a number, a request, a message or a text has to have a place. Arrays may be of no length ([`array`] looks at those),
/// and some results nobody has to ask for.
const fn is_needed(name: &str) -> bool {
    let name = name.as_bytes();
    !matches!(
        name,
        b"requests"
            | b"indices"
            | b"to"
            | b"dims"
            | b"periods"
            | b"coords"
            | b"ranks2"
            | b"sources"
            | b"destinations"
            | b"sourceweights"
            | b"destweights"
            | b"edges"
            | b"neighbors"
            | b"array_of_integers"
            | b"array_of_addresses"
            | b"array_of_datatypes"
            | b"array_of_large_counts"
            | b"value"
            | b"key"
            | b"pset_name"
            | b"desc"
    ) && !matches!(name, [b'_', ..])
}

/// That there is an array where entries are asked for.
///
/// # Errors
/// `MPI_ERR_ARG`.
#[inline]
pub fn array<T>(name: &str, array: *const T, n: usize) -> Result<()> {
    if array.is_null() && n > 0 { Err(missing(name)) } else { Ok(()) }
}

/// That a result is not a null pointer, where it must not be. Statuses may be.
///
/// # Errors
/// `MPI_ERR_ARG`.
#[inline(always)]
pub fn needed<T: Copy + 'static>(on: Target, name: &'static str, value: &T) -> Result<()> {
    let ty = TypeId::of::<T>();
    let handle = ty == TypeId::of::<*mut MPI_Comm>()
        || ty == TypeId::of::<*mut MPI_Group>()
        || ty == TypeId::of::<*mut MPI_Errhandler>()
        || ty == TypeId::of::<*mut MPI_Info>()
        || ty == TypeId::of::<*mut MPI_Op>()
        || ty == TypeId::of::<*mut MPI_Session>();
    let plain = ty == TypeId::of::<*mut c_int>()
        || ty == TypeId::of::<*mut MPI_Aint>()
        || ty == TypeId::of::<*mut MPI_Count>()
        || ty == TypeId::of::<*mut MPI_Request>()
        || ty == TypeId::of::<*mut MPI_Message>()
        || ty == TypeId::of::<*mut MPI_Datatype>()
        || ty == TypeId::of::<*mut c_char>();
    let text = ty == TypeId::of::<*const c_char>()
        && matches!(name.as_bytes(), b"comm_name" | b"type_name" | b"string");
    let wanted = handle || text || plain && is_needed(name);
    if !wanted || matches!(on, Target::Tool) {
        return Ok(());
    }
    // SAFETY: `T` is a pointer to something sized.
    let at = unsafe { std::mem::transmute_copy::<T, *const u8>(value) };
    if at.is_null() { Err(missing(name)) } else { Ok(()) }
}

#[cold]
fn missing(name: &str) -> Fail {
    fail(MPI_ERR_ARG, format!("{name} is a null pointer, and has to be given"))
}

/// What a short cut has come to.
pub trait Cut {
    /// The end of the call; `None`: nothing was done.
    fn ended(self) -> Option<Result<()>>;
}

/// Whether all was done, and well.
impl Cut for bool {
    #[inline(always)]
    fn ended(self) -> Option<Result<()>> {
        self.then_some(Ok(()))
    }
}

impl Cut for Option<Result<()>> {
    #[inline(always)]
    fn ended(self) -> Option<Result<()>> {
        self
    }
}

/// Runs the short cut of a call: `Some` is the call's answer, `None` that nothing was done.
#[inline(always)]
pub fn first<C: Cut>(name: &'static str, on: Target, cut: impl FnOnce() -> C) -> Option<c_int> {
    match catch_unwind(AssertUnwindSafe(cut)).map(Cut::ended) {
        Ok(Some(Ok(()))) => Some(MPI_SUCCESS),
        Ok(Some(Err(error))) => Some(raise(name, on, error)),
        Ok(None) => None,
        Err(panic) => Some(panicked(name, on, panic.as_ref())),
    }
}

#[cold]
fn out_of_time(name: &'static str, on: Target) -> c_int {
    process::check().map_or_else(|error| raise(name, on, error), |()| MPI_SUCCESS)
}

#[cold]
fn panicked(name: &'static str, on: Target, panic: &(dyn std::any::Any + Send)) -> c_int {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    raise(name, on, fail(MPI_ERR_INTERN, format!("panic inside the library: {text}")))
}

/// A function that is not there yet was called on this object.
#[cold]
pub fn unsupported(name: &'static str, on: Target) -> c_int {
    raise(name, on, fail(MPI_ERR_UNSUPPORTED_OPERATION, "not supported yet"))
}

/// Hands an error to the error handler that is due.
#[cold]
pub fn raise(name: &'static str, on: Target, mut error: Fail) -> c_int {
    // Its communicators are revoked with it; that they are would not tell it why.
    if error.0.code == MPIX_ERR_REVOKED && process::is_fenced() {
        let fenced = Fail::from(ironweave::Error::Fenced);
        (error.0.code, error.0.text) = (fenced.0.code, fenced.0.text);
    }
    let target = error.0.on.unwrap_or(on);
    let code = error.0.code;
    if on == Target::Tool {
        // A code of the tool interface's own, whatever went wrong beneath it.
        return if code < MPI_T_ERR_CANNOT_INIT { MPI_T_ERR_NOT_ACCESSIBLE } else { code };
    }
    let answer = error.0.answer.unwrap_or(code);
    match errhandler::of(target) {
        errhandler::Handler::Return => answer,
        handler @ (errhandler::Handler::Fatal | errhandler::Handler::Abort) => {
            let place = match target {
                Target::Comm(handle) => comm::describe(handle),
                Target::Session(_) => "a session".into(),
                Target::NewComm(_) => "a communicator to be made".into(),
                Target::NewSession(_) => "a session to be made".into(),
                Target::Win(_) => "a window".into(),
                Target::File(_) => "a file".into(),
                Target::None | Target::Ever | Target::Tool => "MPI_COMM_SELF".into(),
            };
            let class = class_name(class_of(code));
            process::tell(format_args!("{name} on {place}: {class}: {error}"));
            match (handler, target) {
                (errhandler::Handler::Fatal, _) => process::abort(code),
                (_, Target::Comm(comm)) if comm::find(comm).is_some() => {
                    process::abort_members(comm, code)
                }
                _ => process::abort_alone(code),
            }
        }
        errhandler::Handler::User(handler) => {
            handler.call(target, code);
            answer
        }
    }
}

/// Codes that users added, from `MPI_ERR_LASTCODE` + 1 on.
pub mod added {
    use super::*;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// A class or a code of a class, and its text.
    #[derive(Clone, Debug)]
    pub struct Added {
        /// The class that it is of; its own number for a class.
        pub class: c_int,
        /// What `MPI_Error_string` answers.
        pub text: String,
        /// It was removed.
        pub removed: bool,
    }

    static ADDED: Mutex<Vec<Added>> = Mutex::new(Vec::new());

    /// All of them; the first has the number `MPI_ERR_LASTCODE` + 1.
    pub fn all() -> MutexGuard<'static, Vec<Added>> {
        ADDED.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of them.
    pub fn get(code: c_int) -> Option<Added> {
        let index = code.checked_sub(MPI_ERR_LASTCODE + 1)?;
        let added = all().get(usize::try_from(index).ok()?).cloned();
        added.filter(|added| !added.removed)
    }
}

/// The class of a code.
#[must_use]
pub fn class_of(code: c_int) -> c_int {
    added::get(code).map_or(code, |added| added.class)
}

macro_rules! classes {
    ($($class:ident = $text:literal,)*) => {
        /// The name of an error class.
        #[must_use]
        pub fn class_name(class: c_int) -> &'static str {
            match class {
                $($class => stringify!($class),)*
                _ => "an error of the user's",
            }
        }

        /// What an error class means, for people.
        #[must_use]
        pub fn class_text(class: c_int) -> Option<&'static str> {
            match class {
                $($class => Some(concat!(stringify!($class), ": ", $text)),)*
                _ => None,
            }
        }
    };
}

classes! {
    MPI_SUCCESS = "no error",
    MPI_ERR_BUFFER = "no valid buffer",
    MPI_ERR_COUNT = "no valid count",
    MPI_ERR_TYPE = "no valid datatype",
    MPI_ERR_TAG = "no valid tag",
    MPI_ERR_COMM = "no valid communicator",
    MPI_ERR_RANK = "no such rank",
    MPI_ERR_REQUEST = "no valid request",
    MPI_ERR_ROOT = "no such root",
    MPI_ERR_GROUP = "no valid group",
    MPI_ERR_OP = "no valid operation",
    MPI_ERR_TOPOLOGY = "no valid topology",
    MPI_ERR_DIMS = "no valid dimensions",
    MPI_ERR_ARG = "no valid argument",
    MPI_ERR_UNKNOWN = "unknown error",
    MPI_ERR_TRUNCATE = "the message is longer than the buffer",
    MPI_ERR_OTHER = "an error of no other class",
    MPI_ERR_INTERN = "an error inside the library",
    MPI_ERR_PENDING = "the request is still pending",
    MPI_ERR_IN_STATUS = "the statuses tell the errors",
    MPI_ERR_ACCESS = "permission denied",
    MPI_ERR_AMODE = "wrong access mode of a file",
    MPI_ERR_ASSERT = "wrong assertion",
    MPI_ERR_BAD_FILE = "wrong file name",
    MPI_ERR_BASE = "wrong base of memory to free",
    MPI_ERR_CONVERSION = "an error in a data conversion function",
    MPI_ERR_DISP = "wrong displacement",
    MPI_ERR_DUP_DATAREP = "the data representation is defined already",
    MPI_ERR_FILE_EXISTS = "the file exists",
    MPI_ERR_FILE_IN_USE = "the file is in use",
    MPI_ERR_FILE = "no valid file handle",
    MPI_ERR_INFO_KEY = "the key is too long or empty",
    MPI_ERR_INFO_NOKEY = "there is no such key",
    MPI_ERR_INFO_VALUE = "the value is too long",
    MPI_ERR_INFO = "no valid info object",
    MPI_ERR_IO = "an error of input or output",
    MPI_ERR_KEYVAL = "no valid attribute key",
    MPI_ERR_LOCKTYPE = "wrong type of lock",
    MPI_ERR_NAME = "the service name is not published",
    MPI_ERR_NO_MEM = "out of memory",
    MPI_ERR_NOT_SAME = "arguments differ between processes",
    MPI_ERR_NO_SPACE = "no space left",
    MPI_ERR_NO_SUCH_FILE = "there is no such file",
    MPI_ERR_PORT = "wrong port name",
    MPI_ERR_QUOTA = "over quota",
    MPI_ERR_READ_ONLY = "the file cannot be written",
    MPI_ERR_RMA_ATTACH = "the memory cannot be attached",
    MPI_ERR_RMA_CONFLICT = "conflicting accesses to a window",
    MPI_ERR_RMA_RANGE = "outside of the window",
    MPI_ERR_RMA_SHARED = "the memory cannot be shared",
    MPI_ERR_RMA_SYNC = "wrong synchronization of a window",
    MPI_ERR_SERVICE = "the name cannot be unpublished",
    MPI_ERR_SIZE = "wrong size",
    MPI_ERR_SPAWN = "a process cannot be spawned",
    MPI_ERR_UNSUPPORTED_DATAREP = "the data representation is not supported",
    MPI_ERR_UNSUPPORTED_OPERATION = "the operation is not supported",
    MPI_ERR_WIN = "no valid window",
    MPI_ERR_RMA_FLAVOR = "wrong kind of window",
    MPI_ERR_PROC_ABORTED = "a process has aborted",
    MPI_ERR_VALUE_TOO_LARGE = "the value does not fit",
    MPI_ERR_SESSION = "no valid session",
    MPI_ERR_ERRHANDLER = "no valid error handler",
    MPI_ERR_ABI = "not possible with this ABI",
    MPIX_ERR_PROC_FAILED = "a process has failed",
    MPIX_ERR_PROC_FAILED_PENDING = "a possible sender has failed; the receive is still pending",
    MPIX_ERR_REVOKED = "the communicator was revoked",
    MPI_T_ERR_CANNOT_INIT = "the tool interface cannot be initialized now",
    MPI_T_ERR_NOT_ACCESSIBLE = "not accessible now",
    MPI_T_ERR_NOT_INITIALIZED = "the tool interface is not initialized",
    MPI_T_ERR_NOT_SUPPORTED = "not supported",
    MPI_T_ERR_MEMORY = "out of memory",
    MPI_T_ERR_INVALID = "wrong use or wrong argument",
    MPI_T_ERR_INVALID_INDEX = "no such index",
    MPI_T_ERR_INVALID_ITEM = "no such item",
    MPI_T_ERR_INVALID_SESSION = "no valid session",
    MPI_T_ERR_INVALID_HANDLE = "no valid handle",
    MPI_T_ERR_INVALID_NAME = "no such name",
    MPI_T_ERR_OUT_OF_HANDLES = "out of handles",
    MPI_T_ERR_OUT_OF_SESSIONS = "out of sessions",
    MPI_T_ERR_CVAR_SET_NOT_NOW = "the variable cannot be set now",
    MPI_T_ERR_CVAR_SET_NEVER = "the variable cannot be set",
    MPI_T_ERR_PVAR_NO_WRITE = "the variable cannot be written",
    MPI_T_ERR_PVAR_NO_STARTSTOP = "the variable cannot be started or stopped",
    MPI_T_ERR_PVAR_NO_ATOMIC = "the variable cannot be read and written atomically",
}

/// Copies a string for C, cut at `max` bytes with the terminating zero.
///
/// # Safety
/// `to` has room for `max` bytes; `len` is null or valid.
pub unsafe fn give_string(text: &str, to: *mut c_char, max: usize, len: *mut c_int) {
    let mut cut = text.len().min(max.saturating_sub(1));
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    // SAFETY: this function's contract.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, cut);
        to.add(cut).write(0);
        if !len.is_null() {
            len.write(cut as c_int);
        }
    }
}
