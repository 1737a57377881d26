//! Whole jobs over libfabric's `verbs;ofi_rxm`: as `jobs.rs` runs them over verbs, the ones about failures. In the virtual machine
//! both hosts share the network namespace of the links (`together`), where the connection manager finds them.

mod support;

use support::Way;

/// libfabric's datagrams over connections of the devices, and nothing else. Messages go in frames: nothing is read over this
/// provider (`btl/ofi/src/provider.rs`).
const RXM: Way = Way {
    suite: "ofi_jobs",
    parameters: &["btl", "self,ofi", "btl_ofi_provider_include", "verbs;ofi_rxm"],
    variable: "IRONWEAVE_OFI_LIB",
    library: "libfabric.so.1",
};

#[test]
fn latency_over_verbs_rxm() {
    RXM.latency("latency_over_verbs_rxm");
}

#[test]
fn a_killed_rank_over_verbs_rxm() {
    RXM.a_killed_rank("a_killed_rank_over_verbs_rxm");
}

#[test]
fn revoke_agree_and_shrink_over_verbs_rxm() {
    RXM.revoke_agree_and_shrink("revoke_agree_and_shrink_over_verbs_rxm");
}

#[test]
fn kills_at_random_moments_over_verbs_rxm() {
    RXM.kills_at_random_moments("kills_at_random_moments_over_verbs_rxm");
}

#[test]
fn a_stopped_rank_is_found_and_ended_over_verbs_rxm() {
    RXM.a_stopped_rank("a_stopped_rank_is_found_and_ended_over_verbs_rxm");
}

#[test]
fn a_job_recovers_over_wires_that_lose_over_verbs_rxm() {
    RXM.wires_that_lose("a_job_recovers_over_wires_that_lose_over_verbs_rxm");
}

#[test]
fn a_short_cut_is_survived_over_verbs_rxm() {
    RXM.a_short_cut("a_short_cut_is_survived_over_verbs_rxm");
}

/// What is not there is named, and the job does not start.
#[test]
fn what_ofi_cannot_have_is_told() {
    let Some((fabric, _alone)) = RXM.given("what_ofi_cannot_have_is_told") else { return };
    let words = RXM.refusal(&fabric, &["btl_ofi_domain_include", "mlx9_9"]);
    assert!(words.contains("no provider is left of") && words.contains("mlx9_9"), "{words}");
    let words = RXM.refusal(&fabric, &["btl_ofi_provider_include", "cxi"]);
    assert!(words.contains("no provider is left of nothing"), "{words}");
}
