//! Every schedule of a few planes: all orders of arrival, deaths at every moment with every loss of what was under way,
//! all orders of detection. Depth first, states that were seen are not seen again.
//!
//! **Reduction.** An arrival that nobody can see (no frame sent, nothing reported: the process merely notes it) commutes
//! with everything that others do and with what the process itself does next, up to notes that are dropped with their
//! view; so where there is one, only it is explored. `whole` explores without this, and
//! `the_reduction_hides_nothing` compares what both come to.
//!
//! Budget: `IRONWEAVE_FT_MODEL=full` explores everything; without, each part stops after so many states that all take some
//! seconds, and says so.

mod net;

use net::{Event, Net, Setting};
use std::collections::HashSet;
use std::time::Instant;

struct Explored {
    states: usize,
    outcomes: HashSet<u64>,
    complete: bool,
}

/// What can happen next, deaths included.
fn next(net: &Net, deaths: u32) -> Vec<Event> {
    let mut events = net.possible();
    let sound = net.all_sound();
    if deaths > 0 && sound.len() > 1 {
        for process in sound {
            events.extend((0..net.losses(process)).map(|loss| Event::Crash(process, loss)));
        }
    }
    events
}

/// Explores everything from `setting` with up to `deaths`, or as far as `limit` states. Panics with the schedule when a
/// law is broken.
fn explore(name: &str, setting: Setting, deaths: u32, reduce: bool, limit: usize) -> Explored {
    let start = Instant::now();
    let first = Net::new(setting.clone());
    let mut seen = HashSet::from([first.fingerprint()]);
    let mut outcomes = HashSet::new();
    // Each with what is still to be explored from it, and the event that led to it.
    let mut stack = vec![(next(&first, deaths), first, deaths, None::<Event>)];
    let mut complete = true;
    while let Some((events, net, deaths, _)) = stack.last_mut() {
        let Some(event) = events.pop() else {
            stack.pop();
            continue;
        };
        let mut after = net.clone();
        let visible = after.happen(event);
        if reduce && !visible && matches!(event, Event::Deliver(..)) {
            events.clear();
        }
        let deaths = *deaths - u32::from(matches!(event, Event::Crash(..)));
        if after.broken.is_none() {
            if !seen.insert(after.fingerprint()) {
                continue;
            }
            if after.possible().is_empty() {
                after.check_end();
                outcomes.insert(after.outcome());
            }
        }
        if let Some(broken) = &after.broken {
            let trace: Vec<Event> =
                stack.iter().filter_map(|entry| entry.3).chain([event]).collect();
            panic!("{name}: {broken}\nby {trace:?}\nfrom {setting:?}");
        }
        if seen.len() >= limit {
            complete = false;
            break;
        }
        let mut events = next(&after, deaths);
        if reduce {
            // Arrivals first: if one is invisible, the others need not be tried.
            events.sort_by_key(|event| matches!(event, Event::Deliver(..)));
            hidden_first(&after, &mut events);
        }
        stack.push((events, after, deaths, Some(event)));
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

/// Puts an arrival that nobody can see last, where it is taken first.
fn hidden_first(net: &Net, events: &mut [Event]) {
    let hidden = events
        .iter()
        .rposition(|event| matches!(event, Event::Deliver(..)) && !net.clone().happen(*event));
    if let (Some(at), Some(last)) = (hidden, events.len().checked_sub(1)) {
        events.swap(at, last);
    }
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
        hashed: true,
    }
}

#[test]
fn agreement_of_three() {
    // Contributions at any moment; failures spread by notices, too.
    let free = Setting { at_once: false, ..agreement(3, 2) };
    explore("agreement of 3, 2 deaths", free.clone(), 2, false, limit(150_000));
    let notices = Setting { mute: false, all_detect: false, ..free };
    explore("agreement of 3, 2 deaths, with notices", notices, 2, false, limit(150_000));
    let two = Setting { agreements: 2, ..agreement(3, 2) };
    explore("two agreements of 3, 2 deaths", two, 2, true, limit(100_000));
}

#[test]
fn agreement_of_four() {
    for fan in [2, 4] {
        explore(
            &format!("agreement of 4, fan {fan}, 3 deaths"),
            agreement(4, fan),
            3,
            true,
            limit(40_000),
        );
    }
}

#[test]
fn agreement_of_five() {
    for fan in [2, 4] {
        explore(
            &format!("agreement of 5, fan {fan}, 2 deaths"),
            agreement(5, fan),
            2,
            true,
            limit(40_000),
        );
    }
    if full() {
        explore("agreement of 5, fan 2, 3 deaths", agreement(5, 2), 3, true, usize::MAX);
    }
}

#[test]
fn revocation_of_three_to_five() {
    explore("revocation of 3, 2 deaths", revocation(3, &[0]), 2, false, limit(50_000));
    explore("revocation of 4, 2 deaths", revocation(4, &[0, 2]), 2, true, limit(50_000));
    explore("revocation of 5, 2 deaths", revocation(5, &[0]), 2, true, limit(100_000));
    if full() {
        explore("revocation of 5, 3 deaths", revocation(5, &[0]), 3, true, usize::MAX);
    }
}

#[test]
fn the_reduction_hides_nothing() {
    let mut settings = vec![
        (agreement(3, 2), 2),
        (Setting { at_once: false, ..agreement(3, 2) }, 2),
        (revocation(3, &[0, 1]), 2),
    ];
    if full() {
        settings.extend([(agreement(4, 4), 2), (agreement(4, 2), 2), (revocation(4, &[0]), 2)]);
    }
    for (setting, deaths) in settings {
        let whole = explore("whole", setting.clone(), deaths, false, usize::MAX);
        let reduced = explore("reduced", setting, deaths, true, usize::MAX);
        assert!(whole.complete && reduced.complete && reduced.states <= whole.states);
        assert_eq!(whole.outcomes, reduced.outcomes);
    }
}
