//! End to end: real processes under the real launcher, over every transport, killed for real. What the ranks do and check
//! is in `mpi/examples/scenarios.rs`.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long a job may take before the watchdog calls it hung.
const PATIENCE: Duration = Duration::from_secs(100);

/// The directory of this profile's programs, with the launcher and the scenarios built.
fn programs() -> &'static PathBuf {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let test = std::env::current_exe().expect("a running test has a path");
        let directory =
            test.ancestors().nth(2).expect("tests are in target/PROFILE/deps").to_owned();
        let mut build = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
        build.args([
            "build",
            "--quiet",
            "-p",
            "ironweave-rte",
            "-p",
            "ironweave",
            "--bin",
            "ironweave",
        ]);
        build.args(["--example", "scenarios"]);
        if directory.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().expect("cargo runs").success(), "the programs cannot be built");
        directory
    })
}

/// Runs a scenario; gives its output when it ended in time, a watchdog's dump otherwise.
fn run(ranks: u32, parameters: &[&str], arguments: &[&str]) -> Output {
    let mut command = Command::new(programs().join("ironweave"));
    command.args(["run", "-n", &ranks.to_string()]);
    for parameter in parameters.chunks(2) {
        command.arg("--mca").args(parameter);
    }
    command.arg(programs().join("examples/scenarios")).args(arguments);
    // Ranks that wait in vain say what they wait for, well before this test gives up on them.
    command.env("IRONWEAVE_WATCHDOG", "40");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the launcher starts");
    let since = Instant::now();
    let mut hung = false;
    while child.try_wait().expect("the launcher is this process's child").is_none() {
        if since.elapsed() > PATIENCE {
            hung = true;
            child.kill().expect("the launcher is this process's child");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().expect("the launcher's output can be read");
    assert!(!hung, "{arguments:?} hung: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Runs a scenario that must succeed.
fn succeed(ranks: u32, parameters: &[&str], arguments: &[&str]) {
    let output = run(ranks, parameters, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{arguments:?} over {parameters:?}: {:?}\n{errors}",
        output.status
    );
}

const SHM: &[&str] = &["btl", "self,shm"];
const TCP: &[&str] = &["btl", "self,tcp", "btl_tcp_if_include", "lo"];
const STRIPED: &[&str] = &["btl", "self,tcp", "btl_tcp_if_include", "lo", "btl_tcp_links", "3"];

macro_rules! over_all {
    ($($test:ident: $ranks:literal $arguments:expr;)*) => {
        mod shm { $(#[test] fn $test() { super::succeed($ranks, super::SHM, &$arguments); })* }
        mod tcp { $(#[test] fn $test() { super::succeed($ranks, super::TCP, &$arguments); })* }
    };
}

over_all! {
    every_size_and_mode: 3 ["sizes"];
    every_call: 2 ["calls"];
    order_is_kept: 4 ["order", "7"];
    mistakes_are_told: 2 ["mistakes"];
    eight_threads: 2 ["threads"];
    wildcards_and_failures: 4 ["wildcards"];
    a_quiet_exit_is_a_failure: 3 ["quiet_exit"];
    a_dead_receive_is_not_written: 3 ["dead_buffer"];
}

#[test]
fn all_transports_at_once() {
    succeed(4, &[], &["sizes"]);
}

#[test]
fn three_links_carry_every_size_in_order() {
    succeed(2, STRIPED, &["sizes"]);
    succeed(3, STRIPED, &["order", "3"]);
}

#[test]
fn a_job_of_one_talks_to_itself() {
    succeed(1, &[], &["sizes"]);
    succeed(1, &[], &["mistakes"]);
}

/// A rank dies at a random moment of an all-to-all exchange: `IW_SEED=N` replays one.
#[test]
fn kills_at_random_moments() {
    let seeds = match std::env::var("IW_SEED") {
        Ok(seed) => vec![seed.parse::<u64>().expect("IW_SEED is a number")],
        Err(_) => (0..10).collect(),
    };
    for seed in seeds {
        for transport in [SHM, TCP, STRIPED] {
            println!(
                "replay with IW_SEED={seed} cargo nextest run -p ironweave kills_at_random_moments"
            );
            succeed(4, transport, &["random_kill", &seed.to_string()]);
        }
    }
}

#[test]
fn a_wrong_parameter_is_told() {
    let output = run(1, &["btl_tcp_lnks", "2"], &["mistakes"]);
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("btl_tcp_lnks") && text.contains("did you mean \"btl_tcp_links\""),
        "{text}"
    );
}

#[test]
fn an_unknown_interface_is_told() {
    let output = run(2, &["btl", "self,tcp", "btl_tcp_if_include", "nosuch0"], &["mistakes"]);
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("unknown interface `nosuch0`"), "{text}");
}
