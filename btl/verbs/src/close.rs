//! How connections end: fence, purge, report, in this order (law 2).
//!
//! The queue pair goes to ERR, which flushes every request; when they have come back, or a short time is over, it is
//! destroyed, which takes the device's hands off all memory whatever the network does. Only then descriptors are
//! given back. What the peer had delivered whole by then is passed on first, if wanted.

use crate::conn::{Conn, Through, Work};
use crate::endpoint::Link;
use crate::rail::Verbs;
use ironweave_btl::{Cause, Fault, Peer, Residue, RmaKind, Sink};
use std::time::{Duration, Instant};

/// How long flushed requests may take to come back before the queue pair is destroyed all the same.
const FLUSH: Duration = Duration::from_millis(50);

/// Why a connection ends.
#[derive(Clone, Debug)]
pub enum Ending {
    /// Something broke.
    Broken(Fault),
    /// Its owner ends it.
    Invalidated,
    /// The peer said good-bye.
    Finalized,
}

impl Verbs {
    /// Ends whatever there is with `peer`; how many reports were made.
    pub(crate) fn end<S: Sink>(
        &mut self,
        peer: Peer,
        ending: Ending,
        residue: Residue,
        sink: &mut S,
    ) -> usize {
        let reported = match std::mem::replace(&mut self.slot(peer).link, Link::Ending) {
            Link::Closed | Link::Ending => {
                self.slot(peer).link = Link::Closed;
                return 0;
            }
            Link::Failed(fault) => match ending {
                Ending::Invalidated => None,
                _ => Some(fault),
            },
            Link::Calling(meeting) | Link::Answering(meeting) => {
                let wanted = meeting.wanted;
                // The other side need not wait for its time limit.
                self.say_reset(peer, meeting.conn.nonces);
                self.forget(peer, *meeting);
                if !wanted {
                    self.slot(peer).link = Link::Closed;
                    return 0;
                }
                match ending {
                    Ending::Broken(fault) => Some(fault),
                    _ => None,
                }
            }
            Link::Up(conn) => return self.end_conn(peer, conn, ending, residue, sink),
        };
        if let Some(fault) = &reported {
            self.counters.faults.add(1);
            sink.fault(fault.clone());
        }
        self.slot(peer).link = Link::Closed;
        sink.closed(peer);
        1 + usize::from(reported.is_some())
    }

    fn end_conn<S: Sink>(
        &mut self,
        peer: Peer,
        mut conn: Box<Conn>,
        ending: Ending,
        residue: Residue,
        sink: &mut S,
    ) -> usize {
        let mut reports = 1;
        let fault = match &ending {
            Ending::Broken(fault) => fault.clone(),
            Ending::Invalidated => Fault::operation(peer, Cause::Invalidated),
            Ending::Finalized => Fault::rail(peer, Cause::Finalized),
        };
        conn.doom = Some(fault.clone());
        conn.discards = residue == Residue::Discard;
        let nonces = conn.nonces;
        // A device that is gone has nothing to fence, and refuses; destroying is the fence then.
        let _ = conn.queue_pair.fail();
        self.slot(peer).link = Link::Up(conn);
        if let Ending::Broken(fault) = &ending {
            self.counters.faults.add(1);
            sink.fault(fault.clone());
            reports += 1;
        }
        if !matches!(ending, Ending::Finalized) {
            self.say_reset(peer, nonces);
        }
        let patience = Instant::now() + FLUSH;
        loop {
            let (told, idle) = self.poll_queues(sink);
            reports += told;
            let flushed = match &self.slot(peer).link {
                Link::Up(conn) => conn.is_flushed(),
                _ => true,
            };
            if idle && (flushed || Instant::now() > patience) {
                break;
            }
        }
        let Link::Up(conn) = std::mem::replace(&mut self.slot(peer).link, Link::Ending) else {
            unreachable!("a connection that ends stays in its place until here");
        };
        let slot = self.slot(peer);
        slot.generation = slot.generation.wrapping_add(1);
        let works = {
            let Conn { queue_pair, works, home, .. } = *conn;
            drop(queue_pair);
            drop(home); // nothing of the peer can write there any more
            works
        };
        self.rings.retain(|&other| other != peer);
        // Completions of it that are still in the queues must not meet a later one of the same number.
        while !self.poll_queues(sink).1 {}
        for work in works {
            reports += self.give_back(peer, work, Err(&fault), sink);
        }
        self.live.retain(|&other| other != peer);
        self.lost = self.lost.saturating_add(1);
        self.slot(peer).link = Link::Closed;
        sink.closed(peer);
        reports
    }

    /// A request is over: returns what it used, and reports it if somebody waits for it.
    pub(crate) fn give_back<S: Sink>(
        &mut self,
        peer: Peer,
        work: Work,
        outcome: Result<(), &Fault>,
        sink: &mut S,
    ) -> usize {
        if !matches!(work, Work::Control) {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        let outcome = outcome.map_err(|fault| Fault::operation(peer, fault.cause.clone()));
        let purged = u64::from(outcome.is_err());
        match work {
            Work::Frame(slot) => {
                if let Some(slot) = slot {
                    self.buffers.put_back(slot);
                }
                self.counters.purged.add(purged);
                0
            }
            Work::Part | Work::Control => 0,
            Work::Zcopy(descriptor, slot) => {
                self.buffers.put_back(slot);
                self.counters.purged.add(purged);
                sink.completed(descriptor, outcome);
                1
            }
            Work::Rma(descriptor, through) => {
                match through {
                    Through::Slot(slot) => {
                        if let (RmaKind::Get(region) | RmaKind::Atomic(_, region), Ok(())) =
                            (&descriptor.kind, &outcome)
                        {
                            let len = descriptor.kind.length();
                            region.write(0, &self.buffers.bytes(&slot)[..len]);
                        }
                        self.buffers.put_back(slot);
                    }
                    // Before the report: the owner may free the memory in it.
                    Through::Registered(registration) => drop(registration),
                    Through::Kept(kept) => drop(kept),
                    Through::Paged(registration) => drop(registration),
                }
                self.counters.purged.add(purged);
                sink.rma_completed(descriptor, outcome);
                1
            }
        }
    }
}
