//! Whole jobs over verbs: the launcher, the engine and the benches' drivers as users run them, between two hosts of the
//! virtual machine, or between processes of one host of a cluster. What the programs do and check is in
//! `mpi/examples/{scenarios,recovery,heartbeat,survive}.rs`; here they are started, watched, and their wires cut.

mod support;

use ironweave_hwtests::fabric::{VM, Wire};
use ironweave_hwtests::job::{Job, Running};
use std::time::Duration;
use support::{Given, recovered, swept};

/// A detector that is quick, and still calm where processors are emulated.
const DETECTOR: [&str; 4] = ["ft_detector_period", "100ms", "ft_detector_timeout", "3s"];

/// The devices and programs that were given.
fn given(test: &str) -> Option<Given> {
    support::given("jobs", test)
}

/// As `given`, where wires can be cut.
fn wired(test: &str) -> Option<Given> {
    let given = given(test)?;
    if std::env::var_os(VM).is_none() {
        return support::skip(
            "jobs",
            test,
            "there are no wires to cut outside of the virtual machine",
        );
    }
    Some(given)
}

#[test]
fn latency_to_four_mebibytes() {
    let Some((fabric, _alone)) = given("latency_to_four_mebibytes") else { return };
    let output =
        Job::new(&fabric, 2, "iw-osu", &["latency", "-m", "1:4194304", "-i", "2"]).finish();
    swept(&output, 23);
}

#[test]
fn bandwidth_to_four_mebibytes() {
    let Some((fabric, _alone)) = given("bandwidth_to_four_mebibytes") else { return };
    let arguments = ["bw", "-m", "1:4194304", "-i", "1", "-W", "4"];
    swept(&Job::new(&fabric, 2, "iw-osu", &arguments).finish(), 23);
}

/// Every size on both sides of every protocol's limits, every mode; truncation and other mistakes.
#[test]
fn every_size_and_mode() {
    let Some((fabric, _alone)) = given("every_size_and_mode") else { return };
    Job::new(&fabric, 2, "scenarios", &["sizes"]).finish();
    Job::new(&fabric, 2, "scenarios", &["mistakes"]).finish();
}

#[test]
fn order_is_kept_over_two_rails() {
    let Some((fabric, _alone)) = given("order_is_kept_over_two_rails") else { return };
    Job::new(&fabric, 4, "scenarios", &["order", "7"]).finish();
}

/// The demo's job: rank 3 is killed in the middle of large transfers, the others recover and finish.
#[test]
fn a_job_recovers_from_a_killed_rank() {
    let Some((fabric, _alone)) = given("a_job_recovers_from_a_killed_rank") else { return };
    recovered(&Job::new(&fabric, 4, "survive", &["--megabytes", "1"]).finish());
}

/// A rank dies at a random moment of an all-to-all exchange: `IRONWEAVE_SEED=N` replays one.
#[test]
fn kills_at_random_moments() {
    let Some((fabric, _alone)) = given("kills_at_random_moments") else { return };
    let seeds = match std::env::var("IRONWEAVE_SEED") {
        Ok(seed) => vec![seed.parse::<u64>().expect("IRONWEAVE_SEED is a number")],
        Err(_) => (0..6).collect(),
    };
    for seed in seeds {
        println!("replay with IRONWEAVE_SEED={seed} ci/hwtests kills_at_random_moments");
        Job::new(&fabric, 4, "scenarios", &["random_kill", &seed.to_string()]).finish();
    }
}

/// The sender dies early and late, and at least once in the middle of what a receive waits for.
#[test]
fn a_dead_receive_is_not_written() {
    let Some((fabric, _alone)) = given("a_dead_receive_is_not_written") else { return };
    let mut said = String::new();
    for delay in ["50", "400", "1600"] {
        said += &format!("dead after {delay} ms\n");
        said += &Job::new(&fabric, 3, "scenarios", &["dead_buffer", delay]).finish();
    }
    println!("{said}");
    let arrived = |line: &str| -> Option<(u64, u64)> {
        let (arrived, rest) = line.split_once(": ")?.1.split_once(" of ")?;
        Some((arrived.parse().ok()?, rest.split_once(' ')?.0.parse().ok()?))
    };
    let cut: Vec<_> = said.lines().filter_map(arrived).collect();
    assert_eq!(cut.len(), 6, "{said}");
    assert!(cut.iter().any(|&(arrived, of)| 0 < arrived && arrived < of), "{said}");
}

/// Revoke with everything pending, agreement, shrinking, with processes that die meanwhile.
#[test]
fn revoke_agree_and_shrink() {
    let Some((fabric, _alone)) = given("revoke_agree_and_shrink") else { return };
    for scenario in [&["revoke"][..], &["insulation"], &["buddy", "3"], &["agree", "5"]] {
        Job::new(&fabric, 4, "recovery", scenario).finish();
    }
}

/// A stopped process is silent on the wire, and its device goes on acknowledging: the detector finds it.
#[test]
fn a_stopped_rank_is_found_and_ended() {
    let Some((fabric, _alone)) = given("a_stopped_rank_is_found_and_ended") else { return };
    Job::new(&fabric, 4, "heartbeat", &["stopped"]).parameters(&DETECTOR).finish();
}

/// Of two rails one is cut for good in the middle of messages: they go on over the other.
#[test]
fn a_lost_rail_is_survived() {
    let Some((fabric, _alone)) = wired("a_lost_rail_is_survived") else { return };
    for host in [0, 1] {
        let Some(mut wire) = Wire::of(host, 0) else { return };
        let arguments = ["latency", "-m", "4096:524288", "-i", "20"];
        let quick = ["btl_verbs_link_timeout", "500ms", "btl_verbs_stall_timeout", "3s"];
        let mut job = Job::new(&fabric, 2, "iw-osu", &arguments).parameters(&quick).start();
        job.until("16384 ");
        wire.down();
        swept(&job.finish(), 8);
        wire.up();
    }
}

/// A rail is cut, comes back, and the other one is cut: messages go on.
#[test]
fn a_mended_rail_is_used_again() {
    let Some((fabric, _alone)) = wired("a_mended_rail_is_used_again") else { return };
    let (Some(mut first), Some(mut second)) = (Wire::of(0, 0), Wire::of(1, 1)) else { return };
    let arguments = ["latency", "-m", "1024:1048576", "-i", "20"];
    let quick = ["btl_verbs_link_timeout", "500ms", "btl_verbs_stall_timeout", "3s"];
    let mut job = Job::new(&fabric, 2, "iw-osu", &arguments).parameters(&quick).start();
    job.until("2048 ");
    first.down();
    job.until("16384 ");
    first.up();
    job.until("131072 ");
    second.down();
    swept(&job.finish(), 11);
}

/// Both wires lose one packet of twenty, each way.
#[test]
fn a_job_recovers_over_wires_that_lose() {
    let Some((fabric, _alone)) = wired("a_job_recovers_over_wires_that_lose") else { return };
    let mut wires: Vec<Wire> = [(0, 0), (0, 1), (1, 0), (1, 1)]
        .into_iter()
        .filter_map(|(host, rail)| Wire::of(host, rail))
        .collect();
    wires.iter_mut().for_each(|wire| wire.netem("loss 5%"));
    recovered(&Job::new(&fabric, 4, "survive", &["--megabytes", "1"]).finish());
}

/// What cannot be had is told in words, and the job does not start; or goes on over tcp where that is allowed.
#[test]
fn what_cannot_be_had_is_told() {
    let Some((fabric, _alone)) = given("what_cannot_be_had_is_told") else { return };
    let refused = |change: &dyn Fn(Job<'_>) -> Job<'_>, words: &[&str]| {
        let (status, output) =
            change(Job::new(&fabric, 2, "iw-osu", &["latency", "-m", "8:8", "-i", "1"])).end();
        assert!(!status, "it went on without:\n{output}");
        assert!(words.iter().all(|word| output.contains(word)), "{words:?} are not in:\n{output}");
    };
    refused(&|job| job.devices("nosuch0"), &["nosuch0", "is not one of"]);
    if !fabric.is_iwarp() {
        // Which has neither.
        refused(&|job| job.parameters(&["btl_verbs_gid_index", "99"]), &["GID", "99"]);
        refused(&|job| job.parameters(&["btl_verbs_pkey_index", "77"]), &["partition", "77"]);
    }
    refused(&|job| job.locked_memory(64), &["locked memory", "ulimit -l"]);
    // With tcp beside it, and no device named, the job goes on.
    let arguments = ["latency", "-m", "8:8", "-i", "1"];
    let job = Job::new(&fabric, 2, "iw-osu", &arguments).devices("").locked_memory(64);
    swept(&job.parameters(&["btl", "self,shm,verbs,tcp"]).finish(), 1);
}

/// The watchdog itself: a job that hangs is ended and told.
#[test]
fn a_job_that_hangs_is_ended() {
    let Some((fabric, _alone)) = given("a_job_that_hangs_is_ended") else { return };
    let job = Job::new(&fabric, 1, "sleep", &["1000"]).limit(Duration::from_secs(3));
    let running: Running = job.start();
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| running.finish()));
    assert!(ended.is_err(), "a job that sleeps was not ended");
}
