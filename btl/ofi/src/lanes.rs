//! Lanes: endpoints for one peer alone each, which long reads go over, because closing one is the only way to have a provider
//! let go of memory while it serves other peers (law 2).
//!
//! Each side tells the other its lane's address (`Kind::Lane`), and reads go from lane to lane. So what two processes read
//! of each other shares one connection, whose data acknowledge each other: over a TCP connection with data one way alone, the end of a
//! message waits for a delayed acknowledgement, is sent again by a timer, and the next message is slowed down for it (with BBR by
//! half, at 1 MiB). A peer that opens no lane is read from where its frames come from.

use ironweave_ffi::ofi::{FiAddr, Lane, Port};

/// Peers with a lane at once: each is an endpoint, which some providers give megabytes of buffers.
const LANES: usize = 16;

struct OfLife {
    life: u64,
    lane: Lane,
    /// The peer's lane, when it has told.
    there: Option<FiAddr>,
}

/// All lanes of one rail.
#[derive(Default)]
pub(crate) struct Lanes {
    open: Vec<OfLife>,
    /// The provider has none, or would not open one.
    none: bool,
    /// Lanes that their peers are to be told of: of which life, at which address.
    pub untold: Vec<(u64, Vec<u8>)>,
}

impl Lanes {
    /// No lanes; `possible`: there may be some.
    pub(crate) fn new(possible: bool) -> Self {
        Lanes { none: !possible, ..Lanes::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// How many lead to a lane of the peer's.
    pub(crate) fn joined(&self) -> usize {
        self.open.iter().filter(|of| of.there.is_some()).count()
    }

    pub(crate) fn lives(&self) -> Vec<u64> {
        self.open.iter().map(|of| of.life).collect()
    }

    /// Whether a lane may still write memory of that life's reads.
    pub(crate) fn has(&self, life: u64) -> bool {
        self.open.iter().any(|of| of.life == life)
    }

    /// The lane of a life, opened at first use, and the peer's, when that is known; `None` when there can be no more.
    pub(crate) fn open(&mut self, port: &mut Port, life: u64) -> Option<(&Lane, Option<FiAddr>)> {
        let known = self.open.iter().position(|of| of.life == life);
        let at = match known {
            Some(at) => at,
            None if self.none || self.open.len() >= LANES => return None,
            None => match port.open_lane() {
                Ok((lane, name)) => {
                    self.untold.push((life, name));
                    self.open.push(OfLife { life, lane, there: None });
                    self.open.len() - 1
                }
                Err(error) => {
                    tracing::debug!(%error, "ofi reads go by way of buffers");
                    self.none = true;
                    return None;
                }
            },
        };
        Some((&self.open[at].lane, self.open[at].there))
    }

    /// The peer of that life has a lane at `name`: ours, opened if there can be one, leads there from now on. Said again, it
    /// changes nothing: a life has one lane, and address vectors only grow.
    pub(crate) fn join(&mut self, port: &mut Port, life: u64, name: &[u8]) {
        if !matches!(self.open(port, life), Some((_, None))) {
            return;
        }
        match port.insert(name) {
            Ok(there) => {
                let ours = self.open.iter_mut().find(|of| of.life == life);
                ours.expect("just opened").there = Some(there);
            }
            Err(error) => tracing::debug!(%error, "a peer's lane cannot be reached"),
        }
    }

    /// Closes the lane of a life; `false` when the provider does not let go of its memory yet.
    pub(crate) fn close(&mut self, port: &mut Port, life: u64) -> bool {
        let Some(at) = self.open.iter().position(|of| of.life == life) else { return true };
        let OfLife { lane, there, .. } = self.open.swap_remove(at);
        self.untold.retain(|(of, _)| *of != life);
        match port.close_lane(lane) {
            Ok(()) => true,
            Err(lane) => {
                self.open.push(OfLife { life, lane, there });
                false
            }
        }
    }
}
