//! The tool information interface (MPI 5.0, chapter 15): control variables are our parameters, performance variables our
//! counters.
//!
//! Control variables can be read, before initialization too; they are set where users set parameters, before the job starts.
//! There are no events ([`events`]) and no enumerations. Errors go back to the caller: no error handler is told.

mod events;

use crate::error::give_string;
use crate::handle::Table;
use crate::prelude::*;
use ironweave_btl::{Btl, Counters};
use ironweave_rte::params::{Params, Setting, Value, sources};
use std::ffi::CStr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// For `on tool`.
#[allow(non_upper_case_globals)]
const tool: crate::error::Tool = crate::error::Tool;

/// How often the interface was initialized and not finalized.
static OPEN: AtomicI32 = AtomicI32::new(0);

fn check() -> Result<()> {
    if OPEN.load(Ordering::Relaxed) > 0 {
        return Ok(());
    }
    Err(fail(MPI_T_ERR_NOT_INITIALIZED, "the tool interface is not initialized"))
}

fn index<T>(list: &[T], at: c_int) -> Result<&T> {
    let found = usize::try_from(at).ok().and_then(|at| list.get(at));
    found.ok_or_else(|| fail(MPI_T_ERR_INVALID_INDEX, format!("there is no number {at}")))
}

/// A string of which the caller may want the length only.
///
/// # Safety
/// `len` is null or valid, and says how much room `to` has, if that is not null.
unsafe fn string(text: &str, to: *mut c_char, len: *mut c_int) {
    if len.is_null() {
        return;
    }
    // SAFETY: this function's contract.
    unsafe {
        if !to.is_null() && *len > 0 {
            give_string(text, to, *len as usize, std::ptr::null_mut());
        }
        len.write(text.len() as c_int + 1);
    }
}

/// # Safety
/// Null or valid.
unsafe fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: this function's contract.
        unsafe { to.write(value) };
    }
}

/// # Safety
/// A string that ends with a zero.
unsafe fn name(text: *const c_char) -> Result<String> {
    if text.is_null() {
        return Err(fail(MPI_T_ERR_INVALID, "the name is a null pointer"));
    }
    // SAFETY: this function's contract.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

fn position(mut names: impl Iterator<Item = impl AsRef<str>>, wanted: &str) -> Result<c_int> {
    let found = names.position(|name| name.as_ref() == wanted);
    let found =
        found.ok_or_else(|| fail(MPI_T_ERR_INVALID_NAME, format!("there is no {wanted:?}")))?;
    Ok(found as c_int)
}

/// The parameters, as this process has them.
fn params() -> &'static [Setting] {
    static PARAMS: OnceLock<Params> = OnceLock::new();
    // A parameter that is wrong is told by initialization.
    PARAMS.get_or_init(|| sources::load_for_rank().unwrap_or_default()).settings()
}

/// How a parameter is given to tools.
fn cvar_type(setting: &Setting) -> (MPI_Datatype, c_int) {
    match setting.value {
        Value::Flag(_) => (MPI_INT, 1),
        Value::Number(_) => (MPI_UNSIGNED_LONG_LONG, 1),
        _ => (MPI_CHAR, setting.text.len() as c_int + 1),
    }
}

/// Handles of control variables.
static CVARS: Table<usize> = Table::new();

/// What the counters of the PML, and of all rails together, are called.
fn counters() -> &'static [(String, &'static str)] {
    static NAMES: OnceLock<Vec<(String, &'static str)>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let pml = [
            "malformed",
            "stale",
            "duplicates",
            "early",
            "overflowed",
            "unexpected",
            "nacks_sent",
            "restarts",
            "healed",
        ];
        let rails = Counters::default().rows();
        let pml = pml
            .iter()
            .map(|name| (format!("pml_ob1_{name}"), "counted by the PML, since the start"));
        let rails = rails.iter().map(|(name, _)| {
            (format!("btl_{name}"), "counted by all rails together, since the start")
        });
        pml.chain(rails).collect()
    })
}

/// The counters now, in the order of their names.
fn count() -> Result<Vec<u64>> {
    let inside = process::enter()?;
    let stats = inside.engine.pml.stats();
    let mut all = vec![
        stats.malformed,
        stats.stale,
        stats.duplicates,
        stats.early,
        stats.overflowed,
        stats.unexpected,
        stats.nacks_sent,
        stats.restarts,
        stats.healed,
    ];
    let pml = all.len();
    all.resize(counters().len(), 0);
    for rail in inside.engine.pml.rails() {
        for (sum, (_, value)) in all[pml..].iter_mut().zip(rail.counters().rows()) {
            *sum += value;
        }
    }
    Ok(all)
}

/// A performance variable in a session of a tool's.
struct Pvar {
    session: usize,
    index: usize,
    /// What it read when it was reset.
    base: Mutex<u64>,
}

static SESSIONS: Table<()> = Table::new();
static PVARS: Table<Pvar> = Table::new();

/// Where a handle stands for all of a session.
const ALL_HANDLES: usize = 1;

fn pvar(session: usize, handle: usize) -> Result<&'static Pvar> {
    check()?;
    if SESSIONS.get(session).is_none() {
        return Err(fail(MPI_T_ERR_INVALID_SESSION, format!("{session:#x} is no session")));
    }
    let found = PVARS.get(handle).filter(|found| found.session == session);
    found.ok_or_else(|| fail(MPI_T_ERR_INVALID_HANDLE, format!("{handle:#x} is no variable of it")))
}

fn read(session: usize, handle: usize, reset: bool) -> Result<u64> {
    let found = pvar(session, handle)?;
    let now = count()?[found.index];
    let mut base = found.base.lock().unwrap_or_else(PoisonError::into_inner);
    let value = now.wrapping_sub(*base);
    if reset {
        *base = now;
    }
    Ok(value)
}

/// Starting and stopping: our variables always run.
fn running(session: usize, handle: usize) -> Result<()> {
    if handle == ALL_HANDLES {
        return check();
    }
    pvar(session, handle)?;
    Err(fail(MPI_T_ERR_PVAR_NO_STARTSTOP, "the variable always runs"))
}

/// Categories: what stands before the first underscore of a name.
fn categories() -> &'static [String] {
    static NAMES: OnceLock<Vec<String>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let cvars = params().iter().map(|setting| setting.def.name);
        let pvars = counters().iter().map(|(name, _)| name.as_str());
        let mut all: Vec<String> =
            cvars.chain(pvars).map(|name| category(name).to_owned()).collect();
        all.sort();
        all.dedup();
        all
    })
}

fn category(name: &str) -> &str {
    name.split('_').next().unwrap_or(name)
}

fn members<'a>(names: impl Iterator<Item = &'a str>, of: &str) -> Vec<c_int> {
    names.enumerate().filter(|(_, name)| category(name) == of).map(|(at, _)| at as c_int).collect()
}

fn cvars_of(of: &str) -> Vec<c_int> {
    members(params().iter().map(|setting| setting.def.name), of)
}

fn pvars_of(of: &str) -> Vec<c_int> {
    members(counters().iter().map(|(name, _)| name.as_str()), of)
}

/// # Safety
/// The array has room for as many.
unsafe fn list(all: &[c_int], len: c_int, to: *mut c_int) {
    for (at, value) in all.iter().take(len.max(0) as usize).enumerate() {
        // SAFETY: this function's contract.
        unsafe { to.add(at).write(*value) };
    }
}

mpi! {
    fn MPI_T_init_thread(_required: c_int, provided: *mut c_int) on tool {
        OPEN.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's result.
        unsafe { put(provided, MPI_THREAD_MULTIPLE) };
        Ok(())
    }

    fn MPI_T_finalize() on tool {
        check()?;
        OPEN.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    fn MPI_T_cvar_get_num(num_cvar: *mut c_int) on tool {
        check()?;
        // SAFETY: the caller's result.
        unsafe { put(num_cvar, params().len() as c_int) };
        Ok(())
    }

    fn MPI_T_cvar_get_info(cvar_index: c_int, name: *mut c_char, name_len: *mut c_int, verbosity: *mut c_int, datatype: *mut MPI_Datatype, enumtype: *mut usize, desc: *mut c_char, desc_len: *mut c_int, bind: *mut c_int, scope: *mut c_int) on tool {
        check()?;
        let setting = index(params(), cvar_index)?;
        // SAFETY: the caller's results.
        unsafe {
            string(setting.def.name, name, name_len);
            string(setting.def.help, desc, desc_len);
            put(verbosity, MPI_T_VERBOSITY_USER_BASIC);
            put(datatype, cvar_type(setting).0);
            put(enumtype, 0);
            put(bind, MPI_T_BIND_NO_OBJECT);
            put(scope, MPI_T_SCOPE_READONLY);
        }
        Ok(())
    }

    fn MPI_T_cvar_get_index(name: *const c_char, cvar_index: *mut c_int) on tool {
        check()?;
        // SAFETY: the caller's string and result.
        unsafe { put(cvar_index, position(params().iter().map(|setting| setting.def.name), &self::name(name)?)?) };
        Ok(())
    }

    fn MPI_T_cvar_handle_alloc(cvar_index: c_int, _object: *mut c_void, handle: *mut usize, count: *mut c_int) on tool {
        check()?;
        let setting = index(params(), cvar_index)?;
        // SAFETY: the caller's results.
        unsafe {
            put(handle, CVARS.insert(cvar_index as usize));
            put(count, cvar_type(setting).1);
        }
        Ok(())
    }

    fn MPI_T_cvar_handle_free(handle: *mut usize) on tool {
        check()?;
        // SAFETY: the caller's handle.
        unsafe {
            CVARS.remove(*handle).ok_or_else(|| fail(MPI_T_ERR_INVALID_HANDLE, "no such handle"))?;
            handle.write(0);
        }
        Ok(())
    }

    fn MPI_T_cvar_read(handle: usize, buf: *mut c_void) on tool {
        check()?;
        let at = CVARS.get(handle).ok_or_else(|| fail(MPI_T_ERR_INVALID_HANDLE, "no such handle"))?;
        let setting = &params()[*at];
        // SAFETY: the caller's result, as long as the count says.
        unsafe {
            match setting.value {
                Value::Flag(flag) => buf.cast::<c_int>().write(c_int::from(flag)),
                Value::Number(number) => buf.cast::<u64>().write(number),
                _ => give_string(&setting.text, buf.cast(), setting.text.len() + 1, std::ptr::null_mut()),
            }
        }
        Ok(())
    }

    fn MPI_T_cvar_write(handle: usize, _buf: *const c_void) on tool {
        check()?;
        CVARS.get(handle).ok_or_else(|| fail(MPI_T_ERR_INVALID_HANDLE, "no such handle"))?;
        Err(fail(MPI_T_ERR_CVAR_SET_NEVER, "parameters are set before the job starts"))
    }

    fn MPI_T_pvar_get_num(num_pvar: *mut c_int) on tool {
        check()?;
        // SAFETY: the caller's result.
        unsafe { put(num_pvar, counters().len() as c_int) };
        Ok(())
    }

    fn MPI_T_pvar_get_info(pvar_index: c_int, name: *mut c_char, name_len: *mut c_int, verbosity: *mut c_int, var_class: *mut c_int, datatype: *mut MPI_Datatype, enumtype: *mut usize, desc: *mut c_char, desc_len: *mut c_int, bind: *mut c_int, readonly: *mut c_int, continuous: *mut c_int, atomic: *mut c_int) on tool {
        check()?;
        let (called, what) = index(counters(), pvar_index)?;
        // SAFETY: the caller's results.
        unsafe {
            string(called, name, name_len);
            string(what, desc, desc_len);
            put(verbosity, MPI_T_VERBOSITY_USER_DETAIL);
            put(var_class, MPI_T_PVAR_CLASS_COUNTER);
            put(datatype, MPI_UNSIGNED_LONG_LONG);
            put(enumtype, 0);
            put(bind, MPI_T_BIND_NO_OBJECT);
            put(readonly, 0);
            put(continuous, 1);
            put(atomic, 1);
        }
        Ok(())
    }

    fn MPI_T_pvar_get_index(name: *const c_char, var_class: c_int, pvar_index: *mut c_int) on tool {
        check()?;
        if var_class != MPI_T_PVAR_CLASS_COUNTER {
            return Err(fail(MPI_T_ERR_INVALID_NAME, "all variables are counters"));
        }
        // SAFETY: the caller's string and result.
        unsafe { put(pvar_index, position(counters().iter().map(|(name, _)| name), &self::name(name)?)?) };
        Ok(())
    }

    fn MPI_T_pvar_session_create(session: *mut usize) on tool {
        check()?;
        // SAFETY: the caller's result.
        unsafe { put(session, SESSIONS.insert(())) };
        Ok(())
    }

    fn MPI_T_pvar_session_free(session: *mut usize) on tool {
        check()?;
        // SAFETY: the caller's handle.
        unsafe {
            SESSIONS.remove(*session).ok_or_else(|| fail(MPI_T_ERR_INVALID_SESSION, "no such session"))?;
            session.write(0);
        }
        Ok(())
    }

    fn MPI_T_pvar_handle_alloc(session: usize, pvar_index: c_int, _object: *mut c_void, handle: *mut usize, count: *mut c_int) on tool {
        check()?;
        SESSIONS.get(session).ok_or_else(|| fail(MPI_T_ERR_INVALID_SESSION, "no such session"))?;
        index(counters(), pvar_index)?;
        let base = Mutex::new(0);
        // SAFETY: the caller's results.
        unsafe {
            put(handle, PVARS.insert(Pvar { session, index: pvar_index as usize, base }));
            put(count, 1);
        }
        Ok(())
    }

    fn MPI_T_pvar_handle_free(session: usize, handle: *mut usize) on tool {
        // SAFETY: the caller's handle.
        unsafe {
            pvar(session, *handle)?;
            PVARS.remove(*handle);
            handle.write(0);
        }
        Ok(())
    }

    fn MPI_T_pvar_start(session: usize, handle: usize) on tool {
        running(session, handle)
    }

    fn MPI_T_pvar_stop(session: usize, handle: usize) on tool {
        running(session, handle)
    }

    fn MPI_T_pvar_read(session: usize, handle: usize, buf: *mut c_void) on tool {
        let value = read(session, handle, false)?;
        // SAFETY: the caller's result.
        unsafe { buf.cast::<u64>().write(value) };
        Ok(())
    }

    fn MPI_T_pvar_readreset(session: usize, handle: usize, buf: *mut c_void) on tool {
        let value = read(session, handle, true)?;
        // SAFETY: the caller's result.
        unsafe { buf.cast::<u64>().write(value) };
        Ok(())
    }

    fn MPI_T_pvar_reset(session: usize, handle: usize) on tool {
        read(session, handle, true).map(drop)
    }

    fn MPI_T_pvar_write(session: usize, handle: usize, buf: *const c_void) on tool {
        let found = pvar(session, handle)?;
        let now = count()?[found.index];
        // SAFETY: the caller's value.
        let value = unsafe { buf.cast::<u64>().read() };
        *found.base.lock().unwrap_or_else(PoisonError::into_inner) = now.wrapping_sub(value);
        Ok(())
    }

    fn MPI_T_enum_get_info(_enumtype: usize, _num: *mut c_int, _name: *mut c_char, _name_len: *mut c_int) on tool {
        check()?;
        Err(fail(MPI_T_ERR_INVALID, "there are no enumerations"))
    }

    fn MPI_T_enum_get_item(_enumtype: usize, _index: c_int, _value: *mut c_int, _name: *mut c_char, _name_len: *mut c_int) on tool {
        check()?;
        Err(fail(MPI_T_ERR_INVALID, "there are no enumerations"))
    }

    fn MPI_T_category_get_num(num_cat: *mut c_int) on tool {
        check()?;
        // SAFETY: the caller's result.
        unsafe { put(num_cat, categories().len() as c_int) };
        Ok(())
    }

    fn MPI_T_category_get_info(cat_index: c_int, name: *mut c_char, name_len: *mut c_int, desc: *mut c_char, desc_len: *mut c_int, num_cvars: *mut c_int, num_pvars: *mut c_int, num_categories: *mut c_int) on tool {
        check()?;
        let of = index(categories(), cat_index)?;
        // SAFETY: the caller's results.
        unsafe {
            string(of, name, name_len);
            string(&format!("parameters and counters of {of}"), desc, desc_len);
            put(num_cvars, cvars_of(of).len() as c_int);
            put(num_pvars, pvars_of(of).len() as c_int);
            put(num_categories, 0);
        }
        Ok(())
    }

    fn MPI_T_category_get_num_events(cat_index: c_int, num_events: *mut c_int) on tool {
        check()?;
        index(categories(), cat_index)?;
        // SAFETY: the caller's result.
        unsafe { put(num_events, 0) };
        Ok(())
    }

    fn MPI_T_category_get_index(name: *const c_char, cat_index: *mut c_int) on tool {
        check()?;
        // SAFETY: the caller's string and result.
        unsafe { put(cat_index, position(categories().iter(), &self::name(name)?)?) };
        Ok(())
    }

    fn MPI_T_category_get_cvars(cat_index: c_int, len: c_int, indices: *mut c_int) on tool {
        check()?;
        // SAFETY: the caller's array.
        unsafe { list(&cvars_of(index(categories(), cat_index)?), len, indices) };
        Ok(())
    }

    fn MPI_T_category_get_pvars(cat_index: c_int, len: c_int, indices: *mut c_int) on tool {
        check()?;
        // SAFETY: the caller's array.
        unsafe { list(&pvars_of(index(categories(), cat_index)?), len, indices) };
        Ok(())
    }

    fn MPI_T_category_get_events(cat_index: c_int, _len: c_int, _indices: *mut c_int) on tool {
        check()?;
        index(categories(), cat_index).map(drop)
    }

    fn MPI_T_category_get_categories(cat_index: c_int, _len: c_int, _indices: *mut c_int) on tool {
        check()?;
        index(categories(), cat_index).map(drop)
    }

    fn MPI_T_category_changed(update_number: *mut c_int) on tool {
        check()?;
        // SAFETY: the caller's result.
        unsafe { put(update_number, 0) };
        Ok(())
    }

}
