//! Failure knowledge: who is known to have failed, in one place.
//!
//! Four sources tell of failures (blueprint, "Failure knowledge"): the launcher through the liveness page, proof
//! from a transport, the detector, and the resource manager. They are merged here into one list that only grows and
//! whose order never changes, so that "the failures known at that moment" is a number (seed 001, "FAILURE_ACK": the
//! same idea with PMI's string). Suspicions are kept apart: a lost rail is not a dead process (law 3), and nothing is
//! done about a suspect until somebody with proof says so.
//!
//! Pure: no clock, thread or socket.

mod failures;

pub use failures::{Failed, FailureList, How, Source};
