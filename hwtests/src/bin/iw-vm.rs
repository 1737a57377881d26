//! Runs any command inside the virtual machine: `iw-vm [--newer] [--limit SECONDS] [--memory MIB] [--env NAME=VALUE] -- COMMAND…`.
//!
//! Exits as the command does; 124 when it hung, 77 when there can be no virtual machine here, 125 when the guest died.

use clap::Parser;
use ironweave_hwtests::vm::{Kernel, Machine, Task, VmError};
use std::process::ExitCode;
use std::time::Duration;

/// Runs a command in a virtual machine with two hosts of two Soft-RoCE rails each.
#[derive(Parser)]
#[command(name = "iw-vm", version)]
struct Arguments {
    /// The newest kernel that there are packages of, instead of the stock one.
    #[arg(long)]
    newer: bool,
    /// Seconds after which the command counts as hung.
    #[arg(long, default_value_t = 600)]
    limit: u64,
    /// Memory of the guest in MiB.
    #[arg(long, default_value_t = 2048)]
    memory: u32,
    /// Sets a variable for the command, beside IRONWEAVE_* and RUST_*, which are passed on.
    #[arg(long = "env", value_name = "NAME=VALUE")]
    environment: Vec<String>,
    /// Program and arguments.
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut task = Task::new(arguments.command);
    task.limit = Duration::from_secs(arguments.limit);
    task.memory = arguments.memory;
    for pair in arguments.environment {
        match pair.split_once('=') {
            Some((name, value)) => task.environment.push((name.to_owned(), value.to_owned())),
            None => {
                eprintln!("iw-vm: --env wants NAME=VALUE, not {pair}");
                return ExitCode::from(2);
            }
        }
    }
    let kernel = if arguments.newer { Kernel::Newer } else { Kernel::Stock };
    match Machine::prepare(kernel).and_then(|machine| machine.run(&task, std::io::stdout())) {
        Ok(status) => ExitCode::from(u8::try_from(status).unwrap_or(1)),
        Err(error @ VmError::Unavailable(_)) => {
            eprintln!("iw-vm: {error}");
            ExitCode::from(77)
        }
        Err(error) => {
            eprintln!("iw-vm: {error}");
            ExitCode::from(125)
        }
    }
}
