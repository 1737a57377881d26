//! Virtual topologies and collectives on neighbors (MPI standard 5.0, chapter 8): a communicator in which each process has
//! named those it exchanges data with. Ranks are never reordered, and weights, which could only serve that, are not taken.
//!
//! Failures end these collectives as they end all others: a dead member, a neighbor or not, interrupts them everywhere.

use crate::message::ElementMut;
use crate::nonblocking::Filling;
use crate::threading::{Single, Threading};
use crate::{Comm, Error, Result, Scope, calls};
use ironweave_coll::{Neighbors, Pairing};
use ironweave_core::{Attributes, CoreError, grid};
use std::fmt;
use std::ops::Deref;
use zerocopy::IntoBytes as _;

/// A communicator with edges from and to each process: a distributed graph, or the neighbors in a [`Cart`]. Everything that a
/// [`Comm`] can do it can do, too. Communicators made from it have no edges.
///
/// ```
/// # let world = ironweave::World::init()?;
/// # let comm = world.comm();
/// // A ring: from the left, to the right.
/// let (me, n) = (comm.rank(), comm.size());
/// let ring = comm.graph_adjacent(&[(me + n - 1) % n], &[(me + 1) % n])?;
/// let mut from_left = [0u32];
/// ring.neighbor_alltoall(&[me], &mut from_left)?;
/// assert_eq!(from_left, [(me + n - 1) % n]);
/// # Ok::<(), ironweave::Error>(())
/// ```
pub struct Neighborhood<T: Threading = Single> {
    comm: Comm<T>,
    edges: Neighbors,
}

impl<T: Threading> Clone for Neighborhood<T> {
    fn clone(&self) -> Self {
        Neighborhood { comm: self.comm.clone(), edges: self.edges.clone() }
    }
}

impl<T: Threading> Deref for Neighborhood<T> {
    type Target = Comm<T>;

    fn deref(&self) -> &Comm<T> {
        &self.comm
    }
}

impl<T: Threading> fmt::Debug for Neighborhood<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} from {:?} to {:?}", self.comm, self.sources(), self.destinations())
    }
}

impl<T: Threading> Neighborhood<T> {
    /// Ranks that blocks come from, in their order (`MPI_Dist_graph_neighbors`). `None`: beyond the border of a grid; its block is
    /// left as it is.
    #[must_use]
    pub fn sources(&self) -> &[Option<u32>] {
        &self.edges.sources
    }

    /// Ranks that blocks go to, in their order. `None`: beyond the border of a grid; its block goes nowhere.
    #[must_use]
    pub fn destinations(&self) -> &[Option<u32>] {
        &self.edges.destinations
    }

    /// The edges, for an operation of a scope on `comm`.
    pub(crate) fn edges_in(&self, comm: &Comm<T>) -> Result<&Neighbors> {
        if comm.core() == self.comm.core() {
            Ok(&self.edges)
        } else {
            Err(Error::Argument("the scope is not one of this neighborhood".into()))
        }
    }

    /// Gives `data` to each destination, and gets each source's, in their order (`MPI_Neighbor_allgather`). All give equally
    /// much.
    ///
    /// # Errors
    /// As [`Comm::bcast`].
    pub fn neighbor_allgather<E: ElementMut>(&self, data: &[E], into: &mut [E]) -> Result<()> {
        let call = calls::neighbor_allgather(&self.edges, data);
        self.collective(&call, data.as_bytes(), into.as_mut_bytes(), None)
    }

    /// As [`neighbor_allgather`](Self::neighbor_allgather), source number i giving `counts[i]` elements
    /// (`MPI_Neighbor_allgatherv`).
    ///
    /// # Errors
    /// As [`Comm::bcast`].
    pub fn neighbor_allgatherv<E: ElementMut>(
        &self,
        data: &[E],
        into: &mut [E],
        counts: &[usize],
    ) -> Result<()> {
        let call = calls::neighbor_allgatherv(&self.edges, data, counts);
        self.collective(&call, data.as_bytes(), into.as_mut_bytes(), None)
    }

    /// Gives each destination its part of `data`, and gets a part of `into` from each source (`MPI_Neighbor_alltoall`). All parts
    /// are equally long.
    ///
    /// # Errors
    /// As [`Comm::bcast`].
    pub fn neighbor_alltoall<E: ElementMut>(&self, data: &[E], into: &mut [E]) -> Result<()> {
        let call = calls::neighbor_alltoall(&self.edges, data, into)?;
        self.collective(&call, data.as_bytes(), into.as_mut_bytes(), None)
    }

    /// As [`neighbor_alltoall`](Self::neighbor_alltoall), with parts of any length (`MPI_Neighbor_alltoallv`): `given[i]` elements
    /// go to destination number i, `taken[i]` come from source number i.
    ///
    /// # Errors
    /// As [`Comm::bcast`].
    pub fn neighbor_alltoallv<E: ElementMut>(
        &self,
        data: &[E],
        given: &[usize],
        into: &mut [E],
        taken: &[usize],
    ) -> Result<()> {
        let call = calls::neighbor_alltoallv::<E>(&self.edges, given, taken);
        self.collective(&call, data.as_bytes(), into.as_mut_bytes(), None)
    }
}

/// A grid of processes, ranks in row-major order, and each one's neighbors: for every dimension the one before and the one
/// behind (`MPI_Cart_create`). It is a [`Neighborhood`].
///
/// ```
/// # let world = ironweave::World::init()?;
/// # let comm = world.comm();
/// let dims = ironweave::balanced_dims(comm.size(), 2);
/// let grid = comm.cart(&dims, &[true, false])?.expect("as many places as processes");
/// assert_eq!(grid.rank_at(&[0, 0]), Some(0));
///
/// // Halos: what this process gives in each of the four directions, and what comes from there.
/// let mut halos = [0u32; 4];
/// grid.neighbor_alltoall(&[grid.rank(); 4], &mut halos)?;
/// let (up, _down) = grid.shift(0, 1)?;
/// assert_eq!(Some(halos[0]), up); // the first dimension is a ring
/// # Ok::<(), ironweave::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cart<T: Threading = Single> {
    around: Neighborhood<T>,
    dims: Vec<u32>,
    periods: Vec<bool>,
}

impl<T: Threading> Deref for Cart<T> {
    type Target = Neighborhood<T>;

    fn deref(&self) -> &Neighborhood<T> {
        &self.around
    }
}

impl<T: Threading> Cart<T> {
    fn new(comm: Comm<T>, dims: Vec<u32>, periods: Vec<bool>) -> Self {
        let edges = grid::neighbors(&dims, &periods, comm.rank());
        Cart { around: Neighborhood { comm, edges }, dims, periods }
    }

    /// How many processes in each dimension.
    #[must_use]
    pub fn dims(&self) -> &[u32] {
        &self.dims
    }

    /// Which dimensions are rings.
    #[must_use]
    pub fn periods(&self) -> &[bool] {
        &self.periods
    }

    /// Where a rank is (`MPI_Cart_coords`).
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn coords(&self, rank: u32) -> Result<Vec<u32>> {
        match self.size() {
            size if rank >= size => Err(Error::InvalidRank { rank, size }),
            _ => Ok(grid::coords(&self.dims, rank)),
        }
    }

    /// The rank at these coordinates, which in rings go round (`MPI_Cart_rank`); `None` outside of the grid, and for another number
    /// of coordinates than there are dimensions.
    #[must_use]
    pub fn rank_at(&self, coords: &[i64]) -> Option<u32> {
        if coords.len() != self.dims.len() {
            return None;
        }
        let lines = self.dims.iter().zip(&self.periods);
        let place = |(&coord, (&dim, &ring)): (&i64, (&u32, &bool))| {
            let coord = if ring { coord.rem_euclid(i64::from(dim)) } else { coord };
            u32::try_from(coord).ok().filter(|coord| *coord < dim)
        };
        let coords: Option<Vec<u32>> = coords.iter().zip(lines).map(place).collect();
        coords.map(|coords| grid::rank_of(&self.dims, &coords))
    }

    /// Who is `by` places before this process in a dimension, and who behind it: source and destination of a shift
    /// (`MPI_Cart_shift`). `None` beyond a border.
    ///
    /// # Errors
    /// [`Error::Argument`]: there is no such dimension.
    pub fn shift(&self, dimension: usize, by: i32) -> Result<(Option<u32>, Option<u32>)> {
        if dimension >= self.dims.len() {
            let dims = self.dims.len();
            return Err(Error::Argument(format!("dimension {dimension} of a grid of {dims}")));
        }
        Ok(grid::shift(&self.dims, &self.periods, self.rank(), dimension, i64::from(by)))
    }

    /// The part of the grid that this process is in when it is cut along all dimensions but those that stay (`MPI_Cart_sub`).
    /// Collective.
    ///
    /// # Errors
    /// As [`Comm::dup`]; [`Error::Argument`] when it is not told of each dimension whether it stays.
    pub fn sub(&self, stays: &[bool]) -> Result<Cart<T>> {
        if stays.len() != self.dims.len() {
            let (got, dims) = (stays.len(), self.dims.len());
            return Err(Error::Argument(format!("{got} of {dims} dimensions stay or go")));
        }
        let here = grid::coords(&self.dims, self.rank());
        let part = |list: &[u32], wanted: bool| -> Vec<u32> {
            let both = list.iter().zip(stays);
            both.filter(|(_, stays)| **stays == wanted).map(|(&value, _)| value).collect()
        };
        let colour = grid::rank_of(&part(&self.dims, false), &part(&here, false));
        let dims = part(&self.dims, true);
        let key = grid::rank_of(&dims, &part(&here, true));
        let rings = self.periods.iter().zip(stays).filter(|(_, stays)| **stays);
        let periods = rings.map(|(&ring, _)| ring).collect();
        let made = self.split(Some(colour), key as i32)?;
        Ok(Cart::new(made.expect("there is a colour"), dims, periods))
    }
}

/// `n` as a product of so many factors that are as close to each other as can be, the largest first (`MPI_Dims_create`).
///
/// ```
/// assert_eq!(ironweave::balanced_dims(12, 2), [4, 3]);
/// ```
#[must_use]
pub fn balanced_dims(n: u32, dimensions: usize) -> Vec<u32> {
    grid::balanced(n.max(1), dimensions)
}

impl<T: Threading> Comm<T> {
    /// A grid of the first processes of this communicator (`MPI_Cart_create`): so many in each dimension, which is a ring where
    /// `periods` says so. Collective, with the same arguments; `None` for processes that the grid has no place for.
    ///
    /// # Errors
    /// As [`dup`](Self::dup); [`Error::Argument`] for a grid that needs more processes than there are, or none, and for lists
    /// of different lengths.
    pub fn cart(&self, dims: &[u32], periods: &[bool]) -> Result<Option<Cart<T>>> {
        if dims.len() != periods.len() {
            let (dims, periods) = (dims.len(), periods.len());
            return Err(Error::Argument(format!("{dims} dimensions, {periods} of them described")));
        }
        let places = dims.iter().fold(1u64, |all, &dim| all.saturating_mul(u64::from(dim)));
        if places == 0 || places > u64::from(self.size()) {
            let size = self.size();
            let text = format!("a grid of {dims:?} has {places} places for {size} processes");
            return Err(Error::Argument(text));
        }
        let colour = (u64::from(self.rank()) < places).then_some(0);
        let made = self.split(colour, self.rank() as i32)?;
        Ok(made.map(|comm| Cart::new(comm, dims.to_vec(), periods.to_vec())))
    }

    /// A distributed graph of which each process knows its own edges (`MPI_Dist_graph_create_adjacent`): blocks come from
    /// `sources` and go to `destinations`. A rank may be there several times, and one's own too: what is named as a
    /// destination here is named as a source there, as often. Collective.
    ///
    /// # Errors
    /// As [`dup`](Self::dup); [`Error::Argument`], at all members, when one names a rank that is not here.
    pub fn graph_adjacent(&self, sources: &[u32], destinations: &[u32]) -> Result<Neighborhood<T>> {
        let list = |ranks: &[u32]| ranks.iter().copied().map(Some).collect();
        let (sources, destinations) = (list(sources), list(destinations));
        self.graph_of(Neighbors { sources, destinations, pairing: Pairing::InOrder }, true)
    }

    /// A distributed graph to which each process gives some edges, from one rank to another, whosever they are
    /// (`MPI_Dist_graph_create`). Each process's neighbors are in the order of ranks. Collective.
    ///
    /// ```
    /// # let world = ironweave::World::init()?;
    /// # let comm = world.comm();
    /// // Rank 0 describes a star: from itself to everybody.
    /// let star: Vec<(u32, u32)> = (0..comm.size()).map(|rank| (0, rank)).collect();
    /// let star = comm.graph(if comm.rank() == 0 { &star } else { &[] })?;
    /// assert_eq!(star.sources(), [Some(0)]);
    /// # Ok::<(), ironweave::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`graph_adjacent`](Self::graph_adjacent), and as [`bcast`](Self::bcast).
    pub fn graph(&self, edges: &[(u32, u32)]) -> Result<Neighborhood<T>> {
        let size = self.size();
        let mut sound = true;
        // For each process its edges, as the other end, and whether it is the destination.
        let mut parts: Vec<Vec<[u32; 2]>> = vec![Vec::new(); size as usize];
        for &(from, to) in edges {
            if from >= size || to >= size {
                sound = false;
                continue;
            }
            parts[from as usize].push([to, 0]);
            parts[to as usize].push([from, 1]);
        }
        let given: Vec<usize> = parts.iter().map(Vec::len).collect();
        let counts: Vec<u64> = given.iter().map(|&count| count as u64).collect();
        let mut coming = vec![0u64; size as usize];
        self.alltoall(&counts, &mut coming)?;
        let taken: Vec<usize> = coming.iter().map(|&count| count as usize).collect();
        let mut came = vec![[0u32; 2]; taken.iter().sum()];
        self.alltoallv(&parts.concat(), &given, &mut came, &taken)?;
        let side = |incoming: u32| {
            let ends = came.iter().filter(|[_, is_incoming]| *is_incoming == incoming);
            let mut ranks: Vec<u32> = ends.map(|&[rank, _]| rank).collect();
            ranks.sort_unstable();
            ranks.into_iter().map(Some).collect()
        };
        let (sources, destinations) = (side(1), side(0));
        self.graph_of(Neighbors { sources, destinations, pairing: Pairing::InOrder }, sound)
    }

    /// A duplicate with edges, if all members have nothing against theirs.
    fn graph_of(&self, edges: Neighbors, sound: bool) -> Result<Neighborhood<T>> {
        let Neighbors { sources, destinations, .. } = &edges;
        let is_here = |rank: &Option<u32>| rank.is_some_and(|rank| rank < self.size());
        let sound = sound && sources.iter().chain(&destinations[..]).all(is_here);
        let attributes = match sound {
            true => Ok(Attributes::default()),
            false => Err(CoreError::Argument("an edge of a rank that is not in the communicator")),
        };
        let made = self.create(|engine, comm, now| engine.idup(comm, attributes, None, now))?;
        Ok(Neighborhood { comm: made.expect("a duplicate has all members"), edges })
    }
}

impl<'scope, 'env, T: Threading> Scope<'scope, 'env, T> {
    /// [`Neighborhood::neighbor_allgather`] without waiting (`MPI_Ineighbor_allgather`), in a scope of that neighborhood.
    ///
    /// ```
    /// # let world = ironweave::World::init()?;
    /// # let comm = world.comm();
    /// let ring = comm.cart(&[comm.size()], &[true])?.expect("a place for each");
    /// let mut sides = [0u32; 2];
    /// ring.scope(|scope| {
    ///     let under_way = scope.ineighbor_allgather(&ring, &[1], &mut sides)?;
    ///     // … something else meanwhile …
    ///     assert_eq!(under_way.finish()?, &[1, 1]);
    ///     Ok::<(), ironweave::Error>(())
    /// })??;
    /// # Ok::<(), ironweave::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`ibarrier`](Self::ibarrier); [`Error::Argument`] in a scope of another communicator.
    pub fn ineighbor_allgather<E: ElementMut>(
        &'scope self,
        around: &Neighborhood<T>,
        data: &'scope [E],
        into: &'scope mut [E],
    ) -> Filling<'scope, 'env, E, T> {
        let call = calls::neighbor_allgather(around.edges_in(self.comm())?, data);
        self.filling(&call, data.as_bytes(), into, None)
    }

    /// [`Neighborhood::neighbor_allgatherv`] without waiting (`MPI_Ineighbor_allgatherv`).
    ///
    /// # Errors
    /// As [`ineighbor_allgather`](Self::ineighbor_allgather).
    pub fn ineighbor_allgatherv<E: ElementMut>(
        &'scope self,
        around: &Neighborhood<T>,
        data: &'scope [E],
        into: &'scope mut [E],
        counts: &[usize],
    ) -> Filling<'scope, 'env, E, T> {
        let call = calls::neighbor_allgatherv(around.edges_in(self.comm())?, data, counts);
        self.filling(&call, data.as_bytes(), into, None)
    }

    /// [`Neighborhood::neighbor_alltoall`] without waiting (`MPI_Ineighbor_alltoall`).
    ///
    /// # Errors
    /// As [`ineighbor_allgather`](Self::ineighbor_allgather).
    pub fn ineighbor_alltoall<E: ElementMut>(
        &'scope self,
        around: &Neighborhood<T>,
        data: &'scope [E],
        into: &'scope mut [E],
    ) -> Filling<'scope, 'env, E, T> {
        let call = calls::neighbor_alltoall(around.edges_in(self.comm())?, data, into)?;
        self.filling(&call, data.as_bytes(), into, None)
    }

    /// [`Neighborhood::neighbor_alltoallv`] without waiting (`MPI_Ineighbor_alltoallv`).
    ///
    /// # Errors
    /// As [`ineighbor_allgather`](Self::ineighbor_allgather).
    pub fn ineighbor_alltoallv<E: ElementMut>(
        &'scope self,
        around: &Neighborhood<T>,
        data: &'scope [E],
        given: &[usize],
        into: &'scope mut [E],
        taken: &[usize],
    ) -> Filling<'scope, 'env, E, T> {
        let edges = around.edges_in(self.comm())?;
        let call = calls::neighbor_alltoallv::<E>(edges, given, taken);
        self.filling(&call, data.as_bytes(), into, None)
    }
}
