//! The failure detector end to end: real processes, stopped, killed and cut off for real. What they do and check is in
//! `mpi/examples/heartbeat.rs`. Under our launcher a silent process is ended; under one that tells nothing (a process
//! manager made here, with keys and a barrier and no more) only the detectors know.

#[path = "support/fabrics.rs"]
mod fabrics;

use fabrics::{NATIVE_TCP, UCT, has_uct, native_tcp};
use ironweave_rte::pmi::server::{Request, Server};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long a job may take before the watchdog calls it hung.
const PATIENCE: Duration = Duration::from_secs(60);
/// A detector that is quick, and still calm on a machine with other work.
const QUICK: [(&str, &str); 3] = [
    ("IRONWEAVE_ft_detector_period", "50ms"),
    ("IRONWEAVE_ft_detector_timeout", "1s"),
    ("IRONWEAVE_ft_probe_timeout", "500ms"),
];

/// The directory of this profile's programs, with the launcher and the scenarios built.
fn programs() -> &'static PathBuf {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let test = std::env::current_exe().expect("a running test has a path");
        let directory =
            test.ancestors().nth(2).expect("tests are in target/PROFILE/deps").to_owned();
        let mut build = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
        let what =
            "build --quiet -p ironweave-rte -p ironweave --bin ironweave --example heartbeat";
        build.args(what.split(' '));
        if directory.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().expect("cargo runs").success(), "the programs cannot be built");
        directory
    })
}

/// Waits for the end of `child`; kills it when it hangs.
fn end_of(mut child: Child, what: &str) -> Output {
    let since = Instant::now();
    let mut hung = false;
    while child.try_wait().expect("this process's child").is_none() {
        if since.elapsed() > PATIENCE {
            hung = true;
            child.kill().expect("this process's child");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().expect("its output can be read");
    let (out, err) = texts(&output);
    assert!(!hung, "{what} hung:\n{out}\n{err}");
    output
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// A job under our launcher.
fn job(ranks: u32, more: &[&str], scenario: &str) -> Command {
    let mut command = Command::new(programs().join("ironweave"));
    command.args(["run", "-n", &ranks.to_string()]).args(more);
    command.envs(QUICK);
    command.arg(programs().join("examples/heartbeat")).arg(scenario);
    command.env("IRONWEAVE_WATCHDOG", "30");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a scenario under our launcher; it must succeed. Returns what was written.
fn succeed(ranks: u32, scenario: &str) -> (String, String) {
    succeed_by(job(ranks, &[], scenario), scenario)
}

fn succeed_by(mut job: Command, scenario: &str) -> (String, String) {
    let output = end_of(job.spawn().expect("the launcher starts"), scenario);
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{scenario}: {:?}\n{out}\n{err}", output.status);
    (out, err)
}

/// Nothing is set: what operators have who set nothing.
fn by_default(mut job: Command) -> Command {
    QUICK.iter().for_each(|(name, _)| _ = job.env_remove(name));
    job
}

#[test]
fn a_stopped_process_is_found_and_ended_by_default() {
    let (out, err) = succeed_by(by_default(job(4, &[], "stopped")), "stopped");
    assert_eq!(out.matches("learned after").count(), 3, "{out}");
    assert!(err.contains("rank 1: no sign of life; it is being ended"), "{err}");
}

/// At rest and in the middle of long messages. The system keeps the connections to a stopped process as they are: nobody but the
/// detector finds it while this test lasts (`btl_ofi_peer_timeout` and UCT's are five minutes).
fn found_when_stopped(parameters: &[&str], environment: &[(&str, &str)]) {
    let more: Vec<&str> =
        parameters.chunks(2).flat_map(|pair| [&["--mca"], pair].concat()).collect();
    for scenario in ["stopped", "stopped_amid"] {
        let mut job = job(4, &more, scenario);
        job.envs(environment.iter().copied());
        let (out, err) = succeed_by(job, scenario);
        assert_eq!(out.matches(" learned ").count(), 3, "{out}");
        assert!(err.contains("rank 1: no sign of life; it is being ended"), "{err}");
    }
}

#[test]
fn a_stopped_process_is_found_and_ended_over_native_tcp() {
    if let Some(environment) = native_tcp() {
        found_when_stopped(NATIVE_TCP, &environment);
    }
}

#[test]
fn a_stopped_process_is_found_and_ended_over_uct() {
    if has_uct("a_stopped_process_is_found_and_ended_over_uct") {
        found_when_stopped(UCT[0], &[]);
    }
}

#[test]
fn a_process_that_only_computes_is_left_alone() {
    succeed(3, "computing");
}

#[test]
fn a_process_that_gets_no_core_is_left_alone() {
    let job = job(3, &["--bind-to", "none"], "starved");
    starve("a_process_that_gets_no_core_is_left_alone", job);
}

/// Only its own host's daemon sees that: processes of the two hosts do not see each other's numbers.
#[test]
fn a_process_of_another_host_that_gets_no_core_is_left_alone() {
    let name = "a_process_of_another_host_that_gets_no_core_is_left_alone";
    let hosts = match Hosts::make() {
        Ok(hosts) => hosts,
        Err(reason) => return println!("SKIP {name}: {reason}"),
    };
    let tag = &hosts.tag;
    let list = format!("iwd{tag}-0:1,iwd{tag}-1:1");
    let agent = "ip netns exec {host} unshare --pid --fork --mount-proc";
    let more = ["--bind-to", "none", "--hosts", &list, "--launch-agent", agent];
    starve(name, job(2, &more, "starved"));
}

/// Runs a job in which one process gets no core for much longer than the timeouts.
fn starve(name: &str, mut job: Command) {
    // The system leaves 5 % to those without real-time priority: 50 ms in each second.
    let quicker =
        [("IRONWEAVE_ft_detector_timeout", "300ms"), ("IRONWEAVE_ft_probe_timeout", "200ms")];
    job.envs(quicker).env("IRONWEAVE_LOG", "ironweave::detect=debug");
    let output = end_of(job.spawn().expect("the launcher starts"), "starved");
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{:?}\n{out}\n{err}", output.status);
    match out.split_once("refused: ") {
        Some((_, why)) => {
            println!("SKIP {name}: {}", why.trim())
        }
        None => {
            assert!(out.contains("starved"), "{out}");
            assert!(err.contains("silent for want of a core"), "it was never accused:\n{err}");
        }
    }
}

#[test]
fn a_kill_is_known_to_processes_that_never_call() {
    succeed(4, "killed");
}

/// Ends that are no signal's from outside, each without finalize, and what the launcher says of them.
const ENDS: [(&str, &str); 7] = [
    ("exit", "rank 1: exited with code 0 without finalize"),
    ("exit_3", "rank 1: exited with code 3 without finalize"),
    ("exit_elsewhere", "rank 1: exited with code 3 without finalize"),
    ("_exit_0", "rank 1: exited with code 0 without finalize"),
    ("_exit_7", "rank 1: exited with code 7 without finalize"),
    ("abort", "rank 1: killed by signal 6"),
    ("panic", "rank 1: exited with code 101 without finalize"),
];

#[test]
fn an_end_without_finalize_is_a_failure_whatever_it_is() {
    for btl in ["self,shm", "self,tcp"] {
        for (scenario, words) in ENDS {
            let more = ["--mca", "btl", btl, "--mca", "btl_tcp_if_include", "lo"];
            let (out, err) = succeed_by(job(3, &more, scenario), scenario);
            assert_eq!(out.matches("learned after").count(), 2, "{scenario}: {out}");
            assert_eq!(err.matches(words).count(), 1, "{scenario}: {err}");
            assert_eq!(err.matches("the job goes on").count(), 1, "{scenario}: {err}");
        }
    }
}

/// A thread that shares the process's table of descriptors makes each system call of the program slower.
#[test]
fn the_programs_descriptors_are_its_own() {
    let (out, err) = succeed(3, "descriptors");
    assert_eq!(out.matches("as before").count(), 2, "{out}\n{err}");
}

#[test]
fn leaving_one_after_the_other_is_no_failure() {
    let (_, err) = succeed(5, "bystander");
    assert_eq!(err, "");
}

/// Ranks under a process manager that knows keys and a barrier, and never tells of a death.
struct Mute {
    children: Vec<Child>,
    lines: Receiver<(u32, String)>,
    seen: Vec<(u32, String)>,
    ends: Vec<Option<(OwnedFd, Server)>>,
    keys: HashMap<String, String>,
    in_barrier: Vec<bool>,
}

impl Mute {
    fn start(ranks: u32, scenario: &str) -> Mute {
        Mute::start_with(ranks, scenario, &QUICK)
    }

    fn start_with(ranks: u32, scenario: &str, settings: &[(&str, &str)]) -> Mute {
        let (sender, lines) = channel();
        let (mut children, mut ends) = (Vec::new(), Vec::new());
        for rank in 0..ranks {
            let (ours, theirs) =
                socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None)
                    .expect("a socket pair");
            rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC).expect("a flag");
            rustix::io::ioctl_fionbio(&ours, true).expect("a flag");
            let mut command = Command::new(programs().join("examples/heartbeat"));
            command.arg(scenario);
            command.env("PMI_FD", theirs.as_raw_fd().to_string());
            command.env("PMI_RANK", rank.to_string()).env("PMI_SIZE", ranks.to_string());
            command.env("IRONWEAVE_WATCHDOG", "30");
            for (name, value) in settings {
                command.env(name, value);
            }
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().expect("a rank starts");
            drop(theirs);
            let sender = sender.clone();
            let out = child.stdout.take().expect("piped");
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    let _ = sender.send((rank, line));
                }
            });
            children.push(child);
            let mut server = Server::new(rank, ranks, 0, "mute");
            server.output().clear();
            ends.push(Some((ours, server)));
        }
        let keys = [("PMI_process_mapping".to_owned(), format!("(vector,(0,1,{ranks}))"))];
        let in_barrier = vec![false; ranks as usize];
        Mute { children, lines, seen: Vec::new(), ends, keys: keys.into(), in_barrier }
    }

    /// Serves until `done`, which is asked after every turn.
    fn serve(&mut self, what: &str, mut done: impl FnMut(&mut Mute) -> bool) {
        let since = Instant::now();
        while !done(self) {
            self.seen.extend(self.lines.try_iter());
            if since.elapsed() > PATIENCE {
                let errors = self.errors();
                panic!("{what}: hung after {:?}\n{errors}", self.seen);
            }
            let short = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
            let open = self.ends.iter().flatten();
            let mut fds: Vec<_> = open.map(|(fd, _)| PollFd::new(fd, PollFlags::IN)).collect();
            let _ = poll(&mut fds, Some(&short));
            (0..self.ends.len()).for_each(|rank| self.serve_rank(rank));
            if self.in_barrier.iter().all(|inside| *inside) {
                self.in_barrier.fill(false);
                self.ends.iter_mut().flatten().for_each(|(_, server)| server.release());
            }
            for (fd, server) in self.ends.iter_mut().flatten() {
                let out = std::mem::take(server.output());
                assert_eq!(rustix::io::write(&*fd, &out).unwrap_or(out.len()), out.len());
            }
        }
        self.seen.extend(self.lines.try_iter());
    }

    fn serve_rank(&mut self, rank: usize) {
        let Some((fd, server)) = &mut self.ends[rank] else { return };
        let (mut buffer, mut requests) = ([0; 4096], Vec::new());
        match rustix::io::read(&*fd, &mut buffer) {
            Ok(0) => self.ends[rank] = None,
            Ok(length) => server.feed(&buffer[..length], &mut requests),
            Err(_) => {}
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
                _ => {}
            }
        }
    }

    /// Serves until all of `ranks` have ended; how they did.
    fn ends_of(&mut self, ranks: &[usize]) -> Vec<ExitStatus> {
        let mut ended = vec![None; self.children.len()];
        self.serve("ranks do not end", |mute| {
            for &rank in ranks {
                ended[rank] = mute.children[rank].try_wait().expect("this process's child");
            }
            ranks.iter().all(|rank| ended[*rank].is_some())
        });
        ranks.iter().filter_map(|rank| ended[*rank]).collect()
    }

    fn said(&self, rank: u32, prefix: &str) -> bool {
        self.seen.iter().any(|(who, line)| *who == rank && line.starts_with(prefix))
    }

    fn errors(&mut self) -> String {
        let mut text = String::new();
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
            if let Some(err) = &mut child.stderr {
                let _ = err.read_to_string(&mut text);
            }
        }
        text
    }
}

impl Drop for Mute {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[track_caller]
fn assert_success(mute: &mut Mute, ended: &[ExitStatus]) {
    if !ended.iter().all(ExitStatus::success) {
        let errors = mute.errors();
        panic!("{ended:?}\n{:?}\n{errors}", mute.seen);
    }
}

#[test]
fn without_a_launcher_that_tells_a_woken_process_is_fenced() {
    let mut mute = Mute::start(4, "woken");
    mute.serve("nobody learns", |mute| [0, 2, 3].iter().all(|rank| mute.said(*rank, "rank")));
    assert!(mute.said(1, "stopping"));
    let pid = Pid::from_raw(mute.children[1].id() as i32).expect("a process number");
    kill_process(pid, Signal::CONT).expect("it is there, stopped");
    let ended = mute.ends_of(&[0, 1, 2, 3]);
    assert_success(&mut mute, &ended);
    assert!(mute.said(1, "fenced"), "{:?}", mute.seen);
}

#[test]
fn without_a_launcher_that_tells_deaths_are_found() {
    let ends = ENDS.into_iter().map(|(scenario, _)| scenario);
    for scenario in ["killed", "stopped"].into_iter().chain(ends) {
        let mut mute = Mute::start(4, scenario);
        let ended = mute.ends_of(&[0, 2, 3]);
        assert_success(&mut mute, &ended);
    }
}

/// Nobody tells who has left, and detectors that waited to find out would wait for longer than this test does.
#[test]
fn without_a_launcher_that_tells_survivors_leave_at_once() {
    let settings = [("ft_detector_timeout", "80s"), ("ft_probe_timeout", "80s")]
        .map(|(name, value)| (format!("IRONWEAVE_{name}"), value));
    let settings = settings.each_ref().map(|(name, value)| (name.as_str(), *value));
    for ranks in [3, 4, 5] {
        let mut mute = Mute::start_with(ranks, "killed_in_touch", &settings);
        let survivors: Vec<usize> = (0..ranks as usize).filter(|rank| *rank != 1).collect();
        let ended = mute.ends_of(&survivors);
        assert_success(&mut mute, &ended);
    }
}

#[test]
fn without_a_launcher_that_tells_leaving_is_no_failure() {
    let mut mute = Mute::start(5, "bystander");
    let ended = mute.ends_of(&[0, 1, 2, 3, 4]);
    assert_success(&mut mute, &ended);
}

/// Hydra signals the survivors and lists the dead; the detector, which would find out by itself in a minute, is told, or off.
#[test]
fn what_hydra_tells_is_believed_at_once() {
    for detector in ["on", "off"] {
        let settings = [
            ("HYDI_CONTROL_FD", "0"),
            ("IRONWEAVE_ft_detector", detector),
            ("IRONWEAVE_ft_detector_timeout", "80s"),
            ("IRONWEAVE_ft_probe_timeout", "80s"),
        ];
        let mut hydra = Mute::start_with(3, "stopped", &settings);
        hydra.serve("it does not stop", |mute| mute.said(1, "stopping"));
        // A stopped process shows no other source of news: no connection breaks.
        hydra.keys.insert("PMI_dead_processes".into(), "1".into());
        for rank in [0, 2] {
            let pid = Pid::from_raw(hydra.children[rank].id() as i32).expect("a process number");
            kill_process(pid, Signal::USR1).expect("it is there");
        }
        let ended = hydra.ends_of(&[0, 2]);
        assert_success(&mut hydra, &ended);
    }
}

/// Two hosts as network namespaces on a bridge; gone when dropped.
struct Hosts {
    tag: String,
}

fn ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip").args(words.split(' ')).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    let error = || format!("ip {words}: {}", String::from_utf8_lossy(&output.stderr).trim());
    output.status.success().then_some(()).ok_or_else(error)
}

/// Waits until `ip SHOW` calls the interface up: its carrier is told of some time after the command that raised it, and
/// until then nobody uses its addresses.
fn wait_up(show: &str) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let output = Command::new("ip").args(show.split(' ')).output();
        let text = output.map_err(|error| format!("ip: {error}"))?.stdout;
        let text = String::from_utf8_lossy(&text).into_owned();
        if text.contains("state UP") {
            return Ok(());
        }
        assert!(Instant::now() < deadline, "ip {show}: no carrier: {text}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl Hosts {
    fn make() -> Result<Hosts, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        // Two tests at most have hosts; `cargo test` runs both in one process.
        let (id, made) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let hosts = Hosts { tag: format!("{:x}{made}", id % 0xff_ffff) };
        let (tag, net) =
            (&hosts.tag, format!("10.{}.{}", 30 + 90 * made + id / 256 % 90, id % 256));
        ip(&format!("link add iwd{tag} type bridge"))?;
        ip(&format!("addr add {net}.254/24 dev iwd{tag}"))?;
        ip(&format!("link set iwd{tag} up"))?;
        for host in 0..2 {
            ip(&format!("netns add iwd{tag}-{host}"))?;
            ip(&format!("link add iwe{tag}{host} type veth peer name eth0 netns iwd{tag}-{host}"))?;
            ip(&format!("link set iwe{tag}{host} master iwd{tag} up"))?;
            ip(&format!("-n iwd{tag}-{host} addr add {net}.{}/24 dev eth0", host + 1))?;
            ip(&format!("-n iwd{tag}-{host} link set eth0 up"))?;
            ip(&format!("-n iwd{tag}-{host} link set lo up"))?;
        }
        for host in 0..2 {
            wait_up(&format!("-n iwd{tag}-{host} link show dev eth0"))?;
        }
        wait_up(&format!("link show dev iwd{tag}"))?;
        Ok(hosts)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let tag = &self.tag;
        for host in 0..2 {
            let _ = ip(&format!("link del iwe{tag}{host}"));
            let _ = ip(&format!("netns del iwd{tag}-{host}"));
        }
        let _ = ip(&format!("link del iwd{tag}"));
    }
}

#[test]
fn a_host_that_is_cut_off_is_found_long_before_its_connections_are() {
    let hosts = match Hosts::make() {
        Ok(hosts) => hosts,
        Err(reason) => {
            println!(
                "SKIP a_host_that_is_cut_off_is_found_long_before_its_connections_are: {reason}"
            );
            return;
        }
    };
    let tag = &hosts.tag;
    let list = format!("iwd{tag}-0:2,iwd{tag}-1:2");
    let more = ["--hosts", &list, "--launch-agent", "ip netns exec {host}"];
    // The launcher itself takes much longer to give the host up, also by default.
    let mut command = by_default(job(4, &more, "cut_off"));
    let mut child = command.spawn().expect("the launcher starts");
    let out = child.stdout.take().expect("piped");
    let cut = format!("-n iwd{tag}-1 link set eth0 down");
    let reader = std::thread::spawn(move || {
        let mut lines = Vec::new();
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            lines.push(line);
            if lines.iter().filter(|line| *line == "ready").count() == 4
                && lines.last().is_some_and(|line| line == "ready")
            {
                ip(&cut).expect("the link goes down");
            }
        }
        lines
    });
    let output = end_of(child, "cut_off");
    let lines = reader.join().expect("the reader returns");
    let (_, err) = texts(&output);
    assert_eq!(lines.iter().filter(|line| *line == "survived").count(), 2, "{lines:?}\n{err}");
    assert!(err.contains("no sign of life; it is being ended"), "{err}");
}
