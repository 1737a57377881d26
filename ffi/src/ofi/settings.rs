//! What libfabric takes from the environment when it initializes, and from nowhere else.
//!
//! Its tcp provider saves messages with tags that nothing is posted for, and keeps a pointer to their connection with those that are half
//! here. When the connection ends in between, and a receive is posted for such a message, it goes on in memory that is freed (read in the
//! source of 1.22, `xnet_recv_saved`; what was seen over 1.22 is a double free, and a hang in one of 30 runs of
//! `gives_everything_back_when_invalidated`, and neither in 140 runs without saving). With `FI_TCP_MAX_SAVED` of 0 it leaves them in the socket instead, which
//! takes one copy less, too.

use super::raw;
use crate::library::Library;
use std::ffi::{CString, c_int};
use std::ptr::null_mut;

/// How many messages tcp saves.
const MAX_SAVED: &str = "FI_TCP_MAX_SAVED";

/// Initializes a library, so that tcp saves no messages; whether it does all the same: because the user wants that, or because somebody
/// had the library before.
pub(super) fn initialize(library: &Library, ours: bool) -> bool {
    if let Some(wanted) = std::env::var_os(MAX_SAVED) {
        return wanted != "0";
    }
    let version = "FABRIC_1.0";
    let (Ok(getparams), Ok(freeparams)) = (
        library.symbol_of_version("fi_getparams", version),
        library.symbol_of_version("fi_freeparams", version),
    ) else {
        return true;
    };
    if !ours {
        return true;
    }
    // SAFETY: functions of these names and version have these types. The environment is changed for the time of one call; threads of the
    // program that read it meanwhile by other means than Rust's are not kept out.
    unsafe {
        type GetParams = unsafe extern "C" fn(*mut *mut raw::Param, *mut c_int) -> c_int;
        let getparams = std::mem::transmute::<*mut _, GetParams>(getparams.as_ptr());
        let freeparams = std::mem::transmute::<*mut _, unsafe extern "C" fn(*mut raw::Param)>(
            freeparams.as_ptr(),
        );
        std::env::set_var(MAX_SAVED, "0");
        let (mut list, mut count) = (null_mut(), 0);
        if getparams(&mut list, &mut count) == 0 {
            freeparams(list);
        }
        std::env::remove_var(MAX_SAVED);
    }
    false
}

/// Whether somebody in this process has loaded the library `name`.
pub(super) fn is_loaded(name: &str) -> bool {
    let Ok(name) = CString::new(name) else { return false };
    // SAFETY: a terminated string; nothing is loaded, and what is found is let go of again.
    unsafe {
        let handle = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        if !handle.is_null() {
            libc::dlclose(handle);
        }
        !handle.is_null()
    }
}
