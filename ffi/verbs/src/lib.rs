//! libibverbs (InfiniBand, RoCE, iWARP), opened at run time: devices, queues and registered memory with owners.
//!
//! A thin layer: each C object has an owner that holds what it depends on, so that none is destroyed before those
//! that use it; errors are typed; what the header does in inline functions is done here through the context's table
//! of operations. It never blocks but in set-up calls of the kernel, starts no thread, and decides nothing.
//! Without the library everything is an error in words ([`VerbsError::Library`]).
//!
//! Own bindings instead of a crate: those that work build C code with cmake and generate bindings with libclang,
//! and building Ironweave takes cargo and a C compiler only.
//!
//! `unsafe` remains where a device is handed addresses of memory it does not own ([`QueuePair::post`],
//! [`Registration::new`], [`SharedQueue::post`]).
#![allow(unsafe_code)] // calling C is the purpose of this crate

pub mod cm;
mod device;
mod memory;
mod queue;
pub mod raw;
mod status;
mod trial;

pub use device::{Device, Gid, Port, devices};
pub use memory::{Access, Paging, Registration, Slab};
pub use queue::{
    AddressHandle, Channel, CompletionQueue, Kind, Operation, Path, QueuePair, SharedQueue, Timers,
};
pub use raw::{Sge, Wc};
pub use status::{Event, Status};
pub use trial::{TrialError, try_on_demand};

use ironweave_ffi::{Library, LibraryError};
use std::sync::OnceLock;

/// Why something of verbs cannot be had.
#[derive(Clone, Debug, thiserror::Error)]
pub enum VerbsError {
    /// The library is not there, or too old.
    #[error("libibverbs: {0}")]
    Library(String),
    /// There is no device of this name.
    #[error("no RDMA device {name} (known: {known})")]
    NoDevice {
        /// The name asked for.
        name: String,
        /// Those that are there.
        known: String,
    },
    /// A call failed.
    #[error("{call}: {}", std::io::Error::from_raw_os_error(*errno))]
    Call {
        /// Which.
        call: &'static str,
        /// Its error number.
        errno: i32,
    },
}

impl VerbsError {
    /// The failure of `call`, as `errno` has it.
    fn last(call: &'static str) -> VerbsError {
        VerbsError::Call {
            call,
            errno: std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
        }
    }

    /// `Ok` for 0; libibverbs returns error numbers.
    fn check(call: &'static str, code: i32) -> Result<(), VerbsError> {
        match code {
            0 => Ok(()),
            -1 => Err(VerbsError::last(call)),
            errno => Err(VerbsError::Call { call, errno: errno.abs() }),
        }
    }
}

/// The library, opened at the first use and never closed.
fn symbols() -> Result<&'static raw::Symbols, VerbsError> {
    static SYMBOLS: OnceLock<Result<raw::Symbols, String>> = OnceLock::new();
    let found = SYMBOLS.get_or_init(|| {
        let open = || -> Result<raw::Symbols, LibraryError> {
            raw::Symbols::find(&Library::open("libibverbs.so.1")?)
        };
        open().map_err(|error| error.to_string())
    });
    found.as_ref().map_err(|why| VerbsError::Library(why.clone()))
}
