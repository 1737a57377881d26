//! `iw-osu`: the loops of `LOOPS.md` for people, with the columns of the OSU micro-benchmarks, so that whoever knows those
//! can read these. Sweeps message sizes by powers of two; prints as it goes; judges nothing.

use clap::{Parser, ValueEnum};
use ironweave::{Comm, Result, World};
use ironweave_benches::drivers::loops::{Buffers, block};
use ironweave_benches::spec::{MAX_SIZE, Spec, Test};
use ironweave_benches::stats::median;
use std::process::ExitCode;

/// Latency, bandwidth and message rate over a sweep of message sizes; start it with `ironweave run -n N`.
#[derive(Parser, Debug)]
#[command(name = "iw-osu")]
struct Options {
    /// What to measure.
    test: Name,
    /// Message sizes in bytes, from MIN to MAX by powers of two.
    #[arg(short = 'm', long, default_value = "1:4194304", value_name = "MIN:MAX", value_parser = sizes)]
    message_size: (usize, usize),
    /// Timed iterations for every size [default: by size, see LOOPS.md].
    #[arg(short = 'i', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    iterations: Option<u32>,
    /// Blocks for every size; the median of theirs is told. With `-i 1` that is the typical message, not the average one.
    #[arg(short = 'b', long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    blocks: u32,
    /// Messages in flight of the windowed tests.
    #[arg(short = 'W', long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    window_size: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Name {
    /// Ping-pong of two ranks.
    Latency,
    /// Ping-pong of all pairs at once.
    MultiLat,
    /// Bandwidth from rank 0 to rank 1.
    Bw,
    /// Bandwidth both ways between two ranks.
    Bibw,
    /// Bandwidth and message rate of all pairs at once.
    MbwMr,
    /// Every rank with both neighbours of a ring.
    Exchange,
}

impl Name {
    fn test(self) -> Test {
        match self {
            Self::Latency => Test::Latency,
            Self::MultiLat => Test::MultiLat,
            Self::Bw => Test::Bw,
            Self::Bibw => Test::Bibw,
            Self::MbwMr => Test::MbwMr,
            Self::Exchange => Test::Exchange,
        }
    }
}

fn sizes(text: &str) -> std::result::Result<(usize, usize), String> {
    let (low, high) = text.split_once(':').unwrap_or(("1", text));
    let number =
        |word: &str| word.parse::<usize>().map_err(|_| format!("`{word}` is no size in bytes"));
    let (low, high) = (number(low)?, number(high)?);
    if low > high || high > MAX_SIZE {
        return Err(format!("want MIN:MAX with MIN <= MAX <= {MAX_SIZE}"));
    }
    Ok((low, high))
}

fn main() -> ExitCode {
    let options = Options::parse();
    let world = match World::init() {
        Ok(world) => world,
        Err(error) => return fail(&error.to_string()),
    };
    if let Err(message) = options.test.test().check_ranks(world.size() as usize) {
        return fail(&message);
    }
    match sweep(&world.comm(), &options).and_then(|()| world.finalize()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(message: &str) -> ExitCode {
    eprintln!("iw-osu: {message}");
    ExitCode::from(2)
}

fn sweep(comm: &Comm, options: &Options) -> Result<()> {
    let test = options.test.test();
    let rank_0 = comm.rank() == 0;
    if rank_0 {
        print!("{}", header(test, comm.size() / 2, options.window_size));
    }
    let (low, high) = options.message_size;
    for size in powers(low, high) {
        let iterations = match options.iterations {
            Some(iterations) => iterations as usize,
            None => test.default_iterations(size),
        };
        let spec = Spec { test, size, iterations };
        let mut buffers = Buffers::new(spec, options.window_size.into());
        let values = (0..options.blocks)
            .map(|_| block(comm, spec, &mut buffers))
            .collect::<Result<Vec<_>>>()?;
        let value = median(&values).unwrap_or(f64::NAN);
        if rank_0 {
            println!("{}", line(test, size, value));
        }
    }
    Ok(())
}

/// `low`, then every power of two above it up to `high`.
fn powers(low: usize, high: usize) -> impl Iterator<Item = usize> {
    let next = |size: &usize| Some((size + 1).next_power_of_two());
    std::iter::successors(Some(low), next).take_while(move |size| *size <= high)
}

fn header(test: Test, pairs: u32, window: u16) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let (title, columns) = match test {
        Test::Latency => ("Latency Test", format!("{:<10}{:>18}", "# Size", "Latency (us)")),
        Test::MultiLat => ("Multi Latency Test", format!("{:<10}{:>18}", "# Size", "Latency (us)")),
        Test::Bw => ("Bandwidth Test", format!("{:<10}{:>18}", "# Size", "Bandwidth (MB/s)")),
        Test::Bibw => {
            ("Bi-Directional Bandwidth Test", format!("{:<10}{:>18}", "# Size", "Bandwidth (MB/s)"))
        }
        Test::MbwMr => (
            "Multiple Bandwidth / Message Rate Test",
            format!(
                "# [ pairs: {pairs} ] [ window size: {window} ]\n{:<10}{:>18}{:>18}",
                "# Size", "MB/s", "Messages/s"
            ),
        ),
        // Exchange; there is no way to ask for the others here.
        _ => ("Ring Exchange Test", format!("{:<10}{:>18}", "# Size", "Exchange (us)")),
    };
    format!("# Ironweave {title} v{version}\n{columns}\n")
}

fn line(test: Test, size: usize, value: f64) -> String {
    match test {
        // The value is the rate; the first column is what it comes to in MB/s.
        Test::MbwMr => format!("{size:<10}{:>18.2}{value:>18.2}", value * size as f64 / 1e6),
        _ => format!("{size:<10}{value:>18.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{header, line, powers, sizes};
    use ironweave_benches::spec::Test;

    #[test]
    fn a_sweep_goes_by_powers_of_two() {
        assert_eq!(powers(1, 16).collect::<Vec<_>>(), [1, 2, 4, 8, 16]);
        assert_eq!(powers(0, 4).collect::<Vec<_>>(), [0, 1, 2, 4]);
        assert_eq!(powers(5, 5).collect::<Vec<_>>(), [5]);
        assert_eq!(powers(5, 9).collect::<Vec<_>>(), [5, 8]);
    }

    #[test]
    fn sizes_as_osu_takes_them() {
        assert_eq!(sizes("8:64"), Ok((8, 64)));
        assert_eq!(sizes("64"), Ok((1, 64)));
        assert!(sizes("64:8").is_err() && sizes("a:8").is_err());
    }

    #[test]
    fn columns_line_up() {
        let last = |text: String| text.lines().last().map(str::len);
        for test in Test::TWINS {
            assert_eq!(last(header(test, 1, 64)), Some(line(test, 8, 1.0).len()), "{test:?}");
        }
    }
}
