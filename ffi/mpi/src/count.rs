//! Counts and displacements of both widths, read and written alike: a function and its large-count twin share a body.

use crate::abi::{MPI_Count, MPI_UNDEFINED};
use crate::error::{Result, fail};
use std::ffi::c_int;

/// A count that comes in.
pub trait ReadCount: Copy {
    /// As the wider type.
    fn wide(self) -> i64;
}

impl ReadCount for c_int {
    #[inline(always)]
    fn wide(self) -> i64 {
        i64::from(self)
    }
}

impl ReadCount for i64 {
    #[inline(always)]
    fn wide(self) -> i64 {
        self
    }
}

impl ReadCount for isize {
    #[inline(always)]
    fn wide(self) -> i64 {
        self as i64
    }
}

/// A count that is not negative, in elements.
///
/// # Errors
/// `MPI_ERR_COUNT`.
#[inline]
pub fn count(name: &str, value: impl ReadCount) -> Result<usize> {
    match usize::try_from(value.wide()) {
        Ok(count) => Ok(count),
        Err(_) => Err(negative(name, value.wide())),
    }
}

#[cold]
fn negative(name: &str, value: i64) -> crate::error::Fail {
    fail(crate::abi::MPI_ERR_COUNT, format!("{name} is {value}, which is negative"))
}

/// A count that goes out.
pub trait WriteCount: Copy {
    /// The count, or `MPI_UNDEFINED` when it does not fit.
    fn narrow(wide: i64) -> Self;
}

impl WriteCount for c_int {
    #[inline]
    fn narrow(wide: i64) -> Self {
        c_int::try_from(wide).unwrap_or(MPI_UNDEFINED)
    }
}

impl WriteCount for MPI_Count {
    #[inline]
    fn narrow(wide: i64) -> Self {
        wide
    }
}

impl WriteCount for isize {
    #[inline]
    fn narrow(wide: i64) -> Self {
        wide as isize
    }
}

/// A caller's array of counts or displacements.
#[derive(Clone, Copy, Debug)]
pub enum Counts {
    /// Of `int`.
    Int(*const c_int),
    /// Of `MPI_Count`, or of `MPI_Aint`, which is as wide.
    Large(*const i64),
}

impl From<*const c_int> for Counts {
    fn from(array: *const c_int) -> Self {
        Counts::Int(array)
    }
}

impl From<*const i64> for Counts {
    fn from(array: *const i64) -> Self {
        Counts::Large(array)
    }
}

impl From<*const isize> for Counts {
    fn from(array: *const isize) -> Self {
        Counts::Large(array.cast())
    }
}

impl Counts {
    /// Whether it is a null pointer.
    #[must_use]
    pub fn is_null(self) -> bool {
        match self {
            Counts::Int(array) => array.is_null(),
            Counts::Large(array) => array.is_null(),
        }
    }

    /// The element at `index`.
    ///
    /// # Safety
    /// The array is as long.
    #[inline]
    #[must_use]
    pub unsafe fn get(self, index: usize) -> i64 {
        // SAFETY: this function's contract.
        unsafe {
            match self {
                Counts::Int(array) => i64::from(array.add(index).read()),
                Counts::Large(array) => array.add(index).read(),
            }
        }
    }

    /// The first `len` elements.
    ///
    /// # Safety
    /// The array is as long.
    #[must_use]
    pub unsafe fn to_vec(self, len: usize) -> Vec<i64> {
        // SAFETY: this function's contract.
        (0..len).map(|index| unsafe { self.get(index) }).collect()
    }
}
