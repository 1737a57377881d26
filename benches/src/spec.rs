//! What to run: `TEST:SIZE[xITERS],…`, as `LOOPS.md` defines it for both twins. Parses and prints; runs nothing.

use std::fmt;
use std::str::FromStr;

/// The largest message a specification may ask for, in bytes.
pub const MAX_SIZE: usize = 1 << 30;

/// One of the loops of `LOOPS.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Test {
    /// Ping-pong of ranks 0 and 1, one-way µs.
    Latency,
    /// Ping-pong of all pairs at once, mean one-way µs.
    MultiLat,
    /// Windows from rank 0 to rank 1, MB/s.
    Bw,
    /// Windows both ways between ranks 0 and 1, MB/s.
    Bibw,
    /// Windows of all pairs at once, messages/s.
    MbwMr,
    /// Every rank with both neighbours of a ring, µs an exchange.
    Exchange,
    /// Barriers, µs each. This and the following are in the C program only.
    Barrier,
    /// Broadcasts from rank 0, µs each.
    Bcast,
    /// Sums of integers at all ranks, µs each.
    Allreduce,
    /// A block from each rank to each, µs.
    Alltoall,
    /// What a non-blocking broadcast adds to 20 µs of computation, µs.
    Ibcast,
    /// What a non-blocking sum adds to 20 µs of computation, µs.
    Iallreduce,
    /// Ping-pong of ranks 0 and 1 with strided memory, one-way µs.
    Vector,
    /// From the start of the launcher to the end of the first barrier, ms.
    Startup,
    /// Resident memory of a rank after the first barrier, MiB.
    Memory,
}

impl Test {
    /// All tests, in the order of `LOOPS.md`.
    pub const ALL: [Self; 15] = [
        Self::Latency,
        Self::MultiLat,
        Self::Bw,
        Self::Bibw,
        Self::MbwMr,
        Self::Exchange,
        Self::Barrier,
        Self::Bcast,
        Self::Allreduce,
        Self::Alltoall,
        Self::Ibcast,
        Self::Iallreduce,
        Self::Vector,
        Self::Startup,
        Self::Memory,
    ];

    /// Tests that have a twin in Rust.
    pub const TWINS: [Self; 6] =
        [Self::Latency, Self::MultiLat, Self::Bw, Self::Bibw, Self::MbwMr, Self::Exchange];

    /// The name on command lines and in output lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::MultiLat => "multi_lat",
            Self::Bw => "bw",
            Self::Bibw => "bibw",
            Self::MbwMr => "mbw_mr",
            Self::Exchange => "exchange",
            Self::Barrier => "barrier",
            Self::Bcast => "bcast",
            Self::Allreduce => "allreduce",
            Self::Alltoall => "alltoall",
            Self::Ibcast => "ibcast",
            Self::Iallreduce => "iallreduce",
            Self::Vector => "vector",
            Self::Startup => "startup",
            Self::Memory => "memory",
        }
    }

    /// The unit of its value: `us`, `MB/s`, `msg/s`, `ms` or `MiB`.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Latency | Self::MultiLat | Self::Exchange => "us",
            Self::Barrier | Self::Bcast | Self::Allreduce | Self::Alltoall | Self::Vector => "us",
            Self::Ibcast | Self::Iallreduce => "us",
            Self::Startup => "ms",
            Self::Memory => "MiB",
            Self::Bw | Self::Bibw => "MB/s",
            Self::MbwMr => "msg/s",
        }
    }

    /// Whether it keeps a window of messages in flight.
    #[must_use]
    pub fn windowed(self) -> bool {
        matches!(self, Self::Bw | Self::Bibw | Self::MbwMr)
    }

    /// Timed iterations of a block if the specification names none.
    #[must_use]
    pub fn default_iterations(self, size: usize) -> usize {
        let column = match size {
            0..=1024 => 0,
            1025..=8192 => 1,
            8193..=65536 => 2,
            65537..=1_048_576 => 3,
            _ => 4,
        };
        if self.windowed() {
            [1000, 400, 40, 6, 3][column]
        } else {
            [10000, 5000, 1000, 100, 30][column]
        }
    }

    /// Says why `ranks` ranks cannot run this test, if they cannot.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn check_ranks(self, ranks: usize) -> Result<(), String> {
        let name = self.name();
        match self {
            Self::Latency | Self::Bw | Self::Bibw | Self::Vector if ranks != 2 => {
                Err(format!("{name} needs exactly 2 ranks, not {ranks}"))
            }
            Self::MultiLat | Self::MbwMr if ranks == 0 || !ranks.is_multiple_of(2) => {
                Err(format!("{name} needs an even number of ranks, not {ranks}"))
            }
            Self::Exchange if ranks < 2 => {
                Err(format!("{name} needs at least 2 ranks, not {ranks}"))
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Test {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|test| test.name() == name)
            .ok_or_else(|| format!("unknown test `{name}`"))
    }
}

/// Iterations of one block that are not timed.
#[must_use]
pub fn warmup(iterations: usize) -> usize {
    (iterations / 10).max(2)
}

/// One test at one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Which loop.
    pub test: Test,
    /// Message size in bytes.
    pub size: usize,
    /// Timed iterations of a block.
    pub iterations: usize,
}

impl Spec {
    /// Parses `TEST:SIZE[xITERS][,SIZE[xITERS]…]`.
    ///
    /// # Errors
    /// A sentence for the user naming the part that is wrong.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, String> {
        let (test, items) =
            text.split_once(':').ok_or_else(|| format!("`{text}`: want TEST:SIZE[xITERS]"))?;
        let test: Test = test.parse()?;
        items.split(',').map(|item| Self::parse_item(test, item)).collect()
    }

    fn parse_item(test: Test, item: &str) -> Result<Self, String> {
        let (size, iterations) = match item.split_once('x') {
            Some((size, iterations)) => (size, Some(iterations)),
            None => (item, None),
        };
        let size: usize = size.parse().map_err(|_| format!("`{item}`: bad size"))?;
        let iterations: usize = match iterations {
            Some(text) => text.parse().map_err(|_| format!("`{item}`: bad iterations"))?,
            None => test.default_iterations(size),
        };
        if size > MAX_SIZE || iterations == 0 {
            return Err(format!("`{item}`: size above 1 GiB or no iterations"));
        }
        Ok(Self { test, size, iterations })
    }

    /// Payload bytes that one block carries between ranks, warm-up included, with `ranks` ranks and windows of `window`.
    #[must_use]
    pub fn bytes_a_block(&self, ranks: usize, window: usize) -> u64 {
        let pairs = (ranks / 2) as u64;
        let messages = match self.test {
            Test::Latency => 2,
            Test::MultiLat => 2 * pairs,
            Test::Bw => window as u64,
            Test::Bibw => 2 * window as u64,
            Test::MbwMr => pairs * window as u64,
            Test::Exchange => 2 * ranks as u64,
            Test::Barrier | Test::Startup | Test::Memory => 0,
            Test::Bcast | Test::Ibcast => ranks as u64 - 1,
            Test::Allreduce | Test::Iallreduce => ranks as u64,
            Test::Alltoall => ranks as u64 * (ranks as u64 - 1),
            Test::Vector => 2,
        };
        messages * self.size as u64 * (self.iterations + warmup(self.iterations)) as u64
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}x{}", self.test.name(), self.size, self.iterations)
    }
}

#[cfg(test)]
mod tests {
    use super::{Spec, Test};

    #[test]
    fn a_list_has_one_spec_a_size() {
        let specs = Spec::parse_list("bw:65536,1048576x7").expect("well formed");
        assert_eq!(specs[0], Spec { test: Test::Bw, size: 65536, iterations: 40 });
        assert_eq!(specs[1], Spec { test: Test::Bw, size: 1_048_576, iterations: 7 });
        assert_eq!(specs[1].to_string(), "bw:1048576x7");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, part) in [
            ("bw", "TEST:SIZE"),
            ("pingpong:8", "pingpong"),
            ("bw:8x", "8x"),
            ("bw:8x0", "8x0"),
            ("bw:-1", "-1"),
        ] {
            let error = Spec::parse_list(text).expect_err("malformed");
            assert!(error.contains(part), "{error} should name {part}");
        }
    }

    #[test]
    fn rank_counts() {
        assert!(Test::Latency.check_ranks(2).is_ok());
        assert!(Test::Latency.check_ranks(4).is_err());
        assert!(Test::MbwMr.check_ranks(3).is_err());
        assert!(Test::Exchange.check_ranks(3).is_ok());
    }

    #[test]
    fn payload_counts_warm_up() {
        let spec = Spec { test: Test::Bw, size: 10, iterations: 20 };
        assert_eq!(spec.bytes_a_block(2, 64), 10 * 64 * 22);
    }
}
