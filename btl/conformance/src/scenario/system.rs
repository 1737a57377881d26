//! What a transport does to its process and machine: many peers, strangers, sleep, leftovers.

use super::{all_back, received_by, sent_by};
use crate::command::{Answer, Command};
use crate::leftovers::{Holdings, shared_files};
use crate::run::{Run, Skip};
use crate::stage::Stage;
use crate::{Harness, Place};
use ironweave_btl::{Armed, Btl, FailureReport, Residue};
use rand::Rng;
use rustix::event::{PollFd, PollFlags, poll};
use std::os::fd::BorrowedFd;

/// Rounds of mistreatment by strangers.
const STRANGERS: u64 = 24;

/// One process with [`Harness::many`] peers: all come up, all are spoken to, and all end.
///
/// # Errors
/// When the transport cannot run here.
pub fn serves_many_peers<H: Harness>(run: &Run) -> Result<(), Skip> {
    let many = H::many();
    let mut stage = Stage::<H>::open_hosted(run, many + 1, many)?;
    for peer in 1..=many {
        assert!(stage.connect(0, peer), "connecting with peer {peer}");
    }
    stage.until("all peers to be up", |stage| {
        stage.me().check.peers.values().filter(|log| log.up).count() == many as usize
    });
    for peer in 1..=many {
        stage.flood(0, peer, 2, 3000);
        stage.flood(peer, 0, 2, 3000);
    }
    sent_by(&mut stage, 0);
    received_by(&mut stage, 0, 2 * u64::from(many));
    let some = stage.rng.random_range(1..=many);
    for peer in [1, some, many] {
        received_by(&mut stage, peer, 2);
    }
    all_back(&mut stage);
    for peer in 1..=many {
        stage.tell(0, Command::MayDie(peer));
    }
    if H::PLACE == Place::Processes {
        stage.kill(1);
    } else {
        for peer in 1..=many {
            stage.kill(peer);
        }
    }
    match stage.me().caps().failure_report {
        FailureReport::Prompt => {}
        FailureReport::OnUse => {
            for peer in 1..=many {
                stage.flood(0, peer, 1, 8);
            }
        }
        FailureReport::Silent => {
            for peer in 1..=many {
                stage.me().invalidate(peer, Residue::Discard, false);
            }
        }
    }
    stage.until("all peers to be closed", |stage| {
        stage.me().check.peers.values().all(|log| !log.open)
    });
    stage.finish();
    Ok(())
}

/// Strangers and broken peers are turned away, and the others never notice (laws 3 and 9).
///
/// # Errors
/// When the transport cannot run here.
pub fn turns_strangers_away<H: Harness>(run: &Run) -> Result<(), Skip> {
    let mut stage = Stage::<H>::open(run, 3)?;
    stage.connect(0, 1);
    stage.reach(1);
    let address = stage.address(0);
    let start = run.seed;
    for round in start..start + STRANGERS {
        stage.flood(0, 1, 20, 2000);
        stage.flood(1, 0, 20, 2000);
        match stage.command(2, Command::Inject(address.clone(), round)) {
            Answer::Done => {}
            Answer::Refused(why) => return Err(Skip(why)),
            other => stage.fail(&format!("process 2 answers {other:?}")),
        }
        stage.turns(50);
    }
    received_by(&mut stage, 0, 20 * STRANGERS);
    received_by(&mut stage, 1, 20 * STRANGERS);
    // An honest newcomer is still welcome.
    stage.reach(2);
    stage.flood(0, 2, 20, 2000);
    received_by(&mut stage, 2, 20);
    let check = &stage.me().check;
    assert_eq!(check.peers[&1].closed, 0, "the honest peer's endpoint ended");
    assert!(stage.me().btl().counters().rejected.get() > 0, "the counter of strangers");
    stage.finish();
    Ok(())
}

/// After `arm` said to wait, an arriving frame makes the descriptor readable.
///
/// # Errors
/// When the transport cannot run here.
pub fn sleeps_and_wakes<H: Harness>(run: &Run) -> Result<(), Skip> {
    if H::PLACE != Place::Processes {
        return Err(Skip::from("nobody sends while this process sleeps"));
    }
    let mut stage = Stage::<H>::open(run, 2)?;
    stage.connect_all();
    for round in 0..50 {
        let before = stage.me().check.log(1).frames;
        // The flood starts when the peer gets to it: before, while or after this process falls asleep.
        stage.flood(1, 0, 3, 20_000);
        crate::run::doing("sleeping until a frame comes");
        while stage.me().check.log(1).frames < before + 3 {
            if stage.me().step() {
                continue;
            }
            match stage.me().btl().arm() {
                Armed::Ready => {}
                Armed::PollOnly => return Err(Skip::from("the transport can only be polled")),
                Armed::Wait(fd) => {
                    // The transport keeps it open: it is alive, and this borrow ends before it is called again.
                    let fd = borrow(&fd);
                    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
                    let limit = rustix::event::Timespec { tv_sec: 30, tv_nsec: 0 };
                    match poll(&mut fds, Some(&limit)) {
                        Ok(0) => stage.fail(&format!("slept through a frame in round {round}")),
                        Ok(_) | Err(rustix::io::Errno::INTR) => {}
                        Err(error) => stage.fail(&format!("poll: {error}")),
                    }
                }
            }
        }
    }
    stage.finish();
    Ok(())
}

#[allow(unsafe_code)]
fn borrow(fd: &std::os::fd::RawFd) -> BorrowedFd<'_> {
    // SAFETY: `Armed::Wait` promises a descriptor that the transport keeps open until it is called again, and
    // the caller calls it only after the poll.
    unsafe { BorrowedFd::borrow_raw(*fd) }
}

/// Traffic, a death, an invalidation, a good-bye; then the process holds what it held before: no descriptor, no
/// mapping, no file in /dev/shm more (law 8).
///
/// # Errors
/// When the transport cannot run here.
pub fn leaves_nothing_behind<H: Harness>(run: &Run) -> Result<(), Skip> {
    let alone = H::PLACE == Place::Alone;
    let mut before: Option<Holdings> = None;
    for round in 0..4 {
        let mut stage = Stage::<H>::open(run, if alone { 1 } else { 4 })?;
        let job = stage.job().to_owned();
        stage.connect_all();
        let peers: Vec<u32> = if alone { vec![0] } else { vec![1, 2, 3] };
        for &peer in &peers {
            stage.tell(0, Command::MayDie(peer));
            stage.flood(0, peer, 200, 200_000);
            stage.flood(peer, 0, 200, 200_000);
        }
        let turns = stage.rng.random_range(0..300);
        stage.turns(turns);
        if alone {
            stage.me().invalidate(0, Residue::Discard, false);
        } else {
            stage.kill(1);
            stage.me().invalidate(2, Residue::Discard, false);
            stage.tell(3, Command::Depart);
            if stage.me().caps().failure_report == FailureReport::Silent {
                stage.me().invalidate(1, Residue::Discard, false);
            } else {
                stage.flood(0, 1, 1000, 100);
            }
        }
        stage.until("everything to close", |stage| {
            stage.me().check.peers.values().all(|log| !log.open)
        });
        all_back(&mut stage);
        if round % 2 == 0 {
            stage.me().btl().depart();
        }
        stage.tell(0, Command::Drop);
        let mut left = shared_files(&job);
        left.retain(|name| name.contains(&job));
        assert!(left.is_empty(), "left in /dev/shm: {left:?}");
        stage.finish();
        let now = Holdings::now()?;
        match &before {
            // The first round opens what a process opens once.
            None => before = Some(now),
            Some(before) => {
                assert_eq!(before.descriptors, now.descriptors, "descriptors before and after");
                assert_eq!(before.mappings, now.mappings, "mappings before and after");
                // The allocator maps as it likes, but not more each round.
                assert!(
                    now.all_mappings <= before.all_mappings + 8,
                    "{} mappings became {}",
                    before.all_mappings,
                    now.all_mappings
                );
            }
        }
    }
    Ok(())
}
