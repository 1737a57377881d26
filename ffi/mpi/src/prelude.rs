//! What every chapter needs.

pub use crate::abi::*;
pub use crate::count::{Counts, ReadCount, WriteCount};
pub use crate::error::{Fail, Result, array, ever, fail, none};
pub use crate::mpi;
pub use crate::process;
pub use std::ffi::{c_char, c_int, c_void};
