//! What is compared: one row a line, with the goal the project set itself. Plain data; measures nothing.

use ironweave_benches::spec::{Spec, Test};

/// What one launch of a program measures together, and over which transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// Two bound ranks over shared memory.
    Shm,
    /// Two bound ranks over TCP on this host.
    Tcp,
    /// Two bound ranks over libfabric's TCP on this host: ours against other libraries' libfabric ways.
    Ofi,
    /// The same, ours against libfabric without any MPI above it.
    OfiBare,
    /// Two bound ranks over UCX's TCP on this host, ours against UCX without any MPI above it.
    UctTcpBare,
    /// The same over UCX's shared memory.
    UctPosixBare,
    /// Four ranks over shared memory, whatever the number of cores.
    Four,
    /// Two bound ranks over shared memory, everybody through C: ours with the standard ABI.
    Abi,
    /// Four ranks over shared memory, through C.
    AbiFour,
    /// The start of two ranks, through C.
    Start2,
    /// The start of 8 ranks, through C.
    Start8,
    /// The start of 16 ranks, through C.
    Start16,
}

impl Suite {
    pub fn ranks(self) -> usize {
        match self {
            Self::Shm | Self::Tcp | Self::Ofi | Self::OfiBare | Self::Abi | Self::Start2 => 2,
            Self::UctTcpBare | Self::UctPosixBare => 2,
            Self::Four | Self::AbiFour => 4,
            Self::Start8 => 8,
            Self::Start16 => 16,
        }
    }

    /// Whether ours runs the C program, too.
    pub fn is_c(self) -> bool {
        matches!(self, Self::Abi | Self::AbiFour) || self.is_start()
    }

    /// Whether there may be more ranks than cores.
    pub fn is_crowded(self) -> bool {
        self.ranks() > 2
    }

    /// Whether it is about starting: one figure a launch, whatever the cores are.
    pub fn is_start(self) -> bool {
        matches!(self, Self::Start2 | Self::Start8 | Self::Start16)
    }
}

/// What the ratio ours/best must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// Lower is better: the ratio must not exceed this.
    AtMost(f64),
    /// Higher is better: the ratio must reach this.
    AtLeast(f64),
}

impl Goal {
    pub fn met_by(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(limit) => ratio <= limit,
            Self::AtLeast(limit) => ratio >= limit,
        }
    }

    /// Whether `a` is a better value than `b`.
    pub fn prefers(self, a: f64, b: f64) -> bool {
        match self {
            Self::AtMost(_) => a < b,
            Self::AtLeast(_) => a > b,
        }
    }

    pub fn text(self) -> String {
        match self {
            Self::AtMost(limit) => format!("<={limit:.2}"),
            Self::AtLeast(limit) => format!(">={limit:.2}"),
        }
    }
}

/// One line of the comparison.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub name: &'static str,
    pub suite: Suite,
    pub spec: Spec,
    pub goal: Goal,
}

const fn row(
    name: &'static str,
    suite: Suite,
    test: Test,
    size: usize,
    iterations: usize,
    goal: Goal,
) -> Row {
    Row { name, suite, spec: Spec { test, size, iterations }, goal }
}

/// Every row. Iterations make a block of some 2 to 50 ms: longer than the clock's noise, shorter than the cores stay put.
pub const ROWS: &[Row] = &[
    row("shm_latency_8B", Suite::Shm, Test::Latency, 8, 10_000, Goal::AtMost(0.75)),
    row("shm_latency_4KiB", Suite::Shm, Test::Latency, 4 << 10, 4000, Goal::AtMost(0.9)),
    row("shm_latency_64KiB", Suite::Shm, Test::Latency, 64 << 10, 1000, Goal::AtMost(1.0)),
    row("shm_latency_1MiB", Suite::Shm, Test::Latency, 1 << 20, 60, Goal::AtMost(1.0)),
    row("shm_latency_4MiB", Suite::Shm, Test::Latency, 4 << 20, 20, Goal::AtMost(1.0)),
    row("shm_bw_64KiB", Suite::Shm, Test::Bw, 64 << 10, 30, Goal::AtLeast(1.0)),
    row("shm_bw_1MiB", Suite::Shm, Test::Bw, 1 << 20, 5, Goal::AtLeast(1.0)),
    row("shm_bw_4MiB", Suite::Shm, Test::Bw, 4 << 20, 2, Goal::AtLeast(1.0)),
    row("shm_rate_8B", Suite::Shm, Test::MbwMr, 8, 1000, Goal::AtLeast(1.2)),
    row("tcp_latency_8B", Suite::Tcp, Test::Latency, 8, 1000, Goal::AtMost(1.0)),
    row("tcp_latency_64KiB", Suite::Tcp, Test::Latency, 64 << 10, 200, Goal::AtMost(1.0)),
    row("tcp_latency_1MiB", Suite::Tcp, Test::Latency, 1 << 20, 30, Goal::AtMost(1.0)),
    row("tcp_bw_64KiB", Suite::Tcp, Test::Bw, 64 << 10, 10, Goal::AtLeast(1.0)),
    row("tcp_bw_1MiB", Suite::Tcp, Test::Bw, 1 << 20, 3, Goal::AtLeast(1.0)),
    row("ofi_latency_8B", Suite::Ofi, Test::Latency, 8, 1000, Goal::AtMost(1.0)),
    row("ofi_latency_16KiB", Suite::Ofi, Test::Latency, 16 << 10, 500, Goal::AtMost(1.0)),
    row("ofi_latency_64KiB", Suite::Ofi, Test::Latency, 64 << 10, 200, Goal::AtMost(1.0)),
    row("ofi_latency_256KiB", Suite::Ofi, Test::Latency, 256 << 10, 100, Goal::AtMost(1.0)),
    row("ofi_latency_1MiB", Suite::Ofi, Test::Latency, 1 << 20, 30, Goal::AtMost(1.0)),
    row("ofi_bw_64KiB", Suite::Ofi, Test::Bw, 64 << 10, 10, Goal::AtLeast(1.0)),
    row("ofi_bw_1MiB", Suite::Ofi, Test::Bw, 1 << 20, 3, Goal::AtLeast(1.0)),
    row("ofi_bare_8B", Suite::OfiBare, Test::Latency, 8, 1000, Goal::AtMost(1.1)),
    row("ofi_bare_1MiB", Suite::OfiBare, Test::Latency, 1 << 20, 30, Goal::AtMost(1.05)),
    row("uct_tcp_bare_8B", Suite::UctTcpBare, Test::Latency, 8, 1000, Goal::AtMost(1.1)),
    row("uct_tcp_bare_1MiB", Suite::UctTcpBare, Test::Latency, 1 << 20, 30, Goal::AtMost(1.05)),
    // UCX's shared memory has no messages longer than 64 KiB: nothing bare stands beside 1 MiB.
    row("uct_posix_bare_8B", Suite::UctPosixBare, Test::Latency, 8, 10_000, Goal::AtMost(1.1)),
    row("exchange4_8B", Suite::Four, Test::Exchange, 8, 400, Goal::AtMost(1.2)),
    row("exchange4_64KiB", Suite::Four, Test::Exchange, 64 << 10, 100, Goal::AtMost(1.2)),
    row("abi_latency_8B", Suite::Abi, Test::Latency, 8, 10_000, Goal::AtMost(1.0)),
    row("abi_bw_64KiB", Suite::Abi, Test::Bw, 64 << 10, 30, Goal::AtLeast(1.0)),
    row("abi_bibw_64KiB", Suite::Abi, Test::Bibw, 64 << 10, 20, Goal::AtLeast(1.0)),
    row("abi_rate_8B", Suite::Abi, Test::MbwMr, 8, 1000, Goal::AtLeast(1.0)),
    row("abi_barrier", Suite::Abi, Test::Barrier, 0, 8000, Goal::AtMost(1.0)),
    row("abi_bcast_8B", Suite::Abi, Test::Bcast, 8, 8000, Goal::AtMost(1.0)),
    row("abi_bcast_64KiB", Suite::Abi, Test::Bcast, 64 << 10, 400, Goal::AtMost(1.0)),
    row("abi_allreduce_8B", Suite::Abi, Test::Allreduce, 8, 8000, Goal::AtMost(1.0)),
    row("abi_allreduce_64KiB", Suite::Abi, Test::Allreduce, 64 << 10, 300, Goal::AtMost(1.0)),
    row("abi_alltoall_8B", Suite::Abi, Test::Alltoall, 8, 8000, Goal::AtMost(1.0)),
    row("abi_alltoall_64KiB", Suite::Abi, Test::Alltoall, 64 << 10, 300, Goal::AtMost(1.0)),
    row("abi_ibcast_64KiB", Suite::Abi, Test::Ibcast, 64 << 10, 200, Goal::AtMost(1.0)),
    row("abi_iallreduce_8B", Suite::Abi, Test::Iallreduce, 8, 400, Goal::AtMost(1.0)),
    row("abi_iallreduce_64KiB", Suite::Abi, Test::Iallreduce, 64 << 10, 200, Goal::AtMost(1.0)),
    row("abi_vector_64KiB", Suite::Abi, Test::Vector, 64 << 10, 300, Goal::AtMost(1.0)),
    row("abi4_barrier", Suite::AbiFour, Test::Barrier, 0, 400, Goal::AtMost(1.0)),
    row("abi4_allreduce_8B", Suite::AbiFour, Test::Allreduce, 8, 400, Goal::AtMost(1.0)),
    row("start2", Suite::Start2, Test::Startup, 0, 1, Goal::AtMost(1.0)),
    row("memory2", Suite::Start2, Test::Memory, 0, 1, Goal::AtMost(1.0)),
    row("start8", Suite::Start8, Test::Startup, 0, 1, Goal::AtMost(1.0)),
    row("memory8", Suite::Start8, Test::Memory, 0, 1, Goal::AtMost(1.0)),
    row("start16", Suite::Start16, Test::Startup, 0, 1, Goal::AtMost(1.0)),
    row("memory16", Suite::Start16, Test::Memory, 0, 1, Goal::AtMost(1.0)),
];

/// A value of `test` as it is printed: short, with the unit people use.
pub fn show(test: Test, value: f64) -> String {
    let (value, unit) = match test {
        Test::Bw | Test::Bibw => (value / 1e3, "GB/s"),
        Test::MbwMr => (value / 1e6, "M/s"),
        Test::Startup => (value, "ms"),
        Test::Memory => (value, "MiB"),
        _ => (value, "us"),
    };
    match value {
        v if v < 10.0 => format!("{v:.3}{unit}"),
        v if v < 100.0 => format!("{v:.2}{unit}"),
        v => format!("{v:.1}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Goal, ROWS, show};
    use ironweave_benches::spec::Test;

    #[test]
    fn goals_have_a_direction() {
        assert!(Goal::AtMost(0.75).met_by(0.75) && !Goal::AtMost(0.75).met_by(0.76));
        assert!(Goal::AtLeast(1.2).met_by(1.2) && !Goal::AtLeast(1.2).met_by(1.19));
        assert!(Goal::AtMost(1.0).prefers(1.0, 2.0) && Goal::AtLeast(1.0).prefers(2.0, 1.0));
    }

    #[test]
    fn every_row_fits_its_suite() {
        for row in ROWS {
            assert_eq!(row.spec.test.check_ranks(row.suite.ranks()), Ok(()), "{}", row.name);
        }
    }

    #[test]
    fn values_are_short() {
        assert_eq!(show(Test::Latency, 0.0741), "0.074us");
        assert_eq!(show(Test::Bw, 15_020.0), "15.02GB/s");
        assert_eq!(show(Test::MbwMr, 34.2e6), "34.20M/s");
    }
}
