//! The device tests: `iw-hwtest --vm` in the virtual machine, `iw-hwtest --device mlx5_0` on real devices.
//!
//! Runs the test binaries of the packages that have such tests, one after the other, each test by itself (they share
//! wires and devices). Builds them with cargo, or takes them from `--tests`, where there is no cargo. What cannot run
//! prints `SKIP name: reason`. Ends with a count, and fails if anything failed or nothing passed.

use clap::Parser;
use ironweave_hwtests::fabric::{HOSTS, PAGING};
use ironweave_hwtests::job::PROGRAMS;
use ironweave_hwtests::vm::{Kernel, Machine, Task, VmError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Packages with tests of devices.
const PACKAGES: &[&str] =
    &["ironweave-hwtests", "ironweave-btl-verbs", "ironweave-btl-uct", "ironweave-btl-ofi"];
/// What our launchers tell libfabric, and so tests that have none (`rte/src/launch/node.rs`).
const SHARED_RECEIVES: &str = "FI_OFI_RXM_USE_SRX";
/// Tests that the quick set leaves out: each takes more than some fifteen seconds on emulated devices.
const LONG: &[&str] = &[
    "a_job_recovers_over_wires_that_lose",
    "a_lost_rail_is_survived",
    "a_mended_rail_is_used_again",
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
        required_unless_present = "vm",
        conflicts_with = "vm"
    )]
    devices: Vec<String>,
    /// Test in the virtual machine, on Soft-RoCE
    #[arg(long)]
    vm: bool,
    /// All tests, also those that take minutes
    #[arg(long)]
    long: bool,
    /// Seconds until a machine, or with --long each of several, counts as hung
    #[arg(long, default_value_t = 900)]
    limit: u64,
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
    let arguments = Arguments::parse();
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
    let (passed, failed) = heard.counts();
    println!("iw-hwtest: {passed} passed, {failed} failed, status {status}");
    if status == 0 && failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
    for example in ["survive", "scenarios", "recovery", "heartbeat"] {
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

/// Runs the command on this machine's devices.
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
    io::copy(&mut child.stdout.take().expect("its stdout was asked to be a pipe"), &mut heard)?;
    Ok(child.wait()?.code().unwrap_or(1))
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

    fn counts(&self) -> (u64, u64) {
        let bytes = self.0.lock().map(|bytes| bytes.clone()).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let results = text.lines().filter_map(|line| line.strip_prefix("test result: "));
        let count = |result: &str, what: &str| -> u64 {
            let before = result.split(what).next().unwrap_or_default();
            before.split_whitespace().next_back().and_then(|word| word.parse().ok()).unwrap_or(0)
        };
        results.fold((0, 0), |(passed, failed), result| {
            (passed + count(result, " passed"), failed + count(result, " failed"))
        })
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
        assert_eq!((runs, heard.counts()), (2, (7, 1)));
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
