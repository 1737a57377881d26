//! From a call to the schedule of one process: checks the arguments, lays out the buffers, and asks an algorithm.
//!
//! Pure: the same call at the same place with the same configuration gives the same schedule.

use crate::CollError;
use crate::algorithms::{self, Team};
use crate::builder::{Builder, Group};
use crate::call::{Call, Elements, Root};
use crate::choose::Config;
use crate::place::Place;
use crate::schedule::{Schedule, Sizes, Space, Span};

/// The schedule of the process at `place` for `call`.
///
/// # Errors
/// Everything that is wrong with the arguments.
pub fn plan(call: &Call, place: &Place, config: &Config) -> Result<Schedule, CollError> {
    let planner = Planner { place, config };
    match call {
        Call::Barrier => planner.barrier(),
        Call::Bcast { root, len } => planner.bcast(*root, *len),
        Call::Allreduce { elements, in_place } => planner.allreduce(*elements, *in_place),
    }
}

/// Both buffers of a call.
#[derive(Clone, Copy)]
struct Buffers {
    sizes: Sizes,
    send: Span,
    recv: Span,
}

struct Planner<'a> {
    place: &'a Place,
    config: &'a Config,
}

impl<'a> Planner<'a> {
    /// The processes of an intra-communicator.
    fn team(&self) -> Team<'a> {
        let group = Group::all(self.place.rank(), self.place.size());
        Team { group, hosts: self.place.hosts(), config: self.config }
    }

    fn buffers(&self, send: usize, recv: usize, extent: usize) -> Buffers {
        let (main, local) = match self.place.remote() {
            Some(remote) => (remote, self.place.size()),
            None => (self.place.size(), 0),
        };
        Buffers {
            sizes: Sizes { send, recv, scratch: 0, extent, main, local },
            send: Span::new(Space::Send, 0, send),
            recv: Span::new(Space::Recv, 0, recv),
        }
    }

    fn intra_only(&self) -> Result<(), CollError> {
        match self.place.remote() {
            Some(_) => Err(CollError::WrongKind("inter-communicator")),
            None => Ok(()),
        }
    }

    /// The root of an intra-communicator.
    fn root(&self, root: Root) -> Result<u32, CollError> {
        let size = self.place.size();
        match root {
            Root::Rank(root) if root < size => Ok(root),
            Root::Rank(root) => Err(CollError::InvalidRoot { root, size }),
            Root::Me | Root::Other => Err(CollError::WrongKind("intra-communicator")),
        }
    }

    /// Bytes of a vector.
    fn bytes(elements: Elements) -> Result<usize, CollError> {
        if elements.extent == 0 {
            return Err(CollError::NoElements);
        }
        elements.count.checked_mul(elements.extent).ok_or(CollError::TooLong)
    }

    fn barrier(&self) -> Result<Schedule, CollError> {
        self.intra_only()?;
        let mut b = Builder::new(self.buffers(0, 0, 0).sizes, true);
        algorithms::barrier(&mut b, &self.team());
        Ok(b.finish()?)
    }

    fn bcast(&self, root: Root, len: usize) -> Result<Schedule, CollError> {
        self.intra_only()?;
        let root = self.root(root)?;
        let Buffers { sizes, recv, .. } = self.buffers(0, len, 0);
        let mut b = Builder::new(sizes, true);
        algorithms::bcast(&mut b, &self.team(), root, recv);
        Ok(b.finish()?)
    }

    fn allreduce(&self, elements: Elements, in_place: bool) -> Result<Schedule, CollError> {
        self.intra_only()?;
        let len = Self::bytes(elements)?;
        let sent = if in_place { 0 } else { len };
        let Buffers { sizes, send, recv } = self.buffers(sent, len, elements.extent);
        let mut b = Builder::new(sizes, elements.commutative);
        algorithms::allreduce(&mut b, &self.team(), if in_place { recv } else { send }, recv);
        Ok(b.finish()?)
    }
}
