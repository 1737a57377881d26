//! When something ends: a killed peer, a stopped peer, an invalidated endpoint, a good-bye, a crash.

use super::traffic::one_tier;
use super::{all_back, received_by, sent_by};
use crate::command::{Command, Flood, tier};
use crate::run::{Run, Skip};
use crate::stage::Stage;
use crate::{Harness, Place};
use ironweave_btl::{Btl, EndpointState, FailureReport, Peer, Refused, Residue};
use rand::Rng;

/// Frames of a flood that is cut off in its middle.
const ENDLESS: u64 = 1_000_000;

/// The failure of `peer` shows at process 0 as its transport has it; then nothing of it is out and it is closed.
fn see_the_end_of<H: Harness>(stage: &mut Stage<H>, peer: u32) {
    match stage.me().caps().failure_report {
        FailureReport::Prompt => {}
        FailureReport::OnUse => stage.flood(0, peer, ENDLESS, 100),
        FailureReport::Silent => {
            stage.turns(50);
            stage.me().invalidate(peer, Residue::Deliver, false);
        }
    }
    stage.until("the failure of a peer to show", |stage| !stage.me().check.log(peer).open);
    check_closed(stage, peer);
}

fn check_closed<H: Harness>(stage: &mut Stage<H>, peer: u32) {
    assert_eq!(stage.me().check.outstanding(peer), 0, "operations out with a closed endpoint");
    assert_eq!(stage.me().btl().state(Peer(peer)), EndpointState::Closed);
    assert_eq!(stage.me().send(peer, tier::BCOPY, 8, false), Err(Refused::Closed));
}

/// SIGKILL at a random moment, with traffic each way: what was handed down for the dead comes back, what is between
/// the living arrives.
///
/// # Errors
/// When the transport cannot run here.
pub fn survives_the_death_of_a_peer<H: Harness>(run: &Run) -> Result<(), Skip> {
    run.rounds(6, |run| {
        if H::PLACE == Place::Alone {
            return Err(Skip::from("a transport of one process to itself"));
        }
        let mut stage = Stage::<H>::open(run, 3)?;
        for process in [0, 2] {
            stage.tell(process, Command::MayDie(1));
        }
        let longest = 1 << stage.rng.random_range(4..20);
        let early = stage.rng.random_range(0..8) == 0;
        if early {
            // While it is being connected.
            stage.connect(0, 1);
            let turns = stage.rng.random_range(0..20);
            stage.turns(turns);
            stage.kill(1);
            stage.reach(2);
        } else {
            stage.connect_all();
            stage.connect(2, 1);
            for (from, to) in [(0, 1), (1, 0), (2, 1), (1, 2)] {
                stage.flood(from, to, ENDLESS, longest);
            }
            let moment = stage.rng.random_range(1..3000);
            let turns = stage.rng.random_range(1..3000);
            let mut turn = 0;
            stage.until("the moment to kill", |stage| {
                turn += 1;
                stage.me().check.reports > moment || turn > turns
            });
            stage.kill(1);
        }
        stage.flood(0, 2, 300, longest);
        stage.flood(2, 0, 300, longest);
        let before = stage.me().check.log(1).faults;
        if !early || stage.me().check.log(1).open {
            see_the_end_of(&mut stage, 1);
        }
        let caps = stage.me().caps();
        let log = stage.me().check.log(1);
        assert_eq!(log.closed, 1, "ends of the dead peer's endpoint");
        if caps.failure_report != FailureReport::Silent && before == 0 {
            assert!(log.faults > 0, "a killed peer ended without a fault");
        }
        if caps.failure_report == FailureReport::Silent {
            stage.tell(2, Command::Invalidate(1, Residue::Discard));
        }
        sent_by(&mut stage, 2);
        received_by_from(&mut stage, 2, 300);
        all_back(&mut stage);
        // What went to the living is out some time; if what went to the dead counted, this would not end.
        stage.until("all frames to be out", |stage| stage.me().btl().unflushed() == 0);
        stage.finish();
        Ok(())
    })
}

/// Waits until process 0 has `frames` frames of `peer`.
fn received_by_from<H: Harness>(stage: &mut Stage<H>, peer: u32, frames: u64) {
    stage.until("frames of a living peer", |stage| stage.me().check.log(peer).frames == frames);
}

/// SIGKILL in the middle of writing a frame into transport memory: nobody sees half of it.
///
/// # Errors
/// When the transport cannot run here.
pub fn survives_a_peer_killed_while_packing<H: Harness>(run: &Run) -> Result<(), Skip> {
    if H::PLACE != Place::Processes {
        return Err(Skip::from("peers have no process of their own to be killed"));
    }
    run.rounds(4, |run| {
        let mut stage = Stage::<H>::open(run, 3)?;
        stage.tell(0, Command::MayDie(1));
        stage.connect_all();
        let moment = stage.rng.random_range(0..500);
        let longest = 1 << stage.rng.random_range(3..16);
        let doom =
            Flood { to: 0, frames: ENDLESS, longest, tiers: tier::ALL, die_at: Some(moment) };
        stage.tell(1, Command::Flood(doom));
        stage.flood(0, 2, 500, longest);
        stage.flood(2, 0, 500, longest);
        stage.wait_for_death(1);
        see_the_end_of(&mut stage, 1);
        let frames = stage.me().check.log(1).frames;
        assert!(frames <= moment, "{frames} frames arrived, only {moment} were written");
        sent_by(&mut stage, 0);
        received_by(&mut stage, 2, 500);
        received_by_from(&mut stage, 2, 500);
        all_back(&mut stage);
        stage.finish();
        Ok(())
    })
}

/// `invalidate` with operations in every stage, while the peer goes on sending: each comes back once, buffers stay
/// as they were left, and the endpoint comes up again.
///
/// # Errors
/// When the transport cannot run here.
pub fn gives_everything_back_when_invalidated<H: Harness>(run: &Run) -> Result<(), Skip> {
    run.rounds(4, |run| {
        let alone = H::PLACE == Place::Alone;
        let mut stage = Stage::<H>::open(run, if alone { 1 } else { 2 })?;
        let peer = stage.peer();
        // Connecting, or barely up.
        stage.connect(0, peer);
        let turns = stage.rng.random_range(0..10);
        stage.turns(turns);
        stage.me().invalidate(peer, Residue::Discard, false);
        stage.until("a connecting endpoint to close", |stage| !stage.me().check.log(peer).open);
        check_closed(&mut stage, peer);
        for _ in 0..4 {
            stage.turns(30);
            stage.reach(peer);
            let longest = 1 << stage.rng.random_range(6..21);
            let tiers = [tier::ALL, tier::ZCOPY, tier::BCOPY][stage.rng.random_range(0..3)];
            let direct = [0, 500, 1000][stage.rng.random_range(0..3)];
            stage.tell(0, Command::Direct(direct));
            stage.tell(0, one_tier(peer, ENDLESS, longest, tiers));
            if !alone {
                stage.tell(peer, one_tier(0, ENDLESS, longest, tiers));
            }
            let turns = stage.rng.random_range(0..400);
            stage.turns(turns);
            let frozen = !alone && stage.rng.random();
            if frozen {
                // Nothing is read there any more: queues fill, frames stay half sent.
                stage.tell(peer, Command::Freeze(true));
                stage.turns(50);
            }
            if stage.rng.random() {
                // Let frames arrive unread.
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            let residue = if stage.rng.random() { Residue::Deliver } else { Residue::Discard };
            let lives = stage.me().check.log(peer).closed;
            stage.me().invalidate(peer, residue, false);
            stage.until("an endpoint to close", |stage| !stage.me().check.log(peer).open);
            check_closed(&mut stage, peer);
            if !frozen {
                assert_eq!(stage.me().check.log(peer).closed, lives + 1, "ends for one invalidate");
            }
            if frozen {
                stage.tell(peer, Command::Freeze(false));
            }
            // Watch the buffers while the peer is still at it.
            stage.turns(200);
            stage.inspect(0);
            see_their_end(&mut stage, peer);
        }
        stage.finish();
        Ok(())
    })
}

/// After process 0 invalidated, the peer's end closes too: by itself, or told to.
fn see_their_end<H: Harness>(stage: &mut Stage<H>, peer: u32) {
    if H::PLACE == Place::Alone || stage.rng.random() {
        return;
    }
    if stage.me().caps().failure_report == FailureReport::Silent {
        stage.tell(peer, Command::Invalidate(0, Residue::Discard));
    } else {
        // Where use shows failure its flood is the use.
        stage.tell(peer, one_tier(0, ENDLESS, 100, tier::ALL));
    }
    stage.until("the peer's end to close", |stage| {
        stage.turns(5);
        stage.status(peer).open == 0
    });
}

/// A stopped peer neither reads nor dies: `invalidate` ends all the same.
///
/// # Errors
/// When the transport cannot run here.
pub fn ends_in_time_when_the_peer_is_stopped<H: Harness>(run: &Run) -> Result<(), Skip> {
    run.rounds(2, |run| {
        if H::PLACE == Place::Alone {
            return Err(Skip::from("a transport of one process to itself"));
        }
        let mut stage = Stage::<H>::open(run, 3)?;
        stage.connect_all();
        let longest = 1 << stage.rng.random_range(8..20);
        stage.flood(0, 1, ENDLESS, longest);
        stage.flood(1, 0, ENDLESS, longest);
        let turns = stage.rng.random_range(0..300);
        stage.turns(turns);
        stage.stop(1, true);
        stage.turns(100);
        stage.me().invalidate(1, Residue::Deliver, false);
        stage.until("the endpoint of a stopped peer to close", |stage| {
            !stage.me().check.log(1).open
        });
        check_closed(&mut stage, 1);
        assert_eq!(stage.me().btl().unflushed(), 0, "frames to a closed endpoint are unflushed");
        stage.flood(0, 2, 200, longest);
        received_by(&mut stage, 2, 200);
        stage.stop(1, false);
        stage.turns(100);
        all_back(&mut stage);
        stage.finish();
        Ok(())
    })
}

/// An endpoint that was closed comes up again and carries frames, with nothing of its earlier life in them.
///
/// # Errors
/// When the transport cannot run here.
pub fn comes_back_after_invalidation<H: Harness>(run: &Run) -> Result<(), Skip> {
    run.rounds(3, |run| {
        let alone = H::PLACE == Place::Alone;
        let mut stage = Stage::<H>::open(run, if alone { 1 } else { 2 })?;
        let peer = stage.peer();
        for life in 0..5 {
            stage.reach(peer);
            let before = (stage.status(peer).frames_received, stage.status(0).frames_received);
            if !alone {
                // Both must be in the same life before frames count on arriving.
                stage.until("the peer to be up", |stage| {
                    stage.turns(5);
                    let status = stage.status(peer);
                    status.up == 1 && (status.closed == life || stage.me().check.log(peer).up)
                });
                stage.turns(20);
            }
            let closed = stage.me().check.log(peer).closed;
            stage.flood(0, peer, 50, 5000);
            stage.until("fifty frames of a new life, or its end", |stage| {
                stage.turns(5);
                let now = stage.status(peer).frames_received;
                now == before.0 + 50 || stage.me().check.log(peer).closed != closed
            });
            stage.me().invalidate(peer, Residue::Deliver, false);
            stage.until("an endpoint to close", |stage| !stage.me().check.log(peer).open);
            if !alone && stage.me().caps().failure_report != FailureReport::Prompt {
                stage.tell(peer, Command::Invalidate(0, Residue::Deliver));
            }
            if !alone {
                stage.until("the peer's end to close", |stage| {
                    stage.turns(5);
                    stage.status(peer).open == 0
                });
            }
        }
        stage.finish();
        Ok(())
    })
}

/// An excluded peer can neither be connected nor connect, and its process is not lied about.
///
/// # Errors
/// When the transport cannot run here.
pub fn excludes_for_good<H: Harness>(run: &Run) -> Result<(), Skip> {
    run.rounds(2, |run| {
        let alone = H::PLACE == Place::Alone;
        let mut stage = Stage::<H>::open(run, if alone { 1 } else { 3 })?;
        let peer = stage.peer();
        if stage.rng.random() {
            stage.connect_all();
            stage.flood(0, peer, ENDLESS, 10_000);
            stage.turns(50);
        }
        stage.me().invalidate(peer, Residue::Discard, true);
        stage.until("an excluded endpoint to close", |stage| !stage.me().check.log(peer).open);
        check_closed(&mut stage, peer);
        if !stage.connect(0, peer) {
            stage.me().check.log(peer).open = false;
        }
        if !alone {
            stage.connect(peer, 0);
        }
        stage.turns(500);
        stage.until("the attempts to end", |stage| !stage.me().check.log(peer).open);
        let log = stage.me().check.log(peer);
        assert!(!log.up, "an excluded peer is up");
        assert_eq!(stage.me().send(peer, tier::SHORT, 8, false), Err(Refused::Closed));
        if !alone {
            stage.reach(2);
            stage.flood(0, 2, 100, 1000);
            received_by(&mut stage, 2, 100);
        }
        stage.finish();
        Ok(())
    })
}

/// A peer that finishes says good-bye: its frames arrive, then `closed`, and no fault.
///
/// # Errors
/// When the transport cannot run here.
pub fn departs_quietly<H: Harness>(run: &Run) -> Result<(), Skip> {
    run.rounds(3, |run| {
        if H::PLACE == Place::Alone {
            return Err(Skip::from("a transport of one process to itself"));
        }
        let mut stage = Stage::<H>::open(run, 3)?;
        stage.connect_all();
        let frames = stage.rng.random_range(0..300);
        let longest = 1 << stage.rng.random_range(4..18);
        stage.flood(1, 0, frames, longest);
        stage.tell(1, Command::Depart);
        if stage.rng.random() {
            stage.flood(0, 1, 100, longest);
        }
        stage.until("the good-bye", |stage| !stage.me().check.log(1).open);
        check_closed(&mut stage, 1);
        let log = stage.me().check.log(1);
        assert_eq!((log.frames, log.faults, log.closed), (frames, 0, 1), "frames, faults, ends");
        stage.until("the transport to be dropped", |stage| {
            stage.turns(5);
            stage.status(1).gone
        });
        stage.turns(100);
        assert_eq!(stage.me().check.log(1).faults, 0, "a good-bye was taken for a failure");
        stage.flood(0, 2, 50, 1000);
        received_by(&mut stage, 2, 50);
        stage.finish();
        Ok(())
    })
}

/// A transport dropped without a word is a failure, shown as the capabilities say.
///
/// # Errors
/// When the transport cannot run here.
pub fn shows_a_crash<H: Harness>(run: &Run) -> Result<(), Skip> {
    run.rounds(2, |run| {
        if H::PLACE == Place::Alone {
            return Err(Skip::from("a transport of one process to itself"));
        }
        let mut stage = Stage::<H>::open(run, 3)?;
        stage.connect_all();
        stage.flood(1, 0, 50, 10_000);
        stage.flood(0, 1, 50, 10_000);
        let turns = stage.rng.random_range(0..100);
        stage.turns(turns);
        stage.tell(1, Command::Drop);
        see_the_end_of(&mut stage, 1);
        let caps = stage.me().caps();
        let log = stage.me().check.log(1);
        assert_eq!(log.closed, 1, "ends");
        if caps.failure_report != FailureReport::Silent {
            assert!(log.faults > 0, "a crash looked like a good-bye");
        }
        stage.flood(0, 2, 50, 1000);
        received_by(&mut stage, 2, 50);
        all_back(&mut stage);
        stage.finish();
        Ok(())
    })
}
