//! What one simulation is made of, drawn from its seed.

use ironweave_btl::{Caps, FailureReport, Peer};
use ironweave_btl_sim::{ChaosPlan, Death, RailModel, SimFault};
use rand::{Rng, SeedableRng, rngs::SmallRng};

/// One communicator: the processes by rank.
pub type Group = Vec<u32>;

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub ranks: u32,
    /// Operations that each process starts before the end.
    pub operations: u32,
    pub rails: Vec<RailModel>,
    pub chaos: bool,
    /// Rails between the living are lost, too, and heal.
    pub losses: bool,
    /// Operations fail by themselves, done or not, and frames come twice or late.
    pub errors: bool,
    /// Groups that a process revokes: when, and who.
    pub revokes: Vec<(u64, u32, usize)>,
    /// How long an owner waits for a peer that is cut off, before it gives it up.
    pub patience_ns: u64,
    /// Communicators; each process is in a few.
    pub groups: Vec<Group>,
    pub kills: Vec<(u64, u32)>,
    /// Cuts that heal before a rail gives up.
    pub cuts: Vec<(u64, SimFault)>,
    /// Lengths that lie at the borders of protocols.
    pub borders: Vec<usize>,
    /// Time in which a death becomes known to a survivor, at most.
    pub spread_ns: u64,
    /// Longest pause between two operations of a process.
    pub think_ns: u64,
}

impl Plan {
    /// A rail with limits so low that short messages meet every protocol.
    pub fn small(model: RailModel) -> RailModel {
        let caps = Caps {
            max_short: 160,
            max_bcopy: 700,
            max_zcopy: if model.caps.max_zcopy == 0 { 0 } else { 12 << 10 },
            eager_limit: 1000,
            posted_limit: 4000,
            rndv_eager_limit: 400,
            fragment: 600,
            ..model.caps
        };
        RailModel { caps, landing_min: 256, credits: 12, ..model }
    }

    pub fn new(seed: u64, ranks: u32, operations: u32) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed ^ 0x91a4);
        let mut rails = match rng.random_range(0..7) {
            0 => vec![Self::small(RailModel::tcp())],
            1 => vec![Self::small(RailModel::shm())],
            2 => vec![Self::small(RailModel::verbs())],
            3 => vec![Self::small(RailModel::silent())],
            4 => vec![Self::small(RailModel::tcp()), Self::small(RailModel::tcp())],
            5 => vec![Self::small(RailModel::verbs()), Self::small(RailModel::tcp())],
            _ => vec![Self::small(RailModel::shm()), Self::small(RailModel::tcp())],
        };
        for model in &mut rails {
            if rng.random_range(0..4) == 0 {
                model.caps.failure_report = FailureReport::Silent;
            }
            if rng.random_range(0..4) == 0 {
                model.death = Death::Proof;
            }
            if rng.random_range(0..3) == 0 {
                *model = model.clone().calm();
            }
        }
        let mut groups = Vec::new();
        for _ in 0..2 {
            // A partition of all processes in random order: each is once in it.
            let mut all: Vec<u32> = (0..ranks).collect();
            for at in (1..all.len()).rev() {
                all.swap(at, rng.random_range(0..=at));
            }
            let size = rng.random_range(2..=12);
            groups.extend(all.chunks(size).map(<[u32]>::to_vec));
        }
        let think_ns = 1 << rng.random_range(8..16);
        let length_ns = u64::from(operations) * think_ns + 100_000;
        let most = 1 + ranks / 100;
        let kills = (0..rng.random_range(0..=most))
            .map(|_| (rng.random_range(0..length_ns), rng.random_range(0..ranks)))
            .collect();
        let mut cuts = Vec::new();
        for _ in 0..rng.random_range(0..3) {
            let at = rng.random_range(0..length_ns);
            let group = (0..ranks).filter(|_| rng.random()).map(Peer).collect();
            cuts.push((at, SimFault::Partition(group)));
            cuts.push((at + rng.random_range(0..2_000_000), SimFault::Heal));
        }
        // Cuts that overlap a death may break the rail to the dead; between the living they heal in time.
        let mut borders = vec![0, 1, 2, 3, 4, 5];
        for model in &rails {
            let caps = &model.caps;
            for border in [
                caps.max_short,
                caps.max_short - 16,
                caps.max_bcopy,
                caps.eager_limit,
                caps.posted_limit,
                caps.fragment,
                2 * caps.fragment,
                3000,
            ] {
                borders.extend([border - 1, border, border + 1]);
            }
        }
        let spread_ns = 1 << rng.random_range(10..21);
        let losses = rng.random();
        let errors = losses && rng.random();
        let chaos = losses || rng.random_range(0..3) == 0;
        // Mostly long enough for a rail to heal, sometimes not.
        let patience_ns = if rng.random_range(0..3) == 0 { 300_000 } else { 30_000_000 };
        if losses {
            for _ in 0..rng.random_range(0..1 + ranks / 50) {
                let at = rng.random_range(0..length_ns);
                let (a, b) = (rng.random_range(0..ranks), rng.random_range(0..ranks));
                let rail = rng.random_range(0..rails.len()) as u16;
                let fault = match rng.random_range(0..3) {
                    0 => SimFault::Device(Peer(a), rail),
                    1 => SimFault::Break(Peer(a), Peer(b), rail),
                    _ => SimFault::Cut(Peer(a), Peer(b), Some(rail)),
                };
                cuts.push((at, fault));
                cuts.push((at + rng.random_range(0..20_000_000), SimFault::Heal));
            }
        }
        let mut revokes = Vec::new();
        for _ in 0..rng.random_range(0..2 + groups.len() / 20) {
            let group = rng.random_range(0..groups.len());
            let by = groups[group][rng.random_range(0..groups[group].len())];
            revokes.push((rng.random_range(0..length_ns), by, group));
        }
        Plan {
            seed,
            ranks,
            operations,
            rails,
            chaos,
            losses,
            errors,
            revokes,
            patience_ns,
            groups,
            kills,
            cuts,
            borders,
            spread_ns,
            think_ns,
        }
    }

    pub fn chaos_plan(&self, process: u32, rail: usize) -> ChaosPlan {
        let benign = ChaosPlan::benign(self.seed ^ u64::from(process) << 8 ^ rail as u64);
        if !self.losses {
            return benign;
        }
        let losses = ChaosPlan { lose_rail: 2, lose_device: 1, losses_max: 2, ..benign };
        if !self.errors {
            return losses;
        }
        ChaosPlan { error_before: 10, error_after: 10, duplicate: 10, stale: 500, ..losses }
    }
}
