//! Blocks from everybody to a root (MPI 5.0 §6.5).

use super::Team;
use super::bcast::lowest_bit;
use crate::builder::{Builder, Group, Layout};
use crate::choose::Gather;
use crate::schedule::Span;

/// Everybody's `input`, of `block` bytes, goes to the root's `out`, which is `None` elsewhere. In place at the root where `input` is
/// its block of `out`.
pub(crate) fn gather(b: &mut Builder, team: &Team<'_>, root: u32, input: Span, out: Option<Span>) {
    let g = &team.group;
    let block = input.len();
    match team.config.gather(team.facts(b, block)) {
        Gather::Linear => {
            gatherv(b, g, root, input, out.map(|whole| Layout::Even { whole, block }));
        }
        Gather::Binomial => binomial(b, g, root, input, out),
    }
}

/// As `gather`, with blocks anywhere: the root receives from everybody at once.
pub(crate) fn gatherv(
    b: &mut Builder,
    g: &Group<'_>,
    root: u32,
    input: Span,
    out: Option<Layout<'_>>,
) {
    match out {
        Some(out) => {
            for from in (0..g.size).filter(|&from| from != root) {
                b.recv(g.at(from), out.block(from));
            }
            b.wait();
            b.copy(input, out.block(root));
        }
        None => {
            b.send(g.at(root), input);
            b.wait();
        }
    }
}

/// Up a binomial tree: each member passes on the blocks of its subtree as one message.
fn binomial(b: &mut Builder, g: &Group<'_>, root: u32, input: Span, out: Option<Span>) {
    let block = input.len();
    let virt = g.before(g.me, root);
    let at = |virt: u32| g.at(g.after(root, virt));
    let below = lowest_bit(virt, g.size);
    let width = |virt: u32| lowest_bit(virt, g.size).min(g.size - virt);
    let children = || {
        let distances = (0..below.ilog2()).map(|bit| 1 << bit);
        distances.map(|distance| virt + distance).filter(|&child| child < g.size)
    };
    let Some(out) = out else {
        let mut whole = input;
        if width(virt) > 1 {
            whole = b.scratch(width(virt) as usize * block);
            for child in children() {
                let start = (child - virt) as usize * block;
                b.recv(at(child), whole.part(start, width(child) as usize * block));
            }
            b.wait();
            b.copy(input, whole.part(0, block));
        }
        b.send(at(virt - below), whole);
        return b.wait();
    };
    // A subtree's blocks are in a row but where ranks start again at 0; only one subtree can have that inside.
    let mut broken = None;
    for child in children() {
        let (first, count) = (g.after(root, child), width(child));
        let len = count as usize * block;
        let into = if first + count <= g.size {
            out.part(first as usize * block, len)
        } else {
            let scratch = b.scratch(len);
            broken = Some((first, scratch));
            scratch
        };
        b.recv(at(child), into);
    }
    b.wait();
    b.copy(input, out.part(root as usize * block, block));
    if let Some((first, from)) = broken {
        let upper = (g.size - first) as usize * block;
        b.copy(from.part(0, upper), out.part(first as usize * block, upper));
        b.copy(from.part(upper, from.len() - upper), out.part(0, from.len() - upper));
    }
}
