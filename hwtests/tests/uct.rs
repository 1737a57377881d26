//! Whole jobs over UCX's rc_verbs: as `jobs.rs` runs them over verbs, the ones about failures.

mod support;

use support::Way;

/// UCX's connections over the devices' reliable queue pairs, and nothing else: puts, gets and frames.
const RC: Way = Way {
    suite: "uct_jobs",
    parameters: &["btl", "self,uct", "btl_uct_transports", "rc_verbs"],
    variable: "IRONWEAVE_UCT_LIB",
    library: "libuct.so.0",
};

#[test]
fn latency_over_rc_verbs() {
    RC.latency("latency_over_rc_verbs");
}

#[test]
fn a_killed_rank_over_rc_verbs() {
    RC.a_killed_rank("a_killed_rank_over_rc_verbs");
}

#[test]
fn revoke_agree_and_shrink_over_rc_verbs() {
    RC.revoke_agree_and_shrink("revoke_agree_and_shrink_over_rc_verbs");
}

#[test]
fn kills_at_random_moments_over_rc_verbs() {
    RC.kills_at_random_moments("kills_at_random_moments_over_rc_verbs");
}

#[test]
fn a_stopped_rank_is_found_and_ended_over_rc_verbs() {
    RC.a_stopped_rank("a_stopped_rank_is_found_and_ended_over_rc_verbs");
}

#[test]
fn a_job_recovers_over_wires_that_lose_over_rc_verbs() {
    RC.wires_that_lose("a_job_recovers_over_wires_that_lose_over_rc_verbs");
}

/// What is not there is named, and the job does not start.
#[test]
fn what_uct_cannot_have_is_told() {
    let Some((fabric, _alone)) = RC.given("what_uct_cannot_have_is_told") else { return };
    let words = RC.refusal(&fabric, &["btl_uct_devices", "mlx9_9:1"]);
    assert!(words.contains("uct: no device mlx9_9:1; there are "), "{words}");
    let words = RC.refusal(&fabric, &["btl_uct_transports", "rc_mlx5"]);
    assert!(words.contains("uct: no transport rc_mlx5; there are "), "{words}");
}
