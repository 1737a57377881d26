//! What the processes of a world do: blocks of operations on a current communicator, each block ended by an agreement on
//! whether all went well; if not, everybody shrinks the communicator and does the block again. This is how programs
//! use fault tolerance (seed 000, `12.buddycr`), and it makes each process need all others at each turn.
#![allow(unsafe_code)] // lends buffers that it owns to collectives

use super::Stack;
use super::oracle::{Instance, Oracle};
use super::plan::{Moment, Op, Plan};
use ironweave_btl::memory::{OwnedBuffer, SendRegion};
use ironweave_coll::{Call, Elements, Memory, Op as Operator, Reduction, Root, Type};
use ironweave_core::{Agreeing, Attributes, CommHandle, CoreError, Group, Output, TaskId};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::fmt;

/// A collective under way, and what its buffer shall hold.
struct Running {
    task: TaskId,
    instance: Instance,
    recv: OwnedBuffer,
    send: OwnedBuffer,
    expected: Option<Vec<u8>>,
    /// The communicator to free afterwards: a part of a split.
    part: Option<CommHandle>,
}

enum Stage {
    Thinking(u64),
    /// Creations at once.
    Creating(Vec<(TaskId, Instance)>),
    Running(Box<Running>),
    Agreeing(Vec<(Agreeing, Instance)>),
    Shrinking(TaskId, Instance),
    Meeting(Meeting, TaskId, Instance),
    Over,
}

/// How far two halves are, and what they have made.
struct Meeting {
    step: usize,
    half: u32,
    local: CommHandle,
    inter: CommHandle,
    made: Vec<CommHandle>,
}

pub struct Program {
    me: u32,
    blocks: Vec<Vec<Op>>,
    agreements: u32,
    revokes: u32,
    think_ns: u64,
    seed: u64,
    rng: SmallRng,
    current: CommHandle,
    block: usize,
    op: usize,
    /// What went wrong in this block.
    error: Option<CoreError>,
    stage: Stage,
    /// Calls on the current communicator, by kind: creations, collectives, agreements and shrinks.
    calls: [u32; 3],
    /// The outcome of this block's agreements, so far.
    good: bool,
    /// It has revoked something.
    revoked: bool,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match &self.stage {
            Stage::Thinking(until) => format!("thinks until {until}"),
            Stage::Creating(tasks) => format!("creating {}", tasks.len()),
            Stage::Running(running) => format!("in collective {:?}", running.instance),
            Stage::Agreeing(tasks) => {
                format!("agreeing {:?}", tasks.iter().map(|t| &t.1).collect::<Vec<_>>())
            }
            Stage::Shrinking(_, instance) => format!("shrinking {instance:?}"),
            Stage::Meeting(meeting, _, instance) => {
                format!("meeting {}: {instance:?}", meeting.step)
            }
            Stage::Over => String::from("over"),
        };
        write!(f, "block {} operation {}, error {:?}: {stage}", self.block, self.op, self.error)
    }
}

impl Program {
    pub fn new(plan: &Plan, me: u32, core: &Stack) -> Self {
        Program {
            me,
            blocks: plan.blocks.clone(),
            agreements: plan.agreements,
            revokes: plan.revokes,
            think_ns: plan.think_ns,
            seed: plan.seed,
            rng: SmallRng::seed_from_u64(plan.seed << 20 ^ u64::from(me)),
            current: core.world(),
            block: 0,
            op: 0,
            error: None,
            stage: Stage::Thinking(0),
            calls: [0; 3],
            good: true,
            revoked: false,
        }
    }

    /// Whether it is in the middle of that.
    pub fn is_at(&self, moment: Moment) -> bool {
        match moment {
            Moment::Creation => matches!(self.stage, Stage::Creating(_) | Stage::Meeting(..)),
            Moment::Revoke => self.revoked,
            Moment::Agree => matches!(self.stage, Stage::Agreeing(_)),
            Moment::Shrink => matches!(self.stage, Stage::Shrinking(..)),
        }
    }

    pub const fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// When it wants to be called though nothing happens.
    pub fn wakes_at(&self, now: u64) -> Option<u64> {
        match self.stage {
            Stage::Thinking(until) => Some(until.max(now + 1)),
            _ => None,
        }
    }

    fn instance(&mut self, core: &Stack, kind: usize) -> Instance {
        let number = self.calls[kind];
        self.calls[kind] += 1;
        Instance::new(core, self.current, kind, number)
    }

    fn think(&mut self, now: u64) {
        self.stage = Stage::Thinking(now + self.rng.random_range(0..=self.think_ns));
    }

    fn failed(&mut self, core: &mut Stack, error: CoreError, now: u64) -> Result<(), String> {
        match error {
            CoreError::ProcFailed { .. } | CoreError::Revoked | CoreError::Interrupted => {}
            other => return Err(format!("an error that nothing explains: {other:?}")),
        }
        // A failure outside of a smaller group does not concern those who wait there for this process: it has to tell them.
        let waited_for = |op: &Op| matches!(op, Op::CreateGroup(_));
        let must = self.blocks[self.block].iter().any(waited_for);
        if self.rng.random_range(0..100) < self.revokes || must {
            core.revoke(self.current, now).map_err(|error| error.to_string())?;
        }
        self.error = Some(error);
        Ok(())
    }

    fn replace(&mut self, core: &mut Stack, new: CommHandle) -> Result<(), String> {
        if self.current != core.world() {
            core.free(self.current).map_err(|error| error.to_string())?;
        }
        self.current = new;
        self.calls = [0; 3];
        Ok(())
    }

    /// Goes on as far as it can; how many steps.
    pub fn step(
        &mut self,
        me: u32,
        core: &mut Stack,
        oracle: &mut Oracle,
        now: u64,
    ) -> Result<usize, String> {
        debug_assert_eq!(me, self.me);
        let mut steps = 0;
        loop {
            match std::mem::replace(&mut self.stage, Stage::Over) {
                Stage::Over => return Ok(steps),
                Stage::Thinking(until) if until > now => {
                    self.stage = Stage::Thinking(until);
                    return Ok(steps);
                }
                Stage::Thinking(_) => self.begin(core, oracle, now)?,
                Stage::Creating(tasks) => {
                    if !tasks.iter().all(|(task, _)| core.is_over(*task)) {
                        self.stage = Stage::Creating(tasks);
                        return Ok(steps);
                    }
                    self.created(core, oracle, tasks, now)?;
                }
                Stage::Running(running) => {
                    let Some(outcome) = core.test(running.task) else {
                        self.stage = Stage::Running(running);
                        return Ok(steps);
                    };
                    self.ran(core, oracle, *running, outcome, now)?;
                }
                Stage::Agreeing(tasks) => {
                    let is_over = |(begun, _): &(Agreeing, Instance)| match begun {
                        Agreeing::Waits(task) => core.is_over(*task),
                        Agreeing::Over(_) => true,
                    };
                    if !tasks.iter().all(is_over) {
                        self.stage = Stage::Agreeing(tasks);
                        return Ok(steps);
                    }
                    self.agreed(core, oracle, tasks, now)?;
                }
                Stage::Meeting(meeting, task, instance) => {
                    let Some(outcome) = core.test(task) else {
                        self.stage = Stage::Meeting(meeting, task, instance);
                        return Ok(steps);
                    };
                    self.met(core, oracle, meeting, instance, outcome, now)?;
                }
                Stage::Shrinking(task, instance) => {
                    let Some(outcome) = core.test(task) else {
                        self.stage = Stage::Shrinking(task, instance);
                        return Ok(steps);
                    };
                    oracle.made(self.me, core, instance, &outcome)?;
                    let Ok(Output::Comm(Some(new))) = outcome else {
                        return Err(format!("shrink: {outcome:?}"));
                    };
                    self.replace(core, new)?;
                    (self.op, self.error) = (0, None);
                    // Done again without the revoke, or it would never end.
                    self.blocks[self.block].retain(|op| !matches!(op, Op::Revoke(_)));
                    self.think(now);
                }
            }
            steps += 1;
        }
    }

    fn begin(&mut self, core: &mut Stack, oracle: &mut Oracle, now: u64) -> Result<(), String> {
        let Some(block) = self.blocks.get(self.block) else {
            self.replace(core, CommHandle::NONE)?;
            self.stage = Stage::Over;
            return Ok(());
        };
        let op = block.get(self.op).copied();
        self.op += 1;
        let Some(op) = op.filter(|_| self.error.is_none()) else {
            return self.end_block(core, oracle, now);
        };
        let current = self.current;
        let size = core.group(current).map_err(|error| error.to_string())?.len();
        let rank = core.rank(current).map_err(|error| error.to_string())?;
        let started = match op {
            Op::Revoke(by) => {
                if by % size == rank {
                    self.revoked = true;
                    core.revoke(current, now).map_err(|error| error.to_string())?;
                }
                self.think(now);
                return Ok(());
            }
            Op::Barrier => return self.collective(core, oracle, op, now),
            Op::Bcast { .. } | Op::Allreduce { .. } => {
                return self.collective(core, oracle, op, now);
            }
            Op::Dup => {
                core.idup(current, Ok(Attributes::default()), None, now).map(|task| vec![task])
            }
            Op::DupMany(count) => (0..count)
                .map(|_| core.idup(current, Ok(Attributes::default()), None, now))
                .collect(),
            Op::Split(colours) => {
                let colour = self.rng.random_range(0..=colours);
                let key = self.rng.random_range(-3..3);
                let colour = colour.checked_sub(1);
                core.isplit(current, colour, key, now).map(|task| vec![task])
            }
            Op::SplitShared => core.isplit_shared(current, true, 0, now).map(|task| vec![task]),
            Op::Inter => {
                let half = u32::from(rank % 3 == 0);
                let task = core.isplit(current, Some(half), 0, now);
                let task = task.map_err(|error| error.to_string())?;
                let instance = self.instance(core, 0);
                let (local, inter) = (CommHandle::NONE, CommHandle::NONE);
                let meeting = Meeting { step: 0, half, local, inter, made: Vec::new() };
                self.stage = Stage::Meeting(meeting, task, instance);
                return Ok(());
            }
            Op::CreateGroup(every) => {
                let ranks: Vec<u32> = (0..size).filter(|rank| rank % every != 0).collect();
                let group = core.group(current).and_then(|group| Ok(group.incl(&ranks)?));
                let group = group.map_err(|error| error.to_string())?;
                let task = core.icreate_group(current, &group, 7, now);
                let task = task.map_err(|error| error.to_string())?;
                // Who is no member may not even call; its outcome is nobody's.
                let number = (self.block * 100 + self.op) as u32;
                let kind = if group.contains(self.me) { 3 } else { 4 };
                self.stage =
                    Stage::Creating(vec![(task, Instance::new(core, current, kind, number))]);
                return Ok(());
            }
            Op::Create(every) => {
                let ranks: Vec<u32> = (0..size).filter(|rank| rank % every != 0).collect();
                let group = core.group(current).and_then(|group| Ok(group.incl(&ranks)?));
                group.and_then(|group| core.icreate(current, &group, now)).map(|task| vec![task])
            }
        };
        let tasks = started.map_err(|error| format!("{op:?} was not begun: {error}"))?;
        let tasks = tasks.into_iter().map(|task| (task, self.instance(core, 0))).collect();
        self.stage = Stage::Creating(tasks);
        Ok(())
    }

    fn created(
        &mut self,
        core: &mut Stack,
        oracle: &mut Oracle,
        tasks: Vec<(TaskId, Instance)>,
        now: u64,
    ) -> Result<(), String> {
        let op = self.blocks[self.block][self.op - 1];
        let mut made = Vec::new();
        let mut wrong = None;
        for (task, instance) in tasks {
            let outcome = core.test(task).ok_or("it was over")?;
            oracle.made(self.me, core, instance, &outcome)?;
            match outcome {
                Ok(Output::Comm(comm)) => made.extend(comm),
                Ok(other) => return Err(format!("a creation brings {other:?}")),
                Err(error) => wrong = Some(error),
            }
        }
        match op {
            Op::Dup | Op::DupMany(_) if wrong.is_none() => {
                let last = made.pop().ok_or("a duplicate has the same members")?;
                self.replace(core, last)?;
            }
            Op::Split(_) | Op::SplitShared if wrong.is_none() => {
                if let Some(part) = made.pop() {
                    return self.reduce_part(core, part, now);
                }
            }
            _ => {}
        }
        for comm in made {
            core.free(comm).map_err(|error| error.to_string())?;
        }
        if let Some(error) = wrong {
            self.failed(core, error, now)?;
        }
        self.think(now);
        Ok(())
    }

    /// One step of a meeting is over; begins the next.
    fn met(
        &mut self,
        core: &mut Stack,
        oracle: &mut Oracle,
        mut meeting: Meeting,
        instance: Instance,
        outcome: Result<Output, CoreError>,
        now: u64,
    ) -> Result<(), String> {
        oracle.made(self.me, core, instance, &outcome)?;
        let made = match outcome {
            Ok(Output::Comm(Some(comm))) => {
                meeting.made.push(comm);
                comm
            }
            Ok(Output::Comm(None)) => CommHandle::NONE,
            Ok(other) => return Err(format!("a creation brings {other:?}")),
            Err(error) => {
                self.part(core, meeting)?;
                self.failed(core, error, now)?;
                self.think(now);
                return Ok(());
            }
        };
        let text = |error: CoreError| error.to_string();
        let (inter, nothing) = (meeting.inter, Ok(Attributes::default()));
        meeting.step += 1;
        let instance = |core: &Stack, number| Instance::new(core, inter, 5, number);
        let (task, instance) = match meeting.step {
            1 => {
                meeting.local = made;
                let group = core.group(self.current).map_err(text)?;
                let other = (0..group.len()).find(|rank| u32::from(rank % 3 == 0) != meeting.half);
                let Some(other) = other else {
                    // All are in one half.
                    self.part(core, meeting)?;
                    self.think(now);
                    return Ok(());
                };
                let peer = Some((self.current, other));
                let task = core.iintercomm_create(made, 0, peer, 9, now).map_err(text)?;
                let number = (self.block * 100 + self.op) as u32;
                (task, Instance::new(core, self.current, 6, number))
            }
            2 => {
                meeting.inter = made;
                oracle.joined(core, made)?;
                let task = core.idup(made, nothing, None, now).map_err(text)?;
                (task, Instance::new(core, made, 5, 0))
            }
            3 => {
                oracle.joined(core, made)?;
                let rank = core.rank(inter).map_err(text)?;
                let task = core.isplit(inter, Some(rank % 2), -(rank as i32), now).map_err(text)?;
                (task, instance(core, 1))
            }
            4 => {
                if made != CommHandle::NONE {
                    oracle.joined(core, made)?;
                }
                (core.ishrink(inter, now).map_err(text)?, instance(core, 2))
            }
            5 => {
                oracle.joined(core, made)?;
                (core.imerge(inter, meeting.half == 1, now).map_err(text)?, instance(core, 3))
            }
            _ => {
                oracle.merged(core, inter, made, meeting.half)?;
                self.part(core, meeting)?;
                self.think(now);
                return Ok(());
            }
        };
        self.stage = Stage::Meeting(meeting, task, instance);
        Ok(())
    }

    fn part(&mut self, core: &mut Stack, meeting: Meeting) -> Result<(), String> {
        meeting.made.into_iter().try_for_each(|comm| core.free(comm)).map_err(|e| e.to_string())
    }

    fn reduce_part(&mut self, core: &mut Stack, part: CommHandle, now: u64) -> Result<(), String> {
        let instance = Instance::new(core, part, 1, 0);
        let group = core.group(part).map_err(|error| error.to_string())?.clone();
        let begun = self.allreduce(core, part, &group, 1, instance, now);
        match begun {
            Ok(mut running) => {
                running.part = Some(part);
                self.stage = Stage::Running(Box::new(running));
            }
            Err(error) => {
                core.free(part).map_err(|error| error.to_string())?;
                self.failed(core, error, now)?;
                self.think(now);
            }
        }
        Ok(())
    }

    /// What a process contributes to a reduction.
    fn share(&self, process: u32, instance: &Instance) -> u64 {
        (u64::from(process) + 1).wrapping_mul(self.seed | 1).wrapping_add(instance.salt())
    }

    fn allreduce(
        &mut self,
        core: &mut Stack,
        comm: CommHandle,
        group: &Group,
        count: usize,
        instance: Instance,
        now: u64,
    ) -> Result<Running, CoreError> {
        let mine = self.share(self.me, &instance).to_le_bytes().repeat(count);
        let sum = group.iter().fold(0_u64, |sum, p| sum.wrapping_add(self.share(p, &instance)));
        let expected = Some(sum.to_le_bytes().repeat(count));
        let elements = Elements { count, extent: 8, commutative: true };
        let call = Call::Allreduce { elements, in_place: false };
        let reduction = Reduction::new(Operator::Sum, Type::U64).expect("numbers can be added");
        let (send, recv) = (OwnedBuffer::from(mine), OwnedBuffer::zeroed(8 * count));
        // SAFETY: both live in the program, untouched, until the task is over; when the process dies its core goes first.
        let memory = unsafe { Memory { send: send.send_region(), recv: recv.recv_region() } };
        let task = core.icollective(comm, &call, memory, Some(&reduction), now)?;
        Ok(Running { task, instance, recv, send, expected, part: None })
    }

    fn collective(
        &mut self,
        core: &mut Stack,
        oracle: &mut Oracle,
        op: Op,
        now: u64,
    ) -> Result<(), String> {
        let current = self.current;
        let instance = self.instance(core, 1);
        let group = core.group(current).map_err(|error| error.to_string())?.clone();
        oracle.entered(self.me, &instance);
        let begun = match op {
            Op::Allreduce { count } => self.allreduce(core, current, &group, count, instance, now),
            Op::Bcast { root, len } => {
                let root = root % group.len();
                let data = self.share(group.process(root).expect("a rank"), &instance);
                let data: Vec<u8> = data.to_le_bytes().into_iter().cycle().take(len).collect();
                let mine = group.rank_of(self.me) == Some(root);
                let recv = if mine { data.clone() } else { vec![0; len] };
                let (recv, send) = (OwnedBuffer::from(recv), OwnedBuffer::zeroed(0));
                let send_region = SendRegion::of_static(&[]);
                // SAFETY: as in `allreduce`.
                let memory = unsafe { Memory { send: send_region, recv: recv.recv_region() } };
                let call = Call::Bcast { root: Root::Rank(root), len };
                let expected = Some(data);
                let task = core.icollective(current, &call, memory, None, now);
                task.map(|task| Running { task, instance, recv, send, expected, part: None })
            }
            _ => {
                let task = core.icollective(current, &Call::Barrier, Memory::none(), None, now);
                let (recv, send) = (OwnedBuffer::zeroed(0), OwnedBuffer::zeroed(0));
                task.map(|task| Running { task, instance, recv, send, expected: None, part: None })
            }
        };
        match begun {
            Ok(running) => self.stage = Stage::Running(Box::new(running)),
            Err(error) => {
                self.failed(core, error, now)?;
                self.think(now);
            }
        }
        Ok(())
    }

    fn ran(
        &mut self,
        core: &mut Stack,
        oracle: &mut Oracle,
        running: Running,
        outcome: Result<Output, CoreError>,
        now: u64,
    ) -> Result<(), String> {
        let Running { instance, recv, expected, part, .. } = running;
        match outcome {
            Ok(Output::Done) => match expected {
                Some(expected) if recv.as_slice() != expected => {
                    return Err(format!("{instance:?} succeeds with wrong data"));
                }
                Some(_) => {}
                None => oracle.passed(core, self.current, &instance)?,
            },
            Ok(other) => return Err(format!("a collective brings {other:?}")),
            Err(error) => self.failed(core, error, now)?,
        }
        if let Some(part) = part {
            core.free(part).map_err(|error| error.to_string())?;
        }
        self.think(now);
        Ok(())
    }

    fn end_block(&mut self, core: &mut Stack, oracle: &mut Oracle, now: u64) -> Result<(), String> {
        let mut tasks = Vec::new();
        for at in 0..self.agreements {
            let flag = if at == 0 { u64::from(self.error.is_none()) } else { self.rng.random() };
            let instance = self.instance(core, 2);
            oracle.contributed(self.me, &instance, flag);
            // Some begin in the one way and some in the other.
            let begun = if self.agreements == 1 && self.rng.random_ratio(19, 20) {
                core.agree(self.current, flag, 0, now)
            } else {
                core.iagree(self.current, flag, now).map(Agreeing::Waits)
            };
            tasks.push((begun.map_err(|error| error.to_string())?, instance));
        }
        self.stage = Stage::Agreeing(tasks);
        Ok(())
    }

    fn agreed(
        &mut self,
        core: &mut Stack,
        oracle: &mut Oracle,
        tasks: Vec<(Agreeing, Instance)>,
        now: u64,
    ) -> Result<(), String> {
        self.good = true;
        for (at, (begun, instance)) in tasks.into_iter().enumerate() {
            let outcome = match begun {
                Agreeing::Waits(task) => core.test(task).ok_or("it was over")?,
                Agreeing::Over(output) => Ok(output),
            };
            let Ok(Output::Agreed { flag, failure }) = outcome else {
                return Err(format!("an agreement brings {outcome:?}"));
            };
            if failure.is_some() && core.failed(self.current).is_ok_and(|failed| failed.is_empty())
            {
                return Err(format!("{instance:?} tells of failures that nobody can ask for"));
            }
            self.good &= failure.is_none() && (at > 0 || flag & 1 == 1);
            oracle.agreed(self.me, &instance, flag, failure)?;
        }
        if self.good {
            (self.block, self.op, self.error) = (self.block + 1, 0, None);
            self.think(now);
        } else {
            let instance = self.instance(core, 2);
            let task = core.ishrink(self.current, now).map_err(|error| error.to_string())?;
            self.stage = Stage::Shrinking(task, instance);
        }
        Ok(())
    }
}
