//! Whole jobs over UCX's rc_verbs: as `jobs.rs` runs them over verbs, the ones about failures.

use ironweave_hwtests::fabric::Fabric;
use ironweave_hwtests::job::Job;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One job at a time has the devices.
static ALONE: Mutex<()> = Mutex::new(());

/// UCX's connections over the devices' reliable queue pairs, and nothing else.
const RC: [&str; 4] = ["btl", "self,uct", "btl_uct_transports", "rc_verbs"];

/// The devices that were given; `None`, with a line that says so, where there are none, no programs, or no UCX.
fn given(test: &str) -> Option<(Fabric, MutexGuard<'static, ()>)> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let skip = |why: &str| {
        println!("SKIP uct_jobs/{test}: {why}");
        None
    };
    let Some(fabric) = Fabric::given() else {
        return skip("no devices are given (IRONWEAVE_VERBS_HOSTS)");
    };
    if Job::programs().is_none() {
        return skip("no programs are given (IRONWEAVE_PROGRAMS)");
    }
    let ucx = ["/usr/lib/x86_64-linux-gnu/libuct.so.0", "/usr/lib64/libuct.so.0"];
    if std::env::var_os("IRONWEAVE_UCT_LIB").is_none()
        && !ucx.iter().any(|path| std::path::Path::new(path).exists())
    {
        return skip("no libuct.so.0");
    }
    Some((fabric, alone))
}

fn job<'a>(fabric: &'a Fabric, ranks: u32, program: &'a str, arguments: &[&str]) -> Job<'a> {
    Job::new(fabric, ranks, program, arguments).parameters(&RC)
}

/// Puts, gets and frames of all sizes to four megabytes.
#[test]
fn latency_over_rc_verbs() {
    let Some((fabric, _alone)) = given("latency_over_rc_verbs") else { return };
    let output = job(&fabric, 2, "iw-osu", &["latency", "-m", "1:4194304", "-i", "2"]).finish();
    let rows = output.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    assert_eq!(rows.count(), 23, "{output}");
}

/// The demo's job: rank 3 is killed in the middle of large transfers, the others recover and finish.
#[test]
fn a_killed_rank_over_rc_verbs() {
    let Some((fabric, _alone)) = given("a_killed_rank_over_rc_verbs") else { return };
    let output = job(&fabric, 4, "survive", &["--megabytes", "1"]).finish();
    let survivors: Vec<&str> =
        output.lines().filter(|line| line.starts_with("survivor ")).collect();
    assert_eq!(survivors.len(), 3, "{output}");
    assert!(survivors.iter().all(|line| line.contains("wrong_words=0")), "{output}");
}

/// Revoke with everything pending, agreement, shrinking, with processes that die meanwhile.
#[test]
fn revoke_agree_and_shrink_over_rc_verbs() {
    let Some((fabric, _alone)) = given("revoke_agree_and_shrink_over_rc_verbs") else { return };
    for scenario in [&["revoke"][..], &["buddy", "3"], &["agree", "5"]] {
        job(&fabric, 4, "recovery", scenario).finish();
    }
}

/// What is not there is named, and the job does not start.
#[test]
fn what_uct_cannot_have_is_told() {
    let Some((fabric, _alone)) = given("what_uct_cannot_have_is_told") else { return };
    let told = |parameters: &[&str]| {
        let job = Job::new(&fabric, 2, "iw-osu", &["latency", "-m", "8:8", "-i", "2"]);
        let job = job.parameters(&["btl", "self,uct"]).parameters(parameters);
        let (well, words) = job.devices("").end();
        assert!(!well, "{words}");
        words
    };
    let words = told(&["btl_uct_transports", "rc_verbs", "btl_uct_devices", "mlx9_9:1"]);
    assert!(words.contains("uct: no device mlx9_9:1; there are "), "{words}");
    let words = told(&["btl_uct_transports", "rc_mlx5"]);
    assert!(words.contains("uct: no transport rc_mlx5; there are "), "{words}");
}
