//! Broadcasts (MPI 5.0 §6.4).

use super::{Split, Team};
use crate::builder::{Builder, Cut, Group};
use crate::choose::Bcast;
use crate::schedule::Span;

/// The root's `data` goes to everybody's.
pub(crate) fn bcast(b: &mut Builder, team: &Team<'_>, root: u32, data: Span) {
    let g = &team.group;
    if data.is_empty() || g.size < 2 {
        return;
    }
    match team.config.bcast(team.facts(b, data.len())) {
        Bcast::Linear => linear(b, g, root, data),
        Bcast::Binomial => binomial(b, g, root, data),
        Bcast::ScatterAllgather => scatter_allgather(b, g, root, data),
        Bcast::Chain => chain(b, g, root, data, team.config.segment),
        Bcast::Node => node(b, team, root, data),
    }
}

fn linear(b: &mut Builder, g: &Group<'_>, root: u32, data: Span) {
    if g.me == root {
        (0..g.size).filter(|&to| to != root).for_each(|to| b.send(g.at(to), data));
    } else {
        b.recv(g.at(root), data);
    }
    b.wait();
}

/// The lowest bit set in `virt`, which is its distance from its parent in a binomial tree; for the root the first power of
/// two that is not below `size`.
pub(super) const fn lowest_bit(virt: u32, size: u32) -> u32 {
    if virt == 0 { size.next_power_of_two() } else { virt & virt.wrapping_neg() }
}

fn binomial(b: &mut Builder, g: &Group<'_>, root: u32, data: Span) {
    let virt = g.before(g.me, root);
    let below = lowest_bit(virt, g.size);
    if virt != 0 {
        b.recv(g.at(g.after(root, virt - below)), data);
        b.wait();
    }
    // The largest subtree first: it takes longest.
    let mut mask = below / 2;
    while mask > 0 {
        if virt + mask < g.size {
            b.send(g.at(g.after(root, virt + mask)), data);
        }
        mask /= 2;
    }
    b.wait();
}

/// The data is cut into one part for each process; a subtree gets the parts of its members from its parent. Then the
/// parts go around. Each process sends and receives less than twice the data.
fn scatter_allgather(b: &mut Builder, g: &Group<'_>, root: u32, data: Span) {
    let virt = g.before(g.me, root);
    let at = |virt: u32| g.at(g.after(root, virt));
    let cut = Cut::new(data.len(), 1, g.size);
    let below = lowest_bit(virt, g.size);
    let subtree = |virt: u32, width: u32| cut.parts(data, virt, (virt + width).min(g.size));
    if virt != 0 {
        b.recv(at(virt - below), subtree(virt, below));
        b.wait();
    }
    let mut mask = below / 2;
    while mask > 0 {
        if virt + mask < g.size {
            b.send(at(virt + mask), subtree(virt + mask, mask));
        }
        mask /= 2;
    }
    b.wait();
    let (next, previous) = ((virt + 1) % g.size, (virt + g.size - 1) % g.size);
    for step in 0..g.size - 1 {
        let out = (virt + g.size - step) % g.size;
        let coming = (previous + g.size - step) % g.size;
        b.send(at(next), cut.part(data, out));
        b.recv(at(previous), cut.part(data, coming));
        b.wait();
    }
}

/// From one to the next: while a segment is passed on, the one after it comes in.
fn chain(b: &mut Builder, g: &Group<'_>, root: u32, data: Span, segment: usize) {
    let virt = g.before(g.me, root);
    let segment = segment.max(1);
    let count = data.len().div_ceil(segment);
    let part = |index: usize| {
        let start = index * segment;
        data.part(start, segment.min(data.len() - start))
    };
    for round in 0..=count {
        if virt > 0 && round < count {
            b.recv(g.at(g.before(g.me, 1)), part(round));
        }
        if virt + 1 < g.size && round > 0 {
            b.send(g.at(g.after(g.me, 1)), part(round - 1));
        }
        b.wait();
    }
}

fn node(b: &mut Builder, team: &Team<'_>, root: u32, data: Span) {
    let Some(hosts) = team.hosts else { return binomial(b, &team.group, root, data) };
    let split = Split::new(hosts, root);
    if let Some(speakers) = split.between() {
        bcast(b, &Team::flat(speakers, team.config), split.root_host, data);
    }
    bcast(b, &Team::flat(split.inside(), team.config), split.speaker, data);
}
