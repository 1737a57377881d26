//! Every collective with processes killed in it: all survivors return, those with success hold right data, and after
//! revoke and shrink the rest goes on with the same collective.

use super::{Outcome, come_here_first, die, die_in, value};
use ironweave::{Comm, Error, Op, World};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::time::Duration;

/// Elements that one rank gives to each other one, or to all.
const LENGTHS: [usize; 4] = [1, 100, 5_000, 60_000];

/// Rounds before the death, and rounds of the rest after it.
const ROUNDS: u64 = 6;

/// `which` is run again and again; at `moment` somebody dies.
pub fn killed(world: &World, which: &str, moment: &str, seed: u64) -> Outcome {
    let mut rng = SmallRng::seed_from_u64(seed);
    let length = LENGTHS[rng.random_range(0..LENGTHS.len())];
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

/// Runs the collective once, and checks what it brought.
fn one(comm: &Comm, which: &str, round: u64, length: usize, root: u32) -> Result<(), Error> {
    let (me, n) = (comm.rank(), comm.size());
    let (ranks, at_root) = (n as usize, me == root);
    let mine = given(me, round, 0, length);
    let from_all = || (0..n).flat_map(|rank| given(rank, round, 0, length)).collect::<Vec<_>>();
    let counts = uneven(n, length);
    let offset = |rank: usize| counts[..rank].iter().sum::<usize>();
    let all = offset(ranks);
    match which {
        "barrier" => comm.barrier()?,
        "bcast" => {
            let mut data = if at_root { mine } else { vec![0; length] };
            comm.bcast(&mut data, root)?;
            assert_eq!(data, given(root, round, 0, length));
        }
        "gather" => {
            let mut into = vec![0; if at_root { length * ranks } else { 0 }];
            comm.gather(&mine, &mut into, root)?;
            assert!(!at_root || into == from_all());
        }
        "gatherv" => {
            let mut into = vec![0; if at_root { all } else { 0 }];
            comm.gatherv(&given(me, round, 0, counts[me as usize]), &mut into, &counts, root)?;
            let expected = (0..n).flat_map(|rank| given(rank, round, 0, counts[rank as usize]));
            assert!(!at_root || into == expected.collect::<Vec<_>>());
        }
        "scatter" => {
            let data = given(root, round, 0, length * ranks);
            let mut into = vec![0; length];
            comm.scatter(if at_root { &data } else { &[] }, &mut into, root)?;
            assert_eq!(into, data[me as usize * length..][..length]);
        }
        "scatterv" => {
            let data = given(root, round, 0, all);
            let mut into = vec![0; counts[me as usize]];
            comm.scatterv(if at_root { &data } else { &[] }, &counts, &mut into, root)?;
            assert_eq!(into, data[offset(me as usize)..][..into.len()]);
        }
        "allgather" => {
            let mut into = vec![0; length * ranks];
            comm.allgather(&mine, &mut into)?;
            assert_eq!(into, from_all());
        }
        "allgatherv" => {
            let mut into = vec![0; all];
            comm.allgatherv(&given(me, round, 0, counts[me as usize]), &mut into, &counts)?;
            let expected = (0..n).flat_map(|rank| given(rank, round, 0, counts[rank as usize]));
            assert_eq!(into, expected.collect::<Vec<_>>());
        }
        "alltoall" => {
            let mut into = vec![0; length * ranks];
            comm.alltoall(&given(me, round, 0, length * ranks), &mut into)?;
            let place = me as usize * length;
            let expected = (0..n).flat_map(|rank| given(rank, round, place, length));
            assert_eq!(into, expected.collect::<Vec<_>>());
        }
        "alltoallv" => {
            // Rank r gives `counts[r]` to each, so it takes `counts` from all.
            let mine = counts[me as usize];
            let mut into = vec![0; all];
            comm.alltoallv(
                &given(me, round, 0, mine * ranks),
                &vec![mine; ranks],
                &mut into,
                &counts,
            )?;
            let expected = (0..n).flat_map(|rank| {
                let count = counts[rank as usize];
                given(rank, round, me as usize * count, count)
            });
            assert_eq!(into, expected.collect::<Vec<_>>());
        }
        "reduce" => {
            let mut into = vec![0; if at_root { length } else { 0 }];
            comm.reduce(&mine, &mut into, Op::SUM, root)?;
            assert!(!at_root || into == total(0..n, round, 0, length));
        }
        "allreduce" => {
            let mut into = vec![0; length];
            comm.allreduce(&mine, &mut into, Op::SUM)?;
            assert_eq!(into, total(0..n, round, 0, length));
        }
        "reduce_scatter" => {
            let mut into = vec![0; counts[me as usize]];
            comm.reduce_scatter(&given(me, round, 0, all), &mut into, &counts, Op::SUM)?;
            assert_eq!(into, total(0..n, round, offset(me as usize), into.len()));
        }
        "reduce_scatter_block" => {
            let mut into = vec![0; length];
            comm.reduce_scatter_block(&given(me, round, 0, length * ranks), &mut into, Op::SUM)?;
            assert_eq!(into, total(0..n, round, me as usize * length, length));
        }
        "scan" => {
            let mut into = vec![0; length];
            comm.scan(&mine, &mut into, Op::SUM)?;
            assert_eq!(into, total(0..me + 1, round, 0, length));
        }
        "exscan" => {
            let mut into = vec![0; length];
            comm.exscan(&mine, &mut into, Op::SUM)?;
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
        // Two halves joined by an inter-communicator: what comes is the other side's. Who is left alone has no other side.
        "sides" if n == 1 => {}
        "sides" => {
            let side = me % 2;
            let half = comm.split(Some(side), me as i32)?.expect("everybody has a colour");
            let bridge = (half.rank() == 0).then_some((comm, 1 - side));
            let inter = half.intercomm(0, bridge, 5)?;
            let others: Vec<u32> = (0..n).filter(|rank| rank % 2 != side).collect();
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
