//! The device tests: `iw-hwtest --vm` in the virtual machine, `iw-hwtest --device mlx5_0` on real devices.
//!
//! Runs the test binaries of the packages that have such tests, one after the other, each test by itself (they share
//! wires and devices). Takes them from `--tests`, or where `ci/install PREFIX --hwtest` laid them out, or builds them with
//! cargo. What cannot run prints `SKIP name: reason`. Ends with a count, and fails if anything failed or nothing ran.

use clap::Parser;
use ironweave_hwtests::fabric::{HOSTS, PAGING, TESTS};
use ironweave_hwtests::job::PROGRAMS;
use ironweave_hwtests::vm::{HUNG, Kernel, Machine, Task, VmError};
use ironweave_hwtests::{processes, rdma_devices};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Packages with tests of devices.
const PACKAGES: &[&str] =
    &["ironweave-hwtests", "ironweave-btl-verbs", "ironweave-btl-uct", "ironweave-btl-ofi"];
/// What our launchers tell libfabric, and so tests that have none (`rte/src/launch/node.rs`).
const SHARED_RECEIVES: &str = "FI_OFI_RXM_USE_SRX";
/// Tests that the quick set leaves out: each takes more than some fifteen seconds on emulated devices.
const LONG: &[&str] = &[
    "a_dead_receive_is_not_written",
    "a_job_recovers_over_wires_that_lose",
    "a_lost_rail_is_survived",
    "a_mended_rail_is_used_again",
    "a_peer_killed_while_it_is_read_from",
    "a_peer_killed_while_it_reads",
    "a_peer_killed_while_it_writes",
    "a_port_that_is_not_used_says_why",
    "a_short_cut_is_survived",
    "a_stopped_rank_is_found_and_ended",
    "bandwidth_to_four_mebibytes",
    "carries_every_size",
    "ends_in_time_when_the_peer_is_stopped",
    "every_size_and_mode",
    "kills_at_random_moments",
    "latency_over_verbs_rxm",
    "leaves_nothing_behind",
    "order_is_kept_over_two_rails",
    "revoke_agree_and_shrink",
    "survives_a_peer_killed_while_packing",
    "survives_the_death_of_a_peer",
    "tests_run_on_named_devices",
    "ud_verbs",
    // Of UCX's rc_verbs and libfabric's verbs;ofi_rxm the quick set has jobs.
    "rc_verbs::",
    "verbs_rxm::",
];
/// What the quick set has of the suite once more over iWARP.
const IWARP: &[&str] = &[
    "connects_once_and_reports_up",
    "departs_quietly",
    "moves_registered_memory",
    "sleeps_and_wakes",
    "turns_strangers_away",
];
/// The jobs of the quick set that run once more over iWARP.
const IWARP_JOBS: &[&str] = &["a_job_recovers_from_a_killed_rank", "what_cannot_be_had_is_told"];
/// What the quick set has of the faults once more over iWARP …
const IWARP_FAULTS: &[&str] = &["a_cut_wire_shows", "a_write_that_is_cut_off_sends_nothing_more"];
/// What the quick set has of the rings once more over iWARP, where the tests force them on …
const IWARP_RINGS: &[&str] = &[
    "a_ring_that_is_off_is_not_used",
    "an_end_in_the_middle_of_ring_traffic",
    "short_frames_go_by_ring",
];
/// … and what there is none of: its devices leave repeating to TCP.
const NOT_IWARP: &str = "--skip a_read_that_is_asked_for_twice_ends_nothing";
/// What the quick set has of payloads alone once more over iWARP, where there are none.
const IWARP_LEAN: &[&str] = &["what_fills_its_packets_goes_alone"];
/// What the quick set has of each binary once more where memory is paged on demand, all of it that can be.
const ON_DEMAND: &[(&str, &[&str])] = &[
    ("registration-", &[]),
    ("conformance-", &["gives_everything_back_when_invalidated", "moves_registered_memory"]),
    ("jobs-", &["a_job_recovers_from_a_killed_rank"]),
];
/// Has jobs do so.
const JOBS_ON_DEMAND: &str = "IRONWEAVE_BTL_VERBS_ON_DEMAND=always";
/// Machines for one piece when the guest's kernel panics: what panics three times is no accident of the emulation.
const MACHINES: u32 = 3;
/// What runs once more in the virtual machine, each on devices that a cluster's are not turned into.
const MACHINES_OWN: &[(&str, &str)] = &[
    ("verbs/iwarp", "iWARP is tested where a device of it is given"),
    ("verbs/on_demand", "whether memory is paged on demand is the device's and the parameter's"),
    ("verbs/over_ipv6", "the addresses of the devices are what they are"),
    ("verbs/by_ring", "all by rings is the virtual machine's; rings themselves are tested"),
];
/// Where an installation has what this program runs, beside the directory that this program is in.
const INSTALLED: &str = "libexec/ironweave/hwtest";
/// Examples that jobs run.
const EXAMPLES: &[&str] = &["survive", "scenarios", "recovery", "heartbeat"];
/// What of the suite runs once more over IPv6, with `--long` or where the filter says so.
const IPV6: &[&str] =
    &["comes_back_after_invalidation", "delivers_exactly_once_in_order", "moves_registered_memory"];

/// What of it runs once more with nearly every frame by ring, likewise.
const BY_RING: &[&str] = &[
    "comes_back_after_invalidation",
    "delivers_exactly_once_in_order",
    "gives_everything_back_when_invalidated",
    "leaves_nothing_behind",
    "survives_the_death_of_a_peer",
];

/// Runs the tests of RDMA devices, on real ones or in a virtual machine.
#[derive(Parser)]
#[command(name = "iw-hwtest", version)]
struct Arguments {
    /// A device to test on, between processes of this host; several are its rails
    #[arg(
        long = "device",
        value_name = "NAME",
        required_unless_present_any = ["vm", "gather"],
        conflicts_with = "vm"
    )]
    devices: Vec<String>,
    /// Test in the virtual machine, on Soft-RoCE
    #[arg(long)]
    vm: bool,
    /// All tests, also those that take minutes
    #[arg(long)]
    long: bool,
    /// Seconds until the tests of all binaries, or with --long those of each, count as hung and are ended
    #[arg(long, default_value_t = 900)]
    limit: u64,
    /// Lay out test binaries and programs in tests/ and programs/ of this directory, and run nothing
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["devices", "vm", "tests"])]
    gather: Option<PathBuf>,
    /// Take the test binaries from here instead of building them
    #[arg(long, value_name = "DIRECTORY")]
    tests: Option<PathBuf>,
    /// Take `ironweave`, `iw-osu` and the examples from here instead of building them
    #[arg(long, value_name = "DIRECTORY")]
    programs: Option<PathBuf>,
    /// Only tests with this in their names
    filter: Option<String>,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if let Some(directory) = &arguments.gather {
        return match gather(directory) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.to_string()),
        };
    }
    if let Err(why) = known(&arguments.devices) {
        return fail(&why);
    }
    if let (None, Some(installed)) = (&arguments.tests, installed()) {
        arguments.tests = Some(installed.join("tests"));
        arguments.programs.get_or_insert(installed.join("programs"));
    }
    let binaries = match &arguments.tests {
        Some(directory) => listed(directory),
        None => built(),
    };
    let binaries = match binaries {
        Ok(binaries) if !binaries.is_empty() => binaries,
        Ok(_) => return fail("there are no test binaries"),
        Err(error) => return fail(&error.to_string()),
    };
    let programs = match (&arguments.programs, &arguments.tests) {
        (Some(directory), _) => Ok(directory.clone()),
        (None, Some(_)) => beside(),
        (None, None) => built_programs(),
    };
    let programs = match programs.and_then(|directory| directory.canonicalize()) {
        Ok(directory) => directory,
        Err(error) => return fail(&format!("the programs of the jobs: {error}")),
    };
    let left_out = if arguments.long || arguments.filter.is_some() { &[][..] } else { LONG };
    let skips: String = left_out.iter().map(|name| format!(" --skip {name}")).collect();
    if !left_out.is_empty() {
        println!("the quick set; --long adds {}", left_out.join(", "));
    }
    if !arguments.vm {
        for (name, why) in MACHINES_OWN {
            println!("SKIP {name}: runs in the virtual machine only: {why}");
        }
    }
    let filter = arguments.filter.as_deref().unwrap_or("");
    let file = |path: &Path| -> String {
        path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    };
    let run = |how: &str, binary: &Path, words: &str| {
        let (name, path) = (file(binary), binary.display());
        format!(
            "echo '== {how} {name}'\n{how} '{path}' --nocapture --test-threads=1 {words} || status=$?\n"
        )
    };
    let mut pieces: Vec<String> = binaries
        .iter()
        .map(|binary| {
            // libfabric's verbs finds addresses where the links are only.
            let apart = !(arguments.vm && file(binary).starts_with("ofi-"));
            run(if apart { "" } else { "together" }, binary, &format!("{filter}{skips}"))
        })
        .collect();
    if arguments.long {
        // Where receives are not shared, endpoints stay open until the process ends; in a process of its own, for it holds all of them.
        let devices = binaries.iter().filter(|path| file(path).starts_with("devices-"));
        let how = format!("{} env {SHARED_RECEIVES}=0", if arguments.vm { "together" } else { "" });
        pieces.extend(devices.map(|path| run(&how, path, "verbs_rxm::shows_a_crash --exact")));
    }
    let named = |name: &'static str| {
        let is = |path: &&PathBuf| file(path).starts_with(name);
        binaries.iter().find(is).filter(|_| arguments.vm)
    };
    // Once more over iWARP; its own status tells that the machine has no module.
    let over_iwarp = |binary: &Path, quick: &[&str]| {
        let short = format!("{} --exact", quick.join(" "));
        let all = format!("{filter} {NOT_IWARP}");
        let whole = arguments.long || !filter.is_empty();
        let iwarp = run("iwarp", binary, if whole { &all } else { &short });
        let skip = "echo 'SKIP verbs/iwarp: the machine has no siw module'; status=$before";
        format!("before=$status\n{iwarp}[ $status -eq 77 ] && {{ {skip}; }}\n")
    };
    if let Some(jobs) = named("jobs-") {
        pieces.push(over_iwarp(jobs, IWARP_JOBS));
    }
    if let Some(faults) = named("faults-") {
        pieces.push(over_iwarp(faults, IWARP_FAULTS));
    }
    if let Some(rings) = named("ring-") {
        pieces.push(over_iwarp(rings, IWARP_RINGS));
    }
    if let Some(lean) = named("lean-") {
        pieces.push(over_iwarp(lean, IWARP_LEAN));
    }
    if let Some(suite) = named("conformance-") {
        pieces.push(over_iwarp(suite, IWARP));
        if arguments.long || !filter.is_empty() {
            for (variable, names) in
                [("IRONWEAVE_VERBS_IPV6", IPV6), ("IRONWEAVE_VERBS_RING", BY_RING)]
            {
                let words = wanted(names, filter);
                if !words.is_empty() {
                    let how = format!("env {variable}=1");
                    pieces.insert(0, run(&how, suite, &format!("{words} --exact")));
                }
            }
        }
    }
    // Once more where the kernel has the devices page memory on demand.
    let whole = arguments.long || !filter.is_empty();
    let on_demand = ON_DEMAND.iter().filter_map(|(name, quick)| {
        let short =
            format!("{} {}", quick.join(" "), if quick.is_empty() { "" } else { "--exact" });
        let how = format!("env {PAGING}=1 {JOBS_ON_DEMAND}");
        Some(run(&how, named(name)?, if whole { filter } else { &short }))
    });
    // The whole in several machines, each with its own limit; the quick ones in one of each kernel, which saves starting it.
    let mut tasks: Vec<(Kernel, String)> = Vec::new();
    let pieces = pieces.into_iter().map(|piece| (Kernel::Stock, piece));
    for (kernel, piece) in pieces.chain(on_demand.map(|piece| (Kernel::Newer, piece))) {
        match tasks.last_mut() {
            Some((last, script)) if *last == kernel && !arguments.long => *script += &piece,
            _ => tasks.push((kernel, piece)),
        }
    }
    let heard = Heard::default();
    let mut status = 0;
    for (kernel, piece) in tasks {
        let script = format!("status=0\n{piece}exit $status\n");
        let command = vec![String::from("bash"), String::from("-c"), script];
        let ended = if arguments.vm {
            let mut task = Task::new(command);
            task.limit = Duration::from_secs(arguments.limit);
            task.environment.push((PROGRAMS.into(), programs.display().to_string()));
            task.environment.push((SHARED_RECEIVES.into(), "1".into()));
            let paths: Vec<String> =
                binaries.iter().map(|path| path.display().to_string()).collect();
            task.environment.push((TESTS.into(), paths.join(":")));
            let machine = Machine::prepare(kernel);
            match machine.and_then(|machine| in_machines(&heard, |heard| machine.run(&task, heard)))
            {
                Ok(ended) => ended,
                Err(VmError::Unavailable(why)) if kernel == Kernel::Newer => {
                    println!("SKIP verbs/on_demand: no machine with a newer kernel here: {why}");
                    continue;
                }
                Err(VmError::Unavailable(why)) => {
                    println!("SKIP hwtests: no virtual machine here: {why}");
                    return ExitCode::SUCCESS;
                }
                Err(error) => return fail(&error.to_string()),
            }
        } else {
            match here(&command, &arguments, &programs, heard.clone()) {
                Ok(ended) => ended,
                Err(error) => return fail(&error.to_string()),
            }
        };
        status = if ended == 0 { status } else { ended };
    }
    let Counts { passed, failed, skipped } = heard.counts();
    println!("iw-hwtest: {passed} passed, {failed} failed, {skipped} skipped, status {status}");
    if passed + failed == 0 {
        return fail("nothing ran");
    }
    if status == 0 && failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether all of `devices` are there; the words that say which is not.
fn known(devices: &[String]) -> Result<(), String> {
    let there = rdma_devices().map_err(|error| format!("the kernel's RDMA devices: {error}"))?;
    match devices.iter().find(|device| !there.contains(device)) {
        None => Ok(()),
        Some(device) if there.is_empty() => {
            Err(format!("no device {device}: this machine has no RDMA device"))
        }
        Some(device) => Err(format!("no device {device}: there are {}", there.join(", "))),
    }
}

/// Those of `names` that have `filter` in them, as words of a command.
fn wanted(names: &[&str], filter: &str) -> String {
    let wanted: Vec<&str> = names.iter().copied().filter(|name| name.contains(filter)).collect();
    wanted.join(" ")
}

/// Runs a piece, and again when the kernel of its machine panics, in [`MACHINES`] at most: every such death is told with
/// its console, and nothing that was heard before it counts.
fn in_machines(
    heard: &Heard,
    mut run: impl FnMut(Heard) -> Result<i32, VmError>,
) -> Result<i32, VmError> {
    let before = heard.length();
    for nth in 1..MACHINES {
        match run(heard.clone()) {
            Err(VmError::Panicked(console)) => {
                println!(
                    "{console}\nNOTE hwtests: the kernel of machine {nth} of at most {MACHINES} panicked: its tests begin again"
                );
                heard.forget(before);
            }
            ended => return ended,
        }
    }
    run(heard.clone())
}

fn fail(why: &str) -> ExitCode {
    eprintln!("iw-hwtest: {why}");
    ExitCode::FAILURE
}

/// Builds the test binaries and says where they are.
fn built() -> io::Result<Vec<PathBuf>> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["test", "--no-run", "--tests", "--message-format=json", "--quiet"]);
    // The benches have no tests of devices, but features that are the whole workspace's: so what that has built is not built again.
    for package in PACKAGES.iter().chain(&["ironweave-benches"]) {
        cargo.args(["-p", package]);
    }
    let output = cargo.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("cargo test --no-run: {}", output.status)));
    }
    // Only integration tests, whose kind is `test`, use devices.
    // Of the transports over UCX and libfabric only those that are about devices: the others need none.
    let messages = String::from_utf8_lossy(&output.stdout);
    let about = |line: &&str| {
        !(line.contains("btl/uct#") || line.contains("btl/ofi#"))
            || line.contains("\"name\":\"devices\"")
    };
    let messages: Vec<&str> = messages.lines().filter(about).collect();
    Ok(executables(messages.join("\n").as_bytes(), "\"kind\":[\"test\"]"))
}

/// Builds what the jobs run, as users have it, and says where it is.
fn built_programs() -> io::Result<PathBuf> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["build", "--release", "--message-format=json", "--quiet"]);
    cargo.args(["-p", "ironweave-rte", "-p", "ironweave-benches", "-p", "ironweave"]);
    cargo.args(["--bin", "ironweave", "--bin", "iw-osu"]);
    for example in EXAMPLES {
        cargo.args(["--example", example]);
    }
    let output = cargo.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("cargo build: {}", output.status)));
    }
    let built = executables(&output.stdout, "\"kind\":[\"bin\"]");
    let directory = built.first().and_then(|path| path.parent());
    directory.map(Path::to_owned).ok_or_else(|| io::Error::other("cargo built no program"))
}

/// Where this program is.
fn beside() -> io::Result<PathBuf> {
    let me = std::env::current_exe()?;
    me.parent().map(Path::to_owned).ok_or_else(|| io::Error::other("this program is nowhere"))
}

/// Where an installation that this program belongs to keeps tests and programs.
fn installed() -> Option<PathBuf> {
    let directory = beside().ok()?.parent()?.join(INSTALLED);
    directory.join("tests").is_dir().then_some(directory)
}

/// Copies what is run, built here, into `directory`.
fn gather(directory: &Path) -> io::Result<()> {
    let copy = |from: &Path, into: &str| {
        let into = directory.join(into);
        std::fs::create_dir_all(&into)?;
        std::fs::copy(from, into.join(from.file_name().unwrap_or_default())).map(drop)
    };
    for binary in built()? {
        copy(&binary, "tests")?;
    }
    let programs = built_programs()?;
    for name in ["ironweave", "iw-osu"] {
        copy(&programs.join(name), "programs")?;
    }
    for example in EXAMPLES {
        copy(&programs.join("examples").join(example), "programs")?;
    }
    Ok(())
}

/// What cargo says it made, of one kind: one line of JSON for each artifact.
fn executables(messages: &[u8], kind: &str) -> Vec<PathBuf> {
    let text = String::from_utf8_lossy(messages);
    let path = |line: &str| {
        let (_, rest) = line.split_once("\"executable\":\"")?;
        let (path, _) = rest.split_once('"')?;
        line.contains(kind).then(|| PathBuf::from(path))
    };
    text.lines().filter_map(path).collect()
}

/// The files of `directory`, in order.
fn listed(directory: &PathBuf) -> io::Result<Vec<PathBuf>> {
    let mut paths = std::fs::read_dir(directory)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| path.is_file() && path.extension().is_none());
    paths.sort();
    Ok(paths)
}

/// Runs the command on this machine's devices; ends it, with a word of what runs, after the limit.
fn here(
    command: &[String],
    arguments: &Arguments,
    programs: &Path,
    mut heard: Heard,
) -> io::Result<i32> {
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .env(PROGRAMS, programs)
        .env(HOSTS, arguments.devices.join(","))
        .env(SHARED_RECEIVES, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut from = child.stdout.take().expect("its stdout was asked to be a pipe");
    let reader = std::thread::spawn(move || io::copy(&mut from, &mut heard));
    let deadline = Instant::now() + Duration::from_secs(arguments.limit);
    loop {
        // Whoever holds the pipe runs on, also when the shell has gone.
        let ended = child.try_wait()?.filter(|_| reader.is_finished());
        if let Some(status) = ended {
            return Ok(status.code().unwrap_or(1));
        }
        if Instant::now() > deadline {
            println!("\n==== the tests still run after {} s (--limit):", arguments.limit);
            for process in processes::end_with_descendants(child.id())? {
                println!("{process}");
            }
            child.wait()?;
            return Ok(HUNG);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// How many tests ended how.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    /// Which the harnesses count as passed.
    skipped: u64,
}

/// Passes output on and counts what test harnesses say of themselves.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<u8>>>);

impl Heard {
    fn length(&self) -> usize {
        self.0.lock().map_or(0, |bytes| bytes.len())
    }

    /// Drops all but the first `length` bytes.
    fn forget(&self, length: usize) {
        if let Ok(mut bytes) = self.0.lock() {
            bytes.truncate(length);
        }
    }

    fn counts(&self) -> Counts {
        let bytes = self.0.lock().map(|bytes| bytes.clone()).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let count = |result: &str, what: &str| -> u64 {
            let before = result.split(what).next().unwrap_or_default();
            before.split_whitespace().next_back().and_then(|word| word.parse().ok()).unwrap_or(0)
        };
        let mut counts = Counts { passed: 0, failed: 0, skipped: 0 };
        // Of the harness that runs: a test that tells of several skips is one.
        let mut skips = Vec::new();
        for line in text.lines() {
            // Without a line's end of its own, after `test name ... `.
            let after = line.strip_prefix("test ").and_then(|line| line.split_once(" ... "));
            let said = after.map_or(line, |(_, said)| said);
            let named = said.strip_prefix("SKIP ").and_then(|rest| rest.split_once(": "));
            skips.extend(named.map(|(name, _)| name).filter(|name| !skips.contains(name)));
            if let Some(result) = line.strip_prefix("test result: ") {
                let well = count(result, " passed");
                let skipped = well.min(std::mem::take(&mut skips).len() as u64);
                counts.passed += well - skipped;
                counts.failed += count(result, " failed");
                counts.skipped += skipped;
            }
        }
        counts
    }
}

impl Write for Heard {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if let Ok(mut bytes) = self.0.lock() {
            bytes.extend_from_slice(piece);
        }
        io::stdout().write(piece)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panicked() -> VmError {
        VmError::Panicked(String::from("Kernel panic - not syncing: test"))
    }

    #[test]
    fn a_panic_of_the_guests_kernel_begins_the_piece_again_and_counts_nothing() {
        let heard = Heard::default();
        heard.clone().write_all(b"test result: ok. 5 passed; 0 failed;\n").unwrap();
        let mut runs = 0;
        let ended = in_machines(&heard, |mut heard| {
            runs += 1;
            heard.write_all(b"test result: ok. 2 passed; 1 failed;\n").unwrap();
            if runs == 1 { Err(panicked()) } else { Ok(7) }
        });
        assert_eq!(ended.unwrap(), 7);
        assert_eq!((runs, heard.counts()), (2, Counts { passed: 7, failed: 1, skipped: 0 }));
    }

    #[test]
    fn what_is_skipped_has_not_passed() {
        let heard = Heard::default();
        let text = "test a ... SKIP jobs/a: no wires\nok\ntest b ... ok\ntest result: ok. 2 passed; 0 failed;\n\
                    test a ... SKIP jobs/a: no wires\nSKIP jobs/a: none at all\nok\n| test b ... SKIP jobs/b: told by a test\n| test result: ok. 7 passed;\ntest result: ok. 1 passed; 0 failed;\n";
        // Not by `write`, which says it on: `ci/test` looks for skips.
        heard.0.lock().unwrap().extend_from_slice(text.as_bytes());
        assert_eq!(heard.counts(), Counts { passed: 1, failed: 0, skipped: 2 });
    }

    #[test]
    fn a_device_that_is_not_there_is_named() {
        assert_eq!(known(&[]), Ok(()));
        let why = known(&[String::from("nosuch0")]).unwrap_err();
        assert!(why.starts_with("no device nosuch0: "), "{why}");
    }

    #[test]
    fn a_filter_chooses_among_what_runs_once_more() {
        assert_eq!(wanted(BY_RING, ""), BY_RING.join(" "));
        assert_eq!(wanted(BY_RING, "survives_the_death"), "survives_the_death_of_a_peer");
        assert_eq!(wanted(IPV6, "sleeps_and_wakes"), "");
    }

    #[test]
    fn a_kernel_that_always_panics_is_a_failure() {
        let mut runs = 0;
        let ended = in_machines(&Heard::default(), |_| {
            runs += 1;
            Err(panicked())
        });
        assert!(matches!(ended, Err(VmError::Panicked(_))));
        assert_eq!(runs, MACHINES);
    }

    #[test]
    fn any_other_death_of_a_machine_is_told_at_once() {
        let mut runs = 0;
        let ended = in_machines(&Heard::default(), |_| {
            runs += 1;
            Err(VmError::Died(String::from("QEMU: signal 9"), String::new()))
        });
        assert!(matches!(ended, Err(VmError::Died(..))));
        assert_eq!(runs, 1);
    }
}
