//! What is measured for the curves, and one line of `docs/cost.csv` for each: for the program that writes it and the test that
//! keeps it true.

use super::detect;
use super::wire::{Model, What, Wire};
use ironweave_ft::{
    CommKey, Contribution, Effect, Group, Plane, PlaneConfig, RankSet, Scope, Shrink,
};
use rand::SeedableRng;
use rand::rngs::SmallRng;

const KEY: CommKey = CommKey { cid: 0, epoch: 0 };
pub const MODEL: Model = Model::VERBS;
const ALLREDUCE: &str = "allreduce of 4 B";
const BCAST: &str = "bcast of 8 B";

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// One process has died and one has found out: until all know.
    Notice,
    /// One process revokes: until all know.
    Revoke,
    /// All agree, nobody has failed.
    Agree,
    /// All agree; one has died without contributing and one process finds out as they begin.
    AgreeDeath,
    /// All shrink; everybody knows of one death.
    Shrink,
}

impl Operation {
    pub const ALL: [Operation; 5] = [
        Operation::Notice,
        Operation::Revoke,
        Operation::Agree,
        Operation::AgreeDeath,
        Operation::Shrink,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Operation::Notice => "failure notice",
            Operation::Revoke => "revoke",
            Operation::Agree => "agree",
            Operation::AgreeDeath => "agree, a death in it",
            Operation::Shrink => "shrink",
        }
    }
}

/// What it cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    pub name: &'static str,
    pub ranks: u32,
    pub messages: u64,
    pub bytes: u64,
    /// Until the last process was done.
    pub ns: u64,
}

pub fn measure(operation: Operation, ranks: u32) -> Cost {
    let (mut wire, mut random) = (Wire::<()>::new(MODEL, ranks), SmallRng::seed_from_u64(0));
    let dead = match operation {
        Operation::Notice | Operation::AgreeDeath | Operation::Shrink => Some(ranks / 2),
        Operation::Revoke | Operation::Agree => None,
    };
    let finder = dead.map(|dead| dead - 1);
    let mut planes: Vec<Plane> = Vec::with_capacity(ranks as usize);
    let mut shrinks: Vec<Option<Shrink>> = vec![None; ranks as usize];
    for me in 0..ranks {
        let mut plane = Plane::new(me, ranks, PlaneConfig::default());
        plane.add_comm(KEY, Group::world(ranks), 0);
        if Some(me) != dead && operation == Operation::Shrink {
            // Known to all, and long since told.
            plane.failed(ranks / 2, 0);
            while plane.poll_effect().is_some() {}
        }
        planes.push(plane);
    }
    // As a program that agrees contributes; a shrink brings an epoch in `highest`.
    let mine = |me| Contribution { flag: u64::from(me), highest: 0, acknowledged: RankSet::new() };
    for me in (0..ranks).filter(|me| Some(*me) != dead) {
        let plane = &mut planes[me as usize];
        if matches!(operation, Operation::Notice | Operation::AgreeDeath) && Some(me) == finder {
            plane.failed(ranks / 2, 0);
        }
        match operation {
            Operation::Notice => {}
            Operation::Revoke if me == 0 => {
                plane.revoke(KEY, Scope::All, 0);
            }
            Operation::Revoke => {}
            Operation::Agree | Operation::AgreeDeath => plane.agree(KEY, 0, mine(me), 0),
            Operation::Shrink => {
                shrinks[me as usize] = Some(Shrink::start(plane, KEY, 0, !0, 0, 0))
            }
        }
    }
    // The one that began is done; everybody else has to hear of it.
    let mut missing = ranks - u32::from(dead.is_some());
    let mut last = 0;
    if matches!(operation, Operation::Notice | Operation::Revoke) {
        missing -= 1;
    }
    let mut effects = |planes: &mut Vec<Plane>, wire: &mut Wire<()>, me: u32, now: u64| {
        let plane = &mut planes[me as usize];
        while let Some(effect) = plane.poll_effect() {
            let done = match effect {
                Effect::Send { to, bytes } => {
                    wire.send(me, to, bytes, &mut random, |_, _| Some(to) != dead);
                    false
                }
                Effect::Failed { processes, source } => {
                    plane.failed_from(&processes, source, now);
                    operation == Operation::Notice
                }
                Effect::Revoked(..) => true,
                Effect::Decided(decided) => match &mut shrinks[me as usize] {
                    Some(shrink) => shrink.decided(plane, &decided, !0, 0, now).is_some(),
                    None => true,
                },
                Effect::Release(..) => unreachable!("nothing is posted"),
                Effect::Fenced => unreachable!("nobody is accused"),
            };
            if done {
                missing -= 1;
                last = last.max(now);
            }
        }
        plane.trim();
    };
    for me in 0..ranks {
        effects(&mut planes, &mut wire, me, 0);
    }
    while let Some((time, what)) = wire.next() {
        if let What::Arrive { from, to, frame } = what {
            let now = wire.attend(to, time, true);
            planes[to as usize].receive(from, &frame, now);
            effects(&mut planes, &mut wire, to, now);
        }
    }
    assert_eq!(missing, 0, "{operation:?} of {ranks} did not end");
    Cost { name: operation.name(), ranks, messages: wire.messages, bytes: wire.bytes, ns: last }
}

/// Time of one message of so many bytes with header, from the sender's call to the receiver's.
fn message(bytes: u64) -> u64 {
    MODEL.overhead + bytes * MODEL.byte_ps / 1000 + MODEL.latency + MODEL.overhead
}

/// A 4-byte allreduce by recursive doubling: what an agreement is compared with. Powers of two.
pub fn allreduce(ranks: u32) -> Cost {
    let rounds = u64::from(ranks.ilog2());
    let messages = rounds * u64::from(ranks);
    Cost { name: ALLREDUCE, ranks, messages, bytes: messages * 20, ns: rounds * message(20) }
}

/// A small broadcast by a binomial tree: what a revoke is compared with.
pub fn bcast(ranks: u32) -> Cost {
    // A process that has 2^k to reach sends to the one that has to reach 2^(k−1), then to the next.
    fn reach(levels: u64) -> u64 {
        let step = MODEL.overhead.max(MODEL.gap);
        (0..levels)
            .map(|sent| sent * step + message(24) + reach(levels - 1 - sent))
            .max()
            .unwrap_or(0)
    }
    let messages = u64::from(ranks) - 1;
    Cost { name: BCAST, ranks, messages, bytes: messages * 24, ns: reach(u64::from(ranks.ilog2())) }
}

/// A line of cost.csv.
pub fn parse(line: &str) -> Option<Cost> {
    let (name, numbers) = line.strip_prefix('"')?.split_once("\",")?;
    let others = [ALLREDUCE, BCAST, detect::DETECT, detect::SILENCE];
    let names = Operation::ALL.map(Operation::name).into_iter().chain(others);
    let name = names.into_iter().find(|known| *known == name)?;
    let numbers: Vec<u64> = numbers.split(',').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [ranks, messages, bytes, ns] = numbers[..] else {
        return None;
    };
    Some(Cost { name, ranks: ranks.try_into().ok()?, messages, bytes, ns })
}
