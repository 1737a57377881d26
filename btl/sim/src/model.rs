//! How a simulated rail behaves: LogGP timing, limits, and the ways in which it fails. Plain data.

use ironweave_btl::{Caps, Cause, FailureReport, Fault, Peer};

/// What the death of the process at the other end looks like on a rail that reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Death {
    /// Proof: a fault of scope `Peer` with `ProcessGone`, as shm gives by pidfd.
    Proof,
    /// Only the rail is lost, as a closed socket tells.
    Disconnected,
}

impl Death {
    /// The fault it shows as.
    #[must_use]
    pub fn fault(self, peer: Peer) -> Fault {
        match self {
            Death::Proof => Fault::peer(peer, Cause::ProcessGone),
            Death::Disconnected => Fault::rail(peer, Cause::Disconnected),
        }
    }
}

/// The behaviour of one kind of rail. Times are virtual nanoseconds; probabilities are in thousandths.
#[derive(Clone, Debug)]
pub struct RailModel {
    /// Limits and capabilities, as the transport reports them. `failure_report` decides how death shows.
    pub caps: Caps,
    /// LogGP *L*: time on the wire.
    pub latency_ns: u64,
    /// LogGP *o*: time of the sender for a frame.
    pub overhead_ns: u64,
    /// LogGP *g*: least time between two frames of one port.
    pub gap_ns: u64,
    /// LogGP *G*: time for a byte, in picoseconds.
    pub byte_ps: u64,
    /// Most that is added to a frame's latency, uniformly.
    pub jitter_ns: u64,
    /// How often a frame meets a delay spike.
    pub spike: u32,
    /// Length of a delay spike.
    pub spike_ns: u64,
    /// Time from `connect` to the peer's answer, without latency.
    pub connect_ns: u64,
    /// Time after which a rail gives up on a peer that cannot be reached.
    pub retry_ns: u64,
    /// Time in which death shows where it is reported promptly.
    pub detect_ns: u64,
    /// Frames that may be under way to one peer, unread ones included, before `NoRoom`.
    pub credits: u32,
    /// How often a send is told `NoRoom` for no visible reason.
    pub no_room: u32,
    /// How often a payload of at least `landing_min` bytes is offered to `landing`.
    pub landing: u32,
    /// The shortest payload that is offered to `landing`, in bytes.
    pub landing_min: usize,
    /// How often an endpoint takes its time between fence and `closed`.
    pub slow_close: u32,
    /// What death looks like.
    pub death: Death,
}

impl RailModel {
    /// A network with sockets: ordered, no remote access, death is a closed connection.
    #[must_use]
    pub fn tcp() -> Self {
        RailModel {
            caps: Caps {
                name: "sim-tcp",
                device: String::from("simulated network"),
                max_short: 1024,
                max_bcopy: 64 << 10,
                max_zcopy: 1 << 20,
                zcopy_from: ironweave_btl::ZCOPY_FROM,
                eager_limit: 32 << 10,
                posted_limit: 32 << 10,
                rndv_eager_limit: 8 << 10,
                fragment: 128 << 10,
                put: false,
                get: false,
                atomics: false,
                read_from: usize::MAX,
                ordered: true,
                lossless: false,
                latency_ns: 5_000,
                bandwidth_mbs: 5_000,
                exclusivity: 100,
                failure_report: FailureReport::Prompt,
            },
            latency_ns: 5_000,
            overhead_ns: 500,
            gap_ns: 200,
            byte_ps: 200,
            jitter_ns: 2_000,
            spike: 2,
            spike_ns: 500_000,
            connect_ns: 20_000,
            retry_ns: 5_000_000,
            detect_ns: 100_000,
            credits: 64,
            no_room: 5,
            landing: 500,
            landing_min: 1024,
            slow_close: 300,
            death: Death::Disconnected,
        }
    }

    /// Shared memory: ordered rings, short queues, proof of death.
    #[must_use]
    pub fn shm() -> Self {
        let tcp = Self::tcp();
        RailModel {
            caps: Caps {
                name: "sim-shm",
                device: String::from("simulated memory"),
                max_short: 2048,
                max_bcopy: 32 << 10,
                max_zcopy: 32 << 10,
                zcopy_from: ironweave_btl::ZCOPY_FROM,
                eager_limit: 8 << 10,
                posted_limit: 8 << 10,
                fragment: 32 << 10,
                latency_ns: 100,
                bandwidth_mbs: 20_000,
                exclusivity: 1_000,
                ..tcp.caps
            },
            latency_ns: 60,
            overhead_ns: 20,
            gap_ns: 10,
            byte_ps: 50,
            jitter_ns: 100,
            spike: 1,
            spike_ns: 100_000,
            connect_ns: 10_000,
            credits: 16,
            landing: 0,
            slow_close: 0,
            death: Death::Proof,
            ..tcp
        }
    }

    /// An RDMA device: put and get, frames of one peer in order, death shows when something is sent.
    #[must_use]
    pub fn verbs() -> Self {
        let tcp = Self::tcp();
        RailModel {
            caps: Caps {
                name: "sim-verbs",
                device: String::from("simulated device"),
                max_short: 256,
                max_bcopy: 8 << 10,
                max_zcopy: 1 << 20,
                zcopy_from: ironweave_btl::ZCOPY_FROM,
                eager_limit: 8 << 10,
                posted_limit: 8 << 10,
                fragment: 64 << 10,
                put: true,
                get: true,
                atomics: true,
                latency_ns: 1_000,
                bandwidth_mbs: 12_000,
                failure_report: FailureReport::OnUse,
                ..tcp.caps
            },
            latency_ns: 900,
            overhead_ns: 100,
            gap_ns: 50,
            byte_ps: 80,
            jitter_ns: 200,
            credits: 32,
            landing: 0,
            slow_close: 700,
            ..tcp
        }
    }

    /// A provider as measured in libfabric: it never tells that a peer died, and may reorder frames.
    #[must_use]
    pub fn silent() -> Self {
        let tcp = Self::tcp();
        RailModel {
            caps: Caps {
                name: "sim-silent",
                ordered: false,
                failure_report: FailureReport::Silent,
                ..tcp.caps
            },
            ..tcp
        }
    }

    /// The same rail without chance: no jitter, spikes or refusals, for tests that count.
    #[must_use]
    pub fn calm(mut self) -> Self {
        self.jitter_ns = 0;
        self.spike = 0;
        self.no_room = 0;
        self.slow_close = 0;
        self
    }
}
