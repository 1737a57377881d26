//! Every collective with processes killed in it: all survivors return, those with success hold right data, and after
//! revoke and shrink the rest goes on with the same collective.

use super::{Outcome, come_here_first, die, die_in, value};
use ironweave::{Comm, Error, Op, Root, World};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::time::Duration;

pub mod between;

/// Elements that one rank gives to each other one, or to all.
const LENGTHS: [usize; 4] = [1, 100, 5_000, 60_000];

/// Rounds before the death, and rounds of the rest after it.
const ROUNDS: u64 = 6;

/// `which` is run again and again, with a `length` or that of the seed; at `moment` somebody dies.
pub fn killed(
    world: &World,
    which: &str,
    moment: &str,
    length: Option<usize>,
    seed: u64,
) -> Outcome {
    let mut rng = SmallRng::seed_from_u64(seed);
    let of_seed = LENGTHS[rng.random_range(0..LENGTHS.len())];
    let length = length.unwrap_or(of_seed);
    let n0 = world.size();
    let root = 0;
    let any = rng.random_range(0..n0);
    let victims = match moment {
        "root" => vec![root],
        "leaf" => vec![n0 - 1],
        "before" | "middle" => vec![any],
        "two" => vec![any, (any + 1 + rng.random_range(0..n0 - 1)) % n0],
        other => return Err(format!("no moment {other:?}").into()),
    };
    let delay = Duration::from_micros(rng.random_range(0..1200));
    let mut comm = world.comm().dup()?;
    comm.barrier()?;
    for round in 0..ROUNDS {
        one(&comm, which, round, length, root)?;
    }
    come_here_first(&comm, &victims)?;
    if victims.contains(&world.rank()) {
        if moment == "before" {
            die();
        }
        die_in(delay);
    }
    let mut round = ROUNDS;
    let error = loop {
        match one(&comm, which, round, length, root) {
            Ok(()) => round += 1,
            Err(error) => break error,
        }
    };
    assert!(error.is_interruption(), "{which}: {error}");
    comm.revoke()?;
    // The second of two may die only now; its death interrupts the rest again.
    loop {
        comm = comm.shrink()?;
        let rest = (0..ROUNDS).try_for_each(|round| one(&comm, which, 100 + round, length, root));
        if comm.agree(u64::from(rest.is_ok()))?.flag == 1
            && comm.size() as usize == n0 as usize - victims.len()
        {
            return Ok(());
        }
        if let Err(error) = rest {
            assert!(error.is_interruption(), "{which}: {error}");
        }
        comm.revoke()?;
    }
}

/// What `rank` gives in a round: `length` numbers from place `at` of its own sequence on.
fn given(rank: u32, round: u64, at: usize, length: usize) -> Vec<u64> {
    (at..at + length).map(|index| value(rank, round, index)).collect()
}

/// Uneven counts that all ranks know: by rank, around `length`.
fn uneven(n: u32, length: usize) -> Vec<usize> {
    (0..n as usize).map(|rank| length.saturating_sub(1) + rank % 3).collect()
}

/// The reduction of what ranks `from..to` give, element by element.
fn total(ranks: std::ops::Range<u32>, round: u64, at: usize, length: usize) -> Vec<u64> {
    (at..at + length)
        .map(|index| {
            ranks.clone().fold(0u64, |sum, rank| sum.wrapping_add(value(rank, round, index)))
        })
        .collect()
}

/// How a collective is called.
#[derive(Clone, Copy)]
enum Way {
    Blocking,
    Nonblocking,
    /// Twice with the same data.
    Persistent,
}

/// The way that a name like `persistent-bcast` tells, and the rest of the name.
fn way_of(which: &str) -> (Way, &str) {
    match which.split_once('-') {
        Some(("nonblocking", rest)) => (Way::Nonblocking, rest),
        Some(("persistent", rest)) => (Way::Persistent, rest),
        _ => (Way::Blocking, which),
    }
}

/// Calls a collective in one of its three ways.
macro_rules! call {
    ($comm:expr, $way:expr, $blocking:ident $nonblocking:ident $persistent:ident ($($argument:expr),*)) => {
        match $way {
            Way::Blocking => $comm.$blocking($($argument),*)?,
            Way::Nonblocking => {
                $comm.scope(|scope| scope.$nonblocking($($argument),*)?.finish().map(drop))??;
            }
            Way::Persistent => {
                $comm.scope(|scope| {
                    let mut operation = scope.$persistent($($argument),*)?;
                    for run in 0..2 {
                        operation.start()?;
                        if run == 0 {
                            operation.wait()?;
                        } else {
                            while !operation.test()? {}
                        }
                    }
                    operation.free().map(drop)
                })??;
            }
        }
    };
}

/// Runs the collective once, and checks what it brought.
fn one(comm: &Comm, which: &str, round: u64, length: usize, root: u32) -> Result<(), Error> {
    let (me, n) = (comm.rank(), comm.size());
    let (ranks, at_root) = (n as usize, me == root);
    let mut mine = given(me, round, 0, length);
    let from_all = || (0..n).flat_map(|rank| given(rank, round, 0, length)).collect::<Vec<_>>();
    let counts = uneven(n, length);
    let offset = |rank: usize| counts[..rank].iter().sum::<usize>();
    let all = offset(ranks);
    let (way, name) = way_of(which);
    match name {
        "barrier" => call!(comm, way, barrier ibarrier barrier_init ()),
        "bcast" => {
            let mut data = if at_root { mine } else { vec![0; length] };
            call!(comm, way, bcast ibcast bcast_init (&mut data, root));
            assert_eq!(data, given(root, round, 0, length));
        }
        "gather" => {
            let mut into = vec![0; if at_root { length * ranks } else { 0 }];
            call!(comm, way, gather igather gather_init (&mut mine, &mut into, root));
            assert!(!at_root || into == from_all());
        }
        "gatherv" => {
            let mut mine = given(me, round, 0, counts[me as usize]);
            let mut into = vec![0; if at_root { all } else { 0 }];
            call!(comm, way, gatherv igatherv gatherv_init (&mut mine, &mut into, &counts, root));
            let expected = (0..n).flat_map(|rank| given(rank, round, 0, counts[rank as usize]));
            assert!(!at_root || into == expected.collect::<Vec<_>>());
        }
        "scatter" => {
            let data = given(root, round, 0, length * ranks);
            let mut out = if at_root { data.clone() } else { Vec::new() };
            let mut into = vec![0; length];
            call!(comm, way, scatter iscatter scatter_init (&mut out, &mut into, root));
            assert_eq!(into, data[me as usize * length..][..length]);
        }
        "scatterv" => {
            let data = given(root, round, 0, all);
            let mut out = if at_root { data.clone() } else { Vec::new() };
            let mut into = vec![0; counts[me as usize]];
            call!(comm, way, scatterv iscatterv scatterv_init (&mut out, &counts, &mut into, root));
            assert_eq!(into, data[offset(me as usize)..][..into.len()]);
        }
        "allgather" => {
            let mut into = vec![0; length * ranks];
            call!(comm, way, allgather iallgather allgather_init (&mut mine, &mut into));
            assert_eq!(into, from_all());
        }
        "allgatherv" => {
            let mut mine = given(me, round, 0, counts[me as usize]);
            let mut into = vec![0; all];
            call!(comm, way, allgatherv iallgatherv allgatherv_init (&mut mine, &mut into, &counts));
            let expected = (0..n).flat_map(|rank| given(rank, round, 0, counts[rank as usize]));
            assert_eq!(into, expected.collect::<Vec<_>>());
        }
        "alltoall" => {
            let mut out = given(me, round, 0, length * ranks);
            let mut into = vec![0; length * ranks];
            call!(comm, way, alltoall ialltoall alltoall_init (&mut out, &mut into));
            let place = me as usize * length;
            let expected = (0..n).flat_map(|rank| given(rank, round, place, length));
            assert_eq!(into, expected.collect::<Vec<_>>());
        }
        "alltoallv" => {
            // Rank r gives `counts[r]` to each, so it takes `counts` from all.
            let mine = counts[me as usize];
            let mut out = given(me, round, 0, mine * ranks);
            let even = vec![mine; ranks];
            let mut into = vec![0; all];
            call!(comm, way, alltoallv ialltoallv alltoallv_init (&mut out, &even, &mut into, &counts));
            let expected = (0..n).flat_map(|rank| {
                let count = counts[rank as usize];
                given(rank, round, me as usize * count, count)
            });
            assert_eq!(into, expected.collect::<Vec<_>>());
        }
        "reduce" => {
            let mut into = vec![0; if at_root { length } else { 0 }];
            call!(comm, way, reduce ireduce reduce_init (&mut mine, &mut into, Op::SUM, root));
            assert!(!at_root || into == total(0..n, round, 0, length));
        }
        "allreduce" => {
            let mut into = vec![0; length];
            call!(comm, way, allreduce iallreduce allreduce_init (&mut mine, &mut into, Op::SUM));
            assert_eq!(into, total(0..n, round, 0, length));
        }
        "reduce_scatter" => {
            let mut out = given(me, round, 0, all);
            let mut into = vec![0; counts[me as usize]];
            call!(
                comm,
                way,
                reduce_scatter ireduce_scatter reduce_scatter_init (&mut out, &mut into, &counts, Op::SUM)
            );
            assert_eq!(into, total(0..n, round, offset(me as usize), into.len()));
        }
        "reduce_scatter_block" => {
            let mut out = given(me, round, 0, length * ranks);
            let mut into = vec![0; length];
            call!(
                comm,
                way,
                reduce_scatter_block ireduce_scatter_block reduce_scatter_block_init
                    (&mut out, &mut into, Op::SUM)
            );
            assert_eq!(into, total(0..n, round, me as usize * length, length));
        }
        "scan" => {
            let mut into = vec![0; length];
            call!(comm, way, scan iscan scan_init (&mut mine, &mut into, Op::SUM));
            assert_eq!(into, total(0..me + 1, round, 0, length));
        }
        "exscan" => {
            let mut into = vec![0; length];
            call!(comm, way, exscan iexscan exscan_init (&mut mine, &mut into, Op::SUM));
            assert_eq!(into, total(0..me, round, 0, length));
        }
        // Two at once, and something else meanwhile.
        "nonblocking" => {
            let (mut sum, mut parts) = (vec![0; length], vec![0; length * ranks]);
            let out = given(me, round, 0, length * ranks);
            comm.scope(|scope| {
                let summing = scope.iallreduce(&mine, &mut sum, Op::SUM)?;
                let mut dealing = scope.ialltoall(&out, &mut parts)?;
                let barrier = scope.ibarrier()?;
                while !dealing.test()? {}
                summing.finish()?;
                barrier.finish()
            })??;
            assert_eq!(sum, total(0..n, round, 0, length));
            let place = me as usize * length;
            let expected = (0..n).flat_map(|rank| given(rank, round, place, length));
            assert_eq!(parts, expected.collect::<Vec<_>>());
        }
        // The same again and again, two of them at a time, with new data each time.
        "persistent" => {
            let (mut mine, mut sum) = (mine, vec![0; length]);
            let mut news = vec![0; length];
            comm.scope(|scope| {
                let mut summing = scope.allreduce_init(&mut mine, &mut sum, Op::SUM)?;
                let mut telling = scope.bcast_init(&mut news, root)?;
                for run in round..round + 3 {
                    let data = summing.data_mut().expect("no run is under way");
                    data.copy_from_slice(&given(me, run, 0, length));
                    if at_root {
                        let data = telling.result_mut().expect("no run is under way");
                        data.copy_from_slice(&given(root, run, 0, length));
                    }
                    // Different ones may be started in different orders.
                    if me.is_multiple_of(2) {
                        summing.start()?;
                        telling.start()?;
                    } else {
                        telling.start()?;
                        summing.start()?;
                    }
                    telling.wait()?;
                    while !summing.test()? {}
                    assert_eq!(summing.result(), Some(&total(0..n, run, 0, length)[..]));
                    assert_eq!(telling.result(), Some(&given(root, run, 0, length)[..]));
                }
                summing.free().map(drop)
            })??;
        }
        "neighbors" => {
            let dims = ironweave::balanced_dims(n, 2);
            let grid = comm.cart(&dims, &[true, false])?.expect("as many places as processes");
            let mut halos = vec![0; 4 * length];
            grid.neighbor_alltoall(&given(me, round, 0, 4 * length), &mut halos)?;
            // What comes from one side is what that one gave to the other side.
            for (side, source) in grid.sources().iter().enumerate() {
                let place = (side ^ 1) * length;
                let expected = match source {
                    Some(rank) => given(*rank, round, place, length),
                    None => vec![0; length],
                };
                assert_eq!(halos[side * length..][..length], expected);
            }
            let ring = comm.graph_adjacent(&[(me + n - 1) % n], &[(me + 1) % n])?;
            let mut from_left = vec![0; length];
            ring.scope(|scope| {
                scope.ineighbor_allgather(&ring, &mine, &mut from_left)?.finish().map(drop)
            })??;
            assert_eq!(from_left, given((me + n - 1) % n, round, 0, length));
        }
        // Blocking ones of the same lengths while others, begun before, are under way: none takes what is another's.
        "beside" => {
            let (mut early, mut parts) = (vec![0; length], vec![0; length * ranks]);
            let (mut sum, mut data) = (vec![0; length], vec![0; length]);
            let out = given(me, round, 0, length * ranks);
            let other = given(me, round + 1000, 0, length);
            comm.scope(|scope| {
                let summing = scope.iallreduce(&mine, &mut early, Op::SUM)?;
                let mut dealing = scope.ialltoall(&out, &mut parts)?;
                comm.allreduce(&other, &mut sum, Op::SUM)?;
                dealing.test()?;
                comm.barrier()?;
                if at_root {
                    data.copy_from_slice(&other);
                }
                comm.bcast(&mut data, root)?;
                dealing.finish()?;
                summing.finish().map(drop)
            })??;
            assert_eq!(early, total(0..n, round, 0, length));
            assert_eq!(sum, total(0..n, round + 1000, 0, length));
            assert_eq!(data, given(root, round + 1000, 0, length));
            let place = me as usize * length;
            let expected = (0..n).flat_map(|rank| given(rank, round, place, length));
            assert_eq!(parts, expected.collect::<Vec<_>>());
        }
        // Who is left alone has no other side.
        "sides" if n == 1 => {}
        name if name.starts_with("sides_") && n == 1 => {}
        name if name.starts_with("sides_") => {
            let (half, inter) = sides(comm)?;
            // More than once: making the communicator takes longer than using it.
            for again in 0..3 {
                rooted_between(comm, &half, &inter, (way, name), round + 100 * again, length)?;
            }
        }
        "sides" => {
            let side = me % 2;
            let (half, inter) = sides(comm)?;
            let others = side_of(n, 1 - side);
            inter.barrier()?;
            let mut into = vec![0; length * others.len()];
            inter.allgather(&mine, &mut into)?;
            let expected = others.iter().flat_map(|&rank| given(rank, round, 0, length));
            assert_eq!(into, expected.collect::<Vec<_>>());
            inter.alltoall(&given(me, round, 0, length * others.len()), &mut into)?;
            let place = half.rank() as usize * length;
            let expected = others.iter().flat_map(|&rank| given(rank, round, place, length));
            assert_eq!(into, expected.collect::<Vec<_>>());
            let mut sum = vec![0; length];
            inter
                .scope(|scope| scope.iallreduce(&mine, &mut sum, Op::SUM)?.finish().map(drop))??;
            let theirs = |rank: &u32| total(*rank..rank + 1, round, 0, length);
            let expected = others.iter().map(theirs).fold(vec![0; length], |sum, one| {
                sum.iter().zip(one).map(|(a, b): (&u64, u64)| a.wrapping_add(b)).collect()
            });
            assert_eq!(sum, expected);
        }
        other => panic!("there is no collective {other:?}"),
    }
    Ok(())
}

/// The ranks of one side.
fn side_of(n: u32, side: u32) -> Vec<u32> {
    (0..n).filter(|rank| rank % 2 == side).collect()
}

/// Two halves, of even and of odd ranks, and the inter-communicator that joins them: what comes there is the other side's.
fn sides(comm: &Comm) -> Result<(Comm, Comm), Error> {
    let (me, side) = (comm.rank(), comm.rank() % 2);
    let half = comm.split(Some(side), me as i32)?.expect("everybody has a colour");
    let bridge = (half.rank() == 0).then_some((comm, 1 - side));
    let inter = half.intercomm(0, bridge, 5)?;
    Ok((half, inter))
}

/// A rooted operation between two sides; rank 0, the first of the even ones, is its root.
fn rooted_between(
    comm: &Comm,
    half: &Comm,
    inter: &Comm,
    (way, name): (Way, &str),
    round: u64,
    length: usize,
) -> Result<(), Error> {
    let me = comm.rank();
    let (even, odd) = (side_of(comm.size(), 0), side_of(comm.size(), 1));
    let (is_root, far) = (me == even[0], me % 2 == 1);
    let root = match (is_root, far) {
        (true, _) => Root::Me,
        (_, true) => Root::Rank(0),
        _ => Root::Other,
    };
    let counts = uneven(odd.len() as u32, length);
    let place = half.rank() as usize;
    let mut mine = if far { given(me, round, 0, length) } else { Vec::new() };
    let at_root = |length: usize| vec![0; if is_root { length } else { 0 }];
    match name {
        "sides_bcast" => {
            let mut data = match (is_root, far) {
                (true, _) => given(even[0], round, 0, length),
                (_, true) => vec![0; length],
                _ => Vec::new(),
            };
            call!(inter, way, bcast ibcast bcast_init (&mut data, root));
            assert!(!far || data == given(even[0], round, 0, length));
        }
        "sides_gather" => {
            let mut into = at_root(length * odd.len());
            call!(inter, way, gather igather gather_init (&mut mine, &mut into, root));
            let expected = odd.iter().flat_map(|rank| given(*rank, round, 0, length));
            assert!(!is_root || into == expected.collect::<Vec<_>>());
        }
        "sides_gatherv" => {
            mine.resize(if far { counts[place] } else { 0 }, me.into());
            let mut into = at_root(counts.iter().sum());
            call!(inter, way, gatherv igatherv gatherv_init (&mut mine, &mut into, &counts, root));
            let expected = odd.iter().zip(&counts).flat_map(|(rank, count)| {
                let mut part = given(*rank, round, 0, length);
                part.resize(*count, (*rank).into());
                part
            });
            assert!(!is_root || into == expected.collect::<Vec<_>>());
        }
        "sides_scatter" => {
            let data = given(even[0], round, 0, length * odd.len());
            let mut out = if is_root { data.clone() } else { Vec::new() };
            let mut into = vec![0; if far { length } else { 0 }];
            call!(inter, way, scatter iscatter scatter_init (&mut out, &mut into, root));
            assert!(!far || into == data[place * length..][..length]);
        }
        "sides_scatterv" => {
            let data = given(even[0], round, 0, counts.iter().sum());
            let mut out = if is_root { data.clone() } else { Vec::new() };
            let mut into = vec![0; if far { counts[place] } else { 0 }];
            call!(inter, way, scatterv iscatterv scatterv_init (&mut out, &counts, &mut into, root));
            let before = |place: usize| counts[..place].iter().sum::<usize>();
            assert!(!far || into == data[before(place)..before(place + 1)]);
        }
        "sides_reduce" => {
            let mut into = at_root(length);
            call!(inter, way, reduce ireduce reduce_init (&mut mine, &mut into, Op::SUM, root));
            let sum = |index| {
                odd.iter().fold(0u64, |sum, rank| sum.wrapping_add(value(*rank, round, index)))
            };
            assert!(!is_root || into == (0..length).map(sum).collect::<Vec<_>>());
        }
        other => panic!("there is no collective {other:?}"),
    }
    Ok(())
}
