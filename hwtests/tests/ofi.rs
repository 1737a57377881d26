//! Whole jobs over libfabric's `verbs;ofi_rxm`: as `jobs.rs` runs them over verbs, the ones about failures. In the virtual machine
//! both hosts share the network namespace of the links (`together`), where the connection manager finds them.

use ironweave_hwtests::fabric::Fabric;
use ironweave_hwtests::job::Job;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One job at a time has the devices.
static ALONE: Mutex<()> = Mutex::new(());

/// libfabric's datagrams over connections of the devices, and nothing else.
const RXM: [&str; 4] = ["btl", "self,ofi", "btl_ofi_provider_include", "verbs;ofi_rxm"];

/// The devices that were given; `None`, with a line that says so, where there are none, no programs, or no libfabric.
fn given(test: &str) -> Option<(Fabric, MutexGuard<'static, ()>)> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let skip = |why: &str| {
        println!("SKIP ofi_jobs/{test}: {why}");
        None
    };
    let Some(fabric) = Fabric::given() else {
        return skip("no devices are given (IRONWEAVE_VERBS_HOSTS)");
    };
    if Job::programs().is_none() {
        return skip("no programs are given (IRONWEAVE_PROGRAMS)");
    }
    let libfabric = ["/usr/lib/x86_64-linux-gnu/libfabric.so.1", "/usr/lib64/libfabric.so.1"];
    if std::env::var_os("IRONWEAVE_OFI_LIB").is_none()
        && !libfabric.iter().any(|path| std::path::Path::new(path).exists())
    {
        return skip("no libfabric.so.1");
    }
    Some((fabric, alone))
}

fn job<'a>(fabric: &'a Fabric, ranks: u32, program: &'a str, arguments: &[&str]) -> Job<'a> {
    Job::new(fabric, ranks, program, arguments).parameters(&RXM)
}

/// Messages of all sizes to four megabytes, in frames: nothing is read over this provider (`btl/ofi/src/provider.rs`).
#[test]
fn latency_over_verbs_rxm() {
    let Some((fabric, _alone)) = given("latency_over_verbs_rxm") else { return };
    let output = job(&fabric, 2, "iw-osu", &["latency", "-m", "1:4194304", "-i", "2"]).finish();
    let rows = output.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    assert_eq!(rows.count(), 23, "{output}");
}

/// The demo's job: rank 3 is killed in the middle of large transfers, the others recover and finish.
#[test]
fn a_killed_rank_over_verbs_rxm() {
    let Some((fabric, _alone)) = given("a_killed_rank_over_verbs_rxm") else { return };
    let output = job(&fabric, 4, "survive", &["--megabytes", "1"]).finish();
    let survivors: Vec<&str> =
        output.lines().filter(|line| line.starts_with("survivor ")).collect();
    assert_eq!(survivors.len(), 3, "{output}");
    assert!(survivors.iter().all(|line| line.contains("wrong_words=0")), "{output}");
}

/// Revoke with everything pending, agreement, shrinking, with processes that die meanwhile.
#[test]
fn revoke_agree_and_shrink_over_verbs_rxm() {
    let Some((fabric, _alone)) = given("revoke_agree_and_shrink_over_verbs_rxm") else { return };
    for scenario in [&["revoke"][..], &["buddy", "3"], &["agree", "5"]] {
        job(&fabric, 4, "recovery", scenario).finish();
    }
}

/// What is not there is named, and the job does not start.
#[test]
fn what_ofi_cannot_have_is_told() {
    let Some((fabric, _alone)) = given("what_ofi_cannot_have_is_told") else { return };
    let told = |parameters: &[&str]| {
        let job = Job::new(&fabric, 2, "iw-osu", &["latency", "-m", "8:8", "-i", "2"]);
        let (well, words) = job.parameters(&RXM).parameters(parameters).devices("").end();
        assert!(!well, "{words}");
        words
    };
    let words = told(&["btl_ofi_domain_include", "mlx9_9"]);
    assert!(words.contains("no provider is left of") && words.contains("mlx9_9"), "{words}");
    let words = told(&["btl_ofi_provider_include", "cxi"]);
    assert!(words.contains("no provider is left of nothing"), "{words}");
}
