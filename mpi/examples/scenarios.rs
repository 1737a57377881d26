//! What the end-to-end tests run: `ironweave run -n N scenarios NAME [SEED]`. Each scenario checks what it sees in every
//! rank and exits with an error when something is wrong; `mpi/tests/jobs.rs` runs them over every transport.

#![allow(clippy::unwrap_used)] // a test in all but name

use ironweave::{Comm, Error, Multiple, Source, Tag, World};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::error::Error as StdError;
use std::time::Duration;

#[path = "scenarios/persistent.rs"]
mod persistent;
#[path = "scenarios/topology.rs"]
mod topology;

type Outcome = Result<(), Box<dyn StdError>>;

/// Sizes on both sides of every protocol's limits.
const SIZES: [usize; 19] = [
    0, 1, 7, 8, 9, 63, 64, 65, 255, 1024, 4095, 4096, 8193, 32_768, 65_535, 65_537, 262_144,
    1_000_003, 4_194_304,
];

/// Byte `index` of message `number` from `source`.
fn byte(source: u32, number: usize, index: usize) -> u8 {
    let mut x = u64::from(source) << 40 ^ (number as u64) << 24 ^ index as u64;
    x = (x ^ (x >> 15)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x >> 56) as u8
}

fn message(source: u32, number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|index| byte(source, number, index)).collect()
}

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().ok_or("which scenario?")?;
    let seed = arguments.next().map_or(Ok(1), |text| text.parse())?;
    if name == "threads" {
        let world = World::init_multiple()?;
        threads(&world)?;
        return Ok(world.finalize()?);
    }
    let world = World::init()?;
    if name == "lives_on" {
        return lives_on(world);
    }
    match name.as_str() {
        "sizes" => sizes(&world.comm()),
        "calls" => calls(&world.comm()),
        "order" => order(&world.comm(), seed),
        "mistakes" => mistakes(&world.comm()),
        "wildcards" => wildcards(&world),
        "random_kill" => random_kill(&world, seed),
        "quiet_exit" => quiet_exit(&world),
        "dead_buffer" => dead_buffer(&world, Duration::from_millis(seed)),
        "persistent" => persistent::all(&world.comm()),
        "topology" => topology::all(&world.comm()),
        other => Err(format!("there is no scenario {other:?}").into()),
    }?;
    Ok(world.finalize()?)
}

/// Each size, both ways at once with every other rank, by every mode that has a call.
fn sizes(comm: &Comm) -> Outcome {
    let (me, n) = (comm.rank(), comm.size());
    for (number, len) in SIZES.into_iter().enumerate() {
        for shift in 1..n {
            let (to, from) = ((me + shift) % n, (me + n - shift) % n);
            let out = message(me, number, len);
            let mut inbox = vec![0xee; len + 8];
            let status = comm.sendrecv(&out, to, 5, &mut inbox, from, 5)?;
            assert_eq!((status.bytes, status.source, status.tag), (len, from, 5));
            assert!(inbox[..len] == message(from, number, len)[..], "{len} bytes from {from}");
            assert_eq!(inbox[len..], [0xee; 8], "bytes beyond the message are as they were");
        }
        // The other modes, between pairs.
        let partner = me ^ 1;
        if partner >= n {
            continue;
        }
        let out = message(me, number + 100, len);
        let mut inbox = vec![0; len];
        comm.scope(|scope| {
            let receive = scope.irecv(&mut inbox, partner, 6)?;
            comm.bsend(&[1u8], partner, 7)?; // my receive is posted
            comm.recv(&mut [0u8], partner, 7)?;
            comm.rsend(&out, partner, 6)?;
            receive.finish().map(drop)
        })??;
        assert!(inbox == message(partner, number + 100, len), "ready, {len} bytes");
        if me < partner {
            comm.ssend(&out, partner, 8)?;
            comm.recv(&mut inbox, partner, 8)?;
        } else {
            comm.recv(&mut inbox, partner, 8)?;
            comm.ssend(&out, partner, 8)?;
        }
        assert!(inbox == message(partner, number + 100, len), "synchronous, {len} bytes");
        comm.bsend(&out, partner, 9)?;
        inbox.fill(0);
        comm.recv(&mut inbox, partner, 9)?;
        assert!(inbox == message(partner, number + 100, len), "buffered, {len} bytes");
    }
    Ok(())
}

/// Probe, matched probe, truncation, cancel, persistent, wait-any, self-sends.
fn calls(comm: &Comm) -> Outcome {
    let (me, n) = (comm.rank(), comm.size());
    let partner = me ^ 1;
    if partner >= n {
        return Ok(());
    }
    for len in [4usize, 100_000] {
        let out = message(me, 1, len);
        comm.scope(|scope| {
            let _sent = scope.isend(&out, partner, 1)?;
            let _again = scope.isend(&out, partner, 2)?;
            let _last = scope.isend(&out, partner, 3)?;
            let probed = comm.probe(Source::Any, 2)?;
            assert_eq!((probed.source, probed.tag, probed.bytes), (partner, 2, len));
            assert_eq!(comm.iprobe(partner, 2)?.map(|status| status.bytes), Some(len));
            // The probed message is still there; a message taken by mprobe is nobody else's.
            let taken = comm.mprobe(partner, Tag::Any)?;
            assert_eq!(taken.status().tag, 1, "the first that was sent");
            let mut inbox = vec![0; len];
            taken.recv(&mut inbox)?;
            assert_eq!(inbox, message(partner, 1, len));
            // Too small: the beginning arrives, nothing is written beyond, the error names both lengths.
            let mut small = [0xee; 8];
            let error = comm.recv(&mut small[..3], partner, 2).unwrap_err();
            assert_eq!(error, Error::Truncated { sent: len as u64, capacity: 3 });
            assert_eq!(small[3..], [0xee; 5]);
            assert_eq!(small[..3], message(partner, 1, 3));
            comm.recv(&mut inbox, partner, Tag::Any).map(drop)
        })??;
    }
    // Cancel: one that nothing matches, and one that has matched.
    let (mut never, mut matched) = ([0u8; 4], [0u8; 4]);
    comm.scope(|scope| {
        let mut receive = scope.irecv(&mut never, partner, 99)?;
        receive.cancel()?;
        assert!(receive.wait()?.is_cancelled());
        let mut receive = scope.irecv(&mut matched, me, 98)?;
        comm.send(&[1u8, 2, 3, 4], me, 98)?;
        while receive.test()?.is_none() {}
        receive.cancel()?;
        assert!(!receive.wait()?.is_cancelled());
        Ok::<(), Error>(())
    })??;
    assert_eq!(matched, [1, 2, 3, 4]);
    // Wait-any over receives that end in another order than they were posted.
    let mut inboxes = [[0u32; 1]; 4];
    comm.scope(|scope| {
        let mut receives = Vec::new();
        for (tag, inbox) in (0..).zip(&mut inboxes) {
            receives.push(scope.irecv(inbox, partner, 20 + tag)?);
        }
        for tag in [2, 0, 3, 1u32] {
            comm.send(&[tag], partner, 20 + tag as i32)?;
        }
        let mut seen = [false; 4];
        for _ in 0..4 {
            let (_, status, inbox) =
                scope.wait_any(&mut receives)?.expect("receives are under way");
            assert_eq!(status.tag, 20 + inbox[0] as i32);
            assert!(!std::mem::replace(&mut seen[inbox[0] as usize], true), "each once");
        }
        assert!(scope.wait_any(&mut receives)?.is_none());
        Ok::<(), Error>(())
    })??;
    // Persistent, across the eager limit.
    let out = message(me, 7, 200_000);
    let mut inbox = vec![0; 200_000];
    comm.scope(|scope| {
        let mut send = scope.send_init(&out, partner, 30)?;
        let mut receive = scope.recv_init(&mut inbox, partner, 30)?;
        for _ in 0..3 {
            receive.start()?;
            send.start()?;
            send.wait()?;
            assert_eq!(receive.wait()?.bytes, 200_000);
            let got = receive.buffer().expect("the receive is over");
            assert!(got == message(partner, 7, 200_000));
        }
        Ok::<(), Error>(())
    })??;
    Ok(())
}

/// Messages of random sizes from everybody to everybody, received by wildcard: in order from each source.
fn order(comm: &Comm, seed: u64) -> Outcome {
    const COUNT: usize = 400;
    let (me, n) = (comm.rank(), comm.size());
    let len = |source: u32, number: usize| {
        let mut rng = SmallRng::seed_from_u64(seed ^ u64::from(source) << 32 ^ number as u64);
        SIZES[rng.random_range(0..16)]
    };
    let messages: Vec<Vec<u8>> = (0..COUNT).map(|i| message(me, i, len(me, i))).collect();
    let mut next = vec![0; n as usize];
    comm.scope(|scope| {
        let mut inbox = vec![0; 300_000];
        for number in 0..COUNT + 32 {
            if let Some(out) = messages.get(number) {
                for to in (0..n).filter(|&to| to != me) {
                    let _under_way = scope.isend(&out[..], to, 3)?;
                }
            }
            for _ in 1..n {
                if number < 32 {
                    continue; // run ahead, so that messages are unexpected
                }
                let status = comm.recv(&mut inbox, Source::Any, 3)?;
                let expected = &mut next[status.source as usize];
                let want = message(status.source, *expected, len(status.source, *expected));
                assert!(
                    inbox[..status.bytes] == want[..],
                    "message {expected} of {}",
                    status.source
                );
                *expected += 1;
            }
        }
        Ok::<(), Error>(())
    })??;
    assert!((0..n).all(|rank| rank == me || next[rank as usize] == COUNT));
    Ok(())
}

/// Wrong arguments: a clear error, and nothing is lost.
fn mistakes(comm: &Comm) -> Outcome {
    let (me, n) = (comm.rank(), comm.size());
    let error = comm.send(&[1u8], n, 0).unwrap_err();
    assert_eq!(error, Error::InvalidRank { rank: n, size: n });
    assert!(error.to_string().contains(&format!("rank {n} is not in the communicator")), "{error}");
    assert_eq!(comm.send(&[1u8], me, -1), Err(Error::InvalidTag { tag: -1 }));
    assert_eq!(comm.recv(&mut [0u8], me, -7).unwrap_err(), Error::InvalidTag { tag: -7 });
    assert_eq!(
        comm.recv(&mut [0u8], n + 3, 0).unwrap_err(),
        Error::InvalidRank { rank: n + 3, size: n }
    );
    assert_eq!(comm.probe(n, 0).unwrap_err(), Error::InvalidRank { rank: n, size: n });
    let refused = comm.sendrecv(&[1u8], n, 0, &mut [0u8], me, 0).unwrap_err();
    assert_eq!(refused, Error::InvalidRank { rank: n, size: n });
    // Nothing of a call that is refused is sent, …
    let refused = comm.sendrecv(&[9u8; 2], me, 0, &mut [0u8], n, 0).unwrap_err();
    assert_eq!(refused, Error::InvalidRank { rank: n, size: n });
    // … and its receive is gone: this message goes to the next one.
    comm.send(&[1u8, 2, 3], me, 0)?;
    let mut wide = [0u32; 4];
    let status = comm.recv(&mut wide, me, 0)?;
    assert_eq!(status.count::<u32>(), Err(Error::PartialElement { bytes: 3, element: 4 }));
    assert_eq!(status.count::<u8>()?, 3);
    Ok(())
}

/// Eight threads exchange with their twins in the partner rank, all sizes, all at once.
fn threads(world: &World<Multiple>) -> Outcome {
    const THREADS: i32 = 8;
    let partner = world.rank() ^ 1;
    if partner >= world.size() {
        return Ok(());
    }
    std::thread::scope(|threads| {
        let running: Vec<_> = (0..THREADS)
            .map(|tag| {
                let comm = world.comm();
                threads.spawn(move || -> Result<(), Error> {
                    let me = comm.rank();
                    for round in 0..60 {
                        let len = SIZES[(round + tag as usize) % 18];
                        let number = round * 8 + tag as usize;
                        let out = message(me, number, len);
                        let mut inbox = vec![0; len];
                        if round % 2 == 0 {
                            comm.sendrecv(&out, partner, tag, &mut inbox, partner, tag)?;
                        } else {
                            comm.scope(|scope| {
                                let receive = scope.irecv(&mut inbox, partner, tag)?;
                                let _sent = scope.isend(&out, partner, tag)?;
                                receive.finish().map(drop)
                            })??;
                        }
                        assert!(
                            inbox == message(partner, number, len),
                            "thread {tag}, round {round}"
                        );
                    }
                    Ok(())
                })
            })
            .collect();
        for thread in running {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(())
    })
}

fn die() -> ! {
    let me = rustix::process::getpid();
    // The signal cannot fail: it is sent to this very process.
    let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
    unreachable!("SIGKILL was survived")
}

/// Waits until `rank` is known to have failed.
fn await_failure(world: &World, rank: u32) -> Result<(), Error> {
    while !world.failed()?.contains(&rank) {
        std::thread::yield_now();
    }
    Ok(())
}

/// Wildcard receives when a possible sender dies (seed 003 §17.6; ULFM): blocking ones end, non-blocking ones are pending
/// until acknowledged, then they work again.
fn wildcards(world: &World) -> Outcome {
    let comm = world.comm();
    let (me, n) = (comm.rank(), comm.size());
    let victim = n - 1;
    if me == victim {
        comm.send(&[7u8], 0, 1)?; // received in full before the failure: may still be delivered
        let mut go = [0u8];
        comm.recv(&mut go, 0, 2)?;
        die();
    }
    if me != 0 {
        let mut token = [0u8];
        comm.recv(&mut token, 0, 4)?;
        comm.send(&token, 0, 5)?;
        return Ok(());
    }
    let status = comm.probe(victim, 1)?;
    assert_eq!(status.bytes, 1);
    let mut inbox = [0u8];
    comm.scope(|scope| {
        let mut receive = scope.irecv(&mut inbox, Source::Any, 5)?;
        comm.send(&[1u8], victim, 2)?;
        await_failure(world, victim)?;
        assert_eq!(receive.wait(), Err(Error::ProcFailedPending));
        let mut other = [0u8];
        assert_eq!(comm.recv(&mut other, Source::Any, 6), Err(Error::ProcFailed { rank: victim }));
        // What the dead process sent before is still there, then nothing is.
        assert_eq!(comm.recv(&mut other, victim, 1)?.bytes, 1);
        assert_eq!(other, [7]);
        assert_eq!(comm.recv(&mut other, victim, 1), Err(Error::ProcFailed { rank: victim }));
        assert_eq!(comm.send(&[1u8], victim, 1), Err(Error::ProcFailed { rank: victim }));
        assert_eq!(comm.failed()?, [victim]);
        assert_eq!(comm.ack_failed()?, 1);
        for rank in 1..victim {
            comm.send(&[rank as u8], rank, 4)?;
        }
        let status = receive.wait()?;
        assert!(status.source > 0 && status.source < victim, "from a living process");
        for _ in 2..victim {
            comm.recv(&mut other, Source::Any, 5)?;
        }
        Ok::<(), Error>(())
    })??;
    Ok(())
}

/// Everybody exchanges with everybody; one rank dies at a moment that the seed chooses. Every operation ends, and the
/// living get every message of the living.
fn random_kill(world: &World, seed: u64) -> Outcome {
    let comm = world.comm();
    let (me, n) = (comm.rank(), comm.size());
    let mut rng = SmallRng::seed_from_u64(seed);
    let victim = rng.random_range(0..n);
    let micros = rng.random_range(0..30_000);
    let lens: Vec<usize> = (0..40).map(|_| SIZES[rng.random_range(0..SIZES.len())]).collect();
    if me == victim {
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(micros));
            die();
        });
    }
    let others: Vec<u32> = (0..n).filter(|&rank| rank != me).collect();
    for (number, &len) in lens.iter().enumerate() {
        let out = message(me, number, len);
        let mut inboxes: Vec<Vec<u8>> = others.iter().map(|_| vec![0; len]).collect();
        let ended: Vec<Result<(), Error>> = comm.scope(|scope| {
            let receives: Vec<_> = others
                .iter()
                .zip(&mut inboxes)
                .map(|(&rank, inbox)| scope.irecv(&mut inbox[..], rank, 0))
                .collect();
            let sends: Vec<_> = others.iter().map(|&rank| scope.isend(&out, rank, 0)).collect();
            let received = receives.into_iter().map(|r| r.and_then(|r| r.finish().map(drop)));
            let sent = sends.into_iter().map(|s| s.and_then(|s| s.finish().map(drop)));
            received.zip(sent).map(|(received, sent)| received.and(sent)).collect()
        })?;
        for ((&rank, inbox), ended) in others.iter().zip(&inboxes).zip(ended) {
            match ended {
                Ok(()) => {
                    assert!(inbox[..] == message(rank, number, len), "message {number} of {rank}")
                }
                Err(Error::ProcFailed { rank: dead }) if dead == rank && rank == victim => {}
                Err(error) => return Err(format!("message {number} with {rank}: {error}").into()),
            }
        }
    }
    if me == victim {
        die(); // was faster than its own death
    }
    await_failure(world, victim)?;
    Ok(())
}

/// A rank that exits with success but without finalizing is a failure like a kill.
fn quiet_exit(world: &World) -> Outcome {
    let comm = world.comm();
    let victim = comm.size() - 1;
    if comm.rank() == victim {
        std::process::exit(0);
    }
    let error = comm.recv(&mut [0u8], victim, 0).unwrap_err();
    assert_eq!(error, Error::ProcFailed { rank: victim });
    Ok(())
}

/// A rank that drops its world without finalizing it, and goes on with something else, has failed too: what it had sent is
/// there, the others go on without it, and it is ended.
fn lives_on(world: World) -> Outcome {
    let comm = world.comm();
    let victim = comm.size() - 1;
    if comm.rank() == victim {
        for rank in 0..victim {
            comm.send(&[7u8], rank, 0)?;
        }
        for rank in 0..victim {
            comm.recv(&mut [0u8], rank, 1)?;
        }
        drop((comm, world));
        std::thread::sleep(Duration::from_secs(120));
        return Err("nobody ended a process that had dropped its world".into());
    }
    let mut last = [0u8];
    comm.recv(&mut last, victim, 0)?;
    assert_eq!(last, [7]);
    comm.send(&[8u8], victim, 1)?;
    let error = comm.recv(&mut [0u8], victim, 0).unwrap_err();
    assert_eq!(error, Error::ProcFailed { rank: victim });
    assert_eq!(comm.barrier().unwrap_err(), error);
    assert_eq!(world.failed()?, [victim]);
    let rest = comm.shrink()?;
    assert_eq!(rest.size(), victim);
    rest.barrier()?;
    Ok(world.finalize()?)
}

/// Law 2: a receive that ended in error is never written again, however long one looks. The sender dies `delay` after it began;
/// how much had come by then is told.
fn dead_buffer(world: &World, delay: Duration) -> Outcome {
    const LEN: usize = 64 << 20;
    /// Bytes of every other message.
    const BYTES: [u8; 2] = [0x11, 0x22];
    let comm = world.comm();
    let (me, victim) = (comm.rank(), comm.size() - 1);
    if me == victim {
        // Made beforehand: something is on its way all the time.
        let out = BYTES.map(|byte| vec![byte; LEN]);
        std::thread::spawn(move || {
            std::thread::sleep(delay);
            die();
        });
        for message in out.iter().cycle() {
            for rank in 0..victim {
                comm.send(message, rank, 0)?;
            }
        }
    }
    let mut inbox = vec![0u8; LEN];
    let mut whole = 0;
    let error = loop {
        if let Err(error) = comm.recv(&mut inbox, victim, 0) {
            break error;
        }
        whole += 1;
    };
    assert_eq!(error, Error::ProcFailed { rank: victim });
    // In one go: what is written meanwhile, and not counted, is seen below.
    let mut arrived = 0;
    for block in inbox.chunks_mut(4096) {
        arrived += block.iter().filter(|&&byte| byte == BYTES[whole % 2]).count();
        block.fill(0xca);
    }
    println!("rank {me}: {arrived} of {LEN} bytes of message {whole} had arrived");
    for _ in 0..20_000 {
        world.failed()?; // progress
    }
    assert!(
        inbox.iter().all(|&byte| byte == 0xca),
        "the buffer was written after the receive had ended"
    );
    Ok(())
}
