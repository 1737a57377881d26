//! `ironweave info` and `ironweave doctor` as commands.

use crate::support::{Job, Outcome, ironweave};
use std::process::{Command, Stdio};

fn ironweave_with(args: &[&str], env: &[(&str, &str)]) -> Outcome {
    let mut command = Command::new(ironweave());
    command.args(args).envs(env.iter().copied());
    Job::spawn(command, Stdio::null()).outcome()
}

#[test]
fn info_tells_values_and_where_they_come_from() {
    let outcome =
        ironweave_with(&["info", "--mca", "btl", "^shm"], &[("IRONWEAVE_BTL_TCP_LINKS", "4")]);
    assert_eq!(outcome.code(), Some(0), "{outcome:?}");
    let line = |name: &str| {
        let found = outcome.out.iter().find(|line| line.trim_start().starts_with(name));
        found.unwrap_or_else(|| panic!("no {name} in {outcome:?}")).clone()
    };
    assert!(line("btl_tcp_links ").ends_with("4  (environment)"));
    assert!(outcome.out.iter().any(|line| line.ends_with("^shm  (command line)")));

    assert!(line("placement ").contains(" cores, order from "), "{outcome:?}");

    let outcome = ironweave_with(&["info", "--json", "--param", "btl"], &[]);
    let json: serde_json::Value = serde_json::from_str(&outcome.out.join("\n")).expect("JSON");
    assert_eq!(json["params"][0]["name"], "btl");
    assert_eq!(json["params"].as_array().map(Vec::len), Some(1));

    let outcome = ironweave_with(&["info", "--param", "btl_tcp_lnks"], &[]);
    assert_eq!(outcome.code(), Some(1));
    assert!(outcome.err.contains("did you mean \"btl_tcp_links\"?"), "{outcome:?}");
}

#[test]
fn doctor_looks_at_everything_and_an_error_decides_its_code() {
    let outcome = ironweave_with(&["doctor"], &[]);
    let text = outcome.out.join("\n");
    let subjects = [
        "memfd sealing",
        "pidfd",
        "cross-memory attach",
        "ptrace scope",
        "membarrier",
        "/dev/shm",
        "locked memory",
        "cores",
        "interface lo",
        "libfabric",
        "libibverbs",
        "libuct",
        "libhwloc",
        "libpmix",
    ];
    for subject in subjects {
        assert!(text.contains(subject), "{subject} is missing:\n{text}");
    }
    let wrong = outcome.out.iter().any(|line| line.starts_with("ERROR"));
    assert_eq!(outcome.code(), Some(i32::from(wrong)), "{text}");

    // The cores' line says whom the order is from: hwloc where it works, the kernel if not.
    let cores = |outcome: &Outcome| {
        let found = outcome.out.iter().find(|line| line.contains(" hardware threads allowed"));
        found.unwrap_or_else(|| panic!("no cores in {outcome:?}")).clone()
    };
    match ironweave_ffi::hwloc::cores() {
        Ok(_) => assert!(cores(&outcome).contains("order from hwloc 2."), "{text}"),
        Err(why) => assert!(cores(&outcome).contains(&why.to_string()), "{text}"),
    }
    let outcome = ironweave_with(&["doctor"], &[("HWLOC_SYNTHETIC", "core:3 pu:1")]);
    assert!(cores(&outcome).contains("order from the kernel (hwloc: "), "{outcome:?}");

    let outcome = ironweave_with(&["doctor"], &[("IRONWEAVE_BLT", "tcp")]);
    assert_eq!(outcome.code(), Some(1), "{outcome:?}");
    assert!(outcome.out.iter().any(|line| line.starts_with("ERROR  parameters")), "{outcome:?}");
}
