//! From a call to the schedule of one process: checks the arguments, lays out the buffers, and asks an algorithm.
//!
//! Pure: the same call at the same place with the same configuration gives the same schedule.

mod neighbor;

use crate::CollError;
use crate::algorithms::{self, Team, inter};
use crate::builder::{Builder, Group, Layout};
use crate::call::{Block, Call, Elements, Root};
use crate::choose::Config;
use crate::place::Place;
use crate::schedule::{Schedule, Sizes, Space, Span};

/// The schedule of the process at `place` for `call`.
///
/// # Errors
/// Everything that is wrong with the arguments.
pub fn plan(call: &Call, place: &Place, config: &Config) -> Result<Schedule, CollError> {
    if place.remote() == Some(0) {
        // All of it died, before this was shrunk. Of the members some would wait for others who have an error.
        return Err(CollError::WrongKind("inter-communicator without a remote group"));
    }
    let planner = Planner { place, config };
    match *call {
        Call::Barrier => planner.barrier(),
        Call::Bcast { root, len } => planner.bcast(root, len),
        Call::Gather { root, block, in_place } => planner.gather(root, block, in_place),
        Call::Gatherv { root, len, ref blocks, in_place } => {
            planner.gatherv(root, len, blocks, in_place)
        }
        Call::Scatter { root, block, in_place } => planner.scatter(root, block, in_place),
        Call::Scatterv { root, len, ref blocks, in_place } => {
            planner.scatterv(root, len, blocks, in_place)
        }
        Call::Allgather { len, block, in_place } => planner.allgather(len, block, in_place),
        Call::Allgatherv { len, ref blocks, in_place } => planner.allgatherv(len, blocks, in_place),
        Call::Alltoall { len, block, in_place } => planner.alltoall(len, block, in_place),
        Call::Alltoallv { ref send, ref recv, in_place } => planner.alltoallv(send, recv, in_place),
        Call::Reduce { root, elements, in_place } => planner.reduce(root, elements, in_place),
        Call::Allreduce { elements, in_place } => planner.allreduce(elements, in_place),
        Call::ReduceScatterBlock { elements, in_place } => {
            planner.reduce_scatter_block(elements, in_place)
        }
        Call::ReduceScatter { ref counts, extent, commutative, in_place } => {
            planner.reduce_scatter(counts, extent, commutative, in_place)
        }
        Call::Scan { elements, in_place } => planner.scan(elements, in_place, algorithms::scan),
        Call::Exscan { elements, in_place } => planner.scan(elements, in_place, algorithms::exscan),
        Call::NeighborAllgather { ref neighbors, len, block } => {
            planner.neighbor_allgather(neighbors, len, block)
        }
        Call::NeighborAllgatherv { ref neighbors, len, ref blocks } => {
            planner.neighbor_allgatherv(neighbors, len, blocks)
        }
        Call::NeighborAlltoall { ref neighbors, len, block } => {
            planner.neighbor_alltoall(neighbors, len, block)
        }
        Call::NeighborAlltoallv { ref neighbors, ref send, ref recv } => {
            planner.neighbor_alltoallv(neighbors, send, recv)
        }
    }
}

/// All of a buffer of this length.
const fn sent(len: usize) -> Span {
    Span::new(Space::Send, 0, len)
}

const fn received(len: usize) -> Span {
    Span::new(Space::Recv, 0, len)
}

/// `count` times `each` bytes.
fn bytes(count: usize, each: usize) -> Result<usize, CollError> {
    count.checked_mul(each).filter(|&bytes| bytes <= isize::MAX as usize).ok_or(CollError::TooLong)
}

/// Bytes of a vector.
fn vector(elements: Elements) -> Result<usize, CollError> {
    if elements.extent == 0 {
        return Err(CollError::NoElements);
    }
    bytes(elements.count, elements.extent)
}

/// Bytes of the buffer that blocks are in.
fn reach(blocks: &[Block]) -> Result<usize, CollError> {
    blocks.iter().filter(|block| block.len > 0).try_fold(0, |reach: usize, block| {
        let end = block.offset.checked_add(block.len).filter(|&end| end <= isize::MAX as usize);
        Ok(reach.max(end.ok_or(CollError::TooLong)?))
    })
}

/// Blocks to be written, and the length of their buffer: inside of it, and without overlaps.
fn targets(blocks: &[Block]) -> Result<(usize, Vec<Block>), CollError> {
    let reach = reach(blocks)?;
    disjoint(blocks)?;
    Ok((reach, tidy(blocks)))
}

/// Whether blocks, all inside of a buffer, overlap.
fn disjoint(blocks: &[Block]) -> Result<(), CollError> {
    let in_order = |pair: &[Block]| pair[0].offset.saturating_add(pair[0].len) <= pair[1].offset;
    let check = |blocks: &[Block]| {
        if blocks.windows(2).all(in_order) { Ok(()) } else { Err(CollError::Overlap) }
    };
    if check(blocks).is_ok() {
        return Ok(());
    }
    let mut sorted: Vec<Block> = blocks.iter().copied().filter(|block| block.len > 0).collect();
    sorted.sort_unstable_by_key(|block| block.offset);
    check(&sorted)
}

/// Blocks of no bytes may have any offset; in a layout all are inside.
fn tidy(blocks: &[Block]) -> Vec<Block> {
    let tidy = |block: &Block| if block.len == 0 { Block { offset: 0, len: 0 } } else { *block };
    blocks.iter().map(tidy).collect()
}

/// Asks that an own block of `got` bytes is what the list says.
fn own(expected: usize, got: usize) -> Result<(), CollError> {
    if expected == got { Ok(()) } else { Err(CollError::OwnBlock { expected, got }) }
}

struct Planner<'a> {
    place: &'a Place,
    config: &'a Config,
}

impl<'a> Planner<'a> {
    /// All processes of an intra-communicator, or those of the own group.
    fn team(&self) -> Team<'a> {
        let (rank, size) = (self.place.rank(), self.place.size());
        let group = match self.place.remote() {
            Some(_) => Group::local(rank, size),
            None => Group::all(rank, size),
        };
        let (hosts, together) = (self.place.hosts(), self.place.is_together());
        Team { group, hosts, together, config: self.config }
    }

    /// How many blocks a process has, or gets.
    fn others(&self) -> usize {
        self.place.remote().unwrap_or(self.place.size()) as usize
    }

    fn me(&self) -> u32 {
        self.place.rank()
    }

    fn count(&self, blocks: usize, expected: usize) -> Result<(), CollError> {
        if blocks == expected {
            Ok(())
        } else {
            Err(CollError::WrongCount { expected, got: blocks })
        }
    }

    /// Makes a schedule of `steps` over buffers of these lengths.
    fn build(
        &self,
        send: usize,
        recv: usize,
        elements: Option<(usize, bool)>,
        steps: impl FnOnce(&mut Builder, &Team<'a>),
    ) -> Result<Schedule, CollError> {
        let (main, local) = match self.place.remote() {
            Some(remote) => (remote, self.place.size()),
            None => (self.place.size(), 0),
        };
        let (extent, commutative) = elements.unwrap_or((0, true));
        let sizes = Sizes { send, recv, scratch: 0, extent, main, local };
        let mut builder = Builder::new(sizes, commutative);
        steps(&mut builder, &self.team());
        Ok(builder.finish()?)
    }

    /// `in_place` is for intra-communicators.
    fn place_of_data(&self, in_place: bool) -> Result<(), CollError> {
        match self.place.remote() {
            Some(_) if in_place => Err(CollError::WrongKind("inter-communicator in place")),
            _ => Ok(()),
        }
    }

    /// The root of an intra-communicator, after a check of all kinds of roots; `None`: an inter-communicator.
    fn root(&self, root: Root) -> Result<Option<u32>, CollError> {
        let size = self.others() as u32;
        match (root, self.place.remote()) {
            (Root::Rank(root), _) if root >= size => Err(CollError::InvalidRoot { root, size }),
            (Root::Rank(root), None) => Ok(Some(root)),
            (Root::Me | Root::Other, None) => Err(CollError::WrongKind("intra-communicator")),
            (_, Some(_)) => Ok(None),
        }
    }

    fn barrier(&self) -> Result<Schedule, CollError> {
        self.build(0, 0, None, |b, team| match self.place.remote() {
            Some(_) => inter::barrier_between(b, team),
            None => algorithms::barrier(b, team),
        })
    }

    fn bcast(&self, root: Root, len: usize) -> Result<Schedule, CollError> {
        let at = self.root(root)?;
        let used = if root == Root::Other { 0 } else { bytes(len, 1)? };
        self.build(0, used, None, |b, team| match at {
            Some(at) => algorithms::bcast(b, team, at, received(len)),
            None => inter::bcast_between(b, team, root, received(used)),
        })
    }

    fn gather(&self, root: Root, block: usize, in_place: bool) -> Result<Schedule, CollError> {
        let all = bytes(self.others(), block)?;
        let Some(at) = self.root(root)? else {
            self.place_of_data(in_place)?;
            let (send, recv) = match root {
                Root::Me => (0, all),
                Root::Other => (0, 0),
                Root::Rank(_) => (block, 0),
            };
            return self.build(send, recv, None, |b, team| {
                let remote = self.others() as u32;
                let (input, out) = (sent(send), received(recv));
                inter::gather_between(b, team, remote, root, input, out, block);
            });
        };
        let is_root = at == self.me();
        let in_place = in_place && is_root;
        let recv = if is_root { all } else { 0 };
        let send = if in_place { 0 } else { block };
        self.build(send, recv, None, |b, team| {
            let out = is_root.then_some(received(all));
            let input =
                if in_place { received(all).part(at as usize * block, block) } else { sent(block) };
            algorithms::gather(b, team, at, input, out);
        })
    }

    fn gatherv(
        &self,
        root: Root,
        len: usize,
        blocks: &[Block],
        in_place: bool,
    ) -> Result<Schedule, CollError> {
        let at = self.root(root)?;
        let is_root = at.map_or(root == Root::Me, |at| at == self.me());
        if at.is_none() {
            self.place_of_data(in_place)?;
        }
        let in_place = in_place && is_root;
        let sends = !in_place && (at.is_some() || matches!(root, Root::Rank(_)));
        let send = if sends { bytes(len, 1)? } else { 0 };
        if !is_root {
            return self.build(send, 0, None, |b, team| match (at, root) {
                (Some(at), _) => algorithms::gatherv(b, &team.group, at, sent(send), None),
                (None, Root::Rank(root)) => b.send(crate::Target::main(root), sent(send)),
                (None, _) => {}
            });
        }
        self.count(blocks.len(), self.others())?;
        let (recv, blocks) = targets(blocks)?;
        if let (Some(at), false) = (at, in_place) {
            own(blocks[at as usize].len, len)?;
        }
        let out = Layout::Listed { whole: received(recv), blocks: &blocks };
        self.build(send, recv, None, |b, team| match at {
            Some(at) => {
                let input = if in_place { out.block(at) } else { sent(send) };
                algorithms::gatherv(b, &team.group, at, input, Some(out));
            }
            None => inter::gatherv_to_me(b, self.others() as u32, out),
        })
    }

    fn scatter(&self, root: Root, block: usize, in_place: bool) -> Result<Schedule, CollError> {
        let all = bytes(self.others(), block)?;
        let Some(at) = self.root(root)? else {
            self.place_of_data(in_place)?;
            let (send, recv) = match root {
                Root::Me => (all, 0),
                Root::Other => (0, 0),
                Root::Rank(_) => (0, block),
            };
            return self.build(send, recv, None, |b, team| {
                let remote = self.others() as u32;
                let (input, out) = (sent(send), received(recv));
                inter::scatter_between(b, team, remote, root, input, out, block);
            });
        };
        let is_root = at == self.me();
        let in_place = in_place && is_root;
        let send = if is_root { all } else { 0 };
        let recv = if in_place { 0 } else { block };
        self.build(send, recv, None, |b, team| {
            let input = is_root.then_some(sent(all));
            algorithms::scatter(b, team, at, input, received(block), !in_place);
        })
    }

    fn scatterv(
        &self,
        root: Root,
        len: usize,
        blocks: &[Block],
        in_place: bool,
    ) -> Result<Schedule, CollError> {
        let at = self.root(root)?;
        let is_root = at.map_or(root == Root::Me, |at| at == self.me());
        if at.is_none() {
            self.place_of_data(in_place)?;
        }
        let in_place = in_place && is_root;
        let gets = !in_place && (at.is_some() || matches!(root, Root::Rank(_)));
        let recv = if gets { bytes(len, 1)? } else { 0 };
        if !is_root {
            return self.build(0, recv, None, |b, team| match (at, root) {
                (Some(at), _) => {
                    algorithms::scatterv(b, &team.group, at, None, received(recv), true);
                }
                (None, Root::Rank(root)) => b.recv(crate::Target::main(root), received(recv)),
                (None, _) => {}
            });
        }
        self.count(blocks.len(), self.others())?;
        let (send, blocks) = (reach(blocks)?, tidy(blocks));
        if let (Some(at), false) = (at, in_place) {
            own(blocks[at as usize].len, len)?;
        }
        let input = Layout::Listed { whole: sent(send), blocks: &blocks };
        self.build(send, recv, None, |b, team| match at {
            Some(at) => {
                let (g, out) = (&team.group, received(recv));
                algorithms::scatterv(b, g, at, Some(input), out, !in_place);
            }
            None => inter::scatterv_from_me(b, self.others() as u32, input),
        })
    }

    fn allgather(&self, len: usize, block: usize, in_place: bool) -> Result<Schedule, CollError> {
        self.place_of_data(in_place)?;
        let all = bytes(self.others(), block)?;
        let send =
            if in_place { 0 } else { bytes(len, self.place.size() as usize).map(|_| len)? };
        if self.place.remote().is_some() {
            return self.build(send, all, None, |b, team| {
                inter::allgather_between(b, team, sent(send), received(all));
            });
        }
        if !in_place {
            own(block, len)?;
        }
        self.build(send, all, None, |b, team| {
            let out = Layout::Even { whole: received(all), block };
            let input = if in_place { out.block(self.me()) } else { sent(send) };
            algorithms::allgather(b, team, input, out);
        })
    }

    fn allgatherv(
        &self,
        len: usize,
        blocks: &[Block],
        in_place: bool,
    ) -> Result<Schedule, CollError> {
        self.place_of_data(in_place)?;
        self.count(blocks.len(), self.others())?;
        let (recv, blocks) = targets(blocks)?;
        let out = Layout::Listed { whole: received(recv), blocks: &blocks };
        let send = if in_place { 0 } else { bytes(len, 1)? };
        if self.place.remote().is_some() {
            let remote = self.others() as u32;
            return self.build(send, recv, None, |b, _| {
                inter::allgatherv_between(b, remote, sent(send), out);
            });
        }
        if !in_place {
            own(blocks[self.me() as usize].len, len)?;
        }
        self.build(send, recv, None, |b, team| {
            let input = if in_place { out.block(self.me()) } else { sent(send) };
            algorithms::allgather(b, team, input, out);
        })
    }

    fn alltoall(&self, len: usize, block: usize, in_place: bool) -> Result<Schedule, CollError> {
        self.place_of_data(in_place)?;
        let recv = bytes(self.others(), block)?;
        let send = if in_place { 0 } else { bytes(self.others(), len)? };
        if self.place.remote().is_none() && !in_place {
            own(block, len)?;
        }
        let input = Layout::Even { whole: sent(send), block: len };
        let out = Layout::Even { whole: received(recv), block };
        self.all_to_all(send, recv, input, out, in_place)
    }

    fn alltoallv(
        &self,
        send: &[Block],
        recv: &[Block],
        in_place: bool,
    ) -> Result<Schedule, CollError> {
        self.place_of_data(in_place)?;
        self.count(recv.len(), self.others())?;
        let (reach_recv, recv) = targets(recv)?;
        let (reach_send, send) = if in_place {
            (0, Vec::new())
        } else {
            self.count(send.len(), self.others())?;
            (reach(send)?, tidy(send))
        };
        if self.place.remote().is_none() && !in_place {
            let me = self.me() as usize;
            own(recv[me].len, send[me].len)?;
        }
        let input = Layout::Listed { whole: sent(reach_send), blocks: &send };
        let out = Layout::Listed { whole: received(reach_recv), blocks: &recv };
        self.all_to_all(reach_send, reach_recv, input, out, in_place)
    }

    fn all_to_all(
        &self,
        send: usize,
        recv: usize,
        input: Layout<'_>,
        out: Layout<'_>,
        in_place: bool,
    ) -> Result<Schedule, CollError> {
        self.build(send, recv, None, |b, team| match self.place.remote() {
            Some(remote) => inter::alltoall_between(b, team, remote, input, out),
            None if in_place => algorithms::exchange(b, &team.group, out),
            None => algorithms::alltoall(b, team, input, out),
        })
    }

    fn reduce(
        &self,
        root: Root,
        elements: Elements,
        in_place: bool,
    ) -> Result<Schedule, CollError> {
        let len = vector(elements)?;
        let of = Some((elements.extent, elements.commutative));
        let Some(at) = self.root(root)? else {
            self.place_of_data(in_place)?;
            let (send, recv) = match root {
                Root::Me => (0, len),
                Root::Other => (0, 0),
                Root::Rank(_) => (len, 0),
            };
            return self.build(send, recv, of, |b, team| {
                inter::reduce_between(b, team, root, sent(send), received(recv));
            });
        };
        let is_root = at == self.me();
        let in_place = in_place && is_root;
        let send = if in_place { 0 } else { len };
        let recv = if is_root { len } else { 0 };
        self.build(send, recv, of, |b, team| {
            let input = if in_place { received(len) } else { sent(len) };
            algorithms::reduce(b, team, at, input, is_root.then_some(received(len)));
        })
    }

    fn allreduce(&self, elements: Elements, in_place: bool) -> Result<Schedule, CollError> {
        self.place_of_data(in_place)?;
        let len = vector(elements)?;
        let send = if in_place { 0 } else { len };
        let of = Some((elements.extent, elements.commutative));
        self.build(send, len, of, |b, team| {
            let input = if in_place { received(len) } else { sent(len) };
            match self.place.remote() {
                Some(_) => inter::allreduce_between(b, team, input, received(len)),
                None => algorithms::allreduce(b, team, input, received(len)),
            }
        })
    }

    fn reduce_scatter_block(
        &self,
        elements: Elements,
        in_place: bool,
    ) -> Result<Schedule, CollError> {
        self.place_of_data(in_place)?;
        let block = vector(elements)?;
        let all = bytes(self.place.size() as usize, block)?;
        let of = (elements.extent, elements.commutative);
        self.parts_of_reduction(all, block, of, in_place, |whole| Layout::Even { whole, block })
    }

    fn reduce_scatter(
        &self,
        counts: &[usize],
        extent: usize,
        commutative: bool,
        in_place: bool,
    ) -> Result<Schedule, CollError> {
        self.place_of_data(in_place)?;
        self.count(counts.len(), self.place.size() as usize)?;
        let mut all = 0;
        let mut blocks = Vec::with_capacity(counts.len());
        for &count in counts {
            let len = vector(Elements { count, extent, commutative })?;
            blocks.push(Block { offset: all, len });
            all = bytes(all.checked_add(len).ok_or(CollError::TooLong)?, 1)?;
        }
        let block = blocks[self.me() as usize].len;
        let of = (extent, commutative);
        let parts = |whole| Layout::Listed { whole, blocks: &blocks };
        self.parts_of_reduction(all, block, of, in_place, parts)
    }

    /// Everybody gets a part, here of `block` bytes, of the reduction of vectors of `all` bytes.
    fn parts_of_reduction<'b>(
        &self,
        all: usize,
        block: usize,
        elements: (usize, bool),
        in_place: bool,
        parts: impl Fn(Span) -> Layout<'b>,
    ) -> Result<Schedule, CollError> {
        let (send, recv) = if in_place { (0, all) } else { (all, block) };
        self.build(send, recv, Some(elements), |b, team| {
            let input = if in_place { received(all) } else { sent(all) };
            let out = received(block);
            match self.place.remote() {
                Some(_) => inter::reduce_scatter_between(b, team, input, parts, out),
                None => algorithms::reduce_scatter(b, team, input, parts(input), out, !in_place),
            }
        })
    }

    fn scan(
        &self,
        elements: Elements,
        in_place: bool,
        algorithm: fn(&mut Builder, &Team<'_>, Span, Span),
    ) -> Result<Schedule, CollError> {
        if self.place.remote().is_some() {
            return Err(CollError::WrongKind("inter-communicator"));
        }
        let len = vector(elements)?;
        let send = if in_place { 0 } else { len };
        let of = Some((elements.extent, elements.commutative));
        self.build(send, len, of, |b, team| {
            let input = if in_place { received(len) } else { sent(len) };
            algorithm(b, team, input, received(len));
        })
    }
}
