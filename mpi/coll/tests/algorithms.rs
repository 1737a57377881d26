//! Every algorithm against an oracle: all processes' schedules in one thread, for many sizes, roots, amounts, hosts and
//! kinds of reductions, in place and not.

mod util;

use ironweave_coll::algorithm::{Allreduce, Barrier, Bcast, Reduce};
use ironweave_coll::{Call, Config, Elements, Place, Root, plan};
use util::interpreter::{POISON, Stats, World};
use util::{COUNTS, Kind, hosts, pattern, places, roots, schedules, sizes};

fn none(size: u32) -> Vec<Vec<u8>> {
    vec![Vec::new(); size as usize]
}

fn poison(size: u32, len: usize) -> Vec<Vec<u8>> {
    vec![vec![POISON; len]; size as usize]
}

/// Segments so short that the data tried here has many.
fn config() -> Config {
    Config { segment: 64, ..Config::default() }
}

/// What was tried, for messages.
macro_rules! check {
    ($got:expr, $want:expr, $($what:tt)*) => {
        if $got != $want {
            panic!("wrong result: {}", format!($($what)*));
        }
    };
}

/// Everybody's barrier: the number of messages, and that nobody leaves before everybody came.
fn barrier(places: &[Place], config: &Config) -> Stats {
    let all = schedules(places, |place| plan(&Call::Barrier, place, config));
    let size = places.len();
    // Each process that does not come at all holds up everybody else.
    for missing in [0, size / 2, size - 1] {
        if size > 1 {
            let mut some = all.clone();
            some[missing] =
                plan(&Call::Bcast { root: Root::Rank(0), len: 0 }, &places[missing], config)
                    .expect("a call without data has no steps");
            let world = World::new(places, some, none(size as u32), none(size as u32), util::add);
            assert!(
                world.run(1).is_err(),
                "somebody left a barrier although {missing} did not come"
            );
        }
    }
    let world = World::new(places, all, none(size as u32), none(size as u32), util::add);
    world.run(7).expect("it ends").1
}

#[test]
fn barriers() {
    for size in sizes() {
        for hosts in hosts(size) {
            for algorithm in Barrier::ALL.iter().copied().map(Some).chain([None]) {
                let config = Config { barrier: algorithm, ..config() };
                let stats = barrier(&places(size, hosts.as_deref()), &config);
                let rounds = size.next_power_of_two().ilog2() as usize;
                match algorithm {
                    Some(Barrier::Dissemination) => {
                        assert_eq!((stats.rounds, stats.most_sent), (rounds, rounds));
                    }
                    Some(Barrier::Tree) => {
                        assert_eq!(stats.messages, 2 * (size as usize - 1));
                        assert!(stats.rounds <= 2 * rounds);
                    }
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn broadcasts() {
    for size in sizes() {
        for hosts in hosts(size) {
            let places = places(size, hosts.as_deref());
            for algorithm in Bcast::ALL.iter().copied().map(Some).chain([None]) {
                for root in roots(size) {
                    for len in COUNTS {
                        let config = Config { bcast: algorithm, ..config() };
                        let call = Call::Bcast { root: Root::Rank(root), len };
                        let all = schedules(&places, |place| plan(&call, place, &config));
                        let mut recv = poison(size, len);
                        recv[root as usize] = pattern(root, 0, len);
                        let world = World::new(&places, all, none(size), recv, util::add);
                        let what =
                            format!("{algorithm:?} of {len} from {root} of {size}, {hosts:?}");
                        let (out, stats) =
                            world.run(len as u64).unwrap_or_else(|e| panic!("{what}: {e}"));
                        let want = vec![pattern(root, 0, len); size as usize];
                        check!(out, want, "{what}");
                        if algorithm == Some(Bcast::Binomial) && len > 0 {
                            let rounds = size.next_power_of_two().ilog2() as usize;
                            assert_eq!(stats.messages, size as usize - 1);
                            assert!(stats.most_sent <= rounds);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn reductions_at_a_root_are_in_the_table_of_allreduce() {
    // `reduce` as a call of its own is tried in `reductions`; here every algorithm below an allreduce.
    for size in sizes() {
        for hosts in hosts(size) {
            let places = places(size, hosts.as_deref());
            for algorithm in Reduce::ALL {
                let config = Config {
                    reduce: Some(*algorithm),
                    allreduce: Some(Allreduce::ReduceBcast),
                    ..config()
                };
                for kind in Kind::ALL {
                    allreduce(&places, &config, kind, 13, hosts.as_deref());
                }
            }
        }
    }
}

fn allreduce(places: &[Place], config: &Config, kind: Kind, count: usize, hosts: Option<&[u32]>) {
    let size = places.len() as u32;
    let elements = Elements { count, extent: kind.extent(), commutative: kind == Kind::Numbers };
    let want = vec![kind.result(0..size, count); size as usize];
    for in_place in [false, true] {
        let call = Call::Allreduce { elements, in_place };
        let all = schedules(places, |place| plan(&call, place, config));
        let data: Vec<_> = (0..size).map(|rank| kind.of(rank, count)).collect();
        let (send, recv) = match in_place {
            true => (none(size), data),
            false => (data, poison(size, count * kind.extent())),
        };
        let world = World::new(places, all, send, recv, kind.apply());
        let what = || {
            let Config { allreduce, reduce, .. } = config;
            format!(
                "{allreduce:?} ({reduce:?}) of {count} {kind:?}, {size} ranks, in place {in_place}, {hosts:?}"
            )
        };
        let (out, stats) = world.run(count as u64).unwrap_or_else(|e| panic!("{}: {e}", what()));
        check!(out, want, "{}", what());
        let rounds = size.next_power_of_two().ilog2() as usize + 1;
        match config.allreduce {
            Some(Allreduce::RecursiveDoubling) => {
                assert!(stats.rounds <= rounds && stats.most_sent <= rounds)
            }
            Some(Allreduce::Rabenseifner) => assert!(stats.rounds <= 2 * rounds),
            _ => {}
        }
    }
}

#[test]
fn reductions_for_everybody() {
    for size in sizes() {
        for hosts in hosts(size) {
            let places = places(size, hosts.as_deref());
            for algorithm in Allreduce::ALL.iter().copied().map(Some).chain([None]) {
                let config = Config { allreduce: algorithm, ..config() };
                for kind in Kind::ALL {
                    for count in COUNTS {
                        allreduce(&places, &config, kind, count, hosts.as_deref());
                    }
                }
            }
        }
    }
}
