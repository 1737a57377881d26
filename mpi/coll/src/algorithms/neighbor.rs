//! Blocks along the edges of a virtual topology (MPI 5.0 §8.6): all at once, because who is next to whom is known to each
//! process for itself alone.
//!
//! Edges between the same two processes are told apart by the order of their messages, which the PML keeps. So receives are
//! posted in the order in which their senders send.

use crate::builder::{Builder, Group};
use crate::call::Pairing;
use crate::schedule::Span;

/// An edge: the other end, and the memory at this one.
pub(crate) type Edge = (Option<u32>, Span);

/// A message along each edge; a copy along those of this process to itself, of which there are as many out as in.
pub(crate) fn neighbor_exchange(
    b: &mut Builder,
    g: &Group<'_>,
    outgoing: &[Edge],
    incoming: &[Edge],
    pairing: Pairing,
) {
    let (mut given, mut taken) = (Vec::new(), Vec::new());
    for &(to, from) in outgoing {
        match to {
            Some(to) if to == g.me => given.push(from),
            Some(to) => b.send(g.at(to), from),
            None => {}
        }
    }
    for index in 0..incoming.len() {
        match incoming[turn(index, pairing)] {
            (Some(from), into) if from == g.me => taken.push(into),
            (Some(from), into) => b.recv(g.at(from), into),
            (None, _) => {}
        }
    }
    for (from, into) in given.into_iter().zip(taken) {
        b.copy(from, into);
    }
}

/// The edge that is received as the `index`-th.
pub(crate) const fn turn(index: usize, pairing: Pairing) -> usize {
    match pairing {
        Pairing::InOrder => index,
        Pairing::Opposite => index ^ 1,
    }
}
