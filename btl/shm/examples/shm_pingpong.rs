//! Latency, bandwidth and message rate of the bare transport between two processes: the tool it is tuned with.
//!
//! `shm_pingpong [key=value…]` with `ring=`, `bulk=` (bytes), `reps=`, `only=lat|bw|rate`,
//! `stores=cached|streaming|auto`, `offset=` (of user buffers in their page), `cores=0,1`. Starts
//! a second process of itself, pins both, prints medians. Prints the time of an 8-byte message before and
//! after as a hint of how near the two cores were.

use ironweave_btl::memory::{OwnedBuffer, RecvRegion};
use ironweave_btl::{
    Address, Btl, Descriptor, EndpointState, Fault, Landing, Peer, Refused, RmaDescriptor, Sink,
    Token,
};
use ironweave_btl_shm::{Shm, ShmConfig, Stores};
use std::io::{BufRead, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

const BUFFER: usize = 4 << 20;

/// Copies what arrives into one buffer, as a matched receive would.
struct Receiver {
    buffer: OwnedBuffer,
    region: RecvRegion,
    bytes: u64,
    frames: u64,
}

fn offset(header: &[u8]) -> usize {
    u64::from_le_bytes(*header.first_chunk().expect("a header of ours")) as usize
}

impl Sink for Receiver {
    #[inline]
    fn frame(&mut self, _: Peer, header: &[u8], payload: &[u8]) {
        self.region.write(offset(header), payload);
        self.bytes += payload.len() as u64;
        self.frames += 1;
    }

    fn landing(&mut self, _: Peer, header: &[u8], len: usize) -> Landing {
        let start = offset(header);
        Landing::Direct { region: self.region.part(start..start + len), token: Token(0) }
    }

    fn landed(&mut self, _: Peer, region: RecvRegion, _: Token, outcome: Result<(), Fault>) {
        outcome.expect("landed");
        self.bytes += region.len() as u64;
        self.frames += 1;
    }

    fn completed(&mut self, _: Descriptor, _: Result<(), Fault>) {}
    fn rma_completed(&mut self, _: RmaDescriptor, _: Result<(), Fault>) {}
    fn up(&mut self, _: Peer) {}
    fn fault(&mut self, fault: Fault) {
        eprintln!("{fault}");
        std::process::exit(1);
    }
    fn closed(&mut self, _: Peer) {}
}

struct Side {
    shm: Shm,
    sink: Receiver,
    other: Peer,
    source: Vec<u8>,
    source_skip: usize,
    fragment: usize,
}

impl Side {
    #[inline]
    fn send(&mut self, len: usize) {
        let mut header = [0; 16];
        if len <= self.shm.caps().max_short - 16 {
            while self
                .shm
                .send_short(self.other, &header, &self.source[self.source_skip..][..len])
                .is_err()
            {
                self.shm.progress(&mut self.sink);
            }
            return;
        }
        let mut sent = 0;
        while sent < len {
            let part = self.fragment.min(len - sent);
            header[..8].copy_from_slice(&(sent as u64).to_le_bytes());
            let bytes = &self.source[self.source_skip + sent..][..part];
            match self.shm.send_bcopy(self.other, &header, part, |at, piece| {
                piece.copy_from_slice(&bytes[at..at + piece.len()]);
            }) {
                Ok(()) => sent += part,
                Err(Refused::NoRoom) => {
                    self.shm.progress(&mut self.sink);
                }
                Err(refused) => panic!("{refused}"),
            }
        }
    }

    #[inline]
    fn receive(&mut self, bytes: u64) {
        while self.sink.bytes < bytes {
            self.shm.progress(&mut self.sink);
        }
        self.sink.bytes -= bytes;
    }

    /// Half a round trip in nanoseconds; the child echoes.
    fn latency(&mut self, len: usize, rounds: u32, first: bool) -> f64 {
        for _ in 0..rounds / 10 {
            self.round(len, first);
        }
        let start = Instant::now();
        for _ in 0..rounds {
            self.round(len, first);
        }
        start.elapsed().as_nanos() as f64 / f64::from(rounds) / 2.0
    }

    #[inline]
    fn round(&mut self, len: usize, first: bool) {
        if first {
            self.send(len);
            self.receive(len as u64);
        } else {
            self.receive(len as u64);
            self.send(len);
        }
    }

    /// Messages a second with `window` messages in flight.
    fn stream(&mut self, len: usize, window: u32, rounds: u32, first: bool) -> f64 {
        let start = Instant::now();
        for _ in 0..rounds {
            if first {
                for _ in 0..window {
                    self.send(len);
                }
                self.receive(4);
            } else {
                self.receive(len as u64 * u64::from(window));
                self.send(4);
            }
        }
        f64::from(rounds * window) / start.elapsed().as_secs_f64()
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let get = |key: &str| {
        args.iter().find_map(|arg| arg.strip_prefix(key)?.strip_prefix('=').map(str::to_owned))
    };
    let number =
        |key: &str, default: usize| get(key).map_or(default, |v| v.parse().expect("a number"));
    let parent = get("parent");
    let first = parent.is_none();
    let (me, other) = if first { (Peer(0), Peer(1)) } else { (Peer(1), Peer(0)) };
    let cores = get("cores").unwrap_or("0,1".into());
    let core = cores.split(',').nth(me.index()).expect("two cores").parse().expect("a core");
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).expect("pinning");

    let mut config = ShmConfig::new(me, "pingpong", [7; 32]);
    config.ring_bytes = number("ring", config.ring_bytes);
    config.bulk_bytes = number("bulk", config.bulk_bytes);
    config.stores = match get("stores").as_deref() {
        Some("cached") => Stores::Cached,
        Some("streaming") => Stores::Streaming,
        _ => Stores::Auto,
    };
    let mut shm = Shm::open(config).expect("open");
    let child = match &parent {
        None => {
            let hex: String = shm.address().bytes.iter().map(|b| format!("{b:02x}")).collect();
            let child = Command::new(std::env::current_exe().expect("own path"))
                .args(&args)
                .arg(format!("parent={hex}"))
                .stdin(Stdio::piped())
                .spawn();
            Some(child.expect("second process"))
        }
        Some(hex) => {
            let bytes = (0..hex.len() / 2)
                .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex"))
                .collect();
            shm.connect(other, &Address { component: "shm".into(), rail: 0, bytes })
                .expect("connect");
            None
        }
    };
    let fragment = number("fragment", shm.caps().fragment);
    // Where in a page the buffers of the user start; 16 is what `malloc` gives.
    let start = number("offset", 16);
    let skip = |start_of: *const u8| (start + 8192 - start_of as usize % 4096) % 4096;
    let buffer = OwnedBuffer::from(vec![1; BUFFER + 4096]);
    let source = vec![2; BUFFER + 4096];
    let source_skip = skip(source.as_ptr());
    #[allow(unsafe_code)]
    // SAFETY: the buffer lives beside its region and is not touched otherwise.
    let region = unsafe { buffer.recv_region() };
    let at = skip(region.as_mut_ptr());
    let region = region.part(at..at + BUFFER);
    let sink = Receiver { buffer, region, bytes: 0, frames: 0 };
    let mut side = Side { shm, sink, other, source, source_skip, fragment };
    while side.shm.state(other) != EndpointState::Up {
        side.shm.progress(&mut side.sink);
    }

    let reps = number("reps", 5);
    let only = get("only").unwrap_or_default();
    let row = |name: &str, unit: &str, values: Vec<f64>| {
        if first {
            let min = values.iter().copied().fold(f64::INFINITY, f64::min);
            let max = values.iter().copied().fold(0.0, f64::max);
            println!("{name:<16} {:>10.3} {unit} (min {min:.3}, max {max:.3})", median(values));
        }
    };
    row("probe 8 B", "µs", (0..3).map(|_| side.latency(8, 20_000, first) / 1e3).collect());
    if only.is_empty() || only == "lat" {
        for (len, rounds) in [
            (8, 20_000),
            (64, 20_000),
            (256, 10_000),
            (1 << 10, 10_000),
            (2 << 10, 10_000),
            (4 << 10, 10_000),
            (8 << 10, 5_000),
            (16 << 10, 5_000),
            (64 << 10, 2_000),
            (256 << 10, 500),
            (1 << 20, 100),
            (4 << 20, 20),
        ] {
            let values = (0..reps).map(|_| side.latency(len, rounds, first) / 1e3).collect();
            row(&format!("latency {len}"), "µs", values);
        }
    }
    if only.is_empty() || only == "bw" {
        for (len, rounds) in [(4 << 10, 100), (64 << 10, 20), (1 << 20, 4), (4 << 20, 1)] {
            let values =
                (0..reps).map(|_| side.stream(len, 64, rounds, first) * len as f64 / 1e9).collect();
            row(&format!("bandwidth {len}"), "GB/s", values);
        }
    }
    if only.is_empty() || only == "rate" {
        let values = (0..reps).map(|_| side.stream(8, 64, 5_000, first) / 1e6).collect();
        row("rate 8", "M/s", values);
    }
    row("probe 8 B", "µs", (0..3).map(|_| side.latency(8, 20_000, first) / 1e3).collect());
    if get("dump").is_some() && first {
        let mut dump = String::new();
        side.shm.dump(&mut dump).expect("strings take everything");
        println!("{dump}");
    }
    side.shm.depart();
    let _ = side.sink.buffer.len();
    if let Some(mut child) = child {
        assert!(child.wait().expect("second process").success());
    } else {
        let _ = std::io::stdout().flush();
        let _ = std::io::stdin().lock().lines().next();
    }
}
