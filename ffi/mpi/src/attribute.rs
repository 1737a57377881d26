//! Cached attributes of communicators, and of whatever else has a [`Cache`] (MPI 5.0, §7.7). Callbacks run with nothing locked and
//! the engine free.

use crate::comm;
use crate::prelude::*;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The first key of the user's: predefined ones are below.
const FIRST: c_int = 0x1000;

/// Objects that have attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Communicators.
    Comm,
    /// Datatypes.
    Type,
}

type CopyFn =
    unsafe extern "C" fn(usize, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;
type DeleteFn = unsafe extern "C" fn(usize, c_int, *mut c_void, *mut c_void) -> c_int;

/// What a duplicate gets.
#[derive(Clone, Copy, Debug)]
enum Copy {
    /// Nothing.
    Nothing,
    /// The same.
    Same,
    /// What the user's function says.
    Function(CopyFn),
}

/// A key.
#[derive(Debug)]
pub struct Keyval {
    kind: Kind,
    number: c_int,
    copy: Copy,
    delete: Option<DeleteFn>,
    extra: usize,
}

/// A key that a user made.
#[derive(Debug)]
enum Slot {
    /// In use.
    Made(Arc<Keyval>),
    /// Freed: it is known for as long as attributes have it (§7.7.1).
    Freed(Weak<Keyval>),
}

/// Keys that users made, by number.
static KEYVALS: Mutex<Vec<Slot>> = Mutex::new(Vec::new());

fn keyvals() -> MutexGuard<'static, Vec<Slot>> {
    KEYVALS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unknown(number: c_int) -> Fail {
    match number {
        MPI_KEYVAL_INVALID => fail(MPI_ERR_KEYVAL, "the key is MPI_KEYVAL_INVALID"),
        _ => fail(MPI_ERR_KEYVAL, format!("{number} is no key, or not for objects of this kind")),
    }
}

fn keyval(number: c_int, kind: Kind) -> Result<Arc<Keyval>> {
    let index = number.checked_sub(FIRST).and_then(|index| usize::try_from(index).ok());
    let found = index.and_then(|index| match keyvals().get(index)? {
        Slot::Made(key) => Some(Arc::clone(key)),
        Slot::Freed(key) => key.upgrade(),
    });
    found.filter(|key| key.kind == kind).ok_or_else(|| unknown(number))
}

/// Makes a key.
pub fn create(kind: Kind, copy: usize, delete: usize, extra: *mut c_void) -> c_int {
    let copy = match copy {
        0 => Copy::Nothing,
        1 => Copy::Same,
        // SAFETY: the user gave it as a function of this type (handles are words).
        function => Copy::Function(unsafe { std::mem::transmute::<usize, CopyFn>(function) }),
    };
    let delete = match delete {
        0 => None,
        // SAFETY: as above.
        function => Some(unsafe { std::mem::transmute::<usize, DeleteFn>(function) }),
    };
    let mut keyvals = keyvals();
    let number = FIRST + keyvals.len() as c_int;
    let extra = extra.expose_provenance();
    keyvals.push(Slot::Made(Arc::new(Keyval { kind, number, copy, delete, extra })));
    number
}

/// Frees a key: attributes that have it stay.
///
/// # Errors
/// `MPI_ERR_KEYVAL`.
pub fn free(kind: Kind, number: c_int) -> Result<()> {
    let key = keyval(number, kind)?;
    keyvals()[(number - FIRST) as usize] = Slot::Freed(Arc::downgrade(&key));
    Ok(())
}

/// The attributes of an object, in the order in which they were set first.
#[derive(Clone, Debug, Default)]
pub struct Cache(Vec<(Arc<Keyval>, usize)>);

impl Cache {
    fn position(&self, number: c_int) -> Option<usize> {
        self.0.iter().position(|(key, _)| key.number == number)
    }
}

/// Where an object keeps its attributes.
pub trait Cached {
    /// Runs `with` on them, shortly: no callback may run in it.
    fn attributes<R>(&self, with: impl FnOnce(&mut Cache) -> R) -> R;
}

fn deleted(key: &Keyval, object: usize, value: usize) -> Result<()> {
    let Some(delete) = key.delete else { return Ok(()) };
    let value = std::ptr::with_exposed_provenance_mut(value);
    let extra = std::ptr::with_exposed_provenance_mut(key.extra);
    // SAFETY: the user's function, with what the standard says it gets.
    match unsafe { delete(object, key.number, value, extra) } {
        MPI_SUCCESS => Ok(()),
        code => Err(fail(code, format!("the delete function of key {} refused", key.number))),
    }
}

/// Sets an attribute; the value before is deleted.
///
/// # Errors
/// `MPI_ERR_KEYVAL`; what the delete function answers.
pub fn set(
    object: usize,
    at: &impl Cached,
    kind: Kind,
    number: c_int,
    value: *mut c_void,
) -> Result<()> {
    let key = keyval(number, kind)?;
    let value = value.expose_provenance();
    let before = at.attributes(|cache| cache.position(number).map(|at| cache.0[at].1));
    if let Some(before) = before {
        deleted(&key, object, before)?;
    }
    at.attributes(|cache| match cache.position(number) {
        Some(at) => cache.0[at].1 = value,
        None => cache.0.push((key, value)),
    });
    Ok(())
}

/// An attribute's value.
///
/// # Errors
/// `MPI_ERR_KEYVAL`.
pub fn get(at: &impl Cached, kind: Kind, number: c_int) -> Result<Option<*mut c_void>> {
    keyval(number, kind)?;
    let value = at.attributes(|cache| cache.position(number).map(|at| cache.0[at].1));
    Ok(value.map(std::ptr::with_exposed_provenance_mut))
}

/// Deletes an attribute.
///
/// # Errors
/// `MPI_ERR_KEYVAL`; what the delete function answers: it stays then.
pub fn delete(object: usize, at: &impl Cached, kind: Kind, number: c_int) -> Result<()> {
    let key = keyval(number, kind)?;
    let value = at.attributes(|cache| cache.position(number).map(|at| cache.0[at].1));
    let Some(value) = value else {
        return Err(fail(MPI_ERR_KEYVAL, format!("there is no attribute of key {number}")));
    };
    deleted(&key, object, value)?;
    at.attributes(|cache| cache.position(number).map(|at| cache.0.remove(at)));
    Ok(())
}

/// What a duplicate of the object gets.
///
/// # Errors
/// What a copy function answers.
pub fn copied(object: usize, at: &impl Cached) -> Result<Cache> {
    let all = at.attributes(|cache| cache.0.clone());
    let mut out = Cache::default();
    for (key, value) in all {
        match key.copy {
            Copy::Nothing => {}
            Copy::Same => out.0.push((key, value)),
            Copy::Function(function) => {
                let (mut copy, mut flag) = (0usize, 0);
                let value = std::ptr::with_exposed_provenance_mut(value);
                let extra = std::ptr::with_exposed_provenance_mut(key.extra);
                // SAFETY: the user's function, with what the standard says it gets.
                let code = unsafe {
                    function(
                        object,
                        key.number,
                        extra,
                        value,
                        (&raw mut copy).cast(),
                        &raw mut flag,
                    )
                };
                if code != MPI_SUCCESS {
                    let text = format!("the copy function of key {} refused", key.number);
                    return Err(fail(code, text));
                }
                if flag != 0 {
                    out.0.push((key, copy));
                }
            }
        }
    }
    Ok(out)
}

/// Deletes all attributes, the last first: the object is about to go.
///
/// # Errors
/// What a delete function answers: that attribute and those before it stay.
pub fn clear(object: usize, at: &impl Cached) -> Result<()> {
    while let Some((key, value)) = at.attributes(|cache| cache.0.last().cloned()) {
        deleted(&key, object, value)?;
        at.attributes(|cache| {
            if let Some(at) = cache.position(key.number) {
                cache.0.remove(at);
            }
        });
    }
    Ok(())
}

impl Cached for comm::Comm {
    fn attributes<R>(&self, with: impl FnOnce(&mut Cache) -> R) -> R {
        with(&mut self.state().attributes)
    }
}

static TAG_UB: AtomicI32 = AtomicI32::new(c_int::MAX);
static HOST: AtomicI32 = AtomicI32::new(MPI_PROC_NULL);
static IO: AtomicI32 = AtomicI32::new(MPI_ANY_SOURCE);
static WTIME_IS_GLOBAL: AtomicI32 = AtomicI32::new(0);
static UNIVERSE_SIZE: AtomicI32 = AtomicI32::new(0);
static APPNUM: AtomicI32 = AtomicI32::new(0);
static FT: AtomicI32 = AtomicI32::new(1);
static LASTUSEDCODE: AtomicI32 = AtomicI32::new(MPI_ERR_LASTCODE);

/// The attributes that every communicator has (§9.1.2).
fn predefined(number: c_int) -> Result<Option<*mut c_void>> {
    let word = match number {
        MPI_TAG_UB => &TAG_UB,
        MPI_HOST => &HOST,
        MPI_IO => &IO,
        MPI_WTIME_IS_GLOBAL => &WTIME_IS_GLOBAL,
        MPI_APPNUM => &APPNUM,
        MPIX_FT => {
            // The launcher says when the first failure ends the job.
            let survives = std::env::var_os("IRONWEAVE_END_ON_FAILURE").is_none();
            FT.store(c_int::from(survives), Ordering::Relaxed);
            &FT
        }
        MPI_UNIVERSE_SIZE => {
            let size = comm::everyone()?.size;
            UNIVERSE_SIZE.store(size as c_int, Ordering::Relaxed);
            &UNIVERSE_SIZE
        }
        MPI_LASTUSEDCODE => {
            let added = crate::error::added::all().len() as c_int;
            LASTUSEDCODE.store(MPI_ERR_LASTCODE + added, Ordering::Relaxed);
            &LASTUSEDCODE
        }
        _ => return Ok(None),
    };
    Ok(Some(word.as_ptr().cast()))
}

fn comm_set(comm: MPI_Comm, number: c_int, value: *mut c_void) -> Result<()> {
    if predefined(number)?.is_some() {
        return Err(fail(MPI_ERR_KEYVAL, "predefined attributes cannot be changed"));
    }
    set(comm.0, comm::get(comm)?, Kind::Comm, number, value)
}

unsafe fn comm_get(
    comm: MPI_Comm,
    number: c_int,
    value: *mut c_void,
    flag: *mut c_int,
) -> Result<()> {
    let there = comm::get(comm)?;
    let found = match predefined(number)? {
        Some(found) => Some(found),
        None => get(there, Kind::Comm, number)?,
    };
    // SAFETY: the caller's results; the value is a pointer to a pointer.
    unsafe {
        flag.write(c_int::from(found.is_some()));
        if let Some(found) = found {
            value.cast::<*mut c_void>().write(found);
        }
    }
    Ok(())
}

fn comm_delete(comm: MPI_Comm, number: c_int) -> Result<()> {
    if predefined(number)?.is_some() {
        return Err(fail(MPI_ERR_KEYVAL, "predefined attributes cannot be deleted"));
    }
    delete(comm.0, comm::get(comm)?, Kind::Comm, number)
}

mpi! {
    fn MPI_Comm_create_keyval / MPI_Keyval_create(copy: usize, delete: usize, keyval: *mut c_int, extra: *mut c_void) on none {
        // SAFETY: the caller's result.
        unsafe { keyval.write(create(Kind::Comm, copy, delete, extra)) };
        Ok(())
    }

    fn MPI_Comm_free_keyval / MPI_Keyval_free(keyval: *mut c_int) on none {
        // SAFETY: the caller's key.
        unsafe {
            free(Kind::Comm, *keyval)?;
            keyval.write(MPI_KEYVAL_INVALID);
        }
        Ok(())
    }

    fn MPI_Comm_set_attr / MPI_Attr_put(comm: MPI_Comm, keyval: c_int, value: *mut c_void) on comm {
        comm_set(comm, keyval, value)
    }

    fn MPI_Comm_get_attr / MPI_Attr_get(comm: MPI_Comm, keyval: c_int, value: *mut c_void, flag: *mut c_int) on comm {
        // SAFETY: the caller's results.
        unsafe { comm_get(comm, keyval, value, flag) }
    }

    fn MPI_Comm_delete_attr / MPI_Attr_delete(comm: MPI_Comm, keyval: c_int) on comm {
        comm_delete(comm, keyval)
    }
}
