//! The command `ironweave`.
//!
//! Reads arguments and hands over; every subcommand's work is in the library.

use clap::{Args, Parser, Subcommand};
use ironweave_rte::launch::messages::{App, Bind};
use ironweave_rte::launch::run::{LaunchError, Options};
use ironweave_rte::launch::{daemon, guard, placement, run};
use ironweave_rte::params::{ParamError, Source, sources};
use ironweave_rte::{doctor, info, logging, mpiexec};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
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
    /// List components, parameters, their values and where each came from
    Info(InfoArgs),
    /// Check this machine and say what an operator should change
    Doctor,
    /// Run the device tests: `--device mlx5_0` on real devices, `--vm` in a virtual machine (iw-hwtest)
    #[command(disable_help_flag = true)]
    Hwtest {
        /// Passed on; --help tells more
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// One host's part of a job; started by `run` through the launch agent
    #[command(hide = true)]
    Daemon,
    /// Ends what ranks leave behind when the launcher is killed; started by `run`
    #[command(hide = true)]
    Guard,
    /// Reads a text from another process; started by `doctor`
    #[command(hide = true)]
    CmaProbe { pid: i32, address: usize },
}

#[derive(Args)]
struct InfoArgs {
    /// Tell all about one parameter
    #[arg(long, value_name = "NAME")]
    param: Option<String>,
    /// Write JSON
    #[arg(long)]
    json: bool,
    /// Set a parameter, to see what would be
    #[arg(long, num_args = 2, value_names = ["NAME", "VALUE"], action = clap::ArgAction::Append)]
    mca: Vec<String>,
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
    #[arg(long, value_name = "CMD", default_value = ironweave_rte::launch::SSH)]
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
    /// The program and its arguments; a name alone is looked for in PATH, then in the working directory
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROG"
    )]
    program: Vec<OsString>,
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    if arguments.next().is_some_and(|name| mpiexec::is_name(Path::new(&name))) {
        logging::start(Some(tracing_subscriber::filter::LevelFilter::WARN));
        return finish("mpiexec", mpiexec_job(arguments));
    }
    let cli = Cli::parse();
    logging::start(Some(tracing_subscriber::filter::LevelFilter::WARN));
    let result = match cli.command {
        Command::Run(args) => run_job(args),
        Command::Daemon => daemon::run().map(|()| 0),
        Command::Guard => {
            guard::main();
            Ok(0)
        }
        Command::Info(args) => show_info(&args).map(|()| 0),
        Command::Doctor => {
            let findings = doctor::examine();
            print(&doctor::report(&findings));
            Ok(u8::from(doctor::has_errors(&findings)))
        }
        Command::Hwtest { arguments } => Err(hwtest(&arguments)),
        Command::CmaProbe { pid, address } => {
            doctor::cma_probe(pid, address).map(|()| 0).map_err(LaunchError)
        }
    };
    finish("ironweave", result)
}

fn finish(name: &str, result: Result<u8, LaunchError>) -> ExitCode {
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::from(NOT_STARTED)
        }
    }
}

/// This program under the name `mpiexec` or `mpirun`.
fn mpiexec_job(arguments: impl Iterator<Item = OsString>) -> Result<u8, LaunchError> {
    match mpiexec::read(arguments).map_err(LaunchError)? {
        mpiexec::Ask::Print(text) => {
            print(&text);
            Ok(0)
        }
        mpiexec::Ask::Run(options, notes) => {
            notes.iter().for_each(|note| eprintln!("mpiexec: {note}"));
            run::run(&options)
        }
    }
}

/// Becomes `iw-hwtest`, which is installed beside this program; returns only when that fails.
fn hwtest(arguments: &[OsString]) -> LaunchError {
    let beside = std::env::current_exe().map(|path| path.with_file_name("iw-hwtest"));
    let program = beside.unwrap_or_else(|_| "iw-hwtest".into());
    let error = std::process::Command::new(&program).args(arguments).exec();
    let program = program.display();
    match error.kind() {
        std::io::ErrorKind::NotFound => LaunchError(format!(
            "the device tests are not installed here ({program}); `ci/install PREFIX --hwtest`, in Ironweave's sources, adds them"
        )),
        _ => LaunchError(format!("{program}: {error}")),
    }
}

fn run_job(args: RunArgs) -> Result<u8, LaunchError> {
    let hosts = match &args.hosts {
        Some(hosts) => {
            placement::parse_hosts(hosts).map_err(|why| LaunchError(format!("--hosts: {why}")))?
        }
        None => Vec::new(),
    };
    let mut words = args.program.into_iter();
    let app = App {
        ranks: args.ranks,
        program: words.next().unwrap_or_default(),
        args: words.collect(),
        env: Vec::new(),
        directory: None,
    };
    run::run(&Options {
        apps: vec![app],
        hosts,
        agent: args.launch_agent,
        port: args.port,
        bind: args.bind_to,
        tag_output: args.tag_output,
        kill_on_failure: args.kill_on_failure,
        time_limit: None,
        mca: pairs(&args.mca),
    })
}

fn show_info(args: &InfoArgs) -> Result<(), LaunchError> {
    let words = |error: ParamError| LaunchError(error.to_string());
    let mut params = sources::load(&pairs(&args.mca)).map_err(words)?;
    let one = match &args.param {
        Some(name) => match params.setting(name) {
            Some(setting) => Some(setting.clone()),
            // Setting it gives the error with the suggestion.
            None => return params.set(name, "", Source::CommandLine).map_err(words),
        },
        None => None,
    };
    let text = match (&one, args.json) {
        (Some(one), true) => format!("{:#}\n", info::json(&params, std::iter::once(one))),
        (None, true) => format!("{:#}\n", info::json(&params, params.settings().iter())),
        (Some(one), false) => info::param_text(one),
        (None, false) => info::text(&params),
    };
    print(&text);
    Ok(())
}

/// `--mca NAME VALUE` arguments two by two.
fn pairs(mca: &[String]) -> Vec<(String, String)> {
    mca.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

/// Writes to standard output; a reader that has gone (`| head`) is no error.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
