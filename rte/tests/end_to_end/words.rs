//! Mistakes of the person who starts a job: each ends in words that name the mistake, and a code.

use crate::support::{Job, Outcome, probe};
use std::ffi::OsStr;
use std::net::TcpListener;
use std::process::Stdio;

fn run(args: &[&str]) -> Outcome {
    Job::start(args.iter().map(OsStr::new), Stdio::null()).outcome()
}

#[track_caller]
fn assert_words(args: &[&str], code: i32, words: &[&str]) {
    let outcome = run(args);
    assert_eq!(outcome.code(), Some(code), "{outcome:?}");
    for word in words {
        assert!(outcome.err.contains(word), "{word:?} is not in {:?}", outcome.err);
    }
    assert!(outcome.out.is_empty(), "{outcome:?}");
}

#[test]
fn a_missing_program() {
    assert_words(&["-n", "3", "no-such-program"], 127, &["no program no-such-program in PATH"]);
    assert_words(&["-n", "1", "./no-such"], 127, &["there is no program ./no-such"]);
    assert_words(&["-n", "2", "/etc/passwd"], 126, &["/etc/passwd is not a program"]);
}

#[test]
fn no_ranks_or_more_ranks_than_slots() {
    assert_words(&["-n", "0", "true"], 1, &["-n 0", "at least one rank"]);
    assert_words(&["-n", "3", "--hosts", "a:1,b:1", "true"], 1, &["-n 3", "slots (2)"]);
    assert_words(&["--hosts", "a:zero", "true"], 1, &["--hosts", "a:zero"]);
}

#[test]
fn an_unknown_parameter_or_a_wrong_value() {
    assert_words(&["--mca", "btl_tcp_link", "2", "true"], 1, &["did you mean \"btl_tcp_links\"?"]);
    assert_words(&["--mca", "btl", "openib", "true"], 1, &["no component \"openib\"", "shm"]);
}

#[test]
fn an_unknown_host() {
    let agent = "ip netns exec {host}";
    let args = ["--hosts", "iw-no-such-host", "--launch-agent", agent, "true"];
    assert_words(&args, 1, &["host iw-no-such-host", "ip netns exec iw-no-such-host", "ended"]);
}

#[test]
fn a_missing_or_dead_launch_agent() {
    let missing = ["--hosts", "h", "--launch-agent", "/no/such/agent", "true"];
    assert_words(&missing, 1, &["cannot start launch agent `/no/such/agent h`"]);
    let dead = ["--hosts", "h", "--launch-agent", "false", "true"];
    assert_words(&dead, 1, &["host h", "`false h` ended (exit status: 1)"]);
}

#[test]
fn a_port_in_use() {
    let taken = TcpListener::bind("[::]:0").expect("a port");
    let port = taken.local_addr().expect("address").port().to_string();
    let args = ["--hosts", "h", "--launch-agent", "true", "--port", &port, "true"];
    assert_words(&args, 1, &[&format!("port {port} is in use"), "--port"]);
}

#[test]
fn a_daemon_that_is_not_ours_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = crate::support::Scratch::new("agent");
    let agent = scratch.path().join("agent");
    // Replaces the secret (the third word) on its way to the daemon.
    let zeros = "0".repeat(64);
    let script = format!(
        "#!/bin/sh\nread greeting node secret rest\nshift\n\
         echo $greeting $node {zeros} $rest | \"$@\"\n"
    );
    std::fs::write(&agent, script).expect("write");
    std::fs::set_permissions(&agent, PermissionsExt::from_mode(0o755)).expect("chmod");
    let agent = agent.display().to_string();
    let args = ["--hosts", "h", "--launch-agent", &agent, "true"];
    let words = ["does not hold the job's secret", "host h", "the launcher refused this daemon"];
    assert_words(&args, 1, &words);
}

#[test]
fn ranks_in_an_impossible_environment() {
    let cases: [(&[(&str, &str)], &str); 5] = [
        (&[("PMI_FD", "7")], "PMI_RANK is not"),
        (&[("PMI_FD", "x"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")], "no descriptor"),
        (&[("PMI_FD", "77"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")], "descriptor 77 of PMI_FD"),
        (&[("PMI_PORT", "127.0.0.1:1"), ("PMI_ID", "0")], "cannot connect to PMI_PORT"),
        (&[("IRONWEAVE_BLT", "tcp")], "did you mean"),
    ];
    for (env, words) in cases {
        let mut command = std::process::Command::new(probe());
        command.arg("join").envs(env.iter().copied());
        let outcome = Job::spawn(command, Stdio::null()).outcome();
        assert_eq!(outcome.code(), Some(1), "{env:?}: {outcome:?}");
        // Debug quotes of main's error escape the inner ones.
        assert!(outcome.err.contains(words) || outcome.err.contains("Unknown"), "{outcome:?}");
    }
}

#[test]
fn a_log_filter_that_cannot_be_read() {
    let mut command = std::process::Command::new(probe());
    command.arg("join").env("IRONWEAVE_LOG", "ironweave=loud");
    let outcome = Job::spawn(command, Stdio::null()).outcome();
    assert_eq!(outcome.code(), Some(0), "it is no reason to fail: {outcome:?}");
    assert!(outcome.err.contains("IRONWEAVE_LOG=\"ironweave=loud\" is no filter"), "{outcome:?}");
}
