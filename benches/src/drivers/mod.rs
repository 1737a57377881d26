//! The Rust twin of `peers/mpibench.c`, on crate `ironweave`: `LOOPS.md` defines both.
//!
//! `loops` holds the timed loops, `sync` what happens between them, `placement` bindings and the probe. They measure and
//! return values; printing is the programs' (`iw-mpibench`, `iw-osu`).

pub mod loops;
pub mod placement;
pub mod sync;
