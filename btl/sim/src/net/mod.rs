//! The simulated cluster: virtual time, the driver's calls, and the faults a driver may order.
//!
//! State is in `state`, the life of links in `link`, frames and remote access in `flow`. Only the driver makes
//! time pass; transports only put events into the queue.

mod flow;
mod link;
mod state;

pub(crate) use flow::Taken;
pub(crate) use state::{Net, PortId, Registered, Report};

use crate::model::RailModel;
use crate::sim::SimBtl;
use ironweave_btl::Peer;
use state::Event;
use std::cell::RefCell;
use std::fmt::Write;
use std::rc::Rc;

/// Something that breaks, or is repaired. Rails are numbered in each process in the order of opening.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SimFault {
    /// The process is gone. What it sent may still arrive or be lost, by the seed; nothing of it happens after.
    Kill(Peer),
    /// The two processes cannot reach each other any more, over one rail of the first or over all.
    Cut(Peer, Peer, Option<u16>),
    /// Those processes cannot reach the others.
    Partition(Vec<Peer>),
    /// All cuts and partitions are repaired.
    Heal,
    /// The whole device is lost: every endpoint of one rail of a process fails. New connections work.
    Device(Peer, u16),
    /// Both ends of the link between two processes over a rail of the first see it break.
    Break(Peer, Peer, u16),
}

/// A simulated cluster. Clones are handles to the same one.
#[derive(Clone)]
pub struct SimNet(pub(crate) Rc<RefCell<Net>>);

impl SimNet {
    /// A cluster without processes, at time 0.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        SimNet(Rc::new(RefCell::new(Net::new(seed))))
    }

    /// Opens one more rail of `process`; rails of the same `caps.name` reach each other.
    #[must_use]
    pub fn open(&self, process: Peer, model: &RailModel) -> SimBtl {
        let port = self.0.borrow_mut().add_port(process, model);
        SimBtl::new(self.clone(), port, process, model)
    }

    /// Virtual time in nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.0.borrow().now
    }

    /// The seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.0.borrow().seed
    }

    /// Events handled so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.0.borrow().handled
    }

    /// Lets virtual time run until some process has something to do, and names it: call `progress` on its rails
    /// (any number of them; one that is not served comes up again). `None` when nothing will ever happen
    /// again without the driver.
    pub fn next_ready(&self) -> Option<Peer> {
        let mut net = self.0.borrow_mut();
        loop {
            if let Some(process) = net.take_ready() {
                return Some(process);
            }
            if !net.step() {
                return None;
            }
        }
    }

    /// Handles one event; `false` when there was none. For drivers that poll everybody.
    pub fn step(&self) -> bool {
        self.0.borrow_mut().step()
    }

    /// Makes `process` ready at virtual time `at_ns` (now, if that is past).
    pub fn wake_at(&self, process: Peer, at_ns: u64) {
        let mut net = self.0.borrow_mut();
        net.schedule(at_ns, Event::Wake(process.0));
    }

    /// Orders a fault for virtual time `at_ns`.
    pub fn fault_at(&self, at_ns: u64, fault: SimFault) {
        let mut net = self.0.borrow_mut();
        net.schedule(at_ns, Event::Fault(fault));
    }

    /// Orders a fault for when `events` events have been handled.
    pub fn fault_after(&self, events: u64, fault: SimFault) {
        let mut net = self.0.borrow_mut();
        net.ordered.push((events, fault));
        net.ordered.sort_by_key(|(events, _)| std::cmp::Reverse(*events));
    }

    /// Breaks or repairs something now.
    pub fn fault(&self, fault: SimFault) {
        self.0.borrow_mut().break_now(fault);
    }

    /// Whether `process` was not killed. Processes without rails are alive.
    #[must_use]
    pub fn is_alive(&self, process: Peer) -> bool {
        self.0.borrow().is_alive(process.0)
    }

    /// Descriptors and landing regions that the transports of `process` hold.
    #[must_use]
    pub fn outstanding(&self, process: Peer) -> usize {
        self.0.borrow().outstanding(process.0)
    }

    /// Registrations of `process` that were not ended.
    #[must_use]
    pub fn registrations(&self, process: Peer) -> usize {
        self.0.borrow().registrations(process.0)
    }

    /// Checks that no living process has anything outstanding, unread or registered.
    ///
    /// # Panics
    /// When one has; the message says what.
    pub fn assert_quiescent(&self) {
        let net = self.0.borrow();
        let mut dump = String::new();
        if net.describe_unrest(&mut dump).is_err() || !dump.is_empty() {
            panic!("seed {}: at {} ns not quiescent:\n{dump}", net.seed, net.now);
        }
    }

    /// Writes the state of every process that has something outstanding.
    ///
    /// # Errors
    /// When `out` fails.
    pub fn dump(&self, out: &mut dyn Write) -> std::fmt::Result {
        let net = self.0.borrow();
        writeln!(
            out,
            "seed {}: at {} ns, {} events handled, {} pending",
            net.seed,
            net.now,
            net.handled,
            net.queue.len()
        )?;
        net.describe_unrest(out)
    }
}
