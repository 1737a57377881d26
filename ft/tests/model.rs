//! Every schedule of a few planes: all orders of arrival, deaths at every moment with every loss of what was under way,
//! all orders of detection. Depth first, states that were seen are not seen again (64-bit hashes of them are kept).
//!
//! **Reductions**, each on top of the one before; `the_reductions_hide_nothing` compares what all of them come to.
//!
//! [`Reduce::Hidden`]. An arrival that nobody can see (no frame sent, nothing reported: the process merely notes it) commutes
//! with everything that others do and with what the process itself does next, up to notes that are dropped with their
//! view; so where there is one, only it is explored.
//!
//! [`Reduce::Fused`], for agreements whose deaths everybody detects, begun before anything else happens:
//! - *Losses come with detection.* A frame of a dead process that arrives after its receiver knows of the death is dropped by
//!   the receiver. So a frame that was lost is one that is still under way then: a crash loses nothing, a
//!   detection drops what is left on that channel.
//! - *A process dies right after something that others can see, or before everything.* What a process notes and
//!   does not tell dies with it, and what others do between its last visible step and its death does not depend on
//!   whether it lives: what they send to it is dropped in both cases. So each death is moved to the front, up to that step.
//! - *Who has returned answers at once.* Its state does not change any more, its answer to a frame depends on the frame alone,
//!   and its answers go to different processes; so what arrives there commutes with everything, but for its own death, which is
//!   tried after each answer. An answer that is never given because it died before is one that is lost. Its detections hide.
//! - *Process 0 dies first.* The exchange and its views are the same from every place of the ring, nothing depends on values of
//!   contributions but what is returned, and what is checked of that does not depend on the place.
//!
//! Budget: `IRONWEAVE_FT_MODEL=full` explores everything; without, each part stops after so many states that all take some
//! seconds, and says so.

mod net;

use net::{Event, Net, Setting};
use std::collections::HashSet;
use std::time::Instant;

/// What is left out, see above.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Reduce {
    Nothing,
    Hidden,
    Fused,
}

struct Explored {
    states: usize,
    /// Up to a rotation of the ranks.
    outcomes: HashSet<u64>,
    complete: bool,
}

/// A state, what led to it from the one before, and how many may still die.
struct Place {
    net: Net,
    by: [Option<Event>; 2],
    deaths: u32,
    /// Nothing has happened yet but deaths.
    fresh: bool,
}

impl Place {
    fn after(&self, event: Event) -> (Place, bool) {
        let mut net = self.net.clone();
        let visible = net.happen(event);
        let crash = matches!(event, Event::Crash(..) | Event::Falter(..));
        let deaths = self.deaths - u32::from(crash);
        (Place { net, by: [Some(event), None], deaths, fresh: self.fresh && crash }, visible)
    }

    /// The processes that may die now.
    fn mortal(&self, reduce: Reduce) -> Vec<u32> {
        let mut sound = self.net.all_sound();
        if self.deaths == 0 || sound.len() < 2 {
            return Vec::new();
        }
        if reduce == Reduce::Fused && sound.len() == self.net.size() as usize {
            sound.truncate(1);
        }
        sound
    }

    /// Every state that can be next, as far as it has to be looked at.
    fn next(&self, reduce: Reduce) -> Vec<Place> {
        let (mut next, fused) = (Vec::new(), reduce == Reduce::Fused);
        for event in self.net.possible() {
            let (after, visible) = self.after(event);
            let (arrival, at) = match event {
                Event::Deliver(_, at) => (true, at),
                Event::Detect(at, _)
                | Event::Contribute(at)
                | Event::Look(at)
                | Event::Hear(at)
                | Event::Join(at)
                | Event::Revoke(at) => (false, at),
                Event::Crash(..) | Event::Falter(..) | Event::Accuse(..) => {
                    unreachable!("these are rationed")
                }
            };
            let hides = !visible && (fused || (arrival && reduce == Reduce::Hidden));
            let answers = fused && arrival && self.net.has_ended(at);
            if hides || answers {
                next.clear();
            }
            if fused && visible && after.mortal(reduce).contains(&at) {
                let (mut dead, _) = after.after(Event::Crash(at, 0));
                dead.by = [Some(event), Some(Event::Crash(at, 0))];
                next.push(dead);
            }
            next.push(after);
            if hides || answers {
                return next;
            }
        }
        if !fused || self.fresh {
            for process in self.mortal(reduce) {
                if self.net.may_falter(process) {
                    next.push(self.after(Event::Falter(process)).0);
                }
                let losses = if fused { 1 } else { self.net.losses(process) };
                next.extend((0..losses).map(|loss| self.after(Event::Crash(process, loss)).0));
            }
        }
        next
    }
}

/// Explores everything from `setting` with up to `deaths`, or as far as `limit` states. Panics with the schedule when a
/// law is broken.
fn explore(name: &str, setting: &Setting, deaths: u32, reduce: Reduce, limit: usize) -> Explored {
    let start = Instant::now();
    let fused = reduce == Reduce::Fused;
    assert!(!fused || (setting.at_once && setting.all_detect && setting.mute), "see above");
    let setting = Setting { purge: fused, ..setting.clone() };
    let first = Place { net: Net::new(setting.clone()), by: [None; 2], deaths, fresh: true };
    let mut seen = HashSet::from([first.net.fingerprint()]);
    let mut outcomes = HashSet::new();
    // Each with what is still to be explored from it.
    let mut stack = vec![(first.next(reduce), first)];
    let mut complete = true;
    while let Some((places, _)) = stack.last_mut() {
        let Some(mut after) = places.pop() else {
            stack.pop();
            continue;
        };
        if after.net.broken.is_none() {
            if !seen.insert(after.net.fingerprint()) {
                continue;
            }
            if after.net.possible().is_empty() {
                after.net.check_end();
                outcomes.insert(after.net.outcome_on_the_ring());
            }
        }
        if let Some(broken) = &after.net.broken {
            let places = stack.iter().map(|entry| &entry.1).chain([&after]);
            let trace: Vec<Event> = places.flat_map(|place| place.by).flatten().collect();
            panic!("{name}: {broken}\nby {trace:?}\nfrom {setting:?}");
        }
        if seen.len() >= limit {
            complete = false;
            break;
        }
        if seen.len().is_multiple_of(10_000_000) {
            println!("{name}: {} states so far", seen.len());
        }
        stack.push((after.next(reduce), after));
    }
    println!(
        "{name}: {} states, {} outcomes, {} in {:.1} s",
        seen.len(),
        outcomes.len(),
        if complete { "complete" } else { "cut off" },
        start.elapsed().as_secs_f64()
    );
    Explored { states: seen.len(), outcomes, complete }
}

fn full() -> bool {
    std::env::var("IRONWEAVE_FT_MODEL").is_ok_and(|value| value == "full")
}

fn limit(states: usize) -> usize {
    if full() { usize::MAX } else { states }
}

fn agreement(size: u32, fan: u32) -> Setting {
    Setting {
        size,
        fan,
        agreements: 1,
        at_once: true,
        revokers: Vec::new(),
        all_detect: true,
        mute: true,
        purge: false,
        outlive: false,
        board: false,
        aside: 0,
        late: 0,
        hashed: true,
    }
}

fn revocation(size: u32, revokers: &[u32]) -> Setting {
    Setting {
        size,
        fan: 2,
        agreements: 0,
        at_once: true,
        revokers: revokers.to_vec(),
        all_detect: false,
        mute: false,
        purge: false,
        outlive: false,
        board: false,
        aside: 0,
        late: 0,
        hashed: true,
    }
}

#[test]
fn agreement_of_three() {
    // Contributions at any moment; failures spread by notices, too.
    let free = Setting { at_once: false, ..agreement(3, 2) };
    explore("agreement of 3, 2 deaths", &free, 2, Reduce::Nothing, limit(150_000));
    let notices = Setting { mute: false, all_detect: false, ..free };
    let name = "agreement of 3, 2 deaths, with notices";
    explore(name, &notices, 2, Reduce::Nothing, limit(150_000));
    let two = Setting { agreements: 2, ..agreement(3, 2) };
    explore("two agreements of 3, 2 deaths", &two, 2, Reduce::Fused, limit(100_000));
}

#[test]
fn agreement_of_four() {
    for fan in [2, 4] {
        let name = format!("agreement of 4, fan {fan}, 3 deaths");
        explore(&name, &agreement(4, fan), 3, Reduce::Fused, limit(100_000));
    }
}

#[test]
fn agreement_of_five() {
    for fan in [2, 4] {
        for deaths in [2, 3] {
            let name = format!("agreement of 5, fan {fan}, {deaths} deaths");
            explore(&name, &agreement(5, fan), deaths, Reduce::Fused, limit(100_000));
        }
    }
    if full() {
        let name = "agreement of 5, fan 4, 4 deaths";
        explore(name, &agreement(5, 4), 4, Reduce::Fused, usize::MAX);
    }
}

/// Messages outlive their senders: two living members agree by one message each, whoever else dies when.
#[test]
fn agreement_of_two_whose_messages_outlive_them() {
    let part = |name: &str, setting: Setting, deaths, reduce, most| {
        let setting = Setting { outlive: true, ..setting };
        let name = format!("{name} of {}, {deaths} deaths, messages outlive senders", setting.size);
        explore(&name, &setting, deaths, reduce, limit(most));
    };
    let free = |size| Setting { at_once: false, ..agreement(size, 2) };
    let notices = |size| Setting { mute: false, all_detect: false, ..free(size) };
    let three = |setting| Setting { agreements: 3, ..setting };
    part("agreement", free(2), 1, Reduce::Nothing, usize::MAX);
    part("three agreements", three(free(2)), 1, Reduce::Nothing, usize::MAX);
    part("three agreements with notices", three(notices(2)), 1, Reduce::Nothing, usize::MAX);
    part("agreement", free(3), 2, Reduce::Nothing, 100_000);
    part("agreement with notices", notices(3), 2, Reduce::Nothing, 100_000);
    part("two agreements", Setting { agreements: 2, ..free(3) }, 2, Reduce::Hidden, 100_000);
    part("agreement", agreement(4, 4), 3, Reduce::Hidden, 100_000);
    part(
        "agreement with notices",
        Setting { at_once: true, ..notices(4) },
        2,
        Reduce::Hidden,
        50_000,
    );
}

/// Flags are posted on a board; whoever dies when, and whoever takes the general way from the start.
#[test]
fn agreement_by_the_board() {
    let part = |name: &str, setting: Setting, deaths, reduce, most| {
        let (size, aside) = (setting.size, setting.aside);
        let name = format!("{name} of {size} by the board but {aside:b}, {deaths} deaths");
        explore(&name, &setting, deaths, reduce, limit(most));
    };
    let board = |size, agreements| Setting {
        at_once: false,
        outlive: true,
        board: true,
        agreements,
        ..agreement(size, 2)
    };
    let notices = |setting| Setting { mute: false, all_detect: false, ..setting };
    let aside = |setting| Setting { aside: 0b10, ..setting };
    part("three agreements", board(2, 3), 1, Reduce::Nothing, usize::MAX);
    part("three agreements with notices", notices(board(2, 3)), 1, Reduce::Nothing, usize::MAX);
    part("three agreements", aside(board(2, 3)), 1, Reduce::Nothing, usize::MAX);
    part("agreement", board(3, 1), 2, Reduce::Nothing, 100_000);
    part("agreement", aside(board(3, 1)), 2, Reduce::Nothing, 100_000);
    part("agreement with notices", notices(board(3, 1)), 2, Reduce::Nothing, 100_000);
    part("two agreements", board(3, 2), 2, Reduce::Hidden, 100_000);
    part("three agreements with notices", notices(aside(board(3, 3))), 1, Reduce::Hidden, 50_000);
    part("agreement", board(4, 1), 3, Reduce::Hidden, usize::MAX);
    part("agreement", aside(board(4, 1)), 2, Reduce::Hidden, usize::MAX);
    part("agreement with notices", notices(board(5, 1)), 2, Reduce::Hidden, 50_000);
}

#[test]
fn revocation_of_three_to_five() {
    let part = |size, revokers: &[u32], deaths, reduce, most| {
        let name = format!("revocation of {size} by {revokers:?}, {deaths} deaths");
        explore(&name, &revocation(size, revokers), deaths, reduce, limit(most));
    };
    part(3, &[0], 2, Reduce::Nothing, 50_000);
    part(4, &[0, 2], 2, Reduce::Hidden, 50_000);
    part(5, &[0], 2, Reduce::Hidden, usize::MAX);
    if full() {
        part(5, &[0], 3, Reduce::Hidden, usize::MAX);
    }
}

/// Revoked by a store and the ring of a bell: whoever dies when, also between the two, whoever sends messages instead, and whoever
/// gets the communicator later.
#[test]
fn revocation_by_the_board() {
    let part = |size, revokers: &[u32], aside, late, deaths, reduce, most| {
        let setting =
            Setting { outlive: true, board: true, aside, late, ..revocation(size, revokers) };
        let name = format!(
            "revocation of {size} by {revokers:?}, by the board but {aside:b}, late {late:b}, {deaths} deaths"
        );
        // Five are too many for all schedules.
        let limit = if size == 5 && full() { 10 * most } else { limit(most) };
        explore(&name, &setting, deaths, reduce, limit);
    };
    part(2, &[0, 1], 0, 0b10, 1, Reduce::Nothing, usize::MAX);
    part(3, &[0], 0, 0b110, 2, Reduce::Nothing, 100_000);
    part(3, &[0, 1], 0, 0, 2, Reduce::Nothing, 100_000);
    part(3, &[0, 1], 0b10, 0b100, 1, Reduce::Nothing, 100_000);
    part(4, &[0, 2], 0b1, 0b1000, 2, Reduce::Nothing, 50_000);
    part(4, &[0], 0, 0, 3, Reduce::Nothing, 100_000);
    part(5, &[0, 1], 0, 0b11000, 2, Reduce::Nothing, 50_000);
}

#[test]
fn the_reductions_hide_nothing() {
    use Reduce::{Fused, Hidden, Nothing};
    let early = Setting { at_once: false, ..agreement(3, 2) };
    let two = Setting { agreements: 2, ..agreement(3, 2) };
    let mut settings = vec![
        (agreement(3, 2), 2, vec![Nothing, Hidden, Fused]),
        (early, 2, vec![Nothing, Hidden]),
        (revocation(3, &[0, 1]), 2, vec![Nothing, Hidden]),
        (agreement(4, 4), 1, vec![Hidden, Fused]),
    ];
    if full() {
        settings.extend([
            (agreement(4, 4), 1, vec![Nothing, Hidden, Fused]),
            (two, 2, vec![Nothing, Hidden, Fused]),
            (revocation(4, &[0]), 2, vec![Nothing, Hidden]),
            (agreement(4, 4), 3, vec![Hidden, Fused]),
            (agreement(4, 2), 3, vec![Hidden, Fused]),
            (agreement(5, 2), 2, vec![Hidden, Fused]),
        ]);
    }
    for (setting, deaths, ways) in settings {
        let name = |how| format!("{how:?} of {} and {deaths} deaths", setting.size);
        let all: Vec<Explored> = ways
            .iter()
            .map(|how| explore(&name(how), &setting, deaths, *how, usize::MAX))
            .collect();
        for pair in all.windows(2) {
            assert!(pair[0].complete && pair[1].complete && pair[1].states <= pair[0].states);
            assert_eq!(pair[0].outcomes, pair[1].outcomes);
        }
    }
}
