//! The virtual machine: runs one command in a small QEMU guest with two hosts of two Soft-RoCE rails each.
//!
//! The guest sees this machine's files read-only under a throw-away overlay, so what was built here runs there
//! unchanged; `vm/guest` has the picture of its fabric. Emulated in software: nothing of KVM is needed, and nothing is
//! installed (`vm/prepare` fetches what is missing into a cache, once). The command's output and exit status come
//! back; a command that hangs is killed after a dump of the guest's state, a guest that hangs with its console.
//! Never writes outside of the cache and its own directory under the temporary one.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// The guest's second part, which makes the fabric and runs the command.
const GUEST: &str = include_str!("../vm/guest");
/// Names the cache: nothing that a guest could use, or would know.
const CACHE: &str = "IRONWEAVE_VM_CACHE";
/// Exit status of a command that was killed because it hung.
pub const HUNG: i32 = 124;
/// Boot, fabric and switching off, on a machine that has other things to do.
const OVERHEAD: Duration = Duration::from_secs(120);
/// Lines of the guest's console that explain its death.
const CONSOLE_LINES: usize = 80;
/// What Linux writes as its last words.
const PANIC: &str = "Kernel panic - not syncing";

/// Why a command could not be run in the machine.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// This machine cannot have a virtual one: a reason to skip, not a failure.
    #[error("no virtual machine here: {0}")]
    Unavailable(String),
    /// The guest died without telling the command's status.
    #[error("the guest ended without a status ({0}); its console:\n{1}")]
    Died(String, String),
    /// The guest's own kernel gave up. Emulated processors are not faultless: under QEMU 7.2's TCG an interrupt was seen to
    /// find the flags register holding an address (EFLAGS 0b164202 beside RDI ffff88800b164000), which no processor can
    /// have, and the return from it to trap. Whether it comes again in a new machine tells whose fault it is.
    #[error("the guest's kernel panicked; its console:\n{0}")]
    Panicked(String),
    /// The operating system refused.
    #[error("{0}: {1}")]
    Os(String, #[source] std::io::Error),
}

fn os(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> VmError {
    let what = what.into();
    move |error| VmError::Os(what, error)
}

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct Task {
    /// Program and arguments, as they would be given here.
    pub command: Vec<String>,
    /// Environment beside `IRONWEAVE_*` and `RUST_*`, which are passed on.
    pub environment: Vec<(String, String)>,
    /// When a command counts as hung.
    pub limit: Duration,
    /// Memory of the guest in MiB.
    pub memory: u32,
}

impl Task {
    /// `command` with ten minutes and 2 GiB.
    #[must_use]
    pub fn new(command: Vec<String>) -> Task {
        Task { command, environment: Vec::new(), limit: Duration::from_secs(600), memory: 2048 }
    }
}

/// Which kernel the guest has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kernel {
    /// Debian's stock kernel.
    Stock,
    /// The newest that there are packages of, whose Soft-RoCE pages memory on demand; without Soft-iWARP.
    Newer,
}

/// What the machine boots from.
#[derive(Debug)]
pub struct Machine {
    cache: PathBuf,
    /// Where the kernel and its image are.
    boot: PathBuf,
    qemu: PathBuf,
}

impl Machine {
    /// Fills the cache if that was not done yet: minutes and 150 MB the first time, milliseconds later; a newer kernel takes 120 MB more.
    ///
    /// # Errors
    /// [`VmError::Unavailable`] when this machine has no apt or no network, or cannot run QEMU.
    pub fn prepare(kernel: Kernel) -> Result<Machine, VmError> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("vm/prepare");
        let done = Command::new(&script)
            .args((kernel == Kernel::Newer).then_some("--newer"))
            .stderr(Stdio::inherit())
            .output()
            .map_err(os(script.display().to_string()))?;
        if !done.status.success() {
            return Err(VmError::Unavailable(format!("vm/prepare ended with {}", done.status)));
        }
        let cache = PathBuf::from(String::from_utf8_lossy(&done.stdout).trim());
        let own = cache.join("sys/usr/bin/qemu-system-x86_64");
        let qemu = if own.exists() { own } else { PathBuf::from("qemu-system-x86_64") };
        let boot = match kernel {
            Kernel::Stock => cache.clone(),
            Kernel::Newer => cache.join("newer"),
        };
        let machine = Machine { cache, boot, qemu };
        let version = machine.qemu().arg("--version").stdin(Stdio::null()).output();
        match version {
            Ok(output) if output.status.success() => Ok(machine),
            Ok(output) => Err(VmError::Unavailable(format!(
                "QEMU does not run: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ))),
            Err(error) => Err(VmError::Unavailable(format!("QEMU does not start: {error}"))),
        }
    }

    /// QEMU with the libraries it was unpacked with.
    fn qemu(&self) -> Command {
        // It goes with us, however we go.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "env"]);
        let libraries = self.cache.join("sys/usr/lib/x86_64-linux-gnu");
        command.arg(format!("LD_LIBRARY_PATH={}", libraries.display())).arg(&self.qemu);
        command
    }

    /// Boots, runs the task, writes its output to `output` as it comes, and returns the command's exit status
    /// ([`HUNG`] when it was killed). Blocks until the guest is gone.
    ///
    /// # Errors
    /// When the guest does not come up, dies, or its kernel panics.
    pub fn run(&self, task: &Task, output: impl Write + Send) -> Result<i32, VmError> {
        let exchange = Exchange::new(task)?;
        let console = exchange.path.join("console");
        let mut guest = self.boot(task, &exchange, &console)?;
        let from_guest = guest.stdout.take().expect("its stdout was asked to be a pipe");
        let deadline = Instant::now() + task.limit + OVERHEAD;
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| pass_on(from_guest, output));
            wait(&mut guest, deadline)
        })?;
        if let Ok(status) = std::fs::read_to_string(exchange.path.join("status"))
            && let Ok(status) = status.trim().parse()
        {
            return Ok(status);
        }
        let text = std::fs::read(&console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(CONSOLE_LINES)..].join("\n");
        Err(if tail.contains(PANIC) { VmError::Panicked(tail) } else { VmError::Died(ended, tail) })
    }

    fn boot(&self, task: &Task, exchange: &Exchange, console: &Path) -> Result<Child, VmError> {
        let sys = self.cache.join("sys");
        let share = |path: &Path, tag: &str, readonly: &str| {
            format!(
                "local,path={},mount_tag={tag},security_model=none,readonly={readonly},multidevs=remap",
                path.display()
            )
        };
        let data = |name: &str| sys.join("usr/share").join(name);
        // Two processors: more on two cores are many times slower. `preempt=full` brings the latency of an emulated
        // send from milliseconds to microseconds; the rest saves boot time. Without `erms` copies move words: where it is
        // there, the kernel and the C library copy with `rep movsb`, which is emulated byte by byte (16 KiB took ten times
        // as long, a pipe four times).
        let kernel_line = "console=ttyS0 quiet loglevel=5 panic=-1 oops=panic mitigations=off nokaslr tsc=reliable no_timer_check \
             preempt=full rcupdate.rcu_expedited=1 random.trust_cpu=on selinux=0 apparmor=0";
        self.qemu()
            .args(["-machine", "q35", "-accel", "tcg,thread=multi"])
            .args(["-cpu", "max,-erms", "-smp", "2"])
            .args(["-m", &task.memory.to_string()])
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .arg("-L")
            .arg(data("qemu"))
            .arg("-L")
            .arg(data("seabios"))
            .arg("-kernel")
            .arg(self.boot.join("vmlinux"))
            .arg("-initrd")
            .arg(self.boot.join("initrd"))
            .args(["-append", kernel_line])
            .arg("-serial")
            .arg(format!("file:{}", console.display()))
            .args(["-device", "virtio-serial-pci", "-chardev", "file,id=output,path=/dev/stdout"])
            .args(["-device", "virtserialport,chardev=output,name=output"])
            .args(["-device", "virtio-rng-pci"])
            .args(["-virtfs", &share(Path::new("/"), "root", "on")])
            .args(["-virtfs", &share(&sys, "sys", "on")])
            .args(["-virtfs", &share(&exchange.path, "exchange", "off")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(os("starting QEMU"))
    }
}

/// Waits for QEMU to end, or kills it: how it ended.
fn wait(guest: &mut Child, deadline: Instant) -> Result<String, VmError> {
    loop {
        if let Some(status) = guest.try_wait().map_err(os("waiting for QEMU"))? {
            return Ok(format!("QEMU: {status}"));
        }
        if Instant::now() > deadline {
            guest.kill().map_err(os("killing QEMU"))?;
            guest.wait().map_err(os("waiting for QEMU"))?;
            return Ok(String::from("killed: the guest itself hangs"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Copies until the guest is gone. What cannot be written any more is read all the same: the guest must not block.
fn pass_on(mut from: impl Read, mut to: impl Write) {
    let mut piece = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut piece) {
        let _ = to.write_all(&piece[..n]).and_then(|()| to.flush());
    }
}

/// The directory that host and guest share for one run; removed with it.
struct Exchange {
    path: PathBuf,
}

impl Exchange {
    fn new(task: &Task) -> Result<Exchange, VmError> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let name = format!("ironweave-vm-{}-{}", std::process::id(), now.subsec_nanos());
        let exchange = Exchange { path: std::env::temp_dir().join(name) };
        std::fs::create_dir_all(&exchange.path).map_err(os(exchange.path.display().to_string()))?;
        let here = std::env::current_dir().map_err(os("the current directory"))?;
        let mut command = String::new();
        for word in &task.command {
            let _ = write!(command, "{} ", quoted(word));
        }
        let mut environment = String::new();
        let inherited = std::env::vars()
            .filter(|(name, _)| name.starts_with("IRONWEAVE_") || name.starts_with("RUST_"))
            .filter(|(name, _)| name != CACHE);
        for (name, value) in inherited.chain(task.environment.iter().cloned()) {
            let _ = writeln!(environment, "{name}={}", quoted(&value));
        }
        let settings = format!(
            "EPOCH={}.{:09}\nDIRECTORY={}\nLIMIT={}\n",
            now.as_secs(),
            now.subsec_nanos(),
            quoted(&here.display().to_string()),
            task.limit.as_secs().max(1)
        );
        let files = [
            ("guest", GUEST),
            ("settings", &settings),
            ("environment", &environment),
            ("command", &format!("exec {command}\n")),
        ];
        for (name, content) in files {
            std::fs::write(exchange.path.join(name), content).map_err(os(name))?;
        }
        Ok(exchange)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path); // the temporary directory is cleaned by others too
    }
}

/// `word` as a shell reads it back.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_from_a_shell_as_they_were() {
        for word in ["plain", "two words", "it's", "$HOME `id` \"x\" \\", ""] {
            let script = format!("printf %s {}", quoted(word));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), word);
        }
    }
}
