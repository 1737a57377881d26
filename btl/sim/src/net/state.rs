//! What the simulated cluster consists of, and the event loop.

use super::SimFault;
use super::flow::Frame;
use crate::model::RailModel;
use crate::queue::EventQueue;
use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_btl::{
    Counters, Descriptor, EndpointState, Fault, Peer, RemoteKey, RmaDescriptor, Token,
};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::rc::Rc;
use std::sync::Arc;

pub(crate) type PortId = u32;
pub(crate) type LinkId = u32;

/// An operation in the table; the generation tells re-used slots apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OpId {
    slot: u32,
    generation: u32,
}

#[derive(Debug)]
pub(crate) enum Event {
    /// A frame reaches the end opposite of `side`.
    Arrive {
        link: LinkId,
        side: usize,
        frame: Frame,
    },
    /// A zero-copy payload is read, or a piece of it.
    Read(OpId),
    /// A zero-copy send is acknowledged.
    Acknowledge(OpId),
    /// A put or get moves a piece.
    Rma(OpId),
    /// A landing payload goes on.
    Land(OpId),
    /// The payload that `landing` wanted buffered is whole.
    Resume {
        port: PortId,
        peer: u32,
        link: LinkId,
    },
    /// A connection request reaches `ends[1]`.
    Knock(LinkId),
    /// Its answer reaches `ends[0]`.
    Answer {
        link: LinkId,
        accepted: Result<(), ironweave_btl::Cause>,
    },
    /// The end of a link shows at `side`; without a fault it is a good-bye.
    Gone {
        link: LinkId,
        side: usize,
        fault: Option<Fault>,
    },
    /// A slow endpoint gives the rest back.
    FinishClose {
        port: PortId,
        peer: u32,
        link: LinkId,
    },
    /// A link that could not carry frames for a while gives up if it still cannot.
    GiveUp {
        link: LinkId,
        heals: u32,
    },
    Wake(u32),
    Fault(SimFault),
}

/// One thing to tell a sink.
#[derive(Debug)]
pub(crate) enum Report {
    Up(Peer),
    /// Look at what this endpoint received.
    Received(Peer),
    Completed(Descriptor, Result<(), Fault>),
    RmaCompleted(RmaDescriptor, Result<(), Fault>),
    /// With the length of the payload.
    Landed(Peer, RecvRegion, Token, Result<usize, Fault>),
    Fault(Fault),
    Closed(Peer),
}

impl Report {
    /// Whose it is; `None` for a fault of the device.
    pub(crate) fn peer(&self) -> Option<Peer> {
        match self {
            Report::Up(peer)
            | Report::Received(peer)
            | Report::Landed(peer, ..)
            | Report::Closed(peer) => Some(*peer),
            Report::Completed(descriptor, _) => Some(descriptor.peer),
            Report::RmaCompleted(descriptor, _) => Some(descriptor.peer),
            Report::Fault(fault) => fault.peer,
        }
    }
}

/// What arrived at an endpoint and was not told yet.
#[derive(Debug)]
pub(crate) enum Received {
    Frame(Frame),
    /// Nothing more will come; without a fault the peer said good-bye.
    End(Option<Fault>),
}

#[derive(Debug)]
pub(crate) enum OpKind {
    /// A zero-copy send; `read` bytes of the payload were taken into the frame so far.
    Send { descriptor: Descriptor, frame: Option<Frame>, arrive: u64 },
    /// A put or get; `done` bytes were moved.
    Rma { descriptor: RmaDescriptor, done: usize },
    /// A payload on its way into a region.
    Landing { region: RecvRegion, token: Token, payload: Vec<u8>, written: usize },
}

#[derive(Debug)]
pub(crate) struct Op {
    pub port: PortId,
    pub peer: u32,
    pub link: LinkId,
    /// The endpoint was fenced: nothing may touch user memory for this operation any more.
    pub fenced: bool,
    pub kind: OpKind,
}

#[derive(Debug)]
pub(crate) struct Endpoint {
    pub state: EndpointState,
    pub excluded: bool,
    pub link: LinkId,
    /// Which end of the link this is.
    pub side: usize,
    pub received: VecDeque<Received>,
    /// A payload is landing, or being buffered: later frames wait.
    pub busy: bool,
    /// The head of `received` was offered to `landing` already.
    pub asked: bool,
    pub ops: Vec<OpId>,
    /// A send was refused: tell when there is room.
    pub starved: bool,
    /// A connection of the peer that waits until this one is closed.
    pub next: Option<LinkId>,
    /// Why it is failing.
    pub fault: Option<Fault>,
}

impl Endpoint {
    pub(crate) fn new(state: EndpointState, link: LinkId, side: usize) -> Self {
        Endpoint {
            state,
            excluded: false,
            link,
            side,
            received: VecDeque::new(),
            busy: false,
            asked: false,
            ops: Vec::new(),
            starved: false,
            next: None,
            fault: None,
        }
    }
}

/// One end of a link, and the direction of travel that starts there.
#[derive(Debug)]
pub(crate) struct End {
    pub port: PortId,
    pub process: u32,
    pub attached: bool,
    pub next_seq: u32,
    /// The highest number that arrived, plus one.
    pub arrived: u32,
    /// Frames from this number on are lost.
    pub lost_from: u32,
    pub last_arrival: u64,
    pub in_flight: u32,
    /// Frames held back by a cut.
    pub stalled: VecDeque<Frame>,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub ends: [End; 2],
    /// The end of one side was told to the other already, or is about to be.
    pub ending: bool,
    /// When it was asked for.
    pub since: u64,
}

#[derive(Debug)]
pub(crate) enum Registered {
    Source(SendRegion),
    Target(RecvRegion),
}

pub(crate) struct Port {
    pub process: u32,
    pub rail: u16,
    pub model: Rc<RailModel>,
    pub open: bool,
    pub departed: bool,
    pub endpoints: BTreeMap<u32, Endpoint>,
    pub inbox: VecDeque<Report>,
    /// By slot; the generation is in the key.
    pub registered: Vec<(u32, Option<Registered>)>,
    pub sender_free: u64,
    pub receiver_free: u64,
    pub counters: Arc<Counters>,
}

struct Process {
    alive: bool,
    ready: bool,
    ports: Vec<PortId>,
}

/// Who cannot reach whom.
pub(crate) enum Cut {
    Pair(u32, u32, Option<u16>),
    Group(Vec<Peer>),
}

pub(crate) struct Net {
    pub seed: u64,
    pub now: u64,
    pub handled: u64,
    pub rng: SmallRng,
    pub queue: EventQueue<Event>,
    /// Faults ordered by event count, next last.
    pub ordered: Vec<(u64, SimFault)>,
    pub ports: Vec<Port>,
    pub links: Vec<Link>,
    pub cuts: Vec<Cut>,
    /// Operations that wait for a cut to be healed.
    pub held_back: Vec<Event>,
    /// How often cuts were healed.
    pub heals: u32,
    ops: Vec<(u32, Option<Op>)>,
    free_ops: Vec<u32>,
    processes: Vec<Process>,
    ready: VecDeque<u32>,
}

impl Net {
    pub(crate) fn new(seed: u64) -> Self {
        Net {
            seed,
            now: 0,
            handled: 0,
            rng: SmallRng::seed_from_u64(seed),
            queue: EventQueue::new(),
            ordered: Vec::new(),
            ports: Vec::new(),
            links: Vec::new(),
            cuts: Vec::new(),
            held_back: Vec::new(),
            heals: 0,
            ops: Vec::new(),
            free_ops: Vec::new(),
            processes: Vec::new(),
            ready: VecDeque::new(),
        }
    }

    pub(crate) fn add_port(&mut self, process: Peer, model: &RailModel) -> PortId {
        while self.processes.len() <= process.index() {
            self.processes.push(Process { alive: true, ready: false, ports: Vec::new() });
        }
        let id = u32::try_from(self.ports.len()).expect("fewer than 2^32 ports");
        let rails = &mut self.processes[process.index()].ports;
        let rail = u16::try_from(rails.len()).expect("few rails a process");
        rails.push(id);
        // Models are shared: most ports of a run have the same few.
        let shared = self
            .ports
            .iter()
            .rev()
            .take(8)
            .find(|port| port.model.caps == model.caps)
            .map_or_else(|| Rc::new(model.clone()), |port| Rc::clone(&port.model));
        self.ports.push(Port {
            process: process.0,
            rail,
            model: shared,
            open: true,
            departed: false,
            endpoints: BTreeMap::new(),
            inbox: VecDeque::new(),
            registered: Vec::new(),
            sender_free: 0,
            receiver_free: 0,
            counters: Arc::default(),
        });
        id
    }

    pub(crate) fn port(&self, port: PortId) -> &Port {
        &self.ports[port as usize]
    }

    pub(crate) fn port_mut(&mut self, port: PortId) -> &mut Port {
        &mut self.ports[port as usize]
    }

    pub(crate) fn link(&self, link: LinkId) -> &Link {
        &self.links[link as usize]
    }

    pub(crate) fn link_mut(&mut self, link: LinkId) -> &mut Link {
        &mut self.links[link as usize]
    }

    pub(crate) fn endpoint_mut(&mut self, port: PortId, peer: u32) -> Option<&mut Endpoint> {
        self.ports[port as usize].endpoints.get_mut(&peer)
    }

    /// The endpoint at `side` of `link`, if that is the link it uses.
    pub(crate) fn attached(&mut self, link: LinkId, side: usize) -> Option<&mut Endpoint> {
        let ends = &self.links[link as usize].ends;
        if !ends[side].attached {
            return None;
        }
        let (port, peer) = (ends[side].port, ends[1 - side].process);
        let endpoint = self.ports[port as usize].endpoints.get_mut(&peer)?;
        (endpoint.link == link).then_some(endpoint)
    }

    pub(crate) fn is_alive(&self, process: u32) -> bool {
        self.processes.get(process as usize).is_none_or(|process| process.alive)
    }

    pub(crate) fn bury(&mut self, process: u32) -> Vec<PortId> {
        let process = &mut self.processes[process as usize];
        process.alive = false;
        process.ports.clone()
    }

    pub(crate) fn rails(&self, process: u32) -> &[PortId] {
        self.processes.get(process as usize).map_or(&[], |process| &process.ports)
    }

    pub(crate) fn chance(&mut self, per_mille: u32) -> bool {
        per_mille != 0 && self.rng.random_range(0..1000) < per_mille
    }

    /// A number of at most `most`.
    pub(crate) fn upto(&mut self, most: u64) -> u64 {
        if most == 0 { 0 } else { self.rng.random_range(0..=most) }
    }

    pub(crate) fn schedule(&mut self, at: u64, event: Event) {
        self.queue.push(at.max(self.now), event, &mut self.rng);
    }

    pub(crate) fn report(&mut self, port: PortId, report: Report) {
        let port = &mut self.ports[port as usize];
        port.inbox.push_back(report);
        let process = port.process;
        self.make_ready(process);
    }

    pub(crate) fn make_ready(&mut self, process: u32) {
        let state = &mut self.processes[process as usize];
        if state.alive && !state.ready {
            state.ready = true;
            self.ready.push_back(process);
        }
    }

    /// One of the ready processes, by the seed.
    pub(crate) fn take_ready(&mut self) -> Option<Peer> {
        while !self.ready.is_empty() {
            let at = self.rng.random_range(0..self.ready.len());
            let process = self.ready.swap_remove_back(at).expect("the index is in range");
            let state = &mut self.processes[process as usize];
            state.ready = false;
            if state.alive {
                return Some(Peer(process));
            }
        }
        None
    }

    pub(crate) fn add_op(&mut self, op: Op) -> OpId {
        let (port, peer) = (op.port, op.peer);
        let id = if let Some(slot) = self.free_ops.pop() {
            let entry = &mut self.ops[slot as usize];
            entry.1 = Some(op);
            OpId { slot, generation: entry.0 }
        } else {
            self.ops.push((0, Some(op)));
            let slot = u32::try_from(self.ops.len() - 1).expect("fewer than 2^32 operations");
            OpId { slot, generation: 0 }
        };
        let endpoint = self.endpoint_mut(port, peer).expect("operations belong to an endpoint");
        endpoint.ops.push(id);
        id
    }

    pub(crate) fn op_mut(&mut self, id: OpId) -> Option<&mut Op> {
        let (generation, op) = &mut self.ops[id.slot as usize];
        if *generation == id.generation { op.as_mut() } else { None }
    }

    /// Takes an operation out; its endpoint forgets it.
    pub(crate) fn remove_op(&mut self, id: OpId) -> Option<Op> {
        let (generation, op) = &mut self.ops[id.slot as usize];
        if *generation != id.generation {
            return None;
        }
        let op = op.take()?;
        *generation = generation.wrapping_add(1);
        self.free_ops.push(id.slot);
        if let Some(endpoint) = self.endpoint_mut(op.port, op.peer)
            && let Some(at) = endpoint.ops.iter().position(|&other| other == id)
        {
            endpoint.ops.remove(at);
        }
        Some(op)
    }

    /// Registers memory and makes its key: port, slot and generation.
    pub(crate) fn register(&mut self, port: PortId, region: Registered) -> RemoteKey {
        let registered = &mut self.ports[port as usize].registered;
        let slot =
            registered.iter().position(|(_, region)| region.is_none()).unwrap_or_else(|| {
                registered.push((0, None));
                registered.len() - 1
            });
        let entry = &mut registered[slot];
        entry.0 = entry.0.wrapping_add(1);
        entry.1 = Some(region);
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&port.to_le_bytes());
        bytes[4..8].copy_from_slice(&(slot as u32).to_le_bytes());
        bytes[8..].copy_from_slice(&entry.0.to_le_bytes());
        RemoteKey::new(&bytes).expect("12 bytes fit")
    }

    /// An operation, and the ports whose memory it moves.
    pub(crate) fn op_and_ports(&mut self, id: OpId) -> Option<(&mut Op, &mut [Port])> {
        let (generation, op) = &mut self.ops[id.slot as usize];
        let op = if *generation == id.generation { op.as_mut() } else { None };
        op.map(|op| (op, self.ports.as_mut_slice()))
    }

    pub(crate) fn deregister(&mut self, port: PortId, key: &RemoteKey) {
        if let Some((owner, region)) = registered(&mut self.ports, key)
            && owner == port
        {
            *region = None;
        }
    }

    /// Zero-copy sends of live endpoints whose payload is still in user memory.
    pub(crate) fn unread_sends(&self, port: PortId) -> usize {
        let live = self.port(port).endpoints.values().filter(|e| e.state == EndpointState::Up);
        live.flat_map(|endpoint| &endpoint.ops)
            .filter(|id| {
                let op = self.ops[id.slot as usize].1.as_ref();
                op.is_some_and(|op| matches!(op.kind, OpKind::Send { frame: Some(_), .. }))
            })
            .count()
    }

    /// Handles one event; `false` when there is none.
    pub(crate) fn step(&mut self) -> bool {
        while let Some((_, fault)) = self.ordered.pop_if(|(after, _)| *after <= self.handled) {
            self.break_now(fault);
        }
        let Some((at, event)) = self.queue.pop() else {
            return false;
        };
        debug_assert!(at >= self.now, "time runs backwards");
        self.now = at;
        self.handled += 1;
        match event {
            Event::Arrive { link, side, frame } => self.arrive(link, side, frame),
            Event::Read(op) => self.read(op),
            Event::Acknowledge(op) => self.acknowledge(op),
            Event::Rma(op) => self.move_piece(op),
            Event::Land(op) => self.land(op),
            Event::Resume { port, peer, link } => self.resume(port, peer, link),
            Event::Knock(link) => self.knock(link),
            Event::Answer { link, accepted } => self.answer(link, accepted),
            Event::Gone { link, side, fault } => self.gone(link, side, fault),
            Event::FinishClose { port, peer, link } => self.finish_close(port, peer, link),
            Event::GiveUp { link, heals } => self.give_up(link, heals),
            Event::Wake(process) => self.make_ready(process),
            Event::Fault(fault) => self.break_now(fault),
        }
        true
    }

    pub(crate) fn outstanding(&self, process: u32) -> usize {
        self.rails(process)
            .iter()
            .flat_map(|&port| self.port(port).endpoints.values())
            .map(|endpoint| endpoint.ops.len())
            .sum()
    }

    pub(crate) fn registrations(&self, process: u32) -> usize {
        self.rails(process)
            .iter()
            .flat_map(|&port| &self.port(port).registered)
            .filter(|(_, region)| region.is_some())
            .count()
    }

    pub(crate) fn describe_unrest(&self, out: &mut dyn Write) -> std::fmt::Result {
        for port in self.ports.iter().filter(|port| port.open && self.is_alive(port.process)) {
            self.describe_port(port, true, out)?;
        }
        Ok(())
    }

    pub(crate) fn describe_port(
        &self,
        port: &Port,
        only_unrest: bool,
        out: &mut dyn Write,
    ) -> std::fmt::Result {
        let name =
            format!("process {} rail {} ({})", port.process, port.rail, port.model.caps.name);
        if !port.inbox.is_empty() {
            writeln!(out, "{name}: {} reports not read", port.inbox.len())?;
        }
        let registered = port.registered.iter().filter(|(_, region)| region.is_some()).count();
        if registered != 0 {
            writeln!(out, "{name}: {registered} registrations")?;
        }
        for (peer, endpoint) in &port.endpoints {
            let restless = !endpoint.ops.is_empty()
                || !endpoint.received.is_empty()
                || endpoint.state == EndpointState::Failing;
            if restless || !only_unrest {
                writeln!(
                    out,
                    "{name}: to {peer} {:?}, {} operations, {} frames not read, busy {}, link {}",
                    endpoint.state,
                    endpoint.ops.len(),
                    endpoint.received.len(),
                    endpoint.busy,
                    endpoint.link
                )?;
            }
        }
        Ok(())
    }
}

/// The registration that a key names, if it still stands.
pub(crate) fn registered<'a>(
    ports: &'a mut [Port],
    key: &RemoteKey,
) -> Option<(PortId, &'a mut Option<Registered>)> {
    let (port, slot, generation) = split_key(key)?;
    let entry = ports.get_mut(port as usize)?.registered.get_mut(slot as usize)?;
    (entry.0 == generation && entry.1.is_some()).then_some((port, &mut entry.1))
}

fn split_key(key: &RemoteKey) -> Option<(u32, u32, u32)> {
    let bytes = key.as_bytes();
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    if bytes.len() != 12 {
        return None;
    }
    Some((word(0)?, word(4)?, word(8)?))
}
