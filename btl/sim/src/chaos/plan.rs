//! What the chaos wrapper does, how often. Plain data, printed when a test fails.

use rand::{Rng, SeedableRng, rngs::SmallRng};

/// How often each mischief happens, in thousandths of the occasions named, and its bounds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChaosPlan {
    /// Decides everything.
    pub seed: u64,
    /// Of sends and remote accesses: not done at all, and given back with an error of the operation.
    pub error_before: u32,
    /// Of sends and remote accesses that were done: given back with an error all the same.
    pub error_after: u32,
    /// Of operations: the start of a burst of `NoRoom`.
    pub no_room: u32,
    /// Longest burst, in operations; each `progress` shortens it too.
    pub burst_max: u32,
    /// Zero-copy sends and remote accesses that may be out at a time; 0 is without limit.
    pub scarce: u32,
    /// Of registrations: refused with `NoRoom`.
    pub no_registration: u32,
    /// Of reports: held back, and all later ones of that peer with it.
    pub delay: u32,
    /// Longest delay, in calls of `progress`.
    pub delay_max: u32,
    /// Of `progress` calls: the start of a time in which the whole rail stands still.
    pub stall: u32,
    /// Longest standstill, in calls of `progress`.
    pub stall_max: u32,
    /// Of `progress` calls: the loss of the rail to some peer.
    pub lose_rail: u32,
    /// Of `progress` calls: the loss of the whole device.
    pub lose_device: u32,
    /// Of `progress` calls: from now on nothing comes from or gets to some peer, as if it hung or died unseen.
    /// Only `invalidate` ends that.
    pub mute: u32,
    /// Losses and silences, taken together, that happen at most.
    pub losses_max: u32,
    /// Of frames: delivered twice. Not what a transport may do; protocols above must bear it after a failover.
    pub duplicate: u32,
    /// Of endpoints that come up again: frames of the earlier life are delivered. As `duplicate`.
    pub stale: u32,
}

impl ChaosPlan {
    /// Nothing that the contract does not allow a healthy transport: delays, refusals, scarcity.
    #[must_use]
    pub fn benign(seed: u64) -> Self {
        ChaosPlan {
            seed,
            no_room: 20,
            burst_max: 30,
            scarce: 8,
            no_registration: 50,
            delay: 100,
            delay_max: 10,
            stall: 10,
            stall_max: 30,
            ..Self::default()
        }
    }

    /// A healthy transport's moods, and rails that are lost.
    #[must_use]
    pub fn losses(seed: u64) -> Self {
        ChaosPlan { lose_rail: 5, lose_device: 1, losses_max: 5, ..Self::benign(seed) }
    }

    /// Losses, and errors of single operations, done or not.
    #[must_use]
    pub fn errors(seed: u64) -> Self {
        ChaosPlan { error_before: 10, error_after: 10, ..Self::losses(seed) }
    }

    /// A plan drawn by its seed from all of this, without duplicate and stale frames.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let plan = match rng.random_range(0..3) {
            0 => Self::benign(seed),
            1 => Self::losses(seed),
            _ => Self::errors(seed),
        };
        let mut draw = |most: u32| if most == 0 { 0 } else { rng.random_range(0..=2 * most) };
        ChaosPlan {
            error_before: draw(plan.error_before),
            error_after: draw(plan.error_after),
            no_room: draw(plan.no_room),
            delay: draw(plan.delay),
            stall: draw(plan.stall),
            lose_rail: draw(plan.lose_rail),
            lose_device: draw(plan.lose_device),
            ..plan
        }
    }
}
