//! What the tests of the failure detector run: `heartbeat NAME`, in a job of at least three. `mpi/tests/detector.rs` starts it under our
//! launcher, under one that tells nothing, and over several hosts.

#![allow(clippy::unwrap_used)] // a test in all but name

use ironweave::{Comm, Error, World};
use rustix::process::{Signal, getpid, kill_process};
use std::error::Error as StdError;
use std::io::Read;
use std::process::Command;
use std::time::{Duration, Instant};

type Outcome = Result<(), Box<dyn StdError>>;

/// Who fails.
const VICTIM: u32 = 1;

fn main() -> Outcome {
    let name = std::env::args().nth(1).ok_or("which scenario?")?;
    match name.as_str() {
        "stopped" => stopped(World::init()?, Duration::ZERO),
        "stopped_amid" => stopped_amid(World::init()?),
        "woken" => stopped(World::init()?, Duration::from_secs(4)),
        "computing" => computing(World::init()?),
        "starved" => starved(World::init()?),
        "hog" => hog(Duration::from_secs(2)),
        "killed" => killed(World::init()?),
        "killed_in_touch" => killed_in_touch(World::init()?),
        "exit" | "exit_3" | "exit_elsewhere" | "_exit_0" | "_exit_7" | "abort" | "panic" => {
            ends(World::init()?, &name)
        }
        "cut_off" => cut_off(World::init()?),
        "bystander" => bystander(World::init()?),
        "descriptors" => descriptors(),
        other => Err(format!("there is no scenario {other:?}").into()),
    }
}

fn survivors(comm: &Comm) -> Vec<u32> {
    (0..comm.size()).filter(|rank| *rank != VICTIM).collect()
}

/// Everybody in `ranks` exchanges with everybody else.
fn exchange(comm: &Comm, ranks: &[u32]) -> Outcome {
    let me = comm.rank();
    for &other in ranks.iter().filter(|other| **other != me) {
        let mut got = [0u32];
        comm.sendrecv(&[me], other, 9, &mut got, other, 9)?;
        assert_eq!(got, [other]);
    }
    Ok(())
}

/// A receive from the victim ends with its failure, the others go on.
fn survive(world: World, linger: Duration) -> Outcome {
    let comm = world.comm();
    let since = Instant::now();
    let error = comm.recv(&mut [0u8; 8], VICTIM, 3).unwrap_err();
    assert_eq!(error, Error::ProcFailed { rank: VICTIM });
    println!("rank {} learned after {} ms", comm.rank(), since.elapsed().as_millis());
    assert_eq!(world.failed()?, [VICTIM]);
    exchange(&comm, &survivors(&comm))?;
    std::thread::sleep(linger);
    world.finalize()?;
    Ok(())
}

/// The program's descriptors are its own: the detector's thread holds none of them open, and leaves none behind.
fn descriptors() -> Outcome {
    let count = || Ok::<_, std::io::Error>(std::fs::read_dir("/proc/self/fd")?.count());
    let (mut reader, writer) = std::io::pipe()?;
    let before = count()?;
    let world = World::init()?;
    let comm = world.comm();
    exchange(&comm, &(0..comm.size()).collect::<Vec<_>>())?;
    drop(writer);
    assert_eq!(reader.read(&mut [0])?, 0, "somebody else holds the writing end");
    if comm.rank() == VICTIM {
        return Ok(()); // not finalized: a failure, of which the others learn
    }
    assert_eq!(
        comm.recv(&mut [0u8; 8], VICTIM, 3).unwrap_err(),
        Error::ProcFailed { rank: VICTIM }
    );
    drop(comm);
    world.finalize()?;
    assert_eq!(count()?, before - 1, "descriptors are left, or some of the program's are gone");
    println!("as before");
    Ok(())
}

/// One process is stopped. If it is continued while the others are there, it is no member any more and every call says so.
fn stopped(world: World, linger: Duration) -> Outcome {
    let comm = world.comm();
    exchange(&comm, &(0..comm.size()).collect::<Vec<_>>())?;
    if comm.rank() != VICTIM {
        return survive(world, linger);
    }
    println!("stopping {}", getpid());
    kill_process(getpid(), Signal::STOP)?;
    // Only without a launcher that ends it: everybody else has excluded it meanwhile.
    assert_eq!(comm.recv(&mut [0u8; 8], 0, 3).unwrap_err(), Error::Fenced);
    assert_eq!(comm.send(&[1u8], 0, 3).unwrap_err(), Error::Fenced);
    assert_eq!(world.failed().unwrap_err(), Error::Fenced);
    assert_eq!(world.finalize().unwrap_err(), Error::Fenced);
    println!("fenced");
    Ok(())
}

/// One process is stopped in the middle of long messages with all others: what they have on the way to and from it ends in its
/// failure, and they go on with each other.
fn stopped_amid(world: World) -> Outcome {
    const LENGTH: usize = 4 << 20;
    let comm = world.comm();
    let (me, n) = (comm.rank(), comm.size());
    exchange(&comm, &(0..n).collect::<Vec<_>>())?;
    let others: Vec<u32> = if me == VICTIM { survivors(&comm) } else { vec![VICTIM] };
    if me == VICTIM {
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            kill_process(getpid(), Signal::STOP)
        });
    }
    let out = vec![me as u8 + 1; LENGTH];
    let mut inboxes = vec![vec![0u8; LENGTH]; others.len()];
    let mut rounds = 0;
    let ended = loop {
        let ended: Vec<_> = comm.scope(|scope| {
            let pairs = others.iter().zip(&mut inboxes);
            let receives: Vec<_> =
                pairs.map(|(&other, inbox)| scope.irecv(&mut inbox[..], other, 4)).collect();
            let sends: Vec<_> = others.iter().map(|&other| scope.isend(&out, other, 4)).collect();
            let receives = receives.into_iter().map(|r| r.and_then(|r| r.finish().map(drop)));
            receives
                .chain(sends.into_iter().map(|s| s.and_then(|s| s.finish().map(drop))))
                .collect()
        })?;
        if ended.iter().any(Result::is_err) {
            break ended;
        }
        for (inbox, other) in inboxes.iter().zip(&others) {
            assert!(inbox.iter().all(|&byte| byte == *other as u8 + 1), "wrong bytes of {other}");
        }
        rounds += 1;
    };
    assert_ne!(me, VICTIM, "it is ended, not continued: {ended:?}");
    let dead = Err(Error::ProcFailed { rank: VICTIM });
    assert!(ended.iter().all(|one| *one == dead || one.is_ok()), "{ended:?}");
    println!("rank {me} learned in round {rounds}");
    assert_eq!(world.failed()?, [VICTIM]);
    exchange(&comm, &survivors(&comm))?;
    Ok(world.finalize()?)
}

/// A process that computes for much longer than the timeout, and never calls, is not accused.
fn computing(world: World) -> Outcome {
    let comm = world.comm();
    if comm.rank() == VICTIM {
        let until = Instant::now() + Duration::from_millis(2_500);
        let mut x = 1u64;
        while Instant::now() < until {
            x = (0..1_000_000u64).fold(x, |x, y| x.wrapping_mul(31).wrapping_add(y));
        }
        for other in survivors(&comm) {
            comm.send(&[x], other, 3)?;
        }
    } else {
        comm.recv(&mut [0u64], VICTIM, 3)?;
    }
    assert!(world.failed()?.is_empty());
    world.finalize()?;
    Ok(())
}

/// Keeps a core.
fn hog(long: Duration) -> Outcome {
    let since = Instant::now();
    while since.elapsed() < long {
        std::hint::spin_loop();
    }
    Ok(())
}

/// A program of real-time priority has the core of a process for longer than the timeout: it is not accused. Says so where such a
/// priority, or a second core for the others, is not to be had.
fn starved(world: World) -> Outcome {
    let comm = world.comm();
    let allowed = rustix::thread::sched_getaffinity(None)?;
    let cores: Vec<String> =
        (0..1024).filter(|core| allowed.is_set(*core)).map(|core| core.to_string()).collect();
    let [theirs, .., mine] = &cores[..] else { return Err("a second core is wanted".into()) };
    let core = if comm.rank() == VICTIM { mine } else { theirs };
    let me = std::process::id().to_string();
    let moved = Command::new("taskset").args(["-a", "-c", "-p", core, &me]).output()?;
    assert!(moved.status.success(), "{moved:?}");
    comm.barrier()?;
    if comm.rank() == VICTIM {
        // It ends by itself: who should end it would wait for a core as well.
        let hog = Command::new("chrt")
            .args(["--fifo", "1", "taskset", "-c", core])
            .arg(std::env::current_exe()?)
            .arg("hog")
            .output()?;
        match hog.status.success() {
            true => println!("starved"),
            false => println!("refused: {}", String::from_utf8_lossy(&hog.stderr).trim()),
        }
        for other in survivors(&comm) {
            comm.send(&[0u64], other, 3)?;
        }
    } else {
        comm.recv(&mut [0u64], VICTIM, 3)?;
    }
    assert!(world.failed()?.is_empty());
    world.finalize()?;
    Ok(())
}

/// A process is killed while nobody calls the library: a call after a long while finds the news there, without waiting for it.
fn killed(world: World) -> Outcome {
    let comm = world.comm();
    if comm.rank() == VICTIM {
        kill_process(getpid(), Signal::KILL)?;
    }
    loop {
        // On a busy machine the detector, too, needs longer.
        let until = Instant::now() + Duration::from_millis(1_500);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        match world.failed()?[..] {
            [] => {}
            [VICTIM] => break,
            ref others => return Err(format!("accused: {others:?}").into()),
        }
    }
    exchange(&comm, &survivors(&comm))?;
    world.finalize()?;
    Ok(())
}

/// A process is killed that all were in touch with: their connections to it are the proof.
fn killed_in_touch(world: World) -> Outcome {
    let comm = world.comm();
    exchange(&comm, &(0..comm.size()).collect::<Vec<_>>())?;
    if comm.rank() == VICTIM {
        kill_process(getpid(), Signal::KILL)?;
    }
    survive(world, Duration::ZERO)
}

/// A process ends in one of the ways that are no signal's from outside, without finalize.
fn ends(world: World, how: &str) -> Outcome {
    let comm = world.comm();
    exchange(&comm, &(0..comm.size()).collect::<Vec<_>>())?;
    if comm.rank() == VICTIM {
        match how {
            // No destructor runs; of these two, what was registered with `atexit` does.
            "exit" => std::process::exit(0),
            "exit_3" => std::process::exit(3),
            // Another thread does, while this one waits in the library.
            "exit_elsewhere" => {
                std::thread::spawn(|| {
                    std::thread::sleep(Duration::from_millis(20));
                    std::process::exit(3)
                });
                let end = comm.recv(&mut [0u8], 0, 3);
                return Err(format!("received from nobody: {end:?}").into());
            }
            "_exit_0" => exit_now(0),
            "_exit_7" => exit_now(7),
            "abort" => std::process::abort(),
            // The world is dropped on the way.
            _ => panic!("this rank panics"),
        }
    }
    // Collectives end as receives do, and so does what is begun later.
    let error = comm.barrier().unwrap_err();
    assert_eq!(error, Error::ProcFailed { rank: VICTIM });
    let whole = comm.dup().map(drop).unwrap_err();
    assert_eq!(whole, Error::ProcFailed { rank: VICTIM });
    survive(world, Duration::ZERO)
}

/// Ends this process without anything that was registered for its end.
#[allow(unsafe_code)] // std has no name for it
fn exit_now(code: i32) -> ! {
    // SAFETY: it takes a number, and does not return.
    unsafe { libc::_exit(code) }
}

/// The host of the upper half of the ranks is cut off; the lower half learns and goes on. The upper half is ended.
fn cut_off(world: World) -> Outcome {
    let comm = world.comm();
    let (me, half) = (comm.rank(), comm.size() / 2);
    exchange(&comm, &(0..comm.size()).collect::<Vec<_>>())?;
    println!("ready");
    if me >= half {
        // Until its daemon ends it.
        let mut error = None;
        while let Err(new) = comm.recv(&mut [0u8], 0, 3) {
            if error.replace(new.clone()) != Some(new.clone()) {
                println!("rank {me}: {new}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        return Err("received from the other side".into());
    }
    for lost in half..comm.size() {
        let error = comm.recv(&mut [0u8], lost, 3).unwrap_err();
        assert_eq!(error, Error::ProcFailed { rank: lost });
    }
    exchange(&comm, &(0..half).collect::<Vec<_>>())?;
    let mut failed = world.failed()?;
    failed.sort_unstable();
    assert_eq!(failed, (half..comm.size()).collect::<Vec<_>>());
    world.finalize()?;
    println!("survived");
    Ok(())
}

/// Nobody fails, all leave at different times.
fn bystander(world: World) -> Outcome {
    let comm = world.comm();
    exchange(&comm, &(0..comm.size()).collect::<Vec<_>>())?;
    std::thread::sleep(Duration::from_millis(400) * comm.rank());
    assert!(world.failed()?.is_empty());
    world.finalize()?;
    Ok(())
}
