//! Reductions for everybody (MPI 5.0 §6.9.6).

use super::operands::{Move, accumulate};
use super::reduce::{Halving, give_to_neighbour, halve};
use super::{Split, Team, bcast, reduce};
use crate::builder::{Builder, Cut, Group};
use crate::choose::Allreduce;
use crate::schedule::Span;

/// Everybody's `input` is combined into everybody's `out`. In place when the two are the same.
pub(crate) fn allreduce(b: &mut Builder, team: &Team<'_>, input: Span, out: Span) {
    let g = &team.group;
    if g.size < 2 || input.is_empty() {
        return b.copy(input, out);
    }
    match team.config.allreduce(team.facts(b, input.len())) {
        Allreduce::Linear => linear(b, g, input, out),
        Allreduce::RecursiveDoubling => recursive_doubling(b, g, input, out),
        Allreduce::Rabenseifner => rabenseifner(b, g, input, out),
        Allreduce::Ring => ring(b, g, input, out),
        Allreduce::ReduceBcast => {
            let at_root = (g.me == 0).then_some(out);
            reduce(b, team, 0, input, at_root);
            b.wait();
            bcast(b, team, 0, out);
        }
        Allreduce::Node => node(b, team, input, out),
    }
}

/// Everybody gets all vectors in one round, and combines them from the last rank's to the first's: the same steps everywhere, so the same bits.
fn linear(b: &mut Builder, g: &Group<'_>, input: Span, out: Span) {
    let (last, in_place) = (g.size - 1, input == out);
    let mut vectors: Vec<Span> = (0..g.size)
        .map(|rank| match rank {
            _ if rank == g.me => input,
            _ if rank == last && !in_place => out,
            _ => b.scratch(input.len()),
        })
        .collect();
    for distance in 1..g.size {
        let (to, from) = (g.after(g.me, distance), g.before(g.me, distance));
        b.send(g.at(to), input);
        b.recv(g.at(from), vectors[from as usize]);
    }
    b.wait();
    if in_place && g.me != last {
        let own = b.scratch(input.len());
        b.copy(input, own);
        vectors[g.me as usize] = own;
    }
    b.copy(vectors[last as usize], out);
    for vector in vectors[..last as usize].iter().rev() {
        b.reduce(*vector, out);
    }
}

/// Partners at distances 1, 2, 4, … exchange what they have: always neighbouring ranges of ranks, in order. Members beyond a
/// power of two have a neighbour speak for them.
fn recursive_doubling(b: &mut Builder, g: &Group<'_>, input: Span, out: Span) {
    let halving = Halving::new(g.size);
    give_to_neighbour(b, g, &halving, input);
    let Some(part) = halving.part_of(g.me) else {
        b.recv(g.at(g.me + 1), out);
        return b.wait();
    };
    let mut moves = Vec::new();
    if halving.has_neighbour(g.me) {
        moves.push(Move { to: None, from: g.at(g.me - 1), on_the_right: false });
    }
    let mut mask = 1;
    while mask < halving.size {
        let partner = part ^ mask;
        let who = g.at(halving.member(partner));
        moves.push(Move { to: Some(who), from: who, on_the_right: partner > part });
        mask *= 2;
    }
    accumulate(b, &moves, input, Some(out));
    tell_neighbour(b, g, &halving, out);
}

/// The end of what `give_to_neighbour` began.
fn tell_neighbour(b: &mut Builder, g: &Group<'_>, halving: &Halving, out: Span) {
    if halving.has_neighbour(g.me) {
        b.send(g.at(g.me - 1), out);
        b.wait();
    }
}

/// Vectors are halved until each part has one piece of the result, and put together again the same way back: each process
/// sends and receives less than twice the vector.
fn rabenseifner(b: &mut Builder, g: &Group<'_>, input: Span, out: Span) {
    let halving = Halving::new(g.size);
    let cut = Cut::new(input.len(), b.extent(), halving.size);
    give_to_neighbour(b, g, &halving, input);
    let Some(part) = halving.part_of(g.me) else {
        b.recv(g.at(g.me + 1), out);
        return b.wait();
    };
    halve(b, g, &halving, cut, input, out);
    let mut mask = halving.size / 2;
    while mask > 0 {
        let partner = part ^ mask;
        let who = g.at(halving.member(partner));
        let pieces = |part: u32| {
            let (first, count) = halving.pieces(part, mask * 2);
            cut.parts(out, first, first + count)
        };
        b.send(who, pieces(part));
        b.recv(who, pieces(partner));
        b.wait();
        mask /= 2;
    }
    tell_neighbour(b, g, &halving, out);
}

/// One piece for each process goes around: combined on the first lap, spread on the second.
fn ring(b: &mut Builder, g: &Group<'_>, input: Span, out: Span) {
    debug_assert!(b.commutative);
    let cut = Cut::new(input.len(), b.extent(), g.size);
    let (next, previous) = (g.at(g.after(g.me, 1)), g.at(g.before(g.me, 1)));
    let spare = (input == out).then(|| b.scratch(cut.start(1)));
    for step in 0..g.size - 1 {
        let (mine, theirs) = (g.before(g.me, step), g.before(g.me, step + 1));
        let from = if step == 0 { input } else { out };
        b.send(next, cut.part(from, mine));
        let result = cut.part(out, theirs);
        match spare {
            Some(spare) => {
                let into = spare.part(0, result.len());
                b.recv(previous, into);
                b.wait();
                b.reduce(into, result);
            }
            None => {
                b.recv(previous, result);
                b.wait();
                b.reduce(cut.part(input, theirs), result);
            }
        }
    }
    for step in 0..g.size - 1 {
        b.send(next, cut.part(out, (g.before(g.me, step) + 1) % g.size));
        b.recv(previous, cut.part(out, g.before(g.me, step)));
        b.wait();
    }
}

fn node(b: &mut Builder, team: &Team<'_>, input: Span, out: Span) {
    let Some(hosts) = team.hosts else { return recursive_doubling(b, &team.group, input, out) };
    let split = Split::new(hosts, 0);
    let inside = Team::flat(split.inside(), team.config);
    match split.between() {
        Some(speakers) => {
            let alone = split.mine.len() == 1;
            if !alone {
                reduce(b, &inside, split.speaker, input, Some(out));
            }
            let from = if alone { input } else { out };
            b.wait();
            allreduce(b, &Team::flat(speakers, team.config), from, out);
        }
        None => reduce(b, &inside, split.speaker, input, None),
    }
    b.wait();
    bcast(b, &inside, split.speaker, out);
}
