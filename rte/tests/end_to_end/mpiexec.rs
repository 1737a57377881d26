//! The launcher under its other name: jobs as scripts for other MPIs start them.

use crate::support::{Job, Outcome, ironweave};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

fn mpiexec(args: &[&str]) -> Outcome {
    let mut command = Command::new(ironweave());
    command.arg0("/usr/bin/mpiexec").args(args);
    Job::spawn(command, Stdio::null()).outcome()
}

#[test]
fn several_programs_are_one_job() {
    let words = "-n 2 -env A one -wdir /usr sh -c \
                 echo:$A,$PMI_RANK:of:$PMI_SIZE:in:$PWD : -np 1 -x A=two sh -c echo:$A,$PMI_RANK:of:$PMI_SIZE";
    let words: Vec<String> = words
        .split_whitespace()
        .map(|word| if word == ":" { word.to_owned() } else { word.replace(':', " ") })
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = mpiexec(&words);
    assert_eq!((outcome.code(), outcome.err.as_str()), (Some(0), ""), "{outcome:?}");
    for line in ["one,0 of 3 in /usr", "one,1 of 3 in /usr", "two,2 of 3"] {
        assert_eq!(outcome.count(line), 1, "{line}: {outcome:?}");
    }
}

#[test]
fn libfabric_is_told_to_share_receives_unless_the_user_says_otherwise() {
    let name = "FI_OFI_RXM_USE_SRX";
    let echo = format!("echo is ${name}");
    let one = ["-n", "1", "sh", "-c", &echo];
    let other = ["-n", "1", "-env", name, "no", "sh", "-c", &echo];
    let outcome = mpiexec(&[&one[..], &[":"], &other].concat());
    assert_eq!((outcome.count("is 1"), outcome.count("is no")), (1, 1), "{outcome:?}");
}

#[test]
fn a_job_whose_time_is_over_is_ended() {
    let outcome = mpiexec(&["-n", "2", "--timeout", "1", "sleep", "1000"]);
    assert_eq!(outcome.code(), Some(124), "{outcome:?}");
    assert!(outcome.err.contains("time (1s) is over"), "{outcome:?}");
}

#[test]
fn the_environment_may_say_when_the_time_is_over() {
    let program = env!("CARGO_BIN_EXE_ironweave");
    let job = |limit: &str| {
        let mut command = Command::new("bash");
        command.args(["-c", "exec -a mpiexec \"$0\" -n 1 sleep 1000", program]);
        command.env("MPIEXEC_TIMEOUT", limit).output().expect("bash runs")
    };
    let ended = job("1");
    assert_eq!(ended.status.code(), Some(124), "{ended:?}");
    for limit in ["soon", "0"] {
        let wrong = job(limit);
        let said = String::from_utf8_lossy(&wrong.stderr);
        let words = format!("MPIEXEC_TIMEOUT is a number of seconds from 1, not {limit:?}");
        assert!(said.contains(&words), "{said}");
    }
}

#[test]
fn what_others_know_is_said_and_does_not_stop_the_job() {
    let outcome =
        mpiexec(&["--mca", "pml", "ucx", "--map-by", "socket", "-np", "2", "echo", "hello"]);
    assert_eq!((outcome.code(), outcome.count("hello")), (Some(0), 2), "{outcome:?}");
    assert_eq!(outcome.err.lines().count(), 2, "{outcome:?}");
    assert!(outcome.err.lines().all(|line| line.starts_with("mpiexec: --")), "{outcome:?}");
}

#[test]
fn a_program_in_the_working_directory_is_found() {
    let here = std::env::temp_dir().join(format!("ironweave-wdir-{}", std::process::id()));
    std::fs::create_dir(&here).expect("a directory");
    let program = here.join("ironweave-test-echo");
    std::os::unix::fs::symlink("/bin/echo", &program).expect("a link");
    let directory = here.to_str().expect("UTF-8");
    let args = ["-wdir", directory, "-n", "2", "ironweave-test-echo", "found"];
    let outcome = mpiexec(&args);
    std::fs::remove_dir_all(&here).expect("it is ours");
    assert_eq!((outcome.code(), outcome.count("found")), (Some(0), 2), "{outcome:?}");
}

#[test]
fn mistakes_end_in_words() {
    for (args, words) in [
        (&["--frobnicate", "true"][..], "mpiexec: unknown flag --frobnicate"),
        (&["-n", "2"], "no program"),
        (&["-wdir", "/no/such/directory", "true"], "no directory /no/such/directory"),
    ] {
        let outcome = mpiexec(args);
        assert_eq!(outcome.code(), Some(1), "{outcome:?}");
        assert!(outcome.err.contains(words), "{words}: {outcome:?}");
    }
}

#[test]
fn a_failure_ends_the_job_only_if_asked() {
    let script = "[ $PMI_RANK = 1 ] && exit 3; sleep 0.2; echo after";
    let outcome = mpiexec(&["-n", "2", "sh", "-c", script]);
    assert_eq!(outcome.count("after"), 1, "{outcome:?}");
    let script = "[ $PMI_RANK = 1 ] && exit 3; sleep 1000; echo after";
    let outcome = mpiexec(&["--with-ft", "none", "-n", "2", "sh", "-c", script]);
    assert_eq!(outcome.count("after"), 0, "{outcome:?}");
}
