//! Reductions of all ranks up to one's own (MPI 5.0 §6.11). Operands are always in order.

use super::Team;
use crate::builder::{Builder, Group};
use crate::choose::Scan;
use crate::schedule::Span;

/// `out` of each process is the combination of the `input`s up to its own. In place when the two are the same.
pub(crate) fn scan(b: &mut Builder, team: &Team<'_>, input: Span, out: Span) {
    let g = &team.group;
    if g.size < 2 || input.is_empty() {
        return b.copy(input, out);
    }
    let spare = if g.me > 0 { b.scratch(input.len()) } else { out };
    match team.config.scan(team.facts(b, input.len())) {
        Scan::Linear => {
            if g.me > 0 {
                b.recv(g.at(g.me - 1), spare);
                b.wait();
            }
            b.copy(input, out);
            if g.me > 0 {
                b.reduce(spare, out);
            }
            if g.me + 1 < g.size {
                b.send(g.at(g.me + 1), out);
                b.wait();
            }
        }
        Scan::RecursiveDoubling => doubling(b, g, 0, input, out, spare),
    }
}

/// As `scan` without the own contribution; `out` of the first is left as it is.
pub(crate) fn exscan(b: &mut Builder, team: &Team<'_>, input: Span, out: Span) {
    let g = &team.group;
    if g.size < 2 || input.is_empty() {
        return;
    }
    // First everybody gets the contribution of its predecessor. Then it is a scan of those that have one.
    let spare = if g.me > 0 { b.scratch(input.len()) } else { input };
    let algorithm = team.config.scan(team.facts(b, input.len()));
    match algorithm {
        Scan::Linear => {
            if g.me > 0 {
                b.recv(g.at(g.me - 1), spare);
                b.wait();
            }
            if g.me + 1 < g.size {
                if g.me > 0 {
                    // `spare ∘ input` goes on; `input` may be `out`, which gets `spare`.
                    let next = b.scratch(input.len());
                    b.copy(input, next);
                    b.reduce(spare, next);
                    b.send(g.at(g.me + 1), next);
                } else {
                    b.send(g.at(g.me + 1), input);
                }
                b.wait();
            }
            if g.me > 0 {
                b.copy(spare, out);
            }
        }
        Scan::RecursiveDoubling => {
            if g.me + 1 < g.size {
                b.send(g.at(g.me + 1), input);
            }
            if g.me > 0 {
                b.recv(g.at(g.me - 1), spare);
                b.wait();
                b.copy(spare, out);
                doubling(b, g, 1, out, out, spare);
            }
            b.wait();
        }
    }
}

/// Members from `first` on. In the round of distance d everybody has the combination of the d ranks up to its own, sends it d
/// places on, and gets that of the d ranks before.
fn doubling(b: &mut Builder, g: &Group<'_>, first: u32, input: Span, out: Span, spare: Span) {
    let mut holds = input;
    let mut distance = 1;
    while distance < g.size - first {
        if g.me + distance < g.size {
            b.send(g.at(g.me + distance), holds);
        }
        if g.me >= first + distance {
            b.recv(g.at(g.me - distance), spare);
            b.wait();
            b.copy(holds, out);
            b.reduce(spare, out);
            holds = out;
        }
        b.wait();
        distance *= 2;
    }
    b.copy(holds, out);
}
