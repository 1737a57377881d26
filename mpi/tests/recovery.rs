//! End to end: processes die and the rest recovers, over shm, over tcp, and with some pairs on each. What the ranks do and
//! check is in `mpi/examples/recovery.rs`.

#[path = "support/fabrics.rs"]
mod fabrics;
mod support;

use fabrics::{NATIVE_TCP, OFI, UCT, has_libfabric, has_uct, native_tcp};
use ironweave_rte::params::Kind;
use ironweave_rte::params::table::TABLE;
use std::process::{Command, Output};
use support::{Job, SHM, TCP};

/// A way for ranks to reach each other.
#[derive(Clone, Copy, Debug)]
enum Over {
    Shm,
    Tcp,
    /// The first half of the ranks has shm and tcp, the rest tcp only.
    Mixed,
}

const ALL: [Over; 3] = [Over::Shm, Over::Tcp, Over::Mixed];

fn job<'a>(ranks: u32, over: Over, arguments: &'a [&'a str]) -> Job<'a> {
    let (parameters, tcp_from): (&[&str], _) = match over {
        Over::Shm => (SHM, None),
        Over::Tcp => (TCP, None),
        Over::Mixed => (&["btl_tcp_if_include", "lo"], Some(ranks.div_ceil(2))),
    };
    println!("{ranks} ranks over {over:?}: {arguments:?}");
    Job { ranks, parameters, program: "recovery", arguments, tcp_from }
}

fn succeed(ranks: u32, over: Over, arguments: &[&str]) {
    job(ranks, over, arguments).succeed();
}

/// Runs a scenario that must end, with whatever exit code.
fn run(ranks: u32, over: Over, arguments: &[&str]) -> Output {
    job(ranks, over, arguments).run()
}

macro_rules! patterns {
    ($($test:ident: $ranks:literal $name:literal;)*) => {
        /// All of them, with their number of ranks.
        const PATTERNS: &[(u32, &str)] = &[$(($ranks, $name)),*];

        $(#[test] fn $test() {
            for over in ALL {
                succeed($ranks, over, &[$name]);
            }
        })*
    };
}

// Seed 000, "Testing Fault Tolerant Operation".
patterns! {
    errors_of_a_barrier: 4 "err_handler";
    wildcards_are_interrupted: 5 "err_any";
    what_is_reported_is_dead: 4 "getack";
    a_revoke_ends_what_is_pending: 4 "revoke";
    a_ring_of_pairs: 4 "pingpairs";
    pairs_are_not_disturbed: 5 "undisturbed";
    a_collective_is_interrupted: 4 "err_coll";
    a_revoke_ends_collectives: 4 "revoke_coll";
    a_summons_is_heard_in_an_agreement: 3 "summoned";
    who_never_calls_a_creation_refuses_it: 4 "uncalled";
    halves_are_insulated: 6 "insulation";
    nobody_speaks_to_the_dead: 4 "unspoken";
    two_sides_shrink_and_merge: 5 "two_sides";
}

/// All of these, and each collective with somebody killed at another moment, over a fabric's library. `IW_KILLS=N` asks for N seeds.
fn over_a_fabric(parameters: &[&str], environment: &[(&str, &str)]) {
    let succeed = |ranks, arguments: &[&str]| {
        let job = Job { ranks, parameters, program: "recovery", arguments, tcp_from: None };
        job.succeed_with(environment);
    };
    for &(ranks, name) in PATTERNS {
        succeed(ranks, &[name]);
    }
    for seed in seeds(kills_or(1)) {
        println!("replay with IW_SEED={seed} cargo nextest run -p ironweave --test recovery");
        for (place, which) in COLLECTIVES.into_iter().enumerate() {
            let turn = place + seed as usize;
            let moment = ["before", "middle", "root", "leaf", "two"][turn % 5];
            succeed(4 + turn as u32 % 2, &["collective", which, moment, &seed.to_string()]);
        }
        for name in ["comm_grid2d", "buddy", "agree", "creation"] {
            succeed(4 + 2 * u32::from(name != "buddy"), &[name, &seed.to_string()]);
        }
    }
}

#[test]
fn everything_recovers_over_ofi() {
    if has_libfabric("everything_recovers_over_ofi") {
        over_a_fabric(OFI, &[]);
    }
}

#[test]
fn everything_recovers_over_native_tcp() {
    if let Some(environment) = native_tcp() {
        over_a_fabric(NATIVE_TCP, &environment);
    }
}

#[test]
fn everything_recovers_over_uct() {
    if has_uct("everything_recovers_over_uct") {
        over_a_fabric(UCT[0], &[]);
    }
}

#[test]
fn everything_recovers_over_uct_in_shared_memory() {
    if has_uct("everything_recovers_over_uct_in_shared_memory") {
        over_a_fabric(UCT[1], &[]);
    }
}

#[test]
fn everything_recovers_over_uct_in_system_v_memory() {
    if has_uct("everything_recovers_over_uct_in_system_v_memory") {
        over_a_fabric(UCT[2], &[]);
    }
}

/// Seeds to run: `IW_SEED` alone, or the first `count`.
fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("IW_SEED") {
        Ok(seed) => vec![seed.parse().expect("IW_SEED is a number")],
        Err(_) => (0..count).collect(),
    }
}

/// A pattern with something random in it, over each kind of transport in turn.
fn random(ranks: u32, name: &str, count: u64) {
    for seed in seeds(count) {
        println!("replay with IW_SEED={seed} cargo nextest run -p ironweave --test recovery");
        let over = ALL[(seed % 3) as usize];
        succeed(ranks, over, &[name, &seed.to_string()]);
    }
}

#[test]
fn some_die_while_all_leave() {
    for seed in seeds(30) {
        println!("replay with IW_SEED={seed} cargo nextest run -p ironweave --test recovery");
        let output = run(5, ALL[(seed % 3) as usize], &["in_finalize", &seed.to_string()]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!errors.contains("Error") && !errors.contains("panicked"), "{errors}");
    }
}

#[test]
fn who_ends_with_an_error_has_failed() {
    for over in ALL {
        let output = run(4, over, &["gives_up"]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("this rank gives up"), "{errors}");
        assert!(!errors.contains("panicked"), "{errors}");
        assert_eq!(errors.matches("without finalize").count(), 1, "{errors}");
    }
}

/// Of single elements the last of four gives none: what it calls is over at once, and it hears of the death all the same.
#[test]
fn who_has_nothing_to_give_hears_of_a_death() {
    const SINGLE: &str = "3";
    for (over, which) in
        ALL.into_iter().zip(["nonblocking-gatherv", "persistent-gatherv", "gatherv"])
    {
        for moment in ["root", "before"] {
            succeed(4, over, &["collective", which, moment, SINGLE]);
        }
    }
}

#[test]
fn an_end_is_told_when_it_begins() {
    let environment = [("IRONWEAVE_LOG", "ironweave_rte::lifeline=debug")];
    let output = job(4, Over::Shm, &["undisturbed"]).run_with(&environment);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("its end has begun"), "{errors}");
}

/// One rank more than there are cores, and it is killed: the others stop offering their cores to each other, unless each is bound to one,
/// which two may share.
#[test]
fn survivors_that_have_a_core_each_wait_as_such() {
    const WORDS: &str = "a core for each from now on";
    // As the launcher counts them: hardware threads of one are one.
    let mut told = Command::new(support::programs().join("ironweave"));
    told.args(["run", "-n", "1", "sh", "-c", "echo $IRONWEAVE_CORES"]);
    let told = told.output().expect("the launcher starts").stdout;
    let told = String::from_utf8_lossy(&told);
    let cores: usize = told.trim().parse().expect("a number of cores");
    for (bind, survivors) in [("none", cores), ("core", usize::from(cores == 1))] {
        let arguments = ["collective", "barrier", "leaf", "1"];
        let job = job(cores as u32 + 1, Over::Shm, &arguments);
        let mut command = Command::new(support::programs().join("ironweave"));
        command.args(["run", "--bind-to", bind, "-n", &job.ranks.to_string()]);
        command.env("IRONWEAVE_LOG", "ironweave=debug");
        let output = job.run_by(command);
        assert!(output.status.success(), "{output:?}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(errors.matches(WORDS).count(), survivors, "bound to {bind}: {errors}");
    }
}

/// Ten threads of each process, in ten kinds of calls, on a communicator each.
#[test]
fn threads_come_back_and_go_on() {
    random(4, "threads", 6);
}

#[test]
fn splits_in_rows_and_columns() {
    random(6, "comm_grid2d", 30);
}

#[test]
fn a_buddy_keeps_the_state() {
    random(4, "buddy", 30);
}

#[test]
fn agreements_are_the_same_everywhere() {
    random(6, "agree", 30);
}

#[test]
fn communicators_are_made_by_all_or_by_none() {
    random(4, "creation", 30);
}

const COLLECTIVES: [&str; 21] = [
    "barrier",
    "bcast",
    "gather",
    "gatherv",
    "scatter",
    "scatterv",
    "allgather",
    "allgatherv",
    "alltoall",
    "alltoallv",
    "reduce",
    "allreduce",
    "reduce_scatter",
    "reduce_scatter_block",
    "scan",
    "exscan",
    "nonblocking",
    "persistent",
    "neighbors",
    "beside",
    "sides",
];

/// How many of them there are in all three ways; these are blocking.
const WAYS: usize = 16;

/// Rooted ones on inter-communicators.
const SIDES: [&str; 6] = [
    "sides_bcast",
    "sides_gather",
    "sides_gatherv",
    "sides_scatter",
    "sides_scatterv",
    "sides_reduce",
];

/// Every collective, with its processes killed before it, in the middle, the root, a leaf, and two at once; each over
/// another transport, in turn. `IW_KILLS=N` asks for N seeds of each instead of 3.
fn collectives(moment: &str) {
    for seed in seeds(kills()) {
        for (place, which) in COLLECTIVES.into_iter().enumerate() {
            println!("replay with IW_SEED={seed} cargo nextest run -p ironweave --test recovery");
            let over = ALL[(place + seed as usize) % 3];
            let ranks = 4 + (place as u32 + seed as u32) % 2;
            succeed(ranks, over, &["collective", which, moment, &seed.to_string()]);
        }
    }
}

/// The same for what is called without waiting or again and again, and between two sides: each seed takes each operation in another
/// way. `IW_KILLS=N` asks for N seeds of each instead of 2.
fn other_ways(moment: &str) {
    let names = COLLECTIVES.into_iter().take(WAYS).chain(SIDES);
    for seed in seeds(kills_or(2)) {
        for (place, name) in names.clone().enumerate() {
            println!("replay with IW_SEED={seed} cargo nextest run -p ironweave --test recovery");
            let turn = place + seed as usize;
            let which = match (place < WAYS, turn % 2, turn % 3) {
                (true, 0, _) | (false, _, 0) => format!("nonblocking-{name}"),
                (true, ..) | (false, _, 1) => format!("persistent-{name}"),
                (false, ..) => name.to_owned(),
            };
            let over = ALL[(place / 2 + seed as usize) % 3];
            let ranks = 4 + turn as u32 % 2;
            succeed(ranks, over, &["collective", &which, moment, &seed.to_string()]);
        }
    }
}

/// What has no root and works between two sides.
const BETWEEN: [&str; 8] = [
    "barrier",
    "allgather",
    "allgatherv",
    "alltoall",
    "alltoallv",
    "allreduce",
    "reduce_scatter",
    "reduce_scatter_block",
];

/// The same for what has no root between two sides, in all three ways, with the first or another one of either side killed, which is the
/// local one for some survivors and the remote one for the others: what they say afterwards they say on the inter-communicator.
fn between(moment: &str) {
    for seed in seeds(kills_or(1)) {
        println!("replay with IW_SEED={seed} cargo nextest run -p ironweave --test recovery");
        for (place, name) in BETWEEN.into_iter().enumerate() {
            for (way, prefix) in ["", "nonblocking-", "persistent-"].into_iter().enumerate() {
                for side in 0..2 {
                    // Of five 0, 2 and 4 are one side, 1 and 3 the other.
                    let turn = place + way + seed as usize;
                    let victim = [["0", "4"], ["1", "3"]][side][turn % 2];
                    let (which, mixed) = (format!("{prefix}{name}"), turn as u64 * 8 + seed);
                    let over = ALL[(turn / 2 + side) % 3];
                    succeed(5, over, &["between", &which, victim, moment, &mixed.to_string()]);
                }
            }
        }
    }
}

#[test]
fn nothing_rooted_between_sides_with_one_dead_before() {
    between("before");
}

#[test]
fn nothing_rooted_between_sides_with_one_killed_in_the_middle() {
    between("middle");
}

/// All of one side die, and what is left of the inter-communicator hangs nobody.
#[test]
fn one_side_is_left() {
    random(5, "alone", 2);
}

/// Operations that an algorithm is chosen for by `coll_<collective>_algorithm`.
fn of_algorithms(collective: &str) -> &'static [&'static str] {
    match collective {
        "barrier" => &["barrier"],
        "bcast" => &["bcast"],
        "reduce" => &["reduce"],
        "allreduce" => &["allreduce"],
        "gather" => &["gather"],
        "scatter" => &["scatter"],
        "allgather" => &["allgather", "allgatherv"],
        "alltoall" => &["alltoall", "alltoallv"],
        "reduce_scatter" => &["reduce_scatter", "reduce_scatter_block"],
        "scan" => &["scan", "exscan"],
        other => panic!("{other} is new here"),
    }
}

/// Each algorithm that can be asked for, short and in several segments, with a process killed in the middle. Four ranks, so that none is
/// passed over for their number; on what the launcher takes for two hosts, so that those which go by hosts are not either.
fn every_algorithm(length: &str) {
    let mut done = 0;
    for row in TABLE {
        let name = row.name.strip_prefix("coll_").and_then(|name| name.strip_suffix("_algorithm"));
        let (Some(collective), Kind::Choice(algorithms)) = (name, row.kind) else { continue };
        for algorithm in algorithms.iter().filter(|algorithm| **algorithm != "auto") {
            for which in of_algorithms(collective) {
                let way = ["", "nonblocking-", "persistent-"][done % 3];
                let seed = done.to_string();
                let which = format!("{way}{which}");
                let arguments = ["collective", &which, "middle", length, &seed];
                println!("{} {algorithm}: {arguments:?}", row.name);
                let job = job(4, ALL[done / 3 % 3], &arguments);
                let mut command = Command::new(support::programs().join("ironweave"));
                command.args(["run", "-n", "4", "--mca", row.name, algorithm]);
                command.args(["--mca", "coll_segment_size", "4096"]);
                for parameter in job.parameters.chunks(2).filter(|_| *algorithm != "node") {
                    command.arg("--mca").args(parameter);
                }
                if *algorithm == "node" {
                    let two = ["--hosts", "one:2,two:2", "--launch-agent", "env IW_HOST={host}"];
                    command.args(two).args(["--mca", "btl_tcp_if_include", "lo"]);
                }
                let output = job.run_by(command);
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{algorithm}, {arguments:?}: {errors}");
                assert_eq!(errors.matches("killed by signal 9").count(), 1, "{errors}");
                done += 1;
            }
        }
    }
    assert!(done >= 47, "{done} jobs");
}

#[test]
fn every_algorithm_with_one_killed_short() {
    every_algorithm("1");
}

#[test]
fn every_algorithm_with_one_killed_in_segments() {
    every_algorithm("5000");
}

/// The same with two ranks over shm, which then have a core each on most machines: they receive short messages where they
/// lie, and must not overlook a death meanwhile.
#[test]
fn collectives_of_a_pair_with_one_killed() {
    for seed in seeds(kills()) {
        println!("replay with IW_SEED={seed} cargo nextest run -p ironweave --test recovery");
        for (place, which) in COLLECTIVES.into_iter().enumerate() {
            let moment = ["middle", "root", "leaf"][(place + seed as usize) % 3];
            succeed(2, Over::Shm, &["collective", which, moment, &seed.to_string()]);
        }
    }
}

/// How many seeds of each.
fn kills() -> u64 {
    kills_or(3)
}

fn kills_or(usual: u64) -> u64 {
    std::env::var("IW_KILLS").map_or(usual, |text| text.parse().expect("IW_KILLS is a number"))
}

macro_rules! moments {
    ($($test:ident $other:ident: $moment:literal;)*) => {$(
        #[test] fn $test() { collectives($moment); }
        #[test] fn $other() { other_ways($moment); }
    )*};
}

moments! {
    collectives_with_one_dead_before other_ways_with_one_dead_before: "before";
    collectives_with_one_killed_in_the_middle other_ways_with_one_killed_in_the_middle: "middle";
    collectives_with_the_root_killed other_ways_with_the_root_killed: "root";
    collectives_with_a_leaf_killed other_ways_with_a_leaf_killed: "leaf";
    collectives_with_two_killed other_ways_with_two_killed: "two";
}
