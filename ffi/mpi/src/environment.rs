//! The beginning and the end, and what programs ask about where they run (MPI 5.0, chapters 9 and 11).

use crate::error::give_string;
use crate::prelude::*;
use crate::process::Phase;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::ThreadId;
use std::time::Instant;

/// The thread level that was given.
static LEVEL: AtomicI32 = AtomicI32::new(MPI_THREAD_SINGLE);
/// The thread that initialized.
static MAIN: OnceLock<ThreadId> = OnceLock::new();

/// Joins the job at a thread level.
pub(crate) fn init(required: c_int) -> Result<c_int> {
    match process::phase() {
        Phase::Before => {}
        Phase::Single | Phase::Multiple => {
            return Err(fail(MPI_ERR_OTHER, "the library is initialized already"));
        }
        Phase::After => {
            return Err(fail(MPI_ERR_OTHER, "called after MPI_Finalize: there is no second time"));
        }
    }
    let known =
        [MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE];
    if !known.contains(&required) {
        return Err(fail(MPI_ERR_ARG, format!("{required} is no thread level")));
    }
    process::start(required == MPI_THREAD_MULTIPLE)?;
    LEVEL.store(required, Ordering::Relaxed);
    // A process starts once.
    let _ = MAIN.set(std::thread::current().id());
    Ok(required)
}

/// The name of this host.
pub(crate) fn host() -> String {
    let mut host = [0 as c_char; 256];
    // SAFETY: the array is as long, and its last element stays zero.
    unsafe {
        libc::gethostname(host.as_mut_ptr(), host.len() - 1);
        std::ffi::CStr::from_ptr(host.as_ptr()).to_string_lossy().into_owned()
    }
}

/// The thread level that was given, by name.
pub(crate) fn level_name() -> &'static str {
    match LEVEL.load(Ordering::Relaxed) {
        MPI_THREAD_FUNNELED => "MPI_THREAD_FUNNELED",
        MPI_THREAD_SERIALIZED => "MPI_THREAD_SERIALIZED",
        MPI_THREAD_MULTIPLE => "MPI_THREAD_MULTIPLE",
        _ => "MPI_THREAD_SINGLE",
    }
}

mpi! {
    fn MPI_Init(_argc: *mut c_int, _argv: *mut *mut *mut c_char) on none {
        init(MPI_THREAD_SINGLE).map(drop)
    }

    fn MPI_Init_thread(_argc: *mut c_int, _argv: *mut *mut *mut c_char, required: c_int, provided: *mut c_int) on none {
        let level = init(required)?;
        // SAFETY: the caller's result.
        unsafe { provided.write(level) };
        Ok(())
    }

    fn MPI_Finalize() on none {
        process::check()?;
        // Before anything else: delete functions may still communicate (§11.2.4).
        crate::attribute::clear(MPI_COMM_SELF.0, crate::comm::get(MPI_COMM_SELF)?)?;
        process::stop()
    }

    fn MPI_Initialized(flag: *mut c_int) on none {
        // SAFETY: the caller's result.
        unsafe { flag.write(c_int::from(process::phase() != Phase::Before)) };
        Ok(())
    }

    fn MPI_Finalized(flag: *mut c_int) on none {
        // SAFETY: the caller's result.
        unsafe { flag.write(c_int::from(process::phase() == Phase::After)) };
        Ok(())
    }

    fn MPI_Query_thread(provided: *mut c_int) on none {
        process::check()?;
        // SAFETY: the caller's result.
        unsafe { provided.write(LEVEL.load(Ordering::Relaxed)) };
        Ok(())
    }

    fn MPI_Is_thread_main(flag: *mut c_int) on none {
        process::check()?;
        let main = MAIN.get() == Some(&std::thread::current().id());
        // SAFETY: the caller's result.
        unsafe { flag.write(c_int::from(main)) };
        Ok(())
    }

    fn MPI_Abort(comm: MPI_Comm, errorcode: c_int) on comm {
        let who = process::describe();
        eprintln!("ironweave: {who}: MPI_Abort on {} with code {errorcode}", crate::comm::describe(comm));
        process::abort(errorcode)
    }

    fn MPI_Get_version(version: *mut c_int, subversion: *mut c_int) on none {
        // SAFETY: the caller's results.
        unsafe {
            version.write(MPI_VERSION);
            subversion.write(MPI_SUBVERSION);
        }
        Ok(())
    }

    fn MPI_Abi_get_version(abi_major: *mut c_int, abi_minor: *mut c_int) on none {
        // SAFETY: the caller's results.
        unsafe {
            abi_major.write(MPI_ABI_VERSION);
            abi_minor.write(MPI_ABI_SUBVERSION);
        }
        Ok(())
    }

    fn MPI_Get_library_version(version: *mut c_char, resultlen: *mut c_int) on none {
        let text = concat!("Ironweave ", env!("CARGO_PKG_VERSION"), " (MPI standard ABI 1.0)");
        // SAFETY: the caller's results, as long as the standard says.
        unsafe { give_string(text, version, MPI_MAX_LIBRARY_VERSION_STRING as usize, resultlen) };
        Ok(())
    }

    fn MPI_Get_processor_name(name: *mut c_char, resultlen: *mut c_int) on none {
        process::check()?;
        let host = host();
        // SAFETY: the caller's results, as long as the standard says.
        unsafe { give_string(&host, name, MPI_MAX_PROCESSOR_NAME as usize, resultlen) };
        Ok(())
    }
}

/// The beginning of time.
fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

macro_rules! clocks {
    ($($name:ident $profiled:literal = $value:expr;)*) => {$(
        const _: () = {
            #[unsafe(export_name = stringify!($name))]
            extern "C" fn plain() -> f64 {
                $value
            }

            #[unsafe(export_name = $profiled)]
            extern "C" fn profiled() -> f64 {
                $value
            }
        };
    )*};
}

clocks! {
    MPI_Wtime "PMPI_Wtime" = origin().elapsed().as_secs_f64();
    MPI_Wtick "PMPI_Wtick" = 1e-9;
}
