//! What every end-to-end test needs: the launcher and the probe as real processes, under a watchdog
//! that shows what was said before it ends a test that hangs.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// After this a test has hung.
const WATCHDOG: Duration = Duration::from_secs(180);

/// The launcher.
pub fn ironweave() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_ironweave"))
}

/// The probe (an example of this crate, built with the tests).
pub fn probe() -> PathBuf {
    let path = ironweave().with_file_name("examples").join("probe");
    assert!(path.exists(), "{} is not built: cargo build --examples", path.display());
    path
}

/// `ironweave run ARGS… PROBE STEPS…`, words separated by spaces.
pub fn run_probe(args: &str, steps: &str) -> Job {
    let probe = probe();
    let words = args.split_whitespace().map(OsStr::new);
    let steps = steps.split_whitespace().map(OsStr::new);
    Job::start(words.chain([probe.as_os_str()]).chain(steps), Stdio::null())
}

/// A job under way: the launcher as a child, its output collected line by line.
pub struct Job {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
    errors: Option<std::thread::JoinHandle<String>>,
    deadline: Instant,
}

/// A job's end.
#[derive(Debug)]
pub struct Outcome {
    pub status: ExitStatus,
    pub out: Vec<String>,
    pub err: String,
}

impl Outcome {
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// How many lines of output are exactly this.
    pub fn count(&self, line: &str) -> usize {
        self.out.iter().filter(|seen| *seen == line).count()
    }
}

impl Job {
    pub fn start<'a>(args: impl IntoIterator<Item = &'a OsStr>, input: Stdio) -> Job {
        let mut command = Command::new(ironweave());
        command.arg("run").args(args);
        Job::spawn(command, input)
    }

    /// Without the configuration files this machine may have.
    pub fn spawn(mut command: Command, input: Stdio) -> Job {
        command.env("IRONWEAVE_CONFIG", "").stdin(input);
        Job::spawn_as_is(command)
    }

    pub fn spawn_with_config(mut command: Command, file: &Path) -> Job {
        command.env("IRONWEAVE_CONFIG", file).stdin(Stdio::null());
        Job::spawn_as_is(command)
    }

    fn spawn_as_is(mut command: Command) -> Job {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("launcher");
        let out = child.stdout.take().expect("piped");
        let mut err = child.stderr.take().expect("piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = err.read_to_string(&mut text);
            text
        });
        let deadline = Instant::now() + WATCHDOG;
        Job { child, lines, seen: Vec::new(), errors: Some(errors), deadline }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Feeds the launcher's standard input, then closes it.
    pub fn feed(&mut self, data: Vec<u8>) {
        let mut input = self.child.stdin.take().expect("piped");
        std::thread::spawn(move || input.write_all(&data));
    }

    /// Waits for a line that begins with `prefix`; returns the rest of it.
    pub fn expect(&mut self, prefix: &str) -> String {
        let already = self.seen.iter().position(|line| line.starts_with(prefix));
        if let Some(index) = already {
            return self.seen[index][prefix.len()..].trim().to_owned();
        }
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if let Some(rest) = line.strip_prefix(prefix) {
                        return rest.trim().to_owned();
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.give_up(&format!("no line {prefix:?}")),
                Err(RecvTimeoutError::Disconnected) => {
                    self.give_up(&format!("output ended without a line {prefix:?}"))
                }
            }
        }
    }

    /// Sends the launcher a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        send(self.pid(), signal);
    }

    /// Whether the launcher has ended.
    pub fn has_ended(&self) -> bool {
        state(self.pid()).is_none_or(|state| state == 'Z')
    }

    /// The launcher's children whose command ends its path in `name`, or is given it as argument.
    pub fn children_named(&self, name: &str) -> Vec<u32> {
        let path = format!("/proc/{0}/task/{0}/children", self.pid());
        let children = std::fs::read_to_string(path).unwrap_or_default();
        let is_named = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
            words.any(|word| word.rsplit('/').next() == Some(name))
        };
        let pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        // The launcher's own line, before a child's exec, is no child of that name.
        pids.filter(is_named).filter(|pid| !self.runs_launcher(*pid)).collect()
    }

    fn runs_launcher(&self, pid: u32) -> bool {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == b"run")
    }

    /// Waits for the launcher to end.
    pub fn outcome(mut self) -> Outcome {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => self.give_up("output does not end"),
            }
        }
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                break status;
            }
            if Instant::now() > self.deadline {
                self.give_up("the launcher does not end");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let errors = self.errors.take().expect("taken once");
        let err = errors.join().expect("reader");
        Outcome { status, out: std::mem::take(&mut self.seen), err }
    }

    fn give_up(&mut self, why: &str) -> ! {
        let pid = self.pid();
        let tree = process_tree(pid);
        let _ = self.child.kill();
        let _ = self.child.wait();
        let err = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        panic!("{why}\nprocesses:\n{tree}\nstdout:\n{}\nstderr:\n{err}", self.seen.join("\n"));
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends `signal` to the process `pid`.
pub fn send(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process number");
    rustix::process::kill_process(pid, signal).expect("kill");
}

/// Waits until the process `pid` is gone.
pub fn wait_gone(pid: u32) {
    let deadline = Instant::now() + WATCHDOG;
    while state(pid).is_some_and(|state| state != 'Z') {
        assert!(Instant::now() < deadline, "process {pid} lives on:\n{}", process_tree(pid));
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The state of a process as /proc tells it (`S`, `R`, `Z`, …); `None` when it is gone.
fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// `pid` and its descendants, for the watchdog's report.
fn process_tree(pid: u32) -> String {
    let name = |pid: u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ")
    };
    let mut text = format!("{pid} {:?} {}\n", state(pid), name(pid));
    let path = format!("/proc/{pid}/task/{pid}/children");
    for child in std::fs::read_to_string(path).unwrap_or_default().split_whitespace() {
        if let Ok(child) = child.parse() {
            text.push_str(&process_tree(child));
        }
    }
    text
}

/// A directory that is gone after the test.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("ironweave-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("scratch directory");
        Scratch(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
