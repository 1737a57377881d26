//! Run-time environment: how processes become a job and stay one while some of them die.
//!
//! A rank uses [`Job`] (who am I, where are the others, who is gone) and [`Params`]; the command
//! `ironweave` is the rest: the launcher and its daemons ([`launch`]), [`doctor`] and [`info`].
//! PMI-1 ([`pmi`]) is what ranks and launchers say to each other, so either side works with others'.
//! Start-up only: after the one fence nothing here is on anybody's path but the liveness page, one
//! cached word (blueprint, "Failure knowledge", source 1).

mod board;
pub mod directory;
pub mod doctor;
pub mod error;
pub mod exit;
pub mod fabrics;
pub mod info;
pub mod job;
pub mod launch;
pub mod lifeline;
pub mod liveness;
pub mod logging;
pub mod mpiexec;
pub mod params;
pub mod pmi;
pub mod rdma;
pub mod secret;
pub mod starved;

pub use directory::{Directory, Fate};
pub use error::{Result, RteError};
pub use job::Job;
pub use lifeline::Lifeline;
pub use liveness::{FailedRank, How, Liveness, LivenessWriter};
pub use params::Params;
pub use starved::Incarnation;
