//! The guard: a tiny process beside the launcher and each daemon that outlives them by a moment, to
//! end what they can no longer end.
//!
//! A rank itself dies with its parent (the parent-death signal). What a rank started in its process
//! group does not; the guard kills those groups when its pipe to the launcher closes, however the
//! launcher went. Law 8: nothing left behind.

use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeSet;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

/// The launcher's end.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Guard {
    /// Starts a guard: this executable, as `ironweave guard`.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start() -> io::Result<Guard> {
        let mut child = Command::new("/proc/self/exe")
            .arg0("ironweave")
            .arg("guard")
            .env_clear()
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let pipe = child.stdin.take();
        Ok(Guard { child, pipe })
    }

    /// Watches the process group of `leader`.
    pub fn watch(&mut self, leader: Pid) {
        self.tell('+', leader);
    }

    /// Forgets the process group of `leader`, which is empty or about to be reaped.
    pub fn forget(&mut self, leader: Pid) {
        self.tell('-', leader);
    }

    fn tell(&mut self, sign: char, leader: Pid) {
        let Some(pipe) = &mut self.pipe else { return };
        if let Err(error) = writeln!(pipe, "{sign}{}", leader.as_raw_nonzero()) {
            tracing::warn!(%error, "the guard is gone: grandchildren may outlive the launcher");
            self.pipe = None;
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.pipe = None;
        let _ = self.child.wait();
    }
}

/// The guard's whole life: reads groups until its input ends, kills those still watched.
pub fn main() {
    let mut watched: BTreeSet<i32> = BTreeSet::new();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let Some((sign, number)) = line.split_at_checked(1) else { continue };
        match (sign, number.parse::<i32>()) {
            ("+", Ok(number)) => drop(watched.insert(number)),
            ("-", Ok(number)) => drop(watched.remove(&number)),
            _ => {}
        }
    }
    for leader in watched.into_iter().filter(|number| *number > 1) {
        if let Some(leader) = Pid::from_raw(leader) {
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}
