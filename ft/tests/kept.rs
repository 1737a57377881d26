//! Values of agreements are kept for those who come late, and no longer: however many agreements there are, who lags, and who
//! dies.

use ironweave_ft::{CommKey, Contribution, Effect, Frame, Group, Plane, PlaneConfig};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeSet, HashMap, VecDeque};

const KEY: CommKey = CommKey { cid: 0, epoch: 0 };
const SIZE: u32 = 6;
const MANY: u64 = 10_000;
/// A process begins so many before the first of them is decided.
const AHEAD: u64 = 16;
/// Decided, and not known to be so by all: since the last one that the slowest has decided, whose next ones the others have begun.
const MOST: usize = 2 * AHEAD as usize;

struct Process {
    plane: Plane,
    begun: u64,
    open: BTreeSet<u64>,
    /// The most values that it kept at a time.
    most: usize,
}

struct Job {
    processes: Vec<Option<Process>>,
    /// What is on its way, by sender and receiver.
    wires: HashMap<(u32, u32), VecDeque<Frame>>,
    /// By number: the flag, as first returned.
    returned: Vec<u64>,
    random: SmallRng,
}

impl Job {
    fn new(seed: u64) -> Self {
        let process = |me| {
            let mut plane = Plane::new(me, SIZE, PlaneConfig::default());
            plane.add_comm(KEY, Group::world(SIZE), 0);
            Some(Process { plane, begun: 0, open: BTreeSet::new(), most: 0 })
        };
        Job {
            processes: (0..SIZE).map(process).collect(),
            wires: HashMap::new(),
            returned: Vec::new(),
            random: SmallRng::seed_from_u64(seed),
        }
    }

    fn living(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().flatten()
    }

    /// Lets a process begin what it may of `until`, and take up to `frames` from each of the others. How much it did.
    fn turn(&mut self, me: u32, until: u64, frames: usize) -> usize {
        let Some(mut process) = self.processes[me as usize].take() else { return 0 };
        let mut moved = 0;
        let first = |process: &Process| process.open.first().copied().unwrap_or(process.begun);
        while process.begun < until && process.begun - first(&process) < AHEAD {
            let flag = Contribution { flag: !(1 << me), ..Contribution::default() };
            process.open.insert(process.begun);
            process.plane.agree(KEY, process.begun, flag, 0);
            process.begun += 1;
            moved += 1;
            self.effects(me, &mut process);
        }
        for from in 0..SIZE {
            for _ in 0..frames {
                let wire = self.wires.get_mut(&(from, me));
                let Some(frame) = wire.and_then(VecDeque::pop_front) else { break };
                process.plane.receive(from, &frame, 0);
                moved += 1;
                self.effects(me, &mut process);
            }
        }
        self.processes[me as usize] = Some(process);
        moved
    }

    fn effects(&mut self, me: u32, process: &mut Process) {
        while let Some(effect) = process.plane.poll_effect() {
            match effect {
                Effect::Send { to, bytes } => {
                    self.wires.entry((me, to)).or_default().push_back(bytes);
                }
                Effect::Decided(decided) => {
                    assert!(process.open.remove(&decided.seq), "{me} returned it before");
                    let at = decided.seq as usize;
                    if self.returned.len() <= at {
                        self.returned.resize(at + 1, 0);
                    }
                    // Somebody's bit is missing in every flag, so none is 0 or all ones by accident.
                    let first = &mut self.returned[at];
                    *first = if *first == 0 { decided.flag } else { *first };
                    assert_eq!(*first, decided.flag, "agreement {at} at {me}");
                }
                Effect::Failed { processes, source } => {
                    process.plane.failed_from(&processes, source, 0);
                }
                other => panic!("{me}: {other:?}"),
            }
        }
        process.most = process.most.max(process.plane.kept());
        assert!(process.most <= MOST, "{me} keeps {} of {}", process.plane.kept(), process.begun);
    }

    /// Until nothing moves. The laggard has a turn only when the others wait for it.
    fn settle(&mut self, until: u64, laggard: u32, mut each: impl FnMut(&mut Self)) {
        loop {
            let mut moved = 0;
            for me in (0..SIZE).filter(|me| *me != laggard) {
                let frames = self.random.random_range(0..4);
                moved += self.turn(me, until, frames);
            }
            each(self);
            if moved == 0 && (0..SIZE).map(|me| self.turn(me, until, 3)).sum::<usize>() == 0 {
                break;
            }
        }
    }

    /// It dies; some of what it sent last is lost. Numbers that one has returned and another has not.
    fn kill(&mut self, victim: u32) -> usize {
        self.processes[victim as usize] = None;
        for to in 0..SIZE {
            let wire = self.wires.entry((victim, to)).or_default();
            wire.truncate(self.random.random_range(0..=wire.len()));
        }
        let observer = self.processes[victim as usize - 1].as_mut().expect("one dies");
        observer.plane.failed(victim, 0);
        let open: BTreeSet<u64> = self.living().flat_map(|p| p.open.iter().copied()).collect();
        open.iter().filter(|seq| self.returned.get(**seq as usize).is_some_and(|f| *f != 0)).count()
    }
}

#[test]
fn however_many_agreements_few_values_are_kept() {
    let mut half_returned = 0;
    for (seed, (laggard, victim)) in (0..).zip([(1, 3), (1, 1), (2, 5)]) {
        let mut job = Job::new(seed);
        let mut dead = false;
        job.settle(MANY, laggard, |job| {
            if !dead && job.processes[victim as usize].as_ref().is_some_and(|p| p.begun > MANY / 2)
            {
                dead = true;
                half_returned += job.kill(victim);
            }
        });
        assert!(dead);
        for process in job.living() {
            assert_eq!((process.begun, process.open.len()), (MANY, 0));
            let sound = process.plane.counters().malformed == 0;
            assert!(sound && process.most >= AHEAD as usize / 2, "it kept {}", process.most);
        }
        // One more, and everybody knows that all have returned everything before it.
        job.settle(MANY + 1, laggard, |_| ());
        let kept: Vec<usize> = job.living().map(|process| process.plane.kept()).collect();
        assert_eq!(kept, [1; SIZE as usize - 1]);
        for process in job.processes.iter_mut().flatten() {
            process.plane.free_comm(KEY, 0);
        }
        for me in 0..SIZE {
            if let Some(mut process) = job.processes[me as usize].take() {
                job.effects(me, &mut process);
                job.processes[me as usize] = Some(process);
            }
        }
        job.settle(0, laggard, |_| ());
        for process in job.living() {
            assert_eq!((process.plane.comms(), process.plane.kept()), (0, 0));
        }
        let most: Vec<usize> = job.living().map(|process| process.most).collect();
        println!("{laggard} lags, {victim} dies: at most {most:?} values were kept");
    }
    println!("{half_returned} agreements were returned by some when somebody died");
    assert!(half_returned > 0, "nobody asked for a value");
}
