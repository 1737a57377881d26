//! The device tests: `iw-hwtest --vm` in the virtual machine, `iw-hwtest --device mlx5_0` on real devices.
//!
//! Runs the test binaries of the packages that have such tests, one after the other, each test by itself (they share
//! wires and devices). Builds them with cargo, or takes them from `--tests`, where there is no cargo. What cannot run
//! prints `SKIP name: reason`. Ends with a count, and fails if anything failed or nothing passed.

use clap::Parser;
use ironweave_hwtests::fabric::HOSTS;
use ironweave_hwtests::vm::{Machine, Task, VmError};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Packages with tests of devices.
const PACKAGES: &[&str] = &["ironweave-hwtests", "ironweave-btl-verbs"];
/// Tests that the quick set leaves out: each takes more than some fifteen seconds on emulated devices.
const LONG: &[&str] = &[
    "carries_every_size",
    "ends_in_time_when_the_peer_is_stopped",
    "leaves_nothing_behind",
    "survives_a_peer_killed_while_packing",
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
    /// Seconds until the whole counts as hung
    #[arg(long, default_value_t = 900)]
    limit: u64,
    /// Take the test binaries from here instead of building them
    #[arg(long, value_name = "DIRECTORY")]
    tests: Option<PathBuf>,
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
    let left_out = if arguments.long || arguments.filter.is_some() { &[][..] } else { LONG };
    let skips: String = left_out.iter().map(|name| format!(" --skip {name}")).collect();
    if !left_out.is_empty() {
        println!("the quick set; --long adds {}", left_out.join(", "));
    }
    let mut script = String::from("status=0\n");
    for binary in &binaries {
        let filter = arguments.filter.as_deref().unwrap_or("");
        let line = format!(
            "echo \"== {}\"\n'{}' --nocapture --test-threads=1 {filter}{skips} || status=$?\n",
            binary.file_name().unwrap_or_default().to_string_lossy(),
            binary.display()
        );
        script.push_str(&line);
    }
    script.push_str("exit $status\n");
    let command = vec![String::from("bash"), String::from("-c"), script];
    let heard = Heard::default();
    let status = if arguments.vm {
        let mut task = Task::new(command);
        task.limit = Duration::from_secs(arguments.limit);
        match Machine::prepare().and_then(|machine| machine.run(&task, heard.clone())) {
            Ok(status) => status,
            Err(VmError::Unavailable(why)) => {
                println!("SKIP hwtests: no virtual machine here: {why}");
                return ExitCode::SUCCESS;
            }
            Err(error) => return fail(&error.to_string()),
        }
    } else {
        match here(&command, &arguments, heard.clone()) {
            Ok(status) => status,
            Err(error) => return fail(&error.to_string()),
        }
    };
    let (passed, failed) = heard.counts();
    println!("iw-hwtest: {passed} passed, {failed} failed, status {status}");
    if status == 0 && failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn fail(why: &str) -> ExitCode {
    eprintln!("iw-hwtest: {why}");
    ExitCode::FAILURE
}

/// Builds the test binaries and says where they are.
fn built() -> io::Result<Vec<PathBuf>> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["test", "--no-run", "--tests", "--message-format=json", "--quiet"]);
    for package in PACKAGES {
        cargo.args(["-p", package]);
    }
    let output = cargo.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("cargo test --no-run: {}", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    // One line of JSON for each artifact; only integration tests, whose path is below a `tests` directory, use devices.
    let path = |line: &str| {
        let integration = line.contains("\"kind\":[\"test\"]");
        let (_, rest) = line.split_once("\"executable\":\"")?;
        let (path, _) = rest.split_once('"')?;
        integration.then(|| PathBuf::from(path))
    };
    Ok(text.lines().filter_map(path).collect())
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
fn here(command: &[String], arguments: &Arguments, mut heard: Heard) -> io::Result<i32> {
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .env(HOSTS, arguments.devices.join(","))
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
