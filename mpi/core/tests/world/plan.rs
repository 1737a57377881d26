//! What one world is made of: the program of its processes, and what goes wrong when. Made from a seed.

use ironweave_btl_sim::RailModel;
use ironweave_ft::Board;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// One operation on the current communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    Barrier,
    Bcast {
        root: u32,
        len: usize,
    },
    Allreduce {
        count: usize,
    },
    /// The duplicate is the current communicator from here on.
    Dup,
    /// Several at once; the last one is the current communicator.
    DupMany(u32),
    /// Into this many; each colour reduces something and frees its part.
    Split(u32),
    /// By host.
    SplitShared,
    /// Of the ranks that are no multiple of this.
    Create(u32),
    /// As `Create`, by the members alone.
    CreateGroup(u32),
    /// Two halves meet in an inter-communicator, which is duplicated, split, shrunk and merged.
    Inter,
    /// By this rank. The others learn of it. Not when the block is done again.
    Revoke(u32),
}

impl Op {
    /// The creations in which disasters strike, by name.
    pub const CREATIONS: [(&str, Op); 6] = [
        ("dup", Op::Dup),
        ("dups", Op::DupMany(2)),
        ("create", Op::Create(2)),
        ("create-group", Op::CreateGroup(3)),
        ("split", Op::Split(5)),
        ("inter", Op::Inter),
    ];
}

/// What goes on in some process when trouble comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    Creation,
    Revoke,
    Agree,
    Shrink,
}

/// How much goes wrong at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// A few processes die.
    Few,
    /// Some are held for dead, and live.
    Suspicion,
    /// Half of all die within 200 microseconds.
    Half,
}

impl Moment {
    pub const ALL: [Moment; 4] = [Moment::Creation, Moment::Revoke, Moment::Agree, Moment::Shrink];
}

impl Trouble {
    pub const ALL: [Trouble; 3] = [Trouble::Few, Trouble::Suspicion, Trouble::Half];
}

/// What goes wrong, in nanoseconds after the first process came to the moment.
#[derive(Clone, Debug)]
pub struct Disaster {
    pub moment: Moment,
    pub kills: Vec<(u64, u32)>,
    /// The first holds the second, which lives, for dead.
    pub lies: Vec<(u64, u32, u32)>,
}

/// What one world is made of.
#[derive(Clone)]
pub struct Plan {
    pub seed: u64,
    pub ranks: u32,
    pub rail: RailModel,
    pub blocks: Vec<Vec<Op>>,
    /// Agreements at once at the end of a block.
    pub agreements: u32,
    /// Who notices an error revokes, in so many of 100 cases.
    pub revokes: u32,
    pub kills: Vec<(u64, u32)>,
    pub disaster: Option<Disaster>,
    /// In which time a death is told to the neighbour, at most.
    pub detect_ns: u64,
    /// Longest pause before an operation.
    pub think_ns: u64,
    pub hosts: Option<Arc<[u32]>>,
    /// The processes of a host share a board.
    pub board: bool,
    /// The test that made it.
    pub test: &'static str,
    /// The command that runs it again, if another than the test's.
    pub again: String,
}

impl Plan {
    pub fn new(test: &'static str, seed: u64, ranks: u32, blocks: u32, deaths: u32) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed ^ 0x5eed << 32 ^ u64::from(ranks));
        let rail = match rng.random_range(0..4) {
            0 => RailModel::shm(),
            1 => RailModel::silent(),
            _ => RailModel::tcp(),
        };
        let mut blocks: Vec<Vec<Op>> = (0..blocks)
            .map(|_| {
                (0..rng.random_range(1..5)).map(|_| Self::operation(&mut rng, ranks)).collect()
            })
            .collect();
        if rng.random_range(0..3) == 0 {
            let block = rng.random_range(0..blocks.len());
            let at = rng.random_range(0..=blocks[block].len());
            blocks[block].insert(at, Op::Revoke(rng.random_range(0..ranks)));
        }
        let think_ns = 1 << rng.random_range(4..17);
        let operations = blocks.iter().map(|block| block.len() as u64 + 1).sum::<u64>();
        let horizon = operations * (think_ns + 150_000);
        let kills = (0..deaths)
            .map(|_| (rng.random_range(0..horizon), rng.random_range(0..ranks)))
            .collect();
        let cores = if rng.random() { rng.random_range(1..5) } else { ranks };
        let hosts: Option<Arc<[u32]>> =
            rng.random::<bool>().then(|| (0..ranks).map(|rank| rank / cores).collect());
        Plan {
            seed,
            ranks,
            rail,
            blocks,
            agreements: rng.random_range(1..4),
            revokes: [0, 50, 100][rng.random_range(0..3)],
            kills,
            disaster: None,
            detect_ns: 1 << rng.random_range(10..21),
            think_ns,
            board: hosts.is_some() && ranks <= 64,
            hosts,
            test,
            again: String::new(),
        }
    }

    /// A short program in which something goes wrong at a chosen moment, in a creation of a chosen kind or any: for many ranks.
    pub fn disaster(
        seed: u64,
        ranks: u32,
        moment: Moment,
        trouble: Trouble,
        creation: Option<Op>,
    ) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed ^ 0xd15a << 32 ^ u64::from(ranks));
        let rail = if rng.random() { RailModel::silent() } else { RailModel::tcp() };
        let mut again = format!("ci/worlds --seed {seed} --ranks {ranks}");
        again += &format!(" --moment {moment:?} --trouble {trouble:?}");
        if let Some((name, _)) = Op::CREATIONS.iter().find(|(_, op)| Some(*op) == creation) {
            again += &format!(" --creation {name}");
        }
        let any = Op::CREATIONS[rng.random_range(0..Op::CREATIONS.len())].1;
        let creation = creation.unwrap_or(any);
        let first = match moment {
            Moment::Creation => vec![creation],
            Moment::Agree => vec![Op::Allreduce { count: 1 }],
            Moment::Revoke | Moment::Shrink => {
                vec![Op::Revoke(rng.random_range(0..ranks)), Op::Allreduce { count: 1 }, Op::Dup]
            }
        };
        let (mut kills, mut lies) = ((0, 0), Vec::new());
        let some = rng.random_range(1..=8);
        match trouble {
            Trouble::Few => kills = (some, 50_000),
            Trouble::Half => kills = (ranks as usize / 2, 200_000),
            Trouble::Suspicion => lies = vec![50_000; some],
        }
        let (victims, most) = kills;
        let victims =
            rand::seq::index::sample(&mut rng, ranks as usize, victims.min(ranks as usize));
        let kills =
            victims.into_iter().map(|victim| (rng.random_range(0..most), victim as u32)).collect();
        // Nobody is both: two that hold each other for dead are for the detector to settle.
        let half = ranks / 2;
        let lies = lies.into_iter().map(|most| {
            let (by, about) = (rng.random_range(0..half), rng.random_range(half..ranks));
            (rng.random_range(0..most), by, about)
        });
        let disaster = Disaster { moment, kills, lies: lies.collect() };
        Plan {
            seed,
            ranks,
            rail,
            blocks: vec![first, vec![Op::Barrier]],
            agreements: rng.random_range(1..3),
            revokes: [0, 100][rng.random_range(0..2)],
            kills: Vec::new(),
            disaster: Some(disaster),
            detect_ns: 1 << rng.random_range(14..20),
            think_ns: 1 << rng.random_range(4..15),
            hosts: None,
            board: false,
            test: "",
            again,
        }
    }

    fn operation(rng: &mut SmallRng, ranks: u32) -> Op {
        match rng.random_range(0..16) {
            0 => Op::Barrier,
            1 => Op::Bcast { root: rng.random_range(0..ranks), len: 1 << rng.random_range(0..14) },
            2 | 3 => Op::Allreduce { count: 1 << rng.random_range(0..10) },
            4..7 => Op::Dup,
            7 => Op::DupMany(rng.random_range(2..5)),
            8 | 9 => Op::Split(rng.random_range(1..6)),
            10 => Op::SplitShared,
            11 => Op::Create(rng.random_range(2..5)),
            12 | 13 => Op::CreateGroup(rng.random_range(2..5)),
            _ => Op::Inter,
        }
    }

    /// The words of a board of two slots, if this world has one. They stay: a core keeps them as long as its process runs.
    pub fn board(&self) -> Option<&'static [AtomicU64]> {
        let words = || (0..Board::words(self.ranks, 2)).map(|_| AtomicU64::new(0));
        self.board.then(|| &*words().collect::<Vec<_>>().leak())
    }

    /// When `me` is told of a death.
    pub fn detection(&self, me: u32, dead: u32) -> u64 {
        let seed = self.seed ^ u64::from(me) << 40 ^ u64::from(dead) << 8;
        SmallRng::seed_from_u64(seed).random_range(0..=self.detect_ns)
    }

    /// How to run it again.
    pub fn command(&self) -> String {
        let Plan { seed, ranks, blocks, kills, test, .. } = self;
        if !self.again.is_empty() {
            return self.again.clone();
        }
        format!(
            "IRONWEAVE_CORE_SIM={seed},{ranks},{},{} cargo nextest run -p ironweave-core --no-capture {test}",
            blocks.len(),
            kills.len()
        )
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { seed, ranks, rail, blocks, kills, revokes, disaster, .. } = self;
        let name = rail.caps.name;
        if let Some(disaster) = disaster {
            let text = format!("{disaster:?}");
            write!(f, "{} … ", &text[..text.len().min(300)])?;
        }
        write!(f, "seed {seed}, {ranks} ranks over {name}, kills {kills:?}, revokes {revokes} %")?;
        write!(f, ", blocks {blocks:?}")
    }
}
