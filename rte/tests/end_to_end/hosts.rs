//! Jobs over several hosts: network namespaces joined to a bridge, made and removed by the test.

use crate::support::{Job, Outcome, probe, send, wait_gone};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The kernel's worker that tells of carriers may run late; after this something else is wrong.
const CARRIER: Duration = Duration::from_secs(60);

/// Two hosts and the network between them and us; gone when dropped.
struct Hosts {
    names: Vec<String>,
    links: Vec<String>,
    bridge: String,
}

fn ip(args: &str) -> Result<(), String> {
    let output = Command::new("ip").args(args.split_whitespace()).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {args}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Waits until `ip SHOW` calls the interface up. Its carrier is told of some time after the command that raised it returned,
/// and until then neither the launcher nor a rank uses its addresses.
fn wait_up(show: &str) -> Result<(), String> {
    let deadline = Instant::now() + CARRIER;
    loop {
        let output = Command::new("ip").args(show.split_whitespace()).output();
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
    /// Makes `count` hosts, or says why this machine does not let us.
    fn make(count: u32) -> Result<Hosts, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Interface names have 15 bytes. A network of its own for each process and test: one of the 2^20 of six addresses in
        // 10.128.0.0/9, so that tests that run at the same time do not share one, whatever processes were begun between them.
        let unique = std::process::id() * 8 + NEXT.fetch_add(1, Ordering::Relaxed) % 8;
        let tag = format!("{:x}", unique % 0xff_ffff);
        let network = 0x0a80_0000 + unique % (1 << 20) * 8;
        let address = |host: u32| format!("{}/29", Ipv4Addr::from_bits(network + host));
        assert!(count < 6, "the network has six addresses");
        let mut hosts = Hosts { names: Vec::new(), links: Vec::new(), bridge: format!("iwb{tag}") };
        ip(&format!("link add {} type bridge", hosts.bridge))?;
        ip(&format!("addr add {} dev {}", address(6), hosts.bridge))?;
        ip(&format!("link set {} up", hosts.bridge))?;
        for index in 0..count {
            let (name, link) = (format!("iwn{tag}-{index}"), format!("iwv{tag}{index}"));
            ip(&format!("netns add {name}"))?;
            hosts.names.push(name.clone());
            ip(&format!("link add {link} type veth peer name eth0 netns {name}"))?;
            hosts.links.push(link.clone());
            ip(&format!("link set {link} master {} up", hosts.bridge))?;
            ip(&format!("-n {name} addr add {} dev eth0", address(index + 1)))?;
            ip(&format!("-n {name} link set eth0 up"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        for name in &hosts.names {
            wait_up(&format!("-n {name} link show dev eth0"))?;
        }
        wait_up(&format!("link show dev {}", hosts.bridge))?;
        Ok(hosts)
    }

    fn run(&self, slots: u32, args: &str, steps: &str) -> Job {
        let list: Vec<_> = self.names.iter().map(|name| format!("{name}:{slots}")).collect();
        Hosts::run_on(&list.join(","), args, steps, Stdio::null())
    }

    fn run_on(list: &str, args: &str, steps: &str, input: Stdio) -> Job {
        let probe = probe();
        let fixed = ["--hosts", list, "--launch-agent", "ip netns exec {host}"].map(OsStr::new);
        let words = args.split_whitespace().map(OsStr::new);
        let steps = steps.split_whitespace().map(OsStr::new);
        let all = fixed.into_iter().chain(words).chain([probe.as_os_str()]).chain(steps);
        Job::start(all, input)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // The links first: a namespace goes, with its end of a link, only some time after its name.
        for link in &self.links {
            let _ = ip(&format!("link del {link}"));
        }
        for name in &self.names {
            let _ = ip(&format!("netns del {name}"));
        }
        let _ = ip(&format!("link del {}", self.bridge));
    }
}

/// Hosts, or a SKIP line.
fn hosts(test: &str, count: u32) -> Option<Hosts> {
    match Hosts::make(count) {
        Ok(hosts) => Some(hosts),
        Err(reason) => {
            println!("SKIP {test}: {reason}");
            None
        }
    }
}

#[track_caller]
fn assert_code(outcome: &Outcome, code: i32) {
    assert_eq!(outcome.code(), Some(code), "{outcome:?}");
}

#[test]
fn ranks_on_two_hosts_find_each_other() {
    let Some(hosts) = hosts("ranks_on_two_hosts_find_each_other", 2) else { return };
    let steps = "join whoami publish fence lookup finalize 0/exit:9";
    let outcome = hosts.run(2, "-n 4", steps).outcome();
    assert_code(&outcome, 9);
    for rank in 0..4 {
        assert_eq!(outcome.count(&format!("blob {rank} whole")), 4, "{outcome:?}");
        let local = if rank < 2 { "[0, 1]" } else { "[2, 3]" };
        let own = format!("rank {rank} of 4 local {local}");
        assert!(outcome.out.iter().any(|line| line.starts_with(&own)), "{outcome:?}");
    }
    assert_eq!(outcome.err, "");
}

#[test]
fn output_and_signals_cross_hosts() {
    let Some(hosts) = hosts("output_and_signals_cross_hosts", 2) else { return };
    let outcome = hosts.run(1, "-n 2", "lines:30000").outcome();
    assert_code(&outcome, 0);
    assert_eq!(outcome.out.len(), 60_000);
    let mut job = hosts.run(1, "-n 2", "join catch:10 finalize");
    job.expect("ready 0");
    job.expect("ready 1");
    job.signal(Signal::USR1);
    let outcome = job.outcome();
    assert_code(&outcome, 0);
    assert_eq!(outcome.count("caught 1 10"), 1, "{outcome:?}");
}

#[test]
fn a_rank_killed_on_one_host_is_on_the_page_of_the_other() {
    let name = "a_rank_killed_on_one_host_is_on_the_page_of_the_other";
    let Some(hosts) = hosts(name, 2) else { return };
    let outcome = hosts.run(2, "-n 4", "join fence 3/kill:9 failures:1 finalize").outcome();
    assert_code(&outcome, 0);
    for rank in 0..3 {
        let line = format!("{rank} sees rank 3: killed by signal 9");
        assert_eq!(outcome.count(&line), 1, "{outcome:?}");
    }
}

#[test]
fn a_killed_daemon_is_a_lost_host_to_the_others() {
    let Some(hosts) = hosts("a_killed_daemon_is_a_lost_host_to_the_others", 2) else { return };
    let mut job = hosts.run(2, "-n 4", "join fence child pid failures:2 finalize 0/exit:4");
    let ranks: Vec<u32> =
        (0..4).map(|rank| job.expect(&format!("pid {rank}")).parse().expect("pid")).collect();
    let children: Vec<u32> =
        (2..4).map(|rank| job.expect(&format!("child {rank}")).parse().expect("pid")).collect();
    let daemons = job.children_named("daemon");
    assert_eq!(daemons.len(), 2);
    send(daemons[1], Signal::KILL);
    let outcome = job.outcome();
    assert_code(&outcome, 4);
    for rank in 0..2 {
        for lost in 2..4 {
            let line = format!("{rank} sees rank {lost}: its host is lost");
            assert_eq!(outcome.count(&line), 1, "{outcome:?}");
        }
    }
    assert!(outcome.err.contains("daemon's connection is lost"), "{outcome:?}");
    ranks.into_iter().chain(children).for_each(wait_gone);
}

#[test]
fn an_unreachable_host_is_lost_to_both_sides() {
    let Some(hosts) = hosts("an_unreachable_host_is_lost_to_both_sides", 2) else { return };
    let args = "-n 2 --mca rte_host_timeout 3s";
    let mut job = hosts.run(1, args, "join fence pid failures:1 finalize 0/exit:5");
    let cut_off: u32 = job.expect("pid 1").parse().expect("a number");
    job.expect("pid 0");
    ip(&format!("-n {} link set eth0 down", hosts.names[1])).expect("link down");
    let outcome = job.outcome();
    assert_code(&outcome, 5);
    assert_eq!(outcome.count("0 sees rank 1: its host is lost"), 1, "{outcome:?}");
    // Fail-stop: the other side of the cut ends its ranks as well.
    wait_gone(cut_off);
}

#[test]
fn a_stopped_daemon_is_a_lost_host_though_its_system_answers() {
    let name = "a_stopped_daemon_is_a_lost_host_though_its_system_answers";
    let Some(hosts) = hosts(name, 2) else { return };
    let args = "-n 2 --mca rte_host_timeout 3s";
    let mut job = hosts.run(1, args, "join fence pid failures:1 finalize 0/exit:5");
    let cut_off: u32 = job.expect("pid 1").parse().expect("a number");
    job.expect("pid 0");
    let daemons = job.children_named("daemon");
    send(daemons[1], Signal::STOP);
    let outcome = job.outcome();
    assert_code(&outcome, 5);
    assert_eq!(outcome.count("0 sees rank 1: its host is lost"), 1, "{outcome:?}");
    assert!(outcome.err.contains("connection is lost (no sign of life)"), "{outcome:?}");
    wait_gone(daemons[1]);
    wait_gone(cut_off);
}

#[test]
fn a_job_that_was_stopped_and_continued_loses_no_host() {
    let Some(hosts) = hosts("a_job_that_was_stopped_and_continued_loses_no_host", 2) else {
        return;
    };
    let args = "-n 2 --mca rte_host_timeout 3s";
    let mut job = hosts.run(1, args, "join fence pid sleep:4000 finalize");
    job.expect("pid 0");
    job.expect("pid 1");
    // The launcher alone, for longer than it waits for a host.
    job.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(3_500));
    job.signal(Signal::CONT);
    let outcome = job.outcome();
    assert_code(&outcome, 0);
    assert_eq!(outcome.err, "");
}

#[test]
fn a_killed_launcher_takes_every_host_with_it() {
    let Some(hosts) = hosts("a_killed_launcher_takes_every_host_with_it", 2) else { return };
    let mut job = hosts.run(1, "-n 2", "join fence child pid sleep:60000");
    let prefixes = ["pid 0", "pid 1", "child 0", "child 1"];
    let pids = prefixes.map(|prefix| job.expect(prefix).parse::<u32>().expect("a number"));
    let daemons = job.children_named("daemon");
    job.signal(Signal::KILL);
    pids.into_iter().chain(daemons).for_each(wait_gone);
    job.outcome();
}

#[test]
fn a_missing_program_on_a_host_is_told_with_the_hosts_name() {
    let name = "a_missing_program_on_a_host_is_told_with_the_hosts_name";
    let Some(hosts) = hosts(name, 1) else { return };
    let agent = "ip netns exec {host}";
    let args = ["--hosts", &hosts.names[0], "--launch-agent", agent, "no-such-program"];
    let outcome = Job::start(args.map(OsStr::new), Stdio::null()).outcome();
    assert_code(&outcome, 127);
    let words = format!("host {}: no program no-such-program in PATH", hosts.names[0]);
    assert!(outcome.err.contains(&words), "{outcome:?}");
}

#[test]
fn this_host_and_others_make_one_job() {
    let Some(hosts) = hosts("this_host_and_others_make_one_job", 1) else { return };
    let list = format!("localhost:2,{}:2", hosts.names[0]);
    let steps = "join publish fence 0/kill:9 failures:1 lookup finalize 1/exit:8";
    let outcome = Hosts::run_on(&list, "-n 4", steps, Stdio::null()).outcome();
    assert_code(&outcome, 8);
    for rank in 0..4 {
        assert_eq!(outcome.count(&format!("blob {rank} whole")), 3, "{outcome:?}");
    }
    let abort = "join fence 3/abort:21 sleep:60000";
    assert_code(&Hosts::run_on(&list, "-n 4", abort, Stdio::null()).outcome(), 21);
    let kill = "join fence 3/kill:9 sleep:60000";
    let outcome = Hosts::run_on(&list, "-n 4 --kill-on-failure", kill, Stdio::null()).outcome();
    assert_code(&outcome, 128 + 15);
}

#[test]
fn input_crosses_to_rank_0_on_another_host() {
    let Some(hosts) = hosts("input_crosses_to_rank_0_on_another_host", 1) else { return };
    let data: Vec<u8> = (0..2_000_000u32).map(|index| (index % 253) as u8).collect();
    let whole = format!("stdin {} bytes {}", data.len(), &blake3::hash(&data).to_hex()[..16]);
    let mut job = Hosts::run_on(&hosts.names[0], "-n 1", "stdin", Stdio::piped());
    job.feed(data);
    let outcome = job.outcome();
    assert_eq!(outcome.count(&whole), 1, "{outcome:?}");
}

#[test]
fn one_host_that_cannot_be_reached_ends_the_daemons_of_the_others() {
    let name = "one_host_that_cannot_be_reached_ends_the_daemons_of_the_others";
    let Some(hosts) = hosts(name, 1) else { return };
    let list = format!("{},iw-no-such-host", hosts.names[0]);
    let outcome = Hosts::run_on(&list, "-n 2", "print:ran", Stdio::null()).outcome();
    assert_code(&outcome, 1);
    assert!(outcome.err.contains("host iw-no-such-host"), "{outcome:?}");
    assert_eq!(outcome.count("ran"), 0);
    // Nothing of the job is left in the namespace.
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let pids =
            Command::new("ip").args(["netns", "pids", &hosts.names[0]]).output().expect("ip");
        if pids.stdout.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{pids:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
