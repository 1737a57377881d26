//! What the owner of the engine may set. A limit on everything that a peer can make grow.

use ironweave_btl::Peer;

/// Settings of one engine.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who this process is.
    pub me: Peer,
    /// Longest message sent without rendezvous, in bytes, where the rail allows that much; `None`: the rail's own
    /// [`Caps::eager_limit`](ironweave_btl::Caps).
    pub eager_limit: Option<usize>,
    /// Frames of one peer kept while they wait for earlier ones of another rail, or for a communicator that this
    /// process has not made yet.
    pub early_frames: usize,
    /// Payload bytes in those frames.
    pub early_bytes: usize,
    /// Bytes of one peer's messages that are kept because nothing is posted for them; beyond, that peer announces its
    /// messages and keeps the data.
    pub unexpected_bytes: usize,
    /// Of all peers together.
    pub unexpected_all: usize,
    /// Long messages of one peer in a row that find their receives posted until it is told that it need not ask before the next.
    pub posted_run: u16,
    /// Fragments of long messages handed to rails for one peer in one call of `progress`.
    pub burst: usize,
    /// Zero-copy fragments of one message that may be with the rails at a time.
    pub depth: u32,
    /// Rails may read or write registered memory (RGET and PUT); otherwise only fragments are used.
    pub rdma: bool,
}

impl Config {
    /// The defaults for process `me`.
    #[must_use]
    pub const fn new(me: Peer) -> Self {
        Config {
            me,
            eager_limit: None,
            early_frames: 16 << 10,
            early_bytes: 64 << 20,
            unexpected_bytes: 16 << 20,
            unexpected_all: 512 << 20,
            posted_run: 4,
            burst: 64,
            depth: 16,
            rdma: true,
        }
    }
}
