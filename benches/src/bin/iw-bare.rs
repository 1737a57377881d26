//! libfabric's own `fi_pingpong`, and UCX's own `ucx_perftest`, with the command line and the output lines of the benchmark
//! programs (`LOOPS.md`): what is left of a libfabric provider or a transport of UCX when no MPI is above it. It starts
//! server and client on a core each, a pair for each block, and probes the cores before and after. Latency only.

use clap::Parser;
use ironweave_benches::lines::{Bind, Block, Line};
use ironweave_benches::probe;
use ironweave_benches::spec::{Spec, Test};
use std::net::TcpListener;
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Runs fi_pingpong or ucx_perftest once for each block and prints the blocks as mpibench does.
#[derive(Parser, Debug)]
#[command(name = "iw-bare")]
struct Options {
    /// The provider, as `fi_info` names it.
    #[arg(long, default_value = "tcp;ofi_rxm")]
    provider: String,
    /// Instead: a transport of UCX, as `ucx_info -d` names it, by active messages (`am_lat`)
    #[arg(long, value_name = "TRANSPORT")]
    uct: Option<String>,
    /// Its device
    #[arg(long, default_value = "memory")]
    device: String,
    /// Printed blocks for each size.
    #[arg(long, default_value_t = 3)]
    reps: usize,
    /// Write -19 to /proc/self/autogroup where permitted.
    #[arg(long)]
    autogroup: bool,
    /// Do not probe the cores.
    #[arg(long)]
    no_probe: bool,
    /// `TEST:SIZE[xITERS][,…]`
    #[arg(required = true)]
    specs: Vec<String>,
}

/// How long one pair may take.
const LIMIT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let options = Options::parse();
    if options.autogroup {
        // Not permitted everywhere, and then figures are a little noisier.
        let _ = std::fs::write("/proc/self/autogroup", "-19");
    }
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("iw-bare: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let cpus = probe::allowed_cpus().map_err(|error| format!("which CPUs: {error}"))?;
    let [here, there, ..] = cpus[..] else { return Err("it takes two cores".to_owned()) };
    for (rank, cpu) in [here, there].into_iter().enumerate() {
        println!("{}", Line::Bind(Bind { rank, cpu, allowed: 1, first: cpu }));
    }
    let look = || match options.no_probe {
        true => Ok(0.0),
        false => probe::hand_over(here, there).map_err(|error| format!("the probe: {error}")),
    };
    for text in &options.specs {
        for Spec { test, size, iterations } in Spec::parse_list(text)? {
            if test != Test::Latency {
                return Err(format!("{text}: bare programs are asked for latency alone"));
            }
            let mut before = look()?;
            for rep in 0..options.reps {
                // Their figures have the connection's first messages in them: enough others make that nothing.
                let bare = Bare { options, size, iterations: 4 * iterations };
                let value = bare.pair([here, there])?;
                let after = look()?;
                println!("{}", Line::Block(Block { test, size, rep, value, before, after }));
                before = after;
            }
        }
    }
    println!("{}", Line::Done);
    Ok(())
}

/// What a pair of processes measures.
struct Bare<'a> {
    options: &'a Options,
    size: usize,
    iterations: usize,
}

impl Bare<'_> {
    /// The client's command when `to` is somebody, else the server's.
    fn command(&self, cpu: usize, port: &str, to: Option<&str>) -> Command {
        let mut command = Command::new("timeout"); // it may wait for ever for the other one
        command.args([&LIMIT.as_secs().to_string(), "taskset", "-c", &cpu.to_string()]);
        let (size, iterations) = (self.size.to_string(), self.iterations.to_string());
        if let Some(transport) = &self.options.uct {
            command.args(["ucx_perftest", "-t", "am_lat", "-x", transport, "-d"]);
            command.args([&self.options.device, "-s", &size, "-n", &iterations, "-w", "100"]);
            // The way that is the library's fastest for that size, with a segment that holds it.
            command.args(["-D", if self.size <= 64 { "short" } else { "bcopy" }, "-v", "-f"]);
            for name in ["UCX_TCP_RX_SEG_SIZE", "UCX_TCP_TX_SEG_SIZE"] {
                command.env(name, (self.size + 4096).max(64 << 10).to_string());
            }
            command.args(["-p", port]).args(to);
        } else {
            command.args(["fi_pingpong", "-e", "rdm", "-p", &self.options.provider]);
            command.args(["-S", &size, "-I", &iterations]);
            command.args([if to.is_some() { "-P" } else { "-B" }, port]).args(to);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// One-way microseconds in what the client printed last: both give the average of all messages.
    fn figure(&self, answer: &str) -> Option<f64> {
        let line = answer.lines().last()?;
        let text = match self.options.uct {
            Some(_) => line.split(',').nth(3)?.trim(),
            None => line.split_whitespace().nth(6)?,
        };
        text.parse().ok().filter(|value| *value > 0.0)
    }

    /// One server and one client.
    fn pair(&self, cpus: [usize; 2]) -> Result<f64, String> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.map_err(|error| format!("no free port: {error}"))?.port().to_string();
        let spawn = |mut command: Command| {
            command.spawn().map_err(|error| format!("it cannot be started: {error}"))
        };
        let end = Instant::now() + LIMIT;
        let mut server = spawn(self.command(cpus[0], &port, None))?;
        // The server listens a moment after it was started; until then a client ends with an error.
        let answer = loop {
            let client = spawn(self.command(cpus[1], &port, Some("127.0.0.1")))?;
            let answer = client.wait_with_output().map_err(|error| error.to_string());
            match answer {
                Ok(output) if !output.status.success() && Instant::now() < end => {
                    if let Ok(Some(status)) = server.try_wait() {
                        break Err(format!("the server ended: {status}"));
                    }
                    sleep(Duration::from_millis(20));
                }
                Ok(output) => break Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
                Err(error) => break Err(error),
            }
        };
        let _ = server.wait(); // `timeout` ends it at the latest
        let answer = answer?;
        self.figure(&answer).ok_or_else(|| format!("the bare program gave no figure: {answer:?}"))
    }
}
