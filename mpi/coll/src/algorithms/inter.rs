//! Operations between the two groups of an inter-communicator (MPI 5.0 §6.2.3): within a group over the communicator of the
//! local group, between them mostly by the first member of each.

use super::{Team, barrier, bcast, gather, reduce, scatter, scatterv};
use crate::builder::{Builder, Layout};
use crate::call::Root;
use crate::schedule::{Span, Target};

/// Blocks from here on go straight to or from a root in the other group: nothing is gained by collecting them first.
const DIRECT: usize = 4 << 10;

/// The first member of the other group.
const LEADER: Target = Target::main(0);

/// Nobody leaves before all of the other group came.
pub(crate) fn barrier_between(b: &mut Builder, team: &Team<'_>) {
    let g = &team.group;
    barrier::gather_up(b, g, 0);
    if g.me == 0 {
        b.notify(LEADER);
        b.await_from(LEADER);
        b.wait();
    }
    barrier::release_down(b, g, 0);
}

/// The root's data goes to all of the other group.
pub(crate) fn bcast_between(b: &mut Builder, team: &Team<'_>, root: Root, data: Span) {
    match root {
        Root::Me => b.send(LEADER, data),
        Root::Other => {}
        Root::Rank(root) => {
            if team.group.me == 0 {
                b.recv(Target::main(root), data);
                b.wait();
            }
            bcast(b, team, 0, data);
        }
    }
}

/// The root gets a block from each of the other group, of `remote` members.
pub(crate) fn gather_between(
    b: &mut Builder,
    team: &Team<'_>,
    remote: u32,
    root: Root,
    input: Span,
    out: Span,
    block: usize,
) {
    match root {
        Root::Me if block < DIRECT => b.recv(LEADER, out),
        Root::Me => gatherv_to_me(b, remote, Layout::Even { whole: out, block }),
        Root::Other => {}
        Root::Rank(root) if block < DIRECT => {
            let g = &team.group;
            let whole = (g.me == 0).then(|| b.scratch(g.size as usize * block));
            gather(b, team, 0, input, whole);
            b.wait();
            if let Some(whole) = whole {
                b.send(Target::main(root), whole);
            }
        }
        Root::Rank(root) => b.send(Target::main(root), input),
    }
}

/// As `gather_between`, at the root, with blocks anywhere.
pub(crate) fn gatherv_to_me(b: &mut Builder, remote: u32, out: Layout<'_>) {
    (0..remote).for_each(|from| b.recv(Target::main(from), out.block(from)));
}

/// The root has a block for each of the other group, of `remote` members.
pub(crate) fn scatter_between(
    b: &mut Builder,
    team: &Team<'_>,
    remote: u32,
    root: Root,
    input: Span,
    out: Span,
    block: usize,
) {
    match root {
        Root::Me if block < DIRECT => b.send(LEADER, input),
        Root::Me => scatterv_from_me(b, remote, Layout::Even { whole: input, block }),
        Root::Other => {}
        Root::Rank(root) if block < DIRECT => {
            let g = &team.group;
            let whole = (g.me == 0).then(|| b.scratch(g.size as usize * block));
            if let Some(whole) = whole {
                b.recv(Target::main(root), whole);
                b.wait();
            }
            scatter(b, team, 0, whole, out, true);
        }
        Root::Rank(root) => b.recv(Target::main(root), out),
    }
}

/// As `scatter_between`, at the root, with blocks anywhere.
pub(crate) fn scatterv_from_me(b: &mut Builder, remote: u32, input: Layout<'_>) {
    (0..remote).for_each(|to| b.send(Target::main(to), input.block(to)));
}

/// Everybody gets the blocks of the other group, in a row.
pub(crate) fn allgather_between(b: &mut Builder, team: &Team<'_>, input: Span, out: Span) {
    let g = &team.group;
    let whole = (g.me == 0).then(|| b.scratch(g.size as usize * input.len()));
    gather(b, team, 0, input, whole);
    b.wait();
    if let Some(whole) = whole {
        b.send(LEADER, whole);
        b.recv(LEADER, out);
        b.wait();
    }
    bcast(b, team, 0, out);
}

/// As `allgather_between`, with blocks anywhere. No member knows the lengths of its own group's blocks: all go straight.
pub(crate) fn allgatherv_between(b: &mut Builder, remote: u32, input: Span, out: Layout<'_>) {
    for other in 0..remote {
        b.send(Target::main(other), input);
        b.recv(Target::main(other), out.block(other));
    }
}

/// Everybody has a block for each of the other group.
pub(crate) fn alltoall_between(
    b: &mut Builder,
    team: &Team<'_>,
    remote: u32,
    input: Layout<'_>,
    out: Layout<'_>,
) {
    for step in 0..remote {
        // Not all to the same at once.
        let other = ((u64::from(team.group.me) + u64::from(step)) % u64::from(remote)) as u32;
        b.send(Target::main(other), input.block(other));
        b.recv(Target::main(other), out.block(other));
    }
}

/// The root gets the reduction of the other group.
pub(crate) fn reduce_between(b: &mut Builder, team: &Team<'_>, root: Root, input: Span, out: Span) {
    match root {
        Root::Me => b.recv(LEADER, out),
        Root::Other => {}
        Root::Rank(root) => {
            let result = (team.group.me == 0).then(|| b.scratch(input.len()));
            reduce(b, team, 0, input, result);
            b.wait();
            if let Some(result) = result {
                b.send(Target::main(root), result);
            }
        }
    }
}

/// Everybody gets the reduction of the other group.
pub(crate) fn allreduce_between(b: &mut Builder, team: &Team<'_>, input: Span, out: Span) {
    change_reductions(b, team, input, Some(out));
    bcast(b, team, 0, out);
}

/// The first members change the reductions of their groups: theirs comes into `out` there.
fn change_reductions(
    b: &mut Builder,
    team: &Team<'_>,
    input: Span,
    out: Option<Span>,
) -> Option<Span> {
    let mine = (team.group.me == 0).then(|| b.scratch(input.len()));
    reduce(b, team, 0, input, mine);
    b.wait();
    mine.map(|mine| {
        let out = out.unwrap_or_else(|| b.scratch(input.len()));
        b.send(LEADER, mine);
        b.recv(LEADER, out);
        b.wait();
        out
    })
}

/// Everybody gets a part of the reduction of the other group. `parts` makes the layout of the parts in a vector.
pub(crate) fn reduce_scatter_between<'a>(
    b: &mut Builder,
    team: &Team<'_>,
    input: Span,
    parts: impl Fn(Span) -> Layout<'a>,
    out: Span,
) {
    let theirs = change_reductions(b, team, input, None);
    scatterv(b, &team.group, 0, theirs.map(parts), out, true);
}
