//! Random schedules of a few planes: any order of arrival, death at any moment, also with what was sent last lost.
//! Seed by seed; `IRONWEAVE_FT_SEED=n` runs one again, `IRONWEAVE_FT_SCHEDULES=n` how many.

mod net;

use net::{Event, Net, Setting};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// One random schedule; what was done, and what broke.
fn run(seed: u64) -> Result<(), String> {
    let mut random = SmallRng::seed_from_u64(seed);
    let size =
        if random.random() { random.random_range(1..=24u32) } else { random.random_range(2..=4) };
    let revokers = (0..random.random_range(0..3)).map(|_| random.random_range(0..size)).collect();
    let outlive = random.random_ratio(1, 3);
    let board = outlive && random.random_ratio(2, 3);
    let setting = Setting {
        size,
        fan: random.random_range(2..=5),
        agreements: random.random_range(1..=3),
        at_once: !board && random.random(),
        revokers,
        all_detect: random.random(),
        mute: false,
        purge: false,
        outlive,
        board,
        aside: if random.random_ratio(1, 3) { random.random() } else { 0 },
        late: if board && random.random_ratio(1, 3) {
            random.random::<u32>() & ((1 << size) - 1)
        } else {
            0
        },
        hashed: false,
    };
    let mut net = Net::new(setting.clone());
    let mut deaths = random.random_range(0..size).min(random.random_range(0..=12));
    // One process may be held for dead though it lives.
    let mut accusation = size > 2 && !outlive && random.random_ratio(1, 4);
    let mut trace = Vec::new();
    loop {
        let mut events = net.possible();
        let sound = net.all_sound();
        if events.is_empty() && deaths == 0 {
            break;
        }
        let event = if sound.len() > 1 && deaths > 0 && random.random_ratio(1, 12) {
            deaths -= 1;
            let who = sound[random.random_range(0..sound.len())];
            match net.may_falter(who) && random.random() {
                true => Event::Falter(who),
                false => Event::Crash(who, random.random_range(0..net.losses(who).max(1))),
            }
        } else if accusation && sound.len() > 2 && random.random_ratio(1, 60) {
            accusation = false;
            let (who, by) =
                (random.random_range(0..sound.len()), random.random_range(1..sound.len()));
            Event::Accuse(sound[(who + by) % sound.len()], sound[who])
        } else if events.is_empty() {
            deaths = 0;
            continue;
        } else {
            // Knowledge by one's own detector comes late, as often as not.
            if random.random_ratio(2, 3)
                && events.iter().any(|event| !matches!(event, Event::Detect(..)))
            {
                events.retain(|event| !matches!(event, Event::Detect(..)));
            }
            events[random.random_range(0..events.len())]
        };
        trace.push(event);
        net.happen(event);
        if let Some(broken) = &net.broken {
            return Err(format!("{broken}\nafter {} of {setting:?}: {trace:?}", trace.len()));
        }
    }
    net.check_end();
    net.broken
        .map_or(Ok(()), |broken| Err(format!("{broken}\nin the end of {setting:?}: {trace:?}")))
}

#[test]
fn random_schedules_end_and_agree() {
    let seeds = match number("IRONWEAVE_FT_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("IRONWEAVE_FT_SCHEDULES").unwrap_or(800),
    };
    for seed in seeds {
        if let Err(why) = run(seed) {
            panic!(
                "seed {seed}: {why}\nreplay: IRONWEAVE_FT_SEED={seed} cargo nextest run -p ironweave-ft random_schedules"
            );
        }
    }
}
