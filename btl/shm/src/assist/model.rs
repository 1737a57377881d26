//! Loom explores the grants: `RUSTFLAGS="--cfg loom" cargo test -p ironweave-btl-shm --release --lib loom`.

use super::*;
use crate::primitive::AtomicU64;
use loom::sync::Arc;
use loom::thread;

const PIECE: usize = SHARED_MIN / 2;

/// The reader's memory: a word for each piece, relaxed, so that a missing Release or Acquire shows.
type Memory = Arc<[AtomicU64; 2]>;

/// What is written in the course of grant `number`.
fn write(memory: &Memory, bytes: Range<u64>, number: u64) {
    for index in bytes.start as usize / PIECE..bytes.end as usize / PIECE {
        memory[index].store(number, Ordering::Relaxed);
    }
}

/// Two grants, one after the other, and a helper that takes what it finds and may fail: each piece is written in the course of its own
/// grant, by whoever took it, and when the reader knows that it is over, all of it is there, and stays.
fn two_grants(able: bool) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let shared = Shared::heap(LEN);
        let memory: Memory = Arc::new([const { 0 }; 2].map(AtomicU64::new));
        let (theirs, mut helper) = (memory.clone(), Helper::new(shared.clone(), 0));
        let assistant = thread::spawn(move || {
            for _ in 0..3 {
                if let Some(task) = helper.take() {
                    assert_eq!(u64::from(task.grant.serial), task.grant.target);
                    if able {
                        write(&theirs, task.bytes.clone(), task.grant.target);
                    }
                    helper.finish(&task, able);
                }
            }
        });
        let mut asker = Asker::new(shared, 0);
        for number in 1..3 {
            let bytes = |range: Range<usize>| range.start as u64..range.end as u64;
            if asker.never {
                break;
            }
            let mut mine = Some(asker.ask((number, 2 * PIECE), (0, number as u32, 0)));
            while let Some(range) = mine {
                write(&memory, bytes(range), number);
                mine = asker.take();
            }
            loop {
                match asker.outcome() {
                    Help::UnderWay => thread::yield_now(),
                    Help::Done => break,
                    Help::Failed { from } => {
                        write(&memory, bytes(from..2 * PIECE), number);
                        break;
                    }
                }
            }
            let there = [&memory[0], &memory[1]].map(|word| word.load(Ordering::Relaxed));
            assert_eq!(there, [number; 2]);
        }
        assistant.join().unwrap();
    });
}

#[test]
fn loom_two_grants() {
    two_grants(true);
}

#[test]
fn loom_two_grants_that_cannot_be_carried_out() {
    two_grants(false);
}
