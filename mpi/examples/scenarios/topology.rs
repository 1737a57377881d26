//! Grids, graphs, and collectives on neighbors in them.

use super::Outcome;
use ironweave::{Cart, Comm, Error, Neighborhood};

/// Elements for each neighbor.
const LENGTH: usize = 3;

/// What `rank` gives to its destination number `edge`.
fn part(rank: u32, edge: usize) -> [u32; LENGTH] {
    std::array::from_fn(|index| rank * 1000 + edge as u32 * 100 + index as u32)
}

pub fn all(comm: &Comm) -> Outcome {
    grids(comm)?;
    graphs(comm)?;
    mistakes(comm)
}

fn grids(comm: &Comm) -> Outcome {
    let n = comm.size();
    // Rings of two, where both neighbors in a dimension are the same process, and of one, where it is oneself.
    let shapes: [(Vec<u32>, Vec<bool>); 5] = [
        (vec![n], vec![true]),
        (vec![n / 2, 2], vec![false, true]),
        (vec![2, n / 2], vec![true, true]),
        (vec![n / 2, 1], vec![true, true]),
        (vec![], vec![]),
    ];
    for (dims, periods) in shapes {
        let places: u32 = dims.iter().product();
        let made = comm.cart(&dims, &periods)?;
        assert_eq!(made.is_some(), comm.rank() < places);
        let Some(grid) = made else { continue };
        assert_eq!((grid.size(), grid.rank()), (places, comm.rank()));
        for rank in 0..places {
            let coords: Vec<i64> = grid.coords(rank)?.into_iter().map(i64::from).collect();
            assert_eq!(grid.rank_at(&coords), Some(rank));
        }
        halos(&grid)?;
        if dims.len() == 2 {
            let row = grid.sub(&[false, true])?;
            assert_eq!((row.dims(), row.periods()), (&dims[1..], &periods[1..]));
            assert_eq!(row.rank(), grid.coords(grid.rank())?[1]);
            halos(&row)?;
        }
    }
    Ok(())
}

/// What comes from a side is what the process there gave to the opposite side.
fn halos(grid: &Cart) -> Outcome {
    let me = grid.rank();
    let sides = grid.sources().len();
    let out: Vec<u32> = (0..sides).flat_map(|side| part(me, side)).collect();
    let expected: Vec<u32> = (0..sides)
        .flat_map(|side| grid.sources()[side].map_or([7; LENGTH], |rank| part(rank, side ^ 1)))
        .collect();
    let mut into = vec![7; sides * LENGTH];
    grid.neighbor_alltoall(&out, &mut into)?;
    assert_eq!(into, expected);
    for dimension in 0..grid.dims().len() {
        let (before, behind) = grid.shift(dimension, 1)?;
        assert_eq!(grid.sources()[2 * dimension..][..2], [before, behind]);
    }
    // The same without waiting, and persistent.
    into.fill(7);
    grid.scope(|scope| scope.ineighbor_alltoall(grid, &out, &mut into)?.finish().map(drop))??;
    assert_eq!(into, expected);
    let (mut own, mut into) = (out.clone(), vec![7; sides * LENGTH]);
    grid.scope(|scope| {
        let mut exchange = scope.neighbor_alltoall_init(grid, &mut own, &mut into)?;
        for _ in 0..3 {
            exchange.result_mut().expect("inactive").fill(7);
            exchange.start()?;
            exchange.wait()?;
            assert_eq!(exchange.result(), Some(&expected[..]));
        }
        exchange.free().map(drop)
    })??;
    Ok(())
}

fn graphs(comm: &Comm) -> Outcome {
    let (me, n) = (comm.rank(), comm.size());
    // Everybody to the next, twice, and to itself.
    let (left, right) = ((me + n - 1) % n, (me + 1) % n);
    let adjacent = comm.graph_adjacent(&[left, left, me], &[right, right, me])?;
    let edges: [(u32, u32); 3] = [(me, right), (me, right), (me, me)];
    // Somebody else names them.
    let all: Vec<(u32, u32)> = (0..n)
        .flat_map(|rank| [(rank, (rank + 1) % n), (rank, (rank + 1) % n), (rank, rank)])
        .collect();
    let told = [comm.graph(&edges)?, comm.graph(if me == n - 1 { &all } else { &[] })?];
    exchange(&adjacent)?;
    for graph in &told {
        let mut sources = [left, left, me].map(Some);
        sources.sort_unstable();
        assert_eq!(graph.sources(), sources);
        exchange(graph)?;
    }
    Ok(())
}

/// Everybody has three edges each way.
fn exchange(graph: &Neighborhood) -> Outcome {
    let me = graph.rank();
    let given = |rank: u32| vec![rank; rank as usize + 1];
    let mut each = vec![0; 3 * LENGTH];
    graph.neighbor_allgather(&part(me, 9), &mut each)?;
    let sources: Vec<u32> = graph.sources().iter().flatten().copied().collect();
    assert_eq!(each, sources.iter().flat_map(|&rank| part(rank, 9)).collect::<Vec<_>>());

    // Rank r gives r + 1 elements.
    let counts: Vec<usize> = sources.iter().map(|&rank| rank as usize + 1).collect();
    let expected: Vec<u32> = sources.iter().flat_map(|&rank| given(rank)).collect();
    let mut into = vec![0; expected.len()];
    graph.neighbor_allgatherv(&given(me), &mut into, &counts)?;
    assert_eq!(into, expected);
    into.fill(0);
    let mut mine = given(me);
    graph.scope(|scope| {
        let mut gathering = scope.neighbor_allgatherv_init(graph, &mut mine, &mut into, &counts)?;
        gathering.start()?;
        gathering.wait()?;
        assert_eq!(gathering.result(), Some(&expected[..]));
        gathering.free().map(drop)
    })??;

    let out = given(me).repeat(3);
    into.fill(0);
    graph.neighbor_alltoallv(&out, &[me as usize + 1; 3], &mut into, &counts)?;
    assert_eq!(into, expected);
    Ok(())
}

/// What one member says wrongly, all are told, and the communicator is as good as before.
fn mistakes(comm: &Comm) -> Outcome {
    let (me, n) = (comm.rank(), comm.size());
    let wrong = if me == 0 { n } else { me };
    assert!(matches!(comm.graph_adjacent(&[me], &[wrong]), Err(Error::Argument(_))));
    assert!(matches!(comm.graph(&[(me, wrong)]), Err(Error::Argument(_))));
    assert!(matches!(comm.cart(&[n + 1], &[true]), Err(Error::Argument(_))));
    assert!(matches!(comm.cart(&[0], &[true]), Err(Error::Argument(_))));
    assert!(matches!(comm.cart(&[1, 1], &[true]), Err(Error::Argument(_))));
    let ring = comm.cart(&[n], &[true])?.ok_or("a place for each")?;
    assert!(matches!(ring.coords(n), Err(Error::InvalidRank { .. })));
    assert!(matches!(ring.shift(1, 1), Err(Error::Argument(_))));
    assert_eq!((ring.rank_at(&[-1]), ring.rank_at(&[0, 0])), (Some(n - 1), None));
    let mut into = [0; 2];
    assert!(matches!(ring.neighbor_alltoall(&[1, 2, 3], &mut into), Err(Error::Argument(_))));
    let elsewhere =
        comm.scope(|scope| scope.ineighbor_allgather(&ring, &[1], &mut into).map(drop))?;
    assert!(matches!(elsewhere, Err(Error::Argument(_))));
    Ok(comm.barrier()?)
}
