//! What the control plane costs by the number of ranks: messages, bytes and virtual time of detection, failure notices, revoke,
//! agree and shrink under LogGP. Writes `docs/cost.csv` and `docs/cost.svg`, see `docs/cost.md`.
//!
//!     cargo run --release -p ironweave-ft --example ironweave-ft-curves -- --up-to 1048576

#[path = "curves/detect.rs"]
mod detect;
#[path = "curves/measure.rs"]
mod measure;
#[path = "curves/plot.rs"]
mod plot;
#[path = "../tests/sim/wire.rs"]
mod wire;

use clap::Parser;
use measure::{Cost, Operation, allreduce, bcast, measure, parse};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Measures the control plane in virtual time.
#[derive(Parser)]
struct Arguments {
    /// The largest number of ranks; all powers of two up to it are measured.
    #[arg(long, default_value_t = 1 << 20)]
    up_to: u32,
    /// The smallest; what cost.csv has of sizes below stays as it is.
    #[arg(long, default_value_t = 2)]
    from: u32,
    /// Measure only operations whose name begins with this; the rest of cost.csv stays as it is.
    #[arg(long)]
    only: Option<String>,
    /// Where to write cost.csv and cost.svg.
    #[arg(long, default_value = "docs")]
    to: PathBuf,
}

fn main() -> std::io::Result<()> {
    let arguments = Arguments::parse();
    std::fs::create_dir_all(&arguments.to)?;
    let text = std::fs::read_to_string(arguments.to.join("cost.csv")).unwrap_or_default();
    let wanted = |name: &str| arguments.only.as_ref().is_none_or(|only| name.starts_with(only));
    let range = arguments.from.max(2)..=arguments.up_to.max(2);
    let measured = |cost: &Cost| range.contains(&cost.ranks) && wanted(cost.name);
    let mut costs: Vec<Cost> = text.lines().filter_map(parse).filter(|c| !measured(c)).collect();
    let powers = range.start().ilog2()..=range.end().ilog2();
    for ranks in powers.map(|power| 1 << power) {
        costs.extend([allreduce(ranks), bcast(ranks)].into_iter().filter(&measured));
        let mut add = |start: Instant, cost: &[Cost]| {
            if ranks >= 1 << 16 {
                println!("{cost:?} in {:.1} s", start.elapsed().as_secs_f64());
            }
            costs.extend_from_slice(cost);
            costs.sort_by_key(|cost| cost.ranks);
            // At once: the last ones take minutes.
            write(&arguments.to, &costs)
        };
        for operation in Operation::ALL.into_iter().filter(|one| wanted(one.name())) {
            add(Instant::now(), &[measure(operation, ranks)])?;
        }
        if wanted(detect::DETECT) {
            add(Instant::now(), &detect::measure(ranks))?;
        }
    }
    write(&arguments.to, &costs)
}

fn write(to: &Path, costs: &[Cost]) -> std::io::Result<()> {
    let mut csv = String::from("operation,ranks,messages,bytes,virtual_ns\n");
    for Cost { name, ranks, messages, bytes, ns } in costs {
        csv += &format!("\"{name}\",{ranks},{messages},{bytes},{ns}\n");
    }
    std::fs::write(to.join("cost.csv"), csv)?;
    std::fs::write(to.join("cost.svg"), plot::svg(costs))
}
