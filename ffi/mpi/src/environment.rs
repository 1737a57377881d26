//! The beginning and the end, and what programs ask about where they run (MPI 5.0, chapters 9 and 11).

use crate::error::give_string;
use crate::prelude::*;
use crate::process::Phase;
use crate::session;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};
use std::thread::ThreadId;
use std::time::Instant;

/// The thread level that was given.
static LEVEL: AtomicI32 = AtomicI32::new(MPI_THREAD_SINGLE);
/// The thread that initialized.
static MAIN: OnceLock<ThreadId> = OnceLock::new();

/// Where the world is in its life; sessions have lives of their own.
static WORLD: AtomicU8 = AtomicU8::new(NOT_YET);
const NOT_YET: u8 = 0;
const HERE: u8 = 1;
const GONE: u8 = 2;

/// Sees that the job is joined. The first one decides the thread level.
pub(crate) fn join(level: c_int) -> Result<()> {
    match process::phase() {
        Phase::Before => {
            process::start(level)?;
            LEVEL.store(level, Ordering::Relaxed);
            // A process starts once.
            let _ = MAIN.set(std::thread::current().id());
            Ok(())
        }
        Phase::Single | Phase::Multiple => Ok(()),
        Phase::After => Err(fail(MPI_ERR_OTHER, "the job was left: there is no second time")),
    }
}

/// Leaves the job, when neither the world nor a session needs it. A program that only has sessions may open another one: it
/// leaves when it ends.
pub(crate) fn leave_if_unused() -> Result<()> {
    static AT_EXIT: AtomicBool = AtomicBool::new(false);
    if session::open() > 0 {
        return Ok(());
    }
    match WORLD.load(Ordering::Relaxed) {
        GONE => process::stop(),
        NOT_YET => {
            if !AT_EXIT.swap(true, Ordering::Relaxed) {
                // SAFETY: a function without arguments, which is there as long as the process (`-z nodelete`).
                unsafe { libc::atexit(at_exit) };
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

extern "C" fn at_exit() {
    if process::is_running()
        && session::open() == 0
        && WORLD.load(Ordering::Relaxed) != HERE
        && let Err(error) = process::stop()
    {
        process::tell(format_args!("leaving the job: {error}"));
    }
}

/// Initializes the world.
pub(crate) fn init(required: c_int) -> Result<c_int> {
    match WORLD.load(Ordering::Relaxed) {
        NOT_YET => {}
        HERE => return Err(fail(MPI_ERR_OTHER, "the library is initialized already")),
        _ => {
            return Err(fail(MPI_ERR_OTHER, "called after MPI_Finalize: there is no second time"));
        }
    }
    let known =
        [MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE];
    if !known.contains(&required) {
        return Err(fail(MPI_ERR_ARG, format!("{required} is no thread level")));
    }
    join(required)?;
    WORLD.store(HERE, Ordering::Relaxed);
    crate::comm::show(true);
    Ok(LEVEL.load(Ordering::Relaxed))
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
    fn MPI_Init(_argc: *mut c_int, _argv: *mut *mut *mut c_char) on ever {
        init(MPI_THREAD_SINGLE).map(drop)
    }

    fn MPI_Init_thread(_argc: *mut c_int, _argv: *mut *mut *mut c_char, required: c_int, provided: *mut c_int) on ever {
        let level = init(required)?;
        // SAFETY: the caller's result.
        unsafe { provided.write(level) };
        Ok(())
    }

    fn MPI_Finalize() on none {
        process::check()?;
        if WORLD.load(Ordering::Relaxed) != HERE {
            return Err(fail(MPI_ERR_OTHER, "there is no world to finalize"));
        }
        session::clear_self()?;
        crate::comm::show(false);
        WORLD.store(GONE, Ordering::Relaxed);
        leave_if_unused()
    }

    fn MPI_Initialized(flag: *mut c_int) on ever {
        // SAFETY: the caller's result.
        unsafe { flag.write(c_int::from(WORLD.load(Ordering::Relaxed) != NOT_YET)) };
        Ok(())
    }

    fn MPI_Finalized(flag: *mut c_int) on ever {
        // SAFETY: the caller's result.
        unsafe { flag.write(c_int::from(WORLD.load(Ordering::Relaxed) == GONE)) };
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

    fn MPI_Abort(comm: MPI_Comm, errorcode: c_int) on ever {
        let place = crate::comm::describe(comm);
        process::tell(format_args!("MPI_Abort on {place} with code {errorcode}"));
        process::abort_members(comm, errorcode)
    }

    fn MPI_Get_version(version: *mut c_int, subversion: *mut c_int) on ever {
        // SAFETY: the caller's results.
        unsafe {
            version.write(MPI_VERSION);
            subversion.write(MPI_SUBVERSION);
        }
        Ok(())
    }

    fn MPI_Abi_get_version(abi_major: *mut c_int, abi_minor: *mut c_int) on ever {
        // SAFETY: the caller's results.
        unsafe {
            abi_major.write(MPI_ABI_VERSION);
            abi_minor.write(MPI_ABI_SUBVERSION);
        }
        Ok(())
    }

    fn MPI_Abi_get_info(info: *mut MPI_Info) on ever {
        let sizes = [("mpi_aint_size", size_of::<MPI_Aint>()), ("mpi_count_size", size_of::<MPI_Count>()), ("mpi_offset_size", size_of::<MPI_Offset>())];
        let pairs = sizes.map(|(key, size)| (key.to_owned(), size.to_string()));
        // SAFETY: the caller's result.
        unsafe { info.write(crate::info::adopt(pairs.into())) };
        Ok(())
    }

    fn MPI_Abi_get_fortran_info(info: *mut MPI_Info) on ever {
        let info_of_fortran = crate::fortran::info()?;
        // SAFETY: the caller's result.
        unsafe { info.write(info_of_fortran) };
        Ok(())
    }

    fn MPI_Abi_set_fortran_info(info: MPI_Info) on ever {
        crate::fortran::set_info(info)
    }

    fn MPI_Abi_get_fortran_booleans(logical_size: c_int, logical_true: *mut c_void, logical_false: *mut c_void, is_set: *mut c_int) on ever {
        let set = crate::fortran::booleans(logical_size)?;
        // SAFETY: the caller's results, of the size that it says.
        unsafe {
            is_set.write(c_int::from(set.is_some()));
            if let Some((yes, no)) = set {
                std::ptr::copy_nonoverlapping(yes.as_ptr(), logical_true.cast(), yes.len());
                std::ptr::copy_nonoverlapping(no.as_ptr(), logical_false.cast(), no.len());
            }
        }
        Ok(())
    }

    fn MPI_Abi_set_fortran_booleans(logical_size: c_int, logical_true: *mut c_void, logical_false: *mut c_void) on ever {
        // SAFETY: the caller's values, of the size that it says.
        unsafe { crate::fortran::set_booleans(logical_size, logical_true.cast(), logical_false.cast()) }
    }

    fn MPI_Get_hw_resource_info(hw_info: *mut MPI_Info) on ever {
        // Nothing below a host is told apart.
        // SAFETY: the caller's result.
        unsafe { hw_info.write(crate::info::adopt(Vec::new())) };
        Ok(())
    }

    fn MPI_Comm_get_parent(parent: *mut MPI_Comm) on none {
        process::check()?;
        // Nobody was spawned: that is to come.
        // SAFETY: the caller's result.
        unsafe { parent.write(MPI_COMM_NULL) };
        Ok(())
    }

    fn MPI_Pcontrol(_level: c_int) on ever {
        Ok(()) // for tools that interpose; there is nothing to control here
    }

    fn MPI_Get_library_version(version: *mut c_char, resultlen: *mut c_int) on ever {
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
