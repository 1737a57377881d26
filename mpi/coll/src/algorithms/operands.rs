//! Vectors that are combined whole, in the order of ranks, with as few copies as the order allows.
//!
//! `into = from ∘ into` is the only reduction there is. When the partner's vector is the right operand the result
//! lands in the memory it was received into, and the two change roles instead of being copied.

use crate::builder::Builder;
use crate::schedule::{Span, Target};

/// One exchange of a reduction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    /// Who gets what was combined so far.
    pub to: Option<Target>,
    /// Whose vector comes.
    pub from: Target,
    /// It goes on the right: the sender's ranks are above all that were combined so far.
    pub on_the_right: bool,
}

/// Combines `input` with what comes in `moves`, and says where the result is: in `wanted`, when that is given; otherwise
/// in scratch memory, or, without moves, still in `input`. In place when `input` is `wanted`.
pub(super) fn accumulate(
    b: &mut Builder,
    moves: &[Move],
    input: Span,
    wanted: Option<Span>,
) -> Span {
    let result = if wanted == Some(input) {
        let spare = (!moves.is_empty()).then(|| b.scratch(input.len()));
        spare.map_or(input, |spare| combine(b, moves, Some(input), input, [input, spare]))
    } else {
        // Of the two places the one is `wanted` where the result will come to lie.
        let last = lands(moves);
        let mut places = [input; 2];
        for (place, used) in last.used.into_iter().enumerate() {
            if used {
                let at_end = place == last.at && wanted.is_some();
                places[place] = wanted.filter(|_| at_end).unwrap_or_else(|| b.scratch(input.len()));
            }
        }
        combine(b, moves, None, input, places)
    };
    let Some(wanted) = wanted else { return result };
    b.copy(result, wanted);
    wanted
}

struct Landing {
    at: usize,
    used: [bool; 2],
}

/// Where the result of `combine` lands that starts with an operand that may not be written.
fn lands(moves: &[Move]) -> Landing {
    let mut landing = Landing { at: 0, used: [false; 2] };
    let mut now = None;
    for step in moves {
        let into = now.map_or(0, |now| 1 - now);
        landing.used[into] = true;
        let at = match (now, step.on_the_right) {
            (_, true) => into,
            (None, false) => 1 - into,
            (Some(now), false) => now,
        };
        landing.used[at] = true;
        now = Some(at);
        landing.at = at;
    }
    landing
}

/// `now`: where the vector is when it may be written; `None`: it is in `input`, which may not.
fn combine(
    b: &mut Builder,
    moves: &[Move],
    now: Option<Span>,
    input: Span,
    places: [Span; 2],
) -> Span {
    let mut now = now;
    for step in moves {
        let holds = now.unwrap_or(input);
        let into = if now == Some(places[0]) { places[1] } else { places[0] };
        if let Some(to) = step.to {
            b.send(to, holds);
        }
        b.recv(step.from, into);
        b.wait();
        now = Some(if step.on_the_right {
            b.reduce(holds, into);
            into
        } else {
            let into_mine = now.unwrap_or(places[1]);
            b.copy(holds, into_mine);
            b.reduce(into, into_mine);
            into_mine
        });
    }
    now.unwrap_or(input)
}
