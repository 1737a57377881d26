//! What has no root, between two sides, with a process of either killed: survivors of both get its failure and never wrong data; they
//! agree, acknowledge, revoke and shrink on the inter-communicator itself, and what is left of it goes on with the same operation.

use super::{LENGTHS, ROUNDS, Way, given, side_of, sides, way_of};
use crate::{Outcome, come_here_first, die, die_in, polled, value};
use ironweave::{Comm, Error, Op, Source, World};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::time::Duration;

/// Two sides, of even and of odd ranks, and this process's place in them.
struct Between {
    inter: Comm,
    /// Ranks in the world.
    mine: Vec<u32>,
    theirs: Vec<u32>,
    me: u32,
}

/// When somebody dies: called before each operation, or, persistent ones, before the first start.
type Doom<'a> = &'a dyn Fn() -> Result<(), Error>;

/// `which` is run again and again; at `moment` rank `victim` dies.
pub fn killed(world: &World, which: &str, victim: u32, moment: &str, seed: u64) -> Outcome {
    let mut rng = SmallRng::seed_from_u64(seed);
    // A vector of six parts for each side is long enough already.
    let length = LENGTHS[rng.random_range(0..LENGTHS.len() - 1)];
    let delay = Duration::from_micros(rng.random_range(0..1200));
    let comm = world.comm().dup()?;
    let (me, n) = (comm.rank(), comm.size());
    let (_, inter) = sides(&comm)?;
    let mut between =
        Between { inter, mine: side_of(n, me % 2), theirs: side_of(n, 1 - me % 2), me };
    for round in 0..ROUNDS {
        between.one(which, round, length, None)?;
    }
    let doom = || {
        come_here_first(&comm, &[victim])?;
        if me == victim {
            if moment == "before" {
                die();
            }
            die_in(delay);
        }
        Ok(())
    };
    let error = match way_of(which).0 {
        Way::Persistent => between.one(which, ROUNDS, length, Some(&doom)).err(),
        _ => {
            doom()?;
            (ROUNDS..).find_map(|round| between.one(which, round, length, None).err())
        }
    };
    let place = between.mine.iter().chain(&between.theirs).filter(|rank| **rank % 2 == victim % 2);
    let place = place.take_while(|rank| **rank != victim).count() as u32;
    let dead = Error::ProcFailed { rank: place };
    // Nobody has revoked it yet, so it is the death that everybody hears of.
    assert_eq!(error.as_ref(), Some(&dead), "{which}");
    between.repair(which, victim, place, length, seed)?;
    for round in 0..ROUNDS {
        between.one(which, 100 + round, length, None)?;
    }
    Ok(())
}

/// Everybody of one side dies. What is left can be shrunk, agreed and revoked; whatever needs another side has an error at once, at all
/// members, also where some would have nothing to wait for.
pub fn alone(world: &World, seed: u64) -> Outcome {
    let comm = world.comm().dup()?;
    let (me, n) = (comm.rank(), comm.size());
    let (_, inter) = sides(&comm)?;
    let victims = side_of(n, (seed % 2) as u32);
    let left = side_of(n, 1 - (seed % 2) as u32);
    come_here_first(&comm, &victims)?;
    if victims.contains(&me) {
        die();
    }
    let dead = |error: Error| matches!(error, Error::ProcFailed { .. } | Error::Revoked);
    assert!(inter.recv(&mut [0u8], 0, 98).is_err_and(dead));
    while inter.failed()?.len() < victims.len() {
        std::thread::yield_now();
    }
    let rest = inter.shrink()?;
    assert!(rest.is_inter()? && !rest.is_revoked()? && rest.failed()?.is_empty());
    assert_eq!((rest.size(), left[rest.rank() as usize]), (0, me));
    let mut between = Between { inter: rest, mine: left.clone(), theirs: Vec::new(), me };
    let nobody = |end: Result<(), Error>| matches!(end, Err(Error::Argument(_)));
    for which in ["barrier", "allgather", "allgatherv", "alltoall", "alltoallv", "allreduce"] {
        for way in ["", "nonblocking-", "persistent-"] {
            assert!(nobody(between.one(&format!("{way}{which}"), 0, 1000, None)), "{way}{which}");
        }
    }
    assert!(nobody(between.inter.merge(false).map(drop)), "the other side is asked, too");
    between.inter = between.inter.dup()?;
    assert_eq!((between.inter.is_inter()?, between.inter.size()), (true, 0));
    let lowered = left.iter().fold(!0, |all, rank| all & !(1 << rank));
    for _ in 0..2 {
        let agreed = between.inter.agree(!(1 << me))?;
        assert_eq!((agreed.flag, agreed.new_failure), (lowered, None));
        between.inter = between.inter.shrink()?;
        between.inter.revoke()?;
    }
    Ok(())
}

impl Between {
    /// All that there is on an inter-communicator after a death; leaves the shrunk one in its place.
    fn repair(
        &mut self,
        which: &str,
        victim: u32,
        place: u32,
        length: usize,
        seed: u64,
    ) -> Outcome {
        let inter = self.inter.clone();
        let (me, far) = (self.me, self.theirs.contains(&victim));
        let dead = Error::ProcFailed { rank: place };
        let everybody = self.mine.iter().chain(&self.theirs);
        let lowered =
            everybody.filter(|rank| **rank != victim).fold(!0, |all, rank| all & !(1 << rank));
        let polls = !seed.is_multiple_of(2);
        let agree = || match polls {
            false => inter.agree(!(1 << me)),
            true => polled(inter.iagree(!(1 << me))?),
        };

        let agreed = agree()?;
        assert_eq!(agreed.flag, lowered, "the dead contributes all ones, each survivor its own");
        assert_eq!(agreed.new_failure, Some(place), "nobody has acknowledged it");
        assert_eq!(inter.failed()?, if far { vec![place] } else { vec![] });
        if far {
            let end = inter.recv(&mut [0u8], Source::Any, 98).map(drop);
            assert_eq!(end, Err(dead.clone()), "the dead could have sent it");
        }
        assert_eq!(inter.ack_failed()?, 1);
        let agreed = agree()?;
        assert_eq!((agreed.flag, agreed.new_failure), (lowered, None), "all have acknowledged it");
        assert_eq!(self.one(which, 0, length, None), Err(dead), "acknowledged is not repaired");
        // Who is left of the dead one's side is heard by wildcards of the other again.
        let peers = &self.theirs;
        for _ in 1..if far { peers.len() } else { 0 } {
            let mut got = [0];
            let status = inter.recv(&mut got, Source::Any, 98)?;
            assert_eq!(got, [value(peers[status.source as usize], 98, 0)]);
        }
        for to in 0..if far { 0 } else { peers.len() } {
            inter.send(&[value(me, 98, 0)], to as u32, 98)?;
        }

        assert_eq!(agree()?.flag, lowered, "until here nobody has revoked it");
        // One of them does; both sides hear of it.
        let survivors = self.mine.iter().chain(&self.theirs).filter(|rank| **rank != victim);
        if Some(&me) == survivors.max() {
            inter.revoke()?;
        }
        while !inter.is_revoked()? {
            std::thread::yield_now();
        }
        assert_eq!(self.one(which, 0, length, None), Err(Error::Revoked));
        assert_eq!(agree()?.flag, lowered, "also on a revoked one");
        let rest = if polls { polled(inter.ishrink()?)? } else { inter.shrink()? };
        assert!(rest.is_inter()? && !rest.is_revoked()? && rest.failed()?.is_empty());
        self.inter = rest;
        self.mine.retain(|rank| *rank != victim);
        self.theirs.retain(|rank| *rank != victim);
        let rest = &self.inter;
        assert_eq!(rest.size() as usize, self.theirs.len());
        assert_eq!(self.mine[rest.rank() as usize], me, "in the same order");
        Ok(())
    }
}

/// Calls a collective in one of its three ways: a persistent one twice with the same data, or, after its `doom`, until it fails.
macro_rules! call {
    ($at:expr, $how:expr, $blocking:ident $nonblocking:ident $persistent:ident ($($argument:expr),*) == $expected:expr) => {{
        let (way, doom) = $how;
        match way {
            Way::Blocking => $at.$blocking($($argument),*)?,
            Way::Nonblocking => {
                $at.scope(|scope| scope.$nonblocking($($argument),*)?.finish().map(drop))??;
            }
            Way::Persistent => {
                $at.scope(|scope| {
                    let mut operation = scope.$persistent($($argument),*)?;
                    doom.map_or(Ok(()), |doom| doom())?;
                    let mut run = 0;
                    while doom.is_some() || run < 2 {
                        operation.result_mut().expect("no run is under way").fill(0);
                        operation.start()?;
                        if run % 2 == 0 {
                            operation.wait()?;
                        } else {
                            while !operation.test()? {}
                        }
                        assert!(operation.result() == Some(&$expected[..]), "run {run}");
                        run += 1;
                    }
                    operation.free().map(drop)
                })??;
            }
        }
    }};
}

impl Between {
    /// Runs the collective once, and checks what it brought: what the other side gave.
    fn one(
        &self,
        which: &str,
        round: u64,
        length: usize,
        doom: Option<Doom<'_>>,
    ) -> Result<(), Error> {
        let Between { inter, mine: near, theirs: far, me } = self;
        let place = near.iter().position(|rank| rank == me).expect("a member");
        let (way, name) = way_of(which);
        let how = (way, doom);
        let gives = |at: usize, length: usize| given(*me, round, at, length);
        let from_each = |at: usize, length: &dyn Fn(u32) -> usize| -> Vec<u64> {
            let part = |rank: &u32| given(*rank, round, at * length(*rank), length(*rank));
            far.iter().flat_map(part).collect()
        };
        let even = |_| length;
        // By the rank in the world, so that both sides know all.
        let count = |rank: u32| length - 1 + rank as usize % 3;
        let counts: Vec<usize> = far.iter().map(|rank| count(*rank)).collect();
        // What is reduced is equally long on both sides, and can be dealt to 1, 2 or 3.
        let whole = 6 * length;
        let sum = |from: usize, length: usize| -> Vec<u64> {
            let add = |index| {
                far.iter().fold(0, |sum: u64, rank| sum.wrapping_add(value(*rank, round, index)))
            };
            (from..from + length).map(add).collect()
        };
        match name {
            "barrier" => call!(inter, how, barrier ibarrier barrier_init () == [0u8; 0]),
            "allgather" => {
                let (mut out, expected) = (gives(0, length), from_each(0, &even));
                let mut into = vec![0; expected.len()];
                call!(inter, how, allgather iallgather allgather_init (&mut out, &mut into) == expected);
                assert!(into == expected);
            }
            "allgatherv" => {
                let (mut out, expected) = (gives(0, count(*me)), from_each(0, &count));
                let mut into = vec![0; expected.len()];
                call!(
                    inter,
                    how,
                    allgatherv iallgatherv allgatherv_init (&mut out, &mut into, &counts) == expected
                );
                assert!(into == expected);
            }
            "alltoall" => {
                let (mut out, expected) = (gives(0, length * far.len()), from_each(place, &even));
                let mut into = vec![0; expected.len()];
                call!(inter, how, alltoall ialltoall alltoall_init (&mut out, &mut into) == expected);
                assert!(into == expected);
            }
            "alltoallv" => {
                // Each gives equally much to all, and takes what the other gives.
                let given = vec![count(*me); far.len()];
                let mut out = gives(0, count(*me) * far.len());
                let expected = from_each(place, &count);
                let mut into = vec![0; expected.len()];
                call!(
                    inter,
                    how,
                    alltoallv ialltoallv alltoallv_init (&mut out, &given, &mut into, &counts)
                        == expected
                );
                assert!(into == expected);
            }
            "allreduce" => {
                let (mut out, mut into) = (gives(0, length), vec![0; length]);
                let expected = sum(0, length);
                call!(
                    inter,
                    how,
                    allreduce iallreduce allreduce_init (&mut out, &mut into, Op::SUM) == expected
                );
                assert!(into == expected);
            }
            "reduce_scatter" => {
                // One more for the first, one less for the last.
                let mut parts = vec![whole / near.len(); near.len()];
                parts[0] += 1;
                *parts.last_mut().expect("this one is there") -= 1;
                let (mut out, mut into) = (gives(0, whole), vec![0; parts[place]]);
                let expected = sum(parts[..place].iter().sum(), into.len());
                call!(
                    inter,
                    how,
                    reduce_scatter ireduce_scatter reduce_scatter_init
                        (&mut out, &mut into, &parts, Op::SUM) == expected
                );
                assert!(into == expected);
            }
            "reduce_scatter_block" => {
                let part = whole / near.len();
                let (mut out, mut into) = (gives(0, whole), vec![0; part]);
                let expected = sum(place * part, part);
                call!(
                    inter,
                    how,
                    reduce_scatter_block ireduce_scatter_block reduce_scatter_block_init
                        (&mut out, &mut into, Op::SUM) == expected
                );
                assert!(into == expected);
            }
            other => panic!("there is no collective {other:?} between two sides"),
        }
        Ok(())
    }
}
