//! Barriers (MPI 5.0 §6.3): nobody leaves before everybody came.

use super::{Split, Team};
use crate::builder::{Builder, Group};
use crate::choose::Barrier;

/// A barrier of the team.
pub(crate) fn barrier(b: &mut Builder, team: &Team<'_>) {
    match team.config.barrier(team.facts(b, 0)) {
        Barrier::Linear => linear(b, &team.group),
        Barrier::Dissemination => dissemination(b, &team.group),
        Barrier::Tree => {
            gather_up(b, &team.group, 0);
            release_down(b, &team.group, 0);
        }
        Barrier::Node => node(b, team),
    }
}

/// Everybody tells everybody: one round.
fn linear(b: &mut Builder, g: &Group<'_>) {
    for distance in 1..g.size {
        b.notify(g.at(g.after(g.me, distance)));
        b.await_from(g.at(g.before(g.me, distance)));
    }
    b.wait();
}

/// In round k everybody tells the member 2^k places on: after ⌈log₂ n⌉ rounds each has heard, indirectly, of all.
fn dissemination(b: &mut Builder, g: &Group<'_>) {
    let mut distance = 1;
    while distance < g.size {
        b.notify(g.at(g.after(g.me, distance)));
        b.await_from(g.at(g.before(g.me, distance)));
        b.wait();
        distance *= 2;
    }
}

/// Up a binomial tree: when it is over at `root`, all members have come.
pub(super) fn gather_up(b: &mut Builder, g: &Group<'_>, root: u32) {
    let virt = g.before(g.me, root);
    let mut mask = 1;
    while mask < g.size {
        if virt & mask != 0 {
            b.wait();
            b.notify(g.at(g.after(root, virt - mask)));
            b.wait();
            return;
        }
        if virt + mask < g.size {
            b.await_from(g.at(g.after(root, virt + mask)));
        }
        mask *= 2;
    }
    b.wait();
}

/// Down a binomial tree: over only where `root` has begun it.
pub(super) fn release_down(b: &mut Builder, g: &Group<'_>, root: u32) {
    let virt = g.before(g.me, root);
    let below = super::bcast::lowest_bit(virt, g.size);
    if virt != 0 {
        b.await_from(g.at(g.after(root, virt - below)));
        b.wait();
    }
    let mut mask = below / 2;
    while mask > 0 {
        if virt + mask < g.size {
            b.notify(g.at(g.after(root, virt + mask)));
        }
        mask /= 2;
    }
    b.wait();
}

fn node(b: &mut Builder, team: &Team<'_>) {
    let Some(hosts) = team.hosts else { return dissemination(b, &team.group) };
    let split = Split::new(hosts, 0);
    gather_up(b, &split.inside(), split.speaker);
    if let Some(speakers) = split.between() {
        dissemination(b, &speakers);
    }
    release_down(b, &split.inside(), split.speaker);
}
