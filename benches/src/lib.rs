//! OSU-style drivers and side-by-side runs against peers.
//!
//! `LOOPS.md` defines the loops, `README.md` says how to run and read everything. This library holds what the programs
//! in `src/bin` share: the specification of a test, the output lines, the core-placement probe and the statistics.
//! It never talks to a transport itself.

#[cfg(feature = "drivers")]
pub mod drivers;
pub mod lines;
pub mod probe;
pub mod spec;
pub mod stats;
pub mod timeline;
