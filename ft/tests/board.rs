//! Slots of the board change hands, and who shares it is left to read of failures on the page.

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

/// Whom the frames go to that the plane has to send.
fn told(plane: &mut Plane) -> Vec<u32> {
    let mut told: Vec<u32> = std::iter::from_fn(|| plane.poll_effect())
        .filter_map(|effect| match effect {
            Effect::Send { to, .. } => Some(to),
            _ => None,
        })
        .collect();
    told.sort_unstable();
    told
}

/// The processes of one host of a job of 8.
const HOST: [u32; 5] = [0, 2, 3, 4, 5];

/// Process 0 of those 8, and whom it tells of the end of 4: on its own host, and on the other.
fn of_eight() -> (Plane, [Vec<u32>; 2]) {
    let config = PlaneConfig { fail_stop: true, ..PlaneConfig::default() };
    let mut all = Plane::new(0, 8, config);
    all.failed(4, 7);
    let neighbours: Vec<u32> = told(&mut all).into_iter().filter(|to| *to != 4).collect();
    let (readers, others) = neighbours.iter().partition(|to| HOST.contains(to));
    let mut plane = Plane::new(0, 8, config);
    plane.share_board(HOST);
    (plane, [readers, others])
}

#[test]
fn who_reads_the_page_is_told_later() {
    let (mut plane, [readers, others]) = of_eight();
    assert!(!readers.is_empty() && !others.is_empty(), "{readers:?} and {others:?}");
    let later = 7 + PlaneConfig::default().page_first;
    plane.failed_by_page(4, 7);
    assert_eq!(without(told(&mut plane), 4), others);
    assert_eq!(plane.next_deadline(), Some(later));
    plane.tick(later - 1);
    assert_eq!(told(&mut plane), []);
    plane.tick(later);
    assert_eq!(told(&mut plane), readers);
    assert_eq!(plane.next_deadline(), None);
    plane.tick(later + 1_000_000);
    assert_eq!(told(&mut plane), []);
}

#[test]
fn what_does_not_stand_on_the_page_is_told_at_once_with_what_does() {
    let (mut plane, [readers, others]) = of_eight();
    plane.failed_by_page(4, 7);
    assert_eq!(without(told(&mut plane), 4), others);
    // Of another host, as the detector says: later than the gap between two notices.
    let now = 7 + PlaneConfig::default().notice_gap;
    plane.failed(1, now);
    let told = without(told(&mut plane), 1);
    assert!(readers.iter().all(|reader| told.contains(reader)), "{told:?}");
    assert_eq!(plane.next_deadline(), None);
}

#[test]
fn who_shares_no_board_is_told_at_once() {
    let (_, [readers, others]) = of_eight();
    let mut plane = Plane::new(0, 8, PlaneConfig::default());
    plane.share_board(HOST); // nobody promises that the dead have stopped
    plane.failed_by_page(4, 7);
    let mut all = [readers, others].concat();
    all.sort_unstable();
    assert_eq!(without(told(&mut plane), 4), all);
}

/// The dead one is told, too: should it live, it has to stop.
fn without(told: Vec<u32>, dead: u32) -> Vec<u32> {
    assert!(told.contains(&dead));
    told.into_iter().filter(|to| *to != dead).collect()
}
