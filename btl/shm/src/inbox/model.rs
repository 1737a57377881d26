//! Loom explores the bells: `RUSTFLAGS="--cfg loom" cargo test -p ironweave-btl-shm --release --lib loom`.

use super::*;
use loom::thread;

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn inbox() -> Inbox {
    Inbox::new(Shared::heap(INBOX_LEN))
}

/// Two writers ring while the owner answers: no bell is lost, whichever words they share.
#[test]
fn loom_two_bells() {
    for other in [1, 64] {
        check(3, move || {
            let inbox = inbox();
            let ringers: Vec<_> = [0, other]
                .map(|bell| {
                    let outbox = inbox.clone();
                    thread::spawn(move || {
                        outbox.ring(bell);
                    })
                })
                .into_iter()
                .collect();
            let mut rang = vec![];
            inbox.answer(|bell| rang.push(bell));
            for ringer in ringers {
                ringer.join().unwrap();
            }
            inbox.answer(|bell| rang.push(bell));
            rang.sort_unstable();
            rang.dedup();
            assert_eq!(rang, [0, other]);
        });
    }
}

/// The owner goes to sleep while a writer rings: it sees the bell, or the writer wakes it.
#[test]
fn loom_sleeping() {
    check(4, || {
        let inbox = inbox();
        let outbox = inbox.clone();
        let ringer = thread::spawn(move || outbox.ring(0));
        let mut rang = 0;
        inbox.answer(|_| rang += 1);
        let seen = inbox.sleep();
        let woken = ringer.join().unwrap();
        assert!(rang > 0 || seen || woken, "asleep beside a bell that rang");
    });
}

/// A bell that still rings is not rung again: the owner that stops it then finds what was published before.
#[test]
fn loom_ringing_twice() {
    check(3, || {
        let inbox = inbox();
        let outbox = inbox.clone();
        let record = loom::sync::Arc::new(AtomicU64::new(0));
        let published = record.clone();
        let ringer = thread::spawn(move || {
            for lap in 1..=2 {
                published.store(lap, Ordering::Release);
                fence(Ordering::SeqCst); // as `Writer::reader_parked`
                outbox.ring(5);
            }
        });
        let mut seen = 0;
        for _ in 0..2 {
            let mut rang = false;
            inbox.answer(|_| rang = true);
            if rang {
                fence(Ordering::SeqCst); // as parking again
                seen = record.load(Ordering::Acquire);
            }
        }
        ringer.join().unwrap();
        let mut rang = false;
        inbox.answer(|_| rang = true);
        assert!(rang || seen == 2, "the last record was neither seen nor announced");
    });
}
