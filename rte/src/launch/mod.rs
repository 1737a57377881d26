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

/// The usual way to run a program on a host; `{host}` stands for its name.
pub const SSH: &str = "ssh -o BatchMode=yes {host}";

/// Asks for the core soon after each wake-up: a death is news for everybody, and the ranks may compute on every core. Without
/// it, the launcher waits for a rank's slice to end, some milliseconds.
fn wake_up_fast() {
    if let Err(error) = ironweave_ffi::system::prefer_short_slices(SLICE) {
        tracing::debug!(%error, "no short slices");
    }
}

/// The shortest slice the kernel gives.
const SLICE: std::time::Duration = std::time::Duration::from_micros(100);
