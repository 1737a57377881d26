//! Slots of the board change hands.

use ironweave_ft::{Board, CommKey, Effect, Group, Look, Plane, PlaneConfig};
use std::sync::atomic::AtomicU64;

/// A slot is given to the next communicator before what its release wants done is done: what the next has posted stays.
#[test]
fn a_late_release_leaves_the_next_ones_post() {
    let words: Vec<_> = (0..Board::words(1, 1)).map(|_| AtomicU64::new(0)).collect();
    let board = Board::new(&words, 1);
    let config = PlaneConfig { fail_stop: true, ..PlaneConfig::default() };
    let mut plane = Plane::new(0, 1, config);
    plane.share_board([0]);
    let [old, new] = [3, 4].map(|cid| CommKey { cid, epoch: 0 });
    plane.add_comm(old, Group::world(1), 0);
    plane.add_comm(new, Group::world(1), 0);
    assert!(plane.post(old, 0, 5, &board));
    assert_eq!(plane.look(old, 0, &board), Look::Decided(5));
    assert!(!plane.post(new, 0, 6, &board), "the one slot is taken");
    plane.free_comm(old, 0);
    assert!(plane.post(new, 0, 6, &board));
    let posted = || words.iter().map(|word| word.load(std::sync::atomic::Ordering::Relaxed));
    let before: Vec<u64> = posted().collect();
    let Some(Effect::Release(slot, key)) = plane.poll_effect() else { panic!("no release") };
    assert_eq!(key, old);
    board.release(slot, 0, key);
    assert!(posted().eq(before), "what the next has posted is gone");
}
