//! Reductions at a root (MPI 5.0 §6.9.1).

use super::operands::{Move, accumulate};
use super::{Split, Team};
use crate::builder::{Builder, Cut, Group};
use crate::choose::Reduce;
use crate::schedule::Span;

/// Everybody's `input` is combined into the root's `out`, which is `None` elsewhere. In place at the root when the two are the
/// same.
pub(crate) fn reduce(b: &mut Builder, team: &Team<'_>, root: u32, input: Span, out: Option<Span>) {
    let g = &team.group;
    if input.is_empty() {
        return;
    }
    match team.config.reduce(team.facts(b, input.len())) {
        Reduce::Linear => linear(b, g, root, input, out),
        Reduce::Binomial => binomial(b, g, root, input, out),
        Reduce::Rabenseifner => rabenseifner(b, g, root, input, out),
        Reduce::Node => node(b, team, root, input, out),
    }
}

/// The root receives all contributions and combines them from the right.
fn linear(b: &mut Builder, g: &Group<'_>, root: u32, input: Span, out: Option<Span>) {
    let Some(out) = out else {
        b.send(g.at(root), input);
        return b.wait();
    };
    let last = g.size - 1;
    let parts: Vec<Span> = (0..g.size)
        .map(|from| {
            if from != root {
                // The right-most is where the result will be, unless the root's own is still there.
                let into = if from == last && input != out { out } else { b.scratch(input.len()) };
                b.recv(g.at(from), into);
                return into;
            }
            input
        })
        .collect();
    b.wait();
    let mut parts = parts;
    if input == out && root != last {
        parts[root as usize] = b.scratch(input.len());
        b.copy(out, parts[root as usize]);
    }
    b.copy(parts[last as usize], out);
    for &part in parts[..last as usize].iter().rev() {
        b.reduce(part, out);
    }
}

/// Up a binomial tree whose members are in order of ranks; with an operation that commutes the order starts at the root,
/// otherwise at index 0, which passes the result on.
fn binomial(b: &mut Builder, g: &Group<'_>, root: u32, input: Span, out: Option<Span>) {
    let top = if b.commutative { root } else { 0 };
    let virt = g.before(g.me, top);
    let at = |virt: u32| g.at(g.after(top, virt));
    let mut moves = Vec::new();
    let mut mask = 1;
    while mask < g.size && virt & mask == 0 {
        if virt + mask < g.size {
            moves.push(Move { to: None, from: at(virt + mask), on_the_right: true });
        }
        mask *= 2;
    }
    // Only at the top the result belongs into `out`; elsewhere `out` may hold the contribution that is still needed.
    if g.me == top {
        let result = accumulate(b, &moves, input, out);
        if top != root {
            b.send(g.at(root), result);
            b.wait();
        }
        return;
    }
    let result = accumulate(b, &moves, input, None);
    b.send(at(virt - mask), result);
    b.wait();
    if let Some(out) = out {
        b.recv(g.at(top), out);
        b.wait();
    }
}

/// Who takes part in the halving of vectors, which wants a power of two: of the first `2 · extra` members the odd ones
/// speak for their even neighbours too.
pub(super) struct Halving {
    /// The power of two.
    pub size: u32,
    extra: u32,
}

impl Halving {
    pub fn new(size: u32) -> Self {
        let power = 1 << size.ilog2();
        Halving { size: power, extra: size - power }
    }

    /// The part of a member, unless a neighbour speaks for it.
    pub fn part_of(&self, index: u32) -> Option<u32> {
        match index {
            _ if index >= 2 * self.extra => Some(index - self.extra),
            _ if index % 2 == 1 => Some(index / 2),
            _ => None,
        }
    }

    /// The member with this part.
    pub fn member(&self, part: u32) -> u32 {
        if part < self.extra { 2 * part + 1 } else { part + self.extra }
    }

    /// Whether the member speaks for a neighbour, the one before it.
    pub fn has_neighbour(&self, index: u32) -> bool {
        index < 2 * self.extra && index % 2 == 1
    }

    /// Which of the `size` pieces part `part` is left with after halving with partners at distances 1, 2, 4, … up to
    /// (not including) `until`: first and number.
    pub fn pieces(&self, part: u32, until: u32) -> (u32, u32) {
        let (mut first, mut count, mut mask) = (0, self.size, 1);
        while mask < until {
            count /= 2;
            first += if part & mask != 0 { count } else { 0 };
            mask *= 2;
        }
        (first, count)
    }
}

/// Halves vectors with partners at doubling distances, so that neighbours are combined first and ranks stay in order. Leaves
/// this member's pieces in `work`, a whole vector that may be written. `input` is `work` when the contribution is there.
/// For members with a part.
pub(super) fn halve(
    b: &mut Builder,
    g: &Group<'_>,
    halving: &Halving,
    cut: Cut,
    input: Span,
    work: Span,
) {
    let Some(part) = halving.part_of(g.me) else { return };
    // Where the combined vector is.
    let mut at = input;
    let mut spare = None;
    if halving.has_neighbour(g.me) {
        let (first, theirs) = (at == work, g.at(g.me - 1));
        if first || !b.commutative {
            let into = *spare.get_or_insert_with(|| b.scratch(work.len()));
            b.recv(theirs, into);
            b.wait();
            b.copy(at, work);
            b.reduce(into, work);
        } else {
            b.recv(theirs, work);
            b.wait();
            b.reduce(at, work);
        }
        at = work;
    }
    let mut mask = 1;
    while mask < halving.size {
        let partner = part ^ mask;
        let who = g.at(halving.member(partner));
        let pieces = |part: u32| {
            let (first, count) = halving.pieces(part, mask * 2);
            (cut.start(first), cut.start(first + count) - cut.start(first))
        };
        let (mine, theirs) = (pieces(part), pieces(partner));
        let on_the_right = partner > part;
        b.send(who, at.part(theirs.0, theirs.1));
        let (keep, result) = (at.part(mine.0, mine.1), work.part(mine.0, mine.1));
        if at != work && (b.commutative || on_the_right) {
            b.recv(who, result);
            b.wait();
            b.reduce(keep, result);
        } else {
            // What is kept only gets shorter.
            let into = spare.get_or_insert_with(|| b.scratch(mine.1)).part(0, mine.1);
            b.recv(who, into);
            b.wait();
            b.copy(keep, result);
            b.fold(into, result, on_the_right);
        }
        at = work;
        mask *= 2;
    }
}

/// Gives a member's contribution to the neighbour that speaks for it.
pub(super) fn give_to_neighbour(b: &mut Builder, g: &Group<'_>, halving: &Halving, input: Span) {
    if halving.part_of(g.me).is_none() {
        b.send(g.at(g.me + 1), input);
        b.wait();
    }
}

/// Vectors are halved; the root collects the pieces.
fn rabenseifner(b: &mut Builder, g: &Group<'_>, root: u32, input: Span, out: Option<Span>) {
    let halving = Halving::new(g.size);
    let cut = Cut::new(input.len(), b.extent(), halving.size);
    let piece = |part: u32| halving.pieces(part, halving.size).0;
    give_to_neighbour(b, g, &halving, input);
    let mine = halving.part_of(g.me);
    let work = match out {
        Some(out) => out,
        // Nothing is combined here when there is one part only, or none.
        None if mine.is_none() => input,
        None => b.scratch(input.len()),
    };
    if halving.size == 1 {
        b.copy(input, work);
    }
    halve(b, g, &halving, cut, input, work);
    match out {
        Some(out) => {
            for part in (0..halving.size).filter(|&part| Some(part) != mine) {
                b.recv(g.at(halving.member(part)), cut.part(out, piece(part)));
            }
        }
        None => {
            if let Some(part) = mine {
                b.send(g.at(root), cut.part(work, piece(part)));
            }
        }
    }
    b.wait();
}

fn node(b: &mut Builder, team: &Team<'_>, root: u32, input: Span, out: Option<Span>) {
    let Some(hosts) = team.hosts else { return binomial(b, &team.group, root, input, out) };
    let split = Split::new(hosts, root);
    let inside = Team::flat(split.inside(), team.config);
    let Some(speakers) = split.between() else {
        return reduce(b, &inside, split.speaker, input, None);
    };
    let mine = if split.mine.len() == 1 {
        input
    } else {
        let mine = out.unwrap_or_else(|| b.scratch(input.len()));
        reduce(b, &inside, split.speaker, input, Some(mine));
        mine
    };
    reduce(b, &Team::flat(speakers, team.config), split.root_host, mine, out);
}
