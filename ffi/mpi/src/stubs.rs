//! Functions of the list (`abi/functions.h`) that nobody has written: exported under both names by the build script, they
//! raise `MPI_ERR_UNSUPPORTED_OPERATION` (or return `MPI_T_ERR_NOT_SUPPORTED`) and do nothing else.

use std::ffi::c_int;

include!(concat!(env!("OUT_DIR"), "/stubs.rs"));
