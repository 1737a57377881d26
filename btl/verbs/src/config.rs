//! What the owner says about verbs, and what can be wrong with it.

use crate::address::Ip;
use ironweave_btl::Peer;
use ironweave_ffi_verbs::{Timers, VerbsError};
use std::fmt;
use std::time::Duration;

/// How the verbs rails of a process are opened. `Default` has a null identity and secret: set at least
/// `me`, `secret` and `job`.
#[derive(Clone)]
pub struct VerbsConfig {
    /// This process.
    pub me: Peer,
    /// The secret of the job, which every connection proves both ways.
    pub secret: [u8; 32],
    /// The name of the job, bound into the proofs.
    pub job: String,
    /// Use only these devices, `mlx5_0` or with a port `mlx5_0:1`, in this order; empty means all active ports.
    pub include: Vec<String>,
    /// Never use these; stronger than `include`.
    pub exclude: Vec<String>,
    /// The entry of the port's GID table; `None` chooses (RoCE v2; 0 on InfiniBand).
    pub gid_index: Option<u8>,
    /// Which Internet protocol to use over Ethernet, where `gid_index` does not say.
    pub ip: Ip,
    /// Send global headers on InfiniBand too, for subnets behind routers.
    pub global: bool,
    /// The entry of the port's partition table.
    pub pkey_index: u16,
    /// Service level.
    pub service_level: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Largest path MTU to use, as devices count: 1 for 256 bytes to 5 for 4096.
    pub mtu: u8,
    /// When a queue pair gives up.
    pub timers: Timers,
    /// How long a connection may take until it is up.
    pub connect_timeout: Duration,
    /// How long a request may stay without a completion of any kind before the endpoint is lost: devices are seen to
    /// stay silent when a link is cut. Longer than the retries of `timers` take.
    pub stall_timeout: Duration,
    /// How long a port may stay down before its endpoints are lost.
    pub link_timeout: Duration,
    /// An endpoint idle for this long is probed, so that a peer that died shows; zero never probes.
    pub probe: Duration,
    /// Longest payload of one frame, in bytes.
    pub buffer: usize,
    /// Frames that a peer may send before this side has taken them.
    pub credits: u32,
    /// Buffers to send from.
    pub slots: u32,
    /// Largest number of buffers posted to receive into, for all peers.
    pub receives_max: u32,
    /// Places in the queue of completed requests, for all peers; less where the device has less.
    pub completions: u32,
    /// Requests in the queue of one peer.
    pub queue: u32,
    /// Bytes of [lasting](ironweave_btl::lasting) memory that stay registered, at most.
    pub kept: usize,
    /// Whether devices that page on demand keep the user's own memory registered.
    pub on_demand: OnDemand,
    /// Have a device show that it pages on demand rightly before it is relied upon. Only tests that know what is wrong with a
    /// device leave that out.
    pub trial: bool,
    /// Bytes sent inline, if the device can.
    pub inline: u32,
    /// Whether peers may write short frames straight into rings of ours, and we into theirs.
    pub ring: Ring,
    /// A peer is offered one when it has sent this many short frames; 0 for never.
    pub ring_after: u32,
    /// Peers that have one at a time, at most: each progress looks at all of them, and each is registered memory.
    pub ring_peers: u32,
    /// Slots of a ring, 1 to 1024.
    pub ring_slots: u32,
    /// Bytes of a slot, prefix and trailer included: 128 to 4096.
    pub ring_size: usize,
}

/// Whether to use rings for short frames: see `ring.rs` for what a device must do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ring {
    /// On InfiniBand and RoCE. Not over iWARP, where the order in which the bytes of a write appear is open until a later
    /// send is delivered (RFC 5040, 5.5), and no practice is known.
    #[default]
    Auto,
    /// Over iWARP, too: the check in each slot keeps it right.
    On,
    /// Nowhere.
    Off,
}

/// Whether to keep the user's own memory registered, where devices page on demand: see `paged.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnDemand {
    /// What is used again.
    #[default]
    Auto,
    /// From the first use on.
    Always,
    /// Nothing, nor is memory paged on demand where the limit of locked memory is reached.
    Never,
}

impl Default for VerbsConfig {
    fn default() -> Self {
        VerbsConfig {
            me: Peer(0),
            secret: [0; 32],
            job: String::new(),
            include: Vec::new(),
            exclude: Vec::new(),
            gid_index: None,
            ip: Ip::Any,
            global: false,
            pkey_index: 0,
            service_level: 0,
            traffic_class: 0,
            mtu: 5,
            timers: Timers { timeout: 14, retries: 6, busy_retries: 6, busy_wait: 12 },
            connect_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(10),
            link_timeout: Duration::from_secs(2),
            probe: Duration::from_secs(1),
            buffer: 8 << 10,
            credits: 32,
            slots: 256,
            receives_max: 8192,
            completions: 16_384,
            queue: 128,
            kept: 256 << 20,
            on_demand: OnDemand::Auto,
            trial: true,
            inline: 220,
            ring: Ring::Auto,
            ring_after: 16,
            ring_peers: 16,
            ring_slots: 32,
            ring_size: 256,
        }
    }
}

impl fmt::Debug for VerbsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsConfig")
            .field("me", &self.me)
            .field("job", &self.job)
            .field("include", &self.include)
            .field("exclude", &self.exclude)
            .field("timers", &self.timers)
            .finish_non_exhaustive() // never the secret
    }
}

fn no_gid(wanted: Option<u8>) -> String {
    match wanted {
        Some(index) => format!("entry {index} of its GID table is empty or not there"),
        None => String::from("no entry of its GID table can be used"),
    }
}

impl OpenError {
    /// What a device said while `device` was opened.
    pub(crate) fn of(device: &str, source: VerbsError) -> OpenError {
        let device = device.to_owned();
        match source {
            VerbsError::Call { call: "ibv_reg_mr", errno } if is_shortage(errno) => {
                let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
                let limit = limit.map_or_else(
                    || String::from("any amount"),
                    |bytes| format!("{} KiB", bytes >> 10),
                );
                OpenError::LockedMemory { device, limit }
            }
            source => OpenError::Refused { device, source },
        }
    }
}

/// Whether an error number says that something ran out.
pub(crate) fn is_shortage(errno: i32) -> bool {
    use rustix::io::Errno;
    let short = [Errno::NOMEM, Errno::AGAIN, Errno::NOSPC, Errno::MFILE];
    // A library may say any number, also one that is no error's.
    short.iter().any(|known| known.raw_os_error() == errno)
}

/// Verbs could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The library or a device is not there.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// Nothing is left after `include` and `exclude`.
    #[error("no usable RDMA port ({why})")]
    NoPort {
        /// What was seen.
        why: String,
    },
    /// The entry of the port's GID table that was asked for is empty or not there, or none can be used.
    #[error("{device}: {} ({entries} entries)", no_gid(*wanted))]
    NoGid {
        /// Which port.
        device: String,
        /// Which entry was asked for.
        wanted: Option<u8>,
        /// Entries that the table has.
        entries: u32,
    },
    /// The port's partition table has no such entry.
    #[error("{device}: there is no entry {wanted} in its partition table ({entries} entries)")]
    NoPartition {
        /// Which port.
        device: String,
        /// Which entry was asked for.
        wanted: u16,
        /// Entries that the table has.
        entries: u16,
    },
    /// The system refused to lock the memory that the device needs.
    #[error(
        "{device}: no memory could be registered: a process may have {limit} of locked memory here; raise the \
        limit (ulimit -l; `* - memlock unlimited` in /etc/security/limits.conf; LimitMEMLOCK= of the batch system)"
    )]
    LockedMemory {
        /// Which port.
        device: String,
        /// The limit, in words.
        limit: String,
    },
    /// A device has less of something than a rail needs, or refused a call.
    #[error("{device}: {source}")]
    Refused {
        /// Which port.
        device: String,
        /// What it said.
        source: VerbsError,
    },
    /// The operating system refused.
    #[error("{call}: {source}")]
    Os {
        /// Which call.
        call: &'static str,
        /// Why.
        source: std::io::Error,
    },
}
