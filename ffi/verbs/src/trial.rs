//! Whether a device that says it pages memory on demand does so rightly.
//!
//! Soft-RoCE of Linux 6.15 and later says so and, at least up to 7.3.4, leaves out where in a page an access begins, and where in a
//! packet the next page goes on: what is not cut at page boundaries lands at the wrong place, beyond what was registered
//! too. So nobody should believe a device before it was seen to be right.

use crate::{
    Access, Channel, CompletionQueue, Device, Kind, Operation, Paging, Path, QueuePair,
    Registration, Sge, Status, Timers, VerbsError, Wc,
};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of each piece of memory: some pages.
const LEN: usize = 4 * 4096;
/// Bytes of each transfer: more than two pages, and no whole number of anything.
const MOVED: usize = 8997;
/// A device that takes longer is not trusted either.
const LIMIT: Duration = Duration::from_millis(500);
/// It is with us: short waits.
const TIMERS: Timers = Timers { timeout: 14, retries: 2, busy_retries: 2, busy_wait: 12 };

/// What a trial found.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The device, or the library, refuses something.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// A transfer failed.
    #[error("a {what} on demand: {}", status.words())]
    Failed {
        /// Which.
        what: &'static str,
        /// How.
        status: Status,
    },
    /// A transfer did not end.
    #[error("a {0} on demand did not end within {LIMIT:?}")]
    Late(&'static str),
    /// Something else arrived, or elsewhere.
    #[error("a {what} on demand left {found} in byte {at}, not {wanted}")]
    Wrong {
        /// Which.
        what: &'static str,
        /// Where in the target.
        at: usize,
        /// What was there.
        found: u8,
        /// What should have been.
        wanted: u8,
    },
}

/// Writes and reads between two pieces of memory that are paged on demand, at odd places, over a queue pair that is connected to
/// itself by `path` (which leads to the port itself), then once more when all their pages were taken away. Blocks until that is
/// done, half a second at most for each of four transfers.
///
/// # Errors
/// What was wrong: do not page on demand with this device.
pub fn try_on_demand(
    device: &Device,
    path: &Path,
    pkey_index: u16,
    mtu: u8,
) -> Result<(), TrialError> {
    // Dropped last to first: the queue pair goes before what it reaches.
    let [source, target] = [Pages::new()?, Pages::new()?];
    // SAFETY: mapped until after the registrations are gone, and ours alone.
    let registered = |pages: &Pages, access| unsafe {
        Registration::new(device, pages.start.as_ptr(), LEN, access, Paging::OnDemand)
    };
    let (from, to) =
        (registered(&source, Access::RemoteRead)?, registered(&target, Access::RemoteWrite)?);
    let queue = CompletionQueue::new(device, &Channel::new(device)?, 4)?;
    let pair = QueuePair::new(device, Kind::Reliable, &queue, &queue, None, (2, 1), 1, 0)?;
    pair.prepare(path.port, pkey_index)?;
    pair.connect(path, pair.number(), (0, 0), mtu, 1, TIMERS)?;
    for round in 1..=2 {
        for (what, ours, theirs) in [("write", 40, 100), ("read", 4095, 8)] {
            source.fill(|at| (at * 7) as u8 ^ round);
            target.fill(|_| 0xee);
            let local = |pages: &Pages, at, lkey| Sge {
                addr: pages.address(at),
                length: MOVED as u32,
                lkey,
            };
            let (first, then) = if what == "write" { (ours, theirs) } else { (theirs, ours) };
            let (operation, piece) = if what == "write" {
                let (address, rkey) = (target.address(then), to.rkey());
                (Operation::Write { address, rkey }, local(&source, first, from.lkey()))
            } else {
                let (address, rkey) = (source.address(first), from.rkey());
                (Operation::Read { address, rkey }, local(&target, then, to.lkey()))
            };
            // SAFETY: both pieces outlive the queue pair, and nobody looks before it is over.
            unsafe { pair.post(0, operation, &[piece], true, false)? };
            over(&queue, what)?;
            target.check(what, |at| match at.checked_sub(then) {
                Some(nth @ ..MOVED) => ((first + nth) * 7) as u8 ^ round,
                _ => 0xee,
            })?;
        }
        source.take_away();
        target.take_away();
    }
    Ok(())
}

/// Waits for the request to be over.
fn over(queue: &Arc<CompletionQueue>, what: &'static str) -> Result<(), TrialError> {
    let end = Instant::now() + LIMIT;
    let mut completion = [Wc::default()];
    loop {
        match queue.poll(&mut completion) {
            Some(0) if Instant::now() > end => return Err(TrialError::Late(what)),
            Some(0) => std::thread::yield_now(),
            Some(_) => break,
            None => return Err(TrialError::Failed { what, status: Status::Fatal }),
        }
    }
    match Status::of(completion[0].status) {
        Status::Success => Ok(()),
        status => Err(TrialError::Failed { what, status }),
    }
}

/// Memory of our own that the device reaches.
struct Pages {
    start: NonNull<u8>,
}

impl Pages {
    fn new() -> Result<Pages, VerbsError> {
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory, wherever there is room.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), LEN, access, flags, -1, 0) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Pages { start }),
            _ => Err(VerbsError::last("mmap")),
        }
    }

    fn address(&self, at: usize) -> u64 {
        self.start.as_ptr() as u64 + at as u64
    }

    fn fill(&self, byte: impl Fn(usize) -> u8) {
        for at in 0..LEN {
            // SAFETY: inside of the mapping; no request is under way. Volatile: a device sees it.
            unsafe { self.start.as_ptr().add(at).write_volatile(byte(at)) };
        }
    }

    fn check(&self, what: &'static str, wanted: impl Fn(usize) -> u8) -> Result<(), TrialError> {
        for at in 0..LEN {
            // SAFETY: as above.
            let found = unsafe { self.start.as_ptr().add(at).read_volatile() };
            let wanted = wanted(at);
            if found != wanted {
                return Err(TrialError::Wrong { what, at, found, wanted });
            }
        }
        Ok(())
    }

    /// Has the kernel take all pages back; there are new ones at the next use.
    fn take_away(&self) {
        // SAFETY: the whole mapping, whose contents nobody wants.
        unsafe { libc::madvise(self.start.as_ptr().cast(), LEN, libc::MADV_DONTNEED) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, unmapped once; nothing reaches it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), LEN) };
    }
}
