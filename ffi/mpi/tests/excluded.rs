//! A process that was stopped inside of a collective, and that the others have excluded (law 4: fail-stop is enforced), in C: the
//! others go on. Our launcher ends it. Under a process manager that tells nothing and ends nobody (made here: keys and a
//! barrier, and no more) it runs again one day: its calls have errors, and it ends nobody but itself.

mod common;

use common::{compile, installed, run};
use ironweave_rte::pmi::server::{Request, Server};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long a job may take before the watchdog calls it hung.
const PATIENCE: Duration = Duration::from_secs(60);
const RANKS: u32 = 4;
const VICTIM: usize = 1;

/// Detectors that are quick, and still calm on a machine with other work.
fn settings(command: &mut Command) {
    command.env("IRONWEAVE_ft_detector_period", "50ms").env("IRONWEAVE_ft_detector_timeout", "1s");
    command.env("IRONWEAVE_ft_probe_timeout", "500ms").env("IRONWEAVE_WATCHDOG", "30");
}

#[test]
fn the_launcher_ends_it_and_the_others_go_on() {
    let program = compile("excluded", &[]);
    for (mode, btl) in [("blocking", "shm,self"), ("nonblocking", "tcp,self")] {
        let mut command = Command::new(installed().join("bin/mpiexec"));
        command.args(["--with-ft", "ulfm", "-n", "4"]).arg(&program).arg(mode);
        command.env("IRONWEAVE_BTL", btl);
        settings(&mut command);
        let output = run(command, mode);
        let (said, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(said.matches("went on: 0 wrong").count(), 3, "{mode}: {said}{errors}");
        assert!(errors.contains("rank 1: no sign of life; it is being ended"), "{errors}");
    }
    std::fs::remove_file(program).expect("it was just made");
}

#[test]
fn where_nobody_ends_it_its_calls_have_errors() {
    let program = compile("excluded", &[]);
    for mode in ["blocking", "nonblocking", "fatal"] {
        woken(&program, mode);
    }
    std::fs::remove_file(program).expect("it was just made");
}

fn woken(program: &Path, mode: &str) {
    let over = program.with_extension(mode);
    let mut manager = Manager::start(program, &[mode, over.to_str().expect("a path of ours")]);
    manager.serve("nobody learns of the stop", |manager| manager.said("learned") == 3);
    assert_eq!(manager.said("stopping"), 1, "{mode}: {:?}", manager.lines_seen);
    let pid = manager.children[VICTIM].id().to_string();
    assert!(Command::new("kill").args(["-CONT", &pid]).status().expect("kill runs").success());
    let victim = manager.end_of(VICTIM);
    let mut errors = String::new();
    let pipe = manager.children[VICTIM].stderr.as_mut().expect("it is piped");
    pipe.read_to_string(&mut errors).expect("a pipe can be read");
    if mode == "fatal" {
        assert!(!victim.success() && errors.contains("MPIX_ERR_PROC_FAILED"), "{victim}: {errors}");
    } else {
        assert!(victim.success(), "{mode}: {victim}: {:?}{errors}", manager.lines_seen);
        assert_eq!(manager.said("excluded: 0 wrong"), 1, "{:?}", manager.lines_seen);
    }
    std::fs::write(&over, "").expect("a writable target");
    for rank in (0..RANKS as usize).filter(|rank| *rank != VICTIM) {
        let end = manager.end_of(rank);
        assert!(end.success(), "{mode}: rank {rank}: {end}: {:?}", manager.lines_seen);
    }
    assert_eq!(manager.said("went on: 0 wrong"), 3, "{mode}: {:?}", manager.lines_seen);
    assert!(!manager.aborted, "{mode}: it asked for the end of a job that it is no part of");
    std::fs::remove_file(over).expect("it was just made");
}

/// A process manager that knows keys and a barrier. The ranks' connections to it are their standard input.
struct Manager {
    children: Vec<Child>,
    lines: Receiver<String>,
    lines_seen: Vec<String>,
    ends: Vec<Option<(UnixStream, Server)>>,
    keys: HashMap<String, String>,
    in_barrier: Vec<bool>,
    aborted: bool,
}

impl Manager {
    fn start(program: &Path, arguments: &[&str]) -> Manager {
        let (sender, lines) = channel();
        let (mut children, mut ends) = (Vec::new(), Vec::new());
        for rank in 0..RANKS {
            let (ours, theirs) = UnixStream::pair().expect("a socket pair");
            ours.set_nonblocking(true).expect("a flag");
            let mut command = Command::new(program);
            command.args(arguments).stdin(OwnedFd::from(theirs));
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.env("PMI_FD", "0").env("PMI_RANK", rank.to_string());
            command.env("PMI_SIZE", RANKS.to_string());
            settings(&mut command);
            let mut child = command.spawn().expect("a rank starts");
            let out = child.stdout.take().expect("it is piped");
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
            children.push(child);
            let mut server = Server::new(rank, RANKS, 0, "excluded");
            server.output().clear();
            ends.push(Some((ours, server)));
        }
        let keys = [("PMI_process_mapping".to_owned(), format!("(vector,(0,1,{RANKS}))"))].into();
        let in_barrier = vec![false; RANKS as usize];
        Manager { children, lines, lines_seen: Vec::new(), ends, keys, in_barrier, aborted: false }
    }

    /// How many ranks have said this.
    fn said(&self, line: &str) -> usize {
        self.lines_seen.iter().filter(|said| *said == line).count()
    }

    /// Serves until `done`, which is asked after every turn.
    fn serve(&mut self, what: &str, mut done: impl FnMut(&mut Manager) -> bool) {
        let since = Instant::now();
        while !done(self) {
            self.lines_seen.extend(self.lines.try_iter());
            assert!(since.elapsed() < PATIENCE, "{what}: {:?}", self.lines_seen);
            (0..self.ends.len()).for_each(|rank| self.serve_rank(rank));
            if self.in_barrier.iter().all(|inside| *inside) {
                self.in_barrier.fill(false);
                self.ends.iter_mut().flatten().for_each(|(_, server)| server.release());
            }
            for (stream, server) in self.ends.iter_mut().flatten() {
                let out = std::mem::take(server.output());
                // Who has ended reads no more.
                let _ = stream.write_all(&out);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        // What was said last.
        std::thread::sleep(Duration::from_millis(100));
        self.lines_seen.extend(self.lines.try_iter());
    }

    fn serve_rank(&mut self, rank: usize) {
        let Some((stream, server)) = &mut self.ends[rank] else { return };
        let (mut buffer, mut requests) = ([0; 4096], Vec::new());
        match stream.read(&mut buffer) {
            Ok(0) => self.ends[rank] = None,
            Ok(length) => server.feed(&buffer[..length], &mut requests),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.ends[rank] = None,
        }
        for request in requests {
            match request {
                Request::Put { key, value } => drop(self.keys.insert(key, value)),
                Request::Get { key } => {
                    if let Some((_, server)) = &mut self.ends[rank] {
                        server.answer_get(self.keys.get(&key).map(String::as_str));
                    }
                }
                Request::Barrier => self.in_barrier[rank] = true,
                Request::Abort { .. } => self.aborted = true,
                Request::Joined | Request::Finalized => {}
            }
        }
    }

    fn end_of(&mut self, rank: usize) -> std::process::ExitStatus {
        let mut end = None;
        self.serve(&format!("rank {rank} does not end"), |manager| {
            end = manager.children[rank].try_wait().expect("it is this process's child");
            end.is_some()
        });
        end.expect("it has ended")
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
