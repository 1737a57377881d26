//! The verbs transport by itself, with the tests of perftest that it is measured beside: no MPI above it, as nothing is above theirs.
//!
//! Two processes, on two hosts or one, meet over TCP as perftest's do: `iw-verbs --device mlx5_0 latency 8` on the one, and the same with
//! the first one's address and port on the other, which prints the figure. `latency`: frames with a header of sixteen bytes, to and fro, each
//! sent when the other has come; µs one way, as of `ib_send_lat`. `bandwidth`: puts into memory that is registered once, so many of them under way; MB/s
//! (millions of bytes), as of `ib_write_bw`, whose other side has nothing to do, either. What arrives is looked at: a figure of bytes that did not is none.

#![allow(unsafe_code)] // regions of user memory

use clap::{Parser, ValueEnum};
use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_btl::{
    Address, Btl, Descriptor, Fault, Peer, Refused, RemoteKey, RmaDescriptor, RmaKind, Sink, Token,
    decode_addresses, encode_addresses, lasting,
};
use ironweave_btl_verbs::{Verbs, VerbsConfig};
use std::alloc::Layout;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What perftest measures with verbs, measured with the verbs transport.
#[derive(Parser, Debug)]
#[command(name = "iw-verbs")]
struct Options {
    /// The device, or device:port.
    #[arg(long, short)]
    device: String,
    /// Where the first process listens.
    #[arg(long, short, default_value_t = 18515)]
    port: u16,
    /// Messages: round trips, or puts.
    #[arg(long, short = 'n', default_value_t = 1000)]
    count: usize,
    /// Puts under way at once.
    #[arg(long, default_value_t = 128)]
    window: usize,
    /// What to measure.
    test: Test,
    /// Bytes of a message.
    size: usize,
    /// The first process's host; without it this is the first.
    host: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Test {
    /// µs one way.
    Latency,
    /// MB/s.
    Bandwidth,
}

/// Nobody waits longer for anything.
const PATIENCE: Duration = Duration::from_secs(60);
/// Round trips, or puts, before those that count.
const WARM: usize = 100;
/// Looks for a frame between two calls of `progress`.
const TURNS: u32 = 64;
/// As long as the PML's, and never looked at by the transport.
const HEADER: [u8; 16] = *b"sixteen bytes of";

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("iw-verbs: {message}");
            ExitCode::FAILURE
        }
    }
}

/// What came through the transport.
#[derive(Default)]
struct Seen {
    up: bool,
    frames: usize,
    /// Wrong ones among them.
    wrong: usize,
    /// What the next one must look like.
    expected: Vec<u8>,
    puts: usize,
    fault: Option<String>,
}

impl Seen {
    /// A frame, whose length and first and last bytes are looked at.
    fn take(&mut self, header: &[u8], payload: &[u8]) {
        self.frames += 1;
        let ends = |bytes: &[u8]| (bytes.len(), bytes.first().copied(), bytes.last().copied());
        if header != HEADER || ends(payload) != ends(&self.expected) {
            self.wrong += 1;
        }
    }
}

impl Sink for Seen {
    fn frame(&mut self, _: Peer, header: &[u8], payload: &[u8]) {
        self.take(header, payload);
    }
    fn completed(&mut self, _: Descriptor, _: Result<(), Fault>) {}
    fn rma_completed(&mut self, _: RmaDescriptor, outcome: Result<(), Fault>) {
        self.puts += 1;
        if let Err(fault) = outcome {
            self.fault.get_or_insert(fault.to_string());
        }
    }
    fn up(&mut self, _: Peer) {
        self.up = true;
    }
    fn fault(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault.to_string());
    }
    fn closed(&mut self, _: Peer) {
        self.fault.get_or_insert_with(|| "the other process has left".to_owned());
    }
}

/// The two processes' own connection, for what they have to know first and last.
struct Meeting(TcpStream);

impl Meeting {
    fn of(options: &Options) -> std::io::Result<Meeting> {
        let stream = match &options.host {
            None => {
                TcpListener::bind(("::", options.port))
                    .or_else(|_| TcpListener::bind(("0.0.0.0", options.port)))?
                    .accept()?
                    .0
            }
            Some(host) => TcpStream::connect((host.as_str(), options.port))?,
        };
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Meeting(stream))
    }

    fn tell(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let len = u32::try_from(bytes.len()).map_err(std::io::Error::other)?;
        self.0.write_all(&len.to_le_bytes())?;
        self.0.write_all(bytes)
    }

    fn hear(&mut self) -> std::io::Result<Vec<u8>> {
        let mut len = [0; 4];
        self.0.read_exact(&mut len)?;
        let mut bytes = vec![0; (u32::from_le_bytes(len) as usize).min(1 << 20)];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Tells, and hears the same of the other.
    fn trade(&mut self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        self.tell(bytes)?;
        self.hear()
    }
}

/// One side.
struct End {
    btl: Verbs,
    seen: Seen,
    peer: Peer,
    /// Frames that were waited for.
    received: usize,
}

impl End {
    fn progress(&mut self) {
        self.btl.progress(&mut self.seen);
    }

    /// Drives the transport until `done`.
    fn until(&mut self, what: &str, done: impl Fn(&Seen) -> bool) -> Result<(), String> {
        let mut rounds = 0_u32;
        let since = Instant::now();
        while !done(&self.seen) {
            if let Some(fault) = self.seen.fault.take() {
                return Err(format!("{what}: {fault}"));
            }
            self.progress();
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(1 << 14) && since.elapsed() > PATIENCE {
                return Err(format!("{what}: nothing for {PATIENCE:?}"));
            }
        }
        Ok(())
    }

    fn send(&mut self, payload: &[u8]) -> Result<(), String> {
        let short = payload.len() <= self.btl.caps().max_short;
        loop {
            let sent = if short {
                self.btl.send_short(self.peer, &HEADER, payload)
            } else {
                let pack = |at: usize, piece: &mut [u8]| {
                    piece.copy_from_slice(&payload[at..at + piece.len()]);
                };
                self.btl.send_bcopy(self.peer, &HEADER, payload.len(), pack)
            };
            match sent {
                Ok(()) => return Ok(()),
                Err(Refused::NoRoom) => self.progress(),
                Err(refused) => return Err(format!("a frame is refused: {refused:?}")),
            }
        }
    }

    fn receive(&mut self) -> Result<(), String> {
        self.received += 1;
        let wanted = self.received;
        // By the short cut, and in general between two tries: as the PML does that waits for a peer's answer.
        let mut rounds = 0_u32;
        let since = Instant::now();
        while self.seen.frames < wanted {
            let Self { btl, seen, peer, .. } = self;
            let took = btl.take_next(*peer, TURNS, |header, payload| {
                seen.take(header, payload);
                true
            });
            if took {
                break;
            }
            if let Some(fault) = self.seen.fault.take() {
                return Err(format!("a frame is awaited: {fault}"));
            }
            self.progress();
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(1 << 14) && since.elapsed() > PATIENCE {
                return Err(format!("a frame is awaited: nothing for {PATIENCE:?}"));
            }
        }
        Ok(())
    }

    /// `count` round trips, begun by the second process: µs one way.
    fn latency(&mut self, first: bool, size: usize, count: usize) -> Result<f64, String> {
        let payload: Vec<u8> = (0..size).map(|at| at as u8 ^ 0x5a).collect();
        self.seen.expected.clone_from(&payload);
        let mut since = Instant::now();
        for round in 0..WARM + count {
            if round == WARM {
                since = Instant::now();
            }
            if first {
                self.receive()?;
                self.send(&payload)?;
            } else {
                self.send(&payload)?;
                self.receive()?;
            }
        }
        let took = since.elapsed();
        match self.seen.wrong {
            0 => Ok(took.as_secs_f64() * 1e6 / (2 * count) as f64),
            wrong => Err(format!("{wrong} frames are not what was sent")),
        }
    }

    /// Puts all of `from`, again and again: MB/s.
    fn puts(&mut self, from: &SendRegion, to: RemoteKey, options: &Options) -> Result<f64, String> {
        let mut since = Instant::now();
        let (mut begun, total) = (0, WARM + options.count);
        self.seen.puts = 0;
        while self.seen.puts < total {
            if self.seen.puts == WARM && begun == WARM {
                since = Instant::now();
            }
            // Those that warm up end first.
            let most = if self.seen.puts < WARM { WARM } else { total };
            while begun < most && begun - self.seen.puts < options.window {
                let descriptor = RmaDescriptor {
                    peer: self.peer,
                    kind: RmaKind::Put(from.clone()),
                    remote: to,
                    remote_offset: 0,
                    token: Token(begun as u64),
                };
                match self.btl.rma(descriptor) {
                    Ok(()) => begun += 1,
                    Err((Refused::NoRoom, _)) => break,
                    Err((refused, _)) => return Err(format!("a put is refused: {refused:?}")),
                }
            }
            let before = self.seen.puts;
            self.until("a put is awaited", |seen| seen.puts > before)?;
        }
        let seconds = since.elapsed().as_secs_f64();
        if let Some(fault) = self.seen.fault.take() {
            return Err(format!("a put: {fault}"));
        }
        Ok((options.count * options.size) as f64 / seconds / 1e6)
    }
}

/// Memory that transports may keep registered, full of `byte`; for as long as the process lives.
fn memory(len: usize, byte: u8) -> Result<*mut u8, String> {
    let layout = Layout::from_size_align(len, 4096).map_err(|error| error.to_string())?;
    let start = lasting::allocate(layout).ok_or("no memory")?.as_ptr();
    // SAFETY: just allocated, of this length.
    unsafe { start.write_bytes(byte, len) };
    Ok(start)
}

fn run(options: &Options) -> Result<(), String> {
    if options.count == 0 || options.size == 0 || options.window == 0 {
        return Err("count, size and window are at least 1".to_owned());
    }
    let first = options.host.is_none();
    let mut meeting = Meeting::of(options).map_err(|error| format!("no meeting: {error}"))?;
    let lost = |error: std::io::Error| format!("the other process: {error}");
    let [me, peer] = if first { [0, 1] } else { [1, 0] }.map(Peer);
    let config = VerbsConfig {
        me,
        // Nobody but the two of this measurement is on those devices.
        secret: [1; 32],
        job: format!("iw-verbs-{}", options.port),
        include: vec![options.device.clone()],
        ..VerbsConfig::default()
    };
    let btl = Verbs::open_all(config).map_err(|error| error.to_string())?.remove(0);
    let frame = if options.test == Test::Latency { options.size } else { 0 };
    if frame > btl.caps().max_bcopy {
        return Err(format!("a frame has at most {} bytes", btl.caps().max_bcopy));
    }
    let blob = meeting.trade(&encode_addresses(&[btl.address()])).map_err(lost)?;
    let addresses: Vec<Address> = decode_addresses(&blob).map_err(|error| error.to_string())?;
    let mut end = End { btl, seen: Seen::default(), peer, received: 0 };
    if !first {
        let address = addresses.first().ok_or("the other process has no address")?;
        end.btl.connect(peer, address).map_err(|fault| fault.to_string())?;
    }
    end.until("the connection", |seen| seen.up)?;
    match options.test {
        Test::Latency => {
            let took = end.latency(first, options.size, options.count)?;
            if !first {
                println!("{took:.3}");
            }
        }
        Test::Bandwidth if first => {
            let start = memory(options.size, 0)?;
            // SAFETY: it lives as long as the process, and is looked at when all puts are over.
            let region = unsafe { RecvRegion::new(start, options.size) };
            let key = end.btl.register_target(&region);
            let key = key.map_err(|refused| format!("memory cannot be registered: {refused:?}"))?;
            meeting.tell(key.as_bytes()).map_err(lost)?;
            meeting.hear().map_err(lost)?; // they are over
            end.btl.deregister(&key);
            // SAFETY: nobody writes there any more.
            let got = unsafe { std::slice::from_raw_parts(start, options.size) };
            let well = got.iter().all(|&byte| byte == 0xa5);
            meeting.tell(&[u8::from(well)]).map_err(lost)?;
        }
        Test::Bandwidth => {
            let key = meeting.hear().map_err(lost)?;
            let key = RemoteKey::new(&key).ok_or("that is no key")?;
            let start = memory(options.size, 0xa5)?;
            // SAFETY: it lives as long as the process, and nobody writes there any more.
            let region = unsafe { SendRegion::new(start, options.size) };
            let rate = end.puts(&region, key, options)?;
            if meeting.trade(b"over").map_err(lost)? != [1] {
                return Err("what arrived is not what was put".to_owned());
            }
            println!("{rate:.3}");
        }
    }
    // Nobody leaves while the other still measures.
    meeting.trade(b"bye").map_err(lost)?;
    end.btl.depart();
    Ok(())
}
