//! Blocks from everybody to everybody (MPI 5.0 §6.7).

use super::Team;
use crate::builder::{Builder, Group, Layout};
use crate::choose::Allgather;
use crate::schedule::Span;

/// Everybody's `input` goes to its block in everybody's `out`. In place where `input` is that block.
pub(crate) fn allgather(b: &mut Builder, team: &Team<'_>, input: Span, out: Layout<'_>) {
    let g = &team.group;
    if g.size < 2 {
        return b.copy(input, out.block(g.me));
    }
    let len = (0..g.size).map(|index| out.block(index).len()).sum();
    let in_a_row = out.row(0, g.size).is_some();
    match team.config.allgather(team.facts(b, len), in_a_row) {
        Allgather::Linear => linear(b, g, input, out),
        Allgather::RecursiveDoubling => recursive_doubling(b, g, input, out),
        Allgather::Bruck => bruck(b, g, input, out),
        Allgather::Ring => ring(b, g, input, out),
    }
}

fn linear(b: &mut Builder, g: &Group<'_>, input: Span, out: Layout<'_>) {
    for distance in 1..g.size {
        let (to, from) = (g.after(g.me, distance), g.before(g.me, distance));
        b.send(g.at(to), input);
        b.recv(g.at(from), out.block(from));
    }
    b.wait();
    b.copy(input, out.block(g.me));
}

/// Everybody passes on what it received last.
fn ring(b: &mut Builder, g: &Group<'_>, input: Span, out: Layout<'_>) {
    let (next, previous) = (g.at(g.after(g.me, 1)), g.at(g.before(g.me, 1)));
    for step in 0..g.size - 1 {
        let (mine, theirs) = (g.before(g.me, step), g.before(g.me, step + 1));
        b.send(next, if step == 0 { input } else { out.block(mine) });
        b.recv(previous, out.block(theirs));
        b.wait();
    }
    b.copy(input, out.block(g.me));
}

/// Partners exchange all blocks of their halves of a growing, aligned group.
fn recursive_doubling(b: &mut Builder, g: &Group<'_>, input: Span, out: Layout<'_>) {
    b.copy(input, out.block(g.me));
    let mut mask = 1;
    while mask < g.size {
        let partner = g.me ^ mask;
        let row = |index: u32| out.row(index & !(mask - 1), mask);
        // Only chosen where blocks are in a row.
        let (Some(mine), Some(theirs)) = (row(g.me), row(partner)) else { return };
        b.send(g.at(partner), mine);
        b.recv(g.at(partner), theirs);
        b.wait();
        mask *= 2;
    }
}

/// In scratch memory, blocks are in order of distance from this process. Each round brings as many again, from a member as
/// far away as there are blocks here.
fn bruck(b: &mut Builder, g: &Group<'_>, input: Span, out: Layout<'_>) {
    let mut starts = vec![0];
    for distance in 0..g.size {
        starts.push(starts[distance as usize] + out.block(g.after(g.me, distance)).len());
    }
    let whole = b.scratch(starts[g.size as usize]);
    let row = |first: u32, count: u32| {
        let start = starts[first as usize];
        whole.part(start, starts[(first + count) as usize] - start)
    };
    b.copy(input, row(0, 1));
    let mut here = 1;
    while here < g.size {
        let count = here.min(g.size - here);
        b.send(g.at(g.before(g.me, here)), row(0, count));
        b.recv(g.at(g.after(g.me, here)), row(here, count));
        b.wait();
        here += count;
    }
    let until_end = g.size - g.me;
    match (out.row(g.me, until_end), out.row(0, g.me)) {
        (Some(upper), Some(lower)) => {
            b.copy(row(0, until_end), upper);
            b.copy(row(until_end, g.me), lower);
        }
        _ => {
            for distance in 0..g.size {
                b.copy(row(distance, 1), out.block(g.after(g.me, distance)));
            }
        }
    }
}
