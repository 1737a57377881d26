//! The main job: processes exchange verified messages, one of them is killed in the middle of large transfers. The rest see
//! `ProcFailed`, go on among themselves, then revoke the communicator, agree, shrink it, and finish the computation on what is
//! left.
//!
//! `ironweave run -n 4 survive [--megabytes N] [--rounds N]`: rank 0 kills the highest rank with SIGKILL after a third of the
//! rounds; the repair comes two rounds later. Each survivor prints a line `survivor …` that `ci/demo` turns into a table,
//! and lines `event …` for `iw-timeline`.

use ironweave::{Comm, Error, Op, Request, World};
use std::error::Error as StdError;
use std::time::Duration;

/// The clock that all processes of a host share, in nanoseconds.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The word at `index` of the message number `round` from `source` to `dest`: each message is different everywhere.
fn word(source: u32, dest: u32, round: u64, index: usize) -> u64 {
    let mut x = (u64::from(source) << 48) ^ (u64::from(dest) << 32) ^ (round << 40) ^ index as u64;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 27)
}

fn fill(message: &mut [u64], source: u32, dest: u32, round: u64) {
    for (index, slot) in message.iter_mut().enumerate() {
        *slot = word(source, dest, round, index);
    }
}

/// What one survivor saw.
#[derive(Default)]
struct Report {
    /// When the first operation ended with `ProcFailed`, by the shared clock.
    detected_at: Option<u64>,
    /// Operations that ended with `ProcFailed`.
    ended: u64,
    bytes_before: u64,
    bytes_after: u64,
    wrong_words: u64,
}

/// What goes to, and comes from, one partner in a round: a large and a small message each way.
struct Partner {
    rank: u32,
    large_out: Vec<u64>,
    large_in: Vec<u64>,
    small_out: [u64; 1],
    small_in: [u64; 1],
    failed: bool,
}

impl Partner {
    fn new(rank: u32, words: usize) -> Self {
        Partner {
            rank,
            large_out: vec![0; words],
            large_in: vec![0; words],
            small_out: [0],
            small_in: [0],
            failed: false,
        }
    }
}

/// A request of a round, and with whom.
enum Open<'a, 'b> {
    Receive((u32, Request<'a, 'b, &'a mut [u64]>)),
    Send((u32, Request<'a, 'b, ()>)),
}

/// One round with all partners, everything under way at once. Partners that have failed are left out afterwards.
fn exchange(
    comm: &Comm,
    round: u64,
    partners: &mut Vec<Partner>,
    report: &mut Report,
) -> Result<(), Error> {
    let me = comm.rank();
    for partner in partners.iter_mut() {
        fill(&mut partner.large_out, me, partner.rank, round);
        partner.large_in.fill(0);
        partner.small_out = [word(me, partner.rank, round, 0)];
    }
    comm.scope(|scope| {
        let mut receives = Vec::new();
        let mut sends = Vec::new();
        let mut failed = Vec::new();
        for partner in partners.iter_mut() {
            let rank = partner.rank;
            failed.push((rank, &mut partner.failed));
            receives.push((rank, scope.irecv(&mut partner.large_in[..], rank, 1)?));
            receives.push((rank, scope.irecv(&mut partner.small_in[..], rank, 2)?));
            sends.push((rank, scope.isend(&partner.large_out, rank, 1)?));
            sends.push((rank, scope.isend(&partner.small_out, rank, 2)?));
        }
        // All are looked at in turn, so that each is seen to end when it does.
        let mut open: Vec<_> = (receives.into_iter().map(Open::Receive))
            .chain(sends.into_iter().map(Open::Send))
            .collect();
        while !open.is_empty() {
            let mut index = 0;
            while index < open.len() {
                let (rank, end) = match &mut open[index] {
                    Open::Receive((rank, receive)) => (*rank, receive.test()),
                    Open::Send((rank, send)) => (*rank, send.test()),
                };
                match end {
                    Ok(None) => index += 1,
                    Ok(Some(_)) => {
                        open.swap_remove(index);
                    }
                    Err(Error::ProcFailed { rank: dead }) if dead == rank => {
                        report.detected_at.get_or_insert_with(now);
                        report.ended += 1;
                        for (_, failed) in failed.iter_mut().filter(|(other, _)| *other == rank) {
                            **failed = true;
                        }
                        {
                            open.swap_remove(index);
                        };
                    }
                    Err(error) => return Err(error),
                }
            }
            std::thread::yield_now(); // there are more processes than cores
        }
        Ok(())
    })??;
    partners.retain(|partner| !partner.failed);
    for partner in partners {
        let expected = |index| word(partner.rank, me, round, index);
        let large =
            partner.large_in.iter().enumerate().filter(|(index, got)| **got != expected(*index));
        report.wrong_words += large.count() as u64 + u64::from(partner.small_in[0] != expected(0));
        let bytes = 8 * (partner.large_in.len() as u64 + 1);
        match report.detected_at {
            None => report.bytes_before += bytes,
            Some(_) => report.bytes_after += bytes,
        }
    }
    Ok(())
}

fn argument(name: &str, default: u64) -> Result<u64, Box<dyn StdError>> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    match (arguments.next(), arguments.next()) {
        (None, _) => Ok(default),
        (Some(_), Some(value)) => Ok(value.parse()?),
        (Some(_), None) => Err(format!("{name} wants a number").into()),
    }
}

/// What the repair of the communicator took.
struct Repair {
    /// From the first `revoke` anywhere to this rank's knowing of it.
    revoke_ns: u64,
    agree_ns: u64,
    shrink_ns: u64,
    comm: Comm,
}

/// Revoke, agree, shrink. Rank 0 revokes; the others wait for a message that never comes, and are interrupted.
fn repair(comm: &Comm, story: &mut Story) -> Result<Repair, Box<dyn StdError>> {
    let me = comm.rank();
    let started = if me == 0 {
        let now = story.note("revoke");
        comm.revoke()?;
        now
    } else {
        let end = comm.recv(&mut [0u8], 0, 11);
        if end != Err(Error::Revoked) {
            return Err(format!("expected to be interrupted by a revoke, got {end:?}").into());
        }
        story.note("revoked")
    };
    let revoked = now();
    let agreed = comm.agree(!(1 << me))?;
    let after_agree = story.note("agreed");
    let whole = comm.shrink()?;
    let after_shrink = story.note("shrunk");
    // When the revoke began is known to rank 0 only; everybody has the same clock.
    let mut began = [started];
    whole.bcast(&mut began, 0)?;
    let expected = (0..comm.size() - 1).fold(!0, |flag: u64, rank| flag & !(1 << rank));
    if agreed.flag != expected {
        return Err(format!("agreed on {:x}, expected {expected:x}", agreed.flag).into());
    }
    Ok(Repair {
        revoke_ns: revoked.saturating_sub(began[0]),
        agree_ns: after_agree - revoked,
        shrink_ns: after_shrink - after_agree,
        comm: whole,
    })
}

/// What happened to this rank, and when.
struct Story {
    rank: u32,
    events: Vec<(u64, u32, &'static str)>,
}

impl Story {
    fn note(&mut self, what: &'static str) -> u64 {
        let at = now();
        self.events.push((at, self.rank, what));
        at
    }
}

fn main() -> Result<(), Box<dyn StdError>> {
    let words = (argument("--megabytes", 16)? as usize) << 17;
    let rounds = argument("--rounds", 12)?;
    let world = World::init()?;
    let comm = world.comm();
    let (me, n) = (comm.rank(), comm.size());
    if !(3..=64).contains(&n) {
        return Err("3 to 64 processes are needed: one to die, at least two to go on".into());
    }
    let victim = n - 1;
    let (kill_round, repair_round) = (rounds / 3, rounds / 3 + 2);

    // Rank 0 is the assassin: it needs to know whom, and tells the others when.
    let mut victim_pid = [0u32];
    if me == victim {
        comm.send(&[std::process::id()], 0, 9)?;
    } else if me == 0 {
        comm.recv(&mut victim_pid, victim, 9)?;
    }

    let mut report = Report::default();
    let mut story = Story { rank: me, events: Vec::new() };
    let mut assassin = None;
    let mut partners: Vec<_> =
        (0..n).filter(|&rank| rank != me).map(|rank| Partner::new(rank, words)).collect();
    let progress = |round: u64, comm: &Comm, living: usize| {
        if comm.rank() == 0 {
            println!("progress round {} of {rounds}, {living} of {n} processes live", round + 1);
        }
    };
    for round in 0..repair_round {
        if me == 0 && round == kill_round {
            // From beside, while this process is in the middle of the transfers of this round.
            let pid = i32::try_from(victim_pid[0])?;
            let pid = rustix::process::Pid::from_raw(pid).ok_or("the victim has no process id")?;
            assassin = Some(std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(2));
                let at = now();
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).map(|()| at)
            }));
        }
        exchange(&comm, round, &mut partners, &mut report)?;
        progress(round, &comm, partners.len() + 1);
    }
    let mut killed_at = match assassin {
        Some(assassin) => assassin.join().map_err(|_| "the assassin panicked")??,
        None => 0,
    };

    // Tell when the shot fell, so that everybody can say how long it took to know.
    if me == 0 {
        story.events.push((killed_at, victim, "killed"));
        for partner in &partners {
            // Synchronous: what is not received when the communicator is revoked never is.
            comm.ssend(&[killed_at], partner.rank, 10)?;
        }
    } else {
        let mut at = [0];
        comm.recv(&mut at, 0, 10)?;
        killed_at = at[0];
    }
    let detected = report.detected_at.ok_or("the failure was never seen")?;
    story.events.push((detected, me, "detected"));

    // The repair, and the rest of the computation on what is left.
    let Repair { revoke_ns, agree_ns, shrink_ns, comm: rest } = repair(&comm, &mut story)?;
    if rest.size() != n - 1 {
        return Err(format!("{} processes are left of {n}", rest.size()).into());
    }
    let mut partners: Vec<_> = (0..rest.size())
        .filter(|&rank| rank != rest.rank())
        .map(|rank| Partner::new(rank, words))
        .collect();
    for round in repair_round..rounds {
        exchange(&rest, round, &mut partners, &mut report)?;
        progress(round, &rest, partners.len() + 1);
    }
    let mut wrong = [0];
    rest.allreduce(&[report.wrong_words], &mut wrong, Op::SUM)?;
    story.note("finished");

    println!(
        "survivor rank={me} detected_us={} ended={} revoke_us={} agree_us={} shrink_us={} bytes_before={} bytes_after={} wrong_words={}",
        detected.saturating_sub(killed_at) / 1000,
        report.ended,
        revoke_ns / 1000,
        agree_ns / 1000,
        shrink_ns / 1000,
        report.bytes_before,
        report.bytes_after,
        report.wrong_words
    );
    for (at, rank, what) in story.events {
        println!("event at={at} rank={rank} what={what}");
    }
    world.finalize()?;
    if wrong[0] > 0 {
        return Err(format!("{} words arrived wrong", wrong[0]).into());
    }
    Ok(())
}
