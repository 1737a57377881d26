//! libfabric's own `fi_pingpong` with the command line and the output lines of the benchmark programs (`LOOPS.md`): what is
//! left of a libfabric provider when no MPI is above it. It starts server and client on a core each, a pair for each block, and
//! probes the cores before and after. Latency only.

use clap::Parser;
use ironweave_benches::lines::{Bind, Block, Line};
use ironweave_benches::probe;
use ironweave_benches::spec::{Spec, Test};
use std::net::TcpListener;
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Runs fi_pingpong once for each block and prints the blocks as mpibench does.
#[derive(Parser, Debug)]
#[command(name = "iw-bare")]
struct Options {
    /// The provider, as `fi_info` names it.
    #[arg(long, default_value = "tcp;ofi_rxm")]
    provider: String,
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
                return Err(format!("{text}: fi_pingpong knows latency alone"));
            }
            let mut before = look()?;
            for rep in 0..options.reps {
                // Its figure has the connection's first messages in it: enough others make that nothing.
                let value = pair(&options.provider, [here, there], size, 4 * iterations)?;
                let after = look()?;
                println!("{}", Line::Block(Block { test, size, rep, value, before, after }));
                before = after;
            }
        }
    }
    println!("{}", Line::Done);
    Ok(())
}

/// One server and one client; one-way microseconds, as the client prints them.
fn pair(provider: &str, cpus: [usize; 2], size: usize, iterations: usize) -> Result<f64, String> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let port = free.map_err(|error| format!("no free port: {error}"))?.port().to_string();
    let command = |cpu: usize, role: &[&str]| {
        let mut command = Command::new("timeout"); // it may wait for ever for the other one
        command.args([&LIMIT.as_secs().to_string(), "taskset", "-c", &cpu.to_string()]);
        command.args(["fi_pingpong", "-e", "rdm", "-p", provider]);
        command.args(["-S", &size.to_string(), "-I", &iterations.to_string()]).args(role);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let spawn = |mut command: Command| {
        command.spawn().map_err(|error| format!("fi_pingpong cannot be started: {error}"))
    };
    let end = Instant::now() + LIMIT;
    let mut server = spawn(command(cpus[0], &["-B", &port]))?;
    // The server listens a moment after it was started; until then a client ends with an error.
    let answer = loop {
        let client = spawn(command(cpus[1], &["-P", &port, "127.0.0.1"]))?;
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
    let figure = answer.lines().last().and_then(|line| line.split_whitespace().nth(6));
    let value = figure.and_then(|text| text.parse::<f64>().ok()).filter(|value| *value > 0.0);
    value.ok_or_else(|| format!("fi_pingpong gave no figure: {answer:?}"))
}
