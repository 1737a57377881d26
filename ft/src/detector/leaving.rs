//! Leaving the job: both neighbours are told, and whom to take instead, until they say that they know, or need not be waited for.

use super::{Detector, Effect, Message, Nanos, Phase};

/// Farewells to a neighbour that does not answer when all leave together.
const TOLD_ENOUGH: u32 = 4;
/// Time between them, at most.
const TOGETHER_GAP: Nanos = 1_000_000;

/// Time until a farewell is repeated.
fn farewell_gap(usual: Nanos, together: bool) -> Nanos {
    let gap = if together { usual.min(TOGETHER_GAP) } else { usual };
    gap.max(1)
}

/// A neighbour that has to know that this process leaves, and whom to take instead.
#[derive(Debug)]
pub(super) struct Farewell {
    pub(super) to: u32,
    pub(super) message: Message,
    pub(super) token: u32,
    /// How often it was told.
    pub(super) told: u32,
    pub(super) acknowledged: bool,
    pub(super) again_at: Nanos,
}

impl Detector {
    /// Tells both neighbours, as they are now; and, without waiting for them, those that are leaving as well: they may
    /// wait for a neighbour of whose end only this process was told.
    pub(super) fn say_farewell(&mut self, now: Nanos) {
        let emitter = self.watch.as_ref().map(|watch| watch.emitter);
        let observer = self.observer;
        let mut neighbours: Vec<u32> = emitter.into_iter().chain(observer).collect();
        neighbours.dedup();
        let tokens: Vec<u32> = neighbours.iter().map(|_| self.spread.token()).collect();
        let period = self.config.period;
        let Phase::Leaving { farewells, together, .. } = &mut self.phase else { return };
        let gap = farewell_gap(period / 8, *together);
        farewells.clear();
        for (to, token) in neighbours.into_iter().zip(tokens) {
            let message = Message::Leave { token, emitter, observer };
            self.effects.push_back(Effect::Send { to, message: message.clone() });
            let again_at = now + gap;
            farewells.push(Farewell { to, message, token, told: 1, acknowledged: false, again_at });
        }
        for &to in &self.leavers {
            let message = Message::Leave { token: 0, emitter, observer };
            self.effects.push_back(Effect::Send { to, message });
        }
    }

    pub(super) fn repeat_farewells(&mut self, now: Nanos) {
        let period = self.config.period;
        let Phase::Leaving { farewells, together, .. } = &mut self.phase else { return };
        for farewell in farewells.iter_mut().filter(|farewell| !farewell.acknowledged) {
            if now >= farewell.again_at && *together && farewell.told == TOLD_ENOUGH {
                farewell.acknowledged = true; // it has left, has died, or finds the farewells when it looks
            } else if now >= farewell.again_at {
                farewell.again_at = now + farewell_gap(period / 4, *together);
                farewell.told += 1;
                let (to, message) = (farewell.to, farewell.message.clone());
                self.effects.push_back(Effect::Send { to, message });
                self.effects.push_back(Effect::Missing(to));
            }
        }
    }

    pub(super) fn finish_leaving(&mut self, now: Nanos) {
        let Phase::Leaving { until, together, farewells } = &self.phase else { return };
        // What was agreed on before leaving together includes who failed.
        let told = farewells.iter().all(|farewell| farewell.acknowledged)
            && (*together || self.spread.is_idle());
        if told || now >= *until {
            self.phase = Phase::Left;
            self.effects.push_back(Effect::Left);
        }
    }
}
