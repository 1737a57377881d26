//! Runs the schedules of all processes in one thread, without transport or PML, as strictly as MPI allows: a message moves
//! only when both its ends were begun, at any time after that. What runs here needs no buffering anywhere.

use ironweave_coll::{Place, Round, Schedule, Space, Span, Step, Target};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What memory holds that nobody wrote.
pub const POISON: u8 = 0xd7;

/// A message is told by sender, receiver, and whether it goes over the communicator of a local group.
type Channel = (usize, usize, bool);

#[derive(Default)]
struct Posted {
    sends: VecDeque<Span>,
    recvs: VecDeque<Span>,
}

struct Process {
    schedule: Arc<Schedule>,
    /// Rounds with messages so far.
    busy: usize,
    /// First global number of the processes that `Target::main` and `Target::local` mean.
    main: usize,
    local: usize,
    send: Vec<u8>,
    recv: Vec<u8>,
    scratch: Vec<u8>,
    round: usize,
    under_way: usize,
}

/// What a run did.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Messages in all.
    pub messages: usize,
    /// Bytes in them.
    pub bytes: usize,
    /// Messages sent by the process that sent the most.
    pub most_sent: usize,
    /// Rounds with messages of the process that had the most.
    pub rounds: usize,
}

pub struct World {
    processes: Vec<Process>,
    channels: BTreeMap<Channel, Posted>,
    reduce: fn(&[u8], &mut [u8]),
    sent: Vec<usize>,
    stats: Stats,
}

impl World {
    /// `send` and `recv` are the buffers by process; those of an inter-communicator's first group come first.
    pub fn new(
        places: &[Place],
        schedules: Vec<Schedule>,
        send: Vec<Vec<u8>>,
        recv: Vec<Vec<u8>>,
        reduce: fn(&[u8], &mut [u8]),
    ) -> Self {
        let first = places[0].size() as usize;
        let buffers = send.into_iter().zip(recv);
        let processes = schedules.into_iter().zip(buffers).enumerate();
        let processes = processes.map(|(number, (schedule, (send, recv)))| {
            let second = number >= first;
            let (main, local) = match (places[0].remote(), second) {
                (None, _) => (0, 0),
                (Some(_), false) => (first, 0),
                (Some(_), true) => (0, first),
            };
            let scratch = vec![POISON; schedule.sizes().scratch];
            let schedule = Arc::new(schedule);
            Process { schedule, busy: 0, main, local, send, recv, scratch, round: 0, under_way: 0 }
        });
        let processes: Vec<_> = processes.collect();
        let sent = vec![0; processes.len()];
        World { processes, channels: BTreeMap::new(), reduce, sent, stats: Stats::default() }
    }

    /// Runs as far as it goes; the processes that came to their ends.
    pub fn who_ends(mut self, seed: u64) -> Vec<usize> {
        self.go(seed).expect("schedules fit together as far as they go");
        let numbered = self.processes.iter().enumerate();
        let ended = numbered.filter(|(_, process)| process.round == process.schedule.len());
        ended.map(|(number, _)| number).collect()
    }

    /// Runs to the end; the receive buffers, by process.
    pub fn run(mut self, seed: u64) -> Result<(Vec<Vec<u8>>, Stats), String> {
        self.go(seed)?;
        for (number, process) in self.processes.iter().enumerate() {
            if process.round < process.schedule.len() {
                return Err(format!("{number} waits for ever in round {}", process.round));
            }
        }
        for (channel, posted) in &self.channels {
            if !posted.sends.is_empty() || !posted.recvs.is_empty() {
                return Err(format!("a message without its other end: {channel:?}"));
            }
        }
        self.stats.most_sent = self.sent.iter().copied().max().unwrap_or(0);
        Ok((self.processes.into_iter().map(|process| process.recv).collect(), self.stats))
    }

    fn go(&mut self, seed: u64) -> Result<(), String> {
        for (number, process) in self.processes.iter().enumerate() {
            let sizes = process.schedule.sizes();
            if process.send.len() < sizes.send || process.recv.len() < sizes.recv {
                return Err(format!("{number} has too little memory for {sizes:?}"));
            }
        }
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut ready: Vec<usize> = (0..self.processes.len()).collect();
        while !ready.is_empty() {
            let number = ready.swap_remove(rng.random_range(0..ready.len()));
            self.begin_round(number, &mut ready)?;
        }
        Ok(())
    }

    fn target(&self, number: usize, target: Target) -> usize {
        let process = &self.processes[number];
        target.rank() as usize + if target.is_local() { process.local } else { process.main }
    }

    /// Begins the messages of a process's next round, and moves all messages that have both ends now.
    fn begin_round(&mut self, number: usize, ready: &mut Vec<usize>) -> Result<(), String> {
        let process = &mut self.processes[number];
        if process.round == process.schedule.len() {
            return Ok(());
        }
        let schedule = Arc::clone(&process.schedule);
        let Round { sends, recvs, .. } = schedule.round(process.round);
        process.under_way = sends.len() + recvs.len();
        if process.under_way == 0 {
            self.end_round(number)?;
            ready.push(number);
            return Ok(());
        }
        let process = &mut self.processes[number];
        process.busy += 1;
        self.stats.rounds = self.stats.rounds.max(process.busy);
        let mut touched = Vec::new();
        for step in sends.iter().chain(recvs) {
            let (channel, span, is_send) = match *step {
                Step::Send { to, from } => {
                    ((number, self.target(number, to), to.is_local()), from, true)
                }
                Step::Recv { from, into } => {
                    ((self.target(number, from), number, from.is_local()), into, false)
                }
                _ => return Err(format!("{step:?} among messages")),
            };
            if channel.0 == channel.1 {
                return Err(format!("{number} sends to itself"));
            }
            let posted = self.channels.entry(channel).or_default();
            if is_send { &mut posted.sends } else { &mut posted.recvs }.push_back(span);
            touched.push(channel);
        }
        for channel in touched {
            self.match_up(channel, ready)?;
        }
        Ok(())
    }

    fn match_up(&mut self, channel: Channel, ready: &mut Vec<usize>) -> Result<(), String> {
        let (from, to, _) = channel;
        let posted = self.channels.entry(channel).or_default();
        let mut moves = Vec::new();
        while !posted.sends.is_empty() && !posted.recvs.is_empty() {
            moves.extend(posted.sends.pop_front().zip(posted.recvs.pop_front()));
        }
        for (source, target) in moves {
            if source.len() != target.len() {
                return Err(format!("{source:?} of {from} for {target:?} of {to}"));
            }
            let bytes = self.processes[from].bytes(source).to_vec();
            self.processes[to].bytes_mut(target).copy_from_slice(&bytes);
            self.stats.messages += 1;
            self.stats.bytes += bytes.len();
            self.sent[from] += 1;
            for end in [from, to] {
                self.processes[end].under_way -= 1;
                if self.processes[end].under_way == 0 {
                    self.end_round(end)?;
                    ready.push(end);
                }
            }
        }
        Ok(())
    }

    fn end_round(&mut self, number: usize) -> Result<(), String> {
        let process = &mut self.processes[number];
        let schedule = Arc::clone(&process.schedule);
        for step in schedule.round(process.round).local {
            match *step {
                Step::Copy { from, into } => {
                    let bytes = process.bytes(from).to_vec();
                    let into = Span::new(into.space(), into.offset(), from.len());
                    process.bytes_mut(into).copy_from_slice(&bytes);
                }
                Step::Reduce { from, into } => {
                    let bytes = process.bytes(from).to_vec();
                    let into = Span::new(into.space(), into.offset(), from.len());
                    (self.reduce)(&bytes, process.bytes_mut(into));
                }
                _ => return Err(format!("{step:?} in local work")),
            }
        }
        process.round += 1;
        Ok(())
    }
}

impl Process {
    fn bytes(&self, span: Span) -> &[u8] {
        let space = match span.space() {
            Space::Send => &self.send,
            Space::Recv => &self.recv,
            Space::Scratch => &self.scratch,
        };
        &space[span.at().offset()..][..span.len()]
    }

    fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        let space = match span.space() {
            Space::Send => panic!("{span:?} is written"),
            Space::Recv => &mut self.recv,
            Space::Scratch => &mut self.scratch,
        };
        &mut space[span.at().offset()..][..span.len()]
    }
}
