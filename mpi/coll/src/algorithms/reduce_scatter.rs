//! Reductions whose result is spread over the processes (MPI 5.0 §6.10).

use super::reduce::Halving;
use super::{Team, reduce, scatterv};
use crate::builder::{Builder, Group, Layout};
use crate::choose::ReduceScatter;
use crate::schedule::Span;

/// Block i of everybody's `input` is combined into `out` of process i. `blocks` are those of `input`, one after the other, and
/// `apart` says that `out` is other memory than `input`.
pub(crate) fn reduce_scatter(
    b: &mut Builder,
    team: &Team<'_>,
    input: Span,
    blocks: Layout<'_>,
    out: Span,
    apart: bool,
) {
    let g = &team.group;
    if g.size < 2 {
        return b.copy(blocks.block(0), out);
    }
    // In place, `out` lies over blocks that are still needed: the result comes there last.
    let result = if apart { out } else { b.scratch(out.len()) };
    match team.config.reduce_scatter(team.facts(b, input.len())) {
        ReduceScatter::Linear => linear(b, g, blocks, result),
        ReduceScatter::Pairwise => pairwise(b, g, blocks, result),
        ReduceScatter::RecursiveHalving => recursive_halving(b, g, input, blocks, result),
        ReduceScatter::ReduceScatterv => {
            let whole = (g.me == 0).then(|| b.scratch(input.len()));
            reduce(b, team, 0, input, whole);
            b.wait();
            let from = whole.map(|whole| moved(blocks, whole));
            scatterv(b, g, 0, from, result, true);
        }
    }
    b.copy(result, out);
}

/// The same blocks in other memory.
fn moved(blocks: Layout<'_>, whole: Span) -> Layout<'_> {
    match blocks {
        Layout::Even { block, .. } => Layout::Even { whole, block },
        Layout::Listed { blocks, .. } => Layout::Listed { whole, blocks },
    }
}

/// All contributions come at once and are combined from the right.
fn linear(b: &mut Builder, g: &Group<'_>, blocks: Layout<'_>, result: Span) {
    let last = g.size - 1;
    let mine = blocks.block(g.me);
    let mut parts = vec![mine; g.size as usize];
    for distance in 1..g.size {
        let (to, from) = (g.after(g.me, distance), g.before(g.me, distance));
        let into = if from == last { result } else { b.scratch(result.len()) };
        parts[from as usize] = into;
        b.send(g.at(to), blocks.block(to));
        b.recv(g.at(from), into);
    }
    b.wait();
    b.copy(parts[last as usize], result);
    for &part in parts[..last as usize].iter().rev() {
        b.reduce(part, result);
    }
}

/// One contribution after the other; the first is received where the result will be.
fn pairwise(b: &mut Builder, g: &Group<'_>, blocks: Layout<'_>, result: Span) {
    let spare = (g.size > 2).then(|| b.scratch(result.len()));
    for distance in 1..g.size {
        let (to, from) = (g.after(g.me, distance), g.before(g.me, distance));
        b.send(g.at(to), blocks.block(to));
        match spare.filter(|_| distance > 1) {
            None => {
                b.recv(g.at(from), result);
                b.wait();
                b.reduce(blocks.block(g.me), result);
            }
            Some(spare) => {
                b.recv(g.at(from), spare);
                b.wait();
                b.reduce(spare, result);
            }
        }
    }
}

/// Partners at halving distances keep the blocks of their own half. A member that speaks for a neighbour passes its block
/// on in the end.
fn recursive_halving(
    b: &mut Builder,
    g: &Group<'_>,
    input: Span,
    blocks: Layout<'_>,
    result: Span,
) {
    let halving = Halving::new(g.size);
    let Some(part) = halving.part_of(g.me) else {
        b.send(g.at(g.me + 1), input);
        b.wait();
        b.recv(g.at(g.me + 1), result);
        return b.wait();
    };
    // The blocks of the parts `first..end`, which are in a row.
    let row = |whole: Span, first: u32, end: u32| {
        let blocks = moved(blocks, whole);
        let start = |part: u32| match part {
            _ if part == halving.size => whole.len(),
            _ => {
                let member = halving.member(part);
                let first = member - u32::from(halving.has_neighbour(member));
                blocks.block(first).at().offset() - whole.at().offset()
            }
        };
        whole.part(start(first), start(end) - start(first))
    };
    let work = b.scratch(input.len());
    let spare = b.scratch(input.len());
    let mut at = input;
    if halving.has_neighbour(g.me) {
        b.recv(g.at(g.me - 1), work);
        b.wait();
        b.reduce(input, work);
        at = work;
    }
    let (mut first, mut end) = (0, halving.size);
    while end - first > 1 {
        let half = (end - first) / 2;
        let middle = first + half;
        let upper = part >= middle;
        let (mine, theirs) =
            if upper { ((middle, end), (first, middle)) } else { ((first, middle), (middle, end)) };
        let who = g.at(halving.member(if upper { part - half } else { part + half }));
        b.send(who, row(at, theirs.0, theirs.1));
        let (keep, combined) = (row(at, mine.0, mine.1), row(work, mine.0, mine.1));
        if at == work {
            let into = spare.part(0, keep.len());
            b.recv(who, into);
            b.wait();
            b.reduce(into, combined);
        } else {
            b.recv(who, combined);
            b.wait();
            b.reduce(keep, combined);
        }
        at = work;
        (first, end) = mine;
    }
    let blocks = moved(blocks, at);
    if halving.has_neighbour(g.me) {
        b.send(g.at(g.me - 1), blocks.block(g.me - 1));
        b.wait();
    }
    b.copy(blocks.block(g.me), result);
}
