//! Blocks from a root to everybody (MPI 5.0 §6.6).

use super::Team;
use super::bcast::lowest_bit;
use crate::builder::{Builder, Group, Layout};
use crate::choose::Scatter;
use crate::schedule::Span;

/// The root's `input`, `None` elsewhere, has a block for everybody's `out`, of the same length everywhere. `own`: this process wants
/// its block; at the root it may already be where it belongs.
pub(crate) fn scatter(
    b: &mut Builder,
    team: &Team<'_>,
    root: u32,
    input: Option<Span>,
    out: Span,
    own: bool,
) {
    let g = &team.group;
    let block = out.len();
    match team.config.scatter(team.facts(b, block)) {
        Scatter::Linear => {
            scatterv(b, g, root, input.map(|whole| Layout::Even { whole, block }), out, own);
        }
        Scatter::Binomial => binomial(b, g, root, input, out, own),
    }
}

/// As `scatter`, with blocks anywhere: the root sends to everybody at once.
pub(crate) fn scatterv(
    b: &mut Builder,
    g: &Group<'_>,
    root: u32,
    input: Option<Layout<'_>>,
    out: Span,
    own: bool,
) {
    match input {
        Some(input) => {
            for to in (0..g.size).filter(|&to| to != root) {
                b.send(g.at(to), input.block(to));
            }
            b.wait();
            if own {
                b.copy(input.block(root), out);
            }
        }
        None => {
            b.recv(g.at(root), out);
            b.wait();
        }
    }
}

/// Down a binomial tree: each member gets the blocks of its subtree as one message.
fn binomial(b: &mut Builder, g: &Group<'_>, root: u32, input: Option<Span>, out: Span, own: bool) {
    let block = out.len();
    let virt = g.before(g.me, root);
    let at = |virt: u32| g.at(g.after(root, virt));
    let below = lowest_bit(virt, g.size);
    let width = |virt: u32| lowest_bit(virt, g.size).min(g.size - virt);
    let children: Vec<u32> = (0..below.ilog2())
        .rev()
        .map(|bit| virt + (1 << bit))
        .filter(|&child| child < g.size)
        .collect();
    if let Some(input) = input {
        let rows: Vec<Span> = children
            .iter()
            .map(|&child| {
                let (first, count) = (g.after(root, child), width(child));
                let (start, len) = (first as usize * block, count as usize * block);
                if first + count <= g.size {
                    return input.part(start, len);
                }
                // Ranks start again at 0 inside of this subtree.
                let row = b.scratch(len);
                let upper = (g.size - first) as usize * block;
                b.copy(input.part(start, upper), row.part(0, upper));
                b.copy(input.part(0, len - upper), row.part(upper, len - upper));
                row
            })
            .collect();
        for (&child, row) in children.iter().zip(rows) {
            b.send(at(child), row);
        }
        b.wait();
        if own {
            b.copy(input.part(root as usize * block, block), out);
        }
        return;
    }
    if width(virt) == 1 {
        b.recv(at(virt - below), out);
        return b.wait();
    }
    let whole = b.scratch(width(virt) as usize * block);
    b.recv(at(virt - below), whole);
    b.wait();
    for &child in &children {
        let start = (child - virt) as usize * block;
        b.send(at(child), whole.part(start, width(child) as usize * block));
    }
    b.wait();
    b.copy(whole.part(0, block), out);
}
