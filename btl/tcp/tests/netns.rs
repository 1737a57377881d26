//! Two hosts, as network namespaces with a cable between them: a real subnet, and a cable that is pulled.
//!
//! The other host's process is this test program started again inside the namespace.

mod common;

use common::{Node, config, descriptor, pattern, until};
use ironweave_btl::memory::OwnedBuffer;
use ironweave_btl::{Address, Btl, Cause, EndpointState, Peer, Scope};
use ironweave_btl_tcp::TcpConfig;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Says to the program that it is the other host's process.
const ROLE: &str = "IRONWEAVE_TCP_TEST_OTHER_HOST";

/// A namespace and a pair of interfaces; gone when dropped.
struct Cable {
    namespace: String,
    near: String,
}

fn ip(args: &str) -> Result<(), String> {
    let output = Command::new("ip").args(args.split(' ')).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("ip {args}: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}

impl Cable {
    fn lay() -> Result<Cable, String> {
        let id = std::process::id() % 100_000;
        let cable = Cable { namespace: format!("iwtcp{id}"), near: format!("iwn{id}") };
        let Cable { namespace, near } = &cable;
        let far = format!("iwf{id}");
        ip(&format!("netns add {namespace}"))?;
        ip(&format!("link add {near} type veth peer name {far} netns {namespace}"))?;
        ip(&format!("addr add 10.213.77.1/24 dev {near}"))?;
        ip(&format!("link set {near} up"))?;
        ip(&format!("-n {namespace} addr add 10.213.77.2/24 dev {far}"))?;
        ip(&format!("-n {namespace} link set {far} name eth7"))?;
        ip(&format!("-n {namespace} link set eth7 up"))?;
        ip(&format!("-n {namespace} link set lo up"))?;
        // Until then the kernel does not call them running, and they are not used.
        cable.wait_for(&["link", "show", "dev", near]);
        cable.wait_for(&["-n", namespace, "link", "show", "dev", "eth7"]);
        Ok(cable)
    }

    /// Waits until `ip` shows that the interface has a carrier.
    fn wait_for(&self, show: &[&str]) {
        let start = Instant::now();
        loop {
            let output = Command::new("ip").args(show).output().expect("ip worked before");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            if text.contains("state UP") {
                return;
            }
            assert!(start.elapsed() < common::WATCHDOG, "no carrier: {text}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn pull(&self) {
        ip(&format!("-n {} link set eth7 down", self.namespace)).expect("it is ours");
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        let _ = ip(&format!("netns del {}", self.namespace)); // takes both ends along
        let _ = ip(&format!("link del {}", self.near));
    }
}

/// The process on the other host; killed when dropped.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn settings(me: u32, interface: &str) -> TcpConfig {
    TcpConfig {
        include: vec![interface.parse().expect("a name")],
        user_timeout: Duration::from_secs(1),
        keepalive_idle: Duration::from_secs(1),
        keepalive_count: 2,
        ..config(me)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    (0..text.trim().len()).step_by(2).map(digit).collect()
}

/// Connects to the address that comes on standard input, echoes frames, and says what it sees.
fn other_host() {
    let mut node = Node::with(settings(1, "eth7"));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("an address");
    let address = Address { component: "tcp".into(), rail: 0, bytes: unhex(line.trim()) };
    node.btl.connect(Peer(0), &address).expect("the same subnet");
    until("the end", &mut [&mut node], |nodes| {
        let node = &mut *nodes[0];
        for (from, header, payload) in std::mem::take(&mut node.seen.frames) {
            if node.btl.state(from) == EndpointState::Up && payload.len() < 4000 {
                node.btl.send_short(from, &header, &payload).expect("room");
            }
        }
        !node.seen.closed.is_empty()
    });
    println!("FAULT {:?}", node.seen.faults);
}

#[test]
fn a_pulled_cable_is_noticed_by_both_sides() {
    if std::env::var_os(ROLE).is_some() {
        return other_host();
    }
    let cable = match Cable::lay() {
        Ok(cable) => cable,
        Err(why) => {
            println!(
                "SKIP a_pulled_cable_is_noticed_by_both_sides: no network namespaces here ({why})"
            );
            return;
        }
    };
    let mut a = Node::with(settings(0, &cable.near));
    let program = std::env::current_exe().expect("this program");
    let mut other = Command::new("ip");
    other.args(["netns", "exec", &cable.namespace]).arg(program);
    other.args(["--exact", "a_pulled_cable_is_noticed_by_both_sides", "--nocapture"]);
    other.env(ROLE, "1").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut other = Other(other.spawn().expect("ip netns exec worked before"));
    let mut stdin = other.0.stdin.take().expect("piped");
    writeln!(stdin, "{}", hex(&a.btl.address().bytes)).expect("it reads");

    until("up", &mut [&mut a], |nodes| nodes[0].seen.up == [Peer(1)]);
    for number in 0..100_u8 {
        a.btl.send_short(Peer(1), &[number], &pattern(1, 2000)).expect("room");
    }
    until("echoes", &mut [&mut a], |nodes| nodes[0].seen.frames.len() == 100);

    // Something is under way when the cable goes.
    let source = OwnedBuffer::from(pattern(2, 16 << 20));
    for token in 0..40 {
        a.btl.send_zcopy(descriptor(Peer(1), b"", &source, token)).expect("room");
    }
    for _ in 0..50 {
        a.progress();
    }
    cable.pull();
    until("closed", &mut [&mut a], |nodes| nodes[0].seen.closed == [Peer(1)]);
    assert_eq!(a.seen.completed.len(), 40);
    match &a.seen.faults[..] {
        [fault] => {
            assert!(fault.scope >= Scope::Rail && !fault.is_proof(), "{fault}");
            assert!(
                [Cause::TimedOut, Cause::Unreachable, Cause::Disconnected].contains(&fault.cause),
                "{fault}"
            );
        }
        other => panic!("{other:?}"),
    }
    let out = BufReader::new(other.0.stdout.take().expect("piped"));
    let seen = out.lines().map_while(Result::ok).find(|line| line.contains("FAULT"));
    let seen = seen.expect("the other side ends too");
    assert!(seen.contains("TimedOut") || seen.contains("Unreachable"), "{seen}");
}
