//! Virtual time: processes with one port each under LogGP, and a queue of what happens when. No chance but the seed's.

#![allow(dead_code, reason = "tests and examples use different parts")]

use ironweave_ft::Frame;
use rand::Rng;
use rand::rngs::SmallRng;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

/// LogGP, in nanoseconds (the time for a byte in picoseconds).
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// *L*: time on the wire.
    pub latency: u64,
    /// *o*: time of the sender for a frame, and of the receiver.
    pub overhead: u64,
    /// *g*: least time between two frames of a port.
    pub gap: u64,
    /// *G*: time for a byte.
    pub byte_ps: u64,
    /// Most that is added to a frame's latency.
    pub jitter: u64,
}

impl Model {
    /// An RDMA network (as `RailModel::verbs` of the transport simulator).
    pub const VERBS: Model = Model { latency: 900, overhead: 100, gap: 50, byte_ps: 80, jitter: 0 };
    /// A network with sockets.
    pub const TCP: Model =
        Model { latency: 5_000, overhead: 500, gap: 200, byte_ps: 200, jitter: 2_000 };
}

/// Something that happens at a time.
#[derive(Clone, Debug)]
pub enum What<E> {
    Arrive { from: u32, to: u32, frame: Frame },
    Other(E),
}

/// Times that are near enough to have a bucket each.
const NEAR: u64 = 1 << 17;

/// The network and the clock.
pub struct Wire<E> {
    model: Model,
    /// When each process has time again.
    busy: Vec<u64>,
    /// When each process's port is free again.
    port: Vec<u64>,
    /// Latest arrival of each pair, kept only where frames could overtake.
    last: HashMap<(u32, u32), u64>,
    /// The present time, and what happens in each of the `NEAR` nanoseconds from it on, in order.
    now: u64,
    near: Vec<VecDeque<u32>>,
    near_count: usize,
    /// What happens later: time, order, slot.
    far: BinaryHeap<Reverse<(u64, u64, u32)>>,
    slots: Vec<Option<What<E>>>,
    free: Vec<u32>,
    order: u64,
    pub events: u64,
    pub messages: u64,
    pub bytes: u64,
}

impl<E> Wire<E> {
    pub fn new(model: Model, size: u32) -> Self {
        Wire {
            model,
            busy: vec![0; size as usize],
            port: vec![0; size as usize],
            last: HashMap::new(),
            now: 0,
            near: vec![VecDeque::new(); NEAR as usize],
            near_count: 0,
            far: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            order: 0,
            events: 0,
            messages: 0,
            bytes: 0,
        }
    }

    fn push(&mut self, time: u64, what: What<E>) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize] = Some(what);
        if time < self.now + NEAR {
            self.near[(time % NEAR) as usize].push_back(slot);
            self.near_count += 1;
        } else {
            self.order += 1;
            self.far.push(Reverse((time, self.order, slot)));
        }
    }

    /// Lets something happen at a time.
    pub fn at(&mut self, time: u64, event: E) {
        self.push(time, What::Other(event));
    }

    /// The next thing, and when.
    pub fn next(&mut self) -> Option<(u64, What<E>)> {
        loop {
            if let Some(slot) = self.near[(self.now % NEAR) as usize].pop_front() {
                self.near_count -= 1;
                self.free.push(slot);
                self.events += 1;
                let what = self.slots[slot as usize].take().expect("each slot is queued once");
                return Some((self.now, what));
            }
            let first_far = self.far.peek().map(|Reverse((time, ..))| *time);
            self.now = if self.near_count > 0 { self.now + 1 } else { first_far? };
            while let Some(Reverse((time, _, slot))) = self.far.peek().copied()
                && time < self.now + NEAR
            {
                self.far.pop();
                self.near[(time % NEAR) as usize].push_back(slot);
                self.near_count += 1;
            }
        }
    }

    /// `process` turns to something that came at `time`, which takes it `o` if it is a frame: when it is done with that.
    pub fn attend(&mut self, process: u32, time: u64, frame: bool) -> u64 {
        let busy = &mut self.busy[process as usize];
        *busy = (*busy).max(time) + if frame { self.model.overhead } else { 0 };
        *busy
    }

    /// `from` sends, once it has time: when the frame leaves and when it will arrive. It is put on its way only if `lives`
    /// says so for these times.
    pub fn send(
        &mut self,
        from: u32,
        to: u32,
        frame: Frame,
        random: &mut SmallRng,
        lives: impl FnOnce(u64, u64) -> bool,
    ) {
        let model = self.model;
        let (busy, port) = (&mut self.busy[from as usize], &mut self.port[from as usize]);
        *busy += model.overhead;
        let leaves = (*busy).max(*port);
        let long = frame.len() as u64 * model.byte_ps / 1000;
        *port = leaves + model.gap.max(long);
        *busy = (*busy).max(leaves);
        let mut arrives = leaves + long + model.latency;
        if model.jitter > 0 {
            arrives += random.random_range(0..=model.jitter);
            let last = self.last.entry((from, to)).or_default();
            arrives = arrives.max(*last);
            *last = arrives;
        }
        self.messages += 1;
        self.bytes += frame.len() as u64;
        if lives(leaves, arrives) {
            self.push(arrives, What::Arrive { from, to, frame });
        }
    }
}
