//! What the tests of C programs share: an installation of the library as built, `mpicc`, and a watchdog.
#![allow(dead_code)] // each test uses what it needs

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a job may take before the watchdog calls it hung.
const PATIENCE: Duration = Duration::from_secs(100);

pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The installation under test.
pub fn installed() -> &'static PathBuf {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let test = std::env::current_exe().expect("a running test has a path");
        let profile = test.ancestors().nth(2).expect("tests are in target/PROFILE/deps");
        let prefix = profile.join("mpi-prefix");
        // Tests run in processes of their own: one installs at a time.
        let lock =
            std::fs::File::create(profile.join("mpi-prefix.lock")).expect("a writable target");
        lock.lock().expect("the file can be locked");
        let mut install = Command::new("bash");
        install.arg(root().join("ci/install")).arg(&prefix);
        if profile.ends_with("debug") {
            install.arg("--debug");
        }
        let done = install.stdout(Stdio::null()).status().expect("bash runs");
        assert!(done.success(), "the library cannot be installed");
        prefix
    })
}

/// A program of `tests/c`, compiled: what is compiled with different flags is a program of its own.
pub fn compile(name: &str, flags: &[&str]) -> PathBuf {
    build(name, &root().join(format!("ffi/mpi/tests/c/{name}.c")), flags)
}

/// A program from its text, compiled.
pub fn compile_source(name: &str, text: &str, flags: &[&str]) -> PathBuf {
    let source = place(name).with_extension("c");
    std::fs::write(&source, text).expect("a writable target");
    let program = build(name, &source, flags);
    std::fs::remove_file(source).expect("it was just made");
    program
}

/// A file of its own: tests of one program with several sizes run at the same time, in one process or in several.
fn place(name: &str) -> PathBuf {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let made = MADE.fetch_add(1, Ordering::Relaxed);
    let folder = installed().with_file_name("mpi-programs");
    std::fs::create_dir_all(&folder).expect("a writable target");
    folder.join(format!("{name}-{}-{made}", std::process::id()))
}

fn build(name: &str, source: &Path, flags: &[&str]) -> PathBuf {
    let program = place(name);
    let mut mpicc = Command::new(installed().join("bin/mpicc"));
    mpicc
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-g", "-o"])
        .arg(&program)
        .arg(source)
        .args(flags);
    let built = mpicc.output().expect("mpicc runs");
    assert!(built.status.success(), "{name}: {}", String::from_utf8_lossy(&built.stderr));
    program
}

/// Runs a command to its end, or fails after a while with what it said.
pub fn run(mut command: Command, what: &str) -> Output {
    fn all(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
        let mut pipe = pipe.expect("it is piped");
        std::thread::spawn(move || {
            let mut said = Vec::new();
            pipe.read_to_end(&mut said).expect("a pipe can be read");
            said
        })
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the launcher starts");
    let (stdout, stderr) = (all(child.stdout.take()), all(child.stderr.take()));
    let since = Instant::now();
    let mut hung = false;
    let status = loop {
        match child.try_wait().expect("it is this process's child") {
            Some(status) => break status,
            None if since.elapsed() > PATIENCE && !hung => {
                hung = true;
                child.kill().expect("it is this process's child");
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let end = |pipe: JoinHandle<Vec<u8>>| pipe.join().expect("the reader ends");
    let output = Output { status, stdout: end(stdout), stderr: end(stderr) };
    assert!(
        !hung,
        "{what} hangs:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
