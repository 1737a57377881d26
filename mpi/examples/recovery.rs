//! What the end-to-end tests of recovery run: `ironweave run -n N recovery NAME [SEED]`. The patterns are those that seed 000
//! lists under "Testing Fault Tolerant Operation", and collectives with a process killed in them; each rank checks what it
//! sees and exits with an error when something is wrong. `mpi/tests/recovery.rs` runs them over every transport.

#![allow(clippy::unwrap_used)] // a test in all but name

use ironweave::{Comm, Deferred, Error, Op, Source, Threading, World};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::error::Error as StdError;
use std::time::{Duration, Instant};

#[path = "recovery/collective.rs"]
mod collective;
#[path = "recovery/threads.rs"]
mod threads;

type Outcome = Result<(), Box<dyn StdError>>;

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().ok_or("which scenario?")?;
    let rest: Vec<String> = arguments.collect();
    let seed = rest.last().and_then(|text| text.parse().ok()).unwrap_or(1);
    if name == "threads" {
        let world = World::init_multiple()?;
        threads::killed(&world, seed)?;
        return Ok(world.finalize()?);
    }
    let world = World::init()?;
    match name.as_str() {
        "err_handler" => err_handler(&world),
        "err_any" => err_any(&world),
        "getack" => getack(&world),
        "revoke" => revoke(&world),
        "pingpairs" => pingpairs(&world),
        "undisturbed" => undisturbed(&world),
        "err_coll" => err_coll(&world),
        "revoke_coll" => revoke_coll(&world),
        "comm_grid2d" => comm_grid2d(&world, seed),
        "insulation" => insulation(&world),
        "buddy" => buddy(&world, seed),
        "agree" => agree(&world, seed),
        "unspoken" => unspoken(&world),
        "two_sides" => two_sides(&world),
        "in_finalize" => in_finalize(&world, seed),
        "gives_up" => gives_up(&world),
        "summoned" => summoned(&world),
        "uncalled" => uncalled(&world),
        "creation" => creation(&world, seed),
        "collective" => {
            let [which, moment, ..] = &rest[..] else {
                return Err("collective NAME MOMENT [LENGTH] SEED".into());
            };
            let length = rest.get(2).filter(|_| rest.len() == 4);
            let length = length.map(|text| text.parse()).transpose()?;
            collective::killed(&world, which, moment, length, seed)
        }
        "alone" => collective::between::alone(&world, seed),
        "between" => {
            let [which, victim, moment, ..] = &rest[..] else {
                return Err("between NAME VICTIM MOMENT SEED".into());
            };
            collective::between::killed(&world, which, victim.parse()?, moment, seed)
        }
        other => Err(format!("there is no scenario {other:?}").into()),
    }?;
    Ok(world.finalize()?)
}

/// Ends this process as the operating system would: no destructor, no farewell.
fn die() -> ! {
    // The signal cannot fail: it is sent to this very process.
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    unreachable!("SIGKILL was survived")
}

/// Ends this process `delay` from now, whatever it is doing then.
fn die_in(delay: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(delay);
        die();
    });
}

/// Waits until `rank` is known to have failed.
fn await_failure<T: Threading>(comm: &Comm<T>, rank: u32) -> Result<(), Error> {
    while !comm.failed()?.contains(&rank) {
        std::thread::yield_now();
    }
    Ok(())
}

/// Those who will die wait until everybody has come here. A barrier would not do: who leaves it first and dies interrupts
/// those who are still in it. Of several the first may die, and the others' communicator be revoked for it, before the next has heard of all:
/// it died because everybody had come.
fn come_here_first<T: Threading>(comm: &Comm<T>, victims: &[u32]) -> Result<(), Error> {
    match tell_the_victims(comm, victims) {
        Err(error) if error.is_interruption() && victims.len() > 1 => Ok(()),
        outcome => outcome,
    }
}

fn tell_the_victims<T: Threading>(comm: &Comm<T>, victims: &[u32]) -> Result<(), Error> {
    let me = comm.rank();
    for &victim in victims.iter().filter(|&&victim| victim != me) {
        comm.send(&[0u8], victim, 99)?;
    }
    if victims.contains(&me) {
        for rank in (0..comm.size()).filter(|&rank| rank != me) {
            comm.recv(&mut [0u8], rank, 99)?;
        }
    }
    Ok(())
}

/// A number that depends on everything.
fn value(rank: u32, round: u64, index: usize) -> u64 {
    let mut x = u64::from(rank) << 48 ^ round << 32 ^ index as u64;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 27)
}

/// Everybody with everybody by point-to-point, a check that a communicator works.
fn everybody_talks<T: Threading>(comm: &Comm<T>, round: u64) -> Result<(), Error> {
    let (me, n) = (comm.rank(), comm.size());
    for shift in 0..n {
        let (to, from) = ((me + shift) % n, (me + n - shift) % n);
        let mut got = [0];
        comm.sendrecv(&[value(me, round, to as usize)], to, 77, &mut got, from, 77)?;
        assert_eq!(got, [value(from, round, me as usize)]);
    }
    Ok(())
}

/// A barrier without, with a new, and with an old failure; those who live still reach each other (seed 000,
/// `api/err_handler`).
fn err_handler(world: &World) -> Outcome {
    let comm = world.comm();
    let (me, n) = (comm.rank(), comm.size());
    let victim = n - 1;
    comm.barrier()?;
    come_here_first(&comm, &[victim])?;
    if me == victim {
        die();
    }
    for age in ["new", "old"] {
        let error = comm.barrier().expect_err(age);
        assert_eq!(error, Error::ProcFailed { rank: victim }, "{age} failure");
    }
    for rank in (0..victim).filter(|&rank| rank != me) {
        let mut got = [0];
        comm.sendrecv(&[value(me, 0, 0)], rank, 1, &mut got, rank, 1)?;
        assert_eq!(got, [value(rank, 0, 0)]);
    }
    Ok(())
}

/// Wildcard receives are interrupted once a failure, and work again when it is acknowledged (`api/err_any`).
fn err_any(world: &World) -> Outcome {
    let comm = world.comm();
    let (me, n) = (comm.rank(), comm.size());
    let victims = [n - 1, n - 2];
    for (round, &victim) in victims.iter().enumerate() {
        if me == victim {
            comm.recv(&mut [0u8], 0, 2)?;
            die();
        }
        if me > 0 {
            await_failure(&comm, victim)?;
            comm.send(&[value(me, round as u64, 0)], 0, 1)?;
            continue;
        }
        comm.send(&[0u8], victim, 2)?;
        let mut got = [0];
        // Messages may come before the failure is known; sooner or later a receive is interrupted.
        let mut early = 0;
        let error = loop {
            match comm.recv(&mut got, Source::Any, 1) {
                Ok(_) => early += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error, Error::ProcFailed { rank: victim });
        assert_eq!(
            comm.recv(&mut got, Source::Any, 1).unwrap_err(),
            error,
            "until it is acknowledged"
        );
        assert_eq!(comm.ack_failed()?, round + 1);
        let living = n as usize - 1 - (round + 1);
        for _ in early..living {
            let status = comm.recv(&mut got, Source::Any, 1)?;
            assert_eq!(got, [value(status.source, round as u64, 0)]);
        }
    }
    Ok(())
}

/// What is reported as failed really cannot be communicated with (`api/getack`).
fn getack(world: &World) -> Outcome {
    let comm = world.comm();
    let (me, n) = (comm.rank(), comm.size());
    if me % 2 == 1 {
        die();
    }
    for rank in (1..n).step_by(2) {
        await_failure(&comm, rank)?;
    }
    let mut failed = comm.failed()?;
    failed.sort_unstable();
    assert_eq!(failed, (1..n).step_by(2).collect::<Vec<_>>());
    for &rank in &failed {
        assert_eq!(comm.send(&[0u8; 100], rank, 1), Err(Error::ProcFailed { rank }));
        assert_eq!(comm.send(&[0u8; 1 << 20], rank, 1), Err(Error::ProcFailed { rank }));
        assert_eq!(comm.recv(&mut [0u8], rank, 1).unwrap_err(), Error::ProcFailed { rank });
    }
    assert_eq!(comm.ack_failed()?, failed.len());
    Ok(())
}

/// Rank 1 waits in a creation with one that dies and with rank 0, which never calls it: it is told so when rank 1 learns of the
/// death. That word is the first thing that rank 0 finds where it looks for an answer to its agreement, and must not be lost there.
fn summoned(world: &World) -> Outcome {
    let comm = world.comm();
    let me = comm.rank();
    let pair = comm.split((me < 2).then_some(0), 0)?;
    comm.barrier()?;
    for _ in 0..pair.iter().len() * 8 {
        pair.iter().try_for_each(|pair| pair.agree(1).map(drop))?;
    }
    come_here_first(&comm, &[2])?;
    let Some(pair) = pair else { die() };
    if me == 1 {
        let error = comm.create_group(&[0, 1, 2], 7).expect_err("one of them is dead");
        assert!(error.is_interruption(), "{error}");
    } else {
        // It computes, and does not call the library: what comes stays where it is.
        std::thread::sleep(Duration::from_millis(100));
    }
    let agreed = pair.agree(if me == 0 { 0b011 } else { 0b110 })?;
    assert_eq!((agreed.flag, agreed.new_failure), (0b010, None));
    Ok(())
}

/// All know of a death; then some create a communicator, and one that never does waits in a receive: it refuses when it is asked.
fn uncalled(world: &World) -> Outcome {
    let comm = world.comm();
    let (me, n) = (comm.rank(), comm.size());
    let (victim, elsewhere) = (n - 1, n - 2);
    come_here_first(&comm, &[victim])?;
    if me == victim {
        die();
    }
    assert_eq!(comm.recv(&mut [0_u8], victim, 1), Err(Error::ProcFailed { rank: victim }));
    if me == elsewhere {
        for rank in 0..elsewhere {
            comm.recv(&mut [0_u8], rank, 2)?;
        }
        return Ok(());
    }
    let error = comm.dup().map(drop).expect_err("one of them is dead");
    assert!(error.is_interruption(), "{error}");
    comm.send(&[1_u8], elsewhere, 2)?;
    Ok(())
}

/// Pending sends and receives of 1 Mi elements that nothing matches are interrupted by a revoke (`api/revoke`).
fn revoke(world: &World) -> Outcome {
    const ELEMENTS: usize = 1 << 20;
    let comm = world.comm().dup()?;
    let (me, n) = (comm.rank(), comm.size());
    let out = vec![1u64; ELEMENTS];
    let mut inbox = vec![0u64; ELEMENTS];
    let ends = comm.scope(|scope| {
        let sends: Vec<_> =
            (0..4).map(|tag| scope.isend(&out, (me + 1) % n, tag)).collect::<Result<_, _>>()?;
        let receive = scope.irecv(&mut inbox, (me + n - 1) % n, 100)?;
        world.comm().barrier()?;
        if me == 0 {
            comm.revoke()?;
        }
        let mut ends = vec![receive.finish().map(drop)];
        ends.extend(sends.into_iter().map(|mut send| send.wait().map(drop)));
        Ok::<_, Error>(ends)
    })??;
    assert!(ends.iter().all(|end| *end == Err(Error::Revoked)), "{ends:?}");
    assert!(comm.is_revoked()?);
    assert_eq!(comm.send(&[1u8], 0, 1), Err(Error::Revoked));
    assert_eq!(comm.recv(&mut [1u8], Source::Any, 1).unwrap_err(), Error::Revoked);
    assert_eq!(comm.barrier(), Err(Error::Revoked));
    // What is made to repair it works on it; others are not disturbed.
    assert_eq!(
        comm.agree(!0 - u64::from(me))?.flag,
        (0..n).fold(!0, |all, rank| all & (!0 - u64::from(rank)))
    );
    let whole = comm.shrink()?;
    assert_eq!((whole.rank(), whole.size()), (me, n));
    everybody_talks(&whole, 1)?;
    everybody_talks(&world.comm(), 2)?;
    Ok(())
}

/// A ring of neighbours goes on for a while in which one of them dies: errors come at once from the detector, and nothing
/// odd from the transports' own timeouts (`stress/pingpairs`).
fn pingpairs(world: &World) -> Outcome {
    let comm = world.comm();
    let (me, n) = (comm.rank(), comm.size());
    let victim = n / 2;
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let since = Instant::now();
    let mut broken = [false; 2];
    let mut round = 0u64;
    // Every edge of the ring is used by its two ends until one of them sees the other dead.
    loop {
        if me == victim && round == 20 {
            die();
        }
        // Two ends of an edge use it at the same time.
        let edges = if me % 2 == 0 { [(0, right), (1, left)] } else { [(1, left), (0, right)] };
        for (edge, peer) in edges {
            if broken[edge] {
                continue;
            }
            let out = vec![value(me, round, 0); if round.is_multiple_of(8) { 100_000 } else { 2 }];
            let mut inbox = vec![0; out.len()];
            match comm.sendrecv(&out, peer, 1, &mut inbox, peer, 1) {
                Ok(_) => assert_eq!(inbox[0], value(peer, round, 0)),
                Err(Error::ProcFailed { rank }) => {
                    assert_eq!((rank, peer), (victim, victim));
                    broken[edge] = true;
                }
                Err(other) => return Err(other.into()),
            }
        }
        round += 1;
        // All decide alike that it was the last round.
        let go_on = since.elapsed() < Duration::from_millis(1500) || round < 40;
        if comm.agree(u64::from(go_on))?.flag == 0 {
            break;
        }
    }
    assert_eq!(broken, [right == victim, left == victim]);
    Ok(())
}

/// Those who do not communicate with the dead are not disturbed (`tutorial/03.undisturbed`).
fn undisturbed(world: &World) -> Outcome {
    let comm = world.comm();
    let (me, n) = (comm.rank(), comm.size());
    let victim = n - 1;
    let pair = comm.split(Some(me / 2), me as i32)?.expect("everybody has a colour");
    if me == victim {
        die();
    }
    let partner = me ^ 1;
    for round in 0..200 {
        if partner >= n {
            break;
        }
        let mut got = [0];
        match comm.sendrecv(&[value(me, round, 0)], partner, 1, &mut got, partner, 1) {
            Ok(_) => assert_eq!(got, [value(partner, round, 0)]),
            Err(error) => {
                assert_eq!((error, partner), (Error::ProcFailed { rank: victim }, victim))
            }
        }
        match pair.barrier() {
            Ok(()) => assert_ne!(partner, victim),
            Err(Error::ProcFailed { rank: 1 }) => assert_eq!(partner, victim),
            Err(other) => return Err(other.into()),
        }
    }
    Ok(())
}

/// Every rank's collective ends when one dies in it, whatever the others see; then they repair (`tutorial/05.err_coll`).
fn err_coll(world: &World) -> Outcome {
    let comm = world.comm().dup()?;
    let (me, n) = (comm.rank(), comm.size());
    let victim = n - 1;
    let mut sum = vec![0u64; 100_000];
    let mine = vec![1u64; sum.len()];
    if me == victim {
        die_in(Duration::from_micros(300));
    }
    let error = loop {
        match comm.allreduce(&mine, &mut sum, Op::SUM) {
            Ok(()) => assert!(sum.iter().all(|&total| total == u64::from(n))),
            Err(error) => break error,
        }
    };
    assert!(error.is_interruption(), "{error}");
    comm.revoke()?;
    let rest = comm.shrink()?;
    assert_eq!(rest.size(), n - 1);
    rest.allreduce(&mine, &mut sum, Op::SUM)?;
    assert!(sum.iter().all(|&total| total == u64::from(n - 1)));
    Ok(())
}

/// Somebody never comes to a collective, and revokes: the others' calls end, and non-blocking ones that were begun before.
fn revoke_coll(world: &World) -> Outcome {
    for which in 0..6 {
        let comm = world.comm().dup()?;
        let (me, n) = (comm.rank(), comm.size());
        let late = n - 1;
        let (mut sum, mut early) = ([0u64], [0u64]);
        for _ in 0..3 {
            comm.allreduce(&[1], &mut sum, Op::SUM)?;
            assert_eq!(sum, [u64::from(n)]);
        }
        come_here_first(&comm, &[late])?;
        if me == late {
            std::thread::sleep(Duration::from_micros(150 * which));
            comm.revoke()?;
        } else {
            let mut all = vec![0u64; n as usize];
            let mine = vec![u64::from(me); n as usize];
            let ends = comm.scope(|scope| {
                let mut summing = scope.iallreduce(&[1], &mut early, Op::SUM)?;
                // Who only sends may be done with some before it hears of the revoke.
                let end = loop {
                    let end = match which {
                        0 => comm.barrier(),
                        1 => comm.allreduce(&[1], &mut sum, Op::SUM),
                        2 => comm.alltoall(&mine, &mut all),
                        3 => comm.allgather(&mine[..1], &mut all),
                        4 => comm.bcast(&mut all, late),
                        _ => comm.reduce(&[1], &mut sum, Op::SUM, 0),
                    };
                    if end.is_err() {
                        break end;
                    }
                };
                Ok::<_, Error>([end, summing.wait()])
            })?;
            // The revoke may have come before anything was begun.
            let revoked = Err(Error::Revoked);
            assert!(
                ends == Ok([revoked.clone(), revoked]) || ends == Err(Error::Revoked),
                "{ends:?}"
            );
        }
        let whole = comm.shrink()?;
        whole.allreduce(&[1], &mut sum, Op::SUM)?;
        assert_eq!((whole.size(), sum), (n, [u64::from(n)]));
    }
    Ok(())
}

/// Two splits, into rows and columns, with a death somewhere in them; all agree whether both succeeded
/// (`tutorial/07.err_comm_grid2d`).
fn comm_grid2d(world: &World, seed: u64) -> Outcome {
    let mut rng = SmallRng::seed_from_u64(seed);
    let victim = rng.random_range(0..world.size());
    let delay = Duration::from_micros(rng.random_range(0..1500));
    let mut comm = world.comm().dup()?;
    come_here_first(&comm, &[victim])?;
    if comm.rank() == victim {
        die_in(delay);
    }
    for round in 0u64.. {
        let (me, n) = (comm.rank(), comm.size());
        let width = (f64::from(n).sqrt()) as u32;
        let grid = comm.split(Some(me / width), me as i32).and_then(|row| {
            let column = comm.split(Some(me % width), me as i32)?;
            Ok((row.expect("a colour"), column.expect("a colour")))
        });
        let agreed = comm.agree(u64::from(grid.is_ok()))?;
        match grid {
            Ok((row, column)) if agreed.flag == 1 => {
                assert!(row.size() <= width);
                let lines = [&row, &column];
                let used = lines.into_iter().try_for_each(|line| {
                    let mut members = [0u32];
                    line.allreduce(&[1u32], &mut members, Op::SUM)?;
                    assert_eq!(members[0], line.size());
                    Ok::<(), Error>(())
                });
                if used.is_err() {
                    // Whoever is in the other line waits for this rank, which will not come.
                    lines.into_iter().try_for_each(Comm::revoke)?;
                }
                if comm.agree(u64::from(used.is_ok()))?.flag == 1 {
                    if comm.size() < world.size() {
                        return Ok(()); // a whole round after the failure
                    }
                    continue;
                }
            }
            Ok(_) => {}
            Err(error) => assert!(error.is_interruption(), "round {round}: {error}"),
        }
        comm.revoke()?;
        comm = comm.shrink()?;
    }
    unreachable!("the loop ends by return")
}

/// A failure in one half of the world is none of the other half's business (`tutorial/09.insulation`).
fn insulation(world: &World) -> Outcome {
    let comm = world.comm();
    let (me, n) = (comm.rank(), comm.size());
    let half = comm.split(Some(me % 2), me as i32)?.expect("everybody has a colour");
    let victim = 1;
    if me == victim {
        die();
    }
    for round in 0..200u64 {
        let mut sum = [0u64];
        match half.allreduce(&[round], &mut sum, Op::SUM) {
            Ok(()) => assert_eq!(sum, [round * u64::from(half.size())]),
            Err(error) => {
                assert!(error.is_interruption() && me % 2 == 1, "rank {me}: {error}");
                break;
            }
        }
        assert!(me % 2 == 0, "rank {me}: a collective with a dead member succeeded");
    }
    assert!(n >= 4);
    if me % 2 == 1 {
        let rest = half.shrink()?;
        assert_eq!(rest.size(), half.size() - 1);
        rest.barrier()?;
    }
    Ok(())
}

/// A part of the problem: its number, and its state.
type Part = (u32, u64);

/// What a rank can go back to: the step, its own parts then, and those of its left neighbour.
#[derive(Clone)]
struct Checkpoint {
    step: u64,
    own: Vec<Part>,
    left: Vec<Part>,
}

impl Checkpoint {
    /// Gives the parts to the right neighbour and takes the left one's. Counts once everybody has its copy.
    fn take(comm: &Comm, step: u64, own: &[Part], room: usize) -> Result<Checkpoint, Error> {
        let (me, n) = (comm.rank(), comm.size());
        let mut out = vec![0; 1 + 2 * room];
        out[0] = own.len() as u64;
        for (pair, &(part, x)) in out[1..].chunks_mut(2).zip(own) {
            pair.copy_from_slice(&[u64::from(part), x]);
        }
        let mut inbox = vec![0; out.len()];
        comm.sendrecv(&out, (me + 1) % n, 1, &mut inbox, (me + n - 1) % n, 1)?;
        comm.barrier()?;
        let left = inbox[1..].chunks(2).map(|pair| (pair[0] as u32, pair[1]));
        Ok(Checkpoint { step, own: own.to_vec(), left: left.take(inbox[0] as usize).collect() })
    }
}

/// An iteration whose state is kept at a buddy; when a rank dies, those who are left shrink, go back to the last common
/// checkpoint, take over the lost part and finish with the same result as if nothing had happened (`tutorial`, buddy
/// checkpoint without respawn).
fn buddy(world: &World, seed: u64) -> Outcome {
    const STEPS: u64 = 60;
    const EVERY: u64 = 5;
    let mut rng = SmallRng::seed_from_u64(seed);
    let parts0 = world.size();
    let victim = rng.random_range(0..parts0);
    let death = rng.random_range(EVERY..STEPS);
    let start = |part: u32| (part, value(part, 0, 0));
    let sum = |parts: &[Part]| parts.iter().fold(0u64, |sum, &(_, x)| sum.wrapping_add(x));
    let advance = |parts: &mut [Part], step: u64, total: u64| {
        for (_, x) in parts {
            *x = x.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ step ^ total;
        }
    };
    let mut comm = world.comm().dup()?;
    let mut parts = vec![start(comm.rank())];
    let mut step = 0;
    // The last two: a failure may come when some have the newer one already.
    let mut saved: Vec<Checkpoint> = Vec::new();
    loop {
        let ended = (|| -> Result<(), Error> {
            while step < STEPS {
                if step % EVERY == 0 {
                    let next = Checkpoint::take(&comm, step, &parts, parts0 as usize)?;
                    saved.push(next);
                    if saved.len() > 2 {
                        saved.remove(0);
                    }
                }
                if world.rank() == victim && step == death {
                    die();
                }
                let mut total = [0];
                comm.allreduce(&[sum(&parts)], &mut total, Op::SUM)?;
                advance(&mut parts, step, total[0]);
                step += 1;
            }
            Ok(())
        })();
        if let Err(error) = &ended {
            assert!(error.is_interruption(), "{error}");
        }
        // Some may have finished while others were interrupted.
        if comm.agree(u64::from(ended.is_ok()))?.flag == 1 {
            break;
        }
        let before = comm.clone();
        comm.revoke()?;
        comm = comm.shrink()?;
        let mut common = [0];
        comm.allreduce(&[saved.last().unwrap().step], &mut common, Op::MIN)?;
        saved.retain(|checkpoint| checkpoint.step <= common[0]);
        let back = saved.last().expect("nobody is more than one checkpoint ahead").clone();
        assert_eq!(back.step, common[0]);
        (step, parts) = (back.step, back.own);
        let left = (before.rank() + before.size() - 1) % before.size();
        if before.failed()?.contains(&left) {
            parts.extend(back.left);
        }
    }
    // The result without failures, worked out alone.
    let mut all: Vec<Part> = (0..parts0).map(start).collect();
    for step in 0..STEPS {
        let total = sum(&all);
        advance(&mut all, step, total);
    }
    for &(part, x) in &parts {
        assert_eq!(x, all[part as usize].1, "part {part}");
    }
    let mut held = [0u64];
    comm.allreduce(&[parts.len() as u64], &mut held, Op::SUM)?;
    assert_eq!(held, [u64::from(parts0)], "no part was lost");
    Ok(())
}

/// The outcome of an operation that is asked for again and again.
fn polled<R>(mut operation: Deferred<R>) -> Result<R, Error> {
    loop {
        match operation.test()? {
            Ok(outcome) => return Ok(outcome),
            Err(again) => operation = again,
        }
    }
}

/// Agreements, waited for and polled, while processes die at random: each value is the same wherever it is returned.
fn agree(world: &World, seed: u64) -> Outcome {
    let mut rng = SmallRng::seed_from_u64(seed);
    let comm = world.comm().dup()?;
    let (me, n) = (comm.rank(), comm.size());
    let dead = rng.random_range(1..=n / 2);
    let mut victims: Vec<u32> = (0..n).collect();
    for index in 0..dead as usize {
        let other = rng.random_range(index..n as usize);
        victims.swap(index, other);
    }
    victims.truncate(dead as usize);
    let delays: Vec<u64> = victims.iter().map(|_| rng.random_range(0..4000)).collect();
    come_here_first(&comm, &victims)?;
    if let Some(place) = victims.iter().position(|&victim| victim == me) {
        die_in(Duration::from_micros(delays[place]));
    }
    let mut history = Vec::new();
    let mut round = 0u64;
    // Until all victims are dead and known to all: that is agreed on, too.
    loop {
        let known = comm.failed()?.len() as u32;
        let flag = value(me, round, 0) | 1 << 63 | u64::from(known == dead) << 62;
        let mine = flag & !(u64::from(known != dead) << 62);
        let answer = if round.is_multiple_of(2) {
            comm.agree(mine)?
        } else {
            // Two under way, the later one looked at first.
            let early = comm.iagree(value(me, round, 1))?;
            let late = polled(comm.iagree(mine)?)?;
            history.push(early.wait()?.flag);
            late
        };
        history.push(answer.flag);
        round += 1;
        if answer.flag >> 62 & 1 == 1 {
            break;
        }
    }
    let rest = if seed.is_multiple_of(2) { comm.shrink()? } else { polled(comm.ishrink()?)? };
    assert_eq!(rest.size(), n - dead);
    let mine = history.iter().fold(round, |hash, &flag| hash.rotate_left(5) ^ flag);
    let (mut low, mut high) = ([0], [0]);
    rest.allreduce(&[mine], &mut low, Op::MIN)?;
    rest.allreduce(&[mine], &mut high, Op::MAX)?;
    assert_eq!(low, high, "agreements differed");
    Ok(())
}

/// A failure that nobody ever communicates with: finalize ends at once all the same.
fn unspoken(world: &World) -> Outcome {
    if world.rank() == world.size() - 1 {
        die();
    }
    Ok(())
}

/// Somebody dies while the others are leaving, or as it leaves itself: nobody waits for it.
fn in_finalize(world: &World, seed: u64) -> Outcome {
    let mut rng = SmallRng::seed_from_u64(seed);
    let (me, n) = (world.rank(), world.size());
    let victims = [rng.random_range(0..n), rng.random_range(0..n)];
    let delays = [rng.random_range(0..3000), rng.random_range(0..3000)];
    let late = rng.random_bool(0.5);
    for (victim, delay) in victims.into_iter().zip(delays) {
        if me == victim {
            die_in(Duration::from_micros(delay));
            if late {
                std::thread::sleep(Duration::from_secs(60)); // never comes to finalize
            }
        }
    }
    Ok(())
}

/// A rank ends early with an error, dropping its world: for the others it has failed, and they go on.
fn gives_up(world: &World) -> Outcome {
    let comm = world.comm();
    let quitter = world.size() - 1;
    if world.rank() == quitter {
        return Err("this rank gives up".into());
    }
    let end = comm.recv(&mut [0u8], quitter, 1).expect_err("nobody sends");
    // Another may have learned of the failure, and revoked, before this one hears of either.
    assert!(matches!(end, Error::ProcFailed { rank } if rank == quitter) || end == Error::Revoked);
    comm.revoke()?;
    everybody_talks(&comm.shrink()?, 1)?;
    Ok(())
}

/// Two sides joined by an inter-communicator; one of the other side dies. What Open MPI cannot do: shrink it, and merge what
/// is left.
fn two_sides(world: &World) -> Outcome {
    let comm = world.comm();
    let (me, n) = (comm.rank(), comm.size());
    let side = me % 2;
    let half = comm.split(Some(side), me as i32)?.expect("everybody has a colour");
    let bridge = (half.rank() == 0).then_some((&comm, 1 - side));
    let inter = half.intercomm(0, bridge, 5)?;
    assert!(inter.is_inter()? && inter.size() == if side == 0 { n / 2 } else { n.div_ceil(2) });
    let victim = n - 1;
    come_here_first(&comm, &[victim])?;
    if me == victim {
        die();
    }
    let error = inter.barrier().expect_err("one side lacks a member");
    assert!(error.is_interruption(), "{error}");
    inter.revoke()?;
    let rest = inter.shrink()?;
    let all = rest.merge(side == 1)?;
    assert_eq!((rest.is_inter()?, all.size()), (true, n - 1));
    let mut sum = [0u32];
    all.allreduce(&[1 << me], &mut sum, Op::SUM)?;
    assert_eq!(sum, [(1 << victim) - 1]);
    everybody_talks(&all, 6)?;
    Ok(())
}

/// Communicators are made in a row while somebody dies, and somebody else revokes: all members get each, or all get an
/// error; the next one on the rest works.
fn creation(world: &World, seed: u64) -> Outcome {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut comm = world.comm().dup()?;
    let (me, n) = (comm.rank(), comm.size());
    let victim = rng.random_range(0..n);
    let revoker = (victim + 1) % n;
    let by_revoke = rng.random_bool(0.5);
    let delay = Duration::from_micros(rng.random_range(0..2500));
    come_here_first(&comm, &[victim])?;
    if me == victim && !by_revoke {
        die_in(delay);
    }
    let since = Instant::now();
    let mut made = Vec::new();
    let error = loop {
        if by_revoke && me == revoker && since.elapsed() > delay {
            comm.revoke()?;
        }
        match comm.dup() {
            Ok(next) => made.push(next),
            Err(error) => break error,
        }
        if made.len() >= 8 {
            made.clear();
        }
    };
    assert!(error.is_interruption(), "{error}");
    comm.revoke()?;
    comm = comm.shrink()?;
    assert_eq!(comm.size(), if by_revoke { n } else { n - 1 });
    let (mut low, mut high) = ([0u64], [0u64]);
    comm.allreduce(&[made.len() as u64], &mut low, Op::MIN)?;
    comm.allreduce(&[made.len() as u64], &mut high, Op::MAX)?;
    assert_eq!(low, high, "some got a communicator that others did not");
    let again = comm.dup()?;
    everybody_talks(&again, 5)?;
    Ok(())
}
