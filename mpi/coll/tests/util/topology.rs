//! Virtual topologies made from a number: graphs in which anybody may be anybody's neighbor any number of times, and grids.

use ironweave_coll::{Neighbors, Pairing};

/// A third of all numbers are grids.
fn is_grid(salt: u32) -> bool {
    salt.is_multiple_of(3)
}

/// The neighbors of `me` among `size` processes.
pub fn neighbors(salt: u32, me: u32, size: u32) -> Neighbors {
    let (sources, destinations, pairing) = if is_grid(salt) {
        let grid = grid(salt, me, size);
        (grid.clone(), grid, Pairing::Opposite)
    } else {
        let list = |from_me: bool| {
            // Everybody lists the others in an order of its own, with nobody now and then.
            (0..size).flat_map(move |by| {
                let other = (me + by + salt) % size;
                let (from, to) = if from_me { (me, other) } else { (other, me) };
                let nobody = (salt ^ other ^ me).is_multiple_of(7);
                let edges = (0..edges(salt, from, to)).map(move |_| Some(other));
                nobody.then_some(None).into_iter().chain(edges)
            })
        };
        (list(false).collect(), list(true).collect(), Pairing::InOrder)
    };
    Neighbors { sources: sources.into(), destinations: destinations.into(), pairing }
}

/// How many edges go from one to the other: mostly none.
fn edges(salt: u32, from: u32, to: u32) -> u32 {
    let mixed = (from.wrapping_mul(0x9e37_79b9) ^ to.wrapping_mul(0x85eb_ca6b))
        .wrapping_add(salt)
        .wrapping_mul(0xc2b2_ae35);
    [0, 1, 0, 2, 0, 0, 3, 0][mixed as usize >> 29]
}

/// A grid of two dimensions, each periodic or not: the neighbors downwards and upwards, in each dimension.
fn grid(salt: u32, me: u32, size: u32) -> Vec<Option<u32>> {
    let width = (1..=size).filter(|width| size.is_multiple_of(*width)).nth(salt as usize % 2);
    let width = width.unwrap_or(1);
    let (x, y) = (me % width, me / width);
    let step = |at: u32, len: u32, up: bool, periodic: bool| match (up, at) {
        (true, at) if at + 1 < len => Some(at + 1),
        (false, at) if at > 0 => Some(at - 1),
        (true, _) => periodic.then_some(0),
        (false, _) => periodic.then_some(len - 1),
    };
    let in_x = |up| step(x, width, up, salt & 2 == 0).map(|x| y * width + x);
    let in_y = |up| step(y, size / width, up, salt & 4 == 0).map(|y| y * width + x);
    vec![in_x(false), in_x(true), in_y(false), in_y(true)]
}

/// Where the `edge`-th edge into `me` begins: the process, and the edge's number there.
pub fn other_end(salt: u32, me: u32, size: u32, edge: usize) -> Option<(u32, usize)> {
    let sources = neighbors(salt, me, size).sources;
    let from = sources[edge]?;
    if is_grid(salt) {
        // What comes from above was sent downwards.
        return Some((from, if edge.is_multiple_of(2) { edge + 1 } else { edge - 1 }));
    }
    let before = sources[..edge].iter().filter(|&&source| source == Some(from)).count();
    let to_me = |&(_, to): &(usize, &Option<u32>)| *to == Some(me);
    let there = neighbors(salt, from, size).destinations;
    let number = there.iter().enumerate().filter(to_me).nth(before).map(|(number, _)| number);
    Some((from, number.expect("edges have two ends")))
}
