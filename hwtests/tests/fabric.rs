//! The fabric itself: what a test of a transport relies on is there. Runs where devices are given
//! ([`ironweave_hwtests::fabric::HOSTS`]); tests that cut wires, in the virtual machine only.

use ironweave_hwtests::fabric::{Fabric, Wire};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Tests change the wires: one at a time, also when the harness runs them in threads.
static ALONE: Mutex<()> = Mutex::new(());

fn given(test: &str) -> Option<Fabric> {
    let fabric = Fabric::given();
    if fabric.is_none() {
        println!("SKIP hwtests/{test}: no devices are given (IRONWEAVE_VERBS_HOSTS)");
    }
    fabric
}

fn wire(test: &str, host: usize, rail: usize) -> Option<Wire> {
    let wire = Wire::of(host, rail);
    if wire.is_none() {
        println!("SKIP hwtests/{test}: there are no wires to cut outside of the virtual machine");
    }
    wire
}

/// `ibv_rc_pingpong` of the distribution, from host 0 to host 1 over `rail`: client and server, begun.
fn begin_pingpong(fabric: &Fabric, rail: usize, port: u16, rounds: u32) -> [Child; 2] {
    let start = |host: usize, server: Option<&str>| -> Child {
        let mut command = Command::new("ibv_rc_pingpong");
        command.args(["-d", fabric.device(host, rail), "-g", "1", "-s", "1024"]);
        command.args(["-n", &rounds.to_string(), "-p", &port.to_string()]);
        command.args(server).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("ibv_rc_pingpong is there")
    };
    let server = start(1, None);
    // It listens as soon as it has made its queue pair; the client tries once.
    let listening = format!(":{port:04X} ");
    until("ibv_rc_pingpong to listen", || {
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
        tables.iter().flatten().any(|table| table.contains(&listening))
    });
    [start(0, Some("127.0.0.1")), server]
}

/// How both ends of it end.
fn pingpong(fabric: &Fabric, rail: usize, port: u16, rounds: u32) -> [Output; 2] {
    let ends = begin_pingpong(fabric, rail, port, rounds);
    ends.map(|end| end_of(end, Instant::now() + Duration::from_secs(60)))
}

fn until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < deadline, "waited for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How a program ends; killed when it has not by then, for `ibv_rc_pingpong` polls for ever.
fn end_of(mut program: Child, deadline: Instant) -> Output {
    while program.try_wait().expect("it is this process's child").is_none() {
        if Instant::now() > deadline {
            program.kill().expect("it is this process's child");
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    program.wait_with_output().expect("it has ended")
}

/// Every device that was given has an active port.
#[test]
fn devices_are_active() {
    let Some(fabric) = given("devices_are_active") else { return };
    let _alone = ALONE.lock();
    for device in fabric.hosts.iter().flatten() {
        let state = format!("/sys/class/infiniband/{device}/ports/1/state");
        let state =
            std::fs::read_to_string(&state).unwrap_or_else(|error| panic!("{state}: {error}"));
        assert!(state.contains("ACTIVE"), "{device}: {state}");
    }
}

/// Reliable messages cross each rail, and its wire: also when the wire loses and reorders some.
#[test]
fn messages_cross_the_wire() {
    let Some(fabric) = given("messages_cross_the_wire") else { return };
    let _alone = ALONE.lock();
    for rail in 0..2 {
        let Some(mut wire) = wire("messages_cross_the_wire", 0, rail) else { return };
        if rail == 1 {
            wire.netem("delay 100us reorder 10% loss 2%");
        }
        let before = wire.sent();
        // Soft-RoCE itself stalled once on the wire that loses: both ends polled for eight minutes. What is tested is the wire.
        let tries = if rail == 1 { 3 } else { 1 };
        let mut ends = (1..=tries).map(|attempt| {
            let port = 18515 + 10 * attempt + rail as u16;
            let [client, server] = pingpong(&fabric, rail, port, 100);
            let well = client.status.success() && server.status.success();
            println!("rail {rail}, attempt {attempt}: {client:?} {server:?}");
            well
        });
        assert!(ends.any(|well| well), "rail {rail} carries no messages");
        assert!(wire.sent() >= before + 100, "the messages did not take the wire");
    }
}

/// A wire that is cut in the middle of a connection carries nothing more: that ends with an error or, as Soft-RoCE's other
/// end was seen to, not at all, never well; the port says so. Mended, it carries a new one.
#[test]
fn a_wire_is_cut_and_mended() {
    let Some(fabric) = given("a_wire_is_cut_and_mended") else { return };
    let Some(mut wire) = wire("a_wire_is_cut_and_mended", 0, 0) else { return };
    let _alone = ALONE.lock();
    const ROUNDS: u32 = 5000;
    let before = wire.sent();
    let ends = begin_pingpong(&fabric, 0, 18519, ROUNDS);
    until("messages", || wire.sent() > before + 50);
    wire.down();
    let sent = wire.sent();
    assert!(sent < before + u64::from(ROUNDS), "it was over before the wire was cut");
    let state = format!("/sys/class/infiniband/{}/ports/1/state", fabric.device(0, 0));
    let state = std::fs::read_to_string(state).expect("the port's state");
    assert!(!state.contains("ACTIVE"), "the port of a cut wire is {state}");
    // Its retries are over after less than a second.
    let ends = ends.map(|end| end_of(end, Instant::now() + Duration::from_secs(3)));
    println!("cut: {ends:?}");
    assert!(ends.iter().all(|end| !end.status.success()), "{ends:?}");
    assert_eq!(wire.sent(), sent, "a cut wire carries something");
    wire.up();
    let [client, server] = pingpong(&fabric, 0, 18520, 20);
    assert!(client.status.success() && server.status.success(), "{client:?} {server:?}");
}
