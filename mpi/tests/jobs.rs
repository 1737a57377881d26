//! End to end: real processes under the real launcher, over every transport, killed for real. What the ranks do and check
//! is in `mpi/examples/scenarios.rs`.

#[path = "support/fabrics.rs"]
mod fabrics;
mod support;

use fabrics::{NATIVE_TCP, OFI, UCT, has_libfabric, has_uct, native_tcp};
use std::path::Path;
use std::process::{Command, Output};
use support::{Job, SHM, TCP};

/// Three links, all of them rails.
const STRIPED: &[&str] = &["btl", "self,tcp", "btl_tcp_if_include", "lo", "btl_tcp_links", "3"];

/// Runs a scenario.
fn run(ranks: u32, parameters: &[&str], arguments: &[&str]) -> Output {
    Job { ranks, parameters, program: "scenarios", arguments, tcp_from: None }.run()
}

/// Runs a scenario that must succeed.
fn succeed(ranks: u32, parameters: &[&str], arguments: &[&str]) {
    Job { ranks, parameters, program: "scenarios", arguments, tcp_from: None }.succeed();
}

macro_rules! over_all {
    ($($test:ident: $ranks:literal $arguments:expr;)*) => {
        mod shm { $(#[test] fn $test() { super::succeed($ranks, super::SHM, &$arguments); })* }
        mod tcp { $(#[test] fn $test() { super::succeed($ranks, super::TCP, &$arguments); })* }
        mod ofi {
            $(#[test] fn $test() {
                if super::has_libfabric(stringify!($test)) {
                    super::succeed($ranks, super::OFI, &$arguments);
                }
            })*
        }
        mod native_tcp {
            $(#[test] fn $test() {
                if let Some(environment) = super::native_tcp() {
                    super::native($ranks, &$arguments).succeed_with(&environment);
                }
            })*
        }
    };
}

/// A scenario over libfabric's own tcp.
fn native<'a>(ranks: u32, arguments: &'a [&'a str]) -> Job<'a> {
    Job { ranks, parameters: NATIVE_TCP, program: "scenarios", arguments, tcp_from: None }
}

over_all! {
    every_size_and_mode: 3 ["sizes"];
    every_call: 2 ["calls"];
    order_is_kept: 4 ["order", "7"];
    mistakes_are_told: 2 ["mistakes"];
    eight_threads: 2 ["threads"];
    wildcards_and_failures: 4 ["wildcards"];
    a_quiet_exit_is_a_failure: 3 ["quiet_exit"];
    a_dead_receive_is_not_written: 3 ["dead_buffer", "4"];
    persistent_collectives: 4 ["persistent"];
    grids_and_graphs: 6 ["topology"];
}

/// It is silent from then on: the detector finds it, like a process that hangs, and the launcher ends it.
#[test]
fn a_dropped_world_is_a_failure_though_its_process_lives_on() {
    let quick =
        ["ft_detector_period", "50ms", "ft_detector_timeout", "1s", "ft_probe_timeout", "1s"];
    for transport in [SHM, TCP] {
        succeed(3, &[transport, &quick].concat(), &["lives_on"]);
    }
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

/// Under MPICH's launcher (Hydra), which speaks PMI-1 and tells of deaths by SIGUSR1 and `PMI_dead_processes`. A rank that ends by
/// a signal is nothing it lets others survive (5.0.2, whatever `-disable-auto-cleanup` says); one that exits is.
#[test]
fn under_mpichs_launcher() {
    let hydra = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/mpich/bin/mpiexec");
    if !hydra.exists() {
        return println!("SKIP jobs/under_mpichs_launcher: MPICH is not in .venv/mpich (ci/setup)");
    }
    for (ranks, arguments) in
        [(3, &["sizes"][..]), (4, &["order", "7"]), (3, &["quiet_exit"]), (4, &["topology"])]
    {
        let job = Job { ranks, parameters: &[], program: "scenarios", arguments, tcp_from: None };
        let mut command = Command::new(&hydra);
        command.args(["-disable-auto-cleanup", "-n", &ranks.to_string()]);
        let output = job.run_by(command);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
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
fn kills_at_random_moments_over_ofi() {
    for seed in 0..4_u64 {
        if has_libfabric("kills_at_random_moments_over_ofi") {
            println!("the scenario: random_kill {seed}");
            succeed(4, OFI, &["random_kill", &seed.to_string()]);
        }
    }
}

#[test]
fn kills_at_random_moments_over_native_tcp() {
    let Some(environment) = native_tcp() else { return };
    for seed in 0..6_u64 {
        println!("the scenario: random_kill {seed}");
        native(4, &["random_kill", &seed.to_string()]).succeed_with(&environment);
    }
}

macro_rules! over_uct {
    ($($test:ident: $ranks:literal $arguments:expr;)*) => {
        mod uct {
            $(#[test] fn $test() {
                if super::has_uct(stringify!($test)) {
                    for transport in super::UCT {
                        super::succeed($ranks, transport, &$arguments);
                    }
                }
            })*
        }
    };
}

over_uct! {
    every_size_and_mode: 3 ["sizes"];
    every_call: 2 ["calls"];
    order_is_kept: 4 ["order", "7"];
    mistakes_are_told: 2 ["mistakes"];
    eight_threads: 2 ["threads"];
    wildcards_and_failures: 4 ["wildcards"];
    a_quiet_exit_is_a_failure: 3 ["quiet_exit"];
    a_dead_receive_is_not_written: 3 ["dead_buffer", "4"];
    kills_at_random_moments: 4 ["random_kill", "3"];
}

/// The shortest there are, on each of the ways: a greeting still fits.
#[test]
fn the_shortest_frames_of_uct_carry_every_size() {
    if has_uct("the_shortest_frames_of_uct_carry_every_size") {
        for transport in UCT {
            succeed(2, &[transport, &["btl_uct_frame_size", "1k"]].concat(), &["sizes"]);
        }
    }
}

#[test]
fn three_of_four_recover_over_uct() {
    if !has_uct("three_of_four_recover_over_uct") {
        return;
    }
    for parameters in UCT {
        let job = Job { ranks: 4, parameters, program: "survive", arguments: &[], tcp_from: None };
        recovered(&job.run());
    }
}

/// The variable that `ironweave doctor` names.
#[test]
fn another_ucx_is_used_where_it_is_named() {
    let with = |library: &str| {
        let job = Job {
            ranks: 2,
            parameters: UCT[0],
            program: "scenarios",
            arguments: &["sizes"],
            tcp_from: None,
        };
        let output = job.run_with(&[("IRONWEAVE_UCT_LIB", library)]);
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (ended, text) = with("/no/such/libuct.so.0");
    assert!(!ended && text.contains("uct: no UCX: /no/such/libuct.so.0"), "{text}");
    let wheel = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/ucx-1.22/lib");
    let python = std::fs::read_dir(wheel).ok().and_then(|mut all| all.next()?.ok());
    let Some(python) = python else {
        return println!(
            "SKIP jobs/uct/another_ucx_is_used_where_it_is_named: no UCX 1.22 (ci/setup)"
        );
    };
    let library = python.path().join("site-packages/libucx/lib/libuct.so.0");
    let (ended, text) = with(library.to_str().expect("the path is text"));
    assert!(ended, "{text}");
}

#[test]
fn what_uct_cannot_have_is_told_or_gone_on_without() {
    if !has_uct("what_uct_cannot_have_is_told_or_gone_on_without") {
        return;
    }
    let words = |parameters: &[&str]| {
        let output = run(2, parameters, &["mistakes"]);
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (ended, text) = words(&["btl", "self,uct", "btl_uct_transports", "no-such-transport"]);
    assert!(!ended && text.contains("uct: no transport no-such-transport; there are "), "{text}");
    let (ended, text) = words(&["btl", "self,uct", "btl_uct_frame_size", "9M"]);
    assert!(
        !ended && text.contains("uct: btl_uct_frame_size is 9437184 bytes; it can be"),
        "{text}"
    );
    let (ended, text) = words(&["btl", "self,uct", "btl_uct_devices", "mlx9_9:1"]);
    assert!(!ended && text.contains("uct: no device mlx9_9:1; there are "), "{text}");
    let (ended, text) = words(&["btl", "self,uct,tcp", "btl_uct_transports", "no-such-transport"]);
    assert!(ended, "{text}");
}

/// The demo: one of four is killed in the middle of large transfers, the rest revoke, agree, shrink and go on bit-exactly.
#[test]
fn three_of_four_recover_over_ofi() {
    if !has_libfabric("three_of_four_recover_over_ofi") {
        return;
    }
    let job = Job { ranks: 4, parameters: OFI, program: "survive", arguments: &[], tcp_from: None };
    recovered(&job.run());
}

#[test]
fn three_of_four_recover_over_native_tcp() {
    if let Some(environment) = native_tcp() {
        let job = Job { program: "survive", ..native(4, &[]) };
        recovered(&job.run_with(&environment));
    }
}

/// All three survivors got what they should, before and after.
fn recovered(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let survivors: Vec<&str> = text.lines().filter(|line| line.starts_with("survivor ")).collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(survivors.len(), 3, "{text}\n{errors}");
    for line in survivors {
        assert!(line.contains(" wrong_words=0"), "{line}");
        assert!(!line.contains(" bytes_after=0"), "nothing moved after the recovery: {line}");
    }
}

/// What people measure with, over each library: every size is told.
#[test]
fn the_drivers_go_to_four_mebibytes() {
    if let Some(environment) = native_tcp() {
        swept(NATIVE_TCP, &environment);
    }
    if has_uct("the_drivers_go_to_four_mebibytes") {
        for transport in &UCT[..2] {
            swept(transport, &[]);
        }
    }
}

/// Latency and bandwidth of all powers of two up to 4 MiB.
fn swept(parameters: &[&str], environment: &[(&str, &str)]) {
    for arguments in [&["latency", "-i", "4"][..], &["bw", "-i", "2", "-W", "8"]] {
        let job = Job { ranks: 2, parameters, program: "iw-osu", arguments, tcp_from: None };
        let output = job.succeed_with(environment);
        let text = String::from_utf8_lossy(&output.stdout);
        let sizes: Vec<usize> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| {
                let mut words = line.split_whitespace();
                let size = words.next().and_then(|word| word.parse().ok());
                let figure: f64 = words.next().and_then(|word| word.parse().ok()).expect(line);
                assert!(figure.is_finite() && figure >= 0.0, "{line}");
                size.expect(line)
            })
            .collect();
        let all: Vec<usize> = (0..=22).map(|power| 1 << power).collect();
        assert_eq!(sizes, all, "{arguments:?} over {parameters:?}:\n{text}");
    }
}

#[test]
fn a_missing_libfabric_is_told_or_gone_on_without() {
    let missing = |btl: &str| {
        let parameters = ["btl", btl, "btl_ofi_provider_include", "no-such-provider"];
        run(2, &parameters, &["mistakes"])
    };
    let output = missing("self,ofi");
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("ofi: no ") || text.contains("ofi: no libfabric"), "{text}");
    let output = missing("self,ofi,tcp");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What ends a job that asks for something of libfabric that cannot be had.
fn refusal(parameters: &[&str], library: Option<&str>) -> String {
    let mut all = vec!["btl", "self,ofi", "btl_ofi_domain_include", "lo"];
    all.extend(parameters);
    let arguments = ["mistakes"];
    let job = Job {
        ranks: 2,
        parameters: &all,
        program: "scenarios",
        arguments: &arguments,
        tcp_from: None,
    };
    let environment: Vec<_> = library.map(|name| ("IRONWEAVE_OFI_LIB", name)).into_iter().collect();
    let output = job.run_with(&environment);
    assert!(!output.status.success(), "{parameters:?} {library:?} is taken");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_libfabric_cannot_do_is_told_in_words() {
    if !has_libfabric("what_libfabric_cannot_do_is_told_in_words") {
        return;
    }
    let words = refusal(&["btl_ofi_provider_include", "udp"], None);
    assert!(words.contains("ofi: udp;ofi_rxd is refused: what a dead or stopped peer"), "{words}");
    let words = refusal(&["btl_ofi_provider_include", "nothing"], None);
    assert!(words.contains("ofi: no provider is left of nothing"), "{words}");
    let words = refusal(&[], Some("libc.so.6"));
    assert!(words.contains("ofi: no libfabric: ") && words.contains("fi_version"), "{words}");
    let words = refusal(&[], Some("/no/such/libfabric.so.1"));
    assert!(words.contains("ofi: no libfabric: /no/such/libfabric.so.1"), "{words}");
    let words = refusal(&["btl_ofi_window", "64k"], None);
    let needed = "ofi: btl_ofi_window is 65536 bytes; two frames of btl_ofi_frame_size (65536 bytes) need 139264";
    assert!(words.contains(needed), "{words}");
    let words = refusal(&["btl_ofi_frame_size", "512"], None);
    assert!(words.contains("ofi: btl_ofi_frame_size is 512 bytes; it can be 1k to 8M"), "{words}");
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
