//! `iw-mpibench`: our half of the side-by-side measurement, the twin of `peers/mpibench.c` (`LOOPS.md` defines both).
//! Started by `benches/compare` under `ironweave run`; prints lines for it, not for people (`iw-osu` is for them).

use clap::Parser;
use ironweave::{Comm, Result, World};
use ironweave_benches::drivers::loops::{Buffers, block};
use ironweave_benches::drivers::placement::Placement;
use ironweave_benches::lines::{Block, Line};
use ironweave_benches::spec::{Spec, Test};
use std::process::ExitCode;

/// Runs the loops of LOOPS.md and prints a line for each block.
#[derive(Parser, Debug)]
#[command(name = "iw-mpibench")]
struct Options {
    /// Printed blocks for each size.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    reps: u32,
    /// Messages in flight of the windowed tests.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    window: u16,
    /// Distinct receive buffers a window cycles through; must be the window: each receive borrows its own.
    #[arg(long)]
    recv_buffers: Option<u16>,
    /// Write -19 to /proc/self/autogroup where permitted.
    #[arg(long)]
    autogroup: bool,
    /// Do not probe the cores between blocks.
    #[arg(long)]
    no_probe: bool,
    /// `TEST:SIZE[xITERS][,SIZE[xITERS]…]`; TEST is latency, multi_lat, bw, bibw, mbw_mr or exchange.
    #[arg(required = true)]
    specs: Vec<String>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let specs: std::result::Result<Vec<_>, String> =
        options.specs.iter().map(|text| Spec::parse_list(text)).collect();
    let specs = match specs {
        Ok(specs) => specs.concat(),
        Err(message) => return fail(&message),
    };
    if let Some(spec) = specs.iter().find(|spec| !Test::TWINS.contains(&spec.test)) {
        return fail(&format!("{} is in the C program only", spec.test.name()));
    }
    if options.recv_buffers.is_some_and(|buffers| buffers != options.window) {
        return fail("--recv-buffers must be the window: each receive borrows memory of its own");
    }
    if options.autogroup {
        // Not permitted everywhere; the figures are then the session's own.
        let _ = std::fs::write("/proc/self/autogroup", "-19");
    }
    let world = match World::init() {
        Ok(world) => world,
        Err(error) => return fail(&error.to_string()),
    };
    for spec in &specs {
        if let Err(message) = spec.test.check_ranks(world.size() as usize) {
            return fail(&message);
        }
    }
    match measure(&world.comm(), &options, &specs).and_then(|()| world.finalize()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(message: &str) -> ExitCode {
    eprintln!("iw-mpibench: {message}");
    ExitCode::from(2)
}

fn measure(comm: &Comm, options: &Options, specs: &[Spec]) -> Result<()> {
    let rank_0 = comm.rank() == 0;
    let placement = Placement::ask(comm)?;
    if rank_0 {
        for bind in &placement.binds {
            println!("{}", Line::Bind(bind.clone()));
        }
    }
    let probe = || if options.no_probe { Ok(0.0) } else { placement.probe(comm) };
    for spec in specs {
        let mut buffers = Buffers::new(*spec, options.window.into());
        block(comm, *spec, &mut buffers)?; // connections and page tables settle here, unprinted
        let mut before = probe()?;
        for rep in 0..options.reps as usize {
            let value = block(comm, *spec, &mut buffers)?;
            let after = probe()?;
            if rank_0 {
                let (test, size) = (spec.test, spec.size);
                println!("{}", Line::Block(Block { test, size, rep, value, before, after }));
            }
            before = after;
        }
    }
    if rank_0 {
        println!("{}", Line::Done);
    }
    Ok(())
}
