//! What the layer above chooses about this transport, and why opening it can fail.

use ironweave_btl::{Peer, copy};
use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// How long messages travel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SingleCopy {
    /// By single copy (`process_vm_readv`) where the kernel permits it, as long as that is faster than what a trial between two of
    /// the cores that this process may use, made once, shows of the ring (`trial.rs`).
    #[default]
    Auto,
    /// From 32 KiB on by single copy whenever the kernel permits it.
    Cma,
    /// From 32 KiB on by single copy where the kernel permits it, as long as it takes less than so many picoseconds a byte
    /// (`ways.rs`), for messages of 64 KiB, and of 256 KiB and more: what the ring takes, as a [`trial`](crate::trial) found.
    Under([u32; 2]),
    /// Always by copy-in, copy-out.
    None,
}

impl fmt::Display for SingleCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SingleCopy::Auto => f.write_str("auto"),
            SingleCopy::Cma => f.write_str("cma"),
            SingleCopy::Under([short, long]) => write!(f, "{short},{long}"),
            SingleCopy::None => f.write_str("none"),
        }
    }
}

impl FromStr for SingleCopy {
    type Err = ParseIntError;

    /// Reads what `Display` writes.
    fn from_str(text: &str) -> Result<SingleCopy, ParseIntError> {
        Ok(match text {
            "auto" => SingleCopy::Auto,
            "cma" => SingleCopy::Cma,
            "none" => SingleCopy::None,
            ps => {
                let (short, long) = ps.split_once(',').unwrap_or((ps, ""));
                SingleCopy::Under([short.parse()?, long.parse()?])
            }
        })
    }
}

/// How payloads are stored into a ring.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Stores {
    /// Through the cache to near readers, past it to far ones, but for what goes to and fro (`shuttle.rs`); measured again and again.
    #[default]
    Auto,
    /// Always through the cache.
    Cached,
    /// Past the cache, all that can be.
    Streaming,
}

/// How to open a [`Shm`](crate::Shm).
#[derive(Clone)]
pub struct ShmConfig {
    /// Who we are.
    pub me: Peer,
    /// The job's name. Processes of different jobs never connect.
    pub job: String,
    /// The job's secret, which both sides of a connection prove to know.
    pub secret: [u8; 32],
    /// Bytes of records in one ring: a power of two from 16 KiB to 16 MiB.
    pub ring_bytes: usize,
    /// Bytes for payloads beyond the records in one ring: a multiple of 4 KiB from 64 KiB to 256 MiB. Memory that
    /// is never used costs nothing, but a pair that goes on exchanging long messages uses all of it, both ways:
    /// with many processes on a node, choose less than the usual twice, or half, a core's own cache. A pair that answers messages of
    /// 1 to 128 KiB uses four shuttles besides, of a quarter of this each, at most 128 KiB (`shuttle.rs`).
    pub bulk_bytes: usize,
    /// How long messages travel.
    pub single_copy: SingleCopy,
    /// How payloads are stored.
    pub stores: Stores,
    /// More processes than cores: see [`oversubscribe`](ShmConfig::oversubscribe).
    pub oversubscribed: bool,
}

impl ShmConfig {
    /// The usual choices for process `me` of the job called `job`.
    #[must_use]
    pub fn new(me: Peer, job: impl Into<String>, secret: [u8; 32]) -> Self {
        ShmConfig {
            me,
            job: job.into(),
            secret,
            ring_bytes: RING,
            bulk_bytes: default_bulk(),
            single_copy: SingleCopy::Auto,
            stores: Stores::Auto,
            oversubscribed: false,
        }
    }
}

/// Bytes of records in a ring. Measured in turns, windows of 8 bytes: 21 to 23 million messages a second with this or more, 19 to 21
/// with 64 KiB.
const RING: usize = 256 << 10;

/// Bytes for long payloads in a ring when there are more processes than cores: it is read by the time it is full, and
/// several rings share a core's cache.
const CROWDED_BULK: usize = 512 << 10;

/// On AMD's processors twice a core's own cache: when the writer comes round, the lines are no more in the reader's cache, out of
/// which it would get them three times as slowly (measured at 64 KiB: 14 against 38 GB/s; with four times, single long messages
/// become slower again; `shuttle.rs` has more). Where cores share their cache over a mesh half of it, so that lines go straight
/// from one core's cache to the other's: on a Xeon of the fifth generation, in turns with twice as much, 1 MiB 98 to 91 µs, 4 MiB 409 to 362,
/// windows of 64 KiB 11.4 to 12.5 GB/s, of 1 MiB 9.8 to 10.3; a quarter and an eighth of it were no better.
fn default_bulk() -> usize {
    const KIB: usize = 1 << 10;
    let size = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index2/size");
    let own = size.ok().and_then(|size| size.trim().strip_suffix('K')?.parse::<usize>().ok());
    let own = own.unwrap_or(KIB).clamp(KIB / 2, 4 * KIB) * KIB;
    let bulk = if copy::is_amd() { 2 * own } else { (own / 2).max(CROWDED_BULK) };
    bulk.next_multiple_of(4 * KIB)
}

impl ShmConfig {
    /// For more processes than cores: sleeping and waking are frequent, so each sender pays a fence per message and the
    /// sleeper no system call; rings are small, and payloads are not cut.
    pub fn oversubscribe(&mut self) {
        self.oversubscribed = true;
        self.bulk_bytes = self.bulk_bytes.min(CROWDED_BULK);
    }
}

impl fmt::Debug for ShmConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // All but the secret.
        f.debug_struct("ShmConfig")
            .field("me", &self.me)
            .field("job", &self.job)
            .field("ring_bytes", &self.ring_bytes)
            .field("bulk_bytes", &self.bulk_bytes)
            .field("single_copy", &self.single_copy)
            .field("stores", &self.stores)
            .field("oversubscribed", &self.oversubscribed)
            .finish_non_exhaustive()
    }
}

/// Why the transport could not be opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// A size in the configuration is out of its range.
    #[error("shm: {what} cannot be {value} bytes")]
    Size {
        /// Which.
        what: &'static str,
        /// What was asked for.
        value: usize,
    },
    /// The operating system said no.
    #[error("shm: {call}: {}", std::io::Error::from_raw_os_error(*errno))]
    Os {
        /// The call that failed.
        call: &'static str,
        /// Its `errno`.
        errno: i32,
    },
    /// Something else that has no better name.
    #[error("shm: {0}")]
    Other(String),
}
