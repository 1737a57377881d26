//! A block from everybody for everybody (MPI 5.0 §6.8).

use super::Team;
use crate::builder::{Builder, Group, Layout};
use crate::choose::Alltoall;

/// Everybody's block of `input` for a process goes to its own block in that process's `out`.
pub(crate) fn alltoall(b: &mut Builder, team: &Team<'_>, input: Layout<'_>, out: Layout<'_>) {
    let g = &team.group;
    let equal = input.row(0, g.size).is_some() && out.row(0, g.size).is_some();
    let len = if equal { out.block(0).len() } else { 0 };
    match team.config.alltoall(team.facts(b, len), equal) {
        Alltoall::Linear => linear(b, g, input, out),
        Alltoall::Pairwise => pairwise(b, g, input, out),
        Alltoall::Bruck => bruck(b, g, input, out),
    }
}

fn linear(b: &mut Builder, g: &Group<'_>, input: Layout<'_>, out: Layout<'_>) {
    for distance in 1..g.size {
        let (to, from) = (g.after(g.me, distance), g.before(g.me, distance));
        b.send(g.at(to), input.block(to));
        b.recv(g.at(from), out.block(from));
    }
    b.wait();
    b.copy(input.block(g.me), out.block(g.me));
}

fn pairwise(b: &mut Builder, g: &Group<'_>, input: Layout<'_>, out: Layout<'_>) {
    for distance in 1..g.size {
        let (to, from) = (g.after(g.me, distance), g.before(g.me, distance));
        b.send(g.at(to), input.block(to));
        b.recv(g.at(from), out.block(from));
        b.wait();
    }
    b.copy(input.block(g.me), out.block(g.me));
}

/// In place: in round k everybody changes blocks with the member whose index and its own add up to k, modulo the size. Each
/// pair meets once, and at most one block is in scratch memory.
pub(crate) fn exchange(b: &mut Builder, g: &Group<'_>, blocks: Layout<'_>) {
    let longest = (0..g.size).filter(|&index| index != g.me).map(|index| blocks.block(index).len());
    let spare = b.scratch(longest.max().unwrap_or(0));
    for sum in 0..g.size {
        let partner = g.after(sum, g.size - g.me);
        if partner == g.me {
            continue;
        }
        let block = blocks.block(partner);
        let spare = spare.part(0, block.len());
        b.send(g.at(partner), block);
        b.recv(g.at(partner), spare);
        b.wait();
        b.copy(spare, block);
    }
}

/// A block that has to go a distance of d travels in the rounds of the bits of d, together with all others that have
/// those bits: in scratch memory, blocks are in order of the distance from their source.
fn bruck(b: &mut Builder, g: &Group<'_>, input: Layout<'_>, out: Layout<'_>) {
    let block = out.block(0).len();
    let moving = b.scratch(g.size as usize * block);
    let half = g.size.div_ceil(2) as usize * block;
    let (outgoing, incoming) = (b.scratch(half), b.scratch(half));
    let place = |distance: u32| moving.part(distance as usize * block, block);
    for distance in 0..g.size {
        b.copy(input.block(g.after(g.me, distance)), place(distance));
    }
    let mut bit = 1;
    while bit < g.size {
        let travel = || (0..g.size).filter(|distance| distance & bit != 0).zip(0usize..);
        let len = travel().count() * block;
        for (distance, index) in travel() {
            b.copy(place(distance), outgoing.part(index * block, block));
        }
        b.send(g.at(g.after(g.me, bit)), outgoing.part(0, len));
        b.recv(g.at(g.before(g.me, bit)), incoming.part(0, len));
        b.wait();
        for (distance, index) in travel() {
            b.copy(incoming.part(index * block, block), place(distance));
        }
        bit *= 2;
    }
    for distance in 0..g.size {
        b.copy(place(distance), out.block(g.before(g.me, distance)));
    }
}
