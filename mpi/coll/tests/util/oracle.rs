//! What every call has to do, said plainly: the buffers before and after, by process.

use super::interpreter::POISON;
use super::{Kind, pattern};
use ironweave_coll::{Call, Place, Root};

/// A process of a call.
#[derive(Clone, Copy)]
pub struct Who<'a> {
    pub place: &'a Place,
    /// It is in the second group of an inter-communicator.
    pub second: bool,
}

impl<'a> Who<'a> {
    /// All processes, as `places` has them.
    pub fn all(places: &'a [Place]) -> Vec<Who<'a>> {
        let first = places[0].size() as usize;
        let who = |(number, place)| Who { place, second: number >= first };
        places.iter().enumerate().map(who).collect()
    }

    fn rank(&self) -> u32 {
        self.place.rank()
    }

    /// Whether what everybody has to get is here before.
    fn is_root(&self, root: Root) -> bool {
        match self.place.remote() {
            None => root == Root::Rank(self.rank()),
            Some(_) => root == Root::Me,
        }
    }

    /// A number for the rank of the group that contributions come from.
    fn origin(&self, rank: u32) -> u32 {
        match self.place.remote() {
            None => rank,
            Some(_) => rank + if self.second { 0 } else { 1 << 16 },
        }
    }
}

/// The buffers of a process before the call.
pub fn before(call: &Call, who: Who<'_>, kind: Kind) -> (Vec<u8>, Vec<u8>) {
    let rank = who.rank();
    match *call {
        Call::Barrier => (Vec::new(), Vec::new()),
        Call::Bcast { root, len } => {
            let recv = match root {
                _ if who.is_root(root) => pattern(rank, 0, len),
                _ => vec![POISON; len],
            };
            (Vec::new(), recv)
        }
        Call::Allreduce { elements, in_place } => {
            let data = kind.of(rank, elements.count);
            match in_place {
                true => (Vec::new(), data),
                false => (data, vec![POISON; elements.count * elements.extent]),
            }
        }
    }
}

/// The receive buffer of a process after the call.
pub fn after(call: &Call, who: Who<'_>, kind: Kind) -> Vec<u8> {
    match *call {
        Call::Bcast { root: Root::Rank(root), len } => pattern(root, 0, len),
        Call::Allreduce { elements, .. } => kind.result(0..who.place.size(), elements.count),
        _ => before(call, who, kind).1,
    }
}
