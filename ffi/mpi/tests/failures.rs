//! C programs of our own (`tests/c`) whose processes are killed in the middle, over shared memory and over TCP: each checks what the
//! survivors' calls give. `programs.rs` has those that kill on their way through a chapter.

mod common;

use common::{compile, installed, run};
use std::process::Command;

/// Runs a program over both transports: rank 0 says at the end how much was wrong anywhere.
fn survive(name: &str, flags: &[&str], ranks: u32) {
    let program = compile(name, flags);
    for btl in ["shm,self", "tcp,self"] {
        let mut command = Command::new(installed().join("bin/mpiexec"));
        command.args(["-n", &ranks.to_string()]).arg(&program);
        command.env("IRONWEAVE_BTL", btl).env("IRONWEAVE_WATCHDOG", "40");
        let output = run(command, name);
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or_default();
        let well = last.starts_with(&format!("{name}: ")) && last.ends_with(" 0 wrong");
        assert!(well && output.status.success(), "{btl}: {}: {said}{errors}", output.status);
    }
    std::fs::remove_file(program).expect("it was just made");
}

/// Threads wait in calls of all kinds when a member dies, or when another thread revokes; they repair their communicators at the same
/// time, and members die in the middle of that.
#[test]
fn threads_survive() {
    survive("threads_fail", &["-lpthread"], 5);
}

/// All-to-all exchanges of mixed types, also among neighbours, in all three forms: a member is dead before, dies while others wait for
/// it, or in the middle.
#[test]
fn mixed_exchanges_survive() {
    survive("alltoallw_fail", &[], 21);
}

/// Who has failed and who is acknowledged is told with the right ranks, also on communicators with other ranks and on both sides of an
/// inter-communicator, which agrees and shrinks.
#[test]
fn the_failed_are_named() {
    survive("failed_groups", &[], 8);
}
