//! Handles and statuses as Fortran integers, and as C integers (MPI 5.0, §19.3 and 20): the low half of the handle, without its
//! generation.
//!
//! What is no handle any more comes back as the null handle of its kind.

use crate::prelude::*;
use crate::{comm, datatype, errhandler, group, info, op, p2p};

macro_rules! conversions {
    ($($ty:ident $null:ident [$c2f:ident $f2c:ident $toint:ident $fromint:ident] = $find:expr;)*) => {$(
        const _: () = {
            fn to(handle: $ty) -> c_int {
                handle.0 as u32 as c_int
            }

            fn from(number: c_int) -> $ty {
                let find: fn(u32) -> Option<usize> = $find;
                match u32::try_from(number) {
                    Ok(low) if low < crate::handle::FIRST => $ty(low as usize),
                    Ok(low) => find(low).map_or($null, $ty),
                    Err(_) => $null,
                }
            }

            conversions! { @export to $ty => c_int [$c2f $toint] }
            conversions! { @export from c_int => $ty [$f2c $fromint] }
        };
    )*};
    (@export $function:ident $from:ty => $to:ty [$($name:ident)*]) => {$(
        const _: () = {
            #[unsafe(export_name = stringify!($name))]
            extern "C" fn plain(given: $from) -> $to {
                $function(given)
            }

            #[unsafe(export_name = concat!("P", stringify!($name)))]
            extern "C" fn profiled(given: $from) -> $to {
                $function(given)
            }
        };
    )*};
}

conversions! {
    MPI_Comm MPI_COMM_NULL [MPI_Comm_c2f MPI_Comm_f2c MPI_Comm_toint MPI_Comm_fromint]
        = |low| comm::COMMS.of_fortran(low);
    MPI_Datatype MPI_DATATYPE_NULL [MPI_Type_c2f MPI_Type_f2c MPI_Type_toint MPI_Type_fromint]
        = |low| datatype::TYPES.of_fortran(low);
    MPI_Group MPI_GROUP_NULL [MPI_Group_c2f MPI_Group_f2c MPI_Group_toint MPI_Group_fromint]
        = group::of_fortran;
    MPI_Info MPI_INFO_NULL [MPI_Info_c2f MPI_Info_f2c MPI_Info_toint MPI_Info_fromint]
        = info::of_fortran;
    MPI_Errhandler MPI_ERRHANDLER_NULL [MPI_Errhandler_c2f MPI_Errhandler_f2c MPI_Errhandler_toint MPI_Errhandler_fromint]
        = |low| errhandler::HANDLERS.of_fortran(low);
    MPI_Op MPI_OP_NULL [MPI_Op_c2f MPI_Op_f2c MPI_Op_toint MPI_Op_fromint]
        = op::of_fortran;
    MPI_Message MPI_MESSAGE_NULL [MPI_Message_c2f MPI_Message_f2c MPI_Message_toint MPI_Message_fromint]
        = |low| p2p::MESSAGES.of_fortran(low);
    MPI_Request MPI_REQUEST_NULL [MPI_Request_c2f MPI_Request_f2c MPI_Request_toint MPI_Request_fromint]
        = |low| process::enter().ok()?.requests.of_fortran(low).map(|request| request.0);
    MPI_Session MPI_SESSION_NULL [MPI_Session_c2f MPI_Session_f2c MPI_Session_toint MPI_Session_fromint]
        = crate::session::of_fortran;
    // There are no windows and no files yet, but their null handles.
    MPI_Win MPI_WIN_NULL [MPI_Win_c2f MPI_Win_f2c MPI_Win_toint MPI_Win_fromint]
        = |_| None;
    MPI_File MPI_FILE_NULL [MPI_File_c2f MPI_File_f2c MPI_File_toint MPI_File_fromint]
        = |_| None;
}

/// Integers of a status: its layout is the same in C and in both kinds of Fortran (standard ABI, chapter 20).
const WORDS: usize = 8;

unsafe fn copy(from: *const c_void, to: *mut c_void) -> Result<()> {
    if from.is_null() || to.is_null() {
        return Err(fail(MPI_ERR_ARG, "the status is MPI_STATUS_IGNORE"));
    }
    // SAFETY: the caller's statuses, of eight integers each.
    unsafe { std::ptr::copy_nonoverlapping(from.cast::<c_int>(), to.cast::<c_int>(), WORDS) };
    Ok(())
}

mpi! {
    fn MPI_Status_c2f / MPI_Status_f2c(from: *const c_void, to: *mut c_void) on ever {
        // SAFETY: the caller's statuses.
        unsafe { copy(from, to) }
    }

    fn MPI_Status_c2f08 / MPI_Status_f082c(from: *const c_void, to: *mut c_void) on ever {
        // SAFETY: the caller's statuses.
        unsafe { copy(from, to) }
    }

    fn MPI_Status_f2f08 / MPI_Status_f082f(from: *const c_void, to: *mut c_void) on ever {
        // SAFETY: the caller's statuses.
        unsafe { copy(from, to) }
    }
}

/// What a Fortran library has told of its compiler (§20.4): hints, and the values of `LOGICAL` by size.
struct Told {
    info: Option<std::sync::Arc<info::Pairs>>,
    booleans: Vec<(Vec<u8>, Vec<u8>)>,
}

static TOLD: std::sync::Mutex<Told> =
    std::sync::Mutex::new(Told { info: None, booleans: Vec::new() });

fn told() -> std::sync::MutexGuard<'static, Told> {
    TOLD.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What was told of the compiler; `MPI_INFO_NULL` when nothing was.
pub fn info() -> Result<MPI_Info> {
    Ok(told().info.as_ref().map_or(MPI_INFO_NULL, |pairs| info::adopt(pairs.as_ref().clone())))
}

/// Tells of the compiler, once.
pub fn set_info(hints: MPI_Info) -> Result<()> {
    let hints = info::hints(hints)?;
    let mut told = told();
    if told.info.is_some() {
        return Err(fail(MPI_ERR_ABI, "the Fortran compiler was told of before"));
    }
    told.info = hints;
    Ok(())
}

fn size(bytes: c_int) -> Result<usize> {
    match bytes {
        1 | 2 | 4 | 8 | 16 => Ok(bytes as usize),
        _ => Err(fail(MPI_ERR_ARG, format!("no LOGICAL has {bytes} bytes"))),
    }
}

/// The values of `LOGICAL` of this size.
pub fn booleans(bytes: c_int) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let size = size(bytes)?;
    Ok(told().booleans.iter().find(|(yes, _)| yes.len() == size).cloned())
}

/// Tells the values of `LOGICAL` of this size, once.
///
/// # Safety
/// Both are as long.
pub unsafe fn set_booleans(bytes: c_int, yes: *const u8, no: *const u8) -> Result<()> {
    let size = size(bytes)?;
    if booleans(bytes)?.is_some() {
        return Err(fail(MPI_ERR_ABI, "the values of this LOGICAL were told before"));
    }
    // SAFETY: this function's contract.
    let (yes, no) =
        unsafe { (std::slice::from_raw_parts(yes, size), std::slice::from_raw_parts(no, size)) };
    told().booleans.push((yes.to_vec(), no.to_vec()));
    Ok(())
}
