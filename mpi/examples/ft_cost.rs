//! What agreeing and revoking cost beside plain collectives, in one run, blocks of both in turn: `ironweave run -n 8 ft_cost`.
//!
//! `agree`: an agreement, nobody has failed, against an allreduce of 4 bytes. `revoke`: from the call at rank 0 until the last
//! member's blocked receive has ended with `Revoked`, against a broadcast of 8 bytes, from rank 0's call until the last has
//! it; one clock for all, so all processes are on one host. A revocation is the first and last thing on its communicator, so the
//! broadcast is the first on a new one as well; beside it, without a goal, one on a communicator that has just carried others.
//! Medians of blocks (agree) and of single ones (revoke), all in turn.
//! `ft_cost agree 1000`, `ft_cost revoke 10000`: only one of them, so many blocks or notices, for a profile.

use ironweave::{Comm, Error as MpiError, Op, World};
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;

type Outcome<R> = Result<R, Box<dyn Error>>;

const ROUNDS: usize = 41;
/// Operations of a block.
const BLOCK: u32 = 100;
/// Revocations and broadcasts, one of each in turn.
const NOTICES: usize = 300;

/// Nanoseconds on the host's one clock.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds of one operation, the mean of a block, at the slowest member.
fn block(comm: &Comm, mut operation: impl FnMut() -> Result<(), MpiError>) -> Outcome<u64> {
    comm.barrier()?;
    let start = now();
    for _ in 0..BLOCK {
        operation()?;
    }
    last(comm, (now() - start) / u64::from(BLOCK))
}

/// The greatest of all members' values.
fn last(comm: &Comm, mine: u64) -> Outcome<u64> {
    let mut all = [mine];
    comm.allreduce_in_place(&mut all, Op::MAX)?;
    Ok(all[0])
}

fn median(values: &[u64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable();
    values[values.len() / 2] as f64 / 1e3
}

fn row(comm: &Comm, name: &str, ours: &[u64], other: &str, theirs: &[u64], goal: Option<f64>) {
    let ratios = ours.iter().zip(theirs).map(|(a, b)| *a as f64 / *b as f64);
    let mut ratios: Vec<f64> = ratios.collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let paired = ratios[ratios.len() / 2];
    let (ours, theirs) = (median(ours), median(theirs));
    let ratio = ours / theirs;
    if comm.rank() == 0 {
        let verdict = goal.map_or(String::new(), |goal| {
            let verdict = if ratio <= goal { "ok" } else { "miss" };
            format!(" goal=<={goal} verdict={verdict}")
        });
        println!(
            "row={name}_n{} ours={ours:.2}us {other}={theirs:.2}us ratio={ratio:.2} paired={paired:.2}{verdict}",
            comm.size()
        );
    }
}

fn agree(comm: &Comm, rounds: usize) -> Outcome<()> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(block(comm, || comm.agree(!0).map(|_| ()))?);
        theirs.push(block(comm, || comm.allreduce_in_place(&mut [1_u32], Op::SUM))?);
    }
    row(comm, "agree", &ours, "allreduce", &theirs, Some(2.0));
    Ok(())
}

/// Until the last member knows that rank 0 has revoked a communicator.
fn revoke(comm: &Comm) -> Outcome<u64> {
    let doomed = comm.dup()?;
    comm.barrier()?;
    let start = now();
    if comm.rank() == 0 {
        doomed.revoke()?;
    } else {
        match doomed.recv(&mut [0_u8], 0, 1) {
            Err(MpiError::Revoked) => {}
            other => return Err(format!("a receive that nobody sends to: {other:?}").into()),
        }
    }
    reach(comm, start)
}

/// Until the last member has what rank 0 broadcasts over `used`.
fn bcast(comm: &Comm, used: &Comm) -> Outcome<u64> {
    comm.barrier()?;
    let start = now();
    used.bcast(&mut [start], 0)?;
    reach(comm, start)
}

/// From rank 0's start until the last member is here.
fn reach(comm: &Comm, start: u64) -> Outcome<u64> {
    let end = now();
    let mut first = [start];
    comm.bcast(&mut first, 0)?;
    last(comm, end.saturating_sub(first[0]))
}

fn main() -> Outcome<()> {
    let world = World::init()?;
    let comm = world.comm();
    for _ in 0..3 {
        block(&comm, || comm.agree(!0).map(|_| ()))?;
        block(&comm, || comm.allreduce_in_place(&mut [1_u32], Op::SUM))?;
        revoke(&comm)?;
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |name| words.first().is_none_or(|word| word == name);
    let count = |usual| words.get(1).map_or(Ok(usual), |word| word.parse());
    if wanted("agree") {
        agree(&comm, count(ROUNDS)?)?;
    }
    if wanted("revoke") {
        let (mut ours, mut theirs, mut warm) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..count(NOTICES)? {
            ours.push(revoke(&comm)?);
            theirs.push(bcast(&comm, &comm.dup()?)?);
            warm.push(bcast(&comm, &comm)?);
        }
        row(&comm, "revoke", &ours, "bcast", &theirs, Some(1.5));
        row(&comm, "revoke", &ours, "bcast_again", &warm, None);
    }
    Ok(world.finalize()?)
}
