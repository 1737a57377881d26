//! Atomic operations on memory of process 0, by itself where it is alone and by two others at once otherwise.

use super::traffic::register;
use super::{all_back, sent_by};
use crate::command::{Answer, Change, Command};
use crate::run::{Run, Skip};
use crate::stage::Stage;
use crate::{Harness, Place};
use ironweave_btl::{Atomic, Btl, EndpointState, Peer, Refused, RemoteKey, Residue};
use rand::Rng;

/// Bytes of memory, of which the first two numbers are changed.
const LEN: usize = 64;
/// Additions of each process.
const ADDED: u64 = 500;

/// Additions and swaps of several processes at once happen one after the other, each once, and bring what was there before; those that are
/// wrong come back with faults of their own, all come back when the endpoint ends, and none reaches memory that was taken back.
/// A transport without them refuses them.
///
/// # Errors
/// When the transport cannot run here.
pub fn changes_numbers_in_one_step<H: Harness>(run: &Run) -> Result<(), Skip> {
    run.rounds(3, |run| {
        let alone = H::PLACE == Place::Alone;
        let mut stage = Stage::<H>::open(run, if alone { 1 } else { 3 })?;
        stage.connect_all();
        let others: Vec<u32> = if alone { vec![0] } else { vec![1, 2] };
        for &process in &others {
            stage.until("the others to be up", |stage| {
                stage.turns(5);
                stage.status(process).up == 1
            });
        }
        if !stage.me().caps().atomics {
            let peer = stage.peer();
            let key = RemoteKey::new(&[9; 20]).expect("20 bytes fit");
            let what = Atomic::FetchAdd(1);
            let refused =
                stage.me().change_once(&Change { at: peer, key, offset: 0, what, times: 1 });
            assert_eq!(refused, Err(Refused::Unsupported));
            stage.finish();
            return Ok(());
        }
        let Some(key) = register(&mut stage, 0, false, LEN) else {
            return Err(Skip::from("it lends no memory, and says that it has atomic operations"));
        };
        let whole = !H::injects_errors();
        let change = |what, offset, times| Change { at: 0, key, offset, what, times };

        // Additions at once: everybody sees another number, and together all of them.
        let began = one(&mut stage, others[0], change(Atomic::FetchAdd(0), 0, 1), whole);
        let add = change(Atomic::FetchAdd(1), 0, ADDED);
        for &process in &others {
            stage.tell(process, Command::Change(add));
        }
        let mut seen = Vec::new();
        for &process in &others {
            seen.extend(over(&mut stage, process));
        }
        seen.sort_unstable_by_key(|number| number.wrapping_sub(began));
        let count = seen.len();
        seen.dedup();
        assert_eq!(seen.len(), count, "two additions found the same number");
        let total = ADDED * others.len() as u64;
        if whole {
            let right = (0..total).map(|n| began.wrapping_add(n));
            assert!(right.eq(seen.iter().copied()), "additions are missing, or came twice");
        }

        // Swaps at once: of those that compare with the same number one wins.
        let mut is = one(&mut stage, others[0], change(Atomic::FetchAdd(0), 8, 1), whole);
        for round in 0..20_u64 {
            let new = |process: u32| 1 << 32 | round << 8 | u64::from(process);
            for &process in &others {
                let what = Atomic::CompareSwap { compare: is, swap: new(process) };
                stage.tell(process, Command::Change(change(what, 8, 1)));
            }
            let found: Vec<(u32, u64)> = others
                .iter()
                .filter_map(|&process| Some((process, *over(&mut stage, process).first()?)))
                .collect();
            let now = one(&mut stage, others[0], change(Atomic::FetchAdd(0), 8, 1), whole);
            if whole {
                let won: Vec<u32> =
                    found.iter().filter(|(_, found)| *found == is).map(|(who, _)| *who).collect();
                let [winner] = won[..] else { stage.fail(&format!("{won:?} won of {found:?}")) };
                assert_eq!(now, new(winner), "what the winner swapped in");
                let lost = found.iter().filter(|(who, _)| *who != winner);
                assert!(lost.clone().all(|(_, found)| *found == now), "{found:?}");
            }
            is = now;
        }

        // What is wrong with an operation is told of it alone, and nothing changes.
        for offset in [4, LEN as u64 - 4, LEN as u64, u64::MAX - 3] {
            let wrong = change(Atomic::FetchAdd(1), offset, 1);
            assert_eq!(over_after(&mut stage, others[0], wrong), [], "offset {offset}");
            assert_eq!(stage.status(others[0]).closed, 0, "offset {offset} ended the endpoint");
        }
        let still = one(&mut stage, others[0], change(Atomic::FetchAdd(0), 8, 1), whole);
        assert!(!whole || still == is, "an operation that was wrong changed something");

        // Into the end: everything comes back, and what was taken back is not reached.
        for &process in &others {
            stage.tell(process, Command::Change(add));
        }
        let turns = stage.rng.random_range(0..30);
        stage.turns(turns);
        stage.tell(0, Command::Deregister(None));
        for &process in &others {
            stage.me().invalidate(process, Residue::Deliver, false);
        }
        stage.until("the endpoints to close", |stage| {
            others.iter().all(|&process| !stage.me().check.log(process).open)
        });
        for &process in others.iter().filter(|process| **process != 0) {
            stage.until("operations to come back", |stage| {
                stage.turns(5);
                let status = stage.status(process);
                status.outstanding == 0 && status.to_send == 0 && status.open == 0
            });
        }
        all_back(&mut stage);
        stage.turns(50);
        stage.inspect(0);
        stage.me().check.rma_err = 0;
        assert_eq!(stage.me().btl().state(Peer(others[0])), EndpointState::Closed);
        stage.finish();
        Ok(())
    })
}

/// What was there before each of the changes of `process`, when all are over.
fn over<H: Harness>(stage: &mut Stage<H>, process: u32) -> Vec<u64> {
    sent_by(stage, process);
    stage.until("atomic operations to come back", |stage| {
        stage.turns(2);
        stage.status(process).outstanding == 0
    });
    match stage.command(process, Command::Fetched) {
        Answer::Text(text) => {
            text.split_whitespace().map(|word| word.parse().expect("a number")).collect()
        }
        other => stage.fail(&format!("process {process} answers {other:?}")),
    }
}

fn over_after<H: Harness>(stage: &mut Stage<H>, process: u32, change: Change) -> Vec<u64> {
    stage.tell(process, Command::Change(change));
    over(stage, process)
}

/// One operation: what was there before. Again, where errors are injected.
fn one<H: Harness>(stage: &mut Stage<H>, process: u32, change: Change, whole: bool) -> u64 {
    loop {
        match over_after(stage, process, change)[..] {
            [number] => return number,
            _ if !whole => {}
            ref none => stage.fail(&format!("an atomic operation brought {none:?}")),
        }
    }
}
