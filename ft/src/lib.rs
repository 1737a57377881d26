//! The control plane: who is known to have failed, and what the living do together about it. Pure machines: no clock,
//! thread, socket or file. They are told what happened, and hand back effects.
//!
//! **Failure knowledge.** Four sources tell of failures (blueprint, "Failure knowledge"): the launcher through the
//! liveness page, proof from a transport, the detector, and the resource manager. They are merged here into one list that
//! only grows and whose order never changes, so that "the failures known at that moment" is a number (seed 001,
//! "FAILURE_ACK": the same idea with PMI's string). Suspicions are kept apart: a lost rail is not a dead process
//! (law 3), and nothing is done about a suspect until somebody with proof says so, or the [`detector`] found that it does
//! not answer.
//!
//! **Together.** [`Plane`] spreads failure and revoke notices reliably (`circulant`: the graph, and why everybody is
//! reached) and runs agreements (`agreement`: the machine, and why all get the same value, law 7). [`Shrink`] is
//! a few agreements that lead to the same survivors everywhere.

mod agreement;
mod board;
mod circulant;
mod comm;
pub mod detector;
mod failures;
mod group;
mod herald;
mod notices;
mod plane;
mod set;
mod shrink;
mod wire;

pub use board::Board;
pub use circulant::{Neighbours, neighbours as circulant_neighbours};
pub use failures::{Failed, FailureList, How, Source};
pub use group::Group;
pub use plane::{Contribution, Decided, Effect, Look, Nanos, Plane, PlaneConfig, PlaneCounters};
pub use set::RankSet;
pub use shrink::{Shrink, Shrunk, agreement_number};
pub use wire::{CommKey, FRAME_MAX, Frame, Scope, VERSION};
