//! The launcher: `ironweave run`, and the daemon it starts on every other host.
//!
//! ```text
//!   run ── head (the job: barrier, keys, failures, exit code; pure)
//!    ├──── node (this host: processes, PMI, liveness page, output)
//!    └──── link ═══ TCP, proven by the job secret ═══ daemon ── node (another host)
//! ```
//! Each is one thread around `poll`. Nothing here outlives the job (law 8): ranks die with who
//! started them, daemons with their connection, and the [`guard`] sees to what ranks started.

pub mod agent;
pub mod daemon;
pub mod guard;
pub mod head;
pub mod link;
mod local_rank;
pub mod messages;
pub mod node;
pub mod output;
pub mod placement;
pub mod pollset;
pub mod pulse;
pub mod run;
pub mod signals;
pub mod spawn;
