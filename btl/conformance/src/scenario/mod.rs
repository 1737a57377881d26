//! The scenarios that [`suite!`](crate::suite) makes tests of. Each is a script over a stage; what is right in every
//! moment is the oracle's business, what must have happened in the end is checked here.

mod atomics;
mod ending;
mod system;
mod traffic;

pub use atomics::changes_numbers_in_one_step;
pub use ending::{
    comes_back_after_invalidation, departs_quietly, ends_in_time_when_the_peer_is_stopped,
    excludes_for_good, gives_everything_back_when_invalidated, shows_a_crash,
    survives_a_peer_killed_while_packing, survives_the_death_of_a_peer,
};
pub use system::{
    leaves_nothing_behind, serves_many_peers, sleeps_and_wakes, turns_strangers_away,
};
pub use traffic::{
    carries_every_size, connects_once_and_reports_up, delivers_exactly_once_in_order,
    is_silent_only_where_nothing_is_here, moves_registered_memory, refuses_what_it_cannot_take,
    runs_out_of_room_and_recovers,
};

use crate::Harness;
use crate::stage::Stage;
use std::time::{Duration, Instant};

/// Nobody is frozen for longer, because of what may be refused meanwhile.
const FROZEN: Duration = Duration::from_secs(5);

/// Waits until `process` has sent all it was told to.
fn sent_by<H: Harness>(stage: &mut Stage<H>, process: u32) -> u64 {
    let mut sent = 0;
    stage.follow("frames to be sent", |stage| {
        let status = stage.status(process);
        sent = status.frames_sent;
        if status.to_send != 0 {
            stage.turns(20);
        }
        (status.to_send == 0, sent)
    });
    sent
}

/// Whether `process` has sent all it was told to, to somebody who is frozen: a transport may refuse what is more than that one
/// has acknowledged (UCX's ud, after packets were lost: all but two frames), and give the peer up when that goes on.
fn sent_to_frozen<H: Harness>(stage: &mut Stage<H>, process: u32) -> bool {
    let since = Instant::now();
    loop {
        if stage.status(process).to_send == 0 {
            return true;
        }
        if since.elapsed() > FROZEN {
            return false;
        }
        stage.turns(20);
    }
}

/// Waits until `process` has received `frames` frames.
fn received_by<H: Harness>(stage: &mut Stage<H>, process: u32, frames: u64) {
    stage.follow("frames to arrive", |stage| {
        let have = stage.status(process).frames_received;
        if have > frames {
            stage.fail(&format!("process {process} received {have} frames, {frames} were sent"));
        }
        stage.turns(10);
        (have == frames, have)
    });
}

/// Waits until nothing of process 0 is out.
fn all_back<H: Harness>(stage: &mut Stage<H>) {
    stage.follow("operations to come back", |stage| {
        let out = stage.me().check.out.len();
        (out == 0, out as u64)
    });
}
