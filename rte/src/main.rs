//! The command `ironweave`.
//!
//! Reads arguments and hands over; every subcommand's work is in the library.

use clap::{Args, Parser, Subcommand};
use ironweave_rte::launch::messages::Bind;
use ironweave_rte::launch::run::{LaunchError, Options};
use ironweave_rte::launch::{daemon, guard, placement, run};
use std::ffi::OsString;
use std::process::ExitCode;

/// The exit code of a job that could not be started.
const NOT_STARTED: u8 = 1;

#[derive(Parser)]
#[command(name = "ironweave", version, about = "Message passing that survives failures")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a program as the ranks of a job
    Run(RunArgs),
    /// One host's part of a job; started by `run` through the launch agent
    #[command(hide = true)]
    Daemon,
    /// Ends what ranks leave behind when the launcher is killed; started by `run`
    #[command(hide = true)]
    Guard,
}

#[derive(Args)]
struct RunArgs {
    /// Number of ranks
    #[arg(short = 'n', long = "np", value_name = "N", default_value_t = 1)]
    ranks: u32,
    /// Hosts and their slots; ranks fill them in order
    #[arg(long, value_name = "HOST[:SLOTS],…")]
    hosts: Option<String>,
    /// Command that runs a program on a host; {host} stands for its name, at the end if absent
    #[arg(long, value_name = "CMD", default_value = "ssh -o BatchMode=yes {host}")]
    launch_agent: String,
    /// Port that the hosts' daemons connect to; any free one by default
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Bind each rank to a core; by default if there are enough cores
    #[arg(long, value_enum)]
    bind_to: Option<Bind>,
    /// Begin each line of output with its rank
    #[arg(long)]
    tag_output: bool,
    /// End the job when a rank fails; by default the others are told and go on
    #[arg(long)]
    kill_on_failure: bool,
    /// Set a parameter (see `ironweave info`)
    #[arg(long, num_args = 2, value_names = ["NAME", "VALUE"], action = clap::ArgAction::Append)]
    mca: Vec<String>,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROG"
    )]
    program: Vec<OsString>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_logging();
    let result = match cli.command {
        Command::Run(args) => run_job(args),
        Command::Daemon => daemon::run().map(|()| 0),
        Command::Guard => {
            guard::main();
            Ok(0)
        }
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("ironweave: {error}");
            ExitCode::from(NOT_STARTED)
        }
    }
}

fn run_job(args: RunArgs) -> Result<u8, LaunchError> {
    let hosts = match &args.hosts {
        Some(hosts) => {
            placement::parse_hosts(hosts).map_err(|why| LaunchError(format!("--hosts: {why}")))?
        }
        None => Vec::new(),
    };
    let mca = args.mca.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    let mut program = args.program.into_iter();
    run::run(&Options {
        ranks: args.ranks,
        hosts,
        agent: args.launch_agent,
        port: args.port,
        bind: args.bind_to,
        tag_output: args.tag_output,
        kill_on_failure: args.kill_on_failure,
        mca,
        program: program.next().unwrap_or_default(),
        args: program.collect(),
    })
}

/// Logs to standard error as `IRONWEAVE_LOG` says (tracing's filter syntax), warnings by default.
fn start_logging() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("IRONWEAVE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}
