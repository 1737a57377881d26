//! Info objects: hints as pairs of strings, in the order in which they were set (MPI 5.0, chapter 10).

use crate::error::give_string;
use crate::handle::Table;
use crate::prelude::*;
use std::ffi::CStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Keys and values.
pub type Pairs = Vec<(String, String)>;

static INFOS: Table<Mutex<Pairs>> = Table::new();

/// A handle for hints.
pub fn adopt(pairs: Pairs) -> MPI_Info {
    MPI_Info(INFOS.insert(Mutex::new(pairs)))
}

/// The handle of a Fortran handle.
pub fn of_fortran(low: u32) -> Option<usize> {
    INFOS.of_fortran(low)
}

fn unknown(handle: MPI_Info) -> Fail {
    match handle {
        MPI_INFO_NULL => fail(MPI_ERR_INFO, "the info object is MPI_INFO_NULL"),
        MPI_INFO_ENV => fail(MPI_ERR_INFO, "MPI_INFO_ENV cannot be changed"),
        MPI_Info(word) => fail(MPI_ERR_INFO, format!("{word:#x} is no info object")),
    }
}

fn lock(handle: MPI_Info) -> Result<MutexGuard<'static, Pairs>> {
    let pairs = INFOS.get(handle.0).ok_or_else(|| unknown(handle))?;
    Ok(pairs.lock().unwrap_or_else(PoisonError::into_inner))
}

/// What is in an info object.
///
/// # Errors
/// `MPI_ERR_INFO`.
pub fn get(handle: MPI_Info) -> Result<Pairs> {
    if handle == MPI_INFO_ENV { Ok(environment()) } else { Ok(lock(handle)?.clone()) }
}

/// As [`get`]; nothing for `MPI_INFO_NULL`.
///
/// # Errors
/// `MPI_ERR_INFO`.
pub fn hints(handle: MPI_Info) -> Result<Option<Arc<Pairs>>> {
    if handle == MPI_INFO_NULL { Ok(None) } else { get(handle).map(|pairs| Some(Arc::new(pairs))) }
}

/// Sets a key; one that is there keeps its place.
fn set(pairs: &mut Pairs, key: String, value: String) {
    match pairs.iter_mut().find(|(there, _)| *there == key) {
        Some((_, there)) => *there = value,
        None => pairs.push((key, value)),
    }
}

/// Adds newer hints to those that an object has; hints that are not among the newer ones stay (§7.4.4).
pub fn update(hints: &mut Option<Arc<Pairs>>, newer: Option<Arc<Pairs>>) {
    let (Some(there), Some(newer)) = (&mut *hints, &newer) else {
        *hints = newer.or_else(|| hints.take());
        return;
    };
    let there = Arc::make_mut(there);
    for (key, value) in newer.iter() {
        set(there, key.clone(), value.clone());
    }
}

/// How the job was started (§11.2.3): what can be told about this process.
fn environment() -> Pairs {
    let mut pairs = Vec::new();
    let mut tell = |key: &str, value: String| pairs.push((key.to_owned(), value));
    let mut arguments = std::env::args();
    if let Some(command) = arguments.next() {
        tell("command", command);
    }
    let arguments: Vec<String> = arguments.collect();
    if !arguments.is_empty() {
        tell("argv", arguments.join(" "));
    }
    // The same before and after the world is there.
    let started = || std::env::var("PMI_SIZE").ok()?.parse().ok();
    let size = crate::comm::everyone().map(|world| world.size).ok().or_else(started);
    tell("maxprocs", size.unwrap_or(1).to_string());
    tell("soft", size.unwrap_or(1).to_string());
    tell("host", crate::environment::host());
    tell("arch", std::env::consts::ARCH.to_owned());
    if let Ok(directory) = std::env::current_dir() {
        tell("wdir", directory.display().to_string());
    }
    tell("thread_level", crate::environment::level_name().to_owned());
    if let Some(handler) = crate::errhandler::initial_name() {
        tell("mpi_initial_errhandler", handler);
    }
    pairs
}

/// # Safety
/// A string that ends with a zero.
unsafe fn key(key: *const c_char) -> Result<String> {
    if key.is_null() {
        return Err(fail(MPI_ERR_INFO_KEY, "the key is a null pointer"));
    }
    // SAFETY: this function's contract.
    let key = unsafe { CStr::from_ptr(key) }.to_string_lossy().trim().to_owned();
    if key.is_empty() || key.len() >= MPI_MAX_INFO_KEY as usize {
        let text =
            format!("a key of {} characters: 1 to {} are allowed", key.len(), MPI_MAX_INFO_KEY - 1);
        return Err(fail(MPI_ERR_INFO_KEY, text));
    }
    Ok(key)
}

/// # Safety
/// As [`key`].
unsafe fn value(value: *const c_char) -> Result<String> {
    if value.is_null() {
        return Err(fail(MPI_ERR_INFO_VALUE, "the value is a null pointer"));
    }
    // SAFETY: this function's contract.
    let value = unsafe { CStr::from_ptr(value) }.to_string_lossy().trim().to_owned();
    if value.is_empty() || value.len() >= MPI_MAX_INFO_VAL as usize {
        let text = format!(
            "a value of {} characters: 1 to {} are allowed",
            value.len(),
            MPI_MAX_INFO_VAL - 1
        );
        return Err(fail(MPI_ERR_INFO_VALUE, text));
    }
    Ok(value)
}

fn find(info: MPI_Info, key: &str) -> Result<Option<String>> {
    let pairs = get(info)?;
    Ok(pairs.into_iter().find(|(there, _)| there == key).map(|(_, value)| value))
}

mpi! {
    fn MPI_Info_create(info: *mut MPI_Info) on ever {
        // SAFETY: the caller's result.
        unsafe { info.write(adopt(Vec::new())) };
        Ok(())
    }

    fn MPI_Info_create_env(_argc: c_int, _argv: *mut *mut c_char, info: *mut MPI_Info) on ever {
        // SAFETY: the caller's result.
        unsafe { info.write(adopt(environment())) };
        Ok(())
    }

    fn MPI_Info_dup(info: MPI_Info, newinfo: *mut MPI_Info) on ever {
        // SAFETY: the caller's result.
        unsafe { newinfo.write(adopt(get(info)?)) };
        Ok(())
    }

    fn MPI_Info_free(info: *mut MPI_Info) on ever {
        // SAFETY: the caller's handle.
        unsafe {
            INFOS.remove((*info).0).ok_or_else(|| unknown(*info))?;
            info.write(MPI_INFO_NULL);
        }
        Ok(())
    }

    fn MPI_Info_set(info: MPI_Info, key: *const c_char, value: *const c_char) on ever {
        // SAFETY: the caller's strings.
        let (key, value) = unsafe { (self::key(key)?, self::value(value)?) };
        set(&mut *lock(info)?, key, value);
        Ok(())
    }

    fn MPI_Info_delete(info: MPI_Info, key: *const c_char) on ever {
        // SAFETY: the caller's string.
        let key = unsafe { self::key(key)? };
        let mut pairs = lock(info)?;
        match pairs.iter().position(|(there, _)| *there == key) {
            Some(at) => {
                pairs.remove(at);
                Ok(())
            }
            None => Err(fail(MPI_ERR_INFO_NOKEY, format!("there is no key {key:?}"))),
        }
    }

    fn MPI_Info_get(info: MPI_Info, key: *const c_char, valuelen: c_int, value: *mut c_char, flag: *mut c_int) on ever {
        // SAFETY: the caller's string and results; the value has room for a zero beyond its length.
        unsafe {
            let found = find(info, &self::key(key)?)?;
            flag.write(c_int::from(found.is_some()));
            if let Some(found) = found {
                if valuelen < 0 {
                    return Err(fail(MPI_ERR_ARG, format!("the value's length is {valuelen}")));
                }
                give_string(&found, value, valuelen as usize + 1, std::ptr::null_mut());
            }
        }
        Ok(())
    }

    fn MPI_Info_get_string(info: MPI_Info, key: *const c_char, buflen: *mut c_int, value: *mut c_char, flag: *mut c_int) on ever {
        // SAFETY: the caller's string and results.
        unsafe {
            let found = find(info, &self::key(key)?)?;
            flag.write(c_int::from(found.is_some()));
            if let Some(found) = found {
                if *buflen > 0 {
                    give_string(&found, value, *buflen as usize, std::ptr::null_mut());
                }
                buflen.write(found.len() as c_int + 1);
            }
        }
        Ok(())
    }

    fn MPI_Info_get_valuelen(info: MPI_Info, key: *const c_char, valuelen: *mut c_int, flag: *mut c_int) on ever {
        // SAFETY: the caller's string and results.
        unsafe {
            let found = find(info, &self::key(key)?)?;
            flag.write(c_int::from(found.is_some()));
            if let Some(found) = found {
                valuelen.write(found.len() as c_int);
            }
        }
        Ok(())
    }

    fn MPI_Info_get_nkeys(info: MPI_Info, nkeys: *mut c_int) on ever {
        // SAFETY: the caller's result.
        unsafe { nkeys.write(get(info)?.len() as c_int) };
        Ok(())
    }

    fn MPI_Info_get_nthkey(info: MPI_Info, n: c_int, key: *mut c_char) on ever {
        let pairs = get(info)?;
        let nth = usize::try_from(n).ok().and_then(|n| pairs.get(n));
        let (nth, _) = nth.ok_or_else(|| {
            fail(MPI_ERR_ARG, format!("there is no key number {n} among {}", pairs.len()))
        })?;
        // SAFETY: the caller's result, as long as the standard says.
        unsafe { give_string(nth, key, MPI_MAX_INFO_KEY as usize, std::ptr::null_mut()) };
        Ok(())
    }
}
