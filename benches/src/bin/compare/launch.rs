//! Runs one child to its end or its deadline and leaves nothing of it behind.
//!
//! A child that hangs is ended by process id, with everything it started: launchers put their ranks into groups and sessions
//! of their own, so the tree is read from /proc and each process is told apart from a later one with the same number by its
//! start time. Nothing is ever ended by name.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a launcher gets to end its ranks itself before everything is killed.
const GRACE: Duration = Duration::from_secs(2);
/// How long the kernel may take to end what was killed: on a busy machine that has taken almost four seconds.
const ENDING: Duration = Duration::from_secs(30);

/// Names that the peers' libraries give their files in /dev/shm; a killed job leaves them.
const SHM_PREFIXES: &[&str] =
    &["sm_segment.", "mpich_", "Intel_MPI_", "ucx_shm_", "psm3_", "fi_shm_"];

/// What a child said.
#[derive(Debug, Default)]
pub struct Output {
    pub stdout: Vec<String>,
    pub stderr: Vec<String>,
}

impl Output {
    /// The first line that says what went wrong, for a report of one line.
    pub fn complaint(&self) -> String {
        let telling = |line: &&String| line.chars().filter(|c| c.is_alphanumeric()).count() > 5;
        let line =
            self.stderr.iter().find(telling).or_else(|| self.stdout.iter().rev().find(telling));
        line.map_or_else(
            || "it said nothing".to_owned(),
            |line| line.trim().chars().take(160).collect(),
        )
    }
}

/// Runs `command`; `Err` says why its output does not count.
pub fn run(mut command: Command, limit: Duration) -> Result<Output, String> {
    let before = shm_files();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("cannot be started: {error}"))?;
    let (sender, receiver) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        forward(stdout, sender.clone(), true);
    }
    if let Some(stderr) = child.stderr.take() {
        forward(stderr, sender, false);
    }
    let deadline = Instant::now() + limit;
    let mut output = Output::default();
    // Blocks until both pipes are closed: the cores belong to the measured ranks.
    let in_time = loop {
        match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok((true, line)) => output.stdout.push(line),
            Ok((false, line)) => output.stderr.push(line),
            Err(RecvTimeoutError::Disconnected) => break true,
            Err(RecvTimeoutError::Timeout) => break false,
        }
    };
    let status =
        if in_time { wait_until(&mut child, deadline.max(Instant::now() + GRACE)) } else { None };
    match status {
        Some(status) if status.success() => Ok(output),
        Some(status) => Err(format!("ended with {status}: {}", output.complaint())),
        None => {
            end_tree(&mut child);
            remove_left_files(&before);
            Err(format!(
                "did not end within {} s and was killed: {}",
                limit.as_secs(),
                output.complaint()
            ))
        }
    }
}

fn forward(
    pipe: impl Read + Send + 'static,
    sender: mpsc::Sender<(bool, String)>,
    is_stdout: bool,
) {
    thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            if sender.send((is_stdout, String::from_utf8_lossy(&line).into_owned())).is_err() {
                break;
            }
        }
    });
}

fn wait_until(child: &mut Child, deadline: Instant) -> Option<std::process::ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
            Ok(None) | Err(_) => return None,
        }
    }
}

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Process {
    pid: i32,
    start: u64,
}

/// (process, parent), or `None` if it is gone or only waits to be reaped.
fn stat(pid: i32) -> Option<(Process, i32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in parentheses and may hold anything.
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
    if matches!(*fields.first()?, "Z" | "X") {
        return None;
    }
    Some((Process { pid, start: fields.get(19)?.parse().ok()? }, fields.get(1)?.parse().ok()?))
}

/// Everything below and including `root`, at this moment.
fn tree(root: i32) -> Vec<Process> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all: Vec<(Process, i32)> =
        pids.filter_map(|entry| stat(entry.file_name().to_str()?.parse().ok()?)).collect();
    let mut found: Vec<Process> = all
        .iter()
        .filter(|(process, _)| process.pid == root)
        .map(|(process, _)| *process)
        .collect();
    let mut next = 0;
    while next < found.len() {
        let parent = found[next].pid;
        found.extend(all.iter().filter(|(_, of)| *of == parent).map(|(process, _)| *process));
        next += 1;
    }
    found
}

fn alive(process: Process) -> bool {
    stat(process.pid).is_some_and(|(now, _)| now == process)
}

fn signal(process: Process, signal: Signal) {
    if let (true, Some(pid)) = (alive(process), Pid::from_raw(process.pid)) {
        // It may be gone by now, which is what we want.
        let _ = kill_process(pid, signal);
    }
}

fn end_tree(child: &mut Child) {
    let root = i32::try_from(child.id()).expect("a process id is a positive i32");
    let mut members: HashSet<Process> = tree(root).into_iter().collect();
    if let Some((launcher, _)) = stat(root) {
        signal(launcher, Signal::TERM);
    }
    wait_until(child, Instant::now() + GRACE);
    members.extend(tree(root));
    for process in &members {
        signal(*process, Signal::KILL);
    }
    // The kernel takes them down on its own time; files they map are theirs until then.
    let deadline = Instant::now() + ENDING;
    while members.iter().any(|process| alive(*process)) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    let _ = child.wait();
}

fn shm_files() -> HashSet<PathBuf> {
    fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Removes what a killed peer left in /dev/shm: new since its start, named as its library names them, mapped by nobody.
fn remove_left_files(before: &HashSet<PathBuf>) {
    for path in shm_files().difference(before) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if SHM_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !is_mapped(name) {
            let _ = fs::remove_file(path);
        }
    }
}

fn is_mapped(name: &str) -> bool {
    let maps = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("maps"));
    maps.filter_map(|path| fs::read_to_string(path).ok()).any(|text| text.contains(name))
}

#[cfg(test)]
mod tests {
    use super::{run, stat};
    use std::process::Command;
    use std::time::Duration;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_of_a_good_child_is_kept() {
        let output = run(shell("echo one; echo two; echo three >&2"), Duration::from_secs(30))
            .expect("runs");
        assert_eq!(output.stdout, ["one", "two"]);
        assert_eq!(output.stderr, ["three"]);
    }

    #[test]
    fn a_failing_child_is_quoted() {
        let error = run(shell("echo no such fabric >&2; exit 3"), Duration::from_secs(30))
            .expect_err("fails");
        assert!(error.contains("no such fabric") && error.contains('3'), "{error}");
    }

    #[test]
    fn a_hanging_child_and_its_own_session_are_gone() {
        let file = std::env::temp_dir().join(format!("compare-launch-{}", std::process::id()));
        let script = format!(
            "setsid sh -c 'echo $$ > {}; trap \"\" TERM; sleep 600; sleep 600' & wait",
            file.display()
        );
        let error = run(shell(&script), Duration::from_secs(1)).expect_err("hangs");
        assert!(error.contains("was killed"), "{error}");
        let grandchild =
            std::fs::read_to_string(&file).expect("the grandchild wrote its process id");
        std::fs::remove_file(&file).expect("just read");
        let grandchild = grandchild.trim().parse().expect("a process id");
        assert!(stat(grandchild).is_none(), "{grandchild} is still there");
    }

    #[test]
    fn this_process_is_found() {
        let me = i32::try_from(std::process::id()).expect("a process id is a positive i32");
        assert_eq!(stat(me).expect("we are alive").0.pid, me);
    }
}
