//! C libraries and raw descriptors, where the outside world hands us something Rust cannot check.
//!
//! A cluster's fabric libraries are opened at run time: one binary runs wherever it is copied and
//! uses what it finds. This crate says what is found, which version, or why not ([`probe()`]), asks
//! hwloc for the order of the cores ([`hwloc`]), and holds the few lines of unsafe code this takes.
//! It never links to any of these libraries.
//! (Blueprint, "The house": unsafe lives in `ffi/`.)

pub mod cancel;
pub mod descriptors;
pub mod fd;
pub mod hwloc;
pub mod interfaces;
pub mod library;
pub mod ofi;
pub mod probe;
pub mod robust;
pub mod system;

pub use interfaces::{Interface, interfaces};
pub use library::{Library, LibraryError};
pub use probe::{Found, Known, probe};
