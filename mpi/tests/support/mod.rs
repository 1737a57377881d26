//! Runs real jobs under the real launcher for the end-to-end tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long a job may take before the watchdog calls it hung.
const PATIENCE: Duration = Duration::from_secs(100);

/// The directory of this profile's programs, with the launcher and the examples built.
pub fn programs() -> &'static PathBuf {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let test = std::env::current_exe().expect("a running test has a path");
        let directory =
            test.ancestors().nth(2).expect("tests are in target/PROFILE/deps").to_owned();
        let run = std::env::var("NEXTEST_RUN_ID").ok();
        let stamp = directory.join("ironweave-programs");
        // Each test is a process of its own, and cargo takes a while to see that nothing has changed: once in a run of nextest will do.
        if run.is_some() && std::fs::read_to_string(&stamp).ok() == run {
            return directory;
        }
        build(&directory);
        if let Some(run) = run {
            std::fs::write(stamp, run).expect("the target directory can be written to");
        }
        directory
    })
}

/// Builds the launcher, the drivers and the examples of this crate; not those of the launcher's package, which nobody needs here.
fn build(directory: &Path) {
    let mut build = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    let programs =
        "-p ironweave-rte -p ironweave -p ironweave-benches --bin ironweave --bin iw-osu";
    build.args(["build", "--quiet"]).args(programs.split(' '));
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    for example in std::fs::read_dir(examples).expect("this crate has examples") {
        let path = example.expect("a name").path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            build.arg("--example").arg(path.file_stem().expect("it has an extension"));
        }
    }
    if directory.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().expect("cargo runs").success(), "the programs cannot be built");
}

/// A job to run: an example program of this crate, or a driver, and how to start it.
pub struct Job<'a> {
    /// How many ranks.
    pub ranks: u32,
    /// Parameters: name, value, name, value, …
    pub parameters: &'a [&'a str],
    /// Which.
    pub program: &'a str,
    /// Its arguments.
    pub arguments: &'a [&'a str],
    /// Ranks from here on have tcp only, so that some pairs talk over shm and others do not.
    pub tcp_from: Option<u32>,
}

impl Job<'_> {
    /// Runs it; gives its output when it ended in time, a watchdog's dump otherwise.
    pub fn run(&self) -> Output {
        self.run_with(&[])
    }

    /// As `run`, with these variables in its environment.
    pub fn run_with(&self, environment: &[(&str, &str)]) -> Output {
        let mut command = Command::new(programs().join("ironweave"));
        command.args(["run", "-n", &self.ranks.to_string()]);
        for parameter in self.parameters.chunks(2) {
            command.arg("--mca").args(parameter);
        }
        if let Some(first) = self.tcp_from {
            // What the launcher hands on as parameters, with a word more for some of the ranks.
            let script = format!(
                "[ \"$PMI_RANK\" -lt {first} ] || export IRONWEAVE_MCA=\"$IRONWEAVE_MCA
btl=self,tcp
\"; exec \"$0\" \"$@\""
            );
            command.args(["sh", "-c", &script]);
        }
        command.envs(environment.iter().copied());
        self.run_by(command)
    }

    /// As `run`, by a launcher that is given all but the program and its arguments.
    pub fn run_by(&self, mut command: Command) -> Output {
        let mut program = programs().join("examples").join(self.program);
        if !program.is_file() {
            program = programs().join(self.program);
        }
        command.arg(program).args(self.arguments);
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
        let (program, arguments) = (self.program, self.arguments);
        assert!(!hung, "{program} {arguments:?} hung: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// Runs it; it must succeed.
    pub fn succeed(&self) {
        self.succeed_with(&[]);
    }

    /// As `succeed`, with these variables in its environment; gives its output.
    pub fn succeed_with(&self, environment: &[(&str, &str)]) -> Output {
        let output = self.run_with(environment);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{} {:?} over {:?}: {:?}\n{errors}",
            self.program,
            self.arguments,
            self.parameters,
            output.status
        );
        output
    }
}

pub const SHM: &[&str] = &["btl", "self,shm"];
pub const TCP: &[&str] = &["btl", "self,tcp", "btl_tcp_if_include", "lo"];
