//! Many threads of each process wait, each on a communicator of its own, while a process is killed: every thread comes back with what its
//! call has to say, revokes, and goes on over what is left of its communicator, whatever the other threads are doing meanwhile.

use super::{Outcome, await_failure, come_here_first, die_in, everybody_talks, value};
use ironweave::{Comm, Error, Multiple, Op, Source, World};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::time::Duration;

/// What a thread is in when somebody dies.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Call {
    /// Two receives from the one that dies, in two threads on one communicator.
    Receive,
    /// A receive from anybody.
    Wildcard,
    /// A long send to the one that dies, which never receives it.
    Send,
    /// A receive from a living one: no death ends it, only a revocation, by another thread.
    FromTheLiving,
    /// Messages with the living: nothing ends them.
    Undisturbed,
    Barrier,
    Allreduce,
    Alltoall,
    Persistent,
    Agreement,
}

const CALLS: [Call; 10] = [
    Call::Receive,
    Call::Wildcard,
    Call::Send,
    Call::FromTheLiving,
    Call::Undisturbed,
    Call::Barrier,
    Call::Allreduce,
    Call::Alltoall,
    Call::Persistent,
    Call::Agreement,
];

/// Elements of a collective.
const LENGTH: usize = 3_000;

/// Ten threads of each process, each in another call, while somebody dies.
pub fn killed(world: &World<Multiple>, seed: u64) -> Outcome {
    let mut rng = SmallRng::seed_from_u64(seed);
    let (me, n) = (world.rank(), world.size());
    let victim = rng.random_range(0..n);
    let delay = Duration::from_micros(rng.random_range(0..20_000));
    let comms = CALLS.map(|_| world.comm().dup());
    let comms: Vec<Comm<Multiple>> = comms.into_iter().collect::<Result<_, _>>()?;
    come_here_first(&world.comm(), &[victim])?;
    if me == victim {
        die_in(delay);
    }
    let ended: Vec<_> = std::thread::scope(|threads| {
        let running: Vec<_> = CALLS
            .into_iter()
            .zip(&comms)
            .map(|(call, comm)| {
                let comms = &comms;
                threads.spawn(move || -> Result<(), Error> {
                    let end = until_the_death(call, comm, comms, victim)?;
                    repair(call, comm, victim, end)
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join()).collect()
    });
    for (call, end) in CALLS.into_iter().zip(ended) {
        end.map_err(|_| format!("{call:?}: its thread panicked"))?
            .map_err(|error| format!("{call:?}: {error}"))?;
    }
    assert_eq!(world.failed()?, [victim]);
    Ok(())
}

/// The comm of `call` among those of all.
fn of(call: Call, comms: &[Comm<Multiple>]) -> &Comm<Multiple> {
    let place = CALLS.iter().position(|other| *other == call);
    &comms[place.expect("all are there")]
}

/// Calls again and again, until the call ends otherwise than usual: with that.
fn until_the_death(
    call: Call,
    comm: &Comm<Multiple>,
    comms: &[Comm<Multiple>],
    victim: u32,
) -> Result<Option<Error>, Error> {
    let (me, n) = (comm.rank(), comm.size());
    let living: Vec<u32> = (0..n).filter(|rank| *rank != victim).collect();
    let mut round = 0;
    let end = loop {
        let end = match call {
            Call::Receive if me != victim => {
                let receive = |tag| comm.recv(&mut [0u8], victim, tag).map(drop);
                let (first, second) = std::thread::scope(|threads| {
                    let other = threads.spawn(|| receive(2));
                    (receive(1), other.join().expect("it does not panic"))
                });
                assert!(first.is_err() && second.is_err(), "{first:?}, {second:?}");
                first.and(second)
            }
            Call::Send if me != victim => comm.send(&vec![1u8; 1 << 20], victim, 1),
            Call::FromTheLiving if me != victim => {
                let place = living.iter().position(|rank| *rank == me).expect("a survivor");
                let from = living[(place + 1) % living.len()];
                comm.recv(&mut [0u8], from, 1).map(drop)
            }
            Call::Undisturbed if me != victim => {
                let place = living.iter().position(|rank| *rank == me).expect("a survivor");
                let (to, from) = (
                    living[(place + 1) % living.len()],
                    living[(place + living.len() - 1) % living.len()],
                );
                let mut got = [0];
                comm.sendrecv(&[value(me, round, 0)], to, 1, &mut got, from, 1)?;
                assert_eq!(got, [value(from, round, 0)]);
                // Long enough for the death to be in the middle of it, mostly; all stop after the same.
                if round == 2_000 {
                    await_failure(comm, victim)?;
                    return Ok(None);
                }
                Ok(())
            }
            // Who dies waits for what nobody sends.
            Call::Receive | Call::Send | Call::FromTheLiving | Call::Undisturbed => {
                comm.recv(&mut [0u8], (me + 1) % n, 3).map(drop)
            }
            Call::Wildcard => comm.recv(&mut [0u8], Source::Any, 1).map(drop),
            Call::Barrier => comm.barrier(),
            Call::Allreduce | Call::Alltoall | Call::Persistent => collective(call, comm, round),
            Call::Agreement => {
                let agreed = comm.agree(!(1 << me))?;
                assert_eq!(agreed.flag & (1 << me), 0);
                agreed.new_failure.map_or(Ok(()), |rank| Err(Error::ProcFailed { rank }))
            }
        };
        round += 1;
        if let Err(end) = end {
            break end;
        }
    };
    let dead = Error::ProcFailed { rank: victim };
    match call {
        Call::FromTheLiving => assert_eq!(end, Error::Revoked, "{call:?}"),
        // These agree before they revoke; of the others somebody may have heard of the death first.
        Call::Receive | Call::Send | Call::Agreement => assert_eq!(end, dead, "{call:?}"),
        _ => assert!(end == dead || end == Error::Revoked, "{call:?}: {end}"),
    }
    if call == Call::Receive {
        of(Call::FromTheLiving, comms).revoke()?;
    }
    Ok(Some(end))
}

/// One that is not just a barrier, and what it is to bring.
fn collective(call: Call, comm: &Comm<Multiple>, round: u64) -> Result<(), Error> {
    let (me, n) = (comm.rank(), comm.size());
    let number = |rank: u32, index: usize| value(rank, round, index);
    let sum = |index| (0..n).fold(0u64, |sum, rank| sum.wrapping_add(number(rank, index)));
    let mut mine: Vec<u64> = (0..LENGTH).map(|index| number(me, index)).collect();
    let mut into = vec![0; LENGTH];
    match call {
        Call::Alltoall => {
            let out: Vec<u64> = (0..LENGTH * n as usize).map(|index| number(me, index)).collect();
            let mut into = vec![0; out.len()];
            comm.scope(|scope| scope.ialltoall(&out, &mut into)?.finish().map(drop))??;
            let part = |rank| (0..LENGTH).map(move |index| (rank, me as usize * LENGTH + index));
            let expected = (0..n).flat_map(part).map(|(rank, index)| number(rank, index));
            assert!(into.into_iter().eq(expected), "{call:?}");
            return Ok(());
        }
        Call::Persistent => comm.scope(|scope| {
            let mut operation = scope.allreduce_init(&mut mine, &mut into, Op::SUM)?;
            for _ in 0..3 {
                operation.start()?;
                operation.wait()?;
            }
            operation.free().map(drop)
        })??,
        _ => comm.allreduce(&mine, &mut into, Op::SUM)?,
    }
    assert!(into.into_iter().eq((0..LENGTH).map(sum)), "{call:?}");
    Ok(())
}

/// Goes on over what is left of the communicator.
fn repair(call: Call, comm: &Comm<Multiple>, victim: u32, end: Option<Error>) -> Result<(), Error> {
    if matches!(call, Call::Receive | Call::Send | Call::Agreement) {
        comm.agree(1)?;
    }
    if end.is_some() {
        comm.revoke()?;
    }
    let rest = comm.shrink()?;
    assert_eq!(rest.size(), comm.size() - 1, "{call:?}");
    assert_eq!(rest.rank(), comm.rank() - u32::from(comm.rank() > victim), "{call:?}");
    for round in 0..5 {
        for kind in [Call::Allreduce, Call::Alltoall, Call::Persistent] {
            collective(kind, &rest, round)?;
        }
        everybody_talks(&rest, round)?;
    }
    let agreed = rest.agree(!(1 << rest.rank()))?;
    assert_eq!((agreed.flag, agreed.new_failure), (!0 << rest.size(), None), "{call:?}");
    Ok(())
}
