//! What a transport can do, and how good it is at it.

/// How the death of a peer shows on this transport.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FailureReport {
    /// By itself, soon (a closed socket, a pidfd).
    Prompt,
    /// Only when something is sent to it.
    OnUse,
    /// Never: the launcher or the detector has to tell.
    Silent,
}

/// [`Caps::zcopy_from`] of most transports: shorter payloads are copied in the time that it takes to keep account of memory.
pub const ZCOPY_FROM: usize = 8 << 10;

/// The capabilities of one opened transport. Constant after opening.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caps {
    /// The component's name as users select it: `self`, `shm`, `tcp`, ….
    pub name: &'static str,
    /// Which device, interface or link, for messages to people.
    pub device: String,
    /// Longest header + payload of [`Btl::send_short`](crate::Btl::send_short), in bytes.
    pub max_short: usize,
    /// Longest payload of one frame packed by [`Btl::send_bcopy`](crate::Btl::send_bcopy), in bytes.
    pub max_bcopy: usize,
    /// Longest payload of one frame of [`Btl::send_zcopy`](crate::Btl::send_zcopy), in bytes; 0 when it has none.
    pub max_zcopy: usize,
    /// Payloads from this length on, in bytes, better go by [`Btl::send_zcopy`](crate::Btl::send_zcopy) than packed, where it has that.
    pub zcopy_from: usize,
    /// The longest message best sent without rendezvous, in bytes (may span several frames).
    pub eager_limit: usize,
    /// The same to a peer that was seen to have its receives posted before such messages come, in bytes; not below `eager_limit`.
    pub posted_limit: usize,
    /// How much of a longer one best comes along with its announcement, in bytes: it is on its way while the answer is.
    pub rndv_eager_limit: usize,
    /// The payload length of a pipeline fragment that this transport likes best, in bytes.
    pub fragment: usize,
    /// Remote memory can be written ([`Btl::rma`](crate::Btl::rma)).
    pub put: bool,
    /// Remote memory can be read ([`Btl::rma`](crate::Btl::rma)), and doing so beats fragments.
    pub get: bool,
    /// Numbers in remote memory can be changed in one step ([`Btl::rma`](crate::Btl::rma) with [`RmaKind::Atomic`](crate::RmaKind)).
    pub atomics: bool,
    /// Messages of at least so many bytes that could go without asking may better be read: [`is_read`](crate::Btl::is_read) says which.
    pub read_from: usize,
    /// Frames to one peer arrive in the order in which they were taken.
    pub ordered: bool,
    /// The rail itself is never lost while both processes live (memory of one host): what it took arrives, so nobody has
    /// to keep it for another rail.
    pub lossless: bool,
    /// Rough one-way latency in nanoseconds: smaller is tried first for eager messages.
    pub latency_ns: u32,
    /// Rough bandwidth in MB/s: long messages are striped in proportion.
    pub bandwidth_mbs: u32,
    /// Rails of the highest exclusivity that reach a peer are used, others are kept in reserve
    /// (`self` above `shm` above networks), as in Open MPI.
    pub exclusivity: u32,
    /// How a dead peer shows.
    pub failure_report: FailureReport,
}
