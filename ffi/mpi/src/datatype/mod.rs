//! Datatypes as objects of C programs (MPI 5.0, chapter 5): what is behind an `MPI_Datatype`.
//!
//! What a datatype means is in the crate `ironweave-datatype`; here are handles, names, the committed state and the calls.

mod attribute;
mod elements;
mod fortran;
mod make;
mod pack;
mod query;

use crate::attribute::{Cache, Cached};
use crate::handle::Table;
use crate::prelude::*;
use ironweave_datatype::{Argument, Basic, Constructor, Datatype, TypeError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// What is behind a handle.
pub struct Type {
    /// What it means.
    pub datatype: Datatype,
    committed: AtomicBool,
    /// Predefined, with or without a name: it cannot be freed.
    permanent: bool,
    state: Mutex<State>,
}

/// What changes while it lives.
#[derive(Default)]
pub struct State {
    /// Its name (§7.8).
    pub name: String,
    /// Cached attributes (§7.7).
    pub attributes: Cache,
}

/// Datatypes that users made, and predefined ones without a name.
pub static TYPES: Table<Box<Type>> = Table::new();

/// Predefined ones without a name, by what they were asked for.
static UNNAMED: Mutex<Vec<(Datatype, MPI_Datatype)>> = Mutex::new(Vec::new());

impl Type {
    fn new(datatype: Datatype, committed: bool, permanent: bool) -> Type {
        let name = datatype.basic().map_or("", Basic::name).to_owned();
        let state = Mutex::new(State { name, attributes: Cache::default() });
        Type { datatype, committed: AtomicBool::new(committed), permanent, state }
    }

    /// The changing part. Hold it shortly, and never while a callback runs.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it may be freed.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.permanent
    }
}

impl Cached for Type {
    fn attributes<R>(&self, with: impl FnOnce(&mut Cache) -> R) -> R {
        with(&mut self.state().attributes)
    }
}

/// The datatype behind a handle, committed or not.
///
/// # Errors
/// `MPI_ERR_TYPE`.
pub fn get(handle: MPI_Datatype) -> Result<&'static Type> {
    static PREDEFINED: [OnceLock<Type>; 256] = [const { OnceLock::new() }; 256];
    if let Some(derived) = TYPES.get(handle.0) {
        return Ok(derived);
    }
    match u16::try_from(handle.0).ok().and_then(Basic::from_abi) {
        Some(basic) => Ok(PREDEFINED[usize::from(basic.abi()) % 256]
            .get_or_init(|| Type::new(Datatype::named(basic), true, true))),
        None => Err(unknown(handle)),
    }
}

#[cold]
fn unknown(handle: MPI_Datatype) -> Fail {
    fail(
        MPI_ERR_TYPE,
        match handle {
            MPI_DATATYPE_NULL => "the datatype is MPI_DATATYPE_NULL".into(),
            MPI_Datatype(word) => format!("{word:#x} is no datatype"),
        },
    )
}

/// The datatype behind a handle, for communication: it must be committed.
///
/// # Errors
/// `MPI_ERR_TYPE`.
pub fn committed(handle: MPI_Datatype) -> Result<&'static Datatype> {
    let there = get(handle)?;
    if there.committed.load(Ordering::Relaxed) {
        return Ok(&there.datatype);
    }
    let name = there.state().name.clone();
    let named = if name.is_empty() { String::new() } else { format!(" ({name})") };
    Err(fail(MPI_ERR_TYPE, format!("the datatype {:#x}{named} is not committed", handle.0)))
}

/// A new handle.
fn adopt(datatype: Datatype, committed: bool) -> MPI_Datatype {
    MPI_Datatype(TYPES.insert(Box::new(Type::new(datatype, committed, false))))
}

/// The handle of a datatype that another was made from: its own if it is predefined, a new one otherwise (§5.1.13).
fn handle_of(datatype: &Datatype) -> MPI_Datatype {
    if let Some(basic) = datatype.basic() {
        return MPI_Datatype(usize::from(basic.abi()));
    }
    let unnamed = unnamed().iter().find(|(known, _)| known.is(datatype)).map(|(_, handle)| *handle);
    unnamed.unwrap_or_else(|| adopt(datatype.clone(), true))
}

fn unnamed() -> MutexGuard<'static, Vec<(Datatype, MPI_Datatype)>> {
    UNNAMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a datatype and gives its handle.
///
/// # Safety
/// `to` is null or valid.
unsafe fn create(constructor: Constructor, large: bool, to: *mut MPI_Datatype) -> Result<()> {
    process::check()?;
    let make = if large { Datatype::new_large } else { Datatype::new };
    let datatype = make(constructor)?;
    // SAFETY: this function's contract.
    unsafe { give(to, "the new datatype", || adopt(datatype, false)) }
}

/// Writes a result that must not be null.
///
/// # Safety
/// `to` is null or valid.
unsafe fn give<T>(to: *mut T, what: &str, value: impl FnOnce() -> T) -> Result<()> {
    if to.is_null() {
        return Err(null(what));
    }
    // SAFETY: this function's contract.
    unsafe { to.write(value()) };
    Ok(())
}

#[cold]
fn null(what: &str) -> Fail {
    fail(MPI_ERR_ARG, format!("the address for {what} is a null pointer"))
}

impl From<TypeError> for Fail {
    #[cold]
    fn from(error: TypeError) -> Fail {
        let code = match error {
            TypeError::Argument { argument: Argument::Count | Argument::BlockLength, .. } => {
                MPI_ERR_COUNT
            }
            TypeError::Argument { .. } | TypeError::Lengths { .. } | TypeError::TooLarge => {
                MPI_ERR_ARG
            }
            TypeError::TooDeep => MPI_ERR_NO_MEM,
            TypeError::Truncated { .. } => MPI_ERR_TRUNCATE,
        };
        fail(code, error.to_string())
    }
}
