//! Every algorithm against an oracle: all processes' schedules in one thread, for many sizes, roots, amounts, hosts and
//! kinds of reductions, in place and not.

mod util;

use ironweave_coll::algorithm::{
    Allgather, Allreduce, Alltoall, Barrier, Bcast, Gather, Reduce, ReduceScatter, Scan, Scatter,
};
use ironweave_coll::{Call, Config, Neighbors, Pairing, Place, Root, Schedule, plan};
use proptest::prelude::*;
use std::collections::BTreeSet;
use util::case::{Case, Shape, Who};
use util::interpreter::{Stats, World};
use util::oracle::{Buffers, after};
use util::{COUNTS, Kind, hosts, inter_places, places, roots, sizes};

/// Segments so short that the data tried here has many.
fn config() -> Config {
    Config { segment: 64, ..Config::default() }
}

/// Runs a case, and compares with the oracle.
fn check(places: &[Place], case: &Case, config: &Config) -> Stats {
    let everybody = Who::all(places);
    let what = || format!("{case:?}\n{config:?}\nfirst of {}: {:?}", places.len(), places[0]);
    let schedules: Vec<Schedule> = everybody
        .iter()
        .map(|who| {
            let made = plan(&case.call(*who), who.place, config);
            made.unwrap_or_else(|error| panic!("{error} at {who:?}\n{}", what()))
        })
        .collect();
    let before: Vec<Buffers> = everybody
        .iter()
        .zip(&schedules)
        .map(|(who, schedule)| case.before(*who, schedule.sizes().send, schedule.sizes().recv))
        .collect();
    let want = after(case, &everybody, &before);
    let (send, recv) = before.into_iter().unzip();
    let world = World::new(places, schedules, send, recv, case.kind.apply());
    let (got, stats) =
        world.run(case.count as u64).unwrap_or_else(|error| panic!("{error}\n{}", what()));
    if got != want {
        let wrong: Vec<usize> = (0..got.len()).filter(|&at| got[at] != want[at]).collect();
        panic!("wrong at {wrong:?}\n{}", what());
    }
    stats
}

/// Amounts such that what all processes have is tried in reasonable time. In large worlds it is the rounds that differ.
fn counts(shape: Shape, size: u32) -> BTreeSet<usize> {
    let most = match shape {
        Shape::ReduceScatterBlock | Shape::ReduceScatter => 200 / size as usize,
        _ if shape.is_reduction() => 1000 / size as usize,
        Shape::Alltoall | Shape::Alltoallv => 4000 / size as usize,
        _ if shape.is_along_edges() => 4000 / size as usize,
        _ => usize::MAX,
    };
    let large = if size > 17 { &[1, 13][..] } else { &COUNTS };
    large.iter().map(|&count| count.min(most)).collect()
}

/// Tries a collective with these configurations on all worlds.
fn every(shape: Shape, configs: &[Config]) {
    for size in sizes() {
        let by_host =
            if shape == Shape::Bcast || shape.is_reduction() { hosts(size) } else { vec![None] };
        for hosts in by_host {
            let places = places(size, hosts.as_deref());
            let counts = counts(shape, size);
            let roots = if shape.is_rooted() { roots(size) } else { vec![0] };
            for config in configs {
                for &root in &roots {
                    for &count in &counts {
                        for in_place in [false, true] {
                            for kind in Kind::ALL {
                                let skipped = in_place && !shape.has_in_place()
                                    || kind == Kind::Ranges && !shape.is_reduction();
                                if !skipped {
                                    let salt = root * 5 + size + count as u32;
                                    let case = Case { shape, root, count, kind, in_place, salt };
                                    check(&places, &case, config);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// All algorithms of a collective, and the table's choice.
macro_rules! configs {
    ($collective:ident: $name:ident) => {
        $name::ALL
            .iter()
            .map(|&algorithm| Config { $collective: Some(algorithm), ..config() })
            .chain([config()])
            .collect::<Vec<_>>()
    };
}

/// The number of rounds that a logarithmic algorithm has.
fn log(size: u32) -> usize {
    size.next_power_of_two().ilog2() as usize
}

/// Everybody's barrier, and that nobody leaves before everybody came.
fn barrier(places: &[Place], config: &Config) -> Stats {
    let call = |place| plan(&Call::Barrier, place, config).expect("nothing can be wrong");
    let all: Vec<Schedule> = places.iter().map(call).collect();
    let none = vec![Vec::new(); places.len()];
    let first = places[0].size() as usize;
    for missing in [0, places.len() / 2, places.len() - 1] {
        // Each process that does not come at all holds up those that wait for it.
        let mut some = all.clone();
        let nothing = Call::Alltoall { len: 0, block: 0, in_place: false };
        some[missing] = plan(&nothing, &places[missing], config).expect("nothing can be wrong");
        let world = World::new(places, some, none.clone(), none.clone(), util::add);
        let left = world.who_ends(1);
        let waits_for = |number: &usize| match places[0].remote() {
            None => *number != missing,
            Some(_) => (*number < first) != (missing < first),
        };
        let early: Vec<_> = left.into_iter().filter(waits_for).collect();
        assert!(early.is_empty(), "{early:?} left although {missing} did not come");
    }
    let world = World::new(places, all, none.clone(), none, util::add);
    world.run(7).expect("it ends").1
}

#[test]
fn barriers() {
    for size in sizes() {
        for hosts in hosts(size) {
            for config in configs!(barrier: Barrier) {
                let stats = barrier(&places(size, hosts.as_deref()), &config);
                match config.barrier {
                    Some(Barrier::Dissemination) => {
                        assert_eq!((stats.rounds, stats.most_sent), (log(size), log(size)));
                    }
                    Some(Barrier::Tree) => {
                        assert_eq!(stats.messages, 2 * (size as usize - 1));
                        assert!(stats.rounds <= 2 * log(size));
                    }
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn broadcasts() {
    every(Shape::Bcast, &configs!(bcast: Bcast));
}

#[test]
fn gathers() {
    every(Shape::Gather, &configs!(gather: Gather));
    every(Shape::Gatherv, &[config()]);
}

#[test]
fn scatters() {
    every(Shape::Scatter, &configs!(scatter: Scatter));
    every(Shape::Scatterv, &[config()]);
}

#[test]
fn gathers_for_everybody() {
    every(Shape::Allgather, &configs!(allgather: Allgather));
    every(Shape::Allgatherv, &configs!(allgather: Allgather));
}

#[test]
fn blocks_for_everybody() {
    every(Shape::Alltoall, &configs!(alltoall: Alltoall));
    every(Shape::Alltoallv, &configs!(alltoall: Alltoall));
}

#[test]
fn reductions_at_a_root() {
    every(Shape::Reduce, &configs!(reduce: Reduce));
}

#[test]
fn reductions_for_everybody() {
    every(Shape::Allreduce, &configs!(allreduce: Allreduce));
}

#[test]
fn parts_of_reductions() {
    every(Shape::ReduceScatterBlock, &configs!(reduce_scatter: ReduceScatter));
    every(Shape::ReduceScatter, &configs!(reduce_scatter: ReduceScatter));
}

#[test]
fn prefixes() {
    every(Shape::Scan, &configs!(scan: Scan));
    every(Shape::Exscan, &configs!(scan: Scan));
}

#[test]
fn along_the_edges_of_topologies() {
    for shape in Shape::ALL.into_iter().filter(|shape| shape.is_along_edges()) {
        every(shape, &[config()]);
        // More graphs and grids, of few processes: there most edges are double.
        for size in 1..=6 {
            for salt in 0..60 {
                let kind = Kind::Numbers;
                let case = Case { shape, root: 0, count: 13, kind, in_place: false, salt };
                check(&places(size, None), &case, &config());
            }
        }
    }
}

#[test]
fn between_two_groups() {
    for first in [1, 2, 3, 5, 8] {
        for second in [1, 2, 4, 7] {
            let places = inter_places(first, second);
            barrier(&places, &config());
            for shape in Shape::ALL.into_iter().filter(|shape| shape.is_for_inter()) {
                for root in roots(first) {
                    for count in [0, 1, 13, 997, 6000] {
                        let count = if shape.is_reduction() { count.min(100) } else { count };
                        for kind in Kind::ALL {
                            let salt = first + count as u32;
                            let case = Case { shape, root, count, kind, in_place: false, salt };
                            check(&places, &case, &config());
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn what_is_promised_to_be_logarithmic_is() {
    let config = |set: &[(&str, &str)]| {
        let mut config = config();
        set.iter().for_each(|(name, algorithm)| config.set(name, algorithm).expect("it exists"));
        config
    };
    let doubling = "recursive_doubling";
    // The collective, its algorithm, and what every process may need at most: rounds.
    type Rounds = fn(usize) -> usize;
    let promises: [(Shape, &str, &str, Rounds); 9] = [
        (Shape::Bcast, "bcast", "binomial", |log| log + 1),
        (Shape::Gather, "gather", "binomial", |log| log + 1),
        (Shape::Scatter, "scatter", "binomial", |log| log + 1),
        (Shape::Reduce, "reduce", "binomial", |log| log + 2),
        (Shape::Allreduce, "allreduce", doubling, |log| log + 2),
        (Shape::Allreduce, "allreduce", "rabenseifner", |log| 2 * log + 2),
        (Shape::Allgather, "allgather", "bruck", |log| log),
        (Shape::Alltoall, "alltoall", "bruck", |log| log),
        (Shape::Scan, "scan", doubling, |log| log),
    ];
    for size in sizes().chain([200]) {
        let places = places(size, None);
        for (shape, name, algorithm, rounds) in promises {
            let config = config(&[(name, algorithm)]);
            let kind = Kind::Ranges;
            let case = Case { shape, root: size / 3, count: 3, kind, in_place: false, salt: 0 };
            let stats = check(&places, &case, &config);
            let most = rounds(log(size));
            assert!(stats.rounds <= most, "{shape:?} {algorithm} of {size}: {stats:?}");
            assert!(stats.most_sent <= most, "{shape:?} {algorithm} of {size}: {stats:?}");
        }
    }
}

#[test]
fn long_vectors_are_sent_less_than_twice() {
    let (size, count) = (16, 16_000);
    let places = places(size, None);
    let bytes = |shape, name: &str, algorithm: &str, kind: Kind| {
        let mut config = config();
        config.set(name, algorithm).expect("it exists");
        let case = Case { shape, root: 3, count, kind, in_place: false, salt: 0 };
        check(&places, &case, &config).bytes / size as usize
    };
    for (algorithm, kind) in [("rabenseifner", Kind::Ranges), ("ring", Kind::Numbers)] {
        assert!(bytes(Shape::Allreduce, "allreduce", algorithm, kind) < 2 * count * kind.extent());
    }
    assert!(bytes(Shape::Bcast, "bcast", "scatter_allgather", Kind::Numbers) < 2 * count);
    assert!(bytes(Shape::Bcast, "bcast", "chain", Kind::Numbers) < count);
}

#[test]
fn wrong_arguments_are_answered() {
    let place = Place::intra(1, 3);
    let error = |call: Call| plan(&call, &place, &config()).expect_err("it is wrong").to_string();
    assert_eq!(error(Call::Bcast { root: Root::Rank(3), len: 1 }), "root 3 is not in a group of 3");
    assert!(error(Call::Bcast { root: Root::Me, len: 1 }).contains("intra-communicator"));
    let short = Call::Alltoallv { send: [].into(), recv: [].into(), in_place: false };
    assert_eq!(error(short), "0 entries instead of 3");
    let block = |offset, len| ironweave_coll::Block { offset, len };
    let blocks = [block(0, 4), block(6, 4), block(3, 3)].into();
    let overlap = Call::Allgatherv { len: 4, blocks, in_place: false };
    assert_eq!(error(overlap), "blocks of the receive buffer overlap");
    let blocks = [block(0, 4), block(8, 4), block(usize::MAX, 3)].into();
    let far = Call::Allgatherv { len: 4, blocks, in_place: false };
    assert_eq!(error(far), "the data is longer than memory");
    let long = Call::Allgather { len: usize::MAX / 2, block: usize::MAX / 2, in_place: false };
    assert_eq!(error(long), "the data is longer than memory");
    let blocks = [block(0, 4), block(8, 4), block(20, 3)].into();
    let other = Call::Allgatherv { len: 5, blocks, in_place: false };
    assert_eq!(error(other), "the own block has 5 bytes where 4 belong");
    let elements = ironweave_coll::Elements { count: 1, extent: 1, commutative: true };
    let scan = Call::Scan { elements, in_place: false };
    let inter = plan(&scan, &Place::inter(0, 2, 2), &config()).expect_err("there is none");
    assert_eq!(inter.to_string(), "not possible on an inter-communicator");
    let edges = |sources: &[u32], destinations: &[u32], pairing| {
        let list = |ranks: &[u32]| ranks.iter().copied().map(Some).collect();
        let (sources, destinations) = (list(sources), list(destinations));
        let neighbors = Neighbors { sources, destinations, pairing };
        Call::NeighborAlltoall { neighbors, len: 4, block: 4 }
    };
    let stranger = edges(&[0, 3], &[], Pairing::InOrder);
    assert_eq!(error(stranger), "neighbor 3 is not in a group of 3");
    let half = edges(&[1, 1], &[1, 0], Pairing::InOrder);
    assert_eq!(error(half), "2 entries instead of 1");
    let odd = edges(&[0], &[0], Pairing::Opposite);
    assert_eq!(error(odd), "1 entries instead of 2");
    let between = plan(&edges(&[], &[], Pairing::InOrder), &Place::inter(0, 2, 2), &config());
    assert!(between.is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Everything at once: any case on any world with any configuration.
    #[test]
    fn any_case_with_any_configuration(seed in any::<u64>(), size in 1..40u32, hosts in 1..9u32) {
        use rand::{Rng, SeedableRng, rngs::SmallRng};
        let mut rng = SmallRng::seed_from_u64(seed);
        let colours: Vec<u32> = (0..size).map(|_| rng.random_range(0..hosts)).collect();
        let config = util::random_config(&mut rng);
        let mut case = Case::random(&mut rng, size);
        case.count = case.count.min(4000 / size as usize);
        check(&places(size, Some(&colours)), &case, &config);
        if case.shape.is_for_inter() {
            case.in_place = false;
            check(&inter_places(size, hosts), &case, &config);
        }
    }
}
