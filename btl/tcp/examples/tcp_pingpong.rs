//! Latency, bandwidth and message rate of one raw TCP rail between two processes on this machine, without a
//! protocol above it: what the layers above can hope for.
//!
//! `cargo run --release -p ironweave-btl-tcp --example tcp_pingpong -- [include] [sndbuf] [rcvbuf]`
//! starts the other process itself. `include` is an interface or network, the buffers are bytes, 0 for the kernel's own.
#![allow(unsafe_code)] // regions of buffers that live to the end of the process

use ironweave_btl::memory::{OwnedBuffer, RecvRegion};
use ironweave_btl::{
    Address, Btl, Descriptor, EndpointState, Fault, Header, Landing, Peer, Refused, RmaDescriptor,
    Sink, Token,
};
use ironweave_btl_tcp::{Tcp, TcpConfig};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

const LONGEST: usize = 4 << 20;

/// Counts; long payloads land in one buffer over and over.
struct Meter {
    target: OwnedBuffer,
    received: usize,
    completed: usize,
}

impl Sink for Meter {
    fn frame(&mut self, _: Peer, _: &[u8], payload: &[u8]) {
        // SAFETY: the buffer lives as long as `self`; no other region of it is in use now.
        unsafe { self.target.recv_region() }.write(0, payload);
        self.received += 1;
    }

    fn landing(&mut self, _: Peer, _: &[u8], _: usize) -> Landing {
        // SAFETY: as above.
        Landing::Direct { region: unsafe { self.target.recv_region() }, token: Token(0) }
    }

    fn landed(&mut self, _: Peer, _: RecvRegion, _: Token, outcome: Result<(), Fault>) {
        outcome.expect("landed");
        self.received += 1;
    }

    fn completed(&mut self, _: Descriptor, outcome: Result<(), Fault>) {
        outcome.expect("completed");
        self.completed += 1;
    }

    fn rma_completed(&mut self, _: RmaDescriptor, _: Result<(), Fault>) {}

    fn up(&mut self, _: Peer) {}

    fn fault(&mut self, fault: Fault) {
        panic!("{fault}");
    }

    fn closed(&mut self, _: Peer) {}
}

struct Bench {
    tcp: Tcp,
    meter: Meter,
    source: OwnedBuffer,
    peer: Peer,
}

impl Bench {
    fn progress(&mut self) {
        self.tcp.progress(&mut self.meter);
    }

    /// As a protocol would: small ones copied, large ones borrowed.
    fn send(&mut self, len: usize) {
        loop {
            let header = [7; 32];
            let sent = if len + header.len() <= self.tcp.caps().max_short {
                self.tcp.send_short(self.peer, &header, &self.source.as_slice()[..len])
            } else {
                let (source, caps) = (&self.source, self.tcp.caps());
                if len <= caps.max_bcopy && std::env::var_os("BCOPY").is_some() {
                    self.tcp.send_bcopy(self.peer, &header, len, |offset, piece| {
                        piece.copy_from_slice(&source.as_slice()[offset..offset + piece.len()]);
                    })
                } else {
                    // SAFETY: `source` lives to the end of the process and is not written.
                    let region = unsafe { source.send_region() }.part(0..len);
                    let descriptor = Descriptor {
                        peer: self.peer,
                        header: Header::new(&header),
                        payload: [region].into_iter().collect(),
                        token: Token(0),
                    };
                    self.tcp.send_zcopy(descriptor).map_err(|(refused, _)| refused)
                }
            };
            match sent {
                Ok(()) => return,
                Err(Refused::NoRoom) => self.progress(),
                Err(other) => panic!("{other}"),
            }
        }
    }

    fn receive(&mut self, count: usize) {
        while self.meter.received < count {
            self.progress();
        }
        self.meter.received -= count;
    }

    /// One-way time of `len` bytes, in nanoseconds.
    fn latency(&mut self, len: usize, rounds: usize, first: bool) -> f64 {
        let mut start = Instant::now();
        for round in 0..rounds + rounds / 10 {
            if round == rounds / 10 {
                start = Instant::now();
            }
            if first {
                self.send(len);
                self.receive(1);
            } else {
                self.receive(1);
                self.send(len);
            }
        }
        start.elapsed().as_nanos() as f64 / rounds as f64 / 2.0
    }

    /// Time per message of windows of 64, in nanoseconds.
    fn window(&mut self, len: usize, rounds: usize, first: bool) -> f64 {
        let start = Instant::now();
        for _ in 0..rounds {
            if first {
                for _ in 0..64 {
                    self.send(len);
                }
                while self.tcp.unflushed() > 0 {
                    self.progress();
                }
                self.receive(1);
            } else {
                self.receive(64);
                self.send(0);
            }
        }
        start.elapsed().as_nanos() as f64 / rounds as f64 / 64.0
    }
}

fn open(me: u32, args: &[String]) -> Tcp {
    let bytes = |at: usize| args.get(at).and_then(|a| a.parse().ok()).filter(|&bytes| bytes != 0);
    let config = TcpConfig {
        me: Peer(me),
        secret: [1; 32],
        job: "pingpong".into(),
        include: args.first().map(|a| a.parse().expect("a selector")).into_iter().collect(),
        sndbuf: bytes(1),
        rcvbuf: bytes(2),
        ..TcpConfig::default()
    };
    Tcp::open_all(config).expect("tcp opens").remove(0)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.trim().as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).expect("hex"), 16);
    digits.map(|pair| byte(pair).expect("hex")).collect()
}

fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let child = args.first().is_some_and(|a| a == "--child");
    let peer = Peer(u32::from(!child));
    if child {
        args.remove(0);
        pin(1);
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).expect("the parent's address");
        let mut tcp = open(1, &args);
        let address = Address { component: "tcp".into(), rail: 0, bytes: unhex(&line) };
        tcp.connect(peer, &address).expect("reachable");
        measure(tcp, peer, false);
    } else {
        pin(0);
        let tcp = open(0, &args);
        let mut other = Command::new(std::env::current_exe().expect("this program"))
            .arg("--child")
            .args(&args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("another process");
        let mut stdin = other.stdin.take().expect("piped");
        writeln!(stdin, "{}", hex(&tcp.address().bytes)).expect("the child reads");
        measure(tcp, peer, true);
        let lines = BufReader::new(other.stdout.take().expect("piped")).lines().count();
        assert_eq!((lines, other.wait().expect("the child ends").success()), (0, true));
    }
}

/// `LATENCY=8,1024 WINDOW=` in the environment chooses other lengths than the usual ones.
fn sizes(variable: &str, usual: &[usize]) -> Vec<usize> {
    match std::env::var(variable) {
        Ok(list) => list.split_terminator(',').map(|len| len.parse().expect("a length")).collect(),
        Err(_) => usual.to_vec(),
    }
}

fn measure(tcp: Tcp, peer: Peer, first: bool) {
    let meter = Meter { target: OwnedBuffer::zeroed(LONGEST), received: 0, completed: 0 };
    let idle = |bench: &mut Bench| {
        let start = Instant::now();
        for _ in 0..5_000_000 {
            bench.progress();
        }
        start.elapsed().as_nanos() as f64 / 5e6
    };
    let mut bench = Bench { tcp, meter, source: OwnedBuffer::from(vec![3; LONGEST]), peer };
    let alone = idle(&mut bench);
    while bench.tcp.state(peer) != EndpointState::Up {
        bench.progress();
    }
    let print = |text: String| {
        if first {
            println!("{text}");
        }
    };
    print(format!(
        "progress of an idle rail: {alone:.2} ns without peers, {:.2} ns with one",
        idle(&mut bench)
    ));
    let usual = [8, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
    for len in sizes("LATENCY", &usual) {
        let rounds = (200_000_000 / (len + 10_000)).clamp(100, 20_000);
        let mut best: Vec<f64> = (0..5).map(|_| bench.latency(len, rounds / 5, first)).collect();
        best.sort_by(f64::total_cmp);
        print(format!(
            "latency {len:>8} B   median {:>10.2} us   least {:>10.2} us",
            best[2] / 1e3,
            best[0] / 1e3
        ));
    }
    for len in sizes("WINDOW", &[8, 4 << 10, 64 << 10, 1 << 20, 4 << 20]) {
        let rounds = (2_000_000_000 / (len + 10_000) / 64).clamp(4, 1000);
        let mut best: Vec<f64> = (0..3).map(|_| bench.window(len, rounds, first)).collect();
        best.sort_by(f64::total_cmp);
        let (time, rate) = (best[1], 1e3 / best[1]);
        print(format!("window  {len:>8} B   {:>8.3} GB/s   {rate:>8.3} M/s", len as f64 / time));
    }
    while bench.tcp.unflushed() > 0 {
        bench.progress();
    }
    bench.tcp.depart();
}
