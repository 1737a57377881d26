//! Statuses as C programs see them (MPI 5.0, §3.2.5): the length in bytes is in two of the library's own words.

use crate::prelude::*;
use ironweave_pml::ob1;

/// Word of the flag: the operation was cancelled.
const CANCELLED: usize = 2;

impl MPI_Status {
    /// What operations tell that received nothing (§3.7.3).
    pub const EMPTY: MPI_Status = MPI_Status {
        MPI_SOURCE: MPI_ANY_SOURCE,
        MPI_TAG: MPI_ANY_TAG,
        MPI_ERROR: MPI_SUCCESS,
        MPI_internal: [0; 5],
    };

    /// What a receive from `MPI_PROC_NULL` tells (§3.10).
    pub const NO_PROC: MPI_Status = MPI_Status { MPI_SOURCE: MPI_PROC_NULL, ..Self::EMPTY };

    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let [low, high, ..] = self.MPI_internal;
        u64::from(low as u32) | u64::from(high as u32) << 32
    }

    /// Sets the length in bytes.
    pub fn set_bytes(&mut self, bytes: u64) {
        self.MPI_internal[0] = bytes as u32 as c_int;
        self.MPI_internal[1] = (bytes >> 32) as c_int;
    }

    /// Whether the operation was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.MPI_internal[CANCELLED] != 0
    }

    /// Says whether the operation was cancelled.
    pub fn set_cancelled(&mut self, cancelled: bool) {
        self.MPI_internal[CANCELLED] = c_int::from(cancelled);
    }
}

impl From<ob1::Status> for MPI_Status {
    #[inline]
    fn from(status: ob1::Status) -> Self {
        if status.is_cancelled() {
            let mut cancelled = MPI_Status::EMPTY;
            cancelled.set_cancelled(true);
            return cancelled;
        }
        let mut out = MPI_Status {
            // What is out of range says "any": all ones.
            MPI_SOURCE: status.source as c_int,
            MPI_TAG: if status.tag == ob1::Status::ANY_TAG { MPI_ANY_TAG } else { status.tag },
            ..MPI_Status::EMPTY
        };
        out.set_bytes(status.bytes as u64);
        out
    }
}

mpi! {
    fn MPI_Status_get_source(status: *const MPI_Status, source: *mut c_int) on ever {
        // SAFETY: the caller's status and result.
        unsafe { source.write((*status).MPI_SOURCE) };
        Ok(())
    }

    fn MPI_Status_get_tag(status: *const MPI_Status, tag: *mut c_int) on ever {
        // SAFETY: the caller's status and result.
        unsafe { tag.write((*status).MPI_TAG) };
        Ok(())
    }

    fn MPI_Status_get_error(status: *const MPI_Status, error: *mut c_int) on ever {
        // SAFETY: the caller's status and result.
        unsafe { error.write((*status).MPI_ERROR) };
        Ok(())
    }

    fn MPI_Status_set_source(status: *mut MPI_Status, source: c_int) on ever {
        // SAFETY: the caller's status.
        unsafe { (*status).MPI_SOURCE = source };
        Ok(())
    }

    fn MPI_Status_set_tag(status: *mut MPI_Status, tag: c_int) on ever {
        // SAFETY: the caller's status.
        unsafe { (*status).MPI_TAG = tag };
        Ok(())
    }

    fn MPI_Status_set_error(status: *mut MPI_Status, error: c_int) on ever {
        // SAFETY: the caller's status.
        unsafe { (*status).MPI_ERROR = error };
        Ok(())
    }
}

/// Writes what a single call tells: all but the error, which is its answer (§3.2.5).
///
/// # Safety
/// `to` is `MPI_STATUS_IGNORE` or valid.
#[inline(always)]
pub unsafe fn give(status: impl FnOnce() -> MPI_Status, to: *mut MPI_Status) {
    if to.is_null() {
        return;
    }
    let status = status();
    // SAFETY: this function's contract.
    unsafe {
        (*to).MPI_SOURCE = status.MPI_SOURCE;
        (*to).MPI_TAG = status.MPI_TAG;
        (*to).MPI_internal = status.MPI_internal;
    }
}
