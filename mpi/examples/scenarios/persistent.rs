//! Every persistent collective, run several times with new data, against the blocking call.

use super::Outcome;
use ironweave::{Comm, Error, Op};

/// Runs of each.
const RUNS: u32 = 3;
/// Elements for each other rank, or in all.
const LENGTH: usize = 5;

/// What this rank gives in a run.
fn given(comm: &Comm, run: u32, length: usize) -> Vec<u32> {
    (0..length as u32).map(|index| (comm.rank() + 1) * 1000 + run * 100 + index).collect()
}

/// Runs `$make` of a scope with `$data` elements given and `$into` got, against the blocking `$call`.
macro_rules! compare {
    ($comm:ident, $data:expr, $into:expr, |$scope:ident, $given:ident, $got:ident| $make:expr, $call:expr) => {{
        let (mut data, mut into) = (vec![0u32; $data], vec![0u32; $into]);
        $comm.scope(|$scope| {
            let ($given, $got) = (&mut data[..], &mut into[..]);
            let mut operation = $make?;
            for run in 0..RUNS {
                let (out, mut expected) = (given($comm, run, $data), vec![0u32; $into]);
                operation.data_mut().expect("inactive").copy_from_slice(&out);
                operation.result_mut().expect("inactive").fill(0);
                operation.start()?;
                assert!(operation.data_mut().is_none() && operation.result().is_none());
                assert!(matches!(operation.start(), Err(Error::Argument(_))), "twice");
                if run == 1 {
                    while !operation.test()? {}
                } else {
                    operation.wait()?;
                }
                operation.wait()?; // again: at once
                let call: fn(&Comm, &[u32], &mut [u32]) -> Result<(), Error> = $call;
                call($comm, &out, &mut expected)?;
                assert_eq!(operation.result(), Some(&expected[..]), "run {run}");
            }
            let (data, _) = operation.free()?;
            assert_eq!(data, given($comm, RUNS - 1, $data));
            Ok::<(), Error>(())
        })??;
    }};
}

/// The counts of uneven parts.
fn counts(n: usize) -> Vec<usize> {
    (0..n).map(|rank| 1 + rank % 3).collect()
}

pub fn all(comm: &Comm) -> Outcome {
    let (me, n) = (comm.rank() as usize, comm.size() as usize);
    let uneven = counts(n);
    let (mine, whole) = (uneven[me], uneven.iter().sum::<usize>());
    let at_root = |length: usize| if me == 0 { length } else { 0 };

    compare!(comm, LENGTH, at_root(LENGTH * n), |s, a, b| s.gather_init(a, b, 0), |c, a, b| c
        .gather(a, b, 0));
    compare!(comm, mine, at_root(whole), |s, a, b| s.gatherv_init(a, b, &uneven, 0), |c, a, b| c
        .gatherv(a, b, &counts(c.size() as usize), 0));
    compare!(comm, at_root(LENGTH * n), LENGTH, |s, a, b| s.scatter_init(a, b, 0), |c, a, b| c
        .scatter(a, b, 0));
    compare!(comm, at_root(whole), mine, |s, a, b| s.scatterv_init(a, &uneven, b, 0), |c, a, b| c
        .scatterv(a, &counts(c.size() as usize), b, 0));
    compare!(comm, LENGTH, LENGTH * n, |s, a, b| s.allgather_init(a, b), |c, a, b| c
        .allgather(a, b));
    compare!(comm, mine, whole, |s, a, b| s.allgatherv_init(a, b, &uneven), |c, a, b| c
        .allgatherv(a, b, &counts(c.size() as usize)));
    compare!(comm, LENGTH * n, LENGTH * n, |s, a, b| s.alltoall_init(a, b), |c, a, b| c
        .alltoall(a, b));
    let mine_to_each = vec![mine; n];
    compare!(
        comm,
        mine * n,
        whole,
        |s, a, b| s.alltoallv_init(a, &mine_to_each, b, &uneven),
        |c, a, b| {
            let n = c.size() as usize;
            c.alltoallv(a, &vec![a.len() / n; n], b, &counts(n))
        }
    );
    compare!(
        comm,
        LENGTH,
        at_root(LENGTH),
        |s, a, b| s.reduce_init(a, b, Op::MAX, 0),
        |c, a, b| c.reduce(a, b, Op::MAX, 0)
    );
    compare!(comm, LENGTH, LENGTH, |s, a, b| s.allreduce_init(a, b, Op::SUM), |c, a, b| c
        .allreduce(a, b, Op::SUM));
    compare!(
        comm,
        whole,
        mine,
        |s, a, b| s.reduce_scatter_init(a, b, &uneven, Op::SUM),
        |c, a, b| c.reduce_scatter(a, b, &counts(c.size() as usize), Op::SUM)
    );
    compare!(
        comm,
        LENGTH * n,
        LENGTH,
        |s, a, b| s.reduce_scatter_block_init(a, b, Op::SUM),
        |c, a, b| c.reduce_scatter_block(a, b, Op::SUM)
    );
    compare!(comm, LENGTH, LENGTH, |s, a, b| s.scan_init(a, b, Op::SUM), |c, a, b| c.scan(
        a,
        b,
        Op::SUM
    ));
    compare!(comm, LENGTH, LENGTH, |s, a, b| s.exscan_init(a, b, Op::SUM), |c, a, b| c.exscan(
        a,
        b,
        Op::SUM
    ));
    forgotten(comm)?;
    broadcast(comm)
}

/// A barrier, and a broadcast, whose one buffer is the result's.
fn broadcast(comm: &Comm) -> Outcome {
    let mut news = [0u32; LENGTH];
    comm.scope(|scope| {
        let mut barrier = scope.barrier_init()?;
        let mut telling = scope.bcast_init(&mut news, 1)?;
        for run in 0..RUNS {
            let own = given(comm, run, LENGTH);
            telling.result_mut().expect("inactive").copy_from_slice(&own);
            telling.start()?;
            barrier.start()?;
            barrier.wait()?;
            telling.wait()?;
            let expected: Vec<u32> =
                own.iter().map(|x| x + 2000 - (comm.rank() + 1) * 1000).collect();
            assert_eq!(telling.result(), Some(&expected[..]));
        }
        Ok::<(), Error>(())
    })??;
    Ok(())
}

/// A run that nobody waits for is over at the end of the scope, whatever became of the operation.
fn forgotten(comm: &Comm) -> Outcome {
    let (mut ones, mut sum) = (vec![1u32; 100_000], vec![0u32; 100_000]);
    comm.scope(|scope| {
        let mut reduction = scope.allreduce_init(&mut ones, &mut sum, Op::SUM)?;
        reduction.start()?;
        std::mem::forget(reduction);
        Ok::<(), Error>(())
    })??;
    assert!(sum.iter().all(|&total| total == comm.size()));
    Ok(())
}
