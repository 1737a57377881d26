//! Jobs in which nothing fails: wire-up, input and output, signals, exit codes, binding.

use crate::support::{Job, Scratch, ironweave, probe, run_probe};
use ironweave_rte::launch::placement;
use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::ffi::OsStr;
use std::process::{Command, Stdio};

#[test]
fn ranks_find_each_other() {
    let outcome = run_probe("-n 4", "join whoami publish fence lookup finalize").outcome();
    assert_eq!(outcome.code(), Some(0), "{outcome:?}");
    for rank in 0..4 {
        assert_eq!(outcome.count(&format!("blob {rank} whole")), 4);
        let own = format!("rank {rank} of 4 local [0, 1, 2, 3] secret ");
        assert_eq!(outcome.out.iter().filter(|line| line.starts_with(&own)).count(), 1);
    }
    let secrets: std::collections::HashSet<_> =
        outcome.out.iter().filter_map(|line| line.split_once(" secret ")).map(|(_, s)| s).collect();
    assert_eq!(secrets.len(), 1, "one secret for all");
    assert_eq!(outcome.err, "");
}

#[test]
fn all_ranks_of_a_host_are_told_the_same_of_long_messages() {
    let print = "echo $IRONWEAVE_SINGLE_COPY";
    let args = ["-n", "3", "/bin/sh", "-c", print].map(OsStr::new);
    let outcome = Job::start(args, Stdio::null()).outcome();
    assert_eq!(outcome.code(), Some(0), "{outcome:?}");
    let told: Vec<ironweave_btl_shm::SingleCopy> =
        outcome.out.iter().map(|line| line.parse().unwrap()).collect();
    assert!(told.len() == 3 && told.iter().all(|one| *one == told[0]), "{outcome:?}");
}

#[test]
fn many_more_ranks_than_cores_wire_up() {
    let outcome = run_probe("-n 48", "join publish fence finalize").outcome();
    assert_eq!((outcome.code(), outcome.err.as_str()), (Some(0), ""));
}

#[test]
fn a_process_alone_is_a_job_of_one() {
    let mut command = Command::new(probe());
    command.args(["join", "whoami", "publish", "fence", "lookup", "finalize"]);
    let outcome = Job::spawn(command, Stdio::null()).outcome();
    assert_eq!(outcome.code(), Some(0), "{outcome:?}");
    assert!(outcome.out[0].starts_with("rank 0 of 1 local [0]"));
    assert_eq!(outcome.count("blob 0 whole"), 1);
}

#[test]
fn exit_codes_without_a_failure_are_those_of_rank_0() {
    let cases = [
        ("-n 2", "exit:0", 0),
        ("-n 3", "join finalize 0/exit:4 exit:5", 4),
        ("-n 3", "join finalize 0/exit:0 exit:5", 0),
    ];
    for (args, steps, code) in cases {
        let outcome = run_probe(args, steps).outcome();
        assert_eq!((outcome.code(), outcome.err.as_str()), (Some(code), ""), "{steps}");
    }
}

#[test]
fn a_program_that_knows_nothing_of_us_is_no_failure() {
    let outcome = Job::start(["-n", "3", "/bin/true"].map(OsStr::new), Stdio::null()).outcome();
    assert_eq!((outcome.code(), outcome.err.as_str()), (Some(0), ""));
}

#[test]
fn megabytes_of_output_arrive_whole_line_by_line() {
    let outcome = run_probe("-n 3", "lines:30000").outcome();
    assert_eq!(outcome.code(), Some(0));
    assert_eq!(outcome.out.len(), 90_000);
    let mut next = [0u64; 3];
    for line in &outcome.out {
        let mut words = line.split_whitespace();
        let rank: usize = words.next().expect("rank").parse().expect("rank");
        let number: u64 = words.next().expect("number").parse().expect("number");
        assert_eq!(number, next[rank], "rank {rank}");
        assert_eq!(words.next().map(str::len), Some(40));
        next[rank] += 1;
    }
}

#[test]
fn the_last_bytes_of_a_killed_rank_are_not_lost() {
    let steps = "join 1/lines:2000 1/partial:last-words 1/kill:9 failures:1 finalize";
    let outcome = run_probe("-n 2", steps).outcome();
    assert_eq!(outcome.code(), Some(0), "{outcome:?}");
    assert_eq!(outcome.out.iter().filter(|line| line.starts_with("1 ")).count(), 2000);
    assert!(outcome.out.iter().any(|line| line.contains("last-words")), "{outcome:?}");
}

#[test]
fn tags_name_the_rank_of_each_line() {
    let outcome = run_probe("-n 2 --tag-output", "0/print:zero 1/print:one").outcome();
    let mut lines = outcome.out.clone();
    lines.sort();
    assert_eq!(lines, ["[0] zero", "[1] one"]);
}

#[test]
fn standard_input_goes_to_rank_0_alone() {
    let data: Vec<u8> = (0..3_000_000u32).map(|index| (index % 251) as u8).collect();
    let whole = format!("stdin {} bytes {}", data.len(), &blake3::hash(&data).to_hex()[..16]);
    let nothing = format!("stdin 0 bytes {}", &blake3::hash(b"").to_hex()[..16]);
    let probe = probe();
    let args = [OsStr::new("-n"), OsStr::new("2"), probe.as_os_str(), OsStr::new("stdin")];
    let mut job = Job::start(args, Stdio::piped());
    job.feed(data);
    let outcome = job.outcome();
    assert_eq!((outcome.count(&whole), outcome.count(&nothing)), (1, 1), "{outcome:?}");
}

#[test]
fn input_nobody_reads_holds_nothing_up() {
    let probe = probe();
    let args = [OsStr::new("-n"), OsStr::new("2"), probe.as_os_str(), OsStr::new("print:done")];
    let mut job = Job::start(args, Stdio::piped());
    job.feed(vec![7; 3_000_000]);
    let outcome = job.outcome();
    assert_eq!((outcome.code(), outcome.count("done")), (Some(0), 2));
}

#[test]
fn ranks_whose_reader_has_gone_learn_it() {
    let pipe = format!("{} run -n 2 yes | head -n 1; echo ended", ironweave().display());
    let mut command = Command::new("sh");
    command.args(["-c", &pipe]);
    let outcome = Job::spawn(command, Stdio::null()).outcome();
    assert_eq!(outcome.out, ["y", "ended"]);
}

#[test]
fn signals_are_passed_on_to_every_rank() {
    for (signal, number) in [(Signal::USR1, 10), (Signal::USR2, 12), (Signal::TERM, 15)] {
        let mut job = run_probe("-n 2", &format!("join catch:{number} finalize"));
        job.expect("ready 0");
        job.expect("ready 1");
        job.signal(signal);
        let outcome = job.outcome();
        assert_eq!(outcome.code(), Some(0), "{outcome:?}");
        for rank in 0..2 {
            assert_eq!(outcome.count(&format!("caught {rank} {number}")), 1);
        }
    }
}

#[test]
fn an_interrupt_ends_ranks_that_do_not_catch_it() {
    let mut job = run_probe("-n 2", "join pid sleep:60000");
    job.expect("pid 0");
    job.expect("pid 1");
    job.signal(Signal::INT);
    let outcome = job.outcome();
    assert_eq!(outcome.code(), Some(128 + 2), "{outcome:?}");
}

#[test]
fn parameters_reach_ranks_with_their_source() {
    let scratch = Scratch::new("params");
    let file = scratch.path().join("ironweave.toml");
    std::fs::write(&file, "[btl.tcp]\nlinks = 3\nuser_timeout = \"7s\"\n").expect("write");
    let mut command = Command::new(ironweave());
    command.args(["run", "-n", "1", "--mca", "btl", "^tcp"]).arg(probe());
    command.args(["join", "param:btl", "param:btl_tcp_links", "param:btl_tcp_user_timeout"]);
    command.args(["param:btl_tcp_sndbuf", "finalize"]);
    command.env("IRONWEAVE_BTL_TCP_LINKS", "2");
    let outcome = Job::spawn_with_config(command, &file).outcome();
    let file = file.display();
    let expected = [
        "btl = ^tcp from command line".to_owned(),
        "btl_tcp_links = 2 from environment".to_owned(),
        format!("btl_tcp_user_timeout = 7s from file {file}"),
        "btl_tcp_sndbuf = 0 from default".to_owned(),
    ];
    assert_eq!(outcome.out, expected, "{outcome:?}");
}

/// Runs three ranks bound to cores and one unbound, and compares with what this thread may use.
fn check_binding() {
    let cores = placement::cores().sets;
    let list = |holds: &dyn Fn(usize) -> bool| {
        let cpus: Vec<_> = (0..CpuSet::MAX_CPU).filter(|cpu| holds(*cpu)).collect();
        format!("{cpus:?}")
    };
    let outcome = run_probe("-n 3 --bind-to core", "affinity").outcome();
    assert_eq!(outcome.code(), Some(0), "{outcome:?}");
    for rank in 0..3 {
        let core = list(&|cpu| cores[rank % cores.len()].is_set(cpu));
        assert_eq!(outcome.count(&format!("rank {rank} on cpus {core}")), 1, "{outcome:?}");
    }
    let outcome = run_probe("-n 1 --bind-to none", "affinity").outcome();
    let all = list(&|cpu| cores.iter().any(|core| core.is_set(cpu)));
    assert_eq!(outcome.out, [format!("rank 0 on cpus {all}")]);
}

#[test]
fn ranks_are_bound_as_asked() {
    check_binding();
}

#[test]
fn a_restricted_mask_is_kept_with_more_ranks_than_cores() {
    // The mask of this thread, which is the one that starts the launcher.
    let allowed = sched_getaffinity(None).expect("a mask");
    let last = (0..CpuSet::MAX_CPU).rfind(|cpu| allowed.is_set(*cpu)).expect("a cpu");
    let mut mask = CpuSet::new();
    mask.set(last);
    sched_setaffinity(None, &mask).expect("a part of our own mask");
    assert_eq!(placement::cores().sets, [mask]);
    check_binding();
    sched_setaffinity(None, &allowed).expect("our own mask");
}

#[test]
fn where_hwloc_describes_another_machine_the_kernels_order_binds() {
    let mut command = Command::new(ironweave());
    command.env("HWLOC_SYNTHETIC", "package:2 core:64 pu:1");
    command.args(["run", "-n", "3", "--bind-to", "core"]).arg(probe()).arg("affinity");
    let outcome = Job::spawn(command, Stdio::null()).outcome();
    assert_eq!((outcome.code(), outcome.out.len()), (Some(0), 3), "{outcome:?}");
    let cores = placement::cores().sets;
    for rank in 0..3 {
        let start = format!("rank {rank} on cpus [");
        let line = outcome.out.iter().find_map(|line| line.strip_prefix(&start));
        let cpus: Vec<usize> = line
            .and_then(|list| list.strip_suffix(']'))
            .unwrap_or_else(|| panic!("no line of rank {rank}: {outcome:?}"))
            .split(", ")
            .map(|cpu| cpu.parse().expect("a number"))
            .collect();
        let is_that = |core: &CpuSet| {
            core.count() as usize == cpus.len() && cpus.iter().all(|cpu| core.is_set(*cpu))
        };
        assert!(cores.iter().any(is_that), "rank {rank} is on {cpus:?}, no core of ours");
    }
}
