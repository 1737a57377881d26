//! Jobs over the fabric: starts the launcher with one of our programs between the two hosts of the virtual machine, or
//! on this host where devices of a cluster are given, and sees them end. Never waits without a limit: a job that hangs
//! is ended, with what its processes say they wait for.

use crate::fabric::{Fabric, VM};
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The directory of our programs: `ironweave`, `iw-osu`, and the examples, there or in `examples/`.
pub const PROGRAMS: &str = "IRONWEAVE_PROGRAMS";
/// After how many seconds a process tells on stderr what it waits for.
const TELL: &str = "40";

/// A job to run.
#[must_use]
pub struct Job<'a> {
    fabric: &'a Fabric,
    ranks: u32,
    program: &'a str,
    arguments: Vec<String>,
    parameters: Vec<String>,
    devices: Option<String>,
    locked_memory: Option<u32>,
    limit: Duration,
}

impl<'a> Job<'a> {
    /// Where our programs are; `None` where nobody said so.
    #[must_use]
    pub fn programs() -> Option<PathBuf> {
        std::env::var_os(PROGRAMS).map(PathBuf::from)
    }

    /// `ranks` processes of `program` (one of ours, or any command) over verbs alone.
    pub fn new(fabric: &'a Fabric, ranks: u32, program: &'a str, arguments: &[&str]) -> Job<'a> {
        Job {
            fabric,
            ranks,
            program,
            arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
            parameters: vec!["btl".into(), "self,verbs".into()],
            devices: None,
            locked_memory: None,
            limit: Duration::from_secs(120),
        }
    }

    /// With these too: name, value, name, value, …
    pub fn parameters(mut self, parameters: &[&str]) -> Self {
        self.parameters.extend(parameters.iter().map(|&word| word.to_owned()));
        self
    }

    /// Over these devices instead of the fabric's; over whatever a process finds, if none is named.
    pub fn devices(mut self, names: &str) -> Self {
        self.devices = Some(names.to_owned());
        self
    }

    /// With so many KiB that each process may lock, and no privilege to lock more.
    pub fn locked_memory(mut self, kib: u32) -> Self {
        self.locked_memory = Some(kib);
        self
    }

    /// Counts as hung after this.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    fn command(&self) -> Command {
        let programs = Self::programs().expect("the caller saw that programs are given");
        let launcher = programs.join("ironweave");
        let virtual_machine = std::env::var_os(VM).is_some();
        let mut command = if virtual_machine {
            let mut command = Command::new("on");
            command.arg("0").arg(launcher).args(["run", "--bind-to", "none"]);
            let (here, there) = (self.ranks.div_ceil(2), self.ranks / 2);
            let hosts = match there {
                0 => format!("host0:{here}"),
                _ => format!("host0:{here},host1:{there}"),
            };
            command.args(["--hosts", &hosts, "--launch-agent", "on {host}"]);
            // On emulated processors a process was seen not to run for nine seconds.
            command.args(["--mca", "rte_host_timeout", "60s"]);
            command
        } else {
            let mut command = Command::new(launcher);
            command.arg("run");
            command
        };
        command.args(["-n", &self.ranks.to_string()]);
        for pair in self.parameters.chunks(2) {
            command.arg("--mca").args(pair);
        }
        match &self.devices {
            Some(devices) if devices.is_empty() => {}
            Some(devices) => {
                command.args(["--mca", "btl_verbs_include", devices]);
            }
            // Each host of the virtual machine has devices of its own.
            None if virtual_machine => {
                command.arg("mine");
            }
            None => {
                let devices = self.fabric.hosts.concat();
                let ports: Vec<String> = devices.iter().map(|name| format!("{name}:1")).collect();
                let (devices, ports) = (devices.join(","), ports.join(","));
                command.args(["--mca", "btl_verbs_include", &devices]);
                command.args(["--mca", "btl_ofi_domain_include", &devices]);
                command.args(["--mca", "btl_uct_devices", &ports]);
            }
        }
        if let Some(kib) = self.locked_memory {
            // Whoever may lock memory without a limit must not have that right here.
            let limit = format!(
                "ulimit -l {kib} && exec setpriv --inh-caps -ipc_lock --bounding-set -ipc_lock \"$0\" \"$@\""
            );
            command.args(["sh", "-c", &limit]);
        }
        let ours = [programs.join(self.program), programs.join("examples").join(self.program)];
        match ours.iter().find(|path| path.is_file()) {
            Some(path) => command.arg(path),
            None => command.arg(self.program),
        };
        command.args(&self.arguments);
        command.env("IRONWEAVE_WATCHDOG", TELL);
        command
    }

    /// Starts it.
    ///
    /// # Panics
    /// When that is not possible.
    #[must_use]
    pub fn start(self) -> Running {
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the launcher starts");
        let heard = Arc::new(Mutex::new(String::new()));
        let out = child.stdout.take().expect("its stdout was asked to be a pipe");
        let err = child.stderr.take().expect("its stderr was asked to be a pipe");
        let readers = [listen(out, Arc::clone(&heard)), listen(err, Arc::clone(&heard))];
        let what = format!("{} {}", self.program, self.arguments.join(" "));
        Running { child, heard, readers, until: Instant::now() + self.limit, what }
    }

    /// Runs it to its end: whether it went well, and all that it said.
    ///
    /// # Panics
    /// When it hangs.
    #[must_use]
    pub fn end(self) -> (bool, String) {
        self.start().end()
    }

    /// Runs it to its end, which must be a good one; returns all that it said.
    ///
    /// # Panics
    /// When it hangs or fails.
    pub fn finish(self) -> String {
        self.start().finish()
    }
}

fn listen(
    mut from: impl Read + Send + 'static,
    into: Arc<Mutex<String>>,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(n @ 1..) = from.read(&mut piece) {
            let text = String::from_utf8_lossy(&piece[..n]).into_owned();
            into.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
        }
    })
}

/// A job that was started.
#[derive(Debug)]
pub struct Running {
    child: Child,
    heard: Arc<Mutex<String>>,
    readers: [std::thread::JoinHandle<()>; 2],
    until: Instant,
    what: String,
}

impl Running {
    /// All that it has said so far.
    #[must_use]
    pub fn said(&self) -> String {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until it has said `word`.
    ///
    /// # Panics
    /// When it hangs, or ends without having said it.
    pub fn until(&mut self, word: &str) {
        while !self.said().contains(word) {
            let ended = self.child.try_wait().expect("this process's child");
            assert!(ended.is_none(), "{} ended before {word:?}:\n{}", self.what, self.said());
            self.watch();
        }
    }

    fn watch(&mut self) {
        if Instant::now() > self.until {
            // The launcher ends its ranks when it is told to end.
            let pid = rustix::process::Pid::from_child(&self.child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            std::thread::sleep(Duration::from_secs(3));
            let _ = self.child.kill();
            let _ = self.child.wait();
            panic!("{} hangs:\n{}", self.what, self.said());
        }
        std::thread::sleep(Duration::from_millis(20));
    }

    /// Waits for its end: whether that was a good one, and all that it said.
    ///
    /// # Panics
    /// When it hangs.
    #[must_use]
    pub fn end(mut self) -> (bool, String) {
        let status = loop {
            match self.child.try_wait().expect("this process's child") {
                Some(status) => break status,
                None => self.watch(),
            }
        };
        for reader in self.readers {
            let _ = reader.join(); // it only reads
        }
        let said = self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (status.success(), said)
    }

    /// Waits for its end, which must be a good one; returns all that it said.
    ///
    /// # Panics
    /// When it hangs or fails.
    pub fn finish(self) -> String {
        let what = self.what.clone();
        let (well, said) = self.end();
        assert!(well, "{what} failed:\n{said}");
        said
    }
}
