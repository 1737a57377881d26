//! The processes that one started, for the end of a run that hangs on a machine that is not ours to switch off.

use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::process::Command;
use std::time::Duration;

/// What a process has to end by itself in: a launcher ends its ranks first.
const GRACE: Duration = Duration::from_secs(3);

/// Ends `root` and all that it started, by SIGTERM and soon after by SIGKILL. Blocks for three seconds. Returns a line for
/// each, as `ps` told of it before: number, state, what it waits for in the kernel, command.
///
/// # Errors
/// When `ps` cannot be started.
pub fn end_with_descendants(root: u32) -> io::Result<Vec<String>> {
    let output = Command::new("ps").args(["-eo", "pid=,ppid=,stat=,wchan:24=,args="]).output()?;
    let found = family(&String::from_utf8_lossy(&output.stdout), root);
    for signal in [Signal::TERM, Signal::KILL] {
        for &(pid, _) in &found {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, signal); // it may have ended
            }
        }
        if signal == Signal::TERM {
            std::thread::sleep(GRACE);
        }
    }
    Ok(found.into_iter().map(|(_, line)| line).collect())
}

/// `root` and its descendants in what `ps` says, parents first.
fn family(said: &str, root: u32) -> Vec<(u32, String)> {
    let mut others: Vec<(u32, u32, String)> = said
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let pid = words.next()?.parse().ok()?;
            let parent = words.next()?.parse().ok()?;
            Some((pid, parent, format!("{pid} {}", words.collect::<Vec<_>>().join(" "))))
        })
        .collect();
    let mut found: Vec<(u32, String)> = Vec::new();
    loop {
        let known = found.len();
        others.retain_mut(|(pid, parent, line)| {
            let ours = *pid == root || found.iter().any(|(known, _)| known == parent);
            if ours {
                found.push((*pid, std::mem::take(line)));
            }
            !ours
        });
        if found.len() == known {
            return found;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_found_in_any_order_and_others_are_left() {
        let said = " 30 20 S wait ironweave run\n 1 0 S - init\n 20 10 S - jobs-1\n 40 1 S - bash\n10 1 S do_wait bash -c x\n";
        let lines: Vec<String> = family(said, 10).into_iter().map(|(_, line)| line).collect();
        assert_eq!(lines, ["10 S do_wait bash -c x", "20 S - jobs-1", "30 S wait ironweave run"]);
        assert_eq!(family(said, 99), []);
    }

    #[test]
    fn a_shell_and_what_it_started_are_ended() {
        let mut shell = Command::new("sh").args(["-c", "sleep 1000; :"]).spawn().unwrap();
        let mut lines = Vec::new();
        while !lines.iter().any(|(_, line): &(u32, String)| line.contains("sleep 1000")) {
            let output = Command::new("ps").args(["-eo", "pid=,ppid=,args="]).output().unwrap();
            lines = family(&String::from_utf8_lossy(&output.stdout), shell.id());
        }
        let ended = end_with_descendants(shell.id()).unwrap();
        assert!(ended.len() >= 2, "{ended:?}");
        assert!(!shell.wait().unwrap().success());
        for (pid, _) in lines {
            assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "{pid} is left");
        }
    }
}
